"""Exactly once, whoever loses its connection when: random cuts between peers that resume.

Two senders and two receivers keep their unsettled maps as the specification asks of them (and as
our own client does). A cut loses what the peer has not read yet, and all that it sends until it
notices. At any time no message was processed twice; in the end every one was processed.
"""

import collections
import itertools
from collections.abc import Sequence

import attrs
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from router.core.settings import CoreSettings
from router.links.recovery import (
    ABSENT,
    Abort,
    Absent,
    Action,
    Forget,
    Restate,
    ResumeFrom,
    SendAnew,
    Settle,
    resume,
)
from router.model.commands import AttachLink
from router.model.identity import DeliveryNumber, DeliveryTag
from router.model.outcome import ACCEPTED, DeliveryState, is_outcome, may_go_on
from router.model.terminus import ExpiryPolicy
from router.routes.route import Endpoint, Guarantee, Route
from tests.support.play import Peer, Play, ReceiverEnd, SenderEnd

DIRECT = Route(address="orders", guarantee=Guarantee.EXACTLY_ONCE)
BRIDGE = Route(
    address="orders",
    from_=Endpoint("source"),
    to=(Endpoint("target"),),
    guarantee=Guarantee.EXACTLY_ONCE,
)

FOREVER = 10**9
"""Senders' termini do not expire here: after that nobody can tell a duplicate. What may be at
a receiver stays in doubt, so theirs do expire."""

Map = dict[DeliveryTag, DeliveryState | None]


@attrs.define(eq=False)
class Client:
    """What a peer keeps over its connections.

    Attributes:
        entries: that its maps have at most; 0: all.
    """

    play: Play
    name: str
    dialed: bool
    entries: int = 0
    unsettled: Map = attrs.field(factory=dict)
    attachments: int = 0
    peer: Peer | None = None
    is_cut: bool = False
    past: list[tuple[Map | None, bool]] = attrs.field(factory=list)

    @property
    def is_attached(self) -> bool:
        return self.peer is not None

    def reach(self) -> Peer:
        """Opens a connection, or lets the router open it."""
        self.is_cut = False
        if self.peer is not None:
            self.peer.lose()
        self.peer = self.play.dial(self.name) if self.dialed else self.play.connect(self.name)
        return self.peer

    def map(self) -> Map | None:
        """Gives the map for an attach; the first one has none."""
        self.attachments += 1
        told = self._next_map()
        self.past.append((told, self.is_incomplete(told)))
        return told

    def _next_map(self) -> Map | None:
        if self.attachments == 1:
            return None
        if not self.entries:
            return dict(self.unsettled)
        told = list(self.unsettled)[: self.entries]
        for tag in told:  # the next map begins with what this one has not told
            self.unsettled[tag] = self.unsettled.pop(tag)
        return {tag: self.unsettled[tag] for tag in told}

    def is_incomplete(self, told: Map | None) -> bool:
        """Tells whether a map lacks something."""
        return told is not None and len(told) < len(self.unsettled)

    def attach_late(self, ours: Map | None, *, incomplete: bool) -> Peer:
        """An attach of this client arrives that was held up; nobody reads the answer."""
        peer = self.play.connect(self.name)
        peer.is_silent = True
        self.ask(peer, ours, incomplete=incomplete)
        return peer

    def ask(self, peer: Peer, ours: Map | None, *, incomplete: bool) -> SenderEnd | ReceiverEnd:
        """Attaches with a map."""
        raise NotImplementedError

    def attach_again(self) -> None:
        """Attaches once more by the same connection, if the router has detached the link."""
        end: SenderEnd | ReceiverEnd | None = getattr(self, "end")  # noqa: B009
        if self.peer is not None and not self.is_cut and end is not None and end.is_detached():
            self.attach_by(self.peer)

    def attach(self) -> None:
        """Comes back with all that is unsettled."""
        self.attach_by(self.reach())

    def attach_by(self, peer: Peer) -> None:
        raise NotImplementedError

    def cut(self) -> None:
        """From here on nothing passes, and nobody has noticed yet."""
        self.is_cut = True

    def lose(self) -> None:
        """The router notices."""
        if self.peer is not None:
            self.peer.lose()
        self.peer = None
        self.is_cut = True


