/* SPDX-License-Identifier: MIT */
/* A case: which table the counts mean, and what its tasks cost. */
#include "cmd/simulate.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TABLE_BYTES_MAX = 1 << 28, WORKERS_DEFAULT = 4, CHUNKS_DEFAULT = 8 };

/* Stages and workers from what was given of them. */
static void choose_counts(const struct simulate_counts *counts, struct weir_table_options *options,
                          struct weir_faults *faults) {
    uint32_t each = counts->virtual_stages;
    options->stages = counts->stages;
    options->workers = counts->workers;
    if (options->stages == 0) {
        if (each == 0) each = weir_schedule_virtual_stages(counts->schedule);
        if (each == 0) each = 1; /* no schedule's name, which is refused when the table is made */
        if (options->workers == 0) options->workers = WORKERS_DEFAULT;
        options->stages = options->workers * each;
    } else if (each > 0 && options->workers == 0 && options->stages % each == 0) {
        options->workers = options->stages / each;
    } else if (each > 0 && options->stages != (uint64_t)options->workers * each) {
        uint32_t workers = options->workers > 0 ? options->workers : options->stages / each;
        workers = workers > 0 ? workers : 1;
        weir_faults_add(faults,
                        "--stages %" PRIu32 " with --virtual-stages %" PRIu32
                        ": stages are workers x virtual stages; the nearest is --stages %" PRIu64,
                        options->stages, each, (uint64_t)workers * each);
    }
}

static int parse_csv(const struct weir_table_options *options, const struct weir__bytes *text,
                     struct weir_faults *faults, struct weir_faults *notes,
                     struct weir_table **table) {
    int status = weir_table_parse(options, text->data, text->count, faults, notes, table);
    return status == WEIR_OK ? weir_table_check(*table, NULL, faults) : status;
}

static int read_csv(const struct simulate_counts *counts, struct weir_table_options *options,
                    struct weir_faults *faults, struct weir_faults *notes,
                    struct weir_table **table) {
    struct weir_faults own = WEIR_FAULTS_INIT;
    struct weir_error error = {0};
    struct weir__io io = {.error = &error};
    struct weir__bytes text = {0};
    options->stages = counts->stages;
    options->workers = counts->workers;
    int status = weir__file_read(&io, counts->schedule, TABLE_BYTES_MAX, &text);
    if (status != WEIR_OK)
        weir_faults_add(&own, "%s", error.message);
    else
        status = parse_csv(options, &text, &own, notes, table);
    for (uint32_t i = 0; i < own.kept; i++)
        weir_faults_add(faults, "--schedule %s: %s", counts->schedule, own.lines[i]);
    weir_faults_clean_up(&own);
    weir__bytes_release(NULL, &text);
    return status;
}

