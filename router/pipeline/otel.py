"""Exports the spans of a router's traced deliveries to a collector (OTLP over HTTP).

Theory of operation. A process of its own reads the journal's segments (``following``), makes spans
of the records (``spans``), and sends them in batches. Where it is, and what is open there, is
written after each batch that the collector has taken::

    STATE/spans/cursor.json    {"segment", "offset", "open": [...]}
    STATE/spans/lock           held by the one exporter of this state directory

A kill between the two sends a batch again; ids derive from the deliveries, so the collector gets
the same spans. While the collector is away the exporter waits, and segments are kept up to a bound.
Spans that it refuses for good (``collector``) are dropped and counted. A run that does not follow
ends instead, unless the refusal is about these spans.

Names follow OpenTelemetry's semantic conventions for messaging: the hop is a span of type
*process*, named ``forward ADDRESS``; each attempt to send is a child of type *send*; when it was
settled with the sender is an event *settle*.
"""

import fcntl
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import attrs
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags
from opentelemetry.trace.span import TraceState

from router import __version__
from router.errors import RouterError
from router.journal.following import SPANS_FOLDER, Cursor, Follower, save, saved
from router.journal.record import PROTOCOLS, GuaranteeCode, OutcomeCode
from router.model.trace import TRACE_OCTETS
from router.pipeline.collector import Answer, Send
from router.pipeline.schema import in_words
from router.pipeline.spans import Attempt, Passing, Spans

BATCH: Final = 512
"""Hops that are sent at once."""

POLL_SECONDS: Final = 0.25
RETRY_SECONDS: Final = (0.5, 1.0, 2.0, 5.0, 10.0, 15.0)
"""Pauses before a batch is sent again; the last one repeats."""

_OUTCOMES: Final = {int(each): in_words(each) for each in OutcomeCode}
_FAILED: Final = (OutcomeCode.REJECTED, OutcomeCode.MODIFIED)


class ExportError(RouterError):
    """The spans cannot be exported."""


@attrs.frozen
class Health:
    """What an exporter reports of itself.

    Attributes:
        exported: spans that the collector has taken, since this process began.
        dropped: segments that were dropped unread because the collector was away for too long.
        refused: spans that the collector has refused for good, and that were dropped.
        refusal: why it has last refused some; None: it has refused none.
        trouble: why spans are not exported just now; None: they are.
    """

    exported: int = 0
    dropped: int = 0
    refused: int = 0
    refusal: str | None = None
    trouble: str | None = None


