# Kept payloads: where they are stored, and how they are compacted.

cdef Chunk *store(Express kernel, const uint8_t *payload, uint32_t octets) except NULL:
    """Copies octets to the end of the keeper, and returns its chunk."""
    cdef Chunk *keeper = kernel.keeper
    if keeper == NULL or keeper.capacity - keeper.fill < octets:
        keeper = new_chunk(max(octets, <uint32_t>KEEPER_CHUNK))
        keeper.is_kept = 1
        if kernel.keeper != NULL:
            kernel.keeper.is_kept = 0
            if kernel.keeper.pairs == 0 and kernel.keeper.segments == 0:
                free_chunk(kernel.keeper)
        kernel.keeper = keeper
    memcpy(keeper.data + keeper.fill, payload, octets)
    keeper.fill += octets
    return keeper


cdef inline bint is_referable(Express kernel, const uint8_t *payload, uint32_t octets) noexcept:
    """Returns whether octets may stay in the chunk where they were received."""
    cdef Chunk *inbox = kernel.inbox
    if octets < LEAST_REFERENCE or inbox == NULL or inbox.fill * 4 < inbox.capacity:
        return False
    return <size_t>payload - <size_t>inbox.data < inbox.capacity


cdef Chunk *place(
    Express kernel, const uint8_t *payload, uint32_t octets, uint32_t *offset
) except NULL:
    """Keeps octets: in the inbox, if they are many and lie there, else in the keeper."""
    cdef Chunk *chunk = kernel.inbox
    if is_referable(kernel, payload, octets):
        offset[0] = <uint32_t>(payload - chunk.data)
    else:
        chunk = store(kernel, payload, octets)
        offset[0] = chunk.fill - octets
    return chunk


cdef int add_part(Express kernel, Pair *pair, const uint8_t *payload, uint32_t octets) except -1:
    """Keeps a further part of a payload."""
    cdef Parts *parts = <Parts *>pair.chunk
    cdef Parts *grown
    cdef Part *last
    cdef uint32_t capacity
    cdef uint32_t offset
    cdef Chunk *chunk
    if parts == NULL or parts.count == parts.capacity:
        capacity = 4 if parts == NULL else parts.capacity * 2
        grown = <Parts *>realloc(parts, sizeof(Parts) + capacity * sizeof(Part))
        if grown == NULL:
            raise MemoryError
        if parts == NULL:
            grown.count = 0
            pair.flags |= PARTED
            pair.octets = 0
        grown.capacity = capacity
        parts = grown
        pair.chunk = <Chunk *>parts
    chunk = place(kernel, payload, octets, &offset)
    if parts.count:
        last = &parts.part[parts.count - 1]
        if last.chunk == chunk and last.offset + last.octets == offset:
            last.octets += octets
            pair.octets += octets
            chunk.live += octets
            return 0
    last = &parts.part[parts.count]
    last.chunk = chunk
    last.offset = offset
    last.octets = octets
    parts.count += 1
    pair.octets += octets
    chunk.pairs += 1
    chunk.live += octets
    return 0


cdef int compact(Express kernel) except -1:
    """Moves payloads out of sparse chunks, so that a few do not pin many."""
    cdef uint32_t index
    for index in range(kernel.segment_count * SLAB):
        if pair_at(kernel, index).flags & LIVE:
            move(kernel, pair_at(kernel, index))
    kernel.compact_at = max(<uint64_t>FIRST_COMPACTION, chunk_octets * 2)
    return 0


cdef int move(Express kernel, Pair *pair) except -1:
    """Moves a pair's payload out of sparse chunks."""
    cdef Parts *parts = <Parts *>pair.chunk
    cdef Chunk *chunk = pair.chunk
    cdef uint32_t each
    cdef uint32_t octets
    if not pair.flags & PARTED:
        if is_sparse(chunk):
            store(kernel, chunk.data + pair.offset, pair.octets)
            lay(kernel, pair, kernel.keeper, kernel.keeper.fill - pair.octets, pair.octets)
            let_go(chunk, pair.octets)
        return 0
    for each in range(parts.count):
        chunk = parts.part[each].chunk
        octets = parts.part[each].octets
        if is_sparse(chunk):
            store(kernel, chunk.data + parts.part[each].offset, octets)
            kernel.keeper.pairs += 1
            kernel.keeper.live += octets
            parts.part[each].chunk = kernel.keeper
            parts.part[each].offset = kernel.keeper.fill - octets
            let_go(chunk, octets)
    return 0


cdef inline bint is_sparse(Chunk *chunk) noexcept:
    """Returns whether an idle chunk holds little that is needed."""
    if chunk == NULL or chunk.output != NULL or chunk.segments or chunk.is_kept:
        return False
    return chunk.live * <uint64_t>4 < chunk.capacity


cdef int refer_payload(Pair *pair, uint32_t offset, uint32_t octets, Output output) except -1:
    """Adds a piece of a kept payload to an output without copying it."""
    cdef Parts *parts = <Parts *>pair.chunk
    cdef uint32_t index = 0
    cdef uint32_t piece
    if not pair.flags & PARTED:
        return output.refer(pair.chunk, pair.offset + offset, octets)
    while octets:
        if offset >= parts.part[index].octets:
            offset -= parts.part[index].octets
        else:
            piece = min(octets, parts.part[index].octets - offset)
            output.refer(parts.part[index].chunk, parts.part[index].offset + offset, piece)
            octets -= piece
            offset = 0
        index += 1
    return 0
