/* A load on a router, or on an octet relay: senders, receivers, one thread, one epoll.
 *
 *   load key=value ...
 *
 *   mode       amqp: dial a router on `port`; raw: the same frames without any negotiation, dialed
 *              to a relay on `port` that dials `back` in turn; idle: connections that do nothing
 *   host port  where to dial (127.0.0.1, 5672)          back   raw: where we listen
 *   take_port  where receivers dial, if that is another router (port)
 *   senders receivers    connections, each with one session and one link (1, 1)
 *   addresses  how many; the n-th sender or receiver takes address n modulo this (receivers)
 *   address    its pattern, %d stands for the number (q%d)
 *   first_send first_take   1.0: address of a link that each sender, or receiver, attaches before its
 *              own, and that does nothing: a router may keep the whole connection where that belongs
 *   send take  protocol of senders and of receivers: 1.0 or 0-9-1, whose senders ask for confirms and
 *              whose receivers acknowledge (1.0)
 *   size       octets of a message's body, 16 or more (100)
 *   own        1: messages have properties and headers, among them an id and a time of their own
 *   settle     unsettled: accepted by the receiver; settled: beforehand; second: the receiver
 *              settles after the sender (unsettled)
 *   window     most unsettled deliveries per sender (256)
 *   credit     of a receiver (twice the window)
 *   batch      most messages per write (500)            ack    most deliveries per disposition (0: any)
 *   rate       messages per second of all senders together (0: as many as possible)
 *   seconds warmup       measured and before (2, 0.5)
 *   hold       amqp: receivers stay silent; each sender sends as many messages as this (0: not so)
 *   watch      process whose memory is reported with the rest, and whose CPU time with that of its
 *              children: the journal is one
 *   marks      1: a line `measuring` is written after the warmup, and the connections stay, silent,
 *              after the measured time until standard input ends, so that others can measure, too (0)
 *   congestion TCP_CONGESTION of all sockets (reno)     sasl   1: come as ANONYMOUS
 *   tls        1: all connections are inside TLS; peers are not verified (0)
 *   certificate   raw, with TLS: file of a server's key and chain
 *   storm      idle: 1: all dial at once, and the seconds until all are attached are reported (0)
 *
 * `skipped` counts messages that were passed over where each receiver has one sender to itself,
 * `longest_gap_us` is the longest time in which a receiver got nothing, `longest_pause_us` that in
 * which this program itself did not run, if it is paced.
 *
 * In raw mode receivers and senders come in pairs. Idle and held connections stay until standard
 * input ends. One line of JSON on standard output; a non-zero exit if the other side misbehaves.
 */
#define _GNU_SOURCE
#include "basic.h"
#include "histogram.h"
#include "secure.h"
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

enum { IN_OCTETS = 1 << 18, OUT_OCTETS = 1 << 18, BODY_LEAD = 16, SMALL_OCTETS = 16384 };

enum mode { AMQP, RAW, IDLE };
enum settle { UNSETTLED, SETTLED, SECOND };
enum { OWN_SESSION, FIRST_SESSION }; /* our channels */

static struct {
    enum mode mode;
    enum settle settle;
    const char *host, *address, *first_send, *first_take, *congestion, *certificate;
    int port, take_port, back, senders, receivers, addresses, size, window, credit, batch, ack, hold, watch, marks, sasl, tls, storm;
    bool sends_basic, takes_basic, own;
    double rate, seconds, warmup;
} options;

struct connection {
    int fd;
    struct ssl_st *tls;       /* NULL: clear */
    bool is_shaking_hands;
    int index;
    bool is_receiver;
    bool is_basic;            /* speaks 0-9-1 */
    uint64_t arrived;         /* when it last got anything; 0: not while measuring */
    bool waits_for_room;      /* to write */
    bool is_ready;            /* attached, and may send or has given credit */
    bool wants_header;        /* of the peer, before its frames */
    int first_channel;        /* the peer's for the session of the link that does nothing; -1: unknown */
    uint8_t *in, *out;
    size_t in_used, out_begin, out_end;
    uint32_t frame_octets;    /* the largest that the peer takes */
    uint32_t next_incoming_id, next_outgoing_id, window_end;
    uint32_t delivery_count, credit_end;
    uint32_t next_delivery, settled;           /* sender */
    uint64_t *sent_at;                         /* sender: by delivery-id & (slots - 1) */
    bool is_partial, is_unsettled;             /* receiver: the delivery that is coming in */
    uint32_t partial_id;
    bool has_range;                            /* receiver: deliveries to be accepted */
    uint32_t first, last;
    uint32_t *sequences;                       /* receiver: by sender, the next number due */
    uint64_t tag;                              /* receiver of 0-9-1: of the last delivery */
    uint64_t body_left;                        /* receiver of 0-9-1: of the delivery that is coming in */
};

