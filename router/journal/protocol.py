"""What a worker and the journal's process say to each other over a Unix stream socket.

The worker sends blocks (see ``block``), first one that says HELLO. The journal answers with
replies of 16 octets, the first of which lets the worker begin:

    octet  0        1            4                8                          16
          +--------+------------+----------------+--------------------------+
          | health | zeros      | errno or       | all up to this sequence  |
          | u8     |            | Refusal, u32   | number is durable, u64   |
          +--------+------------+----------------+--------------------------+

Numbers are little-endian. A reply says the whole truth of its moment, so one that could not be
sent is replaced by the next: a worker that does not read costs the journal one reply and no more.
After a reply with health 255 the journal closes the connection. If it refuses OLD_INCARNATION, the
last number is that of the life it knows: a clock may have been set back between two lives.
"""

import enum
import struct
from typing import Final

from router.journal.block import Block, BlockFlag, Origin, seal_block

REPLY: Final = struct.Struct("<B3xIQ")
REFUSED: Final = 255


class Health(enum.IntEnum):
    """How the log fares; see ``log`` for what leads from one to the other."""

    WRITING = 0
    DISK_FULL = 1
    IO_ERROR = 2


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
    return bool(block.flags & BlockFlag.HELLO)
