"""What a client publishes: inlets, credit and transactions, of every protocol before AMQP 1.0.

Theory of operation. A *sender* stands for inlets and keeps the rules of their credit::

    GrantCredit            the credit is used at once; while the window is held it is put by
    GrantCredit, drain     what is left of the credit then is given back
    GrantCredit.ahead      settled messages go on without credit; at 0 what was read still does,
                           and no more is read
    HoldWindow             nothing goes on; what may go ahead is not read either
    RefuseLink, DetachLink what waits for the inlet is answered with the reason; the next message
                           to the address asks the core anew

A *keeper* has an inlet for each address that it publishes to and gives up those that nobody needs
(``inlets``). What waits, in one line for a whole channel or in one for each address, is the
protocol's, and so is what a client hears.

A *publisher* has transactions besides. What is published in one is *posted*: it waits here and its
inlet stays. A commit hands the posts on and is answered when all of them have an outcome; commits
are answered in order. If one of its messages was not taken a commit fails, and the channel or
session ends: the messages that were taken cannot be called back.
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
    """Whoever sends by inlets."""

    @property
    def serving(self) -> ServingMachine[Any, Any]:
        """The connection."""
        raise NotImplementedError

    def hand_on_by(self, inlet: InletT) -> None:
        """Hands on what waits for an inlet, as far as it goes; answers it if it is refused."""
        raise NotImplementedError

    def ask(self, inlet: InletT, name: str) -> None:
        """Asks the core for an inlet."""
        self.serving.inlets[inlet.link] = inlet
        self.serving.runs.add(self.attach_of(inlet, LinkName(name)))

    def attach_of(self, inlet: InletT, name: LinkName) -> LinkAttached:
        """Words the attach of an inlet."""
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

    def granted(self, inlet: InletT, credit: int, drain: bool) -> None:
        """Handles credit, or its end; what a drain leaves over is given back at once."""
        if inlet.reserve is not None:
            inlet.reserve = credit
        else:
            inlet.credit = credit
            self.hand_on_by(inlet)
        if drain:
            self.give_back(inlet)

    def give_back(self, inlet: InletT) -> None:
        """Gives back the credit that a drain leaves over."""
        inlet.give_back()
        self.serving.runs.add(CreditReturned(inlet.link, 0))

    def hold(self, inlet: InletT, held: bool) -> None:
        """Stops or resumes handing on, whatever the credit."""
        if inlet.hold(held):
            self.serving.go_on_reading(inlet)
            self.hand_on_by(inlet)

    def goes_ahead(self, inlet: InletT, *, settled: bool) -> bool:
        """Returns whether a message goes on without credit; reads no further if it is too much."""
        if inlet.ahead is None or not settled:
            return False
        if inlet.is_spent:
            self.serving.stop_reading(inlet)
        return inlet.goes_ahead

    def refused(self, inlet: InletT, condition: Condition) -> None:
        """Handles the core's refusal of an inlet; the next message to its address asks anew."""
        inlet.refuse(condition)
        self.forget(inlet)
        self.hand_on_by(inlet)

    def lost(self, inlet: InletT, condition: Condition) -> None:
        """Handles the end of an inlet that was attached."""
        self.refused(inlet, condition)

    def forget(self, inlet: InletT) -> None:
        """Records that an inlet is no more."""
        self.serving.forget_spent(inlet)
        self.serving.inlets.pop(inlet.link, None)


