"""Users that log in by password: those of the configuration, or of a file without clear passwords.

Such a file has one line for each user: the percent-encoded name, and for each mechanism one word
with the password's SCRAM secrets (RFC 5802 §3)::

    # users of the router; see `router user --help`
    alice SCRAM-SHA-256:15000:<salt>:<stored key>:<server key> SCRAM-SHA-512:15000:...

The same secrets verify a PLAIN password. That takes some milliseconds of work, so correct passwords
are remembered by a keyed hash as long as the process lives.

Nothing that a peer sees before it has proved a password reveals whether a user exists: unknown
names get a salt, an iteration count and a verification time like those of users (``login_key``).
"""

import hashlib
import hmac
import os
import secrets
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final, TypeVar
from urllib.parse import quote, unquote

import attrs

from router.errors import RouterError
from router.looking import Looker
from router.regular import read_regular
from router.service.config import Secret
from router.service.login_key import LoginKey, random_key
from router.wire.sasl import ScramSecret
from router.wire.scram import ITERATIONS, derive, is_password_of, read_secret, write_secret

KEPT_MECHANISMS: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
"""Mechanisms whose secrets are written for each user; SHA-1 is too old for new files."""

LARGEST_FILE_OCTETS: Final = 64 << 20

_HEAD: Final = "# users of the router; see `router user --help`\n"

_SALT_OCTETS: Final = 16

_Kind = TypeVar("_Kind")

DERIVED_MOST: Final = 10_000
"""Remembered secrets of users of the configuration, and as many decoys for unknown names."""

Users = Mapping[str, Mapping[str, ScramSecret]]
"""By user and mechanism."""


@attrs.frozen
class UserFileError(RouterError):
    """A file of users that cannot be read.

    Attributes:
        path: the file.
        reason: the cause, in one phrase.
    """

    path: Path
    reason: str

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


def hash_password(password: str) -> dict[str, ScramSecret]:
    """Derives the SCRAM secrets that are stored for a password.

    Raises:
        ValueError: SCRAM does not allow the password.
    """
    return {
        mechanism: derive(mechanism, password, secrets.token_bytes(_SALT_OCTETS))
        for mechanism in KEPT_MECHANISMS
    }


def read_users(path: Path) -> dict[str, dict[str, ScramSecret]]:
    """Reads a file of users.

    Raises:
        UserFileError: it cannot be read, or a line is malformed.
    """
    try:
        octets = read_regular(path, LARGEST_FILE_OCTETS + 1)
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
    """Verifies passwords, and remembers the correct ones by a keyed hash."""

    _key: bytes = attrs.field(factory=lambda: secrets.token_bytes(32), init=False, repr=False)
    _right: dict[str, tuple[ScramSecret, bytes]] = attrs.field(factory=dict, init=False, repr=False)

    def is_right(self, user: str, password: str, secret: ScramSecret) -> bool:
        """Returns whether a password matches a secret."""
        digest = hmac.digest(self._key, password.encode(), "sha256")
        known = self._right.get(user)
        if known is not None and known[0] is secret:
            if hmac.compare_digest(known[1], digest):
                return True
        if not is_password_of(secret, password):
            return False
        self._right[user] = (secret, digest)
        return True


@attrs.define(eq=False)
class WrittenUsers:
    """Users whose passwords are in the configuration; a ``Verifier``.

    Attributes:
        passwords: by user.
        key: derives the salts.
    """

    passwords: Mapping[str, Secret]
    key: LoginKey = attrs.field(factory=random_key)
    _secrets: dict[tuple[str, str], ScramSecret] = attrs.field(factory=dict, init=False, repr=False)

    def verify_plain(self, user: str, password: str) -> bool:
        """Returns whether the password is the user's, in the same time for unknown users."""
        known = self.passwords.get(user)
        expected = "" if known is None else known.reveal()
        hashed = (self.key.derive("password", each, "PLAIN") for each in (expected, password))
        return hmac.compare_digest(*hashed) and known is not None

    def find_secret(self, user: str, mechanism: str) -> ScramSecret:
        """Returns the secret of a user's password.

        It is derived at the first call, which takes some milliseconds. For an unknown name it is
        derived from a random password.
        """
        if self.key.refresh():
            self._secrets.clear()
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
        except ValueError:  # SCRAM does not allow the password, so it cannot match
            return derive(mechanism, nobodys, salt)


_Stamp = tuple[int, int, int]

_FoundUsers = tuple[_Stamp, dict[str, dict[str, ScramSecret]] | None]
"""What a changed file is, and its users; None: it cannot be read."""


@attrs.define(eq=False)
class UserFile:
    """Users of a file; a ``Verifier``. The file is read again when it has changed.

    Attributes:
        path: the file.
        key: derives the answers to unknown names.
    """

    path: Path
    key: LoginKey = attrs.field(factory=random_key)
    _users: dict[str, dict[str, ScramSecret]] = attrs.field(init=False, repr=False)
    _stamp: _Stamp | None = attrs.field(default=None, init=False)
    _remembered: Remembered = attrs.field(factory=Remembered, init=False, repr=False)
    _looker: Looker[_FoundUsers | None] = attrs.field(init=False, repr=False)

    @_looker.default
    def _make_looker(self) -> Looker[_FoundUsers | None]:
        return Looker(str(self.path))

    def __attrs_post_init__(self) -> None:
        """Reads the file.

        Raises:
            UserFileError: it cannot be read.
        """
        self._stamp = self._look()
        self._users = read_users(self.path)

    def _look(self) -> _Stamp | None:
        try:
            status = self.path.stat()
        except OSError:
            return None
        return status.st_mtime_ns, status.st_size, status.st_ino

    def _find(self, known: _Stamp | None) -> _FoundUsers | None:
        """Looks at the file, in a thread, and reads it if it has changed."""
        stamp = self._look()
        if stamp is None or stamp == known:
            return None
        try:
            return stamp, read_users(self.path)
        except UserFileError:
            return stamp, None

    def _refresh(self) -> None:
        """Has the file read again if it has changed; an unreadable file changes nothing.

        While it does not answer, what was read last counts.
        """
        found = self._looker.look(partial(self._find, self._stamp))
        if found is not None:
            self._stamp = found[0]
            self._users = self._users if found[1] is None else found[1]

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
        """Returns a user's secret for a mechanism of SCRAM; for an unknown name, a decoy."""
        self._refresh()
        self.key.refresh()
        kept = self._users.get(user, {}).get(mechanism)
        return self._nobodys(user, mechanism) if kept is None else kept

    def _nobodys(self, user: str, mechanism: str) -> ScramSecret:
        """Returns a decoy: a secret like those of users, which no password matches."""
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
        """Chooses a kind, always the same one for a name and mechanism."""
        if not kinds:
            return None
        chosen = int.from_bytes(self.key.derive("kind", user, mechanism)[:8], "big")
        return kinds[chosen % len(kinds)]
