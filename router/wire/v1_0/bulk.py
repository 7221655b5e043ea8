"""Compiled shortcuts of the general path for runs without special cases.

See ``router.core.bulk``: the shortcuts work on the same records and maps, change nothing when they
meet a special case, and have no rules of their own. The functions that they replace are the
reference.
"""

from typing import Protocol as Interface
from typing import cast

from router.model.compiled import compiled
from router.model.delivery import OutgoingDelivery, ReceivedDelivery
from router.model.identity import DeliveryNumber
from router.wire.v1_0.head import HeaderMemory
from router.wire.v1_0.link import IncomingLink, OutgoingLink


class Shortcuts(Interface):
    """The functions of ``_bulk``; ids and numbers are ints, as in the maps of a session."""

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
        key_lead: int,
        /,
    ) -> tuple[int, list[ReceivedDelivery]]:
        """Reads transfers of one shape; returns the offset where it stopped, and the deliveries.

        If the last ``key_lead`` octets that ``known`` remembers annotate a key, it follows them.
        """

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
        """Encodes frames of deliveries without special cases; returns them and their number."""

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
        """Enters sent deliveries into the unsettled maps, except settled ones."""

    def take_from_receiver(
        self,
        outgoing: dict[int, OutgoingLink],
        numbers: dict[int, DeliveryNumber],
        first: int,
        last: int,
        settled: bool,
        /,
    ) -> tuple[OutgoingLink, list[DeliveryNumber]] | None:
        """Applies a receiver's disposition to a range of one link; returns the link and numbers."""

    def take_from_sender(
        self, incoming: dict[int, IncomingLink], first: int, last: int, settled: bool, /
    ) -> tuple[IncomingLink, list[DeliveryNumber]] | None:
        """Applies a sender's disposition to a range of one link; returns the link and numbers."""

    def unsettled_of(
        self,
        link: IncomingLink,
        unsettled: dict[int, IncomingLink],
        numbers: list[DeliveryNumber],
        settled: bool,
        /,
    ) -> list[int]:
        """Returns the numbers that belong to a link, and forgets them if they are settled now."""

    def forget(
        self,
        numbers: list[DeliveryNumber],
        ids: dict[DeliveryNumber, int],
        outgoing: dict[int, OutgoingLink],
        numbers_by_id: dict[int, DeliveryNumber],
        /,
    ) -> list[int]:
        """Forgets sent deliveries as settled; returns the ids of those that were known."""


shortcuts: Shortcuts | None = cast("Shortcuts | None", compiled("router.wire.v1_0._bulk"))
"""None: not compiled."""
