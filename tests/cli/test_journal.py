import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from router.cli.journal import command
from router.cli.main import main
from router.journal import ending
from router.journal.disk import Disk
from router.journal.keys import LinkKey
from router.journal.log import Log
from router.journal.reclaim import reclaim
from router.journal.record import LinkDescription, RecordFlag, Resolution
from router.journal.replay import replay
from router.journal.segment import segment_name
from tests.support.journal import (
    SECOND_NS,
    SOURCE,
    START_NS,
    TARGET,
    append,
    key,
    new_writer,
    write_life,
)

BLOCKS_BEGIN = b"JBLK"


def inspect(*arguments: str | Path) -> Result:
    return CliRunner().invoke(command, ["inspect", *map(str, arguments)])


def lines(result: Result) -> list[dict[str, object]]:
    return [json.loads(line) for line in result.output.splitlines()]


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """A directory of three segments: what happened to a few deliveries, and to a link."""
    log = Log(tmp_path, "dc1", disk=Disk(), incarnation=START_NS)
    log.open(START_NS)
    writer = new_writer(worker=2)
    writer.link_attached(
        START_NS,
        LinkDescription(
            key=TARGET, is_incoming=False, local="dc1", remote="west\x1b[2J", name="bridge"
        ),
    )
    for number, seconds in ((1, 0), (2, 300), (3, 600)):
        write_life(writer, number)
        append(log, writer)
        assert log.commit(START_NS)
        assert log.commit(START_NS + seconds * SECOND_NS)  # it is old now: the next one begins
    place = START_NS, key(4), SOURCE
    writer.received(*place, b"\xff\0", payload=b"secret", address="orders.eu", message_octets=6)
    writer.in_doubt(*place, TARGET)
    writer.resolved(*place, TARGET, Resolution.SEND_AGAIN, by_person=True)
    writer.outcome(*place, TARGET, 0x27, flags=RecordFlag.DELIVERY_FAILED, state=b"state")
    append(log, writer)
    assert log.commit(START_NS)
    log.close(START_NS)
    assert log.number == 3
    return tmp_path


def test_a_directory_is_shown_as_a_table_with_a_sum(journal: Path) -> None:
    result = inspect(journal)
    assert result.exit_code == 0
    table = result.output.splitlines()
    assert table[0].split() == [
        *("time", "worker", "sequence", "record", "delivery", "outcome", "octets", "link")
    ]
    assert table[-1] == "17 records, 0 missing, 0 octets damaged, 0 octets torn off"
    assert len(table) == 19
    assert "accepted" in table[4]
    assert "west\\x1b[2J/bridge" in table[4], "a peer's name must not move the cursor"
    assert "\x1b" not in result.output
    assert "secret" not in result.output
    assert "2025-11-13T02:13:20.000000Z" in table[1]


def test_a_state_directory_stands_for_its_journal(journal: Path, tmp_path: Path) -> None:
    state = tmp_path / "router-state"
    state.mkdir()
    (state / "journal").symlink_to(journal, target_is_directory=True)
    assert inspect(state).output == inspect(journal).output


def test_a_directory_without_segments_is_not_taken_for_an_empty_journal(tmp_path: Path) -> None:
    result = inspect(tmp_path)
    assert result.exit_code == 2
    assert f"there is no segment in {tmp_path}" in result.output


def test_as_json_each_line_is_a_record(journal: Path) -> None:
    records = lines(inspect("--json", journal))
    assert [record["sequence"] for record in records] == [*range(1, 18)]
    assert records[0]["link"] == {
        "is_incoming": False,
        "local": "dc1",
        "remote": "west\x1b[2J",
        "name": "bridge",
        "address": "",
        "identity": "",
        "is_router": False,
    }
    assert records[13] == {
        "type": "record",
        "file": str(journal / segment_name(3)),
        "kind": "received",
        "worker": 2,
        "incarnation": START_NS,
        "sequence": 14,
        "time_ns": START_NS,
        "delivery": key(4).hex(),
        "incoming": f"{SOURCE:016x}",
        "tag": "ff00",
        "address": "orders.eu",
        "message_octets": 6,
        "body_octets": 6,
        "flags": ["HELD"],
    }
    assert [record.get("outcome") for record in records[14:]] == [None, "send-again", "modified"]


