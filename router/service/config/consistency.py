"""Rules that hold between the sections of a file. Each rule is a function that yields problems.

The rules run on everything that could be read, so that one mistake does not hide another;
containers whose own section is broken count as known.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import attrs

from router.model.capabilities import Protocol
from router.model.place import BindAddress, TcpAddress
from router.routes.loops import find_loops
from router.routes.match import (
    Pattern,
    PatternError,
    equal_patterns,
    has_wildcards,
    parse_pattern,
)
from router.routes.promise import Promise, promise, with_ids
from router.routes.rewrite import check_rename
from router.routes.route import Endpoint, Guarantee, Position, Route, Unroutable
from router.routes.table import RoutingTable
from router.routes.vhost import is_reserved
from router.service.config.containers import ClientMechanism, Container
from router.service.config.dial_in import (
    dial_in_problems,
    dial_in_route_problems,
    same_identity_problems,
)
from router.service.config.fallbacks import (
    fallback_problems,
    resolve_fallbacks,
    shared_problems,
)
from router.service.config.file import ConfigFile
from router.service.config.here import local_problems, with_local
from router.service.config.hints import nearest, unknown_container
from router.service.config.journal_rules import journal_problems
from router.service.config.link_terms import link_name_problems, terms_problems
from router.service.config.listeners import Listener, ServerMechanism, VerifyClient
from router.service.config.mesh_rules import mesh_problems
from router.service.config.neighbors import with_mesh
from router.service.config.problems import Problem
from router.service.config.process import Admin, Router, Sample
from router.service.config.routing import RouteEntry
from router.service.config.store_rules import place_problems, store_problems

Problems = Iterator[Problem]

_DECLARING = (Protocol.AMQP_0_9_1, Protocol.AMQP_0_10, Protocol.AMQP_0_9R1)

_NAMING_KEYS = (Protocol.AMQP_0_9_1, Protocol.AMQP_0_9R1)

_WILDCARD_HOSTS = frozenset(["0.0.0.0", "::"])


@attrs.frozen
class Judgement:
    """Result of the rules.

    Attributes:
        promises: one per route, in order; complete only if there are no problems.
        containers: those of the file, the router itself if dead letters stay here, and the
            neighbors of the mesh.
        listeners: those of the file, and that of the mesh.
    """

    problems: tuple[Problem, ...]
    table: RoutingTable
    promises: tuple[Promise, ...]
    containers: Mapping[str, Container]
    listeners: tuple[Listener, ...]


def judge(file: ConfigFile, container_names: Collection[str]) -> Judgement:
    """Applies every rule.

    Args:
        file: what could be read.
        container_names: every container that the file names, broken ones included.
    """
    file = with_mesh(with_local(file, container_names))
    problems = [
        *_router_problems(file, container_names),
        *_listener_problems(file.listeners),
        *(p for name, each in file.containers.items() for p in _container_problems(name, each)),
        *_policy_problems(file),
        *_limit_problems(file),
        *_name_problems(file.routes),
        *same_identity_problems(file.containers),
        *link_name_problems(file.routes),
        *mesh_problems(file),
    ]
    sound: list[RouteEntry] = []
    entries = _without_equals(file.routes, problems)
    entries = resolve_fallbacks(entries, container_names)
    problems += shared_problems(entries)
    problems += place_problems(entries, file.router.journal)
    for entry in entries:
        found = [
            *_route_problems(entry, container_names, file),
            *fallback_problems(entry, file.containers, container_names),
            *_declare_problems(entry, file.containers),
            *_pull_problems(entry, file.containers),
            *terms_problems(entry, file.containers),
            *dial_in_route_problems(entry, file),
            *store_problems(entry, file.router.journal),
            *_tracing_problems(entry, file.router),
        ]
        problems += found
        if not found and all(e.container in file.containers for e in entry.as_route().endpoints):
            sound.append(entry)
    tracing = file.router.tracing
    sample = Sample.NEVER if tracing is None else tracing.sample
    peers = {name: each.as_peer(name) for name, each in file.containers.items()}
    table = RoutingTable(
        with_ids(entry.as_route(file.router.ledger, sample), peers) for entry in sound
    )
    promises = tuple(promise(route, peers) for route in table.routes)
    for entry, promised in zip(sound, promises, strict=True):
        for refusal in promised.refusals:
            problems.append(Problem(entry.where.of(refusal.key), refusal.problem))
    problems += _loop_problems(table, file)
    problems += local_problems(sound, file, table)
    return Judgement(tuple(problems), table, promises, file.containers, file.listeners)


def _router_problems(file: ConfigFile, container_names: Collection[str]) -> Problems:
    router = file.router
    for name in router.wait_for:
        if name not in container_names:
            hint = unknown_container(name, container_names)
            yield Problem(
                router.where.of("wait_for"), f"wait_for: unknown container '{name}'{hint}"
            )
    if router.admin is not None:
        yield from _admin_problems(router.admin)
    yield from journal_problems(router)
    if router.probes is not None:
        yield from _probe_problems(router.probes, file)


def _admin_problems(admin: Admin) -> Problems:
    if not admin.bind.is_loopback and admin.token is None:
        problem = f"admin: other machines can reach {admin.bind}, so it needs the key 'token'"
        yield Problem(admin.where.of("bind"), problem)
    if (admin.tls_cert is None) != (admin.tls_key is None):
        yield Problem(
            admin.where.section, "admin: tls_cert and tls_key go together: give both or neither"
        )


def _probe_problems(probes: BindAddress, file: ConfigFile) -> Problems:
    admin = file.router.admin
    taken = [(admin.bind, "router.admin")] if admin is not None else []
    taken += [(each.bind, f"the listener at {each.bind}") for each in file.listeners]
    for bind, what in taken:
        if _exclude_each_other(probes, bind):
            problem = f"probes: {probes} is taken by {what}; name another port"
            yield Problem(file.router.where.of("probes"), problem)


def _exclude_each_other(one: BindAddress, other: BindAddress) -> bool:
    """Returns whether two addresses exclude each other as listeners, judged by their texts."""
    if not (isinstance(one, TcpAddress) and isinstance(other, TcpAddress)):
        return one == other
    if one.port != other.port or one.port == 0:
        return False
    return one.host == other.host or not _WILDCARD_HOSTS.isdisjoint((one.host, other.host))


def _listener_problems(listeners: Sequence[Listener]) -> Problems:
    seen: dict[str, Position] = {}
    for each in listeners:
        if isinstance(each.bind, TcpAddress) and each.bind.port == 0:
            continue
        here = each.where.of("bind")
        first = seen.setdefault(str(each.bind), here)
        if first is not here:
            problem = (
                f"bind: {each.bind} is taken by the listener in line {first.line};"
                " name another port"
            )
            yield Problem(here, problem)
    for each in listeners:
        yield from _sasl_problems(each)


def _sasl_problems(listener: Listener) -> Problems:
    sasl, tls = listener.sasl, listener.tls
    if sasl is None or "mechanisms" in sasl.where.broken:
        return
    offered = set(sasl.mechanisms)
    shows_certificates = tls is not None and tls.verify_client is not VerifyClient.NO
    if ServerMechanism.EXTERNAL in offered and not (
        shows_certificates or "tls" in listener.where.broken
    ):
        problem = "sasl.mechanisms: EXTERNAL needs tls with verify_client: optional or required"
        yield Problem(sasl.where.of("mechanisms"), problem)
    by_password = offered - {ServerMechanism.EXTERNAL, ServerMechanism.ANONYMOUS}
    if by_password and not (sasl.users or "users" in sasl.where.broken):
        names = ", ".join(sorted(by_password))
        yield Problem(
            sasl.where.section,
            f"sasl: {names} needs users, and there are none; write users: {{NAME: PASSWORD}}",
        )


def _container_problems(name: str, container: Container) -> Problems:
    def problem(position: Position, text: str) -> Problem:
        return Problem(position, f"containers.{name}: {text}")

    where, tls, sasl = container.where, container.tls, container.sasl
    yield from (problem(*each) for each in dial_in_problems(container))
    for key, able in (
        ("resumes", (Protocol.AMQP_1_0, Protocol.AMQP_0_10)),
        ("is_router", (Protocol.AMQP_1_0,)),
        ("cbs", (Protocol.AMQP_1_0,)),
    ):
        if getattr(container, key) and container.protocol not in able:
            names = " and ".join(able)
            text = f"{key}: this is for {names}, and this container speaks"
            yield problem(where.of(key), f"{text} {container.protocol}")
    if "tls" in where.keys and not any(url.is_tls for url in container.url):
        yield problem(
            where.of("tls"),
            "tls is given, but no url begins with amqps:// or wss://; write that, or leave tls out",
        )
    if (tls.cert is None) != (tls.key is None):
        yield problem(tls.where.section, "tls: cert and key go together: give both or neither")
    cbs = container.cbs
    if cbs is not None:
        if (cbs.sas_name is None) != (cbs.sas_key is None):
            yield problem(
                cbs.where.section, "cbs: sas_name and sas_key go together: give both or neither"
            )
        is_broken = cbs.where.broken & {"sas_key", "token_file"}
        if (cbs.sas_key is None) == (cbs.token_file is None) and not is_broken:
            yield problem(cbs.where.section, "cbs: wants either sas_key or token_file")
    if sasl.user is not None and any(url.user is not None for url in container.url):
        yield problem(
            sasl.where.of("user"), "sasl.user: the url names a user already; leave one of them out"
        )
    if container.retry_seconds > container.retry_limit_seconds:
        text = "retry_limit_seconds is shorter than retry_seconds; raise it"
        yield problem(where.of("retry_limit_seconds"), text)
    if "mechanisms" in sasl.where.keys and "mechanisms" not in sasl.where.broken:
        yield from (
            problem(sasl.where.of("mechanisms"), f"sasl.mechanisms: {mechanism} needs {need}")
            for mechanism in sasl.mechanisms
            if (need := _missing(mechanism, container)) is not None
        )


def _missing(mechanism: ClientMechanism, container: Container) -> str | None:
    """Returns what a mechanism lacks, or None."""
    sasl = container.sasl
    match mechanism:
        case ClientMechanism.ANONYMOUS:
            return None
        case ClientMechanism.EXTERNAL:
            return None if container.tls.cert is not None else "tls.cert and tls.key"
        case ClientMechanism.XOAUTH2:
            return None if sasl.token is not None else "sasl.token"
    has_user = sasl.user is not None or all(url.user is not None for url in container.url)
    has_password = sasl.password is not None or all(
        url.password is not None for url in container.url
    )
    return None if has_user and has_password else "a user and a password"


def _policy_problems(file: ConfigFile) -> Problems:
    policy = file.policy
    names: dict[str, Position] = {}
    catch_all: str | None = None
    for rule in policy.rules:
        here = rule.where.of("name")
        first = names.setdefault(rule.name, here)
        if first is not here:
            problem = f"policy: rule '{rule.name}' is given twice, first in line {first.line}"
            yield Problem(here, problem)
        for group in rule.groups:
            if group not in policy.groups:
                hint = nearest(group, policy.groups)
                yield Problem(rule.where.of("groups"), f"groups: unknown group '{group}'{hint}")
        if "groups" in rule.where.keys and not (rule.groups or rule.users):
            problem = "groups: is an empty list; leave the rule out, or it would fit everybody"
            yield Problem(rule.where.of("groups"), problem)
        if catch_all is not None:
            problem = f"policy: rule '{rule.name}' is never reached: '{catch_all}' fits everybody"
            yield Problem(here, problem)
        elif rule.where.keys.keys().isdisjoint(("users", "groups", "vhosts")):
            catch_all = rule.name


def _limit_problems(file: ConfigFile) -> Problems:
    limits = file.limits
    if limits.process_octets < limits.connection_octets:
        problem = "limits: process_octets is smaller than connection_octets; raise it"
        yield Problem(limits.where.of("process_octets"), problem)


def _name_problems(entries: Iterable[RouteEntry]) -> Problems:
    first_with: dict[str, RouteEntry] = {}
    for entry in entries:
        name = entry.name or entry.inner_address
        first = first_with.setdefault(name, entry)
        if first is not entry and (entry.name or first.name):
            key = "name" if entry.name else "address"
            problem = (
                f"{key}: '{name}' is the name of the route in {_line(first)} too;"
                " give one another name"
            )
            yield Problem(entry.where.of(key), problem)


def _line(entry: RouteEntry) -> str:
    return f"line {entry.where.of('address').line}"


def _without_equals(entries: Sequence[RouteEntry], problems: list[Problem]) -> list[RouteEntry]:
    """Leaves out, and reports, routes whose address matches the same as an earlier one's."""
    repeated = {}
    for first, second in equal_patterns([parse_pattern(entry.inner_address) for entry in entries]):
        repeated[second] = entries[first]
    for index, first_entry in repeated.items():
        same = f"'{first_entry.address}' in {_line(first_entry)}"
        problem = (
            f"address: '{entries[index].address}' matches exactly what {same} does;"
            " join them into one route"
        )
        problems.append(Problem(entries[index].where.of("address"), problem))
    return [entry for index, entry in enumerate(entries) if index not in repeated]


