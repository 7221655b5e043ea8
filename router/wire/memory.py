"""What engines keep for peers that come back, and how it follows them to another worker.

Some protocols keep a peer's state inside their engines, beyond the end of its connection: sessions
of 0-10, parts of restartable transfers of AMQP/Fast. Each keeps it in a *store*, one a worker. A
router has several workers, and a peer that dials again may come to any of them; so what its store
does not have the engine has sought at the others (``MemorySought``, answered by ``MemoryFound``):
``router.core.memories`` asks them, and hands over what one of them gives.

What is promised:

OneHolder     what lies under a key is in one store at a time: it is given away whole, and whoever
              takes it has it before anybody is answered
SameIdentity  the peer's authenticated identity is part of the key, so nobody else is given anything
NotInUse      what a connection uses is given away only if the peer that asks insists on it; the
              connection has lost it before it is given
"""

import abc
import enum
from typing import Final

import attrs

_KEY: Final = "moves"


class Refusal(enum.IntEnum):
    """Why a store gives nothing."""

    NOTHING = 0  # it has nothing under the key
    BUSY = 1  # a connection uses it
    LEAVING = 2  # it is being taken from a connection, which says ``MemoryLeft``


class Store(abc.ABC):
    """What one protocol keeps in one worker."""

    @abc.abstractmethod
    def give(self, key: bytes, *, force: bool, now: float) -> bytes | Refusal:
        """Gives away what lies under a key, and has it no more.

        Args:
            key: as the protocol's engines write it.
            force: take it from a connection that uses it; to be asked again when it has left.
            now: by the clock of the engines.
        """

    @abc.abstractmethod
    def take(self, key: bytes, kept: bytes, giver: str, now: float) -> None:
        """Keeps what another worker's store has given.

        Args:
            key: as the protocol's engines write it.
            kept: what ``give`` gave there.
            giver: the other worker, as ``router.core.reach`` names it.
            now: by the clock of the engines.

        Raises:
            DecodeError: it cannot be read; nothing is kept.
        """


@attrs.define(eq=False)
class Moves:
    """What a worker's engines and its core both have to know for memory to move.

    Attributes:
        own: this worker's name among its siblings.
        siblings: names of the others that can be asked.
        awakened: engines that have something to say though nobody has called them; whoever owns
            their sockets takes them.
    """

    own: str = ""
    siblings: set[str] = attrs.field(factory=set)
    awakened: list[object] = attrs.field(factory=list)

    @classmethod
    def of(cls, memory: dict[str, object]) -> "Moves":
        """Returns the one that all with the same memory share."""
        found = memory.setdefault(_KEY, cls())
        assert isinstance(found, cls)
        return found

    def home(self, known: str | None, giver: str) -> str | None:
        """Returns where a link was left, whose session another worker has given.

        Args:
            known: where the giver says that it is; None: at the giver.
            giver: the other worker.

        Returns:
            the worker's name; None: here.
        """
        found = giver if known is None else known
        return None if found == self.own else found
