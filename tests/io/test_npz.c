/* SPDX-License-Identifier: MIT */
/*
 * Goal: the arrays of a .npz are read as those of .npy files are, and an archive that is cut,
 * damaged or compressed is refused. Method: archives that NumPy 2.4 wrote, and others that are put
 * together here as the format says, zip64 among them; each of them cut and changed everywhere.
 */
#include "data/npz.h"
#include "data/array.h"
#include "harness.h"
#include "io/dataset_place.h"
#include "io/io_faults.h"
#include "io/io_memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* numpy.savez(y=numpy.array([0, 1, 1], 'u1'), x=numpy.arange(6, dtype='<f4').reshape(3, 2) / 2) */
static const char stored[] =
    "PK\3\4-\0\0\0\0\0\0\0!\0\362\273ou\377\377\377\377\377\377\377\377\5\0\24\0y."
    "npy\1\0\20\0\203\0\0\0\0\0\0\0\203\0\0\0\0\0\0\0\223NUMPY\1\0v"
    "\0{'descr': '|u1', 'fortran_order': False, 'shape': (3,), }      "
    "                                                      \12\0\1\1PK\3\4-\0"
    "\0\0\0\0\0\0!\0\210\343,\341\377\377\377\377\377\377\377\377\5\0\24\0x."
    "npy\1\0\20\0\230\0\0\0\0\0\0\0\230\0\0\0\0\0\0\0\223NUMPY\1\0v\0{'des"
    "cr': '<f4', 'fortran_order': False, 'shape': (3, 2), }          "
    "                                                \12\0\0\0\0\0\0\0\?\0\0\200\?\0\0\300"
    "\?\0\0\0@\0\0 "
    "@PK\1\2-\3-\0\0\0\0\0\0\0!"
    "\0\362\273ou\203\0\0\0\203\0\0\0\5\0\0\0\0\0\0\0\0\0\0\0\200\1\0\0\0\0y.npyPK\1\2"
    "-\3-\0\0\0\0\0\0\0!\0\210\343,"
    "\341\230\0\0\0\230\0\0\0\5\0\0\0\0\0\0\0\0\0\0\0\200\1\272\0\0\0x."
    "npyPK\5\6\0\0\0\0\2\0\2\0f\0\0\0\211"
    "\1\0\0\0\0";

/* numpy.savez_compressed(x=...), the same x */
static const char compressed[] =
    "PK\3\4-\0\0\0\10\0\0\0!\0\210\343,\341\377\377\377\377\377\377\377\377\5\0\24\0x."
    "npy\1\0\20\0\230\0\0\0\0\0\0\0W\0\0\0\0\0\0\0\233\354\27\352\33\20\311\310P"
    "\306P\255\236\222Z\234\\\244n\245\240n\223f\242\256\243\240\236\226_TR\224\230\27\237_"
    "\224\222\12\22wK\314)N\5\212\27g$\26\244\2\371\32\306:\12F\232:\12\265\12d\3.\6\10\260g"
    "`h\0\342\3@\314\340\300\300\240\340\0\0PK\1\2-\3-\0\0\0\10\0\0\0!\0\210\343,"
    "\341W\0\0\0\230\0\0\0\5\0\0\0\0\0\0\0\0\0\0\0\200\1\0\0\0\0x.np"
    "yPK\5\6\0\0\0\0\1\0\1\0\63\0\0\0\216\0\0\0\0\0";

/* ---- a writer of our own ---- */

struct archive {
    unsigned char bytes[4096];
    size_t count;
};

static void put(struct archive *a, uint64_t number, int bytes) {
    for (int i = 0; i < bytes; i++) a->bytes[a->count++] = (unsigned char)(number >> (8 * i));
}

static void put_bytes(struct archive *a, const void *data, size_t bytes) {
    memcpy(a->bytes + a->count, data, bytes);
    a->count += bytes;
}

/* A .npy of u8 [bytes]. */
static size_t make_npy(unsigned char *to, const char *numbers) {
    int length =
        snprintf((char *)to + 10, 200,
                 "{'descr': '|u1', 'fortran_order': False, 'shape': (%zu,), }\n", strlen(numbers));
    memcpy(to, "\x93NUMPY\1\0", 8);
    to[8] = (unsigned char)length, to[9] = 0;
    memcpy(to + 10 + length, numbers, strlen(numbers));
    return 10 + (size_t)length + strlen(numbers);
}

