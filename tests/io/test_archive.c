/* SPDX-License-Identifier: MIT */
/*
 * Goal: a checkpoint's folder gives back what was written, however it was cut, and is at any moment
 * the former save or the new one, whole; what is damaged is named and not read. Method: random
 * tensors cut at random places among random writers; every call failing; every file missing, cut,
 * grown or with a byte flipped; indexes that say what cannot be.
 */
#include "harness.h"

#include "io/archive.h"
#include "io/io_faults.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TENSORS = 5, WRITERS_MAX = 4, ELEMENTS_MAX = 600, CALLS_MAX = 400, PATH_BYTES = 600 };

/* What is saved: all that `seed` draws. */
struct content {
    char names[TENSORS][16];
    int64_t shapes[TENSORS][2];
    float values[TENSORS][ELEMENTS_MAX];
};

struct folder {
    char path[512];
    struct weir_error error;
    struct weir__io io;
};

static uint32_t elements_of(const struct content *content, uint32_t t) {
    return (uint32_t)(content->shapes[t][0] * content->shapes[t][1]);
}

/* Shapes are those of every save, as a net's are. */
static void content_init(struct content *content, uint32_t save) {
    for (uint32_t t = 0; t < TENSORS; t++) {
        snprintf(content->names[t], sizeof content->names[t], "tensor.%u", (TENSORS - t) * 7);
        content->shapes[t][0] = 1 + t * 7;
        content->shapes[t][1] = 20 - 3 * t;
        for (uint32_t i = 0; i < elements_of(content, t); i++)
            content->values[t][i] = (float)(save * 1000000 + t * 1000 + i);
    }
}

static void folder_init(struct folder *folder, const char *name) {
    memset(folder, 0, sizeof *folder);
    snprintf(folder->path, sizeof folder->path, "%s/%s", test_temporary_directory(), name);
    folder->io = (struct weir__io){test_allocator(), io_faults_calls(), &folder->error};
    io_faults_at(0, false, IO_FAULT_FAIL, 0);
}

/* ---- writing ---- */

/* Who writes which elements. */
struct cut {
    uint32_t writer, tensor, begin, end;
};

static uint32_t draw_cuts(const struct content *content, uint32_t writers, struct cut *cuts) {
    uint32_t count = 0;
    for (uint32_t t = 0; t < TENSORS; t++) {
        uint32_t at = 0, all = elements_of(content, t);
        for (uint32_t p = 0; at < all; p++) {
            bool last = p + 1 == writers || test_random_below(2) == 0;
            uint32_t end = last ? all : at + 1 + (uint32_t)test_random_below(all - at);
            uint32_t writer = (t + p) % writers;
            cuts[count++] = (struct cut){writer, t, at, end};
            at = end;
        }
    }
    return count;
}

static int write_part(struct folder *folder, const struct content *content, const char *name,
                      uint32_t writer, const struct cut *cuts, uint32_t count) {
    struct weir__archive_piece pieces[TENSORS * WRITERS_MAX];
    uint32_t used = 0;
    for (uint32_t i = 0; i < count; i++) {
        const struct cut *cut = &cuts[i];
        if (cut->writer != writer) continue;
        bool whole = cut->end - cut->begin == elements_of(content, cut->tensor);
        pieces[used++] = (struct weir__archive_piece){
            .item = {.name = content->names[cut->tensor],
                     .dtype = WEIR_F32,
                     .rank = 2,
                     .shape = {content->shapes[cut->tensor][0], content->shapes[cut->tensor][1]},
                     .data = &content->values[cut->tensor][cut->begin]},
            .whole = whole,
            .begin = cut->begin,
            .count = cut->end - cut->begin};
    }
    int status = weir__archive_prepare(&folder->io, folder->path);
    if (status != WEIR_OK) return status;
    return weir__archive_write(&folder->io, folder->path, name, pieces, used);
}

