"""The whole file: its sections, and its JSON Schema."""

from collections.abc import Mapping
from typing import Any, Final

import attrs

from router.service.config.containers import Container
from router.service.config.kinds import ListOf, MapOf, Schema
from router.service.config.limits import Limits
from router.service.config.listeners import Listener
from router.service.config.mesh import Mesh
from router.service.config.options import Option, Placed, Section, option, options_of
from router.service.config.policy import Policy
from router.service.config.process import Router
from router.service.config.routing import CONTAINER_NAME, RouteEntry

SCHEMA_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"


@attrs.frozen(kw_only=True)
class ConfigFile(Placed):
    """Every section, as written; any of them may be left out."""

    router: Router = option(
        Section(Router), factory=Router, default_text="as below", help="the program itself"
    )
    listeners: tuple[Listener, ...] = option(
        ListOf(Section(Listener), "listener"),
        factory=lambda: (Listener(),),
        default_text="one, at 127.0.0.1:5672",
        help="addresses where the router accepts connections; an empty list for none",
    )
    containers: Mapping[str, Container] = option(
        MapOf(Section(Container), CONTAINER_NAME, "container name"),
        factory=dict,
        help="name: AMQP container that the router dials",
    )
    routes: tuple[RouteEntry, ...] = option(
        ListOf(Section(RouteEntry), "route"), default=(), help="which addresses are routed where"
    )
    mesh: Mesh | None = option(
        Section(Mesh),
        default=None,
        default_text="none",
        help="other sites, with which this router shares addresses",
    )
    limits: Limits = option(
        Section(Limits),
        factory=Limits,
        default_text="as below",
        help="limits of one peer, and of all peers together",
    )
    policy: Policy = option(
        Section(Policy),
        factory=Policy,
        default_text="everything is allowed",
        help="who may send to and receive from which addresses",
    )


def sections() -> dict[str, type[Placed]]:
    """Returns every section class by its name, the whole file first."""
    found: dict[str, type[Placed]] = {}
    _collect(ConfigFile, found)
    return found


def _collect(model: type[Placed], found: dict[str, type[Placed]]) -> None:
    found[model.__name__] = model
    for each in options_of(model):
        kind: Any = each.kind
        while not isinstance(kind, Section) and hasattr(kind, "kind"):
            kind = kind.kind
        if isinstance(kind, Section) and kind.model.__name__ not in found:
            _collect(kind.model, found)


def json_schema() -> Schema:
    """Returns the JSON Schema of the file, for editors and for other programs."""
    definitions = {name: _section_schema(model) for name, model in sections().items()}
    whole = definitions.pop(ConfigFile.__name__)
    return {
        "$schema": SCHEMA_DIALECT,
        "title": "router.yaml",
        **whole,
        "$defs": definitions,
    }


def _section_schema(model: type[Placed]) -> Schema:
    options = options_of(model)
    required = [each.key for each in options if each.default is None]
    schema: Schema = {
        "type": "object" if required else ["object", "null"],
        "description": (model.__doc__ or "").splitlines()[0],
        "properties": {each.key: _option_schema(each) for each in options},
        "additionalProperties": False,
    }
    if required:
        schema["required"] = required
    if model.needs_one_of:
        schema["type"] = "object"
        schema["anyOf"] = [{"required": [key]} for key in model.needs_one_of]
    return schema


def _option_schema(each: Option) -> Schema:
    return {"description": describe(each), **each.kind.schema()}


def describe(each: Option) -> str:
    """Describes an option in one line: what it does, and in brackets its unit and default."""
    facts = [each.unit] if each.unit else []
    facts.append("required" if each.default is None else f"default: {each.default}")
    return f"{each.help} [{'; '.join(facts)}]"
