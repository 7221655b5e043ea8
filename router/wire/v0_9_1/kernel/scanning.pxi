# ``scan_publishes`` and ``scan_deliveries``: runs of contents.

cdef struct Content:     # the frames after a method's
    const uint8_t *header
    Py_ssize_t header_octets
    const uint8_t *body
    Py_ssize_t body_octets
    int flags
    const uint8_t *end   # after its last frame


cdef bint read_content(const uint8_t *at, const uint8_t *end, int channel, uint32_t limit, uint32_t body_limit, Content *c) noexcept nogil:
    """Reads a content header's frame and at most one body frame; False: they are others."""
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


cdef bint asks_directly(const Content *c) noexcept nogil:
    """Returns whether reply-to may be the name for direct replies (``replying``)."""
    cdef const uint8_t *at = c.header + HEADER_OCTETS
    cdef const uint8_t *end = c.header + c.header_octets
    if not c.flags & REPLY_TO:
        return False
    while end - at >= 22:
        at = <const uint8_t *> memchr(at, 21, end - at - 21)
        if at == NULL:
            return False
        at += 1
        if memcmp(at, b"amq.rabbitmq.reply-to", 21) == 0:
            return True
    return False


cdef inline bytes join(int marks, const uint8_t *route, Py_ssize_t route_octets, const Content *c):
    """Builds a content; its marks and the route may be in one piece (marks -1)."""
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
    """Reads publishes with the same method frame, and without properties that must be read.

    The reference is ``scan.scan_publishes``.
    """
    cdef const uint8_t *start = <const uint8_t *> PyBytes_AS_STRING(octets)
    cdef const uint8_t *wanted = <const uint8_t *> PyBytes_AS_STRING(method)
    cdef const uint8_t *before = <const uint8_t *> PyBytes_AS_STRING(prefix)
    cdef Py_ssize_t method_octets = PyBytes_GET_SIZE(method)
    cdef Py_ssize_t prefix_octets = PyBytes_GET_SIZE(prefix)
    cdef Content c
    cdef const uint8_t *sound = NULL  # valid properties; the next ones are often equal
    cdef Py_ssize_t sound_octets = 0
    cdef Reader r
    cdef list found = []
    if at < 0 or end > PyBytes_GET_SIZE(octets):
        raise IndexError(end)
    while end - at > method_octets and memcmp(start + at, wanted, method_octets) == 0:
        if not read_content(start + at + method_octets, start + end, wanted[1] << 8 | wanted[2], limit, body_limit, &c):
            break
        if c.flags & (EXPIRATION | USER_ID):
            break
        if c.header_octets != sound_octets or memcmp(c.header + 12, sound, sound_octets - 12) != 0:
            r.at, r.end = c.header + HEADER_OCTETS, c.header + c.header_octets
            if not are_sound(c.flags, &r) or asks_directly(&c):
                break
            sound, sound_octets = c.header + 12, c.header_octets
        found.append(join(-1, before, prefix_octets, &c))
        at = c.end - start
    return found, at


def scan_deliveries(
    bytes octets not None, Py_ssize_t at, Py_ssize_t end, *, bytes head not None, int number,
    uint32_t limit,
):
    """Reads deliveries to one consumer.

    The reference is ``scan.scan_deliveries``.
    """
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
        if c.flags & MORE_FLAGS:
            break
        redelivered = method[head_octets + 8] & 1
        found.append((
            u64(method + head_octets),
            join(redelivered, route, route_octets, &c),
            redelivered or (c.flags & EXPIRATION) != 0,
        ))
        at = c.end - start
    return found, at
