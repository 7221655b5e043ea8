"""Carriers: move a connection's octets without the data plane, where the express lane can."""

from collections.abc import Callable
from typing import Protocol as Interface


class Carried(Interface):
    """The state that an engine shares with a carrier.

    Attributes:
        interest: what the poller reports of the socket; set with each change of it.
        is_pending: congested output has been reported to the core.
        octets_in, octets_out: octets that a carrier has received and sent.
    """

    interest: int
    is_pending: bool
    octets_in: int
    octets_out: int


class Carrier(Interface):
    """Receives and sends for connections on the lane, without the data plane.

    Attributes:
        has_called: the last turn has handed something to the data plane.
        is_midway: sockets that were found ready together are yet to be served.
        rested: seconds that it has waited in turns, until somebody sets it to 0.
    """

    has_called: bool
    is_midway: bool
    rested: float

    def watch(self, descriptor: int, state: Carried, pipe: object = None) -> None:
        """Begins to carry a connection whose socket the poller watches.

        Args:
            descriptor: of the socket.
            state: what the engine shares.
            pipe: a capsule of a ``Pipe`` (``pipe.pxi``) that is used instead of the socket, as for
                TLS; None: the socket. Its owner must outlive the carriage.

        Raises:
            MisuseError: it is already carried.
        """

    def forget(self, state: Carried) -> None:
        """Stops carrying a connection."""

    def forsake(self, state: Carried) -> None:
        """Has the lane send no more deliveries to a connection that is about to end."""

    def turn(
        self,
        now: float,
        until: float,
        is_alone: bool = False,
        idle_seconds: Callable[[], float] | None = None,
    ) -> bool:
        """Serves ready sockets, one after the other, until the given time.

        Args:
            now: the time.
            until: when it looks whether it has to return though sockets are ready; what it rests is
                added.
            is_alone: nothing else waits for the end of the turn: as long as only the lane has had
                work, further turns follow at once, and their output is sent.
            idle_seconds: returns how long other tasks have nothing to do, so that it may wait for
                sockets, and go on beyond ``until``, as long as nothing comes for the others; asked
                only then. None: it does neither.

        Returns:
            whether any was ready.
        """

    def write(self, state: Carried) -> bool:
        """Sends a connection's output; False: its socket has not accepted all of it.

        Raises:
            OSError: the socket is broken.
        """
