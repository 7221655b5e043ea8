"""Connections and links as the core keeps them.

These are the core's own long-lived records, which its machines change in place; engines receive
commands. A link object outlives its attachment: when the peer goes away and the terminus is kept
(§2.6.13), ``link`` and ``connection`` become None and all unsettled deliveries stay.

    attached     link is a LinkId, connection is set
    unconfirmed  attached, and the peer has not yet proved that it has read our attach: its attach
                 may be late (``attaches``), so unsettled deliveries are kept whatever its map says
    detached     as attached, and ``is_detached``: the link has no handle any more, but until its
                 session ends its deliveries keep their numbers for dispositions (§2.6.4, §2.7.6);
                 otherwise it is treated as suspended
    suspended    both None; the link is in the register of suspended links
    gone         both None, ``is_gone``; outcomes of deliveries that refer to it go to nobody

Only ``links/life.py`` writes the maps ``unsettled`` and ``adrift``. ``core/turn.py`` writes
``run``, ``update_numbers``, ``update_state`` and ``update_settled``, ``core/node.py`` writes
``queued``, and the methods here write credit, drain and numbers. ``follow_lane`` updates these from
the express lane; only ``core/lanes.py`` decides which links are on the lane.
"""

from collections import deque
from typing import TYPE_CHECKING
from typing import Protocol as Interface

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
from router.model.ways import Chain, Stop, Ways

if TYPE_CHECKING:
    from router.links.attaches import AttachNumber
    from router.links.pairing import Pairing, Queue
    from router.links.recovery import Absent, Action


@attrs.frozen
class LinkKey:
    """Identifies a link across connections (§2.6.1), for one authenticated identity.

    The identity is part of the key so that nobody resumes a foreign link by using its names.

    Attributes:
        user: authenticated identity of the peer; None: anonymous.
        container: the peer's container-id.
        role: our end's.
        vhost: the virtual host of the attach, if it has routes of its own.
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
        used: payload octets of deliveries without an outcome.
    """

    limit: int
    used: int = 0

    @property
    def left(self) -> int:
        """What is left of the budget; negative if it is exceeded."""
        return self.limit - self.used

    @property
    def is_spent(self) -> bool:
        """Whether the budget is used up, so that no more credit may be granted."""
        return self.used >= self.limit

    @property
    def has_recovered(self) -> bool:
        """Whether a quarter of the budget is free again; the hysteresis prevents flapping."""
        return self.used * 4 <= self.limit * 3


@attrs.define(eq=False, kw_only=True)
class Connection:
    """A connection that has opened.

    Attributes:
        configured: name of the configured container that it leads to, which we dialed or which has
            dialed in; None: its peer is a client.
        has_dialed_in: it is a configured container, and has dialed us; it may be a client, too.
        is_gone: it has ended; it gets no further commands.
        is_congested: its output is above the high mark; no payload is sent on it meanwhile.
        octets: payload octets received on its links in deliveries without an outcome.
        is_held: its octet budget is used up; its windows are held until there is room again.
        is_ahead: it has used up its settled deliveries beyond credit (``core.credit``).
        is_leaving: it accepts and sends nothing new; it is closed when its open deliveries end.
        detached: links that were detached on it, and whose deliveries still have their numbers.
        vhost: its virtual host, if that has routes of its own; empty: the one that others share.
        guest: the name of its only link, if a sibling forwards that link to this worker: ``id`` is
            then that of the connection to the sibling. None: it is connected to this worker.
        is_volatile: a guest whose engine keeps unsettled state, and loses it with its worker.
        keeps_maps: a guest whose engine keeps the maps of its links, so that no map is outdated.
        is_ingress: a guest that is another site's router, whose chain of an exactly-once route ends
            here: ``id`` is that of the connection to the neighbor by which it comes at present.
        pace: how fast it may send; None: unlimited.
    """

    id: ConnectionId
    container: ContainerId
    user: str | None
    capabilities: Capabilities
    octets: Octets
    configured: str | None = None
    has_dialed_in: bool = False
    vhost: str = ""
    guest: LinkName | None = None
    is_volatile: bool = False
    keeps_maps: bool = False
    is_ingress: bool = False
    pace: Pace | None = None
    is_gone: bool = attrs.field(default=False, init=False)
    is_congested: bool = attrs.field(default=False, init=False)
    is_held: bool = attrs.field(default=False, init=False)
    is_ahead: bool = attrs.field(default=False, init=False)
    is_leaving: bool = attrs.field(default=False, init=False)
    incoming: dict[LinkId, "IncomingLink"] = attrs.field(factory=dict, init=False)
    outgoing: dict[LinkId, "OutgoingLink"] = attrs.field(factory=dict, init=False)
    detached: dict[LinkId, "Link"] = attrs.field(factory=dict, init=False)

    @property
    def is_dialed(self) -> bool:
        """Whether we dialed it."""
        return self.configured is not None and not self.has_dialed_in


