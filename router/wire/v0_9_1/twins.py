"""Selection between the compiled twin of a function (``_quick.pyx``) and the one in Python.

Both return the same for all arguments.
"""

from collections.abc import Callable
from typing import Any, Final, TypeVar

from router.model.compiled import compiled

Twin = TypeVar("Twin", bound=Callable[..., Any])

_QUICK: Final = compiled("router.wire.v0_9_1._quick")


def chosen(name: str, twin: Twin) -> Twin:
    """Returns the compiled twin of a function, or ``twin`` if there is none or it is disabled."""
    found: Twin = twin if _QUICK is None else getattr(_QUICK, name)
    return found
