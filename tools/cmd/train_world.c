/* SPDX-License-Identifier: MIT */
#include "cmd/train_world.h"

#include "cmd/train.h"
#include "net/cpu/level.h"
#include "place/place.h"
#include "world/allreduce.h"
#include "world/wait.h"

#include <string.h>
#include <time.h>
#include <unistd.h>

/* How long a rank that fails by itself leaves to rank 0, which mostly fails with the same, to say
 * why. */
enum { GRACE_MS = 300 };
/* And how long a launcher is left to pass on what was said, which an abort may cut off. */
enum { PASS_ON_MS = 100 };

const struct weir_world *train_world(const struct train *t) {
    return t->world.joined && t->world.world.rank_count > 1 ? &t->world.world : NULL;
}

bool train_world_leads(const struct train *t) {
    return train_world(t) == NULL || t->world.world.rank == 0;
}

/* ---- joining ---- */

static void hold_errors(struct train_world *world) {
    world->held = tmpfile();
    if (world->held == NULL) return;
    fflush(stderr);
    world->lost.errors = dup(STDERR_FILENO);
    if (world->lost.errors < 0 || dup2(fileno(world->held), STDERR_FILENO) < 0)
        world->lost.errors = 0;
}

/* What is measured, and differently by each. */
static void refuse(const struct train *t, const struct args *args) {
    if (args_given(args, "balance-by"))
        weir_faults_add(t->faults, "--balance-by: not over several processes: leave it away, or "
                                   "start one");
    if (t->values->plan == 1 && args_given(args, "plan") && t->values->pipe.replicas > 1)
        weir_faults_add(t->faults, "--plan auto: a pipeline is searched for one replica: give what "
                                   "'weir plan --search' prints without --replicas");
}

/* What a rank has. */
struct means {
    uint64_t cores_key; /* the same where ranks have the same cores of one host */
    uint32_t level;     /* its number */
    uint32_t cores;
};

static int find_means(const struct weir_world *world, struct weir_faults *faults,
                      struct means *means) {
    const struct weir__level *level;
    struct weir__machine *machine;
    struct weir__machine_facts facts;
    *means = (struct means){0};
    if (weir__level_find(NULL, faults, &level) != WEIR_OK) return WEIR_ERR_CONFIG;
    while (weir__level_at(means->level) != level) means->level++;
    int status = weir__machine_new(NULL, &machine);
    if (status != WEIR_OK) return status;
    weir__machine_facts(machine, &facts);
    weir__machine_destroy(machine);
    means->cores_key = weir__hash(facts.allowed, world->host, strlen(world->host));
    means->cores = facts.usable_cores;
    return WEIR_OK;
}

/* Each rank's, told to all. */
static int exchange_means(struct train *t, struct means *all) {
    const struct weir_world *world = train_world(t);
    int status = find_means(world, t->faults, &all[world->rank]);
    if (status != WEIR_OK) return status;
    status = weir__world_gather(world, NULL, all, world->rank_count * sizeof *all);
    if (status != WEIR_OK) weir_faults_add(t->faults, "%s", world->calls->reason(world->context));
    return status;
}

/* Its share of the cores that it may use, which a launcher has given to it alone or to several. */
static uint32_t cores_of(const struct means *all, uint32_t count, uint32_t rank) {
    uint32_t sharing = 0;
    for (uint32_t r = 0; r < count; r++) sharing += all[r].cores_key == all[rank].cores_key;
    return all[rank].cores / sharing;
}

static uint32_t workers_of_rank(const struct train *t) {
    const struct pipe_options *pipe = &t->values->pipe;
    uint32_t ranks = t->world.world.rank_count, workers = pipe->workers;
    uint32_t stages = pipe->balance.count > 0 ? pipe->balance.count : pipe->stages;
    if (workers == 0) workers = stages / pipe_virtual_stages(pipe) * pipe->replicas;
    return workers > ranks ? (workers + ranks - 1) / ranks : 1;
}

/* What is not said is the highest level and the most threads that all ranks have: so all plan the
 * same memory. */
