"""What a router says about its own site, and when: the entries of which it is the origin.

A change is said 50 ms after it, together with what else has changed by then (``COALESCE_SECONDS``).

Prefixes
    The patterns of the configuration, cut into parts of 128.

Single addresses
    Only those that no prefix of this site covers: an address under a prefix comes and goes without
    a message to anybody. They are hashed to parts, so that a change floods a part and not all.
    Beyond ``ADDRESSES_MOST`` a site must name a prefix; what is beyond is not announced, and named.

A router that starts again has a later epoch. If the mesh knows entries of this router with an epoch
that is not below the current one, which it has not made in this life, it goes on with the epoch
after theirs (``outlive``).
"""

import zlib
from collections.abc import Iterator, Mapping
from typing import Final

import attrs

from router.routes.match import PatternTree, parse_pattern
from router.routes.mesh.bodies import ADDRESS_PARTS, PATTERNS_MOST, PREFIX_PARTS_MOST
from router.routes.mesh.nouns import (
    Addresses,
    Body,
    Key,
    Kind,
    Links,
    Prefixes,
    RouterId,
    Version,
)

COALESCE_SECONDS: Final = 0.05

ADDRESSES_MOST: Final = 64
"""Single addresses that one site announces: with 1,000 sites some 20 MB of each router's memory."""

OUTLIVE_SECONDS: Final = 10.0
"""Between two raised epochs: two routers of one id would outbid each other without an end."""

PREFIXES_MOST: Final = PATTERNS_MOST * PREFIX_PARTS_MOST

_Place = tuple[str, int]
"""Where receivers of an address are (``events.AddressAttached.place``), and their load."""


