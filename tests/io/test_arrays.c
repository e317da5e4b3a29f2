/* SPDX-License-Identifier: MIT */
/*
 * Goal: .npy and IDX files give the numbers that their writers put there, and everything that
 * breaks a rule, or that is not read here, is refused with its reason before anything is allocated
 * for it. Method: headers as NumPy and MNIST write them, byte by byte; a table of broken ones;
 * every length of a file that is cut; faults in every system call and allocation.
 */
#include "harness.h"
#include "data/idx.h"
#include "data/npy.h"
#include "io/io_faults.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct place {
    const char *directory;
    struct weir_error error;
    struct weir__io io;
    struct weir__array array;
};

static void place_init(struct place *place) {
    memset(place, 0, sizeof(*place));
    place->directory = test_temporary_directory();
    place->io = (struct weir__io){test_allocator(), io_faults_calls(), &place->error};
    io_faults_at(0, false, IO_FAULT_FAIL, 0);
}

/* A file's bytes in the making. */
struct bytes {
    unsigned char data[4096];
    size_t count;
};

static void add(struct bytes *bytes, const void *data, size_t count) {
    if (!EXPECT(count <= sizeof(bytes->data) - bytes->count)) return;
    memcpy(bytes->data + bytes->count, data, count);
    bytes->count += count;
}

static void begin_npy(struct bytes *bytes, unsigned major, const char *header) {
    size_t length = strlen(header);
    unsigned char first[12] = {0x93, 'N', 'U', 'M', 'P', 'Y', (unsigned char)major, 0};
    for (size_t i = 0; i < 4; i++) first[8 + i] = (unsigned char)(length >> 8 * i);
    bytes->count = 0;
    add(bytes, first, major == 1 ? 10 : 12);
    add(bytes, header, length);
}

static void begin_idx(struct bytes *bytes, unsigned type, uint32_t rank, const uint32_t *sizes) {
    unsigned char magic[4] = {0, 0, (unsigned char)type, (unsigned char)rank};
    bytes->count = 0;
    add(bytes, magic, 4);
    for (uint32_t i = 0; i < rank; i++) {
        unsigned char size[4] = {(unsigned char)(sizes[i] >> 24), (unsigned char)(sizes[i] >> 16),
                                 (unsigned char)(sizes[i] >> 8), (unsigned char)sizes[i]};
        add(bytes, size, 4);
    }
}

static int open_bytes(struct place *place, const struct bytes *bytes) {
    char path[512];
    io_make_file(place->directory, "file", bytes->data, bytes->count, path);
    return weir__array_open(&place->io, path, &place->array);
}

/* ---- numbers ---- */

static void test_npy_numbers_of_every_dtype_are_read(void) {
    static const int8_t i1[] = {-128, 0, 127};
    static const uint8_t u1[] = {0, 1, 255};
    static const int16_t i2[] = {-32768, 7, 32767};
    static const int32_t i4[] = {INT32_MIN, 7, INT32_MAX};
    static const int64_t i8[] = {INT64_MIN, 7, INT64_MAX};
    static const float f4[] = {-1.5f, 0, 3e38f};
    static const double f8[] = {-1.5, 0, 0.1};
    static const struct {
        const char *descr;
        const void *data;
        size_t width;
        double real[3];
        int64_t integer[3];
    } cases[] = {
        {"|i1", i1, 1, {-128, 0, 127}, {-128, 0, 127}},
        {"|u1", u1, 1, {0, 1, 255}, {0, 1, 255}},
        {"|b1", u1, 1, {0, 1, 1}, {0, 1, 1}},
        {"<i2", i2, 2, {-32768, 7, 32767}, {-32768, 7, 32767}},
        {"<i4", i4, 4, {INT32_MIN, 7, INT32_MAX}, {INT32_MIN, 7, INT32_MAX}},
        {"<i8", i8, 8, {-0x1p63, 7, 0x1p63}, {INT64_MIN, 7, INT64_MAX}},
        {"<f4", f4, 4, {-1.5, 0, 3e38f}, {0}},
        {"<f8", f8, 8, {-1.5, 0, 0.1}, {0}},
    };
    struct place place;
    place_init(&place);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct bytes bytes;
        char header[128];
        float f32[3];
        double f64[3];
        int64_t i64[3];
        snprintf(header, sizeof(header),
                 "{'descr': '%s', 'fortran_order': False, 'shape': (3,), }   \n", cases[i].descr);
        begin_npy(&bytes, 1, header);
        add(&bytes, cases[i].data, 3 * cases[i].width);
        CHECK_OK(open_bytes(&place, &bytes));
        EXPECT_EQ_UINT(place.array.count, 3);
        EXPECT_STATUS(weir__array_read_f32(&place.array, &place.io, 0, 3, f32), WEIR_OK);
        EXPECT_STATUS(weir__array_read_f64(&place.array, &place.io, 0, 3, f64), WEIR_OK);
        bool real = weir__number_is_real(place.array.number);
        if (!real) {
            EXPECT_STATUS(weir__array_read_i64(&place.array, &place.io, 0, 3, i64), WEIR_OK);
            EXPECT_EQ_BYTES(i64, cases[i].integer, sizeof(i64));
        }
        for (int k = 0; k < 3; k++) {
            EXPECT(f64[k] == cases[i].real[k]);
            EXPECT(f32[k] == (float)cases[i].real[k]);
        }
        weir__array_close(&place.array);
    }
}

