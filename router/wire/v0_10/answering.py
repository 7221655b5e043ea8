"""What a client is told of its transfers, and when.

Theory of operation. A transfer is complete when its outcome is known, and the client hears before
that what became of it, if it asked (accept-mode explicit). Answers are gathered while a turn lasts,
and written joined into ranges::

    accepted                        message.accept
    released                        message.release
    modified                        message.release, set-redelivered
    rejected, no route              message.reject, unroutable; if it was discard-unroutable: accept
    rejected, otherwise             message.reject, unspecified
    no route, accept-mode none      nothing: it is dropped, and complete
    unauthorized (link refused so)  execution.exception 403, which ends the session

A client that names no accept-mode hears of completion alone: Qpid's for Python understands nothing
else. A completed command was carried out, so what was given back is not complete: it is offered
again (``publishing``), as a broker would. What was refused is told by an exception, which ends the
session: the code of the rejection, or precondition-failed; but what no route takes is dropped, as a
broker drops it. With accept-mode none
"successful transfer is assumed": it is complete as soon as the router has it, and the router's from
then on. Only packets of streams that may come back, and what a transaction waits for, have an
outcome all the same.

Files and packets of streams that are not taken come back, if their client asked for that.
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
        terms: number → how it wants to be answered, until it is.
        returnable: number → file, or packet of a stream, that comes back if it is not taken.
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
        """Tells that a transfer is taken, whatever becomes of it."""
        self._accepted.append(number)

    def decided(self, numbers: Sequence[int], state: DeliveryState | None) -> None:
        """Tells the outcome of transfers.

        Raises:
            SessionFaultError: a client would take completion for consent, and there is none.
        """
        explicit = [number for number in numbers if self._is_explicit(number)]
        returned = self._send_back(numbers, state)
        if not isinstance(state, Accepted):
            self._check_told([each for each in numbers if each not in returned], state)
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
        """Returns what was not taken and may be returned (0-10 file.return, stream.return)."""
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

    def _check_told(self, numbers: Sequence[int], state: DeliveryState | None) -> None:
        """Ends the session if a client is not accepted that would take completion for it."""
        for number in numbers:
            terms = self.terms.get(number)
            if terms is None or terms.accept_mode is not None:
                continue
            error = state.error if isinstance(state, Rejected) else None
            if error is not None and error.name == conditions.NOT_FOUND:
                continue  # unroutable: dropped, as accept-mode is not explicit
            code = ErrorCode.PRECONDITION_FAILED if error is None else error_code(error)
            text = "nobody has taken the message" if error is None else str(error)
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
        """Writes what became of transfers, joined into ranges."""
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
    """Words an outcome that is not accepted as a return."""
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
