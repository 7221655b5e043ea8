"""The table of §3.4.6, row by row; rows are named by the delivery-tags of its example."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.links.recovery import (
    ABSENT,
    START,
    Abort,
    Absent,
    Action,
    Forget,
    Restate,
    ResumeFrom,
    SendAnew,
    Settle,
    resume,
)
from router.model.outcome import (
    ACCEPTED,
    MODIFIED_FAILED,
    REJECTED,
    RELEASED,
    DeliveryState,
    Received,
    TransactionalState,
    UnknownState,
    is_outcome,
)

EXAMPLE: list[tuple[str, DeliveryState | None, DeliveryState | Absent | None, Action]] = [
    ("01 unknown to the receiver: sent anew", None, ABSENT, SendAnew()),
    ("02 begun there: goes on where it wants", None, Received(3, 0), ResumeFrom(Received(3, 0))),
    ("03 decided there: settled with its outcome", None, ACCEPTED, Settle(ACCEPTED)),
    ("04 no more than begun there: from the start, resumed", None, None, ResumeFrom(START)),
    (
        "05 unknown to the receiver, though only its end is here: sent anew",
        Received(0, 200),
        ABSENT,
        SendAnew(),
    ),
    (
        "06 its end is here and wanted: goes on",
        Received(1, 150),
        Received(2, 0),
        ResumeFrom(Received(2, 0)),
    ),
    ("07 what it wants is gone here: aborted", Received(0, 500), Received(0, 100), Abort()),
    ("08 only its end is here, decided there: settled", Received(3, 5), ACCEPTED, Settle(ACCEPTED)),
    ("09 only its end is here, begun there: aborted", Received(2, 0), None, Abort()),
    ("10 decided here, unknown there: forgotten", ACCEPTED, ABSENT, Forget()),
    ("11 decided here, begun there: aborted", ACCEPTED, Received(1, 2000), Abort()),
    ("12 decided alike: settled", ACCEPTED, ACCEPTED, Settle(ACCEPTED)),
    ("13 decided otherwise there: ours is restated", ACCEPTED, RELEASED, Restate(ACCEPTED)),
    ("14 decided here, no more than begun there: aborted", ACCEPTED, None, Abort()),
]


@pytest.mark.parametrize(
    ("ours", "theirs", "action"), [row[1:] for row in EXAMPLE], ids=[row[0] for row in EXAMPLE]
)
def test_each_tag_of_the_example_is_resumed_as_the_specification_says(
    ours: DeliveryState | None, theirs: DeliveryState | Absent | None, action: Action
) -> None:
    assert resume(ours, theirs) == action


def test_a_sender_at_the_receivers_very_position_resumes() -> None:
    assert resume(Received(1, 5), Received(1, 5)) == ResumeFrom(Received(1, 5))


def test_the_first_octet_is_the_same_as_null() -> None:
    assert resume(START, None) == resume(None, START) == ResumeFrom(START)


@pytest.mark.parametrize("outcome", [REJECTED, RELEASED, MODIFIED_FAILED])
def test_every_outcome_of_the_receiver_settles(outcome: DeliveryState) -> None:
    assert resume(None, outcome) == Settle(outcome)


@pytest.mark.parametrize("state", [UnknownState(b"\x40"), TransactionalState(b"t")])
def test_a_state_that_says_nothing_of_the_payload_counts_as_null(state: DeliveryState) -> None:
    assert resume(None, state) == resume(None, None)
    assert resume(ACCEPTED, state) == resume(ACCEPTED, None)
    assert resume(Received(2, 0), state) == resume(Received(2, 0), None)


POSITIONS = st.builds(Received, st.integers(0, 3), st.integers(0, 3))
STATES = st.one_of(
    st.none(), POSITIONS, st.sampled_from([ACCEPTED, REJECTED, RELEASED, MODIFIED_FAILED])
)


@given(STATES, st.one_of(STATES, st.just(ABSENT)))
def test_nothing_the_receiver_does_not_know_is_marked_as_resumed(
    ours: DeliveryState | None, theirs: DeliveryState | Absent | None
) -> None:
    assert isinstance(resume(ours, theirs), SendAnew | Forget) is (theirs is ABSENT)


@given(STATES, STATES)
def test_an_outcome_once_reached_by_the_sender_is_the_only_one_told(
    ours: DeliveryState | None, theirs: DeliveryState | None
) -> None:
    action = resume(ours, theirs)
    if ours is not None and is_outcome(ours):
        assert isinstance(action, Abort) or action in (Settle(ours), Restate(ours))


@given(POSITIONS, POSITIONS)
def test_payload_is_never_promised_from_before_what_the_sender_still_has(
    ours: Received, theirs: Received
) -> None:
    action = resume(ours, theirs)
    can = (theirs.section_number, theirs.section_offset) >= (
        ours.section_number,
        ours.section_offset,
    )
    assert action == (ResumeFrom(theirs) if can else Abort())
