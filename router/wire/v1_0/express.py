"""The express lane: AMQP 1.0 deliveries from link to link, past engine and core.

Theory of operation. Most of a router's work is to pass deliveries of one transfer from a link on
to another and ``accepted`` back. A *kernel* does exactly that: it reads frames in the receive
buffer of one connection and writes frames into the send buffers of others, many at a time. It has
no rules of its own: the general path of engine and core is the reference, and serves alone where
the lane is off or was not built. State that it shares with the engines (``state``) has one copy,
which both change; the core decides which links are paired, by putting them on a *lane*, and the
lane forwards as ``routes.distribution`` and the core do: the balanced rule, queues in rotation, the
same credit.

A kernel is asked first for every receive (``feed``). It takes, in order and only while everything
else about them is usual:

- transfers that are a whole delivery, of message-format 0, on a link of a lane, whose header has
  no ttl;
- dispositions that say ``accepted`` of deliveries of a lane, and a sender's settling after it;
- flows that do nothing but renew a window, or the credit of a link on a lane.

A disposition that may concern deliveries of the general path, too, is left after the lane has taken
its part: for the engine, what is settled already is not there.

At the first frame of any other kind it stops and says where. The engine deals with that frame in
the general way and asks again: so nothing is reordered, and whatever breaks a rule is judged in one
place. A disposition that says anything else *evicts* the deliveries that it is about: they are
handed to the core as pairs (``DeliveriesAdopted``), and live on as any others.

The kernel writes transfers at once, and dispositions, credit and windows at the end of a turn,
neighbours joined (``end_turn``); an engine has them written before a frame that must not pass them
(``flush``).

Payload is kept until its outcome is known, so that the core can send it again; when more is kept
than the budgets allow, no credit is granted. That holds for what its sender has settled beforehand,
too, unless the receiver wants it settled: nobody else could send it again.

The kernel is ``_express``, compiled by Cython. A test holds it against the general path
(``tests/core/test_lane_differential.py``).
"""

import os
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, Final
from typing import Protocol as Interface

from router.errors import MisuseError
from router.model.compiled import compiled
from router.model.delivery import ReceivedDelivery
from router.model.identity import LinkId
from router.model.lane import LanePair, LaneStatistics, Remains
from router.wire.carrier import Carrier
from router.wire.v1_0.state import ConnectionState, LinkState, SessionState

VARIABLE: Final = "ROUTER_EXPRESS"
"""Environment variable: ``cython`` wants the express lane, ``off`` turns it off; unset or empty:
it is used where it was built."""


_MODULE: Final = "router.wire.v1_0._express"


class Lane(Interface):
    """One node's forwarding: from any of its incoming links to any of its outgoing ones."""

    def add_incoming(self, link: LinkId, is_far: bool = False) -> None:
        """Lets a link that receives take part; what comes from a far link goes to no far one.

        Raises:
            MisuseError: if it is unknown, on a lane already, or not one that receives.
        """

    def add_outgoing(self, link: LinkId, is_far: bool = False) -> bool:
        """Lets a link that sends take part; false: it could not take what waits here.

        Raises:
            MisuseError: if it is unknown, on a lane already, or not one that sends.
        """

    def weigh(self, link: LinkId, elsewhere: int, receivers: int) -> None:
        """Sets a link's load weight, as ``routes.distribution`` says.

        Raises:
            MisuseError: if it does not send on this lane, or a number is out of range.
        """

    def remove_incoming(self, link: LinkId) -> Remains:
        """Lets a link go with all that came on it and is not settled."""

    def remove_outgoing(self, link: LinkId) -> Remains:
        """Lets a link go with all that went to it and that it has not settled."""

    def close(self) -> Remains:
        """Lets all links go."""

    @property
    def limit_octets(self) -> int:
        """The largest payload that every receiver takes in one frame; -1: there is none."""

    @property
    def takes_settled(self) -> bool:
        """Whether deliveries that are settled beforehand can be sent to every receiver (§2.8.2).

        Unless the lane is ``only_settled``, they go out unsettled to all but those that want it.
        """

    @property
    def takes_unsettled(self) -> bool:
        """Whether every receiver takes deliveries that are not."""

    def put(self, link: LinkId, deliveries: Sequence[ReceivedDelivery]) -> None:
        """Takes over deliveries that came on an incoming link by the general path.

        They go to the end of its queue, and on as far as there is credit.

        Raises:
            MisuseError: the link is not one of this lane's, or a payload is beyond the limit.
        """

    def came(self, link: LinkState) -> None:
        """Records that something came on an incoming link by the general path.

        It has taken credit or window there, which the lane gives anew when the turn ends.

        Raises:
            MisuseError: the link is not one of this lane's.
        """

    def relieve(self) -> None:
        """Records that a receiver which could not be sent to can be again."""

    def passed(self, link: LinkId, count: int) -> None:
        """Records how many deliveries of an incoming link have come past lanes.

        The place of a delivery that the lane gives up is its place among all of the link.

        Raises:
            MisuseError: the link brings nothing to this lane.
        """

    def queued(self, link: LinkId) -> int:
        """Returns how many deliveries of a link wait for credit."""

    def statistics(self, link: LinkId) -> LaneStatistics:
        """Returns what a link has done."""


