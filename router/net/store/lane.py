"""Inlets on the express lane: their messages go from the store's socket to the target's at once.

Theory of operation. To the express lane an inlet is a receiving link like any other, of one session
without a socket. Its messages come as rows of a run (``Lane.bring``), and what the lane would write
into frames is noted instead (``notes``): which deliveries were accepted and are settled, and
credit. The state of the link is shared, as with any engine, so whatever does not fit the lane goes
to the core as an event, and both see one credit and one count of deliveries.

    run --bring--> the lane     no object is made of a message; its run is kept until it is settled
        '--------> waiting      the rest, if the lane leaves a message: they become objects

    note: accepted              a part of a run is gone: its records are written by columns
    note: credit                more is read; what was accepted is noted then, too, or soon
    outcome from the core       the lane had given the delivery up: it is taken out of its run

As with any engine, the lane brings nothing of an inlet whose deliveries the core is about to be
told: they would be overtaken. Nor does it grant credit there, since they take what there is.

Delivery numbers are delivery-ids, serial numbers of 32 bits.
"""

from bisect import bisect_right
from collections.abc import Iterator
from typing import Any

from router.journal.store.reading import StoredMessage
from router.journal.store.runs import MessagesRead
from router.model.identity import DeliveryNumber, LinkId
from router.model.serial import MASK
from router.model.terminus import Role, SenderSettleMode
from router.net.store.inlet import Inlet, SentRun
from router.net.store.patience import HOLD_MESSAGES
from router.wire.v1_0.express import Express
from router.wire.v1_0.state import LinkState

Note = tuple[LinkId | None, int, int]
"""A link, its credit, and 0; or None, and the first and the last delivery that was accepted."""


