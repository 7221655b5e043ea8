"""Section ``mesh``: the other sites that this router shares addresses with, and how it meets them.

Routers of a mesh find each other's addresses by themselves (``routes.mesh``). The file names the
neighbors alone: which routers this one dials, and what a link to each costs. What another router
may advertise is up to the access policy (``advertise`` of its rules).
"""

from collections.abc import Mapping
from pathlib import Path

import attrs

from router.model.place import BindAddress, TcpAddress
from router.routes.mesh.nouns import COST_MOST, DEFAULT_COST
from router.service.config.addresses import Bind, HostPort
from router.service.config.kinds import ListOf, MapOf, OrWord
from router.service.config.options import Placed, Section, option
from router.service.config.policy import AddressPattern
from router.service.config.scalars import FilePath, Whole

ROUTER_ID = r"[^\s/]{1,256}"


@attrs.frozen(kw_only=True)
class MeshTls(Placed):
    """TLS of all connections of the mesh, in both directions. Files are read again on change."""

    cert: Path = option(
        FilePath(),
        help="certificate chain (PEM) of an Ed25519 key; router.id is the first DNS name of its"
        " subjectAltName",
    )
    key: Path = option(FilePath(), help="private key (PEM); it signs what the router advertises")
    ca: Path = option(FilePath(), help="authorities (PEM) of the certificates of all routers")


@attrs.frozen(kw_only=True)
class MeshLink(Placed):
    """Another router that this one dials."""

    host: TcpAddress = option(HostPort(), help="its mesh.listen, host:port")
    cost: int = option(
        Whole(1, COST_MOST),
        default=DEFAULT_COST,
        unit="no unit",
        help="cost of the link for what this router sends; messages take the way of least cost",
    )


@attrs.frozen(kw_only=True)
class Mesh(Placed):
    """The mesh of sites: routers that find each other's addresses."""

    listen: BindAddress | None = option(
        Bind(),
        default=None,
        default_text="no router can dial this one",
        help="where other routers of the mesh connect: host:port or unix:/path",
    )
    links: Mapping[str, MeshLink] = option(
        MapOf(Section(MeshLink), ROUTER_ID, "router id"),
        factory=dict,
        help="router.id: a neighbor to dial; of two routers that dial each other one connection"
        " is kept",
    )
    edge: tuple[TcpAddress, ...] = option(
        ListOf(HostPort(), "host:port"),
        default=(),
        default_text="this router is a site of its own",
        help="this router is an edge: mesh.listen of its hubs, the preferred one first. One of"
        " them is used at a time; all that has no receivers here is sent there",
    )
    tls: MeshTls | None = option(
        OrWord(Section(MeshTls), "off"),
        default=None,
        default_text="must be written, unless listen, links and edge are loopback addresses",
        help="certificates of the mesh, or off: anybody who can connect is believed",
    )
    advertise: tuple[str, ...] = option(
        ListOf(AddressPattern(), "pattern"),
        default=(),
        help="addresses that this site serves: other sites send them here, without being told of"
        " each; addresses outside of them are advertised one by one while they have receivers",
    )
