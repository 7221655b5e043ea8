"""What a client publishes: links by address, credit, confirms, returns and transactions.

Theory of operation. A channel's publishes become deliveries on *inlets*, incoming links that are
made when an address is first published to, one for each address of a channel. 0-9-1 has no credit,
so a publisher is always ahead: what no inlet has credit for is held here, in one line for the whole
channel, since a channel promises that what is published on it stays in order, over all addresses.
Reading stops when too much is held (``Machine.input_waits``).

The numbers of deliveries are those of the channel's confirms, which count every publish.

What a publisher learns, by the outcome of its delivery::

    accepted                        ack
    rejected, amqp:not-found        ack; before it return 312 if it was mandatory
    modified, undeliverable-here    the same if it went to a headers or fanout exchange
    no route (link refused so)      the same; 404 if nobody here knows its exchange
    unauthorized (link refused so)  channel.close 403
    anything else                   nack

A publisher without confirms and without ``mandatory`` cannot be told anything, so its deliveries
are settled: they are the router's as soon as they have come. Where the core takes them ahead of
credit they are handed on at once, unless something that needs credit waits before them in the line;
elsewhere when there is credit, or when their channel ends. A ``mandatory`` one may have to be
returned, so it is
settled only when a receiver has given it back, and handed on anew, or when the channel ends. Inside
a transaction nothing is handed on before ``commit``, which waits for all outcomes; if one is a
nack, the channel is closed (406), as the specification has it (§1.9).
"""

import math
from collections import deque
from collections.abc import Callable, Sequence
from typing import ClassVar, Final

from router.errors import DecodeError
from router.model import condition as conditions
from router.model.commands import AttachLink
from router.model.condition import Condition
from router.model.delivery import ReceivedDelivery
from router.model.identity import DeliveryNumber, LinkId
from router.model.outcome import ACCEPTED, Accepted, DeliveryState, Modified, Rejected
from router.model.text import decode_text, encode_text
from router.wire.publishing import Publisher
from router.wire.v0_9_1 import content as contents
from router.wire.v0_9_1 import methods as m
from router.wire.v0_9_1.client_channel import ClientChannel
from router.wire.v0_9_1.confirms import Confirms
from router.wire.v0_9_1.content import FLAGS
from router.wire.v0_9_1.framing import METHOD
from router.wire.v0_9_1.names import DIRECT_REPLIES, KEYLESS
from router.wire.v0_9_1.posts import DROPPED, Commit, Held, Inlet, Post, received
from router.wire.v0_9_1.queues import Queue
from router.wire.v0_9_1.reply import PeerError, Reply, channel_reply, reply_text
from router.wire.v0_9_1.server_links import ServerLinks

_USER_ID: Final = FLAGS["user_id"]

_NOWHERE: Final = {
    "": "no exchange and no routing key",
    DIRECT_REPLIES: "answers go where reply-to says, which is never this",
}
"""Addresses that are none."""

_AGAIN: Final = 1 << 63
"""Sets the numbers of what is handed on a second time apart."""

_UNBOUND: Final = Rejected(Condition(conditions.NOT_FOUND, "no binding takes it"))


