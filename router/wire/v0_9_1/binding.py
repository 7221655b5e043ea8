"""Binding: queues of this connection to exchanges, and exchanges to each other.

Theory of operation. A binding is resolved to addresses (``exchanges``). A queue that has its links
is attached to the addresses that are new; for a queue without consumers they are only asked for, so
that a binding to an address that no route has, or that the client may not receive from, is refused
at once. Until the core has answered, the binding is an `Attempt`: another channel that asks for the
same binding waits for the same answer.
"""

from collections.abc import Callable
from functools import partial

from router.model.condition import Condition
from router.wire.exchange_names import ExchangeType
from router.wire.v0_9_1 import methods as m
from router.wire.v0_9_1.asking import Asking
from router.wire.v0_9_1.client_channel import ClientChannel
from router.wire.v0_9_1.exchanges import Binding, ExchangeBinding
from router.wire.v0_9_1.names import MATCHES
from router.wire.v0_9_1.queues import Queue
from router.wire.v0_9_1.reply import PeerError, Reply
from router.wire.v0_9_1.server_links import ServerLinks
from router.wire.v0_9_1.types import Table
from router.wire.v0_9_1.waiting import Attempt, Waiter


class Binder:
    """The bindings of one channel."""

    def __init__(self, engine: ServerLinks, channel: ClientChannel, asking: Asking) -> None:
        self._engine = engine
        self._channel = channel
        self._asking = asking

    def bind_queue(self, method: m.QueueBind) -> None:
        """Adds a binding to a queue (0-9-1 §1.7.2.3)."""
        engine = self._engine
        self._check_match(method.exchange, method.arguments)
        name = self._channel.name_of(method.queue)
        queue = engine.queues.get(name)
        if queue is not None:
            self._bind(queue, method)
            return

        def found() -> None:
            self._bind(engine.queues.get(name) or Queue(engine, name, is_local=False), method)

        self._asking.find_queue(name, found, (50, 20))

    def _bind(self, queue: Queue, method: m.QueueBind) -> None:
        """Adds a binding to a known queue."""
        engine, name = self._engine, queue.name
        binding = _queue_binding(queue, method)
        if _is_default(queue, binding):
            self._channel.reply(m.QueueBindOk(), method.no_wait)
            return

        def bound() -> None:
            if name not in engine.queues and not queue.is_deleted:
                engine.add_queue(queue)
            self._channel.reply(m.QueueBindOk(), method.no_wait)

        def undo() -> None:
            if binding in queue.bindings:
                queue.bindings.remove(binding)
                queue.work_out()

        def refused(condition: Condition) -> None:
            what = f"exchange {binding.exchange!r} with key {binding.routing_key!r}"
            raise self._asking.refusal(condition, what, (50, 20))

        if self._waits_for_another(queue, binding, Waiter(self._channel, bound, refused)):
            return
        if binding in queue.bindings:
            bound()
            return
        queue.bindings.append(binding)
        queue.work_out()
        reached = list(engine.exchanges.reached(binding))  # some may be asked for already
        accepted, not_accepted = self._begin(queue, binding, bound, undo, refused)
        if queue.is_open:
            self._asking.attach_all([(queue, each) for each in reached], accepted, not_accepted)
        else:
            self._asking.ask_all(reached, accepted, not_accepted)

    def _waits_for_another(
        self, owner: object, binding: Binding | ExchangeBinding, waiter: Waiter
    ) -> bool:
        """Waits with a channel that has asked for the same binding; returns whether one has."""
        for attempt in self._engine.attempts:
            if attempt.owner is owner and attempt.binding == binding:
                attempt.waiting.append(waiter)
                self._channel.park()
                return True
        return False

    def _begin(
        self,
        owner: object,
        binding: Binding | ExchangeBinding,
        bound: Callable[[], None],
        undo: Callable[[], None],
        refused: Callable[[Condition], None],
    ) -> tuple[Callable[[], None], Callable[[Condition], None]]:
        """Begins an attempt; returns the callbacks for the core's acceptance and refusal."""
        engine = self._engine
        attempt = Attempt(owner, binding)
        engine.attempts.append(attempt)

        def accepted() -> None:
            engine.attempts.remove(attempt)
            for each in attempt.waiting:
                engine.guard(each.channel, each.channel.go_on, each.accepted)
            bound()

        def not_accepted(condition: Condition) -> None:
            engine.attempts.remove(attempt)
            undo()
            for each in attempt.waiting:
                refusal = partial(each.refused, condition)
                engine.guard(each.channel, each.channel.go_on, refusal)
            refused(condition)

        return accepted, not_accepted

    def _check_match(self, exchange: str, arguments: Table) -> None:
        """Refuses a binding to a headers exchange with an invalid ``x-match``."""
        is_headers = self._engine.exchanges.get(exchange) is ExchangeType.HEADERS
        match = arguments.get("x-match", MATCHES[0])
        if is_headers and match not in MATCHES:
            raise PeerError(
                Reply.PRECONDITION_FAILED, f"x-match: {match!r} is none of {', '.join(MATCHES)}"
            )

    def unbind_queue(self, method: m.QueueUnbind) -> None:
        """Removes a binding from a queue (0-9-1 §1.7.2.5)."""
        name = self._channel.name_of(method.queue)
        queue = self._engine.queues.get(name)
        if queue is None:
            answer = m.QueueUnbindOk()
            self._asking.find_queue(name, lambda: self._channel.send(answer), (50, 50))
            return
        gone = _queue_binding(queue, method)
        if _is_default(queue, gone):
            raise PeerError(
                Reply.ACCESS_REFUSED, "every queue is bound to the default exchange by its name"
            )
        if gone in queue.bindings:
            queue.bindings.remove(gone)
            queue.work_out()
        self._channel.send(m.QueueUnbindOk())

    def bind_exchange(self, method: m.ExchangeBind) -> None:
        """Binds an exchange to its source, for all queues that are bound to it (RabbitMQ)."""
        exchanges, queues = self._engine.exchanges, self._engine.queues
        binding = _exchange_binding(method)
        if binding.destination not in exchanges:
            raise PeerError(
                Reply.NOT_FOUND,
                f"exchange {binding.destination!r} was not declared on this connection",
            )
        self._check_match(method.source, method.arguments)

        def bound() -> None:
            self._channel.reply(m.ExchangeBindOk(), method.no_wait)

        def undo() -> None:
            if binding in exchanges.bindings:
                exchanges.bindings.remove(binding)
                self._engine.work_out_all()

        def refused(condition: Condition) -> None:
            what = f"exchange {binding.source!r} with key {binding.routing_key!r}"
            raise self._asking.refusal(condition, what, (40, 30))

        if self._waits_for_another(exchanges, binding, Waiter(self._channel, bound, refused)):
            return
        if binding in exchanges.bindings:
            bound()
            return
        accepted, not_accepted = self._begin(exchanges, binding, bound, undo, refused)

        def routed() -> None:
            exchanges.bindings.append(binding)
            reached = [(queue, each) for queue in queues.values() for each in queue.work_out()]
            self._asking.attach_all(
                [one for one in reached if one[0].is_open], accepted, not_accepted
            )

        self._asking.ask_all(exchanges.reached(binding), routed, not_accepted)

    def unbind_exchange(self, method: m.ExchangeUnbind) -> None:
        """Removes an exchange's binding to another (RabbitMQ)."""
        binding = _exchange_binding(method)
        if binding in self._engine.exchanges.bindings:
            self._engine.exchanges.bindings.remove(binding)
            self._engine.work_out_all()
        self._channel.reply(m.ExchangeUnbindOk(), method.no_wait)


def _queue_binding(queue: Queue, method: m.QueueBind | m.QueueUnbind) -> Binding:
    """Reads a binding; the last declared queue with no key is bound by its name (§1.7.2.3).

    Every queue is bound so to the default exchange, where the key is the name of a queue.
    """
    is_named = bool(method.queue and method.exchange)
    key = method.routing_key or ("" if is_named else queue.name)
    return Binding(method.exchange, key, method.arguments)


def _is_default(queue: Queue, binding: Binding) -> bool:
    """Returns whether a binding is the one that every queue has (§1.7.2.1.1)."""
    return not binding.exchange and binding.routing_key == queue.name


def _exchange_binding(method: m.ExchangeBind | m.ExchangeUnbind) -> ExchangeBinding:
    if not (method.source and method.destination):
        raise PeerError(Reply.ACCESS_REFUSED, "the default exchange is bound to queues alone")
    return ExchangeBinding(method.destination, method.source, method.routing_key, method.arguments)
