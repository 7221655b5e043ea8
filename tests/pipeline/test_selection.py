"""What an archive gives of messages in parts, some of whose records are missing: whole, or not."""

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from router.journal.block import open_block
from router.journal.block_writer import SealedBlock
from router.journal.disk import Disk
from router.journal.log import Log
from router.journal.record import PROTOCOL_CODES, RecordFlag, RecordKind
from router.journal.segment import segment_name
from router.journal.writer import RecordWriter
from router.model.capabilities import Protocol
from router.pipeline.selection import Selected, Selection, select
from tests.support.journal import SOURCE, START_NS, key

SECTIONS = PROTOCOL_CODES[Protocol.AMQP_1_0]
BODIES = (b"one", b"two", b"three", b"four")
WHOLE = b"".join(BODIES)


def archived(life: int, *, begins: int = 0, is_placed: bool = True) -> list[SealedBlock]:
    """Gives the blocks in which a worker has kept a message, its parts in one each.

    Args:
        life: of the worker.
        begins: parts that it had received before, which it keeps anew with the following one.
        is_placed: parts say where they belong; those of the version before do not.
    """
    writer, blocks = RecordWriter(worker=0, incarnation=life), list[SealedBlock]()
    at, more = (START_NS, key(1), SOURCE), int(RecordFlag.MORE)
    first = b"".join(BODIES[: begins + 1])
    writer.archived(*at, b"t", first, address="in", protocol=SECTIONS, flags=more)
    blocks += writer.take_blocks()
    for number, body in enumerate(BODIES[begins + 1 :], begins + 1):
        is_last, offset = number + 1 == len(BODIES), len(b"".join(BODIES[:number]))
        if is_placed:
            writer.part(*at, body, more=not is_last, offset=offset)
        else:
            kind, flags = RecordKind.PART, 0 if is_last else more
            writer.append(kind, START_NS, key=key(1), incoming=SOURCE, flags=flags, body=body)
        blocks += writer.take_blocks()
    return blocks


def selected(directory: Path, *lives: Sequence[SealedBlock]) -> Selected:
    """Selects from an archive with the blocks of some lives."""
    log = Log(directory, "dc1", disk=Disk(), incarnation=START_NS, rotate_seconds=1e9)
    log.open(START_NS)
    for sealed in itertools.chain(*lives):
        log.append(sealed.octets, [open_block(memoryview(sealed.octets))])
    log.commit(START_NS)
    log.close(START_NS)
    return select(directory, Selection())


def without(blocks: list[SealedBlock]) -> Iterator[list[SealedBlock]]:
    """Gives what is left if any of the blocks are missing."""
    for count in range(len(blocks) + 1):
        yield from map(list, itertools.combinations(blocks, count))


@pytest.mark.parametrize("is_placed", [True, False])
@pytest.mark.parametrize("begins", [0, 1, 2])
def test_whatever_is_missing_of_two_lives_a_message_is_selected_whole_or_not_at_all(
    tmp_path: Path, begins: int, is_placed: bool
) -> None:
    first = archived(1, is_placed=is_placed)[: begins + 2]
    second = archived(2, begins=begins, is_placed=is_placed)
    ways = itertools.product(without(first), without(second))
    for number, (before, after) in enumerate(ways):
        found = selected(tmp_path / str(number), before, after)
        messages = found.payloads.get("in", [])
        assert messages == [WHOLE] or (not messages and after != second), (before, after)
        assert found.count + found.unfinished <= 1


@pytest.mark.parametrize("number", [0, 1, 2, 3])
def test_a_damaged_block_in_the_middle_of_a_segment_costs_the_message(
    tmp_path: Path, number: int
) -> None:
    blocks = archived(1)
    assert selected(tmp_path, blocks).payloads == {"in": [WHOLE]}
    path = tmp_path / segment_name(1)
    octets = bytearray(path.read_bytes())
    octets[octets.index(blocks[number].octets[64:]) + 20] ^= 1
    path.write_bytes(octets)
    found = select(tmp_path, Selection())
    assert (found.payloads, found.unfinished) == ({}, number > 0)


def test_a_message_that_is_kept_anew_after_a_loss_is_selected(tmp_path: Path) -> None:
    first, again = archived(1), archived(2)
    del first[2]
    found = selected(tmp_path, first, again)
    assert (found.payloads, found.unfinished, found.repeated) == ({"in": [WHOLE]}, 0, 0)
