"""Every state of a delivery with every input: what the tables list happens, nothing else does."""

import itertools
from collections.abc import Callable

import attrs
import pytest

from router.links import life
from router.links.life import CLAIMS, STAGES, Claim, ClaimInput, Input, Stage, claim_of, stage_of
from router.links.link import IncomingLink, LinkKey, OutgoingLink, Unconfirmed
from router.links.pairing import UNNUMBERED, Pairing, Queue
from router.model.delivery import ReceivedDelivery
from router.model.identity import ContainerId, DeliveryNumber, DeliveryTag, LinkId, LinkName
from router.model.outcome import ACCEPTED, MODIFIED_FAILED, RELEASED, Modified, Rejected
from router.model.terminus import Role
from tests.support import lives

NUMBER, TAG = DeliveryNumber(7), DeliveryTag(b"ours")


def key(role: Role) -> LinkKey:
    return LinkKey(None, ContainerId("peer"), LinkName("link"), role)


@attrs.define(eq=False)
class Scene:
    """One delivery, and the links at both of its ends."""

    pairing: Pairing
    incoming: IncomingLink
    outgoing: OutgoingLink


def scene() -> Scene:
    incoming = IncomingLink(
        key=key(Role.RECEIVER), address="a", source=None, target=None, connection=None, link=None
    )
    outgoing = OutgoingLink(
        key=key(Role.SENDER), address="a", source=None, target=None, connection=None, link=None
    )
    delivery = ReceivedDelivery(DeliveryNumber(3), DeliveryTag(b"theirs"), b"payload")
    pairing = Pairing(incoming, delivery.number, delivery, Queue(incoming), 0.0, 1)
    return Scene(pairing, incoming, outgoing)


def staged(stage: Stage) -> Scene:
    """A delivery in a stage, by the records alone."""
    made = scene()
    pairing, link = made.pairing, made.outgoing
    if stage in {
        Stage.ANSWERED,
        Stage.ANSWERED_AWAY,
        Stage.ANSWERED_LOOSE,
        Stage.DECIDED,
    }:
        pairing.outcome = ACCEPTED
    if stage in {Stage.WAITING, Stage.DECIDED}:
        return made
    pairing.outgoing, pairing.outgoing_number, pairing.outgoing_tag = link, NUMBER, TAG
    if stage in {Stage.SENT, Stage.ANSWERED}:
        link.unsettled[NUMBER] = pairing
    elif stage in {Stage.IN_DOUBT, Stage.ANSWERED_AWAY}:
        pairing.outgoing_number = UNNUMBERED
        link.adrift[TAG] = pairing
    return made


def claimed(claim: Claim) -> Scene:
    """A delivery with a claim of its sender's, by the records alone."""
    made = scene()
    pairing, link = made.pairing, made.incoming
    if claim is Claim.CLAIMED:
        link.unsettled[pairing.number] = pairing
    elif claim is Claim.AWAY:
        pairing.number = UNNUMBERED
        link.adrift[pairing.delivery.tag] = pairing
    return made


INPUTS: dict[Input, Callable[[Scene], object]] = {
    Input.SEND: lambda on: life.send(on.outgoing, on.pairing, NUMBER, TAG),
    Input.PASS: lambda on: life.pass_settled(on.outgoing, on.pairing, NUMBER, TAG),
    Input.PLACE: lambda on: life.place(on.outgoing, on.pairing, TAG),
    Input.SUSPEND: lambda on: life.set_adrift(on.outgoing),
    Input.TAKE_UP: lambda on: life.take_up(on.outgoing, on.pairing, DeliveryNumber(8)),
    Input.TRACK: lambda on: life.track(on.outgoing, on.pairing),
    Input.ANSWER: lambda on: life.answer(on.pairing, ACCEPTED),
    Input.RECALL: lambda on: life.recall(on.pairing),
    Input.FORGET: lambda on: life.forget(on.outgoing, on.pairing),
    Input.END: lambda on: life.end_run(on.outgoing, [on.pairing]),
    Input.LOSE: lambda on: life.lose(on.pairing),
}

CLAIM_INPUTS: dict[ClaimInput, Callable[[Scene], object]] = {
    ClaimInput.ARRIVE: lambda on: life.arrive(on.pairing),
    ClaimInput.LEAVE: lambda on: life.abandon(on.pairing),
    ClaimInput.SUSPEND: lambda on: life.set_adrift(on.incoming),
    ClaimInput.RETURN: lambda on: life.back(on.incoming, on.pairing.delivery.tag),
    ClaimInput.KEEP: lambda on: life.keep(on.pairing),
}


