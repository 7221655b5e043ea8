"""A receiving link from a broker: a consumer with manual acknowledgment.

Theory of operation. 0-9-1 has no credit but a prefetch: how many deliveries may be unacknowledged.
The consumer is started with the first credit, which becomes its prefetch, per consumer (not per
channel: quorum queues refuse that). The broker sends more after acknowledgments before the core
grants anew, so it may exceed the credit within the prefetch; such deliveries are *held* here until
credit is granted. When more than twice the prefetch is granted, the consumer is cancelled and
started again with more; likewise when half of the prefetch is taken by deliveries that the core
keeps unsettled for long (``GrantCredit.beside``).

States of the consumer, by what the core requests::

    IDLE       credit               -> STARTING   qos, consume
    STARTING   consume-ok           -> ACTIVE
    ACTIVE     no credit, drain,
               twice the prefetch   -> STOPPING   cancel
    STOPPING   cancel-ok            -> IDLE
    IDLE       drain with credit    -> GETTING    get
    GETTING    get-ok, get-empty    -> IDLE       until the credit is used up, or nothing is there

A drain is exact: after cancel-ok nothing more is under way, and gets fetch the rest.

Held deliveries stay here without a consumer, until there is credit: brokers count a reject, and
would dead-letter what nobody has seen. They go back when there has been none for a while, since
others may be waiting for them (``wire.holding``), when the core returns others meanwhile, since
then nobody takes them, and otherwise when the channel closes.

Outcomes become ``basic.ack``, joined with ``multiple`` where all older deliveries are settled, and
``basic.reject``::

    accepted                          ack
    rejected                          reject, requeue=0: dead-lettered, if the queue has that
    released, modified, no state      reject, requeue=1

The source of a link may be an exchange, ``exchange/key``. The core may name a subscription: a
durable queue of that name is bound to the exchange, and stays when the link ends. Otherwise an
exclusive queue, which the broker names and deletes with the link or the connection, is bound to it.

A subscription ends only when the core orders it. Unsettled deliveries return to the queue, the
binding is removed, and the number of messages in the queue is reported::

    ACTIVE  unsubscribe -> cancel, nack of everything, queue.unbind, passive declare -> close

On a link whose target is the anonymous terminus each delivery has an address of its own, the
exchange and key that its message was published with: ``exchange/key``, or the key alone for the
default exchange.
"""

import enum
from collections import deque
from collections.abc import Sequence
from typing import ClassVar, Final

from router.errors import DecodeError
from router.model.capabilities import Protocol
from router.model.commands import AttachLink
from router.model.condition import RESOURCE_DELETED, Condition
from router.model.delivery import ReceivedDelivery
from router.model.events import CreditReturned, SubscriptionEnded
from router.model.identity import DeliveryNumber, DeliveryTag
from router.model.outcome import Accepted, DeliveryState, Rejected
from router.model.terminus import SUBSCRIPTION, SenderSettleMode, Target
from router.model.text import decode_name, encode_text
from router.wire.v0_9_1 import content as contents
from router.wire.v0_9_1 import marks
from router.wire.v0_9_1 import methods as m
from router.wire.v0_9_1.broker_channel import BrokerChannel
from router.wire.v0_9_1.channel import ChannelPhase, ContentHandlers, End, MethodHandlers
from router.wire.v0_9_1.client_links import ClientLinks
from router.wire.v0_9_1.content import FLAGS
from router.wire.v0_9_1.reply import Reply

MAX_PREFETCH: Final = 0xFFFF
CONSUMER_TAG: Final = "router"
"""Each channel has one consumer."""

DELIVER_HEAD: Final = b"\x00\x3c\x00\x3c" + bytes((len(CONSUMER_TAG),)) + CONSUMER_TAG.encode()
"""The first octets of each ``basic.deliver``."""

_ADDRESSES_LIMIT: Final = 4096
"""Addresses of messages that are remembered."""

_HEADERS: Final = FLAGS["headers"]
_EXPIRATION: Final = FLAGS["expiration"]


