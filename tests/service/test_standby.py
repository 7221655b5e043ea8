"""A router that waits as a standby turns peers away, in every protocol, and dials nobody."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import attrs
import pytest
import trio

from router.journal.postgres.lease import Leader
from router.model.condition import CONNECTION_FORCED, CONNECTION_REDIRECT
from router.net.listener import Listeners
from router.service.assembly import named_listeners
from router.service.config import ConfigError, RouterConfig, load
from router.service.control import ContainerRecord
from router.service.crew import Soloist
from router.service.standby import Patience, addresses, standby_of, why_not
from router.service.worker import make_worker
from router.wire.alternatives import read_alternative
from tests.support import peers
from tests.support.ports import free_port

FILE = """
router:
  id: dc1
  workers: 1
  state: {state}
  admin: off
  journal: {{store: "postgresql://db/router", standby: true}}
listeners: [{{bind: "127.0.0.1:{port}", websocket: {{}}}}]
containers: {{east: {{url: "amqp://127.0.0.1:{port}"}}}}
routes: [{{address: orders, from: east/orders}}]
"""
DIALER = """
router: {{id: edge, workers: 1, state: {state}, admin: off}}
listeners: []
containers:
  peer: {{url: "{scheme}://127.0.0.1:{port}", protocol: {protocol}, failover: ignore}}
"""


def leader(
    age_seconds: float = 0.2, address: tuple[str | None, ...] = ("10.0.0.1:5671",)
) -> Leader:
    return Leader(
        epoch=7,
        holder="a",
        place="machine a, process 1",
        since=4000.0,
        age_seconds=age_seconds,
        address=address,
    )


def config_of(text: str, folder: Path, **values: object) -> RouterConfig:
    peers.need_python("psycopg")
    file = folder / "router.yaml"
    file.write_text(text.format(**values))
    return load(file)


def test_a_peer_is_redirected_to_the_listener_of_the_leader_at_the_same_place() -> None:
    known = leader(address=(None, "10.0.0.1:5671", "::1:5672"))
    condition = why_not(known, 1)
    assert condition.name == CONNECTION_REDIRECT
    place = read_alternative(condition.info)
    assert (place.host, place.port) == ("10.0.0.1", 5671)
    assert read_alternative(why_not(known, 2).info).host == "::1"


@pytest.mark.parametrize(
    ("known", "listener"),
    [
        (None, 0),
        (leader(age_seconds=3.5), 0),
        (leader(address=()), 0),
        (leader(address=(None,)), 0),
        (leader(), None),
    ],
    ids=["unknown", "expired", "another-file", "unix", "no-listener"],
)
def test_without_a_place_to_go_to_the_connection_is_closed(
    known: Leader | None, listener: int | None
) -> None:
    assert why_not(known, listener).name == CONNECTION_FORCED


def test_a_leader_tells_where_its_listeners_are_reached(tmp_path: Path) -> None:
    text = """
router: {{id: dc1, state: {state}, journal: {{store: "postgresql://db/router"{host}}}}}
listeners: [{{bind: "127.0.0.1:5672"}}, {{bind: "0.0.0.0:0"}}, {{bind: "unix:{state}/s"}}]
"""
    ports = {"127.0.0.1:5672": 5672, "0.0.0.0:0": 40000}
    config = config_of(text, tmp_path, state=tmp_path, host="")
    assert addresses(config, ports.get) == ("127.0.0.1:5672", None, None)
    config = config_of(text, tmp_path, state=tmp_path, host=", host: pod-1")
    assert addresses(config, ports.get) == ("pod-1:5672", "pod-1:40000", None)


@pytest.mark.parametrize(
    ("router", "problem"),
    [
        ("{{id: dc1, journal: {{standby: true}}}}", "standby: no other machine can read"),
        (
            '{{journal: {{store: "postgresql://db/router", standby: true}}}}',
            "must have the same router.id",
        ),
    ],
)
def test_a_file_that_no_standby_could_serve_is_refused(
    tmp_path: Path, router: str, problem: str
) -> None:
    with pytest.raises(ConfigError) as error:
        config_of(f"router: {router}\n", tmp_path)
    assert problem in str(error.value)


@attrs.define(eq=False)
class Knows:
    """What a standby's journal knows of the leader."""

    leader: Leader | None
    trouble: str | None = None
    leads: trio.Event = attrs.field(factory=trio.Event)


def test_peers_of_a_leader_that_goes_silent_wait_a_while_for_the_next_one() -> None:
    """They are redirected while it leads, and turned away when none has led for long."""
    knows = Knows(leader(age_seconds=0.3))
    patience = Patience(knows)  # type: ignore[arg-type]
    held = [patience.holds(0.0)]
    knows.leader = leader(age_seconds=1.0)
    held += [patience.holds(now) for now in (1.0, 5.0, 8.0)]
    knows.leader = leader(age_seconds=0.1)
    held.append(patience.holds(9.0))
    knows.trouble = "the database does not answer"
    held += [patience.holds(now) for now in (10.0, 17.0)]
    knows.leads.set()
    held.append(patience.holds(18.0))
    assert held == [False, True, True, False, False, True, False, True]


async def answer(
    tmp_path: Path, protocol: str, scheme: str = "amqp", known: Callable[[], Leader] = leader
) -> ContainerRecord:
    """Dials a standby; returns what the dialing router knows of it then."""
    port = free_port()
    config = config_of(FILE, tmp_path, state=tmp_path / "standby", port=port)
    values = {"state": tmp_path / "edge", "port": port, "scheme": scheme, "protocol": protocol}
    dialer = Soloist(make_worker(config_of(DIALER, tmp_path, **values)))
    standby = standby_of(config, known)
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            await standby.start(nursery)
            listeners = Listeners(standby.admit, nursery)
            await listeners.configure({n: each.bind for n, each in named_listeners(config).items()})
            await dialer.start(nursery)
            (control,) = dialer.controls()
            while not (found := (await control.snapshot(0.0)).containers[0]).error:
                await trio.sleep(0.01)
            assert not standby.connected_containers
            (own,) = standby.controls()
            assert not (await own.snapshot(0.0)).containers, "it dials nobody"
            nursery.cancel_scope.cancel()
    return found


@pytest.mark.parametrize("scheme", ["amqp", "ws"])
async def test_a_standby_redirects_peers_of_amqp_1_0(tmp_path: Path, scheme: str) -> None:
    found = await answer(tmp_path, "amqp-1.0", scheme)
    assert found.opened, "the open was answered"
    assert "10.0.0.1:5671" in str(found.error)
    assert "redirect" in str(found.error)


@pytest.mark.parametrize(
    ("protocol", "code"),
    [
        ("amqp-0-9-1", "320"),
        ("amqp-0-9r1", "320"),
        ("amqp-0-10", "320"),
        ("amqp-fast", "507"),
    ],
)
async def test_a_standby_closes_other_connections_as_their_protocol_does(
    tmp_path: Path, protocol: str, code: str
) -> None:
    found = await answer(tmp_path, protocol)
    assert code in str(found.error)
    assert "standby" in str(found.error)


async def test_a_standby_closes_what_it_cannot_redirect(tmp_path: Path) -> None:
    found = await answer(tmp_path, "amqp-1.0", known=partial(leader, address=()))
    assert CONNECTION_FORCED in str(found.error)
