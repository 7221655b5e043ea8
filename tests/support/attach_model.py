"""A small model of two ends and the attaches between them, for exploring every order of arrival.

One end, the *dialer*, attaches a link again and again; the other, the *home*, keeps it. Each attach
goes by a connection of its own. The dialer reads only from its last one, but what it has said on
any of them reaches the home at any time later, in the order of that connection: a proxy holds it
up.

    dialer --[attach, flow, transfers, outcomes, settlements]--> home        any connection's head
           <--[attach, refusal, transfers, outcomes, settlements]--          the last one's head

What each end does about a map is decided by the real ``links.recovery`` and ``links.attaches``.
What depends on it, who forgets when and which numbers are durable, are ``Rules``; each can be
switched off to see what it is good for. There are two worlds, by who sends:

    ``Sending``     the dialer sends, the home receives and acts; the home must not forget what a
                    late map lacks, or it comes again
    ``Receiving``   the home sends to the dialer, and to another receiver beside it; the home must
                    not give away what a late map lacks, nor believe what it says of another

Messages are acted upon at once and for good. A delivery has one or two parts; who has only the
first resumes behind it. All that is unsettled is durable at both ends: that it is, the explorer of
the journal shows (``journal_model``).
"""

import enum
from collections import deque
from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

import attrs

from router.links.attaches import AttachNumber, is_late, lacking, may_be_done_unconfirmed
from router.links.recovery import (
    ABSENT,
    Abort,
    Absent,
    Action,
    Forget,
    Restate,
    ResumeFrom,
    SendAnew,
    Settle,
    resume,
)
from router.model.outcome import ACCEPTED, REJECTED, DeliveryState, Received, is_outcome
from tests.support.journal_model import Violation


class Forgets(enum.Enum):
    """When the home believes what a map says, or lacks."""

    AT_ONCE = "at once"
    ANY_FRAME = "when anything comes behind the attach"
    SPOKEN_TO = "when spoken to"


class Numbers(enum.Enum):
    """Where the numbers of attaches are kept."""

    NONE = "none"
    LOST_BY_HOME = "only in the memory of the home"
    LOST_BY_DIALER = "only in the memory of the dialer"
    DURABLE = "durable at both ends"
    LOCAL = "a count of its own for each process that dials"


@attrs.frozen(kw_only=True)
class Rules:
    """What holds, and what happens.

    Attributes:
        forgets, numbers: see there.
        parts: of each delivery.
        outcomes: the home, or the receiver, chooses among them.
        deliveries, attaches, home_crashes, dialer_crashes: how many at most.
        has_standby: another process takes the dialer's place, and the first one goes on later with
            what it remembers. It begins and settles nothing, for it can write nothing down any
            more; what it has sent it sends again.
        replays: somebody between the ends says again on its own what was said on a connection.
        rebinds: what is at a receiver whose connection is lost goes to another at once.
        shares_tags: a tag is given out again when nobody has it unsettled any more (§2.6.12).
        sends_elsewhere: what a map lacks goes to anybody though its receiver was not heard.
    """

    forgets: Forgets = Forgets.SPOKEN_TO
    numbers: Numbers = Numbers.NONE
    parts: int = 1
    outcomes: tuple[DeliveryState, ...] = (ACCEPTED,)
    deliveries: int = 1
    attaches: int = 3
    home_crashes: int = 0
    dialer_crashes: int = 0
    has_standby: bool = False
    replays: bool = False
    rebinds: bool = False
    shares_tags: bool = False
    sends_elsewhere: bool = False


Frame = tuple[Any, ...]
Map = tuple[tuple[int, DeliveryState | None], ...]
"""By tag, in order; a tuple because states are looked up."""

PART = Received(0, 1)
"""The first part of two is there."""


class Line(NamedTuple):
    """A connection.

    Attributes:
        process: whose it is.
        to_home, to_dialer: frames under way.
        is_read: the home has read from it.
        said: all that was said to the home; only kept where somebody replays.
    """

    process: int
    to_home: tuple[Frame, ...]
    to_dialer: tuple[Frame, ...] = ()
    is_read: bool = False
    said: tuple[Frame, ...] = ()


