"""How a standby waits for the lease: it looks who leads, and ends when the lease may be taken.

The journal's process of a standby does little else. It looks ten times a second over one
connection, so it notices a lease that was released at once, and one that was not renewed for
``schema.LEASE_SECONDS`` a moment later. To look takes no lock, and costs the leader nothing.

    may be taken    the supervisor of this process works, and the lease was released, or has been
                    the same for three seconds; or this router had it last (its journal's process
                    has started anew)
    turned away     workers that run already: other routes are served without the journal
    yields          a router that was drained for its standby leaves the lease that it has released
                    to that: it takes it back when nobody has taken it for ``YIELD_SECONDS``

Three seconds are those of this machine's CLOCK_BOOTTIME since a renewal was first seen, and what is
then taken is the lease as it was seen (``schema.TAKE``). The database's clock may jump meanwhile.
"""

import contextlib
import selectors
import socket
from collections.abc import Callable
from typing import Final

from router.journal.lifeline import Lifeline
from router.journal.postgres.failing import Pauses
from router.journal.postgres.lease import Leader, boot_ns
from router.journal.postgres.mark import Mark
from router.journal.postgres.pipe import Pipe, PipeState
from router.journal.postgres.schema import LEASE_SECONDS, WHO_LEADS_NOW
from router.journal.postgres.storage import conninfo

LOOK_SECONDS: Final = 0.1
SILENT_SECONDS: Final = 3.0
"""A connection on which nothing comes for so long is given up."""

YIELD_SECONDS: Final = 10.0
"""A standby that runs takes the lease within one; so long nobody else leads, at worst."""

_NANOSECONDS: Final = 1_000_000_000


