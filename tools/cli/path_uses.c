/* SPDX-License-Identifier: MIT */
#include "cli/path_uses.h"

#include "cli/output.h"
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

/* The file that a path leads to, or will; false of what is no file or folder. */
static bool resolve(const char *path, char real[PATH_MAX]) {
    char folder[PATH_MAX], found[PATH_MAX];
    struct stat facts;
    if (stat(path, &facts) == 0)
        return (S_ISREG(facts.st_mode) || S_ISDIR(facts.st_mode)) && realpath(path, real) != NULL;
    const char *slash = strrchr(path, '/'), *name = slash != NULL ? slash + 1 : path;
    snprintf(folder, sizeof folder, "%.*s", slash != NULL ? (int)(slash - path + 1) : 1,
             slash != NULL ? path : ".");
    if (realpath(folder, found) == NULL) return false; /* nothing can be written there */
    int used = snprintf(real, PATH_MAX, "%s/%s", strcmp(found, "/") == 0 ? "" : found, name);
    return used > 0 && used < PATH_MAX;
}

/* What is written on the way to a file. */
static bool is_partial_of(const char *real, const char *other) {
    size_t length = strlen(other);
    return strncmp(real, other, length) == 0 && strcmp(real + length, ".partial") == 0;
}

/* A file of a folder that is read. Tensors are no text, and what runs saved there before. */
static bool is_read_from(const char *real, const char *folder) {
    struct weir__io io = {.error = NULL};
    struct weir__safetensors *file;
    struct stat facts;
    size_t length = strlen(folder);
    if (strncmp(real, folder, length) != 0 || real[length] != '/') return false;
    if (stat(folder, &facts) != 0 || !S_ISDIR(facts.st_mode) || stat(real, &facts) != 0)
        return false;
    if (weir__safetensors_open(&io, real, NULL, &file) != WEIR_OK) return true;
    weir__safetensors_close(file);
    return false;
}

static bool coincide(const struct path_use *output, const struct path_use *other) {
    char real[PATH_MAX], others[PATH_MAX];
    if (other->may_be != NULL && strcmp(other->may_be, output->option) == 0) return false;
    if (!resolve(output->path, real) || !resolve(other->path, others)) return false;
    if (strcmp(real, others) == 0 || is_partial_of(others, real)) return true;
    return other->output ? is_partial_of(real, others) : is_read_from(real, others);
}

void path_uses_check(const struct path_use *uses, uint32_t count, struct weir_faults *faults) {
    for (uint32_t i = 0; i < count; i++) {
        const struct path_use *output = &uses[i];
        for (uint32_t k = 0; k < count; k++) {
            const struct path_use *other = &uses[k];
            bool twice = other->output && k <= i; /* outputs are told once */
            if (!output->output || !is_file(output) || !is_file(other) || twice ||
                !coincide(output, other))
                continue;
            weir_faults_add(faults, "--%s %s is %s of --%s %s: give another name", output->option,
                            output->path, other->output ? "also the file" : "an input file",
                            other->option, other->path);
        }
    }
}
