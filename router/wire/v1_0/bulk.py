"""Shortcuts of the general path for runs of which nothing is unusual: where they were compiled.

As ``router.core.bulk`` says of the core's: they work upon the same records and maps, leave all as
it is where anything is unusual, and have no rules of their own. The functions that they stand in
for are the reference.
"""

from typing import Protocol as Interface
from typing import cast

from router.model.compiled import compiled
from router.model.delivery import OutgoingDelivery, ReceivedDelivery
from router.model.identity import DeliveryNumber
from router.wire.v1_0.head import HeaderMemory
from router.wire.v1_0.link import IncomingLink, OutgoingLink


class Shortcuts(Interface):
    """What ``_bulk`` offers; ids and numbers are ints, as in the maps of a session."""

    def read_run(  # noqa: PLR0917  a call for each run, of things that are at hand
        self,
        octets: bytes,
        at: int,
        end: int,
        largest: int,
        most: int,
        head: bytes,
        tag_head: bytes,
        tail: bytes,
        delivery_id: int,
        settled: bool,
        is_second: bool,
        known: HeaderMemory,
        /,
    ) -> tuple[int, list[ReceivedDelivery]]:
        """Reads transfers that look alike; returns where it stopped, and the deliveries."""

    def write_run(  # noqa: PLR0917  as above
        self,
        deliveries: list[OutgoingDelivery],
        start: int,
        end: int,
        head: bytes,
        tag_head: bytes,
        tag_octets: int,
        delivery_id: int,
        largest: int,
        largest_frame: int,
        is_router: bool,
        /,
    ) -> tuple[bytes, int]:
        """Writes frames of usual deliveries; returns them and how many they are."""

    def enter_run(  # noqa: PLR0917  as above
        self,
        deliveries: list[OutgoingDelivery],
        start: int,
        count: int,
        first_id: int,
        link: OutgoingLink,
        outgoing: dict[int, OutgoingLink],
        numbers: dict[int, DeliveryNumber],
        ids: dict[DeliveryNumber, int],
        /,
    ) -> None:
        """Enters what was sent into the unsettled maps, but what is settled."""

    def take_from_receiver(
        self,
        outgoing: dict[int, OutgoingLink],
        numbers: dict[int, DeliveryNumber],
        first: int,
        last: int,
        settled: bool,
        /,
    ) -> tuple[OutgoingLink, list[DeliveryNumber]] | None:
        """Takes a receiver's word on a range of one link; returns it and the numbers."""

    def take_from_sender(
        self, incoming: dict[int, IncomingLink], first: int, last: int, settled: bool, /
    ) -> tuple[IncomingLink, list[DeliveryNumber]] | None:
        """Takes a sender's word on a range of one link; returns it and the numbers."""

    def unsettled_of(
        self,
        link: IncomingLink,
        unsettled: dict[int, IncomingLink],
        numbers: list[DeliveryNumber],
        settled: bool,
        /,
    ) -> list[int]:
        """Returns those numbers that are a link's, and forgets them if they are settled now."""

    def forget(
        self,
        numbers: list[DeliveryNumber],
        ids: dict[DeliveryNumber, int],
        outgoing: dict[int, OutgoingLink],
        told: dict[int, DeliveryNumber],
        /,
    ) -> list[int]:
        """Forgets what was sent, as settled; returns the ids of what was known."""


shortcuts: Shortcuts | None = cast("Shortcuts | None", compiled("router.wire.v1_0._bulk"))
"""None: there are none here."""
