/* SPDX-License-Identifier: MIT */
/* A file that is there is believed only where it fits: silently measuring again would hide that the
 * times of another machine were meant. */
#include "cli/pipe_costs.h"

#include "cli/net_run.h"
#include "pipe/describe/groups.h"
#include "pipe/describe/microbatch.h"
#include "schedule/action.h"
#include "weir_profile.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/** The table that the net would run: the named schedule's, or the CSV's. `no_backward` (one per
 * stage) may be NULL. The caller's: weir_table_destroy. */
static int make_table(const struct weir_net_options *net, const bool *no_backward,
                      struct weir_faults *faults, struct weir_table **table) {
    struct weir_table_options options = WEIR_TABLE_OPTIONS_INIT;
    options.schedule = net->pipe.schedule;
    options.stages = net->stages;
    options.workers = net->pipe.workers;
    options.micro_batches = weir_net_micro_batches(net);
    options.checkpoint = net->pipe.checkpoint;
    options.stage_checkpoint = net->pipe.stage_checkpoint;
    options.no_backward = no_backward;
    options.recompute_late = net->pipe.recompute_late;
    if (net->pipe.table_csv == NULL) return weir_table_new(&options, faults, table);
    options.workers = 0;
    int status = weir_table_parse(&options, net->pipe.table_csv, net->pipe.table_csv_bytes, faults,
                                  NULL, table);
    if (status != WEIR_OK) return status;
    status = weir_table_check(*table, NULL, faults);
    if (status == WEIR_OK) return WEIR_OK;
    weir_table_destroy(*table);
    *table = NULL;
    return status;
}

/* ---- profiles ---- */

static int measure(const char *path, bool timed, const struct weir_model *model,
                   const struct weir_net_options *net, FILE *notes, struct weir_faults *faults,
                   struct weir_profile **profile) {
    struct weir_profile_options options = WEIR_PROFILE_OPTIONS_INIT;
    struct weir_error error = {0};
    options.net = *net;
    options.net.balance = NULL;
    options.bytes_only = !timed;
    uint32_t before = faults->count;
    net_run_check_output("profile", path, faults);
    if (faults->count > before) return WEIR_ERR_ARGUMENT;
    if (timed && notes != NULL) {
        fprintf(notes, "measuring layers%s%s\n", path != NULL ? "; keeping the times in " : "",
                path != NULL ? path : "");
        fflush(notes);
    }
    int status = weir_profile_new(model, &options, faults, profile);
    if (status != WEIR_OK || path == NULL) return status;
    status = weir_profile_save(*profile, path, &error);
    if (status == WEIR_OK) return WEIR_OK;
    weir_faults_add(faults, "--profile %s: %s", path, error.message);
    weir_profile_destroy(*profile);
    *profile = NULL;
    return status;
}

static int load(const char *path, const struct weir_model *model,
                const struct weir_net_options *net, struct weir_faults *faults,
                struct weir_profile **profile) {
    struct weir_faults own = WEIR_FAULTS_INIT;
    struct weir_profile *loaded = NULL;
    int status = weir_profile_load(NULL, path, &own, &loaded);
    for (uint32_t i = 0; i < own.kept; i++) weir_faults_add(faults, "--profile: %s", own.lines[i]);
    weir_faults_clean_up(&own);
    if (status != WEIR_OK) return status;
    status = weir_profile_fit(loaded, model, net, &own);
    if (status == WEIR_OK && !loaded->measured) {
        weir_faults_add(&own, "the profile holds no times: measure again");
        status = WEIR_ERR_CONFIG;
    }
    for (uint32_t i = 0; i < own.kept; i++)
        weir_faults_add(faults, "--profile %s: %s, or name another file", path, own.lines[i]);
    weir_faults_clean_up(&own);
    if (status == WEIR_OK)
        *profile = loaded;
    else
        weir_profile_destroy(loaded);
    return status;
}

int pipe_profile(const struct pipe_options *options, const struct weir_model *model,
                 struct pipe_storage *storage, const struct weir_net_options *net, FILE *notes,
                 struct weir_faults *faults) {
    const char *path = options->profile;
    if (storage->profile != NULL) return WEIR_OK;
    if (path != NULL && (access(path, F_OK) == 0 || errno != ENOENT))
        return load(path, model, net, faults, &storage->profile);
    if (net->pipe.world != NULL) {
        weir_faults_add(faults,
                        "--profile %s: there is none: over several processes it is made first, by "
                        "mpiexec -n %u weir profile --out FILE",
                        path != NULL ? path : "FILE", net->pipe.world->rank_count);
        return WEIR_ERR_CONFIG;
    }
    return measure(path, true, model, net, notes, faults, &storage->profile);
}

