"""SASL in CONNECTION CHALLENGE and RESPONSE (RFC 006 §3.2.3-4).

The specification leaves the fields of both tables "to be defined". *Inferred* from later
revisions::

    PLAIN        responses LOGIN, PASSWORD            0.7d0
    NONE         an empty table: nobody in particular 0.7d1
    others       responses RESPONSE, challenges CHALLENGE, the mechanism's own octets: ours

A mechanism's final data is sent as one more CHALLENGE, which is answered by an empty RESPONSE.
"""

from typing import Final

from router.wire.fast.types import Table

ANONYMOUS, PLAIN, NONE = "ANONYMOUS", "PLAIN", "NONE"

_LOGIN: Final = "LOGIN"
_PASSWORD: Final = "PASSWORD"
_RESPONSE: Final = "RESPONSE"
_CHALLENGE: Final = "CHALLENGE"


def _octets(table: Table, name: str) -> bytes | None:
    """Returns a field in any case: the specification's example has lower-case names (§3.2.13)."""
    for key, value in table.items():
        if key.upper() == name and isinstance(value, bytes):
            return value
    return None


def response_of(mechanism: str, table: Table) -> bytes | None:
    """Returns a mechanism's octets in a RESPONSE; None: there are none."""
    if mechanism == PLAIN:
        login, password = _octets(table, _LOGIN), _octets(table, _PASSWORD)
        if login is not None and password is not None:
            return b"\0" + login + b"\0" + password
    return _octets(table, _RESPONSE)


def table_of_response(mechanism: str, octets: bytes | None) -> Table:
    """Builds the table of a RESPONSE."""
    if mechanism == PLAIN and octets is not None and octets.count(b"\0") == 2:
        _, login, password = octets.split(b"\0")
        return {_LOGIN: login, _PASSWORD: password}
    if mechanism in (ANONYMOUS, NONE) or octets is None:
        return {}
    return {_RESPONSE: octets}


def challenge_of(table: Table) -> bytes | None:
    """Returns a mechanism's octets in a CHALLENGE; None: there are none."""
    return _octets(table, _CHALLENGE)


def table_of_challenge(octets: bytes) -> Table:
    """Builds the table of a CHALLENGE."""
    return {_CHALLENGE: octets}
