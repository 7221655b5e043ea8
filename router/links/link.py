"""Connections and links as the core keeps them.

These are the core's own long-lived records, changed in place by its machines; what they tell
engines goes as commands. A link object outlives its attachment: when the peer goes away and the
terminus is kept (§2.6.13), ``link`` and ``connection`` turn None and everything unsettled stays.

    attached     link is a LinkId, connection is set
    unheard      attached, and the peer is yet to show that it has read our attach: the attach may
                 be late (``attaches``), so what is unsettled is kept whatever it says
    detached     likewise, and ``is_detached``: it has no handle any more, but while its session
                 stands its deliveries keep their numbers and can be spoken of (§2.6.4, §2.7.6);
                 beside that it is suspended
    suspended    both None; the link stands in the register of suspended links
    gone         both None, ``is_gone``; deliveries that still refer to it have nobody to tell

The maps ``unsettled`` and ``adrift`` are written by ``links/life.py`` alone, ``run``, ``told``,
``told_state`` and ``told_settled`` by ``core/turn.py``, ``queued`` by ``core/node.py``, and what is
said of credit, drain and numbers by the methods here. ``follow_lane`` brings that up to date with
the express lane; ``core/lanes.py`` alone says which links are on it.
"""

from collections import deque
from typing import TYPE_CHECKING

import attrs

from router.links.pace import Pace
from router.model.capabilities import Capabilities
from router.model.delivery import OutgoingDelivery
from router.model.identity import (
    ConnectionId,
    ContainerId,
    DeliveryNumber,
    DeliveryTag,
    LinkId,
    LinkName,
)
from router.model.idle import NOTHING
from router.model.outcome import DeliveryState
from router.model.terminus import Coordinator, Role, Source, Target
from router.model.ways import Stop, Ways

if TYPE_CHECKING:
    from router.links.attaches import AttachNumber
    from router.links.pairing import Pairing, Queue
    from router.links.recovery import Absent, Action


@attrs.frozen
class LinkKey:
    """What a link is known by across connections (§2.6.1), for one authenticated identity.

    The identity is part of it so that nobody resumes another's link by using its names.

    Attributes:
        user: authenticated identity of the peer; None: anonymous.
        container: the peer's container-id.
        role: our end's.
        vhost: that it has attached in, if that has routes of its own.
    """

    user: str | None
    container: ContainerId
    name: LinkName
    role: Role
    vhost: str = ""


@attrs.define(eq=False)
class Octets:
    """A budget of payload octets.

    Attributes:
        limit: the budget.
        used: payload octets of deliveries whose outcome is not known yet.
    """

    limit: int
    used: int = 0

    @property
    def is_spent(self) -> bool:
        """Whether nothing more may be asked for."""
        return self.used >= self.limit

    @property
    def has_room_again(self) -> bool:
        """Whether enough came free to go on: a quarter, so that it does not flutter."""
        return self.used * 4 <= self.limit * 3


@attrs.define(eq=False, kw_only=True)
class Connection:
    """A connection that has opened.

    Attributes:
        configured: name of the configured container that we dialed; None: it dialed us.
        is_gone: it has ended; nothing is ordered for it any more.
        is_congested: its output has piled up; no payload goes out on it meanwhile.
        octets: payload that its incoming links brought and whose outcome is not known.
        is_held: the budget is spent; its windows are held until there is room again.
        is_ahead: it has used up what may come settled beyond credit (``core.credit``).
        is_leaving: nothing new goes in or out; it is closed when what is under way has ended.
        detached: links that were detached on it, and whose deliveries still have their numbers.
        vhost: its virtual host, if that has routes of its own; empty: the one that others share.
        guest: the name of its only link, if that leads here through a sibling: ``id`` is then that
            of the connection to the sibling. None: it is connected to this worker.
        is_volatile: a guest whose engine keeps what is unsettled, and loses it with its worker.
        keeps_maps: a guest of whose links its engine keeps the maps: none that it tells is old.
        pace: how fast it may send; None: as fast as it can.
    """

    id: ConnectionId
    container: ContainerId
    user: str | None
    capabilities: Capabilities
    octets: Octets
    configured: str | None = None
    vhost: str = ""
    guest: LinkName | None = None
    is_volatile: bool = False
    keeps_maps: bool = False
    pace: Pace | None = None
    is_gone: bool = attrs.field(default=False, init=False)
    is_congested: bool = attrs.field(default=False, init=False)
    is_held: bool = attrs.field(default=False, init=False)
    is_ahead: bool = attrs.field(default=False, init=False)
    is_leaving: bool = attrs.field(default=False, init=False)
    incoming: dict[LinkId, "IncomingLink"] = attrs.field(factory=dict, init=False)
    outgoing: dict[LinkId, "OutgoingLink"] = attrs.field(factory=dict, init=False)
    detached: dict[LinkId, "Link"] = attrs.field(factory=dict, init=False)


