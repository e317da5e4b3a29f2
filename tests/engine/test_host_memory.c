/* SPDX-License-Identifier: MIT */
/*
 * Goal: the host's memory that GPUs copy from and to lies where the worker that it is for wants it,
 * is pinned as whole pages of its own, and survives every failure. Method: pipes over the fake
 * driver's GPUs and CPUs, which says who pinned what, and whether it was there by then.
 */
#include "engine/engine_gpu.h"
#include "pipe/run/pipe.h"

#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static struct engine_model model;
static struct engine_trial trial;

/* GPUs that do not reach each other, with a CPU between them. */
static const char *const mixed[] = {"cuda:0", "cpu", "cuda:1", "cuda:0"};

static struct weir_pipe_options mixed_options(const struct weir_fake_cuda_control *gpu) {
    engine_model_init(&model, 4);
    engine_skip(&model, 0, WEIR_SKIP_STASH, "a");
    engine_skip(&model, 2, WEIR_SKIP_POP, "a");
    model.gpu = gpu;
    struct weir_pipe_options options = engine_options(&model);
    options.devices = mixed;
    options.device_count = 4;
    options.wait = WEIR_WAIT_PARK;
    return options;
}

static bool open_mixed(const struct weir_fake_cuda_control *gpu) {
    gpu->reset(1, 2, WEIR_FAKE_CUDA_NO_PEERS);
    struct weir_pipe_options options = mixed_options(gpu);
    return engine_trial_open(&trial, &model, &options, NULL);
}

static void expect_pinned(const struct weir_fake_cuda_control *gpu, uint32_t worker,
                          const void *memory) {
    if (memory == NULL) return;
    EXPECT_EQ_INT(gpu->pinned_by(memory), model.stages[worker].thread);
    EXPECT_EQ_UINT((uintptr_t)memory % WEIR__HUGE_PAGE, 0);
}

/* Returns how many hops there are. */
static uint32_t expect_all_pinned(const struct weir_fake_cuda_control *gpu) {
    const struct weir_pipe *pipe = trial.pipe;
    uint32_t hops = 0;
    expect_pinned(gpu, 0, pipe->memory.numbers.data);
    expect_pinned(gpu, 1, pipe->memory.arenas[1].lasting);
    expect_pinned(gpu, 1, pipe->memory.arenas[1].working);
    for (uint32_t w = 0; w < pipe->worker_count; w++) {
        const struct weir__worker *worker = &pipe->workers[w];
        EXPECT_EQ_UINT(worker->staging.bytes % WEIR__HUGE_PAGE, 0);
        expect_pinned(gpu, w, worker->staging.data);
        for (struct weir__copy_stream *s = worker->copy_streams; s != NULL; s = s->next) {
            expect_pinned(gpu, w, s->hop.slots.data);
            hops += s->hop.slots.data != NULL;
        }
    }
    return hops;
}

static void test_workers_touch_and_pin_what_is_theirs(void) {
    const struct weir_fake_cuda_control *gpu = engine_gpu_open();
    if (gpu == NULL) return;
    CHECK(open_mixed(gpu));
    EXPECT(trial.pipe->workers[0].staging.data != NULL && trial.pipe->memory.numbers.data != NULL);
    EXPECT(expect_all_pinned(gpu) >= 3);
    engine_trial_step(&trial);
    EXPECT_STATUS(weir_pipe_prepare(trial.pipe, 5, NULL), WEIR_OK);
    expect_all_pinned(gpu);
    engine_trial_rows(&trial, 5, false);
    engine_trial_close(&trial);
    engine_gpu_expect_clean(gpu); /* no page was pinned that nobody had touched */
}