/* By the costs that are simulated afterwards. */
static int search_table(const struct simulate_counts *counts, struct weir_table_options *options,
                        struct weir_faults *faults, struct weir_table **table) {
    struct weir_search_options search = WEIR_SEARCH_OPTIONS_INIT;
    struct weir_simulate_options costs = WEIR_SIMULATE_OPTIONS_INIT;
    uint32_t stages = options->stages, workers = options->workers > 0 ? options->workers : stages;
    double share = counts->same_share ? (double)workers / stages : 1.0;
    if (counts->costs->replicas > 1 && counts->costs->ranks != NULL) {
        weir_faults_add(faults, "--schedule auto knows no links between replicas: leave --links or "
                                "--replicas away, or name a schedule");
        return WEIR_ERR_ARGUMENT;
    }
    uint64_t *bytes = calloc(stages, sizeof *bytes);
    if (bytes == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    for (uint32_t s = 0; s < stages; s++) bytes[s] = counts->costs->border_bytes;
    for (uint32_t k = 0; k < WEIR_KIND_COUNT; k++) {
        costs.kind_seconds[k] = counts->costs->seconds[k] * share;
    }
    costs.border_bytes = bytes;
    costs.link = counts->costs->link;
    costs.ranks = counts->costs->ranks;
    costs.host_seconds = counts->costs->host;
    search.costs = &costs;
    search.activation_limit = counts->activation_limit;
    options->search = &search;
    int status = weir_table_new(options, faults, table);
    options->search = NULL;
    free(bytes);
    return status;
}

static int make_table(struct simulate_case *c, const struct simulate_counts *counts,
                      struct weir_faults *faults, struct weir_faults *notes) {
    struct weir_table_options options = WEIR_TABLE_OPTIONS_INIT;
    uint32_t before = faults->count;
    options.schedule = counts->schedule;
    options.micro_batches = counts->chunks;
    options.checkpoint = counts->checkpoint;
    options.recompute_late = counts->recompute_late;
    if (weir__text_ends(counts->schedule, ".csv"))
        return read_csv(counts, &options, faults, notes, &c->table);
    if (counts->chunks == 0) options.micro_batches = CHUNKS_DEFAULT;
    choose_counts(counts, &options, faults);
    if (faults->count > before) return WEIR_ERR_ARGUMENT;
    if (strcmp(counts->schedule, "auto") == 0) {
        return search_table(counts, &options, faults, &c->table);
    }
    if (counts->activation_limit > 0) {
        weir_faults_add(faults,
                        "--activation-limit goes with --schedule auto: %s keeps what it keeps",
                        counts->schedule);
        return WEIR_ERR_ARGUMENT;
    }
    return weir_table_new(&options, faults, &c->table);
}

int simulate_case_init(struct simulate_case *c, const struct simulate_counts *counts,
                       struct weir_faults *faults, struct weir_faults *notes) {
    *c = (struct simulate_case){.name = counts->schedule, .share = 1.0};
    c->options = (struct weir_simulate_options)WEIR_SIMULATE_OPTIONS_INIT;
    uint32_t before = faults->count;
    int status = make_table(c, counts, faults, notes);
    if (status != WEIR_OK) {
        if (faults->count == before) weir_faults_add(faults, "%s", weir_status_text(status));
        return status;
    }
    uint32_t stages = c->table->stage_count;
    if (counts->same_share) c->share = (double)c->table->worker_count / stages;
    c->stage_seconds = calloc((size_t)stages * WEIR_KIND_COUNT, sizeof *c->stage_seconds);
    c->border_bytes = calloc(stages, sizeof *c->border_bytes);
    c->saved_bytes = calloc(stages, sizeof *c->saved_bytes);
    c->gradient_bytes = calloc(stages, sizeof *c->gradient_bytes);
    if (c->stage_seconds == NULL || c->border_bytes == NULL || c->saved_bytes == NULL ||
        c->gradient_bytes == NULL) {
        return WEIR_ERR_OUT_OF_MEMORY;
    }
    c->options.table = c->table;
    c->options.stage_seconds = c->stage_seconds;
    c->options.border_bytes = c->border_bytes;
    c->options.saved_bytes = c->saved_bytes;
    return weir_simulator_new(NULL, &c->simulator);
}

void simulate_case_cost(struct simulate_case *c, const struct simulate_costs *costs) {
    for (uint32_t s = 0; s < c->table->stage_count; s++) {
        for (uint32_t k = 0; k < WEIR_KIND_COUNT; k++) {
            c->stage_seconds[s * WEIR_KIND_COUNT + k] = costs->seconds[k] * c->share;
        }
        c->border_bytes[s] = costs->border_bytes;
        c->saved_bytes[s] = costs->activation_bytes;
        c->gradient_bytes[s] = (uint64_t)((double)costs->gradient_bytes * c->share);
    }
    c->shared = (struct weir_shared_costs){.replicas = costs->replicas,
                                           .groups = costs->groups,
                                           .gradient_bytes = c->gradient_bytes,
                                           .link = costs->link};
    c->options.shared = &c->shared;
    c->options.link = costs->link;
    c->options.ranks = costs->ranks;
    c->options.host_seconds = costs->host;
    c->options.noise = costs->noise;
    c->options.seed = costs->seed;
    c->options.recompute_late = costs->recompute_late;
}

int simulate_case_run(struct simulate_case *c, struct weir_faults *faults) {
    return weir_simulate(c->simulator, &c->options, faults, &c->prediction);
}

void simulate_case_clean_up(struct simulate_case *c) {
    weir_simulator_destroy(c->simulator);
    weir_table_destroy(c->table);
    free(c->stage_seconds);
    free(c->border_bytes);
    free(c->saved_bytes);
    free(c->gradient_bytes);
    pipe_step_clean_up(&c->measured);
    *c = (struct simulate_case){0};
}

double simulate_case_peak(const struct simulate_case *c) {
    uint64_t most = 0;
    for (uint32_t w = 0; w < c->prediction.worker_count; w++) {
        uint64_t own = c->prediction.workers[w].peak_activations;
        most = own > most ? own : most;
    }
    return (double)most * c->share;
}

double simulate_case_peak_bytes(const struct simulate_case *c) {
    uint64_t most = 0;
    for (uint32_t w = 0; w < c->prediction.worker_count; w++) {
        uint64_t own = c->prediction.workers[w].peak_bytes;
        most = own > most ? own : most;
    }
    return c->measured.stages != NULL ? (double)most : (double)most * c->share;
}

static int compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int simulate_with_noise(const struct simulate_case *c, double part, uint32_t seeds,
                        double *factors) {
    struct weir_simulate_options options = c->options;
    struct weir_simulator *simulator;
    int status = weir_simulator_new(NULL, &simulator);
    if (status != WEIR_OK) return status;
    options.no_causes = true;
    options.want_actions = false;
    options.noise = part;
    for (uint32_t i = 0; status == WEIR_OK && i < seeds; i++) {
        struct weir_prediction noisy;
        options.seed = c->options.seed + i;
        status = weir_simulate(simulator, &options, NULL, &noisy);
        if (status == WEIR_OK) factors[i] = noisy.step / c->prediction.step;
    }
    weir_simulator_destroy(simulator);
    qsort(factors, seeds, sizeof *factors, compare_doubles);
    return status;
}
