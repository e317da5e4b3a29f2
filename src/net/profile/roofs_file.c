/* SPDX-License-Identifier: MIT */
/*
 * Roofs on disk. Text: the key, the figures, a line per sample, and "end". A file that is not
 * exactly that, or of another key, counts as none, and is replaced.
 */
#include "net/profile/roofs.h"

#include "io/cache.h"
#include "io/file.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

enum { FILE_MAX = 1 << 17, DAY_SECONDS = 24 * 60 * 60 };
static const char figures_form[] =
    "product %lg cached %lg memory %lg thread %lg memory_thread %lg cache %lg%n";
static const char sample_form[] = "%39s %lg %lg %lg %lg %lg%n";

struct roofs_path {
    char text[WEIR__CACHE_FOLDER_MAX + 32]; /* "": nowhere */
};

static void place_of(const char *key, struct roofs_path *place) {
    char folder[WEIR__CACHE_FOLDER_MAX];
    weir__cache_find(folder);
    place->text[0] = '\0';
    if (folder[0] != '\0')
        snprintf(place->text, sizeof place->text, "%s/roofs-%016" PRIx64, folder,
                 weir__hash(WEIR__HASH_BEGIN, key, strlen(key)));
}

/* ---- reading ---- */

/* The rest of a line whose end was found `used` bytes on; NULL: it is not the end. */
static const char *after_line(const char *at, int used) {
    return at != NULL && used > 0 && at[used] == '\n' ? at + used + 1 : NULL;
}

static bool is_rate(double x) {
    return isfinite(x) && x > 0;
}

static bool is_part(double x) {
    return x >= 0 && x <= 1;
}

static bool is_op(const char *name, enum weir__op_code *op) {
    for (uint32_t i = 0; i < WEIR__OP_COUNT; i++) {
        *op = (enum weir__op_code)i;
        if (strcmp(weir__op_name(*op), name) == 0) return true;
    }
    return false;
}

static const char *read_sample(const char *at, struct weir__roof_sample *sample) {
    double *size = sample->size;
    char name[40];
    int used = 0;
    if (sscanf(at, sample_form, name, &sample->rate, &size[0], &size[1], &size[2], &size[3],
               &used) != 6)
        return NULL;
    bool sound = is_op(name, &sample->op) && is_rate(sample->rate);
    for (int k = 0; k < WEIR__ROOF_SIZES; k++) sound = sound && isfinite(size[k]);
    return sound ? after_line(at, used) : NULL;
}

static bool read_text(const char *at, struct weir__roofs *roofs) {
    size_t key = strlen(roofs->key);
    int used = 0;
    roofs->count = 0;
    if (strncmp(at, roofs->key, key) != 0 || at[key] != '\n') return false;
    at += key + 1;
    if (sscanf(at, figures_form, &roofs->product, &roofs->copy_cached, &roofs->memory,
               &roofs->thread, &roofs->memory_thread, &roofs->cache, &used) != 6)
        return false;
    bool sound = is_rate(roofs->product) && is_rate(roofs->copy_cached) && is_rate(roofs->memory) &&
                 is_part(roofs->thread) && is_part(roofs->memory_thread) && roofs->cache >= 0;
    at = sound ? after_line(at, used) : NULL;
    while (at != NULL && strcmp(at, "end\n") != 0)
        at = roofs->count < WEIR__ROOF_SAMPLES_MAX
                 ? read_sample(at, &roofs->samples[roofs->count++])
                 : NULL;
    return at != NULL && roofs->count > 0;
}

static bool is_fresh(const char *path) {
    struct stat facts;
    if (stat(path, &facts) != 0) return false;
    return facts.st_mtime + DAY_SECONDS > time(NULL);
}

bool weir__roofs_load(struct weir__roofs *roofs) {
    const struct weir__io io = {NULL, NULL, NULL};
    struct weir__bytes bytes = {NULL, 0, 0};
    struct roofs_path place;
    place_of(roofs->key, &place);
    if (place.text[0] == '\0' || !is_fresh(place.text)) return false;
    if (weir__file_read(&io, place.text, FILE_MAX, &bytes) != WEIR_OK) return false;
    bool read = strlen(bytes.data) == bytes.count && read_text(bytes.data, roofs);
    weir__bytes_release(NULL, &bytes);
    return read;
}

/* ---- writing ---- */

static void write_sample(struct weir__file *file, const struct weir__roof_sample *sample) {
    const double *size = sample->size;
    char line[256];
    int length =
        snprintf(line, sizeof line, "%s %.5g %.7g %.7g %.7g %.7g\n", weir__op_name(sample->op),
                 sample->rate, size[0], size[1], size[2], size[3]);
    assert(length > 0 && length < (int)sizeof line);
    (void)weir__file_write(file, line, (size_t)length);
}

void weir__roofs_keep(const struct weir__roofs *roofs) {
    const struct weir__io io = {NULL, NULL, NULL};
    char head[WEIR__ROOF_KEY_MAX + 256];
    struct weir__file file;
    struct roofs_path place;
    place_of(roofs->key, &place);
    if (place.text[0] == '\0' || weir__file_begin(&io, place.text, &file) != WEIR_OK) return;
    int length = snprintf(head, sizeof head,
                          "%s\nproduct %.5g cached %.5g memory %.5g thread %.5g memory_thread %.5g "
                          "cache %.17g\n",
                          roofs->key, roofs->product, roofs->copy_cached, roofs->memory,
                          roofs->thread, roofs->memory_thread, roofs->cache);
    assert(length > 0 && length < (int)sizeof head);
    (void)weir__file_write(&file, head, (size_t)length);
    for (uint32_t i = 0; i < roofs->count; i++) write_sample(&file, &roofs->samples[i]);
    (void)weir__file_write(&file, "end\n", 4);
    (void)weir__file_commit(&file);
}
