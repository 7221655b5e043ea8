"""Virtual hosts that have routes of their own, and the internal form of their addresses.

A connection that asks for such a virtual host sees the routes of that host only; all
other hosts share the routes that name none. Inside the router, in the journal and towards its other
workers an address of such a host is written as::

    $vhost/<name of the host, one token>/<address>

so that equal addresses of different hosts differ everywhere. Peers never see this form, and
may not use it: for peers, addresses that begin with the token ``$vhost`` do not exist.
"""

import re
from typing import Final
from urllib.parse import quote, unquote

_MARK: Final = "$vhost"

_PREFIXES: Final = ("$vhost/", "$vhost.")


def inside(vhost: str, address: str) -> str:
    """Returns the internal form of an address.

    Args:
        vhost: a virtual host with routes of its own; empty: the one that all others share.
        address: the peers' form; may be a pattern.
    """
    if not vhost:
        return address
    return f"{_MARK}/{quote(vhost, safe='').replace('.', '%2E')}/{address}"


def outside(address: str) -> str:
    """Returns the peers' form of an address."""
    if not address.startswith(_PREFIXES):
        return address
    return _split(address)[-1]


def vhost_of(address: str) -> str:
    """Returns the virtual host of an address in internal form; empty: the shared one."""
    if not address.startswith(_PREFIXES):
        return ""
    return unquote(_split(address)[1])


def _split(address: str) -> list[str]:
    """Cuts off the two tokens before an address; the separators are equal to each other."""
    mark, vhost, *rest = re.split("[./]", address, maxsplit=2)
    return [mark, vhost, *rest]


def is_reserved(address: str) -> bool:
    """Returns whether an address is reserved, so that no peer may use it."""
    return address == _MARK or address.startswith(_PREFIXES)
