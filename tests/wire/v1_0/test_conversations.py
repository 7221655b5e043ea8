"""Two engines back to back, driven at random: what was sent must arrive, once, in order, as sent.

The model is as simple as can be. Per link and direction it keeps what the sending core has ordered
and what the receiving core has been told; at the end, when every window is open and every octet has
been carried, the two must be the same, and so must credit and settlement on both sides. Ids begin
near 2^32, so that everything wraps on the way.
"""

from collections.abc import Callable, Iterable
from itertools import count
from random import Random
from typing import Any

import attrs
import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from router.model.commands import (
    AbortDelivery,
    AttachLink,
    CloseConnection,
    ContinueDelivery,
    DetachLink,
    GrantCredit,
    HoldWindow,
    RefuseLink,
    ReturnCredit,
    SendDeliveries,
    UpdateDeliveries,
)
from router.model.condition import Condition
from router.model.delivery import OutgoingDelivery
from router.model.events import (
    ConnectionClosed,
    ConnectionOpened,
    CreditGranted,
    CreditReturned,
    DeliveriesAdopted,
    DeliveriesReceived,
    DeliveriesUpdated,
    DeliveryAborted,
    DeliveryContinued,
    Event,
    LinkAttached,
    LinkDetached,
    OutputPending,
)
from router.model.identity import DeliveryNumber, DeliveryTag, LinkId, LinkName
from router.model.outcome import (
    ACCEPTED,
    MODIFIED_FAILED,
    RELEASED,
    DeliveryState,
    Received,
    Rejected,
)
from router.model.terminus import ReceiverSettleMode, Role, Source, Target
from router.wire.engine import EngineSettings
from router.wire.v1_0.engine import Engine10
from tests.support.accepting import accepting

WRAP = 1 << 32
picks = st.integers(0, 9)
STATES: tuple[DeliveryState | None, ...] = (
    ACCEPTED,
    RELEASED,
    MODIFIED_FAILED,
    Rejected(Condition("x:no", "because")),
    Received(0, 3),
    None,
)


@attrs.define(eq=False)
class Sent:
    """A delivery as the sending core knows it.

    Attributes:
        told: what it has been told of the receiver's state, last.
        is_settled_here: the sender has settled first, so the receiver's next word may cross that.
    """

    number: DeliveryNumber
    payload: bytes
    settled: bool
    is_open: bool = False
    is_aborted: bool = False
    is_settled: bool = False
    is_settled_here: bool = False
    told: DeliveryState | None = None


@attrs.define(eq=False)
class Got:
    """A delivery as the receiving core knows it."""

    number: DeliveryNumber
    tag: bytes
    payload: bytes
    settled: bool
    is_open: bool
    is_aborted: bool = False
    is_settled: bool = False
    said: DeliveryState | None = None


@attrs.define(eq=False)
class End:
    """One end of a link.

    Attributes:
        credit: what the core believes that may still be sent or come.
    """

    side: "Side"
    link: LinkId
    name: str
    role: Role
    is_second: bool
    is_attached: bool = False
    credit: int = 0
    is_draining: bool = False
    sent: list[Sent] = attrs.field(factory=list)
    got: list[Got] = attrs.field(factory=list)

    @property
    def peer(self) -> "End | None":
        """The other end, once there is one."""
        return self.side.other.ends.get((self.name, self.role.other))


