# cython: language_level=3
# cython: boundscheck=False, wraparound=False, initializedcheck=False
# cython: nonecheck=False, infer_types=False
"""Shortcuts of the general path for runs without special cases; see ``bulk``.

A peer's octets are read within the given bounds, and a frame never beyond its size.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint32_t
from libc.string cimport memcmp, memcpy

from router.model.capabilities import Protocol
from router.model.delivery import OutgoingDelivery, ReceivedDelivery
from router.wire.v1_0.head import KEY_LEAD, KEY_OCTETS

include "../../model/slots.pxi"

cdef extern from *:
    """
    static inline uint32_t load32(const uint8_t *at) {
        return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
    }
    static inline void store32(uint8_t *at, uint32_t value) {
        at[0] = value >> 24; at[1] = value >> 16; at[2] = value >> 8; at[3] = value;
    }
    """
    uint32_t load32(const uint8_t *at)
    void store32(uint8_t *at, uint32_t value)

cdef PyObject *OUTGOING = <PyObject *>OutgoingDelivery
cdef object _own = Protocol.AMQP_1_0
cdef bytes _key_lead = KEY_LEAD
cdef Py_ssize_t KEY_LEADS = len(KEY_LEAD), KEYS = KEY_OCTETS

cdef Py_ssize_t r_number = place(ReceivedDelivery, "number")
cdef Py_ssize_t r_tag = place(ReceivedDelivery, "tag")
cdef Py_ssize_t r_payload = place(ReceivedDelivery, "payload")
cdef Py_ssize_t r_settled = place(ReceivedDelivery, "settled")
cdef Py_ssize_t r_second = place(ReceivedDelivery, "settles_second")
cdef Py_ssize_t r_ttl = place(ReceivedDelivery, "ttl_milliseconds")
cdef Py_ssize_t r_count = place(ReceivedDelivery, "delivery_count")
cdef Py_ssize_t r_key = place(ReceivedDelivery, "key")

cdef Py_ssize_t o_number = place(OutgoingDelivery, "number")
cdef Py_ssize_t o_tag = place(OutgoingDelivery, "tag")
cdef Py_ssize_t o_payload = place(OutgoingDelivery, "payload")
cdef Py_ssize_t o_protocol = place(OutgoingDelivery, "protocol")
cdef Py_ssize_t o_format = place(OutgoingDelivery, "message_format")
cdef Py_ssize_t o_settled = place(OutgoingDelivery, "settled")
cdef Py_ssize_t o_more = place(OutgoingDelivery, "more")
cdef Py_ssize_t o_state = place(OutgoingDelivery, "state")
cdef Py_ssize_t o_resume = place(OutgoingDelivery, "resume")
cdef Py_ssize_t o_ttl = place(OutgoingDelivery, "ttl_milliseconds")
cdef Py_ssize_t o_count = place(OutgoingDelivery, "delivery_count")
cdef Py_ssize_t o_key = place(OutgoingDelivery, "key")
cdef Py_ssize_t o_hops = place(OutgoingDelivery, "hops")

cdef Maker received_maker = Maker(ReceivedDelivery(0, b"", b""))

cdef enum:
    MOST_COPIED = 4096  # octets of a payload; a larger one is passed on without a copy


# --- transfers ------------------------------------------------------------------------------------


cdef bytes without(const char *octets, Py_ssize_t count, Py_ssize_t at, Py_ssize_t cut):
    """Returns octets without those that were cut out at an offset."""
    cdef bytes left = PyBytes_FromStringAndSize(NULL, count - cut)
    memcpy(PyBytes_AS_STRING(left), octets, at)
    memcpy(PyBytes_AS_STRING(left) + at, octets + at + cut, count - cut - at)
    return left


def read_run(
    bytes octets not None, Py_ssize_t at, Py_ssize_t end, Py_ssize_t largest, Py_ssize_t most,
    bytes head not None, bytes tag_head not None, bytes tail not None, Py_ssize_t delivery_id,
    settled, is_second, known, Py_ssize_t key_lead,
):
    """Reads transfers of one shape; returns the offset where it stopped, and the deliveries.

    The reference is ``incoming.Receiving._read_run``.
    """
    cdef const uint8_t *begin = <const uint8_t *>PyBytes_AS_STRING(octets)
    cdef const uint8_t *frame
    cdef const uint8_t *tag_at
    cdef Py_ssize_t heads = PyBytes_GET_SIZE(head), tails = PyBytes_GET_SIZE(tail)
    cdef const char *a_head = PyBytes_AS_STRING(head)
    cdef const char *a_tail = PyBytes_AS_STRING(tail)
    cdef const char *a_tag_head = PyBytes_AS_STRING(tag_head)
    cdef bytes header = known.last
    cdef Py_ssize_t headers = PyBytes_GET_SIZE(header)
    cdef Py_ssize_t tags, least, size, body
    cdef Py_ssize_t keys = KEYS if key_lead else 0
    cdef bint has_ttl_or_count = known.has_ttl_or_count
    cdef PyObject *made
    cdef bint knows
    cdef list run = []
    if PyBytes_GET_SIZE(tag_head) != 2 or end > PyBytes_GET_SIZE(octets) or at < 0:
        return at, run
    if key_lead < 0 or key_lead > headers:
        raise ValueError("no such memory")
    tags = <uint8_t>a_tag_head[1]
    least = 4 + heads + 4 + 2 + tags + tails
    while at + least <= end and len(run) < most:
        frame = begin + at
        size = load32(frame)
        tag_at = frame + 4 + heads + 4 + 2
        if (
            load32(frame + 4 + heads) != <uint32_t>delivery_id
            or size < least
            or size > largest
            or size > end - at
            or memcmp(tag_at + tags, a_tail, tails)
            or memcmp(frame + 4, a_head, heads)
            or memcmp(tag_at - 2, a_tag_head, 2)
        ):
            break
        delivery = received_maker.make()
        made = <PyObject *>delivery
        number = delivery_id
        tag = text_at(<const char *>tag_at, tags)
        body = size - least
        knows = body >= headers + keys and not memcmp(
            frame + least, PyBytes_AS_STRING(header), headers
        )
        if knows and keys:
            key = text_at(<const char *>frame + least + headers, keys)
            set_slot(made, r_key, <PyObject *>key)
            payload = without(
                <const char *>frame + least, body, headers - key_lead, key_lead + keys
            )
        else:
            payload = text_at(<const char *>frame + least, body)
        set_slot(made, r_number, <PyObject *>number)
        set_slot(made, r_tag, <PyObject *>tag)
        set_slot(made, r_payload, <PyObject *>payload)
        set_slot(made, r_settled, <PyObject *>settled)
        set_slot(made, r_second, <PyObject *>is_second)
        if not knows:
            known.fill(delivery)
            header = known.last
            headers = PyBytes_GET_SIZE(header)
            has_ttl_or_count = known.has_ttl_or_count
        elif has_ttl_or_count:
            ttl, count = known.ttl_and_count
            set_slot(made, r_ttl, <PyObject *>ttl)
            set_slot(made, r_count, <PyObject *>count)
        run.append(delivery)
        delivery_id += 1
        at += size
    return at, run


cdef Py_ssize_t place_of_key(bytes payload):
    """As ``head.place_of_key``, which is the reference."""
    cdef const uint8_t *octets = <const uint8_t *>PyBytes_AS_STRING(payload)
    cdef Py_ssize_t size = PyBytes_GET_SIZE(payload), at = 0
    if size > 3 and octets[0] == 0 and octets[1] == 0x53 and octets[2] == 0x70:
        if octets[3] == 0x45:
            at = 4
        elif octets[3] == 0xC0 and size > 4 and octets[4]:
            at = 5 + octets[4]
        else:
            return -1
    if at < size - 3 and octets[at] == 0 and octets[at + 1] == 0x53 and 0x71 < octets[at + 2] < 0x79:
        return at
    return -1


def write_run(
    list deliveries not None, Py_ssize_t start, Py_ssize_t end, bytes head not None,
    bytes tag_head not None, Py_ssize_t tags, uint32_t delivery_id, Py_ssize_t largest,
    Py_ssize_t largest_frame, bint is_router,
):
    """Encodes the frames of common deliveries with tags of one length.

    The reference is ``outgoing.Outgoing._write_run``.

    Returns:
        The frames, and their number.
    """
    cdef Py_ssize_t heads = PyBytes_GET_SIZE(head)
    cdef Py_ssize_t least = 4 + heads + 4 + 2 + tags + 2
    cdef Py_ssize_t at, size, before, keyed, octets = 0, count = 0
    cdef PyObject *delivery
    cdef PyObject *payload
    cdef PyObject *tag
    cdef PyObject *key
    cdef uint8_t *frame
    if start < 0 or end > len(deliveries) or PyBytes_GET_SIZE(tag_head) != 2:
        raise ValueError("no such run")
    for at in range(start, end):
        delivery = item_of(<PyObject *>deliveries, at)
        if not (
            is_record(delivery, OUTGOING)
            and is_none(get_slot(delivery, o_ttl))
            and is_none(get_slot(delivery, o_count))
            and is_false(get_slot(delivery, o_more))
            and is_none(get_slot(delivery, o_state))
            and is_false(get_slot(delivery, o_resume))
            and is_zero(get_slot(delivery, o_format))
            and is_bool(get_slot(delivery, o_settled))
            and get_slot(delivery, o_protocol) == <PyObject *>_own
            and is_bytes(get_slot(delivery, o_payload))
            and is_bytes(get_slot(delivery, o_tag))
        ):
            break
        keyed = 0
        if is_router:
            key = get_slot(delivery, o_key)
            if not is_none(get_slot(delivery, o_hops)):
                break
            if not is_none(key):
                if not is_bytes(key) or PyBytes_GET_SIZE(<object>key) != KEYS:
                    break
                if place_of_key(<object>get_slot(delivery, o_payload)) < 0:
                    break
                keyed = KEY_LEADS + KEYS
        size = PyBytes_GET_SIZE(<object>get_slot(delivery, o_payload)) + keyed
        if (
            PyBytes_GET_SIZE(<object>get_slot(delivery, o_tag)) != tags
            or size > MOST_COPIED
            or size > largest
            or size + least > largest_frame
        ):
            break
        octets += size
        count += 1
    frames = PyBytes_FromStringAndSize(NULL, octets + count * least)
    frame = <uint8_t *>PyBytes_AS_STRING(frames)
    for at in range(start, start + count):
        delivery = item_of(<PyObject *>deliveries, at)
        payload, tag = get_slot(delivery, o_payload), get_slot(delivery, o_tag)
        size = PyBytes_GET_SIZE(<object>payload)
        key = get_slot(delivery, o_key)
        keyed = KEY_LEADS + KEYS if is_router and not is_none(key) else 0
        store32(frame, <uint32_t>(least + keyed + size))
        memcpy(frame + 4, PyBytes_AS_STRING(head), heads)
        frame += 4 + heads
        store32(frame, delivery_id)
        memcpy(frame + 4, PyBytes_AS_STRING(tag_head), 2)
        memcpy(frame + 6, PyBytes_AS_STRING(<object>tag), tags)
        frame += 6 + tags
        frame[0], frame[1] = 0x43, 0x41 if is_true(get_slot(delivery, o_settled)) else 0x42
        frame += 2
        if keyed:
            before = place_of_key(<object>payload)
            memcpy(frame, PyBytes_AS_STRING(<object>payload), before)
            memcpy(frame + before, PyBytes_AS_STRING(_key_lead), KEY_LEADS)
            memcpy(frame + before + KEY_LEADS, PyBytes_AS_STRING(<object>key), KEYS)
            frame += before + keyed
            memcpy(frame, PyBytes_AS_STRING(<object>payload) + before, size - before)
            frame += size - before
        else:
            memcpy(frame, PyBytes_AS_STRING(<object>payload), size)
            frame += size
        delivery_id += 1
    return frames, count


def enter_run(
    list deliveries not None, Py_ssize_t start, Py_ssize_t count, Py_ssize_t first_id, link,
    dict outgoing not None, dict numbers not None, dict ids not None,
):
    """Enters sent deliveries into the unsettled maps, except settled ones.

    The reference is ``outgoing.Outgoing._enter_run``.
    """
    cdef Py_ssize_t at
    cdef PyObject *delivery
    for at in range(start, start + count):
        delivery = item_of(<PyObject *>deliveries, at)
        if not is_record(delivery, OUTGOING):
            raise TypeError("no delivery")
        if is_false(get_slot(delivery, o_settled)):
            number = <object>get_slot(delivery, o_number)
            delivery_id = first_id + at - start
            outgoing[delivery_id] = link
            numbers[delivery_id] = number
            ids[number] = delivery_id


# --- dispositions ---------------------------------------------------------------------------------


def take_from_receiver(
    dict outgoing not None, dict numbers not None, Py_ssize_t first, Py_ssize_t last, bint settled
):
    """Applies a receiver's disposition to a range of one link; returns the link and the numbers.

    The reference is ``settlement._take_from_receiver``.

    None: the range is reversed, larger than the map, or concerns several links or none.
    """
    cdef PyObject *link = NULL
    cdef PyObject *found
    cdef PyObject *number
    cdef Py_ssize_t each
    cdef list run = [], known = []
    if last < first or last - first >= len(outgoing):
        return None
    for each in range(first, last + 1):
        delivery_id = each
        found = found_in(<PyObject *>outgoing, <PyObject *>delivery_id)
        if found == NULL:
            continue
        number = found_in(<PyObject *>numbers, <PyObject *>delivery_id)
        if link == NULL:
            link = found
        if found != link or number == NULL:
            return None
        known.append(delivery_id)
        run.append(<object>number)
    if link == NULL:
        return None
    receiver = <object>link
    cdef dict ids
    if settled:
        ids = receiver.ids
        for each in range(len(run)):
            took_from(<PyObject *>outgoing, item_of(<PyObject *>known, each))
            took_from(<PyObject *>numbers, item_of(<PyObject *>known, each))
            took_from(<PyObject *>ids, item_of(<PyObject *>run, each))
    return receiver, run


def take_from_sender(
    dict incoming not None, Py_ssize_t first, Py_ssize_t last, bint settled
):
    """Applies a sender's disposition to a range of one link; as ``take_from_receiver``.

    The reference is ``settlement._take_from_sender``.
    """
    cdef PyObject *link = NULL
    cdef PyObject *found
    cdef Py_ssize_t each
    cdef list run = []
    if last < first or last - first >= len(incoming):
        return None
    for each in range(first, last + 1):
        delivery_id = each
        found = found_in(<PyObject *>incoming, <PyObject *>delivery_id)
        if found == NULL:
            continue
        if link == NULL:
            link = found
        if found != link:
            return None
        run.append(delivery_id)
    if link == NULL:
        return None
    sender = <object>link
    if settled:
        for each in range(len(run)):
            took_from(<PyObject *>incoming, item_of(<PyObject *>run, each))
    return sender, run


def unsettled_of(link, dict unsettled not None, list numbers not None, bint settled):
    """Returns the numbers that belong to a link, and forgets them if they are settled now.

    The reference is ``settlement.update_incoming``.
    """
    cdef Py_ssize_t at
    cdef PyObject *number
    cdef list ids = []
    for at in range(len(numbers)):
        number = item_of(<PyObject *>numbers, at)
        if found_in(<PyObject *>unsettled, number) == <PyObject *>link:
            ids.append(<object>number)
    if settled:
        for at in range(len(ids)):
            took_from(<PyObject *>unsettled, item_of(<PyObject *>ids, at))
    return ids


def forget(
    list numbers not None, dict ids not None, dict outgoing not None, dict numbers_by_id not None
):
    """Forgets sent deliveries as settled; returns the ids of those that were known.

    The reference is ``outgoing.forget``.
    """
    cdef Py_ssize_t at
    cdef PyObject *number
    cdef PyObject *found
    cdef list known = []
    for at in range(len(numbers)):
        number = item_of(<PyObject *>numbers, at)
        found = found_in(<PyObject *>ids, number)
        if found == NULL:
            continue
        delivery_id = <object>found
        known.append(delivery_id)
        took_from(<PyObject *>ids, number)
        took_from(<PyObject *>outgoing, <PyObject *>delivery_id)
        took_from(<PyObject *>numbers_by_id, <PyObject *>delivery_id)
    return known
