"""Opens a router's admin endpoint and shares it with a successor.

There are two endpoints, which are opened, shared and left together: the admin endpoint itself and
the one for probes.
"""

import errno
import socket
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final

import attrs
import structlog
import trio

from router.model.place import BindAddress
from router.net.sockets import describe_refusal, is_bound_to
from router.net.tls_files import TlsContext
from router.service.admin.endpoint import AdminEndpoint, open_endpoint, open_probes
from router.service.config.options import Where
from router.service.config.process import Router
from router.service.fleet import RouterControl

LOOK_SECONDS: Final = 0.25
"""Interval of attempts to bind an address that a process of an older version keeps to its end."""


@attrs.define(eq=False)
class _Door:
    """One address.

    Attributes:
        option: the option of section ``router`` that names the address.
        place: where it stands in the file, and a colon; empty: it is not there.
        bind: the address.
        opener: makes an endpoint there, perhaps from sockets that already listen.
        is_needed: the router does not run without it.
        endpoint: None: the address could not be bound, or not yet.
        is_late: the address can be bound once the predecessor process has ended.
    """

    option: str
    place: str
    bind: BindAddress
    opener: Callable[[Sequence[socket.socket]], Awaitable[AdminEndpoint]]
    is_needed: bool
    endpoint: AdminEndpoint | None = None
    is_late: bool = False
    _log: Any = attrs.field(factory=structlog.get_logger, init=False)

    @property
    def addresses(self) -> list[str] | None:
        """Its addresses; None: it does not listen."""
        return None if self.endpoint is None else self.endpoint.addresses

    async def open(self, inherited: Sequence[socket.socket], *, is_held: bool) -> None:
        """Begins to listen.

        Raises:
            OSError, TlsError: it cannot listen, and is needed.
        """
        try:
            self.endpoint = await self.opener(inherited)
        except OSError as error:
            reason = f"{self.place}router.{self.option}: {self.bind}: {describe_refusal(error)}"
            if is_held and error.errno == errno.EADDRINUSE:
                self.is_late = True
            elif self.is_needed:
                raise OSError(error.errno, reason) from error
            else:
                self._log.warning("admin.unavailable", reason=reason)

    async def serve(self) -> None:
        """Serves, if necessary after waiting for the predecessor process to end."""
        if self.endpoint is None:
            await self._open_later()
        if self.endpoint is not None:
            await self.endpoint.run()

    async def _open_later(self) -> None:
        while self.is_late and self.endpoint is None:
            await trio.sleep(LOOK_SECONDS)
            try:
                self.endpoint = await self.opener(())
            except OSError:
                continue
            self._log.info("admin.opened", addresses=self.addresses)


@attrs.define(eq=False)
class AdminKeeper:
    """Keeps a router's admin endpoint and its endpoint for probes.

    Attributes:
        options: section ``router`` of the configuration.
        control: the router.
        nursery: runs the endpoints.
        inherited: sockets that already listen; each endpoint uses those of its address.
    """

    options: Router
    control: RouterControl
    nursery: trio.Nursery
    inherited: list[socket.socket] = attrs.field(factory=list)
    _doors: dict[str, _Door] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        doors: list[_Door] = []
        admin, probes, where = self.options.admin, self.options.probes, self.options.where
        if admin is not None:
            opener = partial(open_endpoint, admin, self.control)
            # another router may use the default address
            is_given = "admin" in where.keys
            doors += [_Door("admin", _place(where, "admin"), admin.bind, opener, is_given)]
        if probes is not None:
            opened = partial(open_probes, probes, self.control)
            doors += [_Door("probes", _place(where, "probes"), probes, opened, True)]
        self._doors = {door.option: door for door in doors}

    @property
    def addresses(self) -> list[str] | None:
        """Addresses of the admin endpoint; None: it does not listen."""
        return self._addresses("admin")

    @property
    def probe_addresses(self) -> list[str] | None:
        """Addresses of the endpoint for probes; None: it does not listen."""
        return self._addresses("probes")

    @property
    def contexts(self) -> Sequence[TlsContext]:
        """The TLS contexts of the endpoints that speak TLS."""
        return [each.tls for each in self._endpoints() if each.tls is not None]

    @property
    def sockets(self) -> Sequence[socket.socket]:
        """The listening sockets of both endpoints."""
        return [each for endpoint in self._endpoints() for each in endpoint.server.sockets]

    async def open(self, *, is_held: bool) -> None:
        """Begins to listen; ``serve`` answers.

        Args:
            is_held: the process that is being replaced may keep the address until it ends.

        Raises:
            OSError: an address that the file names cannot be bound. If the default address is in
                use, perhaps by another router, the router runs without the endpoint.
            TlsError: its certificate cannot be used.
        """
        for door in self._doors.values():
            ours = [each for each in self.inherited if is_bound_to(each, door.bind)]
            self.inherited = [each for each in self.inherited if each not in ours]
            await door.open(ours, is_held=is_held)
        while self.inherited:
            self.inherited.pop().close()

    def serve(self) -> None:
        """Serves from now on, or as soon as the predecessor process has ended."""
        for door in self._doors.values():
            self.nursery.start_soon(door.serve)

    def leave(self) -> None:
        """Stops accepting, because another process has the same sockets."""
        for endpoint in self._endpoints():
            endpoint.server.leave()

    def _endpoints(self) -> list[AdminEndpoint]:
        return [each.endpoint for each in self._doors.values() if each.endpoint is not None]

    def _addresses(self, option: str) -> list[str] | None:
        return self._doors[option].addresses if option in self._doors else None


def _place(where: Where, option: str) -> str:
    position = where.keys.get(option)
    return "" if position is None else f"{position}: "
