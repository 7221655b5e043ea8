"""A client's transfers: links by address, credit and transactions.

Theory of operation. A session's transfers become deliveries on *inlets*, incoming links that are
created on the first transfer to an address. 0-10 lets a server slow a client down by
``message.flow``, which no client obeys; so transfers without credit are held here, in one list per
address: transfers to one address stay in order, and may overtake those to others, since commands
may complete in any order. Reading stops when too much is held.

A transfer of accept-mode none is accepted on arrival: it is settled, complete as soon as the core
has it, and the router's. On routes that promise exactly-once it is complete when the core reports
that it is on record. Where the core accepts it ahead of credit it is never held here; when its
session ends, held ones are handed on without credit. Other held transfers are void then, since
their client knows that they are not complete.

Delivery numbers are command-ids in their long form. The answers to the client are sent by
``answering``. A returned delivery is offered again, as a broker would, if the client gets
completion alone; a failed one at most ``ATTEMPTS`` times.

A ttl counts from the transfer, or from the commit. A held transfer that has expired is dropped, as
soon as the core has answered for its address: a client that asked for the outcome gets released,
others completion. A transfer that is handed on has the remaining ttl.

In a transaction transfers are answered as soon as it is known that a route accepts them, because
clients wait for that before they commit; nothing is handed on before ``tx.commit``, which waits for
all outcomes. If one is refused, the session ends (precondition-failed).

A transfer without a route is *unroutable*, which is no fault of the session: it is rejected if its
accept-mode is explicit, else dropped. An exchange that nobody on this connection has declared, and
that no route has, is a fault (not-found).

A transfer to a local queue of this connection that only it can reach goes there, without the core.

A suspended session's inlets with open transfers are attached again when it comes back, and those
are resumed; the others are created again when needed.
"""

import math
from collections import deque
from collections.abc import Sequence
from typing import Final

import attrs

from router.errors import DecodeError
from router.model import condition as conditions
from router.model.capabilities import Protocol
from router.model.commands import AttachLink
from router.model.condition import Condition
from router.model.delivery import ReceivedDelivery
from router.model.events import LinkAttached, RecordAwaited
from router.model.identity import DeliveryNumber, LinkId, LinkName
from router.model.outcome import (
    ACCEPTED,
    Accepted,
    DeliveryState,
    Modified,
    Rejected,
    Released,
)
from router.model.terminus import ExpiryPolicy, Target
from router.model.text import encode_text
from router.wire.exchange_names import address_of
from router.wire.inlets import outcome_of
from router.wire.publishing import Keeper
from router.wire.v0_10 import message as messages
from router.wire.v0_10 import optional as o
from router.wire.v0_10 import packets
from router.wire.v0_10 import records as r
from router.wire.v0_10.answering import Answering
from router.wire.v0_10.client_session import ClientSession
from router.wire.v0_10.posts import TERMS, TERMS_OF, Inlet, Post, PostShape, received, tag_of
from router.wire.v0_10.queues import EXPIRED, Queue
from router.wire.v0_10.reply import (
    ErrorCode,
    SessionFaultError,
    check_modes,
    decode_fault,
    error_code,
)
from router.wire.v0_10.server_links import ServerLinks
from router.wire.v0_10.types import encode_str8

ATTEMPTS: Final = 10
"""Attempts of a transfer whose client can get its failure only as an exception."""

_NOWHERE: Final = "no exchange and no routing key"

_SHAPES: Final = 256
"""Most cached shapes."""

_LONGEST_SHAPE: Final = 4096
"""Most octets of delivery-properties that are cached."""


