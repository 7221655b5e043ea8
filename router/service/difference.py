"""What differs between two configurations, in the words of the file."""

import enum
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final, TypeVar

import attrs

from router.routes.route import Guarantee, Position
from router.service.assembly import named_listeners
from router.service.config import Problem, RouterConfig
from router.service.config.home_rules import moved
from router.service.config.options import DEFAULT_POSITION, Placed, options_of
from router.service.config.process import HomeScope, Router

AT_RESTART: Final[Mapping[str, frozenset[str]]] = {
    "router": frozenset(each.attribute for each in options_of(Router)) - {"ledger", "wait_for"},
    "limits": frozenset(
        (
            "attempts",
            "connection_octets",
            "expiry_seconds",
            "hop_limit",
            "linger_seconds",
            "link_credit",
            "max_message_octets",
            "process_octets",
            "suspended_links",
        )
    ),
}
"""Options, by section, that a reload does not change but reports; the reference of the options says
so, too. The other limits apply to new connections; ``router.ledger`` is in force by the routes."""


class Change(enum.StrEnum):
    """How an entry changed."""

    ADDED = "added"
    REMOVED = "removed"
    CHANGED = "changed"


@attrs.frozen(kw_only=True)
class Difference:
    """One entry that differs.

    Attributes:
        section: of the file: router, listeners, containers, routes, limits or policy.
        name: the entry's; None for sections that have no entries.
        options: those of its options that differ, if it was changed.
        waits_for_restart: a reload does not change these options.
        kept: unsettled exactly-once deliveries that wait for a route of their address, because
            this entry's route was removed or its direction was reversed.
        effects: what becomes of it, in phrases (``rehearsal``).
    """

    section: str
    name: str | None
    change: Change
    options: tuple[str, ...] = ()
    waits_for_restart: bool = False
    kept: int = 0
    effects: tuple[str, ...] = ()


def compare(old: RouterConfig, new: RouterConfig) -> list[Difference]:
    """Lists what differs, section by section, in the order of the files.

    Args:
        old: what runs (``in_force``).
        new: what the file says.
    """
    return [
        *(
            _explained(each, old, new)
            for each in _compare_section("router", old.router, new.router)
        ),
        *_compare_entries("listeners", named_listeners(old), named_listeners(new)),
        *_compare_entries("containers", old.containers, new.containers),
        *_compare_entries("routes", _named_routes(old), _named_routes(new)),
        *_compare_entries("mesh", _named_mesh(old), _named_mesh(new)),
        *_compare_section("limits", old.limits, new.limits),
        *_compare_section("policy", old.policy, new.policy),
    ]


def in_force(running: RouterConfig, file: RouterConfig) -> RouterConfig:
    """Returns what runs after a reload: the file, but for what waits for a restart."""
    return attrs.evolve(
        file,
        router=_kept(running.router, file.router, AT_RESTART["router"]),
        limits=_kept(running.limits, file.limits, AT_RESTART["limits"]),
    )


S = TypeVar("S", bound=Placed)


def _kept(running: S, file: S, names: Collection[str]) -> S:
    """Returns a section of the file with the values of some options that run."""
    fields = (each for each in attrs.fields(type(file)) if each.name in names)
    return attrs.evolve(file, **{each.alias: getattr(running, each.name) for each in fields})


def awaiting(differences: Iterable[Difference]) -> tuple[str, ...]:
    """Returns the options whose values in the file wait for a restart, as ``limits.attempts``."""
    return tuple(
        f"{each.section}.{option}"
        for each in differences
        if each.waits_for_restart
        for option in each.options
    )


