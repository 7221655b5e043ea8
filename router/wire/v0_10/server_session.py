"""A client's session on the serving side: every command, and how a router implements it.

Theory of operation. Deliveries to the client are handled by ``subscribing``. Commands that concern
this session alone are carried out at once. Those that depend on the routing table become a question
to the core (``declaring``); the session waits for the answer, and the client's later commands keep
their order.

A *kept* session (``session.request-timeout``) is suspended with its links: the core keeps unsettled
deliveries for that time, and when the client comes back each link is attached with the tags of all
deliveries that the client still has, or that are sent again.
"""

from collections.abc import Callable
from typing import Any, ClassVar

from router.model.commands import AttachLink
from router.model.condition import Condition
from router.model.events import LinkDetached
from router.model.outcome import ACCEPTED, MODIFIED_FAILED, RELEASED
from router.wire.asking import Question
from router.wire.machine import Handlers
from router.wire.v0_10 import optional as o
from router.wire.v0_10 import records as r
from router.wire.v0_10.declaring import Declaring
from router.wire.v0_10.publishing import Publishing
from router.wire.v0_10.queues import Outlet, Queue
from router.wire.v0_10.reply import ErrorCode, SessionFaultError
from router.wire.v0_10.server_links import ServerLinks
from router.wire.v0_10.session import MESSAGE_CLASS
from router.wire.v0_10.subscribing import SubscribingSession
from router.wire.v0_10.subscription import Subscription
from router.wire.v0_10.watching import Watching


