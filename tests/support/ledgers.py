"""Synthetic ledgers in which it is known what became of each delivery.

Each *story* is a list of records, given as (milliseconds, router, worker, kind, outcome, flags,
incoming, outgoing), and the verdict that an audit should come to. Stories are copied many times,
set out over an hour, numbered per router as routers do, and written as a compactor would.
"""

import datetime
import itertools
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from router.journal.record import GuaranteeCode, OutcomeCode, RecordFlag, RecordKind, Resolution
from router.pipeline.schema import LEDGER, arrow_schema

RECEIVED, SENT, OUTCOME, SETTLED = (
    int(kind)
    for kind in (RecordKind.RECEIVED, RecordKind.SENT, RecordKind.OUTCOME, RecordKind.SETTLED)
)
IN_DOUBT, RESOLVED = int(RecordKind.IN_DOUBT), int(RecordKind.RESOLVED)
ACCEPTED, REJECTED, RELEASED, MODIFIED = (
    int(code)
    for code in (
        OutcomeCode.ACCEPTED,
        OutcomeCode.REJECTED,
        OutcomeCode.RELEASED,
        OutcomeCode.MODIFIED,
    )
)
AGAIN, TAKEN = int(Resolution.SEND_AGAIN), int(Resolution.ACCEPT)
BY_THEM, FANNED, UNSENT = (
    int(flag) for flag in (RecordFlag.SETTLED, RecordFlag.FANNED, RecordFlag.UNSENT)
)
EAST, WEST = "east", "west"

IN, TO_A, TO_B, TO_C, TO_WEST, FROM_EAST = 101, 201, 202, 203, 301, 302
"""Links: from the sender, to three receivers, and the two ends of that between the routers."""

TO_STORE, FROM_STORE = 401, 402
"""Links of the first router to its message store, and from there."""

START_NS = 1_763_000_000 * 1_000_000_000
HOUR_NS = 3600 * 1_000_000_000
DAY_NS = 24 * HOUR_NS
MS = 1_000_000

Step = tuple[float, str, int, int, int, int, int, int]


def step(
    at: float,
    kind: int,
    outcome: int = 0,
    *,
    flags: int = 0,
    source: int = IN,
    target: int = 0,
    router: str = EAST,
    worker: int = 0,
) -> Step:
    """Gives one record of a story."""
    return at, router, worker, kind, outcome, flags, source, target


def attempt(at: float, target: int, *end: Step, source: int = IN, router: str = EAST) -> list[Step]:
    """Gives a transfer to a receiver, and how it ended."""
    return [step(at, SENT, target=target, source=source, router=router), *end]


def accepted(at: float, target: int, *, source: int = IN, router: str = EAST) -> Step:
    return step(at, OUTCOME, ACCEPTED, flags=BY_THEM, target=target, source=source, router=router)


def west(at: float) -> list[Step]:
    """Gives what the second router records of a delivery that it delivers."""
    return [
        step(at, RECEIVED, source=FROM_EAST, router=WEST),
        *attempt(at + 1, TO_C, accepted(at + 2, TO_C, source=FROM_EAST, router=WEST),
                 source=FROM_EAST, router=WEST),
        step(at + 4, SETTLED, source=FROM_EAST, router=WEST),
    ]  # fmt: skip


def stored(*after: Step) -> list[Step]:
    """Gives what is recorded of a delivery that the message store accepts."""
    taken = step(2, OUTCOME, ACCEPTED, target=TO_STORE)
    return [step(0, RECEIVED), *attempt(1, TO_STORE, taken), step(3, SETTLED),
            step(3, SETTLED, target=TO_STORE), *after]  # fmt: skip


def forwarded(at: float, target: int, *end: Step) -> list[Step]:
    """Gives what is recorded of sending it on; the store settles with the outcome."""
    return [step(at, RECEIVED, source=FROM_STORE),
            *attempt(at + 1, target, *end, source=FROM_STORE)]  # fmt: skip


@attrs.frozen(kw_only=True)
class Story:
    """What happens to a delivery.

    Attributes:
        share: of all deliveries; what is rare is there once at least.
        ttl_milliseconds: of the message.
    """

    verdict: str
    steps: list[Step]
    share: float = 0.001
    guarantee: int = int(GuaranteeCode.EXACTLY_ONCE)
    ttl_milliseconds: int | None = None


