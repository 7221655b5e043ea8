"""What a new connection has said and heard, as long as it may be handed to another worker.

A *transcript* is kept from a connection's first octet until it attaches its first link, says
anything else that the core hears of, or becomes too long. The octets up to the *mark* are those
whose answers had all been sent: a fresh engine that is given them has to say exactly what was sent.
The rest has not been answered yet.
"""

from typing import Final

import attrs

from router.model.capabilities import Protocol
from router.model.events import Event
from router.wire.sasl import SaslVerdict

MOST_OCTETS: Final = 32 * 1024
"""Of both directions together: an attach with a larger unsettled map is not handed on."""

ENTRY_OCTETS: Final = 64
"""What an entry counts beside its octets."""


@attrs.define(eq=False)
class Transcript:
    """What has passed on a connection.

    Attributes:
        listener: that accepted it.
        protocol: that it speaks.
        verdicts: of its login.
        received: times on the clock of ``now``, and the octets that came then; None: the engine's
            deadline was due.
        sent: octets sent so far.
    """

    listener: str
    protocol: Protocol
    verdicts: list[SaslVerdict] = attrs.field(factory=list)
    received: list[tuple[float, bytes | None]] = attrs.field(factory=list)
    sent: bytearray = attrs.field(factory=bytearray)
    _octets: int = attrs.field(default=0, init=False)
    _answered: tuple[int, int] = attrs.field(default=(0, 0), init=False)

    def hear(self, octets: bytes | memoryview | None, now: float) -> None:
        """Notes received octets, or that the engine's deadline is due."""
        self.received.append((now, None if octets is None else bytes(octets)))
        self._octets += ENTRY_OCTETS + (0 if octets is None else len(octets))

    def mark(self) -> None:
        """Notes that all answers have been sent."""
        self._answered = len(self.received), len(self.sent)

    @property
    def is_too_long(self) -> bool:
        """Whether it is not worth keeping."""
        return self._octets + len(self.sent) > MOST_OCTETS

    @property
    def answered(self) -> int | None:
        """How many of ``received`` have been answered; None: an answer has been sent in part."""
        count, sent = self._answered
        return count if sent == len(self.sent) else None


@attrs.define(eq=False)
class Held:
    """What comes while another worker is asked to take a connection over.

    Attributes:
        events: that the core has not been handed.
        late: octets received since.
        is_spoiled: the engine has been given a command: the connection stays.
    """

    events: list[Event]
    late: bytearray = attrs.field(factory=bytearray)
    is_spoiled: bool = False