static int share_means(struct train *t) {
    uint32_t count = train_world(t)->rank_count, cores = UINT32_MAX, level = UINT32_MAX;
    struct pipe_options *pipe = &t->values->pipe;
    struct means *all = weir__acquire(NULL, count, sizeof *all);
    if (all == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    int status = exchange_means(t, all);
    for (uint32_t r = 0; status == WEIR_OK && r < count; r++) {
        uint32_t own = cores_of(all, count, r);
        cores = own < cores ? own : cores;
        level = all[r].level < level ? all[r].level : level;
    }
    weir__release(NULL, all, count, sizeof *all);
    if (status != WEIR_OK) return status;
    if (pipe->level == NULL) pipe->level = weir__level_at(level)->name;
    if (pipe->threads_per_stage > 0) return WEIR_OK;
    uint32_t threads = cores / workers_of_rank(t);
    pipe->threads_per_stage = threads > 0 ? threads : 1;
    return WEIR_OK;
}

static void silence(struct train *t) {
    people_silence(&t->people);
    t->values->json = t->values->log_dir = t->values->trace = t->values->report = NULL;
    hold_errors(&t->world);
}

static int check_replicas(const struct train *t) {
    uint32_t replicas = t->values->pipe.replicas, ranks = t->world.world.rank_count;
    if (ranks % replicas == 0) return WEIR_OK;
    weir_faults_add(t->faults,
                    "--replicas %u: as many processes, or a multiple, share a mini-batch, and "
                    "there %s %u: start them by mpiexec -n %u weir train",
                    replicas, ranks == 1 ? "is" : "are", ranks, (ranks / replicas + 1) * replicas);
    return WEIR_ERR_CONFIG;
}

int train_world_join(struct train *t, const struct args *args) {
    struct weir_world_options options = WEIR_WORLD_OPTIONS_INIT;
    options.peer_timeout = t->values->peer_timeout;
    options.lost = train_lost_tell;
    options.context = t;
    t->world.lost.save = t->values->save != NULL ? t->values->save : t->values->resume;
    t->world.lost.before = saved_look(t->world.lost.save);
    int status = weir_world_mpi(NULL, &options, t->faults, &t->world.world);
    if (status != WEIR_OK) return status;
    t->world.joined = true;
    if (t->world.world.rank > 0) silence(t);
    if ((status = check_replicas(t)) != WEIR_OK) return status;
    const struct weir_world *world = train_world(t);
    if (world == NULL) {
        if (args_given(args, "peer-timeout"))
            fprintf(stderr, "weir: train: warning: --peer-timeout: one process waits for no other: "
                            "it has no effect\n");
        return WEIR_OK;
    }
    if (world->warning[0] != '\0' && world->rank == 0)
        fprintf(stderr, "weir: train: warning: %s\n", world->warning);
    refuse(t, args);
    bool told =
        args_given(args, "workers") || args_given(args, "stages") || args_given(args, "balance");
    if (!told) t->values->pipe.workers = world->rank_count;
    t->options.pipe.world = world;
    return share_means(t);
}

int train_world_compare(struct train *t, int status) {
    uint64_t hash = WEIR__HASH_BEGIN;
    for (uint32_t i = 0; i < t->notes.count; i++) {
        const struct weir_note *note = &t->notes.list[i];
        hash = weir__hash(hash, note->key, strlen(note->key) + 1);
        hash = weir__hash(hash, note->value, strlen(note->value) + 1);
    }
    return weir__world_agree(train_world(t), status, hash,
                             "data or options: the same files must lie where they are named",
                             t->faults);
}

/* ---- a pipeline ---- */

/* What a search writes into the options. */
struct pipeline {
    char schedule[32], checkpoint[sizeof((struct search *)0)->checkpoint];
    uint32_t stages, workers, virtual_stages, recompute, chunks;
    uint32_t balance[ARG_LIST_MAX];
};

int train_world_give_pipeline(struct train *t) {
    const struct pipe_options *pipe = &t->values->pipe;
    const struct weir_world *world = train_world(t);
    struct pipeline *pipeline = weir__acquire(NULL, 1, sizeof *pipeline);
    if (pipeline == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    snprintf(pipeline->schedule, sizeof pipeline->schedule, "%s", pipe->schedule);
    snprintf(pipeline->checkpoint, sizeof pipeline->checkpoint, "%s", pipe->checkpoint);
    pipeline->stages = pipe->stages;
    pipeline->workers = pipe->workers;
    pipeline->virtual_stages = pipe->virtual_stages;
    pipeline->recompute = pipe->recompute;
    pipeline->chunks = pipe->chunks;
    memcpy(pipeline->balance, pipe->balance.items, pipe->balance.count * sizeof(uint32_t));
    int status = WEIR_OK; /* the channel is open since the means were told */
    for (uint32_t r = 1; r < world->rank_count && status == WEIR_OK; r++)
        status = weir__world_send(world, r, pipe->balance.count, pipeline, sizeof *pipeline);
    weir__release(NULL, pipeline, 1, sizeof *pipeline);
    if (status != WEIR_OK) weir_faults_add(t->faults, "%s", world->calls->reason(world->context));
    return status;
}

static void adopt(struct train *t, const struct pipeline *pipeline, uint32_t balance_count) {
    struct pipe_options *pipe = &t->values->pipe;
    for (size_t i = 0; pipe_schedule_names[i] != NULL; i++)
        if (strcmp(pipe_schedule_names[i], pipeline->schedule) == 0)
            pipe->schedule = pipe_schedule_names[i];
    memcpy(t->search.checkpoint, pipeline->checkpoint, sizeof pipeline->checkpoint);
    pipe->checkpoint = t->search.checkpoint;
    pipe->stages = pipeline->stages;
    pipe->workers = pipeline->workers;
    pipe->virtual_stages = pipeline->virtual_stages;
    pipe->recompute = pipeline->recompute;
    pipe->chunks = pipeline->chunks;
    pipe->balance.count = balance_count;
    memcpy(pipe->balance.items, pipeline->balance, sizeof pipeline->balance);
}

int train_world_take_pipeline(struct train *t) {
    const struct weir_world *world = train_world(t);
    struct weir_arrival arrival = {0};
    struct pipeline *pipeline = weir__acquire(NULL, 1, sizeof *pipeline);
    if (pipeline == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    int status = weir__world_receive(world, 0, pipeline, sizeof *pipeline, &arrival);
    if (status == WEIR_OK) adopt(t, pipeline, arrival.tag);
    weir__release(NULL, pipeline, 1, sizeof *pipeline);
    if (status != WEIR_OK) weir_faults_add(t->faults, "%s", world->calls->reason(world->context));
    return status;
}

/* ---- leaving ---- */

static void tell_held(struct train_world *world) {
    char line[1024];
    if (world->lost.errors == 0) return;
    fflush(stderr);
    rewind(world->held);
    dup2(world->lost.errors, STDERR_FILENO);
    while (fgets(line, sizeof line, world->held) != NULL)
        fprintf(stderr, "rank %u on %s: %s", world->world.rank, world->world.host, line);
}

int train_world_leave(struct train *t, int code) {
    struct train_world *world = &t->world;
    const struct timespec grace = {.tv_nsec = GRACE_MS * 1000000L};
    const struct timespec pass_on = {.tv_nsec = PASS_ON_MS * 1000000L};
    if (!world->joined) return code;
    bool failed = code == EXIT_FAILED || code == EXIT_REFUSED;
    if (code == EXIT_DONE && train_world(t) != NULL) code = (int)(world->stopped & 255);
    if (failed && train_world(t) != NULL && !world->agreed) {
        if (world->world.rank > 0) (void)nanosleep(&grace, NULL);
        if (train_lost_claim(t, WEIR_OK)) train_lost_end(t); /* another has said why */
        tell_held(world);
        fflush(stderr);
        (void)nanosleep(&pass_on, NULL);
        world->world.calls->abort(world->world.context, code);
    }
    world->world.calls->close(world->world.context);
    if (world->held != NULL) fclose(world->held);
    return code;
}
