"""The alert rules ask only for metrics and labels that the router exposes, and Prometheus loads
them.
"""

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from router.cli.main import VERBS
from tests.reference import events, metrics
from tests.support import peers

FILE = Path("deploy/prometheus/alerts.yaml")
RULES: list[dict[str, Any]] = [
    rule for group in yaml.safe_load(FILE.read_text())["groups"] for rule in group["rules"]
]
METRIC = re.compile(r"\b(router_\w+)(?:\{([^}]*)\})?")
SCRAPED = {"instance", "job"}
"""Labels that Prometheus adds."""


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: str(rule["alert"]))
def test_every_metric_and_label_of_a_rule_exists(rule: dict[str, Any]) -> None:
    known = metrics.samples()
    asked = METRIC.findall(rule["expr"])
    assert asked or "up{" in rule["expr"]
    labels: set[str] = set()
    for name, matchers in asked:
        assert name in known
        labels |= known[name]
        assert set(re.findall(r"(\w+)\s*(?:=~|!=|=|!~)", matchers)) <= known[name]
    grouped = re.findall(r"\b(?:by|on) \(([^)]*)\)", rule["expr"])
    shown = re.findall(r"\$labels\.(\w+)", str(rule["annotations"]))
    named = {each.strip() for names in grouped for each in names.split(",")}
    assert named | set(shown) <= labels | SCRAPED


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: str(rule["alert"]))
def test_every_rule_says_what_to_do(rule: dict[str, Any]) -> None:
    assert rule["labels"]["severity"] in {"page", "ticket"}
    text = rule["annotations"]["description"]
    commands = re.findall(r"\brouter (\w+)", text)
    assert set(commands) <= set(VERBS)
    logged = {call.event for call in events.calls()}
    named = set(re.findall(r"\b[a-z]+\.[a-z]+_?[a-z]*\b", text))
    assert {each for each in named if each.partition(".")[0] in {"router", "delivery"}} <= (
        logged | {"router.state", "router.workers"}
    )


def test_no_two_rules_have_one_name() -> None:
    names = [rule["alert"] for rule in RULES]
    assert len(set(names)) == len(names)


@pytest.mark.processes
@pytest.mark.parametrize(
    "check", [("check", "rules", FILE.name), ("test", "rules", "alerts.test.yaml")]
)
def test_prometheus_loads_the_rules_and_they_alert_when_they_should(check: tuple[str, ...]) -> None:
    peers.need_program("promtool", "prometheus")
    done = subprocess.run(
        ["promtool", *check], cwd=FILE.parent, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
