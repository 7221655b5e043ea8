"""Session and link lifecycle: begin, end, attach and detach (§2.5, §2.6.3-6).

Theory of operation. The peer's begin is answered at once; its attach waits for the core's answer.
Links that the router initiates use sessions that the router begins (``begun``).

Names. A link is identified by its name and role between two containers (§2.6.1), so the pair is
unique within a connection: attaching a name that is attached already steals the link, and the first
holder is detached with ``stolen``. Only the core knows whether another connection of the same
container holds the name.

If the name of an attach of ours is not free until the peer's detach, the attach waits
(``_successors``).

A link that was detached but not closed keeps its unsettled deliveries: dispositions about them are
still valid (§2.7.6) until the link is attached again, its session ends, or too many are kept.
"""

from typing import Final, TypeVar

import attrs

from router.model.commands import AttachLink, DetachLink, RefuseLink
from router.model.condition import RESOURCE_LIMIT_EXCEEDED, STOLEN, Condition
from router.model.events import DeliveriesUpdated, LinkAttached, LinkDetached, SessionEnded
from router.model.identity import LinkId, LinkName
from router.model.outcome import RELEASED
from router.model.terminus import Coordinator, ReceiverSettleMode, Role, Source, Target
from router.model.url_address import path_of
from router.wire.v1_0.begun import OwnSessions
from router.wire.v1_0.endpoints import Endpoints
from router.wire.v1_0.faults import Fault, Rule
from router.wire.v1_0.fitting import (
    attach_of,
    fit_attach,
    source_address,
    target_address,
    too_small,
)
from router.wire.v1_0.frames import HEADER_OCTETS, MIN_MAX_FRAME_OCTETS
from router.wire.v1_0.link import IncomingLink, Link, LinkPhase, OutgoingLink, Step
from router.wire.v1_0.outgoing import Outgoing, forget
from router.wire.v1_0.performatives import Attach, Begin, Detach, End, encode
from router.wire.v1_0.session import Session, SessionPhase
from router.wire.v1_0.session import Step as SessionStep

_MOST_OCTETS: Final = (1 << 63) - 1
"""Largest possible message; a larger limit, as Azure's clients send it, means no limit."""

_AWAITED: Final = frozenset((LinkPhase.ATTACH_SENT, LinkPhase.DETACH_PIPE))
"""Phases in which an attach from the peer answers ours."""


