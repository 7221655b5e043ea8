"""Shares one room among links, so that what they are granted is never more than there is.

    room     what may still come, over all links together; it holds what was granted
    credit   what one link may send of it
    waiting  what it has sent, and what is not counted out of the room yet

    fair share = (room - one for each idle link) / other links, one at least

A link is granted credit up to its fair share. That there is none left for it means that others have
more than theirs, or that there are more links than room. So credit is taken back then: what is more
than a fair share, and all that was not used for ``IDLE_SECONDS``. A link that has lost credit for
that reason is *idle*: it gets one at a time, in turn, until it uses that.
"""

from collections.abc import Hashable
from typing import Final, Generic, TypeVar

import attrs

IDLE_SECONDS: Final = 1.0
"""Credit that nobody has used for so long is taken back, if others need it."""

Key = TypeVar("Key", bound=Hashable)


@attrs.define(eq=False)
class _Share:
    """What one link has; ``used_at``: when it was granted credit, or used some, last."""

    used_at: float
    credit: int = 0
    waiting: int = 0
    is_idle: bool = False


@attrs.define(eq=False)
class Sharing(Generic[Key]):
    """The shares of one room.

    Attributes:
        most: what one link may have, granted and waiting.
        granted: what all links have been granted and not used.
    """

    most: int
    granted: int = attrs.field(default=0, init=False)
    _shares: dict[Key, _Share] = attrs.field(factory=dict, init=False)
    _holders: dict[Key, None] = attrs.field(factory=dict, init=False)  # longest unused first
    _wanting: dict[Key, None] = attrs.field(factory=dict, init=False)
    _idle: int = attrs.field(default=0, init=False)
    _look_at: float | None = attrs.field(default=None, init=False)

    def join(self, key: Key, now: float, waiting: int = 0) -> None:
        """Adds a link without credit, of which something may wait."""
        self._shares[key] = _Share(now, waiting=waiting)
        self._wanting[key] = None

    def leave(self, key: Key) -> None:
        """Removes a link, and what it was granted."""
        share = self._shares.pop(key, None)
        if share is not None:
            self._lower(key, share, 0)
            self._idle -= share.is_idle
            self._wanting.pop(key, None)

    def credit(self, key: Key) -> int:
        """Returns what a link may send."""
        share = self._shares.get(key)
        return 0 if share is None else share.credit

    def __contains__(self, key: Key) -> bool:
        return key in self._shares

    def used(self, key: Key, count: int, now: float, *, waiting: int) -> None:
        """Records that a link has used credit, and how much of what it has sent waits now."""
        share = self._shares.get(key)
        if share is None:
            return
        self._give(key, share, max(0, share.credit - count))
        share.used_at = now
        share.waiting += waiting
        if share.is_idle:
            share.is_idle = False
            self._idle -= 1
        self._wanting[key] = None

    def done(self, key: Key, count: int) -> None:
        """Records that so much of a link waits no more; it is out of the room, or was never in."""
        share = self._shares.get(key)
        if share is not None:
            share.waiting -= count
            self._wanting[key] = None

    @property
    def deadline(self) -> float | None:
        """When ``review`` may find idle links though nothing happens; None: never."""
        return self._look_at

    def review(self, room: int, now: float) -> list[Key]:
        """Grants what is free, and takes back what others need.

        Args:
            room: what may still come, over all links, beside what waits.
            now: the time.

        Returns:
            The links whose credit has changed.
        """
        changed: dict[Key, None] = {}
        self._look_at = None
        if self.granted > room:
            self._take(self.granted - room, 0, now, changed, from_all=True)
        wanting, self._wanting = self._wanting, {}
        can_take = True
        for key in wanting:
            fair = self._fair(room)
            missing = self._wanted(key, fair) - (room - self.granted)
            if missing > 0 and can_take and not self._shares[key].credit:
                can_take = self._take(missing, fair, now, changed)
            self._grant(key, room, now, changed)
        for key in [each for each in self._wanting if each not in wanting]:  # it has lost credit
            del self._wanting[key]
            self._grant(key, room, now, changed)
        if self._wanting and self._holders:
            oldest = self._shares[next(iter(self._holders))].used_at
            self._look_at = (oldest if now < oldest + IDLE_SECONDS else now) + IDLE_SECONDS
        return list(changed)

    def _fair(self, room: int) -> int:
        others = len(self._shares) - self._idle
        return max(1, (room - self._idle) // others) if others else 1

    def _wanted(self, key: Key, fair: int) -> int:
        """Returns how much more a link is to be granted."""
        share = self._shares[key]
        return max(0, min(self.most - share.waiting, 1 if share.is_idle else fair) - share.credit)

    def _grant(self, key: Key, room: int, now: float, changed: dict[Key, None]) -> None:
        """Grants a link what it wants, as far as that is free."""
        wanted = self._wanted(key, self._fair(room))
        share, more = self._shares[key], min(wanted, room - self.granted)
        if more > 0:
            share.used_at = now
            self._give(key, share, share.credit + more)
            changed[key] = None
        if more < wanted:
            self._wanting.pop(key, None)
            self._wanting[key] = None

    def _take(
        self,
        missing: int,
        fair: int,
        now: float,
        changed: dict[Key, None],
        *,
        from_all: bool = False,
    ) -> bool:
        """Takes credit back that is more than a share, or that nobody uses.

        Returns:
            Whether that was enough; if not, nobody has more to give.
        """
        for key in tuple(self._holders):
            if missing <= 0:
                break
            share = self._shares[key]
            is_idle = now - share.used_at >= IDLE_SECONDS and not from_all
            kept = 0 if is_idle else fair
            if share.credit <= kept:
                continue
            taken = min(share.credit - kept, missing) if not is_idle else share.credit
            missing -= taken
            self._lower(key, share, share.credit - taken)
            changed[key] = None
            self._wanting[key] = None
            if is_idle and not share.is_idle:
                share.is_idle = True
                self._idle += 1
        return missing <= 0

    def _lower(self, key: Key, share: _Share, credit: int) -> None:
        """Takes credit back; the link keeps its place among those that hold some."""
        self.granted += credit - share.credit
        share.credit = credit
        if not credit:
            self._holders.pop(key, None)

    def _give(self, key: Key, share: _Share, credit: int) -> None:
        """Changes the credit of a link that has used some now, or was granted some."""
        self.granted += credit - share.credit
        share.credit = credit
        self._holders.pop(key, None)
        if credit:
            self._holders[key] = None