class ServerSession(SubscribingSession):
    """One session of a client.

    Attributes:
        publishing: the client's transfers.
        declaring: its questions to the routing table.
        watching: the patterns of its queues.
    """

    def __init__(self, engine: ServerLinks, channel: int, name: bytes) -> None:
        super().__init__(engine, channel, name)
        self.publishing = Publishing(self)
        self.watching = Watching(self)
        self.declaring = Declaring(self, self.publishing, self.watching)
        self._deciding: list[Outlet] = []
        self._taking: bytes | None = None
        self._commit_number = 0

    def _ignore(self, number: int, command: Any) -> None:
        """Ignores an answer."""
        self.complete(number)

    def _take_exception(self, number: int, command: r.ExecutionException) -> None:
        """Handles an exception from the client; its detach follows."""
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

    def _resume(self, number: int, command: r.MessageResume) -> None:
        """Answers that no interrupted message is kept: complete sessions are resumed here."""
        self._codes = (MESSAGE_CLASS, 6)
        none = r.MessageResumeResult(0)
        self.declaring.with_exchange(
            number, command.destination or "", lambda: self.result(number, none)
        )

    def _publish_file(self, number: int, command: o.FilePublish) -> None:
        self.files.publish(number, command)

    def _publish_packet(
        self, number: int, command: o.StreamPublish, header: bytes, body: bytes
    ) -> None:
        self.publishing.publish(number, command, header, body)

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
        self.check_kept(self.accepted_in_transaction.values())
        accepted, self.accepted_in_transaction = self.accepted_in_transaction, {}
        self.settle_by(number, (accepted.values(), ACCEPTED), besides=1)
        self.park()
        self.is_committing = True
        self._commit_number = number
        self.publishing.commit(number)

    def committed(self, number: int) -> None:
        """Records that the transaction's transfers are all decided."""
        self.finished(number)

    def conclude(self, number: int) -> None:
        """Completes a command that waits for nothing any more."""
        self.complete(number)
        if self.is_committing and number == self._commit_number:
            self.is_committing = False
            self.resume()
        if not self.is_busy:
            self.drained()

    def _roll_back(self, number: int, command: r.TxRollback) -> None:
        self._check_transactional()
        self.publishing.roll_back()
        back, self.accepted_in_transaction = self.accepted_in_transaction, {}
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
        self._codes = (7, 5)
        self.declaring.unbind(number, command)

    def _bound(self, number: int, command: r.ExchangeBound) -> None:
        self.declaring.bound(number, command)

    def _declare_queue(self, number: int, command: r.QueueDeclare) -> None:
        self._codes = (8, 1)
        self.declaring.declare_queue(number, command)

    def _delete_queue(self, number: int, command: r.QueueDelete) -> None:
        self._codes = (8, 2)
        self.declaring.with_own_queue(
            number,
            command.queue or "",
            "deleted",
            lambda queue: self._delete(number, command, queue),
        )

    def _delete(self, number: int, command: r.QueueDelete, queue: Queue) -> None:
        if command.if_unused and queue.subscriptions:
            raise SessionFaultError(
                ErrorCode.PRECONDITION_FAILED, f"{queue.name!r} has subscriptions"
            )
        queue.drop_all_expired()
        if command.if_empty and queue.backlog:
            raise SessionFaultError(ErrorCode.PRECONDITION_FAILED, f"{queue.name!r} is not empty")
        for subscription in list(queue.subscriptions):
            assert isinstance(subscription, Subscription)
            self._remove(subscription)
        queue.delete()
        self.complete(number)

    def _purge_queue(self, number: int, command: r.QueuePurge) -> None:
        self._codes = (8, 3)

        def purge(queue: Queue) -> None:
            queue.purge()
            self.complete(number)

        self.declaring.with_own_queue(number, command.queue or "", "purged", purge)

    def _query_queue(self, number: int, command: r.QueueQuery) -> None:
        self.declaring.query_queue(number, command)

    def shift(self, seconds: float) -> None:
        """Moves all times: another worker has another clock."""
        self.publishing.shift(seconds)
        for queue in self._queues():
            queue.shift(seconds)

    def subscribers(self, name: str) -> int:
        """Returns the number of the session's subscriptions to a queue."""
        return sum(each.queue.name == name for each in self.subscriptions.values())

    # --- output, suspension, end ------------------------------------------------------------------

    def write_gathered(self) -> None:
        """Writes the answers to the client's transfers."""
        self.publishing.answering.write()

    @property
    def waiting_octets(self) -> int:
        """Octets of payload that wait for the client's credit."""
        backlogs = [queue.backlog for queue in self._queues()]
        return sum(len(each.delivery.payload) for backlog in backlogs for each in backlog)

    @property
    def is_busy(self) -> bool:
        """Whether earlier commands of the client are still to be handled or handed on."""
        return self.waits or bool(self.publishing.held or self.unfinished)

    def drained(self) -> None:
        """Records that no transfer is held any more."""
        self.server.drained()

    def requested_timeout(self, timeout: int | None) -> None:
        """Grants how long the session outlives its channel: as long as its links can."""
        most = self.engine.settings.expiry_seconds
        if self._has_links and not self.is_kept:
            granted = 0  # its earlier commands were not kept
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
        """All links: those of queues, and those that leave when their deliveries are settled."""
        found = {id(each): each for queue in self._queues() for each in queue.outlets.values()}
        for table in (self.unaccepted, self.accepted_in_transaction):
            for entry in table.values():
                if self.server.outlets.get(entry.outlet.link) is entry.outlet:
                    found[id(entry.outlet)] = entry.outlet
        return list(found.values())

    def ended(self, *, is_over: bool) -> None:
        """Returns all deliveries, or keeps the session."""
        if is_over:
            self._end()
        else:
            self._suspend()

    def _suspend(self) -> None:
        reports = self.server.reports_links
        engine = self.server
        engine.forget_shapes()
        if reports:  # the connection lives on: the end of each link is reported to the core
            for inlet in self.publishing.inlets.values():
                engine.runs.add(LinkDetached(inlet.link, closed=False))
        self.watching.suspend()
        self.publishing.suspend()
        own = [each for each in engine.outlets.values() if each.queue.session is self]
        for outlet in own:
            if reports:  # whether or not the core has answered: its unsettled deliveries are kept
                engine.runs.add(LinkDetached(outlet.link, closed=False))
            outlet.suspend()
        self._deciding = [each for each in own if each.unrecorded or any(each.unnamed.values())]
        for subscription in self.subscriptions.values():
            flushes, subscription.flushes = subscription.flushes, []
            if flushes:
                subscription.void()
                self.complete_all(flushes)
        for table in (self.unaccepted, self.accepted_in_transaction):
            for entry in table.values():
                entry.number = None
        engine.forget_questions(self)
        for outlet in own:
            engine.outlets.pop(outlet.link, None)

    def come_back(self) -> None:
        """Attaches the links again, when the session has a channel again."""
        self.waits = self.is_committing
        self.server.forget_shapes()
        for outlet in self._outlets_to_come_back():
            outlet.link = self.server.next_link()
            outlet.queue.ask(outlet, outlet.queue.label, is_back=True)
            self._await(outlet)
        self.watching.come_back()
        self.publishing.come_back()

    def _await(self, outlet: Outlet) -> None:
        """Registers for the core's answer about a resumed link; the session does not wait."""

        def attached(answer: AttachLink) -> None:
            known = answer.unsettled or {}
            outlet.unnamed = {tag: state for tag, state in outlet.unnamed.items() if tag in known}
            outlet.resumed = outlet.unsettled = len(outlet.unnamed)
            outlet.accepted(answer)
            self.review(outlet.queue)
            if outlet.resumed:
                outlet.queue.grant_resumed(outlet)
            self.ask_for_record(outlet)
            outlet.queue.detach_if_done(outlet)

        def refused(condition: Condition) -> None:
            self.lost(outlet)
            waiters = outlet.unrecorded.take_all()
            outlet.queue.forget(outlet)
            for number in waiters:
                self.unknown(outlet, number, condition)
            if outlet.queue.subscriptions and not outlet.queue.watches:
                raise SessionFaultError(
                    ErrorCode.RESOURCE_DELETED,
                    f"queue {outlet.queue.name!r}: {condition}",
                    *outlet.queue.subscriptions[0].codes,
                )

        self.server.ask(outlet.link, Question(self, attached, refused))

    def moved(self, home: Callable[[str | None], str | None]) -> None:
        """Records that another worker has given the session to this one, and keeps its links.

        Args:
            home: returns where a link is, as seen from here, from where it was as seen from there.
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
        for table in (self.unaccepted, self.accepted_in_transaction):
            for entry in table.values():
                if not entry.outlet.is_own:
                    found[id(entry.outlet)] = entry.outlet
        return list(found.values())

    def _end(self) -> None:
        reports = self.server.reports_links
        engine = self.server
        engine.forget_questions(self)
        engine.forget_shapes()
        outlets = self._outlets()
        self.watching.ended()
        if reports:
            self._give_back(outlets)
        self.publishing.ended(reports=reports)
        self.files.ended()
        for outlet in outlets:
            engine.outlets.pop(outlet.link, None)
            if reports:
                engine.runs.add(LinkDetached(outlet.link, closed=True))
        self.subscriptions.clear()
        self.queues.clear()
        self.unaccepted.clear()
        self.accepted_in_transaction.clear()
        self.unfinished.clear()

    def _give_back(self, outlets: list[Outlet]) -> None:
        """Returns unsettled deliveries, marked as such, and waiting ones to the core."""
        for outlet in outlets:
            outlet.is_leaving = False
            outlet.queue.release(outlet)
        held = {**self.unaccepted, **self.accepted_in_transaction}
        entries = [held[at] for at in sorted(held, key=abs, reverse=True)]
        self.settle_entries([each for each in entries if not each.was_had], RELEASED)
        self.settle_entries([each for each in entries if each.was_had], MODIFIED_FAILED)

    def gone_for_good(self) -> None:
        """Records that a suspended session is dropped."""
        self.subscriptions.clear()
        self.queues.clear()
        self.unaccepted.clear()
        self.accepted_in_transaction.clear()
        self.publishing.held.clear()
        self.publishing.inlets.clear()

    handlers: ClassVar[Handlers] = {
        r.ExecutionSync: SubscribingSession.take_sync,
        r.ExecutionResult: _ignore,
        r.ExecutionException: _take_exception,
        r.MessageTransfer: _transfer,
        r.MessageAccept: SubscribingSession._accept,
        r.MessageReject: SubscribingSession._reject,
        r.MessageRelease: SubscribingSession._release,
        r.MessageAcquire: SubscribingSession._acquire,
        r.MessageResume: _resume,
        r.MessageSubscribe: SubscribingSession._subscribe,
        r.MessageCancel: SubscribingSession._cancel,
        r.MessageSetFlowMode: SubscribingSession._set_flow_mode,
        r.MessageFlow: SubscribingSession._flow,
        r.MessageFlush: SubscribingSession._flush,
        r.MessageStop: SubscribingSession._stop,
        r.TxSelect: _select,
        r.TxCommit: _commit,
        r.TxRollback: _roll_back,
        r.ExchangeDeclare: _declare_exchange,
        r.ExchangeDelete: _delete_exchange,
        r.ExchangeQuery: _query_exchange,
        r.ExchangeBind: _bind,
        r.ExchangeUnbind: _unbind,
        r.ExchangeBound: _bound,
        r.QueueDeclare: _declare_queue,
        r.QueueDelete: _delete_queue,
        r.QueuePurge: _purge_queue,
        r.QueueQuery: _query_queue,
        o.FileQos: SubscribingSession._file_qos,
        o.FileConsume: SubscribingSession._consume,
        o.FileCancel: SubscribingSession._cancel_consumer,
        o.FileOpen: SubscribingSession._open_file,
        o.FileOpenOk: SubscribingSession._go_on_with_file,
        o.FileStage: SubscribingSession._stage_file,
        o.FilePublish: _publish_file,
        o.FileAck: SubscribingSession._acknowledge_files,
        o.FileReject: SubscribingSession._reject_file,
        o.StreamQos: SubscribingSession._stream_qos,
        o.StreamConsume: SubscribingSession._consume,
        o.StreamCancel: SubscribingSession._cancel_consumer,
        o.StreamPublish: _publish_packet,
    }
