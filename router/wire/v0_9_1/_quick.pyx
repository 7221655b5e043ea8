# cython: language_level=3
# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# cython: nonecheck=False, infer_types=False
"""Compiled functions for every message of 0-9-1; each has a twin in Python.

``quick_to_sections`` and ``quick_from_sections`` translate to AMQP 1.0 and back, with the same
octets as
their twins. Nothing is cached, because everything is fast: the octets before the body are read once
and written anew into a scratch buffer, without Python objects for their parts. A message that does
not map directly, or is uncommonly large, is left to the twin, which also judges it.
``scan_publishes`` and ``scan_deliveries`` read runs of contents; ``pass_on`` encodes the frames of
an unchanged one.

Structure. It is one extension; its parts are the files of ``kernel/``.

Safety. A ``Reader`` never goes beyond its end. The size of the output is bounded by a multiple of
the input, and ``LEAD_OCTETS`` limits the input.
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
