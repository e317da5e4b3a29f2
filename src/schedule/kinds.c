/* SPDX-License-Identifier: MIT */
/*
 * The kinds of action, one entry each: what a kind reads and writes is all that the rest of
 * the engine knows of it, so that a new kind is an entry here and a callback.
 */
#include "schedule/action.h"

#include <inttypes.h>
#include <stdio.h>

/* F writes SAVED only where no R of the same stage and micro-batch does: the last kind that writes
 * an effect is its writer. */
const struct weir__kind_facts weir__kinds[WEIR_KIND_COUNT] = {
    [WEIR_KIND_F] = {.letter = 'F',
                     .name = "forward",
                     .phase = WEIR_FORWARD,
                     .reads = WEIR__INPUTS | WEIR__SKIPS_IN,
                     .writes =
                         WEIR__OUTPUTS | WEIR__SKIPS_OUT | WEIR__SAVED | WEIR__SAVED_FOR_INPUT,
                     .per_micro_batch = true,
                     .exported = true,
                     .plain = true,
                     .in_step = true},
    [WEIR_KIND_R] = {.letter = 'R',
                     .name = "recompute",
                     .phase = WEIR_RECOMPUTE,
                     .reads = WEIR__INPUTS | WEIR__SKIPS_IN,
                     .writes = WEIR__SAVED | WEIR__SAVED_FOR_INPUT,
                     .per_micro_batch = true,
                     .exported = true,
                     .in_step = true,
                     .of_backward = true,
                     .waits_gradient_late = true},
    [WEIR_KIND_B] = {.letter = 'B',
                     .name = "backward",
                     .phase = WEIR_BACKWARD,
                     .reads = WEIR__SAVED | WEIR__SAVED_FOR_INPUT | WEIR__OUTPUT_GRADS |
                              WEIR__SKIP_GRADS_IN,
                     .writes = WEIR__INPUT_GRADS | WEIR__SKIP_GRADS_OUT | WEIR__PARAM_GRADS,
                     .per_micro_batch = true,
                     .exported = true,
                     .plain = true,
                     .in_step = true,
                     .of_backward = true},
    [WEIR_KIND_I] = {.letter = 'I',
                     .name = "backward input",
                     .phase = WEIR_BACKWARD_INPUT,
                     .reads = WEIR__SAVED | WEIR__SAVED_FOR_INPUT | WEIR__OUTPUT_GRADS |
                              WEIR__SKIP_GRADS_IN,
                     .writes = WEIR__INPUT_GRADS | WEIR__SKIP_GRADS_OUT | WEIR__WEIGHT_INPUTS,
                     .per_micro_batch = true,
                     .exported = true,
                     .plain = true,
                     .in_step = true,
                     .of_backward = true},
    [WEIR_KIND_W] = {.letter = 'W',
                     .name = "backward weight",
                     .phase = WEIR_BACKWARD_WEIGHT,
                     .reads = WEIR__SAVED | WEIR__WEIGHT_INPUTS,
                     .writes = WEIR__PARAM_GRADS,
                     .per_micro_batch = true,
                     .exported = true,
                     .plain = true,
                     .in_step = true,
                     .of_backward = true},
    [WEIR_KIND_N] = {.letter = 'N',
                     .name = "norm",
                     .phase = WEIR_NORM,
                     .reads = WEIR__PARAM_GRADS | WEIR__TIED_GRADS,
                     .writes = WEIR__NORMS},
    [WEIR_KIND_U] = {.letter = 'U',
                     .name = "update",
                     .phase = WEIR_UPDATE,
                     .reads = WEIR__NORMS | WEIR__PARAM_GRADS,
                     .writes = WEIR__PARAMETERS,
                     .exported = true},
};

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
