"""What the message store in a state directory holds; read without its process, nothing written."""

import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import attrs
import structlog
import trio

from router.errors import RouterError
from router.journal.disk import Disk
from router.journal.segment import ForeignFileError, numbered
from router.journal.store.looking import Held, Look, Looked, look
from router.journal.store.queues import route_key
from router.journal.store.store import MessageStore
from router.routes.route import Route
from router.service.config import RouterConfig
from router.service.control import StoredRecord
from router.service.journal import Store
from router.service.stores import StoredSummary, share_of

LATE_SECONDS: Final = 2.0
"""After that long it is said that the start waits for the disk of the store."""

_NANOSECONDS = 1_000_000_000

_log: Any = structlog.get_logger()


@attrs.frozen
class NoStoreError(RouterError):
    """There is no message store, or it cannot be read."""

    directory: Path
    reason: str

    def __str__(self) -> str:
        return f"{self.directory}: {self.reason}"


@attrs.frozen(kw_only=True)
class KeptStore:
    """What a message store holds while no router runs.

    Attributes:
        routes: one for each route with messages; those of the given routes first.
        losses: what was durable and cannot be read, for people.
        unreadable: what the disk does not give now, for people; None: it gives everything.
    """

    routes: tuple[StoredSummary, ...]
    losses: tuple[str, ...]
    unreadable: str | None
    _store: MessageStore

    def look(self, name: str, most: int) -> tuple[tuple[Held, ...], int]:
        """Returns the addresses of a route that hold most, and how many there are in all."""
        held: list[Held] = []
        for answer in look(self._store, Look(route_key(name), most)):
            match answer:
                case Held():
                    held.append(answer)
                case Looked(addresses):
                    return tuple(held), addresses
        return tuple(held), len(held)


def read_kept(state: Path, routes: Sequence[Route]) -> KeptStore:
    """Reads the message store of a state directory.

    Args:
        state: the directory of ``router.state``, or that of the store in it.
        routes: that may have messages there, for their names and bounds.

    Raises:
        NoStoreError: there is no store, or it cannot be read.
    """
    directory = state / Store.MESSAGES if (state / Store.MESSAGES).is_dir() else state
    store = MessageStore(directory, disk=Disk(), incarnation=0)
    now_ns = time.time_ns()
    try:
        if not numbered([path.name for path in directory.iterdir()], "segment"):
            raise NoStoreError(state, "there is no message store")
        store.restore(now_ns)
        return _kept(store, {route_key(route.name): route for route in routes}, now_ns)
    except OSError as error:
        raise NoStoreError(state, error.strerror or str(error)) from error
    except ForeignFileError as error:
        raise NoStoreError(state, str(error)) from error


async def await_storing(config: RouterConfig) -> frozenset[str]:
    """Returns the containers to which messages go that the store has as the router starts.

    Not those that cannot be read, or are on PostgreSQL. The store is read in a thread, which a
    router that is to end leaves.

    A disk that hangs delays the start for as long as it does, since who dials a container is not
    changed later. The log says so.
    """
    directory, began = Store.MESSAGES.directory(config), trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_say_if_late, directory)
        addresses = await trio.to_thread.run_sync(
            _stored_addresses, directory, abandon_on_cancel=True
        )
        nursery.cancel_scope.cancel()
    seconds = trio.current_time() - began
    if seconds >= LATE_SECONDS:
        _log.info("store.answered", file=str(directory), seconds=round(seconds, 1))
    return _containers_of(config, addresses)


async def _say_if_late(directory: Path) -> None:
    await trio.sleep(LATE_SECONDS)
    _log.warning("store.unanswered", file=str(directory))


def _stored_addresses(directory: Path) -> frozenset[str]:
    """Returns the addresses of which a store has messages, as far as it can be read."""
    store = MessageStore(directory, disk=Disk(), incarnation=0)
    try:
        if not numbered([path.name for path in directory.iterdir()], "segment"):
            return frozenset()
        store.restore(time.time_ns())
    except (OSError, ForeignFileError):
        return frozenset()
    return frozenset(queue.address.decode() for queue in store.holdings.queues.values())


def _containers_of(config: RouterConfig, addresses: Iterable[str]) -> frozenset[str]:
    """Returns the containers of the routes of some addresses."""
    matches = map(config.table.lookup, addresses)
    ends = (end for match in matches if match is not None for end in match.route.endpoints)
    return frozenset(end.container for end in ends)


def _kept(store: MessageStore, routes: dict[int, Route], now_ns: int) -> KeptStore:
    order = {key: place for place, key in enumerate(routes)}
    found = []
    for key in sorted(store.holdings.routes, key=lambda key: order.get(key, len(order))):
        held, route = store.holdings.routes[key], routes.get(key)
        if not held.messages:
            continue
        oldest_ns = store.ages.oldest_ns(key) or now_ns
        storing = None if route is None else route.store
        record = StoredRecord(
            route=None if route is None else route.name,
            messages=held.messages,
            octets=held.octets,
            oldest_seconds=max(0, now_ns - oldest_ns) / _NANOSECONDS,
            is_full=storing is not None
            and (share_of(storing, held.messages, held.octets) or 0) >= 1,
        )
        found.append(
            StoredSummary(
                name=record.route,
                record=record,
                storing=storing,
                share=None if storing is None else share_of(storing, held.messages, held.octets),
                drain_seconds=None,
                waits_for=("its router, which does not run",),
            )
        )
    return KeptStore(
        routes=tuple(found),
        losses=tuple(store.losses),
        unreadable=store.unreadable_words() or None,
        store=store,
    )
