# ``is_sound`` and ``pass_on``: contents passed on unchanged.

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
    """Skips a value of a table, its letter first; False: it is invalid."""
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
    """Returns whether properties, flags apart, are valid."""
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
    """Returns whether the properties of a content header are valid.

    The reference is ``passing.is_sound``.
    """
    cdef const uint8_t *octets = <const uint8_t *> PyBytes_AS_STRING(header)
    cdef Reader r
    if PyBytes_GET_SIZE(header) < HEADER_OCTETS:
        return False
    r.at, r.end = octets + HEADER_OCTETS, octets + PyBytes_GET_SIZE(header)
    return are_sound(octets[12] << 8 | octets[13], &r)


def pass_on(
    bytes content not None, *, bytes method not None, Py_ssize_t max_payload_octets, int refused
):
    """Encodes the frames of an unchanged content; None: it needs a change.

    The reference is ``passing.pass_on``.
    """
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
    if body > <uint64_t> (size - at - HEADER_OCTETS) or body > <uint64_t> max_payload_octets:
        return None
    header_octets = size - <Py_ssize_t> body - at
    flags = octets[at + 12] << 8 | octets[at + 13]
    if header_octets > max_payload_octets or flags & refused:
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
    """Writes a frame on the channel of a method frame."""
    out[0], out[1], out[2] = kind, method[1], method[2]
    out = put(put_u32(out + 3, <uint32_t> size), payload, size)
    out[0] = END_OCTET
    return out + 1
