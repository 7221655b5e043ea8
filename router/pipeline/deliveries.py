"""The verdict on each delivery, over any number of routers: one grouping of its hops by its key.

Theory of operation. Each hop (``hops``) is converted to a row of counters about its delivery
(``STATE``), by what its links lead to, how far the ledgers of its router and the next reach, and
what they miss; grouping by the 128 bits of the key merges the rows with sums, minima and maxima.

A delivery passes several hops: workers of a router, routers of a network. Links between them are
*inner*; the others are *outer*. It was taken in when a RECEIVED stands on an outer link, and
delivered when an outer link's receiver accepted it. The message store of a router is an inner hop:
what it has accepted is stored, and open, until an outer link's receiver has accepted that. A store
of an at-least-once route may get a message twice, or send it twice, under the same key; when its
worker is killed, no record ends the attempt before. If it came from a router that does not record
it, it is judged by what the first router that does was sent, and answered.

    verdict         what the records prove
    delivered-once  accepted once (multicast: once by each), and no attempt whose end is unknown
    duplicated      accepted twice, by two receivers or by one that it was sent to again
    lost            its sender, or the hop before, was told that it is accepted, and nobody did;
                    or it came settled and was never sent
    in-doubt        an attempt's end is unknown and its link has gone, or a person decided; or it
                    was sent again on a route that may repeat; or it was handed on settled, and the
                    next hop has no record of it
    rejected        refused, which its sender is told
    released        not acted upon by anybody, and its sender told so, or gone
    expired         its time to live ran out in the router, and its sender told so
    open            it is still under way, or stored, or a ledger does not reach far enough yet
    ledger-gap      the records that would tell are missing from the ledger, or the ledger of a
                    router that has ended stops before them
    continued       began before all ledgers do, or is the end of one that was judged before

Times of two routers are compared with the offset of their clocks (``clocks``), at its worst; all
others are of one clock.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from router.journal.record import GuaranteeCode
from router.pipeline.clocks import Clock, Handovers
from router.pipeline.coverage import Reach
from router.pipeline.hops import KEY, Counter
from router.pipeline.session import small_table

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

STATE: Final = (
    Counter("begun_ns", "min", "time of the first record"),
    Counter("last_ns", "max", "time of the last record"),
    Counter("taken_ns", "min", "when it was taken in, at an outer link"),
    Counter("is_from_outside", "max", "1: a record names the outer link that it came over"),
    Counter("received", "sum", "how often it was taken in"),
    Counter("presettled", "sum", "of these, settled by the sender"),
    Counter("inner_received", "sum", "how often a further hop took it in"),
    Counter("inner_presettled", "sum", "of these, settled by the hop before"),
    Counter("sent", "sum", "attempts at outer links"),
    Counter("sent_settled", "sum", "of these, settled"),
    Counter("fanned", "sum", "of these, one of several: multicast"),
    Counter("inner_sent", "sum", "attempts at inner links"),
    Counter("inner_sent_settled", "sum", "of these, settled"),
    Counter("accepted", "sum", "records of acceptance at outer links"),
    Counter("accepted_settled", "sum", "of these, by which the receiver settled"),
    Counter("accepted_again", "max", "1: accepted, sent again on the same link and accepted again"),
    Counter("accepted_twice", "max", "1: accepted twice, and settled both times, on one link"),
    Counter("sent_over", "max", "1: sent again on one link, and no record ends the attempt before"),
    Counter("accepted_unsent", "max", "1: accepted, and the record of sending it is missing"),
    Counter("accepted_ns", "min", "when it was first accepted, at an outer link"),
    Counter("target", "min", "least key of a link whose receiver accepted"),
    Counter("last_target", "max", "greatest"),
    Counter("sent_to", "max", "greatest key of a link it was sent on"),
    Counter("rejected", "sum", "refused by receivers"),
    Counter("released", "sum", "given back by receivers"),
    Counter("doubts", "sum", "attempts whose outcome was lost with the connection"),
    Counter("resolved", "sum", "attempts decided without an outcome"),
    Counter("resolved_again", "sum", "of these, sent again though they may have arrived"),
    Counter("resolved_accepted", "sum", "of these, taken for accepted by a person"),
    Counter("inner_accepted", "sum", "accepted by a further hop"),
    Counter("inner_rejected", "sum", "refused by a further hop"),
    Counter("stored", "max", "1: the router's message store has accepted it"),
    Counter("left_store", "sum", "how often a message store has sent it on"),
    Counter("store_attempts", "sum", "attempts to store it that the store has not refused"),
    Counter("inner_ended", "sum", "attempts at inner links whose end is known"),
    Counter("inner_doubts", "sum", "and whose outcome was lost with the connection"),
    Counter("told_accepted", "sum", "accepted on the router's own word"),
    Counter("told_rejected", "sum", "rejected on the router's own word"),
    Counter("told_released", "sum", "released or modified on the router's own word"),
    Counter("expired", "max", "1: the router gave it back after its time to live"),
    Counter("settled", "sum", "settled by its sender, or forgotten with it"),
    Counter("inner_told_accepted", "sum", "accepted on a further hop's own word"),
    Counter("inner_told_rejected", "sum", "rejected on a further hop's own word"),
    Counter("inner_told_released", "sum", "released or modified on a further hop's own word"),
    Counter("inner_expired", "max", "1: a further hop gave it back after its time to live"),
    Counter("inner_settled", "sum", "settled by the hop before, or forgotten with it"),
    Counter("guarantee", "max", "the strongest promise among the hops"),
    Counter("octets", "max", "size of the message"),
    Counter("source", "max", "key of the outer link it came over"),
    Counter("address_key", "max", "hash of an address that its record told; null: its link's"),
    Counter("is_quiet", "min", "1: the ledgers reach further than its last record, and the grace"),
    Counter("is_old", "min", "1: and a day"),
    Counter("has_gap", "max", "1: a router that had it misses records of that time"),
    Counter("began_in_gap", "max", "1: the record that took it in may be missing"),
)

_AT_ENTRY: Final = (
    "received",
    "presettled",
    "told_accepted",
    "told_rejected",
    "told_released",
    "expired",
    "settled",
)
"""Counters of the outer link that a delivery came over. If no record names one, those of the
routers that recorded the delivery count: the router before them does not record the route, or has
no ledger."""


def router_table(spark: Any, reaches: Mapping[str, Reach], clocks: Mapping[str, Clock]) -> Any:
    """Returns a row for each router: how far its ledger reaches, what it misses, its clock."""
    rows = [
        (
            each.router,
            each.begun_ns,
            each.reach_ns,
            each.has_ended or each.is_declared,
            [{"after": after, "before": before} for after, before in each.holes],
            clocks[each.router].ahead_ns,
        )
        for each in reaches.values()
    ]
    return small_table(
        spark,
        rows,
        "router string, begins_ns bigint, reach_ns bigint, has_ended boolean,"
        " holes array<struct<after: bigint, before: bigint>>, ahead_ns bigint",
    )


def pair_table(spark: Any, handovers: Iterable[Handovers]) -> Any:
    """Returns a row for each pair of routers."""
    rows = [(each.sender, each.receiver, each.are_strangers, *each.offset_ns) for each in handovers]
    return small_table(
        spark,
        rows,
        "sender string, receiver string, are_strangers boolean, least_ns bigint, most_ns bigint",
    )


def to_state(hops: Any, routers: Any, pairs: Any, grace_ns: int, ended: Iterable[str] = ()) -> Any:
    """Turns hops into rows of ``STATE``, one each.

    Args:
        hops: with the routers at the other ends of the links, see ``links.with_ends``.
        routers: see ``router_table``.
        pairs: see ``pair_table``.
        grace_ns: see ``audit``.
        ended: routers of which somebody said that they have ended.
    """
    from pyspark.sql import functions as F  # noqa: N812, PLC0415  an extra

    rows = _with_neighbors(hops, routers, pairs)
    c = {name: F.col(name) for name in rows.columns}
    has_next = c["outgoing"] != 0
    is_outer_in = c["last_hop"].isNull()
    is_outer_out = has_next & c["next_hop"].isNull()
    is_inner_out = c["next_hop"].isNotNull()
    is_own_word = ~has_next & is_outer_in
    is_inner_word = ~has_next & ~is_outer_in

    def only(condition: Any, value: Any) -> Any:
        return F.when(condition, value).otherwise(F.lit(0)).cast("bigint")

    def flag(condition: Any) -> Any:
        return only(F.coalesce(condition, F.lit(False)), F.lit(1))

    is_given = is_outer_out & (c["sent_settled"] > 0)
    is_accepted = (is_outer_out & (c["accepted"] > 0)) | is_given
    accepted_ns = F.least("accepted_ns", F.when(is_given, c["sent_ns"]))
    waited_ns = c["last_outcome_ns"] - c["received_ns"]
    is_expired = (c["rejected"] + c["released"] > 0) & (
        waited_ns >= c["ttl_milliseconds"] * 1_000_000
    )
    columns = {
        "begun_ns": c["begun_ns"] - c["ahead_ns"],
        "last_ns": c["last_ns"] - c["ahead_ns"],
        "taken_ns": F.when(is_outer_in, c["received_ns"] - c["ahead_ns"]),
        "is_from_outside": flag(is_outer_in),
        "received": only(is_outer_in, c["received"]),
        "presettled": only(is_outer_in, c["presettled"]),
        "inner_received": only(~is_outer_in, c["received"]),
        "inner_presettled": only(~is_outer_in, c["presettled"]),
        "sent": only(is_outer_out, c["sent"]),
        "sent_settled": only(is_outer_out, c["sent_settled"]),
        "fanned": only(is_outer_out, c["fanned"]),
        "inner_sent": only(is_inner_out, c["sent"]),
        "inner_sent_settled": only(is_inner_out, c["sent_settled"]),
        "accepted": only(is_outer_out, c["accepted"] + c["sent_settled"]),
        "accepted_settled": only(is_outer_out, c["accepted_settled"]),
        "accepted_again": flag(
            is_accepted
            & (c["accepted"] + c["sent_settled"] > 1)
            & (accepted_ns < c["last_sent_ns"])
            & (
                c["last_sent_ns"]
                <= F.greatest("last_accepted_ns", F.when(is_given, c["last_sent_ns"]))
            )
        ),
        "accepted_twice": flag(is_outer_out & (c["accepted_settled"] > 1)),
        "sent_over": flag(is_outer_out & (_unended(c) > 1)),
        "accepted_unsent": flag(is_accepted & (c["sent"] == 0)),
        "accepted_ns": F.when(is_accepted, accepted_ns - c["ahead_ns"]),
        "target": F.when(is_accepted, c["outgoing"]),
        "last_target": F.when(is_accepted, c["outgoing"]),
        "sent_to": F.when(is_outer_out & (c["sent"] > 0), c["outgoing"]),
        "rejected": only(is_outer_out, c["rejected"]),
        "released": only(is_outer_out, c["released"]),
        "doubts": only(is_outer_out, c["doubts"]),
        "resolved": only(is_outer_out, c["resolved"]),
        "resolved_again": only(is_outer_out, c["resolved_again"]),
        "resolved_accepted": only(has_next, c["resolved_accepted"]),
        "inner_accepted": only(is_inner_out, c["accepted"]),
        "inner_rejected": only(is_inner_out, c["rejected"]),
        "stored": flag(c["is_next_store"] & (c["accepted"] > 0)),
        "left_store": only(c["is_last_store"], c["received"]),
        "store_attempts": only(c["is_next_store"], c["sent"] - c["rejected"] - c["released"]),
        "inner_ended": only(is_inner_out, c["outcomes"] + c["resolved"]),
        "inner_doubts": only(is_inner_out, c["doubts"]),
        "told_accepted": only(is_own_word, c["accepted"]),
        "told_rejected": only(is_own_word, c["rejected"]),
        "told_released": only(is_own_word, c["released"]),
        "expired": flag(is_own_word & is_expired),
        "settled": only(is_own_word, c["settled"]),
        "inner_told_accepted": only(is_inner_word, c["accepted"]),
        "inner_told_rejected": only(is_inner_word, c["rejected"]),
        "inner_told_released": only(is_inner_word, c["released"]),
        "inner_expired": flag(is_inner_word & is_expired),
        "inner_settled": only(is_inner_word, c["settled"]),
        "guarantee": c["guarantee"],
        "octets": c["octets"],
        "source": F.when(is_outer_in & (c["received"] > 0), c["incoming"]),
        "address_key": F.when(is_outer_in, c["address_key"]),
        "is_quiet": flag(_is_quiet(c, grace_ns, list(ended))),
        "is_old": flag(_is_quiet(c, max(grace_ns, LINGER_NS), list(ended))),
        "has_gap": flag(_has_gap(c, grace_ns, list(ended))),
        "began_in_gap": flag(_began_in_gap(c)),
    }
    assert list(columns) == [each.name for each in STATE]
    return rows.select(*KEY, *(column.alias(name) for name, column in columns.items()))


def _unended(c: Mapping[str, Any]) -> Any:
    """Returns how many attempts nothing but an acceptance has ended, as far as is recorded."""
    return c["sent"] - c["resolved"] - c["rejected"] - c["released"]


def _with_neighbors(hops: Any, routers: Any, pairs: Any) -> Any:
    """Adds what is known of the router, of the one before and of the next."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415  an extra

    def named(table: Any, names: Mapping[str, str]) -> Any:
        return F.broadcast(table.select(*(F.col(old).alias(new) for old, new in names.items())))

    came = named(
        pairs.where(~F.col("are_strangers")),
        {
            "sender": "last_hop",
            "receiver": "router",
            "least_ns": "came_least",
            "most_ns": "came_most",
        },
    )
    went = named(
        pairs.where(~F.col("are_strangers")),
        {
            "sender": "router",
            "receiver": "next_hop",
            "least_ns": "went_least",
            "most_ns": "went_most",
        },
    )
    last = named(routers, {"router": "last_hop", "holes": "last_holes"})
    following = named(
        routers,
        {
            "router": "next_hop",
            "begins_ns": "next_begins",
            "reach_ns": "next_reach",
            "has_ended": "next_ended",
            "holes": "next_holes",
        },
    )
    strangers = named(
        pairs.where("are_strangers"), {"sender": "stranger", "receiver": "to_stranger"}
    )
    at = F.col("router")
    is_from = (F.col("last_hop") == F.col("stranger")) & (at == F.col("to_stranger"))
    is_to = (at == F.col("stranger")) & (F.col("next_hop") == F.col("to_stranger"))
    trusted = hops.join(strangers, is_from, "left").withColumn(
        "last_hop", F.when(F.col("stranger").isNull(), F.col("last_hop"))
    )
    trusted = trusted.drop("stranger", "to_stranger").join(strangers, is_to, "left")
    trusted = trusted.withColumn(
        "next_hop", F.when(F.col("stranger").isNull(), F.col("next_hop"))
    ).drop("stranger", "to_stranger")
    return (
        trusted.join(F.broadcast(routers), "router", "left")
        .join(came, ["last_hop", "router"], "left")
        .join(went, ["next_hop", "router"], "left")
        .join(last, "last_hop", "left")
        .join(following, "next_hop", "left")
    )


