"""Nodes on the express lane: when they are promoted and demoted, and what they hand back.

Theory of operation. As long as a node only has to forward complete deliveries and return outcomes,
the express lane does that without the core (*promoted*): one lane a node. The core keeps its
records of the links and does not change them meanwhile; their credit and totals are brought up to
date on demand (``refresh``).

    general ── links or deliveries arrived, and fit ──▶ promoted      (when all orders are done)
    promoted ── a link or delivery does not fit ──────▶ general       (at once, ``demote``)

A node is promoted only between turns, when no order is on its way to an engine that a lane might
overtake. Its queued deliveries move with it. Attaches, detaches, and a delivery that needs a
decision do not end the lane: links join and leave it, and single deliveries are *adopted* as
pairings. The lane ends for deliveries that must be forwarded by the core's rules, a drain, a pause,
and a receiver that stops. A node that a delivery has demoted is not promoted again for a while, so
that mixed traffic does not alternate.

No delivery is ever in both: it is either the lane's or a pairing.
"""

from collections.abc import Collection, Iterable, Sequence
from functools import partial
from typing import Final
from typing import Protocol as Interface
from weakref import WeakValueDictionary

import attrs

from router.core.dividing import divides
from router.core.node import Feed, Node, feed_of_link
from router.core.outcomes import narrow
from router.core.reach import (
    can_lead_on,
    enters_here,
    is_sibling,
    leads_by_turning_alone,
    leads_straight,
    sender_stop,
)
from router.core.settle import Settler
from router.core.state import State
from router.links import life
from router.links.link import Connection, IncomingLink, Link, OutgoingLink, Tally
from router.links.pairing import UNNUMBERED, Pairing
from router.model.capabilities import Protocol
from router.model.delivery import ReceivedDelivery
from router.model.events import CreditGranted
from router.model.identity import DeliveryTag, LinkId
from router.model.lane import LaneDelivery, LanePair, LaneStatistics, Remains
from router.model.outcome import ACCEPTED, MODIFIED_FAILED
from router.routes.route import Distribution, Guarantee

REST_SECONDS: Final = 1.0
"""How long a node stays on the general path after a delivery that the lane could not take."""


class Lane(Interface):
    """One node's forwarding, see ``router.wire.v1_0.express.Lane``."""

    @property
    def limit_octets(self) -> int:
        """The largest payload that every receiver takes in one frame; -1: there is none."""

    @property
    def takes_settled(self) -> bool:
        """Whether every receiver takes deliveries that are settled beforehand."""

    @property
    def takes_unsettled(self) -> bool:
        """Whether every receiver takes deliveries that are not."""

    def add_incoming(self, link: LinkId, is_far: bool = False) -> None:
        """Adds an incoming link; deliveries of a far link go to no far one."""

    def add_outgoing(self, link: LinkId, is_far: bool = False) -> bool:
        """Adds an outgoing link; False: the deliveries waiting there did not fit."""

    def weigh(self, link: LinkId, elsewhere: int, receivers: int) -> None:
        """Sets a link's load weight, as ``routes.distribution`` defines it."""

    def remove_incoming(self, link: LinkId) -> Remains:
        """Removes an incoming link with its unsettled deliveries."""

    def remove_outgoing(self, link: LinkId) -> Remains:
        """Removes an outgoing link with its unsettled deliveries."""

    def close(self) -> Remains:
        """Removes all links."""

    def put(self, link: LinkId, deliveries: Sequence[ReceivedDelivery]) -> None:
        """Accepts deliveries that an incoming link received on the general path."""

    def passed(self, link: LinkId, count: int) -> None:
        """Records how many deliveries of an incoming link have come past lanes."""

    def queued(self, link: LinkId) -> int:
        """Returns how many deliveries of a link wait for credit."""

    def listed(self, most: int) -> list[LaneDelivery]:
        """Lists up to ``most`` deliveries under way, for people: sent ones, then queued ones."""

    def statistics(self, link: LinkId) -> LaneStatistics:
        """Returns a link's totals."""


class Express(Interface):
    """The lanes of one worker, see ``router.wire.v1_0.express.Express``."""

    @property
    def kept_octets(self) -> int:
        """Payload that the lanes keep."""

    def keep_beside(self, octets: int) -> None:
        """Records how much payload the core keeps."""

    def knows(self, link: LinkId) -> bool:
        """Returns whether a link is registered, so that it may join a lane."""

    def open_lane(self, credit: int, only_settled: bool = False) -> Lane:
        """Opens a lane."""


