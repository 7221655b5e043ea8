"""Where the client dials next: failover lists and redirects, within bounds."""

from collections.abc import Iterator

import attrs
import pytest
import trio
from trio.testing import MockClock, memory_stream_pair

from router.cli.place import diversion_policy, other_place, place_of
from router.links.trail import HOPS_MOST, RefusedDiversionError
from router.model.condition import (
    CONNECTION_FORCED,
    CONNECTION_REDIRECT,
    LINK_REDIRECT,
    NOT_ALLOWED,
    Condition,
)
from router.model.identity import LinkId, LinkName
from router.model.place import Alternative
from router.net.client.conversation import Conversation, Dialing, UnreachableError
from router.net.client.course import Course
from router.net.client.message import numbered
from router.net.client.sender import SendingLink
from router.routes.route import Guarantee
from router.wire.alternatives import as_map
from router.wire.engine import EngineSettings
from router.wire.v1_0.engine import Engine10
from tests.support.keeper import Keeper


def divert(other: Alternative) -> str:
    if other.host == "evil":
        raise RefusedDiversionError("nobody allows evil")
    return other.host


def course(reports: list[str] | None = None) -> Course[str]:
    said: list[str] = [] if reports is None else reports
    return Course(home="a", address="orders", divert=divert, report=said.append)


def place(host: str) -> dict[object, object]:
    return as_map(Alternative(host=host))


def redirect(*hosts: str) -> Condition:
    info = place(hosts[0])
    if hosts[1:]:
        info["failover-server-list"] = [place(host) for host in hosts[1:]]
    return Condition(CONNECTION_REDIRECT, "there", info)


def link_redirect(host: str | None = None, address: str | None = None) -> Condition:
    info = {} if host is None else place(host)
    if address is not None:
        info["address"] = address
    return Condition(LINK_REDIRECT, "there", info)


# The course


def test_without_other_places_the_own_one_is_dialed_again_and_again() -> None:
    made = course()
    assert made.places == 1
    for had_opened in (False, True, True):
        assert made.advance() == "a"
        assert not made.lost(had_opened=had_opened)


def test_a_round_begins_behind_the_place_that_was_lost() -> None:
    made = course()
    assert made.advance() == "a"
    made.opened([place("b"), place("c")])
    assert made.places == 3
    assert not made.lost(had_opened=True)
    assert made.advance() == "b"
    assert not made.lost(had_opened=False)
    assert made.advance() == "c"
    made.opened(None)  # it says nothing: the list stands
    assert not made.lost(had_opened=True)
    assert made.advance() == "a"
    made.opened([])
    assert made.places == 1


def test_what_is_named_wrongly_or_not_allowed_is_reported_once_and_left_out() -> None:
    reports: list[str] = []
    made = course(reports)
    made.advance()
    for _ in range(2):
        made.opened([place("evil"), {}, place("b")])
    assert made.places == 2
    assert reports == [
        "another place is not dialed: entry 2 names no network-host",
        "another place is not dialed: evil: nobody allows evil",
    ]


def test_redirects_are_followed_depth_first_before_the_round_goes_on() -> None:
    made = course()
    made.advance()
    made.opened([place("z")])
    assert made.redirected(redirect("b", "c"))
    assert made.advance() == "b"
    assert made.redirected(redirect("d", "e"))
    assert made.advance() == "d"
    assert made.lost(had_opened=False)
    assert made.advance() == "e"
    assert made.lost(had_opened=False)
    assert made.advance() == "c"
    assert not made.lost(had_opened=False)
    assert made.advance() == "z"


def test_a_place_where_a_redirect_led_is_left_for_the_round_when_it_is_lost() -> None:
    made = course()
    made.advance()
    assert made.redirected(redirect("b", "c"))
    made.advance()
    assert not made.lost(had_opened=True)
    assert made.advance() == "a"


def test_circles_and_long_chains_of_redirects_end() -> None:
    reports: list[str] = []
    made = course(reports)
    made.advance()
    assert made.redirected(redirect("b"))
    made.advance()
    assert not made.redirected(redirect("a"))
    assert "circle" in reports[-1]
    made.lost(had_opened=True)
    made.advance()
    hops = 0
    while made.redirected(redirect(f"h{hops}")):
        assert made.advance() == f"h{hops}"
        hops += 1
    assert hops == HOPS_MOST


