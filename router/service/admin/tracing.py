"""A trace as an HTTP answer: one JSON object a line, until it ends or the client disconnects."""

import json
from typing import Final

import attrs
import trio
from starlette.types import Receive, Scope, Send

from router.service.admin.showing import as_json, located
from router.service.admin.views import TraceLineView
from router.service.fleet import RouterControl

KEEP_ALIVE_SECONDS: Final = 5.0
"""After this silence an empty line is sent, to detect a client that has disconnected."""


@attrs.define(eq=False)
class TraceResponse:
    """Traces deliveries while the answer is being sent.

    Attributes:
        pattern: of the addresses.
        count: number of deliveries to trace.
        seconds: time limit.
    """

    control: RouterControl
    pattern: str
    count: int
    seconds: float

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends lines as they arrive.

        Raises:
            PatternError: the pattern is malformed; nothing has been sent.
        """
        async with self.control.trace(self.pattern, self.count) as feed:
            headers = [(b"content-type", b"application/x-ndjson"), (b"cache-control", b"no-store")]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._notice_end, receive, nursery.cancel_scope)
                nursery.cancel_scope.deadline = trio.current_time() + self.seconds
                while True:
                    lines = None
                    with trio.move_on_after(KEEP_ALIVE_SECONDS):
                        lines = await feed.take()
                    if lines == []:
                        break
                    shown = [located(TraceLineView, *each) for each in lines or ()]
                    text = "".join(json.dumps(as_json(each)) + "\n" for each in shown) or "\n"
                    body = {"type": "http.response.body", "body": text.encode(), "more_body": True}
                    await send(body)
                nursery.cancel_scope.cancel()
        await send({"type": "http.response.body", "body": b""})

    @staticmethod
    async def _notice_end(receive: Receive, scope: trio.CancelScope) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        scope.cancel()