COME, DONE = step(0, RECEIVED), step(9, SETTLED)
AT_LEAST_ONCE = int(GuaranteeCode.AT_LEAST_ONCE)


def fanned(at: float, *targets: int) -> list[Step]:
    """Gives what is recorded of a message that leaves the store for several receivers."""
    sent = [step(at + 1, SENT, flags=FANNED, target=each, source=FROM_STORE) for each in targets]
    return [step(at, RECEIVED, source=FROM_STORE), *sent]


def taken(at: float, target: int) -> Step:
    """Gives the acceptance of what the store has sent."""
    return accepted(at, target, source=FROM_STORE)


TWICE = [
    COME,
    *attempt(1, TO_STORE, step(2, RESOLVED, AGAIN, target=TO_STORE)),
    *attempt(3, TO_STORE, accepted(4, TO_STORE)),
    step(4, SETTLED),
]
"""The connection to the store was lost, so it may have the message twice."""

BOTH_LEAVE = [*TWICE, *forwarded(6, TO_A), *forwarded(6, TO_A)]

STORED_AT_LEAST_ONCE = {
    name: Story(verdict=verdict, guarantee=AT_LEAST_ONCE, steps=steps)
    for name, verdict, steps in (
        (
            "stored once, forwarded once",
            "delivered-once",
            stored(*forwarded(5, TO_A, taken(7, TO_A))),
        ),
        (
            "given back to the store, and accepted then",
            "delivered-once",
            stored(
                *forwarded(
                    5, TO_A,
                    step(6, OUTCOME, RELEASED, flags=BY_THEM, target=TO_A, source=FROM_STORE),
                ),
                *forwarded(7, TO_B, taken(8, TO_B)),
            ),
        ),
        (
            "taken back unsent from a target that has gone",
            "delivered-once",
            stored(
                *forwarded(
                    5, TO_A,
                    step(6, RESOLVED, AGAIN, flags=UNSENT, target=TO_A, source=FROM_STORE),
                ),
                *forwarded(7, TO_A, taken(8, TO_A)),
            ),
        ),
        (
            "perhaps in the store twice, and one has left",
            "in-doubt",
            [*TWICE, *forwarded(6, TO_A, taken(8, TO_A))],
        ),
        (
            "in the store twice, and both arrive",
            "duplicated",
            [*BOTH_LEAVE, taken(8, TO_A), taken(9, TO_A)],
        ),
        (
            "in the store twice, and both are accepted, but not settled by the target",
            "in-doubt",
            [
                *BOTH_LEAVE,
                *(step(8 + n, OUTCOME, ACCEPTED, target=TO_A, source=FROM_STORE) for n in (0, 1)),
            ],
        ),
        (
            "passed by, repeated by its sender, and stored",
            "duplicated",
            [
                COME,
                *attempt(1, TO_A, accepted(2, TO_A)),
                *stored(*forwarded(5, TO_A, taken(8, TO_A))),
            ],
        ),
        (
            "passed by in vain, then stored",
            "in-doubt",
            [COME, *attempt(1, TO_A, step(2, RESOLVED, AGAIN, target=TO_A)),
             *stored(*forwarded(5, TO_A, taken(8, TO_A)))[1:]],
        ),
        (
            "its worker was killed before the target answered",
            "in-doubt",
            stored(*forwarded(5, TO_A), *forwarded(7, TO_A, taken(9, TO_A))),
        ),
        (
            "its worker was killed, and the target told its outcome twice then",
            "in-doubt",
            stored(
                *forwarded(5, TO_A),
                *forwarded(7, TO_A, step(9, OUTCOME, ACCEPTED, target=TO_A, source=FROM_STORE)),
                taken(10, TO_A),
            ),
        ),
        (
            "and another target was sent it then",
            "in-doubt",
            stored(*forwarded(5, TO_A), *forwarded(7, TO_B, taken(9, TO_B))),
        ),
        (
            "its worker was killed after the target answered",
            "duplicated",
            stored(*forwarded(5, TO_A, taken(6, TO_A)), *forwarded(7, TO_A, taken(9, TO_A))),
        ),
        (
            "on its way to the store when the worker was killed, and it is there",
            "open",
            [COME, *attempt(1, TO_STORE), step(2, SETTLED), *forwarded(5, TO_A)],
        ),
        (
            "stored for two, and one has answered",
            "open",
            stored(*fanned(5, TO_A, TO_B), taken(7, TO_A)),
        ),
        (
            "stored for two, and its worker was killed before either answered",
            "in-doubt",
            stored(*fanned(5, TO_A, TO_B), *fanned(7, TO_A, TO_B), taken(9, TO_A), taken(9, TO_B)),
        ),
        (
            "stored for two, and its worker was killed after one answered",
            "duplicated",
            stored(
                *fanned(5, TO_A, TO_B), taken(6, TO_A),
                *fanned(7, TO_A, TO_B), taken(9, TO_A), taken(9, TO_B),
            ),
        ),
    )
}  # fmt: skip
"""What a store of an at-least-once route may do: what it was handed or has sent may repeat."""

