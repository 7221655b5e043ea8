"""The worker's half of a message store: the journal's client, which also asks and is answered.

Records and asks go out over one socket, replies and answers come back over it. Records are kept
until they are durable and handed in again over the next connection; asks are not: when the
connection is lost the store gives everything that was read and is not gone to the next one that
asks, so whoever reads asks again, and knows what it has by the messages' places.
"""

from collections import deque

from router.errors import RouterError
from router.journal.block import (
    BLOCK_OCTETS_LIMIT,
    MAGIC,
    BlockFlag,
    octets_of,
    open_block,
)
from router.journal.client import (
    BUDGET_OCTETS,
    ClientState,
    JournalClient,
    JournalReplyError,
)
from router.journal.protocol import REPLY
from router.journal.store.asks import Answer, AnswerReader, Ask, AskWriter
from router.journal.store.records import StoreWriter


class StoreClient(JournalClient):
    """Sends records and asks of one worker, and reads the answers.

    Attributes:
        records: appends records; each of its methods returns a sequence number.
        answers: what was answered and nobody has taken out yet, oldest first.
        known: up to which record all were durable when each of these came.
    """

    records: StoreWriter

    def __init__(
        self, *, router: str, worker: int, incarnation: int, budget_octets: int = BUDGET_OCTETS
    ) -> None:
        """Begins without a connection; see ``JournalClient``."""
        super().__init__(
            router=router, worker=worker, incarnation=incarnation, budget_octets=budget_octets
        )
        self.records = StoreWriter(worker=worker, incarnation=incarnation)
        self.answers: deque[Answer] = deque()
        self.known: deque[int] = deque()
        self._asks = AskWriter(BlockFlag.ASKS)
        self._reader = AnswerReader()
        self._cut = b""  # what is too short to tell how long it is
        self._block = bytearray()  # an answer that has begun ...
        self._filled = 0  # ... and how much of it has come

    @property
    def unsent_octets(self) -> int:
        """Octets that are to be sent over the present connection, asks included."""
        octets = super().unsent_octets
        if self.state is ClientState.OPEN and not self._asks.is_empty:
            octets += max(1, self._asks.open_octets)
        return octets

    @property
    def owes_records_only(self) -> bool:
        """Whether all is sent that was said before, but for records since."""
        is_sent = not self._outgoing and self._sent_blocks == len(self._kept)
        return self.state is ClientState.OPEN and is_sent and self._asks.is_empty

    def ask(self, ask: Ask) -> None:
        """Asks over this connection, as soon as it is open."""
        self._asks.ask(ask)

    def connection_lost(self) -> None:
        """Handles the loss of the socket; asks and half an answer are forgotten."""
        super().connection_lost()
        self._asks = AskWriter(BlockFlag.ASKS)
        self._reader = AnswerReader()
        self._cut, self._block, self._filled = b"", bytearray(), 0

    def data_to_send(self) -> memoryview:
        """Returns the next octets for the socket; see ``JournalClient.data_to_send``.

        Records go first: over a new connection the store must hear what is gone before it is asked
        for messages.
        """
        octets = super().data_to_send()
        if self.state is ClientState.OPEN and not (octets or self._asks.is_empty):
            self._outgoing = octets = memoryview(self._asks.take_octets())
        return octets

    def receive_data(self, octets: bytes | memoryview) -> int:
        """Handles octets from the store; ``answers`` has what it answered.

        Raises:
            JournalReplyError: they are neither valid replies nor valid answers.
        """
        view, at = memoryview(octets), 0
        if self._block:
            at = self._fill(view)
        elif self._cut:
            view, self._cut = memoryview(self._cut + view), b""
        while at < len(view):
            if view[at] != MAGIC[0]:
                if len(view) - at < REPLY.size:
                    break
                super().receive_data(view[at : at + REPLY.size])
                at += REPLY.size
                continue
            length = octets_of(view, at)
            if not length:
                break
            if length > BLOCK_OCTETS_LIMIT:
                raise JournalReplyError(f"an answer of {length} octets is too long")
            self._block = bytearray(length)
            at += self._fill(view[at:])
        self._cut = bytes(view[at:])
        return self.durable_sequence

    def _fill(self, octets: memoryview) -> int:
        """Copies octets into the answer that has begun, and reads it if it is whole.

        What it holds stays in this memory, which is that answer's alone.

        Returns:
            How many octets belonged to it.

        Raises:
            JournalReplyError: it is malformed.
        """
        count = min(len(octets), len(self._block) - self._filled)
        self._block[self._filled : self._filled + count] = octets[:count]
        self._filled += count
        if self._filled == len(self._block):
            whole, self._block, self._filled = memoryview(self._block), bytearray(), 0
            try:
                self.answers += self._reader.answers_of(open_block(whole, is_checked=True))
            except RouterError as error:
                raise JournalReplyError(str(error)) from error
            self.known += [self.durable_sequence] * (len(self.answers) - len(self.known))
        return count
