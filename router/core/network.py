"""Advertisements between the workers of a router, by which they act as one router.

Each worker advertises to every other which addresses have receivers at it and which containers it
has dialed. So a sender reaches receivers on any worker, and a route its container, whichever worker
dials it.

Theory of operation. On a connection between workers each end attaches one link to the address
``ADDRESS`` and sends *advertisements* on it. The first one after an attach is full: it replaces all
earlier entries of this origin. Each further one has the changes since, and its version is one
greater than that of the one before. A receiver that finds a gap detaches the link with the reason;
the other end attaches it again and starts over. Changes are collected until the turn ends, and
while there is no credit, so a flood of changes costs one message per credit of the peer. An
advertisement is accepted when it has taken effect: no later delivery is sent past a receiver that
it names.

Entries that would make an advertisement invalid are never sent, because they would be repeated
forever: names that are not text are not claimed, and a message is limited to the octets of a frame.
An entry that is invalid nevertheless is skipped by the receiving worker; the others count.

An advertisement is one message, an ``amqp-value`` section with a list::

    [ form          ubyte     2; on another form the link is detached
      origin        string    container-id of the worker that sends it
      version       ulong
      is_full       boolean
      come          list of   [kind ubyte, name string, amount uint, routers list of string,
                               maker list or null]
      gone          list of   [kind ubyte, name string]                                        ]

    kind 0: the address ``name`` has receivers there; kind 1: the container ``name`` is
    connected there; kind 2: a receiver there has subscribed to the pattern ``name``
    kind 4: the address ``name`` has ``amount`` receivers there, more than one
    kind 5: ``amount`` deliveries that did not come from the addressed worker are unsettled at the
        receivers of ``name``
    kind 6: the address ``name`` is that of a dynamic node that ``maker`` made there and that exists
    kind 7: the link of the digest ``name`` has just been attached there; never sent in full
    kinds 8 to 10: paths of the mesh, from the worker with its connections (``mesh.reports``)
    kind 3: the identity ``name`` has ``amount`` connections there, and their number is limited
    maker: [mark string or null, is_open boolean], of kind 6
    amount: the cost of the way from the origin to there, 0 if it is the origin itself; of kinds 3
        to 5 the number
    routers: ids of the routers that have passed this on, the first one first

A link of AMQP 1.0 is identified by its containers, whichever worker they are connected to (§2.6.1).
So a worker that gets the entry of a link attached at itself, too, detaches its own as stolen. If
two workers advertise the same link at the same time, the one with the greater name keeps it.

The form is made for a network of routers: a router that passes an entry on adds its id and the cost
of its hop, and drops entries that have its own id or have passed ``hop_limit`` routers. Workers of
one router are all connected to each other, so they pass nothing on: a delivery crosses at most one
such hop, and ``routers`` is empty.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, Final

import attrs

from router.core.detach import Detacher
from router.core.joint import AMQP_VALUE, Joint
from router.core.lanes import Lanes
from router.core.mesh.names import is_edge, is_neighbor
from router.core.node import Direction, Maker, Node
from router.core.reach import SIBLING_COST, Reach, is_sibling
from router.core.state import State
from router.core.stored import STORE
from router.core.suspend import agreed
from router.core.uplinks import Uplinks
from router.errors import DecodeError
from router.links.link import Connection, LinkKey, OutgoingLink
from router.model.commands import (
    DetachLink,
    UpdateDeliveries,
)
from router.model.condition import DECODE_ERROR, ILLEGAL_STATE, STOLEN, Condition
from router.model.events import (
    CreditGranted,
    DeliveriesReceived,
    DeliveriesUpdated,
    Event,
    LinkAttached,
    LinkDetached,
)
from router.model.identity import ConnectionId, LinkId
from router.model.outcome import ACCEPTED
from router.model.terminus import SenderSettleMode
from router.model.text import is_text
from router.routes.match import PatternError, matches, parse_pattern
from router.wire.v1_0.types import Ubyte, Uint, Ulong, decode_value, encode_value

ADDRESS: Final = "$network"
"""Target of the links that carry advertisements; no route has it, and no peer but a sibling."""

FORM: Final = 2

RECEIVERS: Final = 0
CONTAINER: Final = 1
PATTERN: Final = 2
IDENTITY: Final = 3
COUNT: Final = 4
LOAD: Final = 5
MADE: Final = 6
LINK: Final = 7
SITE: Final = 8
SERVED: Final = 9
SERVED_ALONE: Final = 10

_PATHS: Final = frozenset((SITE, SERVED, SERVED_ALONE))

ENTRIES_MOST: Final = 250
"""Most entries in one advertisement; with typical addresses it fits a frame of 16 KiB."""

ENTRIES_OCTETS: Final = 32 << 10
"""Size limit of the entries in one advertisement. Exceeded by one longest name, 4,096 characters
(``routes.match``), it fits a frame between workers (``net.siblings``)."""

_ENTRY_OCTETS: Final = 80
"""Size of an entry without its name and routers; a maker's mark has 32 (``node.mark_of``)."""

