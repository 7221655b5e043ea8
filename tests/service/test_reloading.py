"""A file is read when it is whole, as far as that can be seen."""

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from router.service import reloading
from router.service.config import ConfigError, RouterConfig, load
from router.service.reloading import STILL_MOST_SECONDS, read_still

CUT = "routes:\n  - {address: a}\n"
WHOLE = CUT + "  - {address: b}\n"


def names(config: RouterConfig) -> list[str]:
    return [route.name for route in config.routes]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "router.yaml"
    found.write_text(CUT)
    return found


@pytest.fixture
def autojump_clock(autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> MockClock:
    """The clock does not wait for threads, so there are none."""

    async def at_once(read: Callable[..., object], *arguments: object) -> object:
        return read(*arguments)

    monkeypatch.setattr(reloading, "in_thread", at_once)
    return autojump_clock


def make_old(path: Path) -> None:
    past = time.time() - 60
    os.utime(path, (past, past))


async def test_a_file_that_was_just_written_is_read_when_it_is_still(
    path: Path, autojump_clock: MockClock
) -> None:
    async def go_on_writing() -> None:
        await trio.sleep(0.1)
        path.write_text(WHOLE)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(go_on_writing)
        assert names(await read_still(str(path), lambda: load(path))) == ["a", "b"]


async def test_a_file_that_has_been_still_is_read_at_once(
    path: Path, autojump_clock: MockClock
) -> None:
    make_old(path)
    began = trio.current_time()
    assert names(await read_still(str(path), lambda: load(path))) == ["a"]
    assert trio.current_time() == began


@pytest.mark.parametrize("first", [CUT, "routes: ["])
async def test_a_file_that_changes_while_it_is_read_is_read_again(
    path: Path, first: str, autojump_clock: MockClock
) -> None:
    path.write_text(first)
    make_old(path)
    texts = [WHOLE]

    def loading() -> RouterConfig:
        try:
            return load(path)
        finally:
            if texts:
                path.write_text(texts.pop())

    assert names(await read_still(str(path), loading)) == ["a", "b"]


async def test_a_file_that_never_is_still_is_refused(path: Path, autojump_clock: MockClock) -> None:
    async def write() -> None:
        while True:
            await trio.sleep(0.1)
            path.write_text(path.read_text() + "  - {address: x}\n")

    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(write)
        with pytest.raises(ConfigError, match="written again and again for 5 s"):
            await read_still(str(path), lambda: load(path))
        nursery.cancel_scope.cancel()
    assert STILL_MOST_SECONDS <= trio.current_time() - began < STILL_MOST_SECONDS + 1


async def test_an_invalid_file_that_is_still_is_refused_with_its_problems(path: Path) -> None:
    path.write_text("rotues: []")
    make_old(path)
    with pytest.raises(ConfigError, match="unknown key 'rotues'"):
        await read_still(str(path), lambda: load(path))


async def test_a_pipe_is_not_waited_for(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)

    def loading() -> RouterConfig:
        raise AssertionError("it would wait for a writer")

    with pytest.raises(ConfigError, match="cannot read again: it is not a file"):
        await read_still(str(path), loading)


async def test_a_read_that_takes_too_long_is_given_up(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reloading, "READ_MOST_SECONDS", 0.1)
    make_old(path)
    goes_on = threading.Event()

    def hang() -> RouterConfig:
        goes_on.wait()
        return load(path)

    try:
        with pytest.raises(ConfigError, match=r"has not been read within 0\.1 s"):
            await read_still(str(path), hang)
    finally:
        goes_on.set()


async def test_a_read_is_left_when_nobody_wants_it_any_more(path: Path) -> None:
    make_old(path)
    begun, goes_on = threading.Event(), threading.Event()

    def hang() -> RouterConfig:
        begun.set()
        goes_on.wait()
        return load(path)

    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(read_still, str(path), hang)
            while not begun.is_set():
                await trio.sleep(0.001)
            nursery.cancel_scope.cancel()
    finally:
        goes_on.set()
