"""The dialing side: links as channels to a broker, and the core's commands.

Theory of operation. Each link has a channel of its own (``broker_channel``), because a broker
confirms, acknowledges and reports errors per channel. Acknowledgments are gathered during a turn
and written when output is requested; credit is granted at the end of a turn.

Two kinds of frames make up nearly all of a broker's output and are read in runs: deliveries, each
of three frames (``scan``), and confirms. Any other frame is left to the general path.
"""

from typing import ClassVar, Final

from router.model import condition as conditions
from router.model.commands import AttachLink
from router.model.condition import Condition
from router.model.terminus import Coordinator, Role
from router.wire.engine import EngineSettings
from router.wire.exchange_names import is_expressible
from router.wire.machine import CLOSE_SECONDS, MachinePhase, Steps
from router.wire.v0_9_1 import methods as m
from router.wire.v0_9_1.broker_channel import NO_CHANNEL, NO_NAME
from router.wire.v0_9_1.broker_receiver import DELIVER_HEAD, BrokerReceiver
from router.wire.v0_9_1.broker_sender import BrokerSender
from router.wire.v0_9_1.channel import ChannelPhase, Expect
from router.wire.v0_9_1.client_links import ClientLinks
from router.wire.v0_9_1.framing import END_OCTET, METHOD, OVERHEAD_OCTETS
from router.wire.v0_9_1.scan import scan_deliveries
from router.wire.v0_9_1.stream_receiver import StreamReceiver, offset_spec
from router.wire.v0_9_1.twins import chosen

_ACK_FRAME: Final = b"\x00\x00\x00\x0d\x00\x3c\x00\x50"
"""Size, class and method of a frame of ``basic.ack``."""
_ACK_OCTETS: Final = 21

_scan = chosen("scan_deliveries", scan_deliveries)


class ClientEngine(ClientLinks):
    """One connection that we dialed; implements ``router.wire.engine.Engine``."""

    sender_type: ClassVar[type[BrokerSender]] = BrokerSender
    receiver_type: ClassVar[type[BrokerReceiver]] = BrokerReceiver

    def __init__(self, settings: EngineSettings) -> None:
        super().__init__(settings)
        self._next_number = 1
        self._is_leaving = False
        self._left_for: Condition | None = None

    # --- runs of frames ---------------------------------------------------------------------------

    def take_run(self, octets: bytes, at: int, end: int) -> int:
        """Handles deliveries and confirms until another frame follows."""
        while end - at > _ACK_OCTETS and octets[at] == METHOD:
            channel = self.channels.get(octets[at + 1] << 8 | octets[at + 2])
            if (
                channel is None
                or channel.expect is not Expect.METHOD
                or channel.phase is not ChannelPhase.OPEN
            ):
                return at
            after = at
            if isinstance(channel, BrokerReceiver):
                limit = self.frame_limit - OVERHEAD_OCTETS
                found, after = _scan(
                    octets, at, end, head=DELIVER_HEAD, number=channel.number, limit=limit
                )
                channel.take_all(found)
            elif isinstance(channel, BrokerSender) and octets.startswith(_ACK_FRAME, at + 3):
                after = self._take_ack(channel, octets, at)
            if after == at:
                return at
            at = after
        return at

    def _take_ack(self, channel: BrokerSender, octets: bytes, at: int) -> int:
        if octets[at + 20] != END_OCTET:
            return at
        tag = int.from_bytes(octets[at + 11 : at + 19], "big")
        channel.take_ack(tag, bool(octets[at + 19] & 1))
        return at + _ACK_OCTETS

    # --- links ------------------------------------------------------------------------------------

    def attach(self, command: AttachLink) -> None:
        """Begins a link that the core requests, or declines it."""
        if isinstance(command.target, Coordinator):
            no_transactions = Condition(conditions.NOT_IMPLEMENTED, "transactions of a broker")
            self.decline(command, no_transactions)
            return
        number = self._free_number()
        if number is None:
            self.decline(command, NO_CHANNEL)
            return
        is_sender = command.role is Role.SENDER
        kind = self.sender_type if is_sender else self._receiver_for(command)
        channel = kind(self, number, command)
        node = channel.node()
        if node is not None and not is_expressible(node):
            self.decline(command, NO_NAME)
            return
        self.channels[number] = channel
        self.links[command.link] = channel
        channel.start()

    def _receiver_for(self, command: AttachLink) -> type[BrokerReceiver]:
        is_stream = self.receiver_type is BrokerReceiver and offset_spec(command) is not None
        return StreamReceiver if is_stream else self.receiver_type

    # --- the end ----------------------------------------------------------------------------------

    def close(self, condition: Condition | None) -> None:
        """Closes the connection as ordered by the core; bindings about to be removed go first."""
        if self.is_ending or not self._unsubscribing():
            super().close(condition)
        elif not self._is_leaving:
            self._is_leaving, self._left_for = True, condition
            self.gives_up_at = self.now + CLOSE_SECONDS

    def unsubscribed(self) -> None:
        """Closes the connection, after this turn, if that waits for no other binding."""
        if self._is_leaving and not self._unsubscribing():
            self.gives_up_at = self.now

    def give_up_waiting(self) -> None:
        """Ends overdue waits; bindings that are still there are reported by their links."""
        if self._is_leaving and self.phase is MachinePhase.OPENED:
            self._is_leaving = False
            super().close(self._left_for)
        else:
            super().give_up_waiting()

    def _unsubscribing(self) -> bool:
        channels = self.channels.values()
        return any(isinstance(each, BrokerReceiver) and each.is_unsubscribing for each in channels)

    def _free_number(self) -> int | None:
        """Returns a free channel number; those used recently come last."""
        if len(self.channels) >= self.channel_max:
            return None
        number = self._next_number
        while number in self.channels:
            number = number % self.channel_max + 1
        self._next_number = number % self.channel_max + 1
        return number

    # --- the broker's wishes ----------------------------------------------------------------------

    def take_blocked(self, method: m.ConnectionBlocked) -> None:
        """Handles connection.blocked: the broker reads no publishes for now."""
        self._set_blocked(True)

    def take_unblocked(self, method: m.ConnectionUnblocked) -> None:
        """Handles connection.unblocked: the broker reads publishes again."""
        self._set_blocked(False)

    def _set_blocked(self, is_blocked: bool) -> None:
        self.is_blocked = is_blocked
        for channel in self.channels.values():
            if isinstance(channel, BrokerSender):
                channel.flow_changed()

    steps: ClassVar[Steps] = {
        **ClientLinks.steps,
        (MachinePhase.OPENED, m.ConnectionBlocked): take_blocked,
        (MachinePhase.OPENED, m.ConnectionUnblocked): take_unblocked,
    }
