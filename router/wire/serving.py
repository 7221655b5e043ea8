"""The core's commands on a connection that a client dialed, of a protocol before AMQP 1.0.

Theory of operation. Every link is one that the engine requested: an *inlet* for the client's
publishes to an address (``inlets``), an *outlet* for what it receives from one. So the core's
commands are passed to the object of the link: for an inlet its owner (``publishing``), for an
outlet itself. ``dialing`` is the counterpart for connections that we dialed.

The answer to an attach may be what the client waits for, so a command can cause events and output.
It can also find the client at fault, as a frame of the client's would: it publishes to an address
without a route. The protocol decides what ends then (``at_fault``).

A client does not settle its publishes: the outcome ends them. So an outcome without settlement is
answered with settlement at once.

What confirms a client's acknowledgments waits until they are on record (``recording``).
"""

from collections.abc import Sequence
from typing import Any, ClassVar, Final, Generic, TypeAlias, TypeVar, assert_never
from typing import Protocol as Interface

from router.model import condition as conditions
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
from router.model.events import DeliveriesUpdated, LinkDetached, RecordAwaited
from router.model.identity import LinkId
from router.model.outcome import is_outcome
from router.wire.inlets import Inlet
from router.wire.machine import ConnectionMachine, MachinePhase
from router.wire.recording import Unrecorded

DRAIN_SECONDS: Final = 10.0
"""How long a client's close waits for its earlier publishes; then they are void."""

_GONE: Final = Condition(conditions.DETACH_FORCED, "the route is gone")
_LEAVING: Final = Condition(conditions.CONNECTION_FORCED, "the router is about to stop")
"""Why a link has ended that the core detaches without a reason, and keeps: it drains."""


_Other: TypeAlias = (
    AddressesChanged
    | MemoryFound
    | ContinueDelivery
    | AbortDelivery
    | ReportAttachConfirmed
    | AdvertiseWays
    | ReportWaiting
    | RecallDeliveries
    | AwaitRecord
)


class OutletEnd(Interface):
    """An outgoing link to the client.

    Attributes:
        unrecorded: what waits until its outcomes are on record.
    """

    link: LinkId
    unrecorded: Unrecorded[Any]

    def take(self, deliveries: list[OutgoingDelivery]) -> None:
        """Sends deliveries from the core, or queues them."""

    def drained(self) -> None:
        """Records that a drain is complete and the credit used up."""


InletT = TypeVar("InletT", bound=Inlet)
OutletT = TypeVar("OutletT", bound=OutletEnd)


