"""What a lost connection to the store leaves open for the one that follows it."""

from collections.abc import Collection
from typing import Final, NamedTuple

from router.journal.store.queues import Claim
from router.net.store.inlet import Name


class Unfinished(NamedTuple):
    """What was sent to the core, and is not over.

    Attributes:
        going: what was forwarded, and is not known to be durable, with its outcomes.
        unmet: inlets of exactly-once routes that the core knew. What it has of them is not settled,
            though the store may have nothing left there that would have them begin again.
    """

    going: Collection[tuple[Claim, int]]
    unmet: Collection[Name]


NOTHING: Final = Unfinished((), ())
