/* A second load, which does as little as it can for each message, so that what is measured is the
 * other side: `load` checks more and takes several times as long for a message.
 *
 *   lean key=value ...
 *
 *   mode       amqp: dial a router on `port`; raw: the same frames without any negotiation, dialed
 *              to a relay on `port` that dials `back` in turn
 *   port back  where to dial; raw: where we listen (5672, 5673)
 *   senders    pairs of connections, each with one session and one link (1)
 *   address    pattern of the addresses, %d stands for the number of the pair (q%d)
 *   size       octets of a message's body, 16 or more (100)
 *   window     most unsettled deliveries per sender (256)
 *   batch      most messages per write (500)
 *   seconds warmup       measured and before (2, 0.5)
 *   watch      process whose CPU time is reported with the rest
 *   congestion TCP_CONGESTION of all sockets (reno)
 *
 * Receivers accept and settle, with one disposition for all that they have read at once. What else
 * `load` knows is ignored. A transfer is read field by field up to `more`, and its delivery-id must
 * be the next one; of the body only the time is read.
 *
 * One thread, one epoll; one line of JSON on standard output, and a non-zero exit if the other side
 * misbehaves.
 */
#define _GNU_SOURCE
#include "histogram.h"
#include "wire.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum { IN_OCTETS = 1 << 20, OUT_OCTETS = 1 << 18, CONTROL_OCTETS = 512 };

static struct {
    const char *address, *congestion;
    int port, back, pairs, size, window, batch, watch;
    bool is_raw;
    double seconds, warmup;
} options;

struct end {
    int fd;
    int index;
    bool is_receiver, is_attached, wants_header, waits_for_room;
    uint8_t *in, *out;
    size_t in_used, out_begin, out_end;
    uint32_t next_delivery;                    /* sender: to be sent; receiver: expected */
    uint32_t settled, credit_end, window_end;  /* sender */
    uint32_t credited;                         /* receiver: up to this delivery-count */
    bool is_partial, is_settled, has_range;    /* receiver */
    uint32_t first;                            /* receiver: of the deliveries to be accepted */
};

static struct {
    uint8_t *octets;
    size_t length, id_at, tag_at, time_at;
} message;

static int epoll;
static struct end *ends;
static struct histogram one_way;
static uint64_t received, settled, reads, misorders;
static bool is_measuring;

static void fail(const char *what) {
    fprintf(stderr, "lean: %s: %s\n", what, errno ? strerror(errno) : "the peer broke a rule");
    exit(1);
}

static uint64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* --- sockets ------------------------------------------------------------------------------------ */

static void watch(struct end *e, int operation) {
    struct epoll_event event = {.data.ptr = e};
    event.events = EPOLLIN | (e->waits_for_room ? EPOLLOUT : 0);
    if (epoll_ctl(epoll, operation, e->fd, &event)) fail("epoll_ctl");
}

static void flush(struct end *e) {
    bool is_full = false;
    while (e->out_begin < e->out_end && !is_full) {
        ssize_t count = send(e->fd, e->out + e->out_begin, e->out_end - e->out_begin, MSG_NOSIGNAL);
        if (count < 0 && errno != EAGAIN) fail("send");
        is_full = count < 0;
        if (!is_full) e->out_begin += (size_t)count;
    }
    if (!is_full) e->out_begin = e->out_end = 0;
    if (is_full == e->waits_for_room) return;
    e->waits_for_room = is_full;
    watch(e, EPOLL_CTL_MOD);
}

/* Returns room for a frame without payload behind what waits to be written. */
static uint8_t *room(struct end *e) {
    if (e->out_end + CONTROL_OCTETS > OUT_OCTETS) {
        memmove(e->out, e->out + e->out_begin, e->out_end - e->out_begin);
        e->out_end -= e->out_begin;
        e->out_begin = 0;
        if (e->out_end + CONTROL_OCTETS > OUT_OCTETS) fail("the peer does not read");
    }
    return e->out + e->out_end;
}

static void commit(struct end *e, const uint8_t *end) {
    e->out_end = (size_t)(end - e->out);
}

