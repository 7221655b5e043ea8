"""When trees are computed: the own one 50 ms after a change, those of others when asked for.

A computation works on the link states of the moment when it began, so what comes meanwhile does not
disturb it; the own tree is then computed again.
"""

from collections.abc import Generator, Iterator, Mapping
from typing import Final

import attrs

from router.routes.mesh.nouns import RouterId
from router.routes.mesh.tree import Branches, Denial, Tree, grow, prune

COALESCE_SECONDS: Final = 0.05
STEP_UNITS: Final = 40
"""Of ``tree.STEP_ROUTERS`` routers."""

DENIED_SECONDS: Final = 10.0
"""A link that one end alone claims for so long is a lie: hellos make both ends agree in 3 s."""

SLEPT_SECONDS: Final = 3.0
"""A router that did nothing for so long slept: awake, it greets its neighbors more often."""

OVERDUE_SECONDS: Final = 0.5
ASKED_MOST: Final = 1_024


@attrs.frozen
class Done:
    """A tree that was computed: the own one, or another origin's."""

    tree: Tree | None = None
    branches: Branches | None = None


@attrs.define(eq=False)
class Topology:
    """The trees of one router.

    Attributes:
        router: its id.
        tree: its own, as last computed.
        due_at: when the own tree is to be computed; None: it is up to date.
        denial_at: when a link that one end denies becomes a lie.
    """

    router: RouterId
    tree: Tree = attrs.field(init=False)
    due_at: float | None = attrs.field(default=None, init=False)
    denial_at: float | None = attrs.field(default=None, init=False)
    _running: Generator[None, None, Tree] | None = attrs.field(default=None, init=False)
    _asked: dict[RouterId, None] = attrs.field(factory=dict, init=False)
    _claims: Mapping[RouterId, Mapping[RouterId, int]] = attrs.field(factory=dict, init=False)
    _denied: dict[Denial, float] = attrs.field(factory=dict, init=False)
    _named: set[Denial] = attrs.field(factory=set, init=False)
    _awake_at: float = attrs.field(default=0.0, init=False)

    def __attrs_post_init__(self) -> None:
        self.tree = Tree(root=self.router, topology=0, costs={self.router: 0}, parents={}, hops={})

    def changed(self, now: float) -> None:
        """Records that a router's links have changed."""
        if self.due_at is None:
            self.due_at = now + COALESCE_SECONDS

    def ask(self, origin: RouterId) -> None:
        """Has the tree of another origin computed."""
        if len(self._asked) < ASKED_MOST:
            self._asked[origin] = None

    def is_due(self, now: float) -> bool:
        """Returns whether there is something to compute."""
        is_due = self.due_at is not None and now >= self.due_at
        return is_due or bool(self._asked) or self._running is not None

    def is_overdue(self, now: float) -> bool:
        """Returns whether the own tree has waited for other work for too long."""
        return self.due_at is not None and now - self.due_at >= OVERDUE_SECONDS

    def run(
        self, claims: Mapping[RouterId, Mapping[RouterId, int]], units: int, now: float
    ) -> Iterator[Done]:
        """Computes for some units; yields what is done."""
        while units > 0 and self.is_due(now):
            if self._running is None:
                self._running = self._start(claims, now)
            try:
                next(self._running)
            except StopIteration as stop:
                self._running = None
                yield self._done(stop.value, now)
            units -= STEP_UNITS

    def denied(self, now: float) -> list[Denial]:
        """Returns links that have become lies, each once.

        A router that slept has not read what was said meanwhile: it waits anew.
        """
        slept = now - self._awake_at >= SLEPT_SECONDS
        self._awake_at = now
        if slept and self._denied:
            self._denied = dict.fromkeys(self._denied, now)
            self._plan_denials()
        if self.denial_at is None or now < self.denial_at:
            return []
        lies = [one for one, since in self._denied.items() if now - since >= DENIED_SECONDS]
        fresh = [one for one in lies if one not in self._named]
        self._named.update(fresh)
        self._plan_denials()
        return fresh

    def _start(
        self, claims: Mapping[RouterId, Mapping[RouterId, int]], now: float
    ) -> Generator[None, None, Tree]:
        if self.due_at is not None and now >= self.due_at:
            self.due_at = None
            self._claims = dict(claims)
            return grow(self._claims, self.router, self.tree.topology + 1)
        origin = next(iter(self._asked))
        del self._asked[origin]
        return grow(self._claims, origin, self.tree.topology)

    def _done(self, tree: Tree, now: float) -> Done:
        if tree.root != self.router:
            return Done(branches=prune(tree, self.router))
        self.tree = tree
        self._note_denials(tree, now)
        return Done(tree=attrs.evolve(tree, denials=()))

    def _note_denials(self, tree: Tree, now: float) -> None:
        current = {one for one in tree.denials if one[1] in tree.costs}
        self._denied = {one: self._denied.get(one, now) for one in current}
        self._named &= current
        self._plan_denials()

    def _plan_denials(self) -> None:
        waiting = [since for one, since in self._denied.items() if one not in self._named]
        self.denial_at = min(waiting) + DENIED_SECONDS if waiting else None