def test_a_link_may_be_sent_to_another_address_place_or_both() -> None:
    made = course()
    made.advance()
    assert made.link_redirected(link_redirect(address="shard"))
    assert (made.advance(), made.address_here) == ("a", "shard")
    assert made.link_redirected(link_redirect("b"))
    assert (made.advance(), made.address_here) == ("b", "shard")
    assert made.link_redirected(link_redirect("c", "orders"))
    assert (made.advance(), made.address_here) == ("c", "orders")
    assert not made.link_redirected(link_redirect())
    assert not made.link_redirected(link_redirect("evil"))
    assert not made.lost(had_opened=True)
    assert (made.advance(), made.address_here) == ("a", "orders")


def test_another_condition_is_no_redirect() -> None:
    made = course()
    made.advance()
    assert not made.redirected(None)
    assert not made.redirected(Condition(CONNECTION_FORCED))


# Policy of the commands


@pytest.mark.parametrize(
    ("url", "other", "hosts", "found"),
    [
        ("amqp://app:pw@h:1", Alternative(host="h", port=2), (), "h:2"),
        ("amqp://h:1", Alternative(host="H."), (), "H.:5672"),
        ("amqps://h", Alternative(host="b.example.com"), ("*.example.com",), "b.example.com:5671"),
    ],
)
def test_a_command_follows_within_its_options(
    url: str, other: Alternative, hosts: tuple[str, ...], found: str
) -> None:
    home = place_of(url)
    there = other_place(home, other, diversion_policy(home, is_obeyed=True, hosts=hosts))
    assert str(there) == found
    assert (there.user, there.password, there.is_tls) == (home.user, home.password, home.is_tls)
    assert there.server_name == other.host


@pytest.mark.parametrize(
    ("url", "other", "why"),
    [
        ("amqp://h", Alternative(host="other"), "--failover-host does not name"),
        ("amqps://h", Alternative(host="h", scheme="amqp"), "the URL has TLS"),
        ("amqp://h", Alternative(host="h", scheme="amqps"), "the URL has no TLS"),
        ("amqp://h", Alternative(host="h", scheme="ws"), "WebSocket"),
        ("unix:/run/s", Alternative(host="localhost"), "--failover-host does not name"),
    ],
)
def test_a_command_follows_nowhere_else(url: str, other: Alternative, why: str) -> None:
    home = place_of(url)
    policy = diversion_policy(home, is_obeyed=True, hosts=())
    with pytest.raises(RefusedDiversionError, match=why):
        other_place(home, other, policy)
    with pytest.raises(RefusedDiversionError, match="--failover says ignore"):
        other_place(home, other, attrs.evolve(policy, is_obeyed=False))


# Conversations


@attrs.define(eq=False)
class World:
    """Containers by host, behind streams in memory.

    Attributes:
        farewells: what a host closes each connection with, as soon as it is open.
        dials: hosts, as they were dialed, each with the time.
    """

    nursery: trio.Nursery
    keepers: dict[str, Keeper]
    farewells: dict[str, Condition] = attrs.field(factory=dict)
    properties: dict[str, dict[str, object]] = attrs.field(factory=dict)
    dials: list[tuple[str, float]] = attrs.field(factory=list)
    reports: list[str] = attrs.field(factory=list)
    streams: list[trio.abc.Stream] = attrs.field(factory=list)

    async def converse(self, machine: SendingLink, patience_seconds: float = 60.0) -> None:
        course = Course(
            home="a", address=machine.address, divert=divert, report=self.reports.append
        )

        async def dial() -> trio.abc.Stream:
            machine.aim(course.address_here)
            self.dials.append((course.here, trio.current_time()))
            if course.here not in self.keepers:
                raise ConnectionRefusedError(111, "Connection refused")
            near, far = memory_stream_pair()
            self.streams.append(far)
            self.nursery.start_soon(self._serve, course.here, far)
            return near

        dialing = Dialing(
            dial=dial,
            make_engine=_client_engine,
            course=course,
            patience_seconds=patience_seconds,
            on_lost=self.reports.append,
        )
        await Conversation(dialing, machine).run()

    async def _serve(self, host: str, stream: trio.abc.Stream) -> None:
        keeper = self.keepers[host]
        keeper.refuses_connection = self.farewells.get(host)
        engine = Engine10(
            EngineSettings(
                is_server=True, container=keeper.name, properties=self.properties.get(host, {})
            )
        )
        try:
            while not engine.finished:
                octets = await stream.receive_some(65536)
                now = trio.current_time()
                events = (
                    engine.receive_data(bytes(octets), now) if octets else engine.receive_eof(now)
                )
                for command in keeper.handle(events):
                    engine.execute(command)
                while view := engine.data_to_send():
                    await stream.send_all(view)
                    engine.bytes_sent(len(view))
            await stream.aclose()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            engine.receive_eof(trio.current_time())
        keeper.lost()

    @property
    def hosts(self) -> list[str]:
        """The hosts that were dialed, in order."""
        return [host for host, _ in self.dials]


