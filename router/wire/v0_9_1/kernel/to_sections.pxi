# ``quick_to_sections``: from 0-9-1 to AMQP 1.0.

cdef uint8_t *close_up(uint8_t *section, uint8_t *items, uint8_t *end, uint8_t narrow, int count) noexcept nogil:
    """Completes a section whose items are 12 octets after its start, the space for a wide head."""
    cdef size_t size = end - items
    if size < 255 and count < 256:
        section[3], section[4], section[5] = narrow, size + 1, count
        memmove(section + 6, items, size)
        return section + 6 + size
    section[3] = narrow + 0x10
    put_u32(put_u32(section + 4, size + 4), count)
    return end


cdef inline uint8_t *begin(uint8_t *section, uint8_t code) noexcept nogil:
    section[0], section[1], section[2] = 0x00, 0x53, code
    return section + 12


cdef uint8_t *put_value(Reader *r, uint8_t *out) noexcept nogil:
    """Converts a header's value to its shortest form; NULL: it does not map directly."""
    cdef uint8_t letter = r.at[0]
    cdef const uint8_t *at = r.at + 1
    cdef Py_ssize_t left = r.end - at
    cdef int width
    cdef uint8_t code = 0
    cdef int64_t number
    if letter == c"S":
        if left < 4 or u32(at) > 255 or <Py_ssize_t> u32(at) > left - 4:
            return NULL
        width = u32(at)
        if not is_ascii(at + 4, width):
            return NULL
        out[0], out[1] = 0xA1, width
        r.at = at + 4 + width
        return put(out + 2, at + 4, width)
    if letter == c"t":
        width = 1
    elif letter == c"V":
        width = 0
    elif letter == c"b":
        width, code = 1, 0x51
    elif letter == c"B":
        width, code = 1, 0x50
    elif letter == c"s" or letter == c"U":
        width, code = 2, 0x61
    elif letter == c"u":
        width, code = 2, 0x60
    elif letter == c"I" or letter == c"i":
        width = 4
    elif letter == c"f":
        width, code = 4, 0x72
    elif letter == c"d":
        width, code = 8, 0x82
    elif letter == c"l" or letter == c"L" or letter == c"T":
        width = 8
    else:
        return NULL
    if left < width:
        return NULL
    r.at = at + width
    if code:
        out[0] = code
        return put(out + 1, at, width)
    if letter == c"V":
        out[0] = 0x40
        return out + 1
    if letter == c"t":
        out[0] = 0x41 if at[0] else 0x42
        return out + 1
    if letter == c"i":
        return put_uint(out, u32(at))
    if letter == c"T":
        if u64(at) > MAX_SECONDS:
            return NULL
        out[0] = 0x83
        return put_u64(out + 1, u64(at) * 1000)
    number = <int32_t> u32(at) if width == 4 else <int64_t> u64(at)
    if -129 < number < 128:
        out[0] = 0x54 if width == 4 else 0x55
        out[1] = at[width - 1]
        return out + 2
    out[0] = 0x71 if width == 4 else 0x81
    return put(out + 1, at, width)


cdef uint8_t *put_headers(Reader *r, uint8_t *out, int *count) noexcept nogil:
    """Converts the entries of a table to those of a map; NULL: they do not all map directly."""
    cdef const uint8_t *names[MAX_ENTRIES]
    cdef Text name
    cdef int entries = 0
    cdef int i
    while r.at < r.end:
        if entries == MAX_ENTRIES or not read_text(r, &name) or r.at >= r.end:
            return NULL
        if name.size >= 2 and memcmp(name.at, b"x-", 2) == 0:
            return NULL
        if name.size >= 4 and memcmp(name.at, b"JMSX", 4) == 0:  # the only such names of ``marks``
            return NULL
        for i in range(entries):
            if names[i][0] == name.size and memcmp(names[i] + 1, name.at, name.size) == 0:
                return NULL
        names[entries] = name.at - 1
        entries += 1
        out = put_value(r, put_text(out, 0xA1, &name))
        if out == NULL:
            return NULL
    count[0] = 2 * entries
    return out