PATIENCE_SECONDS: Final = 2.0
"""How long siblings may take to acknowledge: far beyond what a busy one needs, and far below what
clients wait for an answer."""

Key = tuple[int, str]


@attrs.frozen
class Entry:
    """An entry of an advertisement: an address, pattern, container or number.

    Attributes:
        kind: ``RECEIVERS`` or another of those above.
        name: the internal address or pattern, or the container's name.
        amount: the cost of the path, or the number that the kind conveys.
        routers: ids of the routers that have passed it on.
        maker: of a dynamic node.
    """

    kind: int
    name: str
    amount: int = 0
    routers: tuple[str, ...] = ()
    maker: Maker | None = None

    @property
    def key(self) -> Key:
        """The key that identifies the entry."""
        return (self.kind, self.name)


@attrs.frozen(kw_only=True)
class Advertisement:
    """One message of the exchange; see the head of the module."""

    origin: str
    version: int
    is_full: bool
    come: tuple[Entry, ...]
    gone: tuple[Key, ...]

    def encode(self) -> bytes:
        """Encodes the advertisement as a message."""
        come = [
            [
                Ubyte(each.kind),
                each.name,
                Uint(each.amount),
                list(each.routers),
                _encode_maker(each.maker),
            ]
            for each in self.come
        ]
        gone = [[Ubyte(kind), name] for kind, name in self.gone]
        fields = [Ubyte(FORM), self.origin, Ulong(self.version), self.is_full, come, gone]
        return AMQP_VALUE + encode_value(fields)

    @classmethod
    def decode(cls, payload: bytes) -> "Advertisement":
        """Decodes a message.

        Raises:
            DecodeError: it is not an advertisement.
        """
        if not payload.startswith(AMQP_VALUE):
            raise DecodeError(0, "an advertisement is an amqp-value")
        fields, _ = decode_value(payload, len(AMQP_VALUE))
        try:
            form, origin, version, is_full, come, gone = fields
            if form != FORM:
                raise DecodeError(len(AMQP_VALUE), f"advertisement of form {form}")
            return cls(
                origin=str(origin),
                version=int(version),
                is_full=bool(is_full),
                come=tuple(filter(None, map(_entry_of, come))),
                gone=tuple(filter(None, map(_key_of, gone))),
            )
        except (TypeError, ValueError):
            raise DecodeError(len(AMQP_VALUE), "fields of an advertisement") from None


def _entry_of(fields: Any) -> Entry | None:
    """Decodes an entry; None: it is malformed."""
    try:
        kind, name, amount, routers, maker = fields
        routers = tuple(map(str, routers))
        entry = Entry(int(kind), str(name), int(amount), routers, _decode_maker(maker))
        if entry.kind == PATTERN:
            parse_pattern(entry.name)
    except (TypeError, ValueError, PatternError):
        return None
    return entry


def _key_of(fields: Any) -> Key | None:
    """Decodes the key of a removed entry; None: it is malformed."""
    try:
        kind, name = fields
        return int(kind), str(name)
    except (TypeError, ValueError):
        return None


