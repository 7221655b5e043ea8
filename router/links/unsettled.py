"""Unsettled maps, as an attach that resumes carries them (§2.6.13)."""

from collections import deque
from collections.abc import Set
from typing import Final

from router.links.link import Link
from router.links.pairing import Pairing
from router.links.position import position_at_end
from router.model.capabilities import Protocol
from router.model.identity import DeliveryKey, DeliveryTag
from router.model.outcome import DeliveryState, Received


def in_order_of_need(link: Link) -> deque[DeliveryTag]:
    """Returns the deliveries adrift on a link, in the order in which a map should list them.

    Decided deliveries come first, because the other end only waits to settle them; then the oldest.
    """
    return deque(tag for tag, _ in sorted(link.adrift.items(), key=_by_need))


def _by_need(entry: tuple[DeliveryTag, Pairing]) -> tuple[bool, int]:
    pairing = entry[1]
    return (pairing.outcome is None, pairing.sequence)


def reported_state(pairing: Pairing, undurable: Set[DeliveryKey | None]) -> DeliveryState | None:
    """As its receiver, in a map.

    Args:
        pairing: the delivery.
        undurable: deliveries whose outcome a sender may not know yet; it hears it when it resumes.
    """
    if pairing.outcome is not None and pairing.delivery.key in undurable:
        return _undecided_state(pairing)
    return received_state(pairing)


def received_state(pairing: Pairing) -> DeliveryState | None:
    """As its receiver: the outcome, or how much has come (all of it: the end of the message).

    A router may have dropped what it has sent already, and then cannot tell what the end of the
    message is: it is told that all of it is here. (It must not abort what is whole.)
    """
    if pairing.outcome is not None:
        return pairing.outcome
    parts = pairing.parts
    if pairing.delivery.protocol is not Protocol.AMQP_1_0:
        return None
    if parts is None or parts.is_complete:
        if _comes_from_router(pairing) or not is_whole(pairing):
            return ALL
    if parts is None:
        return position_at_end(pairing.delivery.payload)
    return position_at_end(parts.joined())


def _comes_from_router(pairing: Pairing) -> bool:
    connection = pairing.incoming.connection
    return connection is not None and connection.capabilities.traces


def _undecided_state(pairing: Pairing) -> DeliveryState | None:
    """As its receiver, which has all of it and may not tell the outcome yet."""
    return ALL if pairing.delivery.protocol is Protocol.AMQP_1_0 else None


def sent_state(pairing: Pairing) -> DeliveryState | None:
    """As its sender: the outcome if it is decided, else from where on it can be sent again."""
    if pairing.outcome is not None:
        return pairing.outcome
    return None if is_whole(pairing) else ALL


def is_whole(pairing: Pairing) -> bool:
    """Returns whether all of a delivery's payload that has come is still here."""
    return pairing.parts is None or pairing.parts.is_whole


ALL: Final = Received(0xFFFF_FFFF, 0)
"""Stands for the end of a message, wherever that is: nothing need be sent."""
