/* SPDX-License-Identifier: MIT */
/*
 * Goal: the memory plan is safe, small and honest. Method: dependencies are derived a second time,
 * here, by hand; what happens before what follows from the rows and the waits alone; any two blocks
 * that share bytes must be ordered by that. Arenas are held against the largest sum of live blocks,
 * small ones against the best of all packings.
 */
#include "engine/engine_stages.h"

#include "pipe/lower/prepared.h"

#include <stdlib.h>
#include <string.h>

enum { ACTIONS_MAX = 1024, WORDS = ACTIONS_MAX / 64 };

static struct engine_model model;
static struct engine_random run;
static struct weir__setup setup;
static struct weir__row_plan prepared;

static bool open_plan(const struct weir_pipe_options *options, bool infer) {
    struct weir_faults faults = {.allocator = test_allocator()};
    bool described = EXPECT_STATUS(weir__setup_init(&setup, options, &faults), WEIR_OK);
    for (uint32_t i = 0; i < faults.kept; i++) TEST_FAIL("%s", faults.lines[i]);
    weir_faults_clean_up(&faults);
    if (!described) return false;
    int status = weir__prepared_init(&prepared, &setup, options->rows, infer, NULL);
    if (EXPECT_STATUS(status, WEIR_OK)) return true;
    weir__setup_clean_up(&setup);
    return false;
}

static void close_plan(void) {
    weir__prepared_clean_up(&prepared);
    weir__setup_clean_up(&setup);
}

/* ---- what happens before what ---- */

/* known[a]: actions that have ended when a starts, because a's row or a wait says so. */
static uint64_t known[ACTIONS_MAX][WORDS];

static bool is_before(uint32_t a, uint32_t b) {
    return known[b][a / 64] >> a % 64 & 1;
}

static bool learn(uint32_t a, uint32_t from) {
    bool more = !is_before(from, a);
    known[a][from / 64] |= UINT64_C(1) << from % 64;
    for (uint32_t w = 0; w < WORDS; w++) {
        more |= (known[from][w] & ~known[a][w]) != 0;
        known[a][w] |= known[from][w];
    }
    return more;
}

static bool learn_action(uint32_t worker, uint32_t a) {
    const struct weir_table *table = prepared.table;
    const struct weir__call *call = &prepared.calls[a];
    bool more = a > table->lines[worker] && learn(a, a - 1);
    for (uint32_t i = call->wait_begin; i < call->wait_end; i++) {
        const struct weir__needed_wait *wait = &prepared.waits[i];
        uint32_t last = table->lines[wait->worker] + wait->count - 1;
        EXPECT_EQ_UINT(wait->action, last);
        EXPECT(wait->worker != worker && last < table->lines[wait->worker + 1]);
        more |= learn(a, last);
    }
    return more;
}

static void find_known(void) {
    const struct weir_table *table = prepared.table;
    bool more = true;
    memset(known, 0, sizeof known);
    while (more) {
        more = false;
        for (uint32_t w = 0; w < table->worker_count; w++)
            for (uint32_t a = table->lines[w]; a < table->lines[w + 1]; a++)
                more |= learn_action(w, a);
    }
    for (uint32_t a = 0; a < table->action_count; a++) EXPECT(!is_before(a, a)); /* no circle */
}

/* No wait tells what the row, or an earlier wait, has told already; but a crossing that takes time
 * must be waited for by everybody who needs it. */
static void expect_no_idle_waits(uint32_t worker, uint32_t a) {
    const struct weir__call *call = &prepared.calls[a];
    uint64_t told[WORDS] = {0};
    if (a > prepared.table->lines[worker]) memcpy(told, known[a - 1], sizeof told);
    for (uint32_t i = call->wait_begin; i < call->wait_end; i++) {
        uint32_t last = prepared.waits[i].action;
        EXPECT(prepared.waits[i].delayed || !(told[last / 64] >> last % 64 & 1));
        told[last / 64] |= UINT64_C(1) << last % 64;
        for (uint32_t w = 0; w < WORDS; w++) told[w] |= known[last][w];
    }
}