@attrs.define(eq=False)
class Exporter:
    """Exports one router's spans.

    Attributes:
        state: the router's state directory.
        send: hands spans to the collector.
        where: the collector, for people.
        report: told of each change.
        is_wanted: asked often; False: end, after what is there.
    """

    state: Path
    send: Send
    where: str
    buffer_octets: int
    report: Callable[[Health], None] = attrs.field(default=lambda health: None)
    is_wanted: Callable[[], bool] = attrs.field(default=lambda: True)
    health: Health = attrs.field(factory=Health, init=False)
    _spans: Spans = attrs.field(factory=Spans, init=False)
    _cursor: Cursor = attrs.field(factory=Cursor, init=False)
    _saved: Cursor | None = attrs.field(default=None, init=False)
    _follower: Follower = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._follower = Follower(self.state, self._directory, self.buffer_octets)

    @property
    def _directory(self) -> Path:
        return self.state / SPANS_FOLDER

    def run(self, *, follows: bool) -> None:
        """Exports what is there; if it follows, until it is not wanted any more.

        Raises:
            ExportError: the collector has not taken all spans, and the exporter does not follow.
            OSError: the state directory cannot be used.
        """
        self._restore()
        self._follower.look(self._cursor)
        self.report(self.health)  # from now on it keeps what it has not read
        while True:
            is_last = not (follows and self.is_wanted())
            self._read(is_last=is_last, follows=follows)
            if is_last:
                return
            time.sleep(POLL_SECONDS)

    def _restore(self) -> None:
        found = saved(self._directory)
        if found is None:
            return
        self._cursor = self._saved = Cursor(found["segment"], found["offset"])
        self._spans.load(found["open"])
        self._follower.look(self._cursor)
        for block in self._follower.heads(self._cursor):
            self._spans.learn(block)

    def _save(self) -> None:
        """Writes where it is; all spans of what was read before are exported or open."""
        save(self._directory, self._cursor, open=self._spans.dump())
        self._saved = self._cursor

    def _read(self, *, is_last: bool, follows: bool) -> None:
        self._follower.look(self._cursor)
        for block, cursor in self._follower.blocks(self._cursor):
            self._spans.take(block)
            self._cursor = cursor
            if len(self._spans.done) >= BATCH:
                self._flush(follows=follows)
        if is_last:
            self._spans.finish()
        else:
            self._spans.tick(time.time_ns())
        is_new = bool(self._spans.done)
        self._flush(follows=follows)
        if is_new or self._cursor != self._saved:
            self._save()
        self._report(dropped=self._follower.dropped)

    def _flush(self, *, follows: bool) -> None:
        """Sends what is done; waits for the collector as long as it takes."""
        done, self._spans.done = self._spans.done, []
        for start in range(0, len(done), BATCH):
            batch = [
                span
                for passing in done[start : start + BATCH]
                for span in spans_of(passing, self._spans.router)
            ]
            self._send(batch, follows=follows)

    def _send(self, batch: Sequence[ReadableSpan], *, follows: bool) -> None:
        tries = 0
        while (answer := self.send(batch)).is_temporary or self._ends_with(answer, follows=follows):
            trouble = f"{self.where} does not take spans ({answer.reason})"
            self._report(trouble=trouble)
            if not (follows and self.is_wanted()):
                raise ExportError(f"{trouble}; nothing is lost, run it again")
            self._pause(answer.pause_seconds, tries)
            tries += 1
        self._report(exported=self.health.exported + len(batch) - answer.refused, trouble=None)
        if answer.refused:
            refusal = f"{self.where} refuses them ({answer.reason})"
            self._report(refused=self.health.refused + answer.refused, refusal=refusal)

    def _ends_with(self, answer: Answer, *, follows: bool) -> bool:
        """Returns whether a refusal is one that a person has to mend before anything is sent."""
        return bool(answer.refused) and not follows and not answer.is_of_spans

    def _pause(self, asked_seconds: float | None, tries: int) -> None:
        """Waits before the next try, and keeps the segments that are unread."""
        seconds = RETRY_SECONDS[min(tries, len(RETRY_SECONDS) - 1)]
        until = time.monotonic() + max(seconds, asked_seconds or 0.0)
        while time.monotonic() < until and self.is_wanted():
            self._follower.look(self._saved or Cursor())
            self._report(dropped=self._follower.dropped)
            time.sleep(POLL_SECONDS)

    def _report(self, **changes: Any) -> None:
        health = attrs.evolve(self.health, **changes)
        if health != self.health:
            self.health = health
            self.report(health)


@contextmanager
def only_exporter(state: Path, *, wait: Callable[[], bool]) -> Iterator[None]:
    """Holds the lock of a state directory's exporter.

    Args:
        state: the directory.
        wait: asked while another process holds it; False: do not wait any longer.

    Raises:
        ExportError: another process exports its spans.
        OSError: the directory cannot be written.
    """
    directory = state / SPANS_FOLDER
    directory.mkdir(mode=0o700, exist_ok=True)
    lock = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if not wait():
                    raise ExportError(f"another process exports the spans of {state}") from None
                time.sleep(POLL_SECONDS)
        yield
    finally:
        os.close(lock)


# --- spans ----------------------------------------------------------------------------------------

_SCOPE: Final = InstrumentationScope("router", __version__)


