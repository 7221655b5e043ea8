"""Lines of a log on disks that fill up, pipes that break or hang, and streams that are closed."""

import io
import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from router.journal.lines import CLOSED, PATIENCE_SECONDS, LineWriter

FILLED = """
import resource, sys
sys.path.insert(0, {tree!r})
from router.journal.lines import LineWriter

lines = LineWriter(sys.stdout, is_json=True)
hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
resource.setrlimit(resource.RLIMIT_FSIZE, (25, hard))
for number in range(4):
    lines.write(f"line {{number}} of ten\\n")
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
lines.write("there is room again\\n")
sys.exit(lines.lost)
"""


class Fails(io.StringIO):
    """A stream that fails when it is told to."""

    error: Exception | None = None

    def write(self, text: str) -> int:
        if self.error is not None:
            raise self.error
        return super().write(text)


@pytest.mark.parametrize("is_json", [True, False])
def test_what_cannot_be_written_is_counted_and_told_when_it_can_again(is_json: bool) -> None:
    stream = Fails()
    lines = LineWriter(stream, is_json=is_json)
    lines.write("one\n")
    stream.error = OSError(28, "No space left on device")
    lines.write("two\n")
    lines.write("three\n")
    assert (lines.lost, lines.trouble) == (2, "No space left on device")
    stream.error = None
    lines.write("four\n")
    lines.write("five\n")
    assert (lines.lost, lines.trouble) == (2, None)
    one, told, four, five = stream.getvalue().splitlines()
    assert (one, four, five) == ("one", "four", "five")
    if is_json:
        facts = json.loads(told)
        assert facts.pop("timestamp")
        assert facts == {
            "event": "lines.lost",
            "level": "warning",
            "count": 2,
            "reason": "No space left on device",
        }
    else:
        assert 'lines.lost count=2 reason="No space left on device"' in told


@pytest.mark.processes
def test_a_line_of_which_the_disk_took_a_part_is_ended_before_the_next(tmp_path: Path) -> None:
    """The limit on a file's size stands for a disk: it takes what fits, then nothing."""
    log = tmp_path / "log"
    with log.open("wb") as file:
        script = FILLED.format(tree=str(Path.cwd()))
        done = subprocess.run([sys.executable, "-c", script], stdout=file, check=False)
    assert done.returncode == 3
    first, torn, told, last = log.read_text().splitlines()
    assert first == "line 0 of ten"
    assert "line 1 of ten".startswith(torn)
    assert json.loads(told)["count"] == 3
    assert last == "there is room again"


def test_a_stream_that_is_closed_or_was_never_there_loses_lines_and_nothing_else() -> None:
    reading, writing = os.pipe()
    stream = os.fdopen(writing, "w")
    os.close(reading)
    closed = io.StringIO()
    closed.close()
    for each in (None, closed):
        lines = LineWriter(each, is_json=True)
        lines.write("one\n")
        assert (lines.lost, lines.trouble) == (1, CLOSED)
        assert not lines.isatty()
    lines = LineWriter(stream, is_json=True)
    lines.write("one\n")
    lines.write("two\n")
    assert (lines.lost, lines.trouble) == (2, "Broken pipe")
    stream.close()


def test_a_pipe_whose_reader_hangs_loses_lines_and_holds_nobody_up() -> None:
    reading, writing = os.pipe()
    stream = os.fdopen(writing, "w")
    lines = LineWriter(stream, is_json=True)
    began = time.monotonic()
    for _ in range(5000):
        lines.write("x" * 99 + "\n")
    assert time.monotonic() - began < PATIENCE_SECONDS + 5
    assert lines.trouble == "nobody reads it"
    lost = lines.lost
    read = os.read(reading, 1 << 20)
    assert read.splitlines() == [b"x" * 99] * (5000 - lost)
    lines.write("now\n")
    assert lines.lost == lost
    told, now = os.read(reading, 4096).splitlines()
    assert json.loads(told)["count"] == lost
    assert now == b"now"
    stream.close()
    os.close(reading)


@pytest.mark.processes
def test_long_lines_go_through_a_pipe_whole() -> None:
    reading, writing = os.pipe()
    stream = os.fdopen(writing, "w")
    child = os.fork()
    if not child:
        os.close(reading)
        lines = LineWriter(stream, is_json=True)
        lines.write("y" * 100_000 + "\n")
        os._exit(lines.lost)
    stream.close()
    with os.fdopen(reading) as file:
        assert file.read() == "y" * 100_000 + "\n"
    assert os.waitpid(child, 0)[1] == 0


def test_what_is_no_text_is_shown_and_not_lost(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("w", encoding="ascii") as stream:
        lines = LineWriter(stream, is_json=True)
        lines.write("caf\u00e9 \ud800\n")
        assert lines.lost == 0
    assert log.read_bytes() == "café \\ud800\n".encode()


def test_the_limit_of_a_files_size_is_no_signal_here() -> None:
    assert signal.getsignal(signal.SIGXFSZ) is signal.SIG_IGN
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != 0
