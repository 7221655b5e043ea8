"""Governing: assigns permissions to connections, limits an identity's connections, and applies
changes of the policy.

A connection that dialed us gets its permissions when it opens and keeps them until the policy
changes; then the permissions of all connections are determined again. A link that is no longer
allowed is detached with the reason. Existing links keep their limits, except for rate and octet
budget.
"""

from collections import Counter
from collections.abc import Callable
from typing import Final

from router.core.bounds import Bounds
from router.core.detach import Detacher
from router.core.policy import Operation, Permissions, Policy
from router.core.reach import Reach
from router.core.state import State
from router.links.link import Connection, IncomingLink, Link
from router.links.pace import Pace
from router.model.condition import (
    INVALID_FIELD,
    RESOURCE_LIMIT_EXCEEDED,
    Condition,
)
from router.model.events import ConnectionOpened
from router.model.identity import ConnectionId
from router.routes.vhost import inside, outside

CONTAINER_ID_MOST: Final = 4096
"""Most characters of a container-id. AMQP sets no bound; each is part of every survey."""


class Governor:
    """Keeps the permissions of every connection that dialed us.

    Attributes:
        turn_away: says why nobody is served; None: peers are.
        expected: connections that siblings have admitted and that come here: they are counted there
            until they have come.
    """

    def __init__(self, state: State, detacher: Detacher, reach: Reach, bounds: Bounds) -> None:
        self._settings = state.settings
        self._registry = state.registry
        self._notices = state.notices
        self._detacher = detacher
        self._reach = reach
        self._bounds = bounds
        self._counted: dict[str, None] = {}
        self._of_identity: Counter[str] = Counter()
        self.turn_away: Callable[[ConnectionId], Condition] | None = None
        self.expected: set[ConnectionId] = set()

    def judge(self, connection: ConnectionId, event: ConnectionOpened) -> Condition | None:
        """Determines a connection's permissions when it opens.

        Returns:
            Why the connection is refused; None: it is not.
        """
        if self.turn_away is not None:
            return self.turn_away(connection)
        length = len(event.container)
        if length > CONTAINER_ID_MOST:
            reason = (
                f"the container-id has {length} characters; at most {CONTAINER_ID_MOST} are allowed"
            )
            self._notices.add("connection.refused", connection=connection, condition=reason)
            return Condition(INVALID_FIELD, reason)
        permissions = self._registry.policy.permissions(event.user, event.hostname)
        user = permissions.user
        present = self._of_identity[user] + self._reach.connections_of(user)
        if connection in self.expected:
            self.expected.discard(connection)
            present -= 1
        limit = permissions.exceeds("connections", present)
        if limit is not None:
            reason = f"{limit} are open as '{permissions.user}'"
            self._notices.add("connection.refused", connection=connection, condition=reason)
            return Condition(RESOURCE_LIMIT_EXCEEDED, reason)
        self._of_identity[user] += 1
        if permissions.limits.connections is not None:
            self._counted[user] = None
        self._registry.permissions_by_id[connection] = permissions
        return None

    def turned_away(self, connection: ConnectionId, reason: Condition) -> None:
        """Records that a connection is refused after all."""
        self._notices.add("connection.refused", connection=connection, condition=str(reason))
        self.left(connection)

    def admitted(self, connection: Connection, event: ConnectionOpened) -> None:
        """Applies the permissions of a connection that was admitted."""
        vhost = event.hostname or ""
        if vhost in self._registry.table.vhosts:
            connection.vhost = vhost
        self._limit(connection, self._registry.permissions(connection))

    def host(self, guest: Connection, hostname: str) -> None:
        """Determines the permissions of a peer whose link leads here through a sibling."""
        permissions = self._registry.policy.permissions(guest.user, hostname)
        self._registry.hosted[guest] = permissions
        self._limit(guest, permissions)

    def left(self, connection: ConnectionId) -> None:
        """Records that a connection has ended."""
        self.expected.discard(connection)
        permissions = self._registry.permissions_by_id.pop(connection, None)
        if permissions is not None:
            if permissions.limits.connections is not None:
                self._counted[permissions.user] = None
            self._of_identity[permissions.user] -= 1
            if not self._of_identity[permissions.user]:
                del self._of_identity[permissions.user]

    def take_counts(self) -> list[tuple[str, int]]:
        """Returns the changed numbers of connections of identities with a limit of them."""
        counted, self._counted = self._counted, {}
        return [(user, self._of_identity.get(user, 0)) for user in counted]

    def govern(self, policy: Policy) -> None:
        """Applies another policy."""
        if policy == self._registry.policy:
            return
        self._registry.policy = policy
        for identifier, permissions in list(self._registry.permissions_by_id.items()):
            connection = self._registry.connections.get(identifier)
            if connection is not None:
                user = connection.user
                now = policy.permissions(user, permissions.vhost)
                self._registry.permissions_by_id[identifier] = now
                self._limit(connection, now)
                self._judge_links(connection)
        for guest, permissions in list(self._registry.hosted.items()):
            now = policy.permissions(guest.user, permissions.vhost)
            self._registry.hosted[guest] = now
            self._limit(guest, now)
            self._judge_links(guest)
        self._registry.fed.update(dict.fromkeys(self._registry.nodes.values()))

    def _limit(self, connection: Connection, permissions: Permissions) -> None:
        limits = permissions.limits
        octets = limits.connection_octets or self._settings.connection_octets
        connection.octets.limit = octets
        pace = connection.pace
        if limits.messages_per_second is None:
            connection.pace = None
        elif pace is None or pace.per_second != limits.messages_per_second:
            connection.pace = Pace(limits.messages_per_second)

    def _judge_links(self, connection: Connection) -> None:
        links: list[Link] = [*connection.incoming.values(), *connection.outgoing.values()]
        for link in links:
            reason = self._find_denial(connection, link)
            if reason is not None:
                self._detacher.detach(link, reason)

    def _find_denial(self, connection: Connection, link: Link) -> Condition | None:
        """Returns why a link may not stay; None: it may."""
        operation = Operation.SEND if isinstance(link, IncomingLink) else Operation.RECEIVE
        addresses: list[str] = [] if link.address is None else [link.address]
        if isinstance(link, IncomingLink) and link.address is None:
            addresses = list(link.queues)
        names = (inside(connection.vhost, outside(address)) for address in addresses)
        denials = (self._bounds.denial(connection, operation, name) for name in names)
        return next((denial for denial in denials if denial is not None), None)
