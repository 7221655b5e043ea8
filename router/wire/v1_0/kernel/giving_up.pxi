# Slots of links, and deliveries that the kernel gives up to the core.

cdef int take_slot(Express kernel, LinkState link) except -1:
    """Assigns a link a slot, by which pairs refer to it."""
    if link.slot == NONE:
        if kernel.free_slots:
            link.slot = kernel.free_slots.pop()
            kernel.slots[link.slot] = link
        else:
            link.slot = <uint32_t>len(kernel.slots)
            kernel.slots.append(link)
    return 0


cdef int free_slot(Express kernel, LinkState link) except -1:
    """Frees the slot, unless a pair still needs it."""
    if link.lane is None and not link.answered and link.slot != NONE:
        kernel.slots[link.slot] = None
        kernel.free_slots.append(link.slot)
        link.slot = NONE
    return 0


cdef LinkState find(Express kernel, link):
    found = kernel.links.get(link)
    if found is None:
        raise MisuseError(f"link {link} is not known to the express lane")
    return found


cdef int hold(Express kernel, SessionState session) except -1:
    """Prepares a session's rings for this kernel's pairs."""
    if session.express is None:
        session.express = kernel
        session.spilled_incoming = {}
        session.spilled_outgoing = {}
    elif session.express is not kernel:
        raise MisuseError("the session is known to another express lane")
    return 0


cdef list give_up_link(Express kernel, LinkState link):
    """Gives up all pairs of a link."""
    cdef SessionState session = link.session
    cdef uint32_t count
    cdef uint32_t each
    cdef Pair *pair
    cdef list mine = []
    if link.is_sender:
        count = find_all(kernel, &session.outgoing_ring, session.spilled_outgoing)
    else:
        count = find_all(kernel, &session.incoming_ring, session.spilled_incoming)
    for each in range(count):
        pair = pair_at(kernel, kernel.found[each])
        if (pair.out if link.is_sender else pair.link) == link.slot:
            mine.append(kernel.found[each])
    return give_up(kernel, mine)


cdef bint is_queued(SessionState session, LinkState link, uint32_t first, uint32_t last) noexcept:
    """Returns whether a delivery from ``first`` to ``last`` waits in a link's queue."""
    cdef Express kernel = session.express
    cdef uint32_t index = link.first_queued
    cdef uint32_t left
    if not link.is_sender:
        for left in range(link.queued):
            if <uint32_t>(pair_at(kernel, index).in_id - first) <= <uint32_t>(last - first):
                return True
            index = pair_at(kernel, index).out_id
    return False


cdef list give_up_queued(SessionState session, uint32_t first, uint32_t last):
    """Gives up the queues in which a delivery from ``first`` to ``last`` waits, to keep the order.

    The core sends these deliveries on, and takes the node off the lane for that.
    """
    cdef LinkState link
    cdef list pairs = []
    for link in tuple(session.links.values()):
        if link.lane is not None and is_queued(session, link, first, last):
            pairs += link.lane.empty(link)
    return pairs


cdef list give_up(Express kernel, list indices):
    """Creates pairs for the core, forgets them, and has the engines adopt them."""
    cdef uint32_t index
    cdef Pair *pair
    cdef LinkState link
    cdef LinkState out
    cdef list pairs = []
    for index in indices:
        pair = pair_at(kernel, index)
        link = <LinkState>kernel.slots[pair.link]
        out = <LinkState>kernel.slots[pair.out]
        is_second = (pair.flags & SECOND) != 0
        is_settled = (pair.flags & SETTLED) != 0
        is_done = (pair.flags & DONE) != 0
        state = ACCEPTED if pair.flags & NOTIFIED else None
        delivery = received(pair, is_settled, is_second)
        in_id = pair.in_id
        out_id = pair.out_id
        number = pair.number
        place = place_of(pair, link)
        if not is_done:
            clear(kernel, &out.session.outgoing_ring, out.session.spilled_outgoing, out_id, index)
            out.unsettled -= 1
            rank(out)
        pairs.append(LanePair(link.link, delivery, out.link, number, state, is_done, place))
        drop(kernel, link, index)
        if not is_settled and is_settleable(link.session):
            link.session.owner.adopt_incoming(link, in_id, delivery.tag, is_second)
        if is_settleable(out.session) and not is_done:
            out.session.owner.adopt_outgoing(out, out_id, number, number.to_bytes(4, "big"))
    return pairs
