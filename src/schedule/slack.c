/* SPDX-License-Identifier: MIT */
/*
 * Recomputation in slack. An R moves into a wait that is long enough for it, but past no action
 * that frees saved activations. Between two such actions the live set only grows. So what is live
 * right behind the R's old place contains all that is ever live after the move, and no peak rises,
 * whatever the stages' sizes are. The R, and what it passes, end no later than before, so no start
 * moves back.
 */
#include "schedule/schedules.h"

#define PASSES_MAX 4u

struct slack {
    struct weir_action *actions;
    double *start, *end; /**< by action */
    uint32_t stop;       /**< of the line's part at hand: the next B, I or W, or the line's end */
    uint32_t next;       /**< the first R of the part that is not passed, or `stop` */
    uint32_t earliest;   /**< where that R may go: behind its own F */
    uint32_t moved;
};

/* B and W free what is left of it, I what W does not read. */
static bool frees(const struct weir_action *action) {
    return weir__reads(action->kind, WEIR__SAVED);
}

static bool recomputes(const struct weir_action *action) {
    return weir__pass_of(action->kind) == WEIR__PASS_RECOMPUTE;
}

/* The first R at `from` or behind, and how far it may go; the part begins at `begin`. */
static void find_next(struct slack *slack, uint32_t begin, uint32_t from) {
    assert(begin <= from && from <= slack->stop);
    uint32_t next = from;
    while (next < slack->stop && !recomputes(&slack->actions[next])) next++;
    slack->next = next;
    slack->earliest = begin;
    for (uint32_t a = next; next < slack->stop && a-- > begin;) {
        const struct weir_action *action = &slack->actions[a];
        if (weir__writes(action->kind, WEIR__OUTPUTS) &&
            action->stage == slack->actions[next].stage &&
            action->micro_batch == slack->actions[next].micro_batch) {
            slack->earliest = a + 1;
            return;
        }
    }
}

/* Takes the next R out and puts it in at `to`, from `free` on. */
static void move_next(struct slack *slack, uint32_t to, double free) {
    assert(to < slack->next && slack->next < slack->stop);
    assert(recomputes(&slack->actions[slack->next]));
    struct weir_action action = slack->actions[slack->next];
    double duration = slack->end[slack->next] - slack->start[slack->next];
    for (uint32_t a = slack->next; a > to; a--) {
        slack->actions[a] = slack->actions[a - 1];
        slack->start[a] = slack->start[a - 1];
        slack->end[a] = slack->end[a - 1];
    }
    slack->actions[to] = action;
    slack->start[to] = free;
    slack->end[to] = free + duration;
    slack->moved++;
}

/* One part of a line, whose first action may be the line's: nothing stands before that. */
static void fill_part(struct slack *slack, uint32_t line, uint32_t begin) {
    assert(line <= begin && begin <= slack->stop);
    find_next(slack, begin, begin);
    for (uint32_t a = begin; a < slack->stop && slack->next < slack->stop; a++) {
        if (a >= slack->next) find_next(slack, begin, a + 1);
        double free = a > line ? slack->end[a - 1] : 0.0;
        bool fits = slack->next < slack->stop && a > line && a >= slack->earliest &&
                    slack->start[a] - free >= slack->end[slack->next] - slack->start[slack->next];
        if (fits) {
            move_next(slack, a, free);
            find_next(slack, begin, slack->next + 1);
        }
    }
}

static void fill_lines(const struct weir_table *table, struct slack *slack) {
    assert(slack->start != NULL && slack->end != NULL);
    for (uint32_t w = 0; w < table->worker_count; w++) {
        uint32_t line = table->lines[w], begin = line;
        while (begin < table->lines[w + 1]) {
            slack->stop = begin;
            while (slack->stop < table->lines[w + 1] && !frees(&slack->actions[slack->stop]))
                slack->stop++;
            fill_part(slack, line, begin);
            begin = slack->stop + 1;
        }
    }
}

/* One replay, and what fits into its waits. `times` has room for three numbers per action. */
static int fill_once(const struct weir_table *table, const double *seconds, double *times,
                     struct slack *slack, const struct weir_allocator *allocator) {
    struct weir__flow flow = {.stage_count = table->stage_count};
    struct weir__deps deps;
    double *duration = times;
    int status = weir__deps_new(table, &flow, allocator, &deps);
    if (status != WEIR_OK) return status;
    for (uint32_t a = 0; a < table->action_count; a++) {
        const struct weir_action *action = &table->actions[a];
        duration[a] = weir__kinds[action->kind].units;
        if (seconds != NULL)
            duration[a] = seconds[action->stage * (size_t)WEIR_KIND_COUNT + action->kind];
    }
    slack->start = duration + table->action_count;
    slack->end = slack->start + table->action_count;
    status =
        weir__table_replay(table, &deps, duration, NULL, slack->start, slack->end, NULL, allocator);
    weir__deps_clean_up(&deps);
    slack->moved = 0;
    if (status != WEIR_OK) return status;
    fill_lines(table, slack);
    return WEIR_OK;
}

static bool has_recompute(const struct weir_table *table) {
    for (uint32_t a = 0; a < table->action_count; a++) {
        if (recomputes(&table->actions[a])) return true;
    }
    return false;
}

int weir__recompute_in_slack(struct weir_table *table, const double *seconds,
                             const struct weir_allocator *allocator) {
    if (!has_recompute(table)) return WEIR_OK;
    size_t room = 3 * (size_t)table->action_count;
    double *times = weir__acquire(allocator, room, sizeof *times);
    struct slack slack = {.actions = weir__table_actions(table)};
    int status = WEIR_OK;
    if (times == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    for (uint32_t pass = 0; pass < PASSES_MAX; pass++) {
        status = fill_once(table, seconds, times, &slack, allocator);
        if (status != WEIR_OK || slack.moved == 0) break;
    }
    weir__release(allocator, times, room, sizeof *times);
    return status;
}