class Process(NamedTuple):
    """A process that dials.

    Attributes:
        stages: of each delivery: new, unsettled, done; where the dialer receives: "" throughout.
        kept: unsettled map of a dialer that receives.
        line: the connection that it reads from; -1: none.
        is_attached: the answer to its attach was read.
        drawn: the number drawn last.
        epoch: of its numbers.
        is_paused: it does nothing for now.
    """

    stages: tuple[str, ...]
    kept: Map = ()
    line: int = -1
    is_attached: bool = False
    drawn: int = 0
    epoch: int = 1
    is_paused: bool = False


class State(NamedTuple):
    """Everything, between two events.

    Attributes:
        unsettled: at the home, by tag: what it has received, or sent, and how far.
        absent: what the map of the present attach lacks, or is not decided yet, by tag.
        told: where the home sends: what the present map says of those.
        current: the connection on which the link is attached; -1: none.
        greatest: number that the home has seen.
        seen: how often each delivery was acted upon.
        ended: where the home sends: deliveries whose outcome it has told their source.
        waiting: where the home sends: deliveries that may go to anybody.
        bound: where the home sends: the delivery that a tag stands for.
    """

    processes: tuple[Process, ...]
    seen: tuple[int, ...]
    lines: tuple[Line, ...] = ()
    unsettled: Map = ()
    absent: frozenset[int] = frozenset()
    told: Map = ()
    current: int = -1
    greatest: AttachNumber | None = None
    ended: frozenset[int] = frozenset()
    waiting: frozenset[int] = frozenset()
    bound: tuple[tuple[int, int], ...] = ()
    attaches_left: int = 0
    home_crashes_left: int = 0
    dialer_crashes_left: int = 0
    replays_left: int = 0


def with_entry(entries: Map, tag: int, state: DeliveryState | None) -> Map:
    """Gives a map with one entry more, or changed."""
    return tuple(sorted((dict(entries) | {tag: state}).items(), key=lambda each: each[0]))


def without(entries: Map, *tags: int) -> Map:
    """Gives a map that lacks some tags."""
    return tuple(each for each in entries if each[0] not in tags)


