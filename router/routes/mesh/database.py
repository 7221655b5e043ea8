"""What a router knows of all others: the newest entry under each key, and digests of them.

Entries are in buckets by their origin. The digest of a bucket is the sum of the stamps of its
entries, modulo 2^64, and that of the database the sum of the buckets': both follow a change at
once, and two databases with the same digest hold the same entries.

Rules
    The greatest (epoch, sequence, stamp) under a key counts. Two entries of one version differ only
    if their origin lied to somebody; all routers then keep the same one.
    An entry of an epoch before the latest of its origin is not kept, whatever its key: it is from
    an earlier life, in which the origin may have had parts that it has not now.
    An origin to which no way leads for ``EXPIRY_SECONDS`` is forgotten. How long that is already
    travels with its entries, so that all forget it at the same time, and none revives it.
"""

import enum
import zlib
from collections.abc import Collection, Iterator
from typing import Final

import attrs

from router.routes.mesh.messages import BUCKETS
from router.routes.mesh.nouns import Entry, Held, Key, RouterId

EXPIRY_SECONDS: Final = 3_600.0
"""A site that is away for longer than this is exchanged as a new one when it comes back."""

KEYS_MOST: Final = 64
"""Keys of one origin, those of unknown kinds among them: bounds what one router can make all
others keep."""

ORIGINS_MOST: Final = 4_096
"""Origins: four times what is measured."""

_MODULUS: Final = 1 << 64


class Place(enum.Enum):
    """What an entry is to a database."""

    NEWER = "newer"
    SAME = "same"
    OLDER = "older"
    RIVAL = "rival"
    """Of the same version as ours, but another one."""
    TOO_MANY = "too many"


def bucket_of(origin: RouterId) -> int:
    """Returns the bucket for the entries of an origin; the same at all routers."""
    return zlib.crc32(origin.encode()) % BUCKETS


@attrs.define(eq=False)
class Database:
    """The entries that a router has.

    Attributes:
        digests: of each bucket.
        digest: of all.
        changed_at: when it last changed.
    """

    digests: list[int] = attrs.field(factory=lambda: [0] * BUCKETS, init=False)
    digest: int = attrs.field(default=0, init=False)
    changed_at: float = attrs.field(default=0.0, init=False)
    _buckets: list[dict[RouterId, dict[Key, Entry]]] = attrs.field(
        factory=lambda: [{} for _ in range(BUCKETS)], init=False
    )
    _idle_since: dict[RouterId, float] = attrs.field(factory=dict, init=False)
    _count: int = attrs.field(default=0, init=False)

    def of(self, origin: RouterId) -> Collection[Entry]:
        """Returns the entries of an origin."""
        return self._buckets[bucket_of(origin)].get(origin, {}).values()

    def get(self, key: Key) -> Entry | None:
        """Returns the entry under a key."""
        return self._buckets[bucket_of(key.origin)].get(key.origin, {}).get(key)

    def origins(self) -> Iterator[RouterId]:
        """Yields the origins of all entries."""
        for bucket in self._buckets:
            yield from bucket

    def held_in(self, bucket: int) -> list[Held]:
        """Returns what is listed for a bucket in a comparison."""
        return [
            Held(entry.key, entry.version, entry.stamp)
            for entries in self._buckets[bucket].values()
            for entry in entries.values()
        ]

    def place(self, entry: Entry) -> Place:
        """Returns what an entry is to this database."""
        entries = self._buckets[bucket_of(entry.key.origin)].get(entry.key.origin)
        if entries is None:
            return Place.NEWER if self._count < ORIGINS_MOST else Place.TOO_MANY
        known = entries.get(entry.key)
        if known is not None and known.version == entry.version:
            return Place.SAME if known.stamp == entry.stamp else Place.RIVAL
        if known is not None:
            return Place.NEWER if entry.version > known.version else Place.OLDER
        epoch = max(one.version.epoch for one in entries.values())
        if entry.version.epoch < epoch:
            return Place.OLDER
        is_full = entry.version.epoch == epoch and len(entries) >= KEYS_MOST
        return Place.TOO_MANY if is_full else Place.NEWER

    def store(self, entry: Entry, now: float) -> list[Entry]:
        """Stores an entry.

        Returns:
            The entries that it replaces: that of its key, and those of earlier epochs.
        """
        bucket = bucket_of(entry.key.origin)
        entries = self._buckets[bucket].get(entry.key.origin)
        if entries is None:
            entries = self._buckets[bucket][entry.key.origin] = {}
            self._count += 1
        epoch = entry.version.epoch
        gone = [
            one for key, one in entries.items() if key == entry.key or one.version.epoch < epoch
        ]
        for one in gone:
            del entries[one.key]
        entries[entry.key] = entry
        self._add(bucket, entry.stamp - sum(one.stamp for one in gone), now)
        return gone

    def forget(self, origin: RouterId, now: float) -> list[Entry]:
        """Removes the entries of an origin, and returns them."""
        bucket = bucket_of(origin)
        gone = list(self._buckets[bucket].pop(origin, {}).values())
        self._idle_since.pop(origin, None)
        if gone:
            self._count -= 1
            self._add(bucket, -sum(one.stamp for one in gone), now)
        return gone

    def mark_reached(self, reached: Collection[RouterId], now: float) -> None:
        """Records which origins can be reached now."""
        for origin in self.origins():
            if origin in reached:
                self._idle_since.pop(origin, None)
            else:
                self._idle_since.setdefault(origin, now)

    def mark_idle(self, origin: RouterId, seconds: int, now: float) -> None:
        """Records for how long a neighbor has seen no way to an origin that is new here."""
        if seconds:
            self._idle_since.setdefault(origin, now - seconds)

    def idle_seconds(self, origin: RouterId, now: float) -> int:
        """Returns for how long no way has led to an origin."""
        since = self._idle_since.get(origin)
        return 0 if since is None else max(0, int(now - since))

    def expired(self, now: float) -> list[RouterId]:
        """Returns the origins that are to be forgotten."""
        due = self._idle_since.items()
        return [origin for origin, since in due if now - since >= EXPIRY_SECONDS]

    def next_expiry(self) -> float | None:
        """Returns when an origin is to be forgotten."""
        since = min(self._idle_since.values(), default=None)
        return None if since is None else since + EXPIRY_SECONDS

    def _add(self, bucket: int, stamps: int, now: float) -> None:
        self.digests[bucket] = (self.digests[bucket] + stamps) % _MODULUS
        self.digest = (self.digest + stamps) % _MODULUS
        self.changed_at = now
