"""The HTTP request by which a connection becomes a WebSocket, on both sides (RFC 6455 §4).

Theory of operation. Each function takes the octets received so far and returns None while the head
of the request or response is not complete. A head has ``HEAD_OCTETS`` at most. What follows it are
WebSocket frames; a client may send them only after the answer, but a listener does not insist.

A listener answers a request that it refuses with a status and one line of text, then closes. The
subprotocol is ``amqp`` (AMQP WebSocket Binding 1.0 §2.1). A client that offers only the older name
``AMQPWSB10``, as Microsoft's do, is accepted under that name; without either it gets 400. A browser
names the origin of its page, which must be allowed; other clients have none. No extension is
offered or accepted: nothing is compressed.
"""

import base64
import binascii
import re
from collections.abc import Sequence, Set
from http import HTTPStatus
from typing import Final

import attrs
from wsproto.connection import ConnectionType
from wsproto.events import AcceptConnection, RejectConnection, Request
from wsproto.handshake import H11Handshake
from wsproto.utilities import RemoteProtocolError

from router.errors import RouterError
from router.model.text import shown

HEAD_OCTETS: Final = 16 * 1024
"""Longest head of a request or response."""

SUBPROTOCOLS: Final = ("amqp", "AMQPWSB10")
"""What we accept and offer, best first."""

ANY_ORIGIN: Final = "*"

_HEAD_END: Final = re.compile(rb"\n\r?\n")
_REQUEST_LINE: Final = re.compile(rb"([A-Z]+) \S+ HTTP/1\.1\r?\n")
_HTTP: Final = b"HTTP/"
_WEBSOCKET: Final = b"websocket"
_KEY_OCTETS: Final = 16
_LISTED: Final = re.compile(rb"(?im)^(connection|upgrade):([^\r\n]*)\r?\n")
_BODY_HEADERS: Final = (b"content-length", b"transfer-encoding")
_SAID_MOST: Final = 200


@attrs.frozen
class Upgraded:
    """The request is accepted: send ``answer``; frames follow.

    Attributes:
        consumed: octets of the request.
    """

    answer: bytes
    consumed: int


@attrs.frozen
class NotUpgraded:
    """The request is refused: send ``answer``, then close.

    Attributes:
        reason: in one phrase, for the log.
    """

    answer: bytes
    reason: str


class UpgradeError(RouterError):
    """The peer that was dialed does not become a WebSocket; the text says why."""


def read_request(octets: bytes, origins: Set[str]) -> Upgraded | NotUpgraded | None:
    """Reads a client's request; None: its head is not complete.

    Args:
        octets: received so far.
        origins: of the pages that may connect, such as ``https://app.example``; ``*``: of any.
    """
    end = _head_end(octets)
    if end is None:
        if len(octets) <= HEAD_OCTETS:
            return None
        status = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
        return refuse(status, f"the request has a head of more than {HEAD_OCTETS} octets")
    line = _REQUEST_LINE.match(octets)
    if line is None:
        return refuse(HTTPStatus.BAD_REQUEST, "the request is no HTTP/1.1")
    if line.group(1) != b"GET":
        status, allow = HTTPStatus.METHOD_NOT_ALLOWED, [(b"Allow", b"GET")]
        return refuse(status, "this port serves AMQP over WebSocket, by GET", allow)
    handshake = H11Handshake(ConnectionType.SERVER)
    try:
        handshake.receive_data(_as_read(octets[:end], chooses=True))
        request = next(handshake.events(), None)
    except RemoteProtocolError as error:
        hint = error.event_hint
        assert isinstance(hint, RejectConnection)
        status, reason = HTTPStatus(hint.status_code), str(error)
        if status is HTTPStatus.UPGRADE_REQUIRED:  # the library says that the header is missing
            reason = "Sec-WebSocket-Version has to be 13"
        return refuse(status, reason, list(hint.headers))
    except UnicodeError:
        return refuse(HTTPStatus.BAD_REQUEST, "the request has a header that is not ASCII")
    assert isinstance(request, Request), "a head of a request is a request"
    refusal = _why_not(request, origins)
    if refusal is not None:
        return refusal
    subprotocol = next(each for each in SUBPROTOCOLS if each in request.subprotocols)
    return Upgraded(handshake.send(AcceptConnection(subprotocol=subprotocol)), end)


def refuse(
    status: HTTPStatus, reason: str, headers: Sequence[tuple[bytes, bytes]] = ()
) -> NotUpgraded:
    """Makes the answer to a request that is refused."""
    body = f"{reason}\n".encode()
    lines = [
        b"HTTP/1.1 %d %s" % (status, status.phrase.encode()),
        *(b"%s: %s" % each for each in headers),
        b"Content-Type: text/plain; charset=utf-8",
        b"Content-Length: %d" % len(body),
        b"Connection: close",
    ]
    return NotUpgraded(b"\r\n".join([*lines, b"", body]), f"WebSocket: {reason} ({status})")


