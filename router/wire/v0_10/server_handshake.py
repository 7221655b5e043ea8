"""The handshake of a client's connection (0-10 class connection), on the serving side.

Theory of operation. The steps are those of ``router.wire.v0_10.machine``; SASL is passed between
the client and ``settings.sasl_server``. Where anonymous clients are allowed PLAIN is offered, too,
and its user and password are ignored, because some clients support nothing else.

Where the specification has a server close "without attempting a negotiated close" nothing is sent:
a mechanism that was not offered, and values of tune-ok outside of those of tune.

0-10 has no container-id. A client is named by its identity: its suspended links are found again by
that, and by the names of its sessions, which are unique per identity.
"""

from typing import Any, ClassVar, Final

from router.model import condition as conditions
from router.model.capabilities import Capabilities, Credit, Protocol
from router.model.condition import Condition
from router.model.events import ConnectionOpened
from router.model.identity import ContainerId
from router.model.text import decode_text, readable
from router.wire.alternatives import write_known_hosts
from router.wire.engine import EngineSettings
from router.wire.machine import Steps
from router.wire.sasl import Challenge, Failure, Login, SaslVerdict, Success
from router.wire.v0_10 import records as r
from router.wire.v0_10.codec import Sender
from router.wire.v0_10.framing import MIN_FRAME_MAX, PROTOCOL_HEADER
from router.wire.v0_10.machine import PRODUCT, Machine, Opening
from router.wire.v0_10.outgoing import Outgoing
from router.wire.v0_10.reply import CloseCode, ConnectionFaultError

ANONYMOUS, PLAIN = "ANONYMOUS", "PLAIN"
LOCALE: Final = "en_US"


