"""A small model of a source, the router and a target, for exploring every order of events.

The router's memory is the real one: its records are written, cut and replayed by the journal's own
code, whether it lives or has just come back from a crash. What it decides from that memory is the
few rules of INVARIANTS.md, each of which can be switched off to see what it is good for.

    source --[transfers, settlements]--> router --[transfers, settlements]--> target
           <--[outcomes]---------------        <--[outcomes]----------------

Channels are first in, first out, and lose all they hold when their connection is cut. What is
explored, each wherever it is possible: handing over the head of a channel; each single step of the
router; cutting either connection; a crash that keeps any part of what was not safe. The source and
the target keep their memories, as the guarantee supposes.
"""

import enum
import functools
from collections.abc import Iterator
from typing import NamedTuple

import attrs

from router.journal.block import salted
from router.journal.record import OutcomeCode, RecordFlag, RecordKind, Resolution
from router.journal.segment import segment_head, segment_header
from router.journal.unsettled import SendingStage
from router.journal.writer import RecordWriter
from tests.support.journal import SOURCE, START_NS, TARGET, key, remembered

SALT = 0x5A175A17


class Safety(enum.IntEnum):
    """How safe a record must be before what depends on it is done."""

    APPENDED = 0
    HANDED_IN = 1
    DURABLE = 2


class TargetKind(enum.Enum):
    """What the target can tell, and what the router does about what it cannot."""

    RESUMES = "resumes"
    DEDUPLICATES = "deduplicates"
    NEITHER_HOLD = "neither, hold"
    NEITHER_RESEND = "neither, resend"


@attrs.frozen(kw_only=True)
class Rules:
    """The rules of INVARIANTS.md, and what happens to the router.

    Attributes:
        target: see ``TargetKind``.
        send_when: DurableBeforeSend: how safe SENT is when the transfer goes.
        answer_when: OutcomeBeforeAnswer: how safe OUTCOME is when the source hears it.
        settle_when: OutcomeBeforeSettle: how safe OUTCOME is when the target is settled with;
            None: it is settled with after the source has settled.
        waits_for_source: SettleSecond: a delivery is settled when its sender has settled.
        crash_keeps: what a crash leaves for certain: HANDED_IN when the worker is killed, DURABLE
            when the machine stops.
        person: what somebody says about a delivery that is held; None if nobody does.
        deliveries: how many the source sends.
        crashes: how many at most.
        cuts: how many at most.
    """

    target: TargetKind
    send_when: Safety = Safety.DURABLE
    answer_when: Safety = Safety.DURABLE
    settle_when: Safety | None = None
    waits_for_source: bool = True
    crash_keeps: Safety = Safety.DURABLE
    person: Resolution | None = None
    deliveries: int = 1
    crashes: int = 1
    cuts: int = 1


class Entry(NamedTuple):
    """One record of the router, by life, kind and delivery."""

    life: int
    kind: RecordKind
    delivery: int
    is_leg: bool = False
    is_settled: bool = False
    resolution: int = 0


class Known(NamedTuple):
    """What the router knows of one delivery."""

    is_waiting: bool
    source_settled: bool
    stage: SendingStage | None
    has_outcome: bool


class State(NamedTuple):
    """Everything, between two events.

    Attributes:
        log: records, of which the first ``handed_in`` are with the journal's process and the
            first ``durable`` on its disk.
        source: of each delivery: new, unsettled, done.
        target_unsettled: the target's unsettled map.
        target_seen: how often the target has acted upon each delivery.
        ready: deliveries whose SENT stands for a transfer that certainly did not go yet.
        answered: whose outcome was sent to the source over this connection.
    """

    log: tuple[Entry, ...] = ()
    handed_in: int = 0
    durable: int = 0
    source: tuple[str, ...] = ()
    target_unsettled: frozenset[int] = frozenset()
    target_seen: tuple[int, ...] = ()
    source_is_up: bool = True
    target_is_up: bool = True
    from_source: tuple[tuple[str, int], ...] = ()
    to_source: tuple[int, ...] = ()
    to_target: tuple[tuple[str, int], ...] = ()
    from_target: tuple[int, ...] = ()
    ready: frozenset[int] = frozenset()
    answered: frozenset[int] = frozenset()
    life: int = 0
    crashes_left: int = 0
    cuts_left: int = 0


