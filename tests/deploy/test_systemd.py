"""The systemd unit: what systemd itself says of it, and that it fits the program."""

import configparser
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from router.service.config import read
from router.service.worker import CLOSE_SECONDS
from tests.support import peers

UNIT = Path("deploy/router.service")
EXPOSURE_MOST = 20
"""In tenths of systemd's scale from 0 (safe) to 10; what is left is the network that it is for."""


def unit_of() -> dict[str, dict[str, str]]:
    parser = configparser.RawConfigParser(strict=False)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(UNIT.read_text())
    return {section: dict(parser[section]) for section in parser.sections()}


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """The unit, with a program that exists here."""
    if shutil.which("systemd-analyze") is None:
        peers.miss("systemd")
    path = tmp_path / "router.service"
    path.write_text(UNIT.read_text().replace("/opt/router/bin/router", sys.executable))
    return path


def test_systemd_finds_no_fault(installed: Path) -> None:
    found = subprocess.run(
        ["systemd-analyze", "verify", str(installed)], capture_output=True, text=True, check=False
    )
    faults = [line for line in found.stderr.splitlines() if "router.service" in line]
    assert faults == []


def test_systemd_calls_it_hardened(installed: Path) -> None:
    command = ["systemd-analyze", "security", "--offline=yes", f"--threshold={EXPOSURE_MOST}"]
    judged = subprocess.run(
        [*command, "--no-pager", str(installed)], capture_output=True, text=True, check=False
    )
    assert "Overall exposure level for router.service" in judged.stdout, judged.stderr
    assert judged.returncode == 0, judged.stdout[-200:]


def test_stopping_leaves_the_drain_its_time() -> None:
    service = unit_of()["Service"]
    drain = read("{}", "router.yaml", Path(), {}).router.drain_seconds
    stop = int(re.fullmatch(r"(\d+)s", service["TimeoutStopSec"])[1])  # type: ignore[index]
    assert stop >= drain + CLOSE_SECONDS + 5


def test_it_speaks_of_readiness_and_hears_of_reloads() -> None:
    service = unit_of()["Service"]
    assert service["Type"] == "notify"
    assert service["NotifyAccess"] == "all"
    assert service["ExecReload"].endswith("-HUP $MAINPID")
    assert service["ExecStart"].endswith("router run /etc/router/router.yaml")
    assert "state: ${STATE_DIRECTORY}" in UNIT.read_text()