def _client_engine(link_ids: Iterator[LinkId]) -> Engine10:
    return Engine10(EngineSettings(is_server=False, container="client", link_ids=link_ids))


def sending(count: int = 20, guarantee: Guarantee = Guarantee.EXACTLY_ONCE) -> SendingLink:
    return SendingLink(
        name=LinkName("link"), address="orders", supply=numbered(b"m", count), guarantee=guarantee
    )


async def test_a_redirect_of_the_connection_is_followed_at_once(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    world = World(nursery, {"a": Keeper(), "b": Keeper()}, {"a": redirect("dead", "b")})
    machine = sending()
    began = trio.current_time()
    await world.converse(machine)
    assert world.hosts == ["a", "dead", "b"]
    assert trio.current_time() == began
    assert machine.report.outcomes == {"accepted": 20}
    assert world.reports == ["redirected to dead"]


async def test_places_that_redirect_to_each_other_are_given_up_and_never_spin(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    farewells = {"a": redirect("b"), "b": redirect("a")}
    world = World(nursery, {"a": Keeper(), "b": Keeper()}, farewells)
    with pytest.raises(UnreachableError, match="redirect"):
        await world.converse(sending(), patience_seconds=30)
    assert 10 < len(world.dials) < 100
    assert any("circle" in each for each in world.reports)


async def test_the_next_place_of_the_list_is_dialed_and_has_the_map_of_the_same_container(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    shared = Keeper(credit=20)  # as a standby that takes over shares the state of its leader
    listed: dict[str, object] = {"failover-server-list": [place("b")]}
    world = World(nursery, {"a": shared, "b": shared}, properties={"a": listed})
    machine = sending()
    shared.credit = 5

    async def lose() -> None:
        while len(shared.taken) < 5:
            await trio.sleep(0.01)
        await world.streams[0].aclose()

    nursery.start_soon(lose)
    await world.converse(machine)
    assert world.hosts[0] == "a"
    assert sorted(shared.taken) == sorted(numbered(b"m", 20))
    assert machine.report.in_doubt == 0


async def test_a_redirected_link_is_attached_to_the_address_at_the_place(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    a, b = Keeper(name="A", refuses=link_redirect("b", "shard")), Keeper(name="B")
    world = World(nursery, {"a": a, "b": b})
    machine = sending()
    await world.converse(machine)
    assert world.hosts == ["a", "b"]
    target = b.attached[0].target
    assert getattr(target, "address", None) == "shard"
    assert machine.report.outcomes == {"accepted": 20}


async def test_a_redirect_that_is_not_allowed_ends_the_link(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    world = World(nursery, {"a": Keeper(refuses=link_redirect("evil"))})
    machine = sending()
    await world.converse(machine)
    assert machine.failure is not None
    assert machine.failure.name == LINK_REDIRECT
    assert "evil" in world.reports[0]


async def test_a_refused_login_elsewhere_is_not_tried_again(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    farewells = {"a": redirect("b"), "b": Condition(NOT_ALLOWED, "no")}
    world = World(nursery, {"a": Keeper(), "b": Keeper()}, farewells)
    machine = sending()
    await world.converse(machine)
    assert world.hosts == ["a", "b"]
    assert machine.failure is not None
