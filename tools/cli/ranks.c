/* SPDX-License-Identifier: MIT */
#include "cli/ranks.h"

#include "base/base.h"
#include "cli/interrupt.h"
#include "cli/search.h"
#include "net/cpu/level.h"
#include "world/allreduce.h"
#include "world/cores.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* How long a launcher is left to pass on what was said, which an abort may cut off. */
enum { PASS_ON_MS = 100 };

/* ---- joining ---- */

static void hold_errors(struct ranks *ranks) {
    ranks->held = tmpfile();
    if (ranks->held == NULL) return;
    fflush(stderr);
    ranks->lost.errors = dup(STDERR_FILENO);
    if (ranks->lost.errors < 0 || dup2(fileno(ranks->held), STDERR_FILENO) < 0)
        ranks->lost.errors = 0;
}

/* What would be measured by each by itself. */
static void refuse(const struct ranks_command *of, uint32_t ranks) {
    if (of->pipe->balance_by == PIPE_BALANCE_BY_TIME && of->pipe->profile == NULL)
        weir_faults_add(of->faults,
                        "--balance-by time: over several processes by what they have measured: "
                        "give --profile FILE, of mpiexec -n %u weir profile --out FILE",
                        ranks);
}

static int find_level(struct weir_faults *faults, uint32_t *number) {
    const struct weir__level *level;
    if (weir__level_find(NULL, faults, &level) != WEIR_OK) return WEIR_ERR_CONFIG;
    for (*number = 0; weir__level_at(*number) != level;) ++*number;
    return WEIR_OK;
}

/* What is highest may have become so by the loss of a host that had a lower one. */
static const char *name_level(const struct ranks_command *of, uint32_t most) {
    for (uint32_t i = most + 1; of->bits != NULL && i-- > 0;) {
        const struct weir__level *level = weir__level_at(i);
        bool narrow = strcmp(pipe_dtype_text(of->pipe), "bf16") == 0;
        if (strcmp(narrow ? level->bits_bf16 : level->bits, of->bits) == 0) return level->name;
    }
    return weir__level_at(most)->name;
}

static uint32_t workers_of_all(const struct pipe_options *pipe) {
    uint32_t stages = pipe->balance.count > 0 ? pipe->balance.count : pipe->stages;
    uint32_t replicas = pipe->replicas > 0 ? pipe->replicas : 1;
    return pipe->workers > 0 ? pipe->workers : stages / pipe_virtual_stages(pipe) * replicas;
}

