"""Flows in both directions: windows, credit, drain and returned credit (§2.5.6, §2.6.7).

Theory of operation. Flows that are due are marked, and sent once a turn by ``flush``; a link's flow
carries its session's state, so it renews the window as well. A session whose window is half used
gets a flow of its own. A flow is always accepted and always sent, even with closed windows.

*Confirmed attaches.* An attach can be delayed on its way, with everything that its peer has sent
after it before it read anything: flows, if it receives. So where the core requires proof, the peer
is asked for an echo, and ``AttachConfirmed`` is emitted when a frame arrives that the peer cannot
have sent before it read our attach::

    where we send     a delivery-count of ours: from our initial one, new for each attach, to the
                      current one; a disposition of a sent delivery (``engine``)
    where we receive  credit that we have granted, or that is returned; a transfer (``incoming``)

A receiver that has not read our attach must omit the delivery-count (§2.7.4). Some send 0; so until
the attach is confirmed a count that cannot be ours is ignored.
"""

from collections.abc import Mapping
from typing import Any, Final, TypeGuard

import attrs

from router.model import serial
from router.model.commands import (
    AdvertiseWays,
    AwaitRecord,
    GrantCredit,
    HoldWindow,
    RecallDeliveries,
    ReportAttachConfirmed,
    ReportRecorded,
    ReportWaiting,
    ReturnCredit,
)
from router.model.events import (
    AttachConfirmed,
    CreditReturned,
    DeliveriesRecalled,
    DeliveriesRecorded,
    RecordAwaited,
    WaitingReported,
    WaysAdvertised,
)
from router.model.ways import (
    CREDIT_MOST,
    GAINS_MOST,
    STOP_CHARACTERS_MOST,
    STOPS_MOST,
    WAYS_MOST,
    Way,
    Ways,
)
from router.wire.v1_0 import windows
from router.wire.v1_0.endpoints import Endpoints
from router.wire.v1_0.faults import Fault, Rule
from router.wire.v1_0.link import (
    MOST_EXCESS,
    IncomingLink,
    Link,
    LinkPhase,
    OutgoingLink,
)
from router.wire.v1_0.outgoing import Outgoing
from router.wire.v1_0.performatives import Flow, encode
from router.wire.v1_0.session import Session
from router.wire.v1_0.state import LinkState
from router.wire.v1_0.types import Symbol, Uint, Ulong

WAYS: Final = Symbol("router:ways")
"""Property of a link's flow between routers: a list of ways, each a list: gains, then stops."""

GRANTED: Final = Symbol("router:granted")
"""Property next to it: for each way in turn, the credit that the receivers at its end grant; null:
as much as the link has. None at all if that holds for every way, as for an older router's."""

TRACED: Final = Symbol("router:traced")
"""Property next to it: true if deliveries are to carry the stops that they have passed."""

AHEAD: Final = Symbol("router:ahead")
"""Property of a flow between siblings: how much of link-credit is for settled deliveries alone."""

ATTACH_CONFIRMED: Final = "router:heard"
"""Property of a flow between siblings: the peer behind the link has confirmed the attach."""

RECORDED: Final = Symbol("router:recorded")
"""Property of a flow between siblings: the sender asks to hear when the deliveries before it are
durable; the receiver says that they are."""

OUTCOMES_RECORDED: Final = Symbol("router:outcomes-recorded")
"""The same of outcomes: the receiver asks, behind its dispositions, and the sender says so."""


WAITING: Final = Symbol("router:waiting")
"""Property of a flow between routers: so many deliveries of the link wait at the receiver, whose
own receivers have no credit for them."""

RECALLED: Final = Symbol("router:recalled")
"""The sender's answer: others can take them, so up to so many are to come back (``UNSENT``)."""


