"""What a sender has heard stays so: the router is killed after every record that becomes durable.

``Stage`` makes one record durable after the other. After each it looks at what the senders have
heard by then, and at what a next life does that knows just the records so far: whoever comes back,
and whether the senders have acted upon what they heard or not, a delivery whose outcome was heard
goes to nobody, and its sender hears nothing else.
"""

import itertools
from collections.abc import Iterator
from typing import Any, Self

import attrs
import pytest

from router.core.homes import Homes
from router.core.listing import Filter
from router.core.resolve import Decision
from router.core.settings import CoreSettings
from router.journal.block_writer import SealedBlock
from router.model.condition import Condition
from router.model.identity import DeliveryNumber, DeliveryTag
from router.model.outcome import (
    ACCEPTED,
    MODIFIED_FAILED,
    MODIFIED_UNDELIVERABLE,
    REJECTED,
    RELEASED,
    DeliveryState,
    Modified,
    Rejected,
    is_outcome,
)
from router.model.terminus import ExpiryPolicy
from router.routes.route import Distribution, Endpoint, InDoubt, Route, Unroutable
from tests.support.journaled import EXACT, Journaled
from tests.support.play import Map, Peer, ReceiverEnd, SenderEnd, table

KEPT: dict[str, Any] = {"policy": ExpiryPolicy.CONNECTION_CLOSE, "seconds": 300}
MULTICAST = attrs.evolve(EXACT, distribution=Distribution.MULTICAST)
ANNOTATED = Modified(message_annotations={"x-opt-why": "no"})
REASON = Rejected(Condition("app:no", "not like this"))
FOR_SENDERS = (ANNOTATED, REJECTED, REASON)
GIVEN_BACK = (RELEASED, MODIFIED_FAILED, MODIFIED_UNDELIVERABLE, Modified(True, True), Modified())


class Stage(Journaled):
    """Crashes after every record.

    Attributes:
        sources: sending ends of all connections, oldest first.
        looked: how often an outcome was looked for after a crash.
        put_back: a route that the file lacks at the crash, and that a reload of the next life
            brings back; None: the file is what it was.
    """

    def __init__(
        self,
        *routes: Route | str,
        blocks: tuple[SealedBlock, ...] = (),
        settings: CoreSettings | None = None,
        containers: frozenset[str] | None = None,
        homes: Homes | None = None,
    ) -> None:
        super().__init__(
            *routes, blocks=blocks, settings=settings, containers=containers, homes=homes
        )
        self.sources: list[Source] = []
        self.looked = 0
        self.put_back: Route | None = None

    def flush(self) -> None:
        self.hand_in()
        for sequence in range(self.durable + 1, self.writer.next_sequence):
            self.carry_out(self.core.durable(sequence, self.now))
            self.look_back(sequence)

    def look_back(self, sequence: int) -> None:
        """Kills this life when ``sequence`` is its last record; looks at what the next one does."""
        told = {(source.container, tag): state for source in self.sources for tag, state in source}
        if not told:
            return
        for comes_first, has_acted in itertools.product((True, False, None), (True, False)):
            after = self.crash(keeps=sequence)
            if self.put_back is not None:
                self.put_route_back(after, self.put_back, has_acted=has_acted)
            if comes_first:
                self.come_back(after, told, has_acted=has_acted)
            end = after.connect("another").attach_receiver(credit=100, second=True)
            after.settle()
            if comes_first is False:
                self.come_back(after, told, has_acted=has_acted)
            after.wait(5000)
            after.settle()
            bodies = {source.bodies[tag] for source in self.sources for tag, _ in source}
            assert bodies.isdisjoint(end.payloads), f"sent after record {sequence}"
            self.looked += 1

    def put_route_back(self, after: Self, route: Route, *, has_acted: bool) -> None:
        """Refuses the senders as long as their address has no route, then gives it one again."""
        for source in self.sources:
            early = after.connect(source.container).attach_sender(
                name="out", second=True, unsettled=source.map(has_acted), **KEPT
            )
            assert early.refused is not None
            early.peer.lose()
        after.carry_out(after.core.configure(table(route), after.now))

    def settle(self) -> None:
        """Lets everything be durable, with no look back."""
        super().flush()

    def come_back(
        self,
        after: Self,
        told: dict[tuple[str, DeliveryTag], DeliveryState | None],
        *,
        has_acted: bool,
    ) -> None:
        """Lets the senders resume their links; they know what they were told."""
        for name, source in {source.container: source for source in self.sources}.items():
            if not source.resumes:
                continue
            back = after.connect(name).attach_sender(
                name="out", second=True, unsettled=source.map(has_acted), **KEPT
            )
            after.settle()
            assert back.attach is not None
            for tag, state in (back.attach.unsettled or {}).items():
                heard = told.get((name, tag))
                assert heard in (None, state), f"{heard} was heard, and {state} now"
            for tag, state in source.map(has_acted).items():
                if tag in (back.attach.unsettled or {}) and not is_outcome(state):
                    resumed = back.delivery(source.bodies[tag], tag, resume=True)
                    back.peer.happens(back.run([resumed]))
            after.settle()

    def resolve(self, tag: bytes, decision: Decision) -> int:
        """A person decides."""
        count, orders = self.core.resolve(DeliveryTag(tag), None, decision, self.now)
        self.carry_out(orders)
        return count

    def in_doubt(self) -> list[str]:
        """Lists what a person may decide."""
        page = self.core.lister.deliveries(Filter(in_doubt=True), 100, None, self.now)
        return [record.tag for record in page.deliveries]


