/* SPDX-License-Identifier: MIT */
/*
 * Goal: the validator's verdict is right for any table. Method: a second validator that counts and
 * then executes the table naively, action by action until nothing moves, from the definition of the
 * kinds written out by hand; random mutations of good tables under random flows; both must agree.
 * The derived dependencies must let the same tables run in the replay, and in no earlier order.
 */
#include "schedule/schedule_facts.h"

#include <stdio.h>
#include <string.h>

#define STAGES 4
#define MICRO_BATCHES 6
#define ACTIONS 160

/** A table that can be edited. */
struct draft {
    uint32_t stages, workers, micro_batches;
    uint32_t length[STAGES];
    struct weir_action row[STAGES][ACTIONS];
};

/** A flow with the arrays that it points to. */
struct case_flow {
    struct weir__flow flow;
    bool borders[STAGES];
    uint32_t readers[3][STAGES];
    struct weir_skip_route skips[3];
};

/* ---- random cases ---- */

static void random_flow(struct case_flow *flow, uint32_t stages) {
    memset(flow, 0, sizeof *flow);
    flow->flow.stage_count = stages;
    flow->flow.recompute_late = test_random_below(3) == 0;
    if (test_random_below(3) == 0) {
        flow->flow.border_differentiable = flow->borders;
        for (uint32_t s = 0; s < STAGES; s++) flow->borders[s] = test_random_below(2) == 0;
    }
    flow->flow.skips = flow->skips;
    while (stages > 1 && flow->flow.skip_count < 3 && test_random_below(2) == 0) {
        uint32_t k = flow->flow.skip_count++;
        struct weir_skip_route *skip = &flow->skips[k];
        skip->source = (uint32_t)test_random_below(stages - 1);
        skip->readers = flow->readers[k];
        skip->differentiable = test_random_below(3) > 0;
        for (uint32_t s = skip->source + 1; s < stages; s++) {
            if (test_random_below(2) == 0 || (s + 1 == stages && skip->reader_count == 0)) {
                flow->readers[k][skip->reader_count++] = s;
            }
        }
    }
}

static void append(struct draft *draft, uint32_t worker, struct weir_action action) {
    if (draft->length[worker] < ACTIONS) {
        draft->row[worker][draft->length[worker]++] = action;
    }
}

static struct weir_table_options random_options(void) {
    struct weir_table_options options = WEIR_TABLE_OPTIONS_INIT;
    options.allocator = test_allocator();
    options.schedule = schedule_any();
    options.stages = 1 + (uint32_t)test_random_below(STAGES);
    options.workers = 1 + (uint32_t)test_random_below(options.stages);
    options.micro_batches = 1 + (uint32_t)test_random_below(MICRO_BATCHES);
    options.checkpoint = (enum weir_checkpoint)(1 + test_random_below(3));
    options.recompute_late = true; /* as the flow may have it */
    return options;
}

/* Any schedule's table, some backwards split in I and W. */
static void random_draft(struct draft *draft) {
    struct weir_table_options options = random_options();
    struct weir_table *table = NULL;
    memset(draft, 0, sizeof *draft);
    while (weir_table_new(&options, NULL, &table) != WEIR_OK) options = random_options();
    draft->stages = options.stages;
    draft->workers = options.workers;
    draft->micro_batches = options.micro_batches;
    for (uint32_t w = 0; w < table->worker_count; w++) {
        for (uint32_t a = table->lines[w]; a < table->lines[w + 1]; a++) {
            struct weir_action action = table->actions[a];
            bool half = action.kind == WEIR_KIND_B && test_random_below(4) == 0;
            action.kind = half ? WEIR_KIND_I : action.kind;
            append(draft, w, action);
            action.kind = WEIR_KIND_W;
            if (half) append(draft, w, action);
        }
    }
    weir_table_destroy(table);
}

static struct weir_action take_out(struct draft *draft, uint32_t worker, uint32_t at) {
    struct weir_action action = draft->row[worker][at];
    draft->length[worker]--;
    memmove(&draft->row[worker][at], &draft->row[worker][at + 1],
            (draft->length[worker] - at) * sizeof action);
    return action;
}