def _route_problems(
    entry: RouteEntry, container_names: Collection[str], file: ConfigFile
) -> Problems:
    pattern = parse_pattern(entry.inner_address)
    if is_reserved(entry.address):
        problem = (
            f"address: '{entry.address}' begins with a token that the router keeps for itself;"
            " name another"
        )
        yield Problem(entry.where.of("address"), problem)
    named = [("from", entry.from_), *(("to", each) for each in entry.to)]
    for key, endpoint in [*named, ("dead_letter", entry.dead_letter)]:
        if endpoint is None:
            continue
        known = file.containers if key == "dead_letter" else container_names
        if endpoint.container not in known:
            sites = () if file.mesh is None else file.mesh.links
            hint = unknown_container(endpoint.container, container_names, sites)
            problem = f"{key}: unknown container '{endpoint.container}'{hint}"
            yield Problem(entry.where.of(key), problem)
        if key != "from":
            yield from _rename_problems(entry, key, endpoint, pattern)
    if entry.unavailable:
        others = [k for k in ("from", "to", "guarantee", "unroutable") if k in entry.where.keys]
        for key in others:
            text = f"{key}: means nothing where unavailable: true; leave one of them out"
            yield Problem(entry.where.of(key), text)
    if entry.from_ is not None:
        yield from _source_problems(entry, entry.from_, pattern)
    places = {(each.container, each.address, each.terms.link_name) for each in entry.to}
    if len(places) < len(entry.to):
        yield Problem(entry.where.of("to"), "to: names the same endpoint twice; leave one out")
    wants_dead_letter = entry.unroutable is Unroutable.DEAD_LETTER
    if wants_dead_letter and entry.dead_letter is None:
        problem = "unroutable: dead-letter needs the key 'dead_letter', container/address"
        yield Problem(entry.where.of("unroutable"), problem)
    if entry.dead_letter is not None and not (wants_dead_letter or entry.store is not None):
        problem = (
            "dead_letter: means nothing without unroutable: dead-letter, or store;"
            " write one of them, too, or none"
        )
        yield Problem(entry.where.of("dead_letter"), problem)


