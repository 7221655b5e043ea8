"""Each rule of the mesh is taken away once: a test of the rule must then fail."""

import inspect
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from unittest.mock import patch

import pytest

from router.routes.mesh import topology, tree
from router.routes.mesh.comparing import Comparer
from router.routes.mesh.database import Database, Place
from router.routes.mesh.neighbors import Neighbor
from router.routes.mesh.nouns import Entry
from router.routes.mesh.policy import Policy
from router.routes.mesh.site import Site
from tests.routes.mesh import test_lies
from tests.routes.mesh.simulator import HashVerifier, mesh_of, name


def lost_messages_are_found() -> None:
    simulator = mesh_of(4, 3, seed=12)
    simulator.run(8.0)
    for link in simulator.links.values():
        link.loss = 1.0
    simulator.cut(simulator.link(name(0), name(1)))
    simulator.run(1.0)
    for link in simulator.links.values():
        link.loss = 0.0
    simulator.run(20.0)
    assert simulator.wrong() == []
    assert len(simulator.digests()) == 1


def silence_is_noticed() -> None:
    simulator = mesh_of(4, 3, seed=11)
    simulator.run(3.0)
    simulator.link(name(0), name(1)).is_silent = True
    simulator.run(8.0)
    assert simulator.wrong() == []


def a_forgetful_router_is_heard() -> None:
    simulator = mesh_of(3, 2, seed=11)
    simulator.run(2.0)
    simulator.restart(name(2))
    simulator.run(3.0)
    simulator.restart(name(2), epoch=1)
    simulator.run(15.0)
    assert simulator.wrong() == []
    assert len(simulator.digests()) == 1


@contextmanager
def lower_sequences_are_accepted() -> Iterator[None]:
    whole = Database.place

    def place(self: Database, entry: Entry) -> Place:
        found = whole(self, entry)
        return Place.NEWER if found is Place.OLDER else found

    with patch.object(Database, "place", place):
        yield


@contextmanager
def links_of_one_end_count() -> Iterator[None]:
    rule = "if router not in claims.get(neighbor, nothing):"
    source = inspect.getsource(tree.grow)
    assert rule in source
    names = dict(vars(tree))
    exec(source.replace(rule, "if False:"), names)
    with patch.object(topology, "grow", names["grow"]):
        yield


@contextmanager
def signatures_are_not_checked() -> Iterator[None]:
    with patch.object(HashVerifier, "verify", lambda *_: True):
        yield


@contextmanager
def policies_allow_everything() -> Iterator[None]:
    allowed = Policy.parse({}).others
    with patch.object(Policy, "allowed_for", lambda *_: allowed):
        yield


@contextmanager
def nothing_is_compared() -> Iterator[None]:
    with (
        patch.object(Comparer, "hear", lambda *_: False),
        patch.object(Comparer, "begin", lambda *_: False),
    ):
        yield


@contextmanager
def silence_has_no_timer() -> Iterator[None]:
    with patch.object(Neighbor, "dead_at", property(lambda self: self.hello_at + 1e9)):
        yield


@contextmanager
def an_epoch_is_never_raised() -> Iterator[None]:
    with patch.object(Site, "outlive", lambda *_: False):
        yield


MUTATIONS = [
    (lower_sequences_are_accepted, test_lies.test_an_older_sequence_changes_nothing),
    (
        links_of_one_end_count,
        test_lies.test_a_link_that_the_other_end_denies_carries_nothing_and_is_named_after_ten_seconds,
    ),
    (
        signatures_are_not_checked,
        test_lies.test_an_entry_that_its_origin_has_not_signed_is_refused_and_the_neighbor_named,
    ),
    (
        policies_allow_everything,
        test_lies.test_a_prefix_that_a_router_may_not_advertise_is_not_used_and_its_origin_named,
    ),
    (nothing_is_compared, lost_messages_are_found),
    (silence_has_no_timer, silence_is_noticed),
    (an_epoch_is_never_raised, a_forgetful_router_is_heard),
]


@pytest.mark.parametrize(("mutation", "rule"), MUTATIONS)
def test_without_a_rule_its_test_fails(
    mutation: Callable[[], AbstractContextManager[None]], rule: Callable[[], None]
) -> None:
    rule()
    with mutation(), pytest.raises(AssertionError):
        rule()