static int save(struct folder *folder, uint32_t number, uint32_t writers, bool commits) {
    static struct content content;
    struct cut cuts[TENSORS * WRITERS_MAX];
    char names[WRITERS_MAX][WEIR__PART_NAME_BYTES], text[16];
    const char *parts[WRITERS_MAX];
    struct weir__safetensors_item tensors[TENSORS] = {{0}};
    const struct weir__safetensors_text note = {"save", text};
    content_init(&content, number);
    uint32_t count = draw_cuts(&content, writers, cuts);
    for (uint32_t w = 0; w < writers; w++) {
        weir__part_name(7, number * 0x1234567, w, names[w]);
        parts[w] = names[w];
        int status = write_part(folder, &content, names[w], w, cuts, count);
        if (status != WEIR_OK) return status;
    }
    for (uint32_t t = 0; t < TENSORS; t++)
        tensors[t] =
            (struct weir__safetensors_item){.name = content.names[t],
                                            .dtype = WEIR_F32,
                                            .rank = 2,
                                            .shape = {content.shapes[t][0], content.shapes[t][1]}};
    snprintf(text, sizeof text, "%u", number);
    const struct weir__archive_commit commit = {parts, writers, tensors, TENSORS, &note, 1};
    return commits ? weir__archive_commit(&folder->io, folder->path, &commit) : WEIR_OK;
}

/* ---- reading ---- */

static int compare(struct folder *folder, struct weir__archive *checkpoint,
                   const struct content *content, uint32_t t) {
    const struct weir__safetensor *tensor = weir__archive_find(checkpoint, content->names[t]);
    if (tensor == NULL || tensor->bytes != elements_of(content, t) * sizeof(float))
        return WEIR_ERR_NOT_FOUND;
    for (size_t at = 0; at < tensor->bytes;) {
        const void *data;
        size_t bytes;
        int status = weir__archive_next(&folder->io, checkpoint, tensor, at, &data, &bytes);
        if (status != WEIR_OK) return status;
        EXPECT_EQ_BYTES(data, (const char *)content->values[t] + at, bytes);
        if (test_random_below(4) == 0) weir__archive_drop(checkpoint, tensor);
        /* from the middle of a piece, too */
        at += bytes > 8 && test_random_below(2) == 0 ? 4 * (bytes / 8) : bytes;
    }
    return WEIR_OK;
}

/* All of it, which then is save `number`; fails the test where it is another. */
static int read_all(struct folder *folder, uint32_t number) {
    static struct content content;
    struct weir__archive *checkpoint;
    content_init(&content, number);
    int status = weir__archive_open(&folder->io, folder->path, &checkpoint);
    for (uint32_t t = 0; status == WEIR_OK && t < TENSORS; t++) {
        status = compare(folder, checkpoint, &content, t);
        if (status != WEIR_OK) weir__archive_close(checkpoint);
    }
    if (status == WEIR_OK) weir__archive_close(checkpoint);
    return status;
}

/* 0: there is none. */
static uint32_t saved_number(struct folder *folder) {
    struct weir__archive *checkpoint;
    if (weir__archive_open(&folder->io, folder->path, &checkpoint) != WEIR_OK) return 0;
    const char *text = weir__archive_metadata(checkpoint, "save");
    uint32_t number = text != NULL ? (uint32_t)atoi(text) : 0;
    weir__archive_close(checkpoint);
    return number;
}

static uint32_t count_files(const char *path, char names[][256], uint32_t most) {
    uint32_t count = 0;
    DIR *folder = opendir(path);
    for (struct dirent *entry; folder != NULL && (entry = readdir(folder)) != NULL;) {
        if (entry->d_name[0] == '.') continue;
        if (count < most) snprintf(names[count], 256, "%s", entry->d_name);
        count++;
    }
    if (folder != NULL) closedir(folder);
    return count;
}

static void expect_saved(struct folder *folder, uint32_t number, uint32_t writers) {
    EXPECT_EQ_UINT(saved_number(folder), number);
    EXPECT_STATUS(read_all(folder, number), WEIR_OK);
    EXPECT_EQ_UINT(count_files(folder->path, NULL, 0), writers + 1);
}

