"""Exports spans: runs ``router otel export`` beside the router, and restarts it when it ends.

The exporter reads the journal's segments, so no worker waits for it, and the router imports nothing
of OpenTelemetry. It reports on its standard output; while spans are not exported, the router's
status shows why as an error.
"""

import importlib.util
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

import attrs
import structlog
import trio

from router.service.config.process import Tracing

RESPAWN_SECONDS: Final = 2.0
"""Pause between the end of one process and the start of the next."""

END_SECONDS: Final = 8.0
"""How long a stopping router waits for its last spans to be exported."""

_NEEDED: Final = ("opentelemetry.sdk.trace", "opentelemetry.exporter.otlp.proto.http")


@attrs.define(eq=False)
class TracingHealth:
    """The state of the exporter.

    Attributes:
        trouble: why spans are not exported; None: they are, or none are wanted.
        dropped: segments that were dropped unread because the collector was away for too long.
    """

    trouble: str | None = None
    dropped: int = 0
    _process: trio.Process | None = attrs.field(default=None, init=False)
    _is_ending: bool = attrs.field(default=False, init=False)

    async def run(self, state: Path, options: Tracing) -> None:
        """Runs the exporter, and restarts it whenever it ends, until ``end``."""
        log = structlog.get_logger()
        if not _is_installed():
            self.trouble = "opentelemetry-sdk is not installed"
            reason = f"{self.trouble}: pip install '.[otel]' in the folder of the source"
            log.error("spans.unavailable", reason=reason)
            return
        while True:
            try:
                code = await self._run_once(state, options)
            except OSError as error:
                self.trouble, code = str(error), 1
            if self._is_ending:
                return
            self.trouble = self.trouble or f"the process ended with {code}"
            log.error("spans.ended", reason=self.trouble, code=code, seconds=RESPAWN_SECONDS)
            await trio.sleep(RESPAWN_SECONDS)

    async def end(self) -> None:
        """Has the exporter export what is there, within a time limit."""
        self._is_ending = True
        process = self._process
        if process is None:
            return
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        with trio.move_on_after(END_SECONDS):
            await process.wait()
        if process.returncode is None:
            process.kill()

    async def _run_once(self, state: Path, options: Tracing) -> int:
        process = self._process = await trio.lowlevel.open_process(
            [
                *(sys.executable, "-m", "router", "otel", "export", str(state)),
                *("--endpoint", options.endpoint, "--buffer", str(options.buffer_octets)),
                *("--follow", "--json", "--parent", str(os.getpid())),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # only the router handles a Ctrl-C at the terminal
        )
        structlog.get_logger().info("spans.started", process=process.pid, endpoint=options.endpoint)
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._read_reports, process.stdout)
                nursery.start_soon(self._read_errors, process.stderr)
                return await process.wait()
        finally:
            if process.returncode is None:
                os.kill(process.pid, signal.SIGTERM)

    async def _read_reports(self, stream: trio.abc.ReceiveStream) -> None:
        rest = b""
        while octets := await stream.receive_some():
            *lines, rest = (rest + octets).split(b"\n")
            for line in lines:
                self._note(json.loads(line))

    def _note(self, report: dict[str, object]) -> None:
        log = structlog.get_logger()
        trouble, dropped = report["trouble"], report["dropped"]
        assert isinstance(dropped, int)
        if trouble != self.trouble:
            self.trouble = None if trouble is None else str(trouble)
            if trouble is None:
                log.info("spans.resumed")
            else:
                log.error("spans.failed", reason=trouble)
        if dropped > self.dropped:
            log.error("spans.dropped", segments=dropped - self.dropped)
        self.dropped = dropped

    async def _read_errors(self, stream: trio.abc.ReceiveStream) -> None:
        text = b""
        while octets := await stream.receive_some():
            text = (text + octets)[-500:]
        if text:
            self.trouble = text.decode(errors="replace").strip().splitlines()[-1]


def _is_installed() -> bool:
    try:
        return all(importlib.util.find_spec(name) is not None for name in _NEEDED)
    except ModuleNotFoundError:  # of the package around one of them
        return False
