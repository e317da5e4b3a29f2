/* SPDX-License-Identifier: MIT */
#include "schedule/simulate_slowly_inside.h"

#include "schedule/facts.h"

#include <string.h>

static void add_action(struct slow *s, struct weir_action action, uint32_t stage, uint8_t kind) {
    action.stage = (uint16_t)stage;
    action.kind = kind;
    s->actions[s->all.action_count++] = action;
}

void slow_expand(struct slow *s) {
    const struct weir_table *own = s->options->table;
    s->all = (struct weir_table){.stage_count = s->replicas * s->each,
                                 .worker_count = s->replicas * own->worker_count,
                                 .micro_batch_count = own->micro_batch_count,
                                 .lines = s->rows,
                                 .actions = s->actions};
    for (uint32_t w = 0; w < s->all.worker_count; w++) {
        bool normed = false;
        s->rows[w] = s->all.action_count;
        uint32_t base = w / own->worker_count * s->each, row = w % own->worker_count;
        for (uint32_t a = own->lines[row]; a < own->lines[row + 1]; a++) {
            const struct weir_action action = own->actions[a];
            for (uint32_t t = s->each; action.kind == WEIR_KIND_U && !normed && t-- > 0;)
                for (uint32_t b = a; b < own->lines[row + 1]; b++)
                    if (own->actions[b].stage == t) add_action(s, action, base + t, WEIR_KIND_N);
            normed |= action.kind == WEIR_KIND_U;
            add_action(s, action, base + action.stage, action.kind);
        }
        s->rows[w + 1] = s->all.action_count;
    }
    if (s->replicas > 1) s->table = &s->all;
}

/* How many sums there are of the groups under a node of their tree. */
static uint32_t count_sums(const uint32_t *done, const uint32_t *all, uint32_t groups) {
    uint32_t whole = 0;
    for (uint32_t g = 0; g < groups; g++) whole += done[g] == all[g];
    if (groups == 1) return done[0] > 0;
    if (whole == groups) return 1;
    return count_sums(done, all, groups / 2) +
           count_sums(done + groups / 2, all + groups / 2, groups / 2);
}

void slow_sum_stage(struct slow *s, uint32_t stage) {
    uint32_t groups = s->shared->groups, count = s->table->micro_batch_count;
    uint32_t size = (count + groups - 1) / groups, done[16] = {0}, begun[16], all[16] = {0};
    for (uint32_t i = 0; i < count; i++) all[i / size] += 2; /* a half is a gradient under way */
    for (uint32_t a = 0; a < s->table->action_count; a++) {
        const struct weir_action *action = &s->table->actions[a];
        bool counts = strchr("BW", weir__kinds[action->kind].letter) != NULL;
        if (action->stage != stage || !counts) continue;
        uint32_t before = count_sums(done, all, groups);
        memcpy(begun, done, sizeof begun);
        begun[action->micro_batch / size] += 1;
        uint32_t with = count_sums(begun, all, groups);
        done[action->micro_batch / size] += 2;
        uint32_t after = count_sums(done, all, groups);
        s->sums_begun[a] = with - (before > 0 ? before : 1);
        s->sums_added[a] = with - after;
    }
}

void slow_share_seconds(struct slow *s, uint32_t a) {
    const struct weir_action *action = &s->table->actions[a];
    uint32_t stage = action->stage, replica = stage / s->each;
    const uint64_t *list = s->shared->gradient_bytes;
    uint64_t bytes = list != NULL ? list[stage % s->each] : 0,
             own = slow_slice(s, false, stage, replica);
    s->seconds[a] += (double)(s->sums_added[a] * bytes) * s->shared->add_seconds_per_byte;
    if (s->replicas == 1 || slow_find(s, "BW", stage, 0) < 0) return;
    if (action->kind == WEIR_KIND_N)
        s->seconds[a] += (s->replicas - 1) * (double)own * s->shared->add_seconds_per_byte;
    if (action->kind == WEIR_KIND_U && bytes > 0) s->seconds[a] *= (double)own / (double)bytes;
}
