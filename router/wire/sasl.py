"""SASL mechanisms as machines, for every protocol that negotiates them (RFC 4422).

A protocol engine transports the octets; these machines decide. Server mechanisms ask a
``Verifier``, which never blocks, about users.
"""

from collections.abc import Callable, Sequence
from typing import Protocol as Interface

import attrs

from router.errors import MisuseError


@attrs.frozen
class Challenge:
    """The exchange continues: send these octets to the peer."""

    octets: bytes


@attrs.frozen
class Success:
    """The peer is authenticated.

    Attributes:
        user: authenticated identity; None for an anonymous one.
        octets: additional data for the successful outcome, if the mechanism has any.
    """

    user: str | None
    octets: bytes | None = None


@attrs.frozen
class Failure:
    """The peer is refused. ``reason`` is for our log, never for the peer."""

    reason: str


SaslVerdict = Challenge | Success | Failure


@attrs.frozen
class ScramSecret:
    """What a server stores instead of a password (RFC 5802 §3).

    Attributes:
        mechanism: the mechanism; others hash differently.
        stored_key: verifies the client's proof.
        server_key: creates the server's proof.
    """

    mechanism: str
    iterations: int
    salt: bytes
    stored_key: bytes = attrs.field(repr=False)
    server_key: bytes = attrs.field(repr=False)


FindSecret = Callable[[str, str], ScramSecret]
"""Returns the secret of a user for a mechanism of SCRAM.

For an unknown name it returns a fake secret that no password matches.
"""


class SaslServer(Interface):
    """The server's side of one exchange."""

    @property
    def mechanisms(self) -> Sequence[str]:
        """The offered mechanisms, best first."""

    def start(self, mechanism: str, initial: bytes | None) -> Challenge | Success | Failure:
        """Begins the exchange with the client's mechanism."""

    def step(self, response: bytes) -> Challenge | Success | Failure:
        """Handles the client's answer to a challenge."""


class Login:
    """One exchange of a protocol without data in its outcome, as before AMQP 1.0.

    Data that a mechanism sends with its successful outcome is sent as one more challenge, which is
    answered by an empty response. A client that need not prove anything, and does not, is
    anonymous.
    """

    def __init__(self, sasl: SaslServer | None) -> None:
        self._sasl = sasl
        self._success: Success | None = None

    @property
    def mechanisms(self) -> Sequence[str]:
        """The offered mechanisms that authenticate, best first."""
        return () if self._sasl is None else self._sasl.mechanisms

    def start(self, mechanism: str, initial: bytes | None) -> SaslVerdict:
        """Begins the exchange with the client's mechanism, one of those offered."""
        if self._sasl is None or mechanism not in self._sasl.mechanisms:
            return Success(None)
        return self._said(self._sasl.start(mechanism, initial))

    def step(self, response: bytes) -> SaslVerdict:
        """Handles the client's answer to a challenge."""
        if self._success is not None:
            return self._success
        if self._sasl is None:
            return Failure("an unexpected response")
        try:
            return self._said(self._sasl.step(response))
        except MisuseError:
            return Failure("an unexpected response")

    def _said(self, verdict: SaslVerdict) -> SaslVerdict:
        if isinstance(verdict, Success) and verdict.octets is not None:
            self._success = Success(verdict.user)
            return Challenge(verdict.octets)
        return verdict


class SaslClient(Interface):
    """The client's side of one exchange."""

    def choose(self, offered: Sequence[str]) -> tuple[str, bytes | None] | None:
        """Returns a mechanism and its initial response; None if none is acceptable."""

    def step(self, challenge: bytes) -> bytes:
        """Answers a challenge."""

    def check(self, additional: bytes | None) -> bool:
        """Returns whether the server's final data proves what the mechanism requires."""


class Verifier(Interface):
    """Checks passwords."""

    def verify_plain(self, user: str, password: str) -> bool:
        """Returns whether the password is the user's."""
