"""Links that their container has sent elsewhere (``amqp:link:redirect``, §2.8.18).

Theory of operation. A container that detaches, or refuses, one of our links with a redirect names
another address, another place, or both. The link is attached there at once, within the container's
policy, while all others stay. Where it is attached then is its *spot*: a connection and an address.

    redirect -- policy, or the chain so far, forbids it --> logged; as after any other end
                another address alone                   --> attached on the same connection
                a place that the container is found at  --> attached on that connection
                another place                           --> wanted (``Redirects.places``) until its
                                                            connection opens

The shell dials what is wanted, once: a connection of the name ``CONTAINER@HOST:PORT``, shared by
all links that are sent there. When it cannot be dialed or ends, or detaches the link for any other
reason, the link returns to its container after a pause, which grows with each failure, and may be
redirected again. When the last link has left, the place is wanted no longer.

The chain of redirects is bounded (``links/trail``); it begins anew when a link returns to its
container, or has been attached as long as the longest pause.
"""

from collections.abc import Callable
from typing import Final

from router.core.reach import is_sibling_name
from router.core.settings import container_of
from router.core.state import State
from router.core.uplink import Uplink
from router.links.trail import RefusedDiversionError, Trail
from router.model.condition import LINK_REDIRECT, Condition
from router.model.place import Alternative
from router.wire.alternatives import UnfitAlternativeError, read_link_redirect

PLACES_MOST: Final = 16
"""As many other places of one container are connected at the same time. A cluster has fewer."""

Divert = Callable[[str, Alternative], str]
"""Returns the name of the connection to a place that is named on the connection of a name.

Raises ``RefusedDiversionError``: policy forbids it.
"""


def _divert_nothing(connection: str, other: Alternative) -> str:
    raise RefusedDiversionError("other places are not dialed")


def _ignore() -> None:
    """Awakens nothing."""


class Redirects:
    """Knows which links are elsewhere.

    Attributes:
        places: names of the connections that links wait for or use, beside those of containers.
        divert: answers for policy.
        awaken: called when ``places`` has changed.
    """

    def __init__(self, state: State) -> None:
        self._turn = state.turn
        self._notices = state.notices
        self.places: dict[str, set[Uplink]] = {}
        self.divert: Divert = _divert_nothing
        self.awaken: Callable[[], None] = _ignore

    def follow(self, uplink: Uplink, condition: Condition | None) -> bool:
        """Moves a link to where its end leads; returns whether its end is a redirect to follow."""
        if condition is None or condition.name != LINK_REDIRECT:
            return False
        if is_sibling_name(uplink.container) or uplink.roams:
            return False  # who is attached to the container follows it
        try:
            spot = self._read(uplink, condition)
            trail = Trail(uplink.trail or (uplink.where,)).onward("/".join(spot))
        except (RefusedDiversionError, UnfitAlternativeError) as error:
            self._notices.warn(
                "link.redirect_refused",
                container=uplink.connection,
                link=uplink.name,
                address=uplink.address_there,
                reason=str(error),
            )
            return False
        self._notices.add(
            "link.redirected",
            container=uplink.connection,
            link=uplink.name,
            address=uplink.address_there,
            to="/".join(spot),
            hops=len(trail.visited) - 1,
            reason=str(condition),
        )
        self.leave(uplink)
        uplink.connection, uplink.address_there = spot
        uplink.trail = trail.visited
        if uplink.is_elsewhere:
            self._use(uplink)
        return True

    def _read(self, uplink: Uplink, condition: Condition) -> tuple[str, str]:
        """Returns the connection and the address to which a redirect leads.

        Raises:
            RefusedDiversionError: policy forbids it.
            UnfitAlternativeError: it names nothing that could be attached to.
        """
        other, address = read_link_redirect(condition.info)
        if address is not None and uplink.names is not None:
            raise RefusedDiversionError("the link carries deliveries of many addresses")
        connection = uplink.connection if other is None else self.divert(uplink.connection, other)
        container = uplink.container
        others = self.places.keys() | {connection} - {container}
        if sum(container_of(each) == container for each in others) > PLACES_MOST:
            raise RefusedDiversionError(f"{PLACES_MOST} other places of it are connected already")
        return connection, uplink.address_there if address is None else address

    def stood(self, uplink: Uplink) -> None:
        """Records that a link was attached so long that a new chain begins where it is."""
        uplink.trail = (uplink.where,) if uplink.trail else ()

    def leave(self, uplink: Uplink) -> None:
        """Has a link return to its container; it is detached."""
        users = self.places.get(uplink.connection)
        if users is not None and uplink in users:
            users.remove(uplink)
            if not users:
                del self.places[uplink.connection]
                self.awaken()
        uplink.connection, uplink.address_there = uplink.container, uplink.address
        uplink.trail = ()

    def _use(self, uplink: Uplink) -> None:
        users = self.places.get(uplink.connection)
        if users is None:
            users = self.places[uplink.connection] = set()
            self.awaken()
        users.add(uplink)
