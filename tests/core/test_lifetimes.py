"""How long dynamic nodes live, by the policy that their maker asks for (§3.5.10-13)."""

import pytest

from router.core.lifetime import LIFETIME, LOOK_SECONDS, Lifetime, read_lifetime
from router.core.settings import CoreSettings
from router.model.condition import NOT_FOUND, RESOURCE_DELETED
from router.model.outcome import RELEASED
from router.model.terminus import OPEN, Source, Target
from router.wire.v1_0.types import Described, Symbol, Ulong
from tests.support.fleet import Fleet
from tests.support.play import Play, ReceiverEnd, SenderEnd

LINGER = CoreSettings(router_id="dc1").linger_seconds + 1.0


def asking(lifetime: Lifetime) -> dict[object, object]:
    """Node properties that ask for a lifetime."""
    return {LIFETIME: Described(Ulong(lifetime.value[0]), [])}


def made(play: Play, lifetime: Lifetime, credit: int = 5) -> ReceiverEnd:
    """A client for whose link a node has been made that others may receive from, too."""
    return play.connect("maker").attach_receiver(
        None,
        dynamic=True,
        credit=credit,
        node_properties=asking(lifetime),
        properties={OPEN: True},
    )


def address_of(end: ReceiverEnd | SenderEnd) -> str:
    assert end.attach is not None
    terminus = end.attach.source if isinstance(end, ReceiverEnd) else end.attach.target
    assert isinstance(terminus, Source | Target)
    assert terminus.address is not None
    return terminus.address


def is_there(play: Play, address: str) -> bool:
    """Tells whether a node is there, by attaching to it for a moment."""
    end = play.connect("looker").attach_sender(address)
    if end.refused is not None:
        assert end.refused.name == NOT_FOUND
        return False
    end.detach()
    return True


def is_ended(end: ReceiverEnd | SenderEnd) -> bool:
    condition = None if end.detached is None else end.detached.condition
    return condition is not None and condition.name == RESOURCE_DELETED


@pytest.mark.parametrize("lifetime", Lifetime)
@pytest.mark.parametrize("is_named", [True, False])
def test_a_policy_is_read_by_code_and_by_name(lifetime: Lifetime, is_named: bool) -> None:
    code, name = lifetime.value
    descriptor = Symbol(name) if is_named else Ulong(code)
    assert read_lifetime({LIFETIME: Described(descriptor, [])}) is lifetime


@pytest.mark.parametrize("value", [None, 5, "delete-on-close", Described(Ulong(0x24), [])])
def test_what_is_no_policy_counts_as_the_shortest_life(value: object) -> None:
    assert read_lifetime({LIFETIME: value}) is Lifetime.CLOSE
    assert read_lifetime({LIFETIME: Described([], [])}) is Lifetime.CLOSE


@pytest.mark.parametrize("lifetime", Lifetime)
def test_the_answer_says_what_the_node_really_has(lifetime: Lifetime) -> None:
    play = Play()
    properties = {**asking(lifetime), Symbol("x:color"): "red"}
    receiver = play.connect().attach_receiver(None, dynamic=True, node_properties=properties)
    sender = play.connect().attach_sender(None, dynamic=True, node_properties=properties)
    assert receiver.attach is not None
    assert sender.attach is not None
    for terminus in (receiver.attach.source, sender.attach.target):
        assert isinstance(terminus, Source | Target)
        assert terminus.dynamic_node_properties == asking(lifetime)


@pytest.mark.parametrize("lifetime", Lifetime)
def test_a_node_outlives_its_link_while_its_policy_says_so(lifetime: Lifetime) -> None:
    play = Play()
    maker = made(play, lifetime)
    address = address_of(maker)
    sender = play.connect("s").attach_sender(address)
    maker.detach()
    assert is_ended(sender) is not lifetime.waits_for_links
    assert is_there(play, address) is lifetime.waits_for_links
    if lifetime.waits_for_links:
        late = play.connect("late").attach_receiver(address, credit=5)
        sender.send("x")
        assert late.payloads == [b"x"]
        sender.detach()
        late.accept()
        late.detach()
        assert not is_there(play, address)