static void test_idx_numbers_of_every_type_are_read(void) {
    static const struct {
        unsigned type;
        unsigned char data[16];
        size_t width;
        enum weir__number number;
        double real[2];
    } cases[] = {
        {0x08, {200, 7}, 1, WEIR__NUMBER_U8, {200, 7}},
        {0x09, {200, 7}, 1, WEIR__NUMBER_I8, {-56, 7}},
        {0x0B, {0x80, 1, 1, 2}, 2, WEIR__NUMBER_I16, {-32767, 258}},
        {0x0C, {0xff, 0xff, 0xff, 0xfe, 1, 2, 3, 4}, 4, WEIR__NUMBER_I32, {-2, 16909060}},
        {0x0D, {0x3f, 0xc0, 0, 0, 0xc0, 0, 0, 0}, 4, WEIR__NUMBER_F32, {1.5, -2}},
        {0x0E,
         {0x3f, 0xb9, 0x99, 0x99, 0x99, 0x99, 0x99, 0x9a, 0xc0, 0},
         8,
         WEIR__NUMBER_F64,
         {0.1, -2}},
    };
    static const uint32_t sizes[] = {1, 2, 1};
    struct place place;
    char text[64];
    place_init(&place);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct bytes bytes;
        double f64[2];
        begin_idx(&bytes, cases[i].type, 3, sizes);
        add(&bytes, cases[i].data, 2 * cases[i].width);
        CHECK_OK(open_bytes(&place, &bytes));
        EXPECT(place.array.number == cases[i].number);
        EXPECT_STATUS(weir__array_read_f64(&place.array, &place.io, 0, 2, f64), WEIR_OK);
        EXPECT(f64[0] == cases[i].real[0] && f64[1] == cases[i].real[1]);
        EXPECT_CONTAINS(weir__array_text(&place.array, text, sizeof(text)), " [1, 2, 1]");
        weir__array_close(&place.array);
    }
}

/* More than the reader fetches at once, from places in the middle. */
static void test_long_arrays_are_read_from_any_place(void) {
    enum { COUNT = 50000 };
    struct place place;
    char path[512];
    const char *header = "{'descr': '<i4', 'fortran_order': False, 'shape': (50000,), }\n";
    size_t begin = 10 + strlen(header);
    place_init(&place);
    unsigned char *data = malloc(begin + COUNT * 4);
    int64_t *out = malloc(COUNT * sizeof(*out));
    CHECK(data && out);
    struct bytes bytes;
    begin_npy(&bytes, 1, header);
    memcpy(data, bytes.data, begin);
    for (int32_t i = 0; i < COUNT; i++) memcpy(data + begin + (size_t)i * 4, &i, 4);
    io_make_file(place.directory, "long.npy", data, begin + COUNT * 4, path);
    EXPECT_STATUS(weir__npy_open(&place.io, path, &place.array), WEIR_OK);
    static const uint64_t firsts[] = {0, 1, 4095, 4096, COUNT - 1};
    for (size_t i = 0; i < sizeof(firsts) / sizeof(firsts[0]); i++) {
        uint64_t count = COUNT - firsts[i];
        EXPECT_STATUS(weir__array_read_i64(&place.array, &place.io, firsts[i], count, out),
                      WEIR_OK);
        for (uint64_t k = 0; k < count; k++) {
            if (out[k] != (int64_t)(firsts[i] + k)) TEST_FAIL("number %d", (int)k);
        }
    }
    EXPECT_STATUS(weir__array_read_i64(&place.array, &place.io, COUNT, 0, out), WEIR_OK);
    weir__array_close(&place.array);
    free(data);
    free(out);
}

