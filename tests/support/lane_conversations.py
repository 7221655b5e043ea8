"""Random conversations with two workers: one with the express lane, one without.

``Conduct`` makes up what peers do. ``converse`` leads one conversation with both workers, and finds
no difference: frames of each connection decoded, deliveries in order, what dispositions say as sets
(the two may merge ranges differently), and in the end credit, counters and what is unsettled. Flows
are compared by what they lead to, for they may come sooner or later.
"""

import random
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Literal

import attrs

from router.core.lanes import REST_SECONDS
from router.model.outcome import ACCEPTED, MODIFIED_FAILED, REJECTED, RELEASED, DeliveryState
from router.model.serial import MASK
from router.model.terminus import Role
from router.routes.route import Guarantee, Route
from router.wire.v1_0.frames import frame
from tests.support.lane_reference import Heard, Worker
from tests.support.lane_world import HEADER_DURABLE, HEADER_TTL, data_section, disposition, transfer

WINDOW = 512
"""Of each session, both ways, unless a conversation is about small ones."""


Step = Callable[[Worker], object]


Kind = Literal["lines", "fans", "crowds"]
"""Who is there at an address. Lines: one sender and one receiver, and anything may happen. Fans:
several receivers; nothing is done after which the worker with the lane may break a tie between
them otherwise: what ends a lane, or leaves a session without window. Crowds: several senders,
besides, and always credit for all, for rotation may begin at another sender."""


