"""Unsettled maps that do not fit the peer's frames are told a frame at a time (§2.6.13, §2.7.3).

Theory of operation. A map in an attach holds as many entries as the peer's max-frame-size allows,
and is marked incomplete if there are more; the peer's own map may be incomplete as well. Then the
link is *reducing*: what both maps name is resumed and settled, nothing new is sent, and when this
has gone as far as it does the link is detached and attached again, until both maps are complete::

    attach, maps -> resume what both name -> settle -> detach -> attach, shorter maps -> ...

Each attach tells first what the peer has just named, then what has not been told yet, decided
deliveries before others and older before younger, and in the end all over again. So whatever both
ends know is named by both sooner or later, whichever order the peer has.

What only one end knows. Absence from a complete map is settlement. While both maps are incomplete
it is not: a receiver's map can be full of what the sender has settled, and the sender's of what the
receiver never had. Where we receive, what we have told and the sender has not resumed, as it must
(§2.6.13), though it has answered a drain or has itself detached the link in good order, it does not
have: it is *passed over*. When all that is left has been passed over, it is settled; so is each
such delivery when rounds bring nothing more, because its receiver may wait for that alone, and keep
others from being settled that the sender has. Where we send, we settle what the receiver has an
outcome of and we do not have (§2.6.13: "resuming and/or settling transfers that it observes that
the receiver considers unsettled"). What we hold for a person, and a complete map has shown not to
be there, need not be told again.

A round ends when nothing that it could settle is left; while the peer's application takes its time
with outcomes it goes on, for a while if there are entries that wait to be told, else until some
have been settled. Rounds that bring nothing are further and further apart.
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
from router.links.unsettled import in_order_of_need, sent_state, told_state
from router.model.commands import AttachLink, ReturnCredit
from router.model.delivery import OutgoingDelivery
from router.model.identity import DeliveryNumber, DeliveryTag
from router.model.outcome import DeliveryState, is_outcome
from router.wire.v1_0.fitting import with_map

PATIENCE_SECONDS: Final = 1.0
"""How long outcomes are waited for, after the last one, before the next entries are told."""

LONGEST_PATIENCE_SECONDS: Final = 60.0

IDLE_ROUNDS: Final = 2
"""Rounds without progress after which each delivery that was passed over is settled."""


@attrs.define(eq=False)
class Reduction:
    """A link whose maps have been incomplete, from the first such attach until both are complete.

    Attributes:
        untold: what is still to be told before everything is told again.
        told: what our map has told on the present attachment.
        is_ours: that map is incomplete; ``is_theirs``: the peer's.
        due: what the peer has to resume on the present attachment, because both maps name it.
        heard: what the peer's maps have named so far; ``seen``: what ours have told.
        is_fresh: the maps of the present attachment have named something for the first time.
        has_more: something is adrift that none of our maps has told.
        passed_over: what the sender does not have; see above.
        absent: what the receiver does not have, according to a complete map.
        to_settle: what the receiver has an outcome of, and we do not have.
        entries: how many were unsettled when it was attached; ``left``: when last looked at.
        quiet_since: when ``left`` last changed, after all that is due had been resumed.
        idle: attachments in a row that have brought nothing.
        alarm: the end of our patience.
    """

    untold: deque[DeliveryTag] = attrs.field(factory=deque)
    told: tuple[DeliveryTag, ...] = ()
    is_ours: bool = False
    is_theirs: bool = False
    due: set[DeliveryTag] = attrs.field(factory=set)
    heard: set[DeliveryTag] = attrs.field(factory=set)
    seen: set[DeliveryTag] = attrs.field(factory=set)
    is_fresh: bool = True
    has_more: bool = False
    passed_over: set[DeliveryTag] = attrs.field(factory=set)
    absent: set[DeliveryTag] = attrs.field(factory=set)
    to_settle: deque[tuple[DeliveryTag, DeliveryState]] = attrs.field(factory=deque)
    entries: int = 0
    left: int = -1
    quiet_since: float = 0.0
    idle: int = 0
    alarm: Alarm | None = None


class Reducer:
    """Tells maps, and says when a link on which they were incomplete is to be attached again."""

    def __init__(self, state: State) -> None:
        self._registry = state.registry
        self._turn = state.turn
        self._alarms = state.alarms
        self._ledger = state.ledger
        self._reductions: dict[Link, Reduction] = {}

    # Maps

    def tell(
        self,
        link: Link,
        command: AttachLink,
        frame_octets: int,
        *,
        theirs: PeerMap | None = None,
    ) -> AttachLink:
        """Puts our map into an attach, as much of it as fits.

        Args:
            link: its unsettled deliveries are adrift.
            command: the attach.
            frame_octets: of the largest frame that the peer takes; 0: any.
            theirs: the peer's map, if this answers its attach.
        """
        reduction = self._reductions.get(link)
        if reduction is None:
            reduction = Reduction(in_order_of_need(link))
        elif not reduction.untold:
            reduction.untold = in_order_of_need(link)
        entries = self._entries(link, reduction, theirs or {})
        filled = with_map(command, entries, frame_octets, is_answer=theirs is not None)
        assert filled.unsettled is not None
        reduction.told = tuple(filled.unsettled)
        reduction.is_ours = filled.incomplete_unsettled
        told = set(reduction.told)
        reduction.untold = deque(tag for tag in reduction.untold if tag not in told)
        self._reductions[link] = reduction
        return filled

    def _entries(
        self, link: Link, reduction: Reduction, theirs: PeerMap
    ) -> Iterator[tuple[DeliveryTag, DeliveryState | None]]:
        """Yields the whole map, what is to be told first at the beginning."""
        adrift, absent = link.adrift, reduction.absent
        undurable = self._ledger.undurable()
        state = (
            partial(told_state, undurable=undurable)
            if isinstance(link, IncomingLink)
            else sent_state
        )
        given: set[DeliveryTag] = set()
        for tags in (theirs, reduction.untold, adrift):
            for tag in tags:
                pairing = adrift.get(tag)
                if pairing is not None and tag not in given and tag not in absent:
                    given.add(tag)
                    yield tag, state(pairing)

    # Attachments

    def settled(self, link: IncomingLink, theirs: PeerMap) -> list[DeliveryTag]:
        """Returns what of a link's deliveries the sender has settled, by an incomplete map."""
        reduction = self._reductions.get(link)
        if reduction is None:
            return []
        reduction.passed_over.difference_update(theirs)
        found = [tag for tag in link.adrift if tag in reduction.passed_over]
        is_certain = len(found) == len(link.adrift) or reduction.idle >= IDLE_ROUNDS
        return found if is_certain else []

    def is_absent(self, link: Link, pairing: Pairing) -> None:
        """Records that a receiver, by its complete map, does not have what is kept adrift."""
        self._reductions.setdefault(link, Reduction()).absent.add(pairing.outgoing_tag)

    def must_reduce(self, link: Link, theirs: PeerMap | None, *, is_incomplete: bool) -> bool:
        """Tells whether nothing new may be sent on an attachment; arguments are as in ``begin``."""
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
        """Records that a link is attached; returns whether only what is unsettled may pass.

        Args:
            link: what its receiver does not have is adrift no more.
            theirs: the peer's map; None: it keeps no state, and no map will ever tell more.
            is_incomplete: what that lacks may be unsettled all the same.
            is_ours: so was what we have told of an earlier link of this name.
        """
        reduction = self._reductions.get(link) or Reduction(is_ours=is_ours)
        if theirs is None or not (reduction.is_ours or is_incomplete):
            self.end(link)
            return False
        self._reductions[link] = reduction
        self._alarms.cancel(reduction.alarm)
        reduction.alarm = None
        reduction.is_theirs = is_incomplete
        reduction.is_fresh = not (
            reduction.seen.issuperset(reduction.told) and reduction.heard.issuperset(theirs)
        )
        reduction.seen.update(reduction.told)
        reduction.heard.update(theirs)
        reduction.has_more = not reduction.seen.issuperset(link.adrift)
        reduction.entries, reduction.left = _count(link, reduction), -1
        link.is_reducing = True
        if isinstance(link, IncomingLink):
            reduction.due = {tag for tag in reduction.told if tag in theirs and tag in link.adrift}
            link.asks_all, link.has_given_all = is_incomplete, False
        elif reduction.is_ours and is_incomplete:
            reduction.to_settle = deque(
                (tag, state)
                for tag, state in theirs.items()
                if state is not None and is_outcome(state) and tag not in link.adrift
            )
        return True

    def end(self, link: Link) -> None:
        """Forgets how a link was reduced: its maps are complete, or it is gone."""
        reduction = self._reductions.pop(link, None)
        if reduction is not None:
            self._alarms.cancel(reduction.alarm)
        link.is_reducing = False

    def left(self, link: Link, *, by_peer: bool) -> bool:
        """Records that a reducing link is detached in good order.

        Returns:
            whether it should be attached again at once: something has come of it, or will.
        """
        reduction = self._reductions.get(link)
        if reduction is None or not link.is_reducing:
            return False
        link.is_reducing = False
        self._alarms.cancel(reduction.alarm)
        reduction.alarm = None
        is_heard = link.unheard is None
        if isinstance(link, IncomingLink) and is_heard and (by_peer or link.has_given_all):
            reduction.passed_over.update(tag for tag in reduction.told if tag in link.adrift)
        has_moved = _count(link, reduction) < reduction.entries
        reduction.to_settle.clear()
        reduction.idle = 0 if has_moved or reduction.is_fresh else reduction.idle + 1
        return reduction.idle == 0

    def over(self) -> list[Link]:
        """Returns links whose round is over, to be detached and attached again."""
        for link in [link for link in self._reductions if link.is_gone]:
            self.end(link)
        return [
            link
            for link, reduction in self._reductions.items()
            if link.is_reducing and link.unheard is None and self._is_over(link, reduction)
        ]

    def pump(self) -> None:
        """Settles what receivers have and we do not; gives credit back that is not needed then."""
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
        """Returns whether nothing more is to be expected of a link's present attachment."""
        if not _is_resumed(link, reduction) or self._turn.gate.is_holding(link):
            return False
        left = _count(link, reduction)
        if left != reduction.left:
            reduction.left, reduction.quiet_since = left, self._turn.now
        has_moved = left < reduction.entries
        is_useful = has_moved or reduction.is_fresh
        if is_useful and _is_settled(link, reduction):
            if not link.unsettled or left <= len(reduction.told) or reduction.has_more:
                return True
        return self._is_patience_over(reduction, PATIENCE_SECONDS if is_useful else None)

    def _is_patience_over(self, reduction: Reduction, seconds: float | None) -> bool:
        """Returns whether nothing has moved for so long; None: it depends on how often before."""
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
    """Ends a turn: what is reducing is looked at then."""


def _count(link: Link, reduction: Reduction) -> int:
    """Counts what is still to be settled."""
    absent = len(reduction.absent & link.adrift.keys()) if reduction.absent else 0
    return len(link.adrift) + len(link.unsettled) - absent


def _is_resumed(link: Link, reduction: Reduction) -> bool:
    """Returns whether everything is resumed that both maps name."""
    if isinstance(link, OutgoingLink):
        return not (link.resuming or reduction.to_settle)
    while reduction.due:
        tag = reduction.due.pop()
        if tag in link.adrift:
            reduction.due.add(tag)
            return False
    return True


def _is_settled(link: Link, reduction: Reduction) -> bool:
    """Returns whether all is settled that is decided, and nothing more will be resumed."""
    if isinstance(link, OutgoingLink):
        return not link.unsettled
    if reduction.is_theirs and not link.has_given_all:
        return False
    return not any(pairing.heard is not None for pairing in link.unsettled.values())