@attrs.define(eq=False)
class Source:
    """A sender's end, and what it keeps; iterates over what it has heard."""

    end: SenderEnd
    resumes: bool = True
    tags: dict[DeliveryNumber, DeliveryTag] = attrs.field(factory=dict)
    bodies: dict[DeliveryTag, bytes] = attrs.field(factory=dict)
    concluded: set[DeliveryTag] = attrs.field(factory=set)

    @property
    def container(self) -> str:
        return self.end.peer.container

    def send(self, *bodies: bytes, **fields: Any) -> list[DeliveryNumber]:
        """Sends messages whose tags are their bodies."""
        deliveries = [self.end.delivery(body, body, **fields) for body in bodies]
        for delivery in deliveries:
            self.tags[delivery.number] = delivery.tag
            self.bodies[delivery.tag] = bytes(delivery.tag)
        self.end.peer.happens(self.end.run(deliveries))
        return [delivery.number for delivery in deliveries]

    def resume(self, *bodies: bytes) -> None:
        self.send(*bodies, resume=True)

    def settle(self, *numbers: DeliveryNumber) -> None:
        self.concluded.update(self.tags[number] for number in numbers)
        self.end.settle(*numbers)

    def __iter__(self) -> Iterator[tuple[DeliveryTag, DeliveryState | None]]:
        assert self.end.attach is not None
        for tag, state in (self.end.attach.unsettled or {}).items():
            if is_outcome(state):
                yield tag, state
        for number, told in self.end.told.items():
            state, settled = told[-1]
            if settled or is_outcome(state):
                yield self.tags[number], state

    def map(self, has_acted: bool) -> Map:
        """Gives what it considers unsettled; if it has acted, only what it has heard nothing of."""
        heard = dict(self)
        settled = {self.tags[n] for n, told in self.end.told.items() if told[-1][1]}
        return {
            tag: heard.get(tag)
            for tag in self.bodies
            if tag not in self.concluded | settled and not (has_acted and tag in heard)
        }


