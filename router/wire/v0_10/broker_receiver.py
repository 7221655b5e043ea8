"""A receiving link from a broker: a subscription with credit.

Theory of operation. The subscription is made with the link, in mode credit, with infinite credit in
octets; credit in messages follows the core's. 0-10 can only add to credit, so the broker's unused
credit is counted here, and revoking credit means ``message.stop`` and granting the remainder anew::

    more credit than the broker has     message.flow with the difference
    less                                message.stop; when that is complete, message.flow
    drain                               message.flush; when that is complete, nothing is left

A message that arrives before a stop is complete was within the credit, and is reported all the
same: the protocol can return it only by ``message.release``, which is what the core would do.

A transfer is completed as soon as it is received, which lets the broker drop no more than its
replay copy; its outcome is sent by::

    accepted                     message.accept
    released, or no state        message.release
    modified                     message.release, set-redelivered
    rejected                     message.reject, unspecified, with the condition

The source of a link may be an exchange, ``exchange/key``: then an exclusive queue of our own is
bound to it, and deleted with the link.
"""

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Final

from router.errors import DecodeError
from router.model.capabilities import Protocol
from router.model.commands import AttachLink
from router.model.delivery import ReceivedDelivery
from router.model.events import CreditReturned
from router.model.identity import DeliveryNumber, DeliveryTag
from router.model.outcome import Accepted, DeliveryState, Modified, Rejected
from router.model.terminus import SenderSettleMode
from router.wire.machine import Handlers
from router.wire.v0_10 import marks
from router.wire.v0_10 import message as messages
from router.wire.v0_10 import records as r
from router.wire.v0_10.broker_session import BrokerSession
from router.wire.v0_10.client_links import ClientLinks
from router.wire.v0_10.posts import ACCEPT_EXPLICIT, ACCEPT_NONE, tag_of
from router.wire.v0_10.ranges import ranges_of
from router.wire.v0_10.reply import RejectCode, short_text
from router.wire.v0_10.subscription import INFINITE, MODE_CREDIT, UNIT_BYTE, UNIT_MESSAGE

DESTINATION: Final = "router"
"""Each session has one subscription."""

_STOPPED, _FLUSHED = "stopped", "flushed"
"""Notes of commands on whose completion the credit depends."""


