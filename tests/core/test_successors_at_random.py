"""Exactly once, though at either end of a bridge one of two containers is found, whenever.

Each container keeps its own maps. At any time no message was processed twice, by whichever of them;
when all have been back often enough, every message was processed and nothing is left.
"""

import attrs
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import rule

from tests.core.test_exactly_once import SMALL_ASKED, ExactlyOnceBridge, Receiver, Sender
from tests.support.play import Peer


@attrs.define(eq=False)
class PlacedSender(Sender):
    """A container at the place ``source``; ``rivals`` are all that are found there."""

    container: str = ""
    rivals: "list[PlacedSender]" = attrs.field(factory=list)

    def reach(self) -> Peer:
        return reach(self)


@attrs.define(eq=False)
class PlacedReceiver(Receiver):
    """A container at the place ``target``, likewise."""

    container: str = ""
    rivals: "list[PlacedReceiver]" = attrs.field(factory=list)

    def reach(self) -> Peer:
        return reach(self)


def reach(client: PlacedSender | PlacedReceiver) -> Peer:
    """Is found at its place, from which all others are gone."""
    for rival in client.rivals:
        rival.lose()
    client.is_cut = False
    client.peer = client.play.connect(client.container, dialed=client.name)
    client.play.wait(0)
    return client.peer


class Successors(ExactlyOnceBridge):
    def __init__(self) -> None:
        super().__init__()
        for client in self.clients():
            client.lose()
        sources = [
            PlacedSender(self.play, "source", True, self.entries, container=f"source-{number}")
            for number in range(2)
        ]
        targets = [
            PlacedReceiver(self.play, "target", True, self.entries, container=f"target-{number}")
            for number in range(2)
        ]
        for source in sources:
            source.rivals, source.is_cut = sources, True
        for target in targets:
            target.rivals, target.is_cut = targets, True
        self.senders, self.receivers = [*sources], [*targets]
        for number in (1, 0):  # all have maps of their own from now on
            targets[number].attach()
            sources[number].attach()

    @rule(which=st.integers(0, 3), seconds=st.sampled_from([0.0, 90.0, 400.0]))
    def another_is_found(self, which: int, seconds: float) -> None:
        client = self.clients()[which]
        client.lose()
        self.play.wait(seconds)
        client.attach()
        self.play.wait(0)

    def teardown(self) -> None:
        for _ in range(8):
            for sender, receiver in zip(self.senders, self.receivers, strict=True):
                self._meet(sender, receiver)
            for sender, receiver in zip(self.senders, reversed(self.receivers), strict=True):
                self._meet(sender, receiver)
        super().teardown()

    def _meet(self, sender: Sender, receiver: Receiver) -> None:
        receiver.attach()
        sender.attach()
        for _ in range(10):
            self.attach_again()
            if self.entries or self.frame_octets:
                self.play.wait(2)
            receiver.catch_up()
            sender.catch_up()


class SuccessorsInSmallFrames(Successors):
    frame_octets = SMALL_ASKED
    entries = 2


LIMITS = settings(
    max_examples=60,
    stateful_step_count=50,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)

TestSuccessors = Successors.TestCase
TestSuccessors.settings = LIMITS
TestSuccessorsInSmallFrames = SuccessorsInSmallFrames.TestCase
TestSuccessorsInSmallFrames.settings = LIMITS
