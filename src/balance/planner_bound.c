/* SPDX-License-Identifier: MIT */
/*
 * A time that no order of a table's actions can fall below, by the simulator's own rules. A try
 * whose bound is too long is left out. A worker cannot begin before a micro-batch has come through
 * the stages before its first one. Then it has all its work to do. Its last gradient must then go
 * through the stages before it; meanwhile W may run, which nobody waits for. Copies are not
 * counted, nor what workers wait for each other besides.
 *
 * A simulated step is no bound for other checkpoint modes of the same cut: a fixed order with more
 * work may end earlier (Graham's anomalies).
 */
#include "balance/planner.h"

#include <math.h>

/* Sums in another order than the simulator's. */
static const double rounding = 1e-9;

/* What tasks take on a worker. */
struct worker_times {
    double pace; /* of what they cost; the least of its replicas */
    double host; /* before each */
};

/* F and R of a step, by the simulator's mean F, which is *forward. */
static double forward_work(const struct weir_stage_cost *stage, const struct weir__chunks *chunks,
                           enum weir_checkpoint mode, const struct worker_times *times,
                           double *forward) {
    uint32_t m = chunks->micro_batches;
    uint32_t again = stage->no_backward ? 0 : weir_checkpoint_count(mode, m);
    assert(m > 0 && again <= m);
    double part = (double)again / m, last = chunks->scale != NULL ? chunks->scale[m - 1] : 1;
    double scales = again == 0 ? 0 : again == m ? chunks->scale_sum : chunks->scale_sum - last;
    *forward = weir__mean_forward(stage, part) * times->pace;
    return *forward * chunks->scale_sum +
           weir__pass_seconds(stage->seconds, WEIR__PASS_RECOMPUTE) * times->pace * scales +
           times->host * ((double)m + again);
}

/* `mode` NULL: the least over the modes, of each sum by itself. */
static struct weir__share share_of(const struct weir_stage_cost *stage,
                                   const struct weir__chunks *chunks, bool split,
                                   const struct worker_times *times,
                                   const enum weir_checkpoint *mode) {
    assert(mode == NULL || *mode >= WEIR_CHECKPOINT_ALWAYS);
    assert(mode == NULL || *mode <= WEIR_CHECKPOINT_NEVER);
    const double *seconds = stage->seconds;
    struct weir__share share = {.forward = HUGE_VAL, .work = HUGE_VAL};
    for (int k = WEIR_CHECKPOINT_ALWAYS; k <= WEIR_CHECKPOINT_NEVER; k++) {
        double forward;
        if (mode != NULL && *mode != (enum weir_checkpoint)k) continue;
        double work = forward_work(stage, chunks, (enum weir_checkpoint)k, times, &forward);
        share.forward = fmin(share.forward, forward);
        share.work = fmin(share.work, work);
    }
    if (stage->no_backward) return share;
    double whole = weir__least_backward(seconds, !split) * times->pace;
    share.gradient = weir__least_gradient(seconds, !split) * times->pace;
    share.work += share.gradient * chunks->scale_sum + times->host * chunks->micro_batches;
    share.rest = fmax(whole - share.gradient, 0) * chunks->scale_sum;
    return share;
}

/* What the last gradient of the worker takes from its first stage on; 0 where none surely does. */
static double way_back(const struct weir_planner *planner, uint32_t first, uint32_t last,
                       double scale) {
    assert(first <= last && last < planner->costs->stage_count);
    const struct weir_stage_cost *list = planner->costs->list;
    double seconds = 0;
    bool goes = !list[first].no_backward;
    for (uint32_t s = first; s < last; s++) goes = goes && list[s].border_gradient > 0;
    for (uint32_t s = first; goes && s-- > 0;) {
        goes = list[s].border_gradient > 0 && !list[s].no_backward;
        if (goes) seconds += planner->shares[s].gradient * scale + planner->options->host_seconds;
    }
    return seconds;
}

static double worker_bound(const struct weir_planner *planner, const struct weir__shape *shape,
                           uint32_t worker) {
    assert(worker < planner->options->workers);
    const struct weir__chunks *chunks = &planner->chunks[shape->chunks];
    double host = planner->options->host_seconds, work = 0, rest = 0;
    double arrival = -host; /* none before a worker's first action at 0 */
    uint32_t first = UINT32_MAX, last = 0;
    for (uint32_t s = 0; s < shape->stages; s++) {
        const struct weir__share *share = &planner->shares[s];
        if (shape->workers[s] == worker) {
            if (first == UINT32_MAX) first = s;
            last = s;
            work += share->work;
            rest += share->rest;
        } else if (first == UINT32_MAX) {
            arrival += share->forward * chunks->least + host;
        }
    }
    return arrival + work + fmax(rest, way_back(planner, first, last, chunks->least));
}

double weir__planner_bound(struct weir_planner *planner, uint32_t index,
                           const enum weir_checkpoint *modes) {
    const struct weir__shape *shape = &planner->shapes[index];
    assert(planner->costs->stage_count == shape->stages);
    assert(shape->stages <= planner->stages_most);
    const struct weir__chunks *chunks = &planner->chunks[shape->chunks];
    double most = 0;
    for (uint32_t s = 0; s < shape->stages; s++) {
        const struct worker_times times = {planner->pace_least[shape->workers[s]],
                                           planner->options->host_seconds};
        planner->shares[s] = share_of(&planner->costs->list[s], chunks, shape->split, &times,
                                      modes == NULL ? NULL : &modes[s]);
    }
    for (uint32_t w = 0; w < planner->options->workers; w++)
        most = fmax(most, worker_bound(planner, shape, w));
    return most * (1 - rounding);
}
