# Stored messages of a block or a segment, by columns; see ``store.index``.

cdef enum:
    STORED = 28
    FORWARDED = 29
    FORWARDED_RUN = 31
    PART_ROW = 2
    EXACTLY_ONCE = 3
    PART_OCTETS = 1 << 20
    FLAGS_AT = 4
    MORE = 4
    TIME_AT = 8
    TTL_AT = 64


def stored_columns(rows, heap, uint32_t start):
    """Returns what the STORED rows of a block say of their queues, by columns.

    The reference is ``index.rows_of``.

    Args:
        rows: of a block.
        heap: of that block.
        start: octet of the segment at which its first row stands.

    Returns:
        Positions u32, octets u32 and times u64 of all messages; and for each queue its route, its
        address and its priority, the numbers, u32, of its messages among all, their octets in
        all, and the numbers of those that are in parts or have a time to live. None: there is
        something else in the block, or a row is malformed.
    """
    cdef Py_buffer row_view
    cdef Py_buffer heap_view
    PyObject_GetBuffer(rows, &row_view, PyBUF_SIMPLE)
    try:
        PyObject_GetBuffer(heap, &heap_view, PyBUF_SIMPLE)
        try:
            return columns_of(
                <const uint8_t *>row_view.buf, row_view.len // ROW,
                <const uint8_t *>heap_view.buf, heap_view.len, start,
            )
        finally:
            PyBuffer_Release(&heap_view)
    finally:
        PyBuffer_Release(&row_view)


