"""The SASL layer of both sides: authentication of the peer, and to the peer (§5.3).

Theory of operation. The layer has its own header and its own frames, and ends with the outcome; the
octets after the outcome belong to the connection, beginning with its header, and are not consumed.
``TRANSITIONS`` is the exchange of §5.3.2 as a table, for both sides. A failed exchange ends the
connection: nothing is read after it.

The peer is not authenticated yet, so its frames are limited to ``FRAME_OCTETS``.
"""

import enum
from collections.abc import Mapping
from typing import Final

from router.errors import MisuseError
from router.model.condition import UNAUTHORIZED_ACCESS, Condition
from router.wire.sasl import Challenge, Failure, SaslClient, SaslServer, Success
from router.wire.v1_0.faults import Fault, Rule
from router.wire.v1_0.frames import SASL, frame, read_frame_header
from router.wire.v1_0.performatives import (
    SaslChallenge,
    SaslCode,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    SaslResponse,
    decode_by_table,
    encode,
)
from router.wire.v1_0.state import Output

FRAME_OCTETS: Final = 16384
"""§5.3.1 has 512 octets, but today's tokens do not fit in that and peers send them anyway."""


class SecurityPhase(enum.Enum):
    """The progress of the exchange."""

    START = "START"
    OFFERED = "OFFERED"  # mechanisms sent (server) or received (client)
    UNDER_WAY = "UNDER_WAY"  # init sent or received
    CHALLENGED = "CHALLENGED"
    DONE = "DONE"
    FAILED = "FAILED"


class Step(enum.Enum):
    """The frame that moves the exchange, whoever sends it."""

    MECHANISMS = "mechanisms"
    INIT = "init"
    CHALLENGE = "challenge"
    RESPONSE = "response"
    OUTCOME_OK = "outcome ok"
    OUTCOME_BAD = "outcome not ok"


TRANSITIONS: Final[Mapping[tuple[SecurityPhase, Step], SecurityPhase]] = {
    (SecurityPhase.START, Step.MECHANISMS): SecurityPhase.OFFERED,
    (SecurityPhase.OFFERED, Step.INIT): SecurityPhase.UNDER_WAY,
    (SecurityPhase.UNDER_WAY, Step.CHALLENGE): SecurityPhase.CHALLENGED,
    (SecurityPhase.CHALLENGED, Step.RESPONSE): SecurityPhase.UNDER_WAY,
    (SecurityPhase.UNDER_WAY, Step.OUTCOME_OK): SecurityPhase.DONE,
    (SecurityPhase.UNDER_WAY, Step.OUTCOME_BAD): SecurityPhase.FAILED,
}

_STEPS: Final[Mapping[type, Step]] = {
    SaslMechanisms: Step.MECHANISMS,
    SaslInit: Step.INIT,
    SaslChallenge: Step.CHALLENGE,
    SaslResponse: Step.RESPONSE,
}

_BY_SERVER: Final = frozenset((Step.MECHANISMS, Step.CHALLENGE, Step.OUTCOME_OK, Step.OUTCOME_BAD))
"""Steps that the server takes; the client takes the others."""


