"""A container to test the client against: one node, which keeps the state of suspended links.

Or does not, if ``keeps`` is false: then it answers like every broker known, with no unsettled map.
``Line`` joins a link machine of the client to it over two engines, carries as few octets at a time
as it is told, and can be cut.
"""

import itertools
from collections import deque
from collections.abc import Sequence

import attrs

from router.links.recovery import ABSENT, ResumeFrom, SendAnew, Settle, resume
from router.model.commands import (
    CloseConnection,
    Command,
    DetachLink,
    GrantCredit,
    RefuseLink,
    ReturnCredit,
    SendDeliveries,
    UpdateDeliveries,
)
from router.model.condition import NOT_IMPLEMENTED, Condition
from router.model.delivery import OutgoingDelivery, ReceivedDelivery
from router.model.events import (
    ConnectionOpened,
    CreditGranted,
    CreditReturned,
    DeliveriesReceived,
    DeliveriesUpdated,
    DeliveryContinued,
    Event,
    LinkAttached,
    LinkDetached,
)
from router.model.identity import DeliveryNumber, DeliveryTag, LinkId
from router.model.outcome import ACCEPTED, DeliveryState, is_outcome
from router.model.terminus import ReceiverSettleMode, Role, SenderSettleMode
from router.net.client.conversation import LinkMachine
from router.wire.engine import EngineSettings
from router.wire.v1_0.engine import Engine10
from tests.support.accepting import accepting


