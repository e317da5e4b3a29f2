/* SPDX-License-Identifier: MIT */
#include "cmd/train_saver.h"

#include "io/archive.h"
#include "net/run/files.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

void saver_step_path(const char *path, uint64_t step, char text[PATH_MAX]) {
    snprintf(text, PATH_MAX, "%s-%" PRIu64, path, step);
}

void saver_best_path(const char *path, char text[PATH_MAX]) {
    snprintf(text, PATH_MAX, "%s" SAVER_BEST_SUFFIX, path);
}

/* ---- rotation ---- */

static int remove_oldest(struct saver *saver) {
    char path[PATH_MAX];
    struct weir__io io = {.error = &saver->error};
    saver_step_path(saver->path, saver->kept[0], path);
    saver->kept_count--;
    memmove(saver->kept, saver->kept + 1, saver->kept_count * sizeof *saver->kept);
    return weir__archive_remove(&io, path);
}

static void note_kept(struct saver *saver, uint64_t step) {
    uint32_t at = saver->kept_count;
    if (at > 0 && saver->kept[at - 1] == step) return;
    assert(at == 0 || saver->kept[at - 1] < step);
    saver->kept[saver->kept_count++] = step;
}

/* The newest `keep` stay, whatever became of FILE; the status of the last failure. */
static int rotate(struct saver *saver) {
    int failure = WEIR_OK;
    while (saver->kept_count > saver->keep) {
        int status = remove_oldest(saver);
        if (status != WEIR_OK) failure = status;
    }
    return failure;
}

/* ---- writing ---- */

static int write_one(struct saver *saver, const char *path, uint32_t parts) {
    bool writes = (parts & SAVER_WRITE) != 0, commits = (parts & SAVER_COMMIT) != 0;
    int status = writes ? weir_net_copy_save(saver->copy, path, &saver->error) : WEIR_OK;
    if (status != WEIR_OK || !commits) return status;
    return weir_net_copy_commit(saver->copy, path, &saver->error);
}

/* FILE, once FILE-STEP is there. */
static int alias(struct saver *saver, const char *path) {
    struct weir__io io = {.error = &saver->error}, quiet = {.error = NULL};
    if (weir__archive_is_folder(&quiet, path)) return weir__archive_alias(&io, path, saver->path);
    if (weir__file_alias(&quiet, path, saver->path)) return WEIR_OK;
    return write_one(saver, saver->path, SAVER_WRITE | SAVER_COMMIT);
}

static int write_rotated(struct saver *saver, const struct saver_job *job) {
    char path[PATH_MAX];
    saver_step_path(saver->path, job->step, path);
    int status = write_one(saver, path, job->parts);
    if (status != WEIR_OK || (job->parts & SAVER_COMMIT) == 0) return status;
    note_kept(saver, job->step);
    status = alias(saver, path);
    int rotated = rotate(saver);
    return status != WEIR_OK ? status : rotated;
}

static int write_latest(struct saver *saver) {
    if (saver->keep > 0) return write_rotated(saver, &saver->job);
    return write_one(saver, saver->path, saver->job.parts);
}

static int write_best(struct saver *saver) {
    char path[PATH_MAX];
    saver_best_path(saver->path, path);
    return write_one(saver, path, saver->job.parts);
}

/* The best one first: who goes on from the latest knows of it. */
static int write_job(struct saver *saver) {
    int best = saver->job.best ? write_best(saver) : WEIR_OK;
    struct weir_error first = saver->error;
    int latest = saver->job.latest ? write_latest(saver) : WEIR_OK;
    saver->missed = latest != WEIR_OK;
    if (best != WEIR_OK) saver->error = first;
    return best != WEIR_OK ? best : latest;
}

void saver_drop(struct saver *saver) {
    char path[PATH_MAX];
    saver_best_path(saver->path, path);
    if (saver->job.best) weir__net_copy_drop(saver->copy, path);
    saver_step_path(saver->path, saver->job.step, path);
    if (saver->job.latest) weir__net_copy_drop(saver->copy, saver->keep > 0 ? path : saver->path);
}

/* ---- the thread ---- */

static void *work(void *context) {
    struct saver *saver = context;
    for (uint32_t job = 1;; job++) {
        weir__gate_wait(&saver->asked, job, 0, 0);
        if (saver->ends) return NULL;
        saver->error = (struct weir_error){.status = WEIR_OK, .stage = -1, .micro_batch = -1};
        saver->status = write_job(saver);
        weir__gate_advance(&saver->done, job);
    }
}

int saver_start(struct saver *saver) {
    return pthread_create(&saver->thread, NULL, work, saver) == 0 ? WEIR_OK : WEIR_ERR_SYSTEM;
}

void saver_stop(struct saver *saver) {
    saver_wait(saver);
    saver->ends = true;
    weir__gate_advance(&saver->asked, saver->jobs + 1);
    pthread_join(saver->thread, NULL);
}

void saver_ask(struct saver *saver, uint32_t parts) {
    assert(saver_is_done(saver));
    saver->job.parts = parts;
    weir__gate_advance(&saver->asked, ++saver->jobs);
}

bool saver_is_done(struct saver *saver) {
    return weir__gate_reached(&saver->done, saver->jobs);
}

void saver_wait(struct saver *saver) {
    weir__gate_wait(&saver->done, saver->jobs, 0, 0);
}
