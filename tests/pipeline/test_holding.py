"""The reader's link and log against a container that keeps state, or forgets: cuts and crashes.

A crash is a new machine on the same log. What the log has ever numbered is what Spark would have
processed.
"""

import random
from pathlib import Path

import attrs
import pytest

from router.model.condition import NOT_FOUND, NOT_IMPLEMENTED
from router.model.identity import LinkName
from router.model.outcome import ACCEPTED, RELEASED
from router.net.client.message import number_of, numbered
from router.pipeline.amqp.holding import HoldingLink
from router.pipeline.amqp.messages import to_batch
from router.pipeline.amqp.options import Options
from router.pipeline.amqp.source import link_of
from router.pipeline.amqp.wal import Log
from router.routes.route import Guarantee
from router.wire.v1_0.sections import AnnotatedMessage, encode_message
from tests.support.keeper import Keeper, Line

AT_LEAST_ONCE, EXACTLY_ONCE = Guarantee.AT_LEAST_ONCE, Guarantee.EXACTLY_ONCE
COUNT = 5


@attrs.define(eq=False)
class Reader:
    """What Spark's runner does with a log and a link, by hand.

    Attributes:
        processed: payloads that have a number in the log, over all lives.
    """

    directory: Path
    keeper: Keeper
    guarantee: Guarantee = EXACTLY_ONCE
    dedupe: bool = False
    processed: list[bytes] = attrs.field(factory=list)
    log: Log = attrs.field(init=False)
    link: HoldingLink = attrs.field(init=False)
    line: Line = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._begin()
        self.line = Line(self.link, self.keeper)

    def _begin(self) -> None:
        options = Options(
            url="amqp://localhost",
            address="node",
            store=str(self.directory),
            guarantee=self.guarantee,
            dedupe=self.dedupe,
        )
        self.log = Log.open(options.log, options.address)
        self.log.lock()
        self.link = link_of(options, self.log)

    def take(self, most: int = 100) -> int:
        """Makes what has come durable; gives the last number."""
        first = self.log.last + 1
        taken = self.link.take(most, 1 << 20, first)
        if taken:
            self.log.append(to_batch(taken, "node", first))
            self.processed += [each.payload for each in taken]
        return self.log.last

    def commit(self, through: int) -> None:
        """Spark has done with these."""
        self.log.commit(through)
        self.link.accept(through)
        self.log.clean()

    def crash(self) -> None:
        """Another process takes over."""
        self.log.close()
        self._begin()
        self.line.machine = self.link
        self.line.cut()

    def finish(self) -> None:
        """Goes on until nothing moves any more."""
        self.line.run()
        while self.link.waiting:
            self.take()
            self.line.run()
        self.commit(self.log.last)
        self.line.run()
        self.log.clean()


def deduping(tmp_path: Path, *, restarts_tags: bool = False) -> Reader:
    """Makes a reader of a container that forgets whatever it has not heard settled."""
    keeper = Keeper(keeps=False, settles_second=False, restarts_tags=restarts_tags)
    keeper.waiting.extend(numbered(b"m", COUNT))
    return Reader(tmp_path, keeper, AT_LEAST_ONCE, dedupe=True)


def check_all_once(reader: Reader, count: int = COUNT) -> None:
    """Each message was processed once, and neither end has anything left."""
    assert reader.link.failure is None
    assert sorted(number_of(each) or 0 for each in reader.processed) == list(range(count))
    assert len(reader.keeper.settled) == count
    assert not reader.keeper.waiting
    assert not reader.keeper.unsettled
    assert reader.link.unsettled == 0
    assert not reader.log.segments()


