"""Who may come in by password: users of the configuration, or of a file that keeps no passwords.

Such a file has one line for each user: the name, percent-encoded, and what SCRAM needs to know of
the password (RFC 5802 §3), one word for each mechanism::

    # users of the router; see `router user --help`
    alice SCRAM-SHA-256:15000:<salt>:<stored key>:<server key> SCRAM-SHA-512:15000:...

The same words tell whether a password of PLAIN is right. That takes some milliseconds of work, so
passwords that were right are remembered for as long as the process lives, by a keyed hash.
"""

import hmac
import os
import secrets
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final
from urllib.parse import quote, unquote

import attrs

from router.errors import RouterError
from router.service.config import Secret
from router.wire.sasl import ScramSecret
from router.wire.scram import derive, is_password_of, read_secret, write_secret

KEPT_MECHANISMS: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
"""What is written for each user; SHA-1 is too old to begin with."""

LARGEST_FILE_OCTETS: Final = 64 << 20

_HEAD: Final = "# users of the router; see `router user --help`\n"

_SALT_OCTETS: Final = 16

_NOBODY: Final = ScramSecret("SCRAM-SHA-256", 15_000, bytes(_SALT_OCTETS), b"", b"")
"""Checked for users that do not exist, so that these take as long."""

Users = Mapping[str, Mapping[str, ScramSecret]]
"""By user and mechanism."""


@attrs.frozen
class UserFileError(RouterError):
    """A file of users that cannot be read.

    Attributes:
        path: the file.
        reason: why, in one phrase.
    """

    path: Path
    reason: str

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


def hash_password(password: str) -> dict[str, ScramSecret]:
    """Makes what is kept of a password.

    Raises:
        ValueError: it is no password that SCRAM can take.
    """
    return {
        mechanism: derive(mechanism, password, secrets.token_bytes(_SALT_OCTETS))
        for mechanism in KEPT_MECHANISMS
    }


def read_users(path: Path) -> dict[str, dict[str, ScramSecret]]:
    """Reads a file of users.

    Raises:
        UserFileError: it cannot be read, or a line is none.
    """
    try:
        with path.open("rb") as opened:
            octets = opened.read(LARGEST_FILE_OCTETS + 1)
        text = octets.decode()
    except OSError as error:
        raise UserFileError(path, error.strerror or str(error)) from None
    except UnicodeDecodeError:
        raise UserFileError(path, "not UTF-8") from None
    if len(octets) > LARGEST_FILE_OCTETS:
        raise UserFileError(path, f"exceeds {LARGEST_FILE_OCTETS >> 20} MiB")
    users: dict[str, dict[str, ScramSecret]] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        name, *words = line.split()
        try:
            found = [read_secret(word) for word in words]
        except ValueError as error:
            raise UserFileError(path, f"line {number}: {error}") from None
        if not found or unquote(name) in users:
            raise UserFileError(path, f"line {number}: no secrets, or a user that was there before")
        users[unquote(name)] = {secret.mechanism: secret for secret in found}
    return users


def write_users(path: Path, users: Users) -> None:
    """Writes a file of users in one step; only its owner may read it.

    Raises:
        OSError: it cannot be written.
    """
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as opened:
            opened.write(_HEAD + "".join(_lines(users)))
            opened.flush()
            os.fsync(opened.fileno())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _lines(users: Users) -> Iterator[str]:
    for user, kept in users.items():
        words = " ".join(write_secret(secret) for secret in kept.values())
        yield f"{quote(user, safe='@')} {words}\n"


@attrs.define(eq=False)
class Remembered:
    """Passwords that were right, by a keyed hash; and the slow way to find out."""

    _key: bytes = attrs.field(factory=lambda: secrets.token_bytes(32), init=False, repr=False)
    _right: dict[str, tuple[ScramSecret, bytes]] = attrs.field(factory=dict, init=False, repr=False)

    def is_right(self, user: str, password: str, secret: ScramSecret | None) -> bool:
        """Tells whether a password is the one that a secret stands for."""
        told = hmac.digest(self._key, password.encode(), "sha256")
        known = self._right.get(user)
        if known is not None and known[0] is secret:
            if hmac.compare_digest(known[1], told):
                return True
        if not is_password_of(_NOBODY if secret is None else secret, password) or secret is None:
            return False
        self._right[user] = (secret, told)
        return True


@attrs.define(eq=False)
class WrittenUsers:
    """Users that stand in the configuration with their passwords; a ``Verifier``."""

    passwords: Mapping[str, Secret]
    _secrets: dict[tuple[str, str], ScramSecret] = attrs.field(factory=dict, init=False, repr=False)

    def verify_plain(self, user: str, password: str) -> bool:
        """Compares in constant time, for users that do not exist as well."""
        known = self.passwords.get(user)
        expected = "" if known is None else known.reveal()
        same = hmac.compare_digest(expected.encode(), password.encode())
        return same and known is not None

    def find_secret(self, user: str, mechanism: str) -> ScramSecret | None:
        """Gives the secret that stands for a user's password, made when it is asked for first."""
        known = self.passwords.get(user)
        if known is None:
            return None
        secret = self._secrets.get((user, mechanism))
        if secret is None:
            try:
                secret = derive(mechanism, known.reveal(), secrets.token_bytes(_SALT_OCTETS))
            except ValueError:
                return None
            self._secrets[user, mechanism] = secret
        return secret


@attrs.define(eq=False)
class UserFile:
    """Users of a file; a ``Verifier``. The file is read again when it has changed."""

    path: Path
    _users: dict[str, dict[str, ScramSecret]] = attrs.field(init=False, repr=False)
    _stamp: tuple[int, int, int] | None = attrs.field(default=None, init=False)
    _remembered: Remembered = attrs.field(factory=Remembered, init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        """Reads the file.

        Raises:
            UserFileError: it cannot be read.
        """
        self._stamp = self._look()
        self._users = read_users(self.path)

    def _look(self) -> tuple[int, int, int] | None:
        try:
            status = self.path.stat()
        except OSError:
            return None
        return status.st_mtime_ns, status.st_size, status.st_ino

    def _refresh(self) -> None:
        """Reads the file again if it has changed; what cannot be read leaves all as it was."""
        stamp = self._look()
        if stamp is None or stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self._users = read_users(self.path)
        except UserFileError:
            return

    def verify_plain(self, user: str, password: str) -> bool:
        """Tells whether the password is the user's."""
        self._refresh()
        kept = self._users.get(user, {})
        return self._remembered.is_right(user, password, next(iter(kept.values()), None))

    def find_secret(self, user: str, mechanism: str) -> ScramSecret | None:
        """Gives what is kept of a user for a mechanism of SCRAM; None: nothing."""
        self._refresh()
        return self._users.get(user, {}).get(mechanism)
