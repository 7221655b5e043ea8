"""What a reload says has changed."""

from pathlib import Path

import attrs

from router.service.config import RouterConfig, read
from router.service.config.limits import Limits
from router.service.config.process import Router
from router.service.difference import (
    AT_RESTART,
    Change,
    Difference,
    awaiting,
    compare,
    in_force,
    refusals,
)

FILE = """
router: {id: dc1, workers: 1}
listeners:
  - bind: 127.0.0.1:5672
  - bind: unix:/tmp/router.sock
containers:
  east: {url: "amqp://east.example"}
  west: {url: "amqp://west.example"}
routes:
  - address: prices.*
    distribution: multicast
  - address: orders.#
    to: east
"""


def config(text: str = FILE) -> RouterConfig:
    return read(text, "router.yaml", Path(), {})


def test_the_same_file_read_again_differs_in_nothing() -> None:
    assert compare(config(), config("# a comment moves every line\n" + FILE)) == []


def test_entries_come_go_and_change_by_name() -> None:
    new = (
        FILE.replace("unix:/tmp/router.sock", "127.0.0.1:5673")
        .replace("amqp://west.example", "amqp://west2.example")
        .replace("distribution: multicast", "distribution: closest")
        .replace("address: orders.#", "address: orders.eu.#")
    )
    assert compare(config(), config(new)) == [
        Difference(section="listeners", name="unix:/tmp/router.sock", change=Change.REMOVED),
        Difference(section="listeners", name="127.0.0.1:5673", change=Change.ADDED),
        Difference(section="containers", name="west", change=Change.CHANGED, options=("url",)),
        Difference(section="routes", name="orders.#", change=Change.REMOVED),
        Difference(
            section="routes",
            name="prices.*",
            change=Change.CHANGED,
            options=("distribution",),
        ),
        Difference(section="routes", name="orders.eu.#", change=Change.ADDED),
    ]


def test_what_belongs_to_the_process_waits_for_a_restart() -> None:
    (difference,) = compare(config(), config(FILE.replace("id: dc1", "id: dc2")))
    assert difference.section == "router"
    assert difference.options == ("id",)
    assert difference.waits_for_restart


def test_another_number_of_workers_says_that_those_that_run_go_on() -> None:
    (difference,) = compare(
        config(FILE.replace("workers: 1", "workers: 3")),
        config(FILE.replace("workers: 1", "workers: 2")),
    )
    assert difference.options == ("workers",)
    assert difference.waits_for_restart
    (effect,) = difference.effects
    assert effect.startswith("workers: 3 run, 2 in the file: a reload starts and ends none")


def test_limits_that_hold_for_new_connections_are_told_from_those_that_wait() -> None:
    new = FILE + "limits: {idle_seconds: 30s, hop_limit: 3}\n"
    assert compare(config(), config(new)) == [
        Difference(section="limits", name=None, change=Change.CHANGED, options=("idle_seconds",)),
        Difference(
            section="limits",
            name=None,
            change=Change.CHANGED,
            options=("hop_limit",),
            waits_for_restart=True,
        ),
    ]


def test_what_waits_for_a_restart_is_compared_with_what_runs() -> None:
    more = "router: {id: dc2, wait_for: [east], drain_seconds: 5s, log_level: debug, workers: 1}\n"
    limits = "limits: {link_credit: 10, idle_seconds: 30s}\n"
    other = config(FILE.replace("router: {id: dc1, workers: 1}\n", more) + limits)
    running = in_force(config(), other)
    waiting = ("router.id", "router.drain_seconds", "router.log_level", "limits.link_credit")
    assert awaiting(compare(config(), other)) == waiting
    assert awaiting(compare(running, other)) == waiting  # reloaded once more
    assert running.router.id == "dc1"
    assert running.router.wait_for == ("east",)
    assert running.limits.idle_seconds == 30
    back = compare(running, config())
    assert [each.options for each in back] == [("wait_for",), ("idle_seconds",)]
    assert awaiting(back) == ()
    assert compare(in_force(running, config()), config()) == []


