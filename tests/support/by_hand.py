"""A peer of AMQP 1.0 that owes nothing to the router's own codec: written from the text alone.

Values are encoded in their widest usual forms, lists and maps with 32-bit sizes, so that other
forms are tried than the router writes. Frames come back as their field lists; trailing nulls may be
missing, as on the wire, so ``Heard`` is asked for a field by its index.
"""

import socket
import struct
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final, Self

import attrs

HEADER: Final = b"AMQP\x00\x01\x00\x00"
SASL_HEADER: Final = b"AMQP\x03\x01\x00\x00"

OPEN, BEGIN, ATTACH, FLOW, TRANSFER, DISPOSITION, DETACH, END, CLOSE = range(0x10, 0x19)
ERROR, SOURCE, TARGET, COORDINATOR = 0x1D, 0x28, 0x29, 0x30
RECEIVED, ACCEPTED, REJECTED, RELEASED, MODIFIED = range(0x23, 0x28)
SENDER, RECEIVER = False, True
"""Roles, as they are on the wire (§2.8.1)."""

SECONDS: Final = 10.0
"""Patience with the router."""


@attrs.frozen
class Sym:
    """A symbol (§1.6.21); several make an array."""

    names: Sequence[str]


@attrs.frozen
class Small:
    """A ubyte (§1.6.3)."""

    value: int


@attrs.frozen
class Long:
    """A ulong (§1.6.6)."""

    value: int


@attrs.frozen
class Typed:
    """A described value (§1.1.2); a name for its descriptor is sent as a symbol."""

    code: int | str
    value: Any


def sym(*names: str) -> Sym:
    """Makes a symbol, or an array of them."""
    return Sym(names)


def typed(code: int | str, *fields: Any) -> Typed:
    """Makes a composite value."""
    return Typed(code, list(fields))


def write(value: Any) -> bytes:
    """Encodes a value; a plain int is a uint."""
    match value:
        case None:
            return b"\x40"
        case bool():
            return b"\x56\x01" if value else b"\x56\x00"
        case Typed(code=code):
            descriptor = write(sym(code)) if isinstance(code, str) else write(Long(code))
            return b"\x00" + descriptor + write(value.value)
        case Sym(names=(name,)):
            return b"\xb3" + struct.pack(">I", len(name)) + name.encode()
        case Sym(names=names):
            items = b"".join(struct.pack(">I", len(each)) + each.encode() for each in names)
            return b"\xf0" + struct.pack(">II", len(items) + 5, len(names)) + b"\xb3" + items
        case Small():
            return b"\x50" + bytes([value.value])
        case Long():
            return b"\x80" + struct.pack(">Q", value.value)
        case int():
            return b"\x70" + struct.pack(">I", value)
        case str():
            return b"\xb1" + struct.pack(">I", len(value.encode())) + value.encode()
        case bytes():
            return b"\xb0" + struct.pack(">I", len(value)) + value
        case Mapping():
            items = b"".join(write(each) for pair in value.items() for each in pair)
            return b"\xd1" + struct.pack(">II", len(items) + 4, 2 * len(value)) + items
        case _:
            items = b"".join(map(write, value))
            return b"\xd0" + struct.pack(">II", len(items) + 4, len(value)) + items


_FIXED: Final = {0x4: 0, 0x5: 1, 0x6: 2, 0x7: 4, 0x8: 8, 0x9: 16}


def read(octets: bytes, at: int = 0) -> tuple[Any, int]:
    """Decodes a value; returns it, and where it ends. Numbers are taken for unsigned ones."""
    code = octets[at]
    if code == 0:
        descriptor, at = read(octets, at + 1)
        value, at = read(octets, at)
        return Typed(descriptor, value), at
    return _read_body(code, octets, at + 1)


def _read_body(code: int, octets: bytes, at: int) -> tuple[Any, int]:
    kind = code >> 4
    if kind in _FIXED:
        end = at + _FIXED[kind]
        number = int.from_bytes(octets[at:end], "big")
        plain: dict[int, Any] = {0x40: None, 0x41: True, 0x42: False, 0x45: [], 0x56: bool(number)}
        return plain.get(code, number), end
    width = 4 if kind & 1 else 1
    size = int.from_bytes(octets[at : at + width], "big")
    at += width
    end = at + size
    if kind in (0xA, 0xB):
        body = octets[at:end]
        return (body if code & 0xF == 0 else body.decode()), end
    count = int.from_bytes(octets[at : at + width], "big")
    at += width
    items = []
    if kind in (0xE, 0xF):
        element, at = octets[at], at + 1
        for _ in range(count):
            item, at = _read_body(element, octets, at)
            items.append(item)
        return items, end
    for _ in range(count):
        item, at = read(octets, at)
        items.append(item)
    if code & 0xF == 1:
        return dict(zip(items[::2], items[1::2], strict=True)), end
    return items, end


def frame(channel: int, body: bytes, kind: int = 0) -> bytes:
    """Makes a frame (§2.3.1)."""
    return struct.pack(">IBBH", 8 + len(body), 2, kind, channel) + body


