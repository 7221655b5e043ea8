"""Policy: which rule fits, what it lets a peer do, and how a denial names what decided."""

import pytest

from router.core.policy import DIALED, OPEN, Operation, PeerLimits, Policy, PolicyRule
from router.routes.match import PatternError


def test_without_rules_everything_is_allowed() -> None:
    permissions = OPEN.permissions("bob", "anywhere")
    assert permissions.denial(Operation.SEND, "orders") is None
    assert DIALED.denial(Operation.RECEIVE, "orders") is None


def test_what_a_rule_does_not_list_is_denied_and_the_denial_names_rule_and_address() -> None:
    policy = Policy([PolicyRule(name="apps", send=("orders.#",), receive=("replies",))])
    permissions = policy.permissions("bob", None)
    assert permissions.denial(Operation.SEND, "orders.eu") is None
    assert permissions.denial(Operation.RECEIVE, "replies") is None
    assert permissions.denial(Operation.RECEIVE, "orders.eu") == (
        "rule 'apps' does not let 'bob' receive from 'orders.eu'"
    )


def test_everything_is_denied_if_no_rule_fits() -> None:
    policy = Policy([PolicyRule(name="apps", users=("app-*",), send=("#",))])
    assert policy.permissions("app-7", None).denial(Operation.SEND, "orders") is None
    denial = policy.permissions("bob", "east").denial(Operation.SEND, "orders")
    assert denial == "no rule of the policy matches 'bob' at the virtual host 'east'"


def test_the_first_rule_that_fits_decides() -> None:
    policy = Policy(
        [
            PolicyRule(name="east", vhosts=("east*",), send=("a",)),
            PolicyRule(name="rest", send=("b",)),
        ]
    )
    assert policy.permissions("bob", "east-1").rule == "east"
    assert policy.permissions("bob", "east-1").denial(Operation.SEND, "b") is not None
    assert policy.permissions("bob", "west").rule == "rest"


@pytest.mark.parametrize("user", ["#", "*", "a.b", "bob"])
def test_the_identity_in_a_pattern_is_always_literal(user: str) -> None:
    policy = Policy([PolicyRule(name="own", send=("home.${user}.#",))])
    permissions = policy.permissions(user, None)
    assert permissions.denial(Operation.SEND, f"home.{user}.inbox") is None
    assert permissions.denial(Operation.SEND, "home.alice.inbox") is not None


def test_names_of_users_are_no_expressions() -> None:
    policy = Policy([PolicyRule(name="one", users=("a.c", "x*"), send=("#",))])
    assert policy.permissions("a.c", None).rule == "one"
    assert policy.permissions("abc", None).rule is None
    assert policy.permissions("x.*", None).rule == "one"


def test_a_peer_without_identity_is_anonymous() -> None:
    policy = Policy([PolicyRule(name="guests", users=("anonymous",), receive=("news",))])
    assert policy.permissions(None, None).denial(Operation.RECEIVE, "news") is None


def test_limits_of_a_rule_lie_over_those_behind_them_and_each_is_named() -> None:
    policy = Policy(
        [PolicyRule(name="apps", limits=PeerLimits(connections=2))],
        PeerLimits(connections=9, links_per_connection=5),
        {"connections": "limits.connections_per_identity"},
    )
    permissions = policy.permissions("bob", None)
    assert permissions.exceeds("connections", 1) is None
    assert permissions.exceeds("connections", 2) == "limits.connections of rule 'apps': 2"
    assert permissions.exceeds("links_per_connection", 5) == "limits.links_per_connection: 5"
    assert permissions.exceeds("messages_per_second", 10**9) is None


def test_a_rule_whose_address_is_no_pattern_is_found_at_once() -> None:
    with pytest.raises(PatternError):
        Policy([PolicyRule(name="bad", send=("a.b*",))])


def test_repeated_patterns_do_no_harm() -> None:
    policy = Policy([PolicyRule(name="twice", send=("a.*", "a/*"))])
    assert policy.permissions("bob", None).denial(Operation.SEND, "a.b") is None
