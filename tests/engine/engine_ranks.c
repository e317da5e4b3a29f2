/* SPDX-License-Identifier: MIT */
#include "engine/engine_ranks.h"

#include "engine/engine_gpu.h"
#include "pipe/run/ranks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- on a rank ---- */

struct weir_step engine_ranks_step(const struct engine_ranks *all, const struct engine_batch *batch,
                                   uint32_t k) {
    struct weir_step step = engine_step(batch);
    step.mini_batch = step.update = k;
    step.no_update = k == ENGINE_STEP_KEEPS;
    if (all->run.options.accumulates) step.accumulate_last = k != 0, step.accumulate_first = k != 1;
    return step;
}

/* A rank has the arenas of its own workers, as large as planned, messages' slots in them, and no
 * others'. */
static void expect_planned_memory(const struct weir_pipe *pipe) {
    const struct weir_plan *plan = weir_pipe_plan(pipe);
    for (uint32_t w = 0; w < plan->device_count; w++) {
        const struct weir__arena *arena = &pipe->memory.arenas[w];
        bool here = pipe->ranks == NULL || (w >= pipe->ranks->first && w < pipe->ranks->end);
        EXPECT_EQ_UINT(weir__arena_bytes(arena), here ? plan->devices[w].total : 0);
        EXPECT_EQ_INT(arena->lasting != NULL || arena->working != NULL,
                      here && plan->devices[w].total > 0);
    }
}

int engine_rank_build(struct engine_rank *rank, struct weir_world *world, struct weir_pipe **pipe) {
    struct weir_faults faults = WEIR_FAULTS_INIT;
    faults.allocator = test_allocator();
    rank->options.world = world;
    rank->built = weir_pipe_new(&rank->options, &faults, pipe);
    snprintf(rank->said, sizeof rank->said, "%s", faults.kept > 0 ? faults.lines[0] : "");
    weir_faults_clean_up(&faults);
    if (rank->built != WEIR_OK) return rank->built;
    snprintf(rank->exchange, sizeof rank->exchange, "%s", weir_pipe_exchange(*pipe));
    const struct weir_plan *plan = weir_pipe_plan(*pipe);
    for (uint32_t w = 0; w < plan->device_count; w++) rank->hops += plan->pinned[w].hops;
    expect_planned_memory(*pipe);
    return WEIR_OK;
}

static int look_at_stage(struct engine_rank *rank, struct weir_pipe *pipe, uint32_t s) {
    struct weir_attachment at;
    size_t bytes = rank->model.stages[s].parameters * sizeof(double);
    int status = weir_pipe_attachment(pipe, s, &at);
    if (status != WEIR_OK || bytes == 0) return status;
    rank->has[s] = at.parameters != NULL;
    if (rank->has[s])
        status = weir__pipe_read_own(pipe, s, rank->parameters[s], at.parameters, bytes);
    if (status == WEIR_OK && rank->has[s] && at.optimizer != NULL)
        status = weir__pipe_read_own(pipe, s, rank->optimizer[s], at.optimizer, bytes);
    if (status != WEIR_OK) return status;
    return weir_pipe_read(pipe, s, rank->gathered[s], at.parameters, bytes);
}

int engine_rank_look(struct engine_rank *rank, struct weir_pipe *pipe) {
    int status = WEIR_OK;
    for (uint32_t s = 0; s < rank->model.stage_count && status == WEIR_OK; s++)
        status = look_at_stage(rank, pipe, s);
    return status;
}

/* Those of one replica are all replicas'. */
static int read_gradients(struct engine_rank *rank, struct weir_pipe *pipe) {
    for (uint32_t s = 0; s < rank->model.stage_count; s++) {
        struct weir_attachment at;
        size_t bytes = rank->model.stages[s].parameters * sizeof(double);
        double own[ENGINE_STATE_MAX], gathered[ENGINE_STATE_MAX];
        int status = weir_pipe_attachment(pipe, s, &at);
        if (status != WEIR_OK || bytes == 0 || rank->model.stages[s].frozen) continue;
        status = weir_pipe_read(pipe, s, gathered, at.gradients, bytes);
        if (status != WEIR_OK) return status;
        if (at.gradients == NULL) continue;
        status = weir__pipe_read_own(pipe, s, own, at.gradients, bytes);
        if (status != WEIR_OK) return status;
        EXPECT_EQ_BYTES(own, gathered, bytes);
    }
    return WEIR_OK;
}