class World:
    """What both worlds have in common: connections, attaches, crashes."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules

    # --- what a world adds ------------------------------------------------------------------------

    def work(self, state: State, at: int) -> Iterator[State]:
        """Gives what a process may do by itself on its attached link."""
        raise NotImplementedError

    def map_of(self, process: Process) -> Map:
        """Gives the map that a process tells."""
        raise NotImplementedError

    def answered(self, state: State, at: int, entries: Map) -> State:
        """The dialer has read the home's answer."""
        raise NotImplementedError

    def dialer_reads(self, state: State, at: int, frame: Frame) -> Iterator[State]:
        """The dialer reads anything else."""
        raise NotImplementedError

    def compare(self, state: State, theirs: Map) -> State:
        """The home has read an attach, on what is now the current line."""
        raise NotImplementedError

    def heard(self, state: State) -> State:
        """The dialer has shown that it has read the home's answer."""
        raise NotImplementedError

    def home_reads(self, state: State, frame: Frame) -> Iterator[State]:
        """The home reads anything else on the current line."""
        raise NotImplementedError

    def home_works(self, state: State) -> Iterator[State]:
        """Gives what the home may do by itself."""
        yield from ()

    def lost(self, state: State) -> State:
        """The home notices that the current line is gone."""
        return state

    # --- the start --------------------------------------------------------------------------------

    def begin(self) -> State:
        """Gives the state before the first event."""
        rules = self.rules
        return State(
            processes=(Process(stages=("new",) * rules.deliveries),),
            seen=(0,) * rules.deliveries,
            attaches_left=rules.attaches,
            home_crashes_left=rules.home_crashes,
            dialer_crashes_left=rules.dialer_crashes,
            replays_left=int(rules.replays),
        )

    # --- events -----------------------------------------------------------------------------------

    def following(self, state: State) -> Iterator[State]:
        """Gives every state that one event leads to, misfortunes included."""
        yield from self.progress(state)
        yield from self._misfortunes(state)

    def progress(self, state: State) -> Iterator[State]:
        """Gives what follows if whoever dials goes on with the connection that it has."""
        for at, process in enumerate(state.processes):
            if process.is_paused or process.line < 0:
                continue
            line = state.lines[process.line]
            if line.to_dialer:
                frame, *rest = line.to_dialer
                taken = _set_line(state, process.line, to_dialer=tuple(rest))
                yield from self._dialer_takes(taken, at, frame)
            if process.is_attached:
                yield from self.work(state, at)
        for number, line in enumerate(state.lines):
            if line.to_home:
                frame, *rest = line.to_home
                taken = _set_line(state, number, to_home=tuple(rest), is_read=True)
                yield from self._home_takes(taken, number, frame)
        yield from self.home_works(state)

    def _misfortunes(self, state: State) -> Iterator[State]:
        for at, process in enumerate(state.processes):
            if not process.is_paused and state.attaches_left:
                yield self._dial(state, at)
        if state.home_crashes_left:
            yield self._crash_home(state)
        if state.dialer_crashes_left and not state.processes[0].is_paused:
            yield self._crash_dialer(state)
        if self.rules.has_standby:
            yield from self._stand_by(state)
        if state.replays_left:
            for line in state.lines:
                if line.is_read:
                    again = Line(line.process, line.said, said=line.said)
                    yield state._replace(
                        lines=(*state.lines, again), replays_left=state.replays_left - 1
                    )

    def _dial(self, state: State, at: int) -> State:
        """A process gives its connection up, and attaches on another."""
        process = state.processes[at]
        if process.line >= 0:
            state = _set_line(state, process.line, to_dialer=())
        number = self._draw(state, process)
        said: tuple[Frame, ...] = (("attach", number, self.map_of(process)), ("flow", False))
        line = Line(at, said, said=said if self.rules.replays else ())
        state = state._replace(lines=(*state.lines, line), attaches_left=state.attaches_left - 1)
        drawn = process.drawn if number is None else number.n
        return _set_process(state, at, line=len(state.lines) - 1, is_attached=False, drawn=drawn)

    def _draw(self, state: State, process: Process) -> AttachNumber | None:
        match self.rules.numbers:
            case Numbers.NONE:
                return None
            case Numbers.LOCAL:
                return AttachNumber(1, process.drawn + 1)
            case _:
                return AttachNumber(process.epoch, process.drawn + 1)

    def _dialer_takes(self, state: State, at: int, frame: Frame) -> Iterator[State]:
        if frame[0] == "refused":
            yield _set_process(state, at, line=-1, is_attached=False)
        elif frame[0] == "attach":
            state = _set_process(state, at, is_attached=True)
            state = self.say(state, at, ("flow", True))
            yield self.answered(state, at, frame[1])
        else:
            yield from self.dialer_reads(state, at, frame)

    def _home_takes(self, state: State, number: int, frame: Frame) -> Iterator[State]:
        if frame[0] == "attach":
            _, told, theirs = frame
            if is_late(told, state.greatest):
                yield self.tell(state, number, ("refused",))
                return
            if told is not None:
                state = state._replace(greatest=told)
            state = state._replace(current=number, absent=frozenset(), told=())
            yield self.compare(state, theirs)
        elif number != state.current:
            yield state  # the link was stolen from there
        else:
            is_proof = frame != ("flow", False) or self.rules.forgets is Forgets.ANY_FRAME
            if is_proof:
                state = self.heard(state)
            if frame[0] == "flow":
                yield state
            else:
                yield from self.home_reads(state, frame)

    def _crash_home(self, state: State) -> State:
        """All that it had a connection for is cut; what is held up arrives later."""
        state = self.lost(state)
        lines = tuple(
            each._replace(to_home=(), to_dialer=()) if each.is_read else each
            for each in state.lines
        )
        is_lost = self.rules.numbers is Numbers.LOST_BY_HOME
        return state._replace(
            lines=lines,
            current=-1,
            absent=frozenset(),
            told=(),
            greatest=None if is_lost else state.greatest,
            home_crashes_left=state.home_crashes_left - 1,
        )

    def _crash_dialer(self, state: State) -> State:
        process = state.processes[0]
        if process.line >= 0:
            state = _set_line(state, process.line, to_dialer=())
        is_lost = self.rules.numbers is Numbers.LOST_BY_DIALER
        drawn = 0 if is_lost else process.drawn
        state = _set_process(state, 0, line=-1, is_attached=False, drawn=drawn)
        return state._replace(dialer_crashes_left=state.dialer_crashes_left - 1)

    def _stand_by(self, state: State) -> Iterator[State]:
        """Another process takes over what is durable; the first is paused, and wakes up later."""
        first = state.processes[0]
        if len(state.processes) == 1:
            drawn = 0 if self.rules.numbers is Numbers.LOCAL else first.drawn
            second = Process(first.stages, first.kept, drawn=drawn, epoch=first.epoch + 1)
            yield state._replace(processes=(first._replace(is_paused=True), second))
        elif first.is_paused:
            yield _set_process(state, 0, is_paused=False)

    # --- saying -----------------------------------------------------------------------------------

    def say(self, state: State, at: int, *frames: Frame) -> State:
        """A process says something on its connection."""
        number = state.processes[at].line
        line = state.lines[number]
        state = _set_line(state, number, to_home=line.to_home + frames)
        if self.rules.replays:
            state = _set_line(state, number, said=line.said + frames)
        return state

    @staticmethod
    def tell(state: State, number: int, *frames: Frame) -> State:
        """The home says something; whoever has given the connection up does not read it."""
        line = state.lines[number]
        if state.processes[line.process].line != number:
            return state
        return _set_line(state, number, to_dialer=line.to_dialer + frames)

    def transfers(self, tag: int, action: Action) -> tuple[Frame, ...]:
        """Gives the frames by which a delivery is sent, anew or from where it is missing."""
        kind = "anew" if isinstance(action, SendAnew) else "resume"
        has_first = isinstance(action, ResumeFrom) and action.position == PART
        parts = range(int(has_first), self.rules.parts)
        return tuple((kind, tag, part, part == self.rules.parts - 1) for part in parts)

    # --- what must hold ---------------------------------------------------------------------------

    def check(self, state: State) -> None:
        """Checks what must hold in every state.

        Raises:
            Violation: it does not.
        """
        for delivery, times in enumerate(state.seen):
            if times > 1:
                raise Violation("NoDuplicate", f"{delivery} was acted upon {times} times")
            if self.is_told(state, delivery) and not times:
                raise Violation("NoLoss", f"the source was told of {delivery}, nobody has it")

    def is_told(self, state: State, delivery: int) -> bool:
        """Tells whether whoever sent a delivery knows how it ended."""
        raise NotImplementedError

    def check_rest(self, state: State) -> bool:
        """Checks that all deliveries end where the last attach has come through; tells whether.

        Raises:
            Violation: one does not.
        """
        last = state.processes[-1]
        if last.line < 0 or last.line != state.current or not last.is_attached:
            return False
        for delivery in range(self.rules.deliveries):
            if not self.is_told(state, delivery):
                raise Violation("Ends", f"{delivery} rests without an end")
        if state.unsettled or last.kept:
            raise Violation("Ends", f"{state.unsettled}, {last.kept} rest unsettled")
        return True


