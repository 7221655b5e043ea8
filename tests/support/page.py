"""A page whose commands run: the fenced blocks of a Markdown file, in one shell, in order.

A block of ``sh`` is run; a block of ``text`` that follows says what it must have printed. A line of
it stands for one that begins with it (white space aside); ``…`` stands for anything.
"""

import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import attrs

_FENCE: Final = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_MARK: Final = "== block"
_ENDING: Final = """\
end() {
    code=$?
    trap - EXIT
    while jobs=$(jobs -pr); [ -n "$jobs" ]; do
        kill $jobs 2>/dev/null || true
        for _ in {1..50}; do [ -z "$(jobs -pr)" ] || sleep 0.1; done
    done
    exit $code
}
trap end EXIT"""
"""Ends what runs in the background, again after five seconds: bash loses a signal for a child that
it has forked and that has not become its program yet."""


@attrs.frozen
class Block:
    """Commands, and the lines that they print.

    Attributes:
        line: of the page, where the commands begin.
    """

    line: int
    commands: str
    printed: tuple[str, ...] = ()


def blocks(page: Path) -> list[Block]:
    """Returns the commands of a page."""
    text = page.read_text(encoding="utf-8")
    found: list[Block] = []
    for match in _FENCE.finditer(text):
        kind, content = match.groups()
        if kind == "sh":
            found.append(Block(text.count("\n", 0, match.start()) + 2, content))
        elif kind == "text":
            found[-1] = attrs.evolve(found[-1], printed=tuple(content.splitlines()))
    return found


def script(of: Sequence[Block]) -> str:
    """Returns a script for bash that runs the blocks and says where each begins.

    It ends with the first command that fails, and then ends what it has started.
    """
    lines = ["exec 2>&1", "set -e -o pipefail", _ENDING]
    for block in of:
        lines += [f"echo {shlex.quote(f'{_MARK} {block.line}')}", block.commands]
    return "\n".join(lines) + "\n"


def outputs(said: str) -> Mapping[int, str]:
    """Splits what a script printed by the line of the page at which each block begins."""
    _, *parts = re.split(rf"^{_MARK} (\d+)\n", said, flags=re.MULTILINE)
    return {int(line): text for line, text in zip(parts[::2], parts[1::2], strict=True)}


def missing(block: Block, said: str) -> list[str]:
    """Returns the lines that a block should have printed and has not, in their order."""
    rest = [_even(line) for line in said.splitlines()]
    lacking = []
    for line in block.printed:
        pattern = ".*".join(map(re.escape, _even(line).split("…")))
        at = next((n for n, each in enumerate(rest) if re.match(pattern, each)), None)
        if at is None:
            lacking.append(line)
        else:
            rest = rest[at + 1 :]
    return lacking


def _even(line: str) -> str:
    return " ".join(line.split())
