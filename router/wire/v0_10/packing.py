"""Sessions as octets, to move them to another worker of the router (``router.wire.memory``).

A session without a channel is a graph of ordinary objects: numbers of commands, replay copies,
unsettled deliveries, queues, subscriptions and open transfers. It is pickled, with two
restrictions: the connection that it was last on is replaced by a marker, and the reader creates
only classes that a session consists of. Both ends are workers of one router on a socket that its
supervisor created, so they run the same program.
"""

import io
import pickle
from typing import Any, Final, cast

from router.errors import DecodeError
from router.wire.v0_10.machine import Machine
from router.wire.v0_10.server_session import ServerSession

_ENGINE: Final = "engine"
"""Marker of the connection."""

_ROOMS: Final = (
    "router.wire.v0_10.",
    "router.wire.exchange_names",
    "router.wire.recording",
    "router.wire.staging",
    "router.model.",
    "router.wire.v1_0.",
)
"""Modules with the classes of a session."""

_OTHERS: Final = frozenset(
    {("collections", "deque"), ("decimal", "Decimal"), ("uuid", "UUID"), ("uuid", "SafeUUID")}
)
"""Other classes in a session."""


_BROKEN: Final = (
    *(pickle.UnpicklingError, AttributeError, EOFError, ImportError),
    *(LookupError, TypeError, ValueError),
)
"""Errors of unpickling octets that are not a session."""


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
    """Encodes a session without a channel.

    Args:
        session: the session.
        seconds: how long it is to be kept from now on.
    """
    session.publishing.shapes.clear()  # soon learned again
    into = io.BytesIO()
    _Writer(into, pickle.HIGHEST_PROTOCOL).dump((seconds, session))
    return into.getvalue()


def unpack(octets: bytes) -> tuple[float, ServerSession]:
    """Decodes the result of ``pack``.

    Raises:
        DecodeError: the octets are invalid.
    """
    try:
        seconds, session = cast("tuple[float, Any]", _Reader(io.BytesIO(octets)).load())
    except _BROKEN as error:
        raise DecodeError(0, f"a session of 0-10: {error}") from error
    if not isinstance(session, ServerSession):
        raise DecodeError(0, "no session of 0-10")
    return seconds, session
