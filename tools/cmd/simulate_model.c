/* SPDX-License-Identifier: MIT */
/* A case whose costs are a model's, as its layers were measured. */
#include "net/compile/compile.h"
#include "cmd/simulate.h"

#include <stdlib.h>

/* Threads differ with the number of workers, so one comparison may need several profiles; what was
 * given by name is never replaced by another one. */
static int take_profile(struct simulate_model *model, struct pipe_storage *storage,
                        const struct weir_net_options *net, struct weir_faults *faults) {
    for (uint32_t i = 0; i < model->profile_count; i++) {
        if (weir_profile_fit(model->profiles[i], model->model, net, NULL) == WEIR_OK) {
            storage->profile = model->profiles[i];
            return WEIR_OK;
        }
    }
    int status = pipe_profile(model->pipe, model->model, storage, net, model->notes, faults);
    if (status == WEIR_OK) model->profiles[model->profile_count++] = storage->profile;
    return status;
}

/* Estimated costs fill in what nobody asked for, as in a run. */
static int complete_balance(const struct simulate_model *model, struct pipe_storage *storage,
                            struct weir_net_options *net, struct weir_faults *faults) {
    uint32_t *sizes = calloc(net->stages, sizeof *sizes);
    if (sizes == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    int status =
        weir__partition_model(model->model, net->dtype, net->stages, net->balance, sizes, faults);
    free(storage->sizes);
    storage->sizes = sizes;
    net->balance = sizes;
    return status;
}

/* What a run would refuse: the memory limit too, when the stages are known. */
static int check_plan(const struct simulate_model *model, const struct weir_net_options *net,
                      uint64_t limit, struct weir_faults *faults) {
    struct weir_net_options own = *net;
    struct weir_plan *plan = NULL;
    own.pipe.memory_limit = limit;
    int status = weir_net_plan(model->model, &own, faults, &plan);
    weir_plan_destroy(plan);
    return status;
}

/* Everything that needs no time is refused before time is spent on measuring. */
static int check(const struct simulate_model *model, const struct pipe_options *pipe,
                 const struct weir_net_options *net, struct weir_faults *faults) {
    int status = pipe_balance_check(pipe, true, faults);
    return status == WEIR_OK ? check_plan(model, net, 0, faults) : status;
}

static int check_limit(const struct simulate_model *model, const struct weir_net_options *net,
                       struct weir_faults *faults) {
    uint64_t limit = net->pipe.memory_limit;
    return limit > 0 ? check_plan(model, net, limit, faults) : WEIR_OK;
}

static int fill(struct simulate_case *c, const struct simulate_costs *costs,
                const struct weir_profile *profile, const struct weir_net_options *net,
                struct weir_faults *faults) {
    if (!pipe_links_fit(profile, costs->ranks, faults)) return WEIR_ERR_CONFIG;
    int status = pipe_step_init(&c->measured, profile, net, faults);
    if (status != WEIR_OK) return status;
    c->table = c->measured.table;
    c->measured.table = NULL;
    c->share = (double)c->table->worker_count / c->table->stage_count;
    c->options = c->measured.options;
    c->options.link = costs->link;
    c->options.ranks = costs->ranks;
    c->options.host_seconds = costs->host;
    c->options.noise = costs->noise;
    c->options.seed = costs->seed;
    return weir_simulator_new(NULL, &c->simulator);
}

int simulate_model_case(struct simulate_model *model, const char *schedule,
                        const struct simulate_costs *costs, struct simulate_case *c,
                        struct weir_faults *faults) {
    struct weir_net_options net = WEIR_NET_OPTIONS_INIT;
    struct pipe_options pipe = *model->pipe;
    struct pipe_storage storage;
    uint32_t before = faults->count;
    *c = (struct simulate_case){.name = schedule};
    pipe.schedule = schedule;
    if (model->balance_by_time && pipe.balance.count == 0) pipe.balance_by = PIPE_BALANCE_BY_TIME;
    step_options_fill(model->step, &net);
    int status = pipe_options_fill(&pipe, model->args, model->model, &storage, &net, faults);
    if (status != WEIR_OK) goto out;
    if ((status = check(model, &pipe, &net, faults)) != WEIR_OK) goto out;
    if ((status = take_profile(model, &storage, &net, faults)) != WEIR_OK) goto out;
    const struct weir_profile *profile = storage.profile;
    status = pipe_balance(&pipe, model->model, true, &storage, &net, NULL, faults);
    if (status != WEIR_OK) goto out;
    if ((status = complete_balance(model, &storage, &net, faults)) != WEIR_OK) goto out;
    if ((status = check_limit(model, &net, faults)) != WEIR_OK) goto out;
    status = fill(c, costs, profile, &net, faults);
out:
    storage.profile = NULL; /* the model's */
    pipe_storage_clean_up(&storage);
    if (status != WEIR_OK && faults->count == before)
        weir_faults_add(faults, "%s", weir_status_text(status));
    return status;
}
