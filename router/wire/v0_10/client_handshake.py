"""The handshake of a connection to a broker (0-10 class connection), on the dialing side.

Theory of operation. The steps are those of ``router.wire.v0_10.machine``. Limits are negotiated to
the lower of both sides'; an absent limit of the broker means none. A broker that closes the socket
during the login has refused it. A redirect ends the connection with the condition that names the
other host.
"""

from typing import Any, ClassVar, Final

from router.model import condition as conditions
from router.model.capabilities import Capabilities, Credit, Protocol
from router.model.condition import Condition
from router.model.events import ConnectionOpened, Event
from router.model.identity import ContainerId
from router.model.text import readable, words
from router.wire.alternatives import read_known_hosts, redirect
from router.wire.detect import describe_answer
from router.wire.engine import EngineSettings
from router.wire.machine import Steps
from router.wire.mechanisms import plain_user
from router.wire.sasl import SaslClient
from router.wire.v0_10 import records as r
from router.wire.v0_10.codec import Sender
from router.wire.v0_10.framing import MAX_FRAME_MAX, MIN_FRAME_MAX, PROTOCOL_HEADER
from router.wire.v0_10.machine import PRODUCT, Machine, Opening
from router.wire.v0_10.outgoing import Outgoing

GUEST: Final = ("PLAIN", b"\0guest\0guest")
"""The default login, as URLs of AMQP have it; brokers accept it on loopback only."""

ANONYMOUS: Final = ("ANONYMOUS", b"")


class ClientHandshake(Machine):
    """The handshake of a connection that we dialed.

    Attributes:
        outgoing: prepares deliveries.
    """

    peer = Sender.SERVER

    def __init__(self, settings: EngineSettings) -> None:
        super().__init__(settings)
        self.outgoing = Outgoing()
        self._sasl: SaslClient | None = None
        self._broker: dict[str, Any] = {}
        self.output.append(PROTOCOL_HEADER)

    @property
    def identity(self) -> tuple[str, str]:
        """What tells brokers apart: their name, and the federation tag of Qpid's."""
        return self._name, str(self._broker.get("qpid.federation_tag") or "")

    @property
    def _name(self) -> str:
        return str(self._broker.get("container") or self._broker.get("product") or "broker")

    def refuse_header(self, header: bytes) -> None:
        """Handles a header of another version: the broker does not speak this one."""
        self.over(Condition(conditions.NOT_IMPLEMENTED, describe_answer(bytes(header))), True)

    def take_header(self) -> None:
        """Handles the header of this version from the broker."""
        self.phase = Opening.START

    def receive_eof(self, now: float) -> list[Event]:
        """Records that the stream has ended."""
        if self.phase is Opening.NEGOTIATING:
            hung_up = Condition(
                conditions.UNAUTHORIZED_ACCESS, "closed the connection during the login"
            )
            self.over(hung_up, True)
        return super().receive_eof(now)

    def take_close(self, close: r.ConnectionClose) -> None:
        """Handles the broker's close; during the login it means that the login was refused."""
        if self.phase is Opening.NEGOTIATING:
            text = f"{close.reply_code} {close.reply_text or ''}".rstrip()
            self.send_control(0, r.ConnectionCloseOk())
            self.over(Condition(conditions.UNAUTHORIZED_ACCESS, text), True)
            return
        super().take_close(close)

    def _take_start(self, control: r.ConnectionStart) -> None:
        self._broker = control.server_properties or {}
        offered = [str(each) for each in control.mechanisms or ()]
        choice = self._choose(offered)
        if choice is None:
            text = f"no mechanism in common; the broker offers {' '.join(offered)}"
            self.over(Condition(conditions.UNAUTHORIZED_ACCESS, text), False)
            return
        mechanism, initial = choice
        self.outgoing.login = plain_user(mechanism, initial)
        self.phase = Opening.NEGOTIATING
        locales = control.locales or ()
        self.send_control(
            0,
            r.ConnectionStartOk(
                client_properties=self._properties(),
                mechanism=mechanism,
                response=initial or b"",
                locale=str(locales[0]) if locales else "en_US",
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

    def _properties(self) -> dict[str, Any]:
        properties: dict[str, Any] = {"product": PRODUCT, "container": self.settings.container}
        for name, value in self.settings.properties.items():
            if isinstance(value, str):
                properties[str(name)] = value
        return properties

    def _take_secure(self, control: r.ConnectionSecure) -> None:
        answer = b"" if self._sasl is None else self._sasl.step(control.challenge or b"")
        self.send_control(0, r.ConnectionSecureOk(answer))

    def _take_tune(self, control: r.ConnectionTune) -> None:
        if self._sasl is not None and not self._sasl.check(None):
            text = "the broker did not prove what the mechanism makes it prove"
            self.over(Condition(conditions.UNAUTHORIZED_ACCESS, text), False)
            return
        frame_max = min(control.max_frame_size or MAX_FRAME_MAX, self.frame_limit)
        self.frame_max = self.frame_limit = max(frame_max, MIN_FRAME_MAX)
        channels = control.channel_max or 0xFFFF
        self.channel_max = channels - 1  # N of them are numbered 0 to N-1
        heartbeat = self._heartbeat_within(control.heartbeat_min, control.heartbeat_max)
        self.send_control(0, r.ConnectionTuneOk(channels, self.frame_max, heartbeat))
        self.start_heartbeat(float(heartbeat))
        self.phase = Opening.OPEN_OK
        vhost = self.settings.hostname or ""
        self.send_control(
            0,
            r.ConnectionOpen(
                "" if vhost == "/" else vhost, insist=not self.settings.is_redirectable
            ),
        )

    def _heartbeat_within(self, least: int | None, most: int | None) -> int:
        """Returns the heartbeat in seconds, within the broker's limits; 0: none."""
        if least is None:
            return 0  # the broker sends none
        ours = min(int(self.settings.idle_seconds / 2), 0xFFFF)
        if most is None:
            return ours if least <= ours else least
        return max(min(ours, most), least) if ours else least

    def _take_open_ok(self, control: r.ConnectionOpenOk) -> None:
        self.opened()
        self.runs.add(
            ConnectionOpened(
                container=ContainerId(words(self._name)),
                hostname=self.settings.hostname,
                capabilities=Capabilities(
                    protocol=Protocol.AMQP_0_10, credit=Credit.PREFETCH, declares=True
                ),
                properties=readable(self._broker),
                alternatives=read_known_hosts(control.known_hosts) if control.known_hosts else None,
            )
        )

    def _take_redirect(self, control: r.ConnectionRedirect) -> None:
        self.over(redirect(control.host, control.known_hosts), True)

    steps: ClassVar[Steps] = {
        (Opening.START, r.ConnectionStart): _take_start,
        (Opening.NEGOTIATING, r.ConnectionSecure): _take_secure,
        (Opening.NEGOTIATING, r.ConnectionTune): _take_tune,
        (Opening.OPEN_OK, r.ConnectionOpenOk): _take_open_ok,
        (Opening.OPEN_OK, r.ConnectionRedirect): _take_redirect,
    }
