"""Section ``policy``: who may send to and receive from which addresses, and within which limits.

A connection has an identity (from SASL; ``anonymous`` without) and a virtual host. The *first* rule
in the list that matches both is the connection's rule. An address that the rule does not list is
denied; if no rule matches, every address is denied. A denial names the rule and the address.
Without any rules everything is allowed. The policy does not apply to containers that the router
dials.
"""

from collections.abc import Mapping

import attrs

from router.routes.match import USER_PLACEHOLDER, PatternError, parse_pattern
from router.service.config.document import Node, Scalar
from router.service.config.kinds import ListOf, MapOf, Reading, ScalarKind
from router.service.config.options import Placed, Section, option
from router.service.config.problems import UnfitError
from router.service.config.scalars import Flag, Octets, Text, Whole

ANONYMOUS = "anonymous"
"""Identity of a peer that did not authenticate."""


@attrs.frozen
class AddressPattern(ScalarKind[str]):
    """An address pattern, kept as text; ``${user}`` stands for the identity where allowed."""

    kept: frozenset[str] = frozenset()

    def read(self, node: Node, at: str, reading: Reading) -> str:
        """Reads a pattern; for a missing one the problem names the likely cause."""
        if isinstance(node, Scalar) and node.is_null:
            raise UnfitError("has no value; a pattern that begins with '#' wants quotes")
        reading.doubt(node, at)
        return super().read(node, at, reading)

    def parse(self, text: str) -> str:
        """Checks that it is a pattern."""
        try:
            parse_pattern(text)
        except PatternError as error:
            raise UnfitError(error.reason) from None
        return text

    def wanted(self) -> str:
        """What a pattern is."""
        return "an address pattern: tokens between '.' or '/', '*' for one, '#' for any number"


_BY_USER = AddressPattern(kept=frozenset([USER_PLACEHOLDER[2:-1]]))
_NAMES = ListOf(Text(), "name")
_SOME_NAMES = ListOf(Text(), "name", may_be_empty=False)
"""Where leaving out the key means everybody: who writes an empty list means nobody."""


@attrs.frozen(kw_only=True)
class RuleLimits(Placed):
    """Limits of a rule; omitted limits are those of section ``limits``."""

    connections: int | None = option(
        Whole(0),
        default=None,
        default_text="connections_per_identity of limits",
        unit="connections",
        help="connections at a time, of one identity",
    )
    sessions_per_connection: int | None = option(
        Whole(1, 65536),
        default=None,
        default_text="that of limits",
        unit="sessions",
        help="sessions on one connection",
    )
    links_per_connection: int | None = option(
        Whole(1, 1 << 20),
        default=None,
        default_text="that of limits",
        unit="links",
        help="links attached at a time on one connection",
    )
    unsettled_per_link: int | None = option(
        Whole(1, 1 << 20),
        default=None,
        default_text="that of limits",
        unit="deliveries",
        help="unsettled deliveries at a time on one link of a sender",
    )
    link_credit: int | None = option(
        Whole(1, 1 << 20),
        default=None,
        default_text="that of limits",
        unit="deliveries",
        help="largest credit granted on a link",
    )
    max_message_octets: int | None = option(
        Octets(1), default=None, default_text="that of limits", help="largest message"
    )
    connection_octets: int | None = option(
        Octets(64 << 10),
        default=None,
        default_text="that of limits",
        help="payload of deliveries without an outcome that one connection may send",
    )
    messages_per_second: int | None = option(
        Whole(1),
        default=None,
        default_text="that of limits",
        unit="messages per second",
        help="rate at which one connection may send",
    )


@attrs.frozen(kw_only=True)
class Rule(Placed):
    """The permissions of some identities."""

    name: str = option(Text(), help="name of the rule in denials")
    users: tuple[str, ...] = option(
        _SOME_NAMES,
        default=(),
        default_text="everybody, if groups is left out too",
        help="identities, '*' in them for any text; anonymous: peers that gave none",
    )
    groups: tuple[str, ...] = option(
        _NAMES, default=(), help="groups to whose members the rule applies as well"
    )
    vhosts: tuple[str, ...] = option(
        _SOME_NAMES,
        default=(),
        default_text="every one",
        help="virtual hosts, '*' in them for any text",
    )
    send: tuple[str, ...] = option(
        ListOf(_BY_USER, "pattern"),
        default=(),
        help="addresses that may be sent to; ${user} in a pattern is the identity. What"
        " replies.${user}.# means for user a takes in what it means for a.b and a/b, which are the"
        " same address. Dynamic ones begin with the id of the router and 'temp'",
    )
    receive: tuple[str, ...] = option(
        ListOf(_BY_USER, "pattern"),
        default=(),
        help="addresses that may be received from; those of others ($management, and dynamic ones"
        " that somebody else made) only by a pattern that spells what they begin with",
    )
    is_router: bool = option(
        Flag(),
        default=False,
        help="these peers are trusted routers: their trace and delivery keys are accepted",
    )
    advertise: tuple[str, ...] | None = option(
        ListOf(AddressPattern(), "pattern"),
        default=None,
        default_text="any, if no rule has this key; else none",
        help="addresses that routers of the mesh with these ids may advertise to this one",
    )
    limits: RuleLimits = option(
        Section(RuleLimits),
        factory=RuleLimits,
        default_text="those of section limits",
        help="limits for these identities",
    )


@attrs.frozen(kw_only=True)
class Policy(Placed):
    """The access policy."""

    groups: Mapping[str, tuple[str, ...]] = option(
        MapOf(_NAMES, what="group"),
        factory=dict,
        help="group: its members, '*' in them for any text",
    )
    rules: tuple[Rule, ...] = option(
        ListOf(Section(Rule), "rule"),
        default=(),
        default_text="none: everything is allowed",
        help="the first rule that matches a connection's identity and virtual host decides",
    )

    def identities(self, rule: Rule) -> tuple[str, ...] | None:
        """Returns whom a rule names, with the members of its groups; None: it fits everybody."""
        if not (rule.users or rule.groups):
            return None
        members = (member for group in rule.groups for member in self.groups[group])
        return (*rule.users, *members)
