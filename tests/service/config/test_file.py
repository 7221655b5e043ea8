"""The deployed file and the JSON Schema say what the classes say, and nothing is missing."""

import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from router.service.config import ConfigError, json_schema, load, read
from router.service.config.document import Entries, Items, Node, parse_document
from router.service.config.file import ConfigFile, describe, sections
from router.service.config.kinds import MapOf
from router.service.config.options import Option, Placed, Section, options_of

DEPLOYED = Path(__file__).parents[3] / "deploy" / "router.yaml"
TEXT = DEPLOYED.read_text()
LINES = TEXT.splitlines()

Shown = dict[tuple[str, str], list[int]]


def test_deployed_file_passes_check(tmp_path: Path) -> None:
    for path in re.findall(r"(?:tls|secrets)/[\w.]+", TEXT):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text("x")
    (tmp_path / "router.yaml").write_text(TEXT)
    variables = dict.fromkeys(re.findall(r"\$\{([A-Z_]+)\}", TEXT), "x")
    config = load(tmp_path / "router.yaml", variables)
    assert len(config.routes) == 9
    assert config.router.workers == 2
    assert not config.notes


def test_deployed_file_without_its_secrets_is_refused_naming_each() -> None:
    with pytest.raises(ConfigError) as caught:
        load(DEPLOYED, {})
    assert "needs the environment variable EAST_PASSWORD" in str(caught.value)
    assert "needs the file secrets/west: No such file" in str(caught.value)


def test_deployed_file_fits_the_schema() -> None:
    schema = json_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(yaml.safe_load(TEXT), schema)


@pytest.mark.parametrize(
    "text",
    [
        "{rooter: {}}",
        "{router: {workers: 0}}",
        "{router: {drain_seconds: soon}}",
        "{routes: [{to: east}]}",
        "{routes: [{address: a, guarantee: twice}]}",
        "{containers: {a: {}}}",
        "{containers: {a: {url: 'http://x'}}}",
        "{containers: {a/b: {url: 'amqp://x'}}}",
        "{limits: {max_frame_octets: 64XiB}}",
        "{listeners: [{tls: {cert: x}}]}",
    ],
)
def test_schema_and_reader_refuse_the_same(text: str) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(yaml.safe_load(text), json_schema())
    with pytest.raises(ConfigError):
        read(text, "r.yaml", Path(), {})


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        "{router: , listeners: , limits: , policy: }",
        "{router: {admin: off, workers: '${N}'}}",
        "{router: {admin: {bind: 'unix:/x'}, drain_seconds: 5m}}",
        "{listeners: [], containers: , routes: [{address: a, dedup: message-id, to: b}]}",
        "{containers: {a: {url: ['amqp://x', 'amqp://y']}}}",
        "{limits: {max_message_octets: none, idle_seconds: 0.5, process_octets: 1073741824}}",
    ],
)
def test_schema_takes_every_way_of_writing(text: str) -> None:
    jsonschema.validate(yaml.safe_load(text), json_schema())


def section_of(option: Option) -> type[Placed] | None:
    kind: Any = option.kind
    while not isinstance(kind, Section) and hasattr(kind, "kind"):
        kind = kind.kind
    return kind.model if isinstance(kind, Section) else None


def shown_options() -> Shown:
    """Walks the deployed file beside the classes; gives the lines of each option's key."""
    shown: Shown = {}

    def walk(node: Node, model: type[Placed], in_map: bool = False) -> None:
        if isinstance(node, Items):
            for item in node.items:
                walk(item, model, in_map)
        elif isinstance(node, Entries) and in_map:
            for _, value in node.entries.values():
                walk(value, model)
        elif isinstance(node, Entries):
            options = {each.key: each for each in options_of(model)}
            for name, (key, value) in node.entries.items():
                shown.setdefault((model.__name__, name), []).append(key.position.line)
                inner = section_of(options[name])
                if inner is not None:
                    walk(value, inner, isinstance(options[name].kind, MapOf))

    root = parse_document(TEXT, "router.yaml", lambda problem: None)
    assert root is not None
    walk(root, ConfigFile)
    return shown


ALL_OPTIONS = [(model, each) for model in sections().values() for each in options_of(model)]


def comment_above(line: int) -> str:
    """Gives the comment before a line (counted from 1), as one text."""
    words: list[str] = []
    for above in reversed(LINES[: line - 1]):
        if not above.lstrip().startswith("# "):
            break
        words.insert(0, above.lstrip()[2:])
    return " ".join(words)


@pytest.mark.parametrize(
    ("model", "option"), ALL_OPTIONS, ids=[f"{m.__name__}.{o.key}" for m, o in ALL_OPTIONS]
)
def test_deployed_file_shows_every_option_with_its_unit_and_default(
    model: type[Placed], option: Option
) -> None:
    lines = shown_options().get((model.__name__, option.key), [])
    assert lines, "the option is missing"
    assert comment_above(lines[0]) == describe(option)


@pytest.mark.parametrize(
    ("model", "option"), ALL_OPTIONS, ids=[f"{m.__name__}.{o.key}" for m, o in ALL_OPTIONS]
)
def test_every_option_has_help_and_its_numbers_have_a_unit(
    model: type[Placed], option: Option
) -> None:
    assert len(option.help) > 10
    is_number = any(
        each.get("type") in ("integer", "number") for each in _alternatives(option.kind.schema())
    )
    assert bool(option.unit) == is_number


def _alternatives(schema: dict[str, Any]) -> list[dict[str, Any]]:
    inner = [found for each in schema.get("anyOf", []) for found in _alternatives(each)]
    return [schema, *inner]


def test_defaults_in_words_are_what_the_classes_hold() -> None:
    shown = {
        f"{model.__name__}.{each.key}": each.default
        for model, each in ALL_OPTIONS
        if each.default is not None
    }
    assert shown["Limits.max_frame_octets"] == "64KiB"
    assert shown["Limits.idle_seconds"] == "2m"
    assert shown["Limits.connections_per_identity"] == "none"
    assert shown["Container.retry_seconds"] == "500ms"
    assert shown["RouteEntry.guarantee"] == "at-least-once"
    assert shown["RouteEntry.to"] == "none"
    assert "RouteEntry.address" not in shown
