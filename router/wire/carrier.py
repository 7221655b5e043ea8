"""Who moves the octets of a connection past the data plane, where the express lane can."""

from typing import Protocol as Interface


class Carried(Interface):
    """What an engine shares with a carrier.

    Attributes:
        is_blocked: the socket takes no more.
        is_pending: the core has been told that output piles up.
        octets_in, octets_out: what a carrier has received and sent.
    """

    is_blocked: bool
    is_pending: bool
    octets_in: int
    octets_out: int


class Carrier(Interface):
    """Receives and sends for connections on the lane, past the data plane."""

    def watch(self, descriptor: int, state: Carried) -> None:
        """Begins to carry a connection whose socket the poller watches.

        Raises:
            MisuseError: it is carried already.
        """

    def forget(self, state: Carried) -> None:
        """Carries a connection no more."""

    def turn(self, now: float, until: float) -> bool:
        """Serves ready sockets, one after the other, until that time has come.

        Returns:
            whether any was ready.
        """

    def write(self, state: Carried) -> bool:
        """Sends what a connection has to send; false: its socket has not taken all of it.

        Raises:
            OSError: the socket is broken.
        """
