"""The package builds with a compiler or without, with Cython or without."""

import importlib
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
COMPILED = sorted(ROOT.glob("router/**/*.pyx"))


@pytest.mark.skipif(os.environ.get("CI") != "true", reason="a compiler may be missing")
@pytest.mark.parametrize("room", COMPILED, ids=lambda room: room.stem)
def test_all_that_can_be_compiled_is_tried_in_ci(room: Path) -> None:
    """Else the tests of what is compiled would leave themselves out, and nobody would see."""
    name = ".".join(room.relative_to(ROOT).with_suffix("").parts)
    assert str(importlib.import_module(name).__file__).endswith(".so")


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The content of a source distribution."""
    copy = tmp_path_factory.mktemp("tree") / "router"
    ignored = shutil.ignore_patterns("*.so", "*.c", "__pycache__")
    shutil.copytree(ROOT / "router", copy / "router", ignore=ignored)
    for name in ("setup.py", "pyproject.toml"):
        shutil.copy(ROOT / name, copy)
    (copy / "README.md").write_text("")
    _set_up(copy, "sdist")
    (made,) = (copy / "dist").iterdir()
    with tarfile.open(made) as archive:
        archive.extractall(copy, filter="data")
    return copy / made.name.removesuffix(".tar.gz")


def _set_up(directory: Path, command: str, **environment: str) -> None:
    done = subprocess.run(
        [sys.executable, "setup.py", "-q", command],
        cwd=directory,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]


def _wheel(source: Path, tmp_path: Path, *, has_c: bool = True, **environment: str) -> list[str]:
    copy = tmp_path / "source"
    shutil.copytree(source, copy)
    if not has_c:
        for file in copy.glob("router/**/_*.c"):
            file.unlink()
    _set_up(copy, "bdist_wheel", **environment)
    (made,) = (copy / "dist").iterdir()
    with zipfile.ZipFile(made) as archive:
        return [Path(name).name for name in archive.namelist()]


@pytest.fixture
def without_cython(tmp_path: Path) -> str:
    hidden = tmp_path / "hidden/Cython"
    hidden.mkdir(parents=True)
    (hidden / "__init__.py").write_text("raise ImportError\n")
    return str(hidden.parent)


@pytest.mark.slow
def test_the_generated_c_is_in_the_source_distribution(source: Path) -> None:
    assert len(COMPILED) > 1
    assert all((source / file.relative_to(ROOT).with_suffix(".c")).exists() for file in COMPILED)


@pytest.mark.slow
def test_all_that_the_kernel_includes_is_in_the_source_distribution(source: Path) -> None:
    rooms = {file.name for file in (ROOT / "router/wire/v1_0/kernel").glob("*.pxi")}
    assert rooms
    assert {file.name for file in (source / "router/wire/v1_0/kernel").iterdir()} == rooms


@pytest.mark.slow
def test_a_compiler_is_enough(source: Path, tmp_path: Path, without_cython: str) -> None:
    names = _wheel(source, tmp_path, PYTHONPATH=without_cython)
    assert sum(name.endswith(".so") for name in names) == len(COMPILED)
    assert not any(name.endswith(".c") for name in names)


@pytest.mark.slow
def test_a_compiler_that_fails_leaves_what_is_python(source: Path, tmp_path: Path) -> None:
    names = _wheel(source, tmp_path, CC="false")
    assert "express.py" in names
    assert not any(name.endswith(".so") for name in names)


@pytest.mark.slow
def test_nothing_at_all_leaves_what_is_python(
    source: Path, tmp_path: Path, without_cython: str
) -> None:
    names = _wheel(source, tmp_path, has_c=False, PYTHONPATH=without_cython)
    assert "express.py" in names
    assert not any(name.endswith(".so") for name in names)
