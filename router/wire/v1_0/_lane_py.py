"""Lanes of the express lane's pure twin: who gets what, and what waits (see ``express``)."""

from collections import deque
from collections.abc import Sequence
from itertools import islice, repeat
from typing import TYPE_CHECKING, Any, Final

from router.errors import MisuseError
from router.model.delivery import ReceivedDelivery
from router.model.identity import DeliveryNumber, DeliveryTag, LinkId
from router.model.lane import LanePair, LaneStatistics, Remains
from router.model.outcome import ACCEPTED
from router.model.serial import MASK
from router.model.terminus import Role
from router.wire.v1_0._choice_py import Choice
from router.wire.v1_0._rings_py import DONE, UNTOLD, Ring, Rings, Run
from router.wire.v1_0._shapes_py import TRANSFER_OCTETS, Template, overhead_of
from router.wire.v1_0.frames import frame
from router.wire.v1_0.head import fill
from router.wire.v1_0.performatives import encode_transfer
from router.wire.v1_0.state import LinkState, SessionState

if TYPE_CHECKING:
    from router.wire.v1_0._express_py import Express

LEAST_SHARE: Final = 128
"""Deliveries of one sender that are sent on before the next one's turn, at least: the rule of
``routes.distribution.share``."""

MOST_FRAMES: Final = 32
"""Transfers that one delivery is sent in at most; a receiver's window takes them all at once, so
that no delivery is ever half sent."""

LANE_NUMBERS: Final = 0x8000_0000
"""Delivery numbers of the lane on an outgoing link begin here; those of the core lie below."""


class Gathered:
    """A delivery of which more is to come: all parts are kept until it is whole.

    Attributes:
        octets: of the parts.
    """

    __slots__ = ("delivery_id", "octets", "parts", "settled", "tag")

    def __init__(self, delivery_id: int, tag: bytes, settled: bool) -> None:
        self.delivery_id = delivery_id
        self.tag = tag
        self.settled = settled
        self.parts: list[bytes] = []
        self.octets = 0


