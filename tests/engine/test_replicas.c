/* SPDX-License-Identifier: MIT */
/*
 * Goal: how many replicas share a mini-batch changes no bit, each has its slices of the optimizer's
 * state, and what one suffers all learn. Method: random models, tables, checkpoints and groups on
 * replicas of one to three ranks that are threads, with messages as late and in as hostile an order
 * as MPI allows; what all end with is compared with the reference, bit for bit. Messages go in the
 * order that the simulator gives them (weir_predict.h).
 */
#include "engine/engine_ranks.h"
#include "engine/threads_world.h"
#include "pipe/run/ranks.h"

#include <stdio.h>
#include <string.h>

enum { RUNS = 60, RANKS_MAX = 8, STEPS = 6, INFERRED = 3, KEPT = 4, STATE_MAX = 64 };

struct rank {
    struct engine_model model;
    struct weir_pipe_options options;
    struct weir_step_result results[STEPS];
    int statuses[STEPS];
    uint32_t done;
    struct engine_batch seen[STEPS];
    double parameters[ENGINE_STAGES_MAX][STATE_MAX], optimizer[ENGINE_STAGES_MAX][STATE_MAX];
    bool has[ENGINE_STAGES_MAX];
    char said[256];
};

static struct engine_model model;
static struct engine_random run;
static struct rank ranks[RANKS_MAX];
static struct threads_options how;

/* ---- on a rank ---- */

/* One of them is two parts of an update where sums last, one keeps its gradients. */
static struct weir_step step_number(const struct weir_pipe_options *options,
                                    const struct engine_batch *batch, uint32_t k) {
    struct weir_step step = engine_step(batch);
    step.mini_batch = step.update = k;
    step.no_update = k == KEPT;
    if (options->accumulates) step.accumulate_last = k != 0, step.accumulate_first = k != 1;
    return step;
}

static int look(struct rank *rank, struct weir_pipe *pipe) {
    for (uint32_t s = 0; s < rank->model.stage_count; s++) {
        struct weir_attachment at;
        size_t bytes = rank->model.stages[s].parameters * sizeof(double);
        int status = weir_pipe_attachment(pipe, s, &at);
        if (status != WEIR_OK) return status;
        rank->has[s] = at.parameters != NULL;
        if (bytes > 0 && rank->has[s]) memcpy(rank->parameters[s], at.parameters, bytes);
        if (bytes > 0 && at.optimizer != NULL) memcpy(rank->optimizer[s], at.optimizer, bytes);
    }
    return WEIR_OK;
}

/* Whatever replica they were made on. */
static int read_gradients(struct rank *rank, struct weir_pipe *pipe) {
    for (uint32_t s = 0; s < rank->model.stage_count; s++) {
        struct weir_attachment at;
        size_t bytes = rank->model.stages[s].parameters * sizeof(double);
        double gathered[STATE_MAX];
        int status = weir_pipe_attachment(pipe, s, &at);
        if (status != WEIR_OK || bytes == 0 || rank->model.stages[s].frozen) continue;
        status = weir_pipe_read(pipe, s, gathered, at.gradients, bytes);
        if (status != WEIR_OK) return status;
        if (at.gradients != NULL) EXPECT_EQ_BYTES(at.gradients, gathered, bytes);
    }
    return WEIR_OK;
}

static int run_steps(struct rank *rank, struct weir_pipe *pipe) {
    int status = WEIR_OK;
    for (uint32_t k = 0; k < STEPS && status == WEIR_OK; k++) {
        struct weir_step step = step_number(&rank->options, &rank->seen[k], k);
        status = k == INFERRED ? weir_pipe_infer(pipe, &step, &rank->results[k])
                               : weir_pipe_step(pipe, &step, &rank->results[k]);
        rank->statuses[k] = status;
        rank->done = k + 1;
        if (status == WEIR_OK && step.no_update) status = read_gradients(rank, pipe);
    }
    return status == WEIR_OK ? look(rank, pipe) : status;
}

static int build(struct rank *rank, struct weir_world *world, struct weir_pipe **pipe) {
    struct weir_faults faults = WEIR_FAULTS_INIT;
    faults.allocator = test_allocator();
    rank->options.world = world;
    int status = weir_pipe_new(&rank->options, &faults, pipe);
    snprintf(rank->said, sizeof rank->said, "%s", faults.kept > 0 ? faults.lines[0] : "");
    weir_faults_clean_up(&faults);
    return status;
}

