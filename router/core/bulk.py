"""Shortcuts for runs without anything unusual: compiled, and only where the extension was built.

Theory of operation. Nearly all deliveries arrive in runs of one link that differ only in number,
tag and payload, go to one receiver, and get the same outcome. The core's machines handle each of
them as its state requires, which takes a microsecond per step. A *shortcut* is one such step for a
whole run. It works on the same records. First it checks whether anything about any of them is
unusual; if so, it changes nothing and reports that, and the machine takes its general path, which
is the reference. So a shortcut has no rules of its own, and a worker without the compiled module
does the same.

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
    """The functions of ``_bulk``; one that returns None, False or -1 has changed nothing."""

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

        Returns the pairings, their octets, and how many are settled.
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
        carries_keys: bool,
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
        """Records deliveries of one sender that are sent; returns keys and tags."""

    def record_outcome(
        self,
        numbers: list[DeliveryNumber],
        numbered: dict[DeliveryNumber, Entry],
        settled: bool,
        state: DeliveryState | None,
        /,
    ) -> tuple[list[Entry], list[DeliveryKey], bool] | None:
        """Records an outcome in entries of one source.

        Returns the entries, their keys, and whether some may belong to senders that are away.
        """

    def answered(
        self, numbers: list[DeliveryNumber], unsettled: dict[DeliveryNumber, Pairing], /
    ) -> tuple[IncomingLink, list[Pairing], list[DeliveryNumber], int] | None:
        """Finds ordinary deliveries of one sender, which has settled all of them or none.

        Returns the sender, the deliveries, their numbers and octets.
        """

    def answer(self, pairings: list[Pairing], outcome: DeliveryState | None, /) -> None:
        """Records the outcome sent to senders, which settle first, and drops the payloads."""

    def is_recorded(
        self,
        numbers: list[DeliveryNumber],
        numbered: dict[DeliveryNumber, Entry],
        state: DeliveryState | None,
        /,
    ) -> bool:
        """Returns whether exactly the state that a sender will get is on record for all of them."""

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
