"""Suspended links: the peer is away; terminus and unsettled deliveries are kept (§2.6.13).

A link is suspended when its attachment ends without a close, its terminus outlives that (by the
agreed expiry policy and timeout), and there is something to keep. Its deliveries lose their numbers
and are known by tag (*adrift*):

    incoming   an outcome that arrives meanwhile is kept for the sender; if the sender settles
               first (rcv-settle-mode second), the delivery stays unsettled at its receiver
    outgoing   sent deliveries are neither sent to other receivers nor given up; a delivery in
               parts is kept if all of its parts are here

A link that was attached again without confirmation of that attach (``attaches``) is suspended as it
was before: nothing in the attach has been believed.

A link that is detached without an error does not lose its numbers at once. As long as its session
exists, both ends may still send dispositions for its deliveries (§2.6.4), and those of the peer
apply (§2.7.6). Such a link is *detached*: suspended, and still part of its connection, so that
states and settlement are exchanged as before, but no new delivery. It *parts*, and its deliveries
are adrift, when its session or connection ends, or its peer attaches it again.

When the terminus expires, its deliveries are treated as if the link had been lost at that moment:
those received run to their outcome without a sender, those sent go to the next receiver or have
failed. The exception are routes with exactly-once and without ``in_doubt: resend``: there a
delivery that may have arrived is *held*, listed as in doubt for an operator's decision, and the
link is kept for it without a time limit, unless it leads to a target that drops repeats by id.
"""

from collections.abc import Callable
from functools import partial

import attrs

from router.core.alarms import Alarm
from router.core.credit import Granter
from router.core.node import Node, feed_of
from router.core.settle import Settler
from router.core.state import State
from router.core.stream import Streams
from router.links import life
from router.links.expiry import FOREVER, NEVER_EXPIRES, NOT_KEPT, End, Keeping, seconds_left
from router.links.link import Connection, IncomingLink, Link, OutgoingLink
from router.links.pairing import Pairing
from router.model.identity import ConnectionId
from router.model.terminus import ExpiryPolicy, Source, Target
from router.routes.route import Guarantee, InDoubt


@attrs.define(eq=False)
class _Kept:
    """A suspended link's countdown.

    Attributes:
        connection: the end of this connection starts the countdown, if it has not started.
        session: likewise, the end of this session; None: it has no name.
        keeping: the agreed terms.
        alarm: the expiry.
    """

    connection: ConnectionId | None
    session: int | None
    keeping: Keeping
    alarm: Alarm | None = None


