# Constants of the protocol, and primitives of reading and writing.

cdef enum:
    LEAD_OCTETS = 4096   # of a content before its body; more is uncommon
    SCRATCH_OCTETS = 2 * LEAD_OCTETS + 512
    MAX_ENTRIES = 64     # of a table of headers
    MAX_NESTED = 56      # tables and arrays, as types.MAX_DEPTH has it
    FRAME_HEAD = 7       # type, channel, size
    END_OCTET = 0xCE
    HEADER_OCTETS = 14   # of a content header, up to its flags, inclusive

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
    MORE_FLAGS = 1
    NO_PROPERTY = 3
    NOT_PLAIN = 7        # cluster-id, no property, more flags
    NEED_HEADER = DELIVERY_MODE | PRIORITY | EXPIRATION
    NEED_PROPERTIES = 0xFFF8 & ~(NEED_HEADER | HEADERS | APP_ID)

cdef uint64_t MAX_SECONDS = MAX_TIMESTAMP_SECONDS
cdef const char *HEX = b"0123456789abcdef"
cdef dict known_names = down._names


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
