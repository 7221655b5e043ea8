"""The three state tables, walked in full: every pair is either listed here or forbidden."""

import enum
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from router.errors import MisuseError
from router.wire.v1_0 import connection, link, security, session
from router.wire.v1_0.faults import Fault, Rule

# Written from the diagrams of §2.4.6-7, §2.5.5, §2.6.2-6 and §5.3.2: state: input state, ...
CONNECTION = """
START: R:HDR HDR_RCVD, S:HDR HDR_SENT
HDR_RCVD: S:HDR HDR_EXCH
HDR_SENT: R:HDR HDR_EXCH, S:OPEN OPEN_PIPE
HDR_EXCH: R:OPEN OPEN_RCVD, S:OPEN OPEN_SENT
OPEN_PIPE: R:HDR OPEN_SENT, S:CLOSE OC_PIPE, S:CLOSE(error) OC_PIPE
OC_PIPE: R:HDR CLOSE_PIPE
OPEN_RCVD: S:OPEN OPENED, R:FRAME OPEN_RCVD
OPEN_SENT: R:OPEN OPENED, S:CLOSE CLOSE_PIPE, S:CLOSE(error) CLOSE_PIPE
CLOSE_PIPE: R:OPEN DISCARDING
OPENED: R:FRAME OPENED, R:CLOSE CLOSE_RCVD, S:CLOSE CLOSE_SENT, S:CLOSE(error) DISCARDING
CLOSE_RCVD: S:CLOSE END
CLOSE_SENT: R:FRAME CLOSE_SENT, R:CLOSE END
DISCARDING: R:FRAME DISCARDING, R:CLOSE END
END:
"""
SESSION = """
UNMAPPED: R:BEGIN BEGIN_RCVD, S:BEGIN BEGIN_SENT
BEGIN_SENT: R:BEGIN MAPPED, S:FRAME BEGIN_SENT
BEGIN_RCVD: S:BEGIN MAPPED
MAPPED: R:FRAME MAPPED, S:FRAME MAPPED, R:END END_RCVD, S:END END_SENT, S:END(error) DISCARDING
END_SENT: R:FRAME END_SENT, R:END UNMAPPED
END_RCVD: S:END UNMAPPED
DISCARDING: R:FRAME DISCARDING, R:END UNMAPPED
"""
LINK = """
DETACHED: R:ATTACH ATTACH_RCVD, S:ATTACH ATTACH_SENT
ATTACH_SENT: R:ATTACH ATTACHED, S:DETACH DETACH_PIPE, S:DETACH(error) DETACH_PIPE
ATTACH_RCVD: S:ATTACH ATTACHED, R:FRAME ATTACH_RCVD, R:DETACH REFUSE_DUE
REFUSE_DUE: S:ATTACH DETACH_RCVD
DETACH_PIPE: R:ATTACH DETACH_SENT
ATTACHED: R:FRAME ATTACHED, R:DETACH DETACH_RCVD, S:DETACH DETACH_SENT, S:DETACH(error) DISCARDING
DETACH_RCVD: S:DETACH DETACHED
DETACH_SENT: R:FRAME DETACH_SENT, R:DETACH DETACHED
DISCARDING: R:FRAME DISCARDING, R:DETACH DETACHED
"""
SECURITY = """
START: mechanisms OFFERED
OFFERED: init UNDER_WAY
UNDER_WAY: challenge CHALLENGED, outcome-ok DONE, outcome-not-ok FAILED
CHALLENGED: response UNDER_WAY
DONE:
FAILED:
"""

_SHORT = {
    "R:frame of a session": "R:FRAME",
    "R:frame of a link or flow": "R:FRAME",
    "S:frame of a link or flow": "S:FRAME",
    "R:FLOW or TRANSFER": "R:FRAME",
    "outcome ok": "outcome-ok",
    "outcome not ok": "outcome-not-ok",
}


def _parse(text: str) -> dict[tuple[str, str], str]:
    table = {}
    for line in text.strip().splitlines():
        state, _, rest = line.partition(":")
        for entry in filter(None, rest.split(",")):
            step, following = entry.split()
            table[state, step] = following
    return table


def _spelled(table: Mapping[Any, enum.Enum]) -> dict[Any, Any]:
    return {
        (phase.value, _SHORT.get(step.value, step.value)): following.value
        for (phase, step), following in table.items()
    }


def test_the_connection_follows_the_specification() -> None:
    assert _spelled(connection.TRANSITIONS) == _parse(CONNECTION)


def test_the_session_follows_the_specification() -> None:
    assert _spelled(session.TRANSITIONS) == _parse(SESSION)


def test_the_link_has_both_halves_or_is_on_its_way() -> None:
    assert _spelled(link.TRANSITIONS) == _parse(LINK)


def test_the_sasl_exchange_follows_the_specification() -> None:
    assert _spelled(security.TRANSITIONS) == _parse(SECURITY)


def _pairs(room: Any, phases: type[enum.Enum]) -> list[Any]:
    return [
        pytest.param(
            room, phase, step, id=f"{room.__name__.rpartition('.')[2]}-{phase.name}-{step.name}"
        )
        for phase in phases
        for step in room.Step
    ]


_RULES = {
    connection: Rule.FRAME_STATE,
    session: Rule.CHANNEL_UNMAPPED,
    link: Rule.HANDLE_UNKNOWN,
}


@pytest.mark.parametrize(
    ("room", "phase", "step"),
    [
        *_pairs(connection, connection.ConnectionPhase),
        *_pairs(session, session.SessionPhase),
        *_pairs(link, link.LinkPhase),
    ],
)
def test_what_is_absent_is_a_fault_of_the_peers_or_a_defect_of_ours(
    room: Any, phase: enum.Enum, step: enum.Enum
) -> None:
    follow: Callable[[Any, Any], Any] = room.follow
    following = room.TRANSITIONS.get((phase, step))
    if following is not None:
        assert follow(phase, step) is following
    elif step.name.startswith("R_"):
        with pytest.raises(Fault) as caught:
            follow(phase, step)
        assert caught.value.rule is _RULES[room]
        assert phase.value in str(caught.value.condition)
    else:
        with pytest.raises(MisuseError):
            follow(phase, step)
