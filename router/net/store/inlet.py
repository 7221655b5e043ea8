"""What is known of one link on which the store sends messages, and of all of them together."""

import bisect
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, Literal, NamedTuple

import attrs

from router.journal.store.looking import Sentence
from router.journal.store.place import Place
from router.journal.store.queues import ELDER, RouteKey
from router.journal.store.reading import StoredMessage
from router.journal.store.runs import MessagesRead
from router.model.identity import DeliveryNumber, DeliveryTag, LinkId
from router.model.outcome import DeliveryState
from router.model.serial import MASK
from router.wire.v1_0.state import LinkState


class Name(NamedTuple):
    """Names an inlet."""

    route: RouteKey
    address: bytes
    is_dead: bool

    @property
    def twin(self) -> "Name":
        """Names the inlet of the dead letters, or that whose dead letters these are."""
        return Name(self.route, self.address, not self.is_dead)


class AllUnsettled(Mapping[DeliveryTag, DeliveryState | None]):
    """The unsettled map of a sender that does not know what it has sent: it has every tag."""

    def __getitem__(self, tag: DeliveryTag) -> None:
        return None

    def __contains__(self, tag: object) -> bool:
        return True

    def __iter__(self) -> Iterator[DeliveryTag]:
        return iter(())

    def __len__(self) -> int:
        return 1  # it is not empty, whoever asks


@attrs.frozen
class Delays:
    """What of a route does not go on by itself just now.

    Attributes:
        dead: dead letters that wait for their target.
        resting: addresses that rest because their target returned or refused something.
        failures: how often one of these has, at most, since it accepted something.
        rests_until: when the first one of them goes on; 0: none rests.
    """

    dead: int = 0
    resting: int = 0
    failures: int = 0
    rests_until: float = 0.0


NO_DELAYS: Final = Delays()


@attrs.define(eq=False)
class SentRun:
    """Messages of a run that the lane has.

    Attributes:
        inlet: that they were sent on.
        read: the run.
        first: number of its first message.
        count: how many were sent.
        left: how many of them have no outcome.
    """

    inlet: "Inlet"
    read: MessagesRead
    first: int
    count: int
    left: int = attrs.field(init=False)
    _begin: int = attrs.field(default=0, init=False)  # all before it have an outcome
    _marks: bytearray | None = attrs.field(default=None, init=False)  # others that have

    def __attrs_post_init__(self) -> None:
        self.left = self.count

    def position(self, number: int) -> int | None:
        """Returns which of its messages has a number; None: none has."""
        position = (number - self.first) & MASK
        return position if position < self.count else None

    def end(self, begin: int, end: int) -> list[tuple[int, int]]:
        """Records the outcome of messages; returns those, as ranges, that had none."""
        if self._marks is None and begin <= self._begin < end:
            begin, self._begin = self._begin, end
            self.left -= end - begin
            return [(begin, end)]
        if self._marks is None:
            self._marks = bytearray(self.count)
            self._marks[: self._begin] = b"\1" * self._begin
        found = [each for each in range(begin, end) if not self._marks[each]]
        for each in found:
            self._marks[each] = 1
        self.left -= len(found)
        return [(each, each + 1) for each in found]

    def rest(self) -> list[StoredMessage]:
        """Returns the messages without an outcome, all of which have one now."""
        return [
            message
            for begin, end in self.end(0, self.count)
            for message in self.read.messages[begin:end]
        ]


