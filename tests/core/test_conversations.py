"""Random peers, and what must hold whatever they do.

The machine plays senders, receivers and a container against the core; the stage holds every order
to the rules of engines. After each step the books of both sides are compared.
"""

import itertools
from collections.abc import Iterator, Sequence
from typing import TypeVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from router.core.forward import may_take
from router.core.node import Feed, Node, in_custody
from router.core.postponing import LIMIT_SECONDS
from router.core.settings import CoreSettings
from router.core.stream import takes_parts
from router.links.credit import grant
from router.links.link import IncomingLink, OutgoingLink
from router.links.pairing import Pairing, octets_of
from router.model.identity import DeliveryNumber
from router.model.outcome import (
    ACCEPTED,
    MODIFIED_FAILED,
    REJECTED,
    RELEASED,
    DeliveryState,
    Modified,
    Received,
)
from router.model.terminus import SenderSettleMode
from router.routes.route import Distribution, Endpoint, Route
from tests.support.play import Peer, Play, ReceiverEnd, SenderEnd

ROUTES = (
    "direct",
    Route(address="many", distribution=Distribution.MULTICAST),
    Route(address="east", to=(Endpoint("east"),)),
    Route(address="bridge", from_=Endpoint("east"), to=(Endpoint("west"),)),
)
LIMITS = CoreSettings(
    router_id="dc1",
    connection_octets=600,
    process_octets=1500,
    keep_octets=20,
    part_octets=30,
    gather_octets=60,
    attempts=4,
)
OUTCOMES = (ACCEPTED, REJECTED, RELEASED, MODIFIED_FAILED, Modified(undeliverable_here=True))
GIVE_BACK = (RELEASED, MODIFIED_FAILED, Modified(undeliverable_here=True))


PICK = st.integers(0, 1000)

T = TypeVar("T")


def pick(among: Sequence[T], which: int) -> T:
    return among[which % len(among)]


