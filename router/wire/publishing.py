"""A client's publishes: inlets, credit and transactions, common to protocols before AMQP 1.0.

Theory of operation. A *sender* has inlets and applies the rules of their credit::

    GrantCredit            the credit is used at once; while the window is held it is saved
    GrantCredit, drain     the credit left over is returned
    GrantCredit.ahead      settled messages need no credit; at 0 those already read are still handed
                           on, and reading stops
    HoldWindow             nothing is handed on; messages ahead of credit are not read either
    RefuseLink, DetachLink messages held for the inlet are answered with the reason; the next
                           message to the address attaches again

A *keeper* has one inlet per address and detaches those that are not needed (``inlets``). How
messages are held, in one list per channel or one per address, and what a client is sent, is the
protocol's.

A *publisher* has transactions as well. A message in one is *posted*: it is held here and its inlet
stays. A commit hands the posts on and is answered when all of them have an outcome, and what it
acknowledges is on record (``recording``); commits are answered in order. If one of its messages was
refused a commit fails, and the channel or session ends: the accepted messages cannot be revoked.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, Generic, TypeVar
from typing import Protocol as Interface

import attrs

from router.model.commands import AttachLink
from router.model.condition import Condition
from router.model.events import CreditReturned, LinkAttached, LinkDetached
from router.model.identity import LinkId, LinkName
from router.model.terminus import ALL_OUTCOMES, Role, Source, Target
from router.wire.inlets import Inlet, take_surplus
from router.wire.serving import ServingMachine

InletT = TypeVar("InletT", bound=Inlet)


class Sender(Generic[InletT]):
    """Sends by inlets."""

    @property
    def serving(self) -> ServingMachine[Any, Any]:
        """The connection."""
        raise NotImplementedError

    def hand_on_by(self, inlet: InletT) -> None:
        """Hands on the messages held for an inlet, or answers them if it is refused."""
        raise NotImplementedError

    def ask(self, inlet: InletT, name: str) -> None:
        """Requests an inlet from the core."""
        self.serving.inlets[inlet.link] = inlet
        self.serving.runs.add(self.attach_of(inlet, LinkName(name)))

    def attach_of(self, inlet: InletT, name: LinkName) -> LinkAttached:
        """Builds the attach of an inlet."""
        return LinkAttached(
            link=inlet.link,
            name=name,
            role=Role.RECEIVER,
            is_answer=False,
            source=Source(outcomes=ALL_OUTCOMES),
            target=Target(address=inlet.address),
        )

    def attached(self, inlet: InletT, answer: AttachLink) -> None:
        """Handles the core's acceptance of an inlet."""
        inlet.is_attached = True
        inlet.max_message_octets = answer.max_message_octets
        inlet.ttl_seconds = answer.ttl_seconds

    def granted(self, inlet: InletT, credit: int, drain: bool) -> None:
        """Handles credit, or its end; credit left over by a drain is returned at once."""
        if inlet.reserve is not None:
            inlet.reserve = credit
        else:
            inlet.credit = credit
            self.hand_on_by(inlet)
        if drain:
            self.give_back(inlet)

    def give_back(self, inlet: InletT) -> None:
        """Returns credit left over by a drain."""
        inlet.give_back()
        self.serving.runs.add(CreditReturned(inlet.link, 0))

    def recorded(self, inlet: InletT) -> None:
        """Handles the report that settled messages are on record; few protocols ask for it."""

    def hold(self, inlet: InletT, held: bool) -> None:
        """Stops or resumes handing messages on, whatever the credit."""
        if inlet.hold(held):
            self.serving.go_on_reading(inlet)
            self.hand_on_by(inlet)

    def goes_ahead(self, inlet: InletT, *, settled: bool) -> bool:
        """Returns whether a message needs no credit; stops reading if the limit is reached."""
        if inlet.ahead is None or not settled:
            return False
        if inlet.is_spent:
            self.serving.stop_reading(inlet)
        return inlet.goes_ahead

    def refused(self, inlet: InletT, condition: Condition) -> None:
        """Handles the core's refusal of an inlet; the next message attaches again."""
        inlet.refuse(condition)
        self.forget(inlet)
        self.hand_on_by(inlet)

    def lost(self, inlet: InletT, condition: Condition) -> None:
        """Handles the end of an inlet that was attached."""
        self.refused(inlet, condition)

    def forget(self, inlet: InletT) -> None:
        """Records that an inlet is gone."""
        self.serving.forget_spent(inlet)
        self.serving.inlets.pop(inlet.link, None)


