"""Declaring, binding and querying exchanges and queues, which are checked against the routes.

Theory of operation. A router creates no queues and no exchanges; its routing table exists before
any client. So declare and query ask whether something exists (``router.wire.asking``). To ask for a
queue is to attach as a sender to its name and to detach again; to subscribe, or to bind a local
queue, is to attach as a receiver and stay.

Exchanges are names: the first part of an address, and the way it is formed (``names``). A declare
tells this session the type of an exchange and promises nothing, because routes, not exchanges,
decide where a message goes; a query returns what was declared.

What a router cannot implement is refused, with the error code that the class specifies::

    queue.declare of a durable or shared name without a route      not-found
    local queues with arguments that ask for storage               not-implemented
    queue.purge, queue.delete, bindings of a routed queue          not-allowed: it is shared
    bindings to an address without a route                         not-found
    alternate exchanges                                            not-implemented

Bindings with wildcards are handled by ``watching``.
"""

from collections.abc import Callable

from router.model import condition as conditions
from router.model.commands import AttachLink
from router.model.condition import Condition
from router.model.terminus import Role
from router.wire.asking import Question, probe, trial
from router.wire.exchange_names import PREDECLARED, ExchangeType, address_of
from router.wire.topics import has_wildcards
from router.wire.v0_10 import records as r
from router.wire.v0_10.bindings import Binding
from router.wire.v0_10.client_session import ClientSession
from router.wire.v0_10.publishing import Publishing
from router.wire.v0_10.queues import Queue
from router.wire.v0_10.reply import ErrorCode, SessionFaultError, error_code
from router.wire.v0_10.types import Table
from router.wire.v0_10.watching import Watching

HARMLESS_ARGUMENTS = frozenset({"qpid.auto_delete_timeout", "qpid.file_count", "qpid.file_size"})
"""Arguments of queues that require nothing beyond what a session's queue does."""


