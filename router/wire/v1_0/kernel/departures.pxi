# Outgoing transfers, at once or from a queue.

cdef int queue(
    Express kernel,
    Lane lane,
    LinkState link,
    uint32_t an_id,
    const uint8_t *tag,
    uint32_t tag_octets,
    const uint8_t *payload,
    uint32_t octets,
    bint settled,
) except -1:
    """Keeps a delivery until a receiver has credit."""
    cdef uint32_t index = new_pair(kernel)
    cdef Pair *pair = pair_at(kernel, index)
    cdef uint32_t piece
    cdef uint32_t offset
    cdef Chunk *chunk
    fill_pair(kernel, pair, link, an_id, tag, tag_octets)
    pair.flags |= QUEUED
    if settled:
        pair.flags = (pair.flags | SETTLED) & ~SECOND
    if octets <= LARGEST_FRAME:
        chunk = place(kernel, payload, octets, &offset)
        lay(kernel, pair, chunk, offset, octets)
    else:
        while octets:
            piece = min(octets, <uint32_t>LARGEST_FRAME)
            add_part(kernel, pair, payload, piece)
            payload += piece
            octets -= piece
    keep(kernel, link, pair.octets)
    return enqueue(kernel, lane, link, index)


cdef int enqueue(Express kernel, Lane lane, LinkState link, uint32_t index) except -1:
    """Appends a kept delivery to its link's queue."""
    pair_at(kernel, index).out_id = NONE
    if link.queued == 0:
        link.first_queued = index
        lane.wait(link)
    else:
        pair_at(kernel, link.last_queued).out_id = index
    link.last_queued = index
    link.queued += 1
    return 0


cdef uint32_t take_queued(Express kernel, LinkState link) noexcept:
    """Removes the first delivery of a link's queue."""
    cdef uint32_t index = link.first_queued
    link.first_queued = pair_at(kernel, index).out_id
    link.queued -= 1
    return index


cdef int send_queued(Express kernel, Lane lane, LinkState link, int64_t share) except -1:
    """Sends up to ``share`` deliveries of a link's queue."""
    cdef LinkState out
    while link.queued and share:
        out = choose(lane, link, pair_at(kernel, link.first_queued).octets)
        if out is None:
            return 0
        send_pair(kernel, lane, link, out, take_queued(kernel, link))
        share -= 1
    return 0


cdef inline int send(
    Express kernel,
    Lane lane,
    LinkState link,
    LinkState out,
    uint32_t an_id,
    const uint8_t *tag,
    uint32_t tag_octets,
    const uint8_t *payload,
    uint32_t octets,
    bint settled,
) except -1:
    """Encodes the single transfer of a delivery that has just arrived."""
    cdef SessionState session = out.session
    cdef Output output = session.output
    cdef uint8_t *frame = output.reserve(TRANSFER_OCTETS + HEAD_OCTETS + octets)
    cdef bint is_over = settled and out.settles
    cdef uint8_t *at = write_transfer(
        frame, out, session.next_outgoing_delivery, LANE_NUMBERS + out.next_number, is_over, False
    )
    cdef uint32_t index
    cdef Pair *pair
    memcpy(at, payload, octets)
    store32(frame, <uint32_t>(at + octets - frame))
    output.written(<uint32_t>(at + octets - frame))
    session.next_outgoing_id += 1
    session.remote_incoming_window -= 1
    if is_over:
        out.settled += 1
    else:
        index = new_pair(kernel)
        pair = pair_at(kernel, index)
        fill_pair(kernel, pair, link, an_id, tag, tag_octets)
        if settled:
            pair.flags = (pair.flags | SETTLED) & ~SECOND
        lay(kernel, pair, output.pen, <uint32_t>(at - output.pen.data), octets)
        remember(kernel, link, out, index)
    count_out(kernel, lane, out, octets)
    return 0


