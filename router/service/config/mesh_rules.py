"""Rules about the mesh."""

from collections.abc import Iterator

from router.routes.match import equal_patterns, overlaps, parse_pattern
from router.routes.route import Guarantee
from router.routes.vhost import is_reserved
from router.service.config.file import ConfigFile
from router.service.config.mesh import Mesh
from router.service.config.problems import Problem


def mesh_problems(file: ConfigFile) -> Iterator[Problem]:
    """Yields what forbids to join the mesh as the file says, and rules that need one."""
    mesh = file.mesh
    if mesh is None:
        for rule in file.policy.rules:
            if rule.advertise is not None:
                problem = "advertise: is for routers of a mesh, and the file has no mesh"
                yield Problem(rule.where.of("advertise"), problem)
        return
    where = mesh.where
    neighbors = mesh.listen or mesh.links or mesh.edge
    if not (neighbors or where.broken & {"listen", "links", "edge"}):
        problem = "mesh: needs listen, or links, or both, or edge: it has no neighbors"
        yield Problem(where.section, problem)
    if mesh.edge:
        yield from _edge_problems(mesh)
    if file.router.id in mesh.links:
        own = mesh.links[file.router.id].where.section
        yield Problem(own, f"mesh.links: {file.router.id} is this router itself")
    if "tls" not in where.keys and not _is_loopback(mesh):
        problem = "mesh: other machines can be reached, so it needs tls: {cert, key, ca}; or off"
        yield Problem(where.section, f"{problem}, if nobody else can connect")
    yield from _pattern_problems(mesh)


def mesh_notes(file: ConfigFile) -> Iterator[Problem]:
    """Yields how routes reach over the mesh, where something else might be expected."""
    for entry in file.routes if file.mesh is not None else ():
        is_direct = entry.from_ is None and not entry.to
        is_exact = is_direct and entry.guarantee is Guarantee.EXACTLY_ONCE
        if is_exact and file.mesh is not None and file.mesh.edge:
            note = (
                f"route {entry.address} is exactly-once, which an edge and its hub do not promise"
            )
            yield Problem(entry.where.of("address"), f"{note}: its messages stay at this router")
        elif is_exact:
            note = f"route {entry.address} is exactly-once over the mesh, too: where the route is"
            end = "what a site has that is cut off waits for that site, in doubt"
            yield Problem(entry.where.of("address"), f"{note} exactly-once at both sites; {end}")
        elif not is_direct and _is_advertised(entry.address, file.mesh):
            note = f"route {entry.address} has a container, and mesh.advertise covers it"
            end = "other sites get no credit for its addresses here"
            yield Problem(entry.where.of("address"), f"{note}: {end}")


def _is_advertised(address: str, mesh: Mesh | None) -> bool:
    advertised = () if mesh is None else mesh.advertise
    return any(overlaps(parse_pattern(address), parse_pattern(text)) for text in advertised)


def _is_loopback(mesh: Mesh) -> bool:
    places = [*(each.host for each in mesh.links.values()), *mesh.edge]
    return (mesh.listen is None or mesh.listen.is_loopback) and all(
        each.is_loopback for each in places
    )


def _edge_problems(mesh: Mesh) -> Iterator[Problem]:
    for key in ("listen", "links", "advertise"):
        if getattr(mesh, key):
            problem = f"mesh.{key}: an edge has none; its hubs are in mesh.edge"
            yield Problem(mesh.where.of(key), problem)
    seen = set()
    for place in map(str, mesh.edge):
        if place in seen:
            yield Problem(mesh.where.of("edge"), f"mesh.edge: {place} is named twice")
        seen.add(place)


def _pattern_problems(mesh: Mesh) -> Iterator[Problem]:
    here = mesh.where.of("advertise")
    for text in mesh.advertise:
        if is_reserved(text):
            yield Problem(here, f"mesh.advertise: '{text}' is an address of the router's own")
    patterns = [parse_pattern(text) for text in mesh.advertise]
    for first, second in equal_patterns(patterns):
        one, other = mesh.advertise[first], mesh.advertise[second]
        yield Problem(here, f"mesh.advertise: '{one}' and '{other}' match the same addresses")
