"""The verdict on each delivery, over any number of routers: one grouping by key, no join.

Theory of operation. Every record is converted to a row of counters about its delivery (``STATE``),
each with a merge operation: sum, minimum, maximum, or bitwise or. Grouping by the 128 bits of the
key merges the rows. The grouped rows have the same form as the input, so the rows of open
deliveries are added to the next day's records, and an audit's cost does not grow with history.
All columns are numbers of fixed width, which Spark groups by hash, without sorting.

A delivery passes several hops: workers of a router, routers of a network. Links between them are
*inner*; the others are *outer*. It was taken in when a RECEIVED stands on an outer link, and
delivered when an outer link's receiver accepted it.

    verdict         what the records prove
    delivered-once  accepted once (multicast: once by each), and no attempt whose end is unknown
    duplicated      accepted twice, by two receivers or by one that it was sent to again
    lost            its sender, or the hop before, was told that it is accepted, and nobody did;
                    or it came settled and was never sent
    in-doubt        an attempt's end is unknown and its link has gone, or a person decided; or it
                    was sent again on a route that may repeat
    rejected        refused, and its sender told so
    released        not acted upon by anybody, and its sender told so, or gone
    expired         its time to live ran out in the router, and its sender told so
    open            it is still under way
    ledger-gap      the records that would tell are missing from the ledger (``records.find_holes``)
    continued       began before this ledger does, or is the end of one that was judged before
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs

from router.journal.record import (
    GuaranteeCode,
    OutcomeCode,
    RecordFlag,
    RecordKind,
    Resolution,
)
from router.pipeline.records import LedgerHole

VERDICTS: Final = (
    "delivered-once",
    "duplicated",
    "lost",
    "in-doubt",
    "rejected",
    "released",
    "expired",
    "open",
    "ledger-gap",
    "continued",
)
FAILURES: Final = ("lost", "duplicated")
OFFENDERS: Final = ("lost", "duplicated", "in-doubt", "ledger-gap")

LINGER_NS: Final = 86_400 * 1_000_000_000
"""A day: no broker redelivers later without somebody's doing."""

KEY: Final = ("key_high", "key_low")
ROUTER_BITS: Final = 62
"""Routers are told apart by a bit each; beyond these, some share one, which only widens gaps."""


@attrs.frozen
class Counter:
    """One column of ``STATE``.

    Attributes:
        name: of the column.
        merge: ``sum``, ``min``, ``max`` or ``bit_or``.
        help: what it says.
    """

    name: str
    merge: str
    help: str


STATE: Final = (
    Counter("begun_ns", "min", "time of the first record"),
    Counter("last_ns", "max", "time of the last record"),
    Counter("taken_ns", "min", "when it was taken in, at an outer link"),
    Counter("received", "sum", "how often it was taken in"),
    Counter("presettled", "sum", "of these, settled by the sender"),
    Counter("inner_received", "sum", "how often a further hop took it in"),
    Counter("sent", "sum", "attempts at outer links"),
    Counter("sent_settled", "sum", "of these, settled"),
    Counter("fanned", "sum", "of these, one of several: multicast"),
    Counter("last_sent_ns", "max", "the last of these"),
    Counter("inner_sent", "sum", "attempts at inner links"),
    Counter("accepted", "sum", "records of acceptance at outer links"),
    Counter("accepted_settled", "sum", "of these, by which the receiver settled"),
    Counter("accepted_ns", "min", "the first of these"),
    Counter("last_accepted_ns", "max", "the last of these"),
    Counter("target", "min", "least key of a link whose receiver accepted"),
    Counter("last_target", "max", "greatest"),
    Counter("sent_to", "max", "greatest key of a link it was sent on"),
    Counter("rejected", "sum", "refused by receivers"),
    Counter("released", "sum", "given back by receivers"),
    Counter("doubts", "sum", "attempts whose outcome was lost with the connection"),
    Counter("resolved", "sum", "attempts decided without an outcome"),
    Counter("resolved_again", "sum", "of these, sent again"),
    Counter("resolved_accepted", "sum", "of these, taken for accepted by a person"),
    Counter("inner_accepted", "sum", "accepted by a further hop"),
    Counter("inner_ended", "sum", "attempts at inner links whose end is known"),
    Counter("inner_doubts", "sum", "and whose outcome was lost with the connection"),
    Counter("told_accepted", "sum", "accepted on the router's own word"),
    Counter("told_rejected", "sum", "rejected on the router's own word"),
    Counter("told_released", "sum", "released or modified on the router's own word"),
    Counter("settled", "sum", "settled by its sender, or forgotten with it"),
    Counter("guarantee", "max", "the strongest promise among the hops"),
    Counter("ttl_milliseconds", "max", "time to live; null: none"),
    Counter("octets", "max", "size of the message"),
    Counter("source", "max", "key of the outer link it came over"),
    Counter("address_key", "max", "hash of an address that its record told; 0: its link's"),
    Counter("routers", "bit_or", "a bit for each router that speaks of it"),
)