/* A message, ready but for delivery-id, tag, time and number. */
static struct {
    uint8_t *octets;
    size_t length, id_at, tag_at, lead_at;
    size_t message_id_at, time_at; /* 0: they have none */
    uint32_t frames;
} message;

static int epoll, total;
static uint32_t slots = 1024;
static struct connection *connections;
static struct histogram one_way, round_trip;
static uint64_t sent, received, settled, dispositions, reads, writes, misorders, skipped;
static uint64_t longest_gap, longest_pause; /* ns */
static double opening_seconds;
static bool is_measuring;

static void fail(const char *what) {
    fprintf(stderr, "load: %s: %s\n", what, errno ? strerror(errno) : "the peer broke a rule");
    exit(1);
}

static uint64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* --- sockets ------------------------------------------------------------------------------------ */

static void watch_socket(struct connection *c, int operation) {
    struct epoll_event event = {.data.ptr = c};
    event.events = EPOLLIN | (c->waits_for_room ? EPOLLOUT : 0);
    if (epoll_ctl(epoll, operation, c->fd, &event)) fail("epoll_ctl");
}

static void set_up(int fd) {
    int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, options.congestion,
                   (socklen_t)strlen(options.congestion)))
        fail(options.congestion);
    fcntl(fd, F_SETFL, O_NONBLOCK);
}

static int dial(int port) {
    struct sockaddr_in peer = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    if (!inet_aton(options.host, &peer.sin_addr)) fail(options.host);
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
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_port = htons((uint16_t)options.back)};
    here.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int on = 1, fd = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, (struct sockaddr *)&here, sizeof here) || listen(fd, 4096)) fail("listen");
    return fd;
}

static void flush(struct connection *c) {
    while (c->out_begin < c->out_end) {
        size_t left = c->out_end - c->out_begin;
        ssize_t count = c->tls ? secure_send(c->tls, c->out + c->out_begin, left)
                               : send(c->fd, c->out + c->out_begin, left, MSG_NOSIGNAL);
        writes++;
        if (count < 0) {
            if (errno != EAGAIN) fail("send");
            if (!c->waits_for_room) {
                c->waits_for_room = true;
                watch_socket(c, EPOLL_CTL_MOD);
            }
            return;
        }
        c->out_begin += (size_t)count;
    }
    c->out_begin = c->out_end = 0;
    if (c->waits_for_room) {
        c->waits_for_room = false;
        watch_socket(c, EPOLL_CTL_MOD);
    }
}

/* Returns room for a frame without payload behind what waits to be written. */
static uint8_t *room(struct connection *c) {
    if (c->out_end + 512 > OUT_OCTETS) {
        memmove(c->out, c->out + c->out_begin, c->out_end - c->out_begin);
        c->out_end -= c->out_begin;
        c->out_begin = 0;
        if (c->out_end + 512 > OUT_OCTETS) fail("the peer does not read");
    }
    return c->out + c->out_end;
}

static void commit(struct connection *c, const uint8_t *end) {
    c->out_end = (size_t)(end - c->out);
}

/* --- negotiation -------------------------------------------------------------------------------- */

/* Writes a session with a link; both ends are at handle 0. */
static uint8_t *begin_link(uint8_t *frame, const struct connection *c, uint8_t channel, const char *name,
                           const char *address) {
    struct writer w = begin_frame(frame, TYPE_AMQP, BEGIN);
    write_null(&w);            /* remote-channel */
    write_uint(&w, 0);         /* next-outgoing-id */
    write_uint(&w, INT32_MAX); /* incoming-window */
    write_uint(&w, INT32_MAX); /* outgoing-window */
    uint8_t *attach = end_frame(frame, &w);

    w = begin_frame(attach, TYPE_AMQP, ATTACH);
    write_string(&w, name);
    write_uint(&w, 0);         /* handle */
    write_flag(&w, c->is_receiver);
    write_ubyte(&w, options.settle == SETTLED);
    write_ubyte(&w, options.settle == SECOND);
    write_terminus(&w, SOURCE, c->is_receiver ? address : NULL);
    write_terminus(&w, TARGET, c->is_receiver ? NULL : address);
    if (!c->is_receiver) {
        write_null(&w);        /* unsettled */
        write_null(&w);        /* incomplete-unsettled */
        write_uint(&w, 0);     /* initial-delivery-count */
    }
    uint8_t *end = end_frame(attach, &w);
    frame[CHANNEL] = attach[CHANNEL] = channel;
    return end;
}

