/* SPDX-License-Identifier: MIT */
/*
 * Goal: replicas whose workers are on GPUs give the bits of one process, by NCCL and through pinned
 * memory alike, take the pinned memory that is planned, and end with a reason whatever fails.
 * Method: as for ranks on GPUs (test_ranks_gpu.c), with the models of test_replicas.c.
 */
#include "engine/engine_gpu.h"
#include "engine/engine_ranks.h"
#include "pipe/run/ranks.h"

#include <stdio.h>
#include <string.h>

static struct engine_ranks all;

/* ---- random pipes ---- */

static void run_one(const struct weir_fake_cuda_control *gpu, uint32_t number) {
    uint32_t count = engine_ranks_random(&all, UINT32_C(1) << number % 3);
    engine_ranks_use_gpus(&all, gpu, count);
    engine_ranks_expect(&all, count);
    if (!test_has_failed()) engine_gpu_expect_clean(gpu);
    if (test_has_failed()) engine_random_describe(&all.run, number);
}

static void test_any_number_of_replicas_on_gpus_gives_the_reference_bits(void) {
    const struct weir_fake_cuda_control *gpu = engine_gpu_open();
    size_t runs = gpu == NULL ? 0 : test_count(20, 300);
    for (uint32_t number = 0; number < runs && !test_has_failed(); number++) run_one(gpu, number);
}

/* ---- two replicas ---- */

/* Of so many stages, all on GPUs, each on a rank of its own. */
static uint32_t choose(const struct weir_fake_cuda_control *gpu, uint32_t stages, uint32_t gpus) {
    engine_ranks_choose(&all, stages, 2);
    engine_ranks_name_gpus(&all, gpu, "cuda", "cuda");
    gpu->reset(test_random_u64(), gpus, 0);
    return 2 * stages;
}

/* The gradients of one slice, one piece behind the other. */
static void expect_pieces(const struct weir__port *port, uint64_t slice, bool nccl) {
    uint64_t bytes = 0;
    EXPECT_EQ_UINT(port->body_count, nccl ? 1 : (slice - 1) / WEIR__HOP_PIECE_BYTES + 1);
    for (uint32_t i = 0; i < port->body_count; i++) {
        EXPECT_EQ_UINT(port->items[i].offset, port->items[0].offset + bytes);
        bytes += port->items[i].bytes;
    }
    EXPECT_EQ_UINT(bytes, slice);
}

/* What the worker's streams have, beside what is planned. */
static int look_at_slots(void *context, struct weir_world *world) {
    struct engine_rank *rank = &((struct engine_rank *)context)[world->rank];
    struct weir_pipe *pipe = NULL;
    uint64_t pinned = 0;
    int status = engine_rank_build(rank, world, &pipe);
    if (status != WEIR_OK) return status;
    const struct weir__row_plan *plan = pipe->prepared[0];
    uint64_t slice = all.model.stages[0].parameters * sizeof(double) / 2;
    EXPECT_EQ_UINT(plan->bound.replica_ports, 4); /* of CPUs two, which are empty */
    for (uint32_t l = 2; l < plan->bound.replica_ports; l++)
        expect_pieces(plan->bound.ports[plan->lane_count + l], slice,
                      strstr(rank->exchange, "by NCCL") != NULL);
    const struct weir__copy_stream *s = pipe->workers[0].rank_streams;
    for (; s != NULL; s = s->next) pinned += s->hop.slots.bytes;
    EXPECT_EQ_UINT(weir_pipe_plan(pipe)->pinned[0].hops, pinned);
    rank->hops = pinned;
    weir_pipe_destroy(pipe);
    return WEIR_OK;
}

/* Two slots each way of a slice each, or of a piece where that is longer. */
static void test_the_plan_counts_the_slots_between_replicas(void) {
    const struct weir_fake_cuda_control *gpu = engine_gpu_open();
    uint32_t slices[] = {6 * WEIR_SLICE_BLOCK, 10 << 20};
    for (uint32_t i = 0; gpu != NULL && i < 4; i++) {
        choose(gpu, 1, 2);
        gpu->reset(1, 2, WEIR_FAKE_CUDA_UNGUARDED);
        all.model.sliced = false;
        all.model.stages[0].parameters = slices[i / 2] / (uint32_t)sizeof(double);
        all.model.stages[0].fixed = true;
        all.run.options.gradient_groups = 2;
        engine_ranks_use_nccl(i % 2 == 0);
        engine_ranks_open(&all, 2);
        EXPECT_STATUS(engine_ranks_run(&all, 2, look_at_slots), WEIR_OK);
        uint64_t huge = (uint64_t)WEIR__HUGE_PAGE, slot = i / 2 == 0 ? huge : 4 * huge;
        EXPECT_EQ_UINT(all.ranks[0].hops, i % 2 == 0 ? 0 : 2 * slot);
        engine_ranks_close(&all, 2);
    }
}

