"""When the admin endpoint of a router is opened, and how it is shared with a successor."""

import errno
import socket
from collections.abc import Sequence
from typing import Any, Final

import attrs
import structlog
import trio

from router.net.sockets import is_bound_to
from router.service.admin.endpoint import AdminEndpoint, open_endpoint
from router.service.config.process import Router
from router.service.fleet import RouterControl

LOOK_SECONDS: Final = 0.25
"""How often an address is tried that an older version has until it ends."""


@attrs.define(eq=False)
class AdminKeeper:
    """Has the admin endpoint of a router.

    Attributes:
        options: of the router.
        control: the router.
        nursery: where the endpoint lives.
        inherited: sockets that listen already; the endpoint takes those of its address.
    """

    options: Router
    control: RouterControl
    nursery: trio.Nursery
    inherited: list[socket.socket] = attrs.field(factory=list)
    _endpoint: AdminEndpoint | None = attrs.field(default=None, init=False)
    _is_late: bool = attrs.field(default=False, init=False)
    _log: Any = attrs.field(factory=structlog.get_logger, init=False)

    @property
    def addresses(self) -> list[str] | None:
        """Where it listens; None: nowhere."""
        return None if self._endpoint is None else self._endpoint.addresses

    @property
    def sockets(self) -> Sequence[socket.socket]:
        """Those that it listens on."""
        return () if self._endpoint is None else self._endpoint.server.sockets

    async def open(self, *, is_held: bool) -> None:
        """Begins to listen; ``serve`` answers.

        Args:
            is_held: the process whose place is being taken may have the address until it ends.

        Raises:
            OSError: the address that the file asks for cannot be had. The default one being taken,
                perhaps by another router, is no reason not to run.
            TlsError: its certificate cannot be used.
        """
        admin = self.options.admin
        if admin is None:
            self._drop_inherited()
            return
        ours = [each for each in self.inherited if is_bound_to(each, admin.bind)]
        self.inherited = [each for each in self.inherited if each not in ours]
        try:
            self._endpoint = await open_endpoint(admin, self.control, ours)
        except OSError as error:
            reason = f"router.admin: {admin.bind}: {error.strerror or error}"
            if is_held and error.errno == errno.EADDRINUSE:
                self._is_late = True
            elif "admin" in self.options.where.keys:
                raise OSError(error.errno, reason) from error
            else:
                self._log.warning("admin.unavailable", reason=reason)
        self._drop_inherited()

    def serve(self) -> None:
        """Answers from now on, or as soon as the process that was here before has left."""
        if self._endpoint is not None:
            self.nursery.start_soon(self._endpoint.run)
        elif self._is_late:
            self.nursery.start_soon(self._open_later)

    def leave(self) -> None:
        """Accepts no more, since another process has the same sockets."""
        if self._endpoint is not None:
            self._endpoint.server.leave()

    def _drop_inherited(self) -> None:
        while self.inherited:
            self.inherited.pop().close()

    async def _open_later(self) -> None:
        assert self.options.admin is not None
        while self._endpoint is None:
            await trio.sleep(LOOK_SECONDS)
            try:
                self._endpoint = await open_endpoint(self.options.admin, self.control)
            except OSError:
                continue
        self._log.info("admin.opened", addresses=self.addresses)
        await self._endpoint.run()
