/* SPDX-License-Identifier: MIT */
/* The kinds of action, one entry each, so that a new kind is an entry here and a callback; and what
 * a stage's costs say of each. */
#include "schedule/action.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define IN_STEP .per_micro_batch = true, .exported = true, .in_step = true
#define BACKWARD IN_STEP, .plain = true, .of_backward = true
#define NAMED(kind, own_letter, text)                                                              \
    [WEIR_KIND_##kind].letter = own_letter, [WEIR_KIND_##kind].name = text,

/* F writes SAVED only where no R of the same stage and micro-batch does: the last kind that writes
 * an effect is its writer. */
const struct weir__kind_facts weir__kinds[WEIR_KIND_COUNT] = {
    [WEIR_KIND_F] = {.phase = WEIR_FORWARD,
                     .reads = WEIR__INPUTS | WEIR__SKIPS_IN,
                     .writes =
                         WEIR__OUTPUTS | WEIR__SKIPS_OUT | WEIR__SAVED | WEIR__SAVED_FOR_INPUT,
                     .units = 1.0,
                     .background = 44,
                     IN_STEP,
                     .plain = true},
    [WEIR_KIND_R] = {.phase = WEIR_RECOMPUTE,
                     .reads = WEIR__INPUTS | WEIR__SKIPS_IN,
                     .writes = WEIR__SAVED | WEIR__SAVED_FOR_INPUT,
                     .units = 1.0,
                     .background = 43,
                     IN_STEP,
                     .of_backward = true,
                     .waits_gradient_late = true},
    [WEIR_KIND_B] = {.phase = WEIR_BACKWARD,
                     .reads = WEIR__SAVED | WEIR__SAVED_FOR_INPUT | WEIR__OUTPUT_GRADS |
                              WEIR__SKIP_GRADS_IN,
                     .writes = WEIR__INPUT_GRADS | WEIR__SKIP_GRADS_OUT | WEIR__PARAM_GRADS,
                     .units = 2.0,
                     .background = 42,
                     BACKWARD},
    [WEIR_KIND_I] = {.phase = WEIR_BACKWARD_INPUT,
                     .reads = WEIR__SAVED | WEIR__SAVED_FOR_INPUT | WEIR__OUTPUT_GRADS |
                              WEIR__SKIP_GRADS_IN,
                     .writes = WEIR__INPUT_GRADS | WEIR__SKIP_GRADS_OUT | WEIR__WEIGHT_INPUTS,
                     .units = 1.0,
                     .background = 42,
                     BACKWARD},
    [WEIR_KIND_W] = {.phase = WEIR_BACKWARD_WEIGHT,
                     .reads = WEIR__SAVED | WEIR__WEIGHT_INPUTS,
                     .writes = WEIR__PARAM_GRADS,
                     .units = 1.0,
                     .background = 46,
                     BACKWARD},
    [WEIR_KIND_N] = {.phase = WEIR_NORM,
                     .reads = WEIR__PARAM_GRADS | WEIR__TIED_GRADS,
                     .writes = WEIR__NORMS,
                     .units = 0.5,
                     .background = 45},
    [WEIR_KIND_U] = {.phase = WEIR_UPDATE,
                     .reads = WEIR__NORMS | WEIR__PARAM_GRADS,
                     .writes = WEIR__PARAMETERS,
                     .units = 0.5,
                     .background = 45,
                     .exported = true},
    WEIR_KIND_MAP(NAMED)};
#undef NAMED
#undef BACKWARD
#undef IN_STEP

void weir__unit_seconds(double seconds[WEIR_KIND_COUNT]) {
    for (uint32_t kind = 0; kind < WEIR_KIND_COUNT; kind++)
        seconds[kind] = weir__kinds[kind].in_step ? weir__kinds[kind].units : 0.0;
}

const struct weir_link_cost *weir__link_between(const struct weir_simulate_options *costs,
                                                uint32_t worker_count, uint32_t from, uint32_t to) {
    const struct weir_rank_links *ranks = costs->ranks;
    assert(from < worker_count && to < worker_count);
    if (weir__crosses_ranks(costs, worker_count, from, to))
        return &ranks->costs[(size_t)weir__dealt_rank(ranks->rank_count, worker_count, from) *
                                 ranks->rank_count +
                             weir__dealt_rank(ranks->rank_count, worker_count, to)];
    uint32_t each = costs->shared != NULL ? worker_count / costs->shared->replicas : worker_count;
    if (costs->links == NULL || from / each != to / each) return &costs->link;
    return &costs->links[(size_t)(from % each) * each + to % each];
}

double weir__copy_seconds(const struct weir_simulate_options *costs, uint32_t worker_count,
                          uint32_t from, uint32_t to, uint64_t bytes) {
    if (from == to || from == UINT32_MAX || to == UINT32_MAX) return 0.0;
    const struct weir_link_cost *link = weir__link_between(costs, worker_count, from, to);
    return link->latency + (double)bytes * link->seconds_per_byte;
}

struct weir__stage_facts weir__stage_facts_of(const struct weir_simulate_options *costs, uint32_t s,
                                              uint32_t worker, bool backward, bool crosses) {
    struct weir__stage_facts facts = {.worker = worker, .backward = backward};
    const double *seconds = costs->kind_seconds;
    if (costs->stage_seconds != NULL) seconds = &costs->stage_seconds[(size_t)s * WEIR_KIND_COUNT];
    memcpy(facts.seconds, seconds, sizeof facts.seconds);
    for (uint32_t kind = 0; costs->worker_paces != NULL && kind < WEIR_KIND_COUNT; kind++)
        facts.seconds[kind] *= costs->worker_paces[worker];
    if (crosses && weir__no_backward(costs->no_backward, s)) facts.ahead = costs->ahead;
    if (!backward) return facts;
    if (costs->saved_bytes != NULL) facts.saved[WEIR__BYTES] = costs->saved_bytes[s];
    if (costs->kept_bytes != NULL) facts.kept[WEIR__BYTES] = costs->kept_bytes[s];
    facts.kept[WEIR__ACTIVATIONS] = 1;
    return facts;
}

const char *weir__action_text(const struct weir_action *action, char text[24]) {
    assert(action->kind < WEIR_KIND_COUNT);
    const struct weir__kind_facts *kind = &weir__kinds[action->kind];
    if (kind->per_micro_batch) {
        snprintf(text, 24, "%u%c%" PRIu32, (unsigned)action->stage, kind->letter,
                 action->micro_batch);
    } else {
        snprintf(text, 24, "%u%c", (unsigned)action->stage, kind->letter);
    }
    return text;
}
