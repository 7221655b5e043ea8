"""Answers to a client's transfers: accept, release, reject and completion.

Theory of operation. A transfer is complete when its outcome is known, and before that the client
gets the outcome, if it asked for it (accept-mode explicit). Answers are gathered during a turn and
written as ranges::

    accepted                        message.accept
    released                        message.release
    modified                        message.release, set-redelivered
    rejected, no route              message.reject, unroutable; if discard-unroutable: accept
    rejected, otherwise             message.reject, unspecified
    no route, accept-mode none      nothing: it is dropped, and complete
    unauthorized (link refused)     execution.exception 403, which ends the session

A client that names no accept-mode gets completion alone: Qpid's for Python supports nothing else. A
completed command was carried out, so a returned delivery is not complete: it is offered again
(``publishing``), as a broker would. A refused one is reported by an exception, which ends the
session: the code of the rejection, or precondition-failed; but one without a route is dropped, as a
broker drops it. With accept-mode none "successful transfer is assumed": it is complete as soon as
the router has it (on exactly-once routes: on record), and the router's from then on. Only packets
of streams that may be returned, and the transfers of a transaction, have an outcome all the same.

Files and packets of streams that are not accepted are returned, if their client asked for that.
"""

from collections.abc import Sequence

from router.model import condition as conditions
from router.model.condition import Condition
from router.model.outcome import Accepted, DeliveryState, Rejected, Released
from router.wire.v0_10 import message as messages
from router.wire.v0_10 import optional as o
from router.wire.v0_10 import packets
from router.wire.v0_10 import records as r
from router.wire.v0_10.client_session import ClientSession
from router.wire.v0_10.optional import FILE_CLASS
from router.wire.v0_10.posts import Post, Terms
from router.wire.v0_10.ranges import ranges_of
from router.wire.v0_10.reply import ErrorCode, RejectCode, SessionFaultError, error_code, short_text


class Answering:
    """The answers of one session.

    Attributes:
        terms: number → how the transfer is to be answered, until it is.
        returnable: number → file, or packet of a stream, that is returned if it is not accepted.
    """

    def __init__(self, session: ClientSession) -> None:
        self._session = session
        self.terms: dict[int, Terms] = {}
        self.returnable: dict[int, Post] = {}
        self._accepted: list[int] = []
        self._released: list[int] = []
        self._redelivered: list[int] = []
        self._rejected: dict[tuple[int, str], list[int]] = {}

    def accept(self, number: int) -> None:
        """Answers a transfer with accept, whatever its outcome will be."""
        self._accepted.append(number)

    def decided(self, numbers: Sequence[int], state: DeliveryState | None) -> None:
        """Answers transfers by their outcome.

        Raises:
            SessionFaultError: the client would take completion for acceptance, and it was not
            accepted.
        """
        explicit = [number for number in numbers if self._is_explicit(number)]
        returned = self._send_back(numbers, state)
        if not isinstance(state, Accepted):
            self._check_refused([each for each in numbers if each not in returned], state)
        match state:
            case Accepted():
                self._accepted += explicit
            case Released():
                self._released += explicit
            case Rejected(error=error):
                self._reject(explicit, error)
            case _:
                self._redelivered += explicit
        for number in numbers:
            self.terms.pop(number, None)

    def _send_back(self, numbers: Sequence[int], state: DeliveryState | None) -> set[int]:
        """Sends back refused files and packets (0-10 file.return, stream.return)."""
        returned: set[int] = set()
        for number in numbers if self.returnable else ():
            post = self.returnable.pop(number, None)
            if post is None or isinstance(state, Accepted):
                continue
            found = messages.content_layout(post.content)
            header = post.content[found.header_at : found.body_at]
            key, _ = messages.routing_of(header)
            code, text = _return_of(state)
            kind = post.terms.codes[0]
            command = o.FileReturn if kind == FILE_CLASS else o.StreamReturn
            back = command(
                reply_code=code, reply_text=text, exchange=found.exchange, routing_key=key
            )
            packet = packets.from_message(kind, header)[0], post.content[found.body_at :]
            self._session.send(back, content=packet)
            returned.add(number)
        return returned

    def _check_refused(self, numbers: Sequence[int], state: DeliveryState | None) -> None:
        """Ends the session for a refused transfer whose client would take completion for accept."""
        for number in numbers:
            terms = self.terms.get(number)
            if terms is None or terms.accept_mode is not None:
                continue
            error = state.error if isinstance(state, Rejected) else None
            if error is not None and error.name == conditions.NOT_FOUND:
                continue  # unroutable: dropped, as accept-mode is not explicit
            code = ErrorCode.PRECONDITION_FAILED if error is None else error_code(error)
            text = "no receiver accepted the message" if error is None else str(error)
            raise SessionFaultError(code, text, *terms.codes, number)

    def _is_explicit(self, number: int) -> bool:
        terms = self.terms.get(number)
        return terms is not None and terms.is_explicit

    def _reject(self, numbers: list[int], error: Condition | None) -> None:
        is_unroutable = error is not None and error.name == conditions.NOT_FOUND
        code = RejectCode.UNROUTABLE if is_unroutable else RejectCode.UNSPECIFIED
        text = "" if error is None else short_text(str(error))
        for number in numbers:
            if is_unroutable and self.terms[number].discards:
                self._accepted.append(number)
            else:
                self._rejected.setdefault((code, text), []).append(number)

    def write(self) -> None:
        """Writes the gathered answers as ranges."""
        session = self._session
        if self._accepted:
            accepted, self._accepted = self._accepted, []
            session.send(r.MessageAccept(_joined(accepted)))
        if self._released:
            released, self._released = self._released, []
            session.send(r.MessageRelease(_joined(released)))
        if self._redelivered:
            redelivered, self._redelivered = self._redelivered, []
            session.send(r.MessageRelease(_joined(redelivered), set_redelivered=True))
        if self._rejected:
            rejected, self._rejected = self._rejected, {}
            for (code, text), numbers in rejected.items():
                session.send(r.MessageReject(_joined(numbers), code, text or None))

    def forget(self) -> None:
        """Records that nobody waits for an answer any more."""
        self.terms.clear()
        self.returnable.clear()


def _return_of(state: DeliveryState | None) -> tuple[int, str]:
    """Returns the code and text with which an outcome is returned."""
    error = state.error if isinstance(state, Rejected) else None
    if error is not None and error.name == conditions.NOT_FOUND:
        return o.NO_ROUTE, "no route takes it"
    if error is not None and error.name == conditions.MESSAGE_SIZE_EXCEEDED:
        return o.TOO_LARGE, short_text(str(error))
    return o.NO_CONSUMERS, "nobody has taken it" if error is None else short_text(str(error))


def _joined(numbers: list[int]) -> tuple[tuple[int, int], ...]:
    return tuple(
        (first & 0xFFFF_FFFF, last & 0xFFFF_FFFF) for first, last in ranges_of(sorted(numbers))
    )
