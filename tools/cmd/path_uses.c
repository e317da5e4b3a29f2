/* SPDX-License-Identifier: MIT */
#include "cmd/path_uses.h"

#include "cli/output.h"
#include "data/dataset.h"
#include "io/safetensors.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

void path_uses_add(struct path_uses *uses, struct path_use use) {
    if (uses->count < PATH_USES_MAX) uses->list[uses->count++] = use;
}

static bool is_file(const struct path_use *use) {
    return use->path != NULL && use->path[0] != '\0' && !output_is_standard(use->path);
}

/* The folder of a path into `folder`, for what it names in that; NULL of a path that ends there. */
static const char *split(const char *path, char folder[PATH_MAX]) {
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/') length--;
    size_t at = length;
    while (at > 0 && path[at - 1] != '/') at--;
    bool fits =
        snprintf(folder, PATH_MAX, "%.*s", at > 0 ? (int)at : 1, at > 0 ? path : ".") < PATH_MAX;
    return fits && at < length ? path + at : NULL;
}

/* The file that a path leads to, or will; false of what is no file or folder. */
static bool resolve(const char *path, char real[PATH_MAX]) {
    char end[PATH_MAX], folder[PATH_MAX], found[PATH_MAX];
    struct weir__io io = {.error = NULL};
    struct stat facts;
    if (stat(path, &facts) == 0)
        return (S_ISREG(facts.st_mode) || S_ISDIR(facts.st_mode)) && realpath(path, real) != NULL;
    const char *name = weir__link_follow(&io, path, end) == 0 ? split(end, folder) : NULL;
    if (name == NULL || !resolve(folder, found)) return false;
    int used = snprintf(real, PATH_MAX, "%s/%s", strcmp(found, "/") == 0 ? "" : found, name);
    return used > 0 && used < PATH_MAX;
}

/* Whether an output writes the file, or that on the way to its own. */
static bool writes(const struct path_use *output, const char *real, const char *file) {
    size_t length = strlen(real) - (output->steps ? strlen("STEP") : 0);
    if (strncmp(file, real, length) != 0) return false;
    const char *rest = file + length;
    size_t digits = output->steps ? strspn(rest, "0123456789") : 0;
    if (output->steps && digits == 0) return false;
    return rest[digits] == '\0' || strcmp(rest + digits, ".partial") == 0;
}

static bool is_tensors(const char *path) {
    struct weir__io io = {.error = NULL};
    struct weir__safetensors *file;
    if (weir__safetensors_open(&io, path, NULL, &file) != WEIR_OK) return false;
    weir__safetensors_close(file);
    return true;
}

/* What an output does to a folder that is read. Tensors are no text, and what runs saved there
 * before. */
static const char *judge_in_folder(const struct path_use *output, const char *real,
                                   const char *folder) {
    struct stat facts;
    size_t length = strlen(folder);
    if (strncmp(real, folder, length) != 0 || real[length] != '/') return NULL;
    bool input = stat(real, &facts) == 0 && S_ISREG(facts.st_mode) && !is_tensors(real);
    bool text = input || output->role == PATH_TEXT;
    if (!weir__dataset_would_take(folder, real + length + 1, text)) return NULL;
    return input ? "is an input file" : "would be read by the next run as part";
}

/* What an output is of another use; NULL: nothing. */
static const char *judge(const struct path_use *output, const struct path_use *other) {
    char real[PATH_MAX], others[PATH_MAX];
    bool input = other->role == PATH_INPUT;
    if (other->may_be != NULL && strcmp(other->may_be, output->option) == 0) return NULL;
    if (!resolve(output->path, real) || !resolve(other->path, others)) return NULL;
    if (writes(output, real, others)) return input ? "is an input file" : "is also the file";
    if (input) return judge_in_folder(output, real, others);
    return writes(other, others, real) ? "is also the file" : NULL;
}

static bool share_stdout(const struct path_use *a, const struct path_use *b) {
    return a->role == PATH_TEXT && b->role == PATH_TEXT && output_is_standard(a->path) &&
           output_is_standard(b->path);
}

void path_uses_add_options(struct path_uses *uses, const struct model_options *model,
                           const struct pipe_options *pipe) {
    if (model != NULL && model_options_is_file(model))
        path_uses_add(uses, (struct path_use){"model", model->model, PATH_INPUT});
    if (model != NULL)
        path_uses_add(uses,
                      (struct path_use){"adapter", model->adapter, PATH_INPUT, "save-adapter"});
    if (pipe == NULL) return;
    if (weir__text_ends(pipe->schedule, ".csv"))
        path_uses_add(uses, (struct path_use){"schedule", pipe->schedule, PATH_INPUT});
    path_uses_add(uses, (struct path_use){"profile", pipe->profile, PATH_INPUT});
}

static void check(const struct path_use *uses, uint32_t count, struct weir_faults *faults) {
    for (uint32_t i = 0; i < count; i++) {
        const struct path_use *output = &uses[i];
        for (uint32_t k = 0; k < count; k++) {
            const struct path_use *other = &uses[k];
            bool twice = other->role != PATH_INPUT && k <= i; /* outputs are told once */
            if (output->role == PATH_INPUT || twice) continue;
            if (share_stdout(output, other))
                weir_faults_add(faults, "--%s - and --%s -: only one of them can have stdout",
                                output->option, other->option);
            if (!is_file(output) || !is_file(other)) continue;
            const char *what = judge(output, other);
            if (what == NULL) continue;
            weir_faults_add(faults, "--%s %s %s of --%s %s: give another name", output->option,
                            output->path, what, other->option, other->path);
        }
    }
}

void path_uses_check(const struct path_uses *uses, struct weir_faults *faults) {
    check(uses->list, uses->count, faults);
}

void path_uses_check_own(const struct path_use *own, uint32_t count,
                         const struct model_options *model, const struct pipe_options *pipe,
                         struct weir_faults *faults) {
    enum { OWN_MOST = 8 };
    struct path_uses uses = {.count = 0};
    assert(count <= OWN_MOST);
    for (uint32_t i = 0; i < count; i++) path_uses_add(&uses, own[i]);
    path_uses_add_options(&uses, model, pipe);
    path_uses_check(&uses, faults);
}
