# Incoming transfers (§2.7.5), complete deliveries and parts.

cdef Py_ssize_t take_frames(
    Express kernel,
    ConnectionState connection,
    const uint8_t *data,
    Py_ssize_t position,
    Py_ssize_t end,
) except -1:
    cdef Py_ssize_t largest = connection.max_incoming_frame_octets
    cdef Py_ssize_t size
    cdef const uint8_t *frame
    cdef const uint8_t *list_end
    cdef uint32_t count
    cdef int channel = -1
    cdef SessionState session = None
    cdef PyObject *found
    cdef Reader reader
    cdef bint is_taken
    cdef Known known[KNOWN_LINKS]
    cdef Run run
    forget_links(known)
    run.data = data
    run.end = end
    run.largest = largest
    while end - position >= 12:
        frame = data + position
        size = load32(frame)
        if size > end - position or size < 12 or size > largest:
            break
        if is_shaped(kernel, connection) and has_shape(connection.shape, frame, size):
            run.position = position
            if take_run(kernel, connection.shaped, connection.shape, &run) != position:
                position = run.position
                continue
        if frame[4] != 2 or frame[5] != 0 or frame[8] != 0 or frame[9] != 0x53:
            break
        if (frame[6] << 8 | frame[7]) != channel:
            channel = frame[6] << 8 | frame[7]
            session = connection.latest
            if session is None or connection.latest_channel != channel or not session.is_open:
                found = PyDict_GetItemWithError(connection.sessions, channel)
                if found == NULL or not isinstance(<object>found, SessionState):
                    break
                session = connection.latest = <SessionState>found
                connection.latest_channel = <uint16_t>channel
            forget_links(known)
        if not session.is_open or session.express is not kernel:
            break
        is_taken = True
        if frame[11] == 0xC0 and size >= 14:
            list_end = frame + 13 + frame[12]
            count = frame[13]
            reader.at = frame + 14
        elif frame[11] == 0xD0 and size >= 20 and load32(frame + 12) <= size - 16:
            list_end = frame + 16 + load32(frame + 12)
            count = load32(frame + 16)
            reader.at = frame + 20
        else:
            is_taken = False
        if not is_taken or not reader.at <= list_end <= frame + size:
            if frame[10] == 0x14 and session.gathering:
                hand_over_all(kernel, session)
            break
        reader.end = list_end
        reader.is_bad = False
        if frame[10] == 0x14:
            is_taken = take_transfer(kernel, session, known, &reader, count, frame, size)
        elif list_end != frame + size:
            is_taken = False
        elif frame[10] == 0x15:
            is_taken = take_disposition(kernel, session, &reader, count)
        elif frame[10] == 0x13:
            is_taken = take_flow(kernel, session, &reader, count)
        else:
            is_taken = False
        if not is_taken:
            if frame[10] == 0x14 and session.gathering:
                hand_over_all(kernel, session)
            break
        position += size
    return position


cdef inline bint take_transfer(
    Express kernel,
    SessionState session,
    Known *known,
    Reader *reader,
    uint32_t count,
    const uint8_t *frame,
    Py_ssize_t size,
) except -1:
    """Handles a transfer that is a complete delivery and whose head need not be read (§2.7.5)."""
    cdef uint32_t handle
    cdef uint32_t an_id = 0
    cdef uint32_t field
    cdef const uint8_t *tag = NULL
    cdef uint32_t tag_octets = 0
    cdef const uint8_t *payload = reader.end
    cdef const uint8_t *end = frame + size
    cdef bint has_id = False
    cdef bint has_format = False
    cdef bint settled = False
    cdef bint more = False
    cdef PyObject *found
    cdef LinkState link
    cdef Lane lane
    if not 1 <= count <= 11:
        return False
    handle = read_uint(reader)
    if count > 1 and not skip_null(reader):
        an_id = read_uint(reader)
        has_id = True
    if count > 2 and not skip_null(reader):
        if reader.end - reader.at < 2 or reader.at[0] != 0xA0 or reader.at[1] > 32:
            return False
        tag_octets = reader.at[1]
        tag = reader.at + 2
        if reader.end - tag < <Py_ssize_t>tag_octets:
            return False
        reader.at = tag + tag_octets
    if count > 3 and not skip_null(reader):
        if read_uint(reader) != 0:
            return False
        has_format = True
    if count > 4:
        settled = read_flag(reader)
    if count > 5:
        more = read_flag(reader)
    # rcv-settle-mode, state, resume, aborted: absent, null or false
    for field in range(6, min(count, 10)):
        if reader.at >= reader.end:
            return False
        if reader.at[0] != 0x40 and (reader.at[0] != 0x42 or field < 8):
            return False
        reader.at += 1
    if count == 11:
        read_flag(reader)
    if reader.is_bad or reader.at != reader.end:
        return False
    found = link_by(session, known, handle)
    if found == NULL:
        return False
    link = <LinkState>found
    if link.gathered != NONE:
        return take_part(
            kernel, link, an_id, has_id, tag, tag_octets, settled, more, payload, end - payload
        )
    lane = link.lane
    if (
        lane is None
        or not has_id
        or tag == NULL
        or not has_format
        or not needs_no_look(payload, end)
        or link.is_sender
        or not link.is_open
        or link.in_progress
        or link.credit <= 0
        or session.incoming_window <= 0
        or (session.expected != an_id and session.expected >= 0)
        or end - payload > lane.limit_octets
        or 0 < link.max_message_octets < end - payload
        or not (lane.takes_settled if settled else lane.takes_unsettled)
        or (link.sender_settle_mode != 2 and settled != (link.sender_settle_mode == 1))
    ):
        return False
    count_in(kernel, link, an_id)
    if more:
        gather(
            kernel, lane, link, an_id, tag, tag_octets, payload, <uint32_t>(end - payload), settled
        )
        return True
    forward(kernel, lane, link, an_id, tag, tag_octets, payload, <uint32_t>(end - payload), settled)
    if not settled and lane.near.count == 1:
        learn(session.connection, link, frame, size)
    return True


