"""Exports spans: runs ``router otel export`` beside the router, and restarts it when it ends.

The exporter reads the journal's segments, so no worker waits for it, and the router imports nothing
of OpenTelemetry. It reports on its standard output; while spans are not exported, the router's
status shows why as an error.

The exporter keeps hard links of the segments that it has not read, because the journal removes
segments that it no longer needs. While the exporter is away, this process keeps them in its place:
from the end of one process until the next one reports for the first time.
"""

import importlib.util
import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Final

import attrs
import structlog
import trio

from router.journal.following import SPANS_FOLDER, Follower, saved_cursor
from router.programs import command_of
from router.service.config.process import Tracing

RESPAWN_SECONDS: Final = 2.0
"""Pause between the end of one process and the start of the next."""

END_SECONDS: Final = 8.0
"""How long a stopping router waits for its last spans to be exported."""

HOLD_SECONDS: Final = 0.25
"""Pause between two looks for new segments while the exporter is away."""

_NEEDED: Final = ("opentelemetry.sdk.trace", "opentelemetry.exporter.otlp.proto.http")


@attrs.define(eq=False)
class TracingHealth:
    """The state of the exporter.

    Attributes:
        trouble: why spans are not exported; None: they are, or none are wanted.
        dropped: segments that were dropped unread because the collector was away for too long.
        refused: spans that the collector has refused for good, and that were dropped.
        refusal: why it has last refused some; None: it has refused none.
        holds: this process keeps unread segments, because no exporter does.
    """

    trouble: str | None = None
    dropped: int = 0
    refused: int = 0
    refusal: str | None = None
    holds: bool = attrs.field(default=False, init=False)
    _dropped_before: int = attrs.field(default=0, init=False)
    _refused_before: int = attrs.field(default=0, init=False)
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
        async with trio.open_nursery() as nursery:
            self._take_over(nursery, state, options)
            while True:
                code = await self._try_once(state, options)
                if self._is_ending:
                    break
                self._take_over(nursery, state, options)
                self.trouble = self.trouble or f"the process ended with {code}"
                reason = self.trouble
                log.error("spans.ended", reason=reason, code=code, seconds=RESPAWN_SECONDS)
                await trio.sleep(RESPAWN_SECONDS)
            nursery.cancel_scope.cancel()

    async def _try_once(self, state: Path, options: Tracing) -> int:
        try:
            return await self._run_once(state, options)
        except OSError as error:
            self.trouble = str(error)
            return 1

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

    def _take_over(self, nursery: trio.Nursery, state: Path, options: Tracing) -> None:
        """Begins to keep the segments that are unread, in place of the exporter."""
        if not self.holds:
            self.holds = True
            nursery.start_soon(self._hold, state, options.buffer_octets)

    async def _hold(self, state: Path, buffer_octets: int) -> None:
        follower, before = Follower(state, state / SPANS_FOLDER, buffer_octets), self.dropped
        while self.holds:
            try:
                await trio.to_thread.run_sync(_look, follower)
            except (OSError, ValueError) as error:
                self.trouble = f"unread records are not kept: {error}"
            self._note_dropped(before + follower.dropped)
            await trio.sleep(HOLD_SECONDS)

    async def _run_once(self, state: Path, options: Tracing) -> int:
        process = self._process = await trio.lowlevel.open_process(
            [
                *(*command_of("router"), "otel", "export", str(state)),
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
        if self.holds:  # the first report of this exporter
            self.holds, self._dropped_before = False, self.dropped
            self._refused_before = self.refused
        log = structlog.get_logger()
        trouble, dropped, refused = report["trouble"], report["dropped"], report["refused"]
        assert isinstance(dropped, int)
        assert isinstance(refused, int)
        if trouble != self.trouble:
            self.trouble = None if trouble is None else str(trouble)
            if trouble is None:
                log.info("spans.resumed")
            else:
                log.error("spans.failed", reason=trouble)
        self._note_dropped(self._dropped_before + dropped)
        if self._refused_before + refused > self.refused:
            count, self.refused = self.refused, self._refused_before + refused
            self.refusal = str(report["refusal"])
            log.error("spans.refused", spans=self.refused - count, reason=self.refusal)

    def _note_dropped(self, dropped: int) -> None:
        if dropped > self.dropped:
            structlog.get_logger().error("spans.dropped", segments=dropped - self.dropped)
            self.dropped = dropped

    async def _read_errors(self, stream: trio.abc.ReceiveStream) -> None:
        text = b""
        while octets := await stream.receive_some():
            text = (text + octets)[-500:]
        if text:
            self.trouble = text.decode(errors="replace").strip().splitlines()[-1]


def _look(follower: Follower) -> None:
    follower.keep.mkdir(mode=0o700, exist_ok=True)
    follower.look(saved_cursor(follower.keep))


def _is_installed() -> bool:
    try:
        return all(importlib.util.find_spec(name) is not None for name in _NEEDED)
    except ModuleNotFoundError:  # of the package around one of them
        return False
