"""Builds a router's admin endpoint and its separate endpoint for probes from the configuration."""

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
    """An HTTP endpoint of a router, which serves until it is cancelled.

    Attributes:
        control: the router.
        history: takes samples while the endpoint serves; None: this endpoint offers no history.
        server: the HTTP server.
        tls: its TLS context; None: plain HTTP.
    """

    control: RouterControl
    history: History | None
    server: Server
    tls: TlsContext | None = None
    _log: Any = attrs.field(factory=structlog.get_logger, init=False)

    @property
    def addresses(self) -> list[str]:
        """Its addresses, with the port that the system chose for port 0."""
        return self.server.addresses

    async def run(self) -> None:
        """Serves until cancelled; a failure here never ends the router."""
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
        admin: its configuration.
        control: the router.
        inherited: sockets that already listen at its address; none: they are opened.

    Raises:
        OSError: the address cannot be bound.
        TlsError: the certificate cannot be used.
    """
    history = History()
    token = None if admin.token is None else admin.token.reveal()
    tls = _tls(admin)
    app = make_app(control, history, admin.bind, token)
    server = Server(app, None if tls is None else tls.current)
    await server.open(admin.bind, inherited)
    return AdminEndpoint(control, history, server, tls)


async def open_probes(
    bind: BindAddress, control: RouterControl, inherited: Sequence[socket.socket] = ()
) -> AdminEndpoint:
    """Makes an endpoint for probes alone that listens already.

    Args:
        bind: its address.
        control: the router.
        inherited: sockets that already listen there; none: they are opened.

    Raises:
        OSError: the address cannot be bound.
    """
    server = Server(make_probe_app(control))
    await server.open(bind, inherited)
    return AdminEndpoint(control, None, server)


def _tls(admin: Admin) -> TlsContext | None:
    files = admin_files(admin)
    return None if files is None else TlsContext(files, TlsFiles.server_context)
