# Flows (§2.7.4): credit and windows, received and granted.

cdef enum:
    SHARE = 8                 # of what is left of a budget, that one link may have (links.credit)
    RESERVE = 65536           # octets that a link may have in any case, unless the budget is small
    LOOKS = 8                 # binary logarithm of how often a draining budget is looked at

cdef bint take_flow(Express kernel, SessionState session, Reader *reader, uint32_t count) except -1:
    """Handles a flow that only renews window or credit (§2.7.4)."""
    cdef uint32_t fields[8]
    cdef bint is_given[8]
    cdef uint32_t field
    cdef uint32_t under_way
    cdef uint32_t behind
    cdef PyObject *found
    cdef LinkState link = None
    if not 4 <= count <= 11 or session.waiting or session.is_errant:
        return False
    for field in range(8):
        is_given[field] = False
        fields[field] = 0
    for field in range(min(count, 8)):
        if not skip_null(reader):
            fields[field] = read_uint(reader)
            is_given[field] = True
    for field in range(8, count):  # drain, echo, properties: absent, null or false
        if reader.at >= reader.end:
            return False
        if reader.at[0] != 0x40 and (reader.at[0] != 0x42 or field == 10):
            return False
        reader.at += 1
    if reader.is_bad or reader.at != reader.end:
        return False
    if not (is_given[0] and is_given[1] and is_given[2] and is_given[3]):
        return False
    under_way = session.next_outgoing_id - fields[0]
    if under_way >= HALF or fields[2] != session.next_incoming_id:
        return False
    if is_given[4]:
        found = PyDict_GetItemWithError(session.links, fields[4])
        if found == NULL or not isinstance(<object>found, LinkState):
            return False
        link = <LinkState>found
        if link.lane is None or not link.is_open or link.in_progress or not is_given[5]:
            return False
        behind = link.delivery_count - fields[5]
        if link.is_sender:
            if not fields[6] or behind >= HALF:  # 0: a receiver stops, the core is to know
                return False
            link.credit = link.granted = max(<int64_t>0, <int64_t>fields[6] - behind)
        elif behind:
            return False
    session.remote_incoming_window = max(<int64_t>0, <int64_t>fields[1] - under_way)
    session.remote_outgoing_window = fields[3]
    kernel.opened(session, link)
    return True


cdef int grant(Express kernel) except -1:
    """Renews credit and windows of which half has been used, once a turn."""
    cdef Lane lane
    if kernel.starved and has_freed(kernel):
        starved = kernel.starved
        kernel.starved = []
        kernel.starved_at = kernel.freed_octets
        for lane in starved:
            lane.is_starved = False
            lane.look_after_all()
    if kernel.touched:
        touched = kernel.touched
        kernel.touched = []
        for lane in touched:
            lane.is_touched = False
            grant_lane(kernel, lane)
    return 0


cdef inline bint has_freed(Express kernel) noexcept:
    """Returns whether enough was released to look again at links without credit.

    A link that keeps much is looked at in any case when its own deliveries are settled.
    """
    cdef int64_t least = min(kernel.octet_budget, kernel.connection_budget) >> LOOKS
    return kernel.freed_octets - kernel.starved_at > least


cdef inline bint is_over(Express kernel, LinkState link) noexcept:
    """Returns whether a link keeps too much to be granted more, by the rule of links.credit."""
    cdef int64_t left = kernel.connection_budget - link.session.connection.kept_octets
    if left <= 0:
        return True
    left = min(left, kernel.octet_budget - kernel.kept_octets - kernel.beside_octets)
    return link.kept_octets >= max(kernel.reserve_octets, SHARE * left)


cdef inline bint may_go_on(Express kernel, LinkState link) noexcept:
    """Returns whether the window of a link that is over may be renewed, for granted credit."""
    if kernel.connection_budget <= link.session.connection.kept_octets:
        return False
    if link.gathered != NONE:  # a delivery that has begun is settled only when it is complete
        return True
    return kernel.kept_octets + kernel.beside_octets < kernel.octet_budget


cdef inline int64_t low_part(SessionState session) noexcept:
    """Returns of how many parts of its credit a link has less than one left if that is low.

    Without a socket each grant costs its owner a run of its own, so these are few and large.
    """
    if session.notes is None:
        return 2
    return 4 if session.notes else 8


cdef int grant_lane(Express kernel, Lane lane) except -1:
    cdef LinkState link
    cdef SessionState session
    cdef int64_t width
    cdef int64_t used
    cdef bint is_low
    cdef bint can_send
    cdef bint can_send_near = False
    cdef bint can_send_far = False
    cdef list links = lane.touched
    if lane.is_measured or len(lane.incoming) == 1:
        links = lane.incoming
    lane.is_measured = False
    for link in lane.outgoing:
        if link.credit:
            if link.is_far:
                can_send_far = True
            else:
                can_send_near = True
    for link in links:
        width = min(lane.credit, lane.near_width if link.is_far else lane.width)
        can_send = can_send_near or (can_send_far and not link.is_far)
        link.is_touched = False
        if not link.is_open:
            continue
        session = link.session
        if link.in_progress and session.notes is not None:
            continue  # the core is about to be told of deliveries that take credit, too
        used = link.credit + link.queued
        is_low = used * low_part(session) < width
        if is_over(kernel, link):
            if not lane.is_starved:
                if not kernel.starved:
                    kernel.starved_at = kernel.freed_octets
                lane.is_starved = True
                kernel.starved.append(lane)
            if not may_go_on(kernel, link):
                continue
            can_send = False
        if not is_low and session.output.octets:  # this flow costs no write of its own
            is_low = used * 4 <= width * 3
        if can_send and used < width and is_low:
            link.credit = width - link.queued
            if link.allowance < link.credit:
                link.allowance = link.credit
            write_flow(kernel, session, link)
        elif session.incoming_window * 2 <= session.window and not session.is_held:
            write_flow(kernel, session, None)
    if lane.touched:
        lane.touched = []
    return 0


cdef inline int64_t renewed(SessionState session) noexcept:
    """Returns the window for a flow; see ``windows.renewed``."""
    if not session.is_held:
        session.window = session.window_frames
        if session.small_frames * 2 < NARROW_FRAMES:
            session.window = min(session.window, <int64_t>NARROW_FRAMES)
        session.incoming_window = max(session.incoming_window, session.window)
    return max(<int64_t>0, session.incoming_window - session.withheld)


cdef int write_flow(Express kernel, SessionState session, LinkState link) except -1:
    cdef uint8_t *frame
    cdef uint8_t *at
    cdef uint8_t count = 4
    cdef int64_t window = renewed(session)
    if not session.is_open:
        return 0
    if session.notes is not None:
        return note_credit(kernel, session, link)
    frame = session.output.reserve(64)
    at = write_frame_head(frame, session.channel, 0x13)
    at = write_uint(at, session.next_incoming_id)
    at = write_uint(at, <uint32_t>window)
    at = write_uint(at, session.next_outgoing_id)
    at = write_uint(at, <uint32_t>session.outgoing_window)
    if link is not None:
        at = write_uint(at, link.handle)
        at = write_uint(at, link.delivery_count)
        at = write_uint(at, <uint32_t>link.credit)
        count = 7
    session.output.written(write_frame_sizes(frame, at, count))
    mark_dirty(kernel, session.connection)
    return 0
