"""Time-slices the input of connections: shares of a turn for input that is not only payload.

Theory of operation. Long engine work, such as thousands of control frames, is time-sliced:
when a connection's share of the turn is over (``SHARE_SECONDS``), the rest of its input waits for
the next turn and nothing more is read from its socket. Input that moves no payload is paid from
one account for all connections (``allowance``): while the account is empty, connections that have
talked long wait in a queue of their own, the *talkers*, which gets ``TALK_SECONDS`` of a turn. So
floods delay others by a millisecond or two and take little of their throughput.

Shares are of real time, because others wait for their end. What counts as talk, and how long the
next slice is, goes by processor time: on a machine that gives its core to other processes now and
then, real time would make a talker of any connection that was being served just then, and cut its
payload into small runs. Each slice is a turn of the core: what moves payload gets slices as long as
``SLICE_SECONDS`` allow, because a delivery costs least in a long run.
"""

import time
from collections.abc import Callable
from typing import Final

import attrs

from router.net.allowance import Allowance
from router.net.connection import Connection, Stage
from router.net.switchboard import Switchboard

SLICE_OCTETS: Final = 4 * 1024
"""Octets of one connection's input that are handled before the first look at the clock."""

LARGEST_SLICE_OCTETS: Final = 64 * 1024
"""The same of a connection that has moved payload: contents of 10 KB are not cut in pieces."""

LARGEST_RUN_OCTETS: Final = 256 * 1024
"""The same of the message store, whose runs the express lane takes whole: a slice costs as much as
some fifty of its messages."""

SHARE_SECONDS: Final = 0.004
"""What one connection may take of a turn: payload seldom takes so long, floods of control frames
do, and others are served between two shares."""

SLICE_SECONDS: Final = SHARE_SECONDS / 2
"""What a slice of payload may take; the next one is cut to that."""

TALK_SECONDS: Final = 0.001
"""What the talkers together may take of a turn."""

DELIVERY_SECONDS: Final = 100e-6
OCTET_SECONDS: Final = 5e-9
"""What a delivery, and an octet, may take before the rest counts as talk. Deliveries take 15 us
(another protocol's, or journaled: 30), octets of payload 1 ns; an attach
takes 300 ns per octet, a flow 80."""


