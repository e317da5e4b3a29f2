/* SPDX-License-Identifier: MIT */
/*
 * Goal: all.how many replicas share a mini-batch changes no bit, each has its slices of the
 * optimizer's state, and what one suffers all learn. Method: random models, tables, checkpoints and
 * groups on replicas of one to three ranks that are threads, with messages as late and in as
 * hostile an order as MPI allows; what all end with is compared with the reference, bit for bit.
 * Messages go in the order that the simulator gives them (weir_predict.h).
 */
#include "engine/engine_ranks.h"
#include "pipe/run/ranks.h"

#include <stdio.h>
#include <string.h>

enum { RUNS = 60 };

static struct engine_ranks all;

/* ---- random pipes ---- */

static void run_one(uint32_t number, uint32_t replicas) {
    uint32_t count = engine_ranks_random(&all, replicas);
    engine_ranks_expect(&all, count);
    if (test_has_failed()) engine_random_describe(&all.run, number);
}

static void test_any_number_of_replicas_gives_the_reference_bits(void) {
    for (uint32_t number = 0; number < RUNS && !test_has_failed(); number++)
        run_one(number, UINT32_C(1) << number % 3);
}

/* ---- order ---- */

/* Where a message stands among those behind a stage's action, the less the earlier: gradients from
 * the highest stage on; parameters by the place of the update in its line, then from the last
 * worker on. */
static uint32_t turn_of(const struct weir__row_plan *plan, uint32_t action) {
    const struct weir_table *table = plan->table;
    uint32_t stage = table->actions[action].stage, worker = plan->stage_worker[stage], place = 0;
    if (table->actions[action].kind != WEIR_KIND_U) return table->stage_count - stage;
    for (uint32_t a = table->lines[worker]; a < action; a++)
        place += table->actions[a].kind == WEIR_KIND_U;
    return (place + 1) * table->worker_count + table->stage_count - worker;
}

/* Within a replica: the first action that reads it, which is R where that waits for gradients. */
static uint32_t turn_in_lane(const struct weir__row_plan *plan, uint32_t action) {
    const struct weir_table *table = plan->table;
    const struct weir_action *reader = &table->actions[action];
    uint32_t first = action;
    bool waits = all.run.options.recompute_late && weir__reads(reader->kind, WEIR__OUTPUT_GRADS);
    for (uint32_t a = table->lines[plan->stage_worker[reader->stage]]; waits && a < action; a++)
        if (table->actions[a].kind == WEIR_KIND_R && table->actions[a].stage == reader->stage &&
            table->actions[a].micro_batch == reader->micro_batch)
            first = a;
    return first;
}

static void expect_order(const struct weir__row_plan *plan, const struct weir__port *port) {
    uint32_t before = 0;
    for (uint32_t i = 0; i < port->count && !test_has_failed(); i++) {
        uint32_t turn = port->items != NULL
                            ? turn_of(plan, port->items[i].action)
                            : turn_in_lane(plan, plan->copies[port->copies[i]].action);
        if (i == port->body_count && port->items != NULL) before = 0;
        EXPECT(turn >= before);
        before = turn;
    }
}

static int look_at_messages(void *context, struct weir_world *world) {
    struct engine_rank *rank = &((struct engine_rank *)context)[world->rank];
    struct weir_pipe *pipe = NULL;
    int status = engine_rank_build(rank, world, &pipe);
    for (uint32_t i = 0; status == WEIR_OK && i < pipe->prepared_count; i++) {
        const struct weir__row_plan *plan = pipe->prepared[i];
        for (uint32_t l = 0; l < weir__port_count(plan); l++) {
            const struct weir__port *port = plan->bound.ports[l];
            if (port == NULL) continue;
            expect_order(plan, port);
            rank->done += port->count;
        }
    }
    weir_pipe_destroy(pipe);
    return status;
}

/* Else a prediction over links queues what an engine sends otherwise. */
static void test_messages_go_in_the_order_that_is_simulated(void) {
    uint32_t messages = 0;
    for (uint32_t number = 0; number < RUNS && !test_has_failed(); number++) {
        uint32_t count = engine_ranks_random(&all, number % 2 == 0 ? 2 : 4);
        engine_ranks_open(&all, count);
        EXPECT_STATUS(engine_ranks_run(&all, count, look_at_messages), WEIR_OK);
        for (uint32_t r = 0; r < count; r++) messages += all.ranks[r].done;
        engine_ranks_close(&all, count);
        if (test_has_failed()) engine_random_describe(&all.run, number);
    }
    EXPECT(messages > RUNS);
}

