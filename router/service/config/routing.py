"""Section ``routes``: its entries, and their conversion to the routes that the router uses."""

import enum

import attrs

from router.routes.route import (
    Declaration,
    Deduplication,
    Distribution,
    Endpoint,
    ExchangeType,
    Guarantee,
    InDoubt,
    QueueType,
    Route,
    Unroutable,
)
from router.routes.vhost import inside
from router.service.config.endpoints import EndpointKind
from router.service.config.kinds import ListOf, OrWord
from router.service.config.options import Placed, Section, option
from router.service.config.policy import AddressPattern
from router.service.config.process import LedgerScope, Sample
from router.service.config.scalars import Flag, OneOf, Seconds, Text, Whole
from router.service.config.storing import Store

CONTAINER_NAME = r"[A-Za-z0-9_][A-Za-z0-9_.-]*"


@attrs.frozen(kw_only=True)
class Dedup(Placed):
    """How the targets of a route recognize duplicates."""

    property: str = option(
        Text(),
        default="message-id",
        help="message-id, or the name of an application property such as _AMQ_DUPL_ID",
    )


class Lifetime(enum.StrEnum):
    """Lifetime of the queues and exchanges that a broker makes."""

    DURABLE = "durable"
    TRANSIENT = "transient"
    AUTO_DELETE = "auto-delete"


@attrs.frozen(kw_only=True)
class Declare(Placed):
    """How brokers create the missing queues and exchanges of a route."""

    lifetime: Lifetime = option(
        OneOf(Lifetime),
        default=Lifetime.DURABLE,
        help="durable: outlives the broker's restart; transient: does not; auto-delete: goes when"
        " nobody uses it any more",
    )
    queue: QueueType | None = option(
        OneOf(QueueType),
        default=None,
        default_text="the broker's usual",
        help="kind of queue (x-queue-type): classic, quorum or stream",
    )
    exchange: ExchangeType = option(
        OneOf(ExchangeType),
        default=ExchangeType.TOPIC,
        help="kind of exchange: direct, fanout, topic or headers",
    )

    def as_declaration(self) -> Declaration:
        """Returns the declaration as the rest of the program uses it."""
        return Declaration(
            durable=self.lifetime is Lifetime.DURABLE,
            auto_delete=self.lifetime is Lifetime.AUTO_DELETE,
            queue=self.queue,
            exchange=self.exchange,
        )


