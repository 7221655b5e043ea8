"""Dead letters that stay at this router: ``dead_letter: local/ADDRESS``."""

from pathlib import Path

import pytest

from router.service.config import ConfigError, RouterConfig, read
from router.service.config.here import LOCAL

FILE = """
router: {{id: dc1}}
listeners: [{{bind: "127.0.0.1:5672"}}]
containers:
  cloud: {{url: "amqp://cloud.example"}}{more}
routes:
  - {{address: orders.#, to: cloud, unroutable: dead-letter, dead_letter: "{end}"}}
  - {{address: dead.orders}}
  - {{address: back.#, to: cloud, unroutable: dead-letter, dead_letter: local/orders.again}}
"""


def config(end: str, more: str = "") -> RouterConfig:
    return read(FILE.format(end=end, more=more), "router.yaml", Path(), {})


def test_local_is_this_router() -> None:
    containers = config("local/dead.orders").containers
    assert [name for name, each in containers.items() if each.is_here] == [LOCAL]


def test_local_is_another_container_if_the_file_has_one() -> None:
    found = config("local/anything", '\n  local: {url: "amqp://local.example"}').containers
    assert not found[LOCAL].is_here


def test_a_route_may_declare_at_its_broker_and_keep_dead_letters_here() -> None:
    text = FILE.format(end="local/dead.orders", more="")
    text = text.replace('cloud.example"', 'cloud.example", protocol: amqp-0-9-1')
    text = text.replace(
        'unroutable: dead-letter, dead_letter: "',
        'declare: durable, unroutable: dead-letter, dead_letter: "',
    )
    assert "declare" in text
    read(text, "router.yaml", Path(), {})


def test_a_file_without_local_dead_letters_has_no_such_container() -> None:
    text = FILE.format(end="cloud/dead", more="").replace("local/orders.again", "cloud/dead")
    assert LOCAL not in read(text, "router.yaml", Path(), {}).containers


@pytest.mark.parametrize(
    ("end", "problem"),
    [
        ("local/nothing", "no route of this router takes 'nothing'"),
        ("local/orders.dead", "'orders.dead' comes back to route 'orders.#'"),
        ("local", "'orders.x' comes back to route 'orders.#'"),
        ("local/back.orders", "'orders.again' comes back to route 'orders.#'"),
    ],
)
def test_dead_letters_have_a_route_that_does_not_lead_back(end: str, problem: str) -> None:
    with pytest.raises(ConfigError) as refused:
        config(end)
    assert any(problem in str(each) for each in refused.value.problems)
    assert str(refused.value.problems[0]).startswith("router.yaml:7:")


@pytest.mark.parametrize("key", ["to", "from"])
def test_no_other_key_leads_to_local(key: str) -> None:
    text = FILE.format(end="local/dead.orders", more="").replace("to: cloud", f"{key}: local/x", 1)
    with pytest.raises(ConfigError, match="unknown container 'local'"):
        read(text, "router.yaml", Path(), {})
