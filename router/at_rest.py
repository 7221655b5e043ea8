"""Times at which the cyclic garbage collector would only be in the way.

Imports and the reading of a configuration create very many objects and next to no cycles. The
collector walks them again and again: a quarter of the start of a router, 40 % of the time that a
table of 100,000 routes needs.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def at_rest() -> Iterator[None]:
    """Disables the collector for the length of a ``with`` block."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
