"""Forwarding: received deliveries go to receivers with credit, in the same turn if possible.

A received delivery becomes a pairing. If no delivery is queued before it and a receiver has credit,
it is sent at once; otherwise it waits in its link's queue, and the node is reviewed again whenever
it gets credit, a receiver, or a connection that is no longer congested (``Turn.touch``).

Order: one link's deliveries keep their order towards any one receiver. A delivery that a receiver
has returned goes back to its place in the queue. A delivery that no receiver with credit may have
is skipped, and deliveries that overtake it go only to receivers to which it cannot go. On a stored
route elders (``storing``) go before all others, whichever link they came on. What the message store
is given back it sends again before all that it sent later, so whatever is queued behind that goes
back with it.

Everything here handles runs; the branches for single deliveries are for unusual ones.
"""

import heapq
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from router.core import bulk
from router.core.copies import assign, with_ends
from router.core.credit import Granter
from router.core.forms import SERIAL_MASK, Forms, carried_tag, expires_at, pack_tag
from router.core.node import (
    Feed,
    Node,
    Taker,
    by_sequence,
    count_elders,
    feed_of,
    has_elders,
    in_custody,
    is_able,
    is_given_back_whole,
)
from router.core.reach import (
    comes_far,
    is_back,
    is_out_of_reach,
    is_sibling,
    open_links,
    receivers_for,
    stays_here,
)
from router.core.resume import Resumer
from router.core.settle import Settler
from router.core.state import State
from router.core.stream import Streams, streaming, takes_parts, too_large
from router.links import life
from router.links.link import OutgoingLink
from router.links.pairing import Fan, Pairing, gather
from router.links.tags import MAX_TAG_OCTETS
from router.model.delivery import Elder, OutgoingDelivery, ReceivedDelivery
from router.model.identity import DeliveryNumber, DeliveryTag
from router.model.outcome import RELEASED, Rejected
from router.routes.distribution import share
from router.routes.route import Distribution, Unroutable

_GREATEST_FIRST: Final = tuple(sorted({*Elder} - {Elder.NOT}, reverse=True))
"""The elders, in the order in which they are sent."""


