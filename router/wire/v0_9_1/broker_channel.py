"""A channel towards a broker: one link, from its first check to its close.

Theory of operation. Every link of the core's has a channel of its own, so that an error of the
broker ends one link and no other. The channel is opened, then a short script runs, one answer at a
time: the node of the link must exist (passive declares), unless the route asks to declare it. Then
``LinkAttached`` is emitted.

    AttachLink -> channel.open -> script -> LinkAttached            (ready)
                              \\-> channel.close -> LinkAttached without terminus, LinkDetached

A route asks for declaring by ``properties["declare"]`` of its ``AttachLink``: true, or a map with
``durable`` (default true), ``type`` (of an exchange, default topic), ``auto-delete``, ``exclusive``
and, for queues, ``arguments``.
"""

from collections import deque
from collections.abc import Mapping
from typing import Any, ClassVar, Final

from router.model.commands import AttachLink
from router.model.condition import INVALID_FIELD, RESOURCE_LIMIT_EXCEEDED, Condition
from router.model.events import LinkAttached, LinkDetached
from router.model.terminus import Coordinator, Role
from router.wire.exchange_names import NAME_OCTETS, BrokerNode, ExchangeType
from router.wire.topics import has_wildcards
from router.wire.v0_9_1 import methods as m
from router.wire.v0_9_1.channel import Channel, ChannelPhase, End, MethodHandlers
from router.wire.v0_9_1.client_links import ClientLinks
from router.wire.v0_9_1.names import broker_node
from router.wire.v0_9_1.reply import PeerError, Reply, condition_of

DECLARE: Final = "declare"
"""Property of ``AttachLink``."""


