"""Numbers of attaches that outlive a reader's or a writer's process."""

from itertools import count
from pathlib import Path

import pytest

from router.links.attaches import read_number
from router.model.commands import AttachLink
from router.model.identity import LinkId, LinkName
from router.pipeline.amqp.holding import HoldingLink
from router.pipeline.amqp.numbers import DurableCount
from router.pipeline.store import LocalStore
from router.routes.route import Guarantee


def test_each_life_goes_on_where_the_last_one_stopped(tmp_path: Path) -> None:
    first = [DurableCount(LocalStore(tmp_path)).draw() for _ in range(2)]
    count = DurableCount(LocalStore(tmp_path))
    numbers = [*first, count.draw(), count.draw()]
    assert [number.n for number in numbers] == [1, 2, 3, 4]
    assert len({number.epoch for number in numbers}) == 1


def test_a_number_is_on_disk_before_it_is_used(tmp_path: Path) -> None:
    number = DurableCount(LocalStore(tmp_path)).draw()
    noted = (tmp_path / "attaches.json").read_text()
    assert f'"n": {number.n}' in noted


def test_a_directory_that_was_wiped_has_a_greater_epoch(tmp_path: Path) -> None:
    first = DurableCount(LocalStore(tmp_path)).draw()
    (tmp_path / "attaches.json").unlink()
    assert DurableCount(LocalStore(tmp_path)).draw() > first


@pytest.mark.parametrize("guarantee", [Guarantee.AT_LEAST_ONCE, Guarantee.EXACTLY_ONCE])
def test_every_attach_of_a_reader_has_the_next_number(tmp_path: Path, guarantee: Guarantee) -> None:
    link = HoldingLink(
        name=LinkName("spark-1"),
        address="node",
        guarantee=guarantee,
        window=10,
        draw_number=DurableCount(LocalStore(tmp_path)).draw,
    )
    numbers = []
    for _ in range(3):
        (attach,) = link.attach(map(LinkId, count(1)))
        assert isinstance(attach, AttachLink)
        numbers.append(read_number(attach.properties))
    assert [number and number.n for number in numbers] == [1, 2, 3]
