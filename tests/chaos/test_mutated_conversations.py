"""Good conversations of every protocol, spoiled at random, against two workers and their clients.

Whatever a peer sends, the worst that follows happens to that peer alone: no exception, no worker
that ends, no memory that stays, and other clients keep every message. The long tier runs as many
conversations as ROUTER_FUZZ_CONVERSATIONS says, from the seed ROUTER_FUZZ_SEED.
"""

import contextlib
import json
import os
import random
import socket
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.support.mutations import RECEIVE_OCTETS, Recorder, Recording, mutated
from tests.support.ports import free_port
from tests.support.running import RunningRouter, running_router
from tests.support.workers import processes

pytestmark = pytest.mark.long

FILE = """
router: {{id: target, workers: 2, admin: "127.0.0.1:{admin}", state: {state}, log_format: json}}
listeners: [{{bind: "127.0.0.1:{port}"}}]
routes:
  - address: "#"
  - {{address: "fuzz.exact.#", guarantee: exactly-once}}
  - {{address: "fuzz.all.#", distribution: multicast}}
limits: {{handshake_seconds: 2s, connections: 5000}}
"""

ATTACKER = "127.0.0.66"
"""Where they come from: failed logins and floods count by source."""

AT_A_TIME = 40
ANSWER_SECONDS = 0.02
MEMORY_OCTETS = 128 << 20
"""What both workers together may keep of it; the budgets of payload are larger."""

DELAY_SECONDS = 5.0
"""The longest that a paced message of a good pair may be under way on a busy machine."""

PIKA = """
import pika, sys
connection = pika.BlockingConnection(pika.URLParameters(sys.argv[1]))
channel = connection.channel()
channel.exchange_declare("fuzz.topics", "topic")
queue = channel.queue_declare("", exclusive=True).method.queue
channel.queue_bind(queue, "fuzz.topics", "key.*.#")
channel.basic_qos(prefetch_count=5)
channel.confirm_delivery()
table = {"text": "value", "number": 7, "list": [1, "two"], "table": {"deep": True}}
properties = pika.BasicProperties(content_type="text/plain", headers=table, message_id="one",
    correlation_id="two", reply_to="three", expiration="60000", user_id=None, app_id="fuzz")
for number in range(5):
    channel.basic_publish("fuzz.topics", "key.a.b", b"body %d" % number, properties)
for number in range(3):
    method, _, _ = channel.basic_get(queue)
    if method: channel.basic_nack(method.delivery_tag, requeue=number == 0)
taken = 0
for method, _, _ in channel.consume(queue, inactivity_timeout=2):
    if method is None: break
    channel.basic_ack(method.delivery_tag)
    taken += 1
    if taken == 3: break
channel.cancel()
channel.queue_unbind(queue, "fuzz.topics", "key.*.#")
other = connection.channel()
other.tx_select()
other.basic_publish("", queue, b"in a transaction")
other.tx_commit()
other.queue_purge(queue)
other.queue_delete(queue)
connection.close()
"""

PROTON = """
import sys
from proton import Message
from proton.utils import BlockingConnection
connection = BlockingConnection(sys.argv[1], timeout=20)
inbox = connection.create_receiver(None, dynamic=True, credit=10)
sender = connection.create_sender(inbox.remote_source.address)
for number in range(5):
    sender.link.send(Message(body={"number": number}, subject="fuzz", properties={"key": "value"}))
for number in range(5):
    inbox.receive(timeout=10)
    inbox.accept() if number % 2 else inbox.release()
sender.close()
inbox.close()
connection.close()
"""


def client(protocol: str, verb: str, address: str, port: int, *more: str) -> list[str]:
    place = (f"amqp://127.0.0.1:{port}", address, "--protocol", protocol)
    return [sys.executable, "-m", "router", verb, *place, *more]


async def record(port: int) -> list[Recording]:
    """Has good clients converse, and gives what they said."""
    recorder = Recorder(port)
    pairs = (
        *((each, f"fuzz.{each}", "at-least-once") for each in PROTOCOLS),
        ("amqp-1.0", "fuzz.exact.one", "exactly-once"),
        ("amqp-0-10", "fuzz.exact.ten", "at-least-once"),
        ("amqp-1.0", "fuzz.all.one", "at-most-once"),
    )
    async with trio.open_nursery() as doors, trio.open_nursery() as clients:
        for protocol, address, settle in pairs:
            door = await doors.start(recorder.serve, f"{protocol} {settle}")
            count = ("--count", "8", "--settle", settle)
            clients.start_soon(_run, client(protocol, "receive", address, door, *count))
            clients.start_soon(_run, client(protocol, "send", address, door, *count))
        for name, script in (("pika", PIKA), ("proton", PROTON)):
            door = await doors.start(recorder.serve, name)
            url = f"amqp://guest:guest@127.0.0.1:{door}"
            command = [sys.executable, "-c", f"import {name}"]
            if subprocess.run(command, capture_output=True, check=False).returncode == 0:
                clients.start_soon(_run, [sys.executable, "-c", script, url])
        clients.start_soon(_end, doors, clients)
    assert {each.name.split()[0] for each in recorder.found} >= set(PROTOCOLS)
    return sorted(recorder.found, key=lambda each: (each.name, each.turns))


PROTOCOLS = ("amqp-1.0", "amqp-0-9-1", "amqp-0-10", "amqp-0-9r1", "amqp-fast")


async def _run(command: list[str]) -> None:
    done = await trio.run_process(command, capture_stdout=True, capture_stderr=True, check=False)
    assert done.returncode == 0, (command, done.stdout, done.stderr)


