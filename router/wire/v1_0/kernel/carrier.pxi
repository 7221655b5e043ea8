# Sockets: turns of the data plane without Python.

cdef enum:
    MOST_EVENTS = 256         # sockets that the system is asked for at once
    MOST_PIECES = 64          # pieces of output sent at once
    OUTPUT_STOP = 4194304     # see net.dataplane
    LONGEST_REST = 3600       # seconds
    LEAST_STREAK = 4          # see Carrier

cdef extern from "Python.h":
    PyObject *list_item "PyList_GET_ITEM"(list items, Py_ssize_t at) noexcept


cdef inline PyObject *partner_of(Express kernel, ConnectionState state) noexcept:
    """Returns the link that a connection's last run went to, or came from, borrowed; NULL: none."""
    cdef PyObject *link
    if state.partner >= len(kernel.slots):
        return NULL
    link = list_item(kernel.slots, state.partner)
    return NULL if link == <PyObject *>None else link


cdef inline void fetch_state(Express kernel, ConnectionState state) noexcept:
    """Fetches what a connection refers to."""
    cdef PyObject *partner = partner_of(kernel, state)
    fetch_lines(<void *>state.output, 128)
    fetch_lines(<void *>state.latest, 320)
    if state.shaped is not None:
        fetch_lines(<void *>state.shaped, 384)
        fetch_lines(state.shape, 64)
    if partner != NULL:
        fetch_lines(partner, 384)


cdef inline void fetch_ring(Ring *ring, uint32_t an_id) noexcept:
    if ring.slots != NULL:
        fetch_ahead(&ring.slots[an_id & ring.mask])


cdef inline void fetch_sessions(Express kernel, ConnectionState state) noexcept:
    """Fetches the sessions between which a connection's next frames move."""
    cdef PyObject *partner = partner_of(kernel, state)
    cdef SessionState session = state.latest
    if session is not None:
        fetch_ring(&session.incoming_ring, <uint32_t>session.expected)
        fetch_ring(&session.outgoing_ring, session.outgoing_ring.lowest)
    if partner != NULL:
        fetch_lines(<void *>(<LinkState>partner).session, 320)
        fetch_lines(<void *>(<LinkState>partner).lane, 192)


cdef inline void fetch_rings(Express kernel, ConnectionState state) noexcept:
    """Fetches the places of a connection's next deliveries, or of those that are settled next."""
    cdef PyObject *partner = partner_of(kernel, state)
    cdef SessionState session = state.latest
    cdef uint32_t entry
    if session is not None and session.outgoing_ring.live:
        entry = session.outgoing_ring.slots[
            session.outgoing_ring.lowest & session.outgoing_ring.mask
        ]
        if entry:
            fetch_ahead(pair_at(kernel, entry - 1))
    if partner != NULL:
        session = (<LinkState>partner).session
        fetch_ring(&session.outgoing_ring, session.next_outgoing_delivery)
        fetch_ring(&session.incoming_ring, session.incoming_ring.lowest)
        fetch_lines(<void *>session.output, 128)
        fetch_lines(<void *>session.connection, 128)


cdef double WORK_SECONDS = 0.002  # between two looks at what others have to do; see net.dataplane


cdef inline double ask(idle_seconds) except -1:
    """Returns how long other tasks have nothing to do; 0: nobody knows."""
    return 0 if idle_seconds is None else idle_seconds()


