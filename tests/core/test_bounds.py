"""Others' addresses: who receives from the management node, and from dynamic nodes."""

import pytest

from router.core.policy import OPEN, Policy, PolicyRule
from router.model.capabilities import Capabilities, Protocol
from router.model.condition import NOT_FOUND, RESOURCE_LOCKED, UNAUTHORIZED_ACCESS
from router.model.terminus import OPEN as IS_OPEN
from tests.support.fleet import Fleet
from tests.support.play import Peer, Play, ReceiverEnd

ALL = PolicyRule(name="all", send=("#",), receive=("#",))
NAMELESS = Capabilities(protocol=Protocol.AMQP_0_9_1, names_itself=False)


def made(peer: Peer, fleet: Fleet | None = None, **options: object) -> tuple[ReceiverEnd, str]:
    receiver = peer.attach_receiver(None, dynamic=True, credit=9, **options)  # type: ignore[arg-type]
    if fleet is not None:
        fleet.settle()  # the other workers know it
    assert receiver.attach is not None
    assert receiver.attach.source is not None
    address = receiver.attach.source.address
    assert address is not None
    assert address.startswith("dc1/temp/")
    return receiver, address


def refused(receiver: ReceiverEnd) -> str:
    assert receiver.refused is not None
    return receiver.refused.name


# Dynamic nodes


@pytest.mark.parametrize("policy", [OPEN, Policy([ALL])], ids=["no policy", "rule for all"])
def test_only_its_maker_receives_from_a_dynamic_node(policy: Policy) -> None:
    play = Play("#", policy=policy)
    mine, address = made(play.connect("asker", user="bob"))
    for container, user in (("other", "bob"), ("asker", "eve"), ("asker", None)):
        theirs = play.connect(container, user=user).attach_receiver(address, credit=9)
        assert refused(theirs) == RESOURCE_LOCKED
    again = play.connect("asker", user="bob").attach_receiver(address, credit=9)
    assert again.refused is None
    play.connect("server", user="eve").attach_sender(address).send(*"12")
    assert sorted(mine.payloads + again.payloads) == [b"1", b"2"]


def test_a_rule_that_spells_the_prefix_lets_others_receive_from_dynamic_nodes() -> None:
    spelled = PolicyRule(name="watch", users=("watcher",), receive=("dc1/temp/*",))
    half = PolicyRule(name="half", users=("half",), receive=("dc1/#", "*/temp/*"))
    play = Play("#", policy=Policy([spelled, half, ALL]))
    _, address = made(play.connect("asker", user="bob"))
    assert play.connect("w", user="watcher").attach_receiver(address).refused is None
    assert refused(play.connect("h", user="half").attach_receiver(address)) == RESOURCE_LOCKED


def test_a_node_that_is_made_to_be_shared_is_open_to_others() -> None:
    play = Play("orders")
    _, address = made(play.connect("a"), properties={IS_OPEN: True})
    assert play.connect("b").attach_receiver(address).refused is None


def test_the_address_of_a_dynamic_node_that_is_gone_leads_nowhere() -> None:
    play = Play("#")
    mine, address = made(play.connect("asker"))
    mine.detach()
    assert refused(play.connect("other").attach_receiver(address)) == NOT_FOUND
    assert refused_sender(play, address) == NOT_FOUND
    spelled = Play("#", "dc1.temp.#")
    assert spelled.connect("other").attach_receiver(address).refused is None


def refused_sender(play: Play, address: str) -> str:
    sender = play.connect("s").attach_sender(address)
    assert sender.refused is not None
    return sender.refused.name


def test_workers_know_who_made_the_dynamic_nodes_of_others() -> None:
    fleet = Fleet(2, "#")
    mine, address = made(fleet[1].connect("asker", user="bob"), fleet)
    theirs = fleet[2].connect("eve", user="eve").attach_receiver(address, credit=9)
    again = fleet[2].connect("asker", user="bob").attach_receiver(address, credit=9)
    fleet.settle()
    assert refused(theirs) == RESOURCE_LOCKED
    assert again.refused is None
    sender = fleet[2].connect("server").attach_sender(address)
    fleet.settle()
    sender.send(*"1234")
    fleet.settle()
    assert len(mine.payloads) + len(again.payloads) == 4
    mine.detach()
    fleet.settle()
    late = fleet[2].connect("late").attach_receiver(address)
    assert refused(late) in (NOT_FOUND, RESOURCE_LOCKED)


def test_a_maker_without_a_container_id_is_its_connection_alone() -> None:
    fleet = Fleet(2, "#")
    peer = fleet[1].connect("guest#1", capabilities=NAMELESS)
    _, address = made(peer, fleet)
    assert peer.attach_receiver(address).refused is None
    elsewhere = fleet[2].connect("guest#1", capabilities=NAMELESS)
    assert refused(elsewhere.attach_receiver(address)) == RESOURCE_LOCKED


