# cython: language_level=3
# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# cython: nonecheck=False, infer_types=False
"""What handles every message of 0-9-1, compiled; each function has a twin in Python.

``quick_to_sections`` and ``quick_from_sections`` translate to AMQP 1.0 and back, octet for octet as their
twins. Nothing is remembered, for nothing takes long: what stands before the body is read once and
written anew into a scratch buffer, without a Python object for any part of it. What is not plain,
or uncommonly large, is left to the twin, which also judges it. ``scan_publishes`` and
``scan_deliveries`` read runs of contents; ``pass_on`` makes the frames of one that leaves as it
came.

Rooms. It is one extension; what it consists of lies in ``kernel/``.

Safety. A ``Reader`` never goes beyond its end. What is written is at most so many times what was
read, and ``LEAD_OCTETS`` bounds that.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memchr, memcmp, memcpy, memmove, memset

from router.wire.v0_9_1 import quick_from_sections as down
from router.wire.v0_9_1 import quick_to_sections as up
from router.wire.v0_9_1.values import MAX_TIMESTAMP_SECONDS

include "kernel/octets.pxi"
include "kernel/to_sections.pxi"
include "kernel/passing.pxi"
include "kernel/scanning.pxi"
include "kernel/from_sections.pxi"
