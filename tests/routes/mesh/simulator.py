"""Routers of a mesh in simulated time: delays, losses, cuts, silence, partitions, restarts, pauses.

Messages go from machine to machine as records, or through the octets of the wire (``octets=True``).
Signatures are keyed hashes unless others are given: a thousand routers check a million of them.
"""

import hashlib
import heapq
import itertools
import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache

import attrs

from router.core.mesh_octets import Codec10, decode_message, encode_message
from router.routes.mesh.bodies import Bad, Notary
from router.routes.mesh.events import (
    CloseConnection,
    Event,
    MessageReceived,
    NeighborConnected,
    NeighborLost,
    Order,
    RouterRefused,
    SendMessage,
)
from router.routes.mesh.mesh import Mesh, Settings
from router.routes.mesh.nouns import AnyBody, Body, Entry, Hello, Key, Message, RouterId, Version
from router.routes.mesh.policy import Policy
from router.routes.mesh.tree import Tree, grow

DIAL_SECONDS = 0.2
"""After a lost connection the shell dials again so much later, if the link is there."""


def name(number: int) -> RouterId:
    return RouterId(f"r{number:04}")


@lru_cache(maxsize=4096)
def secret(router: RouterId) -> bytes:
    return hashlib.blake2b(router.encode(), digest_size=32).digest()


@attrs.frozen
class HashSigner:
    router: RouterId

    def sign(self, octets: bytes) -> bytes:
        return hashlib.blake2b(octets, key=secret(self.router), digest_size=16).digest()


class HashVerifier:
    def verify(self, origin: RouterId, octets: bytes, signature: bytes) -> bool:
        return HashSigner(origin).sign(octets) == signature


class SharedNotary(Notary):
    """Opens each entry once for all simulated routers, which saves hours and gigabytes."""

    opened: dict[Entry, AnyBody | Bad]

    def open(self, entry: Entry) -> AnyBody | Bad:
        known = self.opened.get(entry)
        if known is None:
            if len(self.opened) > 20_000:
                self.opened.clear()
            known = self.opened[entry] = super().open(entry)
        return known


def notary_for(router: RouterId, opened: dict[Entry, AnyBody | Bad] | None = None) -> Notary:
    if opened is None:
        return Notary(Codec10(), HashSigner(router), HashVerifier())
    notary = SharedNotary(Codec10(), HashSigner(router), HashVerifier())
    notary.opened = opened
    return notary


def forge(key: Key, version: Version, body: Body, signer: RouterId) -> Entry:
    """Makes an entry that somebody signs who may not be its origin."""
    return notary_for(signer).seal(key, version, body)


@attrs.define(eq=False)
class Node:
    """One router.

    Attributes:
        mesh: its machine; replaced by a restart.
        settings: with which it starts.
        wakes_at: for which its timer is set.
        paused: what has come while it does not run; None: it runs.
        orders: those that are no messages, each with the time.
    """

    mesh: Mesh
    settings: Settings
    wakes_at: float | None = None
    paused: list[tuple[Event, "Link | None", int]] | None = None
    orders: list[tuple[float, Order]] = attrs.field(factory=list)

    def of(self, kind: type[Order]) -> list[Order]:
        return [order for _, order in self.orders if isinstance(order, kind)]


@attrs.define(eq=False)
class Link:
    """A way for connections between two routers.

    Attributes:
        ends: both.
        delay: seconds.
        loss: probability that a message is lost, though the connection stays.
        is_silent: messages vanish and nobody hears of it.
        is_cut: there is no way.
        life: counts connections; what an earlier one carried does not arrive.
        is_open: whether there is a connection.
        dialed_at: when it was last opened or is to be.
    """

    ends: tuple[RouterId, RouterId]
    delay: float
    loss: float = 0.0
    is_silent: bool = False
    is_cut: bool = False
    life: int = 0
    is_open: bool = False
    last: dict[RouterId, float] = attrs.field(factory=dict)