@attrs.define(eq=False, kw_only=True)
class Keeper:
    """The node: takes what comes in, and sends what waits.

    Attributes:
        name: its container-id.
        keeps: remembers unsettled deliveries of links whose connection was lost.
        answer: what it says to deliveries.
        settles_second: whether it honors receiver-settle-mode second.
        map_limit: entries of its unsettled map told at a time; None: all.
        refuses_maps: ends links that come with one, as RabbitMQ does.
        refuses: why it refuses every link; None: it does not.
        refuses_connection: the same for connections.
        taken: payloads, in order, as often as they came.
        waiting: payloads to send.
        settled: deliveries that it sent and whose outcome it knows.
        attached: every attach of the client.
        returned: what was left of the credit after each drain.
        told: outcomes that it was told, by number of the delivery.
        restarts_tags: begins its delivery-tags anew on each connection, as brokers do.
    """

    name: str = "keeper"
    keeps: bool = True
    answer: DeliveryState = ACCEPTED
    settles_second: bool = True
    map_limit: int | None = None
    refuses_maps: bool = False
    refuses: Condition | None = None
    refuses_connection: Condition | None = None
    credit: int = 10
    taken: list[bytes] = attrs.field(factory=list)
    waiting: deque[bytes] = attrs.field(factory=deque)
    settled: list[bytes] = attrs.field(factory=list)
    attached: list[LinkAttached] = attrs.field(factory=list)
    returned: list[int] = attrs.field(factory=list)
    told: dict[int, DeliveryState | None] = attrs.field(factory=dict)
    restarts_tags: bool = False
    _link: LinkId = attrs.field(factory=lambda: LinkId(0))
    _is_second: bool = False
    _sends_settled: bool = False
    _came: dict[DeliveryTag, DeliveryState] = attrs.field(factory=dict)
    _tags: dict[DeliveryNumber, DeliveryTag] = attrs.field(factory=dict)
    _went: dict[DeliveryTag, bytes] = attrs.field(factory=dict)
    _numbers: dict[DeliveryNumber, DeliveryTag] = attrs.field(factory=dict)
    _due: deque[OutgoingDelivery] = attrs.field(factory=deque)
    _part: ReceivedDelivery | None = None
    _parts: list[bytes] = attrs.field(factory=list)
    _room: int = 0
    _next: int = 0

    def lost(self) -> None:
        """Takes note that the connection is gone."""
        self._room = 0
        self._part = None
        if not self.keeps:
            self._came.clear()
            self.waiting.extendleft(reversed(self._went.values()))
            self._went.clear()
        if self.restarts_tags:
            self._next = 0

    @property
    def unsettled(self) -> int:
        """How many deliveries it sent and has not heard of."""
        return len(self._went)

    def handle(self, events: Sequence[Event]) -> list[Command]:
        commands: list[Command] = []
        for event in events:
            match event:
                case ConnectionOpened() if self.refuses_connection is not None:
                    commands.append(CloseConnection(self.refuses_connection))
                case LinkAttached():
                    commands += self._attach(event)
                case LinkDetached(closed=False):
                    self._room = 0
                case DeliveriesReceived(deliveries=deliveries):
                    for delivery in deliveries:
                        commands += self._take(delivery)
                    if self.credit:
                        commands.append(GrantCredit(self._link, self.credit))
                case DeliveryContinued(payload=payload, more=more):
                    commands += self._continue(payload, more)
                case CreditGranted(credit=credit, drain=drain):
                    self._room = credit
                    if drain:
                        run = self._send()
                        self._room = 0
                        commands += [*run, ReturnCredit(event.link)]
                case CreditReturned(credit=credit):
                    self.returned.append(credit)
                case DeliveriesUpdated():
                    commands += self._update(event)
                case _:
                    pass
        return commands + self._send()

    def _attach(self, event: LinkAttached) -> list[Command]:
        self.attached.append(event)
        refusal = self.refuses
        if self.refuses_maps and event.unsettled is not None:
            refusal = Condition(NOT_IMPLEMENTED, "link recovery")
        if refusal is not None:
            return [RefuseLink(event.link, refusal)]
        self._link = event.link
        self._tags.clear()
        self._numbers.clear()
        asked = event.receiver_settle_mode
        mode = asked if self.settles_second else ReceiverSettleMode.FIRST
        self._is_second = mode is ReceiverSettleMode.SECOND
        self._sends_settled = event.sender_settle_mode is SenderSettleMode.SETTLED
        known: dict[DeliveryTag, DeliveryState | None] | None = None
        if self.keeps:
            known = dict(self._came) if event.role is Role.RECEIVER else dict.fromkeys(self._went)
            if event.unsettled is None:
                assert not known, "only a new link begins without a map"
            elif event.role is Role.RECEIVER and not event.incomplete_unsettled:
                for tag in [tag for tag in known if tag not in event.unsettled]:
                    del self._came[tag], known[tag]  # the sender has settled
            elif event.role is Role.SENDER:
                self._resume(event)
                known = dict.fromkeys(self._went)
        told = None if known is None else dict(itertools.islice(known.items(), self.map_limit))
        commands: list[Command] = [
            accepting(
                event,
                sender_settle_mode=event.sender_settle_mode,
                receiver_settle_mode=mode,
                unsettled=told,
                incomplete_unsettled=known is not None and len(told or {}) < len(known),
            )
        ]
        if event.role is Role.RECEIVER and self.credit:
            commands.append(GrantCredit(event.link, self.credit))
        return commands

    def detach(self, condition: Condition) -> DetachLink:
        """Ends the link that is attached."""
        self._room = 0
        return DetachLink(self._link, closed=True, condition=condition)

    # --- receiving --------------------------------------------------------------------------------

    def _take(self, delivery: ReceivedDelivery) -> list[Command]:
        if delivery.more:
            self._part, self._parts = delivery, [delivery.payload]
            return []
        if delivery.resume:
            if delivery.tag not in self._came:
                return []
            if delivery.settled:
                del self._came[delivery.tag]
                return []
            if delivery.state is not None:
                assert delivery.state == self._came[delivery.tag]
                self._tags[delivery.number] = delivery.tag
                return []
        else:
            self.taken.append(delivery.payload)
        if delivery.settled:
            return []
        if not self._is_second:
            return [UpdateDeliveries(self._link, [delivery.number], self.answer, settled=True)]
        self._came[delivery.tag] = self.answer
        self._tags[delivery.number] = delivery.tag
        return [UpdateDeliveries(self._link, [delivery.number], self.answer, settled=False)]

    def _continue(self, payload: bytes, more: bool) -> list[Command]:
        part = self._part
        if part is None:
            return []
        self._parts.append(payload)
        if more:
            return []
        self._part = None
        part.payload, part.more = b"".join(self._parts), False
        return self._take(part)

    # --- sending ----------------------------------------------------------------------------------

    def _resume(self, event: LinkAttached) -> None:
        theirs = event.unsettled or {}
        self._due.clear()
        for tag, payload in tuple(self._went.items()):
            number = DeliveryNumber(int.from_bytes(tag, "big"))
            match resume(None, theirs.get(tag, ABSENT)):
                case SendAnew():
                    del self._went[tag]
                    self.waiting.appendleft(payload)
                case ResumeFrom():
                    self._due.append(OutgoingDelivery(number, tag, payload, resume=True))
                case Settle(outcome=outcome):
                    self._due.append(
                        OutgoingDelivery(number, tag, b"", state=outcome, settled=True, resume=True)
                    )
                case _:
                    raise AssertionError

    def _send(self) -> list[Command]:
        run: list[OutgoingDelivery] = []
        while self._room and (self._due or self.waiting):
            self._room -= 1
            if self._due:
                delivery = self._due.popleft()
                if delivery.settled:
                    self.settled.append(self._went.pop(delivery.tag))
                else:
                    self._numbers[delivery.number] = delivery.tag
            else:
                number = DeliveryNumber(self._next)
                self._next += 1
                tag = DeliveryTag(number.to_bytes(4, "big"))
                payload = self.waiting.popleft()
                if self._sends_settled:
                    self.settled.append(payload)
                    run.append(OutgoingDelivery(number, tag, payload, settled=True))
                    continue
                self._went[tag] = payload
                self._numbers[number] = tag
                delivery = OutgoingDelivery(number, tag, payload)
            run.append(delivery)
        if not run:
            return []
        return [SendDeliveries(self._link, run)]

    def _update(self, event: DeliveriesUpdated) -> list[Command]:
        incoming = [number for number in event.numbers if number in self._tags]
        if incoming:
            if event.settled:
                for number in incoming:
                    self._came.pop(self._tags.pop(number), None)
            return []
        if not is_outcome(event.state):
            return []
        done = [number for number in event.numbers if number in self._numbers]
        for number in done:
            self.told[int(number)] = event.state
            tag = self._numbers.pop(number)
            if tag in self._went:
                self.settled.append(self._went.pop(tag))
        if event.settled or not done:
            return []
        return [UpdateDeliveries(self._link, done, event.state, settled=True)]


