"""Lives of an at-least-once route with ``store`` that chance makes, and the ledgers they leave.

The core with a journal, the store's engine and its process stand back to back. The connection to
the store is lost, the worker is killed, and the target goes, whenever chance says so; what the
target may have processed is counted, and so is what it certainly has.
"""

import itertools
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from router.core.settings import CoreSettings
from router.journal.block import open_block
from router.journal.block_writer import SealedBlock
from router.journal.keys import LinkKey
from router.journal.record import RecordKind, heap_strings, link_from_record
from router.model.outcome import RELEASED
from router.pipeline.schema import LEDGER, arrow_schema
from router.routes.route import Distribution, Endpoint, Guarantee, Route, Storing
from tests.support.journal import START_NS, FakeDisk
from tests.support.journaled import Journaled
from tests.support.ledgers import START_NS as DAY_NS
from tests.support.play import Peer, ReceiverEnd
from tests.support.store_peer import StoreHost, StorePeer

LIMITS = CoreSettings(router_id="dc1", link_credit=4, expiry_seconds=1, failover_seconds=1.0)
TARGETS = ("target", "other")
_ROW_NAMES = ("kind", "outcome", "guarantee", "protocol", "flags")


class StoredLife:
    """One router, one address, one sender.

    Attributes:
        seed: of its chances; with it go the kind of route and the number of targets.
        may: how often each target may have processed each message.
        surely: how often it has accepted it.
        sent: all messages.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.may: Counter[tuple[str, bytes]] = Counter()
        self.surely: Counter[tuple[str, bytes]] = Counter()
        self.sent: list[bytes] = []
        self.chance = random.Random(self.seed)
        count = self.chance.choice([1, 1, 2])
        self.route = Route(
            address="orders",
            to=tuple(Endpoint(name) for name in TARGETS[:count]),
            distribution=self.chance.choice([Distribution.BALANCED, Distribution.MULTICAST]),
            guarantee=Guarantee.AT_LEAST_ONCE,
            is_recorded=True,
            store=Storing(always=self.chance.random() < 0.5),
            dead_letter=Endpoint("target", "dead"),
        )
        self.play = Journaled(self.route, settings=LIMITS)
        self.host = StoreHost.begun(FakeDisk(), START_NS, START_NS)
        self.lives = itertools.count(1)
        self.numbers = itertools.count()
        self.peers: dict[str, Peer] = {}
        self.begin()

    @property
    def is_multicast(self) -> bool:
        """Whether each target gets each message."""
        return self.route.distribution is Distribution.MULTICAST

    def copies(self, counts: Counter[tuple[str, bytes]], message: bytes) -> int:
        """Returns how many copies of a message one receiver got, for all that it may tell."""
        each = [counts[name, message] for name in TARGETS]
        return max(each) if self.is_multicast else sum(each)

    def begin(self) -> None:
        """A worker begins to live."""
        self.peers.clear()
        self.connect()
        self.sender = self.play.connect("west").attach_sender("orders")
        self.work()

    def connect(self) -> None:
        """The store is there."""
        life = START_NS + next(self.lives)
        self.store = StorePeer.connected(self.play, self.host, life, self.route)

    def work(self) -> None:
        """The journal and the store do all that they can."""
        for _ in range(2):
            self.play.flush()
            self.store.settle()
            for peer in self.peers.values():
                while peer.asked:
                    peer.answer_receiver(credit=3)
        self.play.flush()

    def run(self, steps: int = 40) -> "StoredLife":
        """Lives; at the end everything that is stored arrives."""
        usual = [self.send, self.send, self.work, self.come, self.answer, self.answer, self.wait]
        doings = [*usual, *usual, self.give_back, self.go, self.lose_store, self.kill]
        for _ in range(steps):
            self.chance.choice(doings)()
        for _ in range(60):
            for name in TARGETS[: len(self.route.to)]:
                self.come(name)
            self.work()
            for end in self.ends():
                self.accept(end, list(end.unsettled))
                end.grant(3)
            self.play.wait(1.0)
        self.play.hand_in()
        return self

    def send(self) -> None:
        count = min(self.sender.credit, self.chance.randint(1, 3))
        messages = [b"%d/%d" % (self.seed, next(self.numbers)) for _ in range(count)]
        if messages:
            self.sent += messages
            self.sender.send(*messages)
            self.play.flush()

    def wait(self) -> None:
        self.play.wait(self.chance.choice([0.1, 1.0, 6.0]))
        self.store.tick()

    # Targets

    def come(self, name: str = "") -> None:
        name = name or self.chance.choice(TARGETS[: len(self.route.to)])
        if name not in self.peers:
            self.peers[name] = self.play.dial(name)
        self.work()

    def go(self) -> None:
        """A target is lost; what it has received it may have processed."""
        if self.peers:
            name = self.chance.choice(sorted(self.peers))
            self.count_received()
            self.peers.pop(name).lose()
            self.play.flush()

    def ends(self) -> list[ReceiverEnd]:
        """Returns the links to the targets."""
        return [end for peer in self.peers.values() for end in peer.receives.values()]

    def some(self) -> tuple[ReceiverEnd, list[Any]] | None:
        found = [end for end in self.ends() if end.unsettled]
        if not found:
            return None
        end = self.chance.choice(found)
        return end, list(end.unsettled)[: self.chance.randint(1, 3)]

    def answer(self) -> None:
        if (found := self.some()) is not None:
            self.accept(*found)
            found[0].grant(3)

    def accept(self, end: ReceiverEnd, numbers: list[Any]) -> None:
        for number in numbers:
            self.may[end.peer.container, end.bodies[number]] += 1
            self.surely[end.peer.container, end.bodies[number]] += 1
        if numbers:
            end.accept(*numbers)
        self.play.flush()

    def give_back(self) -> None:
        if (found := self.some()) is not None:
            end, numbers = found
            end.update(*numbers, state=RELEASED)
            self.play.flush()

    def count_received(self) -> None:
        """What no target has answered any of them may have processed."""
        for end in self.ends():
            self.may.update((end.peer.container, end.bodies[number]) for number in end.unsettled)
            end.unsettled.clear()

    # What goes wrong

    def lose_store(self) -> None:
        """The connection to the store is lost; what was written for it may arrive."""
        if self.chance.random() < 0.7:
            self.store.hand_in()
        self.store.leave()
        self.store.lose()
        self.connect()
        self.play.flush()

    def kill(self) -> None:
        """The worker is killed; what it has written for the store may arrive."""
        self.count_received()
        self.store.is_deaf = True
        if self.chance.random() < 0.7:
            self.store.hand_in()
        self.store.leave()
        self.play = self.play.crash()
        self.begin()

    # What is left

    def ledger(self, folder: Path) -> dict[tuple[int, int], bytes]:
        """Writes the ledger, as that of a router of its own; gives each delivery's message."""
        router, mark = f"r{self.seed}", random.Random(self.seed).getrandbits(63)
        rows = list(_rows(self.play.blocks, router, mark))
        schema = arrow_schema(LEDGER)
        place = folder / "date=2026-03-31" / f"router={router}"
        place.mkdir(parents=True)
        table = pa.Table.from_pylist(rows, schema=schema)
        pq.write_table(table, place / f"{1:016d}-00000000.parquet")
        senders = {row["incoming"] for row in rows if row["container"] == "west"}
        received = [
            (row["key_high"], row["key_low"])
            for row in rows
            if row["kind"] == RecordKind.RECEIVED and row["incoming"] in senders
        ]
        return dict(zip(received, self.sent, strict=True))


