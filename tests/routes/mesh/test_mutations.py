"""Each rule of the mesh is taken away once: a test of the rule must then fail."""

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
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
from tests.support.broken import Mutation, Rule, broken, must_show


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


def place(self: Database, entry: Entry) -> Place:
    found = whole_place(self, entry)
    return Place.NEWER if found is Place.OLDER else found


whole_place = Database.place
lower_sequences_are_accepted = broken(Database, "place", place)


@contextmanager
def links_of_one_end_count() -> Iterator[None]:
    rule = "if router not in claims.get(neighbor, nothing):"
    source = inspect.getsource(tree.grow)
    assert rule in source
    names = dict(vars(tree))
    exec(source.replace(rule, "if False:"), names)
    with patch.object(topology, "grow", names["grow"]):
        yield


signatures_are_not_checked = broken(HashVerifier, "verify", lambda *_: True)


policies_allow_everything = broken(Policy, "allowed_for", lambda *_: Policy.parse({}).others)


@contextmanager
def nothing_is_compared() -> Iterator[None]:
    with (
        patch.object(Comparer, "hear", lambda *_: False),
        patch.object(Comparer, "begin", lambda *_: False),
    ):
        yield


silence_has_no_timer = broken(Neighbor, "dead_at", property(lambda self: self.hello_at + 1e9))
an_epoch_is_never_raised = broken(Site, "outlive", lambda *_: False)


MUTATIONS: list[tuple[Mutation, Rule]] = [
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
def test_without_a_rule_its_test_fails(mutation: Mutation, rule: Rule) -> None:
    must_show(mutation, rule)
