"""Comparing two databases, so that what one lacks is sent and nothing else is.

Two neighbors compare when they meet, and when a hello shows that their digests differ although
nothing is on its way::

    A                                   B
      -- Summary: a digest a bucket -->
                                        for each bucket that differs:
      <-- Holdings: what B has there --
    for each entry there:
      -- Entries: what B lacks -------->
      -- Ask: what A lacks ------------>
      <-- Entries ----------------------

Both digests being equal, as after a short cut, it costs one hello. One end suffices: the router
with the lower id begins; after a gap in the numbers of ``Entries`` the end that noticed it. A
comparison that brings nothing new, as with a neighbor that keeps what this router refuses, is
repeated ever more rarely.
"""

from collections.abc import Iterator
from typing import Final

import attrs

from router.routes.mesh.database import KEYS_MOST, ORIGINS_MOST, Database
from router.routes.mesh.messages import HELD_MOST
from router.routes.mesh.nouns import Ask, Entry, Held, Holdings, Key, Summary

QUIET_SECONDS: Final = 1.0
"""Digests differ while a change spreads; so they are compared when nothing has changed here for so
long. Floods cross a mesh faster than that."""

PATIENCE_SECONDS: Final = 5.0
"""Where something changes all the time, digests that differ for this long are compared."""

PAUSE_SECONDS: Final = 1.0
PAUSE_SECONDS_MOST: Final = 60.0
LISTED_MOST: Final = KEYS_MOST * ORIGINS_MOST


@attrs.define(eq=False)
class Comparer:
    """When to compare with one neighbor.

    Attributes:
        differs_since: when a hello first showed another digest; None: they are equal.
        listed: of a bucket of which more is to follow.
    """

    differs_since: float | None = attrs.field(default=None, init=False)
    listed: dict[Key, Held] = attrs.field(factory=dict, init=False)
    _began_at: float | None = attrs.field(default=None, init=False)
    _pause: float = attrs.field(default=PAUSE_SECONDS, init=False)

    def hear(self, digest: int, database: Database, now: float) -> bool:
        """Handles the digest of a hello; returns whether to compare now."""
        if digest == database.digest:
            self.differs_since, self._pause = None, PAUSE_SECONDS
            return False
        if self.differs_since is None:
            self.differs_since = now
        if self._began_at is None:
            return self.begin(database, now)
        if now - self._began_at < self._pause:
            return False
        is_quiet = now - database.changed_at >= QUIET_SECONDS
        if not is_quiet and now - self.differs_since < PATIENCE_SECONDS:
            return False
        return self.begin(database, now)

    def begin(self, database: Database, now: float) -> bool:
        """Records that a comparison begins; returns False if the last one has only just begun."""
        if self._began_at is not None:
            if now - self._began_at < PAUSE_SECONDS:
                return False
            is_idle = database.changed_at < self._began_at
            self._pause = min(self._pause * 2, PAUSE_SECONDS_MOST) if is_idle else PAUSE_SECONDS
        self._began_at = now
        return True

    def collect(self, holdings: Holdings) -> dict[Key, Held] | None:
        """Handles holdings; returns what was listed before of their buckets, None: more follows."""
        if holdings.buckets:
            listed, self.listed = self.listed, {}
            return listed
        if len(self.listed) < LISTED_MOST:
            self.listed |= {held.key: held for held in holdings.held}
        return None


def holdings_for(summary: Summary, database: Database) -> Iterator[Holdings]:
    """Yields what answers a summary, one message at a time."""
    buckets: list[int] = []
    held: list[Held] = []
    for bucket, digest in enumerate(summary.digests):
        if digest == database.digests[bucket]:
            continue
        found = database.held_in(bucket)
        if buckets and len(held) + len(found) > HELD_MOST:
            yield Holdings(tuple(buckets), tuple(held))
            buckets, held = [], []
        while len(found) > HELD_MOST:
            yield Holdings((), tuple(found[:HELD_MOST]))
            found = found[HELD_MOST:]
        buckets.append(bucket)
        held += found
    if buckets:
        yield Holdings(tuple(buckets), tuple(held))


def missing_there(holdings: Holdings, before: dict[Key, Held], database: Database) -> list[Entry]:
    """Returns what the sender of holdings lacks and this router has.

    Args:
        holdings: the last message about its buckets.
        before: what the messages before it listed of them.
        database: what this router has.
    """
    theirs = before | {held.key: held for held in holdings.held}
    keys = dict.fromkeys(theirs)
    for bucket in holdings.buckets:
        keys |= dict.fromkeys(held.key for held in database.held_in(bucket))
    lacking = []
    for key in keys:
        ours = database.get(key)
        known = theirs.get(key)
        if ours is not None and (known is None or _order(known) < (ours.version, ours.stamp)):
            lacking.append(ours)
    return lacking


def missing_here(holdings: Holdings, database: Database) -> list[Ask]:
    """Returns what asks for all that the sender of holdings has and this router lacks."""
    keys: list[Key] = []
    for held in holdings.held:
        if _is_wanted(held, database):
            keys.append(held.key)
    return [Ask(tuple(keys[at : at + HELD_MOST])) for at in range(0, len(keys), HELD_MOST)]


def _is_wanted(held: Held, database: Database) -> bool:
    ours = database.get(held.key)
    if ours is not None:
        return (ours.version, ours.stamp) < _order(held)
    known = database.of(held.key.origin)
    return not known or held.version.epoch >= max(one.version.epoch for one in known)


def _order(held: Held) -> tuple[object, int]:
    return held.version, held.stamp
