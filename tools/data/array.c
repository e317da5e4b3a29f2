/* SPDX-License-Identifier: MIT */
/* Numbers of array files: fetched in pieces that fit the stack, turned round where the file is
 * big-endian, converted. */
#include "data/array.h"

#include "data/idx.h"
#include "data/npy.h"
#include "data/npz.h"

#include <stdio.h>
#include <string.h>

#define PIECE_BYTES 16384u

/* ---- types ---- */

static const struct {
    size_t bytes;
    const char *name;
} numbers[] = {
#define NUMBER_ROW(name, bytes, text) [WEIR__NUMBER_##name] = {bytes, text},
    WEIR__NUMBER_MAP(NUMBER_ROW)
#undef NUMBER_ROW
};
_Static_assert(WEIR__COUNT_OF(numbers) == WEIR__NUMBER_COUNT, "every type has a row");

size_t weir__number_bytes(enum weir__number number) {
    assert(number < WEIR__NUMBER_COUNT);
    return numbers[number].bytes;
}

const char *weir__number_name(enum weir__number number) {
    assert(number < WEIR__NUMBER_COUNT);
    return numbers[number].name;
}

bool weir__number_is_real(enum weir__number number) {
    return number == WEIR__NUMBER_F32 || number == WEIR__NUMBER_F64;
}

/* ---- opening ---- */

const char *weir__array_text(const struct weir__array *array, char *text, size_t capacity) {
    assert(capacity > 0);
    int used = snprintf(text, capacity, "%s [", weir__number_name(array->number));
    for (uint32_t i = 0; i < array->rank && used >= 0 && (size_t)used < capacity; i++) {
        used += snprintf(text + used, capacity - (size_t)used, "%s%lld", i ? ", " : "",
                         (long long)array->shape[i]);
    }
    if (used >= 0 && (size_t)used < capacity) {
        snprintf(text + used, capacity - (size_t)used, "]");
    }
    return text;
}

int weir__array_check_size(const struct weir__io *io, struct weir__array *array) {
    size_t count = 1, bytes = 0;
    char text[160];
    const char *path = array->source.path;
    uint64_t there = array->source.bytes - array->offset;
    assert(array->offset <= array->source.bytes && array->rank <= WEIR__ARRAY_RANK_MAX);
    for (uint32_t i = 0; i < array->rank; i++) {
        assert(array->shape[i] >= 0);
        if (!weir__multiply(count, (size_t)array->shape[i], &count)) {
            return weir__source_refuse(io, path, WEIR_ERR_FORMAT, "the size of %s overflows",
                                       weir__array_text(array, text, sizeof(text)));
        }
    }
    if (!weir__multiply(count, weir__number_bytes(array->number), &bytes)) {
        return weir__source_refuse(io, path, WEIR_ERR_FORMAT, "the size of %s overflows",
                                   weir__array_text(array, text, sizeof(text)));
    }
    if (bytes != there) {
        return weir__source_refuse(io, path, WEIR_ERR_FORMAT,
                                   "%s has %zu byte%s, but %llu follow the header: the file is %s",
                                   weir__array_text(array, text, sizeof(text)), bytes,
                                   weir__s(bytes), (unsigned long long)there,
                                   there < bytes ? "cut" : "longer than its array");
    }
    array->count = count;
    return WEIR_OK;
}

static int open_source(const struct weir__io *io, const char *path, struct weir__source *source) {
    return weir__npz_archive(path) > 0 ? weir__npz_open(io, path, source)
                                       : weir__source_open(io, path, source);
}

/* IDX has no magic but two zeros, which no other file of data begins with. */
int weir__array_open_by(const struct weir__io *io, const char *path, weir__array_read_fn *read,
                        struct weir__array *array) {
    struct weir__array made = {.big_endian = false};
    int status = open_source(io, path, &made.source);
    if (status) {
        return status;
    }
    status = read(io, &made);
    if (!status) {
        status = weir__array_check_size(io, &made);
    }
    if (status) {
        weir__array_close(&made);
        return status;
    }
    *array = made;
    return WEIR_OK;
}

int weir__array_open(const struct weir__io *io, const char *path, struct weir__array *array) {
    struct weir__source source;
    unsigned char first[2] = {0};
    int status = open_source(io, path, &source);
    if (status) {
        return status;
    }
    size_t bytes = source.bytes < sizeof(first) ? (size_t)source.bytes : sizeof(first);
    status = weir__source_read(&source, io, 0, first, bytes);
    weir__source_close(&source);
    if (status) {
        return status;
    }
    if (bytes == sizeof(first) && first[0] == 0 && first[1] == 0) {
        return weir__idx_open(io, path, array);
    }
    if (bytes == sizeof(first) && first[0] == 0x93) {
        return weir__npy_open(io, path, array);
    }
    if (bytes == sizeof(first) && first[0] == 0x1f && first[1] == 0x8b) {
        return weir__source_refuse(io, path, WEIR_ERR_FORMAT,
                                   "it is compressed: unpack it by 'gunzip' first");
    }
    return weir__source_refuse(io, path, WEIR_ERR_FORMAT,
                               "neither a .npy file, which begins with \\x93NUMPY, nor an IDX "
                               "file, which begins with two zero bytes");
}

