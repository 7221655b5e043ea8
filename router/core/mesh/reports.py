"""The paths of the mesh at several workers: one has them, and the others are told.

One worker, the mesh's home, has the control plane and the connections to other sites. It reports to
the others which sites it reaches, at which cost, and who serves which addresses, as entries of its
advertisements (``network``)::

    SITE          name: the router    amount: the cost    routers: the next hop; none: itself
    SERVED        name: the router, a space, a pattern that it serves
    SERVED_ALONE  name: the router, a space, a single address that it serves

An id has no space. Only what changes is sent: a change of one site's prefixes is an entry for each
prefix, one of the topology an entry for each site whose cost or hop is another one.

Reports of a large mesh are made in slices.

An edge has no paths: its home says instead that it receives all addresses, while it has an uplink.

So each worker answers for its own nodes and chooses the egress (``ways``); the first hop of its
chains is the home, where each is a transit. The home's own nodes have chains of their own beside.

When the home dies, its reports stay in force, and chains wait for it as for a container that is
away. Its next life begins with its own entry. What it has not reported again ``SETTLE_SECONDS``
later is forgotten: by then it has met its neighbors.
"""

from collections import deque
from collections.abc import Callable
from typing import Final

from router.core.alarms import Alarm
from router.core.mesh.control import SLICE_SECONDS, Control
from router.core.network import PATTERN, SERVED, SERVED_ALONE, SITE, Entry, Key, Network
from router.core.state import State
from router.routes.match import parse_pattern
from router.routes.mesh.nouns import RouterId
from router.routes.mesh.paths import Paths
from router.routes.mesh.prefixes import Index
from router.routes.mesh.site import Site
from router.routes.mesh.tree import Tree

SETTLE_SECONDS: Final = 15.0
"""Dialing neighbors takes 5 s at most (``service.config.neighbors``), and comparing a few more."""

SITES_IN_SLICE: Final = 100
"""Sites whose ways are compared, and reported, at a time: some 0.3 ms."""

COALESCE_SECONDS: Final = 0.005
"""From the first report of a run until nodes ask again."""


class PathReporter:
    """Reports the paths of this worker's mesh to the others."""

    def __init__(self, state: State, network: Network, control: Control) -> None:
        self._alarms = state.alarms
        self._turn = state.turn
        self._network = network
        self._control = control
        self._topology = -1
        self._sites: dict[RouterId, Entry] = {}
        self._waiting: deque[RouterId] = deque()
        self._alarm: Alarm | None = None
        self._is_claimed = False
        control.followers.append(self._paths_changed)

    def begin(self) -> None:
        """Follows the mesh that this worker has just joined."""
        if self._control.mesh is not None:
            self._control.mesh.paths.index.watch = self._serves
            self._paths_changed()

    def _serves(self, text: str, is_pattern: bool, site: RouterId, is_there: bool) -> None:
        key = (SERVED if is_pattern else SERVED_ALONE, f"{site} {text}")
        self._network.publish(key, Entry(*key) if is_there else None)

    def _paths_changed(self) -> None:
        if self._control.mesh is None:
            self._claim_all()
            return
        tree = self._control.mesh.paths.tree
        if self._network.is_alone or tree.topology == self._topology:
            return
        self._topology = tree.topology
        gone = (site for site in self._sites if site not in tree.costs)
        self._waiting = deque((*tree.costs, *gone))  # this router comes first
        self._report()

    def _report(self) -> None:
        """Reports what has changed of some sites; the others follow."""
        assert self._control.mesh is not None
        self._alarms.cancel(self._alarm)
        self._alarm = None
        tree = self._control.mesh.paths.tree
        for _ in range(min(SITES_IN_SLICE, len(self._waiting))):
            site = self._waiting.popleft()
            hops = (tree.hops[site],) if site in tree.hops else ()
            entry = Entry(SITE, site, tree.costs[site], hops) if site in tree.costs else None
            if self._sites.get(site) == entry:
                continue
            if entry is None:
                del self._sites[site]
            else:
                self._sites[site] = entry
            self._network.publish((SITE, site), entry)
        if self._waiting:
            self._alarm = self._alarms.set(self._turn.now + SLICE_SECONDS, self._report)

    def _claim_all(self) -> None:
        """Has the other workers of an edge send here what is for its hub: the default route."""
        assert self._control.edge is not None
        is_up = self._control.edge.active is not None
        if is_up is self._is_claimed:
            return
        self._is_claimed = is_up
        change = self._network.claim if is_up else self._network.unclaim
        change((PATTERN, "#"))


