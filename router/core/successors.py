"""The place of a container may turn out to be another container: its links are others (§2.6.1).

Theory of operation. A place is dialed: a host of the container's ``url``, one that a broker names
for itself, or the end of a redirect. Which container answers there is known from its open, by its
container-id: it may be the next of a cluster, or a broker that draws a new id with each start. A
link is one between two containers, so before each attach of an uplink::

    the link kept for it is another container's   --> it is set aside, and waits for its container
    a link was kept, or set aside, for this one   --> it is resumed, with its map
    neither                                       --> a new link begins

No map is offered to a container that is not of its link. What waits for a container that is
replaced goes the way of links whose peers are away (``suspend``)::

    where we send      the container may have the deliveries. Where a route says exactly-once they
                       are in doubt with it, until it is back or a person decides; elsewhere they
                       are sent again, which is a failed attempt
    where we receive   outcomes are kept for ``expiry_seconds``; a sender that brings again what it
                       did not hear settled has no use for them, and its link ends at once

A chain between sites belongs to its egress, by whichever neighbor it leads (``Uplink.roams``).
"""

from typing import Final

from router.core.attach_requests import AttachRequests
from router.core.detach import Detacher
from router.core.link_ledgers import redelivers
from router.core.mesh.names import MESH_USER, router_named
from router.core.node import Node
from router.core.retired import node_of
from router.core.state import State
from router.core.suspend import Suspender
from router.core.uplink import Acquaintance, Uplink
from router.links.expiry import Keeping
from router.links.link import Connection, IncomingLink, Link, LinkKey, OutgoingLink
from router.model.identity import ContainerId
from router.model.terminus import ExpiryPolicy

REMEMBERED_MOST: Final = 16
"""Containers of one place of which an uplink remembers something. A cluster has fewer."""


class Successors:
    """Gives each container of a place its own links."""

    def __init__(
        self,
        state: State,
        detacher: Detacher,
        suspender: Suspender,
        attach_requests: AttachRequests,
    ) -> None:
        self._settings = state.settings
        self._registry = state.registry
        self._turn = state.turn
        self._detacher = detacher
        self._suspender = suspender
        self._attach_requests = attach_requests
        self._remembered: set[LinkKey] = set()

    def remember(self, key: LinkKey) -> None:
        """Records that a link was attached in an earlier life, and what is unsettled is known."""
        self._remembered.add(key)

    def meet(self, uplink: Uplink, connection: Connection) -> None:
        """Has an uplink that is about to be attached resume the link of this container alone."""
        key = key_of(uplink, connection)
        waiting = [*uplink.restored, *(() if uplink.kept is None else (uplink.kept,))]
        uplink.kept = None
        uplink.restored.clear()
        for link in waiting:
            if link.is_gone:
                continue
            if link.key.container == key.container:
                uplink.kept = link
            else:
                self._set_aside(uplink, link)
        uplink.there = self._acquaintance(uplink, key.container)
        if key in self._remembered:
            self._remembered.discard(key)
            uplink.there.was_attached = True
        if uplink.kept is None and self._attach_requests.is_kept(uplink, connection):
            uplink.kept = self._find(uplink.node, key)

    def _acquaintance(self, uplink: Uplink, container: ContainerId) -> Acquaintance:
        known = uplink.acquaintances.pop(container, None) or Acquaintance()
        uplink.acquaintances[container] = known
        if len(uplink.acquaintances) > REMEMBERED_MOST:
            del uplink.acquaintances[next(iter(uplink.acquaintances))]
        return known

    def _find(self, node: Node, key: LinkKey) -> Link | None:
        """Returns the link that waits for a container; None: none does."""
        for link in self._registry.kept(key):
            its_node = node_of(link)
            if link.is_ours and its_node is not None and its_node.key == node.key:
                if isinstance(link, OutgoingLink):
                    link.group = node
                self._suspender.keep(link)
                return link
        return None

    def _set_aside(self, uplink: Uplink, link: Link) -> None:
        """Leaves a link to its container, which is not the one that is there now."""
        known = uplink.acquaintances.get(link.key.container)
        if known is not None:
            known.was_attached = False  # what is unsettled may be forgotten from now on
        if link in self._registry.held:
            return
        if isinstance(link, OutgoingLink):
            uplink.node.returning.discard(link)
            self._turn.touch(uplink.node)
        is_asked_for = isinstance(link, IncomingLink) and not redelivers(link)
        seconds = self._settings.expiry_seconds if is_asked_for else 0
        keeping = Keeping(ExpiryPolicy.CONNECTION_CLOSE, seconds)
        self._suspender.keep_as(link, keeping, link.connection, self._detacher.expire)


def key_of(uplink: Uplink, connection: Connection) -> LinkKey:
    """Returns what identifies the link of an uplink to the container of a connection (§2.6.1)."""
    if uplink.roams:
        site = ContainerId(router_named(uplink.container))
        return LinkKey(MESH_USER, site, uplink.name, uplink.role)
    return LinkKey(connection.user, connection.container, uplink.name, uplink.role)