cdef int send_pair(
    Express kernel, Lane lane, LinkState link, LinkState out, uint32_t index
) except -1:
    """Encodes a kept delivery in as many transfers as it needs."""
    cdef Pair *pair = pair_at(kernel, index)
    cdef SessionState session = out.session
    cdef Output output = session.output
    cdef bint is_over = (pair.flags & SETTLED) != 0 and out.settles
    cdef uint32_t octets = pair.octets
    cdef uint32_t done = 0
    cdef uint32_t part
    cdef bint more
    cdef bint is_copied
    cdef uint8_t *frame
    cdef uint8_t *at
    while True:
        part = min(octets - done, <uint32_t>out.frame_octets)
        more = done + part < octets
        is_copied = part < LEAST_REFERENCE
        frame = output.reserve(TRANSFER_OCTETS + HEAD_OCTETS + (part if is_copied else 0))
        if done:
            at = write_part_head(frame, session.channel, out.handle, more)
        else:
            at = write_transfer(
                frame,
                out,
                session.next_outgoing_delivery,
                LANE_NUMBERS + out.next_number,
                is_over,
                more,
            )
        store32(frame, <uint32_t>(at - frame) + part)
        if is_copied:
            copy_payload(pair, done, part, at)
            at += part
        output.written(<uint32_t>(at - frame))
        if not is_copied:
            refer_payload(pair, done, part, output)
        session.next_outgoing_id += 1
        session.remote_incoming_window -= 1
        done += part
        if not more:
            break
    if is_over:
        out.settled += 1
        keep(kernel, link, -<int64_t>octets)
        free_pair(kernel, index)
    else:
        pair.flags &= ~QUEUED
        remember(kernel, link, out, index)
    count_out(kernel, lane, out, octets)
    return 0


cdef inline uint8_t *write_transfer(
    uint8_t *frame, LinkState out, uint32_t out_id, uint32_t number, bint settled, bint more
) noexcept:
    """Encodes a delivery's first transfer except payload and size; ``number``: within the link.

    That it is not settled need not be said (§2.7.5), and is kept with its payload.
    """
    cdef uint8_t *at
    cdef uint8_t extra
    if out_id >= 256 and not more:
        memcpy(frame + 4, out.head, HEAD_OCTETS)
        at = frame + 4 + out.head_octets
        store32(at, out_id)
        at += 4
        if settled:
            frame[12] += 1
            frame[13] = 5
    else:
        at = write_frame_head(frame, out.session.channel, 0x14)
        at = write_uint(at, out.handle)
        at = write_uint(at, out_id)
        extra = 2 if more else 1 if settled else 0
        write_frame_sizes(frame, at + 7 + extra, 4 + extra)
    at[0] = 0xA0
    at[1] = 4
    store32(at + 2, number)
    at[6] = 0x43
    at += 7
    if settled or more:
        at[0] = 0x41 if settled else 0x42
        at += 1
    if more:
        at[0] = 0x41
        at += 1
    return at


cdef inline int remember(Express kernel, LinkState link, LinkState out, uint32_t index) except -1:
    """Enters an outgoing delivery into the rings."""
    cdef Pair *pair = pair_at(kernel, index)
    cdef SessionState session = out.session
    pair.out = out.slot
    pair.out_id = session.next_outgoing_delivery
    pair.number = LANE_NUMBERS + out.next_number
    put(kernel, &link.session.incoming_ring, link.session.spilled_incoming, True, pair.in_id, index)
    put(kernel, &session.outgoing_ring, session.spilled_outgoing, False, pair.out_id, index)
    if not pair.flags & SETTLED:
        link.unsettled += 1
    out.unsettled += 1
    return 0


cdef inline int count_out(Express kernel, Lane lane, LinkState out, uint32_t octets) except -1:
    """Counts an outgoing delivery."""
    cdef SessionState session = out.session
    session.next_outgoing_delivery += 1
    out.next_number = (out.next_number + 1) & 0x7FFFFFFF
    out.credit -= 1
    out.delivery_count += 1
    out.carried += 1
    out.carried_octets += octets
    lane.turn += 1
    out.last_used = lane.turn
    rank(out)
    if not session.connection.is_dirty:
        mark_dirty(kernel, session.connection)
    return 0


cdef inline int mark_dirty(Express kernel, ConnectionState connection) except -1:
    """Records that a connection has new output."""
    if not connection.is_dirty:
        connection.is_dirty = True
        kernel.dirty.append(connection)
    return 0