class Keeper(Sender[InletT]):
    """Whoever has an inlet for each address that it publishes to.

    Attributes:
        inlets: by address, the oldest first.
    """

    def __init__(self) -> None:
        self.inlets: dict[str, InletT] = {}

    def make_inlet(self, link: LinkId, address: str) -> InletT:
        """Makes an inlet of the protocol's own."""
        raise NotImplementedError

    def name_of(self, inlet: InletT) -> str:
        """Names the link of an inlet."""
        raise NotImplementedError

    def forget_shapes(self) -> None:
        """Records that what is published may go by another inlet than it did."""

    def refusal_of(self, address: str) -> Condition | None:
        """Tells why an address is none that the core need be asked for; None: it may be one."""
        return None

    def inlet(self, address: str) -> InletT:
        """Finds the inlet for an address, or asks the core for one."""
        found = self.inlets.get(address)
        if found is not None:
            return found
        inlet = self.make_inlet(self.serving.next_link(), address)
        inlet.refusal = self.refusal_of(address)
        if inlet.refusal is None:
            self.end(take_surplus(self.inlets), tells=True)
            self.inlets[address] = inlet
            self.ask(inlet, self.name_of(inlet))
        return inlet

    def forget(self, inlet: InletT) -> None:
        """Records that an inlet is no more."""
        self._remove(inlet)
        self.forget_shapes()

    def _remove(self, inlet: InletT) -> None:
        super().forget(inlet)
        self.inlets.pop(inlet.address, None)

    def end(self, inlets: Sequence[InletT], *, tells: bool) -> None:
        """Gives inlets up.

        Args:
            inlets: those that nobody needs any more.
            tells: the core is to be told; else the connection's end says it all.
        """
        for inlet in inlets:
            self._remove(inlet)
            if tells:
                self.serving.runs.add(LinkDetached(inlet.link, closed=True))
        if inlets:
            self.forget_shapes()


class Posted(Interface):
    """A message that was published in a transaction."""

    @property
    def content(self) -> bytes:
        """What waits here."""


@attrs.define(eq=False)
class Commit:
    """A transaction that is to be committed when all its messages have their outcome.

    Attributes:
        undecided: numbers of those that have none yet.
        refused: how many were not taken.
    """

    undecided: set[int]
    refused: int = 0


PostT = TypeVar("PostT", bound=Posted)
CommitT = TypeVar("CommitT", bound=Commit)


class Publisher(Keeper[InletT], Generic[InletT, PostT, CommitT]):
    """Whoever publishes, and may do so in transactions.

    Attributes:
        transaction: messages since the last commit; None: there are no transactions.
        commits: those under way, the oldest first.
    """

    def __init__(self) -> None:
        super().__init__()
        self.transaction: list[PostT] | None = None
        self.commits: deque[CommitT] = deque()

    def posted(self, post: PostT, is_posted: bool) -> None:
        """Records that a message has been posted, or is no more."""
        raise NotImplementedError

    def finish(self, commit: CommitT) -> None:
        """Answers a commit whose messages are all decided; one that fails finds a fault."""
        raise NotImplementedError

    def enlist(self, transaction: list[PostT], post: PostT) -> None:
        """Lets a message wait for its commit."""
        transaction.append(post)
        self.posted(post, True)
        self.serving.hold_octets(len(post.content))

    def take_posts(self) -> list[PostT]:
        """Returns the messages of the transaction, which wait here still, and begins the next."""
        posts, self.transaction = self.transaction or [], []
        for post in posts:
            self.posted(post, False)
        return posts

    def roll_back(self) -> None:
        """Forgets the messages of the transaction."""
        self.serving.hold_octets(-sum(len(post.content) for post in self.take_posts()))

    def commit_of(self, number: int) -> CommitT | None:
        """Finds the commit that waits for a message's outcome."""
        for commit in self.commits:
            if number in commit.undecided:
                return commit
        return None

    def count(self, numbers: Iterable[int], refused: Iterable[int]) -> None:
        """Counts outcomes for the commits that wait for them, and answers those that may be.

        Args:
            numbers: of messages that have an outcome now.
            refused: those of them that were not taken.
        """
        decided = set(numbers)
        for commit in self.commits:
            known = commit.undecided & decided
            if known:
                commit.undecided -= known
                commit.refused += len(known.intersection(refused))
        self.finish_commits()

    def finish_commits(self) -> None:
        """Answers the commits whose messages are all decided, in order."""
        while self.commits and not self.commits[0].undecided:
            self.finish(self.commits.popleft())

    def end_transactions(self) -> None:
        """Records that what was posted is void, and that nobody waits for a commit any more."""
        self.serving.hold_octets(-sum(len(post.content) for post in self.take_posts()))
        self.transaction = None
        self.commits.clear()
