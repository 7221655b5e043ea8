"""The exchange before the frames: protocol headers, and the SASL layer between them (§2.2, §5.3).

Theory of operation. A connection begins with a header, and with two if SASL comes first::

    HEADER -> FRAMES                            no SASL
    HEADER -> SECURITY -> HEADER -> FRAMES      SASL, then the header again
    HEADER, SECURITY -> REFUSED                 wrong protocol, or the exchange failed

A server sends a header only after the peer's; a client sends its header first, and open with it.
Nothing that a peer pipelines is lost: the octets after a header or an outcome are read next.
"""

import enum

from router.model.condition import NOT_IMPLEMENTED, Condition
from router.wire.detect import describe_answer
from router.wire.engine import EngineSettings
from router.wire.v1_0.connection import Connection, ConnectionPhase, Step
from router.wire.v1_0.frames import AMQP_HEADER, HEADER_OCTETS, SASL_HEADER
from router.wire.v1_0.security import ClientLayer, SecurityLayer, SecurityPhase, ServerLayer


class Stage(enum.Enum):
    """What the next octets must be."""

    HEADER = "header"
    SECURITY = "security"
    FRAMES = "frames"
    REFUSED = "refused"


class Greeting:
    """Runs the exchange of one connection up to its first frame.

    Attributes:
        stage: what the next octets must be.
        refusal: why the connection failed; not sent to the peer.
        is_by_peer: the peer has refused the connection.
    """

    __slots__ = (
        "_connection",
        "_is_secured",
        "_security",
        "_settings",
        "is_by_peer",
        "refusal",
        "stage",
    )

    def __init__(self, settings: EngineSettings, connection: Connection) -> None:
        self._settings = settings
        self._connection = connection
        self._security: SecurityLayer | None = None
        self._is_secured = False
        self.stage = Stage.HEADER
        self.refusal: Condition | None = None
        self.is_by_peer = False

    @property
    def user(self) -> str | None:
        """The authenticated user; None if anonymous."""
        return None if self._security is None else self._security.user

    def dial(self) -> None:
        """Sends the first octets of a client."""
        if self._settings.sasl_client is None:
            self._send_header_and_open()
        else:
            self._connection.state.output.append(SASL_HEADER)

    def _send_header_and_open(self) -> None:
        self._connection.send_header(AMQP_HEADER)
        self._connection.send_open()

    def read(self, octets: bytes, at: int, end: int) -> tuple[int, int]:
        """Reads until the frames begin, the peer is refused, or the octets are used up.

        Returns:
            the offset after the octets read, and how many octets are needed to go on.

        Raises:
            Fault: if a frame of the SASL layer violates a rule.
            DecodeError: if the octets are not a SASL frame.
        """
        stage: Stage | None = None
        wanted = HEADER_OCTETS
        while self.stage is not stage and self.stage in (Stage.HEADER, Stage.SECURITY):
            stage = self.stage
            if stage is Stage.HEADER:
                at = self._read_header(octets, at)
                wanted = HEADER_OCTETS
            else:
                at, wanted = self._read_security(octets, at, end)
        return at, wanted

    # --- headers ----------------------------------------------------------------------------------

    def _read_header(self, octets: bytes, at: int) -> int:
        """Reads a protocol header and answers it (§2.2).

        Octets that cannot become a header of AMQP are refused before all eight have arrived.
        """
        seen = octets[at : at + HEADER_OCTETS]
        if len(seen) < HEADER_OCTETS and AMQP_HEADER.startswith(seen[:4]):
            return at
        wanted = self._wanted_headers()
        if seen not in wanted:
            self._refuse_header(seen, wanted[0])
            return at
        if seen == SASL_HEADER:
            self._start_security()
        else:
            self._start_frames()
        return at + HEADER_OCTETS

    def _wanted_headers(self) -> tuple[bytes, ...]:
        """Returns the headers that are acceptable now, the preferred one first."""
        settings = self._settings
        if self._is_secured:
            return (AMQP_HEADER,)
        if not settings.is_server:
            return (AMQP_HEADER if settings.sasl_client is None else SASL_HEADER,)
        if settings.sasl_server is None:
            return (AMQP_HEADER,)
        return (SASL_HEADER,) if settings.sasl_required else (SASL_HEADER, AMQP_HEADER)

    def _refuse_header(self, seen: bytes, wanted: bytes) -> None:
        """Refuses a peer that speaks another protocol, and sends it our header (§2.2)."""
        if self._settings.is_server and not self._is_secured:
            self._connection.state.output.append(wanted)
        self.stage = Stage.REFUSED
        self.refusal = Condition(NOT_IMPLEMENTED, describe_answer(bytes(seen)))

    def _start_frames(self) -> None:
        self.stage = Stage.FRAMES
        self._connection.step(Step.R_HEADER)
        if self._connection.phase is ConnectionPhase.HDR_RCVD:
            self._connection.send_header(AMQP_HEADER)

    # --- the SASL layer ---------------------------------------------------------------------------

    def _start_security(self) -> None:
        settings = self._settings
        output = self._connection.state.output
        self.stage = Stage.SECURITY
        if settings.is_server:
            assert settings.sasl_server is not None, "the header was not wanted otherwise"
            output.append(SASL_HEADER)
            layer = ServerLayer(output, settings.sasl_server())
            layer.start()
            self._security = layer
        else:
            assert settings.sasl_client is not None, "the header was not wanted otherwise"
            self._security = ClientLayer(output, settings.sasl_client(), settings.hostname)

    def _read_security(self, octets: bytes, at: int, end: int) -> tuple[int, int]:
        layer = self._security
        assert layer is not None, "the stage began with it"
        at, wanted = layer.read(octets, at, end)
        if layer.phase is SecurityPhase.DONE:
            self._is_secured = True
            self.stage = Stage.HEADER
            if not self._settings.is_server:
                self._send_header_and_open()
        elif layer.phase is SecurityPhase.FAILED:
            self.stage = Stage.REFUSED
            self.refusal = layer.refusal
            self.is_by_peer = not self._settings.is_server
        return at, wanted
