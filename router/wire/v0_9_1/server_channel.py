"""A client's channel on the serving side: every method, and how a router implements it.

Theory of operation. Methods that concern this channel alone are answered at once. Those that depend
on the routing table become a question to the core (an attach that it accepts or refuses); the
channel waits for the answer, and the client's later frames keep their order (``Channel.park``).

Methods that a router cannot implement are refused::

    queue.declare of a durable, shared name without a route       404
    local queues with arguments that need a message store         406
    queue.delete of a routed queue                                403   it is not ours
    exclusive consumers of a routed queue                         403   others may come elsewhere
    bindings to an address without a route, or of no queue        404
    wildcards in topic bindings (unless the core serves them),
    no-local, immediate, prefetch-size, recover without requeue   540   ends the connection

A client's close waits until its earlier publishes are handed on, since they were not refused.
``ServerEngine`` limits that wait.
"""

from typing import ClassVar

from router.errors import TranslationError
from router.model.condition import CONNECTION_FORCED, Condition
from router.model.delivery import OutgoingDelivery
from router.model.outcome import ACCEPTED, MODIFIED_FAILED, REJECTED
from router.wire.v0_9_1 import methods as m
from router.wire.v0_9_1.acknowledging import Acknowledging
from router.wire.v0_9_1.asking import Asking
from router.wire.v0_9_1.binding import Binder
from router.wire.v0_9_1.channel import ContentHandlers, End, MethodHandlers
from router.wire.v0_9_1.client_channel import ClientChannel
from router.wire.v0_9_1.consumers import Consumer
from router.wire.v0_9_1.declaring import Declaring
from router.wire.v0_9_1.emptying import Emptying
from router.wire.v0_9_1.framing import METHOD
from router.wire.v0_9_1.getting import Getting
from router.wire.v0_9_1.names import DIRECT_REPLIES
from router.wire.v0_9_1.outgoing import Ready
from router.wire.v0_9_1.outlets import Outlet
from router.wire.v0_9_1.posts import Commit
from router.wire.v0_9_1.prefetch import Window
from router.wire.v0_9_1.publishing import Publishing
from router.wire.v0_9_1.queues import Queue
from router.wire.v0_9_1.reply import PeerError, Reply
from router.wire.v0_9_1.replying import Replies
from router.wire.v0_9_1.server_links import ServerLinks
from router.wire.v0_9_1.types import encode_shortstr


