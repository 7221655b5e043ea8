"""Binding: queues of this connection to exchanges, and exchanges to each other.

Theory of operation. What a binding stands for is worked out in addresses (``exchanges``). A queue
that has its links is attached to those it did not stand for before; for one that nobody consumes
from they are asked for, so that a binding to what no route gives is refused when it is made.
"""

from typing import TYPE_CHECKING

from router.model.condition import Condition
from router.wire.v0_9_1 import methods as m
from router.wire.v0_9_1.asking import Asking
from router.wire.v0_9_1.exchanges import Binding, ExchangeBinding
from router.wire.v0_9_1.names import MATCHES, ExchangeType
from router.wire.v0_9_1.queues import Queue
from router.wire.v0_9_1.reply import PeerError, Reply
from router.wire.v0_9_1.types import Table

if TYPE_CHECKING:
    from router.wire.v0_9_1.server import ServerEngine
    from router.wire.v0_9_1.server_channel import ServerChannel


class Binder:
    """What one channel binds and unbinds."""

    def __init__(self, engine: "ServerEngine", channel: "ServerChannel", asking: Asking) -> None:
        self._engine = engine
        self._channel = channel
        self._asking = asking

    def bind_queue(self, method: m.QueueBind) -> None:
        """Adds to what a queue stands for (0-9-1 §1.7.2.3)."""
        engine = self._engine
        if not method.exchange:
            raise PeerError(
                Reply.ACCESS_REFUSED, "queues are bound to the default exchange by their names"
            )
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
        """Adds to what a queue stands for that is there."""
        engine, name = self._engine, queue.name
        binding = _queue_binding(queue, method)
        if binding in queue.bindings:
            self._channel.reply(m.QueueBindOk(), method.no_wait)
            return
        queue.bindings.append(binding)
        reached = queue.work_out()

        def bound() -> None:
            if name not in engine.queues:
                engine.add_queue(queue)
            self._channel.reply(m.QueueBindOk(), method.no_wait)

        def refused(condition: Condition) -> None:
            queue.bindings.remove(binding)
            queue.work_out()
            what = f"exchange {binding.exchange!r} with key {binding.routing_key!r}"
            raise self._asking.refusal(condition, what, (50, 20))

        if queue.is_open:
            self._asking.attach_all([(queue, each) for each in reached], bound, refused)
        else:
            self._asking.ask_all(reached, bound, refused)

    def _check_match(self, exchange: str, arguments: Table) -> None:
        """Refuses a binding to a headers exchange that does not say how it matches."""
        is_headers = self._engine.exchanges.get(exchange) is ExchangeType.HEADERS
        match = arguments.get("x-match", MATCHES[0])
        if is_headers and match not in MATCHES:
            raise PeerError(
                Reply.PRECONDITION_FAILED, f"x-match: {match!r} is none of {', '.join(MATCHES)}"
            )

    def unbind_queue(self, method: m.QueueUnbind) -> None:
        """Takes a binding out of what a queue stands for (0-9-1 §1.7.2.5)."""
        name = self._channel.name_of(method.queue)
        queue = self._engine.queues.get(name)
        if queue is None:
            answer = m.QueueUnbindOk()
            self._asking.find_queue(name, lambda: self._channel.send(answer), (50, 50))
            return
        gone = _queue_binding(queue, method)
        if gone in queue.bindings:
            queue.bindings.remove(gone)
            queue.work_out()
        self._channel.send(m.QueueUnbindOk())

    def bind_exchange(self, method: m.ExchangeBind) -> None:
        """Has queues that are bound to an exchange stand for its source, too (RabbitMQ)."""
        exchanges, queues = self._engine.exchanges, self._engine.queues
        binding = _exchange_binding(method)
        if binding.destination not in exchanges:
            raise PeerError(
                Reply.NOT_FOUND,
                f"exchange {binding.destination!r} was not declared on this connection",
            )
        self._check_match(method.source, method.arguments)
        if binding in exchanges.bindings:
            self._channel.reply(m.ExchangeBindOk(), method.no_wait)
            return

        def routed() -> None:
            exchanges.bindings.append(binding)
            reached = [(queue, each) for queue in queues.values() for each in queue.work_out()]
            self._asking.attach_all([one for one in reached if one[0].is_open], bound, refused)

        def bound() -> None:
            self._channel.reply(m.ExchangeBindOk(), method.no_wait)

        def refused(condition: Condition) -> None:
            if binding in exchanges.bindings:
                exchanges.bindings.remove(binding)
                self._engine.work_out_all()
            what = f"exchange {binding.source!r} with key {binding.routing_key!r}"
            raise self._asking.refusal(condition, what, (40, 30))

        self._asking.ask_all(exchanges.reached(binding), routed, refused)

    def unbind_exchange(self, method: m.ExchangeUnbind) -> None:
        """Takes an exchange's binding to another back (RabbitMQ)."""
        binding = _exchange_binding(method)
        if binding in self._engine.exchanges.bindings:
            self._engine.exchanges.bindings.remove(binding)
            self._engine.work_out_all()
        self._channel.reply(m.ExchangeUnbindOk(), method.no_wait)


def _queue_binding(queue: Queue, method: m.QueueBind | m.QueueUnbind) -> Binding:
    """Reads a binding; the last declared queue with no key is bound by its name (§1.7.2.3)."""
    key = method.routing_key or ("" if method.queue else queue.name)
    return Binding(method.exchange, key, method.arguments)


def _exchange_binding(method: m.ExchangeBind | m.ExchangeUnbind) -> ExchangeBinding:
    if not (method.source and method.destination):
        raise PeerError(Reply.ACCESS_REFUSED, "the default exchange is bound to queues alone")
    return ExchangeBinding(method.destination, method.source, method.routing_key, method.arguments)
