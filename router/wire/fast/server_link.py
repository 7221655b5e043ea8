"""A link to a server that we dialed: a channel and a handle of its own.

Theory of operation. Each link has a channel, since acknowledgments concern the channel (§3.3.3),
and on it one handle of the same number, so that an error of the server ends one link and no other.
Both are opened together, and the confirmation of the second attaches the link::

    AttachLink -> CHANNEL OPEN, HANDLE OPEN -> HANDLE REPLY 200      -> LinkAttached
                                             \\-> CLOSE of either    -> LinkAttached without
                                                                        terminus, LinkDetached

Channels are opened restartable: large messages are continued after an interruption, if the server
keeps its part.
"""

import enum
from typing import Any, ClassVar

from router.model.commands import AttachLink
from router.model.condition import DETACH_FORCED, Condition
from router.model.events import LinkAttached, LinkDetached
from router.model.terminus import Coordinator, Role, Source, Target
from router.wire.fast import commands as c
from router.wire.fast.client_links import ClientLinks
from router.wire.fast.gather import Gatherer
from router.wire.fast.line import Line
from router.wire.fast.names import Destination, destination
from router.wire.fast.reply import PeerError, Reply, condition_of, reply_of, words_of
from router.wire.fast.types import fits_short
from router.wire.machine import Handlers

CHANNEL_TAG, HANDLE_TAG, FLOW_TAG, CONSUME_TAG = 1, 2, 3, 4
"""Confirm-tags of commands other than HANDLE SEND."""


class ServerLinkState(enum.Enum):
    """The state of a link."""

    OPENING = "opening"
    OPEN = "open"
    CLOSING = "closing"


