"""The Grafana dashboard asks only for metrics and labels that the router exposes."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.reference import metrics

DASHBOARD = json.loads(Path("deploy/grafana-dashboard.json").read_text())
METRIC = re.compile(r"\b(router_\w+)(?:\{([^}]*)\})?")
SCRAPED = {"instance", "job"}
"""Labels that Prometheus adds."""


def panels(of: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for panel in of.get("panels", []):
        yield panel
        yield from panels(panel)


def expressions() -> list[str]:
    asked = [target["expr"] for each in panels(DASHBOARD) for target in each.get("targets", [])]
    return asked + [each["definition"] for each in DASHBOARD["templating"]["list"][1:]]


def exposed() -> dict[str, set[str]]:
    """Gives the labels of every sample of a scrape, by its name."""
    return metrics.samples()


@pytest.mark.parametrize("expression", expressions())
def test_every_metric_and_label_exists(expression: str) -> None:
    known = exposed()
    asked = METRIC.findall(expression)
    assert asked
    for name, matchers in asked:
        assert name in known
        labels = set(re.findall(r"(\w+)\s*(?:=~|!=|=|!~)", matchers))
        assert labels <= known[name] | SCRAPED
    for grouped in re.findall(r"\bby \(([^)]*)\)", expression):
        names = {each.strip() for each in grouped.split(",")}
        assert any(names <= known[name] | SCRAPED for name, _ in asked)


def test_panels_do_not_overlap_and_fit_the_grid() -> None:
    taken: dict[tuple[int, int], str] = {}
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert (x, y) not in taken, (panel["title"], taken[x, y])
                taken[x, y] = panel["title"]


def test_every_panel_has_its_own_number_and_a_unit() -> None:
    every = list(panels(DASHBOARD))
    assert len({panel["id"] for panel in every}) == len(every)
    for panel in every:
        if panel["type"] != "row":
            assert panel["fieldConfig"]["defaults"]["unit"]
