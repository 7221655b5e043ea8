"""The life of a delivery in the core: every change of where a ``Pairing`` stands is made here.

A pairing stands somewhere towards the receiver (``Stage``) and somewhere towards the sender
(``Claim``). ``STAGES`` and ``CLAIMS`` look up what follows from which input; what they lack never
happens, and the tests of the core check each change against them::

    WAITING ──send──▶ SENT ──suspend──▶ IN_DOUBT ──take up──▶ LOOSE ──track──▶ SENT
       ▲               │ answer            │ answer
       └── forget ─────┤                   ▼
                       ▼                ANSWERED_AWAY
    DECIDED ◀─forget─ ANSWERED ──suspend──▲

    UNCLAIMED ──arrive──▶ CLAIMED ──leave──▶ UNCLAIMED          AWAY: known to its sender by tag
                             └──suspend──▶ AWAY ──return──▶ UNCLAIMED ──arrive──▶ CLAIMED

The maps ``unsettled`` and ``adrift`` of both kinds of link are written here and nowhere else. So
are the fields of the pairing that say where it stands, whether anybody waits for its outcome, and
who has given it back. Machines say what has happened; what else follows (orders, notices, records)
is theirs. ``core/_bulk.pyx`` writes the same for whole runs: ``pair`` as ``arrive``, ``send`` as
``send``, ``answer`` as ``answer_run``, ``settled_by_sender`` as ``settled_by_sender`` and
``forget``; the functions here are its reference.
"""

import enum
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from router.links.link import IncomingLink, Link, OutgoingLink, Trial
from router.links.pairing import UNNUMBERED, Pairing
from router.links.recovery import SendAnew
from router.model.delivery import Elder
from router.model.identity import DeliveryNumber, DeliveryTag
from router.model.outcome import (
    MODIFIED_FAILED,
    DeliveryState,
    Modified,
    Outcome,
    Rejected,
    Released,
)

REFUSED: Final = Released()
"""Value of ``Pairing.failure``: a target has refused the delivery (``core.refusals``). It is this
object, not an equal one."""

PUT_OFF: Final = Released()
"""The same of one that it does not take for another reason."""


class Stage(enum.Enum):
    """Where a delivery stands towards its receiver."""

    WAITING = "waiting"  # with no receiver, and nothing is decided: it waits, or is over
    SENT = "sent"  # in ``unsettled`` of its receiver's link
    IN_DOUBT = "in doubt"  # in ``adrift`` of a link that has lost its attachment
    ANSWERED = "answered"  # as SENT; the outcome is known, the sender is yet to settle
    ANSWERED_AWAY = "answered away"  # as IN_DOUBT; the outcome is known
    DECIDED = "decided"  # with no receiver; the sender is yet to settle, or to return
    LOOSE = "loose"  # numbered and in no map: it is being resumed, goes out settled, or is over
    ANSWERED_LOOSE = "answered loose"  # as LOOSE; the outcome is known


class Input(enum.Enum):
    """What happens to a delivery at its receiver."""

    SEND = "send"  # it goes out unsettled
    PASS = "pass"  # it goes out settled, part by part
    PLACE = "place"  # it is taken to have gone out on an earlier attachment
    SUSPEND = "suspend"  # its link loses the attachment, or its session
    TAKE_UP = "take up"  # it is about to be resumed, by a new number
    TRACK = "track"  # it has been resumed unsettled
    ANSWER = "answer"  # its outcome is known, and is kept until the sender settles
    RECALL = "recall"  # the outcome that was kept is sent to the sender now
    FORGET = "forget"  # its receiver has settled it, or is sent it settled, or never had it
    END = "end"  # the same for a run of which no sender waits any more
    LOSE = "lose"  # its receiver is gone for good


