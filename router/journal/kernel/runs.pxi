# Runs of stored messages: cut out of blocks, or read from files; see ``store.runs``.

cdef inline const uint8_t *usual_row(View rows, View heap, uint32_t start, uint32_t at) noexcept:
    """Returns the row of a message that stands at an octet of its segment; NULL: it is unusual."""
    cdef Py_ssize_t number = (at - start) // ROW
    cdef const uint8_t *row = rows.octets + number * ROW
    if (
        at < start or number >= rows.length // ROW or row[0] != STORED or row[FLAGS_AT] & MORE
        or <uint32_t>(get32(row + TTL_AT) + 1)
        or <int64_t>get32(row + OFFSET_AT) + get32(row + HEAP_AT) > heap.length
    ):
        return NULL
    return row


def usual_octets(rows, heap, positions, uint32_t start):
    """Returns the octets of the strings of messages of a block; -1: one of them is unusual.

    Args:
        rows, heap: of the block.
        positions: of the messages, u32.
        start: octet of the segment at which the first row of the block stands.
    """
    cdef View row_view = View(rows), heap_view = View(heap), view = View(positions)
    cdef const uint8_t *row
    cdef Py_ssize_t each
    cdef uint64_t octets = 0
    for each in range(view.length // 4):
        row = usual_row(row_view, heap_view, start, (<const uint32_t *>view.octets)[each])
        if row == NULL:
            return -1
        octets += get32(row + HEAP_AT)
    return octets


def compose_run(
    bytearray out not None, Py_ssize_t at, list pieces not None, Py_ssize_t count,
    Py_ssize_t octets, uint32_t segment,
):
    """Writes the rows of a run, their strings and their places; see ``runs``.

    Args:
        out: where they go.
        at: the octet of ``out`` at which the first row goes.
        pieces: for each block its rows and its heap, the positions, u32, of the messages, and the
            octet of the segment at which its first row stands.
        count: of all messages.
        octets: of all their strings.
        segment: that they stand in.

    Raises:
        ValueError: there are not so many usual ones, or there is no room.
    """
    cdef Py_ssize_t heap_at = at + count * ROW, places_at = heap_at + octets
    cdef View row_view, heap_view, view
    cdef uint8_t *to = <uint8_t *>PyByteArray_AS_STRING(out)
    cdef Py_ssize_t each, written = 0, strings = 0
    cdef const uint8_t *row
    cdef uint32_t start, held, position
    if not 0 <= at <= heap_at <= places_at or places_at + PLACE * count > len(out):
        raise ValueError("there is no room for a run")
    for rows, heap, positions, start in pieces:
        row_view, heap_view, view = View(rows), View(heap), View(positions)
        for each in range(view.length // 4):
            position = (<const uint32_t *>view.octets)[each]
            row = usual_row(row_view, heap_view, start, position)
            held = 0 if row == NULL else get32(row + HEAP_AT)
            if row == NULL or written == count or strings + held > octets:
                raise ValueError("other messages than there should be")
            memcpy(to + at + written * ROW, row, ROW)
            put32(to + at + written * ROW + OFFSET_AT, <uint32_t>strings)
            memcpy(to + heap_at + strings, heap_view.octets + get32(row + OFFSET_AT), held)
            put32(to + places_at + PLACE * written, position)
            put32(to + places_at + PLACE * written + 4, segment)
            strings += held
            written += 1
    if written != count or strings != octets:
        raise ValueError("fewer messages than there should be")


cdef int read_fully(
    int file, uint8_t *to, int64_t octets, int64_t offset, int flags
) except -1:
    """Reads octets of a file.

    Raises:
        OSError: the system has refused that, or would have to wait.
        EOFError: there are fewer, or fewer are at hand.
    """
    cdef Py_ssize_t count
    cdef iovec room
    room.iov_base, room.iov_len = to, octets
    with nogil:
        count = preadv2(file, &room, 1, offset, flags)
    if count < 0:
        PyErr_SetFromErrno(OSError)
    if count < octets:
        raise EOFError("there are fewer octets")
    return 0


cdef Py_ssize_t stretch_at(
    const uint32_t *positions, Py_ssize_t first, Py_ssize_t total
) noexcept nogil:
    """Returns how many messages from ``first`` on stand side by side in a block."""
    cdef Py_ssize_t end = first + 1
    while end < total and positions[end] - positions[end - 1] == ROW:
        end += 1
    return end - first


cdef Py_ssize_t count_stretches(const uint32_t *positions, Py_ssize_t total) noexcept nogil:
    cdef Py_ssize_t first = 0, found = 0
    while first < total:
        first += stretch_at(positions, first, total)
        found += 1
    return found


def read_run(
    int file, int flags, list pieces not None, bytearray room not None, uint32_t segment,
    Py_ssize_t least_stretch, uint64_t most_strings,
):
    """Reads the messages of a reference: their rows, their strings and their places.

    The reference is ``references.RunReader._read``.

    Args:
        file: of the segment.
        flags: of preadv2.
        pieces: for each block its offset, that of its heap, and the positions, u32, of the messages.
        room: where they go; it grows.
        segment: its number.
        least_stretch: messages that stand side by side, in the mean.
        most_strings: octets of their strings that are believed.

    Returns:
        How many messages, and the octets of their strings. None: too few stand side by side.

    Raises:
        OSError: the system has refused to read, or would have to wait.
        EOFError: there are fewer octets, or fewer at hand.
        ValueError: a message is not as its reference says.
    """
    cdef Py_ssize_t count = 0, found = 0, blocks = len(pieces), at = 0, first, stretch, each
    cdef uint64_t strings = 0, heap_at
    cdef uint32_t heap
    cdef uint8_t *to
    cdef View view
    cdef list heaps = []
    for _, heap, positions in pieces:
        view = View(positions)
        count += view.length // 4
        found += count_stretches(<const uint32_t *>view.octets, view.length // 4)
    if found * least_stretch > count + least_stretch * blocks:
        return None
    room_for(room, count * ROW)
    for _, heap, positions in pieces:
        view, first = View(positions), 0
        while first < view.length // 4:
            stretch = stretch_at(<const uint32_t *>view.octets, first, view.length // 4)
            to = <uint8_t *>PyByteArray_AS_STRING(room) + at * ROW
            read_fully(
                file, to, stretch * ROW, (<const uint32_t *>view.octets)[first], flags
            )
            where = strings_in(to, stretch, <uint32_t>strings)
            if where is None or strings + where[1] > most_strings:
                raise ValueError("a message is not as its reference says")
            heaps.append((heap + where[0], where[1]))
            strings += where[1]
            at += stretch
            first += stretch
    room_for(room, count * (ROW + PLACE) + strings)
    to = <uint8_t *>PyByteArray_AS_STRING(room) + count * ROW
    for heap_at, stretch in heaps:
        read_fully(file, to, stretch, heap_at, flags)
        to += stretch
    for _, heap, positions in pieces:
        view = View(positions)
        for each in range(view.length // 4):
            put32(to, (<const uint32_t *>view.octets)[each])
            put32(to + 4, segment)
            to += PLACE
    return count, strings


cdef int room_for(bytearray room, Py_ssize_t octets) except -1:
    """Has memory be of so many octets, at least."""
    if PyByteArray_GET_SIZE(room) < octets:
        PyByteArray_Resize(room, octets)
    return 0


def usual_strings(rows, uint32_t base):
    """Has rows that follow each other in a block point to where their strings will be.

    The reference is ``references.strings_of``.

    Args:
        rows: that are changed.
        base: octets of other strings that will stand before theirs.

    Returns:
        Where in the heap of the block their strings begin, and how many octets they have. None: a
        row is unusual, or other strings stand between theirs; the rows may have been changed.
    """
    cdef View view = View(rows, PyBUF_WRITABLE)
    return strings_in(<uint8_t *>view.of.buf, view.length // ROW, base)


cdef object strings_in(uint8_t *row, Py_ssize_t count, uint32_t base):
    """Does what ``usual_strings`` says for so many rows."""
    cdef Py_ssize_t each
    cdef uint64_t first = 0, octets = 0
    cdef uint32_t held
    for each in range(count):
        held = get32(row + HEAP_AT)
        if not each:
            first = get32(row + OFFSET_AT)
        if (
            row[0] != STORED or row[FLAGS_AT] & MORE or <uint32_t>(get32(row + TTL_AT) + 1)
            or <uint64_t>get32(row + TAG_AT) + get16(row + ADDRESS_AT) > held
            or get32(row + OFFSET_AT) != first + octets
        ):
            return None
        put32(row + OFFSET_AT, <uint32_t>(base + octets))
        octets += held
        row += ROW
    return first, octets
