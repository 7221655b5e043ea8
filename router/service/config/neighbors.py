"""What the section ``mesh`` stands for: a listener, and a container for each neighbor.

An edge has a container for each of its hubs, named after the place.

To the rest of the program the place where other routers of the mesh connect is a listener like
others, and each neighbor to dial a container like others. Both have marks that no file can give
(``is_mesh``), by which engines and core tell them from clients and brokers.
"""

from typing import Final

import attrs

from router.core.mesh.names import edge_name, site_name
from router.model.capabilities import Protocol
from router.model.place import TcpAddress
from router.service.config.addresses import ContainerUrl
from router.service.config.containers import (
    ClientMechanism,
    Container,
    ContainerSasl,
    ContainerTls,
    Failover,
)
from router.service.config.file import ConfigFile
from router.service.config.listeners import (
    IdentityField,
    Listener,
    ListenerSasl,
    ListenerTls,
    ServerMechanism,
    VerifyClient,
)
from router.service.config.mesh import Mesh, MeshLink, MeshTls
from router.service.config.options import Where

RETRY_LIMIT_SECONDS: Final = 5.0
"""Longest pause before a neighbor is dialed again: a site that comes back is to be used soon."""


def with_mesh(file: ConfigFile) -> ConfigFile:
    """Returns a file with the listener and the containers of its mesh."""
    mesh = file.mesh
    if mesh is None:
        return file
    neighbors = {
        site_name(router): _neighbor(router, link, mesh.tls) for router, link in mesh.links.items()
    } | {edge_name(str(place)): _hub(place, mesh) for place in mesh.edge}
    return attrs.evolve(
        file,
        listeners=(*file.listeners, *_listener(mesh)),
        containers={**file.containers, **neighbors},
    )


def _listener(mesh: Mesh) -> tuple[Listener, ...]:
    if mesh.listen is None:
        return ()
    listener = Listener(
        bind=mesh.listen, protocols=(Protocol.AMQP_1_0,), is_mesh=True, where=mesh.where
    )
    if mesh.tls is None:
        return (listener,)
    tls = ListenerTls(
        cert=mesh.tls.cert,
        key=mesh.tls.key,
        ca=mesh.tls.ca,
        verify_client=VerifyClient.REQUIRED,
        identity_field=IdentityField.SAN_DNS,
        where=mesh.tls.where,
    )
    sasl = ListenerSasl(mechanisms=(ServerMechanism.EXTERNAL,))
    return (attrs.evolve(listener, tls=tls, sasl=sasl),)


def _neighbor(router: str, link: MeshLink, tls: MeshTls | None) -> Container:
    return _container(link.host, tls, router, link.where)


def _hub(place: TcpAddress, mesh: Mesh) -> Container:
    """Returns a hub of an edge; its certificate is for the host that is dialed."""
    return attrs.evolve(_container(place, mesh.tls, None, mesh.where), is_hub=True)


def _container(
    place: TcpAddress, tls: MeshTls | None, server_name: str | None, where: Where
) -> Container:
    url = ContainerUrl(host=place.host, port=place.port, is_tls=tls is not None)
    container = Container(
        url=(url,),
        is_mesh=True,
        is_router=True,
        failover=Failover.IGNORE,
        retry_limit_seconds=RETRY_LIMIT_SECONDS,
        where=where,
    )
    if tls is None:
        return container
    return attrs.evolve(
        container,
        tls=ContainerTls(
            ca=tls.ca, cert=tls.cert, key=tls.key, server_name=server_name, where=tls.where
        ),
        sasl=ContainerSasl(mechanisms=(ClientMechanism.EXTERNAL,)),
    )
