"""The nouns of routing: a route, its sources, its targets, and its options."""

import enum
from typing import Final

import attrs

from router.model.trace import Sampling
from router.model.ways import Chain
from router.routes.match import has_wildcards


class Distribution(enum.StrEnum):
    """To how many of an address' receivers a delivery goes."""

    BALANCED = "balanced"
    CLOSEST = "closest"
    MULTICAST = "multicast"


class Guarantee(enum.StrEnum):
    """How often a delivery arrives."""

    AT_MOST_ONCE = "at-most-once"
    AT_LEAST_ONCE = "at-least-once"
    EXACTLY_ONCE = "exactly-once"


class InDoubt(enum.StrEnum):
    """What happens to a delivery that was sent and whose outcome is lost with the connection."""

    RESEND = "resend"
    """It is sent again, with a higher delivery-count (and its id, if the target detects ids)."""
    HOLD = "hold"
    """It waits in the journal until a person decides."""


class Unroutable(enum.StrEnum):
    """What happens to a delivery that no receiver of its route can take at present."""

    RELEASE = "release"
    """Its outcome is ``released``."""
    REJECT = "reject"
    """Its outcome is ``rejected`` with amqp:not-found."""
    HOLD = "hold"
    """It waits here, within the octet budgets, until a receiver can take it."""
    DEAD_LETTER = "dead-letter"
    """It goes to the route's ``dead_letter``."""
    DROP = "drop"
    """Its outcome is ``accepted``: it is dropped, and counted."""


class WhenFull(enum.StrEnum):
    """What happens when as much is stored for a route as may be."""

    REFUSE = "refuse"
    """Its senders get no credit and wait."""
    DROP_OLDEST = "drop-oldest"
    """Its oldest messages go to its dead letters."""


@attrs.frozen(kw_only=True)
class Storing:
    """Messages of a route are stored on disk, accepted, and forwarded from there.

    Attributes:
        octets: most octets that are stored; None: as much as there is room for.
        messages: most messages that are stored; None: any number.
        age_seconds: older ones go to the dead letters; None: none is too old.
        full: what happens at ``octets`` or ``messages``.
        always: also while the targets take them; else only while they do not.
        in_journal: where the journal is; else on the disk of this machine.
    """

    octets: int | None = None
    messages: int | None = None
    age_seconds: float | None = None
    full: WhenFull = WhenFull.REFUSE
    always: bool = False
    in_journal: bool = False