cdef inline int forward(
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
    """Accepts a delivery and sends it on, or queues it."""
    cdef LinkState out = None
    count_frame(kernel, link.session, octets)
    link.carried += 1
    link.carried_octets += octets
    lane.touch(link)
    if not lane.waiting or (lane.is_crossed and not link.queued):
        out = choose(lane, link, octets)
    if out is not None and octets <= out.frame_octets and not is_referable(kernel, payload, octets):
        send(kernel, lane, link, out, an_id, tag, tag_octets, payload, octets, settled)
    else:
        queue(kernel, lane, link, an_id, tag, tag_octets, payload, octets, settled)
        if out is not None:
            send_pair(kernel, lane, link, out, take_queued(kernel, link))
            lane.stop_waiting(link)
            out = None
    if settled:
        link.settled += 1
    if out is not None and not (settled and out.settles):
        keep(kernel, link, octets)
    return 0


cdef inline void count_in(Express kernel, LinkState link, uint32_t an_id) noexcept:
    """Counts a delivery that has arrived, or begun to."""
    link.session.expected = <uint32_t>(an_id + 1)
    link.delivery_count += 1
    link.credit -= 1
    link.allowance -= 1


cdef inline void count_frame(Express kernel, SessionState session, uint32_t octets) noexcept:
    """Counts an incoming transfer (§2.5.6); see ``windows.count``."""
    session.next_incoming_id += 1
    session.incoming_window -= 1
    if session.remote_outgoing_window > 0:
        session.remote_outgoing_window -= 1
    weigh(session, 1, octets)


cdef inline void weigh(SessionState session, int64_t frames, int64_t octets) noexcept:
    """Records how large transfers were; see ``windows.count``."""
    if octets > frames * LARGE_OCTETS:
        session.small_frames = 0
        session.large_octets = octets // frames
    else:
        session.small_frames += frames


cdef int gather(
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
    """Begins to gather a delivery that arrives in parts."""
    cdef uint32_t index = new_pair(kernel)
    cdef Pair *pair = pair_at(kernel, index)
    fill_pair(kernel, pair, link, an_id, tag, tag_octets)
    pair.flags |= QUEUED
    if settled:
        pair.flags = (pair.flags | SETTLED) & ~SECOND
    link.gathered = index
    link.session.gathering.append(link)
    return gather_more(kernel, lane, link, payload, octets, True)


cdef bint take_part(
    Express kernel,
    LinkState link,
    uint32_t an_id,
    bint has_id,
    const uint8_t *tag,
    uint32_t tag_octets,
    bint settled,
    bint more,
    const uint8_t *payload,
    Py_ssize_t octets,
) except -1:
    """Handles a later transfer of a delivery (§2.6.14)."""
    cdef Pair *pair = pair_at(kernel, link.gathered)
    if (
        (has_id and an_id != pair.in_id)
        or (
            tag != NULL
            and (tag_octets != pair.tag_octets or memcmp(tag, tag_of(pair), tag_octets) != 0)
        )
        or (settled and not pair.flags & SETTLED)
        or not link.is_open
        or link.in_progress
        or link.session.incoming_window <= 0
        or pair.octets + octets > link.lane.limit_octets
        or 0 < link.max_message_octets < pair.octets + octets
    ):
        return False
    gather_more(kernel, link.lane, link, payload, <uint32_t>octets, more)
    return True


cdef int gather_more(
    Express kernel, Lane lane, LinkState link, const uint8_t *payload, uint32_t octets, bint more
) except -1:
    """Adds a part; the last one completes the delivery."""
    cdef uint32_t index = link.gathered
    cdef Pair *pair = pair_at(kernel, index)
    count_frame(kernel, link.session, octets)
    add_part(kernel, pair, payload, octets)
    keep(kernel, link, octets)
    lane.touch(link)
    if more:
        return 0
    link.gathered = NONE
    link.session.gathering.remove(link)
    link.carried += 1
    pair.place = <uint32_t>(link.carried + link.passed)
    link.carried_octets += pair.octets
    if pair.flags & SETTLED:
        link.settled += 1
    enqueue(kernel, lane, link, index)
    return lane.pump()


cdef int hand_over(Express kernel, LinkState link) except -1:
    """Hands an incomplete delivery over to the engine."""
    cdef uint32_t index = link.gathered
    cdef Pair *pair = pair_at(kernel, index)
    an_id = pair.in_id
    tag = tag_bytes(pair)
    settled = (pair.flags & SETTLED) != 0
    is_second = (pair.flags & SECOND) != 0
    payload = payload_bytes(pair)
    link.gathered = NONE
    link.session.gathering.remove(link)
    keep(kernel, link, -<int64_t>pair.octets)
    free_pair(kernel, index)
    if link.is_open and link.session.is_open:
        link.session.owner.adopt_partial(link, an_id, tag, settled, is_second, payload)
    return 0


cdef int hand_over_all(Express kernel, SessionState session) except -1:
    """Hands over the incomplete deliveries of all of a session's links."""
    cdef LinkState link
    for link in tuple(session.gathering):
        hand_over(kernel, link)
    return 0