class Forwarder:
    """Forwards deliveries."""

    def __init__(
        self,
        state: State,
        settler: Settler,
        streams: Streams,
        resumer: Resumer,
        forms: Forms,
        *,
        granter: Granter,
        goes_over: Callable[[Node, Pairing], bool],
    ) -> None:
        self._goes_over = goes_over
        self._settings = state.settings
        self._forms = forms
        self._turn = state.turn
        self._alarms = state.alarms
        self._ledger = state.ledger
        self._notices = state.notices
        self._settler = settler
        self._granter = granter
        self._rejections = state.rejections
        self._streams = streams
        self._resumer = resumer

    def received(self, feed: Feed, deliveries: Sequence[ReceivedDelivery]) -> None:
        """Handles a run of complete deliveries of one link for one node."""
        node = feed.node
        is_journaled = self._ledger.is_on and node.is_recorded
        if is_journaled:
            deliveries = self._ledger.screen(feed, deliveries)
        pairings = self.pair(feed, deliveries)
        if is_journaled:
            self._ledger.received(feed, pairings)
        if not pairings:
            return
        if feed.incoming.is_rewinding:
            self._send_back(feed, pairings)
            return
        if (
            not node.rotation
            and node.is_unrestricted
            and not (node.is_paused or node.has_ways)
            and len(node.outgoing) == 1
            and feed.incoming.partial is None
        ):
            link = node.outgoing[0]
            is_open = link.credit >= len(pairings) and not node.message_limit
            if is_open and is_able(link) and receivers_for(node, feed.incoming):
                node.turn += len(pairings)
                link.last_used = node.turn
                self._send_run(link, pairings)
                if link.is_draining:
                    self._turn.touch(node)
                return
        put = node.put
        for pairing in pairings:
            put(feed, pairing)
            if pairing.delivery.ttl_milliseconds is not None:
                self._watch(node, pairing)
        if node.route.ttl_seconds is not None:
            self._watch(node, pairings[0])
        self._turn.touch(node)

    def _send_back(self, feed: Feed, pairings: Sequence[Pairing]) -> None:
        """Gives back what was sent before its sender knew what else goes back, and goes before."""
        for pairing in pairings:
            self._settler.answer(pairing, RELEASED)
        self._granter.rewind(feed.incoming)

    def _watch(self, node: Node, pairing: Pairing) -> None:
        """Sets the alarm that answers a queued delivery when it expires."""
        at = expires_at(node, pairing)
        if at is not None and (node.expiry is None or at < node.expiry.at):
            self._alarms.cancel(node.expiry)
            node.expiry = self._alarms.set(at, partial(self._expire, node))

    def returned(self, feeds: Mapping[Feed, Sequence[Pairing]]) -> None:
        """Sets the alarms for the expiry of deliveries that are in their queues again."""
        for feed, pairings in feeds.items():
            for pairing in pairings:
                self._watch(feed.node, pairing)

    def _expire(self, node: Node) -> None:
        """Answers every queued delivery of a node that has expired."""
        node.expiry = None
        for feed in list(node.rotation):
            for pairing in list(feed.waiting):
                if self._is_expired(node, pairing):
                    node.withdraw(feed, pairing)
                    self._settler.expire(pairing)
                else:
                    self._watch(node, pairing)
            self._turn.review_credit(feed.incoming)

    def pair(self, feed: Feed, deliveries: Sequence[ReceivedDelivery]) -> list[Pairing]:
        """Makes pairings, except for deliveries that must not be forwarded."""
        incoming = feed.incoming
        unsettled = incoming.unsettled
        second = incoming.settles_second
        now = self._turn.now
        sequence = incoming.tally.deliveries
        if bulk.shortcuts is not None and isinstance(deliveries, list):
            made = bulk.shortcuts.pair(deliveries, incoming, feed, now, sequence, unsettled, second)
            if made is not None:
                incoming.tally.deliveries += len(made[0])
                incoming.tally.octets += made[1]
                incoming.tally.settled += made[2]
                self._settler.account(incoming, made[1])
                return made[0]
        octets = settled = 0
        pairings: list[Pairing] = []
        append, arrive = pairings.append, life.arrive
        for delivery in deliveries:
            if delivery.resume:
                self._resumer.resumed(incoming, delivery)
                continue
            sequence += 1
            octets += len(delivery.payload)
            number = delivery.number
            pairing = Pairing(incoming, number, delivery, feed, now, sequence, delivery.settled)
            if delivery.settled:
                settled += 1
            else:
                arrive(pairing)
                if delivery.settles_first or (delivery.settles_second and not second):
                    life.mark_unusual(pairing)
            if delivery.more:
                self._streams.begun(pairing)
            if delivery.hops and self._is_loop(feed, delivery):
                self._settler.answer(pairing, RELEASED)
            else:
                append(pairing)
        incoming.tally.deliveries = sequence
        incoming.tally.settled += settled
        incoming.tally.octets += octets
        self._settler.account(incoming, octets)
        return pairings

    def _is_loop(self, feed: Feed, delivery: ReceivedDelivery) -> bool:
        """Returns whether a delivery has returned to an earlier stop, or passed too many routers.

        Such a delivery is returned, so that its sender can send it elsewhere. A settled one cannot
        be returned: unless it has passed too many routers, it is sent to receivers here that do
        not lead back.
        """
        hops, own = delivery.hops, self._settings.router_id
        is_far = len(hops) >= self._settings.hop_limit
        is_back = feed.node.stop in hops or own in hops  # the latter is from an older life of ours
        if not (is_far or is_back):
            return False
        self._notices.add(
            "delivery.looped",
            link=feed.incoming.key.name,
            address=feed.node.key.address,
            condition=f"it passed {' > '.join(hops)}",
        )
        return is_far or not delivery.settled

    def pump(self, node: Node) -> None:
        """Sends the queued deliveries of a node as far as there is credit; elders go first."""
        if node.is_paused:
            return
        if node.standby:
            _put_older_first(node.rotation)
        if node.taker is not None and has_elders(node):
            for least in _GREATEST_FIRST:
                self._pump(node, least)
        if node.taker is not Taker.ELDERS:
            self._pump(node, Elder.NOT)
        if node.given_back:
            self._give_up_hopeless(node)

    def _pump(self, node: Node, least: Elder) -> None:
        """Sends as far as there is credit what is such an elder, or a greater one."""
        rotation = node.rotation
        stuck = 0  # feeds in a row that could send nothing
        while rotation and stuck < len(rotation):
            feed = rotation[0]
            if feed.waiting[0].elder < least:
                stuck += 1
                rotation.rotate(-1)
                continue
            receivers = receivers_for(node, feed.incoming)
            able = [link for link in receivers if is_able(link)]
            able = open_links(node, able, feed.incoming)
            if not able or (node.is_multicast and _misses_some(node, feed, receivers, able)):
                stuck += 1
                rotation.rotate(-1)
                continue
            if node.is_multicast:
                credit = min(link.credit for link in able)
            else:
                credit = sum(link.credit for link in able)
            before = len(feed.waiting)
            fair = credit if feed.incoming.takes_back else share(credit, len(rotation))
            if feed.waiting[0].elder:
                fair = count_elders(feed, least or Elder.TAKEN_BACK)
            self._send_from(node, feed, able, min(credit, fair), least)
            stuck = stuck + 1 if len(feed.waiting) == before else 0
            if node.taker is Taker.ELDERS and not stuck:
                self._turn.touch(node)  # it has another taker when they are gone
            node.count_sent(feed, before - len(feed.waiting))
            self._turn.review_credit(feed.incoming)
            if feed.waiting:
                rotation.rotate(-1)
            else:
                rotation.popleft()
                if feed.incoming not in node.feeds:
                    self._turn.leave(node)

    def _give_up_hopeless(self, node: Node) -> None:
        """Answers deliveries that every receiver has returned, though none of them has credit.

        The sender may be another worker or a router, which has receivers of its own; a client may
        send the message elsewhere. A delivery that some receiver may still accept is checked again
        when the node's receivers change (``Node.look_again``); one still being received may become
        too large for them. If the route holds deliveries, those of clients and containers wait for
        the first receiver that attaches or has credit.
        """
        if node.is_multicast or not node.outgoing or node.returning or node.awaited:
            return
        given_back, node.given_back = node.given_back, {}
        holds = node.route.unroutable is Unroutable.HOLD
        hopeless: dict[Feed, list[Pairing]] = {}
        for pairing in given_back:
            is_held = holds and not comes_far(pairing.incoming)
            stays = (_stays(pairing) or is_held) and not _may_divert(node, pairing)
            if not (stays or self._has_hope(node, pairing)):
                hopeless.setdefault(feed_of(pairing), []).append(pairing)
            elif node.pending or (pairing.parts is not None and not pairing.parts.is_complete):
                node.given_back[pairing] = None
            else:
                node.hopeful[pairing] = None
        for feed, pairings in hopeless.items():
            if is_given_back_whole(node):
                pairings = [*feed.waiting]  # noqa: PLW2901
            node.withdraw_all(feed, pairings)
            for pairing in sorted(pairings, key=by_sequence):
                self._give_up(node, pairing)
            if is_given_back_whole(node):
                self._granter.rewind(feed.incoming)
            self._turn.review_credit(feed.incoming)

    def _send_from(
        self, node: Node, feed: Feed, able: list[OutgoingLink], share: int, least: Elder
    ) -> None:
        """Sends up to ``share`` deliveries of a feed, for which the links have enough credit.

        A run of deliveries from routers ends where the list of passed routers changes. If the first
        one is special as many go as there is credit for; no elders below ``least``.
        """
        limit = node.message_limit
        waiting = feed.waiting
        batch: list[Pairing] = []
        hops = waiting[0].delivery.hops if node.has_ways else ()
        all_end = node.route.ttl_seconds is not None
        everyone = able
        if hops and not node.is_multicast:
            able = open_links(node, able, feed.incoming, hops)
            share = min(share, sum(link.credit for link in able))
        while waiting and len(batch) < share:
            pairing = waiting[0]
            delivery = pairing.delivery
            if (
                pairing.tried is not None
                or pairing.parts is not None
                or (limit and len(delivery.payload) > limit)
                or (node.has_ways and delivery.hops != hops)
            ):
                break
            del waiting[0]
            may_end = all_end or delivery.ttl_milliseconds is not None
            if may_end and self._is_expired(node, pairing):
                self._settler.expire(pairing)
            else:
                batch.append(pairing)
        if not batch:
            if waiting:
                self._send_special(node, feed, everyone, least)
        elif node.is_multicast:
            for pairing in batch:
                self._fan_out(node, pairing)
        elif len(able) == 1:
            node.turn += len(batch)
            able[0].last_used = node.turn
            self._send_run(able[0], batch)
        else:
            for link, run in allot(node, able, batch):
                self._send_run(link, run)

    def _is_expired(self, node: Node, pairing: Pairing) -> bool:
        at = expires_at(node, pairing)
        return at is not None and at <= self._turn.now

    def _send_special(self, node: Node, feed: Feed, able: list[OutgoingLink], least: Elder) -> None:
        """Sends a feed one by one, as its first delivery cannot go to every receiver."""
        kept: list[Pairing] = []
        waiting = feed.waiting
        everyone = receivers_for(node, feed.incoming) if node.is_multicast else []
        while waiting and able and not _lacks_credit(waiting[0], everyone):
            if waiting[0].elder < least:
                break
            pairing = waiting.popleft()
            if self._is_expired(node, pairing):
                node.forget_given_back(pairing)
                self._settler.expire(pairing)
                continue
            fit = self._fit(node, pairing, able)
            stays = not fit and _stays(pairing) and not _may_divert(node, pairing)
            if stays and not self._has_hope(node, pairing):
                life.try_again_from_first(pairing)
                fit = self._fit(node, pairing, able)
            if fit and node.is_multicast:
                self._fan_out(node, pairing)
            elif fit:
                ((link, _),) = allot(node, fit, [pairing])
                self._send_alone(link, pairing)
            elif self._has_hope(node, pairing):
                kept.append(pairing)
                continue
            elif is_given_back_whole(node):
                self._give_up_all(node, [pairing, *kept, *waiting])
                waiting.clear()
                self._granter.rewind(feed.incoming)
                return
            else:
                self._give_up(node, pairing)
            node.forget_given_back(pairing)
            able = [link for link in able if is_able(link)]
        waiting.extendleft(reversed(kept))

    def _give_up_all(self, node: Node, pairings: list[Pairing]) -> None:
        """Answers deliveries that have been taken out of a queue."""
        for pairing in pairings:
            node.forget_given_back(pairing)
            self._give_up(node, pairing)

    @staticmethod
    def _fit(node: Node, pairing: Pairing, able: list[OutgoingLink]) -> list[OutgoingLink]:
        """Returns the links with credit that a delivery can be sent on now."""
        parts = pairing.parts
        if parts is not None and parts.is_complete:  # gathered, or returned
            gather(pairing)
            parts = None
        if parts is not None and parts.is_stalled:
            return []
        if node.is_multicast:
            return able if parts is None or streaming(node) else []
        fit = [link for link in able if may_take(link, pairing)]
        if pairing.delivery.hops:
            fit = open_links(node, fit, pairing.incoming, pairing.delivery.hops)
        return fit if parts is None else [link for link in fit if takes_parts(link)]

    def _give_up(self, node: Node, pairing: Pairing) -> None:
        """Answers a delivery that every receiver has returned, or that is too large for them.

        If its route has a fallback it goes there first. One that was pulled from there is put off.
        One of a router goes to the receivers on the other side of its turn first (``turning``).
        """
        if pairing.incoming.takes_back:
            self._settler.postpone(pairing)
            return
        if self._divert(node, pairing) or self._goes_over(node, pairing):
            return
        receivers = receivers_for(node, pairing.incoming)
        small = [link for link in receivers if is_small(link, pairing)]
        if small and pairing.failure is None:
            life.set_failure(pairing, Rejected(too_large(small[0])))
        self._settler.give_up(pairing)

    def _divert(self, node: Node, pairing: Pairing) -> bool:
        """Sends a delivery that all others have returned to the fallback; False: it cannot go."""
        if not _may_divert(node, pairing):
            return False
        if pairing.parts is not None:
            gather(pairing)
        link = next((link for link in node.standby if _may_go(link, pairing)), None)
        if link is None:
            self._settler.postpone(pairing)  # it waits for credit there
        else:
            self._send_alone(link, pairing)
        return True

    def _has_hope(self, node: Node, pairing: Pairing) -> bool:
        """Returns whether some receiver may accept a queued delivery, now or later.

        If the route holds deliveries, this one waits for the first receiver behind the workers and
        routers to which the links lead, even if they have no receiver now.
        """
        if node.returning or node.awaited:
            return True
        if node.pending and not stays_here(node, pairing.incoming):
            return True
        receivers = receivers_for(node, pairing.incoming)
        if any(may_take(link, pairing) for link in receivers):
            return True
        is_held = node.route.unroutable is Unroutable.HOLD
        return is_held and all(link.ways == () for link in receivers)

    def _send_run(self, link: OutgoingLink, pairings: Sequence[Pairing]) -> None:
        """Sends deliveries within credit, all of one incoming link and none in parts."""
        now = self._turn.now
        is_unrestricted = (
            link.is_unrestricted
            and pairings[0].fan is None
            and not (pairings[0].incoming.is_delayed and _rewrites_some(pairings))
        )
        carries_tags, prefix = link.carries_tags, pairings[0].incoming.tag_prefix
        number = link.next_number
        unsettled = link.unsettled
        if carries_tags and link.update_numbers:  # a returned delivery may be sent with its old tag
            self._turn.flush_link(link)
        run = self._turn.run_of(link)
        if is_unrestricted and bulk.shortcuts is not None and isinstance(pairings, list):
            sent_octets = bulk.shortcuts.send(
                pairings,
                link,
                number,
                unsettled,
                run,
                prefix if carries_tags else None,
                MAX_TAG_OCTETS,
                link.carries_keys,
            )
            if sent_octets >= 0:
                _count_sent(link, len(pairings), sent_octets)
                return
        append, send = run.append, life.send
        octets = 0
        for pairing in pairings:
            delivery = pairing.delivery
            payload = delivery.payload
            octets += len(payload)
            if (
                not is_unrestricted
                or pairing.attempts
                or (delivery.ttl_milliseconds is not None and pairing.arrived != now)
            ):
                self._send_careful(link, pairing, DeliveryNumber(number))
                number += 1
                continue
            if carries_tags:
                tag = DeliveryTag(prefix + delivery.tag)
                if delivery.settled or len(tag) > MAX_TAG_OCTETS:
                    tag = carried_tag(pairing)
            else:
                tag = DeliveryTag(pack_tag(number & SERIAL_MASK))
            append(
                OutgoingDelivery(
                    DeliveryNumber(number),
                    tag,
                    payload,
                    delivery.protocol,
                    delivery.message_format,
                    state=delivery.state,
                    key=delivery.key if link.carries_keys else None,
                )
            )
            send(link, pairing, DeliveryNumber(number), tag)
            number += 1
        _count_sent(link, number - link.next_number, octets)

    def _send_alone(self, link: OutgoingLink, pairing: Pairing) -> None:
        """Sends one delivery, perhaps in parts."""
        if pairing.parts is None:
            self._send_run(link, (pairing,))
            return
        outgoing = self._forms.outgoing(link, pairing, DeliveryNumber(link.next_number))
        outgoing.settled = link.settles_on_send
        self._streams.start(link, pairing, outgoing)
        link.use_credit(1)
        link.tally.deliveries += 1

    def _send_careful(self, link: OutgoingLink, pairing: Pairing, number: DeliveryNumber) -> None:
        """Adds one delivery that needs special treatment to the link's run."""
        settled = link.settles_on_send
        outgoing = self._forms.outgoing(link, pairing, number)
        outgoing.settled = settled
        self._turn.send(link, outgoing)
        link.tally.fallback += link.is_fallback
        if settled:
            link.tally.settled += 1
            if link.is_recorded:
                self._ledger.sent_settled(link, [(pairing, outgoing.tag)])
            self._settler.sent_settled(pairing)
        else:
            life.send(link, pairing, number, outgoing.tag)
            if pairing.attempts:
                link.tally.redelivered += 1

    def _fan_out(self, node: Node, pairing: Pairing) -> None:
        """Sends a delivery to every receiver; each of them has credit."""
        node.turn += 1
        fan = pairing.fan = Fan(pairing)
        life.mark_unusual(pairing)
        receivers = receivers_for(node, pairing.incoming)
        served = assign(node, receivers, pairing.incoming, pairing.delivery)
        for link in receivers:
            if is_small(link, pairing):
                outcome = Rejected(too_large(link))
                self._rejections.by_router(pairing, outcome)
                fan.outcomes.append(outcome)
            if link not in served or not may_take(link, pairing):
                continue
            link.last_used = node.turn
            branch = Pairing(
                pairing.incoming,
                pairing.number,
                with_ends(pairing.delivery, served[link], self._settings.hop_limit),
                pairing.queue,
                pairing.arrived,
                pairing.sequence,
                pairing.is_settled,
                True,
            )
            branch.fan = fan
            branch.parts = pairing.parts
            self._send_alone(link, branch)
            if branch.outgoing_number in link.unsettled:
                fan.branches.add(branch)
        self._settler.fanned_out(pairing)


