"""The hot state of connections, sessions and links: what every transfer and disposition touches.

Theory of operation. These objects are the one truth about counters, shared by the engine and the
express lane's kernel; neither keeps a copy. The kernel brings classes of its own with the same
attributes, and more (``kernel/state.pxi``); these here serve where there is none. They have no
behavior: §2.5.6 and §2.6.7 are done to them by ``windows`` and by the kernel. ``owner`` leads back
from each to its machine.

All ids and delivery-counts are serial numbers of 32 bits (RFC 1982); windows and credits are plain
numbers that never fall below 0, whatever the peer says.
"""

from collections.abc import Sized
from typing import Any

from router.model.identity import LinkId
from router.model.terminus import Role
from router.wire.octets import SendBuffer


class Output(SendBuffer):
    """A connection's send buffer.

    Attributes:
        high_octets, low_octets: marks of congestion, which the express lane heeds.
    """

    __slots__ = ("high_octets", "low_octets")

    def __init__(self, high_octets: int = 1 << 20, low_octets: int = 1 << 18) -> None:
        super().__init__()
        self.high_octets = high_octets
        self.low_octets = low_octets


class LinkState:
    """One link endpoint of ours.

    Attributes:
        link: its identity.
        handle: ours, in frames that we send (§2.6.2).
        session: the session it is attached to.
        delivery_count: as we send it, or as we have counted it from the peer's (§2.6.7).
        credit: deliveries that the side which sends may still send.
        allowance: where we receive: the most that the peer may still believe to have; more than
            ``credit`` after it was lowered, since transfers may have been under way; below 0 by
            what came beyond it all the same.
        granted: where we send: the credit that the peer's last flow gave.
        is_open: attached on both sides and not detaching; the express lane stays away otherwise.
        in_progress: a delivery in several frames has begun and not ended; the express lane stays
            away meanwhile.
        settles_second: the receiver settles after the sender (§2.8.3).
        sender_settle_mode: as agreed (§2.8.2): 0 unsettled, 1 settled, 2 mixed.
        max_message_octets: the largest message that who receives takes, the peer or we; 0: no
            limit.
        deliveries: how many have passed on the general path, in its direction.
        payload_octets: how many of the deliveries' octets have passed there.
        owner: the link machine.
        lane: the express lane it is on; None: on none. What follows is the lane's own.
        unsettled: deliveries of the lane that are not settled on this link.
        queued: where we receive: deliveries of the lane that wait for a receiver's credit.
    """

    __slots__ = (
        "__weakref__",
        "allowance",
        "credit",
        "deliveries",
        "delivery_count",
        "granted",
        "handle",
        "in_progress",
        "is_open",
        "lane",
        "link",
        "max_message_octets",
        "name",
        "owner",
        "payload_octets",
        "queued",
        "role",
        "sender_settle_mode",
        "session",
        "settles_second",
        "unsettled",
    )

    def __init__(self, link: LinkId, name: str, role: Role, session: "SessionState") -> None:
        self.link = link
        self.name = name
        self.role = role
        self.session = session
        self.handle = 0
        self.delivery_count = 0
        self.credit = 0
        self.allowance = 0
        self.granted = 0
        self.is_open = False
        self.in_progress = False
        self.settles_second = False
        self.sender_settle_mode = 2
        self.max_message_octets = 0
        self.deliveries = 0
        self.payload_octets = 0
        self.owner: Any = None
        self.lane: Any = None
        self.unsettled = 0
        self.queued = 0


