"""The tables of rules: what each specification demands, and the test that shows that it is kept.

``tests/rules/<protocol>/*.yaml`` list every sentence of a specification that binds, by section, in
words of our own. A rule is *kept* (``seen`` says what a peer sees), *refused* on purpose
(``refused`` says what a peer gets instead) or *not applicable* (``not_applicable`` says why); the
first two name tests. ``test_tables.py`` checks the tables, ``tests/conftest.py`` that every named
test ran, and ``python -m tests.rules.tables`` writes ``docs/conformance.md`` from them.
"""

import ast
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeVar

import attrs
import yaml

_T = TypeVar("_T")

PAGE: Final = Path("docs/conformance.md")
FOLDER: Final = Path("tests/rules")

PROTOCOLS: Final = {
    "v1_0": "AMQP 1.0",
    "v0_9_1": "AMQP 0-9-1",
    "v0_9r1": "AMQP 0.9r1, the draft",
    "v0_10": "AMQP 0-10",
    "fast": "AMQP/Fast",
}
"""Folder → what people call the protocol, in the order of the page."""

COUNTS: Final = FOLDER / "counts.yaml"
"""How many sentences of each section of a text bind; the file says how they were counted."""

COUNTED: Final = {
    "v1_0": "246 words: MUST, SHOULD, SHALL, REQUIRED",
    "v0_10": "146 rules and 78 exceptions of the XML",
}
"""Folder → what a program counts in a text whose sections are not in ``COUNTS``. More sentences
bind than say so by these words: those that describe what a peer sends, and what errors there are,
are counted as well."""

STATES: Final = {"seen": "kept", "refused": "refused", "not_applicable": "not applicable"}
"""Key of a rule → what the page calls a rule that has it."""

ROLES: Final = ("peer", "server", "both")
LEVELS: Final = ("must", "should")


class TableError(Exception):
    """An entry of a table breaks the format; the text names file, entry and what is wrong."""


@attrs.frozen(kw_only=True)
class Rule:
    """What one sentence of a specification demands, or several that say the same.

    Attributes:
        id: unique within the protocol; begins with the section.
        role: whom it binds: ``peer``, ``server`` (the router), ``both``.
        level: ``must`` or ``should``.
        rule: the demand.
        state: ``kept``, ``refused`` or ``not applicable``.
        text: what a peer sees, what it gets instead, or why the rule does not hold.
        tests: what shows it, as ``file.py::test_name`` without parameters.
        sentences: how many sentences of the specification it stands for.
    """

    id: str
    role: str
    level: str
    rule: str
    state: str
    text: str
    tests: tuple[str, ...]
    sentences: int


@attrs.frozen
class Count:
    """What was counted in one section of a text.

    Attributes:
        words: sentences with a word that binds.
        sentences: all that bind, those that describe what a peer sends or gets among them.
    """

    words: int
    sentences: int


@attrs.frozen(kw_only=True)
class Section:
    """A section of a specification that has binding sentences.

    Attributes:
        part: the part of the specification.
        number: its number, or the class and method of protocols that have those.
        title: what it is about.
        binding: how many sentences of the text bind.
        rules: what they demand.
    """

    part: str
    number: str
    title: str
    binding: int
    rules: tuple[Rule, ...]


@cache
def load() -> Mapping[str, Sequence[Section]]:
    """Returns the sections of each protocol, by the protocol's folder.

    Raises:
        TableError: a table breaks the format.
    """
    return {folder: tuple(_sections(FOLDER / folder)) for folder in PROTOCOLS}