/* ---- directed ---- */

/* Two replicas of so many stages and ranks. */
static uint32_t choose_pair(uint32_t stages) {
    engine_ranks_choose(&all, stages, 2);
    return 2 * stages;
}

/* A use's gradient is sent to the owner of the sum when all replicas' parts of it are in. */
static void test_ties_over_ranks_of_replicas_give_the_reference_bits(void) {
    for (uint32_t k = 0; k < 12 && !test_has_failed(); k++) {
        uint32_t count = choose_pair(3);
        for (uint32_t s = 0; s < 3; s++) all.model.stages[s].parameters = 20;
        engine_tie(&all.model, 0, "both", 4, 8);
        engine_tie(&all.model, 2, "both", 2, 8);
        if (k % 3 == 0) all.run.options.schedule = "gpipe";
        if (k % 3 == 1) all.run.options.workers = 2; /* and one worker has both, or not */
        if (k % 3 == 1) count = 4;
        if (k % 2 == 0) all.run.options.clip_norm = 0.01;
        engine_ranks_open(&all, count);
        if (EXPECT_STATUS(engine_ranks_run(&all, count, engine_rank_train), WEIR_OK))
            engine_ranks_compare(&all, count);
        engine_ranks_close(&all, count);
    }
}

/* ---- failures ---- */

static void expect_one_good_step(uint32_t count) {
    static struct engine_reference reference;
    static struct engine_order order;
    struct engine_reference_options own = {.chunks = 8, .order = &order, .groups = 4};
    struct engine_batch expected;
    (void)engine_options(&all.model);
    engine_order_of(&order, "1f1b", 8);
    engine_reference_init(&reference, &all.model);
    engine_batch_init(&expected, &all.model, 16, 1);
    struct weir_step step = engine_step(&expected);
    engine_reference_step(&reference, &expected, &step, &own);
    engine_ranks_expect_state(&all, &reference, count);
    engine_batch_clean_up(&expected);
    engine_reference_clean_up(&reference);
}

static void expect_told(uint32_t rank, enum weir_phase phase) {
    for (uint32_t r = 0; r < 4; r++) {
        EXPECT_STATUS(all.ranks[r].statuses[0], 77);
        EXPECT_EQ_INT(all.ranks[r].results[0].error.stage, (int)(rank % 2));
        EXPECT_EQ_INT(all.ranks[r].results[0].error.phase, (int)phase);
        EXPECT(!all.ranks[r].results[0].updated);
        EXPECT_STATUS(all.ranks[r].statuses[1], WEIR_OK);
    }
    expect_one_good_step(4);
}

static void test_a_failure_on_one_replica_is_told_on_all_and_changes_nothing(void) {
    static const enum weir_phase phases[] = {WEIR_FORWARD, WEIR_BACKWARD, WEIR_NORM};
    for (uint32_t i = 0; i < 12 && !test_has_failed(); i++) {
        uint32_t rank = i % 4;
        enum weir_phase phase = phases[i / 4];
        engine_ranks_open(&all, choose_pair(2));
        engine_rank_fails(&all.ranks[rank], phase, rank % 2,
                          phase == WEIR_NORM ? 0
                          : rank < 2         ? 2
                                             : 6);
        EXPECT_STATUS(engine_ranks_run(&all, 4, engine_rank_repeat), WEIR_OK);
        expect_told(rank, phase);
        if (phase != WEIR_NORM)
            EXPECT_EQ_INT(all.ranks[3 - rank].results[0].error.micro_batch, rank < 2 ? 2 : 6);
        engine_ranks_close(&all, 4);
    }
}

static void test_a_combine_that_fails_on_one_replica_is_told_on_all(void) {
    engine_ranks_open(&all, choose_pair(2));
    all.ranks[2].model.combine_status = 77;
    EXPECT_STATUS(engine_ranks_run(&all, 4, engine_rank_repeat), WEIR_OK);
    expect_told(2, WEIR_BACKWARD);
    engine_ranks_close(&all, 4);
}

