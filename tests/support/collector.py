"""A collector of spans: OTLP over HTTP on a port of its own."""

import gzip
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import attrs

from tests.support.peers import need_python


@attrs.frozen(kw_only=True)
class Seen:
    """A span that has come."""

    trace: str
    span: str
    parent: str
    name: str
    kind: int
    router: str
    started_ns: int
    ended_ns: int
    status: str
    state: str
    attributes: Mapping[str, Any] = attrs.field(eq=False)
    links: tuple[str, ...] = ()
    events: tuple[str, ...] = ()


@attrs.define(eq=False)
class Collector:
    """What has come.

    Attributes:
        port: where it listens; it stays the same while it is away.
        spans: in the order of their coming, repetitions included.
        is_away: answers 503.
        answer: with what else it answers, status, headers and body; None: it takes what comes.
        refused: requests that it did not take.
    """

    port: int = 0
    spans: list[Seen] = attrs.field(factory=list)
    is_away: bool = False
    answer: tuple[int, Mapping[str, str], bytes] | None = None
    refused: int = 0

    @property
    def endpoint(self) -> str:
        """Its URL."""
        return f"http://127.0.0.1:{self.port}"

    def of(self, trace: str) -> list[Seen]:
        """The spans of a trace, each once."""
        return list({each.span: each for each in self.spans if each.trace == trace}.values())

    def take(self, octets: bytes) -> None:
        """Reads a request."""
        from opentelemetry.proto.collector.trace.v1 import trace_service_pb2

        request = trace_service_pb2.ExportTraceServiceRequest.FromString(octets)
        for group in request.resource_spans:
            resource = {each.key: each.value.string_value for each in group.resource.attributes}
            for scope in group.scope_spans:
                self.spans += [_seen(span, resource) for span in scope.spans]


def _seen(span: Any, resource: Mapping[str, str]) -> Seen:
    return Seen(
        trace=span.trace_id.hex(),
        span=span.span_id.hex(),
        parent=span.parent_span_id.hex(),
        name=span.name,
        kind=span.kind,
        router=resource["service.instance.id"],
        started_ns=span.start_time_unix_nano,
        ended_ns=span.end_time_unix_nano,
        status=span.status.message,
        state=span.trace_state,
        attributes={
            each.key: getattr(each.value, each.value.WhichOneof("value"))
            for each in span.attributes
        },
        links=tuple(each.span_id.hex() for each in span.links),
        events=tuple(each.name for each in span.events),
    )


@contextmanager
def collecting() -> Iterator[Collector]:
    """Runs a collector for the length of a ``with`` block."""
    need_python("opentelemetry.proto")
    need_python("opentelemetry.exporter.otlp.proto.http")
    found = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            octets = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                octets = gzip.decompress(octets)
            assert self.path == "/v1/traces"
            answer = (503, {}, b"") if found.is_away else found.answer
            if answer is None:
                found.take(octets)
                answer = 200, {"Content-Type": "application/x-protobuf"}, b""  # an empty response
            else:
                found.refused += 1
            status, headers, body = answer
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Says nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        server.shutdown()
        server.server_close()
