# cython: language_level=3
# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# cython: nonecheck=False, infer_types=False
"""TLS streams that call OpenSSL itself; see ``tls_stream``.

Python's ``ssl`` module makes the context and the session and goes through the handshake. From then
on the stream calls the same functions of the same library on the same session (``SSL *``), with a
BIO of its own: OpenSSL reads from the buffer that the stream has received to, and writes into the
buffer that the stream sends from. Both buffers are shared by all streams of the process, as no call
leaves anything there.

Nothing is linked. The functions are found by name in the library that ``_ssl`` has loaded, so there
cannot be two versions of it. The session is found in the object of ``_ssl``, whose layout is not
public; it is used only after three checks: the next member is the context as Python reports it, the
session's own data point back to the object, and the session belongs to the context's ``SSL_CTX``.
If anything is missing or different, ``Unsupported`` is raised and the ``ssl`` module itself is used.

Plaintext is copied by OpenSSL alone: from the record that it has decrypted in place to the caller's
buffer, and, encrypted, from the caller's pieces to its record. Pieces smaller than a record are
gathered first, because a record costs more than the copy.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.pycapsule cimport (
    PyCapsule_GetContext,
    PyCapsule_New,
    PyCapsule_SetContext,
    PyCapsule_SetDestructor,
)
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.errno cimport EAGAIN, EINTR, EINVAL, ENOMEM, errno
from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy

import os
import ssl
import sys

from router.net.tls import resumable

cdef extern from *:
    """
    #ifdef __linux__
    #include <dlfcn.h>
    #include <sys/socket.h>
    #include <sys/uio.h>
    #define CALLS 1
    static inline void *open_library(const char *path) {
        return dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
    }
    static inline void *find(void *library, const char *name) { return dlsym(library, name); }
    static inline long receive_octets(int descriptor, void *at, size_t most) {
        return recv(descriptor, at, most, MSG_DONTWAIT);
    }
    static inline long send_octets(int descriptor, const void *at, size_t count) {
        return send(descriptor, at, count, MSG_DONTWAIT | MSG_NOSIGNAL);
    }
    #else  /* not tried elsewhere */
    #define CALLS 0
    struct iovec { void *iov_base; size_t iov_len; };
    static inline void *open_library(const char *path) { return NULL; }
    static inline void *find(void *library, const char *name) { return NULL; }
    static inline long receive_octets(int descriptor, void *at, size_t most) { return -1; }
    static inline long send_octets(int descriptor, const void *at, size_t count) { return -1; }
    #endif
    #ifdef Py_GIL_DISABLED
    #undef CALLS
    #define CALLS 0  /* the session would be used without the lock of its object */
    #endif
    """
    const bint CALLS
    struct iovec:
        void *iov_base
        size_t iov_len
    void *open_library(const char *path)
    void *find(void *library, const char *name)
    long receive_octets(int descriptor, void *at, size_t most) noexcept nogil
    long send_octets(int descriptor, const void *at, size_t count) noexcept nogil

include "../wire/pipe.pxi"

cdef enum:  # see tls_stream
    RECORD_OCTETS = 16384
    MARGIN_OCTETS = 40960
    ENCRYPTED_OCTETS = 262144
    RECEIVED_OCTETS = 262144
    HEADER_OCTETS = 5
    IDLE_RECORDS = 64
    FORGIVING_OCTETS = 65536

cdef enum:  # of OpenSSL's headers; the same in 1.1.1 and 3
    WANT_READ = 2             # SSL_ERROR_...
    ZERO_RETURN = 6
    CTRL_FLUSH = 11           # BIO_CTRL_...
    RETRY_READ = 9            # BIO_FLAGS_READ | BIO_FLAGS_SHOULD_RETRY
    RETRY_FLAGS = 15
    SOURCE_SINK = 1024        # BIO_TYPE_SOURCE_SINK
    REASON_BITS = 0xFFF       # of an error; version 3 has more, which libssl's reasons do not use
    FIRST_ALERT = 1000        # SSL_AD_REASON_OFFSET: the reason of an alert that was received
    SET_TICKET_KEYS = 59      # SSL_CTRL_SET_TLSEXT_TICKET_KEYS
    SET_CACHE_MODE = 44       # SSL_CTRL_SET_SESS_CACHE_MODE; 0 is off
    TICKET_READ = 5           # SSL_TICKET_SUCCESS; _SUCCESS_RENEW is 6, what is less has no session
    IGNORE_TICKET = 2         # SSL_TICKET_RETURN_IGNORE_RENEW
    USE_TICKET = 3            # SSL_TICKET_RETURN_USE
    RENEW_TICKET = 4          # SSL_TICKET_RETURN_USE_RENEW

ctypedef void *Handle
ctypedef int (*ReadBio)(Handle bio, char *at, int most) noexcept
ctypedef int (*WriteBio)(Handle bio, const char *at, int count) noexcept
ctypedef long (*ControlBio)(Handle bio, int command, long number, void *pointer) noexcept
ctypedef int (*JudgeTicket)(
    Handle session, Handle former, const uint8_t *name, size_t octets, int status, void *argument
) noexcept

# The functions of OpenSSL that are used.
cdef int (*SSL_read_ex)(Handle, void *, size_t, size_t *) noexcept
cdef int (*SSL_write_ex)(Handle, const void *, size_t, size_t *) noexcept
cdef int (*SSL_get_error)(Handle, int) noexcept
cdef int (*SSL_shutdown)(Handle) noexcept
cdef void (*SSL_set_bio)(Handle, Handle, Handle) noexcept
cdef int (*SSL_CTX_set_ciphersuites)(Handle, const char *) noexcept
cdef long (*SSL_CTX_ctrl)(Handle, int, long, void *) noexcept
cdef int (*SSL_CTX_set_session_ticket_cb)(Handle, void *, JudgeTicket, void *) noexcept
cdef Handle (*SSL_SESSION_get0_peer)(Handle) noexcept
cdef Handle (*X509_get0_notBefore)(Handle) noexcept
cdef Handle (*X509_get0_notAfter)(Handle) noexcept
cdef int (*X509_cmp_current_time)(Handle) noexcept
cdef void *(*SSL_get_ex_data)(Handle, int) noexcept
cdef Handle (*SSL_get_SSL_CTX)(Handle) noexcept
cdef void (*ERR_clear_error)() noexcept
cdef unsigned long (*ERR_peek_last_error)() noexcept
cdef const char *(*ERR_reason_error_string)(unsigned long) noexcept
cdef unsigned long (*OpenSSL_version_num)() noexcept
cdef Handle (*BIO_meth_new)(int, const char *) noexcept
cdef int (*BIO_meth_set_read)(Handle, ReadBio) noexcept
cdef int (*BIO_meth_set_write)(Handle, WriteBio) noexcept
cdef int (*BIO_meth_set_ctrl)(Handle, ControlBio) noexcept
cdef Handle (*BIO_new)(Handle) noexcept
cdef void (*BIO_set_data)(Handle, void *) noexcept
cdef void *(*BIO_get_data)(Handle) noexcept
cdef void (*BIO_set_init)(Handle, int) noexcept
cdef void (*BIO_set_flags)(Handle, int) noexcept
cdef void (*BIO_clear_flags)(Handle, int) noexcept
cdef int (*BIO_up_ref)(Handle) noexcept
cdef int (*BIO_free)(Handle) noexcept

cdef Handle method = NULL     # of the BIOs

cdef uint8_t received[RECEIVED_OCTETS]
cdef uint8_t gathered[RECORD_OCTETS]
cdef uint8_t *sealed = NULL   # records to send
cdef size_t sealed_octets = 0
cdef size_t sealed_capacity = 0


class Unsupported(Exception):
    """This Python's OpenSSL cannot be called; the text says why."""


