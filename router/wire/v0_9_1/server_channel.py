"""A channel of a client that dialed us: every method, and what a router makes of it.

Theory of operation. Methods that only concern this channel are answered at once. Those that depend
on the routing table become a question to the core (an attach that it accepts or refuses); the
channel waits for the answer, and what the client sent behind keeps its place (``Channel.park``).

What a router cannot promise it refuses, with the code that says so::

    queue.declare of a durable, shared name without a route       404
    local queues with arguments that ask for storage              406
    queue.purge, queue.delete of a routed queue                   403   it is not ours
    exclusive consumers of a routed queue                         403   others may come elsewhere
    bindings to what no route gives                               404
    wildcards in topic bindings (unless the core serves them),
    no-local, immediate, prefetch-size, recover without requeue   540   ends the connection

A close of the client's waits until what it has published before is handed on: it was told nothing
to the contrary. ``ServerEngine`` bounds that wait.
"""

from typing import TYPE_CHECKING, ClassVar

import attrs

from router.model import condition as conditions
from router.model.condition import Condition
from router.model.delivery import OutgoingDelivery
from router.model.events import CreditGranted, LinkDetached
from router.model.identity import DeliveryNumber
from router.model.outcome import ACCEPTED, MODIFIED_FAILED, REJECTED, RELEASED, DeliveryState
from router.wire.v0_9_1 import methods as m
from router.wire.v0_9_1.channel import Channel, End
from router.wire.v0_9_1.declaring import Declaring
from router.wire.v0_9_1.framing import METHOD
from router.wire.v0_9_1.outgoing import Ready
from router.wire.v0_9_1.publishing import Publishing
from router.wire.v0_9_1.queues import Consumer, Getter, Outlet, Queue, Window
from router.wire.v0_9_1.reply import PeerError, Reply, channel_reply
from router.wire.v0_9_1.types import encode_shortstr

if TYPE_CHECKING:
    from router.wire.v0_9_1.server import ServerEngine


@attrs.define(eq=False)
class Unacked:
    """A delivery that the client has and has not acknowledged.

    Attributes:
        number: the core's; None if the core has settled it already.
        consumer: None for what ``basic.get`` got.
    """

    outlet: Outlet
    number: DeliveryNumber | None
    consumer: Consumer | None