@attrs.define(eq=False, init=False)
class ClientUpgrade:
    """The request of a client, and what the peer answers.

    Attributes:
        request: octets to send.
    """

    request: bytes
    _handshake: H11Handshake
    _octets: bytes

    def __init__(self, host: str, path: str) -> None:
        """Makes a request.

        Args:
            host: value of the Host header, with the port if it is not the scheme's own.
            path: where the peer serves AMQP.
        """
        self._octets = b""
        self._handshake = H11Handshake(ConnectionType.CLIENT)
        self.request = self._handshake.send(
            Request(host=host, target=path, subprotocols=list(SUBPROTOCOLS))
        )

    def receive(self, octets: bytes) -> bytes | None:
        """Reads more of the answer; returns the octets that follow it, or None: it is incomplete.

        Raises:
            UpgradeError: the peer refuses, or breaks the rules.
        """
        self._octets += octets
        if not self._octets.startswith(_HTTP[: len(self._octets)]):
            raise UpgradeError("the peer speaks no WebSocket, nor HTTP")
        end = _head_end(self._octets)
        if end is None:
            if len(self._octets) > HEAD_OCTETS:
                raise UpgradeError(f"the answer has a head of more than {HEAD_OCTETS} octets")
            return None
        try:
            self._handshake.receive_data(_as_read(self._octets[:end], chooses=False))
            answer = next(self._handshake.events(), None)
        except (RemoteProtocolError, UnicodeError, NotImplementedError) as error:
            raise UpgradeError(f"the peer's WebSocket handshake: {shown(str(error))}") from None
        if isinstance(answer, RejectConnection):
            line = self._octets.partition(b"\n")[0].strip().decode("ascii", "replace")
            raise UpgradeError(f"WebSocket is refused: {shown(line, _SAID_MOST)}")
        if not isinstance(answer, AcceptConnection) or answer.subprotocol is None:
            raise UpgradeError("the peer accepts WebSocket but not its subprotocol amqp")
        return self._octets[end:]


def _head_end(octets: bytes) -> int | None:
    """Returns where a head ends, if it does in time."""
    found = _HEAD_END.search(octets, 0, HEAD_OCTETS)
    return None if found is None else found.end()


def _as_read(head: bytes, *, chooses: bool) -> bytes:
    """Puts the members of Connection, and of Upgrade, on one line each: the library reads one line.

    Args:
        head: of a request or response.
        chooses: of the protocols that Upgrade lists, one is to be chosen (RFC 9110 §7.8): the
            library expects that no other one is there.
    """
    lists: dict[bytes, list[bytes]] = {}
    for name, value in _LISTED.findall(head):
        members = [each.strip() for each in value.split(b",")]
        lists.setdefault(name.lower(), []).extend(filter(None, members))
    protocols = lists.get(b"upgrade", [])
    if chooses and any(each.lower() == _WEBSOCKET for each in protocols):
        lists[b"upgrade"] = [_WEBSOCKET]
    first, _, rest = _LISTED.sub(b"", head).partition(b"\n")
    lines = [b"%s: %s\r\n" % (name, b", ".join(members)) for name, members in lists.items()]
    return b"".join([first, b"\n", *lines, rest])


def _why_not(request: Request, origins: Set[str]) -> NotUpgraded | None:
    """Returns the answer to a request for a WebSocket that is not to be had."""
    headers = list(request.extra_headers)
    if any(name in _BODY_HEADERS for name, _ in headers):
        return refuse(HTTPStatus.BAD_REQUEST, "a request for a WebSocket has no body")
    keys = [value for name, value in headers if name == b"sec-websocket-key"]
    if len(keys) != 1 or not _is_key(keys[0]):
        return refuse(HTTPStatus.BAD_REQUEST, "Sec-WebSocket-Key has to be 16 octets in base64")
    for origin in (value.decode("latin-1") for name, value in headers if name == b"origin"):
        if ANY_ORIGIN not in origins and origin.lower() not in origins:
            reason = f"the origin {shown(origin, _SAID_MOST)} is not among websocket.origins"
            return refuse(HTTPStatus.FORBIDDEN, reason)
    if not any(each in request.subprotocols for each in SUBPROTOCOLS):
        return refuse(HTTPStatus.BAD_REQUEST, "the subprotocol has to be amqp")
    return None


def _is_key(value: bytes) -> bool:
    try:
        return len(base64.b64decode(value, validate=True)) == _KEY_OCTETS
    except binascii.Error:
        return False
