"""Receivers of a multicast, and dynamic nodes, are answered when all workers know of them.

A receiver that is attached expects every message sent from then on, by any sender at any worker. So
its attach waits: the address is *claimed*, which is advertised to the siblings (``network``). When
each of them has acknowledged that, the attach and the link's later events are handled. A sibling
that knows of a receiver sends no multicast past it (``Node.pending``).

    attach -- all workers know -------------------------> handled at once
        | no: claimed
        v
     waiting -- acknowledged, a sibling gone, or TIME --> handled

Where deliveries are balanced no attach waits: a delivery that one receiver misses goes to another.

A dynamic node (§3.5.10; a server-named queue of 0-9-1) has one worker, and its name is told to
others as soon as its maker has it: in a request, for example, that a service at another worker
answers at once. So its attach waits as well. The name is chosen before; until the attach is
answered nobody knows it, so nothing comes for it before the node is there.
"""

from collections.abc import Iterator
from functools import partial
from typing import Final

import attrs

from router.core.alarms import Alarm
from router.core.attach import Attacher, Place, maker_of
from router.core.network import MADE, PATIENCE_SECONDS, RECEIVERS, Key, Network
from router.core.node import Direction
from router.core.policy import Operation
from router.core.reach import is_sibling
from router.core.state import State
from router.links.link import Connection
from router.model.events import Event, LinkAttached
from router.model.identity import LinkId
from router.model.terminus import Role, Source, Target
from router.model.text import is_text
from router.routes.route import Distribution, Guarantee

_NO_LINK: Final = LinkId(-1)


@attrs.define(eq=False)
class _Waiting:
    """A link whose attach waits.

    Attributes:
        address: the internal address that is claimed for it.
        keys: what siblings have to know.
        events: its attach, and its later events.
        alarm: ends the wait for siblings.
    """

    connection: Connection
    address: str
    keys: tuple[Key, ...]
    events: list[Event]
    alarm: Alarm

    @property
    def is_made(self) -> bool:
        """Whether the address is that of a dynamic node."""
        return len(self.keys) > 1


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
        if not self._network.has_siblings or is_sibling(connection):
            return False
        address, keys = self._claim(connection, event)
        if address is None:
            return False
        at = self._turn.now + PATIENCE_SECONDS
        alarm = self._alarms.set(at, partial(self._lose_patience, event.link))
        self._waiting[event.link] = _Waiting(connection, address, keys, [event], alarm)
        return True

    def _claim(
        self, connection: Connection, event: LinkAttached
    ) -> tuple[str | None, tuple[Key, ...]]:
        """Claims the address that siblings have to know before an attach; None: there is none."""
        address = self._made_for(connection, event)
        if address is not None:
            self._network.claim_made(address, maker_of(connection, event))
            return address, ((RECEIVERS, address), (MADE, address))
        address = self._address_of(connection, event)
        if address is None or self._network.is_known((RECEIVERS, address)):
            return None, ()
        self._network.claim((RECEIVERS, address))
        return address, ((RECEIVERS, address),)

    def _made_for(self, connection: Connection, event: LinkAttached) -> str | None:
        """Chooses the address of the dynamic node that an attach asks for, if it may have one."""
        is_receiver = event.role is Role.SENDER
        terminus = event.source if is_receiver else event.target
        if not isinstance(terminus, Source | Target) or not terminus.dynamic:
            return None
        operation = Operation.RECEIVE if is_receiver else Operation.SEND
        place = self._attacher.enter(connection, None, operation, dynamic=True)
        if not isinstance(place, Place) or not is_text(place.key.address):
            return None  # it is refused at once, or siblings cannot be told of it
        self._attacher.chosen[event.link] = place, {}
        return place.key.address

    def take_ready(self) -> Iterator[tuple[Connection, Event]]:
        """Yields and removes the events that need not wait any longer, in order."""
        if not self._waiting:
            return
        for link, waiting in list(self._waiting.items()):
            is_late = waiting.alarm.action is None
            is_known = all(self._network.is_known(key) for key in waiting.keys)
            if waiting.connection.is_gone or is_late or is_known:
                del self._waiting[link]
                self._alarms.cancel(waiting.alarm)
                for event in waiting.events:
                    yield waiting.connection, event
                if waiting.is_made:
                    self._attacher.chosen.pop(link, None)
                    self._network.unclaim_made(waiting.address)
                else:
                    self._network.unclaim((RECEIVERS, waiting.address))

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
