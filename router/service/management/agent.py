"""The management agent: a client within the router that answers requests to ``$management``.

Theory of operation. The agent runs beside the admin endpoint. It makes a socket pair, hands one end
to a worker as if a listener named ``$management`` had accepted it, and speaks AMQP 1.0 on the
other. The worker gives this peer the identity ``management_identity``, with which no other peer can
log in, so the agent may receive from the node and reply to any address. Requests are routed like
other messages: the policy decides who may send to ``$management``, and clients of other workers
reach the agent like any receiver. When the connection ends, because its worker ended, the agent
makes another.
"""

import itertools
import socket
from collections.abc import Callable
from typing import Any, Final

import attrs
import structlog
import trio

from router.model.commands import (
    AttachLink,
    GrantCredit,
    SendDeliveries,
    UpdateDeliveries,
)
from router.model.delivery import OutgoingDelivery, ReceivedDelivery
from router.model.events import (
    ConnectionOpened,
    CreditGranted,
    DeliveriesReceived,
    Event,
    LinkAttached,
    LinkDetached,
)
from router.model.identity import DeliveryNumber, DeliveryTag, LinkId, LinkName
from router.model.outcome import ACCEPTED
from router.model.terminus import Role, Source, Target
from router.net.sockets import receive_some, send_all
from router.service.admin.api import Api
from router.service.admin.history import History
from router.service.config.load import MANAGEMENT
from router.service.fleet import RouterControl
from router.service.management.node import ManagementNode
from router.wire.engine import EngineSettings
from router.wire.mechanisms import MechanismClient
from router.wire.v1_0.engine import Engine10

RETRY_SECONDS: Final = 0.5
CREDIT: Final = 16
"""Credit for requests; each may produce a list of thousands, one after the other."""

_REQUESTS: Final = LinkId(1)
_REPLIES: Final = LinkId(2)
_RECEIVE_OCTETS: Final = 1 << 16

Admit = Callable[[socket.socket, str], None]


@attrs.define(eq=False)
class ManagementAgent:
    """Serves the management node until it is cancelled.

    Attributes:
        control: the router.
        admit: hands a socket to a worker, with the name of a listener.
    """

    control: RouterControl
    admit: Admit
    history: History = attrs.field(factory=History, init=False)
    _log: Any = attrs.field(factory=structlog.get_logger, init=False)

    async def run(self) -> None:
        """Serves until cancelled; a failure here never ends the router."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.history.run, self.control)
                while True:
                    await self._converse()
                    await trio.sleep(RETRY_SECONDS)
        except Exception:  # noqa: BLE001  traffic goes on without it
            self._log.exception("management.failed")

    async def _converse(self) -> None:
        ours, theirs = socket.socketpair()
        for each in (ours, theirs):
            each.setblocking(False)
        self.admit(theirs, MANAGEMENT)
        with ours:
            node = ManagementNode(Api(self.control, self.history))
            try:
                await _Conversation(node, ours).run()
            except OSError:
                return


def _engine() -> Engine10:
    return Engine10(
        EngineSettings(
            is_server=False,
            container=MANAGEMENT,
            sasl_client=lambda: MechanismClient(has_certificate=True),
        )
    )


@attrs.define(eq=False)
class _Conversation:
    """One connection: requests arrive on one link, replies are sent on another."""

    node: ManagementNode
    sock: socket.socket
    _engine: Engine10 = attrs.field(factory=_engine, init=False)
    _requests: list[ReceivedDelivery] = attrs.field(factory=list, init=False)
    _credit: int = attrs.field(default=0, init=False)
    _numbers: Any = attrs.field(factory=itertools.count, init=False)
    _is_over: bool = attrs.field(default=False, init=False)

    async def run(self) -> None:
        """Answers requests until the connection or one of the links ends."""
        await self._flush()
        while not (self._engine.finished or self._is_over):
            octets: bytes | None = None
            deadline = self._engine.deadline
            with trio.move_on_at(float("inf") if deadline is None else deadline):
                octets = await receive_some(self.sock, _RECEIVE_OCTETS)
            now = trio.current_time()
            if octets is None:
                events = self._engine.handle_deadline(now)
            elif octets:
                events = self._engine.receive_data(octets, now)
            else:
                return
            for event in events:
                self._take(event)
            await self._answer_requests()
            await self._flush()

    def _take(self, event: Event) -> None:
        match event:
            case ConnectionOpened():
                self._attach()
            case LinkAttached(link=link) if link == _REQUESTS:
                self._engine.execute(GrantCredit(_REQUESTS, CREDIT))
            case CreditGranted(link=link, credit=credit) if link == _REPLIES:
                self._credit = credit
            case DeliveriesReceived(deliveries=deliveries):
                self._requests += deliveries
            case LinkDetached():
                self._is_over = True
            case _:
                pass

    def _attach(self) -> None:
        name = LinkName(MANAGEMENT)
        self._engine.execute(
            AttachLink(
                link=_REQUESTS,
                name=name,
                role=Role.RECEIVER,
                source=Source(address=MANAGEMENT),
                target=Target(address=MANAGEMENT),
            )
        )
        self._engine.execute(
            AttachLink(
                link=_REPLIES,
                name=name,
                role=Role.SENDER,
                source=Source(address=MANAGEMENT),
                target=Target(address=None),
            )
        )

    async def _answer_requests(self) -> None:
        """Answers requests as far as the credit for replies allows."""
        while self._requests and self._credit:
            request = self._requests.pop(0)
            answer = await self.node.answer(bytes(request.payload))
            if answer is not None:
                number = next(self._numbers)
                tag = DeliveryTag(number.to_bytes(8, "big"))
                reply = OutgoingDelivery(DeliveryNumber(number), tag, answer[1], settled=True)
                self._credit -= 1
                self._engine.execute(SendDeliveries(_REPLIES, [reply]))
            if not request.settled:
                settled = UpdateDeliveries(_REQUESTS, [request.number], ACCEPTED, settled=True)
                self._engine.execute(settled)
            self._engine.execute(GrantCredit(_REQUESTS, CREDIT - len(self._requests)))
            await self._flush()

    async def _flush(self) -> None:
        while octets := bytes(self._engine.data_to_send()):
            self._engine.bytes_sent(len(octets))
            await send_all(self.sock, octets)