static void test_pieces_come_back_however_they_were_cut(void) {
    struct folder folder;
    folder_init(&folder, "d");
    for (uint32_t i = 1; i <= 40 && !test_has_failed(); i++) {
        uint32_t writers = 1 + (uint32_t)test_random_below(WRITERS_MAX);
        EXPECT_STATUS(save(&folder, i, writers, true), WEIR_OK);
        expect_saved(&folder, i, writers);
    }
    EXPECT_EQ_UINT(test_allocator_live_blocks(), 0);
}

static void test_what_was_not_committed_changes_nothing(void) {
    struct folder folder;
    folder_init(&folder, "d");
    EXPECT_STATUS(save(&folder, 1, 2, false), WEIR_OK);
    EXPECT_STATUS(read_all(&folder, 1), WEIR_ERR_IO);
    EXPECT_CONTAINS(folder.error.message, "no save to it was ever complete");
    EXPECT(weir__archive_is_folder(&folder.io, folder.path));
    EXPECT_STATUS(save(&folder, 2, 3, true), WEIR_OK);
    EXPECT_STATUS(save(&folder, 3, 4, false), WEIR_OK);
    EXPECT_EQ_UINT(saved_number(&folder), 2);
    EXPECT_STATUS(read_all(&folder, 2), WEIR_OK);
    EXPECT_EQ_UINT(count_files(folder.path, NULL, 0), 3 + 4 + 1);
    EXPECT_STATUS(save(&folder, 4, 1, true), WEIR_OK);
    expect_saved(&folder, 4, 1);
}

/* ---- failing calls ---- */

static bool is_new_already(const struct folder *folder) {
    const char *message = folder->error.message;
    return strstr(message, "superseded") != NULL || strstr(message, "read the folder") != NULL ||
           strstr(message, "open the folder") != NULL ||
           strstr(message, "could not be flushed") != NULL;
}

/* One failing call of a save over save 1; false when there was no such call. */
static bool save_under_fault(struct folder *folder, uint64_t k, bool persistent) {
    EXPECT_STATUS(save(folder, 1, 3, true), WEIR_OK);
    int before = io_open_descriptors();
    folder->error = (struct weir_error){0};
    io_faults_at(k, persistent, IO_FAULT_FAIL, EIO);
    int status = save(folder, 2, 2, true);
    bool fired = io_faults_fired();
    io_faults_at(0, false, IO_FAULT_FAIL, 0);
    EXPECT_EQ_INT(io_open_descriptors(), before);
    EXPECT_EQ_UINT(test_allocator_live_blocks(), 0);
    EXPECT(fired || status == WEIR_OK);
    uint32_t number = saved_number(folder);
    if (status == WEIR_OK)
        EXPECT_EQ_UINT(number, 2);
    else
        EXPECT(number == 1 || (number == 2 && is_new_already(folder)));
    EXPECT_STATUS(read_all(folder, number), WEIR_OK);
    EXPECT_STATUS(save(folder, 3, 2, true), WEIR_OK);
    expect_saved(folder, 3, 2);
    if (test_has_failed())
        TEST_FAIL("call %u%s: %s", (unsigned)k, persistent ? " and on" : "", folder->error.message);
    return fired && !test_has_failed();
}

static void test_a_save_that_fails_leaves_the_former(void) {
    struct folder folder;
    folder_init(&folder, "d");
    for (int persistent = 0; persistent < 2; persistent++) {
        uint64_t k = 1;
        while (k < CALLS_MAX && save_under_fault(&folder, k, persistent == 1)) k++;
        EXPECT(k > 20 && k < CALLS_MAX);
    }
}

