"""The client's link machines against a container that keeps state, or does not, over lines cut
at any octet."""

from collections import Counter
from collections.abc import Callable
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.links.attaches import LifeCount, no_number, read_number
from router.model.commands import AttachLink, GrantCredit
from router.model.condition import DETACH_FORCED, NOT_FOUND, NOT_IMPLEMENTED, Condition
from router.model.delivery import ReceivedDelivery
from router.model.identity import LinkId, LinkName
from router.model.outcome import (
    ACCEPTED,
    MODIFIED_FAILED,
    REJECTED,
    RELEASED,
    DeliveryState,
)
from router.model.terminus import ReceiverSettleMode, SenderSettleMode
from router.net.client.message import numbered
from router.net.client.receiver import ReceivingLink
from router.net.client.report import outcome_name
from router.net.client.sender import SenderPhase, SendingLink
from router.routes.route import Guarantee
from tests.support.keeper import Keeper, Line

AT_MOST_ONCE, AT_LEAST_ONCE, EXACTLY_ONCE = Guarantee


def messages(count: int, size: int = 10) -> list[bytes]:
    return list(numbered(b"m" * size, count))


def sending(guarantee: Guarantee, supply: list[bytes], window: int = 5000) -> SendingLink:
    return SendingLink(
        name=LinkName("link"),
        address="node",
        supply=iter(supply),
        guarantee=guarantee,
        window=window,
    )


def receiving(
    guarantee: Guarantee,
    taken: list[bytes],
    count: int | None,
    window: int = 10,
    outcome: DeliveryState = ACCEPTED,
) -> ReceivingLink:
    def take(delivery: ReceivedDelivery) -> DeliveryState:
        taken.append(delivery.payload)
        return outcome

    return ReceivingLink(
        name=LinkName("link"),
        address="node",
        take=take,
        guarantee=guarantee,
        window=window,
        count=count,
    )


# --- nothing goes wrong ---------------------------------------------------------------------------


@pytest.mark.parametrize("guarantee", Guarantee)
def test_what_is_supplied_is_sent_in_order_and_counted(guarantee: Guarantee) -> None:
    supply = messages(25)
    machine, keeper = sending(guarantee, supply), Keeper()
    Line(machine, keeper).run()
    assert machine.failure is None
    assert machine.is_done
    assert machine.failure is None
    assert keeper.taken == supply
    name = "settled" if guarantee is AT_MOST_ONCE else "accepted"
    assert machine.report.outcomes == {name: 25}
    assert machine.report.sent == 25
    assert machine.report.octets == sum(map(len, supply))


@pytest.mark.parametrize("guarantee", Guarantee)
def test_what_waits_is_received_in_order_up_to_the_count(guarantee: Guarantee) -> None:
    taken: list[bytes] = []
    machine, keeper = receiving(guarantee, taken, 25), Keeper()
    keeper.waiting.extend(messages(30))
    Line(machine, keeper).run()
    assert machine.failure is None
    assert machine.is_done
    assert taken == messages(25)
    assert list(keeper.waiting) == messages(30)[25:], "no more was asked for than was wanted"
    assert keeper.settled == taken
    assert machine.report.outcomes == {"accepted": 25}


@pytest.mark.parametrize("outcome", [ACCEPTED, REJECTED, RELEASED, MODIFIED_FAILED])
@pytest.mark.parametrize("guarantee", [AT_LEAST_ONCE, EXACTLY_ONCE])
def test_every_outcome_is_counted_by_its_name(guarantee: Guarantee, outcome: DeliveryState) -> None:
    machine = sending(guarantee, messages(3))
    Line(machine, Keeper(answer=outcome)).run()
    assert machine.report.outcomes == {outcome_name(outcome): 3}


def why(machine: SendingLink) -> str:
    return machine.waits_for or ""


