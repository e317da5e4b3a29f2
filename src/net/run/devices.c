/* SPDX-License-Identifier: MIT */
/* Which stage runs on what: kernels, their workspace and packed weights are chosen before there is
 * a pipe, so the workers' devices are looked up in the table that the pipe will have. That depends
 * on which stages learn nothing, which only compiling says; but what learns does not depend on
 * devices. So a net over CPUs and GPUs is compiled twice. */
#include "net/run/devices.h"

#include "device/device.h"
#include "net/cpu/level.h"
#include "net/cuda/numerics.h"
#include "net/model/graph.h"
#include "pipe/describe/groups.h"
#include "pipe/describe/setup.h"
#include "schedule/action.h"
#include "weir_predict.h"
#include "world/cores.h"

#include <stdio.h>
#include <string.h>

/* ---- workers ---- */

bool weir__net_on_gpu(const struct weir_pipe_options *options, uint32_t worker) {
    return worker < options->device_count && options->devices != NULL &&
           !weir__device_facts(options->devices[worker]).synchronous;
}

static const struct weir__backend *backend_of(const struct weir_net_options *options, bool gpu) {
    const struct weir__level *level;
    if (gpu) return &weir__backend_cuda;
    if (options->reference) return &weir__backend_reference;
    /* weir__net_check refuses what is none */
    int status = weir__level_find(options->level, NULL, &level);
    return status == WEIR_OK ? level->backend : &weir__backend_reference;
}

uint32_t weir__net_threads(const struct weir_net_options *options, uint32_t cores) {
    const struct weir_pipe_options *pipe = &options->pipe;
    uint32_t workers = pipe->workers > 0 ? pipe->workers : options->stages, gpus = 0;
    for (uint32_t w = 0; w < workers; w++) gpus += weir__net_on_gpu(pipe, w);
    uint32_t left = cores > gpus ? cores - gpus : 0;
    uint32_t computing = workers > gpus ? workers - gpus : workers;
    return left > computing ? left / computing : 1;
}

int weir__net_fill_threads(const struct weir_net_options *options, struct weir_net_options *filled,
                           struct weir_faults *faults) {
    assert(options != NULL && filled != NULL);
    const struct weir_world *world = options->pipe.world;
    uint32_t cores, workers = options->pipe.workers > 0 ? options->pipe.workers : options->stages;
    *filled = *options;
    if (!weir__is_sized(world) || world->rank >= world->rank_count) return WEIR_OK;
    int status = weir__world_cores(world, options->pipe.allocator, faults, &cores);
    if (status != WEIR_OK || options->pipe.threads_per_worker > 0) return status;
    uint32_t ranks = world->rank_count / weir__replicas(&options->pipe);
    filled->pipe.threads_per_worker = weir__world_threads(cores, ranks > 0 ? ranks : 1, workers);
    return WEIR_OK;
}

/** Fills no_backward[stages] as the stages' descriptions will say it. */
static int find_frozen(const struct weir_model *model, const struct weir_net_options *options,
                       const uint32_t *balance, struct weir_faults *faults, bool *no_backward) {
    struct weir__compile_options compile = {.dtype = options->dtype,
                                            .balance = balance,
                                            .stage_count = options->stages,
                                            .input_grads = options->input_grads};
    struct weir__network network;
    if (options->pipe.infer_only) return WEIR_OK;
    int status = weir__network_init(&network, options->pipe.allocator, model, &compile, faults);
    if (status != WEIR_OK) return status;
    for (uint32_t s = 0; s < options->stages; s++) no_backward[s] = network.stages[s].no_backward;
    weir__network_clean_up(&network);
    return WEIR_OK;
}

/** Finds in which worker's line each stage stands. That does not depend on how long the search for
 * a table takes, so a quick one is enough. */
static int find_workers(const struct weir_net_options *options, const bool *no_backward,
                        struct weir_faults *faults, uint32_t *workers) {
    struct weir_search_options quick = WEIR_SEARCH_OPTIONS_INIT;
    struct weir_pipe_options pipe = options->pipe;
    struct weir_table *table;
    if (weir__is_sized(pipe.search)) quick = *pipe.search;
    quick.effort = 1;
    if (pipe.search == NULL || weir__is_sized(pipe.search)) pipe.search = &quick;
    pipe.stage_count = options->stages;
    pipe.log = NULL; /* the pipe will say it */
    int status = weir__make_table(&pipe, 0, pipe.rows, no_backward, false, faults, &table);
    if (status != WEIR_OK) return status;
    weir__table_workers(table, workers);
    for (uint32_t s = 0; s < options->stages; s++) {
        if (workers[s] != UINT32_MAX) continue;
        weir_faults_add(faults, "stage %u has no action in the table: no worker runs it", s);
        status = WEIR_ERR_SCHEDULE;
    }
    weir_table_destroy(table);
    return status;
}

