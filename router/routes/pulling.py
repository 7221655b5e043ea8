"""Names of messages that are pulled by a pattern, and of what a bridge publishes.

A route whose address has wildcards may pull, too: from an exchange, by a pattern of routing keys,
or from a queue. Each message then has an address of its own. That is the name which its container
has for where the message was published, EXCHANGE/KEY, if the route's pattern matches that;
otherwise the route's address, filled with what the wildcards of ``from`` stand for::

    address      from                      published to     becomes
    prices/#     east/prices/#             prices/eu.ber    prices/eu.ber
    quotes/#     east/prices/#             prices/eu.ber    quotes/eu.ber
    quotes/#     east//exchanges/a%2Fb/#   a/b/eu.ber       quotes/eu.ber     (exchange a/b)
    prices/#     east/copies               prices/eu.ber    prices/eu.ber     (a queue)
    prices/*     east/prices/#             prices/eu/ber    nothing: the route is not for it

Towards a target the address is renamed like any other (``rewrite``). An empty routing key has an
empty last token, ``prices/``, which no renaming takes away.
"""

from typing import Final
from urllib.parse import unquote

from router.routes.match import (
    Pattern,
    PatternError,
    capture,
    has_wildcards,
    matches,
    parse_pattern,
)
from router.routes.rewrite import check_rename, rename
from router.routes.route import Endpoint, Route
from router.routes.vhost import inside, outside

_QUOTED: Final = ("/exchanges/", "/queues/")
"""Beginnings of the forms in which RabbitMQ's names are percent-encoded."""

REMEMBERED_NAMES: Final = 4096
"""Names cached for each link; all are forgotten when there are more."""


class SourceNames:
    """Finds the addresses of what is pulled by one route."""

    def __init__(self, route: Route) -> None:
        assert route.from_ is not None
        self._address, self._vhost = route.address, route.vhost
        self._pattern = parse_pattern(route.address)
        source = None if route.from_.address is None else published_name(route.from_.address)
        self._source: Pattern | None = None
        if source is not None and has_wildcards(source):
            self._source = parse_pattern(source)
            try:
                check_rename(self._source, route.address)
            except PatternError:
                self._source = None  # the file's checks refuse it
        self._known: dict[str, str | None] = {}

    def find(self, published: str | None) -> str | None:
        """Returns the address of a message; None: the route is not for it.

        Args:
            published: where it was published, as its container names it; None: nobody knows.
        """
        if published is None:
            return None
        try:
            return self._known[published]
        except KeyError:
            pass
        if len(self._known) >= REMEMBERED_NAMES:
            self._known.clear()
        found = self._known[published] = self._find(published)
        return found

    def _find(self, published: str) -> str | None:
        name = inside(self._vhost, published)
        if matches(self._pattern, name):
            return name
        captured = None if self._source is None else capture(self._source, published)
        if self._source is None or captured is None:
            return None
        return with_key(rename(self._source, captured, self._address), published)


class TargetNames:
    """Finds the names that a target has for the addresses of one route."""

    def __init__(self, route: Route, endpoint: Endpoint) -> None:
        self._pattern = parse_pattern(route.address)
        self._target = endpoint.address
        self._known: dict[str, str | None] = {}

    def find(self, address: str | None) -> str | None:
        """Returns what an address is called there; None: the route is not for it."""
        if address is None:
            return None
        try:
            return self._known[address]
        except KeyError:
            pass
        if len(self._known) >= REMEMBERED_NAMES:
            self._known.clear()
        found = self._known[address] = self._find(address)
        return found

    def _find(self, address: str) -> str | None:
        if self._target is None:
            return outside(address)
        captured = capture(self._pattern, address)
        if captured is None:
            return None
        if self._target.startswith(_QUOTED):
            captured = tuple(each.replace("%", "%25") for each in captured)
        return with_key(rename(self._pattern, captured, self._target), address)


def is_exchange(address: str) -> bool:
    """Returns whether a broker's name for an address is that of an exchange and a key."""
    if address.startswith("/"):
        return address[1:].partition("/")[0] in ("exchange", "exchanges", "topic")
    return "/" in address


def published_name(address: str) -> str:
    """Returns the plain name EXCHANGE/KEY of an address that may have one of RabbitMQ's forms."""
    kind, _, rest = address[1:].partition("/") if address.startswith("/") else ("", "", "")
    if kind == "exchanges":
        return unquote(rest)
    if kind == "exchange":
        return rest
    return f"amq.topic/{rest}" if kind == "topic" else address


def with_key(renamed: str, name: str) -> str:
    """Returns a renamed address with its empty routing key, if the name that it stands for had one.

    Renaming leaves a separator out where ``#`` stands for nothing; the exchange would be a queue.
    """
    return f"{renamed}/" if name.endswith("/") and "/" not in renamed else renamed