static void expect_few_waits(void) {
    const struct weir_table *table = prepared.table;
    for (uint32_t w = 0; w < table->worker_count; w++)
        for (uint32_t a = table->lines[w]; a < table->lines[w + 1]; a++) expect_no_idle_waits(w, a);
}

/* ---- dependencies, a second time ---- */

static uint32_t find_action(enum weir_kind kind, uint32_t stage, uint32_t i) {
    const struct weir_table *table = prepared.table;
    for (uint32_t a = 0; a < table->action_count; a++) {
        const struct weir_action *action = &table->actions[a];
        if (action->kind == kind && action->stage == stage && action->micro_batch == i) return a;
    }
    return UINT32_MAX;
}

/* B, or where it is split I: what makes the gradients that leave a stage. */
static uint32_t find_backward(uint32_t stage, uint32_t i) {
    uint32_t whole = find_action(WEIR_KIND_B, stage, i);
    return whole != UINT32_MAX ? whole : find_action(WEIR_KIND_I, stage, i);
}

static void expect_before(uint32_t a, uint32_t b) {
    char left[24], right[24];
    if (a == UINT32_MAX || b == UINT32_MAX || is_before(a, b)) return;
    TEST_FAIL("%s does not wait for %s", weir__action_text(&prepared.table->actions[b], right),
              weir__action_text(&prepared.table->actions[a], left));
}

static bool any_differentiable(const struct engine_stage *stage) {
    bool any = false;
    for (uint32_t k = 0; k < stage->output_count; k++) any |= stage->outputs[k].differentiable;
    return any;
}

static void expect_order_of(uint32_t s, uint32_t i) {
    uint32_t f = find_action(WEIR_KIND_F, s, i), r = find_action(WEIR_KIND_R, s, i);
    uint32_t b = find_backward(s, i), w = find_action(WEIR_KIND_W, s, i);
    bool frozen = model.stages[s].frozen;
    EXPECT(f != UINT32_MAX);
    EXPECT((b != UINT32_MAX) == (!prepared.infer && !frozen));
    EXPECT(!frozen || (r == UINT32_MAX && w == UINT32_MAX));
    expect_before(f, b);
    expect_before(f, r);
    expect_before(r, b);
    expect_before(b, w);
    if (s == 0) return;
    expect_before(find_action(WEIR_KIND_F, s - 1, i), f);
    if (any_differentiable(&model.stages[s - 1])) expect_before(b, find_backward(s - 1, i));
}

static bool same_skip(const struct weir_skip_use *a, const struct weir_skip_use *b) {
    const char *x = a->name_space != NULL ? a->name_space : "";
    const char *y = b->name_space != NULL ? b->name_space : "";
    return strcmp(a->name, b->name) == 0 && strcmp(x, y) == 0;
}

/* A stash before all its readers; the gradient from each user to the next one below. */
static void expect_skip_order(uint32_t from, uint32_t j, uint32_t i) {
    const struct weir_skip_use *stash = &model.stages[from].skips[j];
    uint32_t below = from;
    if (stash->verb != WEIR_SKIP_STASH || stash->empty) return;
    for (uint32_t s = from + 1; s < model.stage_count; s++) {
        for (uint32_t k = 0; k < model.stages[s].skip_count; k++) {
            if (!same_skip(stash, &model.stages[s].skips[k])) continue;
            expect_before(find_action(WEIR_KIND_F, from, i), find_action(WEIR_KIND_F, s, i));
            if (stash->tensor.differentiable)
                expect_before(find_backward(s, i), find_backward(below, i));
            below = s;
        }
    }
}

