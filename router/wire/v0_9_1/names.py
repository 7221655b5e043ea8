"""Addresses of the router, and the exchanges, routing keys and queues of 0-9-1.

What a client of ours publishes to ``exchange`` with ``key`` is sent to an address::

    ""        key      ->  key               the default exchange: the key names a queue
    exchange  key      ->  exchange/key      direct, topic, and undeclared exchanges
    exchange  ""       ->  exchange
    exchange  any      ->  exchange          fanout and headers: the key is ignored

Towards a broker an address is read in reverse::

    queue                                the queue; published through the default exchange
    exchange/key                         at the first "/"; "exchange/" is the empty key
    /queues/q  /exchanges/e/k            RabbitMQ 4's form, percent-encoded
    /queue/q  /amq/queue/q               RabbitMQ's older forms
    /exchange/e/k  /topic/k
"""

import enum
from typing import Any, Final
from urllib.parse import unquote

import attrs


class ExchangeType(enum.StrEnum):
    """How an exchange chooses among its bindings (0-9-1 §3.1.3)."""

    DIRECT = "direct"
    FANOUT = "fanout"
    TOPIC = "topic"
    HEADERS = "headers"


PREDECLARED: Final = {
    "": ExchangeType.DIRECT,
    "amq.direct": ExchangeType.DIRECT,
    "amq.fanout": ExchangeType.FANOUT,
    "amq.topic": ExchangeType.TOPIC,
    "amq.headers": ExchangeType.HEADERS,
    "amq.match": ExchangeType.HEADERS,
}
"""Exchanges that every virtual host has (0-9-1 §3.1.3.1)."""

DIRECT_REPLIES: Final = "amq.rabbitmq.reply-to"
"""RabbitMQ's name for a channel's consumer of direct replies (``replying``)."""

KEYLESS: Final = (ExchangeType.FANOUT, ExchangeType.HEADERS)
"""Types that ignore the routing key."""


def address_of(exchange: str, routing_key: str, kind: ExchangeType | None) -> str:
    """Returns the address of a publish or a binding."""
    if not exchange:
        return routing_key
    if not routing_key or kind in KEYLESS:
        return exchange
    return f"{exchange}/{routing_key}"


def has_wildcards(routing_key: str) -> bool:
    """Returns whether a topic binding's key has wildcards."""
    return any(word in ("*", "#") for word in routing_key.split("."))


@attrs.frozen
class BrokerNode:
    """The node that an address names on a broker.

    Attributes:
        queue: a queue; None if the address names an exchange.
        exchange: the exchange to publish to; the default exchange for a queue.
        routing_key: the key to publish with.
    """

    queue: str | None
    exchange: str
    routing_key: str


NAME_OCTETS: Final = 255
"""The longest name that fits the protocol's strings."""


def is_expressible(node: BrokerNode) -> bool:
    """Returns whether the names of a node fit the protocol's strings."""
    names = (node.queue or "", node.exchange, node.routing_key)
    return all(len(name.encode()) <= NAME_OCTETS for name in names)


def broker_node(address: str) -> BrokerNode:
    """Reads an address as a name on a broker (see the module)."""
    if address.startswith("/"):
        found = _rabbitmq_node(address)
        if found is not None:
            return found
        return _queue(address)
    exchange, slash, key = address.partition("/")
    return BrokerNode(None, exchange, key) if slash else _queue(address)


def _queue(name: str) -> BrokerNode:
    return BrokerNode(name, "", name)


def _rabbitmq_node(address: str) -> BrokerNode | None:
    kind, _, rest = address[1:].partition("/")
    first, _, second = rest.partition("/")
    if kind == "queues" and rest:
        return _queue(unquote(rest))
    if kind == "exchanges" and first:
        return BrokerNode(None, unquote(first), unquote(second))
    if kind == "queue" and rest:
        return _queue(rest)
    if kind == "amq" and first == "queue" and second:
        return _queue(second)
    if kind == "exchange" and first:
        return BrokerNode(None, first, second)
    if kind == "topic" and rest:
        return BrokerNode(None, "amq.topic", rest)
    return None


MATCHES: Final = ("all", "any", "all-with-x", "any-with-x")
"""Values of ``x-match`` (RabbitMQ's)."""


def headers_match(arguments: dict[str, Any], headers: dict[str, Any]) -> bool:
    """Returns whether a headers exchange's binding matches a message (0-9-1 §3.1.3.4).

    ``x-match`` defaults to ``all``. Other names that begin with ``x-`` are ignored unless it ends
    in ``-with-x``; a void value only requires the header to be present.
    """
    match = arguments.get("x-match", MATCHES[0])
    with_x = isinstance(match, str) and match.endswith("-with-x")
    wanted = [
        (name, value)
        for name, value in arguments.items()
        if name != "x-match" and (with_x or not name.startswith("x-"))
    ]
    hits = (name in headers and _is_alike(value, headers[name]) for name, value in wanted)
    return any(hits) if match in ("any", "any-with-x") else all(hits)


def _is_alike(wanted: Any, value: Any) -> bool:
    """Returns whether a header has the wanted value; a boolean is not a number."""
    if wanted is None:
        return True
    return bool(isinstance(wanted, bool) is isinstance(value, bool) and wanted == value)
