"""A receiving link that sends outcomes only on request, and is resumed after a crash.

Theory of operation. A received delivery is *held*: first in ``arrivals``, then, once the reader has
taken it, in the reader's log under a sequence number. ``accept`` sends the outcome of deliveries
that Spark has committed. States of a held delivery:

    state       means                                     told in our unsettled map as
    held        no outcome was said                       null
    accepted    Spark has committed it                    accepted
    forgotten   the peer has settled too, or never will   -

After a lost connection or a new start the maps are compared (§2.6.13): what the peer does not have,
it has settled: forgotten. Another container that is found in its place (§2.6.1) is offered no map,
and is a peer that has forgotten the link. What it has comes again, marked as resumed, and is known
by its tag: its payload is not taken twice.

A peer that settles first (``at-least-once``) is told nothing and asked for nothing: it brings again
what it did not hear settled. With ``dedupe`` a message whose id is known is not taken again: the
outcome of the first one is its own. Ids outlive their deliveries, and this process
(``settled_ids``).

Two threads meet here, the reader's and the connection's; one lock covers everything.
"""

import itertools
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence

import attrs

from router.links.attaches import DrawNumber, no_number, properties_of
from router.model.commands import (
    AttachLink,
    Command,
    DetachLink,
    GrantCredit,
    UpdateDeliveries,
)
from router.model.condition import DETACH_FORCED, NO_REASON, NOT_FOUND, Condition
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
from router.model.outcome import ACCEPTED, RELEASED, DeliveryState
from router.model.terminus import ReceiverSettleMode, Role, Source
from router.net.client.report import Report
from router.net.client.terminus import Terms, is_passing, lacks_durability, settles_first
from router.pipeline.amqp.messages import Arrived, message_id_of
from router.pipeline.amqp.settled_ids import IDS_MOST
from router.pipeline.amqp.wal import Kept
from router.routes.route import Guarantee
from router.wire.v1_0.fitting import with_map


@attrs.define(eq=False)
class Held:
    """A delivery that was received and is not settled.

    Attributes:
        sequence: number in the log; 0: the reader has not taken it yet.
        number: delivery number on the current attachment; None: it has not been resumed yet.
        is_accepted: the outcome is decided.
        message_id: with its type, with ``dedupe``.
        is_gone: the peer no longer has it.
    """

    tag: DeliveryTag
    sequence: int = 0
    number: DeliveryNumber | None = None
    is_accepted: bool = False
    message_id: str | None = None
    is_gone: bool = False


