"""Each shortcut of the core against the function whose shortcut it is, on the same records.

``test_bulk`` plays whole conversations both ways. Here one step is done to records that are drawn
at random, most of them usual, and everything that the step may have changed is compared.
"""

from collections.abc import Callable
from typing import Any, Final

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.core import bulk
from router.core.link_ledgers import Entry
from router.core.node import Feed
from router.links import life
from router.links.link import IncomingLink, OutgoingLink
from router.links.pairing import Fan, Pairing
from router.model.capabilities import Protocol
from router.model.condition import INVALID_FIELD, Condition
from router.model.delivery import OutgoingDelivery, ReceivedDelivery
from router.model.events import DeliveriesUpdated
from router.model.identity import DeliveryKey, DeliveryNumber, DeliveryTag, LinkId
from router.model.outcome import ACCEPTED, RELEASED, DeliveryState, Modified, Rejected
from tests.support.counted import Counted
from tests.support.journaled import EXACT, Journaled

pytestmark = pytest.mark.skipif(bulk.shortcuts is None, reason="nothing was compiled")

REJECTED: Final = Rejected(Condition(INVALID_FIELD, "no"))
SENT_FROM: Final = 100
"""Our number of the first delivery: unlike the sender's."""

FLAWS: Final = (
    "settled", "unusual", "other sender", "other receiver", "no outcome", "other outcome",
    "not on record", "no key", "sent before", "sent twice", "at nobody", "fanned", "resumed",
    "ttl", "format", "count", "protocol", "address", "told otherwise", "alone",
)  # fmt: skip
"""What may be unusual about one delivery; not every step looks at all of it."""


@attrs.frozen
class Plan:
    """One step: what there is, and what it is asked for.

    Attributes:
        flaws: of each delivery; empty: it is usual.
        asked: places of the deliveries that the step is about; some may be nobody's.
        state: what is said of them.
        settled: whether it settles them.
        second: the sender settles second.
        adrift: the receiver has deliveries of an earlier attachment, too.
        anonymous: the sender's link is to the anonymous terminus.
    """

    flaws: tuple[str, ...]
    asked: tuple[int, ...]
    state: DeliveryState | None = ACCEPTED
    settled: bool = False
    second: bool = True
    adrift: bool = False
    anonymous: bool = False


USUAL: Final = Plan(("",) * 5, (0, 1, 2, 3, 4))
STATES: Final = (ACCEPTED, ACCEPTED, REJECTED, RELEASED, Modified(delivery_failed=True), None)


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    """Draws steps about deliveries of which at most two are unusual, mostly."""
    flaws = [""] * draw(st.integers(1, 8))
    for _ in range(draw(st.sampled_from((0, 0, 1, 1, 2, 8)))):
        flaws[draw(st.integers(0, len(flaws) - 1))] = draw(st.sampled_from(FLAWS))
    asked = st.lists(st.integers(0, len(flaws) + 1), min_size=1, max_size=10, unique=True)
    return Plan(
        tuple(flaws),
        tuple(draw(asked)),
        draw(st.sampled_from(STATES)),
        settled=draw(st.booleans()),
        second=draw(st.booleans()),
        adrift=draw(st.sampled_from((False, False, False, True))),
        anonymous=draw(st.booleans()),
    )


