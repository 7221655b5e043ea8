"""For tests of the store's engine: an engine, and a log on a disk in memory behind it."""

import itertools
from pathlib import Path

from router.core.dead_letters import DEAD_LETTERS
from router.core.stored import STORED
from router.journal.block import Block, BlockFlag, Origin, open_block
from router.journal.disk import Disk
from router.journal.protocol import REPLY, is_hello
from router.journal.store.asks import Answer, AnswerReader, Ask, AskWriter
from router.journal.store.client import StoreClient
from router.journal.store.desk import Desk
from router.journal.store.log import StoreLog
from router.journal.store.looking import OPERATOR
from router.journal.store.queues import Bounds, Claim, route_key
from router.journal.store.records import StoreWriter
from router.model.commands import AttachLink, Command, GrantCredit, SendDeliveries, UpdateDeliveries
from router.model.delivery import OutgoingDelivery, ReceivedDelivery
from router.model.events import (
    CreditGranted,
    DeliveriesReceived,
    DeliveriesUpdated,
    Event,
    LinkAttached,
)
from router.model.identity import DeliveryNumber, DeliveryTag, LinkId, LinkName
from router.model.outcome import ACCEPTED, DeliveryState
from router.model.terminus import ReceiverSettleMode, Role, Source, Target
from router.net.store.engine import StoreEngine
from router.net.store.unfinished import NOTHING
from tests.support.journal import DIRECTORY, RESERVE_OCTETS, START_NS, FakeDisk

ROUTE = "telemetry.#"
KEY = route_key(ROUTE)
SHELF = LinkId(1_000_000)


Map = dict[DeliveryTag, DeliveryState | None]


def tag(number: int) -> DeliveryTag:
    """Returns the tag, and the key, of a message."""
    return DeliveryTag(number.to_bytes(16, "big"))