def test_why_nothing_moves_is_told() -> None:
    machine = sending(AT_LEAST_ONCE, messages(3))
    assert why(machine) == "", "it is not attached"
    Line(machine, Keeper(credit=0)).run()
    assert "nobody receives from 'node'" in why(machine)

    machine = sending(AT_LEAST_ONCE, messages(3))
    line = Line(machine, Keeper())
    while not machine.report.sent:
        line.step(in_octets=1 << 20 if machine.phase is not SenderPhase.ATTACHED else 0)
    assert why(machine) == "it waits for the outcome of 3 that were sent"
    line.run()
    assert why(machine) == ""


def test_nothing_to_send_ends_at_once() -> None:
    machine, keeper = sending(AT_LEAST_ONCE, []), Keeper()
    line = Line(machine, keeper)
    line.run()
    assert machine.failure is None
    assert machine.is_done
    assert line.near.finished


def test_settle_modes_follow_the_guarantee() -> None:
    expected = {
        AT_MOST_ONCE: (SenderSettleMode.SETTLED, ReceiverSettleMode.FIRST),
        AT_LEAST_ONCE: (SenderSettleMode.UNSETTLED, ReceiverSettleMode.FIRST),
        EXACTLY_ONCE: (SenderSettleMode.UNSETTLED, ReceiverSettleMode.SECOND),
    }
    for guarantee, modes in expected.items():
        keeper = Keeper()
        Line(sending(guarantee, messages(1)), keeper).run()
        event = keeper.attached[0]
        assert (event.sender_settle_mode, event.receiver_settle_mode) == modes
        assert event.unsettled is None, "a first attach begins anew"


@pytest.mark.parametrize("guarantee", Guarantee)
def test_large_messages_wait_for_the_session_window_and_all_arrive(guarantee: Guarantee) -> None:
    supply = messages(5, size=5000)
    machine, keeper = sending(guarantee, supply), Keeper()
    Line(machine, keeper, frame_octets=512, window=3).run()
    assert machine.failure is None
    assert machine.is_done
    assert keeper.taken == supply


def test_no_more_is_unsettled_than_the_window_allows() -> None:
    machine, keeper = sending(EXACTLY_ONCE, messages(20), window=3), Keeper(credit=100)
    line = Line(machine, keeper)
    while not keeper.taken:
        line.step(in_octets=1 << 20 if not keeper.attached else 0 if machine.report.sent else 1000)
    assert machine.report.sent == 3
    line.run()
    assert machine.report.outcomes == {"accepted": 20}


def test_exactly_once_fails_where_the_other_end_settles_first() -> None:
    machine, keeper = sending(EXACTLY_ONCE, messages(3)), Keeper(settles_second=False)
    Line(machine, keeper).run()
    assert machine.failure is not None
    assert machine.failure.name == NOT_IMPLEMENTED
    assert keeper.taken == []


# --- cuts -----------------------------------------------------------------------------------------

CUTS = st.lists(
    st.lists(st.tuples(st.integers(0, 600), st.integers(0, 600)), max_size=30), max_size=5
)
"""For each connection that is lost: how many octets move each way before it is."""


def play(line: Line, cuts: list[list[tuple[int, int]]]) -> None:
    """Carries octets as told, cutting in between; then lets everything run to its end."""
    for steps in cuts:
        for out_octets, in_octets in steps:
            line.step(out_octets, in_octets)
        if line.near.finished:
            return
        line.cut()
    line.run()


@given(CUTS, st.integers(1, 12), st.sampled_from([10, 700]))
def test_exactly_once_arrives_once_wherever_the_line_is_cut(
    cuts: list[list[tuple[int, int]]], credit: int, size: int
) -> None:
    supply = messages(20, size)
    machine, keeper = sending(EXACTLY_ONCE, supply), Keeper(credit=credit)
    play(Line(machine, keeper, frame_octets=512), cuts)
    assert machine.failure is None
    assert machine.is_done
    assert Counter(keeper.taken) == Counter(supply)
    assert machine.report.outcomes == {"accepted": 20}
    assert machine.report.in_doubt == 0
    assert machine.report.sent == 20


