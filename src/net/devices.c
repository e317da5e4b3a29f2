/* SPDX-License-Identifier: MIT */
/* Which stage runs on what: kernels, their workspace and packed weights are chosen before there is
 * a pipe, so the workers' devices are looked up in a table like the pipe's. */
#include "net/devices.h"

#include "device/device.h"
#include "net/cuda/numerics.h"
#include "net/graph.h"
#include "pipe/microbatch.h"
#include "schedule/action.h"

#include <stdio.h>
#include <string.h>

static bool is_gpu(const struct weir_pipe_options *options, uint32_t worker) {
    return worker < options->device_count && options->devices != NULL &&
           !weir__device_facts(options->devices[worker]).synchronous;
}

static struct weir_table_options table_options(const struct weir_net_options *options) {
    const struct weir_pipe_options *pipe = &options->pipe;
    struct weir_table_options want = WEIR_TABLE_OPTIONS_INIT;
    want.allocator = pipe->allocator;
    if (pipe->schedule != NULL) want.schedule = pipe->schedule;
    want.stages = options->stages;
    want.workers = pipe->workers;
    want.micro_batches =
        pipe->rows > 0 && pipe->chunks > 0 ? weir__chunk_count(pipe->rows, pipe->chunks) : 1;
    want.checkpoint = pipe->infer_only ? WEIR_CHECKPOINT_NEVER : pipe->checkpoint;
    want.stage_checkpoint = pipe->infer_only ? NULL : pipe->stage_checkpoint;
    want.recompute_late = pipe->recompute_late;
    want.search = pipe->infer_only ? NULL : pipe->search;
    if (pipe->infer_only && pipe->table_csv == NULL) weir__table_options_infer(&want);
    return want;
}

/** A table that cannot be made is the pipe's to report. */
static void look_up(const struct weir_net_options *options, enum weir__backend *backends) {
    const struct weir_pipe_options *pipe = &options->pipe;
    struct weir_table_options want = table_options(options);
    struct weir_table *table = NULL;
    if (pipe->table_csv != NULL) want.micro_batches = 0;
    int status =
        pipe->table_csv != NULL
            ? weir_table_parse(&want, pipe->table_csv, pipe->table_csv_bytes, NULL, NULL, &table)
            : weir_table_new(&want, NULL, &table);
    for (uint32_t a = 0; status == WEIR_OK && a < table->action_count; a++) {
        uint32_t stage = table->actions[a].stage;
        if (stage < options->stages && is_gpu(pipe, weir__table_worker_of(table, a)))
            backends[stage] = WEIR__BACKEND_CUDA;
    }
    weir_table_destroy(table);
}

void weir__net_backends(const struct weir_net_options *options, enum weir__backend *backends) {
    const struct weir_pipe_options *pipe = &options->pipe;
    uint32_t gpus = 0;
    for (uint32_t w = 0; w < pipe->device_count; w++) gpus += is_gpu(pipe, w);
    bool all = gpus > 0 && gpus == pipe->device_count;
    for (uint32_t s = 0; s < options->stages; s++) {
        backends[s] = options->reference ? WEIR__BACKEND_REFERENCE : WEIR__BACKEND_CPU;
        if (all) backends[s] = WEIR__BACKEND_CUDA;
    }
    if (gpus > 0 && !all) look_up(options, backends);
}

int weir__net_check_dtype(const struct weir_net_options *options,
                          const enum weir__backend *backends, struct weir_faults *faults) {
    enum weir_dtype dtype = options->dtype;
    uint32_t gpus = 0;
    for (uint32_t s = 0; s < options->stages; s++) gpus += backends[s] == WEIR__BACKEND_CUDA;
    if (dtype == WEIR_F64 && gpus > 0)
        weir_faults_add(faults, "--dtype f64 is the CPU's: use f32 or bf16 on a GPU, or "
                                "--device cpu");
    else if (dtype == WEIR_BF16 && gpus < options->stages)
        weir_faults_add(faults, "--dtype bf16 is the GPU's: use f32 on a CPU, or --device cuda");
    else
        return WEIR_OK;
    return WEIR_ERR_CONFIG;
}

/* ---- kernels and their libraries ---- */

/** Told each kind of op that the programs of a stage on a GPU run; `kernel` is NULL where there is
 * none. */
typedef void visit_fn(void *context, const struct weir__node *node,
                      const struct weir__kernel *kernel);

static void visit_ops(const struct weir__stage *stage, visit_fn *visit, void *context) {
    const struct weir__slices *slices = &stage->slices;
    bool seen[WEIR__OP_COUNT] = {false};
    if (stage->plan.backend != WEIR__BACKEND_CUDA) return;
    for (uint32_t kind = 0; kind < WEIR__PROGRAM_COUNT; kind++) {
        for (uint32_t i = 0; i < slices->node_counts[kind]; i++) {
            const struct weir__node *node = slices->graph->nodes[slices->nodes[kind][i]];
            if (seen[node->op]) continue;
            seen[node->op] = true;
            visit(context, node,
                  weir__kernel_for(node->op, stage->plan.dtype, stage->plan.backend));
        }
    }
}

struct missing {
    const struct weir__network *network;
    struct weir_faults *faults;
    int status;
};

static void tell_missing(void *context, const struct weir__node *node,
                         const struct weir__kernel *kernel) {
    struct missing *missing = context;
    if (kernel != NULL) return;
    missing->status = WEIR_ERR_UNSUPPORTED;
    weir_faults_add(missing->faults,
                    "layer %s: '%s' has no CUDA kernel: give this stage a CPU (--device cuda,cpu "
                    "names one for each worker)",
                    weir__network_layer_label(missing->network, node->layer),
                    weir__op_name(node->op));
}

int weir__net_check_kernels(const struct weir__network *network, const struct weir__stage *stage,
                            struct weir_faults *faults) {
    struct missing missing = {network, faults, WEIR_OK};
    visit_ops(stage, tell_missing, &missing);
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
        visit_ops(&net->stages[s], note_library, used);
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

static bool indices_of(const struct weir__stage *stage, const struct weir__node *node,
                       const struct weir_net_batch *batch, struct indices *indices) {
    bool target = node->op == WEIR__OP_cross_entropy;
    if (!target && node->op != WEIR__OP_embedding) return false;
    const struct weir_value *value = weir__value_root(node->in[target ? 1 : 0]);
    if (value->source != WEIR__FROM_INPUT) return false;
    const void *data = batch->target;
    if (value->index == 0) data = stage->compiled->layer_first == 0 ? batch->input : NULL;
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
        const struct weir__stage *stage = &net->stages[s];
        const struct weir__graph *graph = &stage->compiled->graph;
        if (stage->plan.backend != WEIR__BACKEND_CUDA) continue;
        for (uint32_t i = 0; i < graph->forward_count; i++) {
            const struct weir__node *node = graph->nodes[i];
            struct indices indices;
            if (node->dead || !indices_of(stage, node, batch, &indices)) continue;
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
