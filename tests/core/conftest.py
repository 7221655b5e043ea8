"""What the machines of the core do is the same with their shortcuts and without."""

import pytest

from router.core import bulk
from tests.support import lives

BOTH_WAYS = {
    "test_ledger",
    "test_outcomes_told",
    "test_recorded",
    "test_resume",
    "test_settle",
    "test_scripted_resume",
}
"""Modules whose tests are run both ways; ``test_bulk`` compares the ways with each other."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if metafunc.module.__name__.rpartition(".")[2] in BOTH_WAYS and metafunc.cls is None:
        metafunc.fixturenames.append("way")
        metafunc.parametrize("way", ["short", "long"], indirect=True)


@pytest.fixture
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    chosen: str = request.param
    if chosen == "long":
        monkeypatch.setattr(bulk, "shortcuts", None)
    elif bulk.shortcuts is None:
        pytest.skip("nothing was compiled")
    return chosen


@pytest.fixture(autouse=True)
def lives_by_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing happens to a delivery that ``router.links.life`` does not list."""
    lives.watch(monkeypatch.setattr)
