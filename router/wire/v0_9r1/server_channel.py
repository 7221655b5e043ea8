"""A client's channel of the draft: classes basic, file, stream and test.

Theory of operation. Everything is as in 0-9-1 (``router.wire.v0_9_1.server_channel``) unless the
draft differs (``router.wire.v0_9r1.server``). A consumer gets every message in the class that it
consumes with, whichever it was published with.
"""

from typing import ClassVar, Final

from router.model.condition import Condition
from router.model.delivery import OutgoingDelivery
from router.model.text import decode_text
from router.wire.v0_9_1 import methods as m
from router.wire.v0_9_1.channel import ChannelPhase, ContentHandlers, End, Expect, MethodHandlers
from router.wire.v0_9_1.consumers import Consumer
from router.wire.v0_9_1.outgoing import Ready
from router.wire.v0_9_1.outlets import Outlet
from router.wire.v0_9_1.prefetch import Window
from router.wire.v0_9_1.queues import Queue
from router.wire.v0_9_1.reply import PeerError, Reply
from router.wire.v0_9_1.server_channel import ServerChannel
from router.wire.v0_9r1 import kinds, trials
from router.wire.v0_9r1 import methods as d
from router.wire.v0_9r1 import optional as o
from router.wire.v0_9r1.channel import DraftChannel
from router.wire.v0_9r1.consuming import FileConsumer, StreamConsumer
from router.wire.v0_9r1.content import HEAD
from router.wire.v0_9r1.files import Files
from router.wire.v0_9r1.framing import FRAMING
from router.wire.v0_9r1.kinds import STREAM
from router.wire.v0_9r1.publishing import DraftPublishing
from router.wire.v0_9r1.server_links import DraftLinks

MAX_CONSUMERS: Final = 0xFFFF
"""Most consumers of a channel: a consumer tag is a number of 16 bits, and 0 is none."""

MAX_TEST_OCTETS: Final = 1 << 20
"""Largest content for ``test.content``: its checksum takes 10 ms."""

_Consume = d.BasicConsume | o.FileConsume | o.StreamConsume
_Cancel = d.BasicCancel | o.FileCancel | o.StreamCancel

_CANCELLED: Final = {
    d.BasicCancel: d.BasicCancelOk,
    o.FileCancel: o.FileCancelOk,
    o.StreamCancel: o.StreamCancelOk,
}


