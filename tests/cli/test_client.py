"""`router send` and `router receive` against a running router, as a user types them."""

import contextlib
import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
import trustme

from router.cli.client import SILENT_SECONDS
from router.wire.protocols import PROTOCOLS
from tests.support.commands import begin, begun
from tests.support.cuttable import Cuttable, cuttable
from tests.support.ports import free_port
from tests.support.running import RunningRouter, running_router

CONFIG = """\
router: {{id: cli, admin: off, workers: 2}}
listeners:
  - bind: 127.0.0.1:{port}
  - bind: unix:{folder}/socket
  - bind: 127.0.0.1:{secure_port}
    tls: {{cert: {folder}/server.pem, key: {folder}/server.pem, required: true}}
    sasl: {{mechanisms: [PLAIN], users: {{app: open/sesame}}}}
routes:
  - address: once.#
    guarantee: exactly-once
  - address: orders.#
"""


CUT_COUNT = 10_000
"""So many that neither end is near its last when a third of the octets has passed."""


@attrs.frozen
class House:
    """A running router and the ways to reach it."""

    router: RunningRouter
    url: str
    unix_url: str
    secure_url: str
    authorities: Path


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    folder = tmp_path_factory.mktemp("house")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(folder / "authorities.pem"))
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(
        str(folder / "server.pem")
    )
    port, secure_port = free_port(), free_port()
    config = CONFIG.format(folder=folder, port=port, secure_port=secure_port)
    with running_router(config, folder) as router:
        yield House(
            router,
            f"amqp://127.0.0.1:{port}",
            f"unix:{folder}/socket",
            f"amqps://app:open%2Fsesame@127.0.0.1:{secure_port}",
            folder / "authorities.pem",
        )


