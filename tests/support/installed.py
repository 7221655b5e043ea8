"""The package as people install it: built from a copy of the source, in environments of its own."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import attrs

ROOT: Final = Path(__file__).parents[2]
NOBODY: Final = 65534
DEBIAN_PYTHON: Final = Path("/usr/bin/python3")


@attrs.frozen
class Installation:
    """An environment in which nothing but the router was installed, and who uses it.

    Attributes:
        folder: of the environment, and of the user's home.
        describes: what carries deliveries there, compiled or not.
        user: what makes a command run as its user.
    """

    folder: Path
    describes: str
    user: tuple[str, ...]

    def popen(self, *command: str) -> "subprocess.Popen[str]":
        """Starts a program of the environment as a user would, far from the source."""
        program, *words = command
        return subprocess.Popen(
            [*self.user, str(self.folder / "env/bin" / program), *words],
            cwd=self.folder / "home",
            env={"PATH": f"{self.folder}/env/bin:/usr/bin:/bin", "HOME": str(self.folder / "home")},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, *command: str, seconds: float = 120.0) -> str:
        """Runs a program of the environment to its end; returns what it printed."""
        process = self.popen(*command)
        said, _ = process.communicate(timeout=seconds)
        assert process.returncode == 0, f"{command}: {said}"
        return said


def as_nobody() -> list[str]:
    """Returns what makes a command run as a user who is not root."""
    if os.getuid() != 0:
        return []
    return ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]


def python() -> Path:
    """Returns an interpreter that the user can read: root's own may lie in root's home."""
    return DEBIAN_PYTHON if os.getuid() == 0 else Path(sys.executable)


def find_python(version: str) -> Path | None:
    """Returns an interpreter of a version, of the system or of pyenv; None: there is none."""
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    known = shutil.which(f"python{version}")
    found = [Path(known)] if known else []
    for each in [*found, *sorted(root.glob(f"versions/{version}.*/bin/python"))]:
        done = subprocess.run([each, "-c", "import venv"], capture_output=True, check=False)
        if done.returncode == 0:
            return each
    return None


def do(*command: str | Path, cwd: Path, **environment: str) -> None:
    """Runs a command that must succeed."""
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{command}: {done.stdout[-1000:]}{done.stderr[-2000:]}"


def build(folder: Path) -> None:
    """Builds the wheel and the source distribution in a folder, from what git would keep."""
    ignored = shutil.ignore_patterns("*.so", "_*.c", "__pycache__")
    for name in ("router", "pyspark_amqp", "share"):
        shutil.copytree(ROOT / name, folder / "source" / name, ignore=ignored)
    for name in ("setup.py", "pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, folder / "source")
    pip = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")
    do(*pip, "wheel", "--no-deps", "--wheel-dir", folder, ".", cwd=folder / "source")
    do(sys.executable, "setup.py", "-q", "sdist", "-d", folder, cwd=folder / "source")


def install(
    distributions: Path,
    kind: str,
    lock: str = "requirements.lock",
    interpreter: Path | None = None,
    **environment: str,
) -> Installation:
    """Installs a wheel or an sdist of a folder in an environment of its own.

    Args:
        distributions: the folder of both.
        kind: wheel or sdist.
        lock: what is installed before it.
        interpreter: of the environment; default: ``python()``. Another may lie where only its
            owner reads it, so then its owner is the user.
        environment: variables of the installation.
    """
    folder = distributions / Path(lock).stem / kind / (interpreter or python()).parents[1].name
    (folder / "home").mkdir(parents=True)
    (made,) = distributions.glob("*.whl" if kind == "wheel" else "*.tar.gz")
    do(interpreter or python(), "-m", "venv", folder / "env", cwd=folder)
    pip = folder / "env/bin/pip"
    locked = ("--require-hashes", "--requirement", ROOT / lock)
    do(pip, "install", "--quiet", "--disable-pip-version-check", *locked, cwd=folder)
    arguments = ("install", "--quiet", "--disable-pip-version-check", "--no-deps", made)
    do(pip, *arguments, cwd=folder, **environment)
    user = () if interpreter else tuple(as_nobody())
    if user:
        os.chown(folder / "home", NOBODY, NOBODY)
    described = subprocess.run(
        [
            folder / "env/bin/python",
            "-c",
            "from router.wire.v1_0 import express as e; print(e.describe())",
        ],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    return Installation(folder, described.stdout.strip(), user)
