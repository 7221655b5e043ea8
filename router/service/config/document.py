"""Parses YAML into a tree in which every value has its line and column.

The tree is built from PyYAML's parsing events rather than by its composer, for three reasons:
duplicate keys are detected, nesting is bounded (libyaml's composer overflows the stack on a file of
``[[[[``), and every scalar keeps its original text, so that the option, not YAML 1.1, decides what
``off``, ``1_0`` or a secret ``0123`` means.
"""

import re
from collections.abc import Callable
from typing import Final, NoReturn

import attrs
import yaml

from router.model.text import is_text
from router.routes.route import Position
from router.service.config.problems import ConfigError, Problem

DEEPEST_NESTING: Final = 32
"""Levels of lists and mappings; the options need six."""

_NULLS: Final = frozenset(["", "~", "null", "Null", "NULL"])
_WILDCARD: Final = re.compile(r"[\s\[{,]#(?:[.,/\]}]|\s*$)")
"""A comment that looks like a wildcard."""

_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@attrs.frozen
class Scalar:
    """A text.

    Attributes:
        is_null: nothing was written, or ``null`` without quotes.
        is_quoted: it was written in quotes or as a block, so it is a text whatever it says.
        is_cut: it ends in '.' or '/' before a comment, whose '#' may be meant as a wildcard.
    """

    text: str
    position: Position
    is_null: bool = False
    is_quoted: bool = False
    is_cut: bool = False


@attrs.frozen(eq=False)
class Items:
    """A list."""

    position: Position
    items: list["Node"] = attrs.field(factory=list)


@attrs.frozen(eq=False)
class Entries:
    """A mapping: name -> (key, value), in the order of the file."""

    position: Position
    entries: dict[str, tuple[Scalar, "Node"]] = attrs.field(factory=dict)


Node = Scalar | Items | Entries


def parse_document(text: str, file: str, report: Callable[[Problem], None]) -> Node | None:
    """Parses one YAML document.

    Args:
        text: the document.
        file: its name, for positions.
        report: called with each problem that does not stop parsing (duplicate keys).

    Returns:
        The root; None if the document is empty.

    Raises:
        ConfigError: the text is not YAML, or uses unsupported features (tags, several documents).
    """
    builder = _Builder(file, report, text)
    try:
        for event in yaml.parse(text, Loader=_LOADER):
            builder.take(event)
    except yaml.YAMLError as error:
        raise ConfigError([_syntax_problem(error, text, file)]) from None
    except ValueError:  # lone surrogates, which no file in UTF-8 can hold
        problem = "the text cannot be encoded as UTF-8"
        raise ConfigError([Problem(Position(file, 1, 1), problem)]) from None
    return builder.root


def _syntax_problem(error: yaml.YAMLError, text: str, file: str) -> Problem:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        mark = error.problem_mark
        said = " ".join(part for part in (error.context, error.problem) if part)
        return Problem(
            Position(file, mark.line + 1, mark.column + 1),
            f"not YAML: {said}{_way_out(said, error, text)}",
        )
    offset = getattr(error, "position", 0)
    before = text[:offset]
    position = Position(file, before.count("\n") + 1, offset - (before.rfind("\n") + 1) + 1)
    return Problem(position, f"not YAML: {getattr(error, 'reason', error)}")


def _way_out(said: str, error: yaml.MarkedYAMLError, text: str) -> str:
    """Returns a hint for a common mistake; nothing for others."""
    mark = error.problem_mark
    assert mark is not None
    line = next(iter(text.splitlines()[mark.line : mark.line + 1]), "")
    begun = "" if error.context_mark is None else f" in line {error.context_mark.line + 1}"
    for is_it, way_out in (
        ("alias" in said, "a text that begins with '*' needs quotes"),
        (
            "flow" in said and _has_comment(text, error),
            "a '#' after a space or a bracket begins a comment: a pattern with it needs quotes",
        ),
        ("\t" in line[: mark.column + 1], "there is a tab: YAML is indented with spaces"),
        ("flow" in said and "${" in line, "between { and } a text with '${' needs quotes"),
        (
            "mapping values" in said,
            "is it indented too far, or does a text with ': ' in it want quotes?",
        ),
        ("quoted scalar" in said, f"the quotes are opened{begun}"),
        ("flow" in said, f"the bracket is opened{begun}"),
        ("block" in said, f"is it indented like its neighbors, which begin{begun}?"),
    ):
        if is_it:
            return f"; {way_out}"
    return ""


