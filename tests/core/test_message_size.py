"""``max_message_octets`` holds on the express lane as off it (§2.7.3)."""

import pytest

from router.core.policy import OPEN, PeerLimits, Policy, PolicyRule
from router.core.settings import CoreSettings
from router.core.stored import HERE, STORE
from router.model.condition import MESSAGE_SIZE_EXCEEDED
from router.routes.route import Distribution, Endpoint, Guarantee, Route, Storing
from router.wire.v1_0.frames import frame
from router.wire.v1_0.performatives import Transfer, encode
from tests.support.exchange import Exchange, Sender, message
from tests.support.fleet import Fleet
from tests.support.kernel import MODES
from tests.support.play import Play

LIMIT = 10_000
FRAME = 16_000

modes = pytest.mark.parametrize("mode", MODES)


class Trial:
    """A node with traffic, on the lane if there is one."""

    def __init__(self, mode: str, policy: Policy = OPEN) -> None:
        settings = CoreSettings(router_id="router", max_message_octets=LIMIT)
        self.exchange = Exchange(mode, settings=settings, policy=policy)
        self.mode = mode
        self.receiver = self.exchange.attach_receiver(self.exchange.connect(), "here")
        self.exchange.settle_down()
        self.receiver.grant(1000)
        self.exchange.settle_down()
        self.first, self.second = self.attach(), self.attach()
        for _ in range(2):
            for sender in (self.first, self.second):
                sender.send([message(97, 20)], settled=False)
                self.exchange.settle_down()
                self.receiver.answer(1, True)
                self.exchange.settle_down()
        assert self.is_on_lane() is (mode != "off")

    def attach(self) -> Sender:
        sender = self.exchange.attach_sender(self.exchange.connect(), "here")
        self.exchange.settle_down()
        return sender

    def is_on_lane(self) -> bool:
        return any(node.is_express for node in self.exchange.core._registry.nodes.values())

    def say(self, sender: Sender, payload: bytes, *, settled: bool, part: int = FRAME) -> None:
        """Sends what our engine would not, since it keeps to the limit that it was told."""
        frames = [payload[at : at + part] for at in range(0, len(payload), part)]
        for number, piece in enumerate(frames):
            more = number + 1 < len(frames)
            body = Transfer(0, 2, b"large", 0, settled, more)
            sender.client.outbox += frame(0, encode(body), piece)
        self.exchange.push(sender.client)
        self.exchange.settle_down()

    def is_refused(self, sender: Sender) -> bool:
        """Whether the router has detached a link for the size of a message."""
        return MESSAGE_SIZE_EXCEEDED.encode() in sender.client.heard

    def received(self) -> list[int]:
        """Sizes of what has come, but for the first messages."""
        return [len(payload) for payload in self.receiver.received[4:]]


@modes
@pytest.mark.parametrize("settled", [False, True])
@pytest.mark.parametrize(
    ("octets", "part"),
    [
        (LIMIT + 1, FRAME),  # in one frame
        (150_000, FRAME),  # in frames each of which is too large
        (LIMIT + 1, 4000),  # in frames that together are
        (150_000, 4000),  # and go on
    ],
)
def test_what_is_larger_than_was_told_in_attach_ends_its_link(
    mode: str, settled: bool, octets: int, part: int
) -> None:
    trial = Trial(mode)
    trial.say(trial.first, bytes_of(octets), settled=settled, part=part)
    assert trial.is_refused(trial.first)
    assert trial.received() == []
    assert not trial.is_refused(trial.second)
    trial.second.send([message(97, 20)], settled=False)
    trial.exchange.settle_down()
    assert trial.received() == [25]


@modes
@pytest.mark.parametrize("part", [FRAME, 4000])
def test_what_is_as_large_as_was_told_passes(mode: str, part: int) -> None:
    trial = Trial(mode)
    trial.say(trial.first, bytes_of(LIMIT), settled=False, part=part)
    assert not trial.is_refused(trial.first)
    assert trial.received() == [LIMIT]
    assert trial.is_on_lane() is (mode != "off")


@modes
def test_the_limit_of_a_rule_holds_as_that_of_the_router(mode: str) -> None:
    trial = Trial(
        mode,
        Policy(
            [
                PolicyRule(
                    name="a", send=("#",), receive=("#",), limits=PeerLimits(max_message_octets=50)
                )
            ]
        ),
    )
    trial.say(trial.first, bytes_of(50), settled=False)
    trial.say(trial.second, bytes_of(51), settled=False)
    assert not trial.is_refused(trial.first)
    assert trial.is_refused(trial.second)
    assert trial.received() == [50]


def bytes_of(octets: int) -> bytes:
    """A message of so many octets in all its sections."""
    return message(97, octets - 8) if octets - 8 > 255 else message(97, octets - 5)


@pytest.mark.parametrize("guarantee", [Guarantee.AT_LEAST_ONCE, Guarantee.EXACTLY_ONCE])
@pytest.mark.parametrize("distribution", list(Distribution))
def test_what_a_rule_lets_in_passes_between_workers(
    guarantee: Guarantee, distribution: Distribution
) -> None:
    rule = PolicyRule(
        name="a", send=("#",), receive=("#",), limits=PeerLimits(max_message_octets=50)
    )
    route = Route(address="#", guarantee=guarantee, distribution=distribution)
    settings = CoreSettings(router_id="dc1", max_message_octets=10)
    for sending, receiving in ((1, 2), (2, 1)):
        fleet = Fleet(2, route, settings=settings, policy=Policy([rule]))
        receiver = fleet[receiving].connect().attach_receiver("here", credit=5)
        fleet.settle()
        sender = fleet[sending].connect().attach_sender("here")
        fleet.settle()
        assert sender.attach is not None
        assert sender.attach.max_message_octets == 50
        sender.send(b"x" * 40)
        fleet.settle()
        assert receiver.payloads == [b"x" * 40]


@pytest.mark.parametrize(("container", "most"), [(STORE, 0), (HERE, 0), ("east", 10)])
def test_what_has_entered_once_is_not_measured_again(container: str, most: int) -> None:
    play = Play(
        Route(address="stored", to=(Endpoint("west"),), store=Storing()),
        "here",
        settings=CoreSettings(router_id="router", max_message_octets=10),
    )
    play.dial("west").attach_receiver("stored", credit=5)
    sender = play.dial(container).attach_sender("stored" if container == STORE else "here")
    assert sender.attach is not None
    assert sender.attach.max_message_octets == most