@attrs.define(eq=False)
class _Joint(Joint):
    """A connection to a sibling, and the exchange on it; ``sent`` is the version of the last one.

    Attributes:
        is_fresh: the next advertisement must be full.
        pending: changes not sent yet; None: the entry is gone.
        unacknowledged: keys sent and not acknowledged, with the version that last had each.
        their_version: version of the last advertisement received; None: none yet.
        known: entries that the sibling has advertised.
        loads: load reported to the sibling, by address; 0 is left out.
    """

    is_fresh: bool = True
    pending: dict[Key, Entry | None] = attrs.field(factory=dict)
    unacknowledged: dict[Key, int] = attrs.field(factory=dict)
    their_version: int | None = None
    known: dict[Key, Entry] = attrs.field(factory=dict)
    loads: dict[str, int] = attrs.field(factory=dict)


class Network:
    """Advertises this worker's entries to siblings, and keeps those of the siblings."""

    def __init__(
        self,
        state: State,
        reach: Reach,
        uplinks: Uplinks,
        *,
        lanes: Lanes,
        detacher: Detacher,
        link_ids: Iterator[LinkId],
    ) -> None:
        self._settings = state.settings
        self._registry = state.registry
        self._turn = state.turn
        self._notices = state.notices
        self._reach = reach
        self._uplinks = uplinks
        self._lanes = lanes
        self._detacher = detacher
        self._link_ids = link_ids
        self._known_by_kind = {
            RECEIVERS: reach.receivers,
            CONTAINER: reach.containers,
            PATTERN: reach.patterns,
            IDENTITY: reach.identities,
            COUNT: reach.counts,
            LOAD: reach.loads,
            MADE: reach.made,
        }
        self._joints: dict[ConnectionId, _Joint] = {}
        self._here: dict[Key, Entry] = {}
        self._claims: Counter[Key] = Counter()
        self._links: dict[str, LinkKey] = {}
        self.on_taken: Callable[[str], None] = _ignore
        self.on_receivers: Callable[[str, str, bool], None] = _ignore
        self.on_path: Callable[[Entry | None, Key, str], None] = _ignore

    # What the core calls

    def reviewed(self, connection: Connection) -> None:
        """Records that a connection has opened or ended, perhaps a container's."""
        name = connection.configured
        is_other = is_sibling(connection) or is_neighbor(connection)
        if name is not None and connection.is_dialed and not is_other:
            self._review_container(name)

    def container_moved(self, name: str) -> None:
        """Records that a container has dialed in here, or is gone from here."""
        self._review_container(name)
        if self._reach.owns(name):
            self._follow_routes(name)
        self._reconsider_containers({name})

    def advertise_instance(self, who: str, *, is_here: bool) -> None:
        """Advertises who has dialed in here as a container, or is gone from here."""
        key = (CONTAINER, who)
        if is_here is not (key in self._here):
            self._change(key, Entry(*key) if is_here else None)

    def _follow_routes(self, name: str) -> None:
        """Makes the uplinks of routes from a container."""
        for route in self._registry.table.routes:
            if route.from_ is not None and route.from_.container == name:
                self._uplinks.follow(route, self._registry.table.lookup(route.address))

    def joined(self, connection: Connection) -> None:
        """Records a connection to a sibling that has opened."""
        assert connection.configured is not None
        joint = self._joints[connection.id] = _Joint(
            connection, connection.configured, ADDRESS, self._turn
        )
        self._attach(joint)

    def left(self, connection: Connection) -> None:
        """Records that a sibling's connection is gone, with all entries learned over it."""
        joint = self._joints.pop(connection.id, None)
        if joint is not None:
            # ways to other sites are those of before until that worker's next life has told them
            gone = (key for key in joint.known if key[0] not in _PATHS)
            self._learn(joint, dict.fromkeys(gone))

    @property
    def is_alone(self) -> bool:
        """Whether this router has one worker: nobody is to be told anything."""
        return self._reach.owned is None

    def publish(self, key: Key, entry: Entry | None) -> None:
        """Advertises a path of the mesh, or that it is gone."""
        if not self.is_alone and self._here.get(key) != entry:
            self._change(key, entry)

    def receives(self, address: str, is_received: bool) -> None:
        """Claims an address for an edge of this router, or ends the claim."""
        change = self.claim if is_received else self.unclaim
        change((RECEIVERS, address))

    def handle(self, connection: Connection, event: Event) -> bool:
        """Handles an event of the exchange; returns False for other events."""
        joint = self._joints.get(connection.id)
        if joint is None:
            return False
        match event:
            case LinkAttached(is_answer=True, link=link) if link == joint.ours:
                return True
            case LinkAttached() if joint.is_theirs(event):
                joint.their_version = None  # earlier entries stay until its first message
                joint.accept(event)
            case CreditGranted(link=link, credit=credit) if link == joint.ours:
                joint.credit = credit
            case LinkDetached(link=link) if link == joint.ours:
                self._attach(joint)
            case LinkDetached(link=link) if link == joint.theirs:
                joint.theirs = None
            case DeliveriesUpdated(link=link) if link == joint.ours:
                last = max(event.numbers)
                joint.unacknowledged = {
                    key: sent for key, sent in joint.unacknowledged.items() if sent > last
                }
            case DeliveriesReceived(link=link) if link == joint.theirs:
                self._receive(joint, event)
            case _:
                return False
        return True

    def own(self, containers: frozenset[str]) -> None:
        """Records which containers are this worker's to dial from now on."""
        before, self._reach.owned = self._reach.owned or frozenset(), containers
        for name in before ^ containers:
            self._review_container(name)
        for route in self._registry.table.routes:
            self._uplinks.follow(route, self._registry.table.lookup(route.address))
        self._reconsider_containers(before ^ containers)

    def review(self) -> None:
        """Sends the changes of the turn to the siblings; to be called when it ends."""
        moved, self._registry.moved = self._registry.moved, {}
        named, self._registry.named = self._registry.named, {}
        if self._reach.owned is None:
            return  # there are no siblings
        for node in moved:
            if node.key.direction is not Direction.MEETING:
                continue
            self._review((RECEIVERS, node.key.address))
            self._review_count(node)
            self._review_made(node)
        if self._joints or self._links:
            for key in named:
                self._review_link(key)
        for joint in self._joints.values():
            if joint.credit and (joint.is_fresh or joint.pending):
                self._send_changes(joint)

    def count(self, identity: str, connections: int) -> None:
        """Advertises how many connections an identity with a limited number has here."""
        key = (IDENTITY, identity)
        entry = Entry(*key, connections) if connections else None
        if self._here.get(key) != entry:
            self._change(key, entry)

    def report_load(self, sibling: str, address: str, unsettled: int) -> bool:
        """Advertises to a sibling how many deliveries of others are unsettled at receivers here.

        Returns:
            whether the number differs by more than an eighth from the last one reported.
        """
        joint = next((each for each in self._joints.values() if each.name == sibling), None)
        if joint is None or joint.is_fresh:
            return False
        before = joint.loads.get(address, 0)
        if unsettled == before or (unsettled and abs(unsettled - before) * 8 <= before):
            return False
        if unsettled:
            joint.loads[address] = unsettled
        else:
            del joint.loads[address]
        joint.pending[LOAD, address] = Entry(LOAD, address, unsettled) if unsettled else None
        return True

    @property
    def has_siblings(self) -> bool:
        """Whether there are siblings."""
        return bool(self._joints)

    @property
    def acquainted(self) -> frozenset[str]:
        """The siblings whose first advertisement has arrived; they know of us by ours."""
        return frozenset(
            joint.name for joint in self._joints.values() if joint.their_version is not None
        )

    def is_known(self, key: Key) -> bool:
        """Returns whether every sibling knows that an address or a pattern has receivers here."""
        joints = self._joints.values()
        return not joints or (
            key in self._here
            and not any(j.is_fresh or key in j.pending or key in j.unacknowledged for j in joints)
        )

    def claim(self, key: Key) -> None:
        """Advertises receivers here: one that is about to attach, or one of a pattern."""
        self._claims[key] += 1
        self._review(key)

    def unclaim(self, key: Key) -> None:
        """Withdraws a claim; from now on only actual receivers count."""
        self._claims[key] -= 1
        if not self._claims[key]:
            del self._claims[key]
        self._review(key)

    def claim_made(self, address: str, maker: Maker) -> None:
        """Advertises a dynamic node here that is about to be made, and its receivers."""
        key = (MADE, address)
        self._change(key, Entry(*key, maker=_from_afar(maker)))
        self.claim((RECEIVERS, address))

    def unclaim_made(self, address: str) -> None:
        """Withdraws that; from now on only an actual node counts."""
        self.unclaim((RECEIVERS, address))
        node = self._registry.find(address)
        if node is not None:
            self._review_made(node)
        elif (MADE, address) in self._here:
            self._change((MADE, address), None)

    def _review(self, key: Key) -> None:
        kind, name = key
        node = self._registry.find(name) if kind == RECEIVERS else None
        is_here = key in self._claims or (
            node is not None
            and not node.route.is_bridge
            and (node.owner is not None or _has_receivers(node))
        )
        if is_here is not (key in self._here):
            self._change(key, Entry(*key) if is_here else None)

    def _review_made(self, node: Node) -> None:
        """Advertises the creation, by whom, or the end of a dynamic node here."""
        key = (MADE, node.key.address)
        entry = None if node.owner is None else Entry(*key, maker=_from_afar(node.maker))
        if self._here.get(key) != entry:
            self._change(key, entry)

    def _review_link(self, key: LinkKey) -> None:
        """Advertises a link that a peer has attached here."""
        link = self._registry.attached.get(key)
        connection = None if link is None else link.connection
        digest = _digest_of(key)
        is_reported = (
            link is not None
            and connection is not None
            and connection.capabilities.names_links
            and not (connection.is_dialed or link.is_ours)
            and connection.guest is None
        )
        if not is_reported:
            if self._links.pop(digest, None) is not None:
                for joint in self._joints.values():
                    joint.pending.pop((LINK, digest), None)
            return
        self._links[digest] = key
        for joint in self._joints.values():
            if not joint.is_fresh:
                joint.pending[LINK, digest] = Entry(LINK, digest)

    def _lose_link(self, joint: _Joint, digest: str) -> None:
        """Detaches a link that has been attached at a sibling since (§2.6.1)."""
        key = self._links.get(digest)
        link = None if key is None else self._registry.attached.get(key)
        if link is None or link.link is None:
            return
        ours = (LINK, digest)
        is_crossing = ours in joint.pending or ours in joint.unacknowledged
        if is_crossing and f"/{self._settings.worker}" > joint.name:
            return
        self._notices.add("link.stolen", container=link.key.container, link=link.key.name)
        reason = Condition(STOLEN, "attached again elsewhere")
        self._detacher.detach(link, reason, keeping=agreed(link))

    def _review_count(self, node: Node) -> None:
        """Advertises how many receivers an address has here, if more than one."""
        key = (COUNT, node.key.address)
        is_here = (RECEIVERS, node.key.address) in self._here
        count = sum(map(_is_receiver, node.outgoing)) if is_here else 0
        entry = Entry(*key, count) if count > 1 else None
        if self._here.get(key) != entry:
            self._change(key, entry)

    # Telling

    def _review_container(self, name: str) -> None:
        """Advertises a container that can, or no longer can, be reached through us."""
        key = (CONTAINER, name)
        is_dialed = name in (self._reach.owned or ()) and self._uplinks.is_connected(name)
        is_here = is_dialed or name in self._reach.attached
        if is_here is not (key in self._here):
            self._change(key, Entry(*key) if is_here else None)

    def _change(self, key: Key, entry: Entry | None) -> None:
        if not is_text(key[1]):
            return  # there are no siblings
        if entry is None:
            self._here.pop(key, None)
        else:
            self._here[key] = entry
        for joint in self._joints.values():
            if not joint.is_fresh:
                joint.pending[key] = entry

    def _attach(self, joint: _Joint) -> None:
        joint.is_fresh = True
        joint.loads.clear()
        joint.pending.clear()
        joint.unacknowledged.clear()
        joint.attach(next(self._link_ids), SenderSettleMode.UNSETTLED)

    def _send_changes(self, joint: _Joint) -> None:
        """Sends the pending changes to a sibling, as far as its credit allows."""
        is_full = joint.is_fresh
        if is_full:
            joint.pending = dict(self._here)
            joint.is_fresh = False
        messages: list[bytes] = []
        while (joint.pending or is_full) and len(messages) < joint.credit:
            sent, version = _next_of(joint.pending), joint.sent + len(messages) + 1
            joint.unacknowledged.update(dict.fromkeys(sent, version))
            advertisement = Advertisement(
                origin=f"{self._settings.router_id}/{self._settings.worker}",
                version=version,
                is_full=is_full,
                come=tuple(entry for entry in sent.values() if entry is not None),
                gone=tuple(key for key, entry in sent.items() if entry is None),
            )
            is_full = False
            messages.append(advertisement.encode())
        joint.send(messages, settled=False)

    # Hearing

    def _receive(self, joint: _Joint, event: DeliveriesReceived) -> None:
        for delivery in event.deliveries:
            try:
                if delivery.more:
                    raise DecodeError(len(delivery.payload), "an advertisement fits a frame")
                advertisement = Advertisement.decode(delivery.payload)
            except DecodeError as error:
                self._stop_receiving(joint, Condition(DECODE_ERROR, str(error)))
                return
            is_next = (
                joint.their_version is not None and advertisement.version == joint.their_version + 1
            )
            if not (advertisement.is_full or is_next):
                reason = f"version {advertisement.version} after {joint.their_version}"
                self._stop_receiving(joint, Condition(ILLEGAL_STATE, reason))
                return
            joint.their_version = advertisement.version
            self._take(joint, advertisement)
        numbers = [delivery.number for delivery in event.deliveries]
        accept = UpdateDeliveries(event.link, numbers, ACCEPTED, settled=True)
        self._turn.order_connection(joint.connection, accept)
        joint.received(len(event.deliveries))

    def _stop_receiving(self, joint: _Joint, reason: Condition) -> None:
        """Detaches the sibling's link, so that it sends a full advertisement again."""
        assert joint.theirs is not None
        self._turn.order_connection(joint.connection, DetachLink(joint.theirs, True, reason))
        self._notices.add("advertisement.refused", container=joint.name, condition=str(reason))
        joint.theirs = None

    def _take(self, joint: _Joint, advertisement: Advertisement) -> None:
        changes: dict[Key, Entry | None] = dict.fromkeys(advertisement.gone)
        if advertisement.is_full:
            changes |= dict.fromkeys(joint.known)
        for entry in advertisement.come:
            if entry.kind == LINK:
                self._lose_link(joint, entry.name)
                continue
            is_loop = self._settings.router_id in entry.routers
            if not is_loop and len(entry.routers) < self._settings.hop_limit:
                changes[entry.key] = entry
        self._learn(joint, changes)

    def _learn(self, joint: _Joint, changes: dict[Key, Entry | None]) -> None:
        """Updates the entries of a sibling and the links that depend on them."""
        containers = set()
        for key, entry in changes.items():
            if joint.known.get(key) == entry:
                continue
            kind, name = key
            if kind in _PATHS:
                _keep(joint.known, key, entry)
                self.on_path(entry, key, joint.name)
                continue
            reach = self._known_by_kind.get(kind)
            if reach is None:
                continue  # a kind of a later version
            ways = reach.setdefault(name, {})
            if entry is None:
                del joint.known[key]
                ways.pop(joint.name, None)
            else:
                joint.known[key] = entry
                ways[joint.name] = entry.amount + SIBLING_COST
            if not ways:
                del reach[name]
            if kind == MADE:
                self._reach.know_maker(name, None if entry is None else entry.maker)
            if kind == CONTAINER:
                containers.add(name)
                if entry is not None and key in self._here and self._yields(joint, key):
                    self.on_taken(name)
            elif kind == IDENTITY:
                continue  # it is asked for when somebody comes
            elif kind in (COUNT, LOAD):
                self._weigh(name, joint.name)
            elif kind == PATTERN:
                self._reconsider_pattern(name)
            else:
                if kind == RECEIVERS:
                    self.on_receivers(name, joint.name, entry is not None)
                self._registry.heard[name] = None
                self._reconsider(self._registry.find(name))
        self._reconsider_containers(containers)

    def _yields(self, joint: _Joint, key: Key) -> bool:
        """Returns whether a container that is here has connected to a sibling since.

        Advertisements that cross leave it to the worker of the higher number.
        """
        is_crossing = key in joint.pending or key in joint.unacknowledged
        return not (is_crossing and f"/{self._settings.worker}" > joint.name)

    def _reconsider(self, node: Node | None) -> None:
        """Records that the set of siblings with receivers of an address has changed."""
        self._uplinks.reconsider(node)
        if node is None or not node.is_dynamic:
            return
        if node.owner is not None:
            self._detacher.review_lifetime(node)
        elif node.key.address not in self._reach.made:
            self._detacher.end_dynamic(node)

    def _weigh(self, address: str, sibling: str) -> None:
        """Updates the number and load of the receivers behind a link to a sibling."""
        node = self._registry.find(address)
        for link in () if node is None else node.outgoing:
            if link.chain is not None or link.connection is None:
                continue
            if link.connection.configured == sibling:
                self._reach.weigh(link, address)
                self._lanes.weighed(link)

    def _reconsider_pattern(self, text: str) -> None:
        self._reach.patterns_changed()
        pattern = parse_pattern(text)
        for node in list(self._registry.nodes.values()):
            if matches(pattern, node.key.address):
                self._uplinks.reconsider(node)

    def _reconsider_containers(self, names: set[str] | frozenset[str]) -> None:
        if not names:
            return
        for node in list(self._registry.nodes.values()):
            ends = (endpoint.container for endpoint in node.route.endpoints)
            if any(end in names for end in ends) or (STORE in names and node.route.store):
                self._uplinks.reconsider(node)


