"""Measures the journal's process: records per second and latency by records outstanding.

    python tests/journal/measure_rates.py [DIRECTORY] [SECONDS]

One worker appends 100-octet records (80 octets of row, tag and a little body) and never has more
than so many that are not durable. DIRECTORY must be on the disk that is to be measured.
"""

import itertools
import os
import select
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from router.journal.client import JournalClient
from router.journal.keys import LinkKey
from router.model.identity import DeliveryKey

OUTSTANDING = (1, 16, 256, 2048, 16384)


def measure(client: JournalClient, peer: socket.socket, outstanding: int, seconds: float) -> str:
    """Keeps ``outstanding`` records on their way for ``seconds``; gives a line of the table."""
    records, incoming, outgoing = client.records, LinkKey(1 << 40), LinkKey(1 << 41)
    key, tag, now_ns = DeliveryKey(os.urandom(16)), bytes(8), time.time_ns()
    begun: list[tuple[int, float]] = []
    latencies: list[float] = []
    first = client.durable_sequence
    start_cpu, start = time.process_time(), time.perf_counter()
    replies = 0
    while (now := time.perf_counter()) - start < seconds:
        room = outstanding - (client.appended_sequence - client.durable_sequence)
        for _ in itertools.repeat(None, room // 2):
            records.sent(now_ns, key, incoming, outgoing, tag)
            records.outcome(now_ns, key, incoming, outgoing, 0x24, flags=1)
        if room % 2:
            records.settled(now_ns, key, incoming)
        if room:
            begun.append((client.appended_sequence, now))
        while octets := client.data_to_send():
            client.bytes_sent(peer.send(octets))
        client.receive_data(peer.recv(4096))
        replies += 1
        while begun and begun[0][0] <= client.durable_sequence:
            latencies.append(time.perf_counter() - begun.pop(0)[1])
    passed = time.perf_counter() - start
    cpu = time.process_time() - start_cpu
    count = client.durable_sequence - first
    while client.durable_sequence < client.appended_sequence:
        client.receive_data(peer.recv(4096))
    latencies.sort()
    return (
        f"{outstanding:>11} {count / passed:>12,.0f} {statistics.median(latencies) * 1e6:>9,.0f}"
        f" {latencies[int(len(latencies) * 0.99)] * 1e6:>9,.0f} {cpu / count * 1e6:>12.2f}"
        f" {count / replies:>14.1f}"
    )


def main() -> None:
    """Prints the table."""
    parent = Path(sys.argv[1]) if len(sys.argv) > 1 else Path.cwd()
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 2.0
    with tempfile.TemporaryDirectory(dir=parent) as directory:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(f"{directory}/socket")
        listener.listen()
        readable, writable = os.pipe()
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "router.journal.process"),
                *("--directory", f"{directory}/journal", "--router", "measured"),
                *("--listen-fd", str(listener.fileno()), "--lifeline-fd", str(readable)),
            ],
            pass_fds=(listener.fileno(), readable),
        )
        os.close(readable)
        peer = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)
        peer.connect(f"{directory}/socket")
        client = JournalClient(router="measured", worker=1, incarnation=time.time_ns())
        client.connection_made()
        client.bytes_sent(peer.send(client.data_to_send()))
        select.select([peer], [], [], 30)
        client.receive_data(peer.recv(4096))
        print(f"{'outstanding':>11} {'records/s':>12} {'p50 us':>9} {'p99 us':>9}", end=" ")
        print(f"{'worker us/rec':>12} {'records/reply':>14}")
        for outstanding in OUTSTANDING:
            print(measure(client, peer, outstanding, seconds), flush=True)
        peer.close()
        os.close(writable)
        process.wait()


if __name__ == "__main__":
    main()
