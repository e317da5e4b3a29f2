/* SPDX-License-Identifier: MIT */
/* What a resumed run finds of its former parts, and where it goes on saving. */
#include "cmd/train.h"
#include "cmd/train_saver.h"
#include "data/folder.h"
#include "io/archive.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char loss_key[] = TRAIN_SAVE_LOSS_KEY;
static const uint64_t nothing = SAVER_NOTHING;

/* ---- what is there from before ---- */

static uint64_t metadata_step(const struct weir__archive *file) {
    const char *number = weir__archive_metadata(file, "step");
    return number != NULL ? strtoull(number, NULL, 10) : nothing;
}

/* Whether the file is a checkpoint that this run wrote before it was resumed, by what it says of
 * itself: then *step is its step, and *loss that of its validation, where it has one. What may be
 * removed for it must say the same of `all` that decides bits, but for the run's end; a loss is
 * compared where model and data are the same. */
static bool is_own(const struct train *t, const char *path, bool all, uint64_t *step,
                   double *loss) {
    struct weir__io io = {.error = NULL};
    struct weir__archive *file;
    char seed[24];
    if (weir__archive_open(&io, path, &file) != WEIR_OK) return false;
    snprintf(seed, sizeof seed, "%" PRIu64, t->progress.seed);
    const char *found = weir__archive_metadata(file, "seed");
    bool own = found != NULL && strcmp(found, seed) == 0 && train_notes_match(t, file, all);
    const char *least = weir__archive_metadata(file, loss_key);
    *step = metadata_step(file);
    *loss = least != NULL ? strtod(least, NULL) : HUGE_VAL;
    weir__archive_close(file);
    return own && *step <= t->progress.step;
}

static int compare_steps(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* The step of NAME = BASE-STEP; `nothing` of another name. */
static uint64_t step_of(const char *name, const char *base) {
    size_t length = strlen(base);
    if (strncmp(name, base, length) != 0 || name[length] != '-') return nothing;
    const char *digits = name + length + 1;
    size_t count = strspn(digits, "0123456789");
    bool plain =
        count > 0 && count < 20 && digits[count] == '\0' && (digits[0] != '0' || count == 1);
    return plain ? strtoull(digits, NULL, 10) : nothing;
}

static bool same_file(const char *a, const char *b) {
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

/* A resumed run goes on with the rotation of its former parts, but for the file that it was resumed
 * from. */
static int find_kept(const struct train *t, struct saver *saver) {
    const char *slash = strrchr(saver->path, '/'), *base = slash ? slash + 1 : saver->path;
    const char *last = strrchr(t->values->resume, '/'), *from = last ? last + 1 : t->values->resume;
    char folder[PATH_MAX] = ".";
    struct weir__io io = {.error = t->error};
    struct weir__names names = {0};
    double loss;
    if (slash != NULL)
        snprintf(folder, sizeof folder, "%.*s", (int)(slash - saver->path + 1), saver->path);
    int status = weir__folder_list(&io, folder, &names);
    if (status != WEIR_OK) goto out;
    free(saver->kept);
    saver->kept = calloc((size_t)names.count + saver->keep + 1, sizeof *saver->kept);
    status = saver->kept == NULL ? WEIR_ERR_OUT_OF_MEMORY : WEIR_OK;
    for (uint32_t i = 0; status == WEIR_OK && i < names.count; i++) {
        uint64_t step = step_of(names.list[i], base), said;
        char path[PATH_MAX];
        if (step == nothing) continue;
        saver_step_path(saver->path, step, path);
        if (step_of(from, base) == step && same_file(t->values->resume, path)) continue;
        if (is_own(t, path, true, &said, &loss) && said == step)
            saver->kept[saver->kept_count++] = step;
    }
    if (saver->kept_count > 0)
        qsort(saver->kept, saver->kept_count, sizeof *saver->kept, compare_steps);
out:
    weir__names_release(&io, &names);
    return status;
}

int train_save_look_back(struct train *t, struct saver *saver) {
    char best[PATH_MAX];
    uint64_t step;
    double loss;
    if (t->values->resume == NULL || !saver->leads) return WEIR_OK;
    /* ranks would not all see the same files, and must save alike */
    if (ranks_world(&t->ranks) == NULL && same_file(t->values->resume, saver->path))
        saver->saved = t->progress.step;
    saver_best_path(saver->path, best);
    if (t->values->keep_best && is_own(t, best, false, &step, &loss)) saver->best = loss;
    return saver->keep > 0 ? find_kept(t, saver) : WEIR_OK;
}

/* Where FILE ends in the path of a FILE-STEP or FILE-best that is what its name says. */
static void cut_suffix(const char *path, size_t *length) {
    struct weir__io io = {.error = NULL};
    struct weir__archive *file;
    const char *dash = strrchr(path, '-');
    if (dash == NULL || dash == path || strchr(dash, '/') != NULL) return;
    if (weir__archive_open(&io, path, &file) != WEIR_OK) return;
    const char *step = weir__archive_metadata(file, "step");
    bool best = strcmp(dash, SAVER_BEST_SUFFIX) == 0;
    bool found = best ? weir__archive_metadata(file, loss_key) != NULL
                      : step != NULL && strcmp(dash + 1, step) == 0;
    weir__archive_close(file);
    if (found) *length = (size_t)(dash - path);
}

/* Of a checkpoint; `nothing` of all else. */
static uint64_t saved_step(const char *path) {
    struct weir__io io = {.error = NULL};
    struct weir__archive *file;
    if (weir__archive_open(&io, path, &file) != WEIR_OK) return nothing;
    uint64_t step = metadata_step(file);
    weir__archive_close(file);
    return step;
}

/* A FILE-STEP or FILE-best may be older than FILE, which nobody asked to replace. */
static void refuse_newer(struct train *t, const char *path) {
    uint64_t newer = saved_step(path), step = saved_step(t->values->resume);
    if (newer == nothing || newer <= step) return;
    weir_faults_add(t->faults,
                    "--resume %s would go on as %s, which is further (update %" PRIu64
                    "): name another file with --save, or give --resume %s",
                    t->values->resume, path, newer, path);
}

/* Without the slashes that a shell adds to a folder's name. */
static size_t name_length(const char *path) {
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/') length--;
    return length;
}

static int take_folder(struct train *t, const char *path) {
    size_t length = name_length(path);
    if (path[length] == '\0') return WEIR_OK;
    t->values->save = t->save.base = strndup(path, length);
    return t->save.base != NULL ? WEIR_OK : WEIR_ERR_OUT_OF_MEMORY;
}

int train_save_choose(struct train *t) {
    const char *resume = t->values->resume;
    if (t->values->save != NULL) return take_folder(t, t->values->save);
    if (resume == NULL) return WEIR_OK;
    size_t length = name_length(resume);
    cut_suffix(resume, &length);
    t->values->save = t->save.base = strndup(resume, length);
    if (t->save.base == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    refuse_newer(t, t->save.base);
    return WEIR_OK;
}
