"""Where a client dials next: its own place, others that peers name, and where redirects lead.

Theory of operation. A *round* is the client's own place, then those of the newest
``failover-server-list``; it begins behind the place whose connection was lost. A redirect, of the
connection (§2.8.16) or of the link (§2.8.18), names places that go before the round, best first::

    the connection ends with a redirect  --> the places that it names are next; where one of them
                                             redirects, those that it names go first
    one of them cannot be dialed         --> the next of them, if there is one
    policy, or the chain, forbids it     --> reported; as if the connection had been lost
    the connection is lost               --> the round goes on

A chain of redirects has an end (``links/trail``), so what is dialed without a pause has one, too.
"""

from collections import deque
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

import attrs

from router.links.trail import RefusedDiversionError, Trail
from router.model.condition import Condition
from router.model.place import Alternative
from router.net.diversion import read_redirect
from router.wire.alternatives import UnfitAlternativeError, read_link_redirect, read_list

Spot = TypeVar("Spot")
"""A place that can be dialed; ``str`` names it."""


@attrs.define(eq=False, kw_only=True)
class Course(Generic[Spot]):
    """Chooses the places of one client.

    Attributes:
        home: the client's own place.
        address: of the node at home.
        divert: returns the place that a peer names; raises ``RefusedDiversionError``.
        report: is given what people should know: followed and refused redirects.
        here: the place that was chosen last.
        address_here: the address of the node there.
    """

    home: Spot
    address: str
    divert: Callable[[Alternative], Spot]
    report: Callable[[str], None] = lambda text: None
    here: Spot = attrs.field(init=False)
    address_here: str = attrs.field(init=False)
    _trail: Trail = attrs.field(init=False)
    _listed: tuple[Spot, ...] = attrs.field(default=(), init=False)
    _round: deque[Spot] = attrs.field(factory=deque, init=False)
    _ahead: list[tuple[Spot, str, Trail]] = attrs.field(factory=list, init=False)
    _refused: set[str] = attrs.field(factory=set, init=False)

    def __attrs_post_init__(self) -> None:
        self.here, self.address_here = self.home, self.address
        self._trail = Trail((self._name(self.home, self.address),))

    @property
    def places(self) -> int:
        """How many places a round has."""
        return 1 + len(self._others())

    def advance(self) -> Spot:
        """Chooses the place to dial now."""
        if self._ahead:
            self.here, self.address_here, self._trail = self._ahead.pop()
            return self.here
        if not self._round:
            self._round.extend([self.home, *self._others()])
        self.here, self.address_here = self._round.popleft(), self.address
        self._trail = Trail((self._name(self.here, self.address),))
        return self.here

    def opened(self, alternatives: object) -> None:
        """Records what the open of a peer says of other places; None: nothing."""
        if alternatives is None:
            return
        listed = read_list(alternatives)
        self._refuse(*listed.refused)
        self._listed = tuple(self._allowed(listed.alternatives))
        self._turn()

    def lost(self, *, had_opened: bool) -> bool:
        """Records that a connection has ended, or did not open, without a redirect.

        Returns:
            Whether a place is left that a redirect has named, and that is to be dialed at once.
        """
        if not had_opened:
            return bool(self._ahead)
        self._ahead.clear()
        self._turn()
        return False

    def _turn(self) -> None:
        """Has the round begin behind this place; where a redirect led, it begins anew."""
        places = [self.home, *self._others()]
        names = [str(each) for each in places]
        begin = names.index(str(self.here)) + 1 if str(self.here) in names else 0
        self._round = deque(places[begin:] + places[:begin])

    def redirected(self, condition: Condition | None) -> bool:
        """Follows a redirect of the connection; returns whether it is one, and is followed."""
        listed = read_redirect(condition)
        if listed is None:
            return False
        self._refuse(*listed.refused)
        return self._go([(each, self.address_here) for each in listed.alternatives])

    def link_redirected(self, condition: Condition) -> bool:
        """Follows a redirect of the link; returns whether it is followed."""
        try:
            place, address = read_link_redirect(condition.info)
        except UnfitAlternativeError as error:
            self._refuse(str(error))
            return False
        return self._go([(place, address or self.address_here)])

    def _go(self, targets: list[tuple[Alternative | None, str]]) -> bool:
        """Puts places before all others, the first one foremost; returns whether there are any."""
        found: list[tuple[Spot, str, Trail]] = []
        for other, address in targets:
            try:
                spot = self.here if other is None else self.divert(other)
                found.append((spot, address, self._trail.onward(self._name(spot, address))))
            except RefusedDiversionError as error:
                self._refuse(f"{other or address}: {error}")
        if found:
            spot, address, _ = found[0]
            where = str(spot) if address == self.address_here else self._name(spot, address)
            self.report(f"redirected to {where}")
        self._ahead += reversed(found)
        return bool(found)

    def _allowed(self, alternatives: Iterable[Alternative]) -> Iterable[Spot]:
        for each in alternatives:
            try:
                yield self.divert(each)
            except RefusedDiversionError as error:
                self._refuse(f"{each}: {error}")

    def _others(self) -> list[Spot]:
        found = {str(each): each for each in self._listed}
        found.pop(str(self.home), None)
        return list(found.values())

    def _refuse(self, *reasons: str) -> None:
        """Reports places that are not dialed, each once."""
        for reason in reasons:
            if reason not in self._refused:
                self._refused.add(reason)
                self.report(f"another place is not dialed: {reason}")

    @staticmethod
    def _name(spot: Spot, address: str) -> str:
        return f"{spot}/{address}"
