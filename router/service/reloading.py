"""A reload: the file is read again when it is still, tried, and applied if all of it can be.

Workers, listeners and the journal's processes go on; what only a restart can change is reported as
deferred. Reloads and rehearsals take turns.

Files may be on a disk that does not answer. They are read in threads, so that signals are handled
meanwhile. A drain leaves such a thread to itself, and so does a reload that has read for
``READ_MOST_SECONDS``. What is being applied is finished before a drain.
"""

import gc
import os
import stat
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

import attrs
import structlog
import trio

from router.errors import RouterError, reason_of
from router.model.place import BindAddress
from router.net.listener import ListenError, Listeners
from router.routes.route import Position
from router.service import garbage
from router.service.assembly import named_listeners
from router.service.books import Books
from router.service.certificates import invalid_anew
from router.service.config import ConfigError, Problem, RouterConfig
from router.service.crew import Crew
from router.service.difference import Difference, awaiting, in_force, refusals
from router.service.fleet import ReloadReport
from router.service.notify import Notifier
from router.service.rehearsal import KEPT, FindRecord, ListLinks, divided, rehearse

TOLD_AT_ONCE: Final = 200
"""Differences that are logged before others may go on."""

STILL_SECONDS: Final = 0.25
"""A file is read when it was not written for so long: programs write theirs in one go."""

STILL_MOST_SECONDS: Final = 5.0
"""How long a reload waits for a file that is being written."""

READ_MOST_SECONDS: Final = 300.0
"""How long the reading of all files may take: a hundred thousand routes take some 20 s."""

READERS_MOST: Final = 4
"""Threads that may read at a time, among them those that were left."""

DRAINING: Final = "the router is draining"

Result = TypeVar("Result")

Load = Callable[[], RouterConfig]
"""Loads the configuration; raises ``ConfigError`` if the file is invalid."""


class Life(Protocol):
    """What is reloaded.

    Attributes:
        crew: its workers.
        config: the configuration in force.
        awaits_restart: options whose values in the file wait for a restart.
        books: what is written down beside serving.
    """

    crew: Crew
    config: RouterConfig
    awaits_restart: Sequence[str]
    books: Books

    def why_no_reload(self) -> str | None:
        """Returns why the file cannot be reloaded now; None: it can."""

    async def keep_books(self, config: RouterConfig) -> None:
        """Starts the processes of journal and message store if some route asks for them.

        Raises:
            JournalError: the directory of one of them cannot be used.
        """


class LeftError(RouterError):
    """Files are not read any more: the router drains."""

    def __str__(self) -> str:
        return DRAINING


