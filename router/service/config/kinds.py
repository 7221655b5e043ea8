"""Kinds of values: how each is read from a node, described in JSON Schema, and written again.

This module has the base classes and the kinds that contain others; kinds of a single text are in
``scalars``.
"""

import abc
import enum
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, Generic, TypeVar

import attrs

from router.routes.route import Position
from router.service.config.document import Entries, Items, Node, Scalar
from router.service.config.problems import Problem, ReportedError, UnfitError
from router.service.config.references import Part, Sources

T = TypeVar("T")
Schema = dict[str, Any]

REFERENCE_SCHEMA: Final[Schema] = {"type": "string", "pattern": r"\$\{"}
"""Schema of a reference, which may replace a value that is not a text."""


@attrs.define(eq=False)
class Reading:
    """One pass over one file: the sources of references, the problems found, and doubts."""

    sources: Sources
    problems: list[Problem] = attrs.field(factory=list)
    notes: list[Problem] = attrs.field(factory=list)

    def report(self, position: Position, problem: str) -> None:
        """Records a problem; reading goes on."""
        self.problems.append(Problem(position, problem))

    def doubt(self, node: Node, at: str) -> None:
        """Notes that a wildcard at the end of an address may have been read as a comment."""
        if isinstance(node, Scalar) and node.is_cut:
            note = (
                f"{at}: is '{node.text}', because a '#' after a space begins a comment;"
                f' write "{node.text}#", with quotes, if it is part of it'
            )
            self.notes.append(Problem(node.position, note))


class Kind(abc.ABC, Generic[T]):
    """A kind of value.

    Attributes:
        keys: those of the sections that it holds; none: it holds no sections.
    """

    unit: str | None = None
    keys: Collection[str] = ()

    @abc.abstractmethod
    def read(self, node: Node, at: str, reading: Reading) -> T:
        """Reads a value.

        Args:
            node: the node in the file.
            at: the dotted path of the key, for problems inside the value.
            reading: collects problems inside the value that do not stop reading.

        Raises:
            UnfitError: the node holds no such value.
        """

    @abc.abstractmethod
    def schema(self) -> Schema:
        """Returns the JSON Schema of the value as written in the file."""

    def show(self, value: T) -> str:
        """Returns a value as it would be written in the file."""
        return str(value)


_FALSE: Final = ("off", "Off", "OFF", "false", "False", "FALSE", "no", "No", "NO")


class Broken(enum.Enum):
    """Placeholder for a value that cannot be read."""

    BROKEN = enum.auto()


def read_part(kind: Kind[T], node: Node, at: str, reading: Reading) -> T | Broken:
    """Reads a value that is part of another, and reports its problems."""
    try:
        return kind.read(node, at, reading)
    except ReportedError:
        return Broken.BROKEN
    except UnfitError as error:
        reading.report(error.position or node.position, f"{at}: {error.reason}")
        return Broken.BROKEN


class ScalarKind(Kind[T]):
    """A kind whose values are written as one text."""

    is_secret = False
    absent = "leave the key out for its default"
    kept: frozenset[str] = frozenset()

    def read(self, node: Node, at: str, reading: Reading) -> T:
        """Expands the references in the text, then parses it."""
        if not isinstance(node, Scalar):
            raise UnfitError(f"wants a single value, {self.wanted()}")
        if node.is_null:
            raise UnfitError(f"has no value; {self.absent}")
        parts = reading.sources.expand(node.text, self.kept)
        try:
            return self.parse(self.join(parts))
        except UnfitError as error:
            quoted = "" if self.is_secret else f"'{shortened(node.text)}' "
            raise UnfitError(f"{quoted}{error.reason}") from None

    def join(self, parts: Sequence[Part]) -> str:
        """Joins the parts of the text after its references were replaced."""
        return "".join(part.text for part in parts)

    @abc.abstractmethod
    def parse(self, text: str) -> T:
        """Parses the text.

        Raises:
            UnfitError: it is not a value of this kind; the reason never quotes the text, which may
                be a secret.
        """

    @abc.abstractmethod
    def wanted(self) -> str:
        """Describes the expected value, for people."""

    def schema(self) -> Schema:
        """Any text."""
        return {"type": "string"}


def shortened(text: str) -> str:
    """Shortens a text so that it fits a line."""
    line = text.replace("\n", " ")
    return line if len(line) <= 60 else f"{line[:57]}..."


@attrs.frozen
class OrWord(Kind[T | None]):
    """Another kind, or a word that stands for None."""

    kind: Kind[T]
    word: str = "none"

    @property
    def unit(self) -> str | None:  # type: ignore[override]
        """That of the kind."""
        return self.kind.unit

    @property
    def _words(self) -> Sequence[str]:
        """The accepted words; programs that rewrite YAML 1.1 turn ``off`` into ``false``."""
        return _FALSE if self.word == "off" else (self.word,)

    def read(self, node: Node, at: str, reading: Reading) -> T | None:
        """Reads the word, or the kind."""
        if isinstance(node, Scalar) and node.text in self._words:
            return None
        return self.kind.read(node, at, reading)

    def schema(self) -> Schema:
        """The word or the kind; YAML 1.1 reads the word ``off`` as false."""
        words = [self.word, False] if self.word == "off" else [self.word]
        return {"anyOf": [{"enum": words}, self.kind.schema()]}

    def show(self, value: T | None) -> str:
        """Writes the word for None."""
        return self.word if value is None else self.kind.show(value)