class Consuming(enum.Enum):
    """The state of the consumer."""

    IDLE = "idle"
    STARTING = "starting"
    ACTIVE = "active"
    STOPPING = "stopping"
    GETTING = "getting"


class BrokerReceiver(BrokerChannel):
    """A receiving link from a broker."""

    def __init__(self, engine: ClientLinks, number: int, command: AttachLink) -> None:
        super().__init__(engine, number, command)
        self._settles = command.sender_settle_mode is SenderSettleMode.SETTLED
        self._queue = ""
        self._consuming = Consuming.IDLE
        self._prefetch = 0
        self.beside = 0
        self._beside = 0  # when the consumer was started
        self._credit = 0
        self._is_unwanted = False
        self._is_draining = False
        self._is_held = False
        self._has_own_queue = False
        self._subscription = self._read_subscription()
        self._is_over = False  # the link is; its binding is about to be
        self._is_unbound = False
        target = command.target
        self._reports_addresses = isinstance(target, Target) and target.address is None
        self._addresses: dict[bytes, str | None] = {}
        self._held: deque[tuple[int, bytes]] = deque()
        self._open: dict[int, None] = {}  # unacknowledged delivery tags, ascending
        self._acks: list[int] = []

    def script(self) -> list[tuple[m.Method, type]]:
        """Checks that the queue exists, or binds a queue of our own to the exchange."""
        node = self.node()
        if node is None or node.queue is not None:
            return [self.declare_queue("" if node is None else node.queue or "")]
        exchange, key = node.exchange, node.routing_key
        script = [self.declare_exchange(exchange, key)] if exchange else []
        name = self._subscription
        self._has_own_queue = name is None
        own = m.QueueDeclare(exclusive=True)
        if name is not None:
            arguments = dict((self._declaring() or {}).get("arguments", {}))
            own = m.QueueDeclare(queue=name, durable=True, arguments=arguments)
        bind = m.QueueBind(queue=name or "", exchange=exchange, routing_key=key)
        return [*script, (own, m.QueueDeclareOk), (bind, m.QueueBindOk)]

    def _read_subscription(self) -> str | None:
        """Returns the name of the queue that is bound to the source; None: one that does not stay.

        A source that is no exchange needs none.
        """
        node, name = self.node(), self.command.properties.get(SUBSCRIPTION)
        if node is None or node.queue is not None or not node.exchange:
            return None
        return name if isinstance(name, str) else None

    # --- the consumer -----------------------------------------------------------------------------

    def grant(self, credit: int, drain: bool) -> None:
        """Handles credit from the core; 0 stops the consumer."""
        self._credit = credit
        self._is_unwanted = credit == 0
        self._is_draining = drain
        if self.is_attached:
            self._report_held()
            self._follow()

    def hold(self, held: bool) -> None:
        """Stops or resumes reporting; the prefetch bounds deliveries meanwhile."""
        self._is_held = held
        self._report_held()
        if self._is_draining and self.is_attached:
            self._follow()

    def ready(self) -> None:
        """Reports to the core that the link is attached."""
        super().ready()
        self._follow()

    def answered(self, method: m.Method) -> None:
        """Moves the consumer to its next state."""
        if self._is_over:
            self._go_on_unsubscribing(method)
            return
        match method:
            case m.QueueDeclareOk(queue=queue):
                self._queue = queue
            case m.BasicConsumeOk():
                self._consuming = Consuming.ACTIVE
                self._follow()
            case m.BasicCancelOk():
                self._consuming = Consuming.IDLE
                self._follow()
            case m.BasicGetEmpty():
                self._consuming = Consuming.IDLE
                self._credit = 0
                self._follow()

    def _follow(self) -> None:
        """Takes the next step that credit and drain require, if none is under way."""
        match self._consuming:
            case Consuming.IDLE if self._is_draining and self._credit > 0 and self._is_held:
                pass  # what a get brings could not be reported
            case Consuming.IDLE if self._is_draining and self._credit > 0:
                self._consuming = Consuming.GETTING
                self.ask(m.BasicGet(queue=self._queue), m.BasicGetEmpty)
            case Consuming.IDLE if self._is_draining:
                self._is_draining = False
                self.machine.runs.add(CreditReturned(self.link, 0))
            case Consuming.IDLE if self._credit > 0:
                self._consuming = Consuming.STARTING
                self._prefetch = min(self._credit, MAX_PREFETCH)
                self._beside = self.beside
                self.start_consumer(self._queue, self._prefetch)
            case Consuming.ACTIVE if self._must_stop:
                self._consuming = Consuming.STOPPING
                self.stop_consumer()
        self.machine.holding.watch(self, self.machine.now, waits=self._waits)

    @property
    def _waits(self) -> bool:
        """Whether messages are held for which nobody grants credit."""
        return bool(self._held) and self._consuming is Consuming.IDLE and not self._credit

    def start_consumer(self, queue: str, prefetch: int) -> None:
        """Requests a consumer."""
        self.ask(m.BasicQos(prefetch_count=prefetch), m.BasicQosOk)
        self.ask(m.BasicConsume(queue=queue, consumer_tag=CONSUMER_TAG), m.BasicConsumeOk)

    def stop_consumer(self) -> None:
        """Requests its end."""
        self.ask(m.BasicCancel(CONSUMER_TAG), m.BasicCancelOk)

    @property
    def _must_stop(self) -> bool:
        if self._is_draining or self._is_unwanted:
            return True
        if self._credit > 0 and 2 * (self.beside - self._beside) >= self._prefetch:
            return True  # half of the prefetch is taken by what stays unsettled
        wanted = self._credit + len(self._open) - len(self._held) - self.beside
        return wanted > 2 * self._prefetch and self._prefetch < MAX_PREFETCH

    def _take_cancel(self, method: m.BasicCancel) -> None:
        gone = Condition(RESOURCE_DELETED, f"the broker cancelled the consumer of {self._queue!r}")
        self.fail(gone)

    # --- deliveries -------------------------------------------------------------------------------

    def _take_deliver(self, method: m.BasicDeliver, header: bytes, body: bytes) -> None:
        prefix = contents.content_prefix(
            encode_text(method.exchange),
            encode_text(method.routing_key),
            redelivered=method.redelivered,
        )
        self.take(method.delivery_tag, prefix + header + body)

    def _take_get_ok(self, method: m.BasicGetOk, header: bytes, body: bytes) -> None:
        if self._consuming is not Consuming.GETTING:
            raise self.unwanted(method)
        self._awaited.popleft()
        self._consuming = Consuming.IDLE
        prefix = contents.content_prefix(
            encode_text(method.exchange),
            encode_text(method.routing_key),
            redelivered=method.redelivered,
        )
        self.take(method.delivery_tag, prefix + header + body)
        self._follow()

    def take_all(self, found: list[tuple[int, bytes, bool]]) -> None:
        """Handles a run of deliveries: tag, content, and whether ttl or attempts are to be read."""
        if self._is_over:
            return
        if len(found) > self._credit or self._held or self._is_held or self._settles:
            for tag, content, _ in found:
                self.take(tag, content)
            return
        self._open.update(dict.fromkeys([tag for tag, _, _ in found]))
        self._credit -= len(found)
        protocol = self.machine.protocol
        deliveries = [
            delivery_of(tag, content, False, protocol)
            if is_looked_at
            else ReceivedDelivery(
                DeliveryNumber(tag), DeliveryTag(tag.to_bytes(8, "big")), content, protocol
            )
            for tag, content, is_looked_at in found
        ]
        if self._reports_addresses:
            for delivery in deliveries:
                delivery.address = self._address_of(delivery.payload)
        if deliveries:
            self.machine.runs.receive_all(self.link, deliveries)

    def _address_of(self, content: bytes) -> str | None:
        """Returns the address that a message was published to; None: a name of it is not UTF-8."""
        names = content[2 : 3 + content[1] + content[2 + content[1]]]
        try:
            return self._addresses[names]
        except KeyError:
            pass
        exchange, key = contents.content_route(content)
        try:
            address = decode_name(b"%b/%b" % (exchange, key) if exchange else key)
        except DecodeError:
            address = None
        if len(self._addresses) >= _ADDRESSES_LIMIT:
            self._addresses.clear()
        self._addresses[names] = address
        return address

    def take(self, tag: int, content: bytes) -> None:
        """Handles a delivery: reports it if there is credit, else holds it."""
        if self._is_over:
            return
        self._open[tag] = None
        if self._credit > 0 and not self._held and not self._is_held:
            self._report(tag, content)
        else:
            self._held.append((tag, content))

    def _report(self, tag: int, content: bytes) -> None:
        self._credit -= 1
        if self._settles:
            self._acks.append(tag)
            self.machine.settling[self.number] = self
        delivery = delivery_of(tag, content, self._settles, self.machine.protocol)
        if self._reports_addresses:
            delivery.address = self._address_of(content)
        self.machine.runs.receive(self.link, delivery)

    def _report_held(self) -> None:
        while self._held and self._credit > 0 and not self._is_held:
            self._report(*self._held.popleft())

    def release_held(self) -> None:
        """Returns what is held, unless there is credit for it now."""
        if self._waits and self.phase is ChannelPhase.OPEN:
            self._give_held_back()

    def _give_held_back(self) -> None:
        """Rejects held deliveries with requeue; they were never reported."""
        for tag, _ in self._held:
            self._reject(tag, requeue=True)
        self._held.clear()

    # --- outcomes ---------------------------------------------------------------------------------

    def update(self, numbers: Sequence[DeliveryNumber], state: DeliveryState | None) -> None:
        """Gathers outcomes for the broker, which settle the deliveries."""
        if isinstance(state, Accepted):
            self._acks.extend(numbers)
            self.machine.settling[self.number] = self
            return
        is_rejected = isinstance(state, Rejected)
        for number in numbers:
            self._reject(number, requeue=not is_rejected)
        if self._consuming is Consuming.IDLE and not (self._credit or is_rejected):
            self._give_held_back()

    def _reject(self, tag: int, *, requeue: bool) -> None:
        if tag in self._open:
            del self._open[tag]
            self.send(m.BasicReject(tag, requeue))

    def flush(self) -> None:
        """Writes the gathered acknowledgments."""
        acks, self._acks = self._acks, []
        due = dict.fromkeys(acks)
        taken = self._open
        joined = []
        for tag in taken:
            if tag not in due:
                break
            joined.append(tag)
        frames = []
        if joined:
            frames.append(self.machine.ack_frame(self.number, joined[-1], len(joined) > 1))
            for tag in joined:
                del taken[tag], due[tag]
        for tag in due:
            if tag in taken:
                del taken[tag]
                frames.append(self.machine.ack_frame(self.number, tag, False))
        self.machine.output.append(b"".join(frames))

    # --- end --------------------------------------------------------------------------------------

    def detach(self, closed: bool, condition: Condition | None) -> None:
        """Ends the link; unsettled deliveries are requeued when the channel closes."""
        if self._has_own_queue and self.is_attached:
            self.send(m.QueueDelete(queue=self._queue, no_wait=True))
        super().detach(closed, condition)

    unbinds: ClassVar[bool] = True
    """The protocol can remove a binding."""

    def unsubscribe(self) -> None:
        """Ends the link, and removes the binding of its queue."""
        name, node = self._subscription, self.node()
        if name is None or node is None or not (self.is_attached and self.unbinds):
            if name is not None:
                self._report_unbound(None)
            self.detach(True, None)
            return
        self.machine.flush()
        self._report_end(True, None)
        self._is_over = True
        self._held.clear()
        if self._consuming in (Consuming.STARTING, Consuming.ACTIVE):
            self.stop_consumer()
        if not self._awaited:
            self._unbind()

    @property
    def is_unsubscribing(self) -> bool:
        """Whether its binding is about to be removed."""
        return self._is_over and self.phase is ChannelPhase.OPEN

    def _is_bound_again(self) -> bool:
        """Returns whether a link attached since needs the same binding of the same queue."""
        return any(
            isinstance(other, BrokerReceiver)
            and not other._is_over
            and (other._subscription, other.address) == (self._subscription, self.address)
            for other in self.machine.channels.values()
        )

    def _unbind(self) -> None:
        """Removes the binding; a cancel is answered late, so nothing else is asked before."""
        name, node = self._subscription, self.node()
        assert name is not None
        assert node is not None
        if self._open:
            self.send(m.BasicNack(0, multiple=True, requeue=True))
            self._open.clear()
        if self._is_bound_again():
            self._leave()
            return
        unbind = m.QueueUnbind(queue=name, exchange=node.exchange, routing_key=node.routing_key)
        self.ask(unbind, m.QueueUnbindOk)

    def _go_on_unsubscribing(self, method: m.Method) -> None:
        if isinstance(method, m.QueueUnbindOk):
            self._is_unbound = True
            declare = m.QueueDeclare(queue=self._subscription or "", passive=True)
            self.ask(declare, m.QueueDeclareOk)
        elif not self._is_unbound:
            if not self._awaited:
                self._unbind()
        elif isinstance(method, m.QueueDeclareOk):
            self._report_unbound(method.message_count)
            self._leave()

    def _leave(self) -> None:
        """Closes the channel, when the binding is not its concern any more."""
        self.phase = ChannelPhase.CLOSING
        self.send(m.ChannelClose(reply_code=Reply.SUCCESS, reply_text="detached"))
        self.machine.unsubscribed()

    def _report_unbound(self, messages: int | None) -> None:
        assert self._subscription is not None
        self.machine.runs.add(
            SubscriptionEnded(
                link=self.link,
                queue=self._subscription,
                address=self.address or "",
                messages=messages,
                is_unbound=self._is_unbound,
            )
        )

    def ended(self, reason: End | None) -> None:
        """Reports to the core why the link, or its subscription, is gone."""
        if self._is_over and self.phase is not ChannelPhase.CLOSING:
            self._report_unbound(None)
            self._is_over = False
            self.machine.unsubscribed()
        super().ended(reason)

    handlers: ClassVar[MethodHandlers] = {
        **BrokerChannel.handlers,
        m.BasicCancel: _take_cancel,
    }
    content_handlers: ClassVar[ContentHandlers] = {
        m.BasicDeliver: _take_deliver,
        m.BasicGetOk: _take_get_ok,
    }


def delivery_of(tag: int, content: bytes, settled: bool, protocol: Protocol) -> ReceivedDelivery:
    """Creates the delivery of a content from a broker; its tag is its number."""
    route_end = 3 + content[1]
    route_end += content[route_end - 1]
    flags = content[route_end + 12] << 8 | content[route_end + 13]
    redelivered = content[0] & contents.REDELIVERED
    ttl, count = None, redelivered
    if flags & _EXPIRATION or (redelivered and flags & _HEADERS):
        ttl, count = _ttl_and_count_of(content, redelivered)
    return ReceivedDelivery(
        DeliveryNumber(tag),
        DeliveryTag(tag.to_bytes(8, "big")),
        content,
        protocol,
        0,
        settled,
        ttl_milliseconds=ttl,
        delivery_count=count,
    )


def _ttl_and_count_of(content: bytes, redelivered: int) -> tuple[int | None, int]:
    """Reads ttl and delivery-count; invalid properties are ignored."""
    try:
        properties = contents.properties_of(content, contents.content_layout(content))
    except DecodeError:
        return None, redelivered
    count = marks.count_of((properties.headers or {}).get(marks.DELIVERY_COUNT)) or 0
    return contents.ttl_of(properties), max(count, redelivered)