class SessionState:
    """One session endpoint of ours.

    Attributes:
        channel: ours, in frames that we send.
        next_incoming_id: transfer-id of the next transfer frame that comes (§2.5.6).
        incoming_window: transfer frames that the peer may still send.
        window_frames: what ``incoming_window`` is raised to when it is renewed.
        next_outgoing_id: transfer-id of the next transfer frame that goes.
        outgoing_window: what we tell the peer of ours; a constant, we bound nothing by it.
        remote_incoming_window: transfer frames that we may still send.
        remote_outgoing_window: what the peer last told, less what has come since.
        next_incoming_delivery: delivery-id that must come next; None before the first.
        next_outgoing_delivery: delivery-id that goes next.
        links: the peer's handle → link.
        connection: whose it is.
        output: the connection's.
        is_open: mapped on both sides and not ending; the express lane stays away otherwise.
        is_held: the window is not to be renewed (``HoldWindow``).
        is_errant: a link was detached with an error, and the peer's detach is awaited; flows, which
            may show that it was read, are the session machine's business.
        incoming, outgoing: the session machine's maps of what is unsettled, by delivery-id; a range
            with gaps can concern these only if they are not empty.
        waiting: the session machine's links with something that the window has refused; while
            there are any, flows are its business.
        owner: the session machine.
        rings: the express lane's own.
    """

    __slots__ = (
        "channel",
        "connection",
        "incoming",
        "incoming_window",
        "is_errant",
        "is_held",
        "is_open",
        "links",
        "next_incoming_delivery",
        "next_incoming_id",
        "next_outgoing_delivery",
        "next_outgoing_id",
        "outgoing",
        "outgoing_window",
        "output",
        "owner",
        "remote_incoming_window",
        "remote_outgoing_window",
        "rings",
        "waiting",
        "window_frames",
    )

    def __init__(self, connection: "ConnectionState", window_frames: int) -> None:
        self.connection = connection
        self.output = connection.output
        self.window_frames = window_frames
        self.channel = 0
        self.next_incoming_id = 0
        self.incoming_window = window_frames
        self.next_outgoing_id = 0
        self.outgoing_window = 0x7FFF_FFFF
        self.remote_incoming_window = 0
        self.remote_outgoing_window = 0
        self.next_incoming_delivery: int | None = None
        self.next_outgoing_delivery = 0
        self.links: dict[int, LinkState] = {}
        self.is_open = False
        self.is_held = False
        self.is_errant = False
        self.incoming: Sized = ()
        self.outgoing: Sized = ()
        self.waiting: Sized = ()
        self.owner: Any = None
        self.rings: Any = None


class ConnectionState:
    """One connection.

    Attributes:
        output: what waits to be sent.
        sessions: the peer's channel → session.
        max_frame_octets: the largest frame that the peer takes.
        max_incoming_frame_octets: the largest frame that we take.
        is_open: both opens have been exchanged and no close has; the express lane stays away
            otherwise.
        has_input: the engine keeps the beginning of a frame, so that it must read what comes next.
        is_pending: the core has been told that output piles up.
        received_at: when octets came last, on the clock of ``receive_data``.
        owner: the engine.
        lanes: how many links are on express lanes; 0: the kernel need not be asked. What follows
            is the lane's own.
        is_blocked: its socket takes no more; only set where a carrier sends.
        octets_in, octets_out: what a carrier has received and sent.
    """

    __slots__ = (
        "has_input",
        "is_blocked",
        "is_open",
        "is_pending",
        "lanes",
        "max_frame_octets",
        "max_incoming_frame_octets",
        "octets_in",
        "octets_out",
        "output",
        "owner",
        "received_at",
        "sessions",
    )

    def __init__(self) -> None:
        self.output = Output()
        self.sessions: dict[int, SessionState] = {}
        self.max_frame_octets = 512
        self.max_incoming_frame_octets = 512
        self.is_open = False
        self.has_input = False
        self.is_pending = False
        self.received_at = 0.0
        self.owner: Any = None
        self.lanes = 0
        self.is_blocked = False
        self.octets_in = 0
        self.octets_out = 0

    def take_tail(self, octets: bytes | memoryview) -> bytes | memoryview:
        """Puts octets behind the beginning of a frame that was left here; none ever is."""
        return octets

    def keep_tail(self, octets: bytes, at: int) -> bool:
        """Takes the beginning of a frame, from ``at`` on, for whoever reads next; false: not so."""
        return False
