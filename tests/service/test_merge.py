"""One router out of several workers' records."""

from router.core.snapshot import PeerRecord, Totals, UplinkRecord
from router.model.terminus import Role
from router.service.merge import merge_containers, merge_cores
from tests.support.fleets import container, core, route, stalled, uplink


def test_a_single_worker_is_the_whole_router() -> None:
    one = core(route("a"), route("b"))
    assert merge_cores([one]) is one


def test_counts_of_a_route_add_up() -> None:
    one = core(route(senders=2, queued=3, received=Totals(deliveries=10, accepted=7)))
    other = core(route(senders=1, queued=4, received=Totals(deliveries=5, accepted=5)))
    (merged,) = merge_cores([one, other]).routes
    assert (merged.senders, merged.queued) == (3, 7)
    assert (merged.received.deliveries, merged.received.accepted) == (15, 12)


def test_ages_add_up_by_bucket_and_the_oldest_counts() -> None:
    one = core(route(ages=(1, 0, 0, 0, 0, 0, 0, 2), oldest_seconds=9000.0))
    other = core(route(ages=(4, 1, 0, 0, 0, 0, 0, 0), oldest_seconds=0.5))
    third = core(route())
    (merged,) = merge_cores([one, other, third]).routes
    assert merged.ages == (5, 1, 0, 0, 0, 0, 0, 2)
    assert merged.oldest_seconds == 9000.0


def test_a_route_that_stalls_on_one_worker_is_stalled() -> None:
    (merged,) = merge_cores([core(route()), core(stalled()), core(route())]).routes
    assert merged.stall is not None


def test_a_route_that_is_paused_anywhere_is_paused() -> None:
    (merged,) = merge_cores([core(route()), core(route(is_paused=True))]).routes
    assert merged.is_paused


def test_routes_that_only_some_workers_know_stay_in_their_order() -> None:
    merged = merge_cores([core(route("a"), route("b")), core(route("b"), route("c"))])
    assert [each.name for each in merged.routes] == ["a", "b", "c"]


def test_uplinks_in_trouble_come_first() -> None:
    one, other = core(route(uplinks=(uplink("attached"),))), core(route(uplinks=(uplink("away"),)))
    (merged,) = merge_cores([one, other]).routes
    assert [each.step for each in merged.uplinks] == ["away", "attached"]
    assert isinstance(merged.uplinks[0], UplinkRecord)


def test_peers_add_up_by_container_and_kind() -> None:
    def peer(name: str, is_configured: bool, route_name: str) -> PeerRecord:
        return PeerRecord(
            container=name,
            is_configured=is_configured,
            connections=1,
            routes=((route_name, Role.SENDER),),
        )

    one = core(peers=(peer("east", True, "a"), peer("client", False, "a")))
    other = core(peers=(peer("east", True, "b"), peer("east", False, "a")))
    merged = merge_cores([one, other]).peers
    assert [(each.container, each.is_configured, each.connections) for each in merged] == [
        ("east", True, 2),
        ("client", False, 1),
        ("east", False, 1),
    ]
    assert merged[0].routes == (("a", Role.SENDER), ("b", Role.SENDER))


def test_budgets_and_connections_add_up() -> None:
    merged = merge_cores([core(connections=3, payload_octets=10), core(connections=4)])
    assert (merged.connections, merged.payload_octets) == (7, 10)
    assert merged.payload_limit_octets == 2 << 20


def test_a_container_that_one_worker_has_connected_is_connected() -> None:
    away = container("east", seconds=10.0, opened=2, failed=5)
    there = container("east", is_connected=True, seconds=60.0, opened=1)
    (merged,) = merge_containers([[away], [there]])
    assert merged.is_connected
    assert merged.seconds == 60.0
    assert (merged.opened, merged.failed) == (3, 5)
