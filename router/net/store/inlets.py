"""The links on which the store sends messages to the core.

One *inlet* for each address of a route with messages, and one for its dead letters. An inlet asks
the store for as many messages as the core has granted credit for, and sends them in their order.

    store --MESSAGE--> waiting --credit--> sent --outcome--> gone, waiting again, or a dead letter

Messages that are too old, or were dropped, come as dead letters from the store. Those that become
so while they wait here are dead letters, too.

This room handles what the store answers, and leads to those beside it: ``inlet``, what is known of
one link; ``links``, how they begin and end; ``fetching``, what the store is asked for, and
``lending``, what it has lent; ``sending``; ``outcomes``; ``dropping`` and ``overdue``, what must
not be sent any more; ``burials``, dead letters; ``leaving``, what is gone when that is durable;
``turns``, addresses that become empty; ``resuming``, what the core has of earlier attachments.

On exactly-once routes an inlet is a sender that resumes (§2.6.13). What the core has not seen
settled it keeps, with its outcome if there is one.
"""

from collections.abc import Callable, Iterator
from typing import Final

from router.journal.store.asks import Back, MessageRead, QueueNews
from router.journal.store.client import StoreClient
from router.journal.store.place import Place
from router.journal.store.queues import RouteKey
from router.journal.store.reading import StoredMessage
from router.journal.store.references import RunReader, RunReference
from router.journal.store.runs import MessagesRead
from router.model.commands import AttachLink, GrantCredit
from router.model.condition import RESOURCE_DELETED, Condition
from router.model.events import CreditReturned, Event
from router.model.identity import LinkId
from router.net.store.burials import Burials, Deaths
from router.net.store.dropping import Dropping
from router.net.store.fetching import Fetching
from router.net.store.inlet import NO_DELAYS, Delays, Inlet, Name, Roll, rank
from router.net.store.lane import LaneSession
from router.net.store.leaving import Leaving
from router.net.store.links import InletLinks
from router.net.store.outcomes import Outcomes
from router.net.store.resuming import Resuming
from router.net.store.sending import InletSending
from router.net.store.turns import Turns

OVERDUE_WINDOW: Final = 64
"""Messages of one route that are too old, or were dropped, and are asked for at once."""