static void put_in(struct draft *draft, uint32_t worker, struct weir_action action) {
    uint32_t at = (uint32_t)test_random_below(draft->length[worker] + 1);
    append(draft, worker, action);
    for (uint32_t i = draft->length[worker] - 1; i > at; i--) {
        draft->row[worker][i] = draft->row[worker][i - 1];
    }
    draft->row[worker][at] = action;
}

static void mutate(struct draft *draft) {
    uint32_t worker = (uint32_t)test_random_below(draft->workers);
    uint32_t other =
        test_random_below(6) == 0 ? (uint32_t)test_random_below(draft->workers) : worker;
    if (draft->length[worker] == 0) return;
    uint32_t at = (uint32_t)test_random_below(draft->length[worker]);
    struct weir_action *action = &draft->row[worker][at];
    switch (test_random_below(8)) {
    case 0: take_out(draft, worker, at); break;
    case 1: put_in(draft, other, *action); break;
    case 2: action->micro_batch = (uint32_t)test_random_below(draft->micro_batches + 1); break;
    case 3: action->kind = (uint8_t)test_random_below(WEIR_KIND_COUNT); break;
    case 4: put_in(draft, other, take_out(draft, worker, at)); break;
    default: /* neighbours change places: the mutation that is often harmless */
        if (at + 1 < draft->length[worker]) {
            struct weir_action moved = action[0];
            action[0] = action[1];
            action[1] = moved;
        }
    }
}

static struct weir_table *build(const struct draft *draft) {
    struct weir__table_builder builder;
    struct weir_table *table = NULL;
    weir__table_begin(&builder, test_allocator(), draft->stages, draft->workers,
                      draft->micro_batches);
    for (uint32_t w = 0; w < draft->workers; w++) {
        weir__table_line(&builder);
        for (uint32_t i = 0; i < draft->length[w]; i++) {
            const struct weir_action *action = &draft->row[w][i];
            weir__table_add(&builder, (enum weir_kind)action->kind, action->stage,
                            action->micro_batch);
        }
    }
    EXPECT_STATUS(weir__table_finish(&builder, &table), WEIR_OK);
    return table;
}

/* ---- the naive validator ---- */

struct judge {
    const struct draft *draft;
    const struct weir__flow *flow;
    uint32_t count[STAGES][MICRO_BATCHES][WEIR_KIND_COUNT]; /**< how many the table has */
    uint32_t done[STAGES][MICRO_BATCHES][WEIR_KIND_COUNT];  /**< and how many ran */
};

static bool count_all(struct judge *judge) {
    const struct draft *draft = judge->draft;
    uint32_t owner[STAGES];
    memset(owner, 0xff, sizeof owner);
    for (uint32_t w = 0; w < draft->workers; w++) {
        bool updating = false;
        if (draft->length[w] == 0) return false;
        for (uint32_t i = 0; i < draft->length[w]; i++) {
            const struct weir_action *action = &draft->row[w][i];
            bool whole_stage = action->kind == WEIR_KIND_U || action->kind == WEIR_KIND_N;
            if (action->micro_batch >= (whole_stage ? 1 : draft->micro_batches)) return false;
            if (owner[action->stage] != UINT32_MAX && owner[action->stage] != w) return false;
            owner[action->stage] = w;
            if (updating && action->kind != WEIR_KIND_U) return false;
            updating = action->kind == WEIR_KIND_U;
            if (judge->count[action->stage][action->micro_batch][action->kind]++ > 0) return false;
        }
    }
    return true;
}

static bool is_complete(const struct judge *judge) {
    for (uint32_t s = 0; s < judge->draft->stages; s++) {
        for (uint32_t i = 0; i < judge->draft->micro_batches; i++) {
            const uint32_t *has = judge->count[s][i];
            bool whole = has[WEIR_KIND_B] == 1 && has[WEIR_KIND_I] + has[WEIR_KIND_W] == 0;
            bool halves = has[WEIR_KIND_B] == 0 && has[WEIR_KIND_I] == 1 && has[WEIR_KIND_W] == 1;
            if (has[WEIR_KIND_F] != 1 || !(whole || halves)) return false;
        }
    }
    return true;
}

static bool has_run(const struct judge *judge, uint32_t stage, uint32_t micro_batch,
                    enum weir_kind kind) {
    return judge->done[stage][micro_batch][kind] > 0;
}