class Shelved:
    """An engine whose log answers when it is told to.

    Attributes:
        engine: under test.
        disk: of the log.
        events: that the core was given.
        opening: the first of them, which it was given together.
        seconds: the clock of the engine.
        is_committing: the log makes everything durable at once.
        piece_octets: the engine gets answers in pieces of so many octets.
    """

    def __init__(
        self,
        disk: FakeDisk | None = None,
        *,
        files: Disk | None = None,
        directory: Path = DIRECTORY,
        life: int = 0,
        bounds: Bounds | None = None,
        before: "Shelved | None" = None,
        is_stored: bool = True,
        is_exact: bool = False,
        route: str = ROUTE,
        rounds: int = 1 << 30,
    ) -> None:
        """Begins, and has both sides say what they have to.

        The log answers as often as ``rounds`` says.
        """
        self._route = route
        self.disk = disk or FakeDisk()
        self.seconds = 1.0
        self.is_committing = True
        self.piece_octets = 1 << 30
        self.events: list[Event] = []
        self.opening: list[Event] = []
        self._rounds = rounds
        self.log = StoreLog(
            directory,
            "dc1",
            disk=files or self.disk,
            incarnation=START_NS + life,
            reserve_octets=RESERVE_OCTETS,
        )
        self.log.open(self.now_ns)
        self._desk = Desk(self.log.store)
        self._origin = Origin(1, START_NS + life)
        self._operator = Origin(OPERATOR, START_NS + life)
        self._octets = b""
        self.engine: StoreEngine = StoreEngine(
            StoreClient(router="dc1", worker=1, incarnation=START_NS + life),
            link_ids=map(LinkId, itertools.count(1)),
            clock_ns=lambda: self.now_ns,
            stored_property=STORED,
            dead_property=DEAD_LETTERS,
            unfinished=NOTHING if before is None else before.engine.unfinished,
        )
        key = route_key(route)
        kept = {key: bounds or Bounds()} if is_stored else {}
        self.engine.follow(kept, (key,), exact=(key,) if is_exact else ())
        self._is_exact = is_exact
        self.exchange()

    @property
    def now_ns(self) -> int:
        """Returns the time of both."""
        return START_NS + int(self.seconds * 1e9)

    # The log

    def exchange(self) -> None:
        """Hands octets to and fro, with commits, until neither side has any."""
        while self._hand_in() or self._give():
            pass
        self._take(self.engine.handle_deadline(self.seconds))
        if self.engine.output_octets or self.engine.data_to_send():
            self.exchange()

    def _hand_in(self) -> bool:
        octets = b""
        while view := self.engine.data_to_send():
            octets += bytes(view)
            self.engine.bytes_sent(len(view))
        if not octets:
            return False
        view, at = memoryview(octets), 0
        while at < len(view):
            block = open_block(view, at)
            self._handle(octets[at : at + block.octets], block)
            at += block.octets
        if self.is_committing:
            self.commit()
        return True

    def commit(self) -> None:
        """The log makes durable what it has, and says so; segments go that are not needed."""
        self.log.commit(self.now_ns)
        self.log.store.remove_done()
        self._say_durable()

    @property
    def messages(self) -> int:
        """Returns how many messages the log holds of the route."""
        return self.log.store.holdings.route(KEY).messages

    def _handle(self, octets: bytes, block: Block) -> None:
        if is_hello(block):
            self.log.admit(self._origin, 1)
        elif block.flags & BlockFlag.ASKS:
            self._desk.asked(self._origin, block)
        else:
            self.log.append(octets, [block])

    def ask_as_operator(self, ask: Ask) -> list[Answer]:
        """Asks as the admin endpoint does, and returns the answers."""
        writer = AskWriter(BlockFlag.ASKS)
        writer.ask(ask)
        self._desk.asked(self._operator, open_block(memoryview(writer.take_octets())))
        octets = memoryview(bytes(self._desk.output(self._operator, self.now_ns)))
        reader, found, at = AnswerReader(), list[Answer](), 0
        while at < len(octets):
            block = open_block(octets, at, is_checked=True)
            at += block.octets
            found += reader.answers_of(block)
        return found

    def forget(self, claims: list[Claim]) -> None:
        """Records, as the admin endpoint does, that messages are gone."""
        self._operator = Origin(OPERATOR, self._operator.incarnation + 1)
        self.log.admit(self._operator, 1)
        records = StoreWriter(worker=OPERATOR, incarnation=self._operator.incarnation)
        records.forwarded(self.now_ns, claims, 0, by_person=True)
        for sealed in records.take_blocks():
            self.log.append(sealed.octets, [open_block(memoryview(sealed.octets))])
        self.log.commit(self.now_ns)

    def _say_durable(self) -> None:
        durable = self.log.durable[self._origin] - 1
        reply = REPLY.pack(self.log.health, self.log.errno, durable)
        self._take(self.engine.receive_data(reply, self.seconds))

    def _give(self) -> bool:
        if not self._rounds:
            return False
        octets = self._desk.output(self._origin, self.now_ns)
        self._rounds -= bool(octets)
        for at in range(0, len(octets), self.piece_octets):
            piece = octets[at : at + self.piece_octets]
            self._take(self.engine.receive_data(piece, self.seconds))
        return bool(octets)

    def _take(self, events: list[Event]) -> None:
        self.events += events
        self.opening = self.opening or events

    # The core

    def wait(self, seconds: float) -> None:
        """Lets time pass."""
        self.seconds += seconds
        self._take(self.engine.handle_deadline(self.seconds))
        self.exchange()

    def order(self, *commands: Command) -> None:
        """Gives commands, and has the log do what follows."""
        for command in commands:
            self.engine.execute(command)
        self.exchange()

    def attach(
        self,
        link: LinkId = SHELF,
        address: str = "telemetry.a",
        unsettled: Map | None = None,
    ) -> None:
        """The core attaches a link for messages of an address."""
        target = Target(address=address)
        self.order(
            AttachLink(
                link=link,
                name=LinkName("shelf"),
                role=Role.SENDER,
                source=Source(address=address),
                target=target,
                receiver_settle_mode=ReceiverSettleMode(int(self._is_exact)),
                unsettled=unsettled,
                properties={STORED: self._route},
            )
        )

    def put(
        self,
        first: int,
        count: int = 1,
        *,
        link: LinkId = SHELF,
        head: bytes = b"",
        **fields: int,
    ) -> None:
        """The core sends messages with numbers, behind a head."""
        deliveries = [
            OutgoingDelivery(DeliveryNumber(n), tag(n), head + b"%08d" % n, **fields)  # type: ignore[arg-type]
            for n in range(first, first + count)
        ]
        self.order(SendDeliveries(link, deliveries))

    def inlets(self) -> dict[tuple[str | None, bool], LinkId]:
        """Returns the links that the engine attached, by address and whether for dead letters."""
        return {
            (
                each.source.address if each.source else None,
                DEAD_LETTERS in each.properties,
            ): each.link
            for each in self.events
            if isinstance(each, LinkAttached) and not each.is_answer
        }

    def answer(
        self,
        credit: int,
        *,
        is_dead: bool = False,
        address: str = "telemetry.a",
        unsettled: Map | None = None,
    ) -> LinkId:
        """The core answers an inlet and grants it credit."""
        link = self.inlets()[address, is_dead]
        target = Target(address=address)
        self.order(
            AttachLink(
                link=link,
                name=LinkName("inlet"),
                role=Role.RECEIVER,
                source=None,
                target=target,
                unsettled=unsettled,
            ),
            GrantCredit(link, credit),
        )
        return link

    def outcome(self, link: LinkId, state: DeliveryState | None, *numbers: int) -> None:
        """The core knows the outcome of messages."""
        names = [each.number for each in self.received(link) if int(each.payload[-8:]) in numbers]
        self.order(UpdateDeliveries(link, names, state, True))

    @staticmethod
    def update(
        link: LinkId, state: DeliveryState | None, *numbers: DeliveryNumber
    ) -> UpdateDeliveries:
        """Returns an outcome of deliveries."""
        return UpdateDeliveries(link, numbers, state, True)

    def accept_all(self, link: LinkId) -> None:
        """The target accepts whatever it was sent."""
        names = [each.number for each in self.received(link)]
        self.order(UpdateDeliveries(link, names, ACCEPTED, True))

    def received(self, link: LinkId) -> list[ReceivedDelivery]:
        """Returns what the core was sent on a link."""
        runs = [each for each in self.events if isinstance(each, DeliveriesReceived)]
        return [each for run in runs if run.link == link for each in run.deliveries]

    def sent(self, link: LinkId) -> list[int]:
        """Returns the numbers of what the core was sent on a link."""
        return [int(each.payload[-8:]) for each in self.received(link)]

    def accepted(self, link: LinkId = SHELF) -> list[int]:
        """Returns the messages that the core was told to be accepted."""
        updates = [each for each in self.events if isinstance(each, DeliveriesUpdated)]
        return [number for each in updates if each.link == link for number in each.numbers]

    def credit(self, link: LinkId = SHELF) -> int:
        """Returns the credit that the core was granted last."""
        return [e.credit for e in self.events if isinstance(e, CreditGranted) and e.link == link][
            -1
        ]