def _tracing_problems(entry: RouteEntry, router: Router) -> Problems:
    if entry.tracing in (None, Sample.NEVER):
        return
    here = entry.where.of("tracing")
    if router.tracing is None and "tracing" not in router.where.broken:
        yield Problem(here, "tracing: spans are exported only with router.tracing, an endpoint")
    if entry.ledger is False:
        yield Problem(here, "tracing: spans are made of the ledger; leave ledger: false out")


def _declare_problems(entry: RouteEntry, containers: Mapping[str, Container]) -> Problems:
    if entry.declare is None:
        return
    endpoints = entry.as_route().endpoints
    if not endpoints:
        problem = (
            "declare: brokers are asked to make things, and this route leads to none;"
            " leave it out, or add to or from"
        )
        yield Problem(entry.where.of("declare"), problem)
    for endpoint in endpoints:
        container = containers.get(endpoint.container)
        if container is None or container.is_here:
            continue  # dead letters stay at this router, where nothing is declared
        if container.protocol not in _DECLARING:
            names = ", ".join(_DECLARING)
            problem = (
                f"declare: containers that speak {names} can be asked to make things, and"
                f" '{endpoint.container}' speaks {container.protocol}; leave declare out"
            )
            yield Problem(entry.where.of("declare"), problem)


