"""The sending link of the client: a machine that outlives its connections.

Theory of operation. Payloads are pulled from ``supply`` as credit arrives, and kept until settled.

    phase        meaning                                              leaves by
    AWAY         no attach of ours stands                             a connection opens
    ATTACHING    our attach is out                                    the answer, or a detach
    REDUCING     attached, and an unsettled map was incomplete:       nothing left that both know
                 nothing new is sent, what both know is settled
    SUSPENDING   detached by us, to attach again with shorter maps    the detach is through
    ATTACHED     sends                                                a detach

A lost connection leads to AWAY from any phase. What must never happen: an exactly-once delivery
is sent again, unless the other end's map has proved that it does not have the delivery, or our own
engine has reported that it was never sent.

A link belongs to two containers (§2.6.1): another one that is found at the place is offered no map
of the first. What the first may have is in doubt with it, if exactly-once; else it is sent again.

The engine reports deliveries that were never sent as released, together with the end
of the link or connection. The peer's own releases may arrive in the same run of events; sending
those again is right as well, since released means that the receiver did not act upon them.
"""

import enum
from collections import deque
from collections.abc import Iterator, Mapping, Sequence

import attrs

from router.errors import MisuseError
from router.links.attaches import DrawNumber, no_number, properties_of
from router.links.recovery import (
    ABSENT,
    Abort,
    Action,
    Forget,
    Restate,
    ResumeFrom,
    SendAnew,
    Settle,
    resume,
)
from router.model.commands import (
    AttachLink,
    Command,
    DetachLink,
    ReturnCredit,
    SendDeliveries,
    UpdateDeliveries,
)
from router.model.condition import DETACH_FORCED, NO_REASON, Condition
from router.model.delivery import OutgoingDelivery
from router.model.events import (
    ConnectionClosed,
    CreditGranted,
    DeliveriesUpdated,
    Event,
    LinkAttached,
    LinkDetached,
)
from router.model.identity import ContainerId, DeliveryNumber, DeliveryTag, LinkId, LinkName
from router.model.outcome import DeliveryState, Released, is_outcome
from router.model.terminus import Role
from router.net.client.met import Met
from router.net.client.report import Report
from router.net.client.terminus import (
    Terms,
    is_moved,
    is_passing,
    keeps_no_state,
    settles_first,
)
from router.routes.route import Guarantee
from router.wire.v1_0.fitting import with_map

RUN_DELIVERIES = 256
RUN_OCTETS = 1 << 18
"""Bounds of one run; the next is pulled when this one is with the socket."""

IDLE_ROUNDS = 50
"""Attachments in a row by which unsettled maps have not become shorter; other ends may tell first
what we do not have."""


class SenderPhase(enum.Enum):
    """Where the link stands."""

    AWAY = "away"
    ATTACHING = "attaching"
    REDUCING = "reducing"
    SUSPENDING = "suspending"
    ATTACHED = "attached"


@attrs.define(eq=False)
class Outstanding:
    """A delivery of ours that is not settled.

    Attributes:
        is_sent: it went out on some connection, so the receiver may have it.
        sent_on: the link on which it went out first; what that gives back never left at all.
        sent_to: the container that it went out to; None: its connection did not say.
        is_shared: both ends know it, and its settling is awaited.
    """

    number: DeliveryNumber
    tag: DeliveryTag
    payload: bytes
    is_sent: bool = False
    sent_on: LinkId | None = None
    sent_to: ContainerId | None = None
    is_shared: bool = False

    def send(self, link: LinkId, container: ContainerId | None) -> None:
        """Records that it goes out, whole."""
        if not self.is_sent:
            self.is_sent = True
            self.sent_on = link
        self.sent_to = container


