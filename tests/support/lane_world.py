"""Connections around the kernel of the express lane, without engines.

``World`` holds the state that engines would hold, does the least that an engine would do with
frames that the kernel leaves, and keeps a record of everything that comes out. ``Chaos`` makes up
what its peers do next: mostly what the lane is for, now and then anything.
"""

import random
import struct
from collections.abc import Callable
from operator import methodcaller
from typing import Any

import attrs

from router.errors import DecodeError
from router.model.delivery import ReceivedDelivery
from router.model.identity import LinkId, LinkName
from router.model.outcome import ACCEPTED, RELEASED, DeliveryState
from router.model.serial import MASK
from router.model.terminus import Role
from router.wire.v1_0 import windows
from router.wire.v1_0.express import Express, Lane
from router.wire.v1_0.frames import frame
from router.wire.v1_0.performatives import (
    Disposition,
    Flow,
    Transfer,
    decode,
    encode,
    encode_disposition,
    encode_transfer,
)
from router.wire.v1_0.state import NARROW_FRAMES

DATA = b"\x00\x53\x75"
HEADER_DURABLE = b"\x00\x53\x70\xc0\x02\x01\x41"


def header_with_ttl(milliseconds: int) -> bytes:
    """A header of default durability and priority whose message lives so long."""
    return b"\x00\x53\x70\xc0\x08\x03\x41\x40\x70" + milliseconds.to_bytes(4)


HEADER_TTL = header_with_ttl(1000)


def data_section(octets: int) -> bytes:
    """A payload of one data section."""
    if octets < 256:
        return DATA + b"\xa0%c%b" % (octets, b"x" * octets)
    return DATA + b"\xb0" + struct.pack(">I", octets) + b"x" * octets


def transfer(
    handle: int,
    delivery_id: int,
    payload: bytes,
    *,
    tag: bytes = b"tag",
    settled: bool | None = False,
    more: bool = False,
    channel: int = 0,
) -> bytes:
    """A transfer frame as a peer sends it."""
    body = encode(Transfer(handle, delivery_id, tag, 0, settled, more))
    return frame(channel, body, payload)


def disposition(  # noqa: PLR0917
    role: Role,
    first: int,
    last: int | None = None,
    settled: bool = True,
    state: DeliveryState | None = ACCEPTED,
    channel: int = 0,
) -> bytes:
    """A disposition frame as a peer sends it."""
    return frame(channel, encode_disposition(role, first, last, settled, state))


@attrs.define(eq=False)
class Adopter:
    """Stands for an engine's session: takes over what the lane gives up."""

    state: Any
    adopted: list[tuple[object, ...]] = attrs.field(factory=list)

    def adopt_incoming(self, link: Any, an_id: int, tag: bytes, settles_second: bool) -> None:
        self.adopted.append(("in", link.link, an_id, tag, settles_second))
        self.state.incoming[an_id] = link

    def adopt_partial(  # noqa: PLR0917
        self,
        link: Any,
        an_id: int,
        tag: bytes,
        settled: bool,
        settles_second: bool,
        payload: bytes,
    ) -> None:
        self.adopted.append(("part", link.link, an_id, tag, settled, settles_second, payload))
        link.in_progress = True
        if not settled:
            self.state.incoming[an_id] = link

    def adopt_outgoing(self, link: Any, an_id: int, number: int, tag: bytes) -> None:
        self.adopted.append(("out", link.link, an_id, number, tag))
        self.state.outgoing[an_id] = link


