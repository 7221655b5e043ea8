"""One delivery's way through the router: the incoming delivery and the outgoing one.

States of a ``Pairing``, by the map or queue that holds it (``links/life.py`` changes them):

    queued       in ``queue.waiting``; ``outgoing`` is None; never sent, or taken back to be sent
                 again
    sent         in ``outgoing.unsettled`` (or ``outgoing.adrift`` while that link is suspended)
    answered     the receiver's outcome is known and settled there (``outcome``); the sender, who
                 settles first on this link, has been sent it and has not settled yet
    done         in no map; nothing refers to it

In addition, until it has been settled towards the sender, it is in ``incoming.unsettled``
(or ``incoming.adrift`` while that link is suspended), whatever its state. Once the sender is gone
for good it is in neither, and still runs to its end at the receiver.

A multicast delivery has one pairing that the sender knows, the trunk, and one branch per receiver,
which is only in ``outgoing.unsettled``; ``fan`` connects them.

A delivery that its sender has settled, on sending or later, is *in custody* (``core.node``): the
sender cannot send it again, so the router keeps it until a receiver has accepted it. It is in
no map of its sender's link, only in its receiver's or in its queue.

What may never happen: a pairing leaves ``incoming.unsettled`` for any other reason than that we
settle it, the sender settles it, or the link ends; so every unsettled delivery received gets
exactly one outcome.
"""

from collections import deque
from collections.abc import Iterator

import attrs

from router.links.link import IncomingLink, OutgoingLink, Trial
from router.links.partial import Parts
from router.model.delivery import Elder, ReceivedDelivery
from router.model.identity import DeliveryNumber, DeliveryTag
from router.model.outcome import DeliveryState, Outcome

UNNUMBERED = DeliveryNumber(-1)
"""Stands where a delivery has no number: not sent, or adrift."""

NO_TAG = DeliveryTag(b"")


@attrs.define(eq=False)
class Queue:
    """Deliveries of one incoming link that wait, in their order."""

    incoming: IncomingLink
    waiting: "deque[Pairing]" = attrs.field(factory=deque, init=False)


@attrs.define(eq=False)
class Pairing:
    """An incoming delivery, and the outgoing one that it became.

    ``links/life.py`` writes its position (``incoming``, ``number``, ``outgoing``,
    ``outgoing_number``, ``outgoing_tag``), its settlement (``is_settled``, ``is_unusual``,
    ``outcome``, ``reported``) and its failed attempts (``attempts``, ``tried``, ``barred``,
    ``failure``, ``was_in_doubt``, ``elder``).
    The code that moves it to another node writes ``queue``, the code that begins or ends a
    multicast writes ``fan``, and ``core/stream.py`` and ``core/settle.py`` write ``parts`` and the
    fields about parts. ``arrived`` and ``sequence`` never change.

    Attributes:
        number: the incoming engine's number.
        arrived: its time of arrival, on the core's clock.
        sequence: its place among the deliveries of its link; never changes.
        is_settled: nobody waits for the outcome: it was sent settled, or its sender has settled or
            is gone.
        is_unusual: settlement needs the general path: it is in parts, or multicast, or its sender
            has settled, or is away.
        outcome: the receiver's outcome, if the sender is yet to settle or to return.
        reported: the state last sent to the sender, unsettled.
        attempts: how many earlier attempts have failed, or were in doubt.
        doubts: how many of them were in doubt, and so may have been no failure of the receiver.
        tried: links that returned it, as they were then (``Trial``).
        barred: those of them that must not be sent it again.
        failure: the outcome for the sender if no other receiver takes it; None: released.
        parts: its payload, if it was received in parts.
        was_in_doubt: it is sent again after it was in doubt, and no receiver has had it since.
        elder: a target of a stored route has given it back, or never had it, so that it is older
            than all that is stored for its address (``core/storing.py``).
        archived_octets: so many octets of it are in the archive, and further parts are archived on
            arrival; None: they are not.
        parts_sent: how many of its parts were sent to ``outgoing``.
    """

    incoming: IncomingLink
    number: DeliveryNumber
    delivery: ReceivedDelivery
    queue: Queue
    arrived: float
    sequence: int
    is_settled: bool = False
    is_unusual: bool = False
    outgoing: OutgoingLink | None = attrs.field(default=None, init=False)
    outgoing_number: DeliveryNumber = attrs.field(default=UNNUMBERED, init=False)
    outgoing_tag: DeliveryTag = attrs.field(default=NO_TAG, init=False)
    outcome: DeliveryState | None = attrs.field(default=None, init=False)
    reported: DeliveryState | None = attrs.field(default=None, init=False)
    attempts: int = attrs.field(default=0, init=False)
    doubts: int = attrs.field(default=0, init=False)
    tried: set[Trial] | None = attrs.field(default=None, init=False)
    barred: set[Trial] | None = attrs.field(default=None, init=False)
    failure: Outcome | None = attrs.field(default=None, init=False)
    fan: "Fan | None" = attrs.field(default=None, init=False)
    parts: Parts | None = attrs.field(default=None, init=False)
    was_in_doubt: bool = attrs.field(default=False, init=False)
    elder: Elder = attrs.field(default=Elder.NOT, init=False)
    archived_octets: int | None = attrs.field(default=None, init=False)
    parts_sent: int = attrs.field(default=0, init=False)


def joined(pairing: Pairing) -> bytes:
    """Returns all parts received of a delivery in parts as they leave; while they are all here."""
    assert pairing.parts is not None
    payload, splice = pairing.parts.joined(), pairing.delivery.splice
    return payload if splice is None else splice.of(payload)


def gather(pairing: Pairing) -> None:
    """Makes a delivery in parts, which are all here, one whole."""
    pairing.delivery.payload, pairing.parts = joined(pairing), None
    pairing.delivery.splice = None


def octets_of(pairing: Pairing) -> int:
    """Returns how many octets of payload are kept for a delivery."""
    parts = pairing.parts
    return len(pairing.delivery.payload) if parts is None else parts.kept_octets


def doubts(link: OutgoingLink) -> Iterator[Pairing]:
    """Returns the deliveries sent on earlier attachments of a link that are in doubt.

    The outcome of the others is known, and their senders have been sent it or will be.
    """
    return (pairing for pairing in link.adrift.values() if pairing.outcome is None)


def count_doubts(link: OutgoingLink) -> int:
    """Returns how many deliveries of a link are in doubt."""
    return sum(1 for _ in doubts(link)) if link.adrift else 0


@attrs.define(eq=False)
class Fan:
    """One delivery to several receivers.

    Attributes:
        branches: those whose outcome is awaited.
        outcomes: of the others.
    """

    trunk: Pairing
    branches: set[Pairing] = attrs.field(factory=set)
    outcomes: list[Outcome] = attrs.field(factory=list)