STAGES: Mapping[tuple[Stage, Input], Stage] = MappingProxyType({
    (Stage.WAITING, Input.SEND): Stage.SENT,
    (Stage.WAITING, Input.PASS): Stage.LOOSE,
    (Stage.WAITING, Input.PLACE): Stage.IN_DOUBT,
    (Stage.WAITING, Input.ANSWER): Stage.DECIDED,
    (Stage.SENT, Input.SUSPEND): Stage.IN_DOUBT,
    (Stage.SENT, Input.ANSWER): Stage.ANSWERED,
    (Stage.SENT, Input.FORGET): Stage.WAITING,
    (Stage.SENT, Input.END): Stage.LOOSE,
    (Stage.SENT, Input.LOSE): Stage.WAITING,
    (Stage.IN_DOUBT, Input.TAKE_UP): Stage.LOOSE,
    (Stage.IN_DOUBT, Input.ANSWER): Stage.ANSWERED_AWAY,
    (Stage.IN_DOUBT, Input.FORGET): Stage.WAITING,
    (Stage.IN_DOUBT, Input.LOSE): Stage.WAITING,
    (Stage.ANSWERED, Input.SUSPEND): Stage.ANSWERED_AWAY,
    (Stage.ANSWERED, Input.RECALL): Stage.SENT,
    (Stage.ANSWERED, Input.FORGET): Stage.DECIDED,
    (Stage.ANSWERED, Input.LOSE): Stage.DECIDED,
    (Stage.ANSWERED_AWAY, Input.TAKE_UP): Stage.ANSWERED_LOOSE,
    (Stage.ANSWERED_AWAY, Input.RECALL): Stage.IN_DOUBT,
    (Stage.ANSWERED_AWAY, Input.FORGET): Stage.DECIDED,
    (Stage.ANSWERED_AWAY, Input.LOSE): Stage.DECIDED,
    (Stage.DECIDED, Input.SEND): Stage.ANSWERED,
    (Stage.DECIDED, Input.PLACE): Stage.ANSWERED_AWAY,
    (Stage.DECIDED, Input.RECALL): Stage.WAITING,
    (Stage.LOOSE, Input.TRACK): Stage.SENT,
    (Stage.LOOSE, Input.FORGET): Stage.WAITING,
    (Stage.LOOSE, Input.LOSE): Stage.WAITING,
    (Stage.ANSWERED_LOOSE, Input.TRACK): Stage.ANSWERED,
    (Stage.ANSWERED_LOOSE, Input.FORGET): Stage.DECIDED,
})  # fmt: skip
"""What follows from which input; what is absent never happens."""


class Claim(enum.Enum):
    """Where a delivery stands towards its sender."""

    UNCLAIMED = "unclaimed"  # in no map of its sender's: settled, in custody, or its sender is gone
    CLAIMED = "claimed"  # in ``unsettled`` of its sender's link
    AWAY = "away"  # in ``adrift`` of a link that has lost its attachment


class ClaimInput(enum.Enum):
    """What happens to a delivery at its sender."""

    ARRIVE = "arrive"  # it came unsettled, or is resumed
    LEAVE = "leave"  # the sender has settled it, is sent a settled outcome, or has given it up
    SUSPEND = "suspend"  # its link loses the attachment, or its session
    RETURN = "return"  # its sender resumes it, or its map lacks it
    KEEP = "keep"  # its sender may resume it, by tag


CLAIMS: Mapping[tuple[Claim, ClaimInput], Claim] = MappingProxyType(
    {
        (Claim.UNCLAIMED, ClaimInput.ARRIVE): Claim.CLAIMED,
        (Claim.UNCLAIMED, ClaimInput.LEAVE): Claim.UNCLAIMED,
        (Claim.UNCLAIMED, ClaimInput.KEEP): Claim.AWAY,
        (Claim.CLAIMED, ClaimInput.LEAVE): Claim.UNCLAIMED,
        (Claim.CLAIMED, ClaimInput.SUSPEND): Claim.AWAY,
        (Claim.AWAY, ClaimInput.LEAVE): Claim.UNCLAIMED,
        (Claim.AWAY, ClaimInput.RETURN): Claim.UNCLAIMED,
    }
)
"""What follows from which input; what is absent never happens."""


def stage_of(pairing: Pairing) -> Stage:
    """Returns where a delivery stands towards its receiver."""
    link, is_open = pairing.outgoing, pairing.outcome is None
    if link is None:
        return Stage.WAITING if is_open else Stage.DECIDED
    if link.unsettled.get(pairing.outgoing_number) is pairing:
        return Stage.SENT if is_open else Stage.ANSWERED
    if link.adrift.get(pairing.outgoing_tag) is pairing:
        return Stage.IN_DOUBT if is_open else Stage.ANSWERED_AWAY
    return Stage.LOOSE if is_open else Stage.ANSWERED_LOOSE