static void begin_negotiation(struct connection *c) {
    static const uint8_t header[] = {'A', 'M', 'Q', 'P', 0, 1, 0, 0};
    static const uint8_t sasl_header[] = {'A', 'M', 'Q', 'P', 3, 1, 0, 0};
    char name[64], address[128];
    uint8_t *frame = room(c);
    struct writer w;
    snprintf(name, sizeof name, "load-%s-%d-%d", c->is_receiver ? "in" : "out", c->index, getpid());
    snprintf(address, sizeof address, options.address, c->index % options.addresses);

    if (c->is_basic) {
        commit(c, basic_negotiate(frame, c->is_receiver ? address : NULL, (uint16_t)options.credit));
        flush(c);
        return;
    }
    if (options.sasl) {
        memcpy(frame, sasl_header, sizeof sasl_header);
        frame += sizeof sasl_header;
        w = begin_frame(frame, TYPE_SASL, SASL_INIT);
        write_symbol(&w, "ANONYMOUS");
        frame = end_frame(frame, &w);
    }
    memcpy(frame, header, sizeof header);
    frame += sizeof header;
    w = begin_frame(frame, TYPE_AMQP, OPEN);
    write_string(&w, name);
    write_null(&w);            /* hostname */
    write_uint(&w, 65536);     /* max-frame-size */
    write_ushort(&w, 10);      /* channel-max */
    frame = end_frame(frame, &w);

    const char *first = c->is_receiver ? options.first_take : options.first_send;
    if (first) frame = begin_link(frame, c, FIRST_SESSION, "first", first);
    commit(c, begin_link(frame, c, OWN_SESSION, name, address));
    flush(c);
}

static void give_credit(struct connection *c) {
    uint8_t *frame = room(c);
    struct writer w = begin_frame(frame, TYPE_AMQP, FLOW);
    write_uint(&w, c->next_incoming_id);
    write_uint(&w, INT32_MAX);
    write_uint(&w, c->next_outgoing_id);
    write_uint(&w, INT32_MAX);
    write_uint(&w, 0); /* handle */
    write_uint(&w, c->delivery_count);
    write_uint(&w, (uint32_t)options.credit);
    commit(c, end_frame(frame, &w));
    c->credit_end = c->delivery_count + (uint32_t)options.credit;
}

/* --- sending ------------------------------------------------------------------------------------ */

/* Lays a message of 0-9-1 out, for senders of one address. */
static void compose_basic(void) {
    char address[128];
    uint8_t *id_at = NULL, *time_at = NULL;
    snprintf(address, sizeof address, options.address, 0);
    message.octets = calloc(1, (size_t)options.size + 512);
    uint8_t *at = basic_publish(message.octets, address);
    at = basic_header(at, (uint64_t)options.size, options.own, &id_at, &time_at);
    at = basic_body(at, (uint32_t)options.size);
    message.lead_at = (size_t)(at - message.octets);
    message.length = message.lead_at + (size_t)options.size + 1;
    message.frames = 3;
    if (!id_at) return;
    message.message_id_at = (size_t)(id_at - message.octets);
    message.time_at = (size_t)(time_at - message.octets);
}

/* Sections with properties as many senders have them; an id of eight digits, a time of eight octets. */
static const uint8_t sections[] =
    "\x00\x53\x70\xc0\x02\x01\x41"
    "\x00\x53\x73\xc0\x2d\x0a\xa1\x08" "00000000" "\x40\x40\x40\x40\x40\xa3\x10" "application/json"
    "\x40\x40\x83\0\0\0\0\0\0\0\0"
    "\x00\x53\x74\xc1\x1a\x04\xa1\x05trace\xa1\x08" "abcdefgh" "\xa1\x04hops\x54\x01";
enum { SECTIONS_ID = 15, SECTIONS_TIME = 49 };

/* Lays a message out for frames of at most `frame_octets`. */
static void compose(uint32_t frame_octets) {
    size_t before = options.own ? sizeof sections - 1 : 0;
    size_t body = (size_t)options.size, data = body < 256 ? 5 : 8, section = before + data;
    size_t left = section + body;
    uint8_t *payload = calloc(1, left), *at;
    const uint8_t small[] = {0x00, 0x53, 0x75, 0xa0, (uint8_t)body}, large[] = {0x00, 0x53, 0x75, 0xb0};
    memcpy(payload, sections, before);
    memcpy(payload + before, body < 256 ? small : large, body < 256 ? sizeof small : sizeof large);
    if (body >= 256) put32(payload + before + 4, (uint32_t)body);

    free(message.octets);
    message.octets = at = malloc(left + (left / (frame_octets - 64) + 1) * 64);
    message.frames = 0;
    for (const uint8_t *from = payload; left; message.frames++) {
        struct writer w = begin_frame(at, TYPE_AMQP, TRANSFER);
        write_zero(&w); /* handle */
        if (!message.frames) {
            message.id_at = (size_t)(w.at + 1 - message.octets);
            write_uint(&w, 0);
            message.tag_at = (size_t)(w.at + 2 - message.octets);
            write_binary(&w, "\0\0\0\0\0\0\0\0", 8);
            write_zero(&w); /* message-format */
            write_flag(&w, options.settle == SETTLED);
        } else {
            for (int field = 1; field < 5; field++) write_null(&w);
        }
        uint8_t *more_at = w.at;
        write_flag(&w, true);
        size_t head = (size_t)(w.at - at), part = left < frame_octets - head ? left : frame_octets - head;
        if (part == left) *more_at = 0x42;
        end_frame(at, &w);
        put32(at, (uint32_t)(head + part));
        if (!message.frames) message.lead_at = (size_t)(w.at - message.octets) + section;
        memcpy(w.at, from, part);
        at = w.at + part;
        from += part;
        left -= part;
    }
    message.length = (size_t)(at - message.octets);
    if (before) {
        message.message_id_at = message.lead_at - section + SECTIONS_ID;
        message.time_at = message.lead_at - section + SECTIONS_TIME;
    }
    free(payload);
}