@attrs.frozen
class Heard:
    """A frame that the router has sent.

    Attributes:
        code: of its performative; None for an empty frame.
        at: when it came.
    """

    code: int | None
    channel: int
    fields: list[Any]
    payload: bytes
    octets: int
    at: float

    def field(self, index: int) -> Any:
        """Returns a field; one that was left out is null (§1.4)."""
        return self.fields[index] if index < len(self.fields) else None

    @property
    def error(self) -> str | None:
        """The condition of the error in it, wherever that stands."""
        found = [each for each in self.fields if isinstance(each, Typed) and each.code == ERROR]
        return found[0].value[0] if found else None


@attrs.define(eq=False)
class Hand:
    """One connection; it says what it is told to, and answers nothing.

    Attributes:
        header: the last protocol header that came.
        is_over: the router has ended the stream.
    """

    sock: socket.socket
    header: bytes = b""
    is_over: bool = False
    _octets: bytes = b""
    _heard: list[Heard] = attrs.field(factory=list)
    _next_id: int = 0

    @classmethod
    def dial(cls, port: int) -> Self:
        """Connects, and says nothing."""
        return cls(socket.create_connection(("127.0.0.1", port), SECONDS))

    @classmethod
    def greet(cls, port: int, container: str = "hand", window: int = 1000, **terms: int) -> Self:
        """Connects, opens and begins on channel 0, in one write."""
        peer = cls.dial(port)
        limits = [terms.get("max_frame_size"), None, terms.get("idle")]
        opened = write(typed(OPEN, container, None, *limits))
        begun = write(typed(BEGIN, None, 0, window, 1000, terms.get("handle_max")))
        peer.say(HEADER + frame(0, opened) + frame(0, begun))
        return peer

    def say(self, octets: bytes) -> None:
        """Sends octets as they are."""
        self.sock.sendall(octets)

    def send(self, code: int, *fields: Any, payload: bytes = b"", channel: int = 0) -> None:
        """Sends one frame."""
        self.say(frame(channel, write(typed(code, *fields)) + payload))

    def attach(self, role: bool, address: str, name: str = "link", handle: int = 0) -> None:
        """Attaches a link to an address, on channel 0."""
        source = typed(SOURCE, address if role is RECEIVER else "here")
        target = typed(TARGET, "there" if role is RECEIVER else address)
        first = None if role is RECEIVER else 0
        self.send(ATTACH, name, handle, role, None, None, source, target, None, None, first)

    def flow(self, *link: Any, next_incoming_id: int = 0, window: int = 1000) -> None:
        """Sends a flow; ``link`` is handle, delivery-count, credit, available, drain, echo."""
        self.send(FLOW, next_incoming_id, window, self._next_id, 1000, *link)

    def transfer(self, payload: bytes, tag: bytes | None = b"tag", *more: Any) -> None:
        """Sends a delivery on handle 0; ``more`` is what follows the message-format."""
        number, self._next_id = self._next_id, self._next_id + 1
        self.send(TRANSFER, 0, number, tag, 0, *more, payload=payload)

    def settle(self, first: int, state: Typed | None, last: int | None = None) -> None:
        """Settles what came, as its receiver."""
        self.send(DISPOSITION, RECEIVER, first, last, True, state)

    def hear(self, code: int) -> Heard:
        """Reads until a frame of this kind comes; those before it are passed over."""
        end = time.monotonic() + SECONDS
        while True:
            while self._heard:
                heard = self._heard.pop(0)
                if heard.code == code:
                    return heard
            assert time.monotonic() < end, f"no 0x{code:x} came"
            assert not self.is_over, f"the stream ended, and no 0x{code:x} came"
            self._read(0.2)

    def hear_all(self, seconds: float) -> list[Heard]:
        """Reads for a while, or to the end; returns what nobody has taken."""
        end = time.monotonic() + seconds
        while not self.is_over and (left := end - time.monotonic()) > 0:
            self._read(left)
        heard, self._heard = self._heard, []
        return heard

    def lose(self) -> None:
        """Ends the connection without a word."""
        self.sock.close()

    def _read(self, seconds: float) -> None:
        self.sock.settimeout(max(seconds, 0.001))
        try:
            octets = self.sock.recv(1 << 20)
        except TimeoutError:
            return
        except ConnectionError:
            octets = b""
        self.is_over = not octets
        self._octets += octets
        while len(self._octets) >= 8:
            if self._octets.startswith(b"AMQP"):
                self.header, self._octets = self._octets[:8], self._octets[8:]
                continue
            size, offset, _, channel = struct.unpack_from(">IBBH", self._octets)
            if len(self._octets) < size:
                break
            body, self._octets = self._octets[offset * 4 : size], self._octets[size:]
            told, after = read(body) if body else (Typed(0, []), 0)
            code = int(told.code) if body else None
            self._heard.append(
                Heard(code, channel, told.value, body[after:], size, time.monotonic())
            )
