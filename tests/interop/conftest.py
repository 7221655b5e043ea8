"""One router for the tests with real clients: every address is direct."""

from collections.abc import Iterator

import attrs
import pytest

from tests.support.ports import free_port
from tests.support.running import RunningRouter, running_router

USER = "app"
PASSWORD = "open sesame"

CONFIG = """\
router: {{id: interop, admin: off}}
listeners:
  - bind: 127.0.0.1:{port}
  - bind: 127.0.0.1:{password_port}
    sasl: {{mechanisms: [PLAIN], users: {{{user}: {password}}}}}
routes:
  - address: everyone.#
    distribution: multicast
  - address: nobody.#
    unroutable: reject
  - address: "#"
"""


@attrs.frozen
class Reachable:
    """A running router and where it listens: for anybody, and for those with a password."""

    router: RunningRouter
    port: int
    password_port: int

    @property
    def url(self) -> str:
        return f"amqp://127.0.0.1:{self.port}"


@pytest.fixture(scope="module")
def reachable(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reachable]:
    ports = {"port": free_port(), "password_port": free_port()}
    config = CONFIG.format(**ports, user=USER, password=PASSWORD)
    with running_router(config, tmp_path_factory.mktemp("router")) as router:
        yield Reachable(router, **ports)
