"""AMQP 0-10 by hand: frames written from the specification's text, without the router's codec."""

import itertools
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager

HEADER = b"AMQP\x01\x01\x00\x0a"
SECONDS = 20.0

CONTROL, COMMAND, HEAD, BODY = 0, 1, 2, 3
"""Kinds of segments."""

Field = bytes | bool | None
"""A field, encoded; a bit; or None, absent."""


def frame(
    kind: int, channel: int, payload: bytes, *, flags: int = 0x0F, track: int | None = None
) -> bytes:
    """Writes a frame."""
    on = min(kind, 1) if track is None else track
    return struct.pack(">BBHBBHI", flags, kind, 12 + len(payload), 0, on, channel, 0) + payload


def fields(*values: Field) -> bytes:
    """Writes packing flags of two octets, and the fields that are there."""
    flags = sum(1 << place for place, value in enumerate(values) if value not in (None, False))
    return struct.pack("<H", flags) + b"".join(v for v in values if isinstance(v, bytes))


def body_of(class_code: int, code: int, *values: Field) -> bytes:
    """Writes a control."""
    return bytes((class_code, code)) + fields(*values)


def command_of(class_code: int, code: int, *values: Field, sync: bool = False) -> bytes:
    """Writes a command, with its session header."""
    return bytes((class_code, code, 1, int(sync))) + fields(*values)


def struct32(class_code: int, code: int, *values: Field) -> bytes:
    """Writes a struct with its size of four octets."""
    octets = bytes((class_code, code)) + fields(*values)
    return len(octets).to_bytes(4, "big") + octets


def s8(text: str) -> bytes:
    """Writes a str8."""
    return bytes((len(text),)) + text.encode()


def v16(octets: bytes) -> bytes:
    """Writes a vbin16, or a str16."""
    return len(octets).to_bytes(2, "big") + octets


def v32(octets: bytes) -> bytes:
    """Writes a vbin32."""
    return len(octets).to_bytes(4, "big") + octets


def u8(value: int) -> bytes:
    """Writes a uint8."""
    return value.to_bytes(1, "big")


def u16(value: int) -> bytes:
    """Writes a uint16."""
    return value.to_bytes(2, "big")


def u32(value: int) -> bytes:
    """Writes a uint32, or a sequence-no."""
    return value.to_bytes(4, "big")


def u64(value: int) -> bytes:
    """Writes a uint64."""
    return value.to_bytes(8, "big")


def ranges(*pairs: tuple[int, int]) -> bytes:
    """Writes a sequence-set."""
    return v16(b"".join(u32(first) + u32(last) for first, last in pairs))


class Frame:
    """A frame that has come."""

    def __init__(self, octets: bytes) -> None:
        self.flags, self.kind, _, _, self.track, self.channel, _ = struct.unpack_from(
            ">BBHBBHI", octets
        )
        self.payload = octets[12:]
        self.name = (self.payload[0], self.payload[1]) if self.kind < HEAD else (0, 0)


