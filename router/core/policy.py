"""Policy: who may send to and receive from which addresses, and within which limits.

A machine without state: rules go in, decisions come out, each with the name of what decided. The
first rule that fits a connection's identity and virtual host is the connection's rule. What it does
not list is denied, and so is everything if no rule fits. Without any rules everything is allowed.

Connections that the router dialed stand above it: whom to dial is the configuration's decision.
"""

import enum
import re
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Final

import attrs

from router.routes.match import (
    USER_PLACEHOLDER,
    Pattern,
    PatternTree,
    canonical,
    matches,
    overlaps,
    parse_pattern,
    split,
)

ANONYMOUS: Final = "anonymous"
"""Identity, in rules, of a peer that gave none."""


class Operation(enum.Enum):
    """What a peer may be let do with an address."""

    SEND = "send to"
    RECEIVE = "receive from"


@attrs.frozen(kw_only=True)
class PeerLimits:
    """What one peer may take; None: whatever stands behind these limits says.

    Attributes:
        connections: at a time, of one identity.
        sessions_per_connection: at a time.
        links_per_connection: at a time.
        unsettled_per_link: deliveries of one link whose outcome its sender does not know.
        link_credit: largest credit, in deliveries, granted on a link.
        max_message_octets: largest message taken.
        connection_octets: payload of unknown outcome that one connection may bring.
        messages_per_second: that one connection may send.
    """

    connections: int | None = None
    sessions_per_connection: int | None = None
    links_per_connection: int | None = None
    unsettled_per_link: int | None = None
    link_credit: int | None = None
    max_message_octets: int | None = None
    connection_octets: int | None = None
    messages_per_second: int | None = None


@attrs.frozen(kw_only=True)
class PolicyRule:
    """What some identities may do.

    Attributes:
        name: what denials call it.
        users: identities, ``*`` in them for any text; empty: everybody.
        vhosts: virtual hosts likewise; empty: every one.
        send, receive: patterns of addresses; ``${user}`` in them is the identity.
        is_router: these peers are routers of ours.
    """

    name: str
    users: tuple[str, ...] = ()
    vhosts: tuple[str, ...] = ()
    send: tuple[str, ...] = ()
    receive: tuple[str, ...] = ()
    is_router: bool = False
    limits: PeerLimits = PeerLimits()


NO_LIMITS: Final = PeerLimits()


@attrs.frozen(kw_only=True)
class Permissions:
    """What one connection may do.

    Attributes:
        rule: name of the connection's rule; None: none fits, or there are none.
        user: its identity, for people.
        is_free: everything is allowed.
        is_router: it is a router of ours.
        limits: all that hold for it.
        limit_names: by field of ``limits``: the option that the value is from.
    """

    rule: str | None
    user: str
    vhost: str
    is_free: bool
    is_router: bool = False
    limits: PeerLimits = NO_LIMITS
    limit_names: Mapping[str, str] = attrs.field(factory=dict)
    _allowed: Mapping[Operation, "_Allowed"] = attrs.field(factory=dict, repr=False, eq=False)

    def denial(self, operation: Operation, address: str) -> str | None:
        """Returns why an address is out of bounds; None: it is not."""
        if self.is_free:
            return None
        if self.rule is None:
            return f"no rule of the policy fits '{self.user}' at the virtual host '{self.vhost}'"
        allowed = self._allowed.get(operation)
        if allowed is not None and allowed.tree.find(address) is not None:
            return None
        return f"rule '{self.rule}' does not let '{self.user}' {operation.value} '{address}'"

    def pattern_denial(self, operation: Operation, pattern: Pattern) -> str | None:
        """Returns why all addresses of a pattern are out of bounds; None: they are not."""
        if self.is_free or self.rule is None:
            return self.denial(operation, pattern.text)
        allowed = self._allowed.get(operation)
        if allowed is not None and any(overlaps(each, pattern) for each in allowed.patterns):
            return None
        return f"rule '{self.rule}' does not let '{self.user}' {operation.value} any '{pattern}'"

    def spells(self, operation: Operation, address: str, tokens: int) -> bool:
        """Returns whether a pattern of the rule allows an address, and names what it begins with.

        Args:
            operation: what the peer is about to do.
            address: as peers call it.
            tokens: how many of its first tokens must stand in the pattern, letter by letter.
        """
        allowed = self._allowed.get(operation)
        begin = split(address)[:tokens]
        return allowed is not None and any(
            split(each.text)[:tokens] == begin and matches(each, address)
            for each in allowed.patterns
        )

    def exceeds(self, limit: str, present: int) -> str | None:
        """Returns which limit one more would exceed; None: none.

        Args:
            limit: a field of ``PeerLimits`` that counts something.
            present: how many there are.
        """
        most: int | None = getattr(self.limits, limit)
        if most is None or present < most:
            return None
        return f"{self.limit_names[limit]}: {most}"