/* ---- headers ---- */

static void test_npy_headers_that_numpy_writes_are_understood(void) {
    static const struct {
        unsigned major;
        const char *header;
        uint32_t rank;
        int64_t shape[3];
    } cases[] = {
        {1, "{'descr': '|u1', 'fortran_order': False, 'shape': (6,), }      \n", 1, {6}},
        {1, "{'descr': '|u1', 'fortran_order': False, 'shape': (2, 3), }\n", 2, {2, 3}},
        {2, "{'descr': '|u1', 'fortran_order': False, 'shape': (1, 2, 3), }\n", 3, {1, 2, 3}},
        {3, "{'descr': '|u1', 'fortran_order': False, 'shape': (3, 2), }\n", 2, {3, 2}},
        {1, "{'descr':'|u1','fortran_order':False,'shape':(3,2)}", 2, {3, 2}},
        {1, "{\"shape\": (3L, 2L,), \"descr\": \"|u1\", \"fortran_order\": False}", 2, {3, 2}},
        {1,
         " { 'shape' : ( 3 ,\n 2 ) , 'fortran_order' : False,\t'descr' : '<u1' , } \r\n",
         2,
         {3, 2}},
    };
    struct place place;
    place_init(&place);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct bytes bytes;
        begin_npy(&bytes, cases[i].major, cases[i].header);
        add(&bytes, "\1\2\3\4\5\6", 6);
        if (open_bytes(&place, &bytes)) TEST_FAIL("%s: %s", cases[i].header, place.error.message);
        CHECK_HELPERS();
        EXPECT_EQ_UINT(place.array.rank, cases[i].rank);
        EXPECT_EQ_BYTES(place.array.shape, cases[i].shape, cases[i].rank * sizeof(int64_t));
        weir__array_close(&place.array);
    }
}

static void test_numbers_and_empty_arrays_have_their_shapes(void) {
    struct place place;
    struct bytes bytes;
    double value = 2.5, got = 0;
    char text[32];
    place_init(&place);
    begin_npy(&bytes, 1, "{'descr': '<f8', 'fortran_order': False, 'shape': (), }\n");
    add(&bytes, &value, sizeof(value));
    CHECK_OK(open_bytes(&place, &bytes));
    EXPECT_EQ_UINT(place.array.rank, 0);
    EXPECT_STATUS(weir__array_read_f64(&place.array, &place.io, 0, 1, &got), WEIR_OK);
    EXPECT(got == value);
    weir__array_close(&place.array);
    begin_npy(&bytes, 1, "{'descr': '<f8', 'fortran_order': False, 'shape': (0, 7), }\n");
    CHECK_OK(open_bytes(&place, &bytes));
    EXPECT_EQ_UINT(place.array.count, 0);
    EXPECT_EQ_STR(weir__array_text(&place.array, text, sizeof(text)), "f64 [0, 7]");
    weir__array_close(&place.array);
}

#define U1 "'descr': '|u1', "
#define C "'fortran_order': False, "

