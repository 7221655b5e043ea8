"""The shared state of connections, sessions and links, used for every transfer and disposition.

Theory of operation. These objects hold the only copy of the counters, shared by the engine and the
express lane's kernel. The kernel brings classes of its own with the same attributes, and more
(``kernel/state.pxi``); the classes here are used where there is no kernel. They have no behavior:
``windows`` and the kernel apply §2.5.6 and §2.6.7 to them. ``owner`` is the machine of each.

All ids and delivery-counts are serial numbers of 32 bits (RFC 1982); windows and credits are
ordinary numbers that never fall below 0, whatever the peer sends.
"""

from collections.abc import Sized
from typing import Any, Final

from router.model.identity import LinkId
from router.model.terminus import Role
from router.wire.octets import SendBuffer

NARROW_FRAMES: Final = 512
"""The widest incoming window of a session at first, and behind large frames: of 64 KiB each, they
are 32 MiB."""


class Output(SendBuffer):
    """A connection's send buffer.

    Attributes:
        high_octets, low_octets: congestion marks, which the express lane observes.
    """

    __slots__ = ("high_octets", "low_octets")

    def __init__(self, high_octets: int = 1 << 20, low_octets: int = 1 << 18) -> None:
        super().__init__()
        self.high_octets = high_octets
        self.low_octets = low_octets


class LinkState:
    """One link endpoint of ours.

    Attributes:
        link: the link's identity.
        handle: our handle, in frames that we send (§2.6.2).
        session: the session it is attached to.
        delivery_count: as we send it, or as counted from the peer's (§2.6.7).
        credit: deliveries that the sending side may still send.
        allowance: where we receive: the greatest credit that the peer may assume; more than
            ``credit`` after it was lowered, since transfers may have been under way; below 0 after
            deliveries that exceeded it.
        granted: where we send: the credit in the peer's last flow.
        is_open: attached on both sides and not detaching; otherwise the express lane skips it.
        in_progress: a delivery in several frames has begun and not ended; the express lane skips
            the link meanwhile.
        settles_second: the receiver settles after the sender (§2.8.3).
        sender_settle_mode: as agreed (§2.8.2): 0 unsettled, 1 settled, 2 mixed.
        max_message_octets: the largest message that the receiving side accepts, the peer or we; 0:
            no limit.
        deliveries: deliveries transferred on the general path, in the link's direction.
        payload_octets: payload of these deliveries.
        owner: the link endpoint.
        lane: the express lane of the link; None: none. The following attributes are the lane's own.
        unsettled: deliveries of the lane that are unsettled on this link.
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
        channel: our channel, in frames that we send.
        next_incoming_id: transfer-id of the next transfer received (§2.5.6).
        incoming_window: transfers that the peer may still send.
        window_frames: the widest window.
        window: the value to which ``incoming_window`` was renewed last.
        small_frames: transfers received since the last one that was large (``windows``).
        large_octets: payload of that one; of several that came together, their mean.
        next_outgoing_id: transfer-id of the next transfer sent.
        outgoing_window: our outgoing-window in flows; a constant, it limits nothing.
        remote_incoming_window: transfers that we may still send.
        remote_outgoing_window: the peer's last outgoing-window, less the transfers since.
        next_incoming_delivery: delivery-id of the next delivery received; None before the first.
        next_outgoing_delivery: delivery-id of the next delivery sent.
        links: the peer's handle → link.
        connection: the connection of the session.
        output: the connection's output.
        is_open: mapped on both sides and not ending; otherwise the express lane skips it.
        is_held: the window is not renewed (``HoldWindow``).
        withheld: transfers of ``incoming_window`` that the peer is not told of while it is held.
        is_errant: a link was detached with an error, and the peer's detach is awaited; flows, which
            may prove that it was read, are handled by the session endpoint.
        incoming, outgoing: the session endpoint's maps of unsettled deliveries, by delivery-id; a
            range with gaps can concern these only if they are not empty.
        waiting: the session endpoint's links with items that the window does not allow; while
            there are any, flows are handled by the session endpoint.
        owner: the session endpoint.
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
        "large_octets",
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
        "small_frames",
        "waiting",
        "window",
        "window_frames",
        "withheld",
    )

    def __init__(self, connection: "ConnectionState", window_frames: int) -> None:
        self.connection = connection
        self.output = connection.output
        self.window_frames = window_frames
        self.channel = 0
        self.next_incoming_id = 0
        self.window = self.incoming_window = min(window_frames, NARROW_FRAMES)
        self.small_frames = 0
        self.large_octets = 0
        self.next_outgoing_id = 0
        self.outgoing_window = 0x7FFF_FFFF
        self.remote_incoming_window = 0
        self.remote_outgoing_window = 0
        self.next_incoming_delivery: int | None = None
        self.next_outgoing_delivery = 0
        self.links: dict[int, LinkState] = {}
        self.is_open = False
        self.is_held = False
        self.withheld = 0
        self.is_errant = False
        self.incoming: Sized = ()
        self.outgoing: Sized = ()
        self.waiting: Sized = ()
        self.owner: Any = None
        self.rings: Any = None


class ConnectionState:
    """One connection.

    Attributes:
        output: octets to be sent.
        sessions: the peer's channel → session.
        max_frame_octets: the largest frame that the peer accepts.
        max_incoming_frame_octets: the largest frame that we accept.
        is_open: both opens have been exchanged and no close; otherwise the express lane skips it.
        has_input: the engine keeps the beginning of a frame, so it must read the next octets.
        is_pending: congested output has been reported to the core.
        received_at: when octets were last received, on the clock of ``receive_data``.
        owner: the engine.
        lanes: number of links on express lanes; 0: the kernel need not be called. The following
            attributes are the lane's own.
        interest: what the poller reports of its socket; only set where a carrier reads and sends.
        octets_in, octets_out: octets that a carrier has received and sent.
    """

    __slots__ = (
        "has_input",
        "interest",
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
        self.interest = 0
        self.octets_in = 0
        self.octets_out = 0

    def take_tail(self, octets: bytes | memoryview) -> bytes | memoryview:
        """Prepends the beginning of a frame that was kept here; never any in this class."""
        return octets

    def keep_tail(self, octets: bytes, at: int) -> bool:
        """Keeps the beginning of a frame, from ``at`` on, for the next read; False: it does not."""
        return False
