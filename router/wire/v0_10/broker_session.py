"""A session towards a broker: one link, from its first check to its end.

Theory of operation. Every link of the core's has a session of its own, because an error of the
broker ends a session. It has the link's name, so that a broker that keeps sessions finds it again.
The session is attached, then a short script runs, one answer at a time: the node of the link must
exist (queries), unless the route asks to declare it (declares). Then ``LinkAttached`` is emitted.

    AttachLink -> session.attach -> script -> LinkAttached     (ready)
                               \\-> exception -> LinkAttached without terminus, LinkDetached

If a link's terminus is to outlive connections, the broker is asked for a timeout. If it grants one,
the session is kept in the worker's memory when the connection is lost; the core's next
``AttachLink`` of that name to the same broker, with an unsettled map, attaches it again: the broker
says which command it expects, later ones are sent again, and the unsettled map for the core has all
open deliveries.

A route asks for declaring by ``properties["declare"]`` of its ``AttachLink``: true, or a map with
``durable`` (default true), ``type`` (of an exchange, default topic), ``auto-delete``, ``exclusive``
and, for queues, ``arguments``.
"""

import contextlib
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Final, cast

from router.errors import DecodeError
from router.model.commands import AttachLink
from router.model.condition import (
    INVALID_FIELD,
    NOT_FOUND,
    RESOURCE_LIMIT_EXCEEDED,
    RESOURCE_LOCKED,
    Condition,
)
from router.model.events import LinkAttached, LinkDetached
from router.model.identity import DeliveryTag
from router.model.terminus import Coordinator, Role
from router.wire.exchange_names import NAME_OCTETS, BrokerNode, broker_node
from router.wire.machine import Handlers
from router.wire.v0_10 import records as r
from router.wire.v0_10.client_links import ClientLinks
from router.wire.v0_10.codec import decode_struct
from router.wire.v0_10.reply import SessionFaultError, error_condition
from router.wire.v0_10.session import Session, SessionStage

DECLARE: Final = "declare"
"""Property of ``AttachLink``."""

_DONE: Final = "done"
"""Note of a command on whose completion the script waits."""


ANSWERS: Final = r.ExchangeQuery("")
"""The first command of a session that is to be kept: every broker answers it with a result.

A session of this name that an earlier process began, and that the broker keeps, takes the first
commands of this one for repeats: it completes them and does nothing. Declarations and transfers
would be lost in it. There is no result then; that session is ended for good, and another one begun.
"""

FORMER: Final = Condition(RESOURCE_LOCKED, "the broker keeps a session of an earlier process")