class SecurityLayer:
    """One side of the exchange.

    Attributes:
        phase: the progress of the exchange.
        user: on the server's side, the authenticated user; None if anonymous.
        refusal: why it failed, for the core.
    """

    __slots__ = ("_output", "is_server", "phase", "refusal", "user")

    def __init__(self, output: Output, is_server: bool) -> None:
        self._output = output
        self.is_server = is_server
        self.phase = SecurityPhase.START
        self.user: str | None = None
        self.refusal: Condition | None = None

    def read(self, octets: bytes, at: int, end: int) -> tuple[int, int]:
        """Reads frames until the exchange is over or the octets are used up.

        Returns:
            the offset after the octets read, and how many octets are needed to go on.

        Raises:
            Fault: if a frame violates a rule.
            DecodeError: if the octets are not a SASL frame.
        """
        while self.phase not in (SecurityPhase.DONE, SecurityPhase.FAILED):
            header = read_frame_header(octets, at, end, FRAME_OCTETS)
            if header is None:
                return at, 8
            if header.end > end:
                return at, header.size
            if header.kind != SASL or header.body == header.end:
                raise Fault(Rule.SASL_FRAME_TYPE)
            performative, after = decode_by_table(octets, header.body, header.end)
            if after != header.end:
                raise Fault(Rule.SASL_FRAME_TYPE, "octets follow the frame's one value")
            at = header.end
            self._take(performative)
        return at, 8

    def _take(self, performative: object) -> None:
        if type(performative) is SaslOutcome:
            bad = performative.code is not SaslCode.OK
            step: Step | None = Step.OUTCOME_BAD if bad else Step.OUTCOME_OK
        else:
            step = _STEPS.get(type(performative))
        if step is None or (step in _BY_SERVER) is self.is_server:
            raise Fault(Rule.SASL_FRAME, type(performative).__name__.lower())
        following = TRANSITIONS.get((self.phase, step))
        if following is None:
            raise Fault(Rule.SASL_FRAME, f"{step.value} in {self.phase.value}")
        self.phase = following
        self._answer(performative)

    def _answer(self, performative: object) -> None:
        raise NotImplementedError

    def _send(self, performative: object, step: Step) -> None:
        following = TRANSITIONS.get((self.phase, step))
        if following is None:
            raise MisuseError(f"SASL: {step.value} in {self.phase.value}")
        self.phase = following
        self._output.append(frame(0, encode(performative), kind=SASL))  # type: ignore[arg-type]

    def _fail(self, reason: str) -> None:
        self.refusal = Condition(UNAUTHORIZED_ACCESS, reason)


class ServerLayer(SecurityLayer):
    """The server's side."""

    __slots__ = ("_server",)

    def __init__(self, output: Output, server: SaslServer) -> None:
        super().__init__(output, is_server=True)
        self._server = server

    def start(self) -> None:
        """Offers the mechanisms; called after the header is sent."""
        self._send(SaslMechanisms(tuple(self._server.mechanisms)), Step.MECHANISMS)

    def _answer(self, performative: object) -> None:
        if isinstance(performative, SaslInit):
            if performative.mechanism not in self._server.mechanisms:
                self._decide(Failure(f"mechanism {performative.mechanism!r} was not offered"))
                return
            self._decide(self._server.start(performative.mechanism, performative.initial_response))
        elif isinstance(performative, SaslResponse):
            self._decide(self._server.step(performative.response))

    def _decide(self, verdict: Challenge | Success | Failure) -> None:
        match verdict:
            case Challenge(octets=octets):
                self._send(SaslChallenge(octets), Step.CHALLENGE)
            case Success(user=user, octets=octets):
                self.user = user
                self._send(SaslOutcome(SaslCode.OK, octets), Step.OUTCOME_OK)
            case Failure(reason=reason):
                self._fail(reason)
                self._send(SaslOutcome(SaslCode.AUTH), Step.OUTCOME_BAD)


class ClientLayer(SecurityLayer):
    """The client's side."""

    __slots__ = ("_client", "_hostname")

    def __init__(self, output: Output, client: SaslClient, hostname: str | None) -> None:
        super().__init__(output, is_server=False)
        self._client = client
        self._hostname = hostname

    def _answer(self, performative: object) -> None:
        match performative:
            case SaslMechanisms(sasl_server_mechanisms=offered):
                choice = self._client.choose(offered)
                if choice is None:
                    self.phase = SecurityPhase.FAILED
                    self._fail(f"none of the offered mechanisms will do: {', '.join(offered)}")
                    return
                mechanism, initial = choice
                self._send(SaslInit(mechanism, initial, self._hostname), Step.INIT)
            case SaslChallenge(challenge=challenge):
                self._send(SaslResponse(self._client.step(challenge)), Step.RESPONSE)
            case SaslOutcome(code=SaslCode.OK, additional_data=additional):
                if not self._client.check(additional):
                    self.phase = SecurityPhase.FAILED
                    self._fail("the server did not prove that it knows the secret")
            case SaslOutcome(code=code):
                self._fail(f"the peer refused us: SASL code {code.value} ({code.name.lower()})")