/* What an entry of the directory says by zip64. */
enum wide { NOTHING, ALL, PLACE };

/* Two arrays whose numbers are "one" and "second". */
static void make_archive(struct archive *a, const char *names[2], enum wide wide,
                         const char *comment) {
    static const char *const numbers[2] = {"one", "second"};
    uint64_t headers[2], sizes[2];
    *a = (struct archive){.count = 0};
    for (int i = 0; i < 2; i++) {
        unsigned char npy[256];
        sizes[i] = make_npy(npy, numbers[i]);
        headers[i] = a->count;
        put(a, 0x04034b50, 4), put(a, 20, 2), put(a, 0, 2), put(a, 0, 2), put(a, 0, 8);
        put(a, 0, 8), put(a, strlen(names[i]), 2), put(a, 3, 2); /* sizes may come later */
        put_bytes(a, names[i], strlen(names[i])), put(a, 0, 3), put_bytes(a, npy, sizes[i]);
    }
    uint64_t directory = a->count;
    for (int i = 0; i < 2; i++) {
        put(a, 0x02014b50, 4), put(a, 45, 2), put(a, 20, 2), put(a, 0, 2), put(a, 0, 2);
        put(a, 0, 8), put(a, wide == ALL ? UINT32_MAX : sizes[i], 4);
        put(a, wide == ALL ? UINT32_MAX : sizes[i], 4), put(a, strlen(names[i]), 2);
        put(a, wide == ALL ? 6 + 28 : wide ? 6 + 12 : 0, 2), put(a, 1, 2), put(a, 0, 8);
        put(a, wide ? UINT32_MAX : headers[i], 4), put_bytes(a, names[i], strlen(names[i]));
        if (wide) put(a, 0x7777, 2), put(a, 2, 2), put(a, 9, 2), put(a, 1, 2);
        if (wide) put(a, wide == ALL ? 24 : 8, 2);
        if (wide == ALL) put(a, sizes[i], 8), put(a, sizes[i], 8);
        if (wide) put(a, headers[i], 8);
        put(a, '!', 1); /* the entry's comment */
    }
    uint64_t bytes = a->count - directory, end = a->count;
    if (wide) {
        put(a, 0x06064b50, 4), put(a, 44, 8), put(a, 45, 2), put(a, 45, 2), put(a, 0, 8);
        put(a, 2, 8), put(a, 2, 8), put(a, bytes, 8), put(a, directory, 8);
        put(a, 0x07064b50, 4), put(a, 0, 4), put(a, end, 8), put(a, 1, 4);
    }
    put(a, 0x06054b50, 4), put(a, 0, 4), put(a, 2, 2), put(a, 2, 2);
    put(a, wide ? UINT32_MAX : bytes, 4), put(a, wide ? UINT32_MAX : directory, 4);
    put(a, strlen(comment), 2), put_bytes(a, comment, strlen(comment));
}

/* ---- reading ---- */

struct place {
    const char *directory;
    struct weir_error error;
    struct weir__io io;
    struct weir__names names;
};

static void begin(struct place *place, const void *data, size_t bytes, char path[512]) {
    if (place->directory == NULL) place->directory = test_temporary_directory();
    place->error = (struct weir_error){.status = WEIR_OK};
    place->io = (struct weir__io){test_allocator(), io_faults_calls(), &place->error};
    io_make_file(place->directory, "a.npz", data, bytes, path);
}

/* The array NAME of PATH as f64 into `numbers`; how many, or -1 where it is refused. */
static int64_t read_array(struct place *place, const char *path, const char *name,
                          double numbers[64]) {
    struct weir__array array;
    char full[600];
    snprintf(full, sizeof full, "%s/%s", path, name);
    if (weir__array_open(&place->io, full, &array) != WEIR_OK) return -1;
    int64_t count = (int64_t)array.count;
    if (count <= 64 && weir__array_read_f64(&array, &place->io, 0, array.count, numbers) != WEIR_OK)
        count = -1;
    weir__array_close(&array);
    return count;
}

