"""State that engines keep for peers that reconnect, and how it moves between workers.

Some protocols keep a peer's state inside their engines, beyond the end of its connection: sessions
of 0-10, parts of restartable transfers of AMQP/Fast. Each keeps it in a *store*, one per worker. A
router has several workers, and a peer may reconnect to any of them; so state that is not in the
local store is sought at the others (``MemorySought``, answered by ``MemoryFound``):
``router.core.memories`` asks them, and passes on what one of them gives.

Invariants:

OneHolder     the state under a key is in one store at a time: it is given away completely, and the
              taker has it before the peer is answered
SameIdentity  the peer's authenticated identity is part of the key, so no other peer gets it
NotInUse      state that a connection uses is given away only if the asking peer insists; the
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
    """The state that one protocol keeps in one worker."""

    @abc.abstractmethod
    def give(self, key: bytes, *, force: bool, now: float) -> bytes | Refusal:
        """Removes the state under a key and returns it.

        Args:
            key: as encoded by the protocol's engines.
            force: take it from a connection that uses it; the caller asks again when it has left.
            now: by the clock of the engines.
        """

    @abc.abstractmethod
    def take(self, key: bytes, kept: bytes, giver: str, now: float) -> None:
        """Keeps the state that another worker's store has given.

        Args:
            key: as encoded by the protocol's engines.
            kept: the result of ``give`` there.
            giver: the other worker, as ``router.core.reach`` names it.
            now: by the clock of the engines.

        Raises:
            DecodeError: it cannot be decoded; nothing is kept.
        """


@attrs.define(eq=False)
class Moves:
    """What engines and core of a worker share to move state.

    Attributes:
        own: this worker's name among its siblings.
        siblings: names of the others.
        awakened: engines with events although nobody has called them; the owners of their sockets
            handle them.
    """

    own: str = ""
    siblings: set[str] = attrs.field(factory=set)
    awakened: list[object] = attrs.field(factory=list)

    @classmethod
    def of(cls, memory: dict[str, object]) -> "Moves":
        """Returns the instance that belongs to a memory."""
        found = memory.setdefault(_KEY, cls())
        assert isinstance(found, cls)
        return found

    def home(self, known: str | None, giver: str) -> str | None:
        """Returns the worker with a link whose session another worker has given.

        Args:
            known: its worker, as the giver knows it; None: the giver.
            giver: the other worker.

        Returns:
            the worker's name; None: here.
        """
        found = giver if known is None else known
        return None if found == self.own else found
