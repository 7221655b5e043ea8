"""Publishes of a client to a shared queue of its own that nobody consumes yet.

Theory of operation. An auto-delete queue with a direct route is *shared*: its consumers, on this
connection or another, receive what is sent to its name. A broker confirms a publish as soon as the
queue has the message, whether or not there is a consumer. So publishes of this connection to such a
queue, while it has no consumers here, are put into the queue at once, without the core, and
confirmed: the queue belongs to this connection, and is deleted with it. As soon as there is a
receiver elsewhere the messages are handed on to the core, unsettled, by a link of the queue's own
(``Offer``); returned ones are requeued. Nothing is kept for a route that promises exactly-once: a
confirmed message must not be lost with a connection.

    nothing kept, or consumers here   no link
    something kept, no consumers      a link; kept messages are sent as far as its credit allows
    consumers, or nothing left        the link is detached when nothing on it is unsettled
"""

from collections.abc import Sequence

from router.model.condition import Condition
from router.model.delivery import OutgoingDelivery, ReceivedDelivery
from router.model.events import LinkDetached
from router.model.identity import DeliveryNumber, DeliveryTag
from router.model.outcome import Accepted, DeliveryState, Modified, Rejected
from router.wire.publishing import Sender
from router.wire.v0_9_1 import content as contents
from router.wire.v0_9_1.channel import Channel
from router.wire.v0_9_1.outlets import Outlet
from router.wire.v0_9_1.posts import Inlet
from router.wire.v0_9_1.queues import Queue
from router.wire.v0_9_1.server_links import ServerLinks


class Offer(Sender[Inlet]):
    """The kept messages of a shared queue, offered to receivers elsewhere.

    Attributes:
        channel: the channel that declared the queue; it is never at fault here.
    """

    def __init__(self, engine: ServerLinks, queue: Queue, channel: Channel) -> None:
        self._engine = engine
        self._queue = queue
        self.channel = channel
        self._inlet: Inlet | None = None
        self._sent: dict[int, tuple[Outlet, OutgoingDelivery]] = {}
        self._count = 0

    # --- the link ---------------------------------------------------------------------------------

    def review(self) -> None:
        """Attaches the link, hands on as far as it has credit, or detaches it."""
        queue, inlet = self._queue, self._inlet
        if inlet is not None:
            self._hand_on(inlet)
        is_wanted = bool(queue.backlog) and not (queue.consumers or queue.is_deleted)
        if inlet is None and is_wanted:
            self._attach()
        elif inlet is not None and not is_wanted and not self._sent:
            self.end()

    def _attach(self) -> None:
        engine, address = self._engine, self._queue.own_address
        inlet = self._inlet = Inlet(engine.next_link(), address, publishing=self)
        self.ask(inlet, f"{self.channel.number}:{inlet.link}")

    def end(self) -> None:
        """Detaches the link."""
        inlet, self._inlet = self._inlet, None
        self._sent.clear()
        if inlet is not None and inlet.link in self._engine.inlets:
            self.forget(inlet)
            self._engine.runs.add(LinkDetached(inlet.link, closed=True))

    @property
    def serving(self) -> ServerLinks:
        """The connection."""
        return self._engine

    def hand_on_by(self, inlet: Inlet) -> None:
        """Hands on kept messages at the end of the turn, with the time of the turn."""
        self._engine.review(self._queue)

    def give_back(self, inlet: Inlet) -> None:
        """Returns credit left over by a drain."""
        self._hand_on(inlet)
        super().give_back(inlet)

    def refused(self, inlet: Inlet, condition: Condition) -> None:
        """Handles the refusal of the link; it is requested again when more is kept."""
        self.forget(inlet)
        self._inlet = None
        sent, self._sent = self._sent, {}
        self._queue.take_back(list(sent.values()), Modified(delivery_failed=True))

    # --- deliveries -------------------------------------------------------------------------------

    def _hand_on(self, inlet: Inlet) -> None:
        """Hands on kept messages as far as the link's credit allows."""
        queue, given = self._queue, []
        queue.backlog.look(self._engine.now)
        while inlet.credit > 0 and not queue.consumers:
            ends_at = queue.backlog.ends_at
            taken = queue.take_next()
            if taken is None:
                break
            inlet.credit -= 1
            self._count += 1
            self._sent[self._count] = taken
            given.append(self._received(taken[1], ends_at))
        if given:
            self._engine.runs.receive_all(inlet.link, given)

    def _received(self, delivery: OutgoingDelivery, ends_at: float) -> ReceivedDelivery:
        payload, left = delivery.payload, None
        if delivery.ttl_milliseconds is not None or contents.ttl_in(payload) is not None:
            left = max(0, int(1000 * (ends_at - self._engine.now)))
            payload = self._engine.outgoing.with_ttl(payload, left)
        return ReceivedDelivery(
            DeliveryNumber(self._count),
            DeliveryTag(self._count.to_bytes(8, "big")),
            payload,
            delivery.protocol,
            delivery_count=delivery.delivery_count or 0,
            ttl_milliseconds=left,
        )

    def decided(self, inlet: Inlet, numbers: Sequence[int], state: DeliveryState | None) -> None:
        """Handles the outcome of deliveries, and settles them."""
        decided = [self._sent.pop(number) for number in numbers if number in self._sent]
        if isinstance(state, Accepted | Rejected):
            for _, delivery in decided:
                self._queue.finish_delivery(delivery)
        else:
            self._queue.take_back(decided, state or Modified(delivery_failed=True))
            self._queue.dispatch()
        self._engine.review(self._queue)