class ServerHandshake(Machine):
    """The handshake of a connection that a client dialed.

    Attributes:
        user: the client's authenticated name; None if it is anonymous.
        named: the user-id that its messages may have (message-properties.user-id): its
            authenticated name, or the one that it gave where no proof is required; empty: none.
        vhost: the virtual host that it requested.
        outgoing: prepares deliveries.
    """

    peer = Sender.CLIENT

    def __init__(self, settings: EngineSettings) -> None:
        super().__init__(settings)
        self.user: str | None = None
        self.named = ""
        self.vhost = ""
        self.outgoing = Outgoing()
        self._login = Login(None)
        self._client: dict[str, Any] = {}
        self._is_plain = False

    def refuse_header(self, header: bytes) -> None:
        """Answers with the header of the version that is spoken here."""
        self.output.append(PROTOCOL_HEADER)
        shown = header.hex(" ")
        self.over(Condition(conditions.NOT_IMPLEMENTED, f"protocol header {shown}"), False)

    def take_header(self) -> None:
        """Answers with the same header and ``connection.start``."""
        make = self.settings.sasl_server
        self._login = Login(None if make is None else make())
        self.phase = Opening.START_OK
        self.output.append(PROTOCOL_HEADER)
        self.send_control(
            0,
            r.ConnectionStart(
                server_properties=self._properties(),
                mechanisms=self._mechanisms(),
                locales=[LOCALE],
            ),
        )

    def _properties(self) -> dict[str, Any]:
        properties: dict[str, Any] = {"product": PRODUCT, "container": self.settings.container}
        for name, value in self.settings.properties.items():
            if isinstance(value, str):
                properties[str(name)] = value
        return properties

    def _mechanisms(self) -> list[str]:
        offered = list(self._login.mechanisms)
        if not self.settings.sasl_required:
            offered += [each for each in (ANONYMOUS, PLAIN) if each not in offered]
        return offered

    def _take_start_ok(self, control: r.ConnectionStartOk) -> None:
        mechanism = control.mechanism or ""
        self._client = control.client_properties or {}
        if mechanism not in self._mechanisms():
            text = f"mechanism {mechanism!r} is not offered"
            self.over(Condition(conditions.UNAUTHORIZED_ACCESS, text), False)
            return
        self._is_plain = mechanism == PLAIN
        self._take_name(control.response)
        self._go_on(self._login.start(mechanism, control.response))

    def _take_secure_ok(self, control: r.ConnectionSecureOk) -> None:
        self._take_name(control.response)
        self._go_on(self._login.step(control.response or b""))

    def _take_name(self, response: bytes | None) -> None:
        """Records the name that a client gives with PLAIN, even where no proof is required."""
        if self._is_plain and response is not None and response.count(b"\0") == 2:
            self.named = decode_text(response.split(b"\0")[1])

    def _go_on(self, step: SaslVerdict) -> None:
        match step:
            case Challenge(octets=octets):
                self.phase = Opening.SECURE_OK
                self.send_control(0, r.ConnectionSecure(octets))
            case Success(user=user):
                self._log_in(user)
            case Failure(reason=reason):
                self._refuse_login(reason)

    def _log_in(self, user: str | None) -> None:
        self.user = user
        if user is not None:
            self.named = user
        self.phase = Opening.TUNE_OK
        self.send_control(
            0,
            r.ConnectionTune(
                channel_max=self._channels,
                max_frame_size=self.frame_limit,
                heartbeat_min=0,
                heartbeat_max=self._longest_heartbeat,
            ),
        )

    @property
    def _channels(self) -> int:
        """Number of channels offered; N channels are numbered 0 to N-1."""
        return min(self.channel_max + 1, 0xFFFF)

    @property
    def _longest_heartbeat(self) -> int:
        """The longest heartbeat offered, in seconds."""
        return min(int(self.settings.idle_seconds / 2), 0xFFFF)

    def _refuse_login(self, reason: str) -> None:
        self.start_close(CloseCode.CONNECTION_FORCED, "the login was refused")
        self.report_end(Condition(conditions.UNAUTHORIZED_ACCESS, reason), False)

    def _take_tune_ok(self, control: r.ConnectionTuneOk) -> None:
        channels = self._channels if control.channel_max is None else control.channel_max
        size = control.max_frame_size or self.frame_limit
        heartbeat = control.heartbeat or 0
        for name, value, least, most in (
            ("channel-max", channels, 0, self._channels),
            ("max-frame-size", size, MIN_FRAME_MAX, self.frame_limit),
            ("heartbeat", heartbeat, 0, self._longest_heartbeat),
        ):
            if not least <= value <= most:
                text = f"tune-ok: {name} {value}; {least} to {most} were offered"
                self.over(Condition(conditions.FRAMING_ERROR, text), False)
                return
        self.channel_max = channels - 1
        self.frame_max = self.frame_limit = size
        self.start_heartbeat(float(heartbeat))
        self.phase = Opening.OPEN

    def _take_open(self, control: r.ConnectionOpen) -> None:
        self.vhost = control.virtual_host or ""
        if self.settings.terms is not None:
            terms = self.settings.terms(self.user, self.vhost)
            if not terms.knows_vhost:
                raise ConnectionFaultError(
                    CloseCode.INVALID_PATH, f"no route names a virtual host {self.vhost!r}"
                )
            self.channel_max = min(self.channel_max, max(terms.sessions - 1, 0))
        self.opened()
        known_hosts = write_known_hosts(self.settings.alternatives, is_url=True)
        self.send_control(0, r.ConnectionOpenOk(known_hosts or None))
        self.runs.add(
            ConnectionOpened(
                container=ContainerId(self._name()),
                hostname=self.vhost,
                user=self.user,
                capabilities=Capabilities(
                    protocol=Protocol.AMQP_0_10, credit=Credit.LINK, sends_ahead=True
                ),
                properties=readable(self._client),
            )
        )

    def _name(self) -> str:
        return f"0-10:{self.user or 'anonymous'}"

    steps: ClassVar[Steps] = {
        (Opening.START_OK, r.ConnectionStartOk): _take_start_ok,
        (Opening.SECURE_OK, r.ConnectionSecureOk): _take_secure_ok,
        (Opening.TUNE_OK, r.ConnectionTuneOk): _take_tune_ok,
        (Opening.OPEN, r.ConnectionOpen): _take_open,
    }
