"""Addresses as URLs: ``amqp://host/path`` names the address ``path``.

Some clients write the whole URL of a node into the terminus, or into a message's ``to``. The path
without its first slash is the address, percent-decoded (RFC 3986 §2.1); scheme, user, host and port
say how to reach this router, which has been reached, and are ignored. A URL that this does not fit
(no path, a query or a fragment, octets that are not UTF-8) is left as it is, so that no route is
found for it and the refusal quotes it.
"""

import re
from typing import Final
from urllib.parse import unquote_to_bytes

_URL: Final = re.compile(r"amqps?:(?://[^/?#]*/|/(?!/))([^?#]+)", re.IGNORECASE)
_ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")


def path_of(address: str) -> str:
    """Returns the address that a URL names; any other address as it is."""
    if address[:4] not in ("amqp", "AMQP"):
        return address
    found = _URL.fullmatch(address)
    if found is None or _ESCAPE.search(found[1]):
        return address
    try:
        return unquote_to_bytes(found[1]).decode()
    except UnicodeDecodeError:
        return address
