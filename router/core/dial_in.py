"""Containers that dial in: accepted connections that routes lead to, and come from.

A route names such a container like one that the router dials. When a connection of its identity
opens, at whichever worker, that worker owns the container as if it had dialed it; when the last one
ends, the worker to which it was assigned waits for it.

    a connection opens -- nobody is connected as the container       --> it is the container
                          one of the same container-id is, anywhere  --> it takes over: the older
                                                                         one is closed
                          another one is                             --> refused; shared: both are

Connections that share a container are *instances* of it, named ``NAME@CONTAINER-ID``; each has
uplinks of its own, among which the route distributes. Each worker advertises the containers that
have dialed in to it, and under that longer name who they are, so that another worker's connection
of the same container-id can take over.
"""

from collections.abc import Mapping

import attrs

from router.core.network import Network
from router.core.reach import Reach, is_sibling
from router.core.settings import ContainerTerms, container_of, instance_of
from router.core.state import State
from router.core.uplinks import Uplinks
from router.links.link import Connection
from router.model.commands import CloseConnection
from router.model.condition import CONNECTION_FORCED, RESOURCE_LIMIT_EXCEEDED, Condition
from router.model.events import ConnectionOpened
from router.model.identity import ConnectionId

_TAKEN_OVER = Condition(CONNECTION_FORCED, "the container has connected again")


@attrs.define(eq=False)
class DialedIn:
    """What is known of a container that dials in to this worker.

    Attributes:
        since: when its first connection opened, or its last one ended.
        connections: its connections here, by the name of the instance.
        opened: how many have opened here.
        refused: how many were refused because another was connected.
        error: why the last one was refused; None since the container came.
    """

    since: float
    connections: dict[str, ConnectionId] = attrs.field(factory=dict)
    opened: int = 0
    refused: int = 0
    error: Condition | None = None


class DialIns:
    """Knows which accepted connections are configured containers."""

    def __init__(self, state: State, uplinks: Uplinks, network: Network, reach: Reach) -> None:
        self._registry = state.registry
        self._notices = state.notices
        self._uplinks = uplinks
        self._network = network
        self._reach = reach
        self._turn = state.turn
        self._here: dict[str, Connection] = {}
        self.known: dict[str, DialedIn] = {}
        network.on_taken = self._taken

    def find(self, event: ConnectionOpened) -> str | Condition | None:
        """Returns the name under which a connection is a container, or why it is refused.

        None: it is a client like any other. A peer that cannot be asked to attach links is one.
        """
        name = self._name_of(event)
        if name is None:
            return None
        terms = self._registry.terms[name].dials_in
        assert terms is not None
        who = instance_of(name, event.container)
        if terms.is_shared:
            return who
        is_same = who in self._here or who in self._reach.containers
        if is_same or not (name in self._reach.attached or name in self._reach.containers):
            return name
        reason = Condition(
            RESOURCE_LIMIT_EXCEEDED, f"the container '{name}' is connected already, as another"
        )
        known = self.known[name]
        known.refused += 1
        known.error = reason
        return reason

    def _name_of(self, event: ConnectionOpened) -> str | None:
        if not event.capabilities.accepts_links:
            return None
        for name in self._reach.dial_ins:
            wanted = self._registry.terms[name].dials_in
            if wanted is not None and wanted.fits(event.user, event.container):
                return name
        return None

    def came(self, connection: Connection) -> None:
        """Records that a container has dialed in, and has its uplinks attached."""
        instance = connection.configured
        assert instance is not None
        name = container_of(instance)
        who = instance_of(name, connection.container)
        older = self._here.get(who)
        if older is not None:
            self._release(older)
        self._here[who] = connection
        known, instances = self.known[name], self._reach.attached.setdefault(name, {})
        if not instances:
            known.since = self._turn.now
        instances[instance] = None
        known.connections[instance] = connection.id
        known.opened += 1
        known.error = None
        self._notices.add(
            "container.dialed_in",
            connection=connection.id,
            container=name,
            peer=connection.container,
            user=connection.user,
        )
        self._network.advertise_instance(who, is_here=True)
        self._network.container_moved(name)
        self._uplinks.came(connection)

    def left(self, connection: Connection) -> None:
        """Records that a connection has ended, or is the container no longer."""
        instance = connection.configured
        if instance is None or not connection.has_dialed_in:
            return
        self._uplinks.left(connection)
        name = container_of(instance)
        who = instance_of(name, connection.container)
        connection.configured, connection.has_dialed_in = None, False
        if self._here.get(who) is not connection:
            return
        del self._here[who]
        instances = self._reach.attached[name]
        del instances[instance]
        known = self.known.get(name)
        if known is not None:
            known.connections.pop(instance, None)
            known.since = known.since if instances else self._turn.now
        if not instances:
            del self._reach.attached[name]
        self._network.advertise_instance(who, is_here=False)
        self._network.container_moved(name)

    def govern(self, terms: Mapping[str, ContainerTerms]) -> None:
        """Puts other terms into force: connections become containers, or cease to be any."""
        self._registry.terms = terms
        names = dict.fromkeys(name for name, each in terms.items() if each.dials_in is not None)
        self._reach.dial_ins = names
        for name in [name for name in self.known if name not in names]:
            del self.known[name]
        for name in names:
            self.known.setdefault(name, DialedIn(self._turn.now))
        connections = [
            each
            for each in self._registry.connections.values()
            if not (each.is_dialed or is_sibling(each))
        ]
        for connection in connections:
            if connection.configured not in (None, self._fitting(connection)):
                self._uplinks.part(connection)
                self.left(connection)
        for connection in connections:
            if connection.configured is None:
                found = self.find(_opening(connection))
                if isinstance(found, str):
                    connection.configured, connection.has_dialed_in = found, True
                    self.came(connection)

    def _fitting(self, connection: Connection) -> str | None:
        """Returns the name under which a connection would be a container if none were here."""
        name = self._name_of(_opening(connection))
        terms = None if name is None else self._registry.terms[name].dials_in
        if name is None or terms is None:
            return None
        return instance_of(name, connection.container) if terms.is_shared else name

    def _taken(self, who: str) -> None:
        """Handles the news that a container of ours has connected to another worker since."""
        connection = self._here.get(who)
        if connection is not None:
            self._release(connection)

    def _release(self, connection: Connection) -> None:
        """Ends a connection whose container has connected again."""
        self._notices.add(
            "container.taken_over",
            connection=connection.id,
            container=container_of(connection.configured or ""),
            peer=connection.container,
        )
        self._uplinks.part(connection)
        self.left(connection)
        self._turn.order_connection(connection, CloseConnection(_TAKEN_OVER))


def _opening(connection: Connection) -> ConnectionOpened:
    """Returns what a connection was opened with, as far as it tells containers apart."""
    return ConnectionOpened(
        container=connection.container,
        user=connection.user,
        hostname=None,
        capabilities=connection.capabilities,
    )
