/* SPDX-License-Identifier: MIT */
/*
 * Goal: llm.c's token files give their tokens, and every other file is refused with the reason.
 * Method: headers written byte by byte, every cut length, faults in every system call.
 */
#include "harness.h"
#include "data/tokens.h"
#include "io/io_faults.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct place {
    const char *directory;
    struct weir_error error;
    struct weir__io io;
    struct weir__tokens tokens;
    unsigned char data[WEIR__TOKENS_HEADER_BYTES + 64];
};

static void put(unsigned char *at, uint32_t value) {
    for (int i = 0; i < 4; i++) at[i] = (unsigned char)(value >> 8 * i);
}

static void place_init(struct place *place, uint32_t magic, uint32_t version, uint32_t count) {
    memset(place, 0, sizeof(*place));
    place->directory = test_temporary_directory();
    place->io = (struct weir__io){test_allocator(), io_faults_calls(), &place->error};
    io_faults_at(0, false, IO_FAULT_FAIL, 0);
    put(place->data, magic);
    put(place->data + 4, version);
    put(place->data + 8, count);
}

static int open_bytes(struct place *place, size_t count) {
    char path[512];
    io_make_file(place->directory, "a.bin", place->data, count, path);
    return weir__tokens_open(&place->io, path, &place->tokens);
}

static void test_tokens_of_16_and_32_bits_are_read(void) {
    struct place place;
    int64_t out[3];
    place_init(&place, 20240520, 1, 3);
    memcpy(place.data + 1024, "\1\2\xff\xff\5\0", 6);
    CHECK_OK(open_bytes(&place, 1030));
    EXPECT_EQ_UINT(place.tokens.count, 3);
    EXPECT_STATUS(weir__tokens_read(&place.tokens, &place.io, 0, 3, out), WEIR_OK);
    EXPECT(out[0] == 513 && out[1] == 65535 && out[2] == 5);
    EXPECT_STATUS(weir__tokens_read(&place.tokens, &place.io, 2, 1, out), WEIR_OK);
    EXPECT_EQ_INT(out[0], 5);
    weir__tokens_close(&place.tokens);
    place_init(&place, 20240801, 7, 2);
    memcpy(place.data + 1024, "\1\2\3\0\xff\xff\xff\xff", 8);
    CHECK_OK(open_bytes(&place, 1032));
    EXPECT_STATUS(weir__tokens_read(&place.tokens, &place.io, 0, 2, out), WEIR_OK);
    EXPECT(out[0] == 0x30201 && out[1] == 0xffffffff);
    weir__tokens_close(&place.tokens);
}

static void test_long_files_are_read_from_any_place(void) {
    enum { COUNT = 40000 };
    struct place place;
    char path[512];
    place_init(&place, 20240520, 1, COUNT);
    unsigned char *data = calloc(1024 + 2 * COUNT + 2, 1);
    int64_t *out = malloc(COUNT * sizeof(*out));
    CHECK(data && out);
    memcpy(data, place.data, 1024);
    for (size_t i = 0; i < COUNT; i++) put(data + 1024 + 2 * i, (uint32_t)i);
    io_make_file(place.directory, "long.bin", data, 1024 + 2 * COUNT, path);
    EXPECT_STATUS(weir__tokens_open(&place.io, path, &place.tokens), WEIR_OK);
    for (uint64_t first = 0; first < COUNT; first += 8191) {
        EXPECT_STATUS(weir__tokens_read(&place.tokens, &place.io, first, COUNT - first, out),
                      WEIR_OK);
        for (uint64_t i = 0; i < COUNT - first; i++) {
            if (out[i] != (int64_t)(first + i)) TEST_FAIL("token %d", (int)i);
        }
        CHECK_HELPERS();
    }
    weir__tokens_close(&place.tokens);
    free(data);
    free(out);
}

static void refuse(uint32_t magic, uint32_t version, uint32_t count, size_t bytes, int status,
                   const char *reason) {
    struct place place;
    place_init(&place, magic, version, count);
    CHECK_STATUS(open_bytes(&place, bytes), status);
    CHECK_CONTAINS(place.error.message, reason);
    CHECK_CONTAINS(place.error.message, "/a.bin: ");
}

