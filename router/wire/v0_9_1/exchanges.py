"""The exchanges of one connection: their types, and how they are bound to each other.

Theory of operation. An exchange is the first part of an address (``names``), so a queue that is
bound to one receives from addresses. An exchange that is bound to another (``exchange.bind``,
RabbitMQ) is no link by itself: it adds addresses of its source to every queue of this connection
that is bound to it, and so on from there. ``Exchanges.reached`` resolves them.

On its way from the source a message keeps its routing key and passes a *gate* at each exchange. A
direct exchange's gate fixes the key, so the address is known; a topic's may be a pattern; and what
an address does not contain, headers and the key of a message in a fanout, is kept as gates against
which the messages themselves are matched::

    source   gate at the source   gate behind it     the queue stands for
    direct   "eu"                 topic "#"          source/eu
    topic    "eu.*"               fanout             source/eu.*     a pattern
    topic    "eu.#"               direct "eu.a"      source/eu.a
    topic    "*.a"                topic "eu.#"       source/*.a      those that eu.# matches, too
    fanout   -                    direct "eu"        source          messages with that key
    direct   "eu"                 direct "us"        nothing

An internal exchange has no address of its own: it cannot be published to.
"""

from collections.abc import Iterator
from typing import Any

import attrs

from router.wire.exchange_names import KEYLESS, PREDECLARED, ExchangeType, address_of
from router.wire.topics import has_wildcards, key_at, key_matches
from router.wire.v0_9_1.names import headers_match
from router.wire.v0_9_1.types import Table


@attrs.frozen
class Gate:
    """The condition that an exchange sets for one binding (0-9-1 §3.1.3)."""

    kind: ExchangeType
    routing_key: str
    arguments: Table

    @property
    def is_pattern(self) -> bool:
        """Whether several routing keys pass, but not all."""
        return self.kind is ExchangeType.TOPIC and has_wildcards(self.routing_key)

    def lets(self, key: str, headers: dict[str, Any]) -> bool:
        """Returns whether a message passes."""
        if self.kind is ExchangeType.HEADERS:
            return headers_match(self.arguments, headers)
        return self.lets_key(key)

    def lets_key(self, key: str) -> bool:
        """Returns whether a message passes by its routing key."""
        if self.kind in KEYLESS:
            return True
        if self.kind is ExchangeType.TOPIC:
            return key_matches(self.routing_key, key)
        return key == self.routing_key


@attrs.frozen
class Binding:
    """A queue's binding to an exchange (0-9-1 §1.7.2.3)."""

    exchange: str
    routing_key: str
    arguments: Table


@attrs.frozen
class ExchangeBinding:
    """A binding of an exchange to another, its source (RabbitMQ)."""

    destination: str
    source: str
    routing_key: str
    arguments: Table


@attrs.frozen
class Reach:
    """What a binding adds to a queue: an address, or a pattern of addresses.

    Attributes:
        exchange: the first part of the address.
        is_pattern: the key has wildcards (0-9-1 §3.1.3.3).
        gates: conditions that the address does not express; a message must pass all.
    """

    exchange: str
    address: str
    is_pattern: bool = False
    gates: tuple[Gate, ...] = ()

    def gates_at(self, address: str) -> tuple[Gate, ...] | None:
        """Returns the gates for messages of one address; None if no message could pass them.

        The pattern of an exchange whose name is a wildcard matches addresses of other exchanges,
        too; those do not belong to it.
        """
        if not self.is_pattern:
            return self.gates if address == self.address else None
        key = key_at(self.exchange, address)
        if key is None or not all(gate.lets_key(key) for gate in self.gates):
            return None
        return tuple(gate for gate in self.gates if gate.kind is ExchangeType.HEADERS)


class Exchanges(dict[str, ExchangeType]):
    """Name → type of the exchanges that this connection has declared, and of predeclared ones.

    Attributes:
        internal: exchanges that cannot be published to.
        flags: of declared and predeclared exchanges: durable, auto-delete, internal.
        bindings: of exchanges to exchanges.
    """

    def __init__(self) -> None:
        super().__init__(PREDECLARED)
        self.internal: set[str] = set()
        self.flags = dict.fromkeys(PREDECLARED, (True, False, False))
        self.bindings: list[ExchangeBinding] = []

    def forget(self, name: str) -> None:
        """Records that an exchange is gone, with its bindings to others."""
        self.pop(name, None)
        self.internal.discard(name)
        self.flags.pop(name, None)
        self.bindings = [one for one in self.bindings if name not in (one.destination, one.source)]

    def reached(self, binding: Binding | ExchangeBinding) -> list[Reach]:
        """Resolves a queue's binding, or the source of an exchange's, to addresses and patterns."""
        first = binding.source if isinstance(binding, ExchangeBinding) else binding.exchange
        paths = self._paths(first, (self._gate(first, binding),), frozenset())
        found: list[Reach] = []
        for exchange, gates in paths:
            reach = _reach(exchange, gates)
            if reach is not None and reach not in found:
                found.append(reach)
        return found

    def _gate(self, exchange: str, binding: Binding | ExchangeBinding) -> Gate:
        kind = self.get(exchange, ExchangeType.DIRECT)
        return Gate(kind, binding.routing_key, binding.arguments)

    def _paths(
        self, exchange: str, gates: tuple[Gate, ...], passed: frozenset[str]
    ) -> Iterator[tuple[str, tuple[Gate, ...]]]:
        """Yields each exchange that leads here, with the gates from there; cycles are cut."""
        if exchange in passed:
            return
        if exchange not in self.internal:
            yield exchange, gates
        for one in self.bindings:
            if one.destination == exchange:
                before = self._gate(one.source, one)
                yield from self._paths(one.source, (before, *gates), passed | {exchange})


def _reach(exchange: str, gates: tuple[Gate, ...]) -> Reach | None:
    """Returns the address for the gates from an exchange on; None if no message passes them."""
    kind = gates[0].kind
    headers = tuple(gate for gate in gates if gate.kind is ExchangeType.HEADERS)
    if kind in KEYLESS:
        keyed = tuple(gate for gate in gates if gate.kind not in KEYLESS)
        return Reach(exchange, address_of(exchange, "", kind), gates=keyed + headers)
    fixed = {gate.routing_key for gate in gates if not (gate.kind in KEYLESS or gate.is_pattern)}
    if fixed:
        key = min(fixed)
        if not all(gate.lets_key(key) for gate in gates):
            return None
        return Reach(exchange, address_of(exchange, key, kind), gates=headers)
    # All are patterns: one is watched, and the others are checked per address (``topics``).
    patterns = {gate.routing_key for gate in gates if gate.is_pattern}
    watched = gates[0].routing_key if len(patterns) == 1 else min(patterns - {"#"})
    keyed = tuple(gate for gate in gates if gate.is_pattern)
    return Reach(
        exchange, address_of(exchange, watched, kind), is_pattern=True, gates=keyed + headers
    )
