/* The yardstick: a relay of octets, what a router cannot beat with the same system calls.
 *
 *   relay PORT NEXT [CONGESTION [CERTIFICATE]]
 *
 * With a file of a key and its chain both sides are inside TLS.
 *
 * For each connection accepted on PORT it dials NEXT, and copies octets both ways: one thread, one
 * epoll, one receive of up to 256 KiB per readiness. Loopback only.
 */
#include "secure.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <unistd.h>

enum { CAPACITY = 1 << 18 };

/* One side of a relayed connection, and what waits to be sent to it. */
struct side {
    int fd;
    struct ssl_st *tls;  /* NULL: clear */
    bool is_shaking_hands;
    struct side *other;
    bool is_full;
    size_t begin, end;
    uint8_t waiting[CAPACITY];
};

static int epoll;
static const char *congestion = "reno", *certificate;

static void take(struct side *side);

static void watch(struct side *side, int operation, unsigned events) {
    struct epoll_event event = {.events = events, .data.ptr = side};
    epoll_ctl(epoll, operation, side->fd, &event);
}

static struct sockaddr_in loopback(const char *port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

static struct side *make_side(int fd) {
    int on = 1;
    struct side *side = calloc(1, sizeof *side);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, congestion, (socklen_t)strlen(congestion));
    fcntl(fd, F_SETFL, O_NONBLOCK);
    side->fd = fd;
    return side;
}

/* Closes both sides; they are freed by nobody, events for them may be under way. */
static void drop(struct side *side) {
    if (side->fd < 0) return;
    close(side->fd);
    close(side->other->fd);
    side->fd = side->other->fd = -1;
}

/* Sends what waits; as long as something is left, nothing is read from the other side. */
static void flush(struct side *side) {
    if (side->is_shaking_hands) return;
    while (side->begin < side->end) {
        const uint8_t *at = side->waiting + side->begin;
        size_t left = side->end - side->begin;
        ssize_t count = side->tls ? secure_send(side->tls, at, left)
                                  : send(side->fd, at, left, MSG_NOSIGNAL);
        if (count < 0) {
            if (errno != EAGAIN) {
                drop(side);
            } else if (!side->is_full) {
                side->is_full = true;
                watch(side, EPOLL_CTL_MOD, EPOLLOUT | (side->other->is_full ? 0 : EPOLLIN));
                watch(side->other, EPOLL_CTL_MOD, side->other->is_full ? EPOLLOUT : 0);
            }
            return;
        }
        side->begin += (size_t)count;
    }
    side->begin = side->end = 0;
    if (side->is_full) {
        side->is_full = false;
        watch(side, EPOLL_CTL_MOD, side->other->is_full ? 0 : EPOLLIN);
        watch(side->other, EPOLL_CTL_MOD, EPOLLIN | (side->other->is_full ? EPOLLOUT : 0));
        if (side->other->tls) take(side->other); /* epoll does not know what TLS has received */
    }
}

static void take(struct side *side) {
    struct side *to = side->other;
    do {
        if (side->fd < 0 || side->is_shaking_hands || to->end) return;
        ssize_t count = side->tls ? secure_receive(side->tls, to->waiting, CAPACITY)
                                  : recv(side->fd, to->waiting, CAPACITY, 0);
        if (count <= 0) {
            if (count == 0 || errno != EAGAIN) drop(side);
            return;
        }
        to->end = (size_t)count;
        flush(to);
    } while (side->tls);
}

static void shake_hands(struct side *side) {
    if (!secure_shake_hands(side->tls)) return;
    side->is_shaking_hands = false;
    if (side->end) flush(side);
    take(side);
}

static void secure(struct side *side, bool is_server) {
    side->tls = secure_open(side->fd, is_server);
    side->is_shaking_hands = true;
}

static void meet(int listener, const struct sockaddr_in *next) {
    int here = accept(listener, NULL, NULL), there = socket(AF_INET, SOCK_STREAM, 0);
    if (here < 0 || connect(there, (const struct sockaddr *)next, sizeof *next)) {
        close(here);
        close(there);
        return;
    }
    struct side *one = make_side(here), *other = make_side(there);
    one->other = other;
    other->other = one;
    watch(one, EPOLL_CTL_ADD, EPOLLIN);
    watch(other, EPOLL_CTL_ADD, EPOLLIN);
    if (!certificate) return;
    secure(one, true);
    secure(other, false);
    shake_hands(other);
}

int main(int count, char **values) {
    if (count < 3) {
        fprintf(stderr, "usage: relay PORT NEXT [CONGESTION [CERTIFICATE]]\n");
        return 2;
    }
    if (count > 3) congestion = values[3];
    if (count > 4) secure_set_up(certificate = values[4]);
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    int on = 1;
    static struct side door;
    door.fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in here = loopback(values[1]), next = loopback(values[2]);
    setsockopt(door.fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(door.fd, (struct sockaddr *)&here, sizeof here) || listen(door.fd, 4096)) {
        perror("relay");
        return 1;
    }
    epoll = epoll_create1(0);
    watch(&door, EPOLL_CTL_ADD, EPOLLIN);
    struct epoll_event events[256];
    for (;;) {
        int ready = epoll_wait(epoll, events, 256, -1);
        for (int i = 0; i < ready; i++) {
            struct side *side = events[i].data.ptr;
            if (side == &door) {
                meet(door.fd, &next);
                continue;
            }
            if (side->fd >= 0 && side->is_shaking_hands) {
                shake_hands(side);
                continue;
            }
            if (side->fd >= 0 && events[i].events & EPOLLOUT) flush(side);
            if (side->fd >= 0 && events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) take(side);
        }
    }
}
