"""Which ways lead on from a node, and which only back (``model.ways``)."""

from collections.abc import Collection, Iterable

from router.model.ways import CREDIT_MOST, WAYS_MOST, Stop, Way, Ways


def leads_past(ways: Ways, stop: Stop) -> bool:
    """Returns whether some receiver is reached without passing a stop; true without ways."""
    return not ways or any(stop not in way.stops for way in ways)


def leads_back(ways: Ways, passed: Collection[Stop]) -> bool:
    """Returns whether every receiver is behind a stop that was passed; false without ways."""
    return bool(ways) and all(any(stop in passed for stop in way.stops) for way in ways)


def has_gained(before: Ways, now: Ways) -> bool:
    """Returns whether there is a way that was not there before, or more receivers at its end."""
    return any(way not in before for way in now)


def shortest(ways: Iterable[Way], *, by_next: bool = False) -> Ways:
    """Returns the shortest way to each node that has receivers, the shortest of them first.

    A node with receivers at several workers is reported once, with all that these gain and grant.

    Args:
        ways: that lead on from one node.
        by_next: there may be one by each next stop; whoever is told leaves out those that lead
            through its own senders, and may need another one then.
    """
    best: dict[tuple[Stop, ...], Way] = {}
    for way in ways:
        end = (way.stops[-1], *(way.stops[1:2] if by_next else ()))
        known = best.get(end)
        if known is None or _length(way) < _length(known):
            best[end] = way
        elif way.stops == known.stops:
            best[end] = _joined(known, way)
    return tuple(sorted(best.values(), key=_length)[:WAYS_MOST])


def _joined(one: Way, other: Way) -> Way:
    """Returns two ways over the same stops as one.

    Those of one stop lead to the receivers of different workers, longer ones perhaps to the same.
    """
    if len(one.stops) > 1:
        return max(one, other, key=lambda way: (_credit_of(way), way.gains))
    is_known = one.credit is not None and other.credit is not None
    credit = (one.credit or 0) + (other.credit or 0) if is_known else None
    return Way(one.stops, one.gains + other.gains, credit)


def _credit_of(way: Way) -> int:
    return CREDIT_MOST if way.credit is None else way.credit


def _length(way: Way) -> tuple[int, tuple[Stop, ...]]:
    return len(way.stops), way.stops
