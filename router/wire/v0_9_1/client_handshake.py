"""The handshake of a connection to a broker (0-9-1 §2.2.4), on the dialing side.

Theory of operation. The steps are those of ``router.wire.v0_9_1.machine``. Limits are negotiated to
the lower of both sides'; 0 from the broker means no limit. A broker that closes the socket during
the login has refused it: brokers that do not announce ``authentication_failure_close`` have no
other way to say so.
"""

from typing import Any, ClassVar, Final

from router.model import condition as conditions
from router.model.capabilities import Capabilities, Credit
from router.model.condition import Condition
from router.model.events import ConnectionOpened, Event
from router.model.identity import ContainerId
from router.model.text import readable, words
from router.wire.alternatives import redirect
from router.wire.detect import describe_answer
from router.wire.engine import EngineSettings
from router.wire.machine import Steps
from router.wire.mechanisms import plain_user
from router.wire.sasl import SaslClient
from router.wire.v0_9_1 import methods as m
from router.wire.v0_9_1.codec import Sender
from router.wire.v0_9_1.framing import METHOD, MIN_FRAME_MAX, PROTOCOL_HEADER
from router.wire.v0_9_1.machine import PRODUCT, Machine, Opening
from router.wire.v0_9_1.outgoing import Outgoing

GUEST: Final = ("PLAIN", b"\0guest\0guest")
"""The default login, as URLs of AMQP have it; brokers accept it on loopback only."""

ANONYMOUS: Final = ("ANONYMOUS", b"")

CAPABILITIES: Final = {
    "publisher_confirms": True,
    "basic.nack": True,
    "consumer_cancel_notify": True,
    "connection.blocked": True,
    "authentication_failure_close": True,
}
"""RabbitMQ's names for the extensions that are supported here."""

_METHOD_FRAME: Final = bytes((METHOD,))
"""The first octet of a broker that accepts our header: the type of a method frame."""


