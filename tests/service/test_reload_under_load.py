"""A reload in the middle of traffic: no delivery is lost, none comes out of order."""

from pathlib import Path

import pytest

from tests.bench.workers import ROUTES, file, one_reload
from tests.support.running import running_router


@pytest.mark.parametrize(
    ("routes", "rate", "seconds"),
    [
        pytest.param(200, 5_000, 2.0, id="short"),
        pytest.param(ROUTES, 100_000, 6.0, id="full", marks=pytest.mark.slow),
    ],
)
def test_messages_flow_on_while_routes_are_added(
    tmp_path: Path, routes: int, rate: int, seconds: float
) -> None:
    with running_router(file(2), tmp_path) as router:
        told = one_reload(router, seconds, routes, rate)
    print(told)  # how long nothing came depends on who else uses the machine
    assert told["received"] > 0
    assert (told["skipped"], told["misorders"]) == (0, 0)
