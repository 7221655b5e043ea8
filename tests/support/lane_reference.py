"""A worker whose peers are made of frames: core and engines without sockets, with the lane or not.

What its peers hear is read into what matters: delivery-tags are a sender's own business (§2.6.12),
and so is how a delivery is cut into frames.
"""

import itertools
import struct
from collections.abc import Iterator, Sequence
from typing import Any

import attrs

from router.core.core import Core
from router.core.policy import OPEN
from router.core.settings import CoreSettings
from router.links.link import OutgoingLink
from router.model.commands import Command
from router.model.events import ConnectionClosed, ConnectionOpened, Event
from router.model.identity import ConnectionId, LinkId
from router.model.outcome import DeliveryState
from router.model.serial import MASK
from router.model.terminus import ReceiverSettleMode, Role, SenderSettleMode, Source, Target
from router.routes.route import Route
from router.routes.table import RoutingTable
from router.wire.engine import EngineSettings
from router.wire.v1_0.engine import Engine10
from router.wire.v1_0.express import make_express
from router.wire.v1_0.frames import AMQP_HEADER, frame
from router.wire.v1_0.performatives import decode, encode
from router.wire.v1_0.records import (
    Attach,
    Begin,
    Disposition,
    Flow,
    Open,
    Performative,
    Transfer,
)


@attrs.frozen
class Delivered:
    """A delivery as a peer hears of it; the payload is that of all its frames."""

    channel: int
    handle: int
    delivery_id: int
    settled: bool
    payload: bytes


@attrs.define
class Heard:
    """What a peer has heard in one turn.

    Attributes:
        deliveries: in order, per session.
        said: of single deliveries: channel, role, id, settled, state.
        others: everything else but flows, in order.
    """

    deliveries: dict[int, list[Delivered]] = attrs.field(factory=dict)
    said: set[tuple[int, Role, int, bool, DeliveryState | None]] = attrs.field(factory=set)
    others: list[object] = attrs.field(factory=list)


@attrs.define(eq=False)
class Peer:
    """A connection, from the router's side.

    Attributes:
        output: what it was sent and has not been looked at.
        partial: by channel and handle, the delivery of which more is to come, and its tag.
        tags: by channel and handle, those of deliveries that are not settled.
    """

    engine: Engine10
    output: bytearray = attrs.field(factory=bytearray)
    partial: dict[tuple[int, int], Delivered] = attrs.field(factory=dict)
    tags: dict[tuple[int, int], set[bytes]] = attrs.field(factory=dict)
    is_closed: bool = False

    @property
    def sessions(self) -> dict[int, Any]:
        """The router's session states, by the peer's channel."""
        return self.engine._state.sessions

    def hear(self) -> Heard:
        """Reads what has been sent since it was last asked."""
        heard = Heard()
        at = 8 if self.output.startswith(b"AMQP") else 0
        while at < len(self.output):
            size, channel = struct.unpack_from(">I2xH", self.output, at)
            assert at + size <= len(self.output), "a part of a frame"
            if size > 8:
                performative, payload_at = decode(bytes(self.output), at + 8, at + size)
                payload = bytes(self.output[payload_at : at + size])
                self._hear(heard, channel, performative, payload)  # type: ignore[arg-type]
            at += size
        self.output.clear()
        return heard

    def _hear(self, heard: Heard, channel: int, said: Performative, payload: bytes) -> None:
        match said:
            case Transfer():
                self._hear_transfer(heard, channel, said, payload)
            case Disposition(role=role, first=first, last=last, settled=settled, state=state):
                for each in range(((first if last is None else last) - first & MASK) + 1):
                    heard.said.add((channel, role, first + each & MASK, settled, state))
            case Flow():
                pass
            case _:
                heard.others.append((channel, said))

    def _hear_transfer(self, heard: Heard, channel: int, said: Transfer, payload: bytes) -> None:
        at = channel, said.handle
        begun = self.partial.pop(at, None)
        if begun is None:
            assert said.delivery_id is not None
            assert said.delivery_tag is not None
            begun = Delivered(channel, said.handle, said.delivery_id, bool(said.settled), b"")
            if not said.settled:
                tags = self.tags.setdefault(at, set())
                assert said.delivery_tag not in tags, "a tag in use (§2.6.12)"
                tags.add(said.delivery_tag)
        begun = attrs.evolve(begun, payload=begun.payload + payload)
        assert not said.aborted
        if said.more:
            self.partial[at] = begun
        else:
            heard.deliveries.setdefault(channel, []).append(begun)


