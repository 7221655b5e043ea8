"""Addresses as URLs, and addresses that a route declares unavailable."""

import attrs
import pytest

from router.model.condition import NOT_FOUND
from router.model.events import LinkAttached
from router.model.terminus import Role, Source, Target
from router.model.url_address import path_of
from router.routes.route import Endpoint, Route
from router.wire.engine import EngineSettings
from router.wire.v1_0.engine import Engine10
from router.wire.v1_0.frames import frame
from router.wire.v1_0.performatives import Attach, encode
from tests.support.framed import greeting
from tests.support.play import AMQP, Play, table

ALL = Route(address="#", to=(Endpoint("east"),))
NOT_THESE = Route(address="secret.#", is_unavailable=True)


@pytest.mark.parametrize(
    ("written", "address"),
    [
        ("amqp://host/orders", "orders"),
        ("amqps://user@host:5671/orders/eu", "orders/eu"),
        ("AMQP://[::1]:5672/orders", "orders"),
        ("amqp:/orders", "orders"),
        ("amqp:///orders", "orders"),
        ("amqp://host/a%20b%2Fc%C3%BC", "a b/cü"),
        ("amqp://host/orders.%23", "orders.#"),
        ("amqp://host//twice", "/twice"),
        ("orders", "orders"),
        ("amqp.orders", "amqp.orders"),
        ("amqp://host", "amqp://host"),
        ("amqp://host/", "amqp://host/"),
        ("amqp://host/a?b", "amqp://host/a?b"),
        ("amqp://host/a#b", "amqp://host/a#b"),
        ("amqp://host/%zz", "amqp://host/%zz"),
        ("amqp://host/%ff", "amqp://host/%ff"),
        ("Amqp://host/orders", "orders"),
        ("http://host/a", "http://host/a"),
    ],
)
def test_the_path_of_a_url_is_the_address(written: str, address: str) -> None:
    assert path_of(written) == address


def test_an_attach_whose_termini_have_urls_is_reported_with_their_addresses() -> None:
    engine = Engine10(EngineSettings(is_server=True, container="r", sasl_server=None))
    attach = Attach(
        name="l",
        handle=0,
        role=Role.RECEIVER,
        source=Source(address="amqp://other.example:5671/orders%20eu"),
        target=Target(address="amqps://here/x"),
    )
    events = engine.receive_data(greeting("c") + frame(0, encode(attach)), 0.0)
    (attached,) = (event for event in events if isinstance(event, LinkAttached))
    assert attached.source is not None
    assert attached.source.address == "orders eu"
    assert isinstance(attached.target, Target)
    assert attached.target.address == "x"


def test_messages_of_an_anonymous_sender_may_name_urls() -> None:
    play = Play("orders")
    received = play.connect().attach_receiver("orders", credit=2)
    sender = play.connect("s").attach_sender(None)
    sender.send("a", address="amqp://anywhere/orders")
    assert received.payloads == [b"a"]


@pytest.mark.parametrize(
    "written", ["amqp://host", "amqp://host/a?b", "AMQPS://host/a#b", "amqp:/%zz", "Amqp://h/%ff"]
)
def test_a_url_that_names_no_address_is_refused_though_a_default_route_takes_all_others(
    written: str,
) -> None:
    play = Play(ALL)
    client = play.connect()
    for end in (client.attach_sender(written), client.attach_receiver(written)):
        assert end.refused is not None
        assert end.refused.name == NOT_FOUND
        assert f"the URL '{written}' names no address" in str(end.refused)
    assert client.attach_sender("amqp:orders").attach is not None  # no URL with a path


def test_what_an_anonymous_sender_sends_to_such_a_url_is_given_back() -> None:
    play = Play(ALL)
    play.dial("east")
    sender = play.connect().attach_sender(None)
    (number,) = sender.send("a", address="amqp://host/a?b")
    outcome = sender.outcome(number)
    assert outcome is not None
    assert outcome[1]
    assert "accepted" not in str(outcome[0]).lower()


def test_over_other_protocols_an_address_that_looks_like_a_url_is_like_any_other() -> None:
    play = Play(ALL)
    client = play.connect(capabilities=attrs.evolve(AMQP, writes_urls=False))
    assert client.attach_sender("amqp://host/a?b").refused is None


def test_an_unavailable_address_is_refused_though_a_default_route_takes_all_others() -> None:
    play = Play(ALL, NOT_THESE, "secret.shared")
    client = play.connect()
    for end in (client.attach_sender("secret.plans"), client.attach_receiver("secret.plans")):
        assert end.refused is not None
        assert end.refused.name == NOT_FOUND
        assert "'secret.plans' is unavailable" in str(end.refused)
    assert client.attach_sender("orders").attach is not None
    assert client.attach_sender("secret.shared").attach is not None  # more specific


def test_what_an_anonymous_sender_sends_to_an_unavailable_address_is_given_back() -> None:
    play = Play(ALL, NOT_THESE)
    play.dial("east")
    sender = play.connect().attach_sender(None)
    (number,) = sender.send("a", address="secret.plans")
    outcome = sender.outcome(number)
    assert outcome is not None
    assert outcome[1]
    assert "accepted" not in str(outcome[0]).lower()


def test_a_reload_that_makes_an_address_unavailable_detaches_its_links() -> None:
    play = Play(ALL)
    east = play.dial("east")
    sender = play.connect().attach_sender("secret.plans")
    end = east.answer_receiver("secret.plans", credit=1)
    play.carry_out(play.core.configure(table(ALL, NOT_THESE), play.now))
    assert sender.is_detached()
    assert end.is_detached()