static struct sockaddr_in loopback(int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

static int dial(void) {
    struct sockaddr_in peer = loopback(options.port);
    for (int tries = 0; tries < 250; tries++) {
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        if (fd < 0) fail("socket");
        if (!connect(fd, (struct sockaddr *)&peer, sizeof peer)) return fd;
        close(fd);
        usleep(20000);
    }
    fail("connect");
    return -1;
}

static int listen_for_relay(void) {
    struct sockaddr_in here = loopback(options.back);
    int on = 1, fd = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, (struct sockaddr *)&here, sizeof here) || listen(fd, 4096)) fail("listen");
    return fd;
}

/* --- negotiation -------------------------------------------------------------------------------- */

static void negotiate(struct end *e) {
    static const uint8_t header[] = {'A', 'M', 'Q', 'P', 0, 1, 0, 0};
    char name[64], address[128];
    uint8_t *frame = room(e);
    snprintf(name, sizeof name, "lean-%s-%d-%d", e->is_receiver ? "in" : "out", e->index, getpid());
    snprintf(address, sizeof address, options.address, e->index);
    memcpy(frame, header, sizeof header);
    frame += sizeof header;
    struct writer w = begin_frame(frame, TYPE_AMQP, OPEN);
    write_string(&w, name);
    write_null(&w);            /* hostname */
    write_uint(&w, 65536);     /* max-frame-size */
    write_ushort(&w, 10);      /* channel-max */
    frame = end_frame(frame, &w);

    w = begin_frame(frame, TYPE_AMQP, BEGIN);
    write_null(&w);            /* remote-channel */
    write_uint(&w, 0);         /* next-outgoing-id */
    write_uint(&w, INT32_MAX); /* incoming-window */
    write_uint(&w, INT32_MAX); /* outgoing-window */
    frame = end_frame(frame, &w);

    w = begin_frame(frame, TYPE_AMQP, ATTACH);
    write_string(&w, name);
    write_uint(&w, 0);         /* handle */
    write_flag(&w, e->is_receiver);
    write_ubyte(&w, 0);        /* unsettled */
    write_ubyte(&w, 0);        /* the receiver settles first */
    write_terminus(&w, SOURCE, e->is_receiver ? address : NULL);
    write_terminus(&w, TARGET, e->is_receiver ? NULL : address);
    if (!e->is_receiver) {
        write_null(&w);        /* unsettled */
        write_null(&w);        /* incomplete-unsettled */
        write_uint(&w, 0);     /* initial-delivery-count */
    }
    commit(e, end_frame(frame, &w));
    flush(e);
}

static void give_credit(struct end *e) {
    uint8_t *frame = room(e);
    struct writer w = begin_frame(frame, TYPE_AMQP, FLOW);
    write_uint(&w, e->next_delivery);
    write_uint(&w, INT32_MAX);
    write_uint(&w, 0);
    write_uint(&w, INT32_MAX);
    write_uint(&w, 0); /* handle */
    write_uint(&w, e->next_delivery);
    write_uint(&w, 2 * (uint32_t)options.window);
    commit(e, end_frame(frame, &w));
    e->credited = e->next_delivery + 2 * (uint32_t)options.window;
}

/* --- messages ----------------------------------------------------------------------------------- */

static void compose(void) {
    size_t size = (size_t)options.size;
    message.octets = malloc(size + 128);
    struct writer w = begin_frame(message.octets, TYPE_AMQP, TRANSFER);
    write_zero(&w);            /* handle */
    message.id_at = (size_t)(w.at + 1 - message.octets);
    write_uint(&w, 0);
    message.tag_at = (size_t)(w.at + 2 - message.octets);
    write_binary(&w, "\0\0\0\0\0\0\0\0", 8);
    write_zero(&w);            /* message-format */
    write_flag(&w, false);     /* settled */
    uint8_t *at = end_frame(message.octets, &w);
    const uint8_t small[] = {0x00, 0x53, 0x75, 0xa0, (uint8_t)size}, large[] = {0x00, 0x53, 0x75, 0xb0};
    memcpy(at, size < 256 ? small : large, size < 256 ? sizeof small : sizeof large);
    at += size < 256 ? 5 : 8;
    if (size >= 256) put32(at - 4, (uint32_t)size);
    message.time_at = (size_t)(at - message.octets);
    memset(at, 'x', size);
    message.length = message.time_at + size;
    put32(message.octets, (uint32_t)message.length);
}

