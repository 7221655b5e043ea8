"""A session of a client that dialed us: every command, and what a router makes of it.

Theory of operation. Commands that only concern this session are carried out at once. Those that
depend on the routing table become a question to the core (``declaring``); the session waits for
the answer, and what the client sent behind keeps its place.

What the client was sent and has not settled is ``unaccepted``, by command-id. Messages of a
subscription with acquire-mode not-acquired are reserved for it all the same, because a router has
no queue to show them from; ``message.acquire`` always succeeds, and what was never acquired goes
back when the subscription ends.

A client's outcomes::

    accept                     accepted
    reject                     rejected, with code and text
    release                    released
    release, set-redelivered   modified, delivery-failed
    accept-mode none           accepted when sent
    end of session, or cancel for what was not acquired     released

A *kept* session (``session.request-timeout``) is suspended with its links: the core keeps what is
unsettled for as long, and when the client comes back each link is attached with the tags of all
that the client still has, or will have been sent again.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar, Final, cast

import attrs

from router.errors import DecodeError
from router.model.condition import NOT_FOUND, Condition
from router.model.delivery import OutgoingDelivery
from router.model.events import LinkDetached
from router.model.identity import DeliveryNumber, DeliveryTag
from router.model.outcome import (
    ACCEPTED,
    MODIFIED_FAILED,
    RELEASED,
    DeliveryState,
)
from router.wire.v0_10 import files, streams
from router.wire.v0_10 import message as messages
from router.wire.v0_10 import optional as o
from router.wire.v0_10 import records as r
from router.wire.v0_10.codec import encode_struct
from router.wire.v0_10.declaring import Declaring
from router.wire.v0_10.files import FileConsumer, Files
from router.wire.v0_10.names import PREDECLARED, ExchangeType
from router.wire.v0_10.publishing import Publishing
from router.wire.v0_10.queues import (
    MODE_CREDIT,
    MODE_WINDOW,
    UNIT_BYTE,
    UNIT_MESSAGE,
    Binding,
    Outlet,
    Queue,
    Subscription,
    gone,
)
from router.wire.v0_10.ranges import Ranges, ranges_of
from router.wire.v0_10.reply import ErrorCode, SessionFaultError, rejection
from router.wire.v0_10.session import Session
from router.wire.v0_10.streams import StreamConsumer, check_consume
from router.wire.v0_10.types import decode_text
from router.wire.v0_10.watching import Watching

if TYPE_CHECKING:
    from router.wire.v0_10.server import ServerEngine


MESSAGE_CLASS: Final = 4


@attrs.define(eq=False)
class Unaccepted:
    """A transfer that the client has and has not settled.

    Attributes:
        number: the core's; None if the core has settled it, or does not know it yet again.
        tag: what it is known by when links are resumed.
        is_acquired: the client may accept it.
    """

    outlet: Outlet
    number: DeliveryNumber | None
    tag: DeliveryTag
    subscription: Subscription
    is_acquired: bool


@attrs.frozen
class _Transferred:
    """What is known of a transfer that the client has not completed."""

    subscription: Subscription
    octets: int


class ServerSession(Session):
    """One session of a client.

    Attributes:
        server: the engine of its connection.
        publishing: what the client transfers.
        declaring: its questions to the routing table.
        watching: the patterns that its queues stand for.
        exchanges: name → type, as far as this session knows.
        queues: local ones, by name.
        subscriptions: by label; that of one of class message is its destination.
        unaccepted: by command-id, rising; files by their delivery-tag with a minus (``files``).
        files: what of class file goes over the session.
        is_transactional: tx.select has come.
    """

    handlers: ClassVar[dict[type, str]] = {
        r.ExecutionSync: "take_sync",
        r.ExecutionResult: "_ignore",
        r.ExecutionException: "_take_exception",
        r.MessageTransfer: "_transfer",
        r.MessageAccept: "_accept",
        r.MessageReject: "_reject",
        r.MessageRelease: "_release",
        r.MessageAcquire: "_acquire",
        r.MessageResume: "_resume",
        r.MessageSubscribe: "_subscribe",
        r.MessageCancel: "_cancel",
        r.MessageSetFlowMode: "_set_flow_mode",
        r.MessageFlow: "_flow",
        r.MessageFlush: "_flush",
        r.MessageStop: "_stop",
        r.TxSelect: "_select",
        r.TxCommit: "_commit",
        r.TxRollback: "_roll_back",
        r.ExchangeDeclare: "_declare_exchange",
        r.ExchangeDelete: "_delete_exchange",
        r.ExchangeQuery: "_query_exchange",
        r.ExchangeBind: "_bind",
        r.ExchangeUnbind: "_unbind",
        r.ExchangeBound: "_bound",
        r.QueueDeclare: "_declare_queue",
        r.QueueDelete: "_delete_queue",
        r.QueuePurge: "_purge_queue",
        r.QueueQuery: "_query_queue",
        o.FileQos: "_file_qos",
        o.FileConsume: "_consume",
        o.FileCancel: "_cancel_consumer",
        o.FileOpen: "_open_file",
        o.FileOpenOk: "_go_on_with_file",
        o.FileStage: "_stage_file",
        o.FilePublish: "_publish_file",
        o.FileAck: "_acknowledge_files",
        o.FileReject: "_reject_file",
        o.StreamQos: "_stream_qos",
        o.StreamConsume: "_consume",
        o.StreamCancel: "_cancel_consumer",
        o.StreamPublish: "_publish_packet",
    }

    def __init__(self, engine: "ServerEngine", channel: int, name: bytes) -> None:
        super().__init__(engine, channel, name)
        self.publishing = Publishing(self)
        self.declaring = Declaring(self)
        self.watching = Watching(self)
        self.exchanges: dict[str, ExchangeType] = dict(PREDECLARED)
        self.queues: dict[str, Queue] = {}
        self.subscriptions: dict[str, Subscription] = {}
        self.unaccepted: dict[int, Unaccepted] = {}
        self.is_transactional = False
        self._accepted_in_transaction: dict[int, Unaccepted] = {}
        self._codes: tuple[int, int] = (0, 0)
        self._has_links = False
        self.files = Files(self)
        self._packets = 0
        self._deciding: list[Outlet] = []
        self._taking: bytes | None = None

    @property
    def server(self) -> "ServerEngine":
        """The engine of the connection that carries the session."""
        return cast("ServerEngine", self.engine)

    @property
    def expiry_seconds(self) -> int:
        """How long its links outlive it, in the form of AMQP 1.0 (§3.5.3, timeout)."""
        self._has_links = True
        return self.engine.settings.expiry_seconds if self.timeout is None else self.timeout

    def codes(self, number: int) -> tuple[int, int]:
        """Gives class and code of the command that the session waits on."""
        return self._codes

    def _ignore(self, number: int, command: Any) -> None:
        """Takes an answer that nothing depends on."""
        self.complete(number)

    def _take_exception(self, number: int, command: r.ExecutionException) -> None:
        """Takes the client's word that it will not go on; its detach follows."""
        self.complete(number)

    # --- transfers --------------------------------------------------------------------------------

    def _transfer(
        self, number: int, command: r.MessageTransfer, header: bytes, body: bytes
    ) -> None:
        shape = self.publishing.transfer(number, command, header, body)
        if self._taking is not None:
            self.publishing.learn(self._taking, header, shape)

    def _take(self, number: int, head: bytes, header: bytes | None, body: bytes) -> None:
        shape = None if header is None else self.publishing.recall(head, header)
        if shape is None or header is None:
            self._taking = head if header is not None else None
            super()._take(number, head, header, body)
            return
        self.taken = number + 1
        self.incomplete[number] = None
        self.publishing.post(number, shape, header, body)

    def check_user(self, header: bytes) -> None:
        """Refuses a user-id that is not the client's own (message-properties.user-id)."""
        user = self.server.user
        if user is None or messages.MESSAGE_PROPERTIES not in header:
            return
        try:
            _, told, _ = messages.read_header(header)
        except DecodeError as error:
            raise SessionFaultError(ErrorCode.ILLEGAL_ARGUMENT, error.rule) from error
        if told.user_id is not None and decode_text(told.user_id) != user:
            raise SessionFaultError(
                ErrorCode.UNAUTHORIZED_ACCESS,
                f"user-id {decode_text(told.user_id)!r} is not that of the connection, {user!r}",
            )

    def _resume(self, number: int, command: r.MessageResume) -> None:
        """Tells that nothing of an interrupted message is kept: whole sessions are resumed here."""
        self.result(number, r.MessageResumeResult(0))

    # --- transactions -----------------------------------------------------------------------------

    def _select(self, number: int, command: r.TxSelect) -> None:
        if self.is_transactional:
            raise SessionFaultError(ErrorCode.ILLEGAL_STATE, "the session is transactional already")
        if any(each.settles and each.kind == MESSAGE_CLASS for each in self.subscriptions.values()):
            raise SessionFaultError(
                ErrorCode.NOT_ALLOWED, "a transaction beside a subscription of accept-mode none"
            )
        self.is_transactional = True
        self.publishing.transaction = []
        self.complete(number)

    def _check_transactional(self) -> None:
        if not self.is_transactional:
            raise SessionFaultError(ErrorCode.ILLEGAL_STATE, "tx.select has not come")

    def _commit(self, number: int, command: r.TxCommit) -> None:
        self._check_transactional()
        accepted, self._accepted_in_transaction = self._accepted_in_transaction, {}
        self._settle(accepted.values(), ACCEPTED)
        self.park()
        self.is_committing = True
        self.publishing.commit(number)

    def committed(self, number: int) -> None:
        """Takes note that the transaction's transfers are all decided."""
        self.is_committing = False
        self.complete(number)
        self.resume()

    def _roll_back(self, number: int, command: r.TxRollback) -> None:
        self._check_transactional()
        self.publishing.roll_back()
        back, self._accepted_in_transaction = self._accepted_in_transaction, {}
        self.unaccepted = dict(sorted({**self.unaccepted, **back}.items()))
        self.complete(number)

    # --- exchanges and queues ---------------------------------------------------------------------

    def _declare_exchange(self, number: int, command: r.ExchangeDeclare) -> None:
        self._codes = (7, 1)
        self.declaring.declare_exchange(number, command)

    def _delete_exchange(self, number: int, command: r.ExchangeDelete) -> None:
        self.declaring.delete_exchange(number, command)

    def _query_exchange(self, number: int, command: r.ExchangeQuery) -> None:
        self.declaring.query_exchange(number, command)

    def _bind(self, number: int, command: r.ExchangeBind) -> None:
        self._codes = (7, 4)
        self.declaring.bind(number, command)

    def _unbind(self, number: int, command: r.ExchangeUnbind) -> None:
        self.declaring.unbind(number, command)

    def _bound(self, number: int, command: r.ExchangeBound) -> None:
        self.declaring.bound(number, command)

    def _declare_queue(self, number: int, command: r.QueueDeclare) -> None:
        self._codes = (8, 1)
        self.declaring.declare_queue(number, command)

    def _delete_queue(self, number: int, command: r.QueueDelete) -> None:
        queue = self.declaring.own_queue(command.queue or "", "deleted")
        if command.if_unused and queue.subscriptions:
            raise SessionFaultError(
                ErrorCode.PRECONDITION_FAILED, f"{queue.name!r} has subscriptions"
            )
        if command.if_empty and queue.backlog:
            raise SessionFaultError(ErrorCode.PRECONDITION_FAILED, f"{queue.name!r} is not empty")
        for subscription in list(queue.subscriptions):
            self._remove(subscription)
        queue.delete()
        self.complete(number)

    def _purge_queue(self, number: int, command: r.QueuePurge) -> None:
        self.declaring.own_queue(command.queue or "", "purged").purge()
        self.complete(number)

    def _query_queue(self, number: int, command: r.QueueQuery) -> None:
        self.declaring.query_queue(number, command)

    def all_bindings(self) -> list[Binding]:
        """Every binding of the session's queues."""
        return [binding for queue in self.queues.values() for binding in queue.bindings]

    def subscribers(self, name: str) -> int:
        """How many of the session's subscriptions are to a queue."""
        return sum(each.queue.name == name for each in self.subscriptions.values())

    def result(self, number: int, found: r.Struct) -> None:
        """Tells what a command gave, and completes it."""
        self.send(r.ExecutionResult(number & 0xFFFF_FFFF, encode_struct(found)))
        self.complete(number)

    # --- subscriptions ----------------------------------------------------------------------------

    def _subscribe(self, number: int, command: r.MessageSubscribe) -> None:
        name, destination = command.queue or "", command.destination or ""
        if destination in self.subscriptions:
            raise SessionFaultError(ErrorCode.NOT_ALLOWED, f"destination {destination!r} is in use")
        if self.is_transactional and command.accept_mode:
            raise SessionFaultError(
                ErrorCode.NOT_ALLOWED, "a subscription of accept-mode none beside a transaction"
            )
        asked = [each for each, value in (command.arguments or {}).items() if value]
        if asked:
            raise SessionFaultError(ErrorCode.NOT_IMPLEMENTED, f"argument {min(asked)!r}")
        queue = self._queue_for(name, exclusive=command.exclusive)
        self._begin(number, Subscription(self, queue, command))

    def _queue_for(self, name: str, *, exclusive: bool) -> Queue:
        """Finds the queue that a subscription is to."""
        local = self.queues.get(name)
        if exclusive and (local is None or local.subscriptions):
            raise SessionFaultError(
                ErrorCode.RESOURCE_LOCKED, f"{name!r} cannot be promised to one subscription alone"
            )
        return local or Queue(self, name, is_local=False)

    def _begin(
        self, number: int, subscription: Subscription, answer: o.OptionalCommand | None = None
    ) -> None:
        """Begins a subscription, as soon as its queue is there."""
        queue = subscription.queue
        self._codes = subscription.codes

        def start() -> None:
            self.subscriptions[subscription.label] = subscription
            queue.subscriptions.append(subscription)
            if answer is not None:
                self.send(answer)
            queue.dispatch()
            self.review(queue)
            self.complete(number)

        def refused(condition: Condition) -> None:
            is_there = condition.name != NOT_FOUND
            raise SessionFaultError(
                ErrorCode.NOT_ALLOWED if is_there else ErrorCode.NOT_FOUND,
                gone(queue, condition),
                *self._codes,
                number,
            )

        if queue.is_local:
            start()
        else:
            self.declaring.open_outlet(queue, queue.name, subscription.label, start, refused)

    def _subscription(self, destination: str | None) -> Subscription:
        found = self.subscriptions.get(destination or "")
        if found is None or found.kind != MESSAGE_CLASS:
            raise SessionFaultError(ErrorCode.NOT_FOUND, f"no subscription {destination or ''!r}")
        return found

    def _cancel(self, number: int, command: r.MessageCancel) -> None:
        self._remove(self._subscription(command.destination))
        self.complete(number)

    def _remove(self, subscription: Subscription) -> None:
        self.subscriptions.pop(subscription.label, None)
        subscription.queue.remove(subscription)
        unacquired = {
            number: entry
            for number, entry in self.unaccepted.items()
            if entry.subscription is subscription and not entry.is_acquired
        }
        for number in unacquired:
            del self.unaccepted[number]
        self.files.drop()
        self._settle(unacquired.values(), RELEASED)

    def _set_flow_mode(self, number: int, command: r.MessageSetFlowMode) -> None:
        subscription = self._subscription(command.destination)
        if command.flow_mode not in (MODE_CREDIT, MODE_WINDOW):
            raise SessionFaultError(ErrorCode.ILLEGAL_ARGUMENT, f"flow-mode {command.flow_mode}")
        if command.flow_mode != subscription.mode and (
            subscription.messages != 0 or subscription.octets
        ):
            raise SessionFaultError(
                ErrorCode.ILLEGAL_STATE, "the flow-mode changes while there is credit"
            )
        subscription.mode = command.flow_mode
        self.complete(number)

    def _flow(self, number: int, command: r.MessageFlow) -> None:
        subscription = self._subscription(command.destination)
        if command.unit not in (UNIT_MESSAGE, UNIT_BYTE):
            raise SessionFaultError(ErrorCode.ILLEGAL_ARGUMENT, f"credit unit {command.unit}")
        subscription.add(command.unit, command.value)
        subscription.queue.dispatch()
        self.review(subscription.queue)
        self.complete(number)

    def _flush(self, number: int, command: r.MessageFlush) -> None:
        subscription = self._subscription(command.destination)
        if not subscription.queue.drain(subscription, number):
            subscription.void()
            self.complete(number)

    def _stop(self, number: int, command: r.MessageStop) -> None:
        subscription = self._subscription(command.destination)
        subscription.queue.stop(subscription)
        self.complete(number)

    def review(self, queue: Queue) -> None:
        """Looks at a queue's credit when the turn ends."""
        if self.is_attached:
            self.server.review(queue)

    def deliver(
        self, subscription: Subscription, outlet: Outlet, delivery: OutgoingDelivery
    ) -> bool:
        """Sends a delivery to a subscription; tells whether its credit allowed that.

        Raises:
            TranslationError: it cannot be sent; nothing was.
        """
        ready = self.server.outgoing.ready(
            delivery, resume=(subscription.resume_id, subscription.resume_ttl)
        )
        if not subscription.fits(ready.octets):
            return False
        is_named = not delivery.settled and delivery.tag not in outlet.unnamed
        told = delivery.number if is_named else None
        if isinstance(subscription, FileConsumer):
            number = -self.files.take(subscription, ready)
            self.unaccepted[number] = Unaccepted(outlet, told, delivery.tag, subscription, False)
            self.files.go_on()
            return True
        head, header = subscription.segments(ready)
        subscription.take(ready.octets)
        note = None
        if subscription.mode == MODE_WINDOW:
            note = _Transferred(subscription, ready.octets)
        number = self.send_encoded(head, note, (header, ready.body))
        if subscription.settles:
            if not delivery.settled:
                self.decide(outlet, delivery.tag, delivery.number, ACCEPTED)
            return True
        self.unaccepted[number] = Unaccepted(
            outlet, told, delivery.tag, subscription, subscription.acquires
        )
        return True

    def done(self, numbers: list[int]) -> None:
        """Takes note that the client has completed commands: windows open again."""
        queues: dict[int, Queue] = {}
        for number in numbers:
            note = self.outstanding.pop(number, None)
            if isinstance(note, _Transferred):
                note.subscription.give_back(note.octets)
                if note.subscription.mode == MODE_WINDOW and note.subscription.is_active:
                    queues[id(note.subscription.queue)] = note.subscription.queue
        for queue in queues.values():
            queue.dispatch()
            self.review(queue)

    # --- files and streams ------------------------------------------------------------------------

    def _stream_qos(self, number: int, command: o.StreamQos) -> None:
        """Hears what is wanted; a server may ignore it, and this one does."""
        self.send(o.StreamQosOk())
        self.complete(number)

    def _consume(self, number: int, command: o.FileConsume | o.StreamConsume) -> None:
        check_consume(command)
        tag, name = command.consumer_tag or "", command.queue or ""
        queue = self._queue_for(name, exclusive=command.exclusive)
        consumer: Subscription
        answer: o.OptionalCommand
        if isinstance(command, o.FileConsume):
            consumer = FileConsumer(self, queue, tag, no_ack=command.no_ack)
            answer = o.FileConsumeOk(tag)
        else:
            consumer, answer = StreamConsumer(self, queue, tag), o.StreamConsumeOk(tag)
        if consumer.label in self.subscriptions:
            raise SessionFaultError(ErrorCode.NOT_ALLOWED, f"consumer-tag {tag!r} is in use")
        self._begin(number, consumer, None if command.nowait else answer)

    def _cancel_consumer(self, number: int, command: o.FileCancel | o.StreamCancel) -> None:
        """Ends a consumer; one that is not there has ended."""
        is_file = isinstance(command, o.FileCancel)
        label = (files.label_of if is_file else streams.label_of)(command.consumer_tag or "")
        found = self.subscriptions.get(label)
        if found is not None and found.kind != MESSAGE_CLASS:
            self._remove(found)
        self.complete(number)

    def _file_qos(self, number: int, command: o.FileQos) -> None:
        self.files.qos(command)
        self.send(o.FileQosOk())
        self.files.review()
        self.complete(number)

    def _open_file(self, number: int, command: o.FileOpen) -> None:
        self.files.open(command)
        self.complete(number)

    def _go_on_with_file(self, number: int, command: o.FileOpenOk) -> None:
        self.files.open_ok(command)
        self.complete(number)

    def _stage_file(self, number: int, command: o.FileStage, header: bytes, body: bytes) -> None:
        self.files.stage(header, body)
        self.complete(number)

    def _publish_file(self, number: int, command: o.FilePublish) -> None:
        self.files.publish(number, command)

    def _acknowledge_files(self, number: int, command: o.FileAck) -> None:
        found = self.files.settled(command.delivery_tag or 0, multiple=command.multiple)
        if self.is_transactional:
            self._accepted_in_transaction.update(found)
        else:
            self._settle(found.values(), ACCEPTED)
        self.files.review()
        self.complete(number)

    def _reject_file(self, number: int, command: o.FileReject) -> None:
        found = self.files.settled(command.delivery_tag or 0, multiple=False)
        self._settle(found.values(), files.rejected(command.requeue))
        self.files.review()
        self.complete(number)

    def _publish_packet(
        self, number: int, command: o.StreamPublish, header: bytes, body: bytes
    ) -> None:
        self.publishing.publish(number, command, header, body)

    def next_packet(self) -> int:
        """Gives the delivery-tag of a packet; it means something in this session alone."""
        self._packets += 1
        return self._packets

    # --- outcomes ---------------------------------------------------------------------------------

    def _named(self, ranges: Ranges | None, table: dict[int, Unaccepted]) -> dict[int, Unaccepted]:
        """Takes out of a table what a client's set names."""
        found = {}
        for first, last in self._long_out(ranges):
            if last - first < len(table):
                numbers = [each for each in range(first, last + 1) if each in table]
            else:
                numbers = [each for each in table if first <= each <= last]
            for number in numbers:
                found[number] = table.pop(number)
        return found

    def _accept(self, number: int, command: r.MessageAccept) -> None:
        named = self._named(command.transfers, self.unaccepted)
        refused = [each for each, entry in named.items() if not entry.is_acquired]
        if refused:
            raise SessionFaultError(
                ErrorCode.ILLEGAL_STATE, f"transfer {refused[0]} is not acquired"
            )
        if self.is_transactional:
            self._accepted_in_transaction.update(named)
        else:
            self._settle(named.values(), ACCEPTED)
        self.complete(number)

    def _reject(self, number: int, command: r.MessageReject) -> None:
        named = self._named(command.transfers, self.unaccepted)
        self._settle(named.values(), rejection(command.code, command.text))
        self.complete(number)

    def _release(self, number: int, command: r.MessageRelease) -> None:
        named = self._named(command.transfers, self.unaccepted)
        named.update(self._named(command.transfers, self._accepted_in_transaction))
        entries = [named[each] for each in sorted(named, reverse=True)]
        self._settle(entries, MODIFIED_FAILED if command.set_redelivered else RELEASED)
        self.complete(number)

    def _acquire(self, number: int, command: r.MessageAcquire) -> None:
        named = self._named(command.transfers, self.unaccepted)
        self.unaccepted = dict(sorted({**self.unaccepted, **named}.items()))
        for entry in named.values():
            entry.is_acquired = True
        self.result(
            number,
            r.Acquired(
                tuple(
                    (first & 0xFFFF_FFFF, last & 0xFFFF_FFFF)
                    for first, last in ranges_of(sorted(named))
                )
            ),
        )

    def _settle(self, entries: Iterable[Unaccepted], state: DeliveryState) -> None:
        """Tells the core what became of transfers."""
        for entry in entries:
            self.decide(entry.outlet, entry.tag, entry.number, state)

    def decide(
        self,
        outlet: Outlet,
        tag: DeliveryTag,
        number: DeliveryNumber | None,
        state: DeliveryState,
    ) -> None:
        """Tells the core the outcome of a delivery, at the latest when it has named it again.

        Args:
            outlet: on which it came.
            tag: of the delivery.
            number: the core's; None: the core has settled it, or is about to name it again.
            state: the outcome.
        """
        if tag in outlet.unnamed:
            outlet.unnamed[tag] = state
        elif number is not None:
            self.settle(outlet, [number], state)

    def settle(self, outlet: Outlet, numbers: list[DeliveryNumber], state: DeliveryState) -> None:
        """Tells the core the outcome of deliveries of a link, and settles them."""
        outlet.unsettled -= len(numbers)
        self.engine.runs.update(outlet.link, numbers, state, True)
        if outlet.is_leaving:
            outlet.queue.detach_if_done(outlet)

    # --- links that come back, or do not ----------------------------------------------------------

    def _entries(self, outlet: Outlet) -> Iterator[Unaccepted]:
        for table in (self.unaccepted, self._accepted_in_transaction):
            for entry in table.values():
                if entry.outlet is outlet:
                    yield entry

    def tags_of(self, outlet: Outlet) -> list[DeliveryTag]:
        """What the client, or the backlog, holds of a link that comes back."""
        held = [entry.tag for entry in self._entries(outlet) if not outlet.is_attached]
        waiting = [each.tag for owner, each in outlet.queue.backlog if owner is outlet]
        return held + waiting

    def resumed(self, outlet: Outlet, delivery: OutgoingDelivery) -> bool:
        """Takes the core's new number for what the client has; tells whether it has it."""
        for entry in self._entries(outlet):
            if entry.tag == delivery.tag:
                entry.number = None if delivery.settled else delivery.number
                return True
        return False

    def lost(self, outlet: Outlet) -> None:
        """Takes note that a link is gone, and what was unsettled on it with it."""
        for entry in self._entries(outlet):
            entry.number = None

    def lose(self, outlet: Outlet, condition: Condition) -> None:
        """Takes note that the core took a link away.

        Raises:
            SessionFaultError: somebody is subscribed, who has to hear of it (message.subscribe).
        """
        queue = outlet.queue
        outlet.unsettled = 0
        self.lost(outlet)
        queue.forget(outlet)
        has_gone = not (queue.outlets or queue.watches or outlet.is_leaving)
        if has_gone and queue.subscriptions:
            codes = queue.subscriptions[0].codes
            raise SessionFaultError(ErrorCode.RESOURCE_DELETED, gone(queue, condition), *codes)

    # --- output, suspension, end ------------------------------------------------------------------

    def write_gathered(self) -> None:
        """Writes what became of the client's transfers."""
        self.publishing.write_answers()

    @property
    def waiting_octets(self) -> int:
        """How many octets of payload wait for the client's credit."""
        return sum(len(each.payload) for queue in self._queues() for _, each in queue.backlog)

    @property
    def is_busy(self) -> bool:
        """Whether what the client has sent so far is still to be taken up or handed on."""
        return self.waits or bool(self.publishing.held)

    def drained(self) -> None:
        """Takes note that no transfer waits any more."""
        self.server.drained()

    def requested_timeout(self, timeout: int | None) -> None:
        """Grants how long the session outlives its channel: as long as its links can."""
        most = self.engine.settings.expiry_seconds
        if self._has_links and not self.is_kept:
            granted = 0  # what it has sent so far was not kept
        else:
            granted = most if timeout is None else min(timeout, most)
            if self._has_links:
                granted = min(granted, self.timeout if self.timeout is not None else most)
        self.timeout = granted
        if not granted:
            self.drop_replay()
        self.control(r.SessionTimeout(granted))

    def _queues(self) -> list[Queue]:
        routed = [each.queue for each in self.subscriptions.values() if not each.queue.is_local]
        return [*self.queues.values(), *routed]

    def _outlets(self) -> list[Outlet]:
        """All links: those of queues, and those that leave when what is on them is settled."""
        found = {id(each): each for queue in self._queues() for each in queue.outlets.values()}
        for table in (self.unaccepted, self._accepted_in_transaction):
            for entry in table.values():
                if self.server.outlets.get(entry.outlet.link) is entry.outlet:
                    found[id(entry.outlet)] = entry.outlet
        return list(found.values())

    def ended(self, *, is_over: bool) -> None:
        """Gives everything back, or has it kept."""
        if is_over:
            self._end()
        else:
            self._suspend()

    def _suspend(self) -> None:
        tells = self.engine.tells_links
        engine = self.server
        if tells:  # the connection lives on: the core learns of the links' end one by one
            for inlet in self.publishing.inlets.values():
                engine.runs.add(LinkDetached(inlet.link, closed=False))
        self.watching.suspend()
        self.publishing.suspend()
        own = [each for each in engine.outlets.values() if each.queue.session is self]
        self._deciding = [each for each in own if any(each.unnamed.values())]
        for outlet in own:
            if tells:  # whether or not the core has answered: what is unsettled on it is kept
                engine.runs.add(LinkDetached(outlet.link, closed=False))
            outlet.is_attached = outlet.is_draining = False
            outlet.credit = 0
        for subscription in self.subscriptions.values():
            flushes, subscription.flushes = subscription.flushes, []
            if flushes:
                subscription.void()
                self.complete_all(flushes)
        for table in (self.unaccepted, self._accepted_in_transaction):
            for entry in table.values():
                entry.number = None
        engine.forget_questions(self)
        for outlet in own:
            engine.outlets.pop(outlet.link, None)

    def come_back(self) -> None:
        """Attaches the links again, when the session has a channel again."""
        self.waits = self.is_committing
        for outlet in self._outlets_to_come_back():
            outlet.link = self.server.next_link()
            outlet.queue.ask(outlet, outlet.queue.label, is_back=True)
            self.server.await_outlet(self, outlet)
        self.watching.come_back()
        self.publishing.come_back()

    def moved(self, home: Callable[[str | None], str | None]) -> None:
        """Takes note that another worker has given the session away, and keeps its links.

        Args:
            home: gives where a link is, as seen from here, for where it was as seen from there.
        """
        for inlet in self.publishing.inlets.values():
            inlet.home = home(inlet.home)
        for outlet in self._outlets_to_come_back():
            is_left = outlet.home is not None  # more may have been sent on it than has come
            if is_left or outlet.unnamed or self.tags_of(outlet):
                outlet.home = home(outlet.home)

    def _outlets_to_come_back(self) -> list[Outlet]:
        found = {id(each): each for queue in self._queues() for each in queue.outlets.values()}
        found |= {id(each): each for each in self._deciding}
        for table in (self.unaccepted, self._accepted_in_transaction):
            for entry in table.values():
                found[id(entry.outlet)] = entry.outlet
        return list(found.values())

    def _end(self) -> None:
        tells = self.engine.tells_links
        engine = self.server
        engine.forget_questions(self)
        outlets = self._outlets()
        self.watching.ended()
        if tells:
            self._give_back(outlets)
        self.publishing.ended(tells=tells)
        self.files.ended()
        for outlet in outlets:
            engine.outlets.pop(outlet.link, None)
            if tells:
                engine.runs.add(LinkDetached(outlet.link, closed=True))
        self.subscriptions.clear()
        self.queues.clear()
        self.unaccepted.clear()
        self._accepted_in_transaction.clear()

    def _give_back(self, outlets: list[Outlet]) -> None:
        """Releases what the client had not settled, and what waits here."""
        for outlet in outlets:
            outlet.is_leaving = False
            outlet.queue.release(outlet)
        held = {**self.unaccepted, **self._accepted_in_transaction}
        self._settle([held[at] for at in sorted(held, key=abs, reverse=True)], RELEASED)

    def gone_for_good(self) -> None:
        """Takes note that a suspended session will not come back."""
        self.subscriptions.clear()
        self.queues.clear()
        self.unaccepted.clear()
        self._accepted_in_transaction.clear()
        self.publishing.held.clear()
        self.publishing.inlets.clear()
