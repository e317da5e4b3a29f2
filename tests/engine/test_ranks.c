/* SPDX-License-Identifier: MIT */
/*
 * Goal: over all.how many processes a pipe is spread changes no bit, and what one of them suffers
 * all learn. Method: random models, tables, checkpoints and links over ranks that are threads, with
 * messages as late and in as hostile an order as MPI allows; each rank has a all.model, a pipe and
 * a batch of its own, and what they all end with is compared with the reference, bit for bit.
 */
#include "base/base.h"
#include "engine/engine_ranks.h"
#include "world/allreduce.h"
#include "world/wait.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

enum { RANKS_MAX = 4 };

static struct engine_ranks all;

static void choose(void) {
    do engine_random_choose(&all.run, &all.model);
    while (all.run.options.workers < 2 || all.run.options.debug_inputs);
    all.how = (struct threads_options){.seed = test_random_u64(),
                                       .delay = (uint32_t)test_random_below(40)};
}

static void run_one(uint32_t number) {
    choose();
    uint32_t most = all.run.options.workers < RANKS_MAX ? all.run.options.workers : RANKS_MAX;
    uint32_t count = 1 + (uint32_t)test_random_below(most);
    engine_ranks_expect(&all, count);
    if (test_has_failed()) engine_random_describe(&all.run, number);
}

static void test_any_number_of_ranks_gives_the_reference_bits(void) {
    size_t runs = test_count(500, 10000);
    for (uint32_t number = 0; number < runs && !test_has_failed(); number++) run_one(number);
}

/* ---- failures ---- */

static void fail_in(uint32_t rank, enum weir_phase phase) {
    engine_ranks_choose(&all, 2, 1);
    engine_ranks_open(&all, 2);
    engine_rank_fails(&all.ranks[rank], phase, rank, phase == WEIR_NORM ? 0 : 2);
    EXPECT_STATUS(engine_ranks_run(&all, 2, engine_rank_repeat), WEIR_OK);
    for (uint32_t r = 0; r < 2; r++) {
        EXPECT_STATUS(all.ranks[r].statuses[0], 77);
        EXPECT_EQ_INT(all.ranks[r].results[0].error.stage, (int)rank);
        EXPECT_EQ_INT(all.ranks[r].results[0].error.phase, (int)phase);
        EXPECT(!all.ranks[r].results[0].updated);
        EXPECT_STATUS(all.ranks[r].statuses[1], WEIR_OK);
        EXPECT(all.ranks[r].results[1].updated);
    }
    EXPECT_CONTAINS(all.ranks[1 - rank].results[0].error.message, rank == 0 ? "rank 0" : "rank 1");
    EXPECT_EQ_BYTES(&all.ranks[0].results[1].loss, &all.ranks[1].results[1].loss, sizeof(double));
    engine_ranks_close(&all, 2);
}

/* Behind the norms it is too late for the others to be as before: all know that. */
static void test_an_update_that_fails_tears_all_ranks(void) {
    for (uint32_t rank = 0; rank < 2 && !test_has_failed(); rank++) {
        engine_ranks_choose(&all, 2, 1);
        engine_ranks_open(&all, 2);
        engine_rank_fails(&all.ranks[rank], WEIR_UPDATE, rank, 0);
        EXPECT_STATUS(engine_ranks_run(&all, 2, engine_rank_repeat), WEIR_OK);
        for (uint32_t r = 0; r < 2; r++) {
            EXPECT_STATUS(all.ranks[r].statuses[0], WEIR_ERR_TORN);
            EXPECT(!all.ranks[r].results[0].updated);
            EXPECT_STATUS(all.ranks[r].statuses[1], WEIR_OK);
        }
        EXPECT_CONTAINS(all.ranks[1 - rank].results[0].error.message, "update failed on rank");
        engine_ranks_close(&all, 2);
    }
}

