"""Polling receivers: they grant credit and drain it at once (§2.6.7).

Senders are granted credit only while some receiver has credit, so nothing is queued when a receiver
polls. If its drain were answered at once, it would never get a delivery. Theory of operation: a
*round* gives the senders of a node time to send. Each sender without credit is granted its credit
with the request to use it up or return it; the deliveries that arrive are forwarded meanwhile. The
receivers that have been draining since the round began are answered when all senders have sent or
returned their credit::
receivers that have been draining since the round began are answered when all senders have done so::

    no round ── a receiver drains, and somebody may have something for it ──▶ round
    round ── every sender has answered, or the time is over ──▶ its receivers are answered
                               └── others have begun to drain meanwhile ──▶ the next round

Many clients do not answer drains. For them a round lasts ``SENDERS_SECONDS``; where a container
must answer or attach first, ``CONTAINERS_SECONDS``. Later deliveries wait for the next poll, by the
rule of ``links.credit``. A sender that still has credit could have sent already, and only
containers are asked to return it. When an address has just got its first receiver, the siblings may
not have attached yet, so a receiver's first round always lasts its full time.
Senders to the anonymous terminus always have credit, so their deliveries are already here.
"""

from functools import partial
from typing import Final
from weakref import WeakSet

import attrs

from router.core.alarms import Alarm
from router.core.credit import Granter
from router.core.network import Network
from router.core.node import Direction, Node
from router.core.reach import is_sibling
from router.core.state import State
from router.core.uplinks import Uplinks
from router.links.link import IncomingLink, OutgoingLink
from router.model.commands import ReturnCredit
from router.model.terminus import Role

SENDERS_SECONDS: Final = 0.1
"""Time for sending clients: longer than a nearby client needs, and a short wait for the poller."""

CONTAINERS_SECONDS: Final = 1.0
"""The same for containers, which may be remote, and answer drains."""


@attrs.define(eq=False)
class _Round:
    """The time given to a node's senders.

    Attributes:
        receivers: receivers that are answered at its end.
        until: when its time ends.
        lasts: answers do not end it earlier.
        alarm: runs at its end.
        asked: senders that have been granted credit, or asked to return it.
    """

    receivers: set[OutgoingLink]
    until: float
    lasts: bool
    alarm: Alarm | None = None
    asked: set[IncomingLink] = attrs.field(factory=set)


class Polls:
    """Answers receivers that drain."""

    def __init__(self, state: State, granter: Granter, uplinks: Uplinks, network: Network) -> None:
        self._turn = state.turn
        self._alarms = state.alarms
        self._registry = state.registry
        self._granter = granter
        self._uplinks = uplinks
        self._network = network
        self._rounds: dict[Node, _Round] = {}
        self._known: WeakSet[OutgoingLink] = WeakSet()

    def take_newcomers(self) -> None:
        """Touches nodes with a round that have new senders; call before ``review``."""
        for node in self._rounds:
            if node in self._registry.fed:
                self._turn.touch(node)

    def review(self, node: Node) -> None:
        """Answers draining receivers of a node, after everything that can be sent has been."""
        draining = [link for link in node.outgoing if link.is_draining]
        if not draining and node not in self._rounds:
            return
        for link in draining:
            if link.credit <= 0:
                self._answer(link)
        waiting = {link for link in draining if link.is_draining and not _is_busy(node, link)}
        current = self._rounds.get(node)
        if current is not None:
            if not self._is_over(node, current):
                return
            self._end(node, current)
            for link in waiting & current.receivers:
                self._answer(link)
            waiting -= current.receivers
        if waiting:
            self._begin(node, waiting)

    def _begin(self, node: Node, receivers: set[OutgoingLink]) -> None:
        current = _Round(receivers, self._turn.now, self._is_first(node, receivers))
        if not (node.is_paused or self._granter.is_draining):
            self._ask(node, current)
            is_far = self._is_attaching(node) or any(map(_is_exact, current.asked))
            current.until += CONTAINERS_SECONDS if is_far else SENDERS_SECONDS
        if self._is_over(node, current):
            for link in receivers:
                self._answer(link)
            return
        self._rounds[node] = current
        current.alarm = self._alarms.set(current.until, partial(self._time_is_over, node))

    def _time_is_over(self, node: Node) -> None:
        self._turn.touch(node)

    def _end(self, node: Node, current: _Round) -> None:
        self._alarms.cancel(current.alarm)
        del self._rounds[node]

    def _is_over(self, node: Node, current: _Round) -> bool:
        """Returns whether no sender is awaited; senders that are new are asked first."""
        if self._turn.now >= current.until:
            return True
        self._ask(node, current)
        is_awaited = any(each.is_emptying and each in node.feeds for each in current.asked)
        return not (current.lasts or is_awaited or self._is_attaching(node))

    def _ask(self, node: Node, current: _Round) -> None:
        for incoming in node.feeds:
            if incoming in current.asked or (incoming.credit > 0 and not _is_exact(incoming)):
                continue
            if self._granter.ask(incoming):
                current.asked.add(incoming)
                current.lasts |= not incoming.is_emptying  # it does not answer

    def _is_attaching(self, node: Node) -> bool:
        return self._uplinks.is_attaching(node, Role.RECEIVER)

    def _is_first(self, node: Node, receivers: set[OutgoingLink]) -> bool:
        """Returns whether a receiver is so new that siblings may not have attached for it yet."""
        if node.key.direction is not Direction.MEETING or not self._network.has_siblings:
            return False
        newcomers = [link for link in receivers if link not in self._known]
        self._known.update(newcomers)
        return any(not is_sibling(link.connection) for link in newcomers)

    def _answer(self, link: OutgoingLink) -> None:
        assert link.link is not None, "it is attached"
        link.return_credit()
        self._turn.order(link, ReturnCredit(link.link))


def _is_exact(incoming: IncomingLink) -> bool:
    """Returns whether a sender is a container, which answers drains."""
    connection = incoming.connection
    if connection is None or connection.configured is None or is_sibling(connection):
        return False
    return connection.capabilities.drains


def _is_busy(node: Node, link: OutgoingLink) -> bool:
    """Returns whether a delivery waits that a link with credit cannot be sent for now."""
    is_congested = link.connection is not None and link.connection.is_congested
    return bool(node.rotation) and link.credit > 0 and (is_congested or link.partial is not None)
