/* SPDX-License-Identifier: MIT */
/*
 * Goal: ranks whose workers are on GPUs, or on GPUs and CPUs, give the bits of one process, by NCCL
 * and through pinned memory alike, and end with a reason whatever fails. Method: the engine's
 * stages on the fake driver, ranks that are threads, messages and streams as late and in as hostile
 * an order as MPI, CUDA and NCCL allow; random pipes from the printed seed; each call of the driver
 * and of NCCL failing in turn, and the world's; a peer that is gone.
 */
#include "base/base.h"
#include "device/nccl.h"
#include "engine/engine_gpu.h"
#include "engine/engine_ranks.h"
#include "engine/threads_world.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { RANKS_MAX = 4, GPUS_MAX = 8, STEPS = 4, INFERRED = 2, STATE_MAX = 64 };

/* What a rank has, and what it saw: of its own thread until all have ended. */
struct rank {
    struct engine_model model;
    struct weir_pipe_options options;
    struct weir_step_result results[STEPS];
    int statuses[STEPS], built;
    uint32_t done; /* steps */
    struct engine_batch seen[STEPS];
    double gathered[ENGINE_STAGES_MAX][STATE_MAX]; /* parameters of all stages */
    char exchange[256], fault[256];
    uint64_t hops; /* pinned bytes of all workers' plans */
};

static struct engine_model model;
static struct engine_random run;
static struct rank ranks[RANKS_MAX];
static struct threads_options how;
static const char *devices[ENGINE_STAGES_MAX];

/* ---- on a rank ---- */

static struct weir_step step_number(const struct rank *rank, uint32_t k) {
    struct weir_step step = engine_step(&rank->seen[k]);
    step.mini_batch = step.update = k;
    return step;
}

static int run_steps(struct rank *rank, struct weir_pipe *pipe) {
    int status = WEIR_OK;
    for (uint32_t k = 0; k < STEPS && status == WEIR_OK; k++) {
        struct weir_step step = step_number(rank, k);
        status = k == INFERRED ? weir_pipe_infer(pipe, &step, &rank->results[k])
                               : weir_pipe_step(pipe, &step, &rank->results[k]);
        rank->statuses[k] = status;
        rank->done = k + 1;
    }
    for (uint32_t s = 0; status == WEIR_OK && s < rank->model.stage_count; s++) {
        struct weir_attachment at;
        size_t bytes = rank->model.stages[s].parameters * sizeof(double);
        status = weir_pipe_attachment(pipe, s, &at);
        if (status == WEIR_OK && bytes > 0)
            status = weir_pipe_read(pipe, s, rank->gathered[s], at.parameters, bytes);
    }
    return status;
}

static int open_pipe(struct rank *rank, struct weir_world *world, struct weir_pipe **pipe) {
    struct weir_faults faults = WEIR_FAULTS_INIT;
    faults.allocator = test_allocator();
    rank->options.world = world;
    rank->built = weir_pipe_new(&rank->options, &faults, pipe);
    for (uint32_t i = 0; i < faults.kept && rank->built != WEIR_OK; i++)
        snprintf(rank->fault, sizeof rank->fault, "%s", faults.lines[i]);
    weir_faults_clean_up(&faults);
    if (rank->built != WEIR_OK) return rank->built;
    snprintf(rank->exchange, sizeof rank->exchange, "%s", weir_pipe_exchange(*pipe));
    const struct weir_plan *plan = weir_pipe_plan(*pipe);
    for (uint32_t w = 0; w < plan->device_count; w++) rank->hops += plan->pinned[w].hops;
    return WEIR_OK;
}

static int train(void *context, struct weir_world *world) {
    struct rank *rank = &((struct rank *)context)[world->rank];
    struct weir_pipe *pipe = NULL;
    int status = open_pipe(rank, world, &pipe);
    if (status != WEIR_OK) return status;
    status = run_steps(rank, pipe);
    weir_pipe_destroy(pipe);
    return status;
}

/* ---- all of them ---- */