class ServerLink:
    """One link of the core's.

    Attributes:
        command: the attach that requested it.
        link: the link's identity.
        number: of its channel, and of its handle.
        made: the name of a temporary destination, from the server.
    """

    is_producer: ClassVar[bool]

    def __init__(self, engine: ClientLinks, number: int, command: AttachLink) -> None:
        self.engine = engine
        self.number = number
        self.command = command
        self.link = command.link
        self.state = ServerLinkState.OPENING
        self.made: str | None = None
        self.gatherer = Gatherer(engine.budget, engine.area, engine.owner, is_restartable=True)
        self.line = Line(engine.output.append, engine.frame_max, is_restartable=True)

    # --- opening ----------------------------------------------------------------------------------

    @property
    def terminus(self) -> Source | Target | None:
        """The terminus of the link at the server."""
        command = self.command
        found = command.target if command.role is Role.SENDER else command.source
        return None if isinstance(found, Coordinator) else found

    @property
    def is_dynamic(self) -> bool:
        """Whether the server is to create the destination."""
        return self.terminus is not None and self.terminus.dynamic

    @property
    def where(self) -> Destination:
        """The destination of the link's address at the server."""
        terminus = self.terminus
        return self.destination("" if terminus is None else terminus.address or "")

    def destination(self, address: str) -> Destination:
        """Returns an address's destination at the server."""
        terminus = self.terminus
        return destination(address, () if terminus is None else terminus.capabilities)

    @property
    def is_possible(self) -> bool:
        """Whether the address fits the protocol's names."""
        terminus = self.terminus
        return terminus is None or fits_short(terminus.address or "")

    def start(self) -> None:
        """Opens channel and handle."""
        where = self.where
        self.engine.send(c.ChannelOpen(self.number, CHANNEL_TAG, restartable=True))
        self.engine.send(
            c.HandleOpen(
                self.number,
                self.number,
                where.service,
                HANDLE_TAG,
                producer=self.is_producer,
                consumer=not self.is_producer,
                temporary=self.is_dynamic,
                dest_name=where.name,
            )
        )

    def take(self, command: Any, *arguments: Any) -> None:
        """Handles a command of the server's.

        Raises:
            PeerError: it is not allowed here.
        """
        handler = self.handlers.get(type(command))
        if handler is None:
            raise PeerError(Reply.NOT_VALID_NOW, f"{type(command).__name__} on this handle")
        handler(self, *arguments, command)

    def take_channel_reply(self, command: c.ChannelReply) -> None:
        """Handles a confirmation of a command of the channel."""

    def _take_created(self, command: c.HandleCreated) -> None:
        self.made = command.dest_name

    def take_reply(self, command: c.HandleReply) -> None:
        """Handles a confirmation of a command of the handle."""
        if self.state is not ServerLinkState.OPENING or command.confirm_tag != HANDLE_TAG:
            return
        if command.reply_code != Reply.OK:
            self.end(condition_of(command.reply_code, command.reply_text))
            return
        self.state = ServerLinkState.OPEN
        source, target = self.command.source, self.command.target
        if self.made is not None:
            if isinstance(source, Source) and source.dynamic:
                source = Source(address=self.made, dynamic=True)
            elif isinstance(target, Target):
                target = Target(address=self.made, dynamic=True)
        self.engine.runs.add(
            LinkAttached(
                link=self.link,
                name=self.command.name,
                role=self.command.role,
                is_answer=True,
                source=source,
                target=target,
                sender_settle_mode=self.command.sender_settle_mode,
            )
        )
        self.opened()

    def opened(self) -> None:
        """Records that the link is attached."""
        raise NotImplementedError

    def _take_prepare(self, fragment: bytes, command: c.HandlePrepare) -> None:
        size = self.gatherer.prepare(self.number, fragment, command.content_hash)
        self.engine.send(c.HandleReady(self.number, size))

    def _take_ready(self, command: c.HandleReady) -> None:
        self.line.ready(self.number, command.message_size)

    # --- end --------------------------------------------------------------------------------------

    def detach(self, closed: bool, condition: Condition | None) -> None:
        """Ends the link as ordered by the core."""
        if self.state is ServerLinkState.CLOSING:
            return
        self.give_back()
        self._report_end(closed, condition)
        self._start_close(reply_of(condition), words_of(condition))

    def unsubscribe(self) -> None:
        """Ends the link; there are no bindings."""
        self.detach(True, None)

    def end(self, condition: Condition | None) -> None:
        """Ends the link for a fault."""
        self.detach(True, condition or Condition(DETACH_FORCED, "the server closed the handle"))

    def _start_close(self, code: Reply, text: str) -> None:
        self.gatherer.keep()
        self.engine.flush()
        self.state = ServerLinkState.CLOSING
        self.engine.send(c.ChannelClose(self.number, code, text))

    def take_handle_close(self, command: c.HandleClose) -> None:
        """Handles the server's close of the handle; the channel is closed as well."""
        if self.state is ServerLinkState.CLOSING:
            return
        self.engine.send(c.HandleClose(self.number, Reply.OK))
        condition = condition_of(command.reply_code, command.reply_text)
        self.detach(True, condition)

    def take_channel_close(self, command: c.ChannelClose) -> None:
        """Handles the server's close of the channel: its request, or its answer to ours."""
        if self.state is not ServerLinkState.CLOSING:
            self.give_back()
            self._report_end(True, condition_of(command.reply_code, command.reply_text))
            self.gatherer.keep()
            self.engine.send(c.ChannelClose(self.number, Reply.OK))
        self.engine.free(self.number)

    def connection_over(self, *, is_orderly: bool) -> None:
        """Records that the connection is over, which implies the end of the link."""
        if is_orderly:
            self.give_back()
        self.gatherer.keep()

    def _report_end(self, closed: bool, condition: Condition | None) -> None:
        if self.state is ServerLinkState.OPENING:
            self.engine.refuse_attach(self.command)
        self.engine.links.pop(self.link, None)
        self.engine.runs.add(LinkDetached(self.link, closed, condition))

    def give_back(self) -> None:
        """Returns unsent deliveries to the core."""

    handlers: ClassVar[Handlers] = {
        c.ChannelReply: take_channel_reply,
        c.HandleReply: take_reply,
        c.HandleCreated: _take_created,
        c.HandlePrepare: _take_prepare,
        c.HandleReady: _take_ready,
    }
