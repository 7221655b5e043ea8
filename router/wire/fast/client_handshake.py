"""The handshake of a connection to a server (RFC 006 §3.2), on the dialing side.

The steps are those of ``router.wire.fast.machine``. Limits are negotiated to the lower of both
sides'; 0 from the server means no limit. CONNECTION TUNE and OPEN are sent together, OPEN with a
confirm-tag, so that its end is known. A server that closes the socket during the login has refused
it (§3.2.4).
"""

from typing import ClassVar, Final

from router.model import condition as conditions
from router.model.capabilities import Capabilities, Credit, Protocol
from router.model.condition import Condition
from router.model.events import ConnectionOpened, Event
from router.model.identity import ContainerId
from router.wire.engine import EngineSettings
from router.wire.fast import commands as c
from router.wire.fast.area import Area, Owner
from router.wire.fast.commands import Sender
from router.wire.fast.framing import MIN_FRAME_MAX, START, VERSION
from router.wire.fast.login import ANONYMOUS, NONE, PLAIN, challenge_of, table_of_response
from router.wire.fast.machine import Machine, Opening
from router.wire.fast.outgoing import Outgoing
from router.wire.fast.reply import Level, PeerError, Reply, condition_of
from router.wire.fast.types import fits_short
from router.wire.machine import Steps
from router.wire.sasl import SaslClient

MAX_SHORT: Final = 0xFFFF

OPEN_TAG: Final = 1
"""The confirm-tag of CONNECTION OPEN."""

GUEST: Final = b"\0guest\0guest"
"""The default login, as URLs of AMQP have it."""


class ClientHandshake(Machine):
    """The handshake of a connection that we dialed.

    Attributes:
        outgoing: prepares deliveries.
        owner: the owner of incomplete received messages.
        channel_max: most channels, each with one handle.
    """

    peer = Sender.SERVER

    def __init__(self, settings: EngineSettings, area: Area) -> None:
        super().__init__(settings, Opening.CHALLENGE)
        self.area = area
        self.outgoing = Outgoing()
        self.owner = Owner(None, f"server of {settings.container}", settings.hostname or "")
        self.channel_max = 0
        self._sasl: SaslClient | None = None
        self._mechanism: str | None = None
        self.output.append(START)

    def receive_eof(self, now: float) -> list[Event]:
        """Records that the stream has ended."""
        if self.phase is Opening.NEGOTIATING:
            hung_up = Condition(
                conditions.UNAUTHORIZED_ACCESS, "closed the connection during the login"
            )
            self.over(hung_up, True)
        return super().receive_eof(now)

    def _take_challenge(self, command: c.ConnectionChallenge) -> None:
        if command.version != VERSION:
            text = f"the server speaks version {command.version}"
            self.over(Condition(conditions.NOT_IMPLEMENTED, text), False)
            return
        if self._mechanism is not None:
            self._answer(challenge_of(command.challenges) or b"")
            return
        offered = command.mechanisms.split()
        choice = self._choose(offered)
        if choice is None:
            text = f"no mechanism in common; the server offers {' '.join(offered)}"
            self.send(c.ConnectionClose(Reply.ACCESS_REFUSED, "no mechanism in common"))
            self.over(Condition(conditions.UNAUTHORIZED_ACCESS, text), False)
            return
        self._mechanism, initial = choice
        self.phase = Opening.NEGOTIATING
        table = table_of_response(self._mechanism, initial)
        self.send(c.ConnectionResponse(self._mechanism, table))

    def _choose(self, offered: list[str]) -> tuple[str, bytes | None] | None:
        if self.settings.sasl_client is None:
            for mechanism in (ANONYMOUS, NONE):
                if mechanism in offered:
                    return mechanism, b""
            return (PLAIN, GUEST) if PLAIN in offered else None
        self._sasl = self.settings.sasl_client()
        choice = self._sasl.choose(offered)
        if choice is None and NONE in offered:
            choice = self._sasl.choose([ANONYMOUS])
            return None if choice is None else (NONE, b"")
        return choice

    def _answer(self, challenge: bytes) -> None:
        assert self._mechanism is not None
        octets = b"" if self._sasl is None else self._sasl.step(challenge)
        table = table_of_response(self._mechanism, octets)
        self.send(c.ConnectionResponse(self._mechanism, table))

    def _take_tune(self, command: c.ConnectionTune) -> None:
        if self._sasl is not None and not self._sasl.check(None):
            text = "the server did not prove that it knows the secret"
            self.send(c.ConnectionClose(Reply.ACCESS_REFUSED, text))
            self.over(Condition(conditions.UNAUTHORIZED_ACCESS, text), False)
            return
        if command.frame_max < MIN_FRAME_MAX:
            text = f"frame-max {command.frame_max}; at least {MIN_FRAME_MAX} (§3.2.5)"
            raise PeerError(Reply.SYNTAX_ERROR, text, Level.CONNECTION)
        frame_max = min(command.frame_max, self.frame_offer)
        most = min(self.settings.channel_max + 1, MAX_SHORT)
        channels = min(command.channel_max or most, most)
        handles = min(command.handle_max or most, most)
        self.channel_max = min(channels, handles)
        self.frame_max = self.frame_limit = self.outgoing.limit = frame_max
        beat = min(int(self.settings.idle_seconds / 2), MAX_SHORT)
        self.send(c.ConnectionTune(frame_max, channels, handles, beat))
        self.send(
            c.ConnectionOpen(
                OPEN_TAG,
                self._named(self.settings.hostname),
                self._named(self.settings.container),
            )
        )
        self.start_beating(float(command.heartbeat))
        self.phase = Opening.REPLY

    @staticmethod
    def _named(text: str | None) -> str:
        return text if text is not None and fits_short(text) else ""

    def _take_reply(self, command: c.ConnectionReply) -> None:
        if command.reply_code != Reply.OK:
            self.over(condition_of(command.reply_code, command.reply_text, Level.CONNECTION), True)
            return
        self.opened()
        self.runs.add(
            ConnectionOpened(
                container=ContainerId(self.made_up_name("server")),
                hostname=self.settings.hostname,
                capabilities=Capabilities(
                    protocol=Protocol.AMQP_FAST,
                    learns_outcomes=False,
                    credit=Credit.PREFETCH,
                ),
            )
        )

    steps: ClassVar[Steps] = {
        (Opening.CHALLENGE, c.ConnectionChallenge): _take_challenge,
        (Opening.NEGOTIATING, c.ConnectionChallenge): _take_challenge,
        (Opening.NEGOTIATING, c.ConnectionTune): _take_tune,
        (Opening.REPLY, c.ConnectionReply): _take_reply,
    }
