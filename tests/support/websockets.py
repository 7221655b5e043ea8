"""A WebSocket client of the tests' own: it writes what it is told, right or wrong."""

import os
import struct
from typing import Final

import attrs
import trio

from tests.support.planes import receive_exactly

KEY: Final = "dGhlIHNhbXBsZSBub25jZQ=="
ACCEPT: Final = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10

HEADERS: Final = {
    "Host": "router.example",
    "Upgrade": "websocket",
    "Connection": "keep-alive, Upgrade",
    "Sec-WebSocket-Key": KEY,
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Protocol": "amqp",
}


def request(line: str = "GET / HTTP/1.1", /, **changes: str | None) -> bytes:
    """Writes a request; ``sec_websocket_key=None`` leaves a header out, a text changes it."""
    named = {name.replace("_", "-").lower(): value for name, value in changes.items()}
    lines = [line]
    for name, value in HEADERS.items():
        wanted = named.pop(name.lower(), value)
        if wanted is not None:
            lines.append(f"{name}: {wanted}")
    lines += [f"{name}: {value}" for name, value in named.items()]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def frame(
    payload: bytes = b"",
    opcode: int = BINARY,
    *,
    fin: bool = True,
    reserved: int = 0,
    masked: bool = True,
) -> bytes:
    """Writes a frame as a client does, or not."""
    head = bytes([fin << 7 | reserved << 4 | opcode])
    mask_bit = masked << 7
    if len(payload) < 126:
        head += bytes([mask_bit | len(payload)])
    elif len(payload) < 1 << 16:
        head += struct.pack("!BH", mask_bit | 126, len(payload))
    else:
        head += struct.pack("!BQ", mask_bit | 127, len(payload))
    if not masked:
        return head + payload
    key = os.urandom(4)
    return head + key + bytes(octet ^ key[at % 4] for at, octet in enumerate(payload))


def close_frame(code: int) -> bytes:
    """Writes a client's close frame."""
    return frame(struct.pack("!H", code), CLOSE)


@attrs.frozen
class Received:
    """A frame that was received."""

    opcode: int
    payload: bytes
    fin: bool = True

    @property
    def code(self) -> int:
        """Of a close frame."""
        return int.from_bytes(self.payload[:2])


async def receive_frame(stream: trio.abc.ReceiveStream, *, masked: bool = False) -> Received:
    """Reads one frame."""
    first, second = await receive_exactly(stream, 2)
    assert bool(second & 0x80) is masked
    assert not first & 0x70
    length = second & 0x7F
    if length == 126:
        length = int.from_bytes(await receive_exactly(stream, 2))
    elif length == 127:
        length = int.from_bytes(await receive_exactly(stream, 8))
    key = await receive_exactly(stream, 4) if masked else bytes(4)
    octets = await receive_exactly(stream, length)
    payload = bytes(octet ^ key[at % 4] for at, octet in enumerate(octets))
    return Received(first & 0x0F, payload, bool(first & 0x80))


async def receive_head(stream: trio.abc.ReceiveStream) -> str:
    """Reads the head of a request or response."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        head += await receive_exactly(stream, 1)
    return head.decode()


async def upgraded(stream: trio.abc.Stream, **changes: str | None) -> trio.abc.Stream:
    """Asks for a WebSocket and gets it."""
    await stream.send_all(request(**changes))
    head = await receive_head(stream)
    assert head.startswith("HTTP/1.1 101 "), head
    return stream
