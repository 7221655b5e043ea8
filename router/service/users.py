"""Who may come in by password: users of the configuration, or of a file that keeps no passwords.

Such a file has one line for each user: the name, percent-encoded, and what SCRAM needs to know of
the password (RFC 5802 §3), one word for each mechanism::

    # users of the router; see `router user --help`
    alice SCRAM-SHA-256:15000:<salt>:<stored key>:<server key> SCRAM-SHA-512:15000:...

The same words tell whether a password of PLAIN is right. That takes some milliseconds of work, so
passwords that were right are remembered for as long as the process lives, by a keyed hash.

Nothing that a peer sees before it has proved a password tells whether a user exists: names that
nobody has get a salt, a number of iterations and the work that users have (``login_key``).
"""

import hashlib
import hmac
import os
import secrets
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeVar
from urllib.parse import quote, unquote

import attrs

from router.errors import RouterError
from router.service.config import Secret
from router.service.login_key import LoginKey, random_key
from router.wire.sasl import ScramSecret
from router.wire.scram import ITERATIONS, derive, is_password_of, read_secret, write_secret

KEPT_MECHANISMS: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
"""What is written for each user; SHA-1 is too old to begin with."""

LARGEST_FILE_OCTETS: Final = 64 << 20

_HEAD: Final = "# users of the router; see `router user --help`\n"

_SALT_OCTETS: Final = 16

_Kind = TypeVar("_Kind")

DERIVED_MOST: Final = 10_000
"""Secrets of written users that are remembered, and as many that stand for nobody's names."""

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

    def is_right(self, user: str, password: str, secret: ScramSecret) -> bool:
        """Returns whether a password is the one that a secret stands for."""
        told = hmac.digest(self._key, password.encode(), "sha256")
        known = self._right.get(user)
        if known is not None and known[0] is secret:
            if hmac.compare_digest(known[1], told):
                return True
        if not is_password_of(secret, password):
            return False
        self._right[user] = (secret, told)
        return True


@attrs.define(eq=False)
class WrittenUsers:
    """Users that stand in the configuration with their passwords; a ``Verifier``.

    Attributes:
        passwords: by user.
        key: the salts come from it.
    """

    passwords: Mapping[str, Secret]
    key: LoginKey = attrs.field(factory=random_key)
    _secrets: dict[tuple[str, str], ScramSecret] = attrs.field(factory=dict, init=False, repr=False)

    def verify_plain(self, user: str, password: str) -> bool:
        """Returns whether the password is the user's, in the same time whether he exists or not."""
        known = self.passwords.get(user)
        expected = "" if known is None else known.reveal()
        hashed = (self.key.derive("password", each, "PLAIN") for each in (expected, password))
        return hmac.compare_digest(*hashed) and known is not None

    def find_secret(self, user: str, mechanism: str) -> ScramSecret:
        """Returns the secret that stands for a user's password.

        It is made when it is asked for first, which takes some milliseconds; so it is for names
        that nobody has, from a password that nobody knows.
        """
        secret = self._secrets.pop((user, mechanism), None) or self._derive(user, mechanism)
        self._secrets[user, mechanism] = secret
        if len(self._secrets) > DERIVED_MOST:
            del self._secrets[next(iter(self._secrets))]
        return secret

    def _derive(self, user: str, mechanism: str) -> ScramSecret:
        known = self.passwords.get(user)
        nobodys = self.key.derive("nobody", user, mechanism).hex()
        salt = self.key.salt(user, mechanism, _SALT_OCTETS)
        try:
            return derive(mechanism, nobodys if known is None else known.reveal(), salt)
        except ValueError:  # a password that SCRAM cannot take proves nothing
            return derive(mechanism, nobodys, salt)


@attrs.define(eq=False)
class UserFile:
    """Users of a file; a ``Verifier``. The file is read again when it has changed.

    Attributes:
        path: the file.
        key: what names that nobody has are answered with comes from it.
    """

    path: Path
    key: LoginKey = attrs.field(factory=random_key)
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
        """Returns whether the password is the user's."""
        self._refresh()
        kept = self._users.get(user)
        if kept is None:
            mechanisms = sorted({next(iter(each)) for each in self._users.values()})
            mechanism = self._one_of(mechanisms, user, "") or KEPT_MECHANISMS[0]
            kept = {mechanism: self._nobodys(user, mechanism)}
        return self._remembered.is_right(user, password, next(iter(kept.values())))

    def find_secret(self, user: str, mechanism: str) -> ScramSecret:
        """Returns what is kept of a user for a mechanism of SCRAM, or what looks like it."""
        self._refresh()
        kept = self._users.get(user, {}).get(mechanism)
        return self._nobodys(user, mechanism) if kept is None else kept

    def _nobodys(self, user: str, mechanism: str) -> ScramSecret:
        """Returns a secret of the same kind as those of users, which no password stands for."""
        kinds = sorted(
            {
                (secret.iterations, len(secret.salt))
                for kept in self._users.values()
                if (secret := kept.get(mechanism)) is not None
            }
        )
        iterations, size = self._one_of(kinds, user, mechanism) or (ITERATIONS, _SALT_OCTETS)
        keys = (self.key.derive(purpose, user, mechanism) for purpose in ("stored", "server"))
        digest_octets = hashlib.new(mechanism.removeprefix("SCRAM-").replace("-", "")).digest_size
        stored_key, server_key = (key[:digest_octets] for key in keys)
        salt = self.key.salt(user, mechanism, size)
        return ScramSecret(mechanism, iterations, salt, stored_key, server_key)

    def _one_of(self, kinds: Sequence[_Kind], user: str, mechanism: str) -> _Kind | None:
        """Chooses one, always the same one for a name."""
        if not kinds:
            return None
        chosen = int.from_bytes(self.key.derive("kind", user, mechanism)[:8], "big")
        return kinds[chosen % len(kinds)]