@attrs.define(eq=False)
class _Promoted:
    """A node on the lane.

    Attributes:
        links: those that take part, with what they had done when that was last looked at.
    """

    lane: Lane
    links: dict[Link, LaneStatistics] = attrs.field(factory=dict)

    @property
    def is_of_use(self) -> bool:
        """Returns whether there are senders and receivers."""
        kinds = {type(link) for link in self.links}
        return len(kinds) == 2


class Lanes:
    """Brings nodes on the express lane and off it."""

    def __init__(self, state: State, settler: Settler, express: Express | None) -> None:
        self._turn = state.turn
        self._registry = state.registry
        self._alarms = state.alarms
        self._ledger = state.ledger
        self._settler = settler
        self._express = express
        self._promoted: dict[Node, _Promoted] = {}
        self._by_id: WeakValueDictionary[LinkId, Link] = WeakValueDictionary()
        self._candidates: dict[Node, None] = {}
        self._judged: set[Node] = set()  # in this turn
        self._late: dict[IncomingLink, None] = {}
        self._resting: dict[Node, float] = {}
        self._stops: set[str] = set() if express is not None else {"off"}

    def stop(self, reason: str) -> None:
        """Demotes all nodes, and promotes none as long as the reason stands."""
        self._stops.add(reason)
        for node in tuple(self._promoted):
            self.demote(node)

    def go_on(self, reason: str) -> None:
        """Allows promotion again, unless another reason against it remains."""
        self._stops.discard(reason)

    # --- promotion --------------------------------------------------------------------------------

    def attached(self, link: Link) -> None:
        """Records an attach, after which its node may be complete."""
        place = link.queue if isinstance(link, IncomingLink) else link.group
        node = place.node if isinstance(place, Feed) else place
        if isinstance(node, Node):
            self.consider(node)

    def consider(self, node: Node) -> None:
        """Records that a node has, or may get, traffic on the general path."""
        if not self._stops and self._may_ever_fit(node):
            self._candidates[node] = None

    def promote_due(self) -> None:
        """Promotes nodes that are ready for it; to be called when no order is under way."""
        self._judged.clear()
        if self._late:
            self._admit_late()
        if not self._candidates:
            return
        candidates, self._candidates = self._candidates, {}
        for node in candidates:
            until = self._resting.get(node)
            if until is not None:
                if self._turn.now < until:
                    continue
                del self._resting[node]
            if not node.is_express and not self._stops and self._fits(node):
                self._promote(node)

    def _admit_late(self) -> None:
        """Adds new senders of nodes on the lane, which then grants them credit.

        The core could only grant them what receivers have left just then, which is often nothing.
        """
        late, self._late = self._late, {}
        for incoming in late:
            if incoming.link is None or incoming.is_gone or incoming.is_express:
                continue
            node = feed_of_link(incoming).node
            promoted = self._promoted.get(node)
            if promoted is not None and not self._join_late(node, promoted, incoming):
                self.demote(node, rests=True)

    def _fits(self, node: Node) -> bool:
        outgoing = node.outgoing
        return (
            self._may_ever_fit(node)
            and bool(outgoing)
            and bool(node.feeds)
            and len({link.link_credit for link in node.feeds}) == 1
            and len({link.priority for link in outgoing}) == 1
            and (
                node.route.distribution is not Distribution.CLOSEST
                or len({link.cost for link in outgoing}) == 1
            )
            and all(self._fits_incoming(link) for link in node.feeds)
            and all(self._fits_outgoing(link) for link in outgoing)
            and all(_queue_fits_lane(node, feed) for feed in node.rotation)
            and _fits_ways(node)
        )

    def _may_ever_fit(self, node: Node) -> bool:
        """Returns whether a node's route allows the lane."""
        if divides(node):
            return False
        return node.is_unrestricted and not node.is_exact and not self._ledger.records(node)

    def _fits_incoming(self, link: IncomingLink) -> bool:
        return (
            self._knows(link)
            and link.address is not None
            and link.names is None
            and not link.unsettled_limit
            and (link.connection is None or link.connection.pace is None)
            and link.discarding is None
            and not (link.adrift or link.is_reducing)
            and link.unconfirmed is None
            and not (link.is_draining or link.is_emptying or link.is_closing)
            and narrow(ACCEPTED, link.outcomes) is ACCEPTED
        )

    def _fits_outgoing(self, link: OutgoingLink) -> bool:
        return (
            self._knows(link)
            and link.names is None
            and not link.is_fallback
            and not (link.adrift or link.resuming)
            and link.unconfirmed is None
            and not (link.is_draining or link.carries_tags or (link.traces and link.is_traced))
        )

    def _knows(self, link: Link) -> bool:
        return (
            self._express is not None
            and link.link is not None
            and _is_able(link.connection)
            and self._express.knows(link.link)
        )

    def _promote(self, node: Node) -> None:
        assert self._express is not None
        credit = next(iter(node.feeds)).link_credit
        only_settled = node.route.guarantee is Guarantee.AT_MOST_ONCE
        promoted = _Promoted(self._express.open_lane(credit, only_settled))
        self._promoted[node] = promoted
        node.is_express = True
        for link in node.outgoing:
            self._join(promoted, link)
        for feed in (*node.rotation, *node.feeds.values()):
            if not feed.incoming.is_express:
                self._join(promoted, feed.incoming)
        rotation = list(node.rotation)
        lane = promoted.lane
        if not all(_fits_lane(p.delivery, f.incoming, lane) for f in rotation for p in f.waiting):
            self.demote(node, rests=True)
            return
        node.rotation.clear()
        for feed in rotation:
            self._hand_over(lane, feed)

    def _join(self, promoted: _Promoted, link: Link) -> bool:
        assert link.link is not None
        if isinstance(link, IncomingLink):
            promoted.lane.add_incoming(link.link, is_sibling(link.connection))
        elif not promoted.lane.add_outgoing(link.link, is_sibling(link.connection)):
            return False
        link.is_express = True
        if isinstance(link, OutgoingLink):
            self._tell_less(_node_of(link))
            promoted.lane.weigh(link.link, link.elsewhere, link.receivers)
        self._by_id[link.link] = link
        known = promoted.links[link] = promoted.lane.statistics(link.link)
        if isinstance(link, IncomingLink):
            promoted.lane.passed(link.link, link.tally.deliveries - known.deliveries)
        return True

    def _hand_over(self, lane: Lane, feed: Feed) -> None:
        """Moves a queue's deliveries to the lane."""
        incoming = feed.incoming
        assert incoming.link is not None
        deliveries = [pairing.delivery for pairing in feed.waiting]
        for pairing in feed.waiting:
            life.leave(pairing)
            self._settler.release_octets(incoming, len(pairing.delivery.payload))
        feed.node.hand_over(feed)
        lane.put(incoming.link, deliveries)

    # --- what happens to promoted nodes -----------------------------------------------------------

    def take(self, feed: Feed, deliveries: Sequence[ReceivedDelivery]) -> bool:
        """Moves deliveries received on the general path to the lane.

        Those that need judgement are the core's to send on. If nothing of their link waits on the
        lane they can be sent in between, and the node stays on it unless they have to wait.

        Returns:
            whether the lane has them.
        """
        node, incoming = feed.node, feed.incoming
        promoted = self._promoted.get(node)
        if promoted is None:
            return False
        assert incoming.link is not None
        if node in self._judged:  # what the lane sent now would pass what is only ordered yet
            if incoming.is_express:
                self._let_pass(node, promoted, incoming, len(deliveries))
            return False
        fits = all(_fits_lane(each, incoming, promoted.lane) for each in deliveries)
        if fits and (incoming.is_express or self._join_late(node, promoted, incoming)):
            promoted.lane.put(incoming.link, deliveries)
            return True
        if incoming.is_express and not promoted.lane.queued(incoming.link):
            self._let_pass(node, promoted, incoming, len(deliveries))
            self._judged.add(node)
        else:
            self.demote(node, rests=True)
        return False

    def _let_pass(
        self, node: Node, promoted: _Promoted, incoming: IncomingLink, count: int
    ) -> None:
        """Has the lane count deliveries that pass it, so that what follows has its right place."""
        assert incoming.link is not None
        self.refresh((node,))
        known = promoted.links[incoming]
        promoted.lane.passed(incoming.link, incoming.tally.deliveries + count - known.deliveries)

    def _join_late(self, node: Node, promoted: _Promoted, incoming: IncomingLink) -> bool:
        alike = all(link.link_credit == incoming.link_credit for link in node.feeds)
        fits = alike and self._fits_incoming(incoming) and _fits_ways(node)
        return fits and self._join(promoted, incoming)

    def credit_granted(self, node: Node, link: OutgoingLink, event: CreditGranted) -> bool:
        """Looks at a grant of credit at a node.

        Returns:
            whether that is all, since the lane knows of it; if not, the node is not, or no longer,
            on the lane.
        """
        promoted = self._promoted.get(node)
        if promoted is None:
            return False
        if event.credit and not event.drain:
            if link.is_express:
                return True
            fits = self._fits_outgoing(link) and _fits_ways(node)
            if fits and self._join(promoted, link):
                return True
        self.demote(node)
        return False

    def review_ways(self, node: Node) -> None:
        """Handles new ways reported by a router or a sibling."""
        if node.is_express and not _fits_ways(node):
            self.demote(node)
        self.consider(node)

    def weighed(self, link: OutgoingLink) -> None:
        """Records that the receivers behind a link, or their number, have changed."""
        if link.is_express:
            assert link.link is not None
            lane = self._promoted[_node_of(link)].lane
            lane.weigh(link.link, link.elsewhere, link.receivers)

    def unsettled(self, link: Link) -> int:
        """Returns how many forwarded deliveries of a link are unsettled."""
        count = len(link.unsettled)
        if link.is_express:
            assert link.link is not None
            return count + self._promoted[_node_of(link)].lane.statistics(link.link).unsettled
        return max(0, count - link.queued) if isinstance(link, IncomingLink) else count

    def waiting(self, link: IncomingLink) -> int:
        """Returns how many deliveries of a link wait at its node."""
        count = len(feed_of_link(link).waiting)
        if link.is_express:
            assert link.link is not None
            count += self._promoted[_node_of(link)].lane.queued(link.link)
        return count

    def sent(self, node: Node) -> int:
        """Returns how many deliveries the receivers of a node have been sent."""
        promoted = self._promoted.get(node)
        count = sum(link.tally.deliveries for link in node.outgoing)
        if promoted is not None:
            for link in filter(promoted.links.__contains__, node.outgoing):
                assert link.link is not None
                now = promoted.lane.statistics(link.link)
                count += now.deliveries - promoted.links[link].deliveries
        return count

    def leave(self, link: Link) -> None:
        """Removes a link from the lane that is being, or is, detached."""
        if not link.is_express:
            return
        assert link.link is not None
        node = _node_of(link)
        promoted = self._promoted[node]
        self._refresh(node, promoted, link)
        if isinstance(link, IncomingLink):
            remains = promoted.lane.remove_incoming(link.link)
        else:
            remains = promoted.lane.remove_outgoing(link.link)
        del promoted.links[link]
        self._take_back([link], remains)
        if not promoted.is_of_use:
            self.demote(node)

    def review(self, nodes: Iterable[Node]) -> None:
        """Demotes those of the nodes where something is to be sent on by the core's rules."""
        for node in nodes:
            if node.is_express and node.rotation and node not in self._judged:
                self.demote(node)

    def review_judged(self) -> None:
        """Demotes nodes where the core could not send on at once what the lane left to it."""
        for node in tuple(self._judged):
            if node.is_express and node.rotation:
                self.demote(node, rests=True)

    def demote(self, node: Node, *, rests: bool = False) -> None:
        """Moves a node from the lane to the general path, if it is on the lane.

        Args:
            node: the node.
            rests: because of a delivery that the lane could not take: more of the kind will come.
        """
        promoted = self._promoted.pop(node, None)
        if promoted is None:
            return
        for link in promoted.links:
            self._refresh(node, promoted, link)
        remains = promoted.lane.close()
        self._take_back(promoted.links, remains)
        node.is_express = False
        node.measure()
        node.granted_width = node.width
        self._turn.touch(node)
        self._turn.review_credits(node.feeds)
        if rests:
            self._resting[node] = self._turn.now + REST_SECONDS

    def _tell_less(self, node: Node) -> None:
        """Has routers told that they are not told what receivers grant: the lane alone sees it."""
        if node not in self._registry.opened and any(link.ways is not None for link in node.feeds):
            self._alarms.set(self._turn.now, partial(self._note_granted, node))

    def _note_granted(self, node: Node) -> None:
        """Records that what is known of a receiver's credit has changed."""
        self._registry.opened[node] = None

    # --- what comes back --------------------------------------------------------------------------

    def adopt(self, pairs: Iterable[LanePair]) -> None:
        """Makes pairings of deliveries that the lane has given up.

        Their links may have gone since: what the lane does is reported like any other event, and
        other events come before.
        """
        for pair in pairs:
            incoming = self._by_id.get(pair.incoming)
            outgoing = None if pair.outgoing is None else self._by_id.get(pair.outgoing)
            assert outgoing is None or isinstance(outgoing, OutgoingLink)
            if isinstance(incoming, IncomingLink) and pair.outgoing is None:
                self._adopt_queued(pair, incoming)
            elif isinstance(incoming, IncomingLink):
                self._adopt_one(pair, incoming, outgoing)
            elif outgoing is not None and not pair.receiver_settled:
                self._turn.update(outgoing, (pair.outgoing_number,), pair.state, True)

    def _adopt_one(
        self, pair: LanePair, incoming: IncomingLink, outgoing: OutgoingLink | None
    ) -> None:
        pairing = self._adopt_incoming(incoming, pair)
        if pair.state is not None:  # the outcome is known, the payload not needed any more
            life.report(pairing, pair.state)
            life.answer(pairing, pair.state)
            life.mark_unusual(pairing)
            self._settler.free(pairing)
        is_lost = outgoing is None or outgoing.is_gone
        if pair.receiver_settled or (is_lost and pair.state is not None):
            return  # only the sender is yet to settle
        if outgoing is None:
            self._settler.report_outcome(pairing, MODIFIED_FAILED)
        elif outgoing.is_gone:
            self._settler.try_elsewhere(pairing, outgoing, MODIFIED_FAILED, again=True)
        else:
            tag = DeliveryTag(pair.outgoing_number.to_bytes(4, "big"))
            life.send(outgoing, pairing, pair.outgoing_number, tag)

    def _adopt_queued(self, pair: LanePair, incoming: IncomingLink) -> None:
        """Puts a delivery that waited on the lane at the end of its queue."""
        feed = feed_of_link(incoming)
        feed.node.put(feed, self._adopt_incoming(incoming, pair))
        self._turn.touch(feed.node)

    def _adopt_incoming(self, incoming: IncomingLink, pair: LanePair) -> Pairing:
        """Makes a pairing; if its sender is gone, a settled one."""
        delivery = pair.delivery
        is_settled = delivery.settled or incoming.is_gone
        pairing = Pairing(
            incoming,
            UNNUMBERED if incoming.is_gone else delivery.number,
            delivery,
            feed_of_link(incoming),
            self._turn.now,
            pair.place,
            is_settled,
            incoming.settles_second or incoming.is_gone,
        )
        if not is_settled:
            life.arrive(pairing)
        self._settler.account(incoming, len(delivery.payload))
        return pairing

    def _take_back(self, links: Iterable[Link], remains: Remains) -> None:
        """Brings records up to date with what a lane has given up."""
        for link in links:
            assert link.link is not None
            if isinstance(link, OutgoingLink):
                link.follow_lane(link.credit, width=remains.granted[link.link], unsettled=0)
            else:
                queued = len(feed_of_link(link).waiting)  # the core may have judged some
                credit = remains.credits[link.link]
                link.follow_lane(credit, queued=queued, unsettled=0, octets=0)
        self.adopt(remains.pairs)
        for link in links:
            link.is_express = False
            assert link.link is not None
            if isinstance(link, OutgoingLink):
                self._note_granted(_node_of(link))
            if isinstance(link, IncomingLink):
                for pair in remains.queued[link.link]:
                    self._adopt_queued(pair, link)

    # --- what people want to know -----------------------------------------------------------------

    def listed(
        self, node: Node, most: int
    ) -> list[tuple[IncomingLink, LaneDelivery, OutgoingLink | None]]:
        """Lists up to ``most`` deliveries that a node has under way on the lane, for people."""
        promoted = self._promoted.get(node)
        found: list[tuple[IncomingLink, LaneDelivery, OutgoingLink | None]] = []
        for each in () if promoted is None else promoted.lane.listed(most):
            incoming = self._by_id.get(each.incoming)
            outgoing = None if each.outgoing is None else self._by_id.get(each.outgoing)
            if isinstance(incoming, IncomingLink) and not isinstance(outgoing, IncomingLink):
                found.append((incoming, each, outgoing))
        return found

    @property
    def nodes(self) -> Collection[Node]:
        """The nodes that are on the lane."""
        return self._promoted.keys()

    def refresh(self, nodes: Iterable[Node] | None = None) -> None:
        """Brings what the records say of credit and totals up to date; None: of all nodes."""
        for node in tuple(self._promoted) if nodes is None else nodes:
            promoted = self._promoted.get(node)
            if promoted is not None:
                for link in promoted.links:
                    self._refresh(node, promoted, link)
                node.measure()

    def refresh_for(self, grantable: Iterable[IncomingLink]) -> None:
        """Brings receivers' credit up to date for senders that are yet to join their lane."""
        if not self._promoted:
            return
        nodes: dict[Node, None] = {}
        for link in grantable:
            if link.is_relayed or link.is_express:
                continue
            node = feed_of_link(link).node
            if node.is_express:
                nodes[node] = None
                if not self._late:
                    self._alarms.set(self._turn.now, self._admit_late)
                self._late[link] = None
        self.refresh(nodes)

    def _refresh(self, node: Node, promoted: _Promoted, link: Link) -> None:
        """Brings a link's record up to date.

        What the core has ordered in this turn to be sent past the lane has taken credit that the
        lane has not seen taken: then the record has been right since the delivery was judged.
        """
        assert link.link is not None
        before = promoted.links[link]
        now = promoted.links[link] = promoted.lane.statistics(link.link)
        _add(link.tally, before, now)
        if isinstance(link, IncomingLink):
            queued = now.queued + len(feed_of_link(link).waiting)
            unsettled = now.unsettled + now.queued_unsettled
            octets = now.kept_octets
            link.follow_lane(now.credit, queued=queued, unsettled=unsettled, octets=octets)
        else:
            credit = link.credit if node in self._judged else now.credit
            link.follow_lane(credit, width=now.granted, unsettled=now.unsettled)