@attrs.frozen
class ListOf(Kind[tuple[T, ...]]):
    """A list; a single value without brackets is a list of one.

    Attributes:
        what: name of one item, for people.
        may_be_empty: an empty list is allowed.
    """

    kind: Kind[T]
    what: str = "value"
    may_be_empty: bool = True

    @property
    def keys(self) -> frozenset[str]:  # type: ignore[override]
        """Those of its items."""
        return frozenset(self.kind.keys)

    def read(self, node: Node, at: str, reading: Reading) -> tuple[T, ...]:
        """Reads every item; a problem of one item does not hide problems of the next."""
        if isinstance(node, Scalar) and node.is_null and self.may_be_empty:
            return ()
        if not isinstance(node, Items):
            if isinstance(node, Entries):
                self._check_item(node)
            return (self.kind.read(node, at, reading),)
        if not (node.items or self.may_be_empty):
            raise UnfitError("is an empty list; leave the key out for its default")
        found: list[T] = []
        for number, each in enumerate(node.items):
            item = read_part(self.kind, each, f"{at}[{number}]", reading)
            if not isinstance(item, Broken):
                found.append(item)
        return tuple(found)

    def _check_item(self, node: Entries) -> None:
        """Refuses a mapping that is meant as the list, with the items' names as its keys."""
        names = {name.removeprefix("-") for name in node.entries}
        if self.keys and names and self.keys.isdisjoint(names):
            raise UnfitError(f"is a list: begin each {self.what} with '- ', not with a name")

    def schema(self) -> Schema:
        """A list, or a single item."""
        item = self.kind.schema()
        if not self.may_be_empty:
            return {"anyOf": [{"type": "array", "minItems": 1, "items": item}, item]}
        return {"anyOf": [{"type": ["array", "null"], "items": item}, item]}

    def show(self, value: tuple[T, ...]) -> str:
        """Writes it on one line."""
        return f"[{', '.join(map(self.kind.show, value))}]"


@attrs.frozen
class MapOf(Kind[Mapping[str, T]]):
    """A mapping of names to values.

    Attributes:
        pattern: regular expression that every name matches.
        what: description of a name, for people.
    """

    kind: Kind[T]
    pattern: str = r"(?s).+"
    what: str = "name"

    @property
    def keys(self) -> frozenset[str]:  # type: ignore[override]
        """Those of its values."""
        return frozenset(self.kind.keys)

    def read(self, node: Node, at: str, reading: Reading) -> Mapping[str, T]:
        """Reads every entry."""
        if isinstance(node, Scalar) and node.is_null:
            return {}
        if not isinstance(node, Entries):
            dashes = " and no '- '" if isinstance(node, Items) else ""
            raise UnfitError(f"wants a {self.what}, a colon and a value in each entry{dashes}")
        found: dict[str, T] = {}
        misplaced = self._misplaced(node)
        for name, (key, value) in node.entries.items():
            if name in misplaced:
                if misplaced[name]:
                    reading.report(key.position, f"{at}.{name}: {misplaced[name]}")
                continue
            if not re.fullmatch(self.pattern, name):
                reading.report(key.position, f"{at}: '{shortened(name)}' is no {self.what}")
                continue
            entry = read_part(self.kind, value, f"{at}.{name}", reading)
            if not isinstance(entry, Broken):
                found[name] = entry
        return found

    def _misplaced(self, node: Entries) -> dict[str, str]:
        """Returns entries that are not to be read, each with its problem, if there is one.

        A key of the sections inside that stands where their names belong, with a plain value, is
        one level too far left. The empty entry above it is the one that it belongs to.
        """
        found: dict[str, str] = {}
        above: str | None = None
        for name, (_, value) in node.entries.items():
            is_plain = isinstance(value, Scalar) and not value.is_null
            if name not in self.keys or not is_plain:
                above = name if isinstance(value, Scalar) and value.is_null else None
                continue
            if above is None:
                found[name] = f"this belongs to an entry: write its {self.what} above, indent this"
            else:
                found[above] = ""
                found[name] = f"indent this below '{above}', to which it belongs"
        return found

    def schema(self) -> Schema:
        """An object whose values are of one kind."""
        return {
            "type": ["object", "null"],
            "propertyNames": {"pattern": f"^(?:{self.pattern.removeprefix('(?s)')})$"},
            "additionalProperties": self.kind.schema(),
        }

    def show(self, value: Mapping[str, T]) -> str:
        """Writes it on one line."""
        return f"{{{', '.join(f'{name}: {self.kind.show(v)}' for name, v in value.items())}}}"
