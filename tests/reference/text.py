"""Markdown that the pages of the reference are made of."""

from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Returns the lines of a table, followed by an empty one."""
    lines = [_row(head), _row(["---"] * len(head))]
    return [*lines, *map(_row, rows), ""]


def code(text: str) -> str:
    """Returns a text in the type of code."""
    return f"`{text}`" if text else ""


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def page(title: str, made_from: str, lines: Iterable[str]) -> str:
    """Returns a whole page.

    Args:
        title: its heading.
        made_from: where the facts stand in the code.
        lines: what follows.
    """
    mark = f"<!-- Made from {made_from} by `python -m tests.reference`; do not edit. -->"
    return "\n".join([f"# {title}", "", mark, "", *lines]).rstrip() + "\n"