class Worker:
    """One worker without sockets."""

    def __init__(self, mode: str, route: Route, first_id: int, window: int) -> None:
        self.express = make_express(mode)
        self._link_ids: Iterator[LinkId] = map(LinkId, itertools.count(1))
        self.core = Core(
            CoreSettings(router_id="router"),
            RoutingTable([route]),
            self._link_ids,
            self.express,
            policy=OPEN,
        )
        self._first_id = first_id
        self._window = window
        self._far: set[int] = set()
        self.peers: list[Peer] = []
        self.now = 100.0

    # --- what peers do ----------------------------------------------------------------------------

    def connect(self, sessions: int, *, is_far: bool = False) -> None:
        """Opens a connection with some sessions; one that is far leads to another worker."""
        settings = EngineSettings(
            is_server=True,
            container="router",
            link_ids=self._link_ids,
            session_window_frames=self._window,
        )
        self.peers.append(Peer(Engine10(settings, self.express, initial_id=self._first_id)))
        index = len(self.peers) - 1
        if is_far:
            self._far.add(index)
        octets = AMQP_HEADER + frame(
            0, encode(Open(container_id=f"peer {index}", max_frame_size=65536))
        )
        for channel in range(sessions):
            begin = Begin(
                next_outgoing_id=self._first_id, incoming_window=self._window, outgoing_window=2048
            )
            octets += frame(channel, encode(begin))
        self.feed(index, octets)

    def attach(  # noqa: PLR0917
        self,
        connection: int,
        channel: int,
        role: Role,
        address: str,
        second: bool = False,
        mode: int = 2,
    ) -> None:
        """Attaches a link; ``role`` is the router's."""
        handle = len(self.peers[connection].sessions[channel].links)
        body = Attach(
            name=f"link {channel}/{handle} {role.value}",
            handle=handle,
            role=Role.SENDER if role is Role.RECEIVER else Role.RECEIVER,
            snd_settle_mode=SenderSettleMode(mode),
            rcv_settle_mode=ReceiverSettleMode(int(second)),
            source=Source(address=address),
            target=Target(address=address),
            initial_delivery_count=self._first_id if role is Role.RECEIVER else None,
        )
        self.feed(connection, frame(channel, encode(body)))

    def feed(self, connection: int, octets: bytes) -> None:
        """Lets a peer send."""
        peer = self.peers[connection]
        events: Sequence[Event] = peer.engine.receive_data(octets, self.now)
        while events:
            self._handle(connection, events)
            events = peer.engine.receive_data(b"", self.now)

    def _handle(self, connection: int, events: Sequence[Event]) -> None:
        self._carry_out(self.core.handle(ConnectionId(connection), events, self.now))
        for event in events:
            if isinstance(event, ConnectionOpened) and connection in self._far:
                found = self.core._registry.connections[ConnectionId(connection)]
                found.configured = "/2"
            elif isinstance(event, ConnectionClosed):
                self.peers[connection].is_closed = True

    def _carry_out(self, orders: Sequence[tuple[ConnectionId, Command]]) -> None:
        for connection, command in orders:
            self.peers[int(connection)].engine.execute(command)

    def flow(  # noqa: PLR0917
        self,
        connection: int,
        channel: int,
        window: int,
        handle: int | None,
        credit: int | None,
        echo: bool = False,
    ) -> None:
        """Lets a peer send a flow, which says that it has heard everything.

        Without ``credit`` it repeats what is left of what it has granted.
        """
        session = self.peers[connection].sessions[channel]
        body = Flow(session.next_outgoing_id, window, session.next_incoming_id, 2048)
        if handle is not None:
            link = session.links[handle]
            body = attrs.evolve(
                body,
                handle=handle,
                delivery_count=link.delivery_count,
                link_credit=link.credit if credit is None else credit,
                echo=echo,
            )
        self.feed(connection, frame(channel, encode(body)))

    # --- what the worker does ---------------------------------------------------------------------

    def end_turn(self) -> None:
        """Ends a turn of the data plane: everything that has output sends it."""
        while True:
            self.core.orders_done()
            if self.express is not None:
                self.express.end_turn()
            if not sum([self._collect(peer) for peer in self.peers]):
                return

    @staticmethod
    def _collect(peer: Peer) -> int:
        before = len(peer.output)
        while octets := bytes(peer.engine.data_to_send()):
            peer.output += octets
            peer.engine.bytes_sent(len(octets))
        return len(peer.output) - before

    def wait(self, seconds: float) -> None:
        """Lets time pass."""
        self.now += seconds
        self._carry_out(self.core.handle_deadline(self.now))

    def demote(self) -> None:
        """Takes every address off the lane: nobody outside is to see that."""
        for node in list(self.core._registry.nodes.values()):
            self.core._lanes.demote(node)
        self.wait(0)  # in a turn of the core, as whatever demotes

    def weigh(self, place: int, elsewhere: int, receivers: int) -> None:
        """Says who stands behind a receiving peer, as siblings tell each other (``core.loads``)."""
        links: list[OutgoingLink] = [
            link for node in self.core._registry.nodes.values() for link in node.outgoing
        ]
        link = links[place % len(links)]
        link.elsewhere, link.receivers = elsewhere, receivers
        self.core._lanes.weighed(link)

    # --- what is compared -------------------------------------------------------------------------

    def hear(self) -> list[Heard]:
        """What every peer has heard since this was last asked."""
        return [peer.hear() for peer in self.peers]

    def carried(self) -> int:
        """How many deliveries went by the express lane."""
        if self.express is None:
            return 0
        return sum(link.carried for link in self._links() if link.role is Role.RECEIVER)

    def _links(self) -> Iterator[Any]:
        for peer in self.peers:
            for session in peer.sessions.values():
                yield from session.links.values()

    def ids(self) -> list[object]:
        """Where the delivery-ids of every session are."""
        return [
            (session.next_incoming_delivery, session.next_outgoing_delivery)
            for peer in self.peers
            for session in peer.sessions.values()
        ]

    def counters(self) -> list[object]:
        """Every number that peers may rely on."""
        self.core._lanes.refresh()
        return [
            (
                session.next_incoming_id,
                session.next_incoming_delivery,
                session.next_outgoing_delivery,
                [(link.role, link.delivery_count, link.credit) for link in session.links.values()],
            )
            for peer in self.peers
            for session in peer.sessions.values()
        ]

    def is_at_rest(self) -> bool:
        """Whether nothing is kept any more."""
        kept = 0 if self.express is None else self.express.kept_octets
        return not kept and not self.core._registry.process.used