class Express(Interface):
    """The lanes of one worker."""

    @property
    def kind(self) -> str:
        """How it was made: ``cython``."""

    @property
    def states(self) -> ModuleType:
        """The module whose classes of hot state go with it."""

    @property
    def kept_octets(self) -> int:
        """Payload of deliveries that are queued or unsettled."""

    def register(self, link: LinkState) -> None:
        """Makes a link known that has been attached on both sides."""

    def forget(self, link: LinkState) -> None:
        """Records that a link is detached; what its lane knows stays until the lane lets go."""

    def knows(self, link: LinkId) -> bool:
        """Returns whether a link is registered, so that it may join a lane."""

    def open_lane(self, credit: int, only_settled: bool = False) -> Lane:
        """Opens a lane.

        Args:
            credit: the most that its incoming links are granted, in deliveries.
            only_settled: deliveries that are not settled beforehand are left to the core.
        """

    def feed(
        self,
        connection: ConnectionState,
        buffer: bytes | bytearray | memoryview,
        position: int,
        end: int,
    ) -> int:
        """Takes frames from ``position`` on; returns where the first one begins that it leaves."""

    def opened(self, session: SessionState, link: LinkState | None) -> None:
        """Records that the engine has taken in a flow: window or credit may have grown."""

    def evict(self, session: SessionState, outgoing: bool, first: int, last: int) -> list[LanePair]:
        """Gives up deliveries from ``first`` to ``last``, ids of the session's direction.

        Those that were sent on come first. Where one of them still waits for a receiver, all that
        waits of its link is given up with it, so that it stays in order.
        """

    def flush(self) -> None:
        """Writes the dispositions of this turn."""

    def make_carrier(
        self,
        poller: int,
        take: Callable[[int, int, bytes | None], None],
        fail: Callable[[int, Exception], None],
    ) -> Carrier | None:
        """Makes what receives and sends for connections on the lane; None: not on this system.

        Args:
            poller: descriptor of the epoll that watches the sockets, level-triggered.
            take: is called with what is not the kernel's: descriptor, readiness as epoll tells it,
                and what has been received; None: the socket is to be read.
            fail: is called with a connection's descriptor and what has gone wrong with it.
        """

    def end_turn(self) -> list[Any]:
        """Writes what the turn left; returns owners of connections that have got output.

        What a carrier has sent needs nobody any more, and is not among them.
        """


def make_express(
    mode: str | None = None,
    *,
    octet_budget: int = 256 << 20,
    connection_budget: int = 64 << 20,
) -> Express | None:
    """Makes the express lanes of a worker; None if they are turned off, or were not built.

    Args:
        mode: ``cython`` or ``off``; None: what ``ROUTER_EXPRESS`` says, and if it says nothing, the
            lane is used where it was built.
        octet_budget: payload that all lanes may keep.
        connection_budget: the same for what came on one connection.

    Raises:
        MisuseError: if there is no such mode, or the lane is wanted and was not built.
    """
    asked = mode or os.environ.get(VARIABLE, "")
    if asked == "python":
        raise MisuseError(
            f"{VARIABLE}=python: the express lane in Python is gone; "
            "write off for the general path, or cython for the compiled lane"
        )
    if asked not in {"", "cython", "off"}:
        raise MisuseError(f"{VARIABLE}={asked}: must be cython or off")
    if asked == "off":
        return None
    module = compiled(_MODULE)
    if module is None:
        if asked == "cython":
            raise MisuseError(f"{VARIABLE}=cython: the express lane was not built here")
        return None
    made: Express = module.Express(octet_budget, connection_budget)
    return made


SLOWER: Final = "the express lane was not built; build with a C compiler to have it"
"""What the log says once where the lane was not built."""


def is_built() -> bool:
    """Returns whether the express lane can be used here."""
    return compiled(_MODULE) is not None


def describe() -> str:
    """Says, for people, which express lane serves here by default."""
    if is_built():
        return "cython"
    return "none (slower: build with a C compiler to have it)"
