"""Names of exchanges, queues and routing keys, and the addresses that they become."""

import pytest

from router.wire.exchange_names import (
    BrokerNode,
    ExchangeType,
    address_of,
    broker_node,
    is_expressible,
)
from router.wire.topics import has_wildcards


@pytest.mark.parametrize(
    ("exchange", "key", "kind", "address"),
    [
        ("", "orders", ExchangeType.DIRECT, "orders"),
        ("", "", ExchangeType.DIRECT, ""),
        ("shop", "orders", None, "shop/orders"),
        ("shop", "orders", ExchangeType.DIRECT, "shop/orders"),
        ("shop", "orders.eu", ExchangeType.TOPIC, "shop/orders.eu"),
        ("shop", "", None, "shop"),
        ("news", "ignored", ExchangeType.FANOUT, "news"),
        ("news", "ignored", ExchangeType.HEADERS, "news"),
    ],
)
def test_an_exchange_and_key_become_an_address(
    exchange: str, key: str, kind: ExchangeType | None, address: str
) -> None:
    assert address_of(exchange, key, kind) == address


@pytest.mark.parametrize(
    ("address", "node"),
    [
        ("orders", BrokerNode("orders", "", "orders")),
        ("shop/orders", BrokerNode(None, "shop", "orders")),
        ("shop/orders/eu", BrokerNode(None, "shop", "orders/eu")),
        ("shop/", BrokerNode(None, "shop", "")),
        ("/queues/a", BrokerNode(None, "", "queues/a")),
    ],
)
def test_an_address_names_a_queue_or_an_exchange_and_key(address: str, node: BrokerNode) -> None:
    assert broker_node(address) == node


@pytest.mark.parametrize(
    ("address", "fits"),
    [
        ("q" * 255, True),
        ("q" * 256, False),
        ("é" * 128, False),
        ("e" * 255 + "/" + "k" * 255, True),
    ],
)
def test_names_fit_a_short_string_or_not(address: str, fits: bool) -> None:
    assert is_expressible(broker_node(address)) is fits


@pytest.mark.parametrize(
    ("key", "is_pattern"),
    [("a.b", False), ("a.*", True), ("#", True), ("a.#.b", True), ("a*", False), ("", False)],
)
def test_only_whole_words_are_wildcards(key: str, is_pattern: bool) -> None:
    assert has_wildcards(key) is is_pattern
