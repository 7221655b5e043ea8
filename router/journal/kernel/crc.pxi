# CRC-32, faster than zlib's where the processor multiplies without carry.

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