@attrs.define(eq=False)
class Side:
    """One engine and its core."""

    engine: Engine10
    ends: dict[tuple[str, Role], End] = attrs.field(factory=dict)
    requests: list[LinkAttached] = attrs.field(factory=list)
    suspended: set[LinkId] = attrs.field(factory=set)
    closed: ConnectionClosed | None = None
    numbers: Any = attrs.field(factory=lambda: count(1))

    @property
    def other(self) -> "Side":
        """The peer's side."""
        assert self._other is not None
        return self._other

    _other: "Side | None" = attrs.field(init=False, default=None)

    def pair(self, other: "Side") -> None:
        """Makes two sides know each other."""
        self._other = other
        other._other = self

    def end(self, link: LinkId) -> End | None:
        """Finds an end by its link."""
        return next((each for each in self.ends.values() if each.link == link), None)

    # --- events ---------------------------------------------------------------------------------

    def hear(self, events: Iterable[Event]) -> None:
        """Takes events as a core would, checking each against the model."""
        for event in events:
            assert self.closed is None, f"{event} behind the end"
            self._hear(event)

    def _hear(self, event: Event) -> None:
        match event:
            case ConnectionOpened() | OutputPending():
                pass
            case ConnectionClosed():
                self.closed = event
            case LinkAttached(is_answer=False):
                self.requests.append(event)
            case LinkAttached():
                end = self.end(event.link)
                assert end is not None
                assert end.name == event.name
                if (event.target if end.role is Role.SENDER else event.source) is not None:
                    end.is_attached = True
            case LinkDetached(link=link, closed=closed):
                end = self.end(link)
                if not closed:
                    self.suspended.add(link)
                if end is not None:
                    del self.ends[end.name, end.role]
                self.requests = [each for each in self.requests if each.link != link]
            case CreditGranted(link=link, credit=credit, drain=drain):
                end = self.end(link)
                if end is not None:
                    end.credit = credit
                    end.is_draining = drain
            case CreditReturned(link=link, credit=credit):
                end = self._known(link)
                end.credit = credit
                end.is_draining = False
            case DeliveriesReceived() | DeliveryContinued() | DeliveryAborted():
                self._receive(event)
            case DeliveriesUpdated():
                self._update(event)
            case DeliveriesAdopted():
                raise AssertionError("there is no express lane here")

    def _known(self, link: LinkId) -> End:
        end = self.end(link)
        assert end is not None, link
        return end

    def _receive(self, event: DeliveriesReceived | DeliveryContinued | DeliveryAborted) -> None:
        end = self._known(event.link)
        if isinstance(event, DeliveriesReceived):
            for each in event.deliveries:
                assert not (end.got and end.got[-1].is_open)
                end.got.append(Got(each.number, each.tag, each.payload, each.settled, each.more))
                assert each.settles_second is (end.is_second and not each.settled)
                end.credit -= 1
                assert end.credit >= 0
            return
        last = end.got[-1]
        assert last.number == event.number
        assert last.is_open
        if isinstance(event, DeliveryAborted):
            last.is_open, last.is_aborted = False, True
        else:
            last.payload += event.payload
            last.is_open = event.more

    def _update(self, event: DeliveriesUpdated) -> None:
        if event.link in self.suspended:
            return  # detached, not closed: its deliveries can still be settled (§2.7.6)
        end = self._known(event.link)
        assert not event.settled or len(set(event.numbers)) == len(event.numbers)
        pool: list[Any] = [*end.sent, *end.got]
        known = {each.number: each for each in pool}
        for number in event.numbers:
            each = known[number]
            assert not each.is_settled
            if isinstance(each, Sent):
                each.told = event.state
            each.is_settled = event.settled


