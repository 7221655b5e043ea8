"""A channel's unacknowledged deliveries.

Theory of operation. A delivery that its sender has not settled is settled with the core when the
client acknowledges it, with the outcome that the client's method means. A settled delivery belongs
to its queue (``queues``): if the client returns it, it is requeued, as long as the queue exists.

In a transaction acknowledgments are gathered until ``commit``; ``rollback`` voids them. On routes
that promise exactly-once a commit is answered when they are on record (``recording``). If a link is
gone with what it would acknowledge, it fails: nobody was told, so its messages come again.
"""

import attrs

from router.model.delivery import OutgoingDelivery
from router.model.identity import DeliveryNumber
from router.model.outcome import ACCEPTED, MODIFIED_FAILED, RELEASED, DeliveryState, Rejected
from router.wire.v0_9_1.client_channel import ClientChannel
from router.wire.v0_9_1.consumers import Consumer
from router.wire.v0_9_1.getting import Getter
from router.wire.v0_9_1.outlets import Outlet
from router.wire.v0_9_1.posts import Commit
from router.wire.v0_9_1.publishing import Publishing
from router.wire.v0_9_1.queues import Queue
from router.wire.v0_9_1.reply import PeerError, Reply
from router.wire.v0_9_1.server_links import ServerLinks


@attrs.define(eq=False)
class Unacked:
    """A delivery that the client has received and not acknowledged.

    Attributes:
        consumer: None for a delivery of ``basic.get``.
        number: the core's number; None if the core has settled the delivery, or its link is gone.
        kept: the delivery, if it belongs to its queue.
        is_lost: its link is gone, and the core has no outcome of it.
    """

    outlet: Outlet
    consumer: Consumer | None
    number: DeliveryNumber | None
    kept: OutgoingDelivery | None = None
    is_lost: bool = False