/* Sends as many messages as window, credit and room allow; returns how many. */
static int fill(struct end *e) {
    if (e->out_end || !e->is_attached) return 0;
    int64_t count = options.window - (int64_t)(e->next_delivery - e->settled);
    if (!options.is_raw && (int32_t)(e->credit_end - e->next_delivery) < count)
        count = (int32_t)(e->credit_end - e->next_delivery);
    if (!options.is_raw && (int32_t)(e->window_end - e->next_delivery) < count)
        count = (int32_t)(e->window_end - e->next_delivery);
    if (count > options.batch) count = options.batch;
    if (count > OUT_OCTETS / (int64_t)message.length) count = OUT_OCTETS / (int64_t)message.length;
    if (count <= 0) return 0;
    uint64_t time = now();
    uint8_t *at = e->out;
    for (int64_t i = 0; i < count; i++, at += message.length) {
        uint32_t id = e->next_delivery++;
        memcpy(at, message.octets, message.length);
        put32(at + message.id_at, id);
        put32(at + message.tag_at, id);
        memcpy(at + message.time_at, &time, 8);
    }
    commit(e, at);
    flush(e);
    return (int)count;
}

static void accept_range(struct end *e) {
    if (!e->has_range) return;
    e->has_range = false;
    uint8_t *frame = room(e);
    struct writer w = begin_frame(frame, TYPE_AMQP, DISPOSITION);
    write_flag(&w, true);
    write_uint(&w, e->first);
    write_uint(&w, e->next_delivery - 1);
    write_flag(&w, true);
    write_state(&w, ACCEPTED);
    commit(e, end_frame(frame, &w));
}

/* Reads a field of a transfer's head: a number, a flag, a tag or null; NULL: it is something else. */
static inline const uint8_t *field(const uint8_t *at, uint32_t *number) {
    *number = 0;
    switch (*at) {
    case 0x40: case 0x42: case 0x43: return at + 1;
    case 0x41: *number = 1; return at + 1;
    case 0x52: *number = at[1]; return at + 2;
    case 0x70: *number = get32(at + 1); return at + 5;
    case 0xa0: return at + 2 + at[1];
    default: return NULL;
    }
}

static void take_transfer(struct end *e, const uint8_t *frame, uint32_t size, uint64_t time) {
    uint32_t number[6] = {0};
    if (size < 24 || frame[11] != 0xc0) fail("a transfer of another form");
    const uint8_t *at = frame + 14, *payload = frame + 13 + frame[12];
    for (int i = 0; i < frame[13] && i < 6; i++)
        if (!(at = field(at, &number[i])) || at > payload) fail("a transfer of another form");
    if (!e->is_partial) {
        if (number[1] != e->next_delivery) misorders++;
        e->next_delivery = number[1];
        e->is_settled = false;
        uint64_t then;
        const uint8_t *time_at = payload + (payload[3] == 0xa0 ? 5 : 8);
        memcpy(&then, time_at, sizeof then);
        if (is_measuring) record(&one_way, time - then, 1);
    }
    e->is_settled |= number[4] != 0;
    e->is_partial = number[5] != 0;
    if (e->is_partial) return;
    received++;
    if (!e->has_range) e->first = e->next_delivery;
    e->has_range = true;
    e->next_delivery++;
    if (e->is_settled) fail("a delivery that was settled");
}

