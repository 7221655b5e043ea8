"""A handle of a client: a destination, or a prefix of names, and what is done with it (§3.5).

Theory of operation. A handle is open from HANDLE OPEN until one side closes it. If it was ours to
close, the client's commands for it are discarded until its HANDLE CLOSE comes, for it may have sent
many before it heard. If the client closes it, what it sent before is handed on first.

A name that the core has yet to make (a temporary destination's, or the place of a peer service's
answers) is waited for; what was sent to the handle meanwhile keeps its place (``later``).
"""

import enum
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from router.wire.fast import commands as c
from router.wire.fast.consuming import Outlet
from router.wire.fast.publishing import Inlet, confirm
from router.wire.fast.reply import Reply

if TYPE_CHECKING:
    from router.wire.fast.lane import Shape
    from router.wire.fast.server_channel import ServerChannel

MAX_ROUTES: Final = 256
"""Names that a handle remembers its links for."""


class Service(enum.IntEnum):
    """The service types (§3.5.2.1)."""

    QUEUE = 1
    TOPIC = 2
    PEER = 3


class State(enum.Enum):
    """How open a handle is."""

    OPEN = "open"
    LEAVING = "closed by the client, with something still to be handed on"
    CLOSING = "closed by us, and not yet by the client"
    GONE = "gone"


class Handle:
    """One handle.

    Attributes:
        service: None as long as HANDLE OPEN was not found valid.
        prefix: what HANDLE OPEN named; names of later commands are put behind it (§3.5.2.3).
        outlets: subscriptions, by address.
        own: a temporary destination, or the place of a peer's answers.
        later: what waits until ``own`` has a name; None: nothing waits for that.
        routes: name → link and the beginning of a payload for it.
        shapes: name → what the next message to it is expected to look like.
    """

    def __init__(self, channel: "ServerChannel", command: c.HandleOpen) -> None:
        self.channel = channel
        self.id = command.handle_id
        self.command = command
        self.state = State.OPEN
        self.service: Service | None = None
        self.prefix = command.dest_name
        self.is_paused = False
        self.outlets: dict[str, Outlet] = {}
        self.own: Outlet | None = None
        self.later: list[Callable[[], None]] | None = None
        self.routes: dict[str, tuple[Inlet, bytes]] = {}
        self.shapes: dict[bytes, Shape] = {}

    @property
    def is_open(self) -> bool:
        """Whether the client may still be told anything by it."""
        return self.state in (State.OPEN, State.LEAVING)

    def reply(self, confirm_tag: int, code: int = Reply.OK, text: str = "") -> None:
        """Confirms a command, if that was asked for (§3.2.11)."""
        if not confirm_tag:
            return
        engine = self.channel.engine
        if code == Reply.OK and not text:
            engine.output.append(confirm(self.id, confirm_tag))
        else:
            engine.send(c.HandleReply(self.id, confirm_tag, code, text))

    def forget_routes(self) -> None:
        """Takes note that a link that names lead to may be gone."""
        self.routes.clear()
        self.shapes.clear()

    def all_outlets(self) -> list[Outlet]:
        """All links on which the handle receives."""
        found = list(self.outlets.values())
        if self.own is not None and self.own.address not in self.outlets:
            found.append(self.own)
        return found
