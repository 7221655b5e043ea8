"""What a client transfers to us: links by address, credit, answers and transactions.

Theory of operation. A session's transfers become deliveries on *inlets*, incoming links that are
made when an address is first transferred to. 0-10 lets a server slow a client down by
``message.flow``, which no client follows; so what no inlet has credit for is held here, in a line
for each address: transfers to one address stay in order, and go past those to others, since
commands may complete in any order. Reading stops when too much is held.

The numbers of deliveries are command-ids in their long form. A transfer is complete when its
outcome is known, and the client hears before that what became of it, if it asked (accept-mode
explicit)::

    accepted                        message.accept
    released                        message.release
    modified                        message.release, set-redelivered
    rejected, no route              message.reject, unroutable; if it was discard-unroutable: accept
    rejected, otherwise             message.reject, unspecified
    unauthorized (link refused so)  execution.exception 403, which ends the session

A client that names no accept-mode hears of completion alone: Qpid's for Python understands nothing
else. A completed command was carried out, so what was given back is not complete: it is offered
again, as a broker would, and what failed at most ``ATTEMPTS`` times. What was refused is told by an
exception, which ends the session: not-found, the code of the rejection, or precondition-failed.
With accept-mode none "successful transfer is assumed": completion is all there is, whatever the
outcome; it waits for that all the same, since there are clients that take it for the answer.

In a transaction transfers are answered at once, because clients wait for that before they commit;
nothing is handed on before ``tx.commit``, which waits for all outcomes. If one is not taken, the
session ends (precondition-failed).

A suspended session's inlets with open transfers are attached again when it comes back, and those
are resumed; the others are made anew when needed.
"""

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import attrs

from router.errors import DecodeError
from router.model import condition as conditions
from router.model.capabilities import Protocol
from router.model.commands import AttachLink
from router.model.condition import Condition
from router.model.delivery import ReceivedDelivery
from router.model.events import CreditReturned, LinkAttached, LinkDetached
from router.model.identity import DeliveryNumber, DeliveryTag, LinkId, LinkName
from router.model.outcome import Accepted, DeliveryState, Modified, Rejected, Released
from router.model.terminus import ALL_OUTCOMES, ExpiryPolicy, Role, Source, Target
from router.wire.v0_10 import message as messages
from router.wire.v0_10 import optional as o
from router.wire.v0_10 import packets
from router.wire.v0_10 import records as r
from router.wire.v0_10.names import address_of
from router.wire.v0_10.optional import FILE_CLASS, STREAM_CLASS
from router.wire.v0_10.ranges import ranges_of
from router.wire.v0_10.reply import ErrorCode, RejectCode, SessionFaultError, error_code, short_text
from router.wire.v0_10.types import decode_text, encode_str8, encode_text

if TYPE_CHECKING:
    from router.wire.v0_10.server_session import ServerSession

INLETS_PER_SESSION: Final = 64
"""Addresses that a session keeps links for; the one longest idle makes room."""

ATTEMPTS: Final = 10
"""How often a transfer may fail before a client hears of it that exceptions alone can tell."""

ACCEPT_EXPLICIT, ACCEPT_NONE = 0, 1
"""Values of accept-mode."""


@attrs.define(eq=False)
class Inlet:
    """An incoming link for what one session transfers to one address.

    Attributes:
        credit: deliveries that may still be handed on; 0 while ``reserve`` is in use.
        reserve: the credit meanwhile, while the core holds the link's window; None: it does not.
        open: transfers handed on whose outcome is not known, rising.
        refusal: why the core does not take it; None: it does, or has not answered.
        is_attached: the core has answered and takes it.
        home: the worker that keeps what is open on it; None: this one.
    """

    link: LinkId
    address: str
    publishing: "Publishing"
    credit: int = 0
    reserve: int | None = None
    open: dict[int, "Post"] = attrs.field(factory=dict)
    max_message_octets: int = 0
    refusal: Condition | None = None
    is_attached: bool = False
    home: str | None = None


@attrs.frozen
class Terms:
    """How a transfer wants to be answered.

    Attributes:
        accept_mode: explicit, none, or None: the client does not say.
        discards: discard-unroutable.
        codes: class and code of the command.
    """

    accept_mode: int | None
    discards: bool
    codes: tuple[int, int] = (4, 1)

    @property
    def is_explicit(self) -> bool:
        """Whether the client hears of the outcome."""
        return self.accept_mode == ACCEPT_EXPLICIT