@attrs.define(eq=False, kw_only=True)
class Tally:
    """Totals of a link, for snapshots and its closing line; deliveries unless the name says else.

    Attributes:
        settled: came or went settled beforehand.
        redelivered: sent on again after an attempt elsewhere failed.
        dropped: settled by their sender, and nobody could take them, or somebody rejected them.
    """

    deliveries: int = 0
    octets: int = 0
    settled: int = 0
    accepted: int = 0
    rejected: int = 0
    released: int = 0
    modified: int = 0
    expired: int = 0
    redelivered: int = 0
    dropped: int = 0


@attrs.define(eq=False, kw_only=True)
class Unheard:
    """What is kept of a link until its peer is heard.

    Attributes:
        absent: where we receive: deliveries that the sender's map lacks, by tag.
        has_map: where we send: the receiver has told a map.
        told: where we send: what that map says of deliveries of which nothing is decided, by tag.
        again: where we send: numbers of deliveries that the map lacks and that are sent again, here
            and nowhere else: the receiver may have them.
        older: a suspended link of the same name, in place of which this one has been made.
    """

    absent: dict[DeliveryTag, "Pairing"] = attrs.field(factory=dict)
    has_map: bool = False
    told: "dict[DeliveryTag, DeliveryState | Absent | None]" = attrs.field(factory=dict)
    again: set[DeliveryNumber] = attrs.field(factory=set)
    older: "Link | None" = None


@attrs.define(eq=False, kw_only=True)
class IncomingLink:
    """A link on which the peer sends and we receive.

    Attributes:
        address: None: the anonymous terminus.
        settles_second: we settle only after the sender has (§2.8.3).
        may_lose_map: it may come back without its unsettled map, and bring its deliveries again.
        tag_prefix: what tags derived from this link's begin with (see ``tags``).
        outcomes: what its source can be told, symbolic descriptors; empty: everything.
        number: the greatest number of an attach of it that has been accepted; None: it had none.
        unheard: what is kept until the peer is heard; None: it has been, or nothing depends on it.
        session: names the session that it is attached on; None: numbers end with attachments.
        is_detached: it is detached, and its deliveries still have their numbers.
        is_reducing: an unsettled map was incomplete, so that nothing new may pass (§2.6.13).
        asks_all: then: the sender is asked to resume all that it can; ``has_given_all``: it has.
        link_credit: the most that is ever granted.
        unsettled_limit: credit and unsettled deliveries together never exceed it; 0: no limit.
        credit: what the peer may still send.
        ahead: settled deliveries that may come beyond it; of a peer of this worker's, any number
            unless it is 0. None: they need credit like others.
        skip_octets: of a delivery that is resumed before its point of interruption: what is here.
        is_draining: credit was asked back and the answer is awaited.
        is_emptying: the sender was asked to use its credit up, and is granted none meanwhile.
        holds: why its window is held, see ``credit.Hold``; 0: it is not.
        queued: how many of its deliveries wait to be sent on.
        is_express: it is on the express lane; what is said here of credit may be old.
        lane_unsettled: deliveries that are not settled and the lane's, when last looked at.
        octets: payload of its deliveries whose outcome is not known.
        queue: where its deliveries wait; None for the anonymous terminus.
        queues: the same by address, for the anonymous terminus.
        unsettled: by the engine's number: what the peer has not been told settled.
        adrift: by tag: unsettled deliveries that have no number until they are resumed.
        partial: the delivery whose last part is still to come.
        discarding: number of a partial delivery that is thrown away as it comes.
        told: run of numbers that goes out as one ``UpdateDeliveries`` when the turn ends.
        node: the stop of the peer's node, if the peer is a router.
        ways: what the peer, a router or a sibling, was told last of who can be reached; None:
            nothing yet, so it takes us for where all receivers are.
        is_traced: it was told that deliveries are to say what they have passed.
    """

    key: LinkKey
    address: str | None
    source: Source | None
    target: Target | Coordinator | None
    connection: Connection | None
    link: LinkId | None
    settles_second: bool = False
    may_lose_map: bool = False
    tag_prefix: bytes = b""
    outcomes: tuple[str, ...] = ()
    link_credit: int = 0
    unsettled_limit: int = 0
    number: "AttachNumber | None" = None
    unheard: Unheard | None = attrs.field(default=None, init=False)
    session: int | None = attrs.field(default=None, init=False)
    is_detached: bool = attrs.field(default=False, init=False)
    is_reducing: bool = attrs.field(default=False, init=False)
    asks_all: bool = attrs.field(default=False, init=False)
    has_given_all: bool = attrs.field(default=False, init=False)
    is_gone: bool = attrs.field(default=False, init=False)
    credit: int = attrs.field(default=0, init=False)
    ahead: int | None = attrs.field(default=None, init=False)
    is_draining: bool = attrs.field(default=False, init=False)
    is_emptying: bool = attrs.field(default=False, init=False)
    holds: int = attrs.field(default=0, init=False)
    queued: int = attrs.field(default=0, init=False)
    is_express: bool = attrs.field(default=False, init=False)
    lane_unsettled: int = attrs.field(default=0, init=False)
    octets: int = attrs.field(default=0, init=False)
    queue: "Queue | None" = attrs.field(default=None, init=False)
    queues: dict[str, "Queue"] = attrs.field(factory=dict, init=False)
    unsettled: dict[DeliveryNumber, "Pairing"] = attrs.field(factory=dict, init=False)
    adrift: dict[DeliveryTag, "Pairing"] = attrs.field(factory=dict, init=False)
    partial: "Pairing | None" = attrs.field(default=None, init=False)
    skip_octets: int = attrs.field(default=0, init=False)
    discarding: DeliveryNumber | None = attrs.field(default=None, init=False)
    tally: Tally = attrs.field(factory=Tally, init=False)
    told: list[DeliveryNumber] = attrs.field(factory=list, init=False)
    told_state: DeliveryState | None = attrs.field(default=None, init=False)
    told_settled: bool = attrs.field(default=False, init=False)
    node: Stop | None = attrs.field(default=None, init=False)
    ways: Ways | None = attrs.field(default=None, init=False)
    is_traced: bool = attrs.field(default=False, init=False)

    def grant(self, credit: int, *, empties: bool = False) -> None:
        """Records that the peer may send so many; ``empties``: it is asked to use them up."""
        self.credit = credit
        self.is_draining = False
        self.is_emptying = empties

    def offer_ahead(self, ahead: int | None) -> None:
        """Records how many settled deliveries may come beyond credit."""
        self.ahead = ahead

    def withdraw_credit(self) -> None:
        """Records that the peer is asked to give its credit back."""
        self.credit = 0
        self.is_draining = True
        self.is_emptying = False

    def return_credit(self, credit: int) -> None:
        """Records that the peer has given credit back, and what it has left."""
        self.credit = credit
        self.is_draining = self.is_emptying = False

    def use_credit(self, count: int, *, counts_ahead: bool) -> None:
        """Records that deliveries have come; ``counts_ahead``: those beyond credit are limited."""
        beyond = count - self.credit
        self.credit = max(0, -beyond)
        if beyond > 0 and self.ahead and counts_ahead:
            self.ahead = max(0, self.ahead - beyond)

    def lose_credit(self) -> None:
        """Records that the attachment is over, and all credit with it."""
        self.return_credit(0)

    def follow_lane(self, credit: int, *, queued: int, unsettled: int) -> None:
        """Takes over what the express lane knows of the link."""
        self.credit = credit
        self.queued = queued
        self.lane_unsettled = unsettled