@attrs.define(eq=False, kw_only=True)
class Tally:
    """Totals of a link, for snapshots and its closing line, in deliveries unless named otherwise.

    Attributes:
        settled: received or sent settled.
        redelivered: sent again after an attempt elsewhere had failed.
        dropped: settled by their sender, and then without a receiver, or rejected by one.
        unroutable: refused by a target without a binding, or without a receiver.
        fallback: sent to the route's fallback, or pulled from it.
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
    unroutable: int = 0
    fallback: int = 0


class Names(Interface):
    """Finds names of single deliveries, see ``routes.pulling``."""

    def find(self, name: str | None) -> str | None:
        """Returns the other name of an address; None: there is none."""


@attrs.define(eq=False, kw_only=True)
class Unconfirmed:
    """The state of a link that is kept until ``AttachConfirmed``.

    Attributes:
        absent: where we receive: deliveries that the sender's map lacks, by tag.
        has_map: where we send: the receiver's attach had a map.
        states: where we send: the map's states of deliveries that are still undecided, by tag.
        again: where we send: numbers of deliveries that the map lacks and that are sent again, on
            this link only, because the receiver may have them.
        older: the suspended link of the same name that this one replaces.
    """

    absent: dict[DeliveryTag, "Pairing"] = attrs.field(factory=dict)
    has_map: bool = False
    states: "dict[DeliveryTag, DeliveryState | Absent | None]" = attrs.field(factory=dict)
    again: set[DeliveryNumber] = attrs.field(factory=set)
    older: "Link | None" = None


@attrs.define(eq=False, kw_only=True)
class IncomingLink:
    """A link on which the peer sends and we receive.

    Attributes:
        address: None: the anonymous terminus.
        settles_second: we settle only after the sender has (§2.8.3).
        may_lose_map: the sender may resume without its unsettled map, and resend its deliveries.
        tag_prefix: the first octets of all tags derived from this link's tags (see ``tags``).
        outcomes: outcomes that its source lists, symbolic descriptors; empty: all.
        number: the greatest number of its accepted attaches; None: no attach had one.
        names: gives each delivery its address (``core.pulls``); None: it is the link's, or, on a
            link to the anonymous terminus, the delivery's own.
        scatters: each delivery goes to its own address, although the link has one.
        is_pulled: we attached it, to the container that its route names as ``from``, and that is no
            router; this stays true when the container is away, or when the route changes.
        is_delayed: its deliveries have waited before they came, and perhaps failed: the header must
            be rewritten.
        takes_back: it pulls from a route's fallback (``core.fallback``).
        is_closing: it gets no credit, and ends when receivers have settled what they have.
        unconfirmed: the state kept until ``AttachConfirmed``; None: it has come, or is not needed.
        is_ours: we attached it, as an uplink.
        session: names the session that it is attached on; None: numbers end with attachments.
        is_detached: it is detached, and its deliveries still have their numbers.
        is_reducing: an unsettled map was incomplete, so no new delivery may pass (§2.6.13).
        asks_all: meanwhile the sender is asked to resume all that it can; ``has_given_all``: done.
        link_credit: the most that is ever granted.
        unsettled_limit: credit and unsettled deliveries together never exceed it; 0: no limit.
        credit: deliveries that the peer may still send.
        ahead: settled deliveries that are accepted beyond the credit; from a peer of this worker,
            any number unless it is 0. None: they need credit like others.
        skip_octets: for a delivery resumed before its point of interruption: octets that are here.
        is_draining: credit was asked back and the answer is awaited.
        is_emptying: the sender was asked to use up its credit, and is granted none meanwhile.
        is_rewinding: what comes goes back behind what was given back before, until the sender has
            heard of that; it is granted no credit meanwhile.
        rewinds_again: more has gone back since the sender was asked to say so.
        rewound: place of the last delivery, among those of the link, when something went back last.
        is_over: it has no credit, for the octets that it keeps (``links.credit``).
        holds: why its window is held, see ``credit.Hold``; 0: it is not.
        queued: how many of its deliveries wait to be sent on.
        postponed: how many others are put off (``core.postponing``).
        beside: the value of ``postponed`` that the engine was last sent.
        is_express: it is on the express lane; the credit noted here may be outdated.
        lane_unsettled, lane_octets: unsettled deliveries of the lane, and the payload that it keeps
            for the link, when last counted.
        octets: payload octets of its deliveries without an outcome.
        queue: where its deliveries wait; None for the anonymous terminus.
        queues: the same by address, for the anonymous terminus, and if it scatters.
        unsettled: by the engine's number: deliveries that have not been settled towards the peer.
        adrift: by tag: unsettled deliveries that have no number until they are resumed.
        partial: the delivery whose last part has not arrived.
        discarding: number of a partial delivery whose parts are thrown away.
        update_numbers: run of numbers that is sent as one ``UpdateDeliveries`` when the turn ends.
        node: the stop of the peer's node, if the peer is a router.
        ways: the ways last sent to the peer, a router or a sibling; None: none yet, so the peer
            assumes that every receiver is reached through us.
        is_traced: the peer was asked to add to deliveries the stops that they have passed.
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
    names: Names | None = None
    is_ours: bool = False
    scatters: bool = False
    is_pulled: bool = False
    is_delayed: bool = attrs.field(default=False, init=False)
    takes_back: bool = False
    is_closing: bool = attrs.field(default=False, init=False)
    unconfirmed: Unconfirmed | None = attrs.field(default=None, init=False)
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
    is_rewinding: bool = attrs.field(default=False, init=False)
    rewinds_again: bool = attrs.field(default=False, init=False)
    rewound: int = attrs.field(default=0, init=False)
    is_over: bool = attrs.field(default=False, init=False)
    holds: int = attrs.field(default=0, init=False)
    queued: int = attrs.field(default=0, init=False)
    postponed: int = attrs.field(default=0, init=False)
    beside: int = attrs.field(default=0, init=False)
    is_express: bool = attrs.field(default=False, init=False)
    lane_unsettled: int = attrs.field(default=0, init=False)
    lane_octets: int = attrs.field(default=0, init=False)
    octets: int = attrs.field(default=0, init=False)
    queue: "Queue | None" = attrs.field(default=None, init=False)
    queues: dict[str, "Queue"] = attrs.field(factory=dict, init=False)
    unsettled: dict[DeliveryNumber, "Pairing"] = attrs.field(factory=dict, init=False)
    adrift: dict[DeliveryTag, "Pairing"] = attrs.field(factory=dict, init=False)
    partial: "Pairing | None" = attrs.field(default=None, init=False)
    skip_octets: int = attrs.field(default=0, init=False)
    discarding: DeliveryNumber | None = attrs.field(default=None, init=False)
    tally: Tally = attrs.field(factory=Tally, init=False)
    update_numbers: list[DeliveryNumber] = attrs.field(factory=list, init=False)
    update_state: DeliveryState | None = attrs.field(default=None, init=False)
    update_settled: bool = attrs.field(default=False, init=False)
    node: Stop | None = attrs.field(default=None, init=False)
    ways: Ways | None = attrs.field(default=None, init=False)
    is_traced: bool = attrs.field(default=False, init=False)

    @property
    def is_relayed(self) -> bool:
        """Whether each delivery goes where its own address says."""
        return self.address is None or self.scatters

    def grant(self, credit: int, *, empties: bool = False) -> None:
        """Records the credit granted to the peer; ``empties``: it is asked to use it up."""
        self.credit = credit
        self.is_draining = False
        self.is_emptying = empties

    def offer_ahead(self, ahead: int | None) -> None:
        """Records how many settled deliveries are accepted beyond the credit."""
        self.ahead = ahead

    def withdraw_credit(self) -> None:
        """Records that the peer is asked to return its credit."""
        self.credit = 0
        self.is_draining = True
        self.is_emptying = False

    def return_credit(self, credit: int) -> None:
        """Records that the peer has returned credit; ``credit`` is the rest."""
        self.credit = credit
        self.is_draining = self.is_emptying = False
        self.is_rewinding = self.rewinds_again = False

    def mark_rewound(self) -> None:
        """Records that something goes back, and is sent again before all that came until now."""
        self.rewound = self.tally.deliveries

    def rewind(self, *, is_asked: bool) -> None:
        """Records that what is under way goes back; ``is_asked``: the peer is asked for its credit.

        Otherwise it is to answer an earlier request first, and is asked then.
        """
        self.is_rewinding = True
        self.rewinds_again = not is_asked
        if is_asked:
            self.withdraw_credit()

    def use_credit(self, count: int, *, counts_ahead: bool) -> None:
        """Records received deliveries; ``counts_ahead``: those beyond the credit are limited."""
        beyond = count - self.credit
        self.credit = max(0, -beyond)
        if beyond > 0 and self.ahead and counts_ahead:
            self.ahead = max(0, self.ahead - beyond)

    def lose_credit(self) -> None:
        """Records that the attachment is over, and all credit with it."""
        self.return_credit(0)

    def follow_lane(self, credit: int, *, queued: int, unsettled: int, octets: int) -> None:
        """Copies the express lane's counts for the link."""
        self.credit = credit
        self.queued = queued
        self.lane_unsettled = unsettled
        self.lane_octets = octets