class Conversation(RuleBasedStateMachine):
    """Commands and octets at random."""

    @initialize(
        start=st.sampled_from([0, WRAP - 1, WRAP - 30, 250]),
        window=st.sampled_from([1, 2, 7, 2048]),
        frame=st.sampled_from([512, 600, 65536]),
        roles=st.lists(st.tuples(st.integers(0, 1), st.sampled_from(Role)), min_size=1, max_size=4),
    )
    def open(self, start: int, window: int, frame: int, roles: list[tuple[int, Role]]) -> None:
        ids = map(LinkId, count(1))
        base = EngineSettings(
            is_server=False,
            container="left",
            link_ids=ids,
            session_window_frames=window,
            max_frame_octets=frame,
        )
        other = attrs.evolve(base, is_server=True, container="right", link_ids=ids)
        self.sides = (
            Side(Engine10(base, initial_id=start)),
            Side(Engine10(other, initial_id=(start + 5) % WRAP)),
        )
        self.sides[0].pair(self.sides[1])
        self.ids = ids
        self.names = count(1)
        self.carry_all()
        for which, role in roles:
            self.attach(which, role, is_second=False)
            self.carry_all()
            self.answer(0, is_refused=False)
            self.carry_all()
        for side in self.sides:
            for end in side.ends.values():
                self.grant_to(end, 10, drain=False)
        self.carry_all()

    def pick(self, choice: int, role: Role | None = None) -> End | None:
        """Picks one of the links that are there, of one role or of both."""
        ends = [
            end
            for side in self.sides
            for end in side.ends.values()
            if end.is_attached and role in (None, end.role)
        ]
        return ends[choice % len(ends)] if ends else None

    # --- octets -----------------------------------------------------------------------------------

    def carry(self, side: Side, most: int) -> bool:
        """Carries octets from one side to the other."""
        shown = side.engine.data_to_send()
        size = min(len(shown), most)
        side.other.hear(side.other.engine.receive_data(shown[:size], 0.0))
        side.engine.bytes_sent(size)
        self.collect()
        return size > 0

    def collect(self) -> None:
        """Takes events that commands have brought about."""
        for side in self.sides:
            deadline = side.engine.deadline
            if deadline is not None and deadline <= 0.0:
                side.hear(side.engine.handle_deadline(0.0))

    def carry_all(self) -> None:
        is_moving = True
        while is_moving:
            moved = [self.carry(side, 1 << 30) for side in self.sides]
            is_moving = any(moved)

    @rule(side=st.integers(0, 1), most=st.sampled_from([1, 13, 100, 1000, 1 << 20]))
    def carry_some(self, side: int, most: int) -> None:
        self.carry(self.sides[side], most)

    # --- links ------------------------------------------------------------------------------------

    @rule(side=st.integers(0, 1), role=st.sampled_from(Role), is_second=st.booleans())
    def attach(self, side: int, role: Role, is_second: bool) -> None:
        if sum(len(each.ends) for each in self.sides) > 8:
            return
        here = self.sides[side]
        end = End(here, next(self.ids), f"link-{next(self.names)}", role, is_second)
        here.ends[end.name, role] = end
        here.engine.execute(
            AttachLink(
                link=end.link,
                name=LinkName(end.name),
                role=role,
                source=Source(address="from"),
                target=Target(address="to"),
                receiver_settle_mode=ReceiverSettleMode(int(is_second)),
            )
        )

    @precondition(lambda self: any(side.requests for side in self.sides))
    @rule(side=st.integers(0, 1), is_refused=st.sampled_from([False] * 5 + [True]))
    def answer(self, side: int, is_refused: bool) -> None:
        here = self.sides[side]
        if not here.requests:
            here = here.other
        event = here.requests.pop(0)
        if is_refused:
            here.engine.execute(RefuseLink(event.link, Condition("x:no")))
            return
        is_second = event.receiver_settle_mode is ReceiverSettleMode.SECOND
        end = End(here, event.link, event.name, event.role, is_second, is_attached=True)
        here.ends[end.name, end.role] = end
        here.engine.execute(
            accepting(
                event,
                receiver_settle_mode=event.receiver_settle_mode,
            )
        )

    @rule(choice=picks, closed=st.booleans())
    def detach(self, choice: int, closed: bool) -> None:
        end = self.pick(choice)
        if end is not None and sum(len(side.ends) for side in self.sides) > 6:
            end.side.engine.execute(DetachLink(end.link, closed))
            self.collect()

    # --- credit and windows -----------------------------------------------------------------------

    @rule(choice=picks, credit=st.integers(0, 12), drain=st.sampled_from([False, False, True]))
    def grant(self, choice: int, credit: int, drain: bool) -> None:
        end = self.pick(choice, Role.RECEIVER)
        if end is not None and not end.is_draining:
            self.grant_to(end, credit, drain)

    def grant_to(self, end: End, credit: int, drain: bool) -> None:
        if end.role is Role.SENDER:
            return
        credit = max(credit, end.credit)  # lowering is only a wish, which a model cannot bound
        end.side.engine.execute(GrantCredit(end.link, credit, drain))
        end.credit = credit
        end.is_draining = drain

    @rule(choice=picks)
    def give_back(self, choice: int) -> None:
        end = self.pick(choice, Role.SENDER)
        if end is not None and end.is_draining:
            end.side.engine.execute(ReturnCredit(end.link))
            end.is_draining = False
            end.credit = 0

    @rule(choice=picks, held=st.booleans())
    def hold(self, choice: int, held: bool) -> None:
        end = self.pick(choice, Role.RECEIVER)
        if end is not None:
            end.side.engine.execute(HoldWindow(end.link, held))

    # --- deliveries -------------------------------------------------------------------------------

    @rule(
        choice=picks,
        sizes=st.lists(st.sampled_from([0, 1, 100, 800, 2500]), min_size=1, max_size=8),
        settled=st.booleans(),
        more=st.sampled_from([False, False, True]),
    )
    def send(self, choice: int, sizes: list[int], settled: bool, more: bool) -> None:
        end = self.pick(choice, Role.SENDER)
        if end is None or (end.sent and end.sent[-1].is_open):
            return
        run = []
        for size in sizes[: end.credit]:
            number = DeliveryNumber(next(end.side.numbers))
            payload = b"\x00\x53\x75\xb0" + size.to_bytes(4, "big") + bytes([number % 256]) * size
            run.append(Sent(number, payload, settled))
        if not run:
            return
        end.credit -= len(run)
        run[-1].is_open = more
        end.sent += run
        end.side.engine.execute(
            SendDeliveries(
                end.link,
                [
                    OutgoingDelivery(
                        each.number,
                        DeliveryTag(b"%d" % each.number),
                        each.payload,
                        settled=settled,
                        more=each.is_open,
                    )
                    for each in run
                ],
            )
        )

    @rule(choice=picks, size=st.sampled_from([0, 10, 1500]), more=st.booleans())
    def proceed(self, choice: int, size: int, more: bool) -> None:
        end = self.pick(choice, Role.SENDER)
        if end is not None and end.sent and end.sent[-1].is_open:
            last = end.sent[-1]
            part = b"z" * size
            last.payload += part
            last.is_open = more
            end.side.engine.execute(ContinueDelivery(end.link, last.number, part, more))

    @rule(choice=picks)
    def abort(self, choice: int) -> None:
        end = self.pick(choice, Role.SENDER)
        if end is not None and end.sent and end.sent[-1].is_open:
            last = end.sent[-1]
            last.is_open, last.is_aborted = False, True
            end.side.engine.execute(AbortDelivery(end.link, last.number))

    @rule(
        choice=picks,
        dice=st.randoms(use_true_random=False),
        state=st.sampled_from(STATES),
        settled=st.booleans(),
    )
    def update(self, choice: int, dice: Random, state: DeliveryState | None, settled: bool) -> None:
        end = self.pick(choice)
        if end is None:
            return
        settled = (settled and not end.is_second) or end.role is Role.SENDER
        pool: list[Any] = [*end.got, *end.sent]
        free = [
            each
            for each in pool
            if not (each.settled or each.is_settled or each.is_open or each.is_aborted)
        ]
        chosen = [each for each in free if dice.random() < 0.5]
        if end.role is Role.SENDER:
            # Settling what the receiver has said nothing of may cross its word; that is legal,
            # but then neither side can tell in a model what the other has heard.
            chosen = [each for each in chosen if each.told is not None]
            state = None
        for each in chosen:
            if isinstance(each, Got):
                each.said = state
            else:
                each.is_settled_here = True
            each.is_settled = settled
        numbers = [each.number for each in chosen]
        dice.shuffle(numbers)
        end.side.engine.execute(UpdateDeliveries(end.link, numbers, state, settled))

    # --- what must hold ---------------------------------------------------------------------------

    @invariant()
    def nobody_was_thrown_out(self) -> None:
        for side in getattr(self, "sides", ()):
            assert side.closed is None, side.closed

    @invariant()
    def what_arrived_is_a_beginning_of_what_was_sent(self) -> None:
        for side in getattr(self, "sides", ()):
            for end in side.ends.values():
                peer = end.peer
                if end.role is Role.RECEIVER and peer is not None:
                    self.compare(peer, end)

    def compare(self, sender: End, receiver: End) -> None:
        sent = [each for each in sender.sent if not each.is_aborted]
        got = {each.tag: each for each in receiver.got}
        order = [each.tag for each in receiver.got if not each.is_aborted]
        assert [b"%d" % each.number for each in sent if b"%d" % each.number in order] == [
            tag for tag in order if int(tag) in {each.number for each in sent}
        ]
        for each in sent:
            mine = got.get(b"%d" % each.number)
            if mine is not None:
                assert each.payload.startswith(mine.payload)
                assert mine.settled is each.settled

    def teardown(self) -> None:
        if not hasattr(self, "sides"):
            return
        for side in self.sides:
            for end in side.ends.values():
                side.engine.execute(HoldWindow(end.link, False))
        self.carry_all()
        for side in self.sides:
            for end in list(side.ends.values()):
                peer = end.peer
                if end.role is Role.RECEIVER and end.is_attached and peer and peer.is_attached:
                    self.check_the_end(peer, end)
        self.sides[0].engine.execute(CloseConnection())
        self.carry_all()
        assert [side.closed for side in self.sides] == [
            ConnectionClosed(None, by_peer=False),
            ConnectionClosed(None, by_peer=True),
        ]
        assert all(side.engine.finished for side in self.sides)

    def check_the_end(self, sender: End, receiver: End) -> None:
        assert not sender.side.engine._endpoints.waiting_octets
        arrived = [(each.tag, each.payload) for each in receiver.got if not each.is_aborted]
        whole = [(b"%d" % each.number, each.payload) for each in sender.sent if not each.is_aborted]
        assert arrived == whole
        if whole and not sender.sent[-1].is_aborted:
            assert receiver.got[-1].is_open is sender.sent[-1].is_open
        if not (sender.is_draining or receiver.is_draining):
            assert sender.credit == receiver.credit, (sender.link, receiver.link)
        theirs = {each.tag: each for each in receiver.got}
        for each in sender.sent:
            mine = theirs.get(b"%d" % each.number)
            if mine is None or each.settled or each.is_aborted:
                continue
            assert each.is_settled is mine.is_settled
            if mine.said is not None and not each.is_settled_here:
                assert each.told == mine.said