async def _end(doors: trio.Nursery, clients: trio.Nursery) -> None:
    while len(clients.child_tasks) > 1:
        await trio.sleep(0.1)
    doors.cancel_scope.cancel()


async def converse(port: int, turns: list[bytes], chance: random.Random) -> None:
    """Says its turns, waits a little for answers, and leaves in one way or another."""
    with contextlib.suppress(OSError, trio.BrokenResourceError):
        stream = await trio.open_tcp_stream("127.0.0.1", port, local_address=ATTACKER)
        async with stream:
            for turn in turns:
                with trio.move_on_after(2) as stuck:
                    await stream.send_all(turn)
                if stuck.cancelled_caught:
                    break
                with trio.move_on_after(ANSWER_SECONDS):
                    if not await stream.receive_some(RECEIVE_OCTETS):
                        break
            if chance.random() < 0.3:
                stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            elif chance.random() < 0.2:
                with trio.move_on_after(0.5):
                    await stream.receive_some(RECEIVE_OCTETS)


async def attack(port: int, recordings: list[Recording], count: int, seed: int) -> None:
    """Runs so many spoiled conversations, some at a time."""
    numbers = iter(range(count))

    async def work() -> None:
        for number in numbers:
            chance = random.Random(f"{seed} {number}")
            _, turns = mutated(recordings, chance)
            await converse(port, turns, chance)

    async with trio.open_nursery() as nursery:
        for _ in range(AT_A_TIME):
            nursery.start_soon(work)


def resident_octets(router: RunningRouter) -> int:
    pages = sum(
        int(Path(f"/proc/{process}/statm").read_text().split()[1])
        for process in processes(router).values()
    )
    return pages * os.sysconf("SC_PAGESIZE")


def broken(router: RunningRouter) -> list[str]:
    """Lines of the log that no peer may bring about."""
    signs = ("Traceback", '"level": "error"', '"level": "critical"', "worker.ended", "Error:")
    return [line for line in tuple(router.log) if any(sign in line for sign in signs)]


async def run(tmp_path: Path, count: int, seed: int) -> dict[str, Any]:
    port, admin = free_port(), free_port()
    text = FILE.format(port=port, admin=admin, state=tmp_path / "state")
    with running_router(text, tmp_path) as router:
        recordings = await record(port)
        good = await trio.lowlevel.open_process(
            [sys.executable, "-m", "tests.support.good_pairs", str(port)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert good.stdin is not None
        assert good.stdout is not None
        assert b"ready" in await good.stdout.receive_some(100)
        await attack(port, recordings, count // 10, seed + 1)  # what is allocated once is
        before, workers, began = resident_octets(router), processes(router), trio.current_time()
        await attack(port, recordings, count, seed)
        seconds = trio.current_time() - began
        await good.stdin.aclose()
        said = b""
        with trio.fail_after(90):
            async for octets in good.stdout:
                said += octets
        await trio.sleep(3)  # those that never spoke are given up
        metrics = await trio.to_thread.run_sync(_metrics, admin)
        return {
            "seed": seed,
            "conversations": count,
            "per_second": round(count / seconds),
            "recordings": len(recordings),
            "good": json.loads(said),
            "resident_octets": (before, resident_octets(router)),
            "restarts": sum(processes(router)[each] != workers[each] for each in workers),
            "broken": broken(router),
            "metrics_octets": metrics,
        }


def _metrics(admin: int) -> int:
    """Reads the metrics, which bear names that peers have given."""
    import urllib.request

    with urllib.request.urlopen(f"http://127.0.0.1:{admin}/metrics", timeout=30) as answer:
        return len(answer.read())


def told(account: dict[str, Any]) -> str:
    """Gives the figures, in a few lines."""
    before, after = (octets >> 20 for octets in account["resident_octets"])
    good = {name: (pair["sent"], pair["received"]) for name, pair in account["good"].items()}
    longest = account["good"]["paced"]["longest_seconds"]
    return (
        f"seed {account['seed']}: {account['conversations']} conversations,"
        f" {account['per_second']} a second, {account['recordings']} recordings;"
        f" {len(account['broken'])} exceptions, {account['restarts']} restarts,"
        f" {before} MiB before, {after} MiB after\n"
        f"good pairs, sent and received: {good}; under way {longest:.3f} s at most"
    )


def check(account: dict[str, Any]) -> None:
    assert account["broken"] == []
    assert account["restarts"] == 0
    before, after = account["resident_octets"]
    assert after - before < MEMORY_OCTETS
    paced = account["good"].pop("paced")
    assert paced["sent"] == paced["received"] == paced["accepted"] > 0
    assert paced["longest_seconds"] < DELAY_SECONDS
    for protocol, pair in account["good"].items():
        assert pair["sent"] == pair["received"] > 0, (protocol, pair)
        assert pair["doubled"] == 0, (protocol, pair)
        assert pair["reasons"] == [], (protocol, pair)


async def test_spoiled_conversations_disturb_nobody(tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    account = await run(tmp_path, 1500, seed)
    print(told(account))
    check(account)


@pytest.mark.slow
async def test_a_hundred_thousand_spoiled_conversations_disturb_nobody(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    count = int(os.environ.get("ROUTER_FUZZ_CONVERSATIONS", "100000"))
    seed = int(os.environ.get("ROUTER_FUZZ_SEED", random.SystemRandom().randrange(1 << 32)))
    account = await run(tmp_path, count, seed)
    with capsys.disabled():
        print(f"\n{told(account)}", flush=True)
    check(account)