static int look_up(const struct weir_model *model, const struct weir_net_options *options,
                   const uint32_t *balance, struct weir_faults *faults,
                   const struct weir__backend **backends) {
    const struct weir_allocator *allocator = options->pipe.allocator;
    bool *no_backward = weir__acquire(allocator, options->stages, sizeof *no_backward);
    uint32_t *workers = weir__acquire(allocator, options->stages, sizeof *workers);
    int status = WEIR_ERR_OUT_OF_MEMORY;
    if (no_backward == NULL || workers == NULL) goto out;
    status = find_frozen(model, options, balance, faults, no_backward);
    if (status != WEIR_OK) goto out;
    if ((status = find_workers(options, no_backward, faults, workers)) != WEIR_OK) goto out;
    for (uint32_t s = 0; s < options->stages; s++)
        backends[s] = backend_of(options, weir__net_on_gpu(&options->pipe, workers[s]));
out:
    weir__release(allocator, workers, options->stages, sizeof *workers);
    weir__release(allocator, no_backward, options->stages, sizeof *no_backward);
    return status;
}

bool weir__net_sole_backend(const struct weir_net_options *options,
                            const struct weir__backend **backend) {
    uint32_t gpus = 0, count = options->pipe.device_count;
    for (uint32_t w = 0; w < count; w++) gpus += weir__net_on_gpu(&options->pipe, w);
    *backend = backend_of(options, gpus > 0);
    return gpus == 0 || gpus == count;
}

int weir__net_backends(const struct weir_model *model, const struct weir_net_options *options,
                       const uint32_t *balance, struct weir_faults *faults,
                       const struct weir__backend **backends) {
    const struct weir__backend *sole;
    bool alike = weir__net_sole_backend(options, &sole);
    assert(sole != NULL);
    if (!alike) sole = backend_of(options, false);
    for (uint32_t s = 0; s < options->stages; s++) backends[s] = sole;
    bool sound =
        options->pipe.rows > 0 && options->pipe.chunks > 0; /* or the pipe says what is not */
    return alike || !sound ? WEIR_OK : look_up(model, options, balance, faults, backends);
}

/* ---- dtypes ---- */

int weir__net_check_dtype(enum weir_dtype dtype, const struct weir__backend *const *backends,
                          uint32_t count, struct weir_faults *faults) {
    bool gpu = false, reference = false;
    for (uint32_t s = 0; s < count; s++) {
        gpu |= backends[s]->on_gpu;
        reference |= backends[s] == &weir__backend_reference;
    }
    if (dtype == WEIR_F64 && gpu)
        weir_faults_add(faults, "--dtype f64 is the CPU's: use f32 or bf16 on a GPU, or "
                                "--device cpu");
    else if (dtype == WEIR_BF16 && reference)
        weir_faults_add(faults, "--dtype bf16: the reference kernels have f32 and f64 alone");
    else
        return WEIR_OK;
    return WEIR_ERR_CONFIG;
}

/* ---- kernels and their libraries ---- */

/** Told each kind of op that a stage's programs run; `kernel` is NULL where the back end has none.
 */
typedef void visit_fn(void *context, const struct weir__node *node,
                      const struct weir__kernel *kernel);

static void visit_ops(const struct weir__slices *slices, const struct weir__backend *backend,
                      enum weir_dtype dtype, visit_fn *visit, void *context) {
    bool seen[WEIR__OP_COUNT] = {false};
    for (uint32_t kind = 0; kind < WEIR__PROGRAM_COUNT; kind++) {
        for (uint32_t i = 0; i < slices->node_counts[kind]; i++) {
            const struct weir__node *node = slices->graph->nodes[slices->nodes[kind][i]];
            if (seen[node->op]) continue;
            seen[node->op] = true;
            visit(context, node, backend->kernel(node->op, dtype));
        }
    }
}

struct missing {
    const struct weir__network *network;
    struct weir_faults *faults;
    bool on_gpu;
    int status;
};

static void tell_missing(void *context, const struct weir__node *node,
                         const struct weir__kernel *kernel) {
    struct missing *missing = context;
    if (kernel != NULL) return;
    missing->status = WEIR_ERR_UNSUPPORTED;
    weir_faults_add(missing->faults, "layer %s: '%s' has no %s",
                    weir__network_layer_label(missing->network, node->layer),
                    weir__op_name(node->op),
                    missing->on_gpu ? "CUDA kernel: give this stage a CPU (--device cuda,cpu names "
                                      "one for each worker)"
                                    : "kernel of bf16: use --dtype f32");
}

/** CUDA's kernels take rows whole. */
static void tell_packed(const struct weir__slices *slices, struct missing *missing) {
    const struct weir__graph *graph = slices->graph;
    for (uint32_t i = 0; i < graph->forward_count; i++) {
        const struct weir__node *node = graph->nodes[i];
        if (node->dead || !node->shape.packed) continue;
        missing->status = WEIR_ERR_UNSUPPORTED;
        weir_faults_add(missing->faults,
                        "layer %s: rows of several documents (packed) have no CUDA kernels: train "
                        "without packing, or give this stage a CPU (--device cuda,cpu names one "
                        "for each worker)",
                        weir__network_layer_label(missing->network, node->layer));
        return;
    }
}