/* ---- balance ---- */

/** What the table says of a balance. */
struct placement {
    uint32_t workers;
    uint32_t *of_stage;
    bool split;
    uint32_t alive; /* the most micro-batches that a stage holds at once */
};

static int place(const struct weir_net_options *net, struct weir_faults *faults,
                 struct placement *placement) {
    struct weir_table *table;
    int status = make_table(net, NULL, faults, &table);
    if (status != WEIR_OK) return status;
    uint32_t *alive = calloc(table->stage_count, sizeof *alive);
    placement->of_stage = calloc(table->stage_count, sizeof *placement->of_stage);
    placement->workers = table->worker_count;
    placement->split = weir__table_is_split(table);
    if (alive == NULL || placement->of_stage == NULL) status = WEIR_ERR_OUT_OF_MEMORY;
    if (status == WEIR_OK) weir__table_workers(table, placement->of_stage);
    for (uint32_t a = 0; status == WEIR_OK && a < table->action_count; a++) {
        const struct weir_action *action = &table->actions[a];
        uint32_t *now = &alive[action->stage];
        *now += weir__writes(action->kind, WEIR__OUTPUTS);
        if (*now > placement->alive) placement->alive = *now;
        *now -= weir__writes(action->kind, WEIR__PARAM_GRADS);
    }
    free(alive);
    weir_table_destroy(table);
    return status;
}

