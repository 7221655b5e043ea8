"""Sends spans to a collector (OTLP over HTTP), and reads what it answers.

Which answers are worth another try is OTLP's rule (OTLP specification 1.7, "Failures"): 429, 502,
503 and 504, after the pause that ``Retry-After`` asks for, and connections that fail. Any other
answer that is no 2xx is for good: the same spans are not sent again. A collector that takes a part
of them says so in a 2xx ("Partial Success"), which is for good, too. The library retries within one
call, and tells neither status nor cause, so its session is looked at.
"""

import logging
import math
import time
from collections.abc import Callable, Sequence
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import urlsplit

import attrs
import requests
from google.protobuf.message import DecodeError
from google.rpc.status_pb2 import Status
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from opentelemetry.sdk.trace import ReadableSpan

from router.model.text import shown
from router.net.dialing import system_reason

TIMEOUT_SECONDS: Final = 5.0
"""How long one request may take, with the repetitions inside of it."""

LONGEST_PAUSE_SECONDS: Final = 600.0
"""The longest pause that a collector may ask for."""

_TEMPORARY: Final = (
    HTTPStatus.TOO_MANY_REQUESTS,
    HTTPStatus.BAD_GATEWAY,
    HTTPStatus.SERVICE_UNAVAILABLE,
    HTTPStatus.GATEWAY_TIMEOUT,
)
_OF_THESE_SPANS: Final = (
    HTTPStatus.BAD_REQUEST,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    HTTPStatus.UNPROCESSABLE_ENTITY,
)
_TAKEN: Final = range(200, 300)
_SAID_MOST: Final = 200
_PROTOBUF: Final = "application/x-protobuf"


@attrs.frozen(kw_only=True)
class Answer:
    """What a collector has answered to spans.

    Attributes:
        reason: why it does not take all of them, for people; None: it does.
        refused: spans that it will never take.
        is_temporary: none were taken, and the same may be sent again.
        is_of_spans: it is about these spans; otherwise it would be the same for others.
        pause_seconds: how long to wait before; None: it does not say.
    """

    reason: str | None = None
    refused: int = 0
    is_temporary: bool = False
    is_of_spans: bool = False
    pause_seconds: float | None = None


Send = Callable[[Sequence[ReadableSpan]], Answer]
"""Hands spans to a collector."""


def collector(endpoint: str) -> Send:
    """Returns the function that sends spans to an endpoint."""
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)  # an ``Answer`` tells the same
    url = endpoint if urlsplit(endpoint).path.strip("/") else endpoint.rstrip("/") + "/v1/traces"
    session = _Session()
    exporter = OTLPSpanExporter(endpoint=url, timeout=TIMEOUT_SECONDS, session=session)

    def send(spans: Sequence[ReadableSpan]) -> Answer:
        session.forget()
        exporter.export(spans)
        if session.failure is not None:
            return Answer(reason=_cause(session.failure), is_temporary=True)
        if session.answer is None:
            reason = "the spans cannot be encoded"
            return Answer(reason=reason, refused=len(spans), is_of_spans=True)
        return read(session.answer, len(spans))

    return send


class _Session(requests.Session):  # type: ignore[misc]  # it is not typed here
    """Remembers how its last request has ended."""

    answer: Any = None
    failure: Exception | None = None

    def forget(self) -> None:
        """Makes as if there had been none."""
        self.answer = self.failure = None

    def send(self, request: Any, **options: Any) -> Any:
        """Sends a request."""
        self.forget()
        try:
            self.answer = super().send(request, **options)
        except requests.RequestException as error:
            self.failure = error
            raise
        return self.answer


def read(answer: Any, spans: int) -> Answer:
    """Reads the response to a request with so many spans."""
    if answer.status_code in _TAKEN:
        return _partial(answer, spans)
    reason = " ".join(filter(None, [f"HTTP {answer.status_code}", answer.reason]))
    told = _message(answer).strip()
    reason = shown(f"{reason}: {told}" if told else reason, _SAID_MOST)
    if answer.status_code in _TEMPORARY:
        pause = retry_after(answer.headers.get("Retry-After"), time.time())
        return Answer(reason=reason, is_temporary=True, pause_seconds=pause)
    is_of_spans = answer.status_code in _OF_THESE_SPANS
    return Answer(reason=reason, refused=spans, is_of_spans=is_of_spans)


def retry_after(value: str | None, now: float) -> float | None:
    """Reads ``Retry-After`` (RFC 9110 §10.2.3), seconds or a date; None: it is neither."""
    if value is None:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(value).timestamp() - now
        except (TypeError, ValueError):
            return None
    return min(max(seconds, 0.0), LONGEST_PAUSE_SECONDS) if math.isfinite(seconds) else None


def _partial(answer: Any, spans: int) -> Answer:
    if not _is_protobuf(answer):
        return Answer()
    try:
        partial = ExportTraceServiceResponse.FromString(answer.content).partial_success
    except DecodeError:
        return Answer()
    refused = min(max(partial.rejected_spans, 0), spans)
    if not refused:  # a message alone is a warning
        return Answer()
    told = shown(partial.error_message, _SAID_MOST) or "it says not why"
    return Answer(reason=told, refused=refused, is_of_spans=True)


def _message(answer: Any) -> str:
    """Returns what a refusal says: a ``Status`` of Google's, or text; of a page of HTML nothing."""
    if _is_protobuf(answer):
        try:
            return str(Status.FromString(answer.content).message)
        except DecodeError:
            return ""
    text = answer.content[: 4 * _SAID_MOST].decode("utf-8", "replace")
    return "" if text.lstrip().startswith("<") else text


def _is_protobuf(answer: Any) -> bool:
    kind = answer.headers.get("Content-Type", "")
    return str(kind).partition(";")[0].strip().lower() == _PROTOBUF


def _cause(error: BaseException) -> str:
    """Returns why a request has had no answer: what lies beneath the library's errors."""
    if isinstance(error, requests.Timeout):
        return f"no answer within {TIMEOUT_SECONDS:g} s"
    beneath = error.__cause__ or error.__context__
    if isinstance(beneath, BaseException):
        return _cause(beneath)
    return shown(system_reason(error), _SAID_MOST)