@attrs.define(eq=False, kw_only=True)
class OutgoingLink:
    """A link on which we send and the peer receives.

    Attributes:
        wants_settled: the peer wants every delivery settled beforehand (§2.8.2).
        is_router: the peer is this program, and trusted, or a sibling: keys are carried.
        traces: the peer is a router, and no sibling.
        node: the stop of the peer's node, if it is a router.
        ways: what the peer has told of who can be reached through it; None: nothing.
        is_traced: the peer wants to know what deliveries have passed: they may go on to routers.
        settles_second: the peer settles only after we have (§2.8.3).
        settles_on_send: every delivery goes out settled, by the peer's wish or the route's.
        carries_tags: tags towards the peer derive from the sender's (see ``tags``).
        is_recorded: what goes out on it is written down, if there is a journal.
        is_plain: nothing about a delivery needs looking at before it goes out on it.
        max_message_octets: the largest message that the peer takes; 0: no limit.
        number, unheard: as with ``IncomingLink``.
        session, is_detached, is_reducing: as with ``IncomingLink``.
        credit: deliveries that may still be sent.
        width: the credit that the peer's last grant gave.
        group: the node that it takes from, for the core.
        last_used: the node's turn in which it was last chosen.
        cost: 0: attached to this worker; 1: to a sibling; more: over other routers.
        elsewhere: unsettled at those who receive by it, a sibling's receivers, and sent by others.
        receivers: how many receive by it: 1, or as many as a sibling has.
        priority: others of its node are sent to only while those above them have no credit.
        place: order of coming to its node.
        unsettled: by our number: what was sent and is not settled.
        adrift: by tag: sent on an earlier attachment, to be resumed.
        is_resuming: the peer has been told what is adrift, and has yet to answer.
        resuming: what is to be done about deliveries adrift, in order, before anything new.
        partial: the delivery whose last part has not been sent yet.
        takes_parts: the peer takes deliveries part by part here, whatever its connection does.
        is_draining: the peer waits for its credit to be used up or given back.
        is_express, lane_unsettled: as with ``IncomingLink``.
        run: deliveries that go out as one ``SendDeliveries`` when the turn ends.
        told: run of numbers, as with ``IncomingLink``.
    """

    key: LinkKey
    address: str | None
    source: Source | None
    target: Target | Coordinator | None
    connection: Connection | None
    link: LinkId | None
    wants_settled: bool = False
    is_router: bool = attrs.field(default=False, init=False)
    traces: bool = attrs.field(default=False, init=False)
    node: Stop | None = attrs.field(default=None, init=False)
    ways: Ways | None = attrs.field(default=None, init=False)
    is_traced: bool = attrs.field(default=False, init=False)
    settles_second: bool = False
    max_message_octets: int = 0
    number: "AttachNumber | None" = None
    unheard: Unheard | None = attrs.field(default=None, init=False)
    settles_on_send: bool = attrs.field(default=False, init=False)
    carries_tags: bool = attrs.field(default=False, init=False)
    is_recorded: bool = attrs.field(default=False, init=False)
    is_plain: bool = attrs.field(default=True, init=False)
    session: int | None = attrs.field(default=None, init=False)
    is_detached: bool = attrs.field(default=False, init=False)
    is_reducing: bool = attrs.field(default=False, init=False)
    is_gone: bool = attrs.field(default=False, init=False)
    credit: int = attrs.field(default=0, init=False)
    width: int = attrs.field(default=0, init=False)
    is_resuming: bool = attrs.field(default=False, init=False)
    resuming: "deque[tuple[Pairing, Action]]" = attrs.field(default=NOTHING, init=False)
    group: object = attrs.field(default=None, init=False)
    last_used: int = attrs.field(default=0, init=False)
    cost: int = 0
    elsewhere: int = attrs.field(default=0, init=False)
    receivers: int = attrs.field(default=1, init=False)
    priority: int = attrs.field(default=0, init=False)
    place: int = attrs.field(default=0, init=False)
    next_number: int = attrs.field(default=0, init=False)
    unsettled: dict[DeliveryNumber, "Pairing"] = attrs.field(factory=dict, init=False)
    adrift: dict[DeliveryTag, "Pairing"] = attrs.field(factory=dict, init=False)
    partial: "Pairing | None" = attrs.field(default=None, init=False)
    takes_parts: bool = attrs.field(default=False, init=False)
    is_draining: bool = attrs.field(default=False, init=False)
    is_express: bool = attrs.field(default=False, init=False)
    lane_unsettled: int = attrs.field(default=0, init=False)
    tally: Tally = attrs.field(factory=Tally, init=False)
    run: list[OutgoingDelivery] = attrs.field(factory=list, init=False)
    told: list[DeliveryNumber] = attrs.field(factory=list, init=False)
    told_state: DeliveryState | None = attrs.field(default=None, init=False)
    told_settled: bool = attrs.field(default=False, init=False)

    def grant(self, credit: int, *, width: int, drains: bool) -> None:
        """Records how many the peer takes, beside what is on its way to it.

        Args:
            credit: what may still be sent.
            width: what the peer has granted.
            drains: it waits for that to be used up or given back.
        """
        self.credit = credit
        self.width = width
        self.is_draining = drains

    def use_credit(self, count: int) -> None:
        """Records that deliveries were given the next numbers and go out."""
        self.next_number += count
        self.credit -= count

    def return_credit(self) -> None:
        """Records that what was not used is given back to the peer."""
        self.credit = 0
        self.is_draining = False

    def lose_credit(self) -> None:
        """Records that the attachment is over, and all credit with it."""
        self.credit = self.width = 0
        self.is_draining = False

    def follow_lane(self, credit: int, *, width: int, unsettled: int) -> None:
        """Takes over what the express lane knows of the link."""
        self.credit = credit
        self.width = width
        self.lane_unsettled = unsettled

    def postpone(self, pairing: "Pairing", action: "Action") -> None:
        """Puts what is to be done about a delivery adrift behind what else is."""
        if self.resuming is NOTHING:
            self.resuming = deque()
        self.resuming.append((pairing, action))


Link = IncomingLink | OutgoingLink


def unnumbered(link: Link) -> "list[Pairing]":
    """Returns the unsettled deliveries of a link that have no number on its present attachment."""
    absent = () if link.unheard is None else link.unheard.absent.values()
    return [*link.adrift.values(), *absent]


def is_away(link: Link) -> bool:
    """Returns whether a link is not attached."""
    return link.link is None or link.is_detached