static void test_npy_headers_that_break_a_rule_are_refused(void) {
    static const struct {
        const char *header;
        int status;
        const char *reason;
    } cases[] = {
        {"", WEIR_ERR_FORMAT, "byte 0 should be a dictionary's {"},
        {"('descr', 1)", WEIR_ERR_FORMAT, "byte 0 should be a dictionary's {"},
        {"{", WEIR_ERR_FORMAT, "byte 1 should be a key, a text"},
        {"{" U1 C "'shape': (6,)", WEIR_ERR_FORMAT, "a comma or the dictionary's end"},
        {"{" U1 C "'shape': (6,)} x", WEIR_ERR_FORMAT, "should be the header's end"},
        {"{" U1 C "'shape': (6,)}}", WEIR_ERR_FORMAT, "should be the header's end"},
        {"{" U1 C "}", WEIR_ERR_FORMAT, "has no 'shape'"},
        {"{" U1 "'shape': (6,)}", WEIR_ERR_FORMAT, "has no 'fortran_order'"},
        {"{" C "'shape': (6,)}", WEIR_ERR_FORMAT, "has no 'descr'"},
        {"{" U1 U1 C "'shape': (6,)}", WEIR_ERR_FORMAT, "has 'descr' twice"},
        {"{" U1 C "'shape': (6,), 'x': 1}", WEIR_ERR_FORMAT, "unknown key 'x'"},
        {"{" U1 C "'shape\\x00': (6,)}", WEIR_ERR_FORMAT, "a key, a text"},
        {"{" U1 C "'sha\x1b[2Jpe': (6,)}", WEIR_ERR_FORMAT, "unknown key 'sha?[2Jpe'"},
        {"{" U1 C "'shape' (6,)}", WEIR_ERR_FORMAT, "should be a colon"},
        {"{" U1 C "'shape': (6)}", WEIR_ERR_FORMAT, "should be a comma"},
        {"{" U1 C "'shape': 6}", WEIR_ERR_FORMAT, "should be the shape, a tuple"},
        {"{" U1 C "'shape': (-6,)}", WEIR_ERR_FORMAT, "a size, an integer >= 0"},
        {"{" U1 C "'shape': (6.0,)}", WEIR_ERR_FORMAT, "should be a comma"},
        {"{" U1 C "'shape': (,)}", WEIR_ERR_FORMAT, "a size, an integer >= 0"},
        {"{" U1 C "'shape': (2,,3)}", WEIR_ERR_FORMAT, "a size, an integer >= 0"},
        {"{" U1 C "'shape': (2, 3", WEIR_ERR_FORMAT, "a comma or the shape's end"},
        {"{" U1 C "'shape': (9223372036854775808,)}", WEIR_ERR_FORMAT, "a size that overflows"},
        {"{" U1 C "'shape': (99999999999999999999999999,)}", WEIR_ERR_FORMAT, "overflows"},
        {"{" U1 C "'shape': (4294967296, 4294967296)}", WEIR_ERR_FORMAT, "the size of u8"},
        {"{'descr': '<f8', " C "'shape': (2305843009213693952,)}", WEIR_ERR_FORMAT,
         "the size of f64 [2305843009213693952] overflows"},
        {"{" U1 C "'shape': (9223372036854775807,)}", WEIR_ERR_FORMAT, "the file is cut"},
        {"{" U1 C "'shape': (7,)}", WEIR_ERR_FORMAT,
         "u8 [7] has 7 bytes, but 6 follow the header: the file is cut"},
        {"{" U1 C "'shape': (5,)}", WEIR_ERR_FORMAT,
         "u8 [5] has 5 bytes, but 6 follow the header: the file is longer than its array"},
        {"{" U1 C "'shape': (1,1,1,1,1,1,1,1,6)}", WEIR_ERR_UNSUPPORTED, "more than the 8 dimens"},
        {"{" U1 "'fortran_order': True, 'shape': (6,)}", WEIR_ERR_UNSUPPORTED,
         "Fortran order: save numpy.ascontiguousarray(a)"},
        {"{" U1 "'fortran_order': 0, 'shape': (6,)}", WEIR_ERR_FORMAT, "True or False"},
        {"{'descr': '|O', " C "'shape': (6,)}", WEIR_ERR_UNSUPPORTED, "a pickle"},
        {"{'descr': [('a', '<f4')], " C "'shape': (6,)}", WEIR_ERR_UNSUPPORTED, "structured dtype"},
        {"{'descr': '>f4', " C "'shape': (6,)}", WEIR_ERR_UNSUPPORTED,
         "big-endian ('>f4'): save a.astype('<f4')"},
        {"{'descr': '<c8', " C "'shape': (6,)}", WEIR_ERR_UNSUPPORTED, "dtype '<c8' is not read"},
        {"{'descr': '<u2', " C "'shape': (6,)}", WEIR_ERR_UNSUPPORTED, "dtype '<u2' is not read"},
        {"{'descr': '|i4', " C "'shape': (6,)}", WEIR_ERR_UNSUPPORTED, "dtype '|i4' is not read"},
        {"{'descr': '<U5', " C "'shape': (6,)}", WEIR_ERR_UNSUPPORTED, "dtype '<U5' is not read"},
        {"{'descr': '', " C "'shape': (6,)}", WEIR_ERR_UNSUPPORTED, "dtype '' is not read"},
        {"{'descr': '\033]0;x\007', " C "'shape': (6,)}", WEIR_ERR_UNSUPPORTED, "dtype '?]0;x?'"},
        {"{'descr': u1, " C "'shape': (6,)}", WEIR_ERR_FORMAT, "should be the dtype, a text"},
        {"{'descr': '|u1, }", WEIR_ERR_FORMAT, "should be the dtype, a text"},
    };
    struct place place;
    place_init(&place);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct bytes bytes;
        begin_npy(&bytes, 1, cases[i].header);
        add(&bytes, "\1\2\3\4\5\6", 6);
        int status = open_bytes(&place, &bytes);
        EXPECT_STATUS(status, cases[i].status);
        EXPECT_CONTAINS(place.error.message, cases[i].reason);
        EXPECT_CONTAINS(place.error.message, "/file: ");
        if (status == WEIR_OK) weir__array_close(&place.array);
        if (test_has_failed()) TEST_FAIL("header: %s", cases[i].header);
        CHECK_HELPERS();
    }
}

