"""Advice about what is not reached: whole sentences that name what to write."""

import pytest

from router.service import advice
from router.service.advice import (
    connection_advice,
    container_words,
    describe_port,
    link_advice,
)


def advise(reason: str, port: int = 5672) -> str:
    return connection_advice(reason, container_words("east", [f"amqp://east:{port}"], [port]))


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        ("amqp:not-implemented: the peer wants SASL (it began)", "write that in containers.east.p"),
        ("amqp:not-implemented: the peer speaks amqp-1.0 without SASL", "it speaks amqp-1.0"),
        ("amqp:not-implemented: the peer speaks amqp-0-10 (it began)", "write amqp-0-10 in"),
        ("no mechanism in common; the broker offers PLAIN", "write user and password in"),
        ("none of the offered mechanisms will do: PLAIN", "write user and password in"),
        ("Temporary failure in name resolution", "DNS"),
        ("Connection reset by peer", "containers.east.protocol"),
        ("it does not answer to amqp-fast within 4 s", "is that the port of AMQP"),
        ("No route to host", "check the network"),
        ("something nobody has seen", "it is dialed for ever at amqp://east:5672"),
    ],
)
def test_advice_names_what_to_write(reason: str, said: str) -> None:
    assert said in advise(reason)


@pytest.mark.parametrize(
    ("port", "instead"), [(15672, "AMQP is at 5672"), (8161, "5672 (Artemis: 61616, too)")]
)
@pytest.mark.parametrize(
    "reason", ["the peer speaks HTTP (it began)", "no SASL within 10 s", "Connection refused"]
)
def test_a_port_that_brokers_use_for_something_else_is_told_with_the_right_one(
    port: int, instead: str, reason: str
) -> None:
    assert advise(reason, port).startswith(f"port {port} is usually ")
    assert advise(reason, port).endswith(f"{instead}: write that in containers.east.url")


def test_a_refused_login_is_no_wrong_port() -> None:
    assert "user and password" in advise("amqp:unauthorized-access: no", 15672)


def test_ports_of_amqp_are_not_remarked_on() -> None:
    assert [describe_port(port) for port in (5672, 5671, 61616, 5673)] == [None] * 4


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        ("amqp:not-found: 404", "or correct the address in the route"),
        ("amqp:unauthorized-access: 403", "the right to 'orders'"),
        ("amqp:resource-locked: 405", "end that one, or name another"),
        ("amqp:internal-error", "see the log"),
    ],
)
def test_advice_about_links_names_the_address(reason: str, said: str) -> None:
    assert link_advice(reason, "orders", "see the log").endswith(said)


def test_every_advice_can_be_worded_and_breaks_off_nowhere() -> None:
    words = container_words("east", ["amqp://east"], [])
    for sign, _ in advice._CONNECTION_ADVICE:
        told = connection_advice(sign, words)
        assert "{" not in told
        assert not told.endswith(("'s", "or", "the", "in", "to", ","))
    for sign, _ in advice._LINK_ADVICE:
        told = link_advice(sign, "orders", "")
        assert "{" not in told
        assert not told.endswith(("'s", "or", "the", "in", "to", ","))