def _rows(blocks: list[SealedBlock], router: str, mark: int) -> Iterator[dict[str, Any]]:
    """Gives the ledger's rows; keys and links are told from those of other lives by a mark."""
    nothing = {each.name: None if each.nullable else 0 for each in arrow_schema(LEDGER)}

    def signed(number: int) -> int:
        number = (number ^ mark) if number else 0
        return number - (1 << 64) if number >> 63 else number

    for sealed in blocks:
        block = open_block(memoryview(sealed.octets))
        for sequence, row in enumerate(block.unpacked_rows(), block.first_sequence):
            made = {
                **nothing,
                **dict(zip(_ROW_NAMES, row, strict=False)),
                "time": (DAY_NS + row[6]) // 1000,
                "time_ns": row[6],
                "worker": block.origin.worker,
                "incarnation": block.origin.incarnation,
                "sequence": sequence,
                "key_high": signed(int.from_bytes(row[7][:8], "big")),
                "key_low": signed(int.from_bytes(row[7][8:], "big")),
                "incoming": signed(row[8]),
                "outgoing": signed(row[9]),
            }
            if row[0] == RecordKind.LINK_ATTACHED:
                body = heap_strings(row, block.heap)[2]
                link = link_from_record(LinkKey(row[8]), LinkKey(row[9]), body)
                made |= {
                    "container": link.remote.replace("dc1/", f"{router}/"),
                    "link_name": link.name,
                    "local": router,
                    "address": link.address,
                }
            yield made