static void refuse_bytes(struct place *place, const void *data, size_t count, int status,
                         const char *reason) {
    struct bytes bytes = {.count = 0};
    char path[512];
    add(&bytes, data, count);
    io_make_file(place->directory, "file", bytes.data, bytes.count, path);
    EXPECT_STATUS(weir__npy_open(&place->io, path, &place->array), status);
    EXPECT_CONTAINS(place->error.message, reason);
}

static void test_what_is_no_npy_file_is_refused_with_the_reason(void) {
    struct place place;
    place_init(&place);
    refuse_bytes(&place, "", 0, WEIR_ERR_FORMAT, "does not begin with \\x93NUMPY");
    refuse_bytes(&place, "NUMPY", 5, WEIR_ERR_FORMAT, "does not begin with \\x93NUMPY");
    refuse_bytes(&place, "\x93NUMPY", 6, WEIR_ERR_FORMAT, "6 bytes are too few");
    refuse_bytes(&place, "\x93NUMPY\1\0\4", 9, WEIR_ERR_FORMAT, "9 bytes are too few");
    refuse_bytes(&place, "\x93NUMPY\2\0\4\0\0", 11, WEIR_ERR_FORMAT, "11 bytes are too few");
    refuse_bytes(&place, "\x93NUMPY\4\0\4\0{}{}", 14, WEIR_ERR_UNSUPPORTED, "version 4.0");
    refuse_bytes(&place, "\x93NUMPY\1\1\4\0{}{}", 14, WEIR_ERR_UNSUPPORTED, "version 1.1");
    refuse_bytes(&place, "\x93NUMPY\0\1\4\0{}{}", 14, WEIR_ERR_UNSUPPORTED, "version 0.1");
    refuse_bytes(&place, "\x93NUMPY\1\0\5\0{}{}", 14, WEIR_ERR_FORMAT,
                 "the header has 5 bytes, but only 4 follow");
    refuse_bytes(&place, "\x93NUMPY\2\0\xff\xff\xff\xff{}{}", 16, WEIR_ERR_FORMAT,
                 "the header has 4294967295 bytes, but only 4 follow");
    refuse_bytes(&place, "PK\3\4 and so on", 14, WEIR_ERR_FORMAT, "a .npz: unpack it");
    refuse_bytes(&place, "\x1f\x8b and so on", 12, WEIR_ERR_FORMAT, "unpack it by 'gunzip'");
}

