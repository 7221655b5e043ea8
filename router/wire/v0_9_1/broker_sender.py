"""A sending link to a broker: publishes with confirms.

Theory of operation. Every delivery is published ``mandatory`` on a channel that confirms, so that
its outcome is known::

    basic.ack                    accepted
    basic.nack                   released: the broker says that it did not accept it
    basic.return, then an ack    rejected, amqp:not-found: no binding matches it
                                 towards a queue: released, and the link ends

A return does not identify the publish. Brokers answer in order, so it is the oldest pending publish
that is equal in exchange and routing key, content header and body. Which of two equal messages was
returned makes no difference. A broker that encodes properties differently returns another header;
then the other parts decide.

A message to a queue by its name is returned when the queue is gone, though it existed when the link
was attached. That ends the link, as if the queue had never existed: nothing more is sent, and when
all deliveries under way have their outcome the link fails. A router holds no queues: a message that
it returns is a single message without receivers.

Credit is the number of publishes that may be unconfirmed (``WINDOW``). While the broker has blocked
the connection or stopped the channel there is none, and deliveries for which the core had credit
wait here.

An error that the broker finds in a message (a header ``CC`` that is no list, an expiration that is
no number, the size) closes the channel and does not identify the publish either. If only one
publish was unconfirmed, it is rejected with the broker's text. If there were more, the next link
publishes as many one by one, so that the faulty one is found and the others are delivered::

    channel.close 406 or 311 after a publish, one unconfirmed     rejected, in the broker's words
                                               several            next time one by one

On a link whose deliveries are all settled nothing is confirmed or mandatory.
"""

from collections import deque
from collections.abc import Sequence
from typing import ClassVar, Final

import attrs

from router.errors import TranslationError
from router.model.commands import AttachLink
from router.model.condition import NOT_FOUND, Condition
from router.model.delivery import OutgoingDelivery
from router.model.events import CreditGranted
from router.model.identity import DeliveryNumber
from router.model.outcome import ACCEPTED, RELEASED, DeliveryState, Rejected
from router.model.terminus import ADDRESSES, SenderSettleMode
from router.wire.exchange_names import is_expressible
from router.wire.v0_9_1 import content as contents
from router.wire.v0_9_1 import methods as m
from router.wire.v0_9_1.broker_channel import NO_NAME, BrokerChannel
from router.wire.v0_9_1.channel import ContentHandlers, End, MethodHandlers
from router.wire.v0_9_1.client_links import ClientLinks
from router.wire.v0_9_1.confirms import Unconfirmed
from router.wire.v0_9_1.framing import METHOD, OVERHEAD_OCTETS
from router.wire.v0_9_1.names import broker_node
from router.wire.v0_9_1.outgoing import Ready, refusal
from router.wire.v0_9_1.passing import pass_on
from router.wire.v0_9_1.reply import Reply, condition_of
from router.wire.v0_9_1.twins import chosen

WINDOW: Final = 2000
"""Publishes that may be unconfirmed: RabbitMQ confirms persistent ones in batches, so a window must
cover those that arrive during one flush of its disk."""

_OBJECTIONS: Final = (Reply.PRECONDITION_FAILED, Reply.CONTENT_TOO_LARGE)
"""Reply codes about a message; others are about the exchange, or the publisher."""

_PUBLISH: Final = (60, 40)
"""Class and method of ``basic.publish``."""

_HEADS_LIMIT: Final = 1024

_EQUAL: Final = 3
"""Likeness of a returned message to a publish that is equal in everything known of both."""

_pass_on = chosen("pass_on", pass_on)


