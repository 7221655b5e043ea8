"""The admin endpoint of a router and its door for probes, put together from its configuration."""

import socket
from collections.abc import Sequence
from typing import Any

import attrs
import structlog
import trio

from router.model.place import BindAddress
from router.net.tls_files import TlsContext, TlsFiles
from router.service.admin.app import make_app, make_probe_app
from router.service.admin.history import History
from router.service.admin.server import Server
from router.service.config.process import Admin
from router.service.credentials import admin_files
from router.service.fleet import RouterControl


@attrs.define(eq=False)
class AdminEndpoint:
    """Serves what there is to see of a router until it is cancelled.

    Attributes:
        control: the router.
        history: samples while this serves; None: nobody asks for the past here.
        server: listens.
    """

    control: RouterControl
    history: History | None
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
                if self.history is not None:
                    nursery.start_soon(self.history.run, self.control)
                nursery.start_soon(self.server.run)
        except Exception:  # noqa: BLE001  traffic goes on without it
            self._log.exception("admin.failed")


async def open_endpoint(
    admin: Admin, control: RouterControl, inherited: Sequence[socket.socket] = ()
) -> AdminEndpoint:
    """Makes an endpoint with status, metrics, API and console that listens already.

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


async def open_probes(
    bind: BindAddress, control: RouterControl, inherited: Sequence[socket.socket] = ()
) -> AdminEndpoint:
    """Makes an endpoint for probes alone that listens already.

    Args:
        bind: where.
        control: the router.
        inherited: sockets that listen there already; none: they are opened.

    Raises:
        OSError: the address cannot be had.
    """
    server = Server(make_probe_app(control))
    await server.open(bind, inherited)
    return AdminEndpoint(control, None, server)


def _tls(admin: Admin) -> Any:
    files = admin_files(admin)
    return None if files is None else TlsContext(files, TlsFiles.server_context).current
