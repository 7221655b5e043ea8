"""What a file may say about tracing."""

from pathlib import Path

import pytest

from router.model.trace import Sampling
from router.service.config import ConfigError, RouterConfig, read
from router.service.config.process import Sample
from router.service.journal import needs_journal

FILE = """
router: {{workers: 1, tracing: {tracing}}}
containers: {{cloud: {{url: "amqp://cloud.example"}}}}
routes:
  - address: orders
{route}
"""
ENDPOINT = "http://127.0.0.1:4318"


def config(tracing: str = ENDPOINT, route: str = "") -> RouterConfig:
    return read(FILE.format(tracing=tracing, route=route), "router.yaml", Path(), {})


def problems(tracing: str = ENDPOINT, route: str = "") -> list[str]:
    with pytest.raises(ConfigError) as raised:
        config(tracing, route)
    return [each.problem for each in raised.value.problems]


def test_nothing_is_traced_or_recorded_unless_somebody_asks() -> None:
    found = config("off")
    [route] = found.table.routes
    assert route.tracing is None
    assert not route.is_recorded
    assert found.router.tracing is None
    assert not needs_journal(found)


@pytest.mark.parametrize(
    ("tracing", "route", "expected"),
    [
        (ENDPOINT, "", Sampling.SENDER),
        (f"{{endpoint: {ENDPOINT}, sample: always}}", "", Sampling.ALWAYS),
        (f"{{endpoint: {ENDPOINT}, sample: always}}", "    tracing: sender", Sampling.SENDER),
        (f"{{endpoint: {ENDPOINT}, sample: never}}", "    tracing: always", Sampling.ALWAYS),
        (f"{{endpoint: {ENDPOINT}, sample: never}}", "", None),
        (ENDPOINT, "    tracing: never", None),
    ],
)
def test_a_route_is_traced_as_it_says_or_else_as_the_router_does(
    tracing: str, route: str, expected: Sampling | None
) -> None:
    found = config(tracing, route)
    [made] = found.table.routes
    assert made.tracing is expected
    assert made.is_recorded is (expected is not None)
    assert needs_journal(found) is (expected is not None)


def test_an_endpoint_alone_samples_as_the_sender_does() -> None:
    tracing = config().router.tracing
    assert tracing is not None
    assert (tracing.endpoint, tracing.sample) == (ENDPOINT, Sample.SENDER)


@pytest.mark.parametrize(
    "promise", ["guarantee: at-least-once", "guarantee: exactly-once\n    in_doubt: hold"]
)
def test_stored_messages_are_traced_as_all_others(promise: str) -> None:
    store = "    to: cloud\n    store: {always: true}\n    dead_letter: cloud/dead"
    route = f"{store}\n    {promise}"
    [found] = config(route=route).table.routes
    assert found.tracing is Sampling.SENDER
    [found] = config(route=f"{route}\n    tracing: always").table.routes
    assert found.tracing is Sampling.ALWAYS


def test_a_route_is_traced_only_with_an_endpoint_and_a_ledger() -> None:
    [problem] = problems("off", "    tracing: sender")
    assert problem == "tracing: spans are exported only with router.tracing, an endpoint"
    [problem] = problems(route="    tracing: sender\n    ledger: false")
    assert problem == "tracing: spans are made of the ledger; leave ledger: false out"


@pytest.mark.parametrize("endpoint", ["127.0.0.1:4318", "ftp://host", "http://"])
def test_an_endpoint_is_an_url(endpoint: str) -> None:
    [problem] = problems(f'"{endpoint}"')
    assert "an URL such as http://127.0.0.1:4318" in problem
