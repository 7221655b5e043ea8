"""Sessions: channels, handles and unsettled deliveries (§2.5).

Theory of operation. ``TRANSITIONS`` is the specification's diagram (§2.5.5) as a table. A session
that the peer begins is answered at once, so BEGIN_RCVD and END_RCVD last no longer than a call. Our
own sessions are begun when a link needs one. The end of a session ends its links; after our end the
peer's frames are discarded until its own end arrives.

A session has two maps of unsettled deliveries by delivery-id, one in each direction; a link's
unsettled deliveries are those that refer to it. Ids of one direction increase by one, so a map's
first and last keys bound it, and a peer's range of up to 2^32 ids is intersected with these before
it is iterated.
"""

import enum
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import attrs

from router.errors import MisuseError
from router.model import serial
from router.model.condition import Condition
from router.model.delivery import ReceivedDelivery
from router.model.identity import DeliveryNumber, DeliveryTag
from router.model.sparse import SparseSet
from router.wire.v1_0 import windows
from router.wire.v1_0.faults import Fault, Rule
from router.wire.v1_0.fitting import fitting
from router.wire.v1_0.frames import HEADER_OCTETS, frame
from router.wire.v1_0.performatives import Begin, End, encode
from router.wire.v1_0.settling import Settling
from router.wire.v1_0.state import ConnectionState, LinkState, SessionState

if TYPE_CHECKING:
    from router.wire.v1_0.link import IncomingLink, Link, OutgoingLink


UNTOLD_HANDLES: Final = 64
"""Handles used in a session whose begin has not been answered: no peer allows fewer."""


class SessionPhase(enum.Enum):
    """The states of a session endpoint (§2.5.5)."""

    UNMAPPED = "UNMAPPED"
    BEGIN_SENT = "BEGIN_SENT"
    BEGIN_RCVD = "BEGIN_RCVD"
    MAPPED = "MAPPED"
    END_SENT = "END_SENT"
    END_RCVD = "END_RCVD"
    DISCARDING = "DISCARDING"


class Step(enum.Enum):
    """What moves a session: R_ is received, S_ is sent."""

    R_BEGIN = "R:BEGIN"
    S_BEGIN = "S:BEGIN"
    R_FRAME = "R:frame of a link or flow"
    S_FRAME = "S:frame of a link or flow"
    R_END = "R:END"
    S_END = "S:END"
    S_END_ERROR = "S:END(error)"


TRANSITIONS: Final[Mapping[tuple[SessionPhase, Step], SessionPhase]] = {
    (SessionPhase.UNMAPPED, Step.R_BEGIN): SessionPhase.BEGIN_RCVD,
    (SessionPhase.UNMAPPED, Step.S_BEGIN): SessionPhase.BEGIN_SENT,
    (SessionPhase.BEGIN_RCVD, Step.S_BEGIN): SessionPhase.MAPPED,
    (SessionPhase.BEGIN_SENT, Step.R_BEGIN): SessionPhase.MAPPED,
    (SessionPhase.BEGIN_SENT, Step.S_FRAME): SessionPhase.BEGIN_SENT,
    (SessionPhase.MAPPED, Step.R_FRAME): SessionPhase.MAPPED,
    (SessionPhase.MAPPED, Step.S_FRAME): SessionPhase.MAPPED,
    (SessionPhase.MAPPED, Step.R_END): SessionPhase.END_RCVD,
    (SessionPhase.MAPPED, Step.S_END): SessionPhase.END_SENT,
    (SessionPhase.MAPPED, Step.S_END_ERROR): SessionPhase.DISCARDING,
    (SessionPhase.END_RCVD, Step.S_END): SessionPhase.UNMAPPED,
    (SessionPhase.END_SENT, Step.R_FRAME): SessionPhase.END_SENT,
    (SessionPhase.END_SENT, Step.R_END): SessionPhase.UNMAPPED,
    (SessionPhase.DISCARDING, Step.R_FRAME): SessionPhase.DISCARDING,
    (SessionPhase.DISCARDING, Step.R_END): SessionPhase.UNMAPPED,
}

_RECEIVED: Final = frozenset((Step.R_BEGIN, Step.R_FRAME, Step.R_END))