class Flowing:
    """Manages windows and credit of one connection.

    Attributes:
        reads_ways: the peer is a router, and advertises the ways on which it reaches receivers.
    """

    __slots__ = ("_endpoints", "_outgoing", "reads_ways")

    def __init__(self, endpoints: Endpoints, outgoing: Outgoing) -> None:
        self._endpoints = endpoints
        self._outgoing = outgoing
        self.reads_ways = False

    # --- received ---------------------------------------------------------------------------------

    def receive_flow(self, session: Session, flow: Flow) -> None:
        """Handles a flow (§2.7.4)."""
        windows.take_session_flow(session.state, flow, session.initial_outgoing_id)
        if flow.next_incoming_id is not None:
            session.read_id = flow.next_incoming_id
        link: LinkState | None = None
        if flow.handle is not None:
            link = session.state.links.get(flow.handle)
            if link is None:
                raise session.unknown(flow.handle)
            self._take_link_flow(link.owner, flow)
        elif flow.link_credit is not None or flow.delivery_count is not None or flow.drain:
            raise Fault(Rule.FLOW_FIELDS)
        elif flow.echo:
            self._owe(session)
        if session.waiting:
            self._outgoing.resume(session)
        if self._endpoints.express is not None and session.state.rings is not None:
            self._endpoints.express.opened(session.state, link)

    def _take_link_flow(self, link: Link, flow: Flow) -> None:
        if link.phase is not LinkPhase.ATTACHED:
            link.receive_frame()
            if not link.is_live:
                return
        if flow.properties and self._endpoints.settings.peer_is_trusted_router:
            if ATTACH_CONFIRMED in flow.properties:
                self._endpoints.runs.add(AttachConfirmed(link.link))
            is_sender = isinstance(link, OutgoingLink)
            for name, is_answered in ((RECORDED, is_sender), (OUTCOMES_RECORDED, not is_sender)):
                if name in flow.properties:
                    told = DeliveriesRecorded if is_answered else RecordAwaited
                    self._endpoints.runs.add(told(link.link))
        news = flow.properties if self.reads_ways and isinstance(flow.properties, dict) else {}
        if isinstance(link, OutgoingLink):
            if news:
                self._take_ways(link, news)
            self._take_credit(link, flow)
            if _is_number(waiting := news.get(WAITING)):
                self._endpoints.runs.add(WaitingReported(link.link, waiting))
        elif isinstance(link, IncomingLink):
            self._take_count(link, flow)
            if _is_number(recalled := news.get(RECALLED)):
                self._endpoints.runs.add(DeliveriesRecalled(link.link, recalled))
        if flow.echo:
            self._owe_link(link)

    def _take_ways(self, link: OutgoingLink, properties: Mapping[object, Any]) -> None:
        """Handles advertised ways; a malformed property is ignored."""
        entries = properties.get(WAYS)
        if type(entries) is not list or len(entries) > WAYS_MOST:
            return
        if all(map(_is_way, entries)):
            granted = _granted(properties.get(GRANTED), len(entries))
            ways: Ways = tuple(
                Way(tuple(map(str, stops)), int(gains), credit)
                for (gains, *stops), credit in zip(entries, granted, strict=True)
            )
            is_traced = properties.get(TRACED) is True
            self._endpoints.runs.add(WaysAdvertised(link.link, ways, is_traced))

    def _take_credit(self, link: OutgoingLink, flow: Flow) -> None:
        state = link.state
        if link.is_asking and _repeats_our_count(link, flow):
            self._endpoints.confirm_attach(link)
        elif link.is_asking:
            flow = attrs.evolve(flow, delivery_count=None)
        credit = windows.credit_of_sender(state, flow, link.initial_count)
        settled_only_from = self._settled_only_from(link, flow)
        has_changed = credit != state.credit or credit != state.granted
        has_changed = has_changed or flow.drain is not link.drain
        has_changed = has_changed or settled_only_from != link.settled_only_from
        state.credit = state.granted = credit
        link.drain, link.settled_only_from = flow.drain, settled_only_from
        if not flow.drain:
            link.return_due = False
        if has_changed or flow.drain:
            self._endpoints.runs.add(link.granted())
            self._endpoints.awaits_core |= state.lane is not None

    def _settled_only_from(self, link: OutgoingLink, flow: Flow) -> int | None:
        """Reads how much of the credit a sibling grants for settled deliveries alone."""
        if not (flow.properties and self._endpoints.settings.peer_is_trusted_router):
            return None
        ahead = flow.properties.get(AHEAD)
        if not isinstance(ahead, int):
            return None
        counted = link.initial_count if flow.delivery_count is None else flow.delivery_count
        return serial.add(counted, max(0, (flow.link_credit or 0) - ahead))

    def _take_count(self, link: IncomingLink, flow: Flow) -> None:
        if flow.delivery_count is None:
            return
        state = link.state
        has_our_credit = link.excess > 0 and 0 < (flow.link_credit or 0) <= state.allowance
        returned = windows.take_sender_count(state, flow.delivery_count)
        if link.is_asking and (has_our_credit or returned):
            self._endpoints.confirm_attach(link)
        # An answer to an earlier drain does not take away credit that was granted after it.
        answered = link.is_draining and not state.credit and (flow.drain or returned > 0)
        if answered:
            link.is_draining = False
        if returned or answered:
            left = state.credit + link.unreported
            self._endpoints.runs.add(CreditReturned(link.link, left))

    # --- commands ---------------------------------------------------------------------------------

    def grant(self, command: GrantCredit) -> None:
        """Sets a sending peer's credit."""
        link = self._endpoints.live(command.link)
        if not isinstance(link, IncomingLink):
            return
        if command.drain and not self._endpoints.connection.drains:
            self._take_away(link)
            return
        state = link.state
        link.settled_only_from = None
        if command.ahead is not None:
            link.settled_only_from = serial.add(state.delivery_count, command.credit)
        state.credit = command.credit + (command.ahead or 0)
        state.allowance = max(state.allowance, state.credit)
        if state.credit:
            link.excess = MOST_EXCESS
        link.is_draining = command.drain
        self._owe_link(link)

    def _take_away(self, link: IncomingLink) -> None:
        """Revokes the credit of a peer that cannot drain; deliveries may still be under way."""
        link.state.credit = 0
        link.is_draining = False
        self._owe_link(link)
        self._endpoints.runs.add(CreditReturned(link.link, 0))

    def advertise_ways(self, command: AdvertiseWays) -> None:
        """Advertises the ways on which receivers are reached, with the link's next flow."""
        link = self._endpoints.live(command.link)
        if isinstance(link, IncomingLink):
            link.ways, link.is_traced = command.ways, command.is_traced
            self._owe_link(link)

    def give_back(self, command: ReturnCredit) -> None:
        """Answers a drain, once the deliveries that wait for the window are sent."""
        link = self._endpoints.live(command.link)
        if not isinstance(link, OutgoingLink) or not link.drain:
            return
        if link.queue and link.state.credit:
            link.return_due = True
        else:
            self._outgoing.return_credit(link)

    def hold(self, command: HoldWindow) -> None:
        """Stops or resumes renewing the window of a link's session."""
        link = self._endpoints.live(command.link)
        if isinstance(link, IncomingLink):
            if link.session.hold(link, command.held):
                self._owe(link.session)

    # --- sent -------------------------------------------------------------------------------------

    def renew(self, session: Session) -> None:
        """Marks a flow as due if half of the window is used and the window is not held."""
        if windows.must_renew(session.state):
            self._owe(session)

    def _owe(self, session: Session) -> None:
        session.flow_due = True
        self._endpoints.due[session] = None

    def _owe_link(self, link: Link) -> None:
        link.session.links_due[link] = None
        self._endpoints.due[link.session] = None

    def flush(self, session: Session) -> None:
        """Sends the flows that are due; the flow of a link that is not attached yet stays due."""
        if not session.can_send:
            return
        links = session.links_due
        if links:
            session.links_due = {
                link: None for link in links if link.phase is LinkPhase.ATTACH_SENT
            }
            for link in links:
                if link.phase is LinkPhase.ATTACHED:
                    session.flow_due = False
                    session.send(self._link_flow(link))
        if session.flow_due:
            session.flow_due = False
            session.send(windows.session_flow(session.state))

    @staticmethod
    def _link_flow(link: Link) -> bytes:
        if isinstance(link, OutgoingLink):
            asks: dict[object, object] = {}
            if link.awaits_record and not link.queue:
                link.awaits_record = False
                asks[RECORDED] = True
            return windows.link_flow(
                link.state, link.queued_deliveries, link.drain, link.is_asking, asks or None
            )
        echo = link.is_asking and link.state.credit > 0
        if not isinstance(link, IncomingLink):
            return windows.link_flow(link.state, None, False, echo)
        ways, link.ways = link.ways, None
        properties = _ahead_properties(link)
        if link.awaits_record:
            link.awaits_record = False
            properties[OUTCOMES_RECORDED] = True
        if ways is None:
            return windows.link_flow(link.state, None, link.is_draining, echo, properties or None)
        body = b""
        for count in range(len(ways), -1, -1):  # or else without the longest ones
            told = properties
            if count or not ways:
                told = {**properties, **_told(ways[:count], is_traced=link.is_traced)}
            body = windows.link_flow(link.state, None, link.is_draining, echo, told or None)
            if len(body) <= link.session.max_body_octets:
                break
        return body

    def report_attach_confirmed(self, command: ReportAttachConfirmed) -> None:
        """Reports to a sibling that the peer behind a link has confirmed the attach."""
        link = self._endpoints.live(command.link)
        if link is not None:
            _send_property(link, ATTACH_CONFIRMED)

    def report_waiting(self, command: ReportWaiting) -> None:
        """Reports to a router how many deliveries of a link wait here."""
        link = self._endpoints.live(command.link)
        if isinstance(link, IncomingLink):
            _send_property(link, WAITING, Uint(command.count))

    def recall(self, command: RecallDeliveries) -> None:
        """Asks a router to return deliveries that wait there."""
        link = self._endpoints.live(command.link)
        if isinstance(link, OutgoingLink):
            _send_property(link, RECALLED, Uint(command.count))

    def await_record(self, command: AwaitRecord) -> None:
        """Asks a sibling to report when what was sent is durable; behind what still waits here.

        Dispositions that are due are sent before the flow that asks (``flush``).
        """
        link = self._endpoints.live(command.link)
        if isinstance(link, OutgoingLink | IncomingLink):
            link.awaits_record = True
            if isinstance(link, IncomingLink) or not link.queue:  # or else when that is empty
                self._owe_link(link)

    def report_recorded(self, command: ReportRecorded) -> None:
        """Reports to a sibling that what came on a link is durable."""
        link = self._endpoints.live(command.link)
        if link is not None:
            _send_property(link, RECORDED if isinstance(link, IncomingLink) else OUTCOMES_RECORDED)