/* Of all workers, of all replicas. */
static int find_paces(const struct weir_profile *profile, uint32_t workers, uint32_t replicas,
                      double **paces, struct weir_faults *faults) {
    uint32_t all = workers * replicas;
    *paces = calloc(all, sizeof **paces);
    if (*paces == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    int status = weir_worker_paces(&profile->costs, all, *paces);
    if (status != WEIR_OK)
        weir_faults_add(faults,
                        "--profile: its times are of %u ranks, and there %s %u worker%s: ask for "
                        "one on each, or measure fewer",
                        profile->costs.rank_count, all == 1 ? "is" : "are", all, weir__s(all));
    return status;
}

/* Workers' weights are their own where their kinds differ, and by time where their paces do: those
 * of a worker's slowest replica, since all have one cut. */
static int weigh(const struct weir_profile *profile, const struct weir_net_options *net,
                 const struct weir_balance_options *by, uint32_t workers, double *weights,
                 bool *by_worker, struct weir_faults *faults) {
    bool timed = by->by != WEIR_BALANCE_BY_SIZE && profile->costs.rank_count > 0;
    uint32_t replicas = weir__replicas(&net->pipe);
    struct weir_worker_cost *costs = calloc(workers, sizeof *costs);
    double *paces = NULL;
    int status = costs != NULL ? WEIR_OK : WEIR_ERR_OUT_OF_MEMORY;
    if (status != WEIR_OK) goto out;
    *by_worker = weir_net_worker_costs(net, workers, costs) || timed;
    if (timed) status = find_paces(profile, workers, replicas, &paces, faults);
    if (status != WEIR_OK) goto out;
    for (uint32_t w = 0; timed && w < workers * replicas; w++)
        if (w < workers || paces[w] > costs[w % workers].pace) costs[w % workers].pace = paces[w];
    status = *by_worker ? weir_worker_weights(&profile->costs, costs, workers, by, weights)
                        : weir_layer_weights(&profile->costs, by, weights);
out:
    free(paces);
    free(costs);
    return status;
}

static int cut(const struct weir_profile *profile, const struct weir_net_options *net, bool by_size,
               const struct placement *placement, uint32_t *sizes, struct weir_faults *faults) {
    struct weir_balance_options by = WEIR_BALANCE_OPTIONS_INIT;
    struct weir_partition_options options = WEIR_PARTITION_OPTIONS_INIT;
    uint32_t workers = placement->workers;
    double *weights = calloc((size_t)profile->costs.layer_count * workers, sizeof *weights);
    if (weights == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    by.by = by_size ? WEIR_BALANCE_BY_SIZE : WEIR_BALANCE_BY_TIME;
    by.checkpoint = net->pipe.checkpoint;
    by.micro_batches = weir_net_micro_batches(net);
    by.split = placement->split;
    by.infer = net->pipe.infer_only;
    by.alive = placement->alive;
    options.weights = weights;
    options.count = profile->costs.layer_count;
    options.parts = net->stages;
    options.workers = workers;
    options.stage_workers = placement->of_stage;
    int status = weigh(profile, net, &by, workers, weights, &options.by_worker, faults);
    if (status != WEIR_OK) goto out;
    status = weir_partition(&options, sizes, NULL);
out:
    free(weights);
    return status;
}

static void print_balance(FILE *notes, bool by_size, const uint32_t *sizes, uint32_t count) {
    if (notes == NULL) return;
    fprintf(notes, "balance by %s: --balance ", by_size ? "size" : "time");
    for (uint32_t s = 0; s < count; s++) fprintf(notes, "%s%" PRIu32, s > 0 ? "," : "", sizes[s]);
    fputc('\n', notes);
}

static int choose(const struct pipe_options *options, const struct weir_model *model,
                  struct pipe_storage *storage, struct weir_net_options *net, FILE *notes,
                  struct weir_faults *faults) {
    bool by_size = options->balance_by == PIPE_BALANCE_BY_SIZE;
    struct placement placement = {0};
    struct weir_profile *bytes = NULL;
    storage->sizes = calloc(net->stages, sizeof *storage->sizes);
    int status = storage->sizes == NULL ? WEIR_ERR_OUT_OF_MEMORY : place(net, faults, &placement);
    if (status != WEIR_OK) goto out;
    status = by_size ? measure(NULL, false, model, net, notes, faults, &bytes)
                     : pipe_profile(options, model, storage, net, notes, faults);
    if (status != WEIR_OK) goto out;
    status =
        cut(by_size ? bytes : storage->profile, net, by_size, &placement, storage->sizes, faults);
    if (status != WEIR_OK) goto out;
    net->balance = storage->sizes;
    print_balance(notes, by_size, storage->sizes, net->stages);
out:
    weir_profile_destroy(bytes);
    free(placement.of_stage);
    return status;
}

int pipe_balance_check(const struct pipe_options *options, bool predicts,
                       struct weir_faults *faults) {
    uint32_t before = faults->count;
    bool timed = options->balance_by == PIPE_BALANCE_BY_TIME;
    bool asked = options->balance_by != PIPE_BALANCE_BY_COST;
    if (options->profile != NULL && !timed && !predicts)
        weir_faults_add(faults,
                        "--profile %s: nothing here needs times: give --balance-by time, or leave "
                        "it away",
                        options->profile);
    if (asked && options->balance.count > 0)
        weir_faults_add(faults, "--balance and --balance-by: give one of them");
    return faults->count > before ? WEIR_ERR_ARGUMENT : WEIR_OK;
}

int pipe_balance(const struct pipe_options *options, const struct weir_model *model, bool predicts,
                 struct pipe_storage *storage, struct weir_net_options *net, FILE *notes,
                 struct weir_faults *faults) {
    bool asked = options->balance_by != PIPE_BALANCE_BY_COST;
    int status = pipe_balance_check(options, predicts, faults);
    if (status != WEIR_OK || !asked) return status;
    if (faults->count > 0) return WEIR_ERR_ARGUMENT;
    return choose(options, model, storage, net, notes, faults);
}

/* ---- prediction ---- */

/* Where workers differ, each stage costs what it does on the table's worker. */
static int place_stages(struct pipe_step *step, const struct weir_net_options *net,
                        uint32_t micro_batches) {
    uint32_t count = step->table->worker_count;
    uint32_t *of_stage = calloc(net->stages, sizeof *of_stage);
    struct weir_worker_cost *workers = calloc(count, sizeof *workers);
    int status = WEIR_ERR_OUT_OF_MEMORY;
    if (of_stage == NULL || workers == NULL) goto out;
    weir__table_workers(step->table, of_stage);
    status = WEIR_OK;
    if (!weir_net_worker_costs(net, count, workers)) goto out;
    status = weir_stage_costs_fill_on(step->stages, net->balance, net->stages, workers, of_stage);
    if (status != WEIR_OK) goto out;
    status = weir_stage_costs_simulate(step->stages, net->pipe.checkpoint,
                                       net->pipe.stage_checkpoint, micro_batches, &step->options);
out:
    free(of_stage);
    free(workers);
    return status;
}

/* The costs of the stages, and the table that they go with, which is made for what has no
 * backward. */
static int fill_step(struct pipe_step *step, const struct weir_profile *profile,
                     const struct weir_net_options *net, uint32_t micro_batches,
                     struct weir_faults *faults) {
    int status = weir_stage_costs_new(&profile->costs, net->stages, NULL, &step->stages);
    if (status != WEIR_OK) return status;
    status = weir_stage_costs_fill(step->stages, net->balance, net->stages);
    if (status != WEIR_OK) return status;
    status = weir_stage_costs_simulate(step->stages, net->pipe.checkpoint,
                                       net->pipe.stage_checkpoint, micro_batches, &step->options);
    if (status != WEIR_OK) return status;
    status = make_table(net, step->options.no_backward, faults, &step->table);
    return status == WEIR_OK ? place_stages(step, net, micro_batches) : status;
}

int pipe_step_init(struct pipe_step *step, const struct weir_profile *profile,
                   const struct weir_net_options *net, struct weir_faults *faults) {
    uint32_t all = weir__chunk_count(net->pipe.rows, net->pipe.chunks);
    step->options = (struct weir_simulate_options)WEIR_SIMULATE_OPTIONS_INIT;
    step->scale = calloc(all, sizeof *step->scale);
    step->gradients = calloc(net->stages, sizeof *step->gradients);
    if (step->scale == NULL || step->gradients == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    weir__chunk_parts(net->pipe.rows, net->pipe.chunks, step->scale); /* its own are the first */
    int status = fill_step(step, profile, net, weir_net_micro_batches(net), faults);
    if (status != WEIR_OK) return status;
    status = find_paces(profile, step->table->worker_count, weir__replicas(&net->pipe),
                        &step->paces, faults);
    for (uint32_t s = 0; s < net->stages; s++) step->gradients[s] = step->stages->list[s].gradients;
    weir_net_shared(net, &step->shared);
    step->shared.gradient_bytes = step->gradients;
    if (weir__gradient_groups(&net->pipe) > 1) step->options.shared = &step->shared;
    step->options.table = step->table;
    step->options.micro_batch_scale = step->scale;
    step->options.worker_paces = step->paces;
    step->options.recompute_late = net->pipe.recompute_late;
    return status;
}

void pipe_step_clean_up(struct pipe_step *step) {
    weir_stage_costs_destroy(step->stages);
    weir_table_destroy(step->table);
    free(step->scale);
    free(step->gradients);
    free(step->paces);
    free(step->links);
    *step = (struct pipe_step){0};
}

/* Where a GPU is. */
static int fill_links(const struct weir_profile *profile, const struct weir_net_options *net,
                      struct pipe_step *step) {
    size_t workers = step->table->worker_count;
    if (profile->other == NULL) {
        if (strcmp(profile->device, "cuda") == 0) step->options.link = weir_net_link(net);
        return WEIR_OK;
    }
    step->links = calloc(workers * workers, sizeof *step->links);
    if (step->links == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    weir_net_links(net, step->table->worker_count, step->links);
    step->options.links = step->links;
    return WEIR_OK;
}

bool pipe_links_fit(const struct weir_profile *profile, const struct weir_rank_links *ranks,
                    struct weir_faults *faults) {
    uint32_t count = profile->costs.rank_count;
    if (count == 0 || ranks == NULL || ranks->rank_count == count) return true;
    weir_faults_add(faults,
                    "--links: they are of %u rank%s, and the profile's times of %u: give those of "
                    "one run",
                    ranks->rank_count, weir__s(ranks->rank_count), count);
    return false;
}

int pipe_predict(const struct weir_profile *profile, const struct weir_net_options *net,
                 const struct weir_rank_links *ranks, struct weir_faults *faults, double *seconds) {
    struct weir_simulator *simulator = NULL;
    struct weir_prediction prediction;
    struct pipe_step step = {0};
    if (!pipe_links_fit(profile, ranks, faults)) return WEIR_ERR_CONFIG;
    int status = pipe_step_init(&step, profile, net, faults);
    step.options.no_causes = true;
    step.options.ranks = ranks;
    if (status != WEIR_OK) goto out;
    if ((status = fill_links(profile, net, &step)) != WEIR_OK) goto out;
    status = weir_simulator_new(NULL, &simulator);
    if (status != WEIR_OK) goto out;
    status = weir_simulate(simulator, &step.options, faults, &prediction);
    if (status != WEIR_OK) goto out;
    *seconds = prediction.replicas > 1 ? prediction.total : prediction.step;
out:
    weir_simulator_destroy(simulator);
    pipe_step_clean_up(&step);
    return status;
}