class ReportedPaths:
    """The paths of the mesh as another worker reports them.

    Attributes:
        paths: None: there is no mesh, as far as is known.
        place: name of the worker that has the connections; None: there was none yet.
        on_paths: called when the answers of ``paths`` may have changed.
    """

    def __init__(self, state: State) -> None:
        self._alarms = state.alarms
        self._turn = state.turn
        self._router = RouterId(state.settings.router_id)
        self._index = Index()
        self._costs: dict[RouterId, int] = {}
        self._hops: dict[RouterId, RouterId] = {}
        self._lives: dict[Key, int] = {}
        self._life = 0
        self._sweep: Alarm | None = None
        self._news: Alarm | None = None
        self.paths: Paths | None = None
        self.place: str | None = None
        self.on_paths: Callable[[], None] = _ignore

    def take(self, entry: Entry | None, key: Key, sibling: str) -> None:
        """Handles an entry of another worker; None: it is gone."""
        kind, name = key
        if entry is None:
            if self._lives.pop(key, None) is not None:
                self._forget(key)
        else:
            if kind == SITE and name == self._router:
                self._begin(sibling)
            is_new = key not in self._lives
            self._lives[key] = self._life
            self._know(entry, is_new=is_new)
        if self._news is None:
            self._news = self._alarms.set(self._turn.now + COALESCE_SECONDS, self._tell)

    def _begin(self, sibling: str) -> None:
        """Begins a life of the home, whose entry for itself comes first."""
        self.place = sibling
        self._life += 1
        if self.paths is None:
            tree = Tree(
                root=self._router, topology=0, costs=self._costs, parents={}, hops=self._hops
            )
            self.paths = Paths(Site(self._router, 0), self._index, tree, _ignore)
        self._alarms.cancel(self._sweep)
        self._sweep = self._alarms.set(self._turn.now + SETTLE_SECONDS, self._forget_old)

    def _know(self, entry: Entry, *, is_new: bool) -> None:
        kind, name = entry.key
        if kind == SITE:
            site = RouterId(name)
            self._costs[site] = entry.amount
            for hop in entry.routers:
                self._hops[site] = RouterId(hop)
        elif is_new:
            served, _, text = name.partition(" ")
            if kind == SERVED:
                self._index.add_pattern(parse_pattern(text), RouterId(served))
            else:
                self._index.add_address(text, RouterId(served))

    def _forget(self, key: Key) -> None:
        kind, name = key
        if kind == SITE:
            self._costs.pop(RouterId(name), None)
            self._hops.pop(RouterId(name), None)
            return
        served, _, text = name.partition(" ")
        if kind == SERVED:
            self._index.remove_pattern(parse_pattern(text), RouterId(served))
        else:
            self._index.remove_address(text, RouterId(served))

    def _forget_old(self) -> None:
        """Forgets what the home has reported in earlier lives alone."""
        self._sweep = None
        for key in [key for key, life in self._lives.items() if life != self._life]:
            del self._lives[key]
            self._forget(key)
        self._tell()

    def _tell(self) -> None:
        self._alarms.cancel(self._news)
        self._news = None
        self.on_paths()


def _ignore(*news: object) -> None:
    """Stands for nobody who wants to know, and for trees of other origins: none is needed here."""
