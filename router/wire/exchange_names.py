"""Addresses of the router, and exchanges, routing keys and queues of the protocols that have them.

What a client of ours sends to ``exchange`` with a routing key is sent to an address::

    ""        key      ->  key               the default exchange: the key names a queue
    exchange  key      ->  exchange/key      direct, topic, and undeclared exchanges
    exchange  ""       ->  exchange
    exchange  any      ->  exchange          fanout and headers: the key is ignored

Towards a broker an address is read in reverse: without a "/" it names a queue, which the default
exchange leads to, else an exchange and a routing key, split at the first "/"; "exchange/" is the
empty key. For 0-9-1 there are RabbitMQ's forms, too (``v0_9_1/names.py``).
"""

import enum
from typing import Final

import attrs


class ExchangeType(enum.StrEnum):
    """How an exchange chooses among its bindings (0-9-1 §3.1.3, 0-10 exchange.type)."""

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
"""Exchanges that every virtual host has (0-9-1 §3.1.3.1; 0-10 exchange, required-instances);
amq.match is what Qpid's programs call the one of type headers."""

KEYLESS: Final = (ExchangeType.FANOUT, ExchangeType.HEADERS)
"""Types that ignore the routing key."""


def address_of(exchange: str, routing_key: str, kind: ExchangeType | None) -> str:
    """Returns the address of a message or a binding."""
    if not exchange:
        return routing_key
    if not routing_key or kind in KEYLESS:
        return exchange
    return f"{exchange}/{routing_key}"


@attrs.frozen
class BrokerNode:
    """The node that an address names on a broker.

    Attributes:
        queue: a queue; None if the address names an exchange.
        exchange: the exchange to send to; the default exchange for a queue.
        routing_key: the key to send with.
    """

    queue: str | None
    exchange: str
    routing_key: str


NAME_OCTETS: Final = 255
"""The longest name that fits the protocols' short strings."""


def is_expressible(node: BrokerNode) -> bool:
    """Returns whether the names of a node fit the protocols' short strings."""
    names = (node.queue or "", node.exchange, node.routing_key)
    return all(len(name.encode()) <= NAME_OCTETS for name in names)


def broker_queue(name: str) -> BrokerNode:
    """Returns the node of a queue."""
    return BrokerNode(name, "", name)


def broker_node(address: str) -> BrokerNode:
    """Reads an address as a name on a broker (see the module)."""
    exchange, slash, key = address.partition("/")
    return BrokerNode(None, exchange, key) if slash else broker_queue(address)