@pytest.mark.parametrize("most", [3, 10])
@pytest.mark.parametrize("gives_back", [False, True])
def test_a_bounded_link_takes_so_many_and_leaves_nothing_unanswered(
    gives_back: bool, most: int
) -> None:
    keeper = Keeper()
    keeper.waiting.extend(numbered(b"m", COUNT))
    link = HoldingLink(
        name=LinkName("batch"),
        address="node",
        guarantee=EXACTLY_ONCE,
        window=100,
        gives_back=gives_back,
        most=most,
    )
    line = Line(link, keeper)
    line.run()
    link.drain()
    line.run()
    assert link.is_drained
    assert link.waiting == min(most, COUNT)
    keeper.waiting.append(b"late")
    taken = link.take(2, 1 << 20, 1)
    link.give_rest_back()
    link.accept(len(taken))
    line.run()
    assert (link.unsettled, keeper.unsettled, link.waiting) == (0, 0, 0)
    told = dict.fromkeys(range(2), RELEASED if gives_back else ACCEPTED)
    assert keeper.told == told | dict.fromkeys(range(2, min(most, COUNT)), RELEASED)
    assert keeper.waiting[-1] == b"late", "it was not asked for"


@pytest.mark.parametrize("restarts_tags", [False, True])
def test_what_a_forgetful_peer_brings_again_is_taken_once_and_settled(
    tmp_path: Path, restarts_tags: bool
) -> None:
    reader = deduping(tmp_path, restarts_tags=restarts_tags)
    for _ in range(3):
        reader.line.run()
        reader.take()
        reader.line.cut()
    reader.finish()
    check_all_once(reader)


@pytest.mark.parametrize("restarts_tags", [False, True])
def test_crashes_do_not_make_it_forget_ids(tmp_path: Path, restarts_tags: bool) -> None:
    reader = deduping(tmp_path, restarts_tags=restarts_tags)
    for _ in range(3):
        reader.line.run()
        reader.take()
        reader.crash()
    reader.finish()
    check_all_once(reader)


def test_ids_outlive_what_was_settled_for_the_settling_may_be_lost(tmp_path: Path) -> None:
    reader = deduping(tmp_path)
    reader.line.run()
    reader.commit(reader.take())
    reader.line.step(out_octets=0)
    reader.log.clean()
    assert not reader.log.segments(), "as far as is known, the peer has heard it"
    reader.crash()
    reader.finish()
    check_all_once(reader)


def test_of_ids_in_the_log_the_latest_are_kept(tmp_path: Path) -> None:
    log = Log.open(tmp_path, "node")
    log.lock()
    for number in range(1, 31):
        log.settled_ids.add([(number, f"string:{number}")])
    log.close()
    log = Log.open(tmp_path, "node")
    log.settled_ids.most = 10
    assert log.settled_ids.load() == [(number, f"string:{number}") for number in range(21, 31)]
    assert log.settled_ids.load() == log.settled_ids.load()
    with (tmp_path / "ids").open("ab") as file:
        file.write(b"\0\0\0")  # a crash in the middle of a note
    assert len(log.settled_ids.load()) == 10


def test_what_was_accepted_is_settling_until_the_peer_has_heard_it(tmp_path: Path) -> None:
    reader = Reader(tmp_path, Keeper())
    reader.keeper.waiting.extend(numbered(b"m", COUNT))
    reader.line.run()
    reader.commit(reader.take() - 2)
    assert (reader.link.settling, reader.link.unsettled) == (COUNT - 2, COUNT)
    reader.line.run()
    assert (reader.link.settling, reader.link.unsettled) == (0, 2)


def test_messages_without_ids_cannot_be_told_apart_once_the_peer_has_forgotten(
    tmp_path: Path,
) -> None:
    keeper = Keeper(keeps=False)
    keeper.waiting.append(encode_message(AnnotatedMessage(data=[b"no id"])))
    reader = Reader(tmp_path, keeper, EXACTLY_ONCE, dedupe=True)
    reader.line.run()
    reader.take()
    reader.crash()
    reader.line.run()
    assert reader.link.failure is not None
    assert reader.link.failure.name == NOT_FOUND


def test_exactly_once_is_refused_by_a_peer_that_forgets_what_it_was_told_to_keep(
    tmp_path: Path,
) -> None:
    keeper = Keeper(keeps=False)
    keeper.waiting.extend(numbered(b"m", COUNT))
    reader = Reader(tmp_path, keeper)
    reader.line.run()
    reader.take()
    reader.line.cut()
    reader.line.run()
    assert reader.link.failure is not None
    assert reader.link.failure.name == NOT_FOUND
    assert not reader.link.waiting


