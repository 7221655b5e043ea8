from typing import Any

import attrs
import pytest

from router.errors import DecodeError, MisuseError
from router.model.condition import DECODE_ERROR, INVALID_FIELD
from router.wire.v1_0.composite import (
    BINARY,
    BOOLEAN,
    FIELDS,
    STRING,
    SYMBOL,
    SYMBOLS,
    UBYTE,
    UINT,
    ULONG,
    USHORT,
    Composite,
    Field,
    composite,
    decode_descriptor,
    decode_fields,
    encode_composite,
)
from router.wire.v1_0.types import (
    Array,
    Described,
    Symbol,
    Ubyte,
    Uint,
    Ulong,
    Ushort,
    encode_value,
)


@attrs.frozen(kw_only=True)
class Crate:
    label: str
    weight: int = 7
    tags: tuple[str, ...] = ()
    inner: Any = None


@attrs.frozen(kw_only=True)
class Lid:
    kind: str | None = None


LID = Composite("lid", 0x1234, Lid, (Field("kind", SYMBOL),))
CRATE = Composite(
    "crate",
    0x99,
    Crate,
    (
        Field("label", STRING, mandatory=True),
        Field("gross-weight", UINT, default=7, attribute="weight"),
        Field("tags", SYMBOLS, default=()),
        Field("inner", composite(LID)),
    ),
)


def crate_of(*fields: Any) -> Crate:
    octets = encode_value(list(fields))
    crate, after = decode_fields(CRATE, octets, 0, len(octets))
    assert after == len(octets)
    assert isinstance(crate, Crate)
    return crate


def test_absent_and_null_fields_take_their_defaults() -> None:
    assert crate_of("a") == crate_of("a", None, None, None) == Crate(label="a")


def test_fields_with_their_default_at_the_end_are_not_sent() -> None:
    assert encode_composite(CRATE, Crate(label="a")) == b"\x00\x53\x99\xc0\x04\x01\xa1\x01a"


def test_a_default_before_the_last_field_is_sent_as_null() -> None:
    octets = encode_composite(CRATE, Crate(label="a", tags=("t",)))
    assert octets == b"\x00\x53\x99\xc0\x0b\x03\xa1\x01a\x40\xe0\x04\x01\xa3\x01t"


def test_a_composite_of_no_fields_is_the_empty_list() -> None:
    assert encode_composite(LID, Lid()) == b"\x00\x80\x00\x00\x00\x00\x00\x00\x12\x34\x45"
    assert decode_fields(LID, b"\x45", 0, 1) == (Lid(), 1)


def test_a_multiple_field_is_null_one_value_or_an_array() -> None:
    assert crate_of("a", None, Symbol("t")).tags == ("t",)
    assert crate_of("a", None, Array(Symbol, [Symbol("t"), Symbol("u")])).tags == ("t", "u")
    assert crate_of("a", None, Array(Symbol, [])).tags == ()


def test_a_field_holds_another_composite_by_code_or_by_symbol() -> None:
    for descriptor in (Ulong(0x1234), Symbol("amqp:lid:list")):
        crate = crate_of("a", None, None, Described(descriptor, [Symbol("flat")]))
        assert crate.inner == Lid(kind="flat")


@pytest.mark.parametrize("descriptor", ["amqp:lid:list", Uint(0x1234), 0x1234, b"amqp:lid:list"])
def test_descriptors_of_other_types_are_other_descriptors(descriptor: Any) -> None:
    with pytest.raises(DecodeError, match=r"crate\.inner: is no lid"):
        crate_of("a", None, None, Described(descriptor, []))