@given(CUTS, st.booleans())
def test_at_least_once_loses_nothing_and_accounts_for_what_comes_twice(
    cuts: list[list[tuple[int, int]]], keeps: bool
) -> None:
    supply = messages(20)
    machine, keeper = sending(AT_LEAST_ONCE, supply), Keeper(keeps=keeps)
    play(Line(machine, keeper), cuts)
    assert machine.failure is None
    assert machine.is_done
    assert set(keeper.taken) == set(supply)
    assert machine.report.outcomes == {"accepted": 20}
    assert len(keeper.taken) - len(supply) <= machine.report.resent


@given(CUTS)
def test_exactly_once_is_never_sent_again_to_a_peer_without_memory(
    cuts: list[list[tuple[int, int]]],
) -> None:
    supply = messages(20)
    machine, keeper = sending(EXACTLY_ONCE, supply), Keeper(keeps=False)
    play(Line(machine, keeper), cuts)
    assert machine.failure is None
    assert machine.is_done
    assert max(Counter(keeper.taken).values(), default=0) <= 1
    assert machine.report.settled + machine.report.in_doubt == 20
    assert len(keeper.taken) >= machine.report.outcomes["accepted"]
    assert 20 - len(keeper.taken) <= machine.report.in_doubt


@given(CUTS)
def test_at_most_once_never_arrives_twice(cuts: list[list[tuple[int, int]]]) -> None:
    machine, keeper = sending(AT_MOST_ONCE, messages(20)), Keeper()
    play(Line(machine, keeper), cuts)
    assert machine.failure is None
    assert machine.is_done
    assert max(Counter(keeper.taken).values(), default=0) <= 1


@given(CUTS, st.integers(1, 4))
def test_incomplete_maps_are_reduced_until_they_are_complete(
    cuts: list[list[tuple[int, int]]], limit: int
) -> None:
    supply = messages(20)
    machine, keeper = sending(EXACTLY_ONCE, supply), Keeper(map_limit=limit)
    play(Line(machine, keeper), cuts)
    assert machine.failure is None
    assert machine.is_done
    assert Counter(keeper.taken) == Counter(supply)


@given(CUTS, st.integers(1, 12), st.sampled_from([10, 700]))
def test_exactly_once_is_taken_once_wherever_the_line_is_cut(
    cuts: list[list[tuple[int, int]]], window: int, size: int
) -> None:
    supply = messages(20, size)
    taken: list[bytes] = []
    machine, keeper = receiving(EXACTLY_ONCE, taken, 20, window), Keeper()
    keeper.waiting.extend(supply)
    play(Line(machine, keeper, frame_octets=512), cuts)
    assert machine.failure is None
    assert machine.is_done
    assert Counter(taken) == Counter(supply)
    assert machine.report.received == 20
    assert len(keeper.settled) + len(keeper.waiting) + len(keeper._went) == 20


@given(CUTS, st.booleans())
def test_at_least_once_is_taken_at_least_once(
    cuts: list[list[tuple[int, int]]], keeps: bool
) -> None:
    supply = messages(20)
    taken: list[bytes] = []
    machine, keeper = receiving(AT_LEAST_ONCE, taken, None), Keeper(keeps=keeps)
    keeper.waiting.extend(supply)
    play(Line(machine, keeper), cuts)
    assert set(taken) == set(supply)


# --- the place turns out to be another container --------------------------------------------------


def play_at(
    line: Line, keepers: list[Keeper], cuts: list[tuple[int, list[tuple[int, int]]]]
) -> None:
    """Plays cuts, after each of which one of some containers is found."""
    for found, steps in cuts:
        for out_octets, in_octets in steps:
            line.step(out_octets, in_octets)
        if line.near.finished:
            return
        line.cut(keepers[found])
    line.run()


CUTS_AT = st.lists(
    st.tuples(
        st.integers(0, 1),
        st.lists(st.tuples(st.integers(0, 600), st.integers(0, 600)), max_size=30),
    ),
    max_size=6,
)


