"""Grants credit by the rules of ``links.credit``, and holds windows when budgets are used up.

Publishers of protocols without credit are ahead of it at any time. What they have settled is the
router's as soon as it has come (``node.in_custody``), and on exactly-once routes it is to be in the
journal; so there it is taken *ahead* of credit, and waits at its node. How much, is bounded in
octets: when a connection has ``AHEAD_OCTETS`` under way, or half of the process' budget is used,
nothing more is taken ahead, and the engine stops reading. Guests (``passage``) come over links of
AMQP 1.0, so they are granted as many at a time as their link may have credit. Where a limit of the
peer's withholds credit, nothing is taken ahead.
"""

from collections.abc import Iterable
from functools import partial
from typing import Final

from router.core.dividing import Divider, divides
from router.core.node import Direction, Feed, Node, feed_of_link
from router.core.reach import can_send_for, is_sibling, turns, width_for
from router.core.state import State
from router.links.credit import Hold, grant, is_over, reserve
from router.links.link import Connection, IncomingLink
from router.model.commands import GrantCredit, HoldWindow
from router.model.identity import LinkId

AHEAD_OCTETS: Final = 4 << 20
"""Payload without an outcome above which a connection gets nothing ahead of credit."""

POSTPONED_MOST: Final = 50_000
"""Deliveries of one link that are put off, above which it gets no credit (``postponing``)."""

AHEAD_DELIVERIES: Final = 1 << 16
"""The number beyond the credit that engines of this worker get: they do not count it."""


_LOOKS: Final = 6
"""Binary logarithm of how often links without credit are reviewed while the budget drains."""


