"""The admin endpoint of a router, put together from its configuration."""

import socket
from collections.abc import Sequence
from typing import Any

import attrs
import structlog
import trio

from router.net.tls_files import TlsContext, TlsFiles
from router.service.admin.app import make_app
from router.service.admin.history import History
from router.service.admin.server import Server
from router.service.config.process import Admin
from router.service.credentials import admin_files
from router.service.fleet import RouterControl


@attrs.define(eq=False)
class AdminEndpoint:
    """Serves status, metrics, API and console until it is cancelled."""

    control: RouterControl
    history: History
    server: Server
    _log: Any = attrs.field(factory=structlog.get_logger, init=False)

    @property
    def addresses(self) -> list[str]:
        """Where it listens, with the port that was given out for port 0."""
        return self.server.addresses

    async def run(self) -> None:
        """Serves until cancelled; whatever goes wrong here never ends the router."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.history.run, self.control)
                nursery.start_soon(self.server.run)
        except Exception:  # noqa: BLE001  traffic goes on without it
            self._log.exception("admin.failed")


async def open_endpoint(
    admin: Admin, control: RouterControl, inherited: Sequence[socket.socket] = ()
) -> AdminEndpoint:
    """Makes an endpoint that listens already.

    Args:
        admin: what the configuration says of it.
        control: the router.
        inherited: sockets that listen at its address already; none: they are opened.

    Raises:
        OSError: the address cannot be had.
        TlsError: the certificate cannot be used.
    """
    history = History()
    token = None if admin.token is None else admin.token.reveal()
    server = Server(make_app(control, history, admin.bind, token), _tls(admin))
    await server.open(admin.bind, inherited)
    return AdminEndpoint(control, history, server)


def _tls(admin: Admin) -> Any:
    files = admin_files(admin)
    return None if files is None else TlsContext(files, TlsFiles.server_context).current