cdef struct Input:
    const uint8_t *at         # ciphertext that OpenSSL has not read yet
    size_t octets
    uint32_t idle             # records without plaintext that have not been made up for
    size_t forgiving          # plaintext that does not make up for a record yet


cdef int read_bio(Handle bio, char *at, int most) noexcept:
    """OpenSSL reads ciphertext: a record's header, then the rest of it."""
    cdef Input *input = <Input *>BIO_get_data(bio)
    cdef size_t count
    BIO_clear_flags(bio, RETRY_FLAGS)
    if input == NULL or most <= 0:
        return -1
    if input.octets == 0:
        BIO_set_flags(bio, RETRY_READ)
        return -1
    if most == HEADER_OCTETS:
        input.idle += 1  # until plaintext comes of it
        if input.idle > IDLE_RECORDS + 1:
            return -1
    count = min(<size_t>most, input.octets)
    memcpy(at, input.at, count)
    input.at += count
    input.octets -= count
    return <int>count


cdef int write_bio(Handle bio, const char *at, int count) noexcept:
    """OpenSSL writes ciphertext."""
    global sealed, sealed_octets, sealed_capacity
    cdef uint8_t *grown
    cdef size_t wanted = sealed_octets + <size_t>count
    BIO_clear_flags(bio, RETRY_FLAGS)
    if BIO_get_data(bio) == NULL or count <= 0:
        return -1
    if wanted > sealed_capacity:
        wanted += ENCRYPTED_OCTETS + 2 * RECORD_OCTETS
        grown = <uint8_t *>realloc(sealed, wanted)
        if grown == NULL:
            return -1
        sealed = grown
        sealed_capacity = wanted
    memcpy(sealed + sealed_octets, at, count)
    sealed_octets += <size_t>count
    return count


