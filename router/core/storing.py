"""Stored routes that are passed through: who is sent a message, the targets or the store.

A route with ``store`` that is not ``always`` stores messages only while its targets cannot take
them. Both the targets and the store have uplinks at the node of its senders; one of the two is the
*taker* at any time, and the links of the other are put aside (``Node.aside``)::

                 the targets are gone, or grant no credit, or have returned a delivery
        TARGETS ────────────────────────────────────────────────▶ NOBODY
           ▲  ▲                                                      │ nothing is under way
           │  └──────────────────────────────────────────────────────┤ to them any more
           │       they take messages again, and nothing was stored  ▼
           └───────────────────────────────────────────────────── STORE
                   they take messages, and nothing is stored any more

NOBODY is what keeps the order: what a target was sent and returns goes back to its place in the
queue, before what has come since, so it is also stored before that. A node begins there, until the
store has said what it holds (``held``): it is empty for an address if it is connected, no delivery
to it is unsettled and it has no link at the node ``STORED``. Near that point it grants no credit
for a moment, so that it becomes empty even if senders never pause.

**Nothing overtakes**: TARGETS is never entered while something of the address is stored; STORE is
not entered while a delivery that a target may return is under way, unless the target answers
nothing for ``SETTLE_SECONDS``. What an absent target has not settled by then is offered anew,
unless the route promises exactly-once: then it stays with its link, in doubt, until the target has
said what became of it. When it is back the store has no target until all of it was answered, or for
``SETTLE_SECONDS`` (``_Wait``). What comes back from a target, because it returns it, never had it
or is lost, is an *elder* (``model.delivery.Elder``): the store sends it before all that it has of
the address (``net.store``). From the moment it comes back until the store has accepted it, however
long that takes, the store has no target, and what is on its way from there and was not sent to a
target yet goes back to the store. Elders are stored even if their route is full.

A route that stores everything after a reload has no choice left once its targets have answered all
that they were sent. One that stores no more is passed through, too, once what it stored is gone.
Until then NOBODY is sent what comes. Elders alone go to the store (ELDERS), as the store may have
others that go before them.
"""

from collections.abc import Iterable
from functools import partial
from itertools import chain
from typing import Final

import attrs

from router.core.alarms import Alarm
from router.core.credit import Granter
from router.core.held import Held, is_waiting
from router.core.lanes import Lanes
from router.core.node import (
    Direction,
    Node,
    NodeKey,
    Taker,
    count_elders,
    has_elders,
    is_able,
)
from router.core.reach import Reach, is_sibling
from router.core.settle import Settler
from router.core.state import State
from router.core.stored import STORE
from router.core.uplinks import Uplinks
from router.links.link import OutgoingLink
from router.links.pairing import Pairing
from router.model.outcome import RELEASED
from router.model.terminus import Role

SETTLE_SECONDS: Final = 5.0
"""How long the outcomes of what was sent to targets are awaited before others are stored."""

START_SECONDS: Final = 1.0
"""How long a node waits at first for targets to be attached and to grant credit."""

LOOK_SECONDS: Final = 2.5
"""Pause between checks of the targets' credit; without any at two in a row they take nothing."""


@attrs.define(eq=False)
class _Choice:
    """What decides about a node.

    Attributes:
        is_clear: nothing of its address is stored.
        is_new: its targets have not been used yet.
        until: NOBODY ends then at the latest.
        look: the alarm for that.
        checks: in a row at which its targets had no credit.
        may_bring: the store may have been sent elders that it has not accepted.
    """

    is_clear: bool = False
    is_new: bool = True
    until: float = 0.0
    look: Alarm | None = None
    checks: int = 0
    may_bring: bool = True


@attrs.define(eq=False)
class _Wait:
    """Why a node of stored messages has no target though it is there: others go first.

    Attributes:
        until: the wait ends then at the latest.
        look: the alarm for that.
    """

    until: float
    look: Alarm