static void test_a_failure_is_told_on_all_ranks_and_no_parameter_changes(void) {
    static const enum weir_phase phases[] = {WEIR_FORWARD, WEIR_BACKWARD, WEIR_NORM};
    for (uint32_t i = 0; i < 6 && !test_has_failed(); i++) fail_in(i % 2, phases[i / 2]);
}

/* ---- what cannot be ---- */

static void expect_refused(uint32_t rank, int status, const char *part) {
    EXPECT_STATUS(all.ranks[rank].built, status);
    EXPECT_CONTAINS(all.ranks[rank].said, part);
}

static void test_ranks_that_build_different_pipes_are_refused(void) {
    engine_ranks_choose(&all, 2, 1);
    engine_ranks_open(&all, 2);
    all.ranks[1].options.clip_norm = 0.5;
    EXPECT_STATUS(engine_ranks_run(&all, 2, engine_rank_try), WEIR_OK);
    expect_refused(0, WEIR_ERR_CONFIG, "different pipes");
    expect_refused(1, WEIR_ERR_CONFIG, "different pipes");
    engine_ranks_close(&all, 2);
}

static void test_what_one_rank_refuses_all_do(void) {
    engine_ranks_choose(&all, 2, 1);
    engine_ranks_open(&all, 2);
    all.ranks[1].options.chunks = 0;
    EXPECT_STATUS(engine_ranks_run(&all, 2, engine_rank_try), WEIR_OK);
    expect_refused(0, WEIR_ERR_PEER, "rank 1: chunks must be at least 1");
    expect_refused(1, WEIR_ERR_CONFIG, "chunks must be at least 1");
    engine_ranks_close(&all, 2);
}

/* No rank waits for one that has no memory. */
static void test_any_allocation_that_fails_on_a_rank_ends_all(void) {
    bool fired = true;
    for (uint64_t k = 1; fired && !test_has_failed(); k++) {
        struct engine_scarce scarce;
        engine_ranks_choose(&all, 2, 1);
        all.how.no_launcher = true;
        engine_ranks_open(&all, 2);
        engine_scarce_init(&scarce, k);
        all.ranks[k % 2].options.allocator = &scarce.allocator;
        EXPECT_STATUS(engine_ranks_run(&all, 2, engine_rank_try), WEIR_OK);
        fired = engine_scarce_fired(&scarce);
        EXPECT_STATUS(all.ranks[k % 2].built, fired ? WEIR_ERR_OUT_OF_MEMORY : WEIR_OK);
        EXPECT_STATUS(all.ranks[1 - k % 2].built, fired ? WEIR_ERR_PEER : WEIR_OK);
        engine_ranks_close(&all, 2);
        if (test_has_failed()) printf("allocation %llu\n", (unsigned long long)k);
    }
}

static void test_more_ranks_than_workers_are_refused(void) {
    engine_ranks_choose(&all, 2, 1);
    engine_ranks_open(&all, 3);
    EXPECT_STATUS(engine_ranks_run(&all, 3, engine_rank_try), WEIR_OK);
    for (uint32_t r = 0; r < 3; r++) expect_refused(r, WEIR_ERR_CONFIG, "2 workers for 3 ranks");
    engine_ranks_close(&all, 3);
}

/* Rank 1 talks of something else, in as many bytes. */
static int gather_or_talk(void *context, struct weir_world *world) {
    struct engine_rank *rank = &((struct engine_rank *)context)[world->rank];
    uint64_t number = 1;
    if (world->rank == 0) {
        struct weir_error error = {0};
        rank->built = weir__world_gather(world, test_allocator(), &number, sizeof number, &error);
        snprintf(rank->said, sizeof rank->said, "%s", error.message);
        return WEIR_OK;
    }
    uint32_t tag = weir__talk_tag(WEIR__TALK_PLACE, sizeof number);
    EXPECT_STATUS(world->calls->open(world->context, 1), WEIR_OK);
    EXPECT_STATUS(weir__world_send(world, 0, tag, &number, sizeof number), WEIR_OK);
    return weir__world_receive(world, 0, &number, sizeof number, NULL);
}

