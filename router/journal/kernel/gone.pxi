# Stored messages that are gone, and marks of such messages; see ``store.gone``.

def gone_body(stored, places, Py_ssize_t begin, Py_ssize_t count):
    """Returns where messages stand, and what their records take, u32 each.

    The reference is ``runs.MessagesRead.gone``.
    """
    cdef View of_rows = View(stored), of_places = View(places)
    cdef const uint8_t *row = of_rows.octets + begin * ROW
    cdef const uint8_t *place = of_places.octets + begin * PLACE
    cdef bytes body
    cdef uint8_t *to
    cdef Py_ssize_t each
    if (
        begin < 0 or count < 0
        or (begin + count) * ROW > of_rows.length
        or (begin + count) * PLACE > of_places.length
    ):
        raise ValueError("not so many rows")
    body = PyBytes_FromStringAndSize(NULL, 8 * count)
    to = <uint8_t *>PyBytes_AS_STRING(body)
    for each in range(count):
        memcpy(to + 4 * each, place, 4)
        put32(
            to + 4 * (count + each),
            ROW + get16(row + ADDRESS_AT) + get32(row + TAG_AT) + get32(row + MESSAGE_AT),
        )
        row += ROW
        place += PLACE
    return body


def gone_columns(rows, heap):
    """Returns what a block says to be gone: runs of one segment and one queue.

    The reference is ``gone.claims_in``.

    Returns:
        For each its segment, its queue, the positions, u32, the octets, u64, and how many rows.
    """
    cdef View view = View(rows), heap_view = View(heap)
    cdef Py_ssize_t at = 0, end, written, count = view.length // ROW
    cdef const uint8_t *row
    cdef const uint8_t *first
    cdef list found = []
    cdef bytearray positions, sizes
    while True:
        while at < count and not says_gone(view.octets + at * ROW):
            at += 1
        if at == count:
            return found
        first, end, written = view.octets + at * ROW, at, 0
        if first[0] == FORWARDED_RUN:
            add_gone(found, first, heap_view)
            at += 1
            continue
        while end < count and (
            not says_gone(view.octets + end * ROW) or is_same_run(first, view.octets + end * ROW)
        ):
            written += view.octets[end * ROW] == FORWARDED
            end += 1
        positions, sizes = bytearray(4 * written), bytearray(8 * written)
        found.append(
            (get32(first + INCOMING_AT + 4), get64(first + OUTGOING_AT), positions, sizes, written)
        )
        written = 0
        for at in range(at, end):
            row = view.octets + at * ROW
            if row[0] == FORWARDED:
                (<uint32_t *>PyByteArray_AS_STRING(positions))[written] = get32(row + INCOMING_AT)
                (<uint64_t *>PyByteArray_AS_STRING(sizes))[written] = get64(row + MESSAGE_AT)
                written += 1
        at = end


cdef inline bint says_gone(const uint8_t *row) noexcept:
    return row[0] == FORWARDED or row[0] == FORWARDED_RUN


cdef int add_gone(list found, const uint8_t *row, View heap) except -1:
    """Adds what a row says by columns, if it is as long as it says."""
    cdef uint64_t count = get64(row + MESSAGE_AT), octets = get32(row + HEAP_AT)
    cdef const uint8_t *body = heap.octets + get32(row + OFFSET_AT)
    cdef bytearray positions, sizes
    cdef Py_ssize_t each
    if not octets or octets % 8 or count != octets // 8:  # 8 * count may be beyond 64 bits
        return 0
    if get32(row + OFFSET_AT) + octets > <uint64_t>heap.length:
        return 0
    positions, sizes = bytearray(4 * count), bytearray(8 * count)
    for each in range(<Py_ssize_t>count):
        (<uint32_t *>PyByteArray_AS_STRING(positions))[each] = get32(body + 4 * each)
        (<uint64_t *>PyByteArray_AS_STRING(sizes))[each] = get32(body + 4 * (count + each))
    found.append(
        (get32(row + INCOMING_AT + 4), get64(row + OUTGOING_AT), positions, sizes, 1)
    )
    return 0