/* The gradient of a stage's inputs and popped skips. */
static bool gradient_is_there(const struct judge *judge, uint32_t stage, uint32_t micro_batch) {
    return has_run(judge, stage, micro_batch, WEIR_KIND_B) ||
           has_run(judge, stage, micro_batch, WEIR_KIND_I);
}

static bool inputs_are_there(const struct judge *judge, uint32_t stage, uint32_t micro_batch) {
    if (stage > 0 && !has_run(judge, stage - 1, micro_batch, WEIR_KIND_F)) return false;
    for (uint32_t k = 0; k < judge->flow->skip_count; k++) {
        const struct weir_skip_route *skip = &judge->flow->skips[k];
        for (uint32_t r = 0; r < skip->reader_count; r++) {
            if (skip->readers[r] == stage &&
                !has_run(judge, skip->source, micro_batch, WEIR_KIND_F)) {
                return false;
            }
        }
    }
    return true;
}

static bool gradients_are_there(const struct judge *judge, uint32_t stage, uint32_t micro_batch) {
    const struct weir__flow *flow = judge->flow;
    bool crosses = stage + 1 < judge->draft->stages &&
                   (flow->border_differentiable == NULL || flow->border_differentiable[stage]);
    if (crosses && !gradient_is_there(judge, stage + 1, micro_batch)) return false;
    for (uint32_t k = 0; k < flow->skip_count; k++) {
        const struct weir_skip_route *skip = &flow->skips[k];
        for (uint32_t r = 0; skip->differentiable && r < skip->reader_count; r++) {
            uint32_t taker = r == 0 ? skip->source : skip->readers[r - 1];
            if (taker == stage && !gradient_is_there(judge, skip->readers[r], micro_batch)) {
                return false;
            }
        }
    }
    return true;
}

static bool all_done(const struct judge *judge, uint32_t first, uint32_t last,
                     enum weir_kind kind) {
    for (uint32_t s = first; s < last; s++) {
        for (uint32_t i = 0; i < judge->draft->micro_batches; i++) {
            if (judge->count[s][i][kind] != judge->done[s][i][kind]) return false;
        }
    }
    return true;
}

static bool gradients_complete(const struct judge *judge, uint32_t first, uint32_t last) {
    return all_done(judge, first, last, WEIR_KIND_B) && all_done(judge, first, last, WEIR_KIND_W);
}

static bool may_run(const struct judge *judge, const struct weir_action *action) {
    uint32_t s = action->stage, i = action->micro_batch, stages = judge->draft->stages;
    bool saved =
        has_run(judge, s, i, judge->count[s][i][WEIR_KIND_R] > 0 ? WEIR_KIND_R : WEIR_KIND_F);
    switch (action->kind) {
    case WEIR_KIND_F: return inputs_are_there(judge, s, i);
    case WEIR_KIND_R:
        return has_run(judge, s, i, WEIR_KIND_F) && inputs_are_there(judge, s, i) &&
               (!judge->flow->recompute_late || gradients_are_there(judge, s, i));
    case WEIR_KIND_B:
    case WEIR_KIND_I:
        return has_run(judge, s, i, WEIR_KIND_F) && saved && gradients_are_there(judge, s, i);
    case WEIR_KIND_W: return saved && has_run(judge, s, i, WEIR_KIND_I);
    case WEIR_KIND_N: return gradients_complete(judge, s, s + 1);
    default: return gradients_complete(judge, 0, stages) && all_done(judge, 0, stages, WEIR_KIND_N);
    }
}

static bool runs_through(struct judge *judge) {
    const struct draft *draft = judge->draft;
    uint32_t at[STAGES] = {0};
    for (bool moved = true; moved;) {
        moved = false;
        for (uint32_t w = 0; w < draft->workers; w++) {
            const struct weir_action *action = &draft->row[w][at[w]];
            if (at[w] < draft->length[w] && may_run(judge, action)) {
                judge->done[action->stage][action->micro_batch][action->kind]++;
                at[w]++;
                moved = true;
            }
        }
    }
    for (uint32_t w = 0; w < draft->workers; w++) {
        if (at[w] < draft->length[w]) return false;
    }
    return true;
}

static bool naive_verdict(const struct draft *draft, const struct weir__flow *flow) {
    struct judge judge = {.draft = draft, .flow = flow};
    return count_all(&judge) && is_complete(&judge) && runs_through(&judge);
}