def attach(play: Stage, name: str = "west", **fields: Any) -> Source:
    asked = {"name": "out", "second": True, **KEPT, **fields}
    end = play.connect(name).attach_sender(**asked)
    source = Source(end, resumes=bool(asked["second"]))
    for older in play.sources:
        if older.container == name:
            source.bodies |= older.bodies
            source.concluded |= older.concluded
    play.sources.append(source)
    return source


def receiver(peer: Peer, **fields: Any) -> ReceiverEnd:
    asked = {"credit": 10, "name": "in", "second": True, **KEPT, **fields}
    return peer.attach_receiver(**asked)


def stage(
    route: Route = EXACT, receivers: int = 1, **fields: Any
) -> tuple[Stage, Source, list[ReceiverEnd]]:
    play = Stage(route)
    ends = [receiver(play.connect(f"east{number}")) for number in range(receivers)]
    return play, attach(play, **fields), ends


# What receivers say


@pytest.mark.parametrize("state", [*GIVEN_BACK, *FOR_SENDERS, ACCEPTED], ids=repr)
@pytest.mark.parametrize("settled", [True, False])
def test_what_a_receiver_said(state: DeliveryState, settled: bool) -> None:
    play, source, (end,) = stage()
    numbers = source.send(b"one", b"two")
    play.flush()
    end.update(*[each.number for each in end.received], state=state, settled=settled)
    play.flush()
    assert [source.end.outcome(number) for number in numbers] == [(state, False)] * 2
    assert play.looked
    source.settle(numbers[0])
    play.flush()


@pytest.mark.parametrize("state", GIVEN_BACK, ids=repr)
def test_what_several_receivers_said_one_after_the_other(state: DeliveryState) -> None:
    play, source, ends = stage(receivers=3)
    source.send(b"one")
    play.flush()
    for _ in ends:
        (end,) = [end for end in ends if end.unsettled]
        end.update(*end.unsettled, state=state)
        play.flush()
    assert play.looked


def test_what_was_given_back_once_and_accepted_then() -> None:
    play, source, ends = stage(receivers=2)
    (number,) = source.send(b"one")
    play.flush()
    for state in (RELEASED, ACCEPTED):
        (end,) = [end for end in ends if end.unsettled]
        end.update(*end.unsettled, state=state, settled=False)
        play.flush()
    assert source.end.outcome(number) == (ACCEPTED, False)
    source.settle(number)
    play.flush()


def test_runs_that_end_differently() -> None:
    play, source, (end,) = stage()
    source.send(*(b"%d" % number for number in range(6)))
    play.flush()
    first, second, third, fourth, *rest = [each.number for each in end.received]
    end.update(first, second, settled=False)
    end.update(third, state=RELEASED)
    end.update(fourth, state=REASON, settled=False)
    play.flush()
    end.update(*rest, state=MODIFIED_FAILED)
    play.flush()
    assert len(dict(source)) == 6


def test_a_receiver_that_settles_without_a_word() -> None:
    play, source, (end,) = stage()
    source.send(b"one")
    play.flush()
    end.update(*end.unsettled, state=None)
    play.flush()
    assert list(source) == [(b"one", None)]


def test_an_outcome_that_the_sender_cannot_be_told_is_told_as_the_nearest() -> None:
    play = Stage(EXACT)
    end = receiver(play.connect("east"))
    source = attach(play, outcomes=("amqp:accepted:list", "amqp:released:list"))
    (number,) = source.send(b"one")
    play.flush()
    end.update(*end.unsettled, state=REASON)
    play.flush()
    assert source.end.outcome(number) == (RELEASED, False)


@pytest.mark.parametrize("first", [RELEASED, REJECTED, ACCEPTED, MODIFIED_FAILED], ids=repr)
@pytest.mark.parametrize("second", [RELEASED, REASON, ACCEPTED, ANNOTATED], ids=repr)
def test_what_all_receivers_of_a_multicast_said(
    first: DeliveryState, second: DeliveryState
) -> None:
    play, source, ends = stage(MULTICAST, receivers=2)
    source.send(b"one", b"two")
    play.flush()
    ends[0].update(*ends[0].unsettled, state=first, settled=False)
    play.flush()
    ends[1].update(*ends[1].unsettled, state=second)
    play.flush()
    assert len(dict(source)) == 2