@pytest.mark.parametrize("stage", Stage)
def test_each_stage_is_told_from_the_records(stage: Stage) -> None:
    assert stage_of(staged(stage).pairing) is stage


@pytest.mark.parametrize("claim", Claim)
def test_each_claim_is_told_from_the_records(claim: Claim) -> None:
    assert claim_of(claimed(claim).pairing) is claim


@pytest.mark.parametrize(("stage", "move"), STAGES, ids=str)
def test_what_the_table_lists_follows(stage: Stage, move: Input) -> None:
    made = staged(stage)
    INPUTS[move](made)
    assert stage_of(made.pairing) is STAGES[stage, move]


@pytest.mark.parametrize(("claim", "move"), CLAIMS, ids=str)
def test_what_the_table_of_claims_lists_follows(claim: Claim, move: ClaimInput) -> None:
    made = claimed(claim)
    CLAIM_INPUTS[move](made)
    assert claim_of(made.pairing) is CLAIMS[claim, move]


UNLISTED = sorted(set(itertools.product(Stage, Input)) - set(STAGES), key=str)


@pytest.mark.parametrize(("stage", "move"), UNLISTED, ids=str)
def test_the_watch_of_the_core_s_tests_refuses_what_the_table_lacks(
    stage: Stage, move: Input, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = staged(stage)
    seen = lives.watch(monkeypatch.setattr)
    unmoved = False
    try:
        unmoved = INPUTS[move](made) is False
    except (AssertionError, KeyError):
        return
    # a link that has nothing of the kind leaves it as it was
    assert unmoved or move is Input.SUSPEND
    assert not seen
    assert stage_of(made.pairing) is stage


def test_every_stage_is_reached_and_left() -> None:
    assert {stage for stage, _ in STAGES} == set(Stage)
    assert set(STAGES.values()) == set(Stage)
    assert {claim for claim, _ in CLAIMS} == set(Claim)
    assert set(CLAIMS.values()) == set(Claim)


def test_every_input_is_listed() -> None:
    assert {move for _, move in STAGES} == set(Input) == set(INPUTS)
    assert {move for _, move in CLAIMS} == set(ClaimInput) == set(CLAIM_INPUTS)


def test_a_run_that_ends_on_both_sides_is_on_neither() -> None:
    made = staged(Stage.SENT)
    life.arrive(made.pairing)
    life.settle_run(made.incoming, made.outgoing, [made.pairing])
    assert not made.incoming.unsettled
    assert not made.outgoing.unsettled


def test_what_a_sender_s_map_lacks_is_adrift_again_if_the_attach_was_not_confirmed() -> None:
    made = claimed(Claim.AWAY)
    made.incoming.unconfirmed = Unconfirmed(
        absent=life.take_absent(made.incoming, [DeliveryTag(b"theirs")])
    )
    assert claim_of(made.pairing) is Claim.UNCLAIMED
    life.keep_absent(made.incoming)
    assert claim_of(made.pairing) is Claim.AWAY
    assert made.incoming.unconfirmed is None


def test_what_was_resumed_by_another_delivery_of_its_tag_is_not_taken_up() -> None:
    made, other = staged(Stage.IN_DOUBT), staged(Stage.IN_DOUBT)
    made.outgoing.adrift[TAG] = other.pairing
    assert not life.take_up(made.outgoing, made.pairing, NUMBER)
    assert made.pairing.outgoing_number == UNNUMBERED


ONE, OTHER = (LinkId(1), 0), (LinkId(2), 0)


def test_a_receiver_that_refuses_for_good_stays_out_when_all_are_tried_again() -> None:
    pairing = scene().pairing
    life.give_back(pairing, ONE, RELEASED)
    life.give_back(pairing, OTHER, Modified(undeliverable_here=True))
    assert pairing.tried == {ONE, OTHER}
    life.try_again_from_first(pairing)
    assert pairing.tried == {OTHER}


def test_failed_attempts_are_counted_and_a_rejection_is_what_the_sender_hears() -> None:
    pairing, rejected = scene().pairing, Rejected()
    life.fail(pairing, MODIFIED_FAILED)
    life.give_back(pairing, ONE, MODIFIED_FAILED)
    heard = [(pairing.attempts, pairing.failure)]
    life.give_back(pairing, OTHER, rejected)
    heard.append((pairing.attempts, pairing.failure))
    assert heard == [(2, MODIFIED_FAILED), (2, rejected)]
