"""A trace as an HTTP answer: one JSON object a line, until it ends or the asker goes."""

import json
from typing import Final

import attrs
import trio
from starlette.types import Receive, Scope, Send

from router.service.admin.showing import as_json, located
from router.service.admin.views import TraceLineView
from router.service.fleet import RouterControl

KEEP_ALIVE_SECONDS: Final = 5.0
"""An empty line is sent after so long a silence, to find out whether the asker is still there."""


@attrs.define(eq=False)
class TraceResponse:
    """Follows deliveries while it is sent.

    Attributes:
        pattern: of addresses.
        count: deliveries to follow.
        seconds: the longest that it takes.
    """

    control: RouterControl
    pattern: str
    count: int
    seconds: float

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends lines as they come.

        Raises:
            PatternError: it is no pattern; nothing has been sent then.
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
