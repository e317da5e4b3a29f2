/* SPDX-License-Identifier: MIT */
/*
 * Goal: the check over links says whether a table's sends and receives come to their end.
 * Method: tables whose verdict is known; every schedule; and random tables under random flows,
 * lowered and executed a second time by lines that look at everything again after each step.
 */
#include "harness.h"

#include "schedule/lower.h"

#include <stdio.h>
#include <string.h>

static struct weir_table *parse(const char *text) {
    struct weir_table_options options = WEIR_TABLE_OPTIONS_INIT;
    struct weir_table *table = NULL;
    options.allocator = test_allocator();
    options.stages = options.workers = options.micro_batches = 0;
    options.checkpoint = WEIR_CHECKPOINT_NEVER;
    EXPECT_STATUS(weir_table_parse(&options, text, strlen(text), NULL, NULL, &table), WEIR_OK);
    return table;
}

static int check(const struct weir_table *table, uint32_t depth, enum weir_receive receive,
                 struct weir_faults *faults) {
    struct weir_links_options options = WEIR_LINKS_OPTIONS_INIT;
    options.allocator = test_allocator();
    options.depth = depth;
    options.receive = receive;
    return weir_table_check_links(table, &options, faults);
}

/* ---- known verdicts ---- */

static const uint32_t depths[] = {0, 1, 2, WEIR_LINKS_UNBOUNDED};

/* `least`: the smallest of the depths over which the late receives do not deadlock. In order all
 * do. */
static void expect_least(const char *text, uint32_t least) {
    struct weir_table *table = parse(text);
    CHECK_HELPERS();
    for (size_t i = 0; i < sizeof depths / sizeof depths[0]; i++) {
        int late = check(table, depths[i], WEIR_RECEIVE_LATE, NULL);
        EXPECT_STATUS(late, depths[i] >= least ? WEIR_OK : WEIR_ERR_SCHEDULE);
        EXPECT_STATUS(check(table, depths[i], WEIR_RECEIVE_IN_ORDER, NULL), WEIR_OK);
    }
    weir_table_destroy(table);
}

static void test_known_tables_need_known_depths(void) {
    expect_least("0F0,0B0", 0);
    expect_least("0F0,0F1,0B1,0B0\n1F0,1F1,1B1,1B0", 0);
    /* both send before they receive */
    expect_least("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1", 1);
    /* the last comes first: the link must hold all before it, or the two before it */
    expect_least("0F0,0F1,0B1,0B0\n1F1,1B1,1F0,1B0", 2);
    expect_least("0F0,0F1,0F2,0F3,0B3,0B2,0B1,0B0\n1F3,1B3,1F2,1B2,1F1,1B1,1F0,1B0",
                 WEIR_LINKS_UNBOUNDED);
}

static void expect_line(const char *text, uint32_t depth, const char *line) {
    struct weir_faults faults = WEIR_FAULTS_INIT;
    struct weir_table *table = parse(text);
    CHECK_HELPERS();
    faults.allocator = test_allocator();
    EXPECT_STATUS(check(table, depth, WEIR_RECEIVE_LATE, &faults), WEIR_ERR_SCHEDULE);
    EXPECT_EQ_UINT(faults.count, 1);
    if (faults.kept > 0) EXPECT_EQ_STR(faults.lines[0], line);
    weir_faults_clean_up(&faults);
    weir_table_destroy(table);
}

static void test_a_circle_names_its_actions_in_order(void) {
    expect_line("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1", 0,
                "deadlock over links of depth 0: worker 0 waits to send 0F1 to worker 1; worker 1 "
                "waits to send 1B0 to worker 0");
    expect_line("0F0,0F1,0B1,0B0\n1F1,1B1,1F0,1B0", 1,
                "deadlock over links of depth 1: worker 0 waits to send 0F1 to worker 1; worker 1 "
                "waits before 1F1 to receive 0F1 from worker 0");
    /* what no link can mend is weir_table_check's */
    expect_line("0F0,0B0\n1B0,1F0", WEIR_LINKS_UNBOUNDED, "1B0 stands before 1F0");
}

/* ---- the lowering ---- */

