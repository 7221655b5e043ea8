"""Places that the commands dial: their URL, and others that a peer names."""

import ssl
from pathlib import Path
from typing import Final

import attrs
import click
import trio

from router.links.trail import RefusedDiversionError
from router.model.place import Alternative, BindAddress, TcpAddress, UnixAddress, is_host
from router.net.diversion import DiversionPolicy
from router.service.advice import command_words, connection_advice
from router.service.config.addresses import DEFAULT_PORTS, parse_url
from router.service.config.problems import UnfitError

UNIX: Final = "unix:"


@attrs.frozen(kw_only=True)
class Place:
    """The peer's address, and our credentials.

    Attributes:
        hostname: the peer's.
        vhost: virtual host to open; None: the protocol's default.
        server_name: the name that the peer's certificate must have.
    """

    address: BindAddress
    hostname: str
    vhost: str | None = None
    is_tls: bool = False
    user: str | None = None
    password: str | None = attrs.field(default=None, repr=False)
    server_name: str = ""

    def __str__(self) -> str:
        return str(self.address)

    def advice(self, reason: str) -> str:
        """Returns what to do when nothing is reached there for a reason."""
        port = self.address.port if isinstance(self.address, TcpAddress) else None
        return connection_advice(reason, command_words(str(self.address), port))


def read_place(context: click.Context, parameter: click.Parameter, value: str) -> Place:
    """Parses a URL argument; errors do not quote it."""
    try:
        return place_of(value)
    except UnfitError as error:
        raise click.BadParameter(f"it {error.reason}", context, parameter) from None


def place_of(value: str) -> Place:
    """Parses a URL.

    Raises:
        UnfitError: the text is not such a URL.
    """
    if value.startswith(UNIX) and value != UNIX:
        return Place(address=UnixAddress(Path(value.removeprefix(UNIX))), hostname="localhost")
    url = parse_url(value)
    if url.path is not None:
        raise UnfitError("is the URL of a WebSocket, which only containers of a router have")
    return Place(
        address=TcpAddress(url.host, url.port),
        hostname=url.host,
        vhost=url.vhost,
        is_tls=url.is_tls,
        user=url.user,
        password=None if url.password is None else url.password.reveal(),
        server_name=url.host,
    )


def other_place(home: Place, other: Alternative, policy: DiversionPolicy) -> Place:
    """Returns the place that a peer names, which is dialed as ``home`` is.

    Raises:
        RefusedDiversionError: it is not to be dialed.
    """
    policy.check(other, is_tls=home.is_tls)
    if other.scheme in ("ws", "wss") or other.path is not None:
        raise RefusedDiversionError("it is a WebSocket, which this command does not dial")
    port = other.port or DEFAULT_PORTS["amqps" if home.is_tls else "amqp"]
    name = other.hostname
    has_name = name is not None and is_host(name) and policy.allows(name)
    known_as = name if name is not None and has_name else other.host
    return attrs.evolve(
        home, address=TcpAddress(other.host, port), hostname=known_as, server_name=known_as
    )


def diversion_policy(home: Place, *, is_obeyed: bool, hosts: tuple[str, ...]) -> DiversionPolicy:
    """Returns where a command dials because a peer says so: its own host, and ``hosts``."""
    own = (home.hostname,) if isinstance(home.address, TcpAddress) else ()
    return DiversionPolicy(
        is_obeyed=is_obeyed,
        hosts=tuple(each.lower().rstrip(".") for each in (*own, *hosts)),
        option="--failover-host",
        ignored="--failover says ignore",
    )


async def open_stream(place: Place, context: ssl.SSLContext | None) -> trio.abc.Stream:
    """Connects to a place, with TLS if there is a context for it."""
    if isinstance(place.address, UnixAddress):
        return await trio.open_unix_socket(str(place.address.path))
    stream = await trio.open_tcp_stream(place.address.host, place.address.port)
    if context is None:
        return stream
    secured = trio.SSLStream(
        stream, context, server_hostname=place.server_name, https_compatible=True
    )
    try:
        await secured.do_handshake()
    except BaseException:
        await trio.aclose_forcefully(secured)
        raise
    return secured
