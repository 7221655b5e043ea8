"""Sharing out a run at once gives what the rule gives one by one."""

import attrs
from hypothesis import given
from hypothesis import strategies as st

from router.core.forward import allot
from router.core.node import Node, NodeKey
from router.links.link import IncomingLink, LinkKey, OutgoingLink
from router.links.pairing import Pairing, Queue
from router.model.delivery import ReceivedDelivery
from router.model.identity import ContainerId, DeliveryNumber, DeliveryTag, LinkName
from router.model.terminus import Role
from router.routes.route import Distribution, Route
from tests.support.balanced import choose

KEY = LinkKey(None, ContainerId("c"), LinkName("l"), Role.SENDER)


@attrs.define
class Candidate:
    """What ``routes.distribution`` looks at."""

    credit: int
    unsettled: int
    last_used: int
    cost: int
    elsewhere: int
    receivers: int


def outgoing(place: int, like: Candidate) -> OutgoingLink:
    link = OutgoingLink(
        key=KEY, address="a", source=None, target=None, connection=None, link=None, cost=like.cost
    )
    link.place, link.credit, link.last_used = place, like.credit, like.last_used
    link.elsewhere, link.receivers = like.elsewhere, like.receivers
    for number in range(like.unsettled):
        link.unsettled[DeliveryNumber(number)] = pairing(number, False)
    return link


def pairing(number: int, settled: bool) -> Pairing:
    incoming = IncomingLink(
        key=KEY, address="a", source=None, target=None, connection=None, link=None
    )
    delivery = ReceivedDelivery(DeliveryNumber(number), DeliveryTag(b"t"), b"", settled=settled)
    return Pairing(incoming, delivery.number, delivery, Queue(incoming), 0.0, number, settled)


CANDIDATES = st.lists(
    st.builds(
        Candidate,
        credit=st.integers(1, 6),
        unsettled=st.integers(0, 4),
        last_used=st.integers(0, 3),
        cost=st.integers(0, 2),
        elsewhere=st.integers(0, 4),
        receivers=st.integers(1, 3),
    ),
    min_size=1,
    max_size=5,
)


@given(
    st.sampled_from([Distribution.BALANCED, Distribution.CLOSEST]),
    CANDIDATES,
    st.lists(st.booleans(), max_size=20),
)
def test_run_is_shared_out_as_the_rule_says(
    distribution: Distribution, candidates: list[Candidate], settled: list[bool]
) -> None:
    node = Node(key=NodeKey("a"), route=Route(address="a", distribution=distribution))
    node.turn = 3
    links = [outgoing(place, like) for place, like in enumerate(candidates, 1)]
    run = settled[: sum(candidate.credit for candidate in candidates)]
    pairings = [pairing(number, is_settled) for number, is_settled in enumerate(run)]

    expected: list[list[int]] = [[] for _ in candidates]
    turn = 3
    for number in range(len(run)):
        (best,) = choose(distribution, candidates)
        turn += 1
        best.last_used = turn
        best.credit -= 1
        best.unsettled += 1
        index = next(i for i, candidate in enumerate(candidates) if candidate is best)
        expected[index].append(number)

    shares = {id(link): share for link, share in allot(node, links, pairings)}
    given_out = [[int(p.number) for p in shares.get(id(link), [])] for link in links]
    assert given_out == expected
    assert node.turn == turn
