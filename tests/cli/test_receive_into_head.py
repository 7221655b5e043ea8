"""`router receive … | head`: a reader that leaves ends the receiver, which closes its link."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from router.cli.receive import kept_seconds
from router.net.client.terminus import TERMINUS_SECONDS
from router.routes.route import Guarantee
from tests.support.commands import begin_octets
from tests.support.ports import free_port
from tests.support.running import running_router

pytestmark = pytest.mark.long

CONFIG = """\
router: {{id: head, admin: off, workers: 2}}
listeners:
  - bind: 127.0.0.1:{port}
routes:
  - address: often.#
  - {{address: once.#, guarantee: exactly-once, in_doubt: resend}}
"""

MESSAGES = 300


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    port = free_port()
    with running_router(CONFIG.format(port=port), tmp_path_factory.mktemp("head")):
        yield f"amqp://127.0.0.1:{port}"


@pytest.mark.parametrize("form", ["--show", "--json-lines"])
@pytest.mark.parametrize("address", ["often.head", "once.head"])
def test_what_a_receiver_did_not_print_is_free_as_soon_as_its_reader_has_gone(
    url: str, address: str, form: str
) -> None:
    address = f"{address}.{form.strip('-')}"
    head = begin_octets("receive", url, address, form, "--timeout", "60")
    assert head.stdin is not None
    assert head.stdout is not None
    assert head.stderr is not None
    sender = begin_octets("send", url, address, "--lines", "--timeout", "40")
    assert sender.stdin is not None
    sender.stdin.write(b"a line\n" * MESSAGES)
    sender.stdin.close()
    sender.stdin = None
    assert b"a line" in head.stdout.readline()
    head.stdout.close()
    assert (head.wait(60), head.stderr.read()) == (0, b"")
    head.stdin.close()
    head.stderr.close()
    other = begin_octets("receive", url, address, "--timeout", "60")
    output, _ = sender.communicate(timeout=90)
    outcomes = re.search(rb"sent (\d+)", output)
    assert outcomes is not None, output
    assert int(outcomes[1]) == MESSAGES, "nothing waits for the link of the receiver that left"
    told = sum(int(count) for count in re.findall(rb"(?:accepted|released|modified) (\d+)", output))
    assert told >= MESSAGES
    other.terminate()
    other.communicate(timeout=60)


def test_a_reader_that_leaves_before_the_count_is_reached_fails_the_receiver(url: str) -> None:
    head = begin_octets("receive", url, "often.count", "--show", "--count", "10", "--timeout", "60")
    assert head.stdout is not None
    head.stdout.close()
    head.stdout = None
    sender = begin_octets("send", url, "often.count", "--timeout", "40")
    sender.communicate(timeout=90)
    _, errors = head.communicate(timeout=60)
    assert (head.returncode, errors) == (1, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_named_and_ends_the_receiver(url: str) -> None:
    with open("/dev/full", "wb") as full:
        receiver = subprocess.Popen(
            [sys.executable, "-m", "router", "receive", url, "often.full", "--show"],
            stdout=full,
            stderr=subprocess.PIPE,
        )
    sender = begin_octets("send", url, "often.full", "--timeout", "40")
    sender.communicate(timeout=90)
    assert sender.returncode == 1, "it was released"
    _, errors = receiver.communicate(timeout=60)
    assert receiver.returncode == 1
    assert b"router receive: standard output: No space left on device" in errors
    assert b"Traceback" not in errors


def test_a_link_that_only_this_process_knows_is_not_kept_after_it_has_given_up() -> None:
    assert kept_seconds(None, 10.0, Guarantee.AT_LEAST_ONCE) == 25, "10 s of dialing, 15 s for one"
    assert kept_seconds(None, 3600.0, Guarantee.AT_LEAST_ONCE) == TERMINUS_SECONDS


def test_a_link_that_others_may_take_up_and_one_that_must_not_repeat_are_kept_long() -> None:
    assert kept_seconds("mine", 10.0, Guarantee.AT_LEAST_ONCE) == TERMINUS_SECONDS
    assert kept_seconds(None, 10.0, Guarantee.EXACTLY_ONCE) == TERMINUS_SECONDS