int weir__net_check_kernels(const struct weir__network *network, const struct weir__slices *slices,
                            const struct weir__backend *backend, struct weir_faults *faults) {
    struct missing missing = {network, faults, backend->on_gpu, WEIR_OK};
    visit_ops(slices, backend, network->dtype, tell_missing, &missing);
    if (backend->on_gpu) tell_packed(slices, &missing);
    return missing.status;
}

static const char *const libraries[] = {"cuBLASLt", "cuDNN"};

static void note_library(void *context, const struct weir__node *node,
                         const struct weir__kernel *kernel) {
    bool *used = context; /* [libraries] */
    (void)node;
    for (size_t i = 0; kernel != NULL && i < WEIR__COUNT_OF(libraries); i++)
        used[i] |= strcmp(kernel->library, libraries[i]) == 0;
}

int weir__net_check_libraries(const struct weir_net *net, struct weir_faults *faults) {
    bool used[WEIR__COUNT_OF(libraries)] = {false};
    int worst = WEIR_OK;
    for (uint32_t s = 0; s < net->network.stage_count; s++)
        visit_ops(&net->stages[s].slices, net->backends[s], net->dtype, note_library, used);
    for (size_t i = 0; i < WEIR__COUNT_OF(libraries); i++) {
        struct weir_error error = {0};
        int status = used[i] ? weir__cuda_library_check(libraries[i], &error) : WEIR_OK;
        if (status == WEIR_OK) continue;
        weir_faults_add(faults, "%s", error.message);
        worst = status;
    }
    return worst;
}

/* ---- indices, which a GPU cannot report ---- */

/** The numbers of a batch that a node takes as indices. */
struct indices {
    const int64_t *numbers;
    int64_t count, limit, ignored;
    bool ignores;
    const char *what;
};

/* The value that the stage stashes as the network's skip number `skip`. */
static struct weir_value *stashed(const struct weir__graph *graph, uint32_t skip) {
    uint32_t i = 0;
    while (graph->skips[i].use.verb != WEIR_SKIP_STASH || graph->skips[i].skip != skip) i++;
    assert(i < graph->skip_count);
    return graph->skips[i].value;
}

/* Whether a stage's value is the model's input. It may have come over borders and skips, but no
 * node may have changed it. */
static bool is_input(const struct weir_net *net, uint32_t s, struct weir_value *value) {
    for (;;) {
        value = weir__value_root(value);
        if (value->source == WEIR__FROM_SKIP) {
            uint32_t skip = net->stages[s].compiled->graph.skips[value->index].skip;
            s = net->network.skips[skip].source_stage;
            value = stashed(&net->stages[s].compiled->graph, skip);
        } else if (value->source != WEIR__FROM_INPUT || value->index != 0) {
            return false;
        } else if (s == 0) {
            return true;
        } else {
            value = net->stages[--s].compiled->graph.output;
        }
    }
}

/* Whether a stage's value is the batch's target, which comes to the last stage alone. */
static bool is_target(const struct weir_value *value) {
    return value->source == WEIR__FROM_INPUT && value->index != 0;
}

static bool indices_of(const struct weir_net *net, uint32_t s, const struct weir__node *node,
                       const struct weir_net_batch *batch, struct indices *indices) {
    bool target = node->op == WEIR__OP_cross_entropy;
    if (!target && node->op != WEIR__OP_embedding) return false;
    struct weir_value *value = weir__value_root(node->in[target ? 1 : 0]);
    const void *data = NULL;
    if (is_input(net, s, value)) data = batch->input;
    if (is_target(value)) data = batch->target;
    *indices = (struct indices){.numbers = data,
                                .count = batch->rows * weir__value_count(value),
                                .limit = target ? node->shape.width : node->shape.in,
                                .ignored = node->shape.ignore_index,
                                .ignores = target,
                                .what = target ? "target" : "token"};
    return data != NULL;
}

static int check_indices(const struct indices *indices, struct weir_error *error) {
    for (int64_t i = 0; i < indices->count; i++) {
        int64_t index = indices->numbers[i];
        if (index >= 0 && index < indices->limit) continue;
        if (indices->ignores && index == indices->ignored) continue;
        return weir__fail(error, WEIR_ERR_ARGUMENT,
                          "%s %lld of the mini-batch is %lld, which is outside [0, %lld)",
                          indices->what, (long long)i, (long long)index, (long long)indices->limit);
    }
    return WEIR_OK;
}

int weir__net_check_indices(const struct weir_net *net, const struct weir_net_batch *batch,
                            struct weir_error *error) {
    for (uint32_t s = 0; s < net->network.stage_count; s++) {
        const struct weir__net_stage *stage = &net->stages[s];
        const struct weir__graph *graph = &stage->compiled->graph;
        if (!stage->plan.backend->on_gpu) continue;
        for (uint32_t i = 0; i < graph->forward_count; i++) {
            const struct weir__node *node = graph->nodes[i];
            struct indices indices;
            if (node->dead || !indices_of(net, s, node, batch, &indices)) continue;
            int status = check_indices(&indices, error);
            if (status == WEIR_OK) continue;
            error->stage = (int32_t)s;
            snprintf(error->layer, sizeof error->layer, "%s",
                     weir__network_layer_label(&net->network, node->layer));
            return status;
        }
    }
    return WEIR_OK;
}
