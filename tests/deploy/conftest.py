"""The wheel and the source distribution, for all tests that install them."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.installed import build


@pytest.fixture(scope="session")
def distributions() -> Iterator[Path]:
    """A folder with the wheel and the source distribution, built from what git would keep."""
    folder = Path(tempfile.mkdtemp(prefix="installed-"))
    folder.chmod(0o755)
    build(folder)
    yield folder
    shutil.rmtree(folder)
