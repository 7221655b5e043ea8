# cython: language_level=3
# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# cython: nonecheck=False, infer_types=False
"""What handles every message of 0-9-1, compiled; each function has a twin in Python.

``quick_upward`` translates to AMQP 1.0, octet for octet as its twin. Nothing is remembered, for
nothing takes long: the content header is read once and what stands before the body is written into
a scratch buffer, without a Python object for any part of it. What is not plain, or uncommonly
large, is left to the twin, which also judges it. ``scan_publishes`` and ``scan_deliveries`` read runs
of contents, ``pass_on`` makes the frames of one that leaves as it came.

Safety. A ``Reader`` never goes beyond its end. What is written is at most twice what was read, and
``LEAD_OCTETS`` bounds that.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy, memmove

from router.wire.v0_9_1 import quick_upward as twin
from router.wire.v0_9_1.values import MAX_TIMESTAMP_SECONDS

cdef enum:
    LEAD_OCTETS = 4096   # of a content before its body; what is longer is not usual
    SCRATCH_OCTETS = 2 * LEAD_OCTETS + 512
    MAX_ENTRIES = 64     # of a table of headers
    MAX_NESTED = 56      # tables and arrays, as types.MAX_DEPTH has it

cdef enum:  # flags of properties, as content.FLAGS has them
    CONTENT_TYPE = 1 << 15
    CONTENT_ENCODING = 1 << 14
    HEADERS = 1 << 13
    DELIVERY_MODE = 1 << 12
    PRIORITY = 1 << 11
    CORRELATION_ID = 1 << 10
    REPLY_TO = 1 << 9
    EXPIRATION = 1 << 8
    MESSAGE_ID = 1 << 7
    TIMESTAMP = 1 << 6
    TYPE = 1 << 5
    USER_ID = 1 << 4
    APP_ID = 1 << 3
    CLUSTER_ID = 1 << 2
    NO_PROPERTY = 3
    NOT_PLAIN = 7        # cluster-id, no property, more flags
    NEED_HEADER = DELIVERY_MODE | PRIORITY | EXPIRATION
    NEED_PROPERTIES = 0xFFF8 & ~(NEED_HEADER | HEADERS | APP_ID)

cdef uint64_t MAX_SECONDS = MAX_TIMESTAMP_SECONDS


cdef struct Text:
    const uint8_t *at    # its octets; NULL: absent
    int size


cdef Text ABSENT
ABSENT.at, ABSENT.size = NULL, 0


cdef struct Reader:
    const uint8_t *at
    const uint8_t *end


cdef inline uint32_t u32(const uint8_t *at) noexcept nogil:
    return (<uint32_t> at[0] << 24) | (<uint32_t> at[1] << 16) | (<uint32_t> at[2] << 8) | at[3]


cdef inline uint64_t u64(const uint8_t *at) noexcept nogil:
    return (<uint64_t> u32(at) << 32) | u32(at + 4)


cdef inline uint8_t *put_u32(uint8_t *at, uint32_t value) noexcept nogil:
    at[0], at[1], at[2], at[3] = value >> 24, value >> 16 & 255, value >> 8 & 255, value & 255
    return at + 4


cdef inline uint8_t *put_u64(uint8_t *at, uint64_t value) noexcept nogil:
    return put_u32(put_u32(at, <uint32_t> (value >> 32)), <uint32_t> value)


cdef inline uint8_t *put(uint8_t *at, const void *octets, size_t size) noexcept nogil:
    memcpy(at, octets, size)
    return at + size


cdef inline bint is_ascii(const uint8_t *at, int size) noexcept nogil:
    cdef uint8_t seen = 0
    cdef int i
    for i in range(size):
        seen |= at[i]
    return seen < 128


cdef bint read_text(Reader *r, Text *text) noexcept nogil:
    """Reads a short string of ASCII."""
    if r.at >= r.end:
        return False
    text.size = r.at[0]
    text.at = r.at + 1
    r.at += 1 + text.size
    return r.at <= r.end and is_ascii(text.at, text.size)


cdef inline uint8_t *put_text(uint8_t *out, uint8_t code, const Text *text) noexcept nogil:
    """Writes a string, symbol or binary; nothing if it is absent."""
    if text.at == NULL:
        out[0] = 0x40
        return out + 1
    out[0] = code
    out[1] = text.size
    return put(out + 2, text.at, text.size)


cdef uint8_t *put_uint(uint8_t *out, uint32_t value) noexcept nogil:
    if value == 0:
        out[0] = 0x43
        return out + 1
    if value < 256:
        out[0], out[1] = 0x52, value
        return out + 2
    out[0] = 0x70
    return put_u32(out + 1, value)


cdef uint8_t *close_up(uint8_t *section, uint8_t *items, uint8_t *end, uint8_t narrow, int count) noexcept nogil:
    """Ends a section whose items begin 12 octets behind its own begin, the room of a wide head."""
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
    """Cuts a header's value out and writes it in its shortest form; NULL: it is not plain."""
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
    """Cuts the entries of a table out and writes those of a map; NULL: they are not all plain."""
    cdef const uint8_t *names[MAX_ENTRIES]
    cdef Text name
    cdef int entries = 0
    cdef int i
    while r.at < r.end:
        if entries == MAX_ENTRIES or not read_text(r, &name) or r.at >= r.end:
            return NULL
        if name.size >= 2 and memcmp(name.at, b"x-", 2) == 0:
            return NULL
        if name.size >= 4 and memcmp(name.at, b"JMSX", 4) == 0:  # ``marks`` knows of no other
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
    """Writes all that stands before the data section; NULL: it is not plain.

    ``r`` reads marks, route and content header, less the body's size, which has been looked at.
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


def quick_upward(bytes content not None):
    """Translates a content into the octets of sections; None if it is not plain."""
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
        return twin.quick_upward(content)
    at = 2 + octets[1]
    if at >= size:
        return twin.quick_upward(content)
    at += 1 + octets[at]
    if at + 14 > size or octets[at] or octets[at + 1] != 60:
        return twin.quick_upward(content)
    body = u64(octets + at + 4)
    if body > <uint64_t> (size - at - 14) or body >> 32:
        return twin.quick_upward(content)
    lead = size - <Py_ssize_t> body
    if lead > LEAD_OCTETS:
        return twin.quick_upward(content)
    r.at, r.end = octets, octets + lead
    end = put_head(&r, scratch)
    if end == NULL:
        return twin.quick_upward(content)
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


# --- runs of contents -----------------------------------------------------------------------------

cdef enum:
    FRAME_HEAD = 7       # type, channel, size
    END_OCTET = 0xCE
    HEADER_OCTETS = 14   # of a content header, up to and with its flags


cdef struct Content:     # frames behind a method's
    const uint8_t *header
    Py_ssize_t header_octets
    const uint8_t *body
    Py_ssize_t body_octets
    int flags
    const uint8_t *end   # behind its last frame


cdef bint read_content(const uint8_t *at, const uint8_t *end, int channel, uint32_t limit, uint32_t body_limit, Content *c) noexcept nogil:
    """Reads a content header's frame and at most one body frame; false: it is not that."""
    cdef uint64_t body
    cdef uint32_t size
    if end - at <= FRAME_HEAD + HEADER_OCTETS or at[0] != 2 or (at[1] << 8 | at[2]) != channel:
        return False
    size = u32(at + 3)
    at += FRAME_HEAD
    if size < HEADER_OCTETS or size > limit or <Py_ssize_t> size >= end - at:
        return False
    if at[size] != END_OCTET or u32(at) != 60 << 16:  # class and weight
        return False
    body = u64(at + 4)
    if body > body_limit:
        return False
    c.header, c.header_octets, c.flags = at, size, at[12] << 8 | at[13]
    at += size + 1
    c.body, c.body_octets = at, <Py_ssize_t> body
    if body:
        if end - at < FRAME_HEAD or at[0] != 3 or (at[1] << 8 | at[2]) != channel:
            return False
        if u32(at + 3) != body:
            return False
        at += FRAME_HEAD
        if <Py_ssize_t> body >= end - at or at[body] != END_OCTET:
            return False
        c.body = at
        at += body + 1
    c.end = at
    return True


