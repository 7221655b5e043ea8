"""Virtual hosts that have routes of their own, and what their addresses are called inside.

A connection that asks for such a virtual host sees the routes of that host and no others; all
other names share the routes that name none. Inside the router, in the journal and towards its other
workers an address of such a host is written as::

    $vhost/<name of the host, one token>/<address>

so that equal addresses of different hosts are different everywhere. Peers never see this form, and
may not use it: for them addresses that begin with the token ``$vhost`` do not exist.
"""

import re
from typing import Final
from urllib.parse import quote, unquote

_MARK: Final = "$vhost"

_PREFIXES: Final = ("$vhost/", "$vhost.")


def inside(vhost: str, address: str) -> str:
    """Returns what an address is called inside.

    Args:
        vhost: a virtual host with routes of its own; empty: what all others share.
        address: as peers call it; a pattern as well.
    """
    if not vhost:
        return address
    return f"{_MARK}/{quote(vhost, safe='').replace('.', '%2E')}/{address}"


def outside(address: str) -> str:
    """Returns what peers call an address."""
    if not address.startswith(_PREFIXES):
        return address
    return _split(address)[-1]


def vhost_of(address: str) -> str:
    """Returns the virtual host of an address as it is called inside; empty: the shared one."""
    if not address.startswith(_PREFIXES):
        return ""
    return unquote(_split(address)[1])


def _split(address: str) -> list[str]:
    """Cuts off the two tokens before an address; the separators are equal to each other."""
    mark, vhost, *rest = re.split("[./]", address, maxsplit=2)
    return [mark, vhost, *rest]


def is_reserved(address: str) -> bool:
    """Returns whether an address is none that a peer may use."""
    return address == _MARK or address.startswith(_PREFIXES)
