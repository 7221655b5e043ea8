"""Keeps the ledger up to date: a process periodically converts sealed segments to Parquet files.

The process is ``router ledger compact``, at low priority, so no worker waits for it and the router
imports nothing of the pipeline. A failed run is logged, and the router's status shows it as an
error until a run succeeds; the segments wait for the next run.
"""

import importlib.util
import json
import os
import subprocess
from pathlib import Path
from typing import Final

import attrs
import structlog
import trio

from router.programs import command_of
from router.service.config.process import Compaction

NICENESS: Final = 10

LEDGER_SECONDS: Final = 20.0
"""How long a stopping router waits for its last segments to be compacted."""


@attrs.define(eq=False)
class LedgerHealth:
    """The result of the last compaction.

    Attributes:
        trouble: why the ledger is not kept up to date; None: it is.
    """

    trouble: str | None = None


async def keep_ledger(state: Path, options: Compaction, health: LedgerHealth) -> None:
    """Compacts at intervals, until cancelled.

    Args:
        state: the router's state directory.
        options: the ledger's directory and the interval.
        health: updated after each run.
    """
    if importlib.util.find_spec("pyarrow") is None:
        health.trouble = "pyarrow is not installed"
        structlog.get_logger().error(
            "ledger.unavailable",
            reason=f"{health.trouble}: pip install '.[spark]' in the folder of the source",
        )
        return
    while True:
        await trio.sleep(options.every_seconds)
        health.trouble = await compact(state, options)


async def compact(state: Path, options: Compaction) -> str | None:
    """Compacts the sealed segments once; returns why that failed."""
    log = structlog.get_logger()
    command = [
        *(*command_of("router"), "ledger", "compact", str(state)),
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
        log.error("ledger.failed", reason=error)
        return str(error)
    if done.returncode:
        reason = done.stderr.decode(errors="replace").strip()[-500:]
        log.error("ledger.failed", reason=reason)
        return reason or f"the process ended with {done.returncode}"
    report = json.loads(done.stdout)
    if report["segments"]:
        log.info(
            "ledger.compacted",
            segments=report["segments"],
            records=report["rows"],
            missing=report["missing"],
            damaged_octets=report["damaged_octets"],
        )
    return None


def _be_nice() -> None:
    os.nice(NICENESS)
