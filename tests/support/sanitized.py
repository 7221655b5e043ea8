"""Compiled modules under the address sanitizer.

``build`` makes one with the sanitizer and ``run`` starts Python with it; in there
``python -m tests.support.sanitized NAME=FILE [NAME=FILE…] -- ARGUMENTS`` hands the arguments to
pytest, with those modules in the place of the usual ones.
"""

import importlib.util
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

_SANITIZER = ("-fsanitize=address,undefined", "-fno-omit-frame-pointer")


def load(name: str, path: str) -> None:
    """Takes a compiled module from a file of one's own."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)


def _done(*command: str, **environment: str) -> str:
    done = subprocess.run(
        command,
        env=os.environ | environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    return done.stdout


def _compiler() -> str:
    return os.environ.get("CC", "cc")


def build(name: str, folder: Path) -> Path:
    """Compiles a module with the sanitizer; gives its file."""
    source = ROOT / (name.replace(".", "/") + ".pyx")
    generated, built = folder / f"{source.stem}.c", folder / f"{source.stem}.so"
    _done(sys.executable, "-m", "cython", "-3", str(source), "-o", str(generated))
    _done(
        *(_compiler(), "-shared", "-fPIC", "-O1", "-g", *_SANITIZER),
        *("-fno-sanitize-recover=undefined", f"-I{sysconfig.get_path('include')}"),
        *(str(generated), "-o", str(built)),
    )
    return built


def run(*arguments: str) -> None:
    """Runs Python with the sanitizer's libraries; fails if it does, or finds a fault."""
    preload = [
        _done(_compiler(), f"-print-file-name={name}").strip()
        for name in ("libasan.so", "libubsan.so")
    ]
    _done(
        *(sys.executable, *arguments),
        LD_PRELOAD=" ".join(preload),
        ASAN_OPTIONS="detect_leaks=0",
        PYTHONMALLOC="malloc",
    )


if __name__ == "__main__":
    split = sys.argv.index("--")
    for each in sys.argv[1:split]:
        load(*each.split("=", 1))
    sys.exit(pytest.main(sys.argv[split + 1 :]))
