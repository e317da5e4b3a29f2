/* SPDX-License-Identifier: MIT */
/**
 * Inside a net: the engine's stages that stand for parts of the layer list, and what they share.
 */
#ifndef WEIR_NET_INSIDE_H
#define WEIR_NET_INSIDE_H

#include "net/compile/compile.h"
#include "net/compile/program.h"

/** What a step tells its stages, through weir_step.user. */
struct weir__net_step_state {
    uint64_t weights; /**< numbers, from 1, what the parameters are: another after each update and
                           each time that values are given */
    uint64_t weights_given; /**< counts the latter alone: what does not learn stays until then */
    struct weir__places places;
    double lr;
    int64_t output_first; /**< the first row of the mini-batch whose output is wanted */
    bool has_target;
    bool look; /**< for numbers that are not finite */
};

/** Times a stage's programs call by call. It is the worker's while a step is in progress. */
struct weir__timing {
    uint64_t *stamps;           /**< room for the longest program's calls, and one */
    struct weir__event *events; /**< on a GPU, instead: as many; NULL on a CPU */
    /** After a program has run (on a GPU: has been given to the stream). A status. */
    int (*note)(struct weir__timing *timing, const struct weir_task *task,
                enum weir__program_kind kind, const struct weir__program *program);
};

/** Spans whose optimizer's numbers lie as far from them as each other's. */
struct weir__net_run {
    uint32_t first, count;
    size_t shift; /**< bytes from a parameter's offset to its place in each of the optimizer's
                     arrays; they wrap around */
    bool copy;    /**< of one parameter, whose gradients lie with the original's */
};

/** A stage's context. Built by the net's thread; afterwards touched by the stage's worker, and by
 * the net's thread between steps only. */
struct weir__net_stage {
    const struct weir__network *network;
    struct weir__stage_graph *compiled;
    struct weir__slices slices;
    struct weir__instance_options plan;
    struct weir__instance **instances; /**< one per row count of micro-batches */
    uint32_t instance_count, instance_capacity;
    uint32_t found; /**< the instance that was used last */
    uintptr_t *bases;
    uint32_t *tied; /**< the network's numbers of the parameters in task.tied */
    size_t state_bytes;
    struct weir_attachment at; /**< zero before attach */
    uint64_t packed_ahead[2];  /**< of these weights nothing is left to pack; for inference */
    struct weir_optimizer optimizer;
    uint64_t seed;
    bool last;                   /**< its output is the model's, which may not be asked for */
    struct weir__timing *timing; /**< NULL: nobody asks for times; set between steps */
    const struct weir__flat_calls *flat; /**< the back end's, for parameters */
    struct {
        uint32_t groups, replicas, replica; /**< as weir_shared.h has them, none of them 0 */
    } share;
    struct weir_section *sections; /**< with replicas: of its gradients (slices.c) */
    struct weir__span *pieces; /**< in own slices: of own parameters, whose squares are summed … */
    struct weir__span *spans; /**< … and what is updated: own parameters, then copies of others' */
    struct weir__net_run *runs; /**< of spans */
    uint32_t section_count, piece_count, span_count, run_count;
    uint32_t norm_count; /**< of all slices' pieces */
    size_t array_bytes;  /**< of each of the optimizer's arrays */
    size_t norm_workspace;
};

/** What is this replica's, when the compiled stage is there; in the network's pool. */
int weir__stage_share(struct weir__net_stage *stage, struct weir__network *network);
/** Bytes [*begin, *end) of a parameter that learns that are a replica's slice. */
void weir__stage_slice(const struct weir__net_stage *stage,
                       const struct weir__parameter_decl *parameter, uint32_t replica,
                       size_t *begin, size_t *end);
/** Whether this process has the stage. */
static inline bool weir__stage_is_here(const struct weir__net_stage *stage) {
    return stage->at.stream != NULL;
}
/** Whether this replica has a mini-batch's moments, and moves their statistics. */
bool weir__stage_moves(const struct weir__net_stage *stage,
                       const struct weir__accumulator *moments);
/** Where in each of the optimizer's arrays this replica's numbers of the parameter begin. */
size_t weir__stage_optimizer_at(const struct weir__net_stage *stage,
                                const struct weir__parameter_decl *parameter);

