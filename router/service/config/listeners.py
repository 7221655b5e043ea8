"""Section ``listeners``: the addresses where the router accepts connections."""

import enum
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import attrs

from router.model.capabilities import Protocol
from router.model.place import Alternative, BindAddress, TcpAddress
from router.service.config.addresses import Bind, OtherPlace
from router.service.config.document import Node, Scalar
from router.service.config.kinds import Kind, ListOf, MapOf, OrWord, Reading, ScalarKind, Schema
from router.service.config.options import Placed, Section, option
from router.service.config.problems import UnfitError
from router.service.config.references import Secret
from router.service.config.scalars import FilePath, Flag, OneOf, Seconds, SecretText
from router.wire.detect import AmbiguousHeader
from router.wire.protocols import PROTOCOLS

DEFAULT_BIND = TcpAddress("127.0.0.1", 5672)


class TlsVersion(enum.StrEnum):
    """Versions of TLS that are offered; older ones are insecure."""

    TLS_1_2 = "1.2"
    TLS_1_3 = "1.3"


class VerifyClient(enum.StrEnum):
    """Whether a TLS client has to show a certificate."""

    NO = "no"
    OPTIONAL = "optional"
    REQUIRED = "required"


class IdentityField(enum.StrEnum):
    """Which part of a client's certificate is its identity for SASL EXTERNAL."""

    COMMON_NAME = "common-name"
    SUBJECT = "subject"
    SAN_DNS = "san-dns"
    SAN_URI = "san-uri"
    SAN_EMAIL = "san-email"


class ServerMechanism(enum.StrEnum):
    """SASL mechanisms that a listener can offer."""

    EXTERNAL = "EXTERNAL"
    SCRAM_SHA_512 = "SCRAM-SHA-512"
    SCRAM_SHA_256 = "SCRAM-SHA-256"
    PLAIN = "PLAIN"
    ANONYMOUS = "ANONYMOUS"


@attrs.frozen(kw_only=True)
class ListenerTls(Placed):
    """TLS of a listener. Files are read again when they change.

    An expired certificate does not replace one that is still valid.
    """

    cert: Path = option(FilePath(), help="certificate chain (PEM)")
    key: Path = option(FilePath(), help="private key (PEM)")
    ca: Path | None = option(
        FilePath(),
        default=None,
        default_text="the system's authorities",
        help="authorities (PEM) that client certificates must come from",
    )
    required: bool = option(
        Flag(), default=True, help="refuse peers that do not start with TLS; else both are served"
    )
    verify_client: VerifyClient = option(
        OneOf(VerifyClient),
        default=VerifyClient.NO,
        help="whether clients must show a certificate: no, optional or required",
    )
    identity_field: IdentityField = option(
        OneOf(IdentityField),
        default=IdentityField.COMMON_NAME,
        help="part of a client certificate that is its identity (SASL EXTERNAL)",
    )
    min_version: TlsVersion = option(
        OneOf(TlsVersion), default=TlsVersion.TLS_1_2, help="lowest version of TLS"
    )
    retire_seconds: float | None = option(
        OrWord(Seconds()),
        default=3600.0,
        help="how long a connection stays open after its TLS files were replaced; then it is"
        " drained and closed with amqp:connection:forced",
    )


_USERS: Final = MapOf(SecretText(), what="user")
_PATH: Final = FilePath()


class UsersOrFile(Kind[Mapping[str, Secret] | Path]):
    """Users with their passwords, or the path of a file that has them hashed."""

    def read(self, node: Node, at: str, reading: Reading) -> Mapping[str, Secret] | Path:
        """Reads a single text as a path."""
        if isinstance(node, Scalar) and not node.is_null:
            return _PATH.read(node, at, reading)
        return _USERS.read(node, at, reading)

    def schema(self) -> Schema:
        """A path, or an object."""
        return {"anyOf": [_PATH.schema(), _USERS.schema()]}

    def show(self, value: Mapping[str, Secret] | Path) -> str:
        """Writes it on one line."""
        return str(value) if isinstance(value, Path) else _USERS.show(value)


