"""Messages that no route takes, and whose senders are not told."""

from router.core.events import TOLD_MOST
from router.model.condition import NOT_FOUND, Condition
from router.model.events import MessageUnrouted
from tests.support.play import Play


def test_each_is_counted_and_each_address_is_logged_once() -> None:
    play = Play("orders")
    peer = play.connect()
    reason = Condition(NOT_FOUND, "no route")
    for _ in range(3):
        peer.happens(MessageUnrouted("a", reason), MessageUnrouted("b", reason))
    told = [each for each in play.noticed if each.event == "delivery.unrouted"]
    assert play.core.unrouted == 6
    assert [each.fields["address"] for each in told] == ["a", "b"]
    assert all(each.is_warning for each in told)


def test_addresses_without_end_are_only_counted() -> None:
    play = Play("orders")
    peer = play.connect()
    reason = Condition(NOT_FOUND, "no route")
    for number in range(TOLD_MOST + 10):
        peer.happens(MessageUnrouted(f"a{number}", reason))
    assert play.core.unrouted == TOLD_MOST + 10
    told = [each for each in play.noticed if each.event == "delivery.unrouted"]
    assert len(told) == TOLD_MOST