static void test_a_read_that_fails_gives_nothing_wrong(void) {
    struct folder folder;
    folder_init(&folder, "d");
    EXPECT_STATUS(save(&folder, 1, 3, true), WEIR_OK);
    bool fired = true;
    for (uint64_t k = 1; fired && k < CALLS_MAX && !test_has_failed(); k++) {
        int before = io_open_descriptors();
        io_faults_at(k, false, IO_FAULT_FAIL, EIO);
        int status = read_all(&folder, 1);
        fired = io_faults_fired();
        io_faults_at(0, false, IO_FAULT_FAIL, 0);
        EXPECT(fired || status == WEIR_OK);
        EXPECT_EQ_INT(io_open_descriptors(), before);
        EXPECT_EQ_UINT(test_allocator_live_blocks(), 0);
    }
    for (uint64_t k = 1; k < CALLS_MAX && !test_has_failed(); k++) {
        test_allocator_fail_at(k, false);
        int status = read_all(&folder, 1);
        fired = test_allocator_fired();
        test_allocator_fail_at(0, false);
        EXPECT_STATUS(status, fired ? WEIR_ERR_OUT_OF_MEMORY : WEIR_OK);
        EXPECT_EQ_UINT(test_allocator_live_blocks(), 0);
        if (!fired) break;
    }
}

/* ---- damage ---- */

static void damage_file(const char *path, uint32_t kind) {
    struct stat facts;
    EXPECT_EQ_INT(stat(path, &facts), 0);
    FILE *file = fopen(path, "r+b");
    if (!EXPECT(file != NULL)) return;
    long at = (long)test_random_below((uint64_t)facts.st_size);
    if (kind == 0) {
        fseek(file, at, SEEK_SET);
        int byte = fgetc(file);
        fseek(file, at, SEEK_SET);
        fputc(byte ^ (1 << test_random_below(8)), file);
    } else if (kind == 1) {
        fseek(file, 0, SEEK_END);
        fputc(0, file);
    }
    fclose(file);
    if (kind == 2) EXPECT_EQ_INT(truncate(path, at), 0);
    if (kind == 3) EXPECT_EQ_INT(unlink(path), 0);
}

static void test_a_damaged_part_is_named_and_not_read(void) {
    struct folder folder;
    char names[8][256], path[PATH_BYTES];
    folder_init(&folder, "d");
    for (uint32_t i = 0; i < 200 && !test_has_failed(); i++) {
        uint32_t writers = 1 + (uint32_t)test_random_below(3);
        EXPECT_STATUS(save(&folder, 1 + i, writers, true), WEIR_OK);
        uint32_t count = count_files(folder.path, names, 8);
        const char *name = names[test_random_below(count)];
        bool index = strcmp(name, WEIR__ARCHIVE_INDEX) == 0;
        snprintf(path, sizeof path, "%s/%s", folder.path, name);
        damage_file(path, i % 4);
        folder.error = (struct weir_error){0};
        int status = read_all(&folder, 1 + i);
        /* a note may be another one, which nobody can know */
        if (index && status == WEIR_OK) continue;
        EXPECT(status != WEIR_OK);
        if (!index) EXPECT_CONTAINS(folder.error.message, name);
        if (test_has_failed()) TEST_FAIL("kind %u of %s: %s", i % 4, name, folder.error.message);
    }
    EXPECT_EQ_UINT(test_allocator_live_blocks(), 0);
}

static void test_a_part_of_another_save_is_refused(void) {
    struct folder folder, other;
    char names[8][256], from[PATH_BYTES], to[PATH_BYTES];
    folder_init(&folder, "d");
    folder_init(&other, "o");
    EXPECT_STATUS(save(&folder, 1, 1, true), WEIR_OK);
    EXPECT_STATUS(save(&other, 2, 1, true), WEIR_OK);
    EXPECT_EQ_UINT(count_files(folder.path, names, 8), 2);
    snprintf(to, sizeof to, "%s/%s", folder.path, names[strncmp(names[0], "part", 4) != 0]);
    EXPECT_EQ_UINT(count_files(other.path, names, 8), 2);
    snprintf(from, sizeof from, "%s/%s", other.path, names[strncmp(names[0], "part", 4) != 0]);
    EXPECT_EQ_INT(rename(from, to), 0);
    EXPECT_STATUS(read_all(&folder, 1), WEIR_ERR_FORMAT);
    EXPECT_CONTAINS(folder.error.message, "has another header than was saved");
}