static void test_long_headers_are_refused_or_read(void) {
    enum { BYTES = 65536 };
    struct place place;
    char path[512];
    static const char header[] = "{'descr': '|u1', 'fortran_order': False, 'shape': (1,)}";
    char *data = malloc(12 + BYTES + 1);
    CHECK(data);
    place_init(&place);
    memset(data, ' ', 12 + BYTES + 1);
    memcpy(data, "\x93NUMPY\2\0\xff\xff\0\0", 12);
    memcpy(data + 12, header, sizeof(header) - 1);
    io_make_file(place.directory, "a.npy", data, 12 + BYTES - 1 + 1, path);
    EXPECT_STATUS(weir__npy_open(&place.io, path, &place.array), WEIR_OK);
    weir__array_close(&place.array);
    memcpy(data + 8, "\0\0\1\0", 4);
    io_make_file(place.directory, "a.npy", data, 12 + BYTES + 1, path);
    EXPECT_STATUS(weir__npy_open(&place.io, path, &place.array), WEIR_ERR_UNSUPPORTED);
    EXPECT_CONTAINS(place.error.message, "65536 bytes, more than the limit of 65535");
    free(data);
}

static void test_idx_headers_that_break_a_rule_are_refused(void) {
    static const struct {
        const char *data;
        size_t bytes;
        int status;
        const char *reason;
    } cases[] = {
        {"\0\0\x08", 3, WEIR_ERR_FORMAT, "3 bytes are too few for an IDX file"},
        {"\0\0\x07\1\0\0\0\1x", 9, WEIR_ERR_FORMAT, "type 0x07 is not one of IDX"},
        {"\0\0\x0a\1\0\0\0\1x", 9, WEIR_ERR_FORMAT, "type 0x0a is not one of IDX"},
        {"\0\0\x08\0x", 5, WEIR_ERR_FORMAT, "it has no dimension"},
        {"\0\0\x08\x09\0\0\0\1x", 9, WEIR_ERR_UNSUPPORTED, "9 dimensions are more than the 8"},
        {"\0\0\x08\xff\0\0\0\1x", 9, WEIR_ERR_UNSUPPORTED, "255 dimensions are more"},
        {"\0\0\x08\2\0\0\0\1x", 9, WEIR_ERR_FORMAT, "too few for a header of 2 dimensions, 12"},
        {"\0\0\x08\1\0\0\0\2x", 9, WEIR_ERR_FORMAT, "u8 [2] has 2 bytes, but 1 follow"},
        {"\0\0\x08\1\0\0\0\1xy", 10, WEIR_ERR_FORMAT, "longer than its array"},
        {"\0\0\x08\1\xff\xff\xff\xffx", 9, WEIR_ERR_FORMAT, "u8 [4294967295] has 4294967295"},
        {"\0\0\x0e\2\xff\xff\xff\xff\xff\xff\xff\xffx", 13, WEIR_ERR_FORMAT, "overflows"},
        {"\0\1\x08\1\0\0\0\1x", 9, WEIR_ERR_FORMAT, "begins with the bytes 00 01"},
        {"\x1f\x8b\x08\1\0\0\0\1x", 9, WEIR_ERR_FORMAT, "unpack it by 'gunzip'"},
    };
    struct place place;
    place_init(&place);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char path[512];
        io_make_file(place.directory, "file", cases[i].data, cases[i].bytes, path);
        EXPECT_STATUS(weir__idx_open(&place.io, path, &place.array), cases[i].status);
        EXPECT_CONTAINS(place.error.message, cases[i].reason);
        CHECK_HELPERS();
    }
}

