/* SPDX-License-Identifier: MIT */
/* The disk that loses power; see power_cut.h. */
#include "io/power_cut.h"

#include "harness.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STEPS_MAX 4096
#define FILES_MAX 16
#define DESCRIPTORS_MAX 1024
#define NOTHING 0 /* the number of no file */

enum step_kind { STEP_WRITE, STEP_FLUSH, STEP_NAME, STEP_FLUSH_FOLDER };
enum name { NAME_FILE, NAME_PARTIAL, NAMES };

struct step {
    enum step_kind kind;
    uint32_t file;  /* written, flushed, or what `name` leads to from now on */
    enum name name; /* STEP_NAME */
    size_t offset;  /* STEP_WRITE: from where to where */
    size_t count;
};

/* Files are numbered from 1; their bytes are only ever added at the end, as a writer does. */
static struct {
    enum power_cut_lie lie;
    char paths[NAMES][600];
    uint32_t first[NAMES]; /* what the names lead to before step 1 */
    uint32_t now[NAMES];
    struct step steps[STEPS_MAX];
    uint32_t step_count;
    uint32_t adopted; /* steps that adopt() made: they are no place for a cut */
    struct {
        char *bytes;
        size_t count;
    } files[FILES_MAX];
    uint32_t file_count;
    uint32_t of_descriptor[DESCRIPTORS_MAX]; /* file, or NOTHING */
    bool is_folder[DESCRIPTORS_MAX];
} disk;

static const struct weir__io_calls *real(void) {
    return &weir__io_calls_system;
}

static void note(struct step step) {
    if (disk.step_count == STEPS_MAX) {
        TEST_FAIL("more than %d steps", STEPS_MAX);
        return;
    }
    disk.steps[disk.step_count++] = step;
}

static void append(uint32_t file, const void *data, size_t count) {
    char *bytes = realloc(disk.files[file].bytes, disk.files[file].count + count + 1);
    if (!bytes) {
        TEST_FAIL("out of memory");
        return;
    }
    memcpy(bytes + disk.files[file].count, data, count);
    disk.files[file].bytes = bytes;
    disk.files[file].count += count;
}

/* ---- recording ---- */

static int name_of(const char *path) {
    for (int name = 0; name < NAMES; name++) {
        if (strcmp(disk.paths[name], path) == 0) return name;
    }
    return -1;
}

static void set_name(enum name name, uint32_t file) {
    disk.now[name] = file;
    note((struct step){.kind = STEP_NAME, .name = name, .file = file});
}

static int cut_open(const char *path, int flags, unsigned mode) {
    int descriptor = real()->open(path, flags, mode), name = name_of(path);
    if (descriptor < 0 || descriptor >= DESCRIPTORS_MAX) return descriptor;
    disk.is_folder[descriptor] = (flags & O_DIRECTORY) != 0;
    disk.of_descriptor[descriptor] = NOTHING;
    if (name < 0 || !(flags & O_CREAT)) return descriptor;
    if (!(flags & O_EXCL) || disk.file_count + 1 >= FILES_MAX) {
        TEST_FAIL("not recorded: opening %s", path);
        return descriptor;
    }
    disk.of_descriptor[descriptor] = ++disk.file_count;
    set_name((enum name)name, disk.file_count);
    return descriptor;
}

/* In steps of 16 KiB, so that the power may go in the middle of a long write. */
static ssize_t cut_write(int descriptor, const void *memory, size_t bytes) {
    ssize_t done = real()->write(descriptor, memory, bytes);
    uint32_t file = done > 0 ? disk.of_descriptor[descriptor] : NOTHING;
    for (ssize_t at = 0; file != NOTHING && at < done;) {
        size_t some = done - at < 16384 ? (size_t)(done - at) : 16384;
        note((struct step){STEP_WRITE, file, 0, disk.files[file].count, some});
        append(file, (const char *)memory + at, some);
        at += (ssize_t)some;
    }
    return done;
}

static int cut_fsync(int descriptor) {
    int status = real()->fsync(descriptor);
    if (status != 0) return status;
    if (disk.is_folder[descriptor] && disk.lie != POWER_CUT_NO_FOLDER_FLUSH) {
        note((struct step){.kind = STEP_FLUSH_FOLDER});
    }
    if (disk.of_descriptor[descriptor] != NOTHING && disk.lie != POWER_CUT_NO_FLUSH) {
        note((struct step){.kind = STEP_FLUSH, .file = disk.of_descriptor[descriptor]});
    }
    return 0;
}

static int cut_rename(const char *from, const char *to) {
    int status = real()->rename(from, to), old = name_of(from), new = name_of(to);
    if (status != 0) return status;
    if (old < 0 || new < 0) TEST_FAIL("not recorded: renaming %s", from);
    if (old < 0 || new < 0) return 0;
    set_name((enum name) new, disk.now[old]);
    set_name((enum name)old, NOTHING);
    return 0;
}

static int cut_unlink(const char *path) {
    int status = real()->unlink(path), name = name_of(path);
    if (status == 0 && name >= 0) set_name((enum name)name, NOTHING);
    return status;
}

