/* SPDX-License-Identifier: MIT */
/* Whether all ranks see one folder where they are to save: each writes, the others look. */
#include "cmd/train.h"
#include "io/file.h"
#include "world/allreduce.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct probe {
    struct train *t;
    const char *option, *path;
    char folder[PATH_MAX];
    uint64_t token; /* what is written, and part of the name */
};

/* Hidden, so that a run that reads data beside it passes it over. */
static void name_of(const struct probe *probe, uint32_t rank, char name[PATH_MAX + 64]) {
    snprintf(name, PATH_MAX + 64, "%s/.weir-probe-%016" PRIx64 "-%" PRIu32, probe->folder,
             probe->token, rank);
}

static int put(const struct probe *probe) {
    struct weir_error error = {0};
    struct weir__io io = {.error = &error};
    struct weir__file file;
    char name[PATH_MAX + 64];
    name_of(probe, probe->t->ranks.world.rank, name);
    int status = weir__file_begin(&io, name, &file);
    if (status == WEIR_OK) {
        (void)weir__file_write(&file, &probe->token, sizeof probe->token);
        status = weir__file_commit(&file);
    }
    if (status != WEIR_OK)
        weir_faults_add(probe->t->faults, "--%s %s: on %s: %s", probe->option, probe->path,
                        probe->t->ranks.world.host, error.message);
    return status;
}

static int look(const struct probe *probe, uint32_t rank) {
    struct weir__io io = {.error = NULL};
    struct weir__bytes found = {0};
    char name[PATH_MAX + 64];
    name_of(probe, rank, name);
    bool same = weir__file_read(&io, name, 64, &found) == WEIR_OK &&
                found.count == sizeof probe->token &&
                memcmp(found.data, &probe->token, found.count) == 0;
    weir__bytes_release(NULL, &found);
    if (same) return WEIR_OK;
    weir_faults_add(probe->t->faults,
                    "--%s %s: %s does not see what rank %" PRIu32
                    " writes to %s: name a folder that all hosts share, at the same path",
                    probe->option, probe->path, probe->t->ranks.world.host, rank, probe->folder);
    return WEIR_ERR_CONFIG;
}

static int agree(const struct probe *probe, int status) {
    return weir__world_agree(ranks_world(&probe->t->ranks), status, 0, "folders", probe->t->faults);
}

/* The first writes and all others look; and the reverse. */
static int exchange(const struct probe *probe) {
    const struct weir_world *world = ranks_world(&probe->t->ranks);
    int status = agree(probe, world->rank == 0 ? put(probe) : WEIR_OK);
    if (status != WEIR_OK) return status;
    status = agree(probe, world->rank > 0 ? look(probe, 0) : WEIR_OK);
    if (status != WEIR_OK) return status;
    status = agree(probe, world->rank > 0 ? put(probe) : WEIR_OK);
    for (uint32_t r = 1; status == WEIR_OK && world->rank == 0 && r < world->rank_count; r++)
        status = look(probe, r);
    return agree(probe, status);
}

/* The checkpoint's own folder where there is one, else that which it will be made in: as the first
 * rank finds it. */
static int choose_folder(struct probe *probe) {
    struct stat facts;
    uint64_t numbers[2] = {stat(probe->path, &facts) == 0 && S_ISDIR(facts.st_mode), 0};
    uint64_t seen[] = {weir__now_ns(), (uint64_t)getpid(), (uint64_t)(uintptr_t)probe};
    numbers[1] = weir__xxh64(seen, sizeof seen);
    for (int i = 0; i < 2; i++) {
        int status = weir__world_share(ranks_world(&probe->t->ranks), &numbers[i]);
        if (status != WEIR_OK) return status;
    }
    probe->token = numbers[1];
    const char *slash = strrchr(probe->path, '/');
    if (numbers[0] != 0)
        snprintf(probe->folder, sizeof probe->folder, "%s", probe->path);
    else if (slash == NULL)
        snprintf(probe->folder, sizeof probe->folder, ".");
    else
        snprintf(probe->folder, sizeof probe->folder, "%.*s", (int)(slash - probe->path) + 1,
                 probe->path);
    return WEIR_OK;
}

static int probe_one(struct train *t, const char *option, const char *path) {
    struct probe probe = {.t = t, .option = option, .path = path};
    char name[PATH_MAX + 64];
    if (path == NULL) return WEIR_OK;
    int status = choose_folder(&probe);
    if (status != WEIR_OK) return status;
    status = exchange(&probe);
    name_of(&probe, t->ranks.world.rank, name);
    (void)unlink(name);
    return status;
}

int train_probe(struct train *t) {
    int status = probe_one(t, "save", t->values->save);
    return status != WEIR_OK ? status : probe_one(t, "save-weights", t->values->save_weights);
}
