"""Compiled modules are optional: where one was not built, slower Python code does the same."""

import importlib
from types import ModuleType


def compiled(name: str) -> ModuleType | None:
    """Imports a compiled module; None: it was not built."""
    try:
        return importlib.import_module(name)
    except ImportError:
        return None