const struct weir__io_calls *power_cut_calls(void) {
    static struct weir__io_calls calls;
    calls = weir__io_calls_system;
    calls.open = cut_open;
    calls.write = cut_write;
    calls.fsync = cut_fsync;
    calls.rename = cut_rename;
    calls.unlink = cut_unlink;
    return &calls;
}

/* A file that is there already, whole on the disk. */
static void adopt(enum name name) {
    char piece[4096];
    size_t got;
    FILE *file = fopen(disk.paths[name], "rb");
    if (!file) return;
    disk.first[name] = disk.now[name] = ++disk.file_count;
    while ((got = fread(piece, 1, sizeof piece, file)) > 0) append(disk.file_count, piece, got);
    fclose(file);
    note((struct step){
        .kind = STEP_WRITE, .file = disk.file_count, .count = disk.files[disk.file_count].count});
    note((struct step){.kind = STEP_FLUSH, .file = disk.file_count});
}

void power_cut_begin(const char *path, enum power_cut_lie lie) {
    power_cut_end();
    snprintf(disk.paths[NAME_FILE], sizeof disk.paths[0], "%s", path);
    snprintf(disk.paths[NAME_PARTIAL], sizeof disk.paths[0], "%s.partial", path);
    disk.lie = lie;
    adopt(NAME_FILE);
    adopt(NAME_PARTIAL);
    disk.adopted = disk.step_count;
}

void power_cut_end(void) {
    for (uint32_t i = 0; i < FILES_MAX; i++) free(disk.files[i].bytes);
    memset(&disk, 0, sizeof disk);
}

uint32_t power_cut_steps(void) {
    return disk.step_count - disk.adopted;
}

/* ---- the disk after a cut ---- */

/* What a name may lead to: what it did at the folder's last flush, and everything since. */
static uint32_t draw_name(uint32_t end, enum name name) {
    uint32_t begin = end, choices[STEPS_MAX + 1], count = 0, before = disk.first[name];
    while (begin > 0 && disk.steps[begin - 1].kind != STEP_FLUSH_FOLDER) begin--;
    for (uint32_t i = 0; i < end; i++) {
        bool changes = disk.steps[i].kind == STEP_NAME && disk.steps[i].name == name;
        if (i == begin) choices[count++] = before;
        if (changes) before = disk.steps[i].file;
        if (changes && i >= begin) choices[count++] = before;
    }
    if (count == 0) choices[count++] = before;
    return choices[test_random_below(count)];
}

/* How long the file was at its last flush, and is with everything that was written. */
static void find_lengths(uint32_t end, uint32_t file, size_t *flushed, size_t *written) {
    *flushed = *written = 0;
    for (uint32_t i = 0; i < end; i++) {
        const struct step *step = &disk.steps[i];
        if (step->file != file) continue;
        if (step->kind == STEP_WRITE) *written = step->offset + step->count;
        if (step->kind == STEP_FLUSH) *flushed = *written;
    }
}

static void lose_sectors(char *bytes, size_t flushed, size_t count, size_t sector, bool junk) {
    for (size_t at = flushed / sector * sector; at < count; at += sector) {
        if (test_random_below(2) == 0) continue;
        for (size_t i = at < flushed ? flushed : at; i < at + sector && i < count; i++) {
            bytes[i] = junk ? (char)test_random_u64() : 0;
        }
    }
}

static bool draw_file(uint32_t end, uint32_t file, enum power_cut_part part, size_t sector,
                      struct power_cut_file *out) {
    size_t flushed, written, length;
    *out = (struct power_cut_file){.exists = file != NOTHING};
    if (file == NOTHING) return true;
    find_lengths(end, file, &flushed, &written);
    length = written;
    if (part == POWER_CUT_NONE) length = flushed;
    if (part == POWER_CUT_PREFIX || (part > POWER_CUT_PREFIX && test_random_below(2) == 0)) {
        length = flushed + test_random_below(written - flushed + 1);
    }
    out->bytes = malloc(length + 1);
    if (!EXPECT(out->bytes)) return false;
    memcpy(out->bytes, disk.files[file].bytes ? disk.files[file].bytes : "", length);
    out->count = length;
    if (part > POWER_CUT_PREFIX) {
        lose_sectors(out->bytes, flushed, length, sector, part == POWER_CUT_JUNK);
    }
    return true;
}

bool power_cut_recover(uint32_t step, enum power_cut_part part, size_t sector_bytes,
                       struct power_cut_file *file, struct power_cut_file *partial) {
    uint32_t end = disk.adopted + step;
    assert(end <= disk.step_count);
    if (!draw_file(end, draw_name(end, NAME_FILE), part, sector_bytes, file)) return false;
    if (draw_file(end, draw_name(end, NAME_PARTIAL), part, sector_bytes, partial)) return true;
    power_cut_file_release(file);
    return false;
}

void power_cut_file_release(struct power_cut_file *file) {
    free(file->bytes);
    *file = (struct power_cut_file){0};
}
