"""A client's messages: links by address, credit, confirmations and transactions (RFC 006 §3.5.3).

Theory of operation. A channel's messages become deliveries on *inlets*, incoming links that are
created on the first message to an address, one per address and channel. The protocol has no credit,
so a
sender may always exceed it: messages without credit are held here, in one list per channel, since a
channel is strictly serial (§2.2.5). Reading stops when too much is held (``Machine.input_waits``).

Replies to the sender (§3.5.15), if it gave a confirm-tag; without one it gets no outcome, so the
delivery is settled, the router's on arrival, and handed on without credit where the core accepts it
ahead of credit, or when its handle or channel ends before there is some::

    accepted                        HANDLE REPLY 200
    rejected                        HANDLE REPLY with the code of its error, 542 if it has none
    released, modified              HANDLE REPLY 507: it may be sent again
    no route (link refused)         HANDLE CLOSE 404, whether or not a confirmation was requested
    no right (link refused)         HANDLE CLOSE 403, likewise

A ttl counts while a message is held. Expired messages are dropped, as soon as the core has answered
for their address, and answered like modified ones; others are handed on with the remaining ttl.

Inside a transaction nothing is handed on before CHANNEL COMMIT, which waits for all outcomes, and
settles acknowledged messages only then; if one message is refused the channel is closed (§3.3.8).
"""

import math
from collections import deque
from collections.abc import Sequence
from functools import partial

import attrs

from router.model import condition as conditions
from router.model.capabilities import Protocol
from router.model.commands import AttachLink
from router.model.condition import Condition
from router.model.delivery import ReceivedDelivery
from router.model.identity import DeliveryNumber, DeliveryTag, LinkId
from router.model.outcome import MODIFIED_UNDELIVERABLE, Accepted, DeliveryState
from router.wire import publishing
from router.wire.fast.handle import Handle, HandleChannel
from router.wire.fast.inlet import Inlet, SendShape
from router.wire.fast.outgoing import with_ttl
from router.wire.fast.reply import Level, PeerError, Reply, reply_of, reply_to_outcome
from router.wire.fast.server_links import ServerLinks
from router.wire.publishing import Publisher


@attrs.frozen(eq=False)
class Post:
    """A client's message.

    Attributes:
        content: see ``router.wire.fast.message``.
        ttl_milliseconds: from its head; None if absent.
        confirm_tag: 0: no confirmation.
    """

    handle: Handle
    inlet: Inlet
    content: bytes
    ttl_milliseconds: int | None
    confirm_tag: int


@attrs.define(eq=False)
class Commit(publishing.Commit):
    """A pending transaction.

    Attributes:
        confirm_tag: of CHANNEL COMMIT.
        reply: code and text of the first outcome that was not a success.
    """

    confirm_tag: int = attrs.field(kw_only=True)
    reply: tuple[Reply, str] = (Reply.OK, "")


