"""Section ``containers``: the AMQP containers that the router dials."""

import enum
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import attrs

from router.model.capabilities import Protocol
from router.net.proxy import Proxy
from router.routes.promise import Peer
from router.service.config.addresses import ContainerUrl, HostName, HostPattern, ProxyUrl, Urls
from router.service.config.kinds import ListOf, OrWord
from router.service.config.listeners import TlsVersion
from router.service.config.options import Placed, Section, option
from router.service.config.references import Secret
from router.service.config.scalars import (
    FilePath,
    Flag,
    Octets,
    OneOf,
    Seconds,
    SecretText,
    Text,
    Whole,
)
from router.wire.protocols import PROTOCOLS


class ClientMechanism(enum.StrEnum):
    """SASL mechanisms by which the router identifies itself."""

    EXTERNAL = "EXTERNAL"
    SCRAM_SHA_512 = "SCRAM-SHA-512"
    SCRAM_SHA_256 = "SCRAM-SHA-256"
    SCRAM_SHA_1 = "SCRAM-SHA-1"
    XOAUTH2 = "XOAUTH2"
    PLAIN = "PLAIN"
    ANONYMOUS = "ANONYMOUS"


@attrs.frozen(kw_only=True)
class ContainerTls(Placed):
    """TLS towards a container; it is on if the URL says ``amqps`` or ``wss``. Files are watched."""

    ca: Path | None = option(
        FilePath(),
        default=None,
        default_text="the system's authorities",
        help="authorities (PEM) that the container's certificate must come from",
    )
    cert: Path | None = option(
        FilePath(), default=None, help="the router's certificate chain (PEM), for SASL EXTERNAL"
    )
    key: Path | None = option(FilePath(), default=None, help="the router's private key (PEM)")
    server_name: str | None = option(
        HostName(),
        default=None,
        default_text="the host of the URL",
        help="server name that is sent (SNI) and that the certificate must have",
    )
    verify: bool = option(
        Flag(), default=True, help="check the container's certificate and its name"
    )
    min_version: TlsVersion = option(
        OneOf(TlsVersion), default=TlsVersion.TLS_1_2, help="lowest version of TLS"
    )
    retire_seconds: float | None = option(
        OrWord(Seconds()),
        default=3600.0,
        help="how long the connection stays open after its TLS files were replaced; then it is"
        " drained and dialed again",
    )


@attrs.frozen(kw_only=True)
class ContainerSasl(Placed):
    """How the router identifies itself to a container."""

    mechanisms: tuple[ClientMechanism, ...] = option(
        ListOf(OneOf(ClientMechanism), "mechanism", may_be_empty=False),
        default=tuple(ClientMechanism),
        default_text="all that are possible with user, password, token or certificate",
        help="mechanisms that may be used, best first; the first that the container offers is used",
    )
    user: str | None = option(Text(), default=None, help="user name, if the URL has none")
    password: Secret | None = option(
        SecretText(), default=None, help="for SCRAM and PLAIN, if the URL has none"
    )
    token: Secret | None = option(SecretText(), default=None, help="access token for XOAUTH2")


@attrs.frozen(kw_only=True)
class ContainerCbs(Placed):
    """A token that is sent to node ``$cbs`` before any other link attaches, and renewed there."""

    audience: str = option(
        Text(), help="what the token is for, such as amqp://NAME.servicebus.windows.net/QUEUE"
    )
    sas_name: str | None = option(
        Text(), default=None, help="name of a shared access key, of which tokens are made"
    )
    sas_key: Secret | None = option(SecretText(), default=None, help="the shared access key")
    token_file: Path | None = option(
        FilePath(), default=None, help="or a file with a token, read again for each renewal"
    )
    type: str | None = option(
        Text(),
        default=None,
        default_text="servicebus.windows.net:sastoken with sas_key, jwt with token_file",
        help="token type, as the container names it",
    )
    renew_seconds: float = option(
        Seconds(1, 86400),
        default=1200.0,
        help="interval at which a new token is sent; tokens made from sas_key are valid"
        " twice as long",
    )


class Failover(enum.StrEnum):
    """What becomes of other places that a container names for itself."""

    OBEY = "obey"
    IGNORE = "ignore"


class Several(enum.StrEnum):
    """What becomes of a second connection of a container that dials in."""

    REFUSE = "refuse"
    BALANCE = "balance"