def claim_of(pairing: Pairing) -> Claim:
    """Returns where a delivery stands towards its sender."""
    link = pairing.incoming
    if link.unsettled.get(pairing.number) is pairing:
        return Claim.CLAIMED
    if link.adrift.get(pairing.delivery.tag) is pairing:
        return Claim.AWAY
    return Claim.UNCLAIMED


# Towards the receiver


def send(link: OutgoingLink, pairing: Pairing, number: DeliveryNumber, tag: DeliveryTag) -> None:
    """SEND: it goes out unsettled."""
    pairing.outgoing = link
    pairing.outgoing_number = number
    pairing.outgoing_tag = tag
    link.unsettled[number] = pairing


def pass_settled(
    link: OutgoingLink, pairing: Pairing, number: DeliveryNumber, tag: DeliveryTag
) -> None:
    """PASS: it goes out settled, part by part."""
    pairing.outgoing = link
    pairing.outgoing_number = number
    pairing.outgoing_tag = tag


def place(link: OutgoingLink, pairing: Pairing, tag: DeliveryTag) -> None:
    """PLACE: it is as if it had gone out on an earlier attachment."""
    pairing.outgoing = link
    pairing.outgoing_tag = tag
    link.adrift[tag] = pairing


def send_again(link: OutgoingLink, pairing: Pairing) -> None:
    """PLACE: it is sent once more to the receiver that has given it back, by its tag there."""
    place(link, pairing, pairing.outgoing_tag)
    link.postpone(pairing, SendAnew())


def take_up(link: OutgoingLink, pairing: Pairing, number: DeliveryNumber) -> bool:
    """TAKE_UP: it is about to be resumed; false: another has its tag, or none: nothing is done."""
    if link.adrift.get(pairing.outgoing_tag) is not pairing:
        link.adrift.pop(pairing.outgoing_tag, None)
        return False
    del link.adrift[pairing.outgoing_tag]
    pairing.outgoing_number = number
    return True


def track(link: OutgoingLink, pairing: Pairing) -> None:
    """TRACK: it has been resumed unsettled, by the number that it was taken up with."""
    link.unsettled[pairing.outgoing_number] = pairing


def answer(pairing: Pairing, outcome: DeliveryState) -> None:
    """ANSWER: keeps its outcome until the sender settles, or returns."""
    pairing.outcome = outcome


def answer_run(pairings: Iterable[Pairing], outcome: DeliveryState) -> None:
    """ANSWER: the outcome is sent to senders, which settle first; drops the payloads."""
    for pairing in pairings:
        pairing.outcome = pairing.reported = outcome
        pairing.delivery.payload = b""


def recall(pairing: Pairing) -> DeliveryState | None:
    """RECALL: returns the outcome that was kept, to be sent now."""
    outcome, pairing.outcome = pairing.outcome, None
    return outcome


def report(pairing: Pairing, state: DeliveryState | None) -> None:
    """Keeps the state that the sender is sent unsettled."""
    pairing.reported = state


def forget(link: OutgoingLink, pairing: Pairing) -> None:
    """FORGET: takes a delivery out of the unsettled ones of a receiver."""
    link.unsettled.pop(pairing.outgoing_number, None)
    if link.adrift:
        link.adrift.pop(pairing.outgoing_tag, None)
    pairing.outgoing = None
    pairing.outgoing_number = UNNUMBERED


def end_run(link: OutgoingLink, pairings: Iterable[Pairing]) -> None:
    """END: no sender waits for these deliveries, and the receiver is done with them."""
    sent = link.unsettled
    for pairing in pairings:
        del sent[pairing.outgoing_number]


def settle_run(incoming: IncomingLink, link: OutgoingLink, pairings: Iterable[Pairing]) -> None:
    """END and LEAVE: deliveries from one sender to one receiver end on both sides at once."""
    sent, unsettled = link.unsettled, incoming.unsettled
    for pairing in pairings:
        del sent[pairing.outgoing_number], unsettled[pairing.number]


def lose(pairing: Pairing) -> None:
    """LOSE: its receiver is gone, or has all of what went out settled."""
    link = pairing.outgoing
    assert link is not None
    if link.unsettled.get(pairing.outgoing_number) is pairing:
        del link.unsettled[pairing.outgoing_number]
    elif link.adrift.get(pairing.outgoing_tag) is pairing:
        del link.adrift[pairing.outgoing_tag]
    pairing.outgoing = None