class DraftServerChannel(DraftChannel, ServerChannel):
    """One channel of a client.

    Attributes:
        files: the files of the channel.
    """

    publishing_type = DraftPublishing
    publishing: DraftPublishing
    machine: DraftLinks
    parks_commits = False
    get_ok_head = d.GET_OK_HEAD

    def __init__(self, engine: DraftLinks, number: int) -> None:
        super().__init__(engine, number)
        self.files = Files(self)
        self._asked: _Consume = d.BasicConsume()

    # --- consuming --------------------------------------------------------------------------------

    def _start_consumer(self, method: _Consume) -> None:
        is_stream = isinstance(method, o.StreamConsume)
        if method.prefetch_size and not is_stream:
            raise PeerError(Reply.NOT_IMPLEMENTED, "prefetch-size; prefetch-count is served")
        if len(self.consumers) >= MAX_CONSUMERS:
            raise PeerError(Reply.RESOURCE_ERROR, f"{MAX_CONSUMERS} consumers on one channel")
        tag = self._tags % MAX_CONSUMERS + 1
        while str(tag) in self.consumers:
            tag = tag % MAX_CONSUMERS + 1
        self._prefetch = 0 if is_stream else method.prefetch_count
        self._asked = method
        self._consume(
            m.BasicConsume(
                queue=method.queue,
                consumer_tag=str(tag),
                no_local=method.no_local,
                no_ack=isinstance(method, o.StreamConsume) or method.auto_ack,
                exclusive=method.exclusive,
            )
        )

    def make_consumer(self, method: m.BasicConsume, queue: Queue) -> Consumer:
        """Creates a consumer of the requested class."""
        asked, tag, no_ack = self._asked, method.consumer_tag, method.no_ack
        window = Window(self._prefetch)
        if isinstance(asked, o.StreamConsume):
            return StreamConsumer(tag, self, queue, no_ack, window, rate=asked.consume_rate)
        kind = FileConsumer if isinstance(asked, o.FileConsume) else Consumer
        return kind(tag, self, queue, no_ack, window)

    def consume_ok(self, consumer: Consumer) -> m.Method:
        """Returns the answer to a consume."""
        tag = int(consumer.tag)
        match consumer:
            case FileConsumer():
                return o.FileConsumeOk(tag)
            case StreamConsumer():
                return o.StreamConsumeOk(tag)
            case _:
                return d.BasicConsumeOk(tag)

    @property
    def is_ready(self) -> bool:
        """Whether a publish may begin now, and is handled at once."""
        return self.expect is Expect.METHOD and self.phase is ChannelPhase.OPEN and not self.waits

    def take_publish(self, method: m.BasicPublish, header: bytes, body: bytes) -> None:
        """Handles a complete publish.

        Raises:
            PeerError: it is not allowed, or cannot be handled.
        """
        self._publish(method, header, body)

    def _stop_consumer(self, method: _Cancel) -> None:
        consumer = self.consumers.pop(str(method.consumer_tag), None)
        if consumer is not None:
            self._let_go(consumer)
            consumer.queue.remove_consumer(consumer)
        self.send(_CANCELLED[type(method)]())

    def _let_go(self, consumer: Consumer) -> None:
        if isinstance(consumer, FileConsumer):
            self.files.drop(consumer)
        elif isinstance(consumer, StreamConsumer):
            self.machine.paced.pop(consumer, None)

    def cancelled(self, consumer: Consumer, condition: Condition | None) -> None:
        """Records that a consumer's queue is gone; the client is notified by the channel's end."""
        self._let_go(consumer)
        super().cancelled(consumer, condition)

    def _flow(self, method: m.ChannelFlow) -> None:
        super()._flow(method)
        self.files.go_on()

    def deliver(self, consumer: Consumer, outlet: Outlet, delivery: OutgoingDelivery) -> None:
        """Sends a delivery to a consumer, in its class.

        Raises:
            TranslationError: it cannot be sent, and was not.
        """
        match consumer:
            case FileConsumer():
                ready = self.machine.outgoing.ready(delivery)
                self.files.send(consumer, outlet, delivery, ready)
            case StreamConsumer():
                self._deliver_packet(consumer, outlet, delivery)
            case _:
                super().deliver(consumer, outlet, delivery)

    def _deliver_packet(
        self, consumer: StreamConsumer, outlet: Outlet, delivery: OutgoingDelivery
    ) -> None:
        engine = self.machine
        ready = engine.outgoing.ready(delivery)
        exchange, _ = self.route_of(ready, outlet)
        self._send_other(
            o.StreamDeliver(
                delivery_tag=self.next_tag(), exchange=exchange, queue=consumer.queue.name
            ),
            kinds.from_basic(STREAM, ready.header, len(ready.body)),
            ready.body,
        )
        self.acknowledging.finish_delivery(outlet, delivery)
        consumer.spend(len(ready.body), engine.now)
        if consumer.rate:
            engine.paced[consumer] = None

    def _send_other(self, method: m.Method, header: bytes, body: bytes) -> None:
        """Sends a content of a class other than basic."""
        engine = self.machine
        self.send(method)
        engine.output.append(FRAMING.content_frames(self.number, header, body, engine.frame_max))

    def next_tag(self) -> int:
        """Returns the next delivery tag."""
        self._delivered += 1
        return self._delivered

    @staticmethod
    def route_of(ready: Ready, outlet: Outlet) -> tuple[str, str]:
        """Returns exchange and routing key of a delivery; its link's if it has none."""
        route = ready.route if ready.route != b"\x00\x00" else outlet.route
        key_at = 1 + route[0]
        return decode_text(route[1:key_at]), decode_text(route[key_at + 1 :])

    # --- files and streams ------------------------------------------------------------------------

    def check_other_content(self, weight: int, body_octets: int) -> None:
        """Refuses a content of a class other than basic that is not supported."""
        super().check_other_content(weight, body_octets)
        if isinstance(self._method, o.FileStage):
            self.files.check_stage(body_octets)
        elif isinstance(self._method, o.TestContent) and body_octets > MAX_TEST_OCTETS:
            text = f"{body_octets} octets to be added up, {MAX_TEST_OCTETS} are"
            raise PeerError(Reply.CONTENT_TOO_LARGE, text, o.TEST_CLASS, 7)

    def _open_file(self, method: o.FileOpen) -> None:
        self.files.open(method)

    def _go_on_with_file(self, method: o.FileOpenOk) -> None:
        self.files.open_ok(method)

    def _publish_file(self, method: o.FilePublish) -> None:
        self.files.publish(method)

    def _stage(self, method: o.FileStage, header: bytes, body: bytes) -> None:
        self.files.stage(header, body)

    def _publish_packet(self, method: o.StreamPublish, header: bytes, body: bytes) -> None:
        publish = m.BasicPublish(
            exchange=method.exchange,
            routing_key=method.routing_key,
            mandatory=method.mandatory,
            immediate=method.immediate,
        )
        self.publishing.publish_packet(publish, kinds.to_basic(STREAM, header), body)

    # --- trials -----------------------------------------------------------------------------------

    def _try_integer(self, method: o.TestInteger) -> None:
        self.send(trials.integer(method))

    def _try_string(self, method: o.TestString) -> None:
        self.send(trials.string(method))

    def _try_table(self, method: o.TestTable) -> None:
        self.send(trials.table(method))

    def _try_content(self, method: o.TestContent, header: bytes, body: bytes) -> None:
        answered = HEAD.pack(o.TEST_CLASS, 0, len(body)) + bytes(2)
        self._send_other(o.TestContentOk(trials.checksum(body)), answered, body)

    # --- ends -------------------------------------------------------------------------------------

    def lost(self, outlet: Outlet) -> None:
        """Records that a link is gone, with its unsettled deliveries."""
        super().lost(outlet)
        self.files.lose(outlet)

    def ended(self, reason: End | None) -> None:
        """Ends everything on the channel; incomplete uploads are kept."""
        is_staging = isinstance(self._method, o.FileStage) and self._parts
        self.files.keep(self._parts[-1].body if is_staging else ())
        self.files.ended(reports=reason is not None)
        for consumer in self.consumers.values():
            if isinstance(consumer, StreamConsumer):
                self.machine.paced.pop(consumer, None)
        super().ended(reason)

    def deliver_head(self, tag: str) -> bytes:
        """Encodes the first octets of deliveries to a consumer: class, method, consumer tag."""
        return d.DELIVER_HEAD + int(tag).to_bytes(2, "big")

    handlers: ClassVar[MethodHandlers] = {
        m.ChannelOpen: ServerChannel.open_again,
        m.ChannelClose: ServerChannel.take_close,
        m.ChannelFlow: _flow,
        m.AccessRequest: ServerChannel._request_access,
        m.ExchangeDeclare: ServerChannel._declare_exchange,
        m.ExchangeDelete: ServerChannel._delete_exchange,
        m.QueueDeclare: ServerChannel._declare_queue,
        m.QueueBind: ServerChannel._bind_queue,
        m.QueuePurge: ServerChannel._purge_queue,
        m.QueueDelete: ServerChannel._delete_queue,
        d.BasicConsume: _start_consumer,
        d.BasicCancel: _stop_consumer,
        m.BasicGet: ServerChannel._get,
        m.BasicAck: ServerChannel._ack,
        m.BasicReject: ServerChannel._reject,
        o.FileConsume: _start_consumer,
        o.FileCancel: _stop_consumer,
        o.FileOpen: _open_file,
        o.FileOpenOk: _go_on_with_file,
        o.FilePublish: _publish_file,
        o.FileAck: ServerChannel._ack,
        o.FileReject: ServerChannel._reject,
        o.StreamConsume: _start_consumer,
        o.StreamCancel: _stop_consumer,
        o.TestInteger: _try_integer,
        o.TestString: _try_string,
        o.TestTable: _try_table,
        m.TxSelect: ServerChannel._select_transactions,
        m.TxCommit: ServerChannel._commit,
        m.TxRollback: ServerChannel._roll_back,
    }
    content_handlers: ClassVar[ContentHandlers] = {
        m.BasicPublish: ServerChannel._publish,
        o.FileStage: _stage,
        o.StreamPublish: _publish_packet,
        o.TestContent: _try_content,
    }