class ServerChannel(ClientChannel):
    """One channel of a client.

    Attributes:
        publishing: its publishes.
        asking: its questions to the routing table.
        declaring, binding: its exchanges and queues.
        consumers: by tag.
        acknowledging: its unacknowledged deliveries.
        getting: its gets, and their order after its publishes.
        emptying: purges and deletes queues.
    """

    publishing_type: ClassVar[type[Publishing]] = Publishing

    parks_commits: ClassVar[bool] = True
    """Whether methods after a commit wait for its answer."""

    get_ok_head: ClassVar[bytes] = b"\x00\x3c\x00\x47"
    """Class and method of ``basic.get-ok``."""

    replies: Replies

    def __init__(self, engine: ServerLinks, number: int) -> None:
        super().__init__(engine, number)
        self.publishing = self.publishing_type(engine, self)
        self.asking = Asking(engine, self)
        self.acknowledging = Acknowledging(engine, self, self.publishing)
        self.getting = Getting(engine, self, self.publishing, self.asking)
        self.declaring = Declaring(engine, self, self.asking, self.getting)
        self.binding = Binder(engine, self, self.asking)
        self.emptying = Emptying(engine, self, self.publishing, self.asking, self.getting)
        self.replies = Replies(engine, self, self.asking)
        self.consumers: dict[str, Consumer] = {}
        self._prefetch = 0
        self._delivered = 0
        self._tags = 0
        self._closing: m.ChannelClose | None = None

    def open_again(self, method: m.ChannelOpen) -> None:
        """Refuses to open a channel that is open (0-9-1 §1.5.2.1)."""
        raise PeerError(Reply.CHANNEL_ERROR, f"channel {self.number} is open already")

    def _ignore(self, method: m.Method) -> None:
        """Ignores an answer."""

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
        commit = Commit()
        self.acknowledging.commit(commit)
        if self.parks_commits:
            self.park()
        self.publishing.commit(commit)

    def committed(self) -> None:
        """Records that the transaction's publishes are decided, its acknowledgments on record."""
        self.send(m.TxCommitOk())
        if self.parks_commits:
            self.resume()

    def _roll_back(self, method: m.TxRollback) -> None:
        self._check_transactional()
        self.publishing.roll_back()
        self.acknowledging.roll_back()
        self.send(m.TxRollbackOk())

    # --- exchanges and queues ---------------------------------------------------------------------

    def _declare_exchange(self, method: m.ExchangeDeclare) -> None:
        self.declaring.declare_exchange(method)

    def _delete_exchange(self, method: m.ExchangeDelete) -> None:
        self.declaring.delete_exchange(method)

    def _bind_exchange(self, method: m.ExchangeBind) -> None:
        self.binding.bind_exchange(method)

    def _unbind_exchange(self, method: m.ExchangeUnbind) -> None:
        self.binding.unbind_exchange(method)

    def _declare_queue(self, method: m.QueueDeclare) -> None:
        self.declaring.declare_queue(method)

    def _bind_queue(self, method: m.QueueBind) -> None:
        self.binding.bind_queue(method)

    def _unbind_queue(self, method: m.QueueUnbind) -> None:
        self.binding.unbind_queue(method)

    def _purge_queue(self, method: m.QueuePurge) -> None:
        self.emptying.purge(method)

    def _delete_queue(self, method: m.QueueDelete) -> None:
        self.emptying.delete(method)

    # --- consuming --------------------------------------------------------------------------------

    def _set_prefetch(self, method: m.BasicQos) -> None:
        if method.prefetch_size:
            raise PeerError(Reply.NOT_IMPLEMENTED, "prefetch-size; prefetch-count is served")
        if method.all_consumers:
            self.window.limit = method.prefetch_count
            self.review(may_reduce=True)
        else:
            self._prefetch = method.prefetch_count
        self.send(m.BasicQosOk())

    def _flow(self, method: m.ChannelFlow) -> None:
        self.is_paused = not method.active
        self.send(m.ChannelFlowOk(method.active))
        self.review(may_reduce=True)

    def review(self, *, may_reduce: bool = False) -> None:
        """Reviews the credit of all queues that this channel consumes from."""
        for queue in {id(one.queue): one.queue for one in self.consumers.values()}.values():
            queue.may_reduce = queue.may_reduce or may_reduce
            queue.dispatch()
            self.machine.review(queue)

    def _consume(self, method: m.BasicConsume) -> None:
        name = self.name_of(method.queue)
        if method.no_local:
            raise PeerError(Reply.NOT_IMPLEMENTED, "no-local: a router does not know its own")
        if method.consumer_tag in self.consumers:
            raise PeerError(Reply.NOT_ALLOWED, f"consumer tag {method.consumer_tag!r} is in use")
        self._tags += 1
        if name == DIRECT_REPLIES:
            self.replies.consume(method)
            return
        queue = self.machine.queues.get(name) or Queue(self.machine, name, is_local=False)
        if method.exclusive and (queue.consumers or queue.may_be_shared):
            raise PeerError(
                Reply.ACCESS_REFUSED, f"{name!r} cannot be promised to one consumer alone"
            )
        if any(consumer.is_exclusive for consumer in queue.consumers):
            raise PeerError(Reply.ACCESS_REFUSED, f"{name!r} has an exclusive consumer")
        consumer = self.make_consumer(method, queue)
        consumer.is_exclusive = method.exclusive
        if not queue.consumers:
            queue.priority = consumer.priority
        self.asking.open_outlets(queue, lambda: self.start(consumer, method.no_wait))

    def make_consumer(self, method: m.BasicConsume, queue: Queue) -> Consumer:
        """Creates a consumer as requested."""
        return Consumer(
            tag=method.consumer_tag or f"amq.ctag-{self.number}-{self._tags}",
            channel=self,
            queue=queue,
            no_ack=method.no_ack,
            window=Window(self._prefetch),
            priority=_priority_of(method),
        )

    def consume_ok(self, consumer: Consumer) -> m.Method:
        """Returns the answer to a consume."""
        return m.BasicConsumeOk(consumer.tag)

    def start(self, consumer: Consumer, no_wait: bool) -> None:
        """Starts deliveries to a consumer; its links exist."""
        queue = consumer.queue
        self.consumers[consumer.tag] = consumer
        if queue.name not in self.machine.queues:
            self.machine.add_queue(queue)
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
        """Notifies the client that a consumer's queue is gone.

        A client without RabbitMQ's notification would wait for ever; its channel is closed, unless
        it deleted the queue itself (no condition). Where the connection ends next, its end says
        why, and that the client may come again.
        """
        self.consumers.pop(consumer.tag, None)
        if condition is not None and condition.name == CONNECTION_FORCED:
            return
        if self.machine.client_can("consumer_cancel_notify"):
            self.send(m.BasicCancel(consumer.tag, no_wait=True))
        elif condition is not None:
            text = f"queue {consumer.queue.name!r} of consumer {consumer.tag!r}: {condition}"
            self.machine.fault(PeerError(Reply.NOT_FOUND, text, 60, 20), self)

    def deliver_head(self, tag: str) -> bytes:
        """Encodes the first octets of deliveries to a consumer: class, method, consumer tag."""
        return b"\x00\x3c\x00\x3c" + encode_shortstr(tag)

    def deliver(self, consumer: Consumer, outlet: Outlet, delivery: OutgoingDelivery) -> None:
        """Sends a delivery to a consumer.

        Raises:
            TranslationError: it cannot be sent, and was not.
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
            self.acknowledging.finish_delivery(outlet, delivery)
            return
        consumer.window.used += 1
        self.window.used += 1
        self.acknowledging.expect(tag, outlet, delivery, consumer)

    def _get(self, method: m.BasicGet) -> None:
        self.getting.get(self.name_of(method.queue), method.no_ack)

    def give(self, outlet: Outlet, delivery: OutgoingDelivery, no_ack: bool, left: int) -> bool:
        """Answers a ``basic.get``; returns whether the delivery could be sent.

        Args:
            outlet: the link of the delivery.
            delivery: the delivery.
            no_ack: the client does not acknowledge it.
            left: number of further messages that are known to wait.
        """
        try:
            ready = self.machine.outgoing.ready(delivery)
        except TranslationError as error:
            self.machine.refuse(outlet, delivery, error)
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
                left.to_bytes(4, "big"),
            )
        )
        self._send_content(method, ready)
        if no_ack:
            self.acknowledging.finish_delivery(outlet, delivery)
        else:
            self.acknowledging.expect(tag, outlet, delivery)
        return True

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

    # --- acknowledging ----------------------------------------------------------------------------

    def _ack(self, method: m.BasicAck) -> None:
        self.acknowledging.acknowledge(method.delivery_tag, method.multiple, ACCEPTED)

    def _reject(self, method: m.BasicReject) -> None:
        state = MODIFIED_FAILED if method.requeue else REJECTED
        self.acknowledging.acknowledge(method.delivery_tag, False, state)

    def _nack(self, method: m.BasicNack) -> None:
        state = MODIFIED_FAILED if method.requeue else REJECTED
        self.acknowledging.acknowledge(method.delivery_tag, method.multiple, state)

    def _recover(self, method: m.BasicRecover | m.BasicRecoverAsync) -> None:
        if not method.requeue:
            raise PeerError(Reply.NOT_IMPLEMENTED, "recover without requeue")
        self.acknowledging.recover()
        if isinstance(method, m.BasicRecover):
            self.send(m.BasicRecoverOk())

    # --- end --------------------------------------------------------------------------------------

    @property
    def is_busy(self) -> bool:
        """Whether earlier methods of the client are still to be handled or handed on."""
        return self.waits or bool(self.publishing.held)

    def take_close(self, close: m.ChannelClose) -> None:
        """Handles the client's close, after its earlier publishes are handed on."""
        self.publishing.hand_over(is_last=False)
        if not self.publishing.held:
            super().take_close(close)
            return
        self._closing = close
        self.park()
        self.machine.await_drained()

    def pumped(self) -> None:
        """Records that held publishes may have been handed on."""
        if self.publishing.held:
            self.getting.pumped()
            return
        if self._closing is not None:
            self.finish_close()
        self.machine.drained()
        self.getting.pumped()

    def finish_close(self) -> None:
        """Handles the deferred close."""
        close, self._closing = self._closing, None
        if close is not None:
            self.waits = False
            super().take_close(close)

    def lost(self, outlet: Outlet) -> None:
        """Records that a link is gone, with its unsettled deliveries."""
        self.acknowledging.lost(outlet)

    def ended(self, reason: End | None) -> None:
        """Ends everything on the channel; unacknowledged deliveries are requeued."""
        self._closing = None
        if reason is None:
            self.publishing.cut_off()
            self.getting.forget_all()
            return
        self.publishing.ended()
        consumers, self.consumers = self.consumers, {}
        for consumer in consumers.values():
            consumer.queue.remove_consumer(consumer)
        self.acknowledging.ended()
        self.getting.ended()
        for purge in [each for each in self.machine.purges if each.channel is self]:
            purge.leave()

    handlers: ClassVar[MethodHandlers] = {
        m.ChannelOpen: open_again,
        m.ChannelClose: take_close,
        m.ChannelFlow: _flow,
        m.ChannelFlowOk: _ignore,
        m.AccessRequest: _request_access,
        m.ExchangeDeclare: _declare_exchange,
        m.ExchangeDelete: _delete_exchange,
        m.ExchangeBind: _bind_exchange,
        m.ExchangeUnbind: _unbind_exchange,
        m.QueueDeclare: _declare_queue,
        m.QueueBind: _bind_queue,
        m.QueueUnbind: _unbind_queue,
        m.QueuePurge: _purge_queue,
        m.QueueDelete: _delete_queue,
        m.BasicQos: _set_prefetch,
        m.BasicConsume: _consume,
        m.BasicCancel: _cancel,
        m.BasicCancelOk: _ignore,
        m.BasicGet: _get,
        m.BasicAck: _ack,
        m.BasicReject: _reject,
        m.BasicNack: _nack,
        m.BasicRecover: _recover,
        m.BasicRecoverAsync: _recover,
        m.ConfirmSelect: _select_confirms,
        m.TxSelect: _select_transactions,
        m.TxCommit: _commit,
        m.TxRollback: _roll_back,
    }
    content_handlers: ClassVar[ContentHandlers] = {m.BasicPublish: _publish}


def _priority_of(consume: m.BasicConsume) -> int:
    """Returns a consumer's priority (RabbitMQ's ``x-priority``)."""
    priority = consume.arguments.get("x-priority", 0)
    if not isinstance(priority, int) or isinstance(priority, bool):
        raise PeerError(Reply.PRECONDITION_FAILED, f"x-priority: {priority!r} is no number")
    return priority
