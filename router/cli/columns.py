"""Tables that fit their width: names are shortened in the middle, and numbers never.

The columns of a table are rigid, or hold names. Rigid ones get the width that they need. Names
share what is left, each as much as the others unless it needs less, and both ends of a name stay,
for names that differ often differ there alone.
"""

from collections.abc import Collection, Sequence
from typing import Final

from rich.table import Table
from rich.text import Text

NAME_LEAST: Final = 7
"""Least width of a name, however narrow the terminal is."""


def shorten(text: Text, most: int) -> Text:
    """Returns a text of at most so many cells, with its middle left out."""
    if text.cell_len <= most:
        return text
    short = text
    for kept in range(most - 1, 0, -1):  # letters that are two cells wide make it fewer
        tail = kept // 2
        end = text[len(text) - tail :] if tail else Text()
        short = Text.assemble(text[: kept - tail], "…", end)
        if short.cell_len <= most:
            break
    return short


class Columns:
    """A table whose names are shortened to what its width leaves them."""

    def __init__(
        self, *columns: str, names: Collection[str], texts: Collection[str] = (), width: int
    ) -> None:
        """Makes an empty table.

        Args:
            columns: headers.
            names: those of columns whose texts may be shortened.
            texts: those of the others that hold words; the rest holds numbers.
            width: of the terminal.
        """
        self._columns = columns
        self._names = names
        self._texts = texts
        self._width = width
        self._rows: list[list[Text]] = []

    def add(self, *cells: Text | str) -> None:
        """Adds a row."""
        self._rows.append([Text(cell) if isinstance(cell, str) else cell for cell in cells])

    def table(self) -> Table:
        """Returns the table as it fits the width."""
        gap = 1 if self._width < _ROOMY else 2
        widths = self._fit(gap)
        table = Table(box=None, padding=(0, gap, 0, 0), pad_edge=False, header_style="dim")
        for name, width in zip(self._columns, widths, strict=True):
            is_text = name in self._names or name in self._texts
            justify = "left" if is_text else "right"
            table.add_column(name, justify=justify, no_wrap=True, min_width=width)  # type: ignore[arg-type]
        for row in self._rows:
            table.add_row(*(shorten(cell, width) for cell, width in zip(row, widths, strict=True)))
        return table

    def _fit(self, gap: int) -> list[int]:
        widths = [
            max(len(name), *(row[place].cell_len for row in self._rows), 0)
            for place, name in enumerate(self._columns)
        ]
        names = [place for place, name in enumerate(self._columns) if name in self._names]
        left = self._width - gap * len(widths)
        left -= sum(width for place, width in enumerate(widths) if place not in names)
        for place, width in zip(names, _share(left, [widths[each] for each in names]), strict=True):
            widths[place] = width
        return widths


_ROOMY: Final = 110
"""Width from which on columns are two cells apart."""


def _share(room: int, wanted: Sequence[int]) -> list[int]:
    """Shares room evenly; what one does not want is for the others."""
    given = [0] * len(wanted)
    left = room
    for place, _ in sorted(enumerate(wanted), key=lambda each: each[1]):
        others = sum(not width for width in given)
        given[place] = max(NAME_LEAST, min(wanted[place], left // others))
        left -= given[place]
    return given
