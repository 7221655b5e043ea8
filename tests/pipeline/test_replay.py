"""An archive's messages are sent again, each once, however often it is tried."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from router.cli.main import main
from router.journal.block import open_block
from router.journal.disk import Disk
from router.journal.log import Log
from router.journal.record import PROTOCOL_CODES, RecordFlag
from router.journal.writer import RecordWriter
from router.model.capabilities import Protocol
from router.net.client.message import numbered
from router.pipeline.selection import Selection, select
from tests.support.journal import SECOND_NS, SOURCE, START_NS, append, key
from tests.support.ports import free_port
from tests.support.running import running_router
from tests.support.spark_jobs import CONFIG, Taken, receiver

pytestmark = pytest.mark.long

SECTIONS = PROTOCOL_CODES[Protocol.AMQP_1_0]
MESSAGES = list(numbered(b"body", 10))


def write_archive(state: Path) -> None:
    """Keeps ten messages to two addresses; one of them twice, one of them in parts."""
    writer = RecordWriter(worker=0, incarnation=START_NS)

    def keep(number: int, payload: bytes, flags: int = 0) -> None:
        writer.archived(
            START_NS + number * SECOND_NS,
            key(number),
            SOURCE,
            b"tag",
            payload,
            address="in" if number % 2 else "out",
            protocol=SECTIONS,
            flags=flags,
        )

    for number in range(9):
        keep(number, MESSAGES[number])
    keep(3, MESSAGES[3])
    keep(9, MESSAGES[9][:5], int(RecordFlag.MORE))
    writer.part(START_NS, key(9), SOURCE, MESSAGES[9][5:], more=False, offset=5)
    log = Log(state / "archive", "dc1", disk=Disk(), incarnation=START_NS, rotate_seconds=1e9)
    log.open(START_NS)
    append(log, writer)
    log.commit(START_NS)
    log.close(START_NS)


def test_a_message_that_stands_there_twice_or_in_parts_is_selected_once(tmp_path: Path) -> None:
    write_archive(tmp_path)
    selected = select(tmp_path, Selection())
    assert selected.payloads == {"out": MESSAGES[::2], "in": MESSAGES[1::2]}
    assert (selected.repeated, selected.unfinished, selected.missing) == (1, 0, 0)


@pytest.mark.parametrize("missing", [0, 1, 2, None])
def test_a_message_of_which_a_part_is_missing_is_not_selected(
    tmp_path: Path, missing: int | None
) -> None:
    body = bytes(range(256)) * 12288
    writer = RecordWriter(worker=0, incarnation=START_NS)
    writer.archived(START_NS, key(1), SOURCE, b"tag", body, address="in", protocol=SECTIONS)
    writer.archived(START_NS, key(2), SOURCE, b"tag", b"small", address="in", protocol=SECTIONS)
    blocks = writer.take_blocks()
    assert len(blocks) == 4
    log = Log(tmp_path / "archive", "dc1", disk=Disk(), incarnation=START_NS, rotate_seconds=1e9)
    log.open(START_NS)
    for number, sealed in enumerate(blocks):
        if number != missing:
            log.append(sealed.octets, [open_block(memoryview(sealed.octets))])
    log.commit(START_NS)
    log.close(START_NS)
    selected = select(tmp_path, Selection())
    assert selected.payloads == {"in": [b"small"] if missing is not None else [body, b"small"]}
    assert (selected.unfinished, selected.missing) == (missing in (1, 2), missing is not None)


def test_a_segment_that_is_missing_or_cut_off_after_an_orderly_end_is_told(tmp_path: Path) -> None:
    for _ in range(3):
        write_archive(tmp_path)
    whole = select(tmp_path, Selection())
    assert (whole.missing_segments, whole.damaged_octets) == (0, 0)
    assert list(whole.losses()) == ["1 further copy of a delivery left out"]
    segments = sorted((tmp_path / "archive").glob("*.segment"))
    octets = segments[-1].read_bytes()
    segments[-1].write_bytes(octets[: len(octets) * 2 // 3])
    segments[0].unlink()
    found = select(tmp_path, Selection())
    assert found.missing_segments == 1
    assert found.damaged_octets
    assert "1 segment missing" in list(found.losses())
    segments[-1].unlink()
    assert select(tmp_path, Selection()).missing_segments == 2


def test_a_selection_by_time_address_and_key(tmp_path: Path) -> None:
    write_archive(tmp_path)
    since = START_NS + 2 * SECOND_NS
    wanted = Selection(since_ns=since, until_ns=since + 4 * SECOND_NS, address="i*")
    assert select(tmp_path, wanted).payloads == {"in": [MESSAGES[3], MESSAGES[5]]}
    assert select(tmp_path, Selection(key=key(4).hex())).payloads == {"out": [MESSAGES[4]]}


def replay(state: Path, url: str, work: Path, *more: str) -> Result:
    arguments = ["replay", str(state), url, "--work", str(work), "--json", *more]
    return CliRunner().invoke(main, arguments)


def test_a_replay_is_sent_once_however_often_it_is_asked_for(tmp_path: Path) -> None:
    write_archive(tmp_path / "old")
    port = free_port()
    url = f"amqp://127.0.0.1:{port}"
    taken = Taken()
    with running_router(CONFIG.format(state=tmp_path / "state", port=port), tmp_path):
        receiving = receiver(url, "out", taken)
        dry = replay(tmp_path / "old", url, tmp_path / "work", "--to", "out", "--dry-run")
        assert json.loads(dry.output)["selected"] == 10
        for _ in range(2):
            told = replay(tmp_path / "old", url, tmp_path / "work", "--to", "out")
            assert told.exit_code == 0, told.output
        receiving.end()
    assert sorted(taken.numbers.elements()) == list(range(10))


def test_without_an_archive_it_says_so(tmp_path: Path) -> None:
    told = replay(tmp_path, "amqp://127.0.0.1:1", tmp_path / "work")
    assert told.exit_code == 1
    assert "no archive here" in told.output
