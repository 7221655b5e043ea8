"""The writer's link and its notes against a container, through cuts and crashes.

A crash is a new machine on the same notes; what the container has taken is what was written.
"""

import random
from collections import Counter
from pathlib import Path

import attrs
import pyarrow as pa
import pytest
from pyarrow import fs

from router.model.condition import NOT_IMPLEMENTED
from router.model.identity import LinkName
from router.net.client.message import number_of, numbered
from router.pipeline.amqp.options import Options
from router.pipeline.amqp.spool import (
    Payloads,
    Publisher,
    PublishingLink,
    open_progress,
    write_spool,
)
from router.pipeline.amqp.wal import LogError
from router.pipeline.store import LocalStore, RemoteStore, Store
from router.routes.route import Guarantee
from tests.support.keeper import Keeper, Line

COUNT = 40


@pytest.fixture(params=["local", "remote"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """Gives the spool's place: a directory, or a file system that only has whole files."""
    if request.param == "local":
        return LocalStore(tmp_path / "spool")
    return RemoteStore(fs.LocalFileSystem(), str(tmp_path / "spool"))


def begin(store: Store, spool: tuple[str, int], guarantee: Guarantee) -> PublishingLink:
    """Makes the link of a new life."""
    payloads = Payloads(store, [spool], None)
    progress = open_progress(store, "sent-0-0")
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
    store: Store, seed: int
) -> None:
    chance = random.Random(seed)
    keeper = Keeper(credit=7)
    spool = write_spool(store, numbered(b"m", COUNT))
    link = begin(store, spool, Guarantee.EXACTLY_ONCE)
    line = Line(link, keeper)
    for _ in range(80):
        dice = chance.random()
        if dice < 0.9:
            line.step(chance.randint(0, 300), chance.randint(0, 300))
        elif dice < 0.95:
            line.cut()
        else:
            link.progress.close()
            line.machine = link = begin(store, spool, Guarantee.EXACTLY_ONCE)
            line.cut()
    line.run()
    assert link.failure is None
    assert link.is_done
    assert link.progress.settled == set(range(COUNT))
    assert Counter(map(number_of, keeper.taken)) == Counter(range(COUNT))


def test_exactly_once_is_refused_at_the_start_by_a_peer_that_settles_first(store: Store) -> None:
    keeper = Keeper(settles_second=False)
    spool = write_spool(store, numbered(b"m", COUNT))
    link = begin(store, spool, Guarantee.EXACTLY_ONCE)
    Line(link, keeper).run()
    assert link.failure is not None
    assert link.failure.name == NOT_IMPLEMENTED
    assert not keeper.taken, "nothing was moved"


def test_at_least_once_writes_to_such_a_peer_and_loses_nothing(store: Store) -> None:
    keeper = Keeper(settles_second=False, keeps=False)
    spool = write_spool(store, numbered(b"m", COUNT))
    link = begin(store, spool, Guarantee.AT_LEAST_ONCE)
    line = Line(link, keeper)
    for _ in range(6):
        line.step(700, 0)
    link.progress.close()
    line.machine = link = begin(store, spool, Guarantee.AT_LEAST_ONCE)
    line.cut()
    line.run()
    assert link.is_done
    assert link.progress.settled == set(range(COUNT))
    assert set(map(number_of, keeper.taken)) == set(range(COUNT))


def test_a_spool_holds_messages_in_their_order(store: Store) -> None:
    messages = list(numbered(b"m", 5))
    spools = [write_spool(store, iter(messages[:3])), write_spool(store, iter(messages[3:]))]
    payloads = Payloads(store, spools, None)
    assert [payloads[each] for each in range(len(payloads))] == messages
    assert [Payloads(store, spools, [4, 0])[each] for each in range(2)] == [
        messages[4],
        messages[0],
    ]
    assert write_spool(store, iter(()))[1] == 0
    assert sum(name.endswith(".spool") for name in store.sizes()) == 2
    with pytest.raises((pa.ArrowInvalid, FileNotFoundError)):
        Payloads(store, [(str(Path(__file__)), 1)], None)


def test_what_attempts_that_died_have_left_goes_with_the_next_batch(store: Store) -> None:
    write_spool(store, numbered(b"m", COUNT))
    if isinstance(store, LocalStore):
        (store.directory / ".1f.spool.2e").write_bytes(b"half of")
    open_progress(store, "sent-7-0").note_sent(3)  # of a query whose checkpoint was removed
    publisher = Publisher(Options(url="amqp://localhost", address="node"), store, "spool")
    publisher.publish("query", 0, [])
    left = store.sizes().keys() - {"lock", "owner"}
    assert left == {"sink.json", "batch.json", "done.json"}
    if isinstance(store, LocalStore):
        assert not list(store.directory.glob(".*"))


def test_a_shared_store_that_another_query_sends_from_is_refused(tmp_path: Path) -> None:
    store = RemoteStore(fs.LocalFileSystem(), str(tmp_path))
    options = Options(url="amqp://localhost", address="node")
    publisher = Publisher(options, store, "spool")
    with pytest.raises(LogError, match="another query"), publisher._owned(), publisher._owned():
        pass
    with pytest.raises(LogError, match="another address"):
        Publisher(attrs.evolve(options, address="other"), store, "spool")