static void expect_tail_order(void) {
    const struct weir_table *table = prepared.table;
    for (uint32_t s = 0; s < table->stage_count; s++) {
        uint32_t n = find_action(WEIR_KIND_N, s, 0);
        for (uint32_t i = 0; i < table->micro_batch_count; i++) {
            expect_before(find_backward(s, i), n);
            expect_before(find_action(WEIR_KIND_W, s, i), n);
        }
        for (uint32_t other = 0; other < table->stage_count; other++)
            expect_before(n, find_action(WEIR_KIND_U, other, 0));
    }
}

static void expect_all_orders(void) {
    const struct weir_table *table = prepared.table;
    for (uint32_t i = 0; i < table->micro_batch_count; i++) {
        for (uint32_t s = 0; s < table->stage_count; s++) {
            expect_order_of(s, i);
            for (uint32_t j = 0; j < model.stages[s].skip_count; j++) expect_skip_order(s, j, i);
        }
    }
    if (!prepared.infer) expect_tail_order();
}

/* The orders are the dependencies and the waits that only bytes ask for. */
static void expect_orders(void) {
    const struct weir__deps *deps = &prepared.deps, *orders = &prepared.orders;
    for (uint32_t a = 0; a < prepared.table->action_count; a++) {
        const struct weir__call *call = &prepared.calls[a];
        uint32_t at = orders->begin[a], begin = deps->begin[a], count = deps->begin[a + 1] - begin;
        for (uint32_t e = 0; e < count; e++, at++) {
            EXPECT_EQ_UINT(orders->edges[at].from, deps->edges[begin + e].from);
            EXPECT_EQ_UINT(orders->edges[at].cause, deps->edges[begin + e].cause);
        }
        for (uint32_t i = call->wait_begin; i < call->wait_end; i++) {
            const struct weir__needed_wait *wait = &prepared.waits[i];
            bool depends = false;
            for (uint32_t e = begin; e < begin + count; e++)
                depends |= deps->edges[e].from == wait->action;
            EXPECT((wait->cause == WEIR__CAUSE_MEMORY) == !depends);
            if (!depends) EXPECT_EQ_UINT(orders->edges[at++].from, wait->action);
        }
        EXPECT_EQ_UINT(at, orders->begin[a + 1]);
    }
}

/* ---- blocks ---- */

static bool shares(const struct weir__block *a, const struct weir__block *b) {
    return a->worker == b->worker && a->offset < b->offset + b->bytes &&
           b->offset < a->offset + a->bytes;
}

/* All uses of a before all uses of b. */
static bool all_before(const struct weir__block *a, const struct weir__block *b) {
    const struct weir__memory *memory = &prepared.memory;
    bool ordered = a->uses != WEIR__NO_BLOCK && b->uses != WEIR__NO_BLOCK;
    for (uint32_t u = a->uses; ordered && u != WEIR__NO_BLOCK; u = memory->uses[u].next)
        for (uint32_t v = b->uses; ordered && v != WEIR__NO_BLOCK; v = memory->uses[v].next)
            ordered = is_before(memory->uses[u].action, memory->uses[v].action);
    return ordered;
}

static void expect_first_before_all(const struct weir__block *block) {
    const struct weir__memory *memory = &prepared.memory;
    for (uint32_t u = block->uses; u != WEIR__NO_BLOCK; u = memory->uses[u].next) {
        uint32_t action = memory->uses[u].action;
        EXPECT(action == block->first || is_before(block->first, action));
    }
}

static void expect_safe_blocks(void) {
    const struct weir__memory *memory = &prepared.memory;
    for (uint32_t i = 0; i < memory->block_count && !test_has_failed(); i++) {
        const struct weir__block *a = &memory->blocks[i];
        EXPECT(a->offset % WEIR__ALIGNMENT == 0 && a->bytes % WEIR__ALIGNMENT == 0);
        EXPECT(a->offset + a->bytes <= prepared.arena_bytes[a->worker]);
        expect_first_before_all(a);
        for (uint32_t k = 0; k < i; k++) {
            const struct weir__block *b = &memory->blocks[k];
            EXPECT(!shares(a, b) || all_before(a, b) || all_before(b, a));
        }
    }
}