@cache
def counts() -> Mapping[str, Mapping[str, Count]]:
    """Returns what was counted in the texts, by the protocol's folder and the section's number."""
    read = yaml.load(COUNTS.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
    return {
        folder: {number: Count(*pair) for number, pair in sections.items()}
        for folder, sections in read.items()
    }


def differences(folder: str) -> list[str]:
    """Returns the sections in which the table stands for more or fewer sentences than the text."""
    text = {number: count.sentences for number, count in counts()[folder].items()}
    table = Counter[str]()
    for section in load()[folder]:
        table[section.number] += section.binding
    return [
        f"{number}: {text.get(number, 0)} in the text, {table[number]} in the table"
        for number in sorted(text.keys() | table.keys())
        if text.get(number, 0) != table[number]
    ]


def named_tests() -> frozenset[str]:
    """Returns every test that some rule names."""
    tables = load().values()
    return frozenset(test for table in tables for rule in rules_of(table) for test in rule.tests)


def rules_of(sections: Sequence[Section]) -> Iterator[Rule]:
    """Yields the rules of these sections."""
    for section in sections:
        yield from section.rules


def tests_in(path: Path) -> frozenset[str]:
    """Returns the tests that a file defines, as ``file.py::test_name``."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = (
        node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )
    return frozenset(f"{path.as_posix()}::{name}" for name in found if name.startswith("test_"))


def _sections(folder: Path) -> Iterator[Section]:
    for path in sorted(folder.glob("*.yaml")):
        table = yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
        part = _take(table, "part", str, path.as_posix())
        for entry in _take(table, "sections", list, path.as_posix()):
            yield _section(part, entry, path.as_posix())


def _section(part: str, entry: Mapping[str, Any], where: str) -> Section:
    number = _take(entry, "section", str, where)
    place = f"{where}: section {number}"
    section = Section(
        part=part,
        number=number,
        title=_take(entry, "title", str, place),
        binding=_take(entry, "binding_words", int, place),
        rules=tuple(_rule(rule, place) for rule in _take(entry, "rules", list, place)),
    )
    sentences = sum(rule.sentences for rule in section.rules)
    if not section.rules or sentences != section.binding:
        raise TableError(
            f"{place}: {section.binding} sentences bind, the rules stand for {sentences}"
        )
    return section


def _rule(entry: Mapping[str, Any], place: str) -> Rule:
    place = f"{place}: rule {_take(entry, 'id', str, place)}"
    states = STATES.keys() & entry.keys()
    if len(states) != 1:
        raise TableError(f"{place}: exactly one of {', '.join(STATES)}")
    state = states.pop()
    rule = Rule(
        id=entry["id"],
        role=_one_of(entry, "role", ROLES, place),
        level=_one_of(entry, "level", LEVELS, place),
        rule=_take(entry, "rule", str, place),
        state=STATES[state],
        text=_take(entry, state, str, place),
        tests=tuple(entry.get("tests", ())),
        sentences=entry.get("sentences", 1),
    )
    if bool(rule.tests) == (state == "not_applicable"):
        raise TableError(f"{place}: {rule.state}, so {'no' if rule.tests else 'some'} tests")
    if unknown := entry.keys() - {*STATES, *attrs.fields_dict(Rule)}:
        raise TableError(f"{place}: no such key: {', '.join(sorted(unknown))}")
    return rule


def _take(entry: Mapping[str, Any], key: str, kind: type[_T], place: str) -> _T:
    value = entry.get(key)
    if not isinstance(value, kind):
        raise TableError(f"{place}: {key} is to be of type {kind.__name__}, is {value!r}")
    return value


def _one_of(entry: Mapping[str, Any], key: str, values: Sequence[str], place: str) -> str:
    value = _take(entry, key, str, place)
    if value not in values:
        raise TableError(f"{place}: {key} is one of {', '.join(values)}, not {value}")
    return value


def page() -> str:
    """Returns ``docs/conformance.md`` as the tables say it."""
    loaded = {folder: sections for folder, sections in load().items() if sections}
    lines = [*_INTRODUCTION.splitlines(), ""]
    lines += _table("Protocol", "In the text", "Binding sentences", "Rules", *STATES.values())
    for folder, sections in loaded.items():
        lines.append(_row(PROTOCOLS[folder], _counted(folder), *_figures(sections)))
    for folder, sections in loaded.items():
        protocol, counted = PROTOCOLS[folder], counts().get(folder, {})
        lines += ["", f"## {protocol}", *_refusals(sections)]
        for part in dict.fromkeys(section.part for section in sections):
            of_part = [section for section in sections if section.part == part]
            lines += ["", f"### {protocol}: {part}", "", *_by_section(of_part, counted)]
            lines += ["", *_by_rule(of_part)]
    return "\n".join(lines) + "\n"


_INTRODUCTION: Final = """\
# Conformance

Which sentence of its specification the router keeps, for each protocol. This page is made from the
tables in `tests/rules` by `python -m tests.rules.tables`. A test shows each rule that is kept or
refused, and a run of the test suite fails if such a test did not run.

*Kept*: with what a peer sees. *Refused*: on purpose, with what a peer gets instead.
*Not applicable*: with the reason why the rule does not hold for a router. A rule binds the peer,
the server (the router) or both. *Binding sentences* are counted in the text of the specification,
with or without one of the words that a program can count (*in the text*); a rule may stand for
several sentences that say the same. For AMQP 0-9-1, the draft and AMQP/Fast both are counted by
section (`tests/rules/counts.yaml`): the sentences with such a word by a program, and all that bind
by reading the text beside the table. The suite fails if a table stands for more or fewer."""


def _counted(folder: str) -> str:
    if folder not in counts():
        return COUNTED[folder]
    found = counts()[folder].values()
    words, sentences = sum(one.words for one in found), sum(one.sentences for one in found)
    return f"{sentences} sentences, {words} with a word that says so"


def _refusals(sections: Sequence[Section]) -> Iterator[str]:
    refused = [rule for rule in rules_of(sections) if rule.state == "refused"]
    if refused:
        yield from ("", "Refused on purpose:", "")
        yield from _table("Rule", "What it demands", "What a peer gets")
        yield from (_row(rule.id, rule.rule, rule.text) for rule in refused)


def _by_section(sections: Sequence[Section], counted: Mapping[str, Count]) -> Iterator[str]:
    text = ("In the text, with a word", "In the text") if counted else ()
    head = "In the table" if counted else "Binding sentences"
    yield from _table("Section", "About", *text, head, "Rules", *STATES.values())
    for section in sections:
        count = attrs.astuple(counted[section.number]) if counted else ()
        yield _row(section.number, section.title, *count, *_figures([section]))


def _by_rule(sections: Sequence[Section]) -> Iterator[str]:
    yield from _table("Rule", "Binds", "What it demands", "", "What is seen, or why not")
    for rule in rules_of(sections):
        yield _row(rule.id, f"{rule.role}, {rule.level}", rule.rule, rule.state, rule.text)


def _figures(sections: Sequence[Section]) -> tuple[object, ...]:
    states = Counter(rule.state for rule in rules_of(sections))
    figures = (states[state] for state in STATES.values())
    return (sum(section.binding for section in sections), states.total(), *figures)


def _table(*heads: str) -> list[str]:
    return [_row(*heads), "|" + "---|" * len(heads)]


def _row(*cells: object) -> str:
    return "| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