@attrs.frozen(kw_only=True)
class Container(Placed):
    """A container that the router dials, or that dials in, and its properties."""

    needs_one_of: ClassVar[Sequence[str]] = ("url", "dials_in")
    is_here: bool = attrs.field(default=False)
    """It is the router itself (``here``); no file says so."""

    is_mesh: bool = attrs.field(default=False)
    """It is a neighbor of the mesh (``neighbors``); no file says so."""

    is_hub: bool = attrs.field(default=False)
    """It is a hub of this router, which is an edge (``neighbors``); no file says so."""

    url: tuple[ContainerUrl, ...] = option(
        Urls(),
        default=(),
        default_text="required, unless the container dials in",
        help="amqp[s]://[user[:password]@]host[:port][/vhost], or ws[s]://...[/path] for AMQP over"
        " WebSocket; several, as a list or with commas, are tried in turn",
    )
    dials_in: bool = option(
        Flag(),
        default=False,
        help="the container dials the router, over AMQP 1.0: a connection with its identity or"
        " container_id is the container, and routes lead to it and come from it",
    )
    identity: str | None = option(
        Text(),
        default=None,
        default_text="any",
        help="authenticated identity of a container that dials in",
    )
    container_id: str | None = option(
        Text(),
        default=None,
        default_text="any",
        help="container-id of a container that dials in, which is what the peer says of itself:"
        " without identity anybody can say it",
    )
    several: Several = option(
        OneOf(Several),
        default=Several.REFUSE,
        help="further connections of a container that dials in: refuse them while it is connected,"
        " but for one of the same container-id, which takes over; balance: each has links of its"
        " own, among which routes distribute",
    )
    protocol: Protocol = option(
        OneOf(PROTOCOLS), default=Protocol.AMQP_1_0, help="protocol of the container"
    )
    vhost: str | None = option(
        Text(),
        default=None,
        default_text="the path of the URL",
        help="virtual host to open (1.0: open.hostname)",
    )
    resumes: bool = option(
        Flag(),
        default=False,
        help="the container resumes links and unsettled deliveries (§2.6.13), or keeps"
        " sessions (0-10);"
        " no known broker of AMQP 1.0 does",
    )
    is_router: bool = option(
        Flag(),
        default=False,
        help="this program runs there: it resumes links, and its trace and keys are believed",
    )
    deduplicates: str | None = option(
        Text(),
        default=None,
        help="property by which the container drops duplicates: message-id, or the name of an"
        " application property such as _AMQ_DUPL_ID",
    )
    tls: ContainerTls = option(
        Section(ContainerTls),
        factory=ContainerTls,
        default_text="as below",
        help="for amqps and wss URLs",
    )
    proxy: Proxy | None = option(
        ProxyUrl(),
        default=None,
        help="HTTP proxy that connects to the container (CONNECT):"
        " http://[user[:password]@]host:port",
    )
    sasl: ContainerSasl = option(
        Section(ContainerSasl),
        factory=ContainerSasl,
        default_text="user and password of the URL, else ANONYMOUS",
        help="how the router identifies itself",
    )
    cbs: ContainerCbs | None = option(
        Section(ContainerCbs),
        default=None,
        help="token for node $cbs (claims-based security), as Azure Service Bus wants it",
    )
    idle_seconds: float | None = option(
        Seconds(),
        default=None,
        default_text="that of limits",
        help="silence after which the connection is closed and dialed again; 0s: never",
    )
    max_frame_octets: int | None = option(
        Octets(512, 1 << 31),
        default=None,
        default_text="that of limits",
        help="largest frame that the container may send",
    )
    sessions: int | None = option(
        Whole(1, 256),
        default=None,
        default_text="one for sending, up to 8 for receiving",
        unit="sessions",
        help="most sessions of AMQP 1.0 that the router begins with the container; 1 where that"
        " knows no more, as IBM MQ",
    )
    link_credit: int | None = option(
        Whole(1, 1 << 20),
        default=None,
        default_text="that of limits",
        unit="deliveries",
        help="largest credit that the container is granted on a link",
    )
    connect_seconds: float = option(
        Seconds(0.1, 3600), default=10.0, help="time limit of one attempt to connect, TLS included"
    )
    retry_seconds: float = option(
        Seconds(0.01, 3600),
        default=0.5,
        help="pause before the first new attempt; doubles after each attempt, with jitter;"
        " attempts never stop",
    )
    retry_limit_seconds: float = option(
        Seconds(0.01, 86400), default=30.0, help="longest pause between attempts"
    )
    failover_seconds: float | None = option(
        OrWord(Seconds(), "forever"),
        default=60.0,
        help="how long deliveries and links of clients wait for it while it is away, or forever",
    )

    failover: Failover = option(
        OneOf(Failover),
        default=Failover.OBEY,
        help="places that the container names for itself: obey dials them when its connection is"
        " lost (failover-server-list) or redirected, with TLS if the URL has it; ignore does not",
    )
    failover_hosts: tuple[str, ...] = option(
        ListOf(HostPattern(), "host"),
        default=(),
        default_text="the hosts of url",
        help="hosts that may be dialed, and be sent credentials, because the container names them;"
        " *.domain is any below a domain, * any; those of url always may",
    )

    def as_peer(self, name: str) -> Peer:
        """Returns the properties of the container on which a route's guarantee depends."""
        return Peer(
            name=name,
            protocol=self.protocol,
            resumes=self.resumes,
            is_router=self.is_router,
            deduplicates=self.deduplicates,
        )