cdef bint read_number(const Text *text, uint32_t *value) noexcept nogil:
    """Reads decimal digits as ``expiration`` is written."""
    cdef int i
    cdef uint32_t found = 0
    if not 0 < text.size < 10 or (text.at[0] == c"0" and text.size > 1):
        return False
    for i in range(text.size):
        if not c"0" <= text.at[i] <= c"9":
            return False
        found = found * 10 + text.at[i] - c"0"
    value[0] = found
    return True


cdef inline bint begins_with(const Text *text, const char *octets, int size) noexcept nogil:
    return text.at != NULL and text.size >= size and memcmp(text.at, octets, size) == 0


cdef uint8_t *put_head(Reader *r, uint8_t *out) noexcept nogil:
    """Writes everything before the data section; NULL: it does not map directly.

    ``r`` reads marks, route and content header, without the body's size, which was read before.
    """
    cdef Text exchange, key
    cdef Text content_type, content_encoding, correlation_id, reply_to, expiration
    cdef Text message_id, kind, user_id, app_id
    cdef Reader table
    cdef const uint8_t *priority = NULL
    cdef uint8_t *section
    cdef uint8_t *at
    cdef uint8_t *last
    cdef int flags, mode = 0, count
    cdef uint32_t size, ttl = 0
    cdef uint64_t seconds = 0
    content_type = content_encoding = correlation_id = reply_to = expiration = ABSENT
    message_id = kind = user_id = app_id = ABSENT
    table.at = table.end = NULL
    r.at += 1
    if not read_text(r, &exchange) or not read_text(r, &key):
        return NULL
    r.at += 12
    flags = r.at[0] << 8 | r.at[1]
    r.at += 2
    if flags & NOT_PLAIN:
        return NULL
    if flags & CONTENT_TYPE and not read_text(r, &content_type):
        return NULL
    if flags & CONTENT_ENCODING and not read_text(r, &content_encoding):
        return NULL
    if flags & HEADERS:
        if r.end - r.at < 4:
            return NULL
        size = u32(r.at)
        if <Py_ssize_t> size > r.end - r.at - 4:
            return NULL
        table.at = r.at + 4
        r.at = table.end = table.at + size
    if flags & DELIVERY_MODE:
        if r.at >= r.end or not 1 <= r.at[0] <= 2:
            return NULL
        mode = r.at[0]
        r.at += 1
    if flags & PRIORITY:
        if r.at >= r.end:
            return NULL
        priority = r.at
        r.at += 1
    if flags & CORRELATION_ID and not read_text(r, &correlation_id):
        return NULL
    if flags & REPLY_TO and not read_text(r, &reply_to):
        return NULL
    if flags & EXPIRATION:
        if not read_text(r, &expiration) or not read_number(&expiration, &ttl):
            return NULL
    if flags & MESSAGE_ID and not read_text(r, &message_id):
        return NULL
    if flags & TIMESTAMP:
        if r.end - r.at < 8 or u64(r.at) > MAX_SECONDS:
            return NULL
        seconds = u64(r.at)
        r.at += 8
    if flags & TYPE and not read_text(r, &kind):
        return NULL
    if flags & USER_ID and not read_text(r, &user_id):
        return NULL
    if flags & APP_ID and not read_text(r, &app_id):
        return NULL
    if (
        r.at != r.end
        or begins_with(&message_id, b"urn:uuid:", 9)
        or begins_with(&correlation_id, b"urn:uuid:", 9)
        or (kind.size == 8 and begins_with(&kind, b"amqp-1.0", 8))
    ):
        return NULL

    if flags & NEED_HEADER:
        at = begin(out, 0x70)
        at[0] = 0x41 if mode == 2 else 0x40
        count, last = 1 if mode == 2 else 0, at + 1
        at = last
        if priority != NULL:
            at[0], at[1] = 0x50, priority[0]
            count, last = 2, at + 2
            at = last
        else:
            at[0] = 0x40
            at += 1
        if expiration.at != NULL:
            count, last = 3, put_uint(at, ttl)
        if count:
            out = close_up(out, out + 12, last, 0xC0, count)
        else:
            out[3] = 0x45
            out += 4

    if exchange.size or key.size or (flags & NEED_HEADER and not mode):
        section, count = out, 0
        out = begin(section, 0x72)
        if exchange.size:
            out = put_text(put(out, b"\xa3\x0ax-exchange", 12), 0xA1, &exchange)
            count += 2
        if key.size:
            out = put_text(put(out, b"\xa3\x0dx-routing-key", 15), 0xA1, &key)
            count += 2
        if flags & NEED_HEADER and not mode:
            out = put(out, b"\xa3\x15x-basic-delivery-mode\x40", 24)
            count += 2
        out = close_up(section, section + 12, out, 0xC1, count)

    if flags & NEED_PROPERTIES:
        section = out
        at = put_text(put_text(begin(section, 0x73), 0xA1, &message_id), 0xA0, &user_id)
        at[0] = 0x40  # to
        at = put_text(put_text(put_text(at + 1, 0xA1, &kind), 0xA1, &reply_to), 0xA1, &correlation_id)
        at = put_text(put_text(at, 0xA3, &content_type), 0xA3, &content_encoding)
        if flags & TIMESTAMP:
            at[0], at[1] = 0x40, 0x83
            at, count = put_u64(at + 2, seconds * 1000), 10
        elif flags & CONTENT_ENCODING:
            count = 8
        else:
            count = 7
            at -= 1
            if not flags & CONTENT_TYPE:
                count, at = 6, at - 1
                if not flags & CORRELATION_ID:
                    count, at = 5, at - 1
                    if not flags & REPLY_TO:
                        count, at = 4, at - 1
                        if not flags & TYPE:
                            count, at = 2, at - 2  # nor to
                            if not flags & USER_ID:
                                count, at = 1, at - 1
        out = close_up(section, section + 12, at, 0xC0, count)

    if table.at != table.end or app_id.at != NULL:
        section, count = out, 0
        out = begin(section, 0x74)
        if table.at != NULL:
            out = put_headers(&table, out, &count)
            if out == NULL:
                return NULL
        if app_id.at != NULL:
            out = put_text(put(out, b"\xa1\x12x-amqp-0-10.app-id", 20), 0xA1, &app_id)
            count += 2
        out = close_up(section, section + 12, out, 0xC1, count)
    return out