class Conversations(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.play = Play(*ROUTES, settings=LIMITS)
        self.bodies = itertools.count(1)
        self.origin: dict[bytes, tuple[SenderEnd, int]] = {}
        self.given_back: set[bytes] = set()
        self.seen: dict[tuple[int, int], int] = {}
        self.looked_at: dict[int, int] = {}

    @initialize(second=st.booleans(), credit=st.integers(1, 6))
    def gather(self, second: bool, credit: int) -> None:
        """Everybody comes, so that there is something to be done from the start."""
        one, two, three = (self.play.connect(container) for container in "abc")
        for address in ("direct", "many", "east"):
            one.attach_receiver(address, credit=credit, second=second)
            two.attach_receiver(address, credit=credit)
            three.attach_sender(address, second=second)
        two.attach_sender("bridge")
        three.attach_sender(None, second=second)
        for container in ("east", "west"):
            peer = self.play.dial(container)
            self.answer_everything(peer, credit)

    def answer_everything(self, peer: Peer, credit: int) -> None:
        while peer.asked:
            if peer.wants_receiver():
                peer.answer_receiver(peer.wants_receiver(), credit)
            else:
                peer.answer_sender(peer.wants_sender())

    # Who there is

    def peers(self) -> list[Peer]:
        return [peer for peer in self.play.peers.values() if not peer.is_lost]

    def senders(self) -> list[SenderEnd]:
        return [end for peer in self.peers() for end in peer.sends.values()]

    def receivers(self) -> list[ReceiverEnd]:
        return [end for peer in self.peers() for end in peer.receives.values()]

    # Coming and going

    @precondition(lambda self: len(self.peers()) < 8)
    @rule(container=st.sampled_from("abc"))
    def connect(self, container: str) -> None:
        self.play.connect(container)

    @rule(container=st.sampled_from(["east", "west"]), credit=st.integers(0, 6))
    def dial(self, container: str, credit: int) -> None:
        for peer in self.play.peers.values():
            if peer.container == container:
                for receiver in peer.receives.values():
                    self.give_back_all(receiver)
        self.answer_everything(self.play.dial(container), credit)

    @precondition(lambda self: self.peers())
    @rule(which=PICK, orderly=st.booleans())
    def end(self, which: int, orderly: bool) -> None:
        self.lose(pick(self.peers(), which), orderly)

    def lose(self, peer: Peer, orderly: bool = False) -> None:
        for receiver in peer.receives.values():
            self.give_back_all(receiver)
        if orderly:
            peer.close()
        else:
            peer.lose()

    @precondition(lambda self: self.peers() and len(self.senders()) < 12)
    @rule(
        which=PICK,
        address=st.sampled_from(["direct", "many", "east", "bridge", None]),
        second=st.booleans(),
    )
    def attach_sender(self, which: int, address: str | None, second: bool) -> None:
        pick(self.peers(), which).attach_sender(address, second=second)

    @precondition(lambda self: self.peers() and len(self.receivers()) < 12)
    @rule(
        which=PICK,
        address=st.sampled_from(["direct", "many", "east"]),
        second=st.booleans(),
        credit=st.integers(0, 8),
        mode=st.sampled_from(SenderSettleMode),
        limit=st.sampled_from([0, 0, 0, 12]),
    )
    def attach_receiver(  # noqa: PLR0917
        self,
        which: int,
        address: str,
        second: bool,
        credit: int,
        mode: SenderSettleMode,
        limit: int,
    ) -> None:
        pick(self.peers(), which).attach_receiver(
            address, second=second, credit=credit, mode=mode, max_message_octets=limit
        )

    @precondition(lambda self: any(peer.asked for peer in self.peers()))
    @rule(which=PICK, credit=st.integers(0, 8), refused=st.booleans())
    def answer_attach(self, which: int, credit: int, refused: bool) -> None:
        peer = pick([peer for peer in self.peers() if peer.asked], which)
        if refused:
            peer.refuse()
        else:
            self.answer_everything(peer, credit)

    @precondition(lambda self: self.senders())
    @rule(which=PICK)
    def detach_sender(self, which: int) -> None:
        pick(self.senders(), which).detach()

    @precondition(lambda self: self.receivers())
    @rule(which=PICK)
    def detach_receiver(self, which: int) -> None:
        receiver = pick(self.receivers(), which)
        self.give_back_all(receiver)
        receiver.detach()

    # Senders

    def ready(self) -> list[SenderEnd]:
        return [
            end for end in self.senders() if end.credit > 0 and end.partial is None and not end.held
        ]

    def amid(self) -> list[SenderEnd]:
        return [end for end in self.senders() if end.partial is not None]

    @precondition(lambda self: self.ready())
    @rule(which=PICK, count=st.integers(1, 6), settled=st.booleans(), large=st.booleans())
    def send(self, which: int, count: int, settled: bool, large: bool) -> None:
        sender = pick(self.ready(), which)
        count = min(count, sender.credit)
        deliveries = [sender.delivery(self.body(sender), settled=settled) for _ in range(count)]
        for delivery in deliveries:
            delivery.address = "direct"
        deliveries[-1].more = large
        sender.peer.happens(sender.run(deliveries))

    @precondition(lambda self: self.ready())
    @rule(which=PICK, ttl=st.sampled_from([None, 100, 10_000]))
    def send_one(self, which: int, ttl: int | None) -> None:
        sender = pick(self.ready(), which)
        sender.send(self.body(sender), address="direct", ttl_milliseconds=ttl)

    def body(self, sender: SenderEnd) -> bytes:
        number = next(self.bodies)
        body = b"<%d>" % number
        self.origin[body] = (sender, number)
        return body

    @precondition(lambda self: any(not end.held for end in self.amid()))
    @rule(which=PICK, octets=st.integers(0, 40), more=st.booleans())
    def go_on(self, which: int, octets: int, more: bool) -> None:
        sender = pick([end for end in self.amid() if not end.held], which)
        sender.go_on(b"x" * octets, more)

    @precondition(lambda self: self.amid())
    @rule(which=PICK)
    def abort(self, which: int) -> None:
        pick(self.amid(), which).abort()

    @precondition(lambda self: any(end.unsettled for end in self.senders()))
    @rule(which=PICK, nth=PICK, state=st.sampled_from([None, None, *OUTCOMES]))
    def sender_settles(self, which: int, nth: int, state: DeliveryState | None) -> None:
        sender = pick([end for end in self.senders() if end.unsettled], which)
        number = pick(list(sender.unsettled), nth)
        if number != sender.partial:
            sender.settle(number, state=state)

    @precondition(lambda self: any(end.told for end in self.senders()))
    @rule()
    def senders_settle_what_they_were_told(self) -> None:
        for sender in self.senders():
            for number in list(sender.unsettled):
                if sender.outcome(number) is not None and number != sender.partial:
                    sender.settle(number)

    @precondition(lambda self: any(end.drained for end in self.senders()))
    @rule()
    def give_credit_back(self) -> None:
        for sender in self.senders():
            if sender.drained and sender.partial is None:
                sender.drained = False
                sender.give_back_credit()

    # Receivers

    @precondition(lambda self: self.receivers())
    @rule(which=PICK, credit=st.integers(0, 8), drain=st.sampled_from([False, False, True]))
    def grant(self, which: int, credit: int, drain: bool) -> None:
        pick(self.receivers(), which).grant(credit, drain)

    @precondition(lambda self: any(end.unsettled for end in self.receivers()))
    @rule(
        which=PICK,
        chosen=st.lists(st.integers(0, 7), min_size=1, max_size=4, unique=True),
        state=st.sampled_from([ACCEPTED, *OUTCOMES, Received(0, 3), None]),
        settled=st.booleans(),
    )
    def answer(
        self, which: int, chosen: list[int], state: DeliveryState | None, settled: bool
    ) -> None:
        receiver = pick([end for end in self.receivers() if end.unsettled], which)
        unsettled = list(receiver.unsettled)
        numbers = sorted({pick(unsettled, index) for index in chosen})
        if state is None and not settled:
            return
        if state in GIVE_BACK:
            for number in numbers:
                self.give_back(receiver, number)
        receiver.update(*numbers, state=state, settled=settled)

    def give_back_all(self, receiver: ReceiverEnd) -> None:
        for number in receiver.bodies:
            self.give_back(receiver, number)

    def give_back(self, receiver: ReceiverEnd, number: int) -> None:
        self.given_back.add(receiver.bodies[number].split(b">")[0] + b">")

    # Everybody

    @precondition(lambda self: self.peers())
    @rule(which=PICK, congested=st.booleans())
    def congest(self, which: int, congested: bool) -> None:
        peer = pick(self.peers(), which)
        if peer.is_congested is not congested:
            peer.congest(congested)

    @rule(seconds=st.sampled_from([0.2, 5.0, 70.0]))
    def wait(self, seconds: float) -> None:
        self.play.wait(seconds)

    @rule(pause=st.sampled_from([True, False, False]))
    def pause(self, pause: bool) -> None:
        core = self.play.core
        turn = core.pause if pause else core.resume
        self.play.carry_out(turn("direct", self.play.now))

    # What must hold

    def ends(self) -> Iterator[tuple[SenderEnd | ReceiverEnd, IncomingLink | OutgoingLink]]:
        """Gives both sides' books of every attached link."""
        for peer in self.play.peers.values():
            connection = self.play.core._registry.connections.get(peer.id)
            assert (connection is None) is peer.is_lost
            if connection is None:
                continue
            for link, sender in peer.sends.items():
                yield sender, connection.incoming[link]
            for link, receiver in peer.receives.items():
                yield receiver, connection.outgoing[link]

    @invariant()
    def both_sides_agree(self) -> None:
        for end, link in self.ends():
            assert list(link.unsettled) == list(end.unsettled), "the same are unsettled, in order"
            assert link.credit == max(0, end.credit)
            assert not link.update_numbers
            if isinstance(link, OutgoingLink):
                assert isinstance(end, ReceiverEnd)
                assert not link.run
                assert (link.partial is None) is (end.partial is None)
            else:
                assert isinstance(end, SenderEnd)
                assert bool(link.holds) is end.held

    @invariant()
    def payload_is_counted(self) -> None:
        registry = self.play.core._registry
        kept = {id(pairing): pairing for pairing in self.pairings()}
        assert registry.process.used == sum(octets_of(pairing) for pairing in kept.values())
        for connection in registry.connections.values():
            brought = sum(link.octets for link in connection.incoming.values())
            assert connection.octets.used == brought

    def pairings(self) -> Iterator[Pairing]:
        """Gives every delivery that is anywhere, some of them several times."""
        for node in self.play.core._registry.nodes.values():
            for feed in node.rotation:
                yield from feed.waiting
        for _, link in self.ends():
            again = link.adrift.values() if isinstance(link, OutgoingLink) else ()
            for pairing in (*link.unsettled.values(), *again):
                yield pairing if pairing.fan is None else pairing.fan.trunk
            if link.partial is not None:
                fan = link.partial.fan
                yield link.partial if fan is None else fan.trunk
        for shelves in self.play.core._parts.postponer._shelves.values():
            for shelf in shelves.values():
                yield from shelf.waiting

    @invariant()
    def queues_are_in_order(self) -> None:
        for node in self.play.core._registry.nodes.values():
            assert len(set(map(id, node.rotation))) == len(node.rotation)
            for feed in node.rotation:
                assert feed.waiting, "who is in the rotation has something waiting"
                sequences = [pairing.sequence for pairing in feed.waiting]
                assert sequences == sorted(set(sequences))
                assert all(pairing.outgoing is None for pairing in feed.waiting)
        for _, link in self.ends():
            if isinstance(link, IncomingLink):
                feeds = [link.queue, *link.queues.values()]
                assert link.queued == sum(len(feed.waiting) for feed in feeds if feed is not None)

    @invariant()
    def credit_follows_the_rule(self) -> None:
        for _, link in self.ends():
            if not isinstance(link, IncomingLink) or not isinstance(link.queue, Feed):
                continue
            node = link.queue.node
            if node.width == 0 or node.is_paused:
                assert link.credit == 0, "no receiver, no credit"
            elif node.can_send and not self.is_held(link) and not link.is_emptying:
                assert grant(link.link_credit, node.width, link.credit, link.queued) is None

    def is_held(self, link: IncomingLink) -> bool:
        assert link.connection is not None
        return link.connection.is_held

    @invariant()
    def nothing_waits_that_could_go(self) -> None:
        for node in self.play.core._registry.nodes.values():
            if node.rotation and not node.is_paused:
                custody = all(in_custody(each) for feed in node.rotation for each in feed.waiting)
                assert node.outgoing or node.returning or custody
                for feed in node.rotation:
                    for pairing in feed.waiting:
                        assert not self.could_go(node, pairing)

    def could_go(self, node: Node, pairing: Pairing) -> bool:
        able = [link for link in node.outgoing if self.is_able(link)]
        if pairing.parts is not None and not pairing.parts.is_complete:
            if pairing.parts.is_stalled:
                return False  # its sender fell silent
            able = [link for link in able if takes_parts(link)]
        if node.is_multicast:
            return bool(able) and len(able) == len(node.outgoing)
        return any(may_take(link, pairing) for link in able)

    @staticmethod
    def is_able(link: OutgoingLink) -> bool:
        assert link.connection is not None
        is_busy = link.partial is not None or link.connection.is_congested or bool(link.resuming)
        return link.credit > 0 and not is_busy

    @invariant()
    def order_is_kept_and_nothing_is_doubled(self) -> None:
        for peer in self.play.peers.values():
            for receiver in peer.receives.values():
                start = self.looked_at.get(receiver.link, 0)
                for delivery in receiver.received[start:]:
                    self.look_at(receiver, delivery.number, delivery.delivery_count)
                self.looked_at[receiver.link] = len(receiver.received)

    def look_at(
        self, receiver: ReceiverEnd, number: DeliveryNumber, delivery_count: int | None
    ) -> None:
        body = receiver.bodies[number].split(b">")[0] + b">"
        if body in self.given_back:
            return
        assert not delivery_count
        sender, sequence = self.origin[body]
        place = (sender.link, receiver.link)
        assert sequence > self.seen.get(place, 0), "in order, and once"
        self.seen[place] = sequence

    def teardown(self) -> None:
        for peer in list(self.play.peers.values()):
            if not peer.is_lost:
                for sender in peer.sends.values():
                    assert set(sender.unsettled) == set(
                        self.play.core._registry.connections[peer.id]
                        .incoming[sender.link]
                        .unsettled
                    )
                self.lose(peer)
        self.play.carry_out(self.play.core.resume("direct", self.play.now))
        self.take_the_rest()
        self.play.carry_out(self.play.core.configure(_NOTHING, self.play.now))
        self.play.wait(100_000)
        registry = self.play.core._registry
        assert registry.process.used == 0
        assert not registry.nodes
        assert not registry.attached
        assert not registry.suspended
        assert self.play.core.deadline is None

    def take_the_rest(self) -> None:
        """What senders have settled waits for receivers, and is taken when some come."""
        for container in ("east", "west"):
            self.answer_everything(self.play.dial(container), 1000)
        late = self.play.connect("late")
        for address in ("direct", "many", "east"):
            late.attach_receiver(address, credit=1000)
        for _ in range(2):
            for peer in self.peers():
                for receiver in peer.receives.values():
                    while receiver.unsettled:
                        receiver.accept()
            self.play.wait(LIMIT_SECONDS)  # what a container released was put off
        assert self.play.core._registry.process.used == 0
        for peer in self.peers():
            peer.lose()


_NOTHING = Play().core._registry.table

TestConversations = Conversations.TestCase
TestConversations.settings = settings(
    max_examples=60,
    stateful_step_count=60,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
