"""One worker: a core, the data plane around it, and the connectors.

Theory of operation. A worker receives a configuration, and accepted sockets with the name of their
listener; it does not depend on who read the file or accepted the sockets. So the same code runs
alone in the router's process (``run``) and as one of several workers behind a supervisor that keeps
the listening sockets.

A worker changes only by whole configurations (``prepare``, then ``apply``): whatever can fail fails
in ``prepare``, before anything has changed.

Draining: handshakes are cut, the core stops credit and finishes deliveries under way, connectors
stop, and at the end every connection is closed with the reason. Deliveries that could not be
finished stay unsettled; they are never rejected.
"""

import socket
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import attrs
import structlog
import trio

from router.core.core import Core
from router.core.drain import SHUTTING_DOWN
from router.core.homes import FIRST, Homes
from router.core.reach import sibling_name
from router.core.stored import STORE
from router.journal.store.references import RunReader
from router.model.condition import Condition
from router.model.identity import ConnectionId
from router.net.connection import Connection
from router.net.connector import Connector
from router.net.dataplane import DataPlane
from router.net.detours import Detours
from router.net.handing import Handing, is_off
from router.net.journal import JournalPort
from router.net.poller import default_poller
from router.net.reception import ALONE, Elsewhere, ListenerSettings, Reception
from router.net.rotation import REPLACED, find_retiring
from router.net.siblings import make_sibling_engine
from router.net.sockets import prepare
from router.net.store.keeper import StoreKeeper
from router.net.switchboard import Switchboard
from router.net.tls_files import LOOK_SECONDS
from router.service import huge_pages
from router.service.assembly import Assembly, Shared, assemble, engine_settings, share
from router.service.config import RouterConfig
from router.service.config.containers import Container
from router.service.journal import Store, needs_journal, stores_on_postgres
from router.service.ledger import (
    ADMISSION_SECONDS,
    close_ledger,
    connect_ledger,
    open_archive,
    restore_ledger,
)
from router.service.mesh import reconfigured
from router.service.placement import HOME, MESH_HOME, find_homes
from router.service.relief import CONNECTION_OCTETS, relieve
from router.wire.protocols import load_engines

CLOSE_SECONDS: Final = 5.0
"""How long a draining worker waits for its peers to answer the close, at most."""

_CLOSE_SHARE: Final = 0.25
"""Part of the time of a drain that is kept for that."""

_CLOSE_LEAST_SECONDS: Final = 0.5
"""Time for that even if there is none to drain: the reason is to reach peers that read."""

_ANSWER_SECONDS: Final = 1.0
"""How long peers on whose connections nothing is left may take to answer the close."""

_RECORD_SHARE: Final = 0.2
"""Part of that time that is kept for the last records to be durable."""

_LOOK_SECONDS: Final = 0.05
"""How often a draining worker checks whether it is done."""

_AWAITED: Final = (
    "routes that need no journal are served; links of exactly-once routes are attached when the"
    " journal has been read"
)