cdef inline bytes join(int marks, const uint8_t *route, Py_ssize_t route_octets, const Content *c):
    """Makes a content; its marks and the route may be in one piece (marks -1)."""
    cdef Py_ssize_t before = route_octets + (marks >= 0)
    cdef bytes made = PyBytes_FromStringAndSize(NULL, before + c.header_octets + c.body_octets)
    cdef uint8_t *at = <uint8_t *> PyBytes_AS_STRING(made)
    if marks >= 0:
        at[0] = marks
        at += 1
    at = put(put(at, route, route_octets), c.header, c.header_octets)
    put(at, c.body, c.body_octets)
    return made


def scan_publishes(
    bytes octets not None, Py_ssize_t at, Py_ssize_t end, *, bytes method not None,
    bytes prefix not None, uint32_t limit, uint32_t body_limit,
):
    """Reads publishes that all have the same method frame, and no property that is looked at."""
    cdef const uint8_t *start = <const uint8_t *> PyBytes_AS_STRING(octets)
    cdef const uint8_t *wanted = <const uint8_t *> PyBytes_AS_STRING(method)
    cdef const uint8_t *before = <const uint8_t *> PyBytes_AS_STRING(prefix)
    cdef Py_ssize_t method_octets = PyBytes_GET_SIZE(method)
    cdef Py_ssize_t prefix_octets = PyBytes_GET_SIZE(prefix)
    cdef Content c
    cdef list found = []
    if at < 0 or end > PyBytes_GET_SIZE(octets):
        raise IndexError(end)
    while end - at > method_octets and memcmp(start + at, wanted, method_octets) == 0:
        if not read_content(start + at + method_octets, start + end, wanted[1] << 8 | wanted[2], limit, body_limit, &c):
            break
        if c.flags & (EXPIRATION | USER_ID):
            break
        found.append(join(-1, before, prefix_octets, &c))
        at = c.end - start
    return found, at