class ClientHandshake(Machine):
    """The handshake of a connection that we dialed.

    Attributes:
        outgoing: prepares deliveries.
        holds_queues: the peer's queues are queues; a router's are addresses.
    """

    peer = Sender.SERVER

    header: ClassVar[bytes] = PROTOCOL_HEADER
    version: ClassVar[tuple[int, int]] = (0, 9)
    """The version that ``connection.start`` must have."""

    def __init__(self, settings: EngineSettings) -> None:
        super().__init__(settings)
        self.outgoing: Outgoing = Outgoing(self.protocol)
        self._sasl: SaslClient | None = None
        self._broker: dict[str, Any] = {}
        self.holds_queues = True
        self.output.append(self.header)

    def read_header(self, octets: bytes) -> int:
        """Checks whether the broker refuses the version by its own header (0-9-1 §4.2.2)."""
        first = octets[:1]
        if first == _METHOD_FRAME:
            self.phase = Opening.START
        elif first not in PROTOCOL_HEADER[:1] or len(octets) >= len(PROTOCOL_HEADER):
            said = describe_answer(bytes(octets[:8]))
            if octets.startswith(self.header):  # the answer of a port that expects TLS
                said = "it seems that the peer wants TLS (it answered with our own header)"
            self.over(Condition(conditions.NOT_IMPLEMENTED, said), True)
        return 0

    def receive_eof(self, now: float) -> list[Event]:
        """Records that the stream has ended."""
        if self.phase is Opening.NEGOTIATING:
            hung_up = Condition(
                conditions.UNAUTHORIZED_ACCESS, "closed the connection during the login"
            )
            self.over(hung_up, True)
        return super().receive_eof(now)

    def _take_start(self, method: m.ConnectionStart) -> None:
        if (method.version_major, method.version_minor) != self.version:
            version = f"{method.version_major}-{method.version_minor}"
            self.over(Condition(conditions.NOT_IMPLEMENTED, f"the broker speaks {version}"), False)
            return
        self._broker = method.server_properties
        self.holds_queues = self._broker.get("product") != PRODUCT
        offered = method.mechanisms.decode("ascii", "replace").split()
        choice = self._choose(offered)
        if choice is None:
            text = f"no mechanism in common; the broker offers {' '.join(offered)}"
            self.over(Condition(conditions.UNAUTHORIZED_ACCESS, text), False)
            return
        mechanism, initial = choice
        self.outgoing.login = plain_user(mechanism, initial)
        self.phase = Opening.NEGOTIATING
        self.send_method(
            0,
            m.ConnectionStartOk(
                client_properties=self._client_properties(),
                mechanism=mechanism,
                response=initial or b"",
            ),
        )

    def _choose(self, offered: list[str]) -> tuple[str, bytes | None] | None:
        make = self.settings.sasl_client
        if make is not None:
            self._sasl = make()
            return self._sasl.choose(offered)
        for choice in (ANONYMOUS, GUEST):
            if choice[0] in offered:
                return choice
        return None

    def _client_properties(self) -> dict[str, Any]:
        properties: dict[str, Any] = {
            "product": PRODUCT,
            "connection_name": self.settings.container,
        }
        if self.codec.has_booleans:
            properties["capabilities"] = dict(CAPABILITIES)
        for name, value in self.settings.properties.items():
            if isinstance(value, str):
                properties[str(name)] = value
        return properties

    def _take_secure(self, method: m.ConnectionSecure) -> None:
        answer = b"" if self._sasl is None else self._sasl.step(method.challenge)
        self.send_method(0, m.ConnectionSecureOk(answer))

    def _take_tune(self, method: m.ConnectionTune) -> None:
        if self._sasl is not None and not self._sasl.check(None):
            text = "the broker did not prove what the mechanism makes it prove"
            self.over(Condition(conditions.UNAUTHORIZED_ACCESS, text), False)
            return
        self.frame_max = _lower(method.frame_max, self.frame_limit)
        self.outgoing.frame_max = self.frame_limit = max(self.frame_max, MIN_FRAME_MAX)
        self.channel_max = method.channel_max or 0xFFFF
        ours = int(self.settings.idle_seconds / 2)
        heartbeat = _lower(method.heartbeat, ours) if ours else 0
        self.send_method(0, m.ConnectionTuneOk(self.channel_max, self.frame_max, heartbeat))
        self.start_heartbeat(float(heartbeat))
        self.phase = Opening.OPEN_OK
        self.send_method(0, m.ConnectionOpen(virtual_host=self.settings.hostname or "/"))

    def _take_open_ok(self, method: m.ConnectionOpenOk) -> None:
        self.opened()
        name = self._broker.get("cluster_name") or self._broker.get("product") or "broker"
        self.runs.add(
            ConnectionOpened(
                container=ContainerId(words(str(name))),
                hostname=self.settings.hostname,
                capabilities=Capabilities(
                    protocol=self.protocol,
                    credit=Credit.PREFETCH,
                    declares=True,
                    subscribes=True,
                ),
                properties=readable(self._broker),
                alternatives=self.alternatives_of(method),
            )
        )

    def alternatives_of(self, method: m.ConnectionOpenOk) -> object:
        """Returns the other places that open-ok names: none, the field is reserved in 0-9-1."""
        return None

    def _take_redirect(self, method: m.ConnectionRedirect) -> None:
        self.over(redirect(method.host, method.known_hosts), True)

    steps: ClassVar[Steps] = {
        (Opening.START, m.ConnectionStart): _take_start,
        (Opening.NEGOTIATING, m.ConnectionSecure): _take_secure,
        (Opening.NEGOTIATING, m.ConnectionTune): _take_tune,
        (Opening.OPEN_OK, m.ConnectionOpenOk): _take_open_ok,
        (Opening.OPEN_OK, m.ConnectionRedirect): _take_redirect,
    }


def _lower(theirs: int, ours: int) -> int:
    """Returns the lower of two limits; theirs may be 0 for none."""
    return min(theirs, ours) if theirs else ours
