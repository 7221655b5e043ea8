"""Completes links of ours when a container has answered: makes new ones, or resumes kept ones."""

import attrs

from router.core.attach_requests import AttachRequests
from router.core.credit import Granter
from router.core.detach import Detacher
from router.core.node import Direction
from router.core.reach import Reach, is_sibling, meet
from router.core.resume import Resumer, knows_nothing
from router.core.settings import container_of
from router.core.state import State
from router.core.stored import is_store
from router.core.successors import key_of
from router.core.uplink import Uplink
from router.links.link import Connection, IncomingLink, Link, OutgoingLink
from router.model.events import LinkAttached
from router.model.terminus import ReceiverSettleMode, Role, SenderSettleMode
from router.routes.pulling import SourceNames


class Joiner:
    """Adds answered links to their nodes."""

    def __init__(
        self,
        state: State,
        granter: Granter,
        detacher: Detacher,
        *,
        reach: Reach,
        resumer: Resumer,
        offers: AttachRequests,
    ) -> None:
        self._settings = state.settings
        self._turn = state.turn
        self._registry = state.registry
        self._orphans = state.orphans
        self._granter = granter
        self._detacher = detacher
        self._reach = reach
        self._resumer = resumer
        self._attach_requests = offers

    def join(self, uplink: Uplink, connection: Connection, event: LinkAttached) -> Link:
        """Returns the link of an answered uplink: the one kept for it, or a new one."""
        link = self._join(uplink, connection, event)
        link.is_ours = True
        return link

    def _join(self, uplink: Uplink, connection: Connection, event: LinkAttached) -> Link:
        kept, uplink.kept = uplink.kept, None
        if kept is not None and kept.is_gone:  # its time was over while our attach was out
            kept = None
        if (
            self._attach_requests.resumes(uplink, connection) is False
        ):  # whatever it answers: it was not asked
            event = attrs.evolve(event, unsettled=None, incomplete_unsettled=False)
        if isinstance(kept, IncomingLink) and knows_nothing(kept, event):
            self._detacher.expire(kept)
            kept = None
        if kept is not None:
            uplink.link = kept
            self._resume(uplink, kept, connection, event)
            return kept
        if uplink.role is Role.SENDER:
            return self._sender(uplink, connection, event)
        return self._receiver(uplink, connection, event)

    def _resume(
        self, uplink: Uplink, link: Link, connection: Connection, event: LinkAttached
    ) -> None:
        """Resumes a link from its state when it was lost."""
        link.link = event.link
        meet(link, connection, event.properties)  # a restored link does not know
        is_incomplete, theirs = event.incomplete_unsettled, event.unsettled
        if isinstance(link, OutgoingLink):
            link.is_resuming = False
            link.keeps = is_store(connection)
            link.target = event.target
            if link.chain is not None:
                self._reach.weigh_way(link)
            self._registry.attach(connection, link)
            link.settles_second = event.receiver_settle_mode is ReceiverSettleMode.SECOND
            self._resumer.receiver_back(link, theirs, is_incomplete=is_incomplete)
        else:
            link.source = event.source
            link.is_pulled = _is_pulled(uplink, connection)
            self._resumer.sender_back(link, theirs, is_incomplete=is_incomplete)
            self._registry.attach(connection, link)
            self._resumer.reducer.begin(link, theirs, is_incomplete=is_incomplete)
            connection.octets.used += link.octets
            self._turn.review_credit(link)

    def _sender(self, uplink: Uplink, connection: Connection, event: LinkAttached) -> OutgoingLink:
        node = uplink.node
        link = OutgoingLink(
            key=key_of(uplink, connection),
            address=uplink.address,
            source=event.source,
            target=event.target,
            connection=connection,
            link=event.link,
            wants_settled=event.sender_settle_mode is SenderSettleMode.SETTLED,
            settles_second=event.receiver_settle_mode is ReceiverSettleMode.SECOND,
            max_message_octets=event.max_message_octets,
            names=uplink.names,
            is_fallback=uplink.is_fallback,
        )
        link.keeps = is_store(connection)
        link.chain = uplink.terms.chain
        meet(link, connection, event.properties)
        if link.chain is not None:
            self._reach.weigh_way(link)
        elif is_sibling(connection):
            self._reach.weigh(link, node.key.address)
        self._registry.attach(connection, link)
        if self._begins_reducing(uplink, link, event):
            link.group = node
            return link
        self._registry.join(node, link)
        self._granter.receivers_changed(node)
        return link

    def _receiver(
        self, uplink: Uplink, connection: Connection, event: LinkAttached
    ) -> IncomingLink:
        node = uplink.node
        second = self._attach_requests.wants_second(uplink, connection)
        takes_back = node.key.direction is Direction.FALLBACK
        key = key_of(uplink, connection)
        link = IncomingLink(
            key=key,
            address=uplink.address,
            source=event.source,
            target=event.target,
            connection=connection,
            link=event.link,
            settles_second=second,
            tag_prefix=self._orphans.prefix(key),
            outcomes=event.source.outcomes if event.source is not None else (),
            link_credit=node.route.link_credit
            or self._attach_requests.of(uplink).link_credit
            or self._settings.link_credit,
            names=SourceNames(node.route) if node.route.pulls_many or takes_back else None,
            scatters=uplink.scatters,
            is_pulled=_is_pulled(uplink, connection),
            takes_back=takes_back,
        )
        meet(link, connection, event.properties)
        self._registry.attach(connection, link)
        self._begins_reducing(uplink, link, event)
        link.queue = self._registry.feed(node, link)
        self._turn.review_credit(link)
        return link

    def _begins_reducing(self, uplink: Uplink, link: Link, event: LinkAttached) -> bool:
        """Returns whether their map, or our last one, was incomplete for a link that is new here.

        Then no new deliveries may pass, whatever has happened to the unsettled ones.
        """
        theirs, is_incomplete = event.unsettled, event.incomplete_unsettled
        return self._resumer.reducer.begin(
            link, theirs, is_incomplete=is_incomplete, is_ours=uplink.is_cut
        )


def _is_pulled(uplink: Uplink, connection: Connection) -> bool:
    """Returns whether a link pulls from its route's source, as ``IncomingLink.is_pulled``."""
    source = uplink.node.route.from_
    is_source = source is not None and container_of(uplink.container) == source.container
    return is_source and not connection.capabilities.traces
