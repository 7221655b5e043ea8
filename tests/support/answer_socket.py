"""A client on a real socket that keeps what has come until a test asks for it."""

import abc
import socket
from typing import Final, Generic, Self, TypeVar

SECONDS: Final = 60.0
"""How long an answer may take: no longer than it must, but on a busy machine."""

QUIET_SECONDS: Final = 0.4
"""After which nothing more is taken to come."""

_Answer = TypeVar("_Answer")


class AnswerSocket(abc.ABC, Generic[_Answer]):
    """One connection; a protocol says what is an answer.

    Attributes:
        received: answers that have come and nobody has taken.
        is_over: the server has ended the stream.
    """

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.received: list[_Answer] = []
        self.is_over = False
        self._octets = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *args: object) -> None:
        self.socket.close()

    @abc.abstractmethod
    def _take_answers(self) -> bool:
        """Moves what is complete from the octets to ``received``; returns whether anything was."""

    def write(self, octets: bytes) -> Self:
        """Sends octets as they are."""
        self.socket.sendall(octets)
        return self

    def take_next(self, seconds: float = SECONDS) -> _Answer:
        """Takes the next answer.

        Raises:
            AssertionError: none came in time, or the server has ended the stream.
        """
        while not self.received:
            assert self._read(seconds), "no answer in time" if not self.is_over else "it is over"
        return self.received.pop(0)

    def take_rest(self, seconds: float = QUIET_SECONDS) -> list[_Answer]:
        """Takes all that comes until nothing has come for a while."""
        while self._read(seconds):
            pass
        return self._take_all()

    def take_end(self, seconds: float = SECONDS) -> list[_Answer]:
        """Waits for the end of the stream; returns what came before."""
        while not self.is_over:
            assert self._read(seconds) or self.is_over, "the stream has not ended in time"
        return self._take_all()

    def _take_all(self) -> list[_Answer]:
        found, self.received = self.received, []
        return found

    def _read(self, seconds: float) -> bool:
        """Reads until something is complete; returns whether anything is."""
        self.socket.settimeout(seconds)
        while not self._take_answers():
            try:
                octets = self.socket.recv(65536)
            except TimeoutError:
                return False
            except ConnectionResetError:
                octets = b""
            if not octets:
                self.is_over = True
                return False
            self._octets += octets
        return True
