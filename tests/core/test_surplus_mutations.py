"""Each rule of ``core/surplus.py`` is taken away once: a test of the rule must then fail."""

import math
from functools import partial

import pytest

from router.core import events, surplus
from router.core.credit import Granter
from router.core.surplus import Surplus
from tests.core import test_surplus as shown
from tests.support.broken import Mutation, Rule, broken, must_show

nothing_is_told = broken(Surplus, "_tell", lambda *_: None)
everything_is_told = broken(surplus, "PATIENCE_SECONDS", 0.0)
as_much_as_waits_is_recalled = broken(Surplus, "_count_recallable", lambda *args: args[-1])
it_is_recalled_for_ever = broken(surplus, "RETURNS_MOST", math.inf)
what_was_sent_goes_back = broken(surplus, "_is_untouched", lambda _: True)
who_returns_is_believed = broken(events, "is_between_routers", lambda _: True)
credit_stays = broken(Granter, "withdraw", lambda *_: None)
transits_keep_it = broken(Surplus, "_owes", lambda *_: False)
transits_keep_the_news = broken(surplus, "can_lead_on", lambda *_: False)
pauses_do_not_count = broken(
    surplus, "_is_shared", lambda node: not (node.is_multicast or node.is_lossy)
)

over_workers = partial(shown.test_it_passes_the_workers_of_both_sites, 2)

MUTATIONS: list[tuple[Mutation, Rule]] = [
    (
        nothing_is_told,
        partial(
            shown.test_what_waits_at_another_worker_goes_to_an_idle_receiver_here, shown.ORDERS
        ),
    ),
    (
        everything_is_told,
        partial(shown.test_receivers_that_keep_up_are_not_told_of, 40, is_told=False),
    ),
    (
        as_much_as_waits_is_recalled,
        shown.test_no_more_is_recalled_than_others_have_credit_for_and_the_last_come_first,
    ),
    (it_is_recalled_for_ever, shown.test_a_delivery_is_recalled_a_few_times_at_most),
    (it_is_recalled_for_ever, shown.test_a_router_that_returns_without_end_is_believed_a_few_times),
    (who_returns_is_believed, shown.test_a_client_cannot_say_that_it_was_not_sent_what_it_was),
    (what_was_sent_goes_back, shown.test_what_a_receiver_has_had_is_not_recalled),
    (
        credit_stays,
        shown.test_credit_that_is_left_is_asked_back_and_the_receiver_takes_part_again,
    ),
    (transits_keep_it, over_workers),
    (transits_keep_the_news, over_workers),
    (pauses_do_not_count, shown.test_a_route_that_an_operator_has_paused_returns_nothing),
]


@pytest.mark.parametrize(("mutation", "rule"), MUTATIONS)
def test_without_a_rule_its_test_fails(mutation: Mutation, rule: Rule) -> None:
    must_show(mutation, rule)
