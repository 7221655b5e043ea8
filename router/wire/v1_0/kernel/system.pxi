# The C compiler's and the system's functions, and the kernel's constants.

cdef extern from *:
    """
    #define HALF 0x80000000u
    #define LANE_NUMBERS 0x80000000u
    #define NONE 0xFFFFFFFFu

    static inline uint32_t load32(const uint8_t *at) {
        return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
    }
    static inline uint64_t load64(const uint8_t *at) {  /* in the machine's order: to compare */
        uint64_t word;
        memcpy(&word, at, sizeof word);
        return word;
    }
    static inline uint64_t first_octets(uint32_t count) {  /* a word's mask, in the same order */
        uint8_t octets[8] = {0};
        memset(octets, 0xFF, count);
        return load64(octets);
    }
    #define fetch_ahead(at) __builtin_prefetch(at, 1)
    static inline void fetch_lines(const void *at, size_t octets) {
        size_t each;
        for (each = 0; each < octets; each += 64) __builtin_prefetch((const char *)at + each, 1);
    }
    static inline void store32(uint8_t *at, uint32_t value) {
        at[0] = value >> 24; at[1] = value >> 16; at[2] = value >> 8; at[3] = value;
    }

    #define LEAST_MAPPED 16384
    #ifdef __linux__
    #include <sys/mman.h>
    static inline void *zeroed_pages(size_t octets) {  /* which go back to the system when freed */
        void *memory;
        if (octets < LEAST_MAPPED) return calloc(1, octets);
        memory = mmap(NULL, octets, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        return memory == MAP_FAILED ? NULL : memory;
    }
    static inline void free_pages(void *memory, size_t octets) {
        if (memory == NULL || octets < LEAST_MAPPED) free(memory);
        else munmap(memory, octets);
    }
    static inline void *zeroed_lines(size_t octets) {
        void *memory = aligned_alloc(64, octets);
        return memory == NULL ? NULL : memset(memory, 0, octets);
    }
    #include <poll.h>
    #include <sys/epoll.h>
    #include <sys/socket.h>
    #include <sys/uio.h>
    #include <time.h>
    #define CARRIES 1
    static inline int ready_sockets(int poller, struct epoll_event *events, int most) {
        return epoll_wait(poller, events, most, 0);
    }
    static inline int waits_alone(int poller, int others, double seconds) {
        struct pollfd both[2] = {{poller, POLLIN, 0}, {others, POLLIN, 0}};
        struct timespec most = {(time_t)seconds, (long)((seconds - (time_t)seconds) * 1e9)};
        return ppoll(both, 2, &most, NULL) > 0 && both[0].revents && !both[1].revents;
    }
    static inline int watch_socket(int poller, int descriptor, uint32_t events) {
        struct epoll_event event = {.events = events, .data.fd = descriptor};
        return epoll_ctl(poller, EPOLL_CTL_MOD, descriptor, &event) == 0;
    }
    static inline int is_readable(int descriptor) {  /* or broken */
        struct pollfd one = {descriptor, POLLIN, 0};
        return poll(&one, 1, 0) != 0;
    }
    static inline int descriptor_of(const struct epoll_event *event) { return event->data.fd; }
    static inline long receive_octets(int descriptor, void *at, size_t most) {
        return recv(descriptor, at, most, MSG_DONTWAIT);
    }
    static inline long send_pieces(int descriptor, struct iovec *pieces, size_t count) {
        if (count == 1)
            return send(descriptor, pieces->iov_base, pieces->iov_len, MSG_DONTWAIT | MSG_NOSIGNAL);
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
    static inline void *zeroed_lines(size_t octets) { return calloc(1, octets); }
    static inline void *zeroed_pages(size_t octets) { return calloc(1, octets); }
    static inline void free_pages(void *memory, size_t octets) { free(memory); }
    #define EPOLLIN 1
    #define EPOLLOUT 4
    #define EPOLLRDHUP 8192
    #define EPOLLET 2147483648u
    struct epoll_event { unsigned events; };
    struct iovec { void *iov_base; size_t iov_len; };
    static inline int ready_sockets(int poller, struct epoll_event *events, int most) { return 0; }
    static inline int waits_alone(int poller, int others, double seconds) { return 0; }
    static inline int watch_socket(int poller, int descriptor, uint32_t events) { return 0; }
    static inline int is_readable(int descriptor) { return 1; }
    static inline int descriptor_of(const struct epoll_event *event) { return -1; }
    static inline long receive_octets(int descriptor, void *at, size_t most) { return -1; }
    static inline long send_pieces(int descriptor, struct iovec *pieces, size_t count) { return -1; }
    static inline double seconds_now(void) { return 0; }
    #endif
    """
    const bint CARRIES
    const uint32_t EPOLLIN
    const uint32_t EPOLLOUT
    const uint32_t EPOLLRDHUP
    const uint32_t EPOLLET
    struct epoll_event:
        uint32_t events
    struct iovec:
        void *iov_base
        size_t iov_len
    int ready_sockets(int poller, epoll_event *events, int most) noexcept nogil
    int waits_alone(int poller, int others, double seconds) noexcept nogil
    bint watch_socket(int poller, int descriptor, uint32_t events) noexcept nogil
    int is_readable(int descriptor) noexcept nogil
    int descriptor_of(const epoll_event *event) noexcept nogil
    long receive_octets(int descriptor, void *at, size_t most) noexcept nogil
    long send_pieces(int descriptor, iovec *pieces, size_t count) noexcept nogil
    double seconds_now() noexcept nogil
    void *zeroed_lines(size_t octets) noexcept nogil
    void *zeroed_pages(size_t octets) noexcept nogil
    void free_pages(void *memory, size_t octets) noexcept nogil
    const uint32_t HALF
    const uint32_t LANE_NUMBERS  # a link's delivery numbers of the lane begin here
    const uint32_t NONE          # no pair, no link
    uint32_t load32(const uint8_t *at) noexcept nogil
    uint64_t load64(const uint8_t *at) noexcept nogil
    uint64_t first_octets(uint32_t count) noexcept nogil
    void fetch_ahead(const void *at) noexcept nogil
    void fetch_lines(const void *at, size_t octets) noexcept nogil
    void store32(uint8_t *at, uint32_t value) noexcept nogil

cdef enum:
    TRANSFER_OCTETS = 40      # upper bound of a transfer's size before its payload
    LARGEST_FRAME = 65536     # largest frame that the engine sends, whatever the peer accepts
    MOST_FRAMES = 32          # most frames of one delivery; the window must admit them at once
    NARROW_FRAMES = 512       # see windows
    LARGE_OCTETS = 8192       # see windows
    HEAD_OCTETS = 24          # size of a transfer's head: copied completely, whatever its length
    LEAST_SHARE = 128         # as in routes.distribution
    LEAST_REFERENCE = 16384   # smallest payload, or piece of one, that is not copied, in octets
    LARGEST_CARRIED = 131072  # octets of a frame: an incomplete one must leave space after it