static void open_ranks(uint32_t count) {
    for (uint32_t r = 0; r < count; r++) {
        struct rank *rank = &ranks[r];
        memset(rank, 0, sizeof *rank);
        rank->model = model;
        struct weir_pipe_options fresh = engine_options(&rank->model);
        rank->options = run.options;
        rank->options.stages = fresh.stages;
        rank->options.inputs = fresh.inputs;
        rank->options.bind = "none";
        for (uint32_t k = 0; k < STEPS; k++)
            engine_batch_init(&rank->seen[k], &rank->model, rank->options.rows, 1 + k);
    }
}

static void close_ranks(uint32_t count) {
    for (uint32_t r = 0; r < count; r++)
        for (uint32_t k = 0; k < STEPS; k++) engine_batch_clean_up(&ranks[r].seen[k]);
}

/* The reference's steps beside what the ranks have seen. */
static bool compare(uint32_t count) {
    static struct engine_reference reference;
    static struct engine_order order;
    struct engine_reference_options own = {
        .chunks = run.options.chunks, .order = &order, .clip_norm = run.options.clip_norm};
    bool same = true;
    order = run.order;
    (void)engine_options(&model);
    engine_reference_init(&reference, &model);
    for (uint32_t k = 0; same && k < STEPS; k++) {
        struct engine_batch expected;
        engine_batch_init(&expected, &model, run.options.rows, 1 + k);
        struct weir_step step = engine_step(&expected);
        step.mini_batch = step.update = k;
        own.infer = k == INFERRED;
        if (!run.has_table)
            engine_order_of(&order, run.options.schedule,
                            engine_chunk_count(run.options.rows, run.options.chunks));
        engine_reference_step(&reference, &expected, &step, &own);
        for (uint32_t r = 0; same && r < count; r++)
            same = engine_expect_result(&ranks[r].results[k], &reference) &&
                   engine_expect_batches(&ranks[r].seen[k], &expected, k != INFERRED);
        engine_batch_clean_up(&expected);
    }
    for (uint32_t s = 0; same && s < model.stage_count; s++) {
        size_t bytes = model.stages[s].parameters * sizeof(double);
        for (uint32_t r = 0; same && r < count && bytes > 0; r++)
            same = EXPECT_EQ_BYTES(ranks[r].gathered[s], reference.parameters[s], bytes);
    }
    engine_reference_clean_up(&reference);
    return same;
}

static struct threads_world *last_world;
static _Atomic bool over;

/* GPUs go on by themselves, if slowly. */
static void *run_gpus(void *argument) {
    const struct weir_fake_cuda_control *gpu = argument;
    static const struct timespec little = {.tv_nsec = 20000}, more = {.tv_nsec = 200000};
    while (!atomic_load(&over)) (void)nanosleep(gpu->go_on() ? &little : &more, NULL);
    return NULL;
}

static int run_ranks(uint32_t count, threads_world_fn *function) {
    pthread_t runner;
    how.ranks = count;
    last_world = threads_world_new(&how);
    atomic_store(&over, false);
    if (pthread_create(&runner, NULL, run_gpus, (void *)(uintptr_t)model.gpu) != 0) abort();
    int status = threads_world_run(last_world, function, ranks);
    atomic_store(&over, true);
    pthread_join(runner, NULL);
    return status;
}

/* The fake's NCCL, or none. */
static void use_nccl(bool there) {
    setenv("WEIR_NCCL", there ? getenv("WEIR_CUDA_DRIVER") : "/nowhere/libnccl.so.2", 1);
}

/* ---- random pipes ---- */

static bool choose_devices(uint32_t workers, uint32_t gpus_each) {
    bool any = false;
    for (uint32_t w = 0; w < workers; w++) {
        uint32_t drawn = (uint32_t)test_random_below(gpus_each + 2);
        devices[w] = drawn == 0 ? "cpu" : drawn == 1 ? "cuda" : drawn == 2 ? "cuda:0" : "cuda:1";
        any |= drawn > 0;
    }
    return any;
}

