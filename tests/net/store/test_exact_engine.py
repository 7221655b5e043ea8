"""The engine of the message store on exactly-once routes: both of its ends resume."""

import random

from router.journal.store.queues import Bounds
from router.model.commands import DetachLink, RefuseLink, SendDeliveries, UpdateDeliveries
from router.model.condition import NOT_FOUND, RESOURCE_DELETED, Condition
from router.model.delivery import OutgoingDelivery, ReceivedDelivery
from router.model.events import DeliveriesUpdated, LinkAttached
from router.model.identity import DeliveryNumber, DeliveryTag, LinkId
from router.model.outcome import ACCEPTED, RELEASED, Rejected
from router.model.terminus import ReceiverSettleMode
from router.net.store.links import REFUSED_SECONDS
from tests.support.journal import FakeDisk
from tests.support.shelved import SHELF, Shelved, tag


def exact(disk: FakeDisk | None = None, **fields: object) -> Shelved:
    """Returns an engine whose route promises exactly-once."""
    return Shelved(disk, is_exact=True, **fields)  # type: ignore[arg-type]


def begun(count: int = 3) -> tuple[Shelved, LinkId]:
    """Returns an engine that has stored so many messages, and its inlet, attached."""
    shelved = exact()
    shelved.attach()
    shelved.put(1, count)
    shelved.answer(10, is_dead=True)
    return shelved, shelved.answer(10)


def after(shelved: Shelved, life: int = 1, **fields: object) -> Shelved:
    """Returns the next life, after the worker and the machine have stopped."""
    return exact(shelved.disk.crashed(random.Random(1)), life=life, **fields)


def answers(shelved: Shelved) -> list[LinkAttached]:
    """Returns the answers to the core's attaches."""
    found = [each for each in shelved.events if isinstance(each, LinkAttached)]
    return [each for each in found if each.is_answer]


def unsettled(shelved: Shelved) -> list[int]:
    """Returns the messages that the log names."""
    links = shelved.log.store.holdings.unsettled.values()
    return [int.from_bytes(key, "big") for keys in links for key in keys]


def settled(shelved: Shelved, link: LinkId) -> list[int]:
    """Returns the numbers of deliveries that were settled with the core."""
    updates = [each for each in shelved.events if isinstance(each, DeliveriesUpdated)]
    return [n for each in updates if each.link == link and each.settled for n in each.numbers]


def resumed(shelved: Shelved, link: LinkId) -> list[ReceivedDelivery]:
    """Returns the deliveries that were resumed on an inlet."""
    return [each for each in shelved.received(link) if each.resume]


def tag_of(shelved: Shelved, link: LinkId, index: int) -> DeliveryTag:
    """Returns the tag of a message that was sent."""
    return shelved.received(link)[index].tag


# ------------------------------------------------------------------ what comes


def test_what_is_durable_is_accepted_and_named_until_the_core_has_settled_it() -> None:
    shelved = exact()
    shelved.attach()
    (answer,) = answers(shelved)
    assert (answer.receiver_settle_mode, answer.unsettled) == (ReceiverSettleMode.SECOND, {})
    shelved.put(1, 3)
    assert (shelved.accepted(), settled(shelved, SHELF)) == ([1, 2, 3], [])
    shelved.order(UpdateDeliveries(SHELF, [DeliveryNumber(1), DeliveryNumber(3)], ACCEPTED, True))
    assert unsettled(shelved) == [2]


def test_a_link_that_comes_back_hears_what_is_here_and_what_is_not() -> None:
    first = exact()
    first.attach()
    first.put(1, 3)
    second = after(first)
    second.attach(unsettled={tag(2): None, tag(4): None})
    (answer,) = answers(second)
    assert answer.unsettled == {tag(2): ACCEPTED}
    assert unsettled(second) == [2], "the core has settled the others"
    delivery = OutgoingDelivery(DeliveryNumber(1), tag(2), b"", settled=True, resume=True)
    delivery.state = ACCEPTED
    second.order(SendDeliveries(SHELF, [delivery]))
    assert (unsettled(second), second.messages) == ([], 3)


def test_the_log_is_asked_when_what_came_before_is_durable() -> None:
    shelved = exact()
    shelved.attach()
    shelved.is_committing = False
    shelved.put(1)
    shelved.order(DetachLink(SHELF, False))
    again = LinkId(SHELF + 1)
    shelved.attach(again, unsettled={tag(1): None})
    assert len(answers(shelved)) == 1, "it would say that the message is not here"
    shelved.is_committing = True
    shelved.commit()
    shelved.exchange()
    assert answers(shelved)[-1].unsettled == {tag(1): ACCEPTED}


def test_what_is_sent_again_by_its_tag_is_stored() -> None:
    shelved = exact()
    shelved.attach(unsettled={tag(1): None})
    shelved.put(1)
    assert (shelved.messages, unsettled(shelved), shelved.accepted()) == (1, [1], [1])


def test_what_a_person_has_decided_otherwise_is_settled_at_once() -> None:
    first = exact()
    first.attach()
    first.put(1)
    second = after(first)
    second.attach(unsettled={tag(1): Rejected()})
    delivery = OutgoingDelivery(DeliveryNumber(1), tag(1), b"", resume=True)
    delivery.state = Rejected()
    second.order(SendDeliveries(SHELF, [delivery]))
    assert (settled(second, SHELF), unsettled(second)) == ([1], [])


# ------------------------------------------------------------------ what goes


