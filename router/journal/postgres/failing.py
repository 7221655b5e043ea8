"""What the database does not do for the log, why, and when it is asked again.

    the log wants to     fails when                              works again when
    WRITE   blocks       the database refuses the insert         a group is durable
    RENEW   the lease    it refuses the update                   the lease is renewed
    EXTEND  the segments it refuses to make a partition          one was made
    REACH   the server   no connection is there                  it has done any of these

A failure lasts until the same thing has worked: that there is a connection again says nothing about
a right that is missing or a disk that is full. It is tried again after an eighth of the time for
which it has failed, within bounds: a failure that ends soon is noticed soon, and one that lasts is
no load on the server, nor does it lock the role's account.
"""

import enum
from typing import Final

import attrs

MOST_SECONDS: Final = 5.0
"""The longest pause between two tries."""

_SHARE: Final = 8
_NANOSECONDS: Final = 1_000_000_000


class Want(enum.Enum):
    """See the table of the module; a reason that stands further up explains those below."""

    WRITE = "write"
    RENEW = "renew"
    REACH = "reach"
    EXTEND = "extend"


@attrs.define(eq=False)
class Pauses:
    """When to try again what has failed.

    Attributes:
        least_ns: the shortest pause.
        since_ns: when it failed first; None: it works.
    """

    least_ns: int
    since_ns: int | None = None

    def failed(self, now_ns: int) -> int:
        """Returns when to try again what has failed just now."""
        if self.since_ns is None:
            self.since_ns = now_ns
        longest_ns = max(self.least_ns, int(MOST_SECONDS * _NANOSECONDS))
        pause_ns = (now_ns - self.since_ns) // _SHARE
        return now_ns + min(longest_ns, max(self.least_ns, pause_ns))

    def worked(self) -> None:
        """Forgets the failure."""
        self.since_ns = None


@attrs.define(eq=False)
class _Failure:
    reason: str
    is_full: bool
    pauses: Pauses
    again_ns: int = 0


class Failing:
    """What fails now."""

    def __init__(self, least_ns: int) -> None:
        """Nothing fails yet.

        Args:
            least_ns: the shortest pause between two tries.
        """
        self._least_ns = least_ns
        self._failures: dict[Want, _Failure] = {}

    def __contains__(self, want: Want) -> bool:
        return want in self._failures

    def failed(self, want: Want, reason: str, now_ns: int, *, is_full: bool = False) -> None:
        """Records a failure.

        Args:
            want: what was wanted.
            reason: what the server or libpq says.
            now_ns: any clock that counts nanoseconds and does not step back.
            is_full: the server has no room.
        """
        known = self._failures.get(want)
        if known is None:
            known = self._failures[want] = _Failure(reason, is_full, Pauses(self._least_ns))
        known.reason, known.is_full = reason, is_full
        known.again_ns = known.pauses.failed(now_ns)

    def worked(self, want: Want) -> None:
        """Records that something was done, so the server is there, too."""
        self._failures.pop(want, None)
        self._failures.pop(Want.REACH, None)

    def may_try(self, want: Want, now_ns: int) -> bool:
        """Returns whether something that may fail should be tried now."""
        known = self._failures.get(want)
        return known is None or now_ns >= known.again_ns

    def again_ns(self, want: Want) -> int:
        """Returns when something that fails is tried again."""
        return self._failures[want].again_ns

    def reason_of(self, want: Want) -> str | None:
        """Returns why something fails; None: it does not."""
        known = self._failures.get(want)
        return None if known is None else known.reason

    def due_ns(self, now_ns: int) -> list[int]:
        """Returns when what fails is tried again, as far as that is yet to come."""
        return [each.again_ns for each in self._failures.values() if each.again_ns > now_ns]

    @property
    def reason(self) -> str | None:
        """Why nothing is written; None: nothing keeps the log from it."""
        found = map(self.reason_of, (Want.WRITE, Want.RENEW, Want.REACH))
        return next((each for each in found if each is not None), None)

    @property
    def is_full(self) -> bool:
        """Whether the server has said that it has no room for what is to be written."""
        known = self._failures.get(Want.WRITE)
        return known is not None and known.is_full
