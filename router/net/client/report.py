"""The outcomes of one client's deliveries."""

from collections import Counter

import attrs

from router.model.outcome import (
    Accepted,
    DeliveryState,
    Modified,
    Rejected,
    Released,
)

SETTLED = "settled"
"""Stands among the outcomes for deliveries that were settled without one."""


@attrs.define(eq=False)
class Report:
    """Counts of deliveries; one delivery is counted once, however often it was sent.

    Attributes:
        sent: handed to the connection at least once.
        resent: handed over again, whole, after a connection was lost.
        resumed: known to both ends after a connection was lost, and taken up where they stood.
        received: taken by this client.
        repeated: came again after a lost connection, and recognized.
        in_doubt: may or may not have arrived, and can never be known.
        in_doubt_with: the same by the container-id of who may have them; empty: it is not known.
        connections: opened so far.
        octets: of message payload, sent or received.
        outcomes: by name; ``settled`` where there was none.
    """

    sent: int = 0
    resent: int = 0
    resumed: int = 0
    received: int = 0
    repeated: int = 0
    in_doubt: int = 0
    in_doubt_with: Counter[str] = attrs.field(factory=Counter)
    connections: int = 0
    octets: int = 0
    outcomes: Counter[str] = attrs.field(factory=Counter)

    def count(self, state: DeliveryState | None, times: int = 1) -> None:
        """Counts an outcome."""
        self.outcomes[outcome_name(state)] += times

    def doubt(self, container: str | None) -> None:
        """Counts a delivery that a container may have or not."""
        self.in_doubt += 1
        if container is not None:
            self.in_doubt_with[container] += 1

    @property
    def settled(self) -> int:
        """How many deliveries have come to their end."""
        return self.outcomes.total()

    @property
    def progress(self) -> int:
        """A number that grows as long as anything moves."""
        return self.sent + self.resent + self.resumed + self.received + self.settled


def outcome_name(state: DeliveryState | None) -> str:
    """Names an outcome for people."""
    match state:
        case Accepted():
            return "accepted"
        case Rejected():
            return "rejected"
        case Released():
            return "released"
        case Modified():
            return "modified"
        case _:
            return SETTLED
