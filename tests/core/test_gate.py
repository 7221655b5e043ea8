"""Orders that wait for the journal."""

from router.core.gate import Gate
from router.links.link import LinkKey, OutgoingLink
from router.model.commands import (
    AttachLink,
    DetachLink,
    GrantCredit,
    ReturnCredit,
    SendDeliveries,
    UpdateDeliveries,
)
from router.model.delivery import OutgoingDelivery
from router.model.identity import (
    ConnectionId,
    ContainerId,
    DeliveryNumber,
    DeliveryTag,
    LinkId,
    LinkName,
)
from router.model.outcome import ACCEPTED, RELEASED
from router.model.terminus import Role

HERE = ConnectionId(1)


def new_link(number: int = 1) -> OutgoingLink:
    key = LinkKey(None, ContainerId("east"), LinkName(f"in-{number}"), Role.SENDER)
    return OutgoingLink(
        key=key, address="orders", source=None, target=None, connection=None, link=LinkId(number)
    )


def run(*numbers: int, link: int = 1) -> SendDeliveries:
    deliveries = [
        OutgoingDelivery(DeliveryNumber(number), DeliveryTag(b"%d" % number), b"")
        for number in numbers
    ]
    return SendDeliveries(LinkId(link), deliveries)


def test_a_link_that_waits_for_nothing_passes() -> None:
    assert not Gate().holds(new_link(), HERE, run(1))


def test_what_waits_goes_when_its_record_is_durable_and_not_before() -> None:
    gate, link, order = Gate(), new_link(), run(1)
    gate.wait(link, 5)
    assert gate.holds(link, HERE, order)
    assert gate.let_go(4) == []
    assert gate.let_go(5) == [(HERE, order)]
    assert gate.is_open


def test_deliveries_are_counted_until_each_run_has_gone() -> None:
    gate, link = Gate(), new_link()
    for sequence, order in ((5, run(1, 2)), (7, run(3))):
        gate.wait(link, sequence)
        assert gate.holds(link, HERE, order)
    assert gate.held_deliveries(link) == 3
    gate.let_go(5)
    assert gate.held_deliveries(link) == 1
    gate.let_go(7)
    assert gate.held_deliveries(link) == 0


def test_what_a_lost_link_was_to_be_sent_comes_back_and_the_rest_is_void() -> None:
    gate, link, other = Gate(), new_link(), new_link(2)
    gate.wait(link, 5)
    gate.wait(other, 5)
    assert gate.holds(link, HERE, run(1, 2))
    assert gate.holds(link, HERE, ReturnCredit(LinkId(1)))
    assert gate.holds(other, HERE, run(3, link=2))
    assert [each.number for each in gate.recall(link, is_lost=True)] == [1, 2]
    assert gate.held_deliveries(link) == 0
    assert [command for _, command in gate.let_go(5)] == [run(3, link=2)]


def test_a_link_that_we_detach_still_tells_its_outcomes() -> None:
    gate, link = Gate(), new_link()
    told = UpdateDeliveries(LinkId(1), [DeliveryNumber(1)], ACCEPTED, True)
    gate.wait(link, 5)
    for command in (told, run(2), DetachLink(LinkId(1), False)):
        assert gate.holds(link, HERE, command)
    assert len(gate.recall(link, is_lost=False)) == 1
    assert [command for _, command in gate.let_go(5)] == [told, DetachLink(LinkId(1), False)]


def test_a_connection_that_a_link_was_stolen_from_is_told_though_its_next_one_is_lost() -> None:
    gate, link, there = Gate(), new_link(), ConnectionId(2)
    gate.wait(link, 5)
    told = DetachLink(LinkId(1), True)
    assert gate.holds(link, HERE, told)
    assert gate.holds(link, there, run(2, link=2))
    assert [each.number for each in gate.recall(link, there, is_lost=True)] == [2]
    assert gate.let_go(5) == [(HERE, told)]
    assert gate.is_open


def test_credit_does_not_pass_an_attach_that_is_held() -> None:
    gate, link = Gate(), new_link()
    attach = AttachLink(
        link=LinkId(1), name=LinkName("in-1"), role=Role.SENDER, source=None, target=None
    )
    credit = GrantCredit(LinkId(1), 5)
    assert not gate.holds(link, HERE, credit)
    gate.wait(link, 5)
    assert not gate.holds(link, HERE, credit)
    assert gate.holds(link, HERE, attach)
    assert gate.holds(link, HERE, credit)
    assert gate.let_go(5) == [(HERE, attach), (HERE, credit)]
    assert not gate.holds(link, HERE, credit)


def test_credit_that_is_asked_back_after_an_outcome_follows_it() -> None:
    gate, link = Gate(), new_link()
    gate.wait(link, 5)
    told = UpdateDeliveries(LinkId(1), [DeliveryNumber(1)], RELEASED, settled=True)
    back = GrantCredit(LinkId(1), 0, drain=True, follows=True)
    assert gate.holds(link, HERE, told)
    assert not gate.holds(link, HERE, GrantCredit(LinkId(1), 5))
    assert gate.holds(link, HERE, back)
    assert gate.let_go(5) == [(HERE, told), (HERE, back)]
