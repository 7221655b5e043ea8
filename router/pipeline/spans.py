"""Makes spans of a journal's records: one for each hop, and one for each attempt to send.

Theory of operation. TRACED opens a hop; the records that follow about the same delivery, by link
and key, tell its life (``router.journal.record``):

    TRACED ─▶ open ── SENT, OUTCOME, SETTLED, IN_DOUBT, RESOLVED ──▶ complete ── a second ─▶ done

A hop is complete when it is settled with its sender and with every receiver that it was sent to.
A multicast is sent to several in one turn, so a complete hop waits ``LINGER_NS`` for more.

Deliveries without exactly-once die with their worker: their hops end when the next life of the
worker begins. A hop that stays open for ``OPEN_NS``, or beyond ``OPEN_MOST`` of them, ends as it is
(``is_unfinished``).

The ids of spans derive from the delivery and its links (``router.journal.keys``), so a record that
is read again gives the same span.
"""

from collections.abc import Mapping
from typing import Any, Final

import attrs

from router.journal.block import Block, BlockFlag
from router.journal.keys import LinkKey, send_identity
from router.journal.record import (
    GuaranteeCode,
    LinkDescription,
    OutcomeCode,
    RecordError,
    RecordFlag,
    RecordKind,
    Resolution,
    Row,
    heap_strings,
    hop_from_body,
    link_from_record,
)
from router.model.trace import Hop

LINGER_NS: Final = 1_000_000_000
OPEN_NS: Final = 3_600_000_000_000
OPEN_MOST: Final = 20_000
"""Open hops at once: their state is written with the cursor."""

_SETTLED: Final = int(RecordFlag.SETTLED)
_KINDS: Final = frozenset(
    {
        RecordKind.SENT,
        RecordKind.OUTCOME,
        RecordKind.SETTLED,
        RecordKind.IN_DOUBT,
        RecordKind.RESOLVED,
    }
)

Place = tuple[int, bytes]
"""Incoming link key and delivery key."""


@attrs.define(eq=False, kw_only=True)
class Attempt:
    """A delivery sent on an outgoing link.

    Attributes:
        span: its id.
        target: the link's key.
        sent_ns: since 1970, as all times.
        outcome: an ``OutcomeCode``; 0: none yet, or it was sent settled.
        ended_ns: when the outcome came; 0: it has not.
        is_over: it is settled, or given up.
        was_in_doubt: the connection was lost before the outcome.
        remote, name, address: of the link.
    """

    span: bytes
    target: int
    sent_ns: int
    outcome: int = 0
    ended_ns: int = 0
    is_over: bool = False
    was_in_doubt: bool = False
    remote: str = ""
    name: str = ""
    address: str = ""


@attrs.define(eq=False, kw_only=True)
class Passing:
    """A delivery that passes this router, as far as its records have told.

    Attributes:
        key: the delivery's.
        worker, incarnation: of the worker that has it.
        received_ns: since 1970, as all times.
        guarantee: a ``GuaranteeCode``.
        protocol: one of ``PROTOCOL_CODES``.
        remote, name, address: of the incoming link; the address is the delivery's, if it has one.
        outcome: sent to the sender, if the router decided it; 0: that of the receivers.
        settled_ns: when it was settled with the sender; 0: it is not.
        last_ns: of its last record.
        is_unfinished: it ended without being complete.
    """

    hop: Hop
    key: bytes
    worker: int
    incarnation: int
    received_ns: int
    guarantee: int
    protocol: int
    octets: int
    remote: str = ""
    name: str = ""
    address: str = ""
    attempts: list[Attempt] = attrs.field(factory=list)
    outcome: int = 0
    settled_ns: int = 0
    last_ns: int = 0
    is_unfinished: bool = False

    @property
    def is_complete(self) -> bool:
        """Whether nothing more is to come."""
        if not self.settled_ns or not (self.attempts or self.outcome):
            return False
        return all(each.is_over for each in self.attempts)