@attrs.define(eq=False, kw_only=True)
class SendingLink:
    """Sends what ``supply`` yields, one delivery a payload, until each is settled.

    Attributes:
        address: of the target.
        supply: encoded messages (AMQP 1.0 sections); pulled as credit allows. None: there is none
            yet; ``Conversation.wake`` says that there may be.
        guarantee: at-most-once sends settled; at-least-once awaits the outcome; exactly-once asks
            the receiver to settle second and never sends again what may have arrived.
        window: deliveries that may be unsettled at a time, 1 or more.
        window_octets: payload octets that may be; one delivery always may.
        draw_number: draws the number of each attach.
        report: counts, kept up to date.
        failure: why the link cannot go on, once it cannot.
        interruption: why this connection is of no use any more; another may be.
        frame_octets: the largest frame that the other end takes; 0: any.
        peer: the container at the other end of the connection.
        moved: the redirect with which the other end has ended the link (§2.8.18).
    """

    name: LinkName
    address: str
    supply: Iterator[bytes | None]
    guarantee: Guarantee
    window: int = 5000
    window_octets: int = 64 << 20
    draw_number: DrawNumber = no_number
    report: Report = attrs.field(factory=Report)
    failure: Condition | None = attrs.field(default=None, init=False)
    interruption: str | None = attrs.field(default=None, init=False)
    frame_octets: int = attrs.field(default=0, init=False)
    peer: ContainerId | None = attrs.field(default=None, init=False)
    moved: Condition | None = attrs.field(default=None, init=False)
    phase: SenderPhase = attrs.field(default=SenderPhase.AWAY, init=False)
    _terms: Terms = attrs.field(init=False)
    _link_ids: Iterator[LinkId] = attrs.field(factory=lambda: iter(()), init=False)
    _link: LinkId = attrs.field(default=LinkId(0), init=False)
    _credit: int = attrs.field(default=0, init=False)
    _is_draining: bool = attrs.field(default=False, init=False)
    _next: int = attrs.field(default=0, init=False)
    _ahead: bytes | None = attrs.field(default=None, init=False)
    _is_exhausted: bool = attrs.field(default=False, init=False)
    _unsettled: dict[DeliveryNumber, Outstanding] = attrs.field(factory=dict, init=False)
    _unsettled_octets: int = attrs.field(default=0, init=False)
    _again: deque[tuple[Outstanding, Action]] = attrs.field(factory=deque, init=False)
    _settling: list[Command] = attrs.field(factory=list, init=False)
    _was_attached: bool = attrs.field(default=False, init=False)
    _met: Met = attrs.field(factory=Met, init=False)
    _listed: frozenset[DeliveryTag] | None = attrs.field(default=None, init=False)
    _is_cut: bool = attrs.field(default=False, init=False)
    _idle_rounds: int = attrs.field(default=0, init=False)

    def __attrs_post_init__(self) -> None:
        self._terms = Terms(address=self.address, name=self.name, guarantee=self.guarantee)

    @property
    def waits_for(self) -> str | None:
        """Why nothing moves, for people; None: something can, or the link is not attached."""
        if self.phase is not SenderPhase.ATTACHED:
            return None
        if self._unsettled:
            return f"it waits for the outcome of {len(self._unsettled):,} that were sent"
        if self._credit == 0:
            return (
                f"it has no credit: nobody receives from '{self.address}', its receivers have no"
                " credit, or its route is paused or waits for the journal (see router status)"
            )
        return None

    @property
    def is_done(self) -> bool:
        """Whether everything was sent and settled, or nothing more can be."""
        return self.failure is not None or (self._is_exhausted and not self._unsettled)

    # --- what the conversation calls --------------------------------------------------------------

    def aim(self, address: str) -> None:
        """Attaches to the node of this address from now on."""
        self.address = address
        self._terms = attrs.evolve(self._terms, address=address)

    def attach(self, link_ids: Iterator[LinkId]) -> list[Command]:
        """Attaches the link on a connection that has just opened."""
        self._link_ids = link_ids
        self.interruption = None
        return self._attach()

    def handle(self, events: Sequence[Event]) -> list[Command]:
        """Handles events of the connection that the link is attached on, as they came together."""
        ends = any(self._is_end(event) for event in events)
        commands: list[Command] = []
        for event in events:
            commands += self._take(event, ends)
        return commands

    def pull(self) -> list[Command]:
        """Returns what may be sent now; asked again when that is with the socket."""
        if self.phase not in (SenderPhase.ATTACHED, SenderPhase.REDUCING):
            return []
        self._look_ahead()
        run: list[OutgoingDelivery] = []
        octets = 0
        while self._credit and octets < RUN_OCTETS and len(run) < RUN_DELIVERIES:
            delivery = self._next_again() or self._next_fresh()
            if delivery is None:
                break
            self._credit -= 1
            octets += len(delivery.payload)
            run.append(delivery)
        if run:
            settling, self._settling = self._settling, []
            return [SendDeliveries(self._link, run), *settling]
        if self._is_draining:
            self._is_draining = False
            self._credit = 0
            return [ReturnCredit(self._link)]
        if self.phase is SenderPhase.REDUCING and not self._again and not self._shared():
            self.phase = SenderPhase.SUSPENDING
            return [DetachLink(self._link, closed=False)]
        return []

    def finish(self) -> list[Command]:
        """Ends the link for good."""
        if self.phase in (SenderPhase.AWAY, SenderPhase.SUSPENDING):
            return []
        self.phase = SenderPhase.AWAY
        return [DetachLink(self._link, closed=True)]

    # --- events -----------------------------------------------------------------------------------

    def _is_end(self, event: Event) -> bool:
        if isinstance(event, LinkDetached):
            return event.link == self._link
        return isinstance(event, ConnectionClosed)

    def _take(self, event: Event, ends: bool) -> list[Command]:
        match event:
            case LinkAttached(link=self._link, target=target, is_answer=True):
                if target is not None:
                    self._begin(event)
            case LinkDetached(link=self._link):
                return self._detached(event)
            case CreditGranted(link=self._link, credit=credit, drain=drain):
                self._credit = credit
                self._is_draining = drain
            case DeliveriesUpdated(link=self._link):
                return self._updated(event, ends)
            case ConnectionClosed():
                self.phase = SenderPhase.AWAY
            case _:
                pass
        return []

    def _updated(self, event: DeliveriesUpdated, ends: bool) -> list[Command]:
        if ends and isinstance(event.state, Released):
            for number in event.numbers:
                entry = self._unsettled.get(number)
                if entry is not None and entry.sent_on == self._link:
                    entry.is_sent = False
            return []
        if not event.settled and not is_outcome(event.state):
            return []
        settled = [each for each in event.numbers if self._settle(each, event.state)]
        if event.settled or not settled:
            return []
        return [UpdateDeliveries(self._link, settled, event.state, settled=True)]

    def _settle(self, number: DeliveryNumber, state: DeliveryState | None) -> bool:
        entry = self._unsettled.pop(number, None)
        if entry is None:
            return False
        self._unsettled_octets -= len(entry.payload)
        self.report.count(state)
        return True

    def _detached(self, event: LinkDetached) -> list[Command]:
        phase, self.phase = self.phase, SenderPhase.AWAY
        is_orderly = event.condition is None and not event.closed
        if phase is SenderPhase.SUSPENDING or (phase is SenderPhase.REDUCING and is_orderly):
            return self._attach_once_more()
        if self._listed is not None and keeps_no_state(event):
            self._met.keeps_nothing(self.peer)
            return self._attach()
        if is_moved(event):
            self.moved, self.interruption = event.condition, str(event.condition)
        elif self._was_attached and is_passing(event):
            self.interruption = str(event.condition or "the link was detached")
        elif phase is not SenderPhase.AWAY:
            self.failure = event.condition or Condition(DETACH_FORCED, NO_REASON)
        return []

    # --- attach and resume ------------------------------------------------------------------------

    def _adopt(self) -> None:
        """Has what an earlier process sent be with the first container that is met."""
        self._met.answered(self.peer)
        for entry in self._unsettled.values():
            entry.sent_to = self.peer

    def _attach(self) -> list[Command]:
        if self._was_attached and self._met.is_empty:
            self._adopt()
        self._link = next(self._link_ids)
        self._credit = 0
        self._is_draining = False
        self._again.clear()
        self.phase = SenderPhase.ATTACHING
        command = AttachLink(
            link=self._link,
            name=self.name,
            role=Role.SENDER,
            source=self._terms.source(self.name),
            target=self._terms.target(self.address),
            sender_settle_mode=self._terms.sender_mode,
            receiver_settle_mode=self._terms.receiver_mode,
            properties=properties_of(self.draw_number()),
        )
        return [self._with_map(command)]

    def _with_map(self, command: AttachLink) -> AttachLink:
        """Returns the attach with as much of the unsettled map as fits a frame (§2.6.13)."""
        self._listed, self._is_cut = None, False
        if not self._met.may_resume(self.peer):
            return command
        sent = ((entry.tag, None) for entry in self._unsettled.values() if self._is_here(entry))
        command = with_map(command, sent, self.frame_octets, is_answer=False)
        self._listed = frozenset(command.unsettled or ())
        self._is_cut = command.incomplete_unsettled
        return command

    def _is_here(self, entry: Outstanding) -> bool:
        """Returns whether the container at the other end may have a delivery."""
        return entry.is_sent and entry.sent_to == self.peer

    def _attach_once_more(self) -> list[Command]:
        """Attaches with shorter maps; if they do not become shorter, on another connection."""
        if self._idle_rounds > IDLE_ROUNDS:
            self._idle_rounds = 0
            self.interruption = "the unsettled maps do not become shorter"
            return []
        return self._attach()

    def _begin(self, event: LinkAttached) -> None:
        """Decides what becomes of each unsettled delivery, by the map of the other end."""
        self.failure = settles_first(self._terms, event.receiver_settle_mode)
        if self.failure is not None:
            return
        is_incomplete = event.incomplete_unsettled and event.unsettled is not None
        is_whole = not (self._is_cut or is_incomplete)
        self.phase = SenderPhase.ATTACHED if is_whole else SenderPhase.REDUCING
        self._was_attached = True
        self._met.answered(self.peer)
        theirs = event.unsettled if self._listed is not None else None
        left = sum(entry.is_sent for entry in self._unsettled.values())
        for entry in tuple(self._unsettled.values()):
            self._judge(entry, theirs if self._is_here(entry) else None, is_incomplete)
        has_moved = self._again or left > sum(each.is_sent for each in self._unsettled.values())
        self._idle_rounds = 0 if is_whole or has_moved else self._idle_rounds + 1

    def _judge(
        self,
        entry: Outstanding,
        theirs: Mapping[DeliveryTag, DeliveryState | None] | None,
        is_incomplete: bool,
    ) -> None:
        entry.is_shared = False
        if entry.is_sent and theirs is None and self.guarantee is Guarantee.EXACTLY_ONCE:
            self._doubt(entry)
            return
        state = ABSENT if theirs is None else theirs.get(entry.tag, ABSENT)
        if state is ABSENT and self._is_here(entry) and is_incomplete:
            return
        action = resume(None, state) if entry.is_sent else SendAnew()
        if isinstance(action, SendAnew) and self.phase is SenderPhase.REDUCING:
            entry.is_sent = False  # its turn comes when the maps are short enough
            return
        entry.is_shared = not isinstance(action, SendAnew)
        self._again.append((entry, action))

    def _doubt(self, entry: Outstanding) -> None:
        del self._unsettled[entry.number]
        self._unsettled_octets -= len(entry.payload)
        self.report.doubt(entry.sent_to)

    def _shared(self) -> bool:
        """Returns whether a delivery that was resumed while reducing is not settled yet."""
        return any(entry.is_shared for entry in self._unsettled.values())

    # --- deliveries -------------------------------------------------------------------------------

    def _next_again(self) -> OutgoingDelivery | None:
        while self._again:
            entry, action = self._again.popleft()
            if entry.number not in self._unsettled:
                continue
            return self._act(entry, action)
        return None

    def _act(self, entry: Outstanding, action: Action) -> OutgoingDelivery:
        match action:
            case SendAnew():
                self.report.resent += entry.is_sent
                entry.send(self._link, self.peer)
                return OutgoingDelivery(entry.number, entry.tag, entry.payload)
            case ResumeFrom():
                # From the start: the receiver skips what it has (§3.4.6, tag 2, case a).
                self.report.resumed += 1
                return OutgoingDelivery(entry.number, entry.tag, entry.payload, resume=True)
            case Settle(outcome=outcome):
                # §3.4.6 would settle by this transfer, §2.7.5 forbids it on a link like ours, so
                # the settling follows it.
                self.report.resumed += 1
                self._settle(entry.number, outcome)
                self._settling.append(UpdateDeliveries(self._link, [entry.number], outcome, True))
                return OutgoingDelivery(entry.number, entry.tag, b"", state=outcome, resume=True)
            case Restate() | Abort() | Forget():
                raise MisuseError("we keep every payload and no outcome of our own")

    def _look_ahead(self) -> None:
        """Fetches the next payload, so that the end is known with the last one."""
        if self._ahead is None and not self._is_exhausted:
            try:
                self._ahead = next(self.supply)
            except StopIteration:
                self._is_exhausted = True

    def _next_fresh(self) -> OutgoingDelivery | None:
        payload = self._ahead
        if payload is None or self.phase is not SenderPhase.ATTACHED or self._is_full():
            return None
        self._ahead = None
        self._look_ahead()
        number = DeliveryNumber(self._next)
        tag = DeliveryTag((self._next & 0xFFFF_FFFF).to_bytes(4, "big"))
        self._next += 1
        self.report.sent += 1
        self.report.octets += len(payload)
        if self.guarantee is Guarantee.AT_MOST_ONCE:
            self.report.count(None)
            return OutgoingDelivery(number, tag, payload, settled=True)
        self._unsettled[number] = entry = Outstanding(number, tag, payload)
        self._unsettled_octets += len(payload)
        entry.send(self._link, self.peer)
        return OutgoingDelivery(number, tag, payload)

    def _is_full(self) -> bool:
        return len(self._unsettled) >= self.window or self._unsettled_octets >= self.window_octets