@attrs.define(eq=False)
class Worker:
    """Serves one configuration after another.

    Attributes:
        assembly: the settings in force.
        shared: objects that its engines and core share as long as it works.
        number: the worker's, from 1; 0: it is the only one.
        containers: names of the containers that it dials; None: all.
        workers: how many the router has.
        turns_away: it is a standby: why a peer is not served that has connected to the listener of
            that name; None: it serves.
        siblings: connections to other workers of the router, by their numbers.
        plane: the data plane with its connections, while it runs.
        connectors: by the container's name.
        ledger: its connection to the journal; None: no route asks for one.
        message_store: its connection to the message store; None: no route has one.
        is_over: it has drained, and serves nothing any more.
    """

    assembly: Assembly
    shared: Shared
    number: int = 0
    containers: frozenset[str] | None = None
    workers: int = 1
    turns_away: Callable[[str | None], Condition] | None = None
    siblings: dict[int, Connection] = attrs.field(factory=dict, init=False)
    _handings: dict[int, Handing] = attrs.field(factory=dict, init=False)
    core: Core = attrs.field(init=False)
    plane: DataPlane = attrs.field(init=False)
    _detours: Detours = attrs.field(init=False)
    _reception: Reception = attrs.field(init=False)
    _handshakes: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)
    _nursery: trio.Nursery = attrs.field(init=False)
    connectors: dict[str, Connector] = attrs.field(factory=dict, init=False)
    _is_draining: bool = attrs.field(default=False, init=False)
    is_over: bool = attrs.field(default=False, init=False)
    ledger: JournalPort | None = attrs.field(default=None, init=False)
    message_store: StoreKeeper | None = attrs.field(default=None, init=False)
    _archive: JournalPort | None = attrs.field(default=None, init=False)
    _log: Any = attrs.field(factory=structlog.get_logger, init=False)

    @property
    def connected_containers(self) -> set[str]:
        """Names of the configured containers whose connection is open."""
        dialed = {
            name
            for name, each in self.connectors.items()
            if each.is_connected or self.core.mesh.is_served(name)
        }
        return dialed | {name for name, each in self.core.dialed_in.items() if each.connections}

    @property
    def _homes(self) -> Homes:
        return find_homes(self.assembly.config, self.workers, own=self.number or FIRST)

    @property
    def express_kind(self) -> str:
        """The express lane in use: ``cython``, or ``off``."""
        express = self.shared.express
        return "off" if express is None else express.kind

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Works until cancelled, or until ``drain`` has finished."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            assembly = self.assembly
            self.core = Core(
                attrs.evolve(assembly.core, worker=str(self.number or "")),
                assembly.config.table,
                self.shared.link_ids,
                self.shared.express,
                containers=None if self.containers is None else self._owned(self.containers),
                homes=self._homes,
                memory=self.shared.memory,
                policy=assembly.policy,
                terms=assembly.terms,
                now=trio.current_time(),
            )
            self.plane = DataPlane(
                Switchboard(self.core, self.shared.express), default_poller(nursery)
            )
            await nursery.start(self.plane.run)
            self._join_itself()
            self._detours = Detours(self.core, self.plane, self.connectors)
            nursery.start_soon(self._detours.run)
            if self.turns_away is not None:
                self.core.turn_away(partial(self._turn_away, self.turns_away))
            else:
                self._configure_mesh(assembly)
                if self._has_store(assembly.config):
                    self.core.await_store(trio.current_time())
                if needs_journal(assembly.config):
                    await self._open_ledger(assembly.config)
                self._keep_store(assembly.config)
            await nursery.start(self._receive)
            self._configure_connectors({}, assembly)
            nursery.start_soon(self._watch_certificates)
            nursery.start_soon(relieve, self._octets_in_use)
            if huge_pages.is_wanted():
                nursery.start_soon(huge_pages.keep_in_huge_pages, huge_pages.System())
            task_status.started()

    def _octets_in_use(self) -> int:
        """Returns what payload and connections take, about."""
        return self.core.payload_octets + self.plane.connection_count * CONNECTION_OCTETS

    def admit(self, sock: socket.socket, listener: str, elsewhere: Elsewhere = ALONE) -> None:
        """Takes over a socket that the listener of that name has accepted.

        Args:
            sock: the socket.
            listener: its name.
            elsewhere: connections at other workers, for limits that all workers share.
        """
        settings = self.assembly.listener_settings.get(listener)
        if settings is None or self._is_draining:
            sock.close()  # accepted just before the listener was closed
            return
        self._reception.admit(sock, settings, elsewhere)

    @property
    def sources(self) -> dict[str, int]:
        """Number of open connections from each IP address, if that is limited."""
        is_limited = self.assembly.admission.per_source is not None
        return self._reception.sources() if is_limited else {}

    @property
    def admitted_count(self) -> int:
        """Number of open connections that listeners accepted, handshakes included."""
        return self._reception.admitted_count

    def failed_logins(self, most: int) -> tuple[int, list[tuple[str, int]]]:
        """Returns the number of failed logins, and the recent ones of each of the worst sources."""
        return self._reception.failed_logins(most)

    def join(self, number: int, sock: socket.socket, *, serves: bool) -> None:
        """Takes over a socket that leads to another worker of the router.

        Args:
            number: the other worker's.
            sock: the socket connected to it.
            serves: whether our engine takes the server's role.
        """
        config = self.assembly.config
        engine = make_sibling_engine(
            engine_settings(config, self.shared, is_server=serves), self.number, self.shared.express
        )
        prepare(sock)
        older = self.siblings.get(number)
        if older is not None:
            self.plane.close(older)
        connection = self.plane.add(
            sock,
            engine,
            address=f"worker {number}",
            container=sibling_name(number),
            on_end=partial(self._part, number),
        )
        self.siblings[number] = connection

    def _join_itself(self) -> None:
        """Connects the worker to itself, for links that lead to every home (``core.branches``)."""
        if not self._homes.are_many:
            return
        config = self.assembly.config
        for serves, sock in enumerate(socket.socketpair()):
            settings = engine_settings(config, self.shared, is_server=bool(serves))
            prepare(sock)
            self.plane.add(
                sock,
                make_sibling_engine(settings, self.number, self.shared.express),
                address=f"worker {self.number}",
                container=sibling_name(self.number),
                on_end=None if serves else self._part_from_itself,
            )

    def _part_from_itself(self, _: Connection) -> None:
        self._nursery.start_soon(self._join_itself_again)

    async def _join_itself_again(self) -> None:
        await trio.lowlevel.checkpoint()
        if not self._is_draining:
            self._join_itself()

    def join_handing(self, number: int, pair: socket.socket) -> None:
        """Takes over the pair by which connections are handed to another worker, and come from it.

        Args:
            number: the other worker's.
            pair: the end connected to it.
        """
        pair.setblocking(False)
        older = self._handings.pop(number, None)
        if older is not None:
            older.close()
        self._handings[number] = handing = Handing(
            sibling=number,
            pair=pair,
            plane=self.plane,
            reception=self._reception,
            settings=self._settings_for_handed,
        )
        self.plane.switchboard.offer = self._offer
        self._review_handing()
        self._nursery.start_soon(handing.run)

    def _review_handing(self) -> None:
        """Has new connections be ready to be handed on, if some route has its home elsewhere."""
        has_exact = self.assembly.config.table.has_exact
        self._reception.hands_on = bool(self._handings) and has_exact and not is_off()

    def _offer(self, connection: Connection, home: str) -> bool:
        """Offers a connection to the worker of a name; false: it stays."""
        for number, handing in self._handings.items():
            if sibling_name(number) == home:
                return not self._is_draining and handing.offer(connection)
        return False

    def _settings_for_handed(self, listener: str) -> ListenerSettings | None:
        return None if self._is_draining else self.assembly.listener_settings.get(listener)

    @property
    def acquainted(self) -> set[int]:
        """Numbers of the siblings that have announced the addresses reachable through them."""
        known = self.core.acquainted
        return {number for number in self.siblings if sibling_name(number) in known}

    def _part(self, number: int, connection: Connection) -> None:
        if self.siblings.get(number) is connection:
            del self.siblings[number]

    def own(self, containers: frozenset[str]) -> None:
        """Dials these containers from now on, and no others."""
        self.containers = containers
        self._configure_connectors(self.assembly.config.containers, self.assembly)
        self.plane.carry_out(self.core.own(self._owned(containers), self.plane.clock()))

    def _owned(self, containers: frozenset[str]) -> frozenset[str]:
        """Returns what the core reaches from here: the store is the first worker's."""
        return containers | {STORE} if self.number == HOME else containers

    def prepare(self, config: RouterConfig) -> Assembly:
        """Builds the settings of a new configuration, without any effect yet.

        Raises:
            TlsError: the configuration is unusable.
        """
        return assemble(config, self.shared)

    def apply(self, assembly: Assembly) -> dict[str, int]:
        """Applies another configuration; only what differs is touched.

        Returns:
            How many unsettled deliveries are kept for each removed route, by its pattern.
        """
        old, self.assembly = self.assembly, assembly
        for name, rotation in assembly.rotations.items():
            if name in old.rotations:
                rotation.context.succeed(old.rotations[name].context)
        self._reception.admission = assembly.admission
        self._review_handing()
        if self.ledger is None and needs_journal(assembly.config):
            self._nursery.start_soon(self._open_ledger, assembly.config)
        elif self.ledger is not None:
            self._nursery.start_soon(self._open_archive, assembly.config)
        now = self.plane.clock()
        self.plane.carry_out(self.core.govern(assembly.policy, assembly.terms, now))
        self.plane.carry_out(self.core.configure(assembly.config.table, now))
        self._keep_store(assembly.config)
        self._configure_mesh(assembly)
        self._configure_connectors(old.config.containers, assembly)
        return dict(self.core.kept)

    async def drain(self) -> bool:
        """Drains the worker; returns whether everything was settled in time."""
        self._is_draining = True
        self._handshakes.cancel()
        self.plane.carry_out(self.core.drain(self.plane.clock()))
        seconds = self.assembly.config.router.drain_seconds
        closing = max(min(CLOSE_SECONDS, _CLOSE_SHARE * seconds), _CLOSE_LEAST_SECONDS)
        ends_at = trio.current_time() + max(seconds, closing)
        with trio.move_on_at(ends_at - closing) as patience:
            while not self.core.is_drained:
                await trio.sleep(_LOOK_SECONDS)
        for connector in (*self.connectors.values(), *self._detours.connectors.values()):
            connector.stop()
        if self.message_store is not None:
            self.message_store.stop()
        for connection in tuple(self.plane.switchboard.connections.values()):
            self.plane.close(connection, SHUTTING_DOWN)
        with trio.move_on_at(ends_at - _RECORD_SHARE * closing):
            await self._wait_closed()
        self.core.abandon()
        self.plane.switchboard.log_notices()
        for port in (self.ledger, self._archive):
            if port is not None:
                with trio.move_on_at(ends_at):
                    await close_ledger(port)
        self.is_over = True
        self._nursery.cancel_scope.cancel()
        return not patience.cancelled_caught

    async def _wait_closed(self) -> None:
        """Waits until peers have answered the close; not for long if nothing is left on a link.

        Some do not answer: clients of qpid-proton that connect again wait for the stream's end.
        """
        if self.core.is_drained:
            with trio.move_on_after(_ANSWER_SECONDS) as patience:
                await self.plane.wait_empty()
            while patience.cancelled_caught and self.plane.has_output:
                await trio.sleep(_LOOK_SECONDS)
        else:
            await self.plane.wait_empty()

    def _turn_away(
        self, reason: Callable[[str | None], Condition], connection: ConnectionId
    ) -> Condition:
        return reason(self.plane.switchboard.connections[connection].listener)

    def _has_store(self, config: RouterConfig) -> bool:
        """Returns whether this worker has a message store: of several workers the first one does.

        The others send it what is to be stored.
        """
        return self.number <= HOME and Store.MESSAGES.is_needed(config)

    def _keep_store(self, config: RouterConfig) -> None:
        """Connects to the message store, if there is one, and has it serve the routes."""
        if self.message_store is None and self._has_store(config):
            self.message_store = StoreKeeper(
                router=config.router.id,
                worker=self.number,
                path=Store.MESSAGES.socket(config),
                plane=self.plane,
                link_ids=self.shared.link_ids,
                clock_ns=time.time_ns,
                express=self.shared.express,
                reader=(
                    None
                    if stores_on_postgres(config)
                    else RunReader.of(Store.MESSAGES.directory(config))
                ),
            )
            self._nursery.start_soon(self.message_store.run)
        if self.message_store is not None:
            self.message_store.follow(config.table)

    async def _open_ledger(self, config: RouterConfig) -> None:
        """Opens the journal; returns when it is restored, or after ``ADMISSION_SECONDS``."""
        core, plane = self.core, self.plane
        self.ledger = connect_ledger(config, self.number, core, plane, self._nursery)
        restore = partial(restore_ledger, self.ledger, config, self._homes, core, plane)
        with trio.move_on_after(ADMISSION_SECONDS):
            await self.ledger.wait_answer()
        if self.ledger.is_admitted:
            await self._nursery.start(restore)
        else:
            self._log.warning("journal.awaited", reason=self.ledger.trouble, effect=_AWAITED)
            self._nursery.start_soon(restore)
        await self._open_archive(config)

    async def _open_archive(self, config: RouterConfig) -> None:
        if self._archive is None and Store.ARCHIVE.is_needed(config):
            self._archive = await open_archive(
                config, self.number, self.core, self.plane, self._nursery
            )

    async def _watch_certificates(self) -> None:
        """Watches the TLS files, and closes connections whose certificate was replaced."""
        while True:
            await trio.sleep(LOOK_SECONDS)
            now = self.plane.clock()
            rotations = self.assembly.rotations
            for rotation in rotations.values():
                rotation.context.current()
            connections = self.plane.switchboard.connections.values()
            for connection in find_retiring(connections, rotations, now):
                self.plane.carry_out(self.core.dismiss(connection.id, REPLACED, now))

    async def _receive(self, task_status: trio.TaskStatus[None]) -> None:
        with self._handshakes:
            async with trio.open_nursery() as nursery:
                self._reception = Reception(self.plane, nursery, self.assembly.admission)
                task_status.started()
                await trio.sleep_forever()

    def _configure_mesh(self, assembly: Assembly) -> None:
        """Joins the mesh, or tells it what the file says now."""
        mesh, now = assembly.config.mesh, self.plane.clock()
        if assembly.mesh is None or mesh is None or self.number > MESH_HOME:
            return  # the other workers are told of the mesh (``core.mesh.reports``)
        if self.core.mesh.machine is None:
            orders = self.core.join_mesh(assembly.mesh, now)
        else:
            orders = self.core.tell_mesh(reconfigured(assembly.config, mesh), now)
        self.plane.carry_out(orders)

    def _configure_connectors(self, old: Mapping[str, Container], assembly: Assembly) -> None:
        owned = self.containers
        containers = {
            name: container
            for name, container in assembly.config.containers.items()
            if (owned is None or name in owned) and not container.dials_in
        }
        for name in tuple(self.connectors):
            if name not in containers or containers[name] != old.get(name):
                self.connectors.pop(name).stop()
                self._detours.close(name)
        for name, container in containers.items():
            if name in self.connectors:
                self.connectors[name].endpoints = assembly.endpoints[name]  # for the next dial
            else:
                self._connect(name, container, assembly)

    def _connect(self, name: str, container: Container, assembly: Assembly) -> None:
        self.connectors[name] = connector = Connector(
            container=name,
            endpoints=assembly.endpoints[name],
            plane=self.plane,
            connect_seconds=container.connect_seconds,
            retry_seconds=container.retry_seconds,
            retry_limit_seconds=container.retry_limit_seconds,
            is_served=partial(self.core.mesh.is_served, name),
        )
        self._nursery.start_soon(connector.run)


def make_worker(
    config: RouterConfig,
    *,
    number: int = 0,
    containers: frozenset[str] | None = None,
    workers: int = 1,
    tickets: bytes = b"",
) -> Worker:
    """Makes a worker for a configuration.

    Args:
        config: the configuration.
        number: the worker's, from 1, if there are several.
        containers: names of the containers that it dials; None: all.
        workers: how many there are.
        tickets: see ``TlsFiles``.

    Raises:
        TlsError, MisuseError: the configuration is unusable.
    """
    load_engines()
    shared = share(config, tickets)
    return Worker(assemble(config, shared), shared, number, containers, workers)