def test_a_multicast_of_which_one_receiver_is_lost() -> None:
    play, source, ends = stage(attrs.evolve(MULTICAST, in_doubt=InDoubt.RESEND), receivers=2)
    source.send(b"one")
    play.flush()
    ends[0].update(*ends[0].unsettled, state=RELEASED)
    ends[1].peer.lose()
    play.wait(400)
    play.flush()
    assert dict(source)


# What the router says by itself


@pytest.mark.parametrize("first", [None, RELEASED, MODIFIED_UNDELIVERABLE], ids=repr)
def test_what_has_expired(first: DeliveryState | None) -> None:
    play, source, (end,) = stage()
    other = receiver(play.connect("north"), name="other", credit=0)
    if first is None:
        end.grant(0)
    source.send(b"one", ttl_milliseconds=2000)
    play.flush()
    if first is not None:
        end.update(*end.unsettled, state=first)
    play.wait(60)
    other.grant(1)
    play.flush()
    assert dict(source) == {b"one": MODIFIED_UNDELIVERABLE}


@pytest.mark.parametrize("policy", [Unroutable.RELEASE, Unroutable.REJECT], ids=str)
def test_what_nobody_receives(policy: Unroutable) -> None:
    play = Stage(attrs.evolve(EXACT, unroutable=policy))
    source = attach(play)
    end = receiver(play.connect("east"), credit=1)
    source.send(b"one", b"two")
    play.flush()
    end.detach()
    play.wait(400)
    play.flush()
    assert dict(source)


@pytest.mark.parametrize("state", [RELEASED, REJECTED, ACCEPTED], ids=repr)
def test_what_became_of_dead_letters(state: DeliveryState) -> None:
    letters = Endpoint("cellar", "letters")
    route = attrs.evolve(EXACT, unroutable=Unroutable.DEAD_LETTER, dead_letter=letters)
    play = Stage(route)
    source = attach(play)
    cellar = play.dial("cellar")
    source.end.credit = 2
    source.send(b"one", b"two")
    end = cellar.answer_receiver("letters", credit=5)
    play.flush()
    assert end.payloads == [b"one", b"two"]
    for _ in range(20):
        if end.unsettled:
            end.update(*end.unsettled, state=state)
            end.grant(5)
            play.flush()
    assert dict(source) == {b"one": state, b"two": state} or state is RELEASED


@pytest.mark.parametrize("state", [RELEASED, MODIFIED_FAILED], ids=repr)
def test_what_was_tried_too_often(state: DeliveryState) -> None:
    play = Stage(EXACT, settings=CoreSettings(router_id="dc1", attempts=3))
    source = attach(play)
    ends = [receiver(play.connect(f"east{number}")) for number in range(5)]
    source.send(b"one")
    for _ in ends:
        play.flush()
        for end in ends:
            if end.unsettled:
                end.update(*end.unsettled, state=state)
    play.flush()
    assert dict(source)


def test_what_was_lost_with_its_receiver() -> None:
    play, source, (end,) = stage(attrs.evolve(EXACT, in_doubt=InDoubt.RESEND))
    source.send(b"one")
    play.flush()
    end.peer.lose()
    play.wait(400)
    play.flush()
    assert not dict(source)
    late = play.connect("late").attach_receiver("orders", credit=1)
    play.flush()
    late.update(*late.unsettled, state=Modified(delivery_failed=True))
    play.flush()
    assert dict(source)


