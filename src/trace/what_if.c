/* SPDX-License-Identifier: MIT */
/* The same step with something changed: replays of its table from its measured times. Time before
 * an action that no crossing explains (copying and host) is put back as a part of the action, so
 * that nothing changed gives the measured makespan again, and what a change gains is its own. */
#include "trace/times.h"
#include "weir_report.h"

#include <string.h>

/** A step's durations, by action: what the replays are put together from. */
struct parts {
    struct weir__times *times;
    double *busy, *copying, *host;
    double *delay; /* by edge */
};

static int take_parts(struct parts *p) {
    struct weir__times *t = p->times;
    uint32_t actions = t->table->action_count, edges = t->plan->orders.edge_count;
    p->busy = weir__pool_take(&t->pool, actions, sizeof(double));
    p->copying = weir__pool_take(&t->pool, actions, sizeof(double));
    p->host = weir__pool_take(&t->pool, actions, sizeof(double));
    p->delay = weir__pool_take(&t->pool, edges, sizeof(double));
    bool all = p->busy != NULL && p->copying != NULL && p->host != NULL && p->delay != NULL;
    return all ? WEIR_OK : WEIR_ERR_OUT_OF_MEMORY;
}

static void fill_delays(struct parts *p, uint32_t a, uint32_t worker) {
    assert(a < p->times->table->action_count);
    const struct weir__times *t = p->times;
    const struct weir__deps *orders = &t->plan->orders;
    for (uint32_t e = orders->begin[a]; e < orders->begin[a + 1]; e++)
        p->delay[e] = weir__times_delay_of(t, e, worker);
}

static void fill_parts(struct parts *p) {
    const struct weir__times *t = p->times;
    for (uint32_t w = 0; w < t->table->worker_count; w++) {
        double now = t->first;
        for (uint32_t a = t->table->lines[w]; a < t->table->lines[w + 1]; a++) {
            if (!weir__times_in_step(t, a)) continue;
            struct weir__before before = weir__times_before(t, a, w, now);
            p->busy[a] = t->end[a] - t->start[a];
            p->copying[a] = before.copying;
            p->host[a] = before.host;
            fill_delays(p, a, w);
            now = t->end[a];
        }
    }
}

/* `copying` or `host` NULL: they take no time. */
static int replay(struct parts *p, const double *busy, const double *copying, const double *host,
                  const double *delay, double *makespan) {
    struct weir__times *t = p->times;
    for (uint32_t a = 0; a < t->table->action_count; a++) {
        double before = (copying != NULL ? copying[a] : 0.0) + (host != NULL ? host[a] : 0.0);
        t->model[a] = before + busy[a];
    }
    return weir__times_replay(t, delay, makespan);
}

/* busy[a] of the changed step, into `changed`. */
static void equal_stages(const struct parts *p, double *of_stage, double *changed) {
    const struct weir_table *table = p->times->table;
    double sum = 0.0, working = 0.0;
    for (uint32_t a = 0; a < table->action_count; a++)
        of_stage[table->actions[a].stage] += p->busy[a];
    for (uint32_t s = 0; s < table->stage_count; s++) {
        sum += of_stage[s];
        working += of_stage[s] > 0.0;
    }
    for (uint32_t a = 0; a < table->action_count; a++) {
        double own = of_stage[table->actions[a].stage];
        changed[a] = own > 0.0 ? p->busy[a] * (sum / working / own) : 0.0;
    }
}

static void free_recompute(const struct parts *p, double *changed) {
    const struct weir_table *table = p->times->table;
    for (uint32_t a = 0; a < table->action_count; a++) {
        bool again = weir__pass_of(table->actions[a].kind) == WEIR__PASS_RECOMPUTE;
        changed[a] = again ? 0.0 : p->busy[a];
    }
}

static double mean_busy(const struct parts *p) {
    double sum = 0.0;
    for (uint32_t a = 0; a < p->times->table->action_count; a++) sum += p->busy[a];
    return sum / p->times->table->worker_count;
}

static int answer(struct parts *p, double *changed, double *of_stage, double what_if[]) {
    struct weir__times *t = p->times;
    const double *busy = p->busy, *copying = p->copying, *host = p->host, *delay = p->delay;
    int status = replay(p, busy, copying, host, delay, &what_if[WEIR_WHAT_IF_MEASURED]);
    if (status != WEIR_OK) return status;
    equal_stages(p, of_stage, changed);
    status = replay(p, changed, copying, host, delay, &what_if[WEIR_WHAT_IF_EQUAL_STAGES]);
    if (status != WEIR_OK) return status;
    if ((status = weir__times_model_medians(t)) != WEIR_OK) return status;
    memcpy(changed, t->model, t->table->action_count * sizeof *changed);
    status = replay(p, changed, copying, host, delay, &what_if[WEIR_WHAT_IF_STEADY_TIMES]);
    if (status != WEIR_OK) return status;
    status = replay(p, busy, NULL, host, NULL, &what_if[WEIR_WHAT_IF_FREE_COPIES]);
    if (status != WEIR_OK) return status;
    status = replay(p, busy, copying, NULL, delay, &what_if[WEIR_WHAT_IF_FREE_HOST]);
    if (status != WEIR_OK) return status;
    what_if[WEIR_WHAT_IF_NO_WAITING] = mean_busy(p);
    free_recompute(p, changed);
    return replay(p, changed, copying, host, delay, &what_if[WEIR_WHAT_IF_FREE_RECOMPUTE]);
}

int weir__times_what_if(struct weir__times *t, double what_if[]) {
    struct parts p = {.times = t};
    int status = take_parts(&p);
    if (status != WEIR_OK) return status;
    double *changed = weir__pool_take(&t->pool, t->table->action_count, sizeof *changed);
    double *of_stage = weir__pool_take(&t->pool, t->table->stage_count, sizeof *of_stage);
    if (changed == NULL || of_stage == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    fill_parts(&p);
    return answer(&p, changed, of_stage, what_if);
}

const char *weir_what_if_text(enum weir_what_if question) {
    static const char *const texts[] = {
#define TEXT(name, text) text,
        WEIR_WHAT_IF_MAP(TEXT)
#undef TEXT
    };
    assert(question < WEIR_WHAT_IF_COUNT);
    return texts[question];
}
