# Deliveries that are followed through the log; see ``lives``.

cdef enum:
    MOST_ROWS = 8       # of a life that goes on: one more than the longest usual way has
    WAYS = 1 << 13      # step, kind, settled, has_outgoing: see lives.way_of
    GONE = -2           # in the index: a life stood here
    FREE = -1

cdef struct Life:
    uint8_t key[KEY]
    uint64_t incoming
    uint64_t outgoing
    int32_t step        # 0: it is over
    int32_t count
    int32_t blocks[MOST_ROWS]
    int32_t rows[MOST_ROWS]


cdef class Lives:
    """Does what ``lives.Lives`` does.

    Lives lie in the order of their beginning; an index with open addressing finds them.
    """

    cdef signed char ways[WAYS]
    cdef uint8_t received
    cdef dict made
    cdef list blocks
    cdef Life *lives
    cdef int32_t count         # of lives, those that are over included
    cdef int32_t alive
    cdef int32_t capacity
    cdef int32_t *index
    cdef uint32_t mask
    cdef uint32_t taken        # places of the index that are not free

    def __cinit__(self, ways, int received, dict made not None):
        cdef int way
        for way in range(WAYS):
            self.ways[way] = 0
        for way, step in ways.items():
            if not 0 <= way < WAYS or not -1 <= step <= 7:
                raise ValueError("no such way")
            self.ways[way] = step
        self.received = received
        self.made = made
        self.blocks = []
        self.grow(256)

    def __dealloc__(self):
        free(self.lives)
        free(self.index)

    def apply(self, block, apply_row):
        """Follows the records of a block."""
        cdef Py_buffer view
        cdef Py_ssize_t at
        self.blocks.append(block)
        if len(self.blocks) > 0x7FFFFFFF:
            raise OverflowError("too many blocks")
        PyObject_GetBuffer(block.rows, &view, PyBUF_SIMPLE)
        try:
            for at in range(view.len // ROW):
                self.apply_one(<const uint8_t *>view.buf + at * ROW, block, <int32_t>at, apply_row)
        finally:
            PyBuffer_Release(&view)

    def make_all(self, apply_row):
        """Makes all that is only followed, and lets go of the blocks that it was followed in."""
        cdef int32_t each
        for each in range(self.count):
            if self.lives[each].step:
                self.make(each, apply_row)
        self.blocks = []
        self.clear()

    cdef int apply_one(
        self, const uint8_t *row, object block, int32_t at, object apply_row
    ) except -1:
        cdef uint64_t incoming = get64(row + 32), outgoing = get64(row + 40)
        cdef const uint8_t *key = row + KEY
        cdef int32_t found = self.find(incoming, key)
        cdef int step
        cdef Life *life
        if found < 0:
            if row[0] == self.received and not self.is_made(incoming, key):
                self.begin(incoming, key, 6 if row[4] & 1 else 1, at)
            else:
                apply_row(block, at)
            return 0
        life = &self.lives[found]
        step = self.ways[life.step << 10 | row[0] << 2 | (row[4] & 1) << 1 | (outgoing != 0)]
        if step == 0 or (life.outgoing and outgoing and outgoing != life.outgoing) or (
            step > 0 and life.count == MOST_ROWS
        ):
            self.make(found, apply_row)
            apply_row(block, at)
        elif step < 0:
            self.end(found)
        else:
            life.step = step
            if not life.outgoing:
                life.outgoing = outgoing
            life.blocks[life.count] = <int32_t>(len(self.blocks) - 1)
            life.rows[life.count] = at
            life.count += 1
        return 0

    cdef bint is_made(self, uint64_t incoming, const uint8_t *key) except -1:
        if not self.made:
            return False
        return (incoming, (<const char *>key)[:KEY]) in self.made

    cdef int make(self, int32_t which, object apply_row) except -1:
        """Makes a delivery that was only followed."""
        cdef Life life = self.lives[which]
        cdef int each
        self.end(which)
        for each in range(life.count):
            apply_row(self.blocks[life.blocks[each]], life.rows[each])
        return 0

    # The index

    cdef uint32_t place(self, uint64_t incoming, const uint8_t *key) noexcept:
        cdef uint64_t mixed = get64(key) ^ get64(key + 8) * 0x9E3779B97F4A7C15u ^ incoming
        mixed ^= mixed >> 29
        mixed *= 0xBF58476D1CE4E5B9u
        return <uint32_t>(mixed >> 32) & self.mask

    cdef int32_t find(self, uint64_t incoming, const uint8_t *key) noexcept:
        cdef uint32_t at = self.place(incoming, key)
        cdef int32_t which
        while True:
            which = self.index[at]
            if which == FREE:
                return -1
            if (
                which >= 0 and self.lives[which].incoming == incoming
                and memcmp(self.lives[which].key, key, KEY) == 0
            ):
                return which
            at = (at + 1) & self.mask

    cdef int begin(
        self, uint64_t incoming, const uint8_t *key, int32_t step, int32_t row
    ) except -1:
        cdef Life *life
        if self.count == self.capacity or self.taken * 2 > self.mask:
            self.grow(max(256, self.alive * 2))
        life = &self.lives[self.count]
        memcpy(life.key, key, KEY)
        life.incoming, life.outgoing, life.step, life.count = incoming, 0, step, 1
        life.blocks[0], life.rows[0] = <int32_t>(len(self.blocks) - 1), row
        self.enter(self.count)
        self.count += 1
        self.alive += 1
        return 0

    cdef void enter(self, int32_t which) noexcept:
        cdef Life *life = &self.lives[which]
        cdef uint32_t at = self.place(life.incoming, life.key)
        while self.index[at] >= 0:
            at = (at + 1) & self.mask
        if self.index[at] == FREE:
            self.taken += 1
        self.index[at] = which

    cdef void end(self, int32_t which) noexcept:
        cdef Life *life = &self.lives[which]
        cdef uint32_t at = self.place(life.incoming, life.key)
        while self.index[at] != which:
            at = (at + 1) & self.mask
        self.index[at] = GONE
        life.step = 0
        self.alive -= 1

    cdef int grow(self, int32_t capacity) except -1:
        """Makes capacity for so many lives and forgets those that are over; the order stays."""
        cdef int32_t each, kept = 0
        cdef uint32_t places = 1024
        cdef void *memory
        if capacity >= 1 << 28:
            raise MemoryError
        for each in range(self.count):
            if self.lives[each].step:
                if kept != each:
                    self.lives[kept] = self.lives[each]
                kept += 1
        self.count = kept
        memory = realloc(self.lives, capacity * sizeof(Life))
        if memory == NULL:
            raise MemoryError
        self.lives = <Life *>memory
        self.capacity = capacity
        while places < <uint32_t>capacity * 4:
            places *= 2
        memory = malloc(places * sizeof(int32_t))
        if memory == NULL:
            raise MemoryError
        free(self.index)
        self.index = <int32_t *>memory
        self.mask = places - 1
        self.empty_index()
        for each in range(kept):
            self.enter(each)
        return 0

    cdef void clear(self) noexcept:
        self.count = self.alive = 0
        self.empty_index()

    cdef void empty_index(self) noexcept:
        cdef uint32_t at
        for at in range(self.mask + 1):
            self.index[at] = FREE
        self.taken = 0
