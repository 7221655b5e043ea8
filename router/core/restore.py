"""After a restart: turns the journal's memory into suspended links and their deliveries.

Theory of operation. To its peers a restart is a lost connection. So every link with unsettled
deliveries is made again as a link that was suspended at this moment, and its deliveries are adrift;
what follows when peers resume, or do not, is the general rule (``suspend``, ``resume``). A delivery
becomes, depending on its records:

    its sender     towards receivers                result
    has an outcome any                              it keeps that outcome; it is not sent
    has settled    sent, no outcome                 in doubt at the receiver; nobody else has it
    has settled    to be sent again, payload here   queued in its node: likewise
    has settled    anything else                    nothing; open sendings are recorded as settled
    waits          on a route only recorded         likewise: its sender still has it, or lost it
    waits          never sent, payload here         queued in its node
    waits          unfinished, at no receiver       adrift at its sender, with the parts received
    waits          never sent, payload not here     nothing: its sender still has and sends it
    waits          sent, no outcome                 adrift at the receiver: in doubt
    waits          returned by a receiver           queued in its node
    waits          has an outcome                   the sender gets it when it resumes

Where records are missing, a delivery that seems never to have been sent, or to wait again, may have
been sent nevertheless: it is in doubt, at a link that stands for the unknown receiver. So is a
delivery that was sent on a link of which nothing else is known any more.

For senders that redeliver (see ``ledger``) only repeats are restored: deliveries never sent are
forgotten, and the others are recognized by their name.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

import attrs

from router.core.attach import Attacher, Place
from router.core.dead_letters import find_dead_letters
from router.core.detach import Detacher
from router.core.link_ledgers import Entry
from router.core.mesh.names import MESH_USER
from router.core.node import Direction, Feed, Node, NodeKey, feed_of
from router.core.routeless import Routeless, route_without
from router.core.settle import Settler
from router.core.state import State
from router.core.stored import is_named_for_store
from router.core.suspend import Suspender, agreed
from router.core.terms import Terms, decode_terms, read_terms
from router.core.uplinks import Uplinks
from router.journal.keys import LinkKey as JournalKey
from router.journal.record import PROTOCOLS, LinkDescription, OutcomeCode, RecordFlag
from router.journal.unsettled import (
    KEPT_GUARANTEES,
    LinkMemory,
    LinkStage,
    Sending,
    SendingStage,
    Unsettled,
)
from router.links import life
from router.links.expiry import NEVER_EXPIRES, End
from router.links.link import IncomingLink, Link, LinkKey, OutgoingLink
from router.links.pairing import UNNUMBERED, Fan, Pairing, octets_of
from router.links.partial import Parts
from router.links.tags import tag_prefix
from router.model.capabilities import Protocol
from router.model.delivery import Elder, ReceivedDelivery
from router.model.identity import ContainerId, DeliveryTag, LinkName
from router.model.outcome import (
    ACCEPTED,
    RELEASED,
    DeliveryState,
    Modified,
    Outcome,
    Rejected,
    Released,
    is_outcome,
    may_go_on,
)
from router.model.terminus import ALL_OUTCOMES, Role, Source, Target
from router.model.ways import Chain
from router.routes.distribution import merge_outcomes
from router.routes.vhost import outside, vhost_of

DecodeState = Callable[[bytes], DeliveryState]
"""Reads a state in AMQP 1.0's encoding."""

_NOBODY: Final = "\0"
"""Identity of links that stand in for others: no mechanism gives it to a peer."""

_NANOSECONDS: Final = 1_000_000_000


@attrs.frozen
class _Said:
    """The outcome of a receiver, or of an operator (``by_person``)."""

    state: DeliveryState
    by_person: bool


@attrs.define(eq=False)
class Restored:
    """What has come back.

    Attributes:
        deliveries: that are under way again.
        in_doubt: of them, those that a receiver may have or not.
        links: that wait for their peers.
    """

    deliveries: int = 0
    in_doubt: int = 0
    links: int = 0