class BrokerSession(Session):
    """One link of the core's to a broker.

    Attributes:
        command: the attach that requested it.
        link: the link's identity.
        is_ready: ``LinkAttached`` has been emitted.
        is_back: it was attached before, and is being resumed.
        begins_anew: the broker's session of an earlier process is being ended, and this one begins
            when it has.
    """

    def __init__(self, engine: ClientLinks, channel: int, command: AttachLink) -> None:
        super().__init__(engine, channel, command.name.encode()[:0xFFFF])
        self.command = command
        self.link = command.link
        self.is_ready = False
        self.is_back = False
        self.begins_anew = False
        self.condition: Condition | None = None
        self._has_left_former = False
        self._script: deque[r.Command] = deque()
        self._awaited: tuple[int, r.Command] | None = None
        self._found: dict[int, Any] = {}

    @property
    def client(self) -> ClientLinks:
        """The engine of the connection that carries the session."""
        return cast(ClientLinks, self.engine)

    # --- opening ----------------------------------------------------------------------------------

    def start(self) -> None:
        """Requests the broker to attach the session."""
        self.control(r.SessionAttach(self.name, force=self.is_back))

    def broker_attached(self) -> None:
        """Handles session.attached from the broker."""
        self.attached(self.engine, self.channel)
        if self.wants_keeping:
            self.control(r.SessionRequestTimeout(self._wanted_seconds))
        if self.is_back:
            self.ask_replay()
            return
        self._begin()

    def _begin(self) -> None:
        """Begins the script, behind the question whether the session is new."""
        self._script.clear()
        if self.wants_keeping:
            self._script.append(ANSWERS)
        self._script.extend(self.script())
        self._go_on()

    @property
    def is_sure(self) -> bool:
        """Whether the session is known to be none of an earlier process."""
        return not self.begins_anew and (self._awaited is None or self._awaited[1] != ANSWERS)

    @property
    def wants_keeping(self) -> bool:
        """Whether the core wants the link to outlive its connection."""
        return self._wanted_seconds > 0

    @property
    def _wanted_seconds(self) -> int:
        command = self.command
        ours = command.target if command.role is Role.SENDER else command.source
        if ours is None or isinstance(ours, Coordinator):
            return 0
        return ours.expiry_seconds

    def granted_timeout(self, timeout: int | None) -> None:
        """Handles the timeout that the broker grants."""
        self.timeout = timeout
        if not self.is_kept:
            self.drop_replay()

    def expected(self, first: int | None) -> None:
        """Handles session.expected after the session was attached again."""
        if not self.is_back:
            return
        self.is_back = False
        if first is None:
            self.broker_forgot()
            self._begin()
            return
        self.replay(first)
        self.ready()

    def broker_forgot(self) -> None:
        """Records that the broker has lost the session: it continues as a new one."""
        self.start_anew()

    def _go_on(self) -> None:
        if not self._script:
            self.ready()
            return
        command = self._script.popleft()
        self._awaited = (self.send(command, sync=True, note=_DONE), command)

    def script(self) -> list[r.Command]:
        """The requests to the broker before the link is attached."""
        raise NotImplementedError

    def ready(self) -> None:
        """Handles the end of the script: emits ``LinkAttached``."""
        command = self.command
        self.is_ready = True
        self.engine.runs.add(
            LinkAttached(
                link=self.link,
                name=command.name,
                role=command.role,
                is_answer=True,
                source=command.source,
                target=command.target,
                sender_settle_mode=command.sender_settle_mode,
                unsettled=dict.fromkeys(self.open_tags()) if self.is_kept else None,
            )
        )

    def open_tags(self) -> Iterable[DeliveryTag]:
        """Returns the tags that are unsettled at the broker's end."""
        raise NotImplementedError

    # --- answers ----------------------------------------------------------------------------------

    def done(self, numbers: list[int]) -> None:
        """Records that the broker has completed commands."""
        for number in numbers:
            note = self.outstanding.pop(number, None)
            if note is _DONE:
                self._answered(number)
            elif note is not None:
                self.completed_by_broker(number, note)

    def _answered(self, number: int) -> None:
        awaited = self._awaited
        if awaited is None or awaited[0] != number:
            return
        self._awaited = None
        command, found = awaited[1], self._found.pop(number, None)
        if command == ANSWERS:
            if found is not None:
                self._go_on()
            elif self._has_left_former:
                self.end(FORMER)
            else:
                self._leave_former()
            return
        if isinstance(command, r.QueueQuery) and not getattr(found, "queue", None):
            self.end(Condition(NOT_FOUND, f"no queue {command.queue!r}"))
            return
        if isinstance(command, r.ExchangeQuery) and getattr(found, "not_found", True):
            # A router says here what the session has declared; this asks for what is routed.
            self._script.appendleft(r.ExchangeDeclare(exchange=command.name, passive=True))
        self._go_on()

    def _leave_former(self) -> None:
        """Ends the session that the broker keeps for an earlier process."""
        self.begins_anew = self._has_left_former = True
        self.control(r.SessionRequestTimeout(0))
        self.timeout = 0
        self.control(r.SessionDetach(self.name))
        self.state = SessionStage.DETACHING

    def begin_anew(self) -> None:
        """Begins again: the session of the earlier process has ended."""
        self.begins_anew = False
        self._drop_parked()
        self.start_anew()
        self.state = SessionStage.DETACHED
        self.start()

    def completed_by_broker(self, number: int, note: Any) -> None:
        """Handles the completion of a command with a note."""

    def _take_result(self, number: int, command: r.ExecutionResult) -> None:
        octets = command.value or b""
        if self._awaited is not None and command.command_id == self._awaited[0] & 0xFFFF_FFFF:
            with contextlib.suppress(DecodeError):  # an invalid result counts as not found
                self._found[self._awaited[0]] = decode_struct(octets, 0, len(octets))
        self.complete(number)

    def _take_exception(self, number: int, command: r.ExecutionException) -> None:
        self.condition = error_condition(command.error_code, command.description)
        self.complete(number)

    # --- declaring --------------------------------------------------------------------------------

    def node(self) -> BrokerNode | None:
        """Reads the link's address; None for the anonymous terminus."""
        command = self.command
        terminus = command.target if command.role is Role.SENDER else command.source
        if terminus is None or isinstance(terminus, Coordinator) or terminus.address is None:
            return None
        return broker_node(terminus.address)

    def _declaring(self) -> Mapping[str, Any] | None:
        declared = self.command.properties.get(DECLARE)
        if isinstance(declared, Mapping):
            return declared
        return {} if declared else None

    def find_queue(self, queue: str) -> r.Command:
        """Checks that a queue exists, or declares it, as the route says."""
        declared = self._declaring()
        if declared is None:
            return r.QueueQuery(queue)
        return r.QueueDeclare(
            queue=queue,
            durable=bool(declared.get("durable", True)),
            exclusive=bool(declared.get("exclusive", False)),
            auto_delete=bool(declared.get("auto-delete", False)),
            arguments=dict(declared.get("arguments", {})) or None,
        )

    def find_exchange(self, exchange: str) -> r.Command:
        """Checks that an exchange exists, or declares it, as the route says."""
        declared = self._declaring()
        if declared is None or exchange.startswith("amq."):
            return r.ExchangeQuery(exchange)
        return r.ExchangeDeclare(
            exchange=exchange,
            type=str(declared.get("type", "topic")),
            durable=bool(declared.get("durable", True)),
            auto_delete=bool(declared.get("auto-delete", False)),
        )

    # --- end --------------------------------------------------------------------------------------

    def detach(self, closed: bool, condition: Condition | None) -> None:
        """Ends the link as ordered by the core."""
        self.give_back()
        self._report_end(closed, condition)
        if self.begins_anew:  # its detach is under way
            self.begins_anew = False
            return
        if self.state is not SessionStage.ATTACHED:  # the answer to our attach is pending
            self.state = SessionStage.DETACHING
            self.control(r.SessionDetach(self.name))
            return
        self.flush()
        if closed and self.is_kept:
            self.control(r.SessionRequestTimeout(0))
        self.timeout = 0 if closed else self.timeout
        self.control(r.SessionDetach(self.name))
        self.leave(is_over=True)
        self.state = SessionStage.DETACHING

    def end(self, condition: Condition) -> None:
        """Ends the link for a reason that has not ended the session."""
        self.detach(True, condition)

    def broker_detached(self, condition: Condition | None) -> None:
        """Handles the broker's detach of the session."""
        if self.state is SessionStage.ATTACHED:
            self.give_back()
            self.leave(is_over=True)
        self.state = SessionStage.DETACHED
        self._report_end(True, self.condition or condition)

    def fail(self, fault: SessionFaultError) -> None:
        """Ends the session for a fault of the broker."""
        self.condition = error_condition(fault.error, fault.text)
        self.give_back()
        super().fail(fault)
        self._report_end(True, self.condition)

    def _report_end(self, closed: bool, condition: Condition | None) -> None:
        if self.client.links.pop(self.link, None) is None:
            return
        if not self.is_ready:
            self.client.refuse_attach(self.command)
        self.engine.runs.add(LinkDetached(self.link, closed, condition))

    def give_back(self) -> None:
        """Returns unsent deliveries to the core."""

    def come_back(self, engine: ClientLinks, channel: int, command: AttachLink) -> None:
        """Continues on another connection, for another attach of the core's."""
        self.engine = engine
        self.channel = channel
        self.command = command
        self.link = command.link
        self.is_ready = False
        self.is_back = True
        self.condition = None

    handlers: ClassVar[Handlers] = {
        r.ExecutionSync: Session.take_sync,
        r.ExecutionResult: _take_result,
        r.ExecutionException: _take_exception,
    }


NO_NAME: Final = Condition(
    INVALID_FIELD, f"a name in the address has more than {NAME_OCTETS} octets"
)
NO_CHANNEL: Final = Condition(RESOURCE_LIMIT_EXCEEDED, "the broker allows no more sessions")
