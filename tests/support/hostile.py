"""Peers that mean harm, each an attack of a given size on a router: ``hostile.py KIND PORT SIZE``.

Run as a program of its own, so that what it costs the attacker is not the test's. It sends as fast
as the router takes it, reads whatever comes back, and prints one line of JSON: how many octets it
sent, and the conditions that it was told.
"""

import json
import random
import re
import resource
import select
import socket
import struct
import sys
import time
from collections import Counter
from collections.abc import Callable

import attrs

from router.model.outcome import ACCEPTED
from router.model.terminus import Role, Source, Target
from router.wire.v1_0.connection import TRACE
from router.wire.v1_0.flowing import WAYS
from router.wire.v1_0.frames import AMQP_HEADER, frame
from router.wire.v1_0.performatives import Attach, Begin, Disposition, Flow, Open, encode
from router.wire.v1_0.types import Symbol, Ulong

SECONDS = 300
"""The longest that an attack may take."""

CROWD_SECONDS = 5
"""In which a crowd comes, at full size; a smaller one comes as fast."""

CROWD = 1_300

_CONDITION = re.compile(rb"(?:amqp:[a-z:-]+|limits\.\w+: \d+|[A-Z_]{6,} - [ -~]{4,80})")


@attrs.define(eq=False)
class Enemy:
    """A connection of an attacker.

    Attributes:
        sent: octets that the router has taken.
        told: conditions, and limits that were named.
        is_over: the router has closed the connection.
        was_greeted: the router has sent its protocol header.
    """

    port: int
    sock: socket.socket = attrs.field(init=False)
    sent: int = 0
    told: Counter[str] = attrs.field(factory=Counter)
    is_over: bool = False
    was_greeted: bool = False
    _deadline: float = attrs.field(factory=lambda: time.monotonic() + SECONDS)

    def __attrs_post_init__(self) -> None:
        self.sock = socket.create_connection(("127.0.0.1", self.port))
        self.sock.setblocking(False)

    def send(self, octets: bytes) -> bool:
        """Sends all, reading what comes meanwhile; false: the connection is over."""
        left = memoryview(octets)
        while left and not self.is_over:
            ready = self._wait(select.POLLIN | select.POLLOUT, 10)
            if ready & ~select.POLLOUT:
                self._read()
            if ready & select.POLLOUT and not self.is_over:
                try:
                    count = self.sock.send(left)
                except (BrokenPipeError, ConnectionResetError):
                    self.is_over = True
                    break
                self.sent += count
                left = left[count:]
            assert time.monotonic() < self._deadline, "the attack takes too long"
        return not self.is_over

    def listen(self, seconds: float) -> None:
        """Reads until it is told something, or the end, or for a while."""
        until = time.monotonic() + seconds
        while not (self.is_over or self.told) and (left := until - time.monotonic()) > 0:
            if self._wait(select.POLLIN, left):
                self._read()

    def listen_to_the_end(self, seconds: float) -> None:
        """Reads until the router has closed the connection."""
        until = time.monotonic() + seconds
        while not self.is_over and (left := until - time.monotonic()) > 0:
            if self._wait(select.POLLIN, left):
                self._read()

    def _wait(self, events: int, seconds: float) -> int:
        """Waits for the socket; gives what it is ready for."""
        poll = select.poll()
        poll.register(self.sock, events)
        return next((ready for _, ready in poll.poll(seconds * 1000)), 0)

    def _read(self) -> None:
        try:
            octets = self.sock.recv(1 << 18)
        except ConnectionResetError:
            octets = b""
        if not octets:
            self.is_over = True
        if octets.startswith(AMQP_HEADER):
            self.was_greeted = True
        for found in _CONDITION.findall(octets):
            self.told[found.decode()] += 1

    def greet(self, name: str, offers: tuple[Symbol, ...] = ()) -> None:
        """Opens by AMQP 1.0, with one session."""
        self.send(AMQP_HEADER)
        self.perform(
            Open(container_id=name, offered_capabilities=offers),
            Begin(next_outgoing_id=0, incoming_window=1 << 30, outgoing_window=1 << 30),
        )

    def perform(self, *performatives: Open | Begin | Attach) -> bool:
        return self.send(b"".join(frame(0, encode(each)) for each in performatives))


def attach(handle: int, role: Role = Role.SENDER, name: str | None = None) -> Attach:
    return Attach(
        name=name or f"link {handle}",
        handle=handle,
        role=role,
        source=Source(address="flood"),
        target=Target(address="flood"),
        initial_delivery_count=0 if role is Role.SENDER else None,
    )