/* Blocks may be parted where an area begins, and nowhere else. */
static void expect_cuts(void) {
    for (uint32_t b = 0; b < prepared.memory.block_count; b++) {
        const struct weir__block *block = &prepared.memory.blocks[b];
        for (uint32_t k = 0; k < block->cut_count; k++) {
            bool begins = false;
            for (uint32_t i = 0; i < prepared.binding_count && !begins; i++)
                begins = prepared.bindings[i].block == b &&
                         prepared.bindings[i].offset == block->cuts[k];
            EXPECT(begins && block->cuts[k] < block->bytes);
        }
    }
}

// ST-3
static void test_blocks_that_share_bytes_are_ordered_by_waits(void) {
    for (uint32_t number = 0; number < 150 && !test_has_failed(); number++) {
        engine_random_choose(&run, &model);
        for (int infer = 0; infer < 2 && !test_has_failed(); infer++) {
            CHECK(open_plan(&run.options, infer != 0));
            CHECK(prepared.table->action_count <= ACTIONS_MAX);
            find_known();
            expect_few_waits();
            expect_all_orders();
            expect_orders();
            expect_safe_blocks();
            expect_cuts();
            close_plan();
        }
        if (test_has_failed()) engine_random_describe(&run, number);
    }
}

/* ---- how small ---- */

struct moment {
    double time;
    int64_t bytes;
};