class Simulator:
    """A mesh and its clock."""

    def __init__(self, seed: int = 0, *, octets: bool = False, measure: bool = False) -> None:
        self.random = random.Random(seed)
        self.now = 1000.0
        self.nodes: dict[RouterId, Node] = {}
        self.links: dict[tuple[RouterId, RouterId], Link] = {}
        self.messages: Counter[tuple[RouterId, RouterId]] = Counter()
        self.kinds: Counter[str] = Counter()
        self.slices: list[float] = []
        self.floods = True  # False: hellos alone get through
        self.steps, self.steps_most = 0, 100_000_000
        self._octets = octets
        self._measure = measure
        self._opened: dict[Entry, AnyBody | Bad] = {}
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._count = itertools.count()

    # Building

    def add(
        self,
        router: RouterId,
        *,
        epoch: int = 1,
        advertise: tuple[str, ...] = (),
        policy: Policy | None = None,
    ) -> Node:
        settings = Settings(
            router=router,
            epoch=epoch,
            advertise=advertise,
            policy=Policy.parse({}) if policy is None else policy,
        )
        node = Node(self._start(settings), settings)
        self.nodes[router] = node
        self._schedule(router)
        return node

    def join(self, one: RouterId, other: RouterId, cost: int = 10, delay: float = 0.01) -> Link:
        """Joins two routers; both give the link the same cost."""
        for end, far in ((one, other), (other, one)):
            node = self.nodes[end]
            node.settings = attrs.evolve(node.settings, costs={**node.settings.costs, far: cost})
            node.mesh._costs = node.settings.costs  # as its configuration had it from the start
        link = Link((one, other), delay)
        self.links[one, other] = link
        self.at(0.0, lambda: self._dial(link))
        return link

    def link(self, one: RouterId, other: RouterId) -> Link:
        return self.links.get((one, other)) or self.links[other, one]

    def links_of(self, router: RouterId) -> list[Link]:
        return [link for link in self.links.values() if router in link.ends]

    # Events

    def cut(self, link: Link) -> None:
        """Cuts a link: both ends see a reset."""
        link.is_cut = True
        self._close(link)

    def mend(self, link: Link) -> None:
        """Ends a cut or silence; a connection that has lost octets does not go on."""
        if link.is_silent:
            self._close(link)
        link.is_cut = link.is_silent = False
        self._dial(link)

    def restart(self, router: RouterId, epoch: int | None = None) -> None:
        """Kills a router and starts it with a later epoch, or with one of its choice."""
        node = self.nodes[router]
        for link in self.links_of(router):
            self._close(link, only=self._far(link, router))
        epoch = node.settings.epoch + 1 if epoch is None else epoch
        node.settings = attrs.evolve(node.settings, epoch=epoch)
        node.mesh, node.paused, node.wakes_at = self._start(node.settings), None, None
        self._schedule(router)
        for link in self.links_of(router):
            self.at(DIAL_SECONDS, lambda link=link: self._dial(link))  # type: ignore[misc]

    def pause(self, router: RouterId) -> None:
        self.nodes[router].paused = []

    def resume(self, router: RouterId) -> None:
        node = self.nodes[router]
        waiting, node.paused = node.paused or [], None
        self._call(router, lambda: node.mesh.handle_deadline(self.now))
        for event, link, life in waiting:
            # What came on a connection that this router has closed meanwhile is not read.
            if link is None or link.life == life or isinstance(event, NeighborLost):
                self.tell(router, event, link)

    def tell(self, router: RouterId, event: Event, link: "Link | None" = None) -> None:
        """Gives an event to a router, now; of a link: an event of its connection."""
        node = self.nodes[router]
        if node.paused is not None:
            node.paused.append((event, link, link.life if link is not None else 0))
            return
        self._call(router, lambda: node.mesh.handle(event, self.now))

    def at(self, seconds: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._queue, (self.now + seconds, next(self._count), action))

    def run(self, seconds: float, until: Callable[[], bool] | None = None) -> bool:
        """Lets time go by; returns whether ``until`` has come true."""
        end = self.now + seconds
        while self._queue and self._queue[0][0] <= end:
            self.now, _, action = heapq.heappop(self._queue)
            action()
            self.steps += 1
            assert self.steps <= self.steps_most, "the routers do not come to rest"
            if until is not None and until():
                return True
        self.now = end
        return until is not None and until()

    # What is true

    def true_claims(self) -> dict[RouterId, dict[RouterId, int]]:
        claims: dict[RouterId, dict[RouterId, int]] = {one: {} for one in self.nodes}
        for link in self.links.values():
            one, other = link.ends
            if link.is_open and not link.is_silent:
                claims[one][other] = self.nodes[one].settings.costs[other]
                claims[other][one] = self.nodes[other].settings.costs[one]
        return claims

    def wrong(self, among: Iterable[RouterId] | None = None) -> list[RouterId]:
        """Returns the routers whose own tree is not that of the true links."""
        claims = self.true_claims()
        wrong = []
        for router in self.nodes if among is None else among:
            tree = self.nodes[router].mesh.paths.tree
            true = true_tree(claims, router)
            if tree.costs != true.costs or tree.hops != true.hops:
                wrong.append(router)
        return wrong

    def loops(self) -> list[tuple[RouterId, RouterId]]:
        """Returns (from, to) of next hops that do not lead there."""
        found = []
        for start, node in self.nodes.items():
            for egress in node.mesh.paths.tree.hops:
                at, passed = start, 0
                while at != egress and passed <= len(self.nodes):
                    hops = self.nodes[at].mesh.paths.tree.hops
                    if egress not in hops:
                        break
                    at, passed = hops[egress], passed + 1
                if at != egress:
                    found.append((start, egress))
        return found

    def digests(self) -> set[int]:
        return {node.mesh._flood.database.digest for node in self.nodes.values()}

    def refused(self) -> list[tuple[RouterId, RouterRefused]]:
        return [
            (router, order)
            for router, node in self.nodes.items()
            for _, order in node.orders
            if isinstance(order, RouterRefused)
        ]

    # Inner works

    def _start(self, settings: Settings) -> Mesh:
        return Mesh(settings, notary_for(settings.router, self._opened), self.now)

    def _dial(self, link: Link) -> None:
        if link.is_cut or link.is_open:
            return
        link.is_open, link.life = True, link.life + 1
        for end in link.ends:
            link.last[end] = self.now
            self.tell(end, NeighborConnected(self._far(link, end)), link)

    def _close(self, link: Link, only: RouterId | None = None) -> None:
        if link.is_open:
            link.is_open, link.life = False, link.life + 1
            for end in link.ends:
                if only in (None, end):
                    self.tell(end, NeighborLost(self._far(link, end)), link)
            self.at(DIAL_SECONDS, lambda: self._dial(link))

    def _far(self, link: Link, end: RouterId) -> RouterId:
        return link.ends[1] if link.ends[0] == end else link.ends[0]

    def _call(self, router: RouterId, call: Callable[[], list[Order]]) -> None:
        if self._measure:
            begin = time.thread_time()
            orders = call()
            self.slices.append(time.thread_time() - begin)
        else:
            orders = call()
        for order in orders:
            match order:
                case SendMessage(neighbor, message):
                    self._send(router, neighbor, message)
                case CloseConnection(neighbor):
                    link = self.links.get((router, neighbor)) or self.links.get((neighbor, router))
                    self.nodes[router].orders.append((self.now, order))
                    if link is not None:
                        self._close(link)
                case _:
                    self.nodes[router].orders.append((self.now, order))
        self._schedule(router)

    def _send(self, router: RouterId, neighbor: RouterId, message: Message) -> None:
        link = self.links.get((router, neighbor)) or self.links.get((neighbor, router))
        if link is None or not link.is_open:
            return
        kind = type(message).__name__
        self.kinds[kind] += 1
        if not isinstance(message, Hello):
            if not self.floods:
                return
            self.messages[link.ends] += 1
        # A connection does not lose its first message; hellos are not lost, but silenced.
        is_lost = not isinstance(message, Hello) and self.random.random() < link.loss
        if link.is_silent or is_lost:
            return
        if self._octets:
            decoded = decode_message(encode_message(message))
            assert decoded == message, decoded
        # A connection keeps the order of what it carries, however the delay varies.
        arrives = max(link.last[router], self.now + link.delay * self.random.uniform(0.5, 1.5))
        link.last[router] = arrives
        life = link.life

        def arrive() -> None:
            if link.life == life:
                self.tell(neighbor, MessageReceived(router, message), link)

        self.at(arrives - self.now, arrive)

    def _schedule(self, router: RouterId) -> None:
        node = self.nodes[router]
        deadline = node.mesh.deadline
        if deadline is None or (node.wakes_at is not None and node.wakes_at <= deadline):
            return
        node.wakes_at = deadline

        def wake() -> None:
            if node.wakes_at == deadline:
                node.wakes_at = None
                if node.paused is None:
                    mesh = node.mesh
                    self._call(router, lambda: mesh.handle_deadline(self.now))

        # A slice takes time, so other events come between two of them.
        self.at(max(deadline - self.now, 0.0005), wake)


def true_tree(claims: Mapping[RouterId, Mapping[RouterId, int]], root: RouterId) -> Tree:
    steps = grow(claims, root, 0)
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            tree: Tree = stop.value
            return tree


def mesh_of(
    size: int, degree: int, seed: int = 0, *, costs: tuple[int, int] = (1, 20), **options: bool
) -> Simulator:
    """Makes a connected random mesh: a ring, and random links up to a mean degree."""
    simulator = Simulator(seed, **options)
    for number in range(size):
        simulator.add(name(number), advertise=(f"{name(number)}.#",))
    rng = simulator.random
    pairs = {(number, (number + 1) % size) for number in range(size)} if size > 2 else {(0, 1)}
    while len(pairs) < min(size * degree // 2, size * (size - 1) // 2):
        one, other = sorted(rng.sample(range(size), 2))
        if (other, one) not in pairs:
            pairs.add((one, other))
    for one, other in sorted(pairs):
        simulator.join(name(one), name(other), rng.randint(*costs), rng.uniform(0.002, 0.03))
    return simulator
