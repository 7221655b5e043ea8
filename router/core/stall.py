"""Stalls: addresses where deliveries or senders wait and nothing moves.

An address *waits* while deliveries are queued or unsettled at it, or a sender without credit is
attached. (Not a container from which the router pulls, while nobody receives here, or at the
container to which the route leads: it is not known whether it has anything to send.) It *moves*
when a delivery, a part of one, or an outcome is received or sent. Waiting without moving for the
route's ``stall_seconds`` is a stall; routes paused by an operator never stall. There are no timers:
each survey of the core examines every address, so a stall is found at most one survey late.
"""

import attrs

from router.core.node import Node
from router.core.snapshot import Stall
from router.core.uplink import Step, Uplink
from router.links.link import Tally
from router.model.condition import NO_REASON
from router.model.terminus import Role

_NAMES_MOST = 3


@attrs.define(eq=False)
class NodeSum:
    """A survey's sums for one address.

    Attributes:
        moved: grows when anything moves.
        blocked: senders that have no credit.
        pulled: of these, containers from which we pull.
        vacant: of the receivers, containers of the route that have no receiver yet.
        is_bridge: the route pulls from containers and leads to others.
        unsettled: deliveries received whose sender has no outcome yet.
        sent_unsettled: deliveries sent without an outcome from the receiver.
        partial: container-ids of senders with an unfinished delivery.
    """

    moved: int = 0
    senders: int = 0
    receivers: int = 0
    blocked: int = 0
    pulled: int = 0
    vacant: int = 0
    is_bridge: bool = False
    queued: int = 0
    unsettled: int = 0
    sent_unsettled: int = 0
    outgoing_credit: int = 0
    partial: list[str] = attrs.field(factory=list)

    @property
    def is_waiting(self) -> bool:
        """Whether the address waits."""
        return bool(self.queued or self.unsettled or self.sent_unsettled or self.waiting_senders)

    @property
    def waiting_deliveries(self) -> int:
        """How many deliveries wait; 0: senders do."""
        return max(self.queued, self.unsettled) or self.sent_unsettled

    @property
    def waiting_senders(self) -> int:
        """How many senders wait for credit."""
        is_away = self.is_bridge and not self.receivers  # that is a stall of its own
        is_vacant = self.receivers == self.vacant and not is_away
        return self.blocked - self.pulled if is_vacant else self.blocked


@attrs.define(eq=False)
class _Watched:
    moved: int
    since: float


class StallWatch:
    """Keeps from survey to survey when each waiting address last moved."""

    def __init__(self) -> None:
        self._before: dict[Node, _Watched] = {}
        self._seen: dict[Node, _Watched] = {}

    def begin(self) -> None:
        """Begins a survey; addresses that it does not visit are forgotten."""
        self._before, self._seen = self._seen, {}

    def look(self, node: Node, found: NodeSum, now: float) -> float | None:
        """Examines one address; returns how long it has stalled in seconds; None: it has not."""
        if not found.is_waiting or node.is_paused:
            return None
        watched = self._before.get(node)
        if watched is None or watched.moved != found.moved:
            watched = _Watched(found.moved, now)
        self._seen[node] = watched
        seconds = now - watched.since
        return seconds if seconds >= node.route.stall_seconds else None


def movement(tally: Tally) -> int:
    """Returns a number that grows with every movement on a link."""
    return (
        tally.deliveries
        + tally.octets
        + tally.accepted
        + tally.rejected
        + tally.released
        + tally.modified
        + tally.expired
        + tally.dropped
    )


def describe(node: Node, found: NodeSum, seconds: float, uplinks: list[Uplink]) -> Stall:
    """Returns what is known of a stall."""
    reason = f"{_who_waits(found)}: {_why(node, found, uplinks)}"
    return Stall(
        address=node.key.address,
        seconds=seconds,
        reason=reason,
        deliveries=found.waiting_deliveries,
    )


def _who_waits(found: NodeSum) -> str:
    waiting, senders = found.waiting_deliveries, found.waiting_senders
    if waiting:
        return "1 delivery waits" if waiting == 1 else f"{waiting} deliveries wait"
    return "1 sender waits" if senders == 1 else f"{senders} senders wait"


def _why(node: Node, found: NodeSum, uplinks: list[Uplink]) -> str:
    if not found.receivers:
        troubles = [_trouble(each) for each in uplinks if each.role is Role.SENDER]
        return "; ".join(trouble for trouble in troubles if trouble) or "nobody receives from it"
    congested = [link for link in node.outgoing if link.connection and link.connection.is_congested]
    if len(congested) == found.receivers:
        return f"{_names(node)} reads nothing from its connection"
    full = [link for link in node.feeds if 0 < link.unsettled_limit <= len(link.unsettled)]
    if full and not found.queued:
        names = ", ".join(dict.fromkeys(str(link.key.container) for link in full[:_NAMES_MOST]))
        limit = full[0].unsettled_limit
        return f"{names} has {limit} unsettled deliveries, its limit (unsettled_per_link)"
    if not found.outgoing_credit:
        unsettled = found.sent_unsettled
        holds = f" while it owes {unsettled} outcomes" if unsettled else ""
        return f"{_names(node)} gives no credit{holds}"
    if found.partial:
        return f"{found.partial[0]} has begun a delivery and does not end it"
    if any(link.is_over or (link.connection and link.connection.is_held) for link in node.feeds):
        return "the octet budget is spent (limits.connection_octets, limits.process_octets)"
    if found.sent_unsettled:
        return f"{_names(node)} does not answer"
    return "the cause is not known here"


def _trouble(uplink: Uplink) -> str | None:
    match uplink.step:
        case Step.AWAY:
            return f"container {uplink.container} is not connected"
        case Step.ATTACHING:
            return f"{uplink.container} does not answer the attach of {uplink.address}"
        case Step.PAUSED:
            error = NO_REASON if uplink.error is None else str(uplink.error)
            return f"{uplink.container} has ended the link to {uplink.address}: {error}"
        case _:
            return None


def _names(node: Node) -> str:
    """Returns the container-ids of the receivers."""
    names = list(dict.fromkeys(str(link.key.container) for link in node.outgoing))
    shown = ", ".join(names[:_NAMES_MOST])
    more = len(names) - _NAMES_MOST
    return f"{shown} and {more} more" if more > 0 else shown
