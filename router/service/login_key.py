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
from functools import partial
from pathlib import Path
from typing import Final

import attrs

from router.errors import RouterError
from router.journal.postgres.lease import LOGIN_KEY_NAME
from router.looking import Looker

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


_Stamp = tuple[int, int]

_FoundKey = tuple[_Stamp, bytes | None]
"""What another file is, and its secret; None: it has none that can be read."""


@attrs.define
class LoginKey:
    """Derives salts and other values of users from a secret.

    Attributes:
        octets: the secret.
        path: the file that has it, and may be given another one; None: it has no file.
    """

    octets: bytes = attrs.field(repr=False)
    path: Path | None = attrs.field(default=None, eq=False)
    _stamp: _Stamp | None = attrs.field(default=None, init=False, eq=False, repr=False)
    _looker: Looker[_FoundKey | None] = attrs.field(init=False, eq=False, repr=False)

    @_looker.default
    def _make_looker(self) -> Looker[_FoundKey | None]:
        return Looker(str(self.path))

    def __attrs_post_init__(self) -> None:
        self._stamp = None if self.path is None else _look(self.path)

    def refresh(self) -> bool:
        """Has the file read again if it is another one; returns whether the secret is.

        While it does not answer, what was read last counts.
        """
        if self.path is None:
            return False
        found = self._looker.look(partial(_find, self.path, self._stamp))
        if found is None:
            return False
        self._stamp, octets = found
        if octets is None or octets == self.octets:
            return False
        self.octets = octets
        return True

    def salt(self, user: str, mechanism: str, size: int) -> bytes:
        """Returns a user's salt for a mechanism, ``size`` octets long (64 at most)."""
        return self.derive("salt", user, mechanism)[:size]

    def derive(self, purpose: str, user: str, mechanism: str) -> bytes:
        """Returns 64 octets that cannot be guessed and are the same for the same arguments."""
        text = "\0".join((purpose, mechanism, user)).encode("utf-8", "surrogatepass")
        return hmac.digest(self.octets, text, "sha512")


def _look(path: Path) -> _Stamp | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ino


def _find(path: Path, known: _Stamp | None) -> _FoundKey | None:
    """Looks at the file, in a thread, and reads it if it is another one."""
    stamp = _look(path)
    if stamp is None or stamp == known:
        return None
    try:
        octets = path.read_bytes()
    except OSError:
        return stamp, None
    return stamp, octets if len(octets) == KEY_OCTETS else None


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