def spans_of(passing: Passing, router: str) -> Iterator[ReadableSpan]:
    """Yields the span of a hop, then those of its attempts to send."""
    hop = passing.hop
    resource, state = _resource(router), _trace_state(hop.state)
    context = _context(hop.trace, hop.span, hop.flags, state)
    ended_ns = max(
        passing.settled_ns,
        passing.last_ns if not passing.settled_ns or passing.is_unfinished else 0,
        passing.received_ns,
        *(each.ended_ns for each in passing.attempts),
    )
    outcome = passing.outcome or next(
        (each.outcome for each in reversed(passing.attempts) if each.outcome), 0
    )
    yield ReadableSpan(
        name=f"forward {passing.address}".rstrip(),
        context=context,
        parent=_context(hop.trace, hop.parent, hop.flags, state, is_remote=True)
        if hop.parent
        else None,
        resource=resource,
        attributes={
            **_attributes(passing, "forward", "process"),
            **_peer(passing.remote, passing.name, passing.address),
            "messaging.message.envelope.size": passing.octets,
            "router.outcome": _outcome(outcome),
            "router.unfinished": passing.is_unfinished,
        },
        events=[Event("settle", timestamp=passing.settled_ns)] if passing.settled_ns else [],
        links=_links(passing),
        kind=SpanKind.CONSUMER,
        status=_status(outcome, is_unknown=passing.is_unfinished),
        start_time=passing.received_ns,
        end_time=ended_ns,
        instrumentation_scope=_SCOPE,
    )
    for attempt in passing.attempts:
        yield _sent(passing, attempt, context, resource)


def _sent(
    passing: Passing, attempt: Attempt, parent: SpanContext, resource: Resource
) -> ReadableSpan:
    hop = passing.hop
    is_unknown = attempt.was_in_doubt and not attempt.outcome
    address = attempt.address or passing.address
    return ReadableSpan(
        name=f"send {address}".rstrip(),
        context=_context(hop.trace, attempt.span, hop.flags, parent.trace_state),
        parent=parent,
        resource=resource,
        attributes={
            **_attributes(passing, "send", "send"),
            **_peer(attempt.remote, attempt.name, address),
            "router.outcome": _outcome(attempt.outcome),
            "router.in_doubt": attempt.was_in_doubt,
        },
        kind=SpanKind.PRODUCER,
        status=_status(attempt.outcome, is_unknown=is_unknown),
        start_time=attempt.sent_ns,
        end_time=max(attempt.ended_ns, attempt.sent_ns),
        instrumentation_scope=_SCOPE,
    )


def _attributes(passing: Passing, name: str, kind: str) -> dict[str, Any]:
    protocol = PROTOCOLS.get(passing.protocol)
    return {
        "messaging.system": "amqp",
        "messaging.operation.name": name,
        "messaging.operation.type": kind,
        "network.protocol.name": "amqp",
        "network.protocol.version": "" if protocol is None else protocol.removeprefix("amqp-"),
        "router.delivery.key": passing.key.hex(),
        "router.guarantee": in_words(GuaranteeCode(passing.guarantee)),
        "router.worker": passing.worker,
    }


def _peer(remote: str, link: str, address: str) -> Mapping[str, str]:
    found = {
        "messaging.destination.name": address,
        "messaging.client.id": remote,
        "router.link": link,
    }
    return {name: value for name, value in found.items() if value}


def _outcome(code: int) -> str:
    return _OUTCOMES.get(code) or str(code)


def _status(outcome: int, *, is_unknown: bool) -> Status:
    if outcome in _FAILED:
        return Status(StatusCode.ERROR, _outcome(outcome))
    return Status(StatusCode.ERROR, "in-doubt") if is_unknown else Status(StatusCode.UNSET)


def _links(passing: Passing) -> Sequence[Link]:
    """Returns a link to the creator's span, if the hop's parent is another one."""
    creator = passing.hop.creator
    if not creator:
        return ()
    trace, span = creator[:TRACE_OCTETS], creator[TRACE_OCTETS:]
    return (Link(_context(trace, span, passing.hop.flags, None, is_remote=True)),)


def _context(
    trace: bytes, span: bytes, flags: int, state: TraceState | None, *, is_remote: bool = False
) -> SpanContext:
    return SpanContext(
        int.from_bytes(trace, "big"),
        int.from_bytes(span, "big"),
        is_remote=is_remote,
        trace_flags=TraceFlags(flags),
        trace_state=state,
    )


def _trace_state(text: str) -> TraceState | None:
    return TraceState.from_header([text]) if text else None


_resources: dict[str, Resource] = {}


def _resource(router: str) -> Resource:
    """Returns the resource of a router; OTEL_SERVICE_NAME and the like add to it."""
    if router not in _resources:
        name = os.environ.get("OTEL_SERVICE_NAME") or "amqp-router"
        _resources[router] = Resource.create(
            {"service.name": name, "service.instance.id": router, "service.version": __version__}
        )
    return _resources[router]
