"""The handshake of a client's connection (RFC 006 §3.2), on the serving side.

The steps are those of ``router.wire.fast.machine``; SASL is passed between the client and
``settings.sasl_server`` (``login``). A client of a higher version is answered with ours, which it
may accept or not; version 0 is invalid (§3.2.2).

A client-name is active on one connection at a time (§3.2.6): a second one is refused (320). That is
checked within this process, not between workers. A connection that its client has ended, though
what came on it before waits to be read, is not active.
"""

from typing import ClassVar, Final

from router.model import condition as conditions
from router.model.capabilities import Capabilities, Credit, Protocol
from router.model.condition import Condition
from router.model.events import ConnectionOpened
from router.model.identity import ContainerId
from router.wire.engine import EngineSettings
from router.wire.fast import commands as c
from router.wire.fast.area import Area, Owner
from router.wire.fast.commands import Sender
from router.wire.fast.framing import MIN_FRAME_MAX, PROTOCOL_ID, START, VERSION
from router.wire.fast.login import ANONYMOUS, NONE, response_of, table_of_challenge
from router.wire.fast.machine import Machine, Opening
from router.wire.fast.reply import Level, PeerError, Reply
from router.wire.machine import Steps
from router.wire.sasl import Challenge, Failure, Login, SaslVerdict, Success

MAX_SHORT: Final = 0xFFFF


class ServerHandshake(Machine):
    """The handshake of a connection that a client dialed.

    Attributes:
        user: the client's authenticated name; None if it is anonymous.
        owner: the owner of incomplete received messages; None: they are not kept.
        channel_max, handle_max: most channels and handles of the client.
        area: keeps incomplete messages.
    """

    peer = Sender.CLIENT

    def __init__(self, settings: EngineSettings, area: Area) -> None:
        super().__init__(settings, Opening.START)
        self.area = area
        self.user: str | None = None
        self.owner: Owner | None = None
        self.channel_max = min(settings.channel_max + 1, MAX_SHORT)
        self.handle_max = min(settings.handle_max + 1, MAX_SHORT)
        self._login = Login(None)
        self._mechanism = ""

    def read_start(self, octets: bytes) -> int:
        """Handles 128 and a version, and answers with a challenge (§3.2.2)."""
        if (octets[:1] and octets[0] != PROTOCOL_ID) or octets[1:2] == b"\0":
            shown = octets[: len(START)].hex(" ")
            self.over(Condition(conditions.NOT_IMPLEMENTED, f"the first octets are {shown}"), False)
            return 1
        if len(octets) < len(START):
            return 0
        make = self.settings.sasl_server
        self._login = Login(None if make is None else make())
        self.phase = Opening.RESPONSE
        self.send(c.ConnectionChallenge(VERSION, " ".join(self._offered())))
        return len(START)

    def _offered(self) -> list[str]:
        is_free = self.settings.sasl_server is None
        offered = [ANONYMOUS] if is_free else list(self._login.mechanisms)
        if ANONYMOUS in offered:
            offered.append(NONE)
        return offered

    def _take_response(self, command: c.ConnectionResponse) -> None:
        mechanism = command.mechanism
        if self._mechanism:
            self._go_on(self._login.step(response_of(self._mechanism, command.responses) or b""))
            return
        if mechanism not in self._offered():
            self._refuse_login(f"mechanism {mechanism!r} is not offered")
            return
        if mechanism == NONE:
            mechanism = ANONYMOUS
        self._mechanism = mechanism
        initial = b"" if mechanism == ANONYMOUS else response_of(mechanism, command.responses)
        self._go_on(self._login.start(mechanism, initial))

    def _go_on(self, step: SaslVerdict) -> None:
        match step:
            case Challenge(octets=octets):
                table = table_of_challenge(octets)
                self.send(c.ConnectionChallenge(VERSION, self._mechanism, table))
            case Success(user=user):
                self._log_in(user)
            case Failure(reason=reason):
                self._refuse_login(reason)

    def _log_in(self, user: str | None) -> None:
        self.user = user
        self.phase = Opening.TUNE
        self.send(
            c.ConnectionTune(
                self.frame_offer,
                self.channel_max,
                self.handle_max,
                min(int(self.settings.idle_seconds / 2), MAX_SHORT),
            )
        )

    def _refuse_login(self, reason: str) -> None:
        self.send(c.ConnectionClose(Reply.ACCESS_REFUSED, "login was refused"))
        self.over(Condition(conditions.UNAUTHORIZED_ACCESS, reason), False)

    def _take_tune(self, command: c.ConnectionTune) -> None:
        if not MIN_FRAME_MAX <= command.frame_max <= self.frame_offer:
            text = (
                f"frame-max {command.frame_max}; {MIN_FRAME_MAX} to {self.frame_offer} are accepted"
            )
            raise PeerError(Reply.SYNTAX_ERROR, text, Level.CONNECTION)
        self.frame_max = self.frame_limit = command.frame_max
        self.channel_max = _agreed("channel-max", command.channel_max, self.channel_max)
        self.handle_max = _agreed("handle-max", command.handle_max, self.handle_max)
        self.start_beating(float(command.heartbeat))
        self.phase = Opening.OPEN

    def _take_open(self, command: c.ConnectionOpen) -> None:
        path = command.virtual_path
        vhost = path[1:] if len(path) > 1 and path.startswith("/") else path
        name = command.client_name
        terms = None if self.settings.terms is None else self.settings.terms(self.user, vhost)
        if terms is not None and not terms.knows_vhost:
            text = f"no route names a virtual host {vhost!r}"
            raise PeerError(Reply.PATH_NOT_VALID, text, Level.CONNECTION)
        if name:
            owner = Owner(self.user, name, vhost)
            if not self.area.enter(owner, self):
                text = f"client {name!r} is active on another connection"
                raise PeerError(Reply.CLIENT_ACTIVE, text, Level.CONNECTION)
            self.owner = owner
        if terms is not None:
            self.channel_max = min(self.channel_max, terms.sessions)
        self.opened()
        if command.confirm_tag:
            self.send(c.ConnectionReply(command.confirm_tag, Reply.OK))
        self.runs.add(
            ConnectionOpened(
                container=ContainerId(name or self.made_up_name("client")),
                hostname=vhost or None,
                user=self.user,
                capabilities=Capabilities(
                    protocol=Protocol.AMQP_FAST,
                    reports_outcomes=False,
                    credit=Credit.PREFETCH,
                    sends_ahead=True,
                    names_itself=bool(name),
                ),
            )
        )

    steps: ClassVar[Steps] = {
        (Opening.RESPONSE, c.ConnectionResponse): _take_response,
        (Opening.TUNE, c.ConnectionTune): _take_tune,
        (Opening.OPEN, c.ConnectionOpen): _take_open,
    }


def _agreed(name: str, asked: int, most: int) -> int:
    """Handles a limit of the client's, which may not be above ours (§3.2.5)."""
    if not 0 < asked <= most:
        raise PeerError(Reply.SYNTAX_ERROR, f"{name} {asked}; 1 to {most}", Level.CONNECTION)
    return asked