static void refuse_index(struct folder *folder, const char *text, const char *part) {
    char path[512];
    struct weir__archive *checkpoint;
    io_make_file(folder->path, WEIR__ARCHIVE_INDEX, text, strlen(text), path);
    int status = weir__archive_open(&folder->io, folder->path, &checkpoint);
    if (!EXPECT(status != WEIR_OK)) weir__archive_close(checkpoint);
    EXPECT_CONTAINS(folder->error.message, WEIR__ARCHIVE_INDEX);
    EXPECT_CONTAINS(folder->error.message, part);
}

#define HEAD "{\"format\":\"weir checkpoint\",\"version\":1,\"metadata\":{},"
#define FILES "\"files\":[{\"name\":\"a\",\"bytes\":9,\"digest\":\"0123456789abcdef\"}],"
#define TENSOR(pieces)                                                                             \
    HEAD FILES "\"tensors\":{\"t\":{\"dtype\":\"F32\",\"shape\":[6],\"pieces\":" pieces "}}}"

static void test_an_index_that_cannot_be_is_refused(void) {
    struct folder folder;
    folder_init(&folder, "d");
    EXPECT_EQ_INT(mkdir(folder.path, 0777), 0);
    refuse_index(&folder, "{", "damaged at byte");
    refuse_index(&folder, "{\"format\":\"another\",\"version\":1}", "not the index");
    refuse_index(&folder, "{\"format\":\"weir checkpoint\",\"version\":2}", "take a newer Weir");
    refuse_index(&folder,
                 HEAD "\"files\":[{\"name\":\"../a\",\"bytes\":9,\"digest\":\"0123456789abcdef\"}],"
                      "\"tensors\":{}}",
                 "file 0 has no name");
    refuse_index(&folder,
                 HEAD "\"files\":[{\"name\":\"a\",\"bytes\":-9,\"digest\":\"0123456789abcdef\"}],"
                      "\"tensors\":{}}",
                 "file 0 has no name");
    refuse_index(&folder, HEAD FILES "\"tensors\":[]}", "\"tensors\" is no object");
    refuse_index(&folder, HEAD FILES "\"tensors\":{\"t\":{\"dtype\":\"F3\"}}}", "no dtype");
    refuse_index(&folder, TENSOR("[[0,0,5]]"), "end at element 5 of 6");
    refuse_index(&folder, TENSOR("[[0,0,7]]"), "end at element 7 of 6");
    refuse_index(&folder, TENSOR("[[0,1,6]]"), "a hole at element 0");
    refuse_index(&folder, TENSOR("[[0,0,4],[0,3,6]]"), "a hole at element 4");
    refuse_index(&folder, TENSOR("[[1,0,6]]"), "no [file, begin, end]");
    refuse_index(&folder, TENSOR("[[0,0]]"), "no [file, begin, end]");
    EXPECT_EQ_UINT(test_allocator_live_blocks(), 0);
}

/* ---- other folders ---- */

static uint64_t digest_of(struct folder *folder) {
    struct weir__archive *checkpoint = NULL;
    if (!EXPECT_STATUS(weir__archive_open(&folder->io, folder->path, &checkpoint), WEIR_OK))
        return 0;
    uint64_t digest = weir__archive_digest(checkpoint);
    weir__archive_close(checkpoint);
    return digest;
}

/* Transformers' shards, in whose index there are names alone. */
static void test_another_byte_in_any_shard_is_another_digest(void) {
    static struct content content;
    const struct cut cuts[] = {{0, 0, 0, 20}, {1, 1, 0, 8 * 17}};
    struct folder folder;
    char names[2][WEIR__PART_NAME_BYTES], text[512], path[PATH_BYTES];
    folder_init(&folder, "shards");
    content_init(&content, 1);
    for (uint32_t w = 0; w < 2; w++) {
        weir__part_name(1, 1, w, names[w]);
        EXPECT_STATUS(write_part(&folder, &content, names[w], w, cuts, 2), WEIR_OK);
    }
    snprintf(text, sizeof text, "{\"weight_map\": {\"%s\": \"%s\", \"%s\": \"%s\"}}",
             content.names[0], names[0], content.names[1], names[1]);
    io_make_file(folder.path, "model.safetensors.index.json", text, strlen(text), path);
    uint64_t digest = digest_of(&folder);
    for (uint32_t w = 0; w < 2 && !test_has_failed(); w++) {
        uint64_t before = digest;
        EXPECT(digest_of(&folder) == before);
        snprintf(path, sizeof path, "%s/%s", folder.path, names[w]);
        FILE *file = fopen(path, "r+");
        if (!EXPECT(file != NULL)) return;
        fseek(file, -1, SEEK_END);
        fputc(0x11, file); /* a number's, and no header's */
        fclose(file);
        digest = digest_of(&folder);
        EXPECT(digest != before);
    }
    EXPECT_EQ_UINT(test_allocator_live_blocks(), 0);
}

