# cython: language_level=3
# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# cython: nonecheck=False, infer_types=False
"""The express lane's kernel in Cython.

See ``express`` for what a kernel handles and what it leaves. It works delivery by delivery, from
the receive buffer to the send buffer, without creating Python objects per delivery.

Structure. It is one extension, so that the C compiler sees all of it at once; its parts are the
files of ``kernel/``. What a kernel does per frame is written as functions over an ``Express``, not
as methods: they are called directly and can be inlined.

Memory. A delivery's payload is copied once, into the *chunk* of output in which it is sent, and
stays there until its outcome is known: a chunk that has been sent is not freed as long as a *pair*
needs it. A delivery that has to wait is kept in a chunk of the lane's own, the *keeper*, and copied
again when it is sent. Large payloads are not copied at all: a pair refers to the chunk into which
it was received, the *inbox*, and output is a sequence of *segments*, which may lie in any chunk.
Pairs lie in a slab; the rings of a session hold their indices, in the slot ``delivery-id & mask``
(``kernel/rings.pxi``).

Sockets. A ``Carrier`` does for connections on the lane what ``net.dataplane`` does for all: it
receives, lets the kernel handle what it can, and sends at the end of the turn. Python is called
only for what the lane does not handle.

Safety. A peer's octets are read through a ``Reader``, which never goes beyond the frame, and a
frame never beyond the buffer. Ids are looked up, never used as an index without a mask.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_FromStringAndSize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_GetItemWithError
from cpython.pycapsule cimport PyCapsule_GetPointer
from cpython.ref cimport Py_DECREF, Py_INCREF, PyObject
from libc.errno cimport EAGAIN, EINTR, errno  # EWOULDBLOCK is the same wherever there is epoll
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, qsort, realloc
from libc.string cimport memcmp, memcpy, memmove

import os
import sys
from weakref import WeakValueDictionary

from router.errors import MisuseError
from router.model.delivery import ReceivedDelivery
from router.model.lane import LaneDelivery, LanePair, LaneStatistics, Remains
from router.model.outcome import ACCEPTED
from router.model.terminus import Role
from router.wire.v1_0.head import fill

include "kernel/system.pxi"
include "../pipe.pxi"
include "kernel/chunks.pxi"
include "kernel/pairs.pxi"
include "kernel/rings.pxi"
include "kernel/outcomes.pxi"
include "kernel/frames.pxi"
include "kernel/output.pxi"
include "kernel/state.pxi"
include "kernel/choice.pxi"
include "kernel/lane.pxi"
include "kernel/express.pxi"
include "kernel/keeping.pxi"
include "kernel/runs.pxi"
include "kernel/arrivals.pxi"
include "kernel/departures.pxi"
include "kernel/credit.pxi"
include "kernel/inside.pxi"
include "kernel/giving_up.pxi"
include "kernel/listing.pxi"
include "kernel/carrier.pxi"

THIS_MODULE = sys.modules[__name__]