def _is_quiet(c: Mapping[str, Any], grace_ns: int, ended: list[str]) -> Any:
    """Returns whether the ledgers reach so far that the absence of a record means something."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415  an extra

    is_own = F.coalesce(c["has_ended"], F.lit(False)) | (c["last_ns"] <= c["reach_ns"] - grace_ns)
    handed_ns = _handed_ns(c)
    is_declared = c["next_hop"].isin(*ended) if ended else F.lit(False)
    is_next = F.coalesce(c["next_ended"], is_declared) | (
        handed_ns + c["went_most"] <= c["next_reach"] - grace_ns
    )
    is_last = c["next_hop"].isNull() | (c["next_hop"] == c["router"])
    return is_own & (is_last | F.coalesce(is_next, F.lit(False)))


def _handed_ns(c: Mapping[str, Any]) -> Any:
    """Returns when the router last had to do with the next: that had recorded what it did then."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415  an extra

    return F.coalesce(F.greatest(c["last_sent_ns"], c["last_outcome_ns"]), c["last_ns"])


def _has_gap(c: Mapping[str, Any], grace_ns: int, ended: list[str]) -> Any:
    """Returns whether records of its time are missing, here or at the router it was handed to."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415  an extra

    def meets(holes: Any, begin: Any, end: Any) -> Any:
        return F.coalesce(
            F.exists(
                holes,
                lambda hole: (
                    (hole["after"] <= end) & (hole["before"].isNull() | (hole["before"] >= begin))
                ),
            ),
            F.lit(False),
        )

    handed_ns = F.coalesce(c["sent_ns"], c["begun_ns"])
    last_ns = _handed_ns(c)
    is_missing_there = (
        meets(c["next_holes"], handed_ns + c["went_least"], last_ns + c["went_most"] + grace_ns)
        | (handed_ns + c["went_least"] <= c["next_begins"])
        | (c["next_ended"] & (last_ns + c["went_most"] > c["next_reach"]))
        | (c["next_reach"].isNotNull() & c["is_next_met"].isNull())
    )
    is_declared = c["next_hop"].isin(*ended) if ended else F.lit(False)
    is_missing_there = F.coalesce(is_missing_there, is_declared & c["next_reach"].isNull())
    is_other = c["next_hop"].isNotNull() & (c["next_hop"] != c["router"])
    return meets(c["holes"], c["begun_ns"], c["last_ns"] + grace_ns) | (
        is_other & F.coalesce(is_missing_there, F.lit(False))
    )


def _began_in_gap(c: Mapping[str, Any]) -> Any:
    """Returns whether earlier records are missing, here or at the router that it came from."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415  an extra

    def follows(holes: Any, at: Any) -> Any:
        return F.coalesce(F.exists(holes, lambda hole: hole["after"] <= at), F.lit(False))

    return follows(c["holes"], c["begun_ns"]) | follows(
        c["last_holes"], c["begun_ns"] - c["came_least"]
    )