class World:
    """A journaled core with two senders and two receivers, and deliveries put in their places."""

    def __init__(self, plan: Plan, *, is_sent: bool) -> None:
        self.plan = plan
        self.play = Journaled(EXACT)
        self.core = self.play.core
        self.ledger = self.core._ledger
        peers = [self.play.connect(name) for name in ("one", "two", "three", "four")]
        senders = [peer.attach_sender(second=plan.second) for peer in peers[:2]]
        receivers = [peer.attach_receiver(second=True, credit=1000) for peer in peers[2:]]
        parties = self.core._registry.parties
        links = {link: each for party in parties for link, each in party.incoming.items()}
        sinks = {link: each for party in parties for link, each in party.outgoing.items()}
        self.sources: list[IncomingLink] = [links[end.link] for end in senders]
        self.targets: list[OutgoingLink] = [sinks[end.link] for end in receivers]
        if plan.anonymous:
            self.sources[0].address = None
        self.came = [self.ledger._ledgers.incoming_ledger(link) for link in self.sources]
        self.went = [self.ledger._ledgers.outgoing_ledger(link) for link in self.targets]
        self.core._turn.take_orders()
        self.pairings = [self._place(at, flaw, is_sent) for at, flaw in enumerate(plan.flaws)]
        if plan.adrift:
            self.targets[0].adrift[DeliveryTag(b"earlier")] = self.pairings[0]

    def _place(self, at: int, flaw: str, is_sent: bool) -> Pairing:
        """Puts one delivery where it would be, into the maps of its links and of their ledgers."""
        which, target = int(flaw == "other sender"), int(flaw == "other receiver")
        source, link = self.sources[which], self.targets[target]
        delivery = ReceivedDelivery(
            DeliveryNumber(at), DeliveryTag(b"t%d" % at), b"x" * at, key=DeliveryKey(b"%016d" % at)
        )
        if flaw in CHANGES:
            field, value = CHANGES[flaw]
            setattr(delivery, field, value)
        assert isinstance(source.queue, Feed)
        pairing = Pairing(source, delivery.number, delivery, source.queue, 0.0, at)
        pairing.is_settled = delivery.settled = flaw == "settled"
        pairing.is_unusual = flaw == "unusual"
        if not pairing.is_settled:
            life.arrive(pairing)
        if is_sent:
            self._send(at, flaw, pairing, link)
        return pairing

    def _send(self, at: int, flaw: str, pairing: Pairing, link: OutgoingLink) -> None:
        which, target = self.sources.index(pairing.incoming), self.targets.index(link)
        number, key = DeliveryNumber(SENT_FROM + at), pairing.delivery.key
        if flaw != "at nobody":
            life.send(link, pairing, number, DeliveryTag(b"o%d" % at))
        if flaw == "fanned":
            pairing.fan, pairing.is_unusual = Fan(pairing, {pairing}), True
        if key is None or flaw == "not on record":
            return
        entry = Entry(key, self.came[which].key, pairing.delivery.tag, pairing)
        if flaw == "alone" or pairing.is_settled:
            self.ledger._ledgers.alone[key] = entry
        else:
            self.came[which].entries[key] = self.came[which].numbered[pairing.number] = entry
        if flaw == "sent before":
            entry.sent_on = (self.went[1 - target].key,)
        self.entered(at, flaw, entry)

    def entered(self, at: int, flaw: str, entry: Entry) -> None:
        """Puts an entry where the step expects it."""

    def numbers(self, first: int) -> list[DeliveryNumber]:
        return [DeliveryNumber(first + at) for at in self.plan.asked]

    def event(self, link: LinkId | None, first: int, *, settled: bool) -> DeliveriesUpdated:
        assert link is not None
        return DeliveriesUpdated(link, self.numbers(first), self.plan.state, settled)

    def left(self) -> object:
        """What the step may have changed, and what it has ordered and recorded."""
        orders = self.core._turn.take_orders()
        self.play.hand_in()
        return (
            [_described(each) for each in self.pairings],
            [_numbers(link.unsettled) for link in self.sources],
            [_numbers(link.unsettled) for link in self.targets],
            [sorted(link.adrift) for link in self.targets],
            [_entries(ledger.entries) for ledger in self.came],
            [(_entries(ledger.numbered), ledger.sequence) for ledger in self.came],
            [(_entries(ledger.numbered), ledger.sequence) for ledger in self.went],
            [(each.octets, repr(each.tally)) for each in self.sources],
            [repr(each.tally) for each in self.targets],
            _entries(self.ledger._ledgers.alone),
            [sorted(self.ledger.undurable(link)) for link in self.sources],
            repr(orders),
            self.play.durable,
            repr(self.core.durable(self.play.writer.next_sequence - 1, 0.0)),
            [block.octets for block in self.play.blocks],
        )


CHANGES: Final[dict[str, tuple[str, object]]] = {
    "no key": ("key", None),
    "ttl": ("ttl_milliseconds", 5000),
    "format": ("message_format", 7),
    "count": ("delivery_count", 2),
    "protocol": ("protocol", Protocol.AMQP_0_9_1),
    "address": ("address", "elsewhere"),
}


class Outgoing(World):
    """The same, of which nothing is on record at the receivers."""

    def run(self) -> list[OutgoingDelivery]:
        numbers = self.numbers(SENT_FROM)
        run = [OutgoingDelivery(each, DeliveryTag(b"o%d" % each), b"") for each in numbers]
        for delivery, at in zip(run, self.plan.asked, strict=True):
            flaw = self.plan.flaws[at] if at < len(self.plan.flaws) else ""
            delivery.resume = flaw == "resumed"
        return run


class Told(World):
    """The same with what is on record of the receivers, and of what they said."""

    def entered(self, at: int, flaw: str, entry: Entry) -> None:
        pairing = entry.pairing
        assert pairing is not None
        if pairing.outgoing is None:
            return
        target = self.targets.index(pairing.outgoing)
        ledger = self.went[target]
        ledger.numbered[pairing.outgoing_number] = entry
        entry.sent_on = (*entry.sent_on, ledger.key) if entry.sent_on else ledger.sent_on
        if flaw == "sent twice":
            entry.sent_on = (*entry.sent_on, self.went[1 - target].key)