def test_makers_with_names_that_are_no_text_or_long_are_told_to_other_workers() -> None:
    fleet = Fleet(2, "#")
    for container in ("t\udcff", "x" * 4096):
        _, address = made(fleet[1].connect(container), fleet)
        assert fleet[2].connect(container).attach_receiver(address).refused is None
        assert refused(fleet[2].connect("x").attach_receiver(address)) == RESOURCE_LOCKED
    assert "advertisement.refused" not in fleet[2].events()


def test_a_dialed_container_takes_no_replies_of_others_either() -> None:
    play = Play("#")
    _, address = made(play.connect("asker"))
    assert refused(play.dial("east").attach_receiver(address)) == RESOURCE_LOCKED


# The management node


@pytest.mark.parametrize("rules", [(), (ALL,)], ids=["no policy", "rule for all"])
def test_only_the_agent_receives_from_the_management_node(rules: tuple[PolicyRule, ...]) -> None:
    agent = PolicyRule(name="$management", users=("agent!",), send=("#",), receive=("$management",))
    play = Play("#", policy=Policy((agent, *rules) if rules else (), agent="agent!"))
    answers = play.connect("dc1", user="agent!").attach_receiver("$management", credit=5)
    assert answers.refused is None
    thief = play.connect("thief", user="bob").attach_receiver("$management", credit=5)
    assert refused(thief) == UNAUTHORIZED_ACCESS
    play.connect("asker", user="bob").attach_sender("$management").send(*"12345")
    assert len(answers.payloads) == 5


def test_a_rule_that_spells_the_management_node_lets_others_receive_from_it() -> None:
    rule = PolicyRule(name="audit", users=("audit",), receive=("$management",))
    play = Play("#", policy=Policy([rule, ALL], agent="agent!"))
    assert play.connect("a", user="audit").attach_receiver("$management").refused is None


def test_without_a_management_node_its_address_is_like_any_other() -> None:
    assert Play("#").connect("a").attach_receiver("$management").refused is None


def test_a_reload_ends_links_to_the_management_node_that_appears() -> None:
    play = Play("#")
    receiver = play.connect("a", user="bob").attach_receiver("$management", credit=1)
    play.carry_out(play.core.govern(Policy(agent="agent!"), {}, play.now))
    assert receiver.detached is not None
    assert receiver.detached.condition is not None
    assert receiver.detached.condition.name == UNAUTHORIZED_ACCESS


# Patterns


def watched(peer: Peer, pattern: str) -> set[str] | str:
    """What a peer is told of a pattern: the addresses in use, or why it is refused."""
    watch = peer.watch(pattern)
    if watch.refused is not None:
        return str(watch.refused.name)
    assert watch.addresses is not None
    return watch.addresses


def test_watching_a_pattern_asks_the_policy_first() -> None:
    rule = PolicyRule(name="some", users=("some",), receive=("logs/a.#",))
    nothing = PolicyRule(name="nothing", users=("nobody",), send=("#",))
    play = Play("logs/#", policy=Policy([rule, nothing, ALL]))
    source = play.connect("s", user="bob")
    for address in ("logs/a.x", "logs/b.x"):
        source.attach_sender(address)
    assert watched(play.connect(user="nobody"), "logs/#") == UNAUTHORIZED_ACCESS
    assert watched(play.connect(user="some"), "logs/b.#") == UNAUTHORIZED_ACCESS
    assert watched(play.connect(user="some"), "logs/#") == {"logs/a.x"}
    assert watched(play.connect(user="bob"), "logs/#") == {"logs/a.x", "logs/b.x"}


def test_who_watches_a_pattern_is_told_of_no_node_of_others() -> None:
    play = Play("#", policy=Policy([ALL], agent="agent!"))
    play.connect("dc1", user="agent!").attach_receiver("$management", credit=5)
    _, address = made(play.connect("asker", user="bob"))
    source = play.connect("s", user="eve")
    for each in (address, "$management", "open"):
        source.attach_sender(each)
    assert watched(play.connect("w", user="eve"), "#") == {"open"}
    assert watched(play.connect("asker", user="bob"), "#") == {"open", address}


def test_a_reload_tells_those_who_watch_what_they_may_receive_from_now() -> None:
    rule = PolicyRule(name="some", users=("some",), receive=("logs/a.#",))
    play = Play("logs/#", policy=Policy([rule, ALL]))
    source = play.connect("s", user="bob")
    for address in ("logs/a.x", "logs/b.x"):
        source.attach_sender(address)
    watch = play.connect(user="some").watch("logs/#")
    assert watch.addresses == {"logs/a.x"}
    play.carry_out(play.core.govern(Policy([ALL]), {}, play.now))
    assert watch.addresses == {"logs/a.x", "logs/b.x"}
    play.carry_out(play.core.govern(Policy([rule, ALL]), {}, play.now))
    assert watch.addresses == {"logs/a.x"}
