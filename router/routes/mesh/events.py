"""What a shell tells the machines of a mesh, and what they order."""

from collections.abc import Mapping
from typing import TypeAlias

import attrs

from router.routes.mesh.nouns import Message, RouterId
from router.routes.mesh.policy import Policy

# Events


@attrs.frozen
class NeighborConnected:
    """A connection to another router of the mesh is open; replaces an earlier one.

    Attributes:
        neighbor: its id, authenticated.
    """

    neighbor: RouterId


@attrs.frozen
class NeighborLost:
    """The connection is gone."""

    neighbor: RouterId


@attrs.frozen
class MessageReceived:
    """A neighbor has sent a message; ``messages.read_message`` made it of octets."""

    neighbor: RouterId
    message: Message


@attrs.frozen
class MessageBroken:
    """A neighbor has sent what is no message.

    Attributes:
        neighbor: who.
        rule: the broken rule, naming the field.
    """

    neighbor: RouterId
    rule: str


@attrs.frozen
class AddressAttached:
    """An address has a receiver at this site.

    Attributes:
        address: the address.
        place: the sibling where, as in ``core.reach.sibling_name``; empty: this worker.
        load: unsettled deliveries there.
    """

    address: str
    place: str = ""
    load: int = 0


@attrs.frozen
class AddressDetached:
    """An address has no receiver at a place any more."""

    address: str
    place: str = ""


@attrs.frozen
class LoadTold:
    """An egress has told its load for an address, as asked by this ingress."""

    egress: RouterId
    address: str
    load: int


@attrs.frozen
class LinkHeldAt:
    """The connection to a neighbor is at a worker.

    Attributes:
        neighbor: which.
        place: the sibling; empty: this worker.
    """

    neighbor: RouterId
    place: str = ""


@attrs.frozen
class Reconfigured:
    """The configuration has changed.

    Attributes:
        costs: neighbor → cost.
        advertise: patterns that this site serves.
        policy: what others may advertise.
        uplinks: of an edge: its hubs, the preferred one first.
    """

    costs: Mapping[RouterId, int]
    advertise: tuple[str, ...]
    policy: Policy
    uplinks: tuple[RouterId, ...] = ()


Event: TypeAlias = (
    NeighborConnected
    | NeighborLost
    | MessageReceived
    | MessageBroken
    | AddressAttached
    | AddressDetached
    | LoadTold
    | LinkHeldAt
    | Reconfigured
)


# Orders


@attrs.frozen
class SendMessage:
    """Send a message to a neighbor."""

    neighbor: RouterId
    message: Message


@attrs.frozen
class CloseConnection:
    """Close the connection to a neighbor, after what was sent before.

    Attributes:
        neighbor: which.
        reason: for the log, and for the peer.
    """

    neighbor: RouterId
    reason: str


@attrs.frozen
class LinkChanged:
    """A link to a neighbor has come up, or gone down; for the log."""

    neighbor: RouterId
    is_up: bool
    reason: str


@attrs.frozen
class RouterRefused:
    """A router broke a rule; what it said is not used. For the log, at most one a minute for each.

    Attributes:
        router: who broke it.
        via: the neighbor that handed it on; equal to ``router`` if it was the neighbor itself.
        rule: the rule, with what broke it.
        times: how often since this was last reported.
    """

    router: RouterId
    via: RouterId
    rule: str
    times: int


@attrs.frozen
class AddressKept:
    """A single address is not announced: other sites do not find it.

    Attributes:
        address: the address.
        rule: the bound, and what to do about it.
    """

    address: str
    rule: str


@attrs.frozen
class PathsChanged:
    """Answers of ``Paths`` may differ from now on.

    Attributes:
        topology: counts own trees; caches of other trees are void when it rises.
    """

    topology: int


@attrs.frozen
class EdgeServes:
    """An edge of this router has got receivers of an address, or has none any more.

    Attributes:
        edge: its id.
        address: the address.
        is_served: it has receivers.
    """

    edge: RouterId
    address: str
    is_served: bool


@attrs.frozen
class TreeReady:
    """The tree of an origin, asked for by ``Paths.branches``, is there."""

    origin: RouterId


@attrs.frozen
class EpochRaised:
    """The mesh knows entries of this router from a later epoch; make the new one durable."""

    epoch: int


Order: TypeAlias = (
    SendMessage
    | CloseConnection
    | LinkChanged
    | RouterRefused
    | AddressKept
    | PathsChanged
    | EdgeServes
    | TreeReady
    | EpochRaised
)
