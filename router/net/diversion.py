"""Whether and where a dialer follows a peer that names other places: policy and redirects.

Theory of operation. A peer names places in the ``failover-server-list`` of its open, for when its
connection is lost, or in a redirect, which ends the connection (§2.8.16). The dialer would log in
there with the container's credentials, so a place is dialed only if policy allows it:

- the file says ``failover: obey``;
- its host is one of the container's URLs, or matches ``failover_hosts``;
- it has TLS if and only if the URL has it: a redirect never leads out of TLS.

The chain of redirects (``links/trail``) ends where a connection opens and stays.
"""

from collections.abc import Mapping
from typing import Final

import attrs

from router.links.trail import RefusedDiversionError
from router.model.condition import CONNECTION_REDIRECT, Condition
from router.model.place import Alternative
from router.wire.alternatives import (
    FAILOVER_SERVER_LIST,
    Listed,
    UnfitAlternativeError,
    read_alternative,
    read_list,
)

_OVER_TLS: Final = ("amqps", "wss")


@attrs.frozen(kw_only=True)
class DiversionPolicy:
    """Which places that a peer names are dialed.

    Attributes:
        is_obeyed: any are.
        hosts: allowed hosts, in lower case; ``*`` is any, ``*.domain`` any below a domain.
        option: the configuration key that allows more, for people.
        ignored: why none is, if so, for people.
    """

    is_obeyed: bool = False
    hosts: tuple[str, ...] = ()
    option: str = "failover_hosts"
    ignored: str = "the file says failover: ignore"

    def check(self, other: Alternative, *, is_tls: bool) -> None:
        """Checks a place that is named on a connection of the container.

        Args:
            other: the place.
            is_tls: the container's URL has TLS.

        Raises:
            RefusedDiversionError: it is not to be dialed.
        """
        if not self.is_obeyed:
            raise RefusedDiversionError(self.ignored)
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