static uint32_t choose(const struct weir_fake_cuda_control *gpu) {
    do engine_random_choose(&run, &model);
    while (run.options.workers < 2);
    struct weir_pipe_options *options = &run.options;
    uint32_t most = options->workers < RANKS_MAX ? options->workers : RANKS_MAX;
    uint32_t count = 1 + (uint32_t)test_random_below(most);
    if (count == 1) count += test_random_below(4) > 0; /* mostly there is another */
    bool few = test_random_below(4) == 0;              /* ranks share a GPU */
    uint32_t gpus = few ? 1 + (uint32_t)test_random_below(2) : GPUS_MAX;
    while (!choose_devices(options->workers, few ? 1 : 2)) continue;
    options->devices = devices;
    options->device_count = options->workers;
    options->debug_inputs = false; /* for CPUs, as delays are */
    options->link_delay_ns = 0;
    if (options->link == WEIR_LINK_POINTER) options->link = WEIR_LINK_AUTO;
    options->copy_by = (enum weir_copy_by)test_random_below(WEIR_COPY_BY_BATCH + 1);
    model.gpu = gpu;
    gpu->reset(test_random_u64(), gpus, test_random_below(4) == 0 ? WEIR_FAKE_CUDA_NO_PEERS : 0);
    if (test_random_below(8) == 0) gpu->set_order(WEIR_FAKE_CUDA_LAZY);
    if (test_random_below(16) == 0) gpu->set_order(WEIR_FAKE_CUDA_EAGER);
    use_nccl(test_random_below(3) > 0);
    how = (struct threads_options){.seed = test_random_u64(),
                                   .delay = (uint32_t)test_random_below(40)};
    return count;
}

static void run_one(const struct weir_fake_cuda_control *gpu, uint32_t number) {
    uint32_t count = choose(gpu);
    open_ranks(count);
    int status = run_ranks(count, train);
    for (uint32_t r = 0; r < count && status != WEIR_OK; r++)
        TEST_FAIL("rank %u: %s %s", r, ranks[r].fault,
                  ranks[r].results[ranks[r].done > 0 ? ranks[r].done - 1 : 0].error.message);
    threads_world_destroy(last_world);
    for (uint32_t r = 0; r < count; r++) engine_expect_clean(&ranks[r].model);
    if (EXPECT_STATUS(status, WEIR_OK) && compare(count)) engine_gpu_expect_clean(gpu);
    if (test_has_failed()) {
        printf("%u ranks, seed %llu, delay %u, %s\n", count, (unsigned long long)how.seed,
               how.delay, ranks[0].exchange);
        engine_random_describe(&run, number);
        for (uint32_t w = 0; w < run.options.device_count; w++) printf(" %s", devices[w]);
        printf("\n");
    }
    close_ranks(count);
}

static void test_any_ranks_on_gpus_give_the_reference_bits(void) {
    const struct weir_fake_cuda_control *gpu = engine_gpu_open();
    size_t runs = gpu == NULL ? 0 : test_count(60, 600);
    for (uint32_t number = 0; number < runs && !test_has_failed(); number++) run_one(gpu, number);
}

/* ---- two GPUs ---- */

/* Two stages and workers, one on each of two ranks. */
static void choose_pair(const struct weir_fake_cuda_control *gpu, const char *first,
                        const char *second, uint32_t gpus) {
    engine_model_init(&model, 2);
    memset(&run, 0, sizeof run);
    run.options = engine_options(&model);
    run.options.rows = 8;
    run.options.chunks = 4;
    run.options.workers = 2;
    run.options.schedule = "1f1b";
    run.options.checkpoint = WEIR_CHECKPOINT_NEVER;
    run.options.devices = devices;
    run.options.device_count = 2;
    devices[0] = first, devices[1] = second;
    model.gpu = gpu;
    gpu->reset(test_random_u64(), gpus, 0);
    use_nccl(true);
    how = (struct threads_options){.seed = test_random_u64(), .delay = 10};
}

