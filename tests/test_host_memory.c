/* SPDX-License-Identifier: MIT */
/*
 * Goal: the host's memory that GPUs copy from and to lies where the worker that it is for wants it,
 * is pinned as whole pages of its own, and survives every failure. Method: pipes over the fake
 * driver's GPUs and CPUs, which says who pinned what, and whether it was there by then.
 */
#include "engine_gpu.h"
#include "pipe/pipe.h"

#include <stdlib.h>
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
    expect_pinned(gpu, 0, pipe->numbers.data);
    expect_pinned(gpu, 1, pipe->arenas[1].lasting);
    expect_pinned(gpu, 1, pipe->arenas[1].working);
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
    EXPECT(trial.pipe->workers[0].staging.data != NULL && trial.pipe->numbers.data != NULL);
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

WEIR_TEST_SUITE(host_memory, TEST(workers_touch_and_pin_what_is_theirs),
                TEST(memory_is_preferred_on_the_gpus_node),
                TEST(memory_that_cannot_be_pinned_leaves_what_there_was))
