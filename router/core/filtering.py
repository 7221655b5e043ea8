"""Filters of clients that receive from containers: the container applies them, and says so.

A receiver whose source has filters (§3.5.8), on a route that only leads to containers, gets a node
and links of its own: nobody else is meant to get what the filters let through. The client is
answered when the containers have answered, with those filters that all of them apply. What a
container refuses is refused to the client, for the container's reason.

    attach with filters -- an uplink with these filters is attached --> answered
            |               refused by a container, or TIME         --> refused
            v
         waiting -- the client leaves --> forgotten, and the uplink is detached

Events of the link wait meanwhile. A waiting receiver is looked at when the state of one of its
uplinks has changed (``Registry.sought``), so that many of them cost a turn nothing. Routes of
other kinds, exactly-once routes (whose links outlive their connections) and containers of other
protocols apply no filters; there the attach is answered at once, without them.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Final

import attrs

from router.core.alarms import Alarm
from router.core.attach import Attacher, Place
from router.core.node import Direction, Node, NodeKey
from router.core.policy import Operation
from router.core.state import State
from router.core.uplink import Step
from router.core.uplinks import Uplinks
from router.links.link import Connection, IncomingLink, OutgoingLink
from router.model.condition import NOT_FOUND, RESOURCE_LIMIT_EXCEEDED, Condition
from router.model.events import CreditGranted, Event, LinkAttached, LinkDetached, SessionEnded
from router.model.identity import LinkId
from router.model.terminus import Role
from router.routes.route import Guarantee
from router.wire.v1_0.types import encode_value

MOST_OCTETS: Final = 4096
"""Largest encoded filter set that is passed on: an attach with it fits the frames of known peers,
and one that does not would end the container's connection."""

_NO_LINK: Final = LinkId(-1)


@attrs.define(eq=False)
class _Waiting:
    """A receiver whose attach waits for containers.

    Attributes:
        events: its attach, and its later events.
        alarm: ends the wait; None: it does not end by time.
    """

    connection: Connection
    attach: LinkAttached
    node: Node
    events: list[Event]
    alarm: Alarm | None

    @property
    def is_late(self) -> bool:
        """Whether the alarm has run."""
        return self.alarm is not None and self.alarm.action is None

    def keep(self, event: Event) -> None:
        """Keeps a later event; of several grants of credit in a row only the last one counts."""
        last = self.events[-1]
        if isinstance(event, CreditGranted) and isinstance(last, CreditGranted):
            self.events[-1] = event
        else:
            self.events.append(event)


