"""The Cython twin under the address sanitizer: nothing is read or written out of bounds."""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[3] / "router/wire/v1_0/_express.pyx"

SOCKET_TESTS = ("tests/net/test_carrier.py", "tests/net/test_dataplane.py")
"""In which the kernel's carrier receives and sends: run with the sanitizer, too."""


def _run(*command: str, **environment: str) -> str:
    done = subprocess.run(
        command,
        env=os.environ | environment,
        cwd=SOURCE.parents[3],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


@pytest.mark.slow
def test_hostile_conversations_stay_within_bounds(tmp_path: Path) -> None:
    generated = tmp_path / "_express.c"
    built = tmp_path / "_express.so"
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
    _run(
        *(sys.executable, "-m", "tests.support.lane_fuzz", "5000", "5200", str(built)),
        *("-q", "-p", "no:cacheprovider", *SOCKET_TESTS),
        LD_PRELOAD=" ".join(preload),
        ASAN_OPTIONS="detect_leaks=0",
        PYTHONMALLOC="malloc",
    )
