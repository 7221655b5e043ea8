"""A client's handle: a destination, or a prefix of names, and its use (§3.5).

Theory of operation. A handle is open from HANDLE OPEN until one side closes it. After our close the
client's commands for it are discarded until its HANDLE CLOSE, because they may have been under way.
If the client closes it, its earlier messages are handed on first.

If the core has yet to create a name (of a temporary destination, or the reply destination of a peer
service), messages to the handle meanwhile wait in order (``later``).
"""

import enum
from collections.abc import Callable
from typing import Any, Final
from typing import Protocol as Interface

from router.model.condition import Condition
from router.wire.fast import commands as c
from router.wire.fast.consuming import Outlet, OutletEngine, OutletReceiving
from router.wire.fast.inlet import Inlet, SendShape, confirm
from router.wire.fast.reply import PeerError, Reply
from router.wire.octets import SendBuffer

MAX_ROUTES: Final = 256
"""Most names for which a handle caches its links."""


class Service(enum.IntEnum):
    """The service types (§3.5.2.1)."""

    QUEUE = 1
    TOPIC = 2
    PEER = 3


class HandleState(enum.Enum):
    """The state of a handle."""

    OPEN = "open"
    LEAVING = "closed by the client, with something still to be handed on"
    CLOSING = "closed by us, and not yet by the client"
    GONE = "gone"


class LaneSending(Interface):
    """The part of a channel's ``sending`` that the lane uses."""

    @property
    def is_plain(self) -> bool:
        """Whether messages may be handled in runs."""


class LanePublishing(Interface):
    """The part of a channel's ``publishing`` that the lane uses."""

    def submit_run(
        self, handle: "Handle", shape: SendShape, tags: list[int], payloads: list[bytes]
    ) -> None:
        """Handles messages of one shape."""


class HandleEngine(OutletEngine, Interface):
    """The part of a connection that its handles use."""

    output: SendBuffer

    def send(self, command: c.Command) -> None:
        """Sends a command."""


class HandleChannel:
    """A channel, as used by its handles and parts.

    Attributes:
        engine: the connection.
        sending, publishing: the client's messages on it.
        receiving: the client's subscriptions on it.
        handles: by number.
        is_closing: we have closed it, and the client has not yet.
        has_left: the client has closed it, and messages are still to be handed on.
        transacted: it has transactions.
    """

    engine: HandleEngine
    sending: LaneSending
    publishing: LanePublishing
    receiving: OutletReceiving

    def __init__(self, number: int, *, transacted: bool) -> None:
        self.id = number
        self.transacted = transacted
        self.handles: dict[int, Handle] = {}
        self.is_closing = False
        self.has_left = False

    @property
    def is_open(self) -> bool:
        """Whether commands are handled."""
        return not (self.is_closing or self.has_left)

    def take(self, command: Any, *arguments: Any) -> None:
        """Handles a command on the channel, or on one of its handles."""
        raise NotImplementedError

    def reply(self, confirm_tag: int) -> None:
        """Confirms a command of the channel, if requested (§3.3.8)."""
        if confirm_tag:
            self.engine.send(c.ChannelReply(self.id, confirm_tag, Reply.OK))

    def attached(self, outlet: Outlet, address: str | None, mode: str | None) -> None:
        """Handles the core's acceptance of an outlet."""
        raise NotImplementedError

    def refused(self, outlet: Outlet, condition: Condition) -> None:
        """Handles the end of an outlet."""
        raise NotImplementedError

    def close(self, error: PeerError) -> None:
        """Closes the channel for a fault."""
        raise NotImplementedError

    def close_handle(self, handle: "Handle", error: PeerError) -> None:
        """Closes a handle for a fault."""
        raise NotImplementedError

    def take_handle_close(self, handle: "Handle") -> None:
        """Handles the client's close of a handle, after its earlier messages are handed on."""
        raise NotImplementedError

    def pumped(self) -> None:
        """Records that held messages may have been handed on."""
        raise NotImplementedError

    def committed(self, confirm_tag: int) -> None:
        """Records that a transaction's messages are all decided."""
        raise NotImplementedError

    def drained(self) -> None:
        """Records that a wait is over."""
        raise NotImplementedError


class Handle:
    """One handle.

    Attributes:
        service: None until HANDLE OPEN was found valid.
        prefix: the name in HANDLE OPEN, the prefix of names in later commands (§3.5.2.3).
        outlets: subscriptions, by address.
        own: a temporary destination, or the reply destination of a peer.
        later: what waits for the name of ``own``; None: nothing.
        routes: name → link and first octets of a payload for it.
        shapes: name → expected form of the next message to it.
    """

    def __init__(self, channel: HandleChannel, command: c.HandleOpen) -> None:
        self.channel = channel
        self.id = command.handle_id
        self.command = command
        self.state = HandleState.OPEN
        self.service: Service | None = None
        self.prefix = command.dest_name
        self.is_paused = False
        self.outlets: dict[str, Outlet] = {}
        self.own: Outlet | None = None
        self.later: list[Callable[[], None]] | None = None
        self.routes: dict[str, tuple[Inlet, bytes]] = {}
        self.shapes: dict[bytes, SendShape] = {}

    @property
    def is_open(self) -> bool:
        """Whether commands may still be sent on the handle."""
        return self.state in (HandleState.OPEN, HandleState.LEAVING)

    def reply(self, confirm_tag: int, code: int = Reply.OK, text: str = "") -> None:
        """Confirms a command, if requested (§3.2.11)."""
        if not confirm_tag:
            return
        engine = self.channel.engine
        if code == Reply.OK and not text:
            engine.output.append(confirm(self.id, confirm_tag))
        else:
            engine.send(c.HandleReply(self.id, confirm_tag, code, text))

    def close(self, error: PeerError) -> None:
        """Closes the handle for a fault."""
        self.channel.close_handle(self, error)

    def forget_routes(self) -> None:
        """Records that a cached link may be gone."""
        self.routes.clear()
        self.shapes.clear()

    def all_outlets(self) -> list[Outlet]:
        """All links by which the handle receives."""
        found = list(self.outlets.values())
        if self.own is not None and self.own.address not in self.outlets:
            found.append(self.own)
        return found
