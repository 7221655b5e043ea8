"""Which twin of a function serves: the compiled one (``_quick.pyx``) or the one in Python.

The twins give the same for any arguments. ``ROUTER_EXPRESS`` chooses, as for the express lane.
"""

import os
from collections.abc import Callable
from importlib import import_module
from typing import Any, TypeVar

from router.model.compiled import VARIABLE

Twin = TypeVar("Twin", bound=Callable[..., Any])


def chosen(name: str, twin: Twin) -> Twin:
    """Gives the compiled twin of a function, or itself if there is none or it is not wanted."""
    if os.environ.get(VARIABLE) in {"python", "off"}:
        return twin
    try:
        compiled: Twin = getattr(import_module("router.wire.v0_9_1._quick"), name)
    except ImportError:
        return twin
    return compiled
