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

from collections.abc import Sequence
from typing import ClassVar, Final

from router.model import condition as conditions
from router.model.outcome import DeliveryState, Rejected
from router.wire.engine import EngineSettings
from router.wire.v0_9_1 import methods as m
from router.wire.v0_9_1.publishing import Publishing
from router.wire.v0_9_1.reply import PeerError, Reply
from router.wire.v0_9_1.server import ServerEngine
from router.wire.v0_9_1.server_channel import ServerChannel
from router.wire.v0_9r1 import methods as d
from router.wire.v0_9r1.channel import DraftChannel
from router.wire.v0_9r1.framing import PROTOCOL_HEADER, VERSION
from router.wire.v0_9r1.machine import DraftMachine
from router.wire.v0_9r1.outgoing import DraftOutgoing

MAX_CONSUMERS: Final = 0xFFFF
"""On a channel: a consumer tag is a number of 16 bits, and 0 is none."""


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

    def __init__(self, settings: EngineSettings) -> None:
        super().__init__(settings)
        self.outgoing = DraftOutgoing()

    def check_open(self, method: m.ChannelOpen) -> None:
        """Refuses a channel whose payload is to travel elsewhere."""
        if method.reserved_1:
            raise PeerError(Reply.NOT_IMPLEMENTED, f"out-of-band {method.reserved_1!r}", 20, 10)