class ServingMachine(ConnectionMachine, Generic[InletT, OutletT]):
    """One connection that a client dialed.

    Attributes:
        spoken: name of the client's protocol.
        faults: errors that mean that the client is at fault; none if the owner of an inlet handles
            it.
        inlets, outlets: links, by identity.
    """

    spoken: ClassVar[str]
    faults: ClassVar[tuple[type[Exception], ...]] = ()
    inlets: dict[LinkId, InletT]
    outlets: dict[LinkId, OutletT]

    def next_link(self) -> LinkId:
        """Returns a new link id."""
        return next(self.settings.link_ids)

    def await_drained(self) -> None:
        """Sets the time limit of a deferred close."""
        self.gives_up_at = min(self.gives_up_at, self.now + DRAIN_SECONDS)

    # --- what the protocol has to say -------------------------------------------------------------

    def at_fault(self, fault: Exception, inlet: InletT) -> None:
        """Ends whatever a fault about an inlet concerns."""
        raise NotImplementedError

    def attached(self, command: AttachLink) -> bool:
        """Handles the core's acceptance of a link that is no inlet; returns whether it is known."""
        raise NotImplementedError

    def refused(self, link: LinkId, condition: Condition) -> None:
        """Handles the core's refusal of a link that is no inlet."""
        raise NotImplementedError

    def lost(self, outlet: OutletT, condition: Condition) -> None:
        """Handles the end of an outlet, as ordered by the core; it is no longer in ``outlets``."""
        raise NotImplementedError

    def follow(self, command: AddressesChanged) -> None:
        """Handles a change of the addresses of a pattern that are in use."""

    def found(self, command: MemoryFound) -> None:
        """Handles the state that siblings have kept."""

    def settled(self, command: UpdateDeliveries) -> None:
        """Handles the core's settlement of deliveries to the client."""

    def recorded(self, outlet: OutletT, waiters: Sequence[Any]) -> None:
        """Handles the core's report that the outcomes that they wait for are on record."""

    def unknown(self, outlet: OutletT, waiters: Sequence[Any], condition: Condition) -> None:
        """Handles that nobody will know: the core has ended their outlet before it has reported."""

    def stream(self, command: ContinueDelivery | AbortDelivery) -> None:
        """Handles a part of a delivery; sent only to engines that offer it."""

    # --- outcomes on record -----------------------------------------------------------------------

    def ask_for_record(self, outlet: OutletT) -> None:
        """Asks the core to report when the outcomes reported so far are on record.

        Not while it is asked for earlier ones: then it is asked again, when it has answered.
        """
        if outlet.unrecorded.ask():
            self.runs.add(RecordAwaited(outlet.link))

    def _report_recorded(self, inlet: InletT | None, link: LinkId) -> None:
        if inlet is not None:
            inlet.publishing.recorded(inlet)
            return
        outlet = self.outlets.get(link)
        if outlet is not None:
            waiters = outlet.unrecorded.answered()
            self.ask_for_record(outlet)
            self.recorded(outlet, waiters)

    # --- commands ---------------------------------------------------------------------------------

    def execute(self, command: Command) -> None:
        """Carries out a command."""
        if isinstance(command, CloseConnection):
            self.close(command.condition)
            return
        if self.phase is not MachinePhase.OPENED:
            return
        inlet: InletT | None = None
        try:
            match command:  # most frequent first
                case SendDeliveries(link=link, deliveries=deliveries):
                    outlet = self.outlets.get(link)
                    if outlet is not None:
                        outlet.take(deliveries)
                case UpdateDeliveries():
                    inlet = self.inlets.get(command.link)
                    self._update(inlet, command)
                case GrantCredit():
                    inlet = self.inlets.get(command.link)
                    if inlet is not None:
                        inlet.ahead = command.ahead
                        if self._spent:
                            self.go_on_reading(inlet)
                        inlet.publishing.granted(inlet, command.credit, command.drain)
                case ReturnCredit(link=link):
                    outlet = self.outlets.get(link)
                    if outlet is not None:
                        outlet.drained()
                case AttachLink(link=link):
                    inlet = self.inlets.get(link)
                    self._attach(inlet, command)
                case RefuseLink(link=link):
                    inlet = self.inlets.get(link)
                    self._refuse(inlet, command)
                case DetachLink(link=link):
                    inlet = self.inlets.get(link)
                    self._detach(inlet, command)
                case HoldWindow():
                    inlet = self.inlets.get(command.link)
                    if inlet is not None:
                        inlet.publishing.hold(inlet, command.held)
                case ReportRecorded():
                    inlet = self.inlets.get(command.link)
                    self._report_recorded(inlet, command.link)
                case _:
                    self._execute_other(command)
        except self.faults as fault:
            if inlet is None:
                raise
            self.at_fault(fault, inlet)
        self.watch_output()

    def _execute_other(self, command: _Other) -> None:
        """Carries out commands that few protocols use."""
        match command:
            case AddressesChanged():
                self.follow(command)
            case MemoryFound():
                self.found(command)
            case ContinueDelivery() | AbortDelivery():
                self.stream(command)
            case (
                ReportAttachConfirmed()
                | AdvertiseWays()
                | ReportWaiting()
                | RecallDeliveries()
                | AwaitRecord()
            ):
                pass  # siblings speak AMQP 1.0
            case _:
                assert_never(command)

    def _update(self, inlet: InletT | None, command: UpdateDeliveries) -> None:
        if inlet is None:
            if command.settled:
                self.settled(command)
            return
        numbers, state = command.numbers, command.state
        if not command.settled:
            if not is_outcome(state):
                return
            self.runs.add(DeliveriesUpdated(command.link, inlet.known(numbers), state, True))
        inlet.publishing.decided(inlet, numbers, state)

    def _attach(self, inlet: InletT | None, command: AttachLink) -> None:
        if inlet is not None:
            inlet.publishing.attached(inlet, command)
        elif not self.attached(command):
            text = f"a client of {self.spoken} accepts no links"
            self.decline(command, Condition(conditions.NOT_IMPLEMENTED, text))

    def _refuse(self, inlet: InletT | None, command: RefuseLink) -> None:
        if inlet is None:
            self.refused(command.link, command.condition)
        else:
            inlet.publishing.refused(inlet, command.condition)

    def _detach(self, inlet: InletT | None, command: DetachLink) -> None:
        outlet = self.outlets.pop(command.link, None)
        if inlet is None and outlet is None:
            return
        reason = command.condition or (_GONE if command.closed else _LEAVING)
        self.runs.add(LinkDetached(command.link, command.closed, command.condition))
        if inlet is not None:
            inlet.publishing.lost(inlet, reason)
        elif outlet is not None:
            waiters = outlet.unrecorded.take_all()
            self.lost(outlet, reason)
            if waiters:
                self.unknown(outlet, waiters, reason)
