/* SPDX-License-Identifier: MIT */
/*
 * Goal: no malformed file is taken for a tensor, and what is written is what any other reader of
 * the format expects, byte for byte. Method: the golden bytes are those that the reference
 * implementation (safetensors 0.8.0, save_file) writes for the same tensors; every system call and
 * allocation fails in turn. The format's rules are broken one by one in malformed_safetensors.c.
 */
#include "harness.h"
#include "io/safetensors.h"
#include "io/io_faults.h"
#include "io/io_memory.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct place {
    char path[512];
    struct weir_error error;
    struct weir__io io;
};

static void place_init(struct place *place) {
    memset(place, 0, sizeof(*place));
    snprintf(place->path, sizeof(place->path), "%s/model.safetensors", test_temporary_directory());
    place->io = (struct weir__io){test_allocator(), io_faults_calls(), &place->error};
    io_faults_at(0, false, IO_FAULT_FAIL, 0);
}

/* A file of the given header and `bytes` zeros; the length says `length`. */
static void make(const struct place *place, uint64_t length, const char *header,
                 size_t header_bytes, size_t bytes) {
    FILE *file = fopen(place->path, "wb");
    if (!file) {
        TEST_FAIL("cannot write %s", place->path);
        return;
    }
    for (int i = 0; i < 8; i++) fputc((int)(length >> (8 * i) & 0xFF), file);
    fwrite(header, 1, header_bytes, file);
    for (size_t i = 0; i < bytes; i++) fputc(0, file);
    fclose(file);
}

static void test_limits_can_be_lower(void) {
    struct place place;
    struct weir__safetensors *file = NULL;
    struct weir__safetensors_limits limits = {.header_bytes = 3};
    place_init(&place);
    make(&place, 4, "{}  ", 4, 0);
    CHECK_STATUS(weir__safetensors_open(&place.io, place.path, &limits, &file), WEIR_ERR_FORMAT);
    CHECK_CONTAINS(place.error.message, "4 bytes, more than the limit of 3");
    limits.header_bytes = 4;
    CHECK_OK(weir__safetensors_open(&place.io, place.path, &limits, &file));
    weir__safetensors_close(file);
}

static void test_names_may_be_any_text(void) {
    static const char header[] =
        "{\"\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]},"
        "\"\\u00e9\\\\\\/\\\"\\b\\f\\n\\r\\t\\uD83D\\ude00\":"
        "{\"data_offsets\":[0,0],\"shape\":[ 0 , 7 ],\"dt\\u0079pe\":\"U8\"},"
        "\"../\xe2\x82\xac/"
        "\xf0\x9f\x98\x80\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}";
    struct place place;
    struct weir__safetensors *file = NULL;
    place_init(&place);
    make(&place, strlen(header), header, strlen(header), 0);
    CHECK_OK(weir__safetensors_open(&place.io, place.path, NULL, &file));
    EXPECT(weir__safetensors_find(file, "") != NULL);
    EXPECT(weir__safetensors_find(file, "\xc3\xa9\\/\"\b\f\n\r\t\xf0\x9f\x98\x80") != NULL);
    EXPECT(weir__safetensors_find(file, "../\xe2\x82\xac/\xf0\x9f\x98\x80") != NULL);
    EXPECT_EQ_UINT(weir__safetensors_count(file), 3);
    weir__safetensors_close(file);
}

static void test_own_limits_are_not_called_malformed(void) {
    struct place place;
    struct weir__safetensors *file = NULL;
    struct weir__safetensors_limits limits = {.tensors = 1};
    static const char two[] = "{\"a\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]},"
                              "\"b\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}";
    place_init(&place);
    make(&place, strlen(two), two, strlen(two), 0);
    CHECK_STATUS(weir__safetensors_open(&place.io, place.path, &limits, &file),
                 WEIR_ERR_UNSUPPORTED);
    CHECK_CONTAINS(place.error.message, "more tensors than the limit of 1");
    CHECK_OK(weir__safetensors_open(&place.io, place.path, NULL, &file));
    weir__safetensors_close(file);
}

