/* SPDX-License-Identifier: MIT */
/*
 * Goal: a pipe over GPUs, or over GPUs and CPUs together, gives the same bits as its reference,
 * waits for all that it must and for nothing that other waits imply, and survives every failure of
 * the driver. Method: the engine's stages on the fake driver, which runs streams as late and in an
 * order as bad as CUDA allows; random pipes from the printed seed; each wait taken away in turn;
 * each call of the driver failing in turn. What needs no such driver runs on real GPUs as well.
 */
#include "engine/engine_gpu.h"
#include "pipe/run/pipe.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GPUS = 2 };

static struct engine_model model;
static struct engine_trial trial;
static struct engine_random run;
static const char *devices[ENGINE_STAGES_MAX];

/* ---- random pipes ---- */

static bool choose_devices(uint32_t workers) {
    static const char *const names[] = {"cpu", "cuda:0", "cuda:1", "cuda"};
    bool any = false;
    for (uint32_t w = 0; w < workers; w++) {
        devices[w] = engine_gpu_name(names[test_random_below(sizeof names / sizeof *names)]);
        any |= strcmp(devices[w], "cpu") != 0;
    }
    return any;
}

static void choose(const struct weir_fake_cuda_control *gpu) {
    engine_random_choose(&run, &model);
    struct weir_pipe_options *options = &run.options;
    uint32_t workers = options->workers > 0 ? options->workers : options->stage_count;
    while (!choose_devices(workers)) continue;
    options->devices = devices;
    options->device_count = workers;
    options->debug_inputs = false; /* for CPUs, as delays are */
    options->link_delay_ns = 0;
    if (options->link == WEIR_LINK_POINTER) options->link = WEIR_LINK_AUTO;
    options->copy_by = (enum weir_copy_by)test_random_below(WEIR_COPY_BY_BATCH + 1);
    engine_random_groups(&run);
    options->accumulates = true; /* one of the steps is two parts of an update */
    model.gpu = gpu;
    uint32_t flags = test_random_below(4) == 0 ? WEIR_FAKE_CUDA_NO_PEERS : 0;
    gpu->reset(test_random_u64(), GPUS, flags);
    if (test_random_below(8) == 0) gpu->set_order(WEIR_FAKE_CUDA_LAZY);
    if (test_random_below(16) == 0) gpu->set_order(WEIR_FAKE_CUDA_EAGER);
}

static const char *const ways[] = {"by choice", "by engine", "by kernel", "by batch"};

static void describe(uint32_t number) {
    engine_random_describe(&run, number);
    for (uint32_t w = 0; w < run.options.device_count; w++) printf(" %s", devices[w]);
    printf(", %s\n", ways[run.options.copy_by]);
}

/* ---- orders ---- */

/* The orders in which steps' work ran, by hash. */
struct orders {
    uint64_t seen; /* entries of the log that belong to earlier steps of this pipe */
    uint32_t count;
    uint64_t hashes[4096];
};

struct work {
    uint64_t ran, stream;
    const char *call;
};

static int by_turn(const void *a, const void *b) {
    const struct work *x = a, *y = b;
    return (x->ran > y->ran) - (x->ran < y->ran);
}

static uint64_t hash_of(const struct work *work, size_t count) {
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < count; i++) {
        hash = (hash ^ work[i].stream) * 0x100000001b3u;
        for (const char *c = work[i].call; *c != '\0'; c++)
            hash = (hash ^ (unsigned char)*c) * 0x100000001b3u;
    }
    return hash;
}

/* What ran since the last call. Work of equal streams in an equal order counts once. */
static void note_order(struct orders *orders, const struct weir_fake_cuda_control *gpu) {
    enum { WORK_MAX = 1 << 16 };
    static struct work work[WORK_MAX];
    struct weir_fake_cuda_entry entry;
    size_t count = 0;
    if (gpu->entry == NULL) return; /* a real GPU's order is its own affair */
    for (; gpu->entry(orders->seen, &entry); orders->seen++)
        if (entry.ran > 0 && count < WORK_MAX)
            work[count++] = (struct work){entry.ran, entry.stream, entry.call};
    qsort(work, count, sizeof *work, by_turn);
    uint64_t hash = hash_of(work, count);
    bool known = orders->count == WEIR__COUNT_OF(orders->hashes);
    for (uint32_t i = 0; !known && i < orders->count; i++) known = orders->hashes[i] == hash;
    if (!known) orders->hashes[orders->count++] = hash;
}