class Line:
    """A machine of the client and a keeper, joined by engines and by octets that take their time.

    Attributes:
        near, far: the engines.
        is_leaving: the machine is done and says goodbye.
    """

    def __init__(
        self, machine: LinkMachine, keeper: Keeper, *, frame_octets: int = 65536, window: int = 2048
    ) -> None:
        self.machine = machine
        self.keeper = keeper
        self._frame_octets = frame_octets
        self._window = window
        self.connect()

    def connect(self) -> None:
        """Begins a new connection."""
        self._ids = map(LinkId, itertools.count(1))
        self.near = Engine10(
            EngineSettings(
                is_server=False,
                container="client",
                link_ids=self._ids,
                max_frame_octets=self._frame_octets,
            )
        )
        self.far = Engine10(
            EngineSettings(
                is_server=True,
                container=self.keeper.name,
                max_frame_octets=self._frame_octets,
                session_window_frames=self._window,
            )
        )
        self.is_leaving = False

    def cut(self, found: Keeper | None = None) -> None:
        """Loses the connection and all that is under way; begins another, to ``found``."""
        self._near_events(self.near.receive_eof(0.0))
        self._far_events(self.far.receive_eof(0.0))
        self.keeper.lost()
        self.keeper = found or self.keeper
        self.connect()

    def step(self, out_octets: int = 1 << 20, in_octets: int = 1 << 20) -> int:
        """Carries up to so many octets each way; returns how many moved."""
        self._work()
        there = bytes(self.near.data_to_send()[:out_octets])
        self.near.bytes_sent(len(there))
        if there:
            self._far_events(self.far.receive_data(there, 0.0))
        back = bytes(self.far.data_to_send()[:in_octets])
        self.far.bytes_sent(len(back))
        if back:
            self._near_events(self.near.receive_data(back, 0.0))
        return len(there) + len(back)

    def run(self) -> None:
        """Carries octets until nothing moves any more."""
        while self.step():
            pass

    def _work(self) -> None:
        if self.near.output_octets or self.near.finished or self.is_leaving:
            return
        for command in self.machine.pull():
            self.near.execute(command)
        if self.machine.is_done and not self.near.waiting_octets:
            self.is_leaving = True
            for command in (*self.machine.finish(), CloseConnection()):
                self.near.execute(command)

    def _near_events(self, events: Sequence[Event]) -> None:
        for event in events:
            if isinstance(event, ConnectionOpened):
                self.machine.frame_octets = event.capabilities.frame_octets
                self.machine.peer = event.container
                for command in self.machine.attach(self._ids):
                    self.near.execute(command)
        for command in self.machine.handle(events):
            self.near.execute(command)

    def _far_events(self, events: Sequence[Event]) -> None:
        for command in self.keeper.handle(events):
            self.far.execute(command)