/* Where an operation stands in its worker's list; it stands there once. */
static uint32_t place_of(const struct weir__exchange *program, uint32_t worker,
                         enum weir__operation_kind kind, uint32_t what) {
    uint32_t place = UINT32_MAX, count = 0;
    for (uint32_t k = program->begin[worker]; k < program->begin[worker + 1]; k++) {
        const struct weir__operation *operation = &program->operations[k];
        if (operation->kind != kind || operation->at != what) continue;
        place = k;
        count++;
    }
    EXPECT_EQ_UINT(count, 1);
    return place;
}

static void expect_lowered(const struct weir_table *table, const struct weir__exchange *program) {
    uint32_t actions = 0;
    for (uint32_t m = 0; m < program->message_count; m++) {
        const struct weir__link_message *message = &program->messages[m];
        uint32_t sender = weir__table_worker_of(table, message->from);
        uint32_t receiver = weir__table_worker_of(table, message->reader);
        EXPECT_EQ_UINT(message->sender, sender);
        EXPECT_EQ_UINT(message->receiver, receiver);
        EXPECT(sender != receiver);
        EXPECT(place_of(program, sender, WEIR__RUN, message->from) <
               place_of(program, sender, WEIR__SEND, m));
        EXPECT(place_of(program, receiver, WEIR__RECEIVE, m) <
               place_of(program, receiver, WEIR__RUN, message->reader));
    }
    for (uint32_t w = 0; w < table->worker_count; w++) {
        uint32_t last = 0, runs = 0;
        for (uint32_t k = program->begin[w]; k < program->begin[w + 1]; k++) {
            const struct weir__operation *operation = &program->operations[k];
            if (operation->kind != WEIR__RUN) continue;
            EXPECT(operation->at >= table->lines[w] && operation->at < table->lines[w + 1]);
            EXPECT(runs++ == 0 || operation->at > last);
            last = operation->at;
            actions++;
        }
    }
    for (uint32_t a = 0; a < table->action_count; a++) {
        actions -= table->actions[a].kind != WEIR_KIND_U;
    }
    EXPECT_EQ_UINT(actions, 0);
}

static void test_sends_follow_and_receives_precede_their_actions(void) {
    static const char *const names[] = {"gpipe", "1f1b", "interleaved", "zb-h2", "zb-v"};
    for (uint32_t k = 0; k < 5 * 2 * 2; k++) {
        struct weir_table_options options = WEIR_TABLE_OPTIONS_INIT;
        struct weir_table *table = NULL;
        struct weir__deps deps;
        struct weir__exchange program;
        uint32_t readers[] = {2, 3};
        struct weir_skip_route skip = {0, 2, readers, 0, true};
        struct weir__flow flow = {.stage_count = 4, .skip_count = 1, .skips = &skip};
        options.allocator = test_allocator();
        options.schedule = names[k % 5];
        options.stages = 4;
        options.micro_batches = 4;
        options.checkpoint = k / 5 % 2 == 0 ? WEIR_CHECKPOINT_ALWAYS : WEIR_CHECKPOINT_NEVER;
        CHECK_OK(weir_table_new(&options, NULL, &table));
        CHECK_OK(weir__deps_new(table, &flow, test_allocator(), &deps));
        enum weir_receive receive = k < 10 ? WEIR_RECEIVE_IN_ORDER : WEIR_RECEIVE_LATE;
        CHECK_OK(weir__lower(table, &deps, receive, test_allocator(), &program));
        EXPECT(program.message_count > 0);
        expect_lowered(table, &program);
        weir__exchange_clean_up(&program);
        weir__deps_clean_up(&deps);
        weir_table_destroy(table);
    }
}

/* ---- every schedule ---- */

static void test_every_schedule_runs_over_every_link(void) {
    const char *name;
    for (uint32_t i = 0; (name = weir_schedule_name(i)) != NULL; i++) {
        uint32_t least = 0, tables = 0;
        for (uint32_t k = 0; k < 4 * 3 * 4; k++) {
            struct weir_table_options options = WEIR_TABLE_OPTIONS_INIT;
            struct weir_table *table = NULL;
            options.allocator = test_allocator();
            options.schedule = name;
            options.workers = 1 + k % 4;
            options.stages = options.workers * (1 + k / 4 % 3);
            options.micro_batches = 1 + k / 12 * 3;
            options.checkpoint = (enum weir_checkpoint)(1 + k % 3);
            if (weir_table_new(&options, NULL, &table) != WEIR_OK) continue;
            uint32_t late = 0;
            while (late < 3 && check(table, depths[late], WEIR_RECEIVE_LATE, NULL) != WEIR_OK) {
                late++;
            }
            for (size_t d = 0; d < sizeof depths / sizeof depths[0]; d++) {
                EXPECT_STATUS(check(table, depths[d], WEIR_RECEIVE_IN_ORDER, NULL), WEIR_OK);
            }
            EXPECT_STATUS(check(table, WEIR_LINKS_UNBOUNDED, WEIR_RECEIVE_LATE, NULL), WEIR_OK);
            least = late > least ? late : least;
            tables++;
            weir_table_destroy(table);
        }
        static const char *const needs[] = {"0", "1", "2", "more than 2"};
        printf("    %-11s %2u tables: in order over any link, late over links of depth %s\n", name,
               tables, needs[least]);
        EXPECT(tables > 0);
    }
}

