"""No modules of the router import each other in a ring, not even for types alone."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

RINGS = [
    # One record of the core's in two files: a link lists its deliveries, each names its links.
    {"router.links.link", "router.links.pairing", "router.links.partial"},
    # A session of AMQP 1.0 lists its links and what is unsettled on them; each link names it.
    {"router.wire.v1_0.link", "router.wire.v1_0.session"},
]
"""Rings that are known, and why they may stay."""


def modules() -> dict[str, Path]:
    found = {}
    for path in (ROOT / "router").rglob("*.py"):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imported(path: Path) -> Iterator[str]:
    """Names what a module imports, whether or not only type checkers read it."""
    for node in ast.walk(ast.parse(path.read_bytes())):
        match node:
            case ast.Import(names=names):
                yield from (each.name for each in names)
            case ast.ImportFrom(module=module, level=level, names=names):
                assert not level, f"{path}: a relative import"
                yield from (f"{module}.{each.name}" for each in names)


def graph() -> dict[str, set[str]]:
    known = modules()
    edges = {}
    for name, path in known.items():
        found = {one if one in known else one.rpartition(".")[0] for one in imported(path)}
        edges[name] = (found & known.keys()) - {name}
    return edges


def rings(edges: dict[str, set[str]]) -> list[set[str]]:
    """Finds the strongly connected components of more than one module (Tarjan 1972)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[set[str]] = []

    def visit(module: str) -> None:
        index[module] = low[module] = len(index)
        stack.append(module)
        for other in edges[module]:
            if other not in index:
                visit(other)
                low[module] = min(low[module], low[other])
            elif other in stack:
                low[module] = min(low[module], index[other])
        if low[module] == index[module]:
            at = stack.index(module)
            if len(stack) - at > 1:
                found.append(set(stack[at:]))
            del stack[at:]

    for module in sorted(edges):
        if module not in index:
            visit(module)
    return found


def test_a_ring_is_found() -> None:
    edges = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": {"e"}, "e": {"d"}, "f": {"a"}}
    assert sorted(map(sorted, rings(edges))) == [["a", "b", "c"], ["d", "e"]]


def test_modules_import_downwards_only() -> None:
    assert sorted(map(sorted, rings(graph()))) == sorted(map(sorted, RINGS))