static int train(void *context, struct weir_world *world) {
    struct rank *rank = &((struct rank *)context)[world->rank];
    struct weir_pipe *pipe = NULL;
    int status = build(rank, world, &pipe);
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
        engine_rank_open(&run, &model, &rank->model, &rank->options, rank->seen, STEPS);
    }
}

static void close_ranks(uint32_t count) {
    for (uint32_t r = 0; r < count; r++) {
        engine_expect_clean(&ranks[r].model);
        engine_rank_close(ranks[r].seen, STEPS);
    }
}

static int run_ranks(uint32_t count, threads_world_fn *function) {
    how.ranks = count;
    return threads_world_once(&how, function, ranks);
}

/* Each number of the optimizer's state is on one replica. */
static bool expect_state(const struct engine_reference *reference, uint32_t count) {
    bool same = true;
    for (uint32_t s = 0; same && s < model.stage_count; s++) {
        uint32_t owned[STATE_MAX] = {0}, numbers = model.stages[s].parameters;
        bool learns = !model.stages[s].frozen && !model.stages[s].fixed;
        for (uint32_t r = 0; same && r < count; r++) {
            if (!ranks[r].has[s]) continue;
            same = EXPECT_EQ_BYTES(ranks[r].parameters[s], reference->parameters[s],
                                   numbers * sizeof(double));
            for (uint32_t i = 0; same && learns && i < numbers; i++) {
                if (!engine_owns(&ranks[r].model.stages[s], i)) continue;
                same = EXPECT_EQ_BYTES(&ranks[r].optimizer[s][i], &reference->optimizer[s][i],
                                       sizeof(double));
                owned[i]++;
            }
        }
        for (uint32_t i = 0; same && learns && i < numbers; i++) same = EXPECT_EQ_UINT(owned[i], 1);
    }
    return same;
}

static bool compare(uint32_t count) {
    static struct engine_reference reference;
    static struct engine_order order;
    struct engine_reference_options own = {.chunks = run.options.chunks,
                                           .order = &order,
                                           .clip_norm = run.options.clip_norm,
                                           .groups = run.options.gradient_groups};
    bool same = true;
    (void)engine_options(&model);
    engine_reference_init(&reference, &model);
    for (uint32_t k = 0; same && k < STEPS; k++) {
        struct engine_batch expected;
        engine_batch_init(&expected, &model, run.options.rows, 1 + k);
        struct weir_step step = step_number(&run.options, &expected, k);
        own.infer = k == INFERRED;
        engine_order_of(&order, run.options.schedule,
                        engine_chunk_count(run.options.rows, run.options.chunks));
        engine_reference_step(&reference, &expected, &step, &own);
        for (uint32_t r = 0; same && r < count; r++)
            same = engine_expect_result(&ranks[r].results[k], &reference) &&
                   engine_expect_batches(&ranks[r].seen[k], &expected, k != INFERRED);
        engine_batch_clean_up(&expected);
    }
    same = same && expect_state(&reference, count);
    engine_reference_clean_up(&reference);
    return same;
}

/* Whether the schedule can be had for a replica's micro-batches, the last one's too. */
static bool accepts(uint32_t replicas) {
    struct weir_table_options want = WEIR_TABLE_OPTIONS_INIT;
    uint32_t m = engine_chunk_count(run.options.rows, run.options.chunks);
    uint32_t groups = run.options.gradient_groups;
    uint32_t most = (m + groups - 1) / groups * (groups / replicas);
    uint32_t counts[] = {most, m - most * (replicas - 1)};
    bool all = true;
    want.schedule = run.options.schedule;
    want.stages = run.options.stage_count;
    want.workers = run.options.workers;
    for (int i = 0; i < 2; i++) {
        struct weir_table *table = NULL;
        want.micro_batches = counts[i];
        all = all && weir_table_new(&want, NULL, &table) == WEIR_OK;
        weir_table_destroy(table);
    }
    return all;
}

