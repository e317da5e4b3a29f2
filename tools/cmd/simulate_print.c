/* SPDX-License-Identifier: MIT */
/* A prediction for people and for programs, and several next to each other. */
#include "cli/json_text.h"
#include "cli/plan_text.h"
#include "cli/progress.h"
#include "cmd/simulate.h"
#include "schedule/facts.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { DRAWN_WORKERS_MAX = 64, DRAWN_ACTIONS_MAX = 1000000, SPARK_LEAST = 12, SPARK_MOST = 60 };

/* ---- programs ---- */

static json_t *worker_json(const struct weir_predicted_worker *worker) {
    return json_pack("{s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:I, s:I}", "window", worker->window,
                     "busy", worker->busy, "idle", worker->idle, "dependency", worker->dependency,
                     "copy", worker->copy, "imbalance", worker->imbalance, "host", worker->host,
                     "peak_activations", (json_int_t)worker->peak_activations, "peak_bytes",
                     (json_int_t)worker->peak_bytes);
}

/* Layers of each stage, which a model's case has. */
static json_t *balance_json(const struct simulate_case *c) {
    json_t *list = json_array();
    for (uint32_t s = 0; s < c->measured.stages->stage_count; s++)
        json_array_append_new(list, json_integer(c->measured.stages->list[s].layer_count));
    return list;
}

json_t *simulate_json(const struct simulate_case *c) {
    const struct weir_prediction *p = &c->prediction;
    json_t *workers = json_array(), *stages = json_array();
    for (uint32_t w = 0; w < p->replicas * p->worker_count; w++) {
        json_array_append_new(workers, worker_json(&p->workers[w]));
    }
    for (uint32_t s = 0; s < p->replicas * p->stage_count; s++) {
        json_int_t peak = (json_int_t)p->stage_peak_activations[s];
        json_array_append_new(stages, json_pack("{s:I}", "peak_activations", peak));
    }
    json_t *object =
        json_pack("{s:s, s:f, s:f, s:I, s:I, s:f, s:f, s:I, s:I, s:f, s:I, s:o, s:o}", "schedule",
                  c->name, "step", p->step, "total", p->total, "replicas", (json_int_t)p->replicas,
                  "actions", (json_int_t)p->actions, "bubble", p->bubble, "bubble_steady",
                  p->bubble_steady, "moved_bytes", (json_int_t)p->moved_bytes, "transfers",
                  (json_int_t)p->transfers, "stage_share", c->share, "micro_batches",
                  (json_int_t)c->table->micro_batch_count, "workers", workers, "stages", stages);
    if (c->measured.stages != NULL) json_object_set_new(object, "balance", balance_json(c));
    return object;
}

/* ---- people ---- */

static int write_stream(void *context, const char *text, size_t bytes) {
    return fwrite(text, 1, bytes, context) == bytes ? WEIR_OK : WEIR_ERR_IO;
}

static void print_balance(FILE *to, const struct simulate_case *c) {
    if (c->measured.stages == NULL) return;
    fprintf(to, "%s: --balance ", c->name);
    for (uint32_t s = 0; s < c->measured.stages->stage_count; s++)
        fprintf(to, "%s%" PRIu32, s > 0 ? "," : "", c->measured.stages->list[s].layer_count);
    fputc('\n', to);
}

static void print_facts(FILE *to, const struct simulate_case *c) {
    const struct weir_prediction *p = &c->prediction;
    char step[32], bytes[24];
    uint32_t micro_batches = c->table->micro_batch_count;
    fprintf(to, "%s: %u stage%s on %u worker%s, %u micro-batch%s, %" PRIu64 " action%s\n", c->name,
            p->stage_count, weir__s(p->stage_count), p->worker_count, weir__s(p->worker_count),
            micro_batches, weir__es(micro_batches), p->actions, weir__s(p->actions));
    print_balance(to, c);
    if (c->measured.stages == NULL && c->share < 1.0)
        fprintf(to, "a stage takes %.4g of --time, which is a worker's share of the model\n",
                c->share);
    fprintf(to,
            "step %s, bubble %.2f%%, steady %.2f%%, %s between workers in %" PRIu64 " transfer%s\n",
            time_text_seconds(p->step, step), p->bubble * 100.0, p->bubble_steady * 100.0,
            plan_text_bytes(p->moved_bytes, bytes), p->transfers, weir__s(p->transfers));
    if (p->replicas > 1)
        fprintf(to, "%u replicas of it: %s until all have all parameters\n", p->replicas,
                time_text_seconds(p->total, step));
}

static void print_workers(FILE *to, const struct simulate_case *c) {
    const struct weir_prediction *p = &c->prediction;
    double share = c->measured.stages != NULL ? 1.0 : c->share;
    fprintf(to, "%-8s %10s %10s %10s %10s %10s %10s %12s %12s\n", "worker", "busy", "idle",
            "dependency", "copy", "imbalance", "host", "activations", "peak bytes");
    for (uint32_t w = 0; w < p->replicas * p->worker_count; w++) {
        const struct weir_predicted_worker *worker = &p->workers[w];
        const double times[] = {worker->busy, worker->idle,      worker->dependency,
                                worker->copy, worker->imbalance, worker->host};
        fprintf(to, "%-8" PRIu32, w);
        for (size_t i = 0; i < sizeof times / sizeof times[0]; i++) {
            char text[32];
            fprintf(to, " %10s", time_text_seconds(times[i], text));
        }
        fprintf(to, " %12.4g %12.0f\n", (double)worker->peak_activations * c->share,
                (double)worker->peak_bytes * share);
    }
}

