# cython: language_level=3
# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# cython: nonecheck=False, infer_types=False
"""The express lane's kernel in Cython: what ``_express_py`` does, octet for octet.

See ``express`` for what a kernel takes and what falls out of it. This twin works delivery by
delivery, from the receive buffer to the send buffer, and makes no Python object for any.

Memory. A delivery's payload is copied once, into the *chunk* of output in which it is sent, and
stays there until its outcome is known: what has been sent of a chunk is not freed as long as a
*pair* needs it. A delivery that has to wait is kept in a chunk of the lane's own, the *keeper*,
and copied again when it goes. Large payloads are not copied at all: a pair refers to the chunk
that was received into, the *inbox*, and output is a row of *segments*, which may lie in any chunk.
Pairs lie in a slab; the rings of a session hold their indices, in the slot ``delivery-id & mask``,
by the rules of ``_rings_py``.

Sockets. A ``Carrier`` does for connections on the lane what ``net.dataplane`` does for all: it
receives, lets the kernel take what it can, and sends at the end of the turn. Python hears only of
what is not the lane's.

Safety. What a peer sent is read through a ``Reader``, which never goes beyond the frame, and a
frame never beyond the buffer. Ids are looked up, never used as an index unmasked.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_FromStringAndSize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_GetItem
from cpython.ref cimport Py_DECREF, Py_INCREF, PyObject
from libc.errno cimport EAGAIN, EINTR, errno  # EWOULDBLOCK is the same wherever there is epoll
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, qsort, realloc
from libc.string cimport memcmp, memcpy, memmove

import os
import sys
from weakref import WeakValueDictionary

from router.errors import MisuseError
from router.model.delivery import ReceivedDelivery
from router.model.lane import LanePair, LaneStatistics, Remains
from router.model.outcome import ACCEPTED
from router.model.terminus import Role
from router.wire.v1_0.head import fill

cdef extern from *:
    """
    #define HALF 0x80000000u
    #define LANE_NUMBERS 0x80000000u
    #define NONE 0xFFFFFFFFu

    static inline uint32_t load32(const uint8_t *at) {
        return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
    }
    static inline void store32(uint8_t *at, uint32_t value) {
        at[0] = value >> 24; at[1] = value >> 16; at[2] = value >> 8; at[3] = value;
    }

    #ifdef __linux__
    #include <sys/epoll.h>
    #include <sys/socket.h>
    #include <sys/uio.h>
    #include <time.h>
    #define CARRIES 1
    static inline int ready_sockets(int poller, struct epoll_event *events, int most) {
        return epoll_wait(poller, events, most, 0);
    }
    static inline int descriptor_of(const struct epoll_event *event) { return event->data.fd; }
    static inline long receive_octets(int descriptor, void *at, size_t most) {
        return recv(descriptor, at, most, MSG_DONTWAIT);
    }
    static inline long send_pieces(int descriptor, struct iovec *pieces, size_t count) {
        struct msghdr message = {.msg_iov = pieces, .msg_iovlen = count};
        return sendmsg(descriptor, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    }
    static inline double seconds_now(void) {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
    }
    #else  /* no epoll: nothing is carried, what is here is never called */
    #define CARRIES 0
    #define EPOLLIN 1
    #define EPOLLOUT 4
    struct epoll_event { unsigned events; };
    struct iovec { void *iov_base; size_t iov_len; };
    static inline int ready_sockets(int poller, struct epoll_event *events, int most) { return 0; }
    static inline int descriptor_of(const struct epoll_event *event) { return -1; }
    static inline long receive_octets(int descriptor, void *at, size_t most) { return -1; }
    static inline long send_pieces(int descriptor, struct iovec *pieces, size_t count) { return -1; }
    static inline double seconds_now(void) { return 0; }
    #endif
    """
    const bint CARRIES
    const uint32_t EPOLLIN
    const uint32_t EPOLLOUT
    struct epoll_event:
        uint32_t events
    struct iovec:
        void *iov_base
        size_t iov_len
    int ready_sockets(int poller, epoll_event *events, int most) noexcept nogil
    int descriptor_of(const epoll_event *event) noexcept nogil
    long receive_octets(int descriptor, void *at, size_t most) noexcept nogil
    long send_pieces(int descriptor, iovec *pieces, size_t count) noexcept nogil
    double seconds_now() noexcept nogil
    const uint32_t HALF
    const uint32_t LANE_NUMBERS  # a link's delivery numbers of the lane begin here
    const uint32_t NONE          # no pair, no link
    uint32_t load32(const uint8_t *at) noexcept nogil
    void store32(uint8_t *at, uint32_t value) noexcept nogil

cdef enum:
    TRANSFER_OCTETS = 40      # more than any transfer has before its payload (_shapes_py)
    LARGEST_FRAME = 65536     # more than the engine sends, whatever the peer takes
    MOST_FRAMES = 32          # that one delivery is sent in (_lane_py)
    HEAD_ROOM = 24            # of a transfer's head: copied whole, whatever its length
    LEAST_SHARE = 128         # as in routes.distribution
    LEAST_REFERENCE = 16384   # octets of a payload, or a piece of one, that is not copied
    LARGEST_CARRIED = 131072  # octets of a frame: one that is cut off must leave room behind it

# --- chunks ---------------------------------------------------------------------------------------

cdef enum:
    CHUNK_CLASSES = 4         # 4, 16, 64 and 256 KiB
    SMALLEST_CHUNK = 4096
    LARGEST_CHUNK = 262144
    MOST_POOLED = 33554432    # octets of free chunks that are kept for the next need
    KEEPER_CHUNK = 65536
    FIRST_COMPACTION = 67108864  # octets in chunks below which nothing is moved

cdef struct Chunk:
    uint8_t *data
    PyObject *memory          # the bytearray that data points into
    PyObject *output          # the Output that writes into it, borrowed; NULL: none does
    Chunk *next               # in the pool
    uint32_t capacity
    uint32_t fill             # octets written
    uint32_t pairs            # that need what lies here
    uint32_t live             # octets of payload that these need
    uint32_t segments         # of outputs that lie here
    uint8_t is_kept           # it is the keeper, or the inbox

cdef struct Segment:
    Chunk *chunk
    uint32_t begin            # of what is to be sent
    uint32_t end

cdef Chunk *pool[CHUNK_CLASSES]
cdef uint64_t pooled_octets = 0
cdef uint64_t chunk_octets = 0     # of chunks in use


cdef inline uint32_t chunk_class(uint32_t capacity) noexcept nogil:
    cdef uint32_t number = 0
    while capacity > <uint32_t>SMALLEST_CHUNK << (2 * number):
        number += 1
    return number


cdef Chunk *new_chunk(uint32_t octets) except NULL:
    """Takes a chunk of at least ``octets``, at most ``LARGEST_CHUNK``."""
    global pooled_octets, chunk_octets
    cdef uint32_t number = chunk_class(octets)
    cdef uint32_t capacity = <uint32_t>SMALLEST_CHUNK << (2 * number)
    cdef Chunk *chunk = pool[number]
    cdef bytearray memory
    if chunk != NULL:
        pool[number] = chunk.next
        pooled_octets -= capacity
    else:
        memory = PyByteArray_FromStringAndSize(NULL, capacity)
        chunk = <Chunk *>calloc(1, sizeof(Chunk))
        if chunk == NULL:
            raise MemoryError
        Py_INCREF(memory)
        chunk.memory = <PyObject *>memory
        chunk.data = <uint8_t *>PyByteArray_AS_STRING(memory)
        chunk.capacity = capacity
    chunk.next = NULL
    chunk_octets += capacity
    return chunk


cdef void free_chunk(Chunk *chunk) noexcept:
    """Gives a chunk back that no output and no pair needs."""
    global pooled_octets, chunk_octets
    cdef uint32_t number = chunk_class(chunk.capacity)
    chunk_octets -= chunk.capacity
    if pooled_octets + chunk.capacity > MOST_POOLED:
        Py_DECREF(<object>chunk.memory)
        free(chunk)
        return
    chunk.output = NULL
    chunk.fill = 0
    chunk.is_kept = 0
    chunk.next = pool[number]
    pool[number] = chunk
    pooled_octets += chunk.capacity


cdef inline void let_go(Chunk *chunk, uint32_t octets) noexcept:
    """A pair does not need its payload in this chunk any more."""
    chunk.live -= octets
    chunk.pairs -= 1
    if chunk.pairs == 0 and chunk.segments == 0:
        leave_chunk(chunk)


cdef void leave_chunk(Chunk *chunk) noexcept:
    """Nothing that lies in a chunk is needed any more."""
    if chunk.is_kept:
        chunk.fill = 0
    elif chunk.output == NULL:
        free_chunk(chunk)
    else:
        (<Output>chunk.output).drop_if_idle()


# --- pairs ----------------------------------------------------------------------------------------

cdef enum:
    SLAB = 4096               # pairs in a segment of the slab
    TAG_ROOM = 16             # longer tags lie outside
    # flags of a pair
    LIVE = 1
    QUEUED = 2
    SETTLED = 4               # beforehand, by the sender
    SECOND = 8                # the receiver settles after the sender
    TOLD = 16                 # second: accepted, and the sender knows
    DONE = 32                 # second: the receiver has settled, too
    PARTED = 64               # its payload lies in parts

cdef struct Part:
    Chunk *chunk
    uint32_t offset
    uint32_t octets

cdef struct Parts:
    uint32_t count
    uint32_t room
    Part part[1]              # as many as there is room for

cdef struct Pair:
    uint32_t link             # slot of the link that it came on
    uint32_t out              # slot of the link that it went to
    uint32_t in_id
    uint32_t out_id           # while it waits or is free: the next one
    uint32_t number           # on the outgoing link; the tag there
    uint32_t offset           # of the payload in its chunk
    uint32_t octets
    uint8_t flags
    uint8_t tag_octets
    Chunk *chunk              # if it lies in parts, a pointer to Parts
    uint8_t tag[TAG_ROOM]     # as it came; if longer than TAG_ROOM, a pointer to it


cdef inline const uint8_t *tag_of(Pair *pair) noexcept nogil:
    if pair.tag_octets > TAG_ROOM:
        return (<uint8_t **>pair.tag)[0]
    return pair.tag


cdef inline void copy_payload(
    Pair *pair, uint32_t offset, uint32_t octets, uint8_t *to
) noexcept nogil:
    """Copies a piece of a payload that is kept."""
    cdef Parts *parts
    cdef uint32_t index = 0
    cdef uint32_t piece
    if not pair.flags & PARTED:
        memcpy(to, pair.chunk.data + pair.offset + offset, octets)
        return
    parts = <Parts *>pair.chunk
    while octets:
        if offset >= parts.part[index].octets:
            offset -= parts.part[index].octets
        else:
            piece = min(octets, parts.part[index].octets - offset)
            memcpy(to, parts.part[index].chunk.data + parts.part[index].offset + offset, piece)
            to += piece
            octets -= piece
            offset = 0
        index += 1


# --- rings ----------------------------------------------------------------------------------------

cdef enum:
    FIRST_SLOTS = 256
    MOST_SLOTS = 1 << 20

cdef struct Ring:
    uint32_t *slots           # index of a pair, plus 1; 0: free
    uint32_t mask
    uint32_t live
    uint32_t lowest           # every id in the slots lies in [lowest, highest)
    uint32_t highest

cdef struct Saying:
    uint32_t *ranges          # first, last, first, last ...
    uint32_t used
    uint32_t room

cdef enum:
    TO_SENDER_SETTLED = 0
    TO_SENDER_ACCEPTED = 1
    TO_RECEIVER_SETTLED = 2
    KINDS = 3


cdef int append_range(Saying *saying, uint32_t first, uint32_t last) except -1:
    cdef uint32_t *grown
    if saying.used + 2 > saying.room:
        grown = <uint32_t *>realloc(saying.ranges, (saying.room * 2 + 16) * sizeof(uint32_t))
        if grown == NULL:
            raise MemoryError
        saying.ranges = grown
        saying.room = saying.room * 2 + 16
    saying.ranges[saying.used] = first
    saying.ranges[saying.used + 1] = last
    saying.used += 2
    return 0


cdef uint32_t sort_base


cdef int compare_ranges(const void *left, const void *right) noexcept nogil:
    cdef uint32_t one = (<const uint32_t *>left)[0] - sort_base
    cdef uint32_t other = (<const uint32_t *>right)[0] - sort_base
    return (one > other) - (one < other)


# --- reading --------------------------------------------------------------------------------------

cdef struct Reader:
    const uint8_t *at
    const uint8_t *end
    bint is_bad               # a field ran beyond the end, or was not of its type


cdef inline uint32_t read_uint(Reader *reader) noexcept nogil:
    cdef uint32_t value = 0
    cdef const uint8_t *at = reader.at
    cdef Py_ssize_t left = reader.end - at
    if left >= 5 and at[0] == 0x70:
        value = load32(at + 1)
        reader.at = at + 5
    elif left >= 2 and at[0] == 0x52:
        value = at[1]
        reader.at = at + 2
    elif left >= 1 and at[0] == 0x43:
        reader.at = at + 1
    else:
        reader.is_bad = True
    return value


cdef inline bint read_flag(Reader *reader) noexcept nogil:
    cdef uint8_t code
    if reader.at >= reader.end:
        reader.is_bad = True
        return False
    code = reader.at[0]
    if not 0x40 <= code <= 0x42:
        reader.is_bad = True
    reader.at += 1
    return code == 0x41


cdef inline bint skip_null(Reader *reader) noexcept nogil:
    if reader.at < reader.end and reader.at[0] == 0x40:
        reader.at += 1
        return True
    return False


cdef inline bint needs_no_look(const uint8_t *at, const uint8_t *end) noexcept nogil:
    """Tells whether a payload begins with a section, and its header, if any, has no ttl."""
    cdef const uint8_t *field
    cdef const uint8_t *header_end
    cdef uint8_t count
    if end - at < 4 or at[0] != 0 or at[1] != 0x53 or not 0x70 <= at[2] <= 0x78:
        return False
    if at[2] != 0x70 or at[3] == 0x45:
        return True
    if at[3] != 0xC0 or end - at < 6:
        return False
    header_end = at + 5 + at[4]
    count = at[5]
    field = at + 6
    if field > header_end or header_end > end:
        return False
    if count > 0:  # durable
        if field >= header_end:
            return False
        field += 1 if 0x40 <= field[0] <= 0x42 else 2
    if count > 1:  # priority
        if field >= header_end:
            return False
        field += 1 if field[0] == 0x40 else 2
    return count <= 2 or (field < header_end and field[0] == 0x40)


# --- writing --------------------------------------------------------------------------------------

cdef inline uint8_t *write_uint(uint8_t *at, uint32_t value) noexcept nogil:
    if value >= 256:
        at[0] = 0x70
        store32(at + 1, value)
        return at + 5
    if value:
        at[0] = 0x52
        at[1] = value
        return at + 2
    at[0] = 0x43
    return at + 1


cdef inline uint8_t *write_frame_head(
    uint8_t *at, uint16_t channel, uint8_t code
) noexcept nogil:
    """Begins a frame whose performative is a list8; ``write_frame_sizes`` completes it."""
    at[4] = 2
    at[5] = 0
    at[6] = channel >> 8
    at[7] = channel & 0xFF
    at[8] = 0
    at[9] = 0x53
    at[10] = code
    at[11] = 0xC0
    return at + 14


cdef inline uint32_t write_frame_sizes(
    uint8_t *frame, uint8_t *end, uint8_t count
) noexcept nogil:
    store32(frame, <uint32_t>(end - frame))
    frame[12] = <uint8_t>(end - frame - 13)
    frame[13] = count
    return <uint32_t>(end - frame)


cdef inline uint8_t *write_part_head(
    uint8_t *frame, uint16_t channel, uint32_t handle, bint more
) noexcept nogil:
    """Writes all of a later transfer but its payload and size (§2.6.14)."""
    cdef uint8_t *at = write_uint(write_frame_head(frame, channel, 0x14), handle)
    if more:
        at[0] = at[1] = at[2] = at[3] = 0x40
        at[4] = 0x41
        at += 5
    write_frame_sizes(frame, at, 6 if more else 1)
    return at


# --- state ----------------------------------------------------------------------------------------

cdef class Output:
    """A connection's send buffer; see ``state.Output`` and ``octets.SendBuffer``."""

    cdef readonly int64_t octets
    cdef readonly int64_t sent
    cdef public int64_t high_octets
    cdef public int64_t low_octets
    cdef readonly bint congested
    cdef public object on_dirty
    cdef list blocked
    cdef Chunk *pen           # being written; NULL: none is
    cdef Segment *segments    # what waits: ``count`` of them, from ``first`` on
    cdef uint32_t first
    cdef uint32_t count
    cdef uint32_t room
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
        """Puts octets behind what waits."""
        cdef Py_buffer view
        PyObject_GetBuffer(octets, &view, PyBUF_SIMPLE)
        try:
            self.write(<const uint8_t *>view.buf, view.len)
        finally:
            PyBuffer_Release(&view)

    def extend(self, chunks, octets):
        """Puts many pieces behind what waits; ``octets`` is their sum."""
        for piece in chunks:
            self.append(piece)

    def peek(self):
        """Shows the first octets that wait; empty if there are none."""
        cdef Segment *shown
        if self.octets == 0:
            return memoryview(b"")
        shown = &self.segments[self.first]
        return memoryview(<object>shown.chunk.memory)[shown.begin:shown.end].toreadonly()

    def consume(self, Py_ssize_t count):
        """Forgets the first ``count`` octets, at most as many as ``peek`` has shown."""
        cdef Py_ssize_t shown = 0
        if self.count:
            shown = self.segments[self.first].end - self.segments[self.first].begin
        if not 0 <= count <= shown:
            raise MisuseError(f"{count} octets confirmed that were not shown")
        self.take_away(count)

    cdef int take_away(self, int64_t count) except -1:
        """Forgets the first ``count`` octets, which were sent."""
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
        """Gives room for ``octets`` in one chunk; ``written`` takes it."""
        self.before_write()
        if self.pen == NULL or self.pen.capacity - self.pen.fill < octets:
            self.add_chunk(octets)
        return self.pen.data + self.pen.fill

    cdef inline int written(self, uint32_t octets) except -1:
        self.refer(self.pen, self.pen.fill, octets)
        self.pen.fill += octets
        return 0

    cdef inline int refer(self, Chunk *chunk, uint32_t begin, uint32_t octets) except -1:
        """Puts octets behind what waits where they lie."""
        cdef Segment *last = NULL
        if self.count:
            last = &self.segments[self.first + self.count - 1]
        if last == NULL or last.chunk != chunk or last.end != begin:
            if self.first + self.count == self.room:
                self.make_room()
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

    cdef int make_room(self) except -1:
        """Makes room for one more segment."""
        cdef Segment *grown
        if self.first > self.room // 2:
            memmove(self.segments, self.segments + self.first, self.count * sizeof(Segment))
            self.first = 0
            return 0
        grown = <Segment *>realloc(self.segments, (self.room * 2 + 2) * sizeof(Segment))
        if grown == NULL:
            raise MemoryError
        self.segments = grown
        self.room = self.room * 2 + 2
        return 0

    cdef int add_chunk(self, uint32_t octets) except -1:
        """Makes room for at least ``octets``; chunks grow as long as they are filled."""
        cdef Chunk *chunk = new_chunk(max(octets, self.next_capacity))
        self.next_capacity = min(chunk.capacity * 4, LARGEST_CHUNK)
        if self.pen != NULL:
            self.drop_pen()
        chunk.output = <PyObject *>self
        self.pen = chunk
        return 0

    cdef void drop_pen(self) noexcept:
        """Writes no more into a chunk."""
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
        """Gives back what is not needed while nothing waits; chunks shrink that were half empty."""
        cdef Chunk *chunk = self.pen
        if self.octets or chunk == NULL or (chunk.pairs and chunk.fill < chunk.capacity):
            return
        if chunk.fill * 4 <= chunk.capacity:
            self.next_capacity = max(chunk.capacity // 4, SMALLEST_CHUNK)
        else:
            self.next_capacity = chunk.capacity
        self.drop_pen()


cdef class LinkState:
    """One link endpoint of ours; see ``state.LinkState``."""

    cdef object __weakref__
    cdef readonly object link
    cdef readonly str name
    cdef readonly object role
    cdef readonly SessionState session
    cdef public object owner
    cdef public uint32_t handle
    cdef public uint32_t delivery_count
    cdef public int64_t credit
    cdef public int64_t allowance
    cdef public int64_t granted
    cdef public bint is_open
    cdef public bint in_progress
    cdef public bint settles_second
    cdef public int sender_settle_mode
    cdef public int64_t max_message_octets
    cdef public int64_t deliveries
    cdef public int64_t payload_octets
    # the lane's own
    cdef readonly Lane lane
    cdef readonly int64_t unsettled
    cdef readonly int64_t carried
    cdef readonly int64_t carried_octets
    cdef readonly int64_t settled
    cdef readonly int64_t accepted
    cdef readonly uint64_t last_used
    cdef readonly int64_t frame_octets
    cdef readonly int64_t limit_octets
    cdef uint32_t gathered    # the pair of which more is to come; NONE: there is none
    cdef uint32_t slot        # in Express
    cdef uint32_t next_number
    cdef uint32_t answered    # pairs that only wait for their sender to settle
    cdef bint is_sender
    cdef bint is_far          # what comes from a far link goes to no far link
    cdef bint is_touched
    cdef uint32_t first_queued
    cdef uint32_t last_queued
    cdef uint32_t queued
    cdef LinkState next_waiting
    cdef uint8_t head[HEAD_ROOM]  # of a transfer frame, from behind its size to the delivery-id
    cdef uint32_t head_octets

    def __init__(self, link, str name, role, SessionState session not None):
        self.link = link
        self.name = name
        self.role = role
        self.session = session
        self.is_sender = role is Role.SENDER
        self.sender_settle_mode = 2
        self.slot = self.gathered = NONE
        self.first_queued = self.last_queued = NONE


cdef class SessionState:
    """One session endpoint of ours; see ``state.SessionState``."""

    cdef readonly ConnectionState connection
    cdef readonly Output output
    cdef readonly dict links
    cdef public object owner
    cdef public uint16_t channel
    cdef public uint32_t next_incoming_id
    cdef public int64_t incoming_window
    cdef public int64_t window_frames
    cdef public uint32_t next_outgoing_id
    cdef public int64_t outgoing_window
    cdef public int64_t remote_incoming_window
    cdef public int64_t remote_outgoing_window
    cdef public uint32_t next_outgoing_delivery
    cdef public bint is_open
    cdef public bint is_held
    cdef public object incoming
    cdef public object outgoing
    cdef public object waiting
    # the lane's own
    cdef int64_t expected     # next_incoming_delivery; -1: None
    cdef Express express      # whose pairs the rings hold; None: none yet
    cdef Ring came
    cdef Ring went
    cdef dict spilled_came
    cdef dict spilled_went
    cdef Saying sayings[KINDS]
    cdef bint is_speaking
    cdef list blocked
    cdef list gathering

    def __init__(self, ConnectionState connection not None, int64_t window_frames):
        self.connection = connection
        self.output = connection.output
        self.window_frames = window_frames
        self.incoming_window = window_frames
        self.outgoing_window = 0x7FFFFFFF

    def __cinit__(self, *_):
        self.links = {}
        self.incoming = self.outgoing = self.waiting = ()
        self.expected = -1
        self.blocked = []
        self.gathering = []

    def __dealloc__(self):
        free(self.came.slots)
        free(self.went.slots)
        for kind in range(KINDS):
            free(self.sayings[kind].ranges)

    @property
    def rings(self):
        """What the lane keeps for the session; None: nothing, no link of it is on a lane."""
        return self.express

    @property
    def next_incoming_delivery(self):
        return None if self.expected < 0 else self.expected

    @next_incoming_delivery.setter
    def next_incoming_delivery(self, value):
        self.expected = -1 if value is None else <uint32_t>value


cdef class ConnectionState:
    """One connection; see ``state.ConnectionState``."""

    cdef readonly Output output
    cdef readonly dict sessions
    cdef public object owner
    cdef public uint32_t max_frame_octets
    cdef public uint32_t max_incoming_frame_octets
    cdef public bint is_open
    cdef public bint has_input
    cdef public bint is_pending
    cdef public double heard_at
    # the lane's own
    cdef readonly int64_t lanes
    cdef readonly int64_t kept_octets
    cdef bint is_dirty
    # the carrier's own
    cdef readonly int descriptor  # of the socket; -1: it is not carried
    cdef public bint is_blocked   # the socket has taken no more; watched for room
    cdef readonly int64_t octets_in
    cdef readonly int64_t octets_out
    cdef uint8_t *tail        # the beginning of a frame of which more is to come
    cdef uint32_t tail_octets
    cdef bint is_slow         # the rest of that comes little by little

    def __cinit__(self):
        self.output = Output()
        self.sessions = {}
        self.max_frame_octets = 512
        self.max_incoming_frame_octets = 512
        self.descriptor = -1

    def __dealloc__(self):
        free(self.tail)

    def take_tail(self, octets):
        """Puts octets behind the beginning of a frame that was left here."""
        cdef bytes tail
        if not self.tail_octets:
            return octets
        tail = PyBytes_FromStringAndSize(<const char *>self.tail, self.tail_octets)
        drop_tail(self)
        return tail + octets

    def keep_tail(self, bytes octets not None, Py_ssize_t at):
        """Takes what remains, the beginning of a frame, if the carrier can go on with it."""
        cdef Py_ssize_t left = PyBytes_GET_SIZE(octets) - at
        if self.is_slow:
            self.is_slow = False
            return False
        if not 0 < left <= LARGEST_CARRIED or not may_carry(self):
            return False
        return keep_tail(self, <const uint8_t *>PyBytes_AS_STRING(octets) + at, left)


cdef inline bint may_carry(ConnectionState state) noexcept:
    """Tells whether the carrier may read what comes next."""
    return (
        state.descriptor >= 0
        and state.lanes > 0
        and state.is_open
        and not state.has_input
        and state.max_incoming_frame_octets <= LARGEST_CARRIED
    )


cdef inline void drop_tail(ConnectionState state) noexcept:
    if state.tail_octets:
        free(state.tail)
        state.tail = NULL
        state.tail_octets = 0


cdef bint keep_tail(ConnectionState state, const uint8_t *at, Py_ssize_t octets) except -1:
    """Keeps what is the beginning of a frame, and no more than that; false: it is not."""
    cdef uint32_t size = load32(at) if octets >= 4 else LARGEST_CARRIED
    if size <= octets or size > state.max_incoming_frame_octets:
        if octets >= 4:
            return False
    drop_tail(state)
    state.tail = <uint8_t *>malloc(octets)
    if state.tail == NULL:
        raise MemoryError
    memcpy(state.tail, at, octets)
    state.tail_octets = <uint32_t>octets
    return True


# --- lanes ----------------------------------------------------------------------------------------

cdef class Lane:
    """One node's forwarding; see ``_lane_py.Lane``."""

    cdef Express express
    cdef readonly int64_t credit
    cdef readonly list incoming
    cdef readonly list outgoing
    cdef readonly int64_t width
    cdef int64_t near_width   # the same without far links
    cdef bint is_crossed      # far links are on both sides
    cdef readonly bint only_settled
    cdef readonly int64_t limit_octets
    cdef readonly bint takes_settled
    cdef readonly bint takes_unsettled
    cdef list touched
    cdef bint is_touched
    cdef bint is_measured
    cdef uint64_t turn
    cdef LinkState first_waiting
    cdef LinkState last_waiting
    cdef int64_t waiting

    def __init__(self, Express express not None, int64_t credit, bint only_settled):
        self.express = express
        self.credit = credit
        self.only_settled = only_settled
        self.incoming = []
        self.outgoing = []
        self.touched = []
        self.limit_octets = -1

    # links come and go

    def add_incoming(self, link, bint is_far=False):
        """Lets a link that receives take part."""
        cdef LinkState state = self.join(link, False)
        state.is_far = is_far
        self.incoming.append(state)
        self.measure_far()
        self.touch(state)

    def add_outgoing(self, link, bint is_far=False):
        """Lets a link that sends take part; false: it could not take what waits here."""
        cdef LinkState state = self.express.find(link)
        cdef int64_t fits = min(state.session.connection.max_frame_octets, LARGEST_FRAME)
        cdef uint8_t frame[4 + HEAD_ROOM]
        cdef uint8_t *end
        fits -= TRANSFER_OCTETS
        state.frame_octets = fits
        if state.session.remote_incoming_window >= MOST_FRAMES:
            fits *= MOST_FRAMES
        state.limit_octets = fits
        if 0 < state.max_message_octets < fits:
            state.limit_octets = state.max_message_octets
        if self.waiting and self.narrows(state):
            return False
        self.join(link, True)
        state.is_far = is_far
        write_frame_head(frame, state.session.channel, 0x14)
        end = write_uint(frame + 14, state.handle)
        end[0] = 0x70
        end += 1
        write_frame_sizes(frame, end + 4 + 6 + 2, 5)
        state.head_octets = <uint32_t>(end - frame - 4)
        memcpy(state.head, frame + 4, HEAD_ROOM)
        self.outgoing.append(state)
        self.measure()
        self.pump()
        return True

    cdef LinkState join(self, link, bint is_sender):
        cdef LinkState state = self.express.find(link)
        if state.lane is not None or state.is_sender != is_sender:
            role = "sender" if is_sender else "receiver"
            raise MisuseError(f"link {link} cannot join a lane as {role}")
        self.express.hold(state.session)
        self.express.take_slot(state)
        state.lane = self
        state.session.connection.lanes += 1
        return state

    cdef bint narrows(self, LinkState state):
        return len(self.outgoing) != 0 and (
            state.limit_octets < self.limit_octets
            or (self.takes_settled and state.sender_settle_mode == 0)
            or (self.takes_unsettled and state.sender_settle_mode == 1)
        )

    cdef int leave(self, LinkState state) except -1:
        state.lane = None
        state.session.connection.lanes -= 1
        self.express.free_slot(state)
        if not state.is_open:
            self.express.forget(state)
        return 0

    cdef int measure(self) except -1:
        """Takes note that outgoing links, or what they grant, may have changed."""
        cdef LinkState link
        self.width = self.near_width = 0
        self.limit_octets = -1
        self.takes_settled = True
        self.takes_unsettled = not self.only_settled
        self.measure_far()
        for link in self.outgoing:
            self.width += link.granted
            if not link.is_far:
                self.near_width += link.granted
            if self.limit_octets < 0 or link.limit_octets < self.limit_octets:
                self.limit_octets = link.limit_octets
            if link.sender_settle_mode == 0:
                self.takes_settled = False
            elif link.sender_settle_mode == 1:
                self.takes_unsettled = False
        self.is_measured = True
        if not self.is_touched:
            self.is_touched = True
            self.express.touched.append(self)
        return 0

    cdef int measure_far(self) except -1:
        """Takes note that links may have come or gone."""
        cdef LinkState link
        cdef LinkState other
        self.is_crossed = False
        for link in self.incoming:
            if link.is_far:
                for other in self.outgoing:
                    if other.is_far:
                        self.is_crossed = True
                return 0
        return 0

    def remove_incoming(self, link):
        """Lets a link go with all that came on it and is not settled."""
        cdef LinkState state = self.express.find(link)
        if state.lane is not self:
            raise MisuseError(f"link {link} is not on this lane")
        if state.gathered != NONE:
            self.express.hand_over(state)
        queued = {link: self.empty(state)}
        pairs = self.express.give_up_link(state)
        self.incoming.remove(state)
        self.measure_far()
        if state in self.touched:
            self.touched.remove(state)
        state.is_touched = False
        self.leave(state)
        return Remains(queued, pairs, {link: state.credit}, {})

    def remove_outgoing(self, link):
        """Lets a link go with all that went to it and that it has not settled."""
        cdef LinkState state = self.express.find(link)
        if state.lane is not self:
            raise MisuseError(f"link {link} is not on this lane")
        pairs = self.express.give_up_link(state)
        self.outgoing.remove(state)
        self.leave(state)
        self.measure()
        return Remains({}, pairs, {link: state.credit}, {link: state.granted})

    def close(self):
        """Lets all links go."""
        cdef LinkState state
        queued = {}
        pairs = []
        credits = {}
        granted = {}
        parts = [self.remove_incoming(state.link) for state in tuple(self.incoming)]
        parts += [self.remove_outgoing(state.link) for state in tuple(self.outgoing)]
        for part in parts:
            queued |= part.queued
            pairs += part.pairs
            credits |= part.credits
            granted |= part.granted
        return Remains(queued, pairs, credits, granted)

    cdef list empty(self, LinkState state):
        """Takes what waits out of a link's queue."""
        cdef Pair *pair
        cdef uint32_t index
        cdef bint is_second
        cdef list queued = []
        while state.queued:
            index = self.express.take_queued(state)
            pair = self.express.pair_at(index)
            settled = (pair.flags & SETTLED) != 0
            is_second = (pair.flags & SECOND) != 0
            tag = tag_bytes(pair)
            delivery = received(pair, settled, is_second)
            an_id = pair.in_id
            self.express.keep(state, -<int64_t>pair.octets)
            self.express.free_pair(index)
            queued.append(delivery)
            if not settled and state.is_open and state.session.is_open:
                state.session.owner.adopt_incoming(state, an_id, tag, is_second)
        self.stop_waiting(state)
        return queued

    cdef int stop_waiting(self, LinkState state) except -1:
        cdef LinkState each = self.first_waiting
        cdef LinkState before = None
        while each is not None and each is not state:
            before = each
            each = each.next_waiting
        if each is None:
            return 0
        if before is None:
            self.first_waiting = state.next_waiting
        else:
            before.next_waiting = state.next_waiting
        if self.last_waiting is state:
            self.last_waiting = before
        state.next_waiting = None
        self.waiting -= 1
        return 0

    cdef int wait(self, LinkState state) except -1:
        """Puts a link at the end of those with something queued."""
        if self.last_waiting is None:
            self.first_waiting = state
        else:
            self.last_waiting.next_waiting = state
        self.last_waiting = state
        self.waiting += 1
        return 0

    def put(self, link, deliveries):
        """Takes deliveries over that came on an incoming link by the general path."""
        cdef LinkState state = self.express.find(link)
        cdef bytes tag
        cdef bytes payload
        if state.lane is not self or state.is_sender:
            raise MisuseError(f"link {link} brings nothing to this lane")
        for delivery in deliveries:
            tag = delivery.tag
            payload = delivery.payload
            if tag is None or payload is None:  # what Cython lets pass as octets
                raise MisuseError("a delivery needs a tag and a payload")
            if PyBytes_GET_SIZE(payload) > self.limit_octets or PyBytes_GET_SIZE(tag) > 32:
                raise MisuseError(f"a payload is beyond {self.limit_octets} octets")
            if not delivery.settled:
                state.session.incoming.pop(delivery.number, None)
            self.express.queue(
                self,
                state,
                delivery.number,
                <const uint8_t *>PyBytes_AS_STRING(tag),
                <uint32_t>PyBytes_GET_SIZE(tag),
                <const uint8_t *>PyBytes_AS_STRING(payload),
                <uint32_t>PyBytes_GET_SIZE(payload),
                delivery.settled,
            )
            state.carried += 1
            state.carried_octets += PyBytes_GET_SIZE(payload)
            state.settled += 1 if delivery.settled else 0
        self.touch(state)
        self.pump()

    def queued(self, link):
        """Tells how many deliveries of a link wait for credit."""
        return self.express.find(link).queued

    def statistics(self, link):
        """Tells what a link has done."""
        cdef LinkState state = self.express.find(link)
        return LaneStatistics(
            deliveries=state.carried,
            octets=state.carried_octets,
            settled=state.settled,
            accepted=state.accepted,
            unsettled=state.unsettled,
            queued=state.queued,
            credit=state.credit,
            granted=state.granted,
        )

    def relieve(self):
        """Takes note that a connection is no longer congested."""
        self.express.relieved.append(self)

    def came(self, LinkState link not None):
        """Takes note that something came on an incoming link by the general path."""
        if link.lane is not self or link.is_sender:
            raise MisuseError(f"link {link.link} brings nothing to this lane")
        self.touch(link)

    # deliveries

    cdef inline int touch(self, LinkState link) except -1:
        if not link.is_touched:
            link.is_touched = True
            self.touched.append(link)
            if not self.is_touched:
                self.is_touched = True
                self.express.touched.append(self)
        return 0

    cdef inline bint is_able(self, LinkState link, uint32_t octets) except -1:
        """Tells whether a link can be sent a payload now.

        If only room is missing, it sees to being told of it.
        """
        cdef int64_t window = link.session.remote_incoming_window
        cdef list blocked
        if link.credit <= 0 or not link.is_open or link.in_progress:
            return False
        if window <= 0 or octets > window * link.frame_octets:
            blocked = link.session.blocked
        elif link.session.output.congested:
            blocked = link.session.output.blocked
        else:
            return True
        if self not in blocked:
            blocked.append(self)
        return False

    cdef LinkState choose(self, LinkState source, uint32_t octets):
        """Chooses who gets a link's next delivery: the balanced rule of ``routes.distribution``."""
        cdef LinkState link
        cdef LinkState best = None
        for link in self.outgoing:
            if (link.is_far and source.is_far) or not self.is_able(link, octets):
                continue
            if (
                best is None
                or link.unsettled < best.unsettled
                or (link.unsettled == best.unsettled and link.last_used < best.last_used)
            ):
                best = link
        return best

    cdef int pump(self) except -1:
        """Sends on what waits, as far as there is credit: links in rotation, a share each."""
        cdef LinkState link
        cdef LinkState out
        cdef int64_t room
        cdef int64_t stuck = 0  # links in a row that could send nothing
        cdef uint32_t before
        while stuck < self.waiting:
            room = 0
            link = self.first_waiting
            for out in self.outgoing:
                if not (out.is_far and link.is_far) and self.is_able(out, 1):
                    room += out.credit
            if not room and not self.is_crossed:
                return 0
            before = link.queued
            if room:
                self.express.send_queued(self, link, max(LEAST_SHARE, room // self.waiting))
                self.touch(link)
            stuck = stuck + 1 if link.queued == before else 0
            self.stop_waiting(link)
            if link.queued:
                self.wait(link)
        return 0


# --- the kernel -----------------------------------------------------------------------------------

cdef class Express:
    """The Cython twin of the kernel; see ``express.Express`` for its interface."""

    cdef public int64_t octet_budget
    cdef public int64_t connection_budget
    cdef readonly int64_t kept_octets
    cdef object links         # id -> LinkState, weak: engines and lanes keep them
    cdef list slots           # slot -> LinkState of a lane; None: free
    cdef list free_slots
    cdef list dirty
    cdef list speaking
    cdef list touched
    cdef list relieved
    cdef list starved
    cdef Pair **segments
    cdef uint32_t segment_count
    cdef uint32_t free_pairs  # the first free one; NONE: none is
    cdef uint32_t *found      # indices of pairs, by ``find_pairs``
    cdef uint32_t found_room
    cdef Chunk *keeper
    cdef Chunk *inbox         # what is being read lies there; NULL: it lies elsewhere
    cdef uint64_t compact_at
    cdef Carrier carrier      # None: there is none

    def __init__(self, int64_t octet_budget=256 << 20, int64_t connection_budget=64 << 20):
        self.octet_budget = octet_budget
        self.connection_budget = connection_budget

    def __cinit__(self, *_, **__):
        self.links = WeakValueDictionary()
        self.slots = []
        self.free_slots = []
        self.dirty = []
        self.speaking = []
        self.touched = []
        self.relieved = []
        self.starved = []
        self.free_pairs = NONE
        self.compact_at = FIRST_COMPACTION

    def __dealloc__(self):
        cdef uint32_t index
        for index in range(self.segment_count * SLAB):
            if self.pair_at(index).flags & LIVE:
                self.free_pair(index)
        if self.keeper != NULL:
            self.keeper.is_kept = 0
            if self.keeper.segments == 0:
                free_chunk(self.keeper)
        for index in range(self.segment_count):
            free(self.segments[index])
        free(self.segments)
        free(self.found)

    @property
    def kind(self):
        """Which twin this is."""
        return "cython"

    @property
    def states(self):
        """The classes of hot state that go with this twin: this module."""
        return THIS_MODULE

    # what engines, core and data plane ask

    def register(self, LinkState link not None):
        """Makes a link known that has been attached on both sides."""
        self.links[link.link] = link

    cpdef forget(self, LinkState link):
        """Takes note that a link is detached; what its lane knows stays until the lane lets go."""
        link.is_open = False
        if link.lane is None:
            self.links.pop(link.link, None)

    cdef int take_slot(self, LinkState link) except -1:
        """Gives a link a number that pairs know it by."""
        if link.slot == NONE:
            if self.free_slots:
                link.slot = self.free_slots.pop()
                self.slots[link.slot] = link
            else:
                link.slot = <uint32_t>len(self.slots)
                self.slots.append(link)
        return 0

    cdef int free_slot(self, LinkState link) except -1:
        """Takes the number back, unless some pair still needs it."""
        if link.lane is None and not link.answered and link.slot != NONE:
            self.slots[link.slot] = None
            self.free_slots.append(link.slot)
            link.slot = NONE
        return 0

    def knows(self, link):
        """Tells whether a link is registered, so that it may join a lane."""
        cdef LinkState found = self.links.get(link)
        return found is not None and found.is_open

    cdef LinkState find(self, link):
        found = self.links.get(link)
        if found is None:
            raise MisuseError(f"link {link} is not known to the express lane")
        return found

    def open_lane(self, int64_t credit, bint only_settled=False):
        """Opens a lane whose incoming links are granted ``credit`` deliveries at most."""
        return Lane(self, credit, only_settled)

    def make_carrier(self, int poller, take, fail):
        """Makes what receives and sends for connections on the lane; see ``express.Express``."""
        if not CARRIES:
            return None
        self.carrier = Carrier(self, poller, take, fail)
        return self.carrier

    def end_turn(self):
        """Writes what the turn left; returns owners of connections that have got output.

        Where a carrier has sent it all, there is nothing left to be done.
        """
        cdef Lane lane
        cdef ConnectionState connection
        cdef list dirty
        cdef list left = []
        while True:
            while self.relieved:
                relieved = self.relieved
                self.relieved = []
                for lane in relieved:
                    lane.pump()
            self.flush()
            self.grant()
            if chunk_octets > self.compact_at:
                self.compact()
            dirty = self.dirty
            if not dirty:
                return left
            self.dirty = []
            for connection in dirty:
                connection.is_dirty = False
                if connection.descriptor < 0 or not self.carrier.send(connection):
                    left.append(connection.owner)
            if not self.relieved:  # sending has made room for nothing that waits
                return left

    cpdef opened(self, SessionState session, LinkState link):
        """Takes note that the engine has taken in a flow: window or credit may have grown."""
        cdef Lane lane
        if session.blocked and session.remote_incoming_window > 0:
            blocked = session.blocked
            session.blocked = []
            for lane in blocked:
                lane.pump()
        if link is not None and link.lane is not None and link.is_sender:
            link.lane.measure()
            link.lane.pump()

    def evict(self, SessionState session not None, bint outgoing, uint32_t first, uint32_t last):
        """Gives up the lane's pairs from ``first`` to ``last``, ids of the session's direction."""
        cdef uint32_t count
        if session.express is not self or <uint32_t>(last - first) >= HALF:
            return []
        if outgoing:
            count = self.find_pairs(&session.went, session.spilled_went, first, last)
        else:
            count = self.find_pairs(&session.came, session.spilled_came, first, last)
        return self.give_up([self.found[each] for each in range(count)]) if count else []

    cdef int hold(self, SessionState session) except -1:
        """Makes a session's rings ready for this kernel's pairs."""
        if session.express is None:
            session.express = self
            session.spilled_came = {}
            session.spilled_went = {}
        elif session.express is not self:
            raise MisuseError("the session is known to another express lane")
        return 0

    # frames

    def feed(self, ConnectionState connection not None, buffer, Py_ssize_t position, Py_ssize_t end):
        """Takes frames from ``position`` on; returns where the first one begins that it leaves."""
        cdef Py_buffer view
        if not connection.lanes or not connection.is_open:
            return position
        PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
        try:
            if 0 <= position <= end <= view.len:
                return self.take_frames(connection, <const uint8_t *>view.buf, position, end)
            raise MisuseError(f"octets {position} to {end} of {view.len} to be read")
        finally:
            PyBuffer_Release(&view)

    cdef Py_ssize_t take_frames(
        self, ConnectionState connection, const uint8_t *data, Py_ssize_t position, Py_ssize_t end
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
        while end - position >= 12:
            frame = data + position
            size = load32(frame)
            if size > end - position or size < 12 or size > largest:
                break
            if frame[4] != 2 or frame[5] != 0 or frame[8] != 0 or frame[9] != 0x53:
                break
            if (frame[6] << 8 | frame[7]) != channel:
                channel = frame[6] << 8 | frame[7]
                found = PyDict_GetItem(connection.sessions, channel)
                if found == NULL or not isinstance(<object>found, SessionState):
                    break
                session = <SessionState>found
            if not session.is_open or session.express is not self:
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
                    self.hand_over_all(session)
                break
            reader.end = list_end
            reader.is_bad = False
            if frame[10] == 0x14:
                is_taken = self.take_transfer(session, &reader, count, frame + size)
            elif list_end != frame + size:
                is_taken = False
            elif frame[10] == 0x15:
                is_taken = self.take_disposition(session, &reader, count)
            elif frame[10] == 0x13:
                is_taken = self.take_flow(session, &reader, count)
            else:
                is_taken = False
            if not is_taken:
                if frame[10] == 0x14 and session.gathering:
                    self.hand_over_all(session)
                break
            position += size
        return position

    # transfers

    cdef inline bint take_transfer(
        self, SessionState session, Reader *reader, uint32_t count, const uint8_t *end
    ) except -1:
        """Takes a transfer that is a whole delivery and needs no look (§2.7.5)."""
        cdef uint32_t handle
        cdef uint32_t an_id = 0
        cdef uint32_t field
        cdef const uint8_t *tag = NULL
        cdef uint32_t tag_octets = 0
        cdef const uint8_t *payload = reader.end
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
        found = PyDict_GetItem(session.links, handle)
        if found == NULL or not isinstance(<object>found, LinkState):
            return False
        link = <LinkState>found
        if link.gathered != NONE:
            return self.take_part(
                link, an_id, has_id, tag, tag_octets, settled, more, payload, end - payload
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
            or not (lane.takes_settled if settled else lane.takes_unsettled)
            or (link.sender_settle_mode != 2 and settled != (link.sender_settle_mode == 1))
        ):
            return False
        self.count_in(link, an_id)
        if more:
            self.gather(lane, link, an_id, tag, tag_octets, payload, <uint32_t>(end - payload), settled)
            return True
        self.forward(lane, link, an_id, tag, tag_octets, payload, <uint32_t>(end - payload), settled)
        return True

    cdef inline int forward(
        self,
        Lane lane,
        LinkState link,
        uint32_t an_id,
        const uint8_t *tag,
        uint32_t tag_octets,
        const uint8_t *payload,
        uint32_t octets,
        bint settled,
    ) except -1:
        """Takes a delivery in and sends it on, or queues it."""
        cdef LinkState out = None
        self.count_frame(link.session)
        link.carried += 1
        link.carried_octets += octets
        lane.touch(link)
        if not lane.waiting or (lane.is_crossed and not link.queued):
            out = lane.choose(link, octets)
        if out is not None and octets <= out.frame_octets and not self.is_referable(payload, octets):
            self.send(lane, link, out, an_id, tag, tag_octets, payload, octets, settled)
        else:
            self.queue(lane, link, an_id, tag, tag_octets, payload, octets, settled)
            if out is not None:
                self.send_pair(lane, link, out, self.take_queued(link))
                lane.stop_waiting(link)
                out = None
        if settled:
            link.settled += 1
        if out is not None and not settled:
            self.keep(link, octets)
        return 0

    cdef inline void count_in(self, LinkState link, uint32_t an_id) noexcept:
        """Counts a delivery that has come, or begun to."""
        link.session.expected = <uint32_t>(an_id + 1)
        link.delivery_count += 1
        link.credit -= 1
        link.allowance -= 1

    cdef inline void count_frame(self, SessionState session) noexcept:
        """Counts a transfer frame that has come (§2.5.6)."""
        session.next_incoming_id += 1
        session.incoming_window -= 1
        if session.remote_outgoing_window > 0:
            session.remote_outgoing_window -= 1

    # deliveries in parts

    cdef int gather(
        self,
        Lane lane,
        LinkState link,
        uint32_t an_id,
        const uint8_t *tag,
        uint32_t tag_octets,
        const uint8_t *payload,
        uint32_t octets,
        bint settled,
    ) except -1:
        """Begins to gather a delivery that comes in parts."""
        cdef uint32_t index = self.new_pair()
        cdef Pair *pair = self.pair_at(index)
        self.fill_pair(pair, link, an_id, tag, tag_octets)
        pair.flags |= QUEUED
        if settled:
            pair.flags = (pair.flags | SETTLED) & ~SECOND
        link.gathered = index
        link.session.gathering.append(link)
        return self.gather_more(lane, link, payload, octets, True)

    cdef bint take_part(
        self,
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
        """Takes a later transfer of a delivery (§2.6.14)."""
        cdef Pair *pair = self.pair_at(link.gathered)
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
        ):
            return False
        self.gather_more(link.lane, link, payload, <uint32_t>octets, more)
        return True

    cdef int gather_more(
        self, Lane lane, LinkState link, const uint8_t *payload, uint32_t octets, bint more
    ) except -1:
        """Adds a part; the last one completes the delivery."""
        cdef uint32_t index = link.gathered
        cdef Pair *pair = self.pair_at(index)
        self.count_frame(link.session)
        self.add_part(pair, payload, octets)
        self.keep(link, octets)
        lane.touch(link)
        if more:
            return 0
        link.gathered = NONE
        link.session.gathering.remove(link)
        link.carried += 1
        link.carried_octets += pair.octets
        if pair.flags & SETTLED:
            link.settled += 1
        self.enqueue(lane, link, index)
        return lane.pump()

    cdef int hand_over(self, LinkState link) except -1:
        """Gives a delivery of which more is to come to the engine."""
        cdef uint32_t index = link.gathered
        cdef Pair *pair = self.pair_at(index)
        an_id = pair.in_id
        tag = tag_bytes(pair)
        settled = (pair.flags & SETTLED) != 0
        is_second = (pair.flags & SECOND) != 0
        payload = payload_bytes(pair)
        link.gathered = NONE
        link.session.gathering.remove(link)
        self.keep(link, -<int64_t>pair.octets)
        self.free_pair(index)
        if link.is_open and link.session.is_open:
            link.session.owner.adopt_partial(link, an_id, tag, settled, is_second, payload)
        return 0

    cdef int hand_over_all(self, SessionState session) except -1:
        """Does so for all of a session's links: the frame may name its own as it likes."""
        cdef LinkState link
        for link in tuple(session.gathering):
            self.hand_over(link)
        return 0

    cdef int add_part(self, Pair *pair, const uint8_t *payload, uint32_t octets) except -1:
        """Keeps a further part of a payload."""
        cdef Parts *parts = <Parts *>pair.chunk
        cdef Parts *grown
        cdef Part *last
        cdef uint32_t room
        cdef uint32_t offset
        cdef Chunk *chunk
        if parts == NULL or parts.count == parts.room:
            room = 4 if parts == NULL else parts.room * 2
            grown = <Parts *>realloc(parts, sizeof(Parts) + room * sizeof(Part))
            if grown == NULL:
                raise MemoryError
            if parts == NULL:
                grown.count = 0
                pair.flags |= PARTED
                pair.octets = 0
            grown.room = room
            parts = grown
            pair.chunk = <Chunk *>parts
        chunk = self.place(payload, octets, &offset)
        if parts.count:
            last = &parts.part[parts.count - 1]
            if last.chunk == chunk and last.offset + last.octets == offset:
                last.octets += octets
                pair.octets += octets
                chunk.live += octets
                return 0
        last = &parts.part[parts.count]
        last.chunk = chunk
        last.offset = offset
        last.octets = octets
        parts.count += 1
        pair.octets += octets
        chunk.pairs += 1
        chunk.live += octets
        return 0

    # queues

    cdef int queue(
        self,
        Lane lane,
        LinkState link,
        uint32_t an_id,
        const uint8_t *tag,
        uint32_t tag_octets,
        const uint8_t *payload,
        uint32_t octets,
        bint settled,
    ) except -1:
        """Keeps a delivery until a receiver has credit."""
        cdef uint32_t index = self.new_pair()
        cdef Pair *pair = self.pair_at(index)
        cdef uint32_t piece
        cdef uint32_t offset
        cdef Chunk *chunk
        self.fill_pair(pair, link, an_id, tag, tag_octets)
        pair.flags |= QUEUED
        if settled:
            pair.flags = (pair.flags | SETTLED) & ~SECOND
        if octets <= LARGEST_FRAME:
            chunk = self.place(payload, octets, &offset)
            self.lay(pair, chunk, offset, octets)
        else:
            while octets:
                piece = min(octets, <uint32_t>LARGEST_FRAME)
                self.add_part(pair, payload, piece)
                payload += piece
                octets -= piece
        self.keep(link, pair.octets)
        return self.enqueue(lane, link, index)

    cdef int enqueue(self, Lane lane, LinkState link, uint32_t index) except -1:
        """Puts a delivery that is kept at the end of its link's queue."""
        self.pair_at(index).out_id = NONE
        if link.queued == 0:
            link.first_queued = index
            lane.wait(link)
        else:
            self.pair_at(link.last_queued).out_id = index
        link.last_queued = index
        link.queued += 1
        return 0

    cdef uint32_t take_queued(self, LinkState link) noexcept:
        """Takes the first delivery of a link's queue out."""
        cdef uint32_t index = link.first_queued
        link.first_queued = self.pair_at(index).out_id
        link.queued -= 1
        return index

    cdef int send_queued(self, Lane lane, LinkState link, int64_t share) except -1:
        """Sends up to ``share`` deliveries of a link's queue."""
        cdef LinkState out
        while link.queued and share:
            out = lane.choose(link, self.pair_at(link.first_queued).octets)
            if out is None:
                return 0
            self.send_pair(lane, link, out, self.take_queued(link))
            share -= 1
        return 0

    cdef inline int send(
        self,
        Lane lane,
        LinkState link,
        LinkState out,
        uint32_t an_id,
        const uint8_t *tag,
        uint32_t tag_octets,
        const uint8_t *payload,
        uint32_t octets,
        bint settled,
    ) except -1:
        """Writes the one transfer of a delivery that has just come."""
        cdef SessionState session = out.session
        cdef Output output = session.output
        cdef uint8_t *frame = output.reserve(TRANSFER_OCTETS + HEAD_ROOM + octets)
        cdef uint8_t *at = self.write_transfer(frame, out, settled, False)
        cdef uint32_t index
        cdef Pair *pair
        memcpy(at, payload, octets)
        store32(frame, <uint32_t>(at + octets - frame))
        output.written(<uint32_t>(at + octets - frame))
        session.next_outgoing_id += 1
        session.remote_incoming_window -= 1
        if settled:
            out.settled += 1
        else:
            index = self.new_pair()
            pair = self.pair_at(index)
            self.fill_pair(pair, link, an_id, tag, tag_octets)
            self.lay(pair, output.pen, <uint32_t>(at - output.pen.data), octets)
            self.remember(link, out, index)
        self.count_out(lane, out, octets)
        return 0

    cdef int send_pair(self, Lane lane, LinkState link, LinkState out, uint32_t index) except -1:
        """Writes a delivery that is kept, in as many transfers as it needs."""
        cdef Pair *pair = self.pair_at(index)
        cdef SessionState session = out.session
        cdef Output output = session.output
        cdef bint settled = (pair.flags & SETTLED) != 0
        cdef uint32_t octets = pair.octets
        cdef uint32_t done = 0
        cdef uint32_t part
        cdef bint more
        cdef bint is_copied
        cdef uint8_t *frame
        cdef uint8_t *at
        while True:
            part = min(octets - done, <uint32_t>out.frame_octets)
            more = done + part < octets
            is_copied = part < LEAST_REFERENCE
            frame = output.reserve(TRANSFER_OCTETS + HEAD_ROOM + (part if is_copied else 0))
            if done:
                at = write_part_head(frame, session.channel, out.handle, more)
            else:
                at = self.write_transfer(frame, out, settled, more)
            store32(frame, <uint32_t>(at - frame) + part)
            if is_copied:
                copy_payload(pair, done, part, at)
                at += part
            output.written(<uint32_t>(at - frame))
            if not is_copied:
                refer_payload(pair, done, part, output)
            session.next_outgoing_id += 1
            session.remote_incoming_window -= 1
            done += part
            if not more:
                break
        if settled:
            out.settled += 1
            self.keep(link, -<int64_t>octets)
            self.free_pair(index)
        else:
            pair.flags &= ~QUEUED
            self.remember(link, out, index)
        self.count_out(lane, out, octets)
        return 0

    cdef inline uint8_t *write_transfer(
        self, uint8_t *frame, LinkState out, bint settled, bint more
    ) noexcept:
        """Writes all of a delivery's first transfer but its payload and size."""
        cdef SessionState session = out.session
        cdef uint32_t out_id = session.next_outgoing_delivery
        cdef uint8_t *at
        if out_id >= 256 and not more:
            memcpy(frame + 4, out.head, HEAD_ROOM)
            at = frame + 4 + out.head_octets
            store32(at, out_id)
            at += 4
        else:
            at = write_frame_head(frame, session.channel, 0x14)
            at = write_uint(at, out.handle)
            at = write_uint(at, out_id)
            write_frame_sizes(frame, at + 8 + more, 6 if more else 5)
        at[0] = 0xA0
        at[1] = 4
        store32(at + 2, LANE_NUMBERS + out.next_number)
        at[6] = 0x43
        at[7] = 0x41 if settled else 0x42
        if more:
            at[8] = 0x41
            at += 1
        return at + 8

    cdef inline int remember(self, LinkState link, LinkState out, uint32_t index) except -1:
        """Enters a delivery that is being sent into the rings."""
        cdef Pair *pair = self.pair_at(index)
        cdef SessionState session = out.session
        pair.out = out.slot
        pair.out_id = session.next_outgoing_delivery
        pair.number = LANE_NUMBERS + out.next_number
        self.put(&link.session.came, link.session.spilled_came, True, pair.in_id, index)
        self.put(&session.went, session.spilled_went, False, pair.out_id, index)
        link.unsettled += 1
        out.unsettled += 1
        return 0

    cdef inline int count_out(self, Lane lane, LinkState out, uint32_t octets) except -1:
        """Counts a delivery that has been sent."""
        cdef SessionState session = out.session
        session.next_outgoing_delivery += 1
        out.next_number = (out.next_number + 1) & 0x7FFFFFFF
        out.credit -= 1
        out.delivery_count += 1
        out.carried += 1
        out.carried_octets += octets
        lane.turn += 1
        out.last_used = lane.turn
        if not session.connection.is_dirty:
            self.soil(session.connection)
        return 0

    # dispositions

    cdef bint take_disposition(
        self, SessionState session, Reader *reader, uint32_t count
    ) except -1:
        """Takes accepted, and a sender's settling, of deliveries of the lane (§2.7.6)."""
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
            return is_accepted and self.take_outcome(session, first, last, settled)
        return settled and self.take_settling(session, first, last)

    cdef bint take_outcome(
        self, SessionState session, uint32_t first, uint32_t last, bint settled
    ) except -1:
        """Takes accepted from a receiver; false if there may be more in it than for the lane."""
        cdef uint32_t count = self.find_pairs(&session.went, session.spilled_went, first, last)
        cdef bint is_mixed = count <= <uint32_t>(last - first) and len(session.outgoing) > 0
        cdef uint32_t each
        cdef uint32_t index
        cdef Pair *pair
        cdef LinkState link
        cdef LinkState out
        if is_mixed:
            for each in range(count):
                if self.pair_at(self.found[each]).flags & SECOND:
                    return False
        for each in range(count):
            index = self.found[each]
            pair = self.pair_at(index)
            link = <LinkState>self.slots[pair.link]
            if not pair.flags & SECOND:
                self.say(link.session, TO_SENDER_SETTLED, pair.in_id)
                if not settled:
                    self.say(session, TO_RECEIVER_SETTLED, pair.out_id)
                self.clear(&session.went, session.spilled_went, pair.out_id, index)
                out = <LinkState>self.slots[pair.out]
                out.unsettled -= 1
                out.accepted += 1
                link.accepted += 1
                link.lane.touch(link)
                self.drop(link, index)
                continue
            out = <LinkState>self.slots[pair.out]
            if not pair.flags & TOLD:
                pair.flags |= TOLD
                out.accepted += 1
                link.accepted += 1
                self.say(link.session, TO_SENDER_ACCEPTED, pair.in_id)
            if settled:
                pair.flags |= DONE
                self.clear(&session.went, session.spilled_went, pair.out_id, index)
                out.unsettled -= 1
                out.answered += 1
        return not is_mixed

    cdef bint take_settling(self, SessionState session, uint32_t first, uint32_t last) except -1:
        """Takes a sender's word that it has settled what it was told the outcome of."""
        cdef uint32_t count = self.find_pairs(&session.came, session.spilled_came, first, last)
        cdef uint32_t each
        cdef uint32_t index
        cdef Pair *pair
        cdef LinkState out
        if count <= <uint32_t>(last - first) and len(session.incoming):
            return False
        for each in range(count):
            if not self.pair_at(self.found[each]).flags & TOLD:
                return False
        for each in range(count):
            index = self.found[each]
            pair = self.pair_at(index)
            if not pair.flags & DONE:
                out = <LinkState>self.slots[pair.out]
                self.say(out.session, TO_RECEIVER_SETTLED, pair.out_id)
                self.clear(&out.session.went, out.session.spilled_went, pair.out_id, index)
                out.unsettled -= 1
            self.drop(<LinkState>self.slots[pair.link], index)
        return True

    cdef inline int drop(self, LinkState link, uint32_t index) except -1:
        """Forgets a delivery on the side that it came from, and altogether."""
        cdef Pair *pair = self.pair_at(index)
        cdef LinkState out
        self.clear(&link.session.came, link.session.spilled_came, pair.in_id, index)
        link.unsettled -= 1
        self.keep(link, -<int64_t>pair.octets)
        if pair.flags & DONE:
            out = <LinkState>self.slots[pair.out]
            out.answered -= 1
            self.free_slot(out)
        self.free_pair(index)
        return 0

    cdef inline void keep(self, LinkState link, int64_t octets) noexcept:
        """Counts payload that is kept, or no more if negative."""
        self.kept_octets += octets
        link.session.connection.kept_octets += octets

    cdef inline int say(self, SessionState session, uint32_t kind, uint32_t an_id) except -1:
        """Takes note of what is to be told at the end of the turn, neighbours joined."""
        cdef Saying *saying = &session.sayings[kind]
        if saying.used and <uint32_t>(saying.ranges[saying.used - 1] + 1) == an_id:
            saying.ranges[saying.used - 1] = an_id
            return 0
        append_range(saying, an_id, an_id)
        if not session.is_speaking:
            session.is_speaking = True
            self.speaking.append(session)
        return 0

    cpdef flush(self):
        """Writes the dispositions of this turn."""
        global sort_base
        cdef SessionState session
        cdef Saying *saying
        cdef uint32_t kind
        cdef uint32_t at
        cdef uint32_t first
        cdef uint32_t last
        if not self.speaking:
            return
        speaking = self.speaking
        self.speaking = []
        for session in speaking:
            session.is_speaking = False
            for kind in range(KINDS):
                saying = &session.sayings[kind]
                if saying.used > 2:
                    sort_base = saying.ranges[0] - HALF
                    qsort(saying.ranges, saying.used // 2, 2 * sizeof(uint32_t), compare_ranges)
                at = 0
                while at < saying.used:
                    first = saying.ranges[at]
                    last = saying.ranges[at + 1]
                    at += 2
                    while at < saying.used and saying.ranges[at] == <uint32_t>(last + 1):
                        last = saying.ranges[at + 1]
                        at += 2
                    self.write_disposition(session, kind, first, last)
                saying.used = 0

    cdef int write_disposition(
        self, SessionState session, uint32_t kind, uint32_t first, uint32_t last
    ) except -1:
        cdef uint8_t *frame
        cdef uint8_t *at
        if not session.is_open:
            return 0
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
        self.soil(session.connection)
        return 0

    # flows

    cdef bint take_flow(self, SessionState session, Reader *reader, uint32_t count) except -1:
        """Takes a flow that only renews window or credit (§2.7.4)."""
        cdef uint32_t fields[8]
        cdef bint is_given[8]
        cdef uint32_t field
        cdef uint32_t under_way
        cdef uint32_t behind
        cdef PyObject *found
        cdef LinkState link = None
        if not 4 <= count <= 11 or session.waiting:
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
            found = PyDict_GetItem(session.links, fields[4])
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
        self.opened(session, link)
        return True

    # credit and windows

    cdef int grant(self) except -1:
        """Gives credit and windows anew where half has been used, once a turn."""
        cdef Lane lane
        if self.starved and self.kept_octets < self.octet_budget:
            starved = self.starved
            self.starved = []
            for lane in starved:
                lane.measure()
        if self.touched:
            touched = self.touched
            self.touched = []
            for lane in touched:
                lane.is_touched = False
                self.grant_lane(lane)
        return 0

    cdef int grant_lane(self, Lane lane) except -1:
        cdef LinkState link
        cdef SessionState session
        cdef int64_t width
        cdef int64_t used
        cdef bint is_low
        cdef bint can_send
        cdef bint can_send_near = False
        cdef bint can_send_far = False
        cdef list links = lane.incoming if lane.is_measured else lane.touched
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
            if (
                self.kept_octets >= self.octet_budget
                or session.connection.kept_octets >= self.connection_budget
            ):
                if lane not in self.starved:
                    self.starved.append(lane)
                continue
            used = link.credit + link.queued
            is_low = used * 2 < width
            if not is_low and session.output.octets:  # it costs no write of its own
                is_low = used * 4 <= width * 3
            if can_send and used < width and is_low:
                link.credit = width - link.queued
                if link.allowance < link.credit:
                    link.allowance = link.credit
                self.write_flow(session, link)
            elif session.incoming_window * 2 <= session.window_frames and not session.is_held:
                self.write_flow(session, None)
        lane.touched = []
        return 0

    cdef int write_flow(self, SessionState session, LinkState link) except -1:
        cdef uint8_t *frame
        cdef uint8_t *at
        cdef uint8_t count = 4
        if not session.is_held:
            session.incoming_window = session.window_frames
        if not session.is_open:
            return 0
        frame = session.output.reserve(64)
        at = write_frame_head(frame, session.channel, 0x13)
        at = write_uint(at, session.next_incoming_id)
        at = write_uint(at, <uint32_t>session.incoming_window)
        at = write_uint(at, session.next_outgoing_id)
        at = write_uint(at, <uint32_t>session.outgoing_window)
        if link is not None:
            at = write_uint(at, link.handle)
            at = write_uint(at, link.delivery_count)
            at = write_uint(at, <uint32_t>link.credit)
            count = 7
        session.output.written(write_frame_sizes(frame, at, count))
        self.soil(session.connection)
        return 0

    cdef inline int soil(self, ConnectionState connection) except -1:
        """Takes note that a connection has got output."""
        if not connection.is_dirty:
            connection.is_dirty = True
            self.dirty.append(connection)
        return 0

    # giving up

    cdef list give_up_link(self, LinkState link):
        """Gives up all pairs of a link."""
        cdef SessionState session = link.session
        cdef uint32_t count
        cdef uint32_t each
        cdef Pair *pair
        cdef list mine = []
        if link.is_sender:
            count = self.find_all(&session.went, session.spilled_went)
        else:
            count = self.find_all(&session.came, session.spilled_came)
        for each in range(count):
            pair = self.pair_at(self.found[each])
            if (pair.out if link.is_sender else pair.link) == link.slot:
                mine.append(self.found[each])
        return self.give_up(mine)

    cdef list give_up(self, list indices):
        """Makes pairs for the core, forgets them, and has the engines adopt them."""
        cdef uint32_t index
        cdef Pair *pair
        cdef LinkState link
        cdef LinkState out
        cdef list pairs = []
        for index in indices:
            pair = self.pair_at(index)
            link = <LinkState>self.slots[pair.link]
            out = <LinkState>self.slots[pair.out]
            is_second = (pair.flags & SECOND) != 0
            is_done = (pair.flags & DONE) != 0
            state = ACCEPTED if pair.flags & TOLD else None
            delivery = received(pair, False, is_second)
            in_id = pair.in_id
            out_id = pair.out_id
            number = pair.number
            if not is_done:
                self.clear(&out.session.went, out.session.spilled_went, out_id, index)
                out.unsettled -= 1
            pairs.append(LanePair(link.link, delivery, out.link, number, state, is_done))
            self.drop(link, index)
            if link.is_open and link.session.is_open:
                link.session.owner.adopt_incoming(link, in_id, delivery.tag, is_second)
            if out.is_open and out.session.is_open and not is_done:
                out.session.owner.adopt_outgoing(out, out_id, number, number.to_bytes(4, "big"))
        return pairs

    # pairs

    cdef inline Pair *pair_at(self, uint32_t index) noexcept:
        return &self.segments[index // SLAB][index % SLAB]

    cdef inline uint32_t new_pair(self) except? 0xFFFFFFFF:
        cdef uint32_t index = self.free_pairs
        if index == NONE:
            self.grow_slab()
            index = self.free_pairs
        self.free_pairs = self.pair_at(index).out_id
        return index

    cdef int grow_slab(self) except -1:
        cdef Pair *segment
        cdef uint32_t index
        cdef Pair **grown = <Pair **>realloc(
            self.segments, (self.segment_count + 1) * sizeof(Pair *)
        )
        if grown == NULL:
            raise MemoryError
        self.segments = grown
        segment = <Pair *>calloc(SLAB, sizeof(Pair))
        if segment == NULL:
            raise MemoryError
        self.segments[self.segment_count] = segment
        for index in range(SLAB):
            segment[index].out_id = self.segment_count * SLAB + index + 1
        segment[SLAB - 1].out_id = NONE
        self.free_pairs = self.segment_count * SLAB
        self.segment_count += 1
        return 0

    cdef inline int fill_pair(
        self, Pair *pair, LinkState link, uint32_t an_id, const uint8_t *tag, uint32_t tag_octets
    ) except -1:
        cdef uint8_t *outside
        pair.flags = (LIVE | SECOND) if link.settles_second else LIVE
        pair.link = link.slot
        pair.in_id = an_id
        pair.tag_octets = tag_octets
        pair.chunk = NULL
        pair.octets = 0
        if tag_octets <= TAG_ROOM:
            memcpy(pair.tag, tag, tag_octets)
        else:
            outside = <uint8_t *>malloc(tag_octets)
            if outside == NULL:
                raise MemoryError
            memcpy(outside, tag, tag_octets)
            (<uint8_t **>pair.tag)[0] = outside
        return 0

    cdef inline void lay(
        self, Pair *pair, Chunk *chunk, uint32_t offset, uint32_t octets
    ) noexcept:
        """Notes where a pair's payload lies."""
        pair.chunk = chunk
        pair.offset = offset
        pair.octets = octets
        chunk.pairs += 1
        chunk.live += octets

    cdef Chunk *store(self, const uint8_t *payload, uint32_t octets) except NULL:
        """Copies octets to the end of the keeper, which it returns."""
        cdef Chunk *keeper = self.keeper
        if keeper == NULL or keeper.capacity - keeper.fill < octets:
            keeper = new_chunk(max(octets, <uint32_t>KEEPER_CHUNK))
            keeper.is_kept = 1
            if self.keeper != NULL:
                self.keeper.is_kept = 0
                if self.keeper.pairs == 0 and self.keeper.segments == 0:
                    free_chunk(self.keeper)
            self.keeper = keeper
        memcpy(keeper.data + keeper.fill, payload, octets)
        keeper.fill += octets
        return keeper

    cdef inline bint is_referable(self, const uint8_t *payload, uint32_t octets) noexcept:
        """Tells whether octets may stay where they were received, with much else."""
        cdef Chunk *inbox = self.inbox
        if octets < LEAST_REFERENCE or inbox == NULL or inbox.fill * 4 < inbox.capacity:
            return False
        return <size_t>payload - <size_t>inbox.data < inbox.capacity

    cdef Chunk *place(
        self, const uint8_t *payload, uint32_t octets, uint32_t *offset
    ) except NULL:
        """Keeps octets: in the inbox, if they are many and lie there, else in the keeper."""
        cdef Chunk *chunk = self.inbox
        if self.is_referable(payload, octets):
            offset[0] = <uint32_t>(payload - chunk.data)
        else:
            chunk = self.store(payload, octets)
            offset[0] = chunk.fill - octets
        return chunk

    cdef inline void free_pair(self, uint32_t index) noexcept:
        cdef Pair *pair = self.pair_at(index)
        cdef Parts *parts
        cdef uint32_t each
        if pair.flags & PARTED:
            parts = <Parts *>pair.chunk
            for each in range(parts.count):
                let_go(parts.part[each].chunk, parts.part[each].octets)
            free(parts)
        elif pair.chunk != NULL:
            let_go(pair.chunk, pair.octets)
        if pair.tag_octets > TAG_ROOM:
            free((<uint8_t **>pair.tag)[0])
        pair.flags = 0
        pair.out_id = self.free_pairs
        self.free_pairs = index

    cdef int compact(self) except -1:
        """Moves payloads out of chunks that hold little else, so that a few do not pin many."""
        cdef uint32_t index
        for index in range(self.segment_count * SLAB):
            if self.pair_at(index).flags & LIVE:
                self.move(self.pair_at(index))
        self.compact_at = max(<uint64_t>FIRST_COMPACTION, chunk_octets * 2)
        return 0

    cdef int move(self, Pair *pair) except -1:
        """Moves what a pair has in chunks that hold little else."""
        cdef Parts *parts = <Parts *>pair.chunk
        cdef Chunk *chunk = pair.chunk
        cdef uint32_t each
        cdef uint32_t octets
        if not pair.flags & PARTED:
            if is_sparse(chunk):
                self.store(chunk.data + pair.offset, pair.octets)
                self.lay(pair, self.keeper, self.keeper.fill - pair.octets, pair.octets)
                let_go(chunk, pair.octets)
            return 0
        for each in range(parts.count):
            chunk = parts.part[each].chunk
            octets = parts.part[each].octets
            if is_sparse(chunk):
                self.store(chunk.data + parts.part[each].offset, octets)
                self.keeper.pairs += 1
                self.keeper.live += octets
                parts.part[each].chunk = self.keeper
                parts.part[each].offset = self.keeper.fill - octets
                let_go(chunk, octets)
        return 0

    # rings

    cdef inline int put(
        self, Ring *ring, dict spilled, bint is_incoming, uint32_t an_id, uint32_t index
    ) except -1:
        """Enters a pair by its id."""
        cdef uint32_t lowest = an_id
        cdef uint32_t highest = an_id + 1
        if ring.slots == NULL:
            ring.slots = <uint32_t *>calloc(FIRST_SLOTS, sizeof(uint32_t))
            if ring.slots == NULL:
                raise MemoryError
            ring.mask = FIRST_SLOTS - 1
        if ring.live:
            if <uint32_t>(an_id - ring.lowest) < HALF:
                lowest = ring.lowest
            if <uint32_t>(ring.highest - highest) < HALF:
                highest = ring.highest
            if <uint32_t>(highest - lowest) > ring.mask + 1:
                lowest = self.make_room(ring, spilled, is_incoming, lowest, highest)
        ring.lowest = lowest
        ring.highest = highest
        if <uint32_t>(an_id - lowest) >= HALF:  # it is late, and stuck like those before it
            spilled[an_id] = index
            return 0
        ring.slots[an_id & ring.mask] = index + 1
        ring.live += 1
        return 0

    cdef uint32_t make_room(
        self, Ring *ring, dict spilled, bint is_incoming, uint32_t lowest, uint32_t highest
    ) except? 0xFFFFFFFF:
        """Makes the ids from ``lowest`` to ``highest`` fit; returns the lowest that may stay."""
        cdef uint32_t span = highest - lowest
        cdef uint32_t *grown
        cdef uint32_t slot
        cdef uint32_t entry
        cdef uint32_t an_id
        while (
            span > ring.mask + 1 and ring.mask < MOST_SLOTS // 2 and (ring.live + 1) * 2 > ring.mask
        ):
            grown = <uint32_t *>calloc((<size_t>ring.mask + 1) * 2, sizeof(uint32_t))
            if grown == NULL:
                raise MemoryError
            for slot in range(ring.mask + 1):
                entry = ring.slots[slot]
                if entry:
                    an_id = self.id_of(entry - 1, is_incoming)
                    grown[an_id & (ring.mask * 2 + 1)] = entry
            free(ring.slots)
            ring.slots = grown
            ring.mask = ring.mask * 2 + 1
        if span <= ring.mask + 1:
            return lowest
        lowest = highest - ring.mask - 1
        for slot in range(ring.mask + 1):
            entry = ring.slots[slot]
            if entry:
                an_id = self.id_of(entry - 1, is_incoming)
                if <uint32_t>(an_id - lowest) >= HALF:
                    spilled[an_id] = entry - 1
                    ring.slots[slot] = 0
                    ring.live -= 1
        return lowest

    cdef inline uint32_t id_of(self, uint32_t index, bint is_incoming) noexcept:
        return self.pair_at(index).in_id if is_incoming else self.pair_at(index).out_id

    cdef inline int clear(self, Ring *ring, dict spilled, uint32_t an_id, uint32_t index) except -1:
        """Forgets a pair that is there."""
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
        self, Ring *ring, dict spilled, uint32_t first, uint32_t last
    ) except? 0xFFFFFFFF:
        """Finds pairs from ``first`` to ``last``, in serial order, and puts them into ``found``."""
        cdef uint32_t count = 0
        cdef uint32_t an_id
        cdef uint32_t until
        cdef uint32_t entry
        cdef uint32_t span = last - first
        self.make_found(ring.live + <uint32_t>len(spilled))
        if spilled:
            stuck = [each for each in spilled if <uint32_t>(<uint32_t>each - first) <= span]
            stuck.sort(key=lambda each: (each - first) & 0xFFFFFFFF)
            for each in stuck:
                self.found[count] = spilled[each]
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
                self.found[count] = entry - 1
                count += 1
            an_id += 1
        return count

    cdef uint32_t find_all(self, Ring *ring, dict spilled) except? 0xFFFFFFFF:
        """Finds all pairs, in serial order but for the spilled ones, which come first."""
        cdef uint32_t count = 0
        cdef uint32_t an_id
        self.make_found(ring.live + <uint32_t>len(spilled))
        for each in spilled.values():
            self.found[count] = each
            count += 1
        if ring.live:
            an_id = ring.lowest
            while an_id != ring.highest:
                if ring.slots[an_id & ring.mask]:
                    self.found[count] = ring.slots[an_id & ring.mask] - 1
                    count += 1
                an_id += 1
        return count

    cdef inline int make_found(self, uint32_t count) except -1:
        cdef uint32_t *grown
        if count > self.found_room:
            grown = <uint32_t *>realloc(self.found, <size_t>count * 2 * sizeof(uint32_t))
            if grown == NULL:
                raise MemoryError
            self.found = grown
            self.found_room = count * 2
        return 0


# --- sockets --------------------------------------------------------------------------------------

cdef enum:
    MOST_EVENTS = 256         # sockets that the system is asked about at once
    MOST_PIECES = 64          # of output, sent at once
    OUTPUT_STOP = 4194304     # see net.dataplane

cdef class Carrier:
    """Receives and sends for connections on the lane; see ``express.Carrier``.

    A connection's *tail* is the beginning of a frame that the kernel may take when it is whole. An
    engine that is given octets looks for it first, and leaves what remains there if it can.
    """

    cdef Express express
    cdef int poller
    cdef object take          # (descriptor, readiness, octets that were received or None)
    cdef object fail
    cdef list carried         # descriptor -> ConnectionState; None: it is not carried
    cdef Chunk *inbox
    cdef epoll_event events[MOST_EVENTS]
    cdef int ready            # events that were told
    cdef int done             # of these

    def __init__(self, Express express not None, int poller, take, fail):
        self.express = express
        self.poller = poller
        self.take = take
        self.fail = fail
        self.carried = []

    def __dealloc__(self):
        if self.inbox != NULL:
            self.leave_inbox()

    def watch(self, int descriptor, ConnectionState state not None):
        """Begins to carry a connection; what it has to send is sent from now on, too."""
        if descriptor < 0 or state.descriptor >= 0:
            raise MisuseError(f"descriptor {descriptor} cannot be carried")
        while len(self.carried) <= descriptor:
            self.carried.append(None)
        self.carried[descriptor] = state
        state.descriptor = descriptor

    def forget(self, ConnectionState state not None):
        """Carries a connection no more; the beginning of a frame is lost with it."""
        if state.descriptor >= 0:
            self.carried[state.descriptor] = None
            state.descriptor = -1

    def turn(self, double now, double until):
        """Serves ready sockets until that time has come; false: none is ready."""
        cdef double skew
        cdef epoll_event *event
        if self.done >= self.ready:
            self.done = 0
            self.ready = ready_sockets(self.poller, self.events, MOST_EVENTS)
            if self.ready <= 0:
                self.ready = 0
                return False
        skew = now - seconds_now()
        while self.done < self.ready and now <= until:
            event = &self.events[self.done]
            self.done += 1
            self.serve(descriptor_of(event), event.events, now)
            now = seconds_now() + skew
        return True

    def write(self, ConnectionState state not None):
        """Sends what a connection has to send; false: its socket has not taken all of it.

        Raises:
            OSError: the socket is broken.
        """
        return self.write_out(state) == 1

    cdef int serve(self, int descriptor, uint32_t events, double now) except -1:
        """Does what a socket is ready for."""
        cdef ConnectionState state = None
        if descriptor < len(self.carried):
            state = self.carried[descriptor]
        if state is None:
            self.take(descriptor, events, None)
            return 0
        if events & EPOLLOUT:
            if self.still_waits(state):
                events &= ~EPOLLOUT
        if events == EPOLLIN and may_carry(state):
            return self.receive(state, now)
        if events:
            self.take(descriptor, events, None)
        return 0

    cdef bint still_waits(self, ConnectionState state) except -1:
        """Sends what the socket takes now; tells whether there is nothing else to be done."""
        if state.is_pending or not state.is_open:
            return False
        try:
            return self.write_out(state) == 0
        except OSError:
            return False

    cdef int receive(self, ConnectionState state, double now) except -1:
        """Reads once, and lets the kernel take what it can."""
        cdef Chunk *inbox = self.empty_inbox()
        cdef uint32_t begin = state.tail_octets
        cdef int descriptor = state.descriptor
        cdef long count
        cdef int reason
        cdef Py_ssize_t position = 0
        if begin:
            memcpy(inbox.data, state.tail, begin)
        count = receive_octets(descriptor, inbox.data + begin, inbox.capacity - begin)
        if count < 0:
            reason = errno
            if reason != EAGAIN and reason != EINTR:
                self.fail(descriptor, OSError(reason, os.strerror(reason)))
            return 0
        if count == 0:
            self.take(descriptor, EPOLLIN, None)
            return 0
        drop_tail(state)
        inbox.fill = begin + <uint32_t>count
        state.octets_in += count
        state.heard_at = now
        self.express.inbox = inbox
        try:
            position = self.express.take_frames(state, inbox.data, 0, begin + count)
        except Exception as error:
            self.fail(descriptor, error)
            return 0
        finally:
            self.express.inbox = NULL
        if position == begin + count:
            return 0
        # A frame that comes in small pieces is not copied each time: the engine gathers them.
        state.is_slow = position == 0 and count < begin
        if not state.is_slow and keep_tail(state, inbox.data + position, begin + count - position):
            return 0
        rest = PyBytes_FromStringAndSize(
            <const char *>inbox.data + position, begin + count - position
        )
        self.take(descriptor, EPOLLIN, rest)
        return 0

    cdef Chunk *empty_inbox(self) except NULL:
        """Gives a chunk to receive into in which nothing lies that is needed."""
        if self.inbox != NULL and (self.inbox.pairs or self.inbox.segments):
            self.leave_inbox()
        if self.inbox == NULL:
            self.inbox = new_chunk(LARGEST_CHUNK)
            self.inbox.is_kept = 1
        return self.inbox

    cdef void leave_inbox(self) noexcept:
        cdef Chunk *inbox = self.inbox
        self.inbox = NULL
        inbox.is_kept = 0
        if inbox.pairs == 0 and inbox.segments == 0:
            free_chunk(inbox)

    cdef bint send(self, ConnectionState state) except -1:
        """Sends what the lane has written; false: more is to be done than that."""
        if not state.is_open or state.is_pending:
            return False
        if state.is_blocked:
            return state.output.octets <= OUTPUT_STOP
        try:
            return self.write_out(state) == 1
        except OSError:
            return False

    cdef int write_out(self, ConnectionState state) except -1:
        """Sends until nothing is left, 1, or the socket takes no more, 0."""
        cdef Output output = state.output
        cdef iovec pieces[MOST_PIECES]
        cdef Segment *segment
        cdef uint32_t each
        cdef uint32_t count
        cdef int64_t wanted
        cdef long sent
        cdef int reason
        if state.descriptor < 0:
            raise MisuseError("the connection is not carried")
        while output.octets:
            count = min(output.count, <uint32_t>MOST_PIECES)
            wanted = 0
            for each in range(count):
                segment = &output.segments[output.first + each]
                pieces[each].iov_base = segment.chunk.data + segment.begin
                pieces[each].iov_len = segment.end - segment.begin
                wanted += segment.end - segment.begin
            sent = send_pieces(state.descriptor, pieces, count)
            if sent < 0:
                reason = errno
                if reason == EINTR:
                    continue
                if reason == EAGAIN:
                    return 0
                raise OSError(reason, os.strerror(reason))
            state.octets_out += sent
            output.take_away(sent)
            if sent < wanted:
                return 0
        return 1


cdef inline bint is_sparse(Chunk *chunk) noexcept:
    """Tells whether a chunk that nobody writes or sends holds little that is needed."""
    if chunk == NULL or chunk.output != NULL or chunk.segments or chunk.is_kept:
        return False
    return chunk.live * <uint64_t>4 < chunk.capacity


cdef int refer_payload(Pair *pair, uint32_t offset, uint32_t octets, Output output) except -1:
    """Puts a piece of a payload that is kept into an output, where it lies."""
    cdef Parts *parts = <Parts *>pair.chunk
    cdef uint32_t index = 0
    cdef uint32_t piece
    if not pair.flags & PARTED:
        return output.refer(pair.chunk, pair.offset + offset, octets)
    while octets:
        if offset >= parts.part[index].octets:
            offset -= parts.part[index].octets
        else:
            piece = min(octets, parts.part[index].octets - offset)
            output.refer(parts.part[index].chunk, parts.part[index].offset + offset, piece)
            octets -= piece
            offset = 0
        index += 1
    return 0


cdef bytes tag_bytes(Pair *pair):
    return PyBytes_FromStringAndSize(<const char *>tag_of(pair), pair.tag_octets)


cdef bytes payload_bytes(Pair *pair):
    cdef bytes payload = PyBytes_FromStringAndSize(NULL, pair.octets)
    copy_payload(pair, 0, pair.octets, <uint8_t *>PyBytes_AS_STRING(payload))
    return payload


cdef object received(Pair *pair, bint settled, bint settles_second):
    """Makes the record of a delivery as the general path would have."""
    tag = tag_bytes(pair)
    payload = payload_bytes(pair)
    delivery = ReceivedDelivery(
        pair.in_id, tag, payload, settled=settled, settles_second=settles_second
    )
    fill(delivery, is_anonymous=False, reads_annotations=False)
    return delivery


THIS_MODULE = sys.modules[__name__]