static void test_a_gather_that_meets_something_else_says_so(void) {
    engine_ranks_choose(&all, 2, 1);
    engine_ranks_open(&all, 2);
    all.how.keeps_faults = true; /* its own message may be on its way when it fails */
    EXPECT_STATUS(engine_ranks_run(&all, 2, gather_or_talk), WEIR_OK);
    expect_refused(0, WEIR_ERR_PEER, "another rank is at something else");
    engine_ranks_close(&all, 2);
}

/* ---- a world that fails ---- */

static _Atomic uint32_t actions_named; /* that waited when a step failed */

/* Whatever fails, everybody ends, and with a reason. */
static int train_on(void *context, struct weir_world *world) {
    struct engine_rank *rank = &((struct engine_rank *)context)[world->rank];
    int status = engine_rank_train(context, world);
    if (rank->done > 0 && rank->statuses[rank->done - 1] != WEIR_OK)
        EXPECT(rank->results[rank->done - 1].error.message[0] != '\0');
    if (rank->done > 0 && rank->results[rank->done - 1].error.stage >= 0)
        atomic_fetch_add(&actions_named, 1);
    return status;
}

static void test_a_world_that_fails_at_any_call_ends_every_rank(void) {
    bool fired = true;
    for (uint32_t k = 1; fired && !test_has_failed(); k += 1 + k / 8) {
        engine_ranks_choose(&all, 2, 1);
        all.how.fail_rank = k % 2;
        all.how.fail_call = k;
        engine_ranks_open(&all, 2);
        int status = engine_ranks_run(&all, 2, train_on);
        fired = all.fired;
        bool torn = status == WEIR_ERR_TORN; /* behind the updates nobody knows others' */
        if (!torn) EXPECT_STATUS(status, fired ? WEIR_ERR_PEER : WEIR_OK);
        EXPECT(fired || !torn);
        engine_ranks_close(&all, 2);
    }
    EXPECT(atomic_load(&actions_named) > 0);
}

/* A world of a library's own, whose tests fail from one on, and whose messages may still come. */
struct broken_world {
    struct weir_world world, *whole;
    struct weir_world_calls calls;
    const void *memory[64]; /* of receives, in their order */
    const struct weir_request *requests[64];
    uint32_t receives, tests_left, cancelled, lost; /* lost: receives whose memory was given back */
    uint32_t sends_left; /* on channel 0, until one says that it is something else */
};

static int receive_noted(void *context, const struct weir_message *message,
                         struct weir_request *request) {
    struct broken_world *broken = context;
    uint32_t place = broken->receives++ % 64;
    broken->memory[place] = message->data;
    broken->requests[place] = request;
    return broken->whole->calls->receive(broken->whole->context, message, request);
}

static int test_or_fail(void *context, struct weir_request *request, bool *ended,
                        struct weir_arrival *arrival) {
    struct broken_world *broken = context;
    if (broken->tests_left == 0) return WEIR_ERR_PEER;
    broken->tests_left--;
    return broken->whole->calls->test(broken->whole->context, request, ended, arrival);
}

static int cancel_noted(void *context, struct weir_request *request, bool *ended) {
    struct broken_world *broken = context;
    unsigned char in_memory;
    uint32_t place = broken->receives;
    while (place-- > 0 && broken->requests[place % 64] != request) {}
    void *page = (void *)((uintptr_t)broken->memory[place % 64] / 4096 * 4096);
    broken->lost += mincore(page, 1, &in_memory) != 0;
    broken->cancelled++;
    return broken->whole->calls->cancel(broken->whole->context, request, ended);
}

static int open_whole(void *context, uint32_t count) {
    struct broken_world *broken = context;
    return broken->whole->calls->open(broken->whole->context, count);
}

static int send_whole(void *context, const struct weir_message *message,
                      struct weir_request *request) {
    struct broken_world *broken = context;
    struct weir_message sent = *message;
    if (sent.channel == 0 && broken->sends_left > 0 && --broken->sends_left == 0)
        sent.tag ^= 1 << 11;
    return broken->whole->calls->send(broken->whole->context, &sent, request);
}