class Spans:
    """Follows the traced deliveries of a journal.

    Attributes:
        router: id of the router that writes it; empty until a segment has told it.
        open: what is not complete, oldest first.
        done: finished hops, to be taken by the caller.
    """

    def __init__(self) -> None:
        self.router = ""
        self.open: dict[Place, Passing] = {}
        self.done: list[Passing] = []
        self._complete: dict[Place, None] = {}
        self._links: dict[int, LinkDescription] = {}
        self._lives: dict[int, int] = {}

    def take(self, block: Block) -> None:
        """Handles a block; it may be read again."""
        if block.flags & (BlockFlag.OWN | BlockFlag.DEFINES):
            self.learn(block)
        if block.flags & BlockFlag.OWN:
            return
        rows = list(block.unpacked_rows())
        worker, incarnation = block.origin
        if rows and incarnation > self._lives.get(worker, 0):
            self._lives[worker] = incarnation
            self._end_lives(worker, incarnation)
        for row in rows:
            if row[0] == RecordKind.TRACED:
                self._begin(row, block)
            elif row[0] in _KINDS and (passing := self.open.get((row[8], row[7]))) is not None:
                self._go_on(passing, row)
            elif row[0] == RecordKind.WORKER_ENDED:
                self._end_lives(worker, incarnation + 1)
        while len(self.open) > OPEN_MOST:
            self._unfinished(next(iter(self.open)))

    def learn(self, block: Block) -> None:
        """Handles only what a block says of links and of the router."""
        for row in block.unpacked_rows():
            try:
                if row[0] == RecordKind.LINK_ATTACHED:
                    link = link_from_record(
                        LinkKey(row[8]), LinkKey(row[9]), heap_strings(row, block.heap)[2]
                    )
                    self._links[link.key] = link
                elif row[0] == RecordKind.SEGMENT:
                    self.router = heap_strings(row, block.heap)[2].decode()
            except RecordError:
                continue

    def tick(self, now_ns: int) -> None:
        """Finishes what was complete a second ago, and what has been open for too long."""
        for place in list(self._complete):
            passing = self.open[place]
            if now_ns - passing.last_ns >= LINGER_NS:
                self.done.append(self.open.pop(place))
                del self._complete[place]
        for place, passing in list(self.open.items()):
            if now_ns - passing.received_ns < OPEN_NS:
                break
            self._unfinished(place)

    def finish(self) -> None:
        """Finishes what is complete, without waiting for more."""
        self.done += [self.open.pop(place) for place in self._complete]
        self._complete.clear()

    def _begin(self, row: Row, block: Block) -> None:
        place = row[8], row[7]
        try:
            _, address, body = heap_strings(row, block.heap)
            hop = hop_from_body(body)
        except RecordError:
            return
        before = self.open.get(place)
        if before is not None and before.hop.span == hop.span:
            return
        if before is not None:  # the message store sends it again
            self._unfinished(place)
        link = self._links.get(row[8])
        self.open[place] = Passing(
            hop=hop,
            key=row[7],
            worker=block.origin.worker,
            incarnation=block.origin.incarnation,
            received_ns=row[6],
            last_ns=row[6],
            guarantee=row[2],
            protocol=row[3],
            octets=row[10],
            remote="" if link is None else link.remote,
            name="" if link is None else link.name,
            address=address or ("" if link is None else link.address),
            settled_ns=row[6] if row[4] & _SETTLED else 0,
        )

    def _go_on(self, passing: Passing, row: Row) -> None:
        kind, outcome, flags, time_ns, outgoing = row[0], row[1], row[4], row[6], row[9]
        passing.last_ns = time_ns
        if kind == RecordKind.SENT:
            self._send(passing, outgoing, time_ns, is_settled=bool(flags & _SETTLED))
        elif not outgoing:
            if kind == RecordKind.OUTCOME:
                passing.outcome = outcome or OutcomeCode.UNKNOWN
            if kind == RecordKind.SETTLED or (kind == RecordKind.OUTCOME and flags & _SETTLED):
                passing.settled_ns = passing.settled_ns or time_ns
        else:
            _answer(passing, kind, outcome, outgoing, time_ns, is_settled=bool(flags & _SETTLED))
        place = row[8], row[7]
        if passing.is_complete:
            self._complete[place] = None
        else:
            self._complete.pop(place, None)

    def _send(self, passing: Passing, target: int, time_ns: int, *, is_settled: bool) -> None:
        link = self._links.get(target)
        number = sum(each.target == target for each in passing.attempts)
        passing.attempts.append(
            Attempt(
                span=send_identity(passing.hop.span, LinkKey(target), number),
                target=target,
                sent_ns=time_ns,
                ended_ns=time_ns if is_settled else 0,
                is_over=is_settled,
                remote="" if link is None else link.remote,
                name="" if link is None else link.name,
                address="" if link is None else link.address,
            )
        )

    def _end_lives(self, worker: int, incarnation: int) -> None:
        """Ends what died with earlier lives of a worker."""
        for place, passing in list(self.open.items()):
            is_gone = passing.worker == worker and passing.incarnation < incarnation
            if is_gone and passing.guarantee != GuaranteeCode.EXACTLY_ONCE:
                if place in self._complete:
                    self.done.append(self.open.pop(place))
                    del self._complete[place]
                else:
                    self._unfinished(place)

    def _unfinished(self, place: Place) -> None:
        passing = self.open.pop(place)
        self._complete.pop(place, None)
        passing.is_unfinished = not passing.is_complete
        self.done.append(passing)

    # What a reader keeps beside its cursor

    def dump(self) -> list[dict[str, Any]]:
        """Returns what is open, for JSON."""
        return [
            {"incoming": incoming, **attrs.asdict(passing, value_serializer=_to_json)}
            for (incoming, _), passing in self.open.items()
        ]

    def load(self, dumped: list[dict[str, Any]]) -> None:
        """Restores what ``dump`` returned."""
        for each in dumped:
            found = dict(each)
            incoming = int(found.pop("incoming"))
            hop = {**found.pop("hop")}
            for name in ("trace", "span", "parent", "creator"):
                hop[name] = bytes.fromhex(hop[name])
            attempts = [
                Attempt(**{**one, "span": bytes.fromhex(one["span"])})
                for one in found.pop("attempts")
            ]
            key = bytes.fromhex(found.pop("key"))
            passing = Passing(hop=Hop(**hop), key=key, attempts=attempts, **found)
            self.open[incoming, key] = passing
            self._lives[passing.worker] = max(
                passing.incarnation, self._lives.get(passing.worker, 0)
            )
            if passing.is_complete:
                self._complete[incoming, key] = None