/* Another row count, for which streams, signals and staging may grow. */
static void run_short(struct orders *orders) {
    int64_t rows = 1 + (int64_t)test_random_below((uint64_t)run.options.rows);
    uint32_t m = engine_chunk_count(rows, run.options.chunks);
    bool trains = !run.has_table && engine_random_accepts(&run, rows) &&
                  engine_fills_groups(m, run.options.gradient_groups);
    int status = trains ? weir_pipe_prepare(trial.pipe, rows, NULL)
                        : weir_pipe_prepare_infer(trial.pipe, rows, NULL);
    if (!EXPECT_STATUS(status, WEIR_OK)) return;
    if (trains) engine_trial_rows(&trial, rows, false);
    note_order(orders, model.gpu);
    if (!test_has_failed()) engine_trial_rows(&trial, rows, true);
    note_order(orders, model.gpu);
}

/* A norm alone, then one update after two mini-batches. */
static void run_accumulated(struct orders *orders) {
    trial.base.no_update = true;
    if (!test_has_failed()) engine_trial_step(&trial);
    note_order(orders, model.gpu);
    trial.base.no_update = trial.base.accumulate_last = false;
    if (!test_has_failed()) engine_trial_step(&trial);
    note_order(orders, model.gpu);
    trial.base.accumulate_first = false, trial.base.accumulate_last = true;
    if (!test_has_failed()) engine_trial_step(&trial);
    note_order(orders, model.gpu);
    trial.base.accumulate_first = true;
}

static void run_steps(struct orders *orders) {
    const struct engine_order *order = run.has_table ? &run.order : NULL;
    if (!engine_trial_open(&trial, &model, &run.options, order)) return;
    for (int k = 0; k < 3 && !test_has_failed(); k++) {
        engine_trial_step(&trial);
        note_order(orders, model.gpu);
    }
    if (!test_has_failed()) engine_trial_infer(&trial);
    note_order(orders, model.gpu);
    if (!test_has_failed()) run_short(orders);
    if (!test_has_failed()) run_accumulated(orders);
    if (!test_has_failed()) engine_trial_step(&trial);
    note_order(orders, model.gpu);
    engine_trial_close(&trial);
}

/* Ten steps each, nearly all in an order of their own. */
static void test_hostile_orders_give_the_reference_bits(void) {
    enum { QUICK = 60, FULL = 200, REAL = 60, SANITIZED = 20 };
    enum { ORDERS_OF_TEN = 50, ORDERS_OF_TEN_SANITIZED = 30 };
    static struct orders orders;
    const struct weir_fake_cuda_control *gpu = engine_gpu_open_any();
    uint32_t runs = (uint32_t)test_count(QUICK, FULL);
    if (test_gpu_is_real()) runs = REAL;
    if (test_is_sanitized()) runs = SANITIZED;
    for (uint32_t number = 0; gpu != NULL && number < runs && !test_has_failed(); number++) {
        choose(gpu);
        orders.seen = 0;
        run_steps(&orders);
        engine_gpu_expect_clean(gpu);
        if (test_has_failed()) describe(number);
    }
    printf("  %u random pipes ran their work in %u different orders\n", runs, orders.count);
    uint32_t of_ten = test_is_sanitized() ? ORDERS_OF_TEN_SANITIZED : ORDERS_OF_TEN;
    bool counts = gpu != NULL && !test_gpu_is_real() && !test_has_failed();
    EXPECT(!counts || orders.count >= runs * of_ten / 10);
}

/* ---- every wait is needed ---- */

/* Pipes that between them have every sort of wait: rows and lanes, borders, skips, gradients, bytes
 * that are used again, norms, hops, and the host's own. */
