"""The writer's link and its notes against a container, through cuts and crashes.

A crash is a new machine on the same notes; what the container has taken is what was written.
"""

import random
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

from router.model.condition import NOT_IMPLEMENTED
from router.model.identity import LinkName
from router.net.client.message import number_of, numbered
from router.pipeline.amqp.options import Options
from router.pipeline.amqp.spool import Payloads, Progress, Publisher, PublishingLink, write_spool
from router.routes.route import Guarantee
from tests.support.keeper import Keeper, Line

COUNT = 40


def begin(folder: Path, spool: tuple[str, int], guarantee: Guarantee) -> PublishingLink:
    """Makes the link of a new life."""
    payloads = Payloads(folder, [spool], None)
    progress = Progress(folder / "sent-0-0")
    link = PublishingLink(
        name=LinkName("spark-1"),
        address="node",
        supply=(payloads[each] for each in range(progress.sent, len(payloads))),
        guarantee=guarantee,
        progress=progress,
    )
    link.restore(payloads)
    return link


@pytest.mark.parametrize("seed", range(25))
def test_through_cuts_and_crashes_at_any_octet_each_message_is_written_once(
    tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    keeper = Keeper(credit=7)
    spool = write_spool(tmp_path, numbered(b"m", COUNT))
    link = begin(tmp_path, spool, Guarantee.EXACTLY_ONCE)
    line = Line(link, keeper)
    for _ in range(80):
        dice = chance.random()
        if dice < 0.9:
            line.step(chance.randint(0, 300), chance.randint(0, 300))
        elif dice < 0.95:
            line.cut()
        else:
            link.progress.close()
            line.machine = link = begin(tmp_path, spool, Guarantee.EXACTLY_ONCE)
            line.cut()
    line.run()
    assert link.failure is None
    assert link.is_done
    assert link.progress.settled == set(range(COUNT))
    assert Counter(map(number_of, keeper.taken)) == Counter(range(COUNT))


def test_exactly_once_is_refused_at_the_start_by_a_peer_that_settles_first(tmp_path: Path) -> None:
    keeper = Keeper(settles_second=False)
    spool = write_spool(tmp_path, numbered(b"m", COUNT))
    link = begin(tmp_path, spool, Guarantee.EXACTLY_ONCE)
    Line(link, keeper).run()
    assert link.failure is not None
    assert link.failure.name == NOT_IMPLEMENTED
    assert not keeper.taken, "nothing was moved"


def test_at_least_once_writes_to_such_a_peer_and_loses_nothing(tmp_path: Path) -> None:
    keeper = Keeper(settles_second=False, keeps=False)
    spool = write_spool(tmp_path, numbered(b"m", COUNT))
    link = begin(tmp_path, spool, Guarantee.AT_LEAST_ONCE)
    line = Line(link, keeper)
    for _ in range(6):
        line.step(700, 0)
    link.progress.close()
    line.machine = link = begin(tmp_path, spool, Guarantee.AT_LEAST_ONCE)
    line.cut()
    line.run()
    assert link.is_done
    assert link.progress.settled == set(range(COUNT))
    assert set(map(number_of, keeper.taken)) == set(range(COUNT))


def test_a_spool_holds_messages_in_their_order(tmp_path: Path) -> None:
    messages = list(numbered(b"m", 5))
    spools = [write_spool(tmp_path, iter(messages[:3])), write_spool(tmp_path, iter(messages[3:]))]
    payloads = Payloads(tmp_path, spools, None)
    assert [payloads[each] for each in range(len(payloads))] == messages
    assert [Payloads(tmp_path, spools, [4, 0])[each] for each in range(2)] == [
        messages[4],
        messages[0],
    ]
    assert write_spool(tmp_path, iter(()))[1] == 0
    assert len(list(tmp_path.glob("*.spool"))) == 2
    with pytest.raises(pa.ArrowInvalid):
        Payloads(tmp_path, [(str(Path(__file__)), 1)], None)


def test_what_attempts_that_died_have_left_goes_with_the_next_batch(tmp_path: Path) -> None:
    write_spool(tmp_path, numbered(b"m", COUNT))
    (tmp_path / ".1f.spool.2e").write_bytes(b"half of")
    Progress(tmp_path / "sent-7-0").note_sent(3)  # of a query whose checkpoint was removed
    publisher = Publisher(
        Options(url="amqp://localhost", address="node", store=str(tmp_path)), tmp_path
    )
    publisher.publish("query", 0, [])
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"sink.json", "lock", "batch.json", "done.json"}
