"""Delivery-tags towards a target that derive from the source's.

A delivery gets the same tag again if it arrives on another connection, or after a restart of this
router, so that it is found in a resuming target's unsettled map (§2.6.13)::

    +--------------------------+------------------------------+
    | 8 octets: hash of        | the source's tag,            |    if both fit 32 octets
    | whose link it is, names  | 1 to 24 octets               |
    +--------------------------+------------------------------+
    | 16 octets: hash of the above                            |    otherwise
    +---------------------------------------------------------+

A tag has at most 32 octets (§2.8.7).
"""

import hashlib
from typing import Final

from router.model.identity import ContainerId, DeliveryTag, LinkName

MAX_TAG_OCTETS: Final = 32
PREFIX_OCTETS: Final = 8
HASHED_TAG_OCTETS: Final = 16


def tag_prefix(
    container: ContainerId,
    name: LinkName,
    identity: str | None = None,
    vhost: str = "",
    *,
    life: str = "",
) -> bytes:
    """Returns the first octets of all tags that derive from one link's tags.

    Links with different identities or virtual hosts differ even if container and name are equal.

    Args:
        container: of the peer's.
        name: of the link.
        identity: of the peer, if it has one.
        vhost: that the peer asked for, if that has routes of its own.
        life: of an attachment whose sender may give out tags anew that it has forgotten and that
            are still unsettled towards a target (``core/orphans``): tells it from the last.
    """
    origin = _octets(container)
    octets = len(origin).to_bytes(4, "big") + origin + _octets(name)
    if identity or vhost:
        octets += b"\xff".join((b"", _octets(identity or ""), _octets(vhost)))  # never in UTF-8
    if life:
        octets += b"\xff\xff" + _octets(life)
    return hashlib.blake2b(octets, digest_size=PREFIX_OCTETS).digest()


def _octets(text: str) -> bytes:
    """Encodes whatever tells links apart; UTF-8 where that can be, and never an error."""
    return text.encode("utf-8", "surrogatepass")


def derived_tag(prefix: bytes, tag: DeliveryTag) -> DeliveryTag:
    """Returns the tag towards a target."""
    joined = prefix + tag
    if len(joined) <= MAX_TAG_OCTETS:
        return DeliveryTag(joined)
    return DeliveryTag(hashlib.blake2b(joined, digest_size=HASHED_TAG_OCTETS).digest())
