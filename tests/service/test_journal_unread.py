"""A journal of which a file, or whose directory, cannot be used: it is named, and waited for."""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from router.journal.segment import segment_name
from tests.service.test_disk_full import status, until_ready
from tests.service.test_full_disk_at_start import CONFIG, transfer
from tests.support.chaos import Books
from tests.support.ports import free_port
from tests.support.running import running_router

FIRST = segment_name(1)


@contextmanager
def mounted(folder: Path, *options: str) -> Iterator[None]:
    """Mounts a small file system of its own there, or leaves the test out where that is not let."""
    folder.mkdir(parents=True, exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", ",".join(("size=8m", *options)), "none", str(folder)]
    try:
        done = subprocess.run(command, capture_output=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no mount here")
    if done.returncode:
        pytest.skip("nothing may be mounted here")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


async def run_before(text: str, folder: Path, port: int) -> None:
    """A router records deliveries and is killed, then starts and ends again: two segments."""
    with running_router(text, folder) as router:
        await transfer(port, "orders", 20, Books())
        router.kill()
    with running_router(text, folder) as router:
        assert router.stop() == 0


@pytest.mark.parametrize("workers", [pytest.param(1, marks=pytest.mark.long), 2])
@pytest.mark.parametrize("gives_up", [False, pytest.param(True, marks=pytest.mark.long)])
async def test_an_older_segment_that_cannot_be_read_is_named_and_waited_for(
    tmp_path: Path, workers: int, gives_up: bool
) -> None:
    """A directory in its place; what needs no journal is served, and nothing is sent again."""
    port, admin = free_port(), free_port()
    state = tmp_path / "state"
    text = CONFIG.format(state=state, port=port, admin=admin, workers=workers)
    await run_before(text, tmp_path, port)
    segments = sorted((state / "journal").glob("*.segment"))
    assert len(segments) >= 2
    aside = tmp_path / "aside"
    (state / "journal" / FIRST).rename(aside)
    (state / "journal" / FIRST).mkdir()
    with running_router(text, tmp_path) as router:
        await transfer(port, "prices", 50, Books())
        why = await until_ready(admin, is_ready=False)
        assert f"{FIRST} cannot be read: Is a directory" in why
        seen = await status(admin)
        assert f"{FIRST} cannot be read: Is a directory" in seen
        assert "to give up what it held, move the file out of the directory" in seen
        (state / "journal" / FIRST).rmdir()
        if not gives_up:
            aside.rename(state / "journal" / FIRST)
        await until_ready(admin, is_ready=True)
        incomplete = [line for line in router.log if '"journal.incomplete"' in line]
        assert bool(incomplete) is gives_up
        assert not gives_up or "segment 1 is missing" in incomplete[0]
        assert router.stop() == 0
    told = [line for line in router.log if '"journal.unread"' in line]
    assert len(told) == workers
    assert sum("move it away" in line for line in told) == 1


async def test_a_journal_directory_that_is_read_only_is_named_and_the_rest_is_served(
    tmp_path: Path,
) -> None:
    port, admin, state = free_port(), free_port(), tmp_path / "state"
    text = CONFIG.format(state=state, port=port, admin=admin, workers=1)
    state.mkdir(mode=0o700)
    with mounted(state / "journal", "ro"), running_router(text, tmp_path) as router:
        await transfer(port, "prices", 50, Books())
        why = await until_ready(admin, is_ready=False)
        assert "Read-only file system" in why
        subprocess.run(["mount", "-o", "remount,rw", str(state / "journal")], check=True)
        await until_ready(admin, is_ready=True)
        await transfer(port, "orders", 50, Books())
        assert router.stop() == 0
    assert [line for line in router.log if '"journal.refused"' in line]


async def test_a_journal_on_a_file_system_that_is_full_is_waited_for(tmp_path: Path) -> None:
    port, admin, state = free_port(), free_port(), tmp_path / "state"
    text = CONFIG.format(state=state, port=port, admin=admin, workers=1)
    state.mkdir(mode=0o700)
    with mounted(state / "journal"):
        filler = state / "journal" / "filler"
        room = shutil.disk_usage(filler.parent).free
        filler.write_bytes(bytes(room))
        with running_router(text, tmp_path) as router:
            await transfer(port, "prices", 50, Books())
            why = await until_ready(admin, is_ready=False)
            assert "No space left on device" in why
            filler.unlink()
            await until_ready(admin, is_ready=True)
            await transfer(port, "orders", 50, Books())
            assert router.stop() == 0


async def test_a_segment_that_was_cut_after_an_orderly_end_is_told(tmp_path: Path) -> None:
    port, admin, state = free_port(), free_port(), tmp_path / "state"
    text = CONFIG.format(state=state, port=port, admin=admin, workers=1)
    with running_router(text, tmp_path) as router:
        await transfer(port, "orders", 20, Books())
        assert router.stop() == 0
    path = state / "journal" / FIRST
    path.write_bytes(path.read_bytes()[:-1000])
    with running_router(text, tmp_path) as router:
        await until_ready(admin, is_ready=True)
        assert router.stop() == 0
    (told,) = [line for line in router.log if '"journal.incomplete"' in line]
    assert f"octets of {FIRST} cannot be read" in told
