"""A small model of exactly-once between sites, for exploring every order of events.

An *ingress* has deliveries for whichever of two *egresses*. It attaches chains to them, each by a
path of its own through transits, with its next number and the map of what is bound to that egress::

    ingress --[attach, transfers, settlements]--> egress         any chain's head, at any time
            <--[answer or refusal, outcomes]--                   that of the chain attached last

What was said on an old chain arrives later, in its order, though the ingress reads it no more: a
transit was slow, or paused. A transit may also crash: then what it holds is gone, and both ends
hear of it. Either end may crash; what it knows by its journal it knows again. The ingress may be
taken over by a standby while it is paused; it wakes up and goes on with what it remembers.

What is done about a delivery when the maps are compared is decided by the real ``links.recovery``,
and which attach is late by the real ``links.attaches``. What depends on it are ``Rules``: each may
be broken to see what it is good for. An egress acts at once and for good on what it accepts or
rejects, and on nothing that it releases.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import attrs

from router.links.attaches import AttachNumber, is_late, lacking
from router.links.recovery import ABSENT, Absent, ResumeFrom, SendAnew, Settle, resume
from router.model.outcome import ACCEPTED, RELEASED, DeliveryState, Received, is_outcome
from tests.support.journal_model import Violation

EGRESSES = 2

Frame = tuple[Any, ...]
Map = tuple[tuple[int, DeliveryState | None], ...]

PART = Received(0, 1)
"""The first part of two is there."""


@attrs.frozen(kw_only=True)
class Rules:
    """What happens, and what is broken.

    Attributes:
        deliveries, attaches, ingress_crashes, egress_crashes, cuts: how many at most; a cut is the
            crash of a transit, or a lost line.
        parts: of each delivery.
        outcomes: an egress chooses among them.
        has_standby: see the head of the module.
        numbers_attaches: the ingress numbers its attaches.
        keeps_number: an egress knows the greatest number after its crash.
        raises_epoch: who takes the ingress over begins a greater epoch.
        binds: that a delivery is bound to an egress is durable before it is sent.
        waits_for_answer: deliveries are sent only when the attach is answered.
        detaches_older: an egress ignores what comes on a chain that a later one has replaced.
        settles_last: an egress keeps what it has decided until the ingress has settled it.
        never_expires: an egress keeps what is unsettled though its chain is lost.
        waits_for_egress: what was sent goes to another egress only by the rules.
        transit_is_dumb: a transit does not attach by itself again and repeat what it has passed on.
        believes_present_answer: only the answer to the attach sent last says what an egress lacks.
    """

    deliveries: int = 1
    attaches: int = 3
    ingress_crashes: int = 0
    egress_crashes: int = 0
    cuts: int = 0
    parts: int = 1
    outcomes: tuple[DeliveryState, ...] = (ACCEPTED,)
    has_standby: bool = False
    numbers_attaches: bool = True
    keeps_number: bool = True
    raises_epoch: bool = True
    binds: bool = True
    waits_for_answer: bool = True
    detaches_older: bool = True
    settles_last: bool = True
    never_expires: bool = True
    waits_for_egress: bool = True
    transit_is_dumb: bool = True
    believes_present_answer: bool = True


class Chain(NamedTuple):
    """One attachment, by some path.

    Attributes:
        process: of the ingress, that attached it.
        egress: where it ends.
        to_egress, to_ingress: frames under way.
        said: what a transit remembers, if it repeats that.
    """

    process: int
    egress: int
    to_egress: tuple[Frame, ...]
    to_ingress: tuple[Frame, ...] = ()
    said: tuple[Frame, ...] = ()


class Process(NamedTuple):
    """A process of the ingress.

    Attributes:
        stages: of each delivery: "new", its egress, or its outcome when the source was told that.
        chains: those attached last, by egress; -1: none.
        answered: of them, those whose answer was read.
        epoch, drawn: of its numbers.
        is_paused: it does nothing for now.
    """

    stages: tuple[Any, ...]
    chains: tuple[int, ...] = (-1,) * EGRESSES
    answered: tuple[bool, ...] = (False,) * EGRESSES
    epoch: int = 1
    drawn: int = 0
    is_paused: bool = False


class Egress(NamedTuple):
    """A router with receivers.

    Attributes:
        unsettled: what it has received and the ingress has not settled, and how far.
        greatest: number that it has seen.
        current: its chain; -1: none.
    """

    unsettled: Map = ()
    greatest: AttachNumber | None = None
    current: int = -1


class State(NamedTuple):
    """Everything, between two events; ``acts``: how often each delivery was acted upon."""

    processes: tuple[Process, ...]
    acts: tuple[int, ...]
    egresses: tuple[Egress, ...] = (Egress(),) * EGRESSES
    chains: tuple[Chain, ...] = ()
    attaches_left: int = 0
    ingress_crashes_left: int = 0
    egress_crashes_left: int = 0
    cuts_left: int = 0


class Paths:
    """The world of one ingress, two egresses, and any paths between them."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules

    def begin(self) -> State:
        """Gives the state before the first event."""
        rules = self.rules
        return State(
            processes=(Process(("new",) * rules.deliveries),),
            acts=(0,) * rules.deliveries,
            attaches_left=rules.attaches,
            ingress_crashes_left=rules.ingress_crashes,
            egress_crashes_left=rules.egress_crashes,
            cuts_left=rules.cuts,
        )

    # --- events -----------------------------------------------------------------------------------

    def following(self, state: State) -> Iterator[State]:
        """Gives every state that one event leads to."""
        yield from self.progress(state)
        yield from self._misfortunes(state)

    def progress(self, state: State) -> Iterator[State]:
        """Gives what follows if nothing bad happens and nobody attaches."""
        for at, process in enumerate(state.processes):
            if not process.is_paused:
                yield from self._works(state, at)
        for number, chain in enumerate(state.chains):
            if chain.to_egress:
                frame, *rest = chain.to_egress
                taken = _set(state, "chains", number, to_egress=tuple(rest))
                yield from self._egress_reads(taken, number, frame)

    def _misfortunes(self, state: State) -> Iterator[State]:
        for at, process in enumerate(state.processes):
            if state.attaches_left and not process.is_paused:
                for egress in range(EGRESSES):
                    yield self._attach(state, at, egress)
        if state.cuts_left:
            for number in range(len(state.chains)):
                yield self._cut(state, number)._replace(cuts_left=state.cuts_left - 1)
        if state.egress_crashes_left:
            for egress in range(EGRESSES):
                yield self._crash_egress(state, egress)
        if state.ingress_crashes_left and not state.processes[0].is_paused:
            yield self._crash_ingress(state)
        if self.rules.has_standby:
            yield from self._stand_by(state)

    # --- the ingress ------------------------------------------------------------------------------

    def _attach(self, state: State, at: int, egress: int) -> State:
        """A process attaches a chain by some path; it reads the one before no more."""
        process = state.processes[at]
        drawn = process.drawn + 1
        number = AttachNumber(process.epoch, drawn) if self.rules.numbers_attaches else None
        entries = tuple((k, None) for k, stage in enumerate(process.stages) if stage == egress)
        frame = ("attach", number, entries)
        chain = Chain(at, egress, (frame,), said=(frame,) if not self.rules.transit_is_dumb else ())
        state = state._replace(chains=(*state.chains, chain), attaches_left=state.attaches_left - 1)
        return _set(
            state,
            "processes",
            at,
            drawn=drawn,
            chains=_with(process.chains, egress, len(state.chains) - 1),
            answered=_with(process.answered, egress, False),
        )

    def _works(self, state: State, at: int) -> Iterator[State]:
        """A process sends something new, or reads on a chain."""
        process = state.processes[at]
        for egress, number in enumerate(process.chains):
            is_open = process.answered[egress] or not self.rules.waits_for_answer
            if number >= 0 and is_open and may_write(state, at) and "new" in process.stages:
                delivery = process.stages.index("new")
                bound = _set_stage(state, at, delivery, egress)
                yield self._say(bound, number, *self._transfers(delivery, SendAnew()))
        for number, chain in enumerate(state.chains):
            is_last = process.chains[chain.egress] == number
            if chain.process != at or not chain.to_ingress:
                continue
            if not is_last and self.rules.believes_present_answer:
                continue
            frame, *rest = chain.to_ingress
            taken = _set(state, "chains", number, to_ingress=tuple(rest))
            yield self._ingress_reads(taken, at, number, frame)

    def _ingress_reads(self, state: State, at: int, number: int, frame: Frame) -> State:
        egress = state.chains[number].egress
        process = state.processes[at]
        match frame:
            case ("answer", entries):
                answered = _with(process.answered, egress, True)
                state = _set(state, "processes", at, answered=answered)
                return self._compare(state, at, number, dict(entries))
            case ("outcome", delivery, outcome):
                return self._decided(state, at, number, delivery, outcome)
            case _:  # refused, or lost
                chains = process.chains
                if chains[egress] == number:
                    chains = _with(chains, egress, -1)
                return _set(state, "processes", at, chains=chains)

    def _compare(
        self, state: State, at: int, number: int, theirs: dict[int, DeliveryState | None]
    ) -> State:
        """Does about each delivery what the answer's map says."""
        egress = state.chains[number].egress
        for delivery, stage in enumerate(state.processes[at].stages):
            if stage != egress or isinstance(stage, str):
                continue
            found: DeliveryState | Absent | None = theirs.get(delivery, ABSENT)
            action = resume(None, found)
            if isinstance(action, Settle):
                state = self._decided(state, at, number, delivery, action.outcome)
            elif isinstance(action, SendAnew) and may_write(state, at):
                state = _set_stage(state, at, delivery, "new")  # rule (c): to any egress
            else:
                state = self._say(state, number, *self._transfers(delivery, action))
        return state

    def _decided(
        self, state: State, at: int, number: int, delivery: int, outcome: DeliveryState
    ) -> State:
        """An egress has said how a delivery ended: the source is told, and the egress settled."""
        stage = state.processes[at].stages[delivery]
        if not may_write(state, at):
            return state
        if is_outcome(stage):
            raise Violation("SettleOnce", f"the source hears twice of {delivery}")
        if stage != state.chains[number].egress:
            return state
        after = "new" if outcome == RELEASED else outcome  # rule (b)
        return self._say(_set_stage(state, at, delivery, after), number, ("settle", delivery))

    # --- an egress --------------------------------------------------------------------------------

    def _egress_reads(self, state: State, number: int, frame: Frame) -> Iterator[State]:
        at = state.chains[number].egress
        egress = state.egresses[at]
        match frame:
            case ("attach", told, entries):
                if is_late(told, egress.greatest):
                    yield self._tell(state, number, ("refused",))
                    return
                gone = lacking([key for key, _ in egress.unsettled], dict(entries))
                left = _without(egress.unsettled, *gone)
                greatest = told or egress.greatest
                state = _set(
                    state, "egresses", at, greatest=greatest, current=number, unsettled=left
                )
                yield self._tell(state, number, ("answer", left))
            case _ if number != egress.current and self.rules.detaches_older:
                yield state
            case ("settle", delivery):
                left = _without(egress.unsettled, delivery)
                yield _set(state, "egresses", at, unsettled=left)
            case _:
                yield from self._takes(state, number, frame)

    def _takes(self, state: State, number: int, frame: Frame) -> Iterator[State]:
        """An egress is sent a part of a delivery."""
        kind, delivery, part, is_last = frame
        at = state.chains[number].egress
        unsettled = state.egresses[at].unsettled
        here = dict(unsettled)
        ours: DeliveryState | Absent | None = here.get(delivery, ABSENT)
        if kind == "resume" and isinstance(ours, Absent):
            yield state  # not known, so it is ignored (§2.7.5)
        elif not isinstance(ours, Absent) and is_outcome(ours):
            yield self._tell(state, number, ("outcome", delivery, ours))
        elif not is_last:
            entries = _with_entry(unsettled, delivery, PART)
            yield _set(state, "egresses", at, unsettled=entries)
        elif part and ours != PART:
            yield state  # its beginning came by another chain: it was voided there
        else:
            for outcome in self.rules.outcomes:
                entries = _with_entry(unsettled, delivery, outcome)
                if not self.rules.settles_last:
                    entries = _without(entries, delivery)
                decided = _set(state, "egresses", at, unsettled=entries)
                if outcome != RELEASED:
                    decided = decided._replace(
                        acts=_with(decided.acts, delivery, decided.acts[delivery] + 1)
                    )
                yield self._tell(decided, number, ("outcome", delivery, outcome))

    # --- misfortunes ------------------------------------------------------------------------------

    def _cut(self, state: State, number: int) -> State:
        """What is on the path of a chain is gone, and both ends hear of it."""
        chain = state.chains[number]
        state = _set(state, "chains", number, to_egress=(), to_ingress=())
        if not self.rules.transit_is_dumb:
            state = _set(state, "chains", number, to_egress=chain.said)
        state = self._egress_lost(state, chain.egress, number)
        process = state.processes[chain.process]
        if process.chains[chain.egress] == number:
            lost = _with(process.chains, chain.egress, -1)
            state = _set(state, "processes", chain.process, chains=lost)
            if not self.rules.waits_for_egress:
                state = self._unbind(state, chain.process, chain.egress)
        return state

    def _unbind(self, state: State, at: int, egress: int) -> State:
        stages = tuple("new" if each == egress else each for each in state.processes[at].stages)
        return _set(state, "processes", at, stages=stages)

    def _egress_lost(self, state: State, at: int, number: int) -> State:
        egress = state.egresses[at]
        if egress.current != number:
            return state
        left = egress.unsettled if self.rules.never_expires else ()
        return _set(state, "egresses", at, current=-1, unsettled=left)

    def _crash_egress(self, state: State, at: int) -> State:
        """All that it had chains for is cut; attaches that are held up arrive later."""
        for number, chain in enumerate(state.chains):
            is_unread = bool(chain.to_egress) and chain.to_egress[0][0] == "attach"
            if chain.egress == at and not is_unread:
                state = self._cut(state, number)
        greatest = state.egresses[at].greatest if self.rules.keeps_number else None
        state = _set(state, "egresses", at, current=-1, greatest=greatest)
        return state._replace(egress_crashes_left=state.egress_crashes_left - 1)

    def _crash_ingress(self, state: State) -> State:
        process = state.processes[0]
        stages = process.stages
        if not self.rules.binds:
            stages = tuple("new" if isinstance(each, int) else each for each in stages)
        process = Process(stages, epoch=process.epoch, drawn=process.drawn)
        return state._replace(
            processes=(process, *state.processes[1:]),
            ingress_crashes_left=state.ingress_crashes_left - 1,
        )

    def _stand_by(self, state: State) -> Iterator[State]:
        """Another process takes over what is durable; the first is paused, and wakes up later."""
        first = state.processes[0]
        if len(state.processes) == 1:
            raises = self.rules.raises_epoch
            second = Process(first.stages, epoch=first.epoch + raises, drawn=0)
            yield state._replace(processes=(first._replace(is_paused=True), second))
        elif first.is_paused:
            yield _set(state, "processes", 0, is_paused=False)

    # --- saying -----------------------------------------------------------------------------------

    def _say(self, state: State, number: int, *frames: Frame) -> State:
        """The ingress says something on a chain; on one that was cut nothing arrives."""
        chain = state.chains[number]
        if state.processes[chain.process].chains[chain.egress] != number:
            return state
        state = _set(state, "chains", number, to_egress=chain.to_egress + frames)
        if not self.rules.transit_is_dumb:
            state = _set(state, "chains", number, said=chain.said + frames)
        return state

    def _tell(self, state: State, number: int, *frames: Frame) -> State:
        """An egress says something on a chain; who has given the chain up does not read it."""
        chain = state.chains[number]
        is_read = state.processes[chain.process].chains[chain.egress] == number
        if not is_read and self.rules.believes_present_answer:
            return state
        return _set(state, "chains", number, to_ingress=chain.to_ingress + frames)

    def _transfers(self, delivery: int, action: object) -> tuple[Frame, ...]:
        kind = "anew" if isinstance(action, SendAnew) else "resume"
        has_first = isinstance(action, ResumeFrom) and action.position == PART
        last = self.rules.parts - 1
        return tuple(
            (kind, delivery, part, part == last) for part in range(int(has_first), last + 1)
        )

    # --- what must hold ---------------------------------------------------------------------------

    def check(self, state: State) -> None:
        """Checks what must hold in every state.

        Raises:
            Violation: it does not.
        """
        for delivery, times in enumerate(state.acts):
            if times > 1:
                raise Violation("NoDuplicate", f"{delivery} was acted upon {times} times")
            if is_told(state, delivery) and not times:
                raise Violation("NoLoss", f"the source was told of {delivery}, nobody has it")

    def check_rest(self, state: State) -> bool:
        """Checks that at rest each delivery has ended, is listed in doubt, or has no egress yet.

        Raises:
            Violation: one does not.
        """
        last = state.processes[-1]
        is_open = [
            number >= 0 and last.answered[at] and state.egresses[at].current == number
            for at, number in enumerate(last.chains)
        ]
        for delivery, stage in enumerate(last.stages):
            if isinstance(stage, int) and is_open[stage]:
                raise Violation("Ends", f"{delivery} rests at an egress that can be reached")
            if stage == "new" and any(is_open):
                raise Violation("Ends", f"{delivery} rests unsent")
        for at, egress in enumerate(state.egresses):
            if is_open[at] and egress.unsettled:
                raise Violation("Ends", f"{egress.unsettled} rests unsettled")
        return all(is_outcome(stage) for stage in last.stages)


def is_told(state: State, delivery: int) -> bool:
    """Tells whether the source of a delivery knows how it ended."""
    return any(is_outcome(each.stages[delivery]) for each in state.processes)


def may_write(state: State, at: int) -> bool:
    """Tells whether a process has the ingress's journal, or another has taken it over."""
    return at == len(state.processes) - 1


def _with(values: tuple[Any, ...], at: int, value: object) -> tuple[Any, ...]:
    return (*values[:at], value, *values[at + 1 :])


def _with_entry(entries: Map, key: int, state: DeliveryState | None) -> Map:
    return tuple(sorted((dict(entries) | {key: state}).items(), key=lambda each: each[0]))


def _without(entries: Map, *keys: int) -> Map:
    return tuple(each for each in entries if each[0] not in keys)


def _set(state: State, where: str, at: int, **changes: Any) -> State:
    values = getattr(state, where)
    changed: dict[str, Any] = {where: _with(values, at, values[at]._replace(**changes))}
    return state._replace(**changed)


def _set_stage(state: State, at: int, delivery: int, stage: object) -> State:
    stages = _with(state.processes[at].stages, delivery, stage)
    return _set(state, "processes", at, stages=stages)