def _pull_problems(entry: RouteEntry, containers: Mapping[str, Container]) -> Problems:
    """Checks that a source says where each message was published, if its route needs that."""
    source, route = entry.from_, entry.as_route()
    container = None if source is None else containers.get(source.container)
    if container is None or route.from_ is None or not route.pulls_many:
        return
    if route.guarantee is Guarantee.EXACTLY_ONCE:
        problem = (
            "guarantee: exactly-once holds for messages pulled for one address, and"
            f" '{entry.address}' has wildcards; name that one, or leave guarantee out"
        )
        yield Problem(entry.where.of("guarantee"), problem)
    if container.protocol in _NAMING_KEYS:
        return
    names = ", ".join(_NAMING_KEYS)
    problem = (
        f"from: '{entry.address}' has wildcards, and only containers that speak {names} say where"
        f" each message was published; '{route.from_.container}' speaks {container.protocol};"
        " name one address"
    )
    yield Problem(entry.where.of("from"), problem)


def _source_problems(entry: RouteEntry, source: Endpoint, pattern: Pattern) -> Problems:
    """Checks what a route pulls: only routing keys of an exchange may be a pattern."""
    name = source.address or entry.address
    exchange, slash, _ = name.removeprefix("/").partition("/")
    if has_wildcards(name) and (not slash or has_wildcards(exchange)):
        problem = (
            f"from: '{source}' has wildcards, but no exchange before them; write"
            " EXCHANGE/PATTERN, or name one address"
        )
        yield Problem(entry.where.of("from"), problem)
        return
    if not pattern.is_literal and source.address is not None and has_wildcards(source.address):
        try:
            check_rename(parse_pattern(source.address), entry.address)
        except PatternError as error:
            yield Problem(entry.where.of("address"), f"address: {error}")