def end(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    output, errors = process.communicate(timeout=120)
    return process.returncode, output, errors or ""


def run(*arguments: str) -> tuple[int, str, str]:
    return end(begin(*arguments))


def complaints(errors: str) -> list[str]:
    """What a sender says, but for why it waits: on a busy machine receivers may be slow to come."""
    return [line for line in errors.splitlines() if not line.startswith("router send: it ")]


def receiving(*arguments: str) -> AbstractContextManager[subprocess.Popen[str]]:
    return begun("receive", *arguments)


@pytest.mark.parametrize("settle", ["at-most-once", "at-least-once", "exactly-once"])
def test_what_is_sent_is_received_and_both_give_their_account(house: House, settle: str) -> None:
    address = f"once.{settle}"
    options = ["--count", "500", "--settle", settle, "--json", "--timeout", "60"]
    with receiving(house.url, address, *options) as receiver:
        code, output, errors = run("send", house.url, address, *options)
        assert (code, complaints(errors)) == (0, [])
        sent = json.loads(output)
        code, output, errors = end(receiver)
    assert (code, errors) == (0, "")
    received = json.loads(output)
    assert sent["sent"] == received["received"] == 500
    assert sent["outcomes"] == {"settled" if settle == "at-most-once" else "accepted": 500}
    assert received["outcomes"] == {"accepted": 500}
    assert sent["octets"] == received["octets"] > 500 * 100
    for account in (sent, received):
        assert account["connections"] == 1
        assert account["in_doubt"] == account["resent"] == account["repeated"] == 0
        assert account["seconds"] > 0
        assert account["messages_per_second"] > 0
        assert account["error"] is None


async def test_links_are_resumed_when_connections_are_cut_in_the_middle(house: House) -> None:
    port = int(house.url.rpartition(":")[2])
    sent: list[dict[str, Any]] = []
    received: list[dict[str, Any]] = []

    async def converse(verb: str, relay: Cuttable, count: int) -> dict[str, Any]:
        command = [sys.executable, "-m", "router", verb, f"amqp://127.0.0.1:{relay.port}"]
        options = ["--count", str(count), "--settle", "exactly-once", "--json"]
        patience = ["--timeout", "120"]
        done = await trio.run_process(
            [*command, "once.cut", *options, *patience], capture_stdout=True, check=False
        )
        account: dict[str, Any] = json.loads(done.stdout)
        return account

    async def send_all(relay: Cuttable) -> None:
        left = CUT_COUNT
        while left:  # what the receiver was not sent when it was cut is released: it may be sent
            sent.append(await converse("send", relay, left))
            assert sent[-1]["outcomes"].keys() <= {"accepted", "released"}
            left -= sent[-1]["outcomes"].get("accepted", 0)

    async def receive_all(relay: Cuttable) -> None:
        received.append(await converse("receive", relay, CUT_COUNT))

    async def cut_in_the_middle(relay: Cuttable) -> None:
        while relay.octets < CUT_COUNT * 100 // 3:  # their bodies alone are 100 octets each
            await trio.sleep(0.005)
        relay.cut()

    async with cuttable(port) as near, cuttable(port) as far:
        async with trio.open_nursery() as nursery:
            for talk, relay in ((receive_all, far), (send_all, near)):
                nursery.start_soon(talk, relay)
                nursery.start_soon(cut_in_the_middle, relay)
        assert (near.cuts, far.cuts) == (1, 1)
    assert sum(each["outcomes"].get("accepted", 0) for each in sent) == CUT_COUNT
    assert received[0]["outcomes"] == {"accepted": CUT_COUNT}
    assert received[0]["received"] == CUT_COUNT
    for account in (sent[0], received[0]):
        assert (account["connections"], account["in_doubt"]) == (2, 0)
    assert sent[0]["resumed"] + sent[0]["resent"] > 0, "the window was full when it was cut"


@pytest.mark.long
async def test_a_peer_that_hangs_is_given_up_within_seconds_over_every_protocol(
    house: House,
) -> None:
    """Its kernel acknowledges what it is sent, and its connections stay: only silence tells."""
    accounts: dict[str, dict[str, Any]] = {}
    protocols = [str(each) for each in PROTOCOLS]
    router = [sys.executable, "-m", "router"]

    async def receive(protocol: str, relay: Cuttable) -> None:
        words = [f"amqp://127.0.0.1:{relay.port}", f"orders.hung.{protocol}", "--json"]
        options = ["--protocol", protocol, "--count", "2", "--timeout", "120"]
        done = await trio.run_process([*router, "receive", *words, *options], capture_stdout=True)
        accounts[protocol] = json.loads(done.stdout)

    async def send_one_to_each() -> None:
        for protocol in protocols:
            words = [house.url, f"orders.hung.{protocol}", "--count", "1", "--timeout", "60"]
            await trio.run_process([*router, "send", *words], capture_stdout=True)

    async with cuttable(int(house.url.rpartition(":")[2])) as relay, trio.open_nursery() as nursery:
        for protocol in protocols:
            nursery.start_soon(receive, protocol, relay)
        await send_one_to_each()
        assert relay.hang() == len(protocols)
        began = trio.current_time()
        while len(relay.streams - relay.hung) < 2 * len(protocols):
            await trio.sleep(0.05)
        assert trio.current_time() - began > SILENT_SECONDS / 2
        await send_one_to_each()
    for protocol in protocols:
        account = accounts[protocol]
        assert (account["received"], account["connections"]) == (2, 2), protocol


@pytest.mark.long
def test_who_was_stopped_takes_what_has_arrived_before_it_calls_the_peer_silent(
    house: House,
) -> None:
    options = ["--count", "2", "--json", "--timeout", "60"]
    with receiving(house.url, "orders.stopped", *options) as receiver:
        assert run("send", house.url, "orders.stopped", "--count", "1")[0] == 0
        receiver.send_signal(signal.SIGSTOP)
        time.sleep(SILENT_SECONDS + 2)
        receiver.send_signal(signal.SIGCONT)
        assert run("send", house.url, "orders.stopped", "--count", "1")[0] == 0
        code, output, errors = end(receiver)
    assert (code, errors) == (0, "")
    assert json.loads(output)["connections"] == 1


@pytest.mark.parametrize("protocol", [str(each) for each in PROTOCOLS])
def test_every_protocol_is_spoken_both_ways(house: House, protocol: str) -> None:
    address = f"orders.{protocol}"
    options = ["--count", "200", "--protocol", protocol, "--timeout", "60"]
    with receiving(house.url, address, *options, "--show") as receiver:
        code, output, errors = run("send", house.url, address, *options, "--body", "grüezi")
        assert (code, complaints(errors)) == (0, [])
        assert output.startswith("sent 200, accepted 200 in ")
        code, output, errors = end(receiver)
    assert (code, errors) == (0, "")
    *bodies, account = output.splitlines()
    assert bodies == ["grüezi"] * 200
    assert account.startswith("received 200, accepted 200 in ")


def test_exactly_once_is_refused_where_the_protocol_cannot_give_it(house: House) -> None:
    options = ["--settle", "exactly-once", "--protocol", "amqp-0-9-1", "--timeout", "60"]
    code, _, errors = run("send", house.url, "once.refused", *options)
    assert code == 1
    assert "exactly-once" in errors


def test_bodies_are_shown_one_a_line_before_the_account(house: House) -> None:
    with receiving(house.url, "orders.show", "--count", "2", "--show") as receiver:
        assert run("send", house.url, "orders.show", "--count", "2", "--body", "grüezi")[0] == 0
        code, output, _ = end(receiver)
    assert code == 0
    first, second, account = output.splitlines()
    assert first == second == "grüezi"
    assert re.fullmatch(r"received 2, accepted 2 in [0-9.]+ s \([0-9,]+ msg/s\)", account)


@pytest.mark.parametrize("outcome", ["rejected", "released", "modified"])
def test_any_outcome_but_accepted_fails_the_sender(house: House, outcome: str) -> None:
    address = f"orders.{outcome}"
    with receiving(house.url, address, "--count", "3", "--outcome", outcome) as receiver:
        code, output, _ = run("send", house.url, address, "--count", "3", "--timeout", "60")
        assert end(receiver)[0] == 0
    assert code == 1
    assert output.startswith("sent 3, ")


def test_what_a_receiver_says_as_it_leaves_is_heard_on_every_worker(house: House) -> None:
    for round_ in range(6):  # sender and receiver are at one worker, or at two
        address = f"orders.leaving.{round_}"
        with receiving(house.url, address, "--count", "3", "--outcome", "rejected") as receiver:
            code, output, _ = run("send", house.url, address, "--count", "3", "--timeout", "60")
            assert end(receiver)[0] == 0
        assert code == 1
        assert output.startswith("sent 3, rejected 3 in ")


def test_sizes_are_of_the_body(house: House) -> None:
    with receiving(house.url, "orders.size", "--count", "1", "--show") as receiver:
        run("send", house.url, "orders.size", "--size", "5", "--body", "abc")
        assert end(receiver)[1].splitlines()[0] == "abcab"


def test_a_unix_socket_is_reached_by_its_path(house: House) -> None:
    with receiving(house.unix_url, "orders.unix", "--count", "1"):
        assert run("send", house.unix_url, "orders.unix")[0] == 0


def test_tls_and_a_password_from_the_url(house: House) -> None:
    options = ["--ca", str(house.authorities)]
    with receiving(house.secure_url, "orders.tls", "--count", "1", *options):
        assert run("send", house.secure_url, "orders.tls", *options)[0] == 0


def test_a_wrong_password_is_refused_at_once(house: House) -> None:
    url = house.secure_url.replace("sesame", "barley")
    options = ("--ca", str(house.authorities), "--wait", "60")  # it ends by itself
    code, _, errors = run("send", url, "orders.tls", *options)
    assert code == 1
    assert "amqp:unauthorized-access" in errors
    assert "barley" not in errors


def test_a_certificate_of_an_unknown_authority_is_refused(house: House) -> None:
    code, _, errors = run("send", house.secure_url, "orders.tls")
    assert code == 1
    assert "the peer's certificate is refused" in errors
    assert "dialing again" not in errors


def test_an_address_without_a_route_fails(house: House) -> None:
    code, _, errors = run("send", house.url, "nowhere")
    assert code == 1
    assert "amqp:not-found" in errors
    assert "nowhere" in errors


def test_a_router_that_is_not_there_fails_when_the_wait_is_over() -> None:
    code, _, errors = run("receive", f"amqp://127.0.0.1:{free_port()}", "a", "--wait", "0.5")
    assert code == 1
    assert "Connection refused" in errors


def test_no_progress_fails_when_the_timeout_is_over(house: House) -> None:
    code, output, errors = run("send", house.url, "orders.nobody", "--timeout", "0.5")
    assert code == 1
    assert output.startswith("nothing in")
    assert "no progress for 0.5 s" in errors


def test_a_sender_without_credit_is_told_why_it_waits(house: House) -> None:
    sender = begin("send", house.url, "orders.nobody")
    assert sender.stderr is not None
    assert sender.stderr.readline() == (
        "router send: it has no credit: nobody receives from 'orders.nobody', its receivers"
        " have no credit, or its route is paused or waits for the journal (see router status)\n"
    )
    sender.send_signal(signal.SIGINT)
    code, output, _ = end(sender)
    assert code == 1
    assert output.startswith("nothing in")


def test_receiving_without_a_count_ends_with_the_timeout_and_is_no_failure(house: House) -> None:
    code, output, errors = run("receive", house.url, "orders.quiet", "--timeout", "0.5")
    assert (code, errors) == (0, "")
    assert output.startswith("nothing in")


@pytest.mark.parametrize(("arguments", "code"), [([], 0), (["--count", "5"], 1)])
def test_an_interrupt_ends_in_good_order(house: House, arguments: list[str], code: int) -> None:
    name = f"interrupted-{code}"
    with receiving(house.url, "orders.stop", "--name", name, *arguments) as receiver:
        assert run("send", house.url, "orders.stop", "--timeout", "60")[0] == 0
        time.sleep(0.2)  # no clock of ours to turn: two processes
        receiver.send_signal(signal.SIGINT)
        ended, output, errors = end(receiver)
    assert (ended, errors) == (code, "")
    assert output.startswith("received 1, accepted 1")
    detached = json.loads(house.router.wait_for(f'"link": "{name}"'))
    assert detached["event"] == "link.detached"
    assert detached.get("condition") is None


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["send", "http://127.0.0.1", "a"], "does not begin with amqp:// or amqps://"),
        (["send", "amqp://user:s3cret@:x", "a"], "has no host"),
        (["send", "unix:", "a"], "does not begin"),
        (["send", "amqp://h", "a", "--count", "-1"], "--count"),
        (["send", "amqp://h", "a", "--settle", "twice"], "--settle"),
        (["send", "amqp://h", "a", "--protocol", "mqtt"], "--protocol"),
        (["receive", "amqp://h", "a", "--credit", "0"], "--credit"),
        (["receive", "amqp://h"], "ADDRESS"),
    ],
)
def test_bad_usage_ends_with_2_and_tells_no_secret(arguments: list[str], problem: str) -> None:
    code, output, errors = run(*arguments)
    assert (code, output) == (2, "")
    assert problem in errors
    assert "s3cret" not in errors


