"""Each rule of exactly-once between sites is taken away once: a test of the rule must then fail.

The rules are those at the head of ``core/mesh/chains.py``; ``tests/journal/test_chains.py`` breaks
the same in a model, in every order of events. Here the router itself is broken.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest.mock import patch

import attrs
import pytest

from router.core import restore, resume, settle
from router.core.attach import Attacher
from router.core.attach_requests import AttachRequests
from router.core.gate import Gate
from router.core.mesh import sites
from router.core.mesh.sites import Sites
from router.links import recovery
from router.links.expiry import Keeping, agree
from router.links.link import Connection
from router.links.recovery import ABSENT, START, Action, ResumeFrom, SendAnew
from router.model.condition import STOLEN
from router.model.outcome import DeliveryState
from router.model.terminus import Source, Target
from tests.core.mesh import test_exactly_once as shown
from tests.core.mesh.test_exactly_once import LINE, World, chain_attach, refusal, rivals
from tests.support.exact_sites import FOREVER


def an_attach_that_was_overtaken_is_refused() -> None:
    world = World(LINE)
    world.send(1)
    late = chain_attach(world)
    world.sites.cut("dc4", "dc5")
    world.sites.run(1.0)
    world.sites.dial("dc4", "dc5")
    world.sites.run(5.0)
    condition = refusal(world, late)
    assert condition is not None
    assert condition.name == STOLEN
    world.check(1)


def an_attach_that_was_overtaken_is_refused_after_a_crash_of_the_egress() -> None:
    world = World(LINE)
    world.send(1)
    late = chain_attach(world)
    world.sites.cut("dc4", "dc5")
    world.sites.run(1.0)
    world.sites.dial("dc4", "dc5")
    world.sites.run(5.0)
    world.sites.cut("dc1", "dc2")
    world.crash("dc5")
    world.sites.come_back("dc5")
    world.sites.run(1.0)
    late = attrs.evolve(late, link=world.sites["dc5"].next_link())
    condition = refusal(world, late)
    assert condition is not None
    assert condition.name == STOLEN
    world.sites.dial("dc1", "dc2")
    world.check(1)


def nothing_is_sent_before_it_is_bound_for_good() -> None:
    world, _ = rivals()
    world.sites.flushes = False
    before = world.sites.transfers("dc1", "dc2")
    world.send(1)
    assert world.sites.transfers("dc1", "dc2") == before
    world.sites.flush("dc1")
    world.sites.settle()
    assert world.sites.transfers("dc1", "dc2") == before + 1


def the_end_of_a_chain_is_never_crowded_out() -> None:
    with pytest.MonkeyPatch.context() as changes:
        shown.test_the_end_of_a_chain_outlives_any_number_of_suspended_links(changes)


def what_was_never_sent_goes_to_another_site() -> None:
    world, other = rivals()
    world.sites.flushes = False
    world.send(1)
    world.sites.cut("dc2", "dc5")
    world.sites.run(2.0)
    world.sites.flushes = True
    world.sites.run(5.0)
    assert other.end is not None
    assert len(other.end.received) == 1


@contextmanager
def late_attaches_are_accepted() -> Iterator[None]:
    with patch.object(Attacher, "_find_late", lambda *_: None):
        yield


@contextmanager
def numbers_are_forgotten_in_a_crash() -> Iterator[None]:
    with patch.object(restore, "read_terms", lambda *_: None):
        yield


@contextmanager
def an_egress_forgets_ends_of_chains() -> Iterator[None]:
    def as_asked(self: Attacher, connection: Connection, asked: Source | Target) -> Keeping:
        return agree(asked.expiry_policy, asked.expiry_seconds, FOREVER)

    with patch.object(Attacher, "_agree", as_asked):
        yield


@contextmanager
def signatures_are_not_checked() -> Iterator[None]:
    with patch.object(sites, "find_fault", lambda *_: None):
        yield


@contextmanager
def nothing_waits_for_the_disk() -> Iterator[None]:
    with patch.object(Gate, "holds", lambda *_: False):
        yield


@contextmanager
def what_was_held_back_counts_as_sent() -> Iterator[None]:
    whole = Gate.recall

    def recall(self: Gate, *args: Any, **names: Any) -> list[Any]:
        whole(self, *args, **names)
        return []

    with patch.object(Gate, "recall", recall):
        yield


@contextmanager
def what_is_unsettled_takes_another_way_at_once() -> Iterator[None]:
    with patch.object(AttachRequests, "is_kept", lambda *_: False):
        yield


@contextmanager
def what_is_released_comes_back_to_its_sender() -> Iterator[None]:
    with patch.object(settle, "may_go_on", lambda *_: False):
        yield


@contextmanager
def the_answer_is_not_believed() -> Iterator[None]:
    whole = recovery.resume

    def insist(ours: DeliveryState | None, theirs: Any) -> Action:
        found = whole(ours, theirs)
        return ResumeFrom(START) if isinstance(found, SendAnew) else found

    with patch.object(resume, "resume", insist):
        yield


@contextmanager
def the_answer_is_not_read() -> Iterator[None]:
    whole = recovery.resume
    with patch.object(resume, "resume", lambda ours, theirs: whole(ours, ABSENT)):
        yield


@contextmanager
def transit_takes_part() -> Iterator[None]:
    with patch.object(Sites, "lead", lambda *_: None):
        yield


MUTATIONS = [
    (late_attaches_are_accepted, an_attach_that_was_overtaken_is_refused),
    (
        late_attaches_are_accepted,
        shown.test_an_attach_that_comes_once_more_is_refused_and_changes_nothing,
    ),
    (
        numbers_are_forgotten_in_a_crash,
        an_attach_that_was_overtaken_is_refused_after_a_crash_of_the_egress,
    ),
    (an_egress_forgets_ends_of_chains, the_end_of_a_chain_is_never_crowded_out),
    (signatures_are_not_checked, shown.test_no_router_speaks_as_the_ingress_of_another),
    (
        nothing_waits_for_the_disk,
        shown.test_the_egress_answers_a_numbered_attach_when_its_number_is_durable,
    ),
    (nothing_waits_for_the_disk, nothing_is_sent_before_it_is_bound_for_good),
    (what_was_held_back_counts_as_sent, what_was_never_sent_goes_to_another_site),
    (
        what_is_released_comes_back_to_its_sender,
        shown.test_what_a_site_has_released_goes_to_another,
    ),
    (
        what_is_unsettled_takes_another_way_at_once,
        shown.test_what_a_site_may_have_goes_to_no_other_and_names_it,
    ),
    (
        the_answer_is_not_believed,
        shown.test_what_a_site_never_got_goes_to_another_when_that_site_has_said_so,
    ),
    (
        the_answer_is_not_read,
        shown.test_a_cut_path_is_left_for_another_and_nothing_is_lost_or_doubled,
    ),
    (transit_takes_part, shown.test_a_delivery_passes_two_transits_that_keep_nothing_of_it),
]


@pytest.mark.parametrize(("mutation", "rule"), MUTATIONS)
def test_without_a_rule_its_test_fails(
    mutation: Callable[[], AbstractContextManager[None]], rule: Callable[[], None]
) -> None:
    rule()
    with mutation(), pytest.raises(AssertionError):
        rule()
