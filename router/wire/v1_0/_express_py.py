"""The express lane's kernel in pure Python, hand-batched: the reference, and the fallback.

See ``express`` for what a kernel takes and what falls out of it. This twin works in runs, so that
most of the work is done by the C behind slices, ``struct``, ``map`` and ``join``:

- A transfer that was read field by field leaves its *shape*: the octets around delivery-id, tag and
  payload, which senders repeat. As long as the next frame has the same shape, one ``unpack_from``
  reads it; if it has the same size as well, ``iter_unpack`` reads many at once.
- Deliveries of one run share one record (``rings.Run``), and rings are cut by slices.
- A disposition is as many pieces as it meets runs, whatever its range.
"""

import contextlib
import struct
from collections.abc import Callable
from typing import Any, Final
from weakref import WeakValueDictionary

from router.errors import MisuseError
from router.model.identity import LinkId
from router.model.lane import LanePair
from router.model.outcome import ACCEPTED
from router.model.serial import HALF, MASK
from router.model.terminus import Role
from router.wire.v1_0 import state as states
from router.wire.v1_0._lane_py import Gathered, Lane, adopt, pair_of
from router.wire.v1_0._rings_py import DONE, TOLD, UNTOLD, Piece, Rings, Run
from router.wire.v1_0._shapes_py import (
    Shape,
    lead_of,
    read_flag,
    read_uint,
    read_uint_or_null,
)
from router.wire.v1_0.frames import frame
from router.wire.v1_0.performatives import encode_disposition, encode_flow
from router.wire.v1_0.state import ConnectionState, LinkState, SessionState

FIRST_BLOCK: Final = 8
MOST_BLOCK: Final = 512
"""Frames that are tried to be read at once: doubled as long as all of them fit."""


# What a session's peer is to be told of deliveries, in the order in which it is written.
TO_SENDER_SETTLED: Final = 0
TO_SENDER_ACCEPTED: Final = 1
TO_RECEIVER_SETTLED: Final = 2
_SAYINGS: Final = ((Role.RECEIVER, True), (Role.RECEIVER, False), (Role.SENDER, True))

_u32 = struct.Struct(">I")
_unpack_u32 = _u32.unpack_from
_BOOLEANS: Final = {0x41: True, 0x42: False}


