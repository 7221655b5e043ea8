"""Random octets and random commands: no exception, no hang, no growth."""

import random
import resource

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.model.events import ConnectionClosed
from router.wire.v0_10.framing import FRAME
from tests.support.peer_0_10 import Peer, broker, server


def frames(chance: random.Random, count: int) -> bytes:
    """Frames that are well formed outside, and anything inside."""
    parts = []
    for _ in range(count):
        kind = chance.choice([0, 1, 1, 2, 3])
        flags = chance.choice([0xF, 0xF, 0xF, 0xB, 0x3, 0x7, chance.randrange(16)])
        class_code = chance.choice([2, 3, 4, 4, 4, 5, 7, 8, 1, 6, 9, 9, 10])
        head = bytes((class_code, chance.randrange(1, 14)))
        if kind == 1:
            head += b"\x01" + bytes((chance.randrange(2),))
        payload = head if kind < 2 else b""
        payload += bytes((chance.randrange(256), chance.randrange(4)))
        payload += chance.randbytes(chance.choice([0, 1, 4, 9, 30]))
        track = 0 if kind == 0 else 1
        parts.append(FRAME.pack(flags, kind, 12 + len(payload), 0, track, chance.randrange(3)))
        parts.append(payload)
    return b"".join(parts)


def opened(chance: random.Random) -> Peer:
    peer = server() if chance.randrange(2) else broker()
    if chance.randrange(4):
        peer.attach()
    return peer


def play(chance: random.Random, count: int) -> None:
    peer = opened(chance)
    for _ in range(count):
        if peer.engine.finished:
            break
        peer.feed(frames(chance, chance.randrange(1, 6)))
        peer.engine.bytes_sent(len(peer.engine.data_to_send()))
    peer.take(peer.engine.receive_eof(peer.now))
    assert len(peer.of(ConnectionClosed)) == 1
    assert peer.engine.finished


@given(st.integers(0, 1 << 32))
def test_random_frames_end_in_one_word_and_no_exception(seed: int) -> None:
    play(random.Random(seed), 12)


@given(st.binary(max_size=300), st.booleans())
def test_random_octets_behind_the_handshake_do_no_harm(octets: bytes, is_server: bool) -> None:
    peer = server() if is_server else broker()
    peer.feed(octets)
    peer.take(peer.engine.receive_eof(peer.now))
    assert len(peer.of(ConnectionClosed)) == 1


@pytest.mark.slow
def test_a_long_run_of_random_frames_costs_no_memory() -> None:
    chance = random.Random(10)
    for _ in range(2_000):
        play(chance, 20)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(20_000):
        play(chance, 20)
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert after - before < 20_000  # KiB
