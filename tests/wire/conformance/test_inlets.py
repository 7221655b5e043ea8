"""The rules of inlets, and of what waits for them, one test for all protocols that have them."""

import attrs
import pytest

from router.model.commands import Command, DetachLink, GrantCredit, HoldWindow, RefuseLink
from router.model.condition import NOT_FOUND, Condition
from router.model.events import CreditReturned, Event, LinkAttached, LinkDetached
from router.model.identity import LinkId
from router.wire.fast import commands as c
from router.wire.inlets import INLETS_KEPT
from router.wire.serving import ServingMachine
from tests.wire.conformance import test_ahead_of_credit as ahead
from tests.wire.conformance import test_many_addresses as many

GONE = Condition(NOT_FOUND, "no such queue")


@attrs.define(eq=False)
class Core(ahead.Core):
    """A core that takes no messages ahead of credit.

    Attributes:
        refuses: the addresses that it refuses.
        asked: the addresses that it was asked for, in order.
        returned: credit that came back: address, and what was left.
        detached: the addresses of links that were given up.
    """

    ahead: int | None = None
    refuses: set[str] = attrs.field(factory=set)
    asked: list[str] = attrs.field(factory=list)
    returned: list[tuple[str, int]] = attrs.field(factory=list)
    detached: list[str] = attrs.field(factory=list)

    def _answer(self, event: Event) -> list[Command]:
        match event:
            case LinkAttached(link=link, target=target):
                address = str(getattr(target, "address", None))
                self.asked.append(address)
                if address in self.refuses:
                    return [RefuseLink(link, GONE)]
            case CreditReturned(link=link, credit=credit):
                self.returned.append((self._address_of(link), credit))
            case LinkDetached(link=link):
                self.detached.append(self._address_of(link))
        return super()._answer(event)

    def _address_of(self, link: LinkId) -> str:
        return next(name for name, each in self.links.items() if each == link)

    def drain(self, credit: int) -> None:
        self.order(GrantCredit(self.links["a"], credit, drain=True))

    def hold(self, *, held: bool) -> None:
        self.order(HoldWindow(self.links["a"], held))


@pytest.fixture(params=ahead.CLIENTS)
def core(request: pytest.FixtureRequest) -> Core:
    return Core(ahead.CLIENTS[str(request.param)]())


# --- credit ---------------------------------------------------------------------------------------


def test_a_drain_uses_credit_for_what_waits_and_gives_the_rest_back(core: Core) -> None:
    core.publish(asks=True)
    core.publish(asks=True)
    core.drain(5)
    assert core.came == [("a", False)] * 2
    assert core.returned == [("a", 0)]
    core.publish(asks=True)
    assert core.came == [("a", False)] * 2
    core.grant(None, credit=1)
    assert core.came == [("a", False)] * 3


def test_a_held_window_puts_credit_by(core: Core) -> None:
    core.publish(asks=True)
    core.grant(None, credit=2)
    core.hold(held=True)
    core.publish(asks=True)
    assert core.came == [("a", False)]
    core.hold(held=False)
    core.publish(asks=True)
    assert core.came == [("a", False)] * 2


def test_credit_that_is_granted_while_the_window_is_held_is_used_behind_that(core: Core) -> None:
    core.publish(asks=True)
    core.hold(held=True)
    core.grant(None, credit=1)
    core.publish(asks=True)
    assert core.came == []
    core.hold(held=False)
    assert core.came == [("a", False)]


def test_a_drain_gives_back_credit_that_was_put_by(core: Core) -> None:
    core.publish(asks=True)
    core.hold(held=True)
    core.drain(5)
    assert core.returned == [("a", 0)]
    core.hold(held=False)
    assert core.came == []


# --- refusal --------------------------------------------------------------------------------------


def test_what_was_refused_is_asked_for_anew(core: Core) -> None:
    core.refuses.add("a")
    core.publish(asks=True)
    assert core.came == []
    core.refuses.clear()
    _go_on(core)
    core.publish(asks=True)
    core.grant(None, credit=1)
    assert core.asked == ["a", "a"]
    assert core.came == [("a", False)]
    assert core.reads()


def test_an_address_whose_link_was_taken_away_is_asked_for_anew(core: Core) -> None:
    core.publish(asks=True)
    core.order(DetachLink(core.links["a"], closed=True, condition=GONE))
    assert core.came == []
    _go_on(core)
    core.publish(asks=True)
    core.grant(None, credit=1)
    assert core.asked == ["a", "a"]
    assert core.came == [("a", False)]


def _go_on(core: Core) -> None:
    """Opens what the end of an address has closed: of AMQP/Fast the handle."""
    client = core.client
    if isinstance(client, ahead.FastClient):
        client.peer.send(c.HandleClose(1, 200))
        client.peer.handle()


@pytest.mark.parametrize("name", ["0-9-1", "0.9r1", "0-10"])
def test_an_address_that_is_none_leaves_no_link_behind(name: str) -> None:
    core = Core(ahead.CLIENTS[name]())
    for _ in range(3):
        core.publish("", asks=True)
    assert core.asked == []
    engine = core.client.engine
    assert isinstance(engine, ServingMachine)
    assert not engine.inlets


# --- eviction -------------------------------------------------------------------------------------


@pytest.fixture(params=many.CLIENTS)
def client(request: pytest.FixtureRequest) -> many.Client:
    return many.CLIENTS[str(request.param)]()


def test_links_stay_while_a_transaction_holds_posts_for_them_and_no_longer(
    client: many.Client,
) -> None:
    client.begin(in_transaction=True)
    core = many.Core(client, credit=10)
    for address in many.ADDRESSES:
        core.hear(client.publish(address))
    assert len(core.links) == len(many.ADDRESSES)
    core.hear(client.roll_back())
    for address in many.ADDRESSES[:INLETS_KEPT]:
        core.hear(client.publish(f"another.{address}"))
    assert sorted(core.links.values()) == sorted(
        f"another.{address}" for address in many.ADDRESSES[:INLETS_KEPT]
    )
    core.hear(client.commit())
    assert core.delivered == [f"another.{address}" for address in many.ADDRESSES[:INLETS_KEPT]]
    assert client.commits() == 1
