"""How long termini are kept (§3.5.6)."""

import pytest

from router.links.expiry import FOREVER, NEVER_EXPIRES, Keeping, agree, seconds_left
from router.model.terminus import ExpiryPolicy

DETACH, SESSION, CONNECTION, NEVER = (
    ExpiryPolicy.LINK_DETACH,
    ExpiryPolicy.SESSION_END,
    ExpiryPolicy.CONNECTION_CLOSE,
    ExpiryPolicy.NEVER,
)


@pytest.mark.parametrize("policy", [DETACH, SESSION, CONNECTION])
def test_what_is_asked_for_is_kept_up_to_the_limit(policy: ExpiryPolicy) -> None:
    assert agree(policy, 60, 100) == Keeping(policy, 60)
    assert agree(policy, 600, 100) == Keeping(policy, 100)


def test_never_is_cut_to_the_limit_and_says_so() -> None:
    assert agree(NEVER, 0, 100) == Keeping(CONNECTION, 100)


@pytest.mark.parametrize(
    ("policy", "connection_lost", "seconds"),
    [
        (DETACH, False, 5.0),
        (SESSION, False, FOREVER),
        (CONNECTION, False, FOREVER),
        (DETACH, True, 5.0),
        (SESSION, True, 5.0),
        (CONNECTION, True, 5.0),
    ],
)
def test_countdown_begins_as_the_policy_says(
    policy: ExpiryPolicy, connection_lost: bool, seconds: float
) -> None:
    assert seconds_left(Keeping(policy, 5), connection_lost=connection_lost) == seconds


def test_links_that_we_alone_decide_about_do_not_expire() -> None:
    assert seconds_left(NEVER_EXPIRES, connection_lost=True) == FOREVER