class ServerChannel(Channel):
    """One channel of a client.

    Attributes:
        publishing: what the client publishes on it.
        declaring: its questions to the routing table.
        consumers: by tag.
        unacked: by delivery tag, rising.
        window: the prefetch of all its consumers together.
        is_paused: the client has stopped deliveries (channel.flow).
        queue_name: the queue last declared, which "" stands for.
    """

    handlers: ClassVar[dict[type, str]] = {
        m.ChannelClose: "take_close",
        m.ChannelFlow: "_flow",
        m.ChannelFlowOk: "_ignore",
        m.AccessRequest: "_request_access",
        m.ExchangeDeclare: "_declare_exchange",
        m.ExchangeDelete: "_delete_exchange",
        m.ExchangeBind: "_bind_exchange",
        m.ExchangeUnbind: "_unbind_exchange",
        m.QueueDeclare: "_declare_queue",
        m.QueueBind: "_bind_queue",
        m.QueueUnbind: "_unbind_queue",
        m.QueuePurge: "_purge_queue",
        m.QueueDelete: "_delete_queue",
        m.BasicQos: "_set_prefetch",
        m.BasicConsume: "_consume",
        m.BasicCancel: "_cancel",
        m.BasicCancelOk: "_ignore",
        m.BasicGet: "_get",
        m.BasicAck: "_ack",
        m.BasicReject: "_reject",
        m.BasicNack: "_nack",
        m.BasicRecover: "_recover",
        m.BasicRecoverAsync: "_recover",
        m.ConfirmSelect: "_select_confirms",
        m.TxSelect: "_select_transactions",
        m.TxCommit: "_commit",
        m.TxRollback: "_roll_back",
    }
    content_handlers: ClassVar[dict[type, str]] = {m.BasicPublish: "_publish"}

    publishing_type: ClassVar[type[Publishing]] = Publishing

    parks_commits: ClassVar[bool] = True
    """What follows a commit waits for its answer; else it is taken up meanwhile."""

    get_ok_head: ClassVar[bytes] = b"\x00\x3c\x00\x47"
    """Class and method of ``basic.get-ok``."""

    machine: "ServerEngine"

    def __init__(self, engine: "ServerEngine", number: int) -> None:
        super().__init__(engine, number)
        self.publishing = self.publishing_type(engine, self)
        self.declaring = Declaring(engine, self)
        self.consumers: dict[str, Consumer] = {}
        self.unacked: dict[int, Unacked] = {}
        self.window = Window()
        self.is_paused = False
        self.queue_name = ""
        self._prefetch = 0
        self._delivered = 0
        self._tags = 0
        self._getters: dict[str, Getter] = {}
        self._closing: m.ChannelClose | None = None
        self._settled_in_transaction: list[tuple[dict[int, Unacked], DeliveryState]] = []

    def reply(self, method: m.Method, no_wait: bool) -> None:
        """Answers, unless no answer is wanted."""
        if not no_wait:
            self.send(method)

    def _ignore(self, method: m.Method) -> None:
        """Takes an answer that nothing depends on."""

    def _request_access(self, method: m.AccessRequest) -> None:
        self.send(m.AccessRequestOk())

    # --- publishing -------------------------------------------------------------------------------

    def _publish(self, method: m.BasicPublish, header: bytes, body: bytes) -> None:
        self.publishing.publish(method, header, body)

    def _select_confirms(self, method: m.ConfirmSelect) -> None:
        self.publishing.start_confirming()
        self.reply(m.ConfirmSelectOk(), method.no_wait)

    def _select_transactions(self, method: m.TxSelect) -> None:
        self.publishing.start_transactions()
        self.send(m.TxSelectOk())

    def _check_transactional(self) -> None:
        if self.publishing.transaction is None:
            raise PeerError(Reply.PRECONDITION_FAILED, "the channel is not transactional")

    def _commit(self, method: m.TxCommit) -> None:
        self._check_transactional()
        gathered, self._settled_in_transaction = self._settled_in_transaction, []
        for entries, state in gathered:
            self._settle(entries, state)
        if self.parks_commits:
            self.park()
        self.publishing.commit()

    def committed(self) -> None:
        """Takes note that the transaction's publishes are all decided."""
        self.send(m.TxCommitOk())
        if self.parks_commits:
            self.resume()

    def _roll_back(self, method: m.TxRollback) -> None:
        self._check_transactional()
        self.publishing.roll_back()
        for entries, _ in self._settled_in_transaction:
            self.unacked.update(entries)
        self._settled_in_transaction = []
        self.unacked = dict(sorted(self.unacked.items()))
        self.send(m.TxRollbackOk())

    # --- exchanges and queues ---------------------------------------------------------------------

    def _declare_exchange(self, method: m.ExchangeDeclare) -> None:
        self.declaring.declare_exchange(method)

    def _delete_exchange(self, method: m.ExchangeDelete) -> None:
        self.declaring.delete_exchange(method)

    def _bind_exchange(self, method: m.ExchangeBind) -> None:
        self.declaring.bind_exchange(method)

    def _unbind_exchange(self, method: m.ExchangeUnbind) -> None:
        self.declaring.unbind_exchange(method)

    def _declare_queue(self, method: m.QueueDeclare) -> None:
        self.declaring.declare_queue(method)

    def _bind_queue(self, method: m.QueueBind) -> None:
        self.declaring.bind_queue(method)

    def _unbind_queue(self, method: m.QueueUnbind) -> None:
        self.declaring.unbind_queue(method)

    def _purge_queue(self, method: m.QueuePurge) -> None:
        queue = self._own_queue(method.queue, "purged")
        self.reply(m.QueuePurgeOk(queue.purge()), method.no_wait)

    def _delete_queue(self, method: m.QueueDelete) -> None:
        queue = self._own_queue(method.queue, "deleted")
        if method.if_unused and queue.consumers:
            raise PeerError(Reply.PRECONDITION_FAILED, f"queue {queue.name!r} has consumers")
        if method.if_empty and queue.backlog:
            raise PeerError(Reply.PRECONDITION_FAILED, f"queue {queue.name!r} is not empty")
        self.reply(m.QueueDeleteOk(queue.delete()), method.no_wait)

    def name_of(self, queue: str) -> str:
        """Tells which queue a method means; "" is the one last declared (0-9-1 §1.7.2.3)."""
        name = queue or self.queue_name
        if not name:
            raise PeerError(Reply.NOT_FOUND, "no queue was declared on this channel")
        return name

    def _own_queue(self, name: str, verb: str) -> Queue:
        name = self.name_of(name)
        queue = self.machine.queues.get(name)
        if queue is None or not queue.is_local:
            raise PeerError(
                Reply.ACCESS_REFUSED,
                f"{name!r} is a route's address; a router holds no queue that could be {verb}",
            )
        return queue

    # --- consuming --------------------------------------------------------------------------------

    def _set_prefetch(self, method: m.BasicQos) -> None:
        if method.prefetch_size:
            raise PeerError(Reply.NOT_IMPLEMENTED, "prefetch-size; prefetch-count is served")
        if method.all_consumers:
            self.window.limit = method.prefetch_count
            self._review(may_fall=True)
        else:
            self._prefetch = method.prefetch_count
        self.send(m.BasicQosOk())

    def _flow(self, method: m.ChannelFlow) -> None:
        self.is_paused = not method.active
        self.send(m.ChannelFlowOk(method.active))
        self._review(may_fall=True)

    def _review(self, *, may_fall: bool = False) -> None:
        """Looks anew at the credit of all queues that this channel consumes from."""
        for queue in {id(one.queue): one.queue for one in self.consumers.values()}.values():
            queue.may_fall = queue.may_fall or may_fall
            queue.dispatch()
            self.machine.review(queue)

    def _consume(self, method: m.BasicConsume) -> None:
        name = self.name_of(method.queue)
        if method.no_local:
            raise PeerError(Reply.NOT_IMPLEMENTED, "no-local: a router does not know its own")
        if method.consumer_tag in self.consumers:
            raise PeerError(Reply.NOT_ALLOWED, f"consumer tag {method.consumer_tag!r} is in use")
        queue = self.machine.queues.get(name) or Queue(self.machine, name, is_local=False)
        if method.exclusive and (queue.consumers or not queue.is_local):
            raise PeerError(
                Reply.ACCESS_REFUSED, f"{name!r} cannot be promised to one consumer alone"
            )
        self._tags += 1
        consumer = self.make_consumer(method, queue)
        if not queue.consumers:
            queue.priority = consumer.priority
        self.declaring.open_outlets(queue, lambda: self._start(consumer, method.no_wait))

    def make_consumer(self, method: m.BasicConsume, queue: Queue) -> Consumer:
        """Makes a consumer as it was asked for."""
        return Consumer(
            tag=method.consumer_tag or f"amq.ctag-{self.number}-{self._tags}",
            channel=self,
            queue=queue,
            no_ack=method.no_ack,
            window=Window(self._prefetch),
            priority=_priority_of(method),
        )

    def consume_ok(self, consumer: Consumer) -> m.Method:
        """Makes the answer to whoever asked for a consumer."""
        return m.BasicConsumeOk(consumer.tag)

    def _start(self, consumer: Consumer, no_wait: bool) -> None:
        queue = consumer.queue
        self.consumers[consumer.tag] = consumer
        self.machine.queues.setdefault(queue.name, queue)
        self.reply(self.consume_ok(consumer), no_wait)
        queue.consumers.append(consumer)
        queue.has_priorities = len({one.priority for one in queue.consumers}) > 1
        queue.dispatch()
        self.machine.review(queue)

    def _cancel(self, method: m.BasicCancel) -> None:
        consumer = self.consumers.pop(method.consumer_tag, None)
        if consumer is not None:
            consumer.queue.remove_consumer(consumer)
        self.reply(m.BasicCancelOk(method.consumer_tag), method.no_wait)

    def cancelled(self, consumer: Consumer, condition: Condition | None) -> None:
        """Tells the client that a consumer's queue is gone.

        A client that does not know RabbitMQ's notification would wait for ever; it loses the
        channel, unless it deleted the queue itself (no condition).
        """
        self.consumers.pop(consumer.tag, None)
        if self.machine.client_can("consumer_cancel_notify"):
            self.send(m.BasicCancel(consumer.tag, no_wait=True))
        elif condition is not None:
            text = f"queue {consumer.queue.name!r} of consumer {consumer.tag!r}: {condition}"
            self.machine.fault(PeerError(Reply.NOT_FOUND, text, 60, 20), self)

    def deliver_head(self, tag: str) -> bytes:
        """Encodes what the deliveries to a consumer begin with: class, method, consumer tag."""
        return b"\x00\x3c\x00\x3c" + encode_shortstr(tag)

    def deliver(self, consumer: Consumer, outlet: Outlet, delivery: OutgoingDelivery) -> None:
        """Sends a delivery to a consumer.

        Raises:
            TranslationError: it cannot be sent; nothing was.
        """
        ready = self.machine.outgoing.ready(delivery)
        self._delivered += 1
        tag = self._delivered
        route = ready.route if ready.route != b"\x00\x00" else outlet.route
        method = b"".join(
            (
                consumer.head,
                tag.to_bytes(8, "big"),
                b"\x01" if ready.redelivered else b"\x00",
                route,
            )
        )
        self._send_content(method, ready)
        if consumer.no_ack:
            if not delivery.settled:
                self.machine.settle(outlet, [delivery.number], ACCEPTED)
            return
        consumer.window.used += 1
        self.window.used += 1
        settled = delivery.settled
        self.unacked[tag] = Unacked(outlet, None if settled else delivery.number, consumer)

    def _send_content(self, method: bytes, ready: Ready) -> None:
        engine, number = self.machine, self.number
        engine.output.append(
            b"".join(
                (
                    engine.framing.frame(METHOD, number, method),
                    engine.content_frames(number, ready.header, ready.body),
                )
            )
        )

    # --- getting ----------------------------------------------------------------------------------

    def _get(self, method: m.BasicGet) -> None:
        name = self.name_of(method.queue)
        queue = self.machine.queues.get(name)
        if queue is not None and queue.is_local:
            self._get_local(queue, method.no_ack)
            return
        getter = self._getters.get(name)
        if getter is None:
            getter = self._getters[name] = Getter(self, name, self.machine.next_link())
        getter.no_ack = method.no_ack
        self.declaring.open_getter(getter, self._grant_one)

    def _get_local(self, queue: Queue, no_ack: bool) -> None:
        while queue.backlog:
            outlet, delivery = queue.backlog.popleft()
            self.machine.review(queue)
            if self._got(outlet, delivery, no_ack):
                return
        self.send(m.BasicGetEmpty())

    def _grant_one(self, getter: Getter) -> None:
        self.park()
        getter.is_waiting = True
        self.machine.runs.add(CreditGranted(getter.outlet.link, 1, drain=True))

    def got(self, getter: Getter, delivery: OutgoingDelivery) -> None:
        """Takes the delivery that a ``basic.get`` waits for."""
        outlet = getter.outlet
        if not delivery.settled:
            outlet.unsettled += 1
        if not getter.is_waiting:
            self.machine.settle(outlet, [delivery.number], RELEASED)
            return
        getter.is_waiting = False
        if not self._got(outlet, delivery, getter.no_ack):
            self.send(m.BasicGetEmpty())
        self.resume()

    def got_nothing(self, getter: Getter) -> None:
        """Takes the answer that nothing is there to get."""
        if getter.is_waiting:
            getter.is_waiting = False
            self.send(m.BasicGetEmpty())
            self.resume()

    def _got(self, outlet: Outlet, delivery: OutgoingDelivery, no_ack: bool) -> bool:
        ready = self.machine.ready_or_refused(outlet, delivery)
        if ready is None:
            return False
        self._delivered += 1
        tag = self._delivered
        route = ready.route if ready.route != b"\x00\x00" else outlet.route
        method = b"".join(
            (
                self.get_ok_head,
                tag.to_bytes(8, "big"),
                b"\x01" if ready.redelivered else b"\x00",
                route,
                b"\x00\x00\x00\x00",
            )
        )
        self._send_content(method, ready)
        if not no_ack:
            number = None if delivery.settled else delivery.number
            self.unacked[tag] = Unacked(outlet, number, None)
        elif not delivery.settled:
            self.machine.settle(outlet, [delivery.number], ACCEPTED)
        return True

    # --- acknowledging ----------------------------------------------------------------------------

    def _ack(self, method: m.BasicAck) -> None:
        self.acknowledge(method.delivery_tag, method.multiple, ACCEPTED)

    def _reject(self, method: m.BasicReject) -> None:
        self.acknowledge(
            method.delivery_tag, False, MODIFIED_FAILED if method.requeue else REJECTED
        )

    def _nack(self, method: m.BasicNack) -> None:
        self.acknowledge(
            method.delivery_tag, method.multiple, MODIFIED_FAILED if method.requeue else REJECTED
        )

    def _recover(self, method: m.BasicRecover | m.BasicRecoverAsync) -> None:
        if not method.requeue:
            raise PeerError(Reply.NOT_IMPLEMENTED, "recover without requeue")
        entries, self.unacked = self.unacked, {}
        self._settle(entries, MODIFIED_FAILED)
        if isinstance(method, m.BasicRecover):
            self.send(m.BasicRecoverOk())

    def acknowledge(self, tag: int, multiple: bool, state: DeliveryState) -> None:
        """Settles what the client names; 0 with ``multiple`` is all it has."""
        entries = self._take(tag, multiple)
        if self.publishing.transaction is not None:
            self._settled_in_transaction.append((entries, state))
        else:
            self._settle(entries, state)

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
        """Tells the core what became of deliveries, and makes room for others."""
        engine = self.machine
        queues: dict[int, Queue] = {}
        for entry in entries.values():
            consumer = entry.consumer
            if consumer is not None:
                consumer.window.used -= 1
                self.window.used -= 1
                queues[id(consumer.queue)] = consumer.queue
            if entry.number is not None:
                engine.settle(entry.outlet, [entry.number], state)
        if self.window.limit:
            self._review()  # the room is everybody's
            return
        for queue in queues.values():
            if queue.backlog:
                queue.dispatch()
            engine.review(queue)

    # --- end --------------------------------------------------------------------------------------

    @property
    def is_busy(self) -> bool:
        """Whether what the client has sent so far is still to be taken up or handed on."""
        return self.waits or bool(self.publishing.held)

    def take_close(self, close: m.ChannelClose) -> None:
        """Takes the client's close, when what it published before is handed on."""
        if not self.publishing.held:
            super().take_close(close)
            return
        self._closing = close
        self.park()
        self.machine.await_drained()

    def drained(self) -> None:
        """Takes note that no publish waits any more."""
        if self._closing is not None:
            self.finish_close()
        self.machine.drained()

    def finish_close(self) -> None:
        """Takes the close that was put off."""
        close, self._closing = self._closing, None
        if close is not None:
            self.waits = False
            super().take_close(close)

    def lost(self, outlet: Outlet) -> None:
        """Takes note that a link is gone, and what was unsettled on it with it."""
        for entry in self.unacked.values():
            if entry.outlet is outlet:
                entry.number = None

    def forget_getter(self, getter: Getter) -> None:
        """Takes note that the core does not give what a ``basic.get`` asks for."""
        self._getters.pop(getter.queue, None)
        self.machine.outlets.pop(getter.outlet.link, None)

    def lost_getter(self, getter: Getter, condition: Condition | None) -> None:
        """Takes note that the link of ``basic.get`` is gone."""
        self.forget_getter(getter)
        self.lost(getter.outlet)
        if getter.is_waiting:
            getter.is_waiting = False
            text = str(condition or Condition(conditions.DETACH_FORCED))
            self.machine.fault(PeerError(channel_reply(condition), text, 60, 70), self)

    def ended(self, reason: End | None) -> None:
        """Ends what lives on the channel; what the client had not acknowledged is given back."""
        self._closing = None
        if reason is None:
            self.publishing.forget()
            return
        self.publishing.ended()
        for entries, _ in self._settled_in_transaction:
            self.unacked.update(entries)
        consumers, self.consumers = self.consumers, {}
        entries, self.unacked = self.unacked, {}
        for consumer in consumers.values():
            consumer.queue.remove_consumer(consumer)
        self._settle(entries, RELEASED)
        for getter in self._getters.values():
            self.machine.outlets.pop(getter.outlet.link, None)
            self.machine.runs.add(LinkDetached(getter.outlet.link, closed=True))
        self._getters.clear()


def _priority_of(consume: m.BasicConsume) -> int:
    """Gives a consumer's priority (RabbitMQ's ``x-priority``)."""
    priority = consume.arguments.get("x-priority", 0)
    if not isinstance(priority, int) or isinstance(priority, bool):
        raise PeerError(Reply.PRECONDITION_FAILED, f"x-priority: {priority!r} is no number")
    return priority
