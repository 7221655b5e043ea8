"""The side that clients of the draft dial.

Theory of operation. Everything is 0-9-1's (``router.wire.v0_9_1.server``) but for what the draft
says otherwise: a consumer brings its own prefetch and gets a number for a tag; there are no
confirms, no qos, no nack, no recover and no ``no-wait``; ``channel.flow`` has no answer.

What a publisher learns, by the outcome of its delivery. ``basic.return`` comes for a mandatory
publish, in a transaction before its ``commit-ok``::

    accepted                        nothing; in a transaction commit-ok
    rejected, amqp:not-found        return 404; nothing for a publish that is not mandatory
    released, modified              return 310; or channel.close 310 if it was not mandatory
    rejected                        return 403; likewise

Only a transaction or ``mandatory`` makes an outcome matter: other publishes are settled when they
come. Commits do not wait for each other, so that transactions can be under way one behind the
other; their answers come in order.
"""

import struct
from collections.abc import Sequence
from typing import ClassVar, Final

from router.model import condition as conditions
from router.model.outcome import DeliveryState, Rejected
from router.wire.engine import EngineSettings
from router.wire.v0_9_1 import methods as m
from router.wire.v0_9_1.channel import Expect
from router.wire.v0_9_1.channel import Phase as ChannelPhase
from router.wire.v0_9_1.content import HEADER_OCTETS, encode_content_header
from router.wire.v0_9_1.framing import END_OCTET
from router.wire.v0_9_1.machine import Phase
from router.wire.v0_9_1.publishing import Publishing
from router.wire.v0_9_1.reply import PeerError, Reply
from router.wire.v0_9_1.server import ServerEngine
from router.wire.v0_9_1.server_channel import ServerChannel
from router.wire.v0_9r1 import methods as d
from router.wire.v0_9r1.channel import DraftChannel
from router.wire.v0_9r1.framing import FRAMING, PROTOCOL_HEADER, VERSION, FrameType
from router.wire.v0_9r1.machine import DraftMachine
from router.wire.v0_9r1.outgoing import DraftOutgoing

MAX_CONSUMERS: Final = 0xFFFF
"""On a channel: a consumer tag is a number of 16 bits, and 0 is none."""


_HEADER: Final = struct.Struct(">BxHIHHQ")
"""A content header's frame: type, channel, size, class, weight, body size."""

_head: Final = FRAMING.head.pack


class DraftPublishing(Publishing):
    """The publishes of one channel."""

    refused_commit = Reply.NOT_DELIVERED

    def send_back(self, numbers: Sequence[int], state: DeliveryState | None) -> Sequence[int]:
        """Returns what was not taken and may be returned; gives those that this does not tell."""
        code, text = _return_of(state)
        left = [number for number in numbers if not self.send_return(number, code, text)]
        return () if code is Reply.NOT_FOUND else left


def _return_of(state: DeliveryState | None) -> tuple[Reply, str]:
    """Words an outcome that is not accepted as a ``basic.return``."""
    if not isinstance(state, Rejected):
        return Reply.NOT_DELIVERED, "nobody has taken it"
    error = state.error
    if error is not None and error.name == conditions.NOT_FOUND:
        return Reply.NOT_FOUND, "no route takes it"
    return Reply.ACCESS_REFUSED, "rejected" if error is None else str(error)


