# The choice of the link for a lane's next delivery: the rule of ``routes.distribution``, by heaps.
#
# Links that can be sent something are in a heap, the next one at its top. A link that turns out to
# be unable is removed until an event that may help: its own flow, or, if it is *stuck* because the
# window or the output is full, a notification of the lane. Far links have a heap of their own,
# because some deliveries skip them.

cdef enum:
    ABLE = 0
    NO_CREDIT = 1             # no credit: until its flow
    STUCK = 2                 # window or output full: the lane is notified
    ASIDE = 3                 # not this delivery, or not in the middle of another

cdef struct Ranked:
    int64_t load
    uint64_t last_used
    uint64_t joined
    PyObject *link            # borrowed from the lane's list

cdef struct Heap:
    Ranked *entries
    uint32_t count
    uint32_t capacity


cdef inline bint is_before(const Ranked *one, const Ranked *other) noexcept nogil:
    if one.load != other.load:
        return one.load < other.load
    if one.last_used != other.last_used:
        return one.last_used < other.last_used
    return one.joined < other.joined


cdef inline void put_at(Heap *heap, uint32_t at, const Ranked *entry) noexcept:
    heap.entries[at] = entry[0]
    (<LinkState>entry.link).place = at


cdef void rise(Heap *heap, uint32_t at) noexcept:
    """Moves an entry towards the top, to its position."""
    cdef Ranked entry = heap.entries[at]
    cdef uint32_t above
    while at:
        above = (at - 1) >> 1
        if not is_before(&entry, &heap.entries[above]):
            break
        put_at(heap, at, &heap.entries[above])
        at = above
    put_at(heap, at, &entry)


cdef void sink(Heap *heap, uint32_t at) noexcept:
    """Moves an entry away from the top, to its position."""
    cdef Ranked entry = heap.entries[at]
    cdef uint32_t below = 2 * at + 1
    while below < heap.count:
        if below + 1 < heap.count and is_before(&heap.entries[below + 1], &heap.entries[below]):
            below += 1
        if not is_before(&heap.entries[below], &entry):
            break
        put_at(heap, at, &heap.entries[below])
        at = below
        below = 2 * at + 1
    put_at(heap, at, &entry)


cdef inline int64_t load_of(LinkState link) noexcept:
    cdef int64_t load = link.unsettled + link.elsewhere
    return load // link.receivers if link.receivers > 1 else load


cdef inline Heap *heap_of(LinkState link) noexcept:
    return &link.lane.far if link.is_far else &link.lane.near


cdef int admit(LinkState link) except -1:
    """Adds a link of a lane to its heap."""
    cdef Heap *heap = heap_of(link)
    cdef Ranked *grown
    cdef Ranked *entry
    if heap.count == heap.capacity:
        grown = <Ranked *>realloc(heap.entries, (heap.capacity * 2 + 1) * sizeof(Ranked))
        if grown == NULL:
            raise MemoryError
        heap.entries = grown
        heap.capacity = heap.capacity * 2 + 1
    entry = &heap.entries[heap.count]
    entry.load = load_of(link)
    entry.last_used = link.last_used
    entry.joined = link.joined
    entry.link = <PyObject *>link
    heap.count += 1
    rise(heap, heap.count - 1)
    return 0


cdef void park(LinkState link) noexcept:
    """Removes a link from its heap."""
    cdef Heap *heap = heap_of(link)
    cdef uint32_t at = link.place
    link.place = NONE
    heap.count -= 1
    if at < heap.count:
        put_at(heap, at, &heap.entries[heap.count])
        rise(heap, at)
        sink(heap, (<LinkState>heap.entries[at].link).place)


cdef inline void rank(LinkState link) noexcept:
    """Updates the position of a link after a delivery, a settlement or a new weight."""
    cdef Heap *heap
    cdef Ranked *entry
    cdef int64_t load = load_of(link)
    cdef bint is_nearer
    if link.place == NONE:
        return
    heap = heap_of(link)
    entry = &heap.entries[link.place]
    is_nearer = load < entry.load
    entry.load = load
    entry.last_used = link.last_used
    if heap.count > 1:
        if is_nearer:
            rise(heap, link.place)
        else:
            sink(heap, link.place)


cdef inline int look_at(Lane lane, LinkState link, uint32_t octets) except -1:
    """Returns whether a link can be sent a payload now, and if not, why.

    If only the window or the output is full, the lane will be notified.
    """
    cdef SessionState session = link.session
    cdef int64_t window = session.remote_incoming_window
    if link.credit <= 0 or not link.is_open:
        return NO_CREDIT
    if link.in_progress:
        return ASIDE
    if window <= 0 or octets > window * link.frame_octets:
        if lane not in session.blocked:
            session.blocked.append(lane)
        return STUCK if window <= 0 else ASIDE
    if session.output.congested:
        if lane not in session.output.blocked:
            session.output.blocked.append(lane)
        return STUCK
    return ABLE


cdef LinkState first_able(Lane lane, Heap *heap, uint32_t octets):
    """Returns the first link of a heap that can be sent a payload; those before it are parked."""
    cdef LinkState link
    cdef LinkState found = None
    cdef list aside = None
    cdef int ability
    while heap.count:
        link = <LinkState>heap.entries[0].link
        ability = look_at(lane, link, octets)
        if ability == ABLE:
            found = link
            break
        park(link)
        if ability == STUCK:
            link.is_stuck = True
            lane.stuck.append(link)
        elif ability == ASIDE:
            aside = aside or []
            aside.append(link)
    if aside is not None:
        for link in aside:
            admit(link)
    return found


cdef LinkState choose(Lane lane, LinkState source, uint32_t octets):
    """Chooses the link for the next delivery of ``source``; None: no link can be sent it."""
    cdef LinkState best = first_able(lane, &lane.near, octets)
    cdef LinkState other
    if lane.far.count and not source.is_far:
        other = first_able(lane, &lane.far, octets)
        if best is None or (
            other is not None
            and is_before(&lane.far.entries[other.place], &lane.near.entries[best.place])
        ):
            best = other
    return best


cdef int64_t credit_in(Lane lane, Heap *heap) except -1:
    """Returns for how many deliveries the links of a heap have credit."""
    cdef LinkState link
    cdef int64_t credit = 0
    cdef uint32_t at
    for at in range(heap.count):
        link = <LinkState>heap.entries[at].link
        if look_at(lane, link, 1) == ABLE:
            credit += link.credit
    return credit


cdef int readmit(Lane lane) except -1:
    """Adds the stuck links to their heaps again."""
    cdef LinkState link
    cdef list stuck = lane.stuck
    if stuck:
        lane.stuck = []
        for link in stuck:
            link.is_stuck = False
            admit(link)
    return 0


cdef int expel(Lane lane, LinkState link) except -1:
    """Removes a link from the choice for good."""
    if link.is_stuck:
        link.is_stuck = False
        lane.stuck.remove(link)
    elif link.place != NONE:
        park(link)
    return 0
