"""Shortcuts for runs of records: where they were compiled; elsewhere Python does the same."""

from array import array
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

    def stored_columns(
        self, rows: bytes | memoryview, heap: bytes | memoryview, start: int, /
    ) -> (
        tuple[bytearray, bytearray, bytearray, list[tuple[int, bytes, int, bytearray, int]]] | None
    ):
        """Returns what the STORED rows of a block say of their queues, by columns.

        Args:
            rows: of the block.
            heap: of the block.
            start: octet of the segment at which its first row stands.

        Returns:
            Positions u32, octets u32 and times u64 of all messages; and for each queue its route,
            its address and its priority, the numbers, u32, of its messages among all, and their
            octets in all. None: there is something else in the block, or a row is malformed.
        """

    def cut_rows(
        self, rows: bytes | memoryview, heap: bytes | memoryview, numbers: list[int], base: int, /
    ) -> tuple[bytes, bytes] | None:
        """Cuts messages out of a block, as ``router.journal.store.runs.cut`` does."""

    def gone_columns(
        self, rows: bytes | memoryview, /
    ) -> list[tuple[int, int, bytearray, bytearray]]:
        """Returns what the FORWARDED rows of a block say, by runs of one segment and one queue.

        Returns:
            For each its segment, its queue, the positions, u32, and the octets, u64.
        """

    def mark_gone(
        self, marks: bytearray, positions: "array[int]", octets: "array[int]", /
    ) -> tuple[int, int]:
        """Marks messages as gone; returns how many were not, and their octets.

        Raises:
            ValueError: there are fewer marks.
        """


shortcuts: Shortcuts | None = cast("Shortcuts | None", compiled("router.journal._bulk"))
"""None: there are none here."""
