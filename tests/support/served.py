"""The admin endpoint of a router that is made up, served from a thread."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import attrs
import trio

from router.model.place import TcpAddress
from router.service.admin.app import make_app
from router.service.admin.history import History
from router.service.admin.server import Server
from tests.support.fleets import Fleet

SECONDS = 60


@attrs.define(eq=False)
class Served:
    """What is served, and where."""

    known: Fleet
    remembered: History
    token: str | None = None
    url: str = ""
    _up: threading.Event = attrs.field(factory=threading.Event)
    _scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    _trio: Any = None

    @property
    def control(self) -> Any:
        """The only worker."""
        return self.known.workers[0]

    async def run(self) -> None:
        bind = TcpAddress("127.0.0.1", 0)
        server = Server(make_app(self.known.control, self.remembered, bind, self.token), None)
        await server.open(bind)
        self.url = f"http://{server.addresses[0]}/"
        self._trio = trio.lowlevel.current_trio_token()
        with self._scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(server.run)
                nursery.start_soon(self.remembered.run, self.known.control)
                self._up.set()


@contextmanager
def serving(
    known: Fleet, remembered: History | None = None, token: str | None = None
) -> Iterator[Served]:
    """An endpoint, for the length of the block."""
    served = Served(known, remembered or History(), token)
    thread = threading.Thread(target=trio.run, args=(served.run,))
    thread.start()
    assert served._up.wait(SECONDS)
    try:
        yield served
    finally:
        served._trio.run_sync_soon(served._scope.cancel)
        thread.join(SECONDS)