struct mutated {
    const char *schedule;
    uint32_t stages, workers;
    const char *devices[3];
    enum weir_checkpoint checkpoint;
    bool no_peers;
    enum weir_copy_by copy_by;
    bool tied;
};
#define NEVER WEIR_CHECKPOINT_NEVER
#define ALWAYS WEIR_CHECKPOINT_ALWAYS
#define EXCEPT_LAST WEIR_CHECKPOINT_EXCEPT_LAST
static const struct mutated mutations[] = {
    {"1f1b", 2, 2, {"cuda:0", "cuda:1"}, NEVER, false, WEIR_COPY_BY_ENGINE, true},
    {"gpipe", 2, 2, {"cuda:0", "cuda:0"}, ALWAYS, false, WEIR_COPY_BY_BATCH, false},
    {"1f1b", 3, 3, {"cuda:0", "cuda:1", "cuda:0"}, ALWAYS, false, WEIR_COPY_BY_CHOICE, true},
    {"1f1b", 3, 3, {"cuda:1", "cpu", "cuda:0"}, EXCEPT_LAST, false, WEIR_COPY_BY_BATCH, true},
    {"1f1b", 3, 3, {"cpu", "cuda:0", "cpu"}, ALWAYS, false, WEIR_COPY_BY_KERNEL, true},
    {"gpipe", 3, 3, {"cuda:0", "cuda:1", "cuda:0"}, NEVER, true, WEIR_COPY_BY_BATCH, true},
    {"zb-h1", 3, 3, {"cuda:0", "cuda:1", "cuda:1"}, NEVER, false, WEIR_COPY_BY_CHOICE, false},
    {"zb-v", 4, 2, {"cuda:0", "cuda:1"}, NEVER, false, WEIR_COPY_BY_ENGINE, false},
    {"interleaved", 4, 2, {"cuda:0", "cuda:1"}, ALWAYS, true, WEIR_COPY_BY_ENGINE, false},
    {"interleaved", 4, 2, {"cuda:1", "cuda:0"}, ALWAYS, false, WEIR_COPY_BY_BATCH, true},
    {"looped-bfs", 6, 3, {"cuda:0", "cuda:1", "cuda:1"}, NEVER, false, WEIR_COPY_BY_BATCH, false},
};

static uint32_t jitter; /* of the next models: hosts come in other orders too */

static struct weir_pipe_options mutated_options(const struct weir_fake_cuda_control *gpu,
                                                const struct mutated *of) {
    engine_model_init(&model, of->stages);
    if (of->stages > 1) engine_skip(&model, 0, WEIR_SKIP_STASH, "a");
    if (of->stages > 2) engine_skip(&model, 1, WEIR_SKIP_READ, "a")->kept = true;
    if (of->stages > 1) engine_skip(&model, of->stages - 1, WEIR_SKIP_POP, "a");
    if (of->stages > 1 && of->tied) {
        engine_tie(&model, 0, "w", 1, 2);
        engine_tie(&model, 1, "w", 0, 2);
        engine_tie(&model, of->stages - 1, "w", 2, 2);
    }
    if (of->stages > 5) { /* a unit whose later copy is made later, by another stage */
        engine_skip(&model, 3, WEIR_SKIP_STASH, "b");
        engine_skip(&model, 5, WEIR_SKIP_POP, "b");
    }
    model.gpu = gpu;
    for (uint32_t w = 0; w < of->workers; w++) devices[w] = engine_gpu_name(of->devices[w]);
    struct weir_pipe_options options = engine_options(&model);
    options.schedule = of->schedule;
    options.workers = of->workers;
    options.devices = devices;
    options.device_count = of->workers;
    options.checkpoint = of->checkpoint;
    options.clip_norm = 0.01;
    options.wait = WEIR_WAIT_PARK;
    options.copy_by = of->copy_by;
    model.jitter = jitter;
    return options;
}

