"""SASL mechanisms, both sides: ANONYMOUS, PLAIN, EXTERNAL, SCRAM; XOAUTH2 as client.

(RFC 4505, 4616, 4422 appendix A, 5802; XOAUTH2 is Google's and Microsoft's, without an RFC.)

Theory of operation. An offer is a list of mechanisms, best first, limited to those that can work:
PLAIN and SCRAM need a verifier, EXTERNAL an identity that the layers below have proved. Except
SCRAM (``scram``) each is over after one message of the client's. A client that sends no initial
response is asked for it by an empty challenge.

Identities. A client may ask to act as another (authorization identity); this is not supported, so
it must be absent or the same.
"""

import enum
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import attrs

from router.errors import MisuseError
from router.model.text import decode_text
from router.wire.sasl import Challenge, Failure, FindSecret, Success, Verifier
from router.wire.scram import SCRAM_MECHANISMS, ScramClientExchange, ScramServerExchange


class Mechanism(enum.StrEnum):
    """Mechanisms, in the order in which a client prefers them."""

    EXTERNAL = "EXTERNAL"
    SCRAM_SHA_512 = "SCRAM-SHA-512"
    SCRAM_SHA_256 = "SCRAM-SHA-256"
    SCRAM_SHA_1 = "SCRAM-SHA-1"
    XOAUTH2 = "XOAUTH2"
    PLAIN = "PLAIN"
    ANONYMOUS = "ANONYMOUS"


@attrs.define(eq=False, kw_only=True)
class MechanismServer:
    """The server's side of one exchange; a ``SaslServer``.

    Attributes:
        offer: the allowed mechanisms, best first.
        verifier: checks passwords; None: PLAIN is not offered.
        find_secret: returns SCRAM secrets; None: SCRAM is not offered.
        external_user: the peer's user by its certificate or socket; None: EXTERNAL is not offered.
    """

    offer: Sequence[str] = (Mechanism.ANONYMOUS,)
    verifier: Verifier | None = attrs.field(default=None, repr=False)
    find_secret: FindSecret | None = attrs.field(default=None, repr=False)
    external_user: str | None = None
    _exchange: ScramServerExchange | None = attrs.field(default=None, init=False)
    _chosen: str | None = attrs.field(default=None, init=False)

    @property
    def mechanisms(self) -> Sequence[str]:
        """The offered mechanisms, best first."""
        return tuple(str(each) for each in self.offer if self._can(each))

    def _can(self, mechanism: str) -> bool:
        if mechanism in SCRAM_MECHANISMS:
            return self.find_secret is not None
        if mechanism == Mechanism.PLAIN:
            return self.verifier is not None
        if mechanism == Mechanism.EXTERNAL:
            return self.external_user is not None
        return mechanism == Mechanism.ANONYMOUS

    def start(self, mechanism: str, initial: bytes | None) -> Challenge | Success | Failure:
        """Begins the exchange with the client's mechanism."""
        if mechanism not in self.mechanisms:
            return Failure(f"mechanism {mechanism!r} is not offered")
        self._chosen = mechanism
        if mechanism in SCRAM_MECHANISMS:
            assert self.find_secret is not None, "it is not offered otherwise"
            self._exchange = ScramServerExchange(mechanism, self.find_secret)
        if initial is None and mechanism == Mechanism.ANONYMOUS:
            # RFC 4422 has a challenge here; there are clients that send nothing and expect none,
            # and other servers let them in: what they would say may be empty (RFC 4505)
            return self.step(b"")
        return Challenge(b"") if initial is None else self.step(initial)

    def step(self, response: bytes) -> Challenge | Success | Failure:
        """Handles the client's message, and decides."""
        chosen, self._chosen = self._chosen, None
        if chosen is None:
            raise MisuseError("SASL: no mechanism is under way")
        if self._exchange is not None:
            verdict = self._exchange.step(response)
            if isinstance(verdict, Challenge):
                self._chosen = chosen
            return verdict
        try:
            return _DECISIONS[chosen](self, response)
        except UnicodeDecodeError:
            return Failure(f"{chosen}: the message is not UTF-8")

    def _anonymous(self, trace: bytes) -> Success | Failure:
        trace.decode()
        return Success(None)

    def _plain(self, message: bytes) -> Success | Failure:
        parts = message.decode().split("\0")
        if len(parts) != 3 or not parts[1] or not parts[2]:
            return Failure("PLAIN: the message is not identity, user, password")
        identity, user, password = parts
        if identity not in ("", user):
            return Failure(f"PLAIN: {user!r} may not act as {identity!r}")
        assert self.verifier is not None
        if not self.verifier.verify_plain(user, password):
            return Failure(f"PLAIN: user or password of {user!r} is wrong")
        return Success(user)

    def _external(self, identity: bytes) -> Success | Failure:
        assert self.external_user is not None
        if identity.decode() not in ("", self.external_user):
            return Failure(f"EXTERNAL: {self.external_user!r} may not act as another")
        return Success(self.external_user)