_TERMS: Final = {
    (mode, discards): Terms(mode, discards)
    for mode in (ACCEPT_EXPLICIT, ACCEPT_NONE, None)
    for discards in (True, False)
}

_TERMS_OF: Final[dict[type, Terms]] = {
    o.FilePublish: Terms(None, discards=True, codes=(FILE_CLASS, 9)),
    o.StreamPublish: Terms(ACCEPT_NONE, discards=True, codes=(STREAM_CLASS, 6)),
}
"""Terms of all files and packets; what comes back of them is remembered apart."""


@attrs.frozen
class Shape:
    """What a transfer's command and delivery-properties mean, whatever else it says.

    Attributes:
        address: where it goes.
        exchange: as a content begins with it.
    """

    address: str
    exchange: bytes
    terms: Terms
    ttl: int | None


_SHAPES: Final = 256
"""Shapes that are remembered, so that transfers alike are looked at once."""

_LONGEST_SHAPE: Final = 4096
"""Octets of delivery-properties that are worth remembering."""


@attrs.define
class Post:
    """A transfer that waits: for credit, for the core's answer, or for the commit."""

    number: int
    address: str
    content: bytes
    terms: Terms
    ttl: int | None
    failures: int = 0


class Publishing:
    """The transfers of one session.

    Attributes:
        inlets: by address.
        held: address → transfers that wait for an answer or for credit, oldest first; never empty.
        shapes: command segments and delivery-properties → what they mean, while the session's
            exchanges stay.
        terms: number → how it wants to be answered, until it is.
        transaction: transfers since the last commit; None: the session has no transactions.
        returnable: number → file, or packet of a stream, that comes back if it is not taken.
    """

    def __init__(self, session: "ServerSession") -> None:
        self.session = session
        self.inlets: dict[str, Inlet] = {}
        self.held: dict[str, deque[Post]] = {}
        self.shapes: dict[tuple[bytes, bytes], Shape] = {}
        self.terms: dict[int, Terms] = {}
        self.transaction: list[Post] | None = None
        self.returnable: dict[int, Post] = {}
        self._accepted: list[int] = []
        self._released: list[int] = []
        self._redelivered: list[int] = []
        self._rejected: dict[tuple[int, str], list[int]] = {}
        self._committing: set[int] = set()
        self._refused_in_commit = 0
        self._commit_number = 0

    # --- transfers --------------------------------------------------------------------------------

    def recall(self, head: bytes, header: bytes) -> Shape | None:
        """Finds what a transfer means, if one that meant the same came before it."""
        return self.shapes.get((head, header[: messages.front_end(header, self._user)]))

    @property
    def _user(self) -> bytes | None:
        """The only user-id that the client may send; None: any."""
        user = self.session.server.user
        return None if user is None else encode_text(user)

    def transfer(
        self, number: int, command: r.MessageTransfer, header: bytes, body: bytes
    ) -> Shape:
        """Takes a transfer with its header and body segments; tells what it means."""
        session = self.session
        exchange = command.destination or ""
        try:
            key, told = messages.routing_of(header)
        except DecodeError as error:
            raise SessionFaultError(ErrorCode.ILLEGAL_ARGUMENT, error.rule) from error
        discards = immediate = False
        ttl = None
        if told is not None:
            discards, immediate = told.discard_unroutable, told.immediate
            ttl = messages.milliseconds_left(told)
        if immediate:
            raise SessionFaultError(
                ErrorCode.NOT_IMPLEMENTED, "immediate: a router cannot promise a ready subscriber"
            )
        session.check_user(header)
        address = address_of(exchange, key, session.exchanges.get(exchange))
        terms = _TERMS.get((command.accept_mode, discards))
        if terms is None:
            raise SessionFaultError(
                ErrorCode.ILLEGAL_ARGUMENT, f"accept-mode {command.accept_mode}"
            )
        shape = Shape(address, encode_str8(exchange), terms, ttl)
        self.post(number, shape, header, body)
        return shape

    def learn(self, head: bytes, header: bytes, shape: Shape) -> None:
        """Remembers what a transfer meant, if its delivery-properties alone decide that."""
        end = messages.front_end(header, self._user)
        if 0 < end <= _LONGEST_SHAPE:
            if len(self.shapes) >= _SHAPES:
                self.shapes.clear()
            self.shapes[head, header[:end]] = shape

    def post(self, number: int, shape: Shape, header: bytes, body: bytes) -> None:
        """Takes a transfer that is understood."""
        session, terms = self.session, shape.terms
        content = b"".join((shape.exchange, len(header).to_bytes(4, "big"), header, body))
        post = Post(number, shape.address, content, terms, shape.ttl)
        if self.transaction is not None:
            self.transaction.append(post)
            session.engine.hold_octets(len(post.content))
            if terms.is_explicit:
                self._accepted.append(number)
            session.complete(number)
            return
        self.terms[number] = terms
        self.submit(post)

    def publish(
        self, number: int, command: o.FilePublish | o.StreamPublish, header: bytes, body: bytes
    ) -> None:
        """Takes a file, or a packet, which is part of no transaction (0-10)."""
        if command.immediate:
            raise SessionFaultError(
                ErrorCode.NOT_IMPLEMENTED, "immediate: a router cannot promise a ready consumer"
            )
        exchange, key = command.exchange or "", command.routing_key or ""
        terms = _TERMS_OF[type(command)]
        try:
            told = packets.read_properties(terms.codes[0], header)
            header = packets.to_message(told, key)
        except DecodeError as error:
            raise SessionFaultError(ErrorCode.ILLEGAL_ARGUMENT, error.rule) from error
        address = address_of(exchange, key, self.session.exchanges.get(exchange))
        content = messages.make_content(encode_text(exchange), header, body)
        post = Post(number, address, content, terms, None)
        if isinstance(command, o.FilePublish) and self.transaction is not None:
            self.transaction.append(post)
            self.session.engine.hold_octets(len(content))
            self.session.complete(number)
            return
        self.terms[number] = terms
        if command.mandatory:
            self.returnable[number] = post
        self.submit(post)

    def submit(self, post: Post) -> None:
        """Hands a transfer on, or lets it wait."""
        inlet = self.inlet(post.address)
        if inlet.credit > 0 and post.address not in self.held:
            self._check_size(inlet, post)
            self._give(inlet, post)
            return
        self._line(post.address).append(post)
        self.session.engine.hold_octets(len(post.content))
        if inlet.refusal is not None:
            self.pump(post.address)

    def _line(self, address: str) -> deque[Post]:
        """Finds what waits for an address, or begins it."""
        return self.held.setdefault(address, deque())

    def _check_size(self, inlet: Inlet, post: Post) -> None:
        if 0 < inlet.max_message_octets < len(post.content):
            raise SessionFaultError(
                ErrorCode.RESOURCE_LIMIT_EXCEEDED,
                f"{len(post.content)} octets; {inlet.address!r} takes {inlet.max_message_octets}",
                *post.terms.codes,
                post.number,
            )

    def _give(self, inlet: Inlet, post: Post) -> None:
        inlet.credit -= 1
        inlet.open[post.number] = post
        self.session.engine.runs.receive(inlet.link, received(post))

    def pump(self, address: str) -> None:
        """Hands on what waits for an address, as far as its answer and credit go."""
        while line := self.held.get(address):
            inlet = self.inlet(address)
            if inlet.refusal is None and inlet.credit <= 0:
                return
            post = line.popleft()
            if not line:
                del self.held[address]
            self.session.engine.hold_octets(-len(post.content))
            if inlet.refusal is not None:
                self._refuse(post, inlet.refusal)
            else:
                self._check_size(inlet, post)
                self._give(inlet, post)
        if not self.held:
            self.session.drained()

    def _pump_all(self) -> None:
        for address in list(self.held):
            self.pump(address)

    # --- inlets -----------------------------------------------------------------------------------

    def inlet(self, address: str) -> Inlet:
        """Finds the link for an address, or asks the core for one."""
        found = self.inlets.get(address)
        if found is not None:
            return found
        engine = self.session.server
        inlet = Inlet(engine.next_link(), address, self)
        if not address:
            inlet.refusal = Condition(conditions.NOT_FOUND, "no exchange and no routing key")
            return inlet
        if len(self.inlets) >= INLETS_PER_SESSION:
            self._make_room()
        self.inlets[address] = inlet
        engine.inlets[inlet.link] = inlet
        self._ask(inlet)
        return inlet

    def _ask(self, inlet: Inlet) -> None:
        session = self.session
        session.engine.runs.add(
            LinkAttached(
                link=inlet.link,
                name=LinkName(f"{decode_text(session.name)}>{inlet.address}"),
                role=Role.RECEIVER,
                is_answer=False,
                source=Source(outcomes=ALL_OUTCOMES),
                target=Target(
                    address=inlet.address,
                    expiry_policy=ExpiryPolicy.LINK_DETACH,
                    expiry_seconds=session.expiry_seconds,
                ),
                unsettled=(
                    {tag_of(number): None for number in inlet.open} if session.is_kept else None
                ),
                home=inlet.home,
            )
        )

    def _make_room(self) -> None:
        for inlet in self.inlets.values():
            if inlet.is_attached and not inlet.open and inlet.address not in self.held:
                self._forget(inlet)
                self.session.engine.runs.add(LinkDetached(inlet.link, closed=True))
                return

    def _forget(self, inlet: Inlet) -> None:
        self.inlets.pop(inlet.address, None)
        self.session.server.inlets.pop(inlet.link, None)

    def attached(self, inlet: Inlet, answer: AttachLink) -> None:
        """Takes the core's consent to an inlet; what was open before is resumed.

        What the core does not know any more of that is offered again: nothing else is left to do.
        """
        inlet.is_attached = True
        inlet.max_message_octets = answer.max_message_octets
        known = answer.unsettled or {}
        lost = [each for number, each in inlet.open.items() if tag_of(number) not in known]
        for post in lost:
            del inlet.open[post.number]
        if lost:
            self._put_back(inlet, lost, has_failed=True)
        if inlet.open:
            again = [
                ReceivedDelivery(
                    DeliveryNumber(number), tag_of(number), b"", Protocol.AMQP_0_10, resume=True
                )
                for number in inlet.open
            ]
            self.session.engine.runs.receive_all(inlet.link, again)

    def granted(self, inlet: Inlet, credit: int, drain: bool) -> None:
        """Takes credit, or its end; what a drain leaves over is given back at once."""
        if inlet.reserve is not None:
            inlet.reserve = credit
        else:
            inlet.credit = credit
            self.pump(inlet.address)
        if drain:
            inlet.credit = 0
            self.session.engine.runs.add(CreditReturned(inlet.link, 0))

    def hold(self, inlet: Inlet, held: bool) -> None:
        """Stops or resumes handing on, whatever the credit."""
        if held and inlet.reserve is None:
            inlet.reserve, inlet.credit = inlet.credit, 0
        elif not held and inlet.reserve is not None:
            inlet.credit, inlet.reserve = inlet.reserve, None
            self.pump(inlet.address)

    def refused(self, inlet: Inlet, condition: Condition) -> None:
        """Takes the end of an inlet; the next transfer to its address asks anew."""
        inlet.refusal = condition
        inlet.credit = 0
        lost = list(inlet.open)
        inlet.open.clear()
        try:
            self.pump(inlet.address)
            if lost:
                self._decide(lost, Modified(delivery_failed=True))
        finally:
            self._forget(inlet)

    # --- outcomes ---------------------------------------------------------------------------------

    def _refuse(self, post: Post, condition: Condition) -> None:
        """Answers a transfer that the core was never given."""
        if error_code(condition) is ErrorCode.UNAUTHORIZED_ACCESS:
            raise SessionFaultError(
                ErrorCode.UNAUTHORIZED_ACCESS, str(condition), *post.terms.codes, post.number
            )
        self._decide([post.number], Rejected(condition))

    def decided(self, inlet: Inlet, numbers: Sequence[int], state: DeliveryState | None) -> None:
        """Takes the outcome of deliveries, which it settles."""
        known = [inlet.open.pop(number) for number in numbers if number in inlet.open]
        known = self._offer_again(inlet, known, state)
        self._decide([post.number for post in known], state)

    def _put_back(self, inlet: Inlet, posts: list[Post], *, has_failed: bool) -> None:
        """Puts transfers in front of their line again."""
        for post in posts:
            if has_failed:
                post.failures += 1
                post.content = messages.redelivered(post.content)
        self._line(inlet.address).extendleft(reversed(posts))
        self.session.engine.hold_octets(sum(len(post.content) for post in posts))

    def _offer_again(
        self, inlet: Inlet, posts: list[Post], state: DeliveryState | None
    ) -> list[Post]:
        """Puts back in front of its line what its client is not to hear of; gives the others."""
        has_failed = isinstance(state, Modified) and not state.undeliverable_here
        if not (has_failed or isinstance(state, Released)):
            return posts
        again = [
            post
            for post in posts
            if post.terms.accept_mode is None
            and post.failures + has_failed < ATTEMPTS
            and post.number not in self._committing
        ]
        if not again:
            return posts
        self._put_back(inlet, again, has_failed=has_failed)
        self.pump(inlet.address)
        numbers = {post.number for post in again}
        return [post for post in posts if post.number not in numbers]

    def _decide(self, numbers: Sequence[int], state: DeliveryState | None) -> None:
        session = self.session
        if self._committing:
            numbers = self._decide_in_commit(numbers, isinstance(state, Accepted))
            if not numbers:
                return
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
        session.complete_all(numbers)
        session.touch()

    def _decide_in_commit(self, numbers: Sequence[int], is_taken: bool) -> Sequence[int]:
        """Takes the outcome of what a commit waits for; gives what it does not wait for."""
        decided = self._committing.intersection(numbers)
        self._committing -= decided
        self._refused_in_commit += 0 if is_taken else len(decided)
        if decided and not self._committing:
            self._finish_commit()
        return [number for number in numbers if number not in decided]

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
            self.session.send(back, content=packet)
            returned.add(number)
        return returned

    def _check_told(self, numbers: Sequence[int], state: DeliveryState | None) -> None:
        """Ends the session if a client is not accepted that would take completion for it."""
        for number in numbers:
            terms = self.terms.get(number)
            if terms is None or terms.accept_mode is not None:
                continue
            error = state.error if isinstance(state, Rejected) else None
            if error is not None and error.name == conditions.NOT_FOUND and terms.discards:
                continue
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

    def write_answers(self) -> None:
        """Writes what became of transfers, joined into ranges."""
        session = self.session
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

    # --- transactions -----------------------------------------------------------------------------

    def roll_back(self) -> None:
        """Forgets the transfers of the transaction."""
        for post in self.transaction or ():
            self.session.engine.hold_octets(-len(post.content))
        self.transaction = []

    def commit(self, number: int) -> None:
        """Hands on the transfers of the transaction; its end is told to the session."""
        posts, self.transaction = self.transaction or [], []
        self._committing = {post.number for post in posts}
        self._refused_in_commit = 0
        self._commit_number = number
        for post in posts:
            self._line(post.address).append(post)
        if posts:
            self._pump_all()
        else:
            self.session.committed(number)

    def _finish_commit(self) -> None:
        refused = self._refused_in_commit
        if refused:
            raise SessionFaultError(
                ErrorCode.PRECONDITION_FAILED,
                f"{refused} transfers of the transaction were not taken",
                5,
                2,
                self._commit_number,
            )
        self.session.committed(self._commit_number)

    # --- suspension and end -----------------------------------------------------------------------

    def suspend(self) -> None:
        """Takes note that the session is without a channel: only what is open is kept of links."""
        engine = self.session.server
        for inlet in list(self.inlets.values()):
            engine.inlets.pop(inlet.link, None)
            inlet.is_attached = False
            inlet.credit = 0
            inlet.reserve = None
            if not inlet.open:
                del self.inlets[inlet.address]
        engine.hold_octets(-self._octets())

    def come_back(self) -> None:
        """Attaches the links again on which transfers are open, and asks for those that wait."""
        engine = self.session.server
        engine.hold_octets(self._octets())
        for inlet in list(self.inlets.values()):
            inlet.link = engine.next_link()
            inlet.refusal = None
            engine.inlets[inlet.link] = inlet
            self._ask(inlet)
        self._pump_all()

    def _octets(self) -> int:
        waiting = sum(len(post.content) for line in self.held.values() for post in line)
        return waiting + sum(len(post.content) for post in self.transaction or ())

    def ended(self, *, tells: bool) -> None:
        """Ends all links; what was held is void, and nothing was said of it.

        Args:
            tells: the connection lives on, so the core has to be told.
        """
        for inlet in list(self.inlets.values()):
            self._forget(inlet)
            if tells:
                self.session.engine.runs.add(LinkDetached(inlet.link, closed=True))
        self.session.engine.hold_octets(-self._octets())
        self.held.clear()
        self.transaction = None
        self._committing.clear()
        self.terms.clear()
        self.returnable.clear()


def tag_of(number: int) -> DeliveryTag:
    """Makes the tag of a transfer: its command-id in the long form."""
    return DeliveryTag(number.to_bytes(8, "big"))


def received(post: Post) -> ReceivedDelivery:
    """Makes the delivery of a transfer."""
    return ReceivedDelivery(
        DeliveryNumber(post.number),
        DeliveryTag(post.number.to_bytes(8, "big")),
        post.content,
        Protocol.AMQP_0_10,
        ttl_milliseconds=post.ttl,
        delivery_count=post.failures,
    )


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