/* Numbers that are none where others have the rows; nothing is to come of them. */
static void spoil_foreign_rows(struct engine_rank *rank, const struct weir_pipe *pipe,
                               struct engine_batch *batch) {
    for (uint32_t i = 0; i < rank->options.input_count; i++) {
        size_t row = pipe->setup.options.inputs[i].rows_factor * pipe->setup.input_row_bytes[i];
        int64_t first, count;
        weir_pipe_input_rows(pipe, i, batch->rows, &first, &count);
        if (rank->options.inputs[i].replicated) row = 0; /* for all rows */
        memset(batch->inputs[i], 0xFF, (size_t)first * row);
        memset((char *)batch->inputs[i] + (size_t)(first + count) * row, 0xFF,
               (size_t)(batch->rows - first - count) * row);
    }
}

int engine_rank_steps(struct engine_rank *rank, struct weir_pipe *pipe) {
    int status = WEIR_OK;
    for (uint32_t k = 0; k < ENGINE_STEPS && status == WEIR_OK; k++) {
        if (k != ENGINE_STEP_INFERS) spoil_foreign_rows(rank, pipe, &rank->seen[k]);
        struct weir_step step = engine_ranks_step(rank->of, &rank->seen[k], k);
        status = k == ENGINE_STEP_INFERS ? weir_pipe_infer(pipe, &step, &rank->results[k])
                                         : weir_pipe_step(pipe, &step, &rank->results[k]);
        rank->statuses[k] = status;
        rank->done = k + 1;
        if (status == WEIR_OK && step.no_update) status = read_gradients(rank, pipe);
    }
    return status == WEIR_OK ? engine_rank_look(rank, pipe) : status;
}

int engine_rank_try(void *context, struct weir_world *world) {
    struct weir_pipe *pipe = NULL;
    (void)engine_rank_build(&((struct engine_rank *)context)[world->rank], world, &pipe);
    weir_pipe_destroy(pipe);
    return WEIR_OK;
}

int engine_rank_train(void *context, struct weir_world *world) {
    struct engine_rank *rank = &((struct engine_rank *)context)[world->rank];
    struct weir_pipe *pipe = NULL;
    int status = engine_rank_build(rank, world, &pipe);
    if (status != WEIR_OK) return status;
    status = engine_rank_steps(rank, pipe);
    weir_pipe_destroy(pipe);
    return status;
}

int engine_rank_repeat(void *context, struct weir_world *world) {
    struct engine_rank *rank = &((struct engine_rank *)context)[world->rank];
    struct weir_pipe *pipe = NULL;
    int status = engine_rank_build(rank, world, &pipe);
    if (status != WEIR_OK) return status;
    for (uint32_t k = 0; k < 2; k++) {
        struct weir_step step = engine_step(&rank->seen[0]);
        rank->statuses[k] = weir_pipe_step(pipe, &step, &rank->results[k]);
        rank->model.failure.armed = false;
        rank->model.combine_status = 0;
    }
    status = engine_rank_look(rank, pipe);
    weir_pipe_destroy(pipe);
    return status;
}

void engine_rank_fails(struct engine_rank *rank, enum weir_phase phase, uint32_t stage,
                       uint32_t micro_batch) {
    rank->model.failure.armed = true;
    rank->model.failure.phase = phase;
    rank->model.failure.stage = stage;
    rank->model.failure.micro_batch = micro_batch;
    rank->model.failure.status = 77;
}

/* ---- all of them ---- */

