"""What routers of a mesh tell each other: entries, which are flooded, and messages between two.

An *entry* is what one router, its *origin*, says about itself: its links, the prefixes that it
serves, or single addresses. It is signed by its origin and handed on octet for octet, so a router
carries what it does not understand. A *message* goes between neighbors only.
"""

import enum
import hashlib
import struct
from collections.abc import Mapping
from typing import Final, NamedTuple, NewType, TypeAlias

import attrs

RouterId = NewType("RouterId", str)
"""A router's id, authenticated by its certificate: the container-id of ``router.id``."""

MAJOR: Final = 1
"""Version of the control plane: of messages, and of the bodies of entries. A higher one is given
to what an older router would misread; what it may ignore is a new field or a new kind."""

LEAST_MAJOR: Final = 1
"""The oldest version that is understood."""

COST_MOST: Final = 65535
DEFAULT_COST: Final = 10
"""Cost of a link whose configuration names none: as between routers in ``core.reach``."""


DYNAMIC: Final = "temp"
"""Stands after the router's id in the addresses of dynamic nodes (``core.bounds``)."""


def dynamic_prefix(router: str) -> str:
    """Returns the pattern of the dynamic nodes that a router makes."""
    return f"{router}.{DYNAMIC}.#"


class Kind(enum.StrEnum):
    """What an entry is about. Other kinds are carried for later versions."""

    LINKS = "links"
    PREFIXES = "prefixes"
    ADDRESSES = "addresses"


class Role(enum.StrEnum):
    """What a neighbor is."""

    ROUTER = "router"
    EDGE = "edge"


class Key(NamedTuple):
    """Names an entry.

    Attributes:
        origin: the router that says it.
        kind: a ``Kind``, or one of a later version.
        part: long lists are cut into parts, so that a change floods one part.
    """

    origin: RouterId
    kind: str
    part: int


class Version(NamedTuple):
    """Orders what an origin said under one key; the greatest counts.

    Attributes:
        epoch: rises with each start of the origin.
        sequence: rises with each change within an epoch.
    """

    epoch: int
    sequence: int


@attrs.frozen(kw_only=True)
class Entry:
    """What a router says about itself, sealed.

    Attributes:
        key: names it.
        version: orders it.
        body: octets of an AMQP map (``bodies``).
        signature: the origin's, over ``signed_octets``.
        stamp: a digest of all of it; decides between two entries of one version.
    """

    key: Key
    version: Version
    body: bytes = attrs.field(repr=False)
    signature: bytes = attrs.field(repr=False)
    stamp: int = attrs.field(init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        octets = signed_octets(self.key, self.version, self.body) + self.signature
        digest = hashlib.blake2b(octets, digest_size=8).digest()
        object.__setattr__(self, "stamp", int.from_bytes(digest, "big"))


_SIGNED: Final = struct.Struct(">HHIQQ")
_DOMAIN: Final = b"AMQP router mesh entry 1\0"


def signed_octets(key: Key, version: Version, body: bytes) -> bytes:
    """Returns what an origin signs.

    ::

        "AMQP router mesh entry 1" 0   origin(2 octets of length)   kind(2)
        part(4)   epoch(8)   sequence(8)   octets of origin, kind and body

    The lengths stand before the octets, so no two entries have the same octets to sign.
    """
    origin, kind = key.origin.encode(), key.kind.encode()
    numbers = _SIGNED.pack(len(origin), len(kind), key.part, *version)
    return b"".join((_DOMAIN, numbers, origin, kind, body))


# Bodies of entries


@attrs.frozen
class Links:
    """The links of a router that are up.

    Attributes:
        costs: neighbor → cost, 1 to ``COST_MOST``.
    """

    costs: Mapping[RouterId, int]


@attrs.frozen
class Prefixes:
    """Patterns of addresses that a site serves, as texts (``routes.match``)."""

    patterns: tuple[str, ...]


@attrs.frozen
class Addresses:
    """Single addresses that a site serves and none of its prefixes covers."""

    addresses: tuple[str, ...]


@attrs.frozen
class Foreign:
    """A body of a later version: carried, not understood.

    Attributes:
        rule: why, with the versions.
    """

    rule: str


Body: TypeAlias = Links | Prefixes | Addresses
AnyBody: TypeAlias = Body | Foreign


# Messages


@attrs.frozen(kw_only=True)
class Hello:
    """Sent each second, and first on a connection.

    Attributes:
        router: the sender; must be who the connection has authenticated.
        epoch: of the sender.
        least: the oldest version that it understands.
        most: the newest.
        heard: the epoch of the receiver that the sender has heard on this connection; 0: none yet.
        cost: of this link for the sender.
        role: router or edge.
        digest: of all entries that it has (``database``).
        is_active: of an edge: this is its active uplink.
    """

    router: RouterId
    epoch: int
    least: int = LEAST_MAJOR
    most: int = MAJOR
    heard: int = 0
    cost: int = DEFAULT_COST
    role: Role = Role.ROUTER
    digest: int = 0
    is_active: bool = False


@attrs.frozen
class Carried:
    """An entry on its way.

    Attributes:
        entry: the entry.
        idle_seconds: for how long the sender has seen no way to its origin.
    """

    entry: Entry
    idle_seconds: int = 0


@attrs.frozen
class Entries:
    """Entries, new to the receiver as far as the sender knows.

    Attributes:
        number: counts these messages on the connection, from 1; a gap means that some are lost.
        carried: the entries.
    """

    number: int
    carried: tuple[Carried, ...]


@attrs.frozen
class Summary:
    """The digest of each bucket of the sender's entries; asks what differs.

    Attributes:
        digests: one for each bucket.
    """

    digests: tuple[int, ...]


class Held(NamedTuple):
    """An entry that a router has, in a ``Holdings``."""

    key: Key
    version: Version
    stamp: int


@attrs.frozen
class Holdings:
    """All entries that the sender has in some buckets.

    Attributes:
        buckets: their numbers; none: more entries of a bucket follow in the next message.
        held: the entries.
    """

    buckets: tuple[int, ...]
    held: tuple[Held, ...]


@attrs.frozen
class Ask:
    """Asks for entries."""

    keys: tuple[Key, ...]


@attrs.frozen
class EdgeAddresses:
    """The addresses behind an edge; from the edge to its active uplink.

    Attributes:
        number: counts these messages, from 1 on each connection; a gap asks for the whole.
        is_whole: these are all addresses, and ``removed`` is empty.
        added: new ones.
        removed: gone ones.
    """

    number: int
    is_whole: bool
    added: tuple[str, ...]
    removed: tuple[str, ...] = ()


@attrs.frozen
class EdgeAsk:
    """From a hub: the edge is to send all of its addresses."""


@attrs.frozen
class Refusal:
    """The last message before the sender closes the connection.

    Attributes:
        rule: what the receiver broke.
    """

    rule: str


@attrs.frozen
class Unknown:
    """A message of a later minor version; ignored.

    Attributes:
        name: its name.
    """

    name: str


Message: TypeAlias = (
    Hello | Entries | Summary | Holdings | Ask | EdgeAddresses | EdgeAsk | Refusal | Unknown
)
