"""Each rule of exactly-once between sites is taken away once: a test of the rule must then fail.

The rules are those at the head of ``core/mesh/chains.py``; ``tests/journal/test_chains.py`` breaks
the same in a model, in every order of events. Here the router itself is broken.
"""

from typing import Any

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
from tests.support.broken import Mutation, Rule, broken, must_show
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


late_attaches_are_accepted = broken(Attacher, "_find_late", lambda *_: None)
numbers_are_forgotten_in_a_crash = broken(restore, "read_terms", lambda *_: None)


def as_asked(self: Attacher, connection: Connection, asked: Source | Target) -> Keeping:
    return agree(asked.expiry_policy, asked.expiry_seconds, FOREVER)


an_egress_forgets_ends_of_chains = broken(Attacher, "_agree", as_asked)


signatures_are_not_checked = broken(sites, "find_fault", lambda *_: None)
nothing_waits_for_the_disk = broken(Gate, "holds", lambda *_: False)


def recall(self: Gate, *args: Any, **names: Any) -> list[Any]:
    whole_recall(self, *args, **names)
    return []


whole_recall = Gate.recall
what_was_held_back_counts_as_sent = broken(Gate, "recall", recall)


what_is_unsettled_takes_another_way_at_once = broken(AttachRequests, "is_kept", lambda *_: False)
what_is_released_comes_back_to_its_sender = broken(settle, "may_go_on", lambda *_: False)


def insist(ours: DeliveryState | None, theirs: Any) -> Action:
    found = recovery.resume(ours, theirs)
    return ResumeFrom(START) if isinstance(found, SendAnew) else found


the_answer_is_not_believed = broken(resume, "resume", insist)
the_answer_is_not_read = broken(
    resume, "resume", lambda ours, theirs: recovery.resume(ours, ABSENT)
)


transit_takes_part = broken(Sites, "lead", lambda *_: None)


MUTATIONS: list[tuple[Mutation, Rule]] = [
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
def test_without_a_rule_its_test_fails(mutation: Mutation, rule: Rule) -> None:
    must_show(mutation, rule)