@attrs.define(eq=False)
class Reloader:
    """Reloads one life of the router."""

    life: Life
    load: Load
    listeners: Listeners
    notifier: Notifier
    _turns: trio.Lock = attrs.field(factory=trio.Lock, init=False)
    _reading: trio.CancelScope | None = attrs.field(default=None, init=False)
    _is_over: bool = attrs.field(default=False, init=False)
    _log: Any = attrs.field(factory=structlog.get_logger, init=False)

    async def reload(self, find: FindRecord, list_links: ListLinks) -> ReloadReport:
        """Reloads the file and applies it if it is valid.

        Args:
            find: finds records of the routes in force.
            list_links: lists the links of one of these.
        """
        async with self._turns:
            if (refusal := self.life.why_no_reload()) is not None:
                return ReloadReport(refusal=refusal)
            self.notifier.reloading()
            try:
                with garbage.exchange(await self._octets()):
                    return await self._reload(find, list_links)
            except LeftError as error:
                return ReloadReport(refusal=str(error))
            except ConfigError as error:
                return self._refuse([str(problem) for problem in error.problems])
            except (RouterError, OSError) as error:
                return self._refuse([reason_of(error)])
            finally:
                self.notifier.ready()

    async def rehearse(self, find: FindRecord, list_links: ListLinks) -> ReloadReport:
        """Reads the file and reports what a reload would change; changes nothing."""
        async with self._turns:
            if (refusal := self.life.why_no_reload()) is not None:
                return ReloadReport(refusal=refusal)
            try:
                with garbage.exchange(await self._octets()):
                    config = await self._read()
                    await try_listeners(self.listeners, config)
                    return ReloadReport(differences=await self._compare(config, find, list_links))
            except LeftError as error:
                return ReloadReport(refusal=str(error))
            except ConfigError as error:
                return ReloadReport(problems=tuple(map(str, error.problems)))
            except (RouterError, OSError) as error:
                return ReloadReport(problems=(reason_of(error),))

    async def end(self) -> None:
        """Leaves files that are being read, and returns when what was read before is applied."""
        self._is_over = True
        if self._reading is not None:
            self._reading.cancel()
        async with self._turns:
            pass

    async def _octets(self) -> int:
        """Returns how long the file is.

        Raises:
            LeftError: the router drains.
        """
        return await self._leaving(partial(in_thread, octets_of, self.life.config.file))

    async def _leaving(self, read: Callable[[], Awaitable[Result]]) -> Result:
        """Reads files, until ``end`` is called.

        Raises:
            LeftError: it was.
        """
        try:
            with trio.CancelScope() as self._reading:
                if not self._is_over:
                    return await read()
        finally:
            self._reading = None
        raise LeftError

    async def _read(self) -> RouterConfig:
        """Reads the file, and checks that the workers that run can take it over.

        Raises:
            ConfigError: it is invalid, or they cannot.
            LeftError: the router drains.
        """
        return await self._leaving(self._read_file)

    async def _read_file(self) -> RouterConfig:
        """Does what ``_read`` says, and waits for the files."""
        file = await read_still(self.life.config.file, self.load)
        config, now = self.life.config, time.time()
        invalid = await in_thread(lambda: [*invalid_anew(config, file, now)])
        if problems := [*refusals(config, file), *invalid]:
            raise ConfigError(problems)
        return file

    async def _compare(
        self, file: RouterConfig, find: FindRecord, list_links: ListLinks
    ) -> tuple[Difference, ...]:
        """Returns how a file differs from the configuration in force, with the effects.

        That one has what a reload does not change: a worker that is replaced must not take over
        what waits for a restart.
        """
        running = self.life.config
        names = await trio.to_thread.run_sync(lambda: tuple(divided(running, file, find)))
        links = {name: await list_links(name) for name in names}
        return await trio.to_thread.run_sync(rehearse, running, file, find, links)

    async def _reload(self, find: FindRecord, list_links: ListLinks) -> ReloadReport:
        life, listeners = self.life, self.listeners
        file = await self._read()
        config = in_force(life.config, file)
        if life.books.keeps_journal:
            config = attrs.evolve(config, keeps_unsettled=True)
        await try_listeners(listeners, config)
        compared = await self._compare(file, find, list_links)
        waiting = awaiting(compared)
        await life.crew.prepare(config)
        await life.keep_books(config)
        wanted = binds(config)
        opened = await listeners.open(wanted)
        kept = await life.crew.apply()
        listeners.serve(wanted, opened)
        differences = _differences(compared, kept)
        life.config, life.awaits_restart = config, waiting
        await self._tell(config, differences)
        return ReloadReport(differences=differences)

    def _refuse(self, problems: list[str]) -> ReloadReport:
        for problem in problems:
            self._log.error("config.refused", reason=problem)
        return ReloadReport(problems=tuple(problems))

    async def _tell(self, config: RouterConfig, differences: tuple[Difference, ...]) -> None:
        for number, each in enumerate(differences, 1):
            if number % TOLD_AT_ONCE == 0:
                await trio.lowlevel.checkpoint()  # there may be many
            self._log.info(
                "config.deferred" if each.waits_for_restart else "config.changed",
                section=each.section,
                name=each.name,
                change=each.change.value,
                options=list(each.options) or None,
                kept=each.kept or None,
                effects=list(each.effects) or None,
            )
        self._log.info("config.reloaded", config=config.file, count=len(differences))


