"""Values of AMQP 1.0 as JSON and back, each with its type.

null, true, "text", [..]         null, boolean, string, list
12, 1.5                          long, double: a number with a point or an exponent is a double
{"TYPE": ..}                     any type; the only objects there are
{"uint": 7}, {"long": "9007199254740993"}
                                 an integer type; digits as text beyond 2^53, which not every
                                 reader of JSON keeps
{"float": 1.5}, {"double": "inf"}
                                 inf, -inf, or the octets of a NaN in hexadecimal
{"binary": "3q2+7w=="}           base64
{"decimal32": "22500001"}        decimal32, decimal64, decimal128: their octets in hexadecimal
{"symbol": "a"}, {"char": "a"}, {"uuid": ".."}, {"timestamp": 1311704463521}
{"map": {"a": 1}}, {"map": [[{"uint": 1}, "b"]]}
                                 an object if every key is a string
{"array": {"of": "uint", "items": [..], "descriptors": [..]}}
{"described": [descriptor, value]}
"""

import base64
import binascii
import math
import struct
import uuid
from collections.abc import Callable
from typing import Any, Final

import attrs

from router.errors import DecodeError, RouterError
from router.model.text import is_text
from router.wire.v1_0.types import (
    MAX_DEPTH,
    Array,
    Byte,
    Char,
    Decimal32,
    Decimal64,
    Decimal128,
    Described,
    Float,
    Int,
    Pairs,
    Short,
    Symbol,
    Timestamp,
    Ubyte,
    Uint,
    Ulong,
    Ushort,
    decode_value,
    encode_value,
)

EXACT_MOST: Final = 1 << 53
"""Integers up to this one are kept by readers of JSON that know doubles only."""


@attrs.frozen
class UnfitValueError(RouterError):
    """JSON that stands for no value.

    Attributes:
        rule: the error, in one phrase.
    """

    rule: str

    def __str__(self) -> str:
        return self.rule


INTEGERS: Final[dict[str, tuple[type[int], int, int]]] = {
    "ubyte": (Ubyte, 0, (1 << 8) - 1),
    "ushort": (Ushort, 0, (1 << 16) - 1),
    "uint": (Uint, 0, (1 << 32) - 1),
    "ulong": (Ulong, 0, (1 << 64) - 1),
    "byte": (Byte, -(1 << 7), (1 << 7) - 1),
    "short": (Short, -(1 << 15), (1 << 15) - 1),
    "int": (Int, -(1 << 31), (1 << 31) - 1),
    "long": (int, -(1 << 63), (1 << 63) - 1),
    "timestamp": (Timestamp, -(1 << 63), (1 << 63) - 1),
}
"""Name → Python form, least and largest value."""

_DECIMALS: Final = {
    "decimal32": (Decimal32, 4),
    "decimal64": (Decimal64, 8),
    "decimal128": (Decimal128, 16),
}
_FORMS: Final[dict[str, type]] = {
    "null": type(None),
    "boolean": bool,
    **{name: form for name, (form, _, _) in INTEGERS.items()},
    "float": Float,
    "double": float,
    **{name: form for name, (form, _) in _DECIMALS.items()},
    "char": Char,
    "uuid": uuid.UUID,
    "binary": bytes,
    "string": str,
    "symbol": Symbol,
    "list": list,
    "map": dict,
    "array": Array,
}
_NAMES: Final = {form: name for name, form in _FORMS.items()} | {Pairs: "map"}


# --- to JSON --------------------------------------------------------------------------------------


def to_json(value: Any) -> Any:
    """Returns what stands for a value, for ``json.dumps``."""
    kind = type(value)
    if value is None or kind in (bool, str):
        return value
    if kind is int and abs(value) <= EXACT_MOST:
        return value
    if kind is float and math.isfinite(value):
        return value
    if kind is list:
        return [to_json(each) for each in value]
    if kind is Described:
        return {"described": [to_json(value.descriptor), to_json(value.value)]}
    name = _NAMES[kind]
    return {name: _content(name, value)}


def _content(name: str, value: Any) -> Any:
    if name in INTEGERS:
        return int(value) if abs(value) <= EXACT_MOST else str(int(value))
    if name in ("float", "double"):
        return _float_to_json(value)
    if name == "binary":
        return base64.b64encode(value).decode()
    if name in _DECIMALS:
        return value.hex()
    if name == "map":
        return pairs_to_json(value, str)
    if name == "array":
        content = {"of": _NAMES[value.of], "items": [to_json(each) for each in value.items]}
        if value.descriptors:
            content["descriptors"] = [to_json(each) for each in value.descriptors]
        return content
    return str(value)


def _float_to_json(value: float) -> Any:
    if math.isnan(value):
        octets = getattr(value, "octets", None)
        if octets is None:
            octets = struct.pack(">f" if isinstance(value, Float) else ">d", value)
        return octets.hex()
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    return float(value)


def pairs_to_json(mapping: Any, key_form: type) -> Any:
    """Returns what stands for a map: an object if every key is of one form of text."""
    pairs = list(mapping.items())
    if all(type(key) is key_form for key, _ in pairs):
        return {str(key): to_json(value) for key, value in pairs}
    return [[to_json(key), to_json(value)] for key, value in pairs]


# --- from JSON ------------------------------------------------------------------------------------


