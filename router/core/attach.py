"""Attaching: answers the attaches of peers (§2.6.3).

The answer has the values that really apply: filters that we do not apply, durability that we do not
have, and times that we shorten are not echoed.

A peer's attach may be late (``links.attaches``). An attach with a lower number than the greatest
one seen is refused. Any other takes the link over, and its unsettled deliveries are kept until
``AttachConfirmed``: by the link itself, if the attach resumes it (``Unconfirmed``); by the
suspended link, *older*, if the attach asks for a new link in its place.
"""

import zlib
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

import attrs

from router.core.bounds import Bounds
from router.core.credit import Granter
from router.core.dead_letters import DEAD_LETTERS, find_dead_letters
from router.core.detach import Detacher
from router.core.lifetime import Lifetime, actual_properties, read_lifetime
from router.core.mesh.names import INGRESS, is_site
from router.core.mesh.sites import Sites
from router.core.node import Direction, Maker, Node, NodeKey, feed_of_link, mark_of
from router.core.policy import Operation, Permissions
from router.core.reach import Reach, introduction, is_sibling, meet
from router.core.resume import Resumer, knows_nothing
from router.core.retired import node_of
from router.core.state import State
from router.core.stored import FORWARDED, find_stored, is_store, is_within
from router.core.suspend import Suspender, agreed
from router.core.uplinks import Uplinks
from router.links.attaches import AttachNumber, is_late, read_number
from router.links.expiry import NEVER_EXPIRES, Keeping, agree
from router.links.link import Connection, IncomingLink, Link, LinkKey, OutgoingLink, Unconfirmed
from router.model.commands import AttachLink, RefuseLink
from router.model.condition import (
    DETACH_FORCED,
    INVALID_FIELD,
    NOT_ALLOWED,
    NOT_FOUND,
    NOT_IMPLEMENTED,
    RESOURCE_DELETED,
    RESOURCE_LIMIT_EXCEEDED,
    STOLEN,
    Condition,
)
from router.model.events import LinkAttached
from router.model.identity import LinkId
from router.model.terminus import (
    ALL_OUTCOMES,
    OPEN,
    PRIORITY,
    Coordinator,
    Durability,
    ExpiryPolicy,
    ReceiverSettleMode,
    Role,
    SenderSettleMode,
    Source,
    Target,
)
from router.model.url_address import names_nothing
from router.routes.route import Guarantee, Route
from router.routes.table import Match
from router.routes.vhost import inside, is_reserved, outside

CHALLENGE: Final = "router:challenge"
"""Property of an answer to a sibling: the challenge for the peer behind it."""

_Terminus = TypeVar("_Terminus")


@attrs.frozen
class Place:
    """The node that an address leads to, for senders or for receivers."""

    key: NodeKey
    route: Route
    match: Match | None


LINK_NAME_MOST: Final = 16_384
"""Most characters of a link name. AMQP sets no bound; this router's own have two addresses."""