class BrokerChannel(Channel):
    """One link of the core's to a broker.

    Attributes:
        command: the attach that requested it.
        link: the link's identity.
        is_attached: ``LinkAttached`` has been emitted.
    """

    machine: ClientLinks

    def __init__(self, engine: ClientLinks, number: int, command: AttachLink) -> None:
        super().__init__(engine, number, ChannelPhase.OPENING)
        self.command = command
        self.link = command.link
        self.is_attached = False
        self._awaited: deque[type] = deque()
        self._script: deque[tuple[m.Method, type]] = deque()

    def start(self) -> None:
        """Opens the channel and runs the script."""
        self.ask(m.ChannelOpen(), m.ChannelOpenOk)
        self._script.extend(self.script())

    def script(self) -> list[tuple[m.Method, type]]:
        """Requests to the broker before the link is attached, and the types of their answers."""
        raise NotImplementedError

    def ready(self) -> None:
        """Handles the end of the script: emits ``LinkAttached``."""
        command = self.command
        self.is_attached = True
        self.machine.runs.add(
            LinkAttached(
                link=self.link,
                name=command.name,
                role=command.role,
                is_answer=True,
                source=command.source,
                target=command.target,
                sender_settle_mode=command.sender_settle_mode,
            )
        )

    # --- asking -----------------------------------------------------------------------------------

    def ask(self, method: m.Method, answer: type) -> None:
        """Sends a method that has an answer."""
        self._awaited.append(answer)
        self.send(method)

    def _take_answer(self, method: m.Method) -> None:
        if not self._awaited or self._awaited[0] is not type(method):
            raise self.unwanted(method)
        self._awaited.popleft()
        if self.phase is ChannelPhase.OPENING:
            self.phase = ChannelPhase.OPEN
        self.answered(method)
        if self.is_attached or self._awaited:
            return
        if self._script:
            self.ask(*self._script.popleft())
        else:
            self.ready()

    def answered(self, method: m.Method) -> None:
        """Handles an answer."""

    def _take_flow(self, method: m.ChannelFlow) -> None:
        self.send(m.ChannelFlowOk(method.active))
        self.flow(method.active)

    def flow(self, active: bool) -> None:
        """Handles the broker's channel.flow: content is to stop or to resume."""

    # --- declaring --------------------------------------------------------------------------------

    @property
    def address(self) -> str | None:
        """The address of the link on the broker."""
        command = self.command
        terminus = command.target if command.role is Role.SENDER else command.source
        if terminus is None or isinstance(terminus, Coordinator):
            return None
        return terminus.address

    def node(self) -> BrokerNode | None:
        """Reads the link's address; None for the anonymous terminus."""
        address = self.address
        return None if address is None else broker_node(address)

    def _declaring(self) -> Mapping[str, Any] | None:
        declared = self.command.properties.get(DECLARE)
        if isinstance(declared, Mapping):
            return declared
        return {} if declared else None

    def declare_queue(self, queue: str) -> tuple[m.Method, type]:
        """Checks that a queue exists, or declares it, as the route says."""
        declared = self._declaring()
        if declared is None:
            return m.QueueDeclare(queue=queue, passive=True), m.QueueDeclareOk
        declare = m.QueueDeclare(
            queue=queue,
            durable=bool(declared.get("durable", True)),
            exclusive=bool(declared.get("exclusive", False)),
            auto_delete=bool(declared.get("auto-delete", False)),
            arguments=dict(declared.get("arguments", {})),
        )
        return declare, m.QueueDeclareOk

    def declare_exchange(self, exchange: str, key: str = "") -> tuple[m.Method, type]:
        """Checks that an exchange exists, or declares it, as the route says.

        A key with wildcards wants a topic exchange. Brokers do not compare types where they only
        check, but a router that is our broker learns the type from that.
        """
        declared = self._declaring()
        if declared is None or exchange.startswith("amq."):
            kind = ExchangeType.TOPIC if has_wildcards(key) else ExchangeType.DIRECT
            check = m.ExchangeDeclare(exchange=exchange, type=kind.value, passive=True)
            return check, m.ExchangeDeclareOk
        declare = m.ExchangeDeclare(
            exchange=exchange,
            type=str(declared.get("type", "topic")),
            durable=bool(declared.get("durable", True)),
            auto_delete=bool(declared.get("auto-delete", False)),
        )
        return declare, m.ExchangeDeclareOk

    # --- end --------------------------------------------------------------------------------------

    def detach(self, closed: bool, condition: Condition | None) -> None:
        """Ends the link as ordered by the core."""
        self.give_back()
        self._report_end(closed, condition)
        self.machine.flush()
        self.phase = ChannelPhase.CLOSING
        self.send(m.ChannelClose(reply_code=Reply.SUCCESS, reply_text="detached"))

    def fail(self, condition: Condition) -> None:
        """Ends the link for a reason that is not the end of the channel."""
        self.detach(True, condition)

    def ended(self, reason: End | None) -> None:
        """Reports to the core why the link is gone."""
        if reason is not None:
            self.give_back()
        match reason:
            case m.ChannelClose():
                condition = condition_of(reason.reply_code, reason.reply_text)
                self._report_end(True, condition)
            case PeerError():
                self._report_end(True, condition_of(reason.code, reason.text))
            case m.ConnectionClose() | None:
                self.machine.links.pop(self.link, None)  # the connection's end says it all

    def _report_end(self, closed: bool, condition: Condition | None) -> None:
        if self.machine.links.pop(self.link, None) is None:
            return
        if not self.is_attached:
            self.machine.refuse_attach(self.command)
        self.machine.runs.add(LinkDetached(self.link, closed, condition))

    def give_back(self) -> None:
        """Returns unsent deliveries to the core."""

    handlers: ClassVar[MethodHandlers] = {
        m.ChannelOpenOk: _take_answer,
        m.ChannelClose: Channel.take_close,
        m.ChannelFlow: _take_flow,
        m.QueueDeclareOk: _take_answer,
        m.QueueBindOk: _take_answer,
        m.QueueUnbindOk: _take_answer,
        m.ExchangeDeclareOk: _take_answer,
        m.ConfirmSelectOk: _take_answer,
        m.BasicQosOk: _take_answer,
        m.BasicConsumeOk: _take_answer,
        m.BasicCancelOk: _take_answer,
        m.BasicGetEmpty: _take_answer,
    }


NO_NAME: Final = Condition(
    INVALID_FIELD, f"a name in the address has more than {NAME_OCTETS} octets"
)
NO_CHANNEL: Final = Condition(RESOURCE_LIMIT_EXCEEDED, "the broker allows no more channels")
