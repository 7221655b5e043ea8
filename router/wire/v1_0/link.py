"""Link endpoints: attach, detach, and the state of each direction (§2.6).

Theory of operation. A link endpoint of ours has two halves, our handle and the peer's; it is
attached when both are assigned (§2.6.2). ``TRANSITIONS`` contains this as a table. The peer's
request waits in ATTACH_RCVD for the core's answer; flows that the peer pipelines after it are
applied already. The peer's detach is answered at once; if it arrives before the core has answered
the attach, the answer is a refusal.

After our detach the peer's frames for the link are discarded until its own detach. The
specification ends the session for such frames if our detach carried an error (§2.6.5), but they may
have been under way; RabbitMQ and Qpid Proton discard them too. The session ends with errant-link
for frames that cannot have been under way: an attach of the same link with a new handle that does
not ask for resumption; a flow or transfer after the peer's own detach; and a frame after a flow
that acknowledges a transfer which we sent after our detach. Dispositions name no link, so those
about forgotten deliveries are ignored.

One rule of §2.6.6 is deliberately not implemented: when our detach without close crosses the peer's
closing one, we do not attach again only to close. The peer has destroyed the link already, and
neither RabbitMQ nor Proton does so or waits for it.

A name is free for our own next attach only after the peer's detach: attaching earlier would steal
the link from ourselves.
"""

import enum
from collections import deque
from collections.abc import Mapping
from typing import Final

import attrs

from router.errors import MisuseError
from router.model import serial
from router.model.condition import Condition
from router.model.delivery import OutgoingDelivery, ReceivedDelivery
from router.model.events import CreditGranted
from router.model.identity import DeliveryNumber, LinkId
from router.model.idle import NOTHING
from router.model.terminus import Coordinator, Role, Target
from router.model.ways import Ways
from router.wire.v1_0.faults import Fault, Rule
from router.wire.v1_0.fitting import fitting
from router.wire.v1_0.performatives import Attach, Detach, encode
from router.wire.v1_0.session import Session
from router.wire.v1_0.state import LinkState


class LinkPhase(enum.Enum):
    """Which halves of a link endpoint are assigned (§2.6.2)."""

    DETACHED = "DETACHED"
    ATTACH_SENT = "ATTACH_SENT"
    ATTACH_RCVD = "ATTACH_RCVD"
    ATTACHED = "ATTACHED"
    DETACH_PIPE = "DETACH_PIPE"  # attach and detach sent, nothing received
    DETACH_SENT = "DETACH_SENT"
    DETACH_RCVD = "DETACH_RCVD"
    REFUSE_DUE = "REFUSE_DUE"  # attach and detach received, nothing sent
    DISCARDING = "DISCARDING"  # detached with an error


class Step(enum.Enum):
    """What moves a link endpoint: R_ is received, S_ is sent."""

    R_ATTACH = "R:ATTACH"
    S_ATTACH = "S:ATTACH"
    R_FRAME = "R:FLOW or TRANSFER"
    R_DETACH = "R:DETACH"
    S_DETACH = "S:DETACH"
    S_DETACH_ERROR = "S:DETACH(error)"


TRANSITIONS: Final[Mapping[tuple[LinkPhase, Step], LinkPhase]] = {
    (LinkPhase.DETACHED, Step.R_ATTACH): LinkPhase.ATTACH_RCVD,
    (LinkPhase.DETACHED, Step.S_ATTACH): LinkPhase.ATTACH_SENT,
    (LinkPhase.ATTACH_RCVD, Step.S_ATTACH): LinkPhase.ATTACHED,
    (LinkPhase.ATTACH_RCVD, Step.R_FRAME): LinkPhase.ATTACH_RCVD,
    (LinkPhase.ATTACH_RCVD, Step.R_DETACH): LinkPhase.REFUSE_DUE,
    (LinkPhase.REFUSE_DUE, Step.S_ATTACH): LinkPhase.DETACH_RCVD,
    (LinkPhase.ATTACH_SENT, Step.R_ATTACH): LinkPhase.ATTACHED,
    (LinkPhase.ATTACH_SENT, Step.S_DETACH): LinkPhase.DETACH_PIPE,
    (LinkPhase.ATTACH_SENT, Step.S_DETACH_ERROR): LinkPhase.DETACH_PIPE,
    (LinkPhase.DETACH_PIPE, Step.R_ATTACH): LinkPhase.DETACH_SENT,
    (LinkPhase.ATTACHED, Step.R_FRAME): LinkPhase.ATTACHED,
    (LinkPhase.ATTACHED, Step.R_DETACH): LinkPhase.DETACH_RCVD,
    (LinkPhase.ATTACHED, Step.S_DETACH): LinkPhase.DETACH_SENT,
    (LinkPhase.ATTACHED, Step.S_DETACH_ERROR): LinkPhase.DISCARDING,
    (LinkPhase.DETACH_RCVD, Step.S_DETACH): LinkPhase.DETACHED,
    (LinkPhase.DETACH_SENT, Step.R_FRAME): LinkPhase.DETACH_SENT,
    (LinkPhase.DETACH_SENT, Step.R_DETACH): LinkPhase.DETACHED,
    (LinkPhase.DISCARDING, Step.R_FRAME): LinkPhase.DISCARDING,
    (LinkPhase.DISCARDING, Step.R_DETACH): LinkPhase.DETACHED,
}

