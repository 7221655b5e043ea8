"""SCRAM, both sides (RFC 5802, 7677), and the secrets that a server stores instead of passwords.

Theory of operation. The messages and proofs are the ``scramp`` library's; this module decides what
it
leaves open: what is stored, and how much work a peer may demand. One exchange::

    client-first  ->            user and a nonce
                  <- server-first   salt, iterations, both nonces
    client-final  ->            proof that it knows the password
                  <- server-final   proof that the server knows the secret

A user that does not exist has a fake secret that no password matches (``FindSecret``), and fails at
the end like a wrong password. Channel binding is not offered.
"""

import base64
import binascii
import hmac
from typing import Final

import attrs
from scramp import ScramClient, ScramException, ScramMechanism

from router.wire.sasl import Challenge, Failure, FindSecret, SaslVerdict, ScramSecret, Success

SCRAM_MECHANISMS: Final = ("SCRAM-SHA-512", "SCRAM-SHA-256", "SCRAM-SHA-1")
"""Best first."""

ITERATIONS: Final = 15_000
"""Iterations of secrets created here: RFC 7677's advice, some 5 ms of work for one guess."""

ITERATIONS_MOST: Final = 100_000
"""Most iterations that a server may demand: the work is done between two turns of the worker."""

_BROKEN: Final = (ScramException, ValueError, UnicodeError)


def derive(mechanism: str, password: str, salt: bytes, iterations: int = ITERATIONS) -> ScramSecret:
    """Derives the secret of a password.

    Raises:
        ValueError: the password is not valid in SCRAM (RFC 4013).
    """
    try:
        made = ScramMechanism(mechanism).make_auth_info(
            password, iteration_count=iterations, salt=salt
        )
    except ScramException as error:
        raise ValueError(str(error)) from None
    _, stored_key, server_key, _ = made
    return ScramSecret(mechanism, iterations, salt, stored_key, server_key)


def is_password_of(secret: ScramSecret, password: str) -> bool:
    """Returns whether a secret belongs to a password, in constant time."""
    try:
        own = derive(secret.mechanism, password, secret.salt, secret.iterations)
    except ValueError:
        return False
    return hmac.compare_digest(own.stored_key, secret.stored_key)


def write_secret(secret: ScramSecret) -> str:
    """Encodes a secret as one word."""
    keys = (secret.salt, secret.stored_key, secret.server_key)
    encoded = [base64.b64encode(each).decode() for each in keys]
    return ":".join([secret.mechanism, str(secret.iterations), *encoded])


def read_secret(word: str) -> ScramSecret:
    """Decodes the result of ``write_secret``.

    Raises:
        ValueError: the word is invalid.
    """
    parts = word.split(":")
    if len(parts) != 5 or parts[0] not in SCRAM_MECHANISMS or not parts[1].isdecimal():
        raise ValueError("it is not mechanism:iterations:salt:stored-key:server-key")
    try:
        salt, stored_key, server_key = (base64.b64decode(part, validate=True) for part in parts[2:])
    except binascii.Error:
        raise ValueError("its salt or a key is not Base64") from None
    iterations = int(parts[1])
    if not 4096 <= iterations <= ITERATIONS_MOST or len(salt) < 12:
        raise ValueError(f"it has less than 4096 or more than {ITERATIONS_MOST} iterations")
    return ScramSecret(parts[0], iterations, salt, stored_key, server_key)


class ScramServerExchange:
    """The server's side of one exchange."""

    def __init__(self, mechanism: str, find: FindSecret) -> None:
        """Begins an exchange.

        Args:
            mechanism: the mechanism.
            find: returns secrets.
        """
        self._mechanism = mechanism
        self._find_secret = find
        self._user = ""
        self._server = ScramMechanism(mechanism).make_server(self._find)
        self._is_begun = False

    def _find(self, user: str) -> tuple[bytes, bytes, bytes, int]:
        self._user = user
        secret = self._find_secret(user, self._mechanism)
        return secret.salt, secret.stored_key, secret.server_key, secret.iterations

    def step(self, message: bytes) -> SaslVerdict:
        """Handles a message of the client."""
        try:
            if not self._is_begun:
                self._is_begun = True
                self._server.set_client_first(message.decode())
                return Challenge(self._server.get_server_first().encode())
            self._server.set_client_final(message.decode())
            return Success(self._user, self._server.get_server_final().encode())
        except _BROKEN as error:
            whose = f" of {self._user!r}" if self._user else ""
            return Failure(f"{self._mechanism}: user or password{whose} is wrong ({error})")


@attrs.define(eq=False)
class ScramClientExchange:
    """The client's side of one exchange.

    Attributes:
        is_proved: the server has proved to know the secret.
    """

    mechanism: str
    user: str
    password: str = attrs.field(repr=False)
    is_proved: bool = attrs.field(default=False, init=False)
    _client: ScramClient | None = attrs.field(default=None, init=False)
    _has_answered: bool = attrs.field(default=False, init=False)

    def first(self) -> bytes | None:
        """Returns the first message; None: user or password is not valid in SCRAM."""
        try:
            self._client = ScramClient([self.mechanism], self.user, self.password)
            return bytes(self._client.get_client_first().encode())
        except _BROKEN:
            return None

    def step(self, message: bytes) -> bytes:
        """Answers a challenge; an invalid one with nothing, so that the server refuses us."""
        client = self._client
        if client is None:
            return b""
        try:
            if self._has_answered:
                client.set_server_final(message.decode())
                self.is_proved = True
                return b""
            self._has_answered = True
            text = message.decode()
            if _iterations_of(text) > ITERATIONS_MOST:
                raise ValueError("too much work")
            client.set_server_first(text)
            return bytes(client.get_client_final().encode())
        except _BROKEN:
            self._client = None
            return b""


def _iterations_of(server_first: str) -> int:
    """Returns the iterations that a server demands; 0: missing."""
    for field in server_first.split(","):
        if field.startswith("i=") and field[2:].isdecimal():
            return int(field[2:])
    return 0
