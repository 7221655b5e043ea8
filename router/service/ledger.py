"""A worker's side of the journal: it restores what its earlier lives left, then writes itself.

Order matters (**PredecessorFirst**): the journal admits a worker once all records of its earlier
life are durable; then the worker reads the segments and gives the core the unsettled deliveries;
only then are links of exactly-once routes attached.

A worker waits ``ADMISSION_SECONDS`` for that before it serves: usually the journal takes less. It
does not wait for a journal that cannot be opened: then no process accepts workers. Nor does it wait
longer for a journal on a full disk, for which records of the worker's earlier life wait. It then
serves the routes that need no journal, and restores its share as soon as it is admitted.
"""

import socket
import time
from functools import partial
from pathlib import Path
from typing import Final

import attrs
import structlog
import trio

from router.core.core import Core
from router.core.homes import FIRST, Homes
from router.errors import RouterError
from router.journal.client import JournalClient
from router.journal.postgres.lease import LeaseFile
from router.journal.postgres.remote import RemoteStorage
from router.journal.replay import Replayed, replay, replay_from
from router.journal.unsettled import NumbersMemory
from router.model.capabilities import Protocol
from router.model.outcome import DeliveryState
from router.model.trace import Joined
from router.net.dataplane import DataPlane
from router.net.journal import Core as JournalCore
from router.net.journal import JournalPort, connect_unix
from router.net.switchboard import Order
from router.service.config import RouterConfig
from router.service.journal import Store, is_on_postgres, journal_directory, lease_path
from router.wire import hub
from router.wire.message_ids import find_id, give_id
from router.wire.tracing import join
from router.wire.v1_0.tables import decode_state, encode_state

ADMISSION_SECONDS: Final = 10.0
"""How long a starting worker waits for the journal before it serves what needs none."""

PATIENCE_SECONDS: Final = 5.0
"""How long a stopping worker waits for its last records to be durable, at most."""

LEASE_LOOK_SECONDS: Final = 0.1

READ_AGAIN_SECONDS: Final = 0.5
"""Pause after a journal could not be read."""

_UNREAD: Final = (
    "exactly-once routes are not served until it can be read; to give up what a file of the journal"
    " held, move it away: it counts as missing then, and what may have been sent is in doubt"
)

_NANOSECONDS: Final = 1_000_000_000
_CUT: Final = (
    "connections that carry exactly-once links were ended, because another router may lead by now;"
    " they may come back when the lease holds"
)

_EFFECT: Final = (
    "deliveries that may have been sent are in doubt, and are not sent again; deliveries that only"
    " the missing part records are no longer known"
)


def connect_ledger(
    config: RouterConfig, number: int, core: Core, plane: DataPlane, nursery: trio.Nursery
) -> JournalPort:
    """Connects a worker to the journal; ``restore_ledger`` is to follow.

    Args:
        config: with the journal's place.
        number: the worker's; 0: there is only one.
        core: a core without connections, or at least without one of an exactly-once route.
        plane: the running data plane.
        nursery: for the task that keeps the connection.
    """
    port = _port(config, number, Store.JOURNAL, core, plane)
    plane.carry_out(core.journal_stuck(True, plane.clock()))
    port.is_stuck = True
    core.journal(
        port.client.records,
        _epoch_ns(plane),
        identify=find_id,
        give_id=give_id,
        encode=encode_state,
        join_trace=_join_trace,
        restores=True,
    )
    plane.journals.append(port)
    nursery.start_soon(port.run)
    if is_on_postgres(config):
        port.lease = LeaseFile(lease_path(config))
        port.cut = partial(_cut, core, plane)
        nursery.start_soon(_watch_lease, port, plane)
    return port


def _cut(core: Core, plane: DataPlane) -> None:
    connections = core.exact_connections()
    if connections:
        structlog.get_logger().error("lease.expired", connections=len(connections), effect=_CUT)
        plane.cut(connections, "the lease of this router has expired")


async def _watch_lease(port: JournalPort, plane: DataPlane) -> None:
    """Ends connections when the lease does, even if nothing happens on them."""
    was_held = True
    while True:
        await trio.sleep(LEASE_LOOK_SECONDS)
        assert port.lease is not None
        is_held = port.lease.is_held
        if not (is_held and was_held):
            plane.flush(plane.clock())
        was_held = is_held