/** In the network's pool. `stage` is zeroed but for `plan`'s allocator, dtype, rows_max, threads,
 * threads_known and backend, and optimizer and seed. */
int weir__stage_init(struct weir__net_stage *stage, struct weir__network *network, uint32_t index);
/** Frees the instances. */
void weir__stage_clean_up(struct weir__net_stage *stage);
/** The description for the engine; arrays in the network's pool. WEIR_ERR_CONFIG, and why: a
 * parameter is tied over stages and has no gradient in this one. */
int weir__stage_describe(struct weir__net_stage *stage, struct weir__network *network,
                         uint32_t index, bool infer_only, struct weir_stage *description,
                         struct weir_faults *faults);

/** Optimizer arrays per parameter: 2 for AdamW, 1 for SGD with momentum, else 0. */
uint32_t weir__optimizer_arrays(const struct weir_optimizer *optimizer);
/** The elements [*begin, *begin + *count) of a parameter's optimizer arrays that this rank has:
 * weir_parameter's `optimizer` points at element *begin. Of the parameter itself, which all ranks
 * with its stage have, this one writes these to a checkpoint. So the slices of those ranks cover a
 * parameter and do not overlap, a frozen one's too; *count is 0 on ranks without the stage. */
void weir__net_optimizer_slice(const struct weir_net *net, uint32_t parameter, uint64_t *begin,
                               uint64_t *count);
/** "exp_avg", "exp_avg_sq" or "momentum_buffer". */
const char *weir__optimizer_array_name(const struct weir_optimizer *optimizer, uint32_t array);

/** The file of options.weights, in which parameters may stay. */
struct weir__net_weights {
    const struct weir_allocator *allocator;
    struct weir__archive *archive; /**< NULL: none */
    char *path;
    bool fresh; /**< nobody has loaded from it yet: the first load is of this very file, whatever
                     has that path by then */
    struct weir__mapping mapping; /**< its context is this struct */
};
/** Opens the options' file, if there is one, for as long as parameters stay there. A file that
 * cannot be read is a line in `faults`, and a status of io/archive.h. */
int weir__net_weights_open(struct weir__net_weights *weights,
                           const struct weir_net_options *options, struct weir_faults *faults);
void weir__net_weights_close(struct weir__net_weights *weights);
/** Numbers of parameters that stay there, each once, in a net with such options; 0 where there can
 * be no such net. */
uint64_t weir__net_mapped_count(const struct weir_model *model,
                                const struct weir_net_options *options);

struct weir_net {
    const struct weir_allocator *allocator;
    const struct weir_model *model;
    struct weir__network network;
    const struct weir__backend **backends; /**< per stage */
    uint32_t *balance;                     /**< layers per stage */
    uint32_t cut_count;                    /**< stages, as asked for: of these two lists */
    struct weir__net_stage *stages;        /**< in the network's pool, as the rest */
    struct weir_optimizer optimizer;
    enum weir_dtype dtype;
    uint64_t seed;
    bool has_loss;
    bool input_grads;
    bool reference;
    const struct weir__level *level; /**< of what CPUs compute in f32 */
    struct weir__net_weights weights;
    bool infer_only;
    bool layered;       /**< as in struct weir__graph */
    uint32_t sequences; /**< 0: rows are whole */
    int64_t rows_max;
    size_t target_bytes; /**< of rows_max rows */
    void *no_target;     /**< zeros, for inference without one */
    struct weir_pipe_options pipe_options;
    struct weir_pipe *pipe;
    struct weir__net_step_state step;
    uint64_t next_mini_batch, next_update; /**< WEIR_NET_NEXT */
    bool filled;                           /**< somebody gave the parameters values */
};

/** Before parameters are given values: nothing that was packed of the old ones holds. */
void weir__net_weights_given(struct weir_net *net);
/** weir_net_new with layered graphs. */
int weir__net_new_layered(const struct weir_model *model, const struct weir_net_options *options,
                          struct weir_faults *faults, struct weir_net **net);
/** Whether a net can be made with such options, as far as they alone tell. Every fault is a line.
 */
int weir__net_check(const struct weir_model *model, const struct weir_net_options *options,
                    struct weir_faults *faults);

#endif
