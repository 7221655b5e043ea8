"""A core is put together in any order."""

import itertools
import random
from functools import cached_property

import pytest

from router.core.homes import Homes
from router.core.orphans import Orphans
from router.core.parts import Parts
from router.core.registry import Registry
from router.core.settings import CoreSettings
from router.core.state import State
from router.model.identity import LinkId
from tests.support.play import table

NAMES = sorted(name for name, kind in vars(Parts).items() if isinstance(kind, cached_property))


def parts() -> Parts:
    settings = CoreSettings(router_id="dc1")
    registry = Registry(settings, table("orders"))
    return Parts(
        state=State(settings=settings, registry=registry, orphans=Orphans(lambda: "token")),
        link_ids=map(LinkId, itertools.count(1)),
        express=None,
        containers=None,
        homes=Homes(),
        memory={},
        random=random.random,
        make_token=lambda: "token",
    )


@pytest.mark.parametrize("first", NAMES)
def test_any_part_may_be_built_first_and_each_is_built_once(first: str) -> None:
    made = parts()
    built = {first: getattr(made, first)}
    built |= {name: getattr(made, name) for name in NAMES}
    assert all(getattr(made, name) is part for name, part in built.items())
    kinds = [type(part) for part in built.values()]
    assert len(set(kinds)) == len(kinds)


def test_nothing_is_built_before_it_is_asked_for() -> None:
    made = parts()
    assert made.settler is made.settler
    assert not set(vars(made)) & (set(NAMES) - {"settler"})
