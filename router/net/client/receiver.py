"""The receiving link of the client: a machine that outlives its connections.

Theory of operation. ``take`` is called once for each delivery and returns its outcome.
At-least-once settles with the outcome at once. Exactly-once sends the outcome and keeps it by tag
until the sender has settled. After a lost connection

- deliveries that the sender's map lacks have been settled, and are forgotten here (§2.6.13);
- deliveries that it still has arrive again, marked as resumed, and get the same outcome again;
- deliveries marked as resumed and unknown here are ignored, as the specification says.

A link belongs to two containers (§2.6.1), so outcomes are kept for each sender by itself: another
container that is found at the place is told nothing of them, and its tags are its own.

A map that does not fit a frame of the sender is sent in several attachments; the sender detaches
the link when it has resumed what it could.

Parts of an interrupted delivery are dropped and left out of the map, so the sender begins it anew.

Deliveries beyond ``count`` (a sender may send new ones on the credit that it needs to resume) are
released.
"""

from collections.abc import Callable, Iterator, Sequence

import attrs

from router.links.attaches import DrawNumber, no_number, properties_of
from router.model.commands import (
    AttachLink,
    Command,
    DetachLink,
    GrantCredit,
    UpdateDeliveries,
)
from router.model.condition import DETACH_FORCED, NO_REASON, Condition
from router.model.delivery import ReceivedDelivery
from router.model.events import (
    ConnectionClosed,
    CreditReturned,
    DeliveriesReceived,
    DeliveriesUpdated,
    DeliveryAborted,
    DeliveryContinued,
    Event,
    LinkAttached,
    LinkDetached,
)
from router.model.identity import ContainerId, DeliveryNumber, DeliveryTag, LinkId, LinkName
from router.model.outcome import RELEASED, DeliveryState, is_outcome
from router.model.terminus import Role
from router.net.client.met import Met
from router.net.client.report import Report
from router.net.client.terminus import (
    TERMINUS_SECONDS,
    Terms,
    is_moved,
    is_passing,
    keeps_no_state,
    settles_first,
)
from router.routes.route import Guarantee
from router.wire.v1_0.fitting import with_map

Take = Callable[[ReceivedDelivery], DeliveryState]
"""Handles a whole delivery, once, and returns its outcome."""


@attrs.define(eq=False)
class Partial:
    """A delivery of which more is to come."""

    delivery: ReceivedDelivery
    parts: list[bytes]


