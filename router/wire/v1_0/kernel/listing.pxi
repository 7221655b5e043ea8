# Lists of what is on a lane, for people; nothing is changed.

cdef list list_lane(Express kernel, Lane lane, int64_t most):
    """Lists pairs of a lane: sent ones, then those that only their senders hold, then queued ones."""
    cdef LinkState link
    cdef uint32_t index
    cdef uint32_t left
    cdef list found = []
    cdef list sessions = []
    for link in lane.outgoing:
        if link.session not in sessions:
            sessions.append(link.session)
    for session in sessions:
        list_session(kernel, lane, session, False, most, found)
    sessions = []
    for link in lane.incoming:
        if link.settles_second and link.session not in sessions:
            sessions.append(link.session)
    for session in sessions:
        list_session(kernel, lane, session, True, most, found)
    for link in lane.incoming:
        index = link.first_queued
        for left in range(link.queued):
            if len(found) >= most:
                return found
            found.append(shown(link, pair_at(kernel, index), None))
            index = pair_at(kernel, index).out_id
    return found


cdef int list_session(
    Express kernel, Lane lane, SessionState session, bint is_incoming, int64_t most, list found
) except -1:
    """Adds the pairs that a session has sent; or, incoming, those that wait for their sender."""
    cdef Pair *pair
    cdef LinkState link
    cdef uint32_t count
    cdef uint32_t each
    if session.express is None:
        return 0
    if is_incoming:
        count = find_all(kernel, &session.incoming_ring, session.spilled_incoming)
    else:
        count = find_all(kernel, &session.outgoing_ring, session.spilled_outgoing)
    for each in range(count):
        if len(found) >= most:
            return 0
        pair = pair_at(kernel, kernel.found[each])
        if is_incoming and not pair.flags & DONE:
            continue
        link = <LinkState>kernel.slots[pair.link]
        if link is not None and link.lane is lane:
            found.append(shown(link, pair, kernel.slots[pair.out]))
    return 0


cdef object shown(LinkState link, Pair *pair, LinkState out):
    return LaneDelivery(
        link.link,
        tag_bytes(pair),
        pair.octets,
        place_of(pair, link),
        (pair.flags & SETTLED) != 0,
        None if out is None else out.link,
        (pair.flags & (NOTIFIED | DONE)) != 0,
    )


cdef int64_t count_unsettled(Express kernel, LinkState link) except -1:
    """Counts what waits on a link and its sender has not settled."""
    cdef uint32_t index = link.first_queued
    cdef uint32_t left
    cdef int64_t count = 0
    for left in range(link.queued):
        count += not pair_at(kernel, index).flags & SETTLED
        index = pair_at(kernel, index).out_id
    return count