/* A step with one wait left out (NULL: none). The waits between *begin and *end were its. */
static void run_mutated(const struct weir_fake_cuda_control *gpu, const struct mutated *of,
                        uint64_t seed, const struct weir_fake_cuda_wait *without, uint64_t *begin,
                        uint64_t *end) {
    gpu->reset(seed, GPUS, of->no_peers ? WEIR_FAKE_CUDA_NO_PEERS : 0);
    struct weir_pipe_options options = mutated_options(gpu, of);
    if (!engine_trial_open(&trial, &model, &options, NULL)) return;
    *begin = gpu->waits_made() + 1;
    gpu->drop_wait_like(without);
    engine_trial_step(&trial);
    *end = gpu->waits_made() + 1;
    engine_trial_close(&trial);
}

/* Whether some order of work shows that the wait is left out. */
static bool is_missed(const struct weir_fake_cuda_control *gpu, const struct mutated *of,
                      const struct weir_fake_cuda_wait *without) {
    enum { SEEDS = 2000 }; /* nearly always one or two are enough */
    uint64_t begin, end;
    int failures = 0;
    for (uint64_t seed = 1; seed <= SEEDS && failures == 0; seed++) {
        jitter = seed % 4 == 3 ? 2 : 0;
        test_expect_failures_begin();
        run_mutated(gpu, of, seed, without, &begin, &end);
        failures = test_expect_failures_end(NULL, 0);
    }
    jitter = 0;
    return failures > 0;
}

static bool only_gpus(const struct mutated *of) {
    bool only = true;
    for (uint32_t w = 0; w < of->workers; w++) only &= strcmp(of->devices[w], "cpu") != 0;
    return only;
}

static void describe_wait(const struct weir_fake_cuda_wait *wait, const char *what) {
    printf("    wait %llu of %s %llu %s\n", (unsigned long long)wait->nth,
           wait->blocks ? "event" : "stream", (unsigned long long)wait->of, what);
}

/* All waits are looked at; left out is each in depth, and otherwise one in four, from a random one
 * on. */
static void mutate(const struct weir_fake_cuda_control *gpu, const struct mutated *of) {
    enum { WAITS_MAX = 1024, WHOLE = 20 };
    static struct weir_fake_cuda_wait waits[WAITS_MAX];
    uint64_t begin = 0, end = 0, superfluous = 0, unseen = 0;
    uint64_t every = test_count(4, 1), which = test_random_below(every);
    for (uint64_t seed = WHOLE; seed > 0; seed--) run_mutated(gpu, of, seed, NULL, &begin, &end);
    CHECK(end > begin && end - begin <= WAITS_MAX);
    for (uint64_t k = begin; k < end; k++) CHECK(gpu->wait(k, &waits[k - begin]));
    printf("  %-12s %u stages on %s, %s, %s, %s: %llu waits\n", of->schedule, of->stages,
           of->devices[0], of->devices[1], of->workers > 2 ? of->devices[2] : "-",
           ways[of->copy_by], (unsigned long long)(end - begin));
    for (uint64_t i = 0; i < end - begin; i++) {
        bool needed = waits[i].recorded && !waits[i].implied;
        /* where a CPU waits too, its thread may bring along what a wait that is left out was for,
         * at the whim of the system's scheduler: there nothing follows from a right result */
        bool tried = only_gpus(of) && i % every == which;
        bool seen = !tried || is_missed(gpu, of, &waits[i]);
        if (!needed) describe_wait(&waits[i], "is implied by others");
        if (!seen) describe_wait(&waits[i], "is not missed");
        superfluous += !needed, unseen += !seen;
    }
    EXPECT_EQ_UINT(superfluous, 0);
    EXPECT_EQ_UINT(unseen, 0);
}

static void test_every_wait_is_needed(void) {
    const struct weir_fake_cuda_control *gpu = engine_gpu_open();
    size_t count = sizeof mutations / sizeof *mutations;
    for (size_t i = 0; gpu != NULL && i < count; i++) mutate(gpu, &mutations[i]);
}

/* ---- ways to copy ---- */

