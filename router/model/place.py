"""Where a socket is: a host and a port, or a path."""

import ipaddress
import re
from pathlib import Path
from typing import Final

import attrs

_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,63}(\.[A-Za-z0-9_-]{1,63})*\.?")
_NAME_MOST: Final = 254
"""With the last dot (RFC 1035 §2.3.4)."""


def is_host(text: str) -> bool:
    """Whether a text is a host's name or its IP address: what is neither cannot be looked up."""
    if ":" not in text:
        return len(text) <= _NAME_MOST and _NAME.fullmatch(text) is not None
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return True


@attrs.frozen
class TcpAddress:
    """A TCP socket's address; port 0 lets the system choose."""

    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@attrs.frozen
class UnixAddress:
    """A Unix stream socket's path."""

    path: Path

    @property
    def is_loopback(self) -> bool:
        """Only this machine can reach it."""
        return True

    def __str__(self) -> str:
        return f"unix:{self.path}"


BindAddress = TcpAddress | UnixAddress


@attrs.frozen(kw_only=True)
class Alternative:
    """Another place where a container can be dialed, in the terms of a redirect (§2.8.16).

    Attributes:
        host: DNS name or IP address (``network-host``).
        port: None: the usual one of the scheme.
        scheme: amqp, amqps, ws or wss; None: that of the connection on which it is named.
        hostname: what to name in open, SASL and TLS there; None: ``host``.
        path: of a WebSocket there.
    """

    host: str
    port: int | None = None
    scheme: str | None = None
    hostname: str | None = None
    path: str | None = None

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = "" if self.port is None else f":{self.port}"
        return f"{f'{self.scheme}://' if self.scheme else ''}{host}{port}{self.path or ''}"