/* Preferred for the node of the GPU: what mbind was told, where the system lets us ask. */
static void test_memory_is_preferred_on_the_gpus_node(void) {
    enum { PREFERRED = 1, OF_ADDRESS = 2 };
    char output[256];
    const struct weir_fake_cuda_control *gpu = engine_gpu_open();
    const char *root = test_temporary_directory();
    if (gpu == NULL) return;
    int code =
        test_shell(output, sizeof output,
                   "d=%s/sys/devices/system && mkdir -p $d/cpu/cpu0/topology && cd $d/cpu && "
                   "echo 0 >online && echo 0 >cpu0/topology/core_id && "
                   "echo 0 >cpu0/topology/physical_package_id && "
                   "echo 1 >cpu0/topology/thread_siblings && "
                   "echo 1 >cpu0/topology/core_siblings && "
                   "d=%s/sys/bus/pci/devices/0000:1b:00.0 && mkdir -p $d && "
                   "echo 0 >$d/numa_node && echo 0 >$d/local_cpulist",
                   root, root);
    CHECK_EQ_STR(output, "");
    CHECK_EQ_INT(code, 0);
    CHECK(setenv("HWLOC_FSROOT", root, 1) == 0);
    bool opened = open_mixed(gpu);
    unsetenv("HWLOC_FSROOT");
    CHECK(opened);
    int mode = -1;
    unsigned long nodes[16] = {0};
    void *staging = trial.pipe->workers[0].staging.data;
    long asked = syscall(SYS_get_mempolicy, &mode, nodes, 8 * sizeof nodes, staging, OF_ADDRESS);
    if (asked == 0) EXPECT_EQ_INT(mode, PREFERRED);
    if (asked == 0) EXPECT_EQ_UINT(nodes[0], 1);
    engine_trial_close(&trial);
    engine_gpu_expect_clean(gpu);
    if (asked != 0) test_skip("the system does not tell where memory is to lie");
}

/* Row counts that need more of everything than the pipe has, with the k-th call of the driver
 * failing; then the pipe is as it was. False: there are not so many calls. */
static bool prepare_with_failure(const struct weir_fake_cuda_control *gpu, uint64_t k) {
    enum { OUT_OF_MEMORY = 2 };
    if (!open_mixed(gpu)) return false;
    for (uint32_t w = 0; w < trial.pipe->worker_count; w++) {
        struct weir__worker *worker = &trial.pipe->workers[w];
        worker->staging_wanted = worker->staging.bytes + 1;
        for (struct weir__copy_stream *s = worker->copy_streams; s != NULL; s = s->next)
            if (s->hop.device != NULL) s->hop.wanted_bytes = s->hop.slot_bytes + WEIR__ALIGNMENT;
    }
    struct weir_faults faults = WEIR_FAULTS_INIT;
    faults.allocator = test_allocator();
    gpu->fail_call(k, OUT_OF_MEMORY);
    int status = weir_pipe_prepare(trial.pipe, 5, &faults);
    bool failed = gpu->failed();
    gpu->fail_call(0, 0);
    EXPECT(status == WEIR_OK || faults.count > 0);
    EXPECT((status == WEIR_OK) == (faults.count == 0));
    weir_faults_clean_up(&faults);
    engine_trial_step(&trial);
    EXPECT_STATUS(weir_pipe_prepare(trial.pipe, 5, NULL), WEIR_OK);
    engine_trial_rows(&trial, 5, false);
    engine_trial_close(&trial);
    engine_gpu_expect_clean(gpu);
    if (test_has_failed()) TEST_FAIL("call %llu: %d", (unsigned long long)k, status);
    return failed;
}

static void test_memory_that_cannot_be_pinned_leaves_what_there_was(void) {
    const struct weir_fake_cuda_control *gpu = engine_gpu_open();
    uint64_t k = 1;
    if (gpu == NULL) return;
    while (prepare_with_failure(gpu, k) && !test_has_failed()) k++;
    CHECK(k > 8);
}

/* ---- what is planned ---- */

static size_t hop_bytes(const struct weir__worker *worker) {
    size_t bytes = 0;
    for (struct weir__copy_stream *s = worker->copy_streams; s != NULL; s = s->next)
        bytes += s->hop.slots.bytes;
    return bytes;
}

