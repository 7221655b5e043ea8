"""Sections: attrs classes whose fields are options, read from a mapping of the file.

A section is written once, as a class; the reader, the JSON Schema and the help all come from it::

    @attrs.frozen(kw_only=True)
    class Journal(Placed):
        segment_octets: int = option(Octets(), default=64 << 20, help="size of one segment")

The key is the field's name, without a trailing underscore.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final, TypeVar

import attrs

from router.routes.route import Position
from router.service.config.document import Entries, Node, Scalar
from router.service.config.hints import Inner, unknown_key, unlike_section
from router.service.config.kinds import Broken, Kind, ListOf, MapOf, Reading, Schema, read_part
from router.service.config.problems import ReportedError, UnfitError

_OPTION: Final = "option"

DEFAULT_POSITION: Final = Position("default", 1, 1)


@attrs.frozen
class Where:
    """Positions of a section and its keys in the file.

    Attributes:
        keys: positions of the given keys, by name.
        broken: keys whose values have a problem, about which rules report nothing more.
    """

    section: Position = DEFAULT_POSITION
    keys: Mapping[str, Position] = attrs.field(factory=dict)
    broken: frozenset[str] = frozenset()

    def of(self, key: str) -> Position:
        """Returns the position of a key's value, or of the section if the key was left out."""
        return self.keys.get(key, self.section)


@attrs.frozen(kw_only=True)
class Placed:
    """The base of every section; equality leaves ``where`` out.

    Attributes:
        needs_one_of: keys of which a section has at least one, for the schema.
    """

    needs_one_of: ClassVar[Sequence[str]] = ()
    where: Where = attrs.field(factory=Where, eq=False, repr=False)


@attrs.frozen(kw_only=True)
class Option:
    """Description of one option.

    Attributes:
        key: its name in the file.
        attribute: its name in the class.
        unit: of a plain number; None if it has none.
        default: as it would be written in the file; None if the option must be given.
    """

    key: str
    attribute: str
    kind: Kind[Any]
    help: str
    unit: str | None
    default: str | None


@attrs.frozen
class _Meta:
    kind: Kind[Any]
    help: str
    unit: str | None
    default_text: str | None


def option(
    kind: Kind[Any],
    *,
    help: str,
    default: Any = attrs.NOTHING,
    factory: Callable[[], Any] | None = None,
    default_text: str | None = None,
    unit: str | None = None,
) -> Any:
    """Declares an option of a section.

    Args:
        kind: how its value is read.
        help: what it does, in a phrase that follows upon the key.
        default: its value if the key is left out; without one, the key must be given.
        factory: makes the default.
        default_text: the default in words, where the value alone is not clear.
        unit: of its numbers, where the kind does not know it.
    """
    meta = _Meta(kind, help, unit or kind.unit, default_text)
    if factory is not None:
        return attrs.field(factory=factory, metadata={_OPTION: meta})
    return attrs.field(default=default, metadata={_OPTION: meta})


def options_of(section: type[Placed]) -> tuple[Option, ...]:
    """Returns the options of a section, in the order of its class."""
    found = []
    for field in attrs.fields(section):
        meta = field.metadata.get(_OPTION)
        if meta is not None:
            found.append(
                Option(
                    key=field.name.rstrip("_"),
                    attribute=field.name,
                    kind=meta.kind,
                    help=meta.help,
                    unit=meta.unit,
                    default=_default_text(field, meta),
                )
            )
    return tuple(found)


def _default_text(field: "attrs.Attribute[Any]", meta: _Meta) -> str | None:
    if meta.default_text is not None:
        return meta.default_text
    if field.default is attrs.NOTHING:
        return None
    factory = getattr(field.default, "factory", None)
    value = field.default if factory is None else factory()
    return "none" if value in (None, (), {}) else meta.kind.show(value)


def _place_in(key: str, kind: Kind[Any]) -> str:
    """Names the place where the keys of a key's sections stand."""
    return f"an entry of '{key}'" if isinstance(kind, ListOf | MapOf) else f"'{key}'"


S = TypeVar("S", bound=Placed)


@attrs.frozen
class Section(Kind[S]):
    """A mapping with known keys.

    Attributes:
        model: the class.
        shorthand: the key whose value may replace the whole section.
    """

    model: type[S]
    shorthand: str | None = None
    known: Mapping[str, Option] = attrs.field(init=False, eq=False, repr=False)

    @known.default
    def _options_by_key(self) -> Mapping[str, Option]:
        return {each.key: each for each in options_of(self.model)}

    @property
    def keys(self) -> Mapping[str, Option]:  # type: ignore[override]
        """Its own."""
        return self.known

    def _inner(self) -> Inner:
        """Returns the keys that have sections inside."""
        return {
            key: (_place_in(key, each.kind), each.kind.keys)
            for key, each in self.known.items()
            if each.kind.keys
        }

    def read(self, node: Node, at: str, reading: Reading) -> S:
        """Reads every key; a broken value is reported and replaced by its default for now."""
        values: dict[str, Any] = {}
        places: dict[str, Position] = {}
        broken: set[str] = set()
        empty = ""
        for name, (key, value) in self._entries(node).items():
            if name not in self.known:
                hint = unknown_key(name, self.known, self._inner())
                problem = f"unknown key '{name}'{hint}{'' if ': indent' in hint else empty}"
                reading.report(key.position, f"{at}: {problem}" if at else problem)
                continue
            if isinstance(value, Scalar) and value.is_null:
                empty = f"; or it belongs, indented, below '{name}', which is empty"
            places[name] = value.position
            before = len(reading.problems)
            read = read_part(self.known[name].kind, value, f"{at}.{name}" if at else name, reading)
            if not isinstance(read, Broken):
                values[self.known[name].attribute] = read
            if len(reading.problems) > before:
                broken.add(name)
        self._require(values, places)
        return self.model(**values, where=Where(node.position, places, frozenset(broken)))

    def _entries(self, node: Node) -> Mapping[str, tuple[Scalar, Node]]:
        if isinstance(node, Entries):
            return node.entries
        if isinstance(node, Scalar) and node.is_null:
            return {}
        if isinstance(node, Scalar) and self.shorthand is not None:
            return {self.shorthand: (Scalar(self.shorthand, node.position), node)}
        text = node.text if isinstance(node, Scalar) else None
        needed = (each.key for each in self.known.values() if each.default is None)
        raise UnfitError(unlike_section(text, self.known, next(needed, next(iter(self.known)))))

    def _require(self, values: Mapping[str, object], places: Mapping[str, Position]) -> None:
        needed = [each for each in self.known.values() if each.default is None]
        absent = [each.key for each in needed if each.key not in places]
        if absent:
            told, _, _ = self.known[absent[0]].help.partition(";")
            raise UnfitError(f"needs the key '{absent[0]}': {told}")
        if any(each.attribute not in values for each in needed):
            raise ReportedError("holds a value that cannot be read")

    def schema(self) -> Schema:
        """A reference to the class' own schema, or what may stand for it."""
        own: Schema = {"$ref": f"#/$defs/{self.model.__name__}"}
        if self.shorthand is None:
            return own
        return {"anyOf": [own, self.known[self.shorthand].kind.schema()]}

    def show(self, value: S) -> str:
        """Sections are not shown as defaults."""
        return "{}"
