"""What a mesh of a thousand routers costs; ``thousand`` and ``alone`` print the figures."""

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.routes.mesh import thousand


def check(figures: dict[str, Any]) -> None:
    assert figures["wrong_before"] == 0
    assert figures["databases"] == 1
    assert figures["seconds_after_a_cut"] is not None
    assert figures["seconds_after_a_cut"] <= 2.0
    assert figures["messages_of_the_busiest_link_per_change"] <= 3.0
    assert figures["messages_for_addresses"] == 0


@pytest.mark.thorough
def test_sixty_routers_agree_after_a_cut_and_addresses_under_prefixes_cost_no_message() -> None:
    check(thousand.measure(60))


@pytest.mark.long
def test_two_hundred_routers_agree_after_a_cut() -> None:
    check(thousand.measure(200))


@pytest.mark.slow
def test_a_thousand_routers_agree_after_a_cut_within_two_seconds() -> None:
    figures = thousand.measure(1_000)
    print(figures)
    assert figures["addresses"] == 100_000
    check(figures)


def alone(*arguments: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.routes.mesh.alone", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    figures: dict[str, Any] = json.loads(done.stdout)
    return figures


@pytest.mark.long
@pytest.mark.processes
def test_one_router_of_a_thousand_takes_less_than_sixty_megabytes() -> None:
    figures = alone()
    assert figures["reached"] == 1_000
    assert figures["process_mb"] <= 60.0


@pytest.mark.slow
def test_no_slice_of_one_router_of_a_thousand_is_above_two_milliseconds() -> None:
    figures = alone()  # on an idle machine: a busy one makes the same work several times as long
    print(figures)
    assert figures["join"]["longest_ms"] <= 2.0
    assert figures["change"]["longest_ms"] <= 2.0
