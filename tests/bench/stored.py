"""What storing costs: messages that become durable, and how fast they leave afterwards."""

import os
import tempfile
import time
from functools import partial
from pathlib import Path

from tests.bench import subjects
from tests.bench.cases import Case
from tests.bench.measure import Conditions, Figures, run_load
from tests.support.ports import free_port

CASE = Case(name="stored")
ADDRESSES: dict[str, object] = {"addresses": 10, "address": "stored.%d"}
FLUSHES = 200
BLOCK_OCTETS = 64 << 10
"""Octets of one flush: some hundreds of messages of 100 octets with their records."""


def measure_stored(conditions: Conditions) -> Figures:
    """Measures how many messages of 100 octets a second are stored, and forwarded after that.

    Returns:
        ``stored_per_second``: accepted, which is durable; ``drained_per_second``: received behind
        the target, while nobody sends; ``flush_p99_us``: of fdatasync on the same disk.
    """
    core, far = conditions.subject_core, free_port()
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        found = {"flush_p99_us": flush_p99_us(directory)}
        (directory / "near").mkdir()
        (directory / "far").mkdir()
        adapt = partial(_storing, far=far)
        with subjects.router(CASE, core, directory / "near", adapt=adapt) as near:
            near.options.update(receivers=0, **ADDRESSES)
            found["stored_per_second"] = run_load(near, conditions, of="settled_per_second")[
                "settled_per_second"
            ]
            with subjects.router(CASE, core, directory / "far", port=far) as target:
                target.options.update(senders=0, **ADDRESSES)
                found["drained_per_second"] = run_load(target, conditions)["messages_per_second"]
    return found


def _storing(text: str, far: int) -> str:
    """Has the first route of a file store everything."""
    cloud = f'{{url: "amqp://127.0.0.1:{far}", retry_limit_seconds: 1s}}'
    store = "    to: cloud\n    store: {always: true}\n    dead_letter: cloud/dead\n"
    head, _, _ = text.partition("routes:\n")
    return f'{head}containers: {{cloud: {cloud}}}\nroutes:\n  - address: "#"\n{store}'


def flush_p99_us(directory: Path) -> float:
    """Measures fdatasync of blocks that are appended, as the store's log writes them."""
    times = []
    descriptor = os.open(directory / "flushed", os.O_CREAT | os.O_WRONLY)
    try:
        for _ in range(FLUSHES):
            os.write(descriptor, bytes(BLOCK_OCTETS))
            start = time.perf_counter()
            os.fdatasync(descriptor)
            times.append(time.perf_counter() - start)
    finally:
        os.close(descriptor)
    return sorted(times)[FLUSHES * 99 // 100] * 1e6
