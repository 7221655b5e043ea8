"""Branches: a link to the anonymous terminus leads through to all homes at once.

Its deliveries are for many addresses, whose homes may be at all workers (``homes``). So it has a
*branch* to each home, which is a passage with a far link of its own (``passage``)::

             ┌── branch ──>  home 1
    peer  <──┼── branch ──>  home 2      one of them may be this worker: it is connected to itself
             └── branch ──>  home 3

Every home knows the link by the same names, and keeps what is unsettled of its own addresses. So
each delivery has one home, as on a link to its address: nothing goes from one home to another, and
nothing is written down twice. Here is kept, until it is settled, at which home a delivery is.

    from the peer                             goes
    attach                                    to every home, with the whole unsettled map
    delivery                                  to the home of its address; if it is resumed, to the
                                              home whose map names its tag
    outcome, settlement                       to the home of the delivery
    credit returned                           to the homes that have asked for it
    proof that our answer was read            to the homes that have asked for it
    detach                                    to every home

    from a home                               the peer gets
    answer                                    one when all have answered: the union of the maps
    credit                                    what the home with the least has left
    outcome, settlement                       it
    refusal, detach                           it; the other branches end

So whoever resumes such a link finds all of its map again, at however many homes: each names what it
knows of its own addresses, and has settled what the map lacks. When one of the homes is lost, the
peer's connection is closed, as with any passage.
"""

from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from typing import Final

import attrs

from router.model.commands import (
    AttachLink,
    Command,
    DetachLink,
    GrantCredit,
    RefuseLink,
    UpdateDeliveries,
)
from router.model.condition import DETACH_FORCED, Condition
from router.model.delivery import ReceivedDelivery
from router.model.events import (
    AttachConfirmed,
    CreditReturned,
    DeliveriesReceived,
    DeliveriesUpdated,
    DeliveryAborted,
    DeliveryContinued,
    Event,
    LinkDetached,
)
from router.model.identity import DeliveryNumber, DeliveryTag, LinkId

_ENDED: Final = Condition(DETACH_FORCED, "a worker that keeps this link has ended it")

FindHome = Callable[[str | None], str]
"""Returns the name of the home of a message's address."""

Branched = tuple[LinkId, Event]
"""An event for one branch."""


