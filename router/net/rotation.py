"""Connections that use a replaced certificate: which are to end, and when.

A certificate is replaced because it expires, or because its key is no longer trusted. So the peers
that connected with it have to reconnect, some time after the replacement, and not all at once.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import attrs

from router.model.condition import CONNECTION_FORCED, Condition
from router.net.connection import Connection, Stage
from router.net.tls_files import TlsContext

SPREAD: Final = 0.1
"""Share of ``retire_seconds`` over which connections end, so that not all dial at once."""

_GOLDEN: Final = 0.618033988749895
"""Multiples of it, less their whole part, lie evenly between 0 and 1."""

REPLACED: Final = Condition(CONNECTION_FORCED, "the certificate has been replaced; connect again")


@attrs.frozen(kw_only=True)
class Rotation:
    """How one TLS section of the configuration follows its files.

    Attributes:
        context: that of new connections.
        retire_seconds: how long a connection may go on after its certificate was replaced; None:
            for as long as it likes.
    """

    context: TlsContext
    retire_seconds: float | None


def find_retiring(
    connections: Iterable[Connection], rotations: Mapping[str, Rotation], now: float
) -> list[Connection]:
    """Returns the connections whose time is over.

    Args:
        connections: of the worker.
        rotations: by the name of the listener or, for what was dialed, of the container.
        now: on the clock of the contexts.
    """
    if not any(each.context.has_replaced for each in rotations.values()):
        return []
    return [each for each in connections if _is_over(each, rotations, now)]


def _is_over(connection: Connection, rotations: Mapping[str, Rotation], now: float) -> bool:
    stream = connection.stream
    if connection.stage is not Stage.OPEN or stream is None:
        return False
    rotation = rotations.get(connection.listener or connection.container or "")
    if rotation is None or rotation.retire_seconds is None:
        return False
    replaced_at = rotation.context.replaced_at(stream.context)
    if replaced_at is None:
        return False
    share = connection.id * _GOLDEN % 1.0
    return now >= replaced_at + rotation.retire_seconds * (1.0 + SPREAD * share)
