"""Bindings of queues to exchanges (0-10 exchange.bind)."""

from typing import Any

import attrs

from router.wire.topics import key_at, key_matches
from router.wire.v0_10.types import Table


@attrs.frozen
class Binding:
    """A queue's binding to an exchange (0-10 exchange.bind)."""

    exchange: str
    key: str
    arguments: Table
    address: str
    is_pattern: bool = False

    def covers(self, address: str) -> bool:
        """Returns whether a binding with wildcards matches an address."""
        key = key_at(self.exchange, address)
        return key is not None and key_matches(self.key, key)


def headers_match(arguments: dict[str, Any], headers: dict[str, Any]) -> bool:
    """Returns whether a headers exchange's binding matches a message (0-10 exchange, headers type).

    ``x-match`` is ``all`` unless it is ``any``; other names that begin with ``x-`` are ignored; a
    void value only requires the header to be present.
    """
    wanted = [(name, value) for name, value in arguments.items() if not name.startswith("x-")]
    hits = (name in headers and (value is None or headers[name] == value) for name, value in wanted)
    if arguments.get("x-match") == "any":
        return any(hits)
    return all(hits)
