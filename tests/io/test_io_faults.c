/* SPDX-License-Identifier: MIT */
/*
 * Goal: whatever a system call answers, a save leaves the old file or the new one, whole, and a
 * load gives everything or nothing; the message says which file, why, and how to mend it; nothing
 * is leaked, and the next save succeeds. Method: every way of saving and loading, every call of it,
 * every errno that it may get, once and from there on; and a disk that fills up at every byte.
 */
#include "harness.h"

#include "data/array.h"
#include "data/corpus.h"
#include "io/safetensors.h"
#include "data/tokens.h"
#include "io/io_faults.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CALLS_MAX 200
#define NUMBERS 30000 /* 120 KB: several writes */

struct place {
    const char *directory;
    char path[512], partial[520];
    struct weir_error error;
    struct weir__io io;
};

struct operation {
    const char *name;
    /** Makes what the operation works on; leaves the path of the file in the place. */
    void (*prepare)(struct place *place);
    /** Saves, or loads and hashes all that was read into `result`. */
    int (*run)(struct place *place, uint64_t *result);
    bool saves;
};

static const char old_text[] = "the old file";
static float numbers[NUMBERS];

static void place_init(struct place *place) {
    memset(place, 0, sizeof *place);
    place->directory = test_temporary_directory();
    place->io = (struct weir__io){test_allocator(), io_faults_calls(), &place->error};
    io_faults_at(0, false, IO_FAULT_FAIL, 0);
    for (uint32_t i = 0; i < NUMBERS; i++) numbers[i] = (float)i;
}

/* ---- saves ---- */

static void prepare_old(struct place *place) {
    io_make_file(place->directory, "file", old_text, strlen(old_text), place->path);
}

static void prepare_none(struct place *place) {
    prepare_old(place);
    remove(place->path);
}

static void prepare_left_over(struct place *place) {
    char partial[512];
    prepare_old(place);
    io_make_file(place->directory, "file.partial", "left over", 9, partial);
}

static int save_pieces(struct place *place, uint64_t *result) {
    struct weir__file file;
    size_t step = 1, bytes = sizeof numbers;
    (void)result;
    int status = weir__file_begin(&place->io, place->path, &file);
    if (status) return status;
    for (size_t done = 0; done < bytes; done += step, step = step * 5 % 20011) {
        size_t piece = bytes - done < step ? bytes - done : step;
        weir__file_write(&file, (const char *)numbers + done, piece);
    }
    return weir__file_commit(&file);
}

static int save_tensors(struct place *place, uint64_t *result) {
    const struct weir__safetensors_item items[] = {
        {.name = "w", .dtype = WEIR_F32, .rank = 2, .shape = {100, 300}, .data = numbers},
        {.name = "b", .dtype = WEIR_F32, .rank = 1, .shape = {300}, .data = numbers},
        {.name = "v", .dtype = WEIR_F32, .rank = 2, .shape = {100, 250}, .data = numbers}};
    (void)result;
    return weir__safetensors_save(&place->io, place->path, items, 3, NULL, 0);
}

/* By a link in another folder, which stays one. */
static int save_by_link(struct place *place, uint64_t *result) {
    char link[600];
    struct stat facts;
    struct place linked = *place;
    snprintf(link, sizeof link, "%s.link", place->path);
    if (lstat(link, &facts) != 0) EXPECT_EQ_INT(symlink(place->path, link), 0);
    snprintf(linked.path, sizeof linked.path, "%.500s", link);
    linked.io.error = &place->error;
    int status = save_pieces(&linked, result);
    EXPECT(lstat(link, &facts) == 0 && S_ISLNK(facts.st_mode));
    return status;
}

/* ---- loads ---- */

static void prepare_tensors(struct place *place) {
    prepare_none(place);
    EXPECT_STATUS(save_tensors(place, NULL), WEIR_OK);
}

static int load_tensors(struct place *place, uint64_t *result) {
    struct weir__safetensors *file = NULL;
    int status = weir__safetensors_open(&place->io, place->path, NULL, &file);
    EXPECT_EQ_INT(status == WEIR_OK, file != NULL);
    for (uint32_t i = 0; file && i < weir__safetensors_count(file); i++) {
        const struct weir__safetensor *tensor = weir__safetensors_get(file, i);
        *result = weir__hash(*result, tensor->data, tensor->bytes);
    }
    weir__safetensors_close(file);
    return status;
}

