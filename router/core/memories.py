"""Moves the state that engines keep for a peer to the worker that the peer reconnects to.

A peer may reconnect to any worker. If its engine does not find the peer's state in this worker's
store (``router.wire.memory``), all siblings are asked. The worker that has the state hands it over
whole; it is put into this worker's store before the engine is answered, so it is kept even if the
peer has disconnected meanwhile.

Theory of operation. Between two workers each end attaches one link to the address ``ADDRESS`` and
sends its questions and answers on it, settled, one message each. The states of a *search* for a
key:

    sought --> ASKING -- a sibling gives it --------------> found: it is kept here
                      -- all have answered "nothing" -----> nothing: the peer begins anew
                      -- one has answered "busy",
                         or PATIENCE_SECONDS have passed -> busy: the peer may ask again

A sibling that dies while it is asked has lost its state. A worker answers a sibling's question:

    the store has it, no connection uses it        it is given
    a connection uses it                           busy; with force it is given once released
    the store has nothing, we ask for it, too      busy: at most one of the two may find it
    it was given, and is not acknowledged yet      busy: it is on its way to another worker
    otherwise                                      nothing

So no peer starts with empty state while a worker has its state or is about to have it. Links that
led from here to a third worker will next reach that worker from elsewhere, over another socket. It
must first have received everything sent on them from here, their detaches included. So before state
is handed over, each worker that was sent such a detach (``Passages.parted``) has to answer a
*fence*.

A message is an ``amqp-value`` section with a list::

    ask     [ 0, serial ulong, store string, key binary, force boolean ]
    answer  [ 1, serial ulong, store string, key binary, verdict ubyte, kept binary ]
    taken   [ 2, serial ulong, store string, key binary ]
    fence   [ 3, serial ulong ]
    passed  [ 4, serial ulong ]

    verdict 0: nothing; 1: busy; 2: given, ``kept`` is the state, which "taken" acknowledges
"""

from collections import Counter, deque
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Final

import attrs

from router.core.alarms import Alarm
from router.core.joint import AMQP_VALUE, Joint
from router.core.passage import Passages
from router.core.reach import is_sibling_name
from router.core.state import State
from router.errors import DecodeError
from router.links.link import Connection
from router.model.commands import MemoryFound
from router.model.events import (
    CreditGranted,
    DeliveriesReceived,
    DeliveryContinued,
    Event,
    LinkAttached,
    LinkDetached,
    MemoryLeft,
    MemorySought,
)
from router.model.identity import ConnectionId, LinkId
from router.model.terminus import SenderSettleMode
from router.wire.memory import Moves, Refusal, Store
from router.wire.v1_0.types import Ubyte, Ulong, decode_value, encode_value

ADDRESS: Final = "$memory"
"""Target of the links that carry questions and answers; only siblings can attach to it."""

PATIENCE_SECONDS: Final = 5.0
"""Time in which siblings must answer: far more than a busy one needs."""

_ASK: Final = 0
_ANSWER: Final = 1
_TAKEN: Final = 2
_FENCE: Final = 3
_PASSED: Final = 4

_GIVEN: Final = 2
"""A verdict, in addition to those of ``Refusal``."""

Key = tuple[str, bytes]
"""Names of a store and of a key in it."""


@attrs.define(eq=False)
class _Joint(Joint):
    """A connection to a sibling, and the exchange on it.

    Attributes:
        unsaid: messages that wait to be sent, for lack of credit.
        parts: received parts of an incomplete message.
        giving: state handed over that the sibling has not acknowledged.
    """

    unsaid: deque[bytes] = attrs.field(factory=deque)
    parts: list[bytes] = attrs.field(factory=list)
    giving: Counter[Key] = attrs.field(factory=Counter)


@attrs.define(eq=False)
class _Search:
    """A search for the state of a key.

    Attributes:
        connection: the engine's.
        serial: of our question.
        asked: siblings that have not answered.
        is_busy: a sibling has answered "busy".
    """

    connection: ConnectionId
    serial: int
    asked: set[str]
    is_busy: bool = False
    alarm: Alarm | None = None


@attrs.define(eq=False)
class _Demand:
    """A key that a sibling asks for.

    Attributes:
        serial: of its question.
        fences: serials of the fences that others have to answer first.
        is_leaving: a connection is about to release the key.
    """

    joint: _Joint
    serial: int
    key: Key
    force: bool
    fences: set[int]
    is_leaving: bool = False