cdef long control_bio(Handle bio, int command, long number, void *pointer) noexcept:
    """OpenSSL asks for other things; a flush is always done."""
    return 1 if command == CTRL_FLUSH else 0


cdef void *symbol(void *library, const char *name) except NULL:
    cdef void *found = find(library, name)
    if found == NULL:
        raise Unsupported(f"OpenSSL's {name.decode()} is not found in this process")
    return found


def load():
    """Finds the functions of the OpenSSL that Python's ``ssl`` module uses.

    Raises:
        Unsupported: they cannot be found.
    """
    cdef void *library
    if not CALLS or sys.implementation.name != "cpython":
        raise Unsupported("this system or Python has not been provided for")
    if ssl.OPENSSL_VERSION_INFO < (1, 1, 1) or not ssl.OPENSSL_VERSION.startswith("OpenSSL"):
        raise Unsupported(f"it is {ssl.OPENSSL_VERSION}")
    path = getattr(ssl._ssl, "__file__", None)
    library = open_library(NULL) if path is None else open_library(os.fsencode(path))
    if library == NULL:
        raise Unsupported("the library of Python's ssl module is not found")
    bind(library)
    if OpenSSL_version_num() != <unsigned long>ssl.OPENSSL_VERSION_NUMBER:
        raise Unsupported("there are two versions of OpenSSL in this process")
    make_method()


