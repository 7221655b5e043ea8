import contextlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.routes.route import Distribution, Position
from router.service.config.document import parse_document
from router.service.config.kinds import Kind, ListOf, MapOf, OrWord, Reading
from router.service.config.problems import UnfitError
from router.service.config.references import Secret, Sources
from router.service.config.scalars import (
    FilePath,
    Flag,
    Octets,
    OneOf,
    Seconds,
    SecretText,
    Text,
    Whole,
)

HERE = Position("r.yaml", 1, 1)


def read(kind: Kind[Any], text: str, directory: Path = Path()) -> Any:
    reading = Reading(Sources({"N": "7"}, directory))
    node = parse_document(text, "r.yaml", reading.problems.append)
    assert node is not None
    value = kind.read(node, "key", reading)
    assert not reading.problems
    return value


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (Seconds(), "30s", 30.0),
        (Seconds(), "5m", 300.0),
        (Seconds(), "250ms", 0.25),
        (Seconds(), "1.5h", 5400.0),
        (Seconds(), "1d", 86400.0),
        (Seconds(), "12", 12.0),
        (Seconds(), "0", 0.0),
        (Octets(), "64KiB", 65536),
        (Octets(), "1MiB", 1 << 20),
        (Octets(), "2GB", 2 * 10**9),
        (Octets(), "1kB", 1000),
        (Octets(), "100", 100),
        (Octets(), "3B", 3),
        (Whole(), "10_000", 10_000),
        (Whole(), "${N}", 7),
        (Flag(), "true", True),
        (Flag(), "no", False),
        (Flag(), "Off", False),
        (Text(), "no", "no"),
        (Text(), "a${N}", "a7"),
        (SecretText(), "x", Secret("x")),
        (OneOf(Distribution), "closest", Distribution.CLOSEST),
        (OrWord(Whole(1)), "none", None),
        (OrWord(Whole(1)), "3", 3),
        (ListOf(Whole()), "[1, 2]", (1, 2)),
        (ListOf(Whole()), "3", (3,)),
        (ListOf(Whole()), "~", ()),
        (MapOf(Whole()), "{a: 1}", {"a": 1}),
        (MapOf(Whole()), "~", {}),
        (FilePath(must_exist=False), "x", Path("x")),
    ],
)
def test_values_are_read(kind: Kind[Any], text: str, value: object) -> None:
    assert read(kind, text) == value


@pytest.mark.parametrize(
    ("kind", "text", "reason"),
    [
        (Seconds(), "30x", "'30x' is not a duration such as 30s, 5m or 250ms"),
        (Seconds(), "-1", "'-1' is not a duration"),
        (Seconds(1.0), "0.5", "'0.5' is below the minimum, 1"),
        (Octets(), "1TB", "'1TB' is not a size"),
        (Octets(), "1kiB", "'1kiB' is not a size"),
        (Octets(512), "10", "below the minimum, 512"),
        (Whole(1, 5), "6", "above the maximum, 5"),
        (Whole(), "1.5", "is not a whole number"),
        (Whole(), "٣", "is not a whole number"),
        (Flag(), "maybe", "neither true nor false"),
        (Text(), "''", "is empty"),
        (Text(), "~", "has no value"),
        (Text(), "[a]", "wants a single value"),
        (SecretText(), "''", "is empty"),
        (OneOf(Distribution), "random", "one of balanced, closest, multicast"),
        (ListOf(Whole()), "{a: 1}", "wants a single value"),
        (MapOf(Whole()), "[1]", "wants a name"),
        (FilePath(), "gone", "cannot read gone: No such file"),
        (FilePath(), '"\\0"', "is not a path"),
    ],
)
def test_unfit_values_are_refused_with_a_reason(kind: Kind[Any], text: str, reason: str) -> None:
    with pytest.raises(UnfitError) as caught:
        read(kind, text)
    assert reason in caught.value.reason


def test_one_bad_item_does_not_hide_the_next() -> None:
    reading = Reading(Sources({}, Path()))
    node = parse_document("[1, x, 2, y]", "r.yaml", reading.problems.append)
    assert node is not None
    assert ListOf(Whole()).read(node, "key", reading) == (1, 2)
    assert [str(problem.position) for problem in reading.problems] == ["r.yaml:1:5", "r.yaml:1:11"]
    assert reading.problems[0].problem.startswith("key[1]: 'x'")


def test_bad_names_of_a_map_are_reported() -> None:
    reading = Reading(Sources({}, Path()))
    node = parse_document("{a/b: 1, c: 2}", "r.yaml", reading.problems.append)
    assert node is not None
    assert MapOf(Whole(), "[a-z]+", "container name").read(node, "key", reading) == {"c": 2}
    assert str(reading.problems[0]) == "r.yaml:1:2: key: 'a/b' is no container name"


@given(st.integers(0, 10**9))
def test_durations_are_written_as_they_are_read(milliseconds: int) -> None:
    kind = Seconds(maximum=1e9)
    assert kind.parse(kind.show(milliseconds / 1000)) == milliseconds / 1000


@given(st.integers(0, 2**50))
def test_sizes_are_written_as_they_are_read(octets: int) -> None:
    assert Octets().parse(Octets().show(octets)) == octets


@given(st.text(min_size=1))
def test_scalar_kinds_refuse_any_text_only_with_unfit(text: str) -> None:
    kinds = (
        Seconds(),
        Octets(),
        Whole(),
        Flag(),
        OneOf(Distribution),
        Text("[a-z]+"),
        FilePath(must_exist=False),
    )
    for kind in kinds:
        with contextlib.suppress(UnfitError):
            assert kind.parse(text) is not None
