/* SPDX-License-Identifier: MIT */
/* Steps taken from a pipe's trace. A prediction for a sample never uses that sample's own times:
 * odd ones are predicted from even ones and the other way round. */
#include "steps.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double S_PER_NS = 1e-9;

void steps_run(struct weir_pipe *pipe, int64_t rows, const void *input,
               struct weir_step_result *result) {
    struct weir_step step = WEIR_STEP_INIT;
    step.rows = rows;
    step.inputs = &input;
    step.no_update = true;
    if (weir_pipe_step(pipe, &step, result) != WEIR_OK)
        bench_die("a step failed: %s", result->error.message);
}

void steps_init(struct bench *bench, struct steps *steps, const struct weir_pipe *pipe,
                uint32_t capacity) {
    if (pipe->history.last == NULL) bench_die("no training step was completed");
    *steps = (struct steps){.table = pipe->history.last->table,
                            .options = WEIR_SIMULATE_OPTIONS_INIT,
                            .capacity = capacity,
                            .per_sample = 1};
    bench_check(
        weir__predict_options(&pipe->setup, pipe->history.last, &bench->pool, &steps->options),
        "a pipe's prediction");
    size_t cells = (size_t)capacity * steps->table->action_count;
    steps->start = bench_take(bench, cells, sizeof *steps->start);
    steps->end = bench_take(bench, cells, sizeof *steps->end);
}

static bool counts(const struct steps *steps, uint32_t action) {
    return weir__kinds[steps->table->actions[action].kind].in_step;
}

void steps_take(struct steps *steps, const struct weir_pipe *pipe) {
    const struct weir_table *table = steps->table;
    assert(pipe->history.last != NULL && pipe->history.last->table == table);
    assert(steps->count < steps->capacity);
    double *start = &steps->start[(size_t)steps->count * table->action_count];
    double *end = &steps->end[(size_t)steps->count * table->action_count];
    uint64_t origin = weir__worker_event(&pipe->workers[0], 0)->start;
    for (uint32_t w = 0; w < table->worker_count; w++) {
        for (uint32_t a = table->lines[w]; a < table->lines[w + 1]; a++) {
            const struct weir_trace_event *event =
                weir__worker_event(&pipe->workers[w], a - table->lines[w]);
            start[a] = (double)((int64_t)event->start - (int64_t)origin) * S_PER_NS;
            end[a] = (double)((int64_t)event->end - (int64_t)origin) * S_PER_NS;
        }
    }
    steps->count++;
}

double steps_makespan(const struct steps *steps, uint32_t step) {
    const double *start = &steps->start[(size_t)step * steps->table->action_count];
    const double *end = &steps->end[(size_t)step * steps->table->action_count];
    double first = HUGE_VAL, last = -HUGE_VAL;
    for (uint32_t a = 0; a < steps->table->action_count; a++) {
        if (!counts(steps, a)) continue;
        first = fmin(first, start[a]);
        last = fmax(last, end[a]);
    }
    return last - first;
}

/* ---- the table alone ---- */

enum { ANY_STAGE = -1, EVERY_SAMPLE = 2 };

/* The median time of a stage's tasks of a kind over the samples of one parity; 0 if there is none.
 */
static double task_median(const struct steps *steps, int stage, int kind, uint32_t parity,
                          double *scratch) {
    uint32_t count = 0, actions = steps->table->action_count;
    for (uint32_t s = 0; s < steps->count; s++) {
        if (parity != EVERY_SAMPLE && s / steps->per_sample % 2 != parity) continue;
        for (uint32_t a = 0; a < actions; a++) {
            const struct weir_action *action = &steps->table->actions[a];
            if (action->kind != kind || (stage != ANY_STAGE && action->stage != stage)) continue;
            size_t cell = (size_t)s * actions + a;
            scratch[count++] = steps->end[cell] - steps->start[cell];
        }
    }
    return count > 0 ? bench_median(scratch, count) : 0.0;
}

double steps_median(struct bench *bench, const struct steps *steps, enum weir_kind kind) {
    size_t cells = (size_t)steps->table->action_count * steps->count;
    double *scratch = bench_take(bench, cells, sizeof *scratch);
    return task_median(steps, ANY_STAGE, kind, EVERY_SAMPLE, scratch);
}

double steps_stage_least(const struct steps *steps, uint32_t stage, enum weir_kind kind) {
    double least = HUGE_VAL;
    uint32_t actions = steps->table->action_count;
    for (uint32_t a = 0; a < actions; a++) {
        const struct weir_action *action = &steps->table->actions[a];
        if (action->kind != kind || action->stage != stage) continue;
        for (size_t cell = a; cell < (size_t)steps->count * actions; cell += actions)
            least = fmin(least, steps->end[cell] - steps->start[cell]);
    }
    return isfinite(least) ? least : 0.0;
}