class Answered(Told):
    """The same of which the outcomes are known, and their senders have been told."""

    def entered(self, at: int, flaw: str, entry: Entry) -> None:
        super().entered(at, flaw, entry)
        pairing = entry.pairing
        assert pairing is not None
        if flaw == "no outcome":
            return
        state = REJECTED if flaw == "other outcome" else self.plan.state or ACCEPTED
        life.answer(pairing, state)
        life.report(pairing, state)
        entry.outcome = True
        entry.recorded = RELEASED if flaw == "told otherwise" else state


def _described(pairing: Pairing) -> object:
    link = pairing.outgoing
    return (
        pairing.number, pairing.is_settled, pairing.is_unusual, pairing.outcome, pairing.reported,
        None if link is None else link.link, pairing.outgoing_number, pairing.outgoing_tag,
        pairing.delivery,
    )  # fmt: skip


def _numbers(unsettled: dict[DeliveryNumber, Pairing]) -> list[tuple[int, int]]:
    return [(number, pairing.sequence) for number, pairing in unsettled.items()]


def _entries(entries: dict[Any, Entry]) -> object:
    return [
        (
            where, entry.key, entry.source, entry.tag, entry.waits, entry.outcome, entry.recorded,
            entry.sent_on, entry.answered_at, entry.followers,
            None if entry.pairing is None else entry.pairing.sequence,
        )
        for where, entry in entries.items()
    ]  # fmt: skip


def _enter(plan: Plan) -> World:
    world = World(plan, is_sent=False)
    feed = world.sources[0].queue
    assert isinstance(feed, Feed)
    world.ledger.received(feed, world.pairings)
    return world


def _send(plan: Plan) -> World:
    world = Outgoing(plan, is_sent=True)
    world.ledger.sending(world.targets[0], world.run())
    return world


def _record_outcome(plan: Plan) -> World:
    world = Told(plan, is_sent=True)
    event = world.event(world.targets[0].link, SENT_FROM, settled=plan.settled)
    world.ledger.receiver_updated(world.targets[0], event)
    return world


def _answer(plan: Plan) -> World:
    world = Told(plan, is_sent=True)
    for pairing, flaw in zip(world.pairings, plan.flaws, strict=True):
        if flaw == "other outcome":
            life.answer(pairing, REJECTED)
    event = world.event(world.targets[0].link, SENT_FROM, settled=plan.settled)
    world.core._settler.receiver_updated(world.targets[0], event)
    return world


def _update_sender(plan: Plan) -> World:
    world = Answered(plan, is_sent=True)
    world.ledger.updating(world.sources[0], world.numbers(0), plan.state, False)
    return world


def _update_receiver(plan: Plan) -> World:
    world = Answered(plan, is_sent=True)
    world.ledger.updating(world.targets[0], world.numbers(SENT_FROM), plan.state, True)
    return world


def _forget(plan: Plan) -> World:
    world = Answered(plan, is_sent=True)
    event = world.event(world.sources[0].link, 0, settled=True)
    world.ledger.sender_updated(world.sources[0], event)
    return world


def _settle(plan: Plan) -> World:
    world = Answered(plan, is_sent=True)
    event = world.event(world.sources[0].link, 0, settled=True)
    world.core._settler.sender_updated(world.sources[0], event)
    return world


STEPS: dict[str, Callable[[Plan], World]] = {
    "enter": _enter,
    "sending": _send,
    "record_outcome": _record_outcome,
    "answered": _answer,
    "is_recorded": _update_sender,
    "settle_with_receiver": _update_receiver,
    "settle_with_sender": _forget,
    "settled_by_sender": _settle,
}
DECLINES: Final = STEPS.keys() - {"settle_with_sender"}
"""What may leave its step to the general path."""


@pytest.mark.parametrize("name", STEPS)
def test_a_shortcut_does_to_random_records_what_its_function_does(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    step, counted = STEPS[name], Counted(bulk.shortcuts)

    def compare(plan: Plan) -> None:
        monkeypatch.setattr(bulk, "shortcuts", counted)
        short = step(plan).left()
        monkeypatch.setattr(bulk, "shortcuts", None)
        assert step(plan).left() == short

    compare(USUAL)
    for flaw in FLAWS:
        compare(attrs.evolve(USUAL, flaws=("", flaw, "", "", "")))
    given(plans())(compare)()
    assert name in counted.taken
    assert name not in DECLINES or name in counted.refused


def test_every_shortcut_of_a_step_is_compared() -> None:
    elsewhere = {"name", "pair", "send", "answer"}
    """Compared as parts of their steps: by ``test_bulk``, and ``answer`` by ``answered`` here."""
    named = {name for name in vars(bulk.Shortcuts) if not name.startswith("_")}
    assert STEPS.keys() == named - elsewhere
