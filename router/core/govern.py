"""Governing: which standing a connection has, how many an identity may have, and what changes.

A connection that dialed us gets its standing when it opens and keeps it until the policy changes;
then everybody is judged anew. A link that would not be allowed any more is detached with the
reason. Limits of what is attached already stay as they were, but for pace and octet budget.
"""

from collections import Counter
from typing import Final

from router.core.bounds import Bounds
from router.core.detach import Detacher
from router.core.policy import Deed, Policy, Standing
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
"""Characters of a container-id. AMQP sets no bound; each is told in every survey of the router."""


class Governor:
    """Knows the standing of every connection that dialed us."""

    def __init__(self, state: State, detacher: Detacher, reach: Reach, bounds: Bounds) -> None:
        self._settings = state.settings
        self._registry = state.registry
        self._notices = state.notices
        self._detacher = detacher
        self._reach = reach
        self._bounds = bounds
        self._counted: dict[str, None] = {}
        self._of_identity: Counter[str] = Counter()

    def judge(self, connection: ConnectionId, event: ConnectionOpened) -> Condition | None:
        """Returns a connection its standing when it opens.

        Returns:
            Why it may not stay; None: it may.
        """
        length = len(event.container)
        if length > CONTAINER_ID_MOST:
            reason = f"a container-id of {length} characters; {CONTAINER_ID_MOST} are taken"
            self._notices.add("connection.refused", connection=connection, condition=reason)
            return Condition(INVALID_FIELD, reason)
        standing = self._registry.policy.standing(event.user, event.hostname)
        user = standing.user
        present = self._of_identity[user] + self._reach.connections_of(user)
        limit = standing.exceeds("connections", present)
        if limit is not None:
            reason = f"{limit} are open as '{standing.user}'"
            self._notices.add("connection.refused", connection=connection, condition=reason)
            return Condition(RESOURCE_LIMIT_EXCEEDED, reason)
        self._of_identity[user] += 1
        if standing.limits.connections is not None:
            self._counted[user] = None
        self._registry.standings[connection] = standing
        return None

    def admitted(self, connection: Connection, event: ConnectionOpened) -> None:
        """Lays down what holds for a connection that has its standing."""
        vhost = event.hostname or ""
        if vhost in self._registry.table.vhosts:
            connection.vhost = vhost
        self._limit(connection, self._registry.standing(connection))

    def host(self, guest: Connection, hostname: str) -> None:
        """Gives a peer its standing whose link leads here through a sibling."""
        standing = self._registry.policy.standing(guest.user, hostname)
        self._registry.hosted[guest] = standing
        self._limit(guest, standing)

    def left(self, connection: ConnectionId) -> None:
        """Records that a connection has ended."""
        standing = self._registry.standings.pop(connection, None)
        if standing is not None:
            if standing.limits.connections is not None:
                self._counted[standing.user] = None
            self._of_identity[standing.user] -= 1
            if not self._of_identity[standing.user]:
                del self._of_identity[standing.user]

    def take_counts(self) -> list[tuple[str, int]]:
        """Returns identities whose connections are limited and have changed, with their number."""
        counted, self._counted = self._counted, {}
        return [(user, self._of_identity.get(user, 0)) for user in counted]

    def govern(self, policy: Policy) -> None:
        """Puts another policy into force."""
        if policy == self._registry.policy:
            return
        self._registry.policy = policy
        for identifier, standing in list(self._registry.standings.items()):
            connection = self._registry.connections.get(identifier)
            if connection is not None:
                user = connection.user
                now = policy.standing(user, standing.vhost)
                self._registry.standings[identifier] = now
                self._limit(connection, now)
                self._judge_links(connection)
        for guest, standing in list(self._registry.hosted.items()):
            now = policy.standing(guest.user, standing.vhost)
            self._registry.hosted[guest] = now
            self._limit(guest, now)
            self._judge_links(guest)
        self._registry.fed.update(dict.fromkeys(self._registry.nodes.values()))

    def _limit(self, connection: Connection, standing: Standing) -> None:
        limits = standing.limits
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
        deed = Deed.SEND if isinstance(link, IncomingLink) else Deed.RECEIVE
        addresses: list[str] = [] if link.address is None else [link.address]
        if isinstance(link, IncomingLink) and link.address is None:
            addresses = list(link.queues)
        names = (inside(connection.vhost, outside(address)) for address in addresses)
        denials = (self._bounds.denial(connection, deed, name) for name in names)
        return next((denial for denial in denials if denial is not None), None)
