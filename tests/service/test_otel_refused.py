"""An exporter of spans whose collector refuses: what is sent again, what is dropped and counted."""

import email.utils
import socket
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("opentelemetry.exporter.otlp.proto.http")

from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from opentelemetry.sdk.trace import ReadableSpan

from router.pipeline import collector as collectors
from router.pipeline import otel
from router.pipeline.collector import Answer, collector, retry_after
from router.pipeline.otel import Exporter, ExportError, Health
from tests.service.test_otel_away import Traffic
from tests.support.collector import Collector, collecting

PROTOBUF = {"Content-Type": "application/x-protobuf"}


@pytest.fixture
def other() -> Iterator[Collector]:
    with collecting() as found:
        yield found


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collectors, "TIMEOUT_SECONDS", 0.5)


def spans(count: int = 3) -> Sequence[ReadableSpan]:
    context = otel._context(bytes(15) + b"t", bytes(7) + b"s", 1, None)
    return [
        ReadableSpan(name="x", context=context, resource=otel._resource("r")) for _ in range(count)
    ]


def answer_of(other: Collector, status: int, body: bytes = b"", **headers: str) -> Answer:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    other.answer = status, named, body
    return collector(other.endpoint)(spans())


def test_spans_are_taken(other: Collector) -> None:
    assert collector(other.endpoint)(spans()) == Answer()
    assert len(other.spans) == 3


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (400, "HTTP 400 Bad Request"),
        (401, "HTTP 401 Unauthorized"),
        (404, "HTTP 404 Not Found"),
        (413, "HTTP 413 Request Entity Too Large"),
        (500, "HTTP 500 Internal Server Error"),
        (301, "HTTP 301 Moved Permanently"),
    ],
)
def test_what_no_other_try_can_mend_is_for_good(other: Collector, status: int, reason: str) -> None:
    is_of_spans = status in (400, 413)
    assert answer_of(other, status) == Answer(reason=reason, refused=3, is_of_spans=is_of_spans)
    assert other.refused == 1


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_what_another_try_may_mend_is_tried_again_when_the_collector_says(
    other: Collector, status: int
) -> None:
    found = answer_of(other, status, Retry_After="7")
    assert (found.is_temporary, found.refused, found.pause_seconds) == (True, 0, 7)
    assert (found.reason or "").startswith(f"HTTP {status} ")


def test_a_refusal_says_what_the_collector_says(other: Collector) -> None:
    body = Status(code=3, message="span 2 has no \x1bname").SerializeToString()
    found = answer_of(other, 400, body, **PROTOBUF)
    assert found.reason == "HTTP 400 Bad Request: span 2 has no \\x1bname"
    assert answer_of(other, 403, b"no key\n").reason == "HTTP 403 Forbidden: no key"
    assert answer_of(other, 403, b"<html>no").reason == "HTTP 403 Forbidden"
    assert answer_of(other, 400, b"\xff", **PROTOBUF).reason == "HTTP 400 Bad Request"


def test_spans_that_are_refused_out_of_a_request_that_is_taken_are_counted(
    other: Collector,
) -> None:
    partial = ExportTraceServiceResponse()
    partial.partial_success.error_message = "too old"
    assert answer_of(other, 200, partial.SerializeToString(), **PROTOBUF) == Answer()
    partial.partial_success.rejected_spans = 2
    found = answer_of(other, 200, partial.SerializeToString(), **PROTOBUF)
    assert found == Answer(reason="too old", refused=2, is_of_spans=True)


def test_a_collector_that_is_not_there_is_temporary_and_says_why() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        found = collector(f"http://127.0.0.1:{taken.getsockname()[1]}")(spans())
    assert found == Answer(reason="Connection refused", is_temporary=True)
    with socket.socket() as mute:
        mute.bind(("127.0.0.1", 0))
        mute.listen()
        found = collector(f"http://127.0.0.1:{mute.getsockname()[1]}")(spans())
    assert found == Answer(reason="no answer within 0.5 s", is_temporary=True)


def test_a_pause_is_asked_for_in_seconds_or_until_a_date() -> None:
    now = time.time()
    date = email.utils.formatdate(now + 30, usegmt=True)
    assert retry_after(date, now) == pytest.approx(30, abs=1)
    assert [retry_after(each, now) for each in (None, "soon", "-1", "1e9", "nan")] == [
        None, None, 0, collectors.LONGEST_PAUSE_SECONDS, None,
    ]  # fmt: skip


# The exporter


def exporting(state: Path, answers: Iterator[Answer], told: list[Health]) -> Exporter:
    return Exporter(
        state=state,
        send=lambda batch: next(answers),
        where="collector",
        buffer_octets=1 << 30,
        report=told.append,
        is_wanted=lambda: False,
    )


def refusing(count: int, **more: Any) -> Iterator[Answer]:
    while True:
        yield Answer(reason="HTTP 400 Bad Request", refused=count, **more)


def filled(state: Path) -> Traffic:
    traffic = Traffic(state)
    traffic.fill()
    return traffic


def test_what_is_refused_for_good_is_dropped_and_counted_and_the_rest_goes_on(
    tmp_path: Path,
) -> None:
    filled(tmp_path)
    told: list[Health] = []
    exporter = exporting(tmp_path, refusing(1, is_of_spans=True), told)
    exporter.run(follows=False)
    health = exporter.health
    assert health.refused >= 1
    assert health.refusal == "collector refuses them (HTTP 400 Bad Request)"
    assert health.exported > health.refused
    assert health.trouble is None
    again: list[Health] = []
    exporting(tmp_path, refusing(1, is_of_spans=True), again).run(follows=False)
    assert not any(each.exported or each.refused for each in again), "they are not read again"


def test_a_person_who_is_not_let_in_loses_nothing(tmp_path: Path) -> None:
    filled(tmp_path)
    with pytest.raises(ExportError, match=r"\(HTTP 400 Bad Request\); nothing is lost"):
        exporting(tmp_path, refusing(1), []).run(follows=False)
    exporter = exporting(tmp_path, iter(Answer, None), [])
    exporter.run(follows=False)
    assert exporter.health.exported > 0


def test_the_pause_that_a_collector_asks_for_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    clock = SimpleNamespace(sleep=sleep, monotonic=lambda: now, time_ns=time.time_ns)
    monkeypatch.setattr("router.pipeline.otel.time", clock)  # other threads have the real one
    filled(tmp_path)
    tried: list[float] = []

    def send(batch: Sequence[ReadableSpan]) -> Answer:
        tried.append(now)
        if len(tried) < 3:
            return Answer(reason="HTTP 429", is_temporary=True, pause_seconds=20)
        return Answer()

    exporter = exporting(tmp_path, iter(()), [])
    exporter.send = send
    exporter.is_wanted = lambda: len(tried) < 3
    exporter.run(follows=True)
    assert [round(each - tried[0]) for each in tried[:3]] == [0, 20, 40]
