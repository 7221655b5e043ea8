"""Rules for filters, capabilities, link names and properties of a route's endpoints."""

from collections.abc import Iterable, Iterator, Mapping

from router.model.capabilities import Protocol
from router.model.terminus import STREAM_OFFSET, Role
from router.routes.match import parse_pattern
from router.routes.route import PLAIN, Endpoint
from router.service.config.containers import Container
from router.service.config.problems import Problem
from router.service.config.routing import RouteEntry

Problems = Iterator[Problem]


def terms_problems(entry: RouteEntry, containers: Mapping[str, Container]) -> Problems:
    """Checks what the endpoints of one route ask for."""
    for key, endpoint in _endpoints(entry):
        container = containers.get(endpoint.container)
        if container is not None and endpoint.terms != PLAIN:
            where = endpoint.position or entry.where.of(key)
            for text in _faults(entry, key, endpoint, container.protocol):
                yield Problem(where, f"{key}: {text}")


def _endpoints(entry: RouteEntry) -> Iterator[tuple[str, Endpoint]]:
    named = [("from", entry.from_), *(("to", each) for each in entry.to)]
    named.append(("dead_letter", entry.dead_letter))
    return ((key, endpoint) for key, endpoint in named if endpoint is not None)


def _faults(entry: RouteEntry, key: str, endpoint: Endpoint, protocol: Protocol) -> Iterator[str]:
    terms = endpoint.terms
    if terms.filters and not _is_read(entry, key):
        yield (
            f"filter: is for a source, and this route only sends to '{endpoint.container}';"
            " leave it out"
        )
    asked = {
        "filter": terms.filters,
        "capabilities": terms.capabilities,
        "link_name": terms.link_name,
        "properties": terms.properties,
    }
    if protocol is not Protocol.AMQP_1_0:
        if protocol is Protocol.AMQP_0_9_1 and set(terms.filter_names) == {STREAM_OFFSET}:
            del asked["filter"]  # an argument of basic.consume
        for name in (name for name, value in asked.items() if value):
            yield (
                f"{name}: this is for {Protocol.AMQP_1_0}, and '{endpoint.container}' speaks"
                f" {protocol}; leave it out"
            )
    if terms.link_name is not None and not parse_pattern(entry.address).is_literal:
        yield (
            f"link_name: '{entry.address}' has wildcards, so there would be several links of"
            " that name; leave it out, or name one address"
        )


def _is_read(entry: RouteEntry, key: str) -> bool:
    """Returns whether the router receives from an endpoint: ``to`` alone feeds receivers."""
    return key == "from" or (key == "to" and entry.from_ is None)


def link_name_problems(entries: Iterable[RouteEntry]) -> Problems:
    """Checks that no two links of a direction have the same name (§2.6.1)."""
    first_with: dict[tuple[str, Role, str], Endpoint] = {}
    for entry in entries:
        for key, endpoint in _endpoints(entry):
            name, where = endpoint.terms.link_name, endpoint.position
            if name is None or where is None:
                continue
            roles = [Role.RECEIVER] if _is_read(entry, key) else []
            roles += [] if key == "from" else [Role.SENDER]
            known = [
                first_with.setdefault((endpoint.container, role, name), endpoint) for role in roles
            ]
            others = [each.position for each in known if each is not endpoint and each.position]
            if others:
                problem = (
                    f"{key}: link_name: '{name}' is the name of a link to '{endpoint.container}'"
                    f" in line {others[0].line} too; give another"
                )
                yield Problem(where, problem)
