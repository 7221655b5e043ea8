# Runs: consecutive transfers of one link, of one shape, that one link is sent.
#
# A sender encodes the heads of its transfers alike: they differ in delivery-id and tag. The *shape*
# of a transfer that was handled in full is kept with its connection, and a transfer of that shape
# is recognized by comparing words, also in a later turn, as long as its link is attached. What all transfers of a run have in common is looked at
# once, before it, and what they count is added once, after it. A transfer for which any of this may
# not hold ends the run, and is handled in full (``take_transfer``), which stays the rule.

cdef enum:
    TAIL_OCTETS = 8           # between tag and payload; compared as one word
    LEAST_FRAME = 48          # smallest transfer of which a shape is kept
    KNOWN_LINKS = 8

cdef struct Known:
    PyObject *link            # borrowed for the call; NULL: none
    uint32_t handle

cdef struct Shape:            # of a transfer of ``ConnectionState.shaped``
    uint64_t first            # octets 4 to 11 of the frame
    uint64_t second           # the 8 octets before the delivery-id
    uint64_t tail             # the octets between tag and payload, of which mask tells the number
    uint64_t mask
    uint32_t id_at            # of the delivery-id in the frame
    uint32_t tag_octets
    uint32_t payload_at
    uint32_t least_octets     # of a frame, so that all words lie in it


cdef inline void forget_links(Known *known) noexcept nogil:
    """Forgets the links of a session, which are known by the handle's last bits."""
    cdef uint32_t each
    for each in range(KNOWN_LINKS):
        known[each].link = NULL


cdef inline PyObject *link_by(SessionState session, Known *links, uint32_t handle) except? NULL:
    """Returns the link of the peer's handle, borrowed; NULL: none of the lane's kind."""
    cdef Known *known = &links[handle % KNOWN_LINKS]
    cdef PyObject *found
    if known.link != NULL and known.handle == handle:
        return known.link
    found = PyDict_GetItemWithError(session.links, handle)
    if found == NULL or not isinstance(<object>found, LinkState):
        return NULL
    known.link = found
    known.handle = handle
    return found


cdef inline bint is_shaped(Express kernel, ConnectionState connection) noexcept:
    """Returns whether the shape that a connection keeps is that of a link it still has."""
    cdef LinkState link = connection.shaped
    if link is None:
        return False
    if link.is_open and link.session.is_open and link.session.express is kernel:
        return True
    connection.shaped = None
    return False


cdef inline bint learn(
    ConnectionState connection, LinkState link, const uint8_t *frame, Py_ssize_t size
) except -1:
    """Keeps the shape of a complete, unsettled transfer that has just been handled (§2.7.5)."""
    cdef Shape *shape
    cdef uint32_t at
    cdef uint32_t tail_at
    cdef uint32_t tail_octets
    cdef uint32_t field = 3
    connection.shaped = None
    if size < LEAST_FRAME or frame[11] != 0xC0:
        return False
    if connection.shape == NULL:
        connection.shape = <Shape *>malloc(sizeof(Shape))
        if connection.shape == NULL:
            raise MemoryError
    shape = connection.shape
    at = 15 if frame[14] == 0x43 else 16 if frame[14] == 0x52 else 19
    if frame[at] != 0x70 or (at == 19 and frame[14] != 0x70) or frame[at + 5] != 0xA0:
        return False
    shape.id_at = at + 1
    shape.tag_octets = frame[at + 6]
    tail_at = at + 7 + shape.tag_octets
    shape.payload_at = 13 + frame[12]
    if shape.tag_octets > TAG_CAPACITY or not tail_at < shape.payload_at <= tail_at + TAIL_OCTETS:
        return False
    tail_octets = shape.payload_at - tail_at
    shape.least_octets = max(tail_at + TAIL_OCTETS, shape.id_at + 6 + TAG_CAPACITY)
    if size < shape.least_octets or frame[13] != 3 + tail_octets or frame[tail_at] != 0x43:
        return False
    for at in range(tail_at + 1, shape.payload_at):  # settled, more, ...: false or absent
        field += 1
        if frame[at] != 0x40 and (frame[at] != 0x42 or field == 6 or field == 7):
            return False
    shape.mask = first_octets(tail_octets)
    shape.first = load64(frame + 4)
    shape.second = load64(frame + shape.id_at - 8)
    shape.tail = load64(frame + tail_at) & shape.mask
    connection.shaped = link
    return True


cdef inline bint has_shape(const Shape *shape, const uint8_t *frame, Py_ssize_t size) noexcept nogil:
    """Returns whether a frame of ``size`` octets differs in delivery-id, tag and payload only."""
    cdef const uint8_t *tag = frame + shape.id_at + 6
    return (
        size >= shape.least_octets
        and load64(frame + 4) == shape.first
        and load64(frame + shape.id_at - 8) == shape.second
        and frame[shape.id_at + 4] == 0xA0
        and frame[shape.id_at + 5] == shape.tag_octets
        and (load64(tag + shape.tag_octets) & shape.mask) == shape.tail
    )


cdef struct Run:
    const uint8_t *data
    Py_ssize_t position
    Py_ssize_t end
    Py_ssize_t largest        # frame
    uint32_t most             # deliveries
    uint32_t most_octets      # of one of them
    uint32_t count
    int64_t octets


