"""A receiving link from a server: HANDLE CONSUME, NOTIFY, and acknowledgments.

Theory of operation. The protocol has no credit but a prefetch: how many messages may be
unacknowledged. The subscription is made with the first credit, which becomes its prefetch, at least
``LEAST_PREFETCH``: it cannot be changed later. So the server may exceed the credit within the
prefetch; such messages are *held* here until credit is granted.

    IDLE      credit             -> ACTIVE     HANDLE CONSUME
    ACTIVE    no credit, drain   -> PAUSING    HANDLE FLOW, to be confirmed
    PAUSING   confirmed          -> PAUSED     a drain is answered
    PAUSED    credit             -> ACTIVE     HANDLE FLOW, when no message is held any more

Messages sent before the confirmation of HANDLE FLOW arrive before it, so a drain is exact.

Held messages outlast a pause: HANDLE UNGET says that a client was unable to process a message, and
servers count that as a failed attempt. They are ungot when there has been no credit for a while
(``wire.holding``), when the core returns others meanwhile, since then nobody takes them, and
otherwise by the end of the link. A topic takes nothing back, so its messages stay.

Outcomes. CHANNEL ACK is cumulative: it is sent when all messages up to it are decided. Returned
messages are ungot before that (§3.5.7)::

    accepted                          CHANNEL ACK
    released, modified                HANDLE UNGET, for queues
    rejected                          HANDLE UNGET, for queues; CHANNEL ACK if it was redelivered
    any of these, for topics          CHANNEL ACK: it cannot be returned

The protocol has no word for a rejected message. It is returned once, since an ACK would lose it,
and the server may deliver it to another client. One that is rejected although the server says that
it was delivered before would come for ever; the ACK ends it, as a broker without a dead-letter
exchange drops rejected messages.
"""

import enum
from collections import deque
from collections.abc import Sequence
from typing import ClassVar, Final

from router.model.capabilities import Protocol
from router.model.commands import AttachLink
from router.model.delivery import ReceivedDelivery
from router.model.events import CreditReturned
from router.model.identity import DeliveryNumber, DeliveryTag
from router.model.outcome import DeliveryState, Rejected
from router.model.terminus import SenderSettleMode
from router.wire.fast import commands as c
from router.wire.fast.client_links import ClientLinks
from router.wire.fast.framing import frame
from router.wire.fast.handle import Service
from router.wire.fast.message import body_octets, head_octets, payload_prefix
from router.wire.fast.reply import PeerError, Reply, is_acknowledged
from router.wire.fast.server_link import CONSUME_TAG, FLOW_TAG, ServerLink, ServerLinkState
from router.wire.machine import Handlers

LEAST_PREFETCH: Final = 64
MAX_PREFETCH: Final = 0xFFFF


class Consuming(enum.Enum):
    """The state of the subscription (see the module)."""

    IDLE = "idle"
    ACTIVE = "active"
    PAUSING = "pausing"
    PAUSED = "paused"


