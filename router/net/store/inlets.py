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

Messages of a route that is not in the file any more, because it has another name now, are sent as
the route of their address says, before those of the route that has the address now.

Messages that are too old, or were dropped, come as dead letters from the store. Those that become
so while they wait here are dead letters, too.

The rooms beside this one: ``inlet``, what is known of one link; ``resuming``, what the core has of
earlier attachments; ``burials``, dead letters; ``leaving``, what is gone when that is durable;
``turns``, addresses that become empty; ``overdue``, what becomes too old here.

On exactly-once routes an inlet is a sender that resumes (§2.6.13). A message is settled with the
core when it is gone for good, or waits again; what the core has not seen settled it keeps, with its
outcome if there is one (``resuming``).
"""

import bisect
import struct
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Final

from router.errors import RouterError
from router.journal.record import NO_KEY, PROTOCOLS, OutcomeCode
from router.journal.store.asks import (
    Back,
    Flow,
    Halt,
    MessageRead,
    QueueNews,
    Reads,
    Return,
)
from router.journal.store.client import StoreClient
from router.journal.store.looking import Sentence
from router.journal.store.place import BEGINNING, Place
from router.journal.store.queues import UNBOUNDED, Claim, RouteKey
from router.journal.store.reading import StoredMessage
from router.journal.store.references import RunReader, RunReference
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
from router.model.serial import MASK
from router.model.terminus import ReceiverSettleMode, Role, SenderSettleMode, Source, Target
from router.net.store.burials import Burials, Cause, Deaths
from router.net.store.inlet import (
    NO_DELAYS,
    AllUnsettled,
    Delays,
    Inlet,
    Name,
    Roll,
    rank,
)
from router.net.store.lane import LaneSession
from router.net.store.leaving import Leaving
from router.net.store.lending import Lending
from router.net.store.overdue import Overdue
from router.net.store.resuming import Resuming
from router.net.store.turns import Turns

WINDOW: Final = 512
"""Messages of one address that are asked for at once."""

OVERDUE_WINDOW: Final = 64
"""Messages of one route that are too old, or were dropped, and are asked for at once."""

ATTEMPTS: Final = 10
"""How often a message that fails at its target is sent."""

PAUSE_SECONDS: Final = 1.0
PAUSE_LIMIT_SECONDS: Final = 30.0
"""An address whose message came back rests that long; doubled each time until one is accepted."""

REFUSED_SECONDS: Final = 5.0
"""Pause before an inlet that was refused is attached again."""

_TTL_MOST: Final = 0xFFFF_FFFF
_TAG: Final = struct.Struct(">Q")
_NANOSECONDS_A_MILLISECOND: Final = 1_000_000


class Inlets:
    """All links on which messages are sent.

    Attributes:
        exact: routes that promise exactly-once.
        is_exact_at: whether the route of an address does.
        turns: addresses that are about to become empty.
        overdue: what makes messages overdue that wait here.
        leaving: messages that are gone as soon as their records are durable.
        burials: dead letters that wait.
        resuming: what the core has of earlier attachments.
    """

    def __init__(
        self,
        client: StoreClient,
        emit: Callable[[Event], None],
        clock_ns: Callable[[], int],
        link_ids: Iterator[LinkId],
        properties: Callable[[bool], dict[object, object]],
        *,
        lane: LaneSession | None = None,
        reader: RunReader | None = None,
        deaths: Deaths | None = None,
    ) -> None:
        """Begins without a link.

        Args:
            client: asks the store.
            emit: takes events for the core.
            clock_ns: nanoseconds since 1970.
            link_ids: shared with the worker's other engines.
            properties: of an attach; whether it is for dead letters.
            lane: brings what it can; None: the core is told of everything.
            reader: reads what comes by reference; None: nothing does.
            deaths: what earlier connections have counted; None: nothing.
        """
        self.exact: Collection[RouteKey] = ()
        self.is_exact_at: Callable[[str], bool] = lambda address: False
        self._known: Collection[RouteKey] = ()
        self._older: Counter[bytes] = Counter()
        self.turns = Turns()
        self.overdue = Overdue(clock_ns)
        self.leaving = Leaving(client, clock_ns)
        self._roll = Roll()
        self.burials = Burials(client, self._roll, {} if deaths is None else deaths)
        self.resuming = Resuming(client, self._roll, self.leaving, self.burials)
        self._lending = Lending()
        self._client = client
        self._emit = emit
        self._clock_ns = clock_ns
        self._link_ids = link_ids
        self._properties = properties
        self._lane = lane
        self._reader = reader
        self._halting: set[tuple[RouteKey, bytes]] = set()
        self._again: dict[Name, float] = {}
        self._asked: dict[tuple[RouteKey, bytes], int] = {}
        self._quiet: dict[Name, tuple[set[int], int]] = {}
        self._attempts: dict[Place, int] = {}
        self._resting: dict[Inlet, None] = {}
        self._number = 0

    def know(self, routes: Collection[RouteKey]) -> None:
        """Records which routes the file has; messages of others go before theirs."""
        self._known = routes
        self._older = Counter(
            inlet.name.address for inlet in self._roll.by_name.values() if self._is_older(inlet)
        )
        for inlet in self._roll.by_link.values():
            self._roll.stir(inlet)

    def knows(self, route: RouteKey) -> bool:
        """Returns whether the file has a route."""
        return route in self._known

    def _is_older(self, inlet: Inlet) -> bool:
        return not (inlet.name.is_dead or self.knows(inlet.name.route))

    # The store's side

    def announced(self, news: QueueNews) -> None:
        """Records that the store has messages for an address, or has none any more."""
        name = Name(news.route, news.address, False)
        inlet = self._roll.by_name.get(name)
        if news.messages:
            inlet = self._inlet(name)
            inlet.depth = news.messages + (inlet.depth if inlet.announced else 0)
            inlet.announced.add(news.priority)
            inlet.is_expected = False
            if len(inlet.announced) > 1:
                self._recall(inlet)
            self._roll.stir(inlet)
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

    def await_elders(self, route: RouteKey, address: bytes, messages: int) -> None:
        """Sends nothing of an address before messages that are being stored, and go first."""
        inlet = self._roll.by_name.get(Name(route, address, False))
        if inlet is not None:
            inlet.elders += messages

    def emptied(self, route: RouteKey) -> None:
        """Records that the store has nothing of a route."""
        self._quiet = {name: each for name, each in self._quiet.items() if name.route != route}
        for inlet in [each for each in self._roll.by_name.values() if each.name.route == route]:
            inlet.is_expected = False
            self._close_idle(inlet)

    def is_turning(self, route: RouteKey, address: bytes) -> bool:
        """Returns whether the store should take nothing of an address, to become empty."""
        inlet = self._roll.by_name.get(Name(route, address, False))
        return inlet is not None and inlet.turns_until is not None

    def read(self, answer: MessageRead) -> None:
        """Handles a message that the store has read."""
        message, route = answer.message, answer.route
        name = route, message.address.encode()
        if answer.is_swept:
            self.burials.sweep(message.claim.place)
        elif not answer.is_recalled:
            left = self._asked.pop(name, 0) - 1
            if left > 0:
                self._asked[name] = left
            if name in self._halting:
                self._client.ask(Back(message.claim))
                return
        if (alive := self._roll.by_name.get(Name(*name, False))) is not None and alive.elders:
            alive.has_read((message,))
        inlet = self._inlet(Name(*name, message.is_overdue))
        holder = self.resuming.holder(inlet.name, message.claim.place)
        if holder is not None:
            self.resuming.hold(holder, message)
            inlet = holder
        elif message.is_overdue:
            self.burials.bury(inlet, message, self._cause(route, message))
            if (living := self._roll.by_name.get(inlet.name.twin)) is not None:
                self._roll.stir(living)  # it may ask for another one instead
        else:
            inlet.put_back(message)
        self._roll.stir(inlet)

    def referred(self, answer: RunReference) -> None:
        """Handles that messages of one address stand in the files of the log.

        They are read when they can be sent, or at once. If that fails the store reads them, and all
        that it has answered behind them: these, too, go back to it, and until it has said that
        nothing else comes nothing is asked for.
        """
        name = answer.route, answer.address
        if name in self._halting:
            self._give_back(answer)
            return
        inlet = self._inlet(Name(*name, False))
        if self._lending.may_have(inlet):
            self._count_answered(name, answer.messages)
            self._lending.add(inlet, answer)
            self._roll.stir(inlet)
        elif (run := self._read_reference(inlet, answer)) is not None:
            self.read_run(run)

    def _read_reference(self, inlet: Inlet, reference: RunReference) -> MessagesRead | None:
        """Reads messages; None: that fails, and all that the store has lent goes back to it."""
        try:
            if self._reader is not None:
                return self._reader.run(reference)
        except (RouterError, OSError):
            if not self._reads_files:
                self._client.ask(Reads(is_able=False))
        self._halt(inlet)
        self._recall(inlet)
        if self._reads_files:  # the store itself is to read these, message by message
            for place in reference.places:
                self._client.ask(Back(Claim(place, reference.queue, 0)))
        else:
            self._give_back(reference)
        return None

    @property
    def _reads_files(self) -> bool:
        return self._reader is not None and self._reader.is_able

    def _halt(self, inlet: Inlet) -> None:
        """Has the store answer nothing more that it was asked for of an address."""
        route, address, _ = inlet.name
        if (route, address) not in self._halting:
            self._client.ask(Halt(route, address))
            self._halting.add((route, address))

    def _recall(self, inlet: Inlet, gone: Place = BEGINNING) -> None:
        """Gives back what is lent to an inlet, except for what is gone, which stands up to there.

        What the store was asked for and has not answered goes back to it, too.
        """
        lent, (route, address, is_dead) = self._lending.recall(inlet), inlet.name
        if lent or (not is_dead and self._asked.get((route, address), 0) > WINDOW):
            self._halt(inlet)
        for each in lent:
            self._give_back(each.rest(), gone)

    def _give_back(self, reference: RunReference, gone: Place = BEGINNING) -> None:
        positions = reference.positions_behind(gone)
        if positions:
            self._client.ask(Return(reference.segment, reference.queue, positions))

    def _count_answered(self, name: tuple[RouteKey, bytes], messages: int) -> None:
        left = self._asked.pop(name, 0) - messages
        if left > 0:
            self._asked[name] = left

    def halted(self, route: RouteKey, address: bytes) -> None:
        """Records that nothing comes any more of an address that was asked for."""
        self._halting.discard((route, address))
        self._asked.pop((route, address), None)
        for is_dead in (False, True):
            inlet = self._roll.by_name.get(Name(route, address, is_dead))
            if inlet is not None:
                self._roll.stir(inlet)

    def read_run(self, answer: MessagesRead) -> None:
        """Handles messages of one address that the store has read together."""
        route, address = answer.route, answer.address
        inlet = self._inlet(Name(route, address, False))
        twin = self._roll.by_name.get(inlet.name.twin)
        if inlet.held or (twin is not None and twin.held):
            for message in answer.messages:
                self.read(MessageRead(route, message))
            return
        self._count_answered((route, address), len(answer))
        self._roll.stir(inlet)
        self._handle_run(inlet, answer)

    def _handle_run(self, inlet: Inlet, answer: MessagesRead) -> None:
        """Has the lane send messages that were read, or keeps them as those that wait."""
        if inlet.elders:
            inlet.has_read(answer.messages)
        brought = self._bring(inlet, answer)
        messages = answer.messages[brought:] if brought < len(answer) else []
        if not messages:
            return
        if not inlet.waiting or rank(inlet.waiting[-1]) < rank(messages[0]):
            inlet.waiting += messages
        else:
            for message in messages:
                inlet.put_back(message)

    def _bring(self, inlet: Inlet, run: MessagesRead) -> int:
        """Has the express lane send a run, as far as it can; returns how many it has taken."""
        if (
            self._lane is None
            or inlet.state is None
            or inlet.elders
            or inlet in self._resting
            or (inlet.waiting and rank(inlet.waiting[0]) < run.last_rank)
            or (inlet.sentence is not None and run.place(0) <= inlet.sentence.place)
            or not self.overdue.are_early(inlet.name.route, run)
        ):
            return 0
        return self._lane.bring(inlet, run)

    def dropped_oldest(self, route: RouteKey, place: Place) -> None:
        """Records up to where a route has dropped its messages as the oldest."""
        if place > self.overdue.condemned.get(route, BEGINNING):
            self.overdue.condemned[route] = place
            for inlet in self._roll.chosen(route, None):
                first = self._lending.first(inlet)
                if first is not None and first <= place:
                    self._recall(inlet)
            self.bury_overdue(route)

    def recall_stale(self) -> None:
        """Gives back what waits here for long, so that the store finds out what becomes too old."""
        for inlet in self._lending.stale():
            if self.overdue.bounds.get(inlet.name.route, UNBOUNDED).age_ns is not None:
                self._recall(inlet)

    def bury_overdue(self, route: RouteKey | None = None) -> None:
        """Makes dead letters of what has become overdue here, of a route or of all."""
        for inlet in self._roll.chosen(route, None):
            if self._bury_late(inlet):
                self._close_idle(inlet)

    def _bury_late(self, inlet: Inlet) -> bool:
        """Makes dead letters of what waits and is overdue; returns whether there was any."""
        if inlet.name.is_dead or not inlet.waiting:
            return False
        inlet.waiting, late = self.overdue.among(inlet.name.route, inlet.waiting)
        for message in late:
            self._attempts.pop(message.claim.place, None)
            cause = self._cause(inlet.name.route, message)
            self.burials.bury(self._inlet(inlet.name.twin), message, cause)
        return bool(late)

    def _cause(self, route: RouteKey, message: StoredMessage) -> Cause:
        """Returns why a message is overdue."""
        return Cause.EXPIRED if self.overdue.is_late(route, message) else Cause.DROPPED

    # What somebody decides

    def drop(self, sentence: Sentence) -> None:
        """Handles that somebody has dropped messages, some of which may be here."""
        for inlet in self._roll.chosen(sentence.route, sentence.address):
            inlet.sentence, inlet.elders = sentence, 0
            self._recall(inlet, gone=sentence.place if sentence.forgets else BEGINNING)
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
                self.burials.unbury(message, inlet.name.route)
            return None
        dropped = message._replace(is_overdue=True)
        if inlet.name.is_dead:
            return dropped
        self.burials.bury(self._inlet(inlet.name.twin), dropped, Cause.DROPPED)
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
        for inlet in self._roll.chosen(route, address):
            inlet.pauses = 0
            if inlet in self._resting:
                del self._resting[inlet]
                resting += 1
                self._roll.stir(inlet)
            if inlet.name.is_dead:
                revived += self._revive(inlet)
        return resting, revived

    def _revive(self, inlet: Inlet) -> int:
        messages = [each for each in inlet.waiting if not each.is_overdue]
        inlet.waiting = [each for each in inlet.waiting if each.is_overdue]
        if messages:
            living = self._inlet(inlet.name._replace(is_dead=False))
            for message in messages:
                self.burials.unbury(message, inlet.name.route)
                living.put_back(message)
            self._roll.stir(living)
            self._close_idle(inlet)
        return len(messages)

    # The core's side

    def owns(self, link: LinkId) -> bool:
        """Returns whether a link is one of these."""
        return link in self._roll.by_link

    def attached(self, command: AttachLink) -> None:
        """Records the core's answer to an attach."""
        inlet = self._roll.by_link[command.link]
        inlet.is_attached = True
        if self._lane is not None and not (inlet.is_exact or inlet.name.is_dead):
            self._lane.attach(inlet)
        if inlet.is_exact:
            places = [Place(int.from_bytes(tag, "big")) for tag in command.unsettled or {}]
            self.resuming.meet(inlet, places)
            self._close_idle(inlet)

    def ended(self, link: LinkId, now: float, refusal: Condition | None = None) -> None:
        """Records that the core has refused or ended a link; what is left is sent on another.

        Args:
            link: one of these.
            now: the time.
            refusal: why it was refused; None: it was attached.
        """
        inlet = self._roll.by_link.pop(link)
        self._recall(inlet)
        self._forget(inlet)
        held = [each for each in inlet.held.values() if isinstance(each, StoredMessage)]
        sent = [*inlet.sent.values()]
        if self._lane is not None:
            sent += self._lane.take_all(inlet)
        messages = sorted([*inlet.waiting, *sent, *held], key=rank)
        self._again[inlet.name] = now + REFUSED_SECONDS
        if refusal is not None and refusal.name == RESOURCE_DELETED:  # nothing was kept there
            self.resuming.met.add(inlet.name)
            self.resuming.stir_both(inlet.name)
        is_unmet = inlet.is_exact and inlet.name not in self.resuming.met
        if messages or inlet.announced or inlet.is_expected or is_unmet:
            following = self._inlet(inlet.name)
            following.waiting, following.announced = messages, inlet.announced
            following.is_expected, following.depth = inlet.is_expected, inlet.depth
            following.sentence, following.elders = inlet.sentence, inlet.elders
            if inlet.sentence is not None:
                self._drop_waiting(following, inlet.sentence)
                self._close_idle(following)

    def granted(self, command: GrantCredit) -> None:
        """Handles credit from the core, or that it wants it back."""
        inlet = self._roll.by_link[command.link]
        inlet.credit = command.credit
        self._roll.stir(inlet)
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
        inlet = self._roll.by_link[link]
        if settled and isinstance(state, Accepted) and not self._attempts:
            taken = [self._take(inlet, each) for each in numbers]
            self._all_accepted(inlet, [each for each in taken if each is not None], now)
            return
        back: list[DeliveryNumber] = []
        for number in numbers:
            message = self._take(inlet, number)
            if message is None:
                continue
            sequence = self._ended(inlet, message, state, now)
            if not settled and sequence is not None:
                self.leaving.settle(sequence, link, number)
                inlet.settling += 1
            elif not settled:
                back.append(number)
        if back:
            self._emit(DeliveriesUpdated(link, back, state, True))
        self._roll.stir(inlet)
        self._close_idle(inlet)

    def _take(self, inlet: Inlet, number: DeliveryNumber) -> StoredMessage | None:
        """Takes a message out of those without an outcome."""
        message = inlet.sent.pop(number, None)
        if self._lane is not None and (message is None or inlet.state is not None):
            found = self._lane.take(inlet, number)
            return found if message is None else message
        return message

    def follow_lane(self, now: float) -> bool:
        """Handles what the express lane has noted; returns whether there was anything."""
        notes = [] if self._lane is None else self._lane.take_notes()
        for link, first, last in notes:
            if link is None:
                self._accepted(first, last, now)
            elif link in self._roll.by_link:
                self._roll.stir(self._roll.by_link[link])
        return bool(notes)

    def _accepted(self, first: int, last: int, now: float) -> None:
        """Handles that deliveries with numbers from ``first`` to ``last`` were accepted."""
        assert self._lane is not None
        for found in self._lane.sent_between(first, last):
            if len(found) == 2:  # they came to the lane by the core
                inlet, numbers = found
                self.updated(inlet.link, numbers, ACCEPTED, now, settled=True)
                continue
            run, begin, end = found
            inlet, count = run.inlet, 0
            for one, other in run.end(begin, end):
                self.leaving.forward_run(run.read, one, other, OutcomeCode.ACCEPTED)
                count += other - one
            inlet.pauses, inlet.accepted_at = 0, now
            self._uncount(inlet.name, count)
            if self.burials.has_swept:
                for claim in run.read.claims(begin, end):
                    self.burials.was_swept(claim.place, inlet.name.route)
            self._lane.ended(run)
            self._roll.stir(inlet)
            self._close_idle(inlet)

    def _all_accepted(self, inlet: Inlet, messages: list[StoredMessage], now: float) -> None:
        """Handles messages that were accepted; as ``_ended`` does, for a run of them."""
        if messages:
            inlet.pauses = 0
            inlet.accepted_at = now
            outcome = OutcomeCode.REJECTED if inlet.name.is_dead else OutcomeCode.ACCEPTED
            self.leaving.forward([each.claim for each in messages], outcome, inlet.name.route)
            self._left(inlet, messages)
        self._roll.stir(inlet)
        self._close_idle(inlet)

    def review(self, now: float) -> None:
        """Sends and asks for what there is credit for; attaches what has rested enough."""
        for name, at in list(self._again.items()):
            if at <= now:
                del self._again[name]
                if name in self._roll.by_name:
                    self._attach(self._roll.by_name[name])
        for inlet in [each for each in self._resting if each.rests_until <= now]:
            del self._resting[inlet]
            self._roll.stir(inlet)
        stirred, self._roll.stirred = self._roll.stirred, {}
        self.turns.review(now)
        for inlet in stirred:
            if self._roll.by_name.get(inlet.name) is inlet:
                self.turns.begin(inlet, now)
            if inlet.credit > 0 and inlet.held:
                self._resume(inlet)
            may_send = not inlet.is_exact or (not inlet.held and self.resuming.is_clear(inlet.name))
            if self._older and self._older[inlet.name.address]:
                may_send = may_send and (inlet.name.is_dead or self._is_older(inlet))
            if inlet.credit > 0 and inlet not in self._resting and may_send:
                self._bury_late(inlet)
                if not inlet.elders:
                    self._send_all(inlet)
                self._ask(inlet)
                self._close_idle(inlet)

    @property
    def is_stirred(self) -> bool:
        """Whether ``review`` has something to do now."""
        return bool(self._roll.stirred)

    def deadline(self) -> float | None:
        """Returns when ``review`` has something to do by time; None: never."""
        due = [*self._again.values(), *(inlet.rests_until for inlet in self._resting)]
        due += self.turns.deadlines()
        return min(due, default=None)

    def delays(self) -> dict[RouteKey, Delays]:
        """Returns what does not go on by itself, of all routes of which something does not."""
        found = {route: Delays(dead) for route, dead in self.burials.waiting.items() if dead}
        for inlet in self._resting:
            known = found.get(inlet.name.route, NO_DELAYS)
            found[inlet.name.route] = Delays(
                known.dead,
                known.resting + 1,
                max(known.failures, inlet.pauses),
                min(known.rests_until or inlet.rests_until, inlet.rests_until),
            )
        return found

    # Inside

    def _resume(self, inlet: Inlet) -> None:
        """Resumes what is held, as far as it is known what became of it."""
        deliveries = []
        for place, message in tuple(inlet.held.items()):
            if message is None or not inlet.credit:
                continue
            is_gone = not isinstance(message, StoredMessage)
            if is_gone and self.leaving.is_going(place):
                continue
            del inlet.held[place]
            inlet.credit -= 1
            number = DeliveryNumber(self._next_number(inlet, 1))
            if isinstance(message, StoredMessage):
                inlet.sent[number] = message
            tag = DeliveryTag(place.to_bytes(8, "big"))
            deliveries.append(ReceivedDelivery(number, tag, b"", settled=is_gone, resume=True))
        if deliveries:
            self._emit(DeliveriesReceived(inlet.link, deliveries))

    def _inlet(self, name: Name) -> Inlet:
        inlet = self._roll.by_name.get(name)
        if inlet is None:
            inlet = self._roll.by_name[name] = Inlet(name, next(self._link_ids))
            inlet.is_exact = name.route in self.exact or (
                not self.knows(name.route) and self.is_exact_at(name.address.decode())
            )
            self._older[name.address] += self._is_older(inlet)
            if name in self._quiet:
                inlet.announced, inlet.depth = self._quiet.pop(name)
            if name not in self._again:
                self._attach(inlet)
            if inlet.is_exact and name.twin not in self.resuming.met:
                self._inlet(name.twin)
        return inlet

    def _attach(self, inlet: Inlet) -> None:
        self._roll.by_link[inlet.link] = inlet
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
        if (inlet.is_idle or is_quiet) and self._roll.by_name.get(inlet.name) is inlet:
            self._forget(inlet)
            if is_quiet:
                self._quiet[inlet.name] = inlet.announced, inlet.depth
            if self._roll.by_link.pop(inlet.link, None) is not None:
                self._emit(LinkDetached(inlet.link, True))

    def _is_quiet(self, inlet: Inlet) -> bool:
        """Returns whether all that the store has of an address are dead letters that wait.

        Nobody waits for these, so the inlet ends. What the store was asked for and may still read
        makes it begin again, and so does what is stored later.
        """
        name = inlet.name
        if name.is_dead or not inlet.announced or inlet.is_expected:
            return False
        dead = self._roll.by_name.get(name.twin)
        if dead is None:
            return False
        count = len(dead.waiting) + len(dead.sent)
        is_asked = self._asked.get((name.route, name.address), 0) > 0
        is_busy = inlet.waiting or inlet.sent or inlet.runs or inlet.held or inlet.settling
        is_busy = is_busy or self._lending.has(inlet)
        is_met = inlet.is_attached or not inlet.is_exact
        return is_asked and 0 < count >= inlet.depth and is_met and not is_busy

    def _forget(self, inlet: Inlet) -> None:
        del self._roll.by_name[inlet.name]
        if self._lane is not None:
            self._lane.detach(inlet)
        self._roll.stirred.pop(inlet, None)
        self._resting.pop(inlet, None)
        self.turns.end(inlet)
        if self._is_older(inlet):
            self._older[inlet.name.address] -= 1
            for route in self._known:
                newer = self._roll.by_name.get(Name(route, inlet.name.address, False))
                if newer is not None:
                    self._roll.stir(newer)

    def _send_all(self, inlet: Inlet) -> None:
        """Sends what waits and what is lent, in their order, as far as there is credit."""
        self._send(inlet)
        while inlet.credit > 0:
            reference = self._lending.take(inlet, inlet.credit)
            run = None if reference is None else self._read_reference(inlet, reference)
            if run is None:
                return
            self._lending.was_read(inlet, len(run), len(run.heap))
            self._handle_run(inlet, run)
            if inlet.waiting:
                self._bury_late(inlet)
                self._send(inlet)

    def _send(self, inlet: Inlet) -> None:
        """Sends what waits and goes before what is lent, as far as there is credit."""
        most, lent = inlet.credit, self._lending.rank(inlet)
        if lent is not None:
            most = min(most, bisect.bisect_left(inlet.waiting, lent, key=rank))
        run, inlet.waiting = inlet.waiting[:most], inlet.waiting[most:]
        if not run:
            return
        inlet.credit -= len(run)
        first = self._next_number(inlet, len(run))
        numbers = [DeliveryNumber(each & MASK) for each in range(first, first + len(run))]
        inlet.sent.update(zip(numbers, run, strict=True))
        is_dead = inlet.name.is_dead
        pairs = zip(numbers, run, strict=True)
        deliveries = [self._delivery(number, each, is_dead) for number, each in pairs]
        self._emit(DeliveriesReceived(inlet.link, deliveries))

    def _next_number(self, inlet: Inlet, count: int) -> int:
        """Returns the number of the first of some deliveries that are sent now."""
        if self._lane is not None:
            return self._lane.sends(inlet, count)
        first, self._number = self._number, (self._number + count) & MASK
        return first

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
        if is_dead or not inlet.announced or self.burials.is_enough(route):
            return
        if (route, address) in self._halting:
            return
        asked, least = self._asked.get((route, address), 0), WINDOW // 8
        more = min(inlet.credit, WINDOW) - asked - len(inlet.waiting)
        more = max(more, min(inlet.elders, WINDOW) - asked)
        if self._reads_files and self._lending.may_have(inlet):
            lent, window = self._lending.count(inlet), self._lending.window()
            if window > WINDOW:
                more, least = window - asked - lent, window // 2
            else:
                more -= lent
            asked += lent
        if more > 0 and (not asked or more >= least):
            self._asked[route, address] = self._asked.get((route, address), 0) + more
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
            self.burials.bury(self._inlet(inlet.name.twin), message, Cause.REJECTED)
            return None
        if message.is_overdue and not is_dead:  # it was the core's while it became too old
            cause = self._cause(inlet.name.route, message)
            self.burials.bury(self._inlet(inlet.name.twin), message, cause)
            return None
        inlet.put_back(message)
        if inlet not in self._resting:
            pause = PAUSE_SECONDS * 2.0 ** min(inlet.pauses, 16)
            inlet.rests_until = now + min(pause, PAUSE_LIMIT_SECONDS)
            inlet.pauses += 1
            self._resting[inlet] = None
            self.turns.end(inlet)
        return None

    def _gone(self, inlet: Inlet, message: StoredMessage) -> int:
        """Records that a message has arrived, at its target or at the dead letters'."""
        outcome = OutcomeCode.REJECTED if inlet.name.is_dead else OutcomeCode.ACCEPTED
        sequence = self.leaving.forward((message.claim,), outcome, inlet.name.route)
        self._left(inlet, (message,))
        return sequence

    def _left(self, inlet: Inlet, messages: Sequence[StoredMessage]) -> None:
        """Counts messages of an inlet that have arrived."""
        route, is_dead = inlet.name.route, inlet.name.is_dead
        self._uncount(inlet.name._replace(is_dead=False), len(messages))
        if is_dead:
            for message in messages:
                self.burials.unbury(message, route)
        else:
            for message in messages:
                self.burials.was_swept(message.claim.place, route)

    def _uncount(self, name: Name, count: int) -> None:
        """Records that so many messages of an address have left."""
        alive = self._roll.by_name.get(name)
        if alive is not None:
            alive.depth -= count
        elif name in self._quiet:
            self._quiet[name] = self._quiet[name][0], self._quiet[name][1] - count

    def durable(self, sequence: int) -> dict[RouteKey, int]:
        """Records up to which record everything is durable.

        Returns:
            How many messages are gone now, by route.
        """
        gone, settled = self.leaving.durable(sequence)
        for link, numbers in settled.items():
            inlet = self._roll.by_link.get(link)
            if inlet is not None:
                inlet.settling -= len(numbers)
                self._emit(DeliveriesUpdated(link, numbers, ACCEPTED, True))
                self._close_idle(inlet)
        if gone:
            self._roll.stirred.update((e, None) for e in self._roll.by_link.values() if e.held)
        return {route: count for route, count in gone.items() if route is not None}
