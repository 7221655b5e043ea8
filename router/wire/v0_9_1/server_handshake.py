"""The handshake of a client's connection (0-9-1 §2.2.4, §4.2.2), on the serving side.

Theory of operation. The steps are those of ``router.wire.v0_9_1.machine``; SASL is passed between
the client and ``settings.sasl_server``. Two mechanisms are added for existing clients: AMQPLAIN,
which is PLAIN in a field table, is offered with PLAIN; and where anonymous clients are allowed
PLAIN is offered, too, and its user and password are ignored, because most clients support nothing
else.
"""

import platform
from collections.abc import Mapping
from typing import Any, ClassVar, Final

from router.errors import DecodeError
from router.model import condition as conditions
from router.model.capabilities import Capabilities, Credit
from router.model.condition import Condition
from router.model.events import ConnectionOpened
from router.model.identity import ContainerId
from router.model.text import encode_text, readable, words
from router.wire.alternatives import write_known_hosts
from router.wire.engine import EngineSettings
from router.wire.machine import MachinePhase, Steps
from router.wire.sasl import Challenge, Failure, Login, SaslVerdict, Success
from router.wire.v0_9_1 import methods as m
from router.wire.v0_9_1.codec import CODEC_0_8, Sender
from router.wire.v0_9_1.framing import (
    MIN_FRAME_MAX,
    PROTOCOL_HEADER,
    PROTOCOL_HEADER_0_8,
    PROTOCOL_HEADER_0_8_AS_PRINTED,
    PROTOCOL_HEADER_0_9,
)
from router.wire.v0_9_1.machine import PRODUCT, Machine, Opening
from router.wire.v0_9_1.outgoing import Outgoing
from router.wire.v0_9_1.reply import PeerError, Reply
from router.wire.v0_9_1.types import decode_table

ANONYMOUS, PLAIN, AMQPLAIN = "ANONYMOUS", "PLAIN", "AMQPLAIN"

CAPABILITIES: Final = {
    "publisher_confirms": True,
    "exchange_exchange_bindings": True,
    "basic.nack": True,
    "consumer_priorities": True,
    "consumer_cancel_notify": True,
    "connection.blocked": True,
    "per_consumer_qos": True,
    "direct_reply_to": True,
    "authentication_failure_close": True,
}
"""RabbitMQ's names for the extensions that are supported here."""

NAME_MOST: Final = 255
"""Most characters of a client's connection name."""

KNOWN_HOSTS_MOST: Final = 255
"""Most characters of ``known-hosts``, a short string."""

VERSIONS: Final = {
    PROTOCOL_HEADER: (0, 9),
    PROTOCOL_HEADER_0_9: (0, 9),
    PROTOCOL_HEADER_0_8: (8, 0),
    PROTOCOL_HEADER_0_8_AS_PRINTED: (8, 0),
}
"""Protocol header → version in ``connection.start``."""


