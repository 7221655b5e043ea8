"""Commands of the router as a user types them, each in a process of its own."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

COMMAND = (sys.executable, "-m", "router")
SECONDS = 120.0
"""How long a command may take that ends by itself."""


def run(
    *arguments: str, folder: Path | None = None, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs a command to its end.

    Args:
        arguments: of ``router``.
        folder: where it runs.
        environment: instead of the variables of this process.
    """
    return subprocess.run(
        [*COMMAND, *arguments],
        cwd=folder,
        env={**(os.environ if environment is None else environment), "PYTHONPATH": str(Path.cwd())},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )


def begin(
    *arguments: str,
    stderr: int = subprocess.PIPE,
    environment: Mapping[str, str] | None = None,
) -> subprocess.Popen[str]:
    """Starts a command whose output is text."""
    return subprocess.Popen(
        [*COMMAND, *arguments],
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        env=environment,
    )


def begin_octets(*arguments: str, stdin: int | None = subprocess.PIPE) -> subprocess.Popen[bytes]:
    """Starts a command whose input and output are octets."""
    return subprocess.Popen(
        [*COMMAND, *arguments], stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


@contextmanager
def begun(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Runs a command for the length of a ``with`` block, at the most."""
    process = begin(*arguments)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()