class Policy:
    """All rules, in the order in which they are asked, and the limits behind them.

    Attributes:
        agent: identity of who alone receives from the management node; None: there is none.
    """

    def __init__(
        self,
        rules: Iterable[PolicyRule] = (),
        limits: PeerLimits = NO_LIMITS,
        names: Mapping[str, str] | None = None,
        agent: str | None = None,
    ) -> None:
        """Makes the rules ready.

        Args:
            rules: the first that fits decides.
            limits: for what a rule says nothing about.
            names: by field of ``PeerLimits``: what the option behind ``limits`` is called, where
                that is not ``limits.`` and the field's name.
            agent: identity that answers for the management node; None: nobody does.

        Raises:
            PatternError: an address is no pattern.
        """
        self.rules = tuple(rules)
        self.limits = limits
        self.agent = agent
        self._names = names or {}
        self._compiled = tuple(_Compiled(rule) for rule in self.rules)
        self._shared: dict[PolicyRule | None, tuple[PeerLimits, Mapping[str, str]]] = {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Policy) and self._facts == other._facts

    @property
    def _facts(self) -> tuple[object, ...]:
        return self.rules, self.limits, self._names, self.agent

    __hash__ = None  # type: ignore[assignment]

    def permissions(self, user: str | None, vhost: str | None) -> Permissions:
        """Decides what a connection may do.

        Args:
            user: its authenticated identity; None: anonymous.
            vhost: the virtual host that it asked for.
        """
        identity, host = user or ANONYMOUS, vhost or ""
        fitting = (each for each in self._compiled if each.fits(identity, host))
        compiled = next(fitting, None)
        if compiled is None:
            limits, names = self._limits_of(None)
            return Permissions(
                rule=None,
                user=identity,
                vhost=host,
                is_free=not self.rules,
                limits=limits,
                limit_names=names,
            )
        rule = compiled.rule
        limits, names = self._limits_of(rule)
        return Permissions(
            rule=rule.name,
            user=identity,
            vhost=host,
            is_free=False,
            is_router=rule.is_router,
            limits=limits,
            limit_names=names,
            allowed=compiled.allowed(identity),
        )

    def _limits_of(self, rule: PolicyRule | None) -> tuple[PeerLimits, Mapping[str, str]]:
        """Returns a rule's limits, the same for all connections that it is about."""
        shared = self._shared.get(rule)
        if shared is None:
            shared = self._shared[rule] = self._lay_over(rule)
        return shared

    def _lay_over(self, rule: PolicyRule | None) -> tuple[PeerLimits, Mapping[str, str]]:
        """Lays a rule's limits over those behind it."""
        own = NO_LIMITS if rule is None else rule.limits
        values: dict[str, int | None] = {}
        names: dict[str, str] = {}
        for field in attrs.fields_dict(PeerLimits):
            value: int | None = getattr(own, field)
            if value is not None and rule is not None:
                names[field] = f"limits.{field} of rule '{rule.name}'"
            else:
                value = getattr(self.limits, field)
                names[field] = self._names.get(field, f"limits.{field}")
            values[field] = value
        return PeerLimits(**values), names


OPEN: Final = Policy()
"""Everything is allowed, without limits."""

DIALED: Final = Permissions(rule=None, user="", vhost="", is_free=True)
"""Of containers that the router dialed, and of its other workers."""


@attrs.frozen
class _Allowed:
    """What a rule lets somebody do something with."""

    patterns: tuple[Pattern, ...]
    tree: PatternTree


class _Compiled:
    """A rule made ready to be asked."""

    def __init__(self, rule: PolicyRule) -> None:
        self.rule = rule
        self._fits_user = _any_of(rule.users)
        self._fits_vhost = _any_of(rule.vhosts)
        self._common = {
            operation: _allow(patterns, None)
            for operation, patterns in self._patterns()
            if not _names_user(patterns)
        }
        for _, patterns in self._patterns():  # a pattern that is none is found now
            _allow(patterns, "somebody")

    def _patterns(self) -> list[tuple[Operation, tuple[str, ...]]]:
        return [(Operation.SEND, self.rule.send), (Operation.RECEIVE, self.rule.receive)]

    def fits(self, identity: str, vhost: str) -> bool:
        """Returns whether the rule is for an identity at a virtual host."""
        return self._fits_user(identity) and self._fits_vhost(vhost)

    def allowed(self, identity: str) -> dict[Operation, _Allowed]:
        """Returns the patterns for an identity; those that do not name it are shared."""
        return {
            operation: self._common.get(operation) or _allow(patterns, identity)
            for operation, patterns in self._patterns()
        }


def fits_any(names: Iterable[str], text: str) -> bool:
    """Returns whether a text is one of the names, ``*`` in these for any text."""
    return _is_match(re.compile("|".join(_expression(name) for name in names), re.DOTALL), text)


def _any_of(names: tuple[str, ...]) -> "partial[bool]":
    """Makes a test whether a text is one of the names, ``*`` in these for any text."""
    joined = "|".join(_expression(name) for name in names) if names else ".*"
    return partial(_is_match, re.compile(f"(?s:{joined})"))


def _expression(name: str) -> str:
    """Rewords a name; nothing but ``*`` has a meaning of its own."""
    return ".*".join(re.escape(part) for part in re.sub(r"\*+", "*", name).split("*"))


def _is_match(expression: re.Pattern[str], text: str) -> bool:
    return expression.fullmatch(text) is not None


def _names_user(patterns: tuple[str, ...]) -> bool:
    return any(USER_PLACEHOLDER in pattern for pattern in patterns)


def _allow(patterns: tuple[str, ...], user: str | None) -> _Allowed:
    parsed = tuple(parse_pattern(pattern, user) for pattern in patterns)
    tree = PatternTree({canonical(pattern): pattern for pattern in parsed}.values())
    return _Allowed(parsed, tree)
