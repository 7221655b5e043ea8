/* The little of AMQP 0-9-1 that a load needs.
 *
 * A frame:  type(1) channel(2) size(4) | payload | ce
 *
 * All that negotiates is written at once: a server reads what comes in its order. Everything else
 * is on channel 1.
 */
#ifndef BASIC_H
#define BASIC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { BASIC_OVERHEAD = 8, BASIC_METHOD = 1, BASIC_HEADER = 2, BASIC_BODY = 3, BASIC_FRAME_OCTETS = 65536 };

/* Methods as class << 16 | method. */
enum {
    CONNECTION_CLOSE = 10 << 16 | 50, CHANNEL_CLOSE = 20 << 16 | 40, CONFIRM_SELECT_OK = 85 << 16 | 11,
    BASIC_CONSUME_OK = 60 << 16 | 21, BASIC_DELIVER = 60 << 16 | 60, BASIC_ACK = 60 << 16 | 80,
};

/* Each writes at `at` and returns what is behind. */
uint8_t *basic_negotiate(uint8_t *at, const char *queue, uint16_t prefetch); /* queue NULL: publish */
uint8_t *basic_ack(uint8_t *at, uint64_t tag);                               /* multiple */
uint8_t *basic_publish(uint8_t *at, const char *key);

/* Writes a content header; with `properties` as many senders have them, among them a message-id of
 * eight digits and a timestamp of eight octets, which are at `*id_at` and `*time_at` then. */
uint8_t *basic_header(uint8_t *at, uint64_t body, bool properties, uint8_t **id_at, uint8_t **time_at);

/* Frames a body of `size` octets, which the caller has put, or will put, at what is returned. */
uint8_t *basic_body(uint8_t *at, uint32_t size);

uint64_t get64(const uint8_t *at);
void put64(uint8_t *at, uint64_t value);

#endif