bool simulate_is_drawn(const struct simulate_case *c) {
    return c->table->worker_count <= DRAWN_WORKERS_MAX &&
           c->table->action_count <= DRAWN_ACTIONS_MAX;
}

int simulate_print(const struct people *people, const struct simulate_case *c) {
    const struct weir_prediction *p = &c->prediction;
    FILE *to = people->stream;
    int status = WEIR_OK;
    print_facts(to, c);
    if (!simulate_is_drawn(c)) {
        fprintf(to, "(the timeline is drawn for at most %d workers and %d actions)\n",
                DRAWN_WORKERS_MAX, DRAWN_ACTIONS_MAX);
    } else {
        status = weir_prediction_text(c->table, p, NULL, people->columns, people->colour,
                                      write_stream, to);
    }
    if (status == WEIR_ERR_OVERFLOW) {
        fprintf(to, "(no timeline: the step takes longer than it can count)\n");
        status = WEIR_OK;
    }
    if (p->replicas * p->worker_count <= DRAWN_WORKERS_MAX) print_workers(to, c);
    return status;
}

/* ---- several ---- */

/* Eighths of a block: how many of the workers are busy in each cell of the longest step's scale. */
static void print_spark(FILE *to, const struct simulate_case *c, double longest, uint32_t cells) {
    static const char *const blocks[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    const struct weir_prediction *p = &c->prediction;
    double busy[SPARK_MOST] = {0.0};
    double width = longest / cells;
    uint32_t used = (uint32_t)ceil(p->step / width - 1e-9);
    for (uint32_t a = 0; a < c->table->action_count; a++) {
        if (!weir__kinds[c->table->actions[a].kind].in_step) continue;
        for (uint32_t i = (uint32_t)(p->start[a] / width); i < cells; i++) {
            double from = fmax(p->start[a], i * width), to_time = fmin(p->end[a], (i + 1) * width);
            if (to_time <= from) break;
            busy[i] += to_time - from;
        }
    }
    for (uint32_t i = 0; i < used && i < cells; i++) {
        double part = busy[i] / (width * p->worker_count);
        fputs(blocks[(int)fmin(8.0, part * 8.0 + 0.5)], to);
    }
}

static uint32_t name_width(const struct simulate_case *cases, uint32_t count) {
    size_t width = strlen("schedule");
    for (uint32_t i = 0; i < count; i++) {
        size_t length = strlen(cases[i].name);
        width = length > width ? length : width;
    }
    return (uint32_t)width;
}

/* How much longer, in percent; what rounds to nothing has no sign. */
static double longer(double factor) {
    double percent = (factor - 1.0) * 100.0;
    return fabs(percent) < 0.05 ? 0.0 : percent;
}

static void print_line(FILE *to, const struct simulate_case *c, const double *factors,
                       uint32_t seeds) {
    const struct weir_prediction *p = &c->prediction;
    char step[32], moved[24], peak[24];
    fprintf(to, " %6u %9s %6.1f%% %6.1f%% %6.4g %10s %10s %+6.1f%% %+6.1f%%  ", p->stage_count,
            time_text_seconds(p->step, step), p->bubble * 100.0, p->bubble_steady * 100.0,
            simulate_case_peak(c),
            plan_text_bytes((uint64_t)ceil(simulate_case_peak_bytes(c)), peak),
            plan_text_bytes(p->moved_bytes, moved), longer(factors[seeds / 2]),
            longer(factors[seeds - 1]));
}

static void print_head(FILE *to, int name, double noise) {
    char drawn[24];
    snprintf(drawn, sizeof drawn, "%g%% noise", noise * 100.0);
    fprintf(to, "%-*s %6s %9s %7s %7s %6s %10s %10s %15s  %s\n", name, "schedule", "stages", "step",
            "bubble", "steady", "most", "peak", "moved", drawn, "workers that");
    fprintf(to, "%-*s %6s %9s %7s %7s %6s %10s %10s %15s  %s\n", name, "", "", "", "", "", "kept",
            "bytes", "bytes", "median   worst", "are busy");
}

void simulate_print_compared(const struct people *people, const struct simulate_case *cases,
                             uint32_t count, const struct simulate_noise *noise) {
    enum { FIXED = 80 };
    FILE *to = people->stream;
    double longest = 0.0;
    uint32_t name = name_width(cases, count);
    uint32_t cells = people->columns > name + FIXED ? people->columns - name - FIXED : 0;
    cells = cells < SPARK_LEAST ? SPARK_LEAST : cells > SPARK_MOST ? SPARK_MOST : cells;
    for (uint32_t i = 0; i < count; i++) longest = fmax(longest, cases[i].prediction.step);
    print_head(to, (int)name, noise->part);
    for (uint32_t i = 0; i < count; i++) {
        fprintf(to, "%-*s", (int)name, cases[i].name);
        print_line(to, &cases[i], &noise->factors[(size_t)i * noise->seeds], noise->seeds);
        print_spark(to, &cases[i], longest, cells);
        fputc('\n', to);
    }
    fprintf(to, "most kept: activations of micro-batches that a worker has at once, in workers' "
                "shares of the model\n");
    for (uint32_t i = 0; i < count; i++) print_balance(to, &cases[i]);
}
