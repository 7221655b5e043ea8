"""Many small networks of routers in one ledger, each with its own clocks, files and faults.

A *case* is a chain of two or three routers, whose ids no other case has. Its deliveries are of
known fate; their records are numbered as routers do, cut into files, and the files reach the
auditor in some *round*, or never, or twice. So one audit tries hundreds of cases.
"""

import datetime
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import attrs
import pyarrow as pa
import pyarrow.parquet as pq

from router.journal.block import OWN_WORKER
from router.journal.record import GuaranteeCode, OutcomeCode, RecordFlag, RecordKind, Resolution
from router.pipeline.names import OPEN
from router.pipeline.schema import LEDGER, arrow_schema

SECOND: Final = 1_000_000_000
MS: Final = 1_000_000
BEGIN_NS: Final = 1_790_000_000 * SECOND // (86_400 * SECOND) * (86_400 * SECOND) + 36_000 * SECOND
LENGTH_NS: Final = 7200 * SECOND
NOW_NS: Final = BEGIN_NS + 86_400 * SECOND
FUTURE_NS: Final = 2_096_000_000 * SECOND
APART_NS: Final = 1800 * SECOND
"""Clocks are ahead or behind by no more than this, so two are an hour apart at most."""

ROUNDS: Final = 4
NEVER: Final = -1
INNOCENT: Final = ("delivered-once", "rejected", "released", "open", "in-doubt")
K, F, O = RecordKind, RecordFlag, OutcomeCode  # noqa: E741


@attrs.frozen(kw_only=True)
class Fact:
    """One record of a delivery.

    Attributes:
        at: in milliseconds since the delivery came.
        hop: index of the router in its chain.
        incoming, outgoing: which of its links; see ``Case.link``.
    """

    at: float
    hop: int
    kind: int
    outcome: int = 0
    flags: int = 0
    incoming: str = "in"
    outgoing: str = ""


def come(at: float, hop: int = 0, flags: int = 0) -> Fact:
    return Fact(at=at, hop=hop, kind=K.RECEIVED, flags=flags)


def send(at: float, hop: int = 0, to: str = "a", flags: int = 0) -> Fact:
    return Fact(at=at, hop=hop, kind=K.SENT, outgoing=to, flags=flags)


def answer(at: float, outcome: int, hop: int = 0, to: str = "a") -> Fact:
    return Fact(at=at, hop=hop, kind=K.OUTCOME, outcome=outcome, outgoing=to, flags=F.SETTLED)


def tell(at: float, outcome: int, hop: int = 0) -> Fact:
    return Fact(at=at, hop=hop, kind=K.OUTCOME, outcome=outcome)


def done(at: float, hop: int = 0) -> Fact:
    return Fact(at=at, hop=hop, kind=K.SETTLED)


def doubt(at: float, hop: int = 0, to: str = "a") -> Fact:
    return Fact(at=at, hop=hop, kind=K.IN_DOUBT, outgoing=to)


def again(at: float, hop: int = 0, to: str = "a") -> Fact:
    outcome = int(Resolution.SEND_AGAIN)
    return Fact(at=at, hop=hop, kind=K.RESOLVED, outcome=outcome, outgoing=to)


def through(last: int, outcome: int, end: list[Fact], *, settles: bool = True) -> list[Fact]:
    """Gives what routers record of a delivery that is handed on to the last one.

    Args:
        last: index of the last router that has it.
        outcome: which it tells the others.
        end: what the last one records, from millisecond 0 on.
        settles: the sender settles.
    """
    facts: list[Fact] = []
    for hop in range(last):
        facts += [
            come(10 * hop, hop),
            send(10 * hop + 1, hop, "next"),
            answer(200 - 10 * hop, outcome, hop, "next"),
        ]
        if settles or hop:
            facts.append(done(205 - 10 * hop, hop))
    facts += [attrs.evolve(each, at=each.at + 10 * last, hop=last) for each in end]
    return facts


