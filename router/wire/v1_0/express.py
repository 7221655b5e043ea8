"""The express lane: forwards AMQP 1.0 deliveries from link to link without engine and core.

Theory of operation. Most of a router's work is to forward deliveries of a single transfer from one
link to another, and ``accepted`` back. A *kernel* does exactly that: it reads frames in the receive
buffer of one connection and writes frames into the send buffers of others, in batches. It has no
rules of its own: the general path of engine and core is the reference, and is used alone where the
lane is off or was not built. State that the kernel shares with the engines (``state``) exists once
and both change it. The core decides which links are paired, by putting them on a *lane*, and the
lane forwards as ``routes.distribution`` and the core do: the balanced rule, queues in rotation, the
same credit.

Each receive is offered to a kernel first (``feed``). The kernel handles, in order and only while
nothing else about them is special:

- transfers that are a complete delivery, of message-format 0, on a link of a lane, whose header has
  no ttl;
- dispositions with ``accepted`` for deliveries of a lane, and a sender's settling after it;
- flows that only renew a window, or the credit of a link on a lane.

A disposition that may also concern deliveries of the general path is left to the engine after the
lane has applied its part: the engine ignores deliveries that are settled already.

At the first frame of any other kind the kernel stops and returns the frame's offset. The engine
handles that frame in the general way and calls the kernel again. So nothing is reordered, and every
violation is judged in one place. A disposition with any other state *evicts* the deliveries that it
is about: they are handed to the core as pairs (``DeliveriesAdopted``) and continue on the general
path.

Deliveries of the message store come as rows of its log (``bring``), on links of a session without a
socket, whose outcomes and credit are noted for its owner instead of written.

The kernel writes transfers at once; dispositions, credit and windows are combined and written at
the end of a turn (``end_turn``). An engine has them written before a frame that must not overtake
them (``flush``).

Payload is kept until its outcome is known, so that the core can send it again; a link that keeps
too much for what is left of the budgets is granted no credit (``links.credit``). That holds also
for deliveries that their sender has settled, unless the receiver wants them settled: the sender
could not send them again.

The kernel is ``_express``, compiled by Cython. A test holds it against the general path
(``tests/core/test_lane_differential.py``).
"""

import os
from collections.abc import Callable, Iterable, Sequence
from types import ModuleType
from typing import Any, Final
from typing import Protocol as Interface

from router.errors import MisuseError
from router.model.compiled import compiled
from router.model.delivery import ReceivedDelivery
from router.model.identity import LinkId
from router.model.lane import LaneDelivery, LanePair, LaneStatistics, Remains
from router.wire.carrier import Carrier
from router.wire.v1_0.state import ConnectionState, LinkState, SessionState

VARIABLE: Final = "ROUTER_EXPRESS"
"""Environment variable: ``cython`` requires the express lane, ``off`` disables it; unset or empty:
the lane is used if it was built."""


_MODULE: Final = "router.wire.v1_0._express"

Octets = bytes | bytearray | memoryview


class Lane(Interface):
    """One node's forwarding: from any of its incoming links to any of its outgoing ones."""

    def add_incoming(self, link: LinkId, is_far: bool = False) -> None:
        """Adds a receiving link; deliveries from a far link are sent to no far one.

        Raises:
            MisuseError: if it is unknown, on a lane already, or not a receiving link.
        """

    def add_outgoing(self, link: LinkId, is_far: bool = False) -> bool:
        """Adds a sending link; False: it cannot take the deliveries that wait here.

        Raises:
            MisuseError: if it is unknown, on a lane already, or not a sending link.
        """

    def weigh(self, link: LinkId, elsewhere: int, receivers: int) -> None:
        """Sets a link's load weight (see ``routes.distribution``).

        Raises:
            MisuseError: if it is not a sending link of this lane, or a number is out of range.
        """

    def remove_incoming(self, link: LinkId) -> Remains:
        """Removes a receiving link; returns its queued and unsettled deliveries."""

    def remove_outgoing(self, link: LinkId) -> Remains:
        """Removes a sending link; returns the deliveries sent on it that it has not settled."""

    def close(self) -> Remains:
        """Removes all links."""

    @property
    def limit_octets(self) -> int:
        """The largest payload that every receiver accepts in one frame; -1: no receivers."""

    @property
    def takes_settled(self) -> bool:
        """Whether settled deliveries can be sent to every receiver (§2.8.2).

        Unless the lane is ``only_settled``, they are sent unsettled to all but receivers that want
        settled.
        """

    @property
    def takes_unsettled(self) -> bool:
        """Whether every receiver accepts unsettled deliveries."""

    def put(self, link: LinkId, deliveries: Sequence[ReceivedDelivery]) -> None:
        """Takes over deliveries that arrived on a receiving link by the general path.

        They are appended to its queue, and sent as far as there is credit.

        Raises:
            MisuseError: if the link is not one of this lane, or a payload exceeds the limit.
        """

    def bring(
        self, link: LinkState, rows: Octets, heap: Octets, places: Octets, begin: int = 0
    ) -> int:
        """Forwards stored messages on a receiving link of a session without a socket.

        What would be written into the frames of such a session is put into its ``notes``: a tuple
        (None, first, last) for delivery-ids that were accepted and are settled, and (link, credit,
        0) for credit. Its links are granted credit when an eighth of it is left, or a quarter and
        the notes are not empty. Fewer than ``unnoted_limit`` deliveries that were accepted are
        counted in ``unnoted``, until ``Express.note`` is called.

        Args:
            link: of such a session.
            rows: of the messages, as ``journal.record`` draws them.
            heap: their strings.
            places: of the messages, u64 each; the delivery-tags are these.
            begin: the first message to be sent.

        Returns:
            The first message that the lane leaves: there is no credit for it, or its row is
            malformed or says what the header must tell, or its payload is to be looked at.

        Raises:
            MisuseError: if the link is not one of this lane, or its session has a socket.
        """

    def came(self, link: LinkState) -> None:
        """Records that something arrived on a receiving link by the general path.

        It has used credit or window, which the lane renews at the end of the turn.

        Raises:
            MisuseError: if the link is not one of this lane.
        """

    def relieve(self) -> None:
        """Records that a receiver that could not be sent to is ready again."""

    def passed(self, link: LinkId, count: int) -> None:
        """Records how many deliveries of a receiving link bypassed the lane.

        The position of a delivery that the lane gives up counts all deliveries of the link.

        Raises:
            MisuseError: if the link is not a receiving link of this lane.
        """

    def queued(self, link: LinkId) -> int:
        """Returns how many deliveries of a link wait for credit."""

    def listed(self, most: int) -> list[LaneDelivery]:
        """Lists up to ``most`` deliveries under way, for people: sent ones, then queued ones."""

    def statistics(self, link: LinkId) -> LaneStatistics:
        """Returns a link's counters."""


