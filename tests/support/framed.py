"""A scripted peer of AMQP 1.0 on a real connection, at the level of frames."""

from collections.abc import Callable
from typing import Any, Self, TypeVar

import attrs
import trio

from router.wire.v1_0.frames import AMQP_HEADER, frame, read_frame_header
from router.wire.v1_0.performatives import (
    Attach,
    Begin,
    Flow,
    Open,
    Performative,
    Transfer,
    decode,
    encode,
)
from tests.support.peer import Seen

Record = TypeVar("Record")

SECONDS = 20.0
"""Patience with the other side."""

LARGEST_OCTETS = 1 << 20


def greeting(container: str) -> bytes:
    """What a client says before it attaches anything, all in one write (§2.4.2)."""
    opened = Open(container_id=container, hostname="x")
    begun = Begin(next_outgoing_id=0, incoming_window=1000, outgoing_window=1000)
    return AMQP_HEADER + frame(0, encode(opened)) + frame(0, encode(begun))


@attrs.define(eq=False)
class Framed:
    """One connection; it answers nothing that the script does not.

    Attributes:
        seen: frames that have come and nobody has taken.
    """

    stream: trio.SocketStream
    seen: list[Seen] = attrs.field(factory=list)
    _octets: bytes = b""
    _next_id: int = 0

    @classmethod
    async def dial(cls, port: int, container: str) -> Self:
        """Connects, opens and begins; reads nothing."""
        peer = cls(await trio.open_tcp_stream("127.0.0.1", port))
        await peer.stream.send_all(greeting(container))
        return peer

    async def send(self, *performatives: Performative, payload: bytes = b"") -> None:
        """Sends frames in one write; the payload goes with each."""
        octets = b"".join(frame(0, encode(each), payload) for each in performatives)
        await self.stream.send_all(octets)

    async def transfer(self, tag: bytes, payload: bytes, **fields: Any) -> int:
        """Sends a delivery on handle 0; returns its delivery-id."""
        number, self._next_id = self._next_id, self._next_id + 1
        told: dict[str, Any] = {"settled": False, "message_format": 0} | fields
        await self.send(
            Transfer(handle=0, delivery_id=number, delivery_tag=tag, **told), payload=payload
        )
        return number

    async def flow(self, **fields: Any) -> None:
        """Sends a flow of the link on handle 0, wide open where nothing else is said."""
        base: dict[str, Any] = {
            "next_incoming_id": 0,
            "incoming_window": 1000,
            "next_outgoing_id": self._next_id,
            "outgoing_window": 1000,
            "handle": 0,
        }
        await self.send(Flow(**base | fields))

    async def expect(
        self, kind: type[Record], is_wanted: Callable[[Record], bool] = lambda _: True
    ) -> Record:
        """Reads until a frame of the kind comes; returns it, and forgets those before it."""
        with trio.fail_after(SECONDS):
            while True:
                while self.seen:
                    told = self.seen.pop(0).performative
                    if isinstance(told, kind) and is_wanted(told):
                        return told
                await self._read()

    async def expect_credit(self) -> Flow:
        """Reads until a flow has come that grants credit."""
        return await self.expect(Flow, lambda flow: bool(flow.link_credit))

    async def expect_attach(self) -> Attach:
        """Reads until the answer to an attach has come."""
        return await self.expect(Attach)

    async def expect_transfer(self) -> tuple[Transfer, bytes]:
        """Reads until a transfer has come; returns it and its payload."""
        with trio.fail_after(SECONDS):
            while True:
                while self.seen:
                    seen = self.seen.pop(0)
                    if isinstance(seen.performative, Transfer):
                        return seen.performative, seen.payload
                await self._read()

    async def read_for(self, seconds: float) -> list[Seen]:
        """Reads for a while, or to the end; returns all that nobody has taken."""
        with trio.move_on_after(seconds):
            while await self._read():
                pass
        seen, self.seen = self.seen, []
        return seen

    async def lose(self) -> None:
        """Ends the connection without a word."""
        await trio.aclose_forcefully(self.stream)

    async def _read(self) -> bool:
        octets = await self.stream.receive_some(LARGEST_OCTETS)
        self._octets += octets
        if self._octets.startswith(AMQP_HEADER):
            self._octets = self._octets[len(AMQP_HEADER) :]
        at = 0
        while (header := read_frame_header(self._octets, at, len(self._octets))) is not None:
            if header.end > len(self._octets):
                break
            if header.body < header.end:
                told, payload_at = decode(self._octets, header.body, header.end)
                payload = self._octets[payload_at : header.end]
                self.seen.append(Seen(header.channel, told, payload, header.kind))
            at = header.end
        self._octets = self._octets[at:]
        assert octets, "the other side has ended the connection"
        return True