@pytest.mark.parametrize("decision", [Decision.ACCEPT, Decision.DISCARD], ids=str)
@pytest.mark.parametrize("is_away", [True, False])
def test_what_a_person_decided(decision: Decision, is_away: bool) -> None:
    play, source, (end,) = stage(attrs.evolve(EXACT, in_doubt=InDoubt.HOLD))
    source.send(b"one")
    play.flush()
    end.peer.lose()
    play.wait(400)
    if is_away:
        source.end.peer.lose()
    assert play.resolve(b"one", decision) == 1
    play.flush()
    if is_away:
        source = attach(play, unsettled=source.map(False))
        source.resume(b"one")
        play.flush()
    assert dict(source)


def test_a_person_cannot_send_again_what_was_accepted() -> None:
    play, source, (end,) = stage(attrs.evolve(EXACT, in_doubt=InDoubt.HOLD))
    (number,) = source.send(b"one")
    play.flush()
    end.update(*end.unsettled, settled=False)
    play.flush()
    end.peer.lose()
    assert source.end.outcome(number) == (ACCEPTED, False)
    assert play.in_doubt() == []
    assert play.resolve(b"one", Decision.RESEND) == 0
    other = receiver(play.connect("north"), name="other")
    play.flush()
    assert other.payloads == []


# Senders that are away


@pytest.mark.parametrize("state", [*GIVEN_BACK, *FOR_SENDERS, ACCEPTED], ids=repr)
@pytest.mark.parametrize("is_early", [True, False])
def test_what_a_sender_finds_in_our_map_when_it_comes_back(
    state: DeliveryState, is_early: bool
) -> None:
    play, source, (end,) = stage()
    source.send(b"one", b"two")
    play.flush()
    source.end.peer.lose()
    end.update(*end.unsettled, state=state, settled=False)
    if not is_early:
        play.flush()
    source = attach(play, unsettled=source.map(False))
    play.look_back(play.durable)
    source.resume(b"one")
    play.flush()
    source.resume(b"two")
    play.flush()
    assert dict(source) == {b"one": state, b"two": state}


def test_what_a_dialed_container_finds_in_our_map() -> None:
    route = attrs.evolve(EXACT, from_=Endpoint("west"), to=(Endpoint("east"),))
    play = Stage(route)
    end = play.dial("east").answer_receiver("orders", credit=5)
    first = play.dial("west").answer_sender("orders")
    source = Source(first)
    source.send(b"one")
    play.flush()
    first.peer.lose()
    end.update(*end.unsettled, state=ACCEPTED, settled=False)
    (asked,) = play.dial("west").asked.values()
    assert asked.unsettled is not None
    assert not is_outcome(asked.unsettled[DeliveryTag(b"one")])
    play.settle()
    (asked,) = play.dial("west").asked.values()
    assert asked.unsettled == {b"one": ACCEPTED}


def test_what_a_receiver_that_comes_back_tells_in_its_map() -> None:
    for state in (*GIVEN_BACK, *FOR_SENDERS, ACCEPTED):
        play, source, (end,) = stage()
        source.send(b"one")
        play.flush()
        tag = end.last.tag
        end.peer.lose()
        receiver(play.connect("east0"), unsettled={tag: state})
        play.flush()
        assert dict(source) == {b"one": state}


def test_what_expired_while_its_sender_was_away() -> None:
    play = Stage(EXACT)
    source = attach(play)
    source.end.credit = 1
    receiver(play.connect("east"), credit=0)
    source.send(b"one", ttl_milliseconds=2000)
    play.flush()
    source.end.peer.lose()
    play.wait(3)
    source = attach(play, unsettled=source.map(False))
    play.look_back(play.durable)
    play.flush()
    source.resume(b"one")
    play.flush()
    assert dict(source) == {b"one": MODIFIED_UNDELIVERABLE}


# Senders that settle first