# Towards the sender


def arrive(pairing: Pairing) -> None:
    """ARRIVE: it came unsettled, by its number."""
    pairing.incoming.unsettled[pairing.number] = pairing


def leave(pairing: Pairing) -> None:
    """LEAVE: takes a delivery out of the unsettled ones of its sender, by its number."""
    pairing.incoming.unsettled.pop(pairing.number, None)


def abandon(pairing: Pairing) -> None:
    """LEAVE: takes a delivery out of both maps of its sender, who will bring it again."""
    leave(pairing)
    pairing.incoming.adrift.pop(pairing.delivery.tag, None)


def report_settled(pairing: Pairing) -> None:
    """LEAVE: its sender is sent the outcome settled."""
    del pairing.incoming.unsettled[pairing.number]
    pairing.is_settled = True


def settled_by_sender(link: IncomingLink, number: DeliveryNumber) -> Pairing | None:
    """LEAVE: its sender has settled it; returns it, without its number; None: it is unknown."""
    pairing = link.unsettled.pop(number, None)
    if pairing is not None:
        pairing.number = UNNUMBERED
    return pairing


def back(link: IncomingLink, tag: DeliveryTag) -> Pairing | None:
    """RETURN: takes what a sender resumes, or lacks, out of what is adrift; None: it is unknown."""
    return link.adrift.pop(tag, None)


def take_absent(link: IncomingLink, tags: Iterable[DeliveryTag]) -> dict[DeliveryTag, Pairing]:
    """RETURN: takes what a sender's map lacks out of what is adrift, and returns it."""
    return {tag: link.adrift.pop(tag) for tag in tags}


def keep_absent(link: IncomingLink) -> None:
    """KEEP: ends the wait for confirmation; deliveries that the map lacked are adrift again."""
    unconfirmed, link.unconfirmed = link.unconfirmed, None
    if unconfirmed is not None:
        link.adrift.update(unconfirmed.absent)


def renumber(pairing: Pairing, number: DeliveryNumber) -> None:
    """ARRIVE: its sender has resumed it, by a new number."""
    pairing.number = number
    arrive(pairing)


def keep(pairing: Pairing) -> None:
    """KEEP: its sender may resume it."""
    pairing.incoming.adrift[pairing.delivery.tag] = pairing


def follow(pairing: Pairing, link: IncomingLink, number: DeliveryNumber, tag: DeliveryTag) -> None:
    """LEAVE and ARRIVE: its sender has brought it again, over another link perhaps."""
    pairing.incoming.adrift.pop(pairing.delivery.tag, None)
    pairing.incoming = link
    pairing.delivery.tag = tag
    pairing.is_settled = pairing.delivery.settled = False
    pairing.is_unusual = True
    renumber(pairing, number)


# Both


def set_adrift(link: Link) -> None:
    """SUSPEND: the deliveries of a link lose their numbers."""
    if isinstance(link, IncomingLink):
        for pairing in link.unsettled.values():
            pairing.number = UNNUMBERED
            pairing.is_unusual = True
            link.adrift[pairing.delivery.tag] = pairing
    else:
        for pairing in link.unsettled.values():
            pairing.outgoing_number = UNNUMBERED
            pairing.is_unusual = True
            link.adrift[pairing.outgoing_tag] = pairing
    link.unsettled.clear()


def clear(link: Link) -> None:
    """LEAVE, LOSE: forgets the unsettled deliveries of a link that is gone for good."""
    link.unsettled.clear()
    link.adrift.clear()


# Whom the outcome matters to


def mark_unusual(pairing: Pairing) -> None:
    """Has settlement look closer at a delivery."""
    pairing.is_unusual = True


def set_settled(pairing: Pairing) -> None:
    """Nobody waits for the outcome any more, and settlement has to look closer."""
    pairing.is_settled = pairing.is_unusual = True


def orphan(pairing: Pairing) -> None:
    """Its sender is gone for good: nobody will get the outcome."""
    pairing.number = UNNUMBERED
    set_settled(pairing)


def drop(pairing: Pairing) -> None:
    """Its sender has given it up before all of it came."""
    pairing.number = UNNUMBERED
    pairing.is_settled = True


