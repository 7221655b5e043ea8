# A session's rings: pairs by delivery-id.
#
# A ring belongs to one session and one direction; the slot ``delivery-id & mask`` holds the index of
# the pair with that id. Every id in the slots lies in [lowest, highest), and highest - lowest never
# exceeds the ring's size, so no two ids meet in a slot. A ring doubles while it is more than half
# full. A ring that is not half full and still too short has old deliveries at its low end: these
# are spilled into a dict, so that a receiver that never answers costs only what it holds. Large ones
# are pages of their own, so that the smaller ones that they replace leave no holes in the heap.

cdef enum:
    FIRST_SLOTS = 256
    MOST_SLOTS = 1 << 20      # limit of a ring, beyond which it spills

cdef struct Ring:
    uint32_t *slots           # index of a pair, plus 1; 0: free
    uint32_t mask
    uint32_t live
    uint32_t lowest           # every id in the slots lies in [lowest, highest)
    uint32_t highest


cdef inline void free_ring(Ring *ring) noexcept nogil:
    free_pages(ring.slots, (<size_t>ring.mask + 1) * sizeof(uint32_t))


cdef inline int put(
    Express kernel, Ring *ring, dict spilled, bint is_incoming, uint32_t an_id, uint32_t index
) except -1:
    """Enters a pair by its id."""
    cdef uint32_t lowest = an_id
    cdef uint32_t highest = an_id + 1
    if ring.slots == NULL:
        ring.slots = <uint32_t *>zeroed_pages(FIRST_SLOTS * sizeof(uint32_t))
        if ring.slots == NULL:
            raise MemoryError
        ring.mask = FIRST_SLOTS - 1
    if ring.live:
        if <uint32_t>(an_id - ring.lowest) < HALF:
            lowest = ring.lowest
        if <uint32_t>(ring.highest - highest) < HALF:
            highest = ring.highest
        if <uint32_t>(highest - lowest) > ring.mask + 1:
            lowest = fit_range(kernel, ring, spilled, is_incoming, lowest, highest)
    ring.lowest = lowest
    ring.highest = highest
    if <uint32_t>(an_id - lowest) >= HALF:  # it is old, and spilled like those before it
        spilled[an_id] = index
        return 0
    ring.slots[an_id & ring.mask] = index + 1
    ring.live += 1
    return 0


cdef uint32_t fit_range(
    Express kernel, Ring *ring, dict spilled, bint is_incoming, uint32_t lowest, uint32_t highest
) except? 0xFFFFFFFF:
    """Makes the ids from ``lowest`` to ``highest`` fit; returns the lowest that stays."""
    cdef uint32_t span = highest - lowest
    cdef uint32_t *grown
    cdef uint32_t slot
    cdef uint32_t entry
    cdef uint32_t an_id
    while (
        span > ring.mask + 1 and ring.mask < MOST_SLOTS // 2 and (ring.live + 1) * 2 > ring.mask
    ):
        grown = <uint32_t *>zeroed_pages((<size_t>ring.mask + 1) * 2 * sizeof(uint32_t))
        if grown == NULL:
            raise MemoryError
        for slot in range(ring.mask + 1):
            entry = ring.slots[slot]
            if entry:
                an_id = id_of(kernel, entry - 1, is_incoming)
                grown[an_id & (ring.mask * 2 + 1)] = entry
        free_ring(ring)
        ring.slots = grown
        ring.mask = ring.mask * 2 + 1
    if span <= ring.mask + 1:
        return lowest
    lowest = highest - ring.mask - 1
    for slot in range(ring.mask + 1):
        entry = ring.slots[slot]
        if entry:
            an_id = id_of(kernel, entry - 1, is_incoming)
            if <uint32_t>(an_id - lowest) >= HALF:
                spilled[an_id] = entry - 1
                ring.slots[slot] = 0
                ring.live -= 1
    return lowest


cdef inline uint32_t id_of(Express kernel, uint32_t index, bint is_incoming) noexcept:
    return pair_at(kernel, index).in_id if is_incoming else pair_at(kernel, index).out_id


cdef inline int clear(
    Express kernel, Ring *ring, dict spilled, uint32_t an_id, uint32_t index
) except -1:
    """Removes a pair that is present."""
    cdef uint32_t slot = an_id & ring.mask
    if ring.slots[slot] == index + 1:
        ring.slots[slot] = 0
        ring.live -= 1
        if ring.live:
            while not ring.slots[ring.lowest & ring.mask]:
                ring.lowest += 1
    else:
        spilled.pop(an_id, None)
    return 0


cdef uint32_t find_pairs(
    Express kernel, Ring *ring, dict spilled, uint32_t first, uint32_t last
) except? 0xFFFFFFFF:
    """Finds pairs from ``first`` to ``last``, in serial order, and puts them into ``found``."""
    cdef uint32_t count = 0
    cdef uint32_t an_id
    cdef uint32_t until
    cdef uint32_t entry
    cdef uint32_t span = last - first
    make_found(kernel, ring.live + <uint32_t>len(spilled))
    if spilled:
        stuck = [each for each in spilled if <uint32_t>(<uint32_t>each - first) <= span]
        stuck.sort(key=lambda each: (each - first) & 0xFFFFFFFF)
        for each in stuck:
            kernel.found[count] = spilled[each]
            count += 1
    if not ring.live:
        return count
    until = last + 1 - ring.lowest
    if until == 0 or until > HALF:
        return count
    until = min(until, <uint32_t>(ring.highest - ring.lowest)) + ring.lowest
    an_id = first
    if <uint32_t>(first - ring.lowest) >= HALF:
        an_id = ring.lowest
    if <uint32_t>(until - an_id) >= HALF:
        return count
    while an_id != until:
        entry = ring.slots[an_id & ring.mask]
        if entry:
            kernel.found[count] = entry - 1
            count += 1
        an_id += 1
    return count


cdef uint32_t find_all(Express kernel, Ring *ring, dict spilled) except? 0xFFFFFFFF:
    """Finds all pairs, in serial order except the spilled ones, which come first."""
    cdef uint32_t count = 0
    cdef uint32_t an_id
    make_found(kernel, ring.live + <uint32_t>len(spilled))
    for each in spilled.values():
        kernel.found[count] = each
        count += 1
    if ring.live:
        an_id = ring.lowest
        while an_id != ring.highest:
            if ring.slots[an_id & ring.mask]:
                kernel.found[count] = ring.slots[an_id & ring.mask] - 1
                count += 1
            an_id += 1
    return count


cdef inline int make_found(Express kernel, uint32_t count) except -1:
    cdef uint32_t *grown
    if count > kernel.found_capacity:
        grown = <uint32_t *>realloc(kernel.found, <size_t>count * 2 * sizeof(uint32_t))
        if grown == NULL:
            raise MemoryError
        kernel.found = grown
        kernel.found_capacity = count * 2
    return 0