def quick_to_sections(bytes content not None):
    """Translates a content into sections; None: it needs the general translation.

    The reference is ``quick_to_sections.quick_to_sections``.
    """
    cdef const uint8_t *octets = <const uint8_t *> PyBytes_AS_STRING(content)
    cdef Py_ssize_t size = PyBytes_GET_SIZE(content)
    cdef Py_ssize_t at, lead
    cdef uint64_t body
    cdef uint8_t scratch[SCRATCH_OCTETS]
    cdef uint8_t *end
    cdef uint8_t *made
    cdef Reader r
    cdef bytes found
    if size < 17 or octets[0]:
        return up.quick_to_sections(content)
    at = 2 + octets[1]
    if at >= size:
        return up.quick_to_sections(content)
    at += 1 + octets[at]
    if at + 14 > size or octets[at] or octets[at + 1] != 60:
        return up.quick_to_sections(content)
    body = u64(octets + at + 4)
    if body > <uint64_t> (size - at - 14) or body >> 32:
        return up.quick_to_sections(content)
    lead = size - <Py_ssize_t> body
    if lead > LEAD_OCTETS:
        return up.quick_to_sections(content)
    r.at, r.end = octets, octets + lead
    end = put_head(&r, scratch)
    if end == NULL:
        return up.quick_to_sections(content)
    end = put(end, b"\x00\x53\x75", 3)
    if body < 256:
        end[0], end[1] = 0xA0, <uint8_t> body
        end += 2
    else:
        end[0] = 0xB0
        end = put_u32(end + 1, <uint32_t> body)
    found = PyBytes_FromStringAndSize(NULL, end - scratch + <Py_ssize_t> body)
    made = <uint8_t *> PyBytes_AS_STRING(found)
    put(put(made, scratch, end - scratch), octets + lead, body)
    return found