@attrs.frozen(kw_only=True)
class RouteEntry(Placed):
    """One route."""

    address: str = option(
        AddressPattern(),
        help="pattern of the route's addresses; the most specific pattern wins",
    )
    name: str | None = option(
        Text(),
        default=None,
        default_text="the address",
        help="name of the route in status, metrics, pause and resume",
    )
    vhost: str | None = option(
        Text(),
        default=None,
        default_text="all virtual hosts that no route names",
        help="virtual host whose addresses take it; one that is named here shares none with others."
        " A peer that names another host than these and / is refused, except over AMQP 1.0",
    )
    from_: Endpoint | None = option(
        EndpointKind(),
        default=None,
        help="container, or container/address, from which messages are pulled all the time; with"
        " EXCHANGE/PATTERN each message has the address EXCHANGE/KEY. A mapping says more about the"
        " link",
    )
    to: tuple[Endpoint, ...] = option(
        ListOf(EndpointKind(), "endpoint", may_be_empty=False),
        default=(),
        help="container, or container/address, that messages go to; may be a list. * and # in it"
        " take what they stand for in address. A mapping says more about the link",
    )
    distribution: Distribution = option(
        OneOf(Distribution),
        default=Distribution.BALANCED,
        help="balanced: to the receiver with the fewest unsettled; closest: to the nearest;"
        " multicast: to all",
    )
    guarantee: Guarantee = option(
        OneOf(Guarantee),
        default=Guarantee.AT_LEAST_ONCE,
        help="at-most-once, at-least-once or exactly-once; `router check` says which"
        " guarantee results",
    )
    in_doubt: InDoubt | None = option(
        OneOf(InDoubt),
        default=None,
        default_text="resend for at-least-once; hold for exactly-once, towards targets only if set",
        help="deliveries in doubt (sent, connection lost before the outcome): resend, or hold"
        " until an operator decides",
    )
    dedup: Dedup | None = option(
        Section(Dedup, shorthand="property"),
        default=None,
        help="the targets drop duplicates of a message by an id; set it only where they do",
    )
    declare: Declare | None = option(
        Section(Declare, shorthand="lifetime"),
        default=None,
        help="have brokers create missing queues and exchanges of the route",
    )
    ledger: bool | None = option(
        Flag(),
        default=None,
        default_text="that of router.ledger",
        help="record each delivery in the ledger, for `router audit`; exactly-once routes"
        " always do, others then leave the express lane",
    )
    archive: bool = option(
        Flag(),
        default=False,
        help="keep every message in state/archive, for `router replay`; implies ledger",
    )
    tracing: Sample | None = option(
        OneOf(Sample),
        default=None,
        default_text="that of router.tracing",
        help="deliveries that have spans: sender, always or never; other than never, the route is"
        " recorded and leaves the express lane",
    )
    ttl_seconds: float | None = option(
        OrWord(Seconds(0.001)),
        default=None,
        help="upper limit of a message's time to live, whatever its own ttl",
    )
    unroutable: Unroutable = option(
        OneOf(Unroutable),
        default=Unroutable.RELEASE,
        help="deliveries that no receiver can take, or that a target has no binding for: release"
        " or reject to the sender, hold here, dead-letter, or drop: accept and count them. Pulled"
        " deliveries are retried later instead of released. Where nobody receives senders wait,"
        " except with reject, dead-letter, and drop on routes without 'to'",
    )
    store: Store | None = option(
        Section(Store),
        default=None,
        help="keep messages on disk until the target has them; senders hear accepted when they"
        " are there",
    )
    dead_letter: Endpoint | None = option(
        EndpointKind(),
        default=None,
        help="target of dead letters, for store and for unroutable: dead-letter; local/ADDRESS is"
        " ADDRESS at this router, unless a container is called local",
    )
    fallback: Endpoint | None = option(
        EndpointKind(),
        default=None,
        help="queue for what no receiver takes, pulled back while there is one: container,"
        " container/address, or an address whose route leads 'to' a container. Goes before"
        " unroutable; for routes without 'from' and 'to'",
    )
    stall_seconds: float = option(
        Seconds(0.1),
        default=60.0,
        help="time without progress after which waiting deliveries are reported as a stall",
    )
    link_credit: int | None = option(
        Whole(1, 1 << 20),
        default=None,
        default_text="that of container or limits",
        unit="deliveries",
        help="largest credit granted on the route's links",
    )

    unavailable: bool = option(
        Flag(),
        default=False,
        help="the addresses do not exist here although a less specific route matches them: whoever"
        " attaches to one is refused",
    )

    @property
    def inner_address(self) -> str:
        """The pattern as the rest of the program uses it; see ``router.routes.vhost``."""
        return inside(self.vhost or "", self.address)

    def as_route(
        self, scope: LedgerScope = LedgerScope.EXACTLY_ONCE, sample: Sample = Sample.NEVER
    ) -> Route:
        """Returns the route.

        Args:
            scope: applies where the route itself does not set ``ledger``.
            sample: applies where the route itself does not set ``tracing``.
        """
        tracing = (sample if self.tracing is None else self.tracing).sampling
        is_recorded = scope is LedgerScope.ALL if self.ledger is None else self.ledger
        return Route(
            address=self.inner_address,
            name=self.name or self.inner_address,
            from_=self.from_,
            to=self.to,
            distribution=self.distribution,
            guarantee=self.guarantee,
            in_doubt=self.in_doubt,
            dedup=Deduplication(self.dedup.property) if self.dedup else None,
            declare=self.declare.as_declaration() if self.declare else None,
            is_recorded=is_recorded or self.archive or tracing is not None,
            archive=self.archive,
            tracing=tracing,
            ttl_seconds=self.ttl_seconds,
            unroutable=self.unroutable,
            store=None if self.store is None else self.store.as_storing(self.ttl_seconds),
            dead_letter=self.dead_letter,
            fallback=self.fallback,
            stall_seconds=self.stall_seconds,
            link_credit=self.link_credit,
            is_unavailable=self.unavailable,
            vhost=self.vhost or "",
            position=self.where.of("address"),
        )
