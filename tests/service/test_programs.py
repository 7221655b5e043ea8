"""What the router starts is its own, whatever stands where it was started."""

import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

import pytest

from router.programs import command_of
from tests.support.running import running_router

FILE = """
router: {id: careful, workers: 2}
listeners: [{bind: "127.0.0.1:0"}]
containers: {away: {url: "amqp://127.0.0.1:1"}}
routes:
  - {address: kept, guarantee: exactly-once}
  - {address: dead}
  - {address: stored, to: away, store: {}, dead_letter: local/dead}
"""


@pytest.mark.parametrize("name", ["router", "trio", "attrs", "logging"])
def test_modules_in_the_working_directory_are_not_run(name: str, tmp_path: Path) -> None:
    ran = tmp_path / "was-run"
    (tmp_path / f"{name}.py").write_text(f"open({str(ran)!r}, 'w')\nraise SystemExit(3)\n")
    script = str(Path(sys.executable).with_name("router"))
    with running_router(FILE, tmp_path, program=[script]) as router:
        assert router.stop() == 0
    assert not ran.exists()


@pytest.mark.parametrize("is_module", [True, False])
def test_what_was_found_in_the_working_directory_is_looked_for_there(
    *, is_module: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    main = ModuleType("__main__")
    main.__spec__ = ModuleSpec("router.__main__", None) if is_module else None
    monkeypatch.setitem(sys.modules, "__main__", main)
    flags = [] if is_module else ["-P"]
    assert command_of("router") == [sys.executable, *flags, "-m", "router"]
