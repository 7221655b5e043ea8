"""The secret that makes unknown users indistinguishable from existing ones.

In a SCRAM exchange the client receives a salt and an iteration count before it has proved anything
(RFC 5802 §5.1). Both are derived from this secret and the user name, for users of the configuration
and for unknown names alike; they are the same at every worker, on every connection and after a
restart, and so do not reveal whether a user exists. The secret is kept in the state directory,
which only the router may read. With a journal on PostgreSQL the journal's process replaces it there
by the one that routers of this id share.
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
from router.journal.postgres.lease import LOGIN_KEY_NAME

FILE_NAME: Final = LOGIN_KEY_NAME

KEY_OCTETS: Final = 32


@attrs.frozen
class LoginKeyError(RouterError):
    """The secret can be neither read nor created.

    Attributes:
        path: the secret's file.
        reason: the cause, in one phrase.
    """

    path: Path
    reason: str

    def __str__(self) -> str:
        return f"router.state: {self.path}: {self.reason}"


@attrs.define
class LoginKey:
    """Derives salts and other values of users from a secret.

    Attributes:
        octets: the secret.
        path: the file that has it, and may be given another one; None: it has no file.
    """

    octets: bytes = attrs.field(repr=False)
    path: Path | None = attrs.field(default=None, eq=False)
    _stamp: tuple[int, int] | None = attrs.field(default=None, init=False, eq=False, repr=False)

    def __attrs_post_init__(self) -> None:
        self._stamp = self._look()

    def refresh(self) -> bool:
        """Reads the file again if it is another one; returns whether the secret is."""
        stamp = self._look()
        if stamp is None or stamp == self._stamp or self.path is None:
            return False
        self._stamp = stamp
        try:
            octets = self.path.read_bytes()
        except OSError:
            return False
        if len(octets) != KEY_OCTETS or octets == self.octets:
            return False
        self.octets = octets
        return True

    def _look(self) -> tuple[int, int] | None:
        if self.path is None:
            return None
        try:
            status = self.path.stat()
        except OSError:
            return None
        return status.st_mtime_ns, status.st_ino

    def salt(self, user: str, mechanism: str, size: int) -> bytes:
        """Returns a user's salt for a mechanism, ``size`` octets long (64 at most)."""
        return self.derive("salt", user, mechanism)[:size]

    def derive(self, purpose: str, user: str, mechanism: str) -> bytes:
        """Returns 64 octets that cannot be guessed and are the same for the same arguments."""
        text = "\0".join((purpose, mechanism, user)).encode("utf-8", "surrogatepass")
        return hmac.digest(self.octets, text, "sha512")


def random_key() -> LoginKey:
    """Returns a random secret that is not stored."""
    return LoginKey(secrets.token_bytes(KEY_OCTETS))


def keep_key(state: Path) -> LoginKey:
    """Returns the secret of a state directory; creates it if there is none.

    Several workers may do so at the same time: all use the file of the first one.

    Raises:
        LoginKeyError: the directory cannot be written, or the file holds no such secret.
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
    return LoginKey(octets, path)


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