def test_an_outcome_is_settled_with_the_core_when_it_is_durable_that_the_message_is_gone() -> None:
    shelved, link = begun()
    numbers = [each.number for each in shelved.received(link)]
    shelved.is_committing = False
    shelved.order(UpdateDeliveries(link, numbers[:2], ACCEPTED, False))
    assert settled(shelved, link) == []
    shelved.is_committing = True
    shelved.commit()
    assert settled(shelved, link) == numbers[:2]
    assert shelved.messages == 1


def test_what_comes_back_is_settled_at_once_and_sent_again() -> None:
    shelved, link = begun()
    first = shelved.received(link)[0]
    shelved.order(UpdateDeliveries(link, [first.number], RELEASED, False))
    assert settled(shelved, link) == [first.number]
    shelved.wait(1.0)
    assert shelved.sent(link) == [1, 2, 3, 1]


def test_what_the_core_has_is_resumed_and_not_sent_again() -> None:
    first, link = begun()
    theirs = tag_of(first, link, 1)
    second = after(first)
    second.answer(10, is_dead=True)
    again = second.answer(10, unsettled={theirs: ACCEPTED})
    (back,) = resumed(second, again)
    assert (back.tag, back.settled) == (theirs, False)
    assert [each.tag for each in second.received(again)].count(theirs) == 1
    assert [int(each.payload) for each in second.received(again) if not each.resume] == [1, 3]
    second.order(UpdateDeliveries(again, [back.number], ACCEPTED, False))
    assert (settled(second, again), second.messages) == ([back.number], 2)


def test_what_is_resumed_and_released_is_sent_anew() -> None:
    first, link = begun(1)
    theirs = tag_of(first, link, 0)
    second = after(first)
    second.answer(10, is_dead=True)
    again = second.answer(10, unsettled={theirs: None})
    (back,) = resumed(second, again)
    second.order(UpdateDeliveries(again, [back.number], RELEASED, False))
    second.wait(1.0)
    assert [each.payload for each in second.received(again) if not each.resume] == [b"00000001"]


def test_what_the_store_has_no_more_is_resumed_settled() -> None:
    first, link = begun()
    theirs = tag_of(first, link, 0)
    first.order(UpdateDeliveries(link, [first.received(link)[0].number], ACCEPTED, False))
    second = after(first)
    second.answer(10, is_dead=True)
    again = second.answer(10, unsettled={theirs: ACCEPTED})
    assert [(each.tag, each.settled) for each in resumed(second, again)] == [(theirs, True)]


def test_what_is_about_to_be_gone_is_resumed_when_that_is_durable() -> None:
    shelved, link = begun()
    theirs, number = tag_of(shelved, link, 0), shelved.received(link)[0].number
    shelved.is_committing = False
    shelved.order(UpdateDeliveries(link, [number], ACCEPTED, False))
    shelved.order(DetachLink(link, False))
    shelved.wait(REFUSED_SECONDS)
    again = shelved.answer(10, unsettled={theirs: ACCEPTED})
    assert (resumed(shelved, again), settled(shelved, link)) == ([], [])
    shelved.is_committing = True
    shelved.commit()
    shelved.exchange()
    assert [(each.tag, each.settled) for each in resumed(shelved, again)] == [(theirs, True)]
    assert shelved.messages == 2


def test_what_was_forwarded_and_not_durable_is_said_again_and_resumed_settled() -> None:
    first, link = begun()
    theirs, number = tag_of(first, link, 0), first.received(link)[0].number
    first.engine.execute(UpdateDeliveries(link, [number], ACCEPTED, False))  # its process ends
    second = after(first, before=first)
    second.answer(10, is_dead=True)
    again = second.answer(10, unsettled={theirs: ACCEPTED})
    assert [(each.tag, each.settled) for each in resumed(second, again)] == [(theirs, True)]
    assert second.messages == 2


def test_nothing_is_sent_before_the_core_has_answered_for_the_dead_letters_too() -> None:
    shelved = exact()
    shelved.attach()
    shelved.put(1, 2)
    link = shelved.answer(10)
    assert shelved.sent(link) == []
    shelved.answer(10, is_dead=True)
    assert shelved.sent(link) == [1, 2]


def test_what_the_core_may_have_sent_is_no_dead_letter_however_old_it_is() -> None:
    bounds = Bounds(age_ns=10_000_000_000)
    first = exact(bounds=bounds)
    first.attach()
    first.put(1, 2)
    first.answer(10, is_dead=True)
    theirs = tag_of(first, first.answer(10), 0)
    second = after(first, bounds=bounds)
    second.wait(60.0)
    dead = second.answer(10, is_dead=True)
    assert second.sent(dead) == [], "the core has not answered for the others"
    link = second.answer(10, unsettled={theirs: None})
    (back,) = resumed(second, link)
    assert (back.tag, second.sent(dead)) == (theirs, [2])
    second.order(UpdateDeliveries(link, [back.number], RELEASED, False))
    assert second.sent(dead) == [2, 1], "now it is certain that nobody has it"


def test_a_refused_inlet_is_waited_for_unless_the_core_has_no_place_for_its_messages() -> None:
    shelved = exact()
    shelved.attach()
    shelved.put(1)
    link = shelved.answer(10)
    dead = shelved.inlets()["telemetry.a", True]
    shelved.order(RefuseLink(dead, Condition(NOT_FOUND, "its route is gone")))
    assert shelved.sent(link) == []
    shelved.wait(REFUSED_SECONDS)
    again = shelved.inlets()["telemetry.a", True]
    assert again != dead
    shelved.order(RefuseLink(again, Condition(RESOURCE_DELETED, "nothing was ever there")))
    assert shelved.sent(link) == [1]
