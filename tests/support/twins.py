"""Which twins of the express lane there are to be tested here."""

from router.errors import MisuseError
from router.wire.v1_0.express import Express, make_express


def _is_built() -> bool:
    try:
        return make_express("cython") is not None
    except MisuseError:
        return False


TWINS = ("python", "cython") if _is_built() else ("python",)
"""Both, wherever the package was built with a compiler, as it is in CI."""

MODES = (*TWINS, "off")
"""All values of ``ROUTER_EXPRESS`` that work here."""


def make_twin(twin: str, **budgets: int) -> Express:
    """Makes a worker's express lane."""
    express = make_express(twin, **budgets)
    assert express is not None
    return express
