"""Names that outlive a process: the same link and the same delivery, whoever writes about them."""

import hashlib
from struct import Struct
from typing import Final, NewType

from router.model.identity import ContainerId, DeliveryKey, DeliveryTag, LinkName

LinkKey = NewType("LinkKey", int)
"""64 bits that name one end of a link in every journal and ledger; 0 names none.

Not ``LinkId``, which a worker counts up from 1 in each life: a resumed link keeps its key.
"""

NO_LINK = LinkKey(0)


def link_key(
    local: ContainerId,
    remote: ContainerId,
    name: LinkName,
    *,
    is_incoming: bool,
    identity: str = "",
    vhost: str = "",
) -> LinkKey:
    """Names our end of a link: pair of containers, link name and role (§2.6.1).

    ``identity`` and virtual host are part of the key, so that peers with equal names differ.
    """
    octets = _joined(
        *(local.encode(), remote.encode(), name.encode(), b"i" if is_incoming else b"o"),
        *(identity.encode(), vhost.encode()),
    )
    digest = hashlib.blake2b(octets, digest_size=8).digest()
    return LinkKey(int.from_bytes(digest, "little") or 1)


def delivery_key(
    origin: ContainerId, link: LinkName, tag: DeliveryTag, arrival: int
) -> DeliveryKey:
    """Names a delivery at its first ingress.

    Args:
        origin: the container that the delivery came from.
        link: the link it came over.
        tag: its tag, unique only among what is unsettled on that link (§2.6.12) ...
        arrival: ... so this tells apart the deliveries that used the tag one after another: any
            number that the caller never gives twice for one link, such as the time in nanoseconds.
    """
    octets = _joined(origin.encode(), link.encode(), tag, arrival.to_bytes(8, "little"))
    return DeliveryKey(hashlib.blake2b(octets, digest_size=16).digest())


class DeliveryKeys:
    """Names the deliveries of one link.

    Those that can be known again by an id are named as ``delivery_key`` does. The others are named
    in the order of their coming, which takes no hashing::

        +----------------------------------+--------------------------------+
        | 8 octets: hash of origin, link   | 8 octets: number of arrival,   |
        | and life of the worker: prefix   | never given twice in this life |
        +----------------------------------+--------------------------------+

    Attributes:
        prefix: 8 octets, see above.
    """

    def __init__(self, origin: ContainerId, link: LinkName, life: int = 0) -> None:
        """Hashes what all of them have in common; ``life`` is the worker's incarnation."""
        common = _joined(origin.encode(), link.encode())
        self._common = hashlib.blake2b(common, digest_size=16)
        lived = hashlib.blake2b(common + life.to_bytes(8, "little"), digest_size=8)
        self.prefix = lived.digest()

    def arrived(self, first: int, count: int) -> list[DeliveryKey]:
        """Names so many deliveries by their numbers of arrival, from ``first`` on."""
        prefix = self.prefix
        return [
            DeliveryKey(prefix + _pack_arrival(arrival)) for arrival in range(first, first + count)
        ]

    def name(self, tag: DeliveryTag, arrival: int) -> DeliveryKey:
        """Names a delivery; see ``delivery_key``."""
        digest = self._common.copy()
        digest.update(
            len(tag).to_bytes(4, "little") + tag + _ARRIVAL_LENGTH + arrival.to_bytes(8, "little")
        )
        return DeliveryKey(digest.digest())


def hop_identity(source: LinkKey, key: DeliveryKey, since_ns: int = 0) -> bytes:
    """Names the hop of a delivery over an incoming link, the same in every life of the router.

    Args:
        source: the link.
        key: the delivery's.
        since_ns: where a delivery may come several times over a link, when it came; otherwise 0.

    Returns:
        24 octets: its span-id, and the trace-id that it takes if it begins a trace.
    """
    named = source.to_bytes(8, "little") + key
    if since_ns:
        named += since_ns.to_bytes(8, "little")
    digest = hashlib.blake2b(named, digest_size=24, person=b"hop")
    return digest.digest()


def send_identity(span: bytes, target: LinkKey, attempt: int) -> bytes:
    """Names one attempt to send a delivery of a hop on an outgoing link, in 8 octets."""
    octets = span + target.to_bytes(8, "little") + attempt.to_bytes(4, "little")
    return hashlib.blake2b(octets, digest_size=8, person=b"send").digest()


_pack_arrival: Final = Struct(">Q").pack
_ARRIVAL_LENGTH: Final = (8).to_bytes(4, "little")


def _joined(*parts: bytes) -> bytes:
    """Joins ``parts`` so that no two different lists of parts give the same octets."""
    return b"".join(len(part).to_bytes(4, "little") + part for part in parts)