class Express(Interface):
    """The lanes of one worker."""

    @property
    def kind(self) -> str:
        """The implementation: ``cython``."""

    @property
    def states(self) -> ModuleType:
        """The module with the classes of shared state that this implementation uses."""

    @property
    def kept_octets(self) -> int:
        """Payload of deliveries that are queued or unsettled, in octets."""

    def keep_beside(self, octets: int) -> None:
        """Records how much payload is kept off the lanes, from the same budget."""

    def register(self, link: LinkState) -> None:
        """Registers a link that has been attached on both sides."""

    def forget(self, link: LinkState) -> None:
        """Records that a link is detached; its lane keeps its deliveries until it is removed."""

    def knows(self, link: LinkId) -> bool:
        """Returns whether a link is registered, so that it may join a lane."""

    def open_lane(self, credit: int, only_settled: bool = False) -> Lane:
        """Opens a lane.

        Args:
            credit: the most deliveries that its receiving links are granted.
            only_settled: unsettled deliveries are left to the core.
        """

    def feed(
        self,
        connection: ConnectionState,
        buffer: bytes | bytearray | memoryview,
        position: int,
        end: int,
    ) -> int:
        """Handles frames from ``position`` on; returns the offset of the first that it leaves."""

    def opened(self, session: SessionState, link: LinkState | None) -> None:
        """Records that the engine has applied a flow: window or credit may have grown."""

    def evict(self, session: SessionState, outgoing: bool, first: int, last: int) -> list[LanePair]:
        """Gives up the deliveries with ids ``first`` to ``last`` of the session's direction.

        Deliveries that were sent on come first. If one of them still waits for a receiver, every
        waiting delivery of its link is given up with it, to keep them in order.
        """

    def flush(self) -> None:
        """Writes the gathered dispositions of this turn."""

    def note(self, session: SessionState) -> None:
        """Puts what was accepted on a session without a socket into its notes, however little."""

    def top_up(self, links: Iterable[LinkState]) -> None:
        """Grants credit to links without a socket that have little left."""

    def make_carrier(
        self,
        poller: int,
        take: Callable[[int, int, bytes | None], None],
        fail: Callable[[int, Exception], None],
        others: int = -1,
    ) -> Carrier | None:
        """Creates the carrier of connections on the lane; None: not supported on this system.

        Args:
            poller: descriptor of the epoll that watches the sockets, level-triggered.
            take: called for what the kernel does not handle: descriptor, readiness as epoll reports
                it, and the octets received; None: the socket is to be read.
            fail: called with a connection's descriptor and the error.
            others: descriptor that is readable when other tasks have something to do; -1: none is.
        """

    def end_turn(self) -> list[Any]:
        """Writes the gathered output; returns the owners of connections with new output.

        Connections whose output a carrier has sent completely are not among them.
        """


def make_express(
    mode: str | None = None,
    *,
    octet_budget: int = 256 << 20,
    connection_budget: int = 64 << 20,
) -> Express | None:
    """Creates the express lanes of a worker; None if they are off, or were not built.

    Args:
        mode: ``cython`` or ``off``; None: as ``ROUTER_EXPRESS`` says; if that is unset, the lane is
            used if it was built.
        octet_budget: payload that all lanes may keep, in octets.
        connection_budget: the same for the deliveries of one connection.

    Raises:
        MisuseError: if the mode is unknown, or the lane is required and was not built.
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
"""Logged once if the lane was not built."""


def is_built() -> bool:
    """Returns whether the express lane was built."""
    return compiled(_MODULE) is not None


def describe() -> str:
    """Returns a description, for people, of the express lane that is used by default."""
    if is_built():
        return "cython"
    return "none (slower: build with a C compiler to have it)"