static uint64_t expect_exchange(const struct weir_fake_cuda_control *gpu, const char *part) {
    uint64_t before = gpu->nccl_given();
    engine_ranks_open(&all, 2);
    EXPECT_STATUS(engine_ranks_run(&all, 2, engine_rank_train), WEIR_OK);
    for (uint32_t r = 0; r < 2; r++) EXPECT_CONTAINS(all.ranks[r].exchange, part);
    engine_ranks_compare(&all, 2);
    engine_ranks_close(&all, 2);
    engine_gpu_expect_clean(gpu);
    return gpu->nccl_given() - before;
}

static void test_replicas_exchange_by_nccl_where_they_can_and_say_why_not(void) {
    const struct weir_fake_cuda_control *gpu = engine_gpu_open();
    if (gpu == NULL) return;
    choose(gpu, 1, 2);                 /* two sections of 3 and 2 numbers, of which each has one */
    uint64_t steps = ENGINE_STEPS - 1; /* but where it infers */
    EXPECT_EQ_UINT(expect_exchange(gpu, "by NCCL 2.27.3"), 2 * steps * (2 + 2));
    choose(gpu, 1, 1);
    EXPECT_EQ_UINT(expect_exchange(gpu, "share a GPU, which NCCL refuses"), 0);
    choose(gpu, 1, 2);
    engine_ranks_use_nccl(false);
    EXPECT_EQ_UINT(expect_exchange(gpu, "it is not found on rank 0"), 0);
}

static void test_ties_over_gpus_of_replicas_give_the_reference_bits(void) {
    const struct weir_fake_cuda_control *gpu = engine_gpu_open();
    for (uint32_t k = 0; gpu != NULL && k < 12 && !test_has_failed(); k++) {
        uint32_t count = choose(gpu, 3, k % 4 == 0 ? 2 : 6);
        for (uint32_t s = 0; s < 3; s++) all.model.stages[s].parameters = 20;
        engine_tie(&all.model, 0, "both", 4, 8);
        engine_tie(&all.model, 2, "both", 2, 8);
        if (k % 3 == 0) all.run.options.schedule = "gpipe";
        if (k % 3 == 1) all.run.options.workers = 2, count = 4;
        if (k % 2 == 0) all.run.options.clip_norm = 0.01;
        if (k % 5 == 0) all.devices[0] = "cpu"; /* of each replica */
        engine_ranks_expect(&all, count);
        engine_gpu_expect_clean(gpu);
    }
}

/* ---- what cannot be ---- */

static void test_a_replica_on_cpus_beside_one_on_gpus_is_refused(void) {
    const struct weir_fake_cuda_control *gpu = engine_gpu_open();
    if (gpu == NULL) return;
    choose(gpu, 1, 2);
    engine_ranks_open(&all, 2);
    all.ranks[1].options.device_count = 0;
    EXPECT_STATUS(engine_ranks_run(&all, 2, engine_rank_try), WEIR_OK);
    for (uint32_t r = 0; r < 2; r++) {
        EXPECT_STATUS(all.ranks[r].built, WEIR_ERR_CONFIG);
        EXPECT_CONTAINS(all.ranks[r].said, "a CPU in every replica, or a GPU in each");
    }
    engine_ranks_close(&all, 2);
    engine_gpu_expect_clean(gpu);
}

/* ---- failures ---- */

static void test_a_failure_on_one_replica_is_told_on_all_and_the_next_step_goes_on(void) {
    static const enum weir_phase phases[] = {WEIR_FORWARD, WEIR_BACKWARD, WEIR_NORM};
    const struct weir_fake_cuda_control *gpu = engine_gpu_open();
    for (uint32_t i = 0; gpu != NULL && i < 24 && !test_has_failed(); i++) {
        uint32_t rank = i % 4;
        enum weir_phase phase = phases[i / 4 % 3];
        choose(gpu, 2, 4);
        engine_ranks_use_nccl(i < 12);
        engine_ranks_open(&all, 4);
        engine_rank_fails(&all.ranks[rank], phase, rank % 2,
                          phase == WEIR_NORM ? 0
                          : rank < 2         ? 2
                                             : 6);
        if (i % 6 == 5) all.ranks[rank].model.failure.armed = false;
        if (i % 6 == 5) all.ranks[rank].model.combine_status = 77;
        EXPECT_STATUS(engine_ranks_run(&all, 4, engine_rank_repeat), WEIR_OK);
        for (uint32_t r = 0; r < 4; r++) {
            EXPECT_STATUS(all.ranks[r].statuses[0], 77);
            EXPECT_EQ_INT(all.ranks[r].results[0].error.stage, (int)(rank % 2));
            EXPECT(!all.ranks[r].results[0].updated);
            EXPECT_STATUS(all.ranks[r].statuses[1], WEIR_OK);
            EXPECT_EQ_BYTES(&all.ranks[r].results[1], &all.ranks[0].results[1], sizeof(double));
            EXPECT_EQ_BYTES(all.ranks[r].gathered, all.ranks[0].gathered,
                            sizeof all.ranks[r].gathered);
        }
        engine_ranks_close(&all, 4);
        engine_gpu_expect_clean(gpu);
    }
}