class Acknowledging:
    """The unacknowledged deliveries of one channel.

    Attributes:
        unacked: by delivery tag, ascending.
    """

    def __init__(self, engine: ServerLinks, channel: ClientChannel, publishing: Publishing) -> None:
        self._engine = engine
        self._channel = channel
        self._publishing = publishing
        self.unacked: dict[int, Unacked] = {}
        self._gathered: list[tuple[dict[int, Unacked], DeliveryState]] = []

    def expect(
        self, tag: int, outlet: Outlet, delivery: OutgoingDelivery, consumer: Consumer | None = None
    ) -> None:
        """Records a delivery that the client is to acknowledge."""
        if delivery.settled:
            if isinstance(outlet.owner, Getter):
                outlet = self._engine.known_queue(outlet.owner.queue).adopt(outlet, delivery)
            self.unacked[tag] = Unacked(outlet, consumer, None, delivery)
        else:
            self.unacked[tag] = Unacked(outlet, consumer, delivery.number)

    def finish_delivery(self, outlet: Outlet, delivery: OutgoingDelivery) -> None:
        """Settles a delivery that the client does not acknowledge (no-ack)."""
        if not delivery.settled:
            self._engine.settle(outlet, [delivery.number], ACCEPTED)
        elif isinstance(outlet.owner, Queue):
            outlet.owner.finish_delivery(delivery)

    def put_back(self, outlet: Outlet, delivery: OutgoingDelivery) -> None:
        """Requeues a delivery that belongs to its queue and was not sent to the client."""
        self._settle_kept([(outlet, delivery)], RELEASED, {})

    def acknowledge(self, tag: int, multiple: bool, state: DeliveryState) -> None:
        """Settles the deliveries that the client names; 0 with ``multiple`` means all."""
        entries = self._take(tag, multiple)
        if self._publishing.transaction is not None:
            self._gathered.append((entries, state))
        else:
            self._settle(entries, state)

    def recover(self) -> None:
        """Requeues all unacknowledged deliveries."""
        entries, self.unacked = self.unacked, {}
        self._settle(entries, MODIFIED_FAILED)

    def commit(self, commit: Commit) -> None:
        """Settles the transaction's acknowledgments, which the commit awaits on record.

        Raises:
            PeerError: some of them cannot be passed on any more.
        """
        exact = [
            entry
            for entries, _ in self._gathered
            for entry in entries.values()
            if entry.outlet.is_exact
        ]
        lost = sum(entry.is_lost for entry in exact)
        if lost:
            text = f"the links of {lost} acknowledged messages are gone; their outcome is unknown"
            raise PeerError(Reply.PRECONDITION_FAILED, text)
        outlets = {id(each.outlet): each.outlet for each in exact if each.number is not None}
        for outlet in outlets.values():
            outlet.unrecorded.add((self._publishing, commit))
        commit.unrecorded = len(outlets)
        gathered, self._gathered = self._gathered, []
        for entries, state in gathered:
            self._settle(entries, state)
        for outlet in outlets.values():
            self._engine.ask_for_record(outlet)

    def roll_back(self) -> None:
        """Voids the transaction's acknowledgments."""
        for entries, _ in self._gathered:
            self.unacked.update(entries)
        self._gathered = []
        self.unacked = dict(sorted(self.unacked.items()))

    def lost(self, outlet: Outlet) -> None:
        """Records that a link is gone, with its unsettled deliveries."""
        for entries in (self.unacked, *(entries for entries, _ in self._gathered)):
            for entry in entries.values():
                if entry.outlet is outlet and entry.number is not None:
                    entry.number, entry.is_lost = None, True

    def ended(self) -> None:
        """Requeues all unacknowledged deliveries; the channel has ended."""
        self.roll_back()
        entries, self.unacked = self.unacked, {}
        self._settle(entries, MODIFIED_FAILED)

    def _take(self, tag: int, multiple: bool) -> dict[int, Unacked]:
        unacked = self.unacked
        if multiple and tag == 0:
            self.unacked = {}
            return unacked
        if tag not in unacked:
            raise PeerError(Reply.PRECONDITION_FAILED, f"unknown delivery tag {tag}")
        if not multiple:
            return {tag: unacked.pop(tag)}
        tags = []
        for each in unacked:
            tags.append(each)
            if each == tag:
                break
        return {each: unacked.pop(each) for each in tags}

    def _settle(self, entries: dict[int, Unacked], state: DeliveryState) -> None:
        """Reports the outcome of deliveries to the core, and frees capacity."""
        engine, window = self._engine, self._channel.window
        queues: dict[int, Queue] = {}
        kept: list[tuple[Outlet, OutgoingDelivery]] = []
        for entry in entries.values():
            consumer = entry.consumer
            if consumer is not None:
                consumer.window.used -= 1
                window.used -= 1
                queues[id(consumer.queue)] = consumer.queue
            if entry.number is not None:
                engine.settle(entry.outlet, [entry.number], state)
            elif entry.kept is not None:
                kept.append((entry.outlet, entry.kept))
        if kept:
            self._settle_kept(kept, state, queues)
        for queue in queues.values():
            if queue.backlog:
                queue.dispatch()
            engine.review(queue)
        if window.limit:
            self._channel.review()  # capacity is shared by all queues

    @staticmethod
    def _settle_kept(
        kept: list[tuple[Outlet, OutgoingDelivery]], state: DeliveryState, queues: dict[int, Queue]
    ) -> None:
        """Forgets deliveries that belong to queues, or requeues them."""
        is_over = state == ACCEPTED or isinstance(state, Rejected)
        back: dict[int, list[tuple[Outlet, OutgoingDelivery]]] = {}
        for outlet, delivery in kept:
            queue = outlet.owner
            if not isinstance(queue, Queue):
                continue  # from a routed queue by basic.get, and enough is kept already
            queues[id(queue)] = queue
            if is_over or queue.is_deleted:
                queue.finish_delivery(delivery)
            else:
                back.setdefault(id(queue), []).append((outlet, delivery))
        for key, entries in back.items():
            queues[key].take_back(entries, state)