def test_exactly_once_is_refused_at_the_start_by_a_peer_that_settles_first(tmp_path: Path) -> None:
    keeper = Keeper(settles_second=False)
    keeper.waiting.extend(numbered(b"m", COUNT))
    reader = Reader(tmp_path, keeper)
    reader.line.run()
    assert reader.link.failure is not None
    assert reader.link.failure.name == NOT_IMPLEMENTED
    assert not reader.link.was_attached
    assert not reader.link.waiting


MANY = 30


def torment(
    tmp_path: Path, seed: int, keeper: Keeper, guarantee: Guarantee, dedupe: bool
) -> Reader:
    """Carries octets, takes, commits, cuts and crashes in random order, then goes on to the end."""
    chance = random.Random(seed)
    keeper.waiting.extend(numbered(b"m", MANY))
    reader = Reader(tmp_path, keeper, guarantee, dedupe)
    for _ in range(120):
        dice = chance.random()
        if dice < 0.7:
            reader.line.step(chance.randint(0, 400), chance.randint(0, 400))
        elif dice < 0.85:
            reader.take(chance.randint(1, 7))
        elif dice < 0.93:
            reader.commit(chance.randint(reader.log.committed, reader.log.last))
        elif dice < 0.97:
            reader.line.cut()
        else:
            reader.crash()
    reader.finish()
    return reader


SEEDS = pytest.mark.parametrize("seed", range(25))


@SEEDS
def test_a_peer_that_keeps_state_gives_each_message_once(tmp_path: Path, seed: int) -> None:
    reader = torment(tmp_path, seed, Keeper(), EXACTLY_ONCE, dedupe=False)
    check_all_once(reader, MANY)


@SEEDS
def test_from_a_peer_that_forgets_each_id_is_taken_once(tmp_path: Path, seed: int) -> None:
    keeper = Keeper(keeps=False, settles_second=False, restarts_tags=bool(seed % 2))
    reader = torment(tmp_path, seed, keeper, AT_LEAST_ONCE, dedupe=True)
    check_all_once(reader, MANY)


@SEEDS
def test_at_least_once_loses_nothing(tmp_path: Path, seed: int) -> None:
    keeper = Keeper(keeps=False, settles_second=False, restarts_tags=bool(seed % 2))
    reader = torment(tmp_path, seed, keeper, AT_LEAST_ONCE, dedupe=False)
    assert reader.link.failure is None
    assert {number_of(each) for each in reader.processed} == set(range(MANY))
    assert len(keeper.settled) == MANY
    assert reader.link.unsettled == 0
    assert not reader.log.segments()


def test_another_container_is_offered_no_map_of_the_first(tmp_path: Path) -> None:
    reader = Reader(tmp_path, Keeper(name="A"))
    reader.keeper.waiting.extend(numbered(b"m", COUNT))
    reader.line.run()
    reader.take()
    other = Keeper(name="B")
    reader.line.cut(other)
    reader.line.run()
    assert other.attached[-1].unsettled is None
    assert "B answers where A was" in str(reader.link.failure)


@pytest.mark.parametrize("says", ["dedupe", "at-least-once"])
def test_a_reader_goes_on_with_another_container_as_the_error_says(
    tmp_path: Path, says: str
) -> None:
    first, other = Keeper(name="A"), Keeper(name="B")
    reader = Reader(tmp_path, first)
    first.waiting.extend(numbered(b"a", COUNT))
    reader.line.run()
    reader.commit(reader.take() - 2)  # two are in the log, and Spark has not committed them
    reader.line.cut(other)
    reader.line.run()
    assert says in str(reader.link.failure)

    other.waiting.extend(list(numbered(b"b", 2 * COUNT))[COUNT:])
    reader.dedupe, reader.keeper = says == "dedupe", other
    reader.guarantee = EXACTLY_ONCE if reader.dedupe else AT_LEAST_ONCE
    reader.crash()
    for _ in range(3):
        reader.line.run()
        reader.commit(reader.take())
    reader.line.run()
    assert reader.link.failure is None
    assert len(reader.processed) == 2 * COUNT
    assert reader.link.unsettled == 0

    reader.guarantee, reader.dedupe = EXACTLY_ONCE, False
    reader.crash()
    reader.line.run()
    assert reader.link.failure is None
