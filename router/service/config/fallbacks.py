"""Option ``fallback`` of a route: which queue it names, and where it cannot be given.

A fallback is a queue of a container, written as such (``broker/overflow``), or an address of this
router whose route leads to one container (``overflow``, with ``{address: overflow, to: broker}``).
"""

from collections.abc import Collection, Iterator, Mapping, Sequence

import attrs

from router.model.capabilities import Protocol
from router.routes.match import PatternError, has_wildcards, parse_pattern
from router.routes.pulling import is_exchange
from router.routes.rewrite import check_rename
from router.routes.route import Endpoint, Guarantee
from router.routes.table import RoutingTable
from router.service.config.containers import Container
from router.service.config.hints import unknown_container
from router.service.config.problems import Problem
from router.service.config.routing import RouteEntry

_EXCHANGES = (Protocol.AMQP_0_9_1, Protocol.AMQP_0_10, Protocol.AMQP_0_9R1)


def resolve_fallbacks(
    entries: Sequence[RouteEntry], container_names: Collection[str]
) -> list[RouteEntry]:
    """Replaces fallbacks that are addresses of this router by the queues behind them."""
    named = [each for each in entries if _is_address(each, container_names)]
    if not named:
        return list(entries)
    plain = (attrs.evolve(each, fallback=None) for each in entries)
    table = RoutingTable(each.as_route() for each in plain)
    return [_resolve(each, table) if each in named else each for each in entries]


def fallback_problems(
    entry: RouteEntry, containers: Mapping[str, Container], container_names: Collection[str]
) -> Iterator[Problem]:
    """Finds what is wrong with the fallback of a route."""
    endpoint = entry.fallback
    if endpoint is None:
        return
    for problem in _problems(entry, endpoint, containers, container_names):
        yield Problem(entry.where.of("fallback"), f"fallback: {problem}")


def shared_problems(entries: Sequence[RouteEntry]) -> Iterator[Problem]:
    """Finds queues that would mix the messages of several virtual hosts."""
    first_with: dict[Endpoint, RouteEntry] = {}
    for entry in entries:
        if entry.fallback is None:
            continue
        first = first_with.setdefault(entry.fallback, entry)
        if first.vhost != entry.vhost:
            problem = (
                f"fallback: '{entry.fallback}' serves another virtual host in line"
                f" {first.where.of('fallback').line}; name a queue for each"
            )
            yield Problem(entry.where.of("fallback"), problem)


def _is_address(entry: RouteEntry, container_names: Collection[str]) -> bool:
    return entry.fallback is not None and entry.fallback.container not in container_names


def _resolve(entry: RouteEntry, table: RoutingTable) -> RouteEntry:
    """Returns an entry with the queue behind its fallback; unchanged: there is none."""
    address = str(entry.fallback)
    match = None if has_wildcards(address) else table.lookup(address)
    if match is None or match.route.from_ is not None or len(match.route.to) != 1:
        return entry
    (target,) = match.route.to
    return attrs.evolve(entry, fallback=Endpoint(target.container, match.address_at(target)))


def _problems(
    entry: RouteEntry,
    endpoint: Endpoint,
    containers: Mapping[str, Container],
    container_names: Collection[str],
) -> Iterator[str]:
    if endpoint.container not in container_names:
        yield (
            f"'{endpoint}' is neither a container's queue nor an address whose route leads to one"
            f" container{unknown_container(endpoint.container, container_names)}"
        )
        return
    if entry.from_ is not None or entry.to:
        yield (
            "is for routes without 'from' and 'to', where receivers attach to this router; a"
            " target that is away is waited for"
        )
    if entry.guarantee is Guarantee.EXACTLY_ONCE:
        yield (
            f"exactly-once ends at '{endpoint.container}': what is pulled back from there is a"
            " new message; say guarantee: at-least-once, or leave fallback out"
        )
    container = containers.get(endpoint.container)
    name, known = endpoint.address, endpoint.address or entry.address
    if container is not None and container.protocol in _EXCHANGES and is_exchange(known):
        yield f"'{endpoint}' is an exchange, and only a queue can be pulled from; name a queue"
    if name is not None:
        try:
            check_rename(parse_pattern(entry.inner_address), name)
        except PatternError as error:
            yield str(error)
