# cython: language_level=3
# cython: boundscheck=False, wraparound=False, initializedcheck=False
# cython: nonecheck=False, infer_types=False
"""Shortcuts for runs of records; see ``bulk``. The octets of a row are drawn in ``record``."""

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


cdef extern from *:
    """
    /* CRC-32 as zlib's, by carry-less multiplication: V. Gopal and others, "Fast CRC Computation for
       Generic Polynomials Using PCLMULQDQ Instruction", Intel 2009, whose constants these are. */
    #if defined(__x86_64__) && defined(__GNUC__)
    #include <immintrin.h>
    #define FOLD(x, k, y) \\
        _mm_xor_si128(_mm_xor_si128(_mm_clmulepi64_si128(x, k, 0x11), y), \\
                      _mm_clmulepi64_si128(x, k, 0x00))
    static int has_fold(void) {
        __builtin_cpu_init();
        return __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
    }
    /* Of at least 64 octets, a multiple of 16; ``state`` is the complement of a CRC. */
    __attribute__((target("pclmul,sse4.1")))
    static uint32_t fold_crc(const uint8_t *at, Py_ssize_t octets, uint32_t state) {
        const __m128i by_64 = _mm_set_epi64x(0x01c6e41596, 0x0154442bd4);
        const __m128i by_16 = _mm_set_epi64x(0x00ccaa009e, 0x01751997d0);
        const __m128i to_64 = _mm_set_epi64x(0, 0x0163cd6124);
        const __m128i poly = _mm_set_epi64x(0x01f7011641, 0x01db710641);
        const __m128i low = _mm_setr_epi32(~0, 0, ~0, 0);
        const __m128i *from = (const __m128i *)at;
        __m128i x1 = _mm_loadu_si128(from), x2 = _mm_loadu_si128(from + 1);
        __m128i x3 = _mm_loadu_si128(from + 2), x4 = _mm_loadu_si128(from + 3);
        x1 = _mm_xor_si128(x1, _mm_cvtsi32_si128((int)state));
        for (from += 4, octets -= 64; octets >= 64; from += 4, octets -= 64) {
            x1 = FOLD(x1, by_64, _mm_loadu_si128(from));
            x2 = FOLD(x2, by_64, _mm_loadu_si128(from + 1));
            x3 = FOLD(x3, by_64, _mm_loadu_si128(from + 2));
            x4 = FOLD(x4, by_64, _mm_loadu_si128(from + 3));
        }
        x1 = FOLD(x1, by_16, x2);
        x1 = FOLD(x1, by_16, x3);
        x1 = FOLD(x1, by_16, x4);
        for (; octets >= 16; ++from, octets -= 16)
            x1 = FOLD(x1, by_16, _mm_loadu_si128(from));
        x2 = _mm_clmulepi64_si128(x1, by_16, 0x10);  /* to 64 bits */
        x1 = _mm_xor_si128(_mm_srli_si128(x1, 8), x2);
        x2 = _mm_srli_si128(x1, 4);
        x1 = _mm_clmulepi64_si128(_mm_and_si128(x1, low), to_64, 0x00);
        x1 = _mm_xor_si128(x1, x2);
        x2 = _mm_clmulepi64_si128(_mm_and_si128(x1, low), poly, 0x10);  /* Barrett, to 32 bits */
        x2 = _mm_clmulepi64_si128(_mm_and_si128(x2, low), poly, 0x00);
        return (uint32_t)_mm_extract_epi32(_mm_xor_si128(x1, x2), 1);
    }
    #else
    static int has_fold(void) { return 0; }
    static uint32_t fold_crc(const uint8_t *at, Py_ssize_t octets, uint32_t state) {
        (void)at; (void)octets;
        return state;
    }
    #endif
    """
    bint has_fold() noexcept nogil
    uint32_t fold_crc(const uint8_t *, Py_ssize_t, uint32_t) noexcept nogil


cdef bint _folds = has_fold()
cdef enum:
    LEAST_FOLDED = 256    # octets; of fewer zlib's is as fast


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


def crc32(octets, uint32_t value=0):
    """Returns the CRC-32 of octets behind others, whose CRC-32 is ``value``; as zlib's."""
    cdef View view
    cdef Py_ssize_t folded
    if not _folds:
        return zlib_crc32(octets, value)
    view = View(octets)
    folded = view.length & ~15
    if view.length < LEAST_FOLDED:
        return zlib_crc32(octets, value)
    with nogil:
        value = ~fold_crc(view.octets, folded, ~value)
    if folded == view.length:
        return value
    return zlib_crc32(memoryview(octets).cast("B")[folded:], value)


# --- writing --------------------------------------------------------------------------------------


