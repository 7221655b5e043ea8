"""Commands about deliveries: send, continue, abort, update.

Theory of operation. A delivery's payload is prepared here: translated if it was received in another
protocol's encoding, its head changed if the delivery requires it. A delivery that cannot be sent
(not translatable to AMQP 1.0, or larger than the peer accepts) is reported as rejected, as the peer
would have done, and the link continues.
"""

from router.errors import DecodeError, TranslationError
from router.model.capabilities import Protocol
from router.model.commands import (
    AbortDelivery,
    ContinueDelivery,
    SendDeliveries,
    UpdateDeliveries,
)
from router.model.condition import INVALID_FIELD, MESSAGE_SIZE_EXCEEDED, Condition
from router.model.delivery import OutgoingDelivery
from router.model.identity import DeliveryNumber
from router.model.outcome import Received, Rejected
from router.wire import hub
from router.wire.v1_0.endpoints import Endpoints
from router.wire.v1_0.head import rewritten
from router.wire.v1_0.link import IncomingLink, OutgoingLink, Verb, Waiting
from router.wire.v1_0.outgoing import Outgoing
from router.wire.v1_0.settlement import update_incoming, update_outgoing


class Sending:
    """Carries out the commands about deliveries of one connection."""

    __slots__ = ("_endpoints", "_outgoing")

    def __init__(self, endpoints: Endpoints, outgoing: Outgoing) -> None:
        self._endpoints = endpoints
        self._outgoing = outgoing

    # --- send -------------------------------------------------------------------------------------

    def send(self, command: SendDeliveries) -> None:
        """Sends a run of deliveries, or queues them."""
        link = self._endpoints.live(command.link)
        if not isinstance(link, OutgoingLink):
            return
        deliveries = command.deliveries
        if deliveries and deliveries[0].protocol is not Protocol.AMQP_1_0:
            _translate_run(deliveries)
        at = 0
        while at < len(deliveries):
            taken = self._outgoing.send_run(link, deliveries, at)
            if not taken:
                self._send_one(link, deliveries[at])
            at += taken or 1

    def _send_one(self, link: OutgoingLink, delivery: OutgoingDelivery) -> None:
        number = delivery.number
        if delivery.more:
            link.begun = number
            link.begun_octets = 0
            link.begun_is_void = False
        try:
            payload = self._ready(delivery)
        except TranslationError as error:
            self._reject(link, number, Condition(INVALID_FIELD, str(error)))
            return
        except DecodeError as error:
            self._reject(link, number, Condition(error.condition, error.rule))
            return
        if self._fits(link, number, len(payload)):
            self._outgoing.send(link, Waiting(Verb.BEGIN, number, payload, delivery.more, delivery))

    def _ready(self, delivery: OutgoingDelivery) -> bytes:
        """Prepares the payload: in AMQP 1.0 encoding, with the head that the delivery requires."""
        payload = delivery.payload
        if delivery.protocol is not Protocol.AMQP_1_0:
            if delivery.more:
                raise TranslationError("payload", "a part of a message cannot be translated")
            payload = _translated(delivery)
        if delivery.message_format or isinstance(delivery.state, Received):
            return payload  # not an AMQP message, or not its beginning
        return rewritten(payload, delivery, self._outgoing.is_router)

    def _fits(self, link: OutgoingLink, number: DeliveryNumber, octets: int) -> bool:
        """Checks a delivery against the peer's max-message-size (§2.7.3)."""
        if link.begun == number:
            link.begun_octets += octets
            octets = link.begun_octets
        most = link.state.max_message_octets
        if not 0 < most < octets:
            return True
        limit = f"{octets} octets or more, the peer accepts {most}"
        self._reject(link, number, Condition(MESSAGE_SIZE_EXCEEDED, limit))
        return False

    def _reject(self, link: OutgoingLink, number: DeliveryNumber, condition: Condition) -> None:
        """Reports an unsent delivery as rejected; its credit is still available."""
        if link.begun == number:
            link.begun_is_void = True
        self._endpoints.runs.update(link.link, [number], Rejected(condition), True)
        self._endpoints.credit_changes[link] = None

    # --- the rest of a delivery -------------------------------------------------------------------

    def proceed(self, command: ContinueDelivery) -> None:
        """Sends a further part of the delivery begun last."""
        link = self._endpoints.live(command.link)
        if not isinstance(link, OutgoingLink) or link.begun != command.number:
            return
        if not link.begun_is_void:
            if self._fits(link, command.number, len(command.payload)):
                item = Waiting(Verb.CONTINUE, command.number, command.payload, command.more)
                self._outgoing.send(link, item)
            else:
                self._outgoing.give_up(link, command.number)
        if not command.more:
            link.begun = None
            link.mark_progress()

    def abort(self, command: AbortDelivery) -> None:
        """Aborts the delivery begun last."""
        link = self._endpoints.live(command.link)
        if not isinstance(link, OutgoingLink) or link.begun != command.number:
            return
        if not link.begun_is_void and self._outgoing.give_up(link, command.number):
            self._endpoints.credit_changes[link] = None
        link.begun = None
        link.mark_progress()

    # --- updates ----------------------------------------------------------------------------------

    def update(self, command: UpdateDeliveries) -> None:
        """Gathers an update of deliveries for the peer."""
        link = self._endpoints.find(command.link)
        if link is None or not command.numbers:
            return
        session = link.session
        if isinstance(link, IncomingLink):
            ids = update_incoming(link, command.numbers, command.settled)
            settling = session.settling_received
        elif isinstance(link, OutgoingLink):
            if link.queued_deliveries:
                self._update_waiting(link, command)
            ids = update_outgoing(link, command.numbers, command.settled)
            settling = session.settling_sent
        if ids:
            if settling.must_send_before(command.state, command.settled):
                settling.send(session)
            settling.add(ids, command.state, command.settled)
            self._endpoints.due[session] = None

    @staticmethod
    def _update_waiting(link: OutgoingLink, command: UpdateDeliveries) -> None:
        """Applies an update to unsent deliveries: their transfer will carry it."""
        numbers = set(command.numbers)
        for item in link.queue:
            if item.is_unsent and item.number in numbers and item.delivery is not None:
                item.delivery.state = command.state
                item.delivery.settled = item.delivery.settled or command.settled


def _translate_run(deliveries: list[OutgoingDelivery]) -> None:
    """Translates a run of one protocol in advance, so that it can be sent as a run.

    A delivery that cannot be translated is left unchanged, and refused when it is its turn.
    """
    protocol = deliveries[0].protocol
    for delivery in deliveries:
        if delivery.protocol is protocol and not delivery.more:
            try:
                delivery.payload = _translated(delivery)
            except (TranslationError, DecodeError):
                continue
            delivery.protocol = Protocol.AMQP_1_0


def _translated(delivery: OutgoingDelivery) -> bytes:
    """Translates a message; a transfer that only resumes a delivery has none (§2.6.13)."""
    if delivery.resume and not delivery.payload:
        return b""
    return hub.translate(delivery.payload, delivery.protocol, Protocol.AMQP_1_0)