class World:
    """Peers with connections, sessions and links, and lanes between them."""

    def __init__(self, express: Express, high_octets: int = 1 << 20) -> None:
        self.express = express
        self.high_octets = high_octets
        self.connections: list[Any] = []
        self.links: list[Any] = []
        self.lanes: list[Lane] = []
        self.on_lane: dict[int, int] = {}
        self.received: list[bytearray] = []

    # --- building ---------------------------------------------------------------------------------

    def connect(self, sessions: int = 1, window: int = 2048, first_id: int = 0) -> int:
        states: Any = self.express.states
        connection = states.ConnectionState()
        connection.owner = len(self.connections)
        connection.is_open = True
        connection.max_frame_octets = connection.max_incoming_frame_octets = 65536
        connection.output.high_octets = self.high_octets
        connection.output.low_octets = self.high_octets // 4
        for channel in range(sessions):
            session = states.SessionState(connection, window)
            session.window = session.incoming_window = window  # wide, as behind small frames
            session.small_frames = NARROW_FRAMES
            session.owner = Adopter(session)
            session.incoming, session.outgoing, session.waiting = {}, {}, []
            session.channel = channel + 5
            session.is_open = True
            session.next_incoming_delivery = session.next_outgoing_delivery = first_id
            session.next_incoming_id = session.next_outgoing_id = first_id
            session.remote_incoming_window = window
            connection.sessions[channel] = session
        self.connections.append(connection)
        self.received.append(bytearray())
        return len(self.connections) - 1

    def attach(  # noqa: PLR0917
        self,
        connection: int,
        role: Role,
        channel: int = 0,
        credit: int = 0,
        second: bool = False,
        mode: int = 2,
    ) -> int:
        states: Any = self.express.states
        session = self.connections[connection].sessions[channel]
        handle = len(session.links)
        name = LinkName(f"link {len(self.links)}")
        link = states.LinkState(LinkId(len(self.links) + 1), name, role, session)
        link.handle = handle + 3
        link.is_open = True
        link.settles_second = second
        link.sender_settle_mode = mode
        link.credit = link.granted = link.allowance = credit
        link.delivery_count = session.next_outgoing_id
        session.links[handle] = link
        self.links.append(link)
        self.express.register(link)
        return len(self.links) - 1

    def open_lane(self, credit: int = 100, *, only_settled: bool = False) -> int:
        self.lanes.append(self.express.open_lane(credit, only_settled))
        return len(self.lanes) - 1

    def join(self, lane: int, link: int, is_far: bool = False) -> bool:
        state = self.links[link]
        fits = True
        if state.role is Role.RECEIVER:
            self.lanes[lane].add_incoming(state.link, is_far)
        else:
            fits = self.lanes[lane].add_outgoing(state.link, is_far)
        if fits:
            self.on_lane[link] = lane
        return fits

    def weigh(self, link: int, elsewhere: int, receivers: int) -> None:
        lane = self.lanes[self.on_lane[link]]
        lane.weigh(self.links[link].link, elsewhere, receivers)

    # --- what peers do ----------------------------------------------------------------------------

    def feed(self, connection: int, octets: bytes) -> list[object]:
        """Lets a peer send; returns what the kernel left, in order."""
        state = self.connections[connection]
        left: list[object] = []
        at, end = 0, len(octets)
        while True:
            at = self.express.feed(state, octets, at, end)
            if end - at < 8:
                return left
            (size,) = struct.unpack_from(">I", octets, at)
            if size < 8 or size > end - at:
                return [*left, ("cut", at)]
            left.append((at, self._general(state, octets, at, at + size)))
            at += size

    def _general(self, connection: Any, octets: bytes, at: int, end: int) -> object:
        """Does with a frame what an engine would do, in its simplest form."""
        session = connection.sessions.get(octets[at + 6] << 8 | octets[at + 7])
        try:
            performative, payload_at = decode(octets, at + 8, end)
        except DecodeError:
            return "undecodable"
        if session is None:
            return "unmapped"
        match performative:
            case Transfer():
                return self._general_transfer(session, performative, octets[payload_at:end])
            case Disposition(role=role, first=first, last=last, settled=settled):
                last = first if last is None else last
                outgoing = role is Role.RECEIVER
                pairs = self.express.evict(session, outgoing, first, last)
                if settled:
                    unsettled = session.outgoing if outgoing else session.incoming
                    for each in list(unsettled):
                        if (each - first) & MASK <= (last - first) & MASK:
                            del unsettled[each]
                return pairs
            case Flow():
                return self._general_flow(session, performative)
        return type(performative).__name__

    def _general_transfer(self, session: Any, transfer: Transfer, payload: bytes) -> object:
        link = session.links.get(transfer.handle)
        if link is None or link.role is not Role.RECEIVER or session.incoming_window <= 0:
            return "refused transfer"
        if not link.in_progress:
            if transfer.delivery_id != session.next_incoming_delivery or link.credit <= 0:
                return "refused delivery"
            if transfer.delivery_tag is None:  # §2.7.5: the first transfer must have one
                return "refused delivery"
            session.next_incoming_delivery = (session.next_incoming_delivery + 1) & MASK
            link.delivery_count = (link.delivery_count + 1) & MASK
            link.credit -= 1
            link.allowance -= 1
            if not transfer.settled:
                session.incoming[transfer.delivery_id] = link
        index = self.links.index(link)
        lane = self.lanes[self.on_lane[index]] if index in self.on_lane else None
        if lane is not None:
            lane.came(link)
        is_whole = not (transfer.more or link.in_progress)
        link.in_progress = transfer.more and not transfer.aborted
        windows.count(session, 1, len(payload))
        if lane is None or not is_whole or len(payload) > lane.limit_octets:
            return "general delivery"
        number, tag = transfer.delivery_id, transfer.delivery_tag
        settled = bool(transfer.settled)
        delivery = ReceivedDelivery(number, tag, payload, settled=settled)  # type: ignore[arg-type]
        lane.put(link.link, [delivery])
        return "put"

    def _general_flow(self, session: Any, flow: Flow) -> object:
        if flow.next_incoming_id is not None:
            under_way = (session.next_outgoing_id - flow.next_incoming_id) & MASK
            if under_way < 1 << 31:
                session.remote_incoming_window = max(0, flow.incoming_window - under_way)
        link = None if flow.handle is None else session.links.get(flow.handle)
        if link is not None and link.role is Role.SENDER and flow.link_credit is not None:
            behind = (link.delivery_count - (flow.delivery_count or 0)) & MASK
            link.credit = link.granted = max(0, flow.link_credit - behind)
        self.express.opened(session, link)
        return "general flow"

    # --- what the worker does ---------------------------------------------------------------------

    def end_turn(self) -> list[Any]:
        return self.express.end_turn()

    def flush(self) -> None:
        self.express.flush()

    def send(self, connection: int, most: int = 1 << 30) -> bytes:
        """Sends up to ``most`` octets of output to a peer; returns them."""
        output = self.connections[connection].output
        sent = bytearray()
        while output.octets and most:
            shown = bytes(output.peek()[:most])
            sent += shown
            most -= len(shown)
            output.consume(len(shown))
        self.received[connection] += sent
        return bytes(sent)

    def leave(self, link: int) -> object:
        state = self.links[link]
        lane = self.lanes[self.on_lane.pop(link)]
        if state.role is Role.RECEIVER:
            return lane.remove_incoming(state.link)
        return lane.remove_outgoing(state.link)

    def close_lane(self, lane: int) -> object:
        self.on_lane = {link: each for link, each in self.on_lane.items() if each != lane}
        return self.lanes[lane].close()

    def detach(self, link: int) -> object:
        """Detaches a link, as an engine does before the core hears of it."""
        state = self.links[link]
        state.session.links.pop(
            next(key for key, each in state.session.links.items() if each is state), None
        )
        self.flush()
        self.express.forget(state)
        return self.leave(link) if link in self.on_lane else None

    def check(self, when: str) -> None:
        """Finds every number that the engines share with the kernel within its bounds."""
        assert self.express.kept_octets >= 0, when
        kept = sum(each.kept_octets for each in self.connections)
        assert kept == self.express.kept_octets, when
        for link in self.links:
            counts = (link.unsettled, link.carried, link.accepted, link.settled, link.queued)
            assert min(counts) >= 0, when
            assert link.accepted <= link.carried, when
            if link.role is Role.SENDER:
                assert link.credit >= 0, when
        for connection in self.connections:
            output = connection.output
            assert output.congested or output.octets <= output.high_octets, when
            for session in connection.sessions.values():
                assert session.remote_incoming_window >= 0, when
        for link_index, lane in self.on_lane.items():
            link = self.links[link_index]
            told = self.lanes[lane].statistics(link.link)
            assert (told.unsettled, told.credit) == (link.unsettled, link.credit), when


