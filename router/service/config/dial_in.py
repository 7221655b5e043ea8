"""Rules for containers that dial in."""

from collections.abc import Iterator, Mapping

from router.model.capabilities import Protocol
from router.routes.route import Guarantee, Position
from router.service.config.containers import Container, Several
from router.service.config.file import ConfigFile
from router.service.config.problems import Problem
from router.service.config.routing import RouteEntry

_OF_DIALED = (
    "url",
    "vhost",
    "tls",
    "sasl",
    "cbs",
    "idle_seconds",
    "max_frame_octets",
    "sessions",
    "connect_seconds",
    "failover",
    "failover_hosts",
)
"""Keys that say how a container is dialed."""

_OF_DIAL_IN = ("identity", "container_id", "several")


def dial_in_problems(container: Container) -> Iterator[tuple[Position, str]]:
    """Checks which keys a container has."""
    where = container.where
    if container.is_here:
        return
    if not container.dials_in:
        if not container.url and "url" not in where.keys:
            told = "amqp[s]://host, where it is dialed; or write dials_in: true"
            yield where.section, f"needs the key 'url': {told}"
        for key in _OF_DIAL_IN:
            if key in where.keys:
                yield where.of(key), f"{key}: means nothing without dials_in: true"
        return
    for key in _OF_DIALED:
        if key in where.keys:
            told = "this is for containers that the router dials, and this one dials in"
            yield where.of(key), f"{key}: {told}; leave it out"
    if container.identity is None and container.container_id is None:
        if not where.broken & {"identity", "container_id"}:
            told = "needs the key 'identity', or 'container_id', by which it is known"
            yield where.of("dials_in"), f"dials_in: {told}"
    if container.protocol is not Protocol.AMQP_1_0:
        told = "containers that dial in speak amqp-1.0; in other protocols only a client attaches"
        yield where.of("protocol"), f"protocol: {told}"


def same_identity_problems(containers: Mapping[str, Container]) -> Iterator[Problem]:
    """Checks that a connection cannot be two containers."""
    first: dict[tuple[str | None, str | None], str] = {}
    for name, container in containers.items():
        if container.dials_in:
            key = (container.identity, container.container_id)
            other = first.setdefault(key, name)
            if other != name:
                problem = (
                    f"containers.{name}: dials_in: connections like its are '{other}' already;"
                    " give another identity or container_id"
                )
                yield Problem(container.where.of("dials_in"), problem)


def dial_in_route_problems(entry: RouteEntry, file: ConfigFile) -> Iterator[Problem]:
    """Checks that an exactly-once route finds its container, which is one, where it keeps links."""
    if entry.guarantee is not Guarantee.EXACTLY_ONCE:
        return
    for endpoint in entry.as_route().endpoints:
        container = file.containers.get(endpoint.container)
        if container is None or not container.dials_in:
            continue
        if container.several is Several.BALANCE:
            problem = (
                f"guarantee: exactly-once knows one container by its links, and several share"
                f" '{endpoint.container}'; leave out several: balance, or promise less"
            )
            yield Problem(entry.where.of("guarantee"), problem)
        elif file.router.workers != 1:
            problem = (
                f"guarantee: exactly-once is kept at one worker, and '{endpoint.container}' may"
                " dial in to any; set router.workers: 1, or promise less"
            )
            yield Problem(entry.where.of("guarantee"), problem)
