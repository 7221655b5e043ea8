"""Runs `router run` as a process of its own, the way a user would."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import attrs
import trio

READY_SECONDS = 90.0
PROGRAM = (sys.executable, "-m", "router")


@attrs.define(eq=False)
class RunningRouter:
    """A router process.

    Attributes:
        environment: what it was started with; clients of the same tree want it, too.
        log: the lines that it has written so far.
    """

    process: subprocess.Popen[str]
    environment: Mapping[str, str] = attrs.field(factory=dict)
    log: list[str] = attrs.field(factory=list)

    def stop(self, seconds: float = 60.0) -> int:
        """Asks the router to drain and end; returns its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(seconds)

    def kill(self) -> None:
        """Ends the router the hard way."""
        self.process.kill()
        self.process.wait()

    def wait_for(self, text: str, seconds: float = READY_SECONDS, since: int = 0) -> str:
        """Returns the first line of the log that contains ``text``, waiting for it.

        Args:
            text: to look for.
            seconds: patience.
            since: number of lines that are passed over.

        Raises:
            AssertionError: the router ended, or the line did not come in time.
        """
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            for line in tuple(self.log)[since:]:
                if text in line:
                    return line
            if self.process.poll() is not None:
                break
            time.sleep(0.02)
        raise AssertionError(f"no {text!r} in the log:\n" + "".join(self.log[-40:]))

    def resident_octets(self) -> int:
        """Returns the resident memory of the router process."""
        return self._status_octets("VmRSS:")

    def peak_octets(self) -> int:
        """Returns the most resident memory that the router process has had."""
        return self._status_octets("VmHWM:")

    def _status_octets(self, key: str) -> int:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith(key))
        return int(line.split()[1]) * 1024


@contextmanager
def running_router(
    config: str | Path,
    folder: Path,
    environment: Mapping[str, str] | None = None,
    until: str = "router.ready",
    program: Sequence[str] = PROGRAM,
) -> Iterator[RunningRouter]:
    """Runs a router for the length of a ``with`` block, ready when the block begins.

    Args:
        config: the YAML text, or the path of a file.
        folder: where the text is written, and where the router runs.
        environment: variables beside those of this process; a PYTHONPATH goes before ours.
        until: what the log must say for the block to begin.
        program: the router's command.
    """
    path = config if isinstance(config, Path) else folder / "router.yaml"
    if isinstance(config, str):
        path.write_text(config)
    own = environment or {}
    modules = os.pathsep.join(filter(None, (own.get("PYTHONPATH"), str(Path.cwd()))))
    variables = {**os.environ, **own, "PYTHONPATH": modules}
    process = subprocess.Popen(
        [*program, "run", str(path.resolve())],
        cwd=folder,
        env=variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    router = RunningRouter(process, variables)
    reader = threading.Thread(target=_read_log, args=(router,), daemon=True)
    reader.start()
    try:
        router.wait_for(until)
        yield router
    finally:
        if process.poll() is None:
            try:
                router.stop()
            except subprocess.TimeoutExpired:
                router.kill()
        reader.join(5)


@asynccontextmanager
async def router_beside(
    config: str | Path, folder: Path, environment: Mapping[str, str] | None = None
) -> AsyncIterator[RunningRouter]:
    """Runs a router as ``running_router`` does, while the tasks of the test go on."""
    running = running_router(config, folder, environment)
    router = await trio.to_thread.run_sync(running.__enter__)
    try:
        yield router
    finally:
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(running.__exit__, None, None, None)


def _read_log(router: RunningRouter) -> None:
    assert router.process.stdout is not None
    for line in router.process.stdout:
        router.log.append(line)