class BrokerReceiver(BrokerSession):
    """A receiving link from a broker."""

    def __init__(self, engine: ClientLinks, channel: int, command: AttachLink) -> None:
        super().__init__(engine, channel, command)
        self._settles = command.sender_settle_mode is SenderSettleMode.SETTLED
        self._credit = 0  # granted by the core
        self._granted = 0  # granted to the broker
        self._is_stopping = False
        self._is_draining = False
        self._is_held = False
        self.beside = 0
        self._has_own_queue = False
        self._queue = ""
        self._open: dict[int, None] = {}  # transfers without an outcome for the broker, ascending
        self._held: list[ReceivedDelivery] = []
        self._accepted: list[int] = []
        self._released: list[int] = []
        self._redelivered: list[int] = []

    def script(self) -> list[r.Command]:
        """Checks that the queue exists, or binds a queue of our own to the exchange; subscribes."""
        node = self.node()
        commands: list[r.Command] = []
        if node is None or node.queue is not None:
            self._queue = "" if node is None else node.queue or ""
            commands = [self.find_queue(self._queue)]
        else:
            self._has_own_queue = True
            self._queue = f"{self.engine.settings.container}.{self.link}"
            commands = [self.find_exchange(node.exchange)] if node.exchange else []
            commands += [
                r.QueueDeclare(queue=self._queue, exclusive=True, auto_delete=True),
                r.ExchangeBind(
                    queue=self._queue, exchange=node.exchange, binding_key=node.routing_key
                ),
            ]
        mode = ACCEPT_NONE if self._settles else ACCEPT_EXPLICIT
        return [
            *commands,
            r.MessageSubscribe(
                queue=self._queue, destination=DESTINATION, accept_mode=mode, acquire_mode=0
            ),
            r.MessageSetFlowMode(DESTINATION, MODE_CREDIT),
            r.MessageFlow(DESTINATION, UNIT_BYTE, INFINITE),
        ]

    def broker_forgot(self) -> None:
        """Records that the broker has lost the session: open transfers will come again as new."""
        super().broker_forgot()
        self._open.clear()
        self._granted = 0
        self._held.clear()
        self._accepted.clear()
        self._released.clear()
        self._redelivered.clear()

    def ready(self) -> None:
        """Reports to the core that the link is attached; what is open is resumed."""
        super().ready()
        if self._open and self.is_kept:
            reported = [number for number in self._open if not self._is_waiting(number)]
            again = [
                ReceivedDelivery(
                    DeliveryNumber(number), tag_of(number), b"", Protocol.AMQP_0_10, resume=True
                )
                for number in reported
            ]
            if again:
                self.engine.runs.receive_all(self.link, again)
        self._follow()

    def _is_waiting(self, number: int) -> bool:
        return any(each.number == number for each in self._held)

    def open_tags(self) -> Iterable[DeliveryTag]:
        """Returns the tags of received deliveries that are unsettled."""
        return [tag_of(number) for number in self._open]

    # --- credit -----------------------------------------------------------------------------------

    def grant(self, credit: int, drain: bool) -> None:
        """Handles credit from the core."""
        self._credit = credit
        self._is_draining = drain
        if self.is_ready:
            self._report_held()
            self._follow()

    def hold(self, held: bool) -> None:
        """Stops or resumes reporting; the credit bounds deliveries meanwhile."""
        self._is_held = held
        self._report_held()

    def _follow(self) -> None:
        """Takes the next step that credit and drain require, if none is under way."""
        if self._is_stopping or not self.is_ready:
            return
        if self._granted > self._credit:
            self._is_stopping = True
            self.send(r.MessageStop(DESTINATION), sync=True, note=_STOPPED)
        elif self._granted < self._credit:
            self._flow(self._credit - self._granted)
        if self._is_draining and not self._is_stopping:
            self._is_stopping = True
            self.send(r.MessageFlush(DESTINATION), sync=True, note=_FLUSHED)

    def _flow(self, credit: int) -> None:
        self._granted += credit
        self.send(r.MessageFlow(DESTINATION, UNIT_MESSAGE, credit))

    def completed_by_broker(self, number: int, note: Any) -> None:
        """Continues when the broker's credit is known to be void."""
        self._is_stopping = False
        self._granted = 0
        self.send(r.MessageFlow(DESTINATION, UNIT_BYTE, INFINITE))
        if note == _FLUSHED:
            self._is_draining = False
            self._credit = 0
            self.engine.runs.add(CreditReturned(self.link, 0))
        self._follow()

    # --- deliveries -------------------------------------------------------------------------------

    def _take_transfer(
        self, number: int, command: r.MessageTransfer, header: bytes, body: bytes
    ) -> None:
        if not self.is_sure:
            return  # it was sent to an earlier process, and comes again when that session has ended
        self.complete(number)
        self._granted = max(self._granted - 1, 0)
        settled = self._settles or bool(command.accept_mode)
        delivery = delivery_of(number, messages.make_content(b"", header, body), settled)
        if not settled:
            self._open[number] = None
        if self._is_held or self._held:
            self._held.append(delivery)
        else:
            self._report(delivery)

    def _report(self, delivery: ReceivedDelivery) -> None:
        self._credit = max(self._credit - 1, 0)
        self.engine.runs.receive(self.link, delivery)

    def _report_held(self) -> None:
        if not self._is_held:
            held, self._held = self._held, []
            for delivery in held:
                self._report(delivery)

    # --- outcomes ---------------------------------------------------------------------------------

    def update(self, numbers: Sequence[DeliveryNumber], state: DeliveryState | None) -> None:
        """Gathers outcomes for the broker, which settle the deliveries."""
        known = [number for number in numbers if number in self._open]
        for number in known:
            del self._open[number]
        if not known:
            return
        match state:
            case Accepted():
                self._accepted += known
            case Rejected(error=error):
                text = None if error is None else short_text(str(error))
                self._send_set(r.MessageReject(_joined(known), RejectCode.UNSPECIFIED, text))
            case Modified():
                self._redelivered += known
            case _:
                self._released += known
        self.client.settling[self.channel] = self

    def _send_set(self, command: r.Command) -> None:
        self.send(command)

    def write_gathered(self) -> None:
        """Writes the gathered outcomes."""
        if self._accepted:
            accepted, self._accepted = self._accepted, []
            self._send_set(r.MessageAccept(_joined(accepted)))
        if self._released:
            released, self._released = self._released, []
            self._send_set(r.MessageRelease(_joined(released)))
        if self._redelivered:
            redelivered, self._redelivered = self._redelivered, []
            self._send_set(r.MessageRelease(_joined(redelivered), set_redelivered=True))

    # --- end --------------------------------------------------------------------------------------

    def ended(self, *, is_over: bool) -> None:
        """Resets the credit for the time when the session comes back."""
        self._is_stopping = self._is_draining = False
        self._credit = 0

    def unsubscribe(self) -> None:
        """Ends the link; a queue of our own goes with it."""
        self.detach(True, None)

    def detach(self, closed: bool, condition: Any) -> None:
        """Ends the link; unsettled deliveries are requeued when the session ends."""
        if self._has_own_queue and self.is_ready and self.is_attached and closed:
            self.send(r.QueueDelete(self._queue))
        super().detach(closed, condition)

    handlers: ClassVar[Handlers] = {
        **BrokerSession.handlers,
        r.MessageTransfer: _take_transfer,
    }


def delivery_of(number: int, content: bytes, settled: bool) -> ReceivedDelivery:
    """Creates the delivery of a broker's transfer."""
    ttl, count = _ttl_and_count_of(content)
    return ReceivedDelivery(
        DeliveryNumber(number),
        tag_of(number),
        content,
        Protocol.AMQP_0_10,
        0,
        settled,
        ttl_milliseconds=ttl,
        delivery_count=count,
    )


def _ttl_and_count_of(content: bytes) -> tuple[int | None, int]:
    """Reads ttl and delivery-count; invalid properties are ignored."""
    try:
        layout = messages.content_layout(content)
        header = content[layout.header_at : layout.body_at]
        delivery = messages.delivery_properties(header)
        if delivery is None:
            return None, 0
        count = int(delivery.redelivered)
        if count:
            _, properties, _ = messages.read_header(header)
            value = (properties.application_headers or {}).get(marks.DELIVERY_COUNT)
            count = max(count, marks.count_of(value) or 0)
        return messages.milliseconds_left(delivery), count
    except DecodeError:
        return None, 0


def _joined(numbers: Sequence[int]) -> tuple[tuple[int, int], ...]:
    return tuple(ranges_of(sorted(numbers)))
