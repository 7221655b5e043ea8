# Fields of frames, read within bounds, and written.

cdef struct Reader:
    const uint8_t *at
    const uint8_t *end
    bint is_bad               # a field ran beyond the end, or was not of its type


cdef inline uint32_t read_uint(Reader *reader) noexcept nogil:
    cdef uint32_t value = 0
    cdef const uint8_t *at = reader.at
    cdef Py_ssize_t left = reader.end - at
    if left >= 5 and at[0] == 0x70:
        value = load32(at + 1)
        reader.at = at + 5
    elif left >= 2 and at[0] == 0x52:
        value = at[1]
        reader.at = at + 2
    elif left >= 1 and at[0] == 0x43:
        reader.at = at + 1
    else:
        reader.is_bad = True
    return value


cdef inline bint read_flag(Reader *reader) noexcept nogil:
    cdef uint8_t code
    if reader.at >= reader.end:
        reader.is_bad = True
        return False
    code = reader.at[0]
    if not 0x40 <= code <= 0x42:
        reader.is_bad = True
    reader.at += 1
    return code == 0x41


cdef inline bint skip_null(Reader *reader) noexcept nogil:
    if reader.at < reader.end and reader.at[0] == 0x40:
        reader.at += 1
        return True
    return False


cdef inline bint needs_no_look(const uint8_t *at, const uint8_t *end) noexcept nogil:
    """Returns whether a payload begins with a section that the router does not read.

    A header without ttl may precede it (§3.2.1), but no delivery annotations (§3.2.2).
    """
    cdef const uint8_t *field
    cdef const uint8_t *header_end
    cdef uint8_t count
    if end - at < 4 or at[0] != 0 or at[1] != 0x53:
        return False
    if at[2] != 0x70:
        return 0x72 <= at[2] <= 0x78
    if at[3] == 0x45:
        header_end = at + 4
    elif at[3] != 0xC0 or end - at < 6:
        return False
    else:
        header_end = at + 5 + at[4]
        count = at[5]
        field = at + 6
        if field > header_end or header_end > end:
            return False
        if count > 0:  # durable
            if field >= header_end:
                return False
            field += 1 if 0x40 <= field[0] <= 0x42 else 2
        if count > 1:  # priority
            if field >= header_end:
                return False
            field += 1 if field[0] == 0x40 else 2
        if count > 2 and (field >= header_end or field[0] != 0x40):
            return False
    if end - header_end < 3 or header_end[0] != 0 or header_end[1] != 0x53:
        return False
    return 0x72 <= header_end[2] <= 0x78


cdef inline uint8_t *write_uint(uint8_t *at, uint32_t value) noexcept nogil:
    if value >= 256:
        at[0] = 0x70
        store32(at + 1, value)
        return at + 5
    if value:
        at[0] = 0x52
        at[1] = value
        return at + 2
    at[0] = 0x43
    return at + 1


cdef inline uint8_t *write_frame_head(
    uint8_t *at, uint16_t channel, uint8_t code
) noexcept nogil:
    """Begins a frame whose performative is a list8; ``write_frame_sizes`` completes it."""
    at[4] = 2
    at[5] = 0
    at[6] = channel >> 8
    at[7] = channel & 0xFF
    at[8] = 0
    at[9] = 0x53
    at[10] = code
    at[11] = 0xC0
    return at + 14


cdef inline uint32_t write_frame_sizes(
    uint8_t *frame, uint8_t *end, uint8_t count
) noexcept nogil:
    store32(frame, <uint32_t>(end - frame))
    frame[12] = <uint8_t>(end - frame - 13)
    frame[13] = count
    return <uint32_t>(end - frame)


cdef inline uint8_t *write_part_head(
    uint8_t *frame, uint16_t channel, uint32_t handle, bint more
) noexcept nogil:
    """Encodes a later transfer except payload and size (§2.6.14)."""
    cdef uint8_t *at = write_uint(write_frame_head(frame, channel, 0x14), handle)
    if more:
        at[0] = at[1] = at[2] = at[3] = 0x40
        at[4] = 0x41
        at += 5
    write_frame_sizes(frame, at, 6 if more else 1)
    return at
