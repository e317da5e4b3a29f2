/* SPDX-License-Identifier: MIT */
/* Where an update's numbers stopped being finite: its mini-batches again, looked at one after the
 * other: what goes in, the parameters, and every layer's results. The update was not made, so the
 * parameters are as it found them. */
#include "base/base.h"
#include "cmd/train.h"
#include "world/allreduce.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

enum { TEXT = 200 };

/* The first that is not finite; `count` where all are. */
static uint64_t first_bad(enum weir_dtype dtype, const void *numbers, uint64_t count) {
    uint64_t i = 0;
    while (i < count && isfinite(weir__number_at(dtype, numbers, i))) i++;
    return i;
}

/* Only arrays hold floats. `target`: it is the targets that are looked at. */
static bool explain_rows(const struct train *t, bool target, uint64_t mini_batch, char text[TEXT]) {
    const struct weir_tensor *row = target ? &t->task.target : &t->task.input;
    const void *numbers = target ? t->task.targets : t->task.inputs;
    uint32_t rows = t->values->batch;
    uint64_t size = 1;
    for (uint32_t d = 0; d < row->rank; d++) size *= (uint64_t)row->shape[d];
    if (!weir_dtype_is_float(row->dtype)) return false;
    uint64_t at = first_bad(row->dtype, numbers, size * rows);
    if (at == size * rows) return false;
    struct weir__dataset_origin origin = weir__dataset_origin_of(
        t->task.dataset, t->data_seed, mini_batch, rows, (uint32_t)(at / size));
    char path[96];
    snprintf(text, TEXT, "sample %" PRIu64 " of %s holds %g: mend the data", origin.sample,
             weir__path_text(target ? origin.target_path : origin.input_path, path),
             weir__number_at(row->dtype, numbers, at));
    return true;
}

/* Whether all ranks can go on with what they do together. */
static bool can_go_on(const struct train *t, bool can) {
    return weir__world_agree(ranks_world(&t->ranks), can ? WEIR_OK : WEIR_ERR_OUT_OF_MEMORY, 0,
                             "numbers", NULL) == WEIR_OK;
}

/* Room for the largest of them. */
static size_t parameter_bytes(const struct train *t) {
    size_t most = 1;
    for (uint32_t i = 0; i < weir_net_parameter_count(t->net); i++) {
        struct weir_parameter p;
        if (weir_net_parameter(t->net, i, &p) != WEIR_OK) continue;
        size_t bytes = (size_t)p.count * weir_dtype_bytes(p.dtype);
        most = bytes > most ? bytes : most;
    }
    return most;
}

static bool look_at_parameters(const struct train *t, void *numbers, char text[TEXT]) {
    for (uint32_t i = 0; i < weir_net_parameter_count(t->net); i++) {
        struct weir_parameter p;
        if (weir_net_parameter(t->net, i, &p) != WEIR_OK || !weir_dtype_is_float(p.dtype)) continue;
        size_t bytes = (size_t)p.count * weir_dtype_bytes(p.dtype);
        bool read =
            weir_pipe_read(weir_net_pipe(t->net), p.stage, numbers, p.data, bytes) == WEIR_OK;
        uint64_t at = read ? first_bad(p.dtype, numbers, p.count) : p.count;
        if (at == p.count) continue;
        snprintf(text, TEXT,
                 "parameter '%.80s' held %g before it: go on from an earlier checkpoint, or give "
                 "other weights",
                 p.name, weir__number_at(p.dtype, numbers, at));
        return true;
    }
    return false;
}

static bool explain_parameters(const struct train *t, char text[TEXT]) {
    void *numbers = malloc(parameter_bytes(t));
    bool found = can_go_on(t, numbers != NULL) && look_at_parameters(t, numbers, text);
    free(numbers);
    return found;
}

/* "layer 1 (gpt_block), forward of micro-batch 0: …" */
static bool explain_step(struct train *t, uint64_t mini_batch, char text[TEXT]) {
    struct weir_step_result result;
    struct weir_net_batch batch = WEIR_NET_BATCH_INIT;
    batch.rows = t->values->batch;
    batch.input = t->task.inputs;
    batch.target = t->task.targets;
    batch.mini_batch = mini_batch;
    batch.no_update = true;
    batch.look = true;
    if (weir_net_step(t->net, &batch, &result) != WEIR_ERR_NONFINITE) return false;
    const struct weir_error *error = &result.error;
    if (error->stage < 0) return false; /* only the norm of all is too large */
    snprintf(text, TEXT, "layer %.40s, %s of micro-batch %d: %.80s: lower --lr", error->layer,
             weir_phase_name(error->phase), error->micro_batch, error->message);
    return true;
}

static bool find(struct train *t, uint64_t first, char text[TEXT]) {
    const struct train_values *v = t->values;
    struct weir__io io = {.error = NULL};
    if (explain_parameters(t, text)) return true;
    for (uint64_t i = first; i < first + v->accumulate; i++) {
        int read = weir__dataset_read(t->task.dataset, &io, t->data_seed, i, v->batch,
                                      t->task.inputs, t->task.targets);
        if (!can_go_on(t, read == WEIR_OK)) return false;
        if (explain_rows(t, false, i, text) || explain_rows(t, true, i, text) ||
            explain_step(t, i, text))
            return true;
    }
    return false;
}

static void explain(struct train *t, uint64_t first, char text[TEXT]) {
    if (!find(t, first, text))
        snprintf(text, TEXT, "each number is, but not the norm of all: lower --lr");
}

void train_explain_failure(struct train *t) {
    char text[TEXT];
    explain(t, t->progress.mini_batch - (t->values->accumulate - 1), text);
    weir__fail(t->error, WEIR_ERR_NONFINITE,
               "update %" PRIu64 ": its gradient is not finite: %s, or go on without it by "
               "--on-nonfinite skip",
               t->progress.step + 1, text);
}

void train_explain_skip(struct train *t) {
    char text[TEXT];
    explain(t, t->progress.mini_batch - t->values->accumulate, text);
    fprintf(stderr,
            "weir: train: warning: update %" PRIu64 " is skipped, its gradient is not finite: "
            "%s\n",
            t->progress.step, text);
}
