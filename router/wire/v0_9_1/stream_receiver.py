"""A receiving link from a stream of RabbitMQ, which is read from an offset.

Theory of operation. A stream keeps its messages; a consumer begins at the offset that it names, and
the broker neither takes a message back nor remembers what was acknowledged. So this link does: each
message has its offset in the header ``x-stream-offset``. The filter ``rabbitmq:stream-offset-spec``
of the source says where the link begins: ``first``, ``last``, ``next``, an offset, a timestamp, or
an interval such as ``1h``.

    released, modified     its offset is to come again: the consumer is started again from there
    accepted, rejected     nothing: the acknowledgment only lets the broker send more

A consumer that starts again begins at the first offset that is to come again, or else behind the
last one reported. Messages that were reported before are acknowledged and passed over. A consumer
stays when there is no credit (its prefetch bounds what is held), because one that begins at
``next`` would miss what is published meanwhile. A drain is answered at once: a stream has no
``basic.get``.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from router.errors import DecodeError, TranslationError
from router.model.commands import AttachLink
from router.model.events import CreditReturned
from router.model.identity import DeliveryNumber
from router.model.outcome import Accepted, DeliveryState, Rejected
from router.model.terminus import STREAM_OFFSET
from router.wire.v0_9_1 import content as contents
from router.wire.v0_9_1 import methods as m
from router.wire.v0_9_1.broker_receiver import CONSUMER_TAG, BrokerReceiver
from router.wire.v0_9_1.client_links import ClientLinks
from router.wire.v0_9_1.values import from_v1_0
from router.wire.v1_0.types import Described

OFFSET: Final = "x-stream-offset"
"""Argument of ``basic.consume``, and header of each message."""


class StreamReceiver(BrokerReceiver):
    """A receiving link from a stream."""

    def __init__(self, engine: ClientLinks, number: int, command: AttachLink) -> None:
        super().__init__(engine, number, command)
        self._spec = offset_spec(command)
        self._next: int | None = None  # behind the last offset reported
        self._again: set[int] = set()  # offsets that are to come again
        self._restarts = False
        self._is_first = True
        self._offsets: dict[int, int] = {}  # by delivery tag, of what is held or unacknowledged

    def start_consumer(self, queue: str, prefetch: int) -> None:
        """Requests a consumer that begins where this link goes on."""
        self._restarts, self._is_first = False, True
        begin = min(self._again, default=self._next)
        arguments = {OFFSET: self._spec if begin is None else begin}
        consume = m.BasicConsume(queue=queue, consumer_tag=CONSUMER_TAG, arguments=arguments)
        self.ask(m.BasicQos(prefetch_count=prefetch), m.BasicQosOk)
        self.ask(consume, m.BasicConsumeOk)

    def _follow(self) -> None:
        if self._is_draining:
            self._is_draining, self._credit = False, 0
            self.machine.runs.add(CreditReturned(self.link, 0))
        super()._follow()

    @property
    def _must_stop(self) -> bool:
        if self._restarts or self._is_unwanted:
            return self._restarts
        return self._next is not None and super()._must_stop

    def answered(self, method: m.Method) -> None:
        """Moves the consumer to its next state; what is held comes again from the next one."""
        if isinstance(method, m.BasicCancelOk):
            self._give_held_back()
        super().answered(method)

    # --- deliveries -------------------------------------------------------------------------------

    def take_all(self, found: list[tuple[int, bytes, bool]]) -> None:
        """Handles a run of deliveries, each by its offset."""
        for tag, content, _ in found:
            self.take(tag, content)

    def take(self, tag: int, content: bytes) -> None:
        """Handles a delivery, unless it was reported before."""
        offset = offset_in(content)
        if offset is None:  # no stream's: it comes once
            super().take(tag, content)
            return
        if self._is_first:  # what was older has gone from the stream
            self._is_first = False
            self._again = {each for each in self._again if each >= offset}
        self._offsets[tag] = offset
        if self._next is not None and offset < self._next and offset not in self._again:
            self._open[tag] = None
            self._acknowledge(tag)
        else:
            super().take(tag, content)

    def _report(self, tag: int, content: bytes) -> None:
        offset = self._offsets.get(tag)
        if offset is not None and offset in self._again:
            self._again.remove(offset)
        elif offset is not None:
            self._next = offset + 1
        if self._settles:
            self._offsets.pop(tag, None)
        super()._report(tag, content)

    def _give_held_back(self) -> None:
        for tag, _ in self._held:
            self._acknowledge(tag)
        self._held.clear()

    def _acknowledge(self, tag: int) -> None:
        self._offsets.pop(tag, None)
        self._acks.append(tag)
        self.machine.settling[self.number] = self

    # --- outcomes ---------------------------------------------------------------------------------

    def update(self, numbers: Sequence[DeliveryNumber], state: DeliveryState | None) -> None:
        """Acknowledges deliveries; those that are not done with are to come again."""
        is_done = isinstance(state, Accepted | Rejected)
        for number in numbers:
            offset = self._offsets.get(number)
            if offset is not None and not is_done:
                self._again.add(offset)
                self._restarts = True
            self._acknowledge(number)
        if self._restarts and self.is_attached:
            self._follow()


def offset_spec(command: AttachLink) -> Any:
    """Returns where a link asks to begin, as an argument of 0-9-1; None: it does not say."""
    filters = None if command.source is None else command.source.filters
    if not isinstance(filters, Mapping):
        return None
    value = next((each for name, each in filters.items() if str(name) == STREAM_OFFSET), None)
    try:
        return from_v1_0(value.value if isinstance(value, Described) else value, OFFSET)
    except TranslationError:
        return None


def offset_in(content: bytes) -> int | None:
    """Returns a message's offset in its stream; None: it comes from no stream."""
    try:
        properties = contents.properties_of(content, contents.content_layout(content))
    except DecodeError:
        return None
    offset = (properties.headers or {}).get(OFFSET)
    return int(offset) if isinstance(offset, int) and not isinstance(offset, bool) else None
