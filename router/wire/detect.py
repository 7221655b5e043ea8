"""Detection of a dialing peer's protocol from its first octets.

Theory of operation. A dialing peer speaks first, so a listener reads until ``detect`` can decide.
The first octet says how many are needed::

    128                 AMQP/Fast: decided by the second octet, the highest version that is spoken
    0x16                a TLS ClientHello: decided by the second octet, the major version 3
    'A'                 "AMQP" and four octets that name a protocol and its version
    a method of HTTP    a request for a WebSocket, if the listener serves that: decided by three
    anything else       not supported; decided at once

Nothing is consumed: the chosen engine gets every octet from the first on. A peer whose protocol is
not served is sent a header that is, and the connection is closed (AMQP 1.0 §2.2; the older
protocols require the same). The header is that of the highest version that is not above the
requested one, or else of the highest; octets that are not a header at all (HTTP, garbage) are
answered with the highest.

Two special cases. ``AMQP 1 1 9 1`` is the header of the draft 0-9 revision 1, and was sent by some
clients of 2006 that meant 0-8; the server speaks next, so nothing on the wire distinguishes them,
and the listener's configuration decides (``AmbiguousHeader``). And 0-8 and 0-9 are dialects that
the engine of 0-9-1 supports.
"""

import enum
from collections.abc import Set
from typing import Final

import attrs

from router.model.capabilities import Protocol

HEADER_OCTETS: Final = 8
LONGEST_PREFIX: Final = HEADER_OCTETS
"""Most octets that a decision needs."""

FAST_START: Final = b"\x80"
FAST_START_OCTETS: Final = 2
TLS_START: Final = b"\x16\x03"
AMQP_START: Final = b"AMQP"

HEADER_1_0: Final = b"AMQP\x00\x01\x00\x00"
HEADER_1_0_TLS: Final = b"AMQP\x02\x01\x00\x00"
HEADER_1_0_SASL: Final = b"AMQP\x03\x01\x00\x00"

HEADER_1_1_9_1: Final = b"AMQP\x01\x01\x09\x01"

Version = tuple[int, int, int]

_PROTOCOL_BY_HEADER: Final = {
    HEADER_1_0: Protocol.AMQP_1_0,
    HEADER_1_0_SASL: Protocol.AMQP_1_0,
    b"AMQP\x00\x00\x09\x01": Protocol.AMQP_0_9_1,
    b"AMQP\x01\x01\x00\x09": Protocol.AMQP_0_9_1,  # 0-9
    b"AMQP\x01\x01\x08\x00": Protocol.AMQP_0_9_1,  # 0-8, which wrote its version the other way
    b"AMQP\x01\x01\x00\x0a": Protocol.AMQP_0_10,
}

_VERSION_BY_PROTOCOL: Final[dict[Protocol, Version]] = {
    Protocol.AMQP_1_0: (1, 0, 0),
    Protocol.AMQP_0_10: (0, 10, 0),
    Protocol.AMQP_0_9_1: (0, 9, 1),
    Protocol.AMQP_0_9R1: (0, 9, 0),
}

_HEADER_BY_PROTOCOL: Final = {
    Protocol.AMQP_1_0: HEADER_1_0,
    Protocol.AMQP_0_10: b"AMQP\x01\x01\x00\x0a",
    Protocol.AMQP_0_9_1: b"AMQP\x00\x00\x09\x01",
    Protocol.AMQP_0_9R1: HEADER_1_1_9_1,
}

_HEADED: Final = frozenset(_HEADER_BY_PROTOCOL)

_TLS_ALERT: Final = b"\x15\x03"
_HTTP_ANSWERS: Final = (b"HTTP", b"<!DOCTYP", b"<!doctyp", b"<html", b"<HTML")
"""How a server of HTTP begins: some leave the status line out, for clients that seem very old."""

_HTTP_METHODS: Final = (b"GET", b"HEA", b"POS", b"PUT", b"OPT", b"DEL", b"CON", b"PRI", b"PAT")
_HTTP_START_OCTETS: Final = 3


_ONLY_WEBSOCKET: Final = "AMQP begins here inside of a WebSocket only"