void engine_ranks_open(struct engine_ranks *all, uint32_t count) {
    CHECK(count <= ENGINE_RANKS_MAX);
    for (uint32_t r = 0; r < count; r++) {
        struct engine_rank *rank = &all->ranks[r];
        memset(rank, 0, sizeof *rank);
        rank->of = all;
        rank->model = all->model;
        struct weir_pipe_options fresh = engine_options(&rank->model);
        rank->options = all->run.options;
        rank->options.stages = fresh.stages;
        rank->options.inputs = fresh.inputs;
        rank->options.bind = "none";
        for (uint32_t k = 0; k < ENGINE_STEPS; k++)
            engine_batch_init(&rank->seen[k], &rank->model, rank->options.rows, 1 + k);
    }
}

void engine_ranks_close(struct engine_ranks *all, uint32_t count) {
    for (uint32_t r = 0; r < count; r++) {
        engine_expect_clean(&all->ranks[r].model);
        for (uint32_t k = 0; k < ENGINE_STEPS; k++) engine_batch_clean_up(&all->ranks[r].seen[k]);
    }
}

int engine_ranks_run(struct engine_ranks *all, uint32_t count, threads_world_fn *function) {
    struct engine_gpu_goer goer;
    all->how.ranks = count;
    struct threads_world *world = threads_world_new(&all->how);
    engine_gpu_goer_begin(&goer, all->model.gpu);
    int status = threads_world_run(world, function, all->ranks);
    engine_gpu_goer_end(&goer);
    all->fired = threads_world_fired(world);
    threads_world_destroy(world);
    return status;
}

static bool expect_stage(const struct engine_ranks *all, const struct engine_reference *reference,
                         uint32_t count, uint32_t s) {
    uint32_t owned[ENGINE_STATE_MAX] = {0}, numbers = all->model.stages[s].parameters;
    bool learns = !all->model.stages[s].frozen && !all->model.stages[s].fixed, same = true;
    size_t bytes = numbers * sizeof(double);
    for (uint32_t r = 0; same && r < count && bytes > 0; r++) {
        const struct engine_rank *rank = &all->ranks[r];
        same = EXPECT_EQ_BYTES(rank->gathered[s], reference->parameters[s], bytes);
        if (!same || !rank->has[s]) continue;
        same = EXPECT_EQ_BYTES(rank->parameters[s], reference->parameters[s], bytes);
        for (uint32_t i = 0; same && learns && i < numbers; i++) {
            if (!engine_owns(&rank->model.stages[s], i)) continue;
            same = EXPECT_EQ_BYTES(&rank->optimizer[s][i], &reference->optimizer[s][i],
                                   sizeof(double));
            owned[i]++;
        }
    }
    for (uint32_t i = 0; same && learns && i < numbers; i++) same = EXPECT_EQ_UINT(owned[i], 1);
    return same;
}

bool engine_ranks_expect_state(const struct engine_ranks *all,
                               const struct engine_reference *reference, uint32_t count) {
    bool same = true;
    for (uint32_t s = 0; same && s < all->model.stage_count; s++)
        same = expect_stage(all, reference, count, s);
    return same;
}

bool engine_ranks_compare(struct engine_ranks *all, uint32_t count) {
    static struct engine_reference reference;
    static struct engine_order order;
    const struct weir_pipe_options *options = &all->run.options;
    struct engine_reference_options own = {.chunks = options->chunks,
                                           .order = &order,
                                           .clip_norm = options->clip_norm,
                                           .groups = options->gradient_groups};
    bool same = true;
    order = all->run.order;
    (void)engine_options(&all->model);
    engine_reference_init(&reference, &all->model);
    for (uint32_t k = 0; same && k < ENGINE_STEPS; k++) {
        struct engine_batch expected;
        engine_batch_init(&expected, &all->model, options->rows, 1 + k);
        struct weir_step step = engine_ranks_step(all, &expected, k);
        own.infer = k == ENGINE_STEP_INFERS;
        if (!all->run.has_table)
            engine_order_of(&order, options->schedule,
                            engine_chunk_count(options->rows, options->chunks));
        engine_reference_step(&reference, &expected, &step, &own);
        for (uint32_t r = 0; same && r < count; r++)
            same = engine_expect_result(&all->ranks[r].results[k], &reference) &&
                   engine_expect_batches(&all->ranks[r].seen[k], &expected, !own.infer);
        engine_batch_clean_up(&expected);
    }
    same = same && engine_ranks_expect_state(all, &reference, count);
    engine_reference_clean_up(&reference);
    return same;
}

