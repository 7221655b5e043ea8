# Dispositions (§2.7.6): received, and combined into ranges at the end of a turn.

cdef struct Saying:
    uint32_t *ranges          # first, last, first, last ...
    uint32_t used
    uint32_t capacity

cdef enum:
    TO_SENDER_SETTLED = 0
    TO_SENDER_ACCEPTED = 1
    TO_RECEIVER_SETTLED = 2
    KINDS = 3
    PAIRS_AHEAD = 6           # which the processor fetches before they are needed


cdef int append_range(Saying *saying, uint32_t first, uint32_t last) except -1:
    cdef uint32_t *grown
    if saying.used + 2 > saying.capacity:
        grown = <uint32_t *>realloc(saying.ranges, (saying.capacity * 2 + 16) * sizeof(uint32_t))
        if grown == NULL:
            raise MemoryError
        saying.ranges = grown
        saying.capacity = saying.capacity * 2 + 16
    saying.ranges[saying.used] = first
    saying.ranges[saying.used + 1] = last
    saying.used += 2
    return 0


cdef uint32_t sort_base


cdef int compare_ranges(const void *left, const void *right) noexcept nogil:
    cdef uint32_t one = (<const uint32_t *>left)[0] - sort_base
    cdef uint32_t other = (<const uint32_t *>right)[0] - sort_base
    return (one > other) - (one < other)


cdef bint take_disposition(
    Express kernel, SessionState session, Reader *reader, uint32_t count
) except -1:
    """Handles accepted, and a sender's settling, of deliveries of the lane (§2.7.6)."""
    cdef bint is_receiver
    cdef bint settled = False
    cdef bint is_accepted = False
    cdef uint32_t first
    cdef uint32_t last
    cdef Py_ssize_t left
    if not 2 <= count <= 6 or reader.at >= reader.end:
        return False
    if reader.at[0] != 0x41 and reader.at[0] != 0x42:
        return False
    is_receiver = reader.at[0] == 0x41
    reader.at += 1
    first = last = read_uint(reader)
    if count > 2 and not skip_null(reader):
        last = read_uint(reader)
    if count > 3:
        settled = read_flag(reader)
    if count > 4 and not skip_null(reader):
        left = reader.end - reader.at
        if left < 4 or reader.at[0] != 0 or reader.at[1] != 0x53 or reader.at[2] != 0x24:
            return False
        if reader.at[3] == 0x45:
            reader.at += 4
        elif left >= 6 and reader.at[3] == 0xC0 and reader.at[4] == 1 and reader.at[5] == 0:
            reader.at += 6
        else:
            return False
        is_accepted = True
    if count > 5:
        read_flag(reader)
    if reader.is_bad or reader.at != reader.end or <uint32_t>(last - first) >= HALF:
        return False
    if is_receiver:
        return is_accepted and take_outcome(kernel, session, first, last, settled)
    return settled and take_settling(kernel, session, first, last)


cdef bint take_outcome(
    Express kernel, SessionState session, uint32_t first, uint32_t last, bint settled
) except -1:
    """Handles accepted from a receiver; False if it may concern more than the lane."""
    cdef uint32_t count = find_pairs(
        kernel, &session.outgoing_ring, session.spilled_outgoing, first, last
    )
    cdef bint is_mixed = count <= <uint32_t>(last - first) and len(session.outgoing) > 0
    cdef uint32_t each = 0
    cdef uint32_t index
    cdef Pair *pair
    cdef LinkState link
    cdef LinkState out
    if is_mixed:
        for each in range(count):
            if pair_at(kernel, kernel.found[each]).flags & SECOND:
                return False
    each = 0
    while each < count:
        index = kernel.found[each]
        pair = pair_at(kernel, index)
        if settled and pair.flags == LIVE:
            each = end_run(kernel, session, each, count)
            continue
        each += 1
        link = <LinkState>kernel.slots[pair.link]
        if not pair.flags & SECOND:
            if not pair.flags & SETTLED:
                say(kernel, link.session, TO_SENDER_SETTLED, pair.in_id)
                link.accepted += 1
            if not settled:
                say(kernel, session, TO_RECEIVER_SETTLED, pair.out_id)
            clear(kernel, &session.outgoing_ring, session.spilled_outgoing, pair.out_id, index)
            out = <LinkState>kernel.slots[pair.out]
            out.unsettled -= 1
            rank(out)
            out.accepted += 1
            link.lane.touch(link)
            drop(kernel, link, index)
            continue
        out = <LinkState>kernel.slots[pair.out]
        if not pair.flags & NOTIFIED:
            pair.flags |= NOTIFIED
            out.accepted += 1
            link.accepted += 1
            say(kernel, link.session, TO_SENDER_ACCEPTED, pair.in_id)
        if settled:
            pair.flags |= DONE
            clear(kernel, &session.outgoing_ring, session.spilled_outgoing, pair.out_id, index)
            out.unsettled -= 1
            rank(out)
            out.answered += 1
    return not is_mixed