class Attaching:
    """Begins and ends sessions, attaches and detaches links."""

    __slots__ = ("_endpoints", "_outgoing", "_own", "_successors")

    def __init__(self, endpoints: Endpoints, outgoing: Outgoing) -> None:
        self._endpoints = endpoints
        self._outgoing = outgoing
        self._own = OwnSessions(endpoints)
        self._successors: dict[tuple[str, Role], AttachLink] = {}

    # --- sessions ---------------------------------------------------------------------------------

    def receive_begin(self, channel: int, begin: Begin) -> None:
        """Handles a begin: the answer to ours, or a session of the peer's, answered at once."""
        endpoints = self._endpoints
        sessions = endpoints.connection.state.sessions
        if channel in sessions:
            raise Fault(Rule.CHANNEL_IN_USE, f"channel {channel}")
        if begin.remote_channel is not None:
            session = endpoints.outgoing.get(begin.remote_channel)
            if session is None or session.remote_channel is not None:
                raise Fault(Rule.REMOTE_CHANNEL, f"remote-channel {begin.remote_channel}")
            session.receive_begin(channel, begin)
        else:
            own = endpoints.free_channel()
            if own is None:
                raise Fault(Rule.NO_CHANNEL_LEFT)
            session = self._own.make()
            session.receive_begin(channel, begin)
            endpoints.outgoing[own] = session
            session.send_begin(own, endpoints.settings.handle_max)
        sessions[channel] = session.state

    def receive_end(self, channel: int, session: Session, end: End) -> None:
        """Handles an end, and answers it if ours was not the first (§2.5.2)."""
        session.step(SessionStep.R_END)
        del self._endpoints.connection.state.sessions[channel]
        if session.phase is SessionPhase.END_RCVD:
            session.send_end()
            self._lose_links(session, end.error)
        self._endpoints.outgoing.pop(session.state.channel, None)

    def end(self, session: Session, condition: Condition) -> None:
        """Ends a session after a fault (§2.5.4)."""
        session.send_end(condition)
        self._lose_links(session, condition)

    def _lose_links(self, session: Session, condition: Condition | None) -> None:
        """Reports every link of a session as lost; sends attaches that waited for their names."""
        self._own.forget(session)
        self._endpoints.due.pop(session, None)
        lost = dict.fromkeys(session.by_handle.values())
        lost |= dict.fromkeys(state.owner for state in session.state.links.values())
        for link in lost:
            if link.phase is LinkPhase.ATTACH_RCVD:
                self._endpoints.miss(link.link)
            self._give_back(link)
            self._endpoints.lose(link, False, condition)
            self._leave_lane(link)
            self._forget_unsettled(link)
        for suspended in [
            each for each in self._endpoints.suspended.values() if each.session is session
        ]:
            self._forget_unsettled(suspended)
        self._endpoints.runs.add(SessionEnded(session.state.channel))
        for link in lost:
            self._free(link)

    def lose_all(self) -> None:
        """Reports unsent deliveries as released when the connection ends."""
        for link in self._endpoints.links.values():
            self._give_back(link)
            self._leave_lane(link)

    # --- attach, received -------------------------------------------------------------------------

    def receive_attach(self, session: Session, attach: Attach) -> None:
        """Handles an attach: a request of the peer's, or its answer to ours (§2.6.3)."""
        endpoints = self._endpoints
        if attach.handle > endpoints.settings.handle_max:
            limit = f"limits.links_per_session: {endpoints.settings.handle_max + 1}"
            raise Fault(Rule.HANDLE_MAX, f"handle {attach.handle}; {limit}")
        if attach.handle in session.state.links:
            raise Fault(Rule.HANDLE_TAKEN, f"handle {attach.handle}")
        role = attach.role.other
        known = endpoints.names.get((attach.name, role))
        if known is not None and known.session is session and known.phase in _AWAITED:
            self._take_answer(known, attach)
            return
        if known is not None:
            self._free_name(session, known, attach)
        if session.state.is_open:
            self._take_request(session, role, attach)

    def _free_name(self, session: Session, known: Link, attach: Attach) -> None:
        """Ends the link that holds the name of a new attach, unless it is ending already."""
        if (
            known.phase is LinkPhase.DISCARDING
            and known.session is session
            and attach.unsettled is None
        ):
            raise Fault(Rule.ATTACH_AFTER_ERROR, f"link {attach.name!r}")
        if known.is_live:
            stolen = Condition(STOLEN, "the link was attached again elsewhere (§2.6.1)")
            self.detach(known, True, stolen)
        self._endpoints.free_name(known)

    def _take_request(self, session: Session, role: Role, attach: Attach) -> None:
        endpoints = self._endpoints
        self._forget_suspended(attach.name, role)
        link = self._make_link(session, next(endpoints.settings.link_ids), attach.name, role)
        link.receive_attach(attach)
        self._take_modes(link, attach)
        if role is Role.RECEIVER and attach.initial_delivery_count is None:
            raise Fault(Rule.INITIAL_DELIVERY_COUNT, f"link {attach.name!r}", link)
        endpoints.links[link.link] = link
        self._report(link, attach, is_answer=False)

    def _take_answer(self, link: Link, attach: Attach) -> None:
        link.receive_attach(attach)
        self._take_modes(link, attach)
        if link.phase is not LinkPhase.ATTACHED:
            return  # detached meanwhile: the link now waits for the peer's detach
        if link.state.role is Role.RECEIVER and attach.initial_delivery_count is None:
            raise Fault(Rule.INITIAL_DELIVERY_COUNT, f"link {attach.name!r}", link)
        self._report(link, attach, is_answer=True)
        self._enter_lane(link)
        if link in link.session.links_due:
            self._endpoints.due[link.session] = None

    @staticmethod
    def _take_modes(link: Link, attach: Attach) -> None:
        """Applies what the peer decides: its own settle mode and its limits."""
        state = link.state
        if state.role is Role.RECEIVER:
            state.sender_settle_mode = attach.snd_settle_mode.value
            state.delivery_count = attach.initial_delivery_count or 0
        else:
            state.settles_second = attach.rcv_settle_mode is ReceiverSettleMode.SECOND
            state.max_message_octets = _largest_message(attach)

    def _report(self, link: Link, attach: Attach, is_answer: bool) -> None:
        self._endpoints.runs.add(
            LinkAttached(
                link=link.link,
                name=LinkName(attach.name),
                role=link.state.role,
                is_answer=is_answer,
                source=attach.source if is_answer else _plain(attach.source),
                target=attach.target if is_answer else _plain(attach.target),
                sender_settle_mode=attach.snd_settle_mode,
                receiver_settle_mode=attach.rcv_settle_mode,
                unsettled=attach.unsettled,  # type: ignore[arg-type]  # a tag is bytes there
                incomplete_unsettled=attach.incomplete_unsettled,
                max_message_octets=_largest_message(attach),
                offered_capabilities=attach.offered_capabilities,
                desired_capabilities=attach.desired_capabilities,
                properties=attach.properties or {},
                may_be_late=not is_answer,
                session=link.session.state.channel,
            )
        )

    def _make_link(self, session: Session, link_id: LinkId, name: str, role: Role) -> Link:
        state = self._endpoints.states.LinkState(link_id, name, role, session.state)
        kind = IncomingLink if role is Role.RECEIVER else OutgoingLink
        link = kind(state, session)
        if isinstance(link, OutgoingLink):
            state.delivery_count = link.initial_count = self._endpoints.initial_id
        self._endpoints.names[link.key] = link
        return link

    # --- attach, sent -----------------------------------------------------------------------------

    def attach(self, command: AttachLink) -> None:
        """Attaches our end: the answer to the peer's request, or a link that we initiate."""
        endpoints = self._endpoints
        link = endpoints.links.get(command.link)
        if link is not None:
            if link.phase is LinkPhase.ATTACH_RCVD:
                self._send_attach(link, command)
            return
        if command.link in endpoints.missed:
            del endpoints.missed[command.link]
            return
        key = (str(command.name), command.role)
        known = endpoints.names.get(key)
        if known is not None and not known.is_live:
            self._successors[key] = command
            return
        self._forget_suspended(*key)
        session = self._own.find(command.role)
        if session is None:
            self._refuse_own(command, Condition(RESOURCE_LIMIT_EXCEEDED, "no channel is left"))
            return
        link = self._make_link(session, command.link, command.name, command.role)
        endpoints.links[link.link] = link
        self._send_attach(link, command)

    def _refuse_own(self, command: AttachLink, condition: Condition) -> None:
        """Reports that a link that we initiate cannot be attached."""
        link = self._make_link(self._own.make(), command.link, command.name, command.role)
        self._endpoints.links[link.link] = link
        self._endpoints.free_name(link)
        self._endpoints.lose(link, False, condition)

    def _send_attach(self, link: Link, command: AttachLink) -> None:
        session = link.session
        handle = session.free_handle()
        if handle is None:
            self._give_up(link, Condition(RESOURCE_LIMIT_EXCEEDED, "no handle is left"))
            return
        link.state.handle = handle
        if command.challenge is not None and isinstance(link, OutgoingLink):
            link.state.delivery_count = link.initial_count = command.challenge
        if link.phase is LinkPhase.ATTACH_RCVD and link.remote is not None:
            command = _as_asked(command, link.remote)
        body = encode(attach_of(command, handle, link.state.delivery_count))
        if len(body) > self._max_body_octets:
            is_answer = link.phase is LinkPhase.ATTACH_RCVD
            fit = fit_attach(command, self._max_body_octets, is_answer=is_answer)
            if fit is None:
                self._give_up(link, too_small("attach", len(body), self._max_body_octets))
                return
            body = encode(attach_of(fit, handle, link.state.delivery_count))
        link.step(Step.S_ATTACH)
        session.by_handle[handle] = link
        self._keep_own_modes(link, command)
        session.send(body)
        if command.challenge is not None:
            self._ask(link)
        if link.phase is LinkPhase.ATTACHED:
            self._enter_lane(link)

    def _ask(self, link: Link) -> None:
        """Asks the peer to prove that it has read our attach; a sender is asked with its credit."""
        link.is_asking = True
        if isinstance(link, OutgoingLink):
            link.session.links_due[link] = None
            self._endpoints.due[link.session] = None

    @property
    def _max_body_octets(self) -> int:
        """Largest body of an attach that the peer accepts, in octets."""
        remote = self._endpoints.connection.remote
        return (MIN_MAX_FRAME_OCTETS if remote is None else remote.max_frame_size) - HEADER_OCTETS

    @staticmethod
    def _keep_own_modes(link: Link, command: AttachLink) -> None:
        if isinstance(link, IncomingLink):
            is_second = command.receiver_settle_mode is ReceiverSettleMode.SECOND
            link.state.settles_second = is_second
            link.state.max_message_octets = command.max_message_octets
            link.takes_resumed_only = command.incomplete_unsettled
            link.name_target(command.target)
        else:
            link.state.sender_settle_mode = command.sender_settle_mode.value

    def _enter_lane(self, link: Link) -> None:
        if self._endpoints.express is not None:
            self._endpoints.express.register(link.state)

    def _leave_lane(self, link: Link) -> None:
        if self._endpoints.express is not None:
            self._endpoints.express.forget(link.state)

    def _give_up(self, link: Link, condition: Condition) -> None:
        """Ends a link whose attach cannot be sent; a request from the peer is refused."""
        if link.phase is LinkPhase.ATTACH_RCVD:
            self._refuse_with(link, condition)
        else:
            link.unmap()
            self._free(link)
        self._endpoints.lose(link, False, condition)

    def refuse(self, command: RefuseLink) -> None:
        """Refuses an attach request from the peer (§2.6.3)."""
        link = self._endpoints.links.get(command.link)
        self._endpoints.missed.pop(command.link, None)
        if link is not None and link.phase is LinkPhase.ATTACH_RCVD:
            del self._endpoints.links[command.link]
            self._refuse_with(link, command.condition)

    def _refuse_with(self, link: Link, condition: Condition | None) -> None:
        """Attaches without a terminus and detaches.

        The session ends if no handle is free, or if the refusal does not fit a frame either
        (§2.7.3).
        """
        handle = link.session.free_handle()
        if handle is None:
            self.end(link.session, Fault(Rule.NO_HANDLE_LEFT).condition)
            return
        link.state.handle = handle
        body = self._fit_refusal(link)
        if body is None:
            most = self._max_body_octets
            self.end(link.session, too_small("attach", len(encode(link.refusal())), most))
            self._endpoints.missed.pop(link.link, None)
            return
        link.session.by_handle[handle] = link
        link.step(Step.S_ATTACH)
        link.session.send(body)
        if link.phase is LinkPhase.ATTACHED:
            link.send_detach(True, condition)

    def _fit_refusal(self, link: Link) -> bytes | None:
        """Encodes a refusal that fits a frame; None: the link's name alone is too long."""
        refusal = link.refusal()
        lean = attrs.evolve(
            refusal,
            source=source_address(refusal.source),
            target=target_address(refusal.target),
        )
        for each in (refusal, lean, attrs.evolve(refusal, source=None, target=None)):
            body = encode(each)
            if len(body) <= self._max_body_octets:
                return body
        return None

    # --- detach -----------------------------------------------------------------------------------

    def receive_detach(self, link: Link, detach: Detach) -> None:
        """Handles a detach, and answers it if ours was not the first (§2.6.4-6)."""
        was_live = link.is_live
        if link.phase is LinkPhase.ATTACH_RCVD:
            self._endpoints.miss(link.link)
        if was_live:
            self._give_back(link)
        link.receive_detach()
        if link.phase is LinkPhase.REFUSE_DUE:
            self._refuse_with(link, None)
        if link.phase is LinkPhase.DETACH_RCVD:
            link.send_detach(detach.closed)
        if was_live:
            self._leave_behind(link, detach.closed, detach.error)
        self._free(link)

    def detach(self, link: Link, closed: bool, condition: Condition | None) -> None:
        """Detaches our end on our own initiative."""
        self._give_back(link)
        if link.phase is not LinkPhase.ATTACH_RCVD:
            link.send_detach(closed, condition)
        else:
            self._endpoints.miss(link.link)
            self._refuse_with(link, condition)
        self._leave_behind(link, closed, condition)

    def execute_detach(self, command: DetachLink) -> None:
        """Detaches our end as ordered by the core."""
        for key in [key for key, each in self._successors.items() if each.link == command.link]:
            del self._successors[key]
        link = self._endpoints.live(command.link)
        if link is not None:
            self.detach(link, command.closed, command.condition)

    def _give_back(self, link: Link) -> None:
        """Reports unsent deliveries of a link as released."""
        if isinstance(link, OutgoingLink) and link.queue:
            unsent = self._outgoing.drop_waiting(link)
            if unsent:
                update = DeliveriesUpdated(link.link, unsent, RELEASED, True, is_unsent=True)
                self._endpoints.runs.add(update)

    def _leave_behind(self, link: Link, closed: bool, condition: Condition | None) -> None:
        """Releases a detached link's resources; unsettled deliveries stay unless it is closed."""
        is_numbered = not closed and condition is None and self._has_unsettled(link)
        self._endpoints.lose(link, closed, condition, is_numbered=is_numbered)
        session = link.session
        session.links_due.pop(link, None)
        if isinstance(link, IncomingLink) and session.hold(link, False):
            session.flow_due = True
            self._endpoints.due[session] = None
        self._leave_lane(link)
        if not is_numbered:
            self._forget_unsettled(link)
            return
        oldest = self._endpoints.suspend(link)
        if oldest is not None:
            self._forget_unsettled(oldest)
            self._endpoints.runs.add(LinkDetached(oldest.link, False))

    @staticmethod
    def _has_unsettled(link: Link) -> bool:
        """Returns whether a link has unsettled deliveries, or may have some on its lane.

        Deliveries that lanes have given up are entered here by the core
        (``Session.adopt_outgoing``).
        """
        state = link.state
        if state.unsettled or state.queued:
            return True
        if isinstance(link, OutgoingLink):
            return bool(link.ids)
        return any(each is link for each in link.session.incoming.values())

    def settled(self, link: Link) -> None:
        """Records that the peer has settled deliveries, perhaps the last of a detached receiver."""
        if isinstance(link, OutgoingLink) and link.link in self._endpoints.suspended:
            if not self._has_unsettled(link):
                self._forget_unsettled(link)
                self._endpoints.runs.add(LinkDetached(link.link, False))

    def _forget_suspended(self, name: str, role: Role) -> None:
        """Forgets the deliveries of a suspended link of this name; their delivery-ids are void."""
        suspended = self._endpoints.suspended.values()
        for link in [each for each in suspended if each.key == (name, role)]:
            self._forget_unsettled(link)

    def _forget_unsettled(self, link: Link) -> None:
        link.is_void = True
        self._endpoints.suspended.pop(link.link, None)
        if isinstance(link, OutgoingLink):
            forget(link, list(link.ids))
            return
        incoming = link.session.incoming
        for delivery_id in [key for key, each in incoming.items() if each is link]:
            del incoming[delivery_id]

    def _free(self, link: Link) -> None:
        """Frees the handle and name of a link that is gone; attaches a link that waited for it."""
        session = link.session
        if session.by_handle.get(link.state.handle) is link:
            session.release_handle(link.state.handle)
        if self._endpoints.names.get(link.key) is not link:
            return
        self._endpoints.free_name(link)
        successor = self._successors.pop(link.key, None)
        if successor is not None:
            self.attach(successor)


