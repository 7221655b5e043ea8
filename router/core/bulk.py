"""Shortcuts for runs of which nothing is unusual: compiled, and only where they were.

Theory of operation. Nearly all deliveries come in runs of one link that differ in nothing but
number, tag and payload, go to one receiver, and end alike. The machines of the core do with each
what its state asks for, which takes a microsecond for every step. A *shortcut* is one such step for
a whole run. It works upon the same records; first it looks whether anything about any of them is
unusual, and if so it changes nothing and says so: then the machine goes its long way, which is the
reference. So there are no rules here, and a worker without the compiled module does the same.

Numbers are those of ``router.model.identity``; deliveries, pairings and entries are the records
themselves, of exactly those classes.
"""

from typing import Protocol as Interface
from typing import cast

from router.core.link_ledgers import Entry
from router.journal.keys import LinkKey
from router.links.link import IncomingLink, OutgoingLink
from router.links.pairing import Pairing
from router.model.capabilities import Protocol
from router.model.compiled import compiled
from router.model.delivery import OutgoingDelivery, ReceivedDelivery
from router.model.identity import DeliveryKey, DeliveryNumber
from router.model.outcome import DeliveryState


class Shortcuts(Interface):
    """What ``_bulk`` offers; each function leaves all as it is where it says None, False or -1."""

    def name(self, deliveries: list[ReceivedDelivery], prefix: bytes, first: int) -> bool:
        """Assigns keys to deliveries that have none, as ``DeliveryKeys.arrived`` does."""

    def pair(  # noqa: PLR0917  a call for each run, of things that are at hand
        self,
        deliveries: list[ReceivedDelivery],
        incoming: IncomingLink,
        feed: object,
        now: float,
        sequence: int,
        unsettled: dict[DeliveryNumber, Pairing],
        second: bool,
        /,
    ) -> tuple[list[Pairing], int, int] | None:
        """Makes pairings of whole new deliveries.

        Gives them, their octets, and how many are settled.
        """

    def enter(  # noqa: PLR0917  a call for each run, of things that are at hand
        self,
        pairings: list[Pairing],
        entries: dict[DeliveryKey, Entry],
        numbered: dict[DeliveryNumber, Entry],
        source: LinkKey,
        waits: bool,
        protocol: Protocol,
        has_address: bool,
        /,
    ) -> tuple[list[DeliveryKey], list[bytes], list[bytes]] | None:
        """Enters deliveries into the ledger of their link; returns keys, tags and payloads."""

    def send(  # noqa: PLR0917  a call for each run, of things that are at hand
        self,
        pairings: list[Pairing],
        link: OutgoingLink,
        number: int,
        unsettled: dict[DeliveryNumber, Pairing],
        run: list[OutgoingDelivery],
        prefix: bytes | None,
        most_tag_octets: int,
        /,
    ) -> int:
        """Adds deliveries to a link's run, numbered from ``number`` on; returns their octets.

        Without ``prefix`` the number is the tag.
        """

    def sending(  # noqa: PLR0917  a call for each run, of things that are at hand
        self,
        run: list[OutgoingDelivery],
        unsettled: dict[DeliveryNumber, Pairing],
        incoming: IncomingLink,
        known: dict[DeliveryKey, Entry],
        numbered: dict[DeliveryNumber, Entry],
        sent_on: tuple[LinkKey, ...],
        /,
    ) -> tuple[list[DeliveryKey], list[bytes]] | None:
        """Records deliveries of one sender that go out; returns keys and tags."""

    def heard(
        self,
        numbers: list[DeliveryNumber],
        numbered: dict[DeliveryNumber, Entry],
        settled: bool,
        state: DeliveryState | None,
        /,
    ) -> tuple[list[Entry], list[DeliveryKey], bool] | None:
        """Notes an outcome in entries of one source.

        Gives the entries, their keys, and whether some may be for senders that are away.
        """

    def answered(
        self, numbers: list[DeliveryNumber], unsettled: dict[DeliveryNumber, Pairing], /
    ) -> tuple[IncomingLink, list[Pairing], list[DeliveryNumber], int] | None:
        """Finds usual deliveries of one sender, which has settled all of them or none.

        Gives the sender, the deliveries, their numbers and octets.
        """

    def answer(self, pairings: list[Pairing], told: DeliveryState | None, /) -> None:
        """Notes that senders, who settle first, are told an outcome; payload goes."""

    def is_told(
        self,
        numbers: list[DeliveryNumber],
        numbered: dict[DeliveryNumber, Entry],
        state: DeliveryState | None,
        /,
    ) -> bool:
        """Returns whether the very state that a sender is to hear is on record for all of a run."""

    def settle_with_sender(
        self,
        numbers: list[DeliveryNumber],
        numbered: dict[DeliveryNumber, Entry],
        entries: dict[DeliveryKey, Entry],
        /,
    ) -> list[DeliveryKey]:
        """Forgets what a sender has settled; returns the keys of what was known."""

    def settled_by_sender(
        self,
        numbers: list[DeliveryNumber],
        unsettled: dict[DeliveryNumber, Pairing],
        state: DeliveryState | None,
        /,
    ) -> tuple[OutgoingLink, DeliveryState, list[DeliveryNumber]] | None:
        """Ends usual deliveries that went to one receiver and have one outcome.

        Gives the receiver, the outcome, and their numbers there.
        """

    def settle_with_receiver(
        self,
        numbers: list[DeliveryNumber],
        numbered: dict[DeliveryNumber, Entry],
        sent_on: tuple[LinkKey, ...],
        /,
    ) -> tuple[LinkKey, list[DeliveryKey]] | None:
        """Forgets at its receiver what came from one source and is there alone."""


shortcuts: Shortcuts | None = cast("Shortcuts | None", compiled("router.core._bulk"))
"""None: there are none here."""
