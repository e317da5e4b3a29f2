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
#include "pipe/run/ranks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS_MAX = 4 };

static struct engine_ranks all;

/* ---- random pipes ---- */

static uint32_t choose(const struct weir_fake_cuda_control *gpu) {
    do engine_random_choose(&all.run, &all.model);
    while (all.run.options.workers < 2);
    uint32_t most = all.run.options.workers < RANKS_MAX ? all.run.options.workers : RANKS_MAX;
    uint32_t count = 1 + (uint32_t)test_random_below(most);
    if (count == 1) count += test_random_below(4) > 0; /* mostly there is another */
    all.how = (struct threads_options){.seed = test_random_u64(),
                                       .delay = (uint32_t)test_random_below(40)};
    engine_ranks_use_gpus(&all, gpu, count);
    return count;
}

static void run_one(const struct weir_fake_cuda_control *gpu, uint32_t number) {
    uint32_t count = choose(gpu);
    engine_ranks_expect(&all, count);
    if (!test_has_failed()) engine_gpu_expect_clean(gpu);
    if (!test_has_failed()) return;
    engine_random_describe(&all.run, number);
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
    engine_ranks_choose(&all, 2, 1);
    engine_ranks_name_gpus(&all, gpu, first, second);
    gpu->reset(test_random_u64(), gpus, 0);
}

/* Trains; what the ranks say of all.how they exchange, and all.how many messages were NCCL's. */
static uint64_t expect_exchange(const struct weir_fake_cuda_control *gpu, const char *part) {
    uint64_t before = gpu->nccl_given();
    engine_ranks_open(&all, 2);
    EXPECT_STATUS(engine_ranks_run(&all, 2, engine_rank_train), WEIR_OK);
    for (uint32_t r = 0; r < 2; r++) EXPECT_CONTAINS(all.ranks[r].exchange, part);
    engine_ranks_compare(&all, 2);
    engine_gpu_expect_clean(gpu);
    engine_ranks_close(&all, 2);
    return gpu->nccl_given() - before;
}

static void test_gpus_exchange_by_nccl_where_they_can_and_say_why_not(void) {
    const struct weir_fake_cuda_control *gpu = engine_gpu_open();
    if (gpu == NULL) return;
    choose_pair(gpu, "cuda", "cuda", 2);
    /* 4 micro-batches, forward and back, in all steps but one; and forward alone there: both sides
     */
    EXPECT_EQ_UINT(expect_exchange(gpu, "by NCCL 2.27.3"), 2 * (5 * 8 + 4));
    EXPECT_EQ_UINT(all.ranks[0].hops, 0);
    choose_pair(gpu, "cuda", "cuda", 1);
    EXPECT_EQ_UINT(expect_exchange(gpu, "share a GPU, which NCCL refuses"), 0);
    choose_pair(gpu, "cuda", "cuda", 2);
    engine_ranks_use_nccl(false);
    EXPECT_EQ_UINT(expect_exchange(gpu, "it is not found on rank 0"), 0);
    choose_pair(gpu, "cuda", "cpu", 2);
    EXPECT_EQ_UINT(expect_exchange(gpu, ""), 0);
    EXPECT_EQ_STR(all.ranks[0].exchange, "");
    EXPECT(all.ranks[0].hops > 0);
}

/* It says a version, and has nothing else: its ranks have no NCCL, and go the other way. */
static void test_an_nccl_that_does_not_serve_is_none(void) {
    const struct weir_fake_cuda_control *gpu = engine_gpu_open();
    char output[512], path[256];
    if (gpu == NULL) return;
    if (test_zig() == NULL) SKIP("no compiler to make a library with");
    snprintf(path, sizeof path, "%s/libnccl.so.2", test_temporary_directory());
    int code = test_shell(output, sizeof output,
                          "echo 'int ncclGetVersion(int *v) { *v = 22703; return 0; }' >%s.c && "
                          "'%s' cc -shared -o %s %s.c",
                          path, test_zig(), path, path);
    EXPECT_EQ_STR(output, "");
    CHECK_EQ_INT(code, 0);
    choose_pair(gpu, "cuda", "cuda", 2);
    CHECK_EQ_INT(setenv("WEIR_NCCL", path, 1), 0);
    EXPECT_EQ_UINT(expect_exchange(gpu, "it is not found on rank 0"), 0);
    engine_ranks_use_nccl(true);
}