class Violation(Exception):  # noqa: N818 - it is what the search looks for, not an error
    """An invariant does not hold.

    Attributes:
        invariant: its name.
    """

    def __init__(self, invariant: str, detail: str) -> None:
        super().__init__(f"{invariant}: {detail}")
        self.invariant = invariant


# ------------------------------------------------------------------ the memory, by the real code


def write(writer: RecordWriter, entry: Entry) -> None:
    """Writes the record that ``entry`` stands for."""
    place = START_NS, key(entry.delivery), SOURCE
    flags = RecordFlag.SETTLED if entry.is_settled else RecordFlag(0)
    match entry.kind:
        case RecordKind.RECEIVED:
            writer.received(*place, b"tag", payload=b"message")
        case RecordKind.SENT:
            writer.sent(*place, TARGET, b"out")
        case RecordKind.OUTCOME:
            writer.outcome(*place, TARGET, OutcomeCode.ACCEPTED, flags=flags)
        case RecordKind.IN_DOUBT:
            writer.in_doubt(*place, TARGET)
        case RecordKind.RESOLVED:
            resolution = Resolution(entry.resolution)
            writer.resolved(*place, TARGET, resolution, by_person=True)
        case RecordKind.SETTLED if entry.is_leg:
            writer.settled(*place, TARGET)
        case RecordKind.SETTLED:
            writer.settled(*place)
        case _:
            raise AssertionError(entry)


