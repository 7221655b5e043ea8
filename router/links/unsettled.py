"""Unsettled maps, as an attach that resumes carries them (§2.6.13)."""

from collections.abc import Mapping, Set

import attrs

from router.links.link import IncomingLink, Link
from router.links.pairing import Pairing
from router.links.position import position_at_end
from router.model.capabilities import Protocol
from router.model.identity import DeliveryKey, DeliveryTag
from router.model.outcome import DeliveryState, Received


@attrs.frozen
class UnsettledMap:
    """What one side of a link considers unsettled.

    Attributes:
        states: by tag; None: nothing is known but that it was begun.
        is_incomplete: there are more; what is missing may be unsettled all the same.
    """

    states: Mapping[DeliveryTag, DeliveryState | None]
    is_incomplete: bool = False


def unsettled_map(
    link: Link, most: int, undurable: Set[DeliveryKey | None] = frozenset()
) -> UnsettledMap:
    """Gives our map for a link that is about to be resumed.

    Args:
        link: its unsettled deliveries are adrift.
        most: entries that an attach can take; what is decided goes first, then the oldest.
        undurable: deliveries whose outcome a sender may not know yet; it hears it when it resumes.
    """
    state = received_state if isinstance(link, IncomingLink) else sent_state
    entries = sorted(link.adrift.items(), key=_by_need)
    states = {tag: state(pairing) for tag, pairing in entries[:most]}
    if undurable and isinstance(link, IncomingLink):
        for tag, pairing in entries[:most]:
            if pairing.heard is not None and pairing.delivery.key in undurable:
                states[tag] = _undecided_state(pairing)
    return UnsettledMap(states, len(link.adrift) > most)


def _by_need(entry: tuple[DeliveryTag, Pairing]) -> tuple[bool, int]:
    pairing = entry[1]
    return (pairing.heard is None, pairing.sequence)


def received_state(pairing: Pairing) -> DeliveryState | None:
    """As its receiver: the outcome, or how much has come (all of it: the end of the message)."""
    if pairing.heard is not None:
        return pairing.heard
    parts = pairing.parts
    if pairing.delivery.protocol is not Protocol.AMQP_1_0:
        return None
    if parts is None:
        return position_at_end(pairing.delivery.payload)
    if parts.is_complete and not parts.is_whole:
        return _ALL
    return position_at_end(parts.joined())


def _undecided_state(pairing: Pairing) -> DeliveryState | None:
    """As its receiver, which has all of it and may not tell the outcome yet."""
    return _ALL if pairing.delivery.protocol is Protocol.AMQP_1_0 else None


def sent_state(pairing: Pairing) -> DeliveryState | None:
    """As its sender: the outcome if it is decided, else from where on it can be sent again."""
    if pairing.heard is not None:
        return pairing.heard
    return None if is_whole(pairing) else _ALL


def is_whole(pairing: Pairing) -> bool:
    """Tells whether all of a delivery's payload that has come is still here."""
    return pairing.parts is None or pairing.parts.is_whole


_ALL = Received(0xFFFF_FFFF, 0)
"""Stands for the end of a message whose octets are not here any more: nothing need be sent."""
