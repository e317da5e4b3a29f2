/* SPDX-License-Identifier: MIT */
/* Validation: the first rows of what is held out, evaluated. */
#include "cmd/train.h"

#include <inttypes.h>
#include <math.h>

uint64_t train_eval_rows(const struct train *t) {
    const struct weir__dataset_facts *data = t->task.data;
    uint64_t batches = t->values->eval_batches, rows = data->held_out_rows;
    bool all = batches == 0 && data->kind == WEIR__DATA_ARRAYS;
    uint64_t wanted = (batches == 0 ? 16 : batches) * t->values->batch;
    if (!all && rows > wanted) rows = wanted;
    /* of text, whole mini-batches do */
    bool round = data->kind != WEIR__DATA_ARRAYS && rows >= t->values->batch;
    return round ? rows - rows % t->values->batch : rows;
}

int train_evaluate(struct train *t, struct task_score *score) {
    struct task_tally tally = {0};
    for (uint64_t first = 0; first < t->eval_rows; first += t->values->batch) {
        uint64_t left = t->eval_rows - first;
        uint32_t rows = left < t->values->batch ? (uint32_t)left : t->values->batch;
        int status = task_evaluate(&t->task, t->net, first, rows, &tally, t->error);
        if (status != WEIR_OK) return status;
    }
    *score = task_score_of(&tally);
    if (!isfinite(score->loss))
        fprintf(stderr,
                "weir: train: warning: the validation's loss after update %" PRIu64
                " is not finite: mend the held-out data, or lower --lr%s\n",
                t->progress.step,
                t->values->keep_best ? "; --keep-best passes such weights over" : "");
    return WEIR_OK;
}