static void test_an_update_that_fails_tears_all_replicas(void) {
    engine_ranks_open(&all, choose_pair(2));
    engine_rank_fails(&all.ranks[3], WEIR_UPDATE, 1, 0);
    EXPECT_STATUS(engine_ranks_run(&all, 4, engine_rank_repeat), WEIR_OK);
    for (uint32_t r = 0; r < 4; r++) {
        EXPECT_STATUS(all.ranks[r].statuses[0], WEIR_ERR_TORN);
        EXPECT_STATUS(all.ranks[r].statuses[1], WEIR_OK);
    }
    engine_ranks_close(&all, 4);
}

static void test_a_world_that_fails_at_any_call_ends_every_replica(void) {
    bool fired = true;
    for (uint32_t k = 1; fired && !test_has_failed(); k += 1 + k / 6) {
        engine_ranks_open(&all, choose_pair(2));
        all.how.fail_rank = k % 4;
        all.how.fail_call = k;
        int status = engine_ranks_run(&all, 4, engine_rank_train);
        fired = all.fired;
        bool torn = status == WEIR_ERR_TORN;
        if (!torn) EXPECT_STATUS(status, fired ? WEIR_ERR_PEER : WEIR_OK);
        EXPECT(fired || !torn);
        engine_ranks_close(&all, 4);
    }
}

/* ---- few rows ---- */

/* Three rows are three micro-batches for two replicas; one row is all replicas'. */
static int infer_few(void *context, struct weir_world *world) {
    struct engine_rank *rank = &((struct engine_rank *)context)[world->rank];
    struct weir_pipe *pipe = NULL;
    int status = engine_rank_build(rank, world, &pipe);
    for (uint32_t k = 0; k < 2 && status == WEIR_OK; k++) {
        struct weir_step step = engine_step(&rank->seen[k]);
        step.rows = k == 0 ? 3 : 1;
        status = weir_pipe_prepare_infer(pipe, step.rows, NULL);
        if (status == WEIR_OK) status = weir_pipe_infer(pipe, &step, &rank->results[k]);
    }
    if (status == WEIR_OK) EXPECT_STATUS(weir_pipe_prepare(pipe, 3, NULL), WEIR_ERR_CONFIG);
    weir_pipe_destroy(pipe);
    return status;
}

static void test_few_rows_are_inferred_by_replicas_with_the_same_bits(void) {
    engine_ranks_open(&all, choose_pair(2));
    EXPECT_STATUS(engine_ranks_run(&all, 4, infer_few), WEIR_OK);
    for (uint32_t k = 0; k < 2; k++) {
        static struct engine_reference reference;
        struct engine_reference_options own = {.chunks = 8, .infer = true};
        struct engine_batch expected;
        engine_reference_init(&reference, &all.model);
        engine_batch_init(&expected, &all.model, 16, 1 + k);
        struct weir_step step = engine_step(&expected);
        step.rows = k == 0 ? 3 : 1;
        engine_reference_step(&reference, &expected, &step, &own);
        for (uint32_t r = 0; r < 4; r++) {
            EXPECT_EQ_BYTES(&all.ranks[r].results[k].loss, &reference.loss, sizeof(double));
            engine_expect_batches(&all.ranks[r].seen[k], &expected, false);
        }
        engine_batch_clean_up(&expected);
        engine_reference_clean_up(&reference);
    }
    engine_ranks_close(&all, 4);
}

/* ---- memory ---- */

static int compare_plan(void *context, struct weir_world *world) {
    struct engine_rank *rank = &((struct engine_rank *)context)[world->rank];
    struct weir_pipe *pipe = NULL;
    struct weir_plan *alone = NULL;
    int status = engine_rank_build(rank, world, &pipe);
    if (status != WEIR_OK) return status;
    struct weir_pipe_options options = rank->options;
    options.world = NULL; /* any replica's, before there are ranks */
    if (EXPECT_STATUS(weir_plan_new(&options, NULL, &alone), WEIR_OK))
        for (uint32_t w = 0; w < 2; w++) {
            const struct weir_device_plan *device = &weir_pipe_plan(pipe)->devices[w];
            EXPECT_EQ_UINT(device->total, alone->devices[w].total);
            EXPECT_EQ_UINT(device->gradients, alone->devices[w].gradients);
        }
    weir_plan_destroy(alone);
    weir_pipe_destroy(pipe);
    return WEIR_OK;
}