class Watch:
    """Waits for the lease.

    Attributes:
        yields_until_ns: CLOCK_BOOTTIME until which a lease that this router had is left to others.
    """

    def __init__(
        self,
        url: str,
        router: str,
        holder: str,
        *,
        report: Callable[[Leader | None, str | None], None],
        lifeline: Lifeline | None = None,
        yields: bool = False,
        turned_away: socket.socket | None = None,
        mark: Mark | None = None,
        clock: Callable[[], int] = boot_ns,
    ) -> None:
        """Connects to nothing yet.

        Args:
            url: of the database.
            router: id of the router.
            holder: names this router's place among those with the same id.
            report: called with who leads, or with why that cannot be seen.
            lifeline: a pipe that ends with the supervisor, on which that beats.
            yields: see the head of the module.
            turned_away: where workers connect that are not to wait; None: they may.
            mark: where it is noted how far the leader has come; None: nowhere.
            clock: CLOCK_BOOTTIME, in nanoseconds.

        Raises:
            StoreError: libpq cannot read the URL.
        """
        self._router = router
        self._holder = holder
        self._report = report
        self._lifeline = lifeline
        self._clock = clock
        self._pipe = Pipe(conninfo(url))
        self._turned_away = turned_away
        self._mark = mark
        self._last: Leader | None = None
        self._pauses = Pauses(int(LOOK_SECONDS * _NANOSECONDS))
        self._due_ns = 0
        self._seen: tuple[int, int] | None = None
        self._seen_ns = 0
        self.yields_until_ns = clock() + int(YIELD_SECONDS * _NANOSECONDS) if yields else 0

    def run(self) -> Leader | None:
        """Returns whose lease may be taken; None: the lifeline has closed before."""
        while True:
            self._go_on()
            if self._wait():
                return None
            leader = self._look()
            if leader is not None:
                self._see(leader)
                self._report(leader, None)
                if self.is_free(leader):
                    return leader

    def close(self) -> None:
        """Closes the connection."""
        self._pipe.close()

    def _see(self, leader: Leader) -> None:
        """Records since when the lease is as it is, and looks again when it may be taken."""
        seen = leader.epoch, leader.renewed
        self._note(leader)
        if seen != self._seen:
            self._seen, self._seen_ns = seen, self._clock()
        left = self.unchanged_seconds(leader) - LEASE_SECONDS
        if -LOOK_SECONDS < left < 0:
            self._be_due_in(-left)

    def _note(self, leader: Leader) -> None:
        """Notes what is durable for certain: what the leader has renewed its lease after."""
        last, self._last = self._last, leader
        if self._mark is None or last is None or leader.epoch != last.epoch:
            return
        if leader.renewed > last.renewed > 0:
            self._mark.note_seen(last)

    def unchanged_seconds(self, leader: Leader) -> float:
        """Returns for how long the lease has been seen as it is now."""
        if (leader.epoch, leader.renewed) != self._seen:
            return 0.0
        return (self._clock() - self._seen_ns) / _NANOSECONDS

    def is_free(self, leader: Leader) -> bool:
        """Returns whether this router may try to take the lease."""
        if self._lifeline is not None and not self._lifeline.is_beaten(self._clock()):
            return False
        if leader.holder == self._holder:
            return self._clock() >= self.yields_until_ns
        return not leader.renewed or self.unchanged_seconds(leader) >= LEASE_SECONDS

    def rest(self, until_ns: int | None = None) -> bool:
        """Waits for a moment; returns whether the lifeline has closed meanwhile.

        Args:
            until_ns: CLOCK_BOOTTIME; None: until it looks again.
        """
        if until_ns is None:
            self._be_due_in(LOOK_SECONDS)
            return self._wait()
        while self._clock() < until_ns:
            self._due_ns = until_ns
            if self._wait():
                return True
        return False

    def _go_on(self) -> None:
        """Connects, or asks, when that is due; gives up a connection that is silent."""
        pipe = self._pipe
        if self._clock() < self._due_ns:
            return
        self._be_due_in(SILENT_SECONDS)
        if pipe.state in (PipeState.IDLE, PipeState.LOST):
            pipe.take_unanswered()
            pipe.start()
        elif pipe.state is PipeState.READY and not pipe.in_flight:
            pipe.send(None, WHO_LEADS_NOW, [self._router.encode()])
        else:
            pipe.lose("it does not answer")
        if pipe.state is PipeState.LOST:
            self._lost()

    def _look(self) -> Leader | None:
        """Reads what has come; returns who leads, if that is known now."""
        pipe, before = self._pipe, self._pipe.state
        answers = pipe.advance()
        if pipe.state is PipeState.READY and before is not PipeState.READY:
            self._due_ns = 0
        for answer in answers:
            if answer.error is None and answer.value is not None:
                self._be_due_in(LOOK_SECONDS)
                self._pauses.worked()
                return Leader.of(answer.value.decode())
            pipe.lose(answer.error or f"it has no room for {self._router}: `router journal init`")
        if pipe.state is PipeState.LOST and before is not PipeState.LOST:
            self._lost()
        return None

    def _lost(self) -> None:
        self._report(None, self._pipe.trouble)
        self._due_ns = self._pauses.failed(self._clock())

    def _be_due_in(self, seconds: float) -> None:
        self._due_ns = self._clock() + int(seconds * _NANOSECONDS)

    def _wait(self) -> bool:
        """Waits until something can go on; returns whether the lifeline has closed."""
        with selectors.DefaultSelector() as selector:
            if self._lifeline is not None:
                selector.register(self._lifeline.descriptor, selectors.EVENT_READ, self)
            if self._turned_away is not None:
                selector.register(self._turned_away, selectors.EVENT_READ, self._turn_away)
            if (waits := self._pipe.waits) is not None:
                selector.register(*waits)
            seconds = max(0.0, (self._due_ns - self._clock()) / _NANOSECONDS)
            ready = [key.data for key, _ in selector.select(seconds)]
        if self._turn_away in ready:
            self._turn_away()
        if self._lifeline is None or self not in ready:
            return False
        return not self._lifeline.read(self._clock())

    def _turn_away(self) -> None:
        """Ends connections of workers at once, so that they do not wait."""
        assert self._turned_away is not None
        with contextlib.suppress(OSError):  # none waits any more
            while True:
                self._turned_away.accept()[0].close()