SETTLED_AND_HANDED_ON = [
    step(0, RECEIVED, flags=BY_THEM),
    step(1, SENT, flags=BY_THEM, target=TO_WEST),
    step(3, RECEIVED, flags=BY_THEM, source=FROM_EAST, router=WEST),
]
STORIES: Mapping[str, Story] = {
    "plain": Story(
        verdict="delivered-once",
        share=0.7,
        steps=[COME, *attempt(1, TO_A, accepted(2, TO_A)), DONE],
    ),
    "second settles later": Story(
        verdict="delivered-once",
        share=0.1,
        steps=[
            COME,
            *attempt(1, TO_A, step(2, OUTCOME, ACCEPTED, target=TO_A)),
            step(3, SETTLED, target=TO_A),
            DONE,
        ],
    ),
    "outcome told twice": Story(
        verdict="delivered-once",
        steps=[
            COME,
            *attempt(1, TO_A, step(2, OUTCOME, ACCEPTED, target=TO_A), accepted(3, TO_A)),
            DONE,
        ],
    ),
    "over two routers": Story(
        verdict="delivered-once",
        share=0.1,
        steps=[COME, *attempt(1, TO_WEST, accepted(7, TO_WEST)), *west(2), DONE],
    ),
    "released and sent to another": Story(
        verdict="delivered-once",
        share=0.01,
        steps=[
            COME,
            *attempt(1, TO_A, step(2, OUTCOME, RELEASED, flags=BY_THEM, target=TO_A)),
            *attempt(3, TO_B, accepted(4, TO_B)),
            DONE,
        ],
    ),
    "in doubt, then known": Story(
        verdict="delivered-once",
        steps=[
            COME,
            *attempt(1, TO_A, step(2, IN_DOUBT, target=TO_A), accepted(5, TO_A)),
            DONE,
        ],
    ),
    "not there, sent again": Story(
        verdict="delivered-once",
        steps=[
            COME,
            *attempt(1, TO_A, step(2, IN_DOUBT, target=TO_A)),
            step(3, RESOLVED, AGAIN, target=TO_A),
            *attempt(4, TO_A, accepted(5, TO_A)),
            DONE,
        ],
    ),
    "multicast": Story(
        verdict="delivered-once",
        share=0.01,
        steps=[
            COME,
            step(1, SENT, flags=FANNED, target=TO_A),
            step(1, SENT, flags=FANNED, target=TO_B),
            accepted(3, TO_A),
            accepted(4, TO_B),
            DONE,
        ],
    ),
    "settled on send": Story(
        verdict="delivered-once",
        share=0.01,
        guarantee=int(GuaranteeCode.AT_MOST_ONCE),
        steps=[
            step(0, RECEIVED, flags=BY_THEM),
            step(1, SENT, flags=BY_THEM, target=TO_A),
        ],
    ),
    "sent on its way and dropped": Story(
        verdict="lost",
        guarantee=int(GuaranteeCode.AT_MOST_ONCE),
        steps=[step(0, RECEIVED, flags=BY_THEM)],
    ),
    "settled on send over two routers": Story(
        verdict="delivered-once",
        guarantee=int(GuaranteeCode.AT_MOST_ONCE),
        steps=[
            *SETTLED_AND_HANDED_ON,
            step(4, SENT, flags=BY_THEM, source=FROM_EAST, target=TO_C, router=WEST),
        ],
    ),
    "settled on send and dropped by the second router": Story(
        verdict="lost",
        guarantee=int(GuaranteeCode.AT_MOST_ONCE),
        steps=SETTLED_AND_HANDED_ON,
    ),
    "settled on send and not received by the second router": Story(
        verdict="in-doubt",
        guarantee=int(GuaranteeCode.AT_MOST_ONCE),
        steps=SETTLED_AND_HANDED_ON[:2],
    ),
    "accepted without a receiver": Story(
        verdict="lost", steps=[COME, step(1, OUTCOME, ACCEPTED), DONE]
    ),
    "accepted by a router that never had it": Story(
        verdict="lost", steps=[COME, *attempt(1, TO_WEST, accepted(7, TO_WEST)), DONE]
    ),
    "lost at the second router": Story(
        verdict="lost",
        steps=[
            COME,
            *attempt(1, TO_WEST, accepted(7, TO_WEST)),
            step(2, RECEIVED, source=FROM_EAST, router=WEST),
            step(6, SETTLED, source=FROM_EAST, router=WEST),
            DONE,
        ],
    ),
    "to two receivers": Story(
        verdict="duplicated",
        steps=[
            COME,
            *attempt(1, TO_A, accepted(3, TO_A)),
            *attempt(2, TO_B, accepted(4, TO_B)),
            DONE,
        ],
    ),
    "again after it was accepted": Story(
        verdict="duplicated",
        steps=[
            COME,
            *attempt(1, TO_A, accepted(2, TO_A)),
            *attempt(3, TO_A, accepted(4, TO_A)),
            DONE,
        ],
    ),
    "sent again, then both accepted": Story(
        verdict="duplicated",
        steps=[
            COME,
            *attempt(1, TO_A, step(2, IN_DOUBT, target=TO_A)),
            step(3, RESOLVED, AGAIN, target=TO_A),
            *attempt(4, TO_A, accepted(5, TO_A), accepted(6, TO_A)),
            DONE,
        ],
    ),
    "multicast, one of them twice": Story(
        verdict="duplicated",
        steps=[
            COME,
            step(1, SENT, flags=FANNED, target=TO_A),
            step(1, SENT, flags=FANNED, target=TO_B),
            step(2, RESOLVED, AGAIN, target=TO_A),
            step(3, SENT, flags=FANNED, target=TO_A),
            accepted(4, TO_A),
            accepted(5, TO_A),
            accepted(6, TO_B),
            DONE,
        ],
    ),
    "lost with the connection": Story(
        verdict="in-doubt",
        steps=[COME, *attempt(1, TO_A, step(2, IN_DOUBT, target=TO_A))],
    ),
    "its sender went first": Story(verdict="in-doubt", steps=[COME, *attempt(1, TO_A), DONE]),
    "a person said so": Story(
        verdict="in-doubt",
        steps=[
            COME,
            *attempt(1, TO_A, step(2, IN_DOUBT, target=TO_A)),
            step(3, RESOLVED, TAKEN, target=TO_A, flags=int(RecordFlag.BY_PERSON)),
            step(4, OUTCOME, ACCEPTED),
            DONE,
        ],
    ),
    "repeated at least once": Story(
        verdict="in-doubt",
        guarantee=int(GuaranteeCode.AT_LEAST_ONCE),
        steps=[
            COME,
            *attempt(1, TO_A, step(2, IN_DOUBT, target=TO_A)),
            step(3, RESOLVED, AGAIN, target=TO_A),
            *attempt(4, TO_B, accepted(5, TO_B)),
            DONE,
        ],
    ),
    "refused": Story(
        verdict="rejected",
        share=0.005,
        steps=[
            COME,
            *attempt(1, TO_A, step(2, OUTCOME, REJECTED, flags=BY_THEM, target=TO_A)),
            DONE,
        ],
    ),
    "refused by the router": Story(
        verdict="rejected", steps=[COME, step(1, OUTCOME, REJECTED), DONE]
    ),
    "given back": Story(
        verdict="released", share=0.005, steps=[COME, step(1, OUTCOME, RELEASED), DONE]
    ),
    "too late": Story(
        verdict="expired",
        ttl_milliseconds=5,
        steps=[COME, step(6, OUTCOME, MODIFIED), DONE],
    ),
    "waits": Story(verdict="open", steps=[COME]),
    "is with its receiver": Story(verdict="open", steps=[COME, *attempt(1, TO_A)]),
    "stored": Story(verdict="open", steps=stored()),
    "stored and forwarded": Story(
        verdict="delivered-once",
        share=0.01,
        steps=stored(
            *forwarded(5, TO_A, accepted(7, TO_A, source=FROM_STORE)),
            step(8, SETTLED, source=FROM_STORE),
        ),
    ),
    "stored and with its receiver": Story(verdict="open", steps=stored(*forwarded(5, TO_A))),
    "stored and given back": Story(
        verdict="open",
        steps=stored(
            *forwarded(
                5, TO_A, step(6, OUTCOME, RELEASED, flags=BY_THEM, target=TO_A, source=FROM_STORE)
            ),
            step(8, SETTLED, source=FROM_STORE),
        ),
    ),
    "stored and in doubt": Story(
        verdict="in-doubt",
        steps=stored(*forwarded(5, TO_A, step(6, IN_DOUBT, target=TO_A, source=FROM_STORE))),
    ),
    "stored and forwarded twice": Story(
        verdict="duplicated",
        steps=stored(
            *forwarded(5, TO_A, accepted(6, TO_A, source=FROM_STORE)),
            *forwarded(7, TO_B, accepted(8, TO_B, source=FROM_STORE)),
        ),
    ),
    "not there, sent again at least once": Story(
        verdict="delivered-once",
        guarantee=AT_LEAST_ONCE,
        steps=[
            COME,
            *attempt(1, TO_A, step(2, RESOLVED, AGAIN, flags=UNSENT, target=TO_A)),
            *attempt(3, TO_B, accepted(4, TO_B)),
            DONE,
        ],
    ),
    "sent again as its receiver had gone": Story(
        verdict="in-doubt",
        guarantee=AT_LEAST_ONCE,
        steps=[
            COME,
            *attempt(1, TO_A, step(2, RESOLVED, AGAIN, target=TO_A)),
            *attempt(3, TO_A, accepted(4, TO_A)),
            DONE,
        ],
    ),
    **STORED_AT_LEAST_ONCE,
    "older than the ledger": Story(verdict="continued", steps=[DONE]),
}

