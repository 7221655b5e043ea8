"""Exactly once through the message store while reloads lead its route elsewhere, whatever is lost.

The same parties as in ``test_exactly_once``, with two containers that resume. The route leads to
one of them, to both, to another address of the first, or stores no more, and what is in doubt at a
container stays there until that is back, wherever the route leads by then.
"""

from collections.abc import Iterator

import attrs
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from router.model.outcome import ACCEPTED, MODIFIED_FAILED, RELEASED, Outcome
from router.routes.route import Endpoint, Storing
from router.routes.table import RoutingTable
from tests.core.test_exactly_once import Receiver
from tests.net.store.test_exactly_once import ROUTE, Stored, Target
from tests.support.play import Play

pytestmark = pytest.mark.thorough

PLACES = {
    "target": (Endpoint("target"),),
    "other": (Endpoint("other"),),
    "both": (Endpoint("target"), Endpoint("other")),
    "address": (Endpoint("target", "elsewhere"),),
}


class Container(Target):
    """Forgets links that the router closes."""

    def answer(self) -> None:
        self.hear_ends()
        super().answer()

    def live(self) -> Iterator[tuple[str, Receiver]]:
        self.hear_ends()
        yield from super().live()

    def forget_connection(self) -> None:
        self.hear_ends()
        super().forget_connection()

    def hear_ends(self) -> None:
        """Reads what was settled before a link was closed, and forgets the rest."""
        for link in self.links.values():
            end = link.end
            if end is not None and not link.is_cut and end.detached and end.detached.closed:
                link.listen()
                link.unsettled.clear()


class Targets(Target):
    """Two containers, each of which may be there or not."""

    def __init__(self, play: Play) -> None:
        self.each = {name: Container(play, name) for name in ("target", "other")}
        super().__init__(play)

    @property
    def links(self) -> dict[str, Receiver]:
        """Of all of them; a link's name has that of its container."""
        return {name: link for each in self.each.values() for name, link in each.links.items()}

    @links.setter
    def links(self, links: dict[str, Receiver]) -> None:
        assert not links

    @property
    def play(self) -> Play:
        """The worker's, in its present life."""
        return self.each["target"].play

    @play.setter
    def play(self, play: Play) -> None:
        for each in self.each.values():
            each.play = play

    def come(self) -> None:
        for each in self.each.values():
            each.come()

    def answer(self) -> None:
        for each in self.each.values():
            each.answer()

    def go(self) -> None:
        for each in self.each.values():
            each.go()

    def forget_connection(self) -> None:
        for each in self.each.values():
            each.forget_connection()

    def live(self) -> Iterator[tuple[str, Receiver]]:
        for each in self.each.values():
            yield from each.live()


class Retargeted(Stored):
    """A route that stores all, as long as it stores."""

    always = True

    @initialize()
    def begin(self) -> None:
        self.place = "target"
        self.route = attrs.evolve(ROUTE, store=Storing(always=self.always))
        super().begin()
        self.target: Targets = Targets(self.play)

    @rule(place=st.sampled_from(sorted(PLACES)), stores=st.sampled_from([True, True, False]))
    def reload(self, place: str, stores: bool) -> None:
        self.route = attrs.evolve(
            ROUTE,
            to=PLACES[place],
            store=Storing(always=self.always) if stores else None,
            dead_letter=ROUTE.dead_letter if stores else None,
        )
        self.play.routes = (self.route,)
        self.play.carry_out(self.play.core.configure(RoutingTable([self.route]), self.play.now))
        if self.store is not None:
            self.store.follow(self.route)

    @rule(name=st.sampled_from(["target", "other"]))
    def one_comes(self, name: str) -> None:
        self.target.each[name].come()

    @rule(name=st.sampled_from(["target", "other"]))
    def one_goes(self, name: str) -> None:
        self.target.each[name].go()

    @rule(
        name=st.sampled_from(["target", "other"]),
        says=st.sampled_from([ACCEPTED, RELEASED, MODIFIED_FAILED]),
    )
    def one_decides(self, name: str, says: Outcome) -> None:
        self.target.each[name].says = says

    @rule(name=st.sampled_from(["target", "other"]), count=st.integers(1, 4))
    def one_looks(self, name: str, count: int) -> None:
        for _, link in self.target.each[name].live():
            for _ in range(count):
                link.look()

    def teardown(self) -> None:
        if hasattr(self, "target"):
            for each in self.target.each.values():
                each.says = ACCEPTED
        super().teardown()


class RetargetedAndPassing(Retargeted):
    """The store has only what the containers cannot take."""

    always = False


_SETTINGS = settings(
    max_examples=25,
    stateful_step_count=60,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestRetargeted = Retargeted.TestCase
TestRetargeted.settings = _SETTINGS
TestRetargetedAndPassing = RetargetedAndPassing.TestCase
TestRetargetedAndPassing.settings = _SETTINGS
