# A connection's send buffer.

cdef inline void fetch_next_output(list dirty, Py_ssize_t at) noexcept:
    """Has the processor fetch what is needed to send for the next connections of a list."""
    cdef ConnectionState state
    cdef Output output
    if at + 1 < len(dirty):
        state = <ConnectionState>dirty[at + 1]
        fetch_lines(<void *>state, 192)
        fetch_lines(<void *>state.output, 128)
    if at < len(dirty):
        output = (<ConnectionState>dirty[at]).output
        if output.count:
            fetch_ahead(&output.segments[output.first])
            fetch_lines(output.pen, 64)


cdef class Output:
    """A connection's send buffer; see ``state.Output`` and ``octets.SendBuffer``."""

    cdef readonly int64_t octets
    cdef readonly int64_t sent
    cdef public int64_t high_octets
    cdef public int64_t low_octets
    cdef readonly bint congested
    cdef public object on_dirty
    cdef list blocked
    cdef Chunk *pen           # the chunk being written; NULL: none
    cdef Segment *segments    # octets to send: ``count`` segments, from ``first`` on
    cdef uint32_t first
    cdef uint32_t count
    cdef uint32_t capacity
    cdef uint32_t next_capacity

    def __init__(self, int64_t high_octets=1 << 20, int64_t low_octets=1 << 18):
        self.high_octets = high_octets
        self.low_octets = low_octets

    def __cinit__(self):
        self.blocked = []
        self.next_capacity = SMALLEST_CHUNK

    def __dealloc__(self):
        self.octets = 0
        while self.count:
            self.drop_segment()
        if self.pen != NULL:
            self.drop_pen()
        free(self.segments)

    def append(self, octets):
        """Appends octets."""
        cdef Py_buffer view
        PyObject_GetBuffer(octets, &view, PyBUF_SIMPLE)
        try:
            self.write(<const uint8_t *>view.buf, view.len)
        finally:
            PyBuffer_Release(&view)

    def extend(self, chunks, octets):
        """Appends many pieces; ``octets`` is the sum of their sizes."""
        for piece in chunks:
            self.append(piece)

    def peek(self):
        """Returns the first octets to send; empty if there are none."""
        cdef Segment *shown
        if self.octets == 0:
            return memoryview(b"")
        shown = &self.segments[self.first]
        return memoryview(<object>shown.chunk.memory)[shown.begin:shown.end].toreadonly()

    def consume(self, Py_ssize_t count):
        """Removes the first ``count`` octets, at most as many as ``peek`` has returned."""
        cdef Py_ssize_t shown = 0
        if self.count:
            shown = self.segments[self.first].end - self.segments[self.first].begin
        if not 0 <= count <= shown:
            raise MisuseError(f"{count} octets confirmed that were not shown")
        self.take_away(count)

    cdef int take_away(self, int64_t count) except -1:
        """Removes the first ``count`` octets, which were sent."""
        cdef Segment *shown
        cdef uint32_t part
        self.octets -= count
        self.sent += count
        while count:
            shown = &self.segments[self.first]
            part = <uint32_t>min(count, <int64_t>(shown.end - shown.begin))
            shown.begin += part
            count -= part
            if shown.begin == shown.end:
                self.drop_segment()
        self.drop_if_idle()
        if self.congested and self.octets < self.low_octets:
            self.congested = False
            blocked = self.blocked
            self.blocked = []
            for lane in blocked:
                lane.relieve()
        return 0

    cdef int write(self, const uint8_t *at, Py_ssize_t left) except -1:
        cdef uint32_t part
        if left == 0:
            return 0
        self.before_write()
        while left:
            if self.pen == NULL or self.pen.fill == self.pen.capacity:
                self.add_chunk(<uint32_t>min(left, LARGEST_CHUNK))
            part = <uint32_t>min(left, <Py_ssize_t>(self.pen.capacity - self.pen.fill))
            memcpy(self.pen.data + self.pen.fill, at, part)
            self.written(part)
            at += part
            left -= part
        return 0

    cdef inline int before_write(self) except -1:
        if self.octets == 0 and self.on_dirty is not None:
            self.on_dirty()
        return 0

    cdef inline uint8_t *reserve(self, uint32_t octets) except NULL:
        """Returns space for ``octets`` in one chunk; ``written`` commits what was used."""
        self.before_write()
        if self.pen == NULL or self.pen.capacity - self.pen.fill < octets:
            self.add_chunk(octets)
        return self.pen.data + self.pen.fill

    cdef inline int written(self, uint32_t octets) except -1:
        self.refer(self.pen, self.pen.fill, octets)
        self.pen.fill += octets
        return 0

    cdef inline int refer(self, Chunk *chunk, uint32_t begin, uint32_t octets) except -1:
        """Appends octets without copying them."""
        cdef Segment *last = NULL
        if self.count:
            last = &self.segments[self.first + self.count - 1]
        if last == NULL or last.chunk != chunk or last.end != begin:
            if self.first + self.count == self.capacity:
                self.add_segments()
            last = &self.segments[self.first + self.count]
            self.count += 1
            last.chunk = chunk
            last.begin = begin
            chunk.segments += 1
        last.end = begin + octets
        self.octets += octets
        if self.octets > self.high_octets:
            self.congested = True
        return 0

    cdef int add_segments(self) except -1:
        """Grows the list of segments by at least one."""
        cdef Segment *grown
        if self.first > self.capacity // 2:
            memmove(self.segments, self.segments + self.first, self.count * sizeof(Segment))
            self.first = 0
            return 0
        grown = <Segment *>realloc(self.segments, (self.capacity * 2 + 2) * sizeof(Segment))
        if grown == NULL:
            raise MemoryError
        self.segments = grown
        self.capacity = self.capacity * 2 + 2
        return 0

    cdef int add_chunk(self, uint32_t octets) except -1:
        """Adds a chunk of at least ``octets``; chunks grow as long as they are filled."""
        cdef Chunk *chunk = new_chunk(max(octets, self.next_capacity))
        self.next_capacity = min(chunk.capacity * 4, LARGEST_CHUNK)
        if self.pen != NULL:
            self.drop_pen()
        chunk.output = <PyObject *>self
        self.pen = chunk
        return 0

    cdef void drop_pen(self) noexcept:
        """Stops writing into the current chunk."""
        cdef Chunk *chunk = self.pen
        self.pen = NULL
        chunk.output = NULL
        if chunk.pairs == 0 and chunk.segments == 0:
            free_chunk(chunk)

    cdef void drop_segment(self) noexcept:
        cdef Chunk *chunk = self.segments[self.first].chunk
        self.count -= 1
        self.first = self.first + 1 if self.count else 0
        chunk.segments -= 1
        if chunk.pairs == 0 and chunk.segments == 0 and chunk != self.pen:
            leave_chunk(chunk)

    cdef void drop_if_idle(self) noexcept:
        """Frees idle memory while there is no output; chunks shrink that were half empty."""
        cdef Chunk *chunk = self.pen
        if self.octets or chunk == NULL or (chunk.pairs and chunk.fill < chunk.capacity):
            return
        if chunk.fill * 4 <= chunk.capacity:
            self.next_capacity = max(chunk.capacity // 4 - CHUNK_MARGIN, SMALLEST_CHUNK)
        else:
            self.next_capacity = chunk.capacity
        self.drop_pen()