class Declaring:
    """The declares, bindings and queries of one session."""

    def __init__(self, session: ClientSession, publishing: Publishing, watching: Watching) -> None:
        self._session = session
        self._publishing = publishing
        self._watching = watching

    # --- asking -----------------------------------------------------------------------------------

    def _probe(
        self,
        address: str,
        accepted: Callable[[], None],
        refused: Callable[[Condition], None],
    ) -> None:
        """Asks whether an address is routed, by a link that is detached at once."""
        session, engine = self._session, self._session.server
        link = engine.next_link()
        attach = trial(link, f"{link}?{address}", address, Role.RECEIVER)
        probe(engine, session, attach, accepted, refused)

    def open_outlet(
        self,
        queue: Queue,
        address: str,
        label: str,
        accepted: Callable[[], None],
        refused: Callable[[Condition], None],
    ) -> None:
        """Attaches a lasting outlet for a queue; continues at once if it has one."""
        outlet = queue.outlets.get(address)
        if outlet is not None and outlet.is_attached:
            outlet.is_leaving = False
            accepted()
            return
        session = self._session
        outlet = queue.open_outlet(address, label)

        def attach(answer: AttachLink) -> None:
            queue.attached(outlet, answer)
            queue.detach_if_done(outlet)
            session.review(queue)
            session.go_on(accepted)

        def refuse(condition: Condition) -> None:
            queue.forget(outlet)
            session.go_on(lambda: refused(condition))

        session.server.ask(outlet.link, Question(session, attach, refuse))
        session.park()

    def _fault(self, number: int, condition: Condition, what: str) -> SessionFaultError:
        session = self._session
        return SessionFaultError(
            error_code(condition), f"{what}: {condition}", *session.codes(number), number
        )

    # --- exchanges --------------------------------------------------------------------------------

    def declare_exchange(self, number: int, command: r.ExchangeDeclare) -> None:
        """Records an exchange's type, or checks that it exists (0-10 exchange.declare)."""
        name, session = command.exchange or "", self._session
        known = session.exchanges.get(name)
        if not name:
            raise SessionFaultError(ErrorCode.INVALID_ARGUMENT, "an exchange needs a name")
        if command.passive:
            self._check_exchange(number, name, known)
            return
        kind = _exchange_type(command.type or "")
        if name.startswith("amq.") and name not in PREDECLARED:
            raise SessionFaultError(
                ErrorCode.NOT_ALLOWED, f"the exchange name {name!r} is reserved"
            )
        if known is not None and known is not kind:
            raise SessionFaultError(
                ErrorCode.NOT_ALLOWED,
                f"exchange {name!r} is of type {known.value}, not {kind.value}",
            )
        if command.alternate_exchange:
            raise SessionFaultError(
                ErrorCode.NOT_IMPLEMENTED, "alternate-exchange: routes decide what is unroutable"
            )
        _check_arguments(command.arguments)
        if known is None and not command.durable:
            session.transient.add(name)
        session.exchanges[name] = kind
        self._publishing.shapes.clear()
        session.complete(number)

    def _check_exchange(self, number: int, name: str, known: ExchangeType | None) -> None:
        session = self._session
        if known is not None:
            session.complete(number)
            return

        def refused(condition: Condition) -> None:
            raise self._fault(number, condition, f"exchange {name!r}")

        self._probe(name, lambda: session.complete(number), refused)

    def delete_exchange(self, number: int, command: r.ExchangeDelete) -> None:
        """Forgets an exchange (0-10 exchange.delete)."""
        name, session = command.exchange or "", self._session
        if not name:
            raise SessionFaultError(ErrorCode.INVALID_ARGUMENT, "an exchange needs a name")
        if name in PREDECLARED:
            raise SessionFaultError(ErrorCode.NOT_ALLOWED, f"exchange {name!r} is predeclared")
        if name not in session.exchanges:
            raise SessionFaultError(ErrorCode.NOT_FOUND, f"no exchange {name!r} was declared here")
        bound = [
            (queue, binding)
            for queue in session.queues.values()
            for binding in queue.bindings
            if binding.exchange == name
        ]
        if command.if_unused and bound:
            raise SessionFaultError(ErrorCode.PRECONDITION_FAILED, f"{name!r} has bindings")
        for queue, binding in bound:
            self._let_go(queue, [each for each in queue.bindings if each is not binding])
        self._publishing.shapes.clear()
        session.transient.discard(name)
        del session.exchanges[name]
        session.complete(number)

    def query_exchange(self, number: int, command: r.ExchangeQuery) -> None:
        """Answers with this session's knowledge of an exchange (0-10 exchange.query)."""
        known = self._session.exchanges.get(command.name or "")
        if known is None:
            found = r.ExchangeQueryResult(not_found=True)
        else:
            durable = command.name not in self._session.transient
            found = r.ExchangeQueryResult(type=known.value, durable=durable)
        self._session.result(number, found)

    # --- queues -----------------------------------------------------------------------------------

    def declare_queue(self, number: int, command: r.QueueDeclare) -> None:
        """Creates a local queue, or checks that a routed one exists (0-10 queue.declare)."""
        name, session = command.queue or "", self._session
        known = session.queues.get(name)
        if not name:
            raise SessionFaultError(ErrorCode.INVALID_ARGUMENT, "a queue needs a name")
        if command.alternate_exchange:
            raise SessionFaultError(
                ErrorCode.NOT_IMPLEMENTED, "alternate-exchange: routes decide what is unroutable"
            )
        self.check_exclusive(name)
        if known is not None:
            if not command.passive and command.exclusive is not known.is_exclusive:
                raise SessionFaultError(
                    ErrorCode.NOT_ALLOWED, f"queue {name!r} was declared with other flags"
                )
            session.complete(number)
        elif name.startswith("amq.") and not command.passive:
            raise SessionFaultError(ErrorCode.NOT_ALLOWED, f"the queue name {name!r} is reserved")
        elif not command.passive and (command.exclusive or command.auto_delete):
            self._make_local(number, name, command)
        else:
            if not command.passive:
                _check_arguments(command.arguments)
            self._ask_for_queue(number, name, lambda: session.complete(number))

    def _ask_for_queue(self, number: int, name: str, then: Callable[[], None]) -> None:
        def refused(condition: Condition) -> None:
            if condition.name != conditions.NOT_ALLOWED:
                raise self._fault(number, condition, f"queue {name!r}")
            then()  # it exists, though not for every user

        self._probe(name, then, refused)

    def _make_local(self, number: int, name: str, command: r.QueueDeclare) -> None:
        session = self._session
        _check_arguments(command.arguments)
        queue = Queue(
            session,
            name,
            is_local=True,
            is_exclusive=command.exclusive,
            auto_delete=command.auto_delete,
        )

        def made() -> None:
            session.queues[name] = queue
            session.server.forget_shapes()
            session.complete(number)

        def refused(condition: Condition) -> None:
            if condition.name == conditions.RESOURCE_LOCKED:
                raise self._fault(number, condition, f"queue {name!r}")
            queue.has_own_address = False  # no route has it: only this connection can use the name
            queue.takes_own = True
            made()

        self.open_outlet(queue, name, name, made, refused)

    def check_exclusive(self, name: str) -> None:
        """Refuses a queue that is exclusive to another session (queue.declare, in-use)."""
        if self._session.server.is_exclusive_elsewhere(name, self._session):
            raise SessionFaultError(
                ErrorCode.RESOURCE_LOCKED, f"queue {name!r} is another session's alone"
            )

    def with_own_queue(
        self, number: int, name: str, verb: str, then: Callable[[Queue], None]
    ) -> None:
        """Continues with a local queue; refuses others: they cannot be changed, or do not exist."""
        if not name:
            raise SessionFaultError(ErrorCode.INVALID_ARGUMENT, "a queue needs a name")
        self.check_exclusive(name)
        queue = self._session.queues.get(name)
        if queue is not None:
            then(queue)
            return

        def is_there() -> None:
            text = f"{name!r} is no queue of this session; a router holds none that could be {verb}"
            codes = self._session.codes(number)
            raise SessionFaultError(ErrorCode.NOT_ALLOWED, text, *codes, number)

        self._ask_for_queue(number, name, is_there)

    def with_exchange(self, number: int, name: str, then: Callable[[], None]) -> None:
        """Continues if an exchange exists: declared on the connection, or in a route."""
        if self._session.server.knows_exchange(name):
            then()
            return

        def refused(condition: Condition) -> None:
            raise self._fault(number, condition, f"exchange {name!r}")

        self._probe(name, then, refused)

    def query_queue(self, number: int, command: r.QueueQuery) -> None:
        """Answers whether a queue exists, and how many messages wait in it (0-10 queue.query)."""
        name, session = command.queue or "", self._session
        queue = session.queues.get(name)
        if queue is not None:
            queue.drop_all_expired()
            found = r.QueueQueryResult(
                queue=name,
                exclusive=queue.is_exclusive,
                auto_delete=queue.auto_delete,
                message_count=len(queue.backlog),
                subscriber_count=len(queue.subscriptions),
            )
            session.result(number, found)
            return
        there = r.QueueQueryResult(
            queue=name, durable=True, message_count=0, subscriber_count=session.subscribers(name)
        )
        missing = r.QueueQueryResult()

        def refused(condition: Condition) -> None:
            is_there = condition.name == conditions.NOT_ALLOWED
            session.result(number, there if is_there else missing)

        if name:
            self._probe(name, lambda: session.result(number, there), refused)
        else:
            session.result(number, missing)

    # --- bindings ---------------------------------------------------------------------------------

    def bind(self, number: int, command: r.ExchangeBind) -> None:
        """Adds an address to a local queue (0-10 exchange.bind)."""
        name = command.queue or ""
        self.with_own_queue(number, name, "bound", lambda queue: self._bind(number, command, queue))

    def _bind(self, number: int, command: r.ExchangeBind, queue: Queue) -> None:
        session = self._session
        binding = self._binding(command)
        if (binding.exchange, binding.key) in {
            (each.exchange, each.key) for each in queue.bindings
        }:
            session.complete(number)  # bound already; the arguments are not changed
            return

        def bound() -> None:
            queue.bindings.append(binding)
            self._filter(queue, binding.address)
            session.complete(number)

        def refused(condition: Condition) -> None:
            what = f"exchange {binding.exchange!r} with key {binding.key!r}"
            raise self._fault(number, condition, what)

        if binding.is_pattern:
            self._watching.begin(queue, binding, bound, refused)
        else:
            self.open_outlet(queue, binding.address, queue.name, bound, refused)

    def _binding(self, command: r.ExchangeBind | r.ExchangeUnbind) -> Binding:
        exchange, key = command.exchange or "", command.binding_key or ""
        if not exchange:
            raise SessionFaultError(
                ErrorCode.INVALID_ARGUMENT,
                "queues are bound to the default exchange by their names",
            )
        kind = self._session.exchanges.get(exchange)
        is_pattern = has_wildcards(key) and kind in (None, ExchangeType.TOPIC)
        arguments = getattr(command, "arguments", None) or {}
        address = address_of(exchange, key, kind)
        if kind is not ExchangeType.HEADERS:
            _check_arguments(arguments)
            arguments = {}
        return Binding(exchange, key, arguments, address, is_pattern)

    def _filter(self, queue: Queue, address: str) -> None:
        """Sets the filters of an outlet from the bindings that share it."""
        outlet = queue.outlets.get(address)
        if outlet is not None:
            kinds = self._session.exchanges
            outlet.filters = [
                binding.arguments
                for binding in queue.bindings
                if binding.address == address
                and kinds.get(binding.exchange) is ExchangeType.HEADERS
            ]

    def unbind(self, number: int, command: r.ExchangeUnbind) -> None:
        """Removes an address from a local queue (0-10 exchange.unbind)."""
        name = command.queue or ""
        self.with_own_queue(
            number, name, "unbound", lambda queue: self._unbind(number, command, queue)
        )

    def _unbind(self, number: int, command: r.ExchangeUnbind, queue: Queue) -> None:
        exchange, key = command.exchange or "", command.binding_key or ""
        if not exchange:
            raise SessionFaultError(ErrorCode.INVALID_ARGUMENT, "an exchange needs a name")
        rest = [each for each in queue.bindings if (each.exchange, each.key) != (exchange, key)]
        if len(rest) == len(queue.bindings):
            raise SessionFaultError(
                ErrorCode.NOT_FOUND, f"{queue.name!r} is not bound to {exchange!r} with {key!r}"
            )
        self._let_go(queue, rest)
        self._session.complete(number)

    def _let_go(self, queue: Queue, rest: list[Binding]) -> None:
        """Sets a queue's bindings, and closes outlets that only others needed."""
        queue.bindings = rest
        for pattern in queue.watches.keys() - {each.address for each in rest if each.is_pattern}:
            self._watching.end(queue.watches[pattern])
        for address in list(queue.outlets):
            queue.let_go(address)
            self._filter(queue, address)

    def bound(self, number: int, command: r.ExchangeBound) -> None:
        """Answers which bindings exist, as this session knows (0-10 exchange.bound)."""
        session = self._session
        exchange, name = command.exchange or "", command.queue or ""
        queue = session.queues.get(name)
        all_bindings = session.all_bindings()
        knows_exchange = session.server.knows_exchange(exchange) or any(
            each.exchange == exchange for each in all_bindings
        )
        if queue is not None or not name:
            bindings = queue.bindings if queue is not None else all_bindings
            session.result(number, _matching(command, bindings, knows_exchange, is_there=True))
            return

        def answer(is_there: bool) -> None:
            session.result(number, _matching(command, [], knows_exchange, is_there=is_there))

        self._probe(
            name,
            lambda: answer(True),
            lambda condition: answer(condition.name == conditions.NOT_ALLOWED),
        )


