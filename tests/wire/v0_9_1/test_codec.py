import contextlib
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.errors import DecodeError, MisuseError
from router.model.text import words
from router.wire.v0_9_1 import methods as m
from router.wire.v0_9_1.codec import CODEC, CODEC_0_8, SPECS, MethodCodec, Sender, Spec
from tests.support.amqp_values import mutated, same
from tests.support.basic_messages import tables, texts

_BY_TYPE: dict[str, st.SearchStrategy[Any]] = {
    "bit": st.booleans(),
    "octet": st.integers(0, 255),
    "short": st.integers(0, 65535),
    "long": st.integers(0, 0xFFFFFFFF),
    "longlong": st.integers(0, (1 << 64) - 1),
    "shortstr": texts,
    "words": texts.map(words),
    "longstr": st.binary(max_size=300),
    "table": tables,
}


def fields_of(spec: Spec) -> dict[str, str]:
    """Field → wire type."""
    annotations = spec.record.__annotations__
    return {
        field.name: annotations[field.name].__metadata__[0]
        for field in attrs.fields(spec.record)
        if field.name not in spec.omitted
    }


@st.composite
def methods(draw: st.DrawFn) -> Any:
    spec = draw(st.sampled_from(SPECS))
    return spec.record(**{name: draw(_BY_TYPE[kind]) for name, kind in fields_of(spec).items()})


@given(methods())
def test_a_method_comes_back_as_it_was(method: m.Method) -> None:
    octets = CODEC.encode(method)
    again = CODEC.decode(b"#" + octets, 1, len(octets) + 1)
    assert type(again) is type(method)
    assert same(
        list(attrs.asdict(again, recurse=False).values()),
        list(attrs.asdict(method, recurse=False).values()),
    )


@given(methods())
def test_a_method_that_is_cut_or_too_long_is_refused(method: m.Method) -> None:
    octets = CODEC.encode(method)
    for end in range(4, len(octets)):
        with pytest.raises(DecodeError):
            CODEC.decode(octets, 0, end)
    with pytest.raises(DecodeError, match="follow"):
        CODEC.decode(octets + b"\x00", 0, len(octets) + 1)


@given(methods().map(CODEC.encode).flatmap(lambda octets: mutated(st.just(octets))))
def test_broken_methods_raise_nothing_but_decode_errors(octets: bytes) -> None:
    with contextlib.suppress(DecodeError):
        CODEC.decode(octets, 0, len(octets))


@given(st.binary(max_size=40))
def test_random_octets_raise_nothing_but_decode_errors(octets: bytes) -> None:
    with contextlib.suppress(DecodeError):
        CODEC.decode(octets, 0, len(octets))


def test_publish_is_drawn_as_the_specification_has_it() -> None:
    method = m.BasicPublish(exchange="ex", routing_key="key", mandatory=True)
    assert CODEC.encode(method) == bytes.fromhex("003c 0028 0000 02 6578 03 6b6579 01")


def test_bits_share_an_octet_the_first_one_lowest() -> None:
    method = m.QueueDeclare(queue="q", passive=True, exclusive=True, no_wait=True)
    assert CODEC.encode(method) == bytes.fromhex("0032 000a 0000 01 71 15 00000000")
    again = CODEC.decode(CODEC.encode(method), 0, 13)
    assert again == method


def test_deliver_and_ack_are_drawn_as_the_specification_has_them() -> None:
    deliver = m.BasicDeliver(
        consumer_tag="c", delivery_tag=7, redelivered=True, exchange="", routing_key="q"
    )
    assert CODEC.encode(deliver) == bytes.fromhex("003c003c 0163 0000000000000007 01 00 0171")
    assert CODEC.encode(m.BasicAck(9, True)) == bytes.fromhex("003c0050 0000000000000009 01")


@pytest.mark.parametrize("index", [(10, 12), (15, 10), (60, 41), (0, 0), (65535, 65535)])
def test_numbers_of_no_method_are_told_apart_from_broken_fields(index: tuple[int, int]) -> None:
    octets = index[0].to_bytes(2, "big") + index[1].to_bytes(2, "big")
    assert CODEC.decode(octets, 0, 4) is None
    assert CODEC.spec_at(*index) is None


def test_a_broken_field_is_named() -> None:
    with pytest.raises(DecodeError, match=r"BasicAck\.delivery_tag"):
        CODEC.decode(bytes.fromhex("003c0050 00"), 0, 5)
    with pytest.raises(DecodeError, match=r"QueueDeclare\.arguments: no field table type"):
        CODEC.decode(bytes.fromhex("0032000a 0000 00 00 00000004 0161 5a 00"), 0, 16)


def test_a_value_out_of_range_is_our_own_misuse() -> None:
    with pytest.raises(MisuseError, match="channel_max"):
        CODEC.encode(m.ConnectionTune(channel_max=65536))
    with pytest.raises(MisuseError, match="short string"):
        CODEC.encode(m.BasicCancel("x" * 256))


def test_no_two_methods_share_their_numbers() -> None:
    for codec in (CODEC, CODEC_0_8):
        indexes = [
            (codec.spec_of(spec.record).class_id, codec.spec_of(spec.record).method_id)
            for spec in SPECS
            if _has(codec, spec.record)
        ]
        assert len(indexes) == len(set(indexes))


def _has(codec: MethodCodec, record: type) -> bool:
    try:
        codec.spec_of(record)
    except KeyError:
        return False
    return True


def test_0_8_closes_connections_with_its_own_numbers() -> None:
    assert CODEC_0_8.encode(m.ConnectionClose())[:4] == bytes.fromhex("000a003c")
    assert CODEC_0_8.encode(m.ConnectionCloseOk()) == bytes.fromhex("000a003d")
    assert CODEC_0_8.encode(m.ChannelOpenOk()) == bytes.fromhex("0014000b")
    consume = m.BasicConsume(queue="q", consumer_tag="c", no_ack=True)
    octets = CODEC_0_8.encode(consume)
    assert octets == bytes.fromhex("003c0014 0000 0171 0163 02")
    assert CODEC_0_8.decode(octets, 0, len(octets)) == consume


def test_only_methods_with_content_say_so() -> None:
    assert {spec.record for spec in SPECS if spec.has_content} == {
        m.BasicPublish,
        m.BasicReturn,
        m.BasicDeliver,
        m.BasicGetOk,
    }


def test_every_method_has_a_sender_and_no_method_is_listed_twice() -> None:
    assert all(spec.sender in (Sender.CLIENT, Sender.SERVER, Sender.EITHER) for spec in SPECS)
    assert len({spec.record for spec in SPECS}) == len(SPECS)