_ACCEPTED: Final = int(OutcomeCode.ACCEPTED)
_REJECTED: Final = int(OutcomeCode.REJECTED)
_GIVEN_BACK: Final = (int(OutcomeCode.RELEASED), int(OutcomeCode.MODIFIED))
_NOT_NEW: Final = int(RecordFlag.RESUMED | RecordFlag.COPY)
_KINDS: Final = tuple(
    int(kind)
    for kind in (
        RecordKind.RECEIVED,
        RecordKind.SENT,
        RecordKind.OUTCOME,
        RecordKind.SETTLED,
        RecordKind.IN_DOUBT,
        RecordKind.RESOLVED,
    )
)


def to_state(records: Any, routers: Sequence[str], joints: Mapping[int, str]) -> Any:
    """Turns records into rows of ``STATE``, one each.

    Args:
        records: of ledgers.
        routers: ids of all routers, whose order gives the bits.
        joints: keys of inner links, and the routers at their other ends.
    """
    from pyspark.sql import functions as F  # noqa: N812, PLC0415  an extra

    inner = list(joints)
    kind, outcome = F.col("kind"), F.col("outcome")
    incoming, outgoing, at = F.col("incoming"), F.col("outgoing"), F.col("time_ns")

    def is_flagged(flag: RecordFlag) -> Any:
        return F.col("flags").bitwiseAND(int(flag)) != 0

    def count(condition: Any) -> Any:
        return F.when(condition, F.lit(1)).otherwise(F.lit(0)).cast("bigint")

    is_outer_in = ~incoming.isin(*inner) if inner else F.lit(True)
    is_outer_out = (outgoing != 0) & ~outgoing.isin(*inner) if inner else outgoing != 0
    is_inner_out = outgoing.isin(*inner) if inner else F.lit(False)
    is_new = F.col("flags").bitwiseAND(_NOT_NEW) == 0
    is_received = (kind == int(RecordKind.RECEIVED)) & is_new
    is_taken = is_received & is_outer_in
    is_sent = (kind == int(RecordKind.SENT)) & is_new
    is_attempt = is_sent & is_outer_out
    is_sent_settled = is_attempt & is_flagged(RecordFlag.SETTLED)
    is_outcome = kind == int(RecordKind.OUTCOME)
    is_told = is_outcome & (outgoing == 0) & is_outer_in
    is_resolved = (kind == int(RecordKind.RESOLVED)) & (is_outer_out | is_inner_out)
    is_answer = is_outcome & is_outer_out & (outcome == _ACCEPTED)
    is_accepted = is_answer | is_sent_settled
    columns = {
        "begun_ns": at,
        "last_ns": at,
        "taken_ns": F.when(is_taken, at),
        "received": count(is_taken),
        "presettled": count(is_taken & is_flagged(RecordFlag.SETTLED)),
        "inner_received": count(is_received & ~is_outer_in),
        "sent": count(is_attempt),
        "sent_settled": count(is_sent_settled),
        "fanned": count(is_attempt & is_flagged(RecordFlag.FANNED)),
        "last_sent_ns": F.when(is_attempt, at),
        "inner_sent": count(is_sent & is_inner_out),
        "accepted": count(is_accepted),
        "accepted_settled": count(is_answer & is_flagged(RecordFlag.SETTLED)),
        "accepted_ns": F.when(is_accepted, at),
        "last_accepted_ns": F.when(is_accepted, at),
        "target": F.when(is_accepted, outgoing),
        "last_target": F.when(is_accepted, outgoing),
        "sent_to": F.when(is_attempt, outgoing),
        "rejected": count(is_outcome & is_outer_out & (outcome == _REJECTED)),
        "released": count(is_outcome & is_outer_out & outcome.isin(*_GIVEN_BACK)),
        "doubts": count((kind == int(RecordKind.IN_DOUBT)) & is_outer_out),
        "resolved": count(is_resolved & is_outer_out),
        "resolved_again": count(
            is_resolved & is_outer_out & (outcome == int(Resolution.SEND_AGAIN))
        ),
        "resolved_accepted": count(is_resolved & (outcome == int(Resolution.ACCEPT))),
        "inner_accepted": count(is_outcome & is_inner_out & (outcome == _ACCEPTED)),
        "inner_ended": count((is_outcome | is_resolved) & is_inner_out),
        "inner_doubts": count((kind == int(RecordKind.IN_DOUBT)) & is_inner_out),
        "told_accepted": count(is_told & (outcome == _ACCEPTED)),
        "told_rejected": count(is_told & (outcome == _REJECTED)),
        "told_released": count(is_told & outcome.isin(*_GIVEN_BACK)),
        "settled": count((kind == int(RecordKind.SETTLED)) & (outgoing == 0) & is_outer_in),
        "guarantee": F.col("guarantee").cast("bigint"),
        "ttl_milliseconds": F.col("ttl_milliseconds"),
        "octets": F.col("message_octets"),
        "source": F.when(is_taken, incoming),
        "address_key": F.when(is_taken & F.col("address").isNotNull(), F.xxhash64("address")),
        "routers": _bits_of(routers, joints),
    }
    assert list(columns) == [each.name for each in STATE]
    return records.where(kind.isin(*_KINDS)).select(
        *KEY, *(column.alias(name) for name, column in columns.items())
    )