cdef object columns_of(
    const uint8_t *rows, Py_ssize_t count, const uint8_t *heap, Py_ssize_t heap_octets,
    uint32_t start,
):
    cdef const uint8_t *row
    cdef const uint8_t *address
    cdef const uint8_t *last_address = NULL
    cdef const uint8_t *last_row = NULL
    cdef Py_ssize_t each, found = 0
    cdef uint64_t total
    cdef uint32_t address_octets, tag_octets, octets, slot = 0
    cdef uint32_t *slots = NULL
    cdef dict known = {}
    cdef list queues = []
    cdef bytearray positions, sizes, times, unusual
    for each in range(count):
        row = rows + each * ROW
        if row[0] == STORED:
            found += 1
            total = <uint64_t>get32(row + TAG_AT) + get16(row + ADDRESS_AT)
            if (
                row[2] == EXACTLY_ONCE or total > get32(row + HEAP_AT)
                or <uint64_t>get32(row + OFFSET_AT) + get32(row + HEAP_AT) > <uint64_t>heap_octets
                or get64(row + MESSAGE_AT) >> 31
            ):
                return None
        elif row[0] != FORWARDED and row[0] != FORWARDED_RUN and row[0] != PART_ROW:
            return None
    positions, sizes, times = bytearray(4 * found), bytearray(4 * found), bytearray(8 * found)
    cdef uint8_t *to_positions = <uint8_t *>PyByteArray_AS_STRING(positions)
    cdef uint8_t *to_sizes = <uint8_t *>PyByteArray_AS_STRING(sizes)
    cdef uint8_t *to_times = <uint8_t *>PyByteArray_AS_STRING(times)
    cdef uint32_t position, number
    cdef uint64_t time_ns, queue_octets = 0
    cdef Py_ssize_t since = 0
    found = 0
    for each in range(count):
        row = rows + each * ROW
        if row[0] != STORED:
            continue
        address_octets, tag_octets = get16(row + ADDRESS_AT), get32(row + TAG_AT)
        total = get64(row + MESSAGE_AT)
        octets = <uint32_t>(
            ((total - 1) // PART_OCTETS + 1 if total else 1) * ROW
            + address_octets + tag_octets + total
        )
        position = start + <uint32_t>(each * ROW)
        time_ns = get64(row + TIME_AT)
        memcpy(to_positions + 4 * found, &position, 4)
        memcpy(to_sizes + 4 * found, &octets, 4)
        memcpy(to_times + 8 * found, &time_ns, 8)
        address = heap + get32(row + OFFSET_AT) + tag_octets
        if (
            last_row == NULL or row[1] != last_row[1]
            or memcmp(row + OUTGOING_AT, last_row + OUTGOING_AT, 8)
            or get16(last_row + ADDRESS_AT) != address_octets
            or memcmp(address, last_address, address_octets)
        ):
            if last_row != NULL:
                end_stretch(<list>queue, since, found, queue_octets)
            since, queue_octets = found, 0
            key = (get64(row + OUTGOING_AT), (<const char *>address)[:address_octets], row[1])
            queue = known.get(key)
            if queue is None:
                queue = known[key] = [*key, bytearray(), 0, bytearray()]
                queues.append(queue)
        last_row, last_address = row, address
        queue_octets += octets
        if row[FLAGS_AT] & MORE or <uint32_t>(get32(row + TTL_AT) + 1):
            number = <uint32_t>found
            unusual = <bytearray>(<list>queue)[5]
            unusual += (<const char *>&number)[:4]
        found += 1
    if last_row != NULL:
        end_stretch(<list>queue, since, found, queue_octets)
    return positions, sizes, times, queues


cdef int end_stretch(
    list queue, Py_ssize_t first, Py_ssize_t last, uint64_t octets
) except -1:
    """Adds messages to a queue that follow each other: their numbers, and their octets."""
    cdef bytearray numbers = queue[3]
    cdef Py_ssize_t at = PyByteArray_GET_SIZE(numbers), each
    cdef uint32_t number
    PyByteArray_Resize(numbers, at + 4 * (last - first))
    for each in range(first, last):
        number = <uint32_t>each
        memcpy(<uint8_t *>PyByteArray_AS_STRING(numbers) + at + 4 * (each - first), &number, 4)
    queue[4] += octets
    return 0


def place_list(positions, uint32_t segment):
    """Returns the places of messages of a segment, whose positions are u32 each."""
    cdef View view = View(positions)
    cdef const uint32_t *position = <const uint32_t *>view.octets
    cdef uint64_t base = <uint64_t>segment << 32
    cdef Py_ssize_t each
    return [base | position[each] for each in range(view.length // 4)]


def place_octets(positions, uint32_t segment):
    """Returns the places of messages of a segment, u64 each, whose positions are u32 each."""
    cdef View view = View(positions)
    cdef Py_ssize_t each, count = view.length // 4
    cdef bytes places = PyBytes_FromStringAndSize(NULL, PLACE * count)
    cdef uint8_t *to = <uint8_t *>PyBytes_AS_STRING(places)
    for each in range(count):
        put32(to + PLACE * each, (<const uint32_t *>view.octets)[each])
        put32(to + PLACE * each + 4, segment)
    return places


def chosen_positions(numbers, Py_ssize_t at, Py_ssize_t last, positions, blocks, times):
    """Returns where some messages of a segment stand, by the blocks that they begin in.

    Args:
        numbers: of messages among all of the segment, u32; those from ``at`` to ``last`` count.
        positions, blocks: of all messages of the segment, u32.
        times: of all messages, u64.

    Returns:
        Blocks, with the positions, u32, of their messages; and the earliest time.
    """
    cdef View number_view = View(numbers), position_view = View(positions)
    cdef View block_view = View(blocks), time_view = View(times)
    cdef const uint32_t *number = <const uint32_t *>number_view.octets
    cdef const uint32_t *position = <const uint32_t *>position_view.octets
    cdef const uint32_t *block = <const uint32_t *>block_view.octets
    cdef const uint64_t *time = <const uint64_t *>time_view.octets
    cdef uint64_t oldest = 0xFFFFFFFFFFFFFFFFu
    cdef Py_ssize_t begin, each, count = position_view.length // 4
    cdef list pieces = []
    cdef bytes piece
    if (
        not 0 <= at <= last <= number_view.length // 4
        or block_view.length != position_view.length
        or time_view.length != 2 * position_view.length
    ):
        raise ValueError("not so many messages")
    for each in range(at, last):
        if number[each] >= count:
            raise ValueError("a message is beyond the end")
        if time[number[each]] < oldest:
            oldest = time[number[each]]
    while at < last:
        begin = at
        while at < last and block[number[at]] == block[number[begin]]:
            at += 1
        piece = PyBytes_FromStringAndSize(NULL, 4 * (at - begin))
        for each in range(begin, at):
            (<uint32_t *>PyBytes_AS_STRING(piece))[each - begin] = position[number[each]]
        pieces.append((block[number[begin]], piece))
    return pieces, oldest


def stretches_of(numbers, positions):
    """Returns how messages of a segment stand side by side: firsts and ends, u32 each.

    The reference is ``outline.stretches_of``.
    """
    cdef View number_view = View(numbers), position_view = View(positions)
    cdef const uint32_t *number = <const uint32_t *>number_view.octets
    cdef const uint32_t *position = <const uint32_t *>position_view.octets
    cdef Py_ssize_t each, found = 0, total = number_view.length // 4
    cdef Py_ssize_t count = position_view.length // 4
    cdef bytes firsts = PyBytes_FromStringAndSize(NULL, 4 * total)
    cdef bytes ends = PyBytes_FromStringAndSize(NULL, 4 * total)
    cdef uint32_t *first = <uint32_t *>PyBytes_AS_STRING(firsts)
    cdef uint32_t *end = <uint32_t *>PyBytes_AS_STRING(ends)
    for each in range(total):
        if number[each] >= count:
            raise ValueError("a message is beyond the end")
        if not each or position[number[each]] != position[number[each - 1]] + ROW:
            first[found] = position[number[each]]
            found += 1
        end[found - 1] = <uint32_t>(each + 1)
    return firsts[:4 * found], ends[:4 * found]


def number_queue(numbers, uint32_t before, queues, uint64_t queue):
    """Returns numbers, u32, each greater by ``before``; and names a queue at them in a column."""
    cdef View view = View(numbers), to = View(queues, PyBUF_WRITABLE)
    cdef Py_ssize_t each, count = view.length // 4
    cdef bytes moved = PyBytes_FromStringAndSize(NULL, 4 * count)
    cdef uint32_t number
    for each in range(count):
        number = (<const uint32_t *>view.octets)[each]
        if number >= to.length // 8:
            raise ValueError("a message is beyond the end")
        (<uint64_t *>to.of.buf)[number] = queue
        (<uint32_t *>PyBytes_AS_STRING(moved))[each] = number + before
    return moved
