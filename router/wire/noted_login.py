"""Logins whose verdicts are noted, so that another worker's engine can repeat the conversation.

A connection that is handed to another worker is replayed there (``net.handing``). What a mechanism
decides, and the challenges that it makes up, are not: the other worker's engine is given the noted
verdicts instead, so it says the same and verifies nothing again.
"""

from collections import deque
from collections.abc import Callable, Sequence

import attrs

from router.wire.sasl import Challenge, Failure, SaslServer, SaslVerdict, Success

WrapLogin = Callable[[SaslServer], SaslServer]
"""Puts something around the server's side of an exchange."""


@attrs.define(eq=False)
class NotingServer:
    """A ``SaslServer`` that notes its verdicts.

    Attributes:
        server: decides.
        verdicts: so far.
    """

    server: SaslServer
    verdicts: list[SaslVerdict]

    @property
    def mechanisms(self) -> Sequence[str]:
        """Those that are offered."""
        return self.server.mechanisms

    def start(self, mechanism: str, initial: bytes | None) -> Challenge | Success | Failure:
        """Begins the exchange."""
        return self._note(self.server.start(mechanism, initial))

    def step(self, response: bytes) -> Challenge | Success | Failure:
        """Handles the client's answer to a challenge."""
        return self._note(self.server.step(response))

    def _note(self, verdict: SaslVerdict) -> SaslVerdict:
        self.verdicts.append(verdict)
        return verdict


@attrs.define(eq=False)
class RepeatingServer:
    """A ``SaslServer`` that repeats noted verdicts; those that follow are its own.

    Attributes:
        server: decides when the noted verdicts are used up.
        verdicts: that are left.
    """

    server: SaslServer
    verdicts: deque[SaslVerdict]

    @property
    def mechanisms(self) -> Sequence[str]:
        """Those that are offered."""
        return self.server.mechanisms

    def start(self, mechanism: str, initial: bytes | None) -> Challenge | Success | Failure:
        """Repeats how the exchange began."""
        return self.verdicts.popleft() if self.verdicts else self.server.start(mechanism, initial)

    def step(self, response: bytes) -> Challenge | Success | Failure:
        """Repeats what followed."""
        return self.verdicts.popleft() if self.verdicts else self.server.step(response)
