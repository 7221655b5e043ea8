"""SASL mechanisms as machines, for every protocol that negotiates them (RFC 4422).

A protocol engine carries the octets; these decide. Server mechanisms ask a ``Verifier`` (pure:
it never blocks) for the truth about a name.
"""

from collections.abc import Callable, Sequence
from typing import Protocol as Interface

import attrs

from router.errors import MisuseError


@attrs.frozen
class Challenge:
    """The exchange goes on: send these octets to the peer."""

    octets: bytes


@attrs.frozen
class Success:
    """The peer is who it says.

    Attributes:
        user: authenticated identity; None for an anonymous one.
        octets: additional data that goes with the good outcome, if the mechanism has any.
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
    """What a server keeps instead of a password (RFC 5802 §3).

    Attributes:
        mechanism: that it is for; other mechanisms hash otherwise.
        stored_key: checks the client's proof.
        server_key: makes the server's.
    """

    mechanism: str
    iterations: int
    salt: bytes
    stored_key: bytes = attrs.field(repr=False)
    server_key: bytes = attrs.field(repr=False)


FindSecret = Callable[[str, str], ScramSecret]
"""Returns what is kept of a user for a mechanism of SCRAM.

For a name that nobody has it is something that looks the same, and that nobody can prove to know.
"""


class SaslServer(Interface):
    """One exchange, seen from the side that is asked in."""

    @property
    def mechanisms(self) -> Sequence[str]:
        """What is offered, best first."""

    def start(self, mechanism: str, initial: bytes | None) -> Challenge | Success | Failure:
        """Begins the exchange with the mechanism that the client chose."""

    def step(self, response: bytes) -> Challenge | Success | Failure:
        """Goes on with the client's answer to a challenge."""


class Login:
    """One exchange of a protocol whose last word has to be a challenge, as before AMQP 1.0.

    What a mechanism says with its good outcome goes out as one more challenge, which is answered by
    a response that says nothing. A client that proves nothing, where it need not, is anonymous.
    """

    def __init__(self, sasl: SaslServer | None) -> None:
        self._sasl = sasl
        self._success: Success | None = None

    @property
    def mechanisms(self) -> Sequence[str]:
        """Those by which somebody can prove who he is, best first."""
        return () if self._sasl is None else self._sasl.mechanisms

    def start(self, mechanism: str, initial: bytes | None) -> SaslVerdict:
        """Begins the exchange with the mechanism that the client chose of those offered to it."""
        if self._sasl is None or mechanism not in self._sasl.mechanisms:
            return Success(None)
        return self._said(self._sasl.start(mechanism, initial))

    def step(self, response: bytes) -> SaslVerdict:
        """Goes on with the client's answer to a challenge."""
        if self._success is not None:
            return self._success
        if self._sasl is None:
            return Failure("a response that nobody waits for")
        try:
            return self._said(self._sasl.step(response))
        except MisuseError:
            return Failure("a response that nobody waits for")

    def _said(self, verdict: SaslVerdict) -> SaslVerdict:
        if isinstance(verdict, Success) and verdict.octets is not None:
            self._success = Success(verdict.user)
            return Challenge(verdict.octets)
        return verdict


class SaslClient(Interface):
    """One exchange, seen from the side that dials."""

    def choose(self, offered: Sequence[str]) -> tuple[str, bytes | None] | None:
        """Picks a mechanism and its initial response; None if none is acceptable."""

    def step(self, challenge: bytes) -> bytes:
        """Answers a challenge."""

    def check(self, additional: bytes | None) -> bool:
        """Returns whether the server's last word proves what the mechanism makes it prove."""


class Verifier(Interface):
    """Knows who may come in."""

    def verify_plain(self, user: str, password: str) -> bool:
        """Returns whether the password is the user's."""