class Publishing(Publisher[Inlet, Post, Commit]):
    """The messages of one channel.

    Attributes:
        channel: the channel.
        held: deliveries that wait for the attach or for credit, oldest first.
    """

    def __init__(self, engine: ServerLinks, channel: HandleChannel, *, transacted: bool):
        super().__init__()
        self._engine = engine
        self.channel = channel
        self.held: deque[tuple[Post, ReceivedDelivery]] = deque()
        self._ends: dict[int, float] = {}
        if transacted:
            self.transaction = []
        self._sent = 0
        self._awaited: dict[int, tuple[Handle, int]] = {}

    # --- sending ----------------------------------------------------------------------------------

    def submit(self, post: Post) -> None:
        """Hands a message on, or holds it."""
        self._check_size(post)
        if self.transaction is not None:
            self.enlist(self.transaction, post)
            return
        delivery = self._number(post, settled=not post.confirm_tag)
        if post.confirm_tag:
            self._awaited[delivery.number] = (post.handle, post.confirm_tag)
        inlet = post.inlet
        if not self.held and (inlet.credit > 0 or self.goes_ahead(inlet, settled=delivery.settled)):
            self._give(inlet, delivery)
            return
        self.held.append((post, delivery))
        self._watch(inlet, delivery)
        inlet.waiting += 1
        self._engine.hold_octets(len(post.content))
        if inlet.refusal is not None:
            self.pump()

    def submit_run(
        self, handle: Handle, shape: SendShape, tags: list[int], payloads: list[bytes]
    ) -> None:
        """Hands on messages of one shape (``lane``); tags are their confirm-tags."""
        inlet, ttl = shape.inlet, shape.ttl_milliseconds
        most = inlet.max_message_octets
        has_credit = inlet.credit >= len(tags) or (inlet.goes_ahead and not any(tags))
        if self.held or not has_credit or (most and max(map(len, payloads)) > most):
            for tag, payload in zip(tags, payloads, strict=True):
                post = Post(handle, inlet, payload, ttl, tag)
                if handle.is_open:
                    self._engine.guard(partial(self.submit, post), self.channel, handle)
            return
        awaited, number = self._awaited, self._sent
        deliveries = []
        for tag, payload in zip(tags, payloads, strict=True):
            number += 1
            if tag:
                awaited[number] = (handle, tag)
                inlet.unsettled += 1
            deliveries.append(
                ReceivedDelivery(
                    DeliveryNumber(number),
                    DeliveryTag(number.to_bytes(8, "big")),
                    payload,
                    Protocol.AMQP_FAST,
                    0,
                    not tag,
                    ttl_milliseconds=ttl,
                )
            )
        self._sent = number
        if inlet.credit < len(deliveries):
            self.goes_ahead(inlet, settled=deliveries[0].settled)
        inlet.credit = max(0, inlet.credit - len(deliveries))
        self._engine.runs.receive_all(inlet.link, deliveries)

    def _check_size(self, post: Post) -> None:
        refusal = _size_refusal(post)
        if refusal is not None:
            raise PeerError(Reply.MESSAGE_TOO_LARGE, refusal.description or "")

    def next_number(self) -> int:
        """Returns the number of the next delivery."""
        self._sent += 1
        return self._sent

    def _number(self, post: Post, *, settled: bool) -> ReceivedDelivery:
        number = self.next_number()
        return ReceivedDelivery(
            DeliveryNumber(number),
            DeliveryTag(number.to_bytes(8, "big")),
            post.content,
            Protocol.AMQP_FAST,
            0,
            settled,
            ttl_milliseconds=post.ttl_milliseconds,
        )

    def _give(self, inlet: Inlet, delivery: ReceivedDelivery) -> None:
        self._age(delivery)
        inlet.credit = max(0, inlet.credit - 1)
        if not delivery.settled:
            inlet.unsettled += 1
        self._engine.runs.receive(inlet.link, delivery)

    def pump(self) -> None:
        """Hands on held messages as far as attaches and credit allow."""
        while self.held:
            post, delivery = self.held[0]
            inlet = post.inlet
            refusal = inlet.refusal or _size_refusal(post)
            may_go = inlet.credit > 0 or self.goes_ahead(inlet, settled=delivery.settled)
            if refusal is None and not may_go:
                return
            self.held.popleft()
            inlet.waiting -= 1
            self._engine.hold_octets(-len(post.content))
            if refusal is not None:
                self._refuse(post, delivery.number, refusal)
            else:
                self._give(inlet, delivery)
        self.channel.pumped()

    # --- time -------------------------------------------------------------------------------------

    def _watch(self, inlet: Inlet, delivery: ReceivedDelivery) -> None:
        """Sets the timer for a held message with a ttl, its own or that of its route."""
        ends_at = inlet.ends_at(self._engine.now, delivery.ttl_milliseconds)
        if ends_at < self._ends.get(delivery.number, math.inf):
            self._ends[delivery.number] = ends_at
            self._engine.wake_at(ends_at)

    def _age(self, delivery: ReceivedDelivery) -> None:
        """Reduces a message's ttl by the time it was held."""
        ends_at = self._ends.pop(delivery.number, None)
        if ends_at is not None:
            left = max(0, round(1000 * (ends_at - self._engine.now)))
            if left != delivery.ttl_milliseconds:
                delivery.ttl_milliseconds = left
                delivery.payload = with_ttl(delivery.payload, left)

    def on_time(self) -> None:
        """Drops expired messages, and hands on those that may be.

        The core must have answered before anything is dropped; a message with ttl 0 is sent only to
        a receiver that is ready.
        """
        now = self._engine.now
        if any(ends_at <= now for ends_at in self._ends.values()):
            self._drop_ended(now, at_once=False)
            self.pump()
            self._drop_ended(now, at_once=True)
        self.pump()
        self._engine.wake_at(min((at for at in self._ends.values() if at > now), default=math.inf))

    def _drop_ended(self, now: float, *, at_once: bool) -> None:
        """Drops expired held messages; their senders get modified.

        Args:
            now: the current time.
            at_once: drops those with a ttl of 0, too.
        """
        kept: deque[tuple[Post, ReceivedDelivery]] = deque()
        ended: list[DeliveryNumber] = []
        for post, delivery in self.held:
            is_over = self._ends.get(delivery.number, math.inf) <= now
            if is_over and post.inlet.is_attached and (delivery.ttl_milliseconds != 0 or at_once):
                post.inlet.waiting -= 1
                self._engine.hold_octets(-len(post.content))
                del self._ends[delivery.number]
                if not delivery.settled:
                    ended.append(delivery.number)
            else:
                kept.append((post, delivery))
        self.held = kept
        self._report_outcome(ended, MODIFIED_UNDELIVERABLE)

    def is_next(self, address: str) -> bool:
        """Returns whether the first held message is for an address."""
        return bool(self.held) and self.held[0][0].inlet.address == address

    def _refuse(self, post: Post, number: int, condition: Condition) -> None:
        """Answers a message that was not passed to the core."""
        self._awaited.pop(number, None)
        self._ends.pop(number, None)
        code = reply_of(condition)
        commit = self.commit_of(number)
        if commit is not None:
            self._strike(commit, number, (code, str(condition)))
        elif post.handle.is_open:
            self._engine.fault(PeerError(code, str(condition)), self.channel, post.handle)

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
        return f"{self.channel.id}:{inlet.link}"

    def forget_shapes(self) -> None:
        """Records that messages may need another inlet than before."""
        for handle in self.channel.handles.values():
            handle.forget_routes()

    def attached(self, inlet: Inlet, answer: AttachLink) -> None:
        """Handles the core's acceptance of an inlet."""
        super().attached(inlet, answer)
        if inlet.ttl_seconds is not None and inlet.waiting:
            for post, delivery in self.held:
                if post.inlet is inlet:
                    self._watch(inlet, delivery)
        if self._ends:
            self._engine.pump_later(self.channel, self.on_time)

    def hand_on_by(self, inlet: Inlet) -> None:
        """Hands on held messages, with the time of the turn if a ttl needs it."""
        if self._ends and inlet.refusal is None:
            self._engine.pump_later(self.channel, self.on_time)
            return
        self.pump()

    def lost(self, inlet: Inlet, condition: Condition) -> None:
        """Handles the end of an attached inlet, and reports it to its handles.

        Commits that wait for what was handed on by it cannot be decided any more.
        """
        is_awaited = bool(inlet.unsettled and self.commits)
        super().lost(inlet, condition)
        error = PeerError(reply_of(condition), str(condition))
        if is_awaited:
            error = PeerError(reply_of(condition), str(condition), Level.CHANNEL)
            self._engine.fault(error, self.channel, None)
            return
        for handle in list(inlet.handles):
            if handle.is_open:
                handle.close(error)

    # --- outcomes ---------------------------------------------------------------------------------

    def decided(self, inlet: Inlet, numbers: Sequence[int], state: DeliveryState | None) -> None:
        """Handles the outcome of deliveries, and settles them."""
        inlet.unsettled -= len(numbers)
        self._report_outcome(numbers, state)

    def _report_outcome(self, numbers: Sequence[int], state: DeliveryState | None) -> None:
        """Replies to senders that wait for the outcome of messages."""
        reply = reply_to_outcome(state)
        for number in numbers:
            awaited = self._awaited.pop(number, None)
            if awaited is not None:
                handle, confirm_tag = awaited
                if handle.is_open:
                    handle.reply(confirm_tag, *reply)
            elif self.commits:
                commit = self.commit_of(number)
                if commit is not None:
                    is_taken = isinstance(state, Accepted)
                    self._strike(commit, number, None if is_taken else reply)

    # --- transactions -----------------------------------------------------------------------------

    def posted(self, post: Post, is_posted: bool) -> None:
        """Records that a message was posted, or removed."""
        post.inlet.posted += 1 if is_posted else -1

    def commit(self, confirm_tag: int) -> None:
        """Hands on the messages of the transaction; its end is reported to the channel."""
        numbered = [(post, self._number(post, settled=False)) for post in self.take_posts()]
        undecided: set[int] = {delivery.number for _, delivery in numbered}
        self.commits.append(Commit(undecided, confirm_tag=confirm_tag))
        self.held.extend(numbered)
        for post, delivery in numbered:
            self._watch(post.inlet, delivery)
            post.inlet.waiting += 1
        self.pump()
        self.finish_commits()

    def _strike(self, commit: Commit, number: int, refusal: tuple[Reply, str] | None) -> None:
        """Counts the outcome of a message for its commit."""
        if refusal is not None and commit.reply[0] == Reply.OK:
            commit.reply = refusal
        self.count([number], [] if refusal is None else [number])

    def finish(self, commit: Commit) -> None:
        """Answers a commit."""
        if commit.refused:
            code, words = commit.reply
            text = f"{commit.refused} messages of the transaction were refused: {words}"
            error = PeerError(code, text, Level.CHANNEL)
            self._engine.fault(error, self.channel, None)
            return
        self.channel.committed(commit.confirm_tag)

    # --- end --------------------------------------------------------------------------------------

    @property
    def is_busy(self) -> bool:
        """Whether a message is still to be handed on, or a commit to be decided."""
        return bool(self.held or self.commits)

    def drop(self, handle: Handle) -> None:
        """Drops a handle's held messages with a confirm-tag."""
        self.hand_over(handle)
        kept: deque[tuple[Post, ReceivedDelivery]] = deque()
        for post, delivery in self.held:
            if post.handle is handle and self.commit_of(delivery.number) is None:
                post.inlet.waiting -= 1
                self._engine.hold_octets(-len(post.content))
                self._awaited.pop(delivery.number, None)
                self._ends.pop(delivery.number, None)
            else:
                kept.append((post, delivery))
        self.held = kept

    def hand_over(self, handle: Handle | None = None) -> None:
        """Passes held messages without a confirm-tag to the core: their sender may leave now.

        Args:
            handle: whose messages; None: all of the channel.
        """
        kept: deque[tuple[Post, ReceivedDelivery]] = deque()
        for post, delivery in self.held:
            is_meant = handle is None or post.handle is handle
            is_fit = post.inlet.refusal is None and _size_refusal(post) is None
            if is_meant and delivery.settled and is_fit:
                post.inlet.waiting -= 1
                self._engine.hold_octets(-len(post.content))
                self._age(delivery)
                self._engine.runs.receive(post.inlet.link, delivery)
            else:
                kept.append((post, delivery))
        self.held = kept

    def ended(self, *, is_orderly: bool) -> None:
        """Ends all links; held messages with a confirm-tag are void: they were not confirmed.

        Args:
            is_orderly: each link's end is reported to the core; else the connection's end implies
                it.
        """
        self.hand_over()
        self.end(list(self.inlets.values()), reports=is_orderly)
        self._engine.hold_octets(-sum(len(post.content) for post, _ in self.held))
        self.held.clear()
        self._ends.clear()
        self.end_transactions()
        self._awaited.clear()


def _size_refusal(post: Post) -> Condition | None:
    """Returns why a message is larger than its link takes; None: it is not, as far as is known."""
    most = post.inlet.max_message_octets
    if not 0 < most < len(post.content):
        return None
    text = f"{len(post.content)} octets, {post.inlet.address!r} accepts {most}"
    return Condition(conditions.MESSAGE_SIZE_EXCEEDED, text)