static int by_time(const void *a, const void *b) {
    const struct moment *x = a, *y = b;
    if (x->time != y->time) return x->time < y->time ? -1 : 1;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

/* The largest sum of blocks (of a mask of classes) that live at once: no packing can need less. */
static size_t largest_live(const struct weir__memory *memory, uint32_t worker, uint32_t classes) {
    struct moment *moments = malloc(2 * (size_t)memory->block_count * sizeof *moments + 1);
    uint32_t count = 0;
    int64_t live = 0, most = 0;
    for (uint32_t i = 0; i < memory->block_count; i++) {
        const struct weir__block *block = &memory->blocks[i];
        if (block->worker != worker || !(classes >> block->class_of & 1)) continue;
        moments[count++] = (struct moment){block->start, (int64_t)block->bytes};
        moments[count++] = (struct moment){block->end, -(int64_t)block->bytes};
    }
    qsort(moments, count, sizeof *moments, by_time);
    for (uint32_t i = 0; i < count; i++) {
        live += moments[i].bytes;
        if (live > most) most = live;
    }
    free(moments);
    return (size_t)most;
}

static void wide_chain(uint32_t stages, int64_t width) {
    engine_model_init(&model, stages);
    for (uint32_t s = 0; s < stages; s++)
        model.stages[s].outputs[0] = engine_tensor(WEIR_F32, width * (1 + s % 2), true);
    if (stages < 3) return;
    engine_skip(&model, 0, WEIR_SKIP_STASH, "a")->tensor.shape[0] = width;
    engine_skip(&model, stages - 1, WEIR_SKIP_POP, "a")->tensor.shape[0] = width;
}

/* 4% more than the least that is possible, at the worst: blocks are a few lines of 64 bytes. */
static void test_arenas_are_near_the_largest_live_sum(void) {
    static const char *const schedules[] = {"gpipe", "1f1b"};
    for (uint32_t stages = 1; stages <= 5; stages++) {
        for (int k = 0; k < 6; k++) {
            wide_chain(stages, 48);
            struct weir_pipe_options options = engine_options(&model);
            options.rows = 16, options.chunks = 8;
            options.workers = stages > 3 ? 2 : 0;
            options.schedule = schedules[k % 2];
            options.checkpoint = (enum weir_checkpoint)(WEIR_CHECKPOINT_ALWAYS + k / 2);
            CHECK(open_plan(&options, false));
            for (uint32_t w = 0; w < prepared.table->worker_count; w++) {
                size_t least = largest_live(&prepared.memory, w, UINT32_MAX);
                EXPECT(prepared.arena_bytes[w] >= least);
                if (100 * prepared.arena_bytes[w] > 104 * least)
                    TEST_FAIL("%s, %u stages, checkpoint %d, worker %u: %zu bytes for %zu",
                              options.schedule, stages, k / 2, w, prepared.arena_bytes[w], least);
                EXPECT_EQ_UINT(prepared.least_bytes[w], least);
            }
            close_plan();
            CHECK_HELPERS();
        }
    }
}

/* What GPipe is about: eight micro-batches recomputed need one saved area instead of eight. */
static void test_checkpoints_save_activations(void) {
    uint64_t activations[2];
    for (int k = 0; k < 2; k++) {
        struct weir_plan *plan;
        wide_chain(4, 256);
        struct weir_pipe_options options = engine_options(&model);
        options.chunks = 8, options.schedule = "gpipe";
        options.checkpoint = k == 0 ? WEIR_CHECKPOINT_ALWAYS : WEIR_CHECKPOINT_NEVER;
        CHECK_OK(weir_plan_new(&options, NULL, &plan));
        activations[k] = 0;
        for (uint32_t d = 0; d < plan->device_count; d++)
            activations[k] += plan->devices[d].activations;
        weir_plan_destroy(plan);
    }
    CHECK(activations[0] > 0);
    CHECK(activations[1] >= 4 * activations[0]);
}

/* ---- the packer alone ---- */

enum { TIMES = 12, SMALL = 6, LONG = 24 };

static struct weir_action one_row[LONG];
static const uint32_t one_row_ends[2] = {0, TIMES}, long_row_ends[2] = {0, LONG};
static const struct weir_table one_worker = {.stage_count = 1,
                                             .worker_count = 1,
                                             .micro_batch_count = TIMES,
                                             .action_count = TIMES,
                                             .lines = one_row_ends,
                                             .actions = one_row};

static const struct weir_table long_worker = {.stage_count = 1,
                                              .worker_count = 1,
                                              .micro_batch_count = LONG,
                                              .action_count = LONG,
                                              .lines = long_row_ends,
                                              .actions = one_row};

/* Every line of 64 bytes may begin a part. */
static const size_t lines[] = {64, 128, 192, 256, 320, 384, 448, 512};

static size_t pack_random(struct weir__memory *memory, uint32_t count, bool may_part) {
    double start[TIMES], end[TIMES];
    size_t bytes = 0, bound;
    for (uint32_t a = 0; a < TIMES; a++) start[a] = a, end[a] = a + 1.0;
    for (uint32_t b = 0; b < count; b++) {
        uint32_t block = weir__memory_block(memory, WEIR__BLOCK_BORDERS, 0,
                                            64 * (1 + (size_t)test_random_below(9)));
        uint32_t first = (uint32_t)test_random_below(TIMES);
        if (may_part && memory->blocks[block].bytes > 64)
            weir__memory_may_part(memory, block, lines, memory->blocks[block].bytes / 64 - 1);
        weir__memory_use(memory, block, first);
        weir__memory_use(memory, block, first + (uint32_t)test_random_below(TIMES - first));
    }
    EXPECT_STATUS(weir__memory_pack(memory, &one_worker, NULL, start, end, &bytes, &bound),
                  WEIR_OK);
    EXPECT(bound <= bytes);
    return bytes;
}

static bool live_together(const struct weir__block *a, const struct weir__block *b) {
    return a->start < b->end && b->start < a->end;
}

static void test_blocks_that_live_together_are_apart(void) {
    for (int k = 0; k < 300 && !test_has_failed(); k++) {
        struct weir__pool pool;
        struct weir__memory memory;
        weir__pool_init(&pool, test_allocator());
        weir__memory_init(&memory, &pool);
        size_t bytes = pack_random(&memory, 1 + (uint32_t)test_random_below(40), false);
        EXPECT(bytes >= largest_live(&memory, 0, UINT32_MAX));
        for (uint32_t a = 0; a < memory.block_count; a++) {
            const struct weir__block *block = &memory.blocks[a];
            EXPECT(block->offset + block->bytes <= bytes);
            for (uint32_t b = 0; b < a; b++)
                EXPECT(!live_together(block, &memory.blocks[b]) ||
                       !shares(block, &memory.blocks[b]));
        }
        weir__pool_clean_up(&pool);
    }
}

/* The parts of the block, in order, are where its bytes are looked for. */
static void expect_parts(const struct weir__memory *memory, uint32_t block, size_t bytes) {
    uint32_t part = block;
    for (size_t at = 0; at < bytes && part != WEIR__NO_BLOCK; part = memory->blocks[part].rest) {
        const struct weir__block *here = &memory->blocks[part];
        EXPECT(here->start == memory->blocks[block].start &&
               here->end == memory->blocks[block].end);
        EXPECT(here->uses == memory->blocks[block].uses);
        for (size_t i = 0; i < here->bytes; i += 64, at += 64)
            EXPECT_EQ_UINT(weir__memory_at(memory, block, at), here->offset + i);
        if (at == bytes) EXPECT(here->rest == WEIR__NO_BLOCK);
    }
}

static void test_blocks_that_may_be_parted_keep_their_bytes(void) {
    enum { COUNT = 24 };
    for (int k = 0; k < 200 && !test_has_failed(); k++) {
        struct weir__pool pool;
        struct weir__memory memory;
        size_t least;
        weir__pool_init(&pool, test_allocator());
        weir__memory_init(&memory, &pool);
        size_t bytes = pack_random(&memory, COUNT, true), sum = 0;
        least = largest_live(&memory, 0, UINT32_MAX);
        EXPECT(least <= bytes && 100 * bytes <= 103 * least);
        for (uint32_t b = 0; b < memory.block_count; b++) {
            sum += memory.blocks[b].bytes;
            for (uint32_t a = 0; a < b; a++)
                EXPECT(!live_together(&memory.blocks[a], &memory.blocks[b]) ||
                       !shares(&memory.blocks[a], &memory.blocks[b]));
        }
        EXPECT_EQ_UINT(sum, memory.all_bytes);
        for (uint32_t b = 0; b < COUNT; b++) {
            size_t whole = 0;
            for (uint32_t p = b; p != WEIR__NO_BLOCK; p = memory.blocks[p].rest)
                whole += memory.blocks[p].bytes;
            expect_parts(&memory, b, whole);
        }
        weir__pool_clean_up(&pool);
    }
}

/* Four blocks in turn, of which three live while another one works for a moment: that one has room
 * where the fourth was, and beside it, but only two of the four can lie there. */
static size_t pack_rhythm(struct weir__memory *memory, const size_t *cuts, uint32_t cut_count) {
    double start[LONG], end[LONG];
    size_t bytes = 0, bound;
    for (uint32_t a = 0; a < LONG; a++) start[a] = a, end[a] = a + 1.0;
    for (uint32_t a = 0; a < LONG; a++) {
        bool turns = a % 2 == 0;
        uint32_t block =
            weir__memory_block(memory, WEIR__BLOCK_BORDERS, 0, turns ? 100 * 64 : 250 * 64);
        uint32_t last = turns && a + 6 < LONG ? a + 6 : a;
        weir__memory_use(memory, block, a);
        weir__memory_use(memory, block, last);
        if (!turns) weir__memory_may_part(memory, block, cuts, cut_count);
    }
    EXPECT_STATUS(weir__memory_pack(memory, &long_worker, NULL, start, end, &bytes, &bound),
                  WEIR_OK);
    EXPECT_EQ_UINT(bound, (3 * 100 + 250) * 64);
    return bytes;
}

static void test_blocks_are_parted_where_they_do_not_fit_whole(void) {
    static const size_t cuts[] = {10 * 64, 150 * 64, 240 * 64};
    for (int k = 0; k < 2; k++) {
        struct weir__pool pool;
        struct weir__memory memory;
        weir__pool_init(&pool, test_allocator());
        weir__memory_init(&memory, &pool);
        size_t bytes = pack_rhythm(&memory, cuts, k == 0 ? 0 : 3);
        EXPECT(k == 0 ? bytes > 600 * 64 : bytes <= 103 * 550 * 64 / 100);
        EXPECT(k == 0 ? memory.block_count == LONG : memory.block_count > LONG);
        for (uint32_t b = 1; b < LONG; b += 2) expect_parts(&memory, b, 250 * 64);
        weir__pool_clean_up(&pool);
    }
}

/* The lowest place for `block` among those in `placed`. */
static size_t place(const struct weir__memory *memory, const uint32_t *placed, uint32_t count,
                    const size_t *offsets, uint32_t block) {
    size_t at = 0;
    bool moved = true;
    while (moved) {
        moved = false;
        for (uint32_t i = 0; i < count; i++) {
            const struct weir__block *other = &memory->blocks[placed[i]];
            size_t begin = offsets[placed[i]];
            if (!live_together(other, &memory->blocks[block]) ||
                at + memory->blocks[block].bytes <= begin || begin + other->bytes <= at)
                continue;
            at = begin + other->bytes;
            moved = true;
        }
    }
    return at;
}

/* Over all orders: in the order of its offsets any packing is found or bettered. */
static size_t best_packing(const struct weir__memory *memory, uint32_t *placed, uint32_t count,
                           size_t *offsets, size_t total) {
    size_t best = SIZE_MAX;
    if (count == memory->block_count) return total;
    for (uint32_t block = 0; block < memory->block_count; block++) {
        bool used = false;
        for (uint32_t i = 0; i < count; i++) used |= placed[i] == block;
        if (used) continue;
        offsets[block] = place(memory, placed, count, offsets, block);
        placed[count] = block;
        size_t end = offsets[block] + memory->blocks[block].bytes;
        size_t found = best_packing(memory, placed, count + 1, offsets, end > total ? end : total);
        if (found < best) best = found;
    }
    return best;
}

static void test_small_packings_are_near_the_best(void) {
    size_t sum = 0, best_sum = 0;
    for (int k = 0; k < 200; k++) {
        struct weir__pool pool;
        struct weir__memory memory;
        uint32_t placed[SMALL];
        size_t offsets[SMALL];
        weir__pool_init(&pool, test_allocator());
        weir__memory_init(&memory, &pool);
        size_t bytes = pack_random(&memory, SMALL, false);
        size_t best = best_packing(&memory, placed, 0, offsets, 0);
        EXPECT(bytes >= best && 2 * bytes <= 3 * best);
        sum += bytes, best_sum += best;
        weir__pool_clean_up(&pool);
        CHECK_HELPERS();
    }
    CHECK(100 * sum <= 105 * best_sum); /* and on average by 5% at most */
}

/* ---- portals in the plan ---- */

static uint32_t life_of(uint32_t stage, uint32_t i) {
    const struct weir__call *call = &prepared.calls[find_action(WEIR_KIND_F, stage, i)];
    for (uint32_t m = call->portal_begin; m < call->portal_end; m++)
        if (prepared.moves[m].step == WEIR__PORTAL_DO_PUT) return prepared.moves[m].life;
    return 0;
}

static struct weir_pipe_options far_skip(uint32_t stages, uint32_t readers) {
    engine_model_init(&model, stages);
    engine_skip(&model, 0, WEIR_SKIP_STASH, "a");
    for (uint32_t s = stages - readers; s < stages; s++)
        engine_skip(&model, s, WEIR_SKIP_READ, "a");
    struct weir_pipe_options options = engine_options(&model);
    options.chunks = 8;
    return options;
}

// PO-3
static void test_a_portals_life_counts_reading_stages_and_recomputes(void) {
    static const enum weir_checkpoint modes[4] = {WEIR_CHECKPOINT_NEVER, WEIR_CHECKPOINT_NEVER,
                                                  WEIR_CHECKPOINT_ALWAYS, WEIR_CHECKPOINT_NEVER};
    static const char table[] = "0F0,0B0\n1F0,1B0\n2F0,3F0,3B0,2R0,2B0\n";
    struct weir_pipe_options options = far_skip(3, 1);
    options.checkpoint = WEIR_CHECKPOINT_EXCEPT_LAST;
    CHECK(open_plan(&options, false));
    EXPECT_EQ_UINT(life_of(0, 0), 2);
    EXPECT_EQ_UINT(life_of(0, 7), 1);
    close_plan();
    options = far_skip(4, 2); /* two readers on one worker, one of which recomputes */
    options.rows = options.chunks = 1, options.stage_checkpoint = modes;
    options.table_csv = table, options.table_csv_bytes = sizeof table - 1;
    CHECK(open_plan(&options, false));
    EXPECT_EQ_UINT(prepared.bound.trackers[0].portal_count,
                   1 + 2); /* and a gradient of each reader */
    EXPECT_EQ_UINT(life_of(0, 0), 3);
    close_plan();
}

/* GPipe's eight portals live until the recompute of their reader, or only until its forward. */
// PO-3
static void test_at_life_zero_the_memory_is_free(void) {
    const uint32_t portals = 1u << WEIR__BLOCK_PORTALS;
    struct weir_pipe_options options = far_skip(2, 1);
    options.schedule = "gpipe", options.checkpoint = WEIR_CHECKPOINT_ALWAYS;
    CHECK(open_plan(&options, false));
    EXPECT(largest_live(&prepared.memory, 0, portals) >= 8 * 64);
    close_plan();
    options.checkpoint = WEIR_CHECKPOINT_NEVER;
    CHECK(open_plan(&options, false));
    EXPECT(largest_live(&prepared.memory, 0, portals) <= 3 * 64);
    close_plan();
}

/* The copy is made by the reader, late; until then the bytes stay with the stage that stashed. */
// PO-9
static void test_a_portals_bytes_stay_at_its_source_until_the_copy(void) {
    uint32_t copies = 0;
    struct weir_pipe_options options = far_skip(4, 1);
    options.link = WEIR_LINK_COPY;
    CHECK(open_plan(&options, false));
    for (uint32_t i = 0; i < prepared.copy_count; i++) {
        const struct weir__prepared_copy *copy = &prepared.copies[i];
        const struct weir_action *action = &prepared.table->actions[copy->action];
        const struct weir__block *from = &prepared.memory.blocks[copy->from_block];
        const struct weir__block *to = &prepared.memory.blocks[copy->to_block];
        if (from->class_of != WEIR__BLOCK_PORTALS || action->kind != WEIR_KIND_F) continue;
        uint32_t stash = find_action(WEIR_KIND_F, 0, action->micro_batch);
        copies++;
        EXPECT_EQ_UINT(action->stage, 3);
        EXPECT_EQ_UINT(from->worker, 0);
        EXPECT_EQ_UINT(to->worker, 3);
        EXPECT_EQ_UINT(from->first, stash);
        EXPECT_EQ_UINT(to->first, copy->action);
        EXPECT(to->start > from->start && from->end > to->start); /* both, while it is copied */
    }
    EXPECT_EQ_UINT(copies, 8);
    close_plan();
}

WEIR_TEST_SUITE(memory, TEST(blocks_that_share_bytes_are_ordered_by_waits),
                TEST(arenas_are_near_the_largest_live_sum), TEST(checkpoints_save_activations),
                TEST(blocks_that_live_together_are_apart),
                TEST(blocks_that_may_be_parted_keep_their_bytes),
                TEST(blocks_are_parted_where_they_do_not_fit_whole),
                TEST(small_packings_are_near_the_best),
                TEST(a_portals_life_counts_reading_stages_and_recomputes),
                TEST(at_life_zero_the_memory_is_free),
                TEST(a_portals_bytes_stay_at_its_source_until_the_copy))
