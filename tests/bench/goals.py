"""What the router has to show, on one pinned core, beside the relay in the same run."""

from collections.abc import Callable, Mapping

import attrs

from tests.bench.measure import Figures, Result


@attrs.frozen
class Goal:
    """A figure and its bound.

    Attributes:
        text: what is asked for.
        value: finds the figure; None: it was not measured.
        bound: which it must reach, or not exceed if ``is_upper``.
    """

    text: str
    value: Callable[["Report"], float | None]
    bound: float
    is_upper: bool = False


@attrs.frozen(kw_only=True)
class Report:
    """Everything that was measured.

    Attributes:
        results: of the cases, by name.
        others: memory and delays, by name.
        failed: what could not be measured, and why.
    """

    results: Mapping[str, Result]
    others: Mapping[str, Figures]
    failed: Mapping[str, str] = attrs.field(factory=dict)

    def rate(self, case: str) -> float | None:
        """Messages per second of the router."""
        found = self.results.get(case)
        return found.router["messages_per_second"] if found is not None else None

    def share(self, case: str) -> float | None:
        """The rate as a part of the relay's."""
        found = self.results.get(case)
        return found.of_relay() if found is not None else None

    def ratio(self, case: str, other: str) -> float | None:
        """The rate as a part of that of another case."""
        one, two = self.rate(case), self.rate(other)
        return one / two if one is not None and two else None

    def ratio_of_shares(self, case: str, other: str) -> float | None:
        """The same of cases with one load, as parts of the relay's: the machine's mood is out."""
        one, two = self.share(case), self.share(other)
        return one / two if one is not None and two else None

    def added_p99(self, case: str) -> float | None:
        """Microseconds that the router adds to the relay's p99."""
        found = self.results.get(case)
        if found is None or "relay" not in found.figures:
            return None
        return found.router["one_way_p99_us"] - found.figures["relay"]["one_way_p99_us"]

    def share_by_time(self, case: str) -> float | None:
        """Processor time of HAProxy for a message, or else of the relay, as a part of the router's.

        Inverted, so that it is a share of speed: where the machine is busy, rates say little.
        """
        found = self.results.get(case)
        if found is None:
            return None
        yardstick = found.figures.get("haproxy") or found.figures.get("relay") or {}
        own, other = (each.get("cpu_ns_per_message") for each in (found.router, yardstick))
        return other / own if own and other else None

    def difference_p99(self, case: str, other: str) -> float | None:
        """Microseconds between the router's p99 in two cases."""
        one, two = self.results.get(case), self.results.get(other)
        if one is None or two is None:
            return None
        return one.router["one_way_p99_us"] - two.router["one_way_p99_us"]

    def cpu_us(self, case: str) -> float | None:
        """Processor microseconds that the router, its journal included, takes for a message."""
        found = self.results.get(case)
        return found.router["cpu_ns_per_message"] / 1e3 if found is not None else None

    def other(self, name: str, key: str) -> float | None:
        """One of the other figures."""
        return self.others.get(name, {}).get(key)


def _rate(case: str) -> Callable[[Report], float | None]:
    return lambda report: report.rate(case)


def _share(case: str) -> Callable[[Report], float | None]:
    return lambda report: report.share(case)


def _by_time(case: str) -> Callable[[Report], float | None]:
    return lambda report: report.share_by_time(case)


def _cpu(case: str) -> Callable[[Report], float | None]:
    return lambda report: report.cpu_us(case)