/* Trains; what the ranks say of how they exchange, and how many messages were NCCL's. */
static uint64_t expect_exchange(const struct weir_fake_cuda_control *gpu, const char *part) {
    uint64_t before = gpu->nccl_given();
    open_ranks(2);
    EXPECT_STATUS(run_ranks(2, train), WEIR_OK);
    threads_world_destroy(last_world);
    for (uint32_t r = 0; r < 2; r++) EXPECT_CONTAINS(ranks[r].exchange, part);
    compare(2);
    engine_gpu_expect_clean(gpu);
    close_ranks(2);
    return gpu->nccl_given() - before;
}

static void test_gpus_exchange_by_nccl_where_they_can_and_say_why_not(void) {
    const struct weir_fake_cuda_control *gpu = engine_gpu_open();
    if (gpu == NULL) return;
    choose_pair(gpu, "cuda", "cuda", 2);
    /* 4 micro-batches, forward and back, in three steps; and forward alone in one: both sides */
    EXPECT_EQ_UINT(expect_exchange(gpu, "by NCCL 2.27.3"), 2 * (3 * 8 + 4));
    EXPECT_EQ_UINT(ranks[0].hops, 0);
    choose_pair(gpu, "cuda", "cuda", 1);
    EXPECT_EQ_UINT(expect_exchange(gpu, "share a GPU, which NCCL refuses"), 0);
    choose_pair(gpu, "cuda", "cuda", 2);
    use_nccl(false);
    EXPECT_EQ_UINT(expect_exchange(gpu, "it is not found on rank 0"), 0);
    choose_pair(gpu, "cuda", "cpu", 2);
    EXPECT_EQ_UINT(expect_exchange(gpu, ""), 0);
    EXPECT_EQ_STR(ranks[0].exchange, "");
    EXPECT(ranks[0].hops > 0);
}

static void expect_refused(const char *part) {
    open_ranks(2);
    EXPECT(run_ranks(2, train) != WEIR_OK);
    threads_world_destroy(last_world);
    bool said = false;
    for (uint32_t r = 0; r < 2; r++) said = said || strstr(ranks[r].fault, part) != NULL;
    if (!EXPECT(said)) printf("%s\n%s\n", ranks[0].fault, ranks[1].fault);
    close_ranks(2);
}

static void test_ranks_share_the_gpus_of_their_host(void) {
    const struct weir_fake_cuda_control *gpu = engine_gpu_open();
    if (gpu == NULL) return;
    choose_pair(gpu, "cuda:1", "cuda:1", 4); /* GPUs 1 and 3 */
    EXPECT(expect_exchange(gpu, "by NCCL") > 0);
    choose_pair(gpu, "cuda:1", "cuda:1", 2);
    expect_refused("2 ranks share 2 GPUs of this host");
    engine_gpu_expect_clean(gpu);
}

/* ---- failures ---- */

/* One step that fails on a rank, and then the same again. */
static int fail_and_repeat(void *context, struct weir_world *world) {
    struct rank *rank = &((struct rank *)context)[world->rank];
    struct weir_pipe *pipe = NULL;
    int status = open_pipe(rank, world, &pipe);
    if (status != WEIR_OK) return status;
    for (uint32_t k = 0; k < 2; k++) {
        struct weir_step step = step_number(rank, 0);
        rank->statuses[k] = weir_pipe_step(pipe, &step, &rank->results[k]);
        rank->model.failure.armed = false;
    }
    weir_pipe_destroy(pipe);
    return WEIR_OK;
}

static void fail_in(const struct weir_fake_cuda_control *gpu, uint32_t rank, enum weir_phase phase,
                    bool nccl) {
    choose_pair(gpu, "cuda", "cuda", 2);
    use_nccl(nccl);
    open_ranks(2);
    ranks[rank].model.failure.armed = true;
    ranks[rank].model.failure.phase = phase;
    ranks[rank].model.failure.stage = rank;
    ranks[rank].model.failure.micro_batch = phase == WEIR_NORM ? 0 : 2;
    ranks[rank].model.failure.status = 77;
    EXPECT_STATUS(run_ranks(2, fail_and_repeat), WEIR_OK);
    threads_world_destroy(last_world);
    for (uint32_t r = 0; r < 2; r++) {
        EXPECT_STATUS(ranks[r].statuses[0], 77);
        EXPECT_EQ_INT(ranks[r].results[0].error.stage, (int)rank);
        EXPECT(!ranks[r].results[0].updated);
        EXPECT_STATUS(ranks[r].statuses[1], WEIR_OK);
        EXPECT(ranks[r].results[1].updated);
    }
    EXPECT_EQ_BYTES(&ranks[0].results[1].loss, &ranks[1].results[1].loss, sizeof(double));
    engine_gpu_expect_clean(gpu);
    close_ranks(2);
}