/* ---- random tables, a second time ---- */

#define STAGES 4
#define BATCHES 4
#define OPERATIONS 512

/** `from` and the rest: what is sent, and who sends it to whom. */
struct operation {
    char kind; /* A(ction), S(end), R(eceive) */
    uint32_t message;
};

struct second {
    const struct weir_table *table;
    const struct weir_links_options *options;
    uint32_t worker_of[STAGES];
    uint32_t message_count;
    struct {
        uint32_t action, receiver, sender;
        bool skip;
    } messages[OPERATIONS];
    uint32_t length[STAGES];
    struct operation list[STAGES][OPERATIONS];
};

static uint32_t find(const struct second *second, uint32_t stage, uint32_t micro_batch,
                     const char *kinds) {
    const struct weir_table *table = second->table;
    for (uint32_t a = 0; a < table->action_count; a++) {
        char letter = weir__kinds[table->actions[a].kind].letter;
        if (table->actions[a].stage == stage && table->actions[a].micro_batch == micro_batch &&
            strchr(kinds, letter) != NULL) {
            return a;
        }
    }
    TEST_FAIL("no %s of stage %u", kinds, stage);
    return 0;
}

/* An action needs what another stage's action made. */
static void need(struct second *second, uint32_t action, uint32_t stage, const char *kinds,
                 bool skip) {
    uint32_t i = second->table->actions[action].micro_batch;
    uint32_t receiver = second->worker_of[second->table->actions[action].stage];
    uint32_t from = find(second, stage, i, kinds);
    if (second->worker_of[stage] == receiver) return;
    for (uint32_t m = 0; m < second->message_count; m++) {
        if (second->messages[m].action == from && second->messages[m].receiver == receiver &&
            second->messages[m].skip == skip) {
            return;
        }
    }
    uint32_t m = second->message_count++;
    second->messages[m].action = from;
    second->messages[m].receiver = receiver;
    second->messages[m].sender = second->worker_of[stage];
    second->messages[m].skip = skip;
    second->list[receiver][second->length[receiver]++] = (struct operation){'R', m};
}

static void need_inputs(struct second *second, uint32_t action, uint32_t stage) {
    if (stage > 0) need(second, action, stage - 1, "F", false);
    for (uint32_t k = 0; k < second->options->skip_count; k++) {
        const struct weir_skip_route *skip = &second->options->skips[k];
        for (uint32_t r = 0; r < skip->reader_count; r++) {
            if (skip->readers[r] == stage) need(second, action, skip->source, "F", true);
        }
    }
}

static void need_gradients(struct second *second, uint32_t action, uint32_t stage) {
    if (stage + 1 < second->table->stage_count) need(second, action, stage + 1, "BI", false);
    for (uint32_t k = 0; k < second->options->skip_count; k++) {
        const struct weir_skip_route *skip = &second->options->skips[k];
        for (uint32_t r = 0; skip->differentiable && r < skip->reader_count; r++) {
            uint32_t to = r == 0 ? skip->source : skip->readers[r - 1];
            if (to == stage) need(second, action, skip->readers[r], "BI", true);
        }
    }
}