def scan_deliveries(
    bytes octets not None, Py_ssize_t at, Py_ssize_t end, *, bytes head not None, int number,
    uint32_t limit,
):
    """Reads deliveries to one consumer."""
    cdef const uint8_t *start = <const uint8_t *> PyBytes_AS_STRING(octets)
    cdef const uint8_t *wanted = <const uint8_t *> PyBytes_AS_STRING(head)
    cdef const uint8_t *method
    cdef const uint8_t *route
    cdef Py_ssize_t head_octets = PyBytes_GET_SIZE(head)
    cdef Py_ssize_t size, route_octets, key_at
    cdef Content c
    cdef bint redelivered
    cdef list found = []
    if at < 0 or end > PyBytes_GET_SIZE(octets):
        raise IndexError(end)
    while end - at > FRAME_HEAD + head_octets + 11:
        method = start + at
        if method[0] != 1 or (method[1] << 8 | method[2]) != number:
            break
        size = u32(method + 3)
        method += FRAME_HEAD
        if size > limit or size < head_octets + 11 or size >= end - at - FRAME_HEAD:
            break
        if method[size] != END_OCTET or memcmp(method, wanted, head_octets) != 0:
            break
        route = method + head_octets + 9
        route_octets = size - head_octets - 9
        key_at = 1 + route[0]
        if key_at >= route_octets or key_at + 1 + route[key_at] != route_octets:
            break
        if not read_content(method + size + 1, start + end, number, limit, limit, &c):
            break
        redelivered = method[head_octets + 8] & 1
        found.append((
            u64(method + head_octets),
            join(redelivered, route, route_octets, &c),
            redelivered or (c.flags & EXPIRATION) != 0,
        ))
        at = c.end - start
    return found, at


# --- contents that leave as they came -------------------------------------------------------------

cdef inline bint skip(Reader *r, uint64_t octets) noexcept nogil:
    if <uint64_t> (r.end - r.at) < octets:
        return False
    r.at += octets
    return True


cdef inline bint skip_short(Reader *r) noexcept nogil:
    return r.at < r.end and skip(r, 1 + <uint64_t> r.at[0])


cdef inline bint skip_long(Reader *r) noexcept nogil:
    return r.end - r.at >= 4 and skip(r, 4 + <uint64_t> u32(r.at))


cdef bint skip_value(Reader *r, int depth) noexcept nogil:
    """Skips a value of a table, its letter first; false: it breaks its format."""
    cdef uint8_t letter
    if r.at >= r.end:
        return False
    letter = r.at[0]
    r.at += 1
    if letter == c"S" or letter == c"x":
        return skip_long(r)
    if letter == c"t" or letter == c"b" or letter == c"B":
        return skip(r, 1)
    if letter == c"s" or letter == c"U" or letter == c"u":
        return skip(r, 2)
    if letter == c"I" or letter == c"i" or letter == c"f":
        return skip(r, 4)
    if letter == c"l" or letter == c"L" or letter == c"d" or letter == c"T":
        return skip(r, 8)
    if letter == c"D":
        return skip(r, 5)
    if letter == c"F":
        return skip_nested(r, depth, True)
    if letter == c"A":
        return skip_nested(r, depth, False)
    return letter == c"V"