static void prepare_bytes(struct place *place) {
    io_make_file(place->directory, "file", numbers, sizeof numbers, place->path);
}

static int load_bytes(struct place *place, uint64_t *result) {
    struct weir__bytes bytes = {0};
    int status = weir__file_read(&place->io, place->path, sizeof numbers, &bytes);
    EXPECT_EQ_INT(status == WEIR_OK, bytes.data != NULL);
    *result = weir__hash(*result, bytes.data, bytes.count);
    weir__bytes_release(test_allocator(), &bytes);
    return status;
}

static void prepare_folder(struct place *place) {
    static char text[3][700];
    char path[512];
    static const char *const names[] = {"a", "b", "c"};
    for (int i = 0; i < 3; i++) {
        for (size_t k = 0; k < sizeof text[i]; k++) text[i][k] = (char)('a' + (k * 7 + i) % 26);
        io_make_file(place->directory, names[i], text[i], sizeof text[i], path);
    }
    snprintf(place->path, sizeof place->path, "%s", place->directory);
}

static int load_folder(struct place *place, uint64_t *result) {
    const char *path = place->path;
    struct weir__corpus_options options = {.paths = &path, .path_count = 1, .context = 4};
    struct weir__corpus corpus = {0};
    int status = weir__corpus_open(&place->io, &options, &corpus);
    *result = weir__hash(*result, &corpus.fingerprint, sizeof corpus.fingerprint);
    weir__corpus_clean_up(&corpus);
    return status;
}

static void prepare_array(struct place *place) {
    static unsigned char bytes[4 + 8 + 20000] = {0, 0, 0x08, 2, 0, 0, 0, 100, 0, 0, 0, 200};
    for (size_t i = 12; i < sizeof bytes; i++) bytes[i] = (unsigned char)(i * 7);
    io_make_file(place->directory, "file", bytes, sizeof bytes, place->path);
}

static int load_array(struct place *place, uint64_t *result) {
    static int64_t out[20000];
    struct weir__array array;
    int status = weir__array_open(&place->io, place->path, &array);
    if (status) return status;
    status = weir__array_read_i64(&array, &place->io, 0, 20000, out);
    *result = weir__hash(*result, out, sizeof out);
    weir__array_close(&array);
    return status;
}

static void prepare_tokens(struct place *place) {
    static int32_t bytes[256 + 10000] = {20240801, 7, 10000};
    for (int32_t i = 256; i < 256 + 10000; i++) bytes[i] = i;
    io_make_file(place->directory, "file", bytes, sizeof bytes, place->path);
}

static int load_tokens(struct place *place, uint64_t *result) {
    static int64_t out[10000];
    struct weir__tokens tokens;
    int status = weir__tokens_open(&place->io, place->path, &tokens);
    if (status) return status;
    status = weir__tokens_read(&tokens, &place->io, 0, 10000, out);
    *result = weir__hash(*result, out, sizeof out);
    weir__tokens_close(&tokens);
    return status;
}

/* ---- the matrix ---- */

static const struct operation operations[] = {
    {"saving in pieces", prepare_old, save_pieces, true},
    {"saving a new file", prepare_none, save_pieces, true},
    {"saving over a left-over", prepare_left_over, save_pieces, true},
    {"saving by a link", prepare_old, save_by_link, true},
    {"saving tensors", prepare_old, save_tensors, true},
    {"loading tensors", prepare_tensors, load_tensors, false},
    {"loading a file", prepare_bytes, load_bytes, false},
    {"loading a folder", prepare_folder, load_folder, false},
    {"loading an array", prepare_array, load_array, false},
    {"loading tokens", prepare_tokens, load_tokens, false},
};

static const int reasons[] = {EIO,    ENOSPC, EDQUOT, EFBIG, EACCES, EPERM,  EROFS,  EMFILE,
                              ENFILE, ENOMEM, EINTR,  ELOOP, ESTALE, ENODEV, EINVAL, ENAMETOOLONG};

/* What the operation makes or reads when nothing is wrong. */
struct sound {
    char *bytes; /* of the file; NULL for loads */
    size_t count;
    uint64_t result;
};

