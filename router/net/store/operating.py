"""The admin endpoint's conversation with the message store's process.

Each question has a connection of its own, as ``OPERATOR``, beside those of the workers. It ends
with its answer, so a process that starts again meanwhile costs one question.
"""

import socket
import time
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import attrs
import trio

from router.errors import RouterError
from router.journal.client import ClientState, JournalReplyError
from router.journal.record import OutcomeCode
from router.journal.store.asks import Answer
from router.journal.store.client import StoreClient
from router.journal.store.looking import OPERATOR, Drop, Dropped, Held, Look, Looked
from router.journal.store.queues import Claim, RouteKey
from router.net.journal import connect_unix

RECEIVE_OCTETS: Final = 1 << 16


@attrs.frozen
class StoreAwayError(RouterError):
    """The message store's process does not answer."""

    reason: str

    def __str__(self) -> str:
        return f"the message store does not answer: {self.reason}"


@attrs.frozen
class Depths:
    """What a store holds, by address.

    Attributes:
        held: the addresses that hold most, the deepest first.
        addresses: how many there are in all.
    """

    held: tuple[Held, ...]
    addresses: int


async def look(path: Path, router: str, route: RouteKey | None, most: int) -> Depths:
    """Asks which addresses hold most.

    Args:
        path: of the store's socket.
        router: id of the router.
        route: of the addresses; None: any.
        most: addresses that are answered.

    Raises:
        StoreAwayError: no process answers.
    """
    held: list[Held] = []
    with _talking(path, router) as talk:
        talk.client.ask(Look(route, most))
        while True:
            match await talk.next_answer():
                case Held() as answer:
                    held.append(answer)
                case Looked(addresses):
                    return Depths(tuple(held), addresses)
                case _:
                    pass


async def drop(path: Path, router: str, wanted: Drop) -> AsyncGenerator[int, None]:
    """Drops messages, step by step; yields how many each step has dropped.

    Args:
        path: of the store's socket.
        router: id of the router.
        wanted: which messages.

    Raises:
        StoreAwayError: no process answers; what was dropped before stays dropped.
    """
    left = wanted.most
    with _talking(path, router) as talk:
        while True:
            talk.client.ask(wanted)
            claims: list[Claim] = []
            while not isinstance(answer := await talk.next_answer(), Dropped):
                if isinstance(answer, Claim):
                    claims.append(answer)
            if claims:
                await talk.forget(claims)
            left -= answer.messages
            yield answer.messages
            if not answer.has_more:
                return
            wanted = attrs.evolve(wanted, after=answer.place, most=left)


@attrs.define(eq=False)
class _Talk:
    """One connection."""

    sock: trio.socket.SocketType
    client: StoreClient

    async def next_answer(self) -> Answer:
        """Sends what is to be sent, and waits for the next answer.

        Raises:
            StoreAwayError: the connection has ended, or was refused.
        """
        while not self.client.answers:
            await self.exchange()
        return self.client.answers.popleft()

    async def forget(self, claims: Sequence[Claim]) -> None:
        """Records that messages are gone, and waits until that is durable.

        Raises:
            StoreAwayError: the connection has ended.
        """
        records = self.client.records
        last = records.forwarded(time.time_ns(), claims, OutcomeCode.NONE, by_person=True)
        while self.client.durable_sequence < last:
            await self.exchange()

    async def exchange(self) -> None:
        """Sends what is to be sent, and waits for octets.

        Raises:
            StoreAwayError: the connection has ended, or was refused.
        """
        try:
            while octets := self.client.data_to_send():
                self.client.bytes_sent(await self.sock.send(octets))
            received = await self.sock.recv(RECEIVE_OCTETS)
            self.client.receive_data(received)
        except (OSError, JournalReplyError) as error:
            raise StoreAwayError(str(error)) from error
        if not received:
            raise StoreAwayError("its connection has ended")
        if self.client.state is ClientState.REFUSED:
            refusal = self.client.refusal
            raise StoreAwayError("" if refusal is None else refusal.name.lower())


@contextmanager
def _talking(path: Path, router: str) -> Iterator[_Talk]:
    """Connects for the length of the block.

    Raises:
        StoreAwayError: no process listens.
    """
    client = StoreClient(router=router, worker=OPERATOR, incarnation=time.time_ns())
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with sock:
        try:
            connect_unix(sock, path)
        except OSError as error:
            raise StoreAwayError(error.strerror or str(error)) from error
        sock.setblocking(False)
        client.connection_made()
        yield _Talk(trio.socket.from_stdlib_socket(sock), client)