cdef Py_ssize_t take_run(
    Express kernel, LinkState link, const Shape *shape, Run *run
) except -1:
    """Sends on transfers of a link's shape from a position; returns the first that it leaves."""
    cdef Lane lane = link.lane
    cdef LinkState out
    if (
        lane is None
        or lane.waiting
        or lane.far.count
        or lane.near.count != 1
        or not lane.takes_unsettled
        or not link.is_open
        or link.in_progress
        or link.gathered != NONE
        or link.sender_settle_mode == 1
        or link.session.expected < 0
    ):
        return run.position
    out = <LinkState>lane.near.entries[0].link
    if (
        not out.is_open
        or out.in_progress
        or out.session.output.congested
    ):
        return run.position
    measure_run(link, out, run)
    if not run.most:
        return run.position
    try:
        send_run(kernel, shape, link, out, run)
    finally:
        if run.count:
            count_run(kernel, link, out, run)
    return run.position


cdef inline void measure_run(LinkState link, LinkState out, Run *run) noexcept:
    """Finds how many deliveries, and how large ones, may be sent before anything changes."""
    cdef int64_t most = min(link.credit, link.session.incoming_window)
    cdef int64_t octets = min(link.lane.limit_octets, out.frame_octets)
    most = min(most, min(out.credit, out.session.remote_incoming_window))
    if 0 < link.max_message_octets < octets:
        octets = link.max_message_octets
    octets = min(octets, <int64_t>(LEAST_REFERENCE - 1))
    run.most = <uint32_t>max(<int64_t>0, min(most, <int64_t>0x7FFFFFFF))
    run.most_octets = <uint32_t>max(<int64_t>0, octets)
    run.count = 0
    run.octets = 0


cdef int send_run(
    Express kernel, const Shape *shape, LinkState link, LinkState out, Run *run
) except -1:
    cdef SessionState session = link.session
    cdef SessionState to = out.session
    cdef Output output = to.output
    cdef uint32_t an_id = <uint32_t>session.expected
    cdef uint32_t out_id = to.next_outgoing_delivery
    cdef uint32_t place = <uint32_t>(link.carried + link.passed)
    cdef uint8_t flags = (LIVE | SECOND) if link.settles_second else LIVE
    cdef uint32_t octets
    cdef uint32_t number
    cdef uint32_t index
    cdef Py_ssize_t size
    cdef const uint8_t *frame
    cdef const uint8_t *payload
    cdef uint8_t *begin
    cdef uint8_t *at
    cdef Pair *pair
    while run.count < run.most and run.end - run.position >= LEAST_FRAME:
        frame = run.data + run.position
        size = load32(frame)
        if size > run.end - run.position or size > run.largest or not has_shape(shape, frame, size):
            break
        payload = frame + shape.payload_at
        octets = <uint32_t>(size - shape.payload_at)
        if (
            size < shape.payload_at
            or octets > run.most_octets
            or load32(frame + shape.id_at) != an_id
            or not needs_no_look(payload, frame + size)
        ):
            break
        index = new_pair(kernel)
        pair = pair_at(kernel, index)
        begin = output.reserve(TRANSFER_OCTETS + HEAD_OCTETS + octets)
        number = LANE_NUMBERS + ((out.next_number + run.count) & 0x7FFFFFFF)
        at = write_transfer(begin, out, out_id, number, False, False)
        memcpy(at, payload, octets)
        store32(begin, <uint32_t>(at + octets - begin))
        place += 1
        pair.flags = flags
        pair.link = link.slot
        pair.out = out.slot
        pair.in_id = an_id
        pair.out_id = out_id
        pair.number = number
        pair.place = place
        pair.tag_octets = shape.tag_octets
        memcpy(pair.tag, frame + shape.id_at + 6, TAG_CAPACITY)
        put(kernel, &session.incoming_ring, session.spilled_incoming, True, an_id, index)
        put(kernel, &to.outgoing_ring, to.spilled_outgoing, False, out_id, index)
        output.written(<uint32_t>(at + octets - begin))
        lay(kernel, pair, output.pen, <uint32_t>(at - output.pen.data), octets)
        run.count += 1
        run.octets += octets
        run.position += size
        an_id += 1
        out_id += 1
        if output.congested:
            break
    return 0


cdef int count_run(Express kernel, LinkState link, LinkState out, const Run *run) except -1:
    """Counts the deliveries of a run, as ``forward`` and ``send`` do for one."""
    cdef SessionState session = link.session
    cdef Lane lane = link.lane
    cdef int64_t count = run.count
    session.expected = <uint32_t>(session.expected + count)
    session.next_incoming_id += run.count
    session.incoming_window -= count
    session.remote_outgoing_window = max(<int64_t>0, session.remote_outgoing_window - count)
    weigh(session, count, run.octets)
    link.delivery_count += run.count
    link.credit -= count
    link.allowance -= count
    link.carried += count
    link.carried_octets += run.octets
    link.unsettled += count
    keep(kernel, link, run.octets)
    lane.touch(link)
    session.connection.partner = out.slot
    session = out.session
    session.next_outgoing_id += run.count
    session.next_outgoing_delivery += run.count
    session.remote_incoming_window -= count
    out.next_number = (out.next_number + run.count) & 0x7FFFFFFF
    out.delivery_count += run.count
    out.credit -= count
    out.carried += count
    out.carried_octets += run.octets
    out.unsettled += count
    lane.turn += <uint64_t>count
    out.last_used = lane.turn
    rank(out)
    return mark_dirty(kernel, session.connection)
