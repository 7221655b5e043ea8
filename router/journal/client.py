"""The worker's half of the journal: accepts records, sends blocks, reports durability. Sans-I/O.

    RecordWriter -- blocks --> unsent --> sent, not durable --> forgotten
                               |<------- kept here ------->|

A block is kept until the journal has confirmed that it is durable. When the connection is lost, or
the journal's process dies, the kept blocks are sent again over the next connection, from the first
record that the journal does not have: nothing is lost while the worker lives.

    state     entered by                     data_to_send shows
    LOST      the start; connection_lost     nothing
    GREETING  connection_made                the HELLO block
    OPEN      the journal's first reply      blocks, as far as there are any
    REFUSED   a refusal                      nothing; ``refusal`` says why

The start time of a worker's life identifies it. If the clock was set back, a new life looks older
than the last one, and the journal refuses it. A client that was never admitted then takes the
number after the one that the journal names, and sends HELLO again. A client that was admitted
before has a successor, and does not reconnect.

The caller bounds the waiting records: while ``is_over_budget``, it should grant senders no more
credit. Records of deliveries that were already received are always accepted.
"""

import enum
import os
from collections import deque
from itertools import islice
from typing import Final

from router.errors import MisuseError, RouterError
from router.journal.block import Origin
from router.journal.block_writer import SealedBlock
from router.journal.protocol import REFUSED, REPLY, Health, Refusal, hello_block
from router.journal.writer import RecordWriter

BUDGET_OCTETS: Final = 16 << 20
"""Some 200,000 records without payload."""


class ClientState(enum.Enum):
    """See the table of the module."""

    LOST = "lost"
    GREETING = "greeting"
    OPEN = "open"
    REFUSED = "refused"


class JournalReplyError(RouterError):
    """The other end of the socket is no journal, or a broken one; drop the connection."""


