"""What the store is asked for: messages of an address, within the credit of its inlet.

The store answers with messages, or, where the files of its log can be read here, with references to
them. These are lent (``lending``) or read at once. What cannot be read goes back to the store, and
with it all that it has answered behind that: it is told to halt, and until it has said that nothing
else comes of an address, nothing is asked for.

    nothing --ask--> asked --answer--> nothing
                       '----halt-----> halting --HALTED--> nothing; answers go back meanwhile
"""

from typing import Final

from router.errors import RouterError
from router.journal.store.asks import Back, Flow, Halt, Reads, Return
from router.journal.store.client import StoreClient
from router.journal.store.place import BEGINNING, Place
from router.journal.store.queues import Claim, RouteKey
from router.journal.store.references import RunReader, RunReference
from router.journal.store.runs import MessagesRead
from router.net.store.burials import Burials
from router.net.store.inlet import Inlet, Name, Roll
from router.net.store.lending import Lending

WINDOW: Final = 512
"""Messages of one address that are asked for at once."""

Queue = tuple[RouteKey, bytes]
"""A route and an address, of whose messages some were asked for."""


class Fetching:
    """What the store was asked for, and what it has lent.

    Attributes:
        lending: what is lent.
    """

    def __init__(
        self, client: StoreClient, roll: Roll, burials: Burials, reader: RunReader | None
    ) -> None:
        """Begins with nothing.

        Args:
            client: asks the store.
            roll: all inlets.
            burials: says when a route has too many dead letters.
            reader: reads what comes by reference; None: nothing does.
        """
        self.lending = Lending()
        self._client = client
        self._roll = roll
        self._burials = burials
        self._reader = reader
        self._asked: dict[Queue, int] = {}
        self._halting: set[Queue] = set()

    def is_asked(self, name: Name) -> bool:
        """Returns whether the store was asked for messages of an address, and may answer."""
        return self._asked.get((name.route, name.address), 0) > 0

    def is_halting(self, queue: Queue) -> bool:
        """Returns whether what comes of an address goes back to the store."""
        return queue in self._halting

    def ask(self, inlet: Inlet) -> None:
        """Asks for what an inlet has credit for, or, if it has been lent messages, for more.

        What cannot be lent comes as messages, which take memory: no more of these wait than can be
        sent.
        """
        route, address, is_dead = inlet.name
        if is_dead or not inlet.announced or self._burials.is_enough(route):
            return
        if (route, address) in self._halting:
            return
        asked, least = self._asked.get((route, address), 0), WINDOW // 8
        more = min(inlet.credit, WINDOW) - asked - len(inlet.waiting)
        more = max(more, min(inlet.elders, WINDOW) - asked)
        if self.reads_files and self.lending.may_have(inlet):
            lent, window = self.lending.count(inlet), self.lending.window()
            if window > WINDOW and self.lending.has_had(inlet) and not inlet.waiting:
                more, least = window - asked - lent, window // 2
            else:
                more -= lent
            asked += lent
        if more > 0 and (not asked or more >= least):
            self._asked[route, address] = self._asked.get((route, address), 0) + more
            self._client.ask(Flow(route, address, more))

    def count_answered(self, queue: Queue, messages: int) -> None:
        """Counts messages of an address that the store has answered with."""
        left = self._asked.pop(queue, 0) - messages
        if left > 0:
            self._asked[queue] = left

    def refer(self, inlet: Inlet, reference: RunReference) -> MessagesRead | None:
        """Handles a reference: it is lent, or what it refers to is read and returned."""
        if not self.lending.may_have(inlet):
            return self.read(inlet, reference)
        self.count_answered((reference.route, reference.address), reference.messages)
        self.lending.add(inlet, reference)
        self._roll.stir(inlet)
        return None

    def read(self, inlet: Inlet, reference: RunReference) -> MessagesRead | None:
        """Reads messages; None: that fails, and all that the store has lent goes back to it."""
        try:
            if self._reader is not None:
                return self._reader.run(reference)
        except (RouterError, OSError):
            if not self.reads_files:
                self._client.ask(Reads(is_able=False))
        self.halt(inlet)
        self.recall(inlet)
        self._give_back_waiting(inlet, reference.places[0])
        if self.reads_files:  # the store itself is to read these, message by message
            for place in reference.places:
                self._client.ask(Back(Claim(place, reference.queue, 0)))
        else:
            self.give_back(reference)
        return None

    @property
    def reads_files(self) -> bool:
        """Whether the files of the log can be read here."""
        return self._reader is not None and self._reader.is_able

    def recall(self, inlet: Inlet, gone: Place = BEGINNING) -> None:
        """Gives back what is lent to an inlet, except for what is gone, which stands up to there.

        What the store was asked for and has not answered goes back to it, too, and what waits
        behind the first that is lent: it would overtake that.
        """
        first = self.lending.rank(inlet)
        lent, (route, address, is_dead) = self.lending.recall(inlet), inlet.name
        if lent or (not is_dead and self._asked.get((route, address), 0) > WINDOW):
            self.halt(inlet)
        for each in lent:
            self.give_back(each.rest(), gone)
        if first is not None:
            self._give_back_waiting(inlet, first[1])

    def begin_again(self, inlet: Inlet) -> None:
        """Gives the store back what waits if it was not read in its turn; all is read anew.

        What was sent in an earlier life and comes back was recalled by its place. The store may
        have messages that go before it, which were given back before that life ended.
        """
        taken = inlet.take_out_of_turn() if inlet.recalled else []
        for message in taken:
            self._client.ask(Back(message.claim))
        if taken:
            self.halt(inlet)

    def _give_back_waiting(self, inlet: Inlet, place: Place) -> None:
        """Gives the store back what waits behind a place, so that it is read in its turn."""
        for message in inlet.take_behind(place):
            self._client.ask(Back(message.claim))

    def give_back(self, reference: RunReference, gone: Place = BEGINNING) -> None:
        """Gives the store messages back, except for what is gone, which stands up to there."""
        positions = reference.positions_behind(gone)
        if positions:
            self._client.ask(Return(reference.segment, reference.queue, positions))

    def halt(self, inlet: Inlet) -> None:
        """Has the store answer nothing more that it was asked for of an address."""
        route, address, _ = inlet.name
        if (route, address) not in self._halting:
            self._client.ask(Halt(route, address))
            self._halting.add((route, address))

    def halted(self, route: RouteKey, address: bytes) -> None:
        """Records that nothing comes any more of an address that was asked for."""
        self._halting.discard((route, address))
        self._asked.pop((route, address), None)
        for is_dead in (False, True):
            inlet = self._roll.by_name.get(Name(route, address, is_dead))
            if inlet is not None:
                self._roll.stir(inlet)
