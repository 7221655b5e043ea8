# The kernel's interface.

cdef class Express:
    """The kernel; see ``express.Express`` for its interface."""

    cdef public int64_t octet_budget
    cdef public int64_t connection_budget
    cdef readonly int64_t kept_octets
    cdef int64_t beside_octets  # kept off the lanes
    cdef int64_t freed_octets   # all that was released so far
    cdef int64_t starved_at     # the same when it was last looked at who is starved
    cdef readonly int64_t reserve_octets
    cdef object links         # id -> LinkState, weak: engines and lanes own them
    cdef list slots           # slot -> LinkState of a lane; None: free
    cdef list free_slots
    cdef list dirty
    cdef list speaking
    cdef list touched
    cdef list relieved
    cdef list starved
    cdef Pair **segments
    cdef uint32_t segment_count
    cdef uint32_t free_pairs  # the first free one; NONE: there is none
    cdef uint32_t *found      # indices of pairs, by ``find_pairs``
    cdef uint32_t found_capacity
    cdef Chunk *keeper
    cdef Chunk *inbox         # the chunk being read; NULL: the octets lie elsewhere
    cdef uint64_t compact_at
    cdef Carrier carrier      # None: there is none
    cdef list left            # owners for the next ``end_turn``

    def __init__(self, int64_t octet_budget=256 << 20, int64_t connection_budget=64 << 20):
        self.octet_budget = octet_budget
        self.connection_budget = connection_budget
        self.reserve_octets = min(<int64_t>RESERVE, octet_budget >> 12)

    def __cinit__(self, *_, **__):
        self.links = WeakValueDictionary()
        self.slots = []
        self.free_slots = []
        self.dirty = []
        self.speaking = []
        self.touched = []
        self.relieved = []
        self.starved = []
        self.left = []
        self.free_pairs = NONE
        self.compact_at = FIRST_COMPACTION

    def __dealloc__(self):
        cdef uint32_t index
        for index in range(self.segment_count * SLAB):
            if pair_at(self, index).flags & LIVE:
                free_pair(self, index)
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
        """The implementation."""
        return "cython"

    @property
    def states(self):
        """The module with the classes of shared state: this one."""
        return THIS_MODULE

    # called by engines, core and data plane

    def register(self, LinkState link not None):
        """Registers a link that has been attached on both sides."""
        self.links[link.link] = link

    cpdef forget(self, LinkState link):
        """Records that a link is detached; its lane keeps its deliveries until it is removed."""
        link.is_open = False
        if link.lane is None:
            self.links.pop(link.link, None)

    def knows(self, link):
        """Returns whether a link is registered, so that it may join a lane."""
        cdef LinkState found = self.links.get(link)
        return found is not None and found.is_open

    def open_lane(self, int64_t credit, bint only_settled=False):
        """Opens a lane whose receiving links are granted ``credit`` deliveries at most."""
        return Lane(self, credit, only_settled)

    def keep_beside(self, int64_t octets):
        """Records how much payload is kept off the lanes, from the same budget."""
        self.freed_octets += max(<int64_t>0, self.beside_octets - octets)
        self.beside_octets = octets

    def make_carrier(self, int poller, take, fail, int others=-1):
        """Creates the carrier of connections on the lane; see ``express.Express``."""
        if not CARRIES:
            return None
        self.carrier = Carrier(self, poller, take, fail, others)
        return self.carrier

    def end_turn(self):
        """Writes the gathered output; returns the owners of connections with new output.

        Connections whose output a carrier has sent completely are not among them.
        """
        self.finish()
        left = self.left
        self.left = []
        return left

    cdef int finish(self) except -1:
        """Writes and sends what the turn has gathered; whose output is left is put into ``left``."""
        cdef Lane lane
        cdef ConnectionState connection
        cdef list dirty
        cdef Py_ssize_t each
        while True:
            while self.relieved:
                relieved = self.relieved
                self.relieved = []
                for lane in relieved:
                    lane.pump()
            self.flush()
            grant(self)
            if chunk_octets > self.compact_at:
                compact(self)
            dirty = self.dirty
            if not dirty:
                return 0
            self.dirty = []
            for each, connection in enumerate(dirty):
                fetch_next_output(dirty, each + 1)
                connection.is_dirty = False
                if connection.descriptor < 0 or not self.carrier.send(connection):
                    self.left.append(connection.owner)
            if not self.relieved:  # sending has freed nothing that others wait for
                return 0

    cpdef opened(self, SessionState session, LinkState link):
        """Records that the engine has applied a flow: window or credit may have grown."""
        cdef Lane lane
        cdef Lane own = None
        if link is not None and link.is_sender:
            own = link.lane
        if own is not None:
            own.granted(link)
        if session.blocked and session.remote_incoming_window > 0:
            blocked = session.blocked
            session.blocked = []
            for lane in blocked:
                readmit(lane)
            for lane in blocked:
                lane.pump()
        if own is not None:
            own.pump()

    def evict(self, SessionState session not None, bint outgoing, uint32_t first, uint32_t last):
        """Gives up deliveries from ``first`` to ``last``; see ``express.Express``."""
        cdef uint32_t count
        cdef list pairs
        if session.express is not self or <uint32_t>(last - first) >= HALF:
            return []
        if outgoing:
            count = find_pairs(self, &session.outgoing_ring, session.spilled_outgoing, first, last)
        else:
            count = find_pairs(self, &session.incoming_ring, session.spilled_incoming, first, last)
        pairs = give_up(self, [self.found[each] for each in range(count)]) if count else []
        return pairs if outgoing else pairs + give_up_queued(session, first, last)

    # frames

    def feed(
        self, ConnectionState connection not None, buffer, Py_ssize_t position, Py_ssize_t end
    ):
        """Handles frames from ``position`` on; returns the offset of the first that it leaves."""
        cdef Py_buffer view
        if not connection.lanes or not connection.is_open:
            return position
        PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
        try:
            if 0 <= position <= end <= view.len:
                return take_frames(self, connection, <const uint8_t *>view.buf, position, end)
            raise MisuseError(f"octets {position} to {end} of {view.len} to be read")
        finally:
            PyBuffer_Release(&view)

    cpdef flush(self):
        """Writes the gathered dispositions of this turn."""
        cdef SessionState session
        if not self.speaking:
            return
        speaking = self.speaking
        self.speaking = []
        for session in speaking:
            if session.unnoted and session.unnoted < session.unnoted_limit and session.is_open:
                self.speaking.append(session)
                continue
            session.is_speaking = False
            self.speak(session)

    def note(self, SessionState session not None):
        """Notes what was accepted on a session without a socket; see ``express.Express``."""
        if session.is_speaking:
            self.speaking.remove(session)
            session.is_speaking = False
            self.speak(session)

    def top_up(self, links):
        """Grants links credit of which little is left; see ``express.Express``."""
        cdef LinkState link
        for link in links:
            if link.is_open and link.lane is not None:
                link.lane.touch(link)
        grant(self)

    cdef int speak(self, SessionState session) except -1:
        """Writes the gathered dispositions of a session, joined with their neighbors."""
        global sort_base
        cdef Saying *saying
        cdef uint32_t kind
        cdef uint32_t at
        cdef uint32_t first
        cdef uint32_t last
        session.unnoted = 0
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
                write_disposition(self, session, kind, first, last)
            saying.used = 0
        return 0
