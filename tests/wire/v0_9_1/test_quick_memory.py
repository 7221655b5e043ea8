"""The compiled twins under the address sanitizer: nothing is read or written out of bounds."""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SOURCE = ROOT / "router/wire/v0_9_1/_quick.pyx"

TESTS = ("test_quick.py", "test_scan.py", "test_passing.py", "test_publishing.py", "test_client.py")
"""Whose octets are random, broken or cut, and what handles them in an engine."""


def _run(*command: str, **environment: str) -> str:
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


@pytest.mark.slow
def test_hostile_contents_stay_within_bounds(tmp_path: Path) -> None:
    generated, built = tmp_path / "_quick.c", tmp_path / "_quick.so"
    _run(sys.executable, "-m", "cython", "-3", str(SOURCE), "-o", str(generated))
    compiler = os.environ.get("CC", "cc")
    _run(
        compiler,
        *("-shared", "-fPIC", "-O1", "-g", "-fsanitize=address,undefined"),
        *("-fno-omit-frame-pointer", "-fno-sanitize-recover=undefined"),
        f"-I{sysconfig.get_path('include')}",
        *(str(generated), "-o", str(built)),
    )
    preload = [
        _run(compiler, f"-print-file-name={name}").strip() for name in ("libasan.so", "libubsan.so")
    ]
    tests = [str(Path(__file__).with_name(name)) for name in TESTS]
    _run(
        *(sys.executable, "-m", "tests.support.quick_tests", str(built)),
        *("-q", "-p", "no:cacheprovider", *tests),
        LD_PRELOAD=" ".join(preload),
        ASAN_OPTIONS="detect_leaks=0",
        PYTHONMALLOC="malloc",
    )