/* Some random run, replicas and ranks of each that can be. */
static uint32_t choose(uint32_t replicas) {
    uint32_t m;
    do {
        engine_random_choose(&run, &model);
        model.sliced = true;
        run.options.rows += 8;
        run.options.chunks += replicas;
        run.options.gradient_groups = replicas << test_random_below(3);
        run.options.accumulates = test_random_below(2) == 0;
        m = engine_chunk_count(run.options.rows, run.options.chunks);
    } while (run.has_table || run.options.debug_inputs ||
             !engine_fills_groups(m, run.options.gradient_groups) || !accepts(replicas));
    run.options.replicas = replicas;
    how = (struct threads_options){.seed = test_random_u64(),
                                   .delay = (uint32_t)test_random_below(40)};
    uint32_t most =
        run.options.workers < RANKS_MAX / replicas ? run.options.workers : RANKS_MAX / replicas;
    return replicas * (1 + (uint32_t)test_random_below(most < 3 ? most : 3));
}

static void run_one(uint32_t number, uint32_t replicas) {
    uint32_t count = choose(replicas);
    open_ranks(count);
    int status = run_ranks(count, train);
    for (uint32_t r = 0; r < count && status != WEIR_OK; r++)
        TEST_FAIL("rank %u: %s %s", r, ranks[r].said,
                  ranks[r].results[ranks[r].done > 0 ? ranks[r].done - 1 : 0].error.message);
    if (EXPECT_STATUS(status, WEIR_OK)) compare(count);
    close_ranks(count);
    if (!test_has_failed()) return;
    printf("%u replicas of %u ranks, %u groups%s, seed %llu, delay %u\n", replicas,
           count / replicas, run.options.gradient_groups,
           run.options.accumulates ? ", accumulated" : "", (unsigned long long)how.seed, how.delay);
    engine_random_describe(&run, number);
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
    bool waits = run.options.recompute_late && weir__reads(reader->kind, WEIR__OUTPUT_GRADS);
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
    struct rank *rank = &((struct rank *)context)[world->rank];
    struct weir_pipe *pipe = NULL;
    int status = build(rank, world, &pipe);
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
        uint32_t count = choose(number % 2 == 0 ? 2 : 4);
        open_ranks(count);
        EXPECT_STATUS(run_ranks(count, look_at_messages), WEIR_OK);
        for (uint32_t r = 0; r < count; r++) messages += ranks[r].done;
        close_ranks(count);
        if (test_has_failed()) engine_random_describe(&run, number);
    }
    EXPECT(messages > RUNS);
}

/* ---- directed ---- */

/* So many stages and workers, each on a rank of its own in each of two replicas. */
static uint32_t choose_pair(uint32_t stages) {
    engine_model_init(&model, stages);
    model.sliced = true;
    memset(&run, 0, sizeof run);
    run.options = engine_options(&model);
    run.options.rows = 16;
    run.options.chunks = 8;
    run.options.workers = stages;
    run.options.schedule = "1f1b";
    run.options.checkpoint = WEIR_CHECKPOINT_NEVER;
    run.options.replicas = 2;
    run.options.gradient_groups = 4;
    how = (struct threads_options){.seed = test_random_u64(), .delay = 30};
    return 2 * stages;
}

/* A use's gradient is sent to the owner of the sum when all replicas' parts of it are in. */
static void test_ties_over_ranks_of_replicas_give_the_reference_bits(void) {
    for (uint32_t k = 0; k < 12 && !test_has_failed(); k++) {
        uint32_t count = choose_pair(3);
        for (uint32_t s = 0; s < 3; s++) model.stages[s].parameters = 20;
        engine_tie(&model, 0, "both", 4, 8);
        engine_tie(&model, 2, "both", 2, 8);
        if (k % 3 == 0) run.options.schedule = "gpipe";
        if (k % 3 == 1) run.options.workers = 2; /* and one worker has both, or not */
        if (k % 3 == 1) count = 4;
        if (k % 2 == 0) run.options.clip_norm = 0.01;
        open_ranks(count);
        if (EXPECT_STATUS(run_ranks(count, train), WEIR_OK)) compare(count);
        close_ranks(count);
    }
}

/* ---- failures ---- */

static void fail_on_rank(uint32_t rank, enum weir_phase phase, uint32_t micro_batch) {
    ranks[rank].model.failure.armed = true;
    ranks[rank].model.failure.phase = phase;
    ranks[rank].model.failure.stage = rank % 2;
    ranks[rank].model.failure.micro_batch = micro_batch;
    ranks[rank].model.failure.status = 77;
}