Trial = tuple[LinkId, int]
"""An outgoing link, and how often it had gained receivers when it was tried."""


@attrs.define(eq=False, kw_only=True)
class OutgoingLink:
    """A link on which we send and the peer receives.

    Attributes:
        wants_settled: the peer wants every delivery settled beforehand (§2.8.2).
        is_router: the peer is this program, and trusted, or a sibling: keys are passed on.
        traces: the peer is a router, and no sibling.
        node: the stop of the peer's node, if it is a router.
        ways: the ways to receivers that the peer has reported; None: none yet.
        gained: how often it has reported a new way, or more receivers: each time it may take what
            it has returned.
        is_traced: the peer asks for the stops of deliveries, which may go on to routers.
        settles_second: the peer settles only after we have (§2.8.3).
        settles_on_send: every delivery goes out settled, by the peer's wish or the route's.
        carries_tags: tags towards the peer derive from the sender's (see ``tags``).
        is_recorded: deliveries sent on it are recorded, if there is a journal.
        keeps: it leads to the message store, which must know all about a delivery.
        carries_keys: the peer is a router, and deliveries here have keys that it is to know.
        is_unrestricted: deliveries need no checks before they are sent on it.
        max_message_octets: the largest message that the peer accepts; 0: no limit.
        number, unconfirmed: as with ``IncomingLink``.
        names: gives each delivery its address at the peer (``routes.pulling``); None: the link's.
        is_fallback: it leads to the route's fallback, and is used while nobody else receives.
        is_ours, session, is_detached, is_reducing: as with ``IncomingLink``.
        credit: deliveries that may still be sent.
        width: the credit that the peer's last grant gave.
        group: the core's node that feeds it.
        last_used: the node's turn in which it was last chosen.
        cost: 0: attached to this worker; 1: to a sibling; more: over other routers.
        elsewhere: unsettled deliveries that other workers have sent to a sibling's receivers; to
            another site, the cost of the way, which counts as so many.
        chain: to another site: the ends of its chain.
        receivers: how many receivers it leads to: 1, or the number of a sibling's.
        priority: links of a lower priority are used only while those above have no credit.
        place: order of joining its node.
        unsettled: by our number: deliveries sent and not settled.
        adrift: by tag: deliveries sent on an earlier attachment, to be resumed.
        is_resuming: the peer has been sent the map of deliveries adrift, and has yet to answer.
        resuming: actions for deliveries adrift, in order, before any new delivery.
        partial: the delivery whose last part has not been sent yet.
        takes_parts: the peer accepts deliveries part by part here, whatever its connection does.
        is_draining: the peer waits for its credit to be used up or returned.
        is_express, lane_unsettled: as with ``IncomingLink``.
        run: deliveries that are sent as one ``SendDeliveries`` when the turn ends.
        update_numbers: run of numbers, as with ``IncomingLink``.
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
    gained: int = attrs.field(default=0, init=False)
    is_traced: bool = attrs.field(default=False, init=False)
    settles_second: bool = False
    max_message_octets: int = 0
    number: "AttachNumber | None" = None
    names: Names | None = None
    is_ours: bool = False
    is_fallback: bool = False
    unconfirmed: Unconfirmed | None = attrs.field(default=None, init=False)
    settles_on_send: bool = attrs.field(default=False, init=False)
    carries_tags: bool = attrs.field(default=False, init=False)
    is_recorded: bool = attrs.field(default=False, init=False)
    keeps: bool = attrs.field(default=False, init=False)
    carries_keys: bool = attrs.field(default=False, init=False)
    is_unrestricted: bool = attrs.field(default=True, init=False)
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
    chain: Chain | None = attrs.field(default=None, init=False)
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
    update_numbers: list[DeliveryNumber] = attrs.field(factory=list, init=False)
    update_state: DeliveryState | None = attrs.field(default=None, init=False)
    update_settled: bool = attrs.field(default=False, init=False)

    @property
    def trial(self) -> Trial | None:
        """What stands for it among the links that have returned a delivery; None: it is away."""
        return None if self.link is None else (self.link, self.gained)

    def grant(self, credit: int, *, width: int, drains: bool) -> None:
        """Records the peer's credit.

        Args:
            credit: deliveries that may still be sent, without those already sent.
            width: the credit of the peer's grant.
            drains: the peer waits for the credit to be used up or returned.
        """
        self.credit = credit
        self.width = width
        self.is_draining = drains

    def lend_credit(self, credit: int) -> None:
        """Lets so many deliveries be sent, whatever the peer has granted."""
        self.credit = max(self.credit, credit)

    def use_credit(self, count: int) -> None:
        """Records that deliveries with the next numbers are sent."""
        self.next_number += count
        self.credit -= count

    def return_credit(self) -> None:
        """Records that the unused credit is returned to the peer."""
        self.credit = 0
        self.is_draining = False

    def lose_credit(self) -> None:
        """Records that the attachment is over, and all credit with it."""
        self.credit = self.width = 0
        self.is_draining = False

    def follow_lane(self, credit: int, *, width: int, unsettled: int) -> None:
        """Copies the express lane's counts for the link."""
        self.credit = credit
        self.width = width
        self.lane_unsettled = unsettled

    def postpone(self, pairing: "Pairing", action: "Action") -> None:
        """Queues the action for a delivery adrift behind earlier ones."""
        if self.resuming is NOTHING:
            self.resuming = deque()
        self.resuming.append((pairing, action))


Link = IncomingLink | OutgoingLink


def unnumbered(link: Link) -> "list[Pairing]":
    """Returns the unsettled deliveries of a link that have no number on its present attachment."""
    absent = () if link.unconfirmed is None else link.unconfirmed.absent.values()
    return [*link.adrift.values(), *absent]


def is_away(link: Link) -> bool:
    """Returns whether a link is not attached."""
    return link.link is None or link.is_detached
