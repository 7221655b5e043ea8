"""What tests of commands share: tables are as wide as without a terminal."""

import pytest


@pytest.fixture(autouse=True)
def _without_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