/* Receives before their first reader; then sends are put behind what they send. */
static void lower_again(struct second *second) {
    const struct weir_table *table = second->table;
    for (uint32_t w = 0; w < table->worker_count; w++) {
        for (uint32_t a = table->lines[w]; a < table->lines[w + 1]; a++) {
            const struct weir_action *action = &table->actions[a];
            if (action->kind == WEIR_KIND_F) need_inputs(second, a, action->stage);
            if (action->kind == WEIR_KIND_B || action->kind == WEIR_KIND_I) {
                need_gradients(second, a, action->stage);
            }
            second->list[w][second->length[w]++] = (struct operation){'A', a};
        }
    }
    for (uint32_t w = 0; w < table->worker_count; w++) {
        struct operation old[OPERATIONS];
        uint32_t length = second->length[w], to = 0;
        memcpy(old, second->list[w], sizeof old);
        for (uint32_t k = 0; k < length; k++) {
            second->list[w][to++] = old[k];
            for (uint32_t m = 0; old[k].kind == 'A' && m < second->message_count; m++) {
                if (second->messages[m].action == old[k].message) {
                    second->list[w][to++] = (struct operation){'S', m};
                }
            }
        }
        second->length[w] = to;
    }
}

/* True if everybody comes to the end. */
static bool execute(const struct second *second, uint32_t depth) {
    uint32_t at[STAGES] = {0}, carried[STAGES][STAGES] = {{0}};
    bool sent[OPERATIONS] = {false}, moved = true;
    while (moved) {
        moved = false;
        for (uint32_t w = 0; w < second->table->worker_count && !moved; w++) {
            if (at[w] == second->length[w]) continue;
            const struct operation *own = &second->list[w][at[w]];
            uint32_t m = own->message, other = w;
            bool can = own->kind == 'A';
            if (own->kind == 'S' && depth == 0) {
                other = second->messages[m].receiver;
                const struct operation *there = &second->list[other][at[other]];
                can =
                    at[other] < second->length[other] && there->kind == 'R' && there->message == m;
                if (can) at[other]++;
            } else if (own->kind == 'S') {
                can = carried[w][second->messages[m].receiver] < depth;
                if (can) carried[w][second->messages[m].receiver]++, sent[m] = true;
            } else if (own->kind == 'R' && depth > 0 && sent[m]) {
                can = true;
                carried[second->messages[m].sender][w]--;
            }
            if (can) at[w]++, moved = true;
        }
    }
    for (uint32_t w = 0; w < second->table->worker_count; w++) {
        if (at[w] < second->length[w]) return false;
    }
    return true;
}

/** A table and links that it is judged by. */
struct random_case {
    struct weir_table *table;
    struct weir_links_options options;
    uint32_t readers[2][STAGES];
    struct weir_skip_route skips[2];
};

static void draw_skips(struct random_case *c, uint32_t stages) {
    c->options.skips = c->skips;
    while (stages > 1 && c->options.skip_count < 2 && test_random_below(2) == 0) {
        uint32_t k = c->options.skip_count++, count = 0;
        uint32_t source = (uint32_t)test_random_below(stages - 1);
        for (uint32_t s = source + 1; s < stages; s++) {
            if (test_random_below(2) == 0 || (s + 1 == stages && count == 0)) {
                c->readers[k][count++] = s;
            }
        }
        c->skips[k] =
            (struct weir_skip_route){source, count, c->readers[k], 0, test_random_below(3) > 0};
    }
}

/* A schedule's table whose rows are shuffled as long as it can be executed. */
static void draw_case(struct random_case *c) {
    static const char *const names[] = {"gpipe", "1f1b", "looped-bfs", "zb-h1", "zb-v"};
    struct weir_table_options options = WEIR_TABLE_OPTIONS_INIT;
    memset(c, 0, sizeof *c);
    c->options = (struct weir_links_options)WEIR_LINKS_OPTIONS_INIT;
    c->options.allocator = options.allocator = test_allocator();
    do {
        options.schedule = names[test_random_below(5)];
        options.stages = 1 + (uint32_t)test_random_below(STAGES);
        options.workers = 1 + (uint32_t)test_random_below(options.stages);
        options.micro_batches = 1 + (uint32_t)test_random_below(BATCHES);
        options.checkpoint = WEIR_CHECKPOINT_NEVER;
    } while (weir_table_new(&options, NULL, &c->table) != WEIR_OK);
    draw_skips(c, options.stages);
    struct weir_action *actions = weir__table_actions(c->table);
    for (uint32_t k = (uint32_t)test_random_below(30); k > 0; k--) {
        uint32_t a = (uint32_t)test_random_below(c->table->action_count - 1);
        struct weir_action moved = actions[a];
        actions[a] = actions[a + 1];
        actions[a + 1] = moved;
        if (weir_table_check(c->table, test_allocator(), NULL) == WEIR_OK) continue;
        actions[a + 1] = actions[a];
        actions[a] = moved;
    }
}