class Keeper(Sender[InletT]):
    """Has one inlet per address.

    Attributes:
        inlets: by address, oldest first.
    """

    def __init__(self) -> None:
        self.inlets: dict[str, InletT] = {}

    def make_inlet(self, link: LinkId, address: str) -> InletT:
        """Creates an inlet of the protocol."""
        raise NotImplementedError

    def name_of(self, inlet: InletT) -> str:
        """Returns the link name of an inlet."""
        raise NotImplementedError

    def forget_shapes(self) -> None:
        """Records that publishes may need another inlet than before."""

    def refusal_of(self, address: str) -> Condition | None:
        """Returns why an address is invalid without asking the core; None: it may be valid."""
        return None

    def inlet(self, address: str) -> InletT:
        """Returns the inlet for an address, requesting it from the core if needed."""
        found = self.inlets.get(address)
        if found is not None:
            return found
        inlet = self.make_inlet(self.serving.next_link(), address)
        inlet.refusal = self.refusal_of(address)
        if inlet.refusal is None:
            self.end(take_surplus(self.inlets), reports=True)
            self.inlets[address] = inlet
            self.ask(inlet, self.name_of(inlet))
        return inlet

    def forget(self, inlet: InletT) -> None:
        """Records that an inlet is gone."""
        self._remove(inlet)
        self.forget_shapes()

    def _remove(self, inlet: InletT) -> None:
        super().forget(inlet)
        self.inlets.pop(inlet.address, None)

    def end(self, inlets: Sequence[InletT], *, reports: bool) -> None:
        """Ends inlets.

        Args:
            inlets: those that are not needed any more.
            reports: report it to the core; else the end of the connection implies it.
        """
        for inlet in inlets:
            self._remove(inlet)
            if reports:
                self.serving.runs.add(LinkDetached(inlet.link, closed=True))
        if inlets:
            self.forget_shapes()


class Posted(Interface):
    """A message published in a transaction."""

    @property
    def content(self) -> bytes:
        """The held message."""


@attrs.define(eq=False)
class Commit:
    """A transaction that is committed when all its messages have their outcome.

    Attributes:
        undecided: numbers of messages without an outcome.
        refused: number of refused messages.
        unrecorded: number of outlets whose core has not reported that its acknowledgments are on
            record.
    """

    undecided: set[int] = attrs.field(factory=set)
    refused: int = 0
    unrecorded: int = 0

    @property
    def is_decided(self) -> bool:
        """Whether it can be answered."""
        return not (self.undecided or self.unrecorded)


PostT = TypeVar("PostT", bound=Posted)
CommitT = TypeVar("CommitT", bound=Commit)


class Publisher(Keeper[InletT], Generic[InletT, PostT, CommitT]):
    """Publishes, also in transactions.

    Attributes:
        transaction: messages since the last commit; None: no transactions.
        commits: those under way, oldest first.
    """

    def __init__(self) -> None:
        super().__init__()
        self.transaction: list[PostT] | None = None
        self.commits: deque[CommitT] = deque()

    def posted(self, post: PostT, is_posted: bool) -> None:
        """Records that a message was posted, or removed."""
        raise NotImplementedError

    def finish(self, commit: CommitT) -> None:
        """Answers a commit that is decided; a failed one raises the fault."""
        raise NotImplementedError

    def enlist(self, transaction: list[PostT], post: PostT) -> None:
        """Holds a message for its commit."""
        transaction.append(post)
        self.posted(post, True)
        self.serving.hold_octets(len(post.content))

    def take_posts(self) -> list[PostT]:
        """Returns the messages of the transaction, which stay held, and begins the next."""
        posts, self.transaction = self.transaction or [], []
        for post in posts:
            self.posted(post, False)
        return posts

    def roll_back(self) -> None:
        """Forgets the messages of the transaction."""
        self.serving.hold_octets(-sum(len(post.content) for post in self.take_posts()))

    def commit_of(self, number: int) -> CommitT | None:
        """Returns the commit that waits for a message's outcome; None: there is none."""
        for commit in self.commits:
            if number in commit.undecided:
                return commit
        return None

    def count(self, numbers: Iterable[int], refused: Iterable[int]) -> None:
        """Counts outcomes for commits, and answers those that are decided.

        Args:
            numbers: of the decided messages.
            refused: those of them that were refused.
        """
        decided = set(numbers)
        for commit in self.commits:
            known = commit.undecided & decided
            if known:
                commit.undecided -= known
                commit.refused += len(known.intersection(refused))
        self.finish_commits()

    def finish_commits(self) -> None:
        """Answers the commits that are decided, in order."""
        while self.commits and self.commits[0].is_decided:
            self.finish(self.commits.popleft())

    def end_transactions(self) -> None:
        """Voids all posts and commits."""
        self.serving.hold_octets(-sum(len(post.content) for post in self.take_posts()))
        self.transaction = None
        self.commits.clear()
