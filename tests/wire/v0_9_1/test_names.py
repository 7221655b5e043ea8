from typing import Any

import pytest

from router.wire.exchange_names import PREDECLARED, BrokerNode, ExchangeType
from router.wire.v0_9_1.names import broker_node, headers_match


@pytest.mark.parametrize(
    ("address", "node"),
    [
        ("orders", BrokerNode("orders", "", "orders")),
        ("shop/orders", BrokerNode(None, "shop", "orders")),
        ("shop/orders/eu", BrokerNode(None, "shop", "orders/eu")),
        ("shop/", BrokerNode(None, "shop", "")),
        ("/queues/a%2Fb", BrokerNode("a/b", "", "a/b")),
        ("/exchanges/e%20x/k%2Fl", BrokerNode(None, "e x", "k/l")),
        ("/exchanges/e", BrokerNode(None, "e", "")),
        ("/queue/q", BrokerNode("q", "", "q")),
        ("/amq/queue/q", BrokerNode("q", "", "q")),
        ("/exchange/e/k", BrokerNode(None, "e", "k")),
        ("/topic/a.b", BrokerNode(None, "amq.topic", "a.b")),
        ("/elsewhere", BrokerNode("/elsewhere", "", "/elsewhere")),
        ("/queues/", BrokerNode("/queues/", "", "/queues/")),
    ],
)
def test_an_address_names_a_queue_or_an_exchange_and_key(address: str, node: BrokerNode) -> None:
    assert broker_node(address) == node


@pytest.mark.parametrize(
    ("arguments", "headers", "matches"),
    [
        ({}, {}, True),
        ({"x-match": "any"}, {}, False),
        ({"a": 1}, {"a": 1, "b": 2}, True),
        ({"a": 1}, {"a": 2}, False),
        ({"a": 1, "b": 2}, {"a": 1}, False),
        ({"x-match": "any", "a": 1, "b": 2}, {"a": 1}, True),
        ({"x-match": "all", "a": None}, {"a": "whatever"}, True),
        ({"a": None}, {}, False),
        ({"x-other": 1}, {}, True),
        ({"x-match": "all", "x-a": 1}, {}, True),
        ({"x-match": "all-with-x", "x-a": 1}, {}, False),
        ({"x-match": "all-with-x", "x-a": 1, "b": 2}, {"x-a": 1, "b": 2}, True),
        ({"x-match": "any", "x-a": 1}, {"x-a": 1}, False),
        ({"x-match": "any-with-x", "x-a": 1, "b": 2}, {"x-a": 1}, True),
        ({"x-match": "any-with-x", "x-a": 1}, {"x-match": "any-with-x"}, False),
        ({"a": True}, {"a": 1}, False),
    ],
)
def test_headers_bindings_match_as_the_specification_has_it(
    arguments: dict[str, Any], headers: dict[str, Any], matches: bool
) -> None:
    assert headers_match(arguments, headers) is matches


def test_every_standard_exchange_is_predeclared() -> None:
    assert set(PREDECLARED.values()) == set(ExchangeType)
