"""The course of uplinks: attached when they are wanted, answered, lost, refused, tried again.

``uplink`` has the states and the table; ``attach_requests`` composes the attach; ``joining`` adds
an answered link to its node.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial

from router.core.attach_requests import AttachRequests
from router.core.credit import Granter
from router.core.detach import Detacher
from router.core.joining import Joiner
from router.core.mesh.names import is_neighbor_name
from router.core.node import Node
from router.core.reach import Reach, is_sibling, is_sibling_name
from router.core.redirects import Redirects
from router.core.resume import Resumer
from router.core.state import State
from router.core.successors import Successors
from router.core.suspend import Suspender
from router.core.uplink import Input, Step, Uplink, next_step
from router.core.uplink_needs import Needs
from router.links.backoff import pause_seconds
from router.links.expiry import NEVER_EXPIRES, NOT_KEPT, WHILE_SPOKEN_OF
from router.links.link import Connection, Link, LinkKey, OutgoingLink
from router.model.commands import AttachLink, DetachLink
from router.model.condition import (
    DETACH_FORCED,
    NO_REASON,
    NOT_ALLOWED,
    NOT_FOUND,
    NOT_IMPLEMENTED,
    Condition,
)
from router.model.events import LinkAttached, LinkDetached
from router.model.identity import LinkId
from router.model.terminus import Role
from router.routes.route import Guarantee

REFUSED_SECONDS = 5.0
"""Until then a refusal of the egress has come back over all transits."""

_REFUSALS = frozenset((NOT_FOUND, NOT_ALLOWED, NOT_IMPLEMENTED))


class Courses:
    """Takes each uplink of a worker from step to step.

    Attributes:
        redirects: knows which of them are elsewhere.
        requests: composes what is asked for.
        is_draining: nothing is attached any more.
    """

    def __init__(
        self,
        state: State,
        granter: Granter,
        detacher: Detacher,
        *,
        containers: Mapping[str, Connection],
        needs: Needs,
        suspender: Suspender,
        reach: Reach,
        resumer: Resumer,
        link_ids: Iterator[LinkId],
        random: Callable[[], float],
    ) -> None:
        self._turn = state.turn
        self._registry = state.registry
        self._notices = state.notices
        self._ledger = state.ledger
        self._alarms = state.alarms
        self._granter = granter
        self._detacher = detacher
        self._containers = containers
        self._needs = needs
        notary = _no_notary if reach.sites is None else reach.sites.find_notary
        self.requests = AttachRequests(state, resumer.reducer, notary)
        self._joiner = Joiner(
            state, granter, detacher, reach=reach, resumer=resumer, offers=self.requests
        )
        self._successors = Successors(state, detacher, suspender, self.requests)
        self._reducer = resumer.reducer
        self.redirects = Redirects(state)
        self._link_ids = link_ids
        self._random = random
        self._by_id: dict[LinkId, Uplink] = {}
        self.is_draining = False

    def find(self, link: LinkId) -> Uplink | None:
        """Returns the uplink that an attach of ours is for; None: it is not ours, or is over."""
        return self._by_id.get(link)

    def remember(self, key: LinkKey) -> None:
        """Records that the journal knows a link of ours, and all that is unsettled on it."""
        self._successors.remember(key)

    def review_way(self, uplink: Uplink) -> None:
        """Attaches a link to another site by another neighbor, if that is the next hop now.

        As long as no way is known, it stays where it is: a chain may outlast the news of its path.
        """
        hop = self._needs.find_hop(uplink) if uplink.roams else None
        if hop is None or hop == uplink.connection:
            return
        link = uplink.link
        if link is not None:
            self._detacher.detach(link, None, closed=False, keeping=NEVER_EXPIRES)
            uplink.kept = link if self._registry.suspended.get(link.key) is link else None
        elif uplink.id is not None:
            self._order(uplink, DetachLink(uplink.id, False))
        self._alarms.cancel(uplink.retry)
        self._forget_id(uplink)
        self._step(uplink, Input.LEFT)
        uplink.connection, uplink.failures = hop, 0
        if hop in self._containers:
            self._step(uplink, Input.CAME)
        self._expect(uplink)
        self.attach(uplink)

    def want(self, uplink: Uplink) -> None:
        """Attaches an uplink as soon as its container is there."""
        if not uplink.is_wanted:
            uplink.is_wanted = True
            self._expect(uplink)
        self.attach(uplink)

    def attach(self, uplink: Uplink) -> None:
        """Attaches an uplink if it is wanted, and may be."""
        connection = self._containers.get(uplink.connection)
        if self.is_draining or not uplink.is_wanted or connection is None:
            return
        if self._ledger.is_restoring and uplink.node.is_exact:
            return  # ``attach_waiting`` does; the link may have unsettled deliveries
        if uplink.roams and not self._ledger.is_on:
            return  # nothing is promised without a journal
        if not self._step(uplink, Input.WANTED):
            return
        self._successors.meet(uplink, connection)
        self._end_detached(uplink, connection)
        uplink.id = next(self._link_ids)
        self._by_id[uplink.id] = uplink
        is_to_receivers = uplink.role is Role.SENDER and not uplink.is_fallback
        is_far = is_sibling_name(uplink.container) or is_neighbor_name(uplink.container)
        if is_far and is_to_receivers:
            uplink.node.pending.add(uplink)
        command = self.requests.attach(uplink, uplink.id, connection)
        self._order(uplink, command)

    def came(self, uplink: Uplink) -> None:
        """Records that the container of an uplink is connected."""
        if not uplink.is_elsewhere:
            uplink.failures = 0
        if self._step(uplink, Input.CAME):
            self.attach(uplink)

    def left(self, uplink: Uplink) -> None:
        """Records that the connection of an uplink has ended."""
        if uplink.link is not None and uplink.link.connection is not None:
            self._lose(uplink, uplink.link, closed=False, condition=None)
        self._alarms.cancel(uplink.retry)
        self._forget_id(uplink)
        self._step(uplink, Input.LEFT)
        self._expect(uplink)
        if not uplink.is_elsewhere:
            self.redirects.leave(uplink)
        self.review_way(uplink)

    def place_lost(self, uplink: Uplink) -> None:
        """Has a link return that was redirected to a place where nothing is connected."""
        if uplink.is_elsewhere and not uplink.roams and uplink.step is Step.AWAY:
            self._step(uplink, Input.ENDED)
            self._pause(uplink)

    def shut(self, uplink: Uplink) -> None:
        """Records that the link of an uplink is being closed."""
        self._forget_id(uplink)
        self._step(uplink, Input.UNWANTED)

    def set_aside(self, uplink: Uplink, link: Link) -> None:
        """Detaches an uplink and leaves its link, attached or not, to others, suspended."""
        if link is uplink.link:
            self._forget_id(uplink)
            self._detacher.detach(link, None, closed=False, keeping=NEVER_EXPIRES)
        uplink.kept = None

    def end(self, uplink: Uplink, *, unsubscribes: bool) -> bool:
        """Ends an uplink in any state; returns whether its container is told.

        Args:
            uplink: which.
            unsubscribes: the container unbinds the queue that feeds it, too.
        """
        uplink.is_wanted = uplink.is_to_meet = False
        self.expect_no_more(uplink)
        self._alarms.cancel(uplink.retry)
        link, attachment = uplink.link or uplink.kept, uplink.id
        self._forget_id(uplink)
        uplink.kept = None
        while uplink.restored:
            self._detacher.expire(uplink.restored.pop())
        if link is not None:
            attachment = link.link
            self._detacher.detach(link, None, unsubscribes=unsubscribes)
        elif attachment is not None:
            self._order(uplink, DetachLink(attachment, True, unsubscribes=unsubscribes))
        self._step(uplink, Input.UNWANTED)
        self.redirects.leave(uplink)
        return attachment is not None

    def _end_detached(self, uplink: Uplink, connection: Connection) -> None:
        """Forgets what awaits dispositions (§2.7.6) on a link about to be attached again."""
        kept = uplink.kept
        if kept is not None and kept.is_detached:
            self._detacher.part(kept)
            if not self.requests.is_kept(uplink, connection):
                self._detacher.expire(kept)
        if kept is not None and kept.is_gone:
            uplink.kept = None

    def answered(self, uplink: Uplink, connection: Connection, event: LinkAttached) -> bool:
        """Handles the answer to an attach of ours; False: it is refused."""
        ours = event.target if uplink.role is Role.SENDER else event.source
        if ours is None or not self._step(uplink, Input.ANSWERED):
            return False  # the detach has the reason
        ignored = self.requests.find_ignored(uplink, event.source)
        if ignored is not None:
            self._decline(uplink, event.link, ignored)
            return False
        uplink.attached_at = self._turn.now
        uplink.there.was_attached = True
        subscribes = connection.capabilities.subscribes
        uplink.is_subscribed = uplink.subscription is not None and subscribes
        uplink.node.pending.discard(uplink)
        self.expect_no_more(uplink)
        uplink.link = self._joiner.join(uplink, connection, event)
        self._turn.touch(uplink.node)
        self._notices.add(
            "link.attached",
            connection=connection.id,
            container=uplink.connection,
            link=uplink.name,
            address=uplink.address_there,
        )
        return True

    def detached(self, uplink: Uplink, event: LinkDetached) -> None:
        """Records that the peer has ended, or refused, a link of ours."""
        link = uplink.link
        self._forget_id(uplink)
        uplink.error = event.condition
        is_routine = event.condition is not None and event.condition.name == DETACH_FORCED
        if link is not None and event.condition is None and not event.closed:
            is_routine = self._reducer.left(link, by_peer=True)
        if link is not None:
            self._lose(
                uplink,
                link,
                closed=event.closed,
                condition=event.condition,
                is_numbered=event.is_numbered,
            )
        elif uplink.has_map:
            self._is_not_resumed(uplink, event)
        if uplink.node.key.chain is not None:
            self._pass_refusal_back(uplink.node, event.condition)
        since = self._turn.now if uplink.attached_at is None else uplink.attached_at
        terms = self.requests.of(uplink)
        lasted = self._turn.now - since >= terms.retry_limit_seconds
        was_attached = uplink.step is Step.ATTACHED
        self._step(uplink, Input.ENDED)
        if was_attached and (is_routine or lasted):
            uplink.failures = 0
        if was_attached and self._turn.now - since >= REFUSED_SECONDS:
            uplink.told.clear()
        if was_attached and lasted:
            self.redirects.stood(uplink)
        if self.redirects.follow(uplink, event.condition):
            self._move(uplink)
        elif was_attached and is_routine:
            self._expect(uplink)
            self._try_again(uplink)
        else:
            self._pause(uplink)

    def _pass_refusal_back(self, node: Node, reason: Condition | None) -> None:
        """Tells the ingress of a chain why the egress, or a router before it, refuses it."""
        if not _is_refusal(reason):
            return
        for incoming in tuple(node.feeds):
            self._detacher.detach(incoming, reason)

    def stands(self, uplink: Uplink) -> bool:
        """Returns whether a link is attached, and not only until a transit hears of a refusal."""
        if uplink.step is not Step.ATTACHED or uplink.attached_at is None:
            return False
        return self._turn.now - uplink.attached_at >= REFUSED_SECONDS

    def _move(self, uplink: Uplink) -> None:
        """Attaches a link where a redirect leads, now or when the place has been reached."""
        self._expect(uplink)
        if uplink.connection in self._containers:
            self._try_again(uplink)
        else:
            self._step(uplink, Input.LEFT)

    def _decline(self, uplink: Uplink, link: LinkId, reason: Condition) -> None:
        """Detaches a link whose container does not apply all of its filters (§3.5.3)."""
        self._order(uplink, DetachLink(link, True, reason))
        self._forget_id(uplink)
        uplink.error = reason
        self._step(uplink, Input.ENDED)
        self._pause(uplink)

    def _pause(self, uplink: Uplink) -> None:
        """Attaches an uplink again after a pause, which grows with each failure.

        One that was redirected returns to its container.
        """
        terms = self.requests.of(uplink)
        uplink.failures += 1
        pause = pause_seconds(
            uplink.failures, terms.retry_seconds, terms.retry_limit_seconds, self._random
        )
        reason = NO_REASON if uplink.error is None else str(uplink.error)
        is_passed_back = uplink.node.key.chain is not None and _is_refusal(uplink.error)
        if not is_passed_back and uplink.is_news(reason):  # the ingress says what it is told
            self._notices.warn(
                "link.failed",
                container=uplink.connection,
                link=uplink.name,
                address=uplink.address_there,
                condition=reason,
                seconds=round(pause, 3),
            )
        if not uplink.roams:
            self.redirects.leave(uplink)
        self._expect(uplink)
        at = self._turn.now + pause
        uplink.retry = self._alarms.set(at, partial(self._try_again, uplink))

    def _is_not_resumed(self, uplink: Uplink, event: LinkDetached) -> None:
        """Records that a container has refused an attach with an unsettled map."""
        reason = event.condition
        if reason is not None and reason.name == NOT_IMPLEMENTED:
            uplink.there.resumes = False
            kept, uplink.kept = uplink.kept, None
            if kept is not None:
                self._detacher.expire(kept)

    def _try_again(self, uplink: Uplink) -> None:
        if self._step(uplink, Input.TIME):
            if uplink.connection not in self._containers:  # it left while the link was elsewhere
                self._step(uplink, Input.LEFT)
            self.attach(uplink)

    def restart(self, uplink: Uplink) -> None:
        """Attaches an uplink again that was just detached for that purpose."""
        kept = uplink.link
        if kept is not None and self._registry.suspended.get(kept.key) is kept:
            uplink.kept = kept
        self._forget_id(uplink)
        self._step(uplink, Input.ENDED)
        self._expect(uplink)
        self._try_again(uplink)

    def _lose(
        self,
        uplink: Uplink,
        link: Link,
        *,
        closed: bool,
        condition: Condition | None,
        is_numbered: bool = False,
    ) -> None:
        """Records that an uplink is detached; the state that it can resume is kept.

        Deliveries for which the container may still send dispositions (§2.7.6) are kept until the
        link is attached again.
        """
        is_numbered = is_numbered and not is_sibling(link.connection)
        is_kept = not closed and self.requests.is_kept(uplink, link.connection)
        keeping = WHILE_SPOKEN_OF if is_numbered else NOT_KEPT
        self._detacher.lost(
            link,
            closed=closed,
            condition=condition,
            keeping=NEVER_EXPIRES if is_kept else keeping,
            is_numbered=is_numbered,
        )
        if self._registry.suspended.get(link.key) is link:
            uplink.kept = link

    def _forget_id(self, uplink: Uplink) -> None:
        if uplink.id is not None:
            self._by_id.pop(uplink.id, None)
            self._turn.gate.recall(uplink, is_lost=True)
        uplink.id = None
        uplink.link = None
        if isinstance(uplink.kept, OutgoingLink):
            uplink.kept.is_resuming = False
        if uplink in uplink.node.pending:
            self._wait_not_for(uplink)

    def _wait_not_for(self, uplink: Uplink) -> None:
        """Stops a multicast's wait for a sibling that has not answered."""
        node = uplink.node
        node.pending.discard(uplink)
        self._registry.moved[node] = None
        self._granter.receivers_changed(node)
        self._turn.touch(node)

    def _step(self, uplink: Uplink, happening: Input) -> bool:
        step = next_step(uplink.step, happening)
        if step is not None:
            uplink.step = step
            if uplink.node.is_sought:
                self._registry.seek(uplink.node)
        return step is not None

    def _order(self, uplink: Uplink, command: AttachLink | DetachLink) -> None:
        connection = self._containers.get(uplink.connection)
        if connection is not None:
            self._turn.order_attach(uplink, connection, command)

    def _expect(self, uplink: Uplink) -> None:
        """Makes deliveries wait for a container, for a limited time."""
        node = uplink.node
        if uplink.role is Role.RECEIVER or not uplink.is_wanted or uplink.failover is not None:
            return
        if uplink.is_finishing:
            return  # it is sent nothing more
        is_lent = is_sibling_name(uplink.container) and uplink.terms.chain is None
        if is_lent and uplink.step is not Step.IDLE:
            return  # a sibling that ends a link or goes away has no receivers any more
        node.returning.add(uplink)
        seconds = self.requests.of(uplink).failover_seconds
        if seconds is None:
            return
        at = self._turn.now + seconds
        uplink.failover = self._alarms.set(at, partial(self._give_up, uplink))

    def expect_no_more(self, uplink: Uplink) -> None:
        """Ends the wait for a container."""
        self._alarms.cancel(uplink.failover)
        uplink.failover = None
        uplink.node.returning.discard(uplink)

    def _give_up(self, uplink: Uplink) -> None:
        """Ends the wait; ``failover`` stays set, so that no new wait begins."""
        uplink.node.returning.discard(uplink)
        kept, guarantee = uplink.kept, uplink.node.route.guarantee
        if isinstance(kept, OutgoingLink) and guarantee is not Guarantee.EXACTLY_ONCE:
            uplink.kept = None
            self._detacher.expire(kept)
        self._wait_not_for(uplink)


def _is_refusal(reason: Condition | None) -> bool:
    """Returns whether a router refuses a chain, of which its ingress is told."""
    return reason is not None and reason.name in _REFUSALS


def _no_notary() -> None:
    """Stands for the notary of a router that knows of no mesh."""
