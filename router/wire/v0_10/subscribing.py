"""The sending half of a client's session: subscriptions, deliveries and their outcomes.

Theory of operation. Sent deliveries that the client has not settled are in ``unaccepted``, by
command-id. Messages of a subscription with acquire-mode not-acquired are reserved for it all the
same, because a router has no queue to browse; ``message.acquire`` always succeeds, and messages
that were never acquired are returned when the subscription ends.

A client's outcomes::

    accept                     accepted
    reject                     rejected, with code and text
    release                    released
    release, set-redelivered   modified, delivery-failed
    accept-mode none           accepted when sent, unless it was not acquired
    end of session             modified, delivery-failed; released, if not acquired
    cancel                     released, if not acquired

A delivery that one subscription of a local queue releases is offered to the others of that queue
before the core gets the outcome.

On routes that promise exactly-once a command that settles deliveries, and a commit, is complete
when their outcomes are on record (``router.wire.recording``), also if the session is suspended
meanwhile. If the link is gone with what the client accepts, the session ends with an exception.
"""

from collections.abc import Collection, Iterable, Iterator

import attrs

from router.model.condition import CONNECTION_FORCED, NOT_FOUND, Condition
from router.model.delivery import OutgoingDelivery
from router.model.identity import DeliveryNumber, DeliveryTag
from router.model.outcome import ACCEPTED, MODIFIED_FAILED, RELEASED, DeliveryState
from router.wire.v0_10 import files, streams
from router.wire.v0_10 import optional as o
from router.wire.v0_10 import records as r
from router.wire.v0_10.client_session import ClientSession
from router.wire.v0_10.declaring import Declaring
from router.wire.v0_10.files import FileConsumer, Files
from router.wire.v0_10.publishing import Publishing
from router.wire.v0_10.queues import Outlet, Queue, gone
from router.wire.v0_10.ranges import Ranges, ranges_of
from router.wire.v0_10.reply import (
    REJECT_CODES,
    ErrorCode,
    SessionFaultError,
    check_modes,
    rejection,
)
from router.wire.v0_10.server_links import ServerLinks
from router.wire.v0_10.session import MESSAGE_CLASS
from router.wire.v0_10.streams import StreamConsumer, check_consume
from router.wire.v0_10.subscription import (
    MODE_CREDIT,
    MODE_WINDOW,
    UNIT_BYTE,
    UNIT_MESSAGE,
    Subscription,
)
from router.wire.v0_10.unaccepted import Unaccepted
from router.wire.v0_10.watching import Watching


@attrs.frozen
class _Transferred:
    """A transfer that the client has not completed."""

    subscription: Subscription
    octets: int