@pytest.mark.parametrize("lifetime", Lifetime)
@pytest.mark.parametrize("is_lost", [True, False])
def test_a_node_with_nothing_left_ends_with_its_link(lifetime: Lifetime, is_lost: bool) -> None:
    play = Play()
    maker = made(play, lifetime)
    address = address_of(maker)
    assert is_there(play, address)
    if is_lost:
        maker.peer.lose()
    else:
        maker.detach()
    assert not is_there(play, address)


@pytest.mark.parametrize("lifetime", Lifetime)
def test_a_node_made_for_a_sender_goes_on_for_its_messages(lifetime: Lifetime) -> None:
    play = Play()
    maker = play.connect().attach_sender(None, dynamic=True, node_properties=asking(lifetime))
    address = address_of(maker)
    receiver = play.connect("r").attach_receiver(address, credit=1)
    maker.send("first", settled=True)
    maker.detach()
    assert is_ended(receiver) is (lifetime is Lifetime.CLOSE)
    if lifetime is Lifetime.CLOSE:
        return
    receiver.accept()
    play.wait(LOOK_SECONDS * 2)
    assert is_ended(receiver) is (lifetime is Lifetime.NO_MESSAGES)
    receiver.detach()
    assert not is_there(play, address)


def test_a_node_without_links_waits_for_the_messages_that_nobody_has_back() -> None:
    play = Play()
    maker = made(play, Lifetime.NO_LINKS_OR_MESSAGES, credit=1)
    address = address_of(maker)
    sender = play.connect("s").attach_sender(address)
    sender.send("x", settled=True)
    sender.detach()
    maker.update(*maker.unsettled, state=RELEASED)
    maker.detach()
    play.wait(LOOK_SECONDS * 8)
    late = play.connect("late").attach_receiver(address, credit=1)
    assert late.payloads == [b"x"]
    late.accept()
    late.detach()
    assert not is_there(play, address)


def test_a_sender_to_the_anonymous_terminus_keeps_no_node() -> None:
    play = Play()
    maker = made(play, Lifetime.NO_LINKS)
    address = address_of(maker)
    service = play.connect("service").attach_sender(None)
    service.send("x", address=address)
    maker.accept()
    maker.detach()
    assert not is_there(play, address)
    assert not service.is_detached()


# Two workers


@pytest.mark.parametrize("lifetime", Lifetime)
@pytest.mark.parametrize("role", ["sender", "receiver"])
def test_links_at_other_workers_keep_a_node_or_end_with_it(lifetime: Lifetime, role: str) -> None:
    fleet = Fleet(3)
    maker = made(fleet[1], lifetime)
    fleet.settle()
    address = address_of(maker)
    far = fleet[2].connect("far")
    link = far.attach_sender(address) if role == "sender" else far.attach_receiver(address)
    other = fleet[3].connect("other").attach_receiver(address)
    fleet.settle()
    other.detach()
    fleet.settle()
    maker.detach()
    fleet.settle()
    fleet.wait(LINGER)
    fleet.settle()
    assert is_ended(link) is not lifetime.waits_for_links
    assert is_there(fleet[3], address) is lifetime.waits_for_links
    fleet.settle()
    if lifetime.waits_for_links:
        link.detach()
        fleet.settle()
        fleet.wait(LINGER)
        fleet.settle()
        assert not is_there(fleet[1], address)


def test_a_node_made_for_a_sender_is_found_at_other_workers() -> None:
    fleet = Fleet(2)
    maker = fleet[1].connect("maker").attach_sender(None, dynamic=True)
    fleet.settle()
    receiver = fleet[2].connect("far").attach_receiver(address_of(maker), credit=2)
    fleet.settle()
    maker.send("x")
    fleet.settle()
    assert receiver.payloads == [b"x"]
    receiver.accept()
    maker.detach()
    fleet.settle()
    assert is_ended(receiver)


def test_receivers_at_two_workers_do_not_keep_a_node_that_has_ended() -> None:
    fleet = Fleet(3)
    maker = made(fleet[1], Lifetime.CLOSE)
    fleet.settle()
    address = address_of(maker)
    others = [fleet[each].connect("far").attach_receiver(address, credit=1) for each in (2, 3)]
    fleet.settle()
    maker.detach()
    fleet.settle()
    assert all(map(is_ended, others))
    for each in (1, 2, 3):
        assert not is_there(fleet[each], address)