cdef uint32_t end_run(
    Express kernel, SessionState session, uint32_t each, uint32_t count
) except? 0xFFFFFFFF:
    """Forgets accepted deliveries that two links have in common; returns the first of others."""
    cdef uint32_t index = kernel.found[each]
    cdef Pair *pair = pair_at(kernel, index)
    cdef uint32_t link_slot = pair.link
    cdef uint32_t out_slot = pair.out
    cdef LinkState link = <LinkState>kernel.slots[link_slot]
    cdef LinkState out = <LinkState>kernel.slots[out_slot]
    cdef SessionState source = link.session
    cdef uint32_t begin = each
    cdef uint32_t first = pair.in_id
    cdef uint32_t last = first - 1
    cdef int64_t octets = 0
    while each < count:
        index = kernel.found[each]
        pair = pair_at(kernel, index)
        if each + PAIRS_AHEAD < count:
            fetch_ahead(pair_at(kernel, kernel.found[each + PAIRS_AHEAD]))
        if pair.flags != LIVE or pair.link != link_slot or pair.out != out_slot:
            break
        if pair.in_id != <uint32_t>(last + 1):
            say_range(kernel, source, TO_SENDER_SETTLED, first, last)
            first = pair.in_id
        last = pair.in_id
        octets += pair.octets
        clear(kernel, &session.outgoing_ring, session.spilled_outgoing, pair.out_id, index)
        clear(kernel, &source.incoming_ring, source.spilled_incoming, last, index)
        free_pair(kernel, index)
        each += 1
    say_range(kernel, source, TO_SENDER_SETTLED, first, last)
    session.connection.partner = link_slot
    link.accepted += each - begin
    link.unsettled -= each - begin
    keep(kernel, link, -octets)
    out.accepted += each - begin
    out.unsettled -= each - begin
    rank(out)
    link.lane.touch(link)
    return each


cdef bint take_settling(
    Express kernel, SessionState session, uint32_t first, uint32_t last
) except -1:
    """Handles a sender's settling of deliveries whose outcome it has received.

    False if it settles more than these, which is left to the engine and the core.
    """
    cdef uint32_t count = find_pairs(
        kernel, &session.incoming_ring, session.spilled_incoming, first, last
    )
    cdef uint32_t each
    cdef uint32_t index
    cdef Pair *pair
    cdef LinkState out
    if count <= <uint32_t>(last - first):
        if len(session.incoming) or session.gathering:
            return False
        for out in session.links.values():
            if is_queued(session, out, first, last):
                return False
    for each in range(count):
        if not pair_at(kernel, kernel.found[each]).flags & NOTIFIED:
            return False
    for each in range(count):
        index = kernel.found[each]
        pair = pair_at(kernel, index)
        if not pair.flags & DONE:
            out = <LinkState>kernel.slots[pair.out]
            say(kernel, out.session, TO_RECEIVER_SETTLED, pair.out_id)
            clear(
                kernel, &out.session.outgoing_ring, out.session.spilled_outgoing, pair.out_id, index
            )
            out.unsettled -= 1
            rank(out)
        drop(kernel, <LinkState>kernel.slots[pair.link], index)
    return True


cdef inline int drop(Express kernel, LinkState link, uint32_t index) except -1:
    """Forgets a delivery on its incoming side, and altogether."""
    cdef Pair *pair = pair_at(kernel, index)
    cdef LinkState out
    clear(kernel, &link.session.incoming_ring, link.session.spilled_incoming, pair.in_id, index)
    if not pair.flags & SETTLED:
        link.unsettled -= 1
    keep(kernel, link, -<int64_t>pair.octets)
    if pair.flags & DONE:
        out = <LinkState>kernel.slots[pair.out]
        out.answered -= 1
        free_slot(kernel, out)
    free_pair(kernel, index)
    return 0


cdef inline void keep(Express kernel, LinkState link, int64_t octets) noexcept:
    """Adds kept payload to the counters; negative: subtracts it."""
    kernel.kept_octets += octets
    link.kept_octets += octets
    link.session.connection.kept_octets += octets
    if octets < 0:
        kernel.freed_octets -= octets


cdef inline int say(Express kernel, SessionState session, uint32_t kind, uint32_t an_id) except -1:
    """Gathers a disposition for the end of the turn, joined with its neighbors."""
    return say_range(kernel, session, kind, an_id, an_id)


cdef inline int say_range(
    Express kernel, SessionState session, uint32_t kind, uint32_t first, uint32_t last
) except -1:
    cdef Saying *saying = &session.sayings[kind]
    if session.notes is not None:
        if not session.unnoted:
            mark_dirty(kernel, session.connection)
        session.unnoted += <uint32_t>(last - first) + 1
    if saying.used and <uint32_t>(saying.ranges[saying.used - 1] + 1) == first:
        saying.ranges[saying.used - 1] = last
        return 0
    append_range(saying, first, last)
    if not session.is_speaking:
        session.is_speaking = True
        kernel.speaking.append(session)
    return 0


cdef int write_disposition(
    Express kernel, SessionState session, uint32_t kind, uint32_t first, uint32_t last
) except -1:
    cdef uint8_t *frame
    cdef uint8_t *at
    if not session.is_open:
        return 0
    if session.notes is not None:
        return note_outcome(kernel, session, kind, first, last)
    frame = session.output.reserve(64)
    at = write_frame_head(frame, session.channel, 0x15)
    at[0] = 0x42 if kind == TO_RECEIVER_SETTLED else 0x41
    at = write_uint(at + 1, first)
    if first == last:
        at[0] = 0x40
        at += 1
    else:
        at = write_uint(at, last)
    at[0] = 0x40 if kind == TO_SENDER_ACCEPTED else 0x41
    at[1] = 0
    at[2] = 0x53
    at[3] = 0x24
    at[4] = 0x45
    session.output.written(write_frame_sizes(frame, at + 5, 5))
    mark_dirty(kernel, session.connection)
    return 0