HOLE = "its outcome is missing"
"""Stories of this name share one moment at which their outcomes were recorded, and are missing."""
GAP = Story(
    verdict="ledger-gap",
    steps=[COME, *attempt(1, TO_A), step(-1, OUTCOME, ACCEPTED, flags=BY_THEM, target=TO_A), DONE],
)
_COLUMNS = ("at", "router", "worker", "kind", "outcome", "flags", "incoming", "outgoing")


@attrs.frozen
class Planted:
    """Deliveries of one story: ``count`` of them, numbered from ``first`` in ``key_low``."""

    story: str
    verdict: str
    first: int
    count: int


def tally(planted: Iterable[Planted]) -> dict[str, int]:
    """Gives how many deliveries each verdict should get."""
    truth: dict[str, int] = {}
    for each in planted:
        truth[each.verdict] = truth.get(each.verdict, 0) + each.count
    return truth


def plant(
    out: Path, events: int, *, seed: int = 1, has_gap: bool = True, files: int = 4, day: int = 0
) -> list[Planted]:
    """Writes a ledger of about so many events; gives what is in it.

    Args:
        out: the ledger.
        events: records, in all.
        seed: of the order of things.
        has_gap: records of one moment are missing.
        files: per router.
        day: how many days later; its deliveries, and lives of workers, are others.
    """
    start = START_NS + day * DAY_NS
    chance = np.random.default_rng(seed)
    mean = sum(story.share * len(story.steps) for story in STORIES.values())
    total = events / mean
    planted: list[Planted] = []
    parts: list[dict[str, Any]] = []
    first = day << 40
    moment = start + HOUR_NS // 2
    stories = {**STORIES, **({HOLE: GAP} if has_gap else {})}
    for name, story in stories.items():
        count = max(1, round(story.share * total))
        planted.append(Planted(name, story.verdict, first, count))
        begins = start + chance.integers(0, HOUR_NS, count)
        is_near = abs(begins - moment) < HOUR_NS // 100
        begins[is_near] += HOUR_NS // 50
        if story is GAP:
            begins = moment - chance.integers(5 * MS, 8 * MS, count)
        parts += _records(story, begins, moment, first)
        first += count
    columns = {column: np.concatenate([part[column] for part in parts]) for column in parts[0]}
    for index, router in enumerate((EAST, WEST)):
        mine = columns["router"] == index
        mine_columns = {name: column[mine] for name, column in columns.items()}
        _write(out, router, mine_columns, files, day)
    return planted