static void stamp(struct connection *c, uint8_t *octets, uint64_t time) {
    uint32_t id = c->next_delivery++, sender = (uint32_t)c->index;
    if (!c->is_basic) {
        put32(octets + message.id_at, id);
        put32(octets + message.tag_at, id);
    }
    if (message.message_id_at) {
        uint32_t rest = id;
        for (int digit = 7; digit >= 0; digit--, rest /= 10)
            octets[message.message_id_at + (size_t)digit] = (uint8_t)('0' + rest % 10);
        uint64_t seconds = 1700000000 + id / 16;
        put64(octets + message.time_at, c->is_basic ? seconds : seconds * 1000);
    }
    memcpy(octets + message.lead_at, &time, 8);
    memcpy(octets + message.lead_at + 8, &sender, 4);
    memcpy(octets + message.lead_at + 12, &id, 4);
    c->sent_at[id & (slots - 1)] = time;
}

static int least(int64_t a, int64_t b) {
    return (int)(a < b ? a : b);
}

/* Sends up to `most` messages, as window and credit allow; returns how many. */
static int fill(struct connection *c, int most) {
    if (c->out_begin < c->out_end) return 0;
    int count = least(most, options.batch);
    if (options.settle != SETTLED)
        count = least(count, options.window - (int64_t)(c->next_delivery - c->settled));
    if (options.mode == AMQP && !c->is_basic) {
        count = least(count, (int32_t)(c->credit_end - c->delivery_count));
        count = least(count, (int32_t)(c->window_end - c->next_outgoing_id) / (int32_t)message.frames);
    }
    if (options.hold) count = least(count, options.hold - (int64_t)c->next_delivery);
    if (message.length > SMALL_OCTETS) count = least(count, 1);
    else count = least(count, OUT_OCTETS / (int64_t)message.length);
    if (count <= 0) return 0;
    uint64_t time = now();
    if (message.length > SMALL_OCTETS && c->out_end == 0 && c->next_delivery == 0) {
        free(c->out); /* a large message is sent from where it lies */
        c->out = malloc(message.length > OUT_OCTETS ? message.length : OUT_OCTETS);
        memcpy(c->out, message.octets, message.length);
    }
    for (int i = 0; i < count; i++) {
        uint8_t *at = c->out + (size_t)i * message.length;
        if (message.length <= SMALL_OCTETS) memcpy(at, message.octets, message.length);
        stamp(c, at, time);
    }
    c->out_end = (size_t)count * message.length;
    c->next_outgoing_id += (uint32_t)count * message.frames;
    c->delivery_count += (uint32_t)count;
    sent += (uint64_t)count;
    flush(c);
    return count;
}

static void write_disposition(struct connection *c, uint32_t first, uint32_t last, bool is_settled) {
    uint8_t *frame = room(c);
    struct writer w = begin_frame(frame, TYPE_AMQP, DISPOSITION);
    write_flag(&w, c->is_receiver);
    write_uint(&w, first);
    write_uint(&w, last);
    write_flag(&w, is_settled);
    write_state(&w, ACCEPTED);
    commit(c, end_frame(frame, &w));
}

/* --- receiving ---------------------------------------------------------------------------------- */

static void accept_range(struct connection *c) {
    if (!c->has_range) return;
    c->has_range = false;
    write_disposition(c, c->first, c->last, options.settle != SECOND);
    dispositions++;
}

/* Reads time, sender and number at the beginning of a body. */
static void check_body(struct connection *c, const uint8_t *at, uint64_t time) {
    uint64_t then;
    uint32_t sender, number;
    memcpy(&then, at, 8);
    memcpy(&sender, at + 8, 4);
    memcpy(&number, at + 12, 4);
    if (is_measuring) record(&one_way, time - then, 1);
    if (sender >= (uint32_t)options.senders) return;
    if ((int32_t)(number - c->sequences[sender]) < 0) misorders++;
    else skipped += number - c->sequences[sender];
    c->sequences[sender] = number + 1;
}

