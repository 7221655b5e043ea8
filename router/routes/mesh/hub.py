"""The edges of a router: it speaks for them.

An edge is active on one uplink, and sends its addresses there. They count as receivers of the hub's
own site (``site.Site``), so the mesh hears of them what it hears of others: nothing if a prefix of
the site covers them. When the edge is gone, or has made another uplink its active one, they are
removed. What an edge may serve is checked by the hub's policy under the edge's id; the dynamic
nodes that it makes it may always serve. Of these the mesh knows one prefix for each active edge, so
that a reply finds its way at once.
"""

from collections.abc import Callable, Iterator
from functools import partial

import attrs

from router.routes.match import matches, parse_pattern
from router.routes.mesh.messages import EDGE_ADDRESSES_MOST
from router.routes.mesh.neighbors import Neighbor
from router.routes.mesh.nouns import EdgeAddresses, RouterId, dynamic_prefix
from router.routes.mesh.paths import EDGE_PLACE
from router.routes.mesh.policy import Policy
from router.routes.mesh.site import Site


@attrs.define(eq=False)
class Hub:
    """The addresses behind edges.

    Attributes:
        site: the hub's own.
        tell: called with an edge, an address, and whether the edge serves it from now on.
        kept: addresses that the site could not announce, with the rule.
    """

    site: Site
    tell: Callable[[RouterId, str, bool], None]
    kept: dict[str, str] = attrs.field(factory=dict, init=False)
    _addresses: dict[RouterId, dict[str, None]] = attrs.field(factory=dict, init=False)
    _active: dict[RouterId, None] = attrs.field(factory=dict, init=False)

    @property
    def prefixes(self) -> tuple[str, ...]:
        """The patterns of the dynamic nodes that active edges make."""
        return tuple(map(dynamic_prefix, self._active))

    def note(self, edge: Neighbor, *, is_active: bool) -> bool:
        """Records whether an edge is active here; returns whether that is new."""
        if is_active is (edge.id in self._active):
            return False
        if is_active:
            self._active[edge.id] = None
        else:
            del self._active[edge.id]
        return True

    def hear(self, edge: Neighbor, now: float) -> Iterator[int]:
        """Handles the hello of an edge; yields units of work."""
        return iter(()) if edge.is_active else self.lose(edge, now)

    def lose(self, edge: Neighbor, now: float) -> Iterator[int]:
        """Removes the addresses of an edge that is gone, or active elsewhere; yields units."""
        return self._detach(self._addresses.pop(edge.id, {}), edge.id, now)

    def _detach(self, addresses: dict[str, None], edge: RouterId, now: float) -> Iterator[int]:
        for address in addresses:
            if address in self._addresses.get(edge, ()):
                continue  # it has come back meanwhile
            self.site.detach(address, EDGE_PLACE + edge, now)
            self.tell(edge, address, False)
            yield 1

    def take(
        self, edge: Neighbor, message: EdgeAddresses, policy: Policy, now: float
    ) -> Iterator[tuple[str | None, str | None]]:
        """Handles a message of an edge.

        Yields:
            For each address: the address, or the rule that it breaks.
        """
        if not edge.is_active:
            yield None, "addresses over an uplink that is not active"
            return
        known = self._addresses.setdefault(edge.id, {})
        place = EDGE_PLACE + edge.id
        own = partial(matches, parse_pattern(dynamic_prefix(edge.id)))
        removed = set(known) - set(message.added) if message.is_whole else message.removed
        for address in removed:
            if known.pop(address, "") is None:
                self.site.detach(address, place, now)
                self.tell(edge.id, address, False)
            yield address, None
        for address in message.added:
            if self._addresses.get(edge.id) is not known:
                return  # it is gone meanwhile
            rule = None if own(address) else policy.judge_address(edge.id, address)
            if rule is None and address not in known and len(known) >= EDGE_ADDRESSES_MOST:
                rule = f"more than {EDGE_ADDRESSES_MOST} addresses of an edge"
            if rule is None and address not in known:
                known[address] = None
                self.tell(edge.id, address, True)
                if kept := self.site.attach(address, place, 0, now):
                    self.kept[address] = kept
            yield address, rule
