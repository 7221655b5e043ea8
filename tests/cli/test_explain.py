from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from router.cli.explain import command

CONFIG = """\
containers:
  east: {url: amqp://east, protocol: amqp-0-9-1}
  west: {url: amqp://west}
routes:
  - address: orders.#
    to: east
  - address: orders.*.urgent
    name: urgent
    to: [west/fast.*, east]
    distribution: closest
  - address: jobs
    from: east/work
  - address: prices.#
    distribution: multicast
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    file = tmp_path / "router.yaml"
    file.write_text(CONFIG)
    return file


def explain(config: Path, address: str) -> Result:
    return CliRunner().invoke(command, [str(config), address], catch_exceptions=False)


def rows(result: Result) -> list[tuple[str, str]]:
    return [(line[:14].rstrip(), line[14:]) for line in result.stdout.splitlines()]


def test_winner_its_rule_and_what_it_beat_are_told(config: Path) -> None:
    result = explain(config, "orders.eu.urgent")
    assert (result.exit_code, result.stderr) == (0, "")
    assert rows(result)[:7] == [
        ("address", "orders.eu.urgent"),
        ("route", f"urgent: orders.*.urgent ({config}:7:14)"),
        ("rule", "'orders.*.urgent' wins over 'orders.#': '*' before '#' at token 2"),
        ("not", f"orders.# ({config}:5:14): '*' before '#' at token 2"),
        ("goes to", "west/fast.eu"),
        ("goes to", "east/orders.eu.urgent"),
        ("distribution", "closest"),
    ]
    assert "senders -> west/fast.*: at-least-once" in result.stdout


def test_pulled_address_names_its_source(config: Path) -> None:
    found = rows(explain(config, "jobs"))
    assert ("pulled from", "east/work") in found
    assert ("goes to", "receivers attached here") in found


def test_unknown_address_exits_with_one(config: Path) -> None:
    result = explain(config, "invoices")
    assert result.exit_code == 1
    assert rows(result) == [
        ("address", "invoices"),
        ("route", "none: no route's address matches; links to it are refused (not-found)"),
    ]


def test_bad_file_exits_with_two_like_check(config: Path) -> None:
    config.write_text("routes: [{address: a*}]")
    result = explain(config, "a")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(f"{config}:1:20: routes[0].address: 'a*' has a wildcard")
