"""A container that speaks AMQP 1.0 frame by frame over a socket to a router that runs.

It does what the test says and no more: it grants no credit, settles nothing and resumes nothing by
itself. Blocking, with a time limit on everything.
"""

import select
import socket
import struct
import time
from collections import Counter
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import attrs

from router.model.outcome import DeliveryState
from router.model.terminus import (
    ALL_OUTCOMES,
    ExpiryPolicy,
    ReceiverSettleMode,
    Role,
    SenderSettleMode,
    Source,
    Target,
)
from router.wire.v1_0.frames import AMQP_HEADER, frame, read_frame_header
from router.wire.v1_0.performatives import (
    Attach,
    Begin,
    Close,
    Detach,
    Disposition,
    End,
    Flow,
    Open,
    Performative,
    SaslPerformative,
    Transfer,
    decode,
    encode,
)

Kind = TypeVar("Kind")
Unsettled = dict[bytes, DeliveryState | None]

SECONDS: Final = 20.0
"""How long a frame is awaited."""

KEPT: Final[dict[str, Any]] = {
    "expiry_policy": ExpiryPolicy.CONNECTION_CLOSE,
    "expiry_seconds": 600,
}
"""A terminus that outlives its connection."""


@attrs.frozen
class Came:
    """A frame that has come."""

    channel: int
    performative: Performative | SaslPerformative
    payload: bytes
    octets: int