_RECEIVED: Final = frozenset((Step.R_ATTACH, Step.R_FRAME, Step.R_DETACH))

MOST_EXCESS: Final = 65536
"""Deliveries beyond the credit that are accepted before it is a fault (``incoming``)."""

LIVE: Final = frozenset((LinkPhase.ATTACH_SENT, LinkPhase.ATTACH_RCVD, LinkPhase.ATTACHED))
"""Phases in which the core considers the link attached."""


def follow(phase: LinkPhase, step: Step) -> LinkPhase:
    """Returns the next phase (§2.6.2-6).

    Raises:
        Fault: if the peer may not do that in this phase.
        MisuseError: if we may not.
    """
    following = TRANSITIONS.get((phase, step))
    if following is not None:
        return following
    if step in _RECEIVED:
        raise Fault(Rule.HANDLE_UNKNOWN, f"{step.value} in {phase.value}")
    raise MisuseError(f"link: {step.value} in {phase.value}")


@attrs.define(eq=False)
class Link:
    """One link endpoint, of either role.

    Attributes:
        state: the shared counters (also used by the express lane).
        session: the session it is attached to.
        phase: which halves are assigned.
        is_live: the core considers the link attached.
        is_void: its deliveries are forgotten; those of a detached link may still be settled
            (§2.7.6).
        remote: the peer's attach; None before it has arrived.
        remote_handle: the peer's handle while it is assigned.
        is_asking: the peer has been asked to prove that it has read our attach (``flowing``).
        ended_at: the next transfer-id at the time when we detached it with an error.
    """

    state: LinkState
    session: Session
    phase: LinkPhase = attrs.field(init=False, default=LinkPhase.DETACHED)
    is_live: bool = attrs.field(init=False, default=False)
    is_void: bool = attrs.field(init=False, default=False)
    remote: Attach | None = attrs.field(init=False, default=None)
    remote_handle: int | None = attrs.field(init=False, default=None)
    is_asking: bool = attrs.field(init=False, default=False)
    ended_at: int | None = attrs.field(init=False, default=None)

    def __attrs_post_init__(self) -> None:
        self.state.owner = self

    @property
    def link(self) -> LinkId:
        """The link's identity."""
        return self.state.link

    @property
    def key(self) -> tuple[str, Role]:
        """The link's name and role, unique between the two containers (§2.6.1)."""
        return self.state.name, self.state.role

    def step(self, step: Step) -> None:
        """Applies a step by the table; raises as ``follow`` does."""
        self.phase = follow(self.phase, step)
        self.is_live = self.phase in LIVE
        self.state.is_open = self.phase is LinkPhase.ATTACHED

    def receive_attach(self, attach: Attach) -> None:
        """Handles the peer's attach (§2.7.3)."""
        self.step(Step.R_ATTACH)
        self.remote = attach
        self.remote_handle = attach.handle
        self.session.state.links[attach.handle] = self.state
        self.session.errant.discard(attach.handle)

    def receive_frame(self) -> None:
        """Records that a flow or transfer has arrived.

        Raises:
            Fault: if the peer may not send it now.
        """
        if self.ended_at is not None and self.session.has_read(self.ended_at):
            raise Fault(Rule.INPUT_AFTER_ERROR, f"link {self.state.name!r}")
        self.step(Step.R_FRAME)

    def refusal(self) -> Attach:
        """Builds the attach that refuses a link: without a terminus on our side (§2.6.3)."""
        remote = self.remote
        is_receiver = self.state.role is Role.RECEIVER
        return Attach(
            name=self.state.name,
            handle=self.state.handle,
            role=self.state.role,
            source=remote.source if remote is not None and is_receiver else None,
            target=remote.target if remote is not None and not is_receiver else None,
            initial_delivery_count=None if is_receiver else 0,
        )

    def send_detach(self, closed: bool, condition: Condition | None = None) -> None:
        """Sends our detach (§2.7.7), after the gathered dispositions."""
        self.session.send_dispositions()
        answers = self.phase is LinkPhase.DETACH_RCVD
        self.step(Step.S_DETACH if condition is None or answers else Step.S_DETACH_ERROR)
        if self.phase is LinkPhase.DISCARDING:
            self.ended_at = self.session.state.next_outgoing_id
            self.session.watch(self)
        handle = self.state.handle
        self.session.send(
            fitting(
                lambda error: encode(Detach(handle, closed, error)),
                condition,
                self.session.max_body_octets,
            )
        )

    def receive_detach(self) -> None:
        """Handles the peer's detach and frees its handle (§2.7.7)."""
        if self.phase is LinkPhase.DISCARDING and self.remote_handle is not None:
            self.session.errant.add(self.remote_handle)
            self.session.watch_no_more(self)
        self.step(Step.R_DETACH)
        self.unmap()

    def unmap(self) -> None:
        """Frees the peer's handle."""
        if self.remote_handle is not None:
            self.session.state.links.pop(self.remote_handle, None)
            self.remote_handle = None