void engine_ranks_expect(struct engine_ranks *all, uint32_t count) {
    const struct weir_pipe_options *options = &all->run.options;
    engine_ranks_open(all, count);
    int status = engine_ranks_run(all, count, engine_rank_train);
    for (uint32_t r = 0; r < count && status != WEIR_OK; r++) {
        const struct engine_rank *rank = &all->ranks[r];
        TEST_FAIL("rank %u: %s %s", r, rank->said,
                  rank->results[rank->done > 0 ? rank->done - 1 : 0].error.message);
    }
    if (EXPECT_STATUS(status, WEIR_OK)) engine_ranks_compare(all, count);
    engine_ranks_close(all, count);
    if (!test_has_failed()) return;
    printf("%u ranks, %u replicas, %u groups%s, seed %llu, delay %u, %s\n", count,
           options->replicas, options->gradient_groups, options->accumulates ? " that last" : "",
           (unsigned long long)all->how.seed, all->how.delay, all->ranks[0].exchange);
    for (uint32_t w = 0; w < options->device_count; w++) printf(" %s", all->devices[w]);
    printf("\n");
}

/* Whether the schedule can be had for a replica's micro-batches, the last one's too. */
static bool accepts(const struct weir_pipe_options *options, uint32_t replicas) {
    struct weir_table_options want = WEIR_TABLE_OPTIONS_INIT;
    uint32_t m = engine_chunk_count(options->rows, options->chunks);
    uint32_t groups = options->gradient_groups;
    uint32_t most = (m + groups - 1) / groups * (groups / replicas);
    uint32_t counts[] = {most, m - most * (replicas - 1)};
    bool all = true;
    want.schedule = options->schedule;
    want.stages = options->stage_count;
    want.workers = options->workers;
    for (int i = 0; i < 2; i++) {
        struct weir_table *table = NULL;
        want.micro_batches = counts[i];
        all = all && weir_table_new(&want, NULL, &table) == WEIR_OK;
        weir_table_destroy(table);
    }
    return all;
}

uint32_t engine_ranks_random(struct engine_ranks *all, uint32_t replicas) {
    struct weir_pipe_options *options = &all->run.options;
    uint32_t m;
    do {
        engine_random_choose(&all->run, &all->model);
        all->model.sliced = true;
        options->rows += 8;
        options->chunks += replicas;
        options->gradient_groups = replicas << test_random_below(3);
        options->accumulates = test_random_below(2) == 0;
        m = engine_chunk_count(options->rows, options->chunks);
    } while (all->run.has_table || options->debug_inputs ||
             !engine_fills_groups(m, options->gradient_groups) || !accepts(options, replicas));
    options->replicas = replicas;
    all->how = (struct threads_options){.seed = test_random_u64(),
                                        .delay = (uint32_t)test_random_below(40)};
    uint32_t most = ENGINE_RANKS_MAX / replicas;
    if (most > options->workers) most = options->workers;
    return replicas * (1 + (uint32_t)test_random_below(most < 3 ? most : 3));
}

void engine_ranks_choose(struct engine_ranks *all, uint32_t stages, uint32_t replicas) {
    engine_model_init(&all->model, stages);
    memset(&all->run, 0, sizeof all->run);
    all->model.sliced = replicas > 1;
    struct weir_pipe_options *options = &all->run.options;
    *options = engine_options(&all->model);
    options->rows = 8 * replicas;
    options->chunks = 4 * replicas;
    options->workers = stages;
    options->schedule = "1f1b";
    options->checkpoint = WEIR_CHECKPOINT_NEVER;
    if (replicas > 1) options->replicas = replicas;
    if (replicas > 1) options->gradient_groups = 2 * replicas;
    all->how = (struct threads_options){.seed = test_random_u64(), .delay = 20};
}

/* ---- GPUs ---- */

void engine_ranks_use_nccl(bool there) {
    setenv("WEIR_NCCL", there ? getenv("WEIR_CUDA_DRIVER") : "/nowhere/libnccl.so.2", 1);
}