@attrs.define(eq=False)
class Site:
    """The site of one router.

    Attributes:
        router: its id.
        epoch: its epoch.
        due_at: when what has changed is to be said; None: nothing has.
    """

    router: RouterId
    epoch: int
    due_at: float | None = attrs.field(default=None, init=False)
    _settled_at: float = attrs.field(default=0.0, init=False)
    _sequence: int = attrs.field(default=0, init=False)
    _costs: Mapping[RouterId, int] = attrs.field(factory=dict, init=False)
    _patterns: tuple[str, ...] = attrs.field(default=(), init=False)
    _tree: PatternTree = attrs.field(factory=lambda: PatternTree(()), init=False)
    _places: dict[str, tuple[_Place, ...]] = attrs.field(factory=dict, init=False)
    _parts: dict[int, set[str]] = attrs.field(factory=dict, init=False)
    _count: int = attrs.field(default=0, init=False)
    _waiting: dict[str, None] = attrs.field(factory=dict, init=False)
    _dirty: set[Key] = attrs.field(factory=set, init=False)
    _said: set[Key] = attrs.field(factory=set, init=False)

    def begin(self, now: float) -> None:
        """Has the links said even if there are none: so the others know this router and epoch."""
        self._soil(Key(self.router, Kind.LINKS, 0), now)

    def link(self, costs: Mapping[RouterId, int], now: float) -> None:
        """Sets the links that are up."""
        if dict(costs) != self._costs:
            self._costs = dict(costs)
            self._soil(Key(self.router, Kind.LINKS, 0), now)

    def advertise(self, patterns: tuple[str, ...], now: float) -> None:
        """Sets the prefixes; ``review`` has to follow.

        Raises:
            PatternError: one is no pattern, or two are equal.
            ValueError: there are more than ``PREFIXES_MOST``.
        """
        if len(patterns) > PREFIXES_MOST:
            raise ValueError(f"a site advertises at most {PREFIXES_MOST} prefixes")
        self._tree = PatternTree(map(parse_pattern, patterns))
        before, self._patterns = self._patterns, tuple(sorted(patterns))
        for part in range(PREFIX_PARTS_MOST):
            if _slice(before, part) != _slice(self._patterns, part):
                self._soil(Key(self.router, Kind.PREFIXES, part), now)

    def review(self, now: float) -> Iterator[tuple[str, str | None]]:
        """Announces or withdraws single addresses after the prefixes have changed.

        Yields:
            Each address, and why it is not announced, if no prefix covers it.
        """
        for address in list(self._places):
            if address not in self._places:
                continue
            if self.covers(address):
                self._withdraw(address, now)
                yield address, None
            else:
                yield address, self._announce(address, now)

    def covers(self, address: str) -> bool:
        """Returns whether a prefix of this site covers an address."""
        return self._tree.find(address) is not None

    def attach(self, address: str, place: str, load: int, now: float) -> str | None:
        """Records that an address has receivers at a place.

        Returns:
            Why the address is not announced though no prefix covers it; None: it is well.
        """
        is_new = address not in self._places
        others = [one for one in self._places.get(address, ()) if one[0] != place]
        self._places[address] = tuple(sorted([*others, (place, load)]))
        return self._announce(address, now) if is_new and not self.covers(address) else None

    def detach(self, address: str, place: str, now: float) -> None:
        """Records that an address has no receivers at a place any more."""
        left = tuple(one for one in self._places.get(address, ()) if one[0] != place)
        if left:
            self._places[address] = left
        elif self._places.pop(address, None) is not None:
            self._withdraw(address, now)

    def places(self, address: str) -> tuple[_Place, ...]:
        """Returns where receivers of an address are at this site."""
        return self._places.get(address, ())

    def outlive(self, version: Version, now: float) -> bool:
        """Handles an entry of this router that it has not made in this life.

        Returns:
            Whether the epoch has been raised, so that all others forget the other life's.
        """
        if version.epoch < self.epoch or now < self._settled_at:
            return False
        self._settled_at = now + OUTLIVE_SECONDS
        self.epoch, self._sequence = version.epoch + 1, 0
        for one in self._said | {Key(self.router, Kind.LINKS, 0)}:
            self._soil(one, now)
        return True

    def due(self, now: float) -> Iterator[tuple[Key, Version, Body]]:
        """Yields what is to be sealed and flooded now."""
        if self.due_at is None or now < self.due_at:
            return
        dirty, self._dirty, self.due_at = sorted(self._dirty), set(), None
        for key in dirty:
            body = self._body(key)
            if key in self._said or not _is_empty(body):
                self._said.add(key)
                self._sequence += 1
                yield key, Version(self.epoch, self._sequence), body

    def _body(self, key: Key) -> Body:
        match key.kind:
            case Kind.LINKS:
                return Links(self._costs)
            case Kind.PREFIXES:
                return Prefixes(_slice(self._patterns, key.part))
            case _:
                return Addresses(tuple(sorted(self._parts.get(key.part, ()))))

    def _announce(self, address: str, now: float) -> str | None:
        part = _part_of(address)
        if address in self._parts.get(part, ()):
            return None
        if self._count >= ADDRESSES_MOST:
            self._waiting[address] = None
            return (
                f"{ADDRESSES_MOST} single addresses are announced already; "
                f"name a prefix that covers it in mesh.advertise"
            )
        self._parts.setdefault(part, set()).add(address)
        self._count += 1
        self._soil(Key(self.router, Kind.ADDRESSES, part), now)
        return None

    def _withdraw(self, address: str, now: float) -> None:
        self._waiting.pop(address, None)
        part = _part_of(address)
        if address not in self._parts.get(part, ()):
            return
        self._parts[part].remove(address)
        self._count -= 1
        self._soil(Key(self.router, Kind.ADDRESSES, part), now)
        if self._waiting:
            first = next(iter(self._waiting))
            del self._waiting[first]
            if not self.covers(first):
                self._announce(first, now)

    def _soil(self, key: Key, now: float) -> None:
        self._dirty.add(key)
        if self.due_at is None:
            self.due_at = now + COALESCE_SECONDS


def _slice(patterns: tuple[str, ...], part: int) -> tuple[str, ...]:
    return patterns[part * PATTERNS_MOST : (part + 1) * PATTERNS_MOST]


def _part_of(address: str) -> int:
    return zlib.crc32(address.encode()) % ADDRESS_PARTS


def _is_empty(body: Body) -> bool:
    match body:
        case Links():
            return False
        case Prefixes(patterns):
            return not patterns
        case Addresses(addresses):
            return not addresses