static void test_arrays_of_numpys_archive_are_read_in_place(void) {
    struct place place = {NULL};
    char path[512];
    double numbers[64];
    begin(&place, stored, sizeof stored - 1, path);
    CHECK_OK(weir__npz_list(&place.io, path, &place.names));
    CHECK_EQ_UINT(place.names.count, 2);
    EXPECT_CONTAINS(place.names.list[0], "/a.npz/y.npy");
    EXPECT_CONTAINS(place.names.list[1], "/a.npz/x.npy");
    weir__names_release(&place.io, &place.names);
    CHECK_EQ_INT(read_array(&place, path, "x.npy", numbers), 6);
    for (int i = 0; i < 6; i++) EXPECT_NEAR(numbers[i], i * 0.5, 0);
    CHECK_EQ_INT(read_array(&place, path, "y.npy", numbers), 3);
    EXPECT(numbers[0] == 0 && numbers[1] == 1 && numbers[2] == 1);
    CHECK_EQ_INT(read_array(&place, path, "z.npy", numbers), -1);
    CHECK_CONTAINS(place.error.message, "a.npz: it holds no z.npy");
}

static void test_directories_of_every_width_are_read(void) {
    const char *names[2] = {"first.npy", "folder/b.npy"};
    for (int i = 0; i < 6; i++) {
        struct archive archive;
        struct place place = {NULL};
        char path[512];
        double numbers[64];
        make_archive(&archive, names, (enum wide)(i / 2), i % 2 == 1 ? "a comment" : "");
        begin(&place, archive.bytes, archive.count, path);
        CHECK_EQ_INT(read_array(&place, path, names[0], numbers), 3);
        EXPECT(numbers[0] == 'o' && numbers[2] == 'e');
        CHECK_EQ_INT(read_array(&place, path, names[1], numbers), 6);
        EXPECT(numbers[0] == 's' && numbers[5] == 'd');
    }
}

/* ---- refusals ---- */