static const char *reason_of_broken(void *context) {
    (void)context;
    return "it broke";
}

static struct broken_world broken_world;

static int train_on_broken(void *context, struct weir_world *world) {
    struct broken_world *broken = &broken_world;
    if (world->rank == 0) return engine_rank_train(context, world);
    broken->whole = world;
    broken->world = *world;
    broken->calls = *world->calls;
    broken->calls.open = open_whole;
    broken->calls.send = send_whole;
    broken->calls.receive = receive_noted;
    broken->calls.test = test_or_fail;
    broken->calls.cancel = cancel_noted;
    broken->calls.reason = reason_of_broken;
    broken->world.calls = &broken->calls;
    broken->world.context = broken;
    return engine_rank_train(context, &broken->world);
}

/* Returns how many messages were cancelled. */
static uint32_t break_at_every_test(void) {
    uint32_t cancelled = 0, k = 1;
    for (bool fired = true; fired && !test_has_failed(); k += 1 + k / 8) {
        engine_ranks_choose(&all, 2, 1);
        all.how.keeps_faults = true; /* what is left under way is one */
        broken_world = (struct broken_world){.tests_left = k};
        engine_ranks_open(&all, 2);
        int status = engine_ranks_run(&all, 2, train_on_broken);
        fired = broken_world.tests_left == 0;
        EXPECT((status != WEIR_OK) == fired);
        EXPECT_EQ_UINT(broken_world.lost, 0);
        cancelled += broken_world.cancelled;
        engine_ranks_close(&all, 2);
    }
    return cancelled;
}

/* A small pipeline whose messages come at once asks for few, and has none under way: then another
 * is drawn. */
static void test_memory_stays_until_no_message_can_come(void) {
    enum { ROUNDS_MOST = 50 };
    uint32_t cancelled = 0;
    for (int i = 0; i < ROUNDS_MOST && cancelled == 0 && !test_has_failed(); i++)
        cancelled = break_at_every_test();
    EXPECT(cancelled > 0);
}

/* Norms, losses, failures, outputs, times: what the ranks tell each other says what it is of. */
static void test_numbers_that_are_of_something_else_are_an_error(void) {
    uint32_t k = 1;
    for (bool fired = true; fired && !test_has_failed(); k++) {
        engine_ranks_choose(&all, 2, 1);
        all.how.keeps_faults = true;
        broken_world = (struct broken_world){.tests_left = UINT32_MAX, .sends_left = k};
        engine_ranks_open(&all, 2);
        int status = engine_ranks_run(&all, 2, train_on_broken);
        fired = broken_world.sends_left == 0;
        bool told = status == WEIR_ERR_PEER || status == WEIR_ERR_TORN;
        if (!EXPECT(told == fired)) printf("message %u: %s\n", k, weir_status_text(status));
        engine_ranks_close(&all, 2);
    }
    EXPECT(k > 3 * ENGINE_STEPS);
}

/* A rank that makes other calls than the rest is found out, not waited for. */
static int differ(void *context, struct weir_world *world) {
    struct engine_rank *rank = &((struct engine_rank *)context)[world->rank];
    struct weir_pipe *pipe = NULL;
    int status = engine_rank_build(rank, world, &pipe);
    if (status != WEIR_OK) return status;
    struct weir_step step = engine_ranks_step(&all, &rank->seen[0], 0);
    rank->statuses[0] = world->rank == 0 ? weir_pipe_step(pipe, &step, &rank->results[0])
                                         : weir_pipe_infer(pipe, &step, &rank->results[0]);
    weir_pipe_destroy(pipe);
    return rank->statuses[0];
}