GOALS = (
    Goal("10 links, messages/s", _rate("links 10"), 3e6),
    Goal("10 links, of the relay", _share("links 10"), 0.30),
    Goal("10 links, lane off, messages/s", _rate("lane off"), 6e4),
    Goal("100 links, window 10, of the relay", _share("links 100, window 10"), 0.6),
    Goal("fan-in 100 to 1, messages/s", _rate("fan-in 100 to 1"), 2.5e6),
    Goal("0-9-1 to 1.0, own ids, messages/s", _rate("0-9-1 to 1.0, own ids"), 1e5),
    Goal("stored, messages/s", lambda r: r.other("stored", "stored_per_second"), 1e5),
    Goal("drained, of the route without", lambda r: r.other("stored", "drained_part"), 0.5),
    Goal("20,000/s beside a drain, of it", lambda r: r.other("stored, beside", "paced_part"), 0.98),
    Goal("0-9-1, 10 KB, of the relay", _share("0-9-1 to 0-9-1, 10 KB"), 0.3),
    Goal("exactly-once, window 4,096, us CPU", _cpu("exactly-once, window 4,096"), 5.85, True),
    Goal("exactly-once, window 64, us CPU", _cpu("exactly-once, window 64"), 20, True),
    Goal("exactly-once, window 1, us CPU", _cpu("exactly-once, window 1"), 800, True),
    Goal("journal on PostgreSQL, of inserts", lambda r: r.other("postgres", "of_bare"), 0.5),
    Goal("exactly-once, of two flushes", lambda r: r.other("exact", "of_two_flushes"), 0.5),
    Goal("0-9-1, of RabbitMQ's shovel", lambda r: r.other("shovel", "of_shovel"), 2),
    Goal("0-9-1, 10 KB, of the shovel", lambda r: r.other("shovel, 10 KB", "of_shovel"), 2),
    Goal("1,000 links, of 10 links", lambda r: r.ratio("links 1000", "links 10"), 0.5),
    Goal("100,000 routes, of 10", lambda r: r.ratio_of_shares("100,000 routes", "links 10"), 0.95),
    Goal("1 KiB, of the relay", _share("1 KiB"), 0.5),
    Goal("lean, 10 links, of the relay", _share("lean 10"), 0.5),
    Goal("lean, 100 links, of the relay", _share("lean 100"), 0.5),
    Goal("lean, window 10, of the relay", _share("lean 100, window 10"), 0.85),
    Goal("lean, 1 KiB, of the relay", _share("lean 1 KiB"), 0.85),
    Goal("two workers crossing, of one's time", lambda r: r.other("workers", "of_one"), 0.3),
    Goal(
        "exactly-once: a crossing, of a delivery's time",
        lambda r: r.other("crossing", "of_home"),
        1,
        True,
    ),
    Goal("a hop, of a router's time", lambda r: r.other("hops", "hop_part"), 2, True),
    Goal("a hop of three, of the only one's", lambda r: r.other("hops", "growth"), 2, True),
    Goal(
        "exactly-once: a hop, of a router's time",
        lambda r: r.other("hops", "exact_hop_part"),
        2,
        True,
    ),
    Goal(
        "exactly-once: a hop of three, of the only one's",
        lambda r: r.other("hops", "exact_growth"),
        2,
        True,
    ),
    Goal("1 MiB, of the relay", _share("1 MiB"), 0.7),
    Goal("p99 added at 20,000/s, us", lambda r: r.added_p99("paced 20,000/s"), 1000, True),
    Goal("10 ms timer late at p99, us", lambda r: r.other("timer", "timer_p99_us"), 5000, True),
    Goal("idle connection, octets", lambda r: r.other("idle", "octets_each"), 12288, True),
    Goal("TLS, 100 octets, of HAProxy's time", _by_time("TLS, 100 octets"), 0.8),
    Goal("TLS, 1 KiB, of HAProxy's time", _by_time("TLS, 1 KiB"), 0.8),
    Goal("TLS, 16 KiB, of HAProxy's time", _by_time("TLS, 16 KiB"), 0.8),
    Goal(
        "p99 added by TLS at 20,000/s, us",
        lambda r: r.difference_p99("TLS, paced 20,000/s", "paced 20,000/s"),
        300,
        True,
    ),
    Goal("1,000 TLS clients at once, seconds", lambda r: r.other("storm", "seconds"), 5, True),
    Goal(
        "longest gap of a receiver meanwhile, us",
        lambda r: r.other("storm", "longest_gap_us"),
        50_000,
        True,
    ),
    Goal(
        "100,000 routes, first seconds of later",
        lambda r: r.other("tables", "first_part"),
        0.95,
    ),
    Goal(
        "a route's start of 100,000, of 10,000",
        lambda r: r.other("tables", "start_growth"),
        1.25,
        True,
    ),
    Goal(
        "a route's reload of 100,000, of 10,000",
        lambda r: r.other("tables", "reload_growth"),
        1.25,
        True,
    ),
    Goal("unsettled delivery, octets", lambda r: r.other("unsettled", "octets_each"), 100, True),
    Goal(
        "full collection with a million unsettled, us",
        lambda r: r.other("unsettled", "collection_us"),
        20_000,
        True,
    ),
)