def merge(state: Any) -> Any:
    """Groups rows of ``STATE`` by delivery."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415  an extra

    return state.groupBy(*KEY).agg(
        *(getattr(F, each.merge)(each.name).alias(each.name) for each in STATE)
    )


def judge(deliveries: Any) -> Any:
    """Adds ``verdict``, and ``is_closed``: nothing more is to be expected of the delivery."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415  an extra

    c = {each.name: F.col(each.name) for each in STATE}
    is_from_outside = c["is_from_outside"] == 1
    c |= {
        name: F.when(is_from_outside, c[name]).otherwise(c[f"inner_{name}"]) for name in _AT_ENTRY
    }
    is_unseen = ~is_from_outside | (c["received"] == 0)
    is_quiet = c["is_quiet"] == 1
    known_ends = c["resolved"] + c["accepted"] + c["rejected"] + c["released"]
    is_unknown = c["sent"] > known_ends
    is_fanned = c["fanned"] > 0
    is_stored = (c["stored"] > 0) | (c["left_store"] > 0)
    is_repeated = is_stored & ((c["sent_over"] == 1) | (~is_fanned & (_unended(c) > 1)))
    is_inexact = c["guarantee"] != int(GuaranteeCode.EXACTLY_ONCE)
    may_repeat = is_inexact & ((c["resolved_again"] > 0) | (c["store_attempts"] > 1))
    attempts = F.greatest(c["sent"] - c["resolved"], F.lit(1))
    is_duplicated = (
        (c["accepted_settled"] > attempts)
        | (~is_fanned & (c["target"] != c["last_target"]))
        | (~is_fanned & (c["accepted_again"] == 1))
        | (~is_fanned & (c["sent_settled"] - c["resolved"] > 1))
        | (~is_fanned & (c["accepted_settled"] > 1))
        | (c["accepted_twice"] == 1)
    )
    is_unsure = (c["accepted_unsent"] == 1) | ((c["sent_settled"] > 1) & (c["has_gap"] == 1))
    is_accepted = c["accepted"] > 0
    claims = c["told_accepted"] + c["inner_accepted"] > 0
    is_over = c["settled"] + c["presettled"] >= c["received"]
    is_forgotten = (c["settled"] >= c["received"]) & ~is_stored
    is_lost_sight = (c["doubts"] + c["inner_doubts"] > 0) | is_forgotten | is_repeated
    is_under_way = is_unknown | (c["inner_sent"] - c["inner_sent_settled"] > c["inner_ended"])
    is_given_away = (c["presettled"] > 0) & (c["sent"] + c["inner_sent"] == c["inner_sent_settled"])
    handed_over = c["inner_received"] - F.when(is_from_outside, 0).otherwise(1)
    is_dropped = is_given_away & (handed_over >= c["inner_sent"])
    is_vanished = is_given_away & ~is_dropped
    is_refused = c["rejected"] + c["inner_rejected"] + c["told_rejected"] > 0
    has_more_than_its_end = c["sent"] + c["accepted"] + c["inner_received"] > 0
    unknown = F.when((c["has_gap"] == 1) & is_quiet, "ledger-gap")
    began_in_gap = has_more_than_its_end & (c["began_in_gap"] == 1)
    verdict = (
        F.when(is_unseen & began_in_gap, "ledger-gap")
        .when(c["received"] == 0, "continued")
        .when(is_accepted & is_duplicated & is_unsure, "ledger-gap")
        .when(is_accepted & is_duplicated, "duplicated")
        .when(is_accepted & is_unknown & is_lost_sight, F.coalesce(unknown, F.lit("in-doubt")))
        .when(is_accepted & is_unknown & is_fanned, "open")
        .when(is_accepted & (may_repeat | is_repeated), "in-doubt")
        .when(is_accepted, "delivered-once")
        .when(c["resolved_accepted"] > 0, "in-doubt")
        .when(is_stored & is_unknown & (c["doubts"] > 0), "in-doubt")
        .when(is_stored, "open")
        .when((claims | is_dropped) & is_quiet, F.coalesce(unknown, F.lit("lost")))
        .when(is_vanished & is_quiet, F.coalesce(unknown, F.lit("in-doubt")))
        .when(claims | is_given_away, "open")
        .when(is_under_way & is_lost_sight, F.coalesce(unknown, F.lit("in-doubt")))
        .when(is_under_way, F.coalesce(unknown, F.lit("open")))
        .when(c["expired"] == 1, "expired")
        .when(is_refused, "rejected")
        .when(is_over | (c["told_released"] > 0), "released")
        .otherwise(F.coalesce(unknown, F.lit("open")))
    )  # fmt: skip
    reached_ns = F.when(c["accepted_ns"].isNotNull(), F.greatest("accepted_ns", "taken_ns"))
    judged = deliveries.withColumn("verdict", verdict).withColumn("accepted_ns", reached_ns)
    is_ended = c["told_rejected"] + c["told_released"] + c["rejected"] + c["inner_rejected"] > 0
    is_final = ~F.col("verdict").isin("open", "in-doubt", "ledger-gap") & (
        is_over | is_ended | (c["is_old"] == 1)
    )
    is_known = F.col("verdict").isin("continued", "lost", "duplicated")
    return judged.withColumn("is_closed", is_quiet & (is_final | is_known))
