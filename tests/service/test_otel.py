"""Spans of hops: two routers in a chain, and a collector that reads what they export."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import attrs
import pytest
import trio

from router.model.capabilities import Protocol
from router.model.delivery import ReceivedDelivery
from router.model.identity import LinkName
from router.model.outcome import ACCEPTED, DeliveryState, Rejected
from router.net.client.receiver import ReceivingLink
from router.net.client.sender import SendingLink
from router.routes.route import Guarantee
from router.wire.trace_context import Context, read
from router.wire.v1_0.sections import AnnotatedMessage, Properties, encode_message, peek
from tests.support.chaos import Client
from tests.support.collector import Collector, Seen, collecting
from tests.support.conversing import conversing
from tests.support.ports import free_port
from tests.support.running import RunningRouter, running_router

PATIENCE_SECONDS = 240.0
"""The exporter runs at low priority, and takes its time on a machine busy with other things."""

pytestmark = pytest.mark.timeout(900)

TRACE = "0af7651916cd43dd8448eb211c80319c"
CREATOR = "b7ad6b7169203331"
STATE = "congo=t61rcWkgMzE"

NEAR = """\
router:
  id: near
  workers: 1
  admin: 127.0.0.1:{admin}
  state: {folder}/near-state
  log_format: json
  tracing: {{endpoint: "{endpoint}", sample: {sample}}}
