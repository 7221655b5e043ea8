"""The protocol between a worker and the journal's process over a Unix stream socket.

The worker sends blocks (see ``block``), the first one a HELLO. The journal answers with
replies of 16 octets; after the first reply the worker may send records:

    octet  0        1            4                8                          16
          +--------+------------+----------------+--------------------------+
          | health | zeros      | errno or       | all up to this sequence  |
          | u8     |            | Refusal, u32   | number is durable, u64   |
          +--------+------------+----------------+--------------------------+

Numbers are little-endian. A reply is the complete current state, so an unsent reply is
replaced by the next: a worker that does not read costs the journal memory for one reply only.
After a reply with health 255 the journal closes the connection. If it refuses OLD_INCARNATION, the
last number is that of the life it knows: the clock may have been set back between two lives.
"""

import enum
import struct
from typing import Final

from router.journal.block import Block, BlockFlag, Origin, seal_block

REPLY: Final = struct.Struct("<B3xIQ")
REFUSED: Final = 255
_HELLO: Final = BlockFlag.HELLO.value


class Health(enum.IntEnum):
    """The state of the log; see ``log`` for the transitions."""

    WRITING = 0
    DISK_FULL = 1
    IO_ERROR = 2
    AWAY = 3
    """The database does not answer, or the lease does not hold."""


class Refusal(enum.IntEnum):
    """Why the journal closes a connection; each one is a defect or a mix-up, never load.

    Attributes:
        NO_HELLO: the first block is none.
        WRONG_ROUTER: the journal belongs to another router.
        OLD_INCARNATION: a later life of the same worker has been here.
        BROKEN_BLOCK: octets that are no block, or of another origin.
        GAP: the block is not the next one of its origin.
    """

    NO_HELLO = 1
    WRONG_ROUTER = 2
    OLD_INCARNATION = 3
    BROKEN_BLOCK = 4
    GAP = 5


def hello_block(router: str, origin: Origin, first_sequence: int) -> bytes:
    """Returns the first block of a connection.

    Args:
        router: id of the router.
        origin: who writes.
        first_sequence: the oldest record that the worker still has.
    """
    return seal_block(
        b"",
        router.encode(),
        first_sequence=first_sequence,
        worker=origin.worker,
        incarnation=origin.incarnation,
        flags=BlockFlag.HELLO,
    )


def is_hello(block: Block) -> bool:
    """Returns whether ``block`` opens a connection."""
    return bool(block.flags & _HELLO)