cdef int bind(void *library) except -1:
    global SSL_read_ex, SSL_write_ex, SSL_get_error, SSL_shutdown, SSL_set_bio, SSL_get_ex_data
    global SSL_get_SSL_CTX, ERR_clear_error, ERR_peek_last_error, ERR_reason_error_string
    global SSL_CTX_set_ciphersuites, SSL_CTX_ctrl, SSL_CTX_set_session_ticket_cb
    global SSL_SESSION_get0_peer, X509_get0_notBefore, X509_get0_notAfter, X509_cmp_current_time
    global OpenSSL_version_num, BIO_meth_new, BIO_meth_set_read, BIO_meth_set_write
    global BIO_meth_set_ctrl, BIO_new, BIO_set_data, BIO_get_data, BIO_set_init, BIO_set_flags
    global BIO_clear_flags, BIO_up_ref, BIO_free
    SSL_read_ex = <int (*)(Handle, void *, size_t, size_t *) noexcept>symbol(
        library, b"SSL_read_ex")
    SSL_write_ex = <int (*)(Handle, const void *, size_t, size_t *) noexcept>symbol(
        library, b"SSL_write_ex")
    SSL_get_error = <int (*)(Handle, int) noexcept>symbol(library, b"SSL_get_error")
    SSL_shutdown = <int (*)(Handle) noexcept>symbol(library, b"SSL_shutdown")
    SSL_set_bio = <void (*)(Handle, Handle, Handle) noexcept>symbol(library, b"SSL_set_bio")
    SSL_get_ex_data = <void *(*)(Handle, int) noexcept>symbol(library, b"SSL_get_ex_data")
    SSL_get_SSL_CTX = <Handle (*)(Handle) noexcept>symbol(library, b"SSL_get_SSL_CTX")
    SSL_CTX_set_ciphersuites = <int (*)(Handle, const char *) noexcept>symbol(
        library, b"SSL_CTX_set_ciphersuites")
    SSL_CTX_ctrl = <long (*)(Handle, int, long, void *) noexcept>symbol(library, b"SSL_CTX_ctrl")
    SSL_CTX_set_session_ticket_cb = <int (*)(Handle, void *, JudgeTicket, void *) noexcept>symbol(
        library, b"SSL_CTX_set_session_ticket_cb")
    SSL_SESSION_get0_peer = <Handle (*)(Handle) noexcept>symbol(library, b"SSL_SESSION_get0_peer")
    X509_get0_notBefore = <Handle (*)(Handle) noexcept>symbol(library, b"X509_get0_notBefore")
    X509_get0_notAfter = <Handle (*)(Handle) noexcept>symbol(library, b"X509_get0_notAfter")
    X509_cmp_current_time = <int (*)(Handle) noexcept>symbol(library, b"X509_cmp_current_time")
    ERR_clear_error = <void (*)() noexcept>symbol(library, b"ERR_clear_error")
    ERR_peek_last_error = <unsigned long (*)() noexcept>symbol(library, b"ERR_peek_last_error")
    ERR_reason_error_string = <const char *(*)(unsigned long) noexcept>symbol(
        library, b"ERR_reason_error_string")
    OpenSSL_version_num = <unsigned long (*)() noexcept>symbol(library, b"OpenSSL_version_num")
    BIO_meth_new = <Handle (*)(int, const char *) noexcept>symbol(library, b"BIO_meth_new")
    BIO_meth_set_read = <int (*)(Handle, ReadBio) noexcept>symbol(library, b"BIO_meth_set_read")
    BIO_meth_set_write = <int (*)(Handle, WriteBio) noexcept>symbol(
        library, b"BIO_meth_set_write")
    BIO_meth_set_ctrl = <int (*)(Handle, ControlBio) noexcept>symbol(
        library, b"BIO_meth_set_ctrl")
    BIO_new = <Handle (*)(Handle) noexcept>symbol(library, b"BIO_new")
    BIO_set_data = <void (*)(Handle, void *) noexcept>symbol(library, b"BIO_set_data")
    BIO_get_data = <void *(*)(Handle) noexcept>symbol(library, b"BIO_get_data")
    BIO_set_init = <void (*)(Handle, int) noexcept>symbol(library, b"BIO_set_init")
    BIO_set_flags = <void (*)(Handle, int) noexcept>symbol(library, b"BIO_set_flags")
    BIO_clear_flags = <void (*)(Handle, int) noexcept>symbol(library, b"BIO_clear_flags")
    BIO_up_ref = <int (*)(Handle) noexcept>symbol(library, b"BIO_up_ref")
    BIO_free = <int (*)(Handle) noexcept>symbol(library, b"BIO_free")
    return 0


cdef int make_method() except -1:
    global method
    if method != NULL:
        return 0
    method = BIO_meth_new(SOURCE_SINK, b"router")
    if method == NULL:
        raise MemoryError
    BIO_meth_set_read(method, read_bio)
    BIO_meth_set_write(method, write_bio)
    BIO_meth_set_ctrl(method, control_bio)
    return 0