def _to_json(owner: object, field: object, value: object) -> object:
    return value.hex() if isinstance(value, bytes) else value


_RESOLVED: Final[Mapping[int, int]] = {
    Resolution.SEND_AGAIN: OutcomeCode.NONE,
    Resolution.ACCEPT: OutcomeCode.ACCEPTED,
    Resolution.REJECT: OutcomeCode.REJECTED,
    Resolution.RELEASE: OutcomeCode.RELEASED,
}


def _answer(
    passing: Passing, kind: int, outcome: int, target: int, time_ns: int, *, is_settled: bool
) -> None:
    """Handles what a receiver's records tell of an attempt on its link.

    It is the first that is not over: of a message that is in the store twice there may be two.
    """
    found = [each for each in passing.attempts if each.target == target]
    if not found:
        return
    attempt = next((each for each in found if not each.is_over), found[-1])
    if kind == RecordKind.IN_DOUBT:
        attempt.was_in_doubt = True
        return
    if kind == RecordKind.OUTCOME:
        attempt.outcome = outcome or OutcomeCode.UNKNOWN
    elif kind == RecordKind.RESOLVED:
        attempt.outcome = attempt.outcome or _RESOLVED.get(outcome, OutcomeCode.UNKNOWN)
    attempt.ended_ns = attempt.ended_ns or time_ns
    attempt.is_over |= is_settled or kind in (RecordKind.SETTLED, RecordKind.RESOLVED)
