"""Addresses of what is pulled by a pattern, and their names at a target."""

import pytest

from router.routes.pulling import SourceNames, TargetNames, is_exchange
from router.routes.route import Endpoint, Route


@pytest.mark.parametrize(
    ("address", "source", "published", "found"),
    [
        ("prices/#", "prices/#", "prices/eu.ber", "prices/eu.ber"),
        ("quotes/#", "prices/#", "prices/eu.ber", "quotes/eu.ber"),
        ("quotes/#", "prices/#", "prices/", "quotes/"),
        ("quotes/de.*", "prices/eu.*", "prices/eu.ber", "quotes/de.ber"),
        ("prices/#", "copies", "prices/eu.ber", "prices/eu.ber"),
        ("prices/*", "prices/#", "prices/eu/ber", None),
        ("prices/#", "prices/#", "other/eu", None),
        ("prices/#", "prices/#", None, None),
        ("my prices/#", "my prices/#", "my prices/eu ber", "my prices/eu ber"),
        ("a/b/#", "/exchanges/a%2Fb/#", "a/b/eu", "a/b/eu"),
        ("quotes/#", "/exchanges/a%2Fb/#", "a/b/eu.ber", "quotes/eu.ber"),
        ("quotes/#", "/exchange/prices/#", "prices/eu", "quotes/eu"),
        ("quotes/#", "/topic/#", "amq.topic/eu", "quotes/eu"),
    ],
)
def test_a_message_has_the_address_that_it_was_published_to(
    address: str, source: str, published: str | None, found: str | None
) -> None:
    names = SourceNames(Route(address=address, from_=Endpoint("east", source)))
    assert names.find(published) == found
    assert names.find(published) == found, "also the second time"


@pytest.mark.parametrize(
    ("target", "address", "found"),
    [
        (None, "prices/eu.ber", "prices/eu.ber"),
        (None, "prices/", "prices/"),
        ("quotes/#", "prices/eu.ber", "quotes/eu.ber"),
        ("quotes/#", "prices/", "quotes/"),
        ("/exchange/quotes/#", "prices/eu", "/exchange/quotes/eu"),
        ("/exchanges/a%2Fb/#", "prices/50%/eu", "/exchanges/a%2Fb/50%25/eu"),
        ("quotes/#", "other/eu", None),
        ("quotes/#", None, None),
    ],
)
def test_a_target_has_a_name_for_each_address(
    target: str | None, address: str | None, found: str | None
) -> None:
    endpoint = Endpoint("west", target)
    route = Route(address="prices/#", from_=Endpoint("east"), to=(endpoint,))
    assert TargetNames(route, endpoint).find(address) == found


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("prices/#", True),
        ("/exchange/prices/eu", True),
        ("/topic/eu", True),
        ("orders", False),
        ("/queue/orders", False),
        ("/amq/queue/orders", False),
    ],
)
def test_an_exchange_is_told_from_a_queue(address: str, expected: bool) -> None:
    assert is_exchange(address) is expected
