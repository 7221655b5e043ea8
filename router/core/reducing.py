"""Unsettled maps larger than the peer's frames are exchanged in parts (§2.6.13, §2.7.3).

Theory of operation. A map in an attach holds as many entries as the peer's max-frame-size allows,
and is marked incomplete if there are more; the peer's own map may be incomplete as well. Then the
link is *reducing*: deliveries that both maps name are resumed and settled, no new delivery is sent,
and when no more progress is possible the link is detached and attached again, until both maps are
complete::

    attach, maps -> resume what both name -> settle -> detach -> attach, shorter maps -> ...

The map of each attach first lists entries that the peer has just named, then entries not listed
yet, decided deliveries before others and older before younger, and then starts over. So every
delivery that both ends know is eventually named by both, whatever order the peer uses.

Deliveries that only one end knows. Absence from a complete map means settlement. While both maps
are incomplete it does not: a receiver's map can be full of deliveries that the sender has settled,
and the sender's of deliveries that the receiver never had. Where we receive, a sender must resume
each listed delivery that it has (§2.6.13). If it has answered a drain, or has detached the link
without an error, and has not resumed a listed delivery, it does not have it: the delivery is
*passed over*. When all remaining deliveries have been passed over, they are settled. A passed-over
delivery is also settled when rounds bring no more progress, because its receiver may wait for that
alone and block the settlement of others. Where we send, we settle deliveries for which the receiver
has an outcome and which we do not have (§2.6.13: "resuming and/or settling transfers that it
observes that the receiver considers unsettled"). Deliveries held for an operator that a complete
map has shown to be absent are not listed again.
A round ends when nothing is left that it could settle. While the peer's application takes its time
with outcomes the round goes on: for a limited time if entries wait to be listed, else until some
have been settled. The delay between rounds without progress grows. Deliveries that are settled when
the maps are compared count as progress, but passed-over ones make none of the others less certain.
"""

from collections import deque
from collections.abc import Iterator
from functools import partial
from typing import Final

import attrs

from router.core.alarms import Alarm
from router.core.node import is_free
from router.core.state import State
from router.links.attaches import PeerMap
from router.links.link import IncomingLink, Link, OutgoingLink
from router.links.pairing import Pairing
from router.links.unsettled import in_order_of_need, reported_state, sent_state
from router.model.commands import AttachLink, ReturnCredit
from router.model.delivery import OutgoingDelivery
from router.model.identity import DeliveryNumber, DeliveryTag
from router.model.outcome import DeliveryState, is_outcome
from router.wire.v1_0.fitting import with_map

PATIENCE_SECONDS: Final = 1.0
"""How long to wait for outcomes, after the last one, before listing the next entries."""

LONGEST_PATIENCE_SECONDS: Final = 60.0

IDLE_ROUNDS: Final = 2
"""Rounds without progress after which every passed-over delivery is settled."""


@attrs.define(eq=False)
class Reduction:
    """A link whose maps have been incomplete, from the first such attach until both are complete.

    Attributes:
        pending: entries to list before starting over.
        listed: entries of our map on the present attachment.
        is_ours: that map is incomplete; ``is_theirs``: the peer's.
        due: deliveries that the peer must resume on the present attachment: both maps name them.
        peer_listed: entries of the peer's maps so far; ``seen``: entries of ours.
        is_fresh: the maps of the present attachment had entries for the first time.
        has_more: a delivery is adrift that none of our maps has listed.
        passed_over: deliveries that the sender does not have; see above.
        absent: deliveries that the receiver does not have, according to a complete map.
        to_settle: deliveries for which only the receiver has an outcome, unknown here.
        entries: how many were unsettled before the attach; ``left``: at the last look.
        given_up: how many passed-over ones the attach has settled.
        quiet_since: when ``left`` last changed, after all due deliveries had been resumed.
        idle: consecutive attachments without progress.
        alarm: ends the wait.
    """

    pending: deque[DeliveryTag] = attrs.field(factory=deque)
    listed: tuple[DeliveryTag, ...] = ()
    is_ours: bool = False
    is_theirs: bool = False
    due: set[DeliveryTag] = attrs.field(factory=set)
    peer_listed: set[DeliveryTag] = attrs.field(factory=set)
    seen: set[DeliveryTag] = attrs.field(factory=set)
    is_fresh: bool = True
    has_more: bool = False
    passed_over: set[DeliveryTag] = attrs.field(factory=set)
    absent: set[DeliveryTag] = attrs.field(factory=set)
    to_settle: deque[tuple[DeliveryTag, DeliveryState]] = attrs.field(factory=deque)
    entries: int = 0
    given_up: int = 0
    left: int = -1
    quiet_since: float = 0.0
    idle: int = 0
    alarm: Alarm | None = None