@attrs.define(eq=False)
class Sender(Client):
    """Sends messages and settles them when it knows the outcome."""

    bodies: dict[DeliveryTag, bytes] = attrs.field(factory=dict)
    end: SenderEnd | None = None
    tags: dict[DeliveryNumber, DeliveryTag] = attrs.field(factory=dict)
    read: dict[DeliveryNumber, int] = attrs.field(factory=dict)
    is_reducing: bool = False
    resuming: list[tuple[DeliveryTag, Action]] = attrs.field(factory=list)
    sent: set[bytes] = attrs.field(factory=set)
    accepted: set[bytes] = attrs.field(factory=set)
    given_back: list[bytes] = attrs.field(factory=list)
    unsent: list[DeliveryTag] = attrs.field(factory=list)

    def attach_by(self, peer: Peer) -> None:
        ours = self.map()
        incomplete = self.is_incomplete(ours)
        if self.dialed:
            if not peer.asked:
                self.play.pass_on()  # the map tells what is not durable yet
            asked = next(iter(peer.asked.values()))
            self.end = peer.answer_sender(unsettled=ours, incomplete_unsettled=incomplete)
        else:
            self.end = self.ask(peer, ours, incomplete=incomplete)
            if self.end.attach is None:
                self.play.pass_on()  # the map tells what is not durable yet
            assert self.end.attach is not None
            asked = self.end.attach
        self.tags.clear()
        self.read.clear()
        self.resuming.clear()
        self.is_reducing = asked.incomplete_unsettled or incomplete
        if ours is not None:
            self.compare(asked)
        self.go_on()

    def ask(self, peer: Peer, ours: Map | None, *, incomplete: bool) -> SenderEnd:
        return peer.attach_sender(
            name="out",
            second=True,
            unsettled=ours,
            policy=ExpiryPolicy.CONNECTION_CLOSE,
            seconds=FOREVER,
            incomplete=incomplete,
            session=1,
        )

    def compare(self, asked: AttachLink) -> None:
        """Decides what to do about each delivery; a router without a map never had any."""
        theirs = asked.unsettled or {}
        for tag, ours in list(self.unsettled.items()):
            state: DeliveryState | Absent | None = theirs.get(tag, ABSENT)
            if state is ABSENT and asked.incomplete_unsettled:
                continue
            action = resume(ours, state)
            if isinstance(action, SendAnew) and self.is_reducing:
                del self.unsettled[tag]  # its turn comes when both maps are complete
                self.unsent.append(tag)
                continue
            if isinstance(action, Forget):
                del self.unsettled[tag]
            else:
                self.resuming.append((tag, action))

    def go_on(self) -> None:
        """Sends what is to be resumed, as far as credit goes."""
        while self.resuming and self.end is not None and not self.is_cut and self.end.credit > 0:
            tag, action = self.resuming.pop(0)
            match action:
                case SendAnew():
                    self.transfer(tag, self.bodies[tag])
                case ResumeFrom():
                    self.transfer(tag, self.bodies[tag], resume=True)
                case Settle(outcome=outcome):
                    self.conclude(tag, outcome)
                    self.transfer(tag, b"", resume=True, state=outcome, settled=True)
                case Restate() | Abort() | Forget():
                    raise AssertionError(f"{action} among peers that only accept")
        if self.resuming or self.end is None or self.is_cut:
            return
        if self.is_reducing:
            if self.end.drained and self.end.credit:
                self.end.give_back_credit()
            return
        while self.unsent and self.end.credit > 0:
            tag = self.unsent.pop(0)
            self.unsettled[tag] = None
            self.transfer(tag, self.bodies[tag])

    def transfer(self, tag: DeliveryTag, body: bytes, **fields: object) -> None:
        assert self.end is not None
        delivery = self.end.delivery(body, tag, **fields)
        self.tags[delivery.number] = tag
        self.end.peer.happens(self.end.run([delivery]))

    @staticmethod
    def message(number: int) -> bytes:
        """Returns a message with a number."""
        text = b"%d" % number
        return b"\x00\x53\x75\xa0" + bytes([len(text)]) + text

    def send(self, number: int) -> None:
        """Sends a message; if it is cut off it only believes so."""
        if self.end is None or self.resuming or self.is_reducing or self.end.credit <= 0:
            return
        body = self.message(number)
        if self.given_back:
            body = self.given_back.pop()
        else:
            self.sent.add(body)
        tag = DeliveryTag(b"%d.%d" % (number, len(self.bodies)))
        self.bodies[tag] = body
        self.unsettled[tag] = None
        if self.is_cut:
            self.end.credit -= 1
        else:
            self.transfer(tag, body)

    def look(self) -> None:
        """Reads what it was told, and settles what is decided."""
        if self.end is None or self.is_cut:
            return
        for number, told in list(self.end.told.items()):
            for state, settled in told[self.read.get(number, 0) :]:
                tag = self.tags[number]
                assert not settled, "the sender settles first"
                assert is_outcome(state)
                self.unsettled[tag] = state
            self.read[number] = len(told)

    def settle(self) -> None:
        """Settles what is decided; if it is cut off only it knows."""
        if self.end is None:
            return
        for number, tag in list(self.tags.items()):
            outcome = self.unsettled.get(tag)
            if outcome is not None:
                self.conclude(tag, outcome)
                del self.tags[number]
                if not self.is_cut:
                    self.end.settle(number, state=outcome)

    def conclude(self, tag: DeliveryTag, outcome: DeliveryState) -> None:
        """Forgets a delivery; what was released is sent again some time, as a new one."""
        del self.unsettled[tag]
        if may_go_on(outcome):
            self.given_back.append(self.bodies[tag])
        else:
            assert outcome == ACCEPTED
            self.accepted.add(self.bodies[tag])

    def catch_up(self) -> None:
        """Does all that it can do at once."""
        self.go_on()
        self.look()
        self.settle()
        self.send_again()

    def send_again(self) -> None:
        if self.given_back:
            self.send(0)