cdef Handle session_of(object inner, object context) except NULL:
    """Returns the ``SSL *`` of an ``_ssl._SSLSocket``; see the checks at the head of the file."""
    cdef Py_ssize_t head = object.__basicsize__ // sizeof(void *)
    cdef void **members = <void **>(<void *>inner) + head
    cdef Handle found
    if type(inner).__basicsize__ < (head + 3) * <Py_ssize_t>sizeof(void *):
        raise Unsupported("the sessions of this Python are different")
    if members[2] != <void *>context or members[1] == NULL:  # Socket, ssl, ctx
        raise Unsupported("the sessions of this Python are different")
    found = members[1]
    if SSL_get_ex_data(found, 0) != <void *>inner:
        raise Unsupported("the sessions of this Python are different")
    if SSL_get_SSL_CTX(found) != (<void **>(<void *>context) + head)[0]:
        raise Unsupported("the contexts of this Python are different")
    return found


def try_session(tls):
    """Checks that the session of an ``ssl.SSLObject`` can be used.

    Raises:
        Unsupported: it cannot.
    """
    session_of(tls._sslobj, tls.context)


cdef Handle handle_of(context) except NULL:
    """Returns the ``SSL_CTX *`` of an ``ssl.SSLContext``."""
    is_server = context.protocol == ssl.PROTOCOL_TLS_SERVER
    tls = context.wrap_bio(
        ssl.MemoryBIO(), ssl.MemoryBIO(), is_server, None if is_server else "localhost")
    return SSL_get_SSL_CTX(session_of(tls._sslobj, context))


def set_ticket_keys(context, derive):
    """Sets the keys with which a server's context seals what clients resume (RFC 5077 §4).

    Args:
        context: the ``ssl.SSLContext``.
        derive: returns so many secret octets.
    """
    cdef Handle found = handle_of(context)
    cdef long size = SSL_CTX_ctrl(found, SET_TICKET_KEYS, 0, NULL)
    cdef bytes keys = derive(size)
    cdef bint is_done = len(keys) == size and SSL_CTX_ctrl(
        found, SET_TICKET_KEYS, size, <void *><const char *>keys) == 1
    ERR_clear_error()
    if not is_done:
        raise Unsupported("ticket keys have another form")


cdef int judge_ticket(
    Handle session, Handle former, const uint8_t *name, size_t octets, int status, void *argument
) noexcept:
    """Ignores a ticket whose client showed a certificate that is not valid now."""
    cdef Handle peer
    if status < TICKET_READ:
        return IGNORE_TICKET
    peer = SSL_SESSION_get0_peer(former)
    if peer != NULL and (
        X509_cmp_current_time(X509_get0_notBefore(peer)) >= 0
        or X509_cmp_current_time(X509_get0_notAfter(peer)) <= 0
    ):
        return IGNORE_TICKET
    return USE_TICKET if status == TICKET_READ else RENEW_TICKET


def judge_tickets(context):
    """Has a server's context resume no session of a client whose certificate is not valid any more.

    Such a client goes through the whole handshake, in which the certificate that it has by now is
    verified. Sessions that the context itself remembers are not judged, so it remembers none.
    """
    cdef Handle found = handle_of(context)
    cdef bint is_done = SSL_CTX_set_session_ticket_cb(found, NULL, judge_ticket, NULL) == 1
    SSL_CTX_ctrl(found, SET_CACHE_MODE, 0, NULL)
    ERR_clear_error()
    if not is_done:
        raise Unsupported("tickets are not judged")


def set_ciphersuites(context, str suites not None):
    """Sets the suites of TLS 1.3 of an ``ssl.SSLContext``, in order of preference."""
    cdef bytes text = suites.encode()
    cdef int is_done = SSL_CTX_set_ciphersuites(handle_of(context), text)
    ERR_clear_error()
    if not is_done:
        raise ValueError(suites)


cdef void drop_owner(object capsule) noexcept:
    """Lets go of the stream that a capsule's pipe belongs to."""
    Py_DECREF(<object>PyCapsule_GetContext(capsule))