class Storer:
    """Chooses who is sent the messages of stored routes."""

    def __init__(
        self,
        state: State,
        granter: Granter,
        uplinks: Uplinks,
        *,
        settler: Settler,
        lanes: Lanes,
        reach: Reach,
    ) -> None:
        self._registry = state.registry
        self._turn = state.turn
        self._alarms = state.alarms
        self._notices = state.notices
        self._failover_seconds = state.settings.failover_seconds
        self._granter = granter
        self._uplinks = uplinks
        self._settler = settler
        self._lanes = lanes
        self._reach = reach
        self._choices: dict[Node, _Choice] = {}
        self._held = Held(state, uplinks)
        self._waits_at: dict[Node, _Wait] = {}
        self._is_looking = False

    def await_store(self) -> None:
        """Lets nothing pass by the store, on any route, before it has said what it has.

        Routes that store no more wait for that as for a container that is away. Call it before
        anything is restored.
        """
        self._held.await_store()
        at = self._turn.now + self._failover_seconds
        self._alarms.set(at, self._wait_no_more)

    def _wait_no_more(self) -> None:
        if self._held.is_awaited and self._held.end_wait():
            self._touch_all()

    def _touch_all(self) -> None:
        for node in self._choices:
            self._turn.touch(node)

    def look(self) -> None:
        """Has the nodes reviewed whose links have come or gone; called as a turn ends."""
        if self._held.look():
            self._touch_all()
        for node in self._registry.moved:
            if node.taker is not None or self._may_be_stored(node):
                self._turn.touch(node)
        for node in self._registry.fed:
            if self._may_be_stored(node):
                self._turn.touch(node)

    def _may_be_stored(self, node: Node) -> bool:
        """Returns whether a node's messages go to the store, or come from there, or may have."""
        if node.key.direction is Direction.STORED or node.route.store is not None:
            return True
        return self._held.may_have(node.key.address)

    def returned(self, node: Node, count: int) -> None:
        """Says that targets have returned messages, behind which others may be by then."""
        self._notices.add(
            "store.returned", route=node.route.name, address=node.key.address, count=count
        )

    def review(self, node: Node) -> None:
        """Chooses anew for a node that something has happened to."""
        if node.key.direction is Direction.STORED:
            self._follow(node)
            self._give_back(node)
            self._let_others_go_first(node)
            return
        if self._waits_at:
            self._review_wait(node)
        if node.taker is None and not self._may_be_stored(node):
            return
        if not self._chooses(node):
            if node.taker is not None:
                self._forget(node)
            return
        choice = self._choices.get(node)
        if choice is None:
            choice = self._begin(node)
        taker = self._decide(node, choice)
        if taker is Taker.STORE and node.taker is Taker.NOBODY and self._uplinks.forsake(node):
            self._turn.touch(node)  # what was forsaken goes back to its place first
            return
        if taker is not node.taker:
            self._change(node, choice, taker)
        for link in node.aside:
            if _is_for(link, taker):
                node.take_up(link)
                self._granter.receivers_changed(node)
        is_storing = taker in {Taker.STORE, Taker.ELDERS}
        if is_storing and has_elders(node):
            choice.may_bring = True
            self._recall(node)
            self._lend(node)
        elif is_storing and choice.may_bring and self._has_elders(node):
            self._lend(node)

    def _lend(self, node: Node) -> None:
        """Has elders stored at once, whatever credit the store has granted.

        A full store would else forward younger messages to have room for them, and these wait for
        the elders. It takes what comes. What is resumed goes before new deliveries of a link.
        """
        feeds = sorted(node.rotation, key=lambda feed: not feed.waiting[0].elder)
        node.rotation.clear()
        node.rotation.extend(feeds)
        for link in node.outgoing:
            credit = sum(map(count_elders, feeds)) + len(link.resuming)
            if link.resuming and link.credit < credit:
                self._turn.touch(node)  # these are sent first
            link.lend_credit(credit)

    def _recall(self, node: Node) -> None:
        """Returns to the store what has not been sent yet: what a node has now goes before that."""
        stored = self._registry.nodes.get(NodeKey(node.key.address, Direction.STORED))
        if stored is None:
            return
        self._lanes.demote(stored)
        for incoming in stored.feeds:
            incoming.mark_rewound()
        self._give_back(stored)
        self._let_others_go_first(stored)

    def _give_back(self, node: Node) -> None:
        """Returns to the store what it sent before others went back there, which go first.

        What is on its way to a target by then waits here again if that is lost.
        """
        for feed in tuple(node.rotation):
            if feed.waiting[0].sequence > feed.incoming.rewound:
                continue
            waiting = [*feed.waiting]
            node.withdraw_all(feed, waiting)
            for pairing in waiting:
                if pairing.tried is None:
                    self._settler.answer(pairing, RELEASED)
                else:
                    self._settler.give_up(pairing)
            self._granter.rewind(feed.incoming)
            self._turn.review_credit(feed.incoming)

    def _follow(self, node: Node) -> None:
        """Has the nodes reviewed that care whether the store has messages of an address."""
        if self._held.follow(node):
            for other in self._others(node):
                self._turn.touch(other)

    def _review_wait(self, node: Node) -> None:
        """Has stored messages go on that waited for what a node has sent before."""
        stored = self._registry.nodes.get(NodeKey(node.key.address, Direction.STORED))
        if stored is not None and self in stored.returning and not self._must_wait(stored):
            self._turn.touch(stored)

    def _let_others_go_first(self, node: Node) -> None:
        """Gives stored messages no target while something goes before them."""
        if not (node.outgoing or node.aside):
            if (gone := self._waits_at.pop(node, None)) is not None:
                self._alarms.cancel(gone.look)
                node.returning.discard(self)
            return
        if self._must_wait(node):
            if node not in self._waits_at:
                until = self._turn.now + SETTLE_SECONDS
                look = self._alarms.set(until, partial(self._turn.touch, node))
                self._waits_at[node] = _Wait(until, look)
            if not node.outgoing:
                return
            node.returning.add(self)
            for link in tuple(node.outgoing):
                node.put_aside(link)
        elif self in node.returning:
            node.returning.discard(self)
            for link in node.aside:
                node.take_up(link)
            self._turn.touch(node)
        else:
            return
        self._registry.moved[node] = None
        self._granter.receivers_changed(node)

    def _must_wait(self, node: Node) -> bool:
        """Returns whether something goes before the stored messages of a node."""
        others = tuple(self._others(node))
        if any(map(self._has_elders, others)):
            return True
        wait = self._waits_at.get(node)
        is_late = wait is not None and self._turn.now >= wait.until
        return not is_late and any(map(self._is_asking, others))

    def _others(self, node: Node) -> Iterable[Node]:
        """Yields the nodes whose messages pass by those that a node has from the store."""
        for direction in (Direction.TOWARDS, Direction.MEETING):
            other = self._registry.nodes.get(NodeKey(node.key.address, direction))
            if other is not None:
                yield other

    def _is_asking(self, node: Node) -> bool:
        """Returns whether targets have not answered what they were sent past the store."""
        if node not in self._choices and has_elders(node):
            return True
        return any(link.resuming or is_waiting(link) for link in self._under_way(node))

    def _has_elders(self, node: Node) -> bool:
        """Returns whether a node has elders that the store has not accepted."""
        choice = self._choices.get(node)
        if choice is None or has_elders(node):
            return choice is not None
        if choice.may_bring:
            choice.may_bring = any(map(_brings_elders, self._links(node, keeps=True)))
        return choice.may_bring

    def _chooses(self, node: Node) -> bool:
        """Returns whether a node's messages may go to the targets or to the store."""
        if node.key.container is not None or not self._reach.owns(STORE):
            return False
        if node.key.direction not in {Direction.TOWARDS, Direction.MEETING} or not node.route.to:
            return False
        if node.route.store is None:
            return self._held.is_held(node)
        if node.route.passes_through:
            return True
        is_passed = any(map(is_waiting, self._under_way(node)))  # since before a reload
        return is_passed or (node in self._choices and self._has_elders(node))

    # Deciding

    def _decide(self, node: Node, choice: _Choice) -> Taker:
        links = (*node.outgoing, *node.aside)
        targets = [link for link in links if not link.keeps]
        is_known = len(targets) < len(links)
        is_held = self._held.is_held(node)
        is_always = node.route.store is not None and not node.route.passes_through
        may_pass = not is_always and any(
            is_able(link) and not is_sibling(link.connection) for link in targets
        )
        has_returned = _returned(targets, (*node.given_back, *node.hopeful))
        if node.taker is Taker.TARGETS:
            is_over = is_always or choice.checks > 1 or has_returned or not targets
            return Taker.NOBODY if is_over else Taker.TARGETS
        if node.route.store is None and is_held:
            return Taker.ELDERS if self._has_elders(node) else Taker.NOBODY
        if node.route.store is None:
            return Taker.TARGETS
        if node.taker is Taker.STORE:
            passes = is_known and not is_held and may_pass and not has_returned
            return Taker.TARGETS if passes else Taker.STORE
        if is_known and not is_held:
            choice.is_clear = True
        if choice.is_clear and may_pass and not has_returned:
            return Taker.TARGETS
        if not is_known:
            return Taker.NOBODY
        if is_held or self._turn.now >= choice.until:
            return Taker.STORE
        return Taker.NOBODY if self._waits(node, choice, targets) else Taker.STORE

    def _waits(self, node: Node, choice: _Choice, targets: list[OutgoingLink]) -> bool:
        """Returns whether something may still come of a node's targets before others are stored."""
        if choice.is_new:
            return bool(targets) or self._uplinks.is_attaching(node, Role.SENDER)
        return any(is_waiting(link) for link in self._under_way(node))

    def _under_way(self, node: Node) -> Iterable[OutgoingLink]:
        """Yields the links to targets, attached or suspended."""
        return self._links(node, keeps=False)

    def _links(self, node: Node, *, keeps: bool) -> Iterable[OutgoingLink]:
        """Yields the links to the store, or to targets, attached or suspended."""
        for link in self._uplinks.links_of(node):
            if isinstance(link, OutgoingLink) and link.keeps is keeps:
                yield link

    # Doing

    def _begin(self, node: Node) -> _Choice:
        choice = self._choices[node] = _Choice()
        if not self._is_looking:
            self._is_looking = True
            self._alarms.set(self._turn.now + LOOK_SECONDS, self._look_at_credit)
        return choice

    def _change(self, node: Node, choice: _Choice, taker: Taker) -> None:
        self._lanes.demote(node)
        is_refitted = Taker.ELDERS in {taker, node.taker}
        node.taker = taker
        choice.checks = 0
        self._alarms.cancel(choice.look)
        choice.look = None
        if taker is Taker.NOBODY:
            node.returning.add(self)
            seconds = START_SECONDS if choice.is_new else SETTLE_SECONDS
            choice.until = self._turn.now + seconds
            choice.look = self._alarms.set(choice.until, partial(self._turn.touch, node))
        elif taker is Taker.ELDERS:
            node.returning.add(self)
        else:
            node.returning.discard(self)
            choice.is_new = False
            choice.is_clear = taker is Taker.TARGETS
            self._notices.add(
                "store.passed" if taker is Taker.TARGETS else "store.used",
                route=node.route.name,
                address=node.key.address,
            )
        if is_refitted:  # it has the store beside what its route asks for, or not any more
            self._uplinks.refit(node)
        for link in (*node.outgoing, *node.aside):
            if not _is_for(link, taker):
                node.put_aside(link)
            elif link in node.aside:
                node.take_up(link)
        self._registry.moved[node] = None
        self._granter.receivers_changed(node)
        self._turn.touch(node)
        self._lanes.consider(node)

    def _forget(self, node: Node) -> None:
        """Has all links of a node used that has no choice any more."""
        self._lanes.demote(node)
        choice = self._choices.pop(node, None)
        if choice is not None:
            self._alarms.cancel(choice.look)
        had_store = node.taker is Taker.ELDERS
        node.taker = None
        if had_store:
            self._uplinks.refit(node)
        node.returning.discard(self)
        for link in node.aside:
            node.take_up(link)
        self._registry.moved[node] = None
        self._granter.receivers_changed(node)
        self._turn.touch(node)

    def _look_at_credit(self) -> None:
        """Looks for targets that grant no credit, and forgets nodes that are gone."""
        self._is_looking = False
        for node, choice in tuple(self._choices.items()):
            if self._registry.nodes.get(node.key) is not node:
                del self._choices[node]
                continue
            if not (node.feeds or node.rotation):
                node.returning.discard(self)
                self._turn.leave(node)
            if node.taker is not Taker.TARGETS:
                continue
            if node.is_express:
                self._lanes.refresh((node,))
            has_credit = any(link.credit > 0 for link in node.outgoing)
            choice.checks = 0 if has_credit else choice.checks + 1
            if choice.checks > 1:
                self._turn.touch(node)
        if self._choices:
            self._is_looking = True
            self._alarms.set(self._turn.now + LOOK_SECONDS, self._look_at_credit)


def _brings_elders(link: OutgoingLink) -> bool:
    """Returns whether the store has not accepted all elders that it is sent on a link."""
    deliveries = chain(link.unsettled.values(), link.adrift.values())
    return any(pairing.elder and pairing.outcome is None for pairing in deliveries)


def _is_for(link: OutgoingLink, taker: Taker) -> bool:
    """Returns whether a link is one of the taker's."""
    if taker is Taker.NOBODY:
        return False
    if taker in {Taker.STORE, Taker.ELDERS}:
        return link.keeps
    return not (link.keeps or is_sibling(link.connection))


def _returned(targets: list[OutgoingLink], pairings: Iterable[Pairing]) -> bool:
    """Returns whether all targets that are attached have returned some delivery."""
    return bool(targets) and any(
        pairing.tried is not None and all(link.trial in pairing.tried for link in targets)
        for pairing in pairings
    )
