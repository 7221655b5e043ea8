"""Where a socket is: a host and a port, or a path."""

import ipaddress
from pathlib import Path

import attrs


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
