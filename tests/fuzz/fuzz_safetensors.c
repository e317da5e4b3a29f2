/* SPDX-License-Identifier: MIT */
/*
 * safetensors files. An input that begins with '{' is a header, before a buffer as long as its
 * largest number; any other one is the whole file. What is opened must be sound, and the reader
 * must agree with the rules put down a second time, over a tree of JSON values.
 */
#include "fuzz/fuzz.h"

#include "io/safetensors.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define BUFFER_MAX 4096

/* ---- the rules once more ---- */

struct piece {
    int64_t begin, end;
};

static int compare_pieces(const void *left, const void *right) {
    const struct piece *a = left, *b = right;
    if (a->begin != b->begin) return a->begin < b->begin ? -1 : 1;
    return a->end < b->end ? -1 : a->end > b->end;
}

static uint32_t bits_of(const char *dtype) {
    for (size_t i = 0; i < WEIR__SAFETENSORS_DTYPES; i++) {
        if (strcmp(weir__safetensors_dtypes[i].name, dtype) == 0)
            return weir__safetensors_dtypes[i].bits;
    }
    return 0;
}

static bool is_natural(const json_t *value) {
    return json_is_integer(value) && json_integer_value(value) >= 0;
}

/* In double precision: what is near 2^64 is far beyond any buffer here. */
static bool is_tensor(const json_t *entry, int64_t buffer, struct piece *piece) {
    const json_t *shape = json_object_get(entry, "shape");
    const json_t *offsets = json_object_get(entry, "data_offsets");
    const json_t *dtype = json_object_get(entry, "dtype");
    if (json_object_size(entry) != 3 || !json_is_array(shape) || json_array_size(shape) > 8 ||
        json_array_size(offsets) != 2 || !json_is_string(dtype))
        return false;
    double bits = bits_of(json_string_value(dtype)), running = 1;
    for (size_t i = 0; i < json_array_size(shape); i++) {
        const json_t *size = json_array_get(shape, i);
        if (!is_natural(size)) return false;
        running *= (double)json_integer_value(size);
        if (running >= 0x1p64) return false;
    }
    if (!is_natural(json_array_get(offsets, 0)) || !is_natural(json_array_get(offsets, 1)))
        return false;
    piece->begin = json_integer_value(json_array_get(offsets, 0));
    piece->end = json_integer_value(json_array_get(offsets, 1));
    return bits > 0 && piece->begin <= piece->end && piece->end <= buffer &&
           bits * running == 8 * (double)(piece->end - piece->begin);
}

static bool is_metadata(json_t *metadata) {
    const char *key;
    json_t *value;
    if (!json_is_object(metadata)) return false;
    json_object_foreach(metadata, key, value) {
        if (!json_is_string(value)) return false;
    }
    return true;
}

static bool covers(struct piece *pieces, size_t count, int64_t buffer) {
    int64_t expected = 0;
    if (count > 1) qsort(pieces, count, sizeof *pieces, compare_pieces);
    for (size_t i = 0; i < count; i++) {
        if (pieces[i].begin != expected) return false;
        expected = pieces[i].end;
    }
    return expected == buffer;
}

static bool is_sound(json_t *header, int64_t buffer) {
    struct piece *pieces = calloc(json_object_size(header) + 1, sizeof *pieces);
    const char *key;
    json_t *value;
    size_t count = 0;
    bool sound = json_is_object(header);
    FUZZ_CHECK(pieces);
    json_object_foreach(header, key, value) {
        if (strcmp(key, "__metadata__") == 0)
            sound = sound && is_metadata(value);
        else
            sound = sound && is_tensor(value, buffer, &pieces[count++]);
    }
    sound = sound && covers(pieces, count, buffer);
    free(pieces);
    return sound;
}

/* 1 or 0; -1 where the tree cannot tell: it takes -0 for an integer. */
static int judge(const uint8_t *file, size_t count) {
    uint64_t length = 0;
    if (count < 8) return 0;
    memcpy(&length, file, 8);
    if (length == 0 || length > count - 8 || file[8] != '{') return 0;
    if (memmem(file + 8, (size_t)length, "-0", 2) != NULL) return -1;
    json_t *header =
        json_loadb((const char *)file + 8, (size_t)length, JSON_REJECT_DUPLICATES, NULL);
    int verdict = header && is_sound(header, (int64_t)(count - 8 - length));
    json_decref(header);
    return verdict;
}

/* ---- the reader ---- */

static void use(const struct weir__safetensors *file) {
    uint64_t sum = 0;
    char text[96];
    for (uint32_t i = 0; i < weir__safetensors_count(file); i++) {
        const struct weir__safetensor *tensor = weir__safetensors_get(file, i);
        FUZZ_CHECK(weir__safetensors_find(file, tensor->name) == tensor);
        sum += fuzz_touch(tensor->data, tensor->bytes) +
               strlen(weir__safetensor_text(tensor, text, sizeof text));
    }
    const char *step = weir__safetensors_metadata(file, "step");
    sum += step ? strlen(step) : 0;
    FUZZ_CHECK(sum < UINT64_MAX);
}

static void read_file(const uint8_t *bytes, size_t count) {
    struct weir__safetensors *file = NULL;
    struct weir__io *io = fuzz_begin(bytes, count);
    int status = weir__safetensors_open(io, "file", NULL, &file);
    int verdict = judge(bytes, count);
    FUZZ_CHECK(status == WEIR_OK || status == WEIR_ERR_FORMAT || status == WEIR_ERR_UNSUPPORTED);
    FUZZ_CHECK(status == io->error->status);
    FUZZ_CHECK(verdict == -1 || verdict == (status == WEIR_OK));
    if (status == WEIR_OK) use(file);
    weir__safetensors_close(file);
    fuzz_end(8192);
}

/* The largest number in the text, as far as buffers go. */
static size_t largest_number(const uint8_t *data, size_t count) {
    size_t largest = 0, number = 0;
    for (size_t i = 0; i < count; i++) {
        bool digit = data[i] >= '0' && data[i] <= '9';
        number = digit && number <= BUFFER_MAX ? number * 10 + (size_t)(data[i] - '0') : 0;
        if (number > largest && number <= BUFFER_MAX) largest = number;
    }
    return largest;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t count) {
    if (count == 0 || data[0] != '{') {
        read_file(data, count);
        return 0;
    }
    uint64_t length = count;
    size_t buffer = largest_number(data, count);
    uint8_t *file = calloc(1, 8 + count + buffer);
    FUZZ_CHECK(file);
    memcpy(file, &length, 8);
    memcpy(file + 8, data, count);
    read_file(file, 8 + count + buffer);
    free(file);
    return 0;
}
