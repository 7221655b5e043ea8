"""What the stored routes of a router hold, and what they wait for: all workers' answers in one.

The workers ask one process, so what they say it holds is the same up to the moment; what waits at
each of them adds up.
"""

from collections.abc import Iterator, Mapping, Sequence

import attrs

from router.routes.route import Route, Storing
from router.service.control import ContainerRecord, StoredRecord
from router.service.durations import show_seconds
from router.service.fleet import RouterSnapshot


@attrs.frozen(kw_only=True)
class StoredSummary:
    """One stored route, or the messages that no route of the file has.

    Attributes:
        name: of the route; None: no route of the file has these messages.
        record: what the store and the workers say.
        storing: how the route stores; None: it forwards what it has stored once.
        share: of the nearest of its bounds that is used; None: it has none.
        drain_seconds: until it is empty, at the pace of the last seconds; None: it does not become
            less.
        waits_for: what keeps it from being forwarded, in words.
    """

    name: str | None
    record: StoredRecord
    storing: Storing | None
    share: float | None
    drain_seconds: float | None
    waits_for: tuple[str, ...]


def has_store(snapshot: RouterSnapshot) -> bool:
    """Returns whether the router has a message store."""
    return any(worker.store is not None for worker in snapshot.workers)


def is_answering(snapshot: RouterSnapshot) -> bool:
    """Returns whether the message store answers all workers that need it."""
    stores = [worker.store for worker in snapshot.workers if worker.store is not None]
    return all(store.is_connected for store in stores)


def store_trouble(snapshot: RouterSnapshot) -> str | None:
    """Returns why the message store cannot write; None: it can, or does not answer."""
    stores = [worker.store for worker in snapshot.workers if worker.store is not None]
    return next((store.trouble for store in stores if store.trouble is not None), None)


def store_unreadable(snapshot: RouterSnapshot) -> str | None:
    """Returns what the message store cannot read now; None: nothing, or it does not answer."""
    stores = [worker.store for worker in snapshot.workers if worker.store is not None]
    return next((store.unreadable for store in stores if store.unreadable is not None), None)


def stored_routes(snapshot: RouterSnapshot) -> tuple[StoredSummary, ...]:
    """Returns the stored routes in the order of the file; last what no route has."""
    records: dict[str | None, list[StoredRecord]] = {}
    for worker in snapshot.workers:
        for each in () if worker.store is None else worker.store.routes:
            records.setdefault(each.route, []).append(each)
    containers = {each.name: each for each in snapshot.containers}
    by_name = snapshot.routes.table.by_name
    orphaned = records.pop(None, [])
    order = {name: place for place, name in enumerate(by_name)}
    found = [
        _summary(name, _merged(some), by_name.get(name or ""), containers)
        for name, some in sorted(records.items(), key=lambda each: order.get(each[0] or "", 0))
    ]
    if orphaned:
        found.append(_summary(None, _merged(orphaned), None, containers))
    return tuple(found)


def _merged(records: Sequence[StoredRecord]) -> StoredRecord:
    deepest = max(records, key=lambda each: each.messages)
    rests = [each.rests_seconds for each in records if each.resting]
    return attrs.evolve(
        deepest,
        oldest_seconds=max(each.oldest_seconds for each in records),
        is_full=any(each.is_full for each in records),
        dead=sum(each.dead for each in records),
        resting=sum(each.resting for each in records),
        failures=max(each.failures for each in records),
        rests_seconds=min(rests, default=0.0),
        rejected=sum(each.rejected for each in records),
        expired=sum(each.expired for each in records),
        dropped=sum(each.dropped for each in records),
    )


def _summary(
    name: str | None,
    record: StoredRecord,
    route: Route | None,
    containers: Mapping[str, ContainerRecord],
) -> StoredSummary:
    storing = None if route is None else route.store
    return StoredSummary(
        name=name,
        record=record,
        storing=storing,
        share=None if storing is None else share_of(storing, record.messages, record.octets),
        drain_seconds=drain_seconds(record),
        waits_for=tuple(_reasons(record, route, containers)),
    )


def share_of(storing: Storing, messages: int, octets: int) -> float | None:
    """Returns the greatest share of a bound that is used; None: there is no bound."""
    shares = []
    if storing.messages is not None:
        shares.append(messages / storing.messages)
    if storing.octets is not None:
        shares.append(octets / storing.octets)
    return max(shares, default=None)


def drain_seconds(record: StoredRecord) -> float | None:
    """Returns how long a route takes to become empty; None: it does not become less."""
    if not record.messages:
        return 0.0
    if record.stored_rate is None or record.forwarded_rate is None:
        return None
    pace = record.forwarded_rate - record.stored_rate
    return record.messages / pace if pace > 0 else None


def fill_seconds(each: StoredSummary) -> float | None:
    """Returns how long a route takes to reach a bound; None: it does not become more."""
    record, storing = each.record, each.storing
    if storing is None or not record.messages:
        return None
    if record.stored_rate is None or record.forwarded_rate is None:
        return None
    pace = record.stored_rate - record.forwarded_rate
    if pace <= 0:
        return None
    rooms: list[float] = []
    if storing.messages is not None:
        rooms.append(storing.messages - record.messages)
    if storing.octets is not None:
        rooms.append((storing.octets - record.octets) * record.messages / record.octets)
    return max(0.0, min(rooms) / pace) if rooms else None


def _reasons(
    record: StoredRecord, route: Route | None, containers: Mapping[str, ContainerRecord]
) -> Iterator[str]:
    """Yields what a route waits for, or nothing."""
    if not record.messages:
        return
    if route is None:
        yield "the target of a route with their addresses"
        return
    names = [each.container for each in route.to]
    away = [containers[name] for name in names if _is_away(name, containers)]
    for container in away if len(away) == len(set(names)) else ():
        yield f"{container.name}, away for {show_seconds(container.seconds)}"
    if record.resting:
        where = "1 address" if record.resting == 1 else f"{record.resting} addresses"
        times = "1 failure" if record.failures == 1 else f"{record.failures} failures"
        again = show_seconds(record.rests_seconds)
        yield f"the next try of {where} in {again}, after {times}"
    if record.dead:
        letters = "1 dead letter" if record.dead == 1 else f"{record.dead:,} dead letters"
        yield f"{route.dead_letter or 'a dead_letter of the route'}, to take {letters}"


def _is_away(name: str, containers: Mapping[str, ContainerRecord]) -> bool:
    return name in containers and not containers[name].is_connected
