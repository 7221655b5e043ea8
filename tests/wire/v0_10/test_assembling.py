"""Frames, segments and assemblies: every state with every frame (0-10 §4)."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.wire.v0_10.assembling import STEPS, Assembling, AssemblyState
from router.wire.v0_10.framing import BODY, COMMAND, CONTROL, FRAME, HEADER, assembly
from router.wire.v0_10.reply import ConnectionFaultError

REACH: dict[AssemblyState, list[tuple[int, int]]] = {
    AssemblyState.IDLE: [],
    AssemblyState.IN_HEAD: [(0xA, COMMAND)],
    AssemblyState.BETWEEN: [(0xB, COMMAND)],
    AssemblyState.IN_HEADER: [(0xB, COMMAND), (2, HEADER)],
    AssemblyState.IN_BODY: [(0xB, COMMAND), (2, BODY)],
}
"""AssemblyState → frames (flags and kind) that lead there."""

FLAGS = (8, 2)


@pytest.mark.parametrize("state", AssemblyState)
@pytest.mark.parametrize("kind", [CONTROL, COMMAND, HEADER, BODY])
@pytest.mark.parametrize(("first_segment", "first_frame"), list(itertools.product([0, 8], [0, 2])))
def test_what_may_come_is_the_table(
    state: AssemblyState, kind: int, first_segment: int, first_frame: int
) -> None:
    assembling = Assembling(COMMAND)
    for flags, sent in REACH[state]:
        assert not assembling.take(flags, sent, b"x")
    assert assembling.state is state
    allowed = (state, kind, bool(first_segment), bool(first_frame)) in STEPS and kind != CONTROL
    if allowed:
        assert not assembling.take(first_segment | first_frame | 1, kind, b"y")
    else:
        with pytest.raises(ConnectionFaultError):
            assembling.take(first_segment | first_frame | 1, kind, b"y")


def test_a_second_header_and_a_header_behind_a_body_are_refused() -> None:
    for first in (HEADER, BODY):
        assembling = Assembling(COMMAND)
        assembling.take(0xB, COMMAND, b"c")
        assembling.take(3, first, b"h")
        with pytest.raises(ConnectionFaultError, match="a header behind"):
            assembling.take(3, HEADER, b"h")


def test_last_segment_holds_for_all_frames_of_a_segment() -> None:
    assembling = Assembling(COMMAND)
    assembling.take(0xB, COMMAND, b"c")
    assembling.take(2 | 4, BODY, b"1")
    with pytest.raises(ConnectionFaultError, match="last-segment changes"):
        assembling.take(1, BODY, b"2")


def test_a_command_does_not_travel_on_the_track_of_controls() -> None:
    with pytest.raises(ConnectionFaultError):
        Assembling(CONTROL).take(0xF, COMMAND, b"x")
    with pytest.raises(ConnectionFaultError):
        Assembling(COMMAND).take(0xF, CONTROL, b"x")


@given(
    st.binary(min_size=1, max_size=50),
    st.binary(max_size=50),
    st.binary(max_size=200),
    st.integers(13, 60),
)
def test_what_is_cut_into_frames_comes_together_again(
    head: bytes, header: bytes, body: bytes, frame_max: int
) -> None:
    octets = assembly(COMMAND, 7, head, frame_max, (header, body))
    assembling, at, is_done = Assembling(COMMAND), 0, False
    while at < len(octets):
        assert not is_done
        flags, kind, size, reserved, track, channel = FRAME.unpack_from(octets, at)
        assert (reserved, track, channel) == (0, COMMAND, 7)
        assert size <= frame_max
        is_done = assembling.take(flags, kind, octets[at + 12 : at + size])
        at += size
    assert is_done
    assert (assembling.head, assembling.header, assembling.body) == (head, header, body)


def test_bodies_in_several_segments_are_joined() -> None:
    assembling = Assembling(COMMAND)
    assembling.take(0xB, COMMAND, b"c")
    assembling.take(3, BODY, b"1")
    assembling.take(3, BODY, b"2")
    assert assembling.take(7, BODY, b"3")
    assert assembling.body == b"123"
    assert assembling.header is None
