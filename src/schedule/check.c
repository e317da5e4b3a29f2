/* SPDX-License-Identifier: MIT */
/*
 * The proof that a table can be executed and does everything once. First what stands in it (numbers
 * in range, one line per stage, nothing twice, nothing missing, order within a micro-batch), then
 * whether the derived dependencies let every line reach its end. The second is checked even where
 * actions are missing: adding them cannot undo a circle of waits.
 */
#include "schedule/derive.h"
#include "schedule/walk.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* A table is indexed densely unless it is so far from complete that a sentence says all: a complete
 * one has two actions and more per stage and micro-batch. */
#define CELLS_PER_ACTION_MAX 1u
#define CELLS_FREE 4096u

struct check {
    const struct weir_table *table;
    const struct weir__flow *flow;
    const struct weir_allocator *allocator;
    struct weir_faults *faults;
    struct weir__table_index index;
    bool *split;    /**< [stage]: it was said that this stage stands in two lines */
    uint32_t count; /**< faults so far */
    bool ambiguous; /**< a duplicate, a stage in two lines, a number out of range: dependencies
                             mean nothing */
};

#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
static void
report(struct check *check, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    weir__faults_add_list(check->faults, format, arguments);
    va_end(arguments);
    check->count++;
}

/* ---- what stands in the table ---- */

/* The counts and line offsets, which everything else relies on. */
static void check_frame(struct check *check) {
    const struct weir_table *table = check->table;
    if (table->stage_count == 0 || table->stage_count > UINT16_MAX || table->worker_count == 0 ||
        table->micro_batch_count == 0) {
        report(check,
               "a table of %" PRIu32 " stage%s, %" PRIu32 " worker%s and %" PRIu32
               " micro-batch%s: there must be at least one of each and at most %d stages",
               table->stage_count, weir__s(table->stage_count), table->worker_count,
               weir__s(table->worker_count), table->micro_batch_count,
               weir__es(table->micro_batch_count), UINT16_MAX);
        return;
    }
    if (check->flow->stage_count != table->stage_count) {
        report(check, "the table has %" PRIu32 " stage%s, the pipe has %" PRIu32,
               table->stage_count, weir__s(table->stage_count), check->flow->stage_count);
    }
    bool whole = table->lines[0] == 0 && table->lines[table->worker_count] == table->action_count;
    for (uint32_t w = 0; w < table->worker_count; w++)
        whole = whole && table->lines[w] <= table->lines[w + 1];
    if (!whole) {
        report(check, "the lines do not divide the table's %" PRIu32 " action%s",
               table->action_count, weir__s(table->action_count));
    }
}

/* Too sparse to be worth an index: memory must follow what the table holds, not what it claims. */
static void check_density(struct check *check) {
    const struct weir_table *table = check->table;
    uint64_t cells = (uint64_t)table->stage_count * table->micro_batch_count;
    uint64_t limit = (uint64_t)table->action_count * CELLS_PER_ACTION_MAX + CELLS_FREE;
    if (cells > limit) {
        uint64_t backwards = check->flow->infer ? 0 : table->stage_count;
        for (uint32_t s = 0; backwards > 0 && s < table->stage_count; s++)
            backwards -= weir__no_backward(check->flow->no_backward, s);
        report(check,
               "%" PRIu32 " stage%s and %" PRIu32 " micro-batch%s need at least %" PRIu64
               " actions, the table has %" PRIu32,
               table->stage_count, weir__s(table->stage_count), table->micro_batch_count,
               weir__es(table->micro_batch_count), cells + backwards * table->micro_batch_count,
               table->action_count);
    }
}

/* True if the action's numbers say something. */
static bool check_numbers(struct check *check, uint32_t at, uint32_t worker) {
    assert(worker < check->table->worker_count && at < check->table->action_count);
    const struct weir_table *table = check->table;
    const struct weir_action *action = &table->actions[at];
    char text[24];
    if (action->kind >= WEIR_KIND_COUNT) {
        report(check, "worker %" PRIu32 ", action %" PRIu32 ": there is no kind %u", worker,
               at - table->lines[worker], (unsigned)action->kind);
        return false;
    }
    if (action->stage >= table->stage_count) {
        report(check, "worker %" PRIu32 ": %s is of stage %u, the last one is %" PRIu32, worker,
               weir__action_text(action, text), (unsigned)action->stage, table->stage_count - 1);
        return false;
    }
    bool numbered = weir__kinds[action->kind].per_micro_batch;
    if (action->micro_batch >= (numbered ? table->micro_batch_count : 1)) {
        report(check,
               "worker %" PRIu32 ": %s is of micro-batch %" PRIu32 ", the last one is %" PRIu32,
               worker, weir__action_text(action, text), action->micro_batch,
               numbered ? table->micro_batch_count - 1 : 0);
        return false;
    }
    return true;
}