static void record_sound(const struct operation *operation, struct place *place,
                         struct sound *sound) {
    struct weir__io io = {.allocator = test_allocator()};
    struct weir__bytes bytes;
    *sound = (struct sound){.result = WEIR__HASH_BEGIN};
    operation->prepare(place);
    EXPECT_STATUS(operation->run(place, &sound->result), WEIR_OK);
    if (!operation->saves || test_has_failed()) return;
    if (!EXPECT_STATUS(weir__file_read(&io, place->path, 1 << 20, &bytes), WEIR_OK)) return;
    sound->bytes = malloc(bytes.count);
    sound->count = bytes.count;
    if (EXPECT(sound->bytes)) memcpy(sound->bytes, bytes.data, bytes.count);
    weir__bytes_release(test_allocator(), &bytes);
}

/* The old file: the one that was prepared, or none. */
static bool is_old(const struct operation *operation, const struct place *place) {
    if (operation->prepare == prepare_none) return access(place->path, F_OK) != 0;
    return io_file_is(place->path, old_text, strlen(old_text));
}

static void check_message(const struct place *place, int status, int number) {
    const char *message = place->error.message;
    EXPECT_STATUS(status, place->error.status);
    EXPECT_CONTAINS(message, place->directory);
    if (status == WEIR_ERR_OUT_OF_MEMORY) {
        EXPECT(number == ENOMEM);
        EXPECT_CONTAINS(message, "out of memory");
        return;
    }
    EXPECT_STATUS(status, WEIR_ERR_IO);
    /* A left-over that could not be removed is told as what it is. */
    bool left_over = strstr(message, "File exists: remove it") != NULL;
    if (number && !left_over) EXPECT_CONTAINS(message, strerror(number));
    const char *colon = strrchr(message, ':'); /* behind it the way out */
    EXPECT(colon && strlen(colon) > 8);
}

static void check_after(const struct operation *operation, struct place *place,
                        const struct sound *sound, int status, uint64_t result) {
    bool written = strstr(place->error.message, "is written, but its folder") != NULL;
    if (!operation->saves) {
        if (status == WEIR_OK) EXPECT_EQ_UINT(result, sound->result);
        return;
    }
    if (status == WEIR_OK || written) {
        EXPECT(io_file_is(place->path, sound->bytes, sound->count));
    } else {
        EXPECT(is_old(operation, place));
    }
}

/* Whatever was left, the next save replaces it. */
static void check_next_save(const struct operation *operation, struct place *place,
                            const struct sound *sound) {
    if (!operation->saves) return;
    EXPECT_STATUS(operation->run(place, NULL), WEIR_OK);
    EXPECT(io_file_is(place->path, sound->bytes, sound->count));
    EXPECT(access(place->partial, F_OK) != 0);
}

/* One fault; false when there was no such call. */
static bool run_under_fault(const struct operation *operation, struct place *place,
                            const struct sound *sound, uint64_t k, bool persistent,
                            enum io_fault fault, int number) {
    uint64_t result = WEIR__HASH_BEGIN;
    if (operation->saves) operation->prepare(place);
    snprintf(place->partial, sizeof place->partial, "%s.partial", place->path);
    place->error = (struct weir_error){0};
    int before = io_open_descriptors();
    io_faults_at(k, persistent, fault, number);
    int status = operation->run(place, &result);
    bool fired = io_faults_fired();
    io_faults_at(0, false, fault, 0);
    EXPECT_EQ_INT(io_open_descriptors(), before);
    EXPECT_EQ_UINT(test_allocator_live_blocks(), 0);
    EXPECT(fired || status == WEIR_OK);
    if (status) check_message(place, status, fault == IO_FAULT_FAIL ? number : 0);
    if (status && !persistent && operation->prepare != prepare_left_over) {
        EXPECT(access(place->partial, F_OK) != 0);
    }
    check_after(operation, place, sound, status, result);
    if (persistent) check_next_save(operation, place, sound);
    if (test_has_failed()) {
        TEST_FAIL("%s, call %u%s, %s: '%s'", operation->name, (unsigned)k,
                  persistent ? " and all behind it" : "",
                  fault == IO_FAULT_FAIL ? strerror(number) : "another fault",
                  place->error.message);
    }
    return fired && !test_has_failed();
}

/* Over every k; the number of calls. */
static uint64_t run_under_faults(const struct operation *operation, struct place *place,
                                 const struct sound *sound, bool persistent, enum io_fault fault,
                                 int number) {
    uint64_t k = 1;
    while (k < CALLS_MAX &&
           run_under_fault(operation, place, sound, k, persistent, fault, number)) {
        k++;
    }
    EXPECT(k < CALLS_MAX);
    return k - 1;
}