@attrs.define(eq=False, kw_only=True)
class ReceivingLink:
    """Receives deliveries and settles them with what ``take`` says.

    Attributes:
        address: of the source.
        take: called once per delivery, also when it comes again after a lost connection.
        guarantee: at-most-once asks for settled deliveries; at-least-once settles at once;
            exactly-once tells the outcome, and forgets it when the sender has settled.
        window: deliveries that the sender may be ahead, 1 or more.
        count: deliveries to take; None: without end.
        draw_number: draws the number of each attach.
        kept_seconds: how long the sender is asked to keep the link without a connection.
        report: counts, kept up to date.
        failure: why the link cannot go on, once it cannot.
        interruption: why this connection is of no use any more; another may be.
        is_attached: whether deliveries may come.
        frame_octets: the largest frame that the other end takes; 0: any.
        peer: the container at the other end of the connection.
        moved: the redirect with which the other end has ended the link (§2.8.18).
    """

    name: LinkName
    address: str
    take: Take
    guarantee: Guarantee
    window: int = 100
    count: int | None = None
    draw_number: DrawNumber = no_number
    kept_seconds: int = TERMINUS_SECONDS
    report: Report = attrs.field(factory=Report)
    failure: Condition | None = attrs.field(default=None, init=False)
    interruption: str | None = attrs.field(default=None, init=False)
    is_attached: bool = attrs.field(default=False, init=False)
    frame_octets: int = attrs.field(default=0, init=False)
    peer: ContainerId | None = attrs.field(default=None, init=False)
    moved: Condition | None = attrs.field(default=None, init=False)
    _terms: Terms = attrs.field(init=False)
    _link_ids: Iterator[LinkId] = attrs.field(factory=lambda: iter(()), init=False)
    _link: LinkId = attrs.field(default=LinkId(0), init=False)
    _credit: int = attrs.field(default=0, init=False)
    _is_leaving: bool = attrs.field(default=False, init=False)
    _was_attached: bool = attrs.field(default=False, init=False)
    _met: Met = attrs.field(factory=Met, init=False)
    _sent_map: bool = attrs.field(default=False, init=False)
    _is_cut: bool = attrs.field(default=False, init=False)
    _is_reducing: bool = attrs.field(default=False, init=False)
    _outcomes: dict[DeliveryTag, DeliveryState] = attrs.field(factory=dict, init=False)
    _kept: dict[ContainerId | None, dict[DeliveryTag, DeliveryState]] = attrs.field(
        factory=dict, init=False
    )
    _tags: dict[DeliveryNumber, DeliveryTag] = attrs.field(factory=dict, init=False)
    _expected: set[DeliveryTag] = attrs.field(factory=set, init=False)
    _partial: Partial | None = attrs.field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self._terms = Terms(
            address=self.address,
            name=self.name,
            guarantee=self.guarantee,
            expiry_seconds=self.kept_seconds,
        )

    @property
    def is_done(self) -> bool:
        """Whether all wanted messages were received and are settled, or no more can arrive."""
        if self.failure is not None:
            return True
        return self.count is not None and self._wanted() <= 0 and not self._outcomes

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
        """Handles events of the connection that the link is attached on."""
        commands: list[Command] = []
        for event in events:
            commands += self._take(event)
        return commands + self._grant()

    def pull(self) -> list[Command]:
        """Returns nothing: a receiver speaks when spoken to."""
        return []

    def finish(self) -> list[Command]:
        """Ends the link for good."""
        if not self.is_attached:
            return []
        self.is_attached = False
        self._is_leaving = True
        return [DetachLink(self._link, closed=True)]

    # --- attach and resume ------------------------------------------------------------------------

    def _attach(self) -> list[Command]:
        self._link = next(self._link_ids)
        self._credit = 0
        self._tags.clear()
        self._expected.clear()
        self._partial = None
        self._kept = {container: kept for container, kept in self._kept.items() if kept}
        self._outcomes = self._kept.setdefault(self.peer, {})
        self.is_attached = self._is_cut = self._is_reducing = False
        self._sent_map = self._met.may_resume(self.peer)
        command = AttachLink(
            link=self._link,
            name=self.name,
            role=Role.RECEIVER,
            source=self._terms.source(self.address),
            target=self._terms.target(self.name),
            sender_settle_mode=self._terms.sender_mode,
            receiver_settle_mode=self._terms.receiver_mode,
            properties=properties_of(self.draw_number()),
        )
        return [self._with_map(command) if self._sent_map else command]

    def _with_map(self, command: AttachLink) -> AttachLink:
        """Returns the attach with as much of the unsettled map as fits a frame (§2.6.13)."""
        outcomes = self._outcomes
        command = with_map(command, outcomes.items(), self.frame_octets, is_answer=False)
        self._is_cut = command.incomplete_unsettled
        if self._is_cut:
            for tag in command.unsettled or ():  # the next map begins behind this one
                outcomes[tag] = outcomes.pop(tag)
        return command

    def _begin(self, event: LinkAttached) -> None:
        """Forgets what the sender has settled meanwhile."""
        self.failure = settles_first(self._terms, event.receiver_settle_mode)
        self.is_attached = True
        self._was_attached = True
        self._met.answered(self.peer)
        theirs = event.unsettled or {}
        if not event.incomplete_unsettled:
            for tag in [tag for tag in self._outcomes if tag not in theirs]:
                del self._outcomes[tag]
        self._expected = {tag for tag in self._outcomes if tag in theirs}
        self._is_reducing = self._is_cut or event.incomplete_unsettled
        if event.incomplete_unsettled:
            self._expected = set(self._outcomes)

    def _detached(self, event: LinkDetached) -> list[Command]:
        self.is_attached = False
        if self._sent_map and keeps_no_state(event):
            self._met.keeps_nothing(self.peer)
            return self._attach()
        if self._is_reducing and event.condition is None and not event.closed:
            return self._attach()  # with shorter maps (§2.6.13)
        if is_moved(event):
            self.moved, self.interruption = event.condition, str(event.condition)
        elif self._was_attached and is_passing(event):
            self.interruption = str(event.condition or "the link was detached")
        else:
            self.failure = event.condition or Condition(DETACH_FORCED, NO_REASON)
        return []

    # --- events -----------------------------------------------------------------------------------

    def _take(self, event: Event) -> list[Command]:
        match event:
            case LinkAttached(link=self._link, source=source, is_answer=True):
                if source is not None:
                    self._begin(event)
            case LinkDetached(link=self._link) if not self._is_leaving:
                return self._detached(event)
            case DeliveriesReceived(link=self._link, deliveries=deliveries):
                self._credit -= len(deliveries)
                return self._take_run(deliveries)
            case DeliveryContinued(link=self._link):
                return self._continue(event)
            case DeliveryAborted(link=self._link):
                self._partial = None
            case DeliveriesUpdated(link=self._link, numbers=numbers, settled=True):
                for number in numbers:
                    self._forget(self._tags.pop(number, None))
            case CreditReturned(link=self._link, credit=credit):
                self._credit = credit
            case ConnectionClosed():
                self.is_attached = False
            case _:
                pass
        return []

    def _forget(self, tag: DeliveryTag | None) -> None:
        if tag is not None:
            self._outcomes.pop(tag, None)
            self._expected.discard(tag)

    # --- credit -----------------------------------------------------------------------------------

    def _wanted(self) -> int:
        return self.window if self.count is None else self.count - self.report.received

    def _grant(self) -> list[Command]:
        """Keeps the sender in credit: topped up when half of the window is used."""
        if not self.is_attached or self.failure is not None:
            return []
        begun = self._partial is not None
        wanted = min(self.window, self._wanted() - begun + len(self._expected))
        if self._credit >= wanted or self._credit > self.window // 2:
            return []
        self._credit = wanted
        return [GrantCredit(self._link, wanted)]

    # --- deliveries -------------------------------------------------------------------------------

    def _take_run(self, deliveries: list[ReceivedDelivery]) -> list[Command]:
        commands: list[Command] = []
        for delivery in deliveries:
            if delivery.more:
                self._partial = Partial(delivery, [delivery.payload])
            else:
                self._take_one(delivery, commands)
        return commands

    def _continue(self, event: DeliveryContinued) -> list[Command]:
        partial = self._partial
        if partial is None or partial.delivery.number != event.number:
            return []
        partial.parts.append(event.payload)
        partial.delivery.settled = partial.delivery.settled or event.settled
        if event.more:
            return []
        self._partial = None
        partial.delivery.payload = b"".join(partial.parts)
        commands: list[Command] = []
        self._take_one(partial.delivery, commands)
        return commands

    def _take_one(self, delivery: ReceivedDelivery, commands: list[Command]) -> None:
        if delivery.resume:
            state = self._taken_before(delivery)
        elif self._wanted() <= 0:
            state = RELEASED
        else:
            state = self.take(delivery)
            self.report.received += 1
            self.report.octets += len(delivery.payload)
            self.report.count(state)
        if state is None or delivery.settled:
            return
        second = delivery.settles_second
        if second:
            self._outcomes[delivery.tag] = state
            self._tags[delivery.number] = delivery.tag
        last = commands[-1] if commands else None
        if (
            isinstance(last, UpdateDeliveries)
            and last.state == state
            and last.settled is not second
            and isinstance(last.numbers, list)
        ):
            last.numbers.append(delivery.number)
        else:
            numbers = [delivery.number]
            commands.append(UpdateDeliveries(self._link, numbers, state, settled=not second))

    def _taken_before(self, delivery: ReceivedDelivery) -> DeliveryState | None:
        """Returns what was said of a resumed delivery; None: it is not known, or was settled."""
        state = self._outcomes.get(delivery.tag)
        if state is None:
            return None
        self.report.repeated += 1
        self._expected.discard(delivery.tag)
        if delivery.settled:
            self._forget(delivery.tag)
        if delivery.state is not None and is_outcome(delivery.state):
            return delivery.state  # the sender's word stands (§3.4.6, tag 13)
        return state