class Filtering:
    """Delays attaching receivers with filters until the containers have answered."""

    def __init__(
        self, state: State, uplinks: Uplinks, attacher: Attacher, make_token: Callable[[], str]
    ) -> None:
        self._turn = state.turn
        self._alarms = state.alarms
        self._registry = state.registry
        self._uplinks = uplinks
        self._attacher = attacher
        self._make_token = make_token
        self._waiting: dict[LinkId, _Waiting] = {}
        self._of_node: dict[Node, LinkId] = {}

    def holds(self, connection: Connection, event: Event) -> bool:
        """Keeps an event that has to wait and returns True; False: handle the event now."""
        if self._waiting:
            if isinstance(event, SessionEnded):
                self._forget_session(connection, event)
            waiting = self._waiting.get(getattr(event, "link", _NO_LINK))
            if waiting is not None:
                if isinstance(event, LinkDetached):
                    self._refuse(event.link, Condition(NOT_FOUND, "detached while it waited"))
                else:
                    waiting.keep(event)
                return True
        if not isinstance(event, LinkAttached) or event.is_answer:
            return False
        place = self._place_of(connection, event)
        if place is None:
            return False
        too_large = _find_excess(event)
        if too_large is not None:
            self._attacher.refuse(connection, event, too_large)
        else:
            self._begin(connection, event, place)
        return True

    def connection_lost(self, connection: Connection) -> None:
        """Forgets the receivers of a connection that has ended."""
        for link, waiting in list(self._waiting.items()):
            if waiting.connection is connection:
                self._forget(link)

    def review(self) -> None:
        """Records that other routes are in force."""
        self._registry.sought.update(dict.fromkeys(self._of_node))

    def take_ready(self) -> Iterator[tuple[Connection, Event]]:
        """Yields and removes the events that need not wait any longer, in order."""
        if not self._waiting:
            return
        nodes, self._registry.sought = self._registry.sought, {}
        for link in [self._of_node[node] for node in nodes if node in self._of_node]:
            yield from self._look_at(link, self._waiting[link])

    def _look_at(self, link: LinkId, waiting: _Waiting) -> Iterator[tuple[Connection, Event]]:
        """Ends a receiver's wait if it can be answered, or has to be refused."""
        uplinks = self._uplinks.of(waiting.node)
        refused = next((each for each in uplinks if each.step is Step.PAUSED), None)
        place = self._place_of(waiting.connection, waiting.attach)
        if place is None and self._applies_none(waiting.node):
            self._forget(link)
            yield from ((waiting.connection, event) for event in waiting.events)
        elif place is None or not uplinks:
            self._refuse(link, Condition(NOT_FOUND, "the route has changed"))
        elif refused is not None:
            reason = refused.error or Condition(NOT_FOUND, "the container refuses the link")
            self._refuse(link, reason)
        elif all(each.step is Step.ATTACHED for each in uplinks):
            yield from self._complete(link, waiting, place)
        elif waiting.is_late:
            away = next(each.container for each in uplinks if each.step is not Step.ATTACHED)
            self._refuse(link, Condition(NOT_FOUND, f"'{away}' is not connected"))

    def _applies_none(self, node: Node) -> bool:
        """Returns whether a container that has come meanwhile has no filters at all."""
        return not all(self._uplinks.may_filter(end.container) for end in node.route.to)

    def _place_of(self, connection: Connection, event: LinkAttached) -> Place | None:
        """Returns the place of a receiver whose filters go to containers; None: it does not wait.

        An attach that resumes a link gets what that link has.
        """
        source = event.source
        if source is None or not source.filters or event.role is not Role.SENDER:
            return None
        if source.dynamic or source.address is None:
            return None
        place = self._attacher.enter(connection, source.address, Operation.RECEIVE)
        if not isinstance(place, Place) or place.key.direction is not Direction.PULL:
            return None
        if place.route.guarantee is Guarantee.EXACTLY_ONCE:
            return None
        containers = [endpoint.container for endpoint in place.route.to]
        if not all(self._uplinks.may_filter(container) for container in containers):
            return None
        key = self._attacher.key_of(connection, event)
        for link in self._registry.kept(key):
            node = self._registry.node_of(link) if isinstance(link, OutgoingLink) else None
            if node is not None and node.filters == source.filters:
                return None
        return place

    def _begin(self, connection: Connection, event: LinkAttached, place: Place) -> None:
        assert event.source is not None
        self._attacher.end_older(self._attacher.key_of(connection, event))
        key = NodeKey(place.key.address, Direction.PULL, reader=self._make_token())
        node = self._registry.node(key, place.route, place.match)
        node.filters = event.source.filters
        node.is_sought = True
        self._uplinks.used(node)
        waits = [self._uplinks.failover_seconds(each) for each in self._uplinks.of(node)]
        alarm = None
        seconds = [each for each in waits if each is not None]
        if len(seconds) == len(waits):
            at = self._turn.now + max(seconds, default=0.0)
            alarm = self._alarms.set(at, partial(self._registry.seek, node))
        self._waiting[event.link] = _Waiting(connection, event, node, [event], alarm)
        self._of_node[node] = event.link
        self._registry.seek(node)

    def _complete(
        self, link: LinkId, waiting: _Waiting, place: Place
    ) -> Iterator[tuple[Connection, Event]]:
        """Has the attach answered with the filters that are in place."""
        node = waiting.node
        del self._waiting[link], self._of_node[node]
        self._alarms.cancel(waiting.alarm)
        node.is_sought = False
        chosen = attrs.evolve(place, key=node.key)
        self._attacher.chosen[link] = chosen, self._applied(node)
        for event in waiting.events:
            yield waiting.connection, event
        if not node.outgoing:  # the attach was refused after all
            self._end(node)

    def _applied(self, node: Node) -> Mapping[object, object]:
        """Returns those of a node's filters that all its containers apply, as they say."""
        answers: list[Mapping[object, object]] = []
        for uplink in self._uplinks.of(node):
            source = uplink.link.source if isinstance(uplink.link, IncomingLink) else None
            answers.append({} if source is None or source.filters is None else source.filters)
        first = answers[0] if answers else {}
        asked = node.filters or {}
        return {
            name: value
            for name, value in first.items()
            if name in asked and all(name in answer for answer in answers)
        }

    def _forget_session(self, connection: Connection, event: SessionEnded) -> None:
        for link, waiting in list(self._waiting.items()):
            if waiting.connection is connection and waiting.attach.session == event.session:
                self._refuse(link, Condition(NOT_FOUND, "its session has ended"))

    def _refuse(self, link: LinkId, reason: Condition) -> None:
        waiting = self._waiting[link]
        self._forget(link)
        self._attacher.refuse(waiting.connection, waiting.attach, reason)

    def _forget(self, link: LinkId) -> None:
        waiting = self._waiting.pop(link)
        del self._of_node[waiting.node]
        self._alarms.cancel(waiting.alarm)
        self._end(waiting.node)

    def _end(self, node: Node) -> None:
        node.is_sought = False
        self._uplinks.remove(node)
        self._registry.prune(node)


def _find_excess(event: LinkAttached) -> Condition | None:
    """Returns why filters are refused that a container's frame could not hold (§2.7.1)."""
    filters = None if event.source is None else event.source.filters
    octets = len(encode_value(filters))
    if octets <= MOST_OCTETS:
        return None
    reason = f"the filters have {octets} octets; at most {MOST_OCTETS} are passed on"
    return Condition(RESOURCE_LIMIT_EXCEEDED, reason)