class JournalClient:
    """Sends the records of one worker to the journal's process.

    Attributes:
        records: appends records; each of its methods returns a sequence number.
        state: see the table of the module.
        durable_sequence: all records up to this one are durable.
        health: the journal's health in its last reply.
        errno: the journal's last error number, 0 while it writes.
        refusal: the journal's refusal, if any.
        lost_records: records that the journal reported durable and no longer has.
    """

    def __init__(
        self, *, router: str, worker: int, incarnation: int, budget_octets: int = BUDGET_OCTETS
    ) -> None:
        """Begins without a connection.

        Args:
            router: id of the router.
            worker: number of the worker.
            incarnation: larger than in any earlier life of that worker: its start in nanoseconds.
            budget_octets: octets that may wait here before ``is_over_budget``.
        """
        self.records = RecordWriter(worker=worker, incarnation=incarnation)
        self.state = ClientState.LOST
        self.durable_sequence = 0
        self.health = Health.WRITING
        self.errno = 0
        self.refusal: Refusal | None = None
        self.lost_records = 0
        self._router = router
        self._origin = Origin(worker, incarnation)
        self._budget_octets = budget_octets
        self._kept: deque[SealedBlock] = deque()
        self._kept_octets = 0
        self._sent_blocks = 0
        self._was_open = False
        self._outgoing = memoryview(b"")
        self._incoming = b""

    @property
    def disk_trouble(self) -> str | None:
        """Why the journal cannot write, as it said last; None: it can."""
        if self.health is Health.WRITING:
            return None
        return os.strerror(self.errno) if self.errno else self.health.name.lower()

    @property
    def router(self) -> str:
        """Id of the router."""
        return self._router

    @property
    def appended_sequence(self) -> int:
        """Sequence number of the last appended record; 0: none was appended."""
        return self.records.next_sequence - 1

    @property
    def waiting_octets(self) -> int:
        """Octets that are not durable yet, with headers."""
        return self._kept_octets + self.records.open_octets

    @property
    def unsent_octets(self) -> int:
        """Octets that are to be sent over the present connection."""
        blocks = islice(self._kept, self._sent_blocks, None)
        unsent = sum(len(block.octets) for block in blocks) + self.records.open_octets
        return len(self._outgoing) + unsent

    @property
    def is_over_budget(self) -> bool:
        """Whether more octets wait here than should; grant no credit meanwhile."""
        return self.waiting_octets > self._budget_octets

    def append(self, rows: bytes | memoryview, heap: bytes | memoryview = b"") -> int:
        """Appends packed rows, see ``RecordWriter.append_rows``; returns the last one's number."""
        return self.records.append_rows(rows, heap)

    def connection_made(self) -> None:
        """Records that a socket to the journal is connected."""
        if self.state is not ClientState.LOST:
            raise MisuseError(f"connection_made while {self.state.value}")
        self.state = ClientState.GREETING
        self._outgoing = memoryview(
            hello_block(self._router, self._origin, self.durable_sequence + 1)
        )

    def connection_lost(self) -> None:
        """Handles the loss of the socket; records not durable yet are kept for the next one."""
        self.state = ClientState.LOST
        self._outgoing = memoryview(b"")
        self._incoming = b""
        self._sent_blocks = 0

    def data_to_send(self) -> memoryview:
        """Returns the next octets for the socket, perhaps not all; empty: there are none.

        Ends the current block, so call it at the end of a turn and not after each record.
        """
        if self.state is ClientState.OPEN and not self._outgoing:
            self._keep_finished()
            if self._sent_blocks < len(self._kept):
                self._outgoing = memoryview(self._kept[self._sent_blocks].octets)
                self._sent_blocks += 1
        return self._outgoing

    def bytes_sent(self, octets: int) -> None:
        """Confirms that the first ``octets`` of ``data_to_send`` have been sent."""
        if octets > len(self._outgoing):
            raise MisuseError(f"{octets} octets sent of {len(self._outgoing)}")
        self._outgoing = self._outgoing[octets:]

    def receive_data(self, octets: bytes | memoryview) -> int:
        """Handles octets from the journal.

        Returns:
            The number up to which all records are durable.

        Raises:
            JournalReplyError: they are not valid replies.
        """
        self._incoming += octets
        whole = len(self._incoming) // REPLY.size * REPLY.size
        for health, reason, durable in REPLY.iter_unpack(self._incoming[:whole]):
            self._handle_reply(health, reason, durable)
        self._incoming = self._incoming[whole:]
        return self.durable_sequence

    def _handle_reply(self, health: int, reason: int, durable: int) -> None:
        try:
            if health == REFUSED:
                refusal = Refusal(reason)
                if refusal is Refusal.OLD_INCARNATION and self._succeed(durable):
                    return
                self.refusal = refusal
                self.state = ClientState.REFUSED
                self._outgoing = memoryview(b"")
                return
            self.health, self.errno = Health(health), reason
        except ValueError as error:
            raise JournalReplyError(f"a reply says {health}/{reason}") from error
        if durable > self.appended_sequence:
            raise JournalReplyError(f"record {durable} cannot be durable: it was never written")
        is_first = self.state is ClientState.GREETING
        if is_first:
            self._keep_finished()
            self.lost_records += max(0, self.durable_sequence - durable)
            self.state = ClientState.OPEN
            self._was_open = True
        self.durable_sequence = max(self.durable_sequence, durable)
        while self._kept and self._kept[0].last_sequence <= durable:
            self._kept_octets -= len(self._kept.popleft().octets)
            self._sent_blocks = max(0, self._sent_blocks - 1)

    def _succeed(self, incarnation: int) -> bool:
        """Succeeds another life of the worker; returns whether it could. The connection ended."""
        if self._was_open or not self.records.rename(incarnation + 1):
            return False
        self._origin = Origin(self._origin.worker, incarnation + 1)
        return True

    def _keep_finished(self) -> None:
        for block in self.records.take_blocks():
            self._kept.append(block)
            self._kept_octets += len(block.octets)
