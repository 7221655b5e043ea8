"""Clients that carry on through lost connections and dead routers, and what they know."""

import itertools
import random
from collections.abc import Callable, Iterator

import attrs
import trio

from router.links.attaches import DrawNumber, no_number
from router.model.condition import STOLEN
from router.model.delivery import ReceivedDelivery
from router.model.identity import LinkName
from router.model.outcome import ACCEPTED, DeliveryState
from router.net.client.conversation import Conversation, Dialing
from router.net.client.receiver import ReceivingLink
from router.net.client.sender import SendingLink
from router.routes.route import Guarantee
from router.wire.engine import EngineSettings
from router.wire.mechanisms import MechanismClient
from router.wire.v1_0.engine import Engine10
from tests.support.mortal import START_SECONDS

PATIENCE_SECONDS = 5 * START_SECONDS
"""A client outlives some starts in a row: on a machine busy with other things each took 80 s."""
HEAD = b"\x00\x53\x75\xa0"
"""A data section with up to 255 octets; its length follows."""


def number_of(delivery: ReceivedDelivery) -> int:
    """Reads the number that a message carries at the end of its payload."""
    return int(delivery.payload[-20:])


def numbered(numbers: Iterator[int], octets: int) -> Iterator[bytes]:
    """Makes messages that end with their numbers."""
    for number in numbers:
        body = b"%0*d" % (max(20, octets), number)
        yield HEAD + bytes([len(body)]) + body


@attrs.define(eq=False)
class Books:
    """What the clients know, by the messages' numbers.

    Attributes:
        sent: numbers that a sender began with.
        taken: how often each was taken by a receiver.
    """

    sent: set[int] = attrs.field(factory=set)
    taken: dict[int, int] = attrs.field(factory=dict)

    def take(self, delivery: ReceivedDelivery) -> DeliveryState:
        """Takes a message as a receiver."""
        number = number_of(delivery)
        self.taken[number] = self.taken.get(number, 0) + 1
        return ACCEPTED

    def count(self, numbers: Iterator[int]) -> Iterator[int]:
        """Notes which numbers are sent."""
        for number in numbers:
            self.sent.add(number)
            yield number

    @property
    def lost(self) -> set[int]:
        """Sent, and never taken."""
        return self.sent - self.taken.keys()

    @property
    def duplicated(self) -> dict[int, int]:
        """Taken more than once."""
        return {number: times for number, times in self.taken.items() if times > 1}


@attrs.define(eq=False)
class Client:
    """One of our own clients, on its link for as long as it takes.

    Attributes:
        port: where it dials.
        others: where it dials in turn as well.
        stolen: how often its link was, by an attach of its own that came late; it attaches again.
    """

    machine: SendingLink | ReceivingLink
    port: int
    others: tuple[int, ...] = ()
    stolen: int = attrs.field(default=0, init=False)
    losses: list[str] = attrs.field(factory=list, init=False)
    conversation: Conversation = attrs.field(init=False)

    _ports: Iterator[int] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._ports = itertools.cycle((self.port, *self.others))
        self._begin()

    def _begin(self) -> None:
        self.conversation = Conversation(
            Dialing(
                dial=self._dial,
                make_engine=self._make_engine,
                places=1 + len(self.others),
                patience_seconds=PATIENCE_SECONDS,
                on_lost=self.losses.append,
            ),
            self.machine,
        )

    async def run(self) -> None:
        """Converses until the machine is done."""
        await self.conversation.run()
        while self.machine.failure is not None and self.machine.failure.name == STOLEN:
            self.machine.failure = None
            self.stolen += 1
            self._begin()
            await self.conversation.run()
        if self.machine.failure is not None:
            raise AssertionError(f"{self.machine.name}: {self.machine.failure}")

    async def _dial(self) -> trio.abc.Stream:
        port = next(self._ports)
        return await trio.open_tcp_stream("127.0.0.1", port)

    def _make_engine(self, link_ids: Iterator[object]) -> Engine10:
        return Engine10(
            EngineSettings(
                is_server=False,
                container=f"container-of-{self.machine.name}",
                link_ids=link_ids,  # type: ignore[arg-type]
                hostname="localhost",
                sasl_client=MechanismClient,
            )
        )


def sending(
    name: str,
    address: str | None,
    port: int,
    supply: Iterator[bytes | None],
    *,
    window: int = 500,
    draw_number: DrawNumber = no_number,
    others: tuple[int, ...] = (),
    guarantee: Guarantee = Guarantee.EXACTLY_ONCE,
) -> Client:
    """Makes a client that sends, exactly once if nothing else is asked for.

    Without an address it attaches to the anonymous terminus.
    """
    machine = SendingLink(
        name=LinkName(name),
        address=address,  # type: ignore[arg-type]  # the program's own client has no use for that
        supply=supply,
        guarantee=guarantee,
        window=window,
        draw_number=draw_number,
    )
    return Client(machine, port, others)


def receiving(
    name: str,
    address: str,
    port: int,
    take: Callable[[ReceivedDelivery], DeliveryState],
    *,
    window: int = 200,
    draw_number: DrawNumber = no_number,
    others: tuple[int, ...] = (),
    guarantee: Guarantee = Guarantee.EXACTLY_ONCE,
) -> Client:
    """Makes a client that receives likewise, without end."""
    machine = ReceivingLink(
        name=LinkName(name),
        address=address,
        take=take,
        guarantee=guarantee,
        window=window,
        draw_number=draw_number,
    )
    return Client(machine, port, others)


async def watch(progress: Callable[[], int], seconds: float) -> None:
    """Fails when nothing has moved for so long."""
    before = -1
    while (now := progress()) != before:
        before = now
        await trio.sleep(seconds)
    raise AssertionError(f"nothing has moved for {seconds:g} s, at {before}")


def seeded(seed: int) -> random.Random:
    """Gives the randomness of one run."""
    return random.Random(seed)


def from_number(first: int, step: int) -> Iterator[int]:
    """Counts without end, so that several senders never send the same number."""
    return itertools.count(first, step)
