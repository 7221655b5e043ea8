"""Which compiled parts are at work."""

import importlib
import os
from types import ModuleType
from typing import Final

VARIABLE: Final = "ROUTER_EXPRESS"
"""Environment variable: ``python`` chooses the express lane's pure twin and uses nothing compiled
elsewhere, ``cython`` wants the compiled twin, ``off`` turns the lane off."""


def compiled(name: str) -> ModuleType | None:
    """Gives a compiled module; None if it was not built, or is not wanted."""
    if os.environ.get(VARIABLE) == "python":
        return None
    try:
        return importlib.import_module(name)
    except ImportError:
        return None