@attrs.define(eq=False)
class Sent:
    """A publish that the broker has not decided.

    Attributes:
        publish: its number among the channel's publishes, from 1.
        number: the core's number; None once it has its outcome, or was settled.
        octets: its content header; the complete content if it was passed on unchanged.
        body_octets: size of its body; None: see the content.
        delivery: the delivery; None: nobody waits for its outcome.
        is_returned: it has been returned.
    """

    publish: int
    number: DeliveryNumber | None
    octets: bytes
    body_octets: int | None
    delivery: OutgoingDelivery | None
    is_returned: bool = False

    def measure(self) -> None:
        """Reads header and size from the content."""
        if self.body_octets is None:
            layout = contents.content_layout(self.octets)
            self.octets = self.octets[layout.route_end : layout.body_start]
            self.body_octets = layout.body_octets


_SURELY_EXPRESSIBLE: Final = 63
"""Characters that fit a short string in any encoding."""


class BrokerSender(BrokerChannel):
    """A sending link to a broker."""

    passes_on: ClassVar[bool] = True
    """Contents may be passed on as three frames, unchanged."""

    ends_with_queue: ClassVar[bool] = True
    """A message returned from a queue is released and ends the link, because the queue is gone."""

    def __init__(self, engine: ClientLinks, number: int, command: AttachLink) -> None:
        super().__init__(engine, number, command)
        self._confirms = command.sender_settle_mode is not SenderSettleMode.SETTLED
        self._unconfirmed: Unconfirmed[Sent] = Unconfirmed()
        self._waiting: deque[tuple[OutgoingDelivery, Ready]] = deque()
        self._is_stopped = False
        self._credit = 0
        self._gone: Condition | None = None  # reason why the link is about to end
        self._heads: dict[str | None, bytes] = {}
        self._singly = engine.suspects.pop(self.address, 0)  # to be published one by one

    def script(self) -> list[tuple[m.Method, type]]:
        """Checks that queue or exchange exist, and requests confirms."""
        node = self.node()
        script: list[tuple[m.Method, type]] = []
        if node is not None and node.queue is not None:
            script.append(self.declare_queue(node.queue))
        elif node is not None and node.exchange:
            script.append(self.declare_exchange(node.exchange))
        elif exchange := self._common_exchange():
            script.append(self.declare_exchange(exchange))
        if self._confirms:
            script.append(self.ask_for_outcomes())
        return script

    def _common_exchange(self) -> str:
        """Returns the exchange of all that is published on a link without an address, if known."""
        addresses = self.command.properties.get(ADDRESSES)
        exchange = broker_node(addresses).exchange if isinstance(addresses, str) else ""
        return "" if exchange in ("*", "#") else exchange

    def ask_for_outcomes(self) -> tuple[m.Method, type]:
        """The request for outcomes of publishes, and the type of its answer."""
        return m.ConfirmSelect(), m.ConfirmSelectOk

    def ready(self) -> None:
        """Reports to the core that the link is attached and has credit."""
        super().ready()
        self.review()

    # --- credit -----------------------------------------------------------------------------------

    @property
    def _may_send(self) -> bool:
        return not (self._is_stopped or self.machine.is_blocked or self._gone is not None)

    @property
    def _capacity(self) -> int:
        if not self._may_send:
            return 0
        return self._window - len(self._unconfirmed.open) - len(self._waiting)

    @property
    def _window(self) -> int:
        return 1 if self._singly else WINDOW

    @property
    def needs_review(self) -> bool:
        """Whether a review would grant more."""
        gain = self._capacity - self._credit
        return gain > 0 and (self._credit <= 0 or 2 * gain >= self._window)

    def review(self) -> None:
        """Grants the core credit as far as there is capacity."""
        if self.is_attached and self.needs_review:
            self._credit = self._capacity
            self.machine.runs.add(CreditGranted(self.link, self._credit))

    def flow(self, active: bool) -> None:
        """Stops or resumes the channel."""
        self._is_stopped = not active
        self.flow_changed()

    def flow_changed(self) -> None:
        """Stops or resumes, by the states of connection and channel."""
        if not self.is_attached:
            return
        if not self._may_send:
            if self._credit > 0:
                self._credit = 0
                self.machine.runs.add(CreditGranted(self.link, 0))
            return
        while self._waiting:
            self._publish(*self._waiting.popleft())
        self.machine.review(self)

    # --- sending ----------------------------------------------------------------------------------

    def send_deliveries(self, deliveries: Sequence[OutgoingDelivery]) -> None:
        """Publishes deliveries; those that may not be sent now wait."""
        may_send = self._may_send and not self._waiting
        self._credit -= len(deliveries)
        if self.address is None:
            deliveries = [
                each
                for each in deliveries
                if len(each.address or "") <= _SURELY_EXPRESSIBLE or self._has_place(each)
            ]
        if may_send and self.passes_on:
            deliveries = deliveries[self._pass_on(deliveries) :]
        for delivery in deliveries:
            try:
                ready = self.machine.outgoing.ready(delivery)
            except TranslationError as error:
                if not delivery.settled:
                    self._report_outcome([delivery.number], refusal(error))
                continue
            if may_send:
                self._publish(delivery, ready)
            else:
                self._waiting.append((delivery, ready))
        if self.needs_review:
            self.machine.review(self)

    def _has_place(self, delivery: OutgoingDelivery) -> bool:
        """Returns whether the protocol can express a delivery's address; else refuses it."""
        if is_expressible(broker_node(delivery.address or "")):
            return True
        if not delivery.settled:
            self._report_outcome([delivery.number], Rejected(NO_NAME))
        return False

    def _pass_on(self, deliveries: Sequence[OutgoingDelivery]) -> int:
        """Publishes contents that need no change; stops at the first other one."""
        outgoing, address, confirms = self.machine.outgoing, self.address, self._confirms
        max_payload_octets = outgoing.frame_max - OVERHEAD_OCTETS
        refused = outgoing.refused_flags
        method = b"" if address is None else self._heads.get(None) or self._head(None)
        frames: list[bytes] = []
        for delivery in deliveries:
            if address is None:
                place = delivery.address
                method = self._heads.get(place) or self._head(place)
            content = delivery.payload
            made = None
            if outgoing.may_pass(delivery):
                made = _pass_on(
                    content, method=method, max_payload_octets=max_payload_octets, refused=refused
                )
            if made is None:
                break
            frames.append(made)
            if confirms:
                self._note(delivery, content, None)
        self.machine.output.append(b"".join(frames))
        return len(frames)

    def _publish(self, delivery: OutgoingDelivery, ready: Ready) -> None:
        address = None if self.address is not None else delivery.address
        head = self._heads.get(address) or self._head(address)
        self.machine.output.append(
            head + self.machine.content_frames(self.number, ready.header, ready.body)
        )
        if self._confirms:
            self._note(delivery, ready.header, len(ready.body))

    def _note(self, delivery: OutgoingDelivery, octets: bytes, body_octets: int | None) -> None:
        """Records a publish until the broker has decided it."""
        unconfirmed = self._unconfirmed
        number = None if delivery.settled else delivery.number
        kept = None if delivery.settled else delivery
        unconfirmed.publish(Sent(unconfirmed.published + 1, number, octets, body_octets, kept))

    def _head(self, address: str | None) -> bytes:
        """Encodes the frame of ``basic.publish`` for an address; None: the link's own."""
        node = self.node() or broker_node(address or "")
        method = m.BasicPublish(
            exchange=node.exchange, routing_key=node.routing_key, mandatory=self._confirms
        )
        head = self.machine.framing.frame(METHOD, self.number, self.machine.codec.encode(method))
        if len(self._heads) >= _HEADS_LIMIT:
            self._heads.clear()
        self._heads[address] = head
        return head

    # --- outcomes ---------------------------------------------------------------------------------

    def take_ack(self, number: int, multiple: bool) -> None:
        """Handles a confirm."""
        self._decide(number, multiple, ACCEPTED)

    def _take_ack(self, method: m.BasicAck) -> None:
        self._decide(method.delivery_tag, method.multiple, ACCEPTED)

    def _take_nack(self, method: m.BasicNack) -> None:
        self._decide(method.delivery_tag, method.multiple, RELEASED)

    def _decide(self, number: int, multiple: bool, state: DeliveryState) -> None:
        decided = self._unconfirmed.decided(number, multiple)
        self._singly = max(self._singly - len(decided), 0)
        self._report_outcome([sent.number for sent in decided if sent.number is not None], state)
        if self._gone is not None and not self._unconfirmed.open:
            self.fail(self._gone)
        else:
            self.machine.review(self)

    def _take_return(self, method: m.BasicReturn, header: bytes, body: bytes) -> None:
        sent = self._find_returned(method, header, body)
        if sent is None or sent.number is None:
            return
        number, sent.number = sent.number, None
        node = self.node() if self.ends_with_queue and self.machine.holds_queues else None
        if node is not None and node.queue is not None:
            self._gone = Condition(NOT_FOUND, f"queue {node.queue!r} is gone")
            self.flow_changed()
            self._report_outcome([number], RELEASED)
        else:
            self._report_outcome([number], self.returned(method))

    def returned(self, method: m.BasicReturn) -> DeliveryState:
        """Returns the outcome of a returned publish."""
        text = f"{method.reply_code} {method.reply_text}"
        return Rejected(Condition(NOT_FOUND, text))

    def _find_returned(self, method: m.BasicReturn, header: bytes, body: bytes) -> Sent | None:
        """Returns the publish that was returned: the oldest equal one, or the most similar one."""
        best: tuple[int, Sent] | None = None
        for sent in self._unconfirmed.open.values():
            if sent.is_returned:
                continue
            likeness = self._likeness(sent, method, header, body)
            if likeness > (best[0] if best is not None else 0):
                best = likeness, sent
                if likeness == _EQUAL:
                    break
        if best is None:
            return None
        best[1].is_returned = True
        return best[1]

    def _likeness(self, sent: Sent, method: m.BasicReturn, header: bytes, body: bytes) -> int:
        """Returns how similar a publish is to a returned message; 0: it is another."""
        sent.measure()
        if sent.body_octets != len(body):
            return 0
        delivery = sent.delivery
        has_header = sent.octets == header
        if delivery is None:  # its body is not kept
            return 1 if has_header else 0
        if self.address is None:
            node = broker_node(delivery.address or "")
            if (node.exchange, node.routing_key) != (method.exchange, method.routing_key):
                return 0
        if self.machine.outgoing.ready(delivery).body != body:
            return 0
        return _EQUAL if has_header else _EQUAL - 1

    def _report_outcome(self, numbers: list[DeliveryNumber], state: DeliveryState) -> None:
        if numbers:
            self.machine.runs.update(self.link, numbers, state, True)

    def ended(self, reason: End | None) -> None:
        """Finds out which message the broker objects to, if it objects to one."""
        if (
            isinstance(reason, m.ChannelClose)
            and reason.reply_code in _OBJECTIONS
            and (reason.class_id, reason.method_id) == _PUBLISH
        ):
            self._blame(reason)
        super().ended(reason)

    def _blame(self, close: m.ChannelClose) -> None:
        suspects = list(self._unconfirmed.open.values())
        if len(suspects) > 1:
            self.machine.suspects[self.address] = len(suspects)
            return
        for sent in suspects:
            if sent.number is not None:
                condition = condition_of(close.reply_code, close.reply_text)
                self._report_outcome([sent.number], Rejected(condition))
                self._unconfirmed.open.clear()

    def give_back(self) -> None:
        """Returns unsent deliveries to the core."""
        waiting = [delivery.number for delivery, _ in self._waiting if not delivery.settled]
        self._waiting.clear()
        if self.is_attached:
            self._report_outcome(waiting, RELEASED)

    handlers: ClassVar[MethodHandlers] = {
        **BrokerChannel.handlers,
        m.BasicAck: _take_ack,
        m.BasicNack: _take_nack,
    }
    content_handlers: ClassVar[ContentHandlers] = {m.BasicReturn: _take_return}