@attrs.define(eq=False)
class Slicer:
    """Passes received octets to engines, and keeps those that exceed a connection's share.

    Attributes:
        switchboard: hands octets to engines, and what they say to the core.
        clock: seconds, on the scale of all deadlines.
        allowance: pays for input that moves nothing.
        busy_clock: processor seconds of this thread.
    """

    switchboard: Switchboard
    clock: Callable[[], float]
    allowance: Allowance
    busy_clock: Callable[[], float] = attrs.field(default=time.thread_time, init=False)
    _backlog: dict[Connection, bytes] = attrs.field(factory=dict, init=False)
    _talkers: dict[Connection, memoryview] = attrs.field(factory=dict, init=False)
    _busy_seconds: float = attrs.field(default=0.0, init=False)

    def is_talker(self, connection: Connection) -> bool:
        """Whether a connection waits for its share."""
        return connection in self._talkers

    @property
    def is_busy(self) -> bool:
        """Whether octets wait to be read, for time or for their share."""
        return bool(self._backlog or self._talkers)

    @property
    def has_talkers(self) -> bool:
        """Whether some wait for their share."""
        return bool(self._talkers)

    def receive(self, connection: Connection, octets: bytes | memoryview) -> None:
        """Passes octets to the engine; those beyond its share wait for the next turn."""
        now = self.clock()
        until = now + SHARE_SECONDS
        begin, slice_octets = 0, connection.slice_octets
        while begin < len(octets):
            if connection.talk.is_long:
                connection.slice_octets = SLICE_OCTETS
                self._talkers[connection] = memoryview(bytes(octets[begin:]))
                self.switchboard.touch(connection)
                return
            if now > until:
                connection.slice_octets = SLICE_OCTETS
                self._backlog[connection] = bytes(octets[begin:])
                self.switchboard.touch(connection)
                return
            part = octets[begin : begin + slice_octets]
            now = self.read(connection, part, now)
            if connection.failure is not None or connection.engine.finished:
                return
            begin += len(part)
            slice_octets = _next_slice(slice_octets, self._busy_seconds)
        is_payload = connection.has_moved and slice_octets > SLICE_OCTETS
        largest = LARGEST_SLICE_OCTETS if is_payload else SLICE_OCTETS
        if connection.brings_runs:
            largest = LARGEST_RUN_OCTETS
        connection.slice_octets = min(slice_octets, largest)

    def read(self, connection: Connection, octets: bytes | memoryview, now: float) -> float:
        """Passes octets to the engine, and charges control input; returns the time after that."""
        length = len(octets)
        began = self.busy_clock()
        moved = self.switchboard.receive(connection, octets, now)
        busy_seconds = self._busy_seconds = self.busy_clock() - began
        later = self.clock()
        connection.has_moved |= moved > 0
        if connection.brings_runs:
            return later  # it never talks, and a few of its octets may stand for many messages
        talk = busy_seconds - moved * DELIVERY_SECONDS - length * OCTET_SECONDS
        if talk > 0:
            self.allowance.spend(talk)
            connection.talk.add(talk, later)
            connection.has_moved &= not connection.talk.is_long
        elif connection.talk.seconds > 0:
            # A slice with a part of a delivery has moved nothing; the slice that ends it makes up.
            connection.talk.add(talk, later)
        return later

    def charge(self, connection: Connection, began: float, octets: int) -> None:
        """Charges what receiving has taken by ``busy_clock`` beyond what the octets may take."""
        talk = self.busy_clock() - began - octets * OCTET_SECONDS
        if talk > 0:
            self.allowance.spend(talk)
            connection.talk.add(talk, self.clock())

    def work_off(self) -> bool:
        """Goes on with what earlier turns had no time for; returns whether any of it was read."""
        was_behind = bool(self._backlog)
        if was_behind:
            backlog, self._backlog = self._backlog, {}
            for connection, octets in backlog.items():
                if connection.stage is Stage.OPEN:
                    self.receive(connection, octets)
                    self.switchboard.touch(connection)
        return (bool(self._talkers) and self._let_talk()) or was_behind

    def _let_talk(self) -> bool:
        """Serves talkers in their order while time and account last; False: none was served."""
        now = self.clock()
        self.allowance.settle(now)
        until = now + TALK_SECONDS
        has_talked = False
        while self._talkers and now < until and not self.allowance.is_empty:
            connection = next(iter(self._talkers))
            octets = self._talkers.pop(connection)
            self.switchboard.touch(connection)
            if connection.stage is Stage.OPEN:
                now = self.read(connection, bytes(octets[:SLICE_OCTETS]), now)
                is_over = connection.failure is not None or connection.engine.finished
                if len(octets) > SLICE_OCTETS and not is_over:
                    self._talkers[connection] = octets[SLICE_OCTETS:]
            has_talked = True
        return has_talked

    def is_behind(self, connection: Connection) -> bool:
        """Whether input of a connection has been received and not been read."""
        return connection in self._backlog or connection in self._talkers

    def forget(self, connection: Connection) -> None:
        """Drops received octets that will not be read any more."""
        self._backlog.pop(connection, None)
        self._talkers.pop(connection, None)


def _next_slice(octets: int, seconds: float) -> int:
    """Returns how many octets to handle next, after some have taken so long."""
    if seconds < SLICE_SECONDS / 2:
        return octets * 2  # payload is cheapest in long runs
    if seconds < SLICE_SECONDS:
        return octets
    return max(SLICE_OCTETS, int(octets * SLICE_SECONDS / seconds))
