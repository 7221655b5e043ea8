"""Values of AMQP in the file: filters and properties of links.

A text, a number, ``true`` and ``null`` stand for a string, a long or double, a boolean and null.
Any other type is spelled ``{TYPE: VALUE}``, as in the JSON of ``router send --json-lines``
(``router.net.client.json_values`` lists the types)::

    filter:
      com.microsoft:session-filter: s1                     a string
      example:range: {described: [{ulong: 77}, [1, 2]]}    a descriptor of one's own
    properties: {com.microsoft:epoch: 7, mode: {ubyte: 1}}
"""

import re
from typing import Any, Final

import attrs

from router.net.client.json_values import UnfitValueError, from_json
from router.service.config.document import Entries, Items, Node, Scalar
from router.service.config.kinds import Kind, Reading, Schema
from router.service.config.problems import UnfitError
from router.wire.v1_0.types import Described, Symbol, encode_value

MOST_OCTETS: Final = 4096
"""Largest encoded map: with it an attach fits the frames of every known peer."""

OWN_PREFIX: Final = "router:"
"""Link properties with this prefix have a meaning between routers."""

_INTEGER: Final = re.compile(r"[+-]?[0-9]+")
_DOUBLE: Final = re.compile(r"[+-]?([0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(\.[0-9]*)?[eE][+-]?[0-9]+)")


@attrs.frozen
class EncodedMap:
    """A map of AMQP values, encoded; its keys are symbols."""

    names: tuple[str, ...] = ()
    octets: bytes = b""


@attrs.frozen
class AmqpMap(Kind[EncodedMap]):
    """A mapping of symbols to values of AMQP.

    Attributes:
        is_filter_set: every value is described (§3.5.8); where none is given, the key is the
            descriptor.
    """

    is_filter_set: bool = False

    def read(self, node: Node, at: str, reading: Reading) -> EncodedMap:
        """Reads and encodes every entry."""
        if not isinstance(node, Entries):
            raise UnfitError("wants a name, a colon and a value in each entry: {NAME: VALUE}")
        values: dict[Symbol, Any] = {}
        for name, (key, value) in node.entries.items():
            if not name or not name.isascii():
                raise UnfitError(f"'{name}' is no symbol: a symbol is text in ASCII", key.position)
            if name.startswith(OWN_PREFIX):
                reason = f"'{name}': names that begin with '{OWN_PREFIX}' are the router's own"
                raise UnfitError(reason, key.position)
            values[Symbol(name)] = self._value(name, value, reading)
        octets = encode_value(values) if values else b""
        if len(octets) > MOST_OCTETS:
            raise UnfitError(f"has {len(octets)} octets encoded; at most {MOST_OCTETS} are allowed")
        return EncodedMap(tuple(map(str, values)), octets)

    def _value(self, name: str, node: Node, reading: Reading) -> Any:
        try:
            value = from_json(_plain(node, reading))
        except UnfitValueError as error:
            raise UnfitError(f"'{name}': {error.rule}", node.position) from None
        if not self.is_filter_set or isinstance(value, Described):
            return value
        return Described(Symbol(name), value)

    def schema(self) -> Schema:
        """An object."""
        return {"type": "object"}

    def show(self, value: EncodedMap) -> str:
        """Returns the names alone."""
        return f"{{{', '.join(value.names)}}}"


def _plain(node: Node, reading: Reading) -> Any:
    """Returns a node as JSON has it."""
    if isinstance(node, Items):
        return [_plain(item, reading) for item in node.items]
    if isinstance(node, Entries):
        return {name: _plain(value, reading) for name, (_, value) in node.entries.items()}
    return _scalar(node, reading)


def _scalar(node: Scalar, reading: Reading) -> Any:
    if node.is_null:
        return None
    parts = reading.sources.expand(node.text)
    text = "".join(part.text for part in parts)
    if node.is_quoted or any(part.is_reference for part in parts):
        return text
    if text in ("true", "false"):
        return text == "true"
    if _INTEGER.fullmatch(text):
        return int(text) if len(text) <= 20 else text
    return float(text) if _DOUBLE.fullmatch(text) else text
