"""Declaring and binding: what a client says of exchanges and queues, held against the routes.

Theory of operation. A router makes no queues and no exchanges; its routing table is there before
any client. So declare and bind are questions whether something is there, put to the core in the
one form it answers: an attach. To declare a queue is to attach as a sender to its name and to
detach again; to consume, or to bind a local queue, is to attach as a receiver and stay.

Exchanges are names: the first part of an address, and the way that it is made (``names``). To
declare one teaches this connection its type and promises nothing, for routes, not exchanges,
decide where a message goes; a passive declare asks whether the exchange's own address is routed.

Local queues (server-named, exclusive or auto-delete) live and die with the connection, which a
router can promise. A server-named one is a dynamic node of the core's (AMQP 1.0 §3.5.10).
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import attrs

from router.model import condition as conditions
from router.model.commands import AttachLink
from router.model.condition import Condition
from router.model.events import LinkAttached, LinkDetached
from router.model.identity import LinkName
from router.model.terminus import ALL_OUTCOMES, Role, Source, Target
from router.wire.v0_9_1 import methods as m
from router.wire.v0_9_1.exchanges import Binding, ExchangeBinding, Reach
from router.wire.v0_9_1.getting import Getter
from router.wire.v0_9_1.names import PREDECLARED, ExchangeType
from router.wire.v0_9_1.outlets import Outlet, Watch
from router.wire.v0_9_1.queues import Queue
from router.wire.v0_9_1.reply import PeerError, Reply, channel_reply

if TYPE_CHECKING:
    from router.wire.v0_9_1.server import ServerEngine
    from router.wire.v0_9_1.server_channel import ServerChannel

STORAGE_ARGUMENTS: Final = frozenset(
    {
        "x-message-ttl",
        "x-max-length",
        "x-max-length-bytes",
        "x-overflow",
        "x-dead-letter-exchange",
        "x-dead-letter-routing-key",
        "x-dead-letter-strategy",
        "x-delivery-limit",
        "x-max-priority",
        "x-single-active-consumer",
    }
)
"""Arguments that ask a queue for what only a store of messages can do."""

LEARNED_TYPES: Final = frozenset(ExchangeType) - {ExchangeType.DIRECT}
"""Types that a passive declare tells us, too: RabbitMQ's federation declares no other way."""


@attrs.define(eq=False)
class Question:
    """An attach that the core has yet to answer.

    Attributes:
        accepted: called with the answer.
        refused: called with the reason.
    """

    channel: "ServerChannel"
    accepted: Callable[[AttachLink], None]
    refused: Callable[[Condition], None]


