"""The secret by which users that do not exist look like those that do.

Whoever begins a SCRAM exchange hears a salt and a number of iterations before he has proved
anything (RFC 5802 §5.1). Both are derived from this secret and the name, for users whose passwords
stand in the file and for names that nobody has; so they are the same at every worker, on every
connection and after a restart, and tell nothing about who exists. The secret lies in the state
directory, which only the router may read.
"""

import contextlib
import hmac
import os
import secrets
import tempfile
from pathlib import Path
from typing import Final

import attrs

from router.errors import RouterError

FILE_NAME: Final = "login.key"

KEY_OCTETS: Final = 32


@attrs.frozen
class LoginKeyError(RouterError):
    """The secret can be neither read nor made.

    Attributes:
        path: where it should be.
        reason: why, in one phrase.
    """

    path: Path
    reason: str

    def __str__(self) -> str:
        return f"router.state: {self.path}: {self.reason}"


@attrs.frozen
class LoginKey:
    """Derives what is told about users from a secret."""

    octets: bytes = attrs.field(repr=False)

    def salt(self, user: str, mechanism: str, size: int) -> bytes:
        """Returns the salt of a user for a mechanism, ``size`` octets long, 64 at most."""
        return self.derive("salt", user, mechanism)[:size]

    def derive(self, purpose: str, user: str, mechanism: str) -> bytes:
        """Returns 64 octets that nobody can guess, the same whenever they are asked for."""
        told = "\0".join((purpose, mechanism, user)).encode("utf-8", "surrogatepass")
        return hmac.digest(self.octets, told, "sha512")


def random_key() -> LoginKey:
    """Returns a secret that is forgotten with the process."""
    return LoginKey(secrets.token_bytes(KEY_OCTETS))


def keep_key(state: Path) -> LoginKey:
    """Returns the secret of a state directory; makes it, once, if there is none.

    Several workers may do so at the same time: the first one's file counts for all.

    Raises:
        LoginKeyError: the directory cannot be written, or the file is no such secret.
    """
    path = state / FILE_NAME
    try:
        if not path.exists():
            _make(path)
        octets = path.read_bytes()
    except OSError as error:
        raise LoginKeyError(path, error.strerror or str(error)) from None
    if len(octets) != KEY_OCTETS:
        raise LoginKeyError(path, f"it has {len(octets)} octets instead of {KEY_OCTETS}")
    return LoginKey(octets)


def _make(path: Path) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as opened:
            opened.write(secrets.token_bytes(KEY_OCTETS))
            opened.flush()
            os.fsync(opened.fileno())
        with contextlib.suppress(FileExistsError):  # another worker was first
            os.link(name, path)
    finally:
        Path(name).unlink()
