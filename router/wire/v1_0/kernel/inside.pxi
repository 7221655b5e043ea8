# Links without a socket: deliveries come as rows of stored messages (``journal.record``), and what
# would be written into frames is noted instead, for whoever owns the session.
#
# A note is a tuple: (None, first, last) for delivery-ids that were accepted and are settled, and
# (link, credit, 0) for credit.

cdef enum:
    STORED_ROW = 80           # octets; the fields that are looked at, by their offsets
    STORED_PROTOCOL = 3
    STORED_FLAGS = 4
    STORED_HELD = 2           # the flag that a row has its message
    STORED_ADDRESS = 6
    STORED_KEY = 16
    STORED_FORMAT = 56
    STORED_COUNT = 60
    STORED_TTL = 64
    STORED_TAG = 68
    STORED_OFFSET = 72
    STORED_HEAP = 76
    AMQP_1_0 = 1              # code of the protocol
    PLACE_OCTETS = 8          # of a delivery-tag


cdef inline uint32_t little32(const uint8_t *at) noexcept nogil:
    return at[0] | <uint32_t>at[1] << 8 | <uint32_t>at[2] << 16 | <uint32_t>at[3] << 24


cdef inline bint is_zero(const uint8_t *at, uint32_t octets) noexcept nogil:
    cdef uint32_t each
    for each in range(octets):
        if at[each]:
            return False
    return True


cdef inline bint is_usual(const uint8_t *row) noexcept nogil:
    """Returns whether a stored message is whole, of AMQP 1.0, and its header is all that counts."""
    return (
        row[STORED_PROTOCOL] == AMQP_1_0
        and row[STORED_FLAGS] & ~STORED_HELD == 0
        and row[STORED_FLAGS + 1] == 0
        and is_zero(row + STORED_KEY, 16)
        and is_zero(row + STORED_FORMAT, 8)
        and <uint32_t>(little32(row + STORED_TTL) + 1) == 0  # it has none
    )


cdef Py_ssize_t bring_stored(
    Express kernel, Lane lane, LinkState link, rows, heap, places, Py_ssize_t begin
) except -1:
    """Forwards stored messages; returns the first that it leaves."""
    cdef Py_ssize_t end
    cdef Py_buffer row_view
    cdef Py_buffer heap_view
    cdef Py_buffer place_view
    PyObject_GetBuffer(rows, &row_view, PyBUF_SIMPLE)
    try:
        PyObject_GetBuffer(heap, &heap_view, PyBUF_SIMPLE)
        try:
            PyObject_GetBuffer(places, &place_view, PyBUF_SIMPLE)
            try:
                end = place_view.len // PLACE_OCTETS
                if not 0 <= begin <= end <= row_view.len // STORED_ROW:
                    raise MisuseError(f"messages {begin} to {end} of {row_view.len // STORED_ROW}")
                return bring_rows(
                    kernel,
                    lane,
                    link,
                    <const uint8_t *>row_view.buf,
                    begin,
                    end,
                    <const uint8_t *>heap_view.buf,
                    heap_view.len,
                    <const uint8_t *>place_view.buf,
                )
            finally:
                PyBuffer_Release(&place_view)
        finally:
            PyBuffer_Release(&heap_view)
    finally:
        PyBuffer_Release(&row_view)


cdef Py_ssize_t bring_rows(
    Express kernel,
    Lane lane,
    LinkState link,
    const uint8_t *rows,
    Py_ssize_t begin,
    Py_ssize_t end,
    const uint8_t *heap,
    Py_ssize_t heap_octets,
    const uint8_t *places,
) except -1:
    cdef SessionState session = link.session
    cdef const uint8_t *row
    cdef const uint8_t *payload
    cdef Py_ssize_t each
    cdef int64_t at
    cdef int64_t left
    cdef int64_t named
    cdef uint8_t tag[8]
    cdef uint32_t an_id
    cdef uint32_t octet
    for each in range(begin, end):
        row = rows + each * STORED_ROW
        at = little32(row + STORED_OFFSET)
        left = little32(row + STORED_HEAP)
        named = <int64_t>little32(row + STORED_TAG) + (
            row[STORED_ADDRESS] | <int64_t>row[STORED_ADDRESS + 1] << 8
        )
        if at + left > heap_octets or named > left:
            return each
        payload = heap + at + named
        left -= named
        if (
            link.credit <= 0
            or not link.is_open
            or link.in_progress
            or not lane.takes_unsettled
            or left > lane.limit_octets
            or not is_usual(row)
            or not needs_no_look(payload, payload + left)
        ):
            return each
        an_id = <uint32_t>session.expected
        for octet in range(PLACE_OCTETS):  # a place is little-endian, its tag is not
            tag[PLACE_OCTETS - 1 - octet] = places[each * PLACE_OCTETS + octet]
        count_in(kernel, link, an_id)
        forward(
            kernel, lane, link, an_id, tag, PLACE_OCTETS, payload, <uint32_t>left, False
        )
    return end


cdef int note_outcome(
    Express kernel, SessionState session, uint32_t kind, uint32_t first, uint32_t last
) except -1:
    """Notes that deliveries were accepted and are settled."""
    if kind == TO_SENDER_SETTLED:
        session.notes.append((None, first, last))
        mark_dirty(kernel, session.connection)
    return 0


cdef int note_credit(Express kernel, SessionState session, LinkState link) except -1:
    """Notes what a link was granted."""
    if link is not None:
        session.notes.append((link.link, link.credit, 0))
        mark_dirty(kernel, session.connection)
    return 0
