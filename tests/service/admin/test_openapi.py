"""What the OpenAPI document promises holds for whatever schemathesis asks."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from router.service.admin.asking import BODY_OCTETS_MOST
from router.service.admin.openapi import Operation, document
from router.service.admin.operations import OPERATIONS
from tests.support import peers
from tests.support.running import running_router

EXAMPLES = 15
"""For each operation, as many that keep to the document as that do not."""

ADDRESS_OCTETS_LEAST = 1 << 14
"""Request lines that the HTTP server refuses are longer than this."""

FILE = """
router: {id: fuzzed, workers: 1, admin: "127.0.0.1:0"}
listeners: [{bind: "127.0.0.1:0"}]
routes:
  - {address: orders}
  - {address: "#", name: everything else}
"""
ENDING = {"drain"}
"""Operations that end the router: asked by ``test_endpoint``."""


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_router(FILE, tmp_path_factory.mktemp("fuzzed")) as router:
        yield f"http://{json.loads(router.wait_for('router.ready'))['admin'][0]}"
        assert router.process.poll() is None
        assert not [line for line in router.log if "admin.failed" in line]


@pytest.mark.parametrize("kind", ["valid", "invalid"])
@pytest.mark.parametrize(
    "operation",
    [each for each in OPERATIONS if each.name not in ENDING],
    ids=lambda each: each.name,
)
def test_every_answer_is_as_the_document_says(base: str, operation: Operation, kind: str) -> None:
    peers.need_python("schemathesis")
    import requests
    import schemathesis
    from schemathesis.generation import GenerationMode

    mode = GenerationMode.POSITIVE if kind == "valid" else GenerationMode.NEGATIVE
    if kind == "invalid" and not (operation.parameters or operation.body):
        return  # there is nothing to get wrong
    schema = schemathesis.openapi.from_dict(document(OPERATIONS))
    described = schema[operation.path][operation.method]

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=True,
        database=None,
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    @given(case=described.as_strategy(generation_mode=mode))
    def ask(case: Any) -> None:
        if operation.name == "trace" and isinstance(case.body, dict):
            if isinstance(case.body.get("seconds", 30), (int, float)):
                case.body["seconds"] = min(0.2, case.body.get("seconds", 0.2))
        answer = case.call(base_url=base, timeout=30, session=session)
        if answer.status_code == 413:  # schemathesis knows no refusal of long bodies
            assert kind == "invalid"
            assert len(answer.request.body) > BODY_OCTETS_MOST
        elif answer.status_code == 431:  # nor of long addresses, by the HTTP server itself
            assert kind == "invalid"
            assert len(answer.request.url) > ADDRESS_OCTETS_LEAST
        else:
            case.validate_response(answer)

    with requests.Session() as session:  # one connection: their number is bounded
        ask()