async def restore_ledger(
    port: JournalPort,
    config: RouterConfig,
    homes: Homes,
    core: Core,
    plane: DataPlane,
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Restores unsettled deliveries into a core when the journal has admitted its worker.

    A journal that cannot be read now is read again, until it can be, or somebody has moved away the
    file that is at fault; meanwhile the worker serves what needs no journal. If another router
    leads its database, the process of the journal says so.

    Args:
        port: of the journal.
        config: with the journal's place.
        homes: says what of it is this worker's.
        core: gets what is unsettled.
        plane: of the core.
        task_status: told when that is done, or may take long.

    Raises:
        ReplayError: the journal's files vanish faster than they can be read.
    """
    log = structlog.get_logger()
    while True:
        await port.wait_open()
        began = time.monotonic()
        try:
            replayed, numbers = await _replay(config, homes.own)
            break
        except OSError as error:
            reason = _why_unread(error)
            if reason != port.unread:
                effect = _UNREAD if homes.own == FIRST else None
                log.error("journal.unread", reason=reason, effect=effect)
            if port.unread is None:
                task_status.started()
            port.unread = reason
            await trio.sleep(READ_AGAIN_SECONDS)
    was_unread, port.unread = port.unread is not None, None
    restored = core.restore(
        list(homes.inherits(replayed.unsettled, replayed.memory.links, config.table)),
        replayed.memory.links,
        plane.clock(),
        decode=_decode,
        numbers=numbers,
    )
    plane.carry_out(core.resume_attaching(plane.clock()))
    plane.flush(plane.clock())
    gaps = replayed.gaps
    core.lister.gaps = tuple(gaps)
    if gaps and homes.own == FIRST:
        log.error("journal.incomplete", gaps=gaps, effect=_EFFECT)
    log.info(
        "journal.replayed",
        segments=replayed.segments,
        deliveries=restored.deliveries,
        in_doubt=restored.in_doubt,
        links=restored.links,
        torn_octets=replayed.torn_octets,
        damage=[f"{name}: {damage}" for name, damage in replayed.damage] or None,
        holes=len(replayed.holes),
        seconds=round(time.monotonic() - began, 3),
    )
    if not was_unread:
        task_status.started()


def _why_unread(error: OSError) -> str:
    """Returns why the journal cannot be read; names the file, if it is one."""
    reason = error.strerror or str(error)
    return f"{Path(error.filename).name} cannot be read: {reason}" if error.filename else reason


async def _replay(config: RouterConfig, worker: int) -> tuple[Replayed, NumbersMemory | None]:
    """Reads the journal, and returns from which number our attaches count.

    On PostgreSQL their epoch is that of the lease: a router that was taken over counts in an
    earlier one.
    """
    if not is_on_postgres(config):
        replayed = replay(journal_directory(config))
        return replayed, replayed.memory.numbers
    return await trio.to_thread.run_sync(_replay_remotely, config, worker)


def _replay_remotely(config: RouterConfig, worker: int) -> tuple[Replayed, NumbersMemory | None]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        connect_unix(sock, Store.JOURNAL.socket(config))
        storage = RemoteStorage(sock, config.router.id, worker, title="the journal on PostgreSQL")
        epoch = storage.epoch()
        replayed = replay_from(storage)
    numbers = replayed.memory.numbers
    if numbers is None or numbers.epoch < epoch:
        numbers = NumbersMemory(worker=worker, since_ns=epoch, epoch=epoch, limit=1)
    return replayed, numbers


async def open_archive(
    config: RouterConfig, number: int, core: Core, plane: DataPlane, nursery: trio.Nursery
) -> JournalPort:
    """Connects a worker to the archive; nothing else waits for the archive."""
    port = _port(config, number, Store.ARCHIVE, _ArchiveCore(core), plane)
    core.archive_stuck(True, plane.clock())
    port.is_stuck = True
    core.archive(port.client.records, _epoch_ns(plane), _to_sections)
    plane.journals.append(port)
    nursery.start_soon(port.run)
    with trio.move_on_after(PATIENCE_SECONDS):
        await port.wait_open()
    return port


@attrs.frozen
class _ArchiveCore:
    """The part of the core that the archive's port calls."""

    core: Core

    def durable(self, sequence: int, now: float) -> list[Order]:
        """Does nothing: no delivery waits for the archive."""
        return []

    def journal_stuck(self, is_stuck: bool, now: float) -> list[Order]:
        """Reports to the core whether the archive accepts records."""
        return self.core.archive_stuck(is_stuck, now)


def _port(
    config: RouterConfig, number: int, store: Store, core: JournalCore, plane: DataPlane
) -> JournalPort:
    client = JournalClient(router=config.router.id, worker=number, incarnation=time.time_ns())
    return JournalPort(
        client=client,
        path=store.socket(config),
        core=core,
        carry_out=plane.switchboard.carry_out,
        poller=plane.poller,
        clock=plane.clock,
        name=store.value,
    )


def _epoch_ns(plane: DataPlane) -> int:
    """Returns the time of the data plane's clock zero, in nanoseconds since 1970."""
    return time.time_ns() - int(plane.clock() * _NANOSECONDS)


def _join_trace(
    protocol: Protocol, payload: bytes, identity: bytes, always: bool, is_whole: bool
) -> Joined | None:
    return join(protocol, payload, identity, always=always, is_whole=is_whole)


def _to_sections(protocol: Protocol, payload: bytes) -> bytes | None:
    """Returns a message as AMQP 1.0 sections; None: it cannot be translated."""
    if protocol is Protocol.AMQP_1_0:
        return payload
    try:
        return hub.translate(payload, protocol, Protocol.AMQP_1_0)
    except RouterError:
        return None


async def close_ledger(port: JournalPort) -> None:
    """Writes the last record of a worker that ends in good order, and waits until it is durable."""
    port.client.records.worker_ended(time.time_ns())
    with trio.move_on_after(PATIENCE_SECONDS):
        await port.wait_durable()


def _decode(octets: bytes) -> DeliveryState:
    return decode_state(octets, 0, len(octets))[0]