/* What the driver was asked to do: by the copy engine, and by kernels that copy. */
static void count_calls(const struct weir_fake_cuda_control *gpu, uint64_t from, uint64_t *engine,
                        uint64_t *kernels) {
    static const char *const names[] = {"weir_copy", "weir_push", "weir_pull", "weir_copy_batch"};
    struct weir_fake_cuda_entry entry;
    *engine = *kernels = 0;
    for (; gpu->entry(from, &entry); from++) {
        *engine += strcmp(entry.call, "cuMemcpyAsync") == 0;
        for (size_t k = 0; k < sizeof names / sizeof *names; k++)
            *kernels += strcmp(entry.call, names[k]) == 0;
    }
}

/* What the plan says: a unit is one call, or two where it passes through the host; and what goes
 * back to the caller. */
static void count_planned(const struct weir__row_plan *p, uint64_t *engine, uint64_t *kernels) {
    *engine = p->return_count;
    *kernels = 0;
    for (uint32_t i = 0; i < p->copy_count; i++) {
        const struct weir__prepared_copy *copy = &p->copies[i];
        if (copy->lane == WEIR__NO_LANE || copy->unit != i) continue;
        uint32_t legs = p->bound.streams[copy->lane]->hop.device != NULL ? 2 : 1;
        *(copy->by_kernel ? kernels : engine) += legs;
    }
}

/* What people are told of a step's copies. */
static void expect_told(const struct weir_pipe *pipe) {
    const struct weir_plan *plan = weir_pipe_plan(pipe);
    const struct weir__row_plan *p = pipe->prepared[0];
    uint64_t tensors = 0, units = 0, told_tensors = 0, told_units = 0;
    for (uint32_t i = 0; i < p->copy_count; i++) {
        if (p->copies[i].lane == WEIR__NO_LANE) continue;
        tensors++;
        units += p->copies[i].unit == i;
    }
    for (uint32_t d = 0; d < plan->device_count; d++) {
        const struct weir_plan_copies *copies = &plan->copies[d];
        told_tensors += copies->by_engine + copies->by_kernel + copies->batched;
        told_units += copies->by_engine + copies->by_kernel + copies->launches;
    }
    EXPECT_EQ_UINT(told_tensors, tensors);
    EXPECT_EQ_UINT(told_units, units);
}

static void test_copies_take_the_ways_of_the_plan(void) {
    const struct weir_fake_cuda_control *gpu = engine_gpu_open();
    size_t count = sizeof mutations / sizeof *mutations;
    for (size_t i = 0; gpu != NULL && i < 4 * count; i++) {
        struct mutated of = mutations[i / 4];
        of.copy_by = (enum weir_copy_by)(i % 4);
        gpu->reset(i, GPUS, of.no_peers ? WEIR_FAKE_CUDA_NO_PEERS : 0);
        struct weir_pipe_options options = mutated_options(gpu, &of);
        CHECK(engine_trial_open(&trial, &model, &options, NULL));
        uint64_t before = 0, engine, kernels, engine_due, kernels_due;
        struct weir_fake_cuda_entry entry;
        while (gpu->entry(before, &entry)) before++;
        engine_trial_step(&trial);
        count_calls(gpu, before, &engine, &kernels);
        count_planned(trial.pipe->prepared[0], &engine_due, &kernels_due);
        EXPECT_EQ_UINT(engine, engine_due);
        EXPECT_EQ_UINT(kernels, kernels_due);
        expect_told(trial.pipe);
        if (of.copy_by == WEIR_COPY_BY_ENGINE) EXPECT_EQ_UINT(kernels, 0);
        if (of.copy_by > WEIR_COPY_BY_ENGINE)
            EXPECT_EQ_UINT(engine, trial.pipe->prepared[0]->return_count);
        engine_trial_close(&trial);
        CHECK_HELPERS();
    }
}

/* ---- every call of the driver fails ---- */

static struct weir_pipe *open_pipe(const struct weir_fake_cuda_control *gpu,
                                   const struct mutated *of, int *status) {
    struct weir_pipe_options options = mutated_options(gpu, of);
    struct weir_faults faults = WEIR_FAULTS_INIT;
    struct weir_pipe *pipe = NULL;
    faults.allocator = test_allocator();
    *status = weir_pipe_new(&options, &faults, &pipe);
    if (*status != WEIR_OK) EXPECT(faults.count > 0);
    weir_faults_clean_up(&faults);
    return pipe;
}

