"""`router demo`, as `make demo` runs it."""

import json
import time

import pytest
import trio

from router.cli import demo
from router.cli.demo import Account, Demo, is_good
from router.model.delivery import ReceivedDelivery
from router.model.identity import DeliveryNumber, DeliveryTag
from router.net.client.message import numbered
from tests.support.commands import run


def test_nothing_is_lost_or_duplicated_and_it_says_so() -> None:
    began = time.monotonic()
    ended = run("demo")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert time.monotonic() - began < 60
    assert ended.stderr == ""
    lines = (line.split() for line in ended.stdout.splitlines())
    account = {words[0]: words[1] for words in lines if len(words) > 1}
    assert account["sent"] == account["accepted"] == account["received"] == "20,000"
    assert account["lost"] == account["duplicated"] == "0"
    assert ended.stdout.count("connection is cut") == 2
    assert "Nothing lost, nothing duplicated." in ended.stdout


def test_json_gives_the_account_and_nothing_else() -> None:
    ended = run("demo", "--count", "3000", "--size", "1000", "--json")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    account = json.loads(ended.stdout)
    assert account["sent"] == account["received"] == 3000
    assert account["lost"] == account["duplicated"] == account["in_doubt"] == 0
    assert account["connections"] == 4
    assert account["error"] is None


def deliver(account: Account, *numbers: int) -> None:
    payloads = list(numbered(b"m", max(numbers) + 1))
    for number in numbers:
        account.take(ReceivedDelivery(DeliveryNumber(number), DeliveryTag(b"t"), payloads[number]))


def test_the_account_tells_lost_from_duplicated() -> None:
    account = Account(expected=5)
    deliver(account, 0, 1, 1, 4, 4, 4)
    assert (account.received, account.lost, account.duplicated) == (3, 2, 3)


def test_a_demo_that_lost_something_is_not_good() -> None:
    shown = Demo(count=2, size=1, say=lambda text: None)
    shown.exit_code = 0
    shown.sender.report.outcomes["accepted"] = 2
    deliver(shown.account, 0)
    assert not is_good(shown)
    deliver(shown.account, 1)
    assert is_good(shown)
    deliver(shown.account, 1)
    assert not is_good(shown)


def test_a_router_that_does_not_start_is_told_with_its_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(demo, "CONFIG", "routes: 7\n")
    with pytest.raises(ExceptionGroup) as caught:
        trio.run(Demo(count=1, size=1, say=lambda text: None).run)
    assert "routes" in str(caught.value.exceptions[0])
