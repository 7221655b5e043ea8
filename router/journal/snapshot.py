"""Writes the unsettled deliveries as the fewest records that describe them."""

from collections.abc import Callable

from router.journal.keys import NO_LINK
from router.journal.memory import Memory
from router.journal.record import NO_TTL, RecordFlag, Resolution
from router.journal.unsettled import LinkMemory, LinkStage, Sending, SendingStage, Unsettled
from router.journal.writer import RecordWriter


def write_memory(memory: Memory, writer_of: Callable[[int], RecordWriter]) -> None:
    """Writes the fewest records that make a new ``Memory`` equal to ``memory``.

    Args:
        memory: what is unsettled.
        writer_of: gives the writer for what belongs to a worker.
    """
    numbers = memory.numbers
    if numbers is not None:
        writer_of(numbers.worker).numbers(numbers.since_ns, numbers.epoch, numbers.limit)
    for link in memory.links.values():
        _write_link(link, writer_of(link.worker))
    for delivery in memory.oldest_first():
        _write_delivery(delivery, writer_of(delivery.worker))


def _write_link(link: LinkMemory, writer: RecordWriter) -> None:
    writer.link_attached(link.since_ns, link.description)
    if link.stage is LinkStage.ATTACHED:
        return
    incoming, outgoing = link.description.key, NO_LINK
    if not link.description.is_incoming:
        incoming, outgoing = outgoing, incoming
    if link.stage is LinkStage.SUSPENDED:
        writer.link_suspended(link.since_ns, incoming, outgoing)
    else:
        writer.link_expired(link.since_ns, incoming, outgoing)


def _write_delivery(delivery: Unsettled, writer: RecordWriter) -> None:
    """Writes a delivery in an order in which it is never forgotten on the way."""
    place = delivery.received_ns, delivery.key, delivery.incoming
    _write_received(delivery, writer)
    if delivery.was_returned:
        writer.resolved(*place, NO_LINK, Resolution.SEND_AGAIN)
    for outgoing in delivery.taken_back:
        writer.resolved(*place, outgoing, Resolution.SEND_AGAIN, is_unsent=True)
    for sending in delivery.sendings.values():
        writer.sent(
            sending.sent_ns,
            delivery.key,
            delivery.incoming,
            sending.outgoing,
            sending.tag,
            flags=RecordFlag.FANNED if sending.is_fanned else 0,
            address=sending.address,
            delivery_count=sending.delivery_count,
        )
    if delivery.is_waiting and delivery.sendings:
        writer.resolved(*place, NO_LINK, Resolution.SEND_AGAIN, is_unsent=True)
    for sending in delivery.sendings.values():
        _write_sending_stage(sending, delivery, writer)
    if delivery.outcome:
        writer.outcome(
            *place, NO_LINK, delivery.outcome, flags=delivery.outcome_flags, state=delivery.state
        )
    if delivery.source_settled and not delivery.is_waiting:
        writer.settled(*place)


def _write_received(delivery: Unsettled, writer: RecordWriter) -> None:
    parts, ttl = delivery.parts or [], delivery.ttl_milliseconds
    flags = 0
    if delivery.clouded:
        flags |= RecordFlag.CLOUDED
    if delivery.is_spliced:
        flags |= RecordFlag.SPLICED
    if delivery.source_settled and delivery.is_waiting:
        flags |= RecordFlag.SETTLED
    if len(parts) > 1 or not delivery.is_whole:
        flags |= RecordFlag.MORE
    writer.received(
        delivery.received_ns,
        delivery.key,
        delivery.incoming,
        delivery.tag,
        guarantee=delivery.guarantee,
        protocol=delivery.protocol,
        flags=flags,
        address=delivery.address,
        payload=parts[0] if parts else None,
        message_octets=delivery.message_octets,
        message_format=delivery.message_format,
        delivery_count=delivery.delivery_count,
        ttl_milliseconds=NO_TTL if ttl is None else ttl,
    )
    place = delivery.received_ns, delivery.key, delivery.incoming
    offset = len(parts[0]) if parts else 0
    for number, part in enumerate(parts[1:], start=2):
        more = number < len(parts) or not delivery.is_whole
        writer.part(*place, part, more=more, offset=offset)
        offset += len(part)


def _write_sending_stage(sending: Sending, delivery: Unsettled, writer: RecordWriter) -> None:
    place = sending.sent_ns, delivery.key, delivery.incoming, sending.outgoing
    if sending.outcome or sending.stage is SendingStage.ANSWERED:
        writer.outcome(*place, sending.outcome, flags=sending.outcome_flags, state=sending.state)
    if sending.stage is SendingStage.IN_DOUBT:
        writer.in_doubt(*place)
    elif sending.stage is SendingStage.SETTLED:
        writer.settled(*place)
