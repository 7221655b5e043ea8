"""An engine around an engine: what is the same for all of them.

One adds something below a protocol (WebSocket) or beside it (tokens), and has the interface of an
engine itself. What it adds is all that it says; the rest is the inner engine's.
"""

import attrs

from router.model.commands import Command
from router.wire.engine import Engine


@attrs.define(eq=False)
class EngineAround:
    """The part of an engine's interface that only hands on.

    Attributes:
        inner: the engine.
    """

    inner: Engine

    @property
    def finished(self) -> bool:
        """The inner engine's."""
        return self.inner.finished

    @property
    def output_octets(self) -> int:
        """The inner engine's."""
        return self.inner.output_octets

    @property
    def waiting_octets(self) -> int:
        """The inner engine's."""
        return self.inner.waiting_octets

    @property
    def input_waits(self) -> bool:
        """The inner engine's."""
        return self.inner.input_waits

    @property
    def carried(self) -> None:
        """Nothing: what the inner engine shares is not what goes over the socket."""

    def peer_left(self) -> None:
        """Hands that in."""
        self.inner.peer_left()

    def execute(self, command: Command) -> None:
        """Hands the command in."""
        self.inner.execute(command)


def innermost(engine: Engine) -> Engine:
    """Returns the engine that speaks the protocol, without what is around it."""
    while isinstance(engine, EngineAround):
        engine = engine.inner
    return engine
