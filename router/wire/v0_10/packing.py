"""Sessions as octets, for another worker of the same router (``router.wire.memory``).

A session without a channel is a graph of plain objects: what it has taken, completed and sent, what
is unsettled, its queues, subscriptions and open transfers. It goes from process to process as it
is, in Python's own form for that, with two rules of ours: the connection that it was last on stays
behind, and the reader makes nothing but what a session consists of. Both ends are workers of one
router on a socket that its supervisor made, so they run the same program.
"""

import io
import pickle
from typing import Any, Final, cast

from router.errors import DecodeError
from router.wire.v0_10.machine import Machine
from router.wire.v0_10.server_session import ServerSession

_ENGINE: Final = "engine"
"""Stands for the connection."""

_ROOMS: Final = (
    "router.wire.v0_10.",
    "router.wire.staging",
    "router.model.",
    "router.wire.v1_0.",
)
"""Where the classes of a session live."""

_OTHERS: Final = frozenset(
    {("collections", "deque"), ("decimal", "Decimal"), ("uuid", "UUID"), ("uuid", "SafeUUID")}
)
"""What else a session holds."""


_BROKEN: Final = (
    *(pickle.UnpicklingError, AttributeError, EOFError, ImportError),
    *(LookupError, TypeError, ValueError),
)
"""What reading octets ends in that no session was written to."""


class _Writer(pickle.Pickler):
    def persistent_id(self, obj: Any) -> str | None:
        return _ENGINE if isinstance(obj, Machine) else None


class _Reader(pickle.Unpickler):
    def persistent_load(self, pid: Any) -> Any:
        return None  # until the session is attached

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _OTHERS or module.startswith(_ROOMS):
            found = super().find_class(module, name)
            if isinstance(found, type) and found.__module__ == module:
                return found
        raise pickle.UnpicklingError(f"{module}.{name} is no part of a session")


def pack(session: ServerSession, seconds: float) -> bytes:
    """Writes a session that has no channel.

    Args:
        session: what.
        seconds: how long it is to be kept from now on.
    """
    session.publishing.shapes.clear()  # quickly learned again
    into = io.BytesIO()
    _Writer(into, pickle.HIGHEST_PROTOCOL).dump((seconds, session))
    return into.getvalue()


def unpack(octets: bytes) -> tuple[float, ServerSession]:
    """Reads what ``pack`` wrote.

    Raises:
        DecodeError: it is not that.
    """
    try:
        seconds, session = cast("tuple[float, Any]", _Reader(io.BytesIO(octets)).load())
    except _BROKEN as error:
        raise DecodeError(0, f"a session of 0-10: {error}") from error
    if not isinstance(session, ServerSession):
        raise DecodeError(0, "no session of 0-10")
    return seconds, session