static void check_line_of_stage(struct check *check, uint32_t at, uint32_t worker) {
    const struct weir_action *action = &check->table->actions[at];
    assert(action->stage < check->table->stage_count);
    uint32_t *owner = &check->index.worker[action->stage];
    if (*owner == UINT32_MAX) {
        *owner = worker;
    } else if (*owner != worker) {
        check->ambiguous = true;
        if (!check->split[action->stage]) {
            char text[24];
            report(check,
                   "stage %u stands in the lines of worker %" PRIu32 " and worker %" PRIu32
                   " (%s): give all its actions to one worker",
                   (unsigned)action->stage, *owner, worker, weir__action_text(action, text));
            check->split[action->stage] = true;
        }
    }
}

static void check_duplicate(struct check *check, uint32_t at, uint32_t worker) {
    const struct weir_action *action = &check->table->actions[at];
    uint32_t older = weir__table_index_put(&check->index, action, at);
    if (older != WEIR__NO_ACTION) {
        char text[24];
        check->ambiguous = true;
        report(check, "%s stands twice: worker %" PRIu32 " and worker %" PRIu32,
               weir__action_text(action, text), weir__table_worker_of(check->table, older), worker);
    }
}

/* `*update` is the line's first U, or NO_ACTION so far. */
static void check_tail(struct check *check, uint32_t at, uint32_t worker, uint32_t *update) {
    const struct weir_action *action = &check->table->actions[at];
    char text[24], other[24];
    if (weir__writes(action->kind, WEIR__PARAMETERS)) {
        *update = *update == WEIR__NO_ACTION ? at : *update;
    } else if (*update != WEIR__NO_ACTION) {
        report(check, "worker %" PRIu32 ": %s stands behind %s: updates end a line", worker,
               weir__action_text(action, text),
               weir__action_text(&check->table->actions[*update], other));
    }
}

static void check_line(struct check *check, uint32_t worker) {
    assert(worker < check->table->worker_count);
    const struct weir_table *table = check->table;
    uint32_t update = WEIR__NO_ACTION;
    if (table->lines[worker] == table->lines[worker + 1])
        report(check, "worker %" PRIu32 " has nothing to do: leave its line out", worker);
    for (uint32_t a = table->lines[worker]; a < table->lines[worker + 1]; a++) {
        if (!check_numbers(check, a, worker)) {
            check->ambiguous = true;
            continue;
        }
        if (check->flow->infer && !weir__writes(table->actions[a].kind, WEIR__OUTPUTS)) {
            char text[24];
            report(check, "worker %" PRIu32 ": %s: only forwards run in inference", worker,
                   weir__action_text(&table->actions[a], text));
        }
        check_line_of_stage(check, a, worker);
        check_duplicate(check, a, worker);
        check_tail(check, a, worker, &update);
    }
}

/* ---- what is missing, and the order within one stage and micro-batch ---- */

/* Of two kinds, the later one must not stand first if it reads what the other leaves for it, or
 * writes it anew. */
static void check_pair(struct check *check, uint32_t before, uint32_t after) {
    const struct weir_action *actions = check->table->actions;
    const struct weir__kind_facts *kind = &weir__kinds[actions[after].kind];
    uint32_t left = (kind->reads | kind->writes) & (WEIR__SAVED_FOR_INPUT | WEIR__WEIGHT_INPUTS);
    char text[24], other[24];
    if (after > before || !weir__writes(actions[before].kind, left)) return;
    report(check, "%s stands before %s", weir__action_text(&actions[after], text),
           weir__action_text(&actions[before], other));
}

static void check_order(struct check *check, uint32_t stage, uint32_t micro_batch) {
    assert(!check->ambiguous);
    uint32_t at[WEIR_KIND_COUNT], count = 0;
    for (uint32_t kind = 0; kind < WEIR_KIND_COUNT; kind++) {
        at[count] = weir__table_index_get(&check->index, stage, micro_batch, (enum weir_kind)kind);
        count += at[count] != WEIR__NO_ACTION;
    }
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t j = i + 1; j < count; j++) check_pair(check, at[i], at[j]);
}

