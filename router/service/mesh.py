"""What the mesh of a router is made with: its settings, and who signs and verifies entries.

Without TLS nobody proves who is who, so entries carry no signatures, and the policy checks what
routers say of themselves. With TLS each router signs with the key of its certificate.
"""

import time
from collections.abc import Iterator

import attrs

from router.core.mesh.control import Plan
from router.core.mesh_octets import Codec10
from router.net.tls import Judge
from router.routes.mesh.bodies import Notary
from router.routes.mesh.events import Reconfigured
from router.routes.mesh.mesh import Settings
from router.routes.mesh.nouns import RouterId
from router.routes.mesh.policy import Policy
from router.service.config import Problem, RouterConfig
from router.service.config.mesh import Mesh, MeshTls
from router.service.config.policy import Policy as WrittenPolicy

ANYBODY = "*"


@attrs.frozen
class Unsigned:
    """Signs nothing, and believes what is not signed."""

    def sign(self, octets: bytes) -> bytes:
        """Returns no signature."""
        return b""

    def verify(self, origin: RouterId, octets: bytes, signature: bytes) -> bool:
        """Returns whether there is no signature: a router that signs is of another mesh."""
        return not signature


def make_plan(config: RouterConfig) -> Plan | None:
    """Returns what the mesh of a router is made with; None: the file has no mesh.

    Raises:
        MeshKeyError: the certificates cannot be used for signatures.
    """
    if config.mesh is None:
        return None
    now = reconfigured(config, config.mesh)
    settings = Settings(
        router=RouterId(config.router.id),
        epoch=time.time_ns() // 1_000_000,
        costs=now.costs,
        advertise=now.advertise,
        policy=now.policy,
    )
    if now.uplinks:  # an edge says nothing to the mesh, and believes its hub
        return Plan(
            settings=settings,
            notary=Notary(Codec10(), Unsigned(), Unsigned()),
            uplinks=now.uplinks,
        )
    return Plan(settings=settings, notary=_notary(config.router.id, config.mesh.tls))


def reconfigured(config: RouterConfig, mesh: Mesh) -> Reconfigured:
    """Returns what the machine is told of a configuration."""
    return Reconfigured(
        costs={RouterId(name): link.cost for name, link in mesh.links.items()},
        advertise=mesh.advertise,
        policy=advertise_policy(config.policy),
        uplinks=tuple(RouterId(str(place)) for place in mesh.edge),
    )


def advertise_policy(written: WrittenPolicy) -> Policy:
    """Returns what routers may advertise: anything, unless some rule says what."""
    named = [(rule, each) for rule in written.rules if (each := rule.advertise) is not None]
    allowed: dict[str, tuple[str, ...]] = {}
    others: tuple[str, ...] = () if named else ("#",)
    for rule, patterns in named:
        users = written.identities(rule)
        for user in (ANYBODY,) if users is None else users:
            if user == ANYBODY:
                others += patterns
            else:
                allowed[user] = (*allowed.get(user, ()), *patterns)
    return Policy.parse({user: (*own, *others) for user, own in allowed.items()}, others)


def make_judge(config: RouterConfig) -> Judge | None:
    """Returns what refuses certificates of neighbors; None: there are none.

    Raises:
        MeshKeyError: the authorities cannot be read.
    """
    if config.mesh is None or config.mesh.tls is None:
        return None
    from router.net.mesh_certificates import read_ring  # noqa: PLC0415  as in ``_notary``

    return read_ring(config.mesh.tls.ca).judge


def _notary(router: str, tls: MeshTls | None) -> Notary:
    if tls is None:
        return Notary(Codec10(), Unsigned(), Unsigned())
    # not loaded by routers without a mesh that signs: the library is an extra
    from router.net.mesh_certificates import read_keys  # noqa: PLC0415

    signer, ring = read_keys(RouterId(router), tls.cert, tls.key, tls.ca)
    return Notary(Codec10(), signer, ring)


def mesh_file_problems(config: RouterConfig) -> Iterator[Problem]:
    """Yields why the mesh of a valid file cannot be served."""
    mesh = config.mesh
    if mesh is None or mesh.tls is None:
        return
    try:
        from router.net.mesh_certificates import MeshKeyError  # noqa: PLC0415
    except ImportError:
        problem = "mesh.tls: signatures need the extra router[mesh], which is not installed"
        yield Problem(mesh.where.of("tls"), problem)
        return
    try:
        _notary(config.router.id, mesh.tls)
    except MeshKeyError as error:
        yield Problem(mesh.tls.where.of(error.option), f"mesh.tls.{error.option}: {error.reason}")