@attrs.define(eq=False)
class Partial:
    """An incomplete incoming delivery (§2.6.14).

    Attributes:
        delivery: as it was reported, or will be.
        parts: payload that has arrived and is not reported yet.
        total_octets: payload that has arrived altogether.
        is_reported: whether the core knows the delivery.
        settled: whether any of its transfers was settled.
    """

    delivery: ReceivedDelivery
    settled: bool
    parts: list[bytes] = attrs.field(init=False, factory=list)
    total_octets: int = attrs.field(init=False, default=0)
    is_reported: bool = attrs.field(init=False, default=False)


@attrs.define(eq=False)
class IncomingLink(Link):
    """A receiving link.

    Attributes:
        partial: the incomplete delivery; None: there is none.
        is_anonymous: its target is the anonymous terminus.
        is_draining: the peer was asked to use or return its credit.
        excess: deliveries accepted beyond the credit; 0 before any credit was granted.
        takes_resumed_only: our unsettled map was incomplete.
        ways: the ways to advertise with the next flow; None: nothing new.
        is_traced: the peer is a router, and its deliveries carry the stops that they have passed.
        settled_only_from: the delivery-count from which on credit is for settled deliveries alone;
            None: there is no such limit.
        awaits_record: the core asks the peer for a report, behind the dispositions that are due.
    """

    partial: Partial | None = attrs.field(init=False, default=None)
    is_anonymous: bool = attrs.field(init=False, default=False)
    is_draining: bool = attrs.field(init=False, default=False)
    excess: int = attrs.field(init=False, default=0)
    takes_resumed_only: bool = attrs.field(init=False, default=False)
    ways: Ways | None = attrs.field(init=False, default=None)
    is_traced: bool = attrs.field(init=False, default=False)
    settled_only_from: int | None = attrs.field(init=False, default=None)
    awaits_record: bool = attrs.field(init=False, default=False)

    @property
    def ahead(self) -> int | None:
        """How much of the credit is for settled deliveries alone; None: not specified."""
        if self.settled_only_from is None:
            return None
        unsettled = serial.distance(self.state.delivery_count, self.settled_only_from)
        return max(0, self.state.credit - max(0, unsettled))

    @property
    def unreported(self) -> int:
        """Number of deliveries that used credit and are not reported to the core yet."""
        return 1 if self.partial is not None and not self.partial.is_reported else 0

    def set_partial(self, partial: Partial | None) -> None:
        """Sets the incomplete delivery; None: there is none."""
        self.partial = partial
        self.state.in_progress = partial is not None or self.state.lane is not None

    def adopt(self, delivery: ReceivedDelivery, payload: bytes) -> None:
        """Takes over a delivery whose first parts were received on the express lane."""
        partial = Partial(delivery, delivery.settled)
        partial.parts.append(payload)
        partial.total_octets = len(payload)
        self.set_partial(partial)

    def name_target(self, target: Target | Coordinator | None) -> None:
        """Records the link's target."""
        self.is_anonymous = (
            isinstance(target, Target) and target.address is None and not target.dynamic
        )


