"""Suspended links: the peer is away, the terminus and all that is unsettled are kept (§2.6.13).

A link is suspended when its attachment ends without a close, its terminus outlives that (by the
expiry that was agreed on), and there is something to keep. Its deliveries lose their numbers and
are known by tag (*adrift*):

    incoming   the outcome that comes meanwhile is remembered for the sender; one that was to be
               settled by the sender in mode second keeps its receiver unsettled
    outgoing   what was sent is neither sent to others nor given up; one in parts is kept if all of
               it is

A link that was attached again and whose peer was not heard on that attachment (``attaches``) is
suspended as it was before: nothing of what the attach said has been believed.

When the terminus expires they are let go as if the link had been lost at that moment: receivers are
settled, deliveries go to the next receiver or have failed. Except where the route says exactly-once
and not ``in_doubt: resend``: there a delivery that may have arrived is *held*, listed as in doubt
for a person to decide, and the link is kept for it without a time.
"""

from collections.abc import Callable
from functools import partial

import attrs

from router.core.alarms import Alarm
from router.core.credit import Granter
from router.core.node import Node
from router.core.settle import Settler
from router.core.state import State
from router.core.stream import Streams
from router.links.expiry import FOREVER, NEVER_EXPIRES, NOT_KEPT, Keeping, seconds_left
from router.links.link import Connection, IncomingLink, Link, OutgoingLink
from router.links.pairing import UNNUMBERED, Pairing
from router.model.identity import ConnectionId
from router.model.terminus import Source, Target
from router.routes.route import Guarantee, InDoubt


@attrs.define(eq=False)
class _Kept:
    """A suspended link's countdown.

    Attributes:
        connection: whose end begins it, if it has not begun.
        keeping: what was agreed on.
        alarm: its end.
    """

    connection: ConnectionId | None
    keeping: Keeping
    alarm: Alarm | None = None


