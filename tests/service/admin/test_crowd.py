"""Who makes room at the admin endpoint."""

import pytest

from router.service.admin.crowd import OPEN_SECONDS, Crowd, Visit

CROWD = Crowd(most=4, most_of_source=2)
NOW = 100.0


def waiting(source: str | None, seconds: float) -> Visit:
    return Visit(source, NOW - seconds)


def asking(source: str | None, seconds: float, *, admitted: bool = False) -> Visit:
    return Visit(source, NOW - seconds, requests=1, admitted=int(admitted))


def test_nobody_leaves_while_there_is_room() -> None:
    visits = [waiting("a", 9), waiting("b", 9), waiting("c", 9)]
    assert CROWD.is_free(visits, "a")
    assert not CROWD.is_free([*visits, waiting("d", 9)], "e")


def test_whoever_has_waited_longest_makes_room() -> None:
    visits = [waiting("a", 1), waiting("b", 3), asking("c", 60), waiting("d", 2)]
    assert CROWD.find_victim(visits, "e", NOW) is visits[1]


def test_a_source_that_has_too_many_makes_room_itself() -> None:
    visits = [waiting("a", 1), waiting("b", 30), waiting("a", 2)]
    assert not CROWD.is_free(visits, "a")
    assert CROWD.is_free(visits, "b")
    assert CROWD.find_victim(visits, "a", NOW) is visits[2]


def test_connections_of_a_unix_socket_count_together_with_all_others_only() -> None:
    assert CROWD.is_free([waiting(None, 1)] * 3, None)


def test_a_long_request_that_is_open_to_anybody_goes_if_nobody_waits() -> None:
    visits = [
        asking("a", 9, admitted=True),
        asking("b", OPEN_SECONDS / 2),
        asking("c", 3),
        asking("d", 2),
    ]
    assert CROWD.find_victim(visits, "e", NOW) is visits[2]


def test_who_was_admitted_or_has_just_asked_keeps_its_place() -> None:
    visits = [asking("a", 60, admitted=True)] * 2 + [asking("b", OPEN_SECONDS / 2)] * 2
    assert CROWD.find_victim(visits, "e", NOW) is None


def test_a_visit_knows_its_requests_and_which_were_admitted() -> None:
    visit = waiting("a", 5)
    with visit.asking(NOW) as request:
        assert (visit.requests, visit.admitted, visit.since) == (1, 0, NOW)
        request.admit()
        request.admit()
        with visit.asking(NOW + 1):
            assert (visit.requests, visit.admitted, visit.since) == (2, 1, NOW)
    assert (visit.requests, visit.admitted) == (0, 0)
    with pytest.raises(ZeroDivisionError), visit.asking(NOW):
        raise ZeroDivisionError
    assert visit.requests == 0
