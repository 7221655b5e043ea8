"""How the inlets begin and end: which there are, which the core knows, and which rest unattached.

    (none) --messages--> attached --idle--> (none)
                 |  ^        |
                 |  again    | refused, or ended by the core
                 '----<------'

An inlet is *quiet* if all that the store has of its address are dead letters that wait: nobody
waits for these, so it ends like an idle one, but is remembered. Messages of a route that is not in
the file any more, because it has another name now, are sent as the route of their address says,
before those of the route that has the address now.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Final

from router.journal.store.queues import RouteKey
from router.model.events import Event, LinkAttached, LinkDetached
from router.model.identity import LinkId, LinkName
from router.model.terminus import ReceiverSettleMode, Role, SenderSettleMode, Source, Target
from router.net.store.fetching import Fetching
from router.net.store.inlet import AllUnsettled, Inlet, Name, Roll
from router.net.store.lane import LaneSession
from router.net.store.resuming import Resuming
from router.net.store.turns import Turns

REFUSED_SECONDS: Final = 5.0
"""Pause before an inlet that was refused is attached again."""


class InletLinks:
    """The links of the inlets."""

    def __init__(
        self,
        emit: Callable[[Event], None],
        link_ids: Iterator[LinkId],
        properties: Callable[[bool], dict[object, object]],
        *,
        roll: Roll,
        fetching: Fetching,
        resuming: Resuming,
        turns: Turns,
        lane: LaneSession | None,
    ) -> None:
        """Begins without a link.

        Args:
            emit: takes events for the core.
            link_ids: shared with the worker's other engines.
            properties: of an attach; whether it is for dead letters.
            roll: all inlets.
            fetching: what the store was asked for, and has lent.
            resuming: what the core has of earlier attachments.
            turns: addresses that are about to become empty.
            lane: is told of what ends; None: there is none.
        """
        self._emit = emit
        self._link_ids = link_ids
        self._properties = properties
        self._roll = roll
        self._fetching = fetching
        self._resuming = resuming
        self._turns = turns
        self._lane = lane
        self._known: Collection[RouteKey] = ()
        self._exact: Collection[RouteKey] = ()
        self._is_exact_at: Callable[[str], bool] = lambda address: False
        self._older: Counter[bytes] = Counter()
        self._again: dict[Name, float] = {}
        self._quiet: dict[Name, tuple[set[int], int]] = {}

    def know(
        self,
        routes: Collection[RouteKey],
        exact: Collection[RouteKey],
        is_exact_at: Callable[[str], bool],
    ) -> None:
        """Records which routes the file has; messages of others go before theirs.

        Args:
            routes: all of them.
            exact: those that promise exactly-once.
            is_exact_at: whether the route of an address does.
        """
        self._known, self._exact, self._is_exact_at = routes, exact, is_exact_at
        self._older = Counter(
            inlet.name.address for inlet in self._roll.by_name.values() if self._is_older(inlet)
        )
        for inlet in self._roll.by_link.values():
            self._roll.stir(inlet)

    def knows(self, route: RouteKey) -> bool:
        """Returns whether the file has a route."""
        return route in self._known

    def _is_older(self, inlet: Inlet) -> bool:
        return not (inlet.name.is_dead or self.knows(inlet.name.route))

    def waits_for_older(self, inlet: Inlet) -> bool:
        """Returns whether messages of a route that the file has not any more go first."""
        if not self._older or not self._older[inlet.name.address]:
            return False
        return not (inlet.name.is_dead or self._is_older(inlet))

    def first_of(self, route: RouteKey, address: bytes) -> RouteKey:
        """Returns the route whose messages of an address go first, which now are those of one."""
        older = filter(self._is_older, self._roll.by_name.values() if self._older[address] else ())
        return next((each.name.route for each in older if each.name.address == address), route)

    def of(self, name: Name) -> Inlet:
        """Returns an inlet, which begins if there is none."""
        inlet = self._roll.by_name.get(name)
        if inlet is None:
            inlet = self._roll.by_name[name] = Inlet(name, next(self._link_ids))
            inlet.is_exact = self._is_exact(name)
            self._older[name.address] += self._is_older(inlet)
            if name in self._quiet:
                inlet.announced, inlet.depth = self._quiet.pop(name)
            if name not in self._again:
                self.attach(inlet)
            if inlet.is_exact and name.twin not in self._resuming.met:
                self.of(name.twin)
        return inlet

    def open(self) -> Iterator[Name]:
        """Yields the names of inlets that are attached again by a connection that follows."""
        return (inlet.name for inlet in self._roll.by_name.values() if inlet.is_exact)

    def meet(self, names: Iterable[Name]) -> None:
        """Begins inlets of exactly-once routes of which the core may have something."""
        for name in names:
            if self._is_exact(name):
                self.of(name)

    def _is_exact(self, name: Name) -> bool:
        if self.knows(name.route):
            return name.route in self._exact
        return self._is_exact_at(name.address.decode())

    def attach(self, inlet: Inlet) -> None:
        """Attaches an inlet; on exactly-once routes the core may have anything of it."""
        self._roll.by_link[inlet.link] = inlet
        address = inlet.name.address.decode()
        letter = "!" if inlet.name.is_dead else ""
        self._emit(
            LinkAttached(
                link=inlet.link,
                name=LinkName(f"{inlet.name.route:016x}{letter}:{address}"),
                role=Role.RECEIVER,
                is_answer=False,
                source=Source(address=address),
                target=Target(address=address),
                sender_settle_mode=SenderSettleMode.UNSETTLED,
                receiver_settle_mode=ReceiverSettleMode(int(inlet.is_exact)),
                unsettled=AllUnsettled() if inlet.is_exact else None,
                properties=self._properties(inlet.name.is_dead),
            )
        )

    def attach_later(self, name: Name, now: float) -> None:
        """Has an inlet that was refused attached after a pause, if there is one then."""
        self._again[name] = now + REFUSED_SECONDS

    def review(self, now: float) -> None:
        """Attaches what was refused and has rested enough."""
        for name, at in list(self._again.items()):
            if at <= now:
                del self._again[name]
                if name in self._roll.by_name:
                    self.attach(self._roll.by_name[name])

    def deadlines(self) -> list[float]:
        """Returns when ``review`` has something to do."""
        return [*self._again.values()]

    def close_idle(self, inlet: Inlet) -> None:
        """Ends an inlet if it has, and expects, nothing, or is quiet."""
        if inlet.runs or inlet.waiting or inlet.sent:
            return  # it is neither
        is_quiet = self._is_quiet(inlet)
        if (inlet.is_idle or is_quiet) and self._roll.by_name.get(inlet.name) is inlet:
            self.forget(inlet)
            if is_quiet:
                self._quiet[inlet.name] = inlet.announced, inlet.depth
            if self._roll.by_link.pop(inlet.link, None) is not None:
                self._emit(LinkDetached(inlet.link, True))

    def _is_quiet(self, inlet: Inlet) -> bool:
        """Returns whether all that the store has of an address are dead letters that wait.

        Nobody waits for these, so the inlet ends. What the store was asked for and may still read
        makes it begin again, and so does what is stored later.
        """
        name = inlet.name
        if name.is_dead or not inlet.announced or inlet.is_expected:
            return False
        is_busy = inlet.runs or inlet.waiting or inlet.sent or inlet.held or inlet.settling
        if is_busy or self._fetching.lending.has(inlet):
            return False
        dead = self._roll.by_name.get(name.twin)
        if dead is None:
            return False
        count = len(dead.waiting) + len(dead.sent)
        is_met = inlet.is_attached or not inlet.is_exact
        return self._fetching.is_asked(name) and 0 < count >= inlet.depth and is_met

    def quiet_has_none(self, name: Name, priority: int) -> None:
        """Records that the store has no messages of a priority of an inlet that is quiet."""
        if name in self._quiet:
            self._quiet[name][0].discard(priority)
            if not self._quiet[name][0]:
                del self._quiet[name]

    def forget(self, inlet: Inlet) -> None:
        """Takes an inlet off the roll of those that messages are put to."""
        del self._roll.by_name[inlet.name]
        if self._lane is not None:
            self._lane.detach(inlet)
        self._roll.stirred.pop(inlet, None)
        self._roll.resting.pop(inlet, None)
        self._turns.end(inlet)
        if self._is_older(inlet):
            self._older[inlet.name.address] -= 1
            for route in self._known:
                newer = self._roll.by_name.get(Name(route, inlet.name.address, False))
                if newer is not None:
                    self._roll.stir(newer)

    def uncount(self, name: Name, count: int) -> None:
        """Records that so many messages of an address have left."""
        alive = self._roll.by_name.get(name)
        if alive is not None:
            alive.depth -= count
        elif name in self._quiet:
            self._quiet[name] = self._quiet[name][0], self._quiet[name][1] - count

    def emptied(self, route: RouteKey) -> None:
        """Records that the store has nothing of a route."""
        self._quiet = {name: each for name, each in self._quiet.items() if name.route != route}
        for inlet in [each for each in self._roll.by_name.values() if each.name.route == route]:
            inlet.is_expected = False
            self.close_idle(inlet)
