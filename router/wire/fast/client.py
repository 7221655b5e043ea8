"""The dialing side: links as channels with one handle each, and the core's commands.

Acknowledgments are gathered during a turn and written when output is requested; credit is granted
at the end of a turn.
"""

from collections.abc import Iterator
from typing import ClassVar, Final

from router.model import condition as conditions
from router.model.commands import AttachLink
from router.model.condition import Condition
from router.model.terminus import Coordinator, Role
from router.wire.engine import EngineSettings
from router.wire.fast import commands as c
from router.wire.fast.area import Area
from router.wire.fast.client_links import ClientLinks
from router.wire.fast.handle import Service
from router.wire.fast.line import Line
from router.wire.fast.reply import Level, PeerError, Reply, condition_of
from router.wire.fast.server_link import ServerLink, ServerLinkState
from router.wire.fast.server_receiver import ServerReceiver
from router.wire.fast.server_sender import ServerSender
from router.wire.machine import MachinePhase, Steps

_NO_CHANNEL: Final = Condition(
    conditions.RESOURCE_LIMIT_EXCEEDED, "the server allows no more channels or handles"
)
_NO_NAME: Final = Condition(conditions.INVALID_FIELD, "the address is no name of a destination")
_NO_PEERS: Final = Condition(
    conditions.NOT_IMPLEMENTED, "what a peer service answers says no address it could go to"
)
_NO_TRANSACTIONS: Final = Condition(conditions.NOT_IMPLEMENTED, "transactions of a server")

_OnHandle = (
    c.HandleCreated
    | c.HandleNotify
    | c.HandleIndex
    | c.HandlePrepare
    | c.HandleReady
    | c.HandleReply
)


class ClientEngine(ClientLinks):
    """One connection that we dialed; implements ``router.wire.engine.Engine``."""

    sender_type = ServerSender
    receiver_type = ServerReceiver

    def __init__(self, settings: EngineSettings, area: Area) -> None:
        super().__init__(settings, area)
        self._by_number: dict[int, ServerLink] = {}
        self._next_number = 1

    def lines(self) -> Iterator[Line]:
        """All lines of outgoing messages."""
        return (link.line for link in self._by_number.values())

    # --- the server's commands --------------------------------------------------------------------

    def _link(self, number: int, reply: Reply) -> ServerLink:
        link = self._by_number.get(number)
        if link is None:
            raise PeerError(reply, f"{number} is not open", Level.CONNECTION)
        return link

    def _on_channel(self, command: c.ChannelReply) -> None:
        self._link(command.channel_id, Reply.CHANNEL_NOT_READY).take_channel_reply(command)

    def _on_handle(self, command: _OnHandle) -> None:
        self._guarded(command)

    def _on_handle_with_fragment(
        self, command: c.HandleNotify | c.HandlePrepare, fragment: bytes
    ) -> None:
        self._guarded(command, fragment)

    def _guarded(self, command: _OnHandle, *arguments: bytes) -> None:
        link = self._link(command.handle_id, Reply.HANDLE_NOT_READY)
        if link.state is ServerLinkState.CLOSING:
            return
        try:
            link.take(command, *arguments)
        except PeerError as error:
            if error.level is Level.CONNECTION:
                raise
            link.end(condition_of(error.code, error.text))

    def _close_channel(self, command: c.ChannelClose) -> None:
        self._link(command.channel_id, Reply.CHANNEL_NOT_READY).take_channel_close(command)

    def _close_handle(self, command: c.HandleClose) -> None:
        self._link(command.handle_id, Reply.HANDLE_NOT_READY).take_handle_close(command)

    # --- links ------------------------------------------------------------------------------------

    def attach(self, command: AttachLink) -> None:
        """Begins a link that the core requests, or declines it."""
        if isinstance(command.target, Coordinator):
            self.decline(command, _NO_TRANSACTIONS)
            return
        number = self._free_number()
        if number is None:
            self.decline(command, _NO_CHANNEL)
            return
        kind = ServerSender if command.role is Role.SENDER else ServerReceiver
        link = kind(self, number, command)
        if not link.is_possible:
            self.decline(command, _NO_NAME)
            return
        if link.where.service is Service.PEER:
            self.decline(command, _NO_PEERS)
            return
        self._by_number[number] = link
        self.links[command.link] = link
        link.start()

    def _free_number(self) -> int | None:
        """Returns a free number for channel and handle; those used recently come last."""
        if len(self._by_number) >= self.channel_max:
            return None
        number = self._next_number
        while number in self._by_number:
            number = number % self.channel_max + 1
        self._next_number = number % self.channel_max + 1
        return number

    # --- ends -------------------------------------------------------------------------------------

    def free(self, number: int) -> None:
        """Records that the number of a link is free."""
        self._by_number.pop(number, None)

    def end_channels(self, close: c.ConnectionClose | None) -> None:
        """Ends all links without sending anything."""
        for link in self._by_number.values():
            link.connection_over(is_orderly=close is not None)
        self._by_number.clear()
        self.links.clear()
        self.settling.clear()
        self._reviews.clear()

    steps: ClassVar[Steps] = {
        **ClientLinks.steps,
        (MachinePhase.OPENED, c.ChannelReply): _on_channel,
        (MachinePhase.OPENED, c.ChannelClose): _close_channel,
        (MachinePhase.OPENED, c.HandleCreated): _on_handle,
        (MachinePhase.OPENED, c.HandleNotify): _on_handle_with_fragment,
        (MachinePhase.OPENED, c.HandleIndex): _on_handle,
        (MachinePhase.OPENED, c.HandlePrepare): _on_handle_with_fragment,
        (MachinePhase.OPENED, c.HandleReady): _on_handle,
        (MachinePhase.OPENED, c.HandleReply): _on_handle,
        (MachinePhase.OPENED, c.HandleClose): _close_handle,
    }