static void test_random_tables_are_judged_as_a_second_run_judges_them(void) {
    static struct second second;
    uint32_t stuck[4] = {0}, tables = 0;
    for (uint32_t i = 0; i < 3000; i++) {
        struct random_case c;
        draw_case(&c);
        memset(&second, 0, sizeof second);
        second.table = c.table;
        second.options = &c.options;
        for (uint32_t s = 0; s < STAGES; s++) second.worker_of[s] = UINT32_MAX;
        weir__table_workers(c.table, second.worker_of);
        lower_again(&second);
        for (size_t d = 0; d < sizeof depths / sizeof depths[0]; d++) {
            c.options.depth = depths[d];
            c.options.receive = WEIR_RECEIVE_IN_ORDER;
            EXPECT_STATUS(weir_table_check_links(c.table, &c.options, NULL), WEIR_OK);
            c.options.receive = WEIR_RECEIVE_LATE;
            bool ends = execute(&second, depths[d]);
            int status = weir_table_check_links(c.table, &c.options, NULL);
            EXPECT_STATUS(status, ends ? WEIR_OK : WEIR_ERR_SCHEDULE);
            stuck[d] += !ends;
        }
        tables++;
        weir_table_destroy(c.table);
        CHECK_HELPERS();
    }
    printf("    of %u random tables with late receives, %u deadlock over depth 0, %u over 1, %u "
           "over 2\n",
           tables, stuck[0], stuck[1], stuck[2]);
    EXPECT(stuck[0] > 500 && stuck[1] > 50 && stuck[3] == 0);
}

/* ---- refusals ---- */

static void test_what_cannot_be_is_refused(void) {
    struct weir_links_options options = WEIR_LINKS_OPTIONS_INIT;
    struct weir_faults faults = WEIR_FAULTS_INIT;
    struct weir_table *table = parse("0F0,0B0\n1F0,1B0");
    uint32_t reader = 0;
    struct weir_skip_route skip = {0, 1, &reader, 0, true};
    CHECK_HELPERS();
    faults.allocator = options.allocator = test_allocator();
    EXPECT_STATUS(weir_table_check_links(NULL, &options, NULL), WEIR_ERR_ARGUMENT);
    EXPECT_STATUS(weir_table_check_links(table, NULL, NULL), WEIR_ERR_ARGUMENT);
    options.skip_count = 1;
    options.skips = &skip;
    EXPECT_STATUS(weir_table_check_links(table, &options, &faults), WEIR_ERR_ARGUMENT);
    EXPECT_EQ_UINT(faults.count, 1);
    if (faults.kept > 0)
        EXPECT_CONTAINS(faults.lines[0], "skip 0: its readers must be stages after");
    options.skips = NULL;
    EXPECT_STATUS(weir_table_check_links(table, &options, &faults), WEIR_ERR_ARGUMENT);
    EXPECT_EQ_UINT(faults.count, 2);
    if (faults.kept > 1) EXPECT_CONTAINS(faults.lines[1], "skip_count is 1 but skips is NULL");
    weir_faults_clean_up(&faults);
    weir_table_destroy(table);
}

static void test_every_failed_allocation_is_reported(void) {
    struct weir_table *table = parse("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1");
    bool fired = true;
    CHECK_HELPERS();
    for (uint64_t k = 1; fired && k < 200; k++) {
        for (uint32_t receive = 0; receive < 2; receive++) {
            test_allocator_fail_at(k, false);
            int status = check(table, 1, (enum weir_receive)receive, NULL);
            fired = test_allocator_fired();
            test_allocator_fail_at(0, false);
            EXPECT_STATUS(status, fired ? WEIR_ERR_OUT_OF_MEMORY : WEIR_OK);
        }
    }
    EXPECT(!fired);
    weir_table_destroy(table);
}

WEIR_TEST_SUITE(links, TEST(known_tables_need_known_depths),
                TEST(a_circle_names_its_actions_in_order),
                TEST(sends_follow_and_receives_precede_their_actions),
                TEST(every_schedule_runs_over_every_link),
                TEST(random_tables_are_judged_as_a_second_run_judges_them),
                TEST(what_cannot_be_is_refused), TEST(every_failed_allocation_is_reported))
