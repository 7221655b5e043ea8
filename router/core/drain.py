"""Draining: how a worker stops without losing or rejecting deliveries.

After ``start`` nothing new is accepted: credit is asked back, attaches are refused, and links that
end are not attached again. Open deliveries run to their outcome. A link is detached, not closed, as
soon as nothing is left on it: a sender's when its credit is returned and all its outcomes are sent,
a receiver's when its node has no senders any more. Deliveries that no attached peer can advance are
not awaited. Deliveries without an outcome in time stay unsettled: their owners learn that when they
resume. A sender that does not answer when its credit is asked back, like clients of qpid-proton, is
waited for while something comes, and ``ANSWER_SECONDS`` more: it has no credit any more, and what
is still under way then stays unsettled with it. Deliveries in custody have no other owner: they are
lost with the process, and reported, unless the journal has them. Links that lead
through to another worker are ended by that worker.

The senders' links of a peer whose protocol has none are kept: what it published afterwards would be
refused. Its connection is closed as soon as nothing is left on any of its links.
"""

from collections.abc import Set
from itertools import chain
from typing import Final

from router.core.credit import Granter
from router.core.detach import Detacher
from router.core.lanes import Lanes
from router.core.node import feed_of, in_custody
from router.core.passage import Passages
from router.core.postponing import Postponer
from router.core.state import State
from router.core.uplinks import Uplinks
from router.links.link import Connection, IncomingLink, Link, OutgoingLink, is_away
from router.links.pairing import Pairing, octets_of
from router.model.commands import CloseConnection
from router.model.condition import CONNECTION_FORCED, Condition
from router.model.identity import ConnectionId
from router.model.terminus import Role

REVIEW_SECONDS: Final = 0.05
"""How often links are looked through while draining; there may be very many, and few at rest."""

ANSWER_SECONDS: Final = 2.0
"""How long nothing has come on a link before its sender's answer to a drain is no longer awaited:
what it had sent before it learned of the drain has come by then."""

SHUTTING_DOWN: Final = Condition(CONNECTION_FORCED, "the router is shutting down")