class SubscribingSession(ClientSession):
    """The sending half of a client's session; ``ServerSession`` is the other.

    Attributes:
        declaring, publishing, watching: parts of the other half.
        subscriptions: by label; that of one of class message is its destination.
        unaccepted: by command-id, ascending; files by their negated delivery-tag (``files``).
        accepted_in_transaction: by command-id; accepted when the transaction is committed.
        files: the files of the session.
        is_transactional: tx.select was received.
        unfinished: command-id → what the command waits for before it is complete: outlets that
            report that its outcomes are on record, and the transfers of a commit.
    """

    declaring: Declaring
    publishing: Publishing
    watching: Watching

    def __init__(self, engine: ServerLinks, channel: int, name: bytes) -> None:
        super().__init__(engine, channel, name)
        self.subscriptions: dict[str, Subscription] = {}
        self.unaccepted: dict[int, Unaccepted] = {}
        self.accepted_in_transaction: dict[int, Unaccepted] = {}
        self.files = Files(self)
        self.is_transactional = False
        self.unfinished: dict[int, int] = {}
        self._packets = 0

    # --- subscriptions ----------------------------------------------------------------------------

    def _subscribe(self, number: int, command: r.MessageSubscribe) -> None:
        name, destination = command.queue or "", command.destination or ""
        if destination in self.subscriptions:
            raise SessionFaultError(ErrorCode.NOT_ALLOWED, f"destination {destination!r} is in use")
        check_modes(command.accept_mode, command.acquire_mode)
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
        """Returns the queue of a subscription."""
        self.declaring.check_exclusive(name)
        local = self.queues.get(name)
        is_kept_out = local is not None and any(each.is_exclusive for each in local.subscriptions)
        if is_kept_out or (exclusive and (local is None or local.subscriptions)):
            raise SessionFaultError(
                ErrorCode.RESOURCE_LOCKED, f"{name!r} cannot be promised to one subscription alone"
            )
        return local or Queue(self, name, is_local=False)

    def _begin(
        self, number: int, subscription: Subscription, answer: o.OptionalCommand | None = None
    ) -> None:
        """Begins a subscription, as soon as its queue exists."""
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
        self.settle_entries(
            [unacquired[each] for each in sorted(unacquired, key=abs)][::-1], RELEASED
        )

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

    def deliver(
        self, subscription: Subscription, outlet: Outlet, delivery: OutgoingDelivery
    ) -> bool:
        """Sends a delivery to a subscription; returns whether its credit allowed that.

        Raises:
            TranslationError: it cannot be sent, and was not.
        """
        ready = self.server.outgoing.ready(
            delivery, resume=(subscription.resume_id, subscription.resume_ttl)
        )
        if not subscription.fits(ready.octets):
            return False
        is_named = not delivery.settled and delivery.tag not in outlet.unnamed
        named_number = delivery.number if is_named else None
        if isinstance(subscription, FileConsumer):
            number = -self.files.take(subscription, ready)
            self.unaccepted[number] = Unaccepted(
                outlet,
                named_number,
                delivery.tag,
                subscription,
                is_acquired=False,
                delivery=delivery if outlet.is_own else None,
            )
            self.files.go_on()
            return True
        head, header = subscription.segments(ready)
        subscription.take(ready.octets)
        note = None
        if subscription.mode == MODE_WINDOW:
            note = _Transferred(subscription, ready.octets)
        number = self.send_encoded(head, note, (header, ready.body))
        if subscription.settles and subscription.acquires:
            if outlet.is_own:
                outlet.queue.decided(delivery, ACCEPTED)
            elif not delivery.settled:
                self.decide(outlet, delivery.tag, delivery.number, ACCEPTED)
            return True
        kept = delivery if subscription.queue.is_shared_here or outlet.is_own else None
        self.unaccepted[number] = Unaccepted(
            outlet, named_number, delivery.tag, subscription, subscription.acquires, kept
        )
        return True

    def done(self, numbers: list[int]) -> None:
        """Records that the client has completed commands: windows open again."""
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
        """Acknowledges a stream.qos; a server may ignore it, and this one does."""
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
        consumer.is_exclusive = command.exclusive
        if consumer.label in self.subscriptions:
            raise SessionFaultError(ErrorCode.NOT_ALLOWED, f"consumer-tag {tag!r} is in use")
        self._begin(number, consumer, None if command.nowait else answer)

    def _cancel_consumer(self, number: int, command: o.FileCancel | o.StreamCancel) -> None:
        """Cancels a consumer; an unknown one counts as cancelled."""
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

    def _acknowledge_files(self, number: int, command: o.FileAck) -> None:
        found = self.files.settled(command.delivery_tag or 0, multiple=command.multiple)
        if self.is_transactional:
            self.accepted_in_transaction.update(found)
            self.complete(number)
        else:
            self.settle_by(number, (found.values(), ACCEPTED))
        self.files.review()

    def _reject_file(self, number: int, command: o.FileReject) -> None:
        found = self.files.settled(command.delivery_tag or 0, multiple=False)
        self.settle_by(number, (found.values(), files.rejected(command.requeue)))
        self.files.review()

    def next_packet(self) -> int:
        """Returns the delivery-tag of the next packet, unique in this session."""
        self._packets += 1
        return self._packets

    # --- outcomes ---------------------------------------------------------------------------------

    def _named(self, ranges: Ranges | None, table: dict[int, Unaccepted]) -> dict[int, Unaccepted]:
        """Removes and returns the entries of a table that a client's set names."""
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
            self.accepted_in_transaction.update(named)
            self.complete(number)
        else:
            self.check_kept(named.values())
            self.settle_by(number, (named.values(), ACCEPTED))

    def _reject(self, number: int, command: r.MessageReject) -> None:
        if command.code not in REJECT_CODES:
            raise SessionFaultError(ErrorCode.ILLEGAL_ARGUMENT, f"reject-code {command.code}")
        named = self._named(command.transfers, self.unaccepted)
        ignored = {each: entry for each, entry in named.items() if not entry.is_acquired}
        self.unaccepted = dict(sorted({**self.unaccepted, **ignored}.items()))
        entries = [entry for entry in named.values() if entry.is_acquired]
        self.settle_by(number, (entries, rejection(command.code, command.text)))

    def _release(self, number: int, command: r.MessageRelease) -> None:
        named = self._named(command.transfers, self.unaccepted)
        named.update(self._named(command.transfers, self.accepted_in_transaction))
        entries = [named[each] for each in sorted(named, reverse=True)]
        failed = command.set_redelivered
        shown = [entry for entry in entries if not entry.is_acquired]
        entries = [entry for entry in entries if entry.is_acquired]
        groups: list[tuple[list[Unaccepted], DeliveryState]] = []
        for group, marks in ((shown, False), (entries, failed)):
            left = [entry for entry in group if not self._offer_next(entry, failed=marks)]
            groups.append((left, MODIFIED_FAILED if marks else RELEASED))
        self.settle_by(number, *groups)

    @staticmethod
    def _offer_next(entry: Unaccepted, *, failed: bool) -> bool:
        """Offers a released delivery to the other subscriptions of its queue, if there are any."""
        if entry.delivery is None or entry.number is None or entry.tag in entry.outlet.unnamed:
            return False
        if failed:
            entry.delivery.delivery_count = (entry.delivery.delivery_count or 0) + 1
        entry.delivery.number = entry.number
        return entry.subscription.queue.take_back(entry.outlet, entry.delivery, entry.subscription)

    def _acquire(self, number: int, command: r.MessageAcquire) -> None:
        named = self._named(command.transfers, self.unaccepted)
        self.unaccepted = dict(sorted({**self.unaccepted, **named}.items()))
        named = {each: entry for each, entry in named.items() if not entry.subscription.settles}
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

    def check_kept(self, entries: Iterable[Unaccepted]) -> None:
        """Refuses to accept transfers whose links are gone: completion would promise too much.

        Raises:
            SessionFaultError: there are some, of routes that promise exactly-once.
        """
        lost = sum(entry.is_lost and entry.outlet.is_exact for entry in entries)
        if lost:
            text = f"the links of {lost} accepted transfers are gone; their outcome is unknown"
            raise SessionFaultError(ErrorCode.RESOURCE_DELETED, text)

    def settle_by(
        self,
        number: int,
        *groups: tuple[Collection[Unaccepted], DeliveryState],
        besides: int = 0,
    ) -> None:
        """Settles transfers by a command, which is complete when that is on record.

        Args:
            number: the command.
            groups: transfers, each with their outcome.
            besides: how much more it waits for, which ``finished`` is called for.
        """
        exact = {
            id(entry.outlet): entry.outlet
            for entries, _ in groups
            for entry in entries
            if entry.outlet.is_exact
            and (entry.number is not None or entry.tag in entry.outlet.unnamed)
        }
        for outlet in exact.values():
            outlet.unrecorded.add(number)
        for entries, state in groups:
            self.settle_entries(entries, state)
        for outlet in exact.values():
            self.ask_for_record(outlet)
        if exact or besides:
            self.unfinished[number] = len(exact) + besides
        else:
            self.complete(number)

    def ask_for_record(self, outlet: Outlet) -> None:
        """Asks the core to report when the client's outcomes are on record, if a command waits."""
        self.server.ask_for_record(outlet)

    def finished(self, number: int) -> None:
        """Records that one of the things is done that a command waits for."""
        left = self.unfinished.pop(number, 0)
        if left > 1:
            self.unfinished[number] = left - 1
        elif left:
            self.conclude(number)

    def conclude(self, number: int) -> None:
        """Completes a command that waits for nothing any more."""
        self.complete(number)

    def settle_entries(self, entries: Iterable[Unaccepted], state: DeliveryState) -> None:
        """Reports the outcome of transfers to the core, or to the queue that owns them."""
        for entry in entries:
            if entry.delivery is not None and entry.outlet.is_own:
                entry.outlet.queue.decided(entry.delivery, state)
                continue
            if entry.delivery is not None:
                entry.outlet.queue.done(entry.outlet, entry.tag)
            self.decide(entry.outlet, entry.tag, entry.number, state)

    def decide(
        self,
        outlet: Outlet,
        tag: DeliveryTag,
        number: DeliveryNumber | None,
        state: DeliveryState,
    ) -> None:
        """Reports the outcome of a delivery to the core, at once or when it has named it again.

        Args:
            outlet: the link of the delivery.
            tag: of the delivery.
            number: the core's number; None: settled by the core, or about to be named again.
            state: the outcome.
        """
        if tag in outlet.unnamed:
            outlet.unnamed[tag] = state
        elif number is not None:
            self.settle(outlet, tag, number, state)

    def settle(
        self, outlet: Outlet, tag: DeliveryTag, number: DeliveryNumber, state: DeliveryState
    ) -> None:
        """Reports to the core the outcome of a delivery, and settles it or waits until it has."""
        outlet.unsettled -= 1
        if outlet.confirms_outcomes:
            outlet.told[number] = (tag, state)
        self.engine.runs.update(outlet.link, [number], state, not outlet.confirms_outcomes)
        if outlet.is_leaving:
            outlet.queue.detach_if_done(outlet)

    # --- links that come back, or do not ----------------------------------------------------------

    def _entries(self, outlet: Outlet) -> Iterator[Unaccepted]:
        for table in (self.unaccepted, self.accepted_in_transaction):
            for entry in table.values():
                if entry.outlet is outlet:
                    yield entry

    def tags_of(self, outlet: Outlet) -> list[DeliveryTag]:
        """Returns the tags, of a link that comes back, that the client or the backlog has."""
        held = [entry.tag for entry in self._entries(outlet) if not outlet.is_attached]
        backlog = outlet.queue.backlog
        waiting = [each.delivery.tag for each in backlog if each.outlet is outlet]
        return held + waiting

    def resumed(self, outlet: Outlet, delivery: OutgoingDelivery) -> bool:
        """Handles the core's new number for a delivery; returns whether the client has it."""
        for entry in self._entries(outlet):
            if entry.tag == delivery.tag:
                entry.number = None if delivery.settled else delivery.number
                return True
        return False

    def lost(self, outlet: Outlet) -> None:
        """Records that a link is gone, with its unsettled deliveries."""
        for entry in self._entries(outlet):
            entry.number, entry.is_lost = None, True

    def unknown(self, outlet: Outlet, number: int, condition: Condition) -> None:
        """Handles that nobody will know whether a command's outcomes are on record.

        A client whose connection ends next hears why by that.

        Raises:
            SessionFaultError: the session lives on.
        """
        if self.unfinished.pop(number, 0) and condition.name != CONNECTION_FORCED:
            text = f"{condition}; whether outcomes for {outlet.address!r} count is unknown"
            raise SessionFaultError(ErrorCode.RESOURCE_DELETED, text, command=number)

    def lose(self, outlet: Outlet, condition: Condition) -> None:
        """Records that the core has detached a link.

        A client whose connection ends next hears why by that.

        Raises:
            SessionFaultError: its queue has subscriptions, whose client must be notified.
        """
        queue = outlet.queue
        outlet.unsettled = 0
        self.lost(outlet)
        queue.forget(outlet)
        has_gone = not (queue.outlets or queue.watches or outlet.is_leaving)
        if has_gone and queue.subscriptions and condition.name != CONNECTION_FORCED:
            codes = queue.subscriptions[0].codes
            raise SessionFaultError(ErrorCode.RESOURCE_DELETED, gone(queue, condition), *codes)
