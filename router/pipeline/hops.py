"""Hops: what a router recorded of a delivery between two of its links.

Records are merged to one row for each (delivery, router, incoming link, outgoing link). Such a row
says nothing about the other routers, and every merge is a sum, minimum or maximum, so rows of one
run are merged with the next one's records, in whatever order these come. What a link leads to, how
far ledgers reach, and what clocks show is asked when a delivery is judged (``deliveries``), with
all that is known then.

All columns but the grouping ones are numbers of fixed width, which Spark groups by hash.
"""

from typing import Any, Final

import attrs

from router.journal.record import OutcomeCode, RecordFlag, RecordKind, Resolution

KEY: Final = ("key_high", "key_low")
HOP: Final = (*KEY, "router", "incoming", "outgoing")


@attrs.frozen
class Counter:
    """One column of grouped rows.

    Attributes:
        name: of the column.
        merge: ``sum``, ``min`` or ``max``.
        help: what it says.
    """

    name: str
    merge: str
    help: str


COUNTERS: Final = (
    Counter("begun_ns", "min", "time of the first record"),
    Counter("last_ns", "max", "time of the last record"),
    Counter("received", "sum", "how often it was received, as a new delivery"),
    Counter("presettled", "sum", "of these, settled by the sender"),
    Counter("received_ns", "min", "the first of these"),
    Counter("sent", "sum", "attempts"),
    Counter("sent_settled", "sum", "of these, settled"),
    Counter("fanned", "sum", "of these, one of several: multicast"),
    Counter("sent_ns", "min", "the first of these"),
    Counter("last_sent_ns", "max", "the last of these"),
    Counter("outcomes", "sum", "outcomes; of a hop without an outgoing link, the router's own"),
    Counter("outcome_ns", "min", "the first of these"),
    Counter("last_outcome_ns", "max", "the last of these"),
    Counter("accepted", "sum", "of these, accepted"),
    Counter("accepted_settled", "sum", "of these, by which the receiver settled"),
    Counter("accepted_ns", "min", "the first of these"),
    Counter("last_accepted_ns", "max", "the last of these"),
    Counter("rejected", "sum", "of the outcomes, rejected"),
    Counter("released", "sum", "of the outcomes, released or modified"),
    Counter("doubts", "sum", "attempts whose outcome was lost with the connection"),
    Counter("resolved", "sum", "attempts decided without an outcome"),
    Counter("resolved_again", "sum", "of these, sent again though they may have arrived"),
    Counter("resolved_accepted", "sum", "of these, taken for accepted by a person"),
    Counter("settled", "sum", "settled"),
    Counter("guarantee", "max", "promise of the route"),
    Counter("ttl_milliseconds", "max", "time to live; null: none"),
    Counter("octets", "max", "size of the message"),
    Counter("address_key", "max", "hash of an address that its record told; null: its link's"),
)

_ACCEPTED: Final = int(OutcomeCode.ACCEPTED)
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


def to_hops(records: Any) -> Any:
    """Turns records into rows of hops, one each."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415  an extra

    kind, outcome, at = F.col("kind"), F.col("outcome"), F.col("time_ns")

    def is_flagged(flag: RecordFlag) -> Any:
        return F.col("flags").bitwiseAND(int(flag)) != 0

    def count(condition: Any) -> Any:
        return F.when(condition, F.lit(1)).otherwise(F.lit(0)).cast("bigint")

    is_new = F.col("flags").bitwiseAND(_NOT_NEW) == 0
    is_received = (kind == int(RecordKind.RECEIVED)) & is_new
    # a later transfer may have said so
    is_settled = is_flagged(RecordFlag.SETTLED) & ~is_flagged(RecordFlag.COPY)
    is_presettled = (kind == int(RecordKind.RECEIVED)) & is_settled
    is_sent = (kind == int(RecordKind.SENT)) & is_new
    is_outcome = kind == int(RecordKind.OUTCOME)
    is_accepted = is_outcome & (outcome == _ACCEPTED)
    is_resolved = kind == int(RecordKind.RESOLVED)
    columns = {
        "begun_ns": at,
        "last_ns": at,
        "received": count(is_received),
        "presettled": count(is_presettled),
        "received_ns": F.when(is_received, at),
        "sent": count(is_sent),
        "sent_settled": count(is_sent & is_flagged(RecordFlag.SETTLED)),
        "fanned": count(is_sent & is_flagged(RecordFlag.FANNED)),
        "sent_ns": F.when(is_sent, at),
        "last_sent_ns": F.when(is_sent, at),
        "outcomes": count(is_outcome),
        "outcome_ns": F.when(is_outcome, at),
        "last_outcome_ns": F.when(is_outcome, at),
        "accepted": count(is_accepted),
        "accepted_settled": count(is_accepted & is_flagged(RecordFlag.SETTLED)),
        "accepted_ns": F.when(is_accepted, at),
        "last_accepted_ns": F.when(is_accepted, at),
        "rejected": count(is_outcome & (outcome == int(OutcomeCode.REJECTED))),
        "released": count(is_outcome & outcome.isin(*_GIVEN_BACK)),
        "doubts": count(kind == int(RecordKind.IN_DOUBT)),
        "resolved": count(is_resolved),
        "resolved_again": count(
            is_resolved & (outcome == int(Resolution.SEND_AGAIN)) & ~is_flagged(RecordFlag.UNSENT)
        ),
        "resolved_accepted": count(is_resolved & (outcome == int(Resolution.ACCEPT))),
        "settled": count(kind == int(RecordKind.SETTLED)),
        "guarantee": F.col("guarantee").cast("bigint"),
        "ttl_milliseconds": F.col("ttl_milliseconds"),
        "octets": F.col("message_octets"),
        "address_key": F.when(is_received & F.col("address").isNotNull(), F.xxhash64("address")),
    }
    assert list(columns) == [each.name for each in COUNTERS]
    return records.where(kind.isin(*_KINDS)).select(
        *HOP, *(column.alias(name) for name, column in columns.items())
    )


def merge_hops(rows: Any) -> Any:
    """Groups rows by hop."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415  an extra

    return rows.groupBy(*HOP).agg(
        *(getattr(F, each.merge)(each.name).alias(each.name) for each in COUNTERS)
    )