def slow_handshakes(port: int, size: int) -> list[Enemy]:
    """As many connections as that, each of which says one octet and no more."""
    enemies = []
    for _ in range(size):
        enemy = Enemy(port)
        enemy.send(b"A")
        enemies.append(enemy)
    for enemy in enemies:
        enemy.listen(10)
    return enemies


def oversized_frames(port: int, size: int) -> list[Enemy]:
    """Frames that say they are larger than what was agreed upon, from one connection each."""
    enemies = []
    for number in range(size):
        enemy = Enemy(port)
        enemy.greet(f"large {number}")
        enemy.send(struct.pack(">IBBH", 0x7FFF_FFFF, 2, 0, 0) + bytes(1 << 20))
        enemy.listen(10)
        enemies.append(enemy)
    return enemies


def attaches(port: int, size: int) -> list[Enemy]:
    """So many attaches on one connection, most of them beyond the limit; each is ended again."""
    enemy = Enemy(port)
    enemy.greet("attaches")
    for first in range(0, size, 1500):
        handles = range(first, min(first + 1500, size))
        if not enemy.perform(*(attach(handle % 4096, name=f"{handle}") for handle in handles)):
            break
        ends = b"".join(
            frame(0, b"\x00\x53\x16\xc0\x04\x02\x52%c\x41" % (handle % 256))
            if handle % 4096 < 256
            else frame(
                0, b"\x00\x53\x16\xc0\x07\x02\x70" + (handle % 4096).to_bytes(4, "big") + b"\x41"
            )
            for handle in handles
        )
        if not enemy.send(ends):
            break
    enemy.listen(2)
    return [enemy]


def standing_attaches(port: int, size: int) -> list[Enemy]:
    """So many links that are to stay, until no more are taken."""
    enemy = Enemy(port)
    enemy.greet("standing")
    for handle in range(size):
        if not enemy.perform(attach(handle)):
            break
    enemy.listen(5)
    return [enemy]


def credit(port: int, size: int) -> list[Enemy]:
    """So many flows that grant all the credit there is."""
    enemy = Enemy(port)
    enemy.greet("credit")
    enemy.perform(attach(0, Role.RECEIVER))
    flow = Flow(
        next_incoming_id=0,
        incoming_window=1 << 30,
        next_outgoing_id=0,
        outgoing_window=1,
        handle=0,
        delivery_count=0,
        link_credit=(1 << 32) - 1,
    )
    _repeat(enemy, frame(0, encode(flow)), size)
    return [enemy]


def dispositions(port: int, size: int) -> list[Enemy]:
    """So many dispositions of two thousand million deliveries each."""
    enemy = Enemy(port)
    enemy.greet("dispositions")
    whole = Disposition(Role.RECEIVER, 0, 2**31 - 1, settled=True, state=ACCEPTED)
    _repeat(enemy, frame(0, encode(whole)), size)
    return [enemy]