class DraftServerChannel(DraftChannel, ServerChannel):
    """One channel of a client."""

    handlers: ClassVar[dict[type, str]] = {
        m.ChannelClose: "take_close",
        m.ChannelFlow: "_flow",
        m.AccessRequest: "_request_access",
        m.ExchangeDeclare: "_declare_exchange",
        m.ExchangeDelete: "_delete_exchange",
        m.QueueDeclare: "_declare_queue",
        m.QueueBind: "_bind_queue",
        m.QueuePurge: "_purge_queue",
        m.QueueDelete: "_delete_queue",
        d.BasicConsume: "_start_consumer",
        d.BasicCancel: "_stop_consumer",
        m.BasicGet: "_get",
        m.BasicAck: "_ack",
        m.BasicReject: "_reject",
        m.TxSelect: "_select_transactions",
        m.TxCommit: "_commit",
        m.TxRollback: "_roll_back",
    }
    publishing_type = DraftPublishing
    parks_commits = False
    get_ok_head = d.GET_OK_HEAD

    def _start_consumer(self, method: d.BasicConsume) -> None:
        if method.prefetch_size:
            raise PeerError(Reply.NOT_IMPLEMENTED, "prefetch-size; prefetch-count is served")
        if len(self.consumers) >= MAX_CONSUMERS:
            raise PeerError(Reply.RESOURCE_ERROR, f"{MAX_CONSUMERS} consumers on one channel")
        tag = self._tags % MAX_CONSUMERS + 1
        while str(tag) in self.consumers:
            tag = tag % MAX_CONSUMERS + 1
        self._prefetch = method.prefetch_count
        self._consume(
            m.BasicConsume(
                queue=method.queue,
                consumer_tag=str(tag),
                no_local=method.no_local,
                no_ack=method.auto_ack,
                exclusive=method.exclusive,
            )
        )

    @property
    def is_ready(self) -> bool:
        """Whether a publish may begin now, and is taken up at once."""
        return self.expect is Expect.METHOD and self.phase is ChannelPhase.OPEN and not self.waits

    def take_publish(self, method: m.BasicPublish, header: bytes, body: bytes) -> None:
        """Takes a whole publish.

        Raises:
            PeerError: it may not come, or cannot be taken.
        """
        self._publish(method, header, body)

    def _stop_consumer(self, method: d.BasicCancel) -> None:
        self._cancel(m.BasicCancel(str(method.consumer_tag)))

    def deliver_head(self, tag: str) -> bytes:
        """Encodes what the deliveries to a consumer begin with: class, method, consumer tag."""
        return d.DELIVER_HEAD + int(tag).to_bytes(2, "big")


class DraftServer(DraftMachine, ServerEngine):
    """One connection that a client dialed; shows the face of ``router.wire.engine.Engine``."""

    header = PROTOCOL_HEADER
    versions: ClassVar[dict[bytes, tuple[int, int]]] = {PROTOCOL_HEADER: VERSION}
    channel_type = DraftServerChannel
    channels: dict[int, DraftServerChannel]  # type: ignore[assignment]

    def __init__(self, settings: EngineSettings) -> None:
        super().__init__(settings)
        self.outgoing = DraftOutgoing()

    def take_run(self, octets: bytes, at: int, end: int) -> int:
        """Takes publishes as most are: a method that has come before, a header, and one body."""
        after = at
        while after >= 0 and self.phase is Phase.OPENED:
            at = after
            after = self._take_publish(octets, at, end)
        return max(at, after)

    def _take_publish(self, octets: bytes, at: int, end: int) -> int:
        """Takes a publish; returns where it ends, -1: it is left to the general way."""
        head = FRAMING.head_octets
        method_end = at + head + int.from_bytes(octets[at + 4 : at + head], "big")
        found = self.known_methods.get(octets[at + head : method_end])
        header_at = method_end + 1
        if found is None or type(found[1]) is not m.BasicPublish or end - header_at < _HEADER.size:
            return -1
        kind, number, size, class_id, weight, body_octets = _HEADER.unpack_from(octets, header_at)
        body_at = header_at + head + size + 1
        start = body_at + head
        after: int = start + body_octets + 1
        channel = self.channels.get(number)
        is_whole = (
            after <= end
            and size >= HEADER_OCTETS
            and 0 < body_octets <= self.frame_limit >= size
            and (class_id, weight) == (d.BASIC_CLASS, 0)
            and octets[at : at + head] == _head(FrameType.METHOD, number, method_end - at - head)
            and kind == FrameType.HEADER
            and octets[body_at:start] == _head(FrameType.BODY, number, body_octets)
            and octets[method_end] == octets[body_at - 1] == octets[after - 1] == END_OCTET
        )
        if not is_whole or channel is None or not channel.is_ready:
            return -1
        properties = octets[header_at + head + 12 : body_at - 1]
        header = encode_content_header(body_octets, properties)
        try:
            channel.take_publish(found[1], header, octets[start : after - 1])
        except PeerError as error:
            self.fault(error, channel)
        return after

    def check_open(self, method: m.ChannelOpen) -> None:
        """Refuses a channel whose payload is to travel elsewhere."""
        if method.reserved_1:
            raise PeerError(Reply.NOT_IMPLEMENTED, f"out-of-band {method.reserved_1!r}", 20, 10)
