"""Keeps the ledger up to date: now and then a process makes Parquet files of sealed segments.

It is ``router ledger compact``, at low priority, so no worker waits for it and the router imports
nothing of the pipeline. What fails is logged and tried again at the next time: segments wait.
"""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import structlog
import trio

from router.service.config.process import Compaction

NICENESS: Final = 10

LEDGER_SECONDS: Final = 20.0
"""How long a router that ends waits for the ledger of its last segments."""


async def keep_ledger(state: Path, options: Compaction) -> None:
    """Compacts at intervals, for ever.

    Args:
        state: of the router.
        options: where to, and how often.
    """
    if importlib.util.find_spec("pyarrow") is None:
        structlog.get_logger().error(
            "ledger.unavailable",
            reason="pyarrow is not installed: pip install '.[spark]' in the folder of the source",
        )
        return
    while True:
        await trio.sleep(options.every_seconds)
        await compact(state, options)


async def compact(state: Path, options: Compaction) -> None:
    """Compacts what is sealed, once."""
    log = structlog.get_logger()
    command = [
        *(sys.executable, "-m", "router", "ledger", "compact", str(state)),
        *("--out", str(options.directory), "--remove", "--json"),
    ]
    try:
        done = await trio.run_process(
            command,
            capture_stdout=True,
            capture_stderr=True,
            check=False,
            preexec_fn=_be_nice,
            stdin=subprocess.DEVNULL,
        )
    except OSError as error:
        log.error("ledger.failed", reason=str(error))
        return
    if done.returncode:
        log.error("ledger.failed", reason=done.stderr.decode(errors="replace").strip()[-500:])
        return
    report = json.loads(done.stdout)
    if report["segments"]:
        log.info(
            "ledger.compacted",
            segments=report["segments"],
            records=report["rows"],
            missing=report["missing"],
            damaged_octets=report["damaged_octets"],
        )


def _be_nice() -> None:
    os.nice(NICENESS)