class Express:
    """The pure twin of the kernel; see ``express.Express`` for its interface.

    Attributes:
        kind: which twin this is.
        states: the classes of hot state that go with it.
        octet_budget: payload that all lanes may keep; above it nothing is granted.
        connection_budget: the same for what came on one connection.
        kept_octets: payload of queued and unsettled deliveries.
    """

    kind = "python"
    states = states

    def __init__(self, octet_budget: int = 256 << 20, connection_budget: int = 64 << 20) -> None:
        self.octet_budget = octet_budget
        self.connection_budget = connection_budget
        self.kept_octets = 0
        self._links: WeakValueDictionary[LinkId, LinkState] = WeakValueDictionary()
        self._dirty: list[ConnectionState] = []
        self._speaking: list[SessionState] = []
        self.touched: list[Lane] = []
        self.relieved: list[Lane] = []
        self._starved: list[Lane] = []

    # --- what engines, core and data plane ask ----------------------------------------------------

    def register(self, link: LinkState) -> None:
        """Makes a link known that has been attached on both sides."""
        self._links[link.link] = link

    def forget(self, link: LinkState) -> None:
        """Takes note that a link is detached; what its lane knows stays until the lane lets go."""
        link.is_open = False
        link.session.connection.shapes = None
        if link.lane is None:
            self._links.pop(link.link, None)

    def knows(self, link: LinkId) -> bool:
        """Tells whether a link is registered, so that it may join a lane."""
        found = self._links.get(link)
        return found is not None and found.is_open

    def find(self, link: LinkId) -> LinkState:
        """Returns a link that was registered.

        Raises:
            MisuseError: if it was not.
        """
        found = self._links.get(link)
        if found is None:
            raise MisuseError(f"link {link} is not known to the express lane")
        return found

    def open_lane(self, credit: int, only_settled: bool = False) -> "Lane":
        """Opens a lane whose incoming links are granted ``credit`` deliveries at most."""
        return Lane(self, credit, only_settled)

    def make_carrier(self, poller: int, take: Any, fail: Any) -> None:
        """Makes none: here the data plane is as quick."""

    def end_turn(self) -> list[Any]:
        """Writes what the turn left; returns owners of connections that have got output."""
        while self.relieved:
            relieved, self.relieved = self.relieved, []
            for lane in relieved:
                lane.pump()
        self.flush()
        self._grant()
        dirty, self._dirty = self._dirty, []
        for connection in dirty:
            connection.is_dirty = False
        return [connection.owner for connection in dirty]

    def opened(self, session: SessionState, link: LinkState | None) -> None:
        """Takes note that the engine has taken in a flow: window or credit may have grown."""
        rings: Rings | None = session.rings
        own: Lane | None = None
        if link is not None and link.role is Role.SENDER:
            own = link.lane
        if link is not None and own is not None:
            own.granted(link)
        if rings is not None and rings.blocked and session.remote_incoming_window:
            blocked, rings.blocked = rings.blocked, []
            for lane in blocked:
                lane.choice.readmit()
            for lane in blocked:
                lane.pump()
        if own is not None:
            own.pump()

    def evict(self, session: SessionState, outgoing: bool, first: int, last: int) -> list[LanePair]:
        """Gives up the lane's pairs from ``first`` to ``last``, ids of the session's direction."""
        rings: Rings | None = session.rings
        if rings is None or (last - first) & MASK >= HALF:
            return []
        ring = rings.outgoing if outgoing else rings.incoming
        return self.give_up(ring.find(first, last), outgoing)

    # --- frames -----------------------------------------------------------------------------------

    def feed(self, connection: ConnectionState, buffer: Any, position: int, end: int) -> int:
        """Takes frames from ``position`` on; returns where the first one begins that it leaves."""
        if not connection.lanes or not connection.is_open:
            return position
        data = buffer if type(buffer) is bytes else bytes(memoryview(buffer)[:end])
        shapes = connection.shapes
        if shapes is None:
            shapes = connection.shapes = {}
        largest = connection.max_incoming_frame_octets
        while end - position >= 12:
            shape = shapes.get(data[position + 4 : position + 16])
            if shape is not None:
                after = self._take_run(shape, data, position, end)
                if after != position:
                    position = after
                    continue
            (size,) = _unpack_u32(data, position)
            if size > end - position or size < 12 or size > largest:
                break
            if not self._take(connection, data, position, position + size):
                break
            position += size
        return position

    def _take(self, connection: ConnectionState, data: bytes, at: int, end: int) -> bool:
        """Takes one frame, if it is of the kind that the lane is for."""
        if data[at + 4 : at + 6] != b"\x02\x00" or data[at + 8 : at + 10] != b"\x00\x53":
            return False
        session = connection.sessions.get(data[at + 6] << 8 | data[at + 7])
        if session is None or not session.is_open or session.rings is None:
            return False
        handler = _TAKERS.get(data[at + 10])
        if handler is None:
            return False
        is_taken = False
        # A field may run beyond what was received, or be of another type.
        with contextlib.suppress(IndexError, struct.error, KeyError):
            is_taken = self._take_body(handler, session, data, at, end)
        if not is_taken and data[at + 10] == 0x14 and session.rings.gathering:
            self._hand_over(session)
        return is_taken

    def _take_body(
        self, handler: "_Taker", session: SessionState, data: bytes, at: int, end: int
    ) -> bool:
        """Takes the performative of a frame, if it is of the kind that the lane is for."""
        begin = at + 11
        if data[begin] == 0xC0:
            list_end = begin + 2 + data[begin + 1]
            count = data[begin + 2]
            begin += 3
        elif data[begin] == 0xD0:
            list_end = begin + 5 + _unpack_u32(data, begin + 1)[0]
            (count,) = _unpack_u32(data, begin + 5)
            begin += 9
        else:
            return False
        return list_end <= end and handler(self, session, data, at, begin, count, list_end, end)

    @staticmethod
    def _hand_over(session: SessionState) -> None:
        """Gives deliveries of which more is to come to the engine: one of them is not the lane's.

        All of the session's, for the frame may name its link in a way that only the engine reads.
        """
        for link in tuple(session.rings.gathering):
            link.lane.hand_over(link)

    # --- transfers --------------------------------------------------------------------------------

    def _take_transfer(  # noqa: PLR0917  where things are in a frame, in their order
        self,
        session: SessionState,
        data: bytes,
        frame_at: int,
        at: int,
        count: int,
        list_end: int,
        end: int,
    ) -> bool:
        """Takes a transfer of a delivery that needs no look, or of a part of one (§2.7.5)."""
        if not 1 <= count <= 11:
            return False
        handle, at = read_uint(data, at)
        link = session.links.get(handle)
        if link is None:
            return False
        id_at = tag_at = tail_at = at
        delivery_id: int | None = None
        tag: bytes | None = None
        message_format: int | None = None
        settled = more = False
        if count > 1:
            delivery_id, at = read_uint_or_null(data, at)
        if count > 2:
            if data[at] == 0x40:
                at += 1
            elif data[at] == 0xA0 and data[at + 1] <= 32:
                tag_at = at + 2
                at = tail_at = tag_at + data[at + 1]
                tag = data[tag_at:at]
            else:
                return False
        if count > 3:
            message_format, at = read_uint_or_null(data, at)
        if count > 4:
            settled, at = read_flag(data, at)
        if count > 5:
            more, at = read_flag(data, at)
        # rcv-settle-mode, state, resume, aborted: absent, null or false
        for field in range(6, min(count, 10)):
            if data[at] != 0x40 and (data[at] != 0x42 or field < 8):
                return False
            at += 1
        if count == 11:
            at = read_flag(data, at)[1]
        if at != list_end or message_format:
            return False
        if link.gathered is not None:
            return self._take_part(link, delivery_id, tag, settled, more, data[at:end])
        lead = lead_of(data, at, end)
        if delivery_id is None or tag is None or message_format is None or not lead:
            return False
        if not self._may_take(link, delivery_id, end - at, settled):
            return False
        if more:
            link.lane.gather(link, delivery_id, tag, data[at:end], settled)
            return True
        if data[id_at] == 0x70:
            shape = Shape(
                link,
                data[frame_at + 4 : id_at + 1],
                data[id_at + 5 : tag_at],
                len(tag),
                data[tail_at:at],
                data[at : at + lead],
                settled,
            )
            shapes = session.connection.shapes
            assert shapes is not None
            if len(shapes) >= 4096:
                shapes.clear()
            shapes[data[frame_at + 4 : frame_at + 16]] = shape
        link.lane.forward(link, delivery_id, [tag], [data[at:end]], end - at, settled)
        return True

    @staticmethod
    def _take_part(  # noqa: PLR0917  as above
        link: LinkState,
        delivery_id: int | None,
        tag: bytes | None,
        settled: bool,
        more: bool,
        payload: bytes,
    ) -> bool:
        """Takes a later transfer of a delivery (§2.6.14)."""
        gathered: Gathered = link.gathered
        if (
            delivery_id not in {None, gathered.delivery_id}
            or tag not in {None, gathered.tag}
            or (settled and not gathered.settled)
            or not link.is_open
            or link.in_progress
            or link.session.incoming_window <= 0
            or gathered.octets + len(payload) > _largest(link)
        ):
            return False
        link.lane.gather_more(link, payload, more)
        return True

    @staticmethod
    def _may_take(link: LinkState, delivery_id: int, octets: int, settled: bool) -> bool:
        lane: Lane | None = link.lane
        session = link.session
        return (
            lane is not None
            and link.role is Role.RECEIVER
            and link.is_open
            and not link.in_progress
            and link.gathered is None
            and link.credit > 0
            and session.incoming_window > 0
            and session.next_incoming_delivery in {None, delivery_id}
            and octets <= _largest(link)
            and (lane.takes_settled if settled else lane.takes_unsettled)
            and (link.sender_settle_mode == 2 or settled is (link.sender_settle_mode == 1))
        )

    def _take_run(self, shape: Shape, data: bytes, at: int, end: int) -> int:
        """Takes transfers as long as they have the shape; returns where the first other begins."""
        link = shape.link
        session = link.session
        first = session.next_incoming_delivery
        if first is None or not session.is_open:
            return at
        most = min(link.credit, session.incoming_window, MASK + 1 - first)
        if most <= 0 or not self._may_take(link, first, 0, shape.settled):
            return at
        unpack, head, tag_head, body = shape.unpack, shape.head, shape.tag_head, shape.body
        payload_at = shape.payload_at
        largest = min(session.connection.max_incoming_frame_octets, _largest(link) + payload_at)
        least = payload_at + len(shape.lead)
        tags: list[bytes] = []
        payloads: list[bytes] = []
        block = FIRST_BLOCK
        one_size = 0
        while len(tags) < most and at + least <= end:
            size, a_head, an_id, a_tag_head, tag, a_body = unpack(data, at)
            if (
                an_id != first + len(tags)
                or a_head != head
                or a_tag_head != tag_head
                or a_body != body
                or not least <= size <= largest
                or at + size > end
            ):
                break
            one_size = size if one_size in {0, size} else -1
            after = at + size
            if data[at : at + 16] == data[after : after + 16]:
                block = min(block, most - len(tags), (end - at) // size)
                taken = shape.take_block(data, at, size, block, tags, payloads)
                at += taken * size
                block = min(block * 2, MOST_BLOCK) if taken == block else FIRST_BLOCK
            else:
                tags.append(tag)
                payloads.append(data[at + payload_at : after])
                at = after
        if tags:
            octets = one_size - payload_at if one_size > 0 else -1
            link.lane.forward(link, first, tags, payloads, octets, shape.settled)
        return at

    # --- dispositions -----------------------------------------------------------------------------

    def _take_disposition(  # noqa: PLR0917  as above
        self,
        session: SessionState,
        data: bytes,
        frame_at: int,
        at: int,
        count: int,
        list_end: int,
        end: int,
    ) -> bool:
        """Takes accepted, and a sender's settling, of deliveries of the lane (§2.7.6)."""
        rings: Rings = session.rings
        if not 2 <= count <= 6 or list_end != end:
            return False
        is_receiver = _BOOLEANS[data[at]]
        first, at = read_uint(data, at + 1)
        last = first
        settled = is_accepted = False
        if count > 2:
            if data[at] == 0x40:
                at += 1
            else:
                last, at = read_uint(data, at)
        if count > 3:
            settled, at = read_flag(data, at)
        if count > 4:
            if data[at] == 0x40:
                at += 1
            elif data[at : at + 4] == b"\x00\x53\x24\x45":
                is_accepted = True
                at += 4
            elif data[at : at + 6] == b"\x00\x53\x24\xc0\x01\x00":
                is_accepted = True
                at += 6
            else:
                return False
        if count > 5:
            at = read_flag(data, at)[1]
        span = (last - first) & MASK
        if at != list_end or span >= HALF:
            return False
        if is_receiver:
            if not is_accepted:
                return False
            return self._take_outcome(session, rings, first, last, settled)
        return settled and self._take_settling(session, rings, first, last)

    def _take_outcome(
        self, session: SessionState, rings: Rings, first: int, last: int, settled: bool
    ) -> bool:
        """Takes accepted from a receiver; false if there may be more in it than for the lane."""
        pieces = rings.outgoing.find(first, last)
        is_mixed = len(session.outgoing) > 0 and _count(pieces) <= (last - first) & MASK
        if is_mixed and any(run.states is not None for run, _, _ in pieces):
            return False
        for run, an_id, count in pieces:
            at = (an_id - run.first_out) & MASK
            if run.states is None:
                first_in = (run.first_in + at) & MASK
                if not run.is_settled:
                    self._say(run.link.session, TO_SENDER_SETTLED, first_in, count)
                    run.link.accepted += count
                if not settled:
                    self._say(session, TO_RECEIVER_SETTLED, an_id, count)
                rings.outgoing.clear(an_id, count)
                _settled(run.out, count)
                run.out.accepted += count
                run.link.lane.touch(run.link)
                self._drop(run, at, count)
            else:
                self._take_outcome_second(run, run.states, at, count, settled)
        return not is_mixed

    def _take_outcome_second(
        self, run: Run, run_states: bytearray, at: int, count: int, settled: bool
    ) -> None:
        for each in range(at, at + count):
            if run_states[each] == UNTOLD:
                run_states[each] = TOLD
                run.out.accepted += 1
                run.link.accepted += 1
                self._say(run.link.session, TO_SENDER_ACCEPTED, (run.first_in + each) & MASK, 1)
            if settled:
                run_states[each] = DONE
                run.out.session.rings.outgoing.clear((run.first_out + each) & MASK, 1)
                _settled(run.out, 1)

    def _take_settling(self, session: SessionState, rings: Rings, first: int, last: int) -> bool:
        """Takes a sender's word that it has settled what it was told the outcome of."""
        pieces = rings.incoming.find(first, last)
        if len(session.incoming) and _count(pieces) <= (last - first) & MASK:
            return False
        for run, an_id, count in pieces:
            at = (an_id - run.first_in) & MASK
            if run.states is None or run.states.find(UNTOLD, at, at + count) >= 0:
                return False
        for run, an_id, count in pieces:
            at = (an_id - run.first_in) & MASK
            assert run.states is not None
            for each in range(at, at + count):
                if run.states[each] == TOLD:
                    out_id = (run.first_out + each) & MASK
                    out_session = run.out.session
                    self._say(out_session, TO_RECEIVER_SETTLED, out_id, 1)
                    out_session.rings.outgoing.clear(out_id, 1)
                    _settled(run.out, 1)
            self._drop(run, at, count)
        return True

    def _drop(self, run: Run, at: int, count: int) -> None:
        """Forgets deliveries of a run on the side that they came from, and their payload."""
        link = run.link
        link.session.rings.incoming.clear((run.first_in + at) & MASK, count)
        if not run.is_settled:
            link.unsettled -= count
        self.keep(link, -run.forget(at, count))

    def keep(self, link: LinkState, octets: int) -> None:
        """Counts payload that is kept, or no more if negative."""
        self.kept_octets += octets
        link.session.connection.kept_octets += octets

    def _say(self, session: SessionState, kind: int, first: int, count: int) -> None:
        """Takes note of what is to be told at the end of the turn, neighbours joined."""
        rings: Rings = session.rings
        saying = rings.sayings[kind]
        last = (first + count - 1) & MASK
        if saying and (saying[-1] + 1) & MASK == first:
            saying[-1] = last
        else:
            saying += (first, last)
            if not rings.is_speaking:
                rings.is_speaking = True
                self._speaking.append(session)

    def flush(self) -> None:
        """Writes the dispositions of this turn."""
        speaking, self._speaking = self._speaking, []
        for session in speaking:
            rings: Rings = session.rings
            rings.is_speaking = False
            for (role, settled), saying in zip(_SAYINGS, rings.sayings, strict=True):
                for first, last in _joined(saying):
                    bound = None if first == last else last
                    body = encode_disposition(role, first, bound, settled, ACCEPTED)
                    self.write(session, body)
                saying.clear()

    # --- flows ------------------------------------------------------------------------------------

    def _take_flow(  # noqa: PLR0917  as above
        self,
        session: SessionState,
        data: bytes,
        frame_at: int,
        at: int,
        count: int,
        list_end: int,
        end: int,
    ) -> bool:
        """Takes a flow that only renews window or credit (§2.7.4)."""
        if not 4 <= count <= 11 or list_end != end or session.waiting or session.is_errant:
            return False
        fields: list[int | None] = []
        for _ in range(min(count, 8)):
            if data[at] == 0x40:
                fields.append(None)
                at += 1
            else:
                value, at = read_uint(data, at)
                fields.append(value)
        fields += [None] * (8 - len(fields))
        for field in range(8, count):  # drain, echo, properties: absent, null or false
            if data[at] != 0x40 and (data[at] != 0x42 or field == 10):
                return False
            at += 1
        received, window, sent, outgoing_window, handle, delivery_count, credit = fields[:7]
        if at != list_end or None in {received, window, outgoing_window}:
            return False
        assert received is not None
        assert window is not None
        assert outgoing_window is not None
        under_way = (session.next_outgoing_id - received) & MASK
        if under_way >= HALF or sent != session.next_incoming_id:
            return False
        link: LinkState | None = None
        if handle is not None:
            link = session.links.get(handle)
            if (
                link is None
                or link.lane is None
                or not link.is_open
                or link.in_progress
                or delivery_count is None
            ):
                return False
            behind = (link.delivery_count - delivery_count) & MASK
            if link.role is Role.SENDER:
                if not credit or behind >= HALF:  # 0: a receiver stops, which the core is to know
                    return False
                link.credit = link.granted = max(0, credit - behind)
            elif behind:
                return False
        session.remote_incoming_window = max(0, window - under_way)
        session.remote_outgoing_window = outgoing_window
        self.opened(session, link)
        return True

    # --- credit and windows -----------------------------------------------------------------------

    def _grant(self) -> None:
        """Gives credit and windows anew where half has been used, once a turn."""
        if self._starved and self.kept_octets < self.octet_budget:
            starved, self._starved = self._starved, []
            for lane in starved:
                lane.measure()
        touched, self.touched = self.touched, []
        for lane in touched:
            lane.is_touched = False
            self._grant_lane(lane)

    def _grant_lane(self, lane: "Lane") -> None:
        links = lane.incoming if lane.is_measured else lane.touched
        lane.is_measured = False
        can_send_near = any(link.credit for link in lane.outgoing if not link.is_far)
        can_send_far = any(link.credit for link in lane.outgoing if link.is_far)
        for link in links:
            width = min(lane.credit, lane.near_width if link.is_far else lane.width)
            can_send = can_send_near or (can_send_far and not link.is_far)
            link.is_touched = False
            if not link.is_open:
                continue
            session = link.session
            assert link.queue is not None
            if (
                self.kept_octets >= self.octet_budget
                or session.connection.kept_octets >= self.connection_budget
            ):
                if lane not in self._starved:
                    self._starved.append(lane)
                continue
            used = link.credit + len(link.queue)
            is_low = used * 2 < width
            if not is_low and session.output.octets:  # it costs no write of its own
                is_low = used * 4 <= width * 3
            if can_send and used < width and is_low:
                link.credit = width - len(link.queue)
                link.allowance = max(link.allowance, link.credit)
                self._write_flow(session, link)
            elif session.incoming_window * 2 <= session.window_frames and not session.is_held:
                self._write_flow(session, None)
        lane.touched = []

    def _write_flow(self, session: SessionState, link: LinkState | None) -> None:
        if not session.is_held:
            session.incoming_window = session.window_frames
        body = encode_flow(
            session.next_incoming_id,
            session.incoming_window,
            session.next_outgoing_id,
            session.outgoing_window,
            None if link is None else link.handle,
            None if link is None else link.delivery_count,
            None if link is None else link.credit,
        )
        self.write(session, body)

    # --- output -----------------------------------------------------------------------------------

    def write(self, session: SessionState, body: bytes) -> None:
        """Puts a frame without payload into a session's output."""
        if session.is_open:
            session.output.append(frame(session.channel, body))
            self.soil(session.connection)

    def soil(self, connection: ConnectionState) -> None:
        """Takes note that a connection has got output."""
        if not connection.is_dirty:
            connection.is_dirty = True
            self._dirty.append(connection)

    # --- giving up --------------------------------------------------------------------------------

    def give_up(self, pieces: list[Piece], outgoing: bool) -> list[LanePair]:
        """Makes pairs of deliveries, forgets them, and has the engines adopt them."""
        pairs: list[LanePair] = []
        for run, an_id, count in pieces:
            at = (an_id - (run.first_out if outgoing else run.first_in)) & MASK
            for each in range(at, at + count):
                pairs.append(pair_of(run, each))
                adopt(run, each)
                if run.states is None or run.states[each] != DONE:
                    run.out.session.rings.outgoing.clear((run.first_out + each) & MASK, 1)
                    _settled(run.out, 1)
            self._drop(run, at, count)
        return pairs


def _largest(link: LinkState) -> int:
    """Gives the largest payload that the lane takes from a link: its own limit, or the lane's."""
    limit: int = link.lane.limit_octets
    return min(limit, link.max_message_octets or limit)


def _settled(out: LinkState, count: int) -> None:
    """Counts deliveries that a receiver has done with."""
    out.unsettled -= count
    if out.entry is not None:
        out.lane.choice.changed(out)


def _count(pieces: list[Piece]) -> int:
    return sum(count for _, _, count in pieces)


def _joined(saying: list[int]) -> list[tuple[int, int]]:
    """Puts ranges, as first and last by turns, in serial order and joins neighbours."""
    ranges = list(zip(saying[::2], saying[1::2], strict=True))
    if len(ranges) < 2:
        return ranges
    base = (ranges[0][0] - HALF) & MASK
    ranges.sort(key=lambda each: (each[0] - base) & MASK)
    joined = [ranges[0]]
    for first, last in ranges[1:]:
        if first == (joined[-1][1] + 1) & MASK:
            joined[-1] = (joined[-1][0], last)
        else:
            joined.append((first, last))
    return joined


_Taker = Callable[[Express, SessionState, bytes, int, int, int, int, int], bool]
_TAKERS: Final[dict[int, _Taker]] = {
    0x13: Express._take_flow,
    0x14: Express._take_transfer,
    0x15: Express._take_disposition,
}
"""Performative code → what takes it."""