@attrs.define(kw_only=True)
class Conduct:
    """What peers of a conversation do.

    Attributes:
        to_settle: by connection and channel, what its sender was told and has not settled.
        sessions: of each connection, how many.
        is_wide: no session is left without window.
        gives_back: what receivers say in the end of all that they have not settled.
    """

    kind: Kind
    choice: random.Random
    to_settle: dict[tuple[int, int], list[int]] = attrs.field(factory=dict)
    sessions: list[int] = attrs.field(factory=list)
    gives_back: DeliveryState | None = None
    receivers: list[tuple[int, int, int, str]] = attrs.field(factory=list)
    senders: list[tuple[int, int, int, str]] = attrs.field(factory=list)
    second: bool = False
    is_lossy: bool = False
    is_wide: bool = False
    restless: float = 0.0

    @property
    def has_choice(self) -> bool:
        """Whether there are several receivers at an address."""
        return self.kind != "lines"

    def route(self) -> Route:
        """How the addresses are routed."""
        self.is_lossy = is_lossy = self.choice.random() < 0.1
        return Route(
            address="#",
            guarantee=Guarantee.AT_MOST_ONCE if is_lossy else Guarantee.AT_LEAST_ONCE,
        )

    def build(self) -> Iterator[Step]:
        """The steps that set both workers up."""
        choice = self.choice
        self.second = choice.random() < 0.3
        if self.kind == "lines":
            self.gives_back = choice.choice((None, RELEASED, MODIFIED_FAILED))
            self.is_wide = choice.random() < 0.3
        self.restless = 0.0 if self.has_choice else choice.choice((0, 0, 0.1))
        addresses = [f"address{number}" for number in range(choice.choice((1, 1, 2)))]
        far_share = choice.choice((0, 0, 0.4)) if self.has_choice else 0
        for role in (Role.RECEIVER, Role.SENDER):
            is_one = self.kind == "lines" or (self.kind == "fans" and role is Role.RECEIVER)
            for address in addresses:
                for _ in range(1 if is_one else choice.choice((2, 3, 5))):
                    yield from self._join(role, address, choice.random() < far_share)
        for connection, channel, handle, _ in self.receivers:
            yield self._grant(connection, channel, handle, 300)

    def _join(self, role: Role, address: str, is_far: bool) -> Iterator[Step]:
        """A link of a new connection, or of one that is there."""
        choice = self.choice
        connection = choice.randrange(len(self.sessions)) if self.sessions else 0
        channel = choice.randrange(self.sessions[connection]) if self.sessions else 0
        # Receivers that share a session may take turns there in another order.
        shares = (connection, channel) in [each[:2] for each in self.receivers]
        if self.sessions and choice.random() < 0.3 and not (role is Role.SENDER and shares):
            yield self._attach(connection, channel, role, address)
            return
        connection, sessions = len(self.sessions), choice.choice((1, 1, 2))
        self.sessions.append(sessions)
        yield lambda each: each.connect(sessions, is_far=is_far)
        yield self._attach(connection, choice.randrange(sessions), role, address)

    def _attach(self, connection: int, channel: int, role: Role, address: str) -> Step:
        ends = self.receivers if role is Role.SENDER else self.senders
        taken = [each[:2] for each in (*self.receivers, *self.senders)]
        ends.append((connection, channel, taken.count((connection, channel)), address))
        modes = (2, 0, 1)
        if self.has_choice:  # or the core, which counts for itself, chooses for some of them
            modes = (2, 2, 1) if self.is_lossy else (2, 2, 0)
        mode = 2 if role is Role.RECEIVER else self.choice.choice(modes)
        # What is sent settled is accepted before it waits for window in an engine.
        self.is_wide |= self.has_choice or self.is_lossy or mode == 1
        second = self.second
        return lambda each: each.attach(connection, channel, role, address, second, mode)

    def _grant(self, connection: int, channel: int, handle: int, credit: int) -> Step:
        return lambda each: each.flow(connection, channel, WINDOW, handle, credit)

    def next(self, workers: Sequence[Worker]) -> Step:
        """The next step."""
        kinds = ("transfers", "outcomes", "settle", "flow", "turn", "weigh", "demote", "wait")
        own = self.has_choice
        weights = (30, 20, 10, 12, 18, 4 * own, 3 * (not own), 3 * (not own))
        (kind,) = self.choice.choices(kinds, weights)
        step: Step = getattr(self, f"_{kind}")(workers)
        return step

    # --- senders ----------------------------------------------------------------------------------

    def _transfers(self, workers: Sequence[Worker]) -> Step:
        choice = self.choice
        connection, channel, handle, address = choice.choice(self.senders)
        sessions = [each.peers[connection].sessions[channel] for each in workers]
        handles = [each[2] for each in self.senders if each[:2] == (connection, channel)]
        room = {each: min(session.links[each].credit for session in sessions) for each in handles}
        window = min(session.incoming_window for session in sessions)
        an_id = sessions[0].next_incoming_delivery
        if an_id is None:
            an_id = choice.choice((0, 7, 250, MASK - 3))
        count = choice.choice((1, 1, 2, 5, 30, 120))
        if self.has_choice:
            count = min(count, *(self._room(each, address) for each in workers))
        size = choice.choice((0, 1, 50, 250, 400, 3000))
        tag_octets = choice.choice((4, 4, 8, 16, 17, 32))
        settled = self.is_lossy or choice.random() < 0.2
        octets = bytearray()
        for _ in range(count):
            if choice.random() < self.restless:
                handle = choice.choice(handles)
                size = choice.randrange(600)
            if room[handle] <= 0 or window <= 0:
                break
            has_parts = choice.random() < self.restless / 3
            most = choice.choice((1, 2, 30)) if has_parts else 1
            parts = self._delivery(
                handle, an_id, size, tag_octets, channel, settled, min(most, window)
            )
            octets += parts[0]
            room[handle] -= 1
            window -= parts[1]
            an_id = (an_id + 1) & MASK
        done = bytes(octets)
        cut = choice.randrange(len(done)) if done and choice.random() < 0.3 else 0

        def feed(worker: Worker) -> None:
            for part in (done[:cut], done[cut:]):
                if part:
                    worker.feed(connection, part)

        return feed

    def _room(self, worker: Worker, address: str) -> int:
        """How many deliveries every receiver can be sent."""
        rooms = []
        for connection, channel, handle, its_address in self.receivers:
            if its_address == address:
                session = worker.peers[connection].sessions[channel]
                rooms.append(session.remote_incoming_window)
                if self.kind == "crowds":
                    rooms.append(session.links[handle].credit)
        return int(min(rooms))

    def _delivery(  # noqa: PLR0917
        self,
        handle: int,
        an_id: int,
        size: int,
        tag_octets: int,
        channel: int,
        settled: bool,
        parts: int,
    ) -> tuple[bytes, int]:
        """A delivery, and how many frames it takes."""
        choice = self.choice
        payload = data_section(size)
        if size % 3 == 1:
            payload = HEADER_DURABLE + payload
        elif choice.random() < self.restless / 5:  # it may expire
            payload = HEADER_TTL + payload
        tag = struct.pack(">I", an_id).rjust(tag_octets, b"x")
        if parts > 1:
            pieces = [payload * min(30, 60_000 // len(payload)), *[b"y" * 2000] * (parts - 1)]
            octets = bytearray()
            for index, piece in enumerate(pieces):
                more = index < len(pieces) - 1
                octets += transfer(
                    handle, an_id, piece, tag=tag, settled=settled, more=more, channel=channel
                )
            return bytes(octets), parts
        if choice.random() > self.restless:
            body = transfer(handle, an_id, payload, tag=tag, settled=settled, channel=channel)
            return body, 1
        fields = b"".join(  # another legal encoding
            (
                b"\x70" + struct.pack(">I", handle),
                b"\x70" + struct.pack(">I", an_id),
                b"\xa0%c%b" % (len(tag), tag),
                choice.choice((b"\x43", b"\x52\x00", b"\x70\x00\x00\x00\x00")),
                b"\x41" if settled else choice.choice((b"\x42", b"\x40", b"\x56\x00")),
                choice.choice((b"\x42", b"\x40")),
            )
        )
        count = 6
        if choice.random() < 0.5:
            fields += choice.choice((b"\x40\x40\x42\x42\x41", b"\x40\x40\x40\x40\x40"))
            count = 11
        if choice.random() < 0.5:
            body = b"\x00\x53\x14\xd0" + struct.pack(">II", len(fields) + 4, count) + fields
        else:
            body = b"\x00\x53\x14\xc0%c%c%b" % (len(fields) + 1, count, fields)
        return frame(channel, body, payload), 1

    def _settle_early(self, workers: Sequence[Worker]) -> Step:
        """Settles what a sender has sent, whether it was told an outcome or not (§2.6.12).

        With an outcome, what waits at its node is withdrawn, and what waits for window in an engine
        goes out settled: both end it.
        """
        choice = self.choice
        connection, channel, _, _ = choice.choice(self.senders)
        session = workers[0].peers[connection].sessions[channel]
        first, last = self._range(session.next_incoming_delivery or 0)
        state = choice.choice((ACCEPTED, None)) if self.is_wide else None
        octets = disposition(Role.SENDER, first, last, True, state, channel)
        return lambda each: each.feed(connection, octets)

    def _settle(self, workers: Sequence[Worker]) -> Step:
        """Settles some, or all, of what senders were told (§2.6.12: mode second)."""
        choice = self.choice
        if self.kind == "lines" and choice.random() < 0.3:
            return self._settle_early(workers)
        waiting = [each for each, ids in self.to_settle.items() if ids]
        if not waiting:
            return Worker.end_turn
        connection, channel = choice.choice(waiting)
        ids = self.to_settle[connection, channel]
        cut = choice.choice((len(ids), choice.randint(1, len(ids))))
        settled, self.to_settle[connection, channel] = ids[:cut], ids[cut:]
        state = choice.choice((ACCEPTED, None))
        octets = b"".join(
            disposition(Role.SENDER, each, None, True, state, channel) for each in settled
        )
        return lambda each: each.feed(connection, octets)

    def hear(self, heard: Sequence[Heard]) -> None:
        """Takes note of what peers have heard."""
        for connection, each in enumerate(heard):
            for channel, role, an_id, settled, state in sorted(each.said, key=lambda one: one[2]):
                if role is Role.RECEIVER and not settled and state is not None:
                    self.to_settle.setdefault((connection, channel), []).append(an_id)

    # --- receivers --------------------------------------------------------------------------------

    def _range(self, after: int) -> tuple[int, int | None]:
        """A range of ids that lie, mostly, before ``after``."""
        choice = self.choice
        if choice.random() < 0.3:
            return (after - 400) & MASK, (after - 1) & MASK
        back = choice.choice((1, 3, 10, 40, 200))
        first = (after - 1 - choice.randrange(back)) & MASK
        if choice.random() < 0.3:
            return first, None
        return first, (first + choice.randrange(choice.choice((2, back + 1)))) & MASK

    def _outcomes(self, workers: Sequence[Worker]) -> Step:
        choice = self.choice
        connection, channel, _, _ = choice.choice(self.receivers)
        session = workers[0].peers[connection].sessions[channel]
        share = 0.0 if self.has_choice else 0.05
        octets = b""
        settled = choice.random() < 0.7  # for all: who settles meanwhile may be told so or not
        for _ in range(choice.choice((1, 1, 3))):
            first, last = self._range(session.next_outgoing_delivery)
            state = REJECTED if choice.random() < share else ACCEPTED
            octets += disposition(Role.RECEIVER, first, last, settled, state, channel)
        return lambda each: each.feed(connection, octets)

    def _flow(self, workers: Sequence[Worker]) -> Step:
        choice = self.choice
        connection, channel, handle, _ = choice.choice(self.receivers)
        window = WINDOW if self.is_wide else choice.choice((5, 100, WINDOW, WINDOW))
        which = handle if choice.random() < 0.9 else None
        echo = choice.random() < 0.05
        credit: int | None = choice.choice((1, 10, 100, 300, 300))
        if not self.has_choice and choice.random() < 0.1:
            credit = choice.choice((0, None))  # or what is left
        return lambda each: each.flow(connection, channel, window, which, credit, echo)

    # --- workers ----------------------------------------------------------------------------------

    def _turn(self, _: Sequence[Worker]) -> Step:
        return Worker.end_turn

    def _demote(self, _: Sequence[Worker]) -> Step:
        return Worker.demote

    def _wait(self, _: Sequence[Worker]) -> Step:
        return lambda each: each.wait(REST_SECONDS)

    def _weigh(self, _: Sequence[Worker]) -> Step:
        choice = self.choice
        place, elsewhere = choice.randrange(20), choice.randrange(30)
        receivers = choice.choice((1, 1, 2, 5))
        return lambda each: each.weigh(place, elsewhere, receivers)

    # --- the end ----------------------------------------------------------------------------------

    def finish(self, worker: Worker) -> None:
        """Lets everything be accepted and settled, and gives all the credit that there can be."""
        for connection, channel, _, _ in self.receivers if self.gives_back else ():
            session = worker.peers[connection].sessions[channel]
            after = session.next_outgoing_delivery
            octets = disposition(
                *(Role.RECEIVER, (after - 2000) & MASK, (after - 1) & MASK),
                *(True, self.gives_back, channel),
            )
            worker.feed(connection, octets)
            worker.end_turn()
        for _ in range(5):
            for connection, channel, handle, _ in self.receivers * 5:  # until nothing waits
                self._grant(connection, channel, handle, 300)(worker)
                worker.end_turn()
                self._say_all(worker, Role.RECEIVER, connection, channel)
            for connection, channel, _, _ in self.senders:
                self._say_all(worker, Role.SENDER, connection, channel)
            if worker.is_at_rest():
                break
        # Credit is renewed when half of it is used: begun anew it is the same, at whatever time.
        for credit in (300, 0):
            for connection, channel, handle, _ in self.receivers:
                self._grant(connection, channel, handle, credit)(worker)
            worker.end_turn()
        firsts = {address: (one, two, three) for one, two, three, address in self.receivers}
        for connection, channel, handle in firsts.values():
            self._grant(connection, channel, handle, 300)(worker)
        worker.end_turn()

    @staticmethod
    def _say_all(worker: Worker, role: Role, connection: int, channel: int) -> None:
        """Accepts and settles all that there is in a session."""
        session = worker.peers[connection].sessions[channel]
        after = session.next_outgoing_delivery
        if role is Role.SENDER:
            after = session.next_incoming_delivery or 0
        first, last = (after - 2000) & MASK, (after - 1) & MASK
        worker.feed(connection, disposition(role, first, last, True, ACCEPTED, channel))
        worker.end_turn()


def converse(seed: int, steps: int, kind: Kind) -> int:
    """Leads one conversation with both workers; returns how many deliveries the lane carried."""
    choice = random.Random(seed)
    conduct = Conduct(choice=choice, kind=kind)
    route = conduct.route()
    first_id = choice.choice((0, 0, 250, MASK - 20))
    window = choice.choice((20, 100, WINDOW)) if kind == "lines" else WINDOW
    workers = [Worker(mode, route, first_id, window) for mode in ("cython", "off")]
    for step in conduct.build():
        for worker in workers:
            step(worker)
            worker.end_turn()
    _compare(workers, f"seed {seed}, at the beginning")
    for count in range(steps):
        step = conduct.next(workers)
        for worker in workers:
            step(worker)
        for worker in workers:
            worker.end_turn()
        conduct.hear(_compare(workers, f"seed {seed}, step {count}"))
    ahead = [[peer.engine.waiting_octets for peer in worker.peers] for worker in workers]
    for worker in workers:
        conduct.finish(worker)
    when = f"seed {seed}, at the end"
    if conduct.gives_back is None:
        _compare(workers, when)
    else:
        _compare_given_back(
            workers, when, [one == other for one, other in zip(*ahead, strict=True)]
        )
    assert all(worker.is_at_rest() for worker in workers), f"seed {seed}"
    assert workers[0].counters() == workers[1].counters(), f"seed {seed}"
    return workers[0].carried()


def _compare(workers: Sequence[Worker], when: str) -> list[Heard]:
    """Finds no difference in what peers have heard; returns it."""
    with_lane, general = (worker.hear() for worker in workers)
    for peer, (one, other) in enumerate(zip(with_lane, general, strict=True)):
        assert one.deliveries == other.deliveries, f"{when}: peer {peer}"
        assert one.said == other.said, f"{when}: peer {peer}"
        assert one.others == other.others, f"{when}: peer {peer}"
    assert workers[0].ids() == workers[1].ids(), when
    return with_lane


def _compare_given_back(workers: Sequence[Worker], when: str, in_order: Sequence[bool]) -> None:
    """Finds no difference in what peers have heard who gave deliveries back.

    Links take turns otherwise, so ids are others. What waits for the session's window waits in the
    engine without the lane, and cannot be overtaken there by what is given back; on the lane it
    waits in its queue, and what is given back stands before it. So the order on each link is
    compared where as much waited with both (``in_order``, by peer).
    """
    with_lane, general = (worker.hear() for worker in workers)
    for peer, (one, other) in enumerate(zip(with_lane, general, strict=True)):
        assert one.others == other.others, f"{when}: peer {peer}"
        assert _outcomes(one) == _outcomes(other), f"{when}: peer {peer}"
        came, should = _payloads(one), _payloads(other)
        if not in_order[peer]:
            came, should = ({at: sorted(each) for at, each in by.items()} for by in (came, should))
        assert came == should, f"{when}: peer {peer}"


def _outcomes(heard: Heard) -> set[object]:
    """What a sender was told of its deliveries."""
    return {each for each in heard.said if each[1] is Role.RECEIVER}


def _payloads(heard: Heard) -> dict[tuple[int, int], list[bytes]]:
    """What came on each link, in its order."""
    found: dict[tuple[int, int], list[bytes]] = {}
    for deliveries in heard.deliveries.values():
        for each in deliveries:
            found.setdefault((each.channel, each.handle), []).append(each.payload)
    return found
