# Writes the rows of runs of records; see ``block_writer``.

def string_rows(
    bytearray rows not None, Py_ssize_t at, bytearray heap not None, bytes row not None,
    list keys not None, list tags not None, payloads, bint is_held,
):
    """Writes rows like ``row`` at ``at``, each with its key, its tag and perhaps a payload.

    The reference is ``BlockWriter._string_rows``.

    Returns:
        False, and nothing is changed, if anything is not plain octets or does not fit.
    """
    cdef Py_ssize_t count = len(keys), each, octets = 0, start = PyByteArray_GET_SIZE(heap)
    cdef Py_ssize_t tag_octets, octets_of_payload = 0
    cdef bint has_payload = payloads is not None
    cdef list bodies = payloads if has_payload else keys
    cdef uint8_t *to_row
    cdef uint8_t *to_heap
    if (
        PyBytes_GET_SIZE(row) != ROW or len(tags) != count or len(bodies) != count
        or at < 0 or at + count * ROW > PyByteArray_GET_SIZE(rows)
    ):
        return False
    for each in range(count):
        if not (
            PyBytes_CheckExact(keys[each]) and PyBytes_GET_SIZE(keys[each]) == KEY
            and PyBytes_CheckExact(tags[each]) and PyBytes_CheckExact(bodies[each])
        ):
            return False
        octets += PyBytes_GET_SIZE(tags[each])
        if is_held:
            octets += PyBytes_GET_SIZE(bodies[each])
    PyByteArray_Resize(heap, start + octets)
    to_row = <uint8_t *>PyByteArray_AS_STRING(rows) + at
    to_heap = <uint8_t *>PyByteArray_AS_STRING(heap) + start
    for each in range(count):
        tag_octets = PyBytes_GET_SIZE(tags[each])
        memcpy(to_row, PyBytes_AS_STRING(row), ROW)
        memcpy(to_row + KEY, PyBytes_AS_STRING(keys[each]), KEY)
        memcpy(to_heap, PyBytes_AS_STRING(tags[each]), tag_octets)
        put32(to_row + TAG_AT, <uint32_t>tag_octets)
        put32(to_row + OFFSET_AT, <uint32_t>start)
        octets = tag_octets
        if has_payload:
            octets_of_payload = PyBytes_GET_SIZE(bodies[each])
            put64(to_row + MESSAGE_AT, <uint64_t>octets_of_payload)
            if is_held:
                memcpy(to_heap + octets, PyBytes_AS_STRING(bodies[each]), octets_of_payload)
                octets += octets_of_payload
        put32(to_row + HEAP_AT, <uint32_t>octets)
        start += octets
        to_heap += octets
        to_row += ROW
    return True


def bare_rows(bytearray rows not None, Py_ssize_t at, bytes row not None, list keys not None):
    """Writes rows like ``row`` at ``at`` that differ in their keys alone; False: as above.

    The reference is ``BlockWriter._bare_rows``.
    """
    cdef Py_ssize_t count = len(keys), each
    cdef uint8_t *to_row
    if (
        PyBytes_GET_SIZE(row) != ROW or at < 0
        or at + count * ROW > PyByteArray_GET_SIZE(rows)
    ):
        return False
    for each in range(count):
        if not PyBytes_CheckExact(keys[each]) or PyBytes_GET_SIZE(keys[each]) != KEY:
            return False
    to_row = <uint8_t *>PyByteArray_AS_STRING(rows) + at
    for each in range(count):
        memcpy(to_row, PyBytes_AS_STRING(row), ROW)
        memcpy(to_row + KEY, PyBytes_AS_STRING(keys[each]), KEY)
        to_row += ROW
    return True
