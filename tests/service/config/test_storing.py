"""What a file may say about storing messages, and what ``router check`` says of it."""

from pathlib import Path

import pytest

from router.routes.route import Guarantee, Storing, WhenFull
from router.service.config import ConfigError, RouterConfig, read

FILE = """
router: {{workers: {workers}}}
containers: {{cloud: {{url: "amqp://cloud.example"}}}}
routes:
  - address: {address}
    store: {store}
{more}
"""


def config(
    store: str = "{always: true}",
    more: str = "    to: cloud\n    dead_letter: cloud/dead",
    *,
    workers: int = 2,
    address: str = "telemetry.#",
) -> RouterConfig:
    text = FILE.format(store=store, more=more, workers=workers, address=address)
    return read(text, "router.yaml", Path(), {})


def test_a_route_stores_within_its_bounds() -> None:
    text = "{octets: 20GiB, messages: 1000, age: 3d, full: drop-oldest, always: true}"
    (route,) = config(text).routes
    assert route.store == Storing(
        octets=20 << 30,
        messages=1000,
        age_seconds=3 * 86400.0,
        full=WhenFull.DROP_OLDEST,
        always=True,
    )


@pytest.mark.parametrize(
    ("store", "ttl", "age"), [("{}", 5.0, 5.0), ("{age: 2s}", 5.0, 2.0), ("{age: 9s}", 5.0, 5.0)]
)
def test_nothing_is_stored_for_longer_than_messages_of_its_route_live(
    store: str, ttl: float, age: float
) -> None:
    more = f"    to: cloud\n    dead_letter: cloud/dead\n    ttl_seconds: {ttl}\n"
    (route,) = config(store, more).routes
    assert route.store == Storing(age_seconds=age)


def test_the_promise_says_what_accepted_means() -> None:
    (promise,) = config().promises
    said = " ".join(reason for flow in promise.flows for reason in flow.reasons)
    assert "accepted means that this router has it, on local disk; lost with the disk" in said
    assert "what is rejected, too old or dropped goes to dead_letter" in said
    assert "from cloud: settled only when the outcome is known" in said


def test_the_promise_of_a_route_that_passes_the_store_by_names_the_target_first() -> None:
    (promise,) = config("{}").promises
    said = " ".join(reason for flow in promise.flows for reason in flow.reasons)
    assert (
        "accepted means that the target has it, or else this router has it, on local disk" in said
    )


def test_exactly_once_is_promised_by_chain_of_custody() -> None:
    more = "    to: cloud\n    dead_letter: cloud/dead\n    guarantee: exactly-once\n"
    (promise,) = config(more=f"{more}    in_doubt: hold").promises
    assert promise.flows[0].gives is Guarantee.EXACTLY_ONCE
    said = " ".join(reason for flow in promise.flows for reason in flow.reasons)
    assert (
        "senders: accepted means that this router has it, on local disk; lost with the disk; once"
        " only from senders that resume their links" in said
    )
    assert "to cloud: what is in doubt waits in the journal until a person decides" in said


def test_what_is_stored_exactly_once_has_its_journal_beside_it() -> None:
    text = FILE.replace("{workers: {{workers}}}", "")
    text = text.replace("workers: {workers}", 'journal: {{store: "postgresql://db/router"}}')
    more = "    to: cloud\n    dead_letter: cloud/dead\n    guarantee: exactly-once\n"
    text = text.format(store="{always: true}", more=f"{more}    in_doubt: hold", address="a.#")
    with pytest.raises(ConfigError) as caught:
        read(text, "router.yaml", Path(), {})
    assert "exactly-once needs the messages beside the journal" in str(caught.value)


def test_what_is_pulled_by_a_pattern_may_be_stored() -> None:
    text = FILE.format(
        store="{}",
        more="    from: cloud/prices/#\n    to: cloud/copy/#\n    dead_letter: cloud/dead",
        workers=2,
        address="prices/#",
    ).replace('cloud.example"', 'cloud.example", protocol: amqp-0-9-1')
    (route,) = read(text, "router.yaml", Path(), {}).routes
    assert route.passes_through


