"""Exactly once though attaches arrive late: random ones of the past, between cuts and crashes.

The peers are those of ``test_exactly_once``. Each remembers the maps of all its attaches; any of
them may arrive once more, on a connection that nobody reads from: with credit or a detach that was
pipelined behind it, and lost sooner or later.
"""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from tests.core.test_exactly_once import LIMITS, SMALL, ExactlyOnce
from tests.core.test_exactly_once_crashes import Crashes
from tests.support.journaled import Journaled
from tests.support.play import Peer, ReceiverEnd, SenderEnd

pytestmark = pytest.mark.thorough


class Late(ExactlyOnce):
    def __init__(self) -> None:
        super().__init__()
        self.late: list[Peer] = []

    @rule(
        which=st.integers(0, 3),
        back=st.integers(0, 9),
        behind=st.sampled_from(["nothing", "credit", "close", "detach"]),
    )
    def an_attach_of_the_past_arrives(self, which: int, back: int, behind: str) -> None:
        clients = self.clients()
        client = clients[which % len(clients)]
        ours, incomplete = client.past[-1 - back % len(client.past)]
        peer = client.attach_late(ours, incomplete=incomplete)
        self.late.append(peer)
        ends: list[SenderEnd | ReceiverEnd] = [*peer.sends.values(), *peer.receives.values()]
        for end in ends:
            if behind == "credit" and isinstance(end, ReceiverEnd):
                end.grant(3)
            elif behind in ("close", "detach"):
                end.detach(closed=behind == "close")

    @precondition(lambda self: bool(self.late))
    @rule(which=st.integers(0, 9), seconds=st.sampled_from([0.0, 90.0]))
    def a_late_connection_ends(self, which: int, seconds: float) -> None:
        self.late.pop(which % len(self.late)).lose()
        self.play.wait(seconds)


class LateAfterCrashes(Crashes, Late):
    def live_on(self, stage: Journaled) -> None:
        super().live_on(stage)
        self.late.clear()


class LateInSmallFrames(Late):
    frame_octets = SMALL


class LateAmongSmallFrames(LateInSmallFrames):
    entries = 2


class LateAmongSmallFramesAfterCrashes(LateAfterCrashes):
    frame_octets = SMALL
    entries = 2


TestLate = Late.TestCase
TestLate.settings = LIMITS
TestLateAfterCrashes = LateAfterCrashes.TestCase
TestLateAfterCrashes.settings = LIMITS
TestLateInSmallFrames = LateInSmallFrames.TestCase
TestLateInSmallFrames.settings = LIMITS
TestLateAmongSmallFrames = LateAmongSmallFrames.TestCase
TestLateAmongSmallFrames.settings = LIMITS
TestLateAmongSmallFramesAfterCrashes = LateAmongSmallFramesAfterCrashes.TestCase
TestLateAmongSmallFramesAfterCrashes.settings = LIMITS
