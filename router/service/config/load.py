"""Loads a configuration file, at start and again at each reload."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import attrs

from router.at_rest import at_rest
from router.routes.promise import Promise
from router.routes.route import Position, Route
from router.routes.table import RoutingTable
from router.service.advice import describe_port
from router.service.config.consistency import judge
from router.service.config.containers import Container
from router.service.config.document import Entries, Node, parse_document
from router.service.config.file import ConfigFile
from router.service.config.kinds import Reading
from router.service.config.limits import Limits
from router.service.config.listeners import Listener
from router.service.config.mesh import Mesh
from router.service.config.mesh_rules import mesh_notes
from router.service.config.options import Section, options_of
from router.service.config.policy import Policy
from router.service.config.problems import ConfigError, Problem, UnfitError
from router.service.config.process import Router
from router.service.config.references import Sources

_CONTAINER_KEYS: Final = frozenset(option.key for option in options_of(Container))
"""Names that stand where those of containers belong if a container is not indented enough."""

LARGEST_CONFIG_OCTETS = 64 << 20
"""A hundred thousand routes take about 10 MiB."""


MANAGEMENT: Final = "$management"
"""Address of the management node."""


@attrs.frozen(kw_only=True)
class RouterConfig:
    """A configuration that passed every rule; two with the same effect are equal.

    Attributes:
        file: the name under which it was loaded.
        routes: the routes as the rest of the program uses them, in the order of the file.
        table: the same routes, for look-ups by address.
        promises: the guarantee that each route really gives, in the same order.
        notes: warnings about allowed but questionable settings, with positions.
        keeps_unsettled: the journal is needed because earlier lives left unsettled deliveries in
            it, whatever the routes promise now; not from the file.
        is_empty: the file holds no key at all: a valid file, all of whose values are defaults.
    """

    file: str = attrs.field(eq=False)
    router: Router
    listeners: tuple[Listener, ...]
    containers: Mapping[str, Container]
    routes: tuple[Route, ...]
    limits: Limits
    policy: Policy
    mesh: Mesh | None = None
    table: RoutingTable = attrs.field(eq=False, repr=False)
    promises: tuple[Promise, ...] = attrs.field(eq=False, repr=False)
    notes: tuple[Problem, ...] = attrs.field(eq=False, repr=False)
    keeps_unsettled: bool = attrs.field(default=False, eq=False)
    is_empty: bool = attrs.field(default=False, eq=False)


def load(path: str | Path, environment: Mapping[str, str] | None = None) -> RouterConfig:
    """Loads a file; everything that it refers to is read again.

    Args:
        path: the file.
        environment: for ``${NAME}``; default: that of this process.

    Raises:
        ConfigError: with all problems, in the order of the file.
    """
    file = str(path)
    try:
        with Path(path).open("rb") as opened:
            octets = opened.read(LARGEST_CONFIG_OCTETS + 1)
    except OSError as error:
        raise _whole_file(file, f"cannot read: {error.strerror}") from None
    except ValueError:
        raise _whole_file(file, "cannot read: this is not a path") from None
    if len(octets) > LARGEST_CONFIG_OCTETS:
        raise _whole_file(file, f"exceeds {LARGEST_CONFIG_OCTETS >> 20} MiB")
    try:
        text = octets.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = octets[: error.start]
        line, column = before.count(b"\n") + 1, error.start - before.rfind(b"\n")
        problem = Problem(Position(file, line, column), "not UTF-8")
        raise ConfigError([problem]) from None
    with at_rest():
        return read(text, file, Path(path).parent, environment)


def _whole_file(file: str, problem: str) -> ConfigError:
    return ConfigError([Problem(Position(file, 1, 1), problem)])


def read(
    text: str,
    file: str,
    directory: Path,
    environment: Mapping[str, str] | None = None,
) -> RouterConfig:
    """Reads a configuration from text; ``load`` without the file.

    Args:
        text: YAML.
        file: the file's name in positions.
        directory: the base of relative paths.
        environment: for ``${NAME}``; default: that of this process.

    Raises:
        ConfigError: as for ``load``.
    """
    reading = Reading(Sources(os.environ if environment is None else environment, directory))
    root = parse_document(text, file, reading.problems.append)
    if root is None:
        root = Entries(Position(file, 1, 1))
    try:
        written = Section(ConfigFile).read(root, "", reading)
    except UnfitError as error:
        reading.report(root.position, f"the file {error.reason}")
        raise ConfigError(reading.problems) from None
    judgement = judge(written, _container_names(root))
    problems = [*reading.problems, *judgement.problems]
    if problems:
        raise ConfigError(problems)
    return RouterConfig(
        file=file,
        router=attrs.evolve(
            written.router,
            state=directory / written.router.state,
        ),
        listeners=judgement.listeners,
        containers=judgement.containers,
        routes=judgement.table.routes,
        limits=written.limits,
        policy=written.policy,
        mesh=written.mesh,
        table=_with_management(judgement.table) if written.router.management else judgement.table,
        promises=judgement.promises,
        notes=(*reading.notes, *_notes(written)),
        is_empty=not (isinstance(root, Entries) and root.entries),
    )


def _with_management(table: RoutingTable) -> RoutingTable:
    """Adds the management node, unless the file has a route of that address."""
    if any(route.address == MANAGEMENT for route in table.routes):
        return table
    return RoutingTable([*table.routes, Route(address=MANAGEMENT)])


def _container_names(root: Node) -> frozenset[str]:
    """Returns the names that the file gives to containers, whether or not these can be read."""
    if isinstance(root, Entries) and "containers" in root.entries:
        containers = root.entries["containers"][1]
        if isinstance(containers, Entries):
            return frozenset(
                name
                for name, (_, value) in containers.entries.items()
                if name not in _CONTAINER_KEYS or isinstance(value, Entries)
            )
    return frozenset()


def _notes(file: ConfigFile) -> list[Problem]:
    notes = []
    for listener in file.listeners:
        if listener.admits_anybody and not listener.bind.is_loopback:
            note = f"{listener.bind} lets anybody in who can reach it: it has no sasl section"
            notes.append(Problem(listener.where.of("bind"), note))
    for name, container in file.containers.items():
        for said in filter(None, (describe_port(url.port) for url in container.url)):
            notes.append(Problem(container.where.of("url"), f"containers.{name}.url: {said}"))
    notes += _policy_notes(file)
    notes += mesh_notes(file)
    if not file.routes:
        notes.append(Problem(file.where.section, "there are no routes: no address is known"))
    return notes


def _policy_notes(file: ConfigFile) -> Iterator[Problem]:
    """Yields that there are no rules, where that is hardly meant: peers log in over the network, or
    the section is written and has none.
    """
    if file.policy.rules:
        return
    everything = "everything is allowed to everybody who gets in"
    if "policy" in file.where.keys:
        yield Problem(file.where.of("policy"), f"policy: it has no rules: {everything}")
    elif any(not (each.bind.is_loopback or each.admits_anybody) for each in file.listeners):
        yield Problem(file.where.section, f"there is no policy: {everything}")