@given(CUTS_AT, st.booleans())
def test_exactly_once_is_never_sent_to_two_containers(
    cuts: list[tuple[int, list[tuple[int, int]]]], keeps: bool
) -> None:
    supply = messages(20)
    keepers = [Keeper(name="A", keeps=keeps), Keeper(name="B", keeps=keeps)]
    machine = sending(EXACTLY_ONCE, supply)
    play_at(Line(machine, keepers[0]), keepers, cuts)
    assert machine.failure is None
    assert machine.is_done
    taken = Counter(keepers[0].taken) + Counter(keepers[1].taken)
    assert max(taken.values(), default=0) <= 1
    report = machine.report
    assert report.settled + report.in_doubt == 20
    assert report.in_doubt_with.total() == report.in_doubt
    assert 20 - len(taken) <= report.in_doubt


@given(CUTS_AT)
def test_at_least_once_arrives_though_another_container_is_found(
    cuts: list[tuple[int, list[tuple[int, int]]]],
) -> None:
    supply = messages(20)
    keepers = [Keeper(name="A"), Keeper(name="B")]
    machine = sending(AT_LEAST_ONCE, supply)
    play_at(Line(machine, keepers[0]), keepers, cuts)
    assert machine.is_done
    assert set(keepers[0].taken) | set(keepers[1].taken) == set(supply)
    assert machine.report.outcomes == {"accepted": 20}


@given(CUTS_AT, st.integers(1, 12))
def test_exactly_once_is_taken_once_from_each_of_two_containers(
    cuts: list[tuple[int, list[tuple[int, int]]]], window: int
) -> None:
    supply = messages(40)
    taken: list[bytes] = []
    machine = receiving(EXACTLY_ONCE, taken, None, window)
    keepers = [Keeper(name="A"), Keeper(name="B")]
    keepers[0].waiting.extend(supply[:20])
    keepers[1].waiting.extend(supply[20:])
    line = Line(machine, keepers[0])
    play_at(line, keepers, cuts)
    for keeper in keepers:
        if not line.near.finished:
            line.cut(keeper)
        line.run()
    assert Counter(taken) == Counter(supply)


def test_what_another_container_may_have_is_in_doubt_and_named() -> None:
    a, b = Keeper(name="A"), Keeper(name="B")
    machine = sending(EXACTLY_ONCE, messages(12))
    line = Line(machine, a)
    while not a.taken:
        line.step(in_octets=1 << 20 if machine.phase is not SenderPhase.ATTACHED else 0)
    came = len(a.taken)
    line.cut(b)
    line.run()
    assert machine.is_done
    assert b.attached[0].unsettled is None, "A's map is not B's"
    assert b.taken == messages(12)[came:]
    assert machine.report.in_doubt_with == {"A": came}
    assert machine.report.outcomes == {"accepted": 12 - came}


def test_a_map_that_fits_no_frame_is_told_in_pieces() -> None:
    supply = messages(400)
    machine, keeper = sending(EXACTLY_ONCE, supply), Keeper(credit=400, map_limit=40)
    line = Line(machine, keeper, frame_octets=1024)
    for _ in range(200):
        line.step(in_octets=0 if machine.report.sent else 1 << 20)
        if len(keeper.taken) == 400:
            break
    assert len(keeper.taken) == 400
    line.cut()
    line.run()
    assert any(event.incomplete_unsettled for event in keeper.attached)
    assert not keeper.attached[-1].incomplete_unsettled
    assert machine.failure is None
    assert machine.is_done
    assert Counter(keeper.taken) == Counter(supply)
    assert machine.report.outcomes == {"accepted": 400}


@pytest.mark.parametrize("guarantee", [AT_LEAST_ONCE, EXACTLY_ONCE])
def test_later_attaches_tell_a_map_even_if_it_is_empty(guarantee: Guarantee) -> None:
    machine, keeper = receiving(guarantee, [], None), Keeper()
    line = Line(machine, keeper)
    line.run()
    line.cut()
    line.run()
    assert [event.unsettled for event in keeper.attached] == [None, {}]


# --- detached by the other end --------------------------------------------------------------------


def cut_in_the_middle(machine: SendingLink, keeper: Keeper) -> Line:
    """Cuts a line on which deliveries are under way and none of them is settled."""
    line = Line(machine, keeper)
    while not keeper.taken:
        line.step(in_octets=0 if machine.phase is SenderPhase.ATTACHED else 1 << 20)
    line.cut()
    return line


