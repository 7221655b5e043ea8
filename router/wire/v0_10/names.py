"""Addresses of the router, and the exchanges, binding keys and queues of 0-10.

What a client of ours transfers to ``exchange`` with ``routing-key`` is sent to an address::

    ""        key      ->  key               the default exchange: the key names a queue
    exchange  key      ->  exchange/key      direct, topic, and undeclared exchanges
    exchange  ""       ->  exchange
    exchange  any      ->  exchange          fanout and headers: the key is ignored

Towards a broker an address is read in reverse: without a "/" it names a queue, else an exchange and
a routing key, split at the first "/"; "exchange/" is the empty key.
"""

import enum
from typing import Final

import attrs


class ExchangeType(enum.StrEnum):
    """How an exchange chooses among its bindings (0-10 exchange.type)."""

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
"""Exchanges that every virtual host has (0-10 exchange, required-instances); amq.match is what
Qpid's programs call the one of type headers."""

_KEYLESS: Final = (ExchangeType.FANOUT, ExchangeType.HEADERS)


def address_of(exchange: str, key: str, kind: ExchangeType | None) -> str:
    """Returns the address of a transfer or a binding."""
    if not exchange:
        return key
    if not key or kind in _KEYLESS:
        return exchange
    return f"{exchange}/{key}"


def has_wildcards(key: str) -> bool:
    """Returns whether a topic binding's key has wildcards."""
    return any(word in ("*", "#") for word in key.split("."))


@attrs.frozen
class BrokerNode:
    """The node that an address names on a broker.

    Attributes:
        queue: a queue; None if the address names an exchange.
        exchange: the exchange to transfer to; the default exchange for a queue.
        key: the routing key to transfer with.
    """

    queue: str | None
    exchange: str
    key: str


NAME_OCTETS: Final = 255
"""The longest name that fits the protocol's strings."""


def is_expressible(node: BrokerNode) -> bool:
    """Returns whether the names of a node fit the protocol's strings."""
    names = (node.queue or "", node.exchange, node.key)
    return all(len(name.encode()) <= NAME_OCTETS for name in names)


def broker_node(address: str) -> BrokerNode:
    """Reads an address as a name on a broker (see the module)."""
    exchange, slash, key = address.partition("/")
    return BrokerNode(None, exchange, key) if slash else BrokerNode(address, "", address)
