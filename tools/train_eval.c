/* SPDX-License-Identifier: MIT */
/* Validation: the loss on what is held out, and for images how often the model is right. */
#include "net_run.h"
#include "train.h"

#include <math.h>

/* What is counted over all rows. */
struct tally {
    double loss, weight; /* sum of losses times weights */
    uint64_t right, labels;
    uint64_t both, either; /* numbers that are of the mask by both, by one or the other */
};

static double output_at(const struct train *t, uint64_t index) {
    return t->output.dtype == WEIR_F64 ? ((const double *)t->outputs)[index]
                                       : (double)((const float *)t->outputs)[index];
}

static double target_at(const struct train *t, uint64_t index) {
    return t->target.dtype == WEIR_F64 ? ((const double *)t->targets)[index]
                                       : (double)((const float *)t->targets)[index];
}

static uint64_t count_targets(const struct train *t, uint32_t rows) {
    uint64_t count = rows;
    for (uint32_t i = 0; i < t->target.rank; i++) count *= (uint64_t)t->target.shape[i];
    return count;
}

/* The first of the largest logits is the answer. */
static void count_labels(const struct train *t, uint32_t rows, struct tally *tally) {
    const int64_t *labels = t->targets;
    uint64_t count = count_targets(t, rows), classes = (uint64_t)t->classes;
    for (uint64_t i = 0; i < count; i++) {
        if (labels[i] == weir_model_ignored(t->model)) continue;
        uint64_t best = 0;
        for (uint64_t c = 1; c < classes; c++)
            if (output_at(t, i * classes + c) > output_at(t, i * classes + best)) best = c;
        tally->right += (int64_t)best == labels[i];
        tally->labels++;
    }
}

/* A logit above 0 is a probability above one half. */
static void count_masks(const struct train *t, uint32_t rows, struct tally *tally) {
    uint64_t count = count_targets(t, rows);
    for (uint64_t i = 0; i < count; i++) {
        bool found = output_at(t, i) > 0, wanted = target_at(t, i) > 0.5;
        tally->both += found && wanted;
        tally->either += found || wanted;
        tally->right += found == wanted;
    }
    tally->labels += count;
}

static int evaluate_rows(struct train *t, uint64_t first, uint32_t rows, struct tally *tally) {
    struct weir__io io = {.error = t->error};
    struct weir_step_result result;
    struct weir_net_batch part = {
        .rows = rows, .input = t->inputs, .target = t->targets, .output = t->outputs, .lr = -1.0};
    int status = weir__dataset_read_held_out(t->dataset, &io, first, rows, t->inputs, t->targets);
    if (status != WEIR_OK) return status;
    double weight = weir_net_loss_weight(t->net, t->targets, rows);
    status = weir_net_infer(t->net, &part, &result);
    if (status != WEIR_OK) {
        net_run_error(&result.error, t->error);
        return status;
    }
    tally->loss += result.loss * weight;
    tally->weight += weight;
    if (t->metric == TRAIN_METRIC_ACCURACY) count_labels(t, rows, tally);
    if (t->metric == TRAIN_METRIC_IOU) count_masks(t, rows, tally);
    return WEIR_OK;
}

uint64_t train_eval_rows(const struct train *t) {
    uint64_t batches = t->values->eval_batches, rows = t->data->held_out_rows;
    bool all = batches == 0 && t->data->kind == WEIR__DATA_ARRAYS;
    uint64_t wanted = (batches == 0 ? 16 : batches) * t->values->batch;
    if (!all && rows > wanted) rows = wanted;
    /* of text, whole mini-batches do: single rows cost more than they say */
    bool round = t->data->kind != WEIR__DATA_ARRAYS && rows >= t->values->batch;
    return round ? rows - rows % t->values->batch : rows;
}

/* Whole mini-batches, then single rows: a row count in between may not fit the arena. */
int train_evaluate(struct train *t, struct train_score *score) {
    struct tally tally = {0};
    uint64_t first = 0;
    while (first < t->eval_rows) {
        uint32_t rows = t->eval_rows - first < t->values->batch ? 1 : t->values->batch;
        int status = evaluate_rows(t, first, rows, &tally);
        if (status != WEIR_OK) return status;
        first += rows;
    }
    *score = (struct train_score){.loss = tally.loss / tally.weight,
                                  .accuracy = (double)tally.right / (double)tally.labels,
                                  .iou = (double)tally.both / (double)tally.either};
    if (tally.either == 0) score->iou = 1.0; /* no mask, and none found */
    return WEIR_OK;
}