class Restorer:
    """Puts the journal's memory into the core."""

    def __init__(
        self,
        state: State,
        settler: Settler,
        detacher: Detacher,
        suspender: Suspender,
        *,
        uplinks: Uplinks,
        attacher: Attacher,
        routeless: Routeless,
        decode: DecodeState,
    ) -> None:
        self._registry = state.registry
        self._numbers = state.numbers
        self._orphans = state.orphans
        self._settings = state.settings
        self._turn = state.turn
        self._ledger = state.ledger
        self._settler = settler
        self._detacher = detacher
        self._suspender = suspender
        self._uplinks = uplinks
        self._routeless = routeless
        self._attacher = attacher
        self._decode = decode
        self._known: Mapping[JournalKey, LinkMemory] = {}
        self._links: dict[JournalKey, Link] = {}
        self._terms: dict[JournalKey, Terms] = {}
        self._unknown: dict[Node, JournalKey] = {}
        self._restored = Restored()

    def restore(
        self,
        deliveries: Iterable[Unsettled],
        links: Mapping[JournalKey, LinkMemory],
        now_ns: int,
    ) -> Restored:
        """Brings back what was unsettled, oldest first.

        Args:
            deliveries: of this worker's earlier lives.
            links: all that the journal knows.
            now_ns: nanoseconds since 1970.
        """
        self._known = links
        for known in links.values():
            if known.stage is not LinkStage.EXPIRED:
                self._remember(known.description)
        for unsettled in deliveries:
            memory = links.get(unsettled.incoming)
            is_kept = unsettled.guarantee in KEPT_GUARANTEES
            if memory is None or not unsettled.is_open or not is_kept:
                self._write_off(unsettled)
                continue
            is_anonymous = not memory.description.address
            if is_anonymous and memory.stage is LinkStage.EXPIRED:  # at another home (``branches``)
                self._remember(memory.description)
            incoming = self._incoming(memory.description)
            for sending in unsettled.sendings.values():
                target = links.get(sending.outgoing)
                if target is not None:
                    self._outgoing(target.description)
            self._bring_back(incoming, unsettled, now_ns)
        for key, link in self._links.items():
            self._suspend(link, self._terms[key])
        for key, known in links.items():
            if key not in self._links and known.stage is not LinkStage.EXPIRED:
                self._meet(known.description)
        self._known = {}
        return self._restored

    # Links

    def _remember(self, description: LinkDescription) -> None:
        """Notes of a link that lived what holds whether or not anything is unsettled on it."""
        key, terms = _key_of(description), read_terms(description.terminus)
        self._numbers.note(key, None if terms is None else terms.number)
        if terms is not None and terms.is_own and terms.settles_second:
            self._uplinks.remember(key)

    def _incoming(self, description: LinkDescription) -> IncomingLink:
        known = self._links.get(description.key)
        if isinstance(known, IncomingLink):
            return known
        terms = self._terms[description.key] = decode_terms(description.terminus)
        container, name = ContainerId(description.remote), LinkName(description.name)
        address = description.address or None
        target = Target(
            address=None if address is None else outside(address),
            expiry_policy=terms.policy,
            expiry_seconds=terms.expiry_seconds,
        )
        link = IncomingLink(
            key=_key_of(description),
            address=address,
            source=None,
            target=target,
            connection=None,
            link=None,
            settles_second=terms.settles_second,
            may_lose_map=terms.may_lose_map,
            tag_prefix=tag_prefix(
                container, name, description.identity, vhost_of(description.address)
            ),
            outcomes=terms.outcomes,
            link_credit=terms.link_credit,
            number=terms.number,
        )
        self._links[description.key] = link
        self._ledger.restore_incoming(link, description.key)
        if terms.node is not None:
            node = self._node(terms.node, terms.dead_letters_of)
            link.queue = self._registry.feed(node, link)
            link.is_pulled = terms.is_own and node.route.from_ is not None
        return link

    def _outgoing(self, description: LinkDescription) -> None:
        if description.key in self._links:
            return
        terms = self._terms[description.key] = decode_terms(description.terminus)
        source = Source(
            address=outside(description.address),
            expiry_policy=terms.policy,
            expiry_seconds=terms.expiry_seconds,
            outcomes=ALL_OUTCOMES,
        )
        link = OutgoingLink(
            key=_key_of(description),
            address=description.address,
            source=source,
            target=None,
            connection=None,
            link=None,
            settles_second=terms.settles_second,
            number=terms.number,
        )
        link.carries_tags = link.is_recorded = True
        if link.key.user == MESH_USER:
            link.chain = Chain(self._settings.router_id, link.key.container)
        if terms.node is not None:
            link.group = node = self._node(terms.node, terms.dead_letters_of)
            link.keeps = is_named_for_store(link.key.name, node)
        self._links[description.key] = link
        self._ledger.restore_outgoing(link, description.key)

    def _node(self, key: NodeKey, dead_letters_of: str | None) -> Node:
        match = self._registry.table.lookup(dead_letters_of or key.address)
        if dead_letters_of is not None:
            place = None if match is None else find_dead_letters(match)
            if place is not None and place[0] == key:
                return self._registry.node(key, place[1], match)
            match = None  # they have another place in the file now, or none
        if match is None:  # its route is not in the file any more
            return self._registry.node(key, route_without(key.address), None)
        return self._registry.node(key, match.route, match)

    def _suspend(self, link: Link, terms: Terms) -> None:
        if isinstance(link, IncomingLink) and not (link.settles_second and link.adrift):
            link.is_gone = True  # nobody resumes it: its peer comes with a new one
            for feed in self._registry.feeds_of(link):
                self._registry.starve(feed.node, link)
            if link.settles_second and not terms.is_own:
                self._ledger.gone(link)
            return
        if not link.adrift:
            self._ledger.gone(link)
            return
        node = None if terms.node is None else self._node(terms.node, terms.dead_letters_of)
        is_routeless = node is not None and node.is_routeless
        keeping = NEVER_EXPIRES if terms.is_own or is_routeless else agreed(link)
        self._suspender.suspend(link, keeping, End.CONNECTION, self._detacher.expire)
        self._restored.links += 1
        if terms.is_own and node is not None:
            (self._routeless if is_routeless else self._uplinks).restored(node, link)

    def _meet(self, description: LinkDescription) -> None:
        """Has a link from the store attached on which all is settled: its peer may not know that.

        Links of senders are attached anyway as these come back.
        """
        terms, key = read_terms(description.terminus), _key_of(description)
        if terms is None or terms.node is None or key.role is not Role.SENDER:
            return
        is_from_store = terms.node.direction is Direction.STORED
        if is_from_store and terms.is_own and terms.settles_second:
            self._uplinks.meet(self._node(terms.node, terms.dead_letters_of), key)

    # Deliveries

    def _write_off(self, unsettled: Unsettled) -> None:
        self._ledger.write_off(unsettled.key, unsettled.incoming, unsettled.sendings)

    def _bring_back(self, incoming: IncomingLink, unsettled: Unsettled, now_ns: int) -> None:
        is_sure = not (unsettled.clouded or unsettled.outcome or unsettled.was_sent)
        if unsettled.is_cut_off and is_sure:  # its sender sends it again, all of it
            self._write_off(unsettled)
            return
        feed = self._feed(incoming, unsettled)
        entry = Entry(unsettled.key, unsettled.incoming, unsettled.tag)
        sendings = [
            sending
            for sending in unsettled.sendings.values()
            if sending.stage is not SendingStage.SETTLED
        ]
        for sending in sendings:
            sending.tag = sending.tag or unsettled.key  # its SENT is missing
        doubtful = [sending for sending in sendings if sending.stage <= SendingStage.IN_DOUBT]
        outcomes = self._outcomes(unsettled)
        if unsettled.outcome:
            doubtful = []
        answer = None if doubtful else self._answer(unsettled, outcomes, feed.node)
        if unsettled.clouded and unsettled.is_waiting and not doubtful and answer is None:
            sendings = doubtful = self._may_be_sent(entry, feed.node)
        redelivers = not incoming.settles_second
        only_here = unsettled.is_only_here and answer is None and not feed.node.is_multicast
        is_final = not isinstance(answer, Released | Modified | None)
        is_kept = only_here if unsettled.source_settled else is_final or not redelivers
        if not doubtful and not is_kept:
            self._write_off(unsettled)
            return
        pairing = self._pairing(incoming, feed, unsettled, now_ns)
        life.set_elder(pairing, self._elder(feed.node, unsettled))
        if feed.node.key.direction is Direction.STORED:  # what went back before that goes first
            incoming.mark_rewound()
        if redelivers or unsettled.source_settled:
            life.restore_settled(pairing, in_custody=unsettled.source_settled)
            self._orphans.leave(incoming, [pairing])
        else:
            life.keep(pairing)
        if doubtful:
            entry.pairing = pairing
            self._put_in_doubt(pairing, doubtful, outcomes, is_multicast=feed.node.is_multicast)
        elif answer is not None:
            entry.outcome, entry.recorded = True, answer
            if redelivers:
                self._ledger.restore(entry, ())
                return
            entry.pairing = pairing
            self._put_answered(pairing, answer, sendings)
        elif self._put_unsent(pairing, unsettled):
            entry.pairing = pairing
        else:
            life.abandon(pairing)
            self._write_off(unsettled)
            return
        self._restored.deliveries += 1
        self._settler.account(incoming, octets_of(pairing))
        self._ledger.restore(
            entry,
            [(sending.outgoing, DeliveryTag(sending.tag)) for sending in sendings],
            is_alone=only_here and not doubtful,
        )
        self._uplinks.used(feed.node)

    def _elder(self, node: Node, unsettled: Unsettled) -> Elder:
        """Returns what a delivery is by having been given back, or taken back, from a target.

        If its route stores, or did, it was sent past the store while that had nothing of its
        address, so it is older than all that is stored there now. What has only been waiting here
        is not: it is the youngest.
        """
        if not node.route.to or node.key.direction is Direction.STORED:
            return Elder.NOT
        answered = (key for key, sending in unsettled.sendings.items() if sending.outcome)
        for elder, keys in (
            (Elder.RETURNED, answered),
            (Elder.RESTORED, unsettled.taken_back),
        ):
            if any(self._is_of_target(key, node) for key in keys):
                return elder
        return Elder.NOT

    def _is_of_target(self, key: JournalKey, node: Node) -> bool:
        """Returns whether an outgoing link of a node is known, and leads to no store."""
        memory = self._known.get(key)
        if memory is None:
            return False
        return not is_named_for_store(LinkName(memory.description.name), node)

    def _put_answered(
        self, pairing: Pairing, answer: DeliveryState, sendings: list[Sending]
    ) -> None:
        """Keeps an outcome for its sender, and the delivery at a receiver that has not settled."""
        life.answer(pairing, answer)
        pairing.delivery.payload = b""  # nobody needs it any more
        pairing.parts = None
        for sending in sendings[:1]:
            self._place(pairing, sending)

    def _put_unsent(self, pairing: Pairing, unsettled: Unsettled) -> bool:
        """Queues a delivery for receivers, or until its sender finishes it; False: it cannot be."""
        if unsettled.payload is None:
            return pairing.parts is not None and pairing.parts.is_whole and not pairing.is_settled
        feed = feed_of(pairing)
        was_sent = not unsettled.is_waiting or unsettled.source_settled
        life.set_attempts(pairing, int(unsettled.was_returned or (was_sent and unsettled.was_sent)))
        if unsettled.was_returned and not unsettled.source_settled:
            life.end_doubt(pairing)
        feed.node.put(feed, pairing)
        self._routeless.wait_for_receivers(feed.node)
        return True

    def _feed(self, incoming: IncomingLink, unsettled: Unsettled) -> Feed:
        if isinstance(incoming.queue, Feed):
            return incoming.queue
        feed = incoming.queues.get(unsettled.address)
        if isinstance(feed, Feed):
            return feed
        place = self._attacher.find(unsettled.address, Role.RECEIVER)
        if isinstance(place, Place):
            node = self._registry.node(place.key, place.route, place.match)
        else:
            node = self._node(NodeKey(unsettled.address), None)
        made = incoming.queues[unsettled.address] = self._registry.feed(node, incoming)
        return made

    def _pairing(
        self, incoming: IncomingLink, feed: Feed, unsettled: Unsettled, now_ns: int
    ) -> Pairing:
        delivery = ReceivedDelivery(
            UNNUMBERED,
            unsettled.tag,
            unsettled.payload or b"",
            PROTOCOLS.get(unsettled.protocol, Protocol.AMQP_1_0),
            unsettled.message_format,
            address=unsettled.address or None,
            ttl_milliseconds=unsettled.ttl_milliseconds,
            delivery_count=unsettled.delivery_count,
            key=unsettled.key,
        )
        parts = None
        if unsettled.is_cut_off:
            parts = Parts.lost()
            parts.is_complete = True  # its sender has nothing to add
        elif not unsettled.is_whole and unsettled.parts is not None:
            goes_on = incoming.settles_second and not unsettled.source_settled
            parts = Parts(self._settings.keep_octets) if goes_on else Parts.lost()
            for piece in unsettled.parts if goes_on else ():
                parts.add(piece, True)
        if unsettled.is_spliced:
            self._splice(delivery, unsettled, parts)
        incoming.tally.deliveries += 1
        arrived = self._turn.now - (now_ns - unsettled.received_ns) / _NANOSECONDS
        pairing = Pairing(
            incoming,
            UNNUMBERED,
            delivery,
            feed,
            arrived,
            incoming.tally.deliveries,
            is_unusual=True,
        )
        pairing.parts = parts
        return pairing

    def _splice(
        self, delivery: ReceivedDelivery, unsettled: Unsettled, parts: Parts | None
    ) -> None:
        """Has a delivery leave as before, with the context of its hop."""
        payload = delivery.payload if parts is None else parts.joined()
        splice = self._ledger.splice(delivery, unsettled.incoming, payload)
        if parts is not None:
            delivery.splice = splice
        elif splice is not None:
            delivery.payload = splice.of(payload)

    def _may_be_sent(self, entry: Entry, node: Node) -> list[Sending]:
        """Treats a delivery with missing records as sent to an unknown receiver.

        What is held for a person stays that; else it is sent again when the time of the link that
        stands in is over, which is at once.
        """
        key = self._unknown.get(node)
        if key is None:
            key = self._unknown[node] = self._stand_in(node, None)
        tag = DeliveryTag(entry.key)
        self._ledger.may_be_sent(entry, key, tag)
        return [Sending(outgoing=key, stage=SendingStage.SENT, tag=tag)]

    def _stand_in(self, node: Node, key: JournalKey | None) -> JournalKey:
        """Makes a link for deliveries to an unknown receiver; no peer can have its key."""
        name = f"unknown:{node.key.address}" if key is None else f"unknown:{key:016x}"
        address = node.key.address
        link = OutgoingLink(
            key=LinkKey(_NOBODY, ContainerId(""), LinkName(name), Role.SENDER, vhost_of(address)),
            address=address,
            source=Source(address=outside(address), outcomes=ALL_OUTCOMES),
            target=None,
            connection=None,
            link=None,
        )
        link.carries_tags = link.is_recorded = True
        link.group = node
        key = self._ledger.stand_in(link, key)
        self._links[key], self._terms[key] = link, Terms(node=node.key)
        return key

    def _put_in_doubt(
        self,
        pairing: Pairing,
        sendings: list[Sending],
        outcomes: list[_Said],
        *,
        is_multicast: bool,
    ) -> None:
        self._restored.in_doubt += 1
        for sending in sendings:
            if sending.outgoing not in self._links:
                self._stand_in(feed_of(pairing).node, sending.outgoing)
        if not is_multicast:
            self._place(pairing, sendings[0])
            return
        fan = pairing.fan = Fan(pairing)
        fan.outcomes += [said.state for said in outcomes if isinstance(said.state, Outcome)]
        for sending in sendings:
            branch = attrs.evolve(pairing)
            branch.fan = fan
            branch.parts = None if pairing.parts is None else Parts.lost()
            if self._place(branch, sending):
                fan.branches.add(branch)

    def _place(self, pairing: Pairing, sending: Sending) -> bool:
        """Puts a delivery on the link that it was sent on, as one of an earlier attachment."""
        link = self._links.get(sending.outgoing)
        if not isinstance(link, OutgoingLink):
            return False
        tag = DeliveryTag(sending.tag)
        life.place(link, pairing, tag)
        return True

    # Outcomes

    def _outcomes(self, unsettled: Unsettled) -> list[_Said]:
        """Returns the outcomes of receivers, or of an operator in their place."""
        return [
            _Said(
                self._state(sending.outcome, sending.outcome_flags, sending.state),
                bool(sending.outcome_flags & RecordFlag.BY_PERSON),
            )
            for sending in unsettled.sendings.values()
            if sending.outcome
        ]

    def _answer(
        self, unsettled: Unsettled, outcomes: list[_Said], node: Node
    ) -> DeliveryState | None:
        """Returns the outcome that the sender has or is to get; None: there is none yet.

        Args:
            unsettled: the delivery, in doubt nowhere.
            outcomes: what its receivers said.
            node: where it is routed.
        """
        if unsettled.outcome:  # it may have been told, whatever receivers said
            return self._state(unsettled.outcome, unsettled.outcome_flags, unsettled.state)
        if not node.is_multicast:
            outcomes = [said for said in outcomes if said.by_person or not may_go_on(said.state)]
        if len(outcomes) == 1:
            return outcomes[0].state
        states = [said.state for said in outcomes if isinstance(said.state, Outcome)]
        return merge_outcomes(states) if states else None

    def _state(self, code: int, flags: int, octets: bytes) -> DeliveryState:
        if octets:
            state = self._decode(octets)
            if is_outcome(state):
                return state
        match code:
            case OutcomeCode.REJECTED:
                return Rejected()
            case OutcomeCode.RELEASED:
                return RELEASED
            case OutcomeCode.MODIFIED:
                return Modified(
                    delivery_failed=bool(flags & RecordFlag.DELIVERY_FAILED),
                    undeliverable_here=bool(flags & RecordFlag.UNDELIVERABLE_HERE),
                )
            case _:
                return ACCEPTED


def _key_of(description: LinkDescription) -> LinkKey:
    """Returns what a link is known by that the journal describes."""
    return LinkKey(
        description.identity or None,
        ContainerId(description.remote),
        LinkName(description.name),
        Role.RECEIVER if description.is_incoming else Role.SENDER,
        vhost_of(description.address),
    )
