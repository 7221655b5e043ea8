"""Detached links: the treatment of a sender's or receiver's deliveries after a detach (§2.6.4-6).

A link whose peer may resume its deliveries is suspended, see ``suspend``. Any other link is gone.
Then a sender's deliveries still run to their outcome at the receivers, though no sender waits for
it. A receiver's deliveries are offered to the next receiver; the lost one may have acted upon what
it had been sent, so that counts as a failed attempt, and if no receiver is left the sender gets
``modified{delivery-failed}``. Deliveries that were never sent stay queued.
"""

from functools import partial
from typing import Final

from router.core.credit import Granter
from router.core.lanes import Lanes
from router.core.lifetime import LOOK_SECONDS, Lifetime, has_links, has_messages
from router.core.node import Feed, Node, feed_of_link
from router.core.postponing import Postponer
from router.core.reach import Reach, is_sibling
from router.core.settle import Settler
from router.core.state import State
from router.core.stream import Streams
from router.core.suspend import Suspender, agreed, must_hold
from router.links import life
from router.links.expiry import NEVER_EXPIRES, End, Keeping, seconds_left
from router.links.link import Connection, IncomingLink, Link, OutgoingLink, unnumbered
from router.links.pairing import Pairing
from router.model.commands import DetachLink
from router.model.condition import RESOURCE_DELETED, Condition
from router.model.outcome import MODIFIED_FAILED

_DYNAMIC_GONE: Final = Condition(RESOURCE_DELETED, "the dynamic node is gone")