class LaneSession:
    """The inlets as the express lane sees them.

    Attributes:
        brought: messages that the lane has taken as they came from the log.
    """

    def __init__(self, express: Express, owner: object) -> None:
        """Begins without a link.

        Args:
            express: the worker's.
            owner: the engine, which is flushed when there are notes.
        """
        self.brought = 0
        self._express = express
        states: Any = express.states
        self._states = states
        self._connection = states.ConnectionState()
        self._connection.owner = owner
        self._connection.is_open = True
        self._session = states.SessionState(self._connection, MASK)
        self._session.owner = self
        self._session.incoming = {}
        self._session.next_incoming_delivery = 0
        self._session.is_open = True
        self._session.notes = []
        self._session.unnoted_limit = HOLD_MESSAGES
        self._runs: list[SentRun] = []
        self._origin = 0  # the first number of a run ...
        self._starts: list[int] = []  # ... and how far behind it those of all runs begin
        self._done = 0
        self._kept_away: list[Any] = []
        self._inlets: dict[int, Inlet] = {}
        self._attached: dict[Inlet, Any] = {}

    # Links

    def attach(self, inlet: Inlet) -> None:
        """Has the lane know an inlet."""
        name = inlet.name.address.decode()
        state = self._states.LinkState(inlet.link, name, Role.RECEIVER, self._session)
        state.sender_settle_mode = SenderSettleMode.UNSETTLED.value
        state.credit = state.allowance = inlet.credit
        state.is_open = True
        state.owner = self
        inlet.state = self._attached[inlet] = state
        self._express.register(state)

    def detach(self, inlet: Inlet) -> None:
        """Has the lane forget an inlet; what it was sent and has no outcome stays with it."""
        if inlet.state is not None:
            self._attached.pop(inlet, None)
            inlet.state.is_open = False
            self._express.forget(inlet.state)

    def close(self) -> None:
        """Ends the session: nothing is settled any more."""
        self._session.is_open = self._connection.is_open = False

    # Sending

    def bring(self, inlet: Inlet, run: MessagesRead) -> int:
        """Sends messages of a run; returns how many, the first ones, the lane has taken."""
        state: Any = inlet.state
        if state.lane is None:
            return 0
        first = self._session.next_incoming_delivery
        count: int = state.lane.bring(state, run.rows, run.heap, run.places)
        self.brought += count
        if count:
            sent = SentRun(inlet, run, first, count)
            if not self._runs:
                self._origin = first
            self._runs.append(sent)
            self._starts.append((first - self._origin) & MASK)
            inlet.runs.append(sent)
        return count

    def sends(self, inlet: Inlet, count: int) -> int:
        """Records that deliveries go to the core; returns the number of the first one."""
        first: int = self._session.next_incoming_delivery
        self._session.next_incoming_delivery = (first + count) & MASK
        state: Any = inlet.state
        if state is not None:
            state.delivery_count = (state.delivery_count + count) & MASK
            state.allowance -= count
            self._inlets.update((each & MASK, inlet) for each in range(first, first + count))
            if state.lane is not None:
                state.in_progress = True
                self._kept_away.append(state)
        return first

    @property
    def is_kept_away(self) -> bool:
        """Whether ``go_on`` is due: the lane brings and grants nothing on some links."""
        return bool(self._kept_away)

    def go_on(self) -> None:
        """Records that the core has been told of all deliveries."""
        for state in self._kept_away:
            state.in_progress = False
            if state.lane is not None:
                state.lane.came(state)
        self._kept_away.clear()

    # Outcomes

    def flush(self) -> None:
        """Has the lane note everything."""
        self._express.flush()

    @property
    def has_notes(self) -> bool:
        """Whether there is credit, or so much was accepted that it is to be handled at once."""
        return bool(self._session.notes)

    @property
    def unnoted(self) -> int:
        """How many deliveries were accepted that are not among the notes yet."""
        unnoted: int = self._session.unnoted
        return unnoted

    def take_notes(self) -> list[Note]:
        """Returns what was noted since it was called last, and all that was accepted.

        If a link needs credit, others get it along with it that could use it soon.
        """
        if self.has_notes:
            self._express.top_up(self._attached.values())
        if self._session.unnoted:
            self._express.note(self._session)
        notes: list[Note] = self._session.notes
        if notes:
            self._session.notes = []
        return notes

    def sent_between(
        self, first: int, last: int
    ) -> Iterator[tuple[SentRun, int, int] | tuple[Inlet, list[DeliveryNumber]]]:
        """Yields what has numbers from ``first`` to ``last``: parts of runs, and others."""
        left = ((last - first) & MASK) + 1
        others: dict[Inlet, list[DeliveryNumber]] = {}
        while left:
            run, begin = self._find(first)
            if run is None:
                count = 1
                inlet = self._inlets.get(first)
                if inlet is not None:
                    others.setdefault(inlet, []).append(DeliveryNumber(first))
            else:
                count = min(left, run.count - begin)
                yield run, begin, begin + count
            first = (first + count) & MASK
            left -= count
        yield from others.items()

    def _find(self, number: int) -> tuple[SentRun | None, int]:
        if not self._runs:
            return None, 0
        at = bisect_right(self._starts, (number - self._origin) & MASK)
        run = self._runs[at - 1]
        position = run.position(number)
        return (None, 0) if position is None or not run.left else (run, position)

    def take(self, inlet: Inlet, number: DeliveryNumber) -> StoredMessage | None:
        """Takes a message out of its run whose outcome is not noted but told; None: it has none."""
        self._inlets.pop(number, None)
        for run in inlet.runs:
            position = run.position(number)
            if position is not None and run.end(position, position + 1):
                message = run.read.messages[position]
                self.ended(run)
                return message
        return None

    def take_all(self, inlet: Inlet) -> list[StoredMessage]:
        """Takes all messages out of the runs of an inlet."""
        messages = []
        for run in tuple(inlet.runs):
            messages += run.rest()
            self.ended(run)
        for number in inlet.sent:
            self._inlets.pop(number, None)
        return messages

    def ended(self, run: SentRun) -> None:
        """Forgets a run if all its messages have an outcome."""
        if run.left:
            return
        run.inlet.runs.remove(run)
        self._done += 1
        if self._done * 2 > len(self._runs):
            self._runs = [each for each in self._runs if each.left]
            if self._runs:
                self._origin = self._runs[0].first
            self._starts = [(each.first - self._origin) & MASK for each in self._runs]
            self._done = 0

    # What the lane gives up

    def adopt_incoming(
        self, link: LinkState, delivery_id: int, tag: bytes, settles_second: bool
    ) -> None:
        """Does nothing: the message stays in its run until the core says what became of it."""