def _bits_of(routers: Sequence[str], joints: Mapping[int, str]) -> Any:
    """Returns the bits of the routers that a record shows to have had the delivery."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415  an extra

    own = next_hop = last_hop = F.lit(0).cast("bigint")
    for router in routers:
        bit = F.lit(_bit(router, routers)).cast("bigint")
        own = F.when(F.col("router") == router, bit).otherwise(own)
        keys = [key for key, other in joints.items() if other == router]
        if keys:
            next_hop = F.when(F.col("outgoing").isin(*keys), bit).otherwise(next_hop)
            last_hop = F.when(F.col("incoming").isin(*keys), bit).otherwise(last_hop)
    return own.bitwiseOR(next_hop).bitwiseOR(last_hop)


def _bit(router: str, routers: Sequence[str]) -> int:
    return 1 << list(routers).index(router) % ROUTER_BITS


def merge(state: Any) -> Any:
    """Groups rows of ``STATE`` by delivery: the one grouping of the audit."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415  an extra

    return state.groupBy(*KEY).agg(
        *(getattr(F, each.merge)(each.name).alias(each.name) for each in STATE)
    )


def judge(
    deliveries: Any,
    *,
    holes: Sequence[LedgerHole] = (),
    routers: Sequence[str] = (),
    horizon_ns: int,
    grace_ns: int = 0,
    linger_ns: int = LINGER_NS,
) -> Any:
    """Adds ``verdict``, and ``is_closed``: nothing more is to be expected of the delivery.

    Args:
        deliveries: grouped rows of ``STATE``.
        holes: in the ledgers.
        routers: as for ``to_state``.
        horizon_ns: up to this time the ledgers of all routers are there.
        grace_ns: how much earlier than the horizon the last record of a delivery must be for the
            absence of another to mean something.
        linger_ns: how long a delivery is kept in mind that was accepted and whose sender has not
            settled it: it may be sent again.
    """
    from pyspark.sql import functions as F  # noqa: N812, PLC0415  an extra

    c = {each.name: F.col(each.name) for each in STATE}
    is_quiet = c["last_ns"] <= horizon_ns - grace_ns
    known_ends = c["resolved"] + c["accepted"] + c["rejected"] + c["released"]
    is_unknown = c["sent"] > known_ends
    may_repeat = (c["guarantee"] != int(GuaranteeCode.EXACTLY_ONCE)) & (c["doubts"] > 0)
    is_fanned = c["fanned"] > 0
    attempts = F.greatest(c["sent"] - c["resolved"], F.lit(1))
    is_duplicated = (
        (c["accepted_settled"] > attempts)
        | (~is_fanned & (c["target"] != c["last_target"]))
        | (
            ~is_fanned
            & (c["accepted"] > 1)
            & (c["accepted_ns"] < c["last_sent_ns"])
            & (c["last_sent_ns"] <= c["last_accepted_ns"])
        )
        | (~is_fanned & (c["sent_settled"] - c["resolved"] > 1))
    )
    is_accepted = c["accepted"] > 0
    claims = c["told_accepted"] + c["inner_accepted"] > 0
    is_over = c["settled"] + c["presettled"] >= c["received"]
    is_lost_sight = (c["doubts"] + c["inner_doubts"] > 0) | (c["settled"] >= c["received"])
    is_under_way = is_unknown | (c["inner_sent"] > c["inner_ended"])
    has_gap = _has_gap(c, holes, routers, grace_ns)
    is_dropped = (c["presettled"] > 0) & (c["sent"] + c["inner_sent"] == 0)
    is_expired = (c["told_released"] + c["told_rejected"] > 0) & (
        c["last_ns"] - c["taken_ns"] >= c["ttl_milliseconds"] * 1_000_000
    )
    unknown = F.when(has_gap & is_quiet, "ledger-gap")
    verdict = (
        F.when((c["received"] == 0) & _began_in_gap(c, holes, routers), "ledger-gap")
        .when(c["received"] == 0, "continued")
        .when(is_accepted & is_duplicated, "duplicated")
        .when(is_accepted & is_unknown & is_lost_sight, F.coalesce(unknown, F.lit("in-doubt")))
        .when(is_accepted & is_unknown & is_fanned, "open")
        .when(is_accepted & may_repeat & (c["resolved_again"] > 0), "in-doubt")
        .when(is_accepted, "delivered-once")
        .when(c["resolved_accepted"] > 0, "in-doubt")
        .when((claims | is_dropped) & is_quiet, F.coalesce(unknown, F.lit("lost")))
        .when(claims | is_dropped, "open")
        .when(is_under_way & is_lost_sight, F.coalesce(unknown, F.lit("in-doubt")))
        .when(is_under_way, F.coalesce(unknown, F.lit("open")))
        .when(is_expired, "expired")
        .when((c["rejected"] + c["told_rejected"] > 0) & is_over, "rejected")
        .when(is_over, "released")
        .otherwise(F.coalesce(unknown, F.lit("open")))
    )  # fmt: skip
    judged = deliveries.withColumn("verdict", verdict)
    is_old = c["last_ns"] <= horizon_ns - max(linger_ns, grace_ns)
    is_final = ~F.col("verdict").isin("open", "in-doubt") & (is_over | is_old)
    is_known = F.col("verdict").isin("continued", "ledger-gap", "lost", "duplicated")
    return judged.withColumn("is_closed", is_quiet & (is_final | is_known))