class Detacher:
    """Detaches links and settles or returns their deliveries."""

    def __init__(
        self,
        state: State,
        settler: Settler,
        granter: Granter,
        streams: Streams,
        *,
        lanes: Lanes,
        suspender: Suspender,
        reach: Reach,
        postponer: Postponer,
    ) -> None:
        self._turn = state.turn
        self._alarms = state.alarms
        self._reach = reach
        self._ledger = state.ledger
        self._registry = state.registry
        self._notices = state.notices
        self._orphans = state.orphans
        self._settler = settler
        self._granter = granter
        self._streams = streams
        self._lanes = lanes
        self._suspender = suspender
        self._postponer = postponer

    def detach(
        self,
        link: Link,
        condition: Condition | None,
        *,
        closed: bool = True,
        keeping: Keeping | None = None,
        unsubscribes: bool = False,
    ) -> None:
        """Detaches a link from our side; a suspended one is forgotten.

        Args:
            link: the link.
            condition: the error, if any.
            closed: its terminus ends too.
            keeping: how long its terminus is kept, if other than agreed with the peer.
            unsubscribes: the binding that feeds it ends, too.
        """
        if link.link is None or link.is_detached:
            self.expire(link)
            return
        self._lanes.leave(link)
        unsent = self._take_back(link, is_lost=False)
        self._turn.order(link, DetachLink(link.link, closed, condition, unsubscribes))
        is_whole = not closed and condition is None
        is_numbered = is_whole and link.session is not None and bool(link.unsettled)
        self._lost(
            link,
            unsent,
            closed=closed,
            condition=condition,
            keeping=keeping,
            is_numbered=is_numbered,
        )

    def connection_lost(self, connection: Connection) -> None:
        """Records that a connection has ended with all links attached on it."""
        links: list[Link] = [*connection.incoming.values(), *connection.outgoing.values()]
        for link in links:
            self.lost(link, closed=False, condition=None, end=End.CONNECTION)
        self._suspender.connection_lost(connection, self.expire)

    def session_ended(self, connection: Connection, session: int) -> None:
        """Records that a session has ended whose links are detached."""
        self._suspender.session_ended(connection, session, self.expire)

    def lost(
        self,
        link: Link,
        *,
        closed: bool,
        condition: Condition | None,
        end: End = End.LINK,
        keeping: Keeping | None = None,
        is_numbered: bool = False,
    ) -> None:
        """Records that a link is detached.

        A peer from which nothing has arrived on this attachment may have sent the detach before it
        attached the link again elsewhere: then its terminus has not ended.

        Args:
            link: attached until now.
            closed: its terminus has ended too.
            condition: the peer's error, if any.
            end: what it has lost, if more than its handle.
            keeping: as with ``detach``.
            is_numbered: the peer may still send dispositions for its remaining deliveries (§2.7.6).
        """
        self._lanes.leave(link)
        unsent = self._take_back(link, is_lost=not is_numbered)
        self._lost(
            link,
            unsent,
            closed=closed and link.unconfirmed is None,
            condition=condition,
            end=end,
            keeping=keeping,
            is_numbered=is_numbered,
        )

    def _take_back(self, link: Link, *, is_lost: bool) -> list[Pairing]:
        """Queues deliveries that waited for the journal and were never sent (KnownNotSent).

        Returns:
            Those of multicasts, which are sent to nobody else: they stay on the link.
        """
        unsent: list[Pairing] = []
        for pairing in self._ledger.recall(link, is_lost=is_lost):
            assert isinstance(link, OutgoingLink)
            if pairing.fan is not None:
                unsent.append(pairing)
                continue
            life.forget(link, pairing)
            self._settler.send_again(pairing, link, has_failed=False)
        return unsent

    def _lost(
        self,
        link: Link,
        unsent: list[Pairing],
        *,
        closed: bool,
        condition: Condition | None,
        end: End = End.LINK,
        keeping: Keeping | None = None,
        is_numbered: bool,
    ) -> None:
        self._note(link, condition)
        self._turn.flush_link(link)
        if keeping is None:
            keeping = None if closed else agreed(link)
        if keeping is not None and seconds_left(keeping, end):
            if is_numbered or link.unsettled or unnumbered(link) or self.owns_node(link):
                if is_numbered:  # the lane may have given up more, of which is still to be heard
                    self._turn.mention(link)
                else:
                    self._ledger.suspended(link)
                self._suspender.suspend(link, keeping, end, self.expire, is_numbered=is_numbered)
                return
        for pairing in unsent:
            assert isinstance(link, OutgoingLink)
            self._ledger.sent_again(link, pairing, is_unsent=True)
            life.forget(link, pairing)
            self._settler.release_branch(pairing)
        sent = (*link.unsettled.values(), *link.adrift.values())
        if isinstance(link, OutgoingLink) and any(must_hold(each, link) for each in sent):
            self._ledger.suspended(link)
            self._suspender.suspend(link, NEVER_EXPIRES, end, self.expire)
            self.expire(link)
            return
        self._suspender.leave_budget(link)
        self._registry.detach(link)
        self._gone(link)

    def expire(self, link: Link) -> None:
        """Ends a suspended link that its peer has not resumed in time."""
        self._suspender.part(link)
        if isinstance(link, OutgoingLink):
            if any(must_hold(pairing, link) for pairing in link.adrift.values()):
                self._hold(link)
                return
        self._suspender.release(link)
        self._gone(link)

    def _hold(self, link: OutgoingLink) -> None:
        """Keeps a suspended link for its deliveries in doubt alone."""
        for pairing in list(link.adrift.values()):
            if not must_hold(pairing, link):
                self._lose(link, pairing)
        node = self._registry.node_of(link)
        if node is not None:
            node.returning.discard(link)
            self._turn.touch(node)
            self._turn.leave(node)
        self._suspender.hold(link)

    def part(self, link: Link) -> None:
        """Records that no more dispositions can arrive for a detached link's deliveries."""
        self._suspender.part(link)

    def review_detached(self) -> None:
        """Ends detached links without remaining deliveries."""
        if not self._turn.has_mentioned:
            return
        self._turn.flush()
        for link in self._turn.take_mentioned():
            if link.is_detached and not (link.unsettled or link.adrift or self.owns_node(link)):
                self.expire(link)

    def review_held(self) -> None:
        """Ends links that were kept for deliveries which are no longer in doubt."""
        for link in self._suspender.settled_holds():
            self._suspender.release(link)
            self._gone(link)

    def review_doubts(self, node: Node) -> None:
        """Ends the holding of deliveries in doubt at a node whose new rules do not ask for it."""
        for link in self._suspender.holds_of(node):
            self.expire(link)

    def _gone(self, link: Link) -> None:
        link.is_gone = True
        self._registry.retired.gone(link)
        if isinstance(link, IncomingLink):
            self._sender_gone(link)
        else:
            self._receiver_gone(link)
        self._ledger.gone(link)

    @staticmethod
    def owns_node(link: Link) -> bool:
        """Returns whether a link created a dynamic node that ends with it."""
        if isinstance(link, OutgoingLink):
            return isinstance(link.group, Node) and link.group.owner is link
        return link.queue is not None and feed_of_link(link).node.owner is link

    def _note(self, link: Link, condition: Condition | None) -> None:
        """Logs the link's closing line with its unsettled deliveries, which may be sent again."""
        connection, tally = link.connection, link.tally
        self._notices.add(
            "link.detached",
            connection=None if connection is None else connection.id,
            container=link.key.container,
            link=link.key.name,
            address=link.address,
            condition=None if condition is None else str(condition),
            count=tally.deliveries,
            octets=tally.octets,
            unsettled=len(link.unsettled) + len(unnumbered(link)),
            redelivered=tally.redelivered,
        )

    def _sender_gone(self, link: IncomingLink) -> None:
        link.lose_credit()
        life.keep_absent(link)
        self._streams.sender_lost(link)
        for pairing in self._ledger.abandoned(link):
            self._abandon(link, pairing)
        if link.takes_back:  # the fallback has what it was not settled, and will bring it again
            for pairing in (*link.unsettled.values(), *link.adrift.values()):
                is_here = pairing.outgoing is None and pairing.fan is None
                if is_here and (pairing.parts is None or pairing.parts.is_complete):
                    self._abandon(link, pairing)
        for pairing in (*link.unsettled.values(), *link.adrift.values()):
            if pairing.parts is not None and not pairing.parts.is_complete:
                self._streams.drop(pairing)
            else:
                self._settler.orphan(pairing)
        self._orphans.leave(link, (*link.unsettled.values(), *link.adrift.values()))
        life.clear(link)
        self._postponer.leave(link)
        for feed in self._registry.feeds_of(link):
            self._registry.starve(feed.node, link)
            feed.node.uncredited.pop(link, None)
            self._turn.leave(feed.node)
            self._turn.touch(feed.node)
            self._end_dynamic(feed.node, link)

    def _abandon(self, link: IncomingLink, pairing: Pairing) -> None:
        """Forgets a delivery that was not forwarded and that its sender will send again."""
        life.abandon(pairing)
        self._settler.withdraw(pairing)
        self._settler.free(pairing)

    def _receiver_gone(self, link: OutgoingLink) -> None:
        link.lose_credit()
        link.unconfirmed = None
        node = self._registry.leave(link)
        sink = link.partial
        if sink is not None:
            self._settler.interrupt(link, sink)
            self._settler.try_elsewhere(sink, link, MODIFIED_FAILED, again=True)
        for pairing in (*link.unsettled.values(), *link.adrift.values()):
            self._lose(link, pairing)
        life.clear(link)
        if node is not None:
            node.returning.discard(link)
            self._turn.leave(node)
            self._end_dynamic(node, link)
            self._granter.receivers_changed(node)
            self._turn.touch(node)

    def _lose(self, link: OutgoingLink, pairing: Pairing) -> None:
        """Takes back a sent delivery whose receiver is gone."""
        life.lose(pairing)
        if pairing.outcome is None:
            self._settler.try_elsewhere(pairing, link, MODIFIED_FAILED, again=True)
            life.end_doubt(pairing)

    def _end_dynamic(self, node: Node, link: Link) -> None:
        """Ends a dynamic node with its link, unless its lifetime is longer (§3.5.10-13)."""
        if node.owner is link:
            node.owner = node.lifetime
        self.review_lifetime(node)

    def review_lifetime(self, node: Node) -> None:
        """Ends a dynamic node that has outlived its link when its lifetime policy says so."""
        lifetime = node.owner
        if not isinstance(lifetime, Lifetime):
            return
        self._alarms.cancel(node.look)
        if lifetime.waits_for_links:
            elsewhere = node.key.address in self._reach.receivers
            if has_links(node, elsewhere=elsewhere):
                return
        if lifetime.waits_for_messages:
            if node.is_express:
                self._lanes.refresh((node,))
            if has_messages(node):
                at = self._turn.now + LOOK_SECONDS
                node.look = self._alarms.set(at, partial(self.review_lifetime, node))
                return
        self.end_dynamic(node)

    def end_dynamic(self, node: Node) -> None:
        """Ends a dynamic node and all links to it, except those of other workers.

        Its senders first get the outcomes of their deliveries.
        """
        node.owner = None
        self._registry.moved[node] = None
        for receiver in tuple(node.outgoing):
            if not is_sibling(receiver.connection):
                self.detach(receiver, _DYNAMIC_GONE)
        self._settler.give_up_all(node)
        self.end_senders(node, _DYNAMIC_GONE)

    def end_senders(self, node: Node, reason: Condition) -> None:
        """Detaches the senders of a node that is gone; those to the anonymous terminus stay."""
        for link in tuple(node.feeds):
            if not link.is_relayed:
                self.detach(link, reason)
            else:
                self.close_feed(node, link)
        self._turn.touch(node)
        self._turn.leave(node)

    def close_feed(self, node: Node, link: IncomingLink) -> None:
        """Stops accepting deliveries for an address over a link to the anonymous terminus."""
        for address, queue in tuple(link.queues.items()):
            if isinstance(queue, Feed) and queue.node is node:
                del link.queues[address]
        self._registry.starve(node, link)