def test_at_least_once_does_without_maps_where_they_are_not_implemented() -> None:
    supply = messages(20)
    machine, keeper = sending(AT_LEAST_ONCE, supply), Keeper(keeps=False, refuses_maps=True)
    cut_in_the_middle(machine, keeper).run()
    assert machine.failure is None
    assert machine.is_done
    assert set(keeper.taken) == set(supply)
    assert machine.report.resent == len(keeper.taken) - 20 > 0


def test_exactly_once_doubts_where_maps_are_not_implemented() -> None:
    machine, keeper = sending(EXACTLY_ONCE, messages(20)), Keeper(keeps=False, refuses_maps=True)
    cut_in_the_middle(machine, keeper).run()
    assert machine.is_done
    assert machine.report.in_doubt == 10
    assert machine.report.outcomes == {"accepted": 10}
    assert max(Counter(keeper.taken).values()) == 1


def test_a_receiver_does_without_maps_where_they_are_not_implemented() -> None:
    taken: list[bytes] = []
    machine, keeper = receiving(AT_LEAST_ONCE, taken, 3), Keeper(keeps=False, refuses_maps=True)
    line = Line(machine, keeper)
    line.run()
    line.cut()
    keeper.waiting.extend(messages(3))
    line.run()
    assert machine.is_done
    assert taken == messages(3)


MACHINES = [lambda: sending(AT_LEAST_ONCE, messages(100)), lambda: receiving(AT_LEAST_ONCE, [], 9)]


@pytest.mark.parametrize("make", MACHINES)
def test_a_link_forced_away_wants_another_connection(
    make: Callable[[], SendingLink | ReceivingLink],
) -> None:
    machine, keeper = make(), Keeper(credit=1)
    line = Line(machine, keeper)
    while not keeper.attached:
        line.step()
    line.step()
    line.far.execute(keeper.detach(Condition(DETACH_FORCED, "maintenance")))
    line.run()
    assert machine.failure is None
    assert machine.interruption == "amqp:link:detach-forced: maintenance"
    line.cut()
    assert line.step()
    assert machine.interruption is None, "the next connection begins afresh"


@pytest.mark.parametrize("make", MACHINES)
@pytest.mark.parametrize("is_attached", [False, True])
def test_a_link_that_is_refused_or_closed_has_failed(
    make: Callable[[], SendingLink | ReceivingLink], is_attached: bool
) -> None:
    machine, keeper = make(), Keeper(refuses=None if is_attached else Condition(NOT_FOUND, "no"))
    line = Line(machine, keeper)
    while not keeper.attached:
        line.step()
    if is_attached:
        line.step()
        line.far.execute(keeper.detach(Condition(NOT_FOUND, "no")))
    line.run()
    assert machine.is_done
    assert str(machine.failure) == "amqp:not-found: no"


def test_a_drain_is_answered_with_what_there_is_and_the_credit() -> None:
    machine, keeper = sending(AT_LEAST_ONCE, messages(2), window=1), Keeper(credit=0)
    line = Line(machine, keeper)
    line.run()
    line.far.execute(GrantCredit(keeper.attached[0].link, 5, drain=True))
    line.step()
    while line.step(in_octets=0):
        pass
    assert keeper.taken == messages(1), "the window lets no more go before the first is settled"
    assert keeper.returned == [0]


# --- numbers of attaches --------------------------------------------------------------------------


@pytest.mark.parametrize("is_sender", [True, False])
def test_every_attach_has_the_next_number_and_none_without_a_count(is_sender: bool) -> None:
    for draw in (LifeCount(7).draw, no_number):
        machine: SendingLink | ReceivingLink
        machine = sending(EXACTLY_ONCE, []) if is_sender else receiving(EXACTLY_ONCE, [], None)
        machine.draw_number = draw
        told = []
        for _ in range(2):
            (attach,) = machine.attach(map(LinkId, count(1)))
            assert isinstance(attach, AttachLink)
            told.append(read_number(attach.properties))
        assert told == ([(7, 1), (7, 2)] if draw is not no_number else [None, None])