class Memories:
    """Asks siblings for the state that engines seek, and answers the siblings' questions."""

    def __init__(
        self,
        state: State,
        link_ids: Iterator[LinkId],
        passages: Passages,
        memory: dict[str, object],
    ) -> None:
        """Makes it.

        Args:
            state: shared by all machines.
            link_ids: shared with the engines.
            passages: knows which workers were sent detaches.
            memory: the stores of all engines of this worker (``EngineSettings.memory``).
        """
        self._settings = state.settings
        self._registry = state.registry
        self._turn = state.turn
        self._alarms = state.alarms
        self._notices = state.notices
        self._link_ids = link_ids
        self._passages = passages
        self._memory = memory
        self._moves = Moves.of(memory)
        self._moves.own = f"/{state.settings.worker}"
        self._joints: dict[str, _Joint] = {}
        self._searches: dict[Key, _Search] = {}
        self._demands: list[_Demand] = []
        self._fences: dict[int, str] = {}
        self._serial = 0

    def take_awakened(self) -> list[object]:
        """Returns the engines that have output although no event was given to them."""
        awakened, self._moves.awakened = self._moves.awakened, []
        return awakened

    # --- siblings ---------------------------------------------------------------------------------

    def joined(self, connection: Connection) -> None:
        """Records an opened connection to a sibling."""
        assert connection.configured is not None
        joint = _Joint(connection, connection.configured, ADDRESS, self._turn)
        self._joints[joint.name] = joint
        self._moves.siblings.add(joint.name)
        joint.attach(next(self._link_ids), SenderSettleMode.SETTLED)

    def left(self, connection: Connection) -> None:
        """Records that a connection has ended; a sibling without connection has lost its state."""
        name = connection.configured
        for demand in self._demands:
            demand.is_leaving = False
        if name is None or not is_sibling_name(name):
            self._review()
            return
        joint = self._joints.get(name)
        if joint is None or joint.connection is not connection:
            return
        del self._joints[name]
        self._moves.siblings.discard(name)
        for key, search in list(self._searches.items()):
            self._answered(key, search, name)
        self._demands = [each for each in self._demands if each.joint is not joint]
        for serial in [serial for serial, whose in self._fences.items() if whose == name]:
            self._passed(serial)
        self._review()

    def handle(self, connection: Connection, event: Event) -> bool:
        """Handles an event of the exchange; returns False for other events."""
        joint = self._joints.get(connection.configured or "")
        if joint is None or joint.connection is not connection:
            return False
        match event:
            case LinkAttached(is_answer=True, link=link) if link == joint.ours:
                pass
            case LinkAttached() if joint.is_theirs(event):
                joint.accept(event)
            case CreditGranted(link=link, credit=credit) if link == joint.ours:
                joint.credit = credit
                self._pump(joint)
            case LinkDetached(link=link) if link in (joint.ours, joint.theirs):
                pass  # only with its connection
            case DeliveriesReceived(link=link) if link == joint.theirs:
                for delivery in event.deliveries:
                    self._gather(joint, delivery.payload, delivery.more)
            case DeliveryContinued(link=link) if link == joint.theirs:
                self._gather(joint, event.payload, event.more)
            case _:
                return False
        return True

    # --- messages ---------------------------------------------------------------------------------

    def _say(self, joint: _Joint, fields: Sequence[Any]) -> None:
        joint.unsaid.append(AMQP_VALUE + encode_value(list(fields)))
        self._pump(joint)

    @staticmethod
    def _pump(joint: _Joint) -> None:
        count = min(len(joint.unsaid), joint.credit)
        if count > 0:
            joint.send([joint.unsaid.popleft() for _ in range(count)], settled=True)

    def _gather(self, joint: _Joint, payload: bytes, more: bool) -> None:
        """Handles a message or a part of one: a peer's state may be larger than a frame."""
        joint.parts.append(payload)
        if more:
            return
        message, joint.parts = b"".join(joint.parts), []
        joint.received(1)
        fields, _ = decode_value(message, len(AMQP_VALUE))
        kind, serial = int(fields[0]), int(fields[1])
        if kind == _FENCE:
            self._say(joint, [Ubyte(_PASSED), Ulong(serial)])
            return
        if kind == _PASSED:
            self._passed(serial)
            self._review()
            return
        store, key = str(fields[2]), bytes(fields[3])
        if kind == _ASK:
            self._asked(joint, serial, (store, key), force=bool(fields[4]))
        elif kind == _ANSWER:
            self._receive_verdict(joint, serial, (store, key), int(fields[4]), bytes(fields[5]))
        elif kind == _TAKEN:
            joint.giving -= Counter([(store, key)])

    # --- searches of this worker ------------------------------------------------------------------

    def sought(self, connection: Connection, event: Event) -> None:
        """Asks all siblings for the state that an engine seeks."""
        assert isinstance(event, MemorySought)
        key = (event.store, event.key)
        self._serial += 1
        older = self._searches.pop(key, None)
        if older is not None:  # its connection has ended: otherwise no second search would begin
            self._alarms.cancel(older.alarm)
        search = _Search(connection.id, self._serial, set(self._joints))
        self._searches[key] = search
        at = self._turn.now + PATIENCE_SECONDS
        search.alarm = self._alarms.set(at, partial(self._lose_patience, key, search))
        for joint in self._joints.values():
            fields = [Ubyte(_ASK), Ulong(search.serial), event.store, event.key, event.force]
            self._say(joint, fields)
        self._answered(key, search, None)

    def _receive_verdict(
        self, joint: _Joint, serial: int, key: Key, verdict: int, kept: bytes
    ) -> None:
        search = self._searches.get(key)
        if verdict == _GIVEN:
            is_here = self._keep(joint, key, kept)
            self._say(joint, [Ubyte(_TAKEN), Ulong(serial), *key])
            if is_here and search is not None:
                self._end(key, search, is_busy=False)
                return
        if search is not None and search.serial == serial:
            search.is_busy |= verdict == Refusal.BUSY
            self._answered(key, search, joint.name)

    def _keep(self, joint: _Joint, key: Key, kept: bytes) -> bool:
        """Stores the state handed over, even if no engine waits for it any more."""
        store = self._memory.get(key[0])
        assert isinstance(store, Store), "an engine of ours has asked"
        try:
            store.take(key[1], kept, joint.name, self._turn.now)
        except DecodeError as error:
            self._notices.add("memory.refused", container=joint.name, condition=error.rule)
            return False
        self._notices.add("memory.taken", container=joint.name, octets=len(kept))
        return True

    def _answered(self, key: Key, search: _Search, name: str | None) -> None:
        """Records that a sibling has no state for a key."""
        search.asked.discard(name or "")
        if not search.asked:
            self._end(key, search, is_busy=search.is_busy)

    def _lose_patience(self, key: Key, search: _Search) -> None:
        self._notices.add(
            "memory.unanswered", container=", ".join(sorted(search.asked)), seconds=PATIENCE_SECONDS
        )
        self._end(key, search, is_busy=True)

    def _end(self, key: Key, search: _Search, *, is_busy: bool) -> None:
        del self._searches[key]
        self._alarms.cancel(search.alarm)
        connection = self._registry.connections.get(search.connection)
        if connection is not None:
            self._turn.order_connection(connection, MemoryFound(*key, is_busy))

    # --- searches of siblings ---------------------------------------------------------------------

    def _asked(self, joint: _Joint, serial: int, key: Key, *, force: bool) -> None:
        """Handles a question, which is answered once the fences have been answered."""
        self._fence(joint)
        fences = {each for each, name in self._fences.items() if name != joint.name}
        self._demands.append(_Demand(joint, serial, key, force, fences))
        self._review()

    def _fence(self, asking: _Joint) -> None:
        """Sends fences to the workers that were sent detaches, except to the one that asks."""
        for name in self._passages.parted - {asking.name}:
            self._passages.parted.discard(name)
            joint = self._joints.get(name)
            if joint is not None:
                self._serial += 1
                self._fences[self._serial] = name
                self._say(joint, [Ubyte(_FENCE), Ulong(self._serial)])

    def _passed(self, serial: int) -> None:
        self._fences.pop(serial, None)
        for demand in self._demands:
            demand.fences.discard(serial)

    def memory_left(self, connection: Connection, event: Event) -> None:
        """Records that a connection has released its state."""
        assert isinstance(event, MemoryLeft)
        for demand in self._demands:
            if demand.is_leaving and demand.key == (event.store, event.key):
                demand.is_leaving = False
                self._fence(demand.joint)
                demand.fences |= {
                    each for each, name in self._fences.items() if name != demand.joint.name
                }
        self._review()

    def _review(self) -> None:
        """Answers the questions that can be answered now."""
        waiting, self._demands = self._demands, []
        for demand in waiting:
            if demand.fences or demand.is_leaving or not self._answer(demand):
                self._demands.append(demand)

    def _answer(self, demand: _Demand) -> bool:
        """Answers a question; returns False while a connection is still releasing the state."""
        joint, key = demand.joint, demand.key
        found = self._find(joint, key, force=demand.force)
        if found is Refusal.LEAVING:
            demand.is_leaving = True
            return False
        verdict, kept = (found, b"") if isinstance(found, Refusal) else (_GIVEN, found)
        fields = [Ubyte(_ANSWER), Ulong(demand.serial), *key, Ubyte(verdict), kept]
        self._say(joint, fields)
        return True

    def _find(self, joint: _Joint, key: Key, *, force: bool) -> bytes | Refusal:
        store = self._memory.get(key[0])
        if isinstance(store, Store):
            found = store.give(key[1], force=force, now=self._turn.now)
            if not isinstance(found, Refusal):
                joint.giving[key] += 1
                self._notices.add("memory.given", container=joint.name, octets=len(found))
            if found is not Refusal.NOTHING:
                return found
        is_on_its_way = any(key in each.giving for each in self._joints.values())
        return Refusal.BUSY if is_on_its_way or key in self._searches else Refusal.NOTHING
