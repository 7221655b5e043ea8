"""How long dynamic nodes live (§3.5.10-13).

A dynamic node never ends before the link that it was made for. Its lifetime-policy applies from
the end of that link on::

    delete-on-close                 it ends with that link; so does a node without a policy
    delete-on-no-links              it ends when no link leads to it or from it
    delete-on-no-messages           it ends when no message is at it
    delete-on-no-links-or-messages  it ends when there is neither

Links to the anonymous terminus lead to no node. Messages are at a node while they wait there or are
unsettled at its receivers; those that wait at other workers are not there yet.
"""

import enum
from collections.abc import Mapping
from typing import Any, Final

from router.core.node import Node
from router.core.reach import is_sibling
from router.links.link import OutgoingLink
from router.wire.v1_0.types import Described, Symbol, Ulong

LIFETIME: Final = Symbol("lifetime-policy")
"""Key of node properties."""

LOOK_SECONDS: Final = 0.25
"""How often a node that waits for its last message is checked: settlement does not visit nodes."""


class Lifetime(enum.Enum):
    """A lifetime-policy: code and name of its type."""

    CLOSE = (0x2B, "amqp:delete-on-close:list")
    NO_LINKS = (0x2C, "amqp:delete-on-no-links:list")
    NO_MESSAGES = (0x2D, "amqp:delete-on-no-messages:list")
    NO_LINKS_OR_MESSAGES = (0x2E, "amqp:delete-on-no-links-or-messages:list")

    @property
    def waits_for_links(self) -> bool:
        """Whether a node lives on while links lead to it."""
        return self in (Lifetime.NO_LINKS, Lifetime.NO_LINKS_OR_MESSAGES)

    @property
    def waits_for_messages(self) -> bool:
        """Whether a node lives on while messages are at it."""
        return self in (Lifetime.NO_MESSAGES, Lifetime.NO_LINKS_OR_MESSAGES)


_BY_DESCRIPTOR: Final[Mapping[object, Lifetime]] = {
    name: each for each in Lifetime for name in each.value
}


def read_lifetime(properties: Mapping[object, object] | None) -> Lifetime:
    """Reads the policy that a peer asks for; an unknown one means the shortest lifetime."""
    asked: Any = None if properties is None else properties.get(LIFETIME)
    descriptor = asked.descriptor if isinstance(asked, Described) else None
    if not isinstance(descriptor, int | str):
        return Lifetime.CLOSE  # the value may be unhashable
    return _BY_DESCRIPTOR.get(descriptor, Lifetime.CLOSE)


def actual_properties(
    asked: Mapping[object, object] | None, lifetime: Lifetime
) -> Mapping[object, object] | None:
    """Returns the properties that a node really has, for a peer that asked for some (§3.5.9)."""
    if asked is None:
        return None
    return {LIFETIME: Described(Ulong(lifetime.value[0]), [])}


def has_links(node: Node, *, elsewhere: bool) -> bool:
    """Returns whether links lead to a node or from it.

    Args:
        node: of this worker.
        elsewhere: other workers have receivers of it.
    """
    return (
        elsewhere
        or any(link.address is not None for link in node.feeds)
        or any(not is_sibling(link.connection) for link in node.outgoing)
        or any(isinstance(each, OutgoingLink) for each in node.returning)
    )


def has_messages(node: Node) -> bool:
    """Returns whether messages are at a node; the lane's counts must have been refreshed."""
    absent = [each for each in node.returning if isinstance(each, OutgoingLink)]
    return (
        bool(node.rotation)
        or any(link.queued or link.lane_unsettled for link in node.feeds)
        or any(
            link.unsettled or link.adrift or link.lane_unsettled
            for link in (*node.outgoing, *absent)
        )
    )