class AmbiguousHeader(enum.StrEnum):
    """The protocol that ``AMQP 1 1 9 1`` stands for."""

    DRAFT = "amqp-0-9r1"
    AS_0_8 = "amqp-0-8"  # py-amqplib, PHP-AMQP, Net::AMQP and others of 2006


_PROTOCOL_BY_MEANING: Final = {
    AmbiguousHeader.DRAFT: Protocol.AMQP_0_9R1,
    AmbiguousHeader.AS_0_8: Protocol.AMQP_0_9_1,
}


class TlsOffer(enum.Enum):
    """Whether a listener accepts TLS."""

    NONE = "none"  # not at all, or it is established already
    OFFERED = "offered"  # optional
    REQUIRED = "required"  # nothing is served without it


class WebSocketOffer(enum.Enum):
    """Whether a listener accepts WebSocket."""

    NONE = "none"  # not at all, or it is established already
    OFFERED = "offered"  # beside what AMQP begins with itself
    REQUIRED = "required"  # nothing is served without it


@attrs.frozen(kw_only=True)
class Door:
    """The protocols that a listener serves.

    Attributes:
        protocols: those with an engine that the listener allows.
        tls: whether TLS may or must come first.
        websocket: whether WebSocket may or must come before AMQP, above TLS.
        sasl_required: AMQP 1.0 is served behind its SASL layer only.
        header_1_1_9_1: the protocol that this header stands for.
    """

    protocols: Set[Protocol]
    tls: TlsOffer = TlsOffer.NONE
    websocket: WebSocketOffer = WebSocketOffer.NONE
    sasl_required: bool = False
    header_1_1_9_1: AmbiguousHeader = AmbiguousHeader.DRAFT


@attrs.frozen
class Speaks:
    """The peer's protocol is known and served; its engine gets all octets."""

    protocol: Protocol


@attrs.frozen
class StartsTls:
    """TLS comes first, then a protocol that is detected afterwards.

    Attributes:
        answer: what to send before the handshake.
        consumed: number of the octets that precede the handshake.
    """

    answer: bytes
    consumed: int


@attrs.frozen
class StartsHttp:
    """A request of HTTP has begun, for a WebSocket; a protocol is detected inside of that."""


@attrs.frozen
class Refused:
    """The peer is not served: send ``answer``, then close.

    Attributes:
        answer: a header that is served; empty: none.
        reason: what the peer seems to want, in one phrase, for the log.
    """

    answer: bytes
    reason: str


Verdict = Speaks | StartsTls | StartsHttp | Refused
"""What a peer wants, and whether it gets that."""


def detect(octets: bytes, door: Door) -> Verdict | None:
    """Returns what a peer wants, by its first octets; None: more are needed (§2.2, §5.2.1)."""
    if not octets:
        return None
    if door.websocket is not WebSocketOffer.NONE and _begins_http(octets):
        return _decide_http(octets, door)
    for start, decide in (
        (FAST_START, _decide_fast),
        (TLS_START, _decide_tls),
        (AMQP_START, _decide_header),
    ):
        length = min(len(octets), len(start))
        if octets[:length] == start[:length]:
            return decide(octets, door)
    if octets.startswith(_HTTP_METHODS):
        return Refused(_nearest(None, door), "HTTP is not served on this port")
    return Refused(_nearest(None, door), "the first octets are of no AMQP")


def describe_answer(octets: bytes) -> str:
    """Describes, for people, a peer that answers with ``octets`` where another header was due."""
    header = octets[:HEADER_OCTETS]
    known = _PROTOCOL_BY_HEADER.get(header)
    if header == HEADER_1_0_TLS or header[:2] in (TLS_START, _TLS_ALERT):
        said = "the peer wants TLS"
    elif header == HEADER_1_0_SASL:
        said = "the peer wants SASL"
    elif header == HEADER_1_0:
        said = "the peer speaks amqp-1.0 without SASL"
    elif known is not None:
        said = f"the peer speaks {known}"
    elif header == HEADER_1_1_9_1:
        said = f"the peer speaks {Protocol.AMQP_0_9R1}"
    elif header.startswith(_HTTP_ANSWERS):
        said = "the peer speaks HTTP"
    elif header.startswith(AMQP_START):
        said = "the peer speaks another version of AMQP"
    else:
        said = "the peer speaks no AMQP"
    began = repr(header.decode()) if header.isascii() and header.decode().isprintable() else ""
    return f"{said} (it began with {began or header.hex(' ')})"


