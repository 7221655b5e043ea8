"""The engine of a connection to the message store's process.

To the core it is a container that takes messages of stored routes (``shelves``) and sends them on
(``inlets``); over the socket it is the client of the store's log. A connection that is lost takes
with it what had not been said to be durable: messages on their way to the disk are sent to the next
connection again, and may then be stored twice; what had been forwarded is said again over the next
connection, so it is not read again.

    state      the client's                        the core sees
    GREETING   has said HELLO                      nothing
    OPEN       was let in                          nothing yet
               was told of all queues              an open connection
    CLOSED     refused, or ended by either side    the end

The connection opens when the store has told what it has, of all routes, also of those that the file
has not. With it an inlet is attached for each address, so from then on the core takes silence for
an answer (``core.held``). Fences say when all has been told: asks that are answered behind all that
was asked before. The first one follows the survey of the routes, the second one what the engine
asks because of that.

Events that a command causes are returned by the next call that returns events; ``deadline`` lies in
the past as long as any is pending.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Final

import attrs

from router.journal.client import ClientState, JournalReplyError
from router.journal.keys import NO_LINK
from router.journal.record import RecordError
from router.journal.store.asks import (
    AskUnsettled,
    Bound,
    Flow,
    Gone,
    Halted,
    MessageRead,
    QueueNews,
    Reads,
    RouteNews,
    Survey,
    UnreadableNews,
    UnsettledKeys,
)
from router.journal.store.client import StoreClient
from router.journal.store.looking import Sentence
from router.journal.store.queues import UNBOUNDED, Bounds, RouteKey
from router.journal.store.references import RunReader, RunReference
from router.journal.store.runs import MessagesRead
from router.model.capabilities import Capabilities, Protocol
from router.model.commands import (
    AttachLink,
    CloseConnection,
    Command,
    DetachLink,
    GrantCredit,
    RefuseLink,
    SendDeliveries,
    UpdateDeliveries,
)
from router.model.condition import INTERNAL_ERROR, Condition
from router.model.events import ConnectionClosed, ConnectionOpened, Event
from router.model.identity import ContainerId, LinkId
from router.model.outcome import is_outcome
from router.net.store.burials import Deaths
from router.net.store.inlets import OVERDUE_WINDOW, Inlets
from router.net.store.lane import LaneSession
from router.net.store.pace import Paces
from router.net.store.patience import Patience
from router.net.store.shelves import Shelves
from router.net.store.unfinished import NOTHING, Unfinished
from router.wire.carrier import Carried
from router.wire.v1_0.express import Express

SURVEY_SECONDS: Final = 2.0
"""How old what is known of the routes' depth becomes."""

_LONG_AGO: Final = 0.0

_FENCE: Final = AskUnsettled(NO_LINK)
"""It asks for nothing; its answer follows those to all asks before it."""


def _nowhere(address: str) -> bool:
    return False


CONTAINER: Final = "message-store"
"""The store's container-id, behind that of the router; the audit knows the store by it."""

CAPABILITIES: Final = Capabilities(protocol=Protocol.AMQP_1_0, settles_second=True, drains=True)
"""Of the store: it takes whole messages of any protocol as they came."""


