"""A router process that is killed, started again, and replaced by another on the same file."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import attrs
import trio

START_SECONDS = 120.0


@attrs.define(eq=False)
class Life:
    """One process of `router run`.

    Attributes:
        lines: of its log.
        workers: process ids by number, of those that are there.
    """

    process: trio.Process
    lines: list[str] = attrs.field(factory=list)
    workers: dict[int, int] = attrs.field(factory=dict)
    _news: trio.Event = attrs.field(factory=trio.Event, init=False)

    @property
    def has_ended(self) -> bool:
        """Whether the process has ended."""
        return self.process.returncode is not None

    async def read(self, also: Callable[[str], None]) -> None:
        """Reads its log until it ends, and hands on each line."""
        assert self.process.stdout is not None
        rest = b""
        async for octets in self.process.stdout:
            *lines, rest = (rest + octets).split(b"\n")
            for line in lines:
                text = line.decode(errors="replace")
                self._note(text)
                also(text)
        self._tell()

    async def said(self, word: str, since: int = 0, seconds: float = START_SECONDS) -> bool:
        """Waits until its log contains a word; returns whether it did before the process ended.

        Raises:
            AssertionError: neither happened in time.
        """
        with trio.move_on_after(seconds) as patience:
            while not any(word in line for line in self.lines[since:]):
                if self.has_ended:
                    return False
                with trio.move_on_after(0.2):
                    await self._news.wait()
        if patience.cancelled_caught:
            raise AssertionError(f"no {word!r} in the log:\n" + "\n".join(self.lines[-30:]))
        return True

    def _note(self, line: str) -> None:
        self.lines.append(line)
        if "worker.started" in line:
            told = json.loads(line)
            self.workers[told["worker"]] = told["process"]
        elif "worker.ended" in line:
            told = json.loads(line)
            if self.workers.get(told["worker"]) == told["process"]:
                del self.workers[told["worker"]]
        elif "handover.ended" in line and json.loads(line)["completed"]:
            self.workers.clear()  # they drain, and end without a word
        self._tell()

    def _tell(self) -> None:
        self._news.set()
        self._news = trio.Event()


@attrs.define(eq=False)
class MortalRouter:
    """`router run`, which can be killed and comes back with the same file and state.

    Attributes:
        config: path of its file.
        environment: variables for the lives to come.
        kills: how often it was killed.
        worker_kills: how often one of its workers was.
        takeovers: how often another process took its place in good order.
        broken_takeovers: how often either process was killed while that went on.
        lines: of its log, of all lives.
        codes: with which those ended that were replaced in good order.
        life: the process that serves, or is about to.
    """

    config: Path
    environment: Mapping[str, str] = attrs.field(factory=dict, init=False)
    kills: int = attrs.field(default=0, init=False)
    worker_kills: int = attrs.field(default=0, init=False)
    takeovers: int = attrs.field(default=0, init=False)
    broken_takeovers: int = attrs.field(default=0, init=False)
    lines: list[str] = attrs.field(factory=list, init=False)
    codes: list[int] = attrs.field(factory=list, init=False)
    life: Life = attrs.field(init=False)

    async def start(self, nursery: trio.Nursery) -> None:
        """Starts a life and waits until it accepts connections."""
        self.life = life = await self._open(nursery)
        await self._is_ready(life)

    async def kill(self) -> None:
        """Ends it with SIGKILL."""
        await _kill(self.life)
        self.kills += 1

    def kill_worker(self, number: int) -> None:
        """Ends one of its workers with SIGKILL, if it is there at present."""
        process = self.life.workers.pop(number, None)
        if process is not None:
            try:
                os.kill(process, signal.SIGKILL)
            except ProcessLookupError:
                return
            self.worker_kills += 1

    async def take_over(self, nursery: trio.Nursery) -> None:
        """Starts another process on the same file; returns when it serves and this one is gone."""
        old = self.life
        self.life = new = await self._open(nursery)
        await self._is_ready(new)
        self.codes.append(await old.process.wait())
        self.takeovers += 1

    async def break_takeover(
        self, nursery: trio.Nursery, after_seconds: float, *, kills_new: bool
    ) -> None:
        """Starts another process, and kills it, or this one, some time later.

        Returns when one of them serves.
        """
        old = self.life
        since = len(old.lines)
        new = await self._open(nursery)
        await trio.sleep(after_seconds)
        if not kills_new:
            await _kill(old)
            self.life = new
            await self._is_ready(new)
        else:
            await _kill(new)
            if await self._is_deserted(old, since):
                await self.start(nursery)
        self.broken_takeovers += 1

    def reload(self) -> None:
        """Has it read its file again."""
        self.life.process.send_signal(signal.SIGHUP)

    async def end(self) -> int:
        """Lets it drain; returns its exit code."""
        self.life.process.send_signal(signal.SIGTERM)
        return await self.life.process.wait()

    def matching(self, *words: str) -> list[str]:
        """Gives the lines of the log that contain any of these words."""
        return [line for line in self.lines if any(word in line for word in words)]

    def complaints(self) -> list[str]:
        """Gives what its lives say of errors, tracebacks in full; that workers ended is none."""
        found: list[list[str]] = []
        is_within = False
        for line in self.lines:
            if line.startswith("{"):
                is_within = '"level": "error"' in line or "defect" in line
                is_within = is_within and "worker.ended" not in line
                found += [[line]] if is_within else []
            elif is_within:
                found[-1].append(line)
            elif "Traceback" in line:
                is_within = True
                found.append([line])
        return ["\n".join(lines) for lines in found]

    async def _open(self, nursery: trio.Nursery) -> Life:
        process = await trio.lowlevel.open_process(
            [sys.executable, "-m", "router", "run", str(self.config)],
            cwd=self.config.parent,
            env={**os.environ, "PYTHONPATH": str(Path.cwd()), **self.environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        life = Life(process)
        nursery.start_soon(life.read, self.lines.append)
        return life

    async def _is_ready(self, life: Life) -> None:
        if not await life.said("router.ready"):
            raise AssertionError("the router did not start:\n" + "\n".join(life.lines[-30:]))

    async def _is_deserted(self, old: Life, since: int) -> bool:
        """Waits for an old process whose successor was killed; tells whether it left all the same.

        It did if the successor was killed after it had seen the old one end.
        """
        if not any("handover.begun" in line for line in old.lines[since:]):
            with trio.move_on_after(1):
                await old.said("handover.begun", since)
        if not any("handover.begun" in line for line in old.lines[since:]):
            return old.has_ended
        if not await old.said("handover.ended", since):
            return True
        ended = next(line for line in old.lines[since:] if "handover.ended" in line)
        if not json.loads(ended)["completed"]:
            return False
        if not await old.said("handover.deserted", since):
            return True
        again = since + next(
            n for n, line in enumerate(old.lines[since:]) if "handover.deserted" in line
        )
        return not await old.said("router.ready", again)


async def _kill(life: Life) -> None:
    life.workers.clear()
    if not life.has_ended:
        life.process.send_signal(signal.SIGKILL)
    await life.process.wait()
