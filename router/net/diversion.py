"""Whether and where a dialer follows a peer that names other places: policy and redirects.

Theory of operation. A peer names places in the ``failover-server-list`` of its open, for when its
connection is lost, or in a redirect, which ends the connection (§2.8.16). The dialer would log in
there with the container's credentials, so a place is dialed only if policy allows it:

- the file says ``failover: obey``;
- its host is one of the container's URLs, or matches ``failover_hosts``;
- it has TLS if and only if the URL has it: a redirect never leads out of TLS.

A ``Trail`` is the chain of redirects that began at one place. It ends where a connection opens and
stays, and is refused when it becomes longer than ``HOPS_MOST`` or returns to where it has been.
"""

from collections.abc import Mapping
from typing import Final

import attrs

from router.errors import RouterError
from router.model.condition import CONNECTION_REDIRECT, Condition
from router.model.place import Alternative
from router.wire.alternatives import (
    FAILOVER_SERVER_LIST,
    Listed,
    UnfitAlternativeError,
    read_alternative,
    read_list,
)

HOPS_MOST: Final = 8
"""As many redirects are followed in a row. A cluster needs one or two."""

_OVER_TLS: Final = ("amqps", "wss")


class RefusedDiversionError(RouterError):
    """Policy, or the chain of redirects so far, forbids to dial a place."""


@attrs.frozen(kw_only=True)
class DiversionPolicy:
    """Which places that a peer names are dialed.

    Attributes:
        is_obeyed: any are.
        hosts: allowed hosts, in lower case; ``*`` is any, ``*.domain`` any below a domain.
        option: the configuration key that allows more, for people.
    """

    is_obeyed: bool = False
    hosts: tuple[str, ...] = ()
    option: str = "failover_hosts"

    def check(self, other: Alternative, *, is_tls: bool) -> None:
        """Checks a place that is named on a connection of the container.

        Args:
            other: the place.
            is_tls: the container's URL has TLS.

        Raises:
            RefusedDiversionError: it is not to be dialed.
        """
        if not self.is_obeyed:
            raise RefusedDiversionError("the file says failover: ignore")
        if other.scheme is not None and (other.scheme in _OVER_TLS) is not is_tls:
            with_, without = ("has", "would not") if is_tls else ("has no", "would")
            raise RefusedDiversionError(f"the URL {with_} TLS, and {other.scheme} {without}")
        if not self.allows(other.host):
            raise RefusedDiversionError(f"{self.option} does not name the host {other.host}")

    def allows(self, host: str) -> bool:
        """Returns whether a host may be dialed."""
        plain = host.lower().rstrip(".")
        return any(_fits(pattern, plain) for pattern in self.hosts)


def _fits(pattern: str, host: str) -> bool:
    if pattern == "*":
        return True
    if pattern.startswith("*."):
        return host.endswith(pattern[1:])
    return host == pattern


def read_redirect(condition: Condition | None) -> Listed | None:
    """Returns where a condition leads, best first; None: it is no redirect."""
    if condition is None or condition.name != CONNECTION_REDIRECT:
        return None
    info: Mapping[object, object] = condition.info or {}
    listed = read_list(info.get(FAILOVER_SERVER_LIST, ()))
    try:
        first = read_alternative(info)
    except UnfitAlternativeError as error:
        return Listed(listed.alternatives, (f"the redirect {error}", *listed.refused))
    return Listed((first, *listed.alternatives), listed.refused)


@attrs.frozen
class Trail:
    """The redirects that began at one place.

    Attributes:
        visited: the addresses that were dialed, in order.
    """

    visited: tuple[str, ...]

    def onward(self, address: str) -> "Trail":
        """Returns the chain with one more place.

        Raises:
            RefusedDiversionError: the chain has been there, or is too long.
        """
        chain = " -> ".join([*self.visited, address])
        if address in self.visited:
            raise RefusedDiversionError(f"redirects go round in a circle: {chain}")
        if len(self.visited) > HOPS_MOST:
            raise RefusedDiversionError(f"more than {HOPS_MOST} redirects in a row: {chain}")
        return Trail((*self.visited, address))
