"""The router itself as the container of dead letters: ``dead_letter: local/ADDRESS``.

``local`` means this router unless the file has a container of that name. It is a container like
others to the core: each message that goes there comes back over a connection of the worker to
itself (``service.local``), as from a client, and takes the route of its new address. While nobody
receives there, dead letters wait as they do while a broker is away.
"""

from collections.abc import Collection, Iterator, Sequence
from typing import Final

import attrs

from router.routes.table import RoutingTable
from router.service.config.containers import Container
from router.service.config.file import ConfigFile
from router.service.config.problems import Problem
from router.service.config.routing import RouteEntry

LOCAL: Final = "local"

_SAMPLE: Final = "x"
"""Stands for tokens that only a message knows."""


def with_local(file: ConfigFile, container_names: Collection[str]) -> ConfigFile:
    """Returns a file with the container ``local``, if dead letters go there and it names none."""
    ends = (entry.dead_letter for entry in file.routes)
    if LOCAL in container_names or not any(end and end.container == LOCAL for end in ends):
        return file
    return attrs.evolve(file, containers={**file.containers, LOCAL: Container(is_here=True)})


def local_problems(
    entries: Sequence[RouteEntry], file: ConfigFile, table: RoutingTable
) -> Iterator[Problem]:
    """Checks that dead letters that stay here have a route, and do not come back to their own."""
    here = file.containers.get(LOCAL)
    if here is None or not here.is_here:
        return
    for entry in entries:
        end = entry.dead_letter
        if end is None or end.container != LOCAL:
            continue
        position = entry.where.of("dead_letter")
        passed = {entry.address}
        address = _sample(end.address or entry.inner_address)
        while True:
            match = table.lookup(address)
            if match is None:
                problem = f"dead_letter: no route of this router takes '{address}': write one"
                yield Problem(position, problem)
                break
            if match.route.address in passed:
                problem = f"dead_letter: '{address}' comes back to route '{match.route.name}'"
                yield Problem(position, f"{problem}: name an address of another route")
                break
            passed.add(match.route.address)
            end = match.route.dead_letter
            if end is None or end.container != LOCAL:
                break
            address = _sample(end.address or match.route.address)


def _sample(pattern: str) -> str:
    return pattern.replace("*", _SAMPLE).replace("#", _SAMPLE)
