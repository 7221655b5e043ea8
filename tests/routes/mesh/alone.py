"""One router of a thousand, alone in its process: its memory, and its longest slice.

``python -m tests.routes.mesh.alone [ADDRESSES]`` prints one JSON object. A neighbor hands over what
999 sites say, each with 6 links, one prefix and some single addresses, through the octets of the
wire and with Ed25519 signatures; then single changes follow.

Slices are measured in time of the thread, so other processes of a busy machine do not count; what
the machine does to caches and frequency does.
"""

import gc
import json
import random
import resource
import sys
import time
from collections.abc import Callable, Iterator

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from router.core.mesh_octets import Codec10, decode_message, encode_message
from router.net.mesh_keys import KeyRing, KeySigner
from router.routes.mesh.bodies import Notary
from router.routes.mesh.events import MessageReceived, NeighborConnected, Order
from router.routes.mesh.mesh import Mesh, Settings
from router.routes.mesh.nouns import (
    Addresses,
    Body,
    Carried,
    Entries,
    Hello,
    Key,
    Kind,
    Links,
    Prefixes,
    RouterId,
    Version,
)
from router.routes.mesh.paths import Order as By
from router.routes.mesh.paths import Ways

ROUTERS = 1_000
DEGREE = 6
PATTERNS = 10
"""Of a site: 10^4 in all."""


class Alone:
    """The first router; it hears of all others through its neighbors."""

    def __init__(self, addresses: int) -> None:
        self._rng = random.Random(1)
        self.names = [RouterId(f"site-{number:04}.example") for number in range(ROUTERS)]
        self._keys = {one: Ed25519PrivateKey.generate() for one in self.names}
        ring = KeyRing({one: key.public_key() for one, key in self._keys.items()})
        self._codec, self._ring = Codec10(), ring
        self.links = self._links()
        self._addresses = addresses
        self._sequences = dict.fromkeys(self.names, 0)
        self._sent: dict[RouterId, int] = {}
        self.now = 0.0
        self.slices: list[float] = []
        self.me = self.names[0]
        self._notary = Notary(self._codec, KeySigner(self._keys[self.me]), ring)

    def _links(self) -> dict[RouterId, dict[RouterId, int]]:
        links: dict[RouterId, dict[RouterId, int]] = {one: {} for one in self.names}
        for at, one in enumerate(self.names):
            others = [
                self.names[(at + 1) % ROUTERS],
                *self._rng.sample(self.names, DEGREE // 2 - 1),
            ]
            for other in others:
                if one != other:
                    links[one][other] = links[other][one] = self._rng.randint(1, 20)
        return links

    def start(self) -> None:
        """Makes the router, and brings up its links."""
        settings = Settings(router=self.me, epoch=1, costs=self.links[self.me])
        self.mesh = Mesh(settings, self._notary, self.now)
        for neighbor in self.links[self.me]:
            self.mesh.handle(NeighborConnected(neighbor), self.now)
            self.mesh.handle(
                MessageReceived(neighbor, Hello(router=neighbor, epoch=1, heard=1)), self.now
            )
        self.work()

    def said(self, router: RouterId) -> Iterator[Carried]:
        """Yields what a site says."""
        yield self._sealed(router, Kind.LINKS, 0, Links(self.links[router]))
        patterns = tuple(f"{router}.service-{number}.#" for number in range(PATTERNS))
        yield self._sealed(router, Kind.PREFIXES, 0, Prefixes(patterns))
        parts: dict[int, list[str]] = {}
        for number in range(self._addresses):
            parts.setdefault(number % 16, []).append(f"queue.{router}.{number:04}")
        for part, listed in parts.items():
            yield self._sealed(router, Kind.ADDRESSES, part, Addresses(tuple(listed)))

    def hear(self, carried: list[Carried]) -> None:
        """Has a neighbor send entries, as octets."""
        neighbor = next(iter(self.links[self.me]))
        number = self._sent[neighbor] = self._sent.get(neighbor, 0) + 1
        octets = encode_message(Entries(number, tuple(carried)))
        self._slice(lambda: self._receive(neighbor, octets))
        self.work()

    def work(self) -> None:
        """Calls the router until it has nothing to do; keeps its neighbors alive."""
        self.now += 0.06
        for neighbor in self.links[self.me]:
            hello = Hello(
                router=neighbor, epoch=1, heard=1, digest=self.mesh._flood.database.digest
            )
            self.mesh.handle(MessageReceived(neighbor, hello), self.now)
        while self.mesh.deadline is not None and self.mesh.deadline <= self.now:
            self._slice(lambda: self.mesh.handle_deadline(self.now))

    def _receive(self, neighbor: RouterId, octets: bytes) -> list[Order]:
        message = decode_message(octets)
        assert not isinstance(message, str), message
        return self.mesh.handle(MessageReceived(neighbor, message), self.now)

    def _sealed(self, router: RouterId, kind: Kind, part: int, body: Body) -> Carried:
        self._sequences[router] += 1
        notary = Notary(self._codec, KeySigner(self._keys[router]), self._ring)
        version = Version(1, self._sequences[router])
        return Carried(notary.seal(Key(router, kind, part), version, body))

    def _slice(self, call: Callable[[], list[Order]]) -> None:
        begin = time.thread_time()
        call()
        self.slices.append(time.thread_time() - begin)


def resident() -> float:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * resource.getpagesize() / 1e6


def longest(slices: list[float]) -> dict[str, float]:
    ordered = sorted(slices)
    return {
        "slices": len(ordered),
        "longest_ms": round(ordered[-1] * 1e3, 2),
        "p99_ms": round(ordered[int(len(ordered) * 0.99)] * 1e3, 2),
        "mean_ms": round(sum(ordered) / len(ordered) * 1e3, 2),
    }


def measure(addresses: int) -> dict[str, object]:
    """Runs the router and returns the figures."""
    alone = Alone(addresses)
    said = [list(alone.said(router)) for router in alone.names[1:]]
    octets = [encode_message(Entries(1, tuple(one))) for one in said]
    del said
    gc.collect()
    gc.freeze()
    gc.disable()  # a router freezes what it has, too; a collection is no slice of the machine's
    before = resident()
    alone.start()
    for one in octets:
        message = decode_message(one)
        assert isinstance(message, Entries)
        alone.hear(list(message.carried))
        del message
    gc.enable()
    gc.collect()
    figures: dict[str, object] = {
        "routers": ROUTERS,
        "single_addresses": addresses * (ROUTERS - 1),
        "process_mb": round(resident(), 1),
        "of_which_before_mb": round(before, 1),
        "reached": len(alone.mesh.paths.tree.costs),
        "join": longest(alone.slices),
    }
    found = alone.mesh.paths.find(f"{alone.names[7]}.service-3.x", By.CLOSEST)
    assert isinstance(found, Ways), found
    gc.collect()
    gc.freeze()
    alone.slices.clear()
    rng = random.Random(2)
    for _ in range(100):
        router = rng.choice(alone.names[1:])
        alone.links[router][rng.choice(list(alone.links[router]))] = rng.randint(1, 20)
        alone.hear([alone._sealed(router, Kind.LINKS, 0, Links(alone.links[router]))])
    figures["change"] = longest(alone.slices)
    begin = time.thread_time()
    for _ in range(1_000):
        alone.mesh.paths.find(f"{rng.choice(alone.names)}.service-3.x", By.CLOSEST)
    figures["question_us"] = round((time.thread_time() - begin) * 1e3, 1)
    return figures


if __name__ == "__main__":
    print(json.dumps(measure(int(sys.argv[1]) if len(sys.argv) > 1 else 0)))
