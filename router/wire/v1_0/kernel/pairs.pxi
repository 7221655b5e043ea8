# Deliveries under way: a slab of pairs, and their records.

cdef enum:
    SLAB = 4096               # pairs in a segment of the slab
    TAG_CAPACITY = 16         # longer tags are allocated separately
    # flags of a pair
    LIVE = 1
    QUEUED = 2
    SETTLED = 4               # by the sender; kept until the outcome, unless it is sent settled
    SECOND = 8                # the receiver settles after the sender
    NOTIFIED = 16                 # second: accepted, and the sender has been notified
    DONE = 32                 # second: the receiver has settled, too
    PARTED = 64               # its payload is in parts

cdef struct Part:
    Chunk *chunk
    uint32_t offset
    uint32_t octets

cdef struct Parts:
    uint32_t count
    uint32_t capacity
    Part part[1]              # ``capacity`` of them

cdef struct Pair:
    uint32_t link             # slot of the incoming link
    uint32_t out              # slot of the outgoing link
    uint32_t in_id
    uint32_t out_id           # while it waits or is free: the next one
    uint32_t number           # on the outgoing link; the tag there
    uint32_t offset           # of the payload in its chunk
    uint32_t octets
    uint32_t place            # position among all deliveries of the incoming link, modulo 2^32
    uint8_t flags
    uint8_t tag_octets
    Chunk *chunk              # if the payload is in parts, a pointer to Parts
    uint8_t tag[TAG_CAPACITY] # as received; if longer than TAG_CAPACITY, a pointer to it


cdef inline const uint8_t *tag_of(Pair *pair) noexcept nogil:
    if pair.tag_octets > TAG_CAPACITY:
        return (<uint8_t **>pair.tag)[0]
    return pair.tag


cdef inline void copy_payload(
    Pair *pair, uint32_t offset, uint32_t octets, uint8_t *to
) noexcept nogil:
    """Copies a piece of a kept payload."""
    cdef Parts *parts
    cdef uint32_t index = 0
    cdef uint32_t piece
    if not pair.flags & PARTED:
        memcpy(to, pair.chunk.data + pair.offset + offset, octets)
        return
    parts = <Parts *>pair.chunk
    while octets:
        if offset >= parts.part[index].octets:
            offset -= parts.part[index].octets
        else:
            piece = min(octets, parts.part[index].octets - offset)
            memcpy(to, parts.part[index].chunk.data + parts.part[index].offset + offset, piece)
            to += piece
            octets -= piece
            offset = 0
        index += 1


cdef inline Pair *pair_at(Express kernel, uint32_t index) noexcept:
    return &kernel.segments[index // SLAB][index % SLAB]


cdef inline uint32_t new_pair(Express kernel) except? 0xFFFFFFFF:
    cdef uint32_t index = kernel.free_pairs
    if index == NONE:
        grow_slab(kernel)
        index = kernel.free_pairs
    kernel.free_pairs = pair_at(kernel, index).out_id
    return index


cdef int grow_slab(Express kernel) except -1:
    cdef Pair *segment
    cdef uint32_t index
    cdef Pair **grown = <Pair **>realloc(
        kernel.segments, (kernel.segment_count + 1) * sizeof(Pair *)
    )
    if grown == NULL:
        raise MemoryError
    kernel.segments = grown
    segment = <Pair *>zeroed_lines(SLAB * sizeof(Pair))  # each pair lies in a line of the cache
    if segment == NULL:
        raise MemoryError
    kernel.segments[kernel.segment_count] = segment
    for index in range(SLAB):
        segment[index].out_id = kernel.segment_count * SLAB + index + 1
    segment[SLAB - 1].out_id = NONE
    kernel.free_pairs = kernel.segment_count * SLAB
    kernel.segment_count += 1
    return 0


cdef inline int fill_pair(
    Express kernel,
    Pair *pair,
    LinkState link,
    uint32_t an_id,
    const uint8_t *tag,
    uint32_t tag_octets,
) except -1:
    cdef uint8_t *outside
    pair.flags = (LIVE | SECOND) if link.settles_second else LIVE
    pair.link = link.slot
    pair.place = <uint32_t>(link.carried + link.passed)
    pair.in_id = an_id
    pair.tag_octets = tag_octets
    pair.chunk = NULL
    pair.octets = 0
    if tag_octets <= TAG_CAPACITY:
        memcpy(pair.tag, tag, tag_octets)
    else:
        outside = <uint8_t *>malloc(tag_octets)
        if outside == NULL:
            raise MemoryError
        memcpy(outside, tag, tag_octets)
        (<uint8_t **>pair.tag)[0] = outside
    return 0


cdef inline void lay(
    Express kernel, Pair *pair, Chunk *chunk, uint32_t offset, uint32_t octets
) noexcept:
    """Records where a pair's payload lies."""
    pair.chunk = chunk
    pair.offset = offset
    pair.octets = octets
    chunk.pairs += 1
    chunk.live += octets


cdef inline void free_pair(Express kernel, uint32_t index) noexcept:
    cdef Pair *pair = pair_at(kernel, index)
    cdef Parts *parts
    cdef uint32_t each
    if pair.flags & PARTED:
        parts = <Parts *>pair.chunk
        for each in range(parts.count):
            let_go(parts.part[each].chunk, parts.part[each].octets)
        free(parts)
    elif pair.chunk != NULL:
        let_go(pair.chunk, pair.octets)
    if pair.tag_octets > TAG_CAPACITY:
        free((<uint8_t **>pair.tag)[0])
    pair.flags = 0
    pair.out_id = kernel.free_pairs
    kernel.free_pairs = index


cdef inline int64_t place_of(Pair *pair, LinkState link) noexcept:
    """Returns a delivery's position among all of its incoming link, the first being 1."""
    cdef int64_t latest = link.carried + link.passed
    return latest - <uint32_t>(<uint32_t>latest - pair.place)


cdef bytes tag_bytes(Pair *pair):
    return PyBytes_FromStringAndSize(<const char *>tag_of(pair), pair.tag_octets)


cdef bytes payload_bytes(Pair *pair):
    cdef bytes payload = PyBytes_FromStringAndSize(NULL, pair.octets)
    copy_payload(pair, 0, pair.octets, <uint8_t *>PyBytes_AS_STRING(payload))
    return payload


cdef object received(Pair *pair, bint settled, bint settles_second):
    """Creates the record of a delivery as the general path would have."""
    tag = tag_bytes(pair)
    payload = payload_bytes(pair)
    delivery = ReceivedDelivery(
        pair.in_id, tag, payload, settled=settled, settles_second=settles_second
    )
    fill(delivery, is_anonymous=False, reads_annotations=False)
    return delivery
