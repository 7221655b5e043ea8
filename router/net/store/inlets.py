"""The links on which the store sends messages to the core.

One *inlet* for each address of a route with messages, and one for its dead letters. An inlet asks
the store for as many messages as the core has granted credit for, and sends them in their order.

    store --MESSAGE--> waiting --credit--> sent --outcome--> gone, waiting again, or a dead letter

    outcome                           the message
    accepted                          is gone
    released                          is sent again, before all behind it, after a pause
    modified, with delivery-failed    likewise, ATTEMPTS times; then it is a dead letter
    rejected, or undeliverable here   is a dead letter
    any, of a dead letter             unless accepted, it is sent again after a pause

Messages that are too old, or were dropped, come as dead letters from the store. Those that become
so while they wait here are dead letters, too.

On exactly-once routes an inlet is a sender that resumes (§2.6.13). A message is settled with the
core when it is gone for good, or waits again; what the core has not seen settled it keeps, with its
outcome if there is one. The store does not write down what was sent, so an attach says that
everything may be unsettled, and the map of the core's answer says what is::

    AttachLink --map--> held --RECALL--> RECALLED: resumed, as sent
                                    '--> GONE:     resumed settled

What is held is sent on no other link. So nothing of an address is sent before the core has answered
for its messages and for its dead letters, and nothing new before what is held was resumed.
"""

import bisect
import struct
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import repeat
from typing import Final, Literal, NamedTuple

import attrs

from router.journal.record import NO_KEY, PROTOCOLS, OutcomeCode
from router.journal.store.asks import Flow, MessageRead, QueueNews, Recall
from router.journal.store.client import StoreClient
from router.journal.store.looking import Sentence
from router.journal.store.place import BEGINNING, Place
from router.journal.store.queues import Claim, RouteKey
from router.journal.store.reading import StoredMessage
from router.journal.store.runs import MessagesRead
from router.model.commands import AttachLink, GrantCredit
from router.model.condition import RESOURCE_DELETED, Condition
from router.model.delivery import ReceivedDelivery
from router.model.events import (
    CreditReturned,
    DeliveriesReceived,
    DeliveriesUpdated,
    Event,
    LinkAttached,
    LinkDetached,
)
from router.model.identity import DeliveryNumber, DeliveryTag, LinkId, LinkName
from router.model.outcome import ACCEPTED, Accepted, DeliveryState, Modified, Rejected
from router.model.terminus import ReceiverSettleMode, Role, SenderSettleMode, Source, Target
from router.net.store.overdue import Overdue

WINDOW: Final = 256
"""Messages of one address that are asked for at once."""

OVERDUE_WINDOW: Final = 64
"""Messages of one route that are too old, or were dropped, and are asked for at once."""

BACKLOG: Final = 1000
"""Dead letters of one route that wait here; while there are more, it is asked for nothing."""

ATTEMPTS: Final = 10
"""How often a message that fails at its target is sent."""

PAUSE_SECONDS: Final = 1.0
PAUSE_LIMIT_SECONDS: Final = 30.0
"""An address whose message came back rests that long; doubled each time until one is accepted."""

TURN_MOST: Final = 500
"""An address with at most so many messages is about to become empty, if its target takes them."""

TURN_SECONDS: Final = 2.0
"""So long the store then takes no more of it; and so recently must the target have accepted."""

TURN_PAUSE_SECONDS: Final = 8.0
"""So long it takes them again if the address did not become empty: its target is slow."""

REFUSED_SECONDS: Final = 5.0
"""Pause before an inlet that was refused is attached again."""

_TTL_MOST: Final = 0xFFFF_FFFF
_TAG: Final = struct.Struct(">Q")
_NANOSECONDS_A_MILLISECOND: Final = 1_000_000


class Name(NamedTuple):
    """Names an inlet."""

    route: RouteKey
    address: bytes
    is_dead: bool

    @property
    def twin(self) -> "Name":
        """Names the inlet of the dead letters, or that whose dead letters these are."""
        return self._replace(is_dead=not self.is_dead)


class AllUnsettled(Mapping[DeliveryTag, DeliveryState | None]):
    """The unsettled map of a sender that does not know what it has sent: it has every tag."""

    def __getitem__(self, tag: DeliveryTag) -> None:
        return None

    def __contains__(self, tag: object) -> bool:
        return True

    def __iter__(self) -> Iterator[DeliveryTag]:
        return iter(())

    def __len__(self) -> int:
        return 1  # it is not empty, whoever asks


