"""One router of two workers, which the rules of 0-9-1 are tried against."""

import contextlib
from collections.abc import Callable, Iterator

import pytest

from tests.support.basic_socket import BasicSocket
from tests.support.ports import free_port
from tests.support.running import running_router

CONFIG = """\
router: {{id: rules, admin: off, workers: 2}}
listeners: [{{bind: '127.0.0.1:{port}'}}]
routes:
  - address: q.#
  - address: shop/#
  - address: ex/#
  - {{address: amq.direct/#, unroutable: reject}}
  - {{address: amq.topic/#, distribution: multicast, unroutable: reject}}
  - {{address: amq.fanout, distribution: multicast}}
  - {{address: amq.match, distribution: multicast}}
  - {{address: amq.headers, distribution: multicast}}
  - {{address: paint, distribution: multicast}}
  - {{address: logs/#, distribution: multicast}}
  - {{address: nobody.#, unroutable: reject}}
  - {{address: gone/#, distribution: multicast, unroutable: reject}}
  - {{address: q.#, vhost: other}}
"""

Dial = Callable[..., BasicSocket]
"""Connects and opens the channels that are named; 0: says nothing yet."""


@pytest.fixture(scope="package")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    found = free_port()
    with running_router(CONFIG.format(port=found), tmp_path_factory.mktemp("rules")):
        yield found


@pytest.fixture
def dial(port: int) -> Iterator[Dial]:
    """Of two connections one after the other each is at another worker."""
    with contextlib.ExitStack() as stack:

        def connect(*channels: int, vhost: str = "/", **tune: int) -> BasicSocket:
            client = stack.enter_context(BasicSocket(port))
            if channels == (0,):
                return client
            return client.open(*channels or (1,), vhost=vhost, **tune)

        yield connect