def string_rows(
    bytearray rows not None, Py_ssize_t at, bytearray heap not None, bytes row not None,
    list keys not None, list tags not None, payloads, bint is_held,
):
    """Writes rows like ``row`` at ``at``, each with its key, its tag and perhaps a payload.

    The reference is ``BlockWriter._string_rows``.

    Returns:
        False, and nothing is changed, if anything is not plain octets or does not fit.
    """
    cdef Py_ssize_t count = len(keys), each, octets = 0, start = PyByteArray_GET_SIZE(heap)
    cdef Py_ssize_t tag_octets, octets_of_payload = 0
    cdef bint has_payload = payloads is not None
    cdef list bodies = payloads if has_payload else keys
    cdef uint8_t *to_row
    cdef uint8_t *to_heap
    if (
        PyBytes_GET_SIZE(row) != ROW or len(tags) != count or len(bodies) != count
        or at < 0 or at + count * ROW > PyByteArray_GET_SIZE(rows)
    ):
        return False
    for each in range(count):
        if not (
            PyBytes_CheckExact(keys[each]) and PyBytes_GET_SIZE(keys[each]) == KEY
            and PyBytes_CheckExact(tags[each]) and PyBytes_CheckExact(bodies[each])
        ):
            return False
        octets += PyBytes_GET_SIZE(tags[each])
        if is_held:
            octets += PyBytes_GET_SIZE(bodies[each])
    PyByteArray_Resize(heap, start + octets)
    to_row = <uint8_t *>PyByteArray_AS_STRING(rows) + at
    to_heap = <uint8_t *>PyByteArray_AS_STRING(heap) + start
    for each in range(count):
        tag_octets = PyBytes_GET_SIZE(tags[each])
        memcpy(to_row, PyBytes_AS_STRING(row), ROW)
        memcpy(to_row + KEY, PyBytes_AS_STRING(keys[each]), KEY)
        memcpy(to_heap, PyBytes_AS_STRING(tags[each]), tag_octets)
        put32(to_row + TAG_AT, <uint32_t>tag_octets)
        put32(to_row + OFFSET_AT, <uint32_t>start)
        octets = tag_octets
        if has_payload:
            octets_of_payload = PyBytes_GET_SIZE(bodies[each])
            put64(to_row + MESSAGE_AT, <uint64_t>octets_of_payload)
            if is_held:
                memcpy(to_heap + octets, PyBytes_AS_STRING(bodies[each]), octets_of_payload)
                octets += octets_of_payload
        put32(to_row + HEAP_AT, <uint32_t>octets)
        start += octets
        to_heap += octets
        to_row += ROW
    return True


def bare_rows(bytearray rows not None, Py_ssize_t at, bytes row not None, list keys not None):
    """Writes rows like ``row`` at ``at`` that differ in their keys alone; False: as above.

    The reference is ``BlockWriter._bare_rows``.
    """
    cdef Py_ssize_t count = len(keys), each
    cdef uint8_t *to_row
    if (
        PyBytes_GET_SIZE(row) != ROW or at < 0
        or at + count * ROW > PyByteArray_GET_SIZE(rows)
    ):
        return False
    for each in range(count):
        if not PyBytes_CheckExact(keys[each]) or PyBytes_GET_SIZE(keys[each]) != KEY:
            return False
    to_row = <uint8_t *>PyByteArray_AS_STRING(rows) + at
    for each in range(count):
        memcpy(to_row, PyBytes_AS_STRING(row), ROW)
        memcpy(to_row + KEY, PyBytes_AS_STRING(keys[each]), KEY)
        to_row += ROW
    return True


def forwarded_rows(
    bytearray rows not None, Py_ssize_t at, bytes row not None, stored, places,
    Py_ssize_t begin, Py_ssize_t count,
):
    """Writes rows like ``row`` that say that messages of a run are gone.

    The reference is ``StoreWriter.forwarded``.
    """
    cdef View of_rows = View(stored), of_places = View(places)
    cdef const uint8_t *of_row = of_rows.octets + begin * ROW
    cdef const uint8_t *place = of_places.octets + begin * PLACE
    cdef uint8_t *to_row = <uint8_t *>PyByteArray_AS_STRING(rows) + at
    cdef Py_ssize_t each
    if (
        PyBytes_GET_SIZE(row) != ROW or at < 0 or begin < 0 or count < 0
        or at + count * ROW > PyByteArray_GET_SIZE(rows)
        or (begin + count) * ROW > of_rows.length
        or (begin + count) * PLACE > of_places.length
    ):
        raise ValueError("not so many rows")
    for each in range(count):
        memcpy(to_row, PyBytes_AS_STRING(row), ROW)
        memcpy(to_row + INCOMING_AT, place, PLACE)
        put64(
            to_row + MESSAGE_AT,
            ROW + get16(of_row + ADDRESS_AT) + get32(of_row + TAG_AT) + get64(of_row + MESSAGE_AT),
        )
        to_row += ROW
        of_row += ROW
        place += PLACE


# --- stored messages ------------------------------------------------------------------------------

cdef enum:
    STORED = 28
    FORWARDED = 29
    PART_ROW = 2
    EXACTLY_ONCE = 3
    PART_OCTETS = 1 << 20
    FLAGS_AT = 4
    MORE = 4
    TIME_AT = 8
    TTL_AT = 64