cdef class OpenSslStream:
    """A stream that calls OpenSSL itself; see ``tls_stream.TlsStream``."""

    cdef readonly object context
    cdef readonly object alert
    cdef readonly bint saw_end
    cdef readonly int64_t octets_in
    cdef readonly int64_t octets_out
    cdef object tls           # owns the session
    cdef Handle session
    cdef Handle bio
    cdef int descriptor       # of the socket; -1: it was closed
    cdef Pipe way
    cdef Input input
    cdef bytes early          # ciphertext that came with the handshake; None: it is decrypted
    cdef uint8_t *waiting     # records that the socket has not accepted
    cdef size_t waiting_from
    cdef size_t waiting_to
    cdef bint is_broken
    cdef bint is_finished

    def __cinit__(self, *_):
        self.descriptor = -1

    def __init__(self, tls not None, int descriptor, bytes early not None, bytes unsent not None):
        """Takes over a session.

        Args:
            tls: the ``ssl.SSLObject``, after its handshake.
            descriptor: of the socket.
            early: ciphertext that was received and has not been decrypted.
            unsent: ciphertext that is to be sent first.
        """
        cdef Handle session = session_of(tls._sslobj, tls.context)
        self.bio = BIO_new(method)
        if self.bio == NULL:
            raise MemoryError
        BIO_set_init(self.bio, 1)
        BIO_set_data(self.bio, &self.input)
        BIO_up_ref(self.bio)  # one for the session, one for the stream
        SSL_set_bio(session, self.bio, self.bio)
        self.tls = tls
        self.context = tls.context
        self.session = session
        self.descriptor = descriptor
        self.early = early
        self.way.owner = <void *>self
        self.way.receive = receive_plain
        self.way.send = send_plain
        if unsent and keep(self, <const uint8_t *><const char *>unsent, len(unsent)) < 0:
            raise MemoryError

    def __dealloc__(self):
        if self.bio != NULL:
            BIO_set_data(self.bio, NULL)
            BIO_free(self.bio)
        free(self.waiting)

    @property
    def pipe(self):
        """For a carrier; it holds the stream."""
        capsule = PyCapsule_New(&self.way, b"router.wire.Pipe", NULL)
        PyCapsule_SetContext(capsule, <void *>self)
        Py_INCREF(self)
        PyCapsule_SetDestructor(capsule, drop_owner)
        return capsule

    @property
    def resumable(self):
        """What a later session can resume; None: nothing."""
        return resumable(self.tls)

    @property
    def is_over(self):
        """Whether no more plaintext comes."""
        return self.way.is_over

    @property
    def waiting_octets(self):
        """Ciphertext that the socket has not accepted yet."""
        return self.waiting_to - self.waiting_from

    def receive_into(self, buffer, Py_ssize_t most):
        """Receives once and decrypts what is complete; see ``tls_stream.TlsStream``."""
        cdef Py_buffer view
        cdef long count
        cdef int reason
        PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE | PyBUF_WRITABLE)
        count = receive(self, <uint8_t *>view.buf, view.len, max(most, 0))
        reason = errno
        PyBuffer_Release(&view)
        if count < 0:
            raise OSError(reason, os.strerror(reason))  # BlockingIOError among them
        if count == 0 and not self.way.is_over:
            raise BlockingIOError(EAGAIN, os.strerror(EAGAIN))
        return count

    def send(self, octets):
        """Encrypts and sends; see ``tls_stream.TlsStream``."""
        cdef Py_buffer view
        cdef iovec piece
        cdef long count
        cdef int reason
        PyObject_GetBuffer(octets, &view, PyBUF_SIMPLE)
        piece.iov_base = view.buf
        piece.iov_len = view.len
        count = send_plain(<void *>self, &piece, 1)
        reason = errno
        PyBuffer_Release(&view)
        if count < 0:
            raise OSError(reason, os.strerror(reason))
        return count

    def flush(self):
        """Sends waiting ciphertext; False: some still waits."""
        cdef int reason
        if send_waiting(self) == 0:
            return True
        reason = errno
        if reason == EAGAIN:
            return False
        raise OSError(reason, os.strerror(reason))

    def finish(self):
        """Sends close_notify, behind everything else, once."""
        cdef int reason
        if self.is_finished or self.is_broken or self.descriptor < 0:
            return  # a session that has failed has no orderly end
        self.is_finished = True
        ERR_clear_error()
        SSL_shutdown(self.session)
        ERR_clear_error()  # the queue is the ssl module's, too
        if send_sealed(self) < 0:
            reason = errno
            raise OSError(reason, os.strerror(reason))

    def close(self):
        """Lets go of the socket, which is about to be closed."""
        self.descriptor = -1