@attrs.define(eq=False)
class Inlet:
    """A link on which messages are sent.

    Attributes:
        name: of the inlet.
        link: the core's name for it.
        is_attached: the core has answered.
        announced: priorities of which the store has messages for it.
        is_expected: the store has accepted messages for it, and has not told of them yet.
        elders: how many messages were stored that go before all that wait here, and are not read.
        depth: how many it has, for all that is known; never too few when it has none.
        turns_until: until then the store takes no more for it, so that it becomes empty.
        turns_again: not before this time if it did not become empty.
        accepted_at: when a message was accepted last.
        waiting: messages to be sent, in their order.
        sent: those without an outcome, by number.
        state: of the link, shared with the express lane; None: the lane does not know the link.
        runs: what the lane has been sent, and has no outcome.
        is_exact: its route promises exactly-once: it resumes, and settles second.
        held: what the core has of earlier attachments, by place, until it was resumed; None: it is
            not known whether the store has it, GONE: it has not.
        recalled: places of what was held, which was read out of its turn.
        settling: how many are settled when it is durable that they are gone.
        rests_until: while it rests nothing is sent before that time.
        pauses: how often it has rested since a message was accepted.
        sentence: what somebody has dropped last; what comes back of that is not sent again.
    """

    name: Name
    link: LinkId
    is_attached: bool = False
    announced: set[int] = attrs.field(factory=set)
    is_expected: bool = False
    elders: int = 0
    depth: int = 0
    turns_until: float | None = None
    turns_again: float = 0.0
    accepted_at: float = float("-inf")
    waiting: list[StoredMessage] = attrs.field(factory=list)
    sent: dict[DeliveryNumber, StoredMessage] = attrs.field(factory=dict)
    state: LinkState | None = None
    runs: list[SentRun] = attrs.field(factory=list)
    is_exact: bool = False
    held: dict[Place, StoredMessage | Literal["gone"] | None] = attrs.field(factory=dict)
    recalled: set[Place] = attrs.field(factory=set)
    settling: int = 0
    rests_until: float = 0.0
    pauses: int = 0
    sentence: Sentence | None = None
    _credit: int = 0

    @property
    def credit(self) -> int:
        """Deliveries that may still be sent."""
        return self._credit if self.state is None else self.state.credit

    @credit.setter
    def credit(self, credit: int) -> None:
        if self.state is None:
            self._credit = credit
        else:
            self.state.credit = credit
            self.state.allowance = max(self.state.allowance, credit)

    @property
    def is_idle(self) -> bool:
        """Whether it has, and expects, no message."""
        is_open = self.held or self.settling or (self.is_exact and not self.is_attached)
        is_busy = self.announced or self.is_expected or self.waiting or self.sent or self.runs
        return not (is_busy or is_open)

    def has_read(self, messages: Iterable[StoredMessage]) -> None:
        """Counts the elders among messages that were read."""
        read = sum(message.priority >= ELDER for message in messages)
        self.elders = max(0, self.elders - read)

    def put_back(self, message: StoredMessage) -> None:
        """Puts a message in its place among those that wait."""
        bisect.insort(self.waiting, message, key=rank)

    def take_until(self, place: Place) -> list[StoredMessage]:
        """Takes those out that wait and stand no farther than a place."""
        taken = [each for each in self.waiting if each.claim.place <= place]
        self.waiting = [each for each in self.waiting if each.claim.place > place]
        return taken

    def take_out_of_turn(self) -> list[StoredMessage]:
        """Takes all out that wait if one of them was recalled, and others may go before that."""
        if not any(each.claim.place in self.recalled for each in self.waiting):
            return []
        taken, self.waiting = self.waiting, []
        self.recalled.difference_update(each.claim.place for each in taken)
        self.elders += sum(each.priority >= ELDER for each in taken)
        return taken

    def take_behind(self, place: Place) -> list[StoredMessage]:
        """Takes those out that wait and stand behind a place."""
        taken = [each for each in self.waiting if each.claim.place > place]
        if taken:
            self.waiting = [each for each in self.waiting if each.claim.place <= place]
        return taken


@attrs.define(eq=False)
class Roll:
    """All inlets.

    Attributes:
        by_name: those that messages are put to.
        by_link: those that the core knows.
        stirred: those for which something may be done now, a set in the order of stirring.
        resting: those whose target has returned something, until they go on.
        attempts: how often messages have failed that were sent, and not accepted since.
    """

    by_name: dict[Name, Inlet] = attrs.field(factory=dict)
    by_link: dict[LinkId, Inlet] = attrs.field(factory=dict)
    stirred: dict[Inlet, None] = attrs.field(factory=dict)
    resting: dict[Inlet, None] = attrs.field(factory=dict)
    attempts: dict[Place, int] = attrs.field(factory=dict)

    def stir(self, inlet: Inlet) -> None:
        """Has an inlet looked at soon."""
        self.stirred[inlet] = None

    def stir_route(self, route: RouteKey) -> None:
        """Has all inlets of a route looked at soon that the core knows."""
        self.stirred.update((e, None) for e in self.by_link.values() if e.name.route == route)

    def chosen(self, route: RouteKey | None, address: bytes | None) -> list[Inlet]:
        """Returns the inlets of a route and of an address; None: of any."""
        return [
            inlet
            for name, inlet in self.by_name.items()
            if route in (None, name.route) and address in (None, name.address)
        ]


def rank(message: StoredMessage) -> tuple[int, Place]:
    """Returns what messages of an address are sorted by: first in first out of each priority."""
    return -message.priority, message.claim.place
