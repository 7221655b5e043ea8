"""Guests: peers whose links lead here through others (``passage``).

A worker that leads a link through attaches it at the home with a property that introduces its peer.
At home that peer is a guest: a connection of its own, without a socket. So is the router of another
site whose exactly-once chain ends here, whichever neighbor it comes over (``mesh.chains``), and
whichever worker has that neighbor.
"""

from typing import Final, cast

import attrs

from router.core.govern import Governor
from router.core.mesh.names import MESH_USER, address_of, ending_chain, link_name
from router.core.reach import is_sibling
from router.core.state import State
from router.links.link import Connection, Octets
from router.model.events import Event, LinkAttached
from router.model.identity import ContainerId, LinkId, LinkName
from router.model.ways import Chain

GUEST: Final = "router:guest"
"""Property of the attach of a far link: whose link it is, see ``Introduction``."""


@attrs.frozen
class Introduction:
    """The description of a guest that is sent to its home.

    Attributes:
        user: its authenticated identity; None: anonymous.
        vhost: its virtual host, if that has routes of its own.
        is_volatile: its engine keeps unsettled state, and loses it when its worker dies.
        streams: it accepts deliveries part by part.
        keeps_maps: its engine provides its link's unsettled map, which is therefore never outdated.
        hostname: that it asked for, as the policy sees it; None: we dialed it.
        name: of its link.
        is_router: it is this program, and trusted: keys are carried.
        frame_octets: as in ``Capabilities``: the home cuts unsettled maps for the peer's frames.
        is_neighbor: it is this program: hops are carried, and ways are reported to it.
        sends_ahead: its protocol has no credit: its settled deliveries are accepted ahead of it.
    """

    container: str
    user: str | None
    vhost: str
    hostname: str | None
    name: str
    is_router: bool
    is_volatile: bool
    streams: bool
    keeps_maps: bool
    frame_octets: int
    is_neighbor: bool
    sends_ahead: bool

    def property(self) -> list[object]:
        """Returns it as the value of a property of attach."""
        who = [self.container, self.user, self.vhost, self.hostname, self.name]
        what = [self.is_router, self.is_volatile, self.streams, self.keeps_maps, self.frame_octets]
        return [*who, *what, self.is_neighbor, self.sends_ahead]

    @classmethod
    def read(cls, value: object) -> "Introduction":
        """Reads the value that ``property`` returned."""
        return cls(*cast("list[object]", value))  # type: ignore[arg-type]  # a sibling wrote it


class Guests:
    """Peers whose links lead here through siblings, each as a connection of its own."""

    def __init__(self, state: State, governor: Governor) -> None:
        self._registry = state.registry
        self._settings = state.settings
        self._governor = governor

    def find(self, joint: Connection, event: Event) -> Connection | None:
        """Returns the guest that an event from a sibling is about; None: it is about none."""
        link = getattr(event, "link", None)
        guest = self._registry.guests.get(link)  # type: ignore[arg-type]  # no link, no guest
        if guest is not None or not isinstance(event, LinkAttached):
            return guest
        if is_sibling(joint):
            return self._welcome(joint, event) if GUEST in event.properties else None
        chain = ending_chain(event, self._settings.router_id)
        return None if chain is None else self._welcome_ingress(joint, event, chain)

    def of(self, joint: Connection) -> list[Connection]:
        """Returns the guests of a connection to a sibling."""
        return [guest for guest in self._registry.guests.values() if guest.id == joint.id]

    def left(self, guest: Connection, link: LinkId) -> None:
        """Forgets a guest whose link was refused or has ended."""
        if not guest.incoming and not guest.outgoing:
            self._registry.guests.pop(link, None)
            self._registry.hosted.pop(guest, None)

    def _welcome_ingress(self, joint: Connection, event: LinkAttached, chain: Chain) -> Connection:
        """Makes a guest of another site's router, whose chain ends here (``mesh.chains``)."""
        guest = self._registry.guests[event.link] = Connection(
            id=joint.id,
            container=ContainerId(chain.ingress),
            user=MESH_USER,
            capabilities=attrs.evolve(joint.capabilities, express=False),
            octets=Octets(self._settings.connection_octets),
            guest=link_name(chain, str(address_of(event))),
            keeps_maps=True,
            is_ingress=True,
        )
        guest.is_congested = joint.is_congested
        return guest

    def _welcome(self, joint: Connection, event: LinkAttached) -> Connection:
        read = Introduction.read(event.properties[GUEST])
        capabilities = attrs.evolve(
            joint.capabilities,
            is_router=read.is_router,
            is_neighbor=read.is_neighbor,
            sends_ahead=read.sends_ahead,
            resumes_links=read.is_router,
            streams=read.streams,
            express=False,
            frame_octets=read.frame_octets,
        )
        guest = self._registry.guests[event.link] = Connection(
            id=joint.id,
            container=ContainerId(read.container),
            user=read.user,
            capabilities=capabilities,
            octets=Octets(self._settings.connection_octets),
            vhost=read.vhost,
            guest=LinkName(read.name),
            is_volatile=read.is_volatile,
            keeps_maps=read.keeps_maps,
            is_ingress=read.user == MESH_USER,
        )
        guest.is_congested = joint.is_congested
        if read.hostname is not None:
            self._governor.host(guest, read.hostname)
        return guest