@pytest.mark.parametrize("verb", ["send", "receive", "demo"])
def test_help_tells_each_options_unit_and_default(verb: str) -> None:
    code, output, _ = run(verb, "--help")
    assert code == 0
    options = re.split(r"\n  (?=-)", output.split("Options:")[1])
    for option in options[1:]:
        if "--help" not in option:
            assert "default:" in " ".join(option.split()), option


@pytest.mark.parametrize("verb", ["send", "receive"])
def test_progress_is_shown_on_a_terminal_only(house: House, verb: str) -> None:
    ours, theirs = pty.openpty()
    other = "receive" if verb == "send" else "send"
    common = (house.url, f"orders.bar.{verb}", "--count", "20000")
    watched = begin(verb, *common, stderr=theirs, environment=_terminal())
    os.close(theirs)
    partner = begin(other, *common)
    shown = b""
    with contextlib.suppress(OSError):
        while octets := os.read(ours, 65536):
            shown += octets
    code, output, _ = end(watched)
    os.close(ours)
    assert code == 0
    assert output.startswith(f"{'sent' if verb == 'send' else 'received'} 20,000, accepted 20,000")
    assert b"/20000" in shown
    assert "\x1b" not in output
    code, _, errors = end(partner)
    assert code == 0
    assert "\x1b" not in errors