/* Looks for the body of a message in the first frame of its sections. */
static void check_lead(struct connection *c, const struct performative *p, uint64_t time) {
    const uint8_t *at = p->payload;
    while (at + 3 < p->end && at[2] != 0x75) { /* sections that the router may have added */
        struct performative section;
        uint8_t frame[1 << 12] = {0, 0, 0, 0, 2, 0};
        size_t length = (size_t)(p->end - at) < sizeof frame - 8 ? (size_t)(p->end - at) : sizeof frame - 8;
        memcpy(frame + 8, at, length);
        if (!read_frame(frame, (uint32_t)length + 8, &section)) return;
        at += section.payload - frame - 8;
    }
    at += at + 3 < p->end && at[3] == 0xa0 ? 5 : 8;
    if (at + BODY_LEAD <= p->end) check_body(c, at, time);
}

static void take_transfer(struct connection *c, const struct performative *p, uint64_t time) {
    c->next_incoming_id++;
    if (!c->is_partial) {
        c->partial_id = (uint32_t)number_of(p, 1, 0);
        c->is_unsettled = true;
        check_lead(c, p, time);
    }
    if (number_of(p, 4, 0)) c->is_unsettled = false;
    c->is_partial = number_of(p, 5, 0);
    if (c->is_partial) return;
    c->delivery_count++;
    received++;
    if (!c->is_unsettled || options.hold) return;
    if (c->has_range && (c->last + 1 != c->partial_id ||
                         (options.ack && c->partial_id - c->first >= (uint32_t)options.ack)))
        accept_range(c);
    if (!c->has_range) c->first = c->partial_id;
    c->has_range = true;
    c->last = c->partial_id;
}

static void take_outcome(struct connection *c, const struct performative *p, uint64_t time) {
    if (c->is_receiver || !number_of(p, 0, 0)) return;
    uint32_t first = (uint32_t)number_of(p, 1, 0), last = (uint32_t)number_of(p, 2, first);
    if (number_of(p, 4, ACCEPTED) != ACCEPTED) fail("a delivery was not accepted");
    if (!number_of(p, 3, 0)) write_disposition(c, first, last, true);
    c->settled += last - first + 1;
    settled += last - first + 1;
    if (is_measuring) record(&round_trip, time - c->sent_at[first & (slots - 1)], last - first + 1);
}

static void take_flow(struct connection *c, const struct performative *p) {
    if (c->is_receiver) return;
    c->window_end = (uint32_t)(number_of(p, 0, 0) + number_of(p, 1, 0));
    if (p->count > 6 && p->fields[6].is_given) {
        c->credit_end = (uint32_t)(number_of(p, 5, 0) + number_of(p, 6, 0));
        c->is_ready = c->is_ready || number_of(p, 6, 0);
    }
}

static void take_frame(struct connection *c, const uint8_t *frame, uint32_t size, uint64_t time) {
    struct performative p;
    errno = 0;
    if (!read_frame(frame, size, &p)) fail("an unreadable frame");
    if (p.type == TYPE_SASL) {
        c->wants_header = p.code == SASL_OUTCOME;
        return;
    }
    int channel = frame[CHANNEL - 1] << 8 | frame[CHANNEL];
    if (p.code == BEGIN && number_of(&p, 0, OWN_SESSION) == FIRST_SESSION) c->first_channel = channel;
    bool is_over = p.code == DETACH || p.code == END || p.code == CLOSE;
    if (p.code != OPEN && channel == c->first_channel && !is_over) return;
    switch (p.code) {
    case TRANSFER: take_transfer(c, &p, time); break;
    case DISPOSITION: take_outcome(c, &p, time); break;
    case FLOW: take_flow(c, &p); break;
    case OPEN:
        c->frame_octets = (uint32_t)number_of(&p, 2, 65536);
        if (c->frame_octets > 65536) c->frame_octets = 65536;
        break;
    case BEGIN: c->window_end = (uint32_t)number_of(&p, 2, 0); break;
    case ATTACH:
        if (c->is_receiver) give_credit(c);
        c->is_ready = c->is_ready || c->is_receiver;
        break;
    case DETACH: case END: case CLOSE:
        fwrite(frame, 1, size, stderr);
        fail("the peer ended");
    }
}

/* Takes a whole frame of 0-9-1. */
static void take_basic(struct connection *c, const uint8_t *frame, uint32_t size, uint64_t time) {
    const uint8_t *payload = frame + 7;
    errno = 0;
    if (frame[size - 1] != 0xce) fail("a frame of 0-9-1 without end");
    if (frame[0] == BASIC_HEADER) {
        c->body_left = get64(payload + 4);
    } else if (frame[0] == BASIC_BODY) {
        if (c->body_left == (uint64_t)options.size) check_body(c, payload, time);
        c->body_left -= size - BASIC_OVERHEAD;
        if (!c->body_left) received++;
    }
    if (frame[0] != BASIC_METHOD) return;
    switch (get32(payload)) {
    case CONFIRM_SELECT_OK: case BASIC_CONSUME_OK: c->is_ready = true; break;
    case BASIC_DELIVER:
        c->tag = get64(payload + 5 + payload[4]);
        c->has_range = options.settle != SETTLED && !options.hold;
        break;
    case BASIC_ACK: {
        uint64_t tag = get64(payload + 4);
        if ((uint32_t)tag <= c->settled) break;
        if (is_measuring)
            record(&round_trip, time - c->sent_at[(tag - 1) & (slots - 1)], (uint32_t)tag - c->settled);
        settled += (uint32_t)tag - c->settled;
        c->settled = (uint32_t)tag;
        break;
    }
    case CONNECTION_CLOSE: case CHANNEL_CLOSE:
        fwrite(frame, 1, size, stderr);
        fail("the peer ended");
    }
}

