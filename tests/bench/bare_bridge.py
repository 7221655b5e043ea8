"""A bridge of two 0-9-1 brokers that does the least a bridge can: the yardstick of ``shovel``.

    python -m tests.bench.bare_bridge EAST_PORT WEST_PORT QUEUE PREFETCH

All messages of the queue must be of one size. It reads nothing of them: it cuts what comes into
pieces of that size, puts ``basic.publish`` in the place of ``basic.deliver``, and acknowledges as
far as the other node has confirmed. It routes nothing, checks nothing, and ends with a connection.
"""

import select
import socket
import sys
from typing import Final, TypeVar

import attrs

from router.wire.v0_9_1 import methods as m
from router.wire.v0_9_1.codec import CODEC
from router.wire.v0_9_1.framing import BODY, FRAME, METHOD, OVERHEAD_OCTETS, PROTOCOL_HEADER, frame

READ_OCTETS: Final = 1 << 20
CHANNEL: Final = 1

T = TypeVar("T")


@attrs.define(eq=False)
class Peer:
    """A connection to a broker, with one channel.

    Attributes:
        unread: what came behind the last frame that was taken.
    """

    stream: socket.socket
    unread: bytes = b""

    @classmethod
    def connect(cls, port: int) -> "Peer":
        """Connects and opens the channel."""
        peer = cls(socket.create_connection(("127.0.0.1", port)))
        peer.stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        peer.stream.sendall(PROTOCOL_HEADER)
        peer.take(m.ConnectionStart)
        tune = peer.ask(m.ConnectionStartOk(response=b"\0guest\0guest"), m.ConnectionTune, 0)
        peer.send(m.ConnectionTuneOk(tune.channel_max, tune.frame_max, 0), 0)
        peer.ask(m.ConnectionOpen(), m.ConnectionOpenOk, 0)
        peer.ask(m.ChannelOpen(), m.ChannelOpenOk)
        return peer

    def send(self, method: m.Method, channel: int = CHANNEL) -> None:
        """Writes a method."""
        self.stream.sendall(frame(METHOD, channel, CODEC.encode(method)))

    def ask(self, method: m.Method, answer: type[T], channel: int = CHANNEL) -> T:
        """Writes a method and waits for its answer."""
        self.send(method, channel)
        return self.take(answer)

    def take(self, wanted: type[T]) -> T:
        """Waits for a method; anything else that comes first is an error."""
        while len(self.unread) < FRAME.size or len(self.unread) < _frame_octets(self.unread, 0):
            self.read()
        size = _frame_octets(self.unread, 0)
        method = CODEC.decode(self.unread, FRAME.size, size - 1)
        self.unread = self.unread[size:]
        if not isinstance(method, wanted):
            raise RuntimeError(f"{wanted.__name__} was to come, not {method}")
        return method

    def read(self) -> None:
        """Adds what came to ``unread``."""
        octets = self.stream.recv(READ_OCTETS)
        if not octets:
            raise RuntimeError("the broker closed the connection")
        self.unread += octets


def _frame_octets(octets: bytes, at: int) -> int:
    _, _, size = FRAME.unpack_from(octets, at)
    return int(size) + OVERHEAD_OCTETS


def main() -> None:
    """Bridges until a connection ends."""
    east_port, west_port, queue, prefetch = sys.argv[1:]
    east, west = Peer.connect(int(east_port)), Peer.connect(int(west_port))
    west.ask(m.ConfirmSelect(), m.ConfirmSelectOk)
    east.ask(m.BasicQos(prefetch_count=int(prefetch)), m.BasicQosOk)
    east.ask(m.BasicConsume(queue=queue, consumer_tag="bare"), m.BasicConsumeOk)
    publish = frame(METHOD, CHANNEL, CODEC.encode(m.BasicPublish(routing_key=queue)))
    size, method_octets = measure(east)
    while True:
        whole = len(east.unread) - len(east.unread) % size
        if whole:
            arrived, east.unread = east.unread[:whole], east.unread[whole:]
            starts = range(method_octets, whole, size)
            content_octets = size - method_octets
            west.stream.sendall(
                b"".join([publish + arrived[at : at + content_octets] for at in starts])
            )
        readable, _, _ = select.select([east.stream, west.stream], [], [])
        if east.stream in readable:
            east.read()
        if west.stream in readable:
            west.read()
            east.send(m.BasicAck(confirmed(west), multiple=True))


def measure(east: Peer) -> tuple[int, int]:
    """Waits for the first delivery; returns its octets, and those of its method."""
    at = method_octets = 0
    while True:
        while len(east.unread) < at + FRAME.size:
            east.read()
        kind = east.unread[at]
        at += _frame_octets(east.unread, at)
        method_octets = method_octets or at
        if kind == BODY:
            return at, method_octets


def confirmed(west: Peer) -> int:
    """Takes the confirms that came; returns the last number: the node confirms in order."""
    ack = west.take(m.BasicAck)
    while west.unread:
        ack = west.take(m.BasicAck)
    return ack.delivery_tag


if __name__ == "__main__":
    main()