class Publishing(Keeper[Inlet]):
    """The transfers of one session.

    Attributes:
        held: address → transfers that wait for the attach or for credit, oldest first; never empty.
        shapes: command segments and delivery-properties → their meaning; cleared when exchanges or
            queues change.
        transaction: transfers since the last commit; None: the session has no transactions.
        enlisted: the addresses of these transfers.
        answering: answers the client.
    """

    def __init__(self, session: ClientSession) -> None:
        super().__init__()
        self.session = session
        self.held: dict[str, deque[Post]] = {}
        self.shapes: dict[tuple[bytes, bytes], PostShape] = {}
        self.transaction: list[Post] | None = None
        self.enlisted: set[str] = set()
        self.answering = Answering(session)
        self._committing: set[int] = set()
        self._refused_in_commit = 0
        self._commit_number = 0
        self._unanswered: dict[str, list[Post]] = {}
        self._late: set[int] = set()
        self._ends_at = math.inf

    # --- transfers --------------------------------------------------------------------------------

    def recall(self, head: bytes, header: bytes) -> PostShape | None:
        """Returns the cached meaning of a transfer; None: unknown."""
        return self.shapes.get((head, header[: messages.front_end(header, self._user)]))

    @property
    def _user(self) -> bytes:
        """The only user-id that the client may send."""
        return encode_text(self.session.server.named)

    def transfer(
        self, number: int, command: r.MessageTransfer, header: bytes, body: bytes
    ) -> PostShape:
        """Handles a transfer with its header and body segments; returns its shape."""
        session = self.session
        exchange = command.destination or ""
        try:
            key, properties = messages.routing_of(header)
            is_fragment = messages.is_fragment(header)
        except DecodeError as error:
            raise decode_fault(error) from error
        if is_fragment:
            raise SessionFaultError(
                ErrorCode.NOT_IMPLEMENTED, "fragments: a message is one transfer, of any size"
            )
        discards = immediate = False
        ttl = None
        if properties is not None:
            discards, immediate = properties.discard_unroutable, properties.immediate
            ttl = messages.milliseconds_left(properties)
        if immediate:
            raise SessionFaultError(
                ErrorCode.NOT_IMPLEMENTED, "immediate: a router cannot promise a ready subscriber"
            )
        check_modes(command.accept_mode, command.acquire_mode)
        session.check_user(header)
        address = address_of(exchange, key, session.exchanges.get(exchange))
        terms = TERMS[command.accept_mode, discards]
        queue = session.server.own_queue(exchange, key)
        shape = PostShape(address, encode_str8(exchange), terms, ttl, queue)
        self.post(number, shape, header, body)
        return shape

    def learn(self, head: bytes, header: bytes, shape: PostShape) -> None:
        """Caches the meaning of a transfer, if its delivery-properties alone decide it."""
        end = messages.front_end(header, self._user)
        if 0 < end <= _LONGEST_SHAPE:
            if len(self.shapes) >= _SHAPES:
                self.shapes.clear()
            self.shapes[head, header[:end]] = shape

    def post(self, number: int, shape: PostShape, header: bytes, body: bytes) -> None:
        """Handles a transfer whose shape is known."""
        session, terms = self.session, shape.terms
        content = b"".join((shape.exchange, len(header).to_bytes(4, "big"), header, body))
        post = Post(number, shape.address, content, terms, shape.ttl, queue=shape.queue)
        post.start_ttl(session.engine.now)
        if self.transaction is not None:
            self.transaction.append(post)
            session.engine.hold_octets(len(post.content))
            self._answer_ahead(post)
            return
        self.answering.terms[number] = terms
        self.submit(post)

    def _answer_ahead(self, post: Post) -> None:
        """Answers a transfer of a transaction as soon as it is known whether a route accepts it."""
        if post.queue is not None:
            self._answer_accepted(post)
            return
        self.enlisted.add(post.address)
        inlet = self.inlet(post.address)
        if inlet.is_attached:
            self._answer_accepted(post)
            return
        self._unanswered.setdefault(post.address, []).append(post)
        if inlet.refusal is not None:
            self._refuse_unanswered(inlet, inlet.refusal)

    def _answer_accepted(self, post: Post) -> None:
        """Reports that a transfer of a transaction will be accepted with the transaction."""
        if post.terms.is_explicit:
            self.answering.accept(post.number)
        self.session.complete(post.number)
        self.session.touch()

    def _refuse_unanswered(self, inlet: Inlet, condition: Condition) -> None:
        """Removes transfers whose address is refused before the commit from the transaction."""
        posts = self._unanswered.pop(inlet.address, [])
        self._late.update(each.number for each in posts if each.number in self._committing)
        struck = {each.number: each for each in posts if each.number not in self._committing}
        if struck:
            self.transaction = [
                each for each in self.transaction or () if each.number not in struck
            ]
        for number, post in struck.items():
            self.session.engine.hold_octets(-len(post.content))
            self.answering.terms[number] = post.terms
            self._refuse(post, condition)

    def publish(
        self, number: int, command: o.FilePublish | o.StreamPublish, header: bytes, body: bytes
    ) -> None:
        """Handles a file, or a packet, which is part of no transaction (0-10)."""
        if command.immediate:
            raise SessionFaultError(
                ErrorCode.NOT_IMPLEMENTED, "immediate: a router cannot promise a ready consumer"
            )
        exchange, key = command.exchange or "", command.routing_key or ""
        terms = TERMS_OF[type(command)]
        try:
            properties = packets.read_properties(terms.codes[0], header)
            header = packets.to_message(properties, key)
        except DecodeError as error:
            raise decode_fault(error) from error
        address = address_of(exchange, key, self.session.exchanges.get(exchange))
        content = messages.make_content(encode_text(exchange), header, body)
        queue = self.session.server.own_queue(exchange, key)
        post = Post(number, address, content, terms, None, queue=queue)
        post.start_ttl(self.session.engine.now)
        if isinstance(command, o.FilePublish) and self.transaction is not None:
            self.transaction.append(post)
            self.session.engine.hold_octets(len(content))
            self.session.complete(number)
            return
        self.answering.terms[number] = terms
        if command.mandatory:
            self.answering.returnable[number] = post
        self.submit(post)

    def submit(self, post: Post) -> None:
        """Hands a transfer on, or holds it."""
        if post.queue is not None:
            self._keep(post, post.queue)
            return
        inlet = self.inlet(post.address)
        if post.address not in self.held and self._may_go(inlet, post):
            self._check_size(inlet, post)
            self._give(inlet, post)
            return
        self._line(post.address).append(post)
        self.session.engine.hold_octets(len(post.content))
        self._watch(post)
        if inlet.refusal is not None:
            self.pump(post.address)

    def _keep(self, post: Post, queue: Queue) -> None:
        """Passes a transfer to a queue of this connection's own."""
        if not queue.takes_own:
            self._refuse(post, Condition(conditions.NOT_FOUND, f"queue {queue.name!r} is gone"))
            return
        queue.keep(post.content, post.ttl)
        self._decide([post.number], ACCEPTED)

    def _line(self, address: str) -> deque[Post]:
        """Returns the held transfers for an address, creating the list."""
        return self.held.setdefault(address, deque())

    def _check_size(self, inlet: Inlet, post: Post) -> None:
        if 0 < inlet.max_message_octets < len(post.content):
            raise SessionFaultError(
                ErrorCode.RESOURCE_LIMIT_EXCEEDED,
                f"{len(post.content)} octets; {inlet.address!r} accepts {inlet.max_message_octets}",
                *post.terms.codes,
                post.number,
            )

    def _may_go(self, inlet: Inlet, post: Post) -> bool:
        """Returns whether a transfer may be handed on; stops reading if it exceeds the limit."""
        if inlet.credit > 0:
            return True
        return inlet.ahead is not None and self.goes_ahead(inlet, settled=self._is_unasked(post))

    def _give(self, inlet: Inlet, post: Post) -> None:
        inlet.credit = max(0, inlet.credit - 1)
        if self._is_unasked(post):
            delivery = received(post, self.session.engine.now, settled=True)
            self.session.engine.runs.receive(inlet.link, delivery)
            if inlet.is_exact:
                inlet.unrecorded.append(post.number)
                self._await_record(inlet)
            else:
                self._decide([post.number], ACCEPTED)
            return
        inlet.open[post.number] = post
        self.session.engine.runs.receive(inlet.link, received(post, self.session.engine.now))

    def _await_record(self, inlet: Inlet) -> None:
        """Asks the core to report when settled transfers are on record, once at a time."""
        if inlet.unrecorded and not inlet.awaited:
            inlet.awaited = len(inlet.unrecorded)
            self.session.engine.runs.add(RecordAwaited(inlet.link))

    def recorded(self, inlet: Inlet) -> None:
        """Completes settled transfers that are on record."""
        count, inlet.awaited = inlet.awaited, 0
        done, inlet.unrecorded = inlet.unrecorded[:count], inlet.unrecorded[count:]
        self._await_record(inlet)
        if done:
            self._decide(done, ACCEPTED)

    def _is_unasked(self, post: Post) -> bool:
        """Returns whether nobody waits for the outcome of a transfer."""
        is_awaited = post.number in self._committing or post.number in self.answering.returnable
        return post.terms.is_unasked and not is_awaited

    def _hand_over(self) -> None:
        """Passes held transfers of accept-mode none to the core, whatever the credit."""
        now = self.session.engine.now
        for address, line in self.held.items():
            inlet = self.inlets.get(address)
            if inlet is None or inlet.refusal is not None:
                continue
            found = (post for post in line if self._is_unasked(post) and post.ends_at > now)
            run = [received(post, now, settled=True) for post in found]
            if run:
                self.session.engine.runs.receive_all(inlet.link, run)

    def pump(self, address: str) -> None:
        """Hands on held transfers for an address as far as attach and credit allow."""
        while line := self.held.get(address):
            inlet = self.inlet(address)
            if inlet.refusal is None and not self._may_go(inlet, line[0]):
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

    # --- time -------------------------------------------------------------------------------------

    def _pump_in_time(self, address: str) -> None:
        """Hands on held transfers for an address, with the time of the turn if a ttl needs it."""
        if self._ends_at == math.inf:
            self.pump(address)
        else:
            self.session.server.pump_later(self)

    def on_time(self) -> None:
        """Drops expired transfers, and hands on those that may be.

        The core must have answered before anything is dropped; a transfer with ttl 0 is sent only
        to a receiver that is ready.
        """
        now = self.session.engine.now
        if now < self._ends_at:
            self._pump_all()
            return
        for address in list(self.held):
            self._drop_ended(address, now, at_once=False)
            self.pump(address)
            if self._drop_ended(address, now, at_once=True):
                self.pump(address)
        ends = [post.ends_at for line in self.held.values() for post in line]
        self._ends_at = min(ends, default=math.inf)
        self.session.server.wake_at(min((at for at in ends if at > now), default=math.inf))

    def _watch(self, post: Post) -> None:
        """Sets the timer for a held transfer with a ttl, its own or that of its route."""
        inlet = self.inlets.get(post.address)
        if inlet is not None:
            post.follow(inlet)
        if post.ends_at < self._ends_at:
            self._ends_at = post.ends_at
            self.session.server.wake_at(post.ends_at)

    def _drop_ended(self, address: str, now: float, *, at_once: bool) -> bool:
        """Drops expired transfers for an address; returns whether there were any.

        Args:
            address: the address.
            now: the current time.
            at_once: drops those with a ttl of 0, too.
        """
        inlet, line = self.inlets.get(address), self.held.get(address, deque())
        if inlet is None or not inlet.is_attached:
            return False
        ended = [post for post in line if post.ends_at <= now and (post.ttl != 0 or at_once)]
        if not ended:
            return False
        gone = {post.number for post in ended}
        left = deque(post for post in line if post.number not in gone)
        if left:
            self.held[address] = left
        else:
            del self.held[address]
        self.session.engine.hold_octets(-sum(len(post.content) for post in ended))
        self._end(ended)
        return True

    def _end(self, posts: list[Post]) -> None:
        """Answers expired transfers, which are no fault of the session."""
        explicit: list[int] = []
        quiet: list[int] = []
        for post in posts:
            is_explicit = post.terms.is_explicit or post.number in self._committing
            (explicit if is_explicit else quiet).append(post.number)
        if quiet:
            self._decide(quiet, ACCEPTED)
        if explicit:
            self._decide(explicit, EXPIRED)

    def shift(self, seconds: float) -> None:
        """Moves all times by the difference to another worker's clock."""
        for line in (*self.held.values(), *(inlet.open.values() for inlet in self.inlets.values())):
            for post in line:
                post.begins_at += seconds
                post.ends_at += seconds
        self._ends_at += seconds

    # --- inlets -----------------------------------------------------------------------------------

    @property
    def serving(self) -> ServerLinks:
        """The connection that carries the session."""
        return self.session.server

    def make_inlet(self, link: LinkId, address: str) -> Inlet:
        """Creates the link for an address."""
        return Inlet(link, address, publishing=self)

    def name_of(self, inlet: Inlet) -> str:
        """Returns the link name of an inlet, the same on every connection of the session."""
        return f"{self.session.link_prefix}>{inlet.address}"

    def refusal_of(self, address: str) -> Condition | None:
        """Returns why an address is invalid; None: it is valid."""
        return None if address else Condition(conditions.NOT_FOUND, _NOWHERE)

    def attach_of(self, inlet: Inlet, name: LinkName) -> LinkAttached:
        """Builds the attach of an inlet, which outlives its connection as its session does."""
        session = self.session
        return attrs.evolve(
            super().attach_of(inlet, name),
            target=Target(
                address=inlet.address,
                expiry_policy=ExpiryPolicy.LINK_DETACH,
                expiry_seconds=session.expiry_seconds,
            ),
            unsettled={tag_of(number): None for number in inlet.open} if session.is_kept else None,
            home=inlet.home,
        )

    def hand_on_by(self, inlet: Inlet) -> None:
        """Hands on held transfers of an inlet, with the time of the turn if a ttl needs it."""
        self._pump_in_time(inlet.address)

    def attached(self, inlet: Inlet, answer: AttachLink) -> None:
        """Handles the core's acceptance of an inlet; open transfers are resumed.

        Those that the core does not know any more are offered again: nothing else can be done.
        """
        super().attached(inlet, answer)
        inlet.is_exact = answer.is_exact
        self._await_record(inlet)
        known = answer.unsettled or {}
        lost = [each for number, each in inlet.open.items() if tag_of(number) not in known]
        for post in lost:
            del inlet.open[post.number]
        if lost:
            self._put_back(inlet, lost, has_failed=True)
        if inlet.ttl_seconds is not None:
            for post in self.held.get(inlet.address, ()):
                self._watch(post)
        for post in self._unanswered.pop(inlet.address, ()):
            self._answer_accepted(post)
        self._pump_in_time(inlet.address)
        if inlet.open:
            again = [
                ReceivedDelivery(
                    DeliveryNumber(number), tag_of(number), b"", Protocol.AMQP_0_10, resume=True
                )
                for number in inlet.open
            ]
            self.session.engine.runs.receive_all(inlet.link, again)

    def refused(self, inlet: Inlet, condition: Condition) -> None:
        """Handles the end of an inlet; the next transfer to its address attaches again."""
        inlet.refuse(condition)
        lost = list(inlet.open)
        inlet.open.clear()
        taken, inlet.unrecorded, inlet.awaited = inlet.unrecorded, [], 0
        try:
            if taken:  # they are the router's, and nothing more will be heard of them
                self._decide(taken, ACCEPTED)
            self._refuse_unanswered(inlet, condition)
            self.pump(inlet.address)
            if lost:
                self._decide(lost, Modified(delivery_failed=True))
        finally:
            self.forget(inlet)

    # --- outcomes ---------------------------------------------------------------------------------

    def _refuse(self, post: Post, condition: Condition) -> None:
        """Answers a transfer that was not passed to the core."""
        if error_code(condition) is ErrorCode.UNAUTHORIZED_ACCESS:
            raise SessionFaultError(
                ErrorCode.UNAUTHORIZED_ACCESS, str(condition), *post.terms.codes, post.number
            )
        if condition.name == conditions.NOT_FOUND:
            self._check_exchange(post, condition)
        is_told = post.terms.is_explicit  # any other ends the session, with the condition
        outcome = outcome_of(condition) if is_told else Rejected(condition)
        if post.number in self._late:  # the commit that waits for it has not been answered
            self._late.discard(post.number)
            self.answering.terms[post.number] = post.terms
            self._answer([post.number], outcome)
            self._decide_in_commit([post.number], is_taken=True)
            return
        self._decide([post.number], outcome)

    def _check_exchange(self, post: Post, condition: Condition) -> None:
        """Refuses an exchange that does not exist (message.transfer, nonexistent-exchange)."""
        exchange = messages.content_layout(post.content).exchange
        if exchange and not self.session.server.knows_exchange(exchange):
            raise SessionFaultError(
                ErrorCode.NOT_FOUND,
                f"no exchange {exchange!r}: {condition.description}",
                *post.terms.codes,
                post.number,
            )

    def decided(self, inlet: Inlet, numbers: Sequence[int], state: DeliveryState | None) -> None:
        """Handles the outcome of deliveries, and settles them."""
        known = [inlet.open.pop(number) for number in numbers if number in inlet.open]
        known = self._offer_again(inlet, known, state)
        self._decide([post.number for post in known], state)

    def _put_back(self, inlet: Inlet, posts: list[Post], *, has_failed: bool) -> None:
        """Puts transfers back to the start of their list."""
        for post in posts:
            if has_failed:
                post.failures += 1
                post.content = messages.redelivered(post.content)
            self._watch(post)
        self._line(inlet.address).extendleft(reversed(posts))
        self.session.engine.hold_octets(sum(len(post.content) for post in posts))

    def _offer_again(
        self, inlet: Inlet, posts: list[Post], state: DeliveryState | None
    ) -> list[Post]:
        """Puts transfers that are to be tried again back to the start; returns the others."""
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
        self._pump_in_time(inlet.address)
        numbers = {post.number for post in again}
        return [post for post in posts if post.number not in numbers]

    def _decide(self, numbers: Sequence[int], state: DeliveryState | None) -> None:
        if self._committing:
            numbers = self._decide_in_commit(numbers, is_taken=isinstance(state, Accepted))
            if not numbers:
                return
        self._answer(numbers, state)

    def _answer(self, numbers: Sequence[int], state: DeliveryState | None) -> None:
        self.answering.decided(numbers, state)
        self.session.complete_all(numbers)
        self.session.touch()

    def _decide_in_commit(self, numbers: Sequence[int], *, is_taken: bool) -> Sequence[int]:
        """Handles outcomes of a commit's transfers; returns the numbers of other transfers."""
        decided = self._committing.intersection(numbers)
        self._committing -= decided
        self._refused_in_commit += 0 if is_taken else len(decided)
        if decided and not self._committing:
            self._finish_commit()
        return [number for number in numbers if number not in decided]

    # --- transactions -----------------------------------------------------------------------------

    def roll_back(self) -> None:
        """Forgets the transfers of the transaction."""
        for post in self.transaction or ():
            self.session.engine.hold_octets(-len(post.content))
        self.transaction = []
        self.enlisted.clear()
        unanswered, self._unanswered = self._unanswered, {}
        for post in [each for posts in unanswered.values() for each in posts]:
            self._answer_accepted(post)

    def commit(self, number: int) -> None:
        """Hands on the transfers of the transaction; its end is reported to the session."""
        posts, self.transaction = self.transaction or [], []
        routed = [post for post in posts if post.queue is None]
        self._committing = {post.number for post in routed}
        self._refused_in_commit = 0
        self._commit_number = number
        for post in posts:
            post.start_ttl(self.session.engine.now)
            if post.queue is None:
                self._line(post.address).append(post)
                self._watch(post)
            else:
                self.session.engine.hold_octets(-len(post.content))
                self._keep(post, post.queue)
        self.enlisted.clear()
        if routed:
            self._pump_all()
        else:
            self.session.committed(number)

    def _finish_commit(self) -> None:
        refused = self._refused_in_commit
        if refused:
            raise SessionFaultError(
                ErrorCode.PRECONDITION_FAILED,
                f"{refused} transfers of the transaction were refused",
                5,
                2,
                self._commit_number,
            )
        self.session.committed(self._commit_number)

    # --- suspension and end -----------------------------------------------------------------------

    def suspend(self) -> None:
        """Records that the session has no channel: only links with open transfers are kept."""
        engine = self.session.server
        for inlet in list(self.inlets.values()):
            self.forget(inlet)
            if inlet.open or inlet.unrecorded:
                inlet.suspend()
                self.inlets[inlet.address] = inlet
        engine.hold_octets(-self._octets())

    def come_back(self) -> None:
        """Attaches links with open transfers again, and requests those for held transfers."""
        engine = self.session.server
        engine.hold_octets(self._octets())
        for inlet in list(self.inlets.values()):
            inlet.link = engine.next_link()
            inlet.refusal = None
            self.ask(inlet, self.name_of(inlet))
        for address in self._unanswered:
            self.inlet(address)
        self._pump_all()
        engine.wake_at(self._ends_at)

    def _octets(self) -> int:
        waiting = sum(len(post.content) for line in self.held.values() for post in line)
        return waiting + sum(len(post.content) for post in self.transaction or ())

    def ended(self, *, reports: bool) -> None:
        """Ends all links; held transfers that are still the client's are void.

        Args:
            reports: the connection lives on, so the end of links is reported to the core.
        """
        self._hand_over()
        self.end(list(self.inlets.values()), reports=reports)
        self.session.engine.hold_octets(-self._octets())
        self.held.clear()
        self.transaction = None
        self._committing.clear()
        self.enlisted.clear()
        self._unanswered.clear()
        self._late.clear()
        self.answering.forget()