class ServerReceiver(ServerLink):
    """A receiving link from a server."""

    is_producer = False

    def __init__(self, engine: ClientLinks, number: int, command: AttachLink) -> None:
        super().__init__(engine, number, command)
        self._settles = command.sender_settle_mode is SenderSettleMode.SETTLED
        self._consuming = Consuming.IDLE
        self._credit = 0
        self._is_draining = False
        self._is_held = False
        self.beside = 0
        self._held: deque[ReceivedDelivery] = deque()
        self._open: dict[int, bool] = {}  # message number → is decided; ascending
        self._redelivered: set[int] = set()  # those of them that were redelivered

    # --- the subscription -------------------------------------------------------------------------

    def opened(self) -> None:
        """Records that the link is attached."""
        self._follow()

    def grant(self, credit: int, drain: bool) -> None:
        """Handles credit from the core; 0 stops the server."""
        self._credit = credit
        self._is_draining = drain
        if self.state is ServerLinkState.OPEN:
            self._report_held()
            self._follow()

    def hold(self, held: bool) -> None:
        """Stops or resumes reporting; the prefetch bounds messages meanwhile."""
        self._is_held = held
        self._report_held()

    def _follow(self) -> None:
        """Takes the next step that credit and drain require."""
        wants = self._credit > 0 and not self._is_draining
        match self._consuming:
            case Consuming.IDLE if wants:
                self._consuming = Consuming.ACTIVE
                prefetch = min(max(self._credit, LEAST_PREFETCH), MAX_PREFETCH)
                self.engine.send(
                    c.HandleConsume(self.number, CONSUME_TAG, prefetch, unreliable=self._settles)
                )
            case Consuming.ACTIVE if not wants:
                self._consuming = Consuming.PAUSING
                self.engine.send(c.HandleFlow(self.number, FLOW_TAG, True))
            case Consuming.PAUSED if wants:
                self._consuming = Consuming.ACTIVE
                self.engine.send(c.HandleFlow(self.number, 0, False))
            case Consuming.IDLE | Consuming.PAUSED if self._is_draining:
                self._drained()
        self.engine.holding.watch(self, self.engine.now, waits=self._waits)

    @property
    def _waits(self) -> bool:
        """Whether messages are held for which nobody grants credit, and that may be returned."""
        is_paused = self._consuming is Consuming.PAUSED and not self._credit
        return is_paused and bool(self._held) and self.where.service is not Service.TOPIC

    def _drained(self) -> None:
        self._is_draining = False
        self._credit = 0
        self.engine.runs.add(CreditReturned(self.link, 0))

    def take_reply(self, command: c.HandleReply) -> None:
        """Handles the confirmation of HANDLE OPEN or FLOW."""
        if self.state is ServerLinkState.OPENING:
            super().take_reply(command)
        elif command.confirm_tag == FLOW_TAG and self._consuming is Consuming.PAUSING:
            self._consuming = Consuming.PAUSED
            self._follow()

    # --- messages ---------------------------------------------------------------------------------

    def _take_notify(self, fragment: bytes, command: c.HandleNotify) -> None:
        if command.out_of_band:
            raise PeerError(Reply.NOT_IMPLEMENTED, "out-of-band transfers")
        if command.streaming:
            raise PeerError(Reply.NOT_VALID_NOW, "streaming is for peer services only (§3.5.3.1)")
        message = self.gatherer.take(
            self.number, fragment, partial=command.partial, recovery=command.recovery
        )
        if message is not None:
            self._take_message(command, message)

    def _take_message(self, command: c.HandleNotify, message: bytes) -> None:
        size = head_octets(message, 0, len(message))
        if size is None or body_octets(message, 0) != len(message) - size:
            raise PeerError(Reply.CONTENTS_INVALID, "head and body do not fit together")
        ttl, count = self.engine.heads.look_at(message[4:size])
        redelivered = command.redelivered
        prefix = payload_prefix(command.dest_name, redelivered=redelivered)
        number = command.message_nbr
        delivery = ReceivedDelivery(
            DeliveryNumber(number),
            DeliveryTag(number.to_bytes(8, "big")),
            prefix + message,
            Protocol.AMQP_FAST,
            0,
            self._settles,
            ttl_milliseconds=ttl,
            delivery_count=max(count, 1) if redelivered else 0,
        )
        if not self._settles:
            if number in self._open:
                raise PeerError(Reply.NOT_VALID_NOW, f"message-nbr {number} is repeated")
            self._open[number] = False
            if redelivered:
                self._redelivered.add(number)
        if self._credit > 0 and not self._held and not self._is_held:
            self._report(delivery)
        else:
            self._held.append(delivery)

    def _report(self, delivery: ReceivedDelivery) -> None:
        self._credit -= 1
        self.engine.runs.receive(self.link, delivery)

    def _report_held(self) -> None:
        while self._held and self._credit > 0 and not self._is_held:
            self._report(self._held.popleft())

    def release_held(self) -> None:
        """Returns what is held, unless there is credit for it now."""
        if self._waits and self.state is ServerLinkState.OPEN:
            self._give_held_back()

    def _give_held_back(self) -> None:
        """Returns held messages to the server; they were never reported."""
        held, self._held = self._held, deque()
        for delivery in held:
            self._unget(delivery.number)

    # --- outcomes ---------------------------------------------------------------------------------

    def update(self, numbers: Sequence[DeliveryNumber], state: DeliveryState | None) -> None:
        """Handles outcomes; they are sent when all earlier messages are decided."""
        is_taken, is_rejected = is_acknowledged(state), isinstance(state, Rejected)
        for number in numbers:
            if is_taken or (is_rejected and number in self._redelivered):
                if number in self._open:
                    self._open[number] = True
            else:
                self._unget(number)
        if self._consuming is Consuming.PAUSED and not (self._credit or is_taken or is_rejected):
            self._give_held_back()
        self.engine.settling[self.number] = self

    def _unget(self, number: int) -> None:
        if self._open.get(number, True):
            return
        self._open[number] = True
        if self.where.service is not Service.TOPIC:
            self.engine.output.append(frame(c.HandleUnget(self.number, 0, number)))
        self.engine.settling[self.number] = self

    def flush(self) -> None:
        """Writes the gathered acknowledgment."""
        if self.state is not ServerLinkState.OPEN:
            return
        last = None
        for number, is_decided in self._open.items():
            if not is_decided:
                break
            last = number
        if last is None:
            return
        for number in list(self._open):
            del self._open[number]
            self._redelivered.discard(number)
            if number == last:
                break
        self.engine.output.append(frame(c.ChannelAck(self.number, 0, last)))

    # --- end --------------------------------------------------------------------------------------

    def give_back(self) -> None:
        """Sends the decided outcomes; the server requeues the others when the channel ends."""
        if self.state is ServerLinkState.OPEN:
            self.flush()

    handlers: ClassVar[Handlers] = {
        **ServerLink.handlers,
        c.HandleReply: take_reply,
        c.HandleNotify: _take_notify,
    }
