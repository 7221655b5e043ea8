"""What the management node answers."""

from typing import Any

import pytest

from router.service.admin.api import Api
from router.service.admin.history import History
from router.service.management.node import MANAGEMENT_TYPE, TYPES, ManagementNode
from router.wire.v1_0.sections import AnnotatedMessage, Properties, decode_message, encode_message
from tests.support.fleets import FakeControl, container, core, fleet, route, worker_snapshot


def node_of(*workers: FakeControl) -> ManagementNode:
    return ManagementNode(Api(fleet(*workers).control, History()))


def busy() -> FakeControl:
    known = worker_snapshot(
        core=core(route("orders"), route("prices.*")), containers=(container("east"),)
    )
    return FakeControl(fares=known, connected=range(1, 1203), attached=(1, 2))


async def ask(
    node: ManagementNode, body: Any = None, *, reply_to: str | None = "me", **asked: Any
) -> AnnotatedMessage:
    request = AnnotatedMessage(
        properties=Properties(message_id="17", reply_to=reply_to),
        application_properties=asked,
        value=body,
    )
    answer = await node.answer(encode_message(request))
    assert answer is not None
    where, payload = answer
    assert where == reply_to
    message = decode_message(payload)
    assert message.properties is not None
    assert (message.properties.to, message.properties.correlation_id) == (reply_to, "17")
    return message


def status_of(message: AnnotatedMessage) -> tuple[int, str]:
    told = dict(message.application_properties or {})
    return told["statusCode"], told["statusDescription"]


async def query(node: ManagementNode, entity: str, *names: str, **asked: Any) -> list[list[Any]]:
    body = {"attributeNames": list(names)}
    message = await ask(
        node, body, operation="QUERY", type=MANAGEMENT_TYPE, entityType=entity, **asked
    )
    assert status_of(message) == (200, "OK")
    assert dict(message.application_properties or {})["count"] == len(message.value["results"])
    assert message.value["attributeNames"] == list(names)
    results: list[list[Any]] = message.value["results"]
    return results


async def test_a_query_gives_the_attributes_that_it_asks_for() -> None:
    node = node_of(busy())
    assert await query(node, "router.route", "name", "state") == [
        ["orders", "idle"],
        ["prices.*", "idle"],
    ]
    assert await query(node, "router.container", "identity", "is_connected", "error") == [
        ["east", False, "Connection refused"]
    ]
    assert await query(node, "router.router", "type", "id", "version", "nothing") == [
        ["router.router", "dc1", (await query(node, "router.router", "version"))[0][0], None]
    ]


async def test_lists_are_longer_than_a_page_of_the_api_and_can_be_cut() -> None:
    node = node_of(busy())
    everything = await query(node, "router.connection", "connection")
    assert everything == [[number] for number in range(1, 1203)]
    some = await query(node, "router.connection", "connection", offset=1000, count=3)
    assert some == [[1001], [1002], [1003]]


async def test_a_query_without_type_or_names_gives_everything() -> None:
    node = node_of(busy())
    message = await ask(node, operation="QUERY", type=MANAGEMENT_TYPE, count=100_000)
    names = message.value["attributeNames"]
    kinds = {row[names.index("type")] for row in message.value["results"]}
    assert kinds == set(TYPES) - {"router.delivery"}
    identities = [(row[0], row[names.index("identity")]) for row in message.value["results"]]
    assert len(set(identities)) == len(identities)


@pytest.mark.parametrize("key", ["name", "identity"])
async def test_a_read_gives_one_entity(key: str) -> None:
    message = await ask(node_of(busy()), operation="READ", type="router.route", **{key: "prices.*"})
    assert status_of(message) == (200, "OK")
    entity = dict(message.value)
    assert (entity["type"], entity["name"]) == ("router.route", "prices.*")
    assert entity["received"]["deliveries"] == 0


@pytest.mark.parametrize(
    ("asked", "status", "reason"),
    [
        ({"operation": "DELETE", "type": "router.route", "name": "orders"}, 501, "'DELETE'"),
        ({}, 501, "operation None"),
        ({"operation": "READ", "type": "router.route", "name": "x"}, 404, "no route whose name"),
        ({"operation": "READ", "type": "queue", "name": "x"}, 400, "no type 'queue'"),
        ({"operation": "READ", "type": "router.route"}, 400, "a name or an identity"),
        ({"operation": "QUERY", "entityType": "queue"}, 404, "no type 'queue'"),
        ({"operation": "QUERY", "type": "router.route"}, 400, MANAGEMENT_TYPE),
        ({"operation": "QUERY", "offset": -1}, 400, "offset is a whole number"),
        ({"operation": "QUERY", "count": "many"}, 400, "count is a whole number"),
    ],
)
async def test_what_cannot_be_answered_is_told_with_the_reason(
    asked: dict[str, Any], status: int, reason: str
) -> None:
    told, description = status_of(await ask(node_of(busy()), **asked))
    assert told == status
    assert reason in description


async def test_workers_that_do_not_answer_are_told_of() -> None:
    node = node_of(FakeControl(is_gone=True))
    assert status_of(await ask(node, operation="QUERY", entityType="router.link"))[0] == 503


async def test_types_operations_and_attributes_can_be_asked_for() -> None:
    node = node_of(busy())
    assert set((await ask(node, operation="GET-TYPES")).value) == set(TYPES)
    assert (await ask(node, operation="GET-OPERATIONS")).value["router.link"] == ["READ"]
    attributes = (await ask(node, operation="GET-ATTRIBUTES", entityType="router.route")).value
    assert {"type", "identity", "name", "state"} <= set(attributes["router.route"])


async def test_who_wants_no_answer_and_garbage_get_none() -> None:
    node = node_of()
    nobody = AnnotatedMessage(application_properties={"operation": "QUERY"}, value=None)
    assert await node.answer(encode_message(nobody)) is None
    assert await node.answer(b"\x00\x53\x99garbage") is None
    assert await node.answer(b"") is None