/* So many GPUs belong to a rank. */
static bool draw_devices(struct engine_ranks *all, uint32_t gpus_each) {
    bool any = false;
    for (uint32_t w = 0; w < all->run.options.workers; w++) {
        uint32_t drawn = (uint32_t)test_random_below((gpus_each < 2 ? gpus_each : 2) + 2);
        all->devices[w] = drawn == 0   ? "cpu"
                          : drawn == 1 ? "cuda"
                          : drawn == 2 ? "cuda:0"
                                       : "cuda:1";
        any |= drawn > 0;
    }
    return any;
}

void engine_ranks_use_gpus(struct engine_ranks *all, const struct weir_fake_cuda_control *gpu,
                           uint32_t count) {
    struct weir_pipe_options *options = &all->run.options;
    bool few = test_random_below(4) == 0; /* ranks share a GPU */
    uint32_t gpus = few ? 1 + (uint32_t)test_random_below(2) : WEIR_FAKE_CUDA_GPUS_MAX;
    while (!draw_devices(all, few ? 1 : gpus / count)) continue;
    options->devices = all->devices;
    options->device_count = options->workers;
    options->debug_inputs = false; /* for CPUs, as delays are */
    options->link_delay_ns = 0;
    if (options->link == WEIR_LINK_POINTER) options->link = WEIR_LINK_AUTO;
    options->copy_by = (enum weir_copy_by)test_random_below(WEIR_COPY_BY_BATCH + 1);
    all->model.gpu = gpu;
    gpu->reset(test_random_u64(), gpus, test_random_below(4) == 0 ? WEIR_FAKE_CUDA_NO_PEERS : 0);
    if (test_random_below(8) == 0) gpu->set_order(WEIR_FAKE_CUDA_LAZY);
    if (test_random_below(16) == 0) gpu->set_order(WEIR_FAKE_CUDA_EAGER);
    engine_ranks_use_nccl(test_random_below(3) > 0);
}

void engine_ranks_name_gpus(struct engine_ranks *all, const struct weir_fake_cuda_control *gpu,
                            const char *first, const char *second) {
    struct weir_pipe_options *options = &all->run.options;
    for (uint32_t w = 0; w < options->workers; w++) all->devices[w] = w == 1 ? second : first;
    options->devices = all->devices;
    options->device_count = options->workers;
    all->model.gpu = gpu;
    engine_ranks_use_nccl(true);
}

void engine_ranks_expect_end(const struct engine_ranks *all, uint32_t count) {
    struct weir_fake_cuda_counts counts;
    for (uint32_t r = 0; r < count; r++) {
        const struct engine_rank *rank = &all->ranks[r];
        bool stepped = rank->done > 0 && rank->statuses[rank->done - 1] != WEIR_OK;
        if (stepped) EXPECT(rank->results[rank->done - 1].error.message[0] != '\0');
    }
    all->model.gpu->counts(&counts);
    EXPECT_EQ_UINT(counts.contexts + counts.streams + counts.events, 0);
    EXPECT_EQ_UINT(counts.allocations + counts.pins + counts.plans, 0);
    EXPECT_EQ_STR(counts.first_fault, "");
}

/* ---- memory ---- */

static void *acquire_scarce(void *context, size_t bytes, size_t alignment) {
    struct engine_scarce *scarce = context;
    const struct weir_allocator *whole = test_allocator();
    if (atomic_fetch_add(&scarce->count, 1) + 1 == scarce->fail_at) return NULL;
    return whole->acquire(whole->context, bytes, alignment);
}

static void release_scarce(void *context, void *memory, size_t bytes) {
    const struct weir_allocator *whole = test_allocator();
    (void)context;
    whole->release(whole->context, memory, bytes);
}

void engine_scarce_init(struct engine_scarce *scarce, uint64_t fail_at) {
    scarce->allocator = (struct weir_allocator){
        .context = scarce, .acquire = acquire_scarce, .release = release_scarce};
    atomic_init(&scarce->count, 0);
    scarce->fail_at = fail_at;
}

bool engine_scarce_fired(struct engine_scarce *scarce) {
    return scarce->fail_at > 0 && atomic_load(&scarce->count) >= scarce->fail_at;
}