def may_write(state: State, at: int) -> bool:
    """Tells whether a process has the dialer's journal, or another has taken it over."""
    return at == len(state.processes) - 1


def _set_line(state: State, number: int, **changes: Any) -> State:
    lines = list(state.lines)
    lines[number] = lines[number]._replace(**changes)
    return state._replace(lines=tuple(lines))


def _set_process(state: State, at: int, **changes: Any) -> State:
    processes = list(state.processes)
    processes[at] = processes[at]._replace(**changes)
    return state._replace(processes=tuple(processes))


def _set_stage(state: State, at: int, delivery: int, stage: str) -> State:
    stages = list(state.processes[at].stages)
    stages[delivery] = stage
    return _set_process(state, at, stages=tuple(stages))


def _count(state: State, delivery: int) -> State:
    seen = list(state.seen)
    seen[delivery] += 1
    return state._replace(seen=tuple(seen))


class Sending(World):
    """The dialer sends; deliveries are their own tags."""

    def map_of(self, process: Process) -> Map:
        return tuple((k, None) for k, stage in enumerate(process.stages) if stage == "unsettled")

    def work(self, state: State, at: int) -> Iterator[State]:
        """Sends the next new delivery."""
        stages = state.processes[at].stages
        if "new" in stages and may_write(state, at):
            delivery = stages.index("new")
            state = _set_stage(state, at, delivery, "unsettled")
            yield self.say(state, at, *self.transfers(delivery, SendAnew()))

    def answered(self, state: State, at: int, entries: Map) -> State:
        theirs = dict(entries)
        for tag, _ in self.map_of(state.processes[at]):
            found: DeliveryState | Absent | None = theirs.get(tag, ABSENT)
            action = resume(None, found)
            if not isinstance(action, Settle):
                state = self.say(state, at, *self.transfers(tag, action))
            elif may_write(state, at):
                state = self._settle(state, at, tag)
        return state

    def _settle(self, state: State, at: int, delivery: int) -> State:
        return self.say(_set_stage(state, at, delivery, "done"), at, ("settle", delivery))

    def dialer_reads(self, state: State, at: int, frame: Frame) -> Iterator[State]:
        _, delivery, _ = frame
        if state.processes[at].stages[delivery] == "done":
            raise Violation("SettleOnce", f"the source hears twice of {delivery}")
        yield self._settle(state, at, delivery) if may_write(state, at) else state

    def compare(self, state: State, theirs: Map) -> State:
        absent = frozenset(lacking([tag for tag, _ in state.unsettled], dict(theirs)))
        if self.rules.forgets is Forgets.AT_ONCE:
            state = state._replace(unsettled=without(state.unsettled, *absent))
        else:
            state = state._replace(absent=absent)
        return self.tell(state, state.current, ("attach", without(state.unsettled, *absent)))

    def heard(self, state: State) -> State:
        return state._replace(unsettled=without(state.unsettled, *state.absent), absent=frozenset())

    def home_reads(self, state: State, frame: Frame) -> Iterator[State]:
        kind, tag, *_ = frame
        if kind == "settle":
            yield state._replace(unsettled=without(state.unsettled, tag))
            return
        _, _, part, is_last = frame
        here = dict(state.unsettled)
        if kind == "resume" and tag not in here:
            yield state  # not known, so it is ignored (§2.7.5)
        elif kind == "resume" and here[tag] != PART:
            yield self.tell(state, state.current, ("outcome", tag, here[tag]))
        elif not is_last:
            yield state._replace(unsettled=with_entry(state.unsettled, tag, PART))
        elif part and here.get(tag) != PART:
            yield state  # its beginning came by another attachment: it was voided there
        else:
            for outcome in self.rules.outcomes:
                decided = state._replace(unsettled=with_entry(state.unsettled, tag, outcome))
                decided = _count(decided, tag)
                yield self.tell(decided, state.current, ("outcome", tag, outcome))

    def is_told(self, state: State, delivery: int) -> bool:
        return any(process.stages[delivery] == "done" for process in state.processes)


