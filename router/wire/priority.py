"""The priority of a message in any protocol's encoding."""

from typing import Final

from router.errors import RouterError
from router.model.capabilities import Protocol
from router.wire import hub
from router.wire.v1_0.sections import peek

DEFAULT_PRIORITY: Final = 4
"""Of a message that names none (§3.2.1)."""


def priority_in(protocol: Protocol, payload: bytes) -> int:
    """Returns the priority of a complete message; an invalid one has the default."""
    try:
        found = peek(hub.translate(payload, protocol, Protocol.AMQP_1_0)).header.priority
    except RouterError:
        return DEFAULT_PRIORITY
    return DEFAULT_PRIORITY if found is None else found
