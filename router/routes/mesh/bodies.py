"""Bodies of entries: their octets, and who vouches for them.

A body is an AMQP map; further fields are for later versions, and are handed on with the rest::

    links      version links: [[neighbor cost] ...]
    prefixes   version patterns: [pattern ...]
    addresses  version addresses: [address ...]

A body whose version is beyond ours, or of a kind that is not known, is carried (``Foreign``): its
signature is checked like that of others, it is flooded, and it has no effect here.

Floors: codecs of protocols and cryptography are not below this room, so both come in as protocols.
``core.mesh_octets`` has the codec, ``net.mesh_keys`` the keys.
"""

from collections.abc import Callable
from typing import Any, Final, Protocol

import attrs

from router.errors import DecodeError
from router.routes.mesh import fields
from router.routes.mesh.fields import FieldError
from router.routes.mesh.nouns import (
    COST_MOST,
    LEAST_MAJOR,
    MAJOR,
    Addresses,
    AnyBody,
    Body,
    Entry,
    Foreign,
    Key,
    Kind,
    Links,
    Prefixes,
    RouterId,
    Version,
    signed_octets,
)

LINKS_MOST: Final = 1_024
"""Links of one router."""

PATTERNS_MOST: Final = 128
"""Patterns in one part."""

PREFIX_PARTS_MOST: Final = 8
"""Parts of a site's prefixes: at most 1,024 patterns."""

ADDRESS_PARTS: Final = 16
"""Parts of a site's single addresses; a hash chooses the part."""

ADDRESSES_MOST: Final = 512
"""Single addresses in one part, as a receiver accepts them; a site announces fewer (``site``)."""


class Codec(Protocol):
    """Octets of AMQP 1.0 values."""

    def encode(self, value: object) -> bytes:
        """Returns the octets of one value."""

    def decode(self, octets: bytes) -> object:
        """Returns the one value that the octets are.

        Raises:
            DecodeError: they are none.
        """


class Signer(Protocol):
    """Signs as one router."""

    def sign(self, octets: bytes) -> bytes:
        """Returns a signature."""


class Verifier(Protocol):
    """Knows the keys of all routers."""

    def verify(self, origin: RouterId, octets: bytes, signature: bytes) -> bool:
        """Returns whether a router signed octets; False if its key is not known."""


@attrs.frozen
class Bad:
    """An entry that is refused.

    Attributes:
        rule: that it breaks.
        is_forged: its origin has not signed it.
    """

    rule: str
    is_forged: bool = False


@attrs.define(eq=False)
class Notary:
    """Seals entries of one router, and opens those of others."""

    codec: Codec
    signer: Signer
    verifier: Verifier

    def seal(self, key: Key, version: Version, body: Body) -> Entry:
        """Returns a signed entry."""
        octets = self.codec.encode(body_value(body))
        signature = self.signer.sign(signed_octets(key, version, octets))
        return Entry(key=key, version=version, body=octets, signature=signature)

    def open(self, entry: Entry) -> AnyBody | Bad:
        """Returns the body of an entry, or why the entry is refused."""
        octets = signed_octets(entry.key, entry.version, entry.body)
        if not self.verifier.verify(entry.key.origin, octets, entry.signature):
            kind, origin = entry.key.kind, entry.key.origin
            return Bad(f"an entry {kind} of {origin} that {origin} has not signed", is_forged=True)
        try:
            return read_body(entry.key, self.codec.decode(entry.body))
        except (FieldError, DecodeError) as error:
            return Bad(str(error))


def body_value(body: Body) -> dict[str, object]:
    """Returns the map that stands for a body."""
    match body:
        case Links(costs):
            rows = [[neighbor, cost] for neighbor, cost in sorted(costs.items())]
            return {"version": MAJOR, "links": rows}
        case Prefixes(patterns):
            return {"version": MAJOR, "patterns": list(patterns)}
        case Addresses(addresses):
            return {"version": MAJOR, "addresses": list(addresses)}


def read_body(key: Key, value: object) -> AnyBody:
    """Returns the body that a decoded value stands for.

    Raises:
        FieldError: a field is missing or wrong.
    """
    found = fields.as_map(value, key.kind)
    version = fields.as_number(
        fields.take(found, "version", key.kind), f"{key.kind}.version", 1, 65535
    )
    if not LEAST_MAJOR <= version <= MAJOR:
        return Foreign(f"version {version} of {key.kind}, of which {MAJOR} is understood")
    reader = _READERS.get(key.kind)
    return Foreign(f"kind {key.kind} is not known") if reader is None else reader(key, found)


def _read_links(key: Key, found: dict[Any, Any]) -> Links:
    costs: dict[RouterId, int] = {}
    _check_part(key, 1)
    rows = fields.as_list(fields.take(found, "links", "links"), "links.links", LINKS_MOST)
    for at, value in enumerate(rows):
        row = fields.as_row(value, f"links.links[{at}]", 2)
        neighbor = RouterId(fields.as_text(row[0], f"links.links[{at}].neighbor"))
        if neighbor in costs or neighbor == key.origin:
            raise FieldError(f"links.links[{at}].neighbor", "is another router, named once")
        costs[neighbor] = fields.as_number(row[1], f"links.links[{at}].cost", 1, COST_MOST)
    return Links(costs)


def _read_prefixes(key: Key, found: dict[Any, Any]) -> Prefixes:
    _check_part(key, PREFIX_PARTS_MOST)
    return Prefixes(_texts(key.kind, found, "patterns", PATTERNS_MOST))


def _read_addresses(key: Key, found: dict[Any, Any]) -> Addresses:
    _check_part(key, ADDRESS_PARTS)
    return Addresses(_texts(key.kind, found, "addresses", ADDRESSES_MOST))


def _check_part(key: Key, parts: int) -> None:
    if key.part >= parts:
        raise FieldError(f"{key.kind}.part", f"is below {parts}, not {key.part}")


def _texts(kind: str, found: dict[Any, Any], name: str, most: int) -> tuple[str, ...]:
    field = f"{kind}.{name}"
    listed = fields.as_list(fields.take(found, name, kind), field, most)
    texts = tuple(fields.as_text(one, field) for one in listed)
    if len(set(texts)) < len(texts):
        raise FieldError(field, "names each once")
    return texts


_READERS: Final[dict[str, Callable[[Key, dict[Any, Any]], Body]]] = {
    Kind.LINKS: _read_links,
    Kind.PREFIXES: _read_prefixes,
    Kind.ADDRESSES: _read_addresses,
}