/* ---- both ---- */

/* Executes the actions by their start in a replay with random times, all above 0: what an action
 * waits for began before it did. */
static void expect_order_of_replay(const struct draft *draft, const struct weir_table *table,
                                   const struct weir__flow *flow) {
    struct judge judge = {.draft = draft, .flow = flow};
    struct weir__deps deps;
    double duration[STAGES * ACTIONS], start[STAGES * ACTIONS], end[STAGES * ACTIONS], span = 0;
    bool done[STAGES * ACTIONS] = {0};
    CHECK_OK(weir__deps_new(table, flow, test_allocator(), &deps));
    for (uint32_t a = 0; a < table->action_count; a++) {
        duration[a] = 1.0 + (double)test_random_below(4);
    }
    EXPECT_STATUS(
        weir__table_replay(table, &deps, duration, NULL, start, end, &span, test_allocator()),
        WEIR_OK);
    count_all(&judge);
    for (uint32_t n = 0; n < table->action_count; n++) {
        uint32_t next = UINT32_MAX;
        for (uint32_t a = 0; a < table->action_count; a++) {
            if (!done[a] && (next == UINT32_MAX || start[a] < start[next])) next = a;
        }
        const struct weir_action *action = &table->actions[next];
        EXPECT(may_run(&judge, action));
        judge.done[action->stage][action->micro_batch][action->kind]++;
        done[next] = true;
    }
    weir__deps_clean_up(&deps);
}

static void expect_agreement(const struct draft *draft, const struct weir__flow *flow,
                             uint32_t *accepted) {
    struct weir_faults faults = {.allocator = test_allocator()};
    struct weir_table *table = build(draft);
    CHECK(table != NULL);
    bool good = weir__table_check_flow(table, flow, test_allocator(), &faults) == WEIR_OK;
    if (!EXPECT_EQ_INT(good, naive_verdict(draft, flow))) {
        char text[2048];
        weir_table_format(table, false, text, sizeof text);
        TEST_FAIL("table\n%s%s", text, faults.kept > 0 ? faults.lines[0] : "was accepted");
    }
    EXPECT_EQ_INT(good, faults.count == 0);
    if (good) expect_order_of_replay(draft, table, flow);
    *accepted += good;
    weir_faults_clean_up(&faults);
    weir_table_destroy(table);
}

static void test_verdicts_on_mutations_agree_with_execution(void) {
    static struct draft draft;
    struct case_flow flow;
    uint32_t accepted = 0, runs = 6000;
    for (uint32_t run = 0; run < runs; run++) {
        random_draft(&draft);
        random_flow(&flow, draft.stages);
        for (uint64_t k = test_random_below(5); k > 0; k--) mutate(&draft);
        expect_agreement(&draft, &flow.flow, &accepted);
        CHECK_HELPERS();
    }
    CHECK(accepted > runs / 5 && accepted < runs * 4 / 5);
}

/* Rows in random order, which are complete but often deadlock. */
static void test_verdicts_on_shuffled_rows_agree_with_execution(void) {
    static struct draft draft;
    struct case_flow flow;
    uint32_t accepted = 0, runs = 4000;
    for (uint32_t run = 0; run < runs; run++) {
        random_draft(&draft);
        random_flow(&flow, draft.stages);
        for (uint32_t w = 0; w < draft.workers; w++) {
            uint32_t count = draft.length[w] - (draft.stages + draft.workers - 1 - w) /
                                                   draft.workers; /* its updates stay behind */
            uint64_t swaps = test_random_below(4) == 0 ? count : 2;
            while (swaps-- > 0) {
                uint32_t a = (uint32_t)test_random_below(count);
                uint32_t b = a + (uint32_t)test_random_below(count - a > 4 ? 4 : count - a);
                struct weir_action moved = draft.row[w][a];
                draft.row[w][a] = draft.row[w][b];
                draft.row[w][b] = moved;
            }
        }
        expect_agreement(&draft, &flow.flow, &accepted);
        CHECK_HELPERS();
    }
    CHECK(accepted > runs / 20 && accepted < runs * 9 / 10);
}

WEIR_TEST_SUITE(table_random, TEST(verdicts_on_mutations_agree_with_execution),
                TEST(verdicts_on_shuffled_rows_agree_with_execution))