@attrs.define(eq=False, kw_only=True)
class HoldingLink:
    """Receives deliveries and keeps them unsettled until told otherwise.

    Attributes:
        address: of the source.
        guarantee: exactly-once asks the peer to keep state; at-least-once does not.
        window: deliveries that may wait in ``arrivals``, 1 or more.
        dedupe: a message whose id is known is not taken again.
        draw_number: draws the number of each attach.
        on_forgotten: told the sequence numbers of what the peer has settled.
        gives_back: releases instead of accepting.
        most: total number of deliveries to request; None: unlimited.
        report: counters of the link.
        failure: why the link has failed for good; None: it has not.
        interruption: why this connection cannot be used any more; another one may work.
        frame_octets: the largest frame that the peer accepts; 0: any.
        peer: the container at the other end of the connection.
        moved: None: a redirect of the link is an end like others.
    """

    name: LinkName
    address: str
    guarantee: Guarantee
    window: int
    link_seconds: int = 300
    dedupe: bool = False
    gives_back: bool = False
    most: int | None = None
    draw_number: DrawNumber = no_number
    on_forgotten: Callable[[Iterable[int]], None] = lambda sequences: None
    report: Report = attrs.field(factory=Report)
    failure: Condition | None = attrs.field(default=None, init=False)
    interruption: str | None = attrs.field(default=None, init=False)
    frame_octets: int = attrs.field(default=0, init=False)
    peer: ContainerId | None = attrs.field(default=None, init=False)
    moved: Condition | None = attrs.field(default=None, init=False)
    is_attached: bool = attrs.field(default=False, init=False)
    was_attached: bool = attrs.field(default=False, init=False)
    news: threading.Event = attrs.field(factory=threading.Event, init=False)
    _lock: threading.RLock = attrs.field(factory=threading.RLock, init=False)
    _held: dict[DeliveryTag, Held] = attrs.field(factory=dict, init=False)
    _numbered: dict[DeliveryNumber, Held] = attrs.field(factory=dict, init=False)
    _arrivals: deque[tuple[Held | None, Arrived]] = attrs.field(factory=deque, init=False)
    _orders: list[DeliveryNumber] = attrs.field(factory=list, init=False)
    _ids: OrderedDict[str, int] = attrs.field(factory=OrderedDict, init=False)
    _accepted_through: int = attrs.field(default=0, init=False)
    _twins: dict[str, list[Held]] = attrs.field(factory=dict, init=False)
    _link_ids: Iterator[LinkId] = attrs.field(factory=lambda: iter(()), init=False)
    _link: LinkId = attrs.field(default=LinkId(0), init=False)
    _credit: int = attrs.field(default=0, init=False)
    _is_second: bool = attrs.field(default=False, init=False)
    _returns: list[DeliveryNumber] = attrs.field(factory=list, init=False)
    _is_draining: bool = attrs.field(default=False, init=False)
    _is_drain_said: bool = attrs.field(default=False, init=False)
    _is_drained: bool = attrs.field(default=False, init=False)
    _is_leaving: bool = attrs.field(default=False, init=False)
    _is_reducing: bool = attrs.field(default=False, init=False)
    _is_shortened: bool = attrs.field(default=False, init=False)
    _partial: tuple[ReceivedDelivery, list[bytes]] | None = attrs.field(default=None, init=False)
    _met: ContainerId | None = attrs.field(default=None, init=False)

    # --- what the reader calls --------------------------------------------------------------------

    def remember(self, kept: Iterable[Kept]) -> None:
        """Restores the deliveries in an earlier life's log; call it before the first connection."""
        for each in kept:
            tag = DeliveryTag(each.tag)
            held = Held(tag, each.sequence, None, each.is_committed, each.message_id)
            self._held[tag] = held

    def recognize(self, ids: Iterable[tuple[int, str]], through: int) -> None:
        """Takes in which ids were taken in earlier lives, and up to which number are accepted."""
        self._ids.update((message_id, sequence) for sequence, message_id in ids)
        self._accepted_through = through

    def wait(self, seconds: float) -> bool:
        """Waits for a delivery or the link's failure; returns whether either happened in time."""
        until = time.monotonic() + seconds
        while not self._arrivals and self.failure is None:
            left = until - time.monotonic()
            if left <= 0:
                return False
            self.news.wait(left)
            self.news.clear()
        return bool(self._arrivals)

    @property
    def waiting(self) -> int:
        """Number of deliveries that the reader has not taken."""
        return len(self._arrivals)

    @property
    def unsettled(self) -> int:
        """Number of deliveries that the peer has not settled, as far as is known."""
        return len(self._held)

    @property
    def settling(self) -> int:
        """Number of deliveries that were accepted and are not settled yet."""
        with self._lock:
            return sum(held.is_accepted for held in self._held.values())

    def take(self, most: int, most_octets: int, first_sequence: int) -> list[Arrived]:
        """Takes deliveries, which get the sequence numbers from ``first_sequence`` on."""
        taken: list[Arrived] = []
        octets = 0
        with self._lock:
            while self._arrivals and len(taken) < most and octets < most_octets:
                held, arrived = self._arrivals.popleft()
                octets += len(arrived.payload)
                sequence = first_sequence + len(taken)
                taken.append(arrived)
                if held is not None:
                    held.sequence = sequence
                    if held.message_id is not None:
                        self._ids[held.message_id] = sequence
                if held is None or held.is_gone:
                    self.on_forgotten([sequence])  # it came settled, or was settled meanwhile
        return taken

    def drain(self) -> None:
        """Drains the link, and grants no more credit after that (§2.6.7)."""
        self._is_draining = True

    @property
    def is_drained(self) -> bool:
        """Whether no more deliveries can arrive after ``drain``."""
        return self._is_drained

    def give_rest_back(self) -> None:
        """Releases deliveries that were not taken, so that the peer learns their outcome."""
        with self._lock:
            for held, _ in self._arrivals:
                if held is not None and held.number is not None:
                    self._returns.append(held.number)
            self._arrivals.clear()

    def accept(self, through: int) -> None:
        """Accepts everything up to a sequence number."""
        forgotten: list[int] = []
        with self._lock:
            self._accepted_through = max(self._accepted_through, through)
            for held in tuple(self._held.values()):
                if 0 < held.sequence <= through and not held.is_accepted:
                    held.is_accepted = True
                    if held.number is not None:
                        self._orders.append(held.number)
                    elif self.guarantee is not Guarantee.EXACTLY_ONCE:
                        self._drop(held, forgotten)
            for message_id in tuple(self._twins):
                if 0 < self._ids.get(message_id, through) <= through:
                    for twin in self._twins.pop(message_id):
                        self._accept_twin(twin)
        self.on_forgotten(forgotten)

    # --- what the conversation calls --------------------------------------------------------------

    @property
    def is_done(self) -> bool:
        """Whether no more deliveries can arrive."""
        return self.failure is not None

    def attach(self, link_ids: Iterator[LinkId]) -> list[Command]:
        """Attaches the link on a connection that has just opened."""
        forgotten: list[int] = []
        with self._lock:
            self._link_ids = link_ids
            self.interruption = None
            self._is_shortened = self._is_reducing = False
            self._link = next(link_ids)
            self._credit = 0
            self._numbered.clear()
            self._orders.clear()
            self._returns.clear()
            self._partial = None
            self._is_drain_said = False
            self.is_attached = False
            self._leave_behind(forgotten)
            terms = self._terms
            attach = AttachLink(
                link=self._link,
                name=self.name,
                role=Role.RECEIVER,
                source=self._source(terms),
                target=terms.target(self.name),
                sender_settle_mode=terms.sender_mode,
                receiver_settle_mode=terms.receiver_mode,
                properties=properties_of(self.draw_number()),
            )
            if self.guarantee is Guarantee.EXACTLY_ONCE and not self._is_another:
                attach = self._with_map(attach)
        self.on_forgotten(forgotten)
        return [attach]

    def handle(self, events: Sequence[Event]) -> list[Command]:
        """Handles events of the connection that the link is attached on."""
        forgotten: list[int] = []
        with self._lock:
            for event in events:
                self._take(event, forgotten)
            commands = self._speak(forgotten)
        self.on_forgotten(forgotten)
        if self._is_shortened:
            commands = self.attach(self._link_ids)
        if self._arrivals or self.failure is not None or self.is_attached:
            self.news.set()
        return commands

    def pull(self) -> list[Command]:
        """Returns outcomes and credit that have become due."""
        forgotten: list[int] = []
        with self._lock:
            commands = self._speak(forgotten)
        self.on_forgotten(forgotten)
        return commands

    def finish(self) -> list[Command]:
        """Ends the link for good."""
        if not self.is_attached:
            return []
        self.is_attached = False
        self._is_leaving = True
        return [DetachLink(self._link, closed=True)]

    # --- inside -----------------------------------------------------------------------------------

    @property
    def _is_another(self) -> bool:
        """Whether the peer is another container than the one that sent what is held."""
        return self._met not in (None, self.peer)

    def _with_map(self, attach: AttachLink) -> AttachLink:
        """Returns the attach with as much of the unsettled map as fits a frame (§2.6.13)."""
        entries = [
            (tag, ACCEPTED if held.is_accepted else None) for tag, held in self._held.items()
        ]
        attach = with_map(attach, entries, self.frame_octets, is_answer=False)
        self._is_reducing = attach.incomplete_unsettled
        if self._is_reducing:
            for tag in attach.unsettled or ():  # the next map begins after these
                self._held[tag] = self._held.pop(tag)
        return attach

    def _source(self, terms: Terms) -> Source:
        """Returns the source to ask for; to browse, copies are preferred (§3.5.3).

        A broker that gives copies leaves the messages where they are; any other peer answers
        ``move``, or nothing, and ``released`` returns them.
        """
        source = terms.source(self.address)
        return attrs.evolve(source, distribution_mode="copy") if self.gives_back else source

    @property
    def _terms(self) -> Terms:
        return Terms(
            address=self.address,
            name=self.name,
            guarantee=self.guarantee,
            expiry_seconds=self.link_seconds,
        )

    def _leave_behind(self, forgotten: list[int]) -> None:
        """Lets go what belonged to the connection before: numbers, and messages known by their ids.

        Those come again. So does, from a peer that is not asked to keep state, all that the reader
        has not taken; and what it has accepted there is over, whether the peer has heard it or not.
        """
        for twin in itertools.chain.from_iterable(self._twins.values()):
            if self._held.get(twin.tag) is twin:
                del self._held[twin.tag]
        self._twins.clear()
        if self.guarantee is not Guarantee.EXACTLY_ONCE:
            kept = [each for each in self._arrivals if each[0] is None]
            for held, _ in self._arrivals:
                if held is not None and held.message_id is not None:
                    self._ids.pop(held.message_id, None)
            self._arrivals = deque(kept)
            for held in tuple(self._held.values()):
                if held.is_accepted or not held.sequence:
                    self._drop(held, forgotten)
        for held in self._held.values():
            held.number = None

    def _speak(self, forgotten: list[int]) -> list[Command]:
        """Sends the outcomes that are due, and replenishes credit."""
        if not self.is_attached or self.failure is not None:
            return []
        commands: list[Command] = []
        for numbers, outcome in (
            (self._orders, RELEASED if self.gives_back else ACCEPTED),
            (self._returns, RELEASED),
        ):
            if numbers:
                commands.append(self._say(tuple(numbers), outcome, forgotten))
                numbers.clear()
        if self._is_draining:
            if not self._credit and self._partial is None:
                self._is_drained = True
            elif not self._is_drain_said:
                self._is_drain_said = True
                commands.append(GrantCredit(self._link, self._credit, drain=True))
            return commands
        wanted = self._wanted()
        if self._credit < wanted and self._credit <= self.window // 2:
            self._credit = wanted
            commands.append(GrantCredit(self._link, wanted))
        return commands

    def _say(
        self, numbers: Sequence[DeliveryNumber], outcome: DeliveryState, forgotten: list[int]
    ) -> Command:
        if not self._is_second:
            for number in numbers:
                held = self._numbered.pop(number, None)
                if held is not None:
                    self._drop(held, forgotten)
        return UpdateDeliveries(self._link, numbers, outcome, settled=not self._is_second)

    def _wanted(self) -> int:
        """Returns how much credit the peer should have."""
        begun = self._partial is not None
        wanted = self.window - len(self._arrivals) - begun
        if self.most is not None:
            wanted = min(wanted, self.most - self.report.received - begun)
        return max(0, wanted) + sum(1 for held in self._held.values() if held.number is None)

    def _drop(self, held: Held, forgotten: list[int]) -> None:
        """Forgets a delivery that the peer has settled."""
        if self._held.get(held.tag) is held:
            del self._held[held.tag]
        held.is_gone = True
        if held.sequence:
            forgotten.append(held.sequence)
        if held.message_id is not None:
            while len(self._ids) > IDS_MOST:
                self._ids.popitem(last=False)

    def _take(self, event: Event, forgotten: list[int]) -> None:
        match event:
            case LinkAttached(link=self._link, source=source, is_answer=True):
                if source is not None:
                    self._begin(event, forgotten)
            case LinkDetached(link=self._link) if not self._is_leaving:
                self._detached(event)
            case DeliveriesReceived(link=self._link, deliveries=deliveries):
                self._credit -= len(deliveries)
                for delivery in deliveries:
                    if delivery.more:
                        self._partial = (delivery, [delivery.payload])
                    else:
                        self._come(delivery, delivery.payload, forgotten)
            case DeliveryContinued(link=self._link):
                self._continue(event, forgotten)
            case DeliveryAborted(link=self._link):
                self._partial = None
            case DeliveriesUpdated(link=self._link, numbers=numbers, settled=True):
                for number in numbers:
                    held = self._numbered.pop(number, None)
                    if held is not None:
                        self._drop(held, forgotten)
            case CreditReturned(link=self._link, credit=credit):
                self._credit = credit
            case ConnectionClosed():
                self.is_attached = False
            case _:
                pass

    def _begin(self, event: LinkAttached, forgotten: list[int]) -> None:
        """Compares the peer's map with ours (§2.6.13)."""
        self.failure = settles_first(self._terms, event.receiver_settle_mode)
        self.failure = self.failure or lacks_durability(self._terms, event.source)
        if self.failure is not None:
            return
        self._is_second = event.receiver_settle_mode is ReceiverSettleMode.SECOND
        theirs = None if self._is_another else event.unsettled
        if self.guarantee is Guarantee.EXACTLY_ONCE and theirs is None and self._held:
            if not self.dedupe or any(held.message_id is None for held in self._held.values()):
                self.failure = Condition(NOT_FOUND, self._why_forgotten())
                return
            theirs = {}
        if theirs is not None and not event.incomplete_unsettled:
            for tag, held in tuple(self._held.items()):
                if tag not in theirs:
                    self._drop(held, forgotten)
        self._met = self.peer
        self.is_attached = self.was_attached = True
        self._is_reducing = self._is_reducing or event.incomplete_unsettled

    def _why_forgotten(self) -> str:
        """Says what the peer does not know, and how to go on."""
        count, again = len(self._held), "deliveries that may come again"
        if self._is_another:
            said = (
                f"{self.peer} answers where {self._met} was, and the link is one with {self._met}:"
                f" {count} {again} could not be told from new ones. Start the query again when"
                f" {self._met} is back; if it stays away,"
            )
        else:
            said = (
                f"the peer has forgotten the link: {count} {again} could not be told from new ones."
                " To go on,"
            )
        return (
            f"{said} start the query with the option dedupe, if every message has an id, or with"
            " deliveryGuarantee at-least-once, until nothing is unsettled (both with this walDir)"
        )

    def _detached(self, event: LinkDetached) -> None:
        self.is_attached = False
        if self._is_reducing and event.condition is None and not event.closed:
            self._is_shortened = True  # the peer waits for shorter maps
        elif self.was_attached and is_passing(event):
            self.interruption = str(event.condition or "the link was detached")
        else:
            self.failure = event.condition or Condition(DETACH_FORCED, NO_REASON)

    def _continue(self, event: DeliveryContinued, forgotten: list[int]) -> None:
        if self._partial is None or self._partial[0].number != event.number:
            return
        delivery, parts = self._partial
        parts.append(event.payload)
        delivery.settled = delivery.settled or event.settled
        if not event.more:
            self._partial = None
            self._come(delivery, b"".join(parts), forgotten)

    def _come(self, delivery: ReceivedDelivery, payload: bytes, forgotten: list[int]) -> None:
        """Handles a whole delivery."""
        held = self._held.get(delivery.tag)
        if delivery.resume:
            if held is None:
                return  # §2.6.13: what is resumed and not known is ignored
            self.report.repeated += 1
            self._know(held, delivery, forgotten)
            return
        if held is not None:
            self._drop(held, forgotten)  # the peer has forgotten it, and uses its tag again
        message_id = message_id_of(payload) if self.dedupe else None
        new = Held(delivery.tag, 0, None, False, message_id)
        if message_id is not None and self._is_known(message_id, new, delivery):
            self.report.repeated += 1
            return
        arrived = Arrived(delivery.tag, payload, time.time_ns() // 1000)
        self._arrivals.append((None if delivery.settled else new, arrived))
        self.report.received += 1
        self.report.octets += len(payload)
        if message_id is not None:
            self._ids[message_id] = 0
        if not delivery.settled:
            self._held[delivery.tag] = new
            self._know(new, delivery, forgotten)

    def _know(self, held: Held, delivery: ReceivedDelivery, forgotten: list[int]) -> None:
        """Records the delivery number that a held delivery now has."""
        if delivery.settled:
            self._drop(held, forgotten)
            return
        held.number = delivery.number
        self._numbered[delivery.number] = held
        if held.is_accepted:
            self._orders.append(delivery.number)

    def _is_known(self, message_id: str, new: Held, delivery: ReceivedDelivery) -> bool:
        """Returns whether a message was received before; it then gets the first one's outcome."""
        sequence = self._ids.get(message_id)
        if sequence is None:
            return False
        if not delivery.settled:
            new.number = delivery.number
            self._numbered[delivery.number] = new
            self._held[delivery.tag] = new
            if 0 < sequence <= self._accepted_through:
                self._accept_twin(new)
            else:
                self._twins.setdefault(message_id, []).append(new)
        return True

    def _accept_twin(self, twin: Held) -> None:
        if twin.is_gone:
            return
        twin.is_accepted = True
        if twin.number is not None:
            self._orders.append(twin.number)
