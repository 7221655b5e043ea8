"""Declaring exchanges and queues, which is checked against the routes.

Theory of operation. A router creates no queues and no exchanges; its routing table exists before
any client. So a declare asks whether something exists (``asking``).

Exchanges are names: the first part of an address, and the way it is formed (``names``). A declare
tells this connection the type of an exchange and promises nothing, because routes, not exchanges,
decide where a message goes; a passive declare asks whether the exchange's own address is routed.

Local queues (server-named, exclusive or auto-delete) last as long as the connection, which a router
can promise. A server-named queue is a dynamic node of the core's (AMQP 1.0 §3.5.10), and so is one
whose name no route has: only this connection can reach it by its name.
"""

from typing import Final

from router.model import condition as conditions
from router.model.condition import Condition
from router.model.terminus import Role
from router.wire.exchange_names import PREDECLARED, ExchangeType
from router.wire.v0_9_1 import methods as m
from router.wire.v0_9_1.asking import Asking
from router.wire.v0_9_1.client_channel import ClientChannel
from router.wire.v0_9_1.getting import Getting
from router.wire.v0_9_1.keeping import Offer
from router.wire.v0_9_1.limits import limits_of
from router.wire.v0_9_1.names import DIRECT_REPLIES
from router.wire.v0_9_1.queues import Queue
from router.wire.v0_9_1.reply import PeerError, Reply
from router.wire.v0_9_1.server_links import ServerLinks

LEARNED_TYPES: Final = frozenset(ExchangeType) - {ExchangeType.DIRECT}
"""Types that are learned from a passive declare as well: RabbitMQ's federation uses no other."""