class Attacher:
    """Answers peers that attach links."""

    def __init__(
        self,
        state: State,
        granter: Granter,
        detacher: Detacher,
        uplinks: Uplinks,
        *,
        bounds: Bounds,
        reach: Reach,
        resumer: Resumer,
        sites: Sites,
        suspender: Suspender,
        make_token: Callable[[], str],
    ) -> None:
        self._settings = state.settings
        self._turn = state.turn
        self._ledger = state.ledger
        self._registry = state.registry
        self._numbers = state.numbers
        self._notices = state.notices
        self._orphans = state.orphans
        self._suspender = suspender
        self._granter = granter
        self._detacher = detacher
        self._uplinks = uplinks
        self._bounds = bounds
        self._reach = reach
        self._resumer = resumer
        self._sites = sites
        self._make_token = make_token
        self.is_draining = False
        self.chosen: dict[LinkId, tuple[Place, Mapping[object, object]]] = {}

    def key_of(self, connection: Connection, event: LinkAttached) -> LinkKey:
        """Returns what identifies the link that a peer attaches (§2.6.1)."""
        return LinkKey(
            connection.user,
            connection.container,
            connection.guest or event.name,
            event.role,
            connection.vhost,
        )

    def requested(self, connection: Connection, event: LinkAttached) -> None:
        """Answers a peer's attach."""
        key = self.key_of(connection, event)
        refusal = self._find_fault(connection, event) or self._find_late(connection, key, event)
        if refusal is None:
            stolen = self._steal(key)
            self._part(key)
            if event.role is Role.RECEIVER:
                refusal = self._attach_incoming(connection, key, event)
            else:
                refusal = self._attach_outgoing(connection, key, event)
            if stolen is not None:
                self._keep_stolen(*stolen)
        self.chosen.pop(event.link, None)
        if refusal is not None:
            self.refuse(connection, event, refusal)

    def refuse(self, connection: Connection, event: LinkAttached, reason: Condition) -> None:
        """Refuses a link that a peer attaches (§2.6.3)."""
        self._turn.order_connection(connection, RefuseLink(event.link, reason))
        self._notices.add(
            "link.refused",
            connection=connection.id,
            container=connection.container,
            link=event.name,
            condition=str(reason),
        )

    def _find_fault(self, connection: Connection, event: LinkAttached) -> Condition | None:
        """Returns the condition that forbids such a link; None: it is allowed."""
        if self.is_draining:
            return Condition(DETACH_FORCED, "the router is about to stop")
        length = len(connection.guest or event.name)
        if length > LINK_NAME_MOST:
            reason = f"the link name has {length} characters; at most {LINK_NAME_MOST} are allowed"
            return Condition(INVALID_FIELD, reason)
        if isinstance(event.target, Coordinator):
            return Condition(NOT_IMPLEMENTED, "transactions are not supported")
        if event.role is Role.RECEIVER and event.target is None:
            return Condition(INVALID_FIELD, "an attaching sender names a target")
        if event.role is Role.SENDER and event.source is None:
            return Condition(INVALID_FIELD, "an attaching receiver names a source")
        if connection.is_ingress and not is_sibling(self._registry.connections[connection.id]):
            fault = self._sites.find_fault(event)
            if fault is not None:
                return fault
        permissions = self._registry.permissions(connection)
        links = len(connection.incoming) + len(connection.outgoing)
        limit = permissions.exceeds("links_per_connection", links)
        return None if limit is None else Condition(RESOURCE_LIMIT_EXCEEDED, limit)

    def _find_late(
        self, connection: Connection, key: LinkKey, event: LinkAttached
    ) -> Condition | None:
        """Returns why an attach that a later one has overtaken is refused.

        One of a chain comes once: who has seen it on its way cannot attach it again.
        """
        try:
            number = read_number(event.properties)
        except ValueError as error:
            return Condition(INVALID_FIELD, str(error))
        greatest = self._numbers.greatest(key)
        is_again = connection.is_ingress and number == greatest
        if not (is_late(number, greatest) or is_again):
            return None
        self._notices.add("link.late", container=key.container, link=key.name)
        return Condition(STOLEN, "this attach is older than an earlier one of the link")

    def _steal(self, key: LinkKey) -> tuple[Link, Connection | None] | None:
        """Detaches an older link of the same name, role, container and identity (§2.6.1).

        Returns:
            The link, and the connection that it was attached on.
        """
        older = self._registry.attached.get(key)
        if older is None:
            return None
        connection = older.connection
        self._notices.add("link.stolen", container=key.container, link=key.name)
        reason = Condition(STOLEN, "attached again elsewhere")
        self._detacher.detach(older, reason, keeping=NEVER_EXPIRES)
        return older, connection

    def end_older(self, key: LinkKey) -> None:
        """Ends the link that an attach with other filters replaces, and its uplinks."""
        older = self._registry.attached.get(key)
        found = [] if older is None else [older]
        for link in (*found, *self._registry.kept(key)):
            node = self._registry.node_of(link) if isinstance(link, OutgoingLink) else None
            if link is older:
                self._detacher.detach(link, Condition(STOLEN, "attached again elsewhere"))
            else:
                self._detacher.expire(link)
            if node is not None and node.key.reader is not None and not node.outgoing:
                self._uplinks.remove(node)

    def _keep_stolen(self, link: Link, connection: Connection | None) -> None:
        """Keeps a stolen link, until it expires, that the stealing attach does not resume.

        It is kept behind another link until that link's attach is confirmed, or the attach was
        refused.
        """
        is_own = connection is not None and connection.is_dialed
        if link in self._registry.kept(link.key) and not is_own:
            expire = self._detacher.expire
            self._suspender.keep_as(link, agreed(link), connection, expire)

    def _may_be_late(self, connection: Connection, event: LinkAttached) -> bool:
        if connection.guest is None and is_sibling(connection):
            return False
        return event.may_be_late and not connection.keeps_maps

    def _challenge(self, link: Link) -> int | None:
        """Returns the challenge by which a peer proves that it has read our answer; None: none."""
        if link.unconfirmed is None:
            return None
        return (zlib.crc32(self._make_token().encode()) >> 2) or 1

    def confirmed(self, link: Link) -> None:
        """Records that a peer has shown that it has read our answer."""
        older = None if link.unconfirmed is None else link.unconfirmed.older
        if isinstance(link, IncomingLink):
            self._resumer.sender_confirmed(link)
        else:
            self._resumer.receiver_confirmed(link)
        if older is not None and older in self._registry.kept(older.key):
            self._detacher.expire(older)
            if isinstance(link, IncomingLink):
                link.tag_prefix = self._orphans.prefix(link.key)

    def _part(self, key: LinkKey) -> None:
        """Ends the dispositions of a detached link that is attached again (§2.6.13)."""
        for detached in self._registry.kept(key):
            self._detacher.part(detached)

    # Senders

    def _attach_incoming(
        self, connection: Connection, key: LinkKey, event: LinkAttached
    ) -> Condition | None:
        asked = event.target
        assert isinstance(asked, Target)
        permissions = self._registry.permissions(connection)
        may_be_late = self._may_be_late(connection, event)
        kept, older = self._find_kept(
            key,
            asked.address,
            asked.dynamic,
            may_be_late=may_be_late,
            by_name=is_store(connection),
        )
        if kept is not None and (refusal := _routeless(kept)) is not None:
            return refusal
        if isinstance(kept, IncomingLink) and knows_nothing(kept, event):
            if not self._detacher.owns_node(kept):
                if may_be_late:
                    older = kept
                else:
                    self._detacher.expire(kept)
                kept = None
        if isinstance(kept, IncomingLink):
            denied = self._denial(connection, Operation.SEND, kept.address)
            if denied is not None:
                return denied
            self._resume_incoming(connection, kept, event, older)
            return None
        place = None
        if asked.dynamic or asked.address is not None:
            found = self._find_place(connection, asked, event)
            if isinstance(found, Condition):
                return found
            place = found
        address = None if place is None else place.key.address
        keeping = self._agree(connection, asked)
        lifetime = read_lifetime(asked.dynamic_node_properties)
        target = Target(
            address=None if address is None else outside(address),
            expiry_policy=keeping.policy,
            expiry_seconds=keeping.seconds,
            dynamic=asked.dynamic,
            dynamic_node_properties=(
                actual_properties(asked.dynamic_node_properties, lifetime)
                if asked.dynamic
                else None
            ),
        )
        second = self._settles_second(connection, event, None if place is None else place.route)
        link = IncomingLink(
            key=key,
            address=address,
            source=event.source,
            target=target,
            connection=connection,
            link=event.link,
            settles_second=second,
            may_lose_map=connection.is_volatile,
            tag_prefix=self._orphans.prefix(key),
            outcomes=event.source.outcomes if event.source is not None else (),
            link_credit=self._link_credit(place, permissions),
            unsettled_limit=permissions.limits.unsettled_per_link or 0,
            number=self._note_number(key, event),
        )
        if older is not None:
            link.unconfirmed = Unconfirmed(older=older)
        meet(link, connection, event.properties)
        link.is_delayed = is_store(connection)
        self._registry.attach(connection, link)
        if place is not None:
            node = self._registry.node(place.key, place.route, place.match)
            if asked.dynamic:
                self._make_dynamic(node, link, lifetime, event)
            link.queue = self._registry.feed(node, link)
        self._ledger.attached(link)
        self._answer_sender(connection, link, event, None if place is None else place.key)
        if link.queue is not None:
            self._uplinks.used(feed_of_link(link).node)
        self._turn.review_credit(link)
        return None

    def _find_place(
        self, connection: Connection, asked: Target, event: LinkAttached
    ) -> Place | Condition:
        """Finds the node for an address that a sender names, as a client or as another router."""
        if is_site(connection) or (is_sibling(connection) and INGRESS in event.properties):
            return self._enter_chain(connection, event)
        if is_store(connection) or (is_sibling(connection) and FORWARDED in event.properties):
            return self._enter_stored(asked.address, is_dead=DEAD_LETTERS in event.properties)
        if is_sibling(connection) and DEAD_LETTERS in event.properties:
            return self._enter_dead_letters(asked.address)
        chosen, _ = self.chosen.get(event.link, (None, None))
        return chosen or self.enter(
            connection, asked.address, Operation.SEND, dynamic=asked.dynamic
        )

    def _note_number(self, key: LinkKey, event: LinkAttached) -> AttachNumber | None:
        """Records the number of an accepted attach; returns the link's greatest."""
        self._numbers.note(key, read_number(event.properties))
        return self._numbers.greatest(key)

    def _agree(self, connection: Connection, asked: Source | Target) -> Keeping:
        """Returns the terms on which we keep a terminus.

        The end of a guest's link is reported to us, but not that of its connection. The message
        store comes back, however long that takes, and so does the ingress of another site.
        """
        if is_store(connection) or connection.is_ingress:
            return NEVER_EXPIRES
        limit = self._settings.expiry_seconds
        keeping = agree(asked.expiry_policy, asked.expiry_seconds, limit)
        if connection.guest is None:
            return keeping
        return attrs.evolve(keeping, policy=ExpiryPolicy.LINK_DETACH)

    def _settles_second(
        self, connection: Connection, event: LinkAttached, route: Route | None
    ) -> bool:
        """Returns whether a sender is to settle before we forget the outcome that it was sent.

        Exactly-once needs it whatever the containers can do: the outcome of one that settles first
        waits here, and in the journal, until the sender has read it. On other routes the mode is
        promised only where it holds from end to end.
        """
        if event.receiver_settle_mode is not ReceiverSettleMode.SECOND:
            return False
        if connection.is_volatile or route is None:
            return True  # it is between workers that the outcome must not be lost
        return route.guarantee is Guarantee.EXACTLY_ONCE or self._uplinks.settle_second(route)

    def _answer_sender(
        self, connection: Connection, link: IncomingLink, event: LinkAttached, key: NodeKey | None
    ) -> None:
        challenge, properties = self._ask(connection, link)
        node = None if link.queue is None else feed_of_link(link).node
        is_exact = node is not None and node.is_exact
        answer = AttachLink(
            link=event.link,
            name=event.name,
            role=Role.RECEIVER,
            source=event.source,
            target=_durable(link.target, event.target, is_exact=is_exact),
            sender_settle_mode=event.sender_settle_mode,
            receiver_settle_mode=ReceiverSettleMode(int(link.settles_second)),
            max_message_octets=self._largest_message(connection),
            properties=properties | self._introduction(connection, key),
            challenge=challenge,
            is_exact=is_exact,
            ttl_seconds=None if node is None else node.route.ttl_seconds,
        )
        self._turn.order(link, self._with_map(connection, link, event, answer))
        theirs, is_incomplete = event.unsettled, event.incomplete_unsettled
        self._resumer.reducer.begin(link, theirs, is_incomplete=is_incomplete)

    def _largest_message(self, connection: Connection) -> int:
        """Returns how many octets a sender's message may have; 0: any number.

        What enters is measured once, by the rule of the peer that sent it.
        """
        if connection.guest is None and is_within(connection):
            return 0
        limits = self._registry.permissions(connection).limits
        return limits.max_message_octets or self._settings.max_message_octets

    def _ask(self, connection: Connection, link: Link) -> tuple[int | None, dict[object, object]]:
        """Returns the challenge of an answer, and the properties for a sibling to pass it on."""
        challenge = self._challenge(link)
        if challenge is None or connection.guest is None:
            return challenge, {}
        return None, {CHALLENGE: challenge}

    def _resume_incoming(
        self,
        connection: Connection,
        link: IncomingLink,
        event: LinkAttached,
        older: Link | None,
    ) -> None:
        """Attaches a suspended incoming link again."""
        link.link = event.link
        link.source = event.source
        link.outcomes = event.source.outcomes if event.source is not None else ()
        meet(link, connection, event.properties)
        node = feed_of_link(link).node if link.queue is not None else None
        route = None if node is None else node.route
        link.settles_second = self._settles_second(connection, event, route)
        link.may_lose_map = connection.is_volatile
        link.is_delayed = is_store(connection)
        link.number = self._note_number(link.key, event)
        self._resumer.sender_back(
            link,
            event.unsettled,
            is_incomplete=event.incomplete_unsettled,
            may_be_late=self._may_be_late(connection, event),
        )
        if older is not None:
            link.unconfirmed = link.unconfirmed or Unconfirmed()
            link.unconfirmed.older = older
        self._registry.attach(connection, link)
        connection.octets.used += link.octets
        self._ledger.attached(link)
        self._answer_sender(connection, link, event, None if node is None else node.key)
        self._turn.review_credit(link)

    def _introduction(self, connection: Connection, key: NodeKey | None) -> dict[object, object]:
        """Returns the properties of an answer: towards a router, the stop of our node."""
        return {} if key is None else introduction(self._registry.stop_of(key), connection)

    def _with_map(
        self, connection: Connection, link: Link, event: LinkAttached, answer: AttachLink
    ) -> AttachLink:
        """Adds our unsettled map to an answer; none for a peer that does not resume."""
        if event.unsettled is None:
            return answer
        octets = connection.capabilities.frame_octets
        filled = self._resumer.reducer.add_map(link, answer, octets, theirs=event.unsettled)
        if connection.guest is None:
            return filled
        return attrs.evolve(filled, properties=answer.properties)  # they are for the sibling

    def _find_kept(
        self,
        key: LinkKey,
        address: str | None,
        dynamic: bool,
        *,
        may_be_late: bool,
        by_name: bool = False,
    ) -> tuple[Link | None, Link | None]:
        """Returns the suspended link that a peer resumes, and one of its name that stays.

        Another one of its name is ended, unless the attach may be late. ``by_name``: it has no
        other, whatever address it was attached to.
        """
        found: Link | None = None
        older: Link | None = None
        for kept in self._registry.kept(key):
            was = None if kept.address is None else outside(kept.address)
            if found is None and (address == was or by_name or (dynamic and address is None)):
                found = kept
            elif may_be_late and older is None:
                older = kept
            else:
                self._detacher.expire(kept)
        return found, older

    def _link_credit(self, place: Place | None, permissions: Permissions) -> int:
        most = permissions.limits.link_credit or self._settings.link_credit
        if place is None:
            return min(most, self._settings.anonymous_credit)
        own = place.route.link_credit or most
        return own if permissions.limits.link_credit is None else min(own, most)

    # Receivers

    def _attach_outgoing(
        self, connection: Connection, key: LinkKey, event: LinkAttached
    ) -> Condition | None:
        asked = event.source
        assert asked is not None
        address = asked.address
        may_be_late = self._may_be_late(connection, event)
        chosen, applied = self.chosen.get(event.link, (None, {}))
        if chosen is not None:
            address = None  # another source than that of any link that is kept
        kept, older = self._find_kept(key, address, asked.dynamic, may_be_late=may_be_late)
        if isinstance(kept, OutgoingLink):
            denied = self._denial(connection, Operation.RECEIVE, kept.address) or _routeless(kept)
            if denied is not None:
                return denied
            if may_be_late and (kept.adrift or older is not None):
                kept.unconfirmed = Unconfirmed(has_map=event.unsettled is not None, older=older)
            self._resume_outgoing(connection, kept, event)
            return None
        if asked.address is None and not asked.dynamic:
            return Condition(INVALID_FIELD, "a source needs an address, or dynamic")
        place = chosen or self.enter(connection, address, Operation.RECEIVE, dynamic=asked.dynamic)
        if isinstance(place, Condition):
            return place
        node = self._registry.node(place.key, place.route, place.match)
        keeping = self._agree(connection, asked)
        lifetime = read_lifetime(asked.dynamic_node_properties)
        source = Source(
            address=outside(place.key.address),
            expiry_policy=keeping.policy,
            expiry_seconds=keeping.seconds,
            dynamic=asked.dynamic,
            dynamic_node_properties=(
                actual_properties(asked.dynamic_node_properties, lifetime)
                if asked.dynamic
                else None
            ),
            distribution_mode="copy" if node.is_multicast else "move",
            filters=applied or None,
            default_outcome=asked.default_outcome,
            outcomes=ALL_OUTCOMES,
        )
        link = OutgoingLink(
            key=key,
            address=place.key.address,
            source=source,
            target=event.target,
            connection=connection,
            link=event.link,
            number=self._note_number(key, event),
        )
        if older is not None:
            link.unconfirmed = Unconfirmed(older=older)
        link.group = node
        self._take_receivers_word(connection, link, event)
        self._registry.attach(connection, link)
        self._ledger.attached(link, shows_map=event.unsettled is not None)
        self._answer_receiver(connection, link, event, node)
        if asked.dynamic:
            self._make_dynamic(node, link, lifetime, event)
        theirs, is_incomplete = event.unsettled, event.incomplete_unsettled
        if self._resumer.reducer.begin(link, theirs, is_incomplete=is_incomplete):
            link.group = node
        else:
            self._registry.join(node, link)
            self._granter.receivers_changed(node)
        self._uplinks.used(node)
        return None

    @staticmethod
    def _take_receivers_word(
        connection: Connection, link: OutgoingLink, event: LinkAttached
    ) -> None:
        """Records how a receiver's link is to be served."""
        link.wants_settled = event.sender_settle_mode is SenderSettleMode.SETTLED
        link.settles_second = event.receiver_settle_mode is ReceiverSettleMode.SECOND
        meet(link, connection, event.properties)
        link.max_message_octets = event.max_message_octets
        priority = event.properties.get(PRIORITY)
        link.priority = priority if isinstance(priority, int) else 0

    def _answer_receiver(
        self, connection: Connection, link: OutgoingLink, event: LinkAttached, node: Node
    ) -> None:
        challenge, properties = self._ask(connection, link)
        answer = AttachLink(
            link=event.link,
            name=event.name,
            role=Role.SENDER,
            source=_durable(link.source, event.source, is_exact=node.is_exact),
            target=event.target,
            sender_settle_mode=event.sender_settle_mode,
            receiver_settle_mode=event.receiver_settle_mode,
            properties=properties | self._introduction(connection, node.key),
            challenge=challenge,
            is_exact=node.is_exact,
            ttl_seconds=node.route.ttl_seconds,
        )
        self._turn.order(link, self._with_map(connection, link, event, answer))

    def _resume_outgoing(
        self, connection: Connection, link: OutgoingLink, event: LinkAttached
    ) -> None:
        """Attaches a suspended outgoing link again."""
        link.link = event.link
        link.target = event.target
        link.number = self._note_number(link.key, event)
        self._take_receivers_word(connection, link, event)
        self._registry.attach(connection, link)
        self._ledger.attached(link, shows_map=event.unsettled is not None)
        node = self._registry.node_of(link)
        assert node is not None, "a suspended receiver keeps its node"
        self._answer_receiver(connection, link, event, node)
        is_incomplete = event.incomplete_unsettled
        self._resumer.receiver_back(link, event.unsettled, is_incomplete=is_incomplete)

    # Addresses

    def enter(
        self,
        connection: Connection,
        address: str | None,
        operation: Operation,
        *,
        dynamic: bool = False,
    ) -> Place | Condition:
        """Finds the node for an address that a peer names, if the peer may use it.

        Args:
            connection: the peer's.
            address: the external address.
            operation: the requested operation.
            dynamic: a node is to be made for it, and ``address`` means nothing.
        """
        if dynamic or address is None:
            place = self._make_place(connection.vhost)
            return self._denial(connection, operation, place.key.address) or place
        name = inside(connection.vhost, address)
        denied = self._denial(connection, operation, name)
        if denied is not None:
            return denied
        if not is_sibling(connection):
            if is_reserved(address):
                return Condition(NOT_FOUND, f"no route for the address '{address}'")
            if connection.capabilities.writes_urls and names_nothing(address):
                return Condition(NOT_FOUND, f"the URL '{address}' names no address")
        return self.find(name, Role.RECEIVER if operation is Operation.SEND else Role.SENDER)

    def _enter_chain(self, connection: Connection, event: LinkAttached) -> Place | Condition:
        """Finds the node for a link between sites; its ingress has asked the policy."""
        found = self._sites.enter(event, is_own=is_sibling(connection))
        if isinstance(found, Condition):
            return found
        if isinstance(found, str):
            return self.find(found, Role.RECEIVER)
        key, route = found
        return Place(key, route, None)

    def _enter_dead_letters(self, address: str | None) -> Place | Condition:
        """Finds the node for the dead letters of an address, which a sibling sends."""
        match = None if address is None else self._registry.table.lookup(address)
        place = None if match is None else find_dead_letters(match)
        if place is None:
            return Condition(NOT_FOUND, f"no dead letters of the address '{address}'")
        key, route = place
        return Place(key, route, match)

    def _enter_stored(self, address: str | None, *, is_dead: bool) -> Place | Condition:
        """Finds the node for what the message store sends."""
        match = None if address is None else self._registry.table.lookup(address)
        place = None if match is None else find_stored(match, is_dead=is_dead)
        if place is None:
            return Condition(RESOURCE_DELETED, f"nothing stored can be sent to '{address}'")
        key, route = place
        return Place(key, route, match)

    def _denial(
        self, connection: Connection, operation: Operation, address: str | None
    ) -> Condition | None:
        """Returns why a peer may not use an internal address; None: it may."""
        if address is None:
            return None  # each delivery is looked at
        return self._bounds.denial(connection, operation, address)

    def find(self, address: str, role: Role) -> Place | Condition:
        """Finds the node for an address.

        Args:
            address: as it is called inside.
            role: our end's: RECEIVER for the peer's senders.
        """
        meeting = NodeKey(address)
        made = self._registry.nodes.get(meeting)
        if made is not None and made.owner is not None:
            return Place(meeting, made.route, None)
        if address in self._reach.made:  # a dynamic node of a sibling's
            return Place(meeting, Route(address=address), None)
        match = self._registry.table.lookup(address)
        if match is None and self._reach.sites is not None and self._reach.sites.serves(address):
            return Place(meeting, Route(address=address), None)
        if match is None or self._bounds.is_bygone(address, match):
            if self._registry.table.is_unavailable(address):
                reason = f"the address '{outside(address)}' is unavailable, says its route"
                return Condition(NOT_FOUND, reason)
            return _no_route(address)
        route = match.route
        if route.is_bridge and role is Role.SENDER:
            reason = f"'{outside(address)}' is bridged ({route}); no receiver can attach to it"
            return Condition(NOT_ALLOWED, reason)
        if route.to and not route.is_bridge:
            towards = role is Role.RECEIVER
            direction = Direction.TOWARDS if towards else Direction.PULL
            return Place(NodeKey(address, direction), route, match)
        return Place(meeting, route, match)

    def _make_dynamic(
        self, node: Node, link: Link, lifetime: Lifetime, event: LinkAttached
    ) -> None:
        """Gives a dynamic node its maker and the lifetime of its policy (§3.5.10-13).

        Others may receive from a node that a sender made (a dynamic target).
        """
        connection = link.connection
        assert connection is not None
        node.owner, node.lifetime, node.maker = link, lifetime, maker_of(connection, event)
        self._registry.moved[node] = None

    def _make_place(self, vhost: str) -> Place:
        """Makes a node for a peer that asks for a dynamic one (§3.5.10)."""
        address = self._bounds.dynamic_address(vhost, self._make_token())
        return Place(NodeKey(address), Route(address=address), None)


def maker_of(connection: Connection, event: LinkAttached) -> Maker:
    """Returns the maker of the dynamic node that an attach asks for."""
    return Maker(
        mark_of(connection),
        is_open=OPEN in event.properties or event.role is Role.RECEIVER,
        is_lone=not connection.capabilities.names_itself,
    )


def _no_route(address: str) -> Condition:
    return Condition(NOT_FOUND, f"no route for the address '{outside(address)}'")


def _durable(ours: _Terminus, asked: object, *, is_exact: bool) -> _Terminus:
    """Returns our terminus with its durability, for the answer to an attach (§3.5.5).

    The journal keeps the unsettled state of links on exactly-once routes. A peer that asked for
    that learns from the answer whether it has it.
    """
    if not is_exact or not isinstance(ours, Source | Target):
        return ours
    if not isinstance(asked, Source | Target):
        return ours
    if asked.durability is not Durability.UNSETTLED_STATE:
        return ours
    return attrs.evolve(ours, durability=Durability.UNSETTLED_STATE)


def _routeless(link: Link) -> Condition | None:
    """Logs that a kept link leads to an address whose route is gone (``routeless``)."""
    node = node_of(link)
    return _no_route(node.key.address) if node is not None and node.is_routeless else None