class Drainer:
    """Brings a core to rest."""

    def __init__(
        self,
        state: State,
        granter: Granter,
        detacher: Detacher,
        uplinks: Uplinks,
        *,
        lanes: Lanes,
        passages: Passages,
        postponer: Postponer,
    ) -> None:
        self._postponer = postponer
        self._registry = state.registry
        self._turn = state.turn
        self._alarms = state.alarms
        self._ledger = state.ledger
        self._notices = state.notices
        self._granter = granter
        self._detacher = detacher
        self._uplinks = uplinks
        self._lanes = lanes
        self._passages = passages
        self.is_draining = False
        self._silent: dict[IncomingLink, tuple[int, float]] = {}
        """Links whose answer is awaited: their deliveries, and since when there are so many."""
        self._closing: set[ConnectionId] = set()

    @property
    def is_drained(self) -> bool:
        """Whether no link and no outstanding outcome is left."""
        return (
            self.is_draining
            and self._turn.gate.is_open
            and not self._passages.count
            and not any(
                connection.incoming or connection.outgoing for connection in self._registry.parties
            )
        )

    def abandon(self) -> None:
        """Reports what is lost now that the process ends; every connection has been closed."""
        for node in self._registry.nodes.values():
            waiting = [each for feed in node.rotation for each in feed.waiting]
            adrift = [
                pairing
                for link in self._registry.absent()
                if isinstance(link, OutgoingLink) and self._registry.node_of(link) is node
                for pairing in link.adrift.values()
            ]
            lost = [each for each in (*waiting, *adrift) if in_custody(each)]
            if lost and not (node.is_exact and self._ledger.is_on):
                self._notices.add(
                    "delivery.abandoned",
                    address=node.key.address,
                    count=len(lost),
                    octets=sum(map(octets_of, lost)),
                )

    def start(self) -> None:
        """Begins; a second time it changes nothing."""
        if self.is_draining:
            return
        self.is_draining = True
        self._lanes.stop("drain")
        self._granter.is_draining = True
        self._uplinks.drain()
        self._passages.drain()
        for connection in self._registry.parties:
            for link in connection.incoming.values():
                self._granter.withdraw(link)
                self._turn.review_credit(link)
        self._review()

    def _review(self) -> None:
        """Detaches what has come to rest."""
        while resting := self._find_resting():
            for link in resting:
                assert link.link is not None
                self._uplinks.shut(link.link)
                self._detacher.detach(link, None, closed=False)
        self._close_resting()
        if not self.is_drained:
            self._alarms.set(self._turn.now + REVIEW_SECONDS, self._review)

    def _find_resting(self) -> list[Link]:
        """Returns senders' links, and receivers' once no sender is left to feed them."""
        resting: list[Link] = []
        kept: set[IncomingLink] = set()
        for connection in self._registry.parties:
            ended = [link for link in connection.incoming.values() if self._has_ended(link)]
            if _is_closed_whole(connection):
                kept.update(ended)
            else:
                resting += ended
        for connection in self._registry.parties:
            links = connection.outgoing.values()
            resting += [link for link in links if self._starves(link, kept)]
        return resting

    def _close_resting(self) -> None:
        """Closes what is closed as a whole and has come to rest."""
        led_through = self._passages.peers()
        for connection in self._registry.connections.values():
            if not _is_closed_whole(connection) or connection.id in self._closing:
                continue
            is_in_use = connection.outgoing or connection.id in led_through
            if not is_in_use and all(map(self._has_ended, connection.incoming.values())):
                self._closing.add(connection.id)
                self._turn.order_connection(connection, CloseConnection(SHUTTING_DOWN))

    def _has_ended(self, link: IncomingLink) -> bool:
        """Returns whether a sender's credit is back, and nothing that it sent can still end."""
        if link.partial is not None or (link.is_draining and self._is_awaited(link)):
            return False
        queues = [queue for queue in (link.queue, *link.queues.values()) if queue is not None]
        waiting = chain.from_iterable(queue.waiting for queue in queues)
        return not any(map(self._can_end, chain(link.unsettled.values(), waiting)))

    def _is_awaited(self, link: IncomingLink) -> bool:
        """Returns whether a sender may still answer that its credit is asked back."""
        count, now = link.tally.deliveries, self._turn.now
        known, since = self._silent.get(link, (-1, now))
        if count != known:
            self._silent[link] = count, now
            return True
        return now - since < ANSWER_SECONDS

    def _starves(self, link: OutgoingLink, ended: Set[IncomingLink]) -> bool:
        """Returns whether nothing that was sent on a link can still end, and nothing will come.

        Args:
            link: to a receiver.
            ended: senders' links that are attached, and on which nothing comes any more.
        """
        node = self._registry.node_of(link)
        is_fed = node is not None and (
            node.rotation
            or any(not is_away(feeding) and feeding not in ended for feeding in node.feeds)
        )
        if is_fed or link.partial is not None:
            return False
        return not any(map(self._can_end, chain(link.unsettled.values(), link.adrift.values())))

    def _can_end(self, pairing: Pairing) -> bool:
        """Returns whether an attached peer can still advance a delivery."""
        if pairing.outcome is not None:
            return not is_away(pairing.incoming)  # the sender is to settle
        attempts = (pairing,) if pairing.fan is None else tuple(pairing.fan.branches)
        links = [attempt.outgoing for attempt in attempts if attempt.outgoing is not None]
        if links:
            return any(not is_away(link) for link in links)
        if pairing.fan is not None or self._postponer.holds(pairing):
            return False  # put off
        node = feed_of(pairing).node
        return bool(node.outgoing) or self._uplinks.is_attaching(node, Role.SENDER)


def _is_closed_whole(connection: Connection) -> bool:
    is_clients = not connection.is_dialed and connection.guest is None
    return is_clients and not connection.capabilities.has_links


def rests(link: IncomingLink) -> bool:
    """Returns whether nothing is left on a sender's link, its credit included."""
    busy = link.unsettled or link.queued or link.partial is not None or link.is_draining
    return not busy