def _differences(
    compared: tuple[Difference, ...], kept: Mapping[str, int]
) -> tuple[Difference, ...]:
    """Adds unsettled deliveries whose route was removed, by its pattern: what was foreseen of them
    is left out.
    """
    return tuple(
        attrs.evolve(
            each,
            kept=kept.get(each.name or "", 0),
            effects=tuple(effect for effect in each.effects if not effect.endswith(KEPT)),
        )
        if each.section == _ROUTES
        else each
        for each in compared
    )


_ROUTES: Final = "routes"


async def try_listeners(listeners: Listeners, config: RouterConfig) -> None:
    """Checks that all listeners of a configuration can be opened.

    Raises:
        ConfigError: one cannot; with its place in the file.
    """
    try:
        await listeners.try_open(binds(config))
    except ListenError as error:
        where = named_listeners(config)[error.listener].where
        place = where.keys.get("bind", Position(config.file, 1, 1))
        raise ConfigError([Problem(place, reason_of(error))]) from error


async def read_still(path: str, load: Load) -> RouterConfig:
    """Loads a file when it is no longer being written, as far as that can be seen.

    A file that is cut off at the end of a line may be valid, and leave routes out. So one that was
    written a moment ago is looked at again after ``STILL_SECONDS``, and one that has changed while
    it was read is read again.

    Raises:
        ConfigError: it is invalid, or is written again and again for ``STILL_MOST_SECONDS``; or it
            is a pipe or device, which a reload might wait for; or the file, or one that it names,
            has not been read within ``READ_MOST_SECONDS``.
    """
    with trio.move_on_after(READ_MOST_SECONDS):
        return await _read_still(path, load)
    problem = f"it, or a file that it names, has not been read within {READ_MOST_SECONDS:g} s"
    raise ConfigError([Problem(Position(path, 1, 1), problem)])


async def _read_still(path: str, load: Load) -> RouterConfig:
    if await in_thread(_is_endless, path):
        raise ConfigError([Problem(Position(path, 1, 1), "cannot read again: it is not a file")])
    ends_at = trio.current_time() + STILL_MOST_SECONDS
    while trio.current_time() < ends_at:
        before = await in_thread(_stamp, path)
        if before is not None and abs(time.time_ns() - before[0]) < STILL_SECONDS * 1e9:
            await trio.sleep(STILL_SECONDS)
            if await in_thread(_stamp, path) != before:
                continue
        try:
            config = await in_thread(load)
        except ConfigError:
            if await in_thread(_stamp, path) == before:
                raise
        else:
            if await in_thread(_stamp, path) == before:
                return config
    problem = (
        f"the file has been written again and again for {STILL_MOST_SECONDS:g} s: reload when it is"
        " whole"
    )
    raise ConfigError([Problem(Position(path, 1, 1), problem)])


async def in_thread(read: Callable[..., Result], *arguments: object) -> Result:
    """Reads in a thread, which is left to itself if this is cancelled: it may wait for ever."""
    try:
        return await trio.to_thread.run_sync(
            partial(read, *arguments), abandon_on_cancel=True, limiter=_readers
        )
    except trio.Cancelled:
        gc.enable()  # the thread may have disabled it (``at_rest``)
        raise


_readers: Final = trio.CapacityLimiter(READERS_MOST)


def _is_endless(path: str) -> bool:
    """Returns whether a path leads to something else than a file or directory."""
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):
        return False  # loading it says why
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def _stamp(path: str) -> tuple[int, int, int] | None:
    """Returns what tells one state of a file from another; None: that cannot be found out."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def octets_of(file: str) -> int:
    """Returns how long a file is; 0 if that cannot be found out."""
    try:
        return Path(file).stat().st_size
    except OSError:
        return 0


def binds(config: RouterConfig) -> dict[str, BindAddress]:
    """Returns where each listener of a configuration listens, by its name."""
    return {name: listener.bind for name, listener in named_listeners(config).items()}