static void test_what_is_neither_is_refused(void) {
    static const char *const texts[] = {"", "x", "text", "\x1f\x8b\x08"};
    struct place place;
    place_init(&place);
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        struct bytes bytes = {.count = 0};
        add(&bytes, texts[i], strlen(texts[i]));
        EXPECT_STATUS(open_bytes(&place, &bytes), WEIR_ERR_FORMAT);
        EXPECT_CONTAINS(place.error.message, i < 3 ? "neither a .npy file" : "'gunzip'");
    }
    EXPECT_STATUS(weir__array_open(&place.io, place.directory, &place.array), WEIR_ERR_IO);
    EXPECT_CONTAINS(place.error.message, "Is a directory");
    EXPECT_STATUS(weir__array_open(&place.io, "/none", &place.array), WEIR_ERR_IO);
    EXPECT_CONTAINS(place.error.message, "cannot open /none: No such file");
    EXPECT_STATUS(weir__array_open(&place.io, "/dev/null", &place.array), WEIR_ERR_IO);
    EXPECT_CONTAINS(place.error.message, "not a file but a pipe or device");
}

/* ---- the file changes, the system fails ---- */

static void make_example(struct bytes *bytes) {
    static const uint32_t sizes[] = {3, 2};
    begin_idx(bytes, 0x0B, 2, sizes);
    add(bytes, "\0\1\0\2\0\3\0\4\0\5\0\6", 12);
}

static void test_every_cut_file_is_refused(void) {
    struct place place;
    struct bytes whole[2];
    place_init(&place);
    make_example(&whole[0]);
    begin_npy(&whole[1], 1, "{'descr': '<i2', 'fortran_order': False, 'shape': (3, 2), }\n");
    add(&whole[1], "\1\0\2\0\3\0\4\0\5\0\6\0", 12);
    for (int i = 0; i < 2; i++) {
        for (size_t count = 0; count < whole[i].count; count++) {
            struct bytes cut = whole[i];
            cut.count = count;
            CHECK_STATUS(open_bytes(&place, &cut), WEIR_ERR_FORMAT);
        }
        CHECK_OK(open_bytes(&place, &whole[i]));
        weir__array_close(&place.array);
    }
}

static void test_file_that_is_cut_while_it_is_open_is_an_error(void) {
    struct place place;
    struct bytes bytes;
    char path[512];
    int64_t out[6];
    place_init(&place);
    make_example(&bytes);
    io_make_file(place.directory, "file", bytes.data, bytes.count, path);
    CHECK_OK(weir__array_open(&place.io, path, &place.array));
    EXPECT_EQ_INT(truncate(path, 20), 0);
    EXPECT_STATUS(weir__array_read_i64(&place.array, &place.io, 0, 4, out), WEIR_OK);
    EXPECT_STATUS(weir__array_read_i64(&place.array, &place.io, 3, 3, out), WEIR_ERR_IO);
    EXPECT_CONTAINS(place.error.message, "/file: it was cut: byte 20 of 24 is not there");
    weir__array_close(&place.array);
}

static int use_under_fault(struct place *place, const char *path) {
    int64_t out[6];
    int status = weir__array_open(&place->io, path, &place->array);
    if (status) return status;
    uint64_t hash = WEIR__HASH_BEGIN;
    status = weir__array_read_i64(&place->array, &place->io, 0, 6, out);
    if (!status) EXPECT(out[0] == 1 && out[5] == 6);
    if (!status) status = weir__source_hash(&place->array.source, &place->io, 4, &hash);
    weir__array_close(&place->array);
    return status;
}

static void use_under_faults(struct place *place, const char *path, bool persistent,
                             enum io_fault fault) {
    for (uint64_t k = 1, fired = 1; fired && k < 100; k++) {
        int before = io_open_descriptors();
        io_faults_at(k, persistent, fault, EIO);
        int status = use_under_fault(place, path);
        fired = io_faults_fired();
        io_faults_at(0, false, fault, 0);
        CHECK(status == WEIR_OK || status == WEIR_ERR_IO);
        CHECK(fired || status == WEIR_OK);
        if (status) CHECK_CONTAINS(place->error.message, "/file: ");
        CHECK_EQ_INT(io_open_descriptors(), before);
        CHECK_EQ_UINT(test_allocator_live_blocks(), 0);
    }
}

