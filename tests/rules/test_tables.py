"""The tables of rules are sound, name tests that exist, and make the page of conformance."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.rules import tables
from tests.rules.tables import PROTOCOLS, TableError


@pytest.mark.parametrize("folder", PROTOCOLS)
def test_every_rule_has_a_name_of_its_own(folder: str) -> None:
    ids = [rule.id for rule in tables.rules_of(tables.load()[folder])]
    assert sorted(set(ids)) == sorted(ids)


def test_every_named_test_exists() -> None:
    named = tables.named_tests()
    files = {Path(test.partition("::")[0]) for test in named}
    missing = sorted(str(file) for file in files if not file.is_file())
    assert missing == []
    there = frozenset[str]().union(*map(tables.tests_in, files))
    assert sorted(named - there) == []


def test_the_page_of_conformance_says_what_the_tables_say() -> None:
    """Written anew by ``python -m tests.rules.tables``."""
    assert tables.PAGE.read_text(encoding="utf-8") == tables.page()


@pytest.mark.parametrize("folder", tables.counts())
def test_a_table_stands_for_as_many_sentences_as_its_text_has(folder: str) -> None:
    assert tables.differences(folder) == []


@pytest.mark.parametrize("folder", tables.counts())
def test_no_section_has_more_words_that_bind_than_sentences_that_do(folder: str) -> None:
    counted = tables.counts()[folder].items()
    assert [number for number, count in counted if count.words > count.sentences] == []


def test_a_section_that_a_table_lacks_is_a_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = {**tables.counts(), "fast": {**tables.counts()["fast"], "9.9": tables.Count(1, 2)}}
    monkeypatch.setattr(tables, "counts", lambda: texts)
    assert tables.differences("fast") == ["9.9: 2 in the text, 0 in the table"]


GOOD = {
    "id": "1-a",
    "role": "both",
    "level": "must",
    "rule": "Somebody does something.",
    "seen": "It is done.",
    "tests": ["tests/rules/test_tables.py::test_every_named_test_exists"],
}


def section(rule: Mapping[str, object], binding: int = 1) -> dict[str, object]:
    return {"section": "1", "title": "One", "binding_words": binding, "rules": [rule]}


def test_a_table_is_read() -> None:
    read = tables._section("Part", section(GOOD), "table")
    assert [(rule.id, rule.state, rule.sentences) for rule in read.rules] == [("1-a", "kept", 1)]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"role": "client"}, "role is one of peer, server, both, not client"),
        ({"level": "may"}, "level is one of must, should, not may"),
        ({"tests": []}, "kept, so some tests"),
        ({"refused": "Not so."}, "exactly one of"),
        ({"seen": 5}, "seen is to be of type str, is 5"),
        ({"note": "x"}, "no such key: note"),
        ({"sentences": 2}, "1 sentences bind, the rules stand for 2"),
    ],
)
def test_a_table_that_breaks_the_format_is_refused(change: dict[str, object], why: str) -> None:
    with pytest.raises(TableError, match=why):
        tables._section("Part", section({**GOOD, **change}), "table")
