"""Containers that resume their links as the specification asks, frame by frame (§2.6.13, §3.4.6).

What they remember of a link outlives their connections. Both tell as much of their unsettled map as
a frame of the router takes, or as they are told to, and attach again until both maps are complete.
"""

import time
from typing import Any, Final

import attrs

from router.model.outcome import ACCEPTED, DeliveryState, is_outcome
from router.model.terminus import Role
from router.wire.v1_0.performatives import Attach, Detach, Disposition, Flow, Transfer
from tests.support.frame_line import SECONDS, FrameLine, Unsettled

ROUNDS: Final = 2000
"""More attachments than any of the tests needs."""


@attrs.define(eq=False, kw_only=True)
class Resuming:
    """One end of a link, over its attachments.

    Attributes:
        line: the connection that it is attached on.
        unsettled: what it has not settled.
        entries: that a map of its own may have; 0: all.
        rounds: how often it has attached.
        maps: the router's, in order.
    """

    name: str
    address: str
    line: FrameLine
    unsettled: Unsettled = attrs.field(factory=dict)
    entries: int = 0
    rounds: int = 0
    maps: list[Unsettled] = attrs.field(factory=list)

    def own_map(self) -> tuple[Unsettled, bool]:
        """Gives the next map, and whether it is incomplete; the one after begins behind it."""
        if not self.entries or len(self.unsettled) <= self.entries:
            return dict(self.unsettled), False
        told = list(self.unsettled)[: self.entries]
        for tag in told:
            self.unsettled[tag] = self.unsettled.pop(tag)
        return {tag: self.unsettled[tag] for tag in told}, True

    def attach(self, told: Unsettled, *, is_incomplete: bool) -> Attach:
        raise NotImplementedError

    def resume(self) -> None:
        """Attaches, and goes on until both maps are complete; then everything is resumed."""
        for _ in range(ROUNDS):
            told, is_incomplete = self.own_map()
            answer = self.attach(told, is_incomplete=is_incomplete)
            self.rounds += 1
            self.maps.append(dict(answer.unsettled or {}))
            is_whole = not (is_incomplete or answer.incomplete_unsettled)
            self.go_through(dict(answer.unsettled or {}), is_whole=is_whole, answer=answer)
            if is_whole:
                return
            self.let_go()
        raise AssertionError(f"no end of it: {len(self.unsettled)} are left")

    def go_through(self, theirs: Unsettled, *, is_whole: bool, answer: Attach) -> None:
        raise NotImplementedError

    def let_go(self) -> None:
        """Detaches the link, or answers the router's detach."""
        if not any(isinstance(each.performative, Detach) for each in self.line.came):
            self.line.send(Detach(0))
            self.line.expect(Detach)
        else:
            detach = self.line.expect(Detach)
            assert detach.error is None
            assert not detach.closed
            self.line.send(Detach(0))
        self.line.take(Flow)


