"""The workers of one router, as ``run`` knows them: in this process, or behind a supervisor."""

import socket
from collections.abc import Sequence
from typing import Protocol as Interface

import attrs
import trio

from router.service.assembly import Assembly
from router.service.config import RouterConfig
from router.service.control import Control, LocalControl
from router.service.lives import NONE_WAIT, WaitingClients, WorkerLives
from router.service.worker import Worker


class Crew(Interface):
    """All workers of the router."""

    @property
    def express(self) -> str:
        """The express lane that the workers use: ``cython``, or ``off``."""

    @property
    def connected_containers(self) -> set[str]:
        """Names of the configured containers whose connection is open."""

    @property
    def connection_count(self) -> int:
        """Number of connections."""

    @property
    def lives(self) -> Sequence[WorkerLives]:
        """What became of the workers' processes; none: the only worker is this process."""

    @property
    def waiting(self) -> WaitingClients:
        """Accepted connections that wait for a worker which is being started."""

    async def warm(self, nursery: trio.Nursery) -> None:
        """Begins to prepare what ``start`` needs; nothing is served yet."""

    async def start(self, nursery: trio.Nursery) -> None:
        """Starts the workers; returns when every worker is up.

        Raises:
            RouterError: the configuration cannot be served.
        """

    def controls(self) -> Sequence[Control]:
        """Returns the workers that are up, in the order of their numbers."""

    def admit(self, sock: socket.socket, listener: str) -> None:
        """Takes over a socket that the listener of that name has accepted."""

    async def wait_for_capacity(self) -> None:
        """Returns when this process has time to accept connections."""

    async def prepare(self, config: RouterConfig) -> None:
        """Prepares a configuration in every worker, without any effect yet.

        Raises:
            RouterError: some worker cannot serve it.
        """

    async def apply(self) -> dict[str, int]:
        """Applies the configuration that was prepared last, in every worker.

        Returns:
            How many unsettled deliveries are kept for each removed route, by its pattern.
        """

    async def drain(self) -> bool:
        """Drains all workers; returns whether everything was settled in time."""

    async def set_log_level(self, level: str) -> None:
        """Logs lines of this severity and above, in other processes too."""


@attrs.define(eq=False)
class Soloist:
    """The only worker, in this process."""

    worker: Worker
    _control: LocalControl = attrs.field(init=False)
    _prepared: Assembly | None = attrs.field(default=None, init=False)
    _is_up: bool = attrs.field(default=False, init=False)

    def __attrs_post_init__(self) -> None:
        self._control = LocalControl(self.worker)

    @property
    def express(self) -> str:
        """As ``Crew`` says."""
        return self.worker.express_kind

    @property
    def connected_containers(self) -> set[str]:
        """As ``Crew`` says."""
        return self.worker.connected_containers

    @property
    def connection_count(self) -> int:
        """As ``Crew`` says."""
        return self.worker.plane.connection_count

    @property
    def lives(self) -> Sequence[WorkerLives]:
        """As ``Crew`` says."""
        return ()

    @property
    def waiting(self) -> WaitingClients:
        """As ``Crew`` says."""
        return NONE_WAIT

    async def warm(self, nursery: trio.Nursery) -> None:
        """Does nothing: the worker was made when this process started."""

    async def start(self, nursery: trio.Nursery) -> None:
        """Begins to work, as ``Crew`` says."""
        await nursery.start(self.worker.run)
        await nursery.start(self._control.run)
        self._is_up = True

    def controls(self) -> Sequence[Control]:
        """As ``Crew`` says."""
        return (self._control,) if self._is_up else ()

    def admit(self, sock: socket.socket, listener: str) -> None:
        """As ``Crew`` says."""
        self.worker.admit(sock, listener)

    async def wait_for_capacity(self) -> None:
        """As ``Crew`` says."""
        await self.worker.plane.wait_for_capacity()

    async def prepare(self, config: RouterConfig) -> None:
        """As ``Crew`` says."""
        self._prepared = None
        self._prepared = self.worker.prepare(config)

    async def apply(self) -> dict[str, int]:
        """As ``Crew`` says."""
        prepared, self._prepared = self._prepared, None
        assert prepared is not None, "prepare comes first"
        return self.worker.apply(prepared)

    async def drain(self) -> bool:
        """As ``Crew`` says."""
        return await self.worker.drain()

    async def set_log_level(self, level: str) -> None:
        """Does nothing: the caller has set the level of this process."""