cdef bint skip_nested(Reader *r, int depth, bint has_names) noexcept nogil:
    """Skips a table or an array."""
    cdef Reader inner
    if depth >= MAX_NESTED or r.end - r.at < 4:
        return False
    inner.at = r.at + 4
    if not skip_long(r):
        return False
    inner.end = r.at
    while inner.at < inner.end:
        if has_names and not skip_short(&inner):
            return False
        if not skip_value(&inner, depth + 1):
            return False
    return True


cdef bint are_sound(int flags, Reader *r) noexcept nogil:
    """Tells whether properties, flags apart, keep to their format."""
    cdef int flag = CONTENT_TYPE
    if flags & NO_PROPERTY:
        return False
    while flag >= CLUSTER_ID:
        if flags & flag:
            if flag == HEADERS:
                if not skip_nested(r, 0, True):
                    return False
            elif flag == DELIVERY_MODE or flag == PRIORITY:
                if not skip(r, 1):
                    return False
            elif flag == TIMESTAMP:
                if not skip(r, 8):
                    return False
            elif not skip_short(r):
                return False
        flag >>= 1
    return r.at == r.end


def is_sound(bytes header not None):
    """Tells whether the properties of a content header keep to their format."""
    cdef const uint8_t *octets = <const uint8_t *> PyBytes_AS_STRING(header)
    cdef Reader r
    if PyBytes_GET_SIZE(header) < HEADER_OCTETS:
        return False
    r.at, r.end = octets + HEADER_OCTETS, octets + PyBytes_GET_SIZE(header)
    return are_sound(octets[12] << 8 | octets[13], &r)


def pass_on(bytes content not None, *, bytes method not None, Py_ssize_t room, int refused):
    """Makes the frames of a content that leaves as it is; None: it cannot."""
    cdef const uint8_t *octets = <const uint8_t *> PyBytes_AS_STRING(content)
    cdef const uint8_t *its_method = <const uint8_t *> PyBytes_AS_STRING(method)
    cdef Py_ssize_t size = PyBytes_GET_SIZE(content)
    cdef Py_ssize_t method_octets = PyBytes_GET_SIZE(method)
    cdef Py_ssize_t at, header_octets, whole
    cdef uint64_t body
    cdef uint8_t *out
    cdef Reader r
    cdef int flags
    cdef bytes made
    if size < 3 or method_octets < 3:
        return None
    at = 2 + octets[1]
    if at >= size:
        return None
    at += 1 + octets[at]
    if at + HEADER_OCTETS > size or octets[at] or octets[at + 1] != 60:
        return None
    body = u64(octets + at + 4)
    if body > <uint64_t> (size - at - HEADER_OCTETS) or body > <uint64_t> room:
        return None
    header_octets = size - <Py_ssize_t> body - at
    flags = octets[at + 12] << 8 | octets[at + 13]
    if header_octets > room or flags & refused:
        return None
    r.at, r.end = octets + at + HEADER_OCTETS, octets + at + header_octets
    if not are_sound(flags, &r):
        return None
    whole = method_octets + FRAME_HEAD + header_octets + 1
    if body:
        whole += FRAME_HEAD + <Py_ssize_t> body + 1
    made = PyBytes_FromStringAndSize(NULL, whole)
    out = put(<uint8_t *> PyBytes_AS_STRING(made), its_method, method_octets)
    out = put_frame(out, 2, its_method, octets + at, header_octets)
    if body:
        put_frame(out, 3, its_method, octets + at + header_octets, <Py_ssize_t> body)
    return made


cdef inline uint8_t *put_frame(uint8_t *out, uint8_t kind, const uint8_t *method, const uint8_t *payload, Py_ssize_t size) noexcept nogil:
    """Writes a frame on the channel of a method's."""
    out[0], out[1], out[2] = kind, method[1], method[2]
    out = put(put_u32(out + 3, <uint32_t> size), payload, size)
    out[0] = END_OCTET
    return out + 1
