"""The core's commands on a connection that we dialed, of a protocol before AMQP 1.0.

Theory of operation. The far side attaches nothing: every link is one that the core requested, and
the object that represents it (a channel, a session, a handle) either sends or receives. So the
core's commands are passed to the object of the link; commands that the far side cannot carry out
are never given, or have no effect.
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar, assert_never
from typing import Protocol as Interface

from router.model.commands import (
    AbortDelivery,
    AddressesChanged,
    AdvertiseWays,
    AttachLink,
    AwaitRecord,
    CloseConnection,
    Command,
    ContinueDelivery,
    DetachLink,
    GrantCredit,
    HoldWindow,
    MemoryFound,
    RecallDeliveries,
    RefuseLink,
    ReportAttachConfirmed,
    ReportRecorded,
    ReportWaiting,
    ReturnCredit,
    SendDeliveries,
    UpdateDeliveries,
)
from router.model.condition import Condition
from router.model.delivery import OutgoingDelivery
from router.model.events import DeliveriesUpdated
from router.model.identity import DeliveryNumber, LinkId
from router.model.outcome import DeliveryState, is_outcome
from router.wire.machine import ConnectionMachine, MachinePhase


class LinkEnd(Interface):
    """The object that represents a link."""

    def detach(self, closed: bool, condition: Condition | None) -> None:
        """Ends the link as ordered by the core."""


class SendingEnd(LinkEnd, Interface):
    """A link that we send on."""

    def send_deliveries(self, deliveries: list[OutgoingDelivery]) -> None:
        """Sends deliveries; those that may not be sent now wait."""


class ReceivingEnd(LinkEnd, Interface):
    """A link that we receive on.

    Attributes:
        beside: as in ``GrantCredit``.
    """

    beside: int

    def unsubscribe(self) -> None:
        """Ends the link, and the binding that feeds its queue (``SUBSCRIPTION``)."""

    def grant(self, credit: int, drain: bool) -> None:
        """Handles credit from the core."""

    def hold(self, held: bool) -> None:
        """Stops or resumes reporting."""

    def update(self, numbers: Sequence[DeliveryNumber], state: DeliveryState | None) -> None:
        """Handles outcomes, which settle the deliveries."""


class DialingMachine(ConnectionMachine):
    """One connection that we dialed.

    Attributes:
        links: the links that the core knows, with their objects.
    """

    sender_type: ClassVar[type[SendingEnd]]
    receiver_type: ClassVar[type[ReceivingEnd]]
    links: Mapping[LinkId, LinkEnd]

    def attach(self, command: AttachLink) -> None:
        """Begins a link that the core requests, or declines it."""
        raise NotImplementedError

    def execute(self, command: Command) -> None:
        """Carries out a command."""
        if isinstance(command, CloseConnection):
            self.close(command.condition)
            return
        if self.phase is not MachinePhase.OPENED:
            return
        match command:
            case AttachLink():
                self.attach(command)
            case SendDeliveries(link=link, deliveries=deliveries):
                end = self.links.get(link)
                if isinstance(end, self.sender_type):
                    end.send_deliveries(deliveries)
            case UpdateDeliveries():
                self._update(command)
            case GrantCredit(link=link, credit=credit, drain=drain):
                end = self.links.get(link)
                if isinstance(end, self.receiver_type):
                    end.beside = command.beside
                    end.grant(credit, drain)
            case HoldWindow(link=link, held=held):
                end = self.links.get(link)
                if isinstance(end, self.receiver_type):
                    end.hold(held)
            case DetachLink(link=link, closed=closed, condition=condition):
                end = self.links.get(link)
                if command.unsubscribes and isinstance(end, self.receiver_type):
                    end.unsubscribe()
                elif end is not None:
                    end.detach(closed, condition)
            case (
                RefuseLink()
                | AddressesChanged()
                | ReturnCredit()
                | ContinueDelivery()
                | AbortDelivery()
                | MemoryFound()
                | ReportAttachConfirmed()
                | AdvertiseWays()
                | ReportWaiting()
                | RecallDeliveries()
                | AwaitRecord()
                | ReportRecorded()
            ):
                pass  # nothing is attached or drained over there; parts are never sent
            case _:
                assert_never(command)
        self.watch_output()

    def _update(self, command: UpdateDeliveries) -> None:
        end = self.links.get(command.link)
        if not isinstance(end, self.receiver_type):
            return
        if not command.settled:
            if not is_outcome(command.state):
                return
            # The far side settles with the outcome, so nothing follows this update.
            update = DeliveriesUpdated(command.link, command.numbers, command.state, True)
            self.runs.add(update)
        end.update(command.numbers, command.state)