@attrs.define(eq=False, kw_only=True)
class ResumingSender(Resuming):
    """Sends, and settles what the receiver has an outcome of.

    Attributes:
        bodies: what was sent, by tag.
        anew: tags of what had to be sent again, because the router never had it.
        next_id: the next delivery-id on the session.
        count: the delivery-count.
        limit: the delivery-count at which the credit ends.
    """

    bodies: dict[bytes, bytes] = attrs.field(factory=dict)
    anew: list[bytes] = attrs.field(factory=list)
    next_id: int = 0
    count: int = 0
    limit: int = 0

    def attach(self, told: Unsettled, *, is_incomplete: bool) -> Attach:
        return self.line.attach_sender(
            self.name,
            self.address,
            told,
            incomplete_unsettled=is_incomplete,
            initial_delivery_count=self.count,
        )

    def transfer(self, tag: bytes, payload: bytes = b"", **fields: Any) -> int:
        """Sends a transfer; returns its id."""
        number = self.next_id
        self.next_id += 1
        self.count += 1
        self.line.transfer(number, tag, payload, **fields)
        return number

    def repeat_credit(self) -> None:
        """Waits for credit and repeats it: who does that has read the router's attach."""
        while self.limit <= self.count:
            self._note(self.line.expect(Flow, lambda flow: flow.handle is not None))
        left = self.limit - self.count
        self.line.send(
            Flow(
                next_incoming_id=0,
                incoming_window=1 << 30,
                next_outgoing_id=self.line.sent[0],
                outgoing_window=1 << 20,
                handle=0,
                delivery_count=self.count,
                link_credit=left,
            )
        )

    def _note(self, flow: Flow) -> None:
        self.limit = (flow.delivery_count or 0) + (flow.link_credit or 0)

    def go_through(self, theirs: Unsettled, *, is_whole: bool, answer: Attach) -> None:
        known = [tag for tag in theirs if tag in self.unsettled]
        pending: dict[int, bytes] = {}
        self.limit = 0
        if known:
            self._note(self.line.expect(Flow, lambda flow: (flow.link_credit or 0) >= len(known)))
        for tag in known:
            state = theirs[tag]
            if state is not None and is_outcome(state):
                self.transfer(tag, resume=True, state=state, settled=True)
                del self.unsettled[tag]
            else:
                pending[self.transfer(tag, self.bodies[tag], resume=True)] = tag
        if not answer.incomplete_unsettled:
            for tag in [tag for tag in self.unsettled if tag not in theirs]:
                del self.unsettled[tag]
                self.anew.append(tag)
        self._settle(pending)

    def _settle(self, pending: dict[int, bytes]) -> None:
        """Waits for outcomes of what was resumed, and settles it."""
        while pending:
            told = self.line.expect(Disposition)
            last = told.first if told.last is None else told.last
            for number in range(told.first, last + 1):
                tag = pending.pop(number, None)
                if tag is not None:
                    del self.unsettled[tag]
            if not told.settled:
                self.line.dispose(Role.SENDER, told.first, last, state=told.state, settled=True)


@attrs.define(eq=False, kw_only=True)
class ResumingReceiver(Resuming):
    """Accepts everything, and forgets it when the router has settled.

    Attributes:
        taken: payloads that were new.
        awaits: how many those are to be.
    """

    taken: list[bytes] = attrs.field(factory=list)
    awaits: int = 0
    credit: int = 100_000

    def attach(self, told: Unsettled, *, is_incomplete: bool) -> Attach:
        return self.line.attach_receiver(
            self.name,
            self.address,
            told,
            credit=self.credit,
            incomplete_unsettled=is_incomplete,
        )

    def go_through(self, theirs: Unsettled, *, is_whole: bool, answer: Attach) -> None:
        if not answer.incomplete_unsettled:
            for tag in [tag for tag in self.unsettled if tag not in theirs]:
                del self.unsettled[tag]
        numbers: dict[int, bytes] = {}
        until = time.monotonic() + SECONDS
        while time.monotonic() < until:
            self.line.answer_echoes(self.credit)
            for said, payload in self.line.take(Transfer, Disposition):
                match said:
                    case Transfer():
                        self._take(said, payload, numbers)
                    case Disposition(first=first, last=last):
                        for number in range(first, (first if last is None else last) + 1):
                            self.unsettled.pop(numbers.pop(number, b""), None)
            is_left = any(isinstance(each.performative, Detach) for each in self.line.came)
            has_all = is_whole and not self.unsettled and len(self.taken) >= self.awaits
            if is_left or has_all:
                return
            self.line.read(0.05)
        raise AssertionError(f"{len(self.unsettled)} are not settled")

    def _take(self, transfer: Transfer, payload: bytes, numbers: dict[int, bytes]) -> None:
        tag = transfer.delivery_tag
        assert tag is not None
        assert transfer.delivery_id is not None
        if transfer.resume and tag not in self.unsettled:
            return
        if transfer.settled:
            self.unsettled.pop(tag, None)
            return
        if not transfer.resume:
            self.taken.append(payload)
        state: DeliveryState = self.unsettled.get(tag) or ACCEPTED
        self.unsettled[tag] = state
        numbers[transfer.delivery_id] = tag
        self.line.dispose(Role.RECEIVER, transfer.delivery_id, state=state)
