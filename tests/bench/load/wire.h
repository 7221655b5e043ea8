/* The little of AMQP 1.0 that a load needs: writing and reading frames whose performatives are lists.
 *
 * A frame:  size(4) doff(1)=2 type(1) channel(2) | 00 53 code | c0 size count fields... | payload
 */
#ifndef WIRE_H
#define WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    OPEN = 0x10, BEGIN = 0x11, ATTACH = 0x12, FLOW = 0x13, TRANSFER = 0x14, DISPOSITION = 0x15,
    DETACH = 0x16, END = 0x17, CLOSE = 0x18,
    SASL_INIT = 0x41, SASL_OUTCOME = 0x44,
    ACCEPTED = 0x24, SOURCE = 0x28, TARGET = 0x29,
};

enum { FRAME_HEADER = 8, CHANNEL = 7 /* its lower octet */, MOST_FIELDS = 14, TYPE_AMQP = 0, TYPE_SASL = 1 };

/* Writes fields one after the other; the caller provides enough room. */
struct writer {
    uint8_t *at;
    int count;
};

void write_null(struct writer *w);
void write_flag(struct writer *w, bool value);
void write_ubyte(struct writer *w, uint8_t value);
void write_uint(struct writer *w, uint32_t value);  /* always five octets, so that it can be patched */
void write_zero(struct writer *w);                  /* a uint in its shortest form */
void write_ushort(struct writer *w, uint16_t value);
void write_string(struct writer *w, const char *value);
void write_symbol(struct writer *w, const char *value);
void write_binary(struct writer *w, const void *octets, uint8_t length);
void write_terminus(struct writer *w, uint8_t code, const char *address); /* NULL: no fields */
void write_state(struct writer *w, uint8_t code);

/* Begins a frame at `frame`; fields go to the writer. The end returns the octet behind the frame. */
struct writer begin_frame(uint8_t *frame, uint8_t type, uint8_t code);
uint8_t *end_frame(uint8_t *frame, struct writer *w);
void put32(uint8_t *at, uint32_t value);
uint32_t get32(const uint8_t *at);

/* A field of a performative, as far as a load looks at it. */
struct field {
    bool is_given;
    uint64_t number;      /* unsigned numbers and booleans; of a described list its descriptor */
};

struct performative {
    uint8_t type;
    uint8_t code;         /* 0: an empty frame */
    int count;
    struct field fields[MOST_FIELDS];
    const uint8_t *payload;
    const uint8_t *end;
};

/* Reads the frame of `size` octets at `frame`; false if it cannot be read. */
bool read_frame(const uint8_t *frame, uint32_t size, struct performative *p);

/* Returns the field's number, or `otherwise` if it is absent. */
uint64_t number_of(const struct performative *p, int field, uint64_t otherwise);

#endif
