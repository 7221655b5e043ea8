"""Random frames behind a good handshake: no exception, no hang, no growth."""

import random
import resource

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.model.events import ConnectionClosed
from router.wire.v0_9_1 import methods as m
from router.wire.v0_9r1 import methods as d
from router.wire.v0_9r1.framing import FRAMING
from tests.support.draft_peer import DraftBrokerPeer, DraftClientPeer
from tests.wire.v0_9r1.test_content import made

_HEADERS = [made(b"ab").header, made(b"").header, made(b"ab", made(b"cd")).header]
_METHODS = [
    d.CODEC.encode(spec.record())
    for spec in d.SPECS
    if spec.record not in (m.ConnectionClose, m.ConnectionCloseOk)
]


def frames(chance: random.Random, count: int) -> bytes:
    """Frames that are well formed outside, and mostly inside, in an order of no sense."""
    parts = []
    for _ in range(count):
        kind = chance.choice([1, 1, 1, 1, 2, 3, 7, 8])
        number = 0 if kind > 3 else chance.randrange(1, 4)
        payload = {1: chance.choice(_METHODS), 2: chance.choice(_HEADERS), 3: b"ab"}.get(kind, b"")
        if kind < 4 and not chance.randrange(12):
            payload = payload[: chance.randrange(len(payload) + 1)]
        if kind < 4 and payload and not chance.randrange(12):
            at = chance.randrange(len(payload))
            payload = payload[:at] + chance.randbytes(1) + payload[at + 1 :]
        parts.append(FRAMING.frame(kind, number, payload))
    return b"".join(parts)


def play(chance: random.Random, count: int) -> None:
    peer: DraftClientPeer | DraftBrokerPeer
    if chance.randrange(2):
        peer = DraftClientPeer().open(1, 2)
    else:
        peer = DraftBrokerPeer().open()
    for _ in range(count):
        if peer.engine.finished:
            break
        peer.feed(frames(chance, chance.randrange(1, 6)))
        peer.octets()
    peer.events += peer.engine.receive_eof(peer.now)
    assert len([one for one in peer.events if isinstance(one, ConnectionClosed)]) == 1
    assert peer.engine.finished


@given(st.integers(0, 1 << 32))
def test_random_frames_end_in_one_word_and_no_exception(seed: int) -> None:
    play(random.Random(seed), 12)


@pytest.mark.slow
def test_a_long_run_of_random_frames_costs_no_memory() -> None:
    chance = random.Random(9)
    for _ in range(2_000):
        play(chance, 20)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(20_000):
        play(chance, 20)
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert after - before < 20_000  # KiB
