# ``quick_from_sections``: from AMQP 1.0 to 0-9-1.

cdef enum:
    DOWN_OCTETS = 4 * LEAD_OCTETS + 512  # a value of one octet may need nine


cdef struct Map:         # an encoded list or map
    Reader items
    uint32_t count


cdef struct Names:       # names of entries that were read, each after its size
    const uint8_t *at[MAX_ENTRIES]
    int count


cdef struct Down:        # the parts of the content
    Text exchange
    Text key
    Text app_id
    Text fields[10]      # of the properties section
    uint8_t digits[3][20]  # decimal: of ttl and of ids that are numbers
    uint8_t urns[2][45]
    int id_numbers       # bits: message-id, correlation-id
    bint has_time, has_mode, has_priority
    uint8_t mode, priority
    uint64_t milliseconds
    Text ttl
    Names names
    uint8_t *table       # where the next entry of the headers is written


cdef bint open_section(Reader *r, uint8_t narrow, Map *m) noexcept nogil:
    """Reads a section's list or map head, and skips the items; False: neither, or incomplete."""
    cdef uint32_t size
    cdef const uint8_t *at = r.at + 3
    if at >= r.end:
        return False
    if at[0] == 0x45 and narrow == 0xC0:
        m.count = 0
        m.items.at = m.items.end = r.at = at + 1
        return True
    if at[0] == narrow:
        if r.end - at < 3:
            return False
        size = at[1]
        m.count, m.items.at = at[2], at + 3
        at += 2
    elif at[0] == narrow + 0x10:
        if r.end - at < 9:
            return False
        size = u32(at + 1)
        m.count, m.items.at = u32(at + 5), at + 9
        at += 5
    else:
        return False
    if <Py_ssize_t> size > r.end - at:
        return False
    m.items.end = r.at = at + size
    return m.items.at <= m.items.end


cdef inline bint is_at(Reader *r, uint8_t code) noexcept nogil:
    return r.end - r.at >= 3 and r.at[0] == 0 and r.at[1] == 0x53 and r.at[2] == code


cdef bint take_text(Reader *r, uint8_t code, uint8_t other, Text *text) noexcept nogil:
    """Reads a short ASCII string or symbol, with either constructor."""
    if r.at >= r.end or (r.at[0] != code and r.at[0] != other):
        return False
    r.at += 1
    return read_text(r, text)


cdef int put_digits(uint8_t *out, uint64_t number) noexcept nogil:
    """Writes a number in decimal; returns the number of digits."""
    cdef uint8_t found[20]
    cdef int count = 0
    cdef int i
    while True:
        found[count] = c"0" + number % 10
        count += 1
        number //= 10
        if not number:
            break
    for i in range(count):
        out[i] = found[count - 1 - i]
    return count


cdef inline void put_number(Text *text, uint8_t *digits, uint64_t number) noexcept nogil:
    text.at, text.size = digits, put_digits(digits, number)


cdef inline uint8_t *put_long_text(uint8_t *out, uint8_t letter, const uint8_t *text, int size) noexcept nogil:
    out[0] = letter
    return put(put_u32(out + 1, size), text, size)


cdef uint8_t *put_fill(uint8_t *out, uint8_t letter, int width, uint8_t octet, bint is_signed) noexcept nogil:
    """Writes a number that was received as one octet."""
    out[0] = letter
    memset(out + 1, 0xFF if is_signed and octet > 127 else 0, width - 1)
    out[width] = octet
    return out + width + 1