class Declaring:
    """The questions of one channel."""

    def __init__(self, engine: "ServerEngine", channel: "ServerChannel") -> None:
        self._engine = engine
        self._channel = channel

    # --- asking -----------------------------------------------------------------------------------

    def _probe(
        self,
        address: str,
        role: Role,
        accepted: Callable[[], None],
        refused: Callable[[Condition], None],
    ) -> None:
        """Asks whether an address is routed, by a link that is detached again."""
        engine, channel = self._engine, self._channel
        link = engine.next_link()

        def detach(answer: AttachLink) -> None:
            engine.runs.add(LinkDetached(link, closed=True))
            channel.go_on(accepted)

        def refuse(condition: Condition) -> None:
            channel.go_on(lambda: refused(condition))

        engine.ask(link, Question(channel, detach, refuse))
        is_sender = role is Role.RECEIVER
        engine.runs.add(
            LinkAttached(
                link=link,
                name=LinkName(f"{channel.number}:{link}"),
                role=role,
                is_answer=False,
                source=Source(outcomes=ALL_OUTCOMES) if is_sender else Source(address=address),
                target=Target(address=address) if is_sender else Target(),
            )
        )
        channel.park()

    def _ask(
        self,
        queue: Queue,
        address: str,
        accepted: Callable[[], None],
        refused: Callable[[Condition], None],
    ) -> None:
        """Gets a queue an outlet that stays; at once if it has it already."""
        outlet = queue.outlets.get(address)
        if outlet is not None and outlet.is_attached:
            outlet.is_leaving = False
            accepted()
            return
        channel = self._channel

        def attached() -> None:
            channel.go_on(accepted)

        def not_attached(condition: Condition) -> None:
            channel.go_on(lambda: refused(condition))

        self._open(queue, address, attached, not_attached)
        channel.park()

    def _open(
        self,
        queue: Queue,
        address: str,
        accepted: Callable[[], None],
        refused: Callable[[Condition], None],
    ) -> None:
        """Gets a queue an outlet; nothing on the channel waits for it."""
        engine, channel = self._engine, self._channel
        outlet = queue.open_outlet(address, f"{channel.number}")

        def attach(answer: AttachLink) -> None:
            self._name(queue, outlet, answer)
            queue.detach_if_done(outlet)
            engine.review(queue)
            accepted()

        def refuse(condition: Condition) -> None:
            queue.forget(outlet)
            refused(condition)

        engine.ask(outlet.link, Question(channel, attach, refuse))

    # --- patterns ---------------------------------------------------------------------------------

    def _watch(
        self,
        queue: Queue,
        pattern: str,
        accepted: Callable[[], None],
        refused: Callable[[Condition], None],
        *,
        is_probe: bool = False,
    ) -> None:
        """Has a queue stand for a pattern; goes on when all that is in use of it is attached."""
        known = queue.watches.get(pattern)
        if known is not None:
            for address in known.addresses - queue.outlets.keys():
                self.reach(known, address)  # more of them are wanted now
            accepted()
            return
        engine, channel = self._engine, self._channel

        def begun() -> None:
            channel.go_on(accepted)

        def not_begun(condition: Condition) -> None:
            queue.watches.pop(pattern, None)
            channel.go_on(lambda: refused(condition))

        watch = Watch(
            engine.next_link(), queue, pattern, is_probe, accepted=begun, refused=not_begun
        )
        queue.watches[pattern] = watch
        engine.begin_watch(watch, channel)
        channel.park()

    def _probe_pattern(
        self, pattern: str, accepted: Callable[[], None], refused: Callable[[Condition], None]
    ) -> None:
        """Asks whether some route is for a pattern, by a watch that is ended again."""
        queue = Queue(self._engine, "", is_local=False)

        def routed() -> None:
            for watch in list(queue.watches.values()):
                queue.end_watch(watch)
            accepted()

        self._watch(queue, pattern, routed, refused, is_probe=True)

    def reach(self, watch: Watch, address: str) -> None:
        """Attaches a watch's queue to an address that somebody has begun to send to."""
        queue = watch.queue
        outlet = queue.outlets.get(address)
        if outlet is not None and outlet.is_attached:
            outlet.is_leaving = False
            self._engine.review(queue)
            return
        if not queue.wants(address):
            return  # another pattern on the way from the exchange does not match it
        watch.unanswered += 1

        def answered(condition: Condition | None = None) -> None:
            watch.unanswered -= 1
            self.settle_down(watch)

        self._open(queue, address, answered, answered)

    def settle_down(self, watch: Watch) -> None:
        """Goes on with what waits for a watch, if that has all its outlets."""
        accepted = watch.accepted
        if accepted is not None and not watch.unanswered:
            watch.accepted = watch.refused = None
            accepted()

    def _name(self, queue: Queue, outlet: Outlet, answer: AttachLink) -> None:
        """Takes the core's answer; a dynamic node has its name by it."""
        outlet.is_attached = True
        if not outlet.address and answer.source is not None and answer.source.address:
            del queue.outlets[""]
            outlet.address = queue.own_address = answer.source.address
            queue.name = queue.name or outlet.address
            queue.outlets[outlet.address] = outlet
            outlet.name_route(queue.name)

    def open_outlets(self, queue: Queue, then: Callable[[], None]) -> None:
        """Attaches a queue to all it stands for, then goes on; 404 if nothing of it is routed."""
        if queue.is_local:
            then()
            return
        waiting = sorted(queue.addresses)
        patterns = sorted(queue.patterns)
        refusals: list[Condition] = []

        def go_on() -> None:
            if queue.is_deleted:
                raise PeerError(Reply.NOT_FOUND, f"queue {queue.name!r} was deleted", 60, 20)
            if waiting:
                self._ask(queue, waiting.pop(), go_on, refused)
            elif patterns:
                self._watch(queue, patterns.pop(), go_on, refused)
            elif queue.outlets or queue.watches:
                then()
            else:
                raise self._refusal(refusals[0], f"queue {queue.name!r}", (60, 20))

        def refused(condition: Condition) -> None:
            refusals.append(condition)
            go_on()

        go_on()

    def open_getter(self, getter: Getter, then: Callable[[Getter], None]) -> None:
        """Attaches what gets from a routed queue, then goes on."""
        engine, channel = self._engine, self._channel
        if getter.outlet.is_attached:
            then(getter)
            return
        outlet = getter.outlet
        engine.ask_for_outlet(outlet, f"{channel.number}")

        def attach(answer: AttachLink) -> None:
            outlet.is_attached = True
            then(getter)

        def refuse(condition: Condition) -> None:
            channel.waits = False
            channel.getting.forget(getter)
            error = self._refusal(condition, f"queue {getter.queue!r}", (60, 70))
            engine.fault(error, channel)

        engine.ask(outlet.link, Question(channel, attach, refuse))
        channel.park()

    def _refusal(self, condition: Condition, what: str, index: tuple[int, int]) -> PeerError:
        return PeerError(channel_reply(condition), f"{what}: {condition}", *index)

    # --- exchanges --------------------------------------------------------------------------------

    def declare_exchange(self, method: m.ExchangeDeclare) -> None:
        """Learns an exchange's type, or tells whether it is there (0-9-1 §1.6.2.1)."""
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
        if "alternate-exchange" in method.arguments:
            raise PeerError(
                Reply.PRECONDITION_FAILED, "alternate-exchange: routes decide what is unroutable"
            )
        engine.exchanges[name] = kind
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
            # A client that asks with a type knows what it asks for; most leave it at direct.
            if method.type in LEARNED_TYPES:
                self._engine.exchanges.setdefault(name, ExchangeType(method.type))
                self._engine.forget_shapes()
            channel.reply(answer, method.no_wait)

        def refused(condition: Condition) -> None:
            raise self._refusal(condition, f"exchange {name!r}", (40, 10))

        self._probe(name, Role.RECEIVER, routed, refused)

    def delete_exchange(self, method: m.ExchangeDelete) -> None:
        """Forgets an exchange (0-9-1 §1.6.2.3); one that is not there is gone already."""
        if method.exchange in PREDECLARED:
            raise PeerError(Reply.ACCESS_REFUSED, f"exchange {method.exchange!r} is predeclared")
        self._engine.exchanges.forget(method.exchange)
        self._work_out_all()
        self._engine.forget_shapes()
        self._channel.reply(m.ExchangeDeleteOk(), method.no_wait)

    # --- queues -----------------------------------------------------------------------------------

    def declare_queue(self, method: m.QueueDeclare) -> None:
        """Makes a local queue, or tells whether a routed one is there (0-9-1 §1.7.2.1)."""
        name = self._channel.name_of("") if method.passive and not method.queue else method.queue
        known = self._engine.queues.get(name)
        if known is not None and known.is_local:
            self._check_equivalent(known, method)
            self._channel.getting.follow(known, lambda: self._declared(known.name, method.no_wait))
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
        waiting, consumers = (len(queue.backlog), len(queue.consumers)) if queue else (0, 0)
        self._channel.reply(m.QueueDeclareOk(name, waiting, consumers), no_wait)

    def _check_equivalent(self, queue: Queue, method: m.QueueDeclare) -> None:
        told = method.exclusive, method.auto_delete
        if not method.passive and told != (queue.is_exclusive, queue.auto_delete):
            raise PeerError(
                Reply.PRECONDITION_FAILED, f"queue {queue.name!r} was declared with other flags"
            )

    def _check_routed(self, name: str, method: m.QueueDeclare) -> None:
        def declared() -> None:
            self._declared(name, method.no_wait)

        def refused(condition: Condition) -> None:
            if condition.name == conditions.NOT_ALLOWED:
                declared()  # it is there, if not for everybody
                return
            raise self._refusal(condition, f"queue {name!r}", (50, 10))

        self._probe(name, Role.RECEIVER, declared, refused)

    def _new_local(self, name: str, method: m.QueueDeclare) -> Queue:
        asked = STORAGE_ARGUMENTS.intersection(method.arguments)
        if asked:
            raise PeerError(Reply.PRECONDITION_FAILED, f"{min(asked)}: a router stores no messages")
        return Queue(
            self._engine,
            name,
            is_local=True,
            is_exclusive=method.exclusive,
            auto_delete=method.auto_delete,
        )

    def _make_server_named(self, method: m.QueueDeclare) -> None:
        queue = self._new_local("", method)

        def attached() -> None:
            self._engine.add_queue(queue)
            self._declared(queue.name, method.no_wait)

        def refused(condition: Condition) -> None:
            raise self._refusal(condition, "a queue with a name of the server's", (50, 10))

        self._ask(queue, "", attached, refused)

    def _make_local(self, name: str, method: m.QueueDeclare) -> None:
        queue = self._new_local(name, method)

        def attached() -> None:
            self._engine.add_queue(queue)
            self._declared(name, method.no_wait)

        def not_made(condition: Condition) -> None:
            queue.own_address = ""  # its bindings are all that it stands for
            attached()

        def refused(condition: Condition) -> None:
            if condition.name == conditions.NOT_FOUND:
                self._ask(queue, "", attached, not_made)
            else:
                not_made(condition)

        self._ask(queue, name, attached, refused)

    # --- bindings ---------------------------------------------------------------------------------

    def bind_queue(self, method: m.QueueBind) -> None:
        """Adds to what a queue stands for (0-9-1 §1.7.2.3)."""
        engine = self._engine
        if not method.exchange:
            raise PeerError(
                Reply.ACCESS_REFUSED, "queues are bound to the default exchange by their names"
            )
        name = self._channel.name_of(method.queue)
        queue = engine.queues.get(name) or Queue(engine, name, is_local=False)
        binding = Binding(method.exchange, method.routing_key, method.arguments)
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
            raise self._refusal(condition, what, (50, 20))

        if self._is_open(queue):
            self._attach_all([(queue, each) for each in reached], bound, refused)
        else:
            self._ask_all(reached, bound, refused)

    @staticmethod
    def _is_open(queue: Queue) -> bool:
        return queue.is_local or bool(queue.consumers)

    def _attach_all(
        self,
        reached: list[tuple[Queue, Reach]],
        accepted: Callable[[], None],
        refused: Callable[[Condition], None],
    ) -> None:
        """Attaches queues to what they stand for, one after the other."""

        def go_on() -> None:
            if not reached:
                accepted()
                return
            queue, reach = reached.pop()
            attach = self._watch if reach.is_pattern else self._ask
            attach(queue, reach.address, go_on, refused)

        go_on()

    def _ask_all(
        self,
        reached: list[Reach],
        accepted: Callable[[], None],
        refused: Callable[[Condition], None],
    ) -> None:
        """Asks whether addresses could be attached to, one after the other."""

        def go_on() -> None:
            if not reached:
                accepted()
                return
            reach = reached.pop()
            if reach.is_pattern:
                self._probe_pattern(reach.address, go_on, refused)
            else:
                self._probe(reach.address, Role.SENDER, go_on, refused)

        go_on()

    def unbind_queue(self, method: m.QueueUnbind) -> None:
        """Takes a binding out of what a queue stands for (0-9-1 §1.7.2.5)."""
        name = self._channel.name_of(method.queue)
        queue = self._engine.queues.get(name)
        gone = Binding(method.exchange, method.routing_key, method.arguments)
        if queue is not None and gone in queue.bindings:
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
        if binding in exchanges.bindings:
            self._channel.reply(m.ExchangeBindOk(), method.no_wait)
            return

        def routed() -> None:
            exchanges.bindings.append(binding)
            reached = [(queue, each) for queue in queues.values() for each in queue.work_out()]
            self._attach_all([one for one in reached if self._is_open(one[0])], bound, refused)

        def bound() -> None:
            self._channel.reply(m.ExchangeBindOk(), method.no_wait)

        def refused(condition: Condition) -> None:
            if binding in exchanges.bindings:
                exchanges.bindings.remove(binding)
                self._work_out_all()
            what = f"exchange {binding.source!r} with key {binding.routing_key!r}"
            raise self._refusal(condition, what, (40, 30))

        self._ask_all(exchanges.reached(binding), routed, refused)

    def unbind_exchange(self, method: m.ExchangeUnbind) -> None:
        """Takes an exchange's binding to another back (RabbitMQ)."""
        binding = _exchange_binding(method)
        if binding in self._engine.exchanges.bindings:
            self._engine.exchanges.bindings.remove(binding)
            self._work_out_all()
        self._channel.reply(m.ExchangeUnbindOk(), method.no_wait)

    def _work_out_all(self) -> None:
        for queue in self._engine.queues.values():
            queue.work_out()


def _exchange_type(text: str) -> ExchangeType:
    try:
        return ExchangeType(text)
    except ValueError:
        raise PeerError(Reply.COMMAND_INVALID, f"unknown exchange type {text!r}") from None


def _exchange_binding(method: m.ExchangeBind | m.ExchangeUnbind) -> ExchangeBinding:
    if not (method.source and method.destination):
        raise PeerError(Reply.ACCESS_REFUSED, "the default exchange is bound to queues alone")
    return ExchangeBinding(method.destination, method.source, method.routing_key, method.arguments)
