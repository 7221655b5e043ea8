"""What becomes of an entry that a neighbor sends: judged, stored, used, and handed on.

::

    known already ------------------------> ignored; the neighbor needs it no more
    older than ours ----------------------> the neighbor gets ours
    newer, its signature wrong -----------> refused; the *neighbor* is named: it checks, too
    newer, its body against the rules ----> refused; the *origin* is named
    newer --------------------------------> stored, offered to all other neighbors, used
    of our version, but another one ------> the origin is named; the greater stamp stays

The signature is checked once for each version: what is known already is dropped before. What the
policy does not allow is stored and handed on (the policy of others may allow it), but not used, and
its origin is named.

All of this may be more than one slice, so it is a generator that yields the units of work it has
done (``UNITS``).
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final

import attrs

from router.routes.match import Pattern, parse_pattern
from router.routes.mesh.bodies import Bad, Notary
from router.routes.mesh.database import EXPIRY_SECONDS, Database, Place
from router.routes.mesh.nouns import (
    Addresses,
    AnyBody,
    Carried,
    Entry,
    Foreign,
    Key,
    Kind,
    Links,
    Prefixes,
    RouterId,
)
from router.routes.mesh.policy import Policy
from router.routes.mesh.prefixes import Index

UNITS: Final = 60
"""Units of work in a slice; one is some 10 microseconds, and twice that on a busy machine."""

KNOWN_UNITS: Final = 1
OPEN_UNITS: Final = 20
"""An Ed25519 signature (0.1 ms) and a body."""

PATTERN_UNITS: Final = 4
ADDRESS_UNITS: Final = 1

Refuse = Callable[[RouterId, RouterId, str], None]
"""Names a router, the neighbor that handed it on, and the rule."""


@attrs.define(eq=False)
class Flood:
    """The entries of one router, and what follows from them.

    Attributes:
        router: its id.
        notary: opens entries.
        policy: what others may advertise.
        refuse: see ``Refuse``.
        offer: has an entry sent to all neighbors but one.
        database: the entries.
        index: who serves which address.
        claims: what routers say of their links.
        topology_changed: whether ``claims`` has changed since this was last set to False.
        paths_changed: the same of ``index``.
    """

    router: RouterId
    notary: Notary
    policy: Policy
    refuse: Refuse
    offer: Callable[[Entry, RouterId | None], None]
    database: Database = attrs.field(factory=Database, init=False)
    index: Index = attrs.field(factory=Index, init=False)
    claims: dict[RouterId, dict[RouterId, int]] = attrs.field(factory=dict, init=False)
    topology_changed: bool = attrs.field(default=False, init=False)
    paths_changed: bool = attrs.field(default=False, init=False)
    _patterns: dict[Key, tuple[Pattern, ...]] = attrs.field(factory=dict, init=False)
    _addresses: dict[Key, tuple[str, ...]] = attrs.field(factory=dict, init=False)

    def take(self, carried: Carried, via: RouterId, now: float) -> Iterator[int]:
        """Handles an entry that is not this router's own."""
        entry = carried.entry
        place = self.database.place(entry)
        if place in (Place.SAME, Place.OLDER) or carried.idle_seconds >= EXPIRY_SECONDS:
            yield KNOWN_UNITS
            return
        origin = entry.key.origin
        if place is Place.TOO_MANY:
            self.refuse(origin, via, "more entries than a router may have")
            yield KNOWN_UNITS
            return
        body = self.notary.open(entry)
        yield OPEN_UNITS
        if isinstance(body, Bad):
            self.refuse(via if body.is_forged else origin, via, body.rule)
            return
        if self.database.place(entry) is not place:
            return
        if place is Place.RIVAL:
            self.refuse(origin, via, f"two entries {entry.key.kind} of version {entry.version}")
            known = self.database.get(entry.key)
            if known is not None and known.stamp > entry.stamp:
                return
        self.database.mark_idle(origin, carried.idle_seconds, now)
        yield from self.keep(entry, body, via, now)

    def is_foreign(self, entry: Entry) -> bool:
        """Returns whether an entry that this router has signed is not from this life."""
        if self.database.place(entry) in (Place.SAME, Place.OLDER):
            return False
        return not isinstance(self.notary.open(entry), Bad)

    def keep(self, entry: Entry, body: AnyBody, via: RouterId | None, now: float) -> Iterator[int]:
        """Stores an entry, offers it to all neighbors but one, and uses it."""
        gone = self.database.store(entry, now)
        self.offer(entry, via)
        yield from self._withdraw(one.key for one in gone if one.key != entry.key)
        yield from self._use(entry.key, body, via or self.router)

    def served(self) -> dict[RouterId, tuple[list[str], int]]:
        """Returns what each router serves: its patterns, and how many single addresses."""
        found: dict[RouterId, tuple[list[str], int]] = {}
        for key, patterns in self._patterns.items():
            texts, count = found.get(key.origin, ([], 0))
            found[key.origin] = ([*texts, *(one.text for one in patterns)], count)
        for key, addresses in self._addresses.items():
            texts, count = found.get(key.origin, ([], 0))
            found[key.origin] = (texts, count + len(addresses))
        return found

    def forget(self, origin: RouterId, now: float) -> Iterator[int]:
        """Forgets all that an origin has said."""
        yield from self._withdraw(one.key for one in self.database.forget(origin, now))

    def judge_again(self) -> Iterator[int]:
        """Applies a policy that has changed."""
        for origin in list(self.database.origins()):
            for entry in list(self.database.of(origin)):
                if entry.key.kind in (Kind.PREFIXES, Kind.ADDRESSES):
                    body = self.notary.open(entry)
                    yield OPEN_UNITS
                    if not isinstance(body, Bad) and self.database.get(entry.key) is entry:
                        yield from self._use(entry.key, body, origin)

    def _withdraw(self, keys: Iterable[Key]) -> Iterator[int]:
        for key in keys:
            if key.kind == Kind.LINKS and self.claims.pop(key.origin, None) is not None:
                self.topology_changed = True
            yield from self._use(key, Foreign(""), key.origin)

    def _use(self, key: Key, body: AnyBody, via: RouterId) -> Iterator[int]:
        match body:
            case Links(costs):
                self.claims[key.origin] = dict(costs)
                self.topology_changed = True
                yield KNOWN_UNITS
            case Prefixes(texts):
                yield from self._use_patterns(key, texts, via)
            case Addresses(addresses):
                yield from self._use_addresses(key, addresses, via)
            case Foreign(rule):
                if rule:
                    self.refuse(key.origin, via, f"{rule}; it is carried for others")
                yield from self._use_patterns(key, (), via)
                yield from self._use_addresses(key, (), via)

    def _use_patterns(self, key: Key, texts: Iterable[str], via: RouterId) -> Iterator[int]:
        before = self._patterns.pop(key, ())
        found: dict[str, Pattern] = {one.text: one for one in before}
        allowed: list[Pattern] = []
        for text in texts:
            is_own = key.origin == self.router
            known = parse_pattern(text) if is_own else self.policy.judge_pattern(key.origin, text)
            if isinstance(known, str):
                self.refuse(key.origin, via, known)
            else:
                allowed.append(found.get(text, known))
                if text not in found:
                    self.index.add_pattern(known, key.origin)
            yield PATTERN_UNITS
        kept = {one.text for one in allowed}
        for pattern in before:
            if pattern.text not in kept:
                self.index.remove_pattern(pattern, key.origin)
                yield ADDRESS_UNITS
        if allowed:
            self._patterns[key] = tuple(allowed)
        self.paths_changed = True

    def _use_addresses(self, key: Key, addresses: Iterable[str], via: RouterId) -> Iterator[int]:
        before = dict.fromkeys(self._addresses.pop(key, ()))
        allowed: dict[str, None] = {}
        for address in addresses:
            is_own = key.origin == self.router
            rule = None if is_own else self.policy.judge_address(key.origin, address)
            if rule:
                self.refuse(key.origin, via, rule)
            else:
                allowed[address] = None
                if address not in before:
                    self.index.add_address(address, key.origin)
            yield ADDRESS_UNITS
        for address in before:
            if address not in allowed:
                self.index.remove_address(address, key.origin)
                yield ADDRESS_UNITS
        if allowed:
            self._addresses[key] = tuple(allowed)
        self.paths_changed = True
