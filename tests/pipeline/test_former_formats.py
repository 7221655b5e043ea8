"""What the pipeline of an earlier version left is gone on with; a later version's is refused."""

import json
from collections import deque
from pathlib import Path
from typing import Any

import pytest

from router.journal.segment import segment_name
from router.model.identity import DeliveryTag, LinkName
from router.model.outcome import ACCEPTED
from router.net.client.message import number_of
from router.pipeline.amqp.dialogue import Dialogue, PeerError
from router.pipeline.amqp.holding import HoldingLink
from router.pipeline.amqp.numbers import DurableCount
from router.pipeline.amqp.options import Options
from router.pipeline.amqp.wal import LogError
from router.pipeline.audit import audit
from router.pipeline.compaction import CompactionError, compact
from router.pipeline.selection import ArchiveError, Selection, select
from router.pipeline.store import LocalStore
from router.routes.route import Guarantee
from tests.pipeline.test_holding import Reader
from tests.pipeline.test_spool import begin
from tests.support.former import FILE, carry_on, restored
from tests.support.keeper import Keeper, Line
from tests.support.recorded import restore
from tests.support.running import running_router
from tests.support.workers import address_of

pytestmark = pytest.mark.long


def octets_of(text: str) -> bytes:
    return bytes.fromhex(text)


def test_a_readers_log_of_an_earlier_version_is_read_and_nothing_comes_twice(
    tmp_path: Path,
) -> None:
    restore("reader", tmp_path)
    peer = json.loads((tmp_path / "peer.json").read_text())
    keeper = Keeper(
        settled=[*map(octets_of, peer["settled"])], waiting=deque([b"\x00\x53\x75\xa0\x01n"])
    )
    keeper._went = {
        DeliveryTag(octets_of(tag)): octets_of(payload) for tag, payload in peer["went"].items()
    }
    keeper._next = peer["next"]
    reader = Reader(tmp_path, keeper)
    assert (reader.log.committed, reader.log.last) == (3, 4)
    reader.processed = [*map(octets_of, peer["processed"])]
    reader.finish()
    (attach,) = keeper.attached
    assert attach.unsettled == {
        DeliveryTag(b"\0\0\0\2"): ACCEPTED,  # committed, and not told
        DeliveryTag(b"\0\0\0\3"): None,
    }
    assert sorted(number_of(each) or 0 for each in reader.processed[:6]) == [*range(6)]
    assert len(reader.processed) == 7
    assert (len(keeper.settled), keeper.unsettled, reader.link.unsettled) == (7, 0, 0)
    assert not reader.log.segments()


def test_a_writers_notes_of_an_earlier_version_are_read_and_nothing_goes_twice(
    tmp_path: Path,
) -> None:
    restore("spool", tmp_path)
    peer = json.loads((tmp_path / "peer.json").read_text())
    keeper = Keeper(credit=3, taken=[*map(octets_of, peer["taken"])])
    keeper._came = {DeliveryTag(octets_of(tag)): ACCEPTED for tag in peer["came"]}
    name, count = peer["spool"]
    link = begin(LocalStore(tmp_path), (name, count), Guarantee.EXACTLY_ONCE)
    assert (link.progress.sent, link.progress.settled) == (6, {0, 1, 2, 3})
    Line(link, keeper).run()
    assert link.is_done
    assert [number_of(each) for each in keeper.taken] == [*range(count)]


async def test_a_ledger_of_an_earlier_version_is_gone_on_with_and_audited(
    tmp_path: Path, spark: Any
) -> None:
    tags = restored(tmp_path)
    restore("ledger", tmp_path)
    with running_router(FILE, tmp_path) as router:
        await carry_on(int(address_of(router).rpartition(":")[2]), tags)
        assert router.stop() == 0
    ledger = tmp_path / "ledger"
    compact(tmp_path / "state", ledger, removes=True)
    result = audit(spark, [str(ledger)], grace_seconds=0)
    verdicts = {name: number for name, number in result.verdicts.items() if number}
    assert verdicts == {"delivered-once": 3}
    assert not result.holes


def test_segments_of_a_later_version_are_refused_by_name(tmp_path: Path) -> None:
    restored(tmp_path)
    path = tmp_path / "state" / "journal" / segment_name(1)
    path.write_bytes(b"AMQPJNL2" + path.read_bytes()[8:])
    with pytest.raises(CompactionError, match=f"{path.name} is not of the format AMQPJNL1"):
        compact(tmp_path / "state", tmp_path / "ledger", removes=True)
    assert path.exists()
    with pytest.raises(ArchiveError, match=f"{path.name} is not of the format AMQPJNL1"):
        select(path.parent, Selection())


def test_the_numbers_of_attaches_go_on_from_the_octets_that_this_version_writes(
    tmp_path: Path,
) -> None:
    (tmp_path / "attaches.json").write_bytes(b'{"epoch": 1789000000000000000, "n": 41}')
    assert DurableCount(LocalStore(tmp_path)).draw() == (1789000000000000000, 42)
    assert (tmp_path / "attaches.json").read_bytes() == b'{"epoch": 1789000000000000000, "n": 42}'


@pytest.mark.parametrize(
    "octets",
    [
        b"",
        b"{",
        b"[1, 2]",
        b'{"epoch": 1}',
        b'{"epoch": "a", "n": 1}',
        b'{"epoch": 1, "n": 2, "links": 3}',
    ],
)
def test_numbers_that_another_version_wrote_are_refused_by_name(
    tmp_path: Path, octets: bytes
) -> None:
    path = tmp_path / "attaches.json"
    path.write_bytes(octets)
    with pytest.raises(LogError, match=r"attaches\.json is not of this version"):
        DurableCount(LocalStore(tmp_path)).draw()
    assert path.read_bytes() == octets


def test_a_link_whose_numbers_cannot_be_read_says_so_to_its_query(tmp_path: Path) -> None:
    path = tmp_path / "attaches.json"
    path.write_bytes(b'{"epoch": 1, "n": 2, "links": 3}')
    with running_router(FILE, tmp_path) as router:
        options = Options(url=f"amqp://{address_of(router)}", address="orders", store=str(tmp_path))
        link = HoldingLink(
            name=LinkName("reader"),
            address="orders",
            guarantee=Guarantee.EXACTLY_ONCE,
            window=1,
            draw_number=DurableCount(LocalStore(tmp_path)).draw,
        )
        with pytest.raises(PeerError, match=r"attaches\.json is not of this version"):
            Dialogue(link, options, container="spark").wait_end()