class Receiving(World):
    """The home sends to the dialer, or to another receiver that takes things at once."""

    def begin(self) -> State:
        return super().begin()._replace(waiting=frozenset(range(self.rules.deliveries)))

    def tag_of(self, delivery: int) -> int:
        """Gives the tag of a delivery."""
        return 0 if self.rules.shares_tags else delivery

    def map_of(self, process: Process) -> Map:
        return process.kept

    def work(self, state: State, at: int) -> Iterator[State]:
        yield from ()

    def home_works(self, state: State) -> Iterator[State]:
        """Sends the next delivery to the dialer, or to the other receiver; a source settles."""
        yield from self._send_what_is_lacking(state)
        for tag, ours in state.unsettled:
            if is_outcome(ours) and tag not in state.absent:
                settled = state._replace(unsettled=without(state.unsettled, tag))
                if state.current >= 0:
                    settled = self.tell(settled, state.current, ("settle", tag))
                yield settled
        if not state.waiting:
            return
        delivery = min(state.waiting)
        rest = state._replace(waiting=state.waiting - {delivery})
        yield _count(rest, delivery)._replace(ended=state.ended | {delivery})
        tag = self.tag_of(delivery)
        if state.current >= 0 and self._is_free(state, tag):
            rest = rest._replace(
                unsettled=with_entry(state.unsettled, tag, None),
                bound=_bound(state, tag, delivery),
            )
            yield self.tell(rest, state.current, *self._deliver(delivery, SendAnew()))

    def _send_what_is_lacking(self, state: State) -> Iterator[State]:
        """Sends again what a map lacks, on credit that may have been pipelined with it."""
        told, ours = dict(state.told), dict(state.unsettled)
        for tag in sorted(state.absent):
            action = resume(ours[tag], told.get(tag, ABSENT))
            if isinstance(action, SendAnew):
                rest = state._replace(absent=state.absent - {tag})
                if self.rules.sends_elsewhere:
                    yield self._decide(rest, tag, action)
                else:
                    yield self._send_again(rest, tag, action)

    def _is_free(self, state: State, tag: int) -> bool:
        """Tells whether nobody has a tag unsettled, or may have."""
        if tag in dict(state.unsettled):
            return False
        under_way = any(
            frame[:2] == ("settle", tag) for line in state.lines for frame in line.to_dialer
        )
        return not under_way and all(tag not in dict(each.kept) for each in state.processes)

    def _deliver(self, delivery: int, action: Action) -> tuple[Frame, ...]:
        """Gives the transfers of a delivery; the message tells which one it is."""
        sent = self.transfers(self.tag_of(delivery), action)
        return tuple((*frame, delivery) for frame in sent)

    def compare(self, state: State, theirs: Map) -> State:
        known = dict(theirs)
        state = self.tell(state, state.current, ("attach", state.unsettled))
        for tag, ours in state.unsettled:
            found: DeliveryState | Absent | None = known.get(tag, ABSENT)
            action = resume(ours, found)
            waits = self.rules.forgets is not Forgets.AT_ONCE
            if not waits:
                state = self._decide(state, tag, action)
            elif isinstance(action, SendAnew) or not may_be_done_unconfirmed(ours, action):
                told = state.told
                if not isinstance(found, Absent):
                    told = with_entry(told, tag, found)
                state = state._replace(absent=state.absent | {tag}, told=told)
            else:
                state = self._send_again(state, tag, action)
        return state

    def _send_again(self, state: State, tag: int, action: Action) -> State:
        if isinstance(action, Settle | Restate):
            return state  # our outcome is named, and stands until its source has settled
        delivery = dict(state.bound)[tag]
        return self.tell(state, state.current, *self._deliver(delivery, action))

    def _decide(self, state: State, tag: int, action: Action) -> State:
        """Does what follows from a map, for good."""
        delivery = dict(state.bound)[tag]
        match action:
            case SendAnew():
                state = state._replace(unsettled=without(state.unsettled, tag))
                return state._replace(waiting=state.waiting | {delivery})
            case Settle(outcome=outcome):
                return self._end(state, tag, outcome)
            case Forget():
                return state._replace(unsettled=without(state.unsettled, tag))
            case Abort():
                state = state._replace(unsettled=without(state.unsettled, tag))
                return self.tell(state, state.current, ("settle", tag))
            case _:
                return self._send_again(state, tag, action)

    def _end(self, state: State, tag: int, outcome: DeliveryState) -> State:
        """The outcome is told to its source; the receiver is settled when that has."""
        if is_outcome(dict(state.unsettled)[tag]):
            return state
        return state._replace(
            unsettled=with_entry(state.unsettled, tag, outcome),
            ended=state.ended | {dict(state.bound)[tag]},
        )

    def heard(self, state: State) -> State:
        waited, told, ours = state.absent, dict(state.told), dict(state.unsettled)
        state = state._replace(absent=frozenset(), told=())
        for tag in sorted(waited):
            if tag in ours:
                state = self._decide(state, tag, resume(ours[tag], told.get(tag, ABSENT)))
        return state

    def home_reads(self, state: State, frame: Frame) -> Iterator[State]:
        _, tag, outcome = frame
        yield self._end(state, tag, outcome) if tag in dict(state.unsettled) else state

    def answered(self, state: State, at: int, entries: Map) -> State:
        kept, theirs = state.processes[at].kept, dict(entries)
        gone = [tag for tag, _ in kept if tag not in theirs]
        return _set_process(state, at, kept=without(kept, *gone))

    def dialer_reads(self, state: State, at: int, frame: Frame) -> Iterator[State]:
        kind, tag, *more = frame
        kept = state.processes[at].kept
        if kind == "settle":
            yield _set_process(state, at, kept=without(kept, tag))
            return
        part, is_last, delivery = more
        here = dict(kept)
        if kind == "resume" and tag not in here:
            yield state
        elif here.get(tag) is not None and here[tag] != PART:
            yield self.say(state, at, ("outcome", tag, here[tag]))  # it has decided
        elif not is_last:
            yield _set_process(state, at, kept=with_entry(kept, tag, PART))
        elif part and here.get(tag) != PART:
            yield state
        else:
            for outcome in self.rules.outcomes:
                decided = _set_process(state, at, kept=with_entry(kept, tag, outcome))
                decided = _count(decided, delivery)
                yield self.say(decided, at, ("outcome", tag, outcome))

    def lost(self, state: State) -> State:
        if not self.rules.rebinds:
            return state
        bound = dict(state.bound)
        lost = [tag for tag, ours in state.unsettled if not is_outcome(ours)]
        again = {bound[tag] for tag in lost}
        left = without(state.unsettled, *lost)
        return state._replace(unsettled=left, waiting=state.waiting | again)

    def is_told(self, state: State, delivery: int) -> bool:
        return delivery in state.ended