/* Each kind of it is told once, at its first micro-batch. */
static void check_no_backward(struct check *check, uint32_t s) {
    for (uint32_t kind = 0; kind < WEIR_KIND_COUNT; kind++) {
        uint32_t i = 0, m = weir__kinds[kind].of_backward ? check->table->micro_batch_count : 0;
        while (i < m &&
               weir__table_index_get(&check->index, s, i, (enum weir_kind)kind) == WEIR__NO_ACTION)
            i++;
        if (i < m) {
            report(check,
                   "%" PRIu32 "%c%" PRIu32 ": stage %" PRIu32 " has no backward: leave it out", s,
                   weir__kinds[kind].letter, i, s);
        }
    }
}

static void check_backward(struct check *check, uint32_t s, uint32_t i) {
    bool b = weir__table_index_get(&check->index, s, i, WEIR_KIND_B) != WEIR__NO_ACTION;
    bool input = weir__table_index_get(&check->index, s, i, WEIR_KIND_I) != WEIR__NO_ACTION;
    bool weight = weir__table_index_get(&check->index, s, i, WEIR_KIND_W) != WEIR__NO_ACTION;
    if (b && (input || weight)) {
        report(check,
               "%" PRIu32 "B%" PRIu32 " and %" PRIu32 "%c%" PRIu32
               " do the same work: it is one B, or one I then one W",
               s, i, s, input ? 'I' : 'W', i);
    } else if (!b && !input && !weight) {
        report(check, "%" PRIu32 "B%" PRIu32 " is missing", s, i);
    } else if (!b && input != weight) {
        report(check,
               "%" PRIu32 "%c%" PRIu32 " is missing: %" PRIu32 "%c%" PRIu32
               " does half of a backward",
               s, input ? 'W' : 'I', i, s, input ? 'I' : 'W', i);
    }
}

static void check_stage(struct check *check, uint32_t stage) {
    assert(stage < check->table->stage_count);
    if (check->index.worker[stage] == UINT32_MAX) {
        report(check, "stage %" PRIu32 " has no action", stage);
        return;
    }
    bool frozen = weir__no_backward(check->flow->no_backward, stage);
    if (frozen) check_no_backward(check, stage);
    for (uint32_t i = 0; i < check->table->micro_batch_count; i++) {
        if (weir__table_index_writer(&check->index, stage, i, WEIR__OUTPUTS) == WEIR__NO_ACTION)
            report(check, "%" PRIu32 "F%" PRIu32 " is missing", stage, i);
        if (!check->flow->infer && !frozen) check_backward(check, stage, i);
        if (!check->ambiguous) check_order(check, stage, i);
    }
}

/* ---- waiting in a circle ---- */

/* `worker 1 waits at 2B0 for 3B0, which stands behind 3F1` into `text`; returns the worker that is
 * waited for. */
static uint32_t describe_wait(const struct weir__walk *walk, uint32_t worker, char *text,
                              size_t capacity) {
    assert(walk->waits_for[worker] < walk->table->action_count);
    const struct weir_action *actions = walk->table->actions;
    uint32_t action = walk->waits_for[worker];
    uint32_t next = weir__table_worker_of(walk->table, action);
    uint32_t head = walk->cursor[next];
    char at[24], wanted[24], first[24];
    snprintf(text, capacity, "worker %" PRIu32 " waits at %s for %s%s%s", worker,
             weir__action_text(&actions[walk->cursor[worker]], at),
             weir__action_text(&actions[action], wanted),
             action != head ? ", which stands behind " : "",
             action != head ? weir__action_text(&actions[head], first) : "");
    return next;
}

/* True for a circle of one worker that was reported already: the order within a micro-batch, or
 * work behind an update. */
static bool told_before(const struct weir__walk *walk, uint32_t worker) {
    uint32_t action = walk->waits_for[worker];
    const struct weir_action *at = &walk->table->actions[walk->cursor[worker]];
    const struct weir_action *wanted = &walk->table->actions[action];
    if (weir__table_worker_of(walk->table, action) != worker) return false;
    return weir__writes(at->kind, WEIR__PARAMETERS) ||
           (at->stage == wanted->stage && at->micro_batch == wanted->micro_batch &&
            weir__kinds[at->kind].per_micro_batch);
}