def fates(last: int) -> dict[str, tuple[str, list[Fact]]]:
    """Gives verdicts and records, by name, in a chain whose last router has this index."""
    return {
        "near": ("delivered-once", [come(0), send(1), answer(3, O.ACCEPTED), done(5)]),
        "far": ("delivered-once", through(last, O.ACCEPTED,
                [come(0), send(1), answer(3, O.ACCEPTED), done(90)])),
        "far, waiting": ("delivered-once", through(last, O.ACCEPTED,
                [come(0), send(100), answer(110, O.ACCEPTED), done(140)])),
        "far, in doubt first": ("delivered-once", through(last, O.ACCEPTED,
                [come(0), send(1), doubt(2), again(4), send(5), answer(6, O.ACCEPTED), done(90)])),
        "far, second receiver": ("delivered-once", through(last, O.ACCEPTED,
                [come(0), send(1), answer(2, O.RELEASED), send(5, to="b"),
                 answer(6, O.ACCEPTED, to="b"), done(90)])),
        "far, to both": ("delivered-once", through(last, O.ACCEPTED,
                [come(0), send(1, flags=F.FANNED), send(1, to="b", flags=F.FANNED),
                 answer(5, O.ACCEPTED), answer(6, O.ACCEPTED, to="b"), done(90)])),
        "far, given back, then near": ("delivered-once", sorted([
                come(0), send(1, 0, "next"), answer(60, O.RELEASED, 0, "next"), send(70),
                answer(80, O.ACCEPTED), done(90), come(10, 1), tell(20, O.RELEASED, 1),
                done(65, 1)], key=lambda fact: fact.at)),
        "refused": ("rejected", through(last, O.REJECTED,
                [come(0), send(1), answer(3, O.REJECTED), done(90)])),
        "refused, unsettled": ("rejected", through(last, O.REJECTED,
                [come(0), send(1), answer(3, O.REJECTED)], settles=False)),
        "refused by the router": ("rejected", through(last, O.REJECTED,
                [come(0), tell(3, O.REJECTED)], settles=False)),
        "given back, unsettled": ("released", [*through(last, O.RELEASED,
                [come(0), tell(3, O.RELEASED)], settles=False), tell(202, O.RELEASED)]),
        "waits": ("open", through(last, O.NONE, [come(0)])[:2] if last else [come(0)]),
        "lost near": ("lost", [come(0), tell(3, O.ACCEPTED), done(5)]),
        "lost between": ("lost", [come(0), send(1, 0, "next"), answer(60, O.ACCEPTED, 0, "next"),
                                  done(70)]),
        "lost far": ("lost", through(last, O.ACCEPTED, [come(0), done(90)])),
        "twice far": ("duplicated", through(last, O.ACCEPTED,
                [come(0), send(1), answer(3, O.ACCEPTED), send(4, to="b"),
                 answer(6, O.ACCEPTED, to="b"), done(90)])),
        "near and far": ("duplicated", [*through(last, O.ACCEPTED,
                [come(0), send(1), answer(3, O.ACCEPTED), done(90)]), send(2),
                 answer(9, O.ACCEPTED)]),
        "twice to one": ("duplicated", through(last, O.ACCEPTED,
                [come(0), send(1), answer(3, O.ACCEPTED), send(4), answer(6, O.ACCEPTED),
                 done(90)])),
    }  # fmt: skip


FAULTS: Final = (
    "lost near",
    "lost between",
    "lost far",
    "twice far",
    "near and far",
    "twice to one",
)


@attrs.frozen(kw_only=True)
class Placed:
    """A file, and when the auditor gets it.

    Attributes:
        path: within the ledger.
        round: number of the run before which it comes, or ``NEVER``.
    """

    path: str
    round: int
    rows: list[dict[str, Any]]


@attrs.frozen(kw_only=True)
class Delivery:
    """What is known of a delivery.

    Attributes:
        is_whole: no file of its case is missing.
    """

    case: int
    fate: str
    verdict: str
    is_whole: bool


