"""One connection to PostgreSQL in pipeline mode, driven by readiness: nothing here ever blocks.

    state        entered by                              leaves by
    IDLE         the start, ``close``                    ``start``
    CONNECTING   ``start``                               the connection is made, or fails
    READY        it is made: statements may be sent      an error, or the end of the stream
    LOST         the connection failed or broke          ``start``; ``take_unanswered`` says what
                                                         nobody knows the outcome of

Each statement is followed by a Sync, so each is a transaction of its own, and its answer says that
it was committed.
"""

import enum
import selectors
from collections import deque
from typing import Any, Final

import attrs
from psycopg import pq

_READ, _WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE
_BINARY: Final = 1


class PipeState(enum.Enum):
    """See the table of the module."""

    IDLE = "idle"
    CONNECTING = "connecting"
    READY = "ready"
    LOST = "lost"


@attrs.frozen(kw_only=True)
class Answer:
    """The answer to one statement.

    Attributes:
        request: what the caller gave ``send``.
        rows: inserted, updated or returned.
        value: the first column of the first row; None: there is none.
        error: what the server says is wrong; None: the statement was committed.
        code: of the error, five characters (SQLSTATE).
    """

    request: Any
    rows: int = 0
    value: bytes | None = None
    error: str | None = None
    code: str = ""


class Pipe:
    """A connection.

    Attributes:
        state: see the table of the module.
        trouble: why it was lost.
        in_flight: statements that are not answered.
    """

    def __init__(self, conninfo: str) -> None:
        """Connects to nothing yet.

        Args:
            conninfo: as libpq reads it; a URL is one.
        """
        self.state = PipeState.IDLE
        self.trouble: str | None = None
        self.in_flight: deque[Any] = deque()
        self._conninfo = conninfo
        self._connection: Any = None
        self._wants = 0
        self._answer: Any = None

    @property
    def waits(self) -> tuple[int, int] | None:
        """The descriptor and the events to wait for; None: nothing is awaited."""
        if self._connection is None or not self._wants:
            return None
        return self._connection.socket, self._wants

    def start(self) -> None:
        """Begins to connect."""
        self.close()
        self._connection = pq.PGconn.connect_start(self._conninfo.encode())
        self.state = PipeState.CONNECTING
        self.trouble = None
        if self._connection.status == pq.ConnStatus.BAD:
            self._lose(self._message())
            return
        self._wants = _WRITE

    def close(self) -> None:
        """Lets go of the connection; what was not answered is forgotten."""
        self._drop()
        self.in_flight.clear()
        self.state = PipeState.IDLE

    def lose(self, reason: str) -> None:
        """Gives up a connection that does not answer."""
        self._lose(reason)

    def take_unanswered(self) -> list[Any]:
        """Returns, once, what was sent and not answered: it may or may not have been committed."""
        unanswered = list(self.in_flight)
        self.in_flight.clear()
        return unanswered

    def send(self, request: Any, statement: str, parameters: list[bytes | None]) -> None:
        """Sends a statement.

        Args:
            request: comes back with the answer.
            statement: with $1, $2 ...
            parameters: text, or ``Octets``, which go in binary.
        """
        formats = [_BINARY if isinstance(each, Octets) else 0 for each in parameters]
        try:
            self._connection.send_query_params(
                statement.encode(), parameters, param_formats=formats
            )
            self._connection.pipeline_sync()
        except Exception as error:  # noqa: BLE001  psycopg.OperationalError, or no connection
            self.in_flight.append(request)
            self._lose(str(error))
            return
        self.in_flight.append(request)
        self._flush()

    def advance(self) -> list[Answer]:
        """Goes on with whatever can go on, and returns the answers that have come."""
        if self.state is PipeState.CONNECTING:
            self._connect()
        if self.state is not PipeState.READY:
            return []
        try:
            self._connection.consume_input()
        except Exception as error:  # noqa: BLE001
            answers = self._read()
            self._lose(str(error))
            return answers
        answers = self._read()
        self._flush()
        return answers

    def _connect(self) -> None:
        status = self._connection.connect_poll()
        if status == pq.PollingStatus.FAILED:
            self._lose(self._message())
        elif status == pq.PollingStatus.OK:
            self._connection.nonblocking = 1
            self._connection.enter_pipeline_mode()
            self.state = PipeState.READY
            self._wants = _READ
        else:
            self._wants = _READ if status == pq.PollingStatus.READING else _WRITE

    def _read(self) -> list[Answer]:
        answers: list[Answer] = []
        was_end = False
        while self.in_flight and not self._connection.is_busy():
            result = self._connection.get_result()
            if result is None:
                if was_end:
                    break
                was_end = True
                continue
            was_end = False
            if result.status == pq.ExecStatus.PIPELINE_SYNC:
                answers.append(_answer(self.in_flight.popleft(), self._answer))
                self._answer = None
            elif self._answer is None:
                self._answer = result
        return answers

    def _flush(self) -> None:
        if self.state is not PipeState.READY:
            return
        try:
            more = self._connection.flush()
        except Exception as error:  # noqa: BLE001
            self._lose(str(error))
            return
        self._wants = _READ | (_WRITE if more else 0)

    def _message(self) -> str:
        return str(self._connection.get_error_message()).strip()

    def _lose(self, reason: str) -> None:
        lines = filter(None, map(str.strip, reason.splitlines()))
        self.trouble = "; ".join(lines)  # libpq writes several
        self._drop()
        self.state = PipeState.LOST

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.finish()
            self._connection = None
        self._wants = 0
        self._answer = None


class Octets(bytes):
    """A parameter that goes in binary."""


def _answer(request: Any, result: Any) -> Answer:
    if result is None:
        return Answer(request=request, error="no answer")
    if result.status == pq.ExecStatus.TUPLES_OK:
        value = result.get_value(0, 0) if result.ntuples else None
        return Answer(request=request, rows=result.ntuples, value=value)
    if result.status == pq.ExecStatus.COMMAND_OK:
        return Answer(request=request, rows=result.command_tuples or 0)
    code = (result.error_field(pq.DiagnosticField.SQLSTATE) or b"").decode()
    message = (result.error_field(pq.DiagnosticField.MESSAGE_PRIMARY) or b"").decode()
    return Answer(request=request, error=message or "unknown error", code=code)