static void take_control(struct end *e, const uint8_t *frame, uint32_t size) {
    struct performative p;
    errno = 0;
    if (!read_frame(frame, size, &p)) fail("an unreadable frame");
    switch (p.code) {
    case DISPOSITION: {
        if (e->is_receiver || !number_of(&p, 0, 0)) return;
        uint32_t first = (uint32_t)number_of(&p, 1, 0), last = (uint32_t)number_of(&p, 2, first);
        if (number_of(&p, 4, ACCEPTED) != ACCEPTED) fail("a delivery was not accepted");
        e->settled += last - first + 1;
        settled += last - first + 1;
        break;
    }
    case FLOW:
        if (e->is_receiver) return;
        e->window_end = (uint32_t)(number_of(&p, 0, 0) + number_of(&p, 1, 0));
        if (p.count > 6) e->credit_end = (uint32_t)(number_of(&p, 5, 0) + number_of(&p, 6, 0));
        e->is_attached = e->is_attached || e->credit_end;
        break;
    case BEGIN: e->window_end = (uint32_t)number_of(&p, 2, 0); break;
    case ATTACH:
        if (!e->is_receiver) break;
        e->is_attached = true;
        give_credit(e);
        break;
    case DETACH: case END: case CLOSE: fail("the peer ended");
    }
}

/* Receives once; returns whether there may be more. */
static bool receive(struct end *e) {
    ssize_t count = recv(e->fd, e->in + e->in_used, IN_OCTETS - e->in_used, 0);
    reads++;
    if (count <= 0) {
        if (count && errno == EAGAIN) return false;
        fail(count ? "recv" : "end of stream");
    }
    e->in_used += (size_t)count;
    size_t at = 0;
    uint64_t time = now();
    while (e->in_used - at >= FRAME_HEADER) {
        const uint8_t *frame = e->in + at;
        uint32_t size = e->wants_header ? FRAME_HEADER : get32(frame);
        if (size > e->in_used - at) break;
        if (e->wants_header) e->wants_header = false;
        else if (e->is_receiver && size > 10 && frame[10] == TRANSFER) take_transfer(e, frame, size, time);
        else take_control(e, frame, size);
        at += size;
    }
    memmove(e->in, e->in + at, e->in_used - at);
    e->in_used -= at;
    return count > IN_OCTETS / 2;
}

static void turn(int milliseconds) {
    struct epoll_event events[256];
    int count = epoll_wait(epoll, events, 256, milliseconds);
    for (int i = 0; i < count; i++) {
        struct end *e = events[i].data.ptr;
        if (events[i].events & EPOLLOUT) flush(e);
        if (!(events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR))) continue;
        for (int times = 0; times < 4 && receive(e); times++) continue;
        if (!e->is_receiver) continue;
        accept_range(e);
        if (!options.is_raw && e->is_attached && e->credited - e->next_delivery < (uint32_t)options.window)
            give_credit(e);
        flush(e);
    }
}

/* --- the run ------------------------------------------------------------------------------------ */

static void open_end(struct end *e, int fd, bool is_receiver, int index) {
    int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, options.congestion,
                   (socklen_t)strlen(options.congestion)))
        fail(options.congestion);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    *e = (struct end){.fd = fd, .index = index, .is_receiver = is_receiver};
    e->in = malloc(IN_OCTETS);
    e->out = malloc(OUT_OCTETS);
    e->is_attached = options.is_raw;
    e->wants_header = !options.is_raw;
    watch(e, EPOLL_CTL_ADD);
    if (!options.is_raw) negotiate(e);
}

static void await_attached(const struct end *e) {
    uint64_t until = now() + 60000000000u;
    while (!e->is_attached) {
        errno = 0;
        if (now() > until) fail("no credit within a minute");
        turn(100);
    }
}

/* Receivers first, so that senders get credit; a relay dials for each sender. */
static void open_all(void) {
    struct end *senders = ends, *receivers = ends + options.pairs;
    if (options.is_raw) {
        int listener = listen_for_relay();
        for (int i = 0; i < options.pairs; i++) {
            open_end(&senders[i], dial(), false, i);
            int fd = accept(listener, NULL, NULL);
            if (fd < 0) fail("accept");
            open_end(&receivers[i], fd, true, i);
        }
        return;
    }
    for (int i = 0; i < options.pairs; i++) open_end(&receivers[i], dial(), true, i);
    for (int i = 0; i < options.pairs; i++) await_attached(&receivers[i]);
    for (int i = 0; i < options.pairs; i++) open_end(&senders[i], dial(), false, i);
    for (int i = 0; i < options.pairs; i++) await_attached(&senders[i]);
}