@attrs.define(eq=False)
class FrameLine:
    """One connection.

    Attributes:
        largest: the largest frame that has come, in octets.
        sent: transfers, by channel.
        came: frames that have come and that nobody has asked for yet.
    """

    address: str
    container: str
    max_frame_size: int = 65536
    sock: socket.socket = attrs.field(init=False)
    largest: int = attrs.field(default=0, init=False)
    came: list[Came] = attrs.field(factory=list, init=False)
    is_over: bool = attrs.field(default=False, init=False)
    sent: Counter[int] = attrs.field(factory=Counter, init=False)
    _channels: dict[int, int] = attrs.field(factory=dict, init=False)
    _windows: dict[int, int] = attrs.field(factory=dict, init=False)
    _octets: bytearray = attrs.field(factory=bytearray, init=False)

    def __attrs_post_init__(self) -> None:
        host, _, port = self.address.rpartition(":")
        self.sock = socket.create_connection((host, int(port)), timeout=SECONDS)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        own = Open(container_id=self.container, max_frame_size=self.max_frame_size)
        self.sock.sendall(AMQP_HEADER + frame(0, encode(own)))
        while len(self._octets) < len(AMQP_HEADER):
            self._octets += self.sock.recv(8 - len(self._octets))
        assert bytes(self._octets) == AMQP_HEADER
        self._octets.clear()
        self.expect(Open)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.sock.close()

    # --- speaking ---------------------------------------------------------------------------------

    def send(self, *performatives: Performative, payload: bytes = b"", channel: int = 0) -> None:
        """Sends frames in one write; the payload goes with each."""
        self.sock.sendall(b"".join(frame(channel, encode(each), payload) for each in performatives))

    def begin(self, channel: int = 0, **changes: Any) -> None:
        """Begins a session."""
        base = Begin(next_outgoing_id=0, incoming_window=1 << 20, outgoing_window=1 << 20)
        self.send(attrs.evolve(base, **changes), channel=channel)
        self.expect(Begin)

    def attach_sender(
        self,
        name: str,
        address: str,
        unsettled: Unsettled | None = None,
        *,
        handle: int = 0,
        channel: int = 0,
        second: bool = True,
        mode: SenderSettleMode = SenderSettleMode.MIXED,
        **changes: Any,
    ) -> Attach:
        """Attaches a link on which this end sends; returns the answer."""
        base = Attach(
            name=name,
            handle=handle,
            role=Role.SENDER,
            source=Source(address="here", outcomes=ALL_OUTCOMES, **KEPT),
            target=Target(address=address, **KEPT),
            snd_settle_mode=mode,
            rcv_settle_mode=ReceiverSettleMode(int(second)),
            unsettled=unsettled,
            initial_delivery_count=0,
        )
        self.send(attrs.evolve(base, **changes), channel=channel)
        return self.expect(Attach, lambda answer: answer.name == name)

    def attach_receiver(
        self,
        name: str,
        address: str,
        unsettled: Unsettled | None = None,
        *,
        credit: int = 0,
        handle: int = 0,
        channel: int = 0,
        second: bool = True,
        mode: SenderSettleMode = SenderSettleMode.MIXED,
        **changes: Any,
    ) -> Attach:
        """Attaches a link on which this end receives, and grants credit; returns the answer."""
        base = Attach(
            name=name,
            handle=handle,
            role=Role.RECEIVER,
            source=Source(address=address, outcomes=ALL_OUTCOMES, **KEPT),
            target=Target(address="here", **KEPT),
            snd_settle_mode=mode,
            rcv_settle_mode=ReceiverSettleMode(int(second)),
            unsettled=unsettled,
        )
        self.send(attrs.evolve(base, **changes), channel=channel)
        if credit:
            self.grant(credit, handle=handle, channel=channel)
        return self.expect(Attach, lambda answer: answer.name == name)

    def grant(
        self, credit: int, *, handle: int = 0, channel: int = 0, count: int | None = None
    ) -> None:
        """Grants credit; ``count`` is the delivery-count that it is counted from."""
        self.send(
            Flow(
                next_incoming_id=0,
                incoming_window=1 << 30,
                next_outgoing_id=self.sent[channel],
                outgoing_window=1 << 20,
                handle=handle,
                delivery_count=count,
                link_credit=credit,
            ),
            channel=channel,
        )

    def transfer(
        self,
        delivery_id: int | None,
        tag: bytes | None,
        payload: bytes = b"",
        *,
        handle: int = 0,
        channel: int = 0,
        **fields: Any,
    ) -> None:
        """Sends a transfer, as soon as the router's window is open."""
        until = time.monotonic() + SECONDS
        while self.sent[channel] >= self._windows[channel]:
            assert time.monotonic() < until, "the window stays closed"
            self.read(0.1)
        self.sent[channel] += 1
        told: dict[str, Any] = {"message_format": None if tag is None else 0} | fields
        self.send(Transfer(handle, delivery_id, tag, **told), payload=payload, channel=channel)

    def dispose(
        self,
        role: Role,
        first: int,
        last: int | None = None,
        *,
        state: DeliveryState | None = None,
        settled: bool = False,
        channel: int = 0,
    ) -> None:
        """Sends a disposition."""
        self.send(Disposition(role, first, last, settled, state), channel=channel)

    def detach(
        self, handle: int = 0, *, closed: bool = False, channel: int = 0, **fields: Any
    ) -> Detach:
        """Detaches a link; returns the answer."""
        self.send(Detach(handle, closed, **fields), channel=channel)
        return self.expect(Detach)

    # --- hearing ----------------------------------------------------------------------------------

    def read(self, seconds: float) -> bool:
        """Reads what has come, waiting for it at most so long; tells whether anything came."""
        if self.is_over:
            return False
        ready, _, _ = select.select([self.sock], [], [], max(0.0, seconds))
        if not ready:
            return False
        try:
            octets = self.sock.recv(1 << 18)
        except ConnectionResetError:
            octets = b""
        if not octets:
            self.is_over = True
            return False
        self._octets += octets
        self._split()
        return True

    def _split(self) -> None:
        octets, at = bytes(self._octets), 0
        while (header := read_frame_header(octets, at, len(octets))) is not None:
            if header.end > len(octets):
                break
            size = header.end - at
            self.largest = max(self.largest, size)
            if header.body < header.end:
                performative, payload_at = decode(octets, header.body, header.end)
                payload = octets[payload_at : header.end]
                self._open_window(header.channel, performative)
                self.came.append(Came(header.channel, performative, payload, size))
            at = header.end
        del self._octets[:at]

    def _open_window(self, channel: int, said: object) -> None:
        """Notes how many transfers may have been sent in all; sessions begin with number 0."""
        if isinstance(said, Begin):
            self._channels[channel] = said.remote_channel or 0
            self._windows[said.remote_channel or 0] = said.incoming_window
        elif isinstance(said, Flow):
            end = (said.next_incoming_id or 0) + said.incoming_window
            self._windows[self._channels[channel]] = end

    def wait(
        self, kind: type[Kind], wanted: Callable[[Kind], bool] | None = None
    ) -> tuple[Kind, bytes]:
        """Takes the first frame of a kind that is wanted, with its payload; others stay."""
        until = time.monotonic() + SECONDS
        seen = 0
        while True:
            for at in range(seen, len(self.came)):
                found = self.came[at].performative
                if isinstance(found, kind) and (wanted is None or wanted(found)):
                    return found, self.came.pop(at).payload
            seen = len(self.came)
            left = until - time.monotonic()
            if left <= 0 or self.is_over:
                raise AssertionError(f"no {kind.__name__} came, but {self.told()}")
            self.read(left)

    def expect(self, kind: type[Kind], wanted: Callable[[Kind], bool] | None = None) -> Kind:
        """Takes the first frame of a kind that is wanted; others stay."""
        return self.wait(kind, wanted)[0]

    def take(self, *kinds: type[Kind]) -> list[tuple[Kind, bytes]]:
        """Takes all frames of some kinds that have come so far, in order, with their payloads."""
        while self.read(0):
            pass
        found: list[tuple[Kind, bytes]] = []
        others: list[Came] = []
        for each in self.came:
            if isinstance(each.performative, kinds):
                found.append((each.performative, each.payload))
            else:
                others.append(each)
        self.came = others
        return found

    def fence(self, channel: int = 0) -> None:
        """Returns when the router has answered all that was sent on a session before this."""
        self.take(Flow)
        self.send(
            Flow(None, 1 << 30, self.sent[channel], 1 << 20, echo=True),
            channel=channel,
        )
        self.expect(Flow, lambda flow: flow.handle is None)

    def answer_echoes(self, credit: int, channel: int = 0) -> None:
        """Answers flows of links that have come and ask for it, as a receiver (§2.7.4)."""
        for flow, _ in self.take(Flow):
            if flow.echo and flow.handle is not None:
                self.grant(credit, handle=flow.handle, channel=channel, count=flow.delivery_count)

    def told(self) -> list[object]:
        """What has come and was not asked for, flows left out."""
        return [e.performative for e in self.came if not isinstance(e.performative, Flow)]

    # --- ends -------------------------------------------------------------------------------------

    def cut(self) -> None:
        """Resets the connection: what was not read by then is lost on both ways."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()
        self.is_over = True

    def close(self) -> None:
        """Closes the connection in good order."""
        self.send(Close())
        self.expect(Close)
        self.sock.close()

    def end(self, channel: int = 0) -> None:
        """Ends a session in good order."""
        self.send(End(), channel=channel)
        self.expect(End)