static void test_unknown_to_weir_but_valid_dtypes_are_opaque(void) {
    static const char header[] =
        "{\"a\":{\"dtype\":\"F8_E4M3\",\"shape\":[2],\"data_offsets\":[0,2]},"
        "\"b\":{\"dtype\":\"F4\",\"shape\":[2,3],\"data_offsets\":[2,5]},"
        "\"c\":{\"dtype\":\"U16\",\"shape\":[],\"data_offsets\":[5,7]}} \n ";
    struct place place;
    struct weir__safetensors *file = NULL;
    place_init(&place);
    make(&place, strlen(header), header, strlen(header), 7);
    CHECK_OK(weir__safetensors_open(&place.io, place.path, NULL, &file));
    EXPECT_EQ_UINT(weir__safetensors_count(file), 3);
    for (uint32_t i = 0; i < 3; i++) {
        EXPECT_EQ_INT(weir__safetensors_get(file, i)->dtype, WEIR_DTYPE_COUNT);
    }
    EXPECT_EQ_STR(weir__safetensors_get(file, 1)->dtype_name, "F4");
    EXPECT_EQ_UINT(weir__safetensors_get(file, 1)->bytes, 3);
    weir__safetensors_close(file);
}

static void test_every_dtype_of_weir_has_its_row(void) {
    int found[WEIR_DTYPE_COUNT] = {0};
    for (size_t i = 0; i < WEIR__SAFETENSORS_DTYPES; i++) {
        const struct weir__safetensors_dtype *row = &weir__safetensors_dtypes[i];
        if (row->dtype == WEIR_DTYPE_COUNT) continue;
        found[row->dtype]++;
        CHECK_EQ_UINT(row->bits, 8 * weir_dtype_bytes(row->dtype));
#define ROW(dtype_, bytes_, text_, file_)                                                          \
    if (row->dtype == WEIR_##dtype_) CHECK_EQ_STR(row->name, file_);
        WEIR_DTYPE_MAP(ROW)
#undef ROW
    }
    for (int i = 0; i < WEIR_DTYPE_COUNT; i++) CHECK_EQ_INT(found[i], 1);
}

/* ---- writing ---- */

static const float b_weight[] = {1.0f, 2.0f, 3.0f, -4.0f}, scalar = 2.5f;
static const int64_t a_data = 7;
static const int32_t i_data = -1;
static const uint16_t h_data = 0x3fc0, g_data = 0x3e00;
static const uint8_t z_data[] = {1, 0}, m_data[] = {1, 2, 3};

/* In no order at all; the writer has its own. */
static const struct weir__safetensors_item items[] = {
    {.name = "m", .dtype = WEIR_U8, .rank = 1, .shape = {3}, .data = m_data},
    {.name = "b.weight", .dtype = WEIR_F32, .rank = 2, .shape = {2, 2}, .data = b_weight},
    {.name = "s", .dtype = WEIR_F32, .data = &scalar},
    {.name = "z\xc3\xa9\"", .dtype = WEIR_BOOL, .rank = 1, .shape = {2}, .data = z_data},
    {.name = "e", .dtype = WEIR_F64, .rank = 2, .shape = {0, 3}},
    {.name = "i", .dtype = WEIR_I32, .rank = 1, .shape = {1}, .data = &i_data},
    {.name = "g", .dtype = WEIR_F16, .rank = 1, .shape = {1}, .data = &g_data},
    {.name = "h", .dtype = WEIR_BF16, .rank = 1, .shape = {1}, .data = &h_data},
    {.name = "a", .dtype = WEIR_I64, .rank = 1, .shape = {1}, .data = &a_data},
};
#define ITEMS ((uint32_t)(sizeof(items) / sizeof(items[0])))
static const struct weir__safetensors_text step = {"step", "12"};

/* What the reference writes for the same tensors and metadata. */
static const char golden[] =
    "\x18\x02\0\0\0\0\0\0"
    "{\"__metadata__\":{\"step\":\"12\"},"
    "\"a\":{\"dtype\":\"I64\",\"shape\":[1],\"data_offsets\":[0,8]},"
    "\"e\":{\"dtype\":\"F64\",\"shape\":[0,3],\"data_offsets\":[8,8]},"
    "\"b.weight\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[8,24]},"
    "\"s\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[24,28]},"
    "\"i\":{\"dtype\":\"I32\",\"shape\":[1],\"data_offsets\":[28,32]},"
    "\"h\":{\"dtype\":\"BF16\",\"shape\":[1],\"data_offsets\":[32,34]},"
    "\"g\":{\"dtype\":\"F16\",\"shape\":[1],\"data_offsets\":[34,36]},"
    "\"m\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[36,39]},"
    "\"z\xc3\xa9\\\"\":{\"dtype\":\"BOOL\",\"shape\":[2],\"data_offsets\":[39,41]}} "
    "\x07\0\0\0\0\0\0\0"
    "\0\0\x80\x3f\0\0\0\x40\0\0\x40\x40\0\0\x80\xc0"
    "\0\0\x20\x40\xff\xff\xff\xff\xc0\x3f\0\x3e\1\2\3\1\0";
#define GOLDEN_BYTES (sizeof(golden) - 1)

static void test_written_bytes_are_the_references(void) {
    struct place place;
    place_init(&place);
    CHECK_OK(weir__safetensors_save(&place.io, place.path, items, ITEMS, &step, 1));
    CHECK(io_file_is(place.path, golden, GOLDEN_BYTES));
    static const char small[] = "8\0\0\0\0\0\0\0{\"x\":{\"dtype\":\"F32\",\"shape\":[2],"
                                "\"data_offsets\":[0,8]}}  \0\0\x80?\0\0\0@";
    struct weir__safetensors_item x = {
        .name = "x", .dtype = WEIR_F32, .rank = 1, .shape = {2}, .data = b_weight};
    CHECK_OK(weir__safetensors_save(&place.io, place.path, &x, 1, NULL, 0));
    CHECK(io_file_is(place.path, small, sizeof(small) - 1));
}

static void test_order_given_does_not_matter(void) {
    static const struct weir__safetensors_text texts[] = {{"b", "2"}, {"a", "1"}, {"c", ""}};
    struct weir__safetensors_text turned[] = {texts[2], texts[1], texts[0]};
    struct weir__safetensors_item reversed[ITEMS];
    struct place place;
    struct weir__bytes bytes;
    for (uint32_t i = 0; i < ITEMS; i++) reversed[i] = items[ITEMS - 1 - i];
    place_init(&place);
    CHECK_OK(weir__safetensors_save(&place.io, place.path, items, ITEMS, texts, 3));
    CHECK_OK(weir__file_read(&place.io, place.path, 10000, &bytes));
    EXPECT_STATUS(weir__safetensors_save(&place.io, place.path, reversed, ITEMS, turned, 3),
                  WEIR_OK);
    EXPECT(io_file_is(place.path, bytes.data, bytes.count));
    weir__bytes_release(test_allocator(), &bytes);
}

static void test_what_is_written_is_read_back(void) {
    struct place place;
    struct weir__safetensors *file = NULL;
    char text[64];
    place_init(&place);
    CHECK_OK(weir__safetensors_save(&place.io, place.path, items, ITEMS, &step, 1));
    CHECK_OK(weir__safetensors_open(&place.io, place.path, NULL, &file));
    EXPECT_EQ_UINT(weir__safetensors_count(file), ITEMS);
    for (uint32_t i = 0; i < ITEMS; i++) {
        const struct weir__safetensor *tensor = weir__safetensors_find(file, items[i].name);
        if (!EXPECT(tensor)) continue;
        EXPECT_EQ_STR(tensor->name, items[i].name);
        EXPECT_EQ_INT(tensor->dtype, items[i].dtype);
        EXPECT_EQ_UINT(tensor->rank, items[i].rank);
        EXPECT_EQ_BYTES(tensor->shape, items[i].shape, sizeof(tensor->shape));
        if (tensor->bytes > 0) EXPECT_EQ_BYTES(tensor->data, items[i].data, tensor->bytes);
        EXPECT_EQ_UINT((uintptr_t)tensor->data % weir_dtype_bytes(tensor->dtype), 0);
    }
    EXPECT_EQ_PTR(weir__safetensors_find(file, "none"), NULL);
    EXPECT_EQ_PTR(weir__safetensors_find(file, "__metadata__"), NULL);
    EXPECT_EQ_STR(weir__safetensors_metadata(file, "step"), "12");
    EXPECT_EQ_STR(weir__safetensors_metadata(file, "none"), NULL);
    EXPECT_EQ_STR(weir__safetensor_text(weir__safetensors_find(file, "b.weight"), text, 64),
                  "F32 [2, 2]");
    EXPECT_EQ_STR(weir__safetensor_text(weir__safetensors_find(file, "b.weight"), text, 7),
                  "F32 [2");
    weir__safetensors_close(file);
}

static void test_empty_file_is_valid(void) {
    struct place place;
    struct weir__safetensors *file = NULL;
    place_init(&place);
    CHECK_OK(weir__safetensors_save(&place.io, place.path, NULL, 0, NULL, 0));
    CHECK(io_file_is(place.path, "\10\0\0\0\0\0\0\0{}      ", 16));
    CHECK_OK(weir__safetensors_open(&place.io, place.path, NULL, &file));
    EXPECT_EQ_UINT(weir__safetensors_count(file), 0);
    EXPECT_EQ_STR(weir__safetensors_metadata(file, "step"), NULL);
    EXPECT_EQ_PTR(weir__safetensors_find(file, "x"), NULL);
    weir__safetensors_close(file);
}

/* A file may be replaced while it is open: what was opened stays readable. */
static void test_open_file_survives_its_replacement(void) {
    struct place place;
    struct weir__safetensors *file = NULL;
    place_init(&place);
    CHECK_OK(weir__safetensors_save(&place.io, place.path, items, ITEMS, &step, 1));
    CHECK_OK(weir__safetensors_open(&place.io, place.path, NULL, &file));
    EXPECT_STATUS(weir__safetensors_save(&place.io, place.path, NULL, 0, NULL, 0), WEIR_OK);
    EXPECT_EQ_BYTES(weir__safetensors_find(file, "b.weight")->data, b_weight, sizeof(b_weight));
    weir__safetensors_close(file);
}

static int next_piece(void *context, size_t offset, const void **data, size_t *bytes) {
    size_t left = sizeof(b_weight) - offset;
    *data = (const char *)b_weight + offset;
    *bytes = left < 5 ? left : 5;
    return *(int *)context;
}

static void test_pieces_make_the_same_file(void) {
    struct place place;
    struct weir__safetensors_item pieces[ITEMS];
    int answer = 0;
    memcpy(pieces, items, sizeof(items));
    pieces[1].data = NULL;
    pieces[1].next = next_piece;
    pieces[1].context = &answer;
    place_init(&place);
    CHECK_OK(weir__safetensors_save(&place.io, place.path, pieces, ITEMS, &step, 1));
    CHECK(io_file_is(place.path, golden, GOLDEN_BYTES));
    answer = 42;
    CHECK_EQ_INT(weir__safetensors_save(&place.io, place.path, pieces, ITEMS, NULL, 0), 42);
    CHECK_CONTAINS(place.error.message, "'b.weight' could not be fetched");
    CHECK(io_file_is(place.path, golden, GOLDEN_BYTES));
}

static void not_written(const struct weir__safetensors_item *item, uint32_t count, int status,
                        const char *part) {
    struct place place;
    place_init(&place);
    EXPECT_STATUS(weir__safetensors_save(&place.io, place.path, item, count, NULL, 0), status);
    EXPECT_CONTAINS(place.error.message, part);
    EXPECT(access(place.path, F_OK) != 0);
}

static void test_wrong_items_are_not_written(void) {
    struct weir__safetensors_item x = {
        .name = "x", .dtype = WEIR_F32, .rank = 1, .shape = {2}, .data = b_weight};
    struct weir__safetensors_item wrong = x;
    wrong.name = NULL;
    not_written(&wrong, 1, WEIR_ERR_ARGUMENT, "is no name for a tensor");
    wrong.name = "__metadata__";
    not_written(&wrong, 1, WEIR_ERR_ARGUMENT, "is no name for a tensor");
    wrong.name = "\xff";
    not_written(&wrong, 1, WEIR_ERR_ARGUMENT, "is no name for a tensor");
    wrong = x, wrong.dtype = WEIR_DTYPE_COUNT;
    not_written(&wrong, 1, WEIR_ERR_ARGUMENT, "'x' has an unknown dtype");
    wrong = x, wrong.rank = 9;
    not_written(&wrong, 1, WEIR_ERR_ARGUMENT, "'x' has more than 8 dimensions");
    wrong = x, wrong.shape[0] = -1;
    not_written(&wrong, 1, WEIR_ERR_ARGUMENT, "'x' has a size below 0");
    wrong = x, wrong.shape[0] = INT64_MAX;
    not_written(&wrong, 1, WEIR_ERR_OVERFLOW, "'x' has a size that overflows");
    wrong = x, wrong.data = NULL;
    not_written(&wrong, 1, WEIR_ERR_ARGUMENT, "'x' comes without data");
    /* Twice by name, though their dtypes put others between them. */
    struct weir__safetensors_item twice[] = {items[1], items[8], items[1]};
    twice[2].dtype = WEIR_I32;
    not_written(twice, 3, WEIR_ERR_ARGUMENT, "'b.weight' is given twice");
}

static void test_wrong_metadata_is_not_written(void) {
    struct place place;
    place_init(&place);
    const struct weir__safetensors_text twice[] = {{"k", "1"}, {"j", "2"}, {"k", "3"}};
    CHECK_STATUS(weir__safetensors_save(&place.io, place.path, items, 1, twice, 3),
                 WEIR_ERR_ARGUMENT);
    CHECK_CONTAINS(place.error.message, "'k' of the metadata is given twice");
    const struct weir__safetensors_text bad = {"k", "\xff"};
    CHECK_STATUS(weir__safetensors_save(&place.io, place.path, items, 1, &bad, 1),
                 WEIR_ERR_ARGUMENT);
    CHECK_CONTAINS(place.error.message, "'k' of the metadata is not UTF-8");
}

/* ---- faults ---- */

static void save_under_faults(struct place *place, bool persistent, int number) {
    char partial[520];
    snprintf(partial, sizeof(partial), "%s.partial", place->path);
    for (uint64_t k = 1, fired = 1; fired && k < 100; k++) {
        int before = io_open_descriptors();
        CHECK_OK(weir__safetensors_save(&place->io, place->path, NULL, 0, NULL, 0));
        io_faults_at(k, persistent, IO_FAULT_FAIL, number);
        int status = weir__safetensors_save(&place->io, place->path, items, ITEMS, &step, 1);
        fired = io_faults_fired();
        io_faults_at(0, false, IO_FAULT_FAIL, 0);
        bool replaced = status == WEIR_OK || strstr(place->error.message, "is written");
        CHECK(replaced ? io_file_is(place->path, golden, GOLDEN_BYTES)
                       : io_file_is(place->path, "\10\0\0\0\0\0\0\0{}      ", 16));
        CHECK(status == WEIR_OK || status == WEIR_ERR_IO);
        CHECK(persistent || access(partial, F_OK) != 0);
        CHECK_EQ_INT(io_open_descriptors(), before);
    }
}

static void test_save_survives_any_failing_call(void) {
    struct place place;
    place_init(&place);
    save_under_faults(&place, false, EIO);
    save_under_faults(&place, true, ENOSPC);
}

static void test_open_survives_any_failing_call(void) {
    struct place place;
    place_init(&place);
    CHECK_OK(weir__safetensors_save(&place.io, place.path, items, ITEMS, &step, 1));
    for (uint64_t k = 1, fired = 1, failed = 0; fired; k++) {
        struct weir__safetensors *file = NULL;
        int before = io_open_descriptors();
        io_faults_at(k, false, IO_FAULT_FAIL, EIO);
        int status = weir__safetensors_open(&place.io, place.path, NULL, &file);
        fired = io_faults_fired();
        failed += status != WEIR_OK;
        if (status) {
            EXPECT_STATUS(status, WEIR_ERR_IO);
            EXPECT_CONTAINS(place.error.message, "Input/output error: check the disk");
            EXPECT_EQ_PTR(file, NULL);
        }
        weir__safetensors_close(file);
        CHECK_EQ_INT(io_open_descriptors(), before);
        CHECK(fired || failed == 3); /* open, fstat, map; a failing close loses nothing */
    }
}

static void test_save_and_open_survive_any_failing_allocation(void) {
    struct place place;
    place_init(&place);
    CHECK_OK(weir__safetensors_save(&place.io, place.path, items, ITEMS, &step, 1));
    for (uint64_t k = 1, fired = 1; fired; k++) {
        test_allocator_fail_at(k, k % 2);
        int status = weir__safetensors_save(&place.io, place.path, items, ITEMS, NULL, 0);
        fired = test_allocator_fired();
        test_allocator_fail_at(0, false);
        CHECK_STATUS(status, fired ? WEIR_ERR_OUT_OF_MEMORY : WEIR_OK);
        CHECK(!fired || io_file_is(place.path, golden, GOLDEN_BYTES));
    }
    for (uint64_t k = 1, fired = 1; fired; k++) {
        struct weir__safetensors *file = NULL;
        test_allocator_fail_at(k, k % 2);
        int status = weir__safetensors_open(&place.io, place.path, NULL, &file);
        fired = test_allocator_fired();
        test_allocator_fail_at(0, false);
        weir__safetensors_close(file);
        CHECK_STATUS(status, fired ? WEIR_ERR_OUT_OF_MEMORY : WEIR_OK);
    }
}

static void test_missing_file_folder_and_pipe_are_refused(void) {
    struct place place;
    struct weir__safetensors *file = NULL;
    place_init(&place);
    CHECK_STATUS(weir__safetensors_open(&place.io, "/none", NULL, &file), WEIR_ERR_IO);
    CHECK_CONTAINS(place.error.message, "cannot open /none: No such file or directory: check");
    CHECK_STATUS(weir__safetensors_open(&place.io, "/", NULL, &file), WEIR_ERR_IO);
    CHECK_CONTAINS(place.error.message, "Is a directory");
    CHECK_STATUS(weir__safetensors_open(&place.io, "/dev/null", NULL, &file), WEIR_ERR_IO);
    CHECK_CONTAINS(place.error.message, "/dev/null: not a file but a pipe or device");
    /* A pipe without a writer is not waited for. */
    CHECK_EQ_INT(mkfifo(place.path, 0600), 0);
    CHECK_STATUS(weir__safetensors_open(&place.io, place.path, NULL, &file), WEIR_ERR_IO);
    CHECK_CONTAINS(place.error.message, "not a file but a pipe or device");
}

/* Any one byte of a valid file changed: opened or refused, never out of bounds. */
static void test_changed_bytes_are_no_danger(void) {
    struct place place;
    place_init(&place);
    place.io.calls = io_memory_calls();
    for (int i = 0; i < 20000; i++) {
        char bytes[GOLDEN_BYTES];
        struct weir__safetensors *file = NULL;
        memcpy(bytes, golden, sizeof(bytes));
        size_t count = 1 + test_random_below(3);
        for (size_t j = 0; j < count; j++) {
            bytes[test_random_below(sizeof(bytes))] = (char)test_random_u64();
        }
        size_t length = test_random_below(4) ? sizeof(bytes) : test_random_below(sizeof(bytes));
        io_memory_file(bytes, length);
        int status = weir__safetensors_open(&place.io, place.path, NULL, &file);
        CHECK(status == WEIR_OK || status == WEIR_ERR_FORMAT || status == WEIR_ERR_UNSUPPORTED);
        for (uint32_t t = 0; !status && t < weir__safetensors_count(file); t++) {
            const struct weir__safetensor *tensor = weir__safetensors_get(file, t);
            unsigned sum = 0;
            for (size_t b = 0; b < tensor->bytes; b++) {
                sum += ((const unsigned char *)tensor->data)[b];
            }
            CHECK(sum <= 255 * tensor->bytes);
        }
        weir__safetensors_close(file);
    }
}

WEIR_TEST_SUITE(safetensors, TEST(limits_can_be_lower), TEST(names_may_be_any_text),
                TEST(own_limits_are_not_called_malformed),
                TEST(unknown_to_weir_but_valid_dtypes_are_opaque),
                TEST(every_dtype_of_weir_has_its_row), TEST(written_bytes_are_the_references),
                TEST(order_given_does_not_matter), TEST(what_is_written_is_read_back),
                TEST(empty_file_is_valid), TEST(open_file_survives_its_replacement),
                TEST(pieces_make_the_same_file), TEST(wrong_items_are_not_written),
                TEST(wrong_metadata_is_not_written), TEST(save_survives_any_failing_call),
                TEST(open_survives_any_failing_call),
                TEST(save_and_open_survive_any_failing_allocation),
                TEST(missing_file_folder_and_pipe_are_refused), TEST(changed_bytes_are_no_danger))