cdef long receive_plain(void *owner, uint8_t *at, size_t room) noexcept:
    """Receives for a carrier; see ``Pipe``."""
    cdef OpenSslStream stream = <OpenSslStream>owner
    cdef int64_t before = stream.octets_in
    cdef long count = receive(stream, at, room, RECEIVED_OCTETS)
    if count == 0 and not stream.way.is_over:
        if stream.octets_in - before > 2 * RECORD_OCTETS:
            return 0  # that much without plaintext is charged to the peer
        errno_is(EAGAIN)
        return -1
    return count


cdef inline void errno_is(int number) noexcept:
    global errno
    errno = number


cdef long receive(OpenSslStream stream, uint8_t *at, size_t room, size_t most) noexcept:
    """Receives once and decrypts; 0: nothing complete has come, or nothing will; -1: errno."""
    cdef long count
    cdef long filled
    cdef bytes early
    if stream.way.is_over:
        return 0
    if room <= MARGIN_OCTETS or most == 0:
        errno_is(EINVAL)
        return -1
    if stream.early is not None:
        early = stream.early
        stream.early = None
        stream.input.at = <const uint8_t *><const char *>early
        stream.input.octets = <size_t>len(early)
        filled = decrypt(stream, at, room)
    else:
        most = min(min(most, room - MARGIN_OCTETS), <size_t>RECEIVED_OCTETS)
        count = receive_octets(stream.descriptor, received, most)
        if count < 0:
            if errno == EINTR:
                errno_is(EAGAIN)
            return -1
        if count == 0:
            stream.way.is_over = 1
            stream.saw_end = True
            return 0
        stream.octets_in += count
        stream.input.at = received
        stream.input.octets = <size_t>count
        filled = decrypt(stream, at, room)
    if stream.input.octets and not stream.way.is_over:
        fail(stream)  # the room was too small: what is left cannot be read again
    stream.input.octets = 0
    if sealed_octets:
        send_sealed(stream)  # an answer of TLS itself; if it fails, sending will meet it again
    return filled


cdef long decrypt(OpenSslStream stream, uint8_t *at, size_t room) noexcept:
    """Decrypts all complete records of the input."""
    cdef size_t filled = 0
    cdef size_t count = 0
    cdef int reason
    while filled < room:
        ERR_clear_error()
        if SSL_read_ex(stream.session, at + filled, room - filled, &count) != 1:
            reason = SSL_get_error(stream.session, 0)
            if reason == ZERO_RETURN:
                stream.way.is_over = 1
            elif reason != WANT_READ:
                fail(stream)
            break
        filled += count
        make_up(&stream.input, count)
    return <long>filled


cdef inline void make_up(Input *input, size_t count) noexcept:
    """Records that plaintext has come: its record was not idle, and much of it forgives others."""
    if input.idle:
        input.idle -= 1
    input.forgiving += count
    if input.forgiving >= FORGIVING_OCTETS:
        input.forgiving = 0
        if input.idle:
            input.idle -= 1


cdef void fail(OpenSslStream stream) noexcept:
    """Records that TLS has failed, and why, if the peer is to blame."""
    cdef unsigned long error = ERR_peek_last_error()
    cdef const char *reason = ERR_reason_error_string(error)
    stream.is_broken = True
    stream.way.is_over = 1
    if reason != NULL and error & REASON_BITS > FIRST_ALERT:
        text = reason.decode("utf-8", "replace")
        stream.alert = f"TLS alert of the peer: {text.rpartition('alert ')[2]}"
    elif stream.input.idle > IDLE_RECORDS + 1:
        stream.alert = "too many TLS records without content"
    ERR_clear_error()