Step = Callable[[World], object]


@attrs.define
class Chaos:
    """Makes up the next step of a conversation, from what one world looks like."""

    choice: random.Random

    def build(self) -> list[Step]:
        """The steps that set a world up: connections, links, a lane or two."""
        choice = self.choice
        first_id = choice.choice((0, 0, 250, MASK - 20))
        window = choice.choice((12, 100, 2048))
        second = choice.random() < 0.3
        incoming, outgoing = choice.randint(1, 4), choice.choice((1, 2, 3, 4, 9))
        steps: list[Step] = []
        joins: list[Step] = []
        lanes = choice.choice((1, 1, 2))
        lane_credit = choice.choice((10, 60, 500))
        far_share = choice.choice((0, 0, 0.5))
        modes = choice.choice(((2,), (2,), (0, 2), (1, 2)))
        only_settled = choice.random() < 0.1
        for index in range(incoming + outgoing):
            sessions = choice.choice((1, 1, 2))
            steps.append(methodcaller("connect", sessions, window, first_id))
            role = Role.RECEIVER if index < incoming else Role.SENDER
            for _ in range(choice.choice((1, 1, 1, 3))):
                channel = choice.randrange(sessions)
                credit = choice.choice((0, 5, 40, 300))
                mode = choice.choice(modes) if role is Role.SENDER else 2
                steps.append(methodcaller("attach", index, role, channel, credit, second, mode))
                is_far = choice.random() < far_share
                joins.append(methodcaller("join", choice.randrange(lanes), len(joins), is_far))
        lane = methodcaller("open_lane", lane_credit, only_settled=only_settled)
        return steps + [lane] * lanes + joins

    def next(self, world: World) -> Step:
        """The next step."""
        kind = self.choice.choices(
            ("transfers", "outcome", "settle", "flow", "turn", "send", "odd", "links"),
            (30, 20, 6, 14, 16, 12, 8, 2),
        )[0]
        step: Step = getattr(self, f"_{kind}")(world)
        return step

    def _session(self, world: World, role: Role | None = None) -> tuple[int, int, Any]:
        """Some session, mostly one that has a link of the role."""
        sessions = [
            (index, channel, session)
            for index, connection in enumerate(world.connections)
            for channel, session in connection.sessions.items()
        ]
        if self.choice.random() < 0.95:
            sessions = [
                each
                for each in sessions
                if any(role in {None, link.role} for link in each[2].links.values())
            ] or sessions
        return self.choice.choice(sessions)

    def _transfers(self, world: World) -> Step:
        choice = self.choice
        connection, channel, session = self._session(world, Role.RECEIVER)
        handles = [handle for handle, link in session.links.items() if link.role is Role.RECEIVER]
        if not handles:
            return self._flow(world)
        handle = max(handles, key=lambda each: session.links[each].credit)
        count = choice.choice((1, 1, 2, 5, 30, 120))
        if choice.random() < 0.9:
            count = max(1, min(count, session.links[handle].credit, session.incoming_window))
        octets = bytearray()
        an_id = session.next_incoming_delivery
        size = choice.choice((0, 1, 50, 250, 400, 3000))
        tag_octets = choice.choice((0, 1, 4, 8, 16, 17, 32))
        restless = choice.choice((0, 0, 0.1))
        usual = choice.random() < 0.2
        for _ in range(count):
            if choice.random() < restless:
                handle = choice.choice(handles)
            if choice.random() < restless:
                size = choice.randrange(600)
            if choice.random() < restless / 2:
                tag_octets = choice.randrange(33)
            octets += self._one_transfer(handle, an_id, size, tag_octets, channel, restless, usual)
            an_id = (an_id + 1) & MASK
        if choice.random() < 0.05:
            octets = octets[: choice.randrange(len(octets))]
        elif choice.random() < 0.1:
            at = choice.randrange(len(octets))
            octets[at] = choice.choice((0, 0x40, 0x41, 0x42, 0x43, 0x52, 0x70, 255, octets[at] ^ 1))
        done = bytes(octets)
        return methodcaller("feed", connection, done)

    def _one_transfer(  # noqa: PLR0917
        self,
        handle: int,
        an_id: int,
        size: int,
        tag_octets: int,
        channel: int,
        restless: float,
        usual: bool,
    ) -> bytes:
        choice = self.choice
        tag = choice.randbytes(tag_octets)
        payload = data_section(size)
        if size % 3 == 1:
            payload = HEADER_DURABLE + payload
        elif choice.random() < restless / 5:
            payload = HEADER_TTL + payload
        settled: bool | None = usual
        if restless:
            (settled,) = choice.choices((False, None, True), (8, 3, 2))
        if choice.random() < restless:  # other legal encodings
            fields = b"".join(
                (
                    b"\x70" + struct.pack(">I", handle),
                    b"\x70" + struct.pack(">I", an_id),
                    b"\xa0%c%b" % (tag_octets, tag),
                    choice.choice((b"\x43", b"\x52\x00", b"\x70\x00\x00\x00\x00")),
                    {True: b"\x41", False: b"\x42", None: b"\x40"}[settled],
                    b"\x42",
                )
            )
            count = 6
            if choice.random() < 0.5:
                fields += choice.choice((b"\x40\x40\x42\x42\x41", b"\x40\x40\x40\x40\x40"))
                count = 11
            if choice.random() < 0.5:
                sizes = struct.pack(">II", len(fields) + 4, count)
                body = b"\x00\x53\x14\xd0" + sizes + fields
            else:
                body = b"\x00\x53\x14\xc0%c%c%b" % (len(fields) + 1, count, fields)
            return frame(channel, body, payload)
        if choice.random() > restless / 3:
            return transfer(handle, an_id, payload, tag=tag, settled=settled, channel=channel)
        return self._parts(
            handle, an_id, payload * choice.choice((1, 1, 30)), tag, settled, channel
        )

    def _parts(  # noqa: PLR0917
        self,
        handle: int,
        an_id: int,
        payload: bytes,
        tag: bytes,
        settled: bool | None,
        channel: int,
    ) -> bytes:
        """A delivery in parts; seldom one whose end never comes, or comes oddly."""
        choice = self.choice
        size = choice.choice((5, 50, 20_000))
        pieces = [payload[at : at + size] for at in range(0, min(len(payload), 60 * size), size)]
        octets = bytearray()
        for index, piece in enumerate(pieces):
            more = index < len(pieces) - 1 or choice.random() < 0.05
            if index == 0:
                octets += transfer(
                    handle, an_id, piece, tag=tag, settled=settled, more=more, channel=channel
                )
                continue
            body = encode_transfer(handle, more=more)
            if choice.random() < 0.05:
                odd = choice.choice(
                    (
                        Transfer(handle, aborted=True),
                        Transfer(handle, an_id, tag, settled=True, aborted=True),
                        Transfer(handle, an_id, tag, more=more),
                        Transfer(handle, (an_id + 1) & MASK, more=more),
                        Transfer(handle, settled=True, more=more),
                    )
                )
                body = encode(odd)
            octets += frame(channel, body, piece)
        return bytes(octets)

    def _range(self, after: int) -> tuple[int, int | None]:
        """A range of ids that lie, mostly, before ``after``."""
        choice = self.choice
        if choice.random() < 0.03:
            return choice.choice(((0, MASK), (after, (after + 5) & MASK), (0, 0x7FFF_FFFF)))
        if choice.random() < 0.3:
            return (after - 400) & MASK, (after + choice.choice((-1, -1, 5))) & MASK
        back = choice.choice((1, 3, 10, 40, 200))
        first = (after - 1 - choice.randrange(back)) & MASK
        if choice.random() < 0.3:
            return first, None
        return first, (first + choice.randrange(choice.choice((2, back + 1)))) & MASK

    def _outcome(self, world: World) -> Step:
        connection, channel, session = self._session(world, Role.SENDER)
        choice = self.choice
        octets = b""
        for _ in range(choice.choice((1, 1, 3))):
            first, last = self._range(session.next_outgoing_delivery)
            state = choice.choices((ACCEPTED, RELEASED, None), (40, 2, 1))[0]
            settled = choice.random() < 0.7
            octets += disposition(Role.RECEIVER, first, last, settled, state, channel)
        return methodcaller("feed", connection, octets)

    def _settle(self, world: World) -> Step:
        connection, channel, session = self._session(world, Role.RECEIVER)
        choice = self.choice
        first, last = self._range(session.next_incoming_delivery)
        settled = choice.random() < 0.95
        state = choice.choice((ACCEPTED, None))
        octets = disposition(Role.SENDER, first, last, settled, state, channel)
        return methodcaller("feed", connection, octets)

    def _flow(self, world: World) -> Step:
        choice = self.choice
        connection, channel, session = self._session(world, Role.SENDER)
        seen = (session.next_outgoing_id - choice.choice((0, 0, 1, 7))) & MASK
        flow = Flow(
            seen if choice.random() < 0.97 else None,
            choice.choice((0, 5, 100, 2048, 2048)),
            session.next_incoming_id if choice.random() < 0.97 else 3,
            choice.choice((0, 2048)),
        )
        if session.links and choice.random() < 0.9:
            handle, link = choice.choice(list(session.links.items()))
            behind = choice.choice((0, 0, 0, 2))
            flow = attrs.evolve(
                flow,
                handle=handle,
                delivery_count=(link.delivery_count - behind) & MASK,
                link_credit=choice.choice((0, 1, 10, 100, 300, 300)),
                drain=choice.random() < 0.03,
                echo=choice.random() < 0.03,
            )
        octets = frame(channel, encode(flow))
        return methodcaller("feed", connection, octets)

    def _turn(self, world: World) -> Step:
        return methodcaller("end_turn" if self.choice.random() < 0.9 else "flush")

    def _send(self, world: World) -> Step:
        connection = self.choice.randrange(len(world.connections))
        most = self.choice.choice((1, 100, 5000, 1 << 30))
        return methodcaller("send", connection, most)

    def _odd(self, world: World) -> Step:
        choice = self.choice
        connection = choice.randrange(len(world.connections))
        octets = choice.choice(
            (
                frame(0, b""),
                frame(7, encode(Flow(0, 1, 0, 1))),
                frame(0, b"\x00\x53\x18\x45"),
                frame(0, choice.randbytes(choice.randrange(40))),
                choice.randbytes(choice.randrange(60)),
                frame(0, b"\x00\x53" + choice.choice((b"\x13", b"\x14", b"\x15")) + b"\xc0\x00"),
                frame(0, b"\x00\x53\x14\xd0\xff\xff\xff\xff\x00\x00\x00\x05"),
            )
        )
        return methodcaller("feed", connection, octets)

    def _links(self, world: World) -> Step:
        choice = self.choice
        links = [index for index, each in enumerate(world.links) if each.is_open]
        if not links:
            return methodcaller("end_turn")
        link = choice.choice(links)
        if link not in world.on_lane:
            lane = choice.randrange(len(world.lanes))
            return methodcaller("join", lane, link, choice.random() < 0.2)
        if world.links[link].role is Role.SENDER and choice.random() < 0.5:
            return methodcaller("weigh", link, choice.randrange(30), choice.choice((1, 1, 2, 5)))
        act = choice.choice(("leave", "detach", "close"))
        if act == "leave":
            return methodcaller("leave", link)
        if act == "detach" and len(links) > 2:
            return methodcaller("detach", link)
        lane = world.on_lane[link]
        return methodcaller("close_lane", lane)


def converse(world: World, seed: int, steps: int) -> None:
    """Leads one conversation; its counters stay right, and nothing is left behind in the end."""
    chaos = Chaos(random.Random(seed))
    for step in chaos.build():
        step(world)
    for count in range(steps):
        chaos.next(world)(world)
        world.check(f"seed {seed}, step {count}")
    for lane in range(len(world.lanes)):
        world.close_lane(lane)
    world.end_turn()
    world.check(f"seed {seed}, at the end")
    assert world.express.kept_octets == 0, f"seed {seed}"
    assert not any(link.unsettled for link in world.links), f"seed {seed}"
    for connection in range(len(world.connections)):
        world.send(connection)


def read_whole(octets: bytes) -> None:
    """Reads frames to the end; none is broken, or cut off."""
    at = 0
    while at < len(octets):
        (size,) = struct.unpack_from(">I", octets, at)
        assert 8 <= size <= len(octets) - at, "a part of a frame"
        decode(octets, at + 8, at + size)
        at += size
