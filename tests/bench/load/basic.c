#include "basic.h"
#include "wire.h"

#include <string.h>

static uint8_t *put_octets(uint8_t *at, const void *octets, size_t length) {
    memcpy(at, octets, length);
    return at + length;
}

static uint8_t *put_short(uint8_t *at, const char *text) {
    *at++ = (uint8_t)strlen(text);
    return put_octets(at, text, strlen(text));
}

static uint8_t *put_long(uint8_t *at, const void *octets, uint32_t length) {
    put32(at, length);
    return put_octets(at + 4, octets, length);
}

static uint8_t *put16(uint8_t *at, uint16_t value) {
    *at++ = (uint8_t)(value >> 8);
    *at++ = (uint8_t)value;
    return at;
}

void put64(uint8_t *at, uint64_t value) {
    put32(at, (uint32_t)(value >> 32));
    put32(at + 4, (uint32_t)value);
}

uint64_t get64(const uint8_t *at) {
    return (uint64_t)get32(at) << 32 | get32(at + 4);
}

static uint8_t *begin(uint8_t *at, uint8_t type, uint16_t channel) {
    *at++ = type;
    return put16(at, channel) + 4;
}

static uint8_t *begin_method(uint8_t *at, uint16_t channel, uint16_t class_id, uint16_t method) {
    return put16(put16(begin(at, BASIC_METHOD, channel), class_id), method);
}

static uint8_t *end(uint8_t *frame, uint8_t *at) {
    put32(frame + 3, (uint32_t)(at - frame) - 7);
    *at++ = 0xce;
    return at;
}

uint8_t *basic_negotiate(uint8_t *out, const char *queue, uint16_t prefetch) {
    out = put_octets(out, "AMQP\0\0\x09\x01", 8);
    uint8_t *at = begin_method(out, 0, 10, 11); /* start-ok */
    at = put_long(at, "", 0);
    at = put_short(at, "ANONYMOUS");
    at = put_long(at, "", 0);
    out = end(out, put_short(at, "en_US"));

    at = put16(begin_method(out, 0, 10, 31), 1); /* tune-ok: channels, frame, heartbeat */
    put32(at, BASIC_FRAME_OCTETS);
    out = end(out, put16(at + 4, 0));

    at = put_short(begin_method(out, 0, 10, 40), "/"); /* open */
    out = end(out, put16(at, 0));
    out = end(out, put_short(begin_method(out, 1, 20, 10), ""));
    if (!queue) { /* confirm.select */
        at = begin_method(out, 1, 85, 10);
        *at++ = 0;
        return end(out, at);
    }
    at = begin_method(out, 1, 60, 10); /* qos */
    put32(at, 0);
    at = put16(at + 4, prefetch);
    *at++ = 0;
    out = end(out, at);
    at = put16(begin_method(out, 1, 60, 20), 0); /* consume */
    at = put_short(put_short(at, queue), "");
    *at++ = 0;
    return end(out, put_long(at, "", 0));
}

uint8_t *basic_ack(uint8_t *out, uint64_t tag) {
    uint8_t *at = begin_method(out, 1, 60, 80);
    put64(at, tag);
    at[8] = 1;
    return end(out, at + 9);
}

uint8_t *basic_publish(uint8_t *out, const char *key) {
    uint8_t *at = put_short(put16(begin_method(out, 1, 60, 40), 0), "");
    at = put_short(at, key);
    *at++ = 0;
    return end(out, at);
}

uint8_t *basic_header(uint8_t *out, uint64_t body, bool properties, uint8_t **id_at, uint8_t **time_at) {
    uint8_t *at = put16(put16(begin(out, BASIC_HEADER, 1), 60), 0);
    put64(at, body);
    if (!properties) {
        at = put16(at + 8, 0x1000); /* delivery-mode */
        *at++ = 2;
        return end(out, at);
    }
    /* content-type, headers, delivery-mode, message-id, timestamp, app-id */
    static const uint8_t table[] = "\x05traceS\0\0\0\x08" "abcdefgh" "\x04hopsI\0\0\0\x01";
    at = put_short(put16(at + 8, 0x8000 | 0x2000 | 0x1000 | 0x0080 | 0x0040 | 0x0008), "application/json");
    at = put_long(at, table, sizeof table - 1);
    *at++ = 2;
    *id_at = at + 1;
    at = put_short(at, "00000000");
    *time_at = at;
    put64(at, 1700000000);
    return end(out, put_short(at + 8, "load"));
}

uint8_t *basic_body(uint8_t *out, uint32_t size) {
    uint8_t *at = begin(out, BASIC_BODY, 1);
    end(out, at + size);
    return at;
}
