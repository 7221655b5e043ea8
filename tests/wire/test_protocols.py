"""The table of protocols: what importing it costs, and that every row makes engines."""

import json
import subprocess
import sys

import pytest

from router.model.capabilities import Protocol
from router.wire.engine import EngineSettings
from router.wire.protocols import PROTOCOLS

FOLDERS = {
    Protocol.AMQP_1_0: "v1_0",
    Protocol.AMQP_0_9_1: "v0_9_1",
    Protocol.AMQP_0_9R1: "v0_9r1",
    Protocol.AMQP_0_10: "v0_10",
    Protocol.AMQP_FAST: "fast",
}
SCRIPT = """
import json, sys
from router.model.capabilities import Protocol
from router.wire.engine import EngineSettings
from router.wire.protocols import PROTOCOLS, load_engines
def engines(): return [each for each in sys.modules if each.endswith(".engine")]
seen = [engines()]
load_engines()
seen.append(engines())
for protocol in PROTOCOLS:
    for is_server in (True, False):
        PROTOCOLS[protocol].make(EngineSettings(is_server=is_server, container="a"), None)
seen.append(engines())
print(json.dumps(seen))
"""


@pytest.mark.parametrize("is_server", [True, False])
@pytest.mark.parametrize("protocol", Protocol)
def test_each_protocol_has_an_engine_for_both_sides(protocol: Protocol, is_server: bool) -> None:
    settings = EngineSettings(is_server=is_server, container="here")
    engine = PROTOCOLS[protocol].make(settings, None)
    assert type(engine).__module__.split(".")[2] == FOLDERS[protocol]


@pytest.mark.processes
def test_engines_are_imported_on_demand_and_a_worker_has_all_of_them_at_once() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True
    )
    at_import, loaded, used = json.loads(done.stdout)
    assert at_import == ["router.wire.engine"]
    assert len(loaded) == 1 + len(PROTOCOLS)
    assert used == loaded