cdef uint8_t *put_field(Reader *r, uint8_t *out) noexcept nogil:
    """Converts a simple value to one of a table; NULL: it does not map directly."""
    cdef uint8_t code, letter = 0
    cdef const uint8_t *at
    cdef Py_ssize_t left
    cdef int width = 0
    if r.at >= r.end:
        return NULL
    code, at = r.at[0], r.at + 1
    left = r.end - at
    if code == 0xA1 or code == 0xA3 or code == 0xA0:
        if left < 1 or left < 1 + at[0] or (code != 0xA0 and not is_ascii(at + 1, at[0])):
            return NULL
        r.at = at + 1 + at[0]
        return put_long_text(out, c"x" if code == 0xA0 else c"S", at + 1, at[0])
    if code == 0x40:
        letter = c"V"
    elif code == 0x50:
        letter, width = c"B", 1
    elif code == 0x51:
        letter, width = c"b", 1
    elif code == 0x60:
        letter, width = c"u", 2
    elif code == 0x61:
        letter, width = c"s", 2
    elif code == 0x70:
        letter, width = c"i", 4
    elif code == 0x71:
        letter, width = c"I", 4
    elif code == 0x72:
        letter, width = c"f", 4
    elif code == 0x81 or code == 0x80:
        letter, width = c"l", 8
    elif code == 0x82:
        letter, width = c"d", 8
    elif code == 0x83:
        letter, width = c"T", 8
    if letter:
        if left < width or ((code == 0x80 or code == 0x83) and at[0] > 127):
            return NULL
        r.at = at + width
        out[0] = letter
        if code == 0x83:
            return put_u64(out + 1, u64(at) // 1000)
        return put(out + 1, at, width)
    if code == 0x41 or code == 0x42:
        r.at = at
        out[0], out[1] = c"t", 0x42 - code
        return out + 2
    if code == 0x43 or code == 0x44:
        r.at = at
        return put_fill(out, c"i" if code == 0x43 else c"l", 4 if code == 0x43 else 8, 0, False)
    if code < 0x52 or code > 0x55 or left < 1:
        return NULL
    r.at = at + 1
    if code == 0x52:
        return put_fill(out, c"i", 4, at[0], False)
    if code == 0x53:
        return put_fill(out, c"l", 8, at[0], False)
    if code == 0x54:
        return put_fill(out, c"I", 4, at[0], True)
    return put_fill(out, c"l", 8, at[0], True)


cdef inline bint is_named(const Text *name, const char *octets, int size) noexcept nogil:
    return name.size == size and memcmp(name.at, octets, size) == 0


cdef bint is_own(const Text *name) except -1:
    """Returns whether a name is unknown to ``marks``."""
    cdef bytes key
    if not (
        (name.size >= 2 and memcmp(name.at, b"x-", 2) == 0)
        or (name.size >= 4 and memcmp(name.at, b"JMSX", 4) == 0)
    ):
        return True
    key = (<const char *> name.at - 1)[:name.size + 1]
    if key in known_names:
        return True
    try:
        down._read_name(key)
    except down._GiveUp:
        return False
    return True


cdef bint put_entry(Reader *r, const Text *name, Down *d) except -1:
    """Adds an entry to the headers; False: it does not map directly, or its name is repeated."""
    cdef int i
    cdef uint8_t *out
    if d.names.count == MAX_ENTRIES or not is_own(name):
        return False
    for i in range(d.names.count):
        if d.names.at[i][0] == name.size and memcmp(d.names.at[i] + 1, name.at, name.size) == 0:
            return False
    d.names.at[d.names.count] = name.at - 1
    d.names.count += 1
    out = put_field(r, put(d.table, name.at - 1, name.size + 1))
    if out == NULL:
        return False
    d.table = out
    return True


cdef bint take_header(Map *m, Down *d) noexcept nogil:
    cdef Reader *r = &m.items
    cdef uint32_t ttl
    d.has_mode, d.mode = True, 1
    if m.count > 3:
        return False
    if m.count > 0:
        if r.at >= r.end or not 0x40 <= r.at[0] <= 0x42:
            return False
        if r.at[0] == 0x41:
            d.mode = 2
        r.at += 1
    if m.count > 1:
        if r.at >= r.end:
            return False
        if r.at[0] == 0x50:
            if r.end - r.at < 2:
                return False
            d.has_priority, d.priority = True, r.at[1]
            r.at += 1
        elif r.at[0] != 0x40:
            return False
        r.at += 1
    if m.count > 2:
        if r.at >= r.end:
            return False
        if r.at[0] == 0x43:
            ttl = 0
            r.at += 1
        elif r.at[0] == 0x52 and r.end - r.at >= 2:
            ttl = r.at[1]
            r.at += 2
        elif r.at[0] == 0x70 and r.end - r.at >= 5:
            ttl = u32(r.at + 1)
            r.at += 5
        else:
            return False
        put_number(&d.ttl, d.digits[0], ttl)
    return r.at == r.end


cdef bint take_annotations(Map *m, Down *d) except -1:
    cdef Reader *r = &m.items
    cdef Text name
    cdef uint32_t i
    cdef bint is_mode_absent = False
    if m.count & 1:
        return False
    for i in range(m.count // 2):
        if not take_text(r, 0xA3, 0xA3, &name):
            return False
        if is_named(&name, b"x-exchange", 10):
            if d.exchange.at != NULL or not take_text(r, 0xA1, 0xA3, &d.exchange):
                return False
        elif is_named(&name, b"x-routing-key", 13):
            if d.key.at != NULL or not take_text(r, 0xA1, 0xA3, &d.key):
                return False
        elif is_named(&name, b"x-basic-delivery-mode", 21):
            if is_mode_absent or r.at >= r.end or r.at[0] != 0x40:
                return False
            is_mode_absent = True
            r.at += 1
        elif name.size < 2 or memcmp(name.at, b"x-", 2) != 0 or not put_entry(r, &name, d):
            return False
    if is_mode_absent:
        d.has_mode = False
    return r.at == r.end


cdef bint take_application(Map *m, Down *d) except -1:
    cdef Reader *r = &m.items
    cdef Text name
    cdef uint32_t i
    if m.count & 1:
        return False
    for i in range(m.count // 2):
        if not take_text(r, 0xA1, 0xA1, &name):
            return False
        if is_named(&name, b"x-amqp-0-10.app-id", 18):
            if d.app_id.at != NULL or not take_text(r, 0xA1, 0xA1, &d.app_id):
                return False
        elif not put_entry(r, &name, d):
            return False
    return r.at == r.end


cdef bint take_id(Reader *r, Text *text, int which, Down *d) noexcept nogil:
    """Reads a message-id or correlation-id."""
    cdef uint8_t code = r.at[0]
    cdef uint8_t *out
    cdef uint64_t number
    cdef int i
    if code == 0xA1:
        return take_text(r, 0xA1, 0xA1, text)
    if code == 0x98:
        if r.end - r.at < 17:
            return False
        out = put(d.urns[which], b"urn:uuid:", 9)
        for i in range(16):
            if i == 4 or i == 6 or i == 8 or i == 10:
                out[0] = c"-"
                out += 1
            out[0], out[1] = HEX[r.at[1 + i] >> 4], HEX[r.at[1 + i] & 15]
            out += 2
        text.at, text.size = d.urns[which], 45
        r.at += 17
        return True
    if code == 0x44:
        number = 0
        r.at += 1
    elif code == 0x53 and r.end - r.at >= 2:
        number = r.at[1]
        r.at += 2
    elif code == 0x80 and r.end - r.at >= 9:
        number = u64(r.at + 1)
        r.at += 9
    else:
        return False
    d.id_numbers |= 1 << which
    put_number(text, d.digits[1 + which], number)
    return True


cdef bint take_properties(Map *m, Down *d) noexcept nogil:
    """Reads message-id, user-id, to, subject, reply-to, correlation-id, two of content, time."""
    cdef Reader *r = &m.items
    cdef Text *text
    cdef uint32_t field
    cdef bint is_read
    if m.count > 10:
        return False
    for field in range(m.count):
        if r.at >= r.end:
            return False
        if r.at[0] == 0x40:
            r.at += 1
            continue
        text = &d.fields[field]
        if field == 0 or field == 5:
            is_read = take_id(r, text, field != 0, d)
        elif field == 1:
            is_read = r.at[0] == 0xA0 and r.end - r.at >= 2 and r.end - r.at >= 2 + r.at[1]
            if is_read:
                text.at, text.size = r.at + 2, r.at[1]
                r.at += 2 + text.size
        elif field == 3:
            is_read = take_text(r, 0xA1, 0xA1, text) and not is_named(text, b"amqp-1.0", 8)
        elif field == 2 or field == 4:
            is_read = take_text(r, 0xA1, 0xA1, text)
        elif field == 6 or field == 7:
            is_read = take_text(r, 0xA3, 0xA3, text)
        elif field == 9:
            is_read = r.at[0] == 0x83 and r.end - r.at >= 9 and r.at[1] < 128
            if is_read:
                d.has_time, d.milliseconds = True, u64(r.at + 1)
                r.at += 9
        else:
            is_read = False
        if not is_read:
            return False
    return r.at == r.end


cdef inline uint8_t *put_named(uint8_t *out, const char *name, int size) noexcept nogil:
    out[0] = size
    return put(out + 1, name, size)


cdef void tell(Down *d) noexcept nogil:
    """Adds headers for properties that 0-9-1 lacks, in the order of ``from_sections``."""
    cdef uint8_t *out = d.table
    if d.id_numbers & 1:
        out = put_long_text(put_named(out, b"x-message-id-type", 17), c"S", <const uint8_t *> b"ulong", 5)
    if d.id_numbers & 2:
        out = put_long_text(put_named(out, b"x-correlation-id-type", 21), c"S", <const uint8_t *> b"ulong", 5)
    if d.fields[2].at != NULL:
        out = put_long_text(put_named(out, b"x-amqp-to", 9), c"S", d.fields[2].at, d.fields[2].size)
    if d.has_time and d.milliseconds % 1000:
        out = put_named(out, b"x-amqp-creation-time", 20)
        out[0] = c"l"
        out = put_u64(out + 1, d.milliseconds)
    d.table = out


cdef inline uint8_t *put_short(uint8_t *out, const Text *text) noexcept nogil:
    if text.at == NULL:
        return out
    out[0] = text.size
    return put(out + 1, text.at, text.size)


cdef uint8_t *put_content_header(uint8_t *out, Down *d, const uint8_t *table, uint64_t body) noexcept nogil:
    cdef Text *fields = d.fields
    cdef size_t table_octets = d.table - table
    cdef int flags = 0
    cdef uint8_t *at
    at = put_u64(put_u32(out, 60 << 16), body) + 2
    if fields[6].at != NULL:
        flags |= CONTENT_TYPE
        at = put_short(at, &fields[6])
    if fields[7].at != NULL:
        flags |= CONTENT_ENCODING
        at = put_short(at, &fields[7])
    if table_octets:
        flags |= HEADERS
        at = put(put_u32(at, table_octets), table, table_octets)
    if d.has_mode:
        flags |= DELIVERY_MODE
        at[0] = d.mode
        at += 1
    if d.has_priority:
        flags |= PRIORITY
        at[0] = d.priority
        at += 1
    if fields[5].at != NULL:
        flags |= CORRELATION_ID
        at = put_short(at, &fields[5])
    if fields[4].at != NULL:
        flags |= REPLY_TO
        at = put_short(at, &fields[4])
    if d.ttl.at != NULL:
        flags |= EXPIRATION
        at = put_short(at, &d.ttl)
    if fields[0].at != NULL:
        flags |= MESSAGE_ID
        at = put_short(at, &fields[0])
    if d.has_time:
        flags |= TIMESTAMP
        at = put_u64(at, d.milliseconds // 1000)
    if fields[3].at != NULL:
        flags |= TYPE
        at = put_short(at, &fields[3])
    if fields[1].at != NULL:
        flags |= USER_ID
        at = put_short(at, &fields[1])
    if d.app_id.at != NULL:
        flags |= APP_ID
        at = put_short(at, &d.app_id)
    out[12], out[13] = flags >> 8, flags & 255
    return at


def quick_from_sections(bytes payload not None):
    """Translates sections into a content; None: they need the general translation.

    The reference is ``quick_from_sections.quick_from_sections``.
    """
    cdef const uint8_t *octets = <const uint8_t *> PyBytes_AS_STRING(payload)
    cdef uint8_t table[DOWN_OCTETS]
    cdef uint8_t scratch[2 * DOWN_OCTETS]
    cdef uint8_t *end
    cdef uint8_t *made
    cdef const uint8_t *body
    cdef uint32_t body_octets
    cdef Reader r
    cdef Map m
    cdef Down d
    cdef bytes found
    cdef bint is_plain = True
    memset(&d, 0, sizeof(d))
    d.table = table
    r.at, r.end = octets, octets + PyBytes_GET_SIZE(payload)
    if is_at(&r, 0x70):
        is_plain = open_section(&r, 0xC0, &m) and take_header(&m, &d)
    if is_plain and is_at(&r, 0x72):
        is_plain = open_section(&r, 0xC1, &m) and r.at - octets <= LEAD_OCTETS
        is_plain = is_plain and take_annotations(&m, &d)
    if is_plain and is_at(&r, 0x73):
        is_plain = open_section(&r, 0xC0, &m) and r.at - octets <= LEAD_OCTETS
        is_plain = is_plain and take_properties(&m, &d)
    if is_plain and is_at(&r, 0x74):
        is_plain = open_section(&r, 0xC1, &m) and r.at - octets <= LEAD_OCTETS
        is_plain = is_plain and take_application(&m, &d)
    if not is_plain or not is_at(&r, 0x75) or r.end - r.at < 5:
        return down.quick_from_sections(payload)
    body = r.at + 3
    if body[0] == 0xA0:
        body_octets = body[1]
        body += 2
    elif body[0] == 0xB0 and r.end - body >= 5:
        body_octets = u32(body + 1)
        body += 5
    else:
        return down.quick_from_sections(payload)
    if r.end - body != <Py_ssize_t> body_octets:
        return down.quick_from_sections(payload)
    tell(&d)
    scratch[0] = 0
    if d.exchange.at == NULL:
        d.exchange.at = octets  # empty, also in the content
    if d.key.at == NULL:
        d.key.at = octets
    end = put_short(put_short(scratch + 1, &d.exchange), &d.key)
    end = put_content_header(end, &d, table, body_octets)
    found = PyBytes_FromStringAndSize(NULL, end - scratch + <Py_ssize_t> body_octets)
    made = <uint8_t *> PyBytes_AS_STRING(found)
    put(put(made, scratch, end - scratch), body, body_octets)
    return found
