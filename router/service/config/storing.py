"""Key ``store`` of a route."""

import enum

import attrs

from router.routes.route import Storing, WhenFull
from router.service.config.kinds import OrWord
from router.service.config.options import Placed, option
from router.service.config.scalars import Flag, Octets, OneOf, Seconds, Whole


class StoredIn(enum.StrEnum):
    """Where messages are stored."""

    FILES = "files"
    JOURNAL = "journal"


@attrs.frozen(kw_only=True)
class Store(Placed):
    """How messages of a route are stored before they are forwarded."""

    octets: int | None = option(
        OrWord(Octets(1)),
        default=None,
        help="most octets that are stored for the route, with some 100 a message for its record",
    )
    messages: int | None = option(
        OrWord(Whole(1, 2**40)),
        default=None,
        unit="messages",
        help="most messages that are stored for the route",
    )
    age: float | None = option(
        OrWord(Seconds(0.001)),
        default=None,
        help="messages that have been stored for longer, or for longer than ttl_seconds, go to"
        " dead_letter",
    )
    full: WhenFull = option(
        OneOf(WhenFull),
        default=WhenFull.REFUSE,
        help="at octets or messages: refuse: senders get no credit and wait; drop-oldest: the"
        " oldest messages go to dead_letter; while that is away, a quarter of the bound is stored"
        " beside it",
    )
    always: bool = option(
        Flag(),
        default=False,
        help="store messages also while the target takes them; if false, they pass it by then",
    )

    in_: StoredIn = option(
        OneOf(StoredIn),
        default=StoredIn.FILES,
        help="files: below router.state, on this machine; journal: where router.journal.store is,"
        " so that a router that takes over has them; the same for all routes with store",
    )

    def as_storing(self, ttl_seconds: float | None) -> Storing:
        """Returns the rules as the rest of the program uses them.

        Args:
            ttl_seconds: of the route: its messages live no longer, wherever they wait.
        """
        limits = [each for each in (self.age, ttl_seconds) if each is not None]
        return Storing(
            octets=self.octets,
            messages=self.messages,
            age_seconds=min(limits, default=None),
            full=self.full,
            always=self.always,
            in_journal=self.in_ is StoredIn.JOURNAL,
        )