def _check_arguments(arguments: Table | None) -> None:
    """Refuses unknown arguments (unknown-argument)."""
    table = arguments or {}
    asked = [each for each, value in table.items() if value and each not in HARMLESS_ARGUMENTS]
    if asked:
        raise SessionFaultError(ErrorCode.NOT_IMPLEMENTED, f"argument {min(asked)!r}")


def _matching(
    command: r.ExchangeBound, bindings: list[Binding], knows_exchange: bool, *, is_there: bool
) -> r.ExchangeBoundResult:
    exchange, name, key = command.exchange or "", command.queue, command.binding_key
    if not exchange:  # every queue is bound to the default exchange by its name
        return r.ExchangeBoundResult(
            queue_not_found=bool(name) and not is_there,
            key_not_matched=bool(name) and key is not None and key != name,
        )
    here = [each for each in bindings if each.exchange == exchange]
    with_key = [each for each in here if key is None or each.key == key]
    with_arguments = [
        each for each in with_key if not command.arguments or each.arguments == command.arguments
    ]
    return r.ExchangeBoundResult(
        exchange_not_found=not knows_exchange,
        queue_not_found=bool(name) and not is_there,
        queue_not_matched=bool(name) and not here,
        key_not_matched=key is not None and not with_key,
        args_not_matched=bool(command.arguments) and not with_arguments,
    )


def _exchange_type(text: str) -> ExchangeType:
    try:
        return ExchangeType(text)
    except ValueError:
        raise SessionFaultError(ErrorCode.NOT_FOUND, f"unknown exchange type {text!r}") from None