def _begins_http(octets: bytes) -> bool:
    """Returns whether octets begin a method of HTTP, or may yet."""
    start = octets[:_HTTP_START_OCTETS]
    return any(each.startswith(start) for each in _HTTP_METHODS)


def _decide_http(octets: bytes, door: Door) -> StartsHttp | Refused | None:
    if len(octets) < _HTTP_START_OCTETS:
        return None
    if door.tls is TlsOffer.REQUIRED:
        return Refused(b"", "HTTP in clear, where WebSocket is served behind TLS only")
    return StartsHttp()


def _decide_fast(octets: bytes, door: Door) -> Speaks | Refused | None:
    if len(octets) < FAST_START_OCTETS:
        return None
    if not octets[1]:
        return Refused(b"", "AMQP/Fast has no version 0")
    if door.websocket is WebSocketOffer.REQUIRED:
        return Refused(b"", _ONLY_WEBSOCKET)
    if Protocol.AMQP_FAST not in door.protocols or door.tls is TlsOffer.REQUIRED:
        return Refused(_nearest(None, door), "AMQP/Fast is not served on this port")
    return Speaks(Protocol.AMQP_FAST)


def _decide_tls(octets: bytes, door: Door) -> StartsTls | Refused | None:
    if len(octets) < len(TLS_START):
        return None
    if door.tls is TlsOffer.NONE:
        return Refused(_nearest(None, door), "TLS is not served on this port")
    return StartsTls(b"", 0)


def _decide_header(octets: bytes, door: Door) -> Speaks | StartsTls | Refused | None:
    if len(octets) < HEADER_OCTETS:
        return None
    if door.websocket is WebSocketOffer.REQUIRED:
        return Refused(b"", _ONLY_WEBSOCKET)
    header = octets[:HEADER_OCTETS]
    if header == HEADER_1_0_TLS and Protocol.AMQP_1_0 in door.protocols:
        if door.tls is TlsOffer.NONE:
            return Refused(_nearest((1, 0, 0), door), "TLS is not served on this port")
        return StartsTls(HEADER_1_0_TLS, HEADER_OCTETS)
    if door.tls is TlsOffer.REQUIRED:
        return Refused(_nearest(_version(header), door), "this port is served behind TLS only")
    if header == HEADER_1_1_9_1:
        protocol: Protocol | None = _PROTOCOL_BY_MEANING[door.header_1_1_9_1]
    else:
        protocol = _PROTOCOL_BY_HEADER.get(header)
    if protocol is None or protocol not in door.protocols:
        shown = " ".join(str(octet) for octet in header[4:])
        return Refused(_nearest(_version(header), door), f"AMQP {shown} is not served on this port")
    return Speaks(protocol)


def _version(header: bytes) -> Version:
    """Reads the version in a header of any generation."""
    _, first, second, third = header[4:]
    if header[4:6] != b"\x01\x01":
        return (first, second, third)  # protocol, major, minor, revision
    if second:
        return (0, second, 0)  # class, instance, and 0-8's or the draft's way to write a version
    return (second, third, 0)  # class, instance, major, minor


def _nearest(requested: Version | None, door: Door) -> bytes:
    """Returns the header to answer with (§2.2); empty if AMQP/Fast or WebSocket alone is served."""
    if door.websocket is WebSocketOffer.REQUIRED:
        return b""
    served = sorted((_VERSION_BY_PROTOCOL[each], each) for each in door.protocols & _HEADED)
    if not served:
        return b""
    not_above = [each for each in served if requested is not None and each[0] <= requested]
    _, protocol = (not_above or served)[-1]
    if protocol is Protocol.AMQP_1_0:
        if door.tls is TlsOffer.REQUIRED:
            return HEADER_1_0_TLS
        if door.sasl_required:
            return HEADER_1_0_SASL
    return _HEADER_BY_PROTOCOL[protocol]
