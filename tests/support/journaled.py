"""Plays in which the core writes a journal, which flushes when it is told to, and crashes."""

from collections.abc import Callable, Iterator, Mapping
from typing import Self

from router.core.homes import Homes
from router.core.policy import OPEN, Policy
from router.core.settings import ContainerTerms, CoreSettings
from router.journal.block import open_block, seal_block
from router.journal.block_writer import SealedBlock
from router.journal.keys import LinkKey
from router.journal.memory import Memory
from router.journal.record import ROW
from router.journal.unsettled import Unsettled
from router.journal.writer import RecordWriter
from router.model.capabilities import Protocol
from router.model.identity import DeliveryKey
from router.model.outcome import DeliveryState
from router.model.trace import Joined
from router.routes.route import Guarantee, Route
from router.wire.tracing import join
from router.wire.v1_0.express import Express
from router.wire.v1_0.tables import decode_state, encode_state
from tests.support.play import Play

EPOCH_NS = 1_763_000_000 * 1_000_000_000
EXACT = Route(address="orders", guarantee=Guarantee.EXACTLY_ONCE)


def id_in_payload(protocol: Protocol, payload: bytes, name: str) -> bytes | None:
    """Finds the id of payloads like ``id=7 …``."""
    word = payload.split(b" ")[0]
    return word if word.startswith(b"id=") else None


def put_id(
    protocol: Protocol, payload: bytes, name: str, key: bytes
) -> tuple[Protocol, bytes] | None:
    """Puts ids into such payloads."""
    if id_in_payload(protocol, payload, name) is not None:
        return None
    return protocol, b"id=%s %s" % (key.hex().encode(), payload)


def _join_trace(
    protocol: Protocol, payload: bytes, identity: bytes, always: bool, is_whole: bool
) -> Joined | None:
    return join(protocol, payload, identity, always=always, is_whole=is_whole)


def decode(octets: bytes) -> DeliveryState:
    return decode_state(octets, 0, len(octets))[0]


class Journaled(Play):
    """A play whose core writes down what exactly-once routes need.

    Attributes:
        writer: of this life.
        blocks: that all lives have handed in, oldest first.
        is_clouded: a crash finds that records are missing.
        has_store: there is a message store, and each life waits for what that has.
        settle_all: lets the other workers do what an attach that leads through to them waits for.
    """

    is_clouded = False
    has_store = False
    settle_all: Callable[[], None] | None = None

    def __init__(
        self,
        *routes: Route | str,
        blocks: tuple[SealedBlock, ...] = (),
        settings: CoreSettings | None = None,
        frame_octets: int = 0,
        express: Express | None = None,
        policy: Policy = OPEN,
        terms: Mapping[str, ContainerTerms] | None = None,
        containers: frozenset[str] | None = None,
        homes: Homes | None = None,
    ) -> None:
        super().__init__(
            *routes,
            settings=settings,
            frame_octets=frame_octets,
            express=express,
            policy=policy,
            terms=terms,
            containers=containers,
            homes=homes,
        )
        self.routes = routes
        self._containers, self._homes = containers, homes
        self.blocks = list(blocks)
        self.writer = RecordWriter(worker=0, incarnation=1 + len(blocks))
        self.core.journal(
            self.writer,
            EPOCH_NS,
            identify=id_in_payload,
            give_id=put_id,
            encode=encode_state,
            join_trace=_join_trace,
        )

    def keep_store(self, now: float) -> None:
        """Expects a message store, which says what it has when it is connected."""
        self.has_store = True
        self.core.await_store(now)

    def hand_in(self) -> None:
        """The journal's process has what was written so far."""
        self.blocks += self.writer.take_blocks()

    @property
    def durable(self) -> int:
        """Sequence number of the last record of this life that is durable."""
        return self.core._turn.gate.durable

    def flush(self) -> None:
        """The journal makes everything durable, and says so.

        What waited for a connection that has gone meanwhile is void, as for the switchboard.
        """
        self.hand_in()
        orders = self.core.durable(self.writer.next_sequence - 1, self.now)
        self.carry_out([each for each in orders if not self.peers[each[0]].is_lost])

    def pass_on(self) -> None:
        self.flush()
        if self.settle_all is not None:
            self.settle_all()

    def crash(self, *, loses_unhanded: bool = False, keeps: int | None = None) -> Self:
        """Kills the worker; gives the next life, which knows what was handed in.

        Args:
            loses_unhanded: what was not handed in is lost.
            keeps: sequence number of the last record of this life that is not lost; None: all.
        """
        if not loses_unhanded:
            self.hand_in()
        blocks = self.blocks if keeps is None else list(self._cut(keeps))
        following = type(self)(
            *self.routes,
            blocks=tuple(blocks),
            settings=self.settings,
            containers=self._containers,
            homes=self._homes,
        )
        following.frame_octets, following.settle_all = self.frame_octets, self.settle_all
        if self.has_store:
            following.keep_store(self.now)
        memory = following.memory()
        if self.is_clouded:
            memory.cloud()
        following.now, following._tokens = self.now, self._tokens  # never the same twice
        following.core.restore(
            memory.oldest_first(),
            memory.links,
            following.now,
            decode=decode,
            numbers=memory.numbers,
        )
        return following

    def _cut(self, last_sequence: int) -> Iterator[SealedBlock]:
        """Gives what was handed in, without the records of this life behind ``last_sequence``."""
        for sealed in self.blocks:
            block = open_block(memoryview(sealed.octets))
            if block.origin.incarnation != self.writer.incarnation:
                yield sealed
                continue
            rows = max(0, min(block.row_count, last_sequence - block.first_sequence + 1))
            octets = seal_block(
                block.rows[: rows * ROW.size],
                block.heap,
                first_sequence=block.first_sequence,
                worker=block.origin.worker,
                incarnation=block.origin.incarnation,
                flags=block.flags,
            )
            yield SealedBlock(octets, block.first_sequence + rows - 1)

    def memory(self) -> Memory:
        """Replays what was handed in."""
        memory = Memory()
        for sealed in self.blocks:
            memory.apply(open_block(memoryview(sealed.octets)))
        memory.make()
        return memory

    def remembered(self) -> Mapping[tuple[LinkKey, DeliveryKey], Unsettled]:
        """What a crash at this moment would leave."""
        self.hand_in()
        return self.memory().deliveries