class Hand:
    """A client.

    Attributes:
        said: frames that have come and were not asked for.
        commands: how many were sent on channel 1.
    """

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        sock.settimeout(SECONDS)
        self.said: list[Frame] = []
        self.commands = 0
        self._octets = b""

    def send(self, *octets: bytes) -> None:
        """Sends octets."""
        self.sock.sendall(b"".join(octets))

    def control(self, class_code: int, code: int, *values: Field, channel: int = 1) -> None:
        """Sends a control."""
        self.send(frame(CONTROL, channel, body_of(class_code, code, *values)))

    def command(
        self, class_code: int, code: int, *values: Field, channel: int = 1, sync: bool = False
    ) -> None:
        """Sends a command."""
        self.commands += channel == 1
        self.send(frame(COMMAND, channel, command_of(class_code, code, *values, sync=sync)))

    def transfer(
        self,
        body: bytes,
        *,
        key: str | None = None,
        exchange: str = "",
        mode: int | None = 0,
        delivery: bytes | None = None,
        more: bytes = b"",
    ) -> None:
        """Transfers a message.

        Args:
            body: its body.
            key: the routing key.
            exchange: the destination.
            mode: accept-mode.
            delivery: delivery-properties, instead of the key alone.
            more: further structs of the header.
        """
        head = command_of(4, 1, s8(exchange), None if mode is None else u8(mode), u8(0))
        told = delivery or delivery_properties(key)
        self.commands += 1
        self.send(
            frame(COMMAND, 1, head, flags=0x0B),
            frame(HEAD, 1, told + more, flags=0x03),
            frame(BODY, 1, body, flags=0x07),
        )

    def next(self) -> Frame:
        """Waits for a frame.

        Raises:
            EOFError: the stream has ended.
        """
        while len(self._octets) < 12 or len(self._octets) < self._size:
            got = self.sock.recv(65536)
            if not got:
                raise EOFError
            self._octets += got
        size = self._size
        octets, self._octets = self._octets[:size], self._octets[size:]
        return Frame(octets)

    @property
    def _size(self) -> int:
        return int.from_bytes(self._octets[2:4], "big")

    def until(self, class_code: int, code: int) -> bytes:
        """Waits for a control or command; returns what is behind its class and code."""
        for at, each in enumerate(self.said):
            if each.name == (class_code, code):
                del self.said[at]
                return each.payload[2:]
        while True:
            found = self.next()
            if found.name == (class_code, code):
                return found.payload[2:]
            self.said.append(found)

    def has_ended(self) -> bool:
        """Tells whether the stream ends with nothing more on it."""
        try:
            found = self.next()
        except (EOFError, ConnectionResetError):
            return True
        self.said.append(found)
        return False

    def close_code(self) -> int:
        """Waits for connection.close; returns its code."""
        return int.from_bytes(self.until(1, 0xB)[2:4], "big")

    def error(self) -> int:
        """Waits for execution.exception; returns its code."""
        return int.from_bytes(self.until(3, 3)[4:6], "big")

    def detach_code(self) -> int:
        """Waits for session.detached; returns its code."""
        return self.until(2, 4)[-1]

    def result(self) -> bytes:
        """Waits for execution.result; returns its struct, from its class on."""
        return self.until(3, 2)[12:]

    def sync(self) -> list[tuple[int, int]]:
        """Waits until all commands are complete; returns the set that tells it."""
        self.command(3, 1, sync=True)
        while True:
            found = self.completed()
            if any(first <= self.commands - 1 <= last for first, last in found):
                return found

    def completed(self) -> list[tuple[int, int]]:
        """Waits for session.completed; returns the set."""
        return read_ranges(self.until(2, 0xA)[2:])

    def message(self) -> tuple[bytes, bytes, bytes]:
        """Waits for a transfer; returns its command, header and body."""
        found = [self.until(4, 1), b"", b""]
        is_last = False
        while not is_last:
            part = self.said.pop(0) if self.said and self.said[0].kind >= HEAD else self.next()
            found[part.kind - 1] += part.payload
            is_last = part.flags & 5 == 5
        return found[0], found[1], found[2]

    # --- the way in -------------------------------------------------------------------------------

    def start(
        self,
        mechanism: str = "ANONYMOUS",
        response: bytes = b"",
        properties: bytes | None = None,
    ) -> bytes:
        """Says hello; returns the server's start."""
        self.send(HEADER)
        while len(self._octets) < 8:
            self._octets += self.sock.recv(65536)
        assert self._octets[:8] == HEADER
        self._octets = self._octets[8:]
        told = self.until(1, 1)
        told_of_us = properties, s8(mechanism), v32(response), s8("en_US")
        self.control(1, 2, *told_of_us, channel=0)
        return told

    def tune(
        self, channels: int = 20, size: int | None = None, beat: int | None = None
    ) -> tuple[int, int, int, int]:
        """Waits for tune, and answers; returns what was offered."""
        offered: tuple[int, int, int, int] = struct.unpack(">HHHH", self.until(1, 5)[2:])
        told = [None if each is None else u16(each) for each in (channels, size, beat)]
        self.control(1, 6, *told, channel=0)
        return offered

    def open(self, *, size: int | None = None, login: bytes = b"\0guest\0guest") -> None:
        """Comes all the way."""
        self.start("PLAIN", login)
        self.tune(size=size)
        self.control(1, 7, s8("/"), channel=0)
        self.until(1, 8)

    def attach(self, name: bytes, *, channel: int = 1, point: int | None = 0) -> None:
        """Attaches a session, whose commands begin at ``point``."""
        self.control(2, 1, v16(name), channel=channel)
        self.until(2, 2)
        if point is not None:
            self.control(2, 7, u32(point), u64(0), channel=channel)

    def subscribe(
        self,
        queue: str,
        *,
        destination: str = "d",
        accept: int = 0,
        acquire: int = 0,
        exclusive: bool = False,
        messages: int | None = 10,
        octets: int = 0xFFFF_FFFF,
    ) -> None:
        """Subscribes, and gives credit."""
        self.command(4, 7, s8(queue), s8(destination), u8(accept), u8(acquire), exclusive)
        if messages is not None:
            self.command(4, 0xA, s8(destination), u8(1), u32(octets))
            self.command(4, 0xA, s8(destination), u8(0), u32(messages))


def delivery_properties(
    key: str | None = None,
    *,
    discards: bool = False,
    immediate: bool = False,
    redelivered: bool = False,
    ttl: int | None = None,
) -> bytes:
    """Writes delivery-properties."""
    lives = None if ttl is None else u64(ttl)
    place = None if key is None else s8(key)
    values: list[Field] = [discards, immediate, redelivered, None, None, lives, None, None]
    return struct32(4, 1, *values, None, place)


def is_redelivered(header: bytes) -> bool:
    """Tells whether the delivery-properties at the head of a header say so."""
    assert header[4:6] == b"\x04\x01"
    return bool(header[6] & 4)


def read_ranges(octets: bytes) -> list[tuple[int, int]]:
    """Reads a sequence-set."""
    size = int.from_bytes(octets[:2], "big")
    words = struct.unpack(f">{size // 4}I", octets[2 : 2 + size])
    return list(zip(words[::2], words[1::2], strict=True))


_names = itertools.count(1)


@contextmanager
def hand(port: int) -> Iterator[Hand]:
    """A client that has said nothing yet."""
    with socket.create_connection(("127.0.0.1", port), SECONDS) as sock:
        yield Hand(sock)


@contextmanager
def session(port: int) -> Iterator[Hand]:
    """A client with a session of its own on channel 1."""
    with hand(port) as found:
        found.open()
        found.attach(b"by hand %d" % next(_names))
        yield found
