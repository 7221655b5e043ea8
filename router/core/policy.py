"""Policy: who may send to and receive from which addresses, and within which limits.

A machine without state: rules go in, decisions come out, each with the name of the rule or option
that decided. The first rule that matches a connection's identity and virtual host is the
connection's rule. Addresses that it does not list are denied, and so is everything if no rule
matches. Without any rules everything is allowed.

Connections that the router dialed are exempt: the configuration decides whom to dial.
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
"""The identity that rules use for an anonymous peer."""

NOBODY: Final = ""
"""Fits no identity: none is empty."""


class Operation(enum.Enum):
    """What a peer may do with an address."""

    SEND = "send to"
    RECEIVE = "receive from"


@attrs.frozen(kw_only=True)
class PeerLimits:
    """Limits of one peer; None: the general limit applies.

    Attributes:
        connections: at a time, of one identity.
        sessions_per_connection: at a time.
        links_per_connection: at a time.
        unsettled_per_link: unsettled deliveries received on one link.
        link_credit: largest credit, in deliveries, granted on a link.
        max_message_octets: largest message accepted.
        connection_octets: payload of deliveries without an outcome on one connection.
        messages_per_second: rate at which one connection may send.
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
    """The permissions of some identities.

    Attributes:
        name: its name in the text of denials.
        users: identities, ``*`` in them for any text; empty: everybody.
        vhosts: virtual hosts likewise; empty: all.
        send, receive: patterns of addresses; ``${user}`` in them is the identity.
        is_router: these peers are trusted routers.
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
    """The permissions of one connection.

    Attributes:
        rule: name of the connection's rule; None: none matches, or there are none.
        user: its identity, for texts.
        is_free: everything is allowed.
        is_router: it is a trusted router.
        limits: the limits that apply to it.
        limit_names: by field of ``limits``: the option that sets the value.
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
        """Returns why an address is denied; None: it is allowed."""
        if self.is_free:
            return None
        if self.rule is None:
            return f"no rule of the policy matches '{self.user}' at the virtual host '{self.vhost}'"
        allowed = self._allowed.get(operation)
        if allowed is not None and allowed.tree.find(address) is not None:
            return None
        return f"rule '{self.rule}' does not let '{self.user}' {operation.value} '{address}'"

    def pattern_denial(self, operation: Operation, pattern: Pattern) -> str | None:
        """Returns why all addresses of a pattern are denied; None: some are allowed."""
        if self.is_free or self.rule is None:
            return self.denial(operation, pattern.text)
        allowed = self._allowed.get(operation)
        if allowed is not None and any(overlaps(each, pattern) for each in allowed.patterns):
            return None
        return f"rule '{self.rule}' does not let '{self.user}' {operation.value} any '{pattern}'"

    def spells(self, operation: Operation, address: str, tokens: int) -> bool:
        """Returns whether an allowing pattern spells out the first tokens of an address.

        Args:
            operation: the requested operation.
            address: the external address.
            tokens: how many first tokens the pattern must spell out literally.
        """
        allowed = self._allowed.get(operation)
        begin = split(address)[:tokens]
        return allowed is not None and any(
            split(each.text)[:tokens] == begin and matches(each, address)
            for each in allowed.patterns
        )

    def exceeds(self, limit: str, present: int) -> str | None:
        """Returns the limit that one more would exceed; None: none.

        Args:
            limit: a field of ``PeerLimits`` that limits a number.
            present: the present number.
        """
        most: int | None = getattr(self.limits, limit)
        if most is None or present < most:
            return None
        return f"{self.limit_names[limit]}: {most}"


class Policy:
    """All rules, in the order in which they are tried, and the general limits.

    Attributes:
        agent: the only identity that may receive from the management node; None: no such node.
    """

    def __init__(
        self,
        rules: Iterable[PolicyRule] = (),
        limits: PeerLimits = NO_LIMITS,
        names: Mapping[str, str] | None = None,
        agent: str | None = None,
    ) -> None:
        """Compiles the rules.

        Args:
            rules: the first that matches decides.
            limits: the general limits, for those that a rule does not set.
            names: by field of ``PeerLimits``: the name of the option of the general limit, where
                that is not ``limits.`` and the field's name.
            agent: identity that serves the management node; None: there is none.

        Raises:
            PatternError: an address is not a valid pattern.
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
        """Returns the permissions of a connection.

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
        """Returns a rule's limits; connections of the rule share the object."""
        shared = self._shared.get(rule)
        if shared is None:
            shared = self._shared[rule] = self._lay_over(rule)
        return shared

    def _lay_over(self, rule: PolicyRule | None) -> tuple[PeerLimits, Mapping[str, str]]:
        """Combines a rule's limits with the general ones."""
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
"""For containers that the router dialed, and for its other workers."""


@attrs.frozen
class _Allowed:
    """The addresses that a rule allows for an operation."""

    patterns: tuple[Pattern, ...]
    tree: PatternTree


class _Compiled:
    """A compiled rule."""

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
        """Returns whether the rule matches an identity and a virtual host."""
        return self._fits_user(identity) and self._fits_vhost(vhost)

    def allowed(self, identity: str) -> dict[Operation, _Allowed]:
        """Returns the patterns for an identity; patterns without ``${user}`` are shared."""
        return {
            operation: self._common.get(operation) or _allow(patterns, identity)
            for operation, patterns in self._patterns()
        }


def fits_any(names: Iterable[str], text: str) -> bool:
    """Returns whether a text matches one of the names, in which ``*`` stands for any text."""
    return _is_match(re.compile("|".join(_expression(name) for name in names), re.DOTALL), text)


def _any_of(names: tuple[str, ...]) -> "partial[bool]":
    """Returns a test for whether a text matches one of the names; ``*`` stands for any text."""
    joined = "|".join(_expression(name) for name in names) if names else ".*"
    return partial(_is_match, re.compile(f"(?s:{joined})"))


def _expression(name: str) -> str:
    """Returns a regular expression for a name, in which only ``*`` is special."""
    return ".*".join(re.escape(part) for part in re.sub(r"\*+", "*", name).split("*"))


def _is_match(expression: re.Pattern[str], text: str) -> bool:
    return expression.fullmatch(text) is not None


def _names_user(patterns: tuple[str, ...]) -> bool:
    return any(USER_PLACEHOLDER in pattern for pattern in patterns)


def _allow(patterns: tuple[str, ...], user: str | None) -> _Allowed:
    parsed = tuple(parse_pattern(pattern, user) for pattern in patterns)
    tree = PatternTree({canonical(pattern): pattern for pattern in parsed}.values())
    return _Allowed(parsed, tree)
