"""A subscription, and its credit (0-10 message.subscribe, message.flow).

Theory of operation. Capacity is a subscription's credit in messages; without credit in octets there
is none. A message larger than the credit in octets waits at the head (0-10 forbids to send a part).

    credit     message.flow adds; 0xFFFFFFFF, or no value, is infinite until stop or flush
    window     as credit, and a completed transfer returns its credit (mode window)
"""

from typing import ClassVar, Final

from router.wire.v0_10 import records as r
from router.wire.v0_10.codec import encode_command
from router.wire.v0_10.outgoing import Ready
from router.wire.v0_10.queues import Queue, SubscriptionSession

UNBOUNDED_CAPACITY: Final = 1000
"""Capacity of infinite credit; the only bound of the deliveries under way to the subscription."""

INFINITE: Final = 0xFFFF_FFFF

MODE_CREDIT, MODE_WINDOW = 0, 1
"""Values of flow-mode."""

UNIT_MESSAGE, UNIT_BYTE = 0, 1
"""Values of credit-unit."""

PRE_ACQUIRED, NOT_ACQUIRED = 0, 1
"""Values of acquire-mode."""


class Subscription:
    """A subscription (0-10 message.subscribe).

    Attributes:
        destination: its name, the destination of transfers.
        label: unique in the session, also for its links.
        settles: accept-mode none: sent messages count as accepted.
        acquires: acquire-mode pre-acquired.
        is_exclusive: nobody else subscribes to the queue.
        mode: how credit is renewed.
        messages, octets: credit; None: infinite.
        flushes: commands that wait until the credit is used up or returned.
        head: the command segment of its transfers.
        is_active: it was not cancelled.
    """

    codes: ClassVar[tuple[int, int]] = (4, 7)
    """Class and code of the subscribing command."""

    kind: ClassVar[int] = 4
    """The class of its deliveries."""

    shows_files: ClassVar[bool] = False
    """Whether the client may act upon deliveries before they are acquired."""

    def __init__(
        self, session: SubscriptionSession, queue: Queue, command: r.MessageSubscribe
    ) -> None:
        self.session = session
        self.queue = queue
        self.destination = self.label = command.destination or ""
        self.settles = bool(command.accept_mode)
        self.acquires = not command.acquire_mode
        self.is_exclusive = command.exclusive
        self.resume_id = command.resume_id
        self.resume_ttl = command.resume_ttl
        self.mode = MODE_WINDOW
        self.messages: int | None = 0
        self.octets: int | None = 0
        self.flushes: list[int] = []
        self.is_active = True
        self.head = encode_command(
            r.MessageTransfer(
                self.destination, int(self.settles), PRE_ACQUIRED if self.acquires else NOT_ACQUIRED
            )
        )

    @property
    def capacity(self) -> int:
        """Number of messages that the subscription accepts now."""
        if self.octets == 0:
            return 0
        return UNBOUNDED_CAPACITY if self.messages is None else self.messages

    def add(self, unit: int, value: int | None) -> None:
        """Adds credit (0-10 message.flow)."""
        is_infinite = value is None or value == INFINITE
        if unit == UNIT_MESSAGE:
            known = self.messages
            self.messages = None if is_infinite or known is None else known + (value or 0)
        else:
            known = self.octets
            self.octets = None if is_infinite or known is None else known + (value or 0)

    def take(self, octets: int) -> None:
        """Uses credit for a message."""
        if self.messages is not None:
            self.messages -= 1
        if self.octets is not None:
            self.octets -= octets

    def give_back(self, octets: int) -> None:
        """Renews credit when a transfer is complete (mode window)."""
        if self.mode != MODE_WINDOW or not self.is_active:
            return
        if self.messages is not None:
            self.messages += 1
        if self.octets is not None:
            self.octets += octets

    def void(self) -> None:
        """Revokes all credit.

        Infinite credit in octets stays: without messages it has no effect, and Qpid's client for
        Python relies on it after a rollback.
        """
        self.messages = 0
        if self.octets is not None:
            self.octets = 0

    def segments(self, ready: Ready) -> tuple[bytes, bytes]:
        """Returns the command and the header segment of a delivery.

        Raises:
            TranslationError: it cannot be translated.
        """
        return self.head, ready.header

    def fits(self, octets: int) -> bool:
        """Returns whether a message may be sent now."""
        return self.capacity > 0 and (self.octets is None or octets <= self.octets)