static void test_reading_survives_any_failing_call(void) {
    struct place place;
    struct bytes bytes;
    char path[512];
    place_init(&place);
    make_example(&bytes);
    io_make_file(place.directory, "file", bytes.data, bytes.count, path);
    for (int persistent = 0; persistent < 2; persistent++) {
        use_under_faults(&place, path, persistent, IO_FAULT_FAIL);
        use_under_faults(&place, path, persistent, IO_FAULT_SHORT);
        use_under_faults(&place, path, persistent, IO_FAULT_INTERRUPT);
        CHECK_HELPERS();
    }
}

static void test_reading_survives_any_failing_allocation(void) {
    struct place place;
    struct bytes bytes;
    place_init(&place);
    begin_npy(&bytes, 1, "{'descr': '|u1', 'fortran_order': False, 'shape': (1,), }\n");
    add(&bytes, "x", 1);
    for (uint64_t k = 1, fired = 1; fired; k++) {
        int before = io_open_descriptors();
        test_allocator_fail_at(k, false);
        int status = open_bytes(&place, &bytes);
        fired = test_allocator_fired();
        test_allocator_fail_at(0, false);
        CHECK_STATUS(status, fired ? WEIR_ERR_OUT_OF_MEMORY : WEIR_OK);
        if (status == WEIR_OK) weir__array_close(&place.array);
        CHECK_EQ_INT(io_open_descriptors(), before);
    }
}

/* ---- the hash ---- */

/* Whether changing byte `at` of a file of `count` bytes changes what `blocks` blocks hash. */
static bool is_hashed(struct place *place, size_t count, size_t at, uint32_t blocks) {
    uint64_t hashes[2];
    char path[512];
    for (int i = 0; i < 2; i++) {
        struct weir__source source;
        unsigned char *data = calloc(count, 1);
        if (!EXPECT(data)) return false;
        data[at] = (unsigned char)i;
        io_make_file(place->directory, "hashed", data, count, path);
        free(data);
        hashes[i] = WEIR__HASH_BEGIN;
        EXPECT_STATUS(weir__source_open(&place->io, path, &source), WEIR_OK);
        EXPECT_STATUS(weir__source_hash(&source, &place->io, blocks, &hashes[i]), WEIR_OK);
        weir__source_close(&source);
    }
    return hashes[0] != hashes[1];
}

static void test_hash_looks_at_all_of_a_small_file_and_parts_of_a_large_one(void) {
    enum { BLOCK = 65536 };
    struct place place;
    place_init(&place);
    for (size_t at = 0; at < 2 * BLOCK; at += 13107) EXPECT(is_hashed(&place, 2 * BLOCK, at, 2));
    EXPECT(is_hashed(&place, 2 * BLOCK, 2 * BLOCK - 1, 2));
    EXPECT(is_hashed(&place, 5 * BLOCK, 0, 3));
    EXPECT(is_hashed(&place, 5 * BLOCK, 5 * BLOCK - 1, 3));
    EXPECT(is_hashed(&place, 5 * BLOCK, 2 * BLOCK, 3));
    EXPECT(!is_hashed(&place, 5 * BLOCK, BLOCK, 3));
    EXPECT(!is_hashed(&place, 5 * BLOCK, 0, 1));
    EXPECT(is_hashed(&place, 5 * BLOCK, 4 * BLOCK, 1));
}

WEIR_TEST_SUITE(
    arrays, TEST(npy_numbers_of_every_dtype_are_read), TEST(idx_numbers_of_every_type_are_read),
    TEST(long_arrays_are_read_from_any_place), TEST(npy_headers_that_numpy_writes_are_understood),
    TEST(numbers_and_empty_arrays_have_their_shapes),
    TEST(npy_headers_that_break_a_rule_are_refused),
    TEST(what_is_no_npy_file_is_refused_with_the_reason), TEST(long_headers_are_refused_or_read),
    TEST(idx_headers_that_break_a_rule_are_refused), TEST(what_is_neither_is_refused),
    TEST(every_cut_file_is_refused), TEST(file_that_is_cut_while_it_is_open_is_an_error),
    TEST(reading_survives_any_failing_call), TEST(reading_survives_any_failing_allocation),
    TEST(hash_looks_at_all_of_a_small_file_and_parts_of_a_large_one))