class Verb(enum.Enum):
    """What a waiting item is of its delivery."""

    BEGIN = "begin"
    CONTINUE = "continue"
    ABORT = "abort"


@attrs.define(eq=False)
class Waiting:
    """A delivery, or a part of one, that is to be sent.

    Attributes:
        verb: what the item is.
        number: the core's number of the delivery.
        payload: payload to send.
        more: further parts follow this one.
        delivery: the delivery that it begins; None for a later part.
        at: octets of the payload that have been sent.
        has_begun: a transfer of this item was sent.
    """

    verb: Verb
    number: DeliveryNumber
    payload: bytes
    more: bool
    delivery: OutgoingDelivery | None = None
    at: int = 0
    has_begun: bool = False

    @property
    def is_unsent(self) -> bool:
        """Whether it begins a delivery that has not been sent at all."""
        return self.verb is Verb.BEGIN and not self.has_begun


@attrs.define(eq=False)
class OutgoingLink(Link):
    """A sending link.

    Attributes:
        initial_count: the delivery-count in our attach (§2.7.3).
        queue: items that could not be sent yet.
        queued_deliveries: deliveries in the queue that have not begun.
        is_waiting: it is among its session's waiting links.
        ids: the core's number → delivery-id, of deliveries sent and not settled.
        begun: number of the delivery whose end the core has not passed to us yet.
        begun_octets: how much of it the core has passed to us so far.
        begun_is_void: it was refused or aborted here; its further parts are dropped.
        drain: the peer wants its credit used or returned.
        return_due: the core has nothing more to send; the credit is returned when the queue is
            empty.
        awaits_record: the core asks the peer for a report, behind what is in the queue.
        forms: constant parts of transfers by tag size (``outgoing``).
        settled_only_from: as with ``IncomingLink``; set by a sibling.
    """

    initial_count: int = attrs.field(init=False, default=0)
    queue: deque[Waiting] = attrs.field(init=False, default=NOTHING)
    queued_deliveries: int = attrs.field(init=False, default=0)
    is_waiting: bool = attrs.field(init=False, default=False)
    ids: dict[DeliveryNumber, int] = attrs.field(init=False, factory=dict)
    begun: DeliveryNumber | None = attrs.field(init=False, default=None)
    begun_octets: int = attrs.field(init=False, default=0)
    begun_is_void: bool = attrs.field(init=False, default=False)
    drain: bool = attrs.field(init=False, default=False)
    return_due: bool = attrs.field(init=False, default=False)
    awaits_record: bool = attrs.field(init=False, default=False)
    forms: dict[int, object] = attrs.field(init=False, factory=dict)
    settled_only_from: int | None = attrs.field(init=False, default=None)

    @property
    def core_credit(self) -> int:
        """Credit for deliveries that the core has not passed to us yet."""
        return 0 if self.return_due else max(0, self.state.credit - self.queued_deliveries)

    def granted(self) -> CreditGranted:
        """Returns the event that reports the credit and its part for settled deliveries alone."""
        credit, ahead = self.core_credit, None
        if self.settled_only_from is not None:
            unsettled = serial.distance(self.state.delivery_count, self.settled_only_from)
            ahead = credit - min(credit, max(0, unsettled - self.queued_deliveries))
        return CreditGranted(self.link, credit - (ahead or 0), self.drain, ahead)

    def hold(self, item: Waiting) -> None:
        """Appends an item to the queue."""
        if self.queue is NOTHING:
            self.queue = deque()
        self.queue.append(item)

    def mark_progress(self) -> None:
        """Records for the express lane whether it must skip the link."""
        state = self.state
        was_in_progress = state.in_progress
        state.in_progress = bool(self.queue) or self.begun is not None
        if was_in_progress and not state.in_progress and state.lane is not None:
            state.lane.relieve()
