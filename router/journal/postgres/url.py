"""The URL of a store: as people may see it, and what is wrong with it."""

import difflib
import re
from typing import Final

_PASSWORD: Final = re.compile(r"(://[^:/@\s]*:)\S*@")
"""Up to the last @: one that stands in a password and is not written %40 ends nothing."""


_PARAMETERS: Final = """
host hostaddr port dbname user password passfile require_auth channel_binding connect_timeout
client_encoding options application_name fallback_application_name keepalives keepalives_idle
keepalives_interval keepalives_count tcp_user_timeout replication gssencmode ssl sslmode
requiressl sslnegotiation sslcompression sslcert sslkey sslkeylogfile sslpassword sslcertmode
sslrootcert sslcrl sslcrldir sslsni requirepeer ssl_min_protocol_version
ssl_max_protocol_version min_protocol_version max_protocol_version krbsrvname gsslib
gssdelegation scram_client_key scram_server_key service servicefile target_session_attrs
load_balance_hosts oauth_issuer oauth_client_id oauth_client_secret oauth_scope
"""
PARAMETERS: Final = frozenset(_PARAMETERS.split())
"""Of libpq, up to PostgreSQL 18; an older one may know fewer, and says so when it connects."""


def shown(url: str) -> str:
    """Returns a URL without its password."""
    return re.sub(r"([?&]password=)[^&]*", r"\1…", _PASSWORD.sub(r"\1…@", url))


def why_unusable(url: str) -> str | None:
    """Returns what libpq would refuse in a URL; None: it can be read.

    Says nothing of a host, a user or a password that is wrong, and repeats no part that may belong
    to a password.
    """
    authority, _, rest = url.partition("://")[2].partition("/")
    authority, mark, query = authority.partition("?")
    user, has_user, hosts = authority.rpartition("@")
    if "@" in user:
        return "an @ in a password or user is written %40"
    if not has_user and "@" in rest.partition("?")[0]:
        return "a / in a password or user is written %2F"
    pairs = [each.partition("=") for each in (query if mark else rest.partition("?")[2]).split("&")]
    unknown = sorted({name for name, _, _ in pairs if name} - PARAMETERS)
    if unknown:
        near = difflib.get_close_matches(unknown[0], PARAMETERS, 1)
        hint = f"; the nearest that there is: {near[0]}" if near else ""
        return f"libpq has no parameter {unknown[0]}{hint}"
    if any(not is_there for name, is_there, _ in pairs if name):
        return "each parameter is NAME=VALUE"
    ports = [_port_of(each) for each in hosts.split(",")]
    ports += [each for name, _, value in pairs if name == "port" for each in value.split(",")]
    if not all(each == "" or (each.isdecimal() and 0 < int(each) < 65536) for each in ports):
        return "a port is a number from 1 to 65535"
    return None


def _port_of(host: str) -> str:
    """Returns the port of HOST:PORT or [ADDRESS]:PORT; empty: it is the usual one."""
    return host.rpartition("]")[2].partition(":")[2]