static void test_a_failure_is_told_on_all_ranks_and_the_next_step_goes_on(void) {
    static const enum weir_phase phases[] = {WEIR_FORWARD, WEIR_BACKWARD, WEIR_NORM};
    const struct weir_fake_cuda_control *gpu = engine_gpu_open();
    for (uint32_t i = 0; gpu != NULL && i < 12 && !test_has_failed(); i++)
        fail_in(gpu, i % 2, phases[i / 2 % 3], i / 6 == 0);
}

/* Whatever fails, all end, with a reason, and give back what they have. */
static void expect_end(const struct weir_fake_cuda_control *gpu, bool fired, const char *what,
                       uint64_t k) {
    struct weir_fake_cuda_counts counts;
    for (uint32_t r = 0; r < 2; r++) {
        const struct rank *rank = &ranks[r];
        bool stepped = rank->done > 0 && rank->statuses[rank->done - 1] != WEIR_OK;
        if (stepped) EXPECT(rank->results[rank->done - 1].error.message[0] != '\0');
        if (!fired) EXPECT_STATUS(rank->done > 0 ? rank->statuses[rank->done - 1] : -1, WEIR_OK);
    }
    gpu->counts(&counts);
    EXPECT_EQ_UINT(counts.contexts + counts.streams + counts.events, 0);
    EXPECT_EQ_UINT(counts.allocations + counts.pins + counts.plans, 0);
    EXPECT_EQ_STR(counts.first_fault, "");
    if (test_has_failed()) printf("%s %llu\n", what, (unsigned long long)k);
}

/* Some of all: the step that grows would pass by what is rare near the end. */
static uint64_t after(uint64_t k) {
    return k + 1 + k / 12 + test_random_below(4);
}

static void test_any_call_of_the_driver_or_nccl_that_fails_ends_all_ranks(void) {
    const struct weir_fake_cuda_control *gpu = engine_gpu_open();
    bool fired = gpu != NULL;
    for (uint64_t k = 1; fired && !test_has_failed(); k = after(k)) {
        choose_pair(gpu, "cuda", "cuda", 2);
        open_ranks(2);
        gpu->fail_call(k, 2); /* out of memory: it does not stay */
        (void)run_ranks(2, train);
        fired = gpu->failed();
        threads_world_destroy(last_world);
        expect_end(gpu, fired, "call", k);
        close_ranks(2);
    }
}

static int build(void *context, struct weir_world *world) {
    struct weir_pipe *pipe = NULL;
    (void)open_pipe(&((struct rank *)context)[world->rank], world, &pipe);
    weir_pipe_destroy(pipe);
    return WEIR_OK;
}

/* No rank waits for one that has no memory. */
static void test_any_allocation_that_fails_on_a_rank_ends_all(void) {
    const struct weir_fake_cuda_control *gpu = engine_gpu_open();
    bool fired = gpu != NULL;
    for (uint64_t k = 1; fired && !test_has_failed(); k++) {
        struct engine_scarce scarce;
        choose_pair(gpu, "cuda", "cuda", 2);
        how.no_launcher = true;
        open_ranks(2);
        engine_scarce_init(&scarce, k);
        ranks[k % 2].options.allocator = &scarce.allocator;
        EXPECT_STATUS(run_ranks(2, build), WEIR_OK);
        fired = engine_scarce_fired(&scarce);
        threads_world_destroy(last_world);
        for (uint32_t r = 0; r < 2; r++) EXPECT((ranks[r].built != WEIR_OK) == fired);
        engine_gpu_expect_clean(gpu);
        close_ranks(2);
        if (test_has_failed()) printf("allocation %llu\n", (unsigned long long)k);
    }
}

