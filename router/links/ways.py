"""Which ways lead on from a node, and which only back (``model.ways``)."""

from collections.abc import Collection, Iterable

from router.model.ways import WAYS_MOST, Stop, Way, Ways


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

    A node with receivers at several workers is reported once, with all of its gains.

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
        elif len(way.stops) == 1:
            is_open = known.is_open or way.is_open
            best[end] = Way(way.stops, known.gains + way.gains, is_open)
    return tuple(sorted(best.values(), key=_length)[:WAYS_MOST])


def _length(way: Way) -> tuple[int, tuple[Stop, ...]]:
    return len(way.stops), way.stops