static void test_other_calls_on_a_rank_are_an_error_and_no_wrong_number(void) {
    engine_ranks_choose(&all, 2, 1);
    all.how.keeps_faults = true; /* what is left under way is one */
    engine_ranks_open(&all, 2);
    EXPECT_STATUS(engine_ranks_run(&all, 2, differ), WEIR_ERR_PEER);
    EXPECT_STATUS(all.ranks[1].statuses[0], WEIR_ERR_PEER);
    EXPECT_CONTAINS(all.ranks[1].results[0].error.message, "not that of the plan");
    engine_ranks_close(&all, 2);
}

/* ---- further row counts, accumulation, flags ---- */

static int accumulate(void *context, struct weir_world *world) {
    struct engine_rank *rank = &((struct engine_rank *)context)[world->rank];
    struct weir_pipe *pipe = NULL;
    int status = engine_rank_build(rank, world, &pipe);
    if (status != WEIR_OK) return status;
    for (uint32_t k = 0; k < 2 && status == WEIR_OK; k++) {
        struct weir_step step = engine_ranks_step(&all, &rank->seen[0], 0);
        step.accumulate_first = k == 0;
        step.accumulate_last = k == 1;
        step.flags = UINT32_C(1) << (2 * k + world->rank);
        status = weir_pipe_step(pipe, &step, &rank->results[k]);
    }
    if (status == WEIR_OK) status = weir_pipe_prepare(pipe, 5, NULL);
    struct weir_step few = engine_ranks_step(&all, &rank->seen[0], 0);
    few.rows = 5;
    if (status == WEIR_OK) status = weir_pipe_step(pipe, &few, &rank->results[2]);
    if (status == WEIR_OK) status = weir_pipe_infer(pipe, &few, &rank->results[3]);
    weir_pipe_destroy(pipe);
    return status;
}

static void test_accumulation_other_rows_and_flags_reach_all_ranks(void) {
    struct weir_step_result alone[ENGINE_STEPS];
    engine_ranks_choose(&all, 2, 1);
    engine_ranks_open(&all, 1);
    EXPECT_STATUS(engine_ranks_run(&all, 1, accumulate), WEIR_OK);
    memcpy(alone, all.ranks[0].results, sizeof alone);
    engine_ranks_close(&all, 1);
    engine_ranks_open(&all, 2);
    EXPECT_STATUS(engine_ranks_run(&all, 2, accumulate), WEIR_OK);
    for (uint32_t r = 0; r < 2; r++) {
        for (uint32_t k = 0; k < 4; k++)
            EXPECT_EQ_BYTES(&all.ranks[r].results[k].loss, &alone[k].loss, sizeof(double));
        EXPECT(!all.ranks[r].results[0].updated && all.ranks[r].results[1].updated);
        EXPECT_EQ_UINT(all.ranks[r].results[0].flags, 3);
        EXPECT_EQ_UINT(all.ranks[r].results[1].flags, 12);
    }
    engine_ranks_close(&all, 2);
}

/* ---- what rank 0 shows ---- */

enum { EVENTS_MAX = 256 };

/* What it was told, and when on its own clock it had begun and ended what it was told of. */
static struct shown {
    struct weir_trace_event events[2][EVENTS_MAX];
    uint32_t counts[2];
    struct weir_place places[2];
    int reports[2], place_of_other; /* statuses */
    uint64_t begin, end;
} shown;

static void look_at_trace(struct weir_pipe *pipe) {
    for (uint32_t w = 0; w < 2; w++) {
        shown.counts[w] = weir_pipe_trace(pipe, w, EVENTS_MAX, shown.events[w]);
        EXPECT_STATUS(weir_pipe_place(pipe, w, &shown.places[w]), WEIR_OK);
    }
}