def _count_sent(link: OutgoingLink, count: int, octets: int) -> None:
    """Counts deliveries that were added to a link's run."""
    link.use_credit(count)
    link.tally.deliveries += count
    link.tally.octets += octets


def _rewrites_some(pairings: Sequence[Pairing]) -> bool:
    """Returns whether the header of a delayed delivery must tell of attempts, or of its age."""
    return any(
        each.delivery.delivery_count or each.delivery.ttl_milliseconds is not None
        for each in pairings
    )


def _misses_some(
    node: Node, feed: Feed, receivers: list[OutgoingLink], able: list[OutgoingLink]
) -> bool:
    """Returns whether a multicast sent now would miss a receiver."""
    if node.awaited:
        return True
    if len(able) < len(receivers) and _lacks_credit(feed.waiting[0], receivers):
        return True
    return bool(node.pending) and not stays_here(node, feed.incoming)


def _stays(pairing: Pairing) -> bool:
    """Returns whether a delivery that every receiver has returned is offered to them again."""
    return in_custody(pairing) and not life.is_refused(pairing)


def _put_older_first(rotation: deque[Feed]) -> None:
    """Lets what was pulled from a fallback go before what has come since."""
    for feed in tuple(rotation):
        if feed.incoming.takes_back:
            rotation.remove(feed)
            rotation.appendleft(feed)


