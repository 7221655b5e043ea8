# Memory for output and payloads.

cdef enum:
    CHUNK_CLASSES = 4         # 4, 16, 64 and 256 KiB, with what the allocator needs for each:
    CHUNK_MARGIN = 64         # one that needs a little more does not fit where one has been
    SMALLEST_CHUNK = 4096 - CHUNK_MARGIN
    LARGEST_CHUNK = 262144 - CHUNK_MARGIN
    MOST_POOLED = 33554432    # octets of free chunks that are kept for reuse
    KEEPER_CHUNK = 65536 - CHUNK_MARGIN
    FIRST_COMPACTION = 67108864  # octets in chunks below which nothing is moved

cdef struct Chunk:
    uint8_t *data
    PyObject *memory          # the bytearray that data points into
    PyObject *output          # the Output that writes into it, borrowed; NULL: none does
    Chunk *next               # in the pool
    uint32_t capacity
    uint32_t fill             # octets written
    uint32_t pairs            # that refer to the chunk
    uint32_t live             # octets of their payload
    uint32_t segments         # of outputs, in this chunk
    uint8_t is_kept           # it is the keeper, or the inbox

cdef struct Segment:
    Chunk *chunk
    uint32_t begin            # of the octets to send
    uint32_t end

cdef Chunk *pool[CHUNK_CLASSES]
cdef uint64_t pooled_octets = 0
cdef uint64_t chunk_octets = 0     # of chunks in use


cdef inline uint32_t chunk_class(uint32_t capacity) noexcept nogil:
    cdef uint32_t number = 0
    while capacity > class_capacity(number):
        number += 1
    return number


cdef inline uint32_t class_capacity(uint32_t number) noexcept nogil:
    return ((<uint32_t>SMALLEST_CHUNK + CHUNK_MARGIN) << (2 * number)) - CHUNK_MARGIN


cdef Chunk *new_chunk(uint32_t octets) except NULL:
    """Returns a chunk of at least ``octets``, at most ``LARGEST_CHUNK``."""
    global pooled_octets, chunk_octets
    cdef uint32_t number = chunk_class(octets)
    cdef uint32_t capacity = class_capacity(number)
    cdef Chunk *chunk = pool[number]
    cdef bytearray memory
    if chunk != NULL:
        pool[number] = chunk.next
        pooled_octets -= capacity
    else:
        memory = PyByteArray_FromStringAndSize(NULL, capacity)
        chunk = <Chunk *>calloc(1, sizeof(Chunk))
        if chunk == NULL:
            raise MemoryError
        Py_INCREF(memory)
        chunk.memory = <PyObject *>memory
        chunk.data = <uint8_t *>PyByteArray_AS_STRING(memory)
        chunk.capacity = capacity
    chunk.next = NULL
    chunk_octets += capacity
    return chunk


cdef void free_chunk(Chunk *chunk) noexcept:
    """Frees a chunk that no output and no pair needs."""
    global pooled_octets, chunk_octets
    cdef uint32_t number = chunk_class(chunk.capacity)
    chunk_octets -= chunk.capacity
    if pooled_octets + chunk.capacity > MOST_POOLED:
        Py_DECREF(<object>chunk.memory)
        free(chunk)
        return
    chunk.output = NULL
    chunk.fill = 0
    chunk.is_kept = 0
    chunk.next = pool[number]
    pool[number] = chunk
    pooled_octets += chunk.capacity


cdef inline void let_go(Chunk *chunk, uint32_t octets) noexcept:
    """Records that a pair does not need its payload in this chunk any more."""
    chunk.live -= octets
    chunk.pairs -= 1
    if chunk.pairs == 0 and chunk.segments == 0:
        leave_chunk(chunk)


cdef void leave_chunk(Chunk *chunk) noexcept:
    """Frees a chunk in which nothing is needed any more."""
    if chunk.is_kept:
        chunk.fill = 0
    elif chunk.output == NULL:
        free_chunk(chunk)
    else:
        (<Output>chunk.output).drop_if_idle()
