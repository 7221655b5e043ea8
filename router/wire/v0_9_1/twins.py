"""Which twin of a function serves: the compiled one (``_quick.pyx``) or the one in Python.

The twins give the same for any arguments.
"""

from collections.abc import Callable
from typing import Any, Final, TypeVar

from router.model.compiled import compiled

Twin = TypeVar("Twin", bound=Callable[..., Any])

_QUICK: Final = compiled("router.wire.v0_9_1._quick")


def chosen(name: str, twin: Twin) -> Twin:
    """Returns the compiled twin of a function, or itself if there is none or it is not wanted."""
    found: Twin = twin if _QUICK is None else getattr(_QUICK, name)
    return found
