"""Deliveries in doubt, resolved by an operator.

A delivery is in doubt while the link on which it was sent is suspended, or after it was resumed by
a peer that keeps no state: the peer may have the delivery or not, and no outcome is known. It stays
in doubt until the peer resumes with its state, until the terminus expires, or until an operator who
has checked the other side decides here. The link then forgets the delivery: a later state of the
peer is settled like that of an unknown delivery.
"""

import enum
from collections.abc import Iterator

from router.core.node import Feed, feed_of
from router.core.settle import Settler
from router.core.state import State
from router.core.uplinks import Uplinks
from router.journal.record import Resolution
from router.links import life
from router.links.link import OutgoingLink
from router.links.pairing import Pairing, doubts
from router.links.unsettled import is_whole
from router.model.condition import PRECONDITION_FAILED, Condition
from router.model.delivery import Elder
from router.model.identity import DeliveryTag
from router.model.outcome import ACCEPTED, MODIFIED_FAILED, Outcome, Rejected


class Decision(enum.StrEnum):
    """An operator's decision on a delivery in doubt."""

    RESEND = "resend"
    """It is sent again; it may arrive twice."""
    DISCARD = "discard"
    """It is not sent again; its sender gets the outcome rejected."""
    ACCEPT = "accept"
    """It is not sent again; its sender gets the outcome accepted."""


_RESOLUTIONS = {
    Decision.RESEND: Resolution.SEND_AGAIN,
    Decision.DISCARD: Resolution.REJECT,
    Decision.ACCEPT: Resolution.ACCEPT,
}

DISCARDED = Rejected(
    Condition(PRECONDITION_FAILED, "the delivery was in doubt, and an operator discarded it")
)


class Resolver:
    """Carries decisions out."""

    def __init__(self, state: State, settler: Settler, uplinks: Uplinks) -> None:
        self._registry = state.registry
        self._ledger = state.ledger
        self._notices = state.notices
        self._settler = settler
        self._uplinks = uplinks

    def resolve(self, tag: DeliveryTag, link: str | None, decision: Decision) -> int:
        """Decides about the deliveries in doubt that came with a tag.

        Args:
            tag: as the sender gave it.
            link: name of the link that it came by; None: whichever.
            decision: what becomes of them.

        Returns:
            How many there were.
        """
        found = [
            (outgoing, pairing)
            for outgoing in self._links()
            for pairing in doubts(outgoing)
            if pairing.delivery.tag == tag and link in (None, pairing.incoming.key.name)
        ]
        for outgoing, pairing in found:
            self._decide(outgoing, pairing, decision)
        return len(found)

    def _links(self) -> Iterator[OutgoingLink]:
        """Returns the links that can have deliveries in doubt; attached ones may have some left."""
        for link in self._registry.absent():
            if isinstance(link, OutgoingLink):
                yield link
        for connection in self._registry.parties:
            yield from connection.outgoing.values()

    def _decide(self, link: OutgoingLink, pairing: Pairing, decision: Decision) -> None:
        self._notices.add(
            "delivery.resolved",
            container=link.key.container,
            link=pairing.incoming.key.name,
            tag=pairing.delivery.tag.hex(),
            condition=decision.value,
        )
        self._ledger.resolved(link, pairing, _RESOLUTIONS[decision], by_person=True)
        life.forget(link, pairing)
        if decision is Decision.RESEND:
            self._open(feed_of(pairing))
            if pairing.fan is None and is_whole(pairing):
                self._settler.send_again(pairing, link, has_failed=True, elder=Elder.LOST)
                life.end_doubt(pairing)
            else:
                self._settler.try_elsewhere(pairing, link, MODIFIED_FAILED, again=True)
        elif pairing.is_settled and pairing.fan is None:
            self._settler.free(pairing)
        else:
            outcome: Outcome = ACCEPTED if decision is Decision.ACCEPT else DISCARDED
            self._settler.try_elsewhere(pairing, link, outcome, again=False)

    def _open(self, feed: Feed) -> None:
        """Sees to it that what is sent again finds its way, though its sender may be long gone."""
        feed.node = self._registry.keep(feed.node)
        self._uplinks.used(feed.node)