class Publishing(Publisher[Inlet, Post, Commit]):
    """The publishes of one channel.

    Attributes:
        channel: whose they are.
        held: deliveries that wait for an answer or for credit, oldest first.
        returnable: mandatory publishes without an outcome, to be sent back if it is bad.
        unconfirmed: publishes that came before the channel confirmed; None: it does not.
        published: how many came, the transaction apart.
        given: how many of them the core was given.
    """

    refused_commit: ClassVar[Reply] = Reply.PRECONDITION_FAILED
    """Ends the channel of a transaction of which something was not taken."""

    def __init__(self, engine: ServerLinks, channel: ClientChannel) -> None:
        super().__init__()
        self._engine = engine
        self.channel = channel
        self.held: deque[Held] = deque()
        self.unconfirmed: int | None = None
        self.published = 0
        self.given = 0
        self._confirms = Confirms()
        self.returnable: dict[int, bytes] = {}
        self._own: dict[int, int] = {}
        self._unasked: dict[int, Inlet] = {}
        self._ends: dict[int, float] = {}

    # --- publishing -------------------------------------------------------------------------------

    def publish(self, method: m.BasicPublish, header: bytes, body: bytes) -> None:
        """Takes a publish with its content header and body."""
        inlet, content = self.understand(method, header, body)
        self.submit(inlet, content, method.mandatory)

    def understand(self, method: m.BasicPublish, header: bytes, body: bytes) -> tuple[Inlet, bytes]:
        """Finds where a publish goes, and makes its content."""
        if method.immediate:
            # A router cannot promise a ready consumer; RabbitMQ refuses it in the same words.
            raise PeerError(Reply.NOT_IMPLEMENTED, "immediate=true")
        if method.exchange in self._engine.exchanges.internal:
            raise PeerError(Reply.ACCESS_REFUSED, f"exchange {method.exchange!r} is internal")
        self._check_properties(header)
        self._check_user(header)
        header = self.channel.replies.addressed(header)
        address = self._engine.address_of(method.exchange, method.routing_key)
        prefix = contents.content_prefix(
            encode_text(method.exchange), encode_text(method.routing_key)
        )
        inlet = self.inlet(address)
        self._check_size(inlet, len(body))
        return inlet, prefix + header + body

    def _check_properties(self, header: bytes) -> None:
        """Refuses what nobody could read: it would be confirmed here, and lost where it is read."""
        try:
            self._engine.outgoing.check_properties(header)
        except DecodeError as error:
            raise PeerError(Reply.SYNTAX_ERROR, error.rule) from error

    def _check_user(self, header: bytes) -> None:
        """Refuses a user-id that is not the publisher's own (RabbitMQ does, too)."""
        user = self._engine.user
        if user is None or not (header[13] & _USER_ID):
            return
        found = contents.header_properties(header)
        if found.user_id != user:
            raise PeerError(
                Reply.PRECONDITION_FAILED,
                f"user-id {found.user_id!r} is not that of the connection, {user!r}",
            )

    def _check_size(self, inlet: Inlet, octets: int) -> None:
        if 0 < inlet.max_message_octets < octets:
            raise PeerError(
                Reply.CONTENT_TOO_LARGE,
                f"a body of {octets} octets, {inlet.address!r} takes {inlet.max_message_octets}",
            )

    def submit(self, inlet: Inlet, content: bytes, is_mandatory: bool) -> None:
        """Counts a publish and hands it on, or lets it wait."""
        if self.transaction is not None:
            self.enlist(self.transaction, Post(inlet, content, is_mandatory))
            return
        self.submit_now(inlet, content, is_mandatory)

    def submit_now(self, inlet: Inlet, content: bytes, is_mandatory: bool) -> None:
        """Counts a publish, which is part of no transaction, and hands it on or lets it wait."""
        self.published += 1
        settled = self.unconfirmed is None and not is_mandatory
        delivery = received(self.published, content, settled, self._engine.protocol)
        self.hand_on(inlet, [delivery], is_mandatory)

    def hand_on(self, inlet: Inlet, deliveries: list[ReceivedDelivery], is_mandatory: bool) -> None:
        """Hands deliveries on as far as their link's credit goes; the rest waits in the line."""
        if self._engine.keepers and not inlet.waiting and self._is_kept(inlet):
            self._keep(inlet, deliveries)
            return
        count = 0 if self.held else len(deliveries)
        if count > inlet.credit and not self.goes_ahead(inlet, settled=deliveries[0].settled):
            count = max(inlet.credit, 0)
        if count:
            now = deliveries if count == len(deliveries) else deliveries[:count]
            self._give(inlet, now, is_mandatory)
        if count < len(deliveries):
            rest = deliveries[count:]
            self.held.extend([(inlet, delivery, is_mandatory) for delivery in rest])
            inlet.waiting += len(rest)
            if rest[0].ttl_milliseconds is not None:  # such ones come one by one
                self._watch(rest[0])
            self._engine.hold_octets(sum([len(delivery.payload) for delivery in rest]))
            if inlet.refusal is not None:
                self.pump()

    def _is_kept(self, inlet: Inlet) -> bool:
        """Tells whether a queue of this connection keeps what is published to an address."""
        queue = self._engine.keepers.get(inlet.address)
        return queue is not None and inlet.is_attached and queue.keeps

    def _keep(self, inlet: Inlet, deliveries: list[ReceivedDelivery]) -> None:
        """Leaves deliveries to the queue of this connection that keeps them."""
        taken, refused = self._engine.keepers[inlet.address].keep(deliveries)
        self._decide(taken, ACCEPTED)
        self._decide(refused, DROPPED)

    def _give(self, inlet: Inlet, deliveries: list[ReceivedDelivery], is_mandatory: bool) -> None:
        """Gives deliveries of one kind to the core."""
        inlet.credit = max(0, inlet.credit - len(deliveries))
        self.given += len(deliveries)
        if not deliveries[0].settled:
            inlet.unsettled += len(deliveries)
            if self._engine.has_local:
                for delivery in deliveries:
                    self._own[delivery.number] = id(delivery.payload)
                    self._engine.own[id(delivery.payload)] = delivery.payload
            if is_mandatory:
                for delivery in deliveries:
                    self.returnable[delivery.number] = delivery.payload
                    if not self._is_asked_for(delivery.number):
                        self._unasked[delivery.number] = inlet
        else:
            self._note_own(inlet, deliveries)
        self._engine.runs.receive_all(inlet.link, deliveries)

    def pump(self) -> None:
        """Hands on what waits, as far as answers and credit go."""
        held = self.held
        while held:
            inlet, delivery, is_mandatory = held[0]
            if inlet.refusal is not None:
                held.popleft()
                inlet.waiting -= 1
                self._engine.hold_octets(-len(delivery.payload))
                self._refuse(delivery, is_mandatory, inlet.refusal)
            elif self._engine.keepers and self._is_kept(inlet):
                held.popleft()
                inlet.waiting -= 1
                self._engine.hold_octets(-len(delivery.payload))
                self._age(delivery)
                self._keep(inlet, [delivery])
            elif inlet.credit > 0 or self.goes_ahead(inlet, settled=delivery.settled):
                self._give_run(inlet, is_mandatory, delivery.settled)
            else:
                break
        self.channel.pumped()

    # --- time -------------------------------------------------------------------------------------

    def _watch(self, delivery: ReceivedDelivery) -> None:
        """Sees to it that a delivery with a time to live does not wait longer than that."""
        if delivery.ttl_milliseconds is not None:
            ends_at = self._engine.now + delivery.ttl_milliseconds / 1000
            self._ends[delivery.number] = ends_at
            self._engine.wake_at(ends_at)

    def _age(self, delivery: ReceivedDelivery) -> None:
        """Takes off a delivery's time to live what it has waited."""
        ends_at = self._ends.pop(delivery.number, None)
        if ends_at is not None:
            left = max(0, int(1000 * (ends_at - self._engine.now)))
            delivery.ttl_milliseconds = left
            delivery.payload = self._engine.outgoing.with_ttl(delivery.payload, left)

    def on_time(self) -> None:
        """Drops what has waited too long, and hands on what may go.

        The core has to have answered before anything is dropped, and what may not wait at all goes
        to whoever is ready for it.
        """
        now = self._engine.now
        ended = {number for number, ends_at in self._ends.items() if ends_at <= now}

        def is_over(inlet: Inlet, delivery: ReceivedDelivery) -> bool:
            return inlet.is_attached and delivery.number in ended

        if ended:
            self._drop(
                lambda inlet, one: bool(one.ttl_milliseconds) and is_over(inlet, one), DROPPED
            )
        self.pump()
        if ended:
            self._drop(is_over, DROPPED)
            self.pump()
        self._engine.wake_at(min((at for at in self._ends.values() if at > now), default=math.inf))

    def count_held(self, addresses: set[str]) -> int:
        """Counts what waits here for some addresses."""
        found = (self.inlets.get(address) for address in addresses)
        return sum(inlet.waiting for inlet in found if inlet is not None)

    def count_for(self, queue: Queue) -> int:
        """Counts what waits here and will be in a queue of this connection."""
        whole = {address for address in queue.outlets if queue.takes_all(address)}
        count, others = self.count_held(whole), queue.outlets.keys() - whole
        if self.count_held(others):
            count += sum(
                inlet.address in others and queue.would_take(inlet.address, delivery.payload)
                for inlet, delivery, _ in self.held
            )
        return count

    def drop_held(self, address: str) -> int:
        """Drops what waits here for an address, as if it had been consumed; counts it."""
        count = self._drop(lambda inlet, _: inlet.address == address, ACCEPTED)
        if count:
            self.pump()
        return count

    def _drop(
        self, is_gone: Callable[[Inlet, ReceivedDelivery], bool], state: DeliveryState
    ) -> int:
        """Takes deliveries out of the line, and gives them an outcome; counts them."""
        held, dropped = self.held, []
        self.held = deque()
        for one in held:
            inlet, delivery, is_mandatory = one
            if not is_gone(inlet, delivery):
                self.held.append(one)
                continue
            inlet.waiting -= 1
            if is_mandatory:
                self.returnable[delivery.number] = delivery.payload
            self._engine.hold_octets(-len(delivery.payload))
            self._ends.pop(delivery.number, None)
            dropped.append(delivery)
        self._decide([each.number for each in dropped if not each.settled], state)
        return len(dropped)

    def _give_run(self, inlet: Inlet, is_mandatory: bool, settled: bool) -> None:
        """Gives the core the deliveries at the front that are of one kind."""
        held, octets = self.held, 0
        run: list[ReceivedDelivery] = []
        room = len(held) if settled and inlet.goes_ahead else inlet.credit
        while held and len(run) < room:
            its_inlet, delivery, its_mandate = held[0]
            if (
                its_inlet is not inlet
                or its_mandate is not is_mandatory
                or delivery.settled is not settled
            ):
                break
            held.popleft()
            run.append(delivery)
            octets += len(delivery.payload)
        inlet.waiting -= len(run)
        self._engine.hold_octets(-octets)
        if self._ends:
            for delivery in run:
                self._age(delivery)
        self._give(inlet, run, is_mandatory)

    # --- inlets -----------------------------------------------------------------------------------

    @property
    def serving(self) -> ServerLinks:
        """The connection."""
        return self._engine

    def make_inlet(self, link: LinkId, address: str) -> Inlet:
        """Makes the link for an address."""
        return Inlet(link, address, publishing=self)

    def name_of(self, inlet: Inlet) -> str:
        """Names the link of an inlet."""
        return f"{self.channel.number}:{inlet.link}"

    def refusal_of(self, address: str) -> Condition | None:
        """Tells why an address is none."""
        nowhere = _NOWHERE.get(address)
        return None if nowhere is None else Condition(conditions.NOT_FOUND, nowhere)

    def forget_shapes(self) -> None:
        """Records that what is published may go by another inlet than it did."""
        self._engine.forget_shapes()

    def attached(self, inlet: Inlet, answer: AttachLink) -> None:
        """Handles the core's acceptance of an inlet."""
        super().attached(inlet, answer)
        inlet.is_exact = answer.is_exact
        if self._ends:
            self._engine.pump_later(self)
        elif inlet.address in self._engine.keepers:
            self.pump()

    def hand_on_by(self, inlet: Inlet) -> None:
        """Hands on what waits, when it is known what time it is if that matters."""
        if self._ends and inlet.refusal is None:
            self._engine.pump_later(self)
        else:
            self.pump()

    # --- outcomes ---------------------------------------------------------------------------------

    def _refuse(self, delivery: ReceivedDelivery, is_mandatory: bool, condition: Condition) -> None:
        """Answers a publish that the core was never given."""
        if condition.name == conditions.NOT_FOUND:
            exchange = decode_text(contents.content_route(delivery.payload)[0])
            if exchange and exchange not in self._engine.exchanges:
                raise PeerError(
                    Reply.NOT_FOUND, f"no exchange {exchange!r}: {condition.description}", 60, 40
                )
        elif channel_reply(condition) is Reply.ACCESS_REFUSED:
            raise PeerError(Reply.ACCESS_REFUSED, str(condition), 60, 40)
        if is_mandatory:
            self.returnable[delivery.number] = delivery.payload
        self._decide([delivery.number], Rejected(condition))

    def decided(self, inlet: Inlet, numbers: Sequence[int], state: DeliveryState | None) -> None:
        """Takes the outcome of deliveries, which it settles."""
        inlet.unsettled -= len(numbers)
        if isinstance(state, Modified) and self._engine.exchanges.get(inlet.address) in KEYLESS:
            numbers = self._decide_unbound(numbers, state)
        self._decide(numbers, state)

    def _decide_unbound(self, numbers: Sequence[int], state: Modified) -> Sequence[int]:
        """Tells that no binding of an exchange takes a message; gives those that others decide.

        A queue that is bound to a headers exchange gets all that is published to it, and leaves
        what it is not bound to (``Queue.take``). The core says the same of what has waited too
        long, so nothing is said of what might have.
        """
        if state.delivery_failed or not state.undeliverable_here:
            return numbers
        aged = [n for n in numbers if contents.ttl_in(self.returnable.get(n, b"")) is not None]
        known = set(aged)
        unbound = [number for number in numbers if number not in known]
        self._decide(unbound, _UNBOUND)
        return aged

    def _decide(self, numbers: Sequence[int], state: DeliveryState | None) -> None:
        if not numbers:
            return
        refused = [] if isinstance(state, Accepted) else self.send_back(numbers, state)
        unasked = self._unasked
        again = [number for number in refused if number in unasked] if unasked else ()
        if again and _may_come_again(state):
            self._give_again(again, state)
        for number in numbers:
            self.returnable.pop(number, None)
            unasked.pop(number, None)
        if self._own:
            for number in numbers:
                self._engine.own.pop(self._own.pop(number, 0), None)
        self._confirm(numbers, not refused)
        if self.commits:
            self.count(numbers, refused)

    def _give_again(self, numbers: Sequence[int], state: DeliveryState | None) -> None:
        """Hands on anew what receivers gave back and nobody can be told of: it is settled now."""
        failed = isinstance(state, Modified) and state.delivery_failed
        for number in reversed(numbers):
            content = self.returnable[number]
            content = bytes((content[0] | failed,)) + content[1:]
            inlet = self.inlet(self._unasked[number].address)
            delivery = received(number | _AGAIN, content, True, self._engine.protocol)
            delivery.delivery_count = int(failed)
            self.held.appendleft((inlet, delivery, True))
            inlet.waiting += 1
            self._engine.hold_octets(len(content))
            self._watch(delivery)
        self._engine.pump_later(self)

    def send_back(self, numbers: Sequence[int], state: DeliveryState | None) -> Sequence[int]:
        """Returns what was not taken and may be returned; gives those that this does not tell."""
        if isinstance(state, Rejected) and state.error is not None:
            if state.error.name == conditions.NOT_FOUND:
                for number in numbers:
                    self.send_return(number, Reply.NO_ROUTE, "no route takes it")
                return ()
        return numbers

    def _confirm(self, numbers: Sequence[int], is_taken: bool) -> None:
        before = self.unconfirmed
        if before is None:
            return
        if before:
            numbers = [number - before for number in numbers if number > before]
            if not numbers:
                return
        self._confirms.decide(numbers, is_taken)
        self._engine.confirms_due[self.channel.number] = self

    def send_return(self, number: int, code: Reply, text: str) -> bool:
        """Sends a mandatory publish back (0-9-1 §1.8.3.9); tells whether it was one."""
        content = self.returnable.get(number)
        if content is None:
            return False
        exchange, key = contents.content_route(content)
        method = m.BasicReturn(
            reply_code=code,
            reply_text=reply_text(code, text),
            exchange=decode_text(exchange),
            routing_key=decode_text(key),
        )
        octets = self.return_frames(method, content)
        commit = self.commit_of(number)
        if commit is not None:
            commit.returns.append(octets)
        else:
            self._engine.output.append(octets)
        return True

    def return_frames(self, method: m.BasicReturn, content: bytes) -> bytes:
        """Makes the frames of a publish that is sent back."""
        layout = contents.content_layout(content)
        engine, channel = self._engine, self.channel.number
        return b"".join(
            (
                engine.framing.frame(METHOD, channel, engine.codec.encode(method)),
                engine.content_frames(
                    channel,
                    content[layout.route_end : layout.body_start],
                    content[layout.body_start :],
                ),
            )
        )

    # --- modes ------------------------------------------------------------------------------------

    def start_confirming(self) -> None:
        """Confirms from the next publish on, which is number 1 to the publisher."""
        if self.transaction is not None:
            raise PeerError(Reply.PRECONDITION_FAILED, "the channel is transactional")
        if self.unconfirmed is None:
            self.unconfirmed = self.published
            self._engine.forget_shapes()

    def start_transactions(self) -> None:
        """Gathers publishes until the next commit."""
        if self.unconfirmed is not None:
            raise PeerError(Reply.PRECONDITION_FAILED, "the channel confirms its publishes")
        if self.transaction is None:
            self.transaction = []
            self._engine.forget_shapes()

    def posted(self, post: Post, is_posted: bool) -> None:
        """Records that a publish has been posted, or is no more."""
        post.inlet.posted += 1 if is_posted else -1

    def commit(self) -> None:
        """Hands on the publishes of the transaction; its end is told to the channel."""
        posts = self.take_posts()
        first, protocol = self.published + 1, self._engine.protocol
        self.published += len(posts)
        self.commits.append(Commit(set(range(first, self.published + 1))))
        for number, post in enumerate(posts, first):
            delivery = received(number, post.content, False, protocol)
            self.held.append((post.inlet, delivery, post.is_mandatory))
            post.inlet.waiting += 1
            self._watch(delivery)
        if posts:
            self.pump()
        self.finish_commits()

    def finish(self, commit: Commit) -> None:
        """Answers a commit."""
        self._engine.output.append(b"".join(commit.returns))
        if commit.refused:
            raise PeerError(
                self.refused_commit,
                f"{commit.refused} publishes of the transaction were not taken",
            )
        self.channel.committed()

    # --- end --------------------------------------------------------------------------------------

    def hand_over(self, *, is_last: bool) -> None:
        """Gives the core what waits of a publisher that asked for no confirms, whatever the credit.

        Args:
            is_last: the channel is over; else it is about to be, and what the core holds its window
                for, or may come back, can wait.
        """
        held, self.held = self.held, deque()
        for inlet, delivery, is_mandatory in held:
            if inlet.refusal is None and self._is_unasked(inlet, delivery, is_last=is_last):
                delivery.settled = True
                inlet.waiting -= 1
                self.given += 1
                self._engine.hold_octets(-len(delivery.payload))
                self._note_own(inlet, [delivery])
                self._engine.runs.receive(inlet.link, delivery)
            else:
                self.held.append((inlet, delivery, is_mandatory))
        if is_last:
            self._settle_unasked()

    def _settle_unasked(self) -> None:
        """Leaves to the router what is under way and was mandatory alone: nobody is left to ask.

        On exactly-once routes the core takes nothing over that is under way; there it goes on to
        its end.
        """
        unasked, self._unasked = self._unasked, {}
        for number, inlet in unasked.items():
            if not inlet.is_exact:
                self._engine.runs.update(inlet.link, [DeliveryNumber(number)], None, True)

    def _is_unasked(self, inlet: Inlet, delivery: ReceivedDelivery, *, is_last: bool) -> bool:
        """Tells whether nobody waits, or will have waited, for the outcome of a delivery."""
        if not is_last:
            return delivery.settled and inlet.reserve is None
        return delivery.settled or not self._is_asked_for(delivery.number)

    def _is_asked_for(self, number: int) -> bool:
        """Tells whether a confirm or a commit waits for the outcome of a delivery."""
        if self.unconfirmed is not None and number > self.unconfirmed:
            return True
        return self.commit_of(number) is not None

    def _note_own(self, inlet: Inlet, deliveries: Sequence[ReceivedDelivery]) -> None:
        """Lets a local queue know what its own client has published without confirms."""
        if self._engine.has_local and self._engine.has_local_at(inlet.address):
            self._engine.note_own(deliveries)

    def cut_off(self) -> None:
        """Records that the connection is over: nobody is told anything."""
        self.hand_over(is_last=True)
        self.held.clear()
        self._ends.clear()
        self.inlets.clear()

    def flush(self) -> None:
        """Writes the confirms that are due."""
        if self._confirms.is_due:
            self._engine.output.append(self._confirms.frames(self.channel.number))

    def ended(self) -> None:
        """Ends all links; what was to be confirmed and is held is void: no confirm was sent."""
        self.hand_over(is_last=True)
        self.end(list(self.inlets.values()), tells=True)
        self._engine.hold_octets(-sum(len(delivery.payload) for _, delivery, _ in self.held))
        self.held.clear()
        self._ends.clear()
        self.end_transactions()
        self.returnable.clear()
        for identity in self._own.values():
            self._engine.own.pop(identity, None)
        self._own.clear()


def _may_come_again(state: DeliveryState | None) -> bool:
    """Tells whether a receiver gave a delivery back so that others may have it."""
    if isinstance(state, Modified):
        return not state.undeliverable_here
    return not isinstance(state, Rejected)
