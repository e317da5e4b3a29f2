/* SPDX-License-Identifier: MIT */
/*
 * The two messages, of tensorflow/core/util/event.proto and framework/summary.proto:
 *
 *   Event    1 wall_time double, 2 step int64, 3 file_version string, 5 summary Summary,
 *            7 session_log SessionLog (1 status: 1 is START)
 *   Summary  1 value, repeated: 1 tag string, 2 simple_value float
 */
#include "cli/event_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <time.h>

enum { MESSAGE_MAX = 1024, VALUE_MAX = 96, VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 };

/* ---- records ---- */

uint32_t event_file_crc(const void *data, size_t bytes) {
    const unsigned char *at = data;
    uint32_t crc = UINT32_MAX;
    for (size_t i = 0; i < bytes; i++) {
        crc ^= at[i];
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
    }
    return ~crc;
}

/* A CRC of data that hold CRCs is a poor one, therefore they are masked. */
static uint32_t masked_crc(const void *data, size_t bytes) {
    uint32_t crc = event_file_crc(data, bytes);
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

/* Least significant byte first. */
static size_t put(unsigned char *to, uint64_t number, size_t bytes) {
    for (size_t i = 0; i < bytes; i++) to[i] = (unsigned char)(number >> (8 * i));
    return bytes;
}

static int write_record(const struct weir__io *io, int descriptor, const char *path,
                        const unsigned char *message, size_t bytes) {
    unsigned char record[MESSAGE_MAX + 16];
    assert(bytes <= MESSAGE_MAX);
    put(record, bytes, 8);
    put(record + 8, masked_crc(record, 8), 4);
    memcpy(record + 12, message, bytes);
    put(record + 12 + bytes, masked_crc(message, bytes), 4);
    if (weir__io_write(io, descriptor, record, bytes + 16) == 0) return WEIR_OK;
    return weir__io_fail(io, errno, "write", path);
}

/* ---- messages ---- */

static size_t put_varint(unsigned char *to, uint64_t number) {
    size_t bytes = 0;
    for (; number >= 128; number >>= 7) to[bytes++] = (unsigned char)(number | 128);
    to[bytes++] = (unsigned char)number;
    return bytes;
}

static size_t put_key(unsigned char *to, unsigned field, unsigned type) {
    return put_varint(to, field << 3 | type);
}

static size_t put_bytes(unsigned char *to, unsigned field, const void *data, size_t bytes) {
    size_t used = put_key(to, field, BYTES);
    used += put_varint(to + used, bytes);
    memcpy(to + used, data, bytes);
    return used + bytes;
}

/* When, and which step. */
static size_t begin_event(unsigned char *to, uint64_t step) {
    struct timespec now;
    uint64_t bits = 0;
    clock_gettime(CLOCK_REALTIME, &now);
    double seconds = (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
    memcpy(&bits, &seconds, sizeof bits);
    size_t used = put_key(to, 1, FIXED64);
    used += put(to + used, bits, 8);
    used += put_key(to + used, 2, VARINT);
    return used + put_varint(to + used, step);
}

static size_t put_scalar(unsigned char *to, const struct event_scalar *scalar) {
    unsigned char value[VALUE_MAX];
    float number = (float)scalar->value;
    uint32_t bits;
    assert(strlen(scalar->tag) <= 64);
    memcpy(&bits, &number, sizeof bits);
    size_t used = put_bytes(value, 1, scalar->tag, strlen(scalar->tag));
    used += put_key(value + used, 2, FIXED32);
    used += put(value + used, bits, 4);
    return put_bytes(to, 1, value, used);
}

int event_file_add(const struct weir__io *io, int descriptor, const char *path, uint64_t step,
                   const struct event_scalar *scalars, uint32_t count) {
    unsigned char summary[EVENT_SCALARS_MAX * VALUE_MAX], message[MESSAGE_MAX];
    size_t inner = 0;
    assert(count <= EVENT_SCALARS_MAX);
    for (uint32_t i = 0; i < count; i++) inner += put_scalar(summary + inner, &scalars[i]);
    size_t used = begin_event(message, step);
    used += put_bytes(message + used, 5, summary, inner);
    return write_record(io, descriptor, path, message, used);
}

int event_file_open(const struct weir__io *io, const char *path, uint64_t first_step) {
    static const char version[] = "brain.Event:2";
    static const unsigned char start[] = {1 << 3 | VARINT, 1};
    unsigned char message[MESSAGE_MAX];
    int descriptor = weir__io_open(io, path, O_WRONLY | O_CREAT | O_EXCL | O_APPEND, 0666);
    if (descriptor < 0) {
        weir__io_fail(io, errno, "make", path);
        return -1;
    }
    size_t used = begin_event(message, 0);
    used += put_bytes(message + used, 3, version, sizeof version - 1);
    int status = write_record(io, descriptor, path, message, used);
    if (status == WEIR_OK) {
        used = begin_event(message, first_step);
        used += put_bytes(message + used, 7, start, sizeof start);
        status = write_record(io, descriptor, path, message, used);
    }
    if (status == WEIR_OK) return descriptor;
    weir__io_calls_of(io)->close(descriptor);
    return -1;
}
