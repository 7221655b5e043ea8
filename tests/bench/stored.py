"""What storing costs: messages that become durable, and how fast they leave afterwards.

The store's process has a core beside the worker's, as the system would give it one, and shares it
with the load program. The target shares the worker's, whether messages come out of the store or
past it.
"""

import os
import tempfile
import time
from functools import partial
from pathlib import Path

import attrs

from tests.bench import subjects
from tests.bench.cases import Case
from tests.bench.measure import Conditions, Figures, receiving, run_load
from tests.support.ports import free_port

CASE = Case(name="stored")
ADDRESSES: dict[str, object] = {"addresses": 10, "address": "stored.%d"}
PACE = 10_000
DRAINED_OCTETS = 1024
"""Of the messages that are forwarded from the store, and past it."""

_BACKLOG = 20
"""So many times as long is stored as is forwarded after that: it must not end before."""

_DIALED_SECONDS = 15.0
"""The target is dialed again within a second."""

FLUSHES = 200
BLOCK_OCTETS = 64 << 10
"""Octets of one flush: some hundreds of messages of 100 octets with their records."""


def measure_stored(conditions: Conditions) -> Figures:
    """Measures storing and forwarding by 10 senders, beside a route without a store.

    Returns:
        ``stored_per_second``: accepted, which is durable; ``accepted_p50_us``, ``accepted_p99_us``:
        from the transfer to that, at ``PACE`` messages a second; ``flush_p99_us``: of fdatasync on
        the same disk. ``drained_per_second``: messages of ``DRAINED_OCTETS`` received behind the
        target, while nobody sends; ``forwarded_per_second``: the same way by the route that stores
        nothing; ``drained_part``: the one by the other. ``_cpu_ns``: of the worker, for a message.
    """
    core, far = conditions.subject_core, free_port()
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        found = {"flush_p99_us": flush_p99_us(directory)}
        (directory / "near").mkdir()
        (directory / "far").mkdir()
        adapt = partial(storing, far=far)
        longer = attrs.evolve(conditions, seconds=_BACKLOG * conditions.seconds)
        with subjects.router(CASE, core, directory / "near", adapt=adapt) as near:
            subjects.pin_children(near.process, conditions.load_core)
            near.options.update(receivers=0, **ADDRESSES)
            paced = attrs.evolve(near, options=near.options | {"rate": PACE, "address": "slow.%d"})
            accepted = run_load(paced, conditions, of="settled_per_second")
            for name in ("p50_us", "p99_us"):
                found[f"accepted_{name}"] = accepted[f"round_trip_{name}"]
            _note(found, "stored", run_load(near, conditions, of="settled_per_second"))
            near.options.update(address="large.%d", size=DRAINED_OCTETS)
            run_load(near, longer, of="settled_per_second")
            with subjects.router(CASE, core, directory / "far", port=far) as target:
                behind = {"senders": 0, **ADDRESSES, "address": "large.%d"}
                load = attrs.evolve(target, process=near.process, options=CASE.load | behind)
                await_dialed(directory / "near")
                _note(found, "drained", run_load(load, conditions), of="messages_per_second")
                near.options["address"] = behind["address"] = "plain.%d"
                receivers = CASE.load | behind | {"port": far, "seconds": 3600}
                with receiving(receivers, conditions):
                    of = "settled_per_second"
                    _note(found, "forwarded", run_load(near, conditions, of=of))
    found["drained_part"] = found["drained_per_second"] / found["forwarded_per_second"]
    return found


def await_dialed(directory: Path) -> None:
    """Waits until the router of a directory has dialed its target.

    Nothing is received for that: an address whose receiver leaves with unsettled messages waits for
    it, and what is measured afterwards is a drain of those that happen to go on.
    """
    until = time.monotonic() + _DIALED_SECONDS
    while time.monotonic() < until:
        for line in (directory / "router.log").read_text().splitlines():
            if "connection.opened" in line and '"cloud"' in line:
                return
        time.sleep(0.05)
    raise RuntimeError("the target was not dialed")


def _note(found: Figures, name: str, figures: Figures, of: str = "settled_per_second") -> None:
    found[f"{name}_per_second"] = figures[of]
    found[f"{name}_cpu_ns"] = figures["cpu_ns_per_message"]


def storing(text: str, far: int) -> str:
    """Has a file store everything, except for one route."""
    cloud = f'{{url: "amqp://127.0.0.1:{far}", retry_limit_seconds: 1s}}'
    store = "    to: cloud\n    store: {always: true}\n    dead_letter: cloud/dead\n"
    plain = "  - address: plain.#\n    to: cloud\n"
    head, _, _ = text.partition("routes:\n")
    return f'{head}containers: {{cloud: {cloud}}}\nroutes:\n  - address: "#"\n{store}{plain}'


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
