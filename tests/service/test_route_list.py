"""All routes of a router in a list, of which only those that were used have been looked at."""

from router.core.snapshot import RouteRecord
from router.routes.route import Route
from router.routes.table import RoutingTable
from router.service.route_list import RouteList
from tests.support.fleets import route

TABLE = RoutingTable(Route(address=name) for name in "abcdef")


def listing(*used: RouteRecord) -> RouteList:
    return RouteList.of(TABLE, used)


def names(records: list[RouteRecord] | tuple[RouteRecord, ...]) -> str:
    return "".join(record.name for record in records)


def test_routes_are_in_the_order_of_the_file_and_behind_them_what_it_does_not_name() -> None:
    routes = listing(route("x", senders=1), route("d", senders=2), route("b"))
    assert names(list(routes)) == "abcdefx"
    assert len(routes) == 7
    assert [record.senders for record in routes] == [0, 0, 0, 2, 0, 0, 1]


def test_a_page_is_cut_out_of_them() -> None:
    routes = listing(route("x"), route("d", senders=2))
    assert names(routes[2:5]) == "cde"
    assert names(routes[5:100]) == "fx"
    assert routes[3].senders == 2
    assert routes[-1].name == "x"


def test_one_is_found_by_its_name_used_or_not() -> None:
    routes = listing(route("x"), route("d", senders=2))
    found = [routes.find(name) for name in "adx?"]
    assert [None if each is None else (each.name, each.senders) for each in found] == [
        ("a", 0),
        ("d", 2),
        ("x", 0),
        None,
    ]


def test_some_of_them_are_all_that_were_used_and_the_first_others() -> None:
    routes = listing(route("x"), route("f"), route("b"))
    assert names(routes.some(unused=2)) == "abcfx"
    assert names(routes.some(unused=0)) == "bfx"
    assert names(routes.some(unused=9)) == "abcdefx"


def test_the_first_that_were_not_used_are_found_by_what_is_wanted() -> None:
    routes = listing(route("x"), route("b"))
    assert names(routes.unused(3, lambda each: each.name != "c")) == "ade"
    assert routes.unused(3, lambda each: False) == []
