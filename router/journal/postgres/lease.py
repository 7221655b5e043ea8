"""How long this router may still act as the leader, where its processes can see it.

The journal's process renews the lease in the database, and writes how long it holds into a file
that the workers have mapped. All of them read CLOCK_BOOTTIME, which goes on while the machine
sleeps, so a process that was stopped or slept finds that its time is over before it sends anything.

    octet  0         8                            16
          +---------+----------------------------+
          | epoch   | CLOCK_BOOTTIME, in ns,     |
          | u64     | at which it ends, u64      |
          +---------+----------------------------+

The journal's process counts ``HELD_SECONDS`` from the time at which it *asked* for the renewal;
others wait ``schema.LEASE_SECONDS`` from the time at which the database noted it, which is later.
"""

import contextlib
import json
import mmap
import os
import struct
import time
from pathlib import Path
from typing import Final

import attrs

HELD_SECONDS: Final = 2.0
LEASE_NAME: Final = "journal.lease"
LOGIN_KEY_NAME: Final = "login.key"
MOVED: Final = "moved to files"
"""Holder of the lease of a journal that was moved to files; ``place`` says where these are."""

FENCED: Final = 3
"""Exit code of a journal's process that has learned that another router leads."""

_FORM: Final = struct.Struct("<QQ")
_NANOSECONDS: Final = 1_000_000_000
_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def boot_ns() -> int:
    """Returns CLOCK_BOOTTIME in nanoseconds."""
    return time.clock_gettime_ns(_CLOCK)


@attrs.frozen(kw_only=True)
class Leader:
    """Who leads, as the row of the lease says.

    Attributes:
        epoch: of the lease; 0: no router has led yet.
        holder: names the leader's state directory.
        place: its machine and process, for people.
        since: when it took the lease, in seconds since 1970, by the database's clock.
        age_seconds: since the lease was renewed, by that clock; very large: it was released.
        renewed: when, in microseconds since 1970 by that clock; 0: it was released.
        address: where peers reach the leader, one entry for each listener of the file, in its
            order: host:port, or None if that is not known.
        newest: the newest segment with something durable; 0: none, or it is not known.
    """

    epoch: int
    holder: str
    place: str
    since: float
    age_seconds: float
    renewed: int = 0
    address: tuple[str | None, ...] = ()
    newest: int = 0

    @classmethod
    def of(cls, text: str) -> "Leader":
        """Reads what ``schema.WHO_LEADS`` returns."""
        found = json.loads(text)
        return cls(
            epoch=int(found["epoch"]),
            holder=found["holder"],
            place=found["place"],
            since=float(found["since"]),
            age_seconds=float(found["age"]),
            renewed=int(found["renewed"]),
            address=tuple(found["address"]),
            newest=int(found["newest"]),
        )

    @property
    def text(self) -> str:
        """The same, in one line that ``of`` reads."""
        return json.dumps(
            {
                "epoch": self.epoch,
                "holder": self.holder,
                "place": self.place,
                "since": self.since,
                "age": self.age_seconds,
                "renewed": self.renewed,
                "address": self.address,
                "newest": self.newest,
            }
        )

    def __str__(self) -> str:
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.since))
        return f"the router on {self.place} leads since {since}"


class LeaseFile:
    """The file, mapped; made if it is missing."""

    @classmethod
    def begin(cls, path: Path) -> None:
        """Makes the file anew: no process that lives has seen a lease.

        A process of an earlier life that still has the earlier file mapped never holds a lease
        again.

        Raises:
            OSError: the file cannot be made.
        """
        if path.exists():
            earlier = cls(path)
            earlier.let_go()
            earlier.close()
            path.unlink()
        cls(path).close()

    def __init__(self, path: Path) -> None:
        """Maps it.

        Raises:
            OSError: it cannot be made.
        """
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if os.fstat(file).st_size < _FORM.size:
                os.ftruncate(file, _FORM.size)
            self._map = mmap.mmap(file, _FORM.size)
        finally:
            os.close(file)

    @property
    def epoch(self) -> int:
        """The last lease's; 0: there was none."""
        return int(_FORM.unpack_from(self._map)[0])

    @property
    def is_held(self) -> bool:
        """Whether this router may act as the leader now."""
        return boot_ns() < int(_FORM.unpack_from(self._map)[1])

    def hold(self, epoch: int, asked_ns: int) -> None:
        """Records a renewal.

        Args:
            epoch: of the lease.
            asked_ns: CLOCK_BOOTTIME when it was asked for.
        """
        ends_ns = asked_ns + int(HELD_SECONDS * _NANOSECONDS)
        _FORM.pack_into(self._map, 0, epoch, ends_ns)

    def let_go(self) -> None:
        """Records that the lease is not held any more."""
        _FORM.pack_into(self._map, 0, self.epoch, 0)

    @property
    def age_seconds(self) -> float:
        """Time since the last renewal was asked for; without one, a very long time."""
        ends_ns = int(_FORM.unpack_from(self._map)[1])
        return (boot_ns() - ends_ns) / _NANOSECONDS + HELD_SECONDS

    def close(self) -> None:
        """Unmaps it."""
        with contextlib.suppress(BufferError):
            self._map.close()
