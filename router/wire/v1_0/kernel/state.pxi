# The state of links, sessions and connections that engine and kernel share.

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
    cdef readonly int64_t carried         # deliveries transferred on the lane
    cdef int64_t passed       # deliveries that bypassed the lane; see Lane.passed
    cdef readonly int64_t carried_octets
    cdef readonly int64_t kept_octets     # of deliveries received, queued or unsettled
    cdef readonly int64_t settled         # of these, settled by the sender
    cdef readonly int64_t accepted        # of these, with that outcome
    cdef readonly uint64_t last_used      # the lane's turn in which it was last chosen; 0: never
    cdef readonly int64_t elsewhere       # see routes.distribution
    cdef readonly int64_t receivers
    cdef readonly int64_t frame_octets    # the largest payload that fits one frame
    cdef readonly int64_t limit_octets    # the largest payload that the lane sends there
    cdef uint32_t gathered    # the incomplete pair; NONE: there is none
    cdef uint32_t slot        # in Express
    cdef uint32_t next_number
    cdef uint32_t answered    # pairs that only wait for their sender to settle
    cdef bint is_sender
    cdef bint settles         # deliveries received settled are sent settled
    cdef bint is_far          # deliveries from a far link are sent to no far link
    cdef bint is_touched
    cdef bint is_stuck        # see choice
    cdef uint32_t place       # in its lane's heap; NONE: not in it
    cdef uint64_t joined      # its lane, as the n-th
    cdef int64_t counted      # the part of its credit that is in the lane's width
    cdef uint32_t first_queued
    cdef uint32_t last_queued
    cdef readonly uint32_t queued
    cdef LinkState next_waiting
    cdef uint8_t head[HEAD_OCTETS]  # of a transfer frame, from after its size to the delivery-id
    cdef uint32_t head_octets

    def __init__(self, link, str name, role, SessionState session not None):
        self.link = link
        self.name = name
        self.role = role
        self.session = session
        self.is_sender = role is Role.SENDER
        self.sender_settle_mode = 2
        self.receivers = 1
        self.slot = self.gathered = self.place = NONE
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
    cdef public int64_t window
    cdef public int64_t small_frames
    cdef public int64_t large_octets
    cdef public uint32_t next_outgoing_id
    cdef public int64_t outgoing_window
    cdef public int64_t remote_incoming_window
    cdef public int64_t remote_outgoing_window
    cdef public uint32_t next_outgoing_delivery
    cdef public bint is_open
    cdef public bint is_held
    cdef public int64_t withheld
    cdef public bint is_errant
    cdef public object incoming
    cdef public object outgoing
    cdef public object waiting
    cdef public list notes    # of a session without a socket; None: it has one, see inside
    cdef public int64_t unnoted        # deliveries that were accepted, and are not in the notes yet
    cdef public int64_t unnoted_limit  # so many are noted at the end of a turn; see Express.note
    # the lane's own
    cdef int64_t expected     # next_incoming_delivery; -1: None
    cdef Express express      # whose pairs the rings hold; None: none yet
    cdef Ring incoming_ring
    cdef Ring outgoing_ring
    cdef dict spilled_incoming
    cdef dict spilled_outgoing
    cdef Saying sayings[KINDS]
    cdef bint is_speaking
    cdef list blocked
    cdef list gathering

    def __init__(self, ConnectionState connection not None, int64_t window_frames):
        self.connection = connection
        self.output = connection.output
        self.window_frames = window_frames
        self.window = self.incoming_window = min(window_frames, <int64_t>NARROW_FRAMES)
        self.outgoing_window = 0x7FFFFFFF

    def __cinit__(self, *_):
        self.links = {}
        self.incoming = self.outgoing = self.waiting = ()
        self.expected = -1
        self.blocked = []
        self.gathering = []

    def __dealloc__(self):
        free_ring(&self.incoming_ring)
        free_ring(&self.outgoing_ring)
        for kind in range(KINDS):
            free(self.sayings[kind].ranges)

    @property
    def rings(self):
        """The lane's state of the session; None: no link of it is on a lane."""
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
    cdef public double received_at
    # the lane's own
    cdef readonly int64_t lanes
    cdef readonly int64_t kept_octets
    cdef bint is_dirty
    cdef uint16_t latest_channel
    cdef SessionState latest  # that a frame was for; if it is open, the one of that channel
    cdef LinkState shaped     # whose transfers have the shape; see runs
    cdef Shape *shape         # NULL: none was learned yet
    cdef uint32_t partner     # slot of the link that its last run went to, or came from; NONE
    # the carrier's own
    cdef readonly int descriptor  # of the socket; -1: not carried
    cdef uint32_t watched     # what the poller reports of the socket
    cdef readonly bint is_edged  # it reports octets once, when they come
    cdef uint8_t streak       # reads in a row that emptied the socket
    cdef readonly int64_t octets_in
    cdef readonly int64_t octets_out
    cdef Pipe *pipe           # used instead of the socket; NULL: none
    cdef object pipe_capsule
    cdef uint8_t *tail        # the beginning of an incomplete frame
    cdef uint32_t tail_octets
    cdef bint is_slow         # its remainder arrives in small pieces

    def __cinit__(self):
        self.output = Output()
        self.sessions = {}
        self.max_frame_octets = 512
        self.max_incoming_frame_octets = 512
        self.descriptor = -1
        self.partner = NONE

    def __dealloc__(self):
        free(self.tail)
        free(self.shape)

    @property
    def interest(self):
        return self.watched

    @interest.setter
    def interest(self, uint32_t interest):
        self.watched = interest
        self.is_edged = False
        self.streak = 0

    def take_tail(self, octets):
        """Prepends the beginning of a frame that was kept here."""
        cdef bytes tail
        if not self.tail_octets:
            return octets
        tail = PyBytes_FromStringAndSize(<const char *>self.tail, self.tail_octets)
        drop_tail(self)
        return tail + octets

    def keep_tail(self, bytes octets not None, Py_ssize_t at):
        """Keeps the remainder, the beginning of a frame, if the carrier can continue it."""
        cdef Py_ssize_t left = PyBytes_GET_SIZE(octets) - at
        if self.is_slow:
            self.is_slow = False
            return False
        if not 0 < left <= LARGEST_CARRIED or not may_carry(self):
            return False
        return keep_tail(self, <const uint8_t *>PyBytes_AS_STRING(octets) + at, left)


cdef inline bint may_carry(ConnectionState state) noexcept:
    """Returns whether the carrier may read the next octets."""
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
    """Keeps the beginning of a frame, and no more than that; False: it is not one."""
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


cdef inline bint is_settleable(SessionState session) noexcept:
    """Returns whether deliveries of its links can be settled, attached or not (§2.7.6)."""
    return session.is_open and session.connection.is_open