cdef long send_plain(void *owner, iovec *pieces, size_t count) noexcept:
    """Encrypts pieces and sends the records; see ``Pipe``."""
    cdef OpenSslStream stream = <OpenSslStream>owner
    cdef long taken = 0
    cdef size_t each
    if stream.way.waits and send_waiting(stream) < 0:
        return -1
    if count == 0:
        return 0
    if not stream.is_broken:
        taken = encrypt(stream, pieces, count)
    if sealed_octets and send_sealed(stream) < 0:
        return -1
    if stream.is_broken:
        taken = 0
        for each in range(count):
            taken += <long>pieces[each].iov_len
    return taken


cdef long encrypt(OpenSslStream stream, iovec *pieces, size_t count) noexcept:
    """Makes records of pieces, in order; returns how many octets they hold."""
    cdef long taken = 0
    cdef size_t each = 0
    cdef size_t begin = 0     # in the first piece that is left
    cdef size_t octets
    cdef size_t part
    cdef size_t written = 0
    cdef const uint8_t *at
    while each < count and sealed_octets < ENCRYPTED_OCTETS:
        octets = pieces[each].iov_len - begin
        at = <const uint8_t *>pieces[each].iov_base + begin
        if octets >= RECORD_OCTETS or each + 1 == count:
            octets = min(octets, <size_t>RECORD_OCTETS)
            begin += octets
            if begin == pieces[each].iov_len:
                each += 1
                begin = 0
        else:
            octets = 0
            at = gathered
            while each < count and octets < RECORD_OCTETS:
                part = min(pieces[each].iov_len - begin, RECORD_OCTETS - octets)
                memcpy(gathered + octets, <const uint8_t *>pieces[each].iov_base + begin, part)
                octets += part
                begin += part
                if begin == pieces[each].iov_len:
                    each += 1
                    begin = 0
        if octets == 0:
            continue
        ERR_clear_error()
        if SSL_write_ex(stream.session, at, octets, &written) != 1 or written != octets:
            fail(stream)
            return taken
        taken += <long>octets
    return taken


cdef int send_sealed(OpenSslStream stream) noexcept:
    """Sends the records just made, and keeps what the socket does not accept; -1: errno."""
    global sealed_octets
    cdef size_t octets = sealed_octets
    cdef long count = 0
    sealed_octets = 0
    if octets == 0:
        return 0
    if not stream.way.waits:
        count = send_octets(stream.descriptor, sealed, octets)
        if count < 0:
            if errno != EAGAIN and errno != EINTR:
                return -1
            count = 0
        stream.octets_out += count
    if <size_t>count < octets:
        return keep(stream, sealed + count, octets - <size_t>count)
    return 0


cdef int keep(OpenSslStream stream, const uint8_t *at, size_t octets) noexcept:
    """Appends to the records that wait for the socket; -1: errno."""
    cdef size_t before = stream.waiting_to - stream.waiting_from
    cdef uint8_t *kept = <uint8_t *>malloc(before + octets)
    if kept == NULL:
        errno_is(ENOMEM)
        return -1
    if before:
        memcpy(kept, stream.waiting + stream.waiting_from, before)
    memcpy(kept + before, at, octets)
    free(stream.waiting)
    stream.waiting = kept
    stream.waiting_from = 0
    stream.waiting_to = before + octets
    stream.way.waits = 1
    return 0


cdef int send_waiting(OpenSslStream stream) noexcept:
    """Sends what waits; -1: errno, EAGAIN if some still waits."""
    cdef long count
    while stream.waiting_from < stream.waiting_to:
        count = send_octets(
            stream.descriptor,
            stream.waiting + stream.waiting_from,
            stream.waiting_to - stream.waiting_from,
        )
        if count < 0:
            if errno == EINTR:
                continue
            return -1
        stream.octets_out += count
        stream.waiting_from += <size_t>count
    if stream.way.waits:
        stream.way.waits = 0
        free(stream.waiting)
        stream.waiting = NULL
        stream.waiting_from = stream.waiting_to = 0
    return 0
