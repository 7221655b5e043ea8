"""Shortcuts for runs of records: where they were compiled; elsewhere Python does the same."""

from collections.abc import Callable, Sequence
from typing import Any, cast
from typing import Protocol as Interface

from router.model.compiled import compiled
from router.model.identity import DeliveryKey


class Shortcuts(Interface):
    """What ``_bulk`` offers.

    Attributes:
        Lives: the twin of ``lives.Lives``; takes the ways and the kind of RECEIVED besides.
    """

    Lives: Callable[..., Any]

    def string_rows(  # noqa: PLR0917  a call for each run, of things that are at hand
        self,
        rows: bytearray,
        at: int,
        heap: bytearray,
        row: bytes,
        keys: list[DeliveryKey],
        tags: list[bytes],
        payloads: list[bytes] | None,
        is_held: bool,
        /,
    ) -> bool:
        """Writes rows like ``row``, which is a whole one, each with its key and its strings.

        False: something is unusual, and nothing is changed.
        """

    def bare_rows(
        self, rows: bytearray, at: int, row: bytes, keys: Sequence[DeliveryKey], /
    ) -> bool:
        """Writes rows like ``row`` that differ in their keys alone; False: as above."""

    def forwarded_rows(  # noqa: PLR0917  as above
        self,
        rows: bytearray,
        at: int,
        row: bytes,
        stored: bytes,
        places: bytes,
        begin: int,
        count: int,
        /,
    ) -> None:
        """Writes rows like ``row``: ``count`` messages from ``begin`` on are gone.

        Args:
            rows: of the block under way.
            at: where the first of them goes.
            row: a whole one.
            stored: the rows of the messages.
            places: of the messages, u64 each.
            begin: the first of them that is gone.
            count: how many are.

        Raises:
            ValueError: there are not so many.
        """


shortcuts: Shortcuts | None = cast("Shortcuts | None", compiled("router.journal._bulk"))
"""None: there are none here."""