_DECISIONS: Final[
    Mapping[str, Callable[[MechanismServer, bytes], Challenge | Success | Failure]]
] = {
    Mechanism.ANONYMOUS: MechanismServer._anonymous,
    Mechanism.PLAIN: MechanismServer._plain,
    Mechanism.EXTERNAL: MechanismServer._external,
}


@attrs.define(eq=False, kw_only=True)
class MechanismClient:
    """The client's side of one exchange; a ``SaslClient``.

    Attributes:
        user, password: for PLAIN and SCRAM; None: not used.
        token: for XOAUTH2; None: not used.
        has_certificate: the layers below prove our identity, so EXTERNAL may be used.
        allowed: the allowed mechanisms, best first.
    """

    user: str | None = None
    password: str | None = attrs.field(default=None, repr=False)
    token: str | None = attrs.field(default=None, repr=False)
    has_certificate: bool = False
    allowed: Sequence[str] = tuple(Mechanism)
    _exchange: ScramClientExchange | None = attrs.field(default=None, init=False)

    def choose(self, offered: Sequence[str]) -> tuple[str, bytes | None] | None:
        """Returns the best allowed, offered and usable mechanism, and its first response."""
        for mechanism in self.allowed:
            if mechanism in offered:
                initial = self._initial(mechanism)
                if initial is not None:
                    return str(mechanism), initial
        return None

    def _initial(self, mechanism: str) -> bytes | None:
        if mechanism == Mechanism.EXTERNAL and self.has_certificate:
            return b""
        if mechanism == Mechanism.XOAUTH2 and self.token is not None:
            return f"user={self.user or ''}\1auth=Bearer {self.token}\1\1".encode()
        if self.user is not None and self.password is not None:
            if mechanism == Mechanism.PLAIN:
                return f"\0{self.user}\0{self.password}".encode()
            if mechanism in SCRAM_MECHANISMS:
                self._exchange = ScramClientExchange(mechanism, self.user, self.password)
                return self._exchange.first()
        if mechanism == Mechanism.ANONYMOUS and self.user is None and self.token is None:
            return b"anonymous"
        return None

    def step(self, challenge: bytes) -> bytes:
        """Answers a challenge; only SCRAM has an answer that is not empty."""
        return b"" if self._exchange is None else self._exchange.step(challenge)

    def check(self, additional: bytes | None) -> bool:
        """Returns whether the server has proved itself, if the mechanism requires that."""
        if self._exchange is None:
            return True
        if additional is not None and not self._exchange.is_proved:
            self._exchange.step(additional)
        return self._exchange.is_proved


def plain_user(mechanism: str, initial: bytes | None) -> str:
    """Returns the user that a client of ours logs in as by PLAIN.

    Args:
        mechanism: the chosen one.
        initial: its initial response; None: it has none.

    Returns:
        the user; empty if there is none, or only the broker knows it.
    """
    if mechanism != Mechanism.PLAIN or initial is None or initial.count(b"\0") != 2:
        return ""
    return decode_text(initial.split(b"\0")[1])
