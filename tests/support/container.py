"""A scripted container of AMQP 1.0 on a real socket, which the router dials or which dials it.

It answers attaches as ``judge`` says, sends what ``messages`` holds for an address within the
credit, and keeps what it is sent.
"""

import itertools
import ssl
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import attrs
import trio

from router.model.commands import (
    AttachLink,
    CloseConnection,
    Command,
    DetachLink,
    GrantCredit,
    RefuseLink,
    SendDeliveries,
    UpdateDeliveries,
)
from router.model.condition import Condition
from router.model.delivery import OutgoingDelivery
from router.model.events import (
    ConnectionClosed,
    ConnectionOpened,
    CreditGranted,
    DeliveriesReceived,
    DeliveriesUpdated,
    Event,
    LinkAttached,
    LinkDetached,
)
from router.model.identity import DeliveryNumber, DeliveryTag, LinkId
from router.model.outcome import ACCEPTED, Modified, Released, is_outcome
from router.model.terminus import Role, Source, Target
from router.wire.engine import EngineSettings
from router.wire.mechanisms import Mechanism, MechanismClient, MechanismServer
from router.wire.v1_0.engine import Engine10
from router.wire.v1_0.sections import AnnotatedMessage, encode_message
from router.wire.v1_0.types import Symbol
from tests.support.ports import free_port

SECONDS = 20.0

Judge = Callable[[LinkAttached], LinkAttached | Condition]


def body(text: str) -> bytes:
    """A message with this text."""
    return encode_message(AnnotatedMessage(data=[text.encode()]))


@attrs.define(eq=False)
class Container:
    """The container, on any number of connections.

    Attributes:
        judge: what an attach is answered with; a condition refuses it.
        messages: what is to be sent, by the address of the source.
        received: payloads that have come, by the address of the target.
        attached: every attach that has come, in order.
        detached: names of links that the router has detached.
        farewell: what each connection is closed with as soon as it is open.
        opened: every open that has come.
        credit: granted on each link to us.
        tls: it listens with TLS alone.
        redelivers: what has no outcome when its link is lost, or is given back, is sent again.
    """

    name: str = "scripted"
    judge: Judge = lambda attach: attach
    credit: int = 100
    properties: dict[str, object] = attrs.field(factory=dict)
    farewell: Condition | None = None
    messages: dict[str, list[str]] = attrs.field(factory=lambda: defaultdict(list))
    received: dict[str, list[bytes]] = attrs.field(factory=lambda: defaultdict(list))
    attached: list[LinkAttached] = attrs.field(factory=list)
    detached: list[str] = attrs.field(factory=list)
    opened: list[ConnectionOpened] = attrs.field(factory=list)
    ended: list[Condition | None] = attrs.field(factory=list)
    port: int = attrs.field(factory=free_port)
    tls: ssl.SSLContext | None = None
    redelivers: bool = False
    lines: "list[Line]" = attrs.field(factory=list)

    @asynccontextmanager
    async def listening(self) -> AsyncIterator["Container"]:
        """Accepts connections for the length of a ``with`` block."""
        async with trio.open_nursery() as nursery:
            await nursery.start(self._accept)
            yield self
            nursery.cancel_scope.cancel()

    async def _accept(self, *, task_status: trio.TaskStatus[None]) -> None:
        quiet = _Quiet(task_status)
        if self.tls is None:
            await trio.serve_tcp(self._serve, self.port, host="127.0.0.1", task_status=quiet)
        else:
            await trio.serve_ssl_over_tcp(
                self._serve, self.port, self.tls, host="127.0.0.1", task_status=quiet
            )

    @asynccontextmanager
    async def dialed_in(self, port: int, user: str = "") -> AsyncIterator["Line"]:
        """Dials a router for the length of a ``with`` block; it loses the connection at its end."""
        settings = EngineSettings(
            is_server=False,
            container=self.name,
            hostname="router",
            properties=self.properties,
            sasl_client=lambda: MechanismClient(user=user or None, password=user or None),
        )
        stream = await trio.open_tcp_stream("127.0.0.1", port)
        line = Line(self, stream, Engine10(settings))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(line.run)
            yield line
            nursery.cancel_scope.cancel()

    async def _serve(self, stream: trio.abc.Stream) -> None:
        settings = EngineSettings(
            is_server=True,
            container=self.name,
            properties=self.properties,
            sasl_server=lambda: MechanismServer(offer=(Mechanism.ANONYMOUS,)),
        )
        await Line(self, stream, Engine10(settings)).run()

    @property
    def targets(self) -> list[str]:
        """Addresses of the links on which it receives now."""
        return [address for line in self.lines for address in line.targets.values()]

    async def until(self, is_reached: Callable[["Container"], object]) -> None:
        """Waits for something that the router is to do."""
        with trio.fail_after(SECONDS):
            while not is_reached(self):
                await trio.sleep(0.01)


