"""A proton receiver that dies with what it has, or comes back for it: ``URL ADDRESS COUNT MODE``.

It asks for its terminus to be kept, and for 10 messages in the same write as its attach, as proton
does; it knows nothing of what it had. ``die`` ends the process with COUNT unsettled; ``settle``
accepts COUNT. It prints body and delivery-count of each.
"""

import json
import os
import sys
from typing import Any

from proton import Terminus
from proton.handlers import MessagingHandler
from proton.reactor import Container, ReceiverOption

SECONDS = 30


class Kept(ReceiverOption):  # type: ignore[misc]  # proton has no types
    def apply(self, receiver: Any) -> None:
        receiver.source.expiry_policy = Terminus.EXPIRE_WITH_CONNECTION
        receiver.source.timeout = 300


class Returning(MessagingHandler):  # type: ignore[misc]  # as before
    def __init__(self, url: str, address: str, count: int, mode: str) -> None:
        super().__init__(prefetch=10, auto_accept=False)
        self.url, self.address, self.count, self.mode = url, address, count, mode
        self.seen: list[tuple[object, int]] = []

    def on_start(self, event: Any) -> None:
        self.connection = event.container.connect(self.url, reconnect=False)
        event.container.create_receiver(self.connection, self.address, name="in", options=[Kept()])
        event.container.schedule(SECONDS, self)

    def on_message(self, event: Any) -> None:
        self.seen.append((event.message.body, event.message.delivery_count))
        if self.mode == "settle":
            self.accept(event.delivery)
        if len(self.seen) == self.count:
            self.end()

    def end(self) -> None:
        print(json.dumps(self.seen), flush=True)
        if self.mode == "die":
            os._exit(0)
        self.connection.close()
        self.count = -1

    def on_connection_closed(self, event: Any) -> None:
        os._exit(0)  # the container would run until its timer has

    def on_timer_task(self, event: Any) -> None:
        if self.count >= 0:
            print(json.dumps(self.seen), flush=True)
            os._exit(1)


if __name__ == "__main__":
    url, address, count, mode = sys.argv[1:]
    handler = Returning(url, address, int(count), mode)
    container = Container(handler)
    container.container_id = "returning"
    container.run()
    os._exit(0)