/* A world of one rank, whose NCCL ids come with another tag. */
static const struct weir_world_calls *whole_calls;

static int send_odd(void *context, const struct weir_message *message,
                    struct weir_request *request) {
    struct weir_message sent = *message;
    if (sent.channel == 0 && sent.bytes == sizeof(struct weir__nccl_id)) sent.tag ^= 1;
    return whole_calls->send(context, &sent, request);
}

static int build_with_odd_ids(void *context, struct weir_world *world) {
    struct weir_world odd = *world;
    struct weir_world_calls calls = *world->calls;
    if (world->rank == 0) whole_calls = world->calls;
    calls.send = send_odd;
    odd.calls = &calls;
    return build(context, world->rank == 0 ? &odd : world);
}

static void test_an_nccl_id_that_is_of_something_else_is_refused(void) {
    const struct weir_fake_cuda_control *gpu = engine_gpu_open();
    if (gpu == NULL) return;
    choose_pair(gpu, "cuda", "cuda", 2);
    how.no_launcher = true;
    open_ranks(2);
    EXPECT_STATUS(run_ranks(2, build_with_odd_ids), WEIR_OK);
    threads_world_destroy(last_world);
    for (uint32_t r = 0; r < 2; r++) {
        EXPECT_STATUS(ranks[r].built, WEIR_ERR_PEER);
        EXPECT_CONTAINS(ranks[r].fault, "rank 1: rank 0 is at something else");
    }
    engine_gpu_expect_clean(gpu);
    close_ranks(2);
}

static void test_a_lost_peer_of_nccl_is_an_error_and_no_hang(void) {
    const struct weir_fake_cuda_control *gpu = engine_gpu_open();
    for (uint64_t k = 1; gpu != NULL && k <= 48 && !test_has_failed(); k += 3) {
        choose_pair(gpu, "cuda", "cuda", 2);
        open_ranks(2);
        gpu->nccl_lose(k);
        EXPECT_STATUS(run_ranks(2, train), WEIR_ERR_PEER);
        threads_world_destroy(last_world);
        bool named = false;
        for (uint32_t r = 0; r < 2; r++)
            for (uint32_t s = 0; s < STEPS; s++)
                named = named || strstr(ranks[r].results[s].error.message, "remote process");
        EXPECT(named);
        expect_end(gpu, true, "message", k);
        close_ranks(2);
    }
}

static void test_a_world_that_fails_at_any_call_ends_every_rank(void) {
    const struct weir_fake_cuda_control *gpu = engine_gpu_open();
    bool fired = gpu != NULL;
    for (uint32_t k = 1; fired && !test_has_failed(); k += 1 + k / 8) {
        choose_pair(gpu, "cuda", k % 3 == 0 ? "cpu" : "cuda", 2);
        how.fail_rank = k % 2;
        how.fail_call = k;
        open_ranks(2);
        (void)run_ranks(2, train);
        fired = threads_world_fired(last_world);
        threads_world_destroy(last_world);
        expect_end(gpu, fired, "world's call", k);
        close_ranks(2);
    }
}

WEIR_TEST_SUITE(ranks_gpu, TEST(gpus_exchange_by_nccl_where_they_can_and_say_why_not),
                TEST(ranks_share_the_gpus_of_their_host),
                TEST(any_ranks_on_gpus_give_the_reference_bits),
                TEST(a_failure_is_told_on_all_ranks_and_the_next_step_goes_on),
                TEST(any_call_of_the_driver_or_nccl_that_fails_ends_all_ranks),
                TEST(any_allocation_that_fails_on_a_rank_ends_all),
                TEST(an_nccl_id_that_is_of_something_else_is_refused),
                TEST(a_lost_peer_of_nccl_is_an_error_and_no_hang),
                TEST(a_world_that_fails_at_any_call_ends_every_rank))