def _bound(state: State, tag: int, delivery: int) -> tuple[tuple[int, int], ...]:
    return tuple(sorted((dict(state.bound) | {tag: delivery}).items()))


@attrs.define
class Explored:
    """What a search has covered.

    Attributes:
        states: how many different ones.
        rests: how many of them at rest with the last attach come through.
    """

    states: int = 0
    rests: int = 0


class Explorable(Protocol):
    """A world of states, which can be looked up, and of the events that lead from one to others."""

    def begin(self) -> Any:
        """Gives the state before the first event."""

    def following(self, state: Any) -> Iterator[Any]:
        """Gives every state that one event leads to."""

    def progress(self, state: Any) -> Iterator[Any]:
        """Gives those of them that nothing bad leads to."""

    def check(self, state: Any) -> None:
        """Checks what must hold in every state."""

    def check_rest(self, state: Any) -> bool:
        """Checks what must hold where nothing goes on by itself; tells whether all has ended."""


def explore(world: Explorable) -> Explored:
    """Visits every state that can be reached, breadth first.

    Raises:
        Violation: an invariant does not hold in one of them; it is one that is soon reached.
    """
    explored = Explored()
    start = world.begin()
    visited, waiting = {start}, deque([start])
    while waiting:
        state = waiting.popleft()
        world.check(state)
        explored.states += 1
        if next(world.progress(state), None) is None:
            explored.rests += world.check_rest(state)
        for after in world.following(state):
            if after not in visited:
                visited.add(after)
                waiting.append(after)
    return explored


BOTH_OUTCOMES = (ACCEPTED, REJECTED)
