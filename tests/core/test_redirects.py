"""Links that their container sends elsewhere (``amqp:link:redirect``, §2.8.18)."""

from typing import Any

import pytest

from router.core.redirects import PLACES_MOST
from router.links.trail import HOPS_MOST, RefusedDiversionError
from router.model.condition import LINK_REDIRECT, NOT_FOUND, Condition
from router.model.outcome import ACCEPTED
from router.model.place import Alternative
from router.routes.route import Endpoint, Guarantee, Route
from tests.support.play import Play, table

TO = Route(address="orders.#", to=(Endpoint("east"),))
FROM = Route(address="orders", from_=Endpoint("east", "orders"))


def stage(*routes: Route) -> Play:
    """Plays with a shell that dials any place but those of the host ``evil``."""
    play = Play(*routes)

    def divert(connection: str, other: Alternative) -> str:
        if other.host == "evil":
            raise RefusedDiversionError("failover_hosts does not name the host evil")
        return "east" if other.host == "east" else f"east@{other.host}:{other.port or 5672}"

    play.core.redirects.divert = divert
    return play


def redirect(host: str | None = None, address: object = None, **more: Any) -> Condition:
    info: dict[object, object] = dict(more.items())
    if host is not None:
        info["network-host"] = host
    if address is not None:
        info["address"] = address
    return Condition(LINK_REDIRECT, "there", info)


def refusals(play: Play) -> list[object]:
    return [
        notice.fields["reason"]
        for notice in play.noticed
        if notice.event == "link.redirect_refused"
    ]


def hops(play: Play) -> list[object]:
    return [notice.fields["to"] for notice in play.noticed if notice.event == "link.redirected"]


def test_a_refused_attach_is_made_at_the_place_that_the_redirect_names() -> None:
    play = stage(TO)
    east = play.dial("east")
    sender = play.connect().attach_sender("orders.eu")
    assert not sender.credit
    east.refuse(redirect("other", "orders.there"))
    assert list(play.core.redirects.places) == ["east@other:5672"]
    assert not east.asked
    other = play.dial("east@other:5672")
    target = other.answer_receiver("orders.there", credit=10)
    (number,) = sender.send("hello")
    target.accept()
    assert sender.outcome(number) == (ACCEPTED, True)
    assert hops(play) == ["east@other:5672/orders.there"]


def test_a_link_that_is_detached_moves_and_its_deliveries_follow_it() -> None:
    play = stage(TO)
    east = play.dial("east")
    sender = play.connect().attach_sender("orders.eu")
    target = east.answer_receiver("orders.eu", credit=10)
    (number,) = sender.send("hello")
    assert target.payloads == [b"hello"]
    target.detach(condition=redirect("other"))
    other = play.dial("east@other:5672")
    there = other.answer_receiver("orders.eu", credit=10)
    assert there.payloads == [b"hello"]
    there.accept()
    assert sender.outcome(number) == (ACCEPTED, True)


def test_other_links_stay_and_a_place_is_shared_and_left_with_its_last_link() -> None:
    play = stage(TO)
    east = play.dial("east")
    client = play.connect()
    senders = [client.attach_sender(f"orders.{name}") for name in ("a", "b", "c")]
    stays = east.answer_receiver("orders.a", credit=10)
    for name in ("b", "c"):
        east.answer_receiver(f"orders.{name}").detach(condition=redirect("other"))
    other = play.dial("east@other:5672")
    moved = [other.answer_receiver(f"orders.{name}", credit=10) for name in ("b", "c")]
    for sender in senders:
        sender.send("hello")
    assert [end.payloads for end in (stays, *moved)] == [[b"hello"]] * 3
    for end in (stays, *moved):
        end.accept()
    senders[1].detach()
    play.wait(play.settings.linger_seconds + 1)
    assert list(play.core.redirects.places) == ["east@other:5672"]
    senders[2].detach()
    play.wait(play.settings.linger_seconds + 1)
    assert not play.core.redirects.places
    assert moved[0].is_detached()
    assert not stays.is_detached()