@attrs.frozen(kw_only=True)
class ListenerSasl(Placed):
    """Who may log in. Without this section any peer may connect, as identity ``anonymous``."""

    mechanisms: tuple[ServerMechanism, ...] = option(
        ListOf(OneOf(ServerMechanism), "mechanism", may_be_empty=False),
        default=(ServerMechanism.SCRAM_SHA_256, ServerMechanism.PLAIN),
        help="mechanisms that are offered, best first; PLAIN includes RabbitMQ's AMQPLAIN",
    )
    users: Mapping[str, Secret] | Path = option(
        UsersOrFile(),
        factory=dict,
        help="user: password, for SCRAM and PLAIN; or a file made by `router user add`",
    )
    allow_plain_without_tls: bool = option(
        Flag(),
        default=False,
        help="offer PLAIN in clear to other machines (loopback and Unix sockets always may)",
    )


_ORIGIN: Final = re.compile(r"\*|null|[a-z][a-z0-9+.-]*://[^/?#\s]+", re.IGNORECASE)


@attrs.frozen
class Origin(ScalarKind[str]):
    """The origin of a web page (RFC 6454 §6.2), in lower case; ``*``: any."""

    def parse(self, text: str) -> str:
        """Accepts scheme, host and port, without a path."""
        if _ORIGIN.fullmatch(text) is None:
            raise UnfitError(f"is not {self.wanted()}")
        return text.lower()

    def wanted(self) -> str:
        """Returns the form."""
        return "an origin, such as https://app.example or http://localhost:8080, or *"


@attrs.frozen(kw_only=True)
class ListenerWebSocket(Placed):
    """AMQP over WebSocket: ws, or wss with the listener's TLS."""

    required: bool = option(
        Flag(),
        default=False,
        help="refuse peers that do not ask for a WebSocket; else they are served as well",
    )
    origins: tuple[str, ...] = option(
        ListOf(Origin(), "origin"),
        default=(),
        default_text="no web page",
        help="origins of the web pages that may connect from a browser, such as"
        " https://app.example; * is any. Other clients name no origin, and may always",
    )


@attrs.frozen(kw_only=True)
class Listener(Placed):
    """A listener: its address, its authentication and its protocols."""

    is_mesh: bool = attrs.field(default=False)
    """Other routers of the mesh connect here (``neighbors``); no file says so."""

    bind: BindAddress = option(
        Bind(), default=DEFAULT_BIND, help="host:port, [v6]:port or unix:/path"
    )
    protocols: tuple[Protocol, ...] = option(
        ListOf(OneOf(PROTOCOLS), "protocol", may_be_empty=False),
        default=tuple(PROTOCOLS),
        default_text="all",
        help="protocols that are served, distinguished by their first octets",
    )
    header_1_1_9_1: AmbiguousHeader = option(
        OneOf(AmbiguousHeader),
        default=AmbiguousHeader.DRAFT,
        help="who sends the header AMQP 1 1 9 1: amqp-0-9r1, the draft whose header it is, or"
        " amqp-0-8, clients of 2006 that meant 0-8 by it (served as amqp-0-9-1)",
    )
    tls: ListenerTls | None = option(
        Section(ListenerTls), default=None, help="TLS, at once (5671 style) or in band (1.0)"
    )
    websocket: ListenerWebSocket | None = option(
        Section(ListenerWebSocket),
        default=None,
        default_text="WebSocket is not served",
        help="serve AMQP over WebSocket, on the same port",
    )
    failover: tuple[Alternative, ...] = option(
        ListOf(OtherPlace(), "place"),
        default=(),
        help="other places where clients find this container when it is away, host[:port] or URL;"
        " told in the open as failover-server-list (1.0) or known-hosts (0-10 and older)",
    )
    sasl: ListenerSasl | None = option(
        Section(ListenerSasl),
        default=None,
        default_text="anybody may connect, as identity anonymous",
        help="who may log in",
    )

    @property
    def admits_anybody(self) -> bool:
        """Whether a peer needs neither a password nor a certificate."""
        if self.tls is not None and self.tls.required:
            if self.tls.verify_client is VerifyClient.REQUIRED:
                return False
        return self.sasl is None or ServerMechanism.ANONYMOUS in self.sasl.mechanisms