static double simulate(struct weir_simulate_options options, const double *seconds) {
    struct weir_simulator *simulator;
    struct weir_prediction prediction;
    options.stage_seconds = seconds;
    options.no_causes = true;
    bench_check(weir_simulator_new(NULL, &simulator), "simulating a table");
    bench_check(weir_simulate(simulator, &options, NULL, &prediction), "simulating a table");
    weir_simulator_destroy(simulator);
    return prediction.step;
}

double steps_predicted(struct bench *bench, const struct steps *steps, uint32_t sample) {
    uint32_t stages = steps->table->stage_count;
    size_t cells = (size_t)steps->table->action_count * steps->count;
    double *scratch = bench_take(bench, cells, sizeof *scratch);
    double *seconds = bench_take(bench, (size_t)stages * WEIR_KIND_COUNT, sizeof *seconds);
    for (uint32_t s = 0; s < stages; s++)
        for (int k = 0; k < WEIR_KIND_COUNT; k++)
            seconds[s * WEIR_KIND_COUNT + k] =
                task_median(steps, (int)s, k, 1 - sample % 2, scratch);
    return simulate(steps->options, seconds);
}

double steps_undisturbed(struct bench *bench, const struct steps *steps) {
    uint32_t stages = steps->table->stage_count;
    double *seconds = bench_take(bench, (size_t)stages * WEIR_KIND_COUNT, sizeof *seconds);
    for (uint32_t s = 0; s < stages; s++)
        for (int k = 0; k < WEIR_KIND_COUNT; k++)
            seconds[s * WEIR_KIND_COUNT + k] = steps_stage_least(steps, s, (enum weir_kind)k);
    return simulate(steps->options, seconds);
}

double steps_in_theory(struct bench *bench, const struct steps *steps, double delay) {
    static const double units[WEIR_KIND_COUNT] = {
        [WEIR_KIND_F] = 1.0, [WEIR_KIND_R] = 1.0, [WEIR_KIND_B] = 2.0};
    uint32_t stages = steps->table->stage_count;
    double *seconds = bench_take(bench, (size_t)stages * WEIR_KIND_COUNT, sizeof *seconds);
    for (uint32_t s = 0; s < stages; s++)
        memcpy(&seconds[s * WEIR_KIND_COUNT], units, sizeof units);
    struct weir_simulate_options options = steps->options;
    options.link.latency = delay;
    options.order_begin = NULL; /* of the table alone */
    return simulate(options, seconds);
}

/* ---- overlap ---- */

struct span {
    double start, end;
};

/* The worker's tasks in the step, in order, cut at [low, high]; returns their number. */
static uint32_t spans_of(const struct steps *steps, uint32_t step, uint32_t worker, double low,
                         double high, struct span *spans) {
    const struct weir_table *table = steps->table;
    uint32_t count = 0;
    for (uint32_t a = table->lines[worker]; a < table->lines[worker + 1]; a++) {
        size_t cell = (size_t)step * table->action_count + a;
        struct span span = {fmax(steps->start[cell], low), fmin(steps->end[cell], high)};
        if (counts(steps, a) && span.end > span.start) spans[count++] = span;
    }
    return count;
}

static double length_of(const struct span *spans, uint32_t count) {
    double sum = 0.0;
    for (uint32_t i = 0; i < count; i++) sum += spans[i].end - spans[i].start;
    return sum;
}

static double common_time(const struct span *a, uint32_t a_count, const struct span *b,
                          uint32_t b_count) {
    double sum = 0.0;
    for (uint32_t i = 0, j = 0; i < a_count && j < b_count;) {
        sum += fmax(0.0, fmin(a[i].end, b[j].end) - fmax(a[i].start, b[j].start));
        if (a[i].end < b[j].end) {
            i++;
        } else {
            j++;
        }
    }
    return sum;
}

double steps_overlap(const struct steps *steps, uint32_t step) {
    const struct weir_table *table = steps->table;
    assert(table->worker_count >= 2);
    struct span *spans[2];
    uint32_t count[2];
    double low = -HUGE_VAL, high = HUGE_VAL;
    for (int turn = 0; turn < 2; turn++) { /* first to find the common window, then to cut at it */
        double begin = low, end = high;
        for (uint32_t w = 0; w < 2; w++) {
            if (turn == 0) spans[w] = calloc(table->action_count + 1, sizeof **spans);
            if (spans[w] == NULL) bench_die("out of memory");
            count[w] = spans_of(steps, step, w, begin, end, spans[w]);
            if (turn > 0 || count[w] == 0) continue;
            low = fmax(low, spans[w][0].start);
            high = fmin(high, spans[w][count[w] - 1].end);
        }
    }
    double shorter = fmin(length_of(spans[0], count[0]), length_of(spans[1], count[1]));
    double common = common_time(spans[0], count[0], spans[1], count[1]);
    free(spans[0]);
    free(spans[1]);
    return shorter > 0.0 ? common / shorter : 0.0;
}
