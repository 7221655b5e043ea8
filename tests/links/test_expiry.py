"""How long termini are kept (§3.5.6)."""

import pytest

from router.links.expiry import FOREVER, NEVER_EXPIRES, End, Keeping, agree, seconds_left
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
    ("policy", "end", "seconds"),
    [
        (DETACH, End.LINK, 5.0),
        (SESSION, End.LINK, FOREVER),
        (CONNECTION, End.LINK, FOREVER),
        (DETACH, End.SESSION, 5.0),
        (SESSION, End.SESSION, 5.0),
        (CONNECTION, End.SESSION, FOREVER),
        (DETACH, End.CONNECTION, 5.0),
        (SESSION, End.CONNECTION, 5.0),
        (CONNECTION, End.CONNECTION, 5.0),
    ],
)
def test_countdown_begins_as_the_policy_says(
    policy: ExpiryPolicy, end: End, seconds: float
) -> None:
    assert seconds_left(Keeping(policy, 5), end) == seconds


def test_links_that_we_alone_decide_about_do_not_expire() -> None:
    assert seconds_left(NEVER_EXPIRES, End.CONNECTION) == FOREVER
