"""A router that waits as a standby: another one with the same id leads.

Theory of operation. With ``router.journal.standby`` a router begins as a standby. Its journal's
process waits for the lease (``router.journal.postgres.watch``). Meanwhile a worker in this process
listens, logs peers in, and answers each connection that opens with its end: it has no routes and no
containers, dials nobody and reads no journal. When the lease has been taken the workers of the
router are started, and get the sockets that are accepted from then on (``run``).

    standby   ──── the lease is free, and is taken ────▶  leader
    leader    ──── another router has the lease    ────▶  standby, in another life of the process
    leader    ──── drained for its standby         ────▶  standby, which leaves the lease to others

A peer of AMQP 1.0 is redirected (§2.8.16) to the listener of the leader that stands at the same
place in its file, if the leader has told where that is reached, and does lead. Else, and in other
protocols, its connection is closed as one that a router in order closes: it may dial again.

When the leader has stopped to renew its lease, connections are not accepted for a while: they wait
in the kernel's queue, and are served at once by whoever leads then (``Patience``).
"""

from collections.abc import Callable
from typing import Final

import attrs
import trio

from router.journal.postgres.lease import Leader
from router.journal.postgres.schema import LEASE_SECONDS
from router.model.condition import CONNECTION_FORCED, CONNECTION_REDIRECT, Condition
from router.model.place import Alternative, BindAddress, TcpAddress
from router.routes.table import RoutingTable
from router.service.assembly import named_listeners
from router.service.config import RouterConfig
from router.service.crew import Soloist
from router.service.journal import JournalKeeper
from router.service.worker import make_worker
from router.wire.alternatives import as_map

SILENT_SECONDS: Final = 0.75
"""A leader that has not renewed its lease for so long may be gone; it renews it twice a second."""

HOLD_SECONDS: Final = 6.0
"""Peers wait no longer: they may have other places to dial."""

_ANY = frozenset({"", "0.0.0.0", "::"})


def standby_of(config: RouterConfig, leader: Callable[[], Leader | None]) -> Soloist:
    """Makes the worker that turns peers away.

    Args:
        config: of the router.
        leader: returns who leads, as far as that is known.

    Raises:
        TlsError, MisuseError: the configuration is unusable.
    """
    names = list(named_listeners(config))
    worker = make_worker(config)
    bare = attrs.evolve(config, containers={}, routes=(), promises=(), table=RoutingTable())
    worker.assembly = attrs.evolve(worker.assembly, config=bare, terms={}, endpoints={})

    def turn_away(listener: str | None) -> Condition:
        return why_not(leader(), names.index(listener) if listener in names else None)

    worker.turns_away = turn_away
    return Soloist(worker)


def why_not(leader: Leader | None, listener: int | None) -> Condition:
    """Returns with what a standby closes a connection.

    Args:
        leader: who leads, as far as that is known.
        listener: the number of the listener in the file, from 0.
    """
    if leader is None or not leader.epoch or leader.age_seconds > LEASE_SECONDS:
        return Condition(CONNECTION_FORCED, "this router is a standby, and none leads at present")
    text = f"this router is a standby; the one on {leader.place} leads"
    place = None
    if listener is not None and listener < len(leader.address):
        place = leader.address[listener]
    if place is None:
        return Condition(CONNECTION_FORCED, text)
    host, _, port = place.rpartition(":")
    return Condition(CONNECTION_REDIRECT, text, as_map(Alternative(host=host, port=int(port))))


@attrs.define(eq=False)
class Patience:
    """Decides whether peers wait until one leads.

    Attributes:
        journal: knows who leads.
    """

    journal: JournalKeeper
    _since: float | None = attrs.field(default=None, init=False)

    def holds(self, now: float) -> bool:
        """Returns whether connections are left in the kernel's queue."""
        if self.journal.leads.is_set():
            return True
        leader = self.journal.leader
        if leader is not None and leader.age_seconds < SILENT_SECONDS and not self.journal.trouble:
            self._since = None
            return False
        if self._since is None:
            self._since = now
        return now - self._since < HOLD_SECONDS


def addresses(config: RouterConfig, bound: Callable[[str], int | None]) -> tuple[str | None, ...]:
    """Returns where peers reach the listeners of this router, as ``Leader.address`` has it.

    Args:
        config: with the listeners.
        bound: returns the port of an open listener, by its name; None: it has none.
    """
    return tuple(
        _address(config, listener.bind, bound(name))
        for name, listener in named_listeners(config).items()
    )


def _address(config: RouterConfig, bind: BindAddress, port: int | None) -> str | None:
    if not isinstance(bind, TcpAddress) or port is None:
        return None
    host = config.router.journal.host or bind.host
    return None if host in _ANY else f"{host}:{port}"


async def turn_peers_away(
    standby: Soloist, task_status: trio.TaskStatus[trio.CancelScope] = trio.TASK_STATUS_IGNORED
) -> None:
    """Runs the worker that turns peers away, until its scope is cancelled."""
    async with trio.open_nursery() as nursery:
        await standby.start(nursery)
        task_status.started(nursery.cancel_scope)
