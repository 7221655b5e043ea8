import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.wire.octets import SHOWN_OCTETS, ReceiveBuffer, SendBuffer


@given(st.lists(st.binary(min_size=1, max_size=50), max_size=30), st.data())
def test_what_goes_in_comes_out_once_and_in_order(chunks: list[bytes], data: st.DataObject) -> None:
    buffer = SendBuffer()
    out = b""
    for chunk in chunks:
        if data.draw(st.booleans()):
            buffer.append(chunk)
        else:
            buffer.extend([chunk[:1], chunk[1:]], len(chunk))
        shown = buffer.peek()
        count = data.draw(st.integers(0, len(shown)))
        out += shown[:count]
        buffer.consume(count)
        assert buffer.sent == len(out)
    while buffer.octets:
        shown = buffer.peek()
        out += shown
        buffer.consume(len(shown))
    assert out == b"".join(chunks)
    assert len(buffer.peek()) == 0


def test_what_is_shown_does_not_change_while_more_comes() -> None:
    buffer = SendBuffer()
    buffer.append(b"first")
    shown = buffer.peek()
    buffer.append(b"second")
    assert bytes(shown) == b"first"
    buffer.consume(5)
    assert bytes(buffer.peek()) == b"second"


def test_a_long_queue_is_not_joined_as_a_whole() -> None:
    buffer = SendBuffer()
    chunk = bytes(1000)
    for _ in range(1000):
        buffer.append(chunk)
    assert SHOWN_OCTETS <= len(buffer.peek()) < SHOWN_OCTETS + 1000
    total = 0
    while shown := buffer.peek():
        total += len(shown)
        buffer.consume(len(shown))
    assert total == 1_000_000


def test_somebody_hears_when_the_first_octets_come() -> None:
    calls: list[int] = []
    buffer = SendBuffer(lambda: calls.append(1))
    buffer.append(b"a")
    buffer.append(b"b")
    assert len(calls) == 1
    buffer.consume(len(buffer.peek()))
    buffer.extend([b"c"], 1)
    assert len(calls) == 2


@given(st.lists(st.binary(max_size=20), max_size=30), st.integers(1, 30))
def test_a_tail_is_given_back_when_there_is_enough(chunks: list[bytes], wanted: int) -> None:
    """Reads records of ``wanted`` octets, whatever the chunks."""
    buffer = ReceiveBuffer()
    read = b""
    for chunk in chunks:
        joined = buffer.join(memoryview(chunk))
        if joined is None:
            assert buffer.octets < wanted
            continue
        at = len(joined) // wanted * wanted
        read += joined[:at]
        buffer.keep(joined, at, wanted)
    whole = b"".join(chunks)
    assert read == whole[: len(whole) // wanted * wanted]
    assert buffer.octets == len(whole) % wanted


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_what_waits_is_a_copy(kind: type) -> None:
    raw = bytearray(b"abc")
    buffer = ReceiveBuffer()
    joined = buffer.join(kind(raw))
    assert joined == b"abc"
    buffer.keep(joined, 1, 10)
    raw[:] = b"xyz"
    assert buffer.join(b"d") is None
    assert buffer.join(b"efghijkl") == b"bcdefghijkl"
