#include "wire.h"

#include <string.h>

void put32(uint8_t *at, uint32_t value) {
    value = __builtin_bswap32(value);
    memcpy(at, &value, 4);
}

uint32_t get32(const uint8_t *at) {
    uint32_t value;
    memcpy(&value, at, 4);
    return __builtin_bswap32(value);
}

/* --- writing ------------------------------------------------------------------------------------ */

void write_null(struct writer *w) {
    *w->at++ = 0x40;
    w->count++;
}

void write_flag(struct writer *w, bool value) {
    *w->at++ = value ? 0x41 : 0x42;
    w->count++;
}

void write_ubyte(struct writer *w, uint8_t value) {
    *w->at++ = 0x50;
    *w->at++ = value;
    w->count++;
}

void write_zero(struct writer *w) {
    *w->at++ = 0x43;
    w->count++;
}

void write_ushort(struct writer *w, uint16_t value) {
    *w->at++ = 0x60;
    *w->at++ = (uint8_t)(value >> 8);
    *w->at++ = (uint8_t)value;
    w->count++;
}

void write_uint(struct writer *w, uint32_t value) {
    *w->at++ = 0x70;
    put32(w->at, value);
    w->at += 4;
    w->count++;
}

static void write_variable(struct writer *w, uint8_t constructor, const void *octets, uint8_t length) {
    *w->at++ = constructor;
    *w->at++ = length;
    memcpy(w->at, octets, length);
    w->at += length;
    w->count++;
}

void write_string(struct writer *w, const char *value) {
    write_variable(w, 0xa1, value, (uint8_t)strlen(value));
}

void write_symbol(struct writer *w, const char *value) {
    write_variable(w, 0xa3, value, (uint8_t)strlen(value));
}

void write_binary(struct writer *w, const void *octets, uint8_t length) {
    write_variable(w, 0xa0, octets, length);
}

void write_terminus(struct writer *w, uint8_t code, const char *address) {
    uint8_t length = address ? (uint8_t)strlen(address) : 0;
    *w->at++ = 0x00;
    *w->at++ = 0x53;
    *w->at++ = code;
    w->count++;
    if (!address) {
        *w->at++ = 0x45;
        return;
    }
    *w->at++ = 0xc0;
    *w->at++ = length + 3;
    *w->at++ = 1;
    struct writer inner = {w->at, 0};
    write_string(&inner, address);
    w->at = inner.at;
}

void write_state(struct writer *w, uint8_t code) {
    const uint8_t octets[] = {0x00, 0x53, code, 0x45};
    memcpy(w->at, octets, sizeof octets);
    w->at += sizeof octets;
    w->count++;
}

struct writer begin_frame(uint8_t *frame, uint8_t type, uint8_t code) {
    const uint8_t head[] = {0, 0, 0, 0, 2, type, 0, 0, 0x00, 0x53, code, 0xc0, 0, 0};
    memcpy(frame, head, sizeof head);
    return (struct writer){frame + sizeof head, 0};
}

uint8_t *end_frame(uint8_t *frame, struct writer *w) {
    frame[12] = (uint8_t)(w->at - frame - 13);
    frame[13] = (uint8_t)w->count;
    put32(frame, (uint32_t)(w->at - frame));
    return w->at;
}

/* --- reading ------------------------------------------------------------------------------------ */

/* Reads one value; returns what is behind it, NULL if it does not fit or is not known. */
static const uint8_t *read_value(const uint8_t *at, const uint8_t *end, struct field *field) {
    size_t left = (size_t)(end - at);
    if (left < 1) return NULL;
    uint8_t code = *at++;
    left--;
    field->is_given = code != 0x40;
    field->number = 0;
    if (code == 0x00) { /* described: the descriptor is what tells */
        struct field descriptor, value;
        at = read_value(at, end, &descriptor);
        at = at ? read_value(at, end, &value) : NULL;
        field->number = descriptor.number;
        return at;
    }
    size_t width = 0;
    switch (code >> 4) {
    case 0x4: field->number = code == 0x41; break;
    case 0x5: width = 1; break;
    case 0x6: width = 2; break;
    case 0x7: width = 4; break;
    case 0x8: width = 8; break;
    case 0x9: width = 16; break;
    case 0xa: case 0xc: case 0xe:
        if (left < 1) return NULL;
        width = 1 + (size_t)at[0];
        break;
    case 0xb: case 0xd: case 0xf:
        if (left < 4) return NULL;
        width = 4 + (size_t)get32(at);
        break;
    default: return NULL;
    }
    if (left < width) return NULL;
    if (code >> 4 >= 0x5 && code >> 4 <= 0x8)
        for (size_t i = 0; i < width; i++) field->number = field->number << 8 | at[i];
    return at + width;
}

bool read_frame(const uint8_t *frame, uint32_t size, struct performative *p) {
    const uint8_t *at = frame + 4 * frame[4];
    p->end = frame + size;
    p->type = frame[5];
    p->code = 0;
    p->count = 0;
    if (at == p->end) return true;
    struct field descriptor;
    if (at > p->end || *at++ != 0x00 || !(at = read_value(at, p->end, &descriptor))) return false;
    p->code = (uint8_t)descriptor.number;
    const uint8_t *list_end = at;
    struct field list;
    if (!(list_end = read_value(at, p->end, &list))) return false;
    p->payload = list_end;
    if (*at == 0x45 || *at == 0xc1 || *at == 0xd1) return true; /* nobody looks into maps */
    if (*at != 0xc0 && *at != 0xd0) return false;
    uint32_t count = *at == 0xc0 ? at[2] : get32(at + 5);
    at += *at == 0xc0 ? 3 : 9;
    p->count = count > MOST_FIELDS ? MOST_FIELDS : (int)count;
    for (int i = 0; i < p->count; i++)
        if (!(at = read_value(at, list_end, &p->fields[i]))) return false;
    return true;
}

uint64_t number_of(const struct performative *p, int field, uint64_t otherwise) {
    return field < p->count && p->fields[field].is_given ? p->fields[field].number : otherwise;
}