@functools.cache
def known(log: tuple[Entry, ...]) -> dict[int, Known]:
    """Replays a segment that holds ``log`` and the torn beginning of one record more."""
    writers: dict[int, RecordWriter] = {}
    head = segment_head(number=1, router="dc1", incarnation=1, time_ns=START_NS, marks={}, links=[])
    blocks = [head]
    for entry in (*log, Entry(99, RecordKind.RECEIVED, 99)):
        life = START_NS + entry.life
        writer = writers.setdefault(entry.life, RecordWriter(worker=1, incarnation=life))
        write(writer, entry)
        blocks.append(writer.take_blocks()[0].octets)
    octets = segment_header(SALT) + salted(b"".join(blocks), SALT)
    memory = remembered(octets[: len(octets) - len(blocks[-1]) // 2] + bytes(512))
    return {
        int.from_bytes(delivery.key, "big"): Known(
            delivery.is_waiting,
            delivery.source_settled,
            sending.stage if (sending := delivery.sendings.get(TARGET)) else None,
            bool(sending and sending.outcome),
        )
        for delivery in memory.deliveries.values()
    }


# ------------------------------------------------------------------ events


def begin(rules: Rules) -> State:
    """Gives the state before the first event."""
    return State(
        source=("new",) * rules.deliveries,
        target_seen=(0,) * rules.deliveries,
        crashes_left=rules.crashes,
        cuts_left=rules.cuts,
    )


def following(state: State, rules: Rules) -> Iterator[State]:
    """Gives every state that one event leads to, misfortunes included."""
    yield from progress(state, rules)
    if state.crashes_left:
        least = state.handed_in if rules.crash_keeps is Safety.HANDED_IN else state.durable
        for kept in range(least, len(state.log) + 1):
            yield _cut_target(
                _cut_source(
                    state._replace(
                        log=state.log[:kept],
                        handed_in=kept,
                        durable=kept,
                        ready=frozenset(),
                        life=state.life + 1,
                        crashes_left=state.crashes_left - 1,
                    )
                )
            )
    if state.cuts_left:
        cut = state._replace(cuts_left=state.cuts_left - 1)
        if state.source_is_up:
            yield _cut_source(cut)
        if state.target_is_up:
            yield _cut_target(_note_doubt(cut))


def progress(state: State, rules: Rules) -> Iterator[State]:
    """Gives the states that follow without misfortune; if there is none, all is at rest."""
    if state.handed_in < len(state.log):
        yield state._replace(handed_in=len(state.log))
    if state.durable < state.handed_in:
        yield state._replace(durable=state.handed_in)
    if not state.source_is_up:
        yield _attach_source(state)
    if not state.target_is_up:
        yield _attach_target(state, rules)
    yield from _source_events(state)
    yield from _target_events(state, rules)
    for delivery, facts in known(state.log).items():
        yield from _router_steps(state, rules, delivery, facts)


def _append(state: State, *entries: Entry) -> State:
    return state._replace(log=state.log + entries)


def _entry(state: State, kind: RecordKind, delivery: int, **facts: bool) -> Entry:
    return Entry(state.life, kind, delivery, **facts)


def _source_events(state: State) -> Iterator[State]:
    """The source sends its next delivery, or hears something; the router hears the source."""
    if state.source_is_up and "new" in state.source:
        delivery = state.source.index("new")
        yield _set_source(state, delivery, "unsettled")._replace(
            from_source=(*state.from_source, ("transfer", delivery))
        )
    if state.to_source:
        delivery, *rest = state.to_source
        if state.source[delivery] == "done":
            raise Violation("SettleOnce", f"the source hears twice of {delivery}")
        yield _set_source(state, delivery, "done")._replace(
            to_source=tuple(rest), from_source=(*state.from_source, ("settled", delivery))
        )
    if state.from_source:
        (what, delivery), *others = state.from_source
        taken = state._replace(from_source=tuple(others))
        facts = known(state.log).get(delivery)
        if what == "transfer" and facts is None:
            yield _append(taken, _entry(state, RecordKind.RECEIVED, delivery))
        elif what == "settled" and facts is not None and not facts.source_settled:
            yield _append(taken, _entry(state, RecordKind.SETTLED, delivery))
        else:
            yield taken


def _set_source(state: State, delivery: int, stage: str) -> State:
    source = list(state.source)
    source[delivery] = stage
    return state._replace(source=tuple(source))


def _target_events(state: State, rules: Rules) -> Iterator[State]:
    """The target hears the router; the router hears the target."""
    if state.to_target:
        (what, delivery), *rest = state.to_target
        taken = state._replace(to_target=tuple(rest))
        if what == "settled":
            yield taken._replace(target_unsettled=state.target_unsettled - {delivery})
        else:
            yield _act(taken, rules, delivery)
    if state.from_target:
        answered, *others = state.from_target
        taken = state._replace(from_target=tuple(others))
        facts = known(state.log).get(answered)
        if facts is not None and facts.stage in {SendingStage.SENT, SendingStage.IN_DOUBT}:
            is_settled = rules.target is not TargetKind.RESUMES
            entry = _entry(state, RecordKind.OUTCOME, answered, is_settled=is_settled)
            taken = _append(taken, entry)
        yield taken


def _act(state: State, rules: Rules, delivery: int) -> State:
    """The target acts upon a transfer, unless it can tell that it has."""
    seen = list(state.target_seen)
    match rules.target:
        case TargetKind.RESUMES:
            is_new = delivery not in state.target_unsettled
            state = state._replace(target_unsettled=state.target_unsettled | {delivery})
        case TargetKind.DEDUPLICATES:
            is_new = not seen[delivery]
        case _:
            is_new = True
    seen[delivery] += is_new
    return state._replace(target_seen=tuple(seen), from_target=(*state.from_target, delivery))


def _router_steps(state: State, rules: Rules, delivery: int, facts: Known) -> Iterator[State]:
    """Everything that the router may do next about one delivery."""
    if facts.is_waiting and not facts.source_settled:
        sent = _append(state, _entry(state, RecordKind.SENT, delivery))
        yield sent._replace(ready=state.ready | {delivery})
    if facts.stage is SendingStage.IN_DOUBT and rules.person and _is_held(state, rules):
        entry = Entry(state.life, RecordKind.RESOLVED, delivery, resolution=rules.person)
        yield _append(state, entry)
    is_safe = _safety(state, {RecordKind.SENT}, delivery) >= rules.send_when
    if delivery in state.ready and state.target_is_up and is_safe:
        yield state._replace(
            ready=state.ready - {delivery}, to_target=(*state.to_target, ("transfer", delivery))
        )
    told_by = {RecordKind.OUTCOME, RecordKind.RESOLVED}
    is_safe = _safety(state, told_by, delivery) >= rules.answer_when
    if facts.has_outcome and not facts.source_settled and state.source_is_up and is_safe:
        if delivery not in state.answered:
            answered = state._replace(
                answered=state.answered | {delivery}, to_source=(*state.to_source, delivery)
            )
            if not rules.waits_for_source:
                answered = _append(answered, _entry(state, RecordKind.SETTLED, delivery))
            yield answered
    if rules.settle_when is None:
        may_settle = facts.source_settled
    else:
        may_settle = _safety(state, {RecordKind.OUTCOME}, delivery) >= rules.settle_when
    if may_settle and facts.stage is SendingStage.ANSWERED and state.target_is_up:
        settled = _append(state, _entry(state, RecordKind.SETTLED, delivery, is_leg=True))
        yield settled._replace(to_target=(*state.to_target, ("settled", delivery)))


def _is_held(state: State, rules: Rules) -> bool:
    """Tells whether a delivery in doubt waits for a person: its target is there and cannot tell."""
    return rules.target is TargetKind.NEITHER_HOLD and state.target_is_up


def _safety(state: State, kinds: set[RecordKind], delivery: int) -> Safety:
    """Tells how safe the last record of ``kinds`` about ``delivery`` is."""
    last = max(
        (
            index
            for index, entry in enumerate(state.log)
            if entry.kind in kinds and entry.delivery == delivery
        ),
        default=len(state.log),
    )
    if last < state.durable:
        return Safety.DURABLE
    return Safety.HANDED_IN if last < state.handed_in else Safety.APPENDED


def _cut_source(state: State) -> State:
    return state._replace(source_is_up=False, from_source=(), to_source=(), answered=frozenset())


def _cut_target(state: State) -> State:
    return state._replace(target_is_up=False, to_target=(), from_target=())


def _note_doubt(state: State) -> State:
    """The router sees its connection to the target lost and says what is in doubt."""
    return _append(
        state,
        *(
            _entry(state, RecordKind.IN_DOUBT, delivery)
            for delivery, facts in known(state.log).items()
            if facts.stage is SendingStage.SENT and delivery not in state.ready
        ),
    )


def _attach_source(state: State) -> State:
    """Source and router compare unsettled maps (§2.6.13).

    What the source no longer has, it has settled. What the router does not have, the source sends
    again.
    """
    here = known(state.log)
    settled = [d for d, facts in here.items() if state.source[d] == "done"]
    again = [d for d, stage in enumerate(state.source) if stage == "unsettled" and d not in here]
    state = _append(
        state,
        *(
            _entry(state, RecordKind.SETTLED, delivery)
            for delivery in settled
            if not here[delivery].source_settled
        ),
    )
    return state._replace(
        source_is_up=True, from_source=tuple(("transfer", delivery) for delivery in again)
    )


def _attach_target(state: State, rules: Rules) -> State:
    """The router finds out about what is in doubt, as far as its target can tell."""
    state = state._replace(target_is_up=True)
    here = known(state.log)
    for delivery, facts in here.items():
        if facts.stage not in {SendingStage.SENT, SendingStage.IN_DOUBT} or delivery in state.ready:
            continue
        match rules.target:
            case TargetKind.RESUMES if delivery in state.target_unsettled:
                state = _append(state, _entry(state, RecordKind.OUTCOME, delivery))
            case TargetKind.NEITHER_HOLD:
                if facts.stage is SendingStage.SENT:
                    state = _append(state, _entry(state, RecordKind.IN_DOUBT, delivery))
            case _:
                state = _append(state, _entry(state, RecordKind.SENT, delivery))
                state = state._replace(ready=state.ready | {delivery})
    unsettled = {d for d, facts in here.items() if facts.stage not in {None, SendingStage.SETTLED}}
    return state._replace(target_unsettled=state.target_unsettled & unsettled)


# ------------------------------------------------------------------ what must hold


def check(state: State, rules: Rules) -> None:
    """Checks what must hold in every state.

    Raises:
        Violation: it does not.
    """
    here = known(state.log)
    after_the_worst = known(state.log[: state.durable])
    sends_again = rules.person is Resolution.SEND_AGAIN
    may_repeat = rules.target is TargetKind.NEITHER_RESEND or sends_again
    for delivery, stage in enumerate(state.source):
        seen = state.target_seen[delivery]
        if stage == "done" and not seen and rules.person is not Resolution.ACCEPT:
            raise Violation("NoLoss", f"the source was told of {delivery}, no target has it")
        if seen > 1 and not may_repeat:
            raise Violation("NoDuplicate", f"{delivery} was acted upon {seen} times")
        facts = here.get(delivery)
        if facts and facts.source_settled and stage != "done":
            raise Violation("SettleOnce", f"{delivery} is settled and its source did not settle")
        worst = after_the_worst.get(delivery)
        if rules.crash_keeps is Safety.DURABLE and rules.send_when is Safety.DURABLE:
            is_unknown = facts is not None and (worst is None or worst.stage is None)
            if seen and is_unknown and not sends_again:
                raise Violation("DurableBeforeSend", f"a crash would forget that {delivery} went")
        if stage == "done" and worst is not None and not worst.has_outcome:
            if rules.crash_keeps is Safety.DURABLE:
                raise Violation("OutcomeBeforeAnswer", f"a crash would put {delivery} in doubt")


def check_rest(state: State, rules: Rules) -> None:
    """Checks what must hold when nothing moves any more.

    Raises:
        Violation: it does not.
    """
    here = known(state.log)
    for delivery, stage in enumerate(state.source):
        facts = here.get(delivery)
        if stage == "done" and facts is None:
            continue
        is_held = (
            _is_held(state, rules)
            and rules.person is None
            and stage == "unsettled"
            and facts is not None
            and facts.stage is SendingStage.IN_DOUBT
        )
        if not is_held:
            raise Violation("NoLoss", f"{delivery} rests as {stage}, {facts}")


@attrs.define
class Explored:
    """What a search has covered.

    Attributes:
        states: how many different ones.
        rests: how many of them at rest.
        held: how many of those with a delivery that waits for a person.
        resent: in how many a target acted twice, where that is allowed.
    """

    states: int = 0
    rests: int = 0
    held: int = 0
    resent: int = 0


def explore(rules: Rules) -> Explored:
    """Visits every state that can be reached.

    Raises:
        Violation: an invariant does not hold in one of them.
    """
    explored = Explored()
    start = begin(rules)
    visited, waiting = {start}, [start]
    while waiting:
        state = waiting.pop()
        check(state, rules)
        explored.states += 1
        explored.resent += max(state.target_seen) > 1
        if next(progress(state, rules), None) is None:
            check_rest(state, rules)
            explored.rests += 1
            explored.held += bool(known(state.log))
        for after in following(state, rules):
            if after not in visited:
                visited.add(after)
                waiting.append(after)
    return explored