TestConversation = Conversation.TestCase
TestConversation.settings = hypothesis_settings(
    max_examples=60, stateful_step_count=60, deadline=None
)


def drive(seed: int, steps: int) -> Conversation:
    """Drives a conversation by dice alone: denser than what shrinks well."""
    dice = Random(seed)
    play = Conversation()
    start, window = dice.choice([0, WRAP - 1, WRAP - 200, 250]), dice.choice([1, 2, 7, 2048])
    roles = [(dice.randrange(2), dice.choice(list(Role))) for _ in range(dice.randrange(1, 6))]
    play.open(start=start, window=window, frame=dice.choice([512, 600, 65536]), roles=roles)
    flags = [False, False, False, True]
    moves: list[tuple[int, Callable[[], object]]] = [
        (8, lambda: play.carry_some(dice.randrange(2), dice.choice([1, 13, 100, 1000, 1 << 20]))),
        (1, lambda: play.attach(dice.randrange(2), dice.choice(list(Role)), dice.choice(flags))),
        (2, lambda: play.answer(0, dice.choice(flags))),
        (1, lambda: play.detach(dice.randrange(9), dice.choice(flags))),
        (4, lambda: play.grant(dice.randrange(9), dice.randrange(13), dice.choice(flags))),
        (3, lambda: play.give_back(dice.randrange(9))),
        (1, lambda: play.hold(dice.randrange(9), dice.choice(flags))),
        (6, lambda: play.send(dice.randrange(9), sizes(), dice.choice(flags), dice.choice(flags))),
        (3, lambda: play.proceed(dice.randrange(9), dice.choice([0, 9, 1500]), dice.choice(flags))),
        (1, lambda: play.abort(dice.randrange(9))),
        (6, lambda: play.update(dice.randrange(9), dice, dice.choice(STATES), dice.random() < 0.6)),
    ]

    def sizes() -> list[int]:
        return [dice.choice([0, 1, 100, 800, 2500]) for _ in range(dice.randrange(1, 9))]

    weights = [weight for weight, _ in moves]
    for _ in range(steps):
        if not any(side.requests for side in play.sides) or dice.random() < 0.8:
            _, move = dice.choices(moves[:2] + moves[3:], weights[:2] + weights[3:])[0]
        else:
            move = moves[2][1]
        move()
        play.nobody_was_thrown_out()
        play.what_arrived_is_a_beginning_of_what_was_sent()
    play.teardown()
    return play


@pytest.mark.parametrize("seed", range(40))
def test_dice_do_not_lose_or_double_anything(seed: int) -> None:
    drive(seed, 150)


@pytest.mark.slow
def test_many_dice_do_not_either() -> None:
    for seed in range(1000, 3000):
        drive(seed, 200)
