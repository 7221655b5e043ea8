"""The C examples of Qpid Proton, compiled as they are, against the listener."""

import subprocess
import uuid
from pathlib import Path

import attrs
import pytest

from tests.interop.conftest import Reachable
from tests.support import peers

pytestmark = pytest.mark.interop

PROGRAMS = ("send", "receive", "send-abort")
TIMEOUT_SECONDS = 60


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the compiled examples."""
    peers.need_c_examples()
    folder = tmp_path_factory.mktemp("proton-c")
    found = subprocess.run(
        ["pkg-config", "--cflags", "--libs", "libqpid-proton"],
        capture_output=True,
        text=True,
        check=True,
    )
    for name in PROGRAMS:
        source = peers.C_EXAMPLES / f"{name}.c"
        subprocess.run(
            ["gcc", "-o", str(folder / name), str(source), *found.stdout.split()], check=True
        )
    return folder


@attrs.define
class Example:
    """One of the programs, running; it writes to a file, since a full pipe would stop it."""

    process: "subprocess.Popen[bytes]"
    output: Path

    def finish(self) -> str:
        code = self.process.wait(TIMEOUT_SECONDS)
        text = self.output.read_text(errors="replace")
        assert code == 0, text[-2000:]
        return text


def start(program: Path, reachable: Reachable, address: str, count: int) -> Example:
    output = program.parent / f"{program.name}-{uuid.uuid4().hex}"
    arguments = [str(program), "127.0.0.1", str(reachable.port), address, str(count)]
    with output.open("wb") as file:
        return Example(subprocess.Popen(arguments, stdout=file, stderr=file), output)


def test_what_send_sends_receive_receives(reachable: Reachable, programs: Path) -> None:
    address = f"c.{uuid.uuid4().hex}"
    receiver = start(programs / "receive", reachable, address, 5000)
    sender = start(programs / "send", reachable, address, 5000)
    assert "5000 messages sent and acknowledged" in sender.finish()
    received = receiver.finish().splitlines()
    assert received[-1] == "5000 messages received"
    assert received[:-1] == [f'{{"sequence"={number}}}' for number in range(1, 5001)]


def test_aborted_deliveries_never_reach_the_receiver(reachable: Reachable, programs: Path) -> None:
    address = f"c.{uuid.uuid4().hex}"
    receiver = start(programs / "receive", reachable, address, 3)
    start(programs / "send-abort", reachable, address, 20).finish()
    sender = start(programs / "send", reachable, address, 3)
    assert "3 messages sent and acknowledged" in sender.finish()
    received = receiver.finish()
    assert "3 messages received" in received
    assert received.count("sequence") == 3