static void expect_refused(const char *part) {
    engine_ranks_open(&all, 2);
    EXPECT(engine_ranks_run(&all, 2, engine_rank_train) != WEIR_OK);
    bool said = false;
    for (uint32_t r = 0; r < 2; r++) said = said || strstr(all.ranks[r].said, part) != NULL;
    if (!EXPECT(said)) printf("%s\n%s\n", all.ranks[0].said, all.ranks[1].said);
    engine_ranks_close(&all, 2);
}

static void test_ranks_share_the_gpus_of_their_host(void) {
    const struct weir_fake_cuda_control *gpu = engine_gpu_open();
    if (gpu == NULL) return;
    choose_pair(gpu, "cuda:1", "cuda:1", 4); /* GPUs 1 and 3 */
    EXPECT(expect_exchange(gpu, "by NCCL") > 0);
    choose_pair(gpu, "cpu", "cuda:1", 2); /* rank 1 has both, however many are named */
    all.devices[2] = all.devices[3] = "cuda";
    all.run.options.device_count = 4;
    EXPECT_EQ_UINT(expect_exchange(gpu, ""), 0);
    choose_pair(gpu, "cuda:1", "cuda:1", 2);
    expect_refused("2 ranks share 2 GPUs of this host");
    engine_gpu_expect_clean(gpu);
}

/* Three workers on GPUs, of which one rank says that the middle one is on a CPU: then it knows of
 * fewer channels. */
static void test_ranks_that_name_different_devices_are_refused(void) {
    static const char *const others[] = {"cuda", "cpu", "cuda"};
    const struct weir_fake_cuda_control *gpu = engine_gpu_open();
    for (uint32_t r = 0; gpu != NULL && r < 3 && !test_has_failed(); r++) {
        engine_ranks_choose(&all, 3, 1);
        engine_ranks_name_gpus(&all, gpu, "cuda", "cuda");
        gpu->reset(test_random_u64(), 3, 0);
        engine_ranks_open(&all, 3);
        all.ranks[r].options.devices = others;
        EXPECT_STATUS(engine_ranks_run(&all, 3, engine_rank_try), WEIR_OK);
        for (uint32_t other = 0; other < 3; other++) {
            EXPECT_STATUS(all.ranks[other].built, WEIR_ERR_CONFIG);
            EXPECT_CONTAINS(all.ranks[other].said, "different devices");
        }
        engine_ranks_close(&all, 3);
        engine_gpu_expect_clean(gpu);
    }
}

/* ---- failures ---- */

static void fail_in(const struct weir_fake_cuda_control *gpu, uint32_t rank, enum weir_phase phase,
                    bool nccl) {
    choose_pair(gpu, "cuda", "cuda", 2);
    engine_ranks_use_nccl(nccl);
    engine_ranks_open(&all, 2);
    engine_rank_fails(&all.ranks[rank], phase, rank, phase == WEIR_NORM ? 0 : 2);
    EXPECT_STATUS(engine_ranks_run(&all, 2, engine_rank_repeat), WEIR_OK);
    for (uint32_t r = 0; r < 2; r++) {
        EXPECT_STATUS(all.ranks[r].statuses[0], 77);
        EXPECT_EQ_INT(all.ranks[r].results[0].error.stage, (int)rank);
        EXPECT(!all.ranks[r].results[0].updated);
        EXPECT_STATUS(all.ranks[r].statuses[1], WEIR_OK);
        EXPECT(all.ranks[r].results[1].updated);
    }
    EXPECT_EQ_BYTES(&all.ranks[0].results[1].loss, &all.ranks[1].results[1].loss, sizeof(double));
    engine_gpu_expect_clean(gpu);
    engine_ranks_close(&all, 2);
}

