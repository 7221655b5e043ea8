"""Who may write what the core keeps: found in the source, for nobody else keeps to it by itself."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import router

ROOT = Path(router.__file__).parent
CHANGING = frozenset({
    "add", "append", "appendleft", "clear", "discard", "extend", "extendleft", "insert", "pop",
    "popitem", "popleft", "remove", "reverse", "rotate", "setdefault", "sort", "update",
})  # fmt: skip
"""Methods of sets, lists, deques and dicts that change them."""


def written(tree: ast.AST) -> Iterator[ast.Attribute]:
    """Finds attributes that are assigned to, deleted, or changed in place."""
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(ctx=ast.Store() | ast.Del()):
                yield node
            case ast.Subscript(value=ast.Attribute() as changed, ctx=ast.Store() | ast.Del()):
                yield changed
            case ast.AugAssign(target=ast.Subscript(value=ast.Attribute() as changed)):
                yield changed
            case ast.Call(func=ast.Attribute(value=ast.Attribute() as changed, attr=method)):
                if method in CHANGING:
                    yield changed


def name_of(node: ast.expr) -> str:
    """The last name of an expression: ``turn`` of ``self._state.turn``."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case _:
            return ""


def modules(*folders: str) -> dict[str, ast.AST]:
    """The sources of some folders, by their paths."""
    paths = [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]
    return {str(path.relative_to(ROOT)): ast.parse(path.read_text()) for path in paths}


def turn_faults(tree: ast.AST) -> list[str]:
    """Places where something of a turn is written, or looked at that is its own."""
    reads = (node for node in ast.walk(tree) if isinstance(node, ast.Attribute))
    inner = [node for node in reads if node.attr.startswith("_") and _is_turn(node.value)]
    return [
        f"{node.lineno}: {ast.unparse(node)}"
        for node in (*written(tree), *inner)
        if _is_turn(node.value)
    ]


def _is_turn(node: ast.expr) -> bool:
    return name_of(node) in {"turn", "_turn"}


def test_nobody_but_the_turn_writes_what_it_has_marked() -> None:
    faults = {
        path: found
        for path, tree in modules("core", "service").items()
        if path != "core/turn.py" and (found := turn_faults(tree))
    }
    assert faults == {}


@pytest.mark.parametrize(
    "source",
    [
        "self._turn.now = 1.0",
        "self._turn.touched[node] = None",
        "state.turn.left.update(nodes)",
        "del turn.grantable[link]",
        "turn._touched",
        "left, turn.left = turn.left, {}",
    ],
)
def test_writing_a_turn_from_outside_is_found(source: str) -> None:
    assert turn_faults(ast.parse(source)) != []


def test_marking_a_turn_by_its_methods_is_no_fault() -> None:
    assert turn_faults(ast.parse("self._turn.touch(node)\nnow = self._state.turn.now")) == []