class Declaring:
    """The declares and deletes of one channel."""

    def __init__(
        self, engine: ServerLinks, channel: ClientChannel, asking: Asking, getting: Getting
    ) -> None:
        self._engine = engine
        self._channel = channel
        self._getting = getting
        self._asking = asking

    # --- exchanges --------------------------------------------------------------------------------

    def declare_exchange(self, method: m.ExchangeDeclare) -> None:
        """Records an exchange's type, or reports whether it exists (0-9-1 §1.6.2.1)."""
        name, engine = method.exchange, self._engine
        known = engine.exchanges.get(name)
        if method.passive:
            self._check_exchange(method, known)
            return
        kind = _exchange_type(method.type)
        if not name or (name.startswith("amq.") and name not in PREDECLARED):
            raise PeerError(Reply.ACCESS_REFUSED, f"the exchange name {name!r} is reserved")
        if known is not None and known is not kind:
            raise PeerError(
                Reply.PRECONDITION_FAILED,
                f"exchange {name!r} is of type {known.value}, not {kind.value}",
            )
        flags = method.durable, method.auto_delete, method.internal
        if engine.exchanges.flags.get(name, flags) != flags:
            raise PeerError(
                Reply.PRECONDITION_FAILED,
                f"exchange {name!r} was declared with other flags (durable, auto-delete, internal)",
            )
        if "alternate-exchange" in method.arguments:
            raise PeerError(
                Reply.PRECONDITION_FAILED, "alternate-exchange: routes decide what is unroutable"
            )
        engine.exchanges[name] = kind
        engine.exchanges.flags[name] = flags
        if method.internal:
            engine.exchanges.internal.add(name)
        engine.forget_shapes()
        self._channel.reply(m.ExchangeDeclareOk(), method.no_wait)

    def _check_exchange(self, method: m.ExchangeDeclare, known: ExchangeType | None) -> None:
        channel, name = self._channel, method.exchange
        answer = m.ExchangeDeclareOk()
        if known is not None:
            channel.reply(answer, method.no_wait)
            return

        def routed() -> None:
            # A client that gives a type knows which it expects; most leave it at direct.
            if method.type in LEARNED_TYPES:
                self._engine.exchanges.setdefault(name, ExchangeType(method.type))
                self._engine.forget_shapes()
            channel.reply(answer, method.no_wait)

        def refused(condition: Condition) -> None:
            raise self._asking.refusal(condition, f"exchange {name!r}", (40, 10))

        self._asking.probe(name, Role.RECEIVER, routed, refused)

    def delete_exchange(self, method: m.ExchangeDelete) -> None:
        """Forgets an exchange and its bindings (0-9-1 §1.6.2.3), if it is known."""
        if method.exchange in PREDECLARED:
            raise PeerError(Reply.ACCESS_REFUSED, f"exchange {method.exchange!r} is predeclared")
        if method.if_unused and self._is_used(method.exchange):
            raise PeerError(Reply.PRECONDITION_FAILED, f"exchange {method.exchange!r} has bindings")
        self._engine.exchanges.forget(method.exchange)
        for queue in self._engine.queues.values():
            queue.bindings = [one for one in queue.bindings if one.exchange != method.exchange]
        self._engine.work_out_all()
        self._engine.forget_shapes()
        self._channel.reply(m.ExchangeDeleteOk(), method.no_wait)

    def _is_used(self, exchange: str) -> bool:
        """Returns whether something of this connection is bound to an exchange."""
        bindings = (one for queue in self._engine.queues.values() for one in queue.bindings)
        return any(one.exchange == exchange for one in bindings) or any(
            one.source == exchange for one in self._engine.exchanges.bindings
        )

    # --- queues -----------------------------------------------------------------------------------

    def declare_queue(self, method: m.QueueDeclare) -> None:
        """Creates a local queue, or reports whether a routed one exists (0-9-1 §1.7.2.1)."""
        name = self._channel.name_of("") if method.passive and not method.queue else method.queue
        known = self._engine.queues.get(name)
        if known is not None and known.is_local:
            self._check_equivalent(known, method)
            known.used()
            self._getting.follow(known, lambda: self._declared(known.name, method.no_wait))
        elif name == DIRECT_REPLIES:
            self._declared(name, method.no_wait)
        elif method.passive:
            self._check_routed(name, method)
        elif not name:
            self._make_server_named(method)
        elif name.startswith("amq."):
            raise PeerError(Reply.ACCESS_REFUSED, f"the queue name {name!r} is reserved")
        elif method.exclusive or method.auto_delete:
            self._make_local(name, method)
        else:
            self._check_routed(name, method)

    def _declared(self, name: str, no_wait: bool) -> None:
        self._channel.queue_name = name
        queue = self._engine.queues.get(name)
        waiting, consumers = 0, 0
        if queue is not None:
            waiting, consumers = self._getting.count(queue), len(queue.consumers)
        self._channel.reply(m.QueueDeclareOk(name, waiting, consumers), no_wait)

    def _check_equivalent(self, queue: Queue, method: m.QueueDeclare) -> None:
        if method.passive:
            return
        asked = method.exclusive, method.auto_delete
        if asked != (queue.is_exclusive, queue.auto_delete):
            raise PeerError(
                Reply.PRECONDITION_FAILED, f"queue {queue.name!r} was declared with other flags"
            )
        if limits_of(method.arguments) != queue.limits:
            raise PeerError(
                Reply.PRECONDITION_FAILED, f"queue {queue.name!r} was declared with other arguments"
            )

    def _check_routed(self, name: str, method: m.QueueDeclare) -> None:
        self._asking.find_queue(name, lambda: self._declared(name, method.no_wait), (50, 10))

    def _new_local(self, name: str, method: m.QueueDeclare) -> Queue:
        return Queue(
            self._engine,
            name,
            is_local=True,
            is_exclusive=method.exclusive,
            auto_delete=method.auto_delete,
            limits=limits_of(method.arguments),
        )

    def _make_server_named(self, method: m.QueueDeclare) -> None:
        queue = self._new_local("", method)

        def attached() -> None:
            self._engine.add_queue(queue)
            self._declared(queue.name, method.no_wait)

        def refused(condition: Condition) -> None:
            raise self._asking.refusal(condition, "a queue with a name of the server's", (50, 10))

        self._asking.ask(queue, "", attached, refused)

    def _make_local(self, name: str, method: m.QueueDeclare) -> None:
        queue = self._new_local(name, method)

        def attached() -> None:
            if queue.is_shared and not queue.outlets[name].is_exact:
                queue.offer = Offer(self._engine, queue, self._channel)
                self._engine.keepers[queue.own_address] = queue
            self._engine.add_queue(queue)
            self._declared(name, method.no_wait)

        def not_made(condition: Condition) -> None:
            queue.own_address = ""  # its bindings are its only addresses
            attached()

        def refused(condition: Condition) -> None:
            if condition.name == conditions.NOT_FOUND:
                self._asking.ask(queue, "", attached, not_made)
            else:
                not_made(condition)

        self._asking.ask(queue, name, attached, refused)


def _exchange_type(text: str) -> ExchangeType:
    try:
        return ExchangeType(text)
    except ValueError:
        raise PeerError(Reply.COMMAND_INVALID, f"unknown exchange type {text!r}") from None
