"""The shared state of a client's connection: handles, links, and pending reviews of credit."""

import math
from collections.abc import Callable, Mapping

from router.model.events import CreditGranted, LinkAttached, LinkDetached
from router.model.identity import LinkId, LinkName
from router.model.terminus import Role, Source, Target
from router.wire.engine import EngineSettings
from router.wire.fast.area import Area
from router.wire.fast.consuming import Kind, Outlet
from router.wire.fast.gather import Budget
from router.wire.fast.handle import Handle, HandleChannel, Service
from router.wire.fast.heads import Heads
from router.wire.fast.inlet import Inlet
from router.wire.fast.outgoing import Outgoing
from router.wire.fast.reply import Level, PeerError
from router.wire.fast.server_handshake import ServerHandshake
from router.wire.serving import ServingMachine


class ServerLinks(ServingMachine[Inlet, Outlet], ServerHandshake):
    """The shared state of one connection's channels.

    Attributes:
        channels, handles: by number; handles are numbered over all channels (§3.5.2).
        outgoing: prepares deliveries.
        budget: counts octets of incomplete messages.
        heads: validates heads of messages.
    """

    spoken = "AMQP/Fast"
    channels: Mapping[int, HandleChannel]

    def __init__(self, settings: EngineSettings, area: Area) -> None:
        super().__init__(settings, area)
        self.handles: dict[int, Handle] = {}
        self.inlets: dict[LinkId, Inlet] = {}
        self.outlets: dict[LinkId, Outlet] = {}
        self.outgoing = Outgoing()
        self.budget = Budget()
        self.heads = Heads()
        self._reviews: dict[int, Outlet] = {}
        self._pumps: dict[HandleChannel, Callable[[], None]] = {}
        self._wakes_at = math.inf
        self._browsed = 0

    def drained(self) -> None:
        """Records that a wait is over."""
        raise NotImplementedError

    def free_channel(self, channel: HandleChannel) -> None:
        """Records that the numbers of a channel, and of its handles, are free."""
        raise NotImplementedError

    # --- faults -----------------------------------------------------------------------------------

    def guard(
        self, action: Callable[[], None], channel: HandleChannel, handle: Handle | None
    ) -> None:
        """Runs code that may find the client at fault."""
        try:
            action()
        except PeerError as error:
            self.fault(error, channel, handle)

    def fault(self, error: PeerError, channel: HandleChannel, handle: Handle | None) -> None:
        """Ends the handle, channel or connection that a fault concerns (§2.2.10)."""
        if error.level is Level.CONNECTION:
            self.fail(error)
        elif error.level is Level.CHANNEL or handle is None:
            if not channel.is_closing and channel.id in self.channels:
                channel.close(error)
        elif handle.is_open:
            channel.close_handle(handle, error)

    # --- links ------------------------------------------------------------------------------------

    def next_browsed(self) -> int:
        """Returns the number of the next message for browsing; 0 means none (§3.5.8)."""
        self._browsed = self._browsed % 0xFFFF_FFFF + 1
        return self._browsed

    def ask_for_outlet(self, outlet: Outlet) -> None:
        """Asks the core for an outgoing link."""
        self.outlets[outlet.link] = outlet
        handle = outlet.handle
        if outlet.kind is Kind.SUBSCRIPTION:
            mode = "copy" if handle.service is Service.TOPIC else "move"
            source = Source(address=outlet.address, distribution_mode=mode)
        else:
            source = Source(dynamic=True)
        self.runs.add(
            LinkAttached(
                link=outlet.link,
                name=LinkName(f"{handle.channel.id}:{handle.id}:{outlet.link}"),
                role=Role.SENDER,
                is_answer=False,
                source=source,
                target=Target(),
            )
        )

    def keep_outlet(self, outlet: Outlet) -> None:
        """Keeps an outgoing link whose handle has ended, without credit."""
        self._reviews.pop(id(outlet), None)
        outlet.is_leaving = True
        outlet.credit = 0
        self.runs.add(CreditGranted(outlet.link, 0))

    def drop_outlet(self, outlet: Outlet) -> None:
        """Ends an outgoing link."""
        self._reviews.pop(id(outlet), None)
        if self.outlets.pop(outlet.link, None) is not None:
            outlet.is_attached = False
            self.runs.add(LinkDetached(outlet.link, closed=True))

    def review(self, outlet: Outlet) -> None:
        """Reviews a link's credit at the end of the turn."""
        self._reviews[id(outlet)] = outlet

    def wake_at(self, at: float) -> None:
        """Schedules a check of held messages for this time."""
        self._wakes_at = min(self._wakes_at, at)

    def pump_later(self, channel: HandleChannel, pump: Callable[[], None]) -> None:
        """Hands on a channel's held messages at the end of the turn, with the time of the turn."""
        self._pumps[channel] = pump