static void test_compressed_arrays_say_how_to_save_them(void) {
    struct place place = {NULL};
    char path[512];
    double numbers[64];
    begin(&place, compressed, sizeof compressed - 1, path);
    CHECK_EQ_INT(read_array(&place, path, "x.npy", numbers), -1);
    CHECK_STATUS(place.error.status, WEIR_ERR_UNSUPPORTED);
    CHECK_CONTAINS(place.error.message, "x.npy is compressed: save it by numpy.savez, not "
                                        "numpy.savez_compressed, or unpack it by 'unzip'");
    begin(&place, "no archive", 10, path);
    CHECK_STATUS(weir__npz_list(&place.io, path, &place.names), WEIR_ERR_FORMAT);
    CHECK_CONTAINS(place.error.message, "not a whole .npz archive");
    begin(&place, "PK\5\6\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 22, path);
    CHECK_STATUS(weir__npz_list(&place.io, path, &place.names), WEIR_ERR_FORMAT);
    CHECK_CONTAINS(place.error.message, "it holds no array");
}

/* No byte that is missing or wrong may do worse than to be refused, or to give other numbers. */
static void test_damaged_archives_are_refused_or_read(void) {
    static const unsigned char changes[] = {0, 1, 0x7f, 0x80, 0xff};
    const char *names[2] = {"x.npy", "y.npy"};
    struct archive archive;
    struct place place = {NULL};
    double numbers[64];
    place.io = (struct weir__io){test_allocator(), io_memory_calls(), &place.error};
    make_archive(&archive, names, ALL, "");
    for (size_t cut = 0; cut < archive.count; cut++) {
        io_memory_file(archive.bytes, cut);
        if (read_array(&place, "a.npz", "x.npy", numbers) != -1) TEST_FAIL("cut at %zu", cut);
        EXPECT_STATUS(place.error.status, WEIR_ERR_FORMAT);
    }
    io_memory_file(archive.bytes, archive.count);
    for (size_t at = 0; at < archive.count && !test_has_failed(); at++) {
        unsigned char kept = archive.bytes[at];
        for (size_t i = 0; i < sizeof changes; i++) {
            archive.bytes[at] = changes[i];
            int64_t count = read_array(&place, "a.npz", "y.npy", numbers);
            int status = weir__npz_list(&place.io, "a.npz", &place.names);
            EXPECT(count >= -1 && count <= 64 && (status != WEIR_OK || place.names.count > 0));
            weir__names_release(&place.io, &place.names);
        }
        archive.bytes[at] = kept;
    }
    EXPECT_EQ_UINT(io_memory_open_count(), 0);
}

static void test_any_failing_call_is_told(void) {
    struct place place = {NULL};
    for (uint64_t k = 1; k < 64; k++) {
        char path[512];
        double numbers[64];
        begin(&place, stored, sizeof stored - 1, path);
        io_faults_at(k, false, IO_FAULT_FAIL, 5);
        int64_t count = read_array(&place, path, "x.npy", numbers);
        bool fired = io_faults_fired();
        io_faults_at(0, false, IO_FAULT_FAIL, 0);
        if (!fired) {
            EXPECT(k > 4); /* open, size, reads */
            return;
        }
        EXPECT(count == 6 || (count == -1 && place.error.status == WEIR_ERR_IO));
    }
    TEST_FAIL("calls without end");
}

/* ---- as data ---- */

static void test_a_pair_in_an_archive_is_a_data_set(void) {
    struct dataset_place place;
    struct archive archive;
    char path[512], text[256];
    float input[2];
    int64_t target;
    dataset_begin(&place);
    io_make_file(place.directory, "train.npz", stored, sizeof stored - 1, path);
    CHECK_OK(dataset_open(&place, "train.npz", ""));
    struct weir__dataset_model model = {dataset_tensor(WEIR_F32, 1, 2, 0, 0),
                                        dataset_tensor(WEIR_I64, 0, 0, 0, 0), "cross_entropy", 2,
                                        -100};
    CHECK_OK(dataset_bind(&place, model));
    CHECK_EQ_STR(weir__dataset_text(place.dataset, text, sizeof text),
                 "train.npz/x.npy f32 [3, 2] and train.npz/y.npy u8 [3]");
    CHECK_OK(weir__dataset_read_held_out(place.dataset, &place.io, 0, 1, input, &target));
    EXPECT(input[0] == 2.0f && input[1] == 2.5f && target == 1);
    dataset_end(&place);
    /* what numpy.savez was given without names is a pair in its order; else names must say */
    make_archive(&archive, (const char *[2]){"arr_0.npy", "arr_1.npy"}, NOTHING, "");
    io_make_file(place.directory, "b.npz", archive.bytes, archive.count, path);
    CHECK(dataset_open(&place, "b.npz", "") != WEIR_OK); /* 3 and 6 samples */
    dataset_check_fault(&place, "b.npz/arr_0.npy holds u8 [3], but");
    dataset_end(&place);
    make_archive(&archive, (const char *[2]){"x.npy", "z.npy"}, NOTHING, "");
    io_make_file(place.directory, "c.npz", archive.bytes, archive.count, path);
    CHECK(dataset_open(&place, "c.npz", "") != WEIR_OK);
    dataset_check_fault(&place, "the training part has 1 file of inputs and 0 of targets");
    dataset_end(&place);
    make_archive(&archive, (const char *[2]){"x.npy", "y.npy"}, NOTHING, "");
    for (size_t i = 0; i + 10 < archive.count; i++) /* both deflated, says the directory */
        if (memcmp(archive.bytes + i, "PK\1\2", 4) == 0) archive.bytes[i + 10] = 8;
    io_make_file(place.directory, "d.npz", archive.bytes, archive.count, path);
    CHECK_STATUS(dataset_open(&place, "d.npz", ""), WEIR_ERR_UNSUPPORTED);
    dataset_check_fault(&place, "x.npy is compressed: save it by numpy.savez");
    dataset_end(&place);
}

WEIR_TEST_SUITE(npz, TEST(arrays_of_numpys_archive_are_read_in_place),
                TEST(directories_of_every_width_are_read),
                TEST(compressed_arrays_say_how_to_save_them),
                TEST(damaged_archives_are_refused_or_read), TEST(any_failing_call_is_told),
                TEST(a_pair_in_an_archive_is_a_data_set))