def _add(tally: Tally, before: LaneStatistics, now: LaneStatistics) -> None:
    """Adds to a link's totals what it has done on the lane."""
    tally.deliveries += now.deliveries - before.deliveries
    tally.octets += now.octets - before.octets
    tally.settled += now.settled - before.settled
    tally.accepted += now.accepted - before.accepted


def _node_of(link: Link) -> Node:
    if isinstance(link, IncomingLink):
        return feed_of_link(link).node
    assert isinstance(link.group, Node), "a link on the lane has a node"
    return link.group


def _is_able(connection: Connection | None) -> bool:
    return connection is not None and not connection.is_leaving and connection.capabilities.express


def _fits_ways(node: Node) -> bool:
    """Returns whether every sender's deliveries may go to every receiver; not so among routers."""
    if not node.has_ways:
        return True
    if any(link.traces and link.is_traced for link in node.outgoing):
        return False
    if node.key.chain is not None:
        return _leads_straight_on(node)
    if any(link.chain is not None for link in node.outgoing) and not all(
        enters_here(incoming) for incoming in node.feeds
    ):
        return False
    if node.is_peopled and any(link.ways == () for link in node.outgoing):
        return False
    if any(leads_by_turning_alone(link) for link in node.outgoing):
        return False  # its credit is not for senders here
    if all(sender_stop(incoming) is None for incoming in node.feeds):
        return True
    return leads_straight(node) and _leads_straight_on(node)