@pytest.mark.parametrize(
    ("fields", "rule"),
    [
        ([], r"crate\.label is mandatory"),
        ([None, Uint(1)], r"crate\.label is mandatory"),
        ([Symbol("a")], r"crate\.label: is no string"),
        (["a", Ulong(1)], r"crate\.gross-weight: is no uint"),
        (["a", None, "t"], r"crate\.tags: is neither"),
        (["a", None, Array(str, ["t"])], r"crate\.tags: is neither"),
        (["a", None, Array(Symbol, ["t"], (Ulong(1),))], r"crate\.tags: is neither"),
        (["a", None, None, "x"], r"crate\.inner: is not described"),
        (
            ["a", None, None, Described(Ulong(0x1234), {})],
            r"crate\.inner: a composite is not a list",
        ),
        (
            ["a", None, None, Described(Ulong(0x1234), ["x"])],
            r"crate\.inner: lid\.kind: is no symbol",
        ),
        (["a", None, None, None, None], "crate has 5 fields, 4 are known"),
    ],
)
def test_fields_that_break_a_rule_are_invalid_and_named(fields: list[Any], rule: str) -> None:
    with pytest.raises(DecodeError, match=rule) as caught:
        crate_of(*fields)
    assert caught.value.condition == INVALID_FIELD


@pytest.mark.parametrize(
    ("octets", "rule"),
    [
        ("", "ends beyond"),
        ("c00901a10161", "size exceeds"),
        ("c00401a10561", r"crate\.label: the size exceeds"),
        ("c00402a10161", r"crate\.gross-weight: the list ends before it"),
        ("c00501a1016140", "fields end before the size says"),
        ("c00601a10161", "size exceeds"),
        ("d000000003", "ends beyond"),
        ("d00000000300000000", "no room for the count"),
        ("c0040146" + "0161", r"crate\.label: format code 0x46"),
        ("c00401a101ff", r"crate\.label: a string is not valid UTF-8"),
    ],
)
def test_octets_that_are_no_list_of_values_cannot_be_decoded(octets: str, rule: str) -> None:
    broken = bytes.fromhex(octets)
    with pytest.raises(DecodeError, match=rule) as caught:
        decode_fields(CRATE, broken, 0, len(broken))
    assert caught.value.condition == DECODE_ERROR


@pytest.mark.parametrize(
    ("octets", "descriptor"),
    [
        ("0053244540", 0x24),
        ("008000000000000000244540", 0x24),
        ("00444540", 0),
        ("00a301784540", "x"),
        ("00a101784540", None),
        ("0052014540", None),
        ("000053014345", None),
    ],
)
def test_a_descriptor_is_a_code_a_name_or_reserved(octets: str, descriptor: Any) -> None:
    found, at = decode_descriptor(bytes.fromhex(octets), 0, len(octets) // 2)
    assert found == descriptor
    assert type(found) is type(descriptor)
    assert bytes.fromhex(octets)[at] == 0x45


def test_every_prefix_of_a_descriptor_is_refused() -> None:
    for octets in (b"\x00\x80" + bytes(8), b"\x00\xa3\x03abc", b"\x00\x53\x24"):
        for end in range(len(octets)):
            with pytest.raises(DecodeError):
                decode_descriptor(octets, 0, end)


@pytest.mark.parametrize(
    ("kind", "value", "on_the_wire"),
    [
        (BOOLEAN, True, True),
        (UBYTE, 3, Ubyte(3)),
        (USHORT, 3, Ushort(3)),
        (UINT, 3, Uint(3)),
        (ULONG, 3, Ulong(3)),
        (BINARY, b"x", b"x"),
        (STRING, "x", "x"),
        (SYMBOL, "x", Symbol("x")),
        (FIELDS, {"k": "v"}, {Symbol("k"): "v"}),
        (FIELDS, {Ulong(1): None}, {Ulong(1): None}),
    ],
)
def test_kinds_map_the_nouns_of_the_model_to_types_of_the_wire(
    kind: Any, value: Any, on_the_wire: Any
) -> None:
    octets = kind.write(value)
    assert octets == encode_value(on_the_wire)
    assert kind.read(octets, 0, len(octets)) == (value, len(octets))


@pytest.mark.parametrize(
    "crate",
    [
        Crate(label=None),  # type: ignore[arg-type]
        Crate(label="a", weight=-1),
        Crate(label="a", weight=2**32),
        Crate(label="a", weight="x"),  # type: ignore[arg-type]
        Crate(label="a", tags=("é",)),
        Crate(label="a", inner=Crate(label="b")),
    ],
)
def test_a_record_that_does_not_fit_its_table_is_our_own_misuse(crate: Crate) -> None:
    with pytest.raises(MisuseError):
        encode_composite(CRATE, crate)