def test_another_address_alone_is_attached_on_the_same_connection() -> None:
    play = stage(FROM)
    east = play.dial("east")
    receiver = play.connect().attach_receiver("orders", credit=5)
    east.answer_sender("orders").detach(condition=redirect(address="orders/shard-7"))
    source = east.answer_sender("orders/shard-7")
    source.send("hello")
    assert receiver.payloads == [b"hello"]
    assert not play.core.redirects.places


def test_a_place_where_the_container_is_found_is_its_own_connection() -> None:
    play = stage(FROM)
    east = play.dial("east")
    play.connect().attach_receiver("orders", credit=5)
    east.answer_sender("orders").detach(condition=redirect("east", "elsewhere"))
    assert east.wants_sender() == "elsewhere"
    assert not play.core.redirects.places


def test_a_link_returns_with_a_pause_when_its_place_cannot_be_dialed() -> None:
    play = stage(FROM)
    east = play.dial("east")
    play.connect().attach_receiver("orders", credit=5)
    for seconds in (1.0, 2.0, 4.0):  # it grows: the container sends the link there each time
        east.refuse(redirect("dead"))
        assert not east.asked
        play.carry_out(play.core.place_lost("east@dead:5672", play.now))
        assert not play.core.redirects.places
        play.wait(seconds * 0.4)
        assert not east.asked
        play.wait(seconds * 0.7)
        assert east.wants_sender() == "orders"


def test_a_link_returns_with_a_pause_when_its_place_is_lost_or_ends_it() -> None:
    play = stage(FROM)
    east = play.dial("east")
    receiver = play.connect().attach_receiver("orders", credit=5)
    east.answer_sender("orders").detach(condition=redirect("other", "there"))
    other = play.dial("east@other:5672")
    other.answer_sender("there")
    other.lose()
    assert not east.asked
    play.wait(1.1)
    east.answer_sender("orders").detach(condition=redirect("other", "there"))
    other = play.dial("east@other:5672")
    other.answer_sender("there").detach(condition=Condition(NOT_FOUND))
    assert not play.core.redirects.places
    assert not east.asked
    play.wait(2.1)
    east.answer_sender("orders").send("hello")
    assert receiver.payloads == [b"hello"]


def test_a_link_that_is_elsewhere_outlives_its_containers_connection() -> None:
    play = stage(FROM)
    east = play.dial("east")
    receiver = play.connect().attach_receiver("orders", credit=5)
    east.answer_sender("orders").detach(condition=redirect("other"))
    other = play.dial("east@other:5672")
    source = other.answer_sender("orders")
    east.lose()
    source.send("hello")
    assert receiver.payloads == [b"hello"]
    other.lose()
    play.wait(1.1)
    back = play.dial("east")
    assert back.wants_sender() == "orders"


def test_redirects_in_a_circle_are_refused_and_pause() -> None:
    play = stage(FROM)
    east = play.dial("east")
    play.connect().attach_receiver("orders", credit=5)
    east.refuse(redirect("other"))
    other = play.dial("east@other:5672")
    other.refuse(redirect("east"))
    assert not east.asked
    assert not play.core.redirects.places
    assert refusals(play) == [
        "redirects go round in a circle: east/orders -> east@other:5672/orders -> east/orders"
    ]
    play.wait(1.1)
    assert east.wants_sender() == "orders"


def test_a_chain_of_redirects_has_an_end() -> None:
    play = stage(FROM)
    east = play.dial("east")
    play.connect().attach_receiver("orders", credit=5)
    for number in range(HOPS_MOST + 1):
        assert east.wants_sender() is not None
        east.refuse(redirect(address=f"orders.{number}"))
    assert not east.asked
    assert len(hops(play)) == HOPS_MOST
    (reason,) = refusals(play)
    assert str(reason).startswith(f"more than {HOPS_MOST} redirects in a row: ")
    play.wait(1.1)
    assert east.wants_sender() == "orders"