def test_records_can_be_chosen_by_key_and_by_kind(journal: Path) -> None:
    by_key = lines(inspect("--json", "--key", key(2).hex().upper(), journal))
    assert [record["sequence"] for record in by_key] == [6, 7, 8, 9]
    by_kind = lines(inspect("--json", "--kind", "in-doubt", "--kind", "resolved", journal))
    assert [record["sequence"] for record in by_kind] == [15, 16]


def test_the_journals_own_records_are_shown_when_asked_for(journal: Path) -> None:
    kinds = {record["kind"] for record in lines(inspect("--json", "--own", journal))}
    assert {"segment", "mark", "fence", "segment-end"} <= kinds
    assert "17 records" in inspect("--own", journal).output


def test_a_missing_segment_is_a_hole_and_an_exit_code(journal: Path) -> None:
    (journal / segment_name(2)).unlink()
    result = inspect("--json", journal)
    assert result.exit_code == 1
    (hole,) = [line for line in lines(result) if line["type"] == "hole"]
    assert (hole["worker"], hole["first"], hole["last"]) == (2, 10, 13)
    assert "*** hole: worker 2" in inspect(journal).output
    assert "4 missing" in inspect(journal).output


def test_damage_is_reported_where_it_is(journal: Path) -> None:
    path = journal / segment_name(1)
    octets = bytearray(path.read_bytes())
    place = octets.find(BLOCKS_BEGIN, octets.find(BLOCKS_BEGIN, 100) + 1)
    octets[place + 60] ^= 1
    path.write_bytes(octets)
    result = inspect("--json", journal)
    assert result.exit_code == 1
    (damage,) = [line for line in lines(result) if line["type"] == "damage"]
    assert damage["offset"] == place
    assert "*** damage" in inspect(journal).output


def test_a_torn_tail_is_reported_and_nothing_is_wrong_with_it(journal: Path) -> None:
    path = journal / segment_name(3)
    octets = path.read_bytes()
    last = octets.rfind(BLOCKS_BEGIN, 0, octets.rfind(BLOCKS_BEGIN))
    path.write_bytes(octets[: last + 100])
    cut = inspect("--json", journal)
    assert cut.exit_code == 1, "it was closed in order"
    (damage,) = [line for line in lines(cut) if line["type"] == "damage"]
    assert damage["offset"] == last
    (journal / ending.NAME).unlink()  # as a kill leaves it
    result = inspect("--json", journal)
    assert result.exit_code == 0
    (torn,) = [line for line in lines(result) if line["type"] == "torn"]
    told = len(octets[last : last + 100].rstrip(b"\0"))
    assert (torn["offset"], torn["octets"]) == (last, told)


def test_a_snapshot_is_shown_before_what_follows_it(journal: Path) -> None:
    reclaim(journal, 2, now_ns=START_NS)
    result = inspect("--json", "--own", journal)
    assert result.exit_code == 0
    kinds = [record["kind"] for record in lines(result)]
    assert kinds.index("snapshot") < kinds.index("segment")


@pytest.mark.parametrize("blocks", [0, 1, 1.5])
def test_a_snapshot_that_is_cut_off_is_reported(journal: Path, blocks: float) -> None:
    """It had its name only when all of it was durable: nothing of it was torn off by a crash."""
    reclaim(journal, 2, now_ns=START_NS)
    (path,) = journal.glob("*.snapshot")
    octets = path.read_bytes()
    ends = [at for at in range(1, len(octets)) if octets.startswith(BLOCKS_BEGIN, at)]
    first = ends[1]
    cut = {0: 0, 1: first, 1.5: first + 40}[blocks]
    assert 0 <= cut < len(octets)
    path.write_bytes(octets[:cut])
    result = inspect("--json", journal)
    assert result.exit_code == 1
    (found,) = [line for line in lines(result) if line["type"] in {"cut", "torn"}]
    assert (found["type"], found["octets"]) == ("cut", max(0, cut - first))
    assert "1 file is cut off, or cannot be read" in inspect(journal).output
    (gap, *_) = replay(journal).gaps
    assert gap == f"the end of {path.name} is missing"