def test_a_bridge_settles_with_its_source_when_the_message_is_stored() -> None:
    more = "    from: cloud\n    to: cloud/b\n    dead_letter: cloud/dead"
    (promise,) = config(more=more, address="a").promises
    said = " ".join(reason for flow in promise.flows for reason in flow.reasons)
    assert "from cloud: settled when this router has it, on local disk" in said


def test_dead_letters_need_no_other_outcome_of_what_is_unroutable() -> None:
    (route,) = config().routes
    assert route.dead_letter is not None


@pytest.mark.parametrize(
    ("workers", "more", "is_recorded"),
    [
        ("1, ledger: all", "", True),
        ("1", "    ledger: true", True),
        ("1, ledger: all", "    ledger: false", False),
        ("1", "", False),
    ],
)
def test_stored_routes_are_recorded_as_all_others(
    workers: str, more: str, is_recorded: bool
) -> None:
    text = FILE.format(
        store="{always: true}",
        more=f"    to: cloud\n    dead_letter: cloud/dead\n{more}",
        workers=workers,
        address="telemetry.#",
    )
    found = read(text, "router.yaml", Path(), {})
    (route,) = found.routes
    assert route.is_recorded is is_recorded
    assert not found.notes


@pytest.mark.parametrize(
    ("store", "more", "problem"),
    [
        ("{always: true}", "    dead_letter: cloud/dead", "this route has no 'to'"),
        ("{always: true}", "    to: cloud", "needs the key 'dead_letter'"),
        (
            "{always: true}",
            "    to: cloud\n    dead_letter: cloud/dead\n    guarantee: at-most-once",
            "keeps what must not be lost, and at-most-once may lose it",
        ),
    ],
)
def test_what_a_store_cannot_have_is_refused_by_name(store: str, more: str, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        config(store, more)
    assert problem in str(caught.value)


OVER_MESH = """
router: {id: dc1}
listeners: [{bind: "127.0.0.1:5672"}]
mesh: {links: {dc2: {host: "127.0.0.2:5673"}}}
containers:
  here: {url: "amqp://127.0.0.1:5672", resumes: true}
routes:
  - address: telemetry.#
    to: here/dc2.telemetry.#
    guarantee: exactly-once
    store: {}
    dead_letter: local/dead
  - {address: dc2.#, guarantee: exactly-once}
  - address: dead
"""


def test_a_stored_route_may_lead_to_a_direct_route_of_its_router() -> None:
    (promise, _, _) = read(OVER_MESH, "router.yaml", Path(), {}).promises
    assert promise.flows[0].gives is Guarantee.EXACTLY_ONCE


@pytest.mark.parametrize(
    ("old", "new", "problems"),
    [
        (
            "    to: here/dc2.telemetry.#\n",
            "",
            [
                "router.yaml:10:12: store: keeps messages for targets, and this route has no 'to';"
                " for receivers, also at other sites of a mesh, write the address of a direct"
                " route, behind a container whose url is a listener of this router",
            ],
        ),
        (
            "here/dc2.",
            "dc2/",
            [
                "router.yaml:9:9: to: unknown container 'dc2'; it is a site of the mesh, which"
                " direct routes reach, without 'from' and 'to'",
            ],
        ),
        (
            "here/dc2.telemetry.#",
            "here",
            ["router.yaml:8:14: route 'telemetry.#' is part of a loop"],
        ),
    ],
    ids=["a direct route", "a site of the mesh", "a route that leads to itself"],
)
def test_what_has_no_store_over_the_mesh_is_refused_where_it_stands(
    old: str, new: str, problems: list[str]
) -> None:
    assert old in OVER_MESH
    with pytest.raises(ConfigError) as caught:
        read(OVER_MESH.replace(old, new), "router.yaml", Path(), {})
    found = [str(each) for each in caught.value.problems]
    assert [each[: len(start)] for each, start in zip(found, problems, strict=True)] == problems
