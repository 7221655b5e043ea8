import itertools

import pytest

from router.model.capabilities import Protocol
from router.routes.promise import Peer, Promise, promise
from router.routes.route import (
    Deduplication,
    Endpoint,
    Guarantee,
    InDoubt,
    Route,
    Unroutable,
)

EAST, WEST = Endpoint("east"), Endpoint("west")
AMO, ALO, EO = Guarantee.AT_MOST_ONCE, Guarantee.AT_LEAST_ONCE, Guarantee.EXACTLY_ONCE

PLAIN = Peer(name="plain")
RESUMES = Peer(name="resumes", resumes=True)
ROUTER = Peer(name="router", is_router=True)
BY_ID = Peer(name="by id", deduplicates="message-id")
OTHERS = [Peer(name=each, protocol=each) for each in Protocol]


def judged(
    *,
    guarantee: Guarantee = EO,
    east: Peer = RESUMES,
    west: Peer = RESUMES,
    in_doubt: InDoubt | None = None,
    dedup: str | None = None,
    from_: Endpoint | None = EAST,
    to: tuple[Endpoint, ...] = (WEST,),
) -> Promise:
    route = Route(
        address="a",
        from_=from_,
        to=to,
        guarantee=guarantee,
        in_doubt=in_doubt,
        dedup=Deduplication(dedup) if dedup else None,
    )
    return promise(route, {"east": east, "west": west})


# (target, in_doubt, dedup of the route) -> refused? The rows of the contract's table.
TARGETS = {
    (RESUMES, None, None): False,
    (RESUMES, InDoubt.HOLD, None): False,
    (RESUMES, InDoubt.RESEND, None): False,
    (ROUTER, None, None): False,
    (BY_ID, None, None): False,
    (BY_ID, InDoubt.HOLD, None): False,
    (BY_ID, InDoubt.RESEND, None): False,
    (PLAIN, None, "_AMQ_DUPL_ID"): False,
    (PLAIN, InDoubt.HOLD, None): False,
    (PLAIN, None, None): True,
    (PLAIN, InDoubt.RESEND, None): True,
}


@pytest.mark.parametrize(("row", "is_refused"), TARGETS.items())
def test_exactly_once_is_refused_where_the_target_cannot_give_it(
    row: tuple[Peer, InDoubt | None, str | None], is_refused: bool
) -> None:
    west, in_doubt, dedup = row
    result = judged(west=west, in_doubt=in_doubt, dedup=dedup)
    assert bool(result.refusals) is is_refused
    if not is_refused:
        assert result.gives is EO


@pytest.mark.parametrize("guarantee", [AMO, ALO])
@pytest.mark.parametrize("west", [PLAIN, RESUMES, ROUTER, BY_ID, *OTHERS])
def test_lesser_guarantees_are_never_refused(guarantee: Guarantee, west: Peer) -> None:
    result = judged(guarantee=guarantee, west=west)
    assert not result.refusals
    assert result.gives is guarantee


def test_no_route_ever_gives_more_than_was_asked() -> None:
    order = [AMO, ALO, EO]
    peers = [PLAIN, RESUMES, ROUTER, BY_ID]
    shapes: list[tuple[Endpoint | None, tuple[Endpoint, ...]]] = [
        (None, ()),
        (EAST, ()),
        (None, (WEST,)),
        (EAST, (WEST,)),
    ]
    for east, west, guarantee, (from_, to) in itertools.product(peers, peers, order, shapes):
        result = judged(guarantee=guarantee, east=east, west=west, from_=from_, to=to)
        assert order.index(result.gives) <= order.index(guarantee)
        assert all(flow.reasons for flow in result.flows)


def test_source_that_cannot_resume_weakens_the_promise() -> None:
    result = judged(east=PLAIN, west=RESUMES)
    assert not result.refusals
    assert result.gives is ALO
    assert "as a new delivery" in result.flows[0].reasons[0]


def test_repeats_of_such_a_source_are_caught_by_a_target_that_knows_ids() -> None:
    result = judged(east=PLAIN, west=PLAIN, dedup="message-id")
    assert result.gives is EO
    assert "dropped at plain by message-id" in result.flows[0].reasons[0]