class Settling(NamedTuple):
    """A delivery that is settled with the core when a record is durable."""

    sequence: int
    link: LinkId
    number: DeliveryNumber


@attrs.frozen
class Delays:
    """What of a route does not go on by itself just now.

    Attributes:
        dead: dead letters that wait for their target.
        resting: addresses that rest because their target returned or refused something.
        failures: how often one of these has, at most, since it accepted something.
        rests_until: when the first one of them goes on; 0: none rests.
    """

    dead: int = 0
    resting: int = 0
    failures: int = 0
    rests_until: float = 0.0


NO_DELAYS: Final = Delays()


@attrs.define(eq=False)
class Inlet:
    """A link on which messages are sent.

    Attributes:
        name: of the inlet.
        link: the core's name for it.
        is_attached: the core has answered.
        announced: priorities of which the store has messages for it.
        is_expected: the store has accepted messages for it, and has not told of them yet.
        depth: how many it has, for all that is known; never too few when it has none.
        turns_until: until then the store takes no more for it, so that it becomes empty.
        turns_again: not before this time if it did not become empty.
        accepted_at: when a message was accepted last.
        credit: deliveries that may still be sent.
        waiting: messages to be sent, in their order.
        sent: those without an outcome, by number.
        is_exact: its route promises exactly-once: it resumes, and settles second.
        held: what the core has of earlier attachments, by place, until it was resumed; None: it is
            not known whether the store has it, GONE: it has not.
        settling: how many are settled when it is durable that they are gone.
        rests_until: while it rests nothing is sent before that time.
        pauses: how often it has rested since a message was accepted.
        sentence: what somebody has dropped last; what comes back of that is not sent again.
    """

    name: Name
    link: LinkId
    is_attached: bool = False
    announced: set[int] = attrs.field(factory=set)
    is_expected: bool = False
    depth: int = 0
    turns_until: float | None = None
    turns_again: float = 0.0
    accepted_at: float = -TURN_SECONDS
    credit: int = 0
    waiting: list[StoredMessage] = attrs.field(factory=list)
    sent: dict[DeliveryNumber, StoredMessage] = attrs.field(factory=dict)
    is_exact: bool = False
    held: dict[Place, StoredMessage | Literal["gone"] | None] = attrs.field(factory=dict)
    settling: int = 0
    rests_until: float = 0.0
    pauses: int = 0
    sentence: Sentence | None = None

    @property
    def is_idle(self) -> bool:
        """Whether it has, and expects, no message."""
        is_open = self.held or self.settling or (self.is_exact and not self.is_attached)
        is_busy = self.announced or self.is_expected or self.waiting or self.sent
        return not (is_busy or is_open)

    def put_back(self, message: StoredMessage) -> None:
        """Puts a message in its place among those that wait."""
        bisect.insort(self.waiting, message, key=_rank)

    def take_until(self, place: Place) -> list[StoredMessage]:
        """Takes those out that wait and stand no farther than a place."""
        taken = [each for each in self.waiting if each.claim.place <= place]
        self.waiting = [each for each in self.waiting if each.claim.place > place]
        return taken


