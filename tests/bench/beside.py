"""What other routes feel of a store that is drained: one worker has both.

The worker has the subject core to itself. Its store's process, the target and the load programs
share the other one, so on a machine of two cores the drain is slower here than in ``stored``; what
counts is what a turn of the worker leaves to others.
"""

import json
import subprocess
import tempfile
from functools import partial
from pathlib import Path
from typing import Final

import attrs

from tests.bench import stored, subjects
from tests.bench.cases import Case
from tests.bench.measure import LOAD_SECONDS, Conditions, Figures, command, run_load
from tests.bench.subjects import Subject
from tests.support.ports import free_port

CASE: Final = Case(name="stored, beside", senders=1, receivers=1)
PACE: Final = 20_000
"""Messages of 100 octets a second of the route that is watched."""

_SIDE: Final[dict[str, object]] = {
    "senders": 1,
    "receivers": 1,
    "addresses": 1,
    "size": 100,
    "window": 2048,
}
_LONGER: Final = 2.0
"""So many times as long is drained as the others are measured: it must not end before them."""

_BACKLOG: Final = 40
"""So many times as long is stored as others are measured."""


def measure_beside(conditions: Conditions) -> Figures:
    """Measures a direct route at ``PACE``, and one without, alone and while a store is drained.

    Returns:
        ``paced_per_second``, ``paced_p99_us`` (from sender to receiver) and ``unpaced_per_second``,
        each ``_alone`` and ``_beside`` a drain; ``drained_per_second`` meanwhile; ``paced_part``
        and ``unpaced_part``: beside a drain, of alone.
    """
    far = free_port()
    found: Figures = {}
    elsewhere = conditions.load_core
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        (directory / "near").mkdir()
        (directory / "far").mkdir()
        adapt = partial(_storing, far=far)
        core = conditions.subject_core
        with subjects.router(CASE, core, directory / "near", adapt=adapt) as near:
            subjects.pin_children(near.process, elsewhere)
            _note(found, "alone", *(_at_once({}, near, each, conditions)[1] for each in _sides()))
            backlog = attrs.evolve(conditions, seconds=_BACKLOG * conditions.seconds)
            filling = {**stored.ADDRESSES, "address": "large.%d", "size": stored.DRAINED_OCTETS}
            sending = {"senders": 10, "receivers": 0}
            filled = attrs.evolve(near, options=near.options | sending | filling)
            run_load(filled, backlog, of="settled_per_second")
            with subjects.router(CASE, elsewhere, directory / "far", port=far):
                draining = {"senders": 0, "receivers": 10, **filling, "port": far}
                stored.await_dialed(directory / "near")
                runs = [_at_once(draining, near, each, conditions) for each in _sides()]
                found["drained_per_second"] = runs[0][0]["messages_per_second"]
                _note(found, "beside", *(side for _, side in runs))
    for name in ("paced", "unpaced"):
        rates = [found[f"{name}_per_second_{when}"] for when in ("beside", "alone")]
        found[f"{name}_part"] = rates[0] / rates[1]
    return found


def _sides() -> tuple[dict[str, object], dict[str, object]]:
    return (
        {**_SIDE, "rate": PACE, "address": "side.paced"},
        {**_SIDE, "rate": 0, "address": "side.unpaced"},
    )


def _note(found: Figures, when: str, paced: Figures, unpaced: Figures) -> None:
    found[f"paced_per_second_{when}"] = paced["messages_per_second"]
    found[f"paced_p99_us_{when}"] = paced["one_way_p99_us"]
    found[f"unpaced_per_second_{when}"] = unpaced["messages_per_second"]


def _at_once(
    draining: dict[str, object],
    near: Subject,
    side: dict[str, object],
    conditions: Conditions,
) -> tuple[Figures, Figures]:
    """Runs a load on a direct route, beside receivers of what is stored unless that is empty."""
    seconds = conditions.seconds
    times = {"seconds": seconds, "warmup": seconds / 4}
    longer = {"seconds": _LONGER * seconds, "warmup": seconds / 8}
    loads = [CASE.load | draining | longer] if draining else []
    loads.append(CASE.load | side | times | {"port": near.port})
    running = [
        subprocess.Popen(
            command(each, conditions), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for each in loads
    ]
    found: list[Figures] = []
    try:
        for each in running:
            text, error = each.communicate(timeout=LOAD_SECONDS)
            if each.returncode:
                raise RuntimeError(f"beside: {error[-500:]!r}")
            found.append(json.loads(text))
    finally:
        for each in running:
            each.kill()
            each.wait()
    if draining and not found[0]["messages_per_second"]:
        raise RuntimeError("beside: nothing was left to drain")
    return found[0], found[-1]


def _storing(text: str, far: int) -> str:
    return stored.storing(text, far) + "  - address: side.#\n"