def refusals(old: RouterConfig, new: RouterConfig) -> Iterator[Problem]:
    """Yields what makes a valid file unfit for a reload: the workers that run are kept.

    An empty file is more often one that is just being written than one that is meant.
    """
    if new.is_empty and not old.is_empty:
        problem = (
            "the file is empty: is it being written? A reload would remove every route and"
            " listener: if that is meant, write 'routes: []', or start router run again"
        )
        yield Problem(Position(new.file, 1, 1), problem)
        return
    if old.mesh is not None and new.mesh is None:
        problem = "mesh: a reload does not leave a mesh: start router run again"
        yield Problem(Position(new.file, 1, 1), problem)
    if old.mesh is not None and new.mesh is not None:
        if bool(old.mesh.edge) is not bool(new.mesh.edge):
            problem = "mesh: a reload makes no edge of a site, and no site of an edge"
            yield Problem(new.mesh.where.section, f"{problem}: start router run again")
    yield from home_refusals(old, new)
    running = old.router.workers
    if running == 1 or new.router.workers != 1:
        return
    for route in new.table.routes:
        containers = [new.containers.get(each.container) for each in route.endpoints]
        dials_in = any(each is not None and each.dials_in for each in containers)
        if dials_in and route.guarantee is Guarantee.EXACTLY_ONCE:
            problem = (
                "guarantee: exactly-once with a container that dials in needs one worker;"
                f" {running} run, and a reload ends none: start router run again"
            )
            yield Problem(route.position or Position(new.file, 1, 1), problem)


def home_refusals(old: RouterConfig, new: RouterConfig) -> Iterator[Problem]:
    """Yields what would give an exactly-once address another home."""
    if old.router.homes is not new.router.homes:
        yield _other_scope(old, new)
        return
    found = moved(old.table, new.table) if old.router.homes is HomeScope.ALL else None
    if found is not None:
        changed, kept = found
        same = "" if changed.address == kept.address else f", by the change of '{changed.address}'"
        problem = (
            f"homes: all: addresses of '{kept.address}' would be kept by another worker{same}, and"
            " a reload moves no links: start router run again"
        )
        yield Problem(changed.position or Position(new.file, 1, 1), problem)


def _other_scope(old: RouterConfig, new: RouterConfig) -> Problem:
    before, after, where = old.router.homes.value, new.router.homes.value, new.router.where
    is_given = "homes" in where.keys
    what = f"homes: {after}" if is_given else f"router.homes is missing, which means '{after}'"
    problem = (
        f"{what}: the router has begun with '{before}', and a reload moves no links:"
        f" write 'homes: {before}', or start router run again"
    )
    section = Position(new.file, 1, 1) if where.section is DEFAULT_POSITION else where.section
    return Problem(where.keys.get("homes", section), problem)


def _explained(difference: Difference, old: RouterConfig, new: RouterConfig) -> Difference:
    """Adds to a changed number of workers what becomes of those that run."""
    if "workers" not in difference.options:
        return difference
    before, after = old.router.workers, new.router.workers
    effect = (
        f"workers: {before} run, {after} in the file: a reload starts and ends none, and those that"
        " run keep their connections; router run on the same state directory takes over"
        f" with {after} and lets the running process drain"
    )
    return attrs.evolve(difference, effects=(effect,))


def _named_mesh(config: RouterConfig) -> dict[str, attrs.AttrsInstance]:
    return {} if config.mesh is None else {config.router.id: config.mesh}


def _named_routes(config: RouterConfig) -> dict[str, attrs.AttrsInstance]:
    return {route.address: route for route in config.routes}


def _compare_entries(
    section: str,
    old: Mapping[str, attrs.AttrsInstance],
    new: Mapping[str, attrs.AttrsInstance],
) -> Iterator[Difference]:
    for name in old:
        if name not in new:
            yield Difference(section=section, name=name, change=Change.REMOVED)
    for name, entry in new.items():
        if name not in old:
            yield Difference(section=section, name=name, change=Change.ADDED)
        elif entry != old[name]:
            yield Difference(
                section=section,
                name=name,
                change=Change.CHANGED,
                options=_options(old[name], entry),
            )


def _compare_section(
    section: str, old: attrs.AttrsInstance, new: attrs.AttrsInstance
) -> Iterator[Difference]:
    deferred = AT_RESTART.get(section, frozenset())
    options = _options(old, new)
    for waits in (False, True):
        some = tuple(each for each in options if (each in deferred) is waits)
        if some:
            yield Difference(
                section=section,
                name=None,
                change=Change.CHANGED,
                options=some,
                waits_for_restart=waits,
            )


def _options(old: attrs.AttrsInstance, new: attrs.AttrsInstance) -> tuple[str, ...]:
    return tuple(
        field.name.rstrip("_")
        for field in attrs.fields(type(new))
        if field.eq and getattr(old, field.name) != getattr(new, field.name)
    )
