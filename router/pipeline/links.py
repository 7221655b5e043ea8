"""Links that ledgers name, and the routers at their other ends."""

from collections.abc import Iterable
from typing import Any, Final

from router.journal.record import RecordFlag, RecordKind
from router.pipeline.clocks import Handovers
from router.pipeline.hops import KEY
from router.pipeline.session import small_table

STORE: Final = "message-store"
"""Ends the container-id of a router's message store, behind the router's id (``net.store``)."""


def read_links(records: Any) -> Any:
    """Returns a row for each end of a link."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415  an extra

    is_named = (F.col("kind") == int(RecordKind.LINK_ATTACHED)) & F.col("link_name").isNotNull()
    return records.where(is_named).select(
        F.when(F.col("incoming") != 0, F.col("incoming"))
        .otherwise(F.col("outgoing"))
        .alias("link"),
        "router",
        F.coalesce("container", F.lit("")).alias("container"),
        F.col("link_name").alias("name"),
        F.coalesce("address", F.lit("")).alias("place"),
        F.col("time_ns").alias("seen_ns"),
        (F.col("flags").bitwiseAND(int(RecordFlag.ROUTER)) != 0).alias("is_router"),
    )


def merge_links(links: Any) -> Any:
    """Leaves one row for each end of a link: the latest."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415  an extra

    latest = [F.max_by(each, "seen_ns").alias(each) for each in ("container", "name", "place")]
    return links.groupBy("link", "router").agg(
        *latest, F.max("seen_ns").alias("seen_ns"), F.max("is_router").alias("is_router")
    )


def no_links(spark: Any) -> Any:
    """Returns an empty table of links."""
    return small_table(
        spark,
        [],
        "link bigint, router string, container string, name string, place string,"
        " seen_ns bigint, is_router boolean",
    )


def with_ends(hops: Any, links: Any, routers: Iterable[str], flagging: Iterable[str]) -> Any:
    """Adds ``last_hop`` and ``next_hop``, the routers at the other ends of the links of hops.

    ``trusts_last`` and ``trusts_next`` say whether the link's record calls the peer a router;
    ``is_last_met`` and ``is_next_met``, whether the peer has a record of the link, too: a router
    has none of a link whose route it does not record. ``is_last_store`` and ``is_next_store`` say
    whether the peer is the router's own message store: an inner hand-over, too.
    Records of earlier versions do not, so there a router is known by its name; elsewhere a peer
    with such a name (``last_name``, ``next_name``) is a router that is not trusted, or a client.

    Args:
        hops: see ``router.pipeline.hops``.
        links: the links' names.
        routers: ids of all routers of which a ledger was ever seen.
        flagging: ids of those whose records call routers so.
    """
    from pyspark.sql import functions as F  # noqa: N812, PLC0415  an extra

    peer = F.split_part("container", F.lit("/"), F.lit(1))
    known = small_table(
        hops.sparkSession, [(each, True) for each in routers], "peer string, is_known boolean"
    )
    says = small_table(
        hops.sparkSession, [(each, True) for each in flagging], "router string, is_flagging boolean"
    )
    is_store = F.col("container") == F.concat("router", F.lit(f"/{STORE}"))
    is_sibling = (F.col("peer") == F.col("router")) & F.col("container").rlike("/[0-9]+$")
    is_inner = is_sibling | is_store
    is_named = F.col("is_known") & (F.col("is_flagging").isNull() | is_inner)
    inner = (
        links.withColumn("peer", peer)
        .join(F.broadcast(known), "peer", "left")
        .join(F.broadcast(says), "router", "left")
        .where(F.col("is_router") | F.col("is_known"))
        .withColumn("hop", F.when(F.col("is_router") | is_named, F.col("peer")))
        .select("link", "router", "peer", "hop", "is_router", "name", is_store.alias("is_store"))
    )

    other_ends = inner.select(
        F.col("peer").alias("router"),
        F.col("router").alias("peer"),
        "name",
        F.lit(True).alias("is_met"),
    ).distinct()
    inner = inner.join(F.broadcast(other_ends), ["router", "peer", "name"], "left")

    def ends(link: str, side: str) -> Any:
        return F.broadcast(
            inner.select(
                F.col("link").alias(link),
                "router",
                F.col("peer").alias(f"{side}_name"),
                F.col("hop").alias(f"{side}_hop"),
                F.col("is_router").alias(f"trusts_{side}"),
                F.col("is_met").alias(f"is_{side}_met"),
                F.col("is_store").alias(f"is_{side}_store"),
            )
        )

    return hops.join(ends("incoming", "last"), ["incoming", "router"], "left").join(
        ends("outgoing", "next"), ["outgoing", "router"], "left"
    )


def find_handovers(hops: Any, future_ns: int) -> list[Handovers]:
    """Compares what routers recorded of deliveries that one handed to another.

    Args:
        hops: with the routers at the ends of their links, see ``with_ends``.
        future_ns: what is later tells nothing about clocks.
    """
    from pyspark.sql import functions as F  # noqa: N812, PLC0415  an extra

    sent = (
        hops.where((F.col("next_name") != F.col("router")) & (F.col("sent") > 0))
        .groupBy(*KEY, F.col("router").alias("sender"), F.col("next_name").alias("receiver"))
        .agg(
            F.min("sent_ns").alias("sent_ns"),
            F.min("outcome_ns").alias("heard_ns"),
            F.max("trusts_next").alias("trusts_next"),
        )
    )
    received = (
        hops.where(F.col("last_name") != F.col("router"))
        .groupBy(*KEY, F.col("last_name").alias("sender"), F.col("router").alias("receiver"))
        .agg(
            F.sum("received").alias("received"),
            F.min("received_ns").alias("received_ns"),
            F.min("outcome_ns").alias("told_ns"),
            F.max("trusts_last").alias("trusts_last"),
        )
        .where("received > 0")
    )
    is_sane = (F.col("received_ns") <= future_ns) & (F.col("sent_ns") <= future_ns)
    is_answer_sane = (F.col("told_ns") <= future_ns) & (F.col("heard_ns") <= future_ns)
    shown = (
        sent.join(received, [*KEY, "sender", "receiver"], "full")
        .groupBy("sender", "receiver")
        .agg(
            F.max(F.col("sent_ns").isNotNull()).alias("has_sent"),
            F.max(F.col("received").isNotNull()).alias("has_received"),
            F.max(F.col("sent_ns").isNotNull() & F.col("received").isNotNull()).alias("has_shared"),
            F.coalesce(F.max("trusts_next"), F.lit(False)).alias("is_trusting"),
            F.coalesce(F.max("trusts_last"), F.lit(False)).alias("is_trusted"),
            F.min(F.when(is_sane, F.col("received_ns") - F.col("sent_ns"))).alias("most_ns"),
            F.max(F.when(is_answer_sane, F.col("told_ns") - F.col("heard_ns"))).alias("least_ns"),
        )
    )
    return [Handovers(**row.asDict()) for row in shown.collect()]