/* A pipe's whole life with the k-th call of the driver failing. False: there are not so many. */
static bool live_with_failure(const struct weir_fake_cuda_control *gpu, const struct mutated *of,
                              uint64_t k, int result) {
    struct weir_step_result done;
    int status;
    uint32_t peers = of->no_peers ? WEIR_FAKE_CUDA_NO_PEERS : 0;
    gpu->reset(k, GPUS, peers | WEIR_FAKE_CUDA_UNGUARDED);
    gpu->fail_call(k, result);
    struct weir_pipe *pipe = open_pipe(gpu, of, &status);
    if (pipe != NULL) {
        struct engine_batch batch;
        engine_batch_init(&batch, &model, 8, 1);
        struct weir_step step = engine_step(&batch);
        status = weir_pipe_step(pipe, &step, &done);
        EXPECT((status == WEIR_OK) == (done.error.status == WEIR_OK));
        EXPECT(status == WEIR_OK || done.error.message[0] != '\0');
        int after = weir_pipe_step(pipe, &step, &done);
        EXPECT(after == WEIR_OK || done.error.message[0] != '\0');
        EXPECT(status != WEIR_ERR_DEVICE || after == WEIR_ERR_DEVICE);
        if (status == WEIR_ERR_DEVICE) EXPECT_CONTAINS(done.error.message, "cuda:");
        weir_pipe_destroy(pipe);
        engine_batch_clean_up(&batch);
    }
    bool failed = gpu->failed();
    struct weir_fake_cuda_counts left;
    gpu->counts(&left);
    EXPECT_EQ_UINT(left.contexts, 0);
    EXPECT_EQ_UINT(left.streams + left.events + left.allocations + left.pins + left.modules, 0);
    if (test_has_failed())
        printf("%s: call %llu gave %d\n", of->schedule, (unsigned long long)k, result);
    return failed;
}

static void test_failing_calls_leave_nothing_behind(void) {
    enum { OUT_OF_MEMORY = 2, ILLEGAL_ADDRESS = 700, STRIDE_QUICK = 5, STRIDE_SANITIZED = 23 };
    static const int results[] = {OUT_OF_MEMORY, ILLEGAL_ADDRESS};
    const struct weir_fake_cuda_control *gpu = engine_gpu_open();
    uint64_t stride = test_is_sanitized() ? STRIDE_SANITIZED : test_count(STRIDE_QUICK, 1);
    for (size_t r = 0; gpu != NULL && r < sizeof results / sizeof *results; r++) {
        uint64_t k = 1 + test_random_below(stride), first = k;
        while (!test_has_failed() && live_with_failure(gpu, &mutations[3 + r * 2], k, results[r]))
            k += stride;
        printf("  %llu calls failed with %d in turn\n", (unsigned long long)((k - first) / stride),
               results[r]);
    }
}

/* Left behind by callbacks that succeed: no failure of the driver may be told in their words. */
static int leave_words(void *context, const struct weir_task *task) {
    (void)context;
    snprintf(task->error->message, sizeof task->error->message, "all was well");
    return WEIR_OK;
}

/* The step in which the k-th call of the driver fails says so, or was right; and unless parameters
 * are torn or the device is lost, the next one is right. False: there are not so many calls. */
