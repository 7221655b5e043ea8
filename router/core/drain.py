"""Draining: how a worker stops without losing or rejecting anything.

From ``start`` on nothing new is taken: credit is asked back, attaches are refused, links that end
are not attached again. What is here runs to its end. A link is detached, not closed, as soon as
nothing is left on it: a sender's when its credit is back and all its outcomes are told, a
receiver's when nobody sends to it any more. What does not come to its end in time stays unsettled:
its owners find that out when they resume. What is in custody has no other owner: it is lost with
the process, and reported, unless the journal has it.
"""

from typing import Final

from router.core.credit import Granter
from router.core.detach import Detacher
from router.core.lanes import Lanes
from router.core.node import in_custody
from router.core.state import State
from router.core.uplinks import Uplinks
from router.links.link import IncomingLink, Link, OutgoingLink
from router.links.pairing import octets_of

REVIEW_SECONDS: Final = 0.05
"""How often links are looked through while draining; there may be very many, and few at rest."""


class Drainer:
    """Brings a core to rest."""

    def __init__(
        self,
        state: State,
        granter: Granter,
        detacher: Detacher,
        uplinks: Uplinks,
        lanes: Lanes,
    ) -> None:
        self._registry = state.registry
        self._turn = state.turn
        self._alarms = state.alarms
        self._ledger = state.ledger
        self._notices = state.notices
        self._granter = granter
        self._detacher = detacher
        self._uplinks = uplinks
        self._lanes = lanes
        self.is_draining = False

    @property
    def is_drained(self) -> bool:
        """Whether no link is left, and nothing that is still to be told."""
        return (
            self.is_draining
            and self._turn.gate.is_open
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
        self._uplinks.is_draining = True
        for connection in self._registry.parties:
            for link in connection.incoming.values():
                self._granter.withdraw(link)
        self._review()

    def _review(self) -> None:
        """Detaches what has come to rest."""
        while resting := self._find_resting():
            for link in resting:
                assert link.link is not None
                self._uplinks.shut(link.link)
                self._detacher.detach(link, None, closed=False)
        if not self.is_drained:
            self._alarms.set(self._turn.now + REVIEW_SECONDS, self._review)

    def _find_resting(self) -> list[Link]:
        """Gives senders' links, and receivers' once no sender is left to feed them."""
        resting: list[Link] = []
        for connection in self._registry.parties:
            resting += [link for link in connection.incoming.values() if rests(link)]
            resting += [link for link in connection.outgoing.values() if self._starves(link)]
        return resting

    def _starves(self, link: OutgoingLink) -> bool:
        """Tells whether nothing is left on a link and nothing will come."""
        node = self._registry.node_of(link)
        is_fed = node is not None and (node.rotation or node.feeds)
        return not (link.unsettled or link.adrift or link.partial is not None or is_fed)


def rests(link: IncomingLink) -> bool:
    """Tells whether nothing is left on a sender's link, its credit included."""
    busy = link.unsettled or link.queued or link.partial is not None or link.is_draining
    return not busy
