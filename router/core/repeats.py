"""Repeats of senders that cannot settle second are recognized by the id that messages carry.

Such a sender (a broker that redelivers unconfirmed messages, as new deliveries on another
connection) may lose the answer with its connection unnoticed. So its deliveries are named by the id
of their message, their entries outlive the answer, and a delivery with the same name is a *repeat*:

    its outcome is known                 it gets that, and is not sent again
    released or modified, or never sent  it goes on as a new one: nobody has acted upon it
    under way, on this attachment        it is answered with the first one
    under way, of an earlier attachment  it takes the first one's place

An entry is forgotten when so many further deliveries have come on its attachment that the sender
must have read the answer: it cannot have sent these without credit that was granted behind it. If
the attachment is lost before, this says nothing: the next one has credit of its own, and the sender
may notice the loss, and bring the delivery again, when much else has come on that one. So it is
kept for ``UNREAD_SECONDS`` first, and counted from then on: who knows of the loss sends it before
what is younger.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from router.core.link_ledgers import Entry, IncomingLedger, LinkLedgers, redelivers
from router.core.node import Feed, feed_of
from router.core.turn import Turn
from router.links import life
from router.links.link import IncomingLink
from router.links.pairing import Pairing, octets_of
from router.model.delivery import ReceivedDelivery
from router.model.identity import DeliveryKey, DeliveryNumber, DeliveryTag
from router.model.outcome import RELEASED, Modified, Released

UNREAD_SECONDS: Final = 600.0
"""A peer whose connection was lost in silence notices it sooner: by its heartbeats in three minutes
at most, as long as they are not slower than once a minute."""

UNREAD_MOST: Final = 100_000
"""Of one link; for a sender that connects anew for each message. The oldest are given up first."""


class Repeats:
    """Recognizes repeated deliveries."""

    def __init__(self, ledgers: LinkLedgers, turn: Turn) -> None:
        self._ledgers = ledgers
        self._turn = turn
        self._twins: dict[DeliveryKey, list[DeliveryNumber]] = {}

    def screen(
        self, feed: Feed, deliveries: Sequence[ReceivedDelivery]
    ) -> tuple[list[ReceivedDelivery], list[ReceivedDelivery]]:
        """Names the deliveries of a sender that redelivers; answers repeats.

        Args:
            feed: of a node whose route promises exactly-once.
            deliveries: that have just come.

        Returns:
            Those that the core should take, and those of them that carry no id.
        """
        incoming = feed.incoming
        ledger = self._ledgers.incoming_ledger(incoming)
        if ledger.attachment != incoming.link:
            self._begin_attachment(ledger, incoming)
        route = feed.node.route
        name = "message-id" if route.dedup is None else route.dedup.property
        fresh: list[ReceivedDelivery] = []
        in_run: set[DeliveryKey] = set()
        unnamed: list[ReceivedDelivery] = []
        for delivery in deliveries:
            is_known = delivery.settled or delivery.resume
            found = None if is_known else self._find_id(delivery, name)
            if found is None:
                unnamed.append(delivery)
                fresh.append(delivery)
                continue
            delivery.key = ledger.names.name(found, 0)
            if delivery.key in in_run:
                self._twins.setdefault(delivery.key, []).append(delivery.number)
                continue
            entry = ledger.entries.get(delivery.key)
            if entry is None or not self._repeat(incoming, ledger, entry, delivery):
                in_run.add(delivery.key)
                fresh.append(delivery)
        return fresh, unnamed

    def entered(self, incoming: IncomingLink, ledger: IncomingLedger) -> None:
        """Records that what ``screen`` let pass has its entries, unless it was given back."""
        twins, self._twins = self._twins, {}
        for key, numbers in twins.items():  # repeats that came in the same breath
            entry = ledger.entries.get(key)
            if entry is None:
                self._turn.update(incoming, numbers, RELEASED, True)
            else:
                entry.followers = numbers
        if ledger.answered or ledger.unread:
            self._forget_answered(incoming, ledger)

    def _find_id(self, delivery: ReceivedDelivery, name: str) -> DeliveryTag | None:
        found = self._ledgers.identify(delivery.protocol, delivery.payload, name)
        return None if found is None else DeliveryTag(found)

    def _repeat(
        self,
        incoming: IncomingLink,
        ledger: IncomingLedger,
        entry: Entry,
        delivery: ReceivedDelivery,
    ) -> bool:
        """Handles a repeat; returns whether it need not be sent."""
        number, pairing = delivery.number, entry.pairing
        if entry.outcome and not isinstance(entry.recorded, Released | Modified):
            ledger.numbered[number] = entry
            self._turn.update(incoming, (number,), entry.recorded, True)
        elif pairing is None or not _is_under_way(pairing):
            del ledger.entries[entry.key]  # nobody has acted upon it: it may go as a new one
            return False
        elif incoming.unsettled.get(pairing.number) is pairing:
            entry.followers = entry.followers or []
            entry.followers.append(number)
        else:
            ledger.numbered[number] = entry
            entry.followers = None  # their numbers are others' on this attachment
            self._take_over(incoming, pairing, delivery)
        incoming.tally.deliveries += 1
        return True

    @staticmethod
    def _take_over(incoming: IncomingLink, pairing: Pairing, delivery: ReceivedDelivery) -> None:
        """Continues a delivery under way as the one that has arrived again."""
        before, octets = pairing.incoming, octets_of(pairing)
        for link, change in ((before, -octets), (incoming, octets)):
            link.octets += change
            if link.connection is not None:
                link.connection.octets.used += change
        life.follow(pairing, incoming, delivery.number, delivery.tag)

    def _forget_answered(self, incoming: IncomingLink, ledger: IncomingLedger) -> None:
        """Forgets answered deliveries that cannot come again."""
        answered, unread = ledger.answered, ledger.unread
        while unread and (unread[0][0] <= self._turn.now or len(unread) > UNREAD_MOST):
            _, mark, entry = unread.popleft()
            if entry.answered_at == mark:
                entry.answered_at = ledger.count
                answered.append(entry)
        surely_read = ledger.count - 2 * max(incoming.link_credit, 1)
        forgotten: list[Entry] = []
        while answered and answered[0].answered_at < surely_read:
            entry = answered.popleft()
            if ledger.entries.get(entry.key) is entry:
                forgotten.append(entry)
        self._ledgers.settled_with_sender(ledger, forgotten)

    def _begin_attachment(self, ledger: IncomingLedger, incoming: IncomingLink) -> None:
        """Records that answers which have not been read for certain may be lost."""
        ledger.attachment = incoming.link
        ledger.attachments += 1
        for entry in ledger.answered:
            self._keep_unread(ledger, entry)
        ledger.answered.clear()

    def _keep_unread(self, ledger: IncomingLedger, entry: Entry) -> None:
        entry.answered_at = mark = -1 - ledger.attachments
        ledger.unread.append((self._turn.now + UNREAD_SECONDS, mark, entry))

    # Senders that are gone

    def outcomes_recorded(self, entries: Iterable[Entry]) -> None:
        """Records outcomes, of which some may be for senders that are away."""
        for entry in entries:
            pairing = entry.pairing
            if entry.answered_at < 0 and pairing is not None and pairing.is_settled:
                ledger = self._ledgers.incoming.get(entry.source)
                if ledger is None:
                    continue
                if pairing.incoming.link == ledger.attachment:
                    entry.answered_at = ledger.count
                    ledger.answered.append(entry)
                else:
                    self._keep_unread(ledger, entry)

    def abandoned(self, link: IncomingLink) -> list[Pairing]:
        """Returns what waits unsent of a sender that is gone and will bring it again.

        What was given to a receiver earlier in this turn is not entered as sent yet, and is not
        unsent.
        """
        ledger = self._ledgers.of_incoming.get(link)
        if ledger is None or not redelivers(link):
            return []
        found: list[Entry] = []
        pairings: list[Pairing] = []
        for entry in ledger.entries.values():
            pairing = entry.pairing
            if not entry.waits or pairing is None or entry.sent_on or entry.outcome:
                continue
            if pairing.outgoing is None and pairing.fan is None:
                found.append(entry)
                pairings.append(pairing)
        self._ledgers.settled_with_sender(ledger, found)
        return pairings


def _is_under_way(pairing: Pairing) -> bool:
    """Returns whether a delivery is with a receiver or waits for one."""
    if pairing.outgoing is not None or pairing.fan is not None:
        return True
    return pairing in feed_of(pairing).waiting
