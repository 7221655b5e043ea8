# cython: language_level=3
# cython: boundscheck=False, wraparound=False, initializedcheck=False
# cython: nonecheck=False, infer_types=False
"""Shortcuts for runs of which nothing is unusual; see ``bulk``.

Each function looks at all of its run first. If anything is unusual it changes nothing and says so,
and the machine whose shortcut it is goes the long way, which is the reference. Where deliveries
stand is written as ``router.links.life`` does: ``pair`` as its ``arrive``, ``send`` as its ``send``,
``answer`` as its ``answer_run``, ``settled_by_sender`` as its function of that name and ``forget``.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint64_t
from libc.string cimport memcpy

from router.core.link_ledgers import Entry
from router.links.pairing import NO_TAG, UNNUMBERED, Pairing
from router.model.delivery import OutgoingDelivery, ReceivedDelivery

include "../model/slots.pxi"

cdef PyObject *RECEIVED = <PyObject *>ReceivedDelivery
cdef PyObject *OUTGOING = <PyObject *>OutgoingDelivery
cdef PyObject *PAIRING = <PyObject *>Pairing
cdef PyObject *ENTRY = <PyObject *>Entry
cdef object _true = True
cdef object _false = False
cdef PyObject *TRUE = <PyObject *>_true
cdef PyObject *FALSE = <PyObject *>_false
cdef object _nowhere = UNNUMBERED
cdef PyObject *NOWHERE = <PyObject *>_nowhere
cdef object _sent_on_none = ()
cdef object _no_payload = b""

cdef Py_ssize_t r_number = place(ReceivedDelivery, "number")
cdef Py_ssize_t r_tag = place(ReceivedDelivery, "tag")
cdef Py_ssize_t r_payload = place(ReceivedDelivery, "payload")
cdef Py_ssize_t r_protocol = place(ReceivedDelivery, "protocol")
cdef Py_ssize_t r_format = place(ReceivedDelivery, "message_format")
cdef Py_ssize_t r_settled = place(ReceivedDelivery, "settled")
cdef Py_ssize_t r_more = place(ReceivedDelivery, "more")
cdef Py_ssize_t r_state = place(ReceivedDelivery, "state")
cdef Py_ssize_t r_resume = place(ReceivedDelivery, "resume")
cdef Py_ssize_t r_second = place(ReceivedDelivery, "settles_second")
cdef Py_ssize_t r_first = place(ReceivedDelivery, "settles_first")
cdef Py_ssize_t r_address = place(ReceivedDelivery, "address")
cdef Py_ssize_t r_ttl = place(ReceivedDelivery, "ttl_milliseconds")
cdef Py_ssize_t r_count = place(ReceivedDelivery, "delivery_count")
cdef Py_ssize_t r_key = place(ReceivedDelivery, "key")
cdef Py_ssize_t r_hops = place(ReceivedDelivery, "hops")

cdef Py_ssize_t o_number = place(OutgoingDelivery, "number")
cdef Py_ssize_t o_tag = place(OutgoingDelivery, "tag")
cdef Py_ssize_t o_payload = place(OutgoingDelivery, "payload")
cdef Py_ssize_t o_protocol = place(OutgoingDelivery, "protocol")
cdef Py_ssize_t o_format = place(OutgoingDelivery, "message_format")
cdef Py_ssize_t o_state = place(OutgoingDelivery, "state")
cdef Py_ssize_t o_resume = place(OutgoingDelivery, "resume")
cdef Py_ssize_t o_key = place(OutgoingDelivery, "key")

cdef Py_ssize_t p_incoming = place(Pairing, "incoming")
cdef Py_ssize_t p_number = place(Pairing, "number")
cdef Py_ssize_t p_delivery = place(Pairing, "delivery")
cdef Py_ssize_t p_queue = place(Pairing, "queue")
cdef Py_ssize_t p_arrived = place(Pairing, "arrived")
cdef Py_ssize_t p_sequence = place(Pairing, "sequence")
cdef Py_ssize_t p_settled = place(Pairing, "is_settled")
cdef Py_ssize_t p_unusual = place(Pairing, "is_unusual")
cdef Py_ssize_t p_outgoing = place(Pairing, "outgoing")
cdef Py_ssize_t p_outgoing_number = place(Pairing, "outgoing_number")
cdef Py_ssize_t p_outgoing_tag = place(Pairing, "outgoing_tag")
cdef Py_ssize_t p_outcome = place(Pairing, "outcome")
cdef Py_ssize_t p_reported = place(Pairing, "reported")
cdef Py_ssize_t p_attempts = place(Pairing, "attempts")
cdef Py_ssize_t p_parts = place(Pairing, "parts")
cdef Py_ssize_t p_fan = place(Pairing, "fan")

cdef Py_ssize_t e_key = place(Entry, "key")
cdef Py_ssize_t e_source = place(Entry, "source")
cdef Py_ssize_t e_tag = place(Entry, "tag")
cdef Py_ssize_t e_pairing = place(Entry, "pairing")
cdef Py_ssize_t e_waits = place(Entry, "waits")
cdef Py_ssize_t e_outcome = place(Entry, "outcome")
cdef Py_ssize_t e_recorded = place(Entry, "recorded")
cdef Py_ssize_t e_sent_on = place(Entry, "sent_on")
cdef Py_ssize_t e_answered = place(Entry, "answered_at")

cdef Maker pairings_maker = Maker(Pairing(None, UNNUMBERED, None, None, 0.0, 0))
cdef Maker entries_maker = Maker(Entry(b"", 0, b""))
cdef Maker outgoing_maker = Maker(OutgoingDelivery(UNNUMBERED, NO_TAG, b""))


# --- arrivals -------------------------------------------------------------------------------------


def name(list deliveries not None, bytes prefix not None, uint64_t first):
    """Names deliveries by their numbers of arrival, unless they have names.

    The reference is ``DeliveryKeys.arrived``.
    """
    cdef Py_ssize_t at, count = len(deliveries)
    cdef PyObject *delivery
    cdef char octets[16]
    cdef uint64_t arrival
    cdef int place_in_key
    if PyBytes_GET_SIZE(prefix) != 8:
        return False
    for at in range(count):
        delivery = item_of(<PyObject *>deliveries, at)
        if not is_record(delivery, RECEIVED) or not is_false(get_slot(delivery, r_resume)):
            return False
    memcpy(octets, PyBytes_AS_STRING(prefix), 8)
    for at in range(count):
        delivery = item_of(<PyObject *>deliveries, at)
        if is_none(get_slot(delivery, r_key)):
            arrival = first + <uint64_t>at
            for place_in_key in range(8):
                octets[8 + place_in_key] = <char>(arrival >> (56 - 8 * place_in_key))
            key = text_at(octets, 16)
            set_slot(delivery, r_key, <PyObject *>key)
    return True


def pair(
    list deliveries not None, incoming, feed, now, Py_ssize_t sequence, dict unsettled not None,
    bint second,
):
    """Makes pairings of whole new deliveries, or None.

    The reference is ``Forwarder.pair``.

    Returns:
        Pairings, their octets, and how many of them are settled.
    """
    cdef Py_ssize_t at, count = len(deliveries)
    cdef Py_ssize_t octets = 0, settled = 0
    cdef PyObject *delivery
    cdef PyObject *made
    cdef PyObject *payload
    for at in range(count):
        delivery = item_of(<PyObject *>deliveries, at)
        if not (
            is_record(delivery, RECEIVED)
            and is_false(get_slot(delivery, r_resume))
            and is_false(get_slot(delivery, r_more))
            and is_bool(get_slot(delivery, r_settled))
            and is_false(get_slot(delivery, r_first))
            and (second or is_false(get_slot(delivery, r_second)))
            and is_empty_tuple(get_slot(delivery, r_hops))
            and is_bytes(get_slot(delivery, r_payload))
        ):
            return None
    cdef list pairings = []
    for at in range(count):
        delivery = item_of(<PyObject *>deliveries, at)
        pairing = pairings_maker.make()
        made = <PyObject *>pairing
        number = <object>get_slot(delivery, r_number)
        sequence += 1
        place_in_line = sequence
        set_slot(made, p_incoming, <PyObject *>incoming)
        set_slot(made, p_number, <PyObject *>number)
        set_slot(made, p_delivery, delivery)
        set_slot(made, p_queue, <PyObject *>feed)
        set_slot(made, p_arrived, <PyObject *>now)
        set_slot(made, p_sequence, <PyObject *>place_in_line)
        if is_false(get_slot(delivery, r_settled)):
            unsettled[number] = pairing
        else:
            set_slot(made, p_settled, TRUE)
            settled += 1
        pairings.append(pairing)
        octets += PyBytes_GET_SIZE(<object>get_slot(delivery, r_payload))
    return pairings, octets, settled


def enter(
    list pairings not None, dict entries not None, dict numbered not None, source, waits, protocol,
    bint has_address,
):
    """Enters deliveries into their ledger; gives keys, tags and payloads, or None.

    The reference is ``Arrivals._enter``.
    """
    cdef Py_ssize_t at, count = len(pairings)
    cdef PyObject *pairing
    cdef PyObject *delivery
    cdef PyObject *made
    for at in range(count):
        pairing = item_of(<PyObject *>pairings, at)
        if not is_record(pairing, PAIRING):
            return None
        delivery = get_slot(pairing, p_delivery)
        if not (
            is_record(delivery, RECEIVED)
            and is_false(get_slot(pairing, p_settled))
            and is_none(get_slot(pairing, p_parts))
            and is_none(get_slot(delivery, r_ttl))
            and is_zero(get_slot(delivery, r_count))
            and is_zero(get_slot(delivery, r_format))
            and get_slot(delivery, r_protocol) == <PyObject *>protocol
            and (has_address or is_none(get_slot(delivery, r_address)))
            and is_bytes(get_slot(delivery, r_key))
        ):
            return None
    cdef list keys = [], tags = [], payloads = []
    for at in range(count):
        pairing = item_of(<PyObject *>pairings, at)
        delivery = get_slot(pairing, p_delivery)
        key = <object>get_slot(delivery, r_key)
        tag = <object>get_slot(delivery, r_tag)
        entry = entries_maker.make()
        made = <PyObject *>entry
        set_slot(made, e_key, <PyObject *>key)
        set_slot(made, e_source, <PyObject *>source)
        set_slot(made, e_tag, <PyObject *>tag)
        set_slot(made, e_pairing, pairing)
        set_slot(made, e_waits, <PyObject *>waits)
        entries[key] = entry
        numbered[<object>get_slot(pairing, p_number)] = entry
        keys.append(key)
        tags.append(tag)
        payloads.append(<object>get_slot(delivery, r_payload))
    return keys, tags, payloads


# --- departures -----------------------------------------------------------------------------------


def send(
    list pairings not None, link, Py_ssize_t number, dict unsettled not None, list run not None,
    bytes prefix, Py_ssize_t most_tag_octets, bint carries_keys,
):
    """Adds deliveries to a link's run, numbered from ``number`` on; gives their octets, or -1.

    The reference is ``Forwarder._send_run``.

    Without ``prefix`` the number is the tag.
    """
    cdef Py_ssize_t at, count = len(pairings), octets = 0, head = 0, length
    cdef PyObject *pairing
    cdef PyObject *delivery
    cdef PyObject *made
    cdef char text[256]
    if prefix is not None:
        head = PyBytes_GET_SIZE(prefix)
    if most_tag_octets > 256 or head > most_tag_octets:
        return -1
    for at in range(count):
        pairing = item_of(<PyObject *>pairings, at)
        if not is_record(pairing, PAIRING):
            return -1
        delivery = get_slot(pairing, p_delivery)
        if not (
            is_record(delivery, RECEIVED)
            and is_zero(get_slot(pairing, p_attempts))
            and (prefix is None or is_false(get_slot(delivery, r_settled)))
            and is_none(get_slot(delivery, r_ttl))
            and is_bytes(get_slot(delivery, r_payload))
            and is_bytes(get_slot(delivery, r_tag))
            and head + PyBytes_GET_SIZE(<object>get_slot(delivery, r_tag)) <= most_tag_octets
        ):
            return -1
    if prefix is not None:
        memcpy(text, PyBytes_AS_STRING(prefix), head)
    for at in range(count):
        pairing = item_of(<PyObject *>pairings, at)
        delivery = get_slot(pairing, p_delivery)
        if prefix is None:
            text[0], text[1] = <char>(number >> 24), <char>(number >> 16)
            text[2], text[3] = <char>(number >> 8), <char>number
            tag = text_at(text, 4)
        else:
            of_sender = <object>get_slot(delivery, r_tag)
            length = PyBytes_GET_SIZE(of_sender)
            memcpy(text + head, PyBytes_AS_STRING(of_sender), length)
            tag = text_at(text, head + length)
        ours = number
        outgoing = outgoing_maker.make()
        made = <PyObject *>outgoing
        set_slot(made, o_number, <PyObject *>ours)
        set_slot(made, o_tag, <PyObject *>tag)
        set_slot(made, o_payload, get_slot(delivery, r_payload))
        set_slot(made, o_protocol, get_slot(delivery, r_protocol))
        set_slot(made, o_format, get_slot(delivery, r_format))
        set_slot(made, o_state, get_slot(delivery, r_state))
        if carries_keys:
            set_slot(made, o_key, get_slot(delivery, r_key))
        set_slot(pairing, p_outgoing, <PyObject *>link)
        set_slot(pairing, p_outgoing_number, <PyObject *>ours)
        set_slot(pairing, p_outgoing_tag, <PyObject *>tag)
        unsettled[ours] = <object>pairing
        run.append(outgoing)
        octets += PyBytes_GET_SIZE(<object>get_slot(delivery, r_payload))
        number += 1
    return octets


def sending(
    list run not None, dict unsettled not None, incoming, dict known not None,
    dict numbered not None, sent_on,
):
    """Records deliveries of one sender that are sent; returns keys and tags, or None.

    The reference is ``Departures.sending``.
    """
    cdef Py_ssize_t at, count = len(run)
    cdef PyObject *outgoing
    cdef PyObject *pairing
    cdef PyObject *delivery
    cdef PyObject *entry
    cdef list entries = [], keys = [], tags = []
    for at in range(count):
        outgoing = item_of(<PyObject *>run, at)
        if not is_record(outgoing, OUTGOING) or not is_false(get_slot(outgoing, o_resume)):
            return None
        pairing = found_in(<PyObject *>unsettled, get_slot(outgoing, o_number))
        if pairing == NULL or not is_record(pairing, PAIRING):
            return None
        if get_slot(pairing, p_incoming) != <PyObject *>incoming:
            return None
        delivery = get_slot(pairing, p_delivery)
        if not is_record(delivery, RECEIVED) or not is_bytes(get_slot(delivery, r_key)):
            return None
        entry = found_in(<PyObject *>known, get_slot(delivery, r_key))
        if entry == NULL or not is_record(entry, ENTRY):
            return None
        if not is_empty_tuple(get_slot(entry, e_sent_on)):
            return None
        entries.append(<object>entry)
    for at in range(count):
        outgoing = item_of(<PyObject *>run, at)
        entry = item_of(<PyObject *>entries, at)
        set_slot(entry, e_sent_on, <PyObject *>sent_on)
        set_slot(entry, e_outcome, FALSE)
        numbered[<object>get_slot(outgoing, o_number)] = <object>entry
        keys.append(<object>get_slot(entry, e_key))
        tags.append(<object>get_slot(outgoing, o_tag))
    return keys, tags


# --- what receivers say ---------------------------------------------------------------------------


cdef list entries_of(list numbers, dict numbered):
    """Returns the entries of the known numbers, if they are of one link; else None."""
    cdef Py_ssize_t at
    cdef PyObject *entry
    cdef PyObject *first = NULL
    cdef list entries = []
    for at in range(len(numbers)):
        entry = found_in(<PyObject *>numbered, item_of(<PyObject *>numbers, at))
        if entry == NULL:
            continue
        if not is_record(entry, ENTRY):
            return None
        if first == NULL:
            first = entry
        elif (
            get_slot(entry, e_source) != get_slot(first, e_source)
            and <object>get_slot(entry, e_source) != <object>get_slot(first, e_source)
        ):
            return None
        entries.append(<object>entry)
    return entries


cdef list keys_of(list entries):
    cdef Py_ssize_t at
    cdef list keys = []
    for at in range(len(entries)):
        keys.append(<object>get_slot(item_of(<PyObject *>entries, at), e_key))
    return keys


def record_outcome(list numbers not None, dict numbered not None, bint settled, state):
    """Records an outcome in entries of one source.

    The reference is ``Departures.receiver_updated``.

    Returns:
        Entries, their keys, and whether some are for senders that are away; or None.
    """
    cdef Py_ssize_t at
    cdef PyObject *entry
    cdef PyObject *pairing
    cdef bint is_away = False
    cdef list entries = entries_of(numbers, numbered)
    if entries is None:
        return None
    for at in range(len(entries)):
        pairing = get_slot(item_of(<PyObject *>entries, at), e_pairing)
        if is_record(pairing, PAIRING) and not is_none(get_slot(pairing, p_fan)):
            return None
    for at in range(len(entries)):
        entry = item_of(<PyObject *>entries, at)
        set_slot(entry, e_outcome, TRUE)
        set_slot(entry, e_recorded, <PyObject *>state)
        pairing = get_slot(entry, e_pairing)
        if is_record(pairing, PAIRING) and not is_false(get_slot(pairing, p_settled)):
            is_away = True
    if settled:
        for at in range(len(numbers)):
            took_from(<PyObject *>numbered, item_of(<PyObject *>numbers, at))
    return entries, keys_of(entries), is_away


def answered(list numbers not None, dict unsettled not None):
    """Finds usual deliveries of one sender that have their outcome now.

    The reference is ``Settler.receiver_updated``.

    Either it has settled all of them, or none.

    Returns:
        Sender, pairings, their numbers there, and their octets; or None.
    """
    cdef Py_ssize_t at, octets = 0
    cdef PyObject *pairing
    cdef PyObject *delivery
    cdef PyObject *incoming = NULL
    cdef PyObject *settled = NULL
    cdef list pairings = [], theirs = []
    for at in range(len(numbers)):
        pairing = found_in(<PyObject *>unsettled, item_of(<PyObject *>numbers, at))
        if pairing == NULL:
            continue
        if not is_record(pairing, PAIRING):
            return None
        delivery = get_slot(pairing, p_delivery)
        if incoming == NULL:
            incoming = get_slot(pairing, p_incoming)
            settled = get_slot(pairing, p_settled)
        if (
            get_slot(pairing, p_incoming) != incoming
            or get_slot(pairing, p_settled) != settled
            or not is_false(get_slot(pairing, p_unusual))
            or not is_none(get_slot(pairing, p_outcome))
            or not is_record(delivery, RECEIVED)
            or not is_bytes(get_slot(delivery, r_payload))
        ):
            return None
        pairings.append(<object>pairing)
        theirs.append(<object>get_slot(pairing, p_number))
        octets += PyBytes_GET_SIZE(<object>get_slot(delivery, r_payload))
    if incoming == NULL:
        return None
    return <object>incoming, pairings, theirs, octets


def answer(list pairings not None, outcome):
    """Records in pairings the outcome that is sent to their senders, which settle first.

    The reference is ``Settler._report_run``.
    """
    cdef Py_ssize_t at
    cdef PyObject *pairing
    cdef PyObject *delivery
    for at in range(len(pairings)):
        pairing = item_of(<PyObject *>pairings, at)
        delivery = get_slot(pairing, p_delivery)
        if not is_record(pairing, PAIRING) or not is_record(delivery, RECEIVED):
            raise TypeError("no pairing")
        set_slot(pairing, p_outcome, <PyObject *>outcome)
        set_slot(pairing, p_reported, <PyObject *>outcome)
        set_slot(delivery, r_payload, <PyObject *>_no_payload)


def is_recorded(list numbers not None, dict numbered not None, state):
    """Returns whether exactly the outcome that a sender will get is on record for all of a run.

    The reference is ``Departures._updating_sender``.
    """
    cdef Py_ssize_t at
    cdef PyObject *entry
    for at in range(len(numbers)):
        entry = found_in(<PyObject *>numbered, item_of(<PyObject *>numbers, at))
        if entry == NULL:
            continue
        if (
            not is_record(entry, ENTRY)
            or not is_true(get_slot(entry, e_outcome))
            or get_slot(entry, e_recorded) != <PyObject *>state
        ):
            return False
    return True


# --- what senders say -----------------------------------------------------------------------------


def settle_with_sender(list numbers not None, dict numbered not None, dict entries not None):
    """Forgets deliveries that their sender has settled; gives the keys of those that were known.

    The reference is ``Arrivals.sender_updated``.
    """
    cdef Py_ssize_t at
    cdef PyObject *number
    cdef PyObject *found
    cdef list keys = []
    for at in range(len(numbers)):
        number = item_of(<PyObject *>numbers, at)
        found = found_in(<PyObject *>numbered, number)
        if found == NULL or not is_record(found, ENTRY):
            continue
        entry = <object>found  # kept while it is taken out
        key = <object>get_slot(found, e_key)
        took_from(<PyObject *>numbered, number)
        if took_from(<PyObject *>entries, <PyObject *>key):
            set_slot(found, e_pairing, <PyObject *>None)
            keys.append(key)
    return keys


def settled_by_sender(list numbers not None, dict unsettled not None, state):
    """Ends usual deliveries that went to one receiver and have one outcome.

    The reference is ``Settler.sender_updated``.

    Returns:
        Receiver, outcome, and their numbers there; or None.
    """
    cdef Py_ssize_t at
    cdef PyObject *pairing
    cdef PyObject *number
    cdef PyObject *link = NULL
    cdef PyObject *outcome
    cdef PyObject *final = NULL
    for at in range(len(numbers)):
        pairing = found_in(<PyObject *>unsettled, item_of(<PyObject *>numbers, at))
        if pairing == NULL:
            continue
        if not is_record(pairing, PAIRING) or not is_false(get_slot(pairing, p_unusual)):
            return None
        outcome = get_slot(pairing, p_outcome)
        if is_none(outcome) or is_none(get_slot(pairing, p_outgoing)):
            return None
        if state is not None:
            outcome = <PyObject *>state
        if link == NULL:
            link, final = get_slot(pairing, p_outgoing), outcome
        if get_slot(pairing, p_outgoing) != link or outcome != final:
            return None
    if link == NULL:
        return None
    receiver, answer = <object>link, <object>final
    if receiver.adrift:
        return None
    cdef dict sent = receiver.unsettled
    cdef list settling = []
    for at in range(len(numbers)):
        number = item_of(<PyObject *>numbers, at)
        pairing = found_in(<PyObject *>unsettled, number)
        if pairing == NULL:
            continue
        kept = <object>pairing
        took_from(<PyObject *>unsettled, number)
        ours = <object>get_slot(pairing, p_outgoing_number)
        settling.append(ours)
        took_from(<PyObject *>sent, <PyObject *>ours)
        set_slot(pairing, p_number, NOWHERE)
        set_slot(pairing, p_settled, TRUE)
        set_slot(pairing, p_unusual, TRUE)
        set_slot(pairing, p_outgoing, <PyObject *>None)
        set_slot(pairing, p_outgoing_number, NOWHERE)
    return receiver, answer, settling


def settle_with_receiver(list numbers not None, dict numbered not None, sent_on):
    """Forgets at their receiver deliveries of one sender that are there alone.

    The reference is ``Departures._updating_receiver``.

    Returns:
        Their source and keys; or None.
    """
    cdef Py_ssize_t at
    cdef list entries = entries_of(numbers, numbered)
    if not entries:
        return None
    for at in range(len(entries)):
        if get_slot(item_of(<PyObject *>entries, at), e_sent_on) != <PyObject *>sent_on:
            return None
    for at in range(len(entries)):
        set_slot(item_of(<PyObject *>entries, at), e_sent_on, <PyObject *>_sent_on_none)
    for at in range(len(numbers)):
        took_from(<PyObject *>numbered, item_of(<PyObject *>numbers, at))
    return <object>get_slot(item_of(<PyObject *>entries, 0), e_source), keys_of(entries)
