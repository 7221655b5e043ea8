"""The management node's answers (AMQP Management, working draft 11).

A request names an operation and a type in its application properties; the answer carries a status
in its application properties, and the request's correlation-id or else its message-id. The node is
read-only: its operations are QUERY, READ and those that list types, attributes and operations.

Entities are the records of the JSON API, under the same names; each has ``type``, ``identity`` and
``name`` in addition. A READ asks for a ``name`` or an ``identity``.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import attrs

from router.errors import DecodeError, RouterError
from router.service.admin.api import Api, Asked
from router.service.admin.asking import PAGE_MOST
from router.service.admin.showing import as_json
from router.wire.v1_0.sections import (
    AnnotatedMessage,
    Properties,
    decode_message,
    encode_message,
)
from router.wire.v1_0.types import Int, Pairs

MANAGEMENT_TYPE: Final = "org.amqp.management"
"""The type of the node itself, to which QUERY and the like are addressed."""

ENTITIES_MOST: Final = 2000
"""Most entities in one answer; a client reads on with ``offset``."""

Entity = dict[str, Any]
Record = Mapping[str, Any]


@attrs.frozen
class RefusedError(RouterError):
    """A request is refused: an HTTP status and the reason."""

    status: int
    reason: str

    def __str__(self) -> str:
        return self.reason


@attrs.frozen
class Kind:
    """One type of entity.

    Attributes:
        handler: method of ``Api`` that lists them.
        records: returns the records of its answer.
        identity: returns a record's identity, which is unique among its kind.
        name: returns a record's name.
        parameters: query parameters for the handler.
    """

    handler: Callable[[Api, Asked], Awaitable[Any]]
    records: Callable[[Record], list[Record]]
    identity: Callable[[Record], str]
    name: Callable[[Record], str]
    parameters: Mapping[str, Any] = attrs.field(factory=dict)


_KINDS: Final[Mapping[str, Kind]] = {
    "router": Kind(Api.status, lambda view: [view], lambda it: it["id"], lambda it: it["id"]),
    "route": Kind(
        Api.routes, lambda view: view["routes"], lambda it: it["name"], lambda it: it["name"]
    ),
    "container": Kind(
        Api.containers,
        lambda view: view["containers"],
        lambda it: it["name"],
        lambda it: it["name"],
    ),
    "connection": Kind(
        Api.connections,
        lambda view: view["connections"],
        lambda it: f"{it['worker']}/{it['connection']}",
        lambda it: it["container"],
    ),
    "link": Kind(
        Api.links,
        lambda view: view["links"],
        lambda it: f"{it['worker']}/{it['container']}/{it['role']}/{it['name']}",
        lambda it: it["name"],
    ),
    "delivery": Kind(
        Api.deliveries,
        lambda view: view["deliveries"],
        lambda it: f"{it['worker']}/{it['container']}/{it['link']}/{it['tag']}",
        lambda it: it["tag"],
    ),
}
TYPES: Final = tuple(f"router.{kind}" for kind in _KINDS)


@attrs.define(eq=False)
class ManagementNode:
    """Answers requests."""

    api: Api

    async def answer(self, payload: bytes) -> tuple[str, bytes] | None:
        """Answers one request.

        Returns:
            The reply address and the answer; None: the request has no reply address.
        """
        try:
            request = decode_message(payload)
        except DecodeError:
            return None
        properties = request.properties or Properties()
        if properties.reply_to is None:
            return None
        asked = dict(_items(request.application_properties))
        try:
            body, more = await self._carry_out(asked, request.value)
            status: dict[str, Any] = {"statusCode": Int(200), "statusDescription": "OK", **more}
        except RefusedError as error:
            body, status = {}, {"statusCode": Int(error.status), "statusDescription": str(error)}
        except RouterError as error:
            body, status = {}, {"statusCode": Int(503), "statusDescription": str(error)}
        correlation = properties.correlation_id
        answer = AnnotatedMessage(
            properties=Properties(
                to=properties.reply_to,
                correlation_id=properties.message_id if correlation is None else correlation,
            ),
            application_properties=status,
            value=body,
        )
        return properties.reply_to, encode_message(answer)

    async def _carry_out(self, asked: Mapping[str, Any], body: Any) -> tuple[Any, dict[str, Any]]:
        operation = asked.get("operation")
        if operation == "READ":
            return await self._read(asked), {}
        handler = _OPERATIONS.get(operation) if isinstance(operation, str) else None
        if handler is None:
            known = ", ".join(("READ", *_OPERATIONS))
            raise RefusedError(501, f"operation {operation!r} is not implemented; known: {known}")
        if asked.get("type", MANAGEMENT_TYPE) != MANAGEMENT_TYPE:
            raise RefusedError(400, f"{operation} is asked of type {MANAGEMENT_TYPE}")
        return await handler(self, asked, body)

    async def _read(self, asked: Mapping[str, Any]) -> Entity:
        kinds = _kinds_of(asked.get("type"), 400)
        wanted = {key: asked[key] for key in ("identity", "name") if key in asked}
        if len(wanted) != 1:
            raise RefusedError(400, "READ asks for a name or an identity")
        ((key, value),) = wanted.items()
        for entity in await self._list(kinds):
            if entity[key] == value:
                return entity
        raise RefusedError(404, f"there is no {kinds[0]} whose {key} is {value!r}")

    async def _query(self, asked: Mapping[str, Any], body: Any) -> tuple[Any, dict[str, Any]]:
        kinds = _kinds_of(asked.get("entityType"), 404)
        offset, count = _whole(asked, "offset", 0), _whole(asked, "count", ENTITIES_MOST)
        names = [str(each) for each in dict(_items(body)).get("attributeNames") or ()]
        entities = await self._list(kinds)
        entities = entities[offset:][: min(count, ENTITIES_MOST)]
        if not names:
            names = list(dict.fromkeys(key for entity in entities for key in entity))
        results = [[entity.get(name) for name in names] for entity in entities]
        return {"attributeNames": names, "results": results}, {"count": Int(len(results))}

    async def _get_types(self, asked: Mapping[str, Any], body: Any) -> tuple[Any, dict[str, Any]]:
        kinds = _kinds_of(asked.get("entityType"), 404)
        return {f"router.{kind}": [] for kind in kinds}, {}

    async def _get_operations(
        self, asked: Mapping[str, Any], body: Any
    ) -> tuple[Any, dict[str, Any]]:
        kinds = _kinds_of(asked.get("entityType"), 404)
        return {f"router.{kind}": ["READ"] for kind in kinds}, {}

    async def _get_attributes(
        self, asked: Mapping[str, Any], body: Any
    ) -> tuple[Any, dict[str, Any]]:
        found = {}
        for kind in _kinds_of(asked.get("entityType"), 404):
            entities = await self._list([kind])
            found[f"router.{kind}"] = list(dict.fromkeys(key for each in entities for key in each))
        return found, {}

    async def _list(self, kinds: list[str]) -> list[Entity]:
        return [entity for kind in kinds for entity in await self._list_kind(kind)]

    async def _list_kind(self, name: str) -> list[Entity]:
        kind = _KINDS[name]
        entities: list[Entity] = []
        after: str | None = None
        while len(entities) < ENTITIES_MOST:
            query = {"limit": PAGE_MOST, "after": after, **kind.parameters}
            view = as_json(await kind.handler(self.api, Asked(path={}, query=query, body=None)))
            for record in kind.records(view):
                own = {"identity": kind.identity(record), "name": kind.name(record)}
                entities.append({"type": f"router.{name}", **own, **record, **own})
            after = view.get("next")
            if after is None:
                break
        return entities


_Operation = Callable[
    [ManagementNode, Mapping[str, Any], Any], Awaitable[tuple[Any, dict[str, Any]]]
]
_OPERATIONS: Final[Mapping[str, _Operation]] = {
    "QUERY": ManagementNode._query,
    "GET-TYPES": ManagementNode._get_types,
    "GET-OPERATIONS": ManagementNode._get_operations,
    "GET-ATTRIBUTES": ManagementNode._get_attributes,
}


def _items(value: Any) -> Any:
    """Returns the entries of an AMQP map in either of its forms; nothing for anything else."""
    if isinstance(value, Pairs):
        return value
    return value.items() if isinstance(value, Mapping) else ()


def _kinds_of(wanted: Any, status: int) -> list[str]:
    """Returns the kinds that a type covers; None: all."""
    if wanted is None and status == 404:
        return list(_KINDS)
    kind = str(wanted).removeprefix("router.")
    if kind not in _KINDS or wanted not in TYPES:
        raise RefusedError(status, f"there is no type {wanted!r}; known: {', '.join(TYPES)}")
    return [kind]


def _whole(asked: Mapping[str, Any], key: str, default: int) -> int:
    value = asked.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise RefusedError(400, f"{key} is a whole number")
    return int(value)
