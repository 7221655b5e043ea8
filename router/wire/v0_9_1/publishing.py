"""A client's publishes: links by address, credit, confirms, returns and transactions.

Theory of operation. A channel's publishes become deliveries on *inlets*, incoming links that are
created on the first publish to an address, one per address and channel. 0-9-1 has no credit, so a
publisher may always exceed it: publishes without credit are held here, in one list per channel,
because a channel promises to keep its publishes in order, over all addresses. Reading stops when
too much is held (``Machine.input_waits``).

Delivery numbers are the channel's confirm numbers, which count every publish.

Answers to the publisher, by the outcome of the delivery::

    accepted                        ack
    rejected, amqp:not-found        ack; before it return 312 if it was mandatory
    modified, undeliverable-here    the same if it went to a headers or fanout exchange
    no route (link refused)         the same; 404 if the exchange is unknown
    unauthorized (link refused)     channel.close 403
    none (link detached)            channel.close, with the reason
    anything else                   nack

A publisher without confirms and without ``mandatory`` gets no outcomes, so its deliveries are
settled: the router owns them as soon as they have arrived. Where the core accepts settled
deliveries ahead of credit they are handed on at once, unless held deliveries that need credit
precede them; elsewhere when there is credit, or when their channel ends. A ``mandatory`` publish
may have to be returned, so it is settled only when a receiver has returned it, and handed on again,
or when the channel ends. Inside a transaction nothing is handed on before ``commit``, which waits
for all outcomes; if one is a nack, the channel is closed (406), as the specification requires
(§1.9).
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
from router.model.events import MessageUnrouted
from router.model.identity import DeliveryNumber, LinkId
from router.model.outcome import ACCEPTED, Accepted, DeliveryState, Modified, Rejected
from router.model.text import decode_text, encode_text
from router.wire.exchange_names import KEYLESS
from router.wire.inlets import outcome_of
from router.wire.publishing import Publisher
from router.wire.v0_9_1 import content as contents
from router.wire.v0_9_1 import methods as m
from router.wire.v0_9_1.client_channel import ClientChannel
from router.wire.v0_9_1.confirms import Confirms
from router.wire.v0_9_1.content import FLAGS
from router.wire.v0_9_1.framing import METHOD
from router.wire.v0_9_1.names import DIRECT_REPLIES
from router.wire.v0_9_1.posts import DROPPED, Commit, Held, Inlet, Post, received
from router.wire.v0_9_1.queues import Queue
from router.wire.v0_9_1.reply import PeerError, Reply, channel_reply, reply_text
from router.wire.v0_9_1.server_links import ServerLinks

_USER_ID: Final = FLAGS["user_id"]

_NOWHERE: Final = {
    "": "no exchange and no routing key",
    DIRECT_REPLIES: "answers go where reply-to says, which is never this",
}
"""Invalid addresses."""

_AGAIN: Final = 1 << 63
"""Offset of the numbers of deliveries that are handed on a second time."""

_UNBOUND: Final = Rejected(Condition(conditions.NOT_FOUND, "no binding takes it"))


class Publishing(Publisher[Inlet, Post, Commit]):
    """The publishes of one channel.

    Attributes:
        channel: the channel.
        held: deliveries that wait for the attach or for credit, oldest first.
        returnable: mandatory publishes without an outcome.
        unconfirmed: number of publishes before confirms were enabled; None: they are not.
        published: number of publishes, except in the transaction.
        given: how many of them the core has got.
    """

    refused_commit: ClassVar[Reply] = Reply.PRECONDITION_FAILED
    """Closes the channel of a transaction of which a publish was refused."""

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
        """Handles a publish with its content header and body."""
        inlet, content = self.understand(method, header, body)
        self.submit(inlet, content, method.mandatory)

    def understand(self, method: m.BasicPublish, header: bytes, body: bytes) -> tuple[Inlet, bytes]:
        """Returns the inlet of a publish, and its content."""
        if method.immediate:
            # A router cannot promise a ready consumer; RabbitMQ refuses it with the same text.
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
        """Refuses invalid properties: the message would be confirmed, and lost at its reader."""
        try:
            self._engine.outgoing.check_properties(header)
        except DecodeError as error:
            raise PeerError(Reply.SYNTAX_ERROR, error.rule) from error

    def _check_user(self, header: bytes) -> None:
        """Refuses a user-id other than the publisher's own (as RabbitMQ does)."""
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
            raise PeerError(Reply.CONTENT_TOO_LARGE, _too_large(inlet, octets))

    def submit(self, inlet: Inlet, content: bytes, is_mandatory: bool) -> None:
        """Counts a publish and hands it on, or holds it."""
        if self.transaction is not None:
            self.enlist(self.transaction, Post(inlet, content, is_mandatory))
            return
        self.submit_now(inlet, content, is_mandatory)

    def submit_now(self, inlet: Inlet, content: bytes, is_mandatory: bool) -> None:
        """Counts a publish outside of a transaction, and hands it on or holds it."""
        self.published += 1
        settled = self.unconfirmed is None and not is_mandatory
        delivery = received(self.published, content, settled, self._engine.protocol)
        self.hand_on(inlet, [delivery], is_mandatory)

    def hand_on(self, inlet: Inlet, deliveries: list[ReceivedDelivery], is_mandatory: bool) -> None:
        """Hands deliveries on as far as their link's credit allows; the others are held."""
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
            if rest[0].ttl_milliseconds is not None or inlet.ttl_seconds is not None:
                for delivery in rest:
                    self._watch(inlet, delivery)
            self._engine.hold_octets(sum([len(delivery.payload) for delivery in rest]))
            if inlet.refusal is not None:
                self.pump()

    def _is_kept(self, inlet: Inlet) -> bool:
        """Returns whether a queue of this connection keeps publishes to an address."""
        queue = self._engine.keepers.get(inlet.address)
        return queue is not None and inlet.is_attached and queue.keeps

    def _keep(self, inlet: Inlet, deliveries: list[ReceivedDelivery]) -> None:
        """Passes deliveries to the queue of this connection that keeps them."""
        if inlet.ttl_seconds is not None:
            most = round(1000 * inlet.ttl_seconds)
            for delivery in deliveries:
                own = delivery.ttl_milliseconds
                delivery.ttl_milliseconds = most if own is None else min(own, most)
        taken, refused = self._engine.keepers[inlet.address].keep(deliveries)
        self._decide(taken, ACCEPTED)
        self._decide(refused, DROPPED)

    def _give(self, inlet: Inlet, deliveries: list[ReceivedDelivery], is_mandatory: bool) -> None:
        """Passes deliveries of one kind to the core."""
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
        """Hands on held deliveries as far as attaches and credit allow."""
        held = self.held
        while held:
            inlet, delivery, is_mandatory = held[0]
            if inlet.refusal is not None:
                self._take_first()
                self._refuse(delivery, is_mandatory, inlet.address, inlet.refusal)
            elif self._is_too_large(inlet, delivery):
                self._take_first()
                self._ends.pop(delivery.number, None)
                octets = contents.content_layout(delivery.payload).body_octets
                raise PeerError(Reply.CONTENT_TOO_LARGE, _too_large(inlet, octets), 60, 40)
            elif self._engine.keepers and self._is_kept(inlet):
                self._take_first()
                self._age(delivery)
                self._keep(inlet, [delivery])
            elif inlet.credit > 0 or self.goes_ahead(inlet, settled=delivery.settled):
                self._give_run(inlet, is_mandatory, delivery.settled)
            else:
                break
        self.channel.pumped()

    @staticmethod
    def _is_too_large(inlet: Inlet, delivery: ReceivedDelivery) -> bool:
        """Returns whether a held delivery is larger than its link takes, as is known by now."""
        most = inlet.max_message_octets
        if not 0 < most < len(delivery.payload):
            return False
        return contents.content_layout(delivery.payload).body_octets > most

    def _take_first(self) -> None:
        """Takes the first held delivery out of those that wait."""
        inlet, delivery, _ = self.held.popleft()
        inlet.waiting -= 1
        self._engine.hold_octets(-len(delivery.payload))

    # --- time -------------------------------------------------------------------------------------

    def _watch(self, inlet: Inlet, delivery: ReceivedDelivery) -> None:
        """Sets the timer for a held delivery with a ttl, its own or that of its route."""
        ends_at = inlet.ends_at(self._engine.now, delivery.ttl_milliseconds)
        if ends_at < self._ends.get(delivery.number, math.inf):
            self._ends[delivery.number] = ends_at
            self._engine.wake_at(ends_at)

    def _age(self, delivery: ReceivedDelivery) -> None:
        """Reduces a delivery's ttl by the time it was held."""
        ends_at = self._ends.pop(delivery.number, None)
        if ends_at is not None:
            left = max(0, int(1000 * (ends_at - self._engine.now)))
            delivery.ttl_milliseconds = left
            delivery.payload = self._engine.outgoing.with_ttl(delivery.payload, left)

    def on_time(self) -> None:
        """Drops expired deliveries, and hands on those that may be.

        The core must have answered before anything is dropped; a delivery with ttl 0 is sent only
        to a receiver that is ready.
        """
        now = self._engine.now
        ended = {number for number, ends_at in self._ends.items() if ends_at <= now}

        def is_over(inlet: Inlet, delivery: ReceivedDelivery) -> bool:
            return inlet.is_attached and delivery.number in ended

        if ended:
            self._drop(
                lambda inlet, one: one.ttl_milliseconds != 0 and is_over(inlet, one), DROPPED
            )
        self.pump()
        if ended:
            self._drop(is_over, DROPPED)
            self.pump()
        self._engine.wake_at(min((at for at in self._ends.values() if at > now), default=math.inf))

    def count_held(self, addresses: set[str]) -> int:
        """Counts held deliveries for some addresses."""
        found = (self.inlets.get(address) for address in addresses)
        return sum(inlet.waiting for inlet in found if inlet is not None)

    def count_for(self, queue: Queue) -> int:
        """Counts held deliveries that will be in a queue of this connection."""
        whole = {address for address in queue.outlets if queue.takes_all(address)}
        count, others = self.count_held(whole), queue.outlets.keys() - whole
        if self.count_held(others):
            count += sum(
                inlet.address in others and queue.would_take(inlet.address, delivery.payload)
                for inlet, delivery, _ in self.held
            )
        return count

    def drop_held(self, address: str) -> int:
        """Drops held deliveries for an address as if consumed; returns their number."""
        count = self._drop(lambda inlet, _: inlet.address == address, ACCEPTED)
        if count:
            self.pump()
        return count

    def _drop(
        self, is_gone: Callable[[Inlet, ReceivedDelivery], bool], state: DeliveryState
    ) -> int:
        """Removes held deliveries, and assigns them an outcome; returns their number."""
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
        """Passes the first deliveries, as far as they are of one kind, to the core."""
        held, octets = self.held, 0
        run: list[ReceivedDelivery] = []
        room = len(held) if settled and inlet.goes_ahead else inlet.credit
        while held and len(run) < room:
            its_inlet, delivery, its_mandate = held[0]
            if (
                its_inlet is not inlet
                or its_mandate is not is_mandatory
                or delivery.settled is not settled
                or self._is_too_large(inlet, delivery)
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
        """Creates the link for an address."""
        return Inlet(link, address, publishing=self)

    def name_of(self, inlet: Inlet) -> str:
        """Returns the link name of an inlet."""
        return f"{self.channel.number}:{inlet.link}"

    def refusal_of(self, address: str) -> Condition | None:
        """Returns why an address is invalid; None: it is valid."""
        nowhere = _NOWHERE.get(address)
        return None if nowhere is None else Condition(conditions.NOT_FOUND, nowhere)

    def forget_shapes(self) -> None:
        """Records that publishes may need another inlet than before."""
        self._engine.forget_shapes()

    def attached(self, inlet: Inlet, answer: AttachLink) -> None:
        """Handles the core's acceptance of an inlet."""
        super().attached(inlet, answer)
        inlet.is_exact = answer.is_exact
        if inlet.ttl_seconds is not None and inlet.waiting:
            for its_inlet, delivery, _ in self.held:
                if its_inlet is inlet:
                    self._watch(inlet, delivery)
        if self._ends:
            self._engine.pump_later(self)
        elif inlet.address in self._engine.keepers:
            self.pump()

    def lost(self, inlet: Inlet, condition: Condition) -> None:
        """Handles the end of an attached inlet.

        What was handed on by it gets no outcome any more; which publishes these are is not known.

        Raises:
            PeerError: the publisher waits for them.
        """
        count = inlet.unsettled
        super().lost(inlet, condition)
        if count and (self.unconfirmed is not None or self.commits):
            text = f"{condition}; the outcome of {count} messages for {inlet.address!r} is unknown"
            raise PeerError(channel_reply(condition), text, 60, 40)

    def hand_on_by(self, inlet: Inlet) -> None:
        """Hands on held deliveries, with the time of the turn if a ttl needs it."""
        if self._ends and inlet.refusal is None:
            self._engine.pump_later(self)
        else:
            self.pump()

    # --- outcomes ---------------------------------------------------------------------------------

    def _refuse(
        self, delivery: ReceivedDelivery, is_mandatory: bool, address: str, condition: Condition
    ) -> None:
        """Answers a publish that was not passed to the core."""
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
        elif condition.name == conditions.NOT_FOUND:
            self._engine.runs.add(MessageUnrouted(address, condition))
        self._decide([delivery.number], outcome_of(condition))

    def decided(self, inlet: Inlet, numbers: Sequence[int], state: DeliveryState | None) -> None:
        """Handles the outcome of deliveries, and settles them."""
        inlet.unsettled -= len(numbers)
        if isinstance(state, Modified) and self._engine.exchanges.get(inlet.address) in KEYLESS:
            numbers = self._decide_unbound(numbers, state)
        self._decide(numbers, state)

    def _decide_unbound(self, numbers: Sequence[int], state: Modified) -> Sequence[int]:
        """Decides that no binding of an exchange matches; returns the numbers that others decide.

        A queue that is bound to a headers exchange receives every message of it, and returns those
        that it is not bound to (``Queue.take``). The core uses the same outcome for expired
        messages, so it is not applied to messages that may have expired.
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
        """Hands on again, settled, deliveries that receivers returned and nobody waits for."""
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
            self._watch(inlet, delivery)
        self._engine.pump_later(self)

    def send_back(self, numbers: Sequence[int], state: DeliveryState | None) -> Sequence[int]:
        """Sends back refused publishes that may be returned; returns the other numbers."""
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
        """Returns a mandatory publish (0-9-1 §1.8.3.9); returns whether it was mandatory."""
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
        """Encodes the frames of a returned publish."""
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
        """Enables confirms; the next publish is number 1 to the publisher."""
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
        """Records that a publish was posted, or removed."""
        post.inlet.posted += 1 if is_posted else -1

    def commit(self, commit: Commit) -> None:
        """Hands on the publishes of the transaction; its end is reported to the channel."""
        posts = self.take_posts()
        first, protocol = self.published + 1, self._engine.protocol
        self.published += len(posts)
        commit.undecided.update(range(first, self.published + 1))
        self.commits.append(commit)
        for number, post in enumerate(posts, first):
            delivery = received(number, post.content, False, protocol)
            self.held.append((post.inlet, delivery, post.is_mandatory))
            post.inlet.waiting += 1
            self._watch(post.inlet, delivery)
        if posts:
            self.pump()
        self.finish_commits()

    def finish(self, commit: Commit) -> None:
        """Answers a commit."""
        self._engine.output.append(b"".join(commit.returns))
        if commit.refused:
            raise PeerError(
                self.refused_commit,
                f"{commit.refused} publishes of the transaction were refused",
            )
        self.channel.committed()

    # --- end --------------------------------------------------------------------------------------

    def hand_over(self, *, is_last: bool) -> None:
        """Passes held deliveries of a publisher without confirms to the core, whatever the credit.

        Args:
            is_last: the channel is over; else it is about to end, and deliveries for which the core
                holds its window, or that may be returned, can wait.
        """
        held, self.held = self.held, deque()
        for inlet, delivery, is_mandatory in held:
            if self._is_too_large(inlet, delivery):
                self.held.append((inlet, delivery, is_mandatory))
            elif inlet.refusal is None and self._is_unasked(inlet, delivery, is_last=is_last):
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
        """Settles deliveries under way that were mandatory alone: nobody waits for their outcome.

        On exactly-once routes the core takes over no delivery that is under way; there it runs to
        its end.
        """
        unasked, self._unasked = self._unasked, {}
        for number, inlet in unasked.items():
            if not inlet.is_exact:
                self._engine.runs.update(inlet.link, [DeliveryNumber(number)], None, True)

    def _is_unasked(self, inlet: Inlet, delivery: ReceivedDelivery, *, is_last: bool) -> bool:
        """Returns whether nobody waits, or will wait, for the outcome of a delivery."""
        if not is_last:
            return delivery.settled and inlet.reserve is None
        return delivery.settled or not self._is_asked_for(delivery.number)

    def _is_asked_for(self, number: int) -> bool:
        """Returns whether a confirm or a commit waits for the outcome of a delivery."""
        if self.unconfirmed is not None and number > self.unconfirmed:
            return True
        return self.commit_of(number) is not None

    def _note_own(self, inlet: Inlet, deliveries: Sequence[ReceivedDelivery]) -> None:
        """Records publishes without confirms of a local queue's own client."""
        if self._engine.has_local and self._engine.has_local_at(inlet.address):
            self._engine.note_own(deliveries)

    def cut_off(self) -> None:
        """Records that the connection is over: nothing is sent any more."""
        self.hand_over(is_last=True)
        self.held.clear()
        self._ends.clear()
        self.inlets.clear()

    def flush(self) -> None:
        """Writes the confirms that are due."""
        if self._confirms.is_due:
            self._engine.output.append(self._confirms.frames(self.channel.number))

    def ended(self) -> None:
        """Ends all links; held unconfirmed publishes are void, since no confirm was sent."""
        self.hand_over(is_last=True)
        self.end(list(self.inlets.values()), reports=True)
        self._engine.hold_octets(-sum(len(delivery.payload) for _, delivery, _ in self.held))
        self.held.clear()
        self._ends.clear()
        self.end_transactions()
        self.returnable.clear()
        for identity in self._own.values():
            self._engine.own.pop(identity, None)
        self._own.clear()


def _may_come_again(state: DeliveryState | None) -> bool:
    """Returns whether a receiver returned a delivery so that others may receive it."""
    if isinstance(state, Modified):
        return not state.undeliverable_here
    return not isinstance(state, Rejected)


def _too_large(inlet: Inlet, octets: int) -> str:
    return f"a body of {octets} octets, {inlet.address!r} accepts {inlet.max_message_octets}"
