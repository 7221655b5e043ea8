"""What a dry run says that a reload would do."""

from pathlib import Path

import attrs
import pytest

from router.core.listing import LinkRecord
from router.core.snapshot import RouteRecord, Totals
from router.model.terminus import Role
from router.service.config import RouterConfig, read
from router.service.difference import Change
from router.service.rehearsal import Links, divided, rehearse

FILE = """
listeners: [{bind: 127.0.0.1:5672}]
containers:
  east: {url: "amqp://east.example"}
  west: {url: "amqp://west.example"}
routes:
  - {address: orders, from: east/orders, to: west}
  - {address: prices.*}
  - {address: once, guarantee: exactly-once}
"""


def config(text: str = FILE) -> RouterConfig:
    return read(text, "router.yaml", Path(), {})


def link(
    role: Role, address: str, *, unsettled: int = 0, configured: str | None = None
) -> LinkRecord:
    return LinkRecord(
        link=1,
        connection=1,
        container="app",
        configured=configured,
        name="l",
        role=role,
        address=address,
        route="eo.*",
        credit=0,
        unsettled=unsettled,
        totals=Totals(),
    )


TWO_AND_ONE = (
    link(Role.RECEIVER, "prices.eu"),
    link(Role.RECEIVER, "prices.us"),
    link(Role.SENDER, "prices.eu"),
)
USED = RouteRecord(addresses=2, name="prices.*", address="prices.*", senders=2, receivers=1)
EXACT = RouteRecord(name="once", address="once", senders=1, incoming_unsettled=3)


def effects(new: str, *records: RouteRecord) -> dict[str | None, tuple[str, ...]]:
    return told(FILE, new, *records, links={"prices.*": TWO_AND_ONE})


def told(
    old: str, new: str, *records: RouteRecord, links: Links
) -> dict[str | None, tuple[str, ...]]:
    known = {each.name: each for each in records}
    asked = {name: links[name] for name in divided(config(old), config(new), known.get)}
    made = rehearse(config(old), config(new), known.get, asked)
    return {each.name: each.effects for each in made}


RULES = "policy: {rules: [{name: apps, users: [app], send: ['#']}]}\n"
OTHERS = "policy: {rules: [{name: apps, users: [app], receive: ['#']}]}\n"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (RULES, "", "there are no rules any more: everything is allowed to everybody"),
        (RULES, "policy: {rules: []}\n", "there are no rules any more: everything is allowed to"),
        (RULES, OTHERS, "links that the rules do not allow any more are detached"),
        ("", RULES, "links that the rules do not allow any more are detached"),
        ("", "policy: {groups: {a: [b]}}\n", None),
    ],
)
def test_a_changed_policy_says_what_becomes_of_permissions(
    old: str, new: str, said: str | None
) -> None:
    (found,) = told(FILE + old, FILE + new, links={}).values()
    assert [each.startswith(said or "") for each in found] == ([True] if said else [])


def test_the_same_file_has_no_effect() -> None:
    assert effects("# moved\n" + FILE) == {}


@pytest.mark.parametrize(
    ("old", "new", "name", "told"),
    [
        ("to: west}", "to: east/x}", "orders", ("link to west ends", "link to east/x is new")),
        (
            "from: east/orders, to: west",
            "to: west",
            "orders",
            ("link from east/orders ends",),
        ),
        (
            "  - {address: prices.*}\n",
            "  - {address: prices.*}\n  - {address: prices.eu}\n",
            "prices.eu",
            ("takes this address from route 'prices.*'",),
        ),
        ("  - {address: prices.*}\n", "", "prices.*", ("2 senders and 1 receiver are detached",)),
        (
            "  - {address: once, guarantee: exactly-once}\n",
            "",
            "once",
            (
                "1 sender is detached",
                "3 unsettled deliveries are kept until there is a route again",
            ),
        ),
        (
            "{address: once, guarantee: exactly-once}",
            "{address: '#'}",
            "once",
            ("route '#' takes this address; its links stay attached",),
        ),
        (
            "west.example",
            "west2.example",
            "west",
            ("its connection is closed and dialed anew; its links are attached again",),
        ),
        (
            "listeners: [{bind: 127.0.0.1:5672}]",
            "listeners: [{bind: 127.0.0.1:5673}]",
            "127.0.0.1:5672",
            ("it is closed; the connections that it has accepted stay",),
        ),
    ],
)
def test_each_difference_is_told_with_its_effects(
    old: str, new: str, name: str, told: tuple[str, ...]
) -> None:
    assert old in FILE
    assert effects(FILE.replace(old, new), USED, EXACT)[name] == told


def test_a_route_that_nobody_uses_is_removed_without_effect() -> None:
    assert effects(FILE.replace("  - {address: prices.*}\n", ""))["prices.*"] == ()


def test_a_route_that_turns_around_detaches_its_links() -> None:
    used = attrs.evolve(USED, name="prices.*")
    told = effects(FILE.replace("prices.*}", "prices.*, to: east}"), used)["prices.*"]
    assert told == ("2 senders and 1 receiver are detached", "link to east is new")


def test_what_differs_is_told_as_a_reload_tells_it() -> None:
    new = FILE.replace("west.example", "west2.example")
    (found,) = rehearse(config(), config(new), lambda name: None, {})
    assert (found.section, found.name, found.change) == ("containers", "west", Change.CHANGED)


PATTERNS = """
containers: {east: {url: "amqp://east.example", resumes: true}}
routes:
  - {address: "eo.#", guarantee: exactly-once}
  - {address: "eo.*", guarantee: exactly-once}
  - {address: "eo.*.x", guarantee: exactly-once}
"""
ONES = (
    link(Role.RECEIVER, "eo.a", unsettled=5),
    link(Role.SENDER, "eo.a"),
    link(Role.RECEIVER, "eo.b", unsettled=2),
)


def without(pattern: str, instead: str = "") -> str:
    return PATTERNS.replace(f'  - {{address: "{pattern}", guarantee: exactly-once}}\n', instead)


def test_addresses_of_a_removed_pattern_that_another_route_takes_lose_nothing() -> None:
    record = RouteRecord(
        name="eo.*", address="eo.*", addresses=2, senders=2, receivers=1, incoming_unsettled=7
    )

    def removed(text: str, links: Links) -> tuple[str, ...]:
        return told(PATTERNS, text, record, links=links)["eo.*"]

    assert removed(without("eo.*"), {"eo.*": ONES}) == (
        "route 'eo.#' takes addresses of it; 3 links stay attached",
    )
    one_way = '  - {address: "eo.a", to: east, guarantee: exactly-once}\n'
    assert removed(without("eo.*", one_way), {"eo.*": ONES}) == (
        "1 sender and 1 receiver are detached",
        "5 unsettled deliveries are kept until there is a route again",
        "route 'eo.#' takes addresses of it; 1 link stays attached",
    )
    assert removed(without("eo.*"), {"eo.*": None}) == (
        "unless other routes take its addresses, 2 senders and 1 receiver are detached",
        "unless other routes take its addresses, 7 unsettled deliveries are kept until there is a"
        " route again",
    )


def test_only_patterns_that_are_gone_and_in_use_are_looked_into() -> None:
    used = {name: RouteRecord(name=name, address=name, addresses=1) for name in ("eo.#", "eo.*")}
    assert [*divided(config(PATTERNS), config(without("eo.*")), used.get)] == ["eo.*"]
    assert [*divided(config(PATTERNS), config(without("eo.*.x")), used.get)] == []
    assert [*divided(config(PATTERNS), config(PATTERNS), used.get)] == []
