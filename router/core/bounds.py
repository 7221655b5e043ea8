"""Bounds: which addresses a peer may use, by the policy and by the addresses' owners.

The policy's rules are asked first, for every address and for every pattern, before anything comes
of it. Two kinds of addresses belong to somebody beside that, and nobody else receives from them:

* ``$management`` is the agent's, which answers what is sent there. It is known by its identity;
* a dynamic node (§3.5.10) is its maker's, known by identity and container-id: whichever of its
  connections it uses, at whichever worker (``network`` tells siblings who made which node). Nodes
  that were made to be shared are open to all: 0-9-1's queues that are not exclusive, and those that
  a sender made for itself (a dynamic target), from which others receive.

A rule grants these to others only if one of its patterns spells what they begin with: `#` takes no
requests and no replies that are meant for others, ``$management`` and ``dc1/temp/*`` do.
"""

from typing import Final

from router.core.node import Maker, NodeKey
from router.core.policy import Operation, Permissions
from router.core.reach import Reach, is_sibling
from router.core.registry import Registry
from router.links.link import Connection
from router.model.condition import RESOURCE_LOCKED, UNAUTHORIZED_ACCESS, Condition
from router.routes.match import Pattern, split
from router.routes.table import Match
from router.routes.vhost import inside, outside

MANAGEMENT: Final = "$management"
"""Address of the management node, where there is one."""


class Bounds:
    """Decides which addresses peers may use."""

    def __init__(self, registry: Registry, reach: Reach, router_id: str) -> None:
        self._registry = registry
        self._reach = reach
        self._prefix = f"{router_id}/temp"
        self._prefix_tokens = split(self._prefix)

    def dynamic_address(self, vhost: str, token: str) -> str:
        """Returns the internal address of a dynamic node."""
        return inside(vhost, f"{self._prefix}/{token}")

    def is_dynamic(self, address: str) -> bool:
        """Returns whether an internal address is in the namespace of dynamic nodes."""
        tokens = split(outside(address))
        count = len(self._prefix_tokens)
        return len(tokens) > count and tokens[:count] == self._prefix_tokens

    def is_bygone(self, address: str, match: Match) -> bool:
        """Returns whether an address is that of an ended dynamic node although a route matches it.

        Messages for such a node must not go anywhere else. Only a route whose pattern spells out
        the prefix of such addresses accepts them.
        """
        if not self.is_dynamic(address):
            return False
        spelled = split(outside(match.route.address))[: len(self._prefix_tokens)]
        return spelled != self._prefix_tokens

    def maker_of(self, address: str) -> Maker | None:
        """Returns the maker of a dynamic node, here or at another worker; None: unknown."""
        node = self._registry.nodes.get(NodeKey(address))
        if node is not None and node.owner is not None:
            return node.maker
        return self._reach.makers.get(address)

    def denial(
        self, connection: Connection, operation: Operation, address: str
    ) -> Condition | None:
        """Returns why a peer may not use an address; None: it may.

        Args:
            connection: the peer's.
            operation: the requested operation.
            address: the internal address.
        """
        permissions = self._registry.permissions(connection)
        reason = permissions.denial(operation, outside(address))
        if reason is not None:
            return Condition(UNAUTHORIZED_ACCESS, reason)
        if operation is Operation.SEND or is_sibling(connection):
            return None
        return self._not_theirs(connection, permissions, address)

    def pattern_denial(
        self, connection: Connection, operation: Operation, pattern: Pattern
    ) -> Condition | None:
        """Returns why a peer may use no address of a pattern; None: it may use some.

        Args:
            connection: the peer's.
            operation: the requested operation on the existing addresses of the pattern.
            pattern: as the peer wrote it.
        """
        reason = self._registry.permissions(connection).pattern_denial(operation, pattern)
        return None if reason is None else Condition(UNAUTHORIZED_ACCESS, reason)

    def _not_theirs(
        self, connection: Connection, permissions: Permissions, address: str
    ) -> Condition | None:
        """Returns why only an address's owner may receive from it; None: the peer may."""
        named = outside(address)
        agent = self._registry.policy.agent
        if named == MANAGEMENT and agent is not None:
            if connection.user == agent or permissions.spells(Operation.RECEIVE, named, 1):
                return None
            reason = f"only the router itself receives from '{named}'"
            return Condition(UNAUTHORIZED_ACCESS, reason)
        if not self.is_dynamic(address):
            return None
        maker = self.maker_of(address)
        if maker is None or maker.is_open or maker.is_same(connection):
            return None
        if permissions.spells(Operation.RECEIVE, named, len(self._prefix_tokens)):
            return None
        return Condition(RESOURCE_LOCKED, f"only who made '{named}' receives from it")
