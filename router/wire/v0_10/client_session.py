"""The interface of a client's session to its parts: queues, transfers, patterns, declares."""

from typing import cast

from router.errors import DecodeError
from router.model.condition import Condition
from router.model.delivery import OutgoingDelivery
from router.model.identity import DeliveryNumber, DeliveryTag
from router.model.outcome import DeliveryState
from router.model.text import decode_text
from router.wire.exchange_names import PREDECLARED, ExchangeType
from router.wire.v0_10 import message as messages
from router.wire.v0_10 import records as r
from router.wire.v0_10.bindings import Binding
from router.wire.v0_10.codec import encode_struct
from router.wire.v0_10.queues import Outlet, Queue, QueueWatching
from router.wire.v0_10.reply import ErrorCode, SessionFaultError, decode_fault
from router.wire.v0_10.server_links import ServerLinks
from router.wire.v0_10.session import Session


class ClientSession(Session):
    """The methods that the parts of a session use.

    Attributes:
        server: the engine of its connection.
        watching: the patterns of its queues.
        queues: local queues, by name.
        exchanges: name → type, as far as this session knows.
        transient: those of them that were declared without durable.
    """

    watching: QueueWatching

    def __init__(self, engine: ServerLinks, channel: int, name: bytes) -> None:
        super().__init__(engine, channel, name)
        self.queues: dict[str, Queue] = {}
        self.exchanges: dict[str, ExchangeType] = dict(PREDECLARED)
        self.transient: set[str] = set()
        self._codes: tuple[int, int] = (0, 0)
        self._has_links = False

    @property
    def server(self) -> ServerLinks:
        """The engine of the connection that carries the session."""
        return cast(ServerLinks, self.engine)

    @property
    def expiry_seconds(self) -> int:
        """How long its links outlive it, in AMQP 1.0's form (§3.5.3, timeout)."""
        self._has_links = True
        return self.engine.settings.expiry_seconds if self.timeout is None else self.timeout

    def codes(self, number: int) -> tuple[int, int]:
        """Returns class and code of the command that the session waits on."""
        return self._codes

    def result(self, number: int, found: r.Struct) -> None:
        """Sends a command's result, and completes the command."""
        self.send(r.ExecutionResult(number & 0xFFFF_FFFF, encode_struct(found)))
        self.complete(number)

    def review(self, queue: Queue) -> None:
        """Reviews a queue's credit at the end of the turn."""
        if self.is_attached:
            self.server.review(queue)

    def check_user(self, header: bytes) -> None:
        """Refuses a user-id that is not the client's own (message-properties.user-id)."""
        if messages.MESSAGE_PROPERTIES not in header:
            return
        try:
            _, properties, _ = messages.read_header(header)
        except DecodeError as error:
            raise decode_fault(error) from error
        user = self.server.named
        if properties.user_id and decode_text(properties.user_id) != user:
            raise SessionFaultError(
                ErrorCode.UNAUTHORIZED_ACCESS,
                f"user-id {decode_text(properties.user_id)!r} is not that of the connection,"
                f" {user!r}",
            )

    def all_bindings(self) -> list[Binding]:
        """The bindings of all the session's queues."""
        return [binding for queue in self.queues.values() for binding in queue.bindings]

    def subscribers(self, name: str) -> int:
        """Returns the number of the session's subscriptions to a queue."""
        raise NotImplementedError

    def drained(self) -> None:
        """Records that no transfer is held any more."""
        raise NotImplementedError

    def committed(self, number: int) -> None:
        """Records that the transaction is decided."""
        raise NotImplementedError

    # --- deliveries -------------------------------------------------------------------------------

    def settle(
        self, outlet: Outlet, tag: DeliveryTag, number: DeliveryNumber, state: DeliveryState
    ) -> None:
        """Reports to the core the outcome of a delivery."""
        raise NotImplementedError

    def decide(
        self,
        outlet: Outlet,
        tag: DeliveryTag,
        number: DeliveryNumber | None,
        state: DeliveryState,
    ) -> None:
        """Reports the outcome of a delivery to the core, or keeps it until the core asks."""
        raise NotImplementedError

    def finished(self, number: int) -> None:
        """Records that one of the things is done that a command waits for."""
        raise NotImplementedError

    def unknown(self, outlet: Outlet, number: int, condition: Condition) -> None:
        """Handles that nobody will know whether a command's outcomes are on record."""
        raise NotImplementedError

    def ask_for_record(self, outlet: Outlet) -> None:
        """Asks the core to report when the client's outcomes are on record, if a command waits."""
        raise NotImplementedError

    def tags_of(self, outlet: Outlet) -> list[DeliveryTag]:
        """Returns the tags, of a link that comes back, that the client or the backlog has."""
        raise NotImplementedError

    def resumed(self, outlet: Outlet, delivery: OutgoingDelivery) -> bool:
        """Handles the core's new number for a delivery; returns whether the client has it."""
        raise NotImplementedError

    def lose(self, outlet: Outlet, condition: Condition) -> None:
        """Records that the core has detached a link."""
        raise NotImplementedError
