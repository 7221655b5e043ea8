"""A journal that an earlier version left is gone on with; one of a later version is refused."""

from pathlib import Path

from router.journal.replay import replay
from router.journal.segment import SEGMENT_MAGIC
from tests.support.former import COMPACTION, FILE, carry_on, restored
from tests.support.running import running_router
from tests.support.workers import address_of, lines

ALONE = FILE.replace(COMPACTION, "")


async def test_what_was_unsettled_in_an_earlier_version_is_settled_once(tmp_path: Path) -> None:
    tags = restored(tmp_path)
    with running_router(ALONE, tmp_path) as router:
        (told,) = lines(router, "journal.replayed")
        assert (told["deliveries"], told["links"], told["holes"], told["in_doubt"]) == (3, 2, 0, 1)
        await carry_on(int(address_of(router).rpartition(":")[2]), tags)
        assert router.stop() == 0
    assert not [line for line in router.log if '"level": "error"' in line]
    replayed = replay(tmp_path / "state" / "journal")
    assert not replayed.memory.deliveries
    assert not replayed.gaps


def test_the_numbers_of_attaches_begin_where_an_earlier_version_has_none(tmp_path: Path) -> None:
    restored(tmp_path)
    replayed = replay(tmp_path / "state" / "journal")
    assert replayed.memory.numbers is None
    assert not replayed.chain.missing
    assert not replayed.gaps


def test_a_journal_of_a_later_version_is_refused_by_the_name_of_its_file(tmp_path: Path) -> None:
    restored(tmp_path)
    (path,) = (tmp_path / "state" / "journal").glob("*.segment")
    later = b"AMQPJNL2" + path.read_bytes()[len(SEGMENT_MAGIC) :]
    path.write_bytes(later)
    with running_router(ALONE, tmp_path, until="journal.refused") as router:
        reason = str(lines(router, "journal.refused")[0]["error"])
        assert reason.endswith(f"{path.name} is not of the format AMQPJNL1; nothing was changed")
        assert not lines(router, "router.ready")
        router.kill()
    assert path.read_bytes() == later
