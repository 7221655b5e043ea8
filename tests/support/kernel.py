"""Whether there is an express lane to be tested here, and what can be compared with it."""

import pytest

from router.wire.v1_0.express import Express, is_built, make_express

IS_BUILT = is_built()
"""Wherever the package was built with a compiler, as it is in CI."""

needs_kernel = pytest.mark.skipif(not IS_BUILT, reason="the express lane was not built")

MODES = ("cython", "off") if IS_BUILT else ("off",)
"""All values of ``ROUTER_EXPRESS`` that work here."""


def make_kernel(**budgets: int) -> Express:
    """Makes a worker's express lane."""
    express = make_express("cython", **budgets)
    assert express is not None
    return express
