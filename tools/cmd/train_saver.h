/* SPDX-License-Identifier: MIT */
/**
 * The thread that writes a run's checkpoints, and what it was asked for. A save has two parts:
 * every rank writes what it has, and when all have, one commits. A process that is alone does both
 * in one go.
 */
#ifndef WEIR_TOOLS_TRAIN_SAVER_H
#define WEIR_TOOLS_TRAIN_SAVER_H

#include "base/base.h"
#include "weir_models.h"

#include <limits.h>
#include <pthread.h>

#define SAVER_NOTHING UINT64_MAX /* no step */
#define SAVER_BEST_SUFFIX "-best"

/** Parts of a save, as bits. */
enum { SAVER_WRITE = 1, SAVER_COMMIT = 2 };
/** How far the ranks of a world are with a save, as all of them know. */
enum saver_phase { SAVER_IDLE, SAVER_WRITING, SAVER_COMMITTING };

/** What the copy is to become: FILE, FILE-best, or both. */
struct saver_job {
    uint64_t step;
    bool latest, best;
    uint32_t parts;
};

struct saver {
    struct weir__gate asked; /**< counts jobs; advanced by the run */
    struct weir__gate done;  /**< advanced by the thread */
    const char *path;
    uint32_t keep;
    bool leads; /**< this rank commits, and rotates */
    struct weir_net_copy *copy;
    pthread_t thread;
    /* From `asked` to `done` the thread's, else the run's. */
    struct saver_job job;
    bool ends;
    int status;
    struct weir_error error;
    bool missed;    /**< FILE was to be written, and is not */
    uint64_t *kept; /**< steps of this run's FILE-STEP, ascending; room for keep + 1 */
    uint32_t kept_count;
    /* The run's. */
    uint32_t jobs;
    enum saver_phase phase; /**< over ranks */
    bool judged;            /**< the last job's failure has been told */
    uint64_t saved;         /**< the step that FILE has, or will have */
    double best;            /**< HUGE_VAL: none */
};

/** FILE-STEP and FILE-best. */
void saver_step_path(const char *path, uint64_t step, char text[PATH_MAX]);
void saver_best_path(const char *path, char text[PATH_MAX]);

/** Starts the thread. WEIR_ERR_SYSTEM. */
int saver_start(struct saver *saver);
/** Waits for what was asked, and ends the thread. */
void saver_stop(struct saver *saver);
/** Asks for `parts` of the job; the former one is done. */
void saver_ask(struct saver *saver, uint32_t parts);
/** Whether what was asked is done here. */
bool saver_is_done(struct saver *saver);
void saver_wait(struct saver *saver);
/** Removes what was written here for a save that was not committed. */
void saver_drop(struct saver *saver);

#endif