class ServerHandshake(Machine):
    """The handshake of a connection that a client dialed.

    Attributes:
        user: the client's authenticated name; None if it is anonymous.
        outgoing: prepares deliveries.
    """

    peer = Sender.CLIENT

    header: ClassVar[bytes] = PROTOCOL_HEADER
    """The answer to an unsupported header."""

    versions: ClassVar[Mapping[bytes, tuple[int, int]]] = VERSIONS

    names_known_hosts: ClassVar[bool] = False
    """Whether open-ok has ``known-hosts``: not in 0-9-1, where the field is reserved."""

    def __init__(self, settings: EngineSettings) -> None:
        super().__init__(settings)
        self.user: str | None = None
        self.outgoing: Outgoing = Outgoing(self.protocol)
        self._login = Login(None)
        self._client: dict[str, Any] = {}

    def read_header(self, octets: bytes) -> int:
        """Handles the protocol header and answers with ``connection.start``."""
        header = octets[: len(PROTOCOL_HEADER)]
        if len(header) < len(PROTOCOL_HEADER) and PROTOCOL_HEADER.startswith(header[:4]):
            return 0
        version = self.versions.get(header)
        if version is None:
            self.output.append(self.header)
            shown = header.hex(" ")
            self.over(Condition(conditions.NOT_IMPLEMENTED, f"protocol header {shown}"), False)
            return 0
        if version == (8, 0):
            self.codec = CODEC_0_8
        make = self.settings.sasl_server
        self._login = Login(None if make is None else make())
        self.phase = Opening.START_OK
        self.send_method(
            0,
            m.ConnectionStart(
                version_major=version[0],
                version_minor=version[1],
                server_properties=self._server_properties(),
                mechanisms=" ".join(self._mechanisms()).encode(),
            ),
        )
        return len(header)

    def _known_hosts(self) -> str:
        """Returns other places of our container, where open-ok has a field for them."""
        if not self.names_known_hosts and self.codec is not CODEC_0_8:
            return ""
        hosts = write_known_hosts(self.settings.alternatives, is_url=False)
        while len(",".join(hosts)) > KNOWN_HOSTS_MOST:
            hosts.pop()
        return ",".join(hosts)

    def _server_properties(self) -> dict[str, Any]:
        properties: dict[str, Any] = {"product": PRODUCT, "cluster_name": self.settings.container}
        for name, value in self.settings.properties.items():
            if isinstance(value, str):
                properties[str(name)] = value
        if self.codec.has_booleans:
            properties["platform"] = platform.system()
            properties["information"] = "A message router: it stores nothing."
            properties["capabilities"] = dict(CAPABILITIES)
        return properties

    def _mechanisms(self) -> list[str]:
        is_free = self.settings.sasl_server is None
        offered = [ANONYMOUS] if is_free else list(self._login.mechanisms)
        if ANONYMOUS in offered and PLAIN not in offered and self.settings.passwords_allowed:
            offered.append(PLAIN)  # most clients support nothing else
        if PLAIN in offered:
            offered.append(AMQPLAIN)
        return offered

    def _take_start_ok(self, method: m.ConnectionStartOk) -> None:
        self._client = method.client_properties
        mechanism, response = method.mechanism, method.response
        if mechanism not in self._mechanisms():
            self._refuse_login(f"mechanism {mechanism!r} is not offered")
            return
        if mechanism == AMQPLAIN:
            mechanism, response = PLAIN, _plain_of(response)
        self._go_on(self._login.start(mechanism, response))

    def _take_secure_ok(self, method: m.ConnectionSecureOk) -> None:
        self._go_on(self._login.step(method.response))

    def _go_on(self, step: SaslVerdict) -> None:
        match step:
            case Challenge(octets=octets):
                self.phase = Opening.SECURE_OK
                self.send_method(0, m.ConnectionSecure(octets))
            case Success(user=user):
                self._log_in(user)
            case Failure(reason=reason):
                self._refuse_login(reason)

    def _log_in(self, user: str | None) -> None:
        self.user = user
        self.phase = Opening.TUNE_OK
        self.send_method(
            0,
            m.ConnectionTune(
                self.channel_max,
                self.frame_limit,
                min(int(self.settings.idle_seconds / 2), 0xFFFF),
            ),
        )

    def _refuse_login(self, reason: str) -> None:
        refused = Condition(conditions.UNAUTHORIZED_ACCESS, reason)
        if self.client_can("authentication_failure_close"):
            self.start_close(Reply.ACCESS_REFUSED, "ACCESS_REFUSED - login was refused", 0, 0)
            self.report_end(refused, False)
        else:
            self.over(refused, False)

    def _take_tune_ok(self, method: m.ConnectionTuneOk) -> None:
        most = self.frame_limit
        if not MIN_FRAME_MAX <= method.frame_max <= most:
            self._refuse_limit(
                f"frame-max {method.frame_max}; {MIN_FRAME_MAX} to {most} are accepted"
            )
            return
        self.frame_max = self.outgoing.frame_max = self.frame_limit = method.frame_max
        if not 0 < method.channel_max <= self.channel_max:
            self._refuse_limit(f"channel-max {method.channel_max}; 1 to {self.channel_max}")
            return
        self.channel_max = method.channel_max
        self.start_heartbeat(float(method.heartbeat))
        self.phase = Opening.OPEN

    def _refuse_limit(self, text: str) -> None:
        """Closes the connection of a client that exceeds the offered limits (§1.4.2.6).

        The close is only a report: its answer is not awaited.
        """
        self.fail(PeerError(Reply.NOT_ALLOWED, text))
        self.over(None, False)

    def _take_open(self, method: m.ConnectionOpen) -> None:
        if self.settings.terms is not None:
            terms = self.settings.terms(self.user, method.virtual_host)
            if not terms.knows_vhost:
                raise PeerError(
                    Reply.INVALID_PATH, f"no route names a virtual host {method.virtual_host!r}"
                )
            self.channel_max = min(self.channel_max, terms.channels)
        self.opened()
        self.send_method(0, m.ConnectionOpenOk(self._known_hosts()))
        name = self._client.get("connection_name") or self._client.get("product") or "client"
        name = words(str(name))[:NAME_MOST]
        self.runs.add(
            ConnectionOpened(
                container=ContainerId(self.made_up_name(name)),
                hostname=method.virtual_host,
                user=self.user,
                capabilities=Capabilities(
                    protocol=self.protocol,
                    learns_outcomes=False,
                    credit=Credit.PREFETCH,
                    sends_ahead=True,
                    names_itself=False,
                    has_links=False,
                ),
                properties=readable(self._client),
            )
        )

    def _take_secret(self, method: m.ConnectionUpdateSecret) -> None:
        """Checks a new secret; the login itself does not expire here."""
        sasl = None if self.settings.sasl_server is None else self.settings.sasl_server()
        if self.user is not None and sasl is not None:
            if PLAIN not in sasl.mechanisms:
                raise PeerError(
                    Reply.NOT_IMPLEMENTED, "update-secret: logins here prove no secret", 10, 70
                )
            step = sasl.start(PLAIN, b"\0" + self.user.encode() + b"\0" + method.new_secret)
            if step != Success(self.user):
                raise PeerError(Reply.NOT_ALLOWED, "update-secret: it was refused", 10, 70)
        self.send_method(0, m.ConnectionUpdateSecretOk())

    def client_can(self, capability: str) -> bool:
        """Returns whether the client has announced an extension of RabbitMQ's."""
        capabilities = self._client.get("capabilities")
        return isinstance(capabilities, dict) and capabilities.get(capability) is True

    steps: ClassVar[Steps] = {
        (Opening.START_OK, m.ConnectionStartOk): _take_start_ok,
        (Opening.SECURE_OK, m.ConnectionSecureOk): _take_secure_ok,
        (Opening.TUNE_OK, m.ConnectionTuneOk): _take_tune_ok,
        (Opening.OPEN, m.ConnectionOpen): _take_open,
        (MachinePhase.OPENED, m.ConnectionUpdateSecret): _take_secret,
    }


def _plain_of(response: bytes) -> bytes:
    """Converts AMQPLAIN, a field table without its size, to PLAIN (RFC 4616)."""
    octets = len(response).to_bytes(4, "big") + response
    try:
        table, _ = decode_table(octets, 0, len(octets))
    except DecodeError as error:
        raise PeerError(Reply.SYNTAX_ERROR, f"AMQPLAIN: {error.rule}", 10, 11) from error
    user, password = (encode_text(str(table.get(name, ""))) for name in ("LOGIN", "PASSWORD"))
    return b"\0" + user + b"\0" + password
