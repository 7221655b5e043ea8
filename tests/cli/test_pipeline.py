"""Without the extra, the verbs of the pipeline say in one line what to install."""

import importlib.util
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from router.cli.main import main


def hide(monkeypatch: pytest.MonkeyPatch, module: str) -> None:
    """Makes a module look as if it were not installed."""
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == module else find(name)
    )


def test_without_the_extra_it_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    hide(monkeypatch, "pyarrow")
    result = CliRunner().invoke(
        main, ["ledger", "compact", str(tmp_path), "--out", str(tmp_path / "ledger")]
    )
    assert result.exit_code == 2
    install = "pip install '.[spark]' in the router's source folder"
    assert result.output == f"router: pyarrow is not installed: {install}\n"


@pytest.mark.parametrize("verb", ["audit", "traffic"])
def test_a_ledger_that_is_not_there_is_bad_usage_and_spark_is_not_asked(
    verb: str, tmp_path: Path
) -> None:
    result = CliRunner().invoke(main, [verb, str(tmp_path), str(tmp_path / "none")])
    assert result.exit_code == 2
    assert "none' does not exist." in result.stderr


def test_the_router_itself_imports_none_of_it() -> None:
    import subprocess

    script = (
        "import sys, router.cli.main, router.service.run, router.service.worker;"
        "print([m for m in ('pyarrow', 'pyspark', 'pandas', 'numpy') if m in sys.modules])"
    )
    told = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert told.stdout == "[]\n"
