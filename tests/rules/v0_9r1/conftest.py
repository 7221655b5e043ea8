"""One router of two workers, which the rules of the draft are tried against, and its client."""

import contextlib
from collections.abc import Callable, Iterator

import pytest

from router.wire.v0_9r1 import methods as d
from router.wire.v0_9r1.framing import FRAMING, PROTOCOL_HEADER
from tests.support.basic_socket import BasicSocket
from tests.support.ports import free_port
from tests.support.running import running_router

CONFIG = """\
router: {{id: draft, admin: off, workers: 2}}
listeners: [{{bind: '127.0.0.1:{port}'}}]
routes:
  - address: q.#
  - {{address: nobody.#, unroutable: reject}}
"""


class DraftSocket(BasicSocket):
    """A client of the draft on a real socket."""

    header = PROTOCOL_HEADER
    framing = FRAMING
    codec = d.CODEC


Dial = Callable[..., DraftSocket]
"""Connects and opens the channels that are named; 0: says nothing yet."""


@pytest.fixture(scope="package")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    found = free_port()
    with running_router(CONFIG.format(port=found), tmp_path_factory.mktemp("draft")):
        yield found


@pytest.fixture
def dial(port: int) -> Iterator[Dial]:
    """Of two connections one after the other each is at another worker."""
    with contextlib.ExitStack() as stack:

        def connect(*channels: int, **tune: int) -> DraftSocket:
            client = stack.enter_context(DraftSocket(port))
            return client if channels == (0,) else client.open(*channels or (1,), vhost="/", **tune)

        yield connect
