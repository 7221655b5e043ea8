"""The OpenAPI document, made from the table of operations and the classes of their answers."""

import collections.abc
import enum
import inspect
import re
import types
import typing
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

import attrs

from router import __version__
from router.service.admin.asking import Parameter, bounds_of

Schema = dict[str, Any]

VERSION: Final = "3.1.0"
PROBLEM_TYPE: Final = "application/problem+json"

_BUSY: Final = "too much is asked at a time, or no worker answers"

_PRIMITIVES: Final[Mapping[type, str]] = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
}


@attrs.frozen(kw_only=True)
class Operation:
    """One operation of the API.

    Attributes:
        path: with parameters in braces.
        handler: method of ``Api`` that answers; its name is the operation's.
        answer: class of the answer; a text: its media type.
        status: of a good answer.
        errors: other statuses, and when they are answered.
        is_open: the operation needs no token.
        also: further statuses with the same answer.
    """

    method: str
    path: str
    summary: str
    handler: Callable[[Any, Any], Awaitable[Any]]
    answer: type[Any] | str
    parameters: Sequence[Parameter] = ()
    body: type[Any] | None = None
    status: int = 200
    errors: Mapping[int, str] = attrs.field(factory=dict)
    is_open: bool = False
    also: Mapping[int, str] = attrs.field(factory=dict)

    @property
    def name(self) -> str:
        """The operation's name in the OpenAPI document."""
        return self.handler.__name__


@attrs.frozen(kw_only=True)
class ProblemDetails:
    """Why a request was refused or failed (RFC 9457).

    Attributes:
        title: the status in words.
        status: the HTTP status.
        detail: the reason, for people.
    """

    title: str
    status: int
    detail: str


def document(operations: Sequence[Operation]) -> Schema:
    """Returns the OpenAPI document of an API."""
    schemas: dict[str, Schema] = {}
    paths: dict[str, Schema] = {}
    for each in operations:
        paths.setdefault(each.path, {})[each.method.lower()] = _operation(each, schemas)
    return {
        "openapi": VERSION,
        "info": {
            "title": "router admin",
            "version": __version__,
            "description": "Status, metrics and control of a running router. Counts are of"
            " deliveries and totals since its start, unless the name says else.",
        },
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}, {}],
    }


def _operation(each: Operation, schemas: dict[str, Schema]) -> Schema:
    described: Schema = {
        "operationId": each.name,
        "summary": each.summary,
        "responses": _responses(each, schemas),
    }
    if each.is_open:
        described["security"] = []
    if each.parameters:
        described["parameters"] = [_parameter(parameter) for parameter in each.parameters]
    if each.body is not None:
        schema = schema_of(each.body, schemas)
        described["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": schema}},
        }
    return described


def _responses(each: Operation, schemas: dict[str, Schema]) -> Schema:
    if isinstance(each.answer, str):
        content: Schema = {each.answer: {"schema": {"type": "string"}}}
    else:
        content = {"application/json": {"schema": schema_of(each.answer, schemas)}}
    problem = {PROBLEM_TYPE: {"schema": schema_of(ProblemDetails, schemas)}}
    errors = {400: "the request is not as this document says", **each.errors}
    if not each.is_open:
        errors.update({401: "the token is missing or wrong", 403: "asked from another site"})
        errors[421] = "Router-Id in the request names another router"
    if each.body is not None:
        errors.update({413: "the body is too long", 415: "the body is not application/json"})
    errors[503] = f"{errors[503]}; {_BUSY}" if 503 in errors else _BUSY
    responses: Schema = {str(each.status): {"description": "good", "content": content}}
    for status, when in each.also.items():
        responses[str(status)] = {"description": when, "content": content}
    for status, when in sorted(errors.items()):
        responses.setdefault(str(status), {"description": when, "content": problem})
    responses["431"] = {"description": "line and headers are longer than 16 KiB; no body"}
    return responses


def _parameter(parameter: Parameter) -> Schema:
    schema: Schema = {"type": _PRIMITIVES[parameter.kind], **parameter.bounds}
    if parameter.default is not None:
        schema["default"] = parameter.default
    return {
        "name": parameter.name,
        "in": "path" if parameter.in_path else "query",
        "required": parameter.in_path,
        "description": parameter.description,
        "schema": schema,
    }


def schema_of(kind: Any, schemas: dict[str, Schema]) -> Schema:
    """Returns the JSON Schema of a type; classes are added to ``schemas`` and referred to."""
    if isinstance(kind, types.UnionType):
        return _union(kind, schemas)
    origin = typing.get_origin(kind)
    if origin is tuple:
        first, *rest = typing.get_args(kind)
        if rest == [...]:
            return {"type": "array", "items": schema_of(first, schemas)}
        items = [schema_of(each, schemas) for each in (first, *rest)]
        count = len(items)
        return {"type": "array", "prefixItems": items, "minItems": count, "maxItems": count}
    if origin is collections.abc.Mapping:
        values = schema_of(typing.get_args(kind)[1], schemas)
        return {"type": "object", "additionalProperties": values}
    if kind in _PRIMITIVES:
        return {"type": _PRIMITIVES[kind]}
    if issubclass(kind, enum.Enum):
        return {"type": "string", "enum": [member.value for member in kind]}
    if kind.__name__ not in schemas:
        schemas[kind.__name__] = {}  # holds the place, should it refer to itself
        schemas[kind.__name__] = _class(kind, schemas)
    return {"$ref": f"#/components/schemas/{kind.__name__}"}


def _union(kind: types.UnionType, schemas: dict[str, Schema]) -> Schema:
    (some,) = (each for each in typing.get_args(kind) if each is not type(None))
    schema = schema_of(some, schemas)
    if "$ref" in schema or "enum" in schema:
        return {"anyOf": [schema, {"type": "null"}]}
    return {**schema, "type": [schema["type"], "null"]}


def _class(kind: type[Any], schemas: dict[str, Schema]) -> Schema:
    hints = typing.get_type_hints(kind)
    summary, attributes = _read_docstring(kind)
    properties = {}
    required = []
    is_body = False
    for field in attrs.fields(kind):
        name = field.name.rstrip("_")
        schema = {**schema_of(hints[field.name], schemas), **bounds_of(field)}
        description = field.metadata.get("description") or attributes.get(field.name)
        if description:
            schema["description"] = description
        properties[name] = schema
        is_body = is_body or "description" in field.metadata
        if not is_body or field.default is attrs.NOTHING:
            required.append(name)
        elif field.default is not None:
            schema["default"] = field.default
    found: Schema = {
        "type": "object",
        "description": summary,
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }
    if needed := getattr(kind, "needs_one_of", ()):
        given = {"not": {"type": "null"}}
        found["anyOf"] = [{"required": [key], "properties": {key: given}} for key in needed]
    return found


_ATTRIBUTE: Final = re.compile(r"    (\w[\w, ]*): (.*)")


def _read_docstring(kind: type[Any]) -> tuple[str, dict[str, str]]:
    """Returns the first line and the descriptions of attributes of a class' docstring."""
    lines = inspect.cleandoc(kind.__doc__ or "").splitlines()
    attributes: dict[str, str] = {}
    names: list[str] = []
    inside = False
    for line in lines[1:]:
        if line == "Attributes:":
            inside = True
        elif inside and (match := _ATTRIBUTE.fullmatch(line)):
            names = [name.strip() for name in match.group(1).split(",")]
            attributes.update(dict.fromkeys(names, match.group(2)))
        elif inside and line.startswith("        "):
            for name in names:
                attributes[name] += f" {line.strip()}"
        elif line.strip():
            inside = False
    return lines[0] if lines else "", attributes