def _rename_problems(entry: RouteEntry, key: str, endpoint: Endpoint, pattern: Pattern) -> Problems:
    if endpoint.address is None:
        return
    try:
        check_rename(pattern, endpoint.address)
    except PatternError as error:
        yield Problem(entry.where.of(key), f"{key}: {error}")


def _loop_problems(table: RoutingTable, file: ConfigFile) -> Problems:
    same_as = _same_containers(file.containers)
    own = frozenset(
        name for name, each in file.containers.items() if _is_this_router(each, file.listeners)
    )
    for loop in find_loops(table, same_as, own):
        route: Route = loop.routes[0]
        assert route.position is not None, "routes of a file have positions"
        yield Problem(route.position, f"route '{route.name}' is part of a loop: {loop}")


def _same_containers(containers: Mapping[str, Container]) -> dict[str, str]:
    """Maps each name to the first name with the same URL."""
    first_at: dict[tuple[str, int, str | None], str] = {}
    same_as: dict[str, str] = {}
    for name, container in containers.items():
        for url in container.url:
            place = (url.host.lower(), url.port, container.vhost or url.vhost)
            first = first_at.setdefault(place, same_as.get(name, name))
            same_as.setdefault(name, first)
    return same_as


def _is_this_router(container: Container, listeners: Iterable[Listener]) -> bool:
    return any(
        _leads_to(url.address, each.bind)
        for url in container.url
        for each in listeners
        if isinstance(each.bind, TcpAddress)
    )


def _leads_to(dialed: TcpAddress, bound: TcpAddress) -> bool:
    if dialed.port != bound.port:
        return False
    is_local = dialed.is_loopback and (bound.is_loopback or bound.host in _WILDCARD_HOSTS)
    return is_local or dialed.host == bound.host
