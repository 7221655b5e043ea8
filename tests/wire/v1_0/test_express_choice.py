"""Whether there is an express lane: what the environment asks for, and what was built."""

import sys

import pytest

from router.errors import MisuseError
from router.wire.v1_0.express import describe, is_built, make_express


@pytest.fixture
def not_built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "router.wire.v1_0._express", None)


def test_an_unknown_choice_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROUTER_EXPRESS", "fast")
    with pytest.raises(MisuseError, match="ROUTER_EXPRESS=fast: must be cython or off"):
        make_express()


def test_the_lane_in_python_is_refused_with_what_to_write_instead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ROUTER_EXPRESS", "python")
    with pytest.raises(MisuseError, match=r"is gone; write off .* or cython"):
        make_express()


@pytest.mark.usefixtures("not_built")
def test_the_general_path_serves_alone_where_nothing_was_built(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("ROUTER_EXPRESS", raising=False)
    assert make_express() is None
    assert not is_built()
    assert describe().startswith("none (slower")


@pytest.mark.usefixtures("not_built")
def test_a_lane_that_is_wanted_and_was_not_built_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ROUTER_EXPRESS", "cython")
    with pytest.raises(MisuseError, match="was not built here"):
        make_express()