/* The highest that all ranks have. */
static int share_level(struct ranks *ranks) {
    uint32_t count = ranks->world.rank_count, least;
    uint32_t *all = weir__acquire(NULL, count, sizeof *all);
    if (all == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    int status = find_level(ranks->of.faults, &all[ranks->world.rank]);
    if (status != WEIR_OK) goto out;
    if ((status = ranks_gather(ranks, all, count * sizeof *all)) != WEIR_OK) goto out;
    least = all[0];
    for (uint32_t r = 1; r < count; r++) least = all[r] < least ? all[r] : least;
    if (ranks->of.pipe->level == NULL) ranks->of.pipe->level = name_level(&ranks->of, least);
out:
    weir__release(NULL, all, count, sizeof *all);
    return status;
}

/* What is not said is the highest level and the most threads that all ranks have: so all plan the
 * same memory. A search goes by the threads before there is a net to ask. */
static int share_means(struct ranks *ranks) {
    struct pipe_options *pipe = ranks->of.pipe;
    uint32_t cores;
    int status = share_level(ranks);
    if (status != WEIR_OK) return status;
    status = weir__world_cores(&ranks->world, NULL, ranks->of.faults, &cores);
    if (status == WEIR_OK && pipe->threads_per_stage == 0)
        pipe->threads_per_stage =
            weir__world_threads(cores, ranks->world.rank_count, workers_of_all(pipe));
    return status;
}

static void warn(const struct ranks_command *of, const char *text) {
    fprintf(stderr, "weir: %s: warning: %s\n", of->command->name, text);
}

static int join_others(struct ranks *ranks) {
    const struct ranks_command *of = &ranks->of;
    const struct args *args = of->args;
    if (ranks->world.warning[0] != '\0' && ranks->world.rank == 0) warn(of, ranks->world.warning);
    int status = ranks_same(ranks);
    if (status != WEIR_OK) return status;
    refuse(of, ranks->world.rank_count);
    bool told =
        args_given(args, "workers") || args_given(args, "stages") || args_given(args, "balance");
    if (!told) of->pipe->workers = ranks->world.rank_count;
    return share_means(ranks);
}

static int join_nobody(const struct ranks_command *of) {
    uint32_t level;
    if (of->bits == NULL || of->pipe->level != NULL) return WEIR_OK;
    int status = find_level(of->faults, &level);
    if (status == WEIR_OK) of->pipe->level = name_level(of, level);
    return status;
}

int ranks_join(struct ranks *ranks, const struct ranks_command *of) {
    struct weir_world_options options = WEIR_WORLD_OPTIONS_INIT;
    ranks->of = *of;
    ranks->lost.before = saved_look(of->save);
    if (of->error->status == WEIR_OK) weir__error_clear(of->error);
    if (of->times.peer >= RANKS_TIMEOUT_LEAST) options.peer_timeout = of->times.peer;
    options.start_timeout = of->times.start;
    options.lost = ranks_lost_tell;
    options.context = ranks;
    struct interrupt_kept signals;
    interrupt_keep(&signals);
    ranks_start_begin();
    int status = weir_world_mpi(NULL, &options, of->faults, &ranks->world);
    interrupt_give_back(&signals);
    ranks_start_end(status, of->faults->count > 0);
    if (status != WEIR_OK) return status;
    ranks->joined = true;
    if (ranks->world.rank > 0) {
        people_silence(of->people);
        hold_errors(ranks);
    }
    if (ranks_world(ranks) != NULL) return join_others(ranks);
    if (args_given(of->args, "peer-timeout") || args_given(of->args, "start-timeout"))
        warn(of, args_given(of->args, "peer-timeout")
                     ? "--peer-timeout: one process waits for no other: it has no effect"
                     : "--start-timeout: one process waits for no other: it has no effect");
    return join_nobody(of);
}

/* ---- together ---- */

int ranks_agree(struct ranks *ranks, int status, uint64_t digest) {
    return weir__world_agree(ranks_world(ranks), status, digest,
                             "data: the same files must lie where they are named",
                             ranks->of.faults);
}

/* ---- a pipeline ---- */

/* What a search writes into the options. */
struct pipeline {
    char schedule[32], checkpoint[sizeof((struct search *)0)->checkpoint];
    uint32_t stages, workers, replicas, virtual_stages, recompute, chunks;
    uint32_t balance_count, balance[ARG_LIST_MAX];
};

static void describe_pipeline(const struct pipe_options *pipe, struct pipeline *pipeline) {
    snprintf(pipeline->schedule, sizeof pipeline->schedule, "%s", pipe->schedule);
    snprintf(pipeline->checkpoint, sizeof pipeline->checkpoint, "%s", pipe->checkpoint);
    pipeline->stages = pipe->stages;
    pipeline->workers = pipe->workers;
    pipeline->replicas = pipe->replicas;
    pipeline->virtual_stages = pipe->virtual_stages;
    pipeline->recompute = pipe->recompute;
    pipeline->chunks = pipe->chunks;
    pipeline->balance_count = pipe->balance.count;
    memcpy(pipeline->balance, pipe->balance.items, pipe->balance.count * sizeof(uint32_t));
}

int ranks_give_pipeline(struct ranks *ranks) {
    struct pipeline *pipeline = weir__acquire(NULL, 1, sizeof *pipeline);
    if (pipeline == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    describe_pipeline(ranks->of.pipe, pipeline);
    int status = ranks_share(ranks, pipeline, sizeof *pipeline);
    weir__release(NULL, pipeline, 1, sizeof *pipeline);
    return status;
}

static void adopt(struct pipe_options *pipe, struct search *search,
                  const struct pipeline *pipeline) {
    for (size_t i = 0; pipe_schedule_names[i] != NULL; i++)
        if (strcmp(pipe_schedule_names[i], pipeline->schedule) == 0)
            pipe->schedule = pipe_schedule_names[i];
    memcpy(search->checkpoint, pipeline->checkpoint, sizeof pipeline->checkpoint);
    pipe->checkpoint = search->checkpoint;
    pipe->stages = pipeline->stages;
    pipe->workers = pipeline->workers;
    pipe->replicas = pipeline->replicas;
    pipe->virtual_stages = pipeline->virtual_stages;
    pipe->recompute = pipeline->recompute;
    pipe->chunks = pipeline->chunks;
    pipe->balance.count = pipeline->balance_count;
    memcpy(pipe->balance.items, pipeline->balance, sizeof pipeline->balance);
}

int ranks_take_pipeline(struct ranks *ranks, struct search *search) {
    struct pipeline *pipeline = weir__acquire(NULL, 1, sizeof *pipeline);
    if (pipeline == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    int status = ranks_share(ranks, pipeline, sizeof *pipeline);
    if (status == WEIR_OK) adopt(ranks->of.pipe, search, pipeline);
    weir__release(NULL, pipeline, 1, sizeof *pipeline);
    return status;
}

/* ---- leaving ---- */

int ranks_end(struct ranks *ranks, int status) {
    const struct ranks_command *of = &ranks->of;
    bool failed = of->faults->count > 0 || status != WEIR_OK;
    bool lost = failed && ranks_lost_claim(ranks, status);
    int code = args_end(of->command, of->faults, status, of->error);
    if (lost) ranks_lost_end(ranks);
    return interrupt_exit(code);
}

static void tell_held(struct ranks *ranks) {
    char line[1024];
    if (ranks->lost.errors == 0) return;
    fflush(stderr);
    rewind(ranks->held);
    dup2(ranks->lost.errors, STDERR_FILENO);
    while (fgets(line, sizeof line, ranks->held) != NULL)
        fprintf(stderr, "rank %u on %s: %s", ranks->world.rank, ranks->world.host, line);
}

int ranks_leave(struct ranks *ranks, int code) {
    const struct timespec grace = {.tv_nsec = RANKS_GRACE_MS * 1000000L};
    const struct timespec pass_on = {.tv_nsec = PASS_ON_MS * 1000000L};
    if (!ranks->joined) return code;
    bool failed = code == EXIT_FAILED || code == EXIT_REFUSED;
    if (code == EXIT_DONE && ranks_world(ranks) != NULL) code = (int)(ranks->stopped & RANKS_CODE);
    if (failed && ranks_world(ranks) != NULL && !ranks->agreed) {
        if (ranks->world.rank > 0) (void)nanosleep(&grace, NULL);
        if (ranks_lost_claim(ranks, WEIR_OK)) ranks_lost_end(ranks); /* another has said why */
        tell_held(ranks);
        fflush(stderr);
        (void)nanosleep(&pass_on, NULL);
        ranks->world.calls->abort(ranks->world.context, code);
    }
    ranks->world.calls->close(ranks->world.context);
    if (ranks->held != NULL) fclose(ranks->held);
    return code;
}