@attrs.define(eq=False)
class Receiver(Client):
    """Processes messages and remembers which until their senders have settled.

    Attributes:
        says: outcome of the deliveries that it takes; it processes those that it accepts.
    """

    says: DeliveryState = ACCEPTED
    processed: collections.Counter[bytes] = attrs.field(factory=collections.Counter)
    end: ReceiverEnd | None = None
    looked_at: int = 0
    heard: dict[DeliveryNumber, int] = attrs.field(factory=dict)
    tags: dict[DeliveryNumber, DeliveryTag] = attrs.field(factory=dict)

    def attach_by(self, peer: Peer) -> None:
        ours = self.map()
        incomplete = self.is_incomplete(ours)
        if self.dialed:
            if not peer.asked:
                self.play.pass_on()  # the map tells what is not durable yet
            asked = next(iter(peer.asked.values()))
            end = peer.answer(unsettled=ours, incomplete_unsettled=incomplete)
            assert isinstance(end, ReceiverEnd)
            self.end = end
        else:
            self.end = self.ask(peer, ours, incomplete=incomplete)
            if self.end.attach is None:
                self.play.pass_on()  # the map tells what is not durable yet
            assert self.end.attach is not None
            asked = self.end.attach
        self.looked_at = 0
        self.heard.clear()
        self.tags.clear()
        if not asked.incomplete_unsettled:
            for tag in [tag for tag in self.unsettled if tag not in (asked.unsettled or {})]:
                del self.unsettled[tag]
        self.end.grant(4)

    def ask(self, peer: Peer, ours: Map | None, *, incomplete: bool) -> ReceiverEnd:
        return peer.attach_receiver(
            name="in",
            second=True,
            unsettled=ours,
            policy=ExpiryPolicy.CONNECTION_CLOSE,
            seconds=300,
            incomplete=incomplete,
            session=1,
        )

    def look(self) -> None:
        """Takes the next delivery."""
        if self.end is None or self.is_cut or self.looked_at >= len(self.end.received):
            return
        delivery = self.end.received[self.looked_at]
        self.looked_at += 1
        self.tags[delivery.number] = delivery.tag
        if delivery.resume and delivery.tag not in self.unsettled:
            return
        if delivery.settled:
            self.unsettled.pop(delivery.tag, None)
            return
        if self.unsettled.get(delivery.tag) is None:
            self.processed[delivery.payload] += self.says == ACCEPTED
            self.unsettled[delivery.tag] = self.says

    def answer(self) -> None:
        """Tells the outcome of what it has processed; if it is cut off it only believes so."""
        if self.end is None or self.is_cut:
            return
        for number, tag in self.tags.items():
            if number in self.end.unsettled and number not in self.heard:
                state = self.unsettled.get(tag)
                if state is not None:
                    self.heard[number] = 0
                    self.end.update(number, state=state, settled=False)

    def listen(self) -> None:
        """Reads what was settled."""
        if self.end is None or self.is_cut:
            return
        for number in list(self.tags):
            last = self.end.told_last(number)
            if last is not None and last[1]:
                self.unsettled.pop(self.tags.pop(number), None)

    def catch_up(self) -> None:
        """Does all that it can do at once."""
        self.renew()
        self.look()
        self.answer()
        self.listen()

    def renew(self) -> None:
        if self.end is None or self.is_cut or not self.end.is_live():
            return
        if self.end.credit < 4:
            self.end.grant(4)


