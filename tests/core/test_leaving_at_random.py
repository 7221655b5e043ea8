"""Exactly once though links are detached and spoken of: at random, between cuts, crashes and ends.

The peers are those of ``test_exactly_once``. They detach links in good order, go on to answer and
settle what is unsettled on them (§2.7.6) until they attach them again or end their session, and may
lose the connection meanwhile. Then attaches of the past arrive as well (``links.attaches``).
"""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from tests.core.test_exactly_once import LIMITS, SMALL, ExactlyOnce, Receiver, Sender
from tests.core.test_exactly_once_crashes import Crashes
from tests.core.test_late_attaches_at_random import Late
from tests.support.journaled import Journaled

pytestmark = pytest.mark.thorough

SESSION = 1


class Leaves(ExactlyOnce):
    """Clients whose links are detached, beside those that are attached or cut off."""

    def __init__(self) -> None:
        self.left: list[Sender | Receiver] = []
        super().__init__()

    def clients_left(self) -> list[Sender | Receiver]:
        """Those that have detached their link and may still speak on its session."""
        self.left = [
            each
            for each in self.left
            if each.peer is not None and not each.is_cut and each.end is not None
            if each.end.link in each.peer.left
        ]
        return self.left

    @rule(which=st.integers(0, 3))
    def leave(self, which: int) -> None:
        clients = self.clients()
        client = clients[which % len(clients)]
        end = client.end
        if client.peer is None or client.is_cut or end is None or not end.is_live():
            return
        end.credit = 0
        end.leave()
        self.left.append(client)

    @precondition(lambda self: bool(self.clients_left()))
    @rule(which=st.integers(0, 3))
    def attach_what_was_left(self, which: int) -> None:
        client = self.left.pop(which % len(self.left))
        assert client.peer is not None
        client.attach_by(client.peer)

    @precondition(lambda self: bool(self.clients_left()))
    @rule(which=st.integers(0, 3), seconds=st.sampled_from([0.0, 90.0]))
    def end_the_session(self, which: int, seconds: float) -> None:
        client = self.left.pop(which % len(self.left))
        assert client.peer is not None
        client.peer.end_session(SESSION)
        client.end = None
        self.play.wait(seconds)
        client.attach_by(client.peer)

    def teardown(self) -> None:
        for client in tuple(self.clients_left()):
            assert client.peer is not None
            client.attach_by(client.peer)
        super().teardown()


class LeavesInSmallFrames(Leaves):
    frame_octets = SMALL
    entries = 2


class LeavesAfterCrashes(Crashes, Leaves):
    def live_on(self, stage: Journaled) -> None:
        super().live_on(stage)
        self.left.clear()


class LeavesLate(Late, Leaves):
    pass


TestLeaves = Leaves.TestCase
TestLeaves.settings = LIMITS
TestLeavesInSmallFrames = LeavesInSmallFrames.TestCase
TestLeavesInSmallFrames.settings = LIMITS
TestLeavesAfterCrashes = LeavesAfterCrashes.TestCase
TestLeavesAfterCrashes.settings = LIMITS
TestLeavesLate = LeavesLate.TestCase
TestLeavesLate.settings = LIMITS