class Inlets:
    """All links on which messages are sent.

    Attributes:
        turns: addresses that are about to become empty.
        leaving: messages that are gone as soon as their records are durable.
        burials: dead letters that wait.
        resuming: what the core has of earlier attachments.
        fetching: what the store was asked for.
        links: how the inlets begin and end.
        dropping: what must not be sent any more.
        outcomes: of what was sent.
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
        roll = self._roll = Roll()
        self.turns = Turns()
        self.leaving = Leaving(client, clock_ns)
        self.burials = Burials(client, roll, {} if deaths is None else deaths)
        self.resuming = Resuming(client, roll, self.leaving, self.burials)
        self.fetching = Fetching(client, roll, self.burials, reader)
        self.links = InletLinks(
            emit,
            link_ids,
            properties,
            roll=roll,
            fetching=self.fetching,
            resuming=self.resuming,
            turns=self.turns,
            lane=lane,
        )
        self.dropping = Dropping(
            clock_ns, roll=roll, fetching=self.fetching, links=self.links, burials=self.burials
        )
        self._sending = InletSending(
            emit,
            clock_ns,
            roll=roll,
            fetching=self.fetching,
            dropping=self.dropping,
            leaving=self.leaving,
            lane=lane,
        )
        self.outcomes = Outcomes(
            emit,
            roll=roll,
            links=self.links,
            dropping=self.dropping,
            burials=self.burials,
            leaving=self.leaving,
            turns=self.turns,
            lane=lane,
        )
        self._client = client
        self._emit = emit
        self._lane = lane

    # The store's side

    def announced(self, news: QueueNews) -> None:
        """Records that the store has messages for an address, or has none any more."""
        name = Name(news.route, news.address, False)
        inlet = self._roll.by_name.get(name)
        if news.messages:
            inlet = self.links.of(name)
            inlet.depth = news.messages + (inlet.depth if inlet.announced else 0)
            inlet.announced.add(news.priority)
            inlet.is_expected = False
            if len(inlet.announced) > 1:
                self.fetching.recall(inlet)
            self._roll.stir(inlet)
        elif inlet is not None:
            inlet.announced.discard(news.priority)
            self.links.close_idle(inlet)
        else:
            self.links.quiet_has_none(name, news.priority)

    def stored(self, route: RouteKey, address: bytes, messages: int) -> None:
        """Records that the store has accepted messages of an address.

        The core learns of the inlet before it learns that they are accepted.
        """
        inlet = self.links.of(Name(route, address, False))
        inlet.depth += messages
        if not inlet.announced:
            inlet.is_expected = True

    def await_elders(self, route: RouteKey, address: bytes, messages: int) -> None:
        """Sends nothing of an address before messages that are being stored, and go first."""
        inlet = self._roll.by_name.get(Name(route, address, False))
        if inlet is not None:
            inlet.elders += messages

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
            self.fetching.count_answered(name, 1)
            if self.fetching.is_halting(name):
                self._client.ask(Back(message.claim))
                return
        alive = self._roll.by_name.get(Name(*name, False))
        if alive is not None and alive.elders and not answer.is_recalled:
            alive.has_read((message,))
        inlet = self.links.of(Name(*name, message.is_overdue))
        holder = self.resuming.holder(inlet.name, message.claim.place)
        if holder is not None:
            self.resuming.hold(holder, message)
            inlet = holder
        elif message.is_overdue:
            self.burials.bury(inlet, message, self.dropping.cause(route, message))
            if (living := self._roll.by_name.get(inlet.name.twin)) is not None:
                self._roll.stir(living)  # it may ask for another one instead
        else:
            inlet.put_back(message)
        self._roll.stir(inlet)

    def referred(self, answer: RunReference) -> None:
        """Handles that messages of one address stand in the files of the log."""
        if self.fetching.is_halting((answer.route, answer.address)):
            self.fetching.give_back(answer)
            return
        inlet = self.links.of(Name(answer.route, answer.address, False))
        run = self.fetching.refer(inlet, answer)
        if run is not None:
            self.read_run(run)

    def read_run(self, answer: MessagesRead) -> None:
        """Handles messages of one address that the store has read together."""
        route, address = answer.route, answer.address
        if self.fetching.is_halting((route, address)):
            for message in answer.messages:
                self._client.ask(Back(message.claim))
            return
        inlet = self.links.of(Name(route, address, False))
        twin = self._roll.by_name.get(inlet.name.twin)
        if inlet.held or (twin is not None and twin.held):
            for message in answer.messages:
                self.read(MessageRead(route, message))
            return
        self.fetching.count_answered((route, address), len(answer))
        self._roll.stir(inlet)
        self._sending.handle_run(inlet, answer)

    # What somebody decides

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
            if inlet in self._roll.resting:
                del self._roll.resting[inlet]
                resting += 1
                self._roll.stir(inlet)
            if inlet.name.is_dead:
                revived += self._revive(inlet)
        return resting, revived

    def _revive(self, inlet: Inlet) -> int:
        messages = [each for each in inlet.waiting if not each.is_overdue]
        inlet.waiting = [each for each in inlet.waiting if each.is_overdue]
        if messages:
            living = self.links.of(inlet.name._replace(is_dead=False))
            for message in messages:
                self.burials.unbury(message, inlet.name.route)
                living.put_back(message)
            self._roll.stir(living)
            self.links.close_idle(inlet)
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
            self.links.close_idle(inlet)

    def ended(self, link: LinkId, now: float, refusal: Condition | None = None) -> None:
        """Records that the core has refused or ended a link; what is left is sent on another.

        Args:
            link: one of these.
            now: the time.
            refusal: why it was refused; None: it was attached.
        """
        inlet = self._roll.by_link.pop(link)
        self.fetching.recall(inlet)
        self.links.forget(inlet)
        held = [each for each in inlet.held.values() if isinstance(each, StoredMessage)]
        sent = [*inlet.sent.values()]
        if self._lane is not None:
            sent += self._lane.take_all(inlet)
        messages = sorted([*inlet.waiting, *sent, *held], key=rank)
        self.links.attach_later(inlet.name, now)
        if refusal is not None and refusal.name == RESOURCE_DELETED:  # nothing was kept there
            self.resuming.met.add(inlet.name)
            self.resuming.stir_both(inlet.name)
        is_unmet = inlet.is_exact and inlet.name not in self.resuming.met
        if messages or inlet.announced or inlet.is_expected or is_unmet:
            following = self.links.of(inlet.name)
            following.waiting, following.announced = messages, inlet.announced
            following.is_expected, following.depth = inlet.is_expected, inlet.depth
            following.sentence, following.elders = inlet.sentence, inlet.elders
            following.recalled = inlet.recalled.union(inlet.held)
            if inlet.sentence is not None:
                self.dropping.drop_waiting(following, inlet.sentence)
                self.links.close_idle(following)

    def granted(self, command: GrantCredit) -> None:
        """Handles credit from the core, or that it wants it back."""
        inlet = self._roll.by_link[command.link]
        inlet.credit = command.credit
        self._roll.stir(inlet)
        if command.drain:
            inlet.credit = 0
            self._emit(CreditReturned(inlet.link, 0))

    def review(self, now: float) -> None:
        """Sends and asks for what there is credit for; attaches what has rested enough."""
        self.links.review(now)
        for inlet in [each for each in self._roll.resting if each.rests_until <= now]:
            del self._roll.resting[inlet]
            self._roll.stir(inlet)
        stirred, self._roll.stirred = self._roll.stirred, {}
        self.turns.review(now)
        for inlet in stirred:
            if self._roll.by_name.get(inlet.name) is inlet:
                self.turns.begin(inlet, now)
            if inlet.credit > 0 and inlet.held:
                self._sending.resume(inlet)
            may_send = not inlet.is_exact or (not inlet.held and self.resuming.is_clear(inlet.name))
            may_send = may_send and not self.links.waits_for_older(inlet)
            if inlet.credit > 0 and inlet not in self._roll.resting and may_send:
                self.dropping.bury_late(inlet)
                self.fetching.begin_again(inlet)
                if not inlet.elders:
                    self._sending.send_all(inlet)
                self.fetching.ask(inlet)
                self.links.close_idle(inlet)

    @property
    def is_stirred(self) -> bool:
        """Whether ``review`` has something to do now."""
        return bool(self._roll.stirred)

    def deadline(self) -> float | None:
        """Returns when ``review`` has something to do by time; None: never."""
        due = [inlet.rests_until for inlet in self._roll.resting]
        due += self.links.deadlines() + self.turns.deadlines()
        return min(due, default=None)

    def delays(self) -> dict[RouteKey, Delays]:
        """Returns what does not go on by itself, of all routes of which something does not."""
        found = {route: Delays(dead) for route, dead in self.burials.waiting.items() if dead}
        for inlet in self._roll.resting:
            known = found.get(inlet.name.route, NO_DELAYS)
            found[inlet.name.route] = Delays(
                known.dead,
                known.resting + 1,
                max(known.failures, inlet.pauses),
                min(known.rests_until or inlet.rests_until, inlet.rests_until),
            )
        return found