def _has_gap(
    c: dict[str, Any], holes: Sequence[LedgerHole], routers: Sequence[str], grace_ns: int
) -> Any:
    """Returns whether a hole of a router that speaks of the delivery lies within its life."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415  an extra

    found = F.lit(False)
    for after_ns, before_ns, bit in _spans(holes, routers):
        begins_in_time = c["last_ns"] + grace_ns >= after_ns
        ends_in_time = F.lit(True) if before_ns is None else c["begun_ns"] <= before_ns
        found = found | (begins_in_time & ends_in_time & (c["routers"].bitwiseAND(bit) != 0))
    return found


def _began_in_gap(c: Mapping[str, Any], holes: Sequence[LedgerHole], routers: Sequence[str]) -> Any:
    """Returns whether the record that took the delivery in may be in a hole."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415  an extra

    has_more_than_its_end = c["sent"] + c["accepted"] + c["inner_received"] > 0
    found = F.lit(False)
    for after_ns, _, bit in _spans(holes, routers):
        found = found | ((c["begun_ns"] >= after_ns) & (c["routers"].bitwiseAND(bit) != 0))
    return found & has_more_than_its_end


def _spans(
    holes: Sequence[LedgerHole], routers: Sequence[str]
) -> list[tuple[int, int | None, int]]:
    """Returns the holes as spans of time with the bit of their router; those that touch are one."""
    spans: list[tuple[int, int | None, int]] = []
    for router in sorted({hole.router for hole in holes} & set(routers)):
        bit, count = _bit(router, routers), 0
        own = [(hole.after_ns, hole.before_ns) for hole in holes if hole.router == router]
        for after, before in sorted(own, key=lambda span: span[0]):
            last = spans[-1] if count else None
            if last is None or (last[1] is not None and after > last[1] and count < _SPANS_MOST):
                spans.append((after, before, bit))
                count += 1
            else:
                is_endless = last[1] is None or before is None
                spans[-1] = (last[0], None if is_endless else max(last[1] or 0, before or 0), bit)
    return spans


_SPANS_MOST: Final = 100
"""Spans of one router that an expression may have; further ones are joined to the last."""