/* Before and after a pipe is built. */
static void expect_planned(const struct weir_plan *plan) {
    const struct weir_pipe *pipe = trial.pipe;
    uint64_t hops = 0;
    for (uint32_t w = 0; w < pipe->worker_count; w++) {
        const struct weir_plan_pinned *pinned = &plan->pinned[w];
        EXPECT_EQ_UINT(pinned->staging, pipe->workers[w].staging.bytes);
        EXPECT_EQ_UINT(pinned->hops, hop_bytes(&pipe->workers[w]));
        EXPECT_EQ_UINT(pinned->numbers,
                       pipe->memory.numbers_worker == w ? pipe->memory.numbers.bytes : 0);
        hops += pinned->hops;
    }
    EXPECT(hops > 0);
}

static void test_a_plan_says_what_is_pinned(void) {
    const struct weir_fake_cuda_control *gpu = engine_gpu_open();
    struct weir_plan *plan;
    if (gpu == NULL) return;
    gpu->reset(1, 2, WEIR_FAKE_CUDA_NO_PEERS);
    struct weir_pipe_options options = mixed_options(gpu);
    CHECK(engine_trial_open(&trial, &model, &options, NULL));
    expect_planned(weir_pipe_plan(trial.pipe));
    CHECK_OK(weir_plan_new(&options, NULL, &plan));
    expect_planned(plan);
    weir_plan_destroy(plan);
    CHECK_OK(weir_plan_estimate(&options, NULL, &plan));
    expect_planned(plan);
    weir_plan_destroy(plan);
    engine_trial_close(&trial);
    gpu->reset(1, 2, 0); /* each reaches the other */
    CHECK_OK(weir_plan_new(&options, NULL, &plan));
    for (uint32_t w = 0; w < plan->device_count; w++) EXPECT_EQ_UINT(plan->pinned[w].hops, 0);
    weir_plan_destroy(plan);
}

/* ---- units larger than a slot ---- */

/* Two stages that share parameters: of the smaller one half a piece and more, of the other four and
 * more, neither whole lines. */
static struct weir_pipe_options tied_options(const struct weir_fake_cuda_control *gpu,
                                             enum weir_copy_by copy_by) {
    enum { PIECE = WEIR__HOP_PIECE_BYTES / sizeof(double) };
    static const char *const devices[] = {"cuda:0", "cuda:1"};
    const uint32_t small = PIECE / 2 + 3, large = 4 * PIECE + 1001;
    engine_model_init(&model, 2);
    for (uint32_t s = 0; s < 2; s++) {
        model.stages[s].parameters = small + large + 8;
        engine_tie(&model, s, "small", large + 3, small);
        engine_tie(&model, s, "large", 1 + s, large); /* gradients of the first few are not 0 */
    }
    model.gpu = gpu;
    struct weir_pipe_options options = engine_options(&model);
    options.chunks = 1;
    options.devices = devices;
    options.device_count = 2;
    options.wait = WEIR_WAIT_PARK;
    options.copy_by = copy_by;
    return options;
}

static bool open_tied(const struct weir_fake_cuda_control *gpu, uint64_t seed,
                      enum weir_copy_by copy_by) {
    gpu->reset(seed, 2, WEIR_FAKE_CUDA_NO_PEERS | WEIR_FAKE_CUDA_UNGUARDED); /* so much is slow */
    struct weir_pipe_options options = tied_options(gpu, copy_by);
    return engine_trial_open(&trial, &model, &options, NULL);
}

static void expect_none_implied(const struct weir_fake_cuda_control *gpu, uint64_t begin) {
    struct weir_fake_cuda_wait wait;
    for (uint64_t k = begin; gpu->wait(k, &wait); k++) EXPECT(wait.recorded && !wait.implied);
}

