"""The world of ``lane_world`` with real sockets, which the kernel's carrier reads and writes.

What peers send is cut into pieces as streams are; what is not the lane's is done with in the
simplest way. Some sockets take little at a time, so that output has to wait for them.
"""

import random
import select
import socket
import struct
from typing import Any, Self

from router.wire.v1_0.express import Express
from tests.support.lane_world import World

PIECES = (1, 7, 100, 5000, 1 << 20)
ROUNDS = 10_000
"""More than any conversation takes until all has been sent."""


class CarriedWorld(World):
    """Peers at the other ends of sockets."""

    def __init__(
        self, express: Express, seed: int, high_octets: int = 1 << 20, others: int = -1
    ) -> None:
        super().__init__(express, high_octets)
        self.choice = random.Random(seed)
        self.epoll = select.epoll()
        carrier = express.make_carrier(self.epoll.fileno(), self._take, self._fail, others)
        assert carrier is not None
        self.carrier = carrier
        self.here: list[socket.socket] = []
        self.there: list[socket.socket] = []
        self.rests: list[bytes] = []
        self.by_descriptor: dict[int, int] = {}
        self.left: list[object] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for state in self.connections:
            self.carrier.forget(state)
        for each in (*self.here, *self.there):
            each.close()
        self.epoll.close()

    def connect(self, sessions: int = 1, window: int = 2048, first_id: int = 0) -> int:
        index = super().connect(sessions, window, first_id)
        here, there = self.pair()
        if self.choice.random() < 0.5:
            here.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        for each in (here, there):
            each.setblocking(False)
        self.here.append(here)
        self.there.append(there)
        self.rests.append(b"")
        self.by_descriptor[here.fileno()] = index
        self.epoll.register(here, select.EPOLLIN)
        self.carrier.watch(here.fileno(), self.connections[index])
        return index

    def pair(self) -> tuple[socket.socket, socket.socket]:
        return socket.socketpair()

    def feed(self, connection: int, octets: bytes) -> list[object]:
        self.left = []
        at = 0
        size = self.choice.choice(PIECES)
        while at < len(octets):
            if at > 200:
                size = max(size, 5000)  # else it takes for ever
            at += self.there[connection].send(octets[at : at + size])
            self._turn()
        return self.left

    def end_turn(self) -> list[Any]:
        left = self.express.end_turn()
        for index in left:
            self._write(index)
        return left

    def send(self, connection: int, most: int = 1 << 30) -> bytes:
        """Lets a peer read what has been sent to it."""
        try:
            octets = self.there[connection].recv(min(most, 1 << 20))
        except BlockingIOError:
            octets = b""
        self.received[connection] += octets
        self._turn()
        return octets

    def drain(self) -> list[bytes]:
        """Lets all peers read all there is; gives what does not make up a whole frame."""
        for _ in range(ROUNDS):
            self.end_turn()
            were_sent = [self.send(index) for index in range(len(self.connections))]
            if not any(were_sent) and not any(each.output.octets for each in self.connections):
                return [_behind_frames(bytes(each)) for each in self.received]
        raise AssertionError("output is stuck")

    def _turn(self) -> None:
        while self.carrier.turn(0.0, 60.0):
            pass

    def _take(self, descriptor: int, readiness: int, octets: bytes | None) -> None:
        index = self.by_descriptor[descriptor]
        state = self.connections[index]
        if readiness & select.EPOLLOUT:
            self._write(index)
        if octets is None:
            if not readiness & select.EPOLLIN:
                return
            octets = self.here[index].recv(1 << 18)
        octets = self.rests[index] + state.take_tail(octets)
        left = super().feed(index, octets)
        at = _behind_frames(octets)
        self.left += left
        is_sane = len(at) < 4 or 8 <= struct.unpack_from(">I", at)[0] <= 65536
        state.has_input = bool(at) and is_sane and not state.keep_tail(at, 0)
        self.rests[index] = at if state.has_input else b""

    def _fail(self, descriptor: int, error: Exception) -> None:
        raise error

    def _write(self, index: int) -> None:
        state = self.connections[index]
        is_blocked = not self.carrier.write(state)
        state.interest = select.EPOLLIN | (select.EPOLLOUT if is_blocked else 0)
        self.epoll.modify(self.here[index], state.interest)


def _behind_frames(octets: bytes) -> bytes:
    """Gives what is behind the last whole frame."""
    at = 0
    while len(octets) - at >= 8:
        (size,) = struct.unpack_from(">I", octets, at)
        if size < 8 or size > len(octets) - at:
            break
        at += size
    return octets[at:]