def _records(story: Story, begins: Any, moment: int, first: int) -> list[dict[str, Any]]:
    count = len(begins)
    numbers = np.arange(first, first + count, dtype=np.uint64)
    parts = []
    for at, router, worker, kind, outcome, flags, incoming, outgoing in story.steps:
        times = np.full(count, moment) if at < 0 else begins + int(at * MS)
        parts.append(
            {
                "time_ns": times.astype(np.int64),
                "router": np.full(count, (EAST, WEST).index(router), np.int8),
                "worker": np.full(count, worker, np.int32),
                "kind": np.full(count, kind, np.int16),
                "outcome": np.full(count, outcome, np.int16),
                "flags": np.full(count, flags, np.int32),
                "incoming": np.full(count, incoming, np.int64),
                "outgoing": np.full(count, outgoing, np.int64),
                "key_high": (numbers * np.uint64(0x9E3779B97F4A7C15)).view(np.int64),
                "key_low": numbers.view(np.int64),
                "guarantee": np.full(count, story.guarantee, np.int16),
                "ttl": np.full(count, story.ttl_milliseconds or -1, np.int64),
                "is_missing": np.full(count, at < 0),
            }
        )
    return parts


def _write(out: Path, router: str, columns: dict[str, Any], files: int, day: int) -> None:
    """Numbers the records of a router in the order of their times, and writes them."""
    order = np.argsort(columns["time_ns"], kind="stable")
    columns = {name: column[order] for name, column in columns.items()}
    columns["sequence"] = np.arange(1, len(order) + 1)
    start = START_NS + day * DAY_NS
    columns["incarnation"] = np.full(len(order), start - HOUR_NS if day else 0)
    kept = ~columns.pop("is_missing")
    columns = {name: column[kept] for name, column in columns.items()}
    edges = np.linspace(0, len(columns["sequence"]), files + 1).astype(int)
    for number, (begin, end) in enumerate(itertools.pairwise(edges), 1 + day * files):
        table = _table({name: column[begin:end] for name, column in columns.items()})
        date = datetime.datetime.fromtimestamp(start // 10**9, datetime.UTC).date()
        folder = out / f"date={date}" / f"router={router}"
        folder.mkdir(parents=True, exist_ok=True)
        links = _links(router, start) if begin == 0 else []
        with pq.ParquetWriter(folder / f"{number:016d}-00000000.parquet", table.schema) as writer:
            if links:
                writer.write_table(pa.Table.from_pylist(links, schema=table.schema))
            writer.write_table(table)


def _table(columns: dict[str, Any]) -> Any:
    schema = arrow_schema(LEDGER)
    count = len(columns["sequence"])
    ttl = columns["ttl"]
    given: dict[str, Any] = {
        **columns,
        "time": columns["time_ns"] // 1000,
        "ttl_milliseconds": pa.array(ttl, mask=ttl < 0),
        "message_octets": np.where(columns["kind"] == RECEIVED, 100, 0),
    }
    arrays = []
    for field in schema:
        if field.name in given:
            arrays.append(pa.array(given[field.name]).cast(field.type))
        elif field.nullable:
            arrays.append(pa.nulls(count, field.type))
        else:
            arrays.append(pa.array(np.zeros(count, np.int64)).cast(field.type))
    return pa.Table.from_arrays(arrays, schema=schema)


def _links(router: str, start_ns: int) -> list[dict[str, Any]]:
    """Gives the links of a router as its segments repeat them."""
    named = {
        EAST: [(IN, 0, "shop", "orders"), (0, TO_A, "store-a", "orders"),
               (0, TO_B, "store-b", "orders"), (0, TO_WEST, WEST, "orders"),
               (0, TO_STORE, f"{EAST}/message-store", "orders"),
               (FROM_STORE, 0, f"{EAST}/message-store", "orders")],
        WEST: [(FROM_EAST, 0, EAST, "orders"), (0, TO_C, "store-c", "orders")],
    }  # fmt: skip
    return [
        {
            **{field.name: None if field.nullable else 0 for field in arrow_schema(LEDGER)},
            "time": start_ns // 1000,
            "time_ns": start_ns,
            "worker": 0xFFFF,
            "kind": int(RecordKind.LINK_ATTACHED),
            "flags": int(RecordFlag.COPY),
            "incoming": incoming,
            "outgoing": outgoing,
            "container": container,
            "link_name": "across" if container in (EAST, WEST) else f"link-{incoming or outgoing}",
            "local": router,
            "address": address,
        }
        for incoming, outgoing, container, address in named[router]
    ]