def test_a_link_that_has_stood_may_be_redirected_again_and_again() -> None:
    play = stage(FROM)
    east = play.dial("east")
    play.connect().attach_receiver("orders", credit=5)
    for number in range(HOPS_MOST + 4):
        source = east.answer_sender("orders" if number % 2 == 0 else "orders.other")
        play.wait(play.settings.retry_limit_seconds + 1)
        source.detach(condition=redirect(address="orders.other" if number % 2 == 0 else "orders"))
    assert not refusals(play)


def test_only_so_many_places_of_a_container_are_wanted() -> None:
    play = stage(TO)
    east = play.dial("east")
    client = play.connect()
    for number in range(PLACES_MOST + 1):
        client.attach_sender(f"orders.{number}")
        east.refuse(redirect("other", port=6000 + number))
    assert len(play.core.redirects.places) == PLACES_MOST
    assert refusals(play) == [f"{PLACES_MOST} other places of it are connected already"]


@pytest.mark.parametrize(
    ("condition", "reason"),
    [
        (redirect("evil"), "failover_hosts does not name the host evil"),
        (Condition(LINK_REDIRECT), "the redirect names neither a place nor an address"),
        (Condition(LINK_REDIRECT, None, {}), "the redirect names neither a place nor an address"),
        (redirect(address=""), "the redirect names neither a place nor an address"),
        (redirect(address=7), "the redirect has a number as address, and no text"),
        (redirect(address="a\nb"), "the redirect has an unfit address: 'a\\nb'"),
        (redirect(address="x" * 513), f"the redirect has an unfit address: {'x' * 64!r}"),
        (redirect(port=5672), "the redirect names no network-host"),
        (redirect("a b"), "the redirect has a network-host that is no host: 'a b'"),
        (
            redirect("other", port=70000),
            "the redirect has a port that is none from 1 to 65535: 70000",
        ),
    ],
)
def test_a_redirect_that_leads_nowhere_allowed_is_refused_and_tried_again_later(
    condition: Condition, reason: str
) -> None:
    play = stage(FROM)
    east = play.dial("east")
    play.connect().attach_receiver("orders", credit=5)
    east.refuse(condition)
    assert refusals(play) == [reason]
    assert not east.asked
    assert not play.core.redirects.places
    play.wait(1.1)
    assert east.wants_sender() == "orders"


def test_a_shell_that_dials_nothing_follows_no_redirect_to_a_place() -> None:
    play = Play(FROM)
    east = play.dial("east")
    play.connect().attach_receiver("orders", credit=5)
    east.refuse(redirect("other"))
    assert refusals(play) == ["other places are not dialed"]


def test_what_is_in_doubt_stays_so_when_its_link_is_redirected() -> None:
    play = stage(Route(address="orders", to=(Endpoint("east"),), guarantee=Guarantee.EXACTLY_ONCE))
    east = play.dial("east")
    sender = play.connect().attach_sender("orders")
    target = east.answer_receiver("orders", credit=10)
    (number,) = sender.send("once")
    target.detach(closed=False, condition=redirect("other"))
    other = play.connect("east-id", dialed="east@other:5672")  # the same container elsewhere
    there = other.answer("orders")
    assert there.attach is not None
    assert list(there.attach.unsettled or ()) == [target.received[0].tag]
    assert sender.outcome(number) is None
    assert not getattr(there, "payloads", None)


def test_a_removed_route_leaves_the_place() -> None:
    play = stage(FROM)
    east = play.dial("east")
    play.connect().attach_receiver("orders", credit=5)
    east.refuse(redirect("other"))
    play.carry_out(play.core.configure(table("else"), play.now))
    assert not play.core.redirects.places