def _send_property(link: Link, name: object, value: object = True) -> None:
    """Sends a flow of a link for the sake of a property."""
    if link.phase is not LinkPhase.ATTACHED:
        return
    state = link.state
    session = state.session
    flow = Flow(
        next_incoming_id=session.next_incoming_id,
        incoming_window=windows.renewed(session),
        next_outgoing_id=session.next_outgoing_id,
        outgoing_window=session.outgoing_window,
        handle=state.handle,
        delivery_count=state.delivery_count,
        link_credit=state.credit,
        drain=link.drain if isinstance(link, OutgoingLink) else False,
        properties={name: value, **_ahead_properties(link)},
    )
    link.session.send(encode(flow))


def _repeats_our_count(link: OutgoingLink, flow: Flow) -> bool:
    """Returns whether a receiver's delivery-count can only come from our attach."""
    counted, first = flow.delivery_count, link.initial_count
    if counted is None:
        return False
    return 0 <= serial.distance(first, counted) <= serial.distance(first, link.state.delivery_count)


def _ahead_properties(link: Link) -> dict[object, object]:
    """Returns the property that says how much of the credit is for settled deliveries alone."""
    ahead = link.ahead if isinstance(link, IncomingLink) else None
    return {} if ahead is None else {AHEAD: Uint(ahead)}


def _granted(told: Any, count: int) -> list[int | None]:
    """Reads the credit of a peer's ways; what is malformed counts as not told."""
    if type(told) is not list or len(told) != count:
        return [None] * count
    return [int(each) if _is_number(each) else None for each in told]


def _is_number(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and type(value) is not bool and 0 <= value <= CREDIT_MOST


def _is_way(entry: Any) -> bool:
    if type(entry) is not list or not 1 < len(entry) <= STOPS_MOST + 1:
        return False
    gains, *stops = entry
    if not isinstance(gains, int) or not 0 <= gains <= GAINS_MOST:
        return False
    return all(isinstance(stop, str) and len(stop) <= STOP_CHARACTERS_MOST for stop in stops)


def _told(ways: Ways, *, is_traced: bool) -> dict[object, object]:
    """Returns the properties that tell of ways."""
    told: dict[object, object] = {
        WAYS: [[Ulong(min(way.gains, GAINS_MOST)), *way.stops] for way in ways]
    }
    if any(way.credit is not None for way in ways):
        told[GRANTED] = [
            None if way.credit is None else Uint(min(way.credit, CREDIT_MOST)) for way in ways
        ]
    if is_traced:
        told[TRACED] = True
    return told