def _largest_message(attach: Attach) -> int:
    """Returns the peer's max-message-size in octets; 0: no limit (§2.7.3)."""
    most = attach.max_message_size or 0
    return most if most <= _MOST_OCTETS else 0


_Terminus = TypeVar("_Terminus", Source | None, Target | Coordinator | None)


def _plain(terminus: _Terminus) -> _Terminus:
    """Returns a terminus whose address is no URL."""
    if not isinstance(terminus, Source | Target) or terminus.address is None:
        return terminus
    address = path_of(terminus.address)
    return terminus if address == terminus.address else attrs.evolve(terminus, address=address)


def _as_asked(answer: AttachLink, asked: Attach) -> AttachLink:
    """Returns an answer with its addresses as the peer wrote them, which may have been URLs.

    Some clients compare the addresses of the answer with what they have asked for.
    """
    source, target = _written(answer.source, asked.source), _written(answer.target, asked.target)
    if source is answer.source and target is answer.target:
        return answer
    return attrs.evolve(answer, source=source, target=target)


def _written(terminus: _Terminus, asked: _Terminus) -> _Terminus:
    if not isinstance(terminus, Source | Target) or not isinstance(asked, Source | Target):
        return terminus
    url = asked.address
    if url is None or url == terminus.address or path_of(url) != terminus.address:
        return terminus
    return attrs.evolve(terminus, address=url)