def follow(phase: SessionPhase, step: Step) -> SessionPhase:
    """Returns the next phase (§2.5.5).

    Raises:
        Fault: if the peer may not do that in this phase.
        MisuseError: if we may not.
    """
    following = TRANSITIONS.get((phase, step))
    if following is not None:
        return following
    if step in _RECEIVED:
        raise Fault(Rule.CHANNEL_UNMAPPED, f"{step.value} in {phase.value}")
    raise MisuseError(f"session: {step.value} in {phase.value}")


@attrs.define(eq=False)
class Session:
    """One session endpoint.

    Attributes:
        state: the shared counters (also used by the express lane).
        remote_handle_max: the highest handle that we may use.
        remote_channel: the peer's channel; None before its begin.
        by_handle: our handle → link.
        incoming: delivery-id → link, for received deliveries that are unsettled.
        outgoing: delivery-id → link, for sent deliveries that are unsettled.
        numbers: delivery-id → the core's number, with the keys of ``outgoing``.
        held: links whose peer is to be stopped by the window.
        errant: the peer's handles whose last link ended with an error of ours (§2.6.5).
        ended: links detached with an error whose peer's detach is awaited.
        can_send: frames of links may be sent.
        read_id: the first of our transfers that the peer has not acknowledged, by its last flow.
        initial_outgoing_id: transfer-id of our first transfer.
        flow_due: a flow of the session alone is due.
        links_due: links whose flow is due, and whether with echo.
        waiting: links with queued items that the window does not allow yet.
        settling_received, settling_sent: dispositions to be sent, for received and sent deliveries.
    """

    state: SessionState
    connection: ConnectionState
    settling_received: Settling
    settling_sent: Settling
    phase: SessionPhase = attrs.field(init=False, default=SessionPhase.UNMAPPED)
    can_send: bool = attrs.field(init=False, default=False)
    remote_handle_max: int = attrs.field(init=False, default=0xFFFF_FFFF)
    remote_channel: int | None = attrs.field(init=False, default=None)
    initial_outgoing_id: int = attrs.field(init=False, default=0)
    by_handle: dict[int, "Link"] = attrs.field(init=False, factory=dict)
    _taken_below: int = attrs.field(init=False, default=0)
    incoming: dict[int, "IncomingLink"] = attrs.field(init=False, factory=dict)
    outgoing: dict[int, "OutgoingLink"] = attrs.field(init=False, factory=dict)
    numbers: dict[int, DeliveryNumber] = attrs.field(init=False, factory=dict)
    held: SparseSet["IncomingLink"] = attrs.field(init=False, factory=SparseSet)
    errant: SparseSet[int] = attrs.field(init=False, factory=SparseSet)
    ended: SparseSet["Link"] = attrs.field(init=False, factory=SparseSet)
    read_id: int | None = attrs.field(init=False, default=None)
    flow_due: bool = attrs.field(init=False, default=False)
    links_due: dict["Link", None] = attrs.field(init=False, factory=dict)
    waiting: list["OutgoingLink"] = attrs.field(init=False, factory=list)

    def __attrs_post_init__(self) -> None:
        state = self.state
        state.owner = self
        state.incoming = self.incoming
        state.outgoing = self.outgoing
        state.waiting = self.waiting

    def step(self, step: Step) -> None:
        """Applies a step by the table; raises as ``follow`` does."""
        self.phase = follow(self.phase, step)
        self.state.is_open = self.phase is SessionPhase.MAPPED
        self.can_send = (self.phase, Step.S_FRAME) in TRANSITIONS

    def send(self, body: bytes, payload: bytes = b"") -> None:
        """Sends a frame on our channel."""
        self.state.output.append(frame(self.state.channel, body, payload))

    def send_dispositions(self) -> None:
        """Sends the gathered dispositions, before a frame that must not overtake them."""
        for settling in (self.settling_received, self.settling_sent):
            if not settling.is_empty:
                settling.send(self)

    def send_begin(self, channel: int, handle_max: int) -> None:
        """Begins on our channel ``channel``, or answers the peer's begin (§2.5.1)."""
        self.step(Step.S_BEGIN)
        state = self.state
        state.channel = channel
        self.initial_outgoing_id = state.next_outgoing_id
        begin = Begin(
            remote_channel=self.remote_channel,
            next_outgoing_id=state.next_outgoing_id,
            incoming_window=state.incoming_window,
            outgoing_window=state.outgoing_window,
            handle_max=handle_max,
        )
        self.send(encode(begin))

    def receive_begin(self, channel: int, begin: Begin) -> None:
        """Handles the peer's begin (§2.7.2)."""
        self.step(Step.R_BEGIN)
        state = self.state
        self.remote_channel = channel
        self.remote_handle_max = begin.handle_max
        state.next_incoming_id = begin.next_outgoing_id
        state.remote_incoming_window = begin.incoming_window
        state.remote_outgoing_window = begin.outgoing_window

    def send_end(self, condition: Condition | None = None) -> None:
        """Ends the session on our side (§2.5.2, §2.5.4)."""
        self.step(Step.S_END if condition is None else Step.S_END_ERROR)
        self.send(fitting(lambda error: encode(End(error)), condition, self.max_body_octets))

    @property
    def max_body_octets(self) -> int:
        """Largest body of a frame that the peer accepts, in octets."""
        return self.connection.max_frame_octets - HEADER_OCTETS

    def watch(self, link: "Link") -> None:
        """Waits for proof that the peer has read the detach of a link."""
        self.ended.add(link)
        self.state.is_errant = True

    def watch_no_more(self, link: "Link") -> None:
        """Records that the peer has detached that link as well."""
        self.ended.discard(link)
        self.state.is_errant = bool(self.ended)

    def has_read(self, transfer_id: int) -> bool:
        """Returns whether the peer has acknowledged a transfer of ours."""
        return self.read_id is not None and serial.distance(transfer_id, self.read_id) > 0

    def unknown(self, handle: int) -> Fault:
        """Returns the fault for a flow or transfer on a handle without a link."""
        is_errant = handle in self.errant
        rule = Rule.INPUT_AFTER_ERROR if is_errant else Rule.HANDLE_UNKNOWN
        return Fault(rule, f"handle {handle}")

    def hold(self, link: "IncomingLink", held: bool) -> bool:
        """Records whether a link holds the window; returns whether a flow is due."""
        if held:
            self.held.add(link)
        else:
            self.held.discard(link)
        return windows.hold(self.state, bool(self.held))

    @property
    def can_attach(self) -> bool:
        """Whether one more link may be attached by us.

        Until the peer's handle-max is known, ``UNTOLD_HANDLES`` is the limit.
        """
        most = self.remote_handle_max if self.phase is SessionPhase.MAPPED else UNTOLD_HANDLES - 1
        return len(self.by_handle) <= most

    def free_handle(self) -> int | None:
        """Returns the lowest free handle that the peer allows; None: all are used."""
        handle = self._taken_below
        while handle in self.by_handle:
            handle += 1
        self._taken_below = handle
        return handle if handle <= self.remote_handle_max else None

    def release_handle(self, handle: int) -> None:
        """Frees one of our handles."""
        del self.by_handle[handle]
        self._taken_below = min(self._taken_below, handle)

    # --- deliveries that the express lane gives up ------------------------------------------------

    def adopt_incoming(
        self, link: LinkState, delivery_id: int, tag: bytes, settles_second: bool
    ) -> None:
        """Enters a delivery that was received on a lane and may still be settled."""
        if link.owner.is_void:
            return
        self.incoming[delivery_id] = link.owner

    def adopt_partial(  # noqa: PLR0917 (called by the lane, which knows no keywords)
        self,
        link: LinkState,
        delivery_id: int,
        tag: bytes,
        settled: bool,
        settles_second: bool,
        payload: bytes,
    ) -> None:
        """Enters a delivery whose first parts were received on a lane."""
        delivery = ReceivedDelivery(
            DeliveryNumber(delivery_id),
            DeliveryTag(tag),
            b"",
            settled=settled,
            settles_second=settles_second,
        )
        link.owner.adopt(delivery, payload)
        if not settled:
            self.incoming[delivery_id] = link.owner

    def adopt_outgoing(
        self, link: LinkState, delivery_id: int, number: DeliveryNumber, tag: bytes
    ) -> None:
        """Enters a delivery that was sent on a lane and may still be settled."""
        owner: OutgoingLink = link.owner
        if owner.is_void:
            return
        self.outgoing[delivery_id] = owner
        self.numbers[delivery_id] = number
        owner.ids[number] = delivery_id