static void test_other_files_are_refused_with_the_reason(void) {
    refuse(20240520, 1, 3, 0, WEIR_ERR_FORMAT, "0 bytes are too few for a token file");
    refuse(20240520, 1, 3, 1023, WEIR_ERR_FORMAT, "1023 bytes are too few for a token file");
    refuse(20240520, 1, 3, 1024, WEIR_ERR_FORMAT, "3 tokens have 6 bytes, but 0 follow");
    refuse(20240520, 1, 3, 1029, WEIR_ERR_FORMAT, "but 5 follow the header: the file is cut");
    refuse(20240520, 1, 3, 1031, WEIR_ERR_FORMAT, "the file is longer than its tokens");
    refuse(20240801, 7, 3, 1030, WEIR_ERR_FORMAT, "3 tokens have 12 bytes, but 6 follow");
    refuse(20240520, 2, 3, 1030, WEIR_ERR_UNSUPPORTED, "version 2 of token files");
    refuse(20240801, 1, 3, 1030, WEIR_ERR_UNSUPPORTED, "version 1 of token files");
    refuse(20240521, 1, 3, 1030, WEIR_ERR_FORMAT, "its first number is 20240521");
    refuse(0x98d83401, 1, 3, 1030, WEIR_ERR_FORMAT, "give it another name than .bin");
    refuse(20240520, 1, 0xffffffff, 1030, WEIR_ERR_FORMAT, "counts -1 tokens");
    refuse(20240520, 1, 0x80000000, 1030, WEIR_ERR_FORMAT, "counts -2147483648 tokens");
    refuse(20240520, 1, 0x7fffffff, 1030, WEIR_ERR_FORMAT, "2147483647 tokens have 4294967294");
}

static void test_file_without_tokens_is_empty(void) {
    struct place place;
    place_init(&place, 20240520, 1, 0);
    CHECK_OK(open_bytes(&place, 1024));
    EXPECT_EQ_UINT(place.tokens.count, 0);
    EXPECT_STATUS(weir__tokens_read(&place.tokens, &place.io, 0, 0, NULL), WEIR_OK);
    weir__tokens_close(&place.tokens);
}

static void test_magic_is_recognised(void) {
    unsigned char first[4];
    put(first, 20240520);
    CHECK(weir__tokens_magic(first));
    put(first, 20240801);
    CHECK(weir__tokens_magic(first));
    put(first, 20240521);
    CHECK(!weir__tokens_magic(first));
}

static void test_reading_survives_any_failing_call(void) {
    struct place place;
    for (int fault = IO_FAULT_FAIL; fault <= IO_FAULT_INTERRUPT; fault++) {
        for (uint64_t k = 1, fired = 1; fired && k < 50; k++) {
            int64_t out[3] = {0};
            place_init(&place, 20240520, 1, 3);
            place.data[1024] = 9;
            int before = io_open_descriptors();
            io_faults_at(k, false, (enum io_fault)fault, EIO);
            int status = open_bytes(&place, 1030);
            if (!status) {
                status = weir__tokens_read(&place.tokens, &place.io, 0, 3, out);
                weir__tokens_close(&place.tokens);
            }
            fired = io_faults_fired();
            io_faults_at(0, false, IO_FAULT_FAIL, 0);
            CHECK(status == WEIR_OK || (status == WEIR_ERR_IO && fault == IO_FAULT_FAIL));
            CHECK(status || out[0] == 9);
            CHECK_EQ_INT(io_open_descriptors(), before);
        }
    }
}

WEIR_TEST_SUITE(tokens, TEST(tokens_of_16_and_32_bits_are_read),
                TEST(long_files_are_read_from_any_place),
                TEST(other_files_are_refused_with_the_reason), TEST(file_without_tokens_is_empty),
                TEST(magic_is_recognised), TEST(reading_survives_any_failing_call))