/* ---- other names ---- */

static int no_link(const char *from, const char *to) {
    (void)from, (void)to;
    errno = EPERM;
    return -1;
}

static void test_another_name_outlives_the_first(void) {
    for (int links = 0; links < 2; links++) {
        struct folder from, to;
        struct weir__io_calls calls = *io_faults_calls();
        folder_init(&from, links == 1 ? "linked" : "copied");
        folder_init(&to, links == 1 ? "linked-to" : "copied-to");
        if (links == 0) calls.link = no_link;
        to.io.calls = &calls;
        if (links == 0) EXPECT_STATUS(save(&to, 1, 3, true), WEIR_OK); /* else it is a new one */
        EXPECT_STATUS(save(&from, 2, 2, true), WEIR_OK);
        EXPECT_STATUS(weir__archive_alias(&to.io, from.path, to.path), WEIR_OK);
        expect_saved(&to, 2, 2);
        EXPECT_STATUS(weir__archive_alias(&to.io, from.path, to.path), WEIR_OK);
        EXPECT_STATUS(weir__archive_remove(&from.io, from.path), WEIR_OK);
        EXPECT(access(from.path, F_OK) != 0);
        EXPECT_STATUS(weir__archive_remove(&from.io, from.path), WEIR_OK);
        expect_saved(&to, 2, 2);
    }
}

static void test_other_files_are_neither_taken_for_parts_nor_removed(void) {
    struct folder folder;
    char path[512], inner[512];
    folder_init(&folder, "d");
    EXPECT_STATUS(save(&folder, 1, 2, true), WEIR_OK);
    io_make_file(folder.path, "part-7-notes.txt", "mine", 4, inner);
    EXPECT_STATUS(save(&folder, 2, 2, true), WEIR_OK);
    EXPECT_EQ_UINT(saved_number(&folder), 2);
    EXPECT_STATUS(weir__archive_remove(&folder.io, folder.path), WEIR_OK);
    EXPECT(io_file_is(inner, "mine", 4));
    EXPECT_EQ_UINT(count_files(folder.path, NULL, 0), 1);
    EXPECT_STATUS(save(&folder, 3, 2, true), WEIR_ERR_IO);
    EXPECT_CONTAINS(folder.error.message, "part-7-notes.txt");
    EXPECT(!weir__archive_takes(&folder.io, folder.path));
    EXPECT(io_file_is(inner, "mine", 4));
    io_make_file(test_temporary_directory(), "file", "mine", 4, path);
    snprintf(folder.path, sizeof folder.path, "%s", path);
    EXPECT_STATUS(save(&folder, 1, 2, true), WEIR_ERR_IO);
    EXPECT_CONTAINS(folder.error.message, "it is a file");
    EXPECT(io_file_is(path, "mine", 4));
}

WEIR_TEST_SUITE(archive, TEST(pieces_come_back_however_they_were_cut),
                TEST(what_was_not_committed_changes_nothing),
                TEST(a_save_that_fails_leaves_the_former),
                TEST(a_read_that_fails_gives_nothing_wrong),
                TEST(a_damaged_part_is_named_and_not_read), TEST(a_part_of_another_save_is_refused),
                TEST(an_index_that_cannot_be_is_refused),
                TEST(another_byte_in_any_shard_is_another_digest),
                TEST(another_name_outlives_the_first),
                TEST(other_files_are_neither_taken_for_parts_nor_removed))
