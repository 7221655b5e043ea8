/* TLS on a non-blocking socket. */
#ifndef SECURE_H
#define SECURE_H

#include <stdbool.h>
#include <sys/types.h>

struct ssl_st;

/* To be called first. `certificate` is a file of key and chain, for servers; NULL: there are none. */
void secure_set_up(const char *certificate);

struct ssl_st *secure_open(int fd, bool is_server);

/* Goes on with the handshake; true: it is done. */
bool secure_shake_hands(struct ssl_st *tls);

/* As recv and send; errno is EAGAIN if the socket is not ready. To be called until it is not. */
ssize_t secure_receive(struct ssl_st *tls, void *at, size_t most);
ssize_t secure_send(struct ssl_st *tls, const void *at, size_t count);

void secure_close(struct ssl_st *tls);

#endif
