/* SPDX-License-Identifier: MIT */
/*
 * Goal: nobody waits for memory that a little more of would do without. Method: what dependencies
 * alone tell a worker of the others is found a second time, by sets instead of clocks; blocks that
 * others read are held until then.
 */
#include "engine/engine_stages.h"

#include "pipe/lower/prepared.h"

#include <string.h>

enum { ACTIONS_MAX = 1024, WORDS = ACTIONS_MAX / 64 };

static struct engine_model model;
static struct engine_random run;
static struct weir__setup setup;
static struct weir__row_plan prepared;

/* told[a]: actions that dependencies alone say have ended when a starts. */
static uint64_t told[ACTIONS_MAX][WORDS];

static bool tell(uint32_t a, uint32_t from) {
    bool more = !(told[a][from / 64] >> from % 64 & 1);
    told[a][from / 64] |= UINT64_C(1) << from % 64;
    for (uint32_t w = 0; w < WORDS; w++) {
        more |= (told[from][w] & ~told[a][w]) != 0;
        told[a][w] |= told[from][w];
    }
    return more;
}

static void find_told(void) {
    const struct weir_table *table = prepared.table;
    memset(told, 0, sizeof told);
    for (bool more = true; more;) {
        more = false;
        for (uint32_t a = 0; a < table->action_count; a++) {
            uint32_t worker = weir__table_worker_of(table, a);
            if (a > table->lines[worker]) more |= tell(a, a - 1);
            for (uint32_t e = prepared.deps.begin[a]; e < prepared.deps.begin[a + 1]; e++)
                more |= tell(a, prepared.deps.edges[e].from);
        }
    }
}

/* When a worker is told of the end of another's action, by an action of a micro-batch, and if that
 * is a forward within four forwards; else half a forward behind it. */
static double told_at(uint32_t worker, uint32_t action) {
    const struct weir_table *table = prepared.table;
    bool forward = table->actions[action].kind == WEIR_KIND_F;
    for (uint32_t a = table->lines[worker]; a < table->lines[worker + 1]; a++) {
        enum weir_kind kind = (enum weir_kind)table->actions[a].kind;
        if (kind == WEIR_KIND_N || kind == WEIR_KIND_U) break;
        if (forward && prepared.start[a] > prepared.end[action] + 4.0) break;
        if (told[a][action / 64] >> action % 64 & 1) return prepared.start[a];
    }
    return prepared.end[action] + 0.5;
}

/* Blocks that another worker reads are held until theirs is told, all of a worker's or none. Counts
 * workers of each kind. */
static void expect_ends(uint32_t count[2]) {
    const struct weir__memory *memory = &prepared.memory;
    int held[ACTIONS_MAX] = {0}; /* by worker: 1 if some are, 2 if some are not */
    find_told();
    for (uint32_t b = 0; b < memory->block_count; b++) {
        const struct weir__block *block = &memory->blocks[b];
        double end = 0.0, late = 0.0;
        for (uint32_t u = block->uses; u != WEIR__NO_BLOCK; u = memory->uses[u].next) {
            uint32_t action = memory->uses[u].action;
            bool foreign = weir__table_worker_of(prepared.table, action) != block->worker;
            double own = foreign ? told_at(block->worker, action) : 0.0;
            if (prepared.end[action] > end) end = prepared.end[action];
            if (own > late) late = own;
        }
        if (block->uses == WEIR__NO_BLOCK) continue;
        if (late < end) late = end;
        EXPECT(block->end == late || block->end == end);
        if (late > end) held[block->worker] |= block->end == late ? 1 : 2;
        EXPECT(held[block->worker] < 3);
    }
    for (uint32_t w = 0; w < prepared.table->worker_count; w++)
        if (held[w] > 0) count[held[w] - 1]++;
}

static void look_at(bool infer, uint32_t count[2]) {
    CHECK_OK(weir__setup_init(&setup, &run.options, NULL));
    if (EXPECT_STATUS(weir__prepared_init(&prepared, &setup, run.options.rows, infer, NULL),
                      WEIR_OK)) {
        CHECK(prepared.table->action_count <= ACTIONS_MAX);
        expect_ends(count);
        weir__prepared_clean_up(&prepared);
    }
    weir__setup_clean_up(&setup);
}

static void test_what_others_read_is_held_until_that_is_known(void) {
    uint32_t count[2] = {0};
    for (uint32_t number = 0; number < 100 && !test_has_failed(); number++) {
        engine_random_choose(&run, &model);
        look_at(number % 4 == 0, count);
        if (test_has_failed()) engine_random_describe(&run, number);
    }
    EXPECT(count[0] > count[1]);
}

static void expect_no_memory_waits(const char *schedule) {
    engine_model_init(&model, 3);
    run.options = engine_options(&model);
    run.options.schedule = schedule, run.options.workers = 2, run.options.chunks = 4;
    run.options.checkpoint = WEIR_CHECKPOINT_ALWAYS;
    CHECK_OK(weir__setup_init(&setup, &run.options, NULL));
    CHECK_OK(weir__prepared_init(&prepared, &setup, run.options.rows, false, NULL));
    for (uint32_t i = 0; i < prepared.wait_count; i++)
        EXPECT(prepared.waits[i].cause != WEIR__CAUSE_MEMORY);
    weir__prepared_clean_up(&prepared);
    weir__setup_clean_up(&setup);
}

/* Stages that take other times than a replay's would pay for each. */
static void test_three_stages_on_two_workers_wait_for_no_memory(void) {
    expect_no_memory_waits("zb-v");
    expect_no_memory_waits("1f1b");
}

WEIR_TEST_SUITE(memory_known, TEST(what_others_read_is_held_until_that_is_known),
                TEST(three_stages_on_two_workers_wait_for_no_memory))
