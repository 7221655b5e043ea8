"""Passages: links that lead through this worker to the worker that keeps them, their home.

The unsettled deliveries of an exactly-once link are in one worker's memory and in its share of the
journal, and its peer may reconnect to any worker. So all such links have a *home* (``homes``), and
the other workers only forward what is exchanged on them::

    peer  <── near ──>  the worker it is connected to  <── far ──>  home

``near`` is the link that the peer has attached; each has an uplink to the home, ``far``. Whatever
is received on one is sent on the other, unchanged: deliveries, outcomes, credit, unsettled maps,
detach. This worker keeps nothing, so nothing is lost with it, with one exception: deliveries that
publishers without confirms have sent ahead of credit are queued here. If the home accepts them
ahead of credit (``core.credit``), they are forwarded at once, and the peer is not read while many
are queued; otherwise they are forwarded as credit is granted, and when the publisher leaves. At
home the peer is a *guest* (``guests``): its link is identified by the peer's container, identity
and link name, so the home finds it again whichever worker it is led through. A link to the
anonymous terminus may have several homes, and then a passage to each of them (``branches``).

A peer whose protocol keeps its sessions inside the engine (0-10) may reconnect to another worker
than the one where its links were suspended. Its session follows it (``memories``), and the engine
names the worker of each such link (``LinkAttached.home``): the link leads through to that worker,
by the same rules. Links of other routes have their home at their peer's worker.

Exactly-once chains between sites (``mesh.chains``) lead through in the same way: at a transit from
one neighbor to the next, and at their ends between the neighbor and the home of the address, if
that is another worker than the one that has the neighbors. This one speaks for its router: it signs
the attaches of chains that begin here, and looks at the signatures of those that end here.

When a peer detaches its link and may still send dispositions for its deliveries (§2.7.6), the far
link stays attached without credit until no such delivery is left, or the peer's session or terminus
ends.

Deliveries that are on their way from the home when a receiver leaves, or takes back its credit, are
given back, and others may have them. When it leaves, the far link is detached once the home has
read that there is no credit (``_give_back_all``): what the home does not know to be unsent would be
in doubt, though nobody has had it.

When a peer's connection is lost, its far links are detached, which suspends them at home. When the
home is lost, its peers' connections are closed: the peers reconnect, and attaches of exactly-once
links wait until it has restored its state from the journal. Of other links the home has lost its
state: then a link is attached at its peer's worker, without its unsettled deliveries.

Outcomes between workers can be lost with a peer's connection or with the home, but not the peer's
own state. So links of peers whose state is in their engine (*volatile*: it dies with its worker)
are settled in three steps on the far side: an outcome stays at home until the engine has it, and an
outcome of such a receiver in its engine until the home has settled it (``confirms_outcomes``);
until then the engine's unsettled map names it. As such peers may send deliveries again that the
engine has forgotten, their deliveries are also recognized by the ids of their messages.

Numbers of deliveries need no translation: the core numbers the deliveries that it sends, and here
it uses the numbers of the receiving engine.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

import attrs

from router.core.attach import Attacher, Place
from router.core.branches import Branched, Branches
from router.core.homes import FIRST, Homes, is_exact
from router.core.mesh.names import address_of, is_site
from router.core.mesh.sites import Sites
from router.core.passing import (
    SURPLUS_OCTETS,
    Passage,
    answer_of,
    introduction,
    next_hop,
    translate,
)
from router.core.policy import Operation
from router.core.reach import is_sibling, sibling_name
from router.core.state import State
from router.links.link import Connection
from router.model.commands import (
    AwaitRecord,
    CloseConnection,
    Command,
    DetachLink,
    GrantCredit,
    RefuseLink,
    UpdateDeliveries,
)
from router.model.condition import CONNECTION_FORCED, DETACH_FORCED, NOT_FOUND, Condition
from router.model.delivery import ReceivedDelivery
from router.model.events import (
    AttachConfirmed,
    CreditGranted,
    CreditReturned,
    DeliveriesReceived,
    DeliveriesUpdated,
    Event,
    LinkAttached,
    LinkDetached,
    PartsTaken,
    RecordAwaited,
    SessionEnded,
)
from router.model.identity import ConnectionId, LinkId, LinkName
from router.model.outcome import RELEASED, UNSENT
from router.model.terminus import (
    ExpiryPolicy,
    Role,
    Source,
    Target,
)
from router.model.url_address import path_of
from router.routes.route import Guarantee, Route

HOME_WAIT_SECONDS: Final = 20.0
"""Time that an attach waits for an absent home; a restart of the home takes less."""

_AWAY: Final = Condition(CONNECTION_FORCED, "the worker that keeps its links is being replaced")
_CUT: Final = Condition(DETACH_FORCED, "the path of the chain is cut")
_UNREACHED: Final = Condition(DETACH_FORCED, "the worker that keeps this link is not connected")


class Passages:
    """Leads links through to their home.

    Attributes:
        parted: siblings that were sent the ends of links and may not have received them yet;
            ``memories`` removes them when it sends them a fence.
    """

    def __init__(
        self,
        state: State,
        attacher: Attacher,
        sites: Sites,
        link_ids: Iterator[LinkId],
        homes: Homes,
    ) -> None:
        """Makes it.

        Args:
            state: shared by all machines.
            attacher: finds the route of an address.
            sites: knows where chains of other sites lead.
            link_ids: shared with the engines.
            homes: knows which worker keeps exactly-once links.
        """
        self._registry = state.registry
        self._turn = state.turn
        self._alarms = state.alarms
        self._attacher = attacher
        self._sites = sites
        self._link_ids = link_ids
        self._homes = homes
        self._joined: dict[str, Connection] = {}
        self.parted: set[str] = set()
        self._near: dict[LinkId, Passage] = {}
        self._branches: dict[LinkId, Branches] = {}
        self._far: dict[LinkId, Passage] = {}
        self._parting: dict[Passage, LinkDetached] = {}
        self._detached: dict[LinkId, Passage] = {}
        self._passing: set[LinkName] = set()

    def peers(self) -> set[ConnectionId]:
        """Returns the connections of peers whose links lead through to their home.

        Those to neighbors over which chains begin or end here are among them.
        """
        ends = [each for each in self._near.values() if not each.is_transit]
        found = {each.peer.id for each in ends if not is_sibling(each.peer)}
        found |= {each.home.id for each in ends if each.home is not None and is_site(each.home)}
        return found

    def handle(self, connection: Connection, event: Event) -> bool:
        """Forwards an event; returns False if it does not concern a link that leads through."""
        if self._homes.is_only and not self._near and not isinstance(event, LinkAttached):
            return False
        if isinstance(event, SessionEnded):
            self._session_ended(connection, event.session)
            return False
        link = getattr(event, "link", None)
        branches = self._branches.get(link)  # type: ignore[arg-type]  # no link, no passage
        if branches is not None:
            self._from_peer_of(branches.from_peer(event))
            if (credit := branches.more_credit()) is not None:
                self._turn.order_connection(connection, credit)
            return True
        near = self._near.get(link)  # type: ignore[arg-type]  # as before
        if near is not None:
            self._from_peer(near, event)
            return True
        far = self._far.get(link)  # type: ignore[arg-type]  # as before
        if far is not None:
            self._from_home(far, event)
            return True
        if isinstance(event, LinkAttached):
            homes = self._homes_of(connection, event)
            if isinstance(homes, Condition):
                self._attacher.refuse(connection, event, homes)
                return True
            if len(homes) == 1:
                self._begin(Passage(peer=connection, attach=event, leads_to=homes[0]))
            elif homes:
                self._branch(connection, event, homes)
            return bool(homes)
        return False

    def joined(self, connection: Connection) -> None:
        """Records a connection to a sibling, perhaps the home."""
        assert connection.configured is not None
        self._joined[connection.configured] = connection
        for passage in list(self._near.values()):
            if passage.far is None and passage.leads_to == connection.configured:
                self._lead(passage, connection)

    def leads_here(self, connection: Connection) -> bool:
        """Returns whether a connection is this worker's to itself, for branches that end here."""
        return connection.configured == sibling_name(self._homes.own)

    def left(self, connection: Connection) -> None:
        """Records that a connection, to a peer or to the home, has ended."""
        name = connection.configured or ""
        if self._joined.get(name) is connection:
            del self._joined[name]
        for passage in list(self._near.values()):
            if passage.peer is connection:
                self._leave(passage, LinkDetached(passage.attach.link, closed=False))
            elif passage.home is connection:
                self._home_lost(passage)
        for passage in [each for each in self._parting if each.home is connection]:
            self._forget(passage)

    def _home_lost(self, passage: Passage) -> None:
        """Has a peer attach again, where its link leads now: by itself nothing is attached."""
        near = passage.attach.link
        lost: Command = CloseConnection(_AWAY)
        if passage.is_chain:
            is_new = not passage.is_answered
            lost = RefuseLink(near, _CUT) if is_new else DetachLink(near, False, _CUT)
        self._tell(passage, lost)
        self._forget(passage)

    def drain(self) -> None:
        """Ends the chains that pass this router, which is about to stop: they find other ways."""
        for passage in [each for each in self._near.values() if each.is_transit]:
            self._cut(passage)

    def ways_changed(self) -> None:
        """Has chains that begin here attach again where there is a better next hop by now."""
        for passage in [each for each in self._near.values() if is_sibling(each.peer)]:
            hop = self._sites.lead(passage.peer, passage.attach)
            if isinstance(hop, str) and hop != passage.leads_to:
                self._cut(passage)

    def _cut(self, passage: Passage) -> None:
        """Ends a chain, which its ingress attaches again."""
        self._part(passage, closed=False, condition=None)
        self._home_lost(passage)

    @property
    def count(self) -> int:
        """Number of links that lead through."""
        return len(self._near) + len(self._parting)

    # Beginning

    def find_home(self, connection: Connection, event: LinkAttached) -> str | None:
        """Returns the sibling that is the home of a client's link; None: none that is connected."""
        homes = self._homes_of(connection, event)
        if isinstance(homes, Condition) or len(homes) != 1 or homes[0] not in self._joined:
            return None
        return homes[0]

    def _homes_of(self, connection: Connection, event: LinkAttached) -> Sequence[str] | Condition:
        """Returns where a link leads, or why it leads nowhere; nothing: its home is this worker."""
        if event.is_answer or self._attacher.is_draining:
            return ()
        if is_site(connection) or is_sibling(connection):
            return self._homes_of_chain(connection, event)
        if self._homes.is_only and event.home is None:
            return ()  # it is this worker's, whatever its route
        place = self._find_exact(connection, event)
        if place is None:
            return _one(event.home if event.home in self._joined else None)
        address, route = place
        if address is None and self._homes.are_many:
            return self._homes.names
        return _one(self._homes.elsewhere(address, route))

    def _homes_of_chain(
        self, connection: Connection, event: LinkAttached
    ) -> Sequence[str] | Condition:
        """Returns the same for a link of a neighbor, or of another worker."""
        hop = self._sites.lead(connection, event)
        if hop is not None:
            if event.name in self._passing:
                return Condition(NOT_FOUND, "the chain has come here before, in a circle")
            return hop if isinstance(hop, Condition) else _one(hop)
        if is_sibling(connection) or not self._sites.ends_here(event):
            return ()
        address = address_of(event)
        match = None if address is None else self._registry.table.lookup(address)
        route = None if match is None else match.route
        if address is None or (route is not None and not is_exact(route)):
            return ()
        home = self._homes.elsewhere(address, route)
        return () if home is None else self._sites.find_fault(event) or (home,)

    def _find_exact(
        self, connection: Connection, event: LinkAttached
    ) -> tuple[str | None, Route | None] | None:
        """Returns the address and route of an exactly-once link; None: the link is another."""
        is_sender = event.role is Role.RECEIVER
        terminus = event.target if is_sender else event.source
        operation = Operation.SEND if is_sender else Operation.RECEIVE
        if not isinstance(terminus, Target | Source) or terminus.dynamic:
            return None
        if terminus.address is None:  # each message has its own
            return (None, None) if is_sender and self._registry.table.has_exact else None
        place = self._attacher.enter(connection, terminus.address, operation)
        if not isinstance(place, Place) or place.route.guarantee is not Guarantee.EXACTLY_ONCE:
            return None
        return place.key.address, place.route

    def _branch(self, peer: Connection, event: LinkAttached, homes: Sequence[str]) -> None:
        """Leads a link to the anonymous terminus through to every home (``branches``)."""
        ids = {home: next(self._link_ids) for home in homes}
        branches = Branches(near=event.link, homes=ids, find_home=partial(self._find_home, peer))
        self._branches[event.link] = branches
        for home, link in ids.items():
            attach = attrs.evolve(event, link=link)
            self._begin(Passage(peer=peer, attach=attach, leads_to=home, branches=branches))

    def _find_home(self, peer: Connection, address: str | None) -> str:
        """Returns the home of a message on a link to the anonymous terminus."""
        found = None
        if address is not None:
            found = self._attacher.enter(peer, path_of(address), Operation.SEND)
        if isinstance(found, Place) and found.route.guarantee is Guarantee.EXACTLY_ONCE:
            return sibling_name(self._homes.of(found.key.address, found.route))
        return sibling_name(FIRST)

    def _from_peer_of(self, events: Iterator[Branched]) -> None:
        """Handles what the peer of a link with branches has said, for each of them."""
        for branch, event in events:
            passage = self._near.get(branch)
            if passage is not None:
                self._from_peer(passage, event)

    def _tell(self, passage: Passage, command: Command) -> None:
        """Orders a command for the peer's link."""
        branches = passage.branches
        if branches is None:
            self._turn.order_connection(passage.peer, command)
            return
        for each in branches.to_peer(passage.attach.link, command):
            self._turn.order_connection(passage.peer, each)
        if branches.is_over:
            self._end_branches(branches, passage)

    def _end_branches(self, branches: Branches, ended: Passage) -> None:
        """Ends the other branches of a link that one home has ended or refused.

        They are suspended, whatever that home has said: it may have been that the link was stolen.
        """
        for branch in branches.homes.values():
            passage = self._near.get(branch)
            if passage is not None and passage is not ended:
                self._end(passage)

    def _begin(self, passage: Passage) -> None:
        for before in self._detached_by(passage.peer):
            if (before.attach.name, before.attach.role) == (
                passage.attach.name,
                passage.attach.role,
            ):
                self._end(before)
        self._near[passage.attach.link] = passage
        if passage.is_chain:
            self._passing.add(passage.attach.name)
        home = self._joined.get(passage.leads_to)
        if home is not None and not any(map(passage.follows, self._parting)):
            self._lead(passage, home)
            return
        at = self._turn.now + HOME_WAIT_SECONDS
        passage.alarm = self._alarms.set(at, partial(self._give_up, passage))

    def _lead(self, passage: Passage, home: Connection) -> None:
        self._alarms.cancel(passage.alarm)
        passage.home, passage.far = home, next(self._link_ids)
        self._far[passage.far] = passage
        if is_site(home):
            vouched = self._sites.vouch(passage.attach) if is_sibling(passage.peer) else {}
            attach = next_hop(passage, passage.far, vouched)
        else:
            permissions = self._registry.permissions_by_id.get(passage.peer.id)
            hostname = None if permissions is None else permissions.vhost
            attach = introduction(passage, passage.far, hostname)
        self._turn.order_connection(home, attach)

    def _give_up(self, passage: Passage) -> None:
        self._tell(passage, RefuseLink(passage.attach.link, _UNREACHED))
        self._forget(passage)

    def _part(self, passage: Passage, *, closed: bool, condition: Condition | None) -> None:
        """Sends the home the end of a link."""
        home = passage.home
        if home is not None and passage.far is not None:
            self._turn.order_connection(home, DetachLink(passage.far, closed, condition))
            if is_sibling(home):
                self.parted.add(home.configured or "")

    def _forget(self, passage: Passage) -> None:
        self._alarms.cancel(passage.alarm)
        self._near.pop(passage.attach.link, None)
        self._parting.pop(passage, None)
        self._detached.pop(passage.attach.link, None)
        self._passing.discard(passage.attach.name)
        branches = passage.branches
        if branches is not None and self._near.keys().isdisjoint(branches.homes.values()):
            self._branches.pop(branches.near, None)
        if passage.far is not None:
            self._far.pop(passage.far, None)

    # Peers that have detached their links

    def _detached_by(self, peer: Connection) -> list[Passage]:
        return [each for each in self._detached.values() if each.peer is peer]

    def _session_ended(self, peer: Connection, session: int) -> None:
        for passage in self._detached_by(peer):
            if passage.attach.session == session:
                self._leave(passage, LinkDetached(passage.attach.link, closed=False))

    def _end(self, passage: Passage, *, closed: bool = False) -> None:
        self._end_as(passage, LinkDetached(passage.attach.link, closed))

    def _end_as(self, passage: Passage, end: LinkDetached) -> None:
        self._part(passage, closed=end.closed, condition=end.condition)
        self._forget(passage)

    def _left(self, passage: Passage, event: LinkDetached) -> None:
        """Records that the peer has detached its link."""
        asked = passage.attach
        terminus = asked.target if asked.role is Role.RECEIVER else asked.source
        is_new = passage.is_answered and asked.link not in self._detached and not passage.is_amid
        is_over = not event.is_numbered or bool(passage.surplus) or passage.is_chain
        if is_over or not is_new or not isinstance(terminus, Source | Target):
            self._leave(passage, event)
            return
        assert passage.home is not None
        assert passage.far is not None
        self._detached[asked.link] = passage
        if asked.role is Role.SENDER:
            self._turn.order_connection(passage.home, GrantCredit(passage.far, 0))
        if terminus.expiry_policy is ExpiryPolicy.LINK_DETACH:
            at = self._turn.now + terminus.expiry_seconds
            passage.alarm = self._alarms.set(at, partial(self._end, passage, closed=True))

    def _give_back(self, passage: Passage, event: DeliveriesReceived) -> None:
        """Gives deliveries back that are on their way to a receiver that has left its link."""
        if any(delivery.resume for delivery in event.deliveries):
            end = LinkDetached(passage.attach.link, closed=False)
            self._end_as(passage, self._parting.get(passage, end))  # these are in doubt
            return
        self._tell_unsent(passage, event.deliveries)

    def _tell_unsent(self, passage: Passage, deliveries: Sequence[ReceivedDelivery]) -> None:
        """Returns deliveries to the home; one in parts is released, as no other can be."""
        assert passage.home is not None
        assert passage.far is not None
        for state, is_in_parts in ((UNSENT, False), (RELEASED, True)):
            numbers = [
                each.number for each in deliveries if not each.settled and each.more is is_in_parts
            ]
            if numbers:
                back = UpdateDeliveries(passage.far, numbers, state, settled=True)
                self._turn.order_connection(passage.home, back)

    # Forwarding

    def _from_peer(self, passage: Passage, event: Event) -> None:
        if isinstance(event, LinkDetached):
            self._left(passage, event)
        elif isinstance(event, PartsTaken):
            passage.takes_parts = True
        elif isinstance(event, AttachConfirmed) and passage.is_chain:
            pass  # that its map is not late, its number says
        elif not passage.is_answered:
            passage.waiting.append(event)
        else:
            assert passage.home is not None
            assert passage.far is not None
            if isinstance(event, DeliveriesReceived):
                event = self._take_surplus(passage, event)
                if not event.deliveries:
                    return
            elif isinstance(event, RecordAwaited) and passage.surplus:
                passage.awaits_record = True
                return
            elif isinstance(event, CreditReturned):
                passage.credit = 0
            elif isinstance(event, CreditGranted):
                passage.is_revoked = not event.credit
            passage.watch(event)
            self._pass(event, passage.home, passage.far)
            self._ask_for_record(passage)

    def _take_surplus(self, passage: Passage, event: DeliveriesReceived) -> DeliveriesReceived:
        """Queues deliveries received beyond the credit; returns the rest, perhaps none."""
        deliveries = event.deliveries
        if passage.surplus or (len(deliveries) > passage.credit and deliveries[-1].settled):
            passage.hold(deliveries)
            deliveries = passage.take_out()
            self._stop_peer(passage)
        else:
            passage.credit = max(0, passage.credit - len(deliveries))
        return DeliveriesReceived(event.link, deliveries)

    def eased(self, home: Connection) -> None:
        """Forwards what was queued while the connection to a sibling was congested."""
        for passage in [*self._near.values(), *self._parting]:
            if passage.home is home and passage.surplus and passage.ahead:
                assert passage.far is not None
                event = CreditGranted(passage.far, passage.credit, ahead=passage.ahead)
                self._from_home(passage, event)

    def _stop_peer(self, passage: Passage) -> None:
        """Stops reading a peer whose deliveries are queued here."""
        is_full = passage.surplus_octets > SURPLUS_OCTETS
        if passage.ahead is not None and is_full and not passage.is_full:
            passage.is_full = True
            self._tell(passage, GrantCredit(passage.attach.link, passage.credit, ahead=0))

    def _leave(self, passage: Passage, event: LinkDetached) -> None:
        """Detaches the far link, once nothing is on its way to the home or from it."""
        home, far = passage.home, passage.far
        waiting = [each for each in passage.waiting if isinstance(each, DeliveriesReceived)]
        if home is None or far is None or not (passage.surplus or waiting or passage.may_bring):
            self._end_as(passage, event)
            return
        self._alarms.cancel(passage.alarm)
        self._near.pop(passage.attach.link, None)
        self._detached.pop(passage.attach.link, None)
        self._parting[passage] = event
        if passage.attach.role is Role.SENDER:
            self._turn.order_connection(home, GrantCredit(far, 0, drain=True))

    def _give_back_all(self, passage: Passage, event: Event) -> None:
        """Gives back what is on its way, until the home has read that there is no credit.

        A delivery ends a drain without credit, too. So only an answer with none before it counts.
        """
        if isinstance(event, DeliveriesReceived):
            passage.has_brought = True
            self._give_back(passage, event)
        elif isinstance(event, CreditReturned) and passage.has_brought:
            passage.has_brought = False
            assert passage.home is not None
            assert passage.far is not None
            command = GrantCredit(passage.far, 0, drain=True)
            self._turn.order_connection(passage.home, command)
        elif isinstance(event, CreditReturned):
            self._end_as(passage, self._parting[passage])

    def _go_on(self, passage: Passage, event: CreditGranted) -> CreditGranted:
        """Uses credit for queued deliveries; returns the rest of it, for the peer."""
        passage.credit, passage.ahead = event.credit, event.ahead
        if not passage.surplus:
            passage.is_full = event.ahead == 0
            return event
        run = passage.take_out()
        assert passage.home is not None
        assert passage.far is not None
        if run:
            self._pass(DeliveriesReceived(event.link, run), passage.home, passage.far)
            self._ask_for_record(passage)
        passage.is_full = event.ahead == 0 or passage.surplus_octets > SURPLUS_OCTETS
        ahead = 0 if event.ahead is not None and passage.is_full else event.ahead
        return attrs.evolve(event, credit=passage.credit, ahead=ahead)

    def _ask_for_record(self, passage: Passage) -> None:
        """Asks the home, behind what was queued here, to report when that is on record."""
        if passage.awaits_record and not passage.surplus:
            passage.awaits_record = False
            assert passage.home is not None
            assert passage.far is not None
            self._turn.order_connection(passage.home, AwaitRecord(passage.far))

    def _from_home_to_nobody(self, passage: Passage, event: Event) -> None:
        """Forwards what a lost peer has left behind, and gives back what can no longer reach it."""
        if isinstance(event, LinkDetached):
            self._forget(passage)
        elif passage.attach.role is Role.SENDER:
            self._give_back_all(passage, event)
        else:
            self._forward_all(passage, event)
        if passage not in self._parting and passage.home is not None:
            for after in [each for each in self._near.values() if each.follows(passage)]:
                self._lead(after, passage.home)

    def _forward_all(self, passage: Passage, event: Event) -> None:
        if isinstance(event, LinkAttached) and event.target is not None:
            passage.is_answered = True
            waiting, passage.waiting = passage.waiting, []
            for each in waiting:
                self._from_peer(passage, each)
        elif isinstance(event, CreditGranted):
            self._go_on(passage, event)
        if passage.is_answered and not passage.surplus:
            self._leave(passage, self._parting[passage])

    def _from_home(self, passage: Passage, event: Event) -> None:
        near = passage.attach.link
        if passage in self._parting:
            self._from_home_to_nobody(passage, event)
        elif isinstance(event, LinkDetached):
            command: Command = DetachLink(near, event.closed, event.condition)
            if not passage.is_answered:
                command = RefuseLink(near, event.condition or _UNREACHED)
            self._tell(passage, command)
            self._forget(passage)
        elif isinstance(event, LinkAttached):
            self._answer(passage, event)
        elif near in self._detached and not isinstance(event, DeliveriesUpdated):
            if isinstance(event, DeliveriesReceived):
                self._give_back(passage, event)
        elif isinstance(event, CreditGranted) and passage.attach.role is Role.RECEIVER:
            self._pass_on(self._go_on(passage, event), passage)
        else:
            if isinstance(event, DeliveriesReceived) and passage.is_revoked:
                event = self._without_unsent(passage, event)
                if not event.deliveries:
                    return
            for each in passage.gathered(event):
                self._pass_on(each, passage)
        passage.watch(event)

    def _without_unsent(self, passage: Passage, event: DeliveriesReceived) -> DeliveriesReceived:
        """Gives back what crossed with the end of a receiver's credit; returns the rest.

        The receiver may never grant credit again, and others may have some.
        """
        back = [each for each in event.deliveries if not (each.more or each.resume)]
        self._tell_unsent(passage, back)
        rest = [each for each in event.deliveries if each.more or each.resume or each.settled]
        return DeliveriesReceived(event.link, rest)

    def _answer(self, passage: Passage, event: LinkAttached) -> None:
        asked = passage.attach
        ours = event.source if asked.role is Role.SENDER else event.target
        if ours is None:
            return  # refused; the detach has the reason
        _, route = self._find_exact(passage.peer, asked) or (None, None)
        ttl_seconds = None if route is None else route.ttl_seconds
        self._tell(passage, answer_of(passage, event, ttl_seconds))
        passage.is_answered = True
        waiting, passage.waiting = passage.waiting, []
        for each in waiting:
            self._from_peer(passage, each)
        if passage.branches is not None and passage.branches.is_answered:
            self._from_peer_of(passage.branches.take_held())

    def _pass_on(self, event: Event, passage: Passage) -> None:
        """Repeats an event of the far link on the peer's."""
        command = translate(event, passage.attach.link)
        if command is not None:
            self._tell(passage, command)

    def _pass(self, event: Event, to: Connection, link: LinkId) -> None:
        command = translate(event, link)
        if command is not None:
            self._turn.order_connection(to, command)


def _one(home: str | None) -> tuple[str, ...]:
    return () if home is None else (home,)