def stored_columns(rows, heap, uint32_t start):
    """Returns what the STORED rows of a block say of their queues, by columns.

    The reference is ``index.rows_of``.

    Args:
        rows: of a block.
        heap: of that block.
        start: octet of the segment at which its first row stands.

    Returns:
        Positions u32, octets u32 and times u64 of all messages; and for each queue its route, its
        address and its priority, the numbers, u32, of its messages among all, their octets in
        all, and the numbers of those that are in parts or have a time to live. None: there is
        something else in the block, or a row is malformed.
    """
    cdef Py_buffer row_view
    cdef Py_buffer heap_view
    PyObject_GetBuffer(rows, &row_view, PyBUF_SIMPLE)
    try:
        PyObject_GetBuffer(heap, &heap_view, PyBUF_SIMPLE)
        try:
            return columns_of(
                <const uint8_t *>row_view.buf, row_view.len // ROW,
                <const uint8_t *>heap_view.buf, heap_view.len, start,
            )
        finally:
            PyBuffer_Release(&heap_view)
    finally:
        PyBuffer_Release(&row_view)


cdef object columns_of(
    const uint8_t *rows, Py_ssize_t count, const uint8_t *heap, Py_ssize_t heap_octets,
    uint32_t start,
):
    cdef const uint8_t *row
    cdef const uint8_t *address
    cdef const uint8_t *last_address = NULL
    cdef const uint8_t *last_row = NULL
    cdef Py_ssize_t each, found = 0
    cdef uint64_t total
    cdef uint32_t address_octets, tag_octets, octets, slot = 0
    cdef uint32_t *slots = NULL
    cdef dict known = {}
    cdef list queues = []
    cdef bytearray positions, sizes, times, unusual
    for each in range(count):
        row = rows + each * ROW
        if row[0] == STORED:
            found += 1
            total = <uint64_t>get32(row + TAG_AT) + get16(row + ADDRESS_AT)
            if (
                row[2] == EXACTLY_ONCE or total > get32(row + HEAP_AT)
                or <uint64_t>get32(row + OFFSET_AT) + get32(row + HEAP_AT) > <uint64_t>heap_octets
                or get64(row + MESSAGE_AT) >> 31
            ):
                return None
        elif row[0] != FORWARDED and row[0] != PART_ROW:
            return None
    positions, sizes, times = bytearray(4 * found), bytearray(4 * found), bytearray(8 * found)
    cdef uint8_t *to_positions = <uint8_t *>PyByteArray_AS_STRING(positions)
    cdef uint8_t *to_sizes = <uint8_t *>PyByteArray_AS_STRING(sizes)
    cdef uint8_t *to_times = <uint8_t *>PyByteArray_AS_STRING(times)
    cdef uint32_t position, number
    cdef uint64_t time_ns, queue_octets = 0
    cdef Py_ssize_t since = 0
    found = 0
    for each in range(count):
        row = rows + each * ROW
        if row[0] != STORED:
            continue
        address_octets, tag_octets = get16(row + ADDRESS_AT), get32(row + TAG_AT)
        total = get64(row + MESSAGE_AT)
        octets = <uint32_t>(
            ((total - 1) // PART_OCTETS + 1 if total else 1) * ROW
            + address_octets + tag_octets + total
        )
        position = start + <uint32_t>(each * ROW)
        time_ns = get64(row + TIME_AT)
        memcpy(to_positions + 4 * found, &position, 4)
        memcpy(to_sizes + 4 * found, &octets, 4)
        memcpy(to_times + 8 * found, &time_ns, 8)
        address = heap + get32(row + OFFSET_AT) + tag_octets
        if (
            last_row == NULL or row[1] != last_row[1]
            or memcmp(row + OUTGOING_AT, last_row + OUTGOING_AT, 8)
            or get16(last_row + ADDRESS_AT) != address_octets
            or memcmp(address, last_address, address_octets)
        ):
            if last_row != NULL:
                end_stretch(<list>queue, since, found, queue_octets)
            since, queue_octets = found, 0
            key = (get64(row + OUTGOING_AT), (<const char *>address)[:address_octets], row[1])
            queue = known.get(key)
            if queue is None:
                queue = known[key] = [*key, bytearray(), 0, bytearray()]
                queues.append(queue)
        last_row, last_address = row, address
        queue_octets += octets
        if row[FLAGS_AT] & MORE or <uint32_t>(get32(row + TTL_AT) + 1):
            number = <uint32_t>found
            unusual = <bytearray>(<list>queue)[5]
            unusual += (<const char *>&number)[:4]
        found += 1
    if last_row != NULL:
        end_stretch(<list>queue, since, found, queue_octets)
    return positions, sizes, times, queues


cdef int end_stretch(
    list queue, Py_ssize_t first, Py_ssize_t last, uint64_t octets
) except -1:
    """Adds messages to a queue that follow each other: their numbers, and their octets."""
    cdef bytearray numbers = queue[3]
    cdef Py_ssize_t at = PyByteArray_GET_SIZE(numbers), each
    cdef uint32_t number
    PyByteArray_Resize(numbers, at + 4 * (last - first))
    for each in range(first, last):
        number = <uint32_t>each
        memcpy(<uint8_t *>PyByteArray_AS_STRING(numbers) + at + 4 * (each - first), &number, 4)
    queue[4] += octets
    return 0


def place_list(positions, uint32_t segment):
    """Returns the places of messages of a segment, whose positions are u32 each."""
    cdef View view = View(positions)
    cdef const uint32_t *position = <const uint32_t *>view.octets
    cdef uint64_t base = <uint64_t>segment << 32
    cdef Py_ssize_t each
    return [base | position[each] for each in range(view.length // 4)]


def place_octets(positions, uint32_t segment):
    """Returns the places of messages of a segment, u64 each, whose positions are u32 each."""
    cdef View view = View(positions)
    cdef Py_ssize_t each, count = view.length // 4
    cdef bytes places = PyBytes_FromStringAndSize(NULL, PLACE * count)
    cdef uint8_t *to = <uint8_t *>PyBytes_AS_STRING(places)
    for each in range(count):
        put32(to + PLACE * each, (<const uint32_t *>view.octets)[each])
        put32(to + PLACE * each + 4, segment)
    return places


def chosen_positions(numbers, Py_ssize_t at, Py_ssize_t last, positions, blocks, times):
    """Returns where some messages of a segment stand, by the blocks that they begin in.

    Args:
        numbers: of messages among all of the segment, u32; those from ``at`` to ``last`` count.
        positions, blocks: of all messages of the segment, u32.
        times: of all messages, u64.

    Returns:
        Blocks, with the positions, u32, of their messages; and the earliest time.
    """
    cdef View number_view = View(numbers), position_view = View(positions)
    cdef View block_view = View(blocks), time_view = View(times)
    cdef const uint32_t *number = <const uint32_t *>number_view.octets
    cdef const uint32_t *position = <const uint32_t *>position_view.octets
    cdef const uint32_t *block = <const uint32_t *>block_view.octets
    cdef const uint64_t *time = <const uint64_t *>time_view.octets
    cdef uint64_t oldest = 0xFFFFFFFFFFFFFFFFu
    cdef Py_ssize_t begin, each, count = position_view.length // 4
    cdef list pieces = []
    cdef bytes piece
    if (
        not 0 <= at <= last <= number_view.length // 4
        or block_view.length != position_view.length
        or time_view.length != 2 * position_view.length
    ):
        raise ValueError("not so many messages")
    for each in range(at, last):
        if number[each] >= count:
            raise ValueError("a message is beyond the end")
        if time[number[each]] < oldest:
            oldest = time[number[each]]
    while at < last:
        begin = at
        while at < last and block[number[at]] == block[number[begin]]:
            at += 1
        piece = PyBytes_FromStringAndSize(NULL, 4 * (at - begin))
        for each in range(begin, at):
            (<uint32_t *>PyBytes_AS_STRING(piece))[each - begin] = position[number[each]]
        pieces.append((block[number[begin]], piece))
    return pieces, oldest


def stretches_of(numbers, positions):
    """Returns how messages of a segment stand side by side: firsts and ends, u32 each.

    The reference is ``outline.stretches_of``.
    """
    cdef View number_view = View(numbers), position_view = View(positions)
    cdef const uint32_t *number = <const uint32_t *>number_view.octets
    cdef const uint32_t *position = <const uint32_t *>position_view.octets
    cdef Py_ssize_t each, found = 0, total = number_view.length // 4
    cdef Py_ssize_t count = position_view.length // 4
    cdef bytes firsts = PyBytes_FromStringAndSize(NULL, 4 * total)
    cdef bytes ends = PyBytes_FromStringAndSize(NULL, 4 * total)
    cdef uint32_t *first = <uint32_t *>PyBytes_AS_STRING(firsts)
    cdef uint32_t *end = <uint32_t *>PyBytes_AS_STRING(ends)
    for each in range(total):
        if number[each] >= count:
            raise ValueError("a message is beyond the end")
        if not each or position[number[each]] != position[number[each - 1]] + ROW:
            first[found] = position[number[each]]
            found += 1
        end[found - 1] = <uint32_t>(each + 1)
    return firsts[:4 * found], ends[:4 * found]


def number_queue(numbers, uint32_t before, queues, uint64_t queue):
    """Returns numbers, u32, each greater by ``before``; and names a queue at them in a column."""
    cdef View view = View(numbers), to = View(queues, PyBUF_WRITABLE)
    cdef Py_ssize_t each, count = view.length // 4
    cdef bytes moved = PyBytes_FromStringAndSize(NULL, 4 * count)
    cdef uint32_t number
    for each in range(count):
        number = (<const uint32_t *>view.octets)[each]
        if number >= to.length // 8:
            raise ValueError("a message is beyond the end")
        (<uint64_t *>to.of.buf)[number] = queue
        (<uint32_t *>PyBytes_AS_STRING(moved))[each] = number + before
    return moved


cdef inline const uint8_t *usual_row(View rows, View heap, uint32_t start, uint32_t at) noexcept:
    """Returns the row of a message that stands at an octet of its segment; NULL: it is unusual."""
    cdef Py_ssize_t number = (at - start) // ROW
    cdef const uint8_t *row = rows.octets + number * ROW
    if (
        at < start or number >= rows.length // ROW or row[0] != STORED or row[FLAGS_AT] & MORE
        or <uint32_t>(get32(row + TTL_AT) + 1)
        or <int64_t>get32(row + OFFSET_AT) + get32(row + HEAP_AT) > heap.length
    ):
        return NULL
    return row


def usual_octets(rows, heap, positions, uint32_t start):
    """Returns the octets of the strings of messages of a block; -1: one of them is unusual.

    Args:
        rows, heap: of the block.
        positions: of the messages, u32.
        start: octet of the segment at which the first row of the block stands.
    """
    cdef View row_view = View(rows), heap_view = View(heap), view = View(positions)
    cdef const uint8_t *row
    cdef Py_ssize_t each
    cdef uint64_t octets = 0
    for each in range(view.length // 4):
        row = usual_row(row_view, heap_view, start, (<const uint32_t *>view.octets)[each])
        if row == NULL:
            return -1
        octets += get32(row + HEAP_AT)
    return octets


def compose_run(
    bytearray out not None, Py_ssize_t at, list pieces not None, Py_ssize_t count,
    Py_ssize_t octets, uint32_t segment,
):
    """Writes the rows of a run, their strings and their places; see ``runs``.

    Args:
        out: where they go.
        at: the octet of ``out`` at which the first row goes.
        pieces: for each block its rows and its heap, the positions, u32, of the messages, and the
            octet of the segment at which its first row stands.
        count: of all messages.
        octets: of all their strings.
        segment: that they stand in.

    Raises:
        ValueError: there are not so many usual ones, or there is no room.
    """
    cdef Py_ssize_t heap_at = at + count * ROW, places_at = heap_at + octets
    cdef View row_view, heap_view, view
    cdef uint8_t *to = <uint8_t *>PyByteArray_AS_STRING(out)
    cdef Py_ssize_t each, written = 0, strings = 0
    cdef const uint8_t *row
    cdef uint32_t start, held, position
    if not 0 <= at <= heap_at <= places_at or places_at + PLACE * count > len(out):
        raise ValueError("there is no room for a run")
    for rows, heap, positions, start in pieces:
        row_view, heap_view, view = View(rows), View(heap), View(positions)
        for each in range(view.length // 4):
            position = (<const uint32_t *>view.octets)[each]
            row = usual_row(row_view, heap_view, start, position)
            held = 0 if row == NULL else get32(row + HEAP_AT)
            if row == NULL or written == count or strings + held > octets:
                raise ValueError("other messages than there should be")
            memcpy(to + at + written * ROW, row, ROW)
            put32(to + at + written * ROW + OFFSET_AT, <uint32_t>strings)
            memcpy(to + heap_at + strings, heap_view.octets + get32(row + OFFSET_AT), held)
            put32(to + places_at + PLACE * written, position)
            put32(to + places_at + PLACE * written + 4, segment)
            strings += held
            written += 1
    if written != count or strings != octets:
        raise ValueError("fewer messages than there should be")


cdef int read_fully(
    int file, uint8_t *to, int64_t octets, int64_t offset, int flags
) except -1:
    """Reads octets of a file.

    Raises:
        OSError: the system has refused that, or would have to wait.
        EOFError: there are fewer, or fewer are at hand.
    """
    cdef Py_ssize_t count
    cdef iovec room
    room.iov_base, room.iov_len = to, octets
    with nogil:
        count = preadv2(file, &room, 1, offset, flags)
    if count < 0:
        PyErr_SetFromErrno(OSError)
    if count < octets:
        raise EOFError("there are fewer octets")
    return 0


cdef Py_ssize_t stretch_at(
    const uint32_t *positions, Py_ssize_t first, Py_ssize_t total
) noexcept nogil:
    """Returns how many messages from ``first`` on stand side by side in a block."""
    cdef Py_ssize_t end = first + 1
    while end < total and positions[end] - positions[end - 1] == ROW:
        end += 1
    return end - first


cdef Py_ssize_t count_stretches(const uint32_t *positions, Py_ssize_t total) noexcept nogil:
    cdef Py_ssize_t first = 0, found = 0
    while first < total:
        first += stretch_at(positions, first, total)
        found += 1
    return found


def read_run(
    int file, int flags, list pieces not None, bytearray room not None, uint32_t segment,
    Py_ssize_t least_stretch, uint64_t most_strings,
):
    """Reads the messages of a reference: their rows, their strings and their places.

    The reference is ``references.RunReader._read``.

    Args:
        file: of the segment.
        flags: of preadv2.
        pieces: for each block its offset, that of its heap, and the positions, u32, of the messages.
        room: where they go; it grows.
        segment: its number.
        least_stretch: messages that stand side by side, in the mean.
        most_strings: octets of their strings that are believed.

    Returns:
        How many messages, and the octets of their strings. None: too few stand side by side.

    Raises:
        OSError: the system has refused to read, or would have to wait.
        EOFError: there are fewer octets, or fewer at hand.
        ValueError: a message is not as its reference says.
    """
    cdef Py_ssize_t count = 0, found = 0, blocks = len(pieces), at = 0, first, stretch, each
    cdef uint64_t strings = 0, heap_at
    cdef uint32_t heap
    cdef uint8_t *to
    cdef View view
    cdef list heaps = []
    for _, heap, positions in pieces:
        view = View(positions)
        count += view.length // 4
        found += count_stretches(<const uint32_t *>view.octets, view.length // 4)
    if found * least_stretch > count + least_stretch * blocks:
        return None
    room_for(room, count * ROW)
    for _, heap, positions in pieces:
        view, first = View(positions), 0
        while first < view.length // 4:
            stretch = stretch_at(<const uint32_t *>view.octets, first, view.length // 4)
            to = <uint8_t *>PyByteArray_AS_STRING(room) + at * ROW
            read_fully(
                file, to, stretch * ROW, (<const uint32_t *>view.octets)[first], flags
            )
            where = strings_in(to, stretch, <uint32_t>strings)
            if where is None or strings + where[1] > most_strings:
                raise ValueError("a message is not as its reference says")
            heaps.append((heap + where[0], where[1]))
            strings += where[1]
            at += stretch
            first += stretch
    room_for(room, count * (ROW + PLACE) + strings)
    to = <uint8_t *>PyByteArray_AS_STRING(room) + count * ROW
    for heap_at, stretch in heaps:
        read_fully(file, to, stretch, heap_at, flags)
        to += stretch
    for _, heap, positions in pieces:
        view = View(positions)
        for each in range(view.length // 4):
            put32(to, (<const uint32_t *>view.octets)[each])
            put32(to + 4, segment)
            to += PLACE
    return count, strings


cdef int room_for(bytearray room, Py_ssize_t octets) except -1:
    """Has memory be of so many octets, at least."""
    if PyByteArray_GET_SIZE(room) < octets:
        PyByteArray_Resize(room, octets)
    return 0


def usual_strings(rows, uint32_t base):
    """Has rows that follow each other in a block point to where their strings will be.

    The reference is ``references.strings_of``.

    Args:
        rows: that are changed.
        base: octets of other strings that will stand before theirs.

    Returns:
        Where in the heap of the block their strings begin, and how many octets they have. None: a
        row is unusual, or other strings stand between theirs; the rows may have been changed.
    """
    cdef View view = View(rows, PyBUF_WRITABLE)
    return strings_in(<uint8_t *>view.of.buf, view.length // ROW, base)


cdef object strings_in(uint8_t *row, Py_ssize_t count, uint32_t base):
    """Does what ``usual_strings`` says for so many rows."""
    cdef Py_ssize_t each
    cdef uint64_t first = 0, octets = 0
    cdef uint32_t held
    for each in range(count):
        held = get32(row + HEAP_AT)
        if not each:
            first = get32(row + OFFSET_AT)
        if (
            row[0] != STORED or row[FLAGS_AT] & MORE or <uint32_t>(get32(row + TTL_AT) + 1)
            or <uint64_t>get32(row + TAG_AT) + get16(row + ADDRESS_AT) > held
            or get32(row + OFFSET_AT) != first + octets
        ):
            return None
        put32(row + OFFSET_AT, <uint32_t>(base + octets))
        octets += held
        row += ROW
    return first, octets


def gone_columns(rows):
    """Returns what the FORWARDED rows of a block say: runs of one segment and one queue.

    The reference is ``index.claims_in``.

    Returns:
        For each its segment, its queue, the positions, u32, and the octets, u64.
    """
    cdef View view = View(rows)
    cdef Py_ssize_t at = 0, end, written, count = view.length // ROW
    cdef const uint8_t *row
    cdef const uint8_t *first
    cdef list found = []
    cdef bytearray positions, sizes
    while True:
        while at < count and view.octets[at * ROW] != FORWARDED:
            at += 1
        if at == count:
            return found
        first, end, written = view.octets + at * ROW, at, 0
        while end < count and (
            view.octets[end * ROW] != FORWARDED or is_same_run(first, view.octets + end * ROW)
        ):
            written += view.octets[end * ROW] == FORWARDED
            end += 1
        positions, sizes = bytearray(4 * written), bytearray(8 * written)
        found.append((get32(first + INCOMING_AT + 4), get64(first + OUTGOING_AT), positions, sizes))
        written = 0
        for at in range(at, end):
            row = view.octets + at * ROW
            if row[0] == FORWARDED:
                (<uint32_t *>PyByteArray_AS_STRING(positions))[written] = get32(row + INCOMING_AT)
                (<uint64_t *>PyByteArray_AS_STRING(sizes))[written] = get64(row + MESSAGE_AT)
                written += 1
        at = end


cdef inline bint is_same_run(const uint8_t *one, const uint8_t *other) noexcept:
    """Returns whether messages that are gone stood in one segment and one queue."""
    return not (
        memcmp(one + INCOMING_AT + 4, other + INCOMING_AT + 4, 4)
        or memcmp(one + OUTGOING_AT, other + OUTGOING_AT, 8)
    )


def mark_gone(bytearray marks not None, positions, octets):
    """Marks messages of a segment as gone; returns how many are news, and their octets.

    The reference is ``StoredSegment.mark_gone``. Positions are u32, octets u64.
    """
    cdef Py_buffer view
    cdef Py_buffer sizes
    cdef Py_ssize_t each, count, known = PyByteArray_GET_SIZE(marks)
    cdef uint8_t *to_marks = <uint8_t *>PyByteArray_AS_STRING(marks)
    cdef uint32_t unit
    cdef uint64_t total = 0
    cdef Py_ssize_t news = 0
    PyObject_GetBuffer(positions, &view, PyBUF_SIMPLE)
    try:
        PyObject_GetBuffer(octets, &sizes, PyBUF_SIMPLE)
        try:
            count = view.len // 4
            if sizes.len // 8 != count:
                raise ValueError("not as many octets as positions")
            for each in range(count):
                unit = (<const uint32_t *>view.buf)[each] // ROW
                if unit >> 3 >= <uint64_t>known:
                    raise ValueError("a mark is beyond the end")
                if not to_marks[unit >> 3] >> (unit & 7) & 1:
                    to_marks[unit >> 3] |= 1 << (unit & 7)
                    news += 1
                    total += (<const uint64_t *>sizes.buf)[each]
        finally:
            PyBuffer_Release(&sizes)
    finally:
        PyBuffer_Release(&view)
    return news, total


def set_marks(bytearray marks not None, positions, bint is_set):
    """Sets or clears the marks of messages, and returns how many were not so before.

    The reference is ``taken.set_marks``. Positions are u32.
    """
    cdef View view = View(positions)
    cdef Py_ssize_t each, count = view.length // 4, known = PyByteArray_GET_SIZE(marks), needed = 0
    cdef Py_ssize_t changed = 0
    cdef uint32_t unit
    cdef uint8_t *bits
    for each in range(count):
        needed = max(needed, <Py_ssize_t>((<const uint32_t *>view.octets)[each] // ROW >> 3) + 1)
    if needed > known:
        PyByteArray_Resize(marks, needed)
        memset(<uint8_t *>PyByteArray_AS_STRING(marks) + known, 0, needed - known)
    bits = <uint8_t *>PyByteArray_AS_STRING(marks)
    for each in range(count):
        unit = (<const uint32_t *>view.octets)[each] // ROW
        if (bits[unit >> 3] >> (unit & 7) & 1) != is_set:
            bits[unit >> 3] ^= 1 << (unit & 7)
            changed += 1
    return changed


def is_any_marked(bytearray marks not None, positions):
    """Returns whether one of some messages is marked; their positions are u32."""
    cdef View view = View(positions)
    cdef Py_ssize_t each, known = PyByteArray_GET_SIZE(marks)
    cdef const uint8_t *bits = <const uint8_t *>PyByteArray_AS_STRING(marks)
    cdef uint32_t unit
    for each in range(view.length // 4):
        unit = (<const uint32_t *>view.octets)[each] // ROW
        if unit >> 3 < <uint64_t>known and bits[unit >> 3] >> (unit & 7) & 1:
            return True
    return False


def marked_positions(bytearray marks not None, positions):
    """Returns those of some positions, u32, that are marked, each once.

    The reference is ``taken.marked``.
    """
    cdef View view = View(positions)
    cdef Py_ssize_t each, count = view.length // 4, kept = 0, known = PyByteArray_GET_SIZE(marks)
    cdef bytearray left = bytearray(marks)
    cdef bytes found = PyBytes_FromStringAndSize(NULL, view.length)
    cdef uint8_t *bits = <uint8_t *>PyByteArray_AS_STRING(left)
    cdef uint32_t *out = <uint32_t *>PyBytes_AS_STRING(found)
    cdef uint32_t position, unit
    for each in range(count):
        position = (<const uint32_t *>view.octets)[each]
        unit = position // ROW
        if unit >> 3 < <uint64_t>known and bits[unit >> 3] >> (unit & 7) & 1:
            bits[unit >> 3] ^= 1 << (unit & 7)
            out[kept] = position
            kept += 1
    return found[:4 * kept]


# --- reading --------------------------------------------------------------------------------------

cdef enum:
    MOST_ROWS = 8       # of a life that goes on: one more than the longest usual way has
    WAYS = 1 << 13      # step, kind, settled, has_outgoing: see lives.way_of
    GONE = -2           # in the index: a life stood here
    FREE = -1

cdef struct Life:
    uint8_t key[KEY]
    uint64_t incoming
    uint64_t outgoing
    int32_t step        # 0: it is over
    int32_t count
    int32_t blocks[MOST_ROWS]
    int32_t rows[MOST_ROWS]


cdef class Lives:
    """Does what ``lives.Lives`` does.

    Lives lie in the order of their beginning; an index with open addressing finds them.
    """

    cdef signed char ways[WAYS]
    cdef uint8_t received
    cdef dict made
    cdef list blocks
    cdef Life *lives
    cdef int32_t count         # of lives, those that are over included
    cdef int32_t alive
    cdef int32_t capacity
    cdef int32_t *index
    cdef uint32_t mask
    cdef uint32_t taken        # places of the index that are not free

    def __cinit__(self, ways, int received, dict made not None):
        cdef int way
        for way in range(WAYS):
            self.ways[way] = 0
        for way, step in ways.items():
            if not 0 <= way < WAYS or not -1 <= step <= 7:
                raise ValueError("no such way")
            self.ways[way] = step
        self.received = received
        self.made = made
        self.blocks = []
        self.grow(256)

    def __dealloc__(self):
        free(self.lives)
        free(self.index)

    def apply(self, block, apply_row):
        """Follows the records of a block."""
        cdef Py_buffer view
        cdef Py_ssize_t at
        self.blocks.append(block)
        if len(self.blocks) > 0x7FFFFFFF:
            raise OverflowError("too many blocks")
        PyObject_GetBuffer(block.rows, &view, PyBUF_SIMPLE)
        try:
            for at in range(view.len // ROW):
                self.apply_one(<const uint8_t *>view.buf + at * ROW, block, <int32_t>at, apply_row)
        finally:
            PyBuffer_Release(&view)

    def make_all(self, apply_row):
        """Makes all that is only followed, and lets go of the blocks that it was followed in."""
        cdef int32_t each
        for each in range(self.count):
            if self.lives[each].step:
                self.make(each, apply_row)
        self.blocks = []
        self.clear()

    cdef int apply_one(
        self, const uint8_t *row, object block, int32_t at, object apply_row
    ) except -1:
        cdef uint64_t incoming = get64(row + 32), outgoing = get64(row + 40)
        cdef const uint8_t *key = row + KEY
        cdef int32_t found = self.find(incoming, key)
        cdef int step
        cdef Life *life
        if found < 0:
            if row[0] == self.received and not self.is_made(incoming, key):
                self.begin(incoming, key, 6 if row[4] & 1 else 1, at)
            else:
                apply_row(block, at)
            return 0
        life = &self.lives[found]
        step = self.ways[life.step << 10 | row[0] << 2 | (row[4] & 1) << 1 | (outgoing != 0)]
        if step == 0 or (life.outgoing and outgoing and outgoing != life.outgoing) or (
            step > 0 and life.count == MOST_ROWS
        ):
            self.make(found, apply_row)
            apply_row(block, at)
        elif step < 0:
            self.end(found)
        else:
            life.step = step
            if not life.outgoing:
                life.outgoing = outgoing
            life.blocks[life.count] = <int32_t>(len(self.blocks) - 1)
            life.rows[life.count] = at
            life.count += 1
        return 0

    cdef bint is_made(self, uint64_t incoming, const uint8_t *key) except -1:
        if not self.made:
            return False
        return (incoming, (<const char *>key)[:KEY]) in self.made

    cdef int make(self, int32_t which, object apply_row) except -1:
        """Makes a delivery that was only followed."""
        cdef Life life = self.lives[which]
        cdef int each
        self.end(which)
        for each in range(life.count):
            apply_row(self.blocks[life.blocks[each]], life.rows[each])
        return 0

    # The index

    cdef uint32_t place(self, uint64_t incoming, const uint8_t *key) noexcept:
        cdef uint64_t mixed = get64(key) ^ get64(key + 8) * 0x9E3779B97F4A7C15u ^ incoming
        mixed ^= mixed >> 29
        mixed *= 0xBF58476D1CE4E5B9u
        return <uint32_t>(mixed >> 32) & self.mask

    cdef int32_t find(self, uint64_t incoming, const uint8_t *key) noexcept:
        cdef uint32_t at = self.place(incoming, key)
        cdef int32_t which
        while True:
            which = self.index[at]
            if which == FREE:
                return -1
            if (
                which >= 0 and self.lives[which].incoming == incoming
                and memcmp(self.lives[which].key, key, KEY) == 0
            ):
                return which
            at = (at + 1) & self.mask

    cdef int begin(
        self, uint64_t incoming, const uint8_t *key, int32_t step, int32_t row
    ) except -1:
        cdef Life *life
        if self.count == self.capacity or self.taken * 2 > self.mask:
            self.grow(max(256, self.alive * 2))
        life = &self.lives[self.count]
        memcpy(life.key, key, KEY)
        life.incoming, life.outgoing, life.step, life.count = incoming, 0, step, 1
        life.blocks[0], life.rows[0] = <int32_t>(len(self.blocks) - 1), row
        self.enter(self.count)
        self.count += 1
        self.alive += 1
        return 0

    cdef void enter(self, int32_t which) noexcept:
        cdef Life *life = &self.lives[which]
        cdef uint32_t at = self.place(life.incoming, life.key)
        while self.index[at] >= 0:
            at = (at + 1) & self.mask
        if self.index[at] == FREE:
            self.taken += 1
        self.index[at] = which

    cdef void end(self, int32_t which) noexcept:
        cdef Life *life = &self.lives[which]
        cdef uint32_t at = self.place(life.incoming, life.key)
        while self.index[at] != which:
            at = (at + 1) & self.mask
        self.index[at] = GONE
        life.step = 0
        self.alive -= 1

    cdef int grow(self, int32_t capacity) except -1:
        """Makes capacity for so many lives and forgets those that are over; the order stays."""
        cdef int32_t each, kept = 0
        cdef uint32_t places = 1024
        cdef void *memory
        if capacity >= 1 << 28:
            raise MemoryError
        for each in range(self.count):
            if self.lives[each].step:
                if kept != each:
                    self.lives[kept] = self.lives[each]
                kept += 1
        self.count = kept
        memory = realloc(self.lives, capacity * sizeof(Life))
        if memory == NULL:
            raise MemoryError
        self.lives = <Life *>memory
        self.capacity = capacity
        while places < <uint32_t>capacity * 4:
            places *= 2
        memory = malloc(places * sizeof(int32_t))
        if memory == NULL:
            raise MemoryError
        free(self.index)
        self.index = <int32_t *>memory
        self.mask = places - 1
        self.empty_index()
        for each in range(kept):
            self.enter(each)
        return 0

    cdef void clear(self) noexcept:
        self.count = self.alive = 0
        self.empty_index()

    cdef void empty_index(self) noexcept:
        cdef uint32_t at
        for at in range(self.mask + 1):
            self.index[at] = FREE
        self.taken = 0