/* Tells how long the next frame is, of which a header's octets have come. */
static uint32_t frame_size(const struct connection *c, const uint8_t *at) {
    if (c->wants_header) return 8;
    return c->is_basic ? get32(at + 3) + BASIC_OVERHEAD : get32(at);
}

/* Receives once; returns whether more may have come that epoll does not report. */
static bool receive(struct connection *c) {
    size_t left = IN_OCTETS - c->in_used;
    ssize_t count = c->tls ? secure_receive(c->tls, c->in + c->in_used, left)
                           : recv(c->fd, c->in + c->in_used, left, 0);
    reads++;
    if (count <= 0) {
        if (count && errno == EAGAIN) return false;
        fail(count ? "recv" : "end of stream");
    }
    c->in_used += (size_t)count;
    size_t at = 0;
    uint64_t time = now();
    if (is_measuring && c->arrived && time - c->arrived > longest_gap) longest_gap = time - c->arrived;
    if (c->is_receiver && is_measuring) c->arrived = time;
    while (c->in_used - at >= FRAME_HEADER) {
        uint32_t size = frame_size(c, c->in + at);
        if (size > c->in_used - at) break;
        if (c->wants_header) c->wants_header = false;
        else if (c->is_basic) take_basic(c, c->in + at, size, time);
        else take_frame(c, c->in + at, size, time);
        at += size;
    }
    memmove(c->in, c->in + at, c->in_used - at);
    c->in_used -= at;
    if (c->is_receiver && c->is_basic) {
        if (c->has_range) commit(c, basic_ack(room(c), c->tag));
        c->has_range = false;
    } else if (c->is_receiver) {
        accept_range(c);
        if (options.mode == AMQP && c->is_ready &&
            (int32_t)(c->credit_end - c->delivery_count) < options.credit / 2)
            give_credit(c);
    }
    if (c->is_receiver || c->out_end <= 4096) flush(c);
    return c->tls != NULL;
}

static void begin(struct connection *c) {
    if (options.mode == RAW) c->is_ready = true;
    else begin_negotiation(c);
}

static void shake_hands(struct connection *c) {
    if (!secure_shake_hands(c->tls)) return;
    c->is_shaking_hands = false;
    begin(c);
    while (receive(c)) continue;
}

static void turn(int milliseconds) {
    struct epoll_event events[256];
    int count = epoll_wait(epoll, events, 256, milliseconds);
    for (int i = 0; i < count; i++) {
        struct connection *c = events[i].data.ptr;
        if (c->is_shaking_hands) {
            shake_hands(c);
            continue;
        }
        if (events[i].events & EPOLLOUT) flush(c);
        if (events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR))
            while (receive(c)) continue;
    }
}

/* --- the run ------------------------------------------------------------------------------------ */

static void open_connection(struct connection *c, int fd, bool is_receiver, int index) {
    c->fd = fd;
    c->is_receiver = is_receiver;
    c->index = index;
    c->in = malloc(IN_OCTETS);
    c->out = malloc(OUT_OCTETS);
    c->frame_octets = 65536;
    c->first_channel = -1;
    c->is_basic = options.mode != RAW && (is_receiver ? options.takes_basic : options.sends_basic);
    c->wants_header = options.mode != RAW && !c->is_basic; /* a server of 0-9-1 sends none */
    if (is_receiver) c->sequences = calloc((size_t)options.senders, sizeof *c->sequences);
    else c->sent_at = calloc(slots, sizeof *c->sent_at);
    set_up(fd);
    watch_socket(c, EPOLL_CTL_ADD);
    if (!options.tls) {
        begin(c);
        return;
    }
    c->tls = secure_open(fd, options.mode == RAW && is_receiver);
    c->is_shaking_hands = true;
    shake_hands(c);
}

static void await_ready(int from) {
    uint64_t until = now() + 60000000000u;
    for (int i = from; i < total; i++)
        while (!connections[i].is_ready) {
            errno = 0;
            if (now() > until) fail("no credit within a minute");
            turn(100);
        }
}

