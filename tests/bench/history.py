"""What was measured before, so that a change shows.

One line of JSON per run, in ``results/history.jsonl``; figures are compared only with those of the
same machine, and as parts of the relay's figure, which the machine's mood moves as well.
"""

import datetime
import json
import platform
import subprocess
from typing import Any

from tests.bench.goals import GOALS, Report
from tests.bench.programs import RESULTS

HISTORY = RESULTS / "history.jsonl"
NOTABLE = 0.10
"""Smaller changes are noise (a few runs of a few seconds)."""


def machine() -> str:
    """Names the machine, as far as figures depend on it."""
    return f"{platform.node()} {platform.processor() or platform.machine()}"


def _commit() -> str:
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or "unknown"


def entry(report: Report) -> dict[str, Any]:
    """Makes a run's entry, which is its JSON output, too."""
    return {
        "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "commit": _commit(),
        "machine": machine(),
        "python": platform.python_version(),
        "cases": {
            name: {"subjects": result.figures, "of_relay": result.of_relay()}
            for name, result in report.results.items()
        },
        "others": dict(report.others),
        "goals": {goal.text: goal.value(report) for goal in GOALS},
        "failed": dict(report.failed),
    }


def append(new: dict[str, Any]) -> None:
    """Adds an entry to the history."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    with HISTORY.open("a") as file:
        file.write(json.dumps(new) + "\n")


def changes(new: dict[str, Any]) -> dict[str, float]:
    """Compares with the last time that each case was measured on this machine.

    Returns:
        case → change, e.g. -0.2 if it is a fifth slower than it was.
    """
    if not HISTORY.exists():
        return {}
    before: dict[str, float] = {}
    for line in HISTORY.read_text().splitlines():
        old = json.loads(line)
        if old["machine"] == new["machine"]:
            for name, case in old["cases"].items():
                if case["of_relay"]:
                    before[name] = case["of_relay"]
    return {
        name: case["of_relay"] / before[name] - 1
        for name, case in new["cases"].items()
        if case["of_relay"] and name in before
    }