@attrs.define(eq=False)
class Line:
    """One connection of a container.

    Attributes:
        sources: addresses of the links on which we send, and the credit on them.
        over: it has ended, whoever ended it.
    """

    container: Container
    stream: trio.abc.Stream
    engine: Engine10
    sources: dict[LinkId, str] = attrs.field(factory=dict)
    targets: dict[LinkId, str] = attrs.field(factory=dict)
    credit: dict[LinkId, int] = attrs.field(factory=dict)
    names: dict[LinkId, str] = attrs.field(factory=dict)
    numbers: "itertools.count[int]" = attrs.field(factory=itertools.count)
    given: dict[LinkId, dict[int, str]] = attrs.field(factory=lambda: defaultdict(dict))
    over: trio.Event = attrs.field(factory=trio.Event)

    async def run(self) -> None:
        """Serves the connection to its end."""
        self.container.lines.append(self)
        try:
            while True:
                with trio.move_on_after(0.02) as waiting:
                    octets = await self.stream.receive_some(65536)
                if not waiting.cancelled_caught:
                    if not octets:
                        break
                    for event in self.engine.receive_data(bytes(octets), trio.current_time()):
                        self.happens(event)
                for link in self.sources:
                    self.give(link)
                await self.flush()
                if self.engine.finished:
                    break
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        finally:
            self.container.lines.remove(self)
            self.over.set()
            for link in tuple(self.sources):
                self.take_back(link)
            await trio.aclose_forcefully(self.stream)

    async def flush(self) -> None:
        """Sends what the engine has."""
        while len(shown := self.engine.data_to_send()):
            count = len(shown)
            await self.stream.send_all(bytes(shown))
            self.engine.bytes_sent(count)

    def do(self, command: Command) -> None:
        """Has the engine execute a command."""
        self.engine.execute(command)

    def happens(self, event: Event) -> None:
        """Acts on an event."""
        container = self.container
        match event:
            case ConnectionOpened():
                container.opened.append(event)
                if container.farewell is not None:
                    self.do(CloseConnection(container.farewell))
            case ConnectionClosed(condition=condition):
                container.ended.append(condition)
            case LinkAttached(is_answer=False):
                container.attached.append(event)
                self.answer(event)
            case LinkAttached():
                self.begin(event)
            case CreditGranted(link=link, credit=credit):
                self.credit[link] = credit
            case LinkDetached(link=link):
                container.detached.append(self.names.pop(link, ""))
                self.take_back(link)
                self.sources.pop(link, None)
                self.targets.pop(link, None)
            case DeliveriesUpdated(link=link, numbers=numbers, state=state) if is_outcome(state):
                texts = [self.given[link].pop(each, None) for each in numbers]
                if container.redelivers and isinstance(state, Released | Modified):
                    container.messages[self.sources[link]] += filter(None, texts)
            case DeliveriesReceived(link=link, deliveries=deliveries):
                address = self.targets[link]
                container.received[address] += [bytes(each.payload) for each in deliveries]
                open_ones = [each.number for each in deliveries if not each.settled]
                if open_ones:
                    self.do(UpdateDeliveries(link, open_ones, ACCEPTED, True))
                self.do(GrantCredit(link, container.credit))
            case _:
                pass

    def answer(self, attach: LinkAttached) -> None:
        """Answers an attach as the judge says."""
        judged = self.container.judge(attach)
        if isinstance(judged, Condition):
            self.do(RefuseLink(attach.link, judged))
            return
        self.do(
            AttachLink(
                link=attach.link,
                name=attach.name,
                role=attach.role,
                source=judged.source,
                target=judged.target,
            )
        )
        self.begin(judged)

    def begin(self, attach: LinkAttached) -> None:
        """Records a link that is attached now."""
        self.names[attach.link] = str(attach.name)
        if attach.role is Role.SENDER and attach.source is not None:
            self.sources[attach.link] = str(attach.source.address)
        elif attach.role is Role.RECEIVER and isinstance(attach.target, Target):
            self.targets[attach.link] = str(attach.target.address)
            self.do(GrantCredit(attach.link, self.container.credit))

    def give(self, link: LinkId) -> None:
        """Sends what the credit allows."""
        waiting = self.container.messages[self.sources[link]]
        count = min(self.credit.get(link, 0), len(waiting))
        if not count:
            return
        taken, waiting[:count] = waiting[:count], []
        self.credit[link] -= count
        numbers = list(itertools.islice(self.numbers, count))
        self.given[link].update(zip(numbers, taken, strict=True))
        self.do(
            SendDeliveries(
                link,
                [
                    OutgoingDelivery(
                        DeliveryNumber(number), DeliveryTag(b"%d" % number), body(text)
                    )
                    for number, text in zip(numbers, taken, strict=True)
                ],
            )
        )

    def take_back(self, link: LinkId) -> None:
        """A link is lost; what it was given and has no outcome may be sent again."""
        texts = self.given.pop(link, {}).values()
        if self.container.redelivers and link in self.sources:
            self.container.messages[self.sources[link]][:0] = texts

    def end(self, link_name: str, condition: Condition | None = None) -> None:
        """Detaches a link, for a reason."""
        (link,) = [link for link, name in self.names.items() if name == link_name]
        self.do(DetachLink(link, True, condition))


class _Quiet:
    """Tells only that the port is open, not which listeners there are."""

    def __init__(self, status: trio.TaskStatus[None]) -> None:
        self._status = status

    def started(self, value: object = None) -> None:
        self._status.started()


def with_source(attach: LinkAttached, source: Source) -> LinkAttached:
    """An answer with another source than was asked for."""
    return attrs.evolve(attach, source=source)


def filter_named(attach: LinkAttached, name: str) -> object:
    """The filter of a name that an attach asks for."""
    filters = {} if attach.source is None else attach.source.filters or {}
    return filters.get(Symbol(name))
