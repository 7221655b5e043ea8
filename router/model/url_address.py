"""Addresses as URLs: ``amqp://host/path`` names the address ``path``.

Some clients write the whole URL of a node into the terminus, or into a message's ``to``. The path
without its first slash is the address, percent-decoded (RFC 3986 §2.1); scheme, user, host and port
say how to reach this router, which has been reached, and are ignored. A URL that this does not fit
(no path, a query or a fragment, octets that are not UTF-8) is left as it is, so that the refusal
quotes it (``names_nothing``).
"""

import re
from typing import Final
from urllib.parse import unquote_to_bytes

_START: Final = re.compile(r"amqps?:/", re.IGNORECASE)
_URL: Final = re.compile(r"amqps?:(?://[^/?#]*/|/(?!/))([^?#]+)", re.IGNORECASE)
_ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")


def path_of(address: str) -> str:
    """Returns the address that a URL names; any other address as it is."""
    if not _START.match(address):
        return address
    found = _URL.fullmatch(address)
    if found is None or _ESCAPE.search(found[1]):
        return address
    try:
        return unquote_to_bytes(found[1]).decode()
    except UnicodeDecodeError:
        return address


def names_nothing(address: str) -> bool:
    """Returns whether an address is a URL still, because ``path_of`` finds no address in it."""
    return _START.match(address) is not None and path_of(address) == address
