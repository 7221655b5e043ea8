# cython: language_level=3
# cython: boundscheck=False, wraparound=False, initializedcheck=False
# cython: nonecheck=False, infer_types=False
"""Shortcuts for runs of records; see ``bulk``. The octets of a row are drawn in ``record``.

One extension; its parts are the files of ``kernel/``.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE, PyByteArray_Resize
from cpython.exc cimport PyErr_SetFromErrno
from cpython.bytes cimport (
    PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE,
)
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcmp, memcpy, memset

from zlib import crc32 as zlib_crc32

cdef extern from *:
    """
    #include <errno.h>
    #if defined(__linux__)
    #include <sys/uio.h>
    #else
    struct iovec { void *iov_base; size_t iov_len; };
    static Py_ssize_t preadv2(int f, const struct iovec *r, int n, int64_t o, int flags) {
        (void)f; (void)r; (void)n; (void)o; (void)flags;
        errno = ENOSYS;
        return -1;
    }
    #endif
    """
    struct iovec:
        void *iov_base
        size_t iov_len
    Py_ssize_t preadv2(int, const iovec *, int, int64_t, int) noexcept nogil

cdef enum:
    ROW = 80          # octets
    KEY = 16          # octets; where it begins, too
    PLACE = 8         # octets
    ADDRESS_AT = 6
    INCOMING_AT = 32
    OUTGOING_AT = 40
    MESSAGE_AT = 48
    TAG_AT = 68
    OFFSET_AT = 72
    HEAP_AT = 76


cdef inline void put32(uint8_t *at, uint32_t value) noexcept:
    at[0] = <uint8_t>value
    at[1] = <uint8_t>(value >> 8)
    at[2] = <uint8_t>(value >> 16)
    at[3] = <uint8_t>(value >> 24)


cdef inline void put64(uint8_t *at, uint64_t value) noexcept:
    put32(at, <uint32_t>value)
    put32(at + 4, <uint32_t>(value >> 32))


cdef inline uint16_t get16(const uint8_t *at) noexcept:
    return at[0] | <uint16_t>at[1] << 8


cdef inline uint32_t get32(const uint8_t *at) noexcept nogil:
    return at[0] | <uint32_t>at[1] << 8 | <uint32_t>at[2] << 16 | <uint32_t>at[3] << 24


cdef inline uint64_t get64(const uint8_t *at) noexcept:
    cdef uint64_t value = 0
    cdef int octet
    for octet in range(8):
        value |= <uint64_t>at[octet] << (8 * octet)
    return value


cdef class View:
    """The octets of an object, for as long as this one lives."""

    cdef Py_buffer of
    cdef const uint8_t *octets
    cdef Py_ssize_t length

    def __cinit__(self, owner, int flags=PyBUF_SIMPLE):
        PyObject_GetBuffer(owner, &self.of, flags)
        self.octets = <const uint8_t *>self.of.buf
        self.length = self.of.len

    def __dealloc__(self):
        PyBuffer_Release(&self.of)


include "kernel/crc.pxi"
include "kernel/rows.pxi"
include "kernel/columns.pxi"
include "kernel/runs.pxi"
include "kernel/gone.pxi"
include "kernel/lives.pxi"
