"""A receiver of a multicast is attached when all workers know of it.

A receiver that is attached expects every message sent from then on, by any sender at any worker. So
its attach waits: the address is *claimed*, which is advertised to the siblings (``network``). When
each of them has acknowledged that, the attach and the link's later events are handled. A sibling
that knows of a receiver sends no multicast past it (``Node.pending``).

    attach -- all workers know -------------------------> handled at once
        | no: claimed
        v
     waiting -- acknowledged, a sibling gone, or TIME --> handled

Where deliveries are balanced no attach waits: a delivery that one receiver misses goes to another.
"""

from collections.abc import Iterator
from functools import partial
from typing import Final

import attrs

from router.core.alarms import Alarm
from router.core.attach import Attacher, Place
from router.core.network import PATIENCE_SECONDS, RECEIVERS, Network
from router.core.node import Direction
from router.core.policy import Operation
from router.core.reach import is_sibling
from router.core.state import State
from router.links.link import Connection
from router.model.events import Event, LinkAttached
from router.model.identity import LinkId
from router.model.terminus import Role
from router.routes.route import Distribution, Guarantee

_NO_LINK: Final = LinkId(-1)


@attrs.define(eq=False)
class _Waiting:
    """A link whose attach waits.

    Attributes:
        address: the internal address that is claimed for it.
        events: its attach, and its later events.
        alarm: ends the wait for siblings.
    """

    connection: Connection
    address: str
    events: list[Event]
    alarm: Alarm


class Announcer:
    """Delays attaching receivers until all siblings know of them."""

    def __init__(self, state: State, network: Network, attacher: Attacher) -> None:
        self._turn = state.turn
        self._alarms = state.alarms
        self._notices = state.notices
        self._network = network
        self._attacher = attacher
        self._waiting: dict[LinkId, _Waiting] = {}

    def holds(self, connection: Connection, event: Event) -> bool:
        """Keeps an event that has to wait and returns True; False: handle the event now."""
        if self._waiting:
            waiting = self._waiting.get(getattr(event, "link", _NO_LINK))
            if waiting is not None:
                waiting.events.append(event)
                return True
        if not isinstance(event, LinkAttached) or event.is_answer:
            return False
        address = self._address_of(connection, event)
        if address is None or self._network.is_known((RECEIVERS, address)):
            return False
        self._network.claim((RECEIVERS, address))
        at = self._turn.now + PATIENCE_SECONDS
        alarm = self._alarms.set(at, partial(self._lose_patience, event.link))
        self._waiting[event.link] = _Waiting(connection, address, [event], alarm)
        return True

    def take_ready(self) -> Iterator[tuple[Connection, Event]]:
        """Yields and removes the events that need not wait any longer, in order."""
        if not self._waiting:
            return
        for link, waiting in list(self._waiting.items()):
            is_late = waiting.alarm.action is None
            key = (RECEIVERS, waiting.address)
            if waiting.connection.is_gone or is_late or self._network.is_known(key):
                del self._waiting[link]
                self._alarms.cancel(waiting.alarm)
                for event in waiting.events:
                    yield waiting.connection, event
                self._network.unclaim(key)

    def _address_of(self, connection: Connection, event: LinkAttached) -> str | None:
        """Returns the address of a receiver that has to wait; None: the link need not wait."""
        source = event.source
        is_named = source is not None and source.address is not None and not source.dynamic
        if event.role is not Role.SENDER or not is_named or is_sibling(connection):
            return None
        assert source is not None
        place = self._attacher.enter(connection, source.address, Operation.RECEIVE)
        if (
            isinstance(place, Place)
            and place.key.direction is Direction.MEETING
            and place.route.distribution is Distribution.MULTICAST
            and not (connection.guest is not None and self._is_kept_here(place))
        ):
            return place.key.address
        return None

    @staticmethod
    def _is_kept_here(place: Place) -> bool:
        """Returns whether all senders to an address are on this worker, its home."""
        return place.route.guarantee is Guarantee.EXACTLY_ONCE

    def _lose_patience(self, link: LinkId) -> None:
        """Ends the wait for slow siblings; ``take_ready`` checks whether the alarm has run."""
        waiting = self._waiting[link]
        self._notices.add(
            "advertisement.unacknowledged",
            container=waiting.connection.container,
            address=waiting.address,
            seconds=PATIENCE_SECONDS,
        )