cdef class Carrier:
    """Receives and sends for connections on the lane; see ``express.Carrier``.

    The system looks at a socket that it has reported once more, to find that it is empty. One that
    was emptied by each of its last reads is therefore watched for edges: it is reported when octets
    come. A read that returns less than it could has emptied the socket; after one that has not, and
    before the data plane gets a socket, it is watched as the poller was told to.

    A connection's *tail* is the beginning of a frame that the kernel may handle when it is
    complete. An engine that receives octets takes the tail first, and leaves its own remainder
    there if it can.
    """

    cdef Express express
    cdef int poller
    cdef int others           # ready when other tasks have something to do; -1: nothing tells
    cdef object take          # (descriptor, readiness, received octets or None)
    cdef object fail
    cdef list carried         # descriptor -> ConnectionState; None: not carried
    cdef Chunk *inbox
    cdef epoll_event events[MOST_EVENTS]
    cdef int ready            # events reported by the system
    cdef int done             # of these, handled
    cdef readonly bint has_called  # the data plane, in this turn
    cdef public double rested      # seconds that it has waited

    def __init__(self, Express express not None, int poller, take, fail, int others):
        self.express = express
        self.poller = poller
        self.others = others
        self.take = take
        self.fail = fail
        self.carried = []

    def __dealloc__(self):
        if self.inbox != NULL:
            self.leave_inbox()

    def watch(self, int descriptor, ConnectionState state not None, pipe=None):
        """Begins to carry a connection; its pending output is sent from now on, too."""
        if descriptor < 0 or state.descriptor >= 0:
            raise MisuseError(f"descriptor {descriptor} cannot be carried")
        while len(self.carried) <= descriptor:
            self.carried.append(None)
        if pipe is not None:
            state.pipe = <Pipe *>PyCapsule_GetPointer(pipe, b"router.wire.Pipe")
            state.pipe_capsule = pipe
        self.carried[descriptor] = state
        state.descriptor = descriptor
        state.interest = EPOLLIN

    def forget(self, ConnectionState state not None):
        """Stops carrying a connection; the beginning of a frame is lost."""
        if state.descriptor >= 0:
            self.carried[state.descriptor] = None
            state.descriptor = -1
            state.interest = 0
            state.pipe = NULL
            state.pipe_capsule = None

    def forsake(self, ConnectionState state not None):
        """Has a connection's output count as congested from now on, whatever is sent of it."""
        state.output.high_octets = state.output.low_octets = -1
        state.output.congested = True

    @property
    def is_midway(self) -> bool:
        """Whether sockets that the system has reported are yet to be handled."""
        return self.done < self.ready

    def turn(self, double now, double until, bint is_alone=False, idle_seconds=None):
        """Serves ready sockets until the given time; False: none is ready.

        What it rests does not count, and it rests until others have something to do. If they have
        nothing to do when the time is up, it goes on.
        """
        cdef double skew = now - seconds_now()
        cdef double idle_until = -1
        cdef bint was_ready = False
        cdef epoll_event *event
        self.has_called = False
        while True:
            if self.done >= self.ready:
                self.done = 0
                self.ready = ready_sockets(self.poller, self.events, MOST_EVENTS)
                if self.ready <= 0:
                    self.ready = 0
                    if not is_alone:
                        return was_ready
                    if idle_until < 0:  # it holds for the turn: nothing of others runs meanwhile
                        idle_until = now + ask(idle_seconds)
                    if idle_until <= now or not self.rest(idle_until - now):
                        return was_ready
                    until += seconds_now() + skew - now
                    now = seconds_now() + skew
                    continue
            was_ready = True
            while self.done < self.ready and now <= until:
                event = &self.events[self.done]
                self.done += 1
                self.fetch_next()
                self.serve(descriptor_of(event), event.events, now)
                now = seconds_now() + skew
            if not is_alone or self.has_called:
                return True
            if now > until:
                if idle_until < 0:
                    idle_until = now + ask(idle_seconds)
                if now >= idle_until or self.others_call():
                    return True
                until = now + WORK_SECONDS
            self.express.finish()
            if self.express.left:
                return True

    cdef bint others_call(self) noexcept:
        """Returns whether something has come for other tasks; other threads may run meanwhile."""
        cdef bint has_come = True
        if self.others >= 0:
            with nogil:
                has_come = is_readable(self.others)
        return has_come

    cdef bint rest(self, double seconds) noexcept:
        """Waits; returns whether a socket is ready, and others have nothing to do."""
        cdef double began = seconds_now()
        cdef bint goes_on = False
        if self.others >= 0:
            with nogil:
                goes_on = waits_alone(self.poller, self.others, min(seconds, LONGEST_REST))
            self.rested += seconds_now() - began
        return goes_on

    cdef inline void fetch_next(self) noexcept:
        """Has the processor fetch what the next sockets need, while the system handles this one.

        With many connections none of it is in the nearest caches any more. What leads to something
        else has come when that is fetched, a socket later.
        """
        cdef PyObject *state
        if self.done + 2 < self.ready:
            state = self.carried_by(&self.events[self.done + 2])
            if state != NULL:
                fetch_lines(state, 192)
        if self.done + 1 < self.ready:
            state = self.carried_by(&self.events[self.done + 1])
            if state != NULL:
                fetch_state(self.express, <ConnectionState>state)
        if self.done < self.ready:
            state = self.carried_by(&self.events[self.done])
            if state != NULL:
                fetch_sessions(self.express, <ConnectionState>state)
        state = self.carried_by(&self.events[self.done - 1])
        if state != NULL:
            fetch_rings(self.express, <ConnectionState>state)

    cdef inline PyObject *carried_by(self, const epoll_event *event) noexcept:
        """Returns the connection that an event is of, borrowed; NULL: it is not carried."""
        cdef int descriptor = descriptor_of(event)
        cdef PyObject *state
        if descriptor >= len(self.carried):
            return NULL
        state = list_item(self.carried, descriptor)
        return NULL if state == <PyObject *>None else state

    cdef int call(self, int descriptor, uint32_t events, octets) except -1:
        """Hands a socket to the data plane."""
        self.has_called = True
        self.take(descriptor, events, octets)
        return 0

    def write(self, ConnectionState state not None):
        """Sends a connection's output; False: its socket has not accepted all of it.

        Raises:
            OSError: the socket is broken.
        """
        return self.write_out(state) == 1

    cdef int serve(self, int descriptor, uint32_t events, double now) except -1:
        """Handles the readiness of a socket."""
        cdef ConnectionState state = None
        if descriptor < len(self.carried):
            state = self.carried[descriptor]
        if state is None:
            self.call(descriptor, events, None)
            return 0
        if events & EPOLLOUT:
            if self.still_waits(state):
                events &= ~EPOLLOUT
        if events == EPOLLIN and may_carry(state):
            self.receive(state, now)
            if state.pipe != NULL:
                self.look_at_pipe(state, descriptor)
            return 0
        if events:
            self.watch_levels(state)
            self.call(descriptor, events, None)
        return 0

    cdef inline void watch_edges(self, ConnectionState state) noexcept:
        """Records that a read has emptied a socket; it is reported when octets come, after a while."""
        if state.streak < LEAST_STREAK:
            state.streak += 1
        elif not state.is_edged and state.watched == EPOLLIN:
            state.is_edged = watch_socket(
                self.poller, state.descriptor, EPOLLIN | EPOLLRDHUP | EPOLLET
            )

    cdef inline void watch_levels(self, ConnectionState state) noexcept:
        """Has the system report a socket again for as long as it is ready."""
        state.streak = 0
        if state.is_edged:
            state.is_edged = False
            watch_socket(self.poller, state.descriptor, state.watched)

    cdef int look_at_pipe(self, ConnectionState state, int descriptor) except -1:
        """Hands on what receiving through a pipe has brought about beside octets."""
        if state.pipe.is_over:
            self.call(descriptor, EPOLLIN, None)
        elif state.pipe.waits and not state.watched & EPOLLOUT:
            self.call(descriptor, EPOLLOUT, None)
        return 0

    cdef bint still_waits(self, ConnectionState state) except -1:
        """Sends what the socket accepts now; returns whether nothing else is to be done."""
        if state.is_pending or not state.is_open:
            return False
        try:
            return self.write_out(state) == 0
        except OSError:
            return False

    cdef int receive(self, ConnectionState state, double now) except -1:
        """Reads once, and lets the kernel handle what it can."""
        cdef Chunk *inbox = self.empty_inbox()
        cdef uint32_t begin = state.tail_octets
        cdef int descriptor = state.descriptor
        cdef long count
        cdef int reason
        cdef Py_ssize_t position = 0
        if begin:
            memcpy(inbox.data, state.tail, begin)
        if state.pipe == NULL:
            count = receive_octets(descriptor, inbox.data + begin, inbox.capacity - begin)
        else:
            count = state.pipe.receive(
                state.pipe.owner, inbox.data + begin, inbox.capacity - begin
            )
        if count < 0:
            reason = errno
            if reason == EINTR:
                self.watch_levels(state)
            elif reason != EAGAIN:
                self.has_called = True
                self.fail(descriptor, OSError(reason, os.strerror(reason)))
            return 0
        if count == 0:
            self.watch_levels(state)
            self.call(descriptor, EPOLLIN, None)
            return 0
        if begin + count == inbox.capacity:
            self.watch_levels(state)
        elif state.pipe == NULL:
            self.watch_edges(state)
        drop_tail(state)
        inbox.fill = begin + <uint32_t>count
        state.octets_in += count
        state.received_at = now
        self.express.inbox = inbox
        try:
            position = take_frames(self.express, state, inbox.data, 0, begin + count)
        except Exception as error:
            self.has_called = True
            self.fail(descriptor, error)
            return 0
        finally:
            self.express.inbox = NULL
        if position == begin + count:
            return 0
        # A frame that arrives in small pieces is not copied each time: the engine gathers them.
        state.is_slow = position == 0 and count < begin
        if not state.is_slow and keep_tail(state, inbox.data + position, begin + count - position):
            return 0
        rest = PyBytes_FromStringAndSize(
            <const char *>inbox.data + position, begin + count - position
        )
        self.call(descriptor, EPOLLIN, rest)
        return 0

    cdef Chunk *empty_inbox(self) except NULL:
        """Returns a chunk to receive into that holds nothing in use."""
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
        """Sends what the lane has written; False: the connection has other work, too."""
        if not state.is_open or state.is_pending:
            return False
        if state.watched & EPOLLOUT:
            return state.output.octets <= OUTPUT_STOP
        try:
            return self.write_out(state) == 1
        except OSError:
            return False

    cdef int write_out(self, ConnectionState state) except -1:
        """Sends until nothing is left, 1, or the socket accepts no more, 0."""
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
        if state.pipe != NULL and state.pipe.waits:
            if state.pipe.send(state.pipe.owner, NULL, 0) < 0:
                reason = errno
                if reason == EAGAIN:
                    return 0
                raise OSError(reason, os.strerror(reason))
        while output.octets:
            count = min(output.count, <uint32_t>MOST_PIECES)
            wanted = 0
            for each in range(count):
                segment = &output.segments[output.first + each]
                pieces[each].iov_base = segment.chunk.data + segment.begin
                pieces[each].iov_len = segment.end - segment.begin
                wanted += segment.end - segment.begin
            if state.pipe == NULL:
                sent = send_pieces(state.descriptor, pieces, count)
            else:
                sent = state.pipe.send(state.pipe.owner, pieces, count)
            if sent < 0:
                reason = errno
                if reason == EINTR:
                    continue
                if reason == EAGAIN:
                    return 0
                raise OSError(reason, os.strerror(reason))
            state.octets_out += sent
            output.take_away(sent)
            if state.pipe != NULL:
                if state.pipe.waits:
                    return 0
            elif sent < wanted:
                return 0
        return 1