def from_json(found: Any, depth: int = 0) -> Any:
    """Returns the value that JSON stands for.

    Raises:
        UnfitValueError: it stands for none.
    """
    if depth > MAX_DEPTH:
        raise UnfitValueError(f"values are nested more than {MAX_DEPTH} deep")
    if isinstance(found, str):
        return text(found)
    if isinstance(found, int) and not isinstance(found, bool):
        return integer("long", found)
    if isinstance(found, list):
        return [from_json(each, depth + 1) for each in found]
    if not isinstance(found, dict):
        return found  # null, a boolean, a double
    if len(found) != 1:
        raise UnfitValueError('a value that is an object has one member, its type: {"uint": 7}')
    ((name, content),) = found.items()
    if name in INTEGERS:
        return integer(name, content)
    reader = _READERS.get(name)
    if reader is None:
        raise UnfitValueError(f"{name!r} is no type of AMQP")
    return reader(name, content, depth)


def text(found: Any) -> str:
    """Returns a string."""
    if not isinstance(found, str):
        raise UnfitValueError("a string is wanted")
    if not is_text(found):
        raise UnfitValueError("a string has half of a character (a lone surrogate)")
    return found


def integer(name: str, found: Any) -> Any:
    """Returns an integer of the type of that name."""
    form, least, most = INTEGERS[name]
    if isinstance(found, str) and len(found) <= 20 and found.removeprefix("-").isdecimal():
        found = int(found)
    if not isinstance(found, int) or isinstance(found, bool):
        raise UnfitValueError(f"{name} is an integer")
    if not least <= found <= most:
        raise UnfitValueError(f"{name} is from {least} to {most}")
    return form(found)


def symbol(found: Any) -> Symbol:
    """Returns a symbol."""
    if not isinstance(found, str) or not found.isascii():
        raise UnfitValueError("symbol is text in ASCII")
    return Symbol(found)


def binary(found: Any) -> bytes:
    """Returns octets."""
    try:
        return base64.b64decode(text(found), validate=True)
    except (binascii.Error, ValueError):
        raise UnfitValueError("binary is base64") from None


def pairs_from_json(found: Any, key_form: Callable[[str], Any], depth: int) -> Any:
    """Returns a map, of an object whose keys have one form, or of an array of pairs."""
    if isinstance(found, dict):
        return {key_form(key): from_json(value, depth + 1) for key, value in found.items()}
    if not isinstance(found, list) or not all(
        isinstance(each, list) and len(each) == 2 for each in found
    ):
        raise UnfitValueError("a map is an object, or an array of [key, value]")
    pairs = [(from_json(key, depth + 1), from_json(value, depth + 1)) for key, value in found]
    try:
        return decode_value(encode_value(Pairs(pairs)))[0]
    except DecodeError as error:
        raise UnfitValueError(error.rule) from None


def _float(name: str, found: Any, depth: int) -> float:
    form, code, width = (Float, ">f", 4) if name == "float" else (float, ">d", 8)
    if isinstance(found, (int, float)) and not isinstance(found, bool):
        try:
            return form(struct.unpack(code, struct.pack(code, found))[0])
        except (OverflowError, struct.error):
            raise UnfitValueError(f"{name} is out of range") from None
    if found in ("inf", "-inf"):
        return form(found)
    value = form(struct.unpack(code, _octets(name, found, width))[0])
    if not math.isnan(value):
        raise UnfitValueError(f"{name} is a number, inf, -inf, or the octets of a NaN")
    if isinstance(value, Float):
        value.octets = bytes.fromhex(found)
    return value


def _octets(name: str, found: Any, width: int) -> bytes:
    try:
        octets = bytes.fromhex(text(found))
    except ValueError:
        octets = b""
    if len(octets) != width:
        raise UnfitValueError(f"{name} has {width} octets in hexadecimal")
    return octets


def _decimal(name: str, found: Any, depth: int) -> bytes:
    form, width = _DECIMALS[name]
    value: bytes = form(_octets(name, found, width))
    return value


def _uuid(name: str, found: Any, depth: int) -> uuid.UUID:
    try:
        return uuid.UUID(text(found))
    except ValueError:
        raise UnfitValueError("uuid is 32 hexadecimal digits") from None


def _char(name: str, found: Any, depth: int) -> Char:
    if len(text(found)) != 1:
        raise UnfitValueError("char is one character")
    return Char(found)


def _array(name: str, found: Any, depth: int) -> Array:
    if not isinstance(found, dict) or not {"of", "items"} <= found.keys() <= {
        *("of", "items", "descriptors")
    }:
        raise UnfitValueError("array has of, items and perhaps descriptors")
    form = _FORMS.get(text(found["of"]))
    items, descriptors = found["items"], found.get("descriptors", [])
    if form is None or not isinstance(items, list) or not isinstance(descriptors, list):
        raise UnfitValueError("array has the name of a type, and arrays of items and descriptors")
    values = [from_json(each, depth + 1) for each in items]
    if not all(type(each) is form or (form is dict and type(each) is Pairs) for each in values):
        raise UnfitValueError(f"every item of an array of {found['of']} is one")
    return Array(form, values, tuple(from_json(each, depth + 1) for each in descriptors))


def _described(name: str, found: Any, depth: int) -> Described:
    if not isinstance(found, list) or len(found) != 2:
        raise UnfitValueError("described is [descriptor, value]")
    return Described(from_json(found[0], depth + 1), from_json(found[1], depth + 1))


_READERS: Final[dict[str, Callable[[str, Any, int], Any]]] = {
    "float": _float,
    "double": _float,
    **dict.fromkeys(_DECIMALS, _decimal),
    "uuid": _uuid,
    "char": _char,
    "array": _array,
    "described": _described,
    "binary": lambda name, found, depth: binary(found),
    "string": lambda name, found, depth: text(found),
    "symbol": lambda name, found, depth: symbol(found),
    "map": lambda name, found, depth: pairs_from_json(found, text, depth),
}
