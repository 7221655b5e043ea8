"""What a dry run says that a reload would do."""

from pathlib import Path

import attrs
import pytest

from router.core.snapshot import RouteRecord
from router.service.config import RouterConfig, read
from router.service.difference import Change
from router.service.rehearsal import rehearse

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


USED = RouteRecord(name="prices.*", address="prices.*", senders=2, receivers=1)
EXACT = RouteRecord(name="once", address="once", senders=1, incoming_unsettled=3)


def effects(new: str, *records: RouteRecord) -> dict[str | None, tuple[str, ...]]:
    known = {each.name: each for each in records}
    return {each.name: each.effects for each in rehearse(config(), config(new), known.get)}


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
    (found,) = rehearse(config(), config(new), lambda name: None)
    assert (found.section, found.name, found.change) == ("containers", "west", Change.CHANGED)
