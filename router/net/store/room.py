"""How much more a route may store: one account for all links that bring its messages.

    what the store has said + what is durable since - what is gone since + what waits for the disk
    + credit  is never more than  ``messages``

The store says it with every news, counting what was durable by then; news and replies come in that
order. The octets of a message are known when it comes: credit is granted for as many as there is
room for by their mean size, the larger one of all and of the last that came together.
"""

from typing import Final

import attrs

from router.journal.store.asks import RouteNews
from router.journal.store.queues import UNBOUNDED, Bounds
from router.links.sharing import Sharing
from router.model.identity import LinkId

WINDOW: Final = 1000
"""Messages that may be on their way to the disk on one link."""

_ANY_NUMBER: Final = 1 << 62
_UNKNOWN_OCTETS: Final = 1 << 16  # a message is taken to be so large before one has come


@attrs.define(eq=False)
class Room:
    """The account of one route.

    Attributes:
        bounds: of the route.
        shares: of the links that may be granted credit.
    """

    bounds: Bounds = UNBOUNDED
    shares: Sharing[LinkId] = attrs.field(factory=lambda: Sharing[LinkId](WINDOW))
    _messages: int = attrs.field(default=0, init=False)
    _octets: int = attrs.field(default=0, init=False)
    _waiting: int = attrs.field(default=0, init=False)
    _waiting_octets: int = attrs.field(default=0, init=False)
    _recent: int = attrs.field(default=0, init=False)  # mean size of those that came last

    def told(self, news: RouteNews) -> None:
        """Records what the store holds, and has told to be durable."""
        self._messages, self._octets = news.messages, news.octets

    def came(self, messages: int, octets: int) -> None:
        """Records messages that wait for the disk now."""
        self._waiting += messages
        self._waiting_octets += octets
        self._recent = -(-octets // messages)

    def stored(self, messages: int, octets: int) -> None:
        """Records that messages are durable now."""
        self._waiting -= messages
        self._waiting_octets -= octets
        self._messages += messages
        self._octets += octets

    def left(self, messages: int) -> None:
        """Records that it is durable that messages are gone."""
        self._octets = max(0, self._octets - messages * (self._octets // max(1, self._messages)))
        self._messages = max(0, self._messages - messages)

    @property
    def free(self) -> int:
        """How many messages may come, those with credit included."""
        messages, octets = self.bounds.most
        free = _ANY_NUMBER
        if messages is not None:
            free = max(0, messages - self._messages - self._waiting)
        if octets is not None:
            spare = max(0, octets - self._octets - self._waiting_octets)
            free = min(free, -(-spare // self._size))
        return free

    @property
    def _size(self) -> int:
        """What a message is taken to have, in octets."""
        messages = self._messages + self._waiting
        if not messages:
            return max(1, self._recent or _UNKNOWN_OCTETS)
        return max(1, self._recent, (self._octets + self._waiting_octets) // messages)