SMALL, SMALL_ASKED = 130, 260
"""Octets of frames that take an answer, and an attach of ours, with two or three entries."""


class ExactlyOnce(RuleBasedStateMachine):
    route = DIRECT
    is_bridge = False
    frame_octets = 0
    entries = 0
    credit = 4

    def __init__(self) -> None:
        super().__init__()
        limits = CoreSettings(
            router_id="dc1",
            link_credit=self.credit,
            expiry_seconds=FOREVER,
            failover_seconds=FOREVER,
        )
        self.play = self.make_play(limits)
        self.messages = itertools.count(1)
        if self.is_bridge:
            self.senders = [Sender(self.play, "source", True, self.entries)]
            self.receivers = [Receiver(self.play, "target", True, self.entries)]
        else:
            self.senders = [Sender(self.play, name, False, self.entries) for name in ("a", "b")]
            self.receivers = [Receiver(self.play, name, False, self.entries) for name in ("c", "d")]
        for client in self.clients():
            client.attach()

    def make_play(self, limits: CoreSettings) -> Play:
        return Play(self.route, settings=limits, frame_octets=self.frame_octets)

    def pass_on(self) -> None:
        """Lets go what waits, if anything does here."""

    def clients(self) -> Sequence[Sender | Receiver]:
        return [*self.receivers, *self.senders]

    @rule()
    def attach_again(self) -> None:
        for client in self.clients():
            client.attach_again()

    @rule(which=st.integers(0, 1), count=st.integers(1, 3))
    def send(self, which: int, count: int) -> None:
        sender = self.senders[which % len(self.senders)]
        for _ in range(count):
            sender.send(next(self.messages))

    @rule(which=st.integers(0, 1))
    def sender_looks(self, which: int) -> None:
        sender = self.senders[which % len(self.senders)]
        sender.look()
        sender.go_on()

    @rule(which=st.integers(0, 1))
    def sender_settles(self, which: int) -> None:
        self.senders[which % len(self.senders)].settle()

    @rule(which=st.integers(0, 1), count=st.integers(1, 4))
    def receiver_looks(self, which: int, count: int) -> None:
        for _ in range(count):
            self.receivers[which % len(self.receivers)].look()

    @rule(which=st.integers(0, 1))
    def receiver_answers(self, which: int) -> None:
        self.receivers[which % len(self.receivers)].answer()

    @rule(which=st.integers(0, 1))
    def receiver_listens(self, which: int) -> None:
        self.receivers[which % len(self.receivers)].listen()

    @rule(which=st.integers(0, 1))
    def receiver_renews(self, which: int) -> None:
        self.receivers[which % len(self.receivers)].renew()

    @rule(which=st.integers(0, 3))
    def cut(self, which: int) -> None:
        clients = self.clients()
        clients[which % len(clients)].cut()

    @precondition(lambda self: any(client.is_cut for client in self.clients()))
    @rule(
        which=st.integers(0, 3), noticed=st.booleans(), seconds=st.sampled_from([0.0, 90.0, 400.0])
    )
    def come_back(self, which: int, noticed: bool, seconds: float) -> None:
        cut = [client for client in self.clients() if client.is_cut]
        client = cut[which % len(cut)]
        if noticed:
            client.lose()
            self.play.wait(seconds)
        client.attach()

    @rule(which=st.integers(0, 3))
    def lose(self, which: int) -> None:
        clients = self.clients()
        clients[which % len(clients)].lose()

    @invariant()
    def nothing_was_processed_twice(self) -> None:
        total = sum((receiver.processed for receiver in self.receivers), collections.Counter())
        assert all(times == 1 for times in total.values())

    def teardown(self) -> None:
        for client in self.clients():
            if client.is_cut:
                client.attach()
        for receiver in self.receivers:
            receiver.says = ACCEPTED
        for _ in range(100):
            self.pass_on()
            self.attach_again()
            if self.entries or self.frame_octets:
                self.play.wait(2)  # a round of reducing maps may wait a second for outcomes
            for receiver in self.receivers:
                receiver.catch_up()
            for sender in self.senders:
                sender.catch_up()
        self.nothing_was_processed_twice()
        sent = set().union(*(sender.sent for sender in self.senders))
        processed = {body for each in self.receivers for body in +each.processed}
        assert processed == sent
        assert all(not client.unsettled for client in self.clients())
        assert all(not sender.unsent for sender in self.senders)
        assert {body for sender in self.senders for body in sender.accepted} == sent
        assert self.play.core._registry.process.used == 0