static void open_all(void) {
    int listener = options.mode == RAW ? listen_for_relay() : -1;
    connections = calloc((size_t)(options.senders + options.receivers), sizeof *connections);
    if (options.mode == RAW) {
        for (int i = 0; i < options.senders; i++) {
            open_connection(&connections[total++], dial(options.port), false, i);
            await_ready(total - 1); /* some dial only after the handshake */
            int fd = accept(listener, NULL, NULL);
            if (fd < 0) fail("accept");
            open_connection(&connections[total++], fd, true, i);
        }
        await_ready(0);
        return;
    }
    for (int i = 0; i < options.receivers; i++) {
        open_connection(&connections[total++], dial(options.take_port), true, i);
        if (options.mode == IDLE && !options.storm) await_ready(total - 1);
    }
    await_ready(0);
    for (int i = 0; i < options.senders; i++) open_connection(&connections[total++], dial(options.port), false, i);
    await_ready(options.receivers);
}

/* Sends what the pace allows, in turns over all senders; returns how many messages. */
static int send_paced(uint64_t since) {
    static int next;
    double due = (double)(now() - since) * 1e-9 * options.rate - (double)sent;
    int done = 0;
    for (int tries = 0; due >= 1 && tries < total; tries++) {
        struct connection *c = &connections[next++ % total];
        if (c->is_receiver) continue;
        int share = (int)(due / options.senders);
        int count = fill(c, share ? share : 1);
        due -= count;
        done += count;
    }
    return done;
}

static int send_all(void) {
    int done = 0;
    for (int i = 0; i < total; i++)
        if (!connections[i].is_receiver) done += fill(&connections[i], options.batch);
    return done;
}

struct usage {
    double own, watched; /* CPU seconds */
    long resident_octets;
};

/* Adds the CPU seconds of a process, and finds its resident octets. */
static void add_process(struct usage *u, int process, bool is_child) {
    char path[64], line[1024];
    snprintf(path, sizeof path, "/proc/%d/stat", process);
    FILE *file = fopen(path, "r");
    if (!file && is_child) return; /* it has just ended */
    if (!file || !fgets(line, sizeof line, file)) fail(path);
    fclose(file);
    unsigned long user = 0, system = 0;
    long pages = 0;
    sscanf(strrchr(line, ')') + 2,
           "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu %*d %*d %*d %*d %*d %*d %*u %*u %ld",
           &user, &system, &pages);
    u->watched += (double)(user + system) / (double)sysconf(_SC_CLK_TCK);
    if (!is_child) u->resident_octets = pages * sysconf(_SC_PAGESIZE);
}

static struct usage measure_usage(void) {
    struct usage u = {0};
    struct rusage own;
    getrusage(RUSAGE_SELF, &own);
    u.own = (double)(own.ru_utime.tv_sec + own.ru_stime.tv_sec) +
            (double)(own.ru_utime.tv_usec + own.ru_stime.tv_usec) * 1e-6;
    if (!options.watch) return u;
    add_process(&u, options.watch, false);
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", options.watch, options.watch);
    FILE *file = fopen(path, "r");
    int child;
    while (file && fscanf(file, "%d", &child) == 1) add_process(&u, child, true);
    if (file) fclose(file);
    return u;
}

static void await_input_end(void) {
    fflush(stdout);
    char octet;
    while (read(STDIN_FILENO, &octet, 1) > 0) continue;
}

static void stay(void) {
    printf("{\"connections\": %d, \"received\": %" PRIu64 ", \"opening_seconds\": %.3f}\n", total,
           received, opening_seconds);
    await_input_end();
}

static void run_load(void) {
    uint64_t start = now(), from = 0, reads_then = 0, writes_then = 0;
    uint64_t received_then = 0, settled_then = 0, dispositions_then = 0;
    struct usage then = {0};
    uint64_t before = start;
    for (;;) {
        uint64_t time = now();
        if (is_measuring && options.rate > 0 && time - before > longest_pause)
            longest_pause = time - before;
        before = time;
        if (!is_measuring && (double)(time - start) > options.warmup * 1e9) {
            is_measuring = true;
            from = time;
            received_then = received, settled_then = settled, dispositions_then = dispositions;
            reads_then = reads, writes_then = writes;
            then = measure_usage();
            if (options.marks) puts("measuring"), fflush(stdout);
        }
        if (is_measuring && (double)(time - from) > options.seconds * 1e9) break;
        int done = options.rate > 0 ? send_paced(start) : send_all();
        turn(options.rate > 0 || done ? 0 : 50);
    }
    double seconds = (double)(now() - from) * 1e-9;
    struct usage u = measure_usage();
    printf("{\"messages_per_second\": %.0f, \"settled_per_second\": %.0f, \"octets_per_second\": %.0f, ",
           (double)(received - received_then) / seconds, (double)(settled - settled_then) / seconds,
           (double)(received - received_then) * options.size / seconds);
    printf("\"load_cpu\": %.3f, \"watched_cpu\": %.3f, \"resident_octets\": %ld, ",
           (u.own - then.own) / seconds, (u.watched - then.watched) / seconds, u.resident_octets);
    const double quantiles[] = {0.5, 0.9, 0.99, 0.999};
    const char *names[] = {"p50", "p90", "p99", "p999"};
    for (int i = 0; i < 4; i++)
        printf("\"one_way_%s_us\": %.1f, \"round_trip_%s_us\": %.1f, ", names[i],
               percentile(&one_way, quantiles[i]), names[i], percentile(&round_trip, quantiles[i]));
    printf("\"received\": %" PRIu64 ", \"measured\": %" PRIu64 ", \"skipped\": %" PRIu64
           ", \"longest_gap_us\": %.1f, \"longest_pause_us\": %.1f, ",
           received, received - received_then, skipped, (double)longest_gap / 1e3, (double)longest_pause / 1e3);
    printf("\"dispositions_per_second\": %.0f, \"messages_per_read\": %.1f, \"reads_per_second\": %.0f, "
           "\"writes_per_second\": %.0f, \"misorders\": %" PRIu64 "}\n",
           (double)(dispositions - dispositions_then) / seconds,
           (double)(received - received_then) / (double)(reads - reads_then + 1),
           (double)(reads - reads_then) / seconds, (double)(writes - writes_then) / seconds, misorders);
    if (options.marks) await_input_end();
}