def test_every_option_that_waits_for_a_restart_exists() -> None:
    for section, model in (("router", Router), ("limits", Limits)):
        assert AT_RESTART[section] <= {field.name for field in attrs.fields(model)}


DIALS_IN = """
router: {id: dc1, workers: 1}
listeners: [{bind: "127.0.0.1:5672"}]
containers:
  plant: {dials_in: true, identity: plant, resumes: true}
routes:
  - {address: orders.#, to: plant, guarantee: exactly-once}
"""


HOMES = """
router: {id: dc1, workers: 4, homes: all}
containers:
  east: {url: "amqp://east.example", resumes: true}
routes:
  - {address: orders.#, guarantee: exactly-once}
  - {address: east.#, to: east, guarantee: exactly-once}
"""


def test_a_reload_moves_no_links_to_other_workers() -> None:
    running = config(HOMES)
    more = HOMES + "  - {address: more.#, guarantee: exactly-once}\n  - {address: a, to: east}\n"
    assert list(refusals(running, config(more))) == []
    assert list(refusals(config(more), running)) == []
    (scope,) = refusals(running, config(HOMES.replace(", homes: all", "")))
    assert str(scope) == (
        "router.yaml:2:9: router.homes is missing, which means 'first': the router has begun with"
        " 'all', and a reload moves no links: write 'homes: all', or start router run again"
    )
    (gone,) = refusals(running, config("routes: []"))
    assert str(gone).startswith("router.yaml:1:1: router.homes is missing")
    (other,) = refusals(running, config(HOMES.replace("homes: all", "homes: first")))
    assert str(other).startswith("router.yaml:2:38: homes: first: the router has begun with 'all'")
    (one_way,) = refusals(running, config(HOMES.replace("{address: orders.#,", DIRECT)))
    assert "router.yaml:6:" in str(one_way)
    assert "'orders.#'" in str(one_way)
    (within,) = refusals(running, config(HOMES + "  - {address: east.eu}\n"))
    assert "'east.#' would be kept by another worker, by the change of 'east.eu'" in str(within)
    first = HOMES.replace("homes: all", "homes: first")
    assert list(refusals(config(first), config(first + "  - {address: east.eu}\n"))) == []


def test_an_empty_file_is_refused_where_the_running_one_has_any_key() -> None:
    for text in ("", "\n# all gone\n", "---\n", "{}\n"):
        (refusal,) = refusals(config(), config(text))
        assert str(refusal).startswith("router.yaml:1:1: the file is empty: is it being written?")
        assert "write 'routes: []', or start router run again" in str(refusal)
        (first,) = refusals(config(HOMES), config(text))
        assert "the file is empty" in str(first)
        assert list(refusals(config(""), config(text))) == []
    assert list(refusals(config(), config("routes: []\n"))) == []


DIRECT = "{address: orders.#, to: east,"

BRIDGES = """
router: {id: dc1, workers: 4, homes: all}
containers:
  east: {url: "amqp://east.example", resumes: true}
  west: {url: "amqp://west.example", resumes: true}
routes:
  - {address: a, from: east/a, to: west/a, guarantee: exactly-once}
"""


def test_a_reload_moves_no_bridge_to_another_worker() -> None:
    loose = "  - {address: b, from: west/b, to: east/b}\n"
    assert list(refusals(config(BRIDGES), config(BRIDGES + loose))) == []
    more = "  - {address: b, from: west/b, to: east/b, guarantee: exactly-once}\n"
    (added,) = refusals(config(BRIDGES), config(BRIDGES + more))
    assert "'b' would be kept by another worker" in str(added)
    one_way = "  - {address: c, to: east, guarantee: exactly-once}\n"
    assert [*refusals(config(BRIDGES), config(BRIDGES + one_way))]


def test_a_file_for_one_worker_is_refused_by_several_that_cannot_keep_its_promise() -> None:
    several = config(FILE.replace("workers: 1", "workers: 3"))
    assert list(refusals(config(), config(DIALS_IN))) == []
    assert list(refusals(several, config())) == []
    (refusal,) = refusals(several, config(DIALS_IN))
    assert "router.yaml:7:" in str(refusal)
    assert "3 run" in str(refusal)