static void test_a_failure_is_told_on_all_ranks_and_the_next_step_goes_on(void) {
    static const enum weir_phase phases[] = {WEIR_FORWARD, WEIR_BACKWARD, WEIR_NORM};
    const struct weir_fake_cuda_control *gpu = engine_gpu_open();
    for (uint32_t i = 0; gpu != NULL && i < 12 && !test_has_failed(); i++)
        fail_in(gpu, i % 2, phases[i / 2 % 3], i / 6 == 0);
}

static void expect_end(bool fired, const char *what, uint64_t k) {
    engine_ranks_expect_end(&all, 2);
    for (uint32_t r = 0; r < 2 && !fired; r++) EXPECT_EQ_UINT(all.ranks[r].done, ENGINE_STEPS);
    for (uint32_t r = 0; r < 2 && !fired; r++)
        EXPECT_STATUS(all.ranks[r].statuses[ENGINE_STEPS - 1], WEIR_OK);
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
        engine_ranks_open(&all, 2);
        gpu->fail_call(k, 2); /* out of memory: it does not stay */
        (void)engine_ranks_run(&all, 2, engine_rank_train);
        fired = gpu->failed();
        expect_end(fired, "call", k);
        engine_ranks_close(&all, 2);
    }
}

/* No rank waits for one that has no memory. */
static void test_any_allocation_that_fails_on_a_rank_ends_all(void) {
    const struct weir_fake_cuda_control *gpu = engine_gpu_open();
    bool fired = gpu != NULL;
    for (uint64_t k = 1; fired && !test_has_failed(); k++) {
        struct engine_scarce scarce;
        choose_pair(gpu, "cuda", "cuda", 2);
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

/* A world of one rank, some of whose calls have no memory, without harm to what is under way. */
static struct short_world {
    struct weir_world world, *whole;
    struct weir_world_calls calls;
    uint32_t left; /* of those calls, until one fails */
    bool fired;
} short_world;

static bool falls_short(void) {
    bool now = short_world.left > 0 && --short_world.left == 0;
    short_world.fired |= now;
    return now;
}

static int open_short(void *context, uint32_t count) {
    int status = short_world.whole->calls->open(context, count);
    return status == WEIR_OK && count > 1 && falls_short() ? WEIR_ERR_OUT_OF_MEMORY : status;
}

static int receive_short(void *context, const struct weir_message *message,
                         struct weir_request *request) {
    if (message->channel == WEIR__PULSE_CHANNEL && falls_short()) return WEIR_ERR_OUT_OF_MEMORY;
    return short_world.whole->calls->receive(context, message, request);
}

static int build_short(void *context, struct weir_world *world) {
    if (world->rank == 0) return engine_rank_try(context, world);
    short_world.whole = world;
    short_world.world = *world;
    short_world.calls = *world->calls;
    short_world.calls.open = open_short;
    short_world.calls.receive = receive_short;
    short_world.world.calls = &short_world.calls;
    return engine_rank_try(context, &short_world.world);
}

static void test_channels_that_one_rank_cannot_have_none_waits_for(void) {
    const struct weir_fake_cuda_control *gpu = engine_gpu_open();
    uint32_t k = 1;
    for (bool fired = gpu != NULL; fired && !test_has_failed(); k++) {
        choose_pair(gpu, "cuda", "cuda", 2);
        all.how.no_launcher = true;
        short_world = (struct short_world){.left = k};
        engine_ranks_open(&all, 2);
        EXPECT_STATUS(engine_ranks_run(&all, 2, build_short), WEIR_OK);
        fired = short_world.fired;
        EXPECT_STATUS(all.ranks[1].built, fired ? WEIR_ERR_OUT_OF_MEMORY : WEIR_OK);
        EXPECT_STATUS(all.ranks[0].built, fired ? WEIR_ERR_PEER : WEIR_OK);
        engine_ranks_close(&all, 2);
        engine_gpu_expect_clean(gpu);
    }
    EXPECT(gpu == NULL || k > 2); /* the channels, and what is under way in one */
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
    return engine_rank_try(context, world->rank == 0 ? &odd : world);
}

static void test_an_nccl_id_that_is_of_something_else_is_refused(void) {
    const struct weir_fake_cuda_control *gpu = engine_gpu_open();
    if (gpu == NULL) return;
    choose_pair(gpu, "cuda", "cuda", 2);
    all.how.no_launcher = true;
    engine_ranks_open(&all, 2);
    EXPECT_STATUS(engine_ranks_run(&all, 2, build_with_odd_ids), WEIR_OK);
    for (uint32_t r = 0; r < 2; r++) {
        EXPECT_STATUS(all.ranks[r].built, WEIR_ERR_PEER);
        EXPECT_CONTAINS(all.ranks[r].said, "rank 1: rank 0 is at something else");
    }
    engine_gpu_expect_clean(gpu);
    engine_ranks_close(&all, 2);
}

static void test_a_lost_peer_of_nccl_is_an_error_and_no_hang(void) {
    const struct weir_fake_cuda_control *gpu = engine_gpu_open();
    for (uint64_t k = 1; gpu != NULL && k <= 48 && !test_has_failed(); k += 3) {
        choose_pair(gpu, "cuda", "cuda", 2);
        engine_ranks_open(&all, 2);
        gpu->nccl_lose(k);
        EXPECT_STATUS(engine_ranks_run(&all, 2, engine_rank_train), WEIR_ERR_PEER);
        bool named = false;
        for (uint32_t r = 0; r < 2; r++)
            for (uint32_t s = 0; s < ENGINE_STEPS; s++)
                named = named || strstr(all.ranks[r].results[s].error.message, "remote process");
        EXPECT(named);
        expect_end(true, "message", k);
        engine_ranks_close(&all, 2);
    }
}

static void test_a_world_that_fails_at_any_call_ends_every_rank(void) {
    const struct weir_fake_cuda_control *gpu = engine_gpu_open();
    bool fired = gpu != NULL;
    for (uint32_t k = 1; fired && !test_has_failed(); k += 1 + k / 8) {
        choose_pair(gpu, "cuda", k % 3 == 0 ? "cpu" : "cuda", 2);
        all.how.fail_rank = k % 2;
        all.how.fail_call = k;
        engine_ranks_open(&all, 2);
        (void)engine_ranks_run(&all, 2, engine_rank_train);
        fired = all.fired;
        expect_end(fired, "world's call", k);
        engine_ranks_close(&all, 2);
    }
}

WEIR_TEST_SUITE(ranks_gpu, TEST(gpus_exchange_by_nccl_where_they_can_and_say_why_not),
                TEST(an_nccl_that_does_not_serve_is_none), TEST(ranks_share_the_gpus_of_their_host),
                TEST(ranks_that_name_different_devices_are_refused),
                TEST(any_ranks_on_gpus_give_the_reference_bits),
                TEST(a_failure_is_told_on_all_ranks_and_the_next_step_goes_on),
                TEST(any_call_of_the_driver_or_nccl_that_fails_ends_all_ranks),
                TEST(any_allocation_that_fails_on_a_rank_ends_all),
                TEST(channels_that_one_rank_cannot_have_none_waits_for),
                TEST(an_nccl_id_that_is_of_something_else_is_refused),
                TEST(a_lost_peer_of_nccl_is_an_error_and_no_hang),
                TEST(a_world_that_fails_at_any_call_ends_every_rank))