def test_a_segment_that_cannot_be_read_is_reported_and_the_others_are_shown(journal: Path) -> None:
    path = journal / segment_name(2)
    path.unlink()
    path.mkdir()
    result = inspect("--json", journal)
    assert result.exit_code == 1
    (unread,) = [line for line in lines(result) if line["type"] == "unread"]
    assert unread["file"] == str(path)
    assert {line["file"] for line in lines(result)} >= {str(journal / segment_name(3))}


def test_single_segments_can_be_named(journal: Path) -> None:
    one = lines(inspect("--json", journal / segment_name(1), journal / segment_name(3)))
    assert {record["file"] for record in one} == {
        str(journal / segment_name(1)),
        str(journal / segment_name(3)),
    }


def test_a_link_of_a_segment_that_is_not_read_is_shown_by_its_key(tmp_path: Path) -> None:
    log = Log(tmp_path, "dc1", disk=Disk(), incarnation=START_NS)
    log.open(START_NS)
    writer = new_writer()
    writer.settled(START_NS, key(1), LinkKey(0xABC))
    append(log, writer)
    assert log.commit(START_NS)
    assert "<- 0000000000000abc" in inspect(tmp_path).output


def test_what_is_missing_is_bad_usage(tmp_path: Path) -> None:
    assert inspect(tmp_path / "missing").exit_code == 2
    assert inspect().exit_code == 2


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_segment_that_is_missing_is_told_of(journal: Path, number: int) -> None:
    (journal / segment_name(number)).unlink()
    result = inspect(journal)
    assert result.exit_code == 1
    assert f"*** missing: segment {number}" in result.output
    assert "1 segment missing" in result.output
    found = [each for each in lines(inspect("--json", journal)) if each["type"] == "missing"]
    assert [each["segment"] for each in found] == [number]


def moved(journal: Path, name: str) -> Path:
    """Moves a journal to a directory below it, of that name."""
    files = list(journal.iterdir())
    (journal / name).mkdir()
    for file in files:
        file.rename(journal / name / file.name)
    return journal / name


def test_a_journal_without_the_only_segment_that_it_had_is_told_of(journal: Path) -> None:
    for number in (1, 2, 3):
        (journal / segment_name(number)).unlink()
    moved(journal, "journal")
    for place in (journal, journal / "journal"):
        result = inspect(place)
        assert result.exit_code == 1
        assert "*** missing: segment 3" in result.output


def test_the_oldest_segments_of_an_archive_may_go(journal: Path) -> None:
    archive = moved(journal, "archive")
    (archive / segment_name(1)).unlink()
    assert "missing: segment" not in inspect(archive).output
    (archive / segment_name(3)).unlink()
    assert "*** missing: segment 3" in inspect(archive).output


def test_init_names_the_option_whose_url_is_wrong(tmp_path: Path) -> None:
    pytest.importorskip("psycopg", reason="the extra router[postgres] is not installed")
    file = tmp_path / "router.yaml"
    text = "router: {{id: dc1, journal: {{store: '{}'}}}}\nroutes: [{{address: a}}]\n"
    file.write_text(text.format("postgresql://127.0.0.1:1/router"))
    init = ["journal", "init", str(file)]
    refused = CliRunner().invoke(main, [*init, "--url", "postgresql://u:hush@127.0.0.1:1/a"])
    assert refused.exit_code == 1
    assert refused.output.startswith("--url: PostgreSQL: ")
    assert "hush" not in refused.output
    for url in ("postgresql://127.0.0.1:x/router", "mysql://127.0.0.1/router"):
        wrong = CliRunner().invoke(main, [*init, "--url", url])
        assert wrong.exit_code == 2
        assert "--url" in wrong.output
    by_file = CliRunner().invoke(main, init)
    assert by_file.exit_code == 1
    assert by_file.output.startswith("router.journal.store: PostgreSQL: ")
    for url in ("postgresql://db:x/router", "postgresql://db/router?sslmod=require"):
        file.write_text(text.format(url))
        checked = CliRunner().invoke(main, ["check", str(file)])
        assert checked.exit_code == 2
        assert f"{file}:1:" in checked.output