class ExactlyOnceBridge(ExactlyOnce):
    route = BRIDGE
    is_bridge = True


class ExactlyOnceInSmallFrames(ExactlyOnce):
    frame_octets = SMALL


class ExactlyOnceBridgeInSmallFrames(ExactlyOnceBridge):
    frame_octets = SMALL_ASKED


class ExactlyOnceAmongSmallFrames(ExactlyOnceInSmallFrames):
    entries = 2


class ExactlyOnceBridgeAmongSmallFrames(ExactlyOnceBridgeInSmallFrames):
    entries = 2


class ManyOnTheWay(ExactlyOnceBridgeAmongSmallFrames):
    """Far more is unsettled than a map takes."""

    credit = 40


def test_a_source_that_is_cut_off_with_many_deliveries_on_the_way_is_done_soon() -> None:
    machine = ManyOnTheWay()
    target = machine.receivers[0].end
    assert target is not None
    target.grant(40)
    machine.send(0, 12)
    machine.receiver_looks(0, 4)
    for client in reversed(machine.clients()):
        client.lose()
    machine.send(0, 20)
    machine.teardown()


LIMITS = settings(
    max_examples=60,
    stateful_step_count=50,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)

TestExactlyOnce = ExactlyOnce.TestCase
TestExactlyOnce.settings = LIMITS
TestExactlyOnceBridge = ExactlyOnceBridge.TestCase
TestExactlyOnceBridge.settings = LIMITS
TestExactlyOnceInSmallFrames = ExactlyOnceInSmallFrames.TestCase
TestExactlyOnceInSmallFrames.settings = LIMITS
TestExactlyOnceBridgeInSmallFrames = ExactlyOnceBridgeInSmallFrames.TestCase
TestExactlyOnceBridgeInSmallFrames.settings = LIMITS
TestExactlyOnceAmongSmallFrames = ExactlyOnceAmongSmallFrames.TestCase
TestExactlyOnceAmongSmallFrames.settings = LIMITS
TestExactlyOnceBridgeAmongSmallFrames = ExactlyOnceBridgeAmongSmallFrames.TestCase
TestExactlyOnceBridgeAmongSmallFrames.settings = LIMITS