class StoreEngine:
    """One connection to the message store.

    Attributes:
        held: what the store has said last of each route that holds messages or is bounded.
        paces: how fast these are stored and forwarded.
        shelves: the links on which it takes messages.
        inlets: the links on which it sends them.
        lane: these as the express lane sees them; None: there is none.
    """

    carried: Carried | None = None
    input_waits = False
    waiting_octets = 0

    def __init__(
        self,
        client: StoreClient,
        *,
        link_ids: Iterator[LinkId],
        clock_ns: Callable[[], int],
        stored_property: str,
        dead_property: str,
        unfinished: Unfinished = NOTHING,
        express: Express | None = None,
        reader: RunReader | None = None,
        deaths: Deaths | None = None,
    ) -> None:
        """Begins before the HELLO is sent.

        Args:
            client: without a connection yet.
            link_ids: shared with the worker's other engines.
            clock_ns: nanoseconds since 1970.
            stored_property: property of the core's attaches, the name of a route.
            dead_property: property of an attach that brings dead letters.
            unfinished: what an earlier connection has left open.
            express: the worker's express lane; None: it has none.
            reader: reads runs out of the files of the log; None: they come over the socket.
            deaths: what earlier connections have counted; None: nothing.
        """
        self.held: dict[RouteKey, RouteNews] = {}
        self.unreadable: str | None = None
        self.paces = Paces()
        self.finished = False
        self._client = client
        self._events: list[Event] = []
        self._now = 0.0
        self._durable_sequence = 0
        self._survey_at: float | None = None
        self._fences = 2  # that are still to be answered
        self._stored_property = stored_property
        self._bounds: dict[RouteKey, Bounds] = {}
        self._others: Collection[RouteKey] = ()
        self._read: set[RouteKey] = set()
        self._patience = Patience()
        self._sent_sequence = 0
        self._reader = reader
        self.lane = None if express is None else LaneSession(express, self)
        self.inlets = Inlets(
            client,
            self._events.append,
            clock_ns,
            link_ids,
            lambda is_dead: {dead_property: True} if is_dead else {},
            lane=self.lane,
            reader=reader,
            deaths=deaths,
        )
        self.shelves = Shelves(client, self._events.append, clock_ns, self.inlets)
        client.connection_made()
        self._unmet = unfinished.unmet
        for claim, outcome in unfinished.going:
            self.inlets.leaving.forward((claim,), outcome, None)

    @property
    def unfinished(self) -> Unfinished:
        """What is open, for a connection that follows this one."""
        self._flush_lane()
        return Unfinished(self.inlets.leaving.going, {*self._unmet, *self.inlets.links.open()})

    @property
    def trouble(self) -> str | None:
        """Why the store cannot write; None: it can."""
        return self._client.disk_trouble

    @property
    def incarnation(self) -> int:
        """Of the client, which moves on if the clock was set back."""
        return self._client.records.incarnation

    def follow(
        self,
        bounds: Mapping[RouteKey, Bounds],
        others: Collection[RouteKey],
        passing: Collection[RouteKey] = (),
        exact: Collection[RouteKey] = (),
        *,
        is_exact_at: Callable[[str], bool] = _nowhere,
    ) -> None:
        """Serves other routes from now on.

        Args:
            bounds: of the routes that store messages.
            others: routes that store none, and whose messages are forwarded if there are any.
            passing: those of ``bounds`` whose messages pass the store by if it is empty.
            exact: routes that promise exactly-once.
            is_exact_at: whether the route of an address does.
        """
        self.inlets.turns.passing = passing
        self.inlets.links.know({*bounds, *others}, exact, is_exact_at)
        self.inlets.dropping.overdue.bounds = dict(bounds)
        dropped = {key: UNBOUNDED for key in self._bounds if key not in bounds}
        changed = {key: each for key, each in bounds.items() if self._bounds.get(key) != each}
        self._bounds, self._others = dict(bounds), others
        self.shelves.bound(self._bounds)
        if self._client.state is ClientState.OPEN:
            self._say_bounds({**dropped, **changed})
            self._client.ask(Survey())

    # The face of an engine

    @property
    def deadline(self) -> float | None:
        """When ``handle_deadline`` is due; None: never."""
        is_due = self._told or self.inlets.is_stirred or self._patience.is_untimed
        if is_due or (self.lane is not None and self.lane.is_kept_away):
            return _LONG_AGO
        due = (
            self._survey_at,
            self._patience.until,
            self.inlets.deadline(),
            self.shelves.deadline,
        )
        return min((each for each in due if each is not None), default=None)

    @property
    def output_octets(self) -> int:
        """Octets of records that are to be sent."""
        return self._client.unsent_octets

    def receive_data(self, octets: bytes | memoryview, now: float) -> list[Event]:
        """Handles replies and answers of the store."""
        self._begin(now)
        try:
            durable = self._client.receive_data(octets)
        except JournalReplyError as error:
            return self._end(str(error))
        if self._client.state is ClientState.REFUSED:
            refusal = self._client.refusal
            return self._end("" if refusal is None else refusal.name.lower())
        if self._survey_at is None and self._client.state is ClientState.OPEN:
            self._begin_work(now)
        try:
            while self._client.answers:
                self._durable(self._client.known.popleft())  # news of a route count all of that
                self._answered(self._client.answers.popleft())
        except RecordError as error:
            return self._end(str(error))
        self._durable(durable)
        return self._take_events(now)

    def receive_eof(self, now: float) -> list[Event]:
        """Records that the process has ended."""
        if self.finished:
            return []
        return self._end("the process of the message store has closed the connection")

    def peer_left(self) -> None:
        """Never called: input does not wait."""

    def execute(self, command: Command) -> None:
        """Carries out a command; others than these mean nothing here."""
        match command:
            case SendDeliveries(link=link, deliveries=deliveries):
                self.shelves.store(link, deliveries, self._now)
            case UpdateDeliveries(link=link, numbers=numbers, state=state, settled=settled):
                if not self.inlets.owns(link):
                    if settled:
                        self.shelves.settled(link, numbers)
                elif settled or is_outcome(state):
                    self.inlets.outcomes.updated(link, numbers, state, self._now, settled=settled)
            case GrantCredit(link=link):
                if self.inlets.owns(link):
                    self.inlets.granted(command)
            case AttachLink(link=link, properties=properties):
                route = properties.get(self._stored_property)
                if self.inlets.owns(link):
                    self.inlets.attached(command)
                elif isinstance(route, str):
                    self.shelves.attach(command, route)
            case RefuseLink(link=link) | DetachLink(link=link):
                if not self.shelves.detach(link) and self.inlets.owns(link):
                    self._flush_lane()
                    is_refused = isinstance(command, RefuseLink)
                    reason = command.condition if is_refused else None
                    self.inlets.ended(link, self._now, reason)
            case CloseConnection():
                self._finish()
            case _:
                pass

    def data_to_send(self) -> memoryview:
        """Returns octets to send, perhaps not all; empty if there are none."""
        held = self._held
        if self._must_follow(held):
            self.inlets.outcomes.follow_lane(self._now)
            self.inlets.review(self._now)
            held = self._held
        return memoryview(b"") if self._holds(held) else self._client.data_to_send()

    def bytes_sent(self, count: int) -> None:
        """Removes the first ``count`` octets returned by ``data_to_send``."""
        self._client.bytes_sent(count)

    def handle_deadline(self, now: float) -> list[Event]:
        """Returns pending events, and does what is due."""
        self._patience.look(now)
        self._begin(now)
        if self._survey_at is not None and self._survey_at <= now:
            self._survey_at = now + SURVEY_SECONDS
            self.held = {key: each for key, each in self.held.items() if key in self._bounds}
            self.paces.keep(self.held)
            self.inlets.dropping.recall_stale()
            self.inlets.dropping.bury_overdue()
            if self._reader is not None:
                self._reader.rest()
            self._client.ask(Survey())
        return self._take_events(now)

    # Inside

    @property
    def _told(self) -> list[Event]:
        """What the core is told next; nothing before the connection opens."""
        return [] if self._fences else self._events

    def _must_follow(self, held: int) -> bool:
        """Returns whether what the lane has for the inlets does not wait for more of its kind."""
        if self.lane is None:
            return False
        return self.lane.has_notes or (not held and self.lane.unnoted > 0)

    @property
    def _held(self) -> int:
        """How many messages are gone of which nobody is told before there are more.

        0: there are none, or something else is to be sent.
        """
        client, leaving = self._client, self.inlets.leaving
        records = client.appended_sequence - self._sent_sequence
        if records != leaving.unhurried or not client.owes_records_only:
            return 0
        unnoted = 0 if self.lane is None else self.lane.unnoted
        return 0 if self._patience.is_over else leaving.unhurried_messages + unnoted

    def _holds(self, held: int) -> bool:
        """Returns whether there is nothing to send but what may wait for more of its kind."""
        if self._patience.holds(held):
            return True
        self.inlets.leaving.hurry()
        self._sent_sequence = self._client.appended_sequence
        return False

    def _durable(self, sequence: int) -> None:
        """Handles that all records up to one are durable, if that is news."""
        if sequence > self._durable_sequence:
            self._durable_sequence = sequence
            self.shelves.durable(sequence)
            for route, messages in self.inlets.outcomes.durable(sequence).items():
                self.shelves.gone(route, messages)

    def _begin(self, now: float) -> None:
        """Begins a call that returns events."""
        self._now = now
        if self.lane is not None:
            if not self._events:  # the core was told of all others
                self.lane.go_on()
            self.inlets.outcomes.follow_lane(now)

    def _flush_lane(self) -> None:
        if self.lane is not None:
            self.lane.flush()
            self.inlets.outcomes.follow_lane(self._now)

    def _finish(self) -> None:
        self._flush_lane()
        self.finished = True
        if self.lane is not None:
            self.lane.close()

    def _take_events(self, now: float) -> list[Event]:
        self._review(now)
        events = self._told[:]
        if events:
            self._events.clear()
        return events

    def _review(self, now: float) -> None:
        if not self.finished and self._survey_at is not None:
            self.inlets.review(now)
            self.shelves.review(now)

    def _begin_work(self, now: float) -> None:
        """The client was let in: asks what the store has."""
        self._survey_at = now + SURVEY_SECONDS
        if self._reader is not None and self._reader.is_able:
            self._client.ask(Reads())
        self._say_bounds(self._bounds)
        self._client.ask(Survey())
        self._client.ask(_FENCE)
        self.inlets.links.meet(self._unmet)
        self._unmet = ()

    def _pass_fence(self) -> None:
        """Opens the connection if all has been told."""
        self._fences -= 1
        if self._fences:
            self._client.ask(_FENCE)
            return
        container = ContainerId(f"{self._client.router}/{CONTAINER}")
        capabilities = attrs.evolve(CAPABILITIES, express=self.lane is not None)
        self._events.insert(0, ConnectionOpened(container=container, capabilities=capabilities))

    def _say_bounds(self, bounds: Mapping[RouteKey, Bounds]) -> None:
        for route, each in bounds.items():
            self._begin_reading(route)
            self._client.ask(Bound(route, each))  # answered when the route's queues were told

    def _begin_reading(self, route: RouteKey) -> None:
        if route not in self._read:
            self._read.add(route)
            self._client.ask(Flow(route, None, OVERDUE_WINDOW))

    def _answered(self, answer: object) -> None:
        match answer:
            case QueueNews():
                self.inlets.announced(answer)
            case MessagesRead():
                self.inlets.read_run(answer)
            case RunReference():
                self.inlets.referred(answer)
            case Halted(route=route, address=address):
                self.inlets.fetching.halted(route, address)
            case MessageRead():
                self.inlets.read(answer)
            case Gone(place=place):
                self.inlets.resuming.is_gone(place)
            case UnsettledKeys(link=link) if link == _FENCE.link:
                self._pass_fence()
            case UnsettledKeys():
                self.shelves.told(answer)
            case Sentence():
                self.inlets.dropping.drop(answer)
            case UnreadableNews(words=words):
                self.unreadable = words or None
            case RouteNews(route=route):
                is_left = not self.inlets.links.knows(route)
                if answer.messages or not is_left:
                    self.held[route] = answer
                self.inlets.dropping.dropped_oldest(route, answer.condemned)
                self.paces.note(answer, self._now)
                if not answer.messages:
                    self.inlets.links.emptied(route)
                self.shelves.heard(answer)
                if is_left and answer.messages and route not in self._read:
                    self._say_bounds({route: UNBOUNDED})
                if route in self._others:
                    self._begin_reading(route)
                self.shelves.known(route)
            case _:
                pass

    def _end(self, reason: str) -> list[Event]:
        self._finish()
        condition = Condition(INTERNAL_ERROR, reason)
        events = [*self._told, ConnectionClosed(condition, by_peer=True)]
        self._events.clear()
        return events