def _may_divert(node: Node, pairing: Pairing) -> bool:
    """Returns whether a delivery may go to the fallback of its route, apart from credit."""
    if not node.standby or pairing.incoming.takes_back or node.is_multicast:
        return False
    if pairing.parts is not None and not pairing.parts.is_complete:
        return False
    return any(may_take(link, pairing) for link in node.standby)


def _may_go(link: OutgoingLink, pairing: Pairing) -> bool:
    return is_able(link) and may_take(link, pairing)


def _lacks_credit(pairing: Pairing, receivers: list[OutgoingLink]) -> bool:
    """Returns whether a multicast must wait for a receiver that does not only lead back."""
    hops = pairing.delivery.hops
    return any(not (is_able(link) or (hops and is_back(link, hops))) for link in receivers)


def may_take(link: OutgoingLink, pairing: Pairing) -> bool:
    """Returns whether a delivery may go to a receiver, apart from credit."""
    if pairing.tried is not None and link.trial in pairing.tried:
        return False
    if is_sibling(link.connection):
        node, incoming = feed_of(pairing).node, pairing.incoming
        if is_out_of_reach(node, link, incoming, stays_here(node, incoming)):
            return False
    hops = pairing.delivery.hops
    if hops and is_back(link, hops):
        return False
    return not is_small(link, pairing)


