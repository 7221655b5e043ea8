"""Shortcuts for runs of records: where they were compiled; elsewhere Python does the same."""

from array import array
from collections.abc import Callable, Sequence
from typing import Any, cast
from typing import Protocol as Interface

from router.model.compiled import compiled
from router.model.identity import DeliveryKey

Octets = bytes | bytearray | memoryview


class Shortcuts(Interface):
    """What ``_bulk`` offers.

    Attributes:
        Lives: the twin of ``lives.Lives``; takes the ways and the kind of RECEIVED besides.
    """

    Lives: Callable[..., Any]

    def crc32(self, octets: "Octets", value: int = 0, /) -> int:
        """Returns the CRC-32 of octets behind others, whose CRC-32 is ``value``; as zlib's."""

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

    def gone_body(self, stored: Octets, places: Octets, begin: int, count: int, /) -> bytes:
        """Returns where messages stand, and what their records take, as ``store.gone`` draws it.

        Args:
            stored: the rows of messages.
            places: of these, u64 each.
            begin: the first of them that counts.
            count: how many do.

        Raises:
            ValueError: there are not so many.
        """

    def stored_columns(
        self, rows: bytes | memoryview, heap: bytes | memoryview, start: int, /
    ) -> (
        tuple[
            bytearray,
            bytearray,
            bytearray,
            list[tuple[int, bytes, int, bytearray, int, bytearray]],
        ]
        | None
    ):
        """Returns what the STORED rows of a block say of their queues, by columns.

        Args:
            rows: of the block.
            heap: of the block.
            start: octet of the segment at which its first row stands.

        Returns:
            Positions u32, octets u32 and times u64 of all messages; and for each queue its route,
            its address and its priority, the numbers, u32, of its messages among all, their octets
            in all, and the numbers of those that are in parts or have a time to live. None: there
            is something else in the block, or a row is malformed.
        """

    def place_list(self, positions: "Octets | array[int]", segment: int, /) -> list[int]:
        """Returns the places of messages of a segment, whose positions are u32 each."""

    def place_octets(self, positions: Octets, segment: int, /) -> bytes:
        """Returns the same, u64 each."""

    def chosen_positions(  # noqa: PLR0917  as above
        self,
        numbers: "array[int]",
        first: int,
        last: int,
        positions: "array[int]",
        blocks: "array[int]",
        times: "array[int]",
        /,
    ) -> tuple[list[tuple[int, bytes]], int]:
        """Returns where some messages stand, by block, and when the oldest came.

        Args:
            numbers: of messages among all of the segment.
            first: of ``numbers`` that counts.
            last: the first that does not count any more.
            positions: of all messages of the segment.
            blocks: that these begin in.
            times: when these came.
        """

    def stretches_of(
        self, numbers: "array[int]", positions: "array[int]", /
    ) -> tuple[bytes, bytes]:
        """Returns how messages of a segment stand side by side.

        Args:
            numbers: of messages among all of the segment, ascending.
            positions: of all messages of the segment.

        Returns:
            The position of the first message of each stretch, and how many messages there are up
            to its end; u32 each.

        Raises:
            ValueError: a number is beyond the end of the column.
        """

    def number_queue(
        self, numbers: "array[int]", before: int, queues: "array[int]", queue: int, /
    ) -> bytes:
        """Returns numbers, u32, each greater by ``before``; and names a queue at them in a column.

        Raises:
            ValueError: a number is beyond the end of the column.
        """

    def usual_octets(self, rows: Octets, heap: Octets, positions: Octets, start: int, /) -> int:
        """Returns the octets of the strings of messages of a block; -1: one of them is unusual.

        Args:
            rows: of the block.
            heap: of the block.
            positions: of the messages, u32.
            start: octet of the segment at which the first row of the block stands.
        """

    def compose_run(  # noqa: PLR0917  as above
        self,
        out: bytearray,
        at: int,
        pieces: list[tuple[Octets, Octets, Octets, int]],
        count: int,
        octets: int,
        segment: int,
        /,
    ) -> None:
        """Writes the rows of a run, their strings and their places, at ``at``.

        Args:
            out: where they go.
            at: the octet of it at which the first row goes.
            pieces: for each block what ``usual_octets`` takes.
            count: of all messages.
            octets: of all their strings.
            segment: that they stand in.

        Raises:
            ValueError: there are not so many usual ones, or there is no room.
        """

    def usual_strings(self, rows: bytearray | memoryview, base: int, /) -> tuple[int, int] | None:
        """Has rows that follow each other in a block point to where their strings will be.

        Args:
            rows: that are changed.
            base: octets of other strings that will stand before theirs.

        Returns:
            Where in the heap of the block their strings begin, and how many octets they have. None:
            a row is unusual, or other strings stand between theirs; the rows may have been changed.
        """

    def read_run(  # noqa: PLR0917  as above
        self,
        file: int,
        flags: int,
        pieces: "Sequence[tuple[int, int, bytes]]",
        room: bytearray,
        segment: int,
        least_stretch: int,
        most_strings: int,
        /,
    ) -> tuple[int, int] | None:
        """Reads the messages of a reference: their rows, their strings and their places.

        Args:
            file: of the segment.
            flags: of preadv2.
            pieces: for each block its offset, that of its heap, and the positions, u32, of the
                messages.
            room: where they go; it grows.
            segment: its number.
            least_stretch: messages that stand side by side, in the mean.
            most_strings: octets of their strings that are believed.

        Returns:
            How many messages, and the octets of their strings. None: too few stand side by side.

        Raises:
            OSError: the system has refused to read, or would have to wait.
            EOFError: there are fewer octets, or fewer at hand.
            ValueError: a message is not as its reference says.
        """

    def set_marks(self, marks: bytearray, positions: "array[int]", is_set: bool, /) -> int:
        """Sets or clears the marks of messages, and returns how many were not so before."""

    def is_any_marked(self, marks: bytearray, positions: Octets, /) -> bool:
        """Returns whether one of some messages is marked as gone; their positions are u32."""

    def marked_positions(self, marks: bytearray, positions: "array[int]", /) -> bytes:
        """Returns those of some positions that are marked, each once; u32 each."""

    def gone_columns(
        self, rows: bytes | memoryview, heap: bytes | memoryview, /
    ) -> list[tuple[int, int, bytearray, bytearray, int]]:
        """Returns what a block says to be gone, by runs of one segment and one queue.

        Returns:
            For each its segment, its queue, the positions, u32, the octets, u64, and how many rows
            say so.
        """

    def mark_gone(
        self, marks: bytearray, positions: "array[int]", octets: "array[int]", /
    ) -> tuple[int, int]:
        """Marks messages as gone; returns how many were not, and their octets. The marks grow.

        Raises:
            ValueError: there are not as many octets as positions.
        """


shortcuts: Shortcuts | None = cast("Shortcuts | None", compiled("router.journal._bulk"))
"""None: there are none here."""