def settle_unfinished(pairing: Pairing) -> None:
    """LEAVE: its sender has settled it before all of it came."""
    leave(pairing)
    pairing.is_settled = pairing.delivery.settled = True


def restore_settled(pairing: Pairing, *, in_custody: bool) -> None:
    """It was settled by its sender in an earlier life of the router, or is brought again."""
    pairing.is_settled = True
    pairing.delivery.settled = in_custody


def take_custody(pairing: Pairing) -> None:
    """Its sender has settled it: the router answers for it from now on."""
    pairing.delivery.settled = True


# Who has given it back


def give_back(pairing: Pairing, trial: Trial | None, outcome: DeliveryState | None) -> None:
    """A receiver has not taken it: others are tried before that one has it again."""
    pairing.was_in_doubt = False
    pairing.tried = pairing.tried or set()
    if trial is not None:
        pairing.tried.add(trial)
        if bars(outcome):
            pairing.barred = pairing.barred or set()
            pairing.barred.add(trial)
    if isinstance(outcome, Modified):
        pairing.failure = worse(pairing.failure, outcome)
        count_failure(pairing, outcome)
    elif isinstance(outcome, Rejected):
        pairing.failure = outcome  # too large for it; the next may take more


def set_elder(pairing: Pairing, elder: Elder) -> None:
    """A target of a stored route has given it back, or never had it: it goes before all stored."""
    pairing.elder = max(pairing.elder, elder)


def end_doubt(pairing: Pairing) -> None:
    """It was in doubt, and is sent again as soon as somebody receives."""
    pairing.was_in_doubt = True
    pairing.doubts += 1


def count_failure(pairing: Pairing, outcome: DeliveryState | None) -> None:
    """Counts an attempt if its outcome says that it has failed."""
    if isinstance(outcome, Modified):
        pairing.attempts += outcome.delivery_failed


def fail(pairing: Pairing, outcome: Modified) -> None:
    """Counts an attempt that has failed, and keeps what its sender hears of that."""
    pairing.failure = worse(pairing.failure, outcome)
    count_failure(pairing, outcome)


def fail_in_doubt(pairing: Pairing) -> None:
    """Counts an attempt at a receiver that seems not to have it, and may have had it."""
    fail(pairing, MODIFIED_FAILED)
    pairing.doubts += 1


def set_failure(pairing: Pairing, outcome: Outcome) -> None:
    """Keeps what the sender hears if nobody takes it."""
    pairing.failure = outcome


def refuse(pairing: Pairing) -> None:
    """Records that a target refuses it now; it is retried or goes to the dead letters."""
    pairing.failure = REFUSED


def put_off(pairing: Pairing) -> None:
    """A target does not take it now: it gives it back, and it is not given up for that."""
    pairing.failure = PUT_OFF


def is_refused(pairing: Pairing) -> bool:
    """Returns whether ``REFUSED`` or ``PUT_OFF`` was the last word on it."""
    return pairing.failure is REFUSED or pairing.failure is PUT_OFF


def take_refusal(pairing: Pairing) -> Released | None:
    """Returns, and forgets, ``REFUSED`` or ``PUT_OFF``; None: neither was the last word on it."""
    refusal = pairing.failure
    if refusal is not REFUSED and refusal is not PUT_OFF:
        return None
    pairing.failure = None
    return REFUSED if refusal is REFUSED else PUT_OFF


def set_attempts(pairing: Pairing, attempts: int) -> None:
    """Restores how often it was sent before."""
    pairing.attempts = attempts


def try_again_from_first(pairing: Pairing) -> None:
    """Everybody may have it once more who has not refused it for good."""
    pairing.tried = set(pairing.barred or ())


def bars(outcome: DeliveryState | None) -> bool:
    """Returns whether a receiver must not be sent a delivery again."""
    match outcome:
        case Rejected():
            return True
        case Modified(undeliverable_here=undeliverable_here):
            return undeliverable_here
        case _:
            return False


def worse(known: Outcome | None, outcome: Modified) -> Outcome:
    """Joins what several receivers, one after the other, said of a delivery."""
    if not isinstance(known, Modified):
        return outcome
    return Modified(
        delivery_failed=known.delivery_failed or outcome.delivery_failed,
        undeliverable_here=known.undeliverable_here and outcome.undeliverable_here,
    )