static void for_every_operation(void (*test)(const struct operation *operation, struct place *place,
                                             const struct sound *sound)) {
    for (size_t i = 0; i < sizeof operations / sizeof operations[0]; i++) {
        struct place place;
        struct sound sound;
        place_init(&place);
        record_sound(&operations[i], &place, &sound);
        if (!test_has_failed()) test(&operations[i], &place, &sound);
        free(sound.bytes);
        CHECK_HELPERS();
    }
}

static void fail_calls(const struct operation *operation, struct place *place,
                       const struct sound *sound) {
    for (size_t i = 0; i < sizeof reasons / sizeof reasons[0] && !test_has_failed(); i++) {
        uint64_t calls =
            run_under_faults(operation, place, sound, false, IO_FAULT_FAIL, reasons[i]);
        EXPECT(calls >= (operation->saves ? 11 : 4));
        bool often = reasons[i] == EIO || reasons[i] == ENOSPC || reasons[i] == EMFILE;
        if (often) run_under_faults(operation, place, sound, true, IO_FAULT_FAIL, reasons[i]);
    }
}

static void test_every_failing_call_is_told_and_does_no_harm(void) {
    for_every_operation(fail_calls);
}

static void shorten_calls(const struct operation *operation, struct place *place,
                          const struct sound *sound) {
    static const enum io_fault faults[] = {IO_FAULT_SHORT, IO_FAULT_INTERRUPT, IO_FAULT_FULL};
    for (int i = 0; i < 3; i++) {
        run_under_faults(operation, place, sound, false, faults[i], 0);
        /* From there on byte by byte would be a matter of patience. */
        if (faults[i] == IO_FAULT_SHORT) continue;
        run_under_faults(operation, place, sound, true, faults[i], 0);
    }
}

static void test_short_interrupted_and_idle_calls_do_no_harm(void) {
    for_every_operation(shorten_calls);
}

/* At every write's borders and at random bytes between. */
static void fill_disk(const struct operation *operation, struct place *place,
                      const struct sound *sound) {
    if (!operation->saves) return;
    for (uint32_t i = 0; i < 120 && !test_has_failed(); i++) {
        size_t room = i < 20 ? i : test_random_below(sound->count);
        operation->prepare(place);
        snprintf(place->partial, sizeof place->partial, "%s.partial", place->path);
        place->error = (struct weir_error){0};
        io_faults_room(room);
        int status = operation->run(place, NULL);
        EXPECT(io_faults_fired());
        io_faults_at(0, false, IO_FAULT_FAIL, 0);
        check_message(place, status, ENOSPC);
        EXPECT_CONTAINS(place->error.message, "make room");
        EXPECT(is_old(operation, place));
        EXPECT(access(place->partial, F_OK) != 0);
        check_next_save(operation, place, sound);
    }
    io_faults_room(sound->count);
    EXPECT_STATUS(operation->run(place, NULL), WEIR_OK);
    io_faults_at(0, false, IO_FAULT_FAIL, 0);
}

static void test_a_disk_that_fills_up_leaves_the_old_file(void) {
    for_every_operation(fill_disk);
}

/* What cannot be unlinked is not replaced either, and says what to do. */
static void test_a_folder_in_the_partial_files_place_is_refused(void) {
    struct place place;
    uint64_t result = 0;
    place_init(&place);
    prepare_old(&place);
    snprintf(place.partial, sizeof place.partial, "%s.partial", place.path);
    CHECK_EQ_INT(mkdir(place.partial, 0700), 0);
    CHECK_STATUS(save_pieces(&place, &result), WEIR_ERR_IO);
    CHECK_CONTAINS(place.error.message, "file.partial: File exists: remove it");
    CHECK(io_file_is(place.path, old_text, strlen(old_text)));
    CHECK_EQ_INT(rmdir(place.partial), 0);
    CHECK_OK(save_pieces(&place, &result));
}

WEIR_TEST_SUITE(io_faults, TEST(every_failing_call_is_told_and_does_no_harm),
                TEST(short_interrupted_and_idle_calls_do_no_harm),
                TEST(a_disk_that_fills_up_leaves_the_old_file),
                TEST(a_folder_in_the_partial_files_place_is_refused))