/* One step that fails on a rank, and then the same again. */
static int fail_and_repeat(void *context, struct weir_world *world) {
    struct rank *rank = &((struct rank *)context)[world->rank];
    struct weir_pipe *pipe = NULL;
    int status = build(rank, world, &pipe);
    if (status != WEIR_OK) return status;
    for (uint32_t k = 0; k < 2; k++) {
        struct weir_step step = engine_step(&rank->seen[0]);
        rank->statuses[k] = weir_pipe_step(pipe, &step, &rank->results[k]);
        rank->model.failure.armed = false;
        rank->model.combine_status = 0;
    }
    status = look(rank, pipe);
    weir_pipe_destroy(pipe);
    return status;
}

static void expect_one_good_step(uint32_t count) {
    static struct engine_reference reference;
    static struct engine_order order;
    struct engine_reference_options own = {.chunks = 8, .order = &order, .groups = 4};
    struct engine_batch expected;
    (void)engine_options(&model);
    engine_order_of(&order, "1f1b", 8);
    engine_reference_init(&reference, &model);
    engine_batch_init(&expected, &model, 16, 1);
    struct weir_step step = engine_step(&expected);
    engine_reference_step(&reference, &expected, &step, &own);
    expect_state(&reference, count);
    engine_batch_clean_up(&expected);
    engine_reference_clean_up(&reference);
}

static void expect_told(uint32_t rank, enum weir_phase phase) {
    for (uint32_t r = 0; r < 4; r++) {
        EXPECT_STATUS(ranks[r].statuses[0], 77);
        EXPECT_EQ_INT(ranks[r].results[0].error.stage, (int)(rank % 2));
        EXPECT_EQ_INT(ranks[r].results[0].error.phase, (int)phase);
        EXPECT(!ranks[r].results[0].updated);
        EXPECT_STATUS(ranks[r].statuses[1], WEIR_OK);
    }
    expect_one_good_step(4);
}

static void test_a_failure_on_one_replica_is_told_on_all_and_changes_nothing(void) {
    static const enum weir_phase phases[] = {WEIR_FORWARD, WEIR_BACKWARD, WEIR_NORM};
    for (uint32_t i = 0; i < 12 && !test_has_failed(); i++) {
        uint32_t rank = i % 4;
        enum weir_phase phase = phases[i / 4];
        open_ranks(choose_pair(2));
        fail_on_rank(rank, phase, phase == WEIR_NORM ? 0 : rank < 2 ? 2 : 6);
        EXPECT_STATUS(run_ranks(4, fail_and_repeat), WEIR_OK);
        expect_told(rank, phase);
        if (phase != WEIR_NORM)
            EXPECT_EQ_INT(ranks[3 - rank].results[0].error.micro_batch, rank < 2 ? 2 : 6);
        close_ranks(4);
    }
}

static void test_a_combine_that_fails_on_one_replica_is_told_on_all(void) {
    open_ranks(choose_pair(2));
    ranks[2].model.combine_status = 77;
    EXPECT_STATUS(run_ranks(4, fail_and_repeat), WEIR_OK);
    expect_told(2, WEIR_BACKWARD);
    close_ranks(4);
}

static void test_an_update_that_fails_tears_all_replicas(void) {
    open_ranks(choose_pair(2));
    fail_on_rank(3, WEIR_UPDATE, 0);
    EXPECT_STATUS(run_ranks(4, fail_and_repeat), WEIR_OK);
    for (uint32_t r = 0; r < 4; r++) {
        EXPECT_STATUS(ranks[r].statuses[0], WEIR_ERR_TORN);
        EXPECT_STATUS(ranks[r].statuses[1], WEIR_OK);
    }
    close_ranks(4);
}

static void test_a_world_that_fails_at_any_call_ends_every_replica(void) {
    bool fired = true;
    for (uint32_t k = 1; fired && !test_has_failed(); k += 1 + k / 6) {
        open_ranks(choose_pair(2));
        how.fail_rank = k % 4;
        how.fail_call = k;
        how.ranks = 4;
        struct threads_world *world = threads_world_new(&how);
        int status = threads_world_run(world, train, ranks);
        fired = threads_world_fired(world);
        bool torn = status == WEIR_ERR_TORN;
        if (!torn) EXPECT_STATUS(status, fired ? WEIR_ERR_PEER : WEIR_OK);
        EXPECT(fired || !torn);
        threads_world_destroy(world);
        close_ranks(4);
    }
}

/* ---- few rows ---- */