@attrs.define(kw_only=True)
class Case:
    """One network."""

    number: int
    chance: random.Random
    deliveries: dict[int, Delivery] = attrs.field(factory=dict)
    files: list[Placed] = attrs.field(factory=list)
    names: list[str] = attrs.field(init=False)
    ahead: list[int] = attrs.field(init=False)
    missing: bool = attrs.field(init=False)
    clients: dict[str, str] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        chance = self.chance
        routers = chance.choice((2, 2, 3))
        self.names = [f"case{self.number:04d}-{'abc'[index]}" for index in range(routers)]
        self.ahead = [chance.randint(-APART_NS, APART_NS) for _ in self.names]
        self.missing = chance.random() < 0.5
        self.clients = {name: f"peer-{self.number}-{name}" for name in ("in", "next", "a", "b")}
        if chance.random() < 0.2:  # a client may have the name of a router
            self.clients[chance.choice(("in", "a", "b"))] = chance.choice(self.names)
        rows: list[list[dict[str, Any]]] = [[] for _ in self.names]
        possible = fates(routers - 1)
        chosen = ["far"] * 3 + chance.sample(sorted(possible), chance.randint(5, 12))
        for index, fate in enumerate(chosen):
            begin = BEGIN_NS + chance.randrange(LENGTH_NS)
            self._add(rows, index, begin, fate, possible[fate])
        for index in range(4):  # the first and the last records of all: plain ones
            begin = BEGIN_NS + (-700 if index < 2 else 700) * SECOND + (index // 2) * LENGTH_NS
            fate = ("near", "far")[index % 2]
            self._add(rows, 100 + index, begin + index * SECOND, fate, possible[fate])
        for hop, facts in enumerate(rows):
            self._write(hop, facts)
        if chance.random() < 0.2:
            self._write_future()
        self._misplace()

    def _add(
        self, rows: Any, index: int, begin: int, name: str, fate: tuple[str, list[Fact]]
    ) -> None:
        verdict, facts = fate
        key = self.number * 1000 + index
        self.deliveries[key] = Delivery(
            case=self.number, fate=name, verdict=verdict, is_whole=not self.missing
        )
        for fact in facts:
            time_ns = begin + int(fact.at * MS) + self.ahead[fact.hop]
            rows[fact.hop].append(self._row(key, fact, time_ns))

    def _row(self, key: int, fact: Fact, time_ns: int) -> dict[str, Any]:
        return {
            "time_ns": time_ns,
            "kind": int(fact.kind),
            "outcome": int(fact.outcome),
            "flags": int(fact.flags),
            "guarantee": int(GuaranteeCode.EXACTLY_ONCE),
            "key_high": key * 0x9E3779B97F4A7C15 % 2**62,
            "key_low": key,
            "incoming": self.link(fact.hop, fact.incoming),
            "outgoing": self.link(fact.hop, fact.outgoing) if fact.outgoing else 0,
            "message_octets": 100 if fact.kind == K.RECEIVED else 0,
        }

    def link(self, hop: int, name: str) -> int:
        """Gives the key of a link of a router."""
        return (self.number * 10 + hop) * 10 + ("in", "next", "a", "b").index(name) + 1

    def _links(self, hop: int, time_ns: int) -> Iterator[dict[str, Any]]:
        """Gives the links of a router as each of its segments repeats them."""
        for name in ("in", "next", "a", "b"):
            beyond = {"in": hop - 1, "next": hop + 1}.get(name, -1)
            is_router = 0 <= beyond < len(self.names)
            yield {
                "time_ns": time_ns,
                "worker": OWN_WORKER,
                "kind": int(K.LINK_ATTACHED),
                "flags": int(F.COPY | (F.ROUTER if is_router else 0)),
                "incoming": self.link(hop, name) if name == "in" else 0,
                "outgoing": 0 if name == "in" else self.link(hop, name),
                "container": self.names[beyond] if is_router else self.clients[name],
                "link_name": f"across-{min(hop, beyond)}" if is_router else name,
                "address": "orders",
            }

    def _write(self, hop: int, facts: list[dict[str, Any]]) -> None:
        """Numbers the records of a router, in one or two lives, and cuts them into files."""
        facts.sort(key=lambda row: row["time_ns"])
        first_ns = facts[0]["time_ns"]
        restart = self.chance.choice((0, len(facts) // 2))
        for count, row in enumerate(facts):
            is_second = bool(restart) and count >= restart
            row["incarnation"] = facts[restart]["time_ns"] - MS if is_second else first_ns - SECOND
            row["sequence"] = count + 1 - (restart if is_second else 0)
        last = facts[-1]
        if self.chance.random() < 0.5:
            end = {"kind": int(K.WORKER_ENDED), "sequence": last["sequence"] + 1}
            facts.append({**end, "time_ns": last["time_ns"] + MS,
                          "incarnation": last["incarnation"]})  # fmt: skip
        edges = sorted(self.chance.sample(range(1, len(facts)), 3))
        marks: dict[int, int] = {}
        for number, (begin, end_) in enumerate(zip([0, *edges], [*edges, len(facts)], strict=True)):
            part = facts[begin:end_]
            at = part[0]["time_ns"]
            head = [
                {"time_ns": at, "kind": int(K.MARK), "incarnation": life, "sequence": following}
                for life, following in marks.items()
            ]
            self._place(hop, number + 1, [*head, *self._links(hop, at), *part])
            marks = {part[-1]["incarnation"]: part[-1]["sequence"] + 1}  # as LatestFacts.admit

    def _write_future(self) -> None:
        """Writes a file of a router whose clock is years ahead, with one delivery of its own."""
        key = self.number * 1000 + 200
        self.deliveries[key] = Delivery(
            case=self.number, fate="future", verdict="delivered-once", is_whole=not self.missing
        )
        facts = [come(0), send(1), answer(3, O.ACCEPTED), done(5)]
        rows = [self._row(key, fact, FUTURE_NS + int(fact.at * MS)) for fact in facts]
        for count, row in enumerate(rows):
            row |= {"worker": 2, "incarnation": FUTURE_NS - SECOND, "sequence": count + 1}
        self._place(0, 5, [*self._links(0, FUTURE_NS), *rows])

    def _place(self, hop: int, number: int, rows: list[dict[str, Any]]) -> None:
        """Makes a file of what a segment has, with its first and its last record."""
        own = {"worker": OWN_WORKER, "incarnation": 1, "sequence": number}
        begun = {"kind": int(K.SEGMENT), "incoming": number - 1, "time_ns": rows[0]["time_ns"]}
        ended = {"kind": int(K.SEGMENT_END), "time_ns": rows[-1]["time_ns"]}
        rows = [{**own, **begun}, *rows, {**own, **ended}]
        name = f"{number:016d}-00000000"
        day = datetime.datetime.fromtimestamp(rows[-1]["time_ns"] // SECOND, datetime.UTC).date()
        path = f"date={day}/router={self.names[hop]}/{name}.parquet"
        self.files.append(Placed(path=path, round=self.chance.randrange(ROUNDS), rows=rows))

    def _misplace(self) -> None:
        """Keeps a file back for ever, and copies others."""
        if self.missing:
            index = self.chance.randrange(len(self.files))
            self.files[index] = attrs.evolve(self.files[index], round=NEVER)
        for file in list(self.files):
            if file.round != NEVER and self.chance.random() < 0.15:
                suffix = self.chance.choice(("-copy.parquet", "-open.parquet"))
                path = file.path.replace(".parquet", suffix)
                later = self.chance.randrange(ROUNDS)
                self.files.append(attrs.evolve(file, path=path, round=later))
        self.files = [part for file in self.files for part in self._left_open(file)]

    def _left_open(self, file: Placed) -> list[Placed]:
        """Gives the file, sometimes as that of a segment that nobody seals: it grows."""
        is_sealed = file.path.endswith("-00000000.parquet") and file.round != NEVER
        if not is_sealed or self.chance.random() >= 0.1:
            return [file]
        path = file.path.replace(".parquet", OPEN)
        half = file.rows[: len(file.rows) // 2]
        first = self.chance.randrange(file.round + 1)
        return [
            attrs.evolve(file, path=path, rows=half, round=first),
            attrs.evolve(file, path=path),
        ]


FOUND: Final = ("101/4", "101/72")
"""Cases that were judged differently once: a hole that came to be known after their verdict."""


def make_cases(count: int, seed: int) -> list[Case]:
    """Gives so many cases, and those that failed once."""
    chances = [*(f"{seed}/{number}" for number in range(count)), *FOUND]
    return [
        Case(number=number, chance=random.Random(chance)) for number, chance in enumerate(chances)
    ]


def bring(cases: list[Case], ledger: Path, number: int) -> None:
    """Writes the files that come before a run."""
    schema = arrow_schema(LEDGER)
    blank: dict[str, Any] = {field.name: None if field.nullable else 0 for field in schema}
    for case in cases:
        for file in case.files:
            if file.round == number:
                path = ledger / file.path
                path.parent.mkdir(parents=True, exist_ok=True)
                rows = [{**blank, **row, "time": row["time_ns"] // 1000} for row in file.rows]
                pq.write_table(pa.Table.from_pylist(rows, schema=schema), path)