def _terminal() -> dict[str, str]:
    return {**os.environ, "TERM": "xterm", "COLUMNS": "100"}


@pytest.mark.parametrize("verb", ["send", "receive"])
@pytest.mark.parametrize(
    ("url", "fault", "advice"),
    [
        ("no route", "amqp:not-found", "check ADDRESS: it must be there"),
        ("wrong password", "unauthorized", "check the user and password in URL"),
        ("unknown authority", "issuer", "name the authority that signed its"),
        ("not secured", "tls", "write amqps:// in URL"),
        ("nobody", "refused", "nothing listens at 127.0.0.1:"),
        ("console", "refused", "port 15692 is usually RabbitMQ's metrics (HTTP)"),
    ],
)
def test_a_fault_is_named_with_the_way_out(
    house: House, verb: str, url: str, fault: str, advice: str
) -> None:
    urls = {
        "no route": house.url,
        "wrong password": house.secure_url.replace("open%2Fsesame", "wrong"),
        "unknown authority": house.secure_url,
        "not secured": house.secure_url.replace("amqps://app:open%2Fsesame@", "amqp://"),
        "nobody": f"amqp://127.0.0.1:{free_port()}",
        "console": "amqp://127.0.0.1:15692",
    }
    address = "nowhere" if url == "no route" else "orders.a"
    options = ["--ca", str(house.authorities)] if url != "unknown authority" else []
    is_tried_again = url in ("not secured", "nobody", "console")
    options += ["--wait", "1" if is_tried_again else "60"]  # the others end by themselves
    code, _, errors = run(verb, urls[url], address, "--count", "1", *options)
    *_, problem, way_out = errors.splitlines()
    assert code == 1
    assert fault in problem.lower()
    assert way_out.startswith(f"router {verb}: {advice}")
