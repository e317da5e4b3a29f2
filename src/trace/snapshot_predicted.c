/* SPDX-License-Identifier: MIT */
/* What could have been said of a step before it ran: the simulator's answer, fed with other steps'
 * times. A step's own times would only show that its table adds up. */
#include "trace/predict.h"
#include "trace/snapshot.h"

#define NS_PER_S 1e9

/* The durations of a stage's actions of a kind in the other steps, s; returns how many. */
static uint32_t durations_of(const struct weir__snapshot_state *s, uint32_t stage, uint8_t kind,
                             double *durations) {
    assert(stage < s->of.plan->table->stage_count && kind < WEIR_KIND_COUNT);
    const struct weir_table *table = s->of.plan->table;
    uint32_t w = s->of.plan->stage_worker[stage], count = 0;
    const struct weir__worker *worker = &s->pipe->workers[w];
    for (uint32_t i = 0; i < s->other_count; i++) {
        uint32_t begin = weir__trace_step_begin(worker, s->others[i]);
        for (uint32_t a = table->lines[w]; a < table->lines[w + 1]; a++) {
            const struct weir_action *action = &table->actions[a];
            if (action->stage != stage || action->kind != kind) continue;
            const struct weir_trace_event *event =
                weir__trace_event_at(worker, begin + a - table->lines[w]);
            durations[count++] = (double)(event->end - event->start) / NS_PER_S;
        }
    }
    return count;
}

/* [stage][kind], of what is in the step. */
static int fill_medians(struct weir__snapshot_state *s, double *seconds) {
    uint32_t stages = s->of.plan->table->stage_count, most = 0;
    for (uint32_t w = 0; w < s->pipe->worker_count; w++) {
        uint32_t count = weir__trace_count(&s->pipe->workers[w]);
        most = count > most ? count : most;
    }
    double *durations = weir__pool_take(&s->pool, most, sizeof *durations);
    if (durations == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    for (uint32_t stage = 0; stage < stages; stage++) {
        for (uint8_t kind = 0; kind < WEIR_KIND_COUNT; kind++) {
            if (!weir__kinds[kind].in_step) continue;
            uint32_t count = durations_of(s, stage, kind, durations);
            seconds[stage * WEIR_KIND_COUNT + kind] = weir__times_median(durations, count);
        }
    }
    return WEIR_OK;
}

static int keep(struct weir__snapshot_state *s, const struct weir_prediction *prediction) {
    assert(s->other_count > 0 && prediction->worker_count == s->pipe->worker_count);
    struct weir_snapshot_prediction *predicted = &s->shown.predicted;
    struct weir_worker_time *workers =
        weir__pool_take(&s->pool, prediction->worker_count, sizeof *workers);
    if (workers == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    for (uint32_t w = 0; w < prediction->worker_count; w++) {
        const struct weir_predicted_worker *from = &prediction->workers[w];
        double steady = from->window > 0.0 ? (from->window - from->busy) / from->window : 0.0;
        workers[w] = (struct weir_worker_time){.busy = from->busy * NS_PER_S,
                                               .idle = from->idle * NS_PER_S,
                                               .dependency = from->dependency * NS_PER_S,
                                               .copy = from->copy * NS_PER_S,
                                               .imbalance = from->imbalance * NS_PER_S,
                                               .host = from->host * NS_PER_S,
                                               .steady = steady};
    }
    predicted->step_count = s->other_count;
    predicted->makespan = prediction->step * NS_PER_S;
    predicted->bubble = prediction->bubble;
    predicted->workers = workers;
    return WEIR_OK;
}

static int simulate(struct weir__snapshot_state *s, const double *seconds) {
    struct weir_simulate_options options = WEIR_SIMULATE_OPTIONS_INIT;
    struct weir_simulator *simulator;
    struct weir_prediction prediction;
    int status = weir__predict_options(&s->pipe->setup, s->of.plan, &s->pool, &options);
    if (status != WEIR_OK) return status;
    options.stage_seconds = seconds;
    status = weir_simulator_new(s->pool.allocator, &simulator);
    if (status != WEIR_OK) return status;
    status = weir_simulate(simulator, &options, NULL, &prediction);
    if (status != WEIR_OK) goto out;
    status = keep(s, &prediction);
out:
    weir_simulator_destroy(simulator);
    return status;
}

int weir__snapshot_predict(struct weir__snapshot_state *s) {
    uint32_t stages = s->of.plan->table->stage_count;
    if (s->other_count == 0) return WEIR_OK;
    double *seconds = weir__pool_take(&s->pool, (size_t)stages * WEIR_KIND_COUNT, sizeof *seconds);
    if (seconds == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    int status = fill_medians(s, seconds);
    if (status != WEIR_OK) return status;
    return simulate(s, seconds);
}
