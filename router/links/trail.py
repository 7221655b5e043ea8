"""The chain of redirects that began at one place, which has an end.

A peer that redirects, a connection (§2.8.16) or a link (§2.8.18), may be wrong or lie. A chain is
refused when it becomes longer than ``HOPS_MOST`` or returns to where it has been.
"""

from typing import Final

import attrs

from router.errors import RouterError

HOPS_MOST: Final = 8
"""As many redirects are followed in a row. A cluster needs one or two."""


class RefusedDiversionError(RouterError):
    """Policy, or the chain of redirects so far, forbids to go to a place."""


@attrs.frozen
class Trail:
    """The redirects that began at one place.

    Attributes:
        visited: the places where it was, in order.
    """

    visited: tuple[str, ...]

    def onward(self, place: str) -> "Trail":
        """Returns the chain with one more place.

        Raises:
            RefusedDiversionError: the chain has been there, or is too long.
        """
        chain = " -> ".join([*self.visited, place])
        if place in self.visited:
            raise RefusedDiversionError(f"redirects go round in a circle: {chain}")
        if len(self.visited) > HOPS_MOST:
            raise RefusedDiversionError(f"more than {HOPS_MOST} redirects in a row: {chain}")
        return Trail((*self.visited, place))
