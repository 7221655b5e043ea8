"""A sending link to a broker: transfers whose completion is awaited.

Theory of operation. Every delivery is a ``message.transfer`` with accept-mode explicit, so that its
outcome is known, by the first of these that arrives::

    message.accept, or completed     accepted
    message.release                  released; set-redelivered: modified, delivery-failed
    message.reject, unroutable       rejected, amqp:not-found
    message.reject, otherwise        rejected, with the text

A broker's flow control (message.stop, message.flow) is obeyed. Credit is the number of transfers
that may be incomplete (``WINDOW``). On a link whose deliveries are all settled accept-mode is none,
and there are no outcomes.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Final

import attrs

from router.errors import TranslationError
from router.model.commands import AttachLink
from router.model.delivery import OutgoingDelivery
from router.model.events import CreditGranted
from router.model.identity import DeliveryNumber, DeliveryTag
from router.model.outcome import (
    ACCEPTED,
    MODIFIED_FAILED,
    RELEASED,
    DeliveryState,
)
from router.wire.exchange_names import broker_node, is_expressible
from router.wire.machine import Handlers
from router.wire.v0_10 import records as r
from router.wire.v0_10.broker_session import NO_NAME, BrokerSession
from router.wire.v0_10.client_links import ClientLinks
from router.wire.v0_10.codec import encode_command
from router.wire.v0_10.outgoing import Ready, refusal
from router.wire.v0_10.posts import ACCEPT_EXPLICIT, ACCEPT_NONE
from router.wire.v0_10.ranges import Ranges
from router.wire.v0_10.reply import rejection

WINDOW: Final = 2000
"""Transfers that may be incomplete: brokers complete persistent ones in batches, so a window must
cover those that arrive during one flush of their disk."""

_HEADS_LIMIT: Final = 1024


@attrs.define(eq=False)
class Transferred:
    """A transfer that the broker has not decided.

    Attributes:
        number: the core's number; None once it has its outcome, or was settled.
        tag: identifies it when the link is resumed.
    """

    number: DeliveryNumber | None
    tag: DeliveryTag


class BrokerSender(BrokerSession):
    """A sending link to a broker."""

    def __init__(self, engine: ClientLinks, channel: int, command: AttachLink) -> None:
        super().__init__(engine, channel, command)
        self._waiting: deque[tuple[OutgoingDelivery, Ready, bytes]] = deque()
        self._is_stopped = False
        self._credit = 0
        self._resumed = 0
        self._since_sync = 0
        self._heads: dict[tuple[str, bool], bytes] = {}

    def script(self) -> list[r.Command]:
        """Checks that queue or exchange exist."""
        node = self.node()
        if node is None:
            return []
        if node.queue is not None:
            return [self.find_queue(node.queue)]
        return [self.find_exchange(node.exchange)] if node.exchange else []

    def ready(self) -> None:
        """Reports to the core that the link is attached and has credit."""
        super().ready()
        self._resumed = len(self._open())
        self._credit = 0
        self.review()

    # --- credit -----------------------------------------------------------------------------------

    def _open(self) -> list[Transferred]:
        found = (note for note in self.outstanding.values() if isinstance(note, Transferred))
        return [note for note in found if note.number is not None or self._is_unnamed(note)]

    @staticmethod
    def _is_unnamed(note: Transferred) -> bool:
        return bool(note.tag)

    def open_tags(self) -> Iterable[DeliveryTag]:
        """Returns the tags of deliveries that the broker has not decided."""
        waiting = [delivery.tag for delivery, _, _ in self._waiting if not delivery.settled]
        return [note.tag for note in self._open()] + waiting

    @property
    def _capacity(self) -> int:
        if self._is_stopped:
            return 0
        return max(WINDOW - len(self.outstanding) - len(self._waiting), 0)

    @property
    def needs_review(self) -> bool:
        """Whether a review would grant more."""
        gain = self._capacity - self._credit
        return gain > 0 and (self._credit <= 0 or 2 * gain >= WINDOW)

    def review(self) -> None:
        """Grants the core credit as far as there is capacity."""
        if self.is_ready and (self.needs_review or self._resumed > 0):
            self._credit = self._capacity
            self.engine.runs.add(CreditGranted(self.link, self._credit + self._resumed))

    @property
    def waiting_octets(self) -> int:
        """Octets of payload that wait until the broker accepts messages again."""
        return sum(ready.octets for _, ready, _ in self._waiting)

    def _take_stop(self, number: int, command: r.MessageStop) -> None:
        self._is_stopped = True
        if self.is_ready and self._credit > 0:
            self._credit = 0
            self.engine.runs.add(CreditGranted(self.link, 0))
        self.complete(number)

    def _take_flow(self, number: int, command: r.MessageFlow) -> None:
        self._is_stopped = False
        while self._waiting:
            self._transfer(*self._waiting.popleft())
        self.client.review(self)
        self.complete(number)

    def _take_mode(self, number: int, command: r.MessageSetFlowMode) -> None:
        self.complete(number)

    # --- sending ----------------------------------------------------------------------------------

    def send_deliveries(self, deliveries: Sequence[OutgoingDelivery]) -> None:
        """Transfers deliveries; those that may not be sent now wait."""
        for delivery in deliveries:
            if delivery.resume:
                self._take_again(delivery)
                continue
            self._credit -= 1
            try:
                ready, head = self._prepare(delivery)
            except TranslationError as error:
                if not delivery.settled:
                    self._report_outcome([delivery.number], refusal(error))
                continue
            if self._is_stopped or self._waiting:
                self._waiting.append((delivery, ready, head))
            else:
                self._transfer(delivery, ready, head)
        self.client.review(self)

    def _prepare(self, delivery: OutgoingDelivery) -> tuple[Ready, bytes]:
        node = self.node()
        if node is None:
            node = broker_node(delivery.address or "")
            if not is_expressible(node):
                raise TranslationError("to", str(NO_NAME.description))
        settled = delivery.settled
        head = self._heads.get((node.exchange, settled))
        if head is None:
            mode = ACCEPT_NONE if settled else ACCEPT_EXPLICIT
            head = encode_command(r.MessageTransfer(node.exchange or None, mode, 0))
            if len(self._heads) >= _HEADS_LIMIT:
                self._heads.clear()
            self._heads[node.exchange, settled] = head
        return self.client.outgoing.ready(delivery, key=node.routing_key), head

    def _transfer(self, delivery: OutgoingDelivery, ready: Ready, head: bytes) -> None:
        note = Transferred(None, DeliveryTag(b""))
        if not delivery.settled:
            note = Transferred(delivery.number, delivery.tag)
        self.send_encoded(head, note, (ready.header, ready.body))
        self._since_sync += 1
        self.client.settling[self.channel] = self

    def write_gathered(self) -> None:
        """Requests completion, once for all transfers of a turn.

        Qpid's brokers report accepts on their own, and completion only when asked.
        """
        if self._since_sync:
            self._since_sync = 0
            self.send(r.ExecutionSync(), sync=True)

    def _take_again(self, delivery: OutgoingDelivery) -> None:
        """Handles the core's new number for a delivery that the broker has, or that waits here."""
        self._resumed = max(self._resumed - 1, 0)
        for note in self._open():
            if note.tag == delivery.tag:
                note.number = None if delivery.settled else delivery.number
                if delivery.settled:
                    note.tag = DeliveryTag(b"")
                return
        for waiting, _, _ in self._waiting:
            if waiting.tag == delivery.tag:
                waiting.number = delivery.number
                return
        if not delivery.settled:
            self._report_outcome([delivery.number], MODIFIED_FAILED)

    # --- outcomes ---------------------------------------------------------------------------------

    def completed_by_broker(self, number: int, note: Any) -> None:
        """Handles the completion of a transfer; without another outcome it is accepted."""
        assert isinstance(note, Transferred)
        if note.number is not None:
            self._report_outcome([note.number], ACCEPTED)
        self.client.review(self)

    def _decide(self, transfers: Ranges | None, state: DeliveryState) -> None:
        numbers = []
        for number in self._within(self._long_out(transfers)):
            note = self.outstanding[number]
            if isinstance(note, Transferred) and note.number is not None:
                numbers.append(note.number)
                note.number = None
                note.tag = DeliveryTag(b"")
        self._report_outcome(numbers, state)

    def _take_accept(self, number: int, command: r.MessageAccept) -> None:
        self._decide(command.transfers, ACCEPTED)
        self.complete(number)

    def _take_release(self, number: int, command: r.MessageRelease) -> None:
        self._decide(command.transfers, MODIFIED_FAILED if command.set_redelivered else RELEASED)
        self.complete(number)

    def _take_reject(self, number: int, command: r.MessageReject) -> None:
        self._decide(command.transfers, rejection(command.code, command.text))
        self.complete(number)

    def _report_outcome(self, numbers: list[DeliveryNumber], state: DeliveryState) -> None:
        if numbers:
            self.engine.runs.update(self.link, numbers, state, True)

    def gave_up(self, number: int) -> None:
        """Records that a transfer never arrived, and cannot be sent again."""
        note = self.outstanding.pop(number, None)
        if isinstance(note, Transferred) and note.number is not None:
            self._report_outcome([note.number], RELEASED)

    def ended(self, *, is_over: bool) -> None:
        """Forgets the core's numbers while the session has no channel."""
        for note in self._open():
            note.number = None
        if is_over:
            self._waiting.clear()

    def give_back(self) -> None:
        """Returns unsent deliveries to the core."""
        waiting = [delivery.number for delivery, _, _ in self._waiting if not delivery.settled]
        self._waiting.clear()
        if self.is_ready:
            self._report_outcome(waiting, RELEASED)

    handlers: ClassVar[Handlers] = {
        **BrokerSession.handlers,
        r.MessageAccept: _take_accept,
        r.MessageReject: _take_reject,
        r.MessageRelease: _take_release,
        r.MessageStop: _take_stop,
        r.MessageFlow: _take_flow,
        r.MessageSetFlowMode: _take_mode,
    }
