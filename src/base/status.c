/* SPDX-License-Identifier: MIT */
/* Statuses and phases as text, and the error record: all from the tables in weir.h, so that a new
 * entry there needs no change here. */
#include "base/base.h"

#include <stdarg.h>
#include <stdio.h>

#define TEXT_OF(number) #number
#define VERSION_TEXT(major, minor, patch) TEXT_OF(major) "." TEXT_OF(minor) "." TEXT_OF(patch)

const char *weir_status_name(int status) {
    if (status > 0) return "ERR_CALLBACK";
    switch (status) {
#define STATUS_NAME(name, value, text)                                                             \
    case value: return #name;
        WEIR_STATUS_MAP(STATUS_NAME)
#undef STATUS_NAME
    default: return "UNKNOWN";
    }
}

const char *weir_status_text(int status) {
    if (status > 0) status = WEIR_ERR_CALLBACK;
    switch (status) {
#define STATUS_TEXT(name, value, text)                                                             \
    case value: return text;
        WEIR_STATUS_MAP(STATUS_TEXT)
#undef STATUS_TEXT
    default: return "unknown status";
    }
}

const char *weir_version(void) {
    return VERSION_TEXT(WEIR_VERSION_MAJOR, WEIR_VERSION_MINOR, WEIR_VERSION_PATCH);
}

const char *weir_phase_name(enum weir_phase phase) {
    static const char *const names[] = {
        [WEIR_FORWARD] = "forward",
        [WEIR_FORWARD_CHECKPOINT] = "forward under checkpoint",
        [WEIR_RECOMPUTE] = "recompute",
        [WEIR_BACKWARD] = "backward",
        [WEIR_BACKWARD_INPUT] = "backward input",
        [WEIR_BACKWARD_WEIGHT] = "backward weight",
        [WEIR_NORM] = "norm",
        [WEIR_UPDATE] = "update",
        [WEIR_INFER] = "infer",
    };
    _Static_assert(WEIR__COUNT_OF(names) == WEIR_PHASE_COUNT, "every phase has a name");
    if (phase == WEIR_PHASE_COUNT) return "none";
    return (size_t)phase < WEIR_PHASE_COUNT ? names[phase] : "unknown";
}

bool weir_task_is_checkpointing(const struct weir_task *task) {
    return task->phase == WEIR_FORWARD_CHECKPOINT;
}

bool weir_task_is_recomputing(const struct weir_task *task) {
    return task->phase == WEIR_RECOMPUTE;
}

void weir__error_clear(struct weir_error *error) {
    if (error == NULL) return;
    *error = (struct weir_error){
        .status = WEIR_OK, .stage = -1, .micro_batch = -1, .phase = WEIR_PHASE_COUNT};
}

int weir__fail(struct weir_error *error, int status, const char *format, ...) {
    assert(status != WEIR_OK);
    assert(format != NULL);
    if (error == NULL) return status;
    error->status = status;
    char text[sizeof error->message];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    weir__text_visible(length < 0 ? "" : text, error->message, sizeof error->message);
    return status;
}