void weir__array_close(struct weir__array *array) {
    weir__source_close(&array->source);
    *array = (struct weir__array){0};
}

/* ---- reading ---- */

static void turn_round(unsigned char *piece, size_t bytes, size_t width) {
    for (size_t i = 0; i < bytes; i += width) {
        for (size_t low = i, high = i + width - 1; low < high; low++, high--) {
            unsigned char byte = piece[low];
            piece[low] = piece[high];
            piece[high] = byte;
        }
    }
}

/* A piece of little-endian numbers, whose address says nothing, as another type. */
#define CONVERT_AS(type, to, value)                                                                \
    for (size_t i = 0; i < count; i++) {                                                           \
        type v;                                                                                    \
        memcpy(&v, piece + i * sizeof(v), sizeof(v));                                              \
        out[i] = (to)(value);                                                                      \
    }                                                                                              \
    break

#define CONVERT_INTEGERS(to)                                                                       \
    case WEIR__NUMBER_BOOL: CONVERT_AS(uint8_t, to, v != 0);                                       \
    case WEIR__NUMBER_U8: CONVERT_AS(uint8_t, to, v);                                              \
    case WEIR__NUMBER_I8: CONVERT_AS(int8_t, to, v);                                               \
    case WEIR__NUMBER_I16: CONVERT_AS(int16_t, to, v);                                             \
    case WEIR__NUMBER_I32: CONVERT_AS(int32_t, to, v);                                             \
    case WEIR__NUMBER_I64: CONVERT_AS(int64_t, to, v)

static void to_f32(const unsigned char *piece, size_t count, enum weir__number number, float *out) {
    switch (number) {
        CONVERT_INTEGERS(float);
    case WEIR__NUMBER_F32: CONVERT_AS(float, float, v);
    case WEIR__NUMBER_F64: CONVERT_AS(double, float, v);
    default: assert(false);
    }
}

static void to_f64(const unsigned char *piece, size_t count, enum weir__number number,
                   double *out) {
    switch (number) {
        CONVERT_INTEGERS(double);
    case WEIR__NUMBER_F32: CONVERT_AS(float, double, v);
    case WEIR__NUMBER_F64: CONVERT_AS(double, double, v);
    default: assert(false);
    }
}

static void to_i64(const unsigned char *piece, size_t count, enum weir__number number,
                   int64_t *out) {
    switch (number) {
        CONVERT_INTEGERS(int64_t);
    default: assert(false);
    }
}

static void convert(const unsigned char *piece, size_t count, enum weir__number number,
                    enum weir__number to, unsigned char *out) {
    switch (to) {
    case WEIR__NUMBER_F32: to_f32(piece, count, number, (float *)out); break;
    case WEIR__NUMBER_F64: to_f64(piece, count, number, (double *)out); break;
    default: to_i64(piece, count, number, (int64_t *)out);
    }
}

static int read_numbers(const struct weir__array *array, const struct weir__io *io, uint64_t first,
                        uint64_t count, enum weir__number to, void *out) {
    unsigned char piece[PIECE_BYTES];
    size_t width = weir__number_bytes(array->number), made = 0;
    assert(first <= array->count && count <= array->count - first);
    while (made < count) {
        uint64_t left = count - made;
        size_t some = left < PIECE_BYTES / width ? (size_t)left : PIECE_BYTES / width;
        int status = weir__source_read(&array->source, io, array->offset + (first + made) * width,
                                       piece, some * width);
        if (status) {
            return status;
        }
        if (array->big_endian) {
            turn_round(piece, some * width, width);
        }
        convert(piece, some, array->number, to,
                (unsigned char *)out + made * weir__number_bytes(to));
        made += some;
    }
    return WEIR_OK;
}

int weir__array_read_f32(const struct weir__array *array, const struct weir__io *io, uint64_t first,
                         uint64_t count, float *out) {
    return read_numbers(array, io, first, count, WEIR__NUMBER_F32, out);
}

int weir__array_read_f64(const struct weir__array *array, const struct weir__io *io, uint64_t first,
                         uint64_t count, double *out) {
    return read_numbers(array, io, first, count, WEIR__NUMBER_F64, out);
}

int weir__array_read_i64(const struct weir__array *array, const struct weir__io *io, uint64_t first,
                         uint64_t count, int64_t *out) {
    assert(!weir__number_is_real(array->number));
    return read_numbers(array, io, first, count, WEIR__NUMBER_I64, out);
}