static int step_and_show(void *context, struct weir_world *world) {
    struct engine_rank *rank = &((struct engine_rank *)context)[world->rank];
    struct weir_pipe *pipe = NULL;
    struct weir_step_report report;
    int status = engine_rank_build(rank, world, &pipe);
    if (status != WEIR_OK) return status;
    if (world->rank == 0) shown.begin = weir__now_ns();
    for (uint32_t k = 0; k < ENGINE_STEPS && status == WEIR_OK; k++) {
        struct weir_step step = engine_ranks_step(&all, &rank->seen[k], k);
        status = weir_pipe_step(pipe, &step, &rank->results[k]);
    }
    if (world->rank == 0) shown.end = weir__now_ns();
    shown.reports[world->rank] = weir_pipe_report(pipe, &report);
    if (world->rank == 0) look_at_trace(pipe);
    if (world->rank == 1) shown.place_of_other = weir_pipe_place(pipe, 0, &shown.places[0]);
    if (world->rank == 0) EXPECT(report.worker_count == 2 && report.bubble > 0);
    weir_pipe_destroy(pipe);
    return status;
}

/* The clocks are one in truth, so no time may be wrong by more than is said. */
static void expect_causal(uint64_t error) {
    for (uint32_t i = 0; i < shown.counts[1]; i++) {
        const struct weir_trace_event *to = &shown.events[1][i];
        EXPECT(to->waited <= to->start && to->start <= to->end);
        EXPECT(to->start + error >= shown.begin && to->end <= shown.end + error);
        for (uint32_t j = 0; j < shown.counts[0]; j++) {
            const struct weir_trace_event *from = &shown.events[0][j];
            bool same = from->step == to->step &&
                        from->action.micro_batch == to->action.micro_batch &&
                        from->action.kind == to->action.kind && from->action.kind == WEIR_KIND_F;
            if (same) EXPECT(to->start + error >= from->end);
        }
    }
}

static void show_on(uint32_t ranks_per_host) {
    engine_ranks_choose(&all, 2, 1);
    all.run.options.trace_actions = EVENTS_MAX;
    all.how.ranks_per_host = ranks_per_host;
    memset(&shown, 0, sizeof shown);
    engine_ranks_open(&all, 2);
    EXPECT_STATUS(engine_ranks_run(&all, 2, step_and_show), WEIR_OK);
    engine_ranks_close(&all, 2);
    EXPECT_STATUS(shown.reports[0], WEIR_OK);
    EXPECT_STATUS(shown.reports[1], WEIR_ERR_NOT_FOUND);
    EXPECT_STATUS(shown.place_of_other, WEIR_ERR_NOT_FOUND);
    for (uint32_t w = 0; w < 2; w++) {
        EXPECT_EQ_UINT(shown.places[w].rank, w);
        EXPECT_EQ_UINT(shown.counts[w], ENGINE_STEPS * (4 * 2 + 2)); /* F and B, N and U */
        EXPECT_EQ_UINT(shown.events[w][shown.counts[w] - 1].step, ENGINE_STEPS);
    }
    EXPECT_EQ_STR(shown.places[1].host, ranks_per_host == 1 ? "host-1" : "host-0");
    EXPECT((shown.places[1].clock_error_ns > 0) == (ranks_per_host == 1));
    EXPECT_EQ_UINT(shown.places[0].clock_error_ns, 0);
    expect_causal(shown.places[1].clock_error_ns);
}

static void test_rank_0_shows_when_all_did_what_on_its_clock(void) {
    show_on(0);
    show_on(1);
}

WEIR_TEST_SUITE(ranks, TEST(rank_0_shows_when_all_did_what_on_its_clock),
                TEST(any_number_of_ranks_gives_the_reference_bits),
                TEST(accumulation_other_rows_and_flags_reach_all_ranks),
                TEST(a_failure_is_told_on_all_ranks_and_no_parameter_changes),
                TEST(an_update_that_fails_tears_all_ranks),
                TEST(ranks_that_build_different_pipes_are_refused),
                TEST(what_one_rank_refuses_all_do),
                TEST(any_allocation_that_fails_on_a_rank_ends_all),
                TEST(more_ranks_than_workers_are_refused),
                TEST(a_gather_that_meets_something_else_says_so),
                TEST(a_world_that_fails_at_any_call_ends_every_rank),
                TEST(memory_stays_until_no_message_can_come),
                TEST(numbers_that_are_of_something_else_are_an_error),
                TEST(other_calls_on_a_rank_are_an_error_and_no_wrong_number))
