import pytest
import yaml

from router.service.config import document
from router.service.config.document import (
    DEEPEST_NESTING,
    Entries,
    Items,
    Node,
    Scalar,
    parse_document,
)
from router.service.config.problems import ConfigError, Problem


def parse(text: str) -> Node | None:
    problems: list[Problem] = []
    root = parse_document(text, "r.yaml", problems.append)
    assert not problems
    return root


def failure(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        parse_document(text, "r.yaml", lambda problem: None)
    (problem,) = caught.value.problems
    return str(problem)


def test_every_value_knows_its_line_and_column() -> None:
    root = parse("a: 1\nb:\n  - x\n  - {c: y}\n")
    assert isinstance(root, Entries)
    key, items = root.entries["b"]
    assert str(key.position) == "r.yaml:2:1"
    assert isinstance(items, Items)
    first, second = items.items
    assert str(first.position) == "r.yaml:3:5"
    assert isinstance(second, Entries)
    assert str(second.entries["c"][1].position) == "r.yaml:4:9"


@pytest.mark.parametrize("text", ["off", "0123", "1_0", "2026-01-01", "1e3", "~x"])
def test_scalars_keep_the_text_that_was_written(text: str) -> None:
    root = parse(text)
    assert isinstance(root, Scalar)
    assert root.text == text
    assert not root.is_null


@pytest.mark.parametrize(("text", "is_null"), [("~", True), ("null", True), ("'null'", False)])
def test_only_a_plain_null_is_null(text: str, is_null: bool) -> None:
    root = parse(text)
    assert isinstance(root, Scalar)
    assert root.is_null is is_null


def test_empty_document_has_no_root() -> None:
    assert parse("# nothing\n") is None


def test_aliases_stand_for_what_their_anchors_hold() -> None:
    root = parse("a: &x {k: v}\nb: *x\n")
    assert isinstance(root, Entries)
    assert root.entries["b"][1] is root.entries["a"][1]


def test_keys_given_twice_are_reported_and_the_first_one_counts() -> None:
    problems: list[Problem] = []
    root = parse_document("a: 1\nb: 2\na: 3\n", "r.yaml", problems.append)
    assert [str(each) for each in problems] == [
        "r.yaml:3:1: key 'a' is given twice, first in line 1; join them"
    ]
    assert isinstance(root, Entries)
    value = root.entries["a"][1]
    assert isinstance(value, Scalar)
    assert value.text == "1"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: [1,\nb: 2", "r.yaml:3:1: not YAML: while parsing a flow sequence"),
        ("a: *.x", "r.yaml:1:5: not YAML: while scanning an alias"),
        ("a: 1\nb: \x07", "r.yaml:2:4: not YAML: "),
        ("a: *b", "r.yaml:1:4: alias '*b' has no anchor before it"),
        ("a: &b [*b]", "r.yaml:1:8: alias '*b' contains itself"),
        ("a: !!python/name:os.system x", "r.yaml:1:4: tag "),
        ("a: 1\n---\nb: 2", "r.yaml:2:1: a second YAML document begins"),
        ("[x]: 1", "r.yaml:1:1: a key must be a plain text"),
        ("a: \ud800", "r.yaml:1:1: the text cannot be encoded"),
    ],
)
def test_what_cannot_be_used_is_refused_with_its_place(text: str, problem: str) -> None:
    assert failure(text).startswith(problem)


WILDCARD = "a '#' after a space or a bracket begins a comment: a pattern with it needs quotes"


def test_pattern_without_quotes_gets_a_hint() -> None:
    assert failure("a: *.x").endswith("a text that begins with '*' needs quotes")


@pytest.mark.parametrize("opening", ["[", "{a: ", "- "])
def test_nesting_is_bounded(opening: str) -> None:
    assert f"nested more than {DEEPEST_NESTING} levels" in failure(opening * 100_000)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("a:\n\t- b\n", "there is a tab: YAML is indented with spaces"),
        ("a:\n  - b: c\n\td: e\n", "there is a tab: YAML is indented with spaces"),
        ("a: *.x", "a text that begins with '*' needs quotes"),
        ("a: {url: amqp://u:${X}@h}\n", "between { and } a text with '${' needs quotes"),
        ("a:\n  - b: c\n   d: e\n", "is it indented like its neighbors, which begin in line 2?"),
        (
            "a:\n  b: c\n   d: e\n",
            "is it indented too far, or does a text with ': ' in it want quotes?",
        ),
        ('a: b\nc: "d\n', "the quotes are opened in line 2"),
        ("a: b\nc: [d\n", "the bracket is opened in line 2"),
        ("a: b\nc: [d,  # not all\n", "the bracket is opened in line 3"),
        ("a: b\nc: {d: #, e: f}\n", WILDCARD),
        ("a: b\nc: [#]\nd: e\n", WILDCARD),
        ("a: {d: orders. #, e: f}\n", WILDCARD),
    ],
)
def test_a_usual_slip_is_told_with_the_way_out(text: str, hint: str) -> None:
    problem = failure(text)
    assert "not YAML: " in problem
    assert problem.endswith(f"; {hint}")


def test_half_a_character_is_refused_at_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document, "_LOADER", yaml.SafeLoader)  # libyaml's refuses it by itself
    with pytest.raises(ConfigError) as caught:
        parse_document('a: "x\\ud800"', "f", lambda _: None)
    assert str(caught.value).startswith("f:1:4: ")