class Reducer:
    """Fills maps, and decides when a link with incomplete maps is attached again."""

    def __init__(self, state: State) -> None:
        self._registry = state.registry
        self._turn = state.turn
        self._alarms = state.alarms
        self._ledger = state.ledger
        self._reductions: dict[Link, Reduction] = {}

    # Maps

    def add_map(
        self,
        link: Link,
        command: AttachLink,
        frame_octets: int,
        *,
        theirs: PeerMap | None = None,
    ) -> AttachLink:
        """Adds our map to an attach, as much of it as fits.

        Args:
            link: its unsettled deliveries are adrift.
            command: the attach.
            frame_octets: size of the largest frame that the peer accepts; 0: any.
            theirs: the peer's map, if this answers its attach.
        """
        reduction = self._reductions.get(link)
        if reduction is None:
            reduction = Reduction(in_order_of_need(link), entries=_count_all(link))
        elif not reduction.pending:
            reduction.pending = in_order_of_need(link)
        entries = self._entries(link, reduction, theirs or {})
        filled = with_map(command, entries, frame_octets, is_answer=theirs is not None)
        assert filled.unsettled is not None
        reduction.listed = tuple(filled.unsettled)
        reduction.is_ours = filled.incomplete_unsettled
        listed = set(reduction.listed)
        reduction.pending = deque(tag for tag in reduction.pending if tag not in listed)
        self._reductions[link] = reduction
        return filled

    def _entries(
        self, link: Link, reduction: Reduction, theirs: PeerMap
    ) -> Iterator[tuple[DeliveryTag, DeliveryState | None]]:
        """Yields the whole map, the entries to list first at the beginning."""
        adrift, absent = link.adrift, reduction.absent
        undurable = self._ledger.undurable(link)
        state = (
            partial(reported_state, undurable=undurable)
            if isinstance(link, IncomingLink)
            else sent_state
        )
        given: set[DeliveryTag] = set()
        for tags in (theirs, reduction.pending, adrift):
            for tag in tags:
                pairing = adrift.get(tag)
                if pairing is not None and tag not in given and tag not in absent:
                    given.add(tag)
                    yield tag, state(pairing)

    # Attachments

    def begin_comparing(self, link: Link) -> None:
        """Records that the maps of a suspended link are about to be compared."""
        reduction = self._reductions.get(link)
        if reduction is not None:
            reduction.entries, reduction.given_up = _count(link, reduction), 0

    def settled(self, link: IncomingLink, theirs: PeerMap) -> list[DeliveryTag]:
        """Returns the deliveries of a link that an incomplete map shows to be settled."""
        reduction = self._reductions.get(link)
        if reduction is None:
            return []
        reduction.passed_over.difference_update(theirs)
        found = [tag for tag in link.adrift if tag in reduction.passed_over]
        if len(found) < len(link.adrift) and reduction.idle < IDLE_ROUNDS:
            return []
        reduction.entries -= len(found)
        reduction.given_up = len(found)
        return found

    def is_absent(self, link: Link, pairing: Pairing) -> None:
        """Records that a receiver's complete map lacks a delivery that is kept adrift."""
        self._reductions.setdefault(link, Reduction()).absent.add(pairing.outgoing_tag)

    def must_reduce(self, link: Link, theirs: PeerMap | None, *, is_incomplete: bool) -> bool:
        """Returns whether an attachment may carry no new delivery; arguments as in ``begin``."""
        reduction = self._reductions.get(link)
        is_ours = reduction is not None and reduction.is_ours
        return theirs is not None and (is_ours or is_incomplete)

    def begin(
        self,
        link: Link,
        theirs: PeerMap | None,
        *,
        is_incomplete: bool,
        is_ours: bool = False,
    ) -> bool:
        """Records an attach; returns whether only unsettled deliveries may pass.

        Args:
            link: deliveries that its receiver does not have are no longer adrift.
            theirs: the peer's map; None: it keeps no state and will never send a map.
            is_incomplete: deliveries that this map lacks may still be unsettled.
            is_ours: our map for an earlier link of this name was incomplete.
        """
        reduction = self._reductions.get(link)
        if reduction is None:
            reduction = Reduction(is_ours=is_ours, entries=_count_all(link))
        if theirs is None or not (reduction.is_ours or is_incomplete):
            self.end(link)
            return False
        self._reductions[link] = reduction
        self._alarms.cancel(reduction.alarm)
        reduction.alarm = None
        reduction.is_theirs = is_incomplete
        reduction.is_fresh = not (
            reduction.seen.issuperset(reduction.listed) and reduction.peer_listed.issuperset(theirs)
        )
        reduction.seen.update(reduction.listed)
        reduction.peer_listed.update(theirs)
        reduction.has_more = not reduction.seen.issuperset(link.adrift)
        reduction.left = -1
        link.is_reducing = True
        if isinstance(link, IncomingLink):
            reduction.due = {
                tag for tag in reduction.listed if tag in theirs and tag in link.adrift
            }
            link.asks_all, link.has_given_all = is_incomplete, False
        elif reduction.is_ours and is_incomplete:
            reduction.to_settle = deque(
                (tag, state)
                for tag, state in theirs.items()
                if state is not None and is_outcome(state) and tag not in link.adrift
            )
        return True

    def end(self, link: Link) -> None:
        """Forgets a link's reduction: its maps are complete, or it is gone."""
        reduction = self._reductions.pop(link, None)
        if reduction is not None:
            self._alarms.cancel(reduction.alarm)
        link.is_reducing = False

    def left(self, link: Link, *, by_peer: bool) -> bool:
        """Records that a reducing link is detached without an error.

        Returns:
            whether it should be attached again at once: there was, or will be, progress.
        """
        reduction = self._reductions.get(link)
        if reduction is None or not link.is_reducing:
            return False
        link.is_reducing = False
        self._alarms.cancel(reduction.alarm)
        reduction.alarm = None
        is_confirmed = link.unconfirmed is None
        if isinstance(link, IncomingLink) and is_confirmed and (by_peer or link.has_given_all):
            reduction.passed_over.update(tag for tag in reduction.listed if tag in link.adrift)
        reduction.to_settle.clear()
        if reduction.is_fresh or _count(link, reduction) < reduction.entries:
            reduction.idle = 0
        elif not reduction.given_up:
            reduction.idle += 1
        return reduction.idle == 0 or reduction.given_up > 0

    def over(self) -> list[Link]:
        """Returns links whose round has ended; they must be detached and attached again."""
        for link in [link for link in self._reductions if link.is_gone]:
            self.end(link)
        return [
            link
            for link, reduction in self._reductions.items()
            if link.is_reducing and link.unconfirmed is None and self._is_over(link, reduction)
        ]

    def pump(self) -> None:
        """Settles deliveries that only receivers have; returns credit not needed for that."""
        for link, reduction in self._reductions.items():
            if isinstance(link, IncomingLink) or not link.is_reducing or link.resuming:
                continue
            while reduction.to_settle and is_free(link):
                tag, state = reduction.to_settle.popleft()
                number = DeliveryNumber(link.next_number)
                link.use_credit(1)
                settled = OutgoingDelivery(number, tag, b"", settled=True, resume=True)
                settled.state = state
                self._turn.send(link, settled)
            if link.is_draining and not reduction.to_settle and link.link is not None:
                link.return_credit()
                self._turn.order(link, ReturnCredit(link.link))

    # Rounds

    def _is_over(self, link: Link, reduction: Reduction) -> bool:
        """Returns whether a link's present attachment can bring no more progress."""
        if not _is_resumed(link, reduction) or self._turn.gate.is_holding(link):
            return False
        left = _count(link, reduction)
        if left != reduction.left:
            reduction.left, reduction.quiet_since = left, self._turn.now
        has_moved = left < reduction.entries or reduction.given_up > 0
        is_useful = has_moved or reduction.is_fresh
        if is_useful and _is_settled(link, reduction):
            if not link.unsettled or left <= len(reduction.listed) or reduction.has_more:
                return True
        return self._is_patience_over(reduction, PATIENCE_SECONDS if is_useful else None)

    def _is_patience_over(self, reduction: Reduction, seconds: float | None) -> bool:
        """Returns whether the wait has ended; None: the grown limit for idle rounds applies."""
        if seconds is None:
            seconds = min(LONGEST_PATIENCE_SECONDS, PATIENCE_SECONDS * 2 ** min(reduction.idle, 9))
        at = reduction.quiet_since + seconds
        if self._turn.now >= at:
            return True
        if reduction.alarm is None or reduction.alarm.at < at:
            self._alarms.cancel(reduction.alarm)
            reduction.alarm = self._alarms.set(at, _look_again)
        return False


def _look_again() -> None:
    """Ends a turn, at which reducing links are examined."""


def _count(link: Link, reduction: Reduction) -> int:
    """Counts the deliveries still to be settled."""
    absent = len(reduction.absent & link.adrift.keys()) if reduction.absent else 0
    return _count_all(link) - absent


def _count_all(link: Link) -> int:
    return len(link.adrift) + len(link.unsettled)


def _is_resumed(link: Link, reduction: Reduction) -> bool:
    """Returns whether all deliveries that both maps name have been resumed."""
    if isinstance(link, OutgoingLink):
        return not (link.resuming or reduction.to_settle)
    while reduction.due:
        tag = reduction.due.pop()
        if tag in link.adrift:
            reduction.due.add(tag)
            return False
    return True


def _is_settled(link: Link, reduction: Reduction) -> bool:
    """Returns whether all decided deliveries are settled and no more will be resumed."""
    if isinstance(link, OutgoingLink):
        return not link.unsettled
    if reduction.is_theirs and link.adrift and not link.has_given_all:
        return False
    return not any(pairing.outcome is not None for pairing in link.unsettled.values())