listeners: [{{bind: "127.0.0.1:{near}"}}]
containers: {{far: {{url: "amqp://127.0.0.1:{far}", retry_limit_seconds: 1s}}}}
routes:
  - {{address: chain.#, to: far}}
  - {{address: here.#}}
  - {{address: once.#, guarantee: exactly-once}}
  - {{address: fan.#, distribution: multicast}}
  - {{address: untraced.#, tracing: never}}
"""

FAR = """\
router:
  id: far
  workers: 1
  admin: off
  state: {folder}/far-state
  tracing: "{endpoint}"
listeners: [{{bind: "127.0.0.1:{far}"}}]
routes:
  - {{address: chain.#}}
"""


def traceparent(number: int = 0, *, sampled: bool = True) -> str:
    """The creator's context; each number has a trace of its own."""
    return f"00-{trace_of(number)}-{CREATOR}-0{int(sampled)}"


def trace_of(number: int) -> str:
    return f"{int(TRACE, 16) + number:032x}"


def message(parent: str | None, number: int = 0, octets: int = 10) -> bytes:
    properties = None if parent is None else {"traceparent": parent, "tracestate": STATE}
    return encode_message(
        AnnotatedMessage(
            properties=Properties(message_id=f"m{number}"),
            application_properties=properties,
            data=[bytes(octets)],
        )
    )


@attrs.define
class Places:
    """Two routers and a collector."""

    folder: Path
    collector: Collector
    sample: str = "sender"
    near: int = attrs.field(factory=free_port)
    far: int = attrs.field(factory=free_port)
    admin: int = attrs.field(factory=free_port)

    def near_runs(self) -> AbstractContextManager[RunningRouter]:
        return self._running("near", NEAR)

    def far_runs(self) -> AbstractContextManager[RunningRouter]:
        return self._running("far", FAR)

    def _running(self, name: str, text: str) -> AbstractContextManager[RunningRouter]:
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        text = text.format(
            folder=self.folder, near=self.near, far=self.far, admin=self.admin,
            endpoint=self.collector.endpoint, sample=self.sample,
        )  # fmt: skip
        return running_router(text, folder)

    def problems(self) -> list[str]:
        """What the near router's status complains of."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.admin}/api/v1/status") as answer:
            return [each["text"] for each in json.loads(answer.read())["problems"]]


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as found:
        yield found


@pytest.fixture
def places(tmp_path: Path, collector: Collector) -> Places:
    return Places(tmp_path, collector)


def wait_until(is_so: Callable[[], object], what: Callable[[], object] = lambda: "") -> None:
    limit = time.monotonic() + PATIENCE_SECONDS
    while not is_so():
        assert time.monotonic() < limit, what()
        time.sleep(0.05)


def move(
    places: Places,
    address: str,
    payloads: list[bytes],
    *,
    port: int | None = None,
    outcome: DeliveryState = ACCEPTED,
    guarantee: Guarantee = Guarantee.AT_LEAST_ONCE,
    protocol: Protocol = Protocol.AMQP_1_0,
) -> list[ReceivedDelivery]:
    """Sends to the near router over a protocol, receives at a port; returns what has come."""
    found: list[ReceivedDelivery] = []

    async def run() -> None:
        has_all = trio.Event()

        def take(delivery: ReceivedDelivery) -> DeliveryState:
            found.append(delivery)
            if len(found) == len(payloads):
                has_all.set()
            return outcome

        receiving = ReceivingLink(
            name=LinkName(f"to-{address}"), address=address, take=take, guarantee=guarantee
        )
        sending = SendingLink(
            name=LinkName(f"from-{address}"),
            address=address,
            supply=iter(payloads),
            guarantee=guarantee,
        )
        with trio.fail_after(PATIENCE_SECONDS):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(Client(receiving, port or places.near).run)
                sender = conversing(sending, protocol, places.near, f"from-{address}")
                nursery.start_soon(sender.run)
                await has_all.wait()
                while sending.report.settled < len(payloads):
                    await trio.sleep(0.02)
                nursery.cancel_scope.cancel()

    trio.run(run)
    return found


def missing(places: Places, numbers: Iterable[int]) -> list[int]:
    """The messages without spans."""
    return [number for number in numbers if not places.collector.of(trace_of(number))]


def router_log(router: RunningRouter) -> str:
    return "".join(router.log[-40:])


def hops(spans: list[Seen]) -> dict[str, Seen]:
    """The spans of hops, by router."""
    return {each.router: each for each in spans if each.name.startswith("forward ")}


def sends(spans: list[Seen]) -> list[Seen]:
    return [each for each in spans if each.name.startswith("send ")]


def context_in(delivery: ReceivedDelivery) -> tuple[Context | None, Context | None]:
    seen = peek(delivery.payload)
    return read(seen.message_annotations), read(seen.application_properties)


def test_a_trace_leads_from_the_creator_over_both_routers_with_the_right_parents(
    places: Places,
) -> None:
    with places.far_runs(), places.near_runs():
        came = move(
            places,
            "chain.a",
            [message(traceparent(0)), message(traceparent(1, sampled=False), 1), message(None, 2)],
            port=places.far,
        )
        wait_until(lambda: len(places.collector.of(TRACE)) == 4, lambda: places.collector.spans)
    found = hops(places.collector.of(TRACE))
    near, far = found["near"], found["far"]
    assert near.parent == CREATOR
    assert far.parent == near.span
    for hop in (near, far):
        [send] = [each for each in sends(places.collector.of(TRACE)) if each.parent == hop.span]
        assert hop.started_ns <= send.started_ns <= send.ended_ns <= hop.ended_ns
        assert send.attributes["router.outcome"] == "accepted"
        assert hop.attributes["messaging.system"] == "amqp"
        assert hop.attributes["messaging.destination.name"] == "chain.a"
        assert hop.events == ("settle",)
        assert hop.state == STATE
        assert (hop.kind, send.kind) == (5, 4)  # CONSUMER, PRODUCER
    assert far.links == (CREATOR,)
    middle, creator = context_in(came[0])
    assert middle is not None
    assert creator is not None
    assert middle.text == f"00-{TRACE}-{far.span}-01"
    assert middle.state == STATE
    assert creator.text == traceparent(0)
    assert [each.trace for each in places.collector.spans if each.trace != TRACE] == []
    assert context_in(came[1])[0] is None
    assert came[1].payload == message(traceparent(1, sampled=False), 1)
    assert came[2].payload == message(None, 2)


@pytest.mark.parametrize("protocol", [Protocol.AMQP_0_9_1, Protocol.AMQP_0_10])
def test_senders_of_older_protocols_say_in_headers_what_is_sampled(
    places: Places, protocol: Protocol
) -> None:
    with places.near_runs():
        sampled, unsampled, without = move(
            places,
            "here.a",
            [message(traceparent(0)), message(traceparent(1, sampled=False), 1), message(None, 2)],
            protocol=protocol,
        )
        wait_until(lambda: len(places.collector.of(TRACE)) == 2, lambda: places.collector.spans)
    hop = hops(places.collector.of(TRACE))["near"]
    assert hop.parent == CREATOR
    assert hop.state == STATE
    assert hop.attributes["network.protocol.version"] == protocol.value.removeprefix("amqp-")
    assert {each.trace for each in places.collector.spans} == {TRACE}
    middle, creator = context_in(sampled)
    assert middle is not None
    assert creator is not None
    assert middle.text == f"00-{TRACE}-{hop.span}-01"
    assert creator.text == traceparent(0)
    assert context_in(unsampled)[0] is None
    assert context_in(without) == (None, None)


def test_what_a_route_does_not_trace_is_not_looked_at(places: Places) -> None:
    with places.near_runs():
        [came] = move(places, "untraced.a", [message(traceparent())])
        move(places, "here.a", [message(traceparent(1))])
        wait_until(lambda: places.collector.of(trace_of(1)))
    assert came.payload == message(traceparent())
    assert places.collector.of(TRACE) == []


def test_always_begins_a_trace_where_there_is_none(places: Places) -> None:
    places.sample = "always"
    with places.near_runs():
        [came, unsampled] = move(
            places, "here.a", [message(None), message(traceparent(sampled=False), 1)]
        )
        wait_until(lambda: len(places.collector.spans) >= 4, lambda: places.collector.spans)
    context, _ = context_in(came)
    assert context is not None
    root = hops(places.collector.of(context.trace.hex()))["near"]
    assert (root.span, root.parent) == (context.span.hex(), "")
    following, creator = context_in(unsampled)
    assert following is not None
    assert following.trace.hex() == TRACE
    assert following.is_sampled
    assert creator is not None
    assert not creator.is_sampled
    assert hops(places.collector.of(TRACE))["near"].parent == CREATOR


def test_a_rejected_delivery_is_an_error(
    places: Places,
) -> None:
    with places.near_runs():
        move(places, "here.a", [message(traceparent())], outcome=Rejected())
        wait_until(lambda: len(places.collector.of(TRACE)) == 2, lambda: places.collector.spans)
    assert {each.status for each in places.collector.of(TRACE)} == {"rejected"}


def test_a_large_message_that_is_streamed_has_a_span_and_arrives_unchanged(
    places: Places,
) -> None:
    large = message(traceparent(), octets=2_000_000)
    with places.near_runs():
        [came] = move(places, "here.a", [large])
        wait_until(lambda: len(places.collector.of(TRACE)) == 2, lambda: places.collector.spans)
    assert peek(came.payload).application_properties == peek(large).application_properties
    assert hops(places.collector.of(TRACE))["near"].parent == CREATOR


def test_a_killed_exporter_loses_nothing_and_gives_no_delivery_a_second_span(
    places: Places,
) -> None:
    with places.near_runs() as router:
        for first in (0, 40, 80):
            payloads = [message(traceparent(n), n) for n in range(first, first + 40)]
            move(places, "once.a", payloads, guarantee=Guarantee.EXACTLY_ONCE)
            lines = len(router.log)
            started = [line for line in router.log[:lines] if '"spans.started"' in line]
            os.kill(json.loads(started[-1])["process"], signal.SIGKILL)
            router.wait_for("spans.started", since=lines)
        wait_until(
            lambda: all(places.collector.of(trace_of(n)) for n in range(120)),
            lambda: f"no spans of {missing(places, range(120))}: {router_log(router)}",
        )
    for number in range(120):
        spans = places.collector.of(trace_of(number))
        assert len([each for each in spans if each.name.startswith("forward ")]) == 1, number
        assert len(sends(spans)) == 1, number


def test_after_a_kill_of_the_router_its_recorded_deliveries_have_their_spans(
    places: Places,
) -> None:
    with places.near_runs() as router:
        places.collector.is_away = True
        payloads = [message(traceparent(n), n) for n in range(50)]
        came = move(places, "once.a", payloads, guarantee=Guarantee.EXACTLY_ONCE)
        router.kill()
    places.collector.is_away = False
    with places.near_runs() as router:
        wait_until(
            lambda: all(len(places.collector.of(trace_of(n))) == 2 for n in range(50)),
            lambda: router_log(router),
        )
    given = {context_in(each)[0] for each in came}
    exported = {hops(places.collector.of(trace_of(n)))["near"].span for n in range(50)}
    assert {each.span.hex() for each in given if each is not None} == exported


def test_a_collector_that_is_away_holds_nobody_and_the_status_tells(places: Places) -> None:
    places.collector.is_away = True
    with places.near_runs() as router:
        for number in range(3):
            move(places, "here.a", [message(traceparent(number), number)])
        wait_until(lambda: places.collector.refused)
        router.wait_for("spans.failed")
        wait_until(lambda: any("spans are not exported" in each for each in places.problems()))
        places.collector.is_away = False
        wait_until(lambda: all(places.collector.of(trace_of(n)) for n in range(3)))
        router.wait_for("spans.resumed")
        wait_until(lambda: not any("spans" in each for each in places.problems()))


def test_a_collector_that_refuses_for_good_holds_up_nothing_and_the_status_tells(
    places: Places,
) -> None:
    places.collector.answer = 400, {}, b"no such field"
    with places.near_runs() as router:
        move(places, "here.a", [message(traceparent())])
        router.wait_for("spans.refused")
        reason = "refuses them (HTTP 400 Bad Request: no such field)"
        wait_until(lambda: any(reason in each for each in places.problems()))
        places.collector.answer = None
        move(places, "here.a", [message(traceparent(1), 1)])
        wait_until(lambda: places.collector.of(trace_of(1)))
    assert not places.collector.of(TRACE)


def test_a_person_exports_what_a_router_has_left_and_a_second_time_nothing(
    places: Places,
) -> None:
    places.collector.is_away = True
    with places.near_runs() as router:
        move(places, "here.a", [message(traceparent())])
        router.kill()

    def export() -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "router", "otel", "export"]
        command += [str(places.folder / "near-state"), "--endpoint", places.collector.endpoint]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    failed = export()
    while "another process" in failed.stderr:  # the router's own, until it sees that
        failed = export()
    assert failed.returncode == 1
    assert "(HTTP 503 Service Unavailable); nothing is lost" in failed.stderr
    places.collector.is_away = False
    done = export()
    assert done.returncode == 0, done.stderr
    assert len(places.collector.of(TRACE)) == 2
    count = len(places.collector.spans)
    assert export().returncode == 0
    assert len(places.collector.spans) == count
