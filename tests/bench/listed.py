"""What a router under load says of its connections and links, page by page."""

import json
from collections.abc import Iterator
from typing import Any, cast
from urllib.request import urlopen

from tests.support.running import RunningRouter
from tests.support.workers import lines

ADMIN = "127.0.0.1:0"
"""``router.admin`` of a router that is asked."""

PATIENCE_SECONDS = 30.0
"""For an answer of a router whose worker is busy."""


def listed(router: RunningRouter, what: str) -> Iterator[dict[str, Any]]:
    """Yields all ``connections`` or ``links`` of a router."""
    (ready,) = lines(router, "router.ready")
    admin = cast("list[str]", ready["admin"])[0]
    after = ""
    while True:
        url = f"http://{admin}/api/v1/{what}?limit=500{after}"
        with urlopen(url, timeout=PATIENCE_SECONDS) as answer:
            page = json.load(answer)
        yield from page[what]
        if page["next"] is None:
            return
        after = f"&after={page['next']}"