/* Three rows are three micro-batches for two replicas; one row is all replicas'. */
static int infer_few(void *context, struct weir_world *world) {
    struct rank *rank = &((struct rank *)context)[world->rank];
    struct weir_pipe *pipe = NULL;
    int status = build(rank, world, &pipe);
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
    open_ranks(choose_pair(2));
    EXPECT_STATUS(run_ranks(4, infer_few), WEIR_OK);
    for (uint32_t k = 0; k < 2; k++) {
        static struct engine_reference reference;
        struct engine_reference_options own = {.chunks = 8, .infer = true};
        struct engine_batch expected;
        engine_reference_init(&reference, &model);
        engine_batch_init(&expected, &model, 16, 1 + k);
        struct weir_step step = engine_step(&expected);
        step.rows = k == 0 ? 3 : 1;
        engine_reference_step(&reference, &expected, &step, &own);
        for (uint32_t r = 0; r < 4; r++) {
            EXPECT_EQ_BYTES(&ranks[r].results[k].loss, &reference.loss, sizeof(double));
            engine_expect_batches(&ranks[r].seen[k], &expected, false);
        }
        engine_batch_clean_up(&expected);
        engine_reference_clean_up(&reference);
    }
    close_ranks(4);
}

/* ---- memory ---- */

static int compare_plan(void *context, struct weir_world *world) {
    struct rank *rank = &((struct rank *)context)[world->rank];
    struct weir_pipe *pipe = NULL;
    struct weir_plan *alone = NULL;
    int status = build(rank, world, &pipe);
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
    model.sliced = false;
    model.stages[0].parameters = model.stages[1].parameters = (uint32_t)numbers;
    run.options.gradient_groups = 2;
    for (uint32_t s = 0; s < 2; s++) model.stages[s].fixed = true;
    open_ranks(4);
    for (uint32_t r = 0; r < 4; r++)
        for (uint32_t k = 0; k < STEPS; k++) ranks[r].seen[k].rows = 16;
    EXPECT_STATUS(run_ranks(4, compare_plan), WEIR_OK);
    struct weir_plan *plan = NULL;
    struct weir_pipe_options options = ranks[0].options;
    options.world = NULL;
    if (EXPECT_STATUS(weir_plan_new(&options, NULL, &plan), WEIR_OK))
        EXPECT_EQ_UINT(plan->devices[0].gradients, (6 + 3) * WEIR_SLICE_BLOCK);
    weir_plan_destroy(plan);
    close_ranks(4);
}

/* ---- what cannot be ---- */

static int try_to_build(void *context, struct weir_world *world) {
    struct rank *rank = &((struct rank *)context)[world->rank];
    struct weir_pipe *pipe = NULL;
    rank->statuses[0] = build(rank, world, &pipe);
    weir_pipe_destroy(pipe);
    return WEIR_OK;
}

static void expect_all_refuse(uint32_t count, const char *part) {
    EXPECT_STATUS(run_ranks(count, try_to_build), WEIR_OK);
    for (uint32_t r = 0; r < count; r++) {
        EXPECT(ranks[r].statuses[0] != WEIR_OK);
        EXPECT_CONTAINS(ranks[r].said, part);
    }
    close_ranks(count);
}

static void test_replicas_that_cannot_be_are_refused(void) {
    choose_pair(2);
    engine_expect_refused(&run.options, WEIR_ERR_CONFIG, "mpiexec -n 2");
    run.options.replicas = 8;
    engine_expect_refused(&run.options, WEIR_ERR_CONFIG, "8 replicas do not divide 4 gradient");
    choose_pair(2);
    run.options.infer_only = true;
    engine_expect_refused(&run.options, WEIR_ERR_CONFIG, "only infers");
    choose_pair(2);
    open_ranks(3);
    expect_all_refuse(3, "and there are 3: start 4");
    choose_pair(2);
    open_ranks(6);
    expect_all_refuse(6, "2 workers for 3 ranks of each replica");
}

static void test_ranks_that_differ_in_groups_are_refused(void) {
    choose_pair(2);
    open_ranks(4);
    ranks[3].options.gradient_groups = 2;
    expect_all_refuse(4, "different pipes");
    choose_pair(2);
    open_ranks(4);
    ranks[3].options.checkpoint = WEIR_CHECKPOINT_ALWAYS; /* in one replica's plan alone */
    EXPECT_STATUS(run_ranks(4, try_to_build), WEIR_OK);
    for (uint32_t r = 0; r < 4; r++) EXPECT(ranks[r].statuses[0] != WEIR_OK);
    EXPECT_CONTAINS(ranks[2].said, "different pipes");
    close_ranks(4);
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