static void test_large_units_go_in_pieces(void) {
    static const enum weir_copy_by ways[] = {WEIR_COPY_BY_ENGINE, WEIR_COPY_BY_BATCH};
    const struct weir_fake_cuda_control *gpu = engine_gpu_open();
    uint32_t count = test_is_sanitized() ? 1 : WEIR__COUNT_OF(ways);
    for (uint32_t i = 0; gpu != NULL && i < count; i++) {
        CHECK(open_tied(gpu, i + 1, ways[i]));
        const struct weir__row_plan *p = trial.pipe->prepared[0];
        uint64_t most = 0;
        for (uint32_t k = 0; k < p->copy_count; k++)
            if (p->copies[k].unit == k && weir__unit_pieces(p, k) > most)
                most = weir__unit_pieces(p, k);
        EXPECT(most > WEIR__HOP_SLOTS);
        for (uint32_t w = 0; w < 2; w++)
            EXPECT_EQ_UINT(hop_bytes(&trial.pipe->workers[w]),
                           WEIR__HOP_SLOTS * WEIR__HOP_PIECE_BYTES);
        uint64_t begin = gpu->waits_made() + 1;
        engine_trial_step(&trial);
        expect_none_implied(gpu, begin);
        engine_trial_close(&trial);
        engine_gpu_expect_clean(gpu);
        if (test_has_failed()) TEST_FAIL("way %d, seed %u", (int)ways[i], i + 1);
    }
}

/* Streams that copy whole pieces into slots, and the last wait of each. */
static uint32_t find_last_waits(const struct weir_fake_cuda_control *gpu,
                                struct weir_fake_cuda_wait last[2]) {
    struct weir_fake_cuda_entry entry;
    struct weir_fake_cuda_wait wait;
    uint64_t streams[2] = {0};
    uint32_t count = 0;
    for (uint64_t i = 0; gpu->entry(i, &entry); i++) {
        bool fills = strcmp(entry.call, "cuMemcpyAsync") == 0 &&
                     entry.bytes == WEIR__HOP_PIECE_BYTES && gpu->pinned_by(entry.to) != 0;
        bool known = entry.stream == streams[0] || entry.stream == streams[1];
        if (fills && !known && count < 2) streams[count++] = entry.stream;
    }
    for (uint64_t k = 1; gpu->wait(k, &wait); k++)
        for (uint32_t i = 0; i < count; i++)
            if (!wait.blocks && wait.of == streams[i]) last[i] = wait;
    return count;
}

/* With the wait left out; whether some order shows it. */
static bool is_missed(const struct weir_fake_cuda_control *gpu,
                      const struct weir_fake_cuda_wait *without) {
    enum { SEEDS = 50 };
    int failures = 0;
    for (uint64_t seed = 1; seed <= SEEDS && failures == 0; seed++) {
        test_expect_failures_begin();
        if (open_tied(gpu, seed, WEIR_COPY_BY_ENGINE)) {
            gpu->drop_wait_like(without);
            engine_trial_step(&trial);
            engine_trial_close(&trial);
        }
        failures = test_expect_failures_end(NULL, 0);
    }
    return failures > 0;
}

/* The fifth piece's, each way: its slot must have been left by the first. */
static void test_pieces_wait_for_their_slots(void) {
    const struct weir_fake_cuda_control *gpu = engine_gpu_open();
    struct weir_fake_cuda_wait last[2];
    if (gpu == NULL) return;
    if (test_is_sanitized()) {
        test_skip("it takes minutes, and looks at numbers alone");
        return;
    }
    CHECK(open_tied(gpu, 1, WEIR_COPY_BY_ENGINE));
    engine_trial_step(&trial);
    CHECK_EQ_UINT(find_last_waits(gpu, last), 2);
    engine_trial_close(&trial);
    for (int i = 0; i < 2; i++) CHECK(is_missed(gpu, &last[i]));
}

WEIR_TEST_SUITE(host_memory, TEST(pieces_wait_for_their_slots), TEST(a_plan_says_what_is_pinned),
                TEST(large_units_go_in_pieces), TEST(workers_touch_and_pin_what_is_theirs),
                TEST(memory_is_preferred_on_the_gpus_node),
                TEST(memory_that_cannot_be_pinned_leaves_what_there_was))