class Lane:
    """One node's forwarding: any of its incoming links to any of its outgoing links.

    Attributes:
        credit: the most that an incoming link is granted.
        incoming, outgoing: its links, in the order of their coming.
        waiting: incoming links with something queued; the first is served next.
        width: what the receivers' last flows gave, together.
        near_width: the same without far links.
        is_crossed: far links are on both sides.
        only_settled: what is not settled beforehand is left to the core.
        limit_octets: the largest payload that every receiver can be sent.
        takes_settled, takes_unsettled: what every receiver can be sent (§2.8.2); what came settled
            goes out settled only to those that want that, or if the lane is ``only_settled``.
        touched: incoming links whose credit is to be looked after.
        is_touched: it waits in ``Express`` for that, at the end of the turn.
        is_measured: the width may have changed: the credit of all is to be looked after.
        turn: counts choices (``routes.distribution``).
        choice: who of the outgoing links is next.
        templates: how transfers look on an outgoing link, settled or not.
    """

    __slots__ = (
        "_express",
        "choice",
        "credit",
        "incoming",
        "is_crossed",
        "is_measured",
        "is_touched",
        "limit_octets",
        "near_width",
        "only_settled",
        "outgoing",
        "takes_settled",
        "takes_unsettled",
        "templates",
        "touched",
        "turn",
        "waiting",
        "width",
    )

    def __init__(self, express: "Express", credit: int, only_settled: bool) -> None:
        self._express = express
        self.credit = credit
        self.only_settled = only_settled
        self.incoming: list[LinkState] = []
        self.choice = Choice(self)
        self.outgoing = self.choice.links
        self.waiting: deque[LinkState] = deque()
        self.width = self.near_width = 0
        self.is_crossed = False
        self.limit_octets = -1
        self.takes_settled = self.takes_unsettled = False
        self.touched: list[LinkState] = []
        self.is_measured = self.is_touched = False
        self.turn = 0
        self.templates: dict[tuple[LinkId, bool], Template] = {}

    # --- links come and go ------------------------------------------------------------------------

    def add_incoming(self, link: LinkId, is_far: bool = False) -> None:
        """Lets a link that receives take part.

        Raises:
            MisuseError: if it is unknown, on a lane already, or not one that receives.
        """
        state = self._join(link, Role.RECEIVER)
        state.queue = deque()
        state.is_far = is_far
        self.incoming.append(state)
        self._measure_far()
        self.touch(state)

    def add_outgoing(self, link: LinkId, is_far: bool = False) -> bool:
        """Lets a link that sends take part; false: it could not take what waits here.

        Raises:
            MisuseError: if it is unknown, on a lane already, or not one that sends.
        """
        state = self._express.find(link)
        session = state.session
        state.frame_octets = session.connection.max_frame_octets - TRANSFER_OCTETS
        fits = state.frame_octets
        if session.remote_incoming_window >= MOST_FRAMES:
            fits *= MOST_FRAMES
        state.limit_octets = min(fits, state.max_message_octets or fits)
        if self.waiting and self._narrows(state):
            return False
        self._join(link, Role.SENDER)
        state.is_far = is_far
        self.choice.add(state)
        self.measure()
        self.pump()
        return True

    def weigh(self, link: LinkId, elsewhere: int, receivers: int) -> None:
        """Takes note of who stands behind a link that sends.

        Raises:
            MisuseError: if it does not send on this lane, or a number is out of range.
        """
        state = self._express.find(link)
        is_sender = state.role is Role.SENDER
        if state.lane is not self or not is_sender or elsewhere < 0 or receivers < 1:
            raise MisuseError(f"link {link} cannot be weighed on this lane")
        state.elsewhere, state.receivers = elsewhere, receivers
        self.choice.changed(state)

    def _join(self, link: LinkId, role: Role) -> LinkState:
        state = self._express.find(link)
        if state.lane is not None or state.role is not role:
            raise MisuseError(f"link {link} cannot join a lane as {role.value}")
        state.lane = self
        state.session.connection.lanes += 1
        if state.session.rings is None:
            state.session.rings = Rings()
        return state

    def _narrows(self, state: LinkState) -> bool:
        mode = state.sender_settle_mode
        return bool(self.outgoing) and (
            state.limit_octets < self.limit_octets
            or (self.only_settled and self.takes_settled and mode == 0)
            or (self.takes_unsettled and mode == 1)
        )

    def _leave(self, state: LinkState) -> None:
        state.lane = None
        state.session.connection.lanes -= 1
        state.session.connection.shapes = None
        self.templates.clear()
        if not state.is_open:
            self._express.forget(state)

    def measure(self) -> None:
        """Takes note that outgoing links, or what they grant, may have changed."""
        outgoing = self.outgoing
        for link in outgoing:
            link.counted = link.granted
        self.width = sum(link.granted for link in outgoing)
        self.near_width = sum(link.granted for link in outgoing if not link.is_far)
        self._measure_far()
        self.limit_octets = min((link.limit_octets for link in outgoing), default=-1)
        self.takes_settled = not self.only_settled or all(
            link.sender_settle_mode != 0 for link in outgoing
        )
        self.takes_unsettled = not self.only_settled and all(
            link.sender_settle_mode != 1 for link in outgoing
        )
        self._look_after_all()

    def _look_after_all(self) -> None:
        """Sees to it that the credit of all is looked after when the turn ends."""
        self.is_measured = True
        if not self.is_touched:
            self.is_touched = True
            self._express.touched.append(self)

    def granted(self, link: LinkState) -> None:
        """Takes note that an outgoing link's flow has come."""
        more = link.granted - link.counted
        link.counted = link.granted
        self.width += more
        if not link.is_far:
            self.near_width += more
        self.choice.opened(link)
        self._look_after_all()

    def _measure_far(self) -> None:
        """Takes note that links may have come or gone."""
        self.is_crossed = any(link.is_far for link in self.incoming) and any(
            link.is_far for link in self.outgoing
        )

    def remove_incoming(self, link: LinkId) -> Remains:
        """Lets a link go with all that came on it and is not settled."""
        state = self._express.find(link)
        if state.gathered is not None:
            self.hand_over(state)
        queued = {link: self._empty(state)}
        ring: Ring = state.session.rings.incoming
        pieces = [piece for piece in ring.everything() if piece[0].link is state]
        pairs = self._express.give_up(pieces, outgoing=False)
        self.incoming.remove(state)
        self._measure_far()
        if state in self.touched:
            self.touched.remove(state)
        state.is_touched = False
        self._leave(state)
        return Remains(queued, pairs, {link: state.credit}, {})

    def remove_outgoing(self, link: LinkId) -> Remains:
        """Lets a link go with all that went to it and that it has not settled."""
        state = self._express.find(link)
        ring: Ring = state.session.rings.outgoing
        pieces = [piece for piece in ring.everything() if piece[0].out is state]
        pairs = self._express.give_up(pieces, outgoing=True)
        self.choice.remove(state)
        self._leave(state)
        self.measure()
        return Remains({}, pairs, {link: state.credit}, {link: state.granted})

    def close(self) -> Remains:
        """Lets all links go."""
        parts = [self.remove_incoming(state.link) for state in tuple(self.incoming)]
        parts += [self.remove_outgoing(state.link) for state in tuple(self.outgoing)]
        return Remains(
            {link: queued for part in parts for link, queued in part.queued.items()},
            [pair for part in parts for pair in part.pairs],
            {link: credit for part in parts for link, credit in part.credits.items()},
            {link: granted for part in parts for link, granted in part.granted.items()},
        )

    def _empty(self, state: LinkState) -> list[ReceivedDelivery]:
        """Takes what waits out of a link's queue."""
        assert state.queue is not None
        queued: list[ReceivedDelivery] = []
        for an_id, tag, payload, settled in state.queue:
            self._express.keep(state, -len(payload))
            second = state.settles_second and not settled
            queued.append(received(an_id, tag, payload, settled, second))
            if not settled and is_heard(state.session):
                state.session.owner.adopt_incoming(state, an_id, tag, second)
        state.queue = None
        if state in self.waiting:
            self.waiting.remove(state)
        return queued

    def queued(self, link: LinkId) -> int:
        """Tells how many deliveries of a link wait for credit."""
        return len(self._express.find(link).queue or ())

    def statistics(self, link: LinkId) -> LaneStatistics:
        """Tells what a link has done."""
        state = self._express.find(link)
        return LaneStatistics(
            deliveries=state.carried,
            octets=state.carried_octets,
            settled=state.settled,
            accepted=state.accepted,
            unsettled=state.unsettled,
            queued=len(state.queue or ()),
            credit=state.credit,
            granted=state.granted,
        )

    # --- deliveries -------------------------------------------------------------------------------

    def forward(  # noqa: PLR0917  once a run; keywords cost
        self,
        link: LinkState,
        first: int,
        tags: list[bytes],
        payloads: list[bytes],
        octets: int,
        settled: bool,
    ) -> None:
        """Takes a run in and sends on what can be; ``octets`` as in ``Run``."""
        count = len(tags)
        total = octets * count if octets >= 0 else sum(map(len, payloads))
        self._count_in(link, first, count)
        _count_frames(link.session, count)
        link.carried += count
        link.carried_octets += total
        self.touch(link)
        queue = link.queue
        assert queue is not None
        done = 0
        if not self.waiting or (self.is_crossed and not queue):
            done = self._send(link, first, tags, payloads, octets, settled)
        if done < count:
            if not queue:
                self.waiting.append(link)
            ids = map((MASK).__and__, range(first + done, first + count))
            queue.extend(zip(ids, tags[done:], payloads[done:], repeat(settled), strict=False))
        if settled:
            link.settled += count
        self._express.keep(link, total)

    @staticmethod
    def _count_in(link: LinkState, first: int, count: int) -> None:
        """Counts deliveries that have come, or begun to."""
        link.session.next_incoming_delivery = (first + count) & MASK
        link.delivery_count = (link.delivery_count + count) & MASK
        link.credit -= count
        link.allowance -= count

    def gather(
        self, link: LinkState, delivery_id: int, tag: bytes, payload: bytes, settled: bool
    ) -> None:
        """Begins to gather a delivery that comes in parts."""
        link.gathered = Gathered(delivery_id, tag, settled)
        link.session.rings.gathering.append(link)
        self._count_in(link, delivery_id, 1)
        self.gather_more(link, payload, more=True)

    def gather_more(self, link: LinkState, payload: bytes, more: bool) -> None:
        """Adds a part; the last one completes the delivery."""
        gathered: Gathered = link.gathered
        gathered.parts.append(payload)
        gathered.octets += len(payload)
        _count_frames(link.session, 1)
        self._express.keep(link, len(payload))
        self.touch(link)
        if more:
            return
        link.gathered = None
        link.session.rings.gathering.remove(link)
        link.carried += 1
        link.carried_octets += gathered.octets
        link.settled += gathered.settled
        queue = link.queue
        assert queue is not None
        if not queue:
            self.waiting.append(link)
        whole = b"".join(gathered.parts)
        queue.append((gathered.delivery_id, gathered.tag, whole, gathered.settled))
        self.pump()

    def hand_over(self, link: LinkState) -> None:
        """Gives a delivery of which more is to come to the engine."""
        gathered: Gathered = link.gathered
        link.gathered = None
        link.session.rings.gathering.remove(link)
        self._express.keep(link, -gathered.octets)
        if link.is_open and link.session.is_open:
            link.session.owner.adopt_partial(
                link,
                gathered.delivery_id,
                gathered.tag,
                gathered.settled,
                link.settles_second and not gathered.settled,
                b"".join(gathered.parts),
            )

    def put(self, link: LinkId, deliveries: Sequence[ReceivedDelivery]) -> None:
        """Takes deliveries over that came on an incoming link by the general path.

        Raises:
            MisuseError: the link is not one of this lane's, or a payload is beyond the limit.
        """
        state = self._express.find(link)
        queue = state.queue
        if state.lane is not self or queue is None:
            raise MisuseError(f"link {link} brings nothing to this lane")
        if any(len(delivery.payload) > self.limit_octets for delivery in deliveries):
            raise MisuseError(f"a payload is beyond {self.limit_octets} octets")
        if deliveries and not queue:
            self.waiting.append(state)
        unsettled: Any = state.session.incoming
        for delivery in deliveries:
            if not delivery.settled:
                unsettled.pop(delivery.number, None)
            queue.append((delivery.number, delivery.tag, delivery.payload, delivery.settled))
            octets = len(delivery.payload)
            state.carried += 1
            state.carried_octets += octets
            state.settled += delivery.settled
            self._express.keep(state, octets)
        self.touch(state)
        self.pump()

    def pump(self) -> None:
        """Sends on what waits, as far as there is credit: links in rotation, a share each."""
        waiting = self.waiting
        stuck = 0  # links in a row that could send nothing
        while stuck < len(waiting):
            link = waiting[0]
            room = self.choice.room_for(link)
            if not room and not self.is_crossed:
                return
            before = len(link.queue or ())
            if room:
                self._send_queued(link, max(LEAST_SHARE, room // len(waiting)))
                self.touch(link)
            after = len(link.queue or ())
            stuck = stuck + 1 if after == before else 0
            if after:
                waiting.rotate(-1)
            else:
                waiting.popleft()

    def _send_queued(self, link: LinkState, share: int) -> None:
        """Sends up to ``share`` deliveries of a queue, in runs."""
        queue = link.queue
        assert queue is not None
        while queue and share:
            first, tag, payload, settled = queue[0]
            tags, payloads = [tag], [payload]
            for an_id, tag, payload, is_settled in islice(queue, 1, share):
                if an_id != (first + len(tags)) & MASK or is_settled is not settled:
                    break
                tags.append(tag)
                payloads.append(payload)
            done = self._send(link, first, tags, payloads, -1, settled)
            if not done:
                return
            share -= done
            for _ in range(done):
                queue.popleft()

    def _send(  # noqa: PLR0917  as with ``forward``
        self,
        link: LinkState,
        first: int,
        tags: list[bytes],
        payloads: list[bytes],
        octets: int,
        settled: bool,
    ) -> int:
        """Sends deliveries on to whoever is to have them; returns how many."""
        count = len(tags)
        done = 0
        while done < count:
            size = octets if octets >= 0 else len(payloads[done])
            out = self.choice.choose(link, size)
            if out is None:
                break
            if size > out.frame_octets:
                an_id = (first + done) & MASK
                self._send_parts(link, out, an_id, tags[done], payloads[done], settled)
                done += 1
                continue
            if len(self.outgoing) == 1:
                step = self._room(out, payloads, octets, done)
            else:
                step = 1
            if step == count:
                self._send_run(link, out, first, tags, payloads, octets, settled)
            else:
                until = done + step
                self._send_run(
                    link,
                    out,
                    (first + done) & MASK,
                    tags[done:until],
                    payloads[done:until],
                    octets,
                    settled,
                )
            done += step
        return done

    @staticmethod
    def _room(out: LinkState, payloads: list[bytes], octets: int, done: int) -> int:
        """Tells how many of the deliveries a link can be sent at once."""
        session = out.session
        an_id = session.next_outgoing_delivery
        room = min(
            len(payloads) - done,
            out.credit,
            session.remote_incoming_window,
            LANE_NUMBERS - out.next_number,
            _same_size_ids(an_id),
        )
        output = session.output
        left = output.high_octets - output.octets
        if octets >= 0:
            if room * (octets + TRANSFER_OCTETS) <= left:
                return room
        else:
            sizes = list(map(len, payloads[done : done + room]))
            if max(sizes) > out.frame_octets:
                room = next(at for at, size in enumerate(sizes) if size > out.frame_octets)
            if sum(sizes) + room * TRANSFER_OCTETS <= left:
                return room
        overhead = overhead_of(out.handle, an_id)
        for count in range(room):
            if left < 0:
                return count
            left -= overhead + len(payloads[done + count])
        return room

    def _send_run(  # noqa: PLR0917  as with ``forward``
        self,
        link: LinkState,
        out: LinkState,
        first: int,
        tags: list[bytes],
        payloads: list[bytes],
        octets: int,
        settled: bool,
    ) -> None:
        """Writes transfers, all to one link that has room for them."""
        count = len(tags)
        session = out.session
        first_out = session.next_outgoing_delivery
        number = LANE_NUMBERS + out.next_number
        total = octets * count if octets >= 0 else sum(map(len, payloads))
        is_over = settled and self._settles(out)
        template = self.templates.get((out.link, is_over))
        if template is None:
            template = self.templates[out.link, is_over] = Template(out, is_over)
        if count == 1:
            chunk = template.one(total, first_out, number) + payloads[0]
        else:
            pieces: list[bytes] = [b""] * (2 * count)
            pieces[::2] = template.many(payloads, octets, first_out, number)
            pieces[1::2] = payloads
            chunk = b"".join(pieces)
        session.output.append(chunk)
        self._sent(link, out, first, tags, payloads, octets, settled)
        session.next_outgoing_id = (session.next_outgoing_id + count) & MASK
        session.remote_incoming_window -= count
        out.carried_octets += total

    def _send_parts(  # noqa: PLR0917  as with ``forward``
        self,
        link: LinkState,
        out: LinkState,
        delivery_id: int,
        tag: bytes,
        payload: bytes,
        settled: bool,
    ) -> None:
        """Writes a delivery that takes several transfers, to a link whose window takes them all."""
        session = out.session
        number = LANE_NUMBERS + out.next_number
        own_tag = number.to_bytes(4, "big")
        is_over = settled and self._settles(out)
        step = out.frame_octets
        chunks: list[bytes] = []
        for at in range(0, len(payload), step):
            more = at + step < len(payload)
            if at:
                body = encode_transfer(out.handle, more=more)
            else:
                an_id = session.next_outgoing_delivery
                body = encode_transfer(out.handle, an_id, own_tag, 0, is_over, more)
            chunks.append(frame(session.channel, body, payload[at : at + step]))
        session.output.append(b"".join(chunks))
        self._sent(link, out, delivery_id, [tag], [payload], len(payload), settled)
        session.next_outgoing_id = (session.next_outgoing_id + len(chunks)) & MASK
        session.remote_incoming_window -= len(chunks)
        out.carried_octets += len(payload)

    def _sent(  # noqa: PLR0917  as with ``forward``
        self,
        link: LinkState,
        out: LinkState,
        first: int,
        tags: list[bytes],
        payloads: list[bytes],
        octets: int,
        settled: bool,
    ) -> None:
        """Counts deliveries that have been written, and remembers those that are not settled."""
        count = len(tags)
        session = out.session
        first_out = session.next_outgoing_delivery
        number = LANE_NUMBERS + out.next_number
        session.next_outgoing_delivery = (first_out + count) & MASK
        out.next_number = (out.next_number + count) % LANE_NUMBERS
        out.credit -= count
        out.delivery_count = (out.delivery_count + count) & MASK
        out.carried += count
        self.turn += count
        out.last_used = self.turn
        if settled and self._settles(out):
            out.settled += count
            total = octets * count if octets >= 0 else sum(map(len, payloads))
            self._express.keep(link, -total)
        else:
            run = Run(link, out, first, first_out, number, tags, payloads, octets, settled)
            link.session.rings.incoming.put(first, run)
            session.rings.outgoing.put(first_out, run)
            if not settled:
                link.unsettled += count
            out.unsettled += count
        self.choice.changed(out)
        if not session.connection.is_dirty:
            self._express.soil(session.connection)

    def _settles(self, out: LinkState) -> bool:
        """Tells whether what came settled goes out settled on a link."""
        return self.only_settled or out.sender_settle_mode == 1

    def touch(self, link: LinkState) -> None:
        """Takes note that a link's credit is to be looked after when the turn ends."""
        if not link.is_touched:
            link.is_touched = True
            self.touched.append(link)
            if not self.is_touched:
                self.is_touched = True
                self._express.touched.append(self)

    def relieve(self) -> None:
        """Takes note that a connection is no longer congested."""
        self.choice.readmit()
        self._express.relieved.append(self)

    def came(self, link: LinkState) -> None:
        """Takes note that something came on an incoming link by the general path.

        Raises:
            MisuseError: the link is not one of this lane's.
        """
        if link.lane is not self or link.role is not Role.RECEIVER:
            raise MisuseError(f"link {link.link} brings nothing to this lane")
        self.touch(link)


def _same_size_ids(an_id: int) -> int:
    """Tells how many ids, from one on, take as many octets as it does (§1.6.5)."""
    if an_id == 0:
        return 1
    return 256 - an_id if an_id < 256 else MASK + 1 - an_id


def _count_frames(session: SessionState, count: int) -> None:
    """Counts transfer frames that have come (§2.5.6)."""
    session.next_incoming_id = (session.next_incoming_id + count) & MASK
    session.incoming_window -= count
    session.remote_outgoing_window = max(0, session.remote_outgoing_window - count)


def received(
    an_id: int, tag: bytes, payload: bytes, settled: bool, settles_second: bool
) -> ReceivedDelivery:
    delivery = ReceivedDelivery(
        DeliveryNumber(an_id),
        DeliveryTag(tag),
        payload,
        settled=settled,
        settles_second=settles_second,
    )
    fill(delivery, is_anonymous=False, reads_annotations=False)
    return delivery


def pair_of(run: Run, at: int) -> LanePair:
    is_second = run.states is not None
    state = run.states[at] if run.states is not None else UNTOLD
    an_id = (run.first_in + at) & MASK
    return LanePair(
        run.link.link,
        received(an_id, run.tags[at], run.payloads[at] or b"", run.is_settled, is_second),
        run.out.link,
        DeliveryNumber(run.first_number + at),
        ACCEPTED if state != UNTOLD else None,
        state == DONE,
    )


def is_heard(session: SessionState) -> bool:
    """Tells whether deliveries of its links can be spoken of, attached or not (§2.7.6)."""
    return session.is_open and session.connection.is_open


def adopt(run: Run, at: int) -> None:
    """Has the engines of both sides enter a delivery as one of theirs."""
    link, out = run.link, run.out
    an_id = (run.first_in + at) & MASK
    if not run.is_settled and is_heard(link.session):
        is_second = run.states is not None
        link.session.owner.adopt_incoming(link, an_id, run.tags[at], is_second)
    if is_heard(out.session) and (run.states is None or run.states[at] != DONE):
        out_id = (run.first_out + at) & MASK
        number = run.first_number + at
        out.session.owner.adopt_outgoing(out, out_id, number, number.to_bytes(4, "big"))