def test_route_towards_a_container_has_a_flow_each_way() -> None:
    result = judged(from_=None, west=BY_ID)
    assert [(flow.path, flow.gives) for flow in result.flows] == [
        ("senders -> west/a", EO),
        ("west/a -> receivers", ALO),
    ]


def test_direct_exactly_once_says_for_which_clients_it_holds() -> None:
    result = judged(from_=None, to=())
    assert result.gives is EO
    assert "if they resume their links" in result.flows[0].reasons[0]


@pytest.mark.parametrize(
    ("in_doubt", "said"),
    [
        (None, "what others leave unsettled waits in the journal until a person decides"),
        (InDoubt.HOLD, "what others leave unsettled waits in the journal until a person decides"),
        (InDoubt.RESEND, "what others leave unsettled is sent again"),
    ],
)
def test_direct_exactly_once_says_what_becomes_of_what_lost_receivers_had(
    in_doubt: InDoubt | None, said: str
) -> None:
    result = judged(from_=None, to=(), in_doubt=in_doubt)
    [line] = [line for line in result.flows[0].reasons if line.startswith("receivers: ")]
    assert said in line


def test_held_deliveries_are_told_of() -> None:
    result = judged(west=PLAIN, in_doubt=InDoubt.HOLD)
    assert "until a person decides" in result.flows[0].reasons[-1]
    kept = judged(guarantee=ALO, in_doubt=InDoubt.HOLD)
    assert "waits for a person" in kept.flows[0].reasons[-1]


@pytest.mark.parametrize(
    ("protocol", "mark"),
    [
        (Protocol.AMQP_1_0, "its delivery-count raised"),
        (Protocol.AMQP_0_10, "marked as redelivered"),
        (Protocol.AMQP_0_9_1, "which a publish has no mark for"),
        (Protocol.AMQP_0_9R1, "which a publish has no mark for"),
        (Protocol.AMQP_FAST, "which a publish has no mark for"),
    ],
)
def test_what_a_repeat_shows_depends_on_the_targets_protocol(protocol: Protocol, mark: str) -> None:
    route = Route(address="orders", from_=Endpoint("east"), to=(Endpoint("west"),))
    peers = {"east": Peer(name="east"), "west": Peer(name="west", protocol=protocol)}
    (flow,) = promise(route, peers).flows
    assert flow.reasons[-1].endswith(f"what is in doubt is sent again, {mark}")


def test_hold_is_not_called_a_resend_where_the_target_knows_ids() -> None:
    result = judged(west=BY_ID, in_doubt=InDoubt.HOLD)
    assert "in_doubt: hold" in result.flows[0].reasons[-1]


def test_one_weak_target_of_several_is_refused() -> None:
    result = judged(to=(EAST, WEST), from_=None, east=RESUMES, west=PLAIN)
    assert [refusal.key for refusal in result.refusals] == ["guarantee"]
    assert "plain" in result.refusals[0].problem


def test_contradictory_keys_are_refused() -> None:
    doubtful = judged(guarantee=AMO, in_doubt=InDoubt.HOLD)
    assert [refusal.key for refusal in doubtful.refusals] == ["in_doubt"]
    pointless = judged(to=(), dedup="message-id")
    assert [refusal.key for refusal in pointless.refusals] == ["dedup"]


@pytest.mark.parametrize(
    ("guarantee", "said"),
    [
        (ALO, "what comes settled: kept in memory until it is accepted; what is rejected ends"),
        (EO, "what comes settled: kept in the journal until it is accepted; what is rejected ends"),
    ],
)
def test_what_becomes_of_messages_without_confirms_is_told(guarantee: Guarantee, said: str) -> None:
    (flow,) = promise(Route(address="a", guarantee=guarantee), {}).flows
    assert said in flow.reasons
    letters = Endpoint("morgue", "dead")
    buried = Route(
        address="a", guarantee=guarantee, unroutable=Unroutable.DEAD_LETTER, dead_letter=letters
    )
    (flow,) = promise(buried, {}).flows
    assert flow.reasons[1].endswith("what is rejected goes to morgue/dead")


def test_at_most_once_keeps_nothing() -> None:
    (flow,) = promise(Route(address="a", guarantee=Guarantee.AT_MOST_ONCE), {}).flows
    assert not any("kept" in reason for reason in flow.reasons)