/* A replica's part of the own slice arrives from each of the others. */
static void test_the_plan_counts_what_arrives(void) {
    uint64_t numbers = 6 * WEIR_SLICE_BLOCK / sizeof(double);
    choose_pair(2);
    all.model.sliced = false;
    all.model.stages[0].parameters = all.model.stages[1].parameters = (uint32_t)numbers;
    all.run.options.gradient_groups = 2;
    for (uint32_t s = 0; s < 2; s++) all.model.stages[s].fixed = true;
    engine_ranks_open(&all, 4);
    for (uint32_t r = 0; r < 4; r++)
        for (uint32_t k = 0; k < ENGINE_STEPS; k++) all.ranks[r].seen[k].rows = 16;
    EXPECT_STATUS(engine_ranks_run(&all, 4, compare_plan), WEIR_OK);
    struct weir_plan *plan = NULL;
    struct weir_pipe_options options = all.ranks[0].options;
    options.world = NULL;
    if (EXPECT_STATUS(weir_plan_new(&options, NULL, &plan), WEIR_OK))
        EXPECT_EQ_UINT(plan->devices[0].gradients, (6 + 3) * WEIR_SLICE_BLOCK);
    weir_plan_destroy(plan);
    engine_ranks_close(&all, 4);
}

/* ---- what cannot be ---- */

static void expect_all_refuse(uint32_t count, const char *part) {
    EXPECT_STATUS(engine_ranks_run(&all, count, engine_rank_try), WEIR_OK);
    for (uint32_t r = 0; r < count; r++) {
        EXPECT(all.ranks[r].built != WEIR_OK);
        EXPECT_CONTAINS(all.ranks[r].said, part);
    }
    engine_ranks_close(&all, count);
}

static void test_replicas_that_cannot_be_are_refused(void) {
    choose_pair(2);
    engine_expect_refused(&all.run.options, WEIR_ERR_CONFIG, "mpiexec -n 2");
    all.run.options.replicas = 8;
    engine_expect_refused(&all.run.options, WEIR_ERR_CONFIG, "8 replicas do not divide 4 gradient");
    choose_pair(2);
    all.run.options.infer_only = true;
    engine_expect_refused(&all.run.options, WEIR_ERR_CONFIG, "only infers");
    choose_pair(2);
    engine_ranks_open(&all, 3);
    expect_all_refuse(3, "and there are 3: start 4");
    choose_pair(2);
    engine_ranks_open(&all, 6);
    expect_all_refuse(6, "2 workers for 3 ranks of each replica");
}

static void test_ranks_that_differ_in_groups_are_refused(void) {
    choose_pair(2);
    engine_ranks_open(&all, 4);
    all.ranks[3].options.gradient_groups = 2;
    expect_all_refuse(4, "different pipes");
    choose_pair(2);
    engine_ranks_open(&all, 4);
    all.ranks[3].options.checkpoint = WEIR_CHECKPOINT_ALWAYS; /* in one replica's plan alone */
    EXPECT_STATUS(engine_ranks_run(&all, 4, engine_rank_try), WEIR_OK);
    for (uint32_t r = 0; r < 4; r++) EXPECT(all.ranks[r].built != WEIR_OK);
    EXPECT_CONTAINS(all.ranks[2].said, "different pipes");
    engine_ranks_close(&all, 4);
}

WEIR_TEST_SUITE(replicas, TEST(any_number_of_replicas_gives_the_reference_bits),
                TEST(messages_go_in_the_order_that_is_simulated),
                TEST(ties_over_ranks_of_replicas_give_the_reference_bits),
                TEST(a_failure_on_one_replica_is_told_on_all_and_changes_nothing),
                TEST(a_combine_that_fails_on_one_replica_is_told_on_all),
                TEST(an_update_that_fails_tears_all_replicas),
                TEST(a_world_that_fails_at_any_call_ends_every_replica),
                TEST(few_rows_are_inferred_by_replicas_with_the_same_bits),
                TEST(the_plan_counts_what_arrives), TEST(replicas_that_cannot_be_are_refused),
                TEST(ranks_that_differ_in_groups_are_refused))
