"""Policy: which rule fits, what it lets a peer do, and how a denial names what decided."""

import pytest

from router.core.policy import DIALED, OPEN, Deed, PeerLimits, Policy, PolicyRule
from router.routes.match import PatternError


def test_without_rules_everything_is_allowed() -> None:
    standing = OPEN.standing("bob", "anywhere")
    assert standing.denial(Deed.SEND, "orders") is None
    assert DIALED.denial(Deed.RECEIVE, "orders") is None


def test_what_a_rule_does_not_list_is_denied_and_the_denial_names_rule_and_address() -> None:
    policy = Policy([PolicyRule(name="apps", send=("orders.#",), receive=("replies",))])
    standing = policy.standing("bob", None)
    assert standing.denial(Deed.SEND, "orders.eu") is None
    assert standing.denial(Deed.RECEIVE, "replies") is None
    assert standing.denial(Deed.RECEIVE, "orders.eu") == (
        "rule 'apps' does not let 'bob' receive from 'orders.eu'"
    )


def test_everything_is_denied_if_no_rule_fits() -> None:
    policy = Policy([PolicyRule(name="apps", users=("app-*",), send=("#",))])
    assert policy.standing("app-7", None).denial(Deed.SEND, "orders") is None
    denial = policy.standing("bob", "east").denial(Deed.SEND, "orders")
    assert denial == "no rule of the policy fits 'bob' at the virtual host 'east'"


def test_the_first_rule_that_fits_decides() -> None:
    policy = Policy(
        [
            PolicyRule(name="east", vhosts=("east*",), send=("a",)),
            PolicyRule(name="rest", send=("b",)),
        ]
    )
    assert policy.standing("bob", "east-1").rule == "east"
    assert policy.standing("bob", "east-1").denial(Deed.SEND, "b") is not None
    assert policy.standing("bob", "west").rule == "rest"


@pytest.mark.parametrize("user", ["#", "*", "a.b", "bob"])
def test_the_identity_in_a_pattern_is_always_literal(user: str) -> None:
    policy = Policy([PolicyRule(name="own", send=("home.${user}.#",))])
    standing = policy.standing(user, None)
    assert standing.denial(Deed.SEND, f"home.{user}.inbox") is None
    assert standing.denial(Deed.SEND, "home.alice.inbox") is not None


def test_names_of_users_are_no_expressions() -> None:
    policy = Policy([PolicyRule(name="one", users=("a.c", "x*"), send=("#",))])
    assert policy.standing("a.c", None).rule == "one"
    assert policy.standing("abc", None).rule is None
    assert policy.standing("x.*", None).rule == "one"


def test_a_peer_without_identity_is_anonymous() -> None:
    policy = Policy([PolicyRule(name="guests", users=("anonymous",), receive=("news",))])
    assert policy.standing(None, None).denial(Deed.RECEIVE, "news") is None


def test_limits_of_a_rule_lie_over_those_behind_them_and_each_is_named() -> None:
    policy = Policy(
        [PolicyRule(name="apps", limits=PeerLimits(connections=2))],
        PeerLimits(connections=9, links_per_connection=5),
        {"connections": "limits.connections_per_identity"},
    )
    standing = policy.standing("bob", None)
    assert standing.exceeds("connections", 1) is None
    assert standing.exceeds("connections", 2) == "limits.connections of rule 'apps': 2"
    assert standing.exceeds("links_per_connection", 5) == "limits.links_per_connection: 5"
    assert standing.exceeds("messages_per_second", 10**9) is None


def test_a_rule_whose_address_is_no_pattern_is_found_at_once() -> None:
    with pytest.raises(PatternError):
        Policy([PolicyRule(name="bad", send=("a.b*",))])


def test_repeated_patterns_do_no_harm() -> None:
    policy = Policy([PolicyRule(name="twice", send=("a.*", "a/*"))])
    assert policy.standing("bob", None).denial(Deed.SEND, "a.b") is None