def _has_comment(text: str, error: yaml.MarkedYAMLError) -> bool:
    """Returns whether a comment before a mistake between brackets looks like a wildcard."""
    begun, found = error.context_mark, error.problem_mark
    if begun is None or found is None:
        return False
    lines = text.split("\n")[max(0, begun.line - 1) : found.line + 1]
    return any(map(_WILDCARD.search, lines))


class _Builder:
    """Builds the tree from parsing events; keeps the stack of open nodes."""

    def __init__(self, file: str, report: Callable[[Problem], None], text: str) -> None:
        self.root: Node | None = None
        self._text = text
        self._lines: list[str] = []
        self._file = file
        self._report = report
        self._open: list[Items | Entries] = []
        self._anchors: dict[str, Node] = {}
        self._keys: list[Scalar | None] = []  # per open mapping: the key whose value comes next
        self._documents = 0

    def take(self, event: yaml.Event) -> None:
        """Consumes the next event of the parser."""
        mark = event.start_mark
        assert mark is not None, "events of a text have marks"
        position = Position(self._file, mark.line + 1, mark.column + 1)
        match event:
            case yaml.DocumentStartEvent():
                self._documents += 1
                if self._documents > 1:
                    self._refuse(
                        position, "a second YAML document begins; only one is read: remove the line"
                    )
            case yaml.ScalarEvent():
                self._refuse_tag(event, position)
                if not is_text(event.value):
                    self._refuse(position, "this escapes half of a character (U+D800 to U+DFFF)")
                is_null = event.implicit[0] and event.value in _NULLS
                scalar = Scalar(event.value, position, is_null, not event.implicit[0])
                if event.implicit[0] and event.value[-1:] in (".", "/"):
                    scalar = attrs.evolve(scalar, is_cut=self._precedes_comment(event))
                self._add(scalar, event.anchor)
            case yaml.SequenceStartEvent():
                self._refuse_tag(event, position)
                self._descend(Items(position), event.anchor)
            case yaml.MappingStartEvent():
                self._refuse_tag(event, position)
                self._descend(Entries(position), event.anchor)
            case yaml.SequenceEndEvent() | yaml.MappingEndEvent():
                self._open.pop()
                self._keys.pop()
            case yaml.AliasEvent():
                self._add(self._resolve(event.anchor, position), None)

    def _precedes_comment(self, event: yaml.ScalarEvent) -> bool:
        """Returns whether a comment follows a text on its line."""
        mark = event.end_mark
        if mark is None:
            return False
        self._lines = self._lines or self._text.split("\n")
        return self._lines[mark.line][mark.column :].lstrip(" \t").startswith("#")

    def _refuse(self, position: Position, problem: str) -> NoReturn:
        raise ConfigError([Problem(position, problem)])

    def _refuse_tag(self, event: yaml.NodeEvent, position: Position) -> None:
        tag = getattr(event, "tag", None)
        if tag not in (None, "!"):
            self._refuse(position, f"tag '{tag}' is not supported")

    def _resolve(self, anchor: str | None, position: Position) -> Node:
        node = self._anchors.get(anchor or "")
        if node is None:
            self._refuse(position, f"alias '*{anchor}' has no anchor before it")
        if node in self._open:
            self._refuse(position, f"alias '*{anchor}' contains itself")
        return node

    def _descend(self, node: Items | Entries, anchor: str | None) -> None:
        if len(self._open) >= DEEPEST_NESTING:
            self._refuse(node.position, f"nested more than {DEEPEST_NESTING} levels deep")
        self._add(node, anchor)
        self._open.append(node)
        self._keys.append(None)

    def _add(self, node: Node, anchor: str | None) -> None:
        if anchor is not None:
            self._anchors[anchor] = node
        if not self._open:
            self.root = node
            return
        parent, key = self._open[-1], self._keys[-1]
        if isinstance(parent, Items):
            parent.items.append(node)
        elif key is None:
            if not isinstance(node, Scalar):
                self._refuse(node.position, "a key must be a plain text")
            self._keys[-1] = node
        else:
            self._keys[-1] = None
            self._enter(parent, key, node)

    def _enter(self, parent: Entries, key: Scalar, node: Node) -> None:
        earlier, _ = parent.entries.setdefault(key.text, (key, node))
        if earlier is not key:
            problem = (
                f"key '{key.text}' is given twice, first in line {earlier.position.line}; join them"
            )
            self._report(Problem(key.position, problem))