def is_small(link: OutgoingLink, pairing: Pairing) -> bool:
    """Returns whether a delivery exceeds the max-message-size of an untried receiver."""
    if pairing.tried is not None and link.trial in pairing.tried:
        return False
    limit, parts = link.max_message_octets, pairing.parts
    octets = len(pairing.delivery.payload) if parts is None else parts.octets
    return bool(limit) and octets > limit


def allot(
    node: Node, able: Sequence[OutgoingLink], pairings: Sequence[Pairing]
) -> list[tuple[OutgoingLink, list[Pairing]]]:
    """Distributes a run of deliveries as ``routes.distribution`` says.

    Receivers of a lower priority get the deliveries that higher ones have no credit for.

    Args:
        node: whose distribution and turn counter hold.
        able: receivers with credit, together enough for all.
        pairings: in order; each receiver gets its share in order.
    """
    by_cost = node.route.distribution is Distribution.CLOSEST
    heap = [
        (
            (-link.priority, link.cost if by_cost else 0),
            (len(link.unsettled) + link.elsewhere) // link.receivers,
            link.last_used,
            link.place,
            index,
        )
        for index, link in enumerate(able)
    ]
    heapq.heapify(heap)
    unsettled = [len(link.unsettled) + link.elsewhere for link in able]
    runs: list[list[Pairing]] = [[] for _ in able]
    for pairing in pairings:
        rank, _, _, place, index = heap[0]
        node.turn += 1
        link, run = able[index], runs[index]
        link.last_used = node.turn
        run.append(pairing)
        if len(run) >= link.credit:
            heapq.heappop(heap)
        else:
            unsettled[index] += not link.settles_on_send
            load = unsettled[index] // link.receivers
            heapq.heapreplace(heap, (rank, load, node.turn, place, index))
    return [(link, run) for link, run in zip(able, runs, strict=True) if run]