@pytest.mark.parametrize("state", [*GIVEN_BACK, *FOR_SENDERS, ACCEPTED, None], ids=repr)
@pytest.mark.parametrize("body", [b"id=1 one", b"one"])
def test_what_a_sender_that_settles_first_was_told(
    state: DeliveryState | None, body: bytes
) -> None:
    play, source, (end,) = stage(second=False)
    (number,) = source.send(body)
    play.flush()
    end.update(*end.unsettled, state=state)
    play.flush()
    assert source.end.outcome(number) == (state, True)


@pytest.mark.parametrize("state", [ACCEPTED, REJECTED, None], ids=repr)
@pytest.mark.parametrize("route", [EXACT, MULTICAST], ids=["one", "all"])
@pytest.mark.parametrize("crashes", [False, True])
def test_what_came_while_a_sender_that_redelivers_was_away(
    state: DeliveryState | None, route: Route, crashes: bool
) -> None:
    play, source, ends = stage(route, receivers=2, second=False)
    source.send(b"id=1 one")
    play.flush()
    source.end.peer.lose()
    for end in ends:
        if end.unsettled:
            end.update(*end.unsettled, state=state)
    play.flush()
    if crashes:
        play = play.crash()
        ends = [receiver(play.connect("north"))]
    before = [len(end.received) for end in ends]
    source = attach(play, second=False)
    (number,) = source.send(b"id=1 one")
    play.flush()
    assert [len(end.received) for end in ends] == before
    outcome = source.end.outcome(number)
    assert outcome in {(state, True), (ACCEPTED if state is None else state, True)}


@pytest.mark.parametrize("state", [RELEASED, REJECTED, ACCEPTED], ids=repr)
def test_what_a_sender_was_told_of_a_delivery_that_it_settles_first(state: DeliveryState) -> None:
    play, source, (end,) = stage()
    (number,) = source.send(b"one", settles_first=True)
    play.flush()
    end.update(*end.unsettled, state=state)
    play.flush()
    assert source.end.outcome(number) == (state, True)


@pytest.mark.parametrize("state", [RELEASED, REJECTED, ACCEPTED], ids=repr)
def test_a_guest_whose_engine_forgets(state: DeliveryState) -> None:
    play = Stage(EXACT)
    end = receiver(play.connect("east"))
    peer = play.connect("west")
    play.core._registry.connections[peer.id].is_volatile = True
    source = Source(peer.attach_sender(name="out", second=True, unsettled={}, **KEPT))
    play.sources.append(source)
    (number,) = source.send(b"id=1 one")
    play.flush()
    end.update(*end.unsettled, state=state)
    play.flush()
    assert source.end.outcome(number) == (state, False)
    source.settle(number)
    play.flush()


# In parts


def test_a_delivery_in_parts_of_which_not_all_is_kept() -> None:
    settings = CoreSettings(router_id="dc1", keep_octets=4, part_octets=4)
    play = Stage(EXACT, settings=settings)
    source = attach(play)
    end = receiver(play.connect("east"))
    (number,) = source.send(b"first", more=True)
    play.flush()
    source.end.go_on(b"second")
    play.flush()
    end.peer.lose()
    source.end.go_on(b"third", more=False)
    play.flush()
    assert source.end.outcome(number) == (MODIFIED_FAILED, False)
    source.settle(number)
    play.flush()
    play.wait(400)
    play.flush()
    assert not play.remembered()


# Reloads


@pytest.mark.parametrize("state", [RELEASED, MODIFIED_FAILED, REASON, ACCEPTED], ids=repr)
def test_what_became_of_deliveries_whose_route_was_removed(state: DeliveryState) -> None:
    play = Stage(EXACT, "elsewhere")
    source = attach(play)
    end = receiver(play.connect("east"), credit=1)
    source.send(b"one", b"two")
    play.flush()
    end.update(*end.unsettled, state=state)
    play.routes, play.put_back = ("elsewhere",), EXACT
    play.carry_out(play.core.configure(table("elsewhere"), play.now))
    play.flush()
    play.wait(400)
    play.flush()
    assert play.looked
    assert dict(source) == {b"one": state}