static bool step_with_failure(const struct weir_fake_cuda_control *gpu, const struct mutated *of,
                              uint64_t k) {
    enum { OUT_OF_MEMORY = 2 };
    gpu->reset(k, GPUS, of->no_peers ? WEIR_FAKE_CUDA_NO_PEERS : 0);
    struct weir_pipe_options options = mutated_options(gpu, of);
    if (!engine_trial_open(&trial, &model, &options, NULL)) return false;
    engine_trial_step(&trial); /* from here on every event has an old record */
    engine_batch_clear(&trial.batch);
    engine_batch_clear(&trial.expected);
    struct weir_step step = engine_step(&trial.batch);
    step.mini_batch = step.update = trial.steps;
    model.hook = leave_words;
    gpu->fail_call(k, OUT_OF_MEMORY);
    int status = weir_pipe_step(trial.pipe, &step, &trial.result);
    bool failed = gpu->failed();
    gpu->fail_call(0, 0);
    model.hook = NULL;
    EXPECT(strstr(trial.result.error.message, "all was well") == NULL);
    if (status == WEIR_OK) {
        engine_order_of(&trial.order, trial.schedule,
                        engine_chunk_count(trial.batch.rows, trial.how.chunks));
        engine_reference_step(&trial.reference, &trial.expected, &step, &trial.how);
        EXPECT(engine_expect_result(&trial.result, &trial.reference) &&
               engine_expect_batches(&trial.batch, &trial.expected, true) &&
               engine_expect_state(trial.pipe, &trial.reference));
    } else if (status != WEIR_ERR_TORN && status != WEIR_ERR_DEVICE) {
        engine_trial_step(&trial);
    }
    engine_trial_close(&trial);
    if (test_has_failed())
        printf("%s: call %llu of the step: %d\n", of->schedule, (unsigned long long)k, status);
    return failed;
}

static void test_a_failed_call_never_passes_for_success(void) {
    enum { STRIDE_QUICK = 4, STRIDE_SANITIZED = 7 };
    static const struct mutated one = {"1f1b", 1, 1, {"cuda:0"}, NEVER, false, WEIR_COPY_BY_ENGINE,
                                       false};
    const struct mutated *pipes[] = {&one, &mutations[1], &mutations[3], &mutations[5]};
    const struct weir_fake_cuda_control *gpu = engine_gpu_open();
    uint64_t stride = test_is_sanitized() ? STRIDE_SANITIZED : test_count(STRIDE_QUICK, 1);
    for (size_t i = 0; gpu != NULL && i < sizeof pipes / sizeof *pipes; i++) {
        uint64_t k = 1 + test_random_below(stride), first = k;
        while (!test_has_failed() && step_with_failure(gpu, pipes[i], k)) k += stride;
        printf("  %llu calls of a step failed in turn\n",
               (unsigned long long)((k - first) / stride));
    }
}

/* ---- what cannot be ---- */

static void test_what_gpus_cannot_do_is_refused(void) {
    const struct weir_fake_cuda_control *gpu = engine_gpu_open();
    if (gpu == NULL) return;
    gpu->reset(1, GPUS, 0);
    struct weir_pipe_options options = mutated_options(gpu, &mutations[0]);
    options.debug_inputs = true;
    CHECK(engine_expect_refused(&options, WEIR_ERR_CONFIG, "debug_inputs"));
    options = mutated_options(gpu, &mutations[0]);
    options.link = WEIR_LINK_COPY;
    options.link_delay_ns = 1000;
    CHECK(engine_expect_refused(&options, WEIR_ERR_CONFIG, "link_delay_ns"));
    options = mutated_options(gpu, &mutations[0]);
    options.link = WEIR_LINK_POINTER;
    CHECK(engine_expect_refused(&options, WEIR_ERR_CONFIG,
                                "workers 0 and 1 (cuda:0 and cuda:1) do not share memory"));
    options = mutated_options(gpu, &mutations[0]);
    options.copy_by = (enum weir_copy_by)4;
    CHECK(engine_expect_refused(&options, WEIR_ERR_CONFIG, "unknown way to copy"));
    options = mutated_options(gpu, &mutations[0]);
    options.devices = (const char *const[]){"cuda:0", "cuda:7"};
    CHECK(engine_expect_refused(&options, WEIR_ERR_NOT_FOUND, "cuda:7"));
    engine_gpu_expect_clean(gpu);
}

/* ---- the trace ---- */

/* So long an event may seem to begin before what it follows has ended: two devices' bases are known
 * to 5 us each, and what is done after one is off by the rate's error over a span (cuda_clock.c):
 * 2.6 us of the first bases' error, as much of the rate's own changes. The fake driver's
 * devices run on the host's own threads, which a busy machine holds up for longer. */
