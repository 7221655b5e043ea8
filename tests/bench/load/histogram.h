/* Counts of durations, precise to a thirty-second part, from a nanosecond to seven minutes. */
#ifndef HISTOGRAM_H
#define HISTOGRAM_H

#include <stdint.h>

enum { PARTS = 32, BUCKETS = 35 * PARTS };

struct histogram {
    uint64_t counts[BUCKETS];
    uint64_t total;
};

/* Durations below PARTS ns have a bucket each; then each power of two is cut into PARTS. */
static inline void record(struct histogram *h, uint64_t nanoseconds, uint64_t times) {
    int bucket = (int)nanoseconds;
    if (nanoseconds >= PARTS) {
        int power = 63 - __builtin_clzll(nanoseconds);
        bucket = (power - 4) * PARTS + (int)((nanoseconds >> (power - 5)) - PARTS);
    }
    h->counts[bucket < BUCKETS ? bucket : BUCKETS - 1] += times;
    h->total += times;
}

/* Returns, in microseconds, what a part `quantile` of all durations does not exceed. */
static inline double percentile(const struct histogram *h, double quantile) {
    uint64_t wanted = (uint64_t)((double)h->total * quantile), seen = 0;
    for (int bucket = 0; bucket < BUCKETS; bucket++) {
        seen += h->counts[bucket];
        if (seen > wanted) {
            if (bucket < PARTS) return bucket / 1e3;
            int power = bucket / PARTS + 4;
            return (double)((uint64_t)(bucket % PARTS + PARTS + 1) << (power - 5)) / 1e3;
        }
    }
    return 0;
}

#endif