@attrs.define(eq=False, kw_only=True)
class Branches:
    """The branches of one link.

    Attributes:
        near: the peer's link.
        homes: the branches, each by the name of its home.
        find_home: as its type says.
        is_over: the peer was told that the link has ended, or was refused.
    """

    near: LinkId
    homes: dict[str, LinkId]
    find_home: FindHome
    is_over: bool = attrs.field(default=False, init=False)
    _answers: dict[LinkId, AttachLink] = attrs.field(factory=dict, init=False)
    _held: list[Event] = attrs.field(factory=list, init=False)
    _tags: dict[DeliveryTag, LinkId] = attrs.field(factory=dict, init=False)
    _at: dict[DeliveryNumber, LinkId] = attrs.field(factory=dict, init=False)
    _amid: LinkId | None = attrs.field(default=None, init=False)
    _credit: dict[LinkId, int] = attrs.field(init=False)
    _granted: int = attrs.field(default=0, init=False)
    _draining: set[LinkId] = attrs.field(factory=set, init=False)

    @_credit.default
    def _no_credit(self) -> dict[LinkId, int]:
        return dict.fromkeys(self.homes.values(), 0)

    @property
    def is_answered(self) -> bool:
        """Whether all homes have answered."""
        return len(self._answers) == len(self.homes)

    # From the peer

    def from_peer(self, event: Event) -> Iterator[Branched]:
        """Yields what an event of the peer's link is for each branch."""
        if isinstance(event, LinkDetached):
            for branch in self.homes.values():
                yield branch, attrs.evolve(event, link=branch)
        elif not self.is_answered:
            self._held.append(event)
        else:
            yield from self._share_out(event)

    def take_held(self) -> Iterator[Branched]:
        """Yields what came before all homes had answered."""
        held, self._held = self._held, []
        for event in held:
            yield from self.from_peer(event)

    def _share_out(self, event: Event) -> Iterator[Branched]:
        match event:
            case DeliveriesReceived(deliveries=deliveries):
                for branch, run in groupby(deliveries, self._branch_of):
                    yield branch, DeliveriesReceived(branch, self._note(branch, run))
            case DeliveryContinued() | DeliveryAborted() if self._amid is not None:
                if isinstance(event, DeliveryAborted) or event.settled:
                    self._settle((event.number,), is_settled=True)
                yield self._amid, attrs.evolve(event, link=self._amid)
            case DeliveriesUpdated(numbers=numbers):
                known = [number for number in numbers if number in self._at]
                for branch, same in groupby(known, self._at.__getitem__):
                    yield branch, attrs.evolve(event, link=branch, numbers=list(same))
                self._settle(numbers, is_settled=event.settled)
            case CreditReturned():
                self._granted = 0
                for branch in self._draining:
                    self._credit[branch] = 0
                    yield branch, attrs.evolve(event, link=branch)
                self._draining.clear()
            case AttachConfirmed():
                for branch, answer in self._answers.items():
                    if answer.challenge is not None:
                        yield branch, AttachConfirmed(branch)
            case _:
                pass

    def _branch_of(self, delivery: ReceivedDelivery) -> LinkId:
        known = self._tags.get(delivery.tag) if delivery.resume else None
        return known or self.homes[self.find_home(delivery.address)]

    def _note(self, branch: LinkId, run: Iterable[ReceivedDelivery]) -> list[ReceivedDelivery]:
        """Records where deliveries are, and what credit they have used."""
        deliveries = list(run)
        for delivery in deliveries:
            self._tags.pop(delivery.tag, None)
            if not delivery.settled:
                self._at[delivery.number] = branch
        self._credit[branch] = max(0, self._credit[branch] - len(deliveries))
        self._granted = max(0, self._granted - len(deliveries))
        self._amid = branch if deliveries[-1].more else None
        return deliveries

    def _settle(self, numbers: Iterable[DeliveryNumber], *, is_settled: bool) -> None:
        for number in numbers if is_settled else ():
            self._at.pop(number, None)

    # From the homes

    def to_peer(self, branch: LinkId, command: Command) -> Iterator[Command]:
        """Yields what a command for one branch is for the peer."""
        if self.is_over:
            return
        match command:
            case AttachLink():
                self._answers[branch] = command
                self._tags |= dict.fromkeys(command.unsettled or (), branch)
                if self.is_answered:
                    yield self._answer()
            case RefuseLink(condition=condition):
                yield self._end(closed=False, condition=condition)
            case DetachLink(closed=closed, condition=condition):
                yield self._end(closed=closed, condition=condition)
            case GrantCredit():
                yield from self._grant(branch, command)
            case UpdateDeliveries(numbers=numbers, settled=settled):
                self._settle(numbers, is_settled=settled)
                yield attrs.evolve(command, link=self.near)
            case _:
                yield command

    def _answer(self) -> AttachLink:
        """Returns the answer of all homes; the terms are the same at each."""
        answers = list(self._answers.values())
        maps = [each.unsettled for each in answers if each.unsettled is not None]
        challenges = (each.challenge for each in answers if each.challenge is not None)
        return attrs.evolve(
            answers[0],
            link=self.near,
            unsettled=dict(ChainMap(*map(dict, maps))) if maps else None,
            incomplete_unsettled=any(each.incomplete_unsettled for each in answers),
            challenge=next(challenges, None),
        )

    def _end(self, *, closed: bool, condition: Condition | None) -> Command:
        """Returns the end of the link for the peer, to which no more is said."""
        self.is_over = True
        if self.is_answered:
            return DetachLink(self.near, closed, condition)
        return RefuseLink(self.near, condition or _ENDED)

    def more_credit(self) -> GrantCredit | None:
        """Returns credit for a peer that has used half of what each home has left, or more.

        A home grants credit anew when half of its own is used, which is long after that if the
        deliveries are for all of them.
        """
        least = min(self._credit.values())
        if self.is_over or self._draining or not least or 2 * self._granted > least:
            return None
        self._granted = least
        return GrantCredit(self.near, least)

    def _grant(self, branch: LinkId, command: GrantCredit) -> Iterator[Command]:
        """Yields the credit for the peer, if it changes or is asked back."""
        self._credit[branch] = command.credit
        if command.drain:
            self._draining.add(branch)
        else:
            self._draining.discard(branch)
        least = min(self._credit.values())
        if least != self._granted or self._draining:
            self._granted = least
            yield GrantCredit(self.near, least, drain=bool(self._draining))
