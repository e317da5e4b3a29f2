/* SPDX-License-Identifier: MIT */
#include "cli/ranks.h"

#include "base/base.h"
#include "cli/interrupt.h"
#include "cli/search.h"
#include "net/cpu/level.h"
#include "place/place.h"
#include "world/allreduce.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* How long a rank that fails by itself leaves to rank 0, which mostly fails with the same, to say
 * why. */
enum { GRACE_MS = 300 };
/* And how long a launcher is left to pass on what was said, which an abort may cut off. */
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

/* What is measured, and differently by each. */
static void refuse(const struct ranks_command *of) {
    if (args_given(of->args, "balance-by"))
        weir_faults_add(of->faults,
                        "--balance-by: not over several processes: leave it away, or start one");
}

/* What a rank has. */
struct means {
    uint64_t cores_key; /* the same where ranks have the same cores of one host */
    uint32_t level;     /* its number */
    uint32_t cores;
};

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

static int find_means(const struct weir_world *world, struct weir_faults *faults,
                      struct means *means) {
    struct weir__machine *machine;
    struct weir__machine_facts facts;
    *means = (struct means){0};
    int status = find_level(faults, &means->level);
    if (status != WEIR_OK) return status;
    status = weir__machine_new(NULL, &machine);
    if (status != WEIR_OK) return status;
    weir__machine_facts(machine, &facts);
    weir__machine_destroy(machine);
    means->cores_key = weir__hash(facts.allowed, world->host, strlen(world->host));
    means->cores = facts.usable_cores;
    return WEIR_OK;
}

/* Each rank's, told to all. */
static int exchange_means(struct ranks *ranks, struct means *all) {
    const struct weir_world *world = &ranks->world;
    int status = find_means(world, ranks->of.faults, &all[world->rank]);
    if (status != WEIR_OK) return status;
    return ranks_gather(ranks, all, world->rank_count * sizeof *all);
}

/* Its share of the cores that it may use, which a launcher has given to it alone or to several. */
static uint32_t cores_of(const struct means *all, uint32_t count, uint32_t rank) {
    uint32_t sharing = 0;
    for (uint32_t r = 0; r < count; r++) sharing += all[r].cores_key == all[rank].cores_key;
    return all[rank].cores / sharing;
}

static uint32_t workers_of_rank(const struct ranks *ranks) {
    const struct pipe_options *pipe = ranks->of.pipe;
    uint32_t count = ranks->world.rank_count, workers = pipe->workers;
    uint32_t stages = pipe->balance.count > 0 ? pipe->balance.count : pipe->stages;
    uint32_t replicas = pipe->replicas > 0 ? pipe->replicas : 1;
    if (workers == 0) workers = stages / pipe_virtual_stages(pipe) * replicas;
    return workers > count ? (workers + count - 1) / count : 1;
}

/* What is not said is the highest level and the most threads that all ranks have: so all plan the
 * same memory. */
static int share_means(struct ranks *ranks) {
    uint32_t count = ranks->world.rank_count, cores = UINT32_MAX, level = UINT32_MAX;
    struct pipe_options *pipe = ranks->of.pipe;
    struct means *all = weir__acquire(NULL, count, sizeof *all);
    if (all == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    int status = exchange_means(ranks, all);
    for (uint32_t r = 0; status == WEIR_OK && r < count; r++) {
        uint32_t own = cores_of(all, count, r);
        cores = own < cores ? own : cores;
        level = all[r].level < level ? all[r].level : level;
    }
    weir__release(NULL, all, count, sizeof *all);
    if (status != WEIR_OK) return status;
    if (pipe->level == NULL) pipe->level = name_level(&ranks->of, level);
    if (pipe->threads_per_stage > 0) return WEIR_OK;
    uint32_t threads = cores / workers_of_rank(ranks);
    pipe->threads_per_stage = threads > 0 ? threads : 1;
    return WEIR_OK;
}

static void warn(const struct ranks_command *of, const char *text) {
    fprintf(stderr, "weir: %s: warning: %s\n", of->command->name, text);
}

static int join_others(struct ranks *ranks) {
    const struct ranks_command *of = &ranks->of;
    const struct args *args = of->args;
    if (ranks->world.warning[0] != '\0' && ranks->world.rank == 0) warn(of, ranks->world.warning);
    refuse(of);
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
    if (of->peer_timeout > 0)
        options.peer_timeout = of->peer_timeout;
    else
        weir_faults_add(of->faults, "--peer-timeout 0 leaves no time: give seconds above 0");
    options.lost = ranks_lost_tell;
    options.context = ranks;
    ranks_start_begin();
    int status = weir_world_mpi(NULL, &options, of->faults, &ranks->world);
    ranks_start_end(status, of->faults->count > 0);
    if (status != WEIR_OK) return status;
    ranks->joined = true;
    if (ranks->world.rank > 0) {
        people_silence(of->people);
        hold_errors(ranks);
    }
    if (ranks_world(ranks) != NULL) return join_others(ranks);
    if (args_given(of->args, "peer-timeout"))
        warn(of, "--peer-timeout: one process waits for no other: it has no effect");
    return join_nobody(of);
}

/* ---- together ---- */

int ranks_agree(struct ranks *ranks, int status, uint64_t digest) {
    return weir__world_agree(ranks_world(ranks), status, digest,
                             "data or options: the same files must lie where they are named",
                             ranks->of.faults);
}

/* ---- a pipeline ---- */

/* What a search writes into the options. */
struct pipeline {
    char schedule[32], checkpoint[sizeof((struct search *)0)->checkpoint];
    uint32_t stages, workers, virtual_stages, recompute, chunks;
    uint32_t balance_count, balance[ARG_LIST_MAX];
};

static void describe_pipeline(const struct pipe_options *pipe, struct pipeline *pipeline) {
    snprintf(pipeline->schedule, sizeof pipeline->schedule, "%s", pipe->schedule);
    snprintf(pipeline->checkpoint, sizeof pipeline->checkpoint, "%s", pipe->checkpoint);
    pipeline->stages = pipe->stages;
    pipeline->workers = pipe->workers;
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
    const struct timespec grace = {.tv_nsec = GRACE_MS * 1000000L};
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
