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


LIFE = {
    "unsettled", "adrift", "outgoing_number", "outgoing_tag", "is_settled", "is_unusual",
    "outcome", "tried", "barred", "attempts", "doubts", "failure", "was_in_doubt",
}  # fmt: skip
"""Fields of links and pairings that ``links/life.py`` writes."""
OF_PAIRINGS = {"incoming", "outgoing", "number", "reported"}
"""The same, of pairings; other records have fields of these names."""
CREDIT = {
    "credit", "ahead", "width", "is_draining", "is_emptying", "next_number", "lane_unsettled",
}  # fmt: skip
"""Fields of links that only their own methods write."""
GATHERED = {"run", "update_numbers", "update_state", "update_settled"}
"""Fields of links that the turn writes."""
PAIRINGS = {"pairing", "branch", "sink", "trunk", "found"}
OTHERS = {
    "self", "_attacher", "_courses", "_granter", "entry", "found", "joint", "ledger", "passage",
    "node", "reduction", "route", "share", "source", "target",
}  # fmt: skip
"""Records of other kinds, which have fields of these names too."""


def written(tree: ast.AST) -> Iterator[ast.Attribute]:
    """Finds attributes that are assigned to, deleted, or changed in place, by a name or not."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            yield from _written_by_name(node)
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


def _written_by_name(function: ast.FunctionDef) -> Iterator[ast.Attribute]:
    """Finds attributes that a function gives names of its own and changes by these."""
    names: dict[str, ast.Attribute] = {}
    for node in ast.walk(function):
        if not isinstance(node, ast.Assign):
            continue
        for target in node.targets:
            match target, node.value:
                case ast.Tuple(elts=targets), ast.Tuple(elts=values):
                    pairs = list(zip(targets, values, strict=False))
                case _:
                    pairs = [(target, node.value)]
            for to, value in pairs:
                if isinstance(to, ast.Name) and isinstance(value, ast.Attribute):
                    names[to.id] = value
    for node in ast.walk(function):
        match node:
            case ast.Subscript(value=ast.Name(id=name), ctx=ast.Store() | ast.Del()):
                if name in names:
                    yield names[name]
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=method)):
                if name in names and method in CHANGING:
                    yield names[name]


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


def life_faults(tree: ast.AST) -> list[str]:
    """Places where it is written of a delivery where it stands."""
    return [
        f"{node.lineno}: {ast.unparse(node)}"
        for node in written(tree)
        if (node.attr in LIFE and name_of(node.value) not in OTHERS)
        or (node.attr in OF_PAIRINGS and name_of(node.value) in PAIRINGS)
    ]


def test_nobody_but_the_life_of_deliveries_writes_where_they_stand() -> None:
    faults = {
        path: found
        for path, tree in modules("core", "links").items()
        if path not in {"links/life.py", "core/link_ledgers.py"}  # the latter has maps of its own
        and (found := life_faults(tree))
    }
    assert faults == {}


@pytest.mark.parametrize(
    "source",
    [
        "link.unsettled[number] = pairing",
        "del link.adrift[tag]",
        "link.unsettled.pop(number, None)",
        "pairing.outgoing = link",
        "for branch in fan: branch.outcome = state",
        "pairing.outcome = pairing.reported = outcome",
        "def f():\n    sent, unsettled = link.unsettled, incoming.unsettled\n    del sent[number]",
        "pairing.attempts += 1",
    ],
)
def test_writing_where_a_delivery_stands_is_found(source: str) -> None:
    assert life_faults(ast.parse(source)) != []


def link_faults(tree: ast.AST, fields: set[str]) -> list[str]:
    """Places where fields of links are written."""
    return [
        f"{node.lineno}: {ast.unparse(node)}"
        for node in written(tree)
        if node.attr in fields and name_of(node.value) not in OTHERS
    ]


@pytest.mark.parametrize(
    ("fields", "owners"),
    [
        (CREDIT, {"links/link.py"}),
        (GATHERED, {"core/turn.py"}),
        ({"queued"}, {"core/node.py", "links/link.py"}),
        ({"is_express"}, {"core/lanes.py"}),
    ],
)
def test_nobody_but_their_owners_writes_what_links_say(fields: set[str], owners: set[str]) -> None:
    faults = {
        path: found
        for path, tree in modules("core", "links").items()
        if path not in owners and (found := link_faults(tree, fields))
    }
    assert faults == {}


@pytest.mark.parametrize(
    "source", ["link.credit -= 1", "link.credit = link.width = 0", "incoming.is_draining = True"]
)
def test_writing_the_credit_of_a_link_is_found(source: str) -> None:
    assert link_faults(ast.parse(source), CREDIT) != []
