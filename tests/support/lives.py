"""Checks every change of where a delivery stands against the tables of ``router.links.life``."""

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from router.links import life
from router.links.life import (
    CLAIMS,
    STAGES,
    Claim,
    ClaimInput,
    Input,
    Stage,
    claim_of,
    stage_of,
)
from router.links.link import IncomingLink, Link
from router.links.pairing import Pairing

MOVES: dict[str, Input] = {
    "send": Input.SEND,
    "pass_settled": Input.PASS,
    "place": Input.PLACE,
    "set_adrift": Input.SUSPEND,
    "take_up": Input.TAKE_UP,
    "track": Input.TRACK,
    "answer": Input.ANSWER,
    "answer_run": Input.ANSWER,
    "recall": Input.RECALL,
    "forget": Input.FORGET,
    "end_run": Input.END,
    "settle_run": Input.END,
    "lose": Input.LOSE,
}
"""What each function of the room does towards the receiver."""

CLAIM_MOVES: dict[str, ClaimInput] = {
    "arrive": ClaimInput.ARRIVE,
    "leave": ClaimInput.LEAVE,
    "abandon": ClaimInput.LEAVE,
    "report_settled": ClaimInput.LEAVE,
    "settle_run": ClaimInput.LEAVE,
    "settled_by_sender": ClaimInput.LEAVE,
    "set_adrift": ClaimInput.SUSPEND,
    "back": ClaimInput.RETURN,
    "take_absent": ClaimInput.RETURN,
    "keep": ClaimInput.KEEP,
    "keep_absent": ClaimInput.KEEP,
}
"""What each function of the room does towards the sender."""

Seen = set[tuple[Stage, Input] | tuple[Claim, ClaimInput]]


def watched(name: str, seen: Seen) -> Callable[..., Any]:
    """A function of the room that refuses what the tables lack, and collects what happens."""
    original = getattr(life, name)
    move, claim_move = MOVES.get(name), CLAIM_MOVES.get(name)

    @functools.wraps(original)
    def move_and_check(*arguments: Any) -> Any:
        __tracebackhide__ = True  # its arguments refer to everything that there is
        concerned = list(_concerned(name, arguments))
        is_outgoing = name == "set_adrift" and not isinstance(arguments[0], IncomingLink)
        stages = [stage_of(each) for each in concerned]
        claims = [claim_of(each) for each in concerned]
        result = original(*arguments)
        if result is False:
            return result  # it declined
        for pairing, stage, claim in zip(concerned, stages, claims, strict=True):
            if move is not None and (name != "set_adrift" or is_outgoing):
                seen.add((stage, move))
                assert (stage, move) in STAGES, f"{move} of what is {stage}"
                assert stage_of(pairing) is STAGES[stage, move], f"{move} of what was {stage}"
            if claim_move is not None and not is_outgoing:
                seen.add((claim, claim_move))
                assert (claim, claim_move) in CLAIMS, f"{claim_move} of what is {claim}"
                assert claim_of(pairing) is CLAIMS[claim, claim_move], f"{claim_move} of {claim}"
        return result

    return move_and_check


def _concerned(name: str, arguments: tuple[Any, ...]) -> Iterator[Pairing]:
    first = arguments[0]
    match name:
        case "set_adrift":
            link: Link = first
            yield from link.unsettled.values()
        case "settled_by_sender":
            if (found := first.unsettled.get(arguments[1])) is not None:
                yield found
        case "back":
            if (found := first.adrift.get(arguments[1])) is not None:
                yield found
        case "take_absent":
            yield from [first.adrift[tag] for tag in arguments[1]]
        case "keep_absent":
            if first.unconfirmed is not None:
                yield from first.unconfirmed.absent.values()
        case _:
            for argument in arguments:
                if isinstance(argument, Pairing):
                    yield argument
                elif isinstance(argument, list):
                    yield from argument


def watch(patch: Callable[[object, str, object], None], names: Iterable[str] = ()) -> Seen:
    """Puts watched functions in place; what happens from now on is in the set."""
    seen: Seen = set()
    for name in names or {*MOVES, *CLAIM_MOVES}:
        patch(life, name, watched(name, seen))
    return seen