/* Some of all: the step that grows would pass by what is rare near the end. */
static uint64_t after(uint64_t k) {
    return k + 1 + k / 12 + test_random_below(4);
}

static void expect_end(bool fired, const char *what, uint64_t k) {
    engine_ranks_expect_end(&all, 2);
    for (uint32_t r = 0; r < 2 && !fired; r++) EXPECT_EQ_UINT(all.ranks[r].done, ENGINE_STEPS);
    engine_ranks_close(&all, 2);
    if (test_has_failed()) printf("%s %llu\n", what, (unsigned long long)k);
}

static void test_any_call_of_the_driver_or_nccl_that_fails_ends_all_replicas(void) {
    const struct weir_fake_cuda_control *gpu = engine_gpu_open();
    bool fired = gpu != NULL;
    for (uint64_t k = 1; fired && !test_has_failed(); k = after(k)) {
        choose(gpu, 1, 2);
        engine_ranks_use_nccl(k % 2 == 0);
        engine_ranks_open(&all, 2);
        gpu->fail_call(k, 2); /* out of memory: it does not stay */
        (void)engine_ranks_run(&all, 2, engine_rank_train);
        fired = gpu->failed();
        expect_end(fired, "call", k);
    }
}

static void test_any_allocation_that_fails_on_a_replica_ends_all(void) {
    const struct weir_fake_cuda_control *gpu = engine_gpu_open();
    bool fired = gpu != NULL;
    for (uint64_t k = 1; fired && !test_has_failed(); k++) {
        struct engine_scarce scarce;
        choose(gpu, 1, 2);
        all.how.no_launcher = true;
        engine_ranks_open(&all, 2);
        engine_scarce_init(&scarce, k);
        all.ranks[k % 2].options.allocator = &scarce.allocator;
        EXPECT_STATUS(engine_ranks_run(&all, 2, engine_rank_try), WEIR_OK);
        fired = engine_scarce_fired(&scarce);
        for (uint32_t r = 0; r < 2; r++) EXPECT((all.ranks[r].built != WEIR_OK) == fired);
        engine_gpu_expect_clean(gpu);
        engine_ranks_close(&all, 2);
        if (test_has_failed()) printf("allocation %llu\n", (unsigned long long)k);
    }
}

static void test_a_lost_peer_of_nccl_is_an_error_and_no_hang(void) {
    const struct weir_fake_cuda_control *gpu = engine_gpu_open();
    for (uint64_t k = 1; gpu != NULL && k <= 40 && !test_has_failed(); k += 3) {
        choose(gpu, 1, 2);
        engine_ranks_open(&all, 2);
        gpu->nccl_lose(k);
        int status = engine_ranks_run(&all, 2, engine_rank_train);
        EXPECT(status == WEIR_ERR_PEER || status == WEIR_ERR_TORN);
        expect_end(true, "message", k);
    }
}

static void test_a_world_that_fails_at_any_call_ends_every_replica(void) {
    const struct weir_fake_cuda_control *gpu = engine_gpu_open();
    bool fired = gpu != NULL;
    for (uint32_t k = 1; fired && !test_has_failed(); k += 1 + k / 8) {
        choose(gpu, 1, 2);
        engine_ranks_use_nccl(k % 4 < 2);
        all.how.fail_rank = k % 2;
        all.how.fail_call = k;
        engine_ranks_open(&all, 2);
        (void)engine_ranks_run(&all, 2, engine_rank_train);
        fired = all.fired;
        expect_end(fired, "world's call", k);
    }
}

WEIR_TEST_SUITE(replicas_gpu, TEST(any_number_of_replicas_on_gpus_gives_the_reference_bits),
                TEST(the_plan_counts_the_slots_between_replicas),
                TEST(replicas_exchange_by_nccl_where_they_can_and_say_why_not),
                TEST(ties_over_gpus_of_replicas_give_the_reference_bits),
                TEST(a_replica_on_cpus_beside_one_on_gpus_is_refused),
                TEST(a_failure_on_one_replica_is_told_on_all_and_the_next_step_goes_on),
                TEST(any_call_of_the_driver_or_nccl_that_fails_ends_all_replicas),
                TEST(any_allocation_that_fails_on_a_replica_ends_all),
                TEST(a_lost_peer_of_nccl_is_an_error_and_no_hang),
                TEST(a_world_that_fails_at_any_call_ends_every_replica))