static const char *option(int count, char **values, const char *key, const char *otherwise) {
    size_t length = strlen(key);
    for (int i = 1; i < count; i++)
        if (!strncmp(values[i], key, length) && values[i][length] == '=') return values[i] + length + 1;
    return otherwise;
}

static int choice(const char *value, const char *const *names) {
    for (int i = 0; names[i]; i++)
        if (!strcmp(value, names[i])) return i;
    errno = EINVAL;
    fail(value);
    return -1;
}

static void read_options(int count, char **values) {
    static const char *const modes[] = {"amqp", "raw", "idle", NULL};
    static const char *const settles[] = {"unsettled", "settled", "second", NULL};
    static const char *const protocols[] = {"1.0", "0-9-1", NULL};
#define TEXT(key, otherwise) option(count, values, #key, otherwise)
#define NUMBER(key, otherwise) options.key = atoi(option(count, values, #key, #otherwise))
#define REAL(key, otherwise) options.key = atof(option(count, values, #key, #otherwise))
    options.mode = (enum mode)choice(TEXT(mode, "amqp"), modes);
    options.settle = (enum settle)choice(TEXT(settle, "unsettled"), settles);
    options.sends_basic = choice(TEXT(send, "1.0"), protocols);
    options.takes_basic = choice(TEXT(take, "1.0"), protocols);
    options.own = atoi(TEXT(own, "0"));
    options.host = TEXT(host, "127.0.0.1");
    options.address = TEXT(address, "q%d");
    options.first_send = TEXT(first_send, NULL);
    options.first_take = TEXT(first_take, NULL);
    options.congestion = TEXT(congestion, "reno");
    options.certificate = TEXT(certificate, NULL);
    NUMBER(port, 5672), NUMBER(take_port, 0), NUMBER(back, 5673), NUMBER(senders, 1), NUMBER(receivers, 1);
    NUMBER(addresses, 0), NUMBER(size, 100), NUMBER(window, 256), NUMBER(credit, 0);
    NUMBER(batch, 500), NUMBER(ack, 0), NUMBER(hold, 0), NUMBER(watch, 0), NUMBER(marks, 0), NUMBER(sasl, 0);
    NUMBER(tls, 0), NUMBER(storm, 0);
    REAL(rate, 0), REAL(seconds, 2), REAL(warmup, 0.5);
    if (!options.take_port) options.take_port = options.port;
    if (!options.addresses) options.addresses = options.receivers;
    if (!options.credit) options.credit = 2 * options.window;
    if (options.size < BODY_LEAD) options.size = BODY_LEAD;
    if (options.hold) options.credit = options.window = options.hold;
    if (options.mode == IDLE) options.senders = 0;
    if (options.mode == RAW) options.receivers = options.senders;
    if (options.mode != AMQP) options.sends_basic = options.takes_basic = false;
    if (options.sends_basic && options.addresses > 1) fail("0-9-1 is sent to one address");
    if (options.takes_basic && options.credit > UINT16_MAX) options.credit = UINT16_MAX;
    while (slots < 2 * (uint32_t)options.window) slots *= 2;
}

int main(int count, char **values) {
    read_options(count, values);
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    epoll = epoll_create1(0);
    if (options.tls) secure_set_up(options.certificate);
    uint64_t opened = now();
    open_all();
    opening_seconds = (double)(now() - opened) * 1e-9;
    if (options.mode == IDLE) {
        stay();
        return 0;
    }
    if (connections[total - 1].is_basic) compose_basic();
    else compose(connections[total - 1].frame_octets);
    if (options.hold) {
        while (received < (uint64_t)options.hold * (uint64_t)options.senders) {
            send_all();
            turn(50);
        }
        stay();
        return 0;
    }
    run_load();
    return misorders != 0;
}