class Suspender:
    """Keeps the links of absent peers until these return or the termini expire."""

    def __init__(self, state: State, settler: Settler, granter: Granter, streams: Streams) -> None:
        self._settings = state.settings
        self._registry = state.registry
        self._turn = state.turn
        self._alarms = state.alarms
        self._notices = state.notices
        self._ledger = state.ledger
        self._settler = settler
        self._granter = granter
        self._streams = streams
        self._kept: dict[Link, _Kept] = {}
        self._mortal: dict[Link, None] = {}

    def suspend(
        self,
        link: Link,
        keeping: Keeping,
        end: End,
        expire: Callable[[Link], None],
        *,
        is_numbered: bool = False,
    ) -> None:
        """Suspends a link that is losing its attachment.

        Args:
            link: still attached, but no command may be ordered for it any more.
            keeping: the agreed terms.
            end: what ends: its attachment, session or connection.
            expire: ends the link; called when its terminus expires.
            is_numbered: its deliveries keep their numbers for now.
        """
        connection = link.connection
        kept = _Kept(None if connection is None else connection.id, link.session, keeping)
        if is_numbered:
            self._registry.set_apart(link)
        else:
            self.leave_budget(link)
            self._registry.suspend(link)
        if isinstance(link, IncomingLink):
            self._stop_sender(link)
        else:
            self._stop_receiver(link)
        if not link.is_detached:
            life.set_adrift(link)
        self._enter(link, kept)
        self._count_down(link, kept, end, expire)
        self._notices.add(
            "link.suspended",
            container=link.key.container,
            link=link.key.name,
            address=link.address,
            count=len(link.adrift) + len(link.unsettled),
        )
        self._bound(expire)

    def _bound(self, expire: Callable[[Link], None]) -> None:
        """Ends the oldest of too many links."""
        if len(self._mortal) > self._settings.suspended_links:
            expire(next(iter(self._mortal)))

    def _enter(self, link: Link, kept: _Kept) -> None:
        """Notes on which terms a link is kept; those that never expire do not count as many.

        They are as many as there are links to containers and chains between sites, and what is
        forgotten of them would be sent twice.
        """
        self._leave(link)
        self._kept[link] = kept
        if kept.keeping.policy is not ExpiryPolicy.NEVER:
            self._mortal[link] = None

    def _leave(self, link: Link) -> None:
        kept = self._kept.pop(link, None)
        self._mortal.pop(link, None)
        if kept is not None:
            self._alarms.cancel(kept.alarm)

    def keep_as(
        self,
        link: Link,
        keeping: Keeping,
        connection: Connection | None,
        expire: Callable[[Link], None],
    ) -> None:
        """Changes the terms on which a suspended link is kept.

        Args:
            link: suspended.
            keeping: for how long.
            connection: the one from which it was detached.
            expire: as with ``suspend``.
        """
        end = End.CONNECTION if connection is None or connection.is_gone else End.LINK
        its_connection = None if connection is None else connection.id
        kept = _Kept(its_connection, link.session, keeping)
        self._enter(link, kept)
        self._count_down(link, kept, end, expire)
        self._bound(expire)

    def part(self, link: Link) -> None:
        """Removes the numbers of a detached link's deliveries: no disposition names them now."""
        if not link.is_detached:
            return
        self.leave_budget(link)
        self._turn.flush_link(link)
        self._turn.gate.recall(link, is_lost=True)
        self._ledger.suspended(link)
        self._registry.part(link)
        life.set_adrift(link)

    def leave_budget(self, link: Link) -> None:
        """Removes a link's payload from the budget of the connection that it leaves."""
        if isinstance(link, IncomingLink) and link.connection is not None:
            link.connection.octets.used -= link.octets
            if link.connection.is_ahead:
                self._turn.review_credits(link.connection.incoming.values())

    def hold(self, link: OutgoingLink) -> None:
        """Keeps an expired link for its deliveries in doubt."""
        self._leave(link)
        self._registry.held[link] = None
        self._notices.add(
            "link.held",
            container=link.key.container,
            link=link.key.name,
            address=link.address,
            count=len(link.adrift),
        )

    def keep(self, link: Link) -> None:
        """Keeps a suspended link without a time limit, until ``restart``."""
        kept = self._kept.get(link)
        if kept is not None:
            self._enter(link, attrs.evolve(kept, keeping=NEVER_EXPIRES, alarm=None))

    def restart(self, link: Link, expire: Callable[[Link], None]) -> None:
        """Starts a suspended link's countdown as if its peer had just been lost."""
        kept = self._kept.get(link)
        if kept is not None:
            kept = attrs.evolve(kept, keeping=agreed(link), alarm=None)
            self._enter(link, kept)
            self._count_down(link, kept, End.CONNECTION, expire)

    def release(self, link: Link) -> None:
        """Forgets a suspended link, which is resumed or expires."""
        self.part(link)
        if isinstance(link, OutgoingLink):
            self._registry.held.pop(link, None)
        self._leave(link)
        self._registry.release(link)

    def settled_holds(self) -> list[OutgoingLink]:
        """Returns links that were kept for deliveries in doubt and have none any more."""
        return [link for link in self._registry.held if not link.adrift]

    def holds_of(self, node: Node) -> list[OutgoingLink]:
        """Returns a node's links that are kept for deliveries in doubt."""
        return [link for link in self._registry.held if self._registry.node_of(link) is node]

    def connection_lost(self, connection: Connection, expire: Callable[[Link], None]) -> None:
        """Parts the connection's detached links and starts their countdown."""
        for link in list(connection.detached.values()):
            self.part(link)
        for link, kept in list(self._kept.items()):
            if kept.connection == connection.id and kept.alarm is None:
                self._count_down(link, kept, End.CONNECTION, expire)

    def session_ended(
        self, connection: Connection, session: int, expire: Callable[[Link], None]
    ) -> None:
        """Does the same for links detached before, or with, the end of their session."""
        for link in [each for each in connection.detached.values() if each.session == session]:
            self.part(link)
        for link, kept in list(self._kept.items()):
            if kept.connection == connection.id and kept.session == session:
                kept.session = None  # another session may get this name from now on
                if kept.alarm is None:
                    self._count_down(link, kept, End.SESSION, expire)

    def _count_down(
        self, link: Link, kept: _Kept, end: End, expire: Callable[[Link], None]
    ) -> None:
        seconds = seconds_left(kept.keeping, end)
        if seconds != FOREVER:
            kept.alarm = self._alarms.set(self._turn.now + seconds, partial(expire, link))

    # What is unsettled

    def _stop_sender(self, link: IncomingLink) -> None:
        link.lose_credit()
        link.skip_octets = 0
        life.keep_absent(link)
        link.discarding = None
        link.is_reducing = False
        self._streams.sender_suspended(link)
        link.holds = 0

    def _stop_receiver(self, link: OutgoingLink) -> None:
        link.lose_credit()
        link.unconfirmed = None
        link.is_reducing = False
        link.resuming.clear()
        self._streams.receiver_suspended(link)
        node = self._registry.leave(link)
        if node is not None:
            link.group = node
            node.returning.add(link)
            self._granter.receivers_changed(node)
            self._turn.touch(node)


def agreed(link: Link) -> Keeping:
    """Returns the agreed terms for our terminus of a link that a peer attached."""
    terminus = link.target if isinstance(link, IncomingLink) else link.source
    if not isinstance(terminus, Source | Target):
        return NOT_KEPT  # the peer answered an attach of ours without it
    return Keeping(terminus.expiry_policy, terminus.expiry_seconds)


def must_hold(pairing: Pairing, link: OutgoingLink) -> bool:
    """Returns whether a delivery that may have arrived must not be sent again automatically.

    Args:
        pairing: the delivery.
        link: it was sent on this. A target that drops repeats by id may be sent it again.
    """
    route = feed_of(pairing).node.route
    if pairing.outcome is not None or route.guarantee is not Guarantee.EXACTLY_ONCE:
        return False
    if route.in_doubt is not None or route.target_id is None:
        return route.in_doubt is not InDoubt.RESEND
    return not (link.is_ours and route.leads_to(link.key.name))