@attrs.frozen
class Position:
    """A place in a configuration file; lines and columns count from 1."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


@attrs.frozen(kw_only=True)
class LinkTerms:
    """What the router asks for when it attaches a link to an endpoint, beside the address.

    Attributes:
        filters: the source's filter set (§3.5.8), an encoded AMQP map; empty: none.
        filter_names: the keys of that map.
        capabilities: of the container's terminus.
        link_name: the link's name; None: one that the router makes.
        properties: of the attach, an encoded AMQP map; empty: none.
        chain: set for links to other sites (``core.mesh.ways``).
    """

    filters: bytes = b""
    filter_names: tuple[str, ...] = ()
    capabilities: tuple[str, ...] = ()
    link_name: str | None = None
    properties: bytes = b""
    chain: Chain | None = None

    def __str__(self) -> str:
        parts = [f"filter {name}" for name in self.filter_names]
        parts += [f"capability {name}" for name in self.capabilities]
        parts += [] if self.link_name is None else [f"link_name {self.link_name}"]
        parts += ["properties"] if self.properties else []
        return ", ".join(parts)


PLAIN: Final = LinkTerms()
"""Nothing but the address."""


@attrs.frozen
class Endpoint:
    """An address inside a configured container.

    Attributes:
        container: its name in the configuration.
        address: the container's name for it, perhaps with wildcards to be filled from the route's
            (see ``rewrite``); None: the same address as on this side.
        terms: what else is asked for when a link to it is attached.
        position: where it stands in the file; None if it was made by a program.
    """

    container: str
    address: str | None = None
    terms: LinkTerms = PLAIN
    position: Position | None = attrs.field(default=None, eq=False, repr=False)

    def __str__(self) -> str:
        place = self.container if self.address is None else f"{self.container}/{self.address}"
        return place if self.terms == PLAIN else f"{place} ({self.terms})"


@attrs.frozen
class Deduplication:
    """The target drops a message whose id it has seen.

    Attributes:
        property: ``message-id``, or the name of the application property that holds the id.
    """

    property: str


class QueueType(enum.StrEnum):
    """What kind of queue a broker is to make (RabbitMQ's ``x-queue-type``)."""

    CLASSIC = "classic"
    QUORUM = "quorum"
    STREAM = "stream"


class ExchangeType(enum.StrEnum):
    """What kind of exchange a broker is to make (0-9-1 §3.1.3)."""

    DIRECT = "direct"
    FANOUT = "fanout"
    TOPIC = "topic"
    HEADERS = "headers"


@attrs.frozen(kw_only=True)
class Declaration:
    """How a broker is to make a queue or exchange that is not there.

    Attributes:
        durable: it outlives the broker's restart.
        auto_delete: it goes when nobody uses it any more.
        queue: None: the broker's usual kind.
    """

    durable: bool = True
    auto_delete: bool = False
    queue: QueueType | None = None
    exchange: ExchangeType = ExchangeType.TOPIC


@attrs.frozen(kw_only=True)
class Route:
    """A rule for the addresses that match a pattern. Equality leaves ``position`` out.

    Neither ``from_`` nor ``to``: the route connects senders and receivers of this router.
    ``to`` alone: messages of local senders go to the containers, and local receivers are fed from
    the containers. ``from_`` alone: messages come from the container. Both: a bridge.

    Attributes:
        address: the pattern. If it has wildcards and ``from_`` is given, each message that is
            pulled has an address of its own (``pulling``).
        name: the route's name in the console, metrics and logs; unique in a table.
        in_doubt: None: not given; at-least-once sends again, exactly-once holds.
        declare: how brokers create a missing queue or exchange; None: they are not asked to.
        dedup: set if the targets detect duplicates by an id.
        deduplicates: the property by which all targets drop repeats, as their containers say.
        is_recorded: its deliveries are in the ledger whatever its guarantee; those of exactly-once
            routes always are.
        archive: payloads are kept in the journal for the pipeline to read.
        tracing: which of its deliveries have spans, for which they are recorded; None: none.
        ttl_seconds: longest life of a message, whatever its own ttl says; None: its own ttl only.
        store: its messages are stored before they are forwarded; None: they are not.
        dead_letter: given exactly if ``unroutable`` is DEAD_LETTER or ``store`` is given.
        fallback: a container's queue for what no receiver takes, pulled back while there is one.
        stall_seconds: deliveries waiting that long without any progress are reported.
        link_credit: largest credit on the route's links; None: that of the limits.
        is_unavailable: its addresses do not exist here, whatever less specific route they match.
        vhost: the virtual host whose addresses take it, which ``address`` then names as ``vhost``
            says; empty: the one that all others share.
        position: where it stands in the file; None if it was made by a program.
    """

    address: str
    name: str = attrs.field()
    from_: Endpoint | None = None
    to: tuple[Endpoint, ...] = ()
    distribution: Distribution = Distribution.BALANCED
    guarantee: Guarantee = Guarantee.AT_LEAST_ONCE
    in_doubt: InDoubt | None = None
    dedup: Deduplication | None = None
    deduplicates: str | None = None
    declare: Declaration | None = None
    is_recorded: bool = False
    archive: bool = False
    tracing: Sampling | None = None
    ttl_seconds: float | None = None
    unroutable: Unroutable = Unroutable.RELEASE
    store: Storing | None = None
    dead_letter: Endpoint | None = None
    fallback: Endpoint | None = None
    stall_seconds: float = 60.0
    link_credit: int | None = None
    is_unavailable: bool = False
    vhost: str = ""
    position: Position | None = attrs.field(default=None, eq=False)

    @name.default
    def _name_is_address(self) -> str:
        return self.address

    @property
    def is_direct(self) -> bool:
        """Whether it only connects senders and receivers attached to this router."""
        return self.from_ is None and not self.to

    @property
    def is_bridge(self) -> bool:
        """Whether it moves messages from one container to others."""
        return self.from_ is not None and bool(self.to)

    @property
    def vacant(self) -> Unroutable:
        """What becomes of deliveries while nobody receives.

        A target that is away has not refused anything: only what a target refuses is dropped. What
        is stored waits for it.
        """
        if self.store is not None:
            return Unroutable.RELEASE
        drops = self.unroutable is Unroutable.DROP
        return Unroutable.RELEASE if drops and self.to else self.unroutable

    @property
    def answers_vacant(self) -> bool:
        """Whether no delivery waits while nobody receives: each gets an outcome at once."""
        return self.vacant not in (Unroutable.RELEASE, Unroutable.HOLD)

    @property
    def target_id(self) -> str | None:
        """The property by which the targets drop repeats of a message; None: they do not."""
        return self.deduplicates if self.dedup is None else self.dedup.property

    def leads_to(self, link_name: str) -> bool:
        """Returns whether a link of ours by this name leads to a target."""
        return any(
            link_name == endpoint.terms.link_name or f">{endpoint.container}/" in link_name
            for endpoint in self.to
        )

    @property
    def passes_through(self) -> bool:
        """Whether messages are stored only while the targets cannot take them.

        A multicast to several targets is always stored: some of them may be away.
        """
        if self.store is None or self.store.always:
            return False
        return len(self.to) == 1 or self.distribution is not Distribution.MULTICAST

    @property
    def pulls_many(self) -> bool:
        """Whether each message that is pulled has an address of its own."""
        return self.from_ is not None and has_wildcards(self.address)

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        """Every endpoint that it names, in the order of the file's keys."""
        named = (self.from_, *self.to, self.dead_letter, self.fallback)
        return tuple(endpoint for endpoint in named if endpoint is not None)

    def __str__(self) -> str:
        if self.is_direct:
            return self.address
        arrow = f"{self.from_} -> " if self.from_ else ""
        return f"{arrow}{', '.join(map(str, self.to)) or self.address}"
