"""Names of 0-9-1 alone: RabbitMQ's forms of addresses, direct replies, headers exchanges.

Towards a broker an address is read like this::

    queue  exchange/key                  see ``exchange_names``
    /queues/q  /exchanges/e/k            RabbitMQ 4's form, percent-encoded
    /queue/q  /amq/queue/q               RabbitMQ's older forms
    /exchange/e/k  /topic/k
"""

from typing import Any, Final
from urllib.parse import unquote

from router.wire import exchange_names
from router.wire.exchange_names import BrokerNode, broker_queue

DIRECT_REPLIES: Final = "amq.rabbitmq.reply-to"
"""RabbitMQ's name for a channel's consumer of direct replies (``replying``)."""


def broker_node(address: str) -> BrokerNode:
    """Reads an address as a name on a broker (see the module)."""
    if address.startswith("/"):
        return _rabbitmq_node(address) or broker_queue(address)
    return exchange_names.broker_node(address)


def _rabbitmq_node(address: str) -> BrokerNode | None:
    kind, _, rest = address[1:].partition("/")
    first, _, second = rest.partition("/")
    if kind == "queues" and rest:
        return broker_queue(unquote(rest))
    if kind == "exchanges" and first:
        return BrokerNode(None, unquote(first), unquote(second))
    if kind == "queue" and rest:
        return broker_queue(rest)
    if kind == "amq" and first == "queue" and second:
        return broker_queue(second)
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