class Granter:
    """Grants and revokes the credit of incoming links."""

    def __init__(self, state: State) -> None:
        self._turn = state.turn
        self._registry = state.registry
        self._reserve = reserve(state.registry.process.limit)
        self._over: dict[IncomingLink, None] = {}
        self._over_until = 0  # octets of the process below which links that are over are reviewed
        self._ledger = state.ledger
        self._held: set[Connection] = set()
        self._full: dict[IncomingLink, None] = {}
        self._paced: dict[Connection, dict[IncomingLink, None]] = {}
        self._ahead: set[Connection] = set()
        self._is_process_ahead = False
        self._alarms = state.alarms
        self._divider = Divider(state)
        self.is_draining = False

    def review(self) -> None:
        """Grants credit at the end of a turn."""
        self._lift_holds()
        for incoming in self._divider.take_asked():
            self.withdraw(incoming)
        if self._is_process_ahead:
            self._review_process()
        if self._full:
            full, self._full = self._full, {}
            self._turn.review_credits(full)
        while grantable := self._turn.take_grantable():  # a connection decides about all its links
            for incoming in grantable:
                self._consider(incoming)

    def receivers_changed(self, node: Node) -> None:
        """Reviews all senders of a node whose receivers, or their credit, have changed."""
        if node.is_express:
            return
        if divides(node):
            self._divider.fit(node)
        if node.is_vacant and not node.is_paused:
            self._turn.review_credits(node.feeds)
        elif node.width == 0 or node.is_paused:
            for incoming in node.feeds:
                if not node.is_paused and width_for(node, incoming):
                    self._turn.review_credit(incoming)  # a receiver without credit is no way for it
                elif not incoming.is_relayed:
                    self.withdraw(incoming)
        elif node.width != node.granted_width or node.has_ways:
            self._turn.review_credits(node.feeds)
            for incoming in node.feeds:
                is_held_to_ways = node.has_ways or is_sibling(incoming.connection)
                if is_held_to_ways and not width_for(node, incoming):
                    self.withdraw(incoming)
        elif node.can_send:
            self._turn.review_credits(node.uncredited)
            node.uncredited.clear()
        elif node.is_multicast:
            self._turn.review_credits(each for each in node.uncredited if can_send_for(node, each))
        node.granted_width = node.width
        if node.twin is not None and node.key.direction is Direction.PULL:
            self._review_turning(node.twin)

    def _review_turning(self, node: Node) -> None:
        """Reviews the senders whose deliveries may turn to the receivers of a node."""
        for incoming in node.feeds:
            if turns(node, incoming):
                if width_for(node, incoming):
                    self._turn.review_credit(incoming)
                else:
                    self.withdraw(incoming)

    def review_senders(self, node: Node) -> None:
        """Marks all senders of a node for review at the end of the turn."""
        self._turn.review_credits(node.feeds)

    def _consider(self, incoming: IncomingLink) -> None:
        link, connection = incoming.link, incoming.connection
        if link is None or connection is None:
            return
        if connection.is_ahead:
            self._is_ahead(connection)
        if self.is_draining:
            self._is_over_budget(incoming, connection)
            self._review_ahead(incoming)
            return
        if incoming.is_emptying or incoming.is_rewinding:
            return
        if incoming.is_reducing and not (incoming.is_express or connection.is_leaving):
            if not incoming.is_detached:
                self._let_resume(incoming, link, connection)
            return
        credit = self._find_credit(incoming, connection)
        may_be_ahead = connection.capabilities.sends_ahead or incoming.ahead is not None
        if credit is None:
            if may_be_ahead:
                self._review_ahead(incoming)
            changed = abs(incoming.postponed - incoming.beside)
            if not changed or 8 * changed < incoming.link_credit or incoming.credit <= 0:
                return
            credit = incoming.credit
        if may_be_ahead:
            incoming.offer_ahead(self._find_ahead(incoming, connection))
        incoming.grant(credit)
        incoming.beside = incoming.postponed
        order = GrantCredit(link, credit, ahead=incoming.ahead, beside=incoming.beside)
        self._turn.order(incoming, order)

    def _find_credit(self, incoming: IncomingLink, connection: Connection) -> int | None:
        """Returns the credit to grant on a link; None: no change."""
        if incoming.is_express or incoming.is_detached or connection.is_leaving:
            return None
        if self._is_over_budget(incoming, connection):
            return None
        if incoming.is_closing or incoming.postponed >= POSTPONED_MOST:
            credit = None
        elif incoming.is_relayed:
            credit = grant(
                incoming.link_credit, incoming.link_credit, incoming.credit, incoming.queued
            )
        else:
            node = feed_of_link(incoming).node
            if node.is_paused or (node.is_exact and self._ledger.is_stuck):
                return None
            if node.is_vacant and not is_sibling(connection):
                credit = grant(
                    incoming.link_credit, incoming.link_credit, incoming.credit, incoming.queued
                )
            elif not can_send_for(node, incoming):
                node.uncredited[incoming] = None
                credit = None
            else:
                width = width_for(node, incoming)
                if divides(node):
                    width = min(width, self._divider.share(node, incoming))
                credit = grant(incoming.link_credit, width, incoming.credit, incoming.queued)
        if incoming.adrift and (credit or incoming.credit) < len(incoming.adrift):
            credit = len(incoming.adrift)  # resuming a delivery takes credit like any other
        if credit is not None and (incoming.unsettled_limit or connection.pace is not None):
            credit = self._bounded(incoming, connection, credit)
        return credit

    def _let_resume(self, incoming: IncomingLink, link: LinkId, connection: Connection) -> None:
        """Grants credit for deliveries to resume, and for nothing else (§2.6.13)."""
        most = len(incoming.adrift)
        if not most and incoming.unconfirmed is not None:
            most = 1  # it is heard by what it gives back
        credit: int | None = most
        if incoming.has_given_all or incoming.credit >= most:
            return
        if incoming.unsettled_limit or connection.pace is not None:
            credit = self._bounded(incoming, connection, most)
        if credit is not None:
            incoming.grant(credit, empties=incoming.asks_all)
            self._turn.order(incoming, GrantCredit(link, credit, incoming.asks_all))

    def _bounded(self, incoming: IncomingLink, connection: Connection, credit: int) -> int | None:
        """Cuts credit to the limits of the peer; None: no credit is granted for now."""
        if incoming.unsettled_limit:
            wanted = min(credit, incoming.unsettled_limit)
            free = incoming.unsettled_limit - len(incoming.unsettled)
            if incoming.unconfirmed is not None:
                free -= len(incoming.unconfirmed.absent)
            if free < wanted:
                self._full[incoming] = None
                if (free - incoming.credit) * 2 < wanted - incoming.credit:
                    return None
                credit = free
            else:
                credit = wanted
        more = credit - incoming.credit
        if connection.pace is None or more <= 0:
            return credit if more > 0 else None
        granted = connection.pace.take(more, self._turn.now)
        if granted < more:
            self._grant_later(incoming, connection, more - granted)
        return incoming.credit + granted if granted else None

    def _grant_later(self, incoming: IncomingLink, connection: Connection, missing: int) -> None:
        """Reviews a link when its connection may get credit again."""
        assert connection.pace is not None
        waiting = self._paced.get(connection)
        if waiting is not None:
            waiting[incoming] = None
            return
        self._paced[connection] = {incoming: None}
        at = connection.pace.ready_at(missing, self._turn.now)
        self._alarms.set(at, partial(self._go_on, connection))

    def _go_on(self, connection: Connection) -> None:
        self._turn.review_credits(self._paced.pop(connection, {}))

    def withdraw(self, incoming: IncomingLink) -> None:
        """Asks for credit back that no receiver covers."""
        is_resuming = bool(incoming.adrift) or incoming.is_reducing
        if incoming.link is not None and incoming.credit > 0 and not is_resuming:
            if incoming.connection is not None and incoming.connection.pace is not None:
                incoming.connection.pace.give_back(incoming.credit, self._turn.now)
            incoming.withdraw_credit()
            ahead = self._ahead_while_asking(incoming)
            self._turn.order(incoming, GrantCredit(incoming.link, 0, drain=True, ahead=ahead))

    def ask(self, incoming: IncomingLink) -> bool:
        """Asks a sender to use up the credit that it may have, or to return it (§2.6.7).

        It gets no further credit before that. A sender that cannot drain gets the credit as well.

        Returns:
            whether it has credit now.
        """
        link, connection = incoming.link, incoming.connection
        if link is None or connection is None or incoming.is_relayed:
            return False
        if incoming.adrift or incoming.is_reducing:
            return False
        if incoming.is_emptying or incoming.is_rewinding or self.is_draining:
            return incoming.is_emptying
        credit = self._find_credit(incoming, connection) or incoming.credit
        if credit <= 0:
            return False
        drains = connection.capabilities.drains
        incoming.grant(credit, empties=drains)
        ahead = self._ahead_while_asking(incoming)
        self._turn.order(incoming, GrantCredit(link, credit, drain=drains, ahead=ahead))
        return True

    def rewind(self, incoming: IncomingLink) -> None:
        """Has a sender hear what was given back before it sends anything else.

        What it sends meanwhile is to go back, too (``forward``). It answers as it returns credit,
        behind all that it has sent with that.
        """
        link = incoming.link
        incoming.mark_rewound()
        if link is None or incoming.connection is None:
            return
        is_asked = not (incoming.is_draining or incoming.is_emptying)
        incoming.rewind(is_asked=is_asked)
        if is_asked:
            ahead = self._ahead_while_asking(incoming)
            command = GrantCredit(link, 0, drain=True, ahead=ahead, follows=True)
            self._turn.order(incoming, command)

    @staticmethod
    def _ahead_while_asking(incoming: IncomingLink) -> int | None:
        """Returns the limit beyond credit while credit is asked back; guests return all of it."""
        assert incoming.connection is not None
        if incoming.ahead is not None and incoming.connection.guest is not None:
            incoming.offer_ahead(0)
        return incoming.ahead

    def returned(self, incoming: IncomingLink, credit: int) -> None:
        """Records that a sender has returned credit."""
        if incoming.is_reducing and incoming.is_emptying:
            # returned credit was not needed; used-up credit may not have been enough
            incoming.has_given_all = incoming.credit > 0 or not incoming.adrift
        rewinds_again = incoming.rewinds_again
        incoming.return_credit(credit)
        if rewinds_again:
            self.rewind(incoming)
        self._turn.review_credit(incoming)
        if isinstance(incoming.queue, Feed):
            self._turn.touch(incoming.queue.node)

    # Ahead of credit

    def _find_ahead(self, incoming: IncomingLink, connection: Connection) -> int | None:
        """Returns how many settled deliveries are accepted beyond credit (module docstring)."""
        if not connection.capabilities.sends_ahead or not isinstance(incoming.queue, Feed):
            return None
        if connection.pace is not None or incoming.unsettled_limit or incoming.is_reducing:
            return None
        if not incoming.queue.node.is_exact:
            return None
        if self._ledger.is_stuck or self._is_ahead(connection):
            return 0
        if self.is_draining and connection.guest is None and not connection.outgoing:
            return 0  # it would go on for ever; whoever receives as well must be read
        return AHEAD_DELIVERIES if connection.guest is None else incoming.link_credit

    def _is_ahead(self, connection: Connection) -> bool:
        """Returns whether enough of a connection has been taken ahead of credit."""
        octets, process = connection.octets, self._registry.process
        most = min(AHEAD_OCTETS, octets.limit)
        if not connection.is_ahead:
            is_full = 2 * process.used >= process.limit
            if octets.used < most and not is_full:
                return False
            self._ahead.add(connection)
            if is_full and not self._is_process_ahead:
                self._is_process_ahead = True
                self._look_at(self._registry.parties)
        elif 2 * octets.used > most or 8 * process.used > 3 * process.limit:
            return True
        else:
            self._ahead.discard(connection)
        connection.is_ahead = not connection.is_ahead
        self._look_at([connection])
        return connection.is_ahead

    def _look_at(self, connections: Iterable[Connection]) -> None:
        for connection in connections:
            if connection.capabilities.sends_ahead:
                self._turn.review_credits(connection.incoming.values())

    def _review_process(self) -> None:
        """Allows more beyond the credit when enough of the process' budget is free again."""
        process = self._registry.process
        if 8 * process.used <= 3 * process.limit:
            self._is_process_ahead = False
            self._look_at(self._ahead)

    def _review_ahead(self, incoming: IncomingLink) -> None:
        """Grants an engine deliveries beyond the credit."""
        link, connection = incoming.link, incoming.connection
        if link is None or connection is None or incoming.is_draining or incoming.is_detached:
            return
        before, ahead = incoming.ahead, self._find_ahead(incoming, connection)
        if before == ahead or (ahead and before and 2 * before > ahead):
            return
        incoming.offer_ahead(ahead)
        self._turn.order(incoming, GrantCredit(link, incoming.credit, ahead=ahead))

    # Budgets

    def _is_over_budget(self, incoming: IncomingLink, connection: Connection) -> bool:
        if connection.is_held:
            self.hold(incoming, Hold.BUDGET, True)  # it may have been attached since
            return True
        if not connection.octets.is_spent:
            return self._is_over_share(incoming, connection)
        connection.is_held = True
        self._held.add(connection)
        for link in connection.incoming.values():
            self.hold(link, Hold.BUDGET, True)
        return True

    def _is_over_share(self, incoming: IncomingLink, connection: Connection) -> bool:
        """Returns whether a link keeps too much for what is left of the budgets (links.credit)."""
        process = self._registry.process
        left = min(process.left, connection.octets.left)
        incoming.is_over = is_over(incoming.octets, left, self._reserve)
        is_held = incoming.is_over and process.left <= 0
        if is_held or incoming.holds & Hold.BUDGET:
            self.hold(incoming, Hold.BUDGET, is_held)
        if incoming.is_over:
            self._over[incoming] = None
            until = process.limit - process.left - (process.limit >> _LOOKS)
            self._over_until = max(self._over_until, until)
        elif self._over:
            self._over.pop(incoming, None)
        return incoming.is_over

    def _review_over(self) -> None:
        """Reviews the links that keep too much, when some of the process' budget is free again.

        When a delivery of their own is settled, they are reviewed in any case.
        """
        process = self._registry.process
        if self._over and process.limit - process.left <= self._over_until:
            self._over_until = 0
            over, self._over = self._over, {}
            self._turn.review_credits(over)

    def _lift_holds(self) -> None:
        self._registry.process.report()
        self._review_over()
        if not self._held:
            return
        for connection in [c for c in self._held if c.octets.has_recovered]:
            connection.is_held = False
            self._held.discard(connection)
            for link in connection.incoming.values():
                self.hold(link, Hold.BUDGET, False)
                self._turn.review_credit(link)

    def connection_lost(self, connection: Connection) -> None:
        """Forgets a connection."""
        self._held.discard(connection)
        for incoming in connection.incoming.values():
            self._over.pop(incoming, None)
        self._ahead.discard(connection)
        self._paced.pop(connection, None)

    def hold(self, incoming: IncomingLink, reason: Hold, held: bool) -> None:
        """Holds a link's window for a reason, or ends that; orders only changes."""
        before = incoming.holds
        incoming.holds = before | reason if held else before & ~reason
        if incoming.link is not None and bool(before) is not bool(incoming.holds):
            self._turn.order(incoming, HoldWindow(incoming.link, bool(incoming.holds)))