class Suspender:
    """Keeps what absent peers may come back for."""

    def __init__(self, state: State, settler: Settler, granter: Granter, streams: Streams) -> None:
        self._settings = state.settings
        self._registry = state.registry
        self._turn = state.turn
        self._alarms = state.alarms
        self._notices = state.notices
        self._settler = settler
        self._granter = granter
        self._streams = streams
        self._kept: dict[Link, _Kept] = {}

    def suspend(
        self, link: Link, keeping: Keeping, connection_lost: bool, expire: Callable[[Link], None]
    ) -> None:
        """Suspends a link that is losing its attachment.

        Args:
            link: still attached, but nothing may be ordered for it any more.
            keeping: what was agreed on.
            connection_lost: it is losing its connection too.
            expire: lets go of it; called when its time is over.
        """
        connection = link.connection
        self._registry.suspend(link)
        if isinstance(link, IncomingLink):
            self._suspend_sender(link)
        else:
            self._suspend_receiver(link)
        kept = self._kept[link] = _Kept(None if connection is None else connection.id, keeping)
        self._count_down(link, kept, connection_lost, expire)
        self._notices.add(
            "link.suspended",
            container=link.key.container,
            link=link.key.name,
            address=link.address,
            count=len(link.adrift),
        )
        if len(self._kept) > self._settings.suspended_links:
            expire(next(iter(self._kept)))

    def keep_as(
        self,
        link: Link,
        keeping: Keeping,
        connection: Connection | None,
        expire: Callable[[Link], None],
    ) -> None:
        """Keeps a suspended link by other terms from now on.

        Args:
            link: that waits without a time.
            keeping: for how long.
            connection: that it was detached from.
            expire: as with ``suspend``.
        """
        is_lost = connection is None or connection.is_gone
        kept = self._kept[link] = _Kept(None if connection is None else connection.id, keeping)
        self._count_down(link, kept, is_lost, expire)

    def hold(self, link: OutgoingLink) -> None:
        """Keeps a suspended link whose time is over for its deliveries in doubt."""
        kept = self._kept.pop(link, None)
        if kept is not None:
            self._alarms.cancel(kept.alarm)
        self._registry.held[link] = None
        self._notices.add(
            "link.held",
            container=link.key.container,
            link=link.key.name,
            address=link.address,
            count=len(link.adrift),
        )

    def keep(self, link: Link) -> None:
        """Keeps a suspended link without a time, until ``restart``."""
        kept = self._kept.get(link)
        if kept is not None:
            self._alarms.cancel(kept.alarm)
            kept.alarm, kept.keeping = None, NEVER_EXPIRES

    def restart(self, link: Link, expire: Callable[[Link], None]) -> None:
        """Lets the time of a suspended link run as if its peer had just been lost."""
        kept = self._kept.get(link)
        if kept is not None:
            self._alarms.cancel(kept.alarm)
            kept.alarm, kept.keeping = None, agreed(link)
            self._count_down(link, kept, True, expire)

    def release(self, link: Link) -> None:
        """Forgets a suspended link, which comes back or expires."""
        if isinstance(link, OutgoingLink):
            self._registry.held.pop(link, None)
        kept = self._kept.pop(link, None)
        if kept is not None:
            self._alarms.cancel(kept.alarm)
        self._registry.release(link)

    def settled_holds(self) -> list[OutgoingLink]:
        """Gives links that were kept for deliveries in doubt and have none any more."""
        return [link for link in self._registry.held if not link.adrift]

    def holds_of(self, node: Node) -> list[OutgoingLink]:
        """Gives links of a node that are kept for deliveries in doubt."""
        return [link for link in self._registry.held if self._registry.node_of(link) is node]

    def connection_lost(self, connection: Connection, expire: Callable[[Link], None]) -> None:
        """Begins the countdown of links that were detached before their connection ended."""
        for link, kept in list(self._kept.items()):
            if kept.connection == connection.id and kept.alarm is None:
                self._count_down(link, kept, True, expire)

    def _count_down(
        self, link: Link, kept: _Kept, connection_lost: bool, expire: Callable[[Link], None]
    ) -> None:
        seconds = seconds_left(kept.keeping, connection_lost=connection_lost)
        if seconds != FOREVER:
            kept.alarm = self._alarms.set(self._turn.now + seconds, partial(expire, link))

    # What is unsettled

    def _suspend_sender(self, link: IncomingLink) -> None:
        link.credit = link.skip_octets = 0
        link.is_draining = link.is_emptying = False
        take_back_absent(link)
        link.discarding = None
        self._streams.sender_suspended(link)
        for pairing in link.unsettled.values():
            pairing.number = UNNUMBERED
            pairing.is_unusual = True
            link.adrift[pairing.delivery.tag] = pairing
        link.unsettled.clear()
        link.holds = 0

    def _suspend_receiver(self, link: OutgoingLink) -> None:
        link.credit = link.width = 0
        link.is_draining = False
        link.unheard = None
        link.resuming.clear()
        self._streams.receiver_suspended(link)
        for pairing in link.unsettled.values():
            pairing.outgoing_number = UNNUMBERED
            pairing.is_unusual = True
            link.adrift[pairing.outgoing_tag] = pairing
        link.unsettled.clear()
        node = self._registry.leave(link)
        if node is not None:
            link.group = node
            node.returning.add(link)
            self._granter.receivers_changed(node)
            self._turn.touched[node] = None


def take_back_absent(link: IncomingLink) -> None:
    """Ends the wait for a sender to be heard; what its map lacked is adrift like the rest."""
    unheard, link.unheard = link.unheard, None
    if unheard is not None:
        link.adrift.update(unheard.absent)


def agreed(link: Link) -> Keeping:
    """Gives what was agreed on for our terminus of a link that a peer attached."""
    terminus = link.target if isinstance(link, IncomingLink) else link.source
    if not isinstance(terminus, Source | Target):
        return NOT_KEPT  # the peer answered an attach of ours without it
    return Keeping(terminus.expiry_policy, terminus.expiry_seconds)


def must_hold(pairing: Pairing, guarantee: Guarantee, in_doubt: InDoubt | None) -> bool:
    """Tells whether a delivery that may have arrived must not be sent again by itself."""
    return (
        pairing.heard is None
        and guarantee is Guarantee.EXACTLY_ONCE
        and in_doubt is not InDoubt.RESEND
    )