def echoes(port: int, size: int) -> list[Enemy]:
    """So many flows that ask for an answer, by a peer that reads none."""
    enemy = Enemy(port)
    enemy.greet("echoes")
    flow = Flow(
        next_incoming_id=0,
        incoming_window=1 << 30,
        next_outgoing_id=0,
        outgoing_window=1,
        echo=True,
    )
    octets = frame(0, encode(flow)) * 1000
    enemy.sock.settimeout(2)
    try:
        for _ in range(size // 1000):
            enemy.sock.sendall(octets)
            enemy.sent += len(octets)
    except TimeoutError:
        enemy.told["input stopped"] += 1
    return [enemy]


def ways(port: int, size: int) -> list[Enemy]:
    """So many flows of a peer that says it is a router, and tells of other ways with each."""
    enemy = Enemy(port)
    enemy.greet("ways", offers=(Symbol(TRACE),))
    enemy.perform(*(attach(handle) for handle in range(100)), attach(100, Role.RECEIVER))
    told = [[[Ulong(0), "dc2#1"]], [[Ulong(number), f"dc{number}#1"] for number in range(16)]]
    flow = Flow(
        next_incoming_id=0,
        incoming_window=1 << 30,
        next_outgoing_id=0,
        outgoing_window=1,
        handle=100,
        delivery_count=0,
    )
    both = b"".join(
        frame(0, encode(attrs.evolve(flow, link_credit=each, properties={WAYS: told[each]})))
        for each in (0, 1)
    )
    _repeat(enemy, both, size // 2)
    return [enemy]


def nesting(port: int, size: int) -> list[Enemy]:
    """Attaches whose properties are lists in lists in lists, from one connection each."""
    enemies = []
    for number in range(size):
        enemy = Enemy(port)
        enemy.greet(f"nesting {number}")
        deep = b"\x45"
        for _ in range(6_000):
            length = len(deep) + 4
            deep = b"\xd0" + length.to_bytes(4, "big") + (1).to_bytes(4, "big") + deep
        fields = b"\xa1\x01l" + b"\x43" + b"\x41" + b"\x40" * 10 + deep
        body = b"\x00\x53\x12\xd0" + (len(fields) + 4).to_bytes(4, "big")
        enemy.send(frame(0, body + (14).to_bytes(4, "big") + fields))
        enemy.listen(10)
        enemies.append(enemy)
    return enemies


def tables(port: int, size: int) -> list[Enemy]:
    """Field tables of 0-9-1 that are deep, or that promise more than they hold."""
    deep = b""
    for _ in range(5_000):
        deep = b"\x01kF" + len(deep).to_bytes(4, "big") + deep
    wide = b"\x01kS\x7f\xff\xff\xff"
    many = b"\x01kA\x00\x00\xf0\x00" + b"V" * 0xF000
    enemies = []
    for number in range(size):
        enemy = Enemy(port)
        enemy.send(b"AMQP\x00\x00\x09\x01")
        table = (deep[:120_000], wide, many)[number % 3]
        method = struct.pack(">HH", 10, 11) + len(table).to_bytes(4, "big") + table
        method += b"\x05PLAIN" + (3).to_bytes(4, "big") + b"\0a\0" + b"\x05en_US"
        enemy.send(b"\x01\x00\x00" + len(method).to_bytes(4, "big") + method + b"\xce")
        enemy.listen(10 if number % 3 < 2 else 0.2)
        enemies.append(enemy)
    return enemies


def crowd(port: int, size: int) -> list[Enemy]:
    """Peers of all kinds, some hundred a second.

    Of thirteen, seven send random octets, three send them behind a header of AMQP 1.0, and three
    begin a header and say no more. A few more ask for messages and never read any.
    """
    began = time.monotonic()
    choice = random.Random(size)
    readers = [_slow_reader(port, number) for number in range(size // 26)]
    enemies = []
    for number in range(size):
        time.sleep(max(0.0, began + number * CROWD_SECONDS / CROWD - time.monotonic()))
        enemy = Enemy(port)
        enemies.append(enemy)
        kind = number % 13
        octets = choice.randbytes(200)
        if kind < 7:
            enemy.send(b"\0" + octets)  # or a few of them would begin AMQP/Fast, or TLS
        elif kind < 10:
            enemy.send(AMQP_HEADER + b"\x7f" + octets)
        else:
            enemy.send(AMQP_HEADER[: 1 + number % 7])
    for enemy in enemies:
        enemy.listen_to_the_end(30)
    assert all(not reader.is_over for reader in readers), "a slow reader is no enemy"
    return enemies


def _slow_reader(port: int, number: int) -> Enemy:
    reader = Enemy(port)
    reader.greet(f"slow {number}")
    grant = Flow(
        next_incoming_id=0,
        incoming_window=1 << 30,
        next_outgoing_id=0,
        outgoing_window=1,
        handle=0,
        delivery_count=0,
        link_credit=10_000,
    )
    reader.perform(attach(0, Role.RECEIVER))
    reader.send(frame(0, encode(grant)))
    return reader


def _repeat(enemy: Enemy, octets: bytes, times: int) -> None:
    block = octets * 1000
    for _ in range(times // 1000):
        if not enemy.send(block):
            return
    enemy.listen(0.5)


ATTACKS: dict[str, Callable[[int, int], list[Enemy]]] = {
    each.__name__: each
    for each in (
        slow_handshakes,
        oversized_frames,
        attaches,
        standing_attaches,
        credit,
        dispositions,
        echoes,
        ways,
        nesting,
        tables,
        crowd,
    )
}


def main() -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    kind, port, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    began = time.monotonic()
    enemies = ATTACKS[kind](port, size)
    told: Counter[str] = Counter()
    for enemy in enemies:
        told += enemy.told
    print(
        json.dumps(
            {
                "sent": sum(enemy.sent for enemy in enemies),
                "told": dict(told.most_common(8)),
                "greeted": sum(enemy.was_greeted for enemy in enemies),
                "over": sum(enemy.is_over for enemy in enemies),
                "seconds": round(time.monotonic() - began, 2),
            }
        )
    )


if __name__ == "__main__":
    main()