def _ignore(*news: object) -> None:
    """Stands for nobody who wants to know."""


def _keep(known: dict[Key, Entry], key: Key, entry: Entry | None) -> None:
    if entry is None:
        del known[key]
    else:
        known[key] = entry


def _digest_of(key: LinkKey) -> str:
    """Returns a short digest that identifies a link between workers."""
    parts = (key.user or "", key.container, key.name, key.role.value, key.vhost)
    octets = b"".join(_with_size(str(part).encode("utf-8", "surrogateescape")) for part in parts)
    return hashlib.blake2b(octets, digest_size=16).hexdigest()


def _with_size(octets: bytes) -> bytes:
    return len(octets).to_bytes(4, "big") + octets


def _next_of(pending: dict[Key, Entry | None]) -> dict[Key, Entry | None]:
    """Removes and returns the changes that fit the next advertisement, at least one."""
    taken: dict[Key, Entry | None] = {}
    octets = 0
    for key, entry in islice(pending.items(), ENTRIES_MOST):
        routers = () if entry is None else entry.routers
        octets += _ENTRY_OCTETS + sum(len(each.encode()) + 5 for each in (key[1], *routers))
        if taken and octets > ENTRIES_OCTETS:
            break
        taken[key] = entry
    for key in taken:
        del pending[key]
    return taken


def _has_receivers(node: Node) -> bool:
    """Returns whether a node has receivers that are attached to this worker, or suspended."""
    if any(map(_is_receiver, node.outgoing)):
        return True
    links = (each for each in node.returning if isinstance(each, OutgoingLink))
    return any(not (link.is_fallback or link.chain is not None) for link in links)


def _is_receiver(link: OutgoingLink) -> bool:
    """Returns whether a link is one that siblings are told of."""
    connection = link.connection
    is_mesh = link.chain is not None or is_edge(connection)  # edges' addresses are claimed
    return not (link.is_fallback or is_mesh or is_sibling(connection))


def _from_afar(maker: Maker | None) -> Maker | None:
    """Returns the maker of a node in the form for other workers."""
    if maker is None or not maker.is_lone:
        return maker
    return Maker(None, maker.is_open)


def _encode_maker(maker: Maker | None) -> list[object] | None:
    return None if maker is None else [maker.mark, maker.is_open]


def _decode_maker(fields: list[object] | None) -> Maker | None:
    if fields is None:
        return None
    mark, is_open = fields
    return Maker(None if mark is None else str(mark), bool(is_open))
