/* SPDX-License-Identifier: MIT */
/*
 * Checkpoint modes: which micro-batches of a stage are recomputed. Upstream's names and meaning;
 * a table of modes, because names, counts and messages must never disagree.
 */
#include "schedule/schedules.h"

#include <inttypes.h>
#include <string.h>

static const char *const mode_names[] = {
    [WEIR_CHECKPOINT_DEFAULT] = "default",
    [WEIR_CHECKPOINT_ALWAYS] = "always",
    [WEIR_CHECKPOINT_EXCEPT_LAST] = "except_last",
    [WEIR_CHECKPOINT_NEVER] = "never",
};

int weir_checkpoint_parse(const char *text, enum weir_checkpoint *mode) {
    if (text == NULL || mode == NULL) return WEIR_ERR_ARGUMENT;
    for (uint32_t i = WEIR_CHECKPOINT_ALWAYS; i < WEIR__COUNT_OF(mode_names); i++) {
        if (strcmp(text, mode_names[i]) == 0) {
            *mode = (enum weir_checkpoint)i;
            return WEIR_OK;
        }
    }
    return WEIR_ERR_ARGUMENT;
}

const char *weir_checkpoint_name(enum weir_checkpoint mode) {
    uint32_t index = (uint32_t)mode;
    if (index >= WEIR__COUNT_OF(mode_names)) return "unknown";
    return mode_names[index == WEIR_CHECKPOINT_DEFAULT ? WEIR_CHECKPOINT_EXCEPT_LAST : index];
}

uint32_t weir_checkpoint_count(enum weir_checkpoint mode, uint32_t micro_batches) {
    if (mode == WEIR_CHECKPOINT_ALWAYS) return micro_batches;
    if (mode == WEIR_CHECKPOINT_NEVER || micro_batches == 0) return 0;
    return micro_batches - 1;
}

bool weir__checkpointed(const struct weir_table_options *options, uint32_t stage,
                        uint32_t micro_batch) {
    assert(stage < options->stages);
    enum weir_checkpoint mode = options->checkpoint;
    if (options->stage_checkpoint != NULL &&
        options->stage_checkpoint[stage] != WEIR_CHECKPOINT_DEFAULT)
        mode = options->stage_checkpoint[stage];
    return micro_batch < weir_checkpoint_count(mode, options->micro_batches);
}

void weir__checkpoint_check(const struct weir_table_options *options, struct weir_faults *faults) {
    if ((uint32_t)options->checkpoint > WEIR_CHECKPOINT_NEVER) {
        weir_faults_add(faults,
                        "checkpoint mode %d is unknown: choose always, except_last or never",
                        (int)options->checkpoint);
    }
    for (uint32_t s = 0; options->stage_checkpoint != NULL && s < options->stages; s++) {
        if ((uint32_t)options->stage_checkpoint[s] > WEIR_CHECKPOINT_NEVER) {
            weir_faults_add(faults,
                            "checkpoint mode %d of stage %" PRIu32
                            " is unknown: choose always, except_last or never",
                            (int)options->stage_checkpoint[s], s);
        }
    }
}