static void expect_follows(const struct weir_trace_event *event,
                           const struct weir_trace_event *before) {
    const uint64_t clocks_ns = test_gpu_is_real() ? 2 * (5000 + 2600 + 2600) : 1000000;
    if (event->start + clocks_ns >= before->end) return;
    TEST_FAIL(
        "worker %u's event begins %llu ns before worker %u's ends, of %llu ns, that it follows",
        event->worker, (unsigned long long)(before->end - event->start), before->worker,
        (unsigned long long)(before->end - before->start));
}

static void test_events_are_stamped_by_the_streams(void) {
    uint32_t named = 0;
    const struct weir_fake_cuda_control *gpu = engine_gpu_open_any();
    for (size_t i = 0; gpu != NULL && i < sizeof mutations / sizeof *mutations; i++) {
        gpu->reset(i, GPUS, mutations[i].no_peers ? WEIR_FAKE_CUDA_NO_PEERS : 0);
        struct weir_pipe_options options = mutated_options(gpu, &mutations[i]);
        if (!engine_trial_open(&trial, &model, &options, NULL)) return;
        engine_trial_step(&trial);
        const struct weir_pipe *pipe = trial.pipe;
        const struct weir__row_plan *p = pipe->prepared[0];
        weir__stamps_read(pipe);
        for (uint32_t a = 0; a < p->table->action_count; a++) {
            uint32_t w = weir__table_worker_of(p->table, a);
            const struct weir_trace_event *event =
                weir__worker_event(&pipe->workers[w], a - p->table->lines[w]);
            EXPECT(event->waited <= event->start && event->start <= event->end);
            /* for another worker, or for the caller's rows, which nobody is named for */
            EXPECT(event->waited_for != (int32_t)w && event->waited_for >= -1);
            EXPECT(event->waited_for < (int32_t)p->table->worker_count);
            named += event->waited_for >= 0;
            for (uint32_t e = p->deps.begin[a]; e < p->deps.begin[a + 1]; e++) {
                uint32_t from = p->deps.edges[e].from, v = weir__table_worker_of(p->table, from);
                const struct weir_trace_event *before =
                    weir__worker_event(&pipe->workers[v], from - p->table->lines[v]);
                expect_follows(event, before);
            }
        }
        engine_trial_close(&trial);
    }
    EXPECT(gpu == NULL || named > 0);
}

/* ---- gradients that are not finite ---- */

static void test_devices_leave_out_what_is_not_finite(void) {
    const struct weir_fake_cuda_control *gpu = engine_gpu_open_any();
    size_t count = sizeof mutations / sizeof *mutations;
    for (size_t i = 0; gpu != NULL && i < 2 * count; i++) {
        gpu->reset(i, GPUS, mutations[i / 2].no_peers ? WEIR_FAKE_CUDA_NO_PEERS : 0);
        struct weir_pipe_options options = mutated_options(gpu, &mutations[i / 2]);
        options.skip_nonfinite = i % 2 == 1;
        CHECK(engine_trial_open(&trial, &model, &options, NULL));
        engine_trial_step(&trial); /* so that there is a verdict of an earlier step */
        float *x = trial.batch.inputs[0], kept = x[9];
        struct weir_step step = engine_step(&trial.batch);
        x[9] = NAN;
        int status = weir_pipe_step(trial.pipe, &step, &trial.result);
        x[9] = kept;
        EXPECT_STATUS(status, options.skip_nonfinite ? WEIR_OK : WEIR_ERR_NONFINITE);
        EXPECT(!isfinite(trial.result.gradient_norm) && !trial.result.updated);
        engine_trial_step(&trial); /* parameters and optimizer are the reference's still */
        engine_trial_close(&trial);
        CHECK_HELPERS();
    }
}

WEIR_TEST_SUITE(engine_cuda, TEST(hostile_orders_give_the_reference_bits),
                TEST(every_wait_is_needed), TEST(copies_take_the_ways_of_the_plan),
                TEST(failing_calls_leave_nothing_behind),
                TEST(a_failed_call_never_passes_for_success), TEST(what_gpus_cannot_do_is_refused),
                TEST(events_are_stamped_by_the_streams), TEST(devices_leave_out_what_is_not_finite))