static void report_circle(struct check *check, const struct weir__walk *walk, uint32_t first) {
    char line[440], wait[128];
    size_t used = 0;
    uint32_t worker = first;
    if (told_before(walk, first)) return;
    do {
        worker = describe_wait(walk, worker, wait, sizeof wait);
        if (used + strlen(wait) + 8 > sizeof line) {
            snprintf(line + used, sizeof line - used, "; ...");
            break;
        }
        used +=
            (size_t)snprintf(line + used, sizeof line - used, "%s%s", used > 0 ? "; " : "", wait);
    } while (worker != first);
    report(check, "deadlock: %s", line);
}

/* From each stuck worker along who waits for whom: each path ends in a circle, told once. `met` is
 * zeroed, one per worker: the path that came by. */
static void report_circles(struct check *check, const struct weir__walk *walk, uint32_t *met) {
    const struct weir_table *table = check->table;
    for (uint32_t w = 0; w < table->worker_count; w++) {
        uint32_t path = w + 1, at = w;
        while (walk->cursor[at] < table->lines[at + 1] && met[at] == 0) {
            met[at] = path;
            at = weir__table_worker_of(table, walk->waits_for[at]);
        }
        if (walk->cursor[at] < table->lines[at + 1] && met[at] == path)
            report_circle(check, walk, at);
    }
}

static int walk_through(struct check *check, const struct weir__deps *deps) {
    struct weir__walk walk;
    int status = weir__walk_init(&walk, check->table, deps, check->allocator);
    if (status != WEIR_OK) return status;
    uint32_t workers = check->table->worker_count, action = 0;
    while (weir__walk_next(&walk, &action)) {}
    if (walk.done_count < check->table->action_count) {
        uint32_t *met = weir__acquire(check->allocator, workers, sizeof *met);
        if (met != NULL) report_circles(check, &walk, met);
        status = met == NULL ? WEIR_ERR_OUT_OF_MEMORY : WEIR_OK;
        weir__release(check->allocator, met, workers, sizeof *met);
    }
    weir__walk_clean_up(&walk);
    return status;
}

static int check_deadlock(struct check *check) {
    assert(!check->ambiguous);
    struct weir__deps deps;
    int status =
        weir__deps_derive(check->table, &check->index, check->flow, check->allocator, &deps);
    if (status != WEIR_OK) return status;
    status = walk_through(check, &deps);
    weir__deps_clean_up(&deps);
    return status;
}

/* ---- all of it ---- */

static int check_contents(struct check *check) {
    assert(check->count == 0 && check->split == NULL);
    const struct weir_table *table = check->table;
    int status = weir__table_index_init(&check->index, table, check->allocator);
    if (status != WEIR_OK) return status;
    check->split = weir__acquire(check->allocator, table->stage_count, sizeof *check->split);
    if (check->split == NULL) {
        weir__table_index_clean_up(&check->index);
        return WEIR_ERR_OUT_OF_MEMORY;
    }
    for (uint32_t w = 0; w < table->worker_count; w++) check_line(check, w);
    for (uint32_t s = 0; s < table->stage_count; s++) check_stage(check, s);
    if (!check->ambiguous) status = check_deadlock(check);
    weir__release(check->allocator, check->split, table->stage_count, sizeof *check->split);
    weir__table_index_clean_up(&check->index);
    return status;
}

int weir__table_check_flow(const struct weir_table *table, const struct weir__flow *flow,
                           const struct weir_allocator *allocator, struct weir_faults *faults) {
    struct check check = {.table = table, .flow = flow, .allocator = allocator, .faults = faults};
    check_frame(&check);
    if (check.count == 0) check_density(&check);
    int status = check.count == 0 ? check_contents(&check) : WEIR_OK;
    if (status != WEIR_OK) return status;
    return check.count == 0 ? WEIR_OK : WEIR_ERR_SCHEDULE;
}

int weir_table_check(const struct weir_table *table, const struct weir_allocator *allocator,
                     struct weir_faults *faults) {
    if (table == NULL) return WEIR_ERR_ARGUMENT;
    struct weir__flow flow = {.stage_count = table->stage_count};
    return weir__table_check_flow(table, &flow, allocator, faults);
}
