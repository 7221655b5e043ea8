"""The side that dials brokers of the draft.

Theory of operation. Links are channels, as in 0-9-1 (``router.wire.v0_9_1.client``). The draft has
no
confirms, so a link whose deliveries have outcomes is transactional: each publish is ``mandatory``
and a transaction of its own, and the answer is not awaited before the next publish::

    commit-ok                       accepted, unless it was returned before
    basic.return 312, 404           rejected, amqp:not-found
    basic.return 310, 313           released
    basic.return, others            rejected
    channel.close                   the link is detached; open deliveries stay in doubt

Answers arrive in order, so an outcome is known when all earlier ones are.

Consumers have their prefetch; the broker names them.
"""

from collections import deque
from typing import ClassVar, Final

from router.model.commands import AttachLink
from router.model.delivery import OutgoingDelivery
from router.model.outcome import ACCEPTED, RELEASED, DeliveryState, Rejected
from router.wire.alternatives import read_known_hosts
from router.wire.engine import EngineSettings
from router.wire.v0_9_1 import methods as m
from router.wire.v0_9_1.broker_channel import BrokerChannel
from router.wire.v0_9_1.broker_receiver import BrokerReceiver
from router.wire.v0_9_1.broker_sender import BrokerSender
from router.wire.v0_9_1.channel import ContentHandlers, MethodHandlers
from router.wire.v0_9_1.client import ClientEngine
from router.wire.v0_9_1.outgoing import Ready
from router.wire.v0_9_1.reply import Reply, condition_of
from router.wire.v0_9r1 import methods as d
from router.wire.v0_9r1.channel import DraftChannel
from router.wire.v0_9r1.framing import PROTOCOL_HEADER, VERSION
from router.wire.v0_9r1.machine import DraftMachine
from router.wire.v0_9r1.outgoing import DraftOutgoing

_UNROUTABLE: Final = frozenset({Reply.NO_ROUTE, Reply.NOT_FOUND})
_GIVEN_BACK: Final = frozenset({Reply.NOT_DELIVERED, Reply.NO_CONSUMERS})

_ANSWERS: Final[MethodHandlers] = dict.fromkeys(
    (
        m.ChannelOpenOk,
        m.QueueDeclareOk,
        m.QueueBindOk,
        m.ExchangeDeclareOk,
        m.TxSelectOk,
        m.BasicGetEmpty,
        d.BasicConsumeOk,
        d.BasicCancelOk,
    ),
    BrokerChannel._take_answer,
)


class DraftSender(DraftChannel, BrokerSender):
    """A sending link to a broker."""

    passes_on = False
    ends_with_queue = False

    machine: "DraftClient"

    def __init__(self, engine: "DraftClient", number: int, command: AttachLink) -> None:
        super().__init__(engine, number, command)
        self._commits: deque[int] = deque()  # the publish of each

    def ask_for_outcomes(self) -> tuple[m.Method, type]:
        """The request for outcomes of publishes, and the type of its answer."""
        return m.TxSelect(), m.TxSelectOk

    def _publish(self, delivery: OutgoingDelivery, ready: Ready) -> None:
        super()._publish(delivery, ready)
        if self._confirms:
            self._commits.append(self._unconfirmed.published)
            self.send(m.TxCommit())

    def _take_commit_ok(self, method: m.TxCommitOk) -> None:
        if not self._commits:
            raise self.unwanted(method)
        self._decide(self._commits.popleft(), True, ACCEPTED)

    def returned(self, method: m.BasicReturn) -> DeliveryState:
        """Returns the outcome of a returned publish."""
        if method.reply_code in _UNROUTABLE:
            return super().returned(method)
        if method.reply_code in _GIVEN_BACK:
            return RELEASED
        return Rejected(condition_of(method.reply_code, method.reply_text))

    handlers: ClassVar[MethodHandlers] = {
        **_ANSWERS,
        m.ChannelClose: BrokerSender.take_close,
        m.ChannelFlow: BrokerSender._take_flow,
        m.TxCommitOk: _take_commit_ok,
    }


class DraftReceiver(DraftChannel, BrokerReceiver):
    """A receiving link from a broker."""

    unbinds = False

    def __init__(self, engine: "DraftClient", number: int, command: AttachLink) -> None:
        super().__init__(engine, number, command)
        self._tag = 0

    def start_consumer(self, queue: str, prefetch: int) -> None:
        """Requests a consumer."""
        self.ask(d.BasicConsume(queue=queue, prefetch_count=prefetch), d.BasicConsumeOk)

    def stop_consumer(self) -> None:
        """Requests its end."""
        self.ask(d.BasicCancel(self._tag), d.BasicCancelOk)

    def answered(self, method: m.Method) -> None:
        """Moves the consumer to its next state."""
        if isinstance(method, d.BasicConsumeOk):
            self._tag = method.consumer_tag
            method = m.BasicConsumeOk()
        elif isinstance(method, d.BasicCancelOk):
            method = m.BasicCancelOk()
        super().answered(method)

    handlers: ClassVar[MethodHandlers] = {
        **_ANSWERS,
        m.ChannelClose: BrokerReceiver.take_close,
        m.ChannelFlow: BrokerReceiver._take_flow,
    }
    content_handlers: ClassVar[ContentHandlers] = {
        d.BasicDeliver: BrokerReceiver._take_deliver,
        m.BasicGetOk: BrokerReceiver._take_get_ok,
    }


class DraftClient(DraftMachine, ClientEngine):
    """One connection that we dialed; implements ``router.wire.engine.Engine``."""

    header = PROTOCOL_HEADER
    version = VERSION
    sender_type = DraftSender
    receiver_type = DraftReceiver

    def __init__(self, settings: EngineSettings) -> None:
        super().__init__(settings)
        self.outgoing = DraftOutgoing()

    def alternatives_of(self, method: m.ConnectionOpenOk) -> object:
        """Returns the other places that open-ok names in ``known-hosts``."""
        return read_known_hosts(method.reserved_1) if method.reserved_1 else None
