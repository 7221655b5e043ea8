#include "secure.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#ifdef WITH_OPENSSL
#include <openssl/err.h>
#include <openssl/ssl.h>

static SSL_CTX *client, *server;

static void fail(const char *what) {
    fprintf(stderr, "TLS: %s: ", what);
    ERR_print_errors_fp(stderr);
    exit(1);
}

void secure_set_up(const char *certificate) {
    signal(SIGPIPE, SIG_IGN);
    client = SSL_CTX_new(TLS_client_method());
    if (!certificate) return;
    server = SSL_CTX_new(TLS_server_method());
    if (SSL_CTX_use_certificate_chain_file(server, certificate) != 1 ||
        SSL_CTX_use_PrivateKey_file(server, certificate, SSL_FILETYPE_PEM) != 1)
        fail(certificate);
}

struct ssl_st *secure_open(int fd, bool is_server) {
    SSL *tls = SSL_new(is_server ? server : client);
    if (!tls || SSL_set_fd(tls, fd) != 1) fail("no session");
    SSL_set_read_ahead(tls, 1);
    SSL_set_default_read_buffer_len(tls, 1 << 17);
    SSL_set_mode(tls, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    if (is_server) {
        SSL_set_accept_state(tls);
    } else {
        SSL_set_connect_state(tls);
        SSL_set_tlsext_host_name(tls, "localhost");
    }
    return tls;
}

/* Sets errno after a call has not done anything; 0: the stream has ended. */
static ssize_t reason(SSL *tls, int result) {
    int error = SSL_get_error(tls, result);
    if (error == SSL_ERROR_ZERO_RETURN) return 0;
    if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE) errno = EAGAIN;
    else if (error != SSL_ERROR_SYSCALL || !errno || errno == EAGAIN) errno = EPROTO;
    return -1;
}

bool secure_shake_hands(struct ssl_st *tls) {
    ERR_clear_error();
    errno = 0;
    int result = SSL_do_handshake(tls);
    if (result == 1) return true;
    if (reason(tls, result) == 0 || errno != EAGAIN) fail("the handshake has failed");
    return false;
}

ssize_t secure_receive(struct ssl_st *tls, void *at, size_t most) {
    size_t done = 0, count;
    while (done < most) {
        ERR_clear_error();
        errno = 0;
        int result = SSL_read_ex(tls, (char *)at + done, most - done, &count);
        if (result != 1) return done ? (ssize_t)done : reason(tls, result);
        done += count;
    }
    return (ssize_t)done;
}

ssize_t secure_send(struct ssl_st *tls, const void *at, size_t count) {
    size_t done = 0, written;
    while (done < count) {
        ERR_clear_error();
        errno = 0;
        int result = SSL_write_ex(tls, (const char *)at + done, count - done, &written);
        if (result != 1) return done ? (ssize_t)done : reason(tls, result);
        done += written;
    }
    return (ssize_t)done;
}

void secure_close(struct ssl_st *tls) {
    SSL_free(tls);
}

#else

void secure_set_up(const char *certificate) {
    (void)certificate;
    fprintf(stderr, "TLS: built without OpenSSL, whose headers were not found\n");
    exit(1);
}

struct ssl_st *secure_open(int fd, bool is_server) { (void)fd, (void)is_server; return NULL; }
bool secure_shake_hands(struct ssl_st *tls) { (void)tls; return false; }
ssize_t secure_receive(struct ssl_st *tls, void *at, size_t most) { (void)tls, (void)at, (void)most; return -1; }
ssize_t secure_send(struct ssl_st *tls, const void *at, size_t count) { (void)tls, (void)at, (void)count; return -1; }
void secure_close(struct ssl_st *tls) { (void)tls; }

#endif
