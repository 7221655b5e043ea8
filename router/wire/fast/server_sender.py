"""A sending link to a server: HANDLE SEND with a confirm-tag each.

Theory of operation. Every delivery with an outcome is sent with a confirm-tag of its own, and the
HANDLE REPLY with that tag is its outcome (``reply.outcome_of_reply``). Credit is the number of
messages that may be unconfirmed (``WINDOW``).

A link without an address is the anonymous terminus: its handle is opened with the empty name, and
each HANDLE SEND names its destination (§3.5.2.3).
"""

import struct
from typing import ClassVar, Final

import attrs

from router.errors import TranslationError
from router.model.commands import AttachLink
from router.model.delivery import OutgoingDelivery
from router.model.events import CreditGranted
from router.model.identity import DeliveryNumber
from router.model.outcome import RELEASED, DeliveryState
from router.wire.fast import commands as c
from router.wire.fast.client_links import ClientLinks
from router.wire.fast.framing import END
from router.wire.fast.outgoing import Ready, refusal
from router.wire.fast.reply import outcome_of_reply
from router.wire.fast.server_link import ServerLink, ServerLinkState
from router.wire.fast.types import encode_short, fits_short
from router.wire.machine import Handlers

WINDOW: Final = 2000
"""Messages that may be unconfirmed; as towards brokers of 0-9-1."""

_SEND: Final = struct.Struct(">HBHHIB").pack
_FIRST_TAG: Final = 16
"""Lower confirm-tags are those of other commands."""
_LAST_TAG: Final = 0xFFFF


@attrs.define(eq=False)
class Shipment:
    """A message under way to the server, a ``Parcel``.

    Attributes:
        confirm_tag: 0: it has no outcome.
        name: destination, and the end octet after it.
    """

    sender: "ServerSender"
    ready: Ready
    number: DeliveryNumber
    confirm_tag: int
    name: bytes

    @property
    def handle(self) -> int:
        """The handle by which it is sent."""
        return self.sender.number

    @property
    def flows(self) -> bool:
        """False: it has an end."""
        return False

    @property
    def head(self) -> bytes:
        """The message's head."""
        return self.ready.head

    @property
    def body(self) -> bytes:
        """The message's body."""
        return self.ready.body

    def begin(self) -> bool:
        """Returns whether the message is still to be sent."""
        self.sender.unsent.pop(self.number, None)
        return self.sender.state is ServerLinkState.OPEN

    def frame(self, size: int, partial: bool, recovery: bool) -> bytes:
        """Encodes the frame of HANDLE SEND."""
        tail = b"\x00\xce" if partial else self.name
        bits = partial | recovery << 2
        size_of_frame = 10 + len(tail)
        return _SEND(size_of_frame, 31, self.handle, self.confirm_tag, size, bits) + tail


class ServerSender(ServerLink):
    """A sending link to a server.

    Attributes:
        unsent: deliveries that wait for an earlier one to be ready.
    """

    is_producer = True

    def __init__(self, engine: ClientLinks, number: int, command: AttachLink) -> None:
        super().__init__(engine, number, command)
        self.unsent: dict[DeliveryNumber, bool] = {}
        self._unconfirmed: dict[int, DeliveryNumber] = {}
        self._tag = _FIRST_TAG
        self._credit = 0
        self._names: dict[str | None, bytes] = {}

    def opened(self) -> None:
        """Records that the link is attached."""
        self.review()

    # --- credit -----------------------------------------------------------------------------------

    @property
    def needs_review(self) -> bool:
        """Whether a review would grant more."""
        gain = WINDOW - len(self._unconfirmed) - self._credit
        return gain > 0 and (self._credit <= 0 or 2 * gain >= WINDOW)

    def review(self) -> None:
        """Grants credit as far as there is capacity."""
        if self.needs_review and self.state is ServerLinkState.OPEN:
            self._credit = WINDOW - len(self._unconfirmed)
            self.engine.runs.add(CreditGranted(self.link, self._credit))

    # --- sending ----------------------------------------------------------------------------------

    def send_deliveries(self, deliveries: list[OutgoingDelivery]) -> None:
        """Sends deliveries; refuses those that cannot be sent."""
        for delivery in deliveries:
            self._credit -= 1
            try:
                ready = self.engine.outgoing.ready(delivery)
                name = self._name(delivery)
            except TranslationError as error:
                if not delivery.settled:
                    self._report_outcome([delivery.number], refusal(error))
                continue
            tag = 0
            if not delivery.settled:
                tag = self._next_tag()
                self._unconfirmed[tag] = delivery.number
            self.unsent[delivery.number] = delivery.settled
            self.line.send(Shipment(self, ready, delivery.number, tag, name))
        if self.needs_review:
            self.engine.review(self)

    def _next_tag(self) -> int:
        tag = self._tag
        while tag in self._unconfirmed:
            tag = tag + 1 if tag < _LAST_TAG else _FIRST_TAG
        self._tag = tag + 1 if tag < _LAST_TAG else _FIRST_TAG
        return tag

    def _name(self, delivery: OutgoingDelivery) -> bytes:
        terminus = self.terminus
        is_anonymous = terminus is not None and terminus.address is None and not terminus.dynamic
        address = delivery.address if is_anonymous else None
        name = self._names.get(address)
        if name is None:
            text = self.destination(address).name if address else ""
            if is_anonymous and (not text or not fits_short(text)):
                raise TranslationError("to", "is no name of a destination")
            name = encode_short(text) + END
            if len(self._names) >= WINDOW:
                self._names.clear()
            self._names[address] = name
        return name

    # --- outcomes ---------------------------------------------------------------------------------

    def take_reply(self, command: c.HandleReply) -> None:
        """Handles the confirmation of HANDLE OPEN or SEND."""
        if self.state is ServerLinkState.OPENING:
            super().take_reply(command)
            return
        number = self._unconfirmed.pop(command.confirm_tag, None)
        if number is not None:
            self._report_outcome([number], outcome_of_reply(command.reply_code, command.reply_text))
            self.engine.review(self)

    def _report_outcome(self, numbers: list[DeliveryNumber], state: DeliveryState) -> None:
        self.engine.runs.update(self.link, numbers, state, True)

    def give_back(self) -> None:
        """Returns unsent deliveries to the core."""
        unsent = [number for number, settled in self.unsent.items() if not settled]
        self.unsent.clear()
        if unsent and self.state is ServerLinkState.OPEN:
            self._report_outcome(unsent, RELEASED)

    handlers: ClassVar[Handlers] = {**ServerLink.handlers, c.HandleReply: take_reply}
