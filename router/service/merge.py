"""Merges the snapshots of several workers: counts are added, ages and lags take the worst."""

import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeVar

import attrs

from router.core.snapshot import (
    UPLINKS_MOST,
    PeerRecord,
    Rejection,
    RouteRecord,
    Snapshot,
    Stall,
    Totals,
)
from router.service.control import ContainerRecord

Record = TypeVar("Record", Totals, RouteRecord, PeerRecord, Snapshot)


def merge_cores(cores: Sequence[Snapshot]) -> Snapshot:
    """Merges the snapshots of several cores; there must be at least one."""
    if len(cores) == 1:
        return cores[0]
    routes = _by(lambda route: route.name, (route for core in cores for route in core.routes))
    peers = _by(
        lambda peer: (peer.container, peer.is_configured),
        (peer for core in cores for peer in core.peers),
    )
    return _add(
        cores,
        at=max(core.at for core in cores),
        is_draining=any(core.is_draining for core in cores),
        routes=tuple(map(_merge_routes, routes)),
        peers=tuple(map(_merge_peers, peers)),
    )


def merge_containers(lists: Iterable[Sequence[ContainerRecord]]) -> tuple[ContainerRecord, ...]:
    """Merges lists of containers; each is dialed by one worker, or by several in succession."""
    merged = []
    for records in _by(lambda record: record.name, (each for some in lists for each in some)):
        best = min(records, key=lambda record: (not record.is_connected, record.seconds))
        merged.append(
            attrs.evolve(
                best,
                opened=sum(record.opened for record in records),
                failed=sum(record.failed for record in records),
            )
        )
    return tuple(merged)


def _merge_routes(records: list[RouteRecord]) -> RouteRecord:
    if len(records) == 1:
        return records[0]
    oldest = [record.oldest_seconds for record in records if record.oldest_seconds is not None]
    stalls: list[Stall] = [record.stall for record in records if record.stall is not None]
    uplinks = sorted(
        (uplink for record in records for uplink in record.uplinks),
        key=lambda uplink: uplink.step in ("attached", "idle"),
    )
    return _add(
        records,
        is_paused=any(record.is_paused for record in records),
        oldest_seconds=max(oldest, default=None),
        ages=tuple(map(sum, zip(*(record.ages for record in records), strict=True))),
        received=_add([record.received for record in records]),
        sent=_add([record.sent for record in records]),
        uplinks=tuple(uplinks[:UPLINKS_MOST]),
        stall=max(stalls, key=lambda stall: stall.seconds, default=None),
        rejection=_merge_rejections([each.rejection for each in records if each.rejection]),
    )


def _merge_rejections(rejections: list[Rejection]) -> Rejection | None:
    if not rejections:
        return None
    last = min(rejections, key=lambda each: each.seconds)
    return attrs.evolve(
        last,
        count=sum(each.count for each in rejections),
        untold=sum(each.untold for each in rejections),
    )


def _merge_peers(records: list[PeerRecord]) -> PeerRecord:
    if len(records) == 1:
        return records[0]
    return _add(
        records,
        routes=tuple(dict.fromkeys(route for record in records for route in record.routes)),
        received=_add([record.received for record in records]),
        sent=_add([record.sent for record in records]),
    )


def _add(records: Sequence[Record], **others: Any) -> Record:
    """Adds the counts of records; other fields are those given, or of the first record."""
    names, counts_of = _COUNTS[type(records[0])]
    sums = map(sum, zip(*map(counts_of, records), strict=True))
    changes: dict[str, Any] = {**dict(zip(names, sums, strict=True)), **others}
    return attrs.evolve(records[0], **changes)


def _counts(kind: type[Any]) -> tuple[tuple[str, ...], Callable[[Any], tuple[int, ...]]]:
    """Returns the names of a record's counts, and what reads them."""
    names = tuple(field.name for field in attrs.fields(kind) if field.type is int)
    return names, operator.attrgetter(*names)


_COUNTS: Final = {kind: _counts(kind) for kind in (Totals, RouteRecord, PeerRecord, Snapshot)}


Item = TypeVar("Item")
Key = TypeVar("Key")


def _by(key: Callable[[Item], Key], items: Iterable[Item]) -> list[list[Item]]:
    """Groups items by a key; groups and items keep their order."""
    groups: dict[Key, list[Item]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return list(groups.values())