def _leads_straight_on(node: Node) -> bool:
    """Returns whether a node has one sender, and leads on from it to receivers.

    Where nobody receives, what still comes is the core's to return.
    """
    if len(node.feeds) != 1 or len(node.outgoing) != 1:
        return False
    (incoming,), (link,) = node.feeds, node.outgoing
    return link.ways != () and can_lead_on(node, link, incoming)


def _fits_lane(delivery: ReceivedDelivery, incoming: IncomingLink, lane: Lane) -> bool:
    """Returns whether a delivery can be forwarded unchanged and unchecked."""
    return not (
        delivery.more
        or delivery.resume
        or delivery.message_format
        or delivery.protocol is not Protocol.AMQP_1_0
        or (incoming.is_delayed and delivery.delivery_count)  # the header must tell
        or delivery.state is not None
        or delivery.ttl_milliseconds is not None
        or delivery.hops
        or delivery.key is not None
        or delivery.settles_first
        or (delivery.settles_second and not incoming.settles_second)
        or len(delivery.payload) > lane.limit_octets
        or not (lane.takes_settled if delivery.settled else lane.takes_unsettled)
    )


def _queue_fits_lane(node: Node, feed: Feed) -> bool:
    """Returns whether all deliveries of a queue fit the lane."""
    incoming = feed.incoming
    return incoming in node.feeds and all(
        pairing.tried is None
        and pairing.parts is None
        and pairing.fan is None
        and pairing.outcome is None
        and not pairing.attempts
        and (pairing.delivery.settled or pairing.number != UNNUMBERED)
        for pairing in feed.waiting
    )
