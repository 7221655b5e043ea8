"""Messages that leave the store: said to be gone, and gone when that is durable."""

from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from router.journal.store.client import StoreClient
from router.journal.store.gone import GoneColumns
from router.journal.store.place import Place
from router.journal.store.queues import Claim, RouteKey
from router.journal.store.runs import MessagesRead
from router.model.identity import DeliveryNumber, LinkId


class Settling(NamedTuple):
    """A delivery that is settled with the core when a record is durable."""

    sequence: int
    link: LinkId
    number: DeliveryNumber


class Going(NamedTuple):
    """Messages that are gone as soon as their records are durable.

    Attributes:
        sequence: number of the last record.
        outcome: of all of them.
        route: whose messages they are; None: an earlier connection has said that they are gone.
        names: of the messages.
        messages: how many they are.
    """

    sequence: int
    outcome: int
    route: RouteKey | None
    names: Sequence[Claim] | GoneColumns
    messages: int

    @property
    def claims(self) -> Sequence[Claim]:
        """Names them."""
        return self.names.claims if isinstance(self.names, GoneColumns) else self.names


class Leaving:
    """What has left, and is not known to be durable.

    Attributes:
        unhurried: records that are to be sent to the store, and may wait for others ...
        unhurried_messages: ... and the messages of which they say that they are gone.
    """

    def __init__(self, client: StoreClient, clock_ns: Callable[[], int]) -> None:
        """Begins with nothing.

        Args:
            client: takes the records.
            clock_ns: nanoseconds since 1970.
        """
        self._going: deque[Going] = deque()
        self._client = client
        self._clock_ns = clock_ns
        self._settling: deque[Settling] = deque()
        self.unhurried = 0
        self.unhurried_messages = 0

    @property
    def going(self) -> list[tuple[Claim, int]]:
        """What is gone as soon as that is durable, with its outcomes."""
        return [(claim, each.outcome) for each in self._going for claim in each.claims]

    def forward(self, claims: Sequence[Claim], outcome: int, route: RouteKey | None) -> int:
        """Has the store forget messages; returns the number of the last record."""
        last = self._client.records.forwarded(self._clock_ns(), claims, outcome)
        self._going.append(Going(last, outcome, route, claims, len(claims)))
        return last

    def forward_run(self, run: MessagesRead, begin: int, end: int, outcome: int) -> None:
        """Has the store forget some messages of a run."""
        gone = run.gone(begin, end)  # the run's own memory is free as soon as it is settled
        last = self._client.records.forwarded_run(self._clock_ns(), gone, outcome)
        self._going.append(Going(last, outcome, run.route, gone, end - begin))
        self.unhurried += 1
        self.unhurried_messages += end - begin

    def hurry(self) -> None:
        """Records that all records are sent now."""
        self.unhurried = self.unhurried_messages = 0

    def is_going(self, place: Place) -> bool:
        """Returns whether it is not durable yet that a message is gone."""
        return any(claim.place == place for each in self._going for claim in each.claims)

    def settle(self, sequence: int, link: LinkId, number: DeliveryNumber) -> None:
        """Has a delivery settled when a record is durable."""
        self._settling.append(Settling(sequence, link, number))

    def durable(
        self, sequence: int
    ) -> tuple[Counter[RouteKey | None], dict[LinkId, list[DeliveryNumber]]]:
        """Records up to which record everything is durable.

        Returns:
            How many messages are gone, by route, and the deliveries that are settled now.
        """
        gone: Counter[RouteKey | None] = Counter()
        while self._going and self._going[0].sequence <= sequence:
            each = self._going.popleft()
            gone[each.route] += each.messages
        settled: dict[LinkId, list[DeliveryNumber]] = {}
        while self._settling and self._settling[0].sequence <= sequence:
            _, link, number = self._settling.popleft()
            settled.setdefault(link, []).append(number)
        return gone, settled
