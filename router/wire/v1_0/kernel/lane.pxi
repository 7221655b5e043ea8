# Lanes: links, queues and distribution.

cdef class Lane:
    """One node's forwarding; see ``express.Lane``."""

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
    cdef bint is_starved      # a link was refused credit for what it keeps
    cdef uint64_t turn
    cdef LinkState first_waiting
    cdef LinkState last_waiting
    cdef int64_t waiting
    cdef Heap near            # outgoing links that can be sent something
    cdef Heap far
    cdef list stuck           # links to be admitted again after a notification
    cdef uint64_t joins

    def __init__(self, Express express not None, int64_t credit, bint only_settled):
        self.express = express
        self.credit = credit
        self.only_settled = only_settled
        self.incoming = []
        self.outgoing = []
        self.touched = []
        self.stuck = []
        self.limit_octets = -1

    def __dealloc__(self):
        free(self.near.entries)
        free(self.far.entries)

    # adding and removing links

    def add_incoming(self, link, bint is_far=False):
        """Adds a receiving link."""
        cdef LinkState state = self.join(link, False)
        cdef LinkState only
        if len(self.incoming) == 1:
            only = self.incoming[0]
            if only.is_touched:
                self.touched.append(only)
        state.is_far = is_far
        self.incoming.append(state)
        self.measure_far()
        self.touch(state)

    def add_outgoing(self, link, bint is_far=False):
        """Adds a sending link; False: it cannot take the deliveries that wait here."""
        cdef LinkState state = find(self.express, link)
        cdef int64_t fits = min(state.session.connection.max_frame_octets, LARGEST_FRAME)
        cdef uint8_t frame[4 + HEAD_OCTETS]
        cdef uint8_t *end
        state.settles = self.only_settled or state.sender_settle_mode == 1
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
        write_frame_sizes(frame, end + 4 + 6 + 1, 4)
        state.head_octets = <uint32_t>(end - frame - 4)
        memcpy(state.head, frame + 4, HEAD_OCTETS)
        self.outgoing.append(state)
        self.joins += 1
        state.joined = self.joins
        admit(state)
        self.measure()
        self.pump()
        return True

    def weigh(self, link, int64_t elsewhere, int64_t receivers):
        """Sets the load weight of a sending link."""
        cdef LinkState state = find(self.express, link)
        if state.lane is not self or not state.is_sender or elsewhere < 0 or receivers < 1:
            raise MisuseError(f"link {link} cannot be weighed on this lane")
        state.elsewhere = elsewhere
        state.receivers = receivers
        rank(state)

    cdef LinkState join(self, link, bint is_sender):
        cdef LinkState state = find(self.express, link)
        if state.lane is not None or state.is_sender != is_sender:
            role = "sender" if is_sender else "receiver"
            raise MisuseError(f"link {link} cannot join a lane as {role}")
        hold(self.express, state.session)
        take_slot(self.express, state)
        state.lane = self
        state.session.connection.lanes += 1
        return state

    cdef bint narrows(self, LinkState state):
        return len(self.outgoing) != 0 and (
            state.limit_octets < self.limit_octets
            or (self.only_settled and self.takes_settled and state.sender_settle_mode == 0)
            or (self.takes_unsettled and state.sender_settle_mode == 1)
        )

    cdef int leave(self, LinkState state) except -1:
        state.lane = None
        state.session.connection.lanes -= 1
        free_slot(self.express, state)
        if not state.is_open:
            self.express.forget(state)
        return 0

    cdef int measure(self) except -1:
        """Records that outgoing links, or what they grant, may have changed."""
        cdef LinkState link
        self.width = self.near_width = 0
        self.limit_octets = -1
        self.takes_settled = True
        self.takes_unsettled = not self.only_settled
        self.measure_far()
        for link in self.outgoing:
            link.counted = link.granted
            self.width += link.granted
            if not link.is_far:
                self.near_width += link.granted
            if self.limit_octets < 0 or link.limit_octets < self.limit_octets:
                self.limit_octets = link.limit_octets
            if link.sender_settle_mode == 0:
                if self.only_settled:
                    self.takes_settled = False
            elif link.sender_settle_mode == 1:
                self.takes_unsettled = False
        return self.look_after_all()

    cdef int look_after_all(self) except -1:
        """Schedules a review of all credit at the end of the turn."""
        self.is_measured = True
        if not self.is_touched:
            self.is_touched = True
            self.express.touched.append(self)
        return 0

    cdef int granted(self, LinkState link) except -1:
        """Records that an outgoing link's flow has arrived."""
        cdef int64_t more = link.granted - link.counted
        link.counted = link.granted
        self.width += more
        if not link.is_far:
            self.near_width += more
        if link.place == NONE and not link.is_stuck:
            admit(link)
        return self.look_after_all()

    cdef int measure_far(self) except -1:
        """Records that links may have been added or removed."""
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
        """Removes a receiving link; returns its queued and unsettled deliveries."""
        cdef LinkState state = find(self.express, link)
        if state.lane is not self:
            raise MisuseError(f"link {link} is not on this lane")
        if state.gathered != NONE:
            hand_over(self.express, state)
        queued = {link: self.empty(state)}
        pairs = give_up_link(self.express, state)
        self.incoming.remove(state)
        self.measure_far()
        if state in self.touched:
            self.touched.remove(state)
        state.is_touched = False
        self.leave(state)
        return Remains(queued, pairs, {link: state.credit}, {})

    def remove_outgoing(self, link):
        """Removes a sending link; returns the deliveries sent on it that it has not settled."""
        cdef LinkState state = find(self.express, link)
        if state.lane is not self:
            raise MisuseError(f"link {link} is not on this lane")
        pairs = give_up_link(self.express, state)
        self.outgoing.remove(state)
        expel(self, state)
        self.leave(state)
        self.measure()
        return Remains({}, pairs, {link: state.credit}, {link: state.granted})

    def close(self):
        """Removes all links."""
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
        """Removes and returns the deliveries in a link's queue."""
        cdef Pair *pair
        cdef uint32_t index
        cdef bint is_second
        cdef list queued = []
        while state.queued:
            index = take_queued(self.express, state)
            pair = pair_at(self.express, index)
            settled = (pair.flags & SETTLED) != 0
            is_second = (pair.flags & SECOND) != 0
            tag = tag_bytes(pair)
            delivery = received(pair, settled, is_second)
            an_id = pair.in_id
            place = place_of(pair, state)
            keep(self.express, state, -<int64_t>pair.octets)
            free_pair(self.express, index)
            queued.append(LanePair(state.link, delivery, place=place))
            if not settled and is_settleable(state.session):
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
        """Appends a link to those with queued deliveries."""
        if self.last_waiting is None:
            self.first_waiting = state
        else:
            self.last_waiting.next_waiting = state
        self.last_waiting = state
        self.waiting += 1
        return 0

    def put(self, link, deliveries):
        """Takes over deliveries that arrived on a receiving link by the general path."""
        cdef LinkState state = find(self.express, link)
        cdef bytes tag
        cdef bytes payload
        if state.lane is not self or state.is_sender:
            raise MisuseError(f"link {link} brings nothing to this lane")
        for delivery in deliveries:
            tag = delivery.tag
            payload = delivery.payload
            if tag is None or payload is None:  # Cython accepts None for octets
                raise MisuseError("a delivery needs a tag and a payload")
            if PyBytes_GET_SIZE(payload) > self.limit_octets or PyBytes_GET_SIZE(tag) > 32:
                raise MisuseError(f"a payload is beyond {self.limit_octets} octets")
            if not delivery.settled:
                state.session.incoming.pop(delivery.number, None)
            state.carried += 1
            queue(
                self.express,
                self,
                state,
                delivery.number,
                <const uint8_t *>PyBytes_AS_STRING(tag),
                <uint32_t>PyBytes_GET_SIZE(tag),
                <const uint8_t *>PyBytes_AS_STRING(payload),
                <uint32_t>PyBytes_GET_SIZE(payload),
                delivery.settled,
            )
            state.carried_octets += PyBytes_GET_SIZE(payload)
            state.settled += 1 if delivery.settled else 0
        self.touch(state)
        self.pump()

    def bring(
        self, LinkState link not None, rows, heap, places not None, Py_ssize_t begin=0
    ):
        """Takes stored messages of a link without a socket; see ``express.Lane``."""
        if link.lane is not self or link.is_sender or link.session.notes is None:
            raise MisuseError(f"link {link.link} brings no stored messages to this lane")
        return bring_stored(self.express, self, link, rows, heap, places, begin)

    def passed(self, link, int64_t count):
        """Records how many deliveries of a receiving link bypassed the lane."""
        cdef LinkState state = find(self.express, link)
        if state.lane is not self or state.is_sender:
            raise MisuseError(f"link {link} brings nothing to this lane")
        state.passed = count

    def queued(self, link):
        """Returns how many deliveries of a link wait for credit."""
        return find(self.express, link).queued

    def statistics(self, link):
        """Returns a link's counters."""
        cdef LinkState state = find(self.express, link)
        cdef int64_t credit = state.credit
        if state.is_sender and state.in_progress:  # items that wait in the engine will use theirs
            credit = state.owner.core_credit
        return LaneStatistics(
            deliveries=state.carried,
            octets=state.carried_octets,
            kept_octets=state.kept_octets,
            settled=state.settled,
            accepted=state.accepted,
            unsettled=state.unsettled,
            queued=state.queued,
            queued_unsettled=count_unsettled(self.express, state),
            credit=credit,
            granted=state.granted,
        )

    def listed(self, int64_t most):
        """Lists deliveries that are under way; see ``express.Lane``."""
        return list_lane(self.express, self, most)

    def relieve(self):
        """Records that a connection is no longer congested."""
        readmit(self)
        self.express.relieved.append(self)

    def came(self, LinkState link not None):
        """Records that something arrived on a receiving link by the general path."""
        if link.lane is not self or link.is_sender:
            raise MisuseError(f"link {link.link} brings nothing to this lane")
        self.touch(link)

    # deliveries

    cdef inline int touch(self, LinkState link) except -1:
        if not link.is_touched:
            link.is_touched = True
            if len(self.incoming) != 1:  # the only one needs no list; see grant_lane
                self.touched.append(link)
            if not self.is_touched:
                self.is_touched = True
                self.express.touched.append(self)
        return 0

    cdef int pump(self) except -1:
        """Sends waiting deliveries as far as there is credit: links in rotation, a share each."""
        cdef LinkState link
        cdef int64_t credit
        cdef int64_t stuck = 0  # consecutive links that could send nothing
        cdef uint32_t before
        while stuck < self.waiting:
            link = self.first_waiting
            credit = credit_in(self, &self.near)
            if self.far.count and not link.is_far:
                credit += credit_in(self, &self.far)
            if not credit and not self.is_crossed:
                return 0
            before = link.queued
            if credit:
                send_queued(self.express, self, link, max(LEAST_SHARE, credit // self.waiting))
                self.touch(link)
            stuck = stuck + 1 if link.queued == before else 0
            self.stop_waiting(link)
            if link.queued:
                self.wait(link)
        return 0