static double watched_seconds(void) {
    char path[64], line[1024];
    if (!options.watch) return 0;
    snprintf(path, sizeof path, "/proc/%d/stat", options.watch);
    FILE *file = fopen(path, "r");
    if (!file || !fgets(line, sizeof line, file)) fail(path);
    fclose(file);
    unsigned long user = 0, system = 0;
    sscanf(strrchr(line, ')') + 2, "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &system);
    return (double)(user + system) / (double)sysconf(_SC_CLK_TCK);
}

static double own_seconds(void) {
    struct rusage own;
    getrusage(RUSAGE_SELF, &own);
    return (double)(own.ru_utime.tv_sec + own.ru_stime.tv_sec) +
           (double)(own.ru_utime.tv_usec + own.ru_stime.tv_usec) * 1e-6;
}

static void run(void) {
    uint64_t start = now(), from = 0, received_then = 0, settled_then = 0, reads_then = 0;
    double own_then = 0, watched_then = 0;
    for (;;) {
        uint64_t time = now();
        if (!is_measuring && (double)(time - start) > options.warmup * 1e9) {
            is_measuring = true;
            from = time;
            received_then = received, settled_then = settled, reads_then = reads;
            own_then = own_seconds(), watched_then = watched_seconds();
        }
        if (is_measuring && (double)(time - from) > options.seconds * 1e9) break;
        int done = 0;
        for (int i = 0; i < options.pairs; i++) done += fill(&ends[i]);
        turn(done ? 0 : 50);
    }
    double seconds = (double)(now() - from) * 1e-9, count = (double)(received - received_then);
    printf("{\"messages_per_second\": %.0f, \"settled_per_second\": %.0f, \"octets_per_second\": %.0f, ",
           count / seconds, (double)(settled - settled_then) / seconds, count * options.size / seconds);
    printf("\"load_cpu\": %.3f, \"watched_cpu\": %.3f, ", (own_seconds() - own_then) / seconds,
           (watched_seconds() - watched_then) / seconds);
    printf("\"one_way_p50_us\": %.1f, \"one_way_p99_us\": %.1f, \"one_way_p999_us\": %.1f, ",
           percentile(&one_way, 0.5), percentile(&one_way, 0.99), percentile(&one_way, 0.999));
    printf("\"received\": %" PRIu64 ", \"messages_per_read\": %.1f, \"misorders\": %" PRIu64 "}\n",
           received, count / (double)(reads - reads_then + 1), misorders);
}

static const char *option(int count, char **values, const char *key, const char *otherwise) {
    size_t length = strlen(key);
    for (int i = 1; i < count; i++)
        if (!strncmp(values[i], key, length) && values[i][length] == '=') return values[i] + length + 1;
    return otherwise;
}

int main(int count, char **values) {
#define NUMBER(key, otherwise) atoi(option(count, values, key, otherwise))
    options.address = option(count, values, "address", "q%d");
    options.congestion = option(count, values, "congestion", "reno");
    options.is_raw = !strcmp(option(count, values, "mode", "amqp"), "raw");
    options.port = NUMBER("port", "5672"), options.back = NUMBER("back", "5673");
    options.pairs = NUMBER("senders", "1"), options.size = NUMBER("size", "100");
    options.window = NUMBER("window", "256"), options.batch = NUMBER("batch", "500");
    options.watch = NUMBER("watch", "0");
    options.seconds = atof(option(count, values, "seconds", "2"));
    options.warmup = atof(option(count, values, "warmup", "0.5"));
    if (options.pairs < 1 || options.window < 1 || options.size < 16 || options.size > 65000) {
        errno = EINVAL;
        fail("senders, window or size");
    }
    epoll = epoll_create1(0);
    ends = calloc(2 * (size_t)options.pairs, sizeof *ends);
    compose();
    open_all();
    run();
    return misorders != 0;
}
