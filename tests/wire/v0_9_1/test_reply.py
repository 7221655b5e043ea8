import pytest

from router.model import condition as conditions
from router.model.condition import Condition
from router.wire.v0_9_1.reply import (
    HARD_ERRORS,
    Reply,
    channel_reply,
    condition_of,
    connection_reply,
    reply_text,
)


@pytest.mark.parametrize("code", [code for code in Reply if code is not Reply.SUCCESS])
def test_every_code_has_a_condition_that_keeps_its_number_and_text(code: Reply) -> None:
    condition = condition_of(code, "why")
    assert condition.name.startswith("amqp:")
    assert condition.description == f"{code.value} why"


def test_a_code_of_a_peers_own_is_an_internal_error() -> None:
    assert condition_of(599, "odd").name == conditions.INTERNAL_ERROR


def test_the_end_of_a_channel_is_always_told_by_a_soft_code() -> None:
    names = [value for name, value in vars(conditions).items() if name.isupper()]
    for name in names:
        assert channel_reply(Condition(name)) not in HARD_ERRORS
    assert channel_reply(None) is Reply.PRECONDITION_FAILED
    assert channel_reply(Condition(conditions.NOT_FOUND)) is Reply.NOT_FOUND


def test_the_end_of_a_connection_is_told_by_a_hard_code_unless_it_is_orderly() -> None:
    names = [value for name, value in vars(conditions).items() if name.isupper()]
    for name in names:
        assert connection_reply(Condition(name)) in HARD_ERRORS
    assert connection_reply(None) is Reply.SUCCESS


def test_reply_texts_fit_a_short_string_and_stay_text() -> None:
    text = reply_text(Reply.NOT_FOUND, "é" * 200)
    assert text.startswith("NOT_FOUND - é")
    assert len(text.encode()) <= 255