class Inlets:
    """All links on which messages are sent.

    Attributes:
        going: messages that are gone as soon as their records are durable, with the records.
        dead: how many messages have become dead letters.
        passing: routes whose messages pass the store by if it is empty.
        exact: routes that promise exactly-once.
        turns: how often an address has begun, or ended, to become empty.
        overdue: what makes messages overdue that wait here.
    """

    def __init__(
        self,
        client: StoreClient,
        emit: Callable[[Event], None],
        clock_ns: Callable[[], int],
        link_ids: Iterator[LinkId],
        properties: Callable[[bool], dict[object, object]],
    ) -> None:
        """Begins without a link.

        Args:
            client: asks the store.
            emit: takes events for the core.
            clock_ns: nanoseconds since 1970.
            link_ids: shared with the worker's other engines.
            properties: of an attach; whether it is for dead letters.
        """
        self.going: list[tuple[int, Claim, int]] = []
        self.dead = 0
        self.passing: Collection[RouteKey] = ()
        self.exact: Collection[RouteKey] = ()
        self.turns = 0
        self.overdue = Overdue(clock_ns)
        self._client = client
        self._emit = emit
        self._clock_ns = clock_ns
        self._link_ids = link_ids
        self._properties = properties
        self._by_name: dict[Name, Inlet] = {}
        self._by_link: dict[LinkId, Inlet] = {}
        self._again: dict[Name, float] = {}
        self._asked: dict[tuple[RouteKey, bytes], int] = {}
        self._quiet: dict[Name, tuple[set[int], int]] = {}
        self._backlog: dict[RouteKey, int] = {}
        self._attempts: dict[Place, int] = {}
        self._swept: set[Place] = set()
        self._stirred: dict[Inlet, None] = {}
        self._resting: dict[Inlet, None] = {}
        self._turning: dict[Inlet, None] = {}
        self._met: set[Name] = set()
        self._settling: deque[Settling] = deque()
        self._number = 0

    # The store's side

    def announced(self, news: QueueNews) -> None:
        """Records that the store has messages for an address, or has none any more."""
        name = Name(news.route, news.address, False)
        inlet = self._by_name.get(name)
        if news.messages:
            inlet = self._inlet(name)
            inlet.depth = news.messages + (inlet.depth if inlet.announced else 0)
            inlet.announced.add(news.priority)
            inlet.is_expected = False
            self._stirred[inlet] = None
        elif inlet is not None:
            inlet.announced.discard(news.priority)
            self._close_idle(inlet)
        elif name in self._quiet:
            self._quiet[name][0].discard(news.priority)
            if not self._quiet[name][0]:
                del self._quiet[name]

    def stored(self, route: RouteKey, address: bytes, messages: int) -> None:
        """Records that the store has accepted messages of an address.

        The core learns of the inlet before it learns that they are accepted.
        """
        inlet = self._inlet(Name(route, address, False))
        inlet.depth += messages
        if not inlet.announced:
            inlet.is_expected = True

    def emptied(self, route: RouteKey) -> None:
        """Records that the store has nothing of a route."""
        self._quiet = {name: each for name, each in self._quiet.items() if name.route != route}
        for inlet in [each for each in self._by_name.values() if each.name.route == route]:
            inlet.is_expected = False
            self._close_idle(inlet)

    def is_turning(self, route: RouteKey, address: bytes) -> bool:
        """Returns whether the store should take nothing of an address, to become empty."""
        inlet = self._by_name.get(Name(route, address, False))
        return inlet is not None and inlet.turns_until is not None

    def read(self, answer: MessageRead) -> None:
        """Handles a message that the store has read."""
        message, route = answer.message, answer.route
        name = route, message.address.encode()
        if answer.is_swept:
            self._swept.add(message.claim.place)
        elif not answer.is_recalled:
            left = self._asked.pop(name, 0) - 1
            if left > 0:
                self._asked[name] = left
        inlet = self._inlet(Name(*name, message.is_overdue))
        holder = self._holder(inlet.name, message.claim.place)
        if holder is not None:
            self._hold(holder, message)
            inlet = holder
        elif message.is_overdue:
            self._bury(inlet, message)
        else:
            inlet.put_back(message)
        self._stirred[inlet] = None

    def read_run(self, answer: MessagesRead) -> None:
        """Handles messages of one address that the store has read together."""
        route, messages = answer
        address = messages[0].address.encode()
        inlet = self._inlet(Name(route, address, False))
        twin = self._by_name.get(inlet.name.twin)
        if inlet.held or (twin is not None and twin.held):
            for message in messages:
                self.read(MessageRead(route, message))
            return
        left = self._asked.pop((route, address), 0) - len(messages)
        if left > 0:
            self._asked[route, address] = left
        if not inlet.waiting or _rank(inlet.waiting[-1]) < _rank(messages[0]):
            inlet.waiting += messages
        else:
            for message in messages:
                inlet.put_back(message)
        self._stirred[inlet] = None

    def dropped_oldest(self, route: RouteKey, place: Place) -> None:
        """Records up to where a route has dropped its messages as the oldest."""
        if place > self.overdue.condemned.get(route, BEGINNING):
            self.overdue.condemned[route] = place
            self.bury_overdue(route)

    def bury_overdue(self, route: RouteKey | None = None) -> None:
        """Makes dead letters of what has become overdue here, of a route or of all."""
        for inlet in self._chosen(route, None):
            if self._bury_late(inlet):
                self._close_idle(inlet)

    def _bury_late(self, inlet: Inlet) -> bool:
        """Makes dead letters of what waits and is overdue; returns whether there was any."""
        if inlet.name.is_dead or not inlet.waiting:
            return False
        inlet.waiting, late = self.overdue.among(inlet.name.route, inlet.waiting)
        for message in late:
            self._attempts.pop(message.claim.place, None)
            self._bury(self._inlet(inlet.name.twin), message)
        return bool(late)

    def is_gone(self, place: Place) -> None:
        """Records that the store does not have a message that was recalled."""
        for inlet in self._by_name.values():
            if place in inlet.held and inlet.held[place] is None:
                inlet.held[place] = "gone"
                self._stirred[inlet] = None

    # What somebody decides

    def drop(self, sentence: Sentence) -> None:
        """Handles that somebody has dropped messages, some of which may be here."""
        for inlet in self._chosen(sentence.route, sentence.address):
            inlet.sentence = sentence
            self._drop_waiting(inlet, sentence)
            self._close_idle(inlet)

    def _drop_waiting(self, inlet: Inlet, sentence: Sentence) -> None:
        for message in inlet.take_until(sentence.place):
            stays = self._drop(inlet, message, sentence)
            if stays is not None:
                inlet.put_back(stays)

    def _drop(
        self, inlet: Inlet, message: StoredMessage, sentence: Sentence
    ) -> StoredMessage | None:
        """Forgets a message, or makes a dead letter of it, for good; returns it if it was one."""
        self._attempts.pop(message.claim.place, None)
        if sentence.forgets:
            if inlet.name.is_dead:
                self._unbury(message, inlet.name.route)
            return None
        dropped = message._replace(is_overdue=True)
        if inlet.name.is_dead:
            return dropped
        self._bury(self._inlet(inlet.name.twin), dropped)
        return None

    def replay(self, route: RouteKey | None, address: bytes | None) -> tuple[int, int]:
        """Tries at once what rests, and sends dead letters to their target again.

        Dead letters that are too old, or were dropped, stay such.

        Args:
            route: of the messages; None: any.
            address: of the messages; None: any.

        Returns:
            How many addresses rested, and how many dead letters were revived.
        """
        resting = revived = 0
        for inlet in self._chosen(route, address):
            inlet.pauses = 0
            if inlet in self._resting:
                del self._resting[inlet]
                resting += 1
                self._stirred[inlet] = None
            if inlet.name.is_dead:
                revived += self._revive(inlet)
        return resting, revived

    def _revive(self, inlet: Inlet) -> int:
        messages = [each for each in inlet.waiting if not each.is_overdue]
        inlet.waiting = [each for each in inlet.waiting if each.is_overdue]
        if messages:
            living = self._inlet(inlet.name._replace(is_dead=False))
            for message in messages:
                self._unbury(message, inlet.name.route)
                living.put_back(message)
            self._stirred[living] = None
            self._close_idle(inlet)
        return len(messages)

    def _chosen(self, route: RouteKey | None, address: bytes | None) -> list[Inlet]:
        return [
            inlet
            for name, inlet in self._by_name.items()
            if route in (None, name.route) and address in (None, name.address)
        ]

    # The core's side

    def owns(self, link: LinkId) -> bool:
        """Returns whether a link is one of these."""
        return link in self._by_link

    def attached(self, command: AttachLink) -> None:
        """Records the core's answer to an attach."""
        inlet = self._by_link[command.link]
        inlet.is_attached = True
        if inlet.is_exact:
            places = [Place(int.from_bytes(tag, "big")) for tag in command.unsettled or {}]
            self._meet(inlet, places)

    def ended(self, link: LinkId, now: float, refusal: Condition | None = None) -> None:
        """Records that the core has refused or ended a link; what is left is sent on another.

        Args:
            link: one of these.
            now: the time.
            refusal: why it was refused; None: it was attached.
        """
        inlet = self._by_link.pop(link)
        self._forget(inlet)
        held = [each for each in inlet.held.values() if isinstance(each, StoredMessage)]
        messages = sorted([*inlet.waiting, *inlet.sent.values(), *held], key=_rank)
        self._again[inlet.name] = now + REFUSED_SECONDS
        if refusal is not None and refusal.name == RESOURCE_DELETED:  # nothing was kept there
            self._met.add(inlet.name)
            self._stir_both(inlet.name)
        is_unmet = inlet.is_exact and inlet.name not in self._met
        if messages or inlet.announced or inlet.is_expected or is_unmet:
            following = self._inlet(inlet.name)
            following.waiting, following.announced = messages, inlet.announced
            following.is_expected, following.depth = inlet.is_expected, inlet.depth
            following.sentence = inlet.sentence
            if inlet.sentence is not None:
                self._drop_waiting(following, inlet.sentence)
                self._close_idle(following)

    def granted(self, command: GrantCredit) -> None:
        """Handles credit from the core, or that it wants it back."""
        inlet = self._by_link[command.link]
        inlet.credit = command.credit
        self._stirred[inlet] = None
        if command.drain:
            inlet.credit = 0
            self._emit(CreditReturned(inlet.link, 0))

    def updated(
        self,
        link: LinkId,
        numbers: Sequence[DeliveryNumber],
        state: DeliveryState | None,
        now: float,
        *,
        settled: bool,
    ) -> None:
        """Handles the outcome of messages; if they are not settled yet, they are when it lasts."""
        inlet = self._by_link[link]
        if settled and isinstance(state, Accepted) and not self._attempts:
            known = [each for each in numbers if each in inlet.sent]
            self._all_accepted(inlet, [inlet.sent.pop(each) for each in known], now)
            return
        back: list[DeliveryNumber] = []
        for number in numbers:
            message = inlet.sent.pop(number, None)
            if message is None:
                continue
            sequence = self._ended(inlet, message, state, now)
            if not settled and sequence is not None:
                self._settling.append(Settling(sequence, link, number))
                inlet.settling += 1
            elif not settled:
                back.append(number)
        if back:
            self._emit(DeliveriesUpdated(link, back, state, True))
        self._stirred[inlet] = None
        self._close_idle(inlet)

    def _all_accepted(self, inlet: Inlet, messages: list[StoredMessage], now: float) -> None:
        """Handles messages that were accepted; as ``_ended`` does, for a run of them."""
        if messages:
            inlet.pauses = 0
            inlet.accepted_at = now
            outcome = OutcomeCode.REJECTED if inlet.name.is_dead else OutcomeCode.ACCEPTED
            self.forward_run([each.claim for each in messages], outcome)
            self._left(inlet, messages)
        self._stirred[inlet] = None
        self._close_idle(inlet)

    def review(self, now: float) -> None:
        """Sends and asks for what there is credit for; attaches what has rested enough."""
        for name, at in list(self._again.items()):
            if at <= now:
                del self._again[name]
                if name in self._by_name:
                    self._attach(self._by_name[name])
        for inlet in [each for each in self._resting if each.rests_until <= now]:
            del self._resting[inlet]
            self._stirred[inlet] = None
        stirred, self._stirred = self._stirred, {}
        for inlet in tuple(self._turning):
            if inlet.turns_until is not None and inlet.turns_until <= now:
                self._end_turn(inlet)
                inlet.turns_again = now + TURN_PAUSE_SECONDS
        for inlet in stirred:
            self._begin_turn(inlet, now)
            if inlet.credit > 0 and inlet.held:
                self._resume(inlet)
            may_send = not inlet.is_exact or (not inlet.held and self._is_clear(inlet.name))
            if inlet.credit > 0 and inlet not in self._resting and may_send:
                self._bury_late(inlet)
                self._send(inlet)
                self._ask(inlet)
                self._close_idle(inlet)

    @property
    def is_stirred(self) -> bool:
        """Whether ``review`` has something to do now."""
        return bool(self._stirred)

    def deadline(self) -> float | None:
        """Returns when ``review`` has something to do by time; None: never."""
        due = [*self._again.values(), *(inlet.rests_until for inlet in self._resting)]
        due += [inlet.turns_until for inlet in self._turning if inlet.turns_until is not None]
        return min(due, default=None)

    def delays(self) -> dict[RouteKey, Delays]:
        """Returns what does not go on by itself, of all routes of which something does not."""
        found = {route: Delays(dead) for route, dead in self._backlog.items() if dead}
        for inlet in self._resting:
            known = found.get(inlet.name.route, NO_DELAYS)
            found[inlet.name.route] = Delays(
                known.dead,
                known.resting + 1,
                max(known.failures, inlet.pauses),
                min(known.rests_until or inlet.rests_until, inlet.rests_until),
            )
        return found

    # Deliveries that are resumed

    def _meet(self, inlet: Inlet, places: Sequence[Place]) -> None:
        """Finds out what became of messages that the core has of earlier attachments."""
        self._met.add(inlet.name)
        going = {claim.place for _, claim, _ in self.going}
        inlet.held = dict.fromkeys(places)
        for place in places:
            if place in going:
                inlet.held[place] = "gone"  # the core's outcome has been written down
            elif not self._take_held(inlet, place):
                self._client.ask(Recall(inlet.name.route, place))
        self._stir_both(inlet.name)
        self._close_idle(inlet)

    def _take_held(self, inlet: Inlet, place: Place) -> bool:
        """Takes a message that is here, and that the core has, out of those that wait."""
        for other in (inlet, self._by_name.get(inlet.name.twin)):
            for message in () if other is None else other.waiting:
                if other is not None and message.claim.place == place:
                    other.waiting.remove(message)
                    if other.name.is_dead:
                        self._backlog[other.name.route] -= 1
                    self._hold(inlet, message)
                    return True
        return False

    def _hold(self, inlet: Inlet, message: StoredMessage) -> None:
        """Keeps a message until it is resumed."""
        if inlet.name.is_dead:
            self._backlog[inlet.name.route] = self._backlog.get(inlet.name.route, 0) + 1
        inlet.held[message.claim.place] = message

    def _holder(self, name: Name, place: Place) -> Inlet | None:
        """Returns the inlet on which a message must be resumed; None: on none."""
        for each in (name, name.twin):
            inlet = self._by_name.get(each)
            if inlet is not None and place in inlet.held:
                return inlet
        return None

    def _is_clear(self, name: Name) -> bool:
        """Returns whether the core has said what it has of an address and its dead letters."""
        for each in (name, name.twin):
            inlet = self._by_name.get(each)
            if not (each in self._met if inlet is None else inlet.is_attached):
                return False
        return True

    def _stir_both(self, name: Name) -> None:
        for each in (name, name.twin):
            if each in self._by_name:
                self._stirred[self._by_name[each]] = None

    def _resume(self, inlet: Inlet) -> None:
        """Resumes what is held, as far as it is known what became of it."""
        deliveries = []
        for place, message in tuple(inlet.held.items()):
            if message is None or not inlet.credit:
                continue
            is_gone = not isinstance(message, StoredMessage)
            if is_gone and self._is_going(place):
                continue
            del inlet.held[place]
            inlet.credit -= 1
            self._number += 1
            number = DeliveryNumber(self._number)
            if isinstance(message, StoredMessage):
                inlet.sent[number] = message
            tag = DeliveryTag(place.to_bytes(8, "big"))
            deliveries.append(ReceivedDelivery(number, tag, b"", settled=is_gone, resume=True))
        if deliveries:
            self._emit(DeliveriesReceived(inlet.link, deliveries))

    def _is_going(self, place: Place) -> bool:
        """Returns whether it is not durable yet that a message is gone."""
        return any(claim.place == place for _, claim, _ in self.going)

    # Inside

    def _begin_turn(self, inlet: Inlet, now: float) -> None:
        """Lets an address become empty that nearly is, if its target takes what it is sent."""
        name = inlet.name
        if name.is_dead or name.route not in self.passing or inlet.turns_until is not None:
            return
        if self._by_name.get(name) is not inlet or inlet.depth > TURN_MOST:
            return
        is_taken = now - inlet.accepted_at < TURN_SECONDS and not inlet.pauses
        if is_taken and now >= inlet.turns_again:
            inlet.turns_until = now + TURN_SECONDS
            self._turning[inlet] = None
            self.turns += 1

    def _end_turn(self, inlet: Inlet) -> None:
        if self._turning.pop(inlet, inlet) is None:
            inlet.turns_until = None
            self.turns += 1

    def _inlet(self, name: Name) -> Inlet:
        inlet = self._by_name.get(name)
        if inlet is None:
            inlet = self._by_name[name] = Inlet(name, next(self._link_ids))
            inlet.is_exact = name.route in self.exact
            if name in self._quiet:
                inlet.announced, inlet.depth = self._quiet.pop(name)
            if name not in self._again:
                self._attach(inlet)
            if inlet.is_exact and name.twin not in self._met:
                self._inlet(name.twin)
        return inlet

    def _attach(self, inlet: Inlet) -> None:
        self._by_link[inlet.link] = inlet
        address = inlet.name.address.decode()
        letter = "!" if inlet.name.is_dead else ""
        self._emit(
            LinkAttached(
                link=inlet.link,
                name=LinkName(f"{inlet.name.route:016x}{letter}:{address}"),
                role=Role.RECEIVER,
                is_answer=False,
                source=Source(address=address),
                target=Target(address=address),
                sender_settle_mode=SenderSettleMode.UNSETTLED,
                receiver_settle_mode=ReceiverSettleMode(int(inlet.is_exact)),
                unsettled=AllUnsettled() if inlet.is_exact else None,
                properties=self._properties(inlet.name.is_dead),
            )
        )

    def _close_idle(self, inlet: Inlet) -> None:
        is_quiet = self._is_quiet(inlet)
        if (inlet.is_idle or is_quiet) and self._by_name.get(inlet.name) is inlet:
            self._forget(inlet)
            if is_quiet:
                self._quiet[inlet.name] = inlet.announced, inlet.depth
            if self._by_link.pop(inlet.link, None) is not None:
                self._emit(LinkDetached(inlet.link, True))

    def _is_quiet(self, inlet: Inlet) -> bool:
        """Returns whether all that the store has of an address are dead letters that wait.

        Nobody waits for these, so the inlet ends. What the store was asked for and may still read
        makes it begin again, and so does what is stored later.
        """
        name = inlet.name
        dead = self._by_name.get(name._replace(is_dead=True))
        if name.is_dead or dead is None or not inlet.announced or inlet.is_expected:
            return False
        count = len(dead.waiting) + len(dead.sent)
        is_asked = self._asked.get((name.route, name.address), 0) > 0
        is_busy = inlet.waiting or inlet.sent or inlet.held or inlet.settling
        is_met = inlet.is_attached or not inlet.is_exact
        return is_asked and 0 < count >= inlet.depth and is_met and not is_busy

    def _forget(self, inlet: Inlet) -> None:
        del self._by_name[inlet.name]
        self._stirred.pop(inlet, None)
        self._resting.pop(inlet, None)
        self._end_turn(inlet)

    def _send(self, inlet: Inlet) -> None:
        run, inlet.waiting = inlet.waiting[: inlet.credit], inlet.waiting[inlet.credit :]
        if not run:
            return
        inlet.credit -= len(run)
        numbers = [DeliveryNumber(self._number + each) for each in range(1, len(run) + 1)]
        self._number += len(run)
        inlet.sent.update(zip(numbers, run, strict=True))
        is_dead = inlet.name.is_dead
        pairs = zip(numbers, run, strict=True)
        deliveries = [self._delivery(number, each, is_dead) for number, each in pairs]
        self._emit(DeliveriesReceived(inlet.link, deliveries))

    def _delivery(
        self, number: DeliveryNumber, message: StoredMessage, is_dead: bool
    ) -> ReceivedDelivery:
        place = message.claim.place
        made = ReceivedDelivery(
            number,
            DeliveryTag(_TAG.pack(place)),
            message.payload,
            PROTOCOLS[message.protocol],
            message.message_format,
        )
        ends_ns = message.ttl_ends_ns
        if ends_ns is not None and not is_dead:
            left = (ends_ns - self._clock_ns()) // _NANOSECONDS_A_MILLISECOND
            made.ttl_milliseconds = min(max(1, left), _TTL_MOST)
        made.delivery_count = message.delivery_count + self._attempts.get(place, 0)
        if message.key != NO_KEY:
            made.key = message.key
        return made

    def _ask(self, inlet: Inlet) -> None:
        route, address, is_dead = inlet.name
        if is_dead or not inlet.announced or self._backlog.get(route, 0) > BACKLOG:
            return
        asked = self._asked.get((route, address), 0)
        more = min(inlet.credit, WINDOW) - asked - len(inlet.waiting)
        if more > 0 and (not asked or more >= WINDOW // 8):
            self._asked[route, address] = asked + more
            self._client.ask(Flow(route, address, more))

    def _ended(
        self, inlet: Inlet, message: StoredMessage, state: DeliveryState | None, now: float
    ) -> int | None:
        """Handles the outcome of one message.

        Returns:
            The number of the record that says that it is gone; None: it is not.
        """
        place, is_dead = message.claim.place, inlet.name.is_dead
        if state is None or isinstance(state, Accepted):
            inlet.pauses = 0
            inlet.accepted_at = now
            self._attempts.pop(place, None)
            return self._gone(inlet, message)
        sentence = inlet.sentence
        if sentence is not None and place <= sentence.place:
            stays = self._drop(inlet, message, sentence)
            if stays is None:
                return None
            message = stays
        if isinstance(state, Modified) and state.delivery_failed:
            self._attempts[place] = self._attempts.get(place, 0) + 1
        fails = isinstance(state, Rejected) or (
            isinstance(state, Modified)
            and (state.undeliverable_here or self._attempts.get(place, 0) >= ATTEMPTS)
        )
        if fails and not is_dead:
            self._attempts.pop(place, None)
            self._bury(self._inlet(inlet.name._replace(is_dead=True)), message)
            return None
        if message.is_overdue and not is_dead:  # it was the core's while it became too old
            self._bury(self._inlet(inlet.name.twin), message)
            return None
        inlet.put_back(message)
        if inlet not in self._resting:
            pause = PAUSE_SECONDS * 2.0 ** min(inlet.pauses, 16)
            inlet.rests_until = now + min(pause, PAUSE_LIMIT_SECONDS)
            inlet.pauses += 1
            self._resting[inlet] = None
            self._end_turn(inlet)
        return None

    def _bury(self, inlet: Inlet, message: StoredMessage) -> None:
        route = inlet.name.route
        self.dead += 1
        self._backlog[route] = self._backlog.get(route, 0) + 1
        inlet.put_back(message)
        self._stirred[inlet] = None

    def _gone(self, inlet: Inlet, message: StoredMessage) -> int:
        """Records that a message has arrived, at its target or at the dead letters'."""
        outcome = OutcomeCode.REJECTED if inlet.name.is_dead else OutcomeCode.ACCEPTED
        sequence = self.forward(message.claim, outcome)
        self._left(inlet, (message,))
        return sequence

    def _left(self, inlet: Inlet, messages: Sequence[StoredMessage]) -> None:
        """Counts messages of an inlet that have arrived."""
        route, is_dead = inlet.name.route, inlet.name.is_dead
        name = inlet.name._replace(is_dead=False)
        alive = self._by_name.get(name)
        if alive is not None:
            alive.depth -= len(messages)
        elif name in self._quiet:
            self._quiet[name] = self._quiet[name][0], self._quiet[name][1] - len(messages)
        if is_dead:
            for message in messages:
                self._unbury(message, route)
        elif self._swept:
            for message in messages:
                self._was_swept(message, route)

    def _unbury(self, message: StoredMessage, route: RouteKey) -> None:
        """Records that a message is no dead letter any more."""
        self._backlog[route] -= 1
        if self._backlog[route] == BACKLOG:  # the route was asked for nothing meanwhile
            self._stirred.update(
                (each, None) for each in self._by_link.values() if each.name.route == route
            )
        self._was_swept(message, route)

    def _was_swept(self, message: StoredMessage, route: RouteKey) -> None:
        """Asks for another overdue message, if one of these has ended."""
        if message.claim.place in self._swept:
            self._swept.discard(message.claim.place)
            self._client.ask(Flow(route, None, 1))

    def forward(self, claim: Claim, outcome: int) -> int:
        """Has the store forget a message; returns the number of the record."""
        return self.forward_run((claim,), outcome)

    def forward_run(self, claims: Sequence[Claim], outcome: int) -> int:
        """Has the store forget messages; returns the number of the last record."""
        last = self._client.records.forwarded(self._clock_ns(), claims, outcome)
        first = last + 1 - len(claims)
        self.going += zip(range(first, last + 1), claims, repeat(outcome), strict=False)
        return last

    def durable(self, sequence: int) -> None:
        """Records up to which record everything is durable."""
        count = bisect.bisect_right(self.going, sequence, key=lambda each: each[0])
        del self.going[:count]
        settled: dict[LinkId, list[DeliveryNumber]] = {}
        while self._settling and self._settling[0].sequence <= sequence:
            _, link, number = self._settling.popleft()
            settled.setdefault(link, []).append(number)
        for link, numbers in settled.items():
            inlet = self._by_link.get(link)
            if inlet is not None:
                inlet.settling -= len(numbers)
                self._emit(DeliveriesUpdated(link, numbers, ACCEPTED, True))
                self._close_idle(inlet)
        if count:
            self._stirred.update((each, None) for each in self._by_link.values() if each.held)


def _rank(message: StoredMessage) -> tuple[int, Place]:
    """Returns what messages of an address are sorted by: first in first out of each priority."""
    return -message.priority, message.claim.place
