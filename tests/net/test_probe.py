"""The machine that looks for addresses: it attaches and detaches, and moves nothing."""

import itertools
from collections.abc import Sequence

from router.model.capabilities import Capabilities, Protocol
from router.model.commands import AttachLink, Command, DetachLink
from router.model.condition import NOT_FOUND, Condition
from router.model.events import ConnectionOpened, LinkAttached, LinkDetached
from router.model.identity import ContainerId, LinkId
from router.model.terminus import Role, Source, Target
from router.net.client.probe import MOST, Probe, Sought


def probe(*sought: Sought) -> Probe:
    return Probe(sought, map(LinkId, itertools.count(1)), "check-1")


def opened(made: Probe, product: str = "peer", *, declares: bool = False) -> None:
    protocol = Protocol.AMQP_0_9_1 if declares else Protocol.AMQP_1_0
    event = ConnectionOpened(
        container=ContainerId("far"),
        capabilities=Capabilities(protocol=protocol, declares=declares),
        properties={"product": product},
    )
    assert made.handle([event]) == []


def attaches(commands: Sequence[Command]) -> list[AttachLink]:
    assert all(isinstance(each, AttachLink | DetachLink) for each in commands)
    return [each for each in commands if isinstance(each, AttachLink)]


def answer(attach: AttachLink, *, is_there: bool = True) -> LinkAttached:
    return LinkAttached(
        link=attach.link,
        name=attach.name,
        role=attach.role,
        is_answer=True,
        source=attach.source if is_there else None,
        target=attach.target if is_there else None,
    )


def test_each_address_is_attached_to_and_detached_again() -> None:
    there, gone = Sought("there", Role.SENDER), Sought("gone", Role.RECEIVER)
    made = probe(there, gone)
    opened(made)
    first, second = attaches(made.pull())
    assert first.target == Target(address="there")
    assert isinstance(second.source, Source)
    assert (second.role, second.source.address) == (Role.RECEIVER, "gone")
    reason = Condition(NOT_FOUND, "no such queue")
    refusal = answer(second, is_there=False), LinkDetached(second.link, True, reason)
    assert made.handle([answer(first), *refusal]) == []
    assert made.pull() == [DetachLink(first.link, closed=True)]
    assert made.is_done
    assert made.found == {there: None, gone: reason}


def test_only_a_few_links_are_attached_at_a_time() -> None:
    made = probe(*(Sought(f"a{number}", Role.SENDER) for number in range(2 * MOST)))
    opened(made)
    begun = attaches(made.pull())
    assert len(begun) == MOST
    assert made.pull() == []
    made.handle([answer(each) for each in begun[:3]])
    assert len(attaches(made.pull())) == 3


def test_peers_that_make_queues_are_asked_as_by_a_sender_which_makes_none() -> None:
    made = probe(Sought("exchange/key", Role.RECEIVER))
    opened(made, declares=True)
    (attach,) = attaches(made.pull())
    assert (attach.role, attach.target) == (Role.SENDER, Target(address="exchange/key"))
    assert not attach.properties


def test_rabbitmq_over_1_0_is_asked_by_the_name_that_makes_nothing() -> None:
    made = probe(Sought("orders", Role.RECEIVER), Sought("/exchange/x", Role.RECEIVER))
    opened(made, "RabbitMQ")
    sources = [each.source for each in attaches(made.pull())]
    assert [each and each.address for each in sources] == ["/amq/queue/orders", "/exchange/x"]