cdef inline bint is_same_run(const uint8_t *one, const uint8_t *other) noexcept:
    """Returns whether messages that are gone stood in one segment and one queue."""
    return other[0] == FORWARDED and not (
        memcmp(one + INCOMING_AT + 4, other + INCOMING_AT + 4, 4)
        or memcmp(one + OUTGOING_AT, other + OUTGOING_AT, 8)
    )


def mark_gone(bytearray marks not None, positions, octets):
    """Marks messages of a segment as gone; returns how many are news, and their octets.

    The reference is ``StoredSegment.mark_gone``. Positions are u32, octets u64. The marks grow.
    """
    cdef View view = View(positions), sizes = View(octets)
    cdef const uint32_t *position = <const uint32_t *>view.octets
    cdef Py_ssize_t each, count = view.length // 4
    cdef uint8_t *to_marks
    cdef uint32_t unit
    cdef uint64_t total = 0
    cdef Py_ssize_t news = 0
    if sizes.length // 8 != count:
        raise ValueError("not as many octets as positions")
    to_marks = marks_for(marks, position, count)
    for each in range(count):
        unit = position[each] // ROW
        if not to_marks[unit >> 3] >> (unit & 7) & 1:
            to_marks[unit >> 3] |= 1 << (unit & 7)
            news += 1
            total += (<const uint64_t *>sizes.octets)[each]
    return news, total


cdef uint8_t *marks_for(
    bytearray marks, const uint32_t *positions, Py_ssize_t count
) except NULL:
    """Returns marks, of which there are enough for messages at some positions."""
    cdef Py_ssize_t each, known = PyByteArray_GET_SIZE(marks), needed = 0
    for each in range(count):
        needed = max(needed, <Py_ssize_t>(positions[each] // ROW >> 3) + 1)
    if needed > known:
        PyByteArray_Resize(marks, needed)
        memset(<uint8_t *>PyByteArray_AS_STRING(marks) + known, 0, needed - known)
    return <uint8_t *>PyByteArray_AS_STRING(marks)


def set_marks(bytearray marks not None, positions, bint is_set):
    """Sets or clears the marks of messages, and returns how many were not so before.

    The reference is ``taken.set_marks``. Positions are u32.
    """
    cdef View view = View(positions)
    cdef Py_ssize_t each, count = view.length // 4, changed = 0
    cdef uint32_t unit
    cdef uint8_t *bits = marks_for(marks, <const uint32_t *>view.octets, count)
    for each in range(count):
        unit = (<const uint32_t *>view.octets)[each] // ROW
        if (bits[unit >> 3] >> (unit & 7) & 1) != is_set:
            bits[unit >> 3] ^= 1 << (unit & 7)
            changed += 1
    return changed


def is_any_marked(bytearray marks not None, positions):
    """Returns whether one of some messages is marked; their positions are u32."""
    cdef View view = View(positions)
    cdef Py_ssize_t each, known = PyByteArray_GET_SIZE(marks)
    cdef const uint8_t *bits = <const uint8_t *>PyByteArray_AS_STRING(marks)
    cdef uint32_t unit
    for each in range(view.length // 4):
        unit = (<const uint32_t *>view.octets)[each] // ROW
        if unit >> 3 < <uint64_t>known and bits[unit >> 3] >> (unit & 7) & 1:
            return True
    return False


def marked_positions(bytearray marks not None, positions):
    """Returns those of some positions, u32, that are marked, each once.

    The reference is ``taken.marked``.
    """
    cdef View view = View(positions)
    cdef Py_ssize_t each, count = view.length // 4, kept = 0, known = PyByteArray_GET_SIZE(marks)
    cdef bytearray left = bytearray(marks)
    cdef bytes found = PyBytes_FromStringAndSize(NULL, view.length)
    cdef uint8_t *bits = <uint8_t *>PyByteArray_AS_STRING(left)
    cdef uint32_t *out = <uint32_t *>PyBytes_AS_STRING(found)
    cdef uint32_t position, unit
    for each in range(count):
        position = (<const uint32_t *>view.octets)[each]
        unit = position // ROW
        if unit >> 3 < <uint64_t>known and bits[unit >> 3] >> (unit & 7) & 1:
            bits[unit >> 3] ^= 1 << (unit & 7)
            out[kept] = position
            kept += 1
    return found[:4 * kept]
